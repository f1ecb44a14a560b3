//! The trial of a bucket: a race of writers under a name that is deleted afterwards. It shows whether the
//! store keeps `If-None-Match` and `If-Match`, and whether readers see whole objects.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::future::{join_all, try_join_all};
use neve_archive::{Digest, Trial};
use object_store::UpdateVersion;
use tokio::task::yield_now;
use tracing::warn;

use crate::archive::error::Failed;
use crate::archive::listing::{Conditional, trial_name};
use crate::archive::store::ArchiveStore;

/// Writers of a race.
const WRITERS: u32 = 8;
/// Marks that each counter adds.
const MARKS: u32 = 10;
/// Attempts of a counter at one mark: each fails only if another counter added one.
const ATTEMPTS_MAX: u32 = WRITERS * MARKS * 4;
/// Attempts at the creation of an object that all writers were refused.
const CREATIONS_MAX: u32 = 3;
/// Answers in a row that say neither yes nor no.
const UNCLEAR_MAX: u32 = 3;
/// Bytes of the object of a race: more than one packet, so that a torn read shows.
const OBJECT_BYTES: usize = 16 << 10;

/// Tries a bucket. One that does not hold is refused, unless the writer is the only one.
pub(super) async fn tried(
    archive: &ArchiveStore,
    endpoint: &str,
    is_single: bool,
) -> Result<Trial, Failed> {
    let why = match race(archive).await {
        Err(Failed::NoConditions(why)) => Some(why), // it cannot even be tried
        raced => raced?,
    };
    if let Some(why) = why.clone().filter(|_| !is_single) {
        return Err(Failed::NoConditions(why));
    }
    if let Some(reason) = &why {
        warn!(endpoint, reason, "object store keeps no conditions");
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Trial { endpoint: endpoint.to_owned(), at: since.as_secs(), holds: why.is_none() })
}

/// Races, and deletes the object. Returns what the store did wrong.
async fn race(archive: &ArchiveStore) -> Result<Option<String>, Failed> {
    let name = trial_name();
    let mut why = creators(archive, &name).await;
    if matches!(why, Ok(None)) {
        why = counters(archive, &name).await;
    }
    if let Err(error) = archive.delete(&name).await {
        // A writer without the right to delete leaves 16 KiB.
        warn!(object = name, %error, "object of the trial not deleted");
    }
    why
}

/// An object with marks, which shows whether it is whole.
fn object(marks: &[String]) -> Vec<u8> {
    let mut bytes = marks.join("\n").into_bytes();
    bytes.resize(bytes.len().max(OBJECT_BYTES), b' ');
    let digest = Digest::of(&bytes);
    bytes.extend(digest.to_string().bytes());
    bytes
}

/// The marks of an object; `None` if it is torn.
fn marks_of(object: &[u8]) -> Option<Vec<String>> {
    let text = str::from_utf8(object).ok()?;
    let (text, digest) = text.split_at_checked(text.len().checked_sub(64)?)?;
    let is_whole = digest.parse() == Ok(Digest::of(text.as_bytes()));
    let marks = text.split(' ').next().unwrap_or_default();
    is_whole.then(|| marks.lines().map(str::to_owned).collect())
}

/// Eight writers create the same object: one must win, and the others must be refused.
async fn creators(archive: &ArchiveStore, name: &str) -> Result<Option<String>, Failed> {
    let (mut winners, mut there) = (Vec::new(), None);
    // S3 may refuse all of them at once as being in conflict.
    for _ in 0..CREATIONS_MAX {
        winners = created(archive, name).await?;
        there = archive.read_if(name).await?;
        if there.is_some() || !winners.is_empty() {
            break;
        }
    }
    Ok(match (winners.len(), there) {
        (_, None) => Some("an object that was created is absent".to_owned()),
        // No winner is right too: the answer to the one that won was lost.
        (0 | 1, Some((bytes, _))) if winners_mark(&bytes, &winners) => None,
        (0 | 1, Some(_)) => Some("an object has other bytes than its creator's".to_owned()),
        (more, _) => Some(format!("{more} of {WRITERS} writers created one object")),
    })
}

/// Lets eight writers create an object. Returns those that did.
async fn created(archive: &ArchiveStore, name: &str) -> Result<Vec<u32>, Failed> {
    let creating = (0..WRITERS).map(|writer| async move {
        (writer, archive.put_if(name, None, object(&[writer.to_string()])).await)
    });
    let mut winners = Vec::new();
    for (writer, answer) in join_all(creating).await {
        match answer {
            Conditional::Put => winners.push(writer),
            Conditional::Refused => {}
            Conditional::Unsupported(error) => return Err(unsupported(&error)),
            Conditional::Unclear(error) => {
                winners.extend(wrote(archive, name, writer, error).await?);
            }
        }
    }
    Ok(winners)
}

fn unsupported(error: &object_store::Error) -> Failed {
    Failed::NoConditions(format!("it refuses them, {error}"))
}

