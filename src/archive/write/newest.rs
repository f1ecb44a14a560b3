//! Newest manifest that a writer has seen. Each earlier one has the writer's signature too. So only this memory tells
//! an earlier one that was put back, and a store that lost its manifest from a new one.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use neve_archive::Digest;

use crate::archive::error::Failed;
use crate::archive::store::{ArchiveAddress, HeldManifest};
use crate::shared::lock::lock;

/// Bytes of a file: a sequence in 20 digits, a digest, a space between and a line feed. They are replaced in place by
/// one write within a sector.
const RECORD_BYTES: usize = 20 + 1 + 64 + 1;

/// A manifest that the writer has seen, by its sequence and digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SeenManifest {
    sequence: u64,
    digest: Digest,
}

/// Memory of a writer: that of a directory, and that of its run without one.
#[derive(Debug, Default)]
pub(crate) struct Newest {
    /// Lowest sequence that the operator believes.
    at_least: u64,
    /// File in the directory; `None` without a directory.
    path: Option<PathBuf>,
    /// URL of an archive that is a directory, whose file system may not be mounted.
    mount: Option<String>,
    seen: Mutex<Option<SeenManifest>>,
}

impl SeenManifest {
    fn of(held: &HeldManifest) -> Self {
        Self { sequence: held.manifest.sequence, digest: held.digest }
    }

    fn record(&self) -> String {
        format!("{:020} {}\n", self.sequence, self.digest)
    }

    fn read(record: &str) -> Option<Self> {
        let (sequence, digest) = record.strip_suffix('\n')?.split_once(' ')?;
        Some(Self { sequence: sequence.parse().ok()?, digest: digest.parse().ok()? })
    }

    /// True if `other` is this manifest or a later one. Two of one sequence have no common future.
    fn leads_to(&self, other: &Self) -> bool {
        other == self || other.sequence > self.sequence
    }
}

impl Newest {
    /// Memory of an archive, in a directory if there is one. A manifest below `at_least` is never believed.
    pub(crate) fn of_archive(place: &ArchiveAddress, dir: Option<&Path>, at_least: u64) -> Self {
        let path = dir.map(|dir| dir.join(file_name(place)));
        let mount = place.url.starts_with("file:").then(|| place.url.clone());
        Self { at_least, path, mount, seen: Mutex::new(None) }
    }

    /// True if there is a file that may remember a manifest.
    pub(crate) fn has_file(&self) -> bool {
        self.path.as_ref().is_some_and(|path| path.symlink_metadata().is_ok())
    }

    /// Refuses a manifest below the one that the operator believes, also of a writer that signs nothing.
    pub(super) fn check_at_least(&self, held: Option<&HeldManifest>) -> Result<(), Failed> {
        let there = held.map(SeenManifest::of);
        if there.map_or(0, |there| there.sequence) >= self.at_least {
            return Ok(());
        }
        let why = format!("--archive-at-least says that manifest {} was there", self.at_least);
        let next = "give a lower sequence".to_owned();
        Err(Failed::Earlier { there: self.text(there), why, next })
    }

    /// Remembers a manifest of this writer, which `signs` or not. One that comes before the newest one is refused, and
    /// so is none at all.
    pub(super) fn take(&self, held: Option<&HeldManifest>, signs: bool) -> Result<(), Failed> {
        let there = held.map(SeenManifest::of);
        let is_next = |known: Option<SeenManifest>| {
            known.is_none_or(|known| there.is_some_and(|there| known.leads_to(&there)))
        };
        let known = self.exchange(|known| there.filter(|_| is_next(known)))?;
        match known.filter(|_| !is_next(known)) {
            Some(known) => Err(self.earlier(known, (there, ""), signs)),
            None => Ok(()),
        }
    }

