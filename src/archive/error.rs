//! Reasons why an archive cannot be read or written.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use neve_archive::{ArchiveError, Digest, ObjectName};

/// Reason why work on an archive ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// A URL that has no form of one: wrong usage.
    #[error("{url:?}: {why}")]
    Url { url: String, why: String },
    #[error("{url}: {why}")]
    Client { url: String, why: String },
    #[error("{}: not a directory; make it first, and write file:///DIR", .0.display())]
    NoDirectory(PathBuf),
    #[error("object store: {0}")]
    Objects(#[from] object_store::Error),
    #[error(transparent)]
    Form(#[from] ArchiveError),
    #[error("{}: {error}", .path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{}: {why}", .path.display())]
    Packed { path: PathBuf, why: String },
    #[error("{}: has no packed files; they come with --unpacked-bytes", .0.display())]
    NothingPacked(PathBuf),
    #[error("the archive has another chain, or another length of ranges, than {}", .0.display())]
    OtherChain(PathBuf),
    #[error("{}: {why}; write one by openssl genpkey -algorithm ed25519", .path.display())]
    SignKey { path: PathBuf, why: String },
    #[error("the manifest is signed; name the key by --archive-sign-key FILE")]
    Unsigned,
    #[error(
        "manifest {sequence} has {content} and {found}; writers with a key change only manifests that {key} \
         signed; read it by neve archive verify, then sign it by neve archive init --sign-existing DIGEST"
    )]
    OtherSigner { sequence: u64, content: String, found: &'static str, key: String },
    #[error("{there}; {why}; put that one back, or if this is wanted, {next}")]
    Earlier { there: String, why: String, next: String },
    #[error(
        "--sign-existing names sha256:{named}, and the manifest that is there is sha256:{found}; read that one by \
         neve archive verify, which shows its digest"
    )]
    OtherManifest { named: Digest, found: Digest },
    #[error("the page lists of the archive lack the segment of height {0}")]
    NoPages(u64),
    #[error("the archive has other blocks at height {0}")]
    OtherBlocks(u64),
    #[error(
        "heights {first} to {last} would be a gap in the archive: push a store that has them first"
    )]
    Gap { first: u64, last: u64 },
    #[error("{0} is not in the object store; neve archive verify --repair-from DIR puts it again")]
    Absent(ObjectName),
    #[error("{0} is not in the archive any more: neve archive retain dropped its heights")]
    Dropped(ObjectName),
    #[error(
        "{0}: its bytes are not those of its name; neve archive verify --repair-from DIR puts it again"
    )]
    Changed(ObjectName),
    #[error(
        "{0} is not in the object store; it has links to earlier manifests: put it back from a copy, or trust a \
         manifest that is newer than these"
    )]
    AbsentLinks(ObjectName),
    #[error("{0}: its links do not lead to the manifest that names it")]
    BrokenLinks(ObjectName),
    #[error("manifest {0}: its links do not lead to the one before it")]
    BrokenDescent(u64),
    #[error("its packed files have {found} heights, this store's {own}: same --segment-blocks?")]
    OtherRange { found: u32, own: u32 },
    #[error(
        "--range {named}: the archive has ranges of {there}, which never change; leave it out, or name another URL"
    )]
    FixedRange { there: u32, named: u32 },
    #[error("{0} is over {1} bytes")]
    LargeSegment(ObjectName, u64),
    #[error("the archive has no block {height}; {}", has(*heights))]
    NoHeight { height: u64, heights: Option<(u64, u64)> },
    #[error("the manifest is over {0} bytes")]
    LargeManifest(u64),
    #[error("the object store did not complete a request within {0:?}")]
    Slow(Duration),
    #[error("the archive has no manifest: nothing was pushed there")]
    NoManifest,
    #[error(
        "{0} is being deleted: wait until neve archive gc has ended, or run it again if it was cut off"
    )]
    BeingDeleted(ObjectName),
    #[error(
        "the object store does not keep the conditions of a PUT: {0}; use another one, or let one writer \
         alone write there, with --archive-single-writer"
    )]
    NoConditions(String),
    #[error(
        "{}: on {what}, whose locks may not reach other machines; use a local file system, or let one \
         writer alone write there, with --archive-single-writer", .dir.display()
    )]
    NetworkFileSystem { dir: PathBuf, what: &'static str },
    #[error(
        "the machine slept, or its clock was set, while objects were deleted, so that another gc may have \
         deleted them; run neve archive gc again"
    )]
    Slept,
    #[error("another neve archive gc deletes objects there; try again once it has ended")]
    OtherDeletion,
    #[error(
        "the archive has no manifest: name its chain by --network, or by --chain-id and --genesis"
    )]
    NoChain,
    #[error("height {height} is above the archive's last one; {}; name one of these", has(*heights))]
    AboveAll { height: u64, heights: Option<(u64, u64)> },
    #[error("others changed the manifest {0} times meanwhile; try again")]
    Busy(u32),
}

/// Heights of an archive in words.
fn has(heights: Option<(u64, u64)>) -> String {
    heights.map_or("it has none".to_owned(), |(first, last)| format!("it has {first} to {last}"))
}