/// True if the object is that of the winner. Without one the winner's answer was lost.
fn winners_mark(bytes: &[u8], winners: &[u32]) -> bool {
    let marks = marks_of(bytes).unwrap_or_default();
    let is_of = |winner: &u32| marks.first() == Some(&winner.to_string());
    marks.len() == 1 && winners.iter().all(is_of)
}

/// A writer whose answer was lost, if its object is there.
async fn wrote(
    archive: &ArchiveStore,
    name: &str,
    writer: u32,
    error: object_store::Error,
) -> Result<Option<u32>, Failed> {
    match archive.read_if(name).await? {
        Some((bytes, _)) => Ok(winners_mark(&bytes, &[writer]).then_some(writer)),
        None => Err(error.into()),
    }
}

/// Eight writers add marks to one object, while readers read it: no mark may be lost.
async fn counters(archive: &ArchiveStore, name: &str) -> Result<Option<String>, Failed> {
    let start = archive.read_if(name).await?;
    let counting = (0..WRITERS).map(|writer| count(archive, name, writer));
    let racing = async { try_join_all(counting).await };
    let (counted, read) = tokio::join!(racing, readers(archive, name));
    if let Some(why) = counted?.into_iter().flatten().next() {
        return Ok(Some(why));
    }
    let before = start.and_then(|(bytes, _)| marks_of(&bytes)).map_or(0, |marks| marks.len());
    let after = archive.read_if(name).await?;
    let marks = after.and_then(|(bytes, _)| marks_of(&bytes)).unwrap_or_default();
    let different: BTreeSet<_> = marks.iter().collect();
    let (wanted, there) = (before + (WRITERS * MARKS) as usize, different.len());
    if there != wanted || marks.len() != wanted {
        return Ok(Some(format!("of {wanted} changes of one object {there} are there")));
    }
    read
}

/// Adds the marks of a writer.
async fn count(archive: &ArchiveStore, name: &str, writer: u32) -> Result<Option<String>, Failed> {
    let mut counter = MarkCounter { archive, name, attempts: 0, unclear: 0 };
    for number in 0..MARKS {
        let why = counter.add(&format!("{writer}-{number}")).await?;
        if why.is_some() {
            return Ok(why);
        }
    }
    Ok(None)
}

/// Writer that adds marks to one object.
struct MarkCounter<'a> {
    archive: &'a ArchiveStore,
    name: &'a str,
    /// Attempts at all of its marks.
    attempts: u32,
    /// Answers in a row that say neither yes nor no.
    unclear: u32,
}

impl MarkCounter<'_> {
    /// Adds a mark, as often as another writer comes first. Returns what the store did wrong.
    async fn add(&mut self, mark: &str) -> Result<Option<String>, Failed> {
        loop {
            self.attempts += 1;
            let (mut marks, version) = match read_marks(self.archive, self.name).await? {
                Ok(found) => found,
                Err(why) => return Ok(Some(why)),
            };
            // There already: the answer to it was lost.
            if marks.iter().any(|there| there == mark) {
                return Ok(None);
            }
            if self.attempts > ATTEMPTS_MAX {
                return Ok(Some(format!("{ATTEMPTS_MAX} changes were refused")));
            }
            marks.push(mark.to_owned());
            yield_now().await; // the others read, too
            let answer = self.archive.put_if(self.name, Some(version), object(&marks)).await;
            if self.is_put(answer)? {
                return Ok(None);
            }
        }
    }

    /// True if the answer says that the mark was put; false if the next attempt is due.
    fn is_put(&mut self, answer: Conditional) -> Result<bool, Failed> {
        match answer {
            Conditional::Put => return Ok(true),
            Conditional::Refused => self.unclear = 0,
            Conditional::Unsupported(error) => return Err(unsupported(&error)),
            Conditional::Unclear(error) if self.unclear == UNCLEAR_MAX => return Err(error.into()),
            Conditional::Unclear(_) => self.unclear += 1, // what is there counts
        }
        Ok(false)
    }
}

/// Reads the marks of an object that others replace, and its version. The inner error is what the store did wrong.
async fn read_marks(
    archive: &ArchiveStore,
    name: &str,
) -> Result<Result<(Vec<String>, UpdateVersion), String>, Failed> {
    let Some((bytes, version)) = archive.read_if(name).await? else {
        return Ok(Err("an object is absent while it is replaced".to_owned()));
    };
    let marks = marks_of(&bytes).ok_or_else(|| "a reader got parts of two objects".to_owned());
    Ok(marks.map(|marks| (marks, version)))
}

/// Reads while the counters write: each object must be whole, and none may be older than one before.
async fn readers(archive: &ArchiveStore, name: &str) -> Result<Option<String>, Failed> {
    let mut seen = 0;
    for _ in 0..WRITERS * MARKS {
        yield_now().await;
        let marks = match read_marks(archive, name).await? {
            Ok((marks, _)) => marks,
            Err(why) => return Ok(Some(why)),
        };
        if marks.len() < seen {
            return Ok(Some("a reader got an older object than before".to_owned()));
        }
        seen = marks.len();
    }
    Ok(None)
}
