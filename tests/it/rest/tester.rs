//! A tester from outside the project, schemathesis, makes requests of its own from docs/openapi.json,
//! good and bad ones, and looks whether the answers are what the description says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::corpus::{HELICON, MAIN, Set};
use crate::support::neve::Neve;
use crate::support::served::recorded;

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

/// The description with examples of what a neve holds, without which few requests would find
/// anything.
fn description(neve: &Neve, set: Set, dir: &Path) -> PathBuf {
    let text = include_str!("../../../docs/openapi.json");
    let mut description: Value = serde_json::from_str(text).expect("it is JSON");
    let mut client = neve.client();
    let parameters = &mut description["components"]["parameters"];
    for height in [0, 7, set.head / 2, set.head - 1, set.head] {
        let block = client.get(&format!("/v1/block/{height}?transactions=hashes")).json();
        let name = format!("at {height}");
        parameters["Block"]["examples"][&name] = json!({ "value": block["hash"] });
        for (at, hash) in block["transactions"].as_array().into_iter().flatten().enumerate() {
            let name = format!("{at} {name}");
            parameters["Transaction"]["examples"][&name] = json!({ "value": hash });
        }
    }
    parameters["Block"]["examples"]["newest"] = json!({ "value": set.head.to_string() });
    let path = dir.join("openapi.json");
    fs::write(&path, description.to_string()).expect("the directory is ours");
    path
}

#[test]
#[ignore = "needs Python and schemathesis: ./check"]
fn a_tester_finds_the_description_true() {
    let tester = tester();
    // Plain, and with the codings that the tester's client accepts.
    for (set, codings) in [(MAIN, &["--precompress", "gzip,zstd"][..]), (HELICON, &[])] {
        let (_node, neve, dir) = recorded(set, codings);
        let (url, file) = (format!("http://{}", neve.address), description(&neve, set, dir.path()));
        let run = ["--checks", "all", "--max-examples", CASES, "--generation-deterministic"];
        let mut command = Command::new(&tester);
        command.args(["--config-file", CONFIG, "run", "--no-color", "--url", &url]);
        command.arg(file).args(run);
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
