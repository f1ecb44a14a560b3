//! The packer: a thread of a low priority that packs a range of heights, while neve is not behind its upstream, or of
//! the usual one if neve needs the space.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use metrics::counter;
use neve_store::{
    Error, NewPartNames, NewParts, PackEnd, PackOutcome, Packable, PackedHeights, Replaced,
    UnpackableRange, Writer,
};
use tokio::sync::oneshot;
use tracing::{debug, info, warn};

use crate::config::Human;
use crate::shared::{Phase, Status};

/// Interval at which the packer looks whether it may go on.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time without packing after a range could not be packed: the disk is full, say, and packing is dear.
const AGAIN_AFTER: Duration = Duration::from_mins(5);

/// Work of the packer that has ended.
pub(super) enum Packed {
    /// A range was packed, and its file written aside.
    Written(Result<PackOutcome, Error>),
    /// The name of a packed file is durable.
    Named(Result<Replaced, Error>),
    /// Parts of a segment across two ranges were written aside.
    Split(Result<Option<NewParts>, Error>),
    /// Their names are durable.
    SplitNamed(Result<NewPartNames, Error>),
}

/// Work for a thread of the packer.
type PackWork = Box<dyn FnOnce() -> Packed + Send>;

/// The packer, as the writer thread sees it. Dropping it stops the work.
pub(super) struct Packer {
    /// Newest bytes that stay unpacked; `None`: nothing is packed.
    unpacked_bytes: Option<u64>,
    gate: Arc<Gate>,
    /// Priority while neve does not need the space.
    nice: i32,
    under_way: Option<oneshot::Receiver<Packed>>,
    /// True if the name of a file that readers see is being synced.
    is_naming: bool,
    /// Nothing is packed before.
    not_before: Option<Instant>,
}

/// Permission to pack, which the writer gives and a thread of the packer asks for.
struct Gate {
    status: Arc<Status>,
    stop: AtomicBool,
    /// True if packing is needed for space.
    is_pressed: AtomicBool,
}

impl Gate {
    /// True if packing delays no head, or if heads need its space.
    fn is_open(&self) -> bool {
        self.is_pressed.load(Ordering::Relaxed) || self.status.phase() != Phase::CatchingUp
    }

    /// Waits while neve is behind and has space. False if packing must end.
    #[allow(clippy::disallowed_methods, reason = "the packer has a thread of its own")]
    fn proceed(&self) -> bool {
        let is_stopped = || self.stop.load(Ordering::Relaxed);
        while !self.is_open() && !is_stopped() {
            thread::sleep(LOOK_EVERY);
        }
        !is_stopped()
    }
}

impl Packer {
    pub(super) fn new(unpacked_bytes: Option<u64>, nice: i32, status: &Arc<Status>) -> Self {
        let (stop, is_pressed) = (AtomicBool::new(false), AtomicBool::new(false));
        let gate = Arc::new(Gate { status: Arc::clone(status), stop, is_pressed });
        Self { unpacked_bytes, gate, nice, under_way: None, is_naming: false, not_before: None }
    }

    /// Says whether packing is needed for space, so that it goes on while neve is behind.
    pub(super) fn press(&self, is_pressed: bool) {
        self.gate.is_pressed.store(is_pressed, Ordering::Relaxed);
    }

    /// True if work is running.
    pub(super) fn is_at_work(&self) -> bool {
        self.under_way.is_some()
    }

    /// Heights of which the packer packs what it can; `None` after a failure, and if nothing is packed.
    pub(super) fn packable(&self) -> Option<Packable> {
        let unpacked_bytes = self.unpacked_bytes?;
        let may_begin = self.not_before.is_none_or(|time| Instant::now() >= time);
        // Right after a start the settled heights are not known yet, and nothing is appended before they are.
        let settled = self.gate.status.verified().unwrap_or(u64::MAX);
        may_begin.then_some(Packable { settled, unpacked_bytes })
    }

