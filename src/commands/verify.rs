//! `neve verify`: reads a whole store and says what is wrong with it.
//!
//! The store checks its bytes; here every record is made again from its block and receipts, with
//! the proofs of ingest, and compared; and the settlement proofs run over all heights. Findings go
//! to standard output, one a line; exit code 0: none, 1: some, 2: could not look.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use alloy_primitives::Keccak256;
use indicatif::{ProgressBar, ProgressStyle};
use neve_chain::{AdmittedKeys, CheckedHeader, Checks, Disproof, Proof, Settlement};
use neve_record::assemble::Assembled;
use neve_record::audit::audit;
use neve_record::packed::Codec;
use neve_record::parts::{FLAG_ZERO_DIFFICULTY, FULL, HASHES, HEADER, RECEIPTS, SPANS};
use neve_record::spans::SpansRef;
use neve_store::PackedCodec;
use neve_store::verify::{
    Finding, Stored, Summary, Visitor, directory, is_store, segment, total_bytes,
};
use serde_json::json;

use crate::config::VerifyArgs;
use crate::config::settings::admitted_keys;

const CLEAN: u8 = 0;
const FINDINGS: u8 = 1;
const COULD_NOT_LOOK: u8 = 2;
const WRONG_USAGE: u8 = 64;

/// Memory for receipts that wait for their settling header.
const WINDOW_BYTES_MAX: usize = 64 << 20;

/// Verifies and says so.
pub fn run(args: &VerifyArgs) -> ExitCode {
    let (path, single) = match (&args.data_dir, &args.segment) {
        (_, Some(file)) => (file, true),
        (Some(dir), None) => (dir, false),
        (None, None) => return ExitCode::from(COULD_NOT_LOOK), // clap asks for one
    };
    let admitted = match admitted_keys(&args.admit_keys) {
        Ok(admitted) => admitted,
        Err((name, why)) => {
            complain(&format!("--admit-keys {name}: {why}"));
            return ExitCode::from(WRONG_USAGE);
        }
    };
    match verify(path, single, args, admitted) {
        Ok(0) => ExitCode::from(CLEAN),
        Ok(_) => ExitCode::from(FINDINGS),
        Err(error) => {
            complain(&format!("cannot verify: {error}"));
            ExitCode::from(COULD_NOT_LOOK)
        }
    }
}

/// Writes to standard error, which may be closed.
fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "neve: {text}"); // there is nowhere else to say it
}

fn verify(
    path: &Path,
    single: bool,
    args: &VerifyArgs,
    admitted: AdmittedKeys,
) -> Result<u64, VerifyFailed> {
    if !single && !path.is_dir() {
        let what = if path.exists() { "not a directory" } else { "no such directory" };
        return Err(VerifyFailed::NoStore { path: path.to_owned(), what });
    }
    if !single && !is_store(path)? {
        let what = "no store, it has no segments";
        return Err(VerifyFailed::NoStore { path: path.to_owned(), what });
    }
    let progress = progress(total_bytes(path)?);
    let mut check = Check::new(args, admitted, progress.clone());
    let look = if single { segment } else { directory };
    let summary = look(path, &mut check)?;
    progress.finish_and_clear();
    check.conclude(&summary);
    check.unwritten.map_or(Ok(check.findings), |error| Err(VerifyFailed::Unwritten(error)))
}

/// Verifies a store that was repaired. Returns the number of findings, which go to standard output.
pub(super) fn findings(dir: &Path, admitted: AdmittedKeys) -> Result<u64, VerifyFailed> {
    let args = VerifyArgs {
        data_dir: None,
        segment: None,
        json: false,
        digest: false,
        admit_keys: Vec::new(),
        recover_senders: false,
    };
    verify(dir, false, &args, admitted)
}

/// A bar where a person can see it, and nothing where not.
fn progress(bytes: u64) -> ProgressBar {
    let template = "{bar:40} {percent}% {bytes_per_sec} {eta} left {msg}";
    let style = ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar());
    ProgressBar::new(bytes).with_style(style) // draws on standard error, if that is a terminal
}

