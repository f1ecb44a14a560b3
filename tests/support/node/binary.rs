//! Source of the avalanchego binary: given by the environment, or built once from the module in
//! `tests/avalanchego`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names a finished binary to use in place of building one; also the way to test a later release.
const GIVEN: &str = "NEVE_TEST_AVALANCHEGO";
/// The package whose version `tests/avalanchego/go.mod` pins.
const PACKAGE: &str = "github.com/ava-labs/avalanchego/main";
/// File name of the built binary: a new release in go.mod wants a new name here.
const BUILT: &str = "avalanchego-v1.14.2";
/// Release of Go that avalanchego v1.14.2's own go.mod names.
const GO_MIN: [u32; 3] = [1, 25, 8];

/// The avalanchego binary to run; builds it if there is none yet: minutes with an empty Go cache,
/// seconds with a full one.
///
/// # Panics
/// If a given binary is missing, or Go is missing, too old or fails.
pub(crate) fn binary() -> PathBuf {
    let Some(given) = std::env::var_os(GIVEN).map(PathBuf::from) else { return built() };
    assert!(given.is_file(), "{GIVEN} names {}, which is not a file", given.display());
    given
}

/// True if `binary` knows the Helicon upgrade, that is, if it is v1.15 or later.
pub(crate) fn knows_helicon(binary: &Path) -> bool {
    let text = output(Command::new(binary).arg("--version"));
    let version = numbers(text.trim_start_matches("avalanchego/"));
    version >= [1, 15, 0]
}

/// The binary in the target directory, built now if it is missing or of another go.sum.
fn built() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let binary = target.join(BUILT);
    fs::create_dir_all(target).unwrap_or_else(|why| panic!("{}: {why}", target.display()));
    // Test binaries run side by side, and two links of avalanchego at once take 4 GB.
    let lock = target.join(format!("{BUILT}.lock"));
    let lock = File::create(&lock).unwrap_or_else(|why| panic!("{}: {why}", lock.display()));
    lock.lock().expect("a lock on a local file that is only ever held for one build");
    // By content and not by age: a checkout is always younger than a cached binary.
    let (sums, stamp) = (read(&module().join("go.sum")), target.join(format!("{BUILT}.sum")));
    if !binary.is_file() || read(&stamp) != sums {
        build(&binary);
        fs::write(&stamp, sums).unwrap_or_else(|why| panic!("{}: {why}", stamp.display()));
    }
    binary
}

/// The bytes of a file; none if there is no such file.
fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_default()
}

/// Builds beside the final name and renames, so that a broken-off build leaves no half binary.
fn build(binary: &Path) {
    check_go();
    eprintln!("building {}: minutes if Go has none of it cached", binary.display());
    let fresh = binary.with_extension("new");
    output(
        Command::new("go")
            .args(["build", "-buildvcs=false", "-o"])
            .arg(&fresh)
            .arg(PACKAGE)
            .env("GOTOOLCHAIN", "local")
            .current_dir(module()),
    );
    fs::rename(&fresh, binary).unwrap_or_else(|why| panic!("{}: {why}", fresh.display()));
}

/// Says what is missing before Go says it in its own way.
fn check_go() {
    let want = GO_MIN.map(|part| part.to_string()).join(".");
    let hint = format!("building {BUILT} needs Go {want} or newer; or set {GIVEN} to a binary");
    // Outside the module and without a toolchain switch: the version that would really build.
    let mut go = Command::new("go");
    go.args(["env", "GOVERSION"]).env("GOTOOLCHAIN", "local").current_dir(std::env::temp_dir());
    let answer = go.output().unwrap_or_else(|why| panic!("go cannot be run ({why}): {hint}"));
    let version = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
    assert!(numbers(version.trim_start_matches("go")) >= GO_MIN, "found {version:?}: {hint}");
}

/// The first three numbers of a version text; what cannot be read counts as zero.
fn numbers(text: &str) -> [u32; 3] {
    let mut parts = text.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    [(); 3].map(|()| parts.next().unwrap_or(0))
}

/// The folder of the Go module.
fn module() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/avalanchego")
}

/// Runs a command to its end and returns what it printed.
fn output(command: &mut Command) -> String {
    let done = command.stdin(Stdio::null()).output();
    let done = done.unwrap_or_else(|why| panic!("{command:?} cannot be run: {why}"));
    let complaint = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {}\n{complaint}", done.status);
    String::from_utf8_lossy(&done.stdout).into_owned()
}
