//! Connections to upstreams, and whom to believe an https one.

use std::path::Path;
use std::time::Duration;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::config::read_text;

/// Bytes of a file of authorities: all authorities of a browser take a quarter of a megabyte.
const CERTIFICATES_BYTES_MAX: u64 = 1 << 20;

/// TLS with the authorities that browsers trust (Mozilla's list, built in: a small machine
/// may have none), and with one of the operator's own: the setting that names its file, and the file.
pub(crate) fn client_config(own: Option<(&str, &Path)>) -> Result<ClientConfig, String> {
    let mut roots: RootCertStore = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
    if let Some((setting, path)) = own {
        add(&mut roots, path).map_err(|why| format!("{setting} {}: {why}", path.display()))?;
    }
    let provider = rustls::crypto::ring::default_provider().into();
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Connects over http or https, as the address says.
pub(crate) fn connector(tls: ClientConfig, timeout: Duration) -> HttpsConnector<HttpConnector> {
    let mut connector = HttpConnector::new();
    // The connector of TLS is around it: it opens the socket for https, too.
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(timeout));
    // A request is one small write: the kernel must not hold it back for an acknowledgment.
    connector.set_nodelay(true);
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls);
    builder.https_or_http().enable_http1().wrap_connector(connector)
}

fn add(roots: &mut RootCertStore, path: &Path) -> Result<(), String> {
    let text = read_text(path, CERTIFICATES_BYTES_MAX)?;
    let certificates = CertificateDer::pem_slice_iter(text.as_bytes());
    let mut count = 0;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
        count += 1;
    }
    // An empty file would trust nothing more, and its owner would learn that from failed
    // handshakes.
    if count == 0 { Err("no certificate in it; a PEM file is wanted".to_owned()) } else { Ok(()) }
}
