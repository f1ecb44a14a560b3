//! The embedded development chain, as `serve --dev` runs it.

/// A running chain; it ends when this is dropped.
pub(crate) struct Chain {
    url: String,
}

impl Chain {
    /// Starts a chain that makes `rate` blocks a second.
    pub(crate) async fn start(_rate: f64) -> Result<Self, String> {
        Err("not there yet".to_owned())
    }

    /// Its base address.
    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }
}
