//! A tester that nobody here wrote, schemathesis, makes requests of its own from docs/openapi.json,
//! good and bad ones, and looks whether the answers are what the description says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::rest::follow;
use crate::support::corpus::{HELICON, MAIN};
use crate::support::neve::Neve;

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rest/schemathesis.toml");
const REQUIREMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rest/requirements.txt");
/// Cases for each operation, in each phase.
const CASES: &str = "40";

fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|why| panic!("{command:?}: {why}"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    text
}

/// The tester, in an environment of its own that is kept from run to run.
fn tester() -> PathBuf {
    let wanted = fs::read_to_string(REQUIREMENTS).expect("it is in the repository");
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("schemathesis");
    let (stamp, bin) = (home.join("installed.txt"), home.join("bin"));
    if fs::read_to_string(&stamp).ok().as_ref() != Some(&wanted) {
        succeeds(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home));
        let pip = ["install", "--quiet", "--disable-pip-version-check", "-r", REQUIREMENTS];
        succeeds(Command::new(bin.join("pip")).args(pip));
        fs::write(stamp, wanted).expect("the environment can be written");
    }
    bin.join("schemathesis")
}

fn hits(neve: &Neve, method: &str) -> u64 {
    neve.count(&format!("neve_rpc_calls_total{{method=\"{method}\",outcome=\"hit\"}}"))
}

#[test]
fn a_tester_finds_the_description_true() {
    let tester = tester();
    for set in [MAIN, HELICON] {
        let (_node, neve, dir) = follow(set);
        let url = format!("http://{}/v1/openapi.json", neve.address);
        let run = ["--checks", "all", "--max-examples", CASES, "--generation-deterministic"];
        let mut command = Command::new(&tester);
        command.args(["--config-file", CONFIG, "run", &url, "--no-color"]).args(run);
        let report = succeeds(command.current_dir(dir.path()));
        assert!(report.contains("Tested: 12"), "not all operations were tested:\n{report}");
        // Otherwise it would have seen nothing but refusals.
        for method in [
            "eth_getBlockByNumber",
            "eth_getBlockByHash",
            "eth_getHeaderByNumber",
            "eth_getBlockReceipts",
            "eth_getTransactionByHash",
            "eth_getTransactionReceipt",
        ] {
            assert!(hits(&neve, method) > 0, "it never saw an answer to {method}:\n{report}");
        }
    }
}
