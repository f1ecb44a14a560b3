//! A writer: it knows that the store holds, signs, and replaces the manifest.

use std::sync::{Arc, Mutex};

use neve_archive::{Digest, Manifest, ObjectName, PageLists, Span, SpanEntry, Trial};

use super::file_system::check_file_system;
use super::newest::Newest;
use super::trial::tried;
use crate::archive::error::Failed;
use crate::archive::signature::SigningKey;
use crate::archive::store::{ArchiveStore, HeldManifest};
use crate::shared::lock::lock;

/// Attempts at a change of the manifest.
const ATTEMPTS_MAX: u32 = 100;
/// Reads of a manifest that comes before the newest one.
const READS_MAX: u32 = 3;

/// Options of a writer.
#[derive(Debug, Default)]
pub(crate) struct WriteOptions {
    /// Key that signs the manifest.
    pub(crate) signer: Option<SigningKey>,
    /// True if no other writer is there, so that the store need not hold.
    pub(crate) is_single: bool,
    /// Manifest that is signed as it is, also if another key signed it before.
    pub(crate) signs: Option<Digest>,
    /// Newest manifest that this writer remembers.
    pub(crate) newest: Newest,
}

impl WriteOptions {
    /// Fails if the manifest is signed, and this writer has no key.
    pub(super) fn check_key(&self, held: Option<&HeldManifest>) -> Result<(), Failed> {
        let is_signed = held.is_some_and(|held| held.manifest.signature.is_some());
        if is_signed && self.signer.is_none() { Err(Failed::Unsigned) } else { Ok(()) }
    }
}

/// Writer of an archive.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    pub(super) archive: &'a ArchiveStore,
    options: &'a WriteOptions,
    /// Result of the trial; `None` for a directory.
    trial: Option<Trial>,
    /// Manifest that was read last. It may have 30 MB, and comes again only if it changed.
    last: Mutex<Option<OwnManifest>>,
}

/// Manifest that a writer read, and whether its key signed it.
#[derive(Debug, Clone)]
struct OwnManifest {
    held: Arc<HeldManifest>,
    is_signed: bool,
}

impl OwnManifest {
    fn of(held: HeldManifest, options: &WriteOptions) -> Self {
        let signer = options.signer.as_ref();
        let is_signed = signer.is_some_and(|key| key.has_signed(&held.manifest));
        Self { held: Arc::new(held), is_signed }
    }
}

impl<'a> Writer<'a> {
    /// Begins to write. A bucket of which the manifest has no trial is tried first.
    pub(crate) async fn begin(
        archive: &'a ArchiveStore,
        options: &'a WriteOptions,
    ) -> Result<Self, Failed> {
        let last = own_manifest_since(archive, options, None).await?;
        options.check_key(last.as_ref().map(|last| &*last.held))?;
        Self::with(archive, options, last).await
    }

    /// Begins in the same way, to replace no manifest.
    pub(super) async fn begin_dry(
        archive: &'a ArchiveStore,
        options: &'a WriteOptions,
    ) -> Result<Self, Failed> {
        let last = own_manifest_since(archive, options, None).await?;
        Self::with(archive, options, last).await
    }

    /// Begins to write, and tries the store anew.
    pub(super) async fn begin_anew(
        archive: &'a ArchiveStore,
        options: &'a WriteOptions,
    ) -> Result<Self, Failed> {
        Self::with(archive, options, None).await
    }

    async fn with(
        archive: &'a ArchiveStore,
        options: &'a WriteOptions,
        last: Option<OwnManifest>,
    ) -> Result<Self, Failed> {
        let known = last.as_ref().and_then(|last| last.held.manifest.trial.clone());
        let last = Mutex::new(last);
        // A single writer needs no lock, which a network file system may not keep.
        if let Some(dir) = archive.directory().filter(|_| !options.is_single) {
            check_file_system(dir)?;
        }
        let Some(endpoint) = archive.endpoint() else {
            return Ok(Self { archive, options, trial: None, last });
        };
        let trial = match known.filter(|trial| trial.endpoint == endpoint) {
            Some(trial) if !trial.holds && !options.is_single => {
                return Err(Failed::NoConditions("its manifest says so".to_owned()));
            }
            Some(trial) => trial,
            None => tried(archive, endpoint, options.is_single).await?,
        };
        Ok(Self { archive, options, trial: Some(trial), last })
    }

