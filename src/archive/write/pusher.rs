//! Pushing beside serving: a thread of the lowest priority pushes packed files as they appear.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use metrics::{counter, gauge};
use neve_archive::Manifest;
use tokio::sync::oneshot;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::change::{WriteOptions, Writer, own_manifest};
use super::ending::Ending;
use super::newest::Newest;
use super::push::{Progress, Pushed, push_in_turn};
use crate::archive::error::Failed;
use crate::archive::local::{PackedFiles, packed_files};
use crate::archive::signature::SigningKey;
use crate::archive::source::identity_of;
use crate::archive::store::{ArchiveAddress, ArchiveStore};
use crate::config::settings::ArchiveConfig;
use crate::shared::{Phase, PushStatus, Serving, Status};

/// Time between two looks for new packed files.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time between a push that failed and the next one: the first, and the longest.
const AGAIN_FIRST: Duration = Duration::from_secs(2);
const AGAIN_MAX: Duration = Duration::from_mins(5);

/// The thread that pushes. It ends soon after this is dropped: an object that is being put is cut off.
#[derive(Debug)]
pub(crate) struct Pusher {
    _stop: oneshot::Sender<()>,
}

/// Work of the thread.
struct PushWork {
    archive: ArchiveStore,
    options: WriteOptions,
    dir: PathBuf,
    status: Arc<Status>,
    serving: Arc<Serving>,
    /// Packed files of the last push that was done.
    pushed: BTreeSet<PathBuf>,
    again: Duration,
}

impl Pusher {
    /// Starts the thread.
    pub(crate) fn start(
        config: &ArchiveConfig,
        dir: &Path,
        (status, serving): (&Arc<Status>, &Arc<Serving>),
        nice: i32,
    ) -> Result<Self, Failed> {
        let work = PushWork::new(config, dir, (status, serving))?;
        status.change_archive(|archive| archive.push = Some(PushStatus::default()));
        let (stop, stopped) = oneshot::channel::<()>();
        let ending = Ending::new(Arc::clone(status));
        let run = move || {
            if let Err(error) = rustix::process::setpriority_process(None, nice) {
                debug!(%error, "pusher keeps its priority");
            }
            work.run_until(stopped, ending);
        };
        let started = thread::Builder::new().name("archive-push".to_owned()).spawn(run);
        let file = |error| Failed::File { path: dir.to_owned(), error };
        started.map(|_| Self { _stop: stop }).map_err(file)
    }
}

impl PushWork {
    /// Opens the archive of the settings. Nothing was pushed yet.
    fn new(
        config: &ArchiveConfig,
        dir: &Path,
        (status, serving): (&Arc<Status>, &Arc<Serving>),
    ) -> Result<Self, Failed> {
        let place = ArchiveAddress { url: config.url.clone(), endpoint: config.endpoint.clone() };
        let push = config.push.clone().unwrap_or_default();
        let signer = push.sign_key.as_deref().map(SigningKey::read).transpose()?;
        let newest = Newest::of_archive(&place, Some(dir), 0);
        Ok(Self {
            archive: ArchiveStore::open(&place)?,
            options: WriteOptions { signer, is_single: push.is_single, signs: None, newest },
            dir: dir.to_owned(),
            status: Arc::clone(status),
            serving: Arc::clone(serving),
            pushed: BTreeSet::new(),
            again: AGAIN_FIRST,
        })
    }