    /// Refuses an empty manifest without the own signature, which stands for none, if there was another one.
    pub(super) fn check_none(&self, empty: &HeldManifest) -> Result<(), Failed> {
        let what = ", empty and without the signature of this writer's key";
        let known = self.exchange(|_| None)?;
        let there = SeenManifest::of(empty);
        // This very one was seen without a key.
        match known.filter(|known| *known != there) {
            Some(known) => Err(self.earlier(known, (Some(there), what), true)),
            None => Ok(()),
        }
    }

    /// Remembers a manifest that this writer has put, also in the place of a later one if that `is_wanted`.
    pub(super) fn put(&self, sequence: u64, digest: Digest, is_wanted: bool) -> Result<(), Failed> {
        let next = SeenManifest { sequence, digest };
        // Another process may have seen a later one meanwhile.
        let goes_on = |known: SeenManifest| is_wanted || known.leads_to(&next);
        self.exchange(|known| known.is_none_or(goes_on).then_some(next)).map(drop)
    }

    /// Replaces what is remembered by what `change` makes of it, unless that is `None`. Returns what was remembered.
    fn exchange(
        &self,
        change: impl FnOnce(Option<SeenManifest>) -> Option<SeenManifest>,
    ) -> Result<Option<SeenManifest>, Failed> {
        let mut seen = lock(&self.seen);
        let known = match &self.path {
            None => {
                let known = *seen;
                *seen = change(known).or(known);
                known
            }
            Some(path) => {
                let exchanged = exchange_in(path, change);
                exchanged.map_err(|error| Failed::File { path: path.clone(), error })?
            }
        };
        Ok(known)
    }

    /// Error for a manifest, of which `what` says more, that a writer met which `signs` or not.
    fn earlier(
        &self,
        known: SeenManifest,
        (there, what): (Option<SeenManifest>, &str),
        signs: bool,
    ) -> Failed {
        let place = self.path.as_ref().map(|path| format!(" ({})", path.display()));
        let place = place.unwrap_or_default();
        let SeenManifest { sequence, digest } = known;
        let why = format!("this writer has seen manifest {sequence}, sha256:{digest}{place}");
        let next = match (there.filter(|_| signs), &self.path) {
            (_, None) => "start this writer again: only its run remembers that one".to_owned(),
            (None, Some(path)) => format!("remove {}", path.display()),
            (Some(there), Some(path)) => format!(
                "sign the one that is there by neve archive init --sign-existing sha256:{} --data-dir {}",
                there.digest,
                path.parent().unwrap_or(path).display()
            ),
        };
        Failed::Earlier { there: self.text(there) + what, why, next }
    }

    /// Manifest that is there, in words.
    fn text(&self, there: Option<SeenManifest>) -> String {
        match (there, &self.mount) {
            (Some(there), _) => format!("manifest {} is there", there.sequence),
            (None, None) => "the archive has no manifest".to_owned(),
            (None, Some(url)) => {
                format!("the archive has no manifest (is the file system of {url} mounted?)")
            }
        }
    }
}

/// Name of the file of an archive. Sequences of different archives say nothing of each other.
fn file_name(place: &ArchiveAddress) -> String {
    let endpoint = place.endpoint.as_deref().unwrap_or_default();
    let [url, endpoint] = [&place.url, endpoint].map(|url| url.trim_end_matches('/'));
    let key = format!("{url}\n{endpoint}");
    let digest = Digest::of(key.as_bytes()).to_string();
    format!("archive-newest-{}", digest.get(..16).unwrap_or_default())
}

/// Exchanges the record of a file while no other process does.
fn exchange_in(
    path: &Path,
    change: impl FnOnce(Option<SeenManifest>) -> Option<SeenManifest>,
) -> io::Result<Option<SeenManifest>> {
    let file = opened(path)?;
    file.lock()?;
    let known = read_record(&file)?;
    if let Some(next) = change(known).filter(|next| Some(*next) != known) {
        file.write_all_at(next.record().as_bytes(), 0)?;
        file.sync_data()?;
        // A new file: without its name a crash would forget the record.
        if known.is_none() {
            path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())?;
        }
    }
    Ok(known)
}

