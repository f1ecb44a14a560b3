//! Making an archive: the trial of its store, and a manifest without segments.

use neve_archive::{Chain, Digest, Manifest, Trial};

use super::change::{WriteOptions, Writer, own_manifest};
use crate::archive::error::Failed;
use crate::archive::store::{ArchiveStore, HeldManifest};

/// Result of `init`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Initialized {
    /// True if there was no manifest.
    pub(crate) is_new: bool,
    /// Manifest that the archive has now.
    pub(crate) manifest: Manifest,
}

impl Initialized {
    /// Returns the result of the trial; `None` for a directory.
    pub(crate) fn trial(&self) -> Option<&Trial> {
        self.manifest.trial.as_ref()
    }
}

/// Heights of a segment of a new archive, unless another length is named.
const RANGE: u32 = 1024;

/// Parts of an archive's chain that an operator names.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NamedChain {
    /// Chain id, and hash of the genesis block.
    pub(crate) identity: Option<(u64, Digest)>,
    /// Heights of a segment.
    pub(crate) range: Option<u32>,
}

impl NamedChain {
    /// Chain of a new archive.
    fn new_chain(&self) -> Result<Chain, Failed> {
        let (chain_id, genesis) = self.identity.ok_or(Failed::NoChain)?;
        Ok(Chain { chain_id, genesis, range: self.range.unwrap_or(RANGE) })
    }

    /// Compares it with the chain of an archive.
    fn check(&self, manifest: &Manifest) -> Result<(), Failed> {
        let Chain { chain_id, genesis, range: there } = manifest.chain();
        if self.identity.is_some_and(|named| named != (chain_id, genesis)) {
            return Err(Failed::OtherChain("the one that is named".into()));
        }
        match self.range.filter(|named| *named != there) {
            Some(named) => Err(Failed::FixedRange { there, named }),
            None => Ok(()),
        }
    }
}

/// Tries the store, and writes the result into the manifest. A manifest that is not there is made for the chain that is
/// `named`.
pub(crate) async fn init(
    archive: &ArchiveStore,
    options: &WriteOptions,
    named: NamedChain,
) -> Result<Initialized, Failed> {
    check_before_trial(archive, options, named).await?;
    let writer = Writer::begin_anew(archive, options).await?;
    let mut is_new = false;
    let made = writer.change(async |held| {
        is_new = held.is_none();
        next_manifest(&writer, held, named)
    });
    let manifest = match made.await? {
        Some(manifest) => manifest,
        None => archive.manifest().await?.ok_or(Failed::NoManifest)?.manifest,
    };
    Ok(Initialized { is_new, manifest })
}

/// Checks the manifest that is there before the trial, which puts objects.
async fn check_before_trial(
    archive: &ArchiveStore,
    options: &WriteOptions,
    named: NamedChain,
) -> Result<(), Failed> {
    let held = own_manifest(archive, options).await?;
    match &held {
        None => named.new_chain().map(drop)?,
        Some(held) => named.check(&held.manifest)?,
    }
    if archive.endpoint().is_some() {
        options.check_key(held.as_deref())?;
    }
    Ok(())
}

/// Manifest that replaces the one that is held; `None` if that one stays.
fn next_manifest(
    writer: &Writer<'_>,
    held: Option<&HeldManifest>,
    named: NamedChain,
) -> Result<Option<Manifest>, Failed> {
    let Some(held) = held else {
        return Ok(Some(Manifest { sequence: 1, ..Manifest::empty(named.new_chain()?) }));
    };
    // Another writer may have made the archive since.
    named.check(&held.manifest)?;
    // A directory has no result that would have to be written.
    let is_due = writer.trial().is_some() || writer.would_sign(&held.manifest);
    Ok(is_due.then(|| held.manifest.following(held.digest)))
}

#[cfg(test)]
impl From<Chain> for NamedChain {
    fn from(Chain { chain_id, genesis, range }: Chain) -> Self {
        Self { identity: Some((chain_id, genesis)), range: Some(range) }
    }
}
