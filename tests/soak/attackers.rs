//! Attackers at work: two at a time, from addresses of their own, one kind after the other.
//!
//! Elsewhere attackers have machines of their own. Here their threads have the lowest priority, so that clients are
//! measured against neve under attack, and not against the processor time that attackers themselves take.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::report::Report;
use rustix::process::setpriority_process;

use crate::stage::{Phase, Place, Stage};
use crate::support::attackers::{Attack, KINDS};
use crate::traffic::served;

/// Attackers at a time: more would only show how the machine's processors are shared.
pub(crate) const COUNT: usize = 2;
/// Time of an attack.
const ROUND: Duration = Duration::from_secs(3);
/// Between looks at the phase, and between attacks.
const BETWEEN: Duration = Duration::from_millis(100);
/// Nice value of attackers.
const NICE: i32 = 19;

/// Attacks both servers in turn until the last phase.
pub(crate) fn run(stage: &Stage, number: usize, report: &Report) {
    let _guard = stage.ends_when_dropped();
    // Of this thread, and of those that it starts: that is how Linux takes it.
    setpriority_process(None, NICE).expect("any process may lower its priority");
    for round in 0.. {
        while !stage.phase().has_attackers() {
            if stage.phase() >= Phase::Last {
                return;
            }
            std::thread::park_timeout(BETWEEN);
        }
        let (name, attack) = KINDS[(round + number * KINDS.len() / COUNT) % KINDS.len()];
        // The address changes with the round: what is kept of one must not protect from the next.
        let from = Ipv4Addr::new(127, 0, 0, 2 + ((round + 4 * number) % 8) as u8);
        let place = if (round + number) % 3 == 2 { Place::Mirror } else { Place::Source };
        let target = stage.server(place).address;
        let Some(served) = served(target) else { continue };
        let until = Instant::now() + ROUND;
        report.attack_begins(number, name);
        let connections = attack(&Attack { target, from, served, until });
        report.attack_ended(number, name, connections);
        std::thread::park_timeout(BETWEEN);
    }
}