    /// Begins to pack the next range that is due, or else to split a segment of which no range can be packed. Does
    /// nothing while such work is running.
    pub(super) fn begin(&mut self, writer: &Writer) {
        // A range that waits until neve has caught up may be evicted by then.
        if self.under_way.is_none()
            && self.gate.is_open()
            && self.gate.status.verified().is_some()
            && let Some(packable) = self.packable()
            && let Some(work) = self.due(writer, packable)
            && self.start(work).is_err()
        {
            self.wait_before_the_next();
        }
    }

    fn due(&self, writer: &Writer, packable: Packable) -> Option<PackWork> {
        let Packable { settled, unpacked_bytes } = packable;
        let gate = Arc::clone(&self.gate);
        let mut go_on = move || gate.proceed();
        if let Some(due) = writer.begin_pack(settled, unpacked_bytes) {
            return Some(Box::new(move || Packed::Written(due.run(&mut go_on))));
        }
        let due = writer.begin_split(settled, unpacked_bytes)?;
        info!(first = due.first(), "segment across two ranges is split");
        Some(Box::new(move || Packed::Split(due.run(&mut go_on))))
    }

    /// Shows packed heights, removes the segments that they replace, and packs on. Syncs, and giving the bytes
    /// of segments back, are the packer's: heads wait for this thread.
    pub(super) fn publish(&mut self, writer: &mut Writer, ended: Packed) -> Result<(), Error> {
        match ended {
            Packed::Written(outcome) => return self.show_packed(writer, outcome),
            Packed::Named(named) => {
                self.is_naming = false;
                let replaced = writer.remove_packed(named)?;
                self.drop_aside(replaced);
            }
            Packed::Split(parts) => match writer.show_parts(parts)? {
                Some(names) => {
                    return self.name(writer, move || Packed::SplitNamed(names.run()));
                }
                None => self.wait_before_the_next(),
            },
            Packed::SplitNamed(named) => {
                self.is_naming = false;
                self.drop_aside(writer.end_split(named)?);
            }
        }
        self.begin(writer);
        Ok(())
    }

    /// Shows a packed file and has its name made durable, or packs on.
    fn show_packed(
        &mut self,
        writer: &mut Writer,
        outcome: Result<PackOutcome, Error>,
    ) -> Result<(), Error> {
        match writer.end_pack(outcome)? {
            // Two steps: readers see the file at once, but the segments that it replaces stay until
            // its name is durable. A power failure in between must find one of both.
            PackEnd::Packed(packed, name) => {
                note(&packed);
                return self.name(writer, move || Packed::Named(name.run()));
            }
            // The next range may fit, so it is tried at once; the writer remembers this one.
            PackEnd::Unpackable(range) => note_unpackable(&range),
            PackEnd::Overtaken => debug!("range changed while it was packed"),
            PackEnd::NotPacked => self.wait_before_the_next(),
        }
        self.begin(writer);
        Ok(())
    }

    /// Makes names of files that readers see durable. Without a thread the writer does it: the files that they
    /// replace would stay until the next start.
    fn name<W>(&mut self, writer: &mut Writer, work: W) -> Result<(), Error>
    where
        W: FnOnce() -> Packed + Send + 'static,
    {
        match self.start(work) {
            Ok(()) => self.is_naming = true,
            Err(work) => return self.publish(writer, work()),
        }
        Ok(())
    }

    /// Priority of the next work. Appends may wait for space: a thread of a low priority would hold them up on a busy
    /// machine, and none can get a higher one back.
    fn nice(&self) -> Option<i32> {
        (!self.gate.is_pressed.load(Ordering::Relaxed)).then_some(self.nice)
    }