    /// Returns the result of the trial of the store.
    pub(super) fn trial(&self) -> Option<&Trial> {
        self.trial.as_ref()
    }

    /// Reads the manifest, which must have the signature of this writer.
    pub(super) async fn manifest(&self) -> Result<Option<Arc<HeldManifest>>, Failed> {
        let last = lock(&self.last).clone();
        let read = own_manifest_since(self.archive, self.options, last.as_ref()).await?;
        lock(&self.last).clone_from(&read);
        Ok(read.map(|read| read.held))
    }

    /// True if the manifest lacks the signature of this writer, or the one that it is to get on purpose.
    pub(super) fn would_sign(&self, manifest: &Manifest) -> bool {
        let lacks = |key: &SigningKey| self.options.signs.is_some() || !key.has_signed(manifest);
        self.options.signer.as_ref().is_some_and(lacks)
    }

    /// Returns the public key of the signer.
    pub(crate) fn key(&self) -> Option<String> {
        self.options.signer.as_ref().map(SigningKey::public)
    }

    /// Signs `next` and puts it in the place of `before`. Returns `None` if another one is there.
    pub(super) async fn replace(
        &self,
        before: Option<&HeldManifest>,
        mut next: Manifest,
    ) -> Result<Option<Manifest>, Failed> {
        next.trial = self.trial.clone().or(next.trial);
        self.sign(before, &mut next)?;
        // Before the manifest that names them. Another writer that comes first puts the same.
        if let Some((name, links)) = before.and_then(|before| before.manifest.full_links()) {
            put_unless_deleted(self.archive, &next, &name, links).await?;
        }
        let replaced = match &self.trial {
            Some(trial) if !trial.holds => self.archive.replace_alone(before, &next).await?,
            _ => self.archive.replace(before, &next).await?,
        };
        let WriteOptions { signs, newest, .. } = self.options;
        // Behind the put: a manifest that no store took must not count as seen.
        if replaced {
            newest.put(next.sequence, Digest::of(&next.to_bytes()?), signs.is_some())?;
        }
        Ok(replaced.then_some(next))
    }

    /// Signs `next`. Fails without a key if `before` is signed.
    fn sign(&self, before: Option<&HeldManifest>, next: &mut Manifest) -> Result<(), Failed> {
        match &self.options.signer {
            Some(key) => key.sign(next),
            // Without the signature, replicas that trust the key would refuse the manifest.
            None => self.options.check_key(before), // it was signed meanwhile
        }
    }

    /// Changes the manifest that is there, as often as another writer comes first. `change` returns
    /// `None` if there is nothing to change.
    pub(super) async fn change(
        &self,
        mut change: impl AsyncFnMut(Option<&HeldManifest>) -> Result<Option<Manifest>, Failed>,
    ) -> Result<Option<Manifest>, Failed> {
        for _ in 0..ATTEMPTS_MAX {
            let held = self.manifest().await?;
            let held = held.as_deref();
            let Some(next) = change(held).await? else { return Ok(None) };
            if let Some(changed) = self.replace(held, next).await? {
                return Ok(Some(changed));
            }
        }
        Err(Failed::Busy(ATTEMPTS_MAX))
    }
}

/// Reads the manifest. A signature vouches for all of it. So a manifest that names or deletes objects, or says that
/// heights need no copy, is refused unless the own key signed it: another writer may have put it there. A manifest
/// that the own key signed is refused if it is older than the newest one, because an attacker may have put it back. A
/// writer that signs nothing refuses an earlier one, too, if it remembers a newer one.
pub(super) async fn own_manifest(
    archive: &ArchiveStore,
    options: &WriteOptions,
) -> Result<Option<Arc<HeldManifest>>, Failed> {
    Ok(own_manifest_since(archive, options, None).await?.map(|read| read.held))
}

