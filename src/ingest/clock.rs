//! The system clock, and doubt about it. Retention by age and the prices' age depend on it.

use std::time::{Duration, Instant, SystemTime};

/// A difference up to this is no doubt: clocks are adjusted, and blocks may be early.
const TOLERANCE: Duration = Duration::from_mins(1);

/// The system clock beside one that does not jump.
pub(crate) struct Clock {
    /// Time when both were read last.
    read: (Instant, SystemTime),
    /// The last jump: ahead or back, and how far.
    jump: Option<(bool, Duration)>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { read: (Instant::now(), SystemTime::now()), jump: None }
    }
}

impl Clock {
    /// Reason why the system clock is in doubt. `newest` is the newest block's time, seconds since
    /// 1970.
    pub(crate) fn doubt(&mut self, newest: Option<u64>) -> Option<String> {
        let now = (Instant::now(), SystemTime::now());
        // Kept until the next start: nothing tells when the clock is right again.
        self.jump = jump(self.read, now).or(self.jump);
        self.read = now;
        behind(now.1, newest).or_else(|| {
            self.jump.map(|(ahead, by)| {
                let way = if ahead { "ahead" } else { "back" };
                format!("jumped {way} by {} s since the start", by.as_secs())
            })
        })
    }
}

/// Difference between the steps of the system clock and of the steady one.
fn jump(before: (Instant, SystemTime), now: (Instant, SystemTime)) -> Option<(bool, Duration)> {
    let should = before.1 + now.0.saturating_duration_since(before.0);
    let jump = match now.1.duration_since(should) {
        Ok(ahead) => (true, ahead),
        Err(back) => (false, back.duration()),
    };
    Some(jump).filter(|(_, by)| *by > TOLERANCE)
}

fn behind(now: SystemTime, newest: Option<u64>) -> Option<String> {
    // A block's time is 64 bits wide, and an addition beyond the clock's range panics.
    let newest = SystemTime::UNIX_EPOCH + Duration::from_secs(newest?.min(1 << 40));
    let behind = newest.duration_since(now).ok().filter(|behind| *behind > TOLERANCE)?;
    Some(format!("{} s behind the newest block", behind.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_doubted_after_a_jump_and_behind_the_newest_block() {
        let (steady, system) = (Instant::now(), SystemTime::now());
        let second = Duration::from_secs(1);
        let later = |by| (steady + second, system + by);
        assert_eq!(jump((steady, system), later(second)), None);
        assert_eq!(jump((steady, system), later(TOLERANCE + second)), None);
        let ahead = jump((steady, system), later(TOLERANCE + 2 * second));
        assert_eq!(ahead, Some((true, TOLERANCE + second)));
        let back = (steady + second, system - TOLERANCE);
        assert_eq!(jump((steady, system), back), Some((false, TOLERANCE + second)));
        let since = system.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        assert_eq!(behind(system, Some(since)), None);
        assert!(behind(system, Some(since + 100)).unwrap().ends_with("s behind the newest block"));
        assert_eq!(behind(system, None), None);
        assert!(behind(system, Some(u64::MAX)).is_some());
    }
}