    /// Works on this thread until it is to stop.
    fn run_until(mut self, stopped: oneshot::Receiver<()>, ending: Ending) {
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(async {
                tokio::select! {
                    never = self.run() => match never {},
                    _ = stopped => ending.wanted(),
                }
            }),
            Err(error) => ending.failed(&error),
        }
    }

    async fn run(&mut self) -> Infallible {
        loop {
            let pause = match self.note_archived().await {
                Err(failed) => {
                    self.note_backlog(); // nothing is known to have a copy
                    self.failed(&failed.to_string())
                }
                Ok(()) if self.status.phase() == Phase::CatchingUp => LOOK_EVERY, // heads first
                Ok(()) => self.look().await,
            };
            sleep(pause).await;
        }
    }

    /// Notes the heights that earlier runs pushed, once. Those of another chain are none of this store's.
    async fn note_archived(&self) -> Result<(), Failed> {
        let noted = self.status.archive().and_then(|archive| archive.push);
        // Without a block it is not known which chain the store is of.
        let Some(identity) = self.serving.identity() else { return Ok(()) };
        if noted.is_some_and(|push| push.is_known) {
            return Ok(());
        }
        let held = own_manifest(&self.archive, &self.options).await?;
        let held = held.filter(|held| identity_of(&held.manifest) == identity);
        let manifest = held.as_ref().map(|held| &held.manifest);
        let heights = manifest.and_then(Manifest::heights);
        let from = manifest.map_or(0, |manifest| manifest.from);
        note_pushed(&self.status, &Pushed { heights, from, ..Pushed::default() });
        Ok(())
    }

    /// Pushes if packed files have appeared. Returns the time until the next look.
    async fn look(&mut self) -> Duration {
        // Before the push: a file that appears meanwhile is for the next look.
        let names = match packed_names(&self.dir) {
            Ok(names) => names,
            Err(error) => return self.failed(&error.to_string()),
        };
        // A file that was removed, and is packed anew under its name, has not been pushed.
        self.pushed.retain(|name| names.contains(name));
        if names.is_subset(&self.pushed) {
            return LOOK_EVERY;
        }
        self.note_backlog();
        match self.push().await {
            Ok(pushed) => {
                // Files behind a gap wait for others.
                self.pushed = names;
                self.again = AGAIN_FIRST;
                self.succeeded(&pushed).await;
                LOOK_EVERY
            }
            Err(failed) => self.failed(&failed.to_string()),
        }
    }

    async fn push(&self) -> Result<Pushed, Failed> {
        let writer = Writer::begin(&self.archive, &self.options).await?;
        // One at a time: a server's CPUs are for its clients, and a push may take as long
        // as it likes.
        let mut bad = 0;
        let note = |event: Progress<'_>| note(&self.status, event, &mut bad);
        let pushed = push_in_turn(&writer, &self.dir, note).await;
        note_bad(bad);
        pushed
    }

    async fn succeeded(&self, pushed: &Pushed) {
        note_pushed(&self.status, pushed);
        let Pushed { segments, bytes, heights, sequence, .. } = *pushed;
        if segments > 0 {
            let (first, last) = heights.unwrap_or_default();
            info!(segments, bytes, first, last, sequence, "archive pushed");
        }
        counter!("neve_archive_pushes_total", "outcome" => "done").increment(1);
        gauge!("neve_archive_push_failing").set(0.0);
        self.change(|push| push.error = None);
        self.note_backlog();
        self.archive.show_put_at().await;
    }

    /// Notes a failure, and says a new reason once. Returns the time until the next push.
    fn failed(&mut self, why: &str) -> Duration {
        counter!("neve_archive_pushes_total", "outcome" => "failed").increment(1);
        gauge!("neve_archive_push_failing").set(1.0);
        let wait = self.again;
        self.again = (2 * wait).min(AGAIN_MAX);
        // The same reason again is no news, and a store may be away for hours.
        self.change(|push| {
            if push.error.as_deref() != Some(why) {
                warn!(error = why, retry_in = ?wait, "archive push failed");
            }
            push.error = Some(why.to_owned());
        });
        wait
    }

    fn change(&self, change: impl FnOnce(&mut PushStatus)) {
        self.status.change_archive(|archive| change(archive.push.get_or_insert_default()));
    }

    /// Counts packed heights that the archive lacks.
    fn note_backlog(&self) {
        let push = self.status.archive().and_then(|archive| archive.push).unwrap_or_default();
        let is_there = |first: u64, end: u64| {
            let has = |(from, to): (u64, u64)| from <= first && end <= to.saturating_add(1);
            end <= push.from || push.heights.is_some_and(has)
        };
        let mut backlog = (0, 0);
        let PackedFiles { files, .. } = packed_files(&self.dir).unwrap_or_default();
        for file in files {
            let (first, end) = file.heights();
            if !is_there(first, end) {
                backlog = (backlog.0 + (end - first), backlog.1 + file.bytes());
            }
        }
        note_backlog(backlog);
        self.change(|push| push.backlog = backlog);
    }
}

#[expect(clippy::cast_precision_loss, reason = "gauges are doubles")]
fn note_backlog((heights, bytes): (u64, u64)) {
    gauge!("neve_archive_backlog_heights").set(heights as f64);
    gauge!("neve_archive_backlog_bytes").set(bytes as f64);
}

fn note_bad(files: u32) {
    gauge!("neve_archive_bad_files").set(files);
}

fn note(status: &Status, event: Progress<'_>, bad_files: &mut u32) {
    match event {
        Progress::Added(pushed) => note_pushed(status, pushed),
        Progress::SetAside(bad) => {
            *bad_files += 1;
            warn!(file = %bad.path.display(), reason = bad.why, "packed file set aside");
        }
    }
}

/// Notes the heights of the archive: eviction waits for the others.
fn note_pushed(status: &Status, pushed: &Pushed) {
    let (heights, from) = (pushed.heights, pushed.from);
    status.change_archive(|archive| {
        let push = archive.push.get_or_insert_default();
        (push.is_known, push.heights, push.from) = (true, heights, from);
    });
}

/// Names of the packed files of a directory.
fn packed_names(dir: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut names = BTreeSet::new();
    for entry in dir.read_dir()? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "pack") {
            names.insert(path);
        }
    }
    Ok(names)
}
