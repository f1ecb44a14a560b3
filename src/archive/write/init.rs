//! Making an archive: the trial of its store, and a manifest without segments.

use neve_archive::{Chain, Manifest, Trial};

use super::change::{WriteOptions, Writer, own_manifest};
use crate::archive::error::Failed;
use crate::archive::store::ArchiveStore;

/// Result of `init`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Initialized {
    /// True if there was no manifest.
    pub(crate) is_new: bool,
    /// The manifest.
    pub(crate) manifest: Manifest,
}

impl Initialized {
    /// Returns the result of the trial; `None` for a directory.
    pub(crate) fn trial(&self) -> Option<&Trial> {
        self.manifest.trial.as_ref()
    }
}

/// Tries the store, and writes the result into the manifest. A manifest that is not there is made for
/// `chain`.
pub(crate) async fn init(
    archive: &ArchiveStore,
    options: &WriteOptions,
    chain: Option<Chain>,
) -> Result<Initialized, Failed> {
    let is_other = |manifest: &Manifest| chain.is_some_and(|chain| chain != manifest.chain());
    let held = own_manifest(archive, options).await?;
    // Before the trial, which puts objects.
    if held.is_none() && chain.is_none() {
        return Err(Failed::NoChain);
    }
    if held.as_ref().is_some_and(|held| is_other(&held.manifest)) {
        return Err(Failed::OtherChain("the one that is named".into()));
    }
    if archive.endpoint().is_some() {
        options.check_key(held.as_ref())?;
    }
    let writer = Writer::begin_anew(archive, options).await?;
    let mut is_new = false;
    let made = writer.change(async |held| {
        is_new = held.is_none();
        let Some(held) = held else {
            let chain = chain.ok_or(Failed::NoChain)?;
            return Ok(Some(Manifest { sequence: 1, ..Manifest::empty(chain) }));
        };
        // Another writer may have made the archive since.
        if is_other(&held.manifest) {
            return Err(Failed::OtherChain("the one that is named".into()));
        }
        // A directory has no result that would have to be written.
        let is_due = writer.trial().is_some() || writer.would_sign(&held.manifest);
        Ok(is_due.then(|| held.manifest.following(held.digest)))
    });
    let manifest = match made.await? {
        Some(manifest) => manifest,
        None => archive.manifest().await?.ok_or(Failed::NoManifest)?.manifest,
    };
    Ok(Initialized { is_new, manifest })
}