/// Reasons for which nothing can be said of a store.
#[derive(Debug, thiserror::Error)]
pub(super) enum VerifyFailed {
    #[error(transparent)]
    Store(#[from] neve_store::Error),
    /// The data directory has no store.
    #[error("--data-dir {}: {what}; name the directory of neve serve", .path.display())]
    NoStore { path: PathBuf, what: &'static str },
    #[error("cannot write to standard output: {0}")]
    Unwritten(io::Error),
}

struct Check {
    json: bool,
    /// The first error of standard output. A closed pipe is none: that is its reader's wish.
    unwritten: Option<io::Error>,
    senders: bool,
    admitted: AdmittedKeys,
    /// Digest of the served bytes of all heights, if wanted.
    digest: Option<Keccak256>,
    progress: ProgressBar,
    findings: u64,
    /// Heights whose receipts no header here settles: at the end, and at the start.
    unproven: u64,
    window: Settlement,
    /// The height before the next one, if the last one could be read.
    last: Option<u64>,
}

impl Check {
    fn new(args: &VerifyArgs, admitted: AdmittedKeys, progress: ProgressBar) -> Self {
        Self {
            json: args.json,
            unwritten: None,
            senders: args.recover_senders,
            admitted,
            digest: args.digest.then(Keccak256::new),
            progress,
            findings: 0,
            unproven: 0,
            window: Settlement::new(WINDOW_BYTES_MAX),
            last: None,
        }
    }

    fn report(&mut self, stored: &Stored<'_>, kind: &'static str, detail: String) {
        self.finding(Finding {
            file: stored.file.to_owned(),
            height: Some(stored.height),
            offset: stored.offset,
            kind,
            detail,
        });
    }

    /// Makes the record again and compares.
    fn contents(&mut self, stored: &Stored<'_>) {
        let checks = Checks {
            chain_id: stored.identity.chain_id,
            senders: self.senders,
            admitted: self.admitted,
        };
        let (assembled, differences) = match audit(stored, &checks) {
            Ok(audited) => audited,
            Err(refusal) => {
                // A record that is not proven settles nothing, and the next has no parent to be
                // compared with.
                self.last = None;
                return self.report(stored, refusal.reason(), refusal.to_string());
            }
        };
        for (kind, detail) in differences {
            self.report(stored, kind, detail);
        }
        self.settle(stored, &assembled);
    }

    /// Proves what this header settles.
    fn settle(&mut self, stored: &Stored<'_>, assembled: &Assembled) {
        if self.last.is_none_or(|last| last + 1 != stored.height) {
            self.window = Settlement::new(WINDOW_BYTES_MAX); // a gap, which is a finding elsewhere
        }
        match self.window.settle(&CheckedHeader::of(&assembled.header)) {
            Ok(Proof::Unprovable { .. }) => self.unproven += 1,
            Ok(_) => {}
            // Parent links are the store's to report.
            Err(Disproof::Parent { .. }) => self.window = Settlement::new(WINDOW_BYTES_MAX),
            Err(disproof) => {
                self.report(stored, disproof.reason(), disproof.to_string());
                self.window =
                    Settlement::resume(&CheckedHeader::of(&assembled.header), WINDOW_BYTES_MAX);
            }
        }
        assembled.unsettled.clone().into_iter().for_each(|receipts| self.window.push(receipts));
        self.last = Some(stored.height);
    }

    fn say(&mut self, line: &str) {
        let said = self.progress.suspend(|| writeln!(io::stdout(), "{line}"));
        let failed = said.err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
        self.unwritten = self.unwritten.take().or(failed);
    }

    fn conclude(&mut self, summary: &Summary) {
        let Summary { segments, records, tables, range } = *summary;
        let unsettled = self.window.unsettled();
        let tail = if unsettled.is_empty() { 0 } else { unsettled.end() - unsettled.start() + 1 };
        let digest = self.digest.clone().map(Keccak256::finalize);
        if self.json {
            let line = json!({
                "summary": true, "digest": digest, "segments": segments, "records": records, "merged_tables": tables,
                "first": range.map(|range| range.0), "last": range.map(|range| range.1),
                "findings": self.findings, "unsettled": tail,
            });
            return self.say(&line.to_string());
        }
        let heights = range.map_or("no heights".to_owned(), |(a, z)| format!("heights {a} to {z}"));
        self.say(&format!(
            "{heights}: {records} records in {segments} segments and {tables} merged tables, \
             {tail} not settled yet, {} findings",
            self.findings
        ));
        if let Some(digest) = digest {
            self.say(&format!("digest {digest}"));
        }
    }
}

/// Adds what is served of a height. Where its segment begins and ends, and what is kept compressed
/// besides, is each store's own.
fn add(digest: &mut Keccak256, stored: &Stored<'_>) {
    digest.update(stored.height.to_le_bytes());
    digest.update(stored.hash.0);
    digest.update((stored.flags & !FLAG_ZERO_DIFFICULTY).to_le_bytes());
    for part in [HASHES, HEADER, FULL, RECEIPTS] {
        let bytes = &*with_number(stored, part);
        // With its length: bytes that moved from one part to the next would otherwise give the same
        // digest.
        digest.update((bytes.len() as u64).to_le_bytes());
        digest.update(bytes);
    }
}

/// Returns a part with the height as its `totalDifficulty`: the record may store 0 instead.
fn with_number<'s>(stored: &Stored<'s>, part: usize) -> Cow<'s, [u8]> {
    let bytes = stored.parts[part].0;
    let pieces = SpansRef(stored.parts[SPANS].0).pieces(part);
    let zero = stored.flags & FLAG_ZERO_DIFFICULTY != 0;
    let Some(pieces) = pieces.filter(|_| zero) else { return Cow::Borrowed(bytes) };
    let at = pieces.total_difficulty as usize;
    let end = at + pieces.total_difficulty_len as usize;
    let (Some(before), Some(after)) = (bytes.get(..at), bytes.get(end..)) else {
        return Cow::Borrowed(bytes);
    };
    let number = format!("\"{:#x}\"", stored.height);
    Cow::Owned([before, number.as_bytes(), after].concat())
}

impl Visitor for Check {
    fn finding(&mut self, finding: Finding) {
        self.findings += 1;
        let Finding { file, height, offset, kind, detail } = finding;
        if self.json {
            let line = json!({
                "file": file, "height": height, "offset": offset, "kind": kind, "detail": detail,
            });
            return self.say(&line.to_string());
        }
        let height = height.map_or(String::new(), |height| format!(" height {height}"));
        self.say(&format!("{file}{height} offset {offset}: {kind}: {detail}"));
    }

    fn record(&mut self, record: &Stored<'_>) {
        self.progress.set_message(format!("height {}", record.height));
        if let Some(digest) = &mut self.digest {
            add(digest, record);
        }
        self.contents(record);
    }

    fn codec(&self) -> Option<Arc<dyn PackedCodec>> {
        Some(Arc::new(Codec::default()))
    }

    fn progress(&mut self, bytes: u64) {
        self.progress.inc(bytes);
    }
}