/// Reads it in the same way, unless it is still the one that was read `last`.
async fn own_manifest_since(
    archive: &ArchiveStore,
    options: &WriteOptions,
    last: Option<&OwnManifest>,
) -> Result<Option<OwnManifest>, Failed> {
    let mut reads = 1;
    loop {
        match own_manifest_once(archive, options, last).await {
            // Another process with this memory may have put a later one while the answer was in flight.
            Err(Failed::Earlier { .. }) if reads < READS_MAX => reads += 1,
            read => return read,
        }
    }
}

async fn own_manifest_once(
    archive: &ArchiveStore,
    options: &WriteOptions,
    last: Option<&OwnManifest>,
) -> Result<Option<OwnManifest>, Failed> {
    let own = match archive.newer_manifest(last.and_then(|last| last.held.tag())).await {
        Ok(None) => last.cloned(),
        Ok(Some(held)) => Some(OwnManifest::of(held, options)),
        Err(Failed::NoManifest) => None,
        Err(failed) => return Err(failed),
    };
    let held = own.as_ref().map(|own| &*own.held);
    options.newest.check_at_least(held)?;
    let Some(key) = &options.signer else {
        // A directory that was unmounted has no manifest: to begin one would fork the archive.
        options.newest.take(held, false)?;
        return Ok(own);
    };
    check_signed(own.as_ref(), options, key)?;
    Ok(own)
}

/// Fails if a writer with this key must not replace the manifest.
fn check_signed(
    own: Option<&OwnManifest>,
    options: &WriteOptions,
    key: &SigningKey,
) -> Result<(), Failed> {
    let held = own.map(|own| &*own.held);
    let is_own = own.is_none_or(|own| own.is_signed);
    match (held, options.signs) {
        (Some(held), Some(named)) if held.digest != named => {
            Err(Failed::OtherManifest { named, found: held.digest })
        }
        // The operator has read it, and knows whether it is the newest.
        (Some(_), Some(_)) => Ok(()),
        (Some(held), None) if !is_own => match content(&held.manifest) {
            Some(content) => Err(other_signer(&held.manifest, content, key)),
            None => options.newest.check_none(held), // it stands for no manifest
        },
        _ => options.newest.take(held, true),
    }
}

/// Names what a signature would vouch for; `None` if there is nothing.
fn content(manifest: &Manifest) -> Option<String> {
    let Manifest { from, ref segments, ref deletion, .. } = *manifest;
    let mut parts = Vec::new();
    if !segments.is_empty() {
        parts.push(format!("{} segments", segments.len()));
    }
    if let Some(deletion) = deletion {
        parts.push(format!("a deletion of {} objects", deletion.objects.len()));
    }
    if from > 0 {
        parts.push(format!("the lowest height {from}"));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn other_signer(manifest: &Manifest, content: String, key: &SigningKey) -> Failed {
    let found = if manifest.signature.is_some() { "another signature" } else { "no signature" };
    Failed::OtherSigner { sequence: manifest.sequence, content, found, key: key.public() }
}

/// Puts an object for a manifest that will name it. One that is being deleted would be gone afterwards.
pub(super) async fn put_unless_deleted(
    archive: &ArchiveStore,
    manifest: &Manifest,
    name: &ObjectName,
    bytes: Vec<u8>,
) -> Result<bool, Failed> {
    if manifest.deletes(name) {
        return Err(Failed::BeingDeleted(*name));
    }
    archive.put(name, bytes).await
}

/// Reads a span that the manifest names, and its page lists.
pub(super) async fn get_span(
    archive: &ArchiveStore,
    manifest: &Manifest,
    entry: &SpanEntry,
) -> Result<(Span, PageLists), Failed> {
    let span = Span::read(&archive.get(&manifest.span_name(entry), entry.bytes).await?)?;
    let pages = archive.get(&manifest.pages_name(entry), entry.pages.bytes).await?;
    Ok((span, PageLists::read(&pages)?))
}

/// Puts the objects of a span for a manifest that will name them: span, page lists, filter and terms.
pub(super) async fn put_span_objects(
    archive: &ArchiveStore,
    manifest: &Manifest,
    entry: &SpanEntry,
    objects: Vec<Vec<u8>>,
) -> Result<(), Failed> {
    for ((name, _), object) in manifest.span_objects(entry).zip(objects) {
        put_unless_deleted(archive, manifest, &name, object).await?;
    }
    Ok(())
}