/// Opens a file. A new one gets the owner of its directory: root may run the first command, and the service the next.
fn opened(path: &Path) -> io::Result<File> {
    match File::options().read(true).write(true).create_new(true).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            File::options().read(true).write(true).open(path)
        }
        Err(error) => Err(error),
        Ok(file) => {
            if let Some(Ok(dir)) = path.parent().map(Path::metadata) {
                let _ = fchown(&file, Some(dir.uid()), Some(dir.gid())); // only root may
            }
            Ok(file)
        }
    }
}

/// Reads the record of a file; `None` if it is new.
fn read_record(file: &File) -> io::Result<Option<SeenManifest>> {
    let length = file.metadata()?.len();
    if length == 0 {
        return Ok(None);
    }
    let mut record = [0; RECORD_BYTES];
    // Another length leaves zeros, which are no record.
    if length == RECORD_BYTES as u64 {
        file.read_exact_at(&mut record, 0)?;
    }
    let seen = str::from_utf8(&record).ok().and_then(SeenManifest::read);
    let damaged = || {
        let why = "does not say which manifest was the newest; remove it to believe the one that is there";
        io::Error::new(ErrorKind::InvalidData, why)
    };
    seen.ok_or_else(damaged).map(Some)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    fn place(url: &str) -> ArchiveAddress {
        ArchiveAddress { url: url.to_owned(), endpoint: None }
    }

    fn seen(sequence: u64) -> SeenManifest {
        SeenManifest { sequence, digest: Digest::of(&sequence.to_le_bytes()) }
    }

    /// Without root's rights the directory stays this user's, and so does the file.
    #[test]
    fn file_has_the_owner_of_its_directory() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let _ = chown(dir.path(), Some(65_534), Some(65_534)); // nobody
        let memory = Newest::of_archive(&place("s3://a/b"), Some(dir.path()), 0);
        memory.put(1, seen(1).digest, false).expect("the disk takes it");
        let path = dir.path().join(file_name(&place("s3://a/b")));
        let owner = |path: &Path| path.metadata().map(|found| (found.uid(), found.gid()));
        let (file, dir) = (owner(&path), owner(dir.path()));
        assert_eq!(file.expect("it is there"), dir.expect("it is there"));
    }

    #[test]
    fn file_has_one_record_for_each_archive_and_keeps_its_length() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let memory = |url: &str| Newest::of_archive(&place(url), Some(dir.path()), 0);
        for sequence in [1, 9, 10, 11, u64::MAX] {
            let SeenManifest { sequence, digest } = seen(sequence);
            memory("s3://a/b").put(sequence, digest, false).expect("the disk takes it");
        }
        let known = memory("s3://a/b/").exchange(|_| None).expect("it can be read");
        assert_eq!(known, Some(seen(u64::MAX)));
        assert_eq!(memory("s3://a/c").exchange(|_| None).expect("it can be read"), None);
        let at = |endpoint: &str| Some(format!("http://127.0.0.1:9000{endpoint}"));
        let [bare, slash] =
            ["", "/"].map(|end| ArchiveAddress { endpoint: at(end), ..place("s3://a/b") });
        assert_eq!(file_name(&bare), file_name(&slash));
        assert_ne!(file_name(&bare), file_name(&place("s3://a/b")));
        let path = dir.path().join(file_name(&place("s3://a/b")));
        assert_eq!(path.metadata().expect("it is there").len(), RECORD_BYTES as u64);
        let file = File::options().write(true).open(&path).expect("it is ours");
        for damage in [3, RECORD_BYTES as u64] {
            file.set_len(damage).expect("it is ours");
            let damaged = memory("s3://a/b").exchange(|_| None).expect_err("cut off").to_string();
            assert!(damaged.contains("remove it"), "{damaged}");
        }
    }
}
