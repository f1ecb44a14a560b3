//! Output of the commands of `neve archive`, and the opening of their archive.

use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{Access, access};

use crate::archive::write::{Newest, WriteOptions};
use crate::archive::{ArchiveAddress, ArchiveStore, Failed, SigningKey};
use crate::config::{ArchivePlace, ArchiveWriter};

/// Opens the archive of a command.
pub(super) fn opened(place: &ArchivePlace) -> Result<ArchiveStore, String> {
    ArchiveStore::open(&place_of(place)).map_err(|failed| failed.to_string())
}

/// Checks the form of the URLs of a command. What else is wrong with them is not its usage.
pub(super) fn check_place(place: &ArchivePlace) -> Result<(), String> {
    match ArchiveStore::open(&place_of(place)) {
        Err(failed @ Failed::Url { .. }) => Err(failed.to_string()),
        _ => Ok(()),
    }
}

fn place_of(place: &ArchivePlace) -> ArchiveAddress {
    let ArchivePlace { url, archive_endpoint: endpoint, .. } = place.clone();
    ArchiveAddress { url, endpoint }
}

/// Reads the options of a writer, which remembers the newest manifest in a directory if there is one.
pub(super) fn write_options(
    writer: &ArchiveWriter,
    place: &ArchivePlace,
    dir: Option<&Path>,
) -> Result<WriteOptions, String> {
    let key = writer.archive_sign_key.as_deref().map(SigningKey::read).transpose();
    let signer = key.map_err(|failed: Failed| failed.to_string())?;
    let (place, at_least) = (place_of(place), writer.archive_at_least);
    let mut newest = Newest::of_archive(&place, dir, at_least);
    // Without a key a push of a store that cannot be written, as of a snapshot, remembers nothing.
    let is_fixed = |dir: &Path| dir.is_dir() && access(dir, Access::WRITE_OK).is_err();
    if signer.is_none() && dir.is_some_and(is_fixed) && !newest.has_file() {
        newest = Newest::of_archive(&place, None, at_least);
    }
    Ok(WriteOptions { signer, is_single: writer.archive_single_writer, signs: None, newest })
}

/// Names the heights of an archive.
pub(super) fn heights_text(heights: Option<(u64, u64)>) -> String {
    heights.map_or("no heights".to_owned(), |(first, last)| format!("heights {first} to {last}"))
}

/// Prints lines. A closed pipe is its reader's wish.
pub(super) fn say(lines: &str) -> Result<(), String> {
    match writeln!(io::stdout(), "{lines}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}

/// Writes to standard error, which may be closed.
pub(super) fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "neve: {text}"); // there is nowhere else to say it
}
