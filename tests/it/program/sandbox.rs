//! Filters of system calls, like those of the shipped unit.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

use crate::support::neve::{Neve, fresh_dir, run};

/// Runs `work` on a thread whose children may not call `call`.
fn without<T: Send + 'static>(call: i64, work: impl FnOnce() -> T + Send + 'static) -> T {
    let architecture: TargetArch = std::env::consts::ARCH.try_into().expect("it is known");
    let (deny, allow) = (SeccompAction::Errno(1), SeccompAction::Allow);
    let rules = BTreeMap::from([(call, Vec::new())]);
    let filter = SeccompFilter::new(rules, allow, deny, architecture).expect("it is sound");
    let program: BpfProgram = filter.try_into().expect("it is short");
    let filtered = std::thread::spawn(move || {
        apply_filter(&program).expect("a process may restrict itself");
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

#[test]
fn shipped_unit_allows_the_calls_that_its_groups_lack() {
    let unit = include_str!("../../../packaging/systemd/neve.service");
    let filters: Vec<_> =
        unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")).collect();
    // A later line adds to what an earlier one took away.
    assert_eq!(filters, ["@system-service", "~@privileged @resources", "mincore setpriority"]);
}
