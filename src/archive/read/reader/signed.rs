//! Trust in the manifests that a key signed.

use std::sync::Arc;

use neve_archive::{Digest, Manifest};

use super::ArchiveReader;
use crate::archive::signature::is_signed_by;
use crate::shared::lock::lock;

/// Results for manifests that were read last. A manifest is the same for a minute, and may have 30 MB.
#[derive(Default)]
pub(super) struct JudgedManifests {
    /// The last one whose signature was checked, and the result.
    checked: Option<(Digest, bool)>,
    /// The last one, if it was refused.
    refused: Option<Digest>,
    /// Number of checks of signatures.
    #[cfg(test)]
    pub(super) checks: usize,
}

impl JudgedManifests {
    /// Notes that a manifest is refused. Returns false if it was the last time, too.
    pub(super) fn refuse(&mut self, digest: Digest) -> bool {
        self.refused.replace(digest) != Some(digest)
    }

    /// Notes that a manifest is taken.
    pub(super) fn take(&mut self) {
        self.refused = None;
    }
}

impl ArchiveReader {
    /// True if the key signed a manifest, and none with a higher sequence was taken before. An error says why that is
    /// not known.
    pub(super) async fn takes_signed(
        self: &Arc<Self>,
        manifest: &Arc<Manifest>,
        digest: Digest,
        key: [u8; 32],
    ) -> Result<bool, String> {
        let (reader, manifest) = (Arc::clone(self), Arc::clone(manifest));
        // A manifest of the whole chain has 30 MB, and its sequence goes to the disk.
        let checking = move || {
            let is_signed = reader.is_signed(&manifest, digest, &key);
            if is_signed {
                reader.proofs.take_newest(manifest.sequence)?;
            }
            Ok(is_signed)
        };
        tokio::task::spawn_blocking(checking).await.unwrap_or(Ok(false))
    }

    /// True if the key signed a manifest. The result for the last one is remembered.
    fn is_signed(&self, manifest: &Manifest, digest: Digest, key: &[u8; 32]) -> bool {
        let known = lock(&self.judged).checked.filter(|(of, _)| *of == digest);
        if let Some((_, is_signed)) = known {
            return is_signed;
        }
        let is_signed = is_signed_by(manifest, key);
        let mut judged = lock(&self.judged);
        judged.checked = Some((digest, is_signed));
        #[cfg(test)]
        {
            judged.checks += 1;
        }
        is_signed
    }
}
