//! Trust in a manifest by its digest, and in those that descend from it.

use std::sync::Arc;
use std::time::Instant;

use neve_archive::{Digest, Manifest};

use super::{ArchiveReader, MANIFEST_EVERY};
use crate::archive::verify::descends;
use crate::shared::lock::lock;

/// Manifests that were compared with the trusted one.
#[derive(Default)]
pub(super) struct Descendants {
    /// The last one that was taken.
    last: Option<Digest>,
    /// The last one that was not, the time, and the reason.
    refused: Option<(Digest, Instant, String)>,
}

impl ArchiveReader {
    /// Takes a manifest that is the trusted one or descends from it, if none with a higher sequence was taken before.
    /// An error says why it is refused.
    pub(super) async fn takes_descendant(
        self: &Arc<Self>,
        manifest: &Arc<Manifest>,
        digest: Digest,
        trusted: Digest,
    ) -> Result<(), String> {
        let refused = lock(&self.descendants).refused.clone();
        // Its links may be a thousand objects, which are read once a minute at most.
        let refused = refused.filter(|(of, at, _)| *of == digest && at.elapsed() < MANIFEST_EVERY);
        if let Some((.., why)) = refused {
            return Err(why);
        }
        if let Err(why) = self.descends(manifest, digest, trusted).await {
            lock(&self.descendants).refused = Some((digest, Instant::now(), why.clone()));
            return Err(why);
        }
        let (reader, sequence) = (Arc::clone(self), manifest.sequence);
        let taking = tokio::task::spawn_blocking(move || reader.proofs.take_newest(sequence));
        taking.await.unwrap_or_else(|ended| Err(ended.to_string()))?;
        lock(&self.descendants).last = Some(digest);
        Ok(())
    }

    async fn descends(
        &self,
        manifest: &Manifest,
        digest: Digest,
        trusted: Digest,
    ) -> Result<(), String> {
        // One that descends from the last one does from the trusted one: only after a start old links are needed.
        let from: Vec<_> = [trusted].into_iter().chain(lock(&self.descendants).last).collect();
        if from.contains(&digest) {
            return Ok(());
        }
        let descends = descends(self.manifests.store(), manifest, &from).await;
        if descends.map_err(|failed| failed.to_string())? {
            return Ok(());
        }
        let sequence = manifest.sequence;
        Err(format!(
            "manifest {sequence}, sha256:{digest}, does not descend from sha256:{trusted} of --archive-trust"
        ))
    }
}
