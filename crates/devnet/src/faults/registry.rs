//! The faults that a node has now.

use std::{
    fmt,
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::sync::watch;

use super::fault::Fault;
use super::rule::{Rule, Subject};
use crate::chain::rules::{Purpose, Random};
use crate::lock::{read, write};

/// The faults of a node. Clones are the same faults.
#[derive(Clone)]
pub struct Faults(Arc<Registry>);

struct Registry {
    active: RwLock<Vec<Arc<Active>>>,
    /// Counts changes, for the tasks that wait for one.
    changes: watch::Sender<u64>,
}

struct Active {
    rule: Rule,
    /// Number of times that it may still apply.
    left: AtomicU64,
    /// Number of times that it might have applied, by which its share is drawn.
    chances: AtomicU64,
    hits: AtomicU64,
    cleared: AtomicBool,
}

/// A fault that was injected. It stays when this is dropped.
#[derive(Clone)]
pub struct Injected {
    active: Arc<Active>,
    faults: Faults,
}

impl Faults {
    pub(crate) fn new() -> Self {
        let changes = watch::Sender::new(0);
        Self(Arc::new(Registry { active: RwLock::default(), changes }))
    }

    /// Adds a fault, which applies at once.
    pub fn inject(&self, rule: impl Into<Rule>) -> Injected {
        let rule = rule.into();
        let left = AtomicU64::new(rule.times.unwrap_or(u64::MAX));
        let cleared = AtomicBool::new(false);
        let (chances, hits) = (AtomicU64::new(0), AtomicU64::new(0));
        let active = Arc::new(Active { rule, left, chances, hits, cleared });
        write(&self.0.active).push(Arc::clone(&active));
        self.changed();
        Injected { active, faults: self.clone() }
    }

    /// Takes all faults away.
    pub fn clear(&self) {
        for active in write(&self.0.active).drain(..) {
            active.cleared.store(true, Ordering::Release);
        }
        self.changed();
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        read(&self.0.active).is_empty()
    }

    /// Returns a count of changes, to wait for the next one.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    fn changed(&self) {
        self.0.changes.send_modify(|changes| *changes += 1);
    }

    /// True if a fault is there, used up or not: what it did to whom it applied goes on until it
    /// is cleared.
    pub(crate) fn has(&self, fault: &Fault) -> bool {
        read(&self.0.active).iter().any(|active| active.rule.fault == *fault)
    }

    /// Makes use of a fault that says all by itself, if it applies.
    pub(crate) fn strikes(&self, fault: &Fault, subjects: &[Subject<'_>]) -> bool {
        self.take(subjects, |other| (other == fault).then_some(())).is_some()
    }

    /// Waits until a fault is cleared.
    pub(crate) async fn until_cleared(&self, fault: &Fault) {
        let mut changes = self.changes();
        while self.has(fault) && changes.changed().await.is_ok() {}
    }

    /// Makes use of the first fault for which `pick` has something, among those that apply.
    pub(crate) fn take<T>(
        &self,
        subjects: &[Subject<'_>],
        pick: impl Fn(&Fault) -> Option<T>,
    ) -> Option<T> {
        self.applicable(subjects).into_iter().find_map(|active| {
            // The effect first: what has none is no use.
            let effect = pick(&active.rule.fault)?;
            active.apply().then_some(effect)
        })
    }

    /// Lets each fault that applies make something else of a value, one after the other.
    pub(crate) fn change<T>(
        &self,
        subjects: &[Subject<'_>],
        value: T,
        change: impl Fn(&Fault, &T) -> Option<T>,
    ) -> T {
        self.applicable(subjects).into_iter().fold(value, |value, active| {
            match change(&active.rule.fault, &value) {
                Some(changed) if active.apply() => changed,
                _ => value,
            }
        })
    }

    fn applicable(&self, subjects: &[Subject<'_>]) -> Vec<Arc<Active>> {
        let active = read(&self.0.active);
        let applies = |active: &&Arc<Active>| active.can_apply() && active.rule.covers(subjects);
        active.iter().filter(applies).cloned().collect()
    }
}

impl Active {
    fn can_apply(&self) -> bool {
        self.left.load(Ordering::Acquire) > 0 && !self.cleared.load(Ordering::Acquire)
    }

    /// True if it is drawn this time.
    fn is_drawn(&self) -> bool {
        let chance = self.chances.fetch_add(1, Ordering::AcqRel);
        Random::new(0, Purpose::Fault, chance).chance(self.rule.share)
    }

    /// True if it is drawn, and one more use was left.
    fn apply(&self) -> bool {
        if !self.is_drawn() {
            return false;
        }
        let one_less = |left: u64| left.checked_sub(1);
        // Requests come from many threads: a fault of n times must not strike n + 1 times.
        let used = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_ok();
        self.hits.fetch_add(u64::from(used), Ordering::AcqRel);
        used
    }
}

impl Injected {
    /// Number of times that it applied.
    pub fn hits(&self) -> u64 {
        self.active.hits.load(Ordering::Acquire)
    }

    /// Ends the fault, and wakes what waits for that.
    pub fn clear(&self) {
        self.active.cleared.store(true, Ordering::Release);
        write(&self.faults.0.active).retain(|other| !Arc::ptr_eq(other, &self.active));
        self.faults.changed();
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(read(&self.0.active).iter().map(|active| &active.rule)).finish()
    }
}

impl fmt::Debug for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Injected")
            .field("rule", &self.active.rule)
            .field("hits", &self.hits())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stall(fault: &Fault) -> Option<()> {
        (*fault == Fault::Stall).then_some(())
    }

    #[test]
    fn uses_are_counted_and_end() {
        let faults = Faults::new();
        let twice = faults.inject(Fault::Stall.times(2));
        let uses = (0..5).filter_map(|_| faults.take(&[], stall)).count();
        assert_eq!((uses, twice.hits()), (2, 2));
        assert!(faults.has(&Fault::Stall), "it is there until it is cleared");
        twice.clear();
        assert!(!faults.has(&Fault::Stall));
    }

    #[test]
    fn fault_without_effect_is_not_used_up() {
        let faults = Faults::new();
        let once = faults.inject(Fault::Stall.times(1));
        assert_eq!(faults.take(&[], |_| None::<()>), None);
        assert_eq!((once.hits(), faults.take(&[], stall)), (0, Some(())));
    }

    #[test]
    fn a_share_of_the_cases_is_drawn() {
        let faults = Faults::new();
        let some = faults.inject(Fault::Stall.share(130));
        let drawn = || (0..10_000).filter(|_| faults.take(&[], stall).is_some()).count() as u64;
        let first = drawn();
        assert!((1_200..1_400).contains(&first), "{first}");
        assert_eq!(some.hits(), first);
        some.clear();
        faults.inject(Fault::Stall.share(130));
        assert_eq!(drawn(), first, "the same ones in the same order");
        faults.clear();
        faults.inject(Fault::Stall.share(0));
        assert_eq!(drawn(), 0);
    }

    #[test]
    fn faults_are_cleared() {
        let faults = Faults::new();
        let mut changes = faults.changes();
        let (one, other) = (faults.inject(Fault::Stall), faults.inject(Fault::Stall));
        assert!(changes.has_changed().unwrap());
        one.clear();
        changes.mark_unchanged();
        assert_eq!(faults.take(&[], stall), Some(()));
        faults.clear();
        assert!(faults.is_empty() && changes.has_changed().unwrap());
        assert_eq!(other.hits(), 1);
    }
}
