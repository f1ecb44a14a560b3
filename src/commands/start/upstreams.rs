//! Upstreams of the settings, or a development chain.

use std::path::{Path, PathBuf};

use neve_devnet::DevnetThread;
use tracing::warn;

use super::dev;
use super::error::StartError;
use crate::client::client_config;
use crate::config::settings::UpstreamConfig;
use crate::config::{Endpoint, Network, UpstreamHeaders};

/// Upstreams, ready to be asked.
pub(crate) struct Upstreams {
    pub(crate) endpoints: Vec<Endpoint>,
    /// True if the last of them is mirrored.
    pub(crate) mirror: bool,
    pub(crate) network: Option<Network>,
    pub(crate) tls: rustls::ClientConfig,
    /// Keeps the development chain running.
    _dev: Option<DevnetThread>,
}

impl Upstreams {
    pub(crate) async fn of(source: &UpstreamConfig) -> Result<Self, StartError> {
        match source {
            UpstreamConfig::Upstream { endpoints, mirror, network, ca, header_files } => Ok(Self {
                endpoints: with_headers(endpoints.clone(), header_files)?,
                mirror: *mirror,
                network: *network,
                tls: client_config(ca.as_deref()).map_err(StartError::Tls)?,
                _dev: None,
            }),
            UpstreamConfig::Dev { rate } => {
                let chain =
                    dev::start(*rate).await.map_err(|error| StartError::Dev(error.to_string()))?;
                let endpoint = Endpoint::parse(&chain.base_url()).map_err(StartError::Dev)?;
                let tls = client_config(None).map_err(StartError::Tls)?;
                let endpoints = vec![endpoint];
                Ok(Self { endpoints, mirror: false, network: None, tls, _dev: Some(chain) })
            }
        }
    }

    /// The names of all.
    pub(crate) fn shown(&self) -> String {
        let shown: Vec<_> = self.endpoints.iter().map(|endpoint| &*endpoint.name).collect();
        shown.join(", ")
    }
}

/// Reads `--upstream-header-file`: one for all endpoints, or one for each.
fn with_headers(
    mut endpoints: Vec<Endpoint>,
    files: &[PathBuf],
) -> Result<Vec<Endpoint>, StartError> {
    for (at, endpoint) in endpoints.iter_mut().enumerate() {
        let file = if files.len() == 1 { files.first() } else { files.get(at) };
        let Some(file) = file.filter(|file| file.as_os_str() != "none") else { continue };
        let wrong = |why| StartError::Headers { file: file.clone(), why };
        endpoint.headers = UpstreamHeaders::read(file).map_err(wrong)?;
    }
    for file in files.iter().filter(|file| is_readable_by_all(file)) {
        warn!(file = %file.display(), "header file readable by others");
    }
    Ok(endpoints)
}

fn is_readable_by_all(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}
