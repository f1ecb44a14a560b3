//! Deleting objects that no manifest names.
//!
//! The manifest names them first, as being deleted: a writer that read an earlier manifest fails when it
//! replaces that, and one that reads this manifest names none of them. Then they go. The last change says
//! that they are gone.

use std::collections::HashSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::{StreamExt, TryStreamExt, stream};
use neve_archive::{DELETED_MAX, Deletion, Manifest};
use tokio::time::sleep;

use super::change::{WriteOptions, Writer};
use super::staging::without_staged;
use crate::archive::error::Failed;
use crate::archive::listing::ListedObject;
use crate::archive::store::{ArchiveStore, HeldManifest};

/// Time in which readers read the manifest again, so that they request none of the objects.
const READERS_AGAIN: Duration = Duration::from_mins(2);
/// Objects that are deleted between two looks at the manifest, and the time for them: others may complete the
/// deletion of a machine that sleeps.
const BATCH: usize = 256;
const BATCH_TIME_MAX: Duration = Duration::from_mins(5);
/// Age from which an object is none of a running trial or PUT.
const PUT_TIME_MAX: Duration = Duration::from_hours(1);
/// Deletions in flight.
const AT_ONCE: usize = 8;

/// Options of a deletion.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GcOptions {
    /// Age of an object that may go.
    pub(crate) older_than: Duration,
    /// True if nothing is deleted.
    pub(crate) is_dry: bool,
}

impl GcOptions {
    /// Begins to write. A dry run replaces no manifest.
    async fn begin<'a>(
        self,
        archive: &'a ArchiveStore,
        options: &'a WriteOptions,
    ) -> Result<Writer<'a>, Failed> {
        if self.is_dry {
            Writer::begin_dry(archive, options).await
        } else {
            Writer::begin(archive, options).await
        }
    }
}

/// Result of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Collected {
    /// Objects that were listed.
    pub(crate) listed: u64,
    /// Objects that no manifest names, and their bytes.
    pub(crate) unnamed: u64,
    pub(crate) unnamed_bytes: u64,
    /// Objects of these that are too young.
    pub(crate) young: u64,
    /// Objects that were deleted.
    pub(crate) deleted: u64,
    /// Objects that trials left and that are old enough.
    pub(crate) trials: u64,
    /// Files of a directory that writers left which were killed and that are old enough.
    pub(crate) staged: u64,
    /// Sequence of the manifest.
    pub(crate) sequence: u64,
}

/// Objects of the store, and the time from which on one is too young to go.
struct ListedObjects {
    objects: Vec<ListedObject>,
    youngest: i64,
}

/// Deletes objects that no manifest names. `progress` is called behind each batch.
pub(crate) async fn gc(
    archive: &ArchiveStore,
    options: &WriteOptions,
    how: GcOptions,
    mut progress: impl FnMut(&Collected),
) -> Result<Collected, Failed> {
    let writer = how.begin(archive, options).await?;
    let mut done = Collected::default();
    if !how.is_dry {
        end(&writer, how, &mut done, &mut progress).await?; // one that was cut off
    }
    let chain_id = writer.manifest().await?.ok_or(Failed::NoManifest)?.manifest.chain_id;
    // Objects that are put while the listing goes on are younger.
    let now = now(archive, how).await?;
    let objects = archive.listed(chain_id).await?;
    let listed = ListedObjects { objects, youngest: before(now, how.older_than) };
    let begun = writer.change(async |held| deleting(held, how, &listed, &mut done));
    if begun.await?.is_some() {
        end(&writer, how, &mut done, &mut progress).await?;
    }
    (done.trials, done.staged) = without_leftovers(archive, how, chain_id, now).await?;
    Ok(done)
}

/// Deletes what trials and killed writers left. Returns the numbers of both.
async fn without_leftovers(
    archive: &ArchiveStore,
    how: GcOptions,
    chain_id: u64,
    now: i64,
) -> Result<(u64, u64), Failed> {
    // Old enough to be none of a running trial or PUT.
    let youngest = before(now, how.older_than.max(PUT_TIME_MAX));
    let trials = without_trials(archive, how, youngest).await?;
    let staged = without_staged(archive, chain_id, youngest, how.is_dry).await?;
    Ok((trials, staged))
}

/// The next manifest, which names the objects that are to be deleted. `None` if there are none, or in a dry run.
fn deleting(
    held: Option<&HeldManifest>,
    how: GcOptions,
    listed: &ListedObjects,
    done: &mut Collected,
) -> Result<Option<Manifest>, Failed> {
    let held = held.ok_or(Failed::NoManifest)?;
    done.sequence = held.manifest.sequence;
    // Behind the manifest that is replaced: others may have pushed since the listing. It may name links that a writer
    // put which was cut off.
    let mut next = held.manifest.following(held.digest);
    let unnamed = unnamed_objects(listed, &next, done);
    if how.is_dry || unnamed.is_empty() {
        return Ok(None);
    }
    // Its names must stay until its objects are gone.
    if held.manifest.deletion.as_ref().is_some_and(|other| !other.objects.is_empty()) {
        return Err(Failed::OtherDeletion);
    }
    let objects: Vec<String> = unnamed.iter().map(|listed| listed.name.to_string()).collect();
    next.deletion = Some(Deletion { since: next.sequence, objects });
    Ok(Some(next))
}