    /// Works on a thread of the packer's own. Gives the work back if there can be none.
    fn start<W: FnOnce() -> Packed + Send + 'static>(&mut self, work: W) -> Result<(), W> {
        let (done, under_way) = oneshot::channel();
        // Sent once the thread runs: a closure that `spawn` refuses is dropped, with what it owns.
        let (give, take) = mpsc::channel::<W>();
        let nice = self.nice();
        let started = thread::Builder::new().name("packer".to_owned()).spawn(move || {
            nice.into_iter().for_each(lower_priority);
            if let Ok(work) = take.recv() {
                let _ = done.send(work()); // the writer may be gone
            }
        });
        if let Err(error) = started {
            warn!(%error, "packer not started");
            return Err(work);
        }
        self.under_way = Some(under_way);
        let _ = give.send(work); // the thread waits for it
        Ok(())
    }

    /// Gives maps and bytes of removed segments back on a thread of its own.
    fn drop_aside(&self, replaced: Replaced) {
        let nice = self.nice();
        // To unmap and to free gigabytes takes long, and the writer thread appends heads.
        let drop_it = move || {
            nice.into_iter().for_each(lower_priority);
            drop(replaced);
        };
        if let Err(error) = thread::Builder::new().name("packer".to_owned()).spawn(drop_it) {
            debug!(%error, "segments given back by the writer"); // with the closure
        }
    }

    /// Waits for the end of the work; `None` at once if there is none, or if it panicked.
    pub(super) async fn ended(&mut self) -> Option<Packed> {
        let ended = self.under_way.as_mut()?.await;
        self.under_way = None;
        if ended.is_err() {
            self.is_naming = false;
            self.wait_before_the_next(); // it panicked, and would again
        }
        ended.ok()
    }

    /// Removes the segments that a packed file has replaced, before neve stops: the next start would serve them
    /// and pack them again.
    pub(super) async fn finish(&mut self, writer: &mut Writer) -> Result<(), Error> {
        self.gate.stop.store(true, Ordering::Relaxed);
        // Packing that is not finished is dropped: a file without its name costs nothing at the
        // next start.
        match self.under_way.take().filter(|_| self.is_naming) {
            Some(naming) => match naming.await {
                Ok(Packed::Named(named)) => writer.remove_packed(named).map(drop),
                Ok(Packed::SplitNamed(named)) => writer.end_split(named).map(drop),
                _ => Ok(()),
            },
            None => Ok(()),
        }
    }

    fn wait_before_the_next(&mut self) {
        self.not_before = Some(Instant::now() + AGAIN_AFTER);
    }
}

impl Drop for Packer {
    fn drop(&mut self) {
        self.gate.stop.store(true, Ordering::Relaxed);
    }
}

fn lower_priority(nice: i32) {
    if let Err(error) = rustix::process::setpriority_process(None, nice) {
        debug!(%error, "packer keeps its priority");
    }
}

/// Logs and counts packed heights.
fn note(packed: &PackedHeights) {
    let PackedHeights { first, heights, bytes_before, bytes, as_it_came } = packed;
    counter!("neve_store_packed_heights_total").increment(*heights);
    for (reason, heights) in as_it_came {
        counter!("neve_store_packed_texts_total", "reason" => *reason).increment(*heights);
    }
    let (before, now) = (Human(*bytes_before), Human(*bytes));
    info!(first, heights, %before, %now, "range packed");
}

