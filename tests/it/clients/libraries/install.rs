//! The libraries: installed once into cargo's directory for test files, by their own tools, in the
//! versions that their lock files name.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A session that can be run.
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) binary: PathBuf,
    /// Before those of the session.
    pub(super) arguments: Vec<PathBuf>,
}

/// Folder of all installed libraries.
pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients")
}

fn source(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(language)
}

/// All sessions, installed now if they are not or have changed.
///
/// # Panics
/// If something cannot be installed: says what is missing.
pub(super) fn all() -> Vec<Program> {
    ["js", "python", "go", "rust"].into_iter().for_each(installed);
    programs(&folder())
}

/// Installs the libraries of a language if they are not installed or have changed, and returns
/// their folder.
///
/// # Panics
/// As [`all`].
pub(super) fn of(language: &str) -> PathBuf {
    installed(language);
    folder().join(language)
}

fn installed(language: &str) {
    let folder = folder();
    fs::create_dir_all(&folder).expect("cargo's directory for test files can be written");
    let lock = File::create(folder.join("lock")).expect("a file can be made");
    lock.lock().expect("a lock on a local file that is only ever held while installing");
    let (from, into) = (source(language), folder.join(language));
    let (stamp, content) = (folder.join(format!("{language}.stamp")), content(&from));
    if fs::read(&stamp).unwrap_or_default() != content {
        eprintln!("installing the {language} sessions: minutes if nothing is cached");
        fs::create_dir_all(&into).expect("a directory can be made");
        installer(language)(&from, &into);
        fs::write(&stamp, content).expect("a file can be written");
    }
}

fn installer(language: &str) -> fn(&Path, &Path) {
    match language {
        "js" => js,
        "python" => python,
        "go" => go,
        "rust" => rust,
        other => panic!("no library of {other} is installed by these tests"),
    }
}

fn programs(folder: &Path) -> Vec<Program> {
    let node = |name, script: &str| Program {
        name,
        binary: "node".into(),
        arguments: vec![folder.join("js").join(script)],
    };
    let binary = |name, path: &str| Program { name, binary: folder.join(path), arguments: vec![] };
    let mut python = binary("web3.py", "python/bin/python");
    python.arguments.push(source("python").join("session.py"));
    vec![
        node("ethers", "ethers.mjs"),
        node("viem", "viem.mjs"),
        python,
        binary("coreth's ethclient", "go/session"),
        binary("alloy", "rust/debug/alloy-session"),
    ]
}

/// All that a session is made of, and where: a changed checkout installs again, a moved one too.
fn content(folder: &Path) -> Vec<u8> {
    let mut all = folder.as_os_str().as_encoded_bytes().to_vec();
    for path in files(folder) {
        all.extend(path.as_os_str().as_encoded_bytes());
        all.extend(fs::read(&path).unwrap_or_default());
    }
    all
}

/// The files of a session, sorted, without what tools may have left there.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    paths.sort();
    let left = ["node_modules", "target", "__pycache__"].map(std::ffi::OsStr::new);
    paths.retain(|path| path.file_name().is_some_and(|name| !left.contains(&name)));
    paths
        .into_iter()
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .collect()
}

/// Node finds libraries beside a script, so the scripts are copied.
fn js(from: &Path, into: &Path) {
    for path in files(from) {
        let name = path.file_name().expect("a listed file has a name");
        fs::copy(&path, into.join(name)).expect("a file can be copied");
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--no-audit", "--no-fund"]).current_dir(into);
    run(&mut npm, "node 18 or newer with npm (Debian: nodejs npm)");
}

fn python(from: &Path, into: &Path) {
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]).arg(into);
    run(&mut venv, "python 3.11 or newer with venv (Debian: python3-venv)");
    let mut pip = Command::new(into.join("bin/pip"));
    pip.args(["install", "--quiet", "--requirement"]).arg(from.join("requirements.txt"));
    run(&mut pip, "access to a package index");
}

fn go(from: &Path, into: &Path) {
    let mut go = Command::new("go");
    go.args(["build", "-buildvcs=false", "-o"]).arg(into.join("session")).arg(".");
    go.env("GOTOOLCHAIN", "local").current_dir(from);
    run(&mut go, "Go 1.25.8 or newer and a C compiler");
}

/// A package of its own with its own lock file: alloy brings more crates than neve has.
fn rust(from: &Path, into: &Path) {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--locked", "--target-dir"]).arg(into).current_dir(from);
    run(&mut cargo, "access to crates.io");
}

fn run(command: &mut Command, needs: &str) {
    let done = command.stdin(Stdio::null()).output();
    let done =
        done.unwrap_or_else(|why| panic!("{command:?} cannot be run ({why}): needs {needs}"));
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(done.status.success(), "{command:?} failed; it needs {needs}\n{said}");
}