/// Time in seconds since 1970 by the clock of the store: that of this machine may be ahead.
async fn now(archive: &ArchiveStore, how: GcOptions) -> Result<i64, Failed> {
    if !how.is_dry {
        return archive.clock().await;
    }
    // A dry run puts nothing, not even for the clock of the store.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

fn before(now: i64, age: Duration) -> i64 {
    now.saturating_sub(i64::try_from(age.as_secs()).unwrap_or(i64::MAX))
}

/// Deletes what trials left that were cut off, or whose writer may not delete. Returns the number. No manifest
/// names these objects, so that none has to change first.
async fn without_trials(
    archive: &ArchiveStore,
    how: GcOptions,
    youngest: i64,
) -> Result<u64, Failed> {
    let mut old = archive.trials().await?;
    old.retain(|(_, put_at)| *put_at <= youngest);
    for (name, _) in old.iter().filter(|_| !how.is_dry) {
        archive.delete(name).await?;
    }
    Ok(old.len() as u64)
}

/// Objects that the manifest does not name and that are old enough, ascending by name.
fn unnamed_objects(
    listed: &ListedObjects,
    manifest: &Manifest,
    done: &mut Collected,
) -> Vec<ListedObject> {
    let named: HashSet<_> = manifest.objects().map(|(name, _)| name).collect();
    let ListedObjects { objects, youngest } = listed;
    let unnamed: Vec<_> = objects.iter().filter(|at| !named.contains(&at.name)).collect();
    done.listed = objects.len() as u64;
    done.unnamed = unnamed.len() as u64;
    done.unnamed_bytes = unnamed.iter().map(|listed| listed.bytes).sum();
    let is_old = |listed: &&ListedObject| listed.put_at <= *youngest;
    let mut old: Vec<ListedObject> =
        unnamed.into_iter().copied().filter(|at| is_old(&at)).collect();
    done.young = done.unnamed - old.len() as u64;
    old.sort_by_cached_key(|listed| listed.name.to_string());
    old.truncate(DELETED_MAX); // the next run takes the others
    old
}

/// Ends the deletion of which the manifest has the names, if there is one.
async fn end(
    writer: &Writer<'_>,
    how: GcOptions,
    done: &mut Collected,
    progress: &mut impl FnMut(&Collected),
) -> Result<(), Failed> {
    let Some(deletion) = under_way(writer).await? else { return Ok(()) };
    sleep(how.older_than.min(READERS_AGAIN)).await;
    for batch in deletion.objects.chunks(BATCH) {
        // Another gc may have ended it meanwhile, and a writer may have put some of them again.
        if under_way(writer).await?.as_ref() != Some(&deletion) {
            return Err(Failed::OtherDeletion);
        }
        delete_batch(writer.archive, batch).await?;
        done.deleted += batch.len() as u64;
        progress(&*done);
    }
    let ended = writer.change(async |held| deleted(held, &deletion));
    if let Some(manifest) = ended.await? {
        done.sequence = manifest.sequence;
    }
    Ok(())
}

/// Deletes objects soon after the manifest was looked at.
async fn delete_batch(archive: &ArchiveStore, names: &[String]) -> Result<(), Failed> {
    let looked = (Instant::now(), SystemTime::now());
    let deleting = stream::iter(names).map(|name| async move {
        in_time(looked)?;
        archive.delete(name).await
    });
    deleting.buffer_unordered(AT_ONCE).try_collect::<()>().await
}

/// The next manifest, which says that the objects of a deletion are gone. `None` if another gc ended it.
fn deleted(held: Option<&HeldManifest>, deletion: &Deletion) -> Result<Option<Manifest>, Failed> {
    let held = held.ok_or(Failed::NoManifest)?;
    let mut next = held.manifest.following(held.digest);
    if next.deletion.as_ref() != Some(deletion) {
        return Ok(None);
    }
    // By `since` writers see that objects went after they had looked.
    next.deletion = Some(Deletion { since: deletion.since, objects: Vec::new() });
    Ok(Some(next))
}

/// Fails if the last look at the manifest is long ago. The monotonic clock stops while a machine sleeps, the
/// other one may be set.
fn in_time((monotonic, real): (Instant, SystemTime)) -> Result<(), Failed> {
    let elapsed = real.elapsed().map_or(Duration::MAX, |real| real.max(monotonic.elapsed()));
    if elapsed > BATCH_TIME_MAX { Err(Failed::Slept) } else { Ok(()) }
}

/// The deletion that the manifest names.
async fn under_way(writer: &Writer<'_>) -> Result<Option<Deletion>, Failed> {
    let held = writer.manifest().await?.ok_or(Failed::NoManifest)?;
    let deletion = held.manifest.deletion.as_ref();
    Ok(deletion.filter(|deletion| !deletion.objects.is_empty()).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_at_the_manifest_is_old_after_a_sleep_and_by_a_clock_that_was_set() {
        let (monotonic, real, later) = (Instant::now(), SystemTime::now(), BATCH_TIME_MAX * 2);
        assert!(in_time((monotonic, real)).is_ok());
        assert!(matches!(in_time((monotonic, real - later)), Err(Failed::Slept)), "a sleep");
        assert!(matches!(in_time((monotonic, real + later)), Err(Failed::Slept)), "set back");
    }
}