/// Logs and counts a range that stays unpacked. neve tries it again at its next start only.
fn note_unpackable(range: &UnpackableRange) {
    let UnpackableRange { first, reason, error } = range;
    counter!("neve_store_unpackable_ranges_total", "reason" => *reason).increment(1);
    warn!(first, reason, error, "range stays unpacked");
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use metrics_exporter_prometheus::PrometheusBuilder;
    use neve_record::packed::Codec;
    use neve_store::{Hash, Identity, Options, Record, open_with};
    use rustix::process::getpriority_process;

    use super::*;

    const NICE: i32 = 19;

    /// A store of nine heights: two whole ranges, and one height.
    fn store(dir: &Path) -> Writer {
        let options = Options { segment_blocks: 4, disk_reserve_bytes: 0, ..Options::default() };
        let opened = open_with(dir, options, Arc::new(Codec::default()));
        let mut writer = opened.expect("an empty directory").writer;
        let identity = Identity { chain_id: 43112, genesis: Hash([7; 32]) };
        writer.bind(identity, 1).expect("it is new");
        for height in 0..9 {
            let [parent, hash] = [height, height + 1].map(|at| Hash([at as u8; 32]));
            let record = Record { height, hash, parent, ..Record::default() };
            writer.append(&record).expect("it follows");
        }
        writer
    }

    /// Writers wait for space: the thread of a low priority would hold them up on a busy machine.
    #[test]
    fn packing_that_appends_wait_for_has_the_usual_priority() {
        let mut packer = Packer::new(Some(0), NICE, &Arc::default());
        let nice_of_work = |packer: &mut Packer| {
            let (tell, told) = mpsc::channel();
            let work = move || {
                tell.send(getpriority_process(None)).expect("the test waits");
                Packed::Split(Ok(None))
            };
            assert!(packer.start(work).is_ok(), "a thread can be made");
            told.recv().expect("the thread works").expect("Linux tells it")
        };
        let usual = getpriority_process(None).expect("Linux tells it");
        assert_eq!(nice_of_work(&mut packer), NICE);
        packer.press(true);
        assert_eq!(nice_of_work(&mut packer), usual);
    }

    #[test]
    fn packer_waits_while_neve_is_behind() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let (writer, status) = (store(dir.path()), Arc::new(Status::default()));
        status.set_verified(Some(8));
        let mut packer = Packer::new(Some(0), NICE, &status);
        status.set_phase(Phase::CatchingUp);
        packer.begin(&writer);
        assert!(packer.under_way.is_none(), "it packs while neve is behind");
        status.set_verified(None);
        packer.press(true);
        packer.begin(&writer);
        assert!(packer.under_way.is_none(), "no height is settled");
        packer.press(false);
        status.set_verified(Some(8));
        status.set_phase(Phase::Following);
        packer.begin(&writer);
        assert!(packer.under_way.is_some(), "a range is due");
    }

    #[test]
    fn packing_under_way_waits_while_neve_is_behind() {
        let status = Arc::new(Status::default());
        let packer = Packer::new(Some(0), NICE, &status);
        let go_on = || {
            let gate = Arc::clone(&packer.gate);
            let (went_on, waits) = mpsc::channel();
            thread::spawn(move || went_on.send(gate.proceed()));
            waits
        };
        status.set_phase(Phase::CatchingUp);
        let waits = go_on();
        assert!(waits.recv_timeout(3 * LOOK_EVERY).is_err(), "it goes on while neve is behind");
        status.set_phase(Phase::Following);
        assert_eq!(waits.recv(), Ok(true));
        assert_eq!(go_on().recv(), Ok(true));
        status.set_phase(Phase::CatchingUp);
        packer.press(true);
        assert_eq!(go_on().recv(), Ok(true), "neve needs the space");
        packer.press(false);
        packer.gate.stop.store(true, Ordering::Relaxed);
        assert_eq!(go_on().recv(), Ok(false), "it ends with neve, also while neve is behind");
    }

    #[test]
    fn ranges_that_stay_unpacked_are_counted_by_reason() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let range = |first, reason| UnpackableRange { first, reason, error: "too large".into() };
        metrics::with_local_recorder(&recorder, || {
            [range(0, "file"), range(1024, "file"), range(2048, "log_index")]
                .iter()
                .for_each(note_unpackable);
        });
        let shown = recorder.handle().render();
        for (reason, ranges) in [("file", 2), ("log_index", 1)] {
            let line =
                format!("neve_store_unpackable_ranges_total{{reason=\"{reason}\"}} {ranges}");
            assert!(shown.lines().any(|shown| shown == line), "{line} is not in {shown}");
        }
    }

    #[test]
    fn heights_that_are_stored_as_they_came_are_counted_by_reason() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let as_it_came = vec![("too_large", 2), ("signature", 5)];
        let packed = PackedHeights { first: 32, heights: 16, as_it_came, ..Default::default() };
        metrics::with_local_recorder(&recorder, || {
            note(&packed);
            note(&packed);
        });
        let shown = recorder.handle().render();
        for line in [
            "neve_store_packed_heights_total 32",
            "neve_store_packed_texts_total{reason=\"too_large\"} 4",
            "neve_store_packed_texts_total{reason=\"signature\"} 10",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line} is not in {shown}");
        }
    }
}
