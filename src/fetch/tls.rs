//! Whom to believe an https upstream.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// TLS with the authorities that browsers trust (Mozilla's list, built in: a static binary finds
/// none on a small machine), and with one of the operator's own.
pub(crate) fn client_config(own: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots: RootCertStore = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
    if let Some(path) = own {
        add(&mut roots, path).map_err(|why| format!("--upstream-ca {}: {why}", path.display()))?;
    }
    let provider = rustls::crypto::ring::default_provider().into();
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn add(roots: &mut RootCertStore, path: &Path) -> Result<(), String> {
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())?;
    let mut count = 0;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
        count += 1;
    }
    if count == 0 { Err("no certificate in it; a PEM file is wanted".to_owned()) } else { Ok(()) }
}
