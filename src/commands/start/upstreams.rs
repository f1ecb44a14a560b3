//! Upstreams of the settings, or a development chain.

use std::io;
use std::path::{Path, PathBuf};

use neve_devnet::DevnetThread;
use tokio::task::spawn_blocking;
use tracing::warn;

use super::dev;
use super::error::StartError;
use crate::client::client_config;
use crate::config::settings::{UpstreamConfig, relayed_only};
use crate::config::{Endpoint, Network, RelayRule, UpstreamHeaders};

/// Upstreams, ready to be asked.
pub(crate) struct Upstreams {
    pub(crate) endpoints: Vec<Endpoint>,
    /// Upstreams that get relayed calls only.
    pub(crate) relayed_only: Vec<Endpoint>,
    /// True if the last of them is mirrored.
    pub(crate) mirror: bool,
    pub(crate) network: Option<Network>,
    pub(crate) tls: rustls::ClientConfig,
    /// Files of HTTP headers, each with the endpoint whose requests have them.
    pub(crate) header_files: Vec<(PathBuf, Endpoint)>,
    /// Keeps the development chain running.
    _dev: Option<DevnetThread>,
}

impl Upstreams {
    /// Reads the headers of all upstreams, also those of `rules`, or starts the development chain. Files are read on a
    /// thread that may wait for them.
    pub(crate) async fn of(
        source: &UpstreamConfig,
        rules: &[RelayRule],
    ) -> Result<Self, StartError> {
        match source {
            UpstreamConfig::Upstream { endpoints, mirror, network, ca, header_files } => {
                let relayed_only = relayed_only(rules, endpoints);
                let (endpoints, files, ca) = (endpoints.clone(), header_files.clone(), ca.clone());
                let reading = spawn_blocking(move || {
                    let own = ca.as_deref().map(|path| ("--upstream-ca", path));
                    let tls = client_config(own).map_err(StartError::Tls);
                    with_headers(endpoints, relayed_only, &files).and_then(|read| Ok((read, tls?)))
                });
                let ((endpoints, relayed_only, header_files), tls) =
                    reading.await.map_err(io::Error::other)??;
                let (mirror, network) = (*mirror, *network);
                Ok(Self { endpoints, relayed_only, mirror, network, tls, header_files, _dev: None })
            }
            UpstreamConfig::Dev { rate } => Self::of_dev(*rate, rules).await,
        }
    }

    /// Starts a development chain, which is the only upstream that is followed.
    async fn of_dev(rate: f64, rules: &[RelayRule]) -> Result<Self, StartError> {
        let chain = dev::start(rate).await.map_err(|error| StartError::Dev(error.to_string()))?;
        let endpoint = Endpoint::parse(&chain.base_url()).map_err(StartError::Dev)?;
        let tls = client_config(None).map_err(StartError::Tls)?;
        let endpoints = vec![endpoint];
        Ok(Self {
            relayed_only: relayed_only(rules, &endpoints),
            endpoints,
            mirror: false,
            network: None,
            tls,
            header_files: Vec::new(),
            _dev: Some(chain),
        })
    }

    /// The names of all.
    pub(crate) fn shown(&self) -> String {
        let shown: Vec<_> = self.endpoints.iter().map(|endpoint| &*endpoint.name).collect();
        shown.join(", ")
    }
}

/// Endpoints with headers, those that get relayed calls only, and files with the endpoint of each.
type WithHeaders = (Vec<Endpoint>, Vec<Endpoint>, Vec<(PathBuf, Endpoint)>);

/// Reads `--upstream-header-file`: one for all that are followed, or one for each. The secret of one
/// file never goes to an upstream that is not followed.
fn with_headers(
    mut followed: Vec<Endpoint>,
    mut relayed_only: Vec<Endpoint>,
    files: &[PathBuf],
) -> Result<WithHeaders, StartError> {
    let (count, mut used) = (followed.len(), Vec::new());
    for (at, endpoint) in followed.iter_mut().chain(&mut relayed_only).enumerate() {
        // One file is for all followed upstreams. Those that are only relayed to are other
        // services: theirs are named one by one.
        let file = if files.len() == 1 && at < count { files.first() } else { files.get(at) };
        let Some(file) = file.filter(|file| file.as_os_str() != "none") else { continue };
        let wrong = |why| StartError::Headers { file: file.clone(), why };
        endpoint.headers = UpstreamHeaders::read(file).map_err(wrong)?;
        used.push((file.clone(), endpoint.clone()));
    }
    for file in files.iter().filter(|file| is_readable_by_all(file)) {
        warn!(file = %file.display(), "header file readable by others");
    }
    Ok((followed, relayed_only, used))
}

fn is_readable_by_all(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_of_one_file_goes_to_followed_upstreams_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, format!("X-Key: {name}")).unwrap();
            path
        };
        let endpoint = |url| vec![Endpoint::parse(url).unwrap()];
        let keys = |files: &[PathBuf]| {
            let of = |all: &[Endpoint]| {
                let mut headers = hyper::HeaderMap::new();
                all[0].headers.add_to(&mut headers);
                headers.get("x-key").map(|key| key.to_str().unwrap().to_owned())
            };
            let (followed, relayed, _) =
                with_headers(endpoint("http://a"), endpoint("http://b"), files).unwrap();
            (of(&followed), of(&relayed))
        };
        assert_eq!(keys(&[file("a")]), (Some("a".into()), None));
        assert_eq!(keys(&[file("a"), file("b")]), (Some("a".into()), Some("b".into())));
        assert_eq!(keys(&["none".into(), file("b")]), (None, Some("b".into())));
    }
}
