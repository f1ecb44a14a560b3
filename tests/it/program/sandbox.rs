//! Filters of system calls, like those of the shipped unit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rustix::process::Signal;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter, compile_from_json,
};
use serde_json::json;

use crate::store::packed::wait_for_packed;
use crate::support::neve::{Neve, fresh_dir, run};
use crate::support::served::{devnet, serves};
use crate::support::ws::Ws;

fn architecture() -> TargetArch {
    std::env::consts::ARCH.try_into().expect("it is known")
}

/// Runs `work` on a thread whose children may not call `call`.
fn without<T: Send + 'static>(call: i64, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (deny, allow) = (SeccompAction::Errno(1), SeccompAction::Allow);
    let rules = BTreeMap::from([(call, Vec::new())]);
    let filter = SeccompFilter::new(rules, allow, deny, architecture()).expect("it is sound");
    under(filter.try_into().expect("it is short"), work)
}

/// Runs `work` on a thread that has this filter, and its children, too.
fn under<T: Send + 'static>(filter: BpfProgram, work: impl FnOnce() -> T + Send + 'static) -> T {
    let filtered = std::thread::spawn(move || {
        apply_filter(&filter).expect("a process may restrict itself");
        work()
    });
    filtered.join().expect("the work does not panic")
}

#[test]
fn start_fails_and_names_the_filter_where_mincore_is_refused() {
    let dir = fresh_dir();
    let store = dir.path().join("store").display().to_string();
    let output = without(libc::SYS_mincore, move || {
        run(&["serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir", &store])
    });
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("refuses mincore(2)") && said.contains("SystemCallFilter="), "{said}");
}

#[test]
fn start_succeeds_where_priorities_cannot_be_changed() {
    let dir = fresh_dir();
    let path = dir.path().to_owned();
    let neve = without(libc::SYS_setpriority, move || Neve::start(&path, &["--dev"]));
    neve.wait_for_head(1);
}

const UNIT: &str = include_str!("../../../packaging/systemd/neve.service");
/// Groups of system calls as systemd has them.
const GROUPS: &str = include_str!("syscalls.txt");
/// Blocks of the chain, and those that come while neve runs.
const HEAD: u64 = 60;
const MORE: u64 = 80;

/// Calls of a group, or the one of this name.
fn named(name: &str) -> Vec<&str> {
    let mut groups = GROUPS.split("\n\n");
    let group = groups.find_map(|text| text.strip_prefix(name)?.strip_prefix(':'));
    assert!(group.is_some() || !name.starts_with('@'), "{name} is not in syscalls.txt");
    group.map_or_else(|| vec![name], |calls| calls.split_whitespace().collect())
}

/// Calls that a unit allows. The first line says what is allowed, `~` takes away, and a later line adds again.
fn allowed(unit: &str) -> BTreeSet<&str> {
    let mut allowed = BTreeSet::from_iter(named("@default"));
    for line in unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let (takes, names) = line.strip_prefix('~').map_or((false, line), |names| (true, names));
        for call in names.split_whitespace().flat_map(named) {
            if takes {
                allowed.remove(call)
            } else {
                allowed.insert(call)
            };
        }
    }
    allowed
}

/// Filter that allows these calls; nothing if this processor lacks one of them.
fn only(calls: &[&str]) -> Option<BpfProgram> {
    let calls: Vec<_> = calls.iter().map(|call| json!({ "syscall": call })).collect();
    let filter = json!({ "unit": {
        "mismatch_action": { "errno": 1 }, "match_action": "allow", "filter": calls,
    } });
    compile_from_json(filter.to_string().as_bytes(), architecture()).ok()?.remove("unit")
}

/// The filter of a unit. Like systemd it passes over calls of other processors.
fn filter_of(unit: &str) -> BpfProgram {
    let known = allowed(unit).into_iter().filter(|call| only(&[call]).is_some());
    only(&known.collect::<Vec<_>>()).expect("each of them is known")
}

/// Serves over all paths, follows, packs, evicts, reloads and ends: no call of the system is refused to it.
#[test]
fn neve_does_all_its_work_under_the_filter_of_the_shipped_unit() {
    let devnet = devnet(HEAD);
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let (path, log) = (dir.path().to_owned(), dir.path().join("access.log").display().to_string());
    let neve = under(filter_of(UNIT), move || {
        let stored = ["--segment-blocks", "16", "--unpacked-bytes", "0B", "--retain-blocks", "64"];
        let other = ["--access-log", &log, "--lock-newest-bytes", "4MiB", "--start", "0"];
        let arguments = [&["--upstream", &url][..], &stored, &other].concat();
        Neve::start_by(&["env", "RUST_LOG=neve=debug"], &path, &arguments)
    });
    neve.wait_for_head(HEAD);
    wait_for_packed(&neve, 32);
    let mut socket = Ws::open(&neve);
    let heads = socket.subscribe("[\"newHeads\"]");
    devnet.advance(MORE);
    neve.wait_for_head(HEAD + MORE);
    assert_eq!(socket.heads(&heads, MORE as usize).len(), MORE as usize);
    neve.wait("evicted heights", |health| {
        (health["blocks"]["min_height"].as_u64()? > 0).then_some(())
    });
    serves(&neve, &devnet, HEAD + MORE - 40..=HEAD + MORE);
    let logs = neve.client().result("eth_getLogs", r#"[{"fromBlock":"0x60","toBlock":"latest"}]"#);
    assert!(logs.as_array().is_some_and(|logs| !logs.is_empty()), "{logs}");
    assert_eq!(neve.client().get("/v1/block/130").status, 200);
    let opened = dir.path().join("access.log");
    fs::rename(&opened, dir.path().join("access.log.1")).expect("neve made it");
    neve.signal(Signal::HUP);
    neve.wait("the access log anew", |_| opened.exists().then_some(()));
    let text = neve.log();
    let denied = text.lines().find(|line| line.contains("not permitted"));
    assert_eq!(denied, None, "a call is missing in SystemCallFilter=");
    assert!(neve.stop().0.success());
}

/// The filter of this test is the unit's: without its last line neve does not start.
#[test]
fn filter_of_the_unit_without_its_last_line_refuses_mincore() {
    let last = UNIT.lines().rfind(|line| line.starts_with("SystemCallFilter="));
    let shorter = UNIT.replace(last.expect("it has some"), "");
    let output = under(filter_of(&shorter), || run(&["serve", "--dev", "--listen", "127.0.0.1:0"]));
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("refuses mincore(2)"), "{said}");
}
