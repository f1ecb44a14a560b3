//! The commands of `neve archive`, their output and their exit codes: 0 done, 1 findings, 2 could not
//! read or write, 64 wrong usage.

use std::path::Path;
use std::process::ExitCode;

use neve_archive::{Digest, Manifest, ObjectName};
use rustix::process::{getpriority_process, setpriority_process};
use serde_json::{Value, json};

use super::output::{check_place, complain, heights_text, opened, say, write_options};
use super::pull::pulled;
use super::upkeep;
use crate::archive::write::{Progress, Pushed, Writer, push};
use crate::archive::{
    ArchiveCheck, ArchiveFinding, ArchiveStore, BadFile, CheckEvent, Failed, HeldManifest, Proving,
    Verified, packed_files, verify_from,
};
use crate::commands::config::USAGE;
use crate::config::{ArchiveArgs, ArchiveCommand, ArchivePlace, ArchiveWriter};

const FINDINGS: u8 = 1;
const COULD_NOT: u8 = 2;
/// nice(1) of a push, whose hashes would take processors from a server beside it.
const PUSH_NICE: i32 = 10;

/// Runs a command. The exit code is 1 after findings, 2 if it could not read or write, and 64 if a URL has a wrong form or
/// `init` names a public network with another block 0.
pub fn run(args: &ArchiveArgs) -> ExitCode {
    let checked = check_place(place_of(&args.command));
    let checked = checked.and_then(|()| upkeep::check_genesis(&args.command));
    if let Err(why) = checked {
        complain(&why);
        return ExitCode::from(USAGE);
    }
    match run_in_runtime(&args.command) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(FINDINGS),
        Err(why) => {
            complain(&why);
            ExitCode::from(COULD_NOT)
        }
    }
}

fn run_in_runtime(command: &ArchiveCommand) -> Result<u64, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start a runtime: {error}"))?;
    let done = runtime.block_on(self::command(command));
    runtime.shutdown_background(); // a read of a stalled mount may never end
    done
}

/// Archive of a command.
fn place_of(command: &ArchiveCommand) -> &ArchivePlace {
    match command {
        ArchiveCommand::Push { place, .. }
        | ArchiveCommand::Init { place, .. }
        | ArchiveCommand::Pull { place, .. }
        | ArchiveCommand::Verify { place, .. }
        | ArchiveCommand::Gc { place, .. }
        | ArchiveCommand::Retain { place, .. }
        | ArchiveCommand::Ls { place, .. }
        | ArchiveCommand::Cost { place, .. } => place,
    }
}

/// Does it, and returns the number of findings.
async fn command(command: &ArchiveCommand) -> Result<u64, String> {
    let text = |failed: Failed| failed.to_string();
    match command {
        ArchiveCommand::Push { data_dir, writer, place } => pushed(data_dir, writer, place).await,
        ArchiveCommand::Ls { place } => {
            let held = opened(place)?.manifest().await.map_err(text)?;
            let held = held.ok_or_else(|| text(Failed::NoManifest))?;
            let lines = if place.json { listed_json(&held) } else { listed_text(&held.manifest) };
            say(lines.trim_end()).map(|()| 0)
        }
        ArchiveCommand::Verify { repair_from, prove, archive_anchor, from, place } => {
            let proving = prove.then(|| Proving::new(*archive_anchor));
            verified(place, repair_from.as_deref(), (proving, *from)).await
        }
        ArchiveCommand::Pull { data_dir, archive_anchor, from, place } => {
            pulled(data_dir, *archive_anchor, *from, place).await
        }
        ArchiveCommand::Init { .. }
        | ArchiveCommand::Gc { .. }
        | ArchiveCommand::Retain { .. }
        | ArchiveCommand::Cost { .. } => upkeep::command(command).await.map(|()| 0),
    }
}

/// Pushes. Returns the number of packed files that the archive lacks afterwards: set aside, or behind a gap.
async fn pushed(dir: &Path, writer: &ArchiveWriter, place: &ArchivePlace) -> Result<u64, String> {
    let text = |failed: Failed| failed.to_string();
    lower_priority();
    let (archive, options) = (opened(place)?, write_options(writer, place, Some(dir))?);
    let writer = Writer::begin(&archive, &options).await.map_err(text)?;
    let progress = |event: Progress<'_>| match event {
        Progress::Added(pushed) => complain(&added_text(pushed)),
        Progress::SetAside(BadFile { path, why }) => {
            complain(&format!("{}: set aside: {why}", path.display()));
        }
    };
    let pushed = push(&writer, dir, progress).await.map_err(text)?;
    let key = writer.key();
    say(&if place.json {
        let mut line = pushed_json(&pushed);
        line["key"] = key.into();
        line.to_string()
    } else {
        pushed_text(&pushed) + &key.map_or(String::new(), |key| format!(", signed {key}"))
    })?;
    Ok(pushed.bad + pushed.apart)
}

/// Gives this thread, and those that it starts from now on, the priority of a push.
fn lower_priority() {
    // A push at the usual one is a push, too. The call sets a value: it would make the push of `nice -n 19` quicker.
    if getpriority_process(None).is_ok_and(|nice| nice < PUSH_NICE) {
        let _ = setpriority_process(None, PUSH_NICE);
    }
}

async fn verified(
    place: &ArchivePlace,
    dir: Option<&Path>,
    (proving, from): (Option<Proving>, u64),
) -> Result<u64, String> {
    let archive = opened(place)?;
    let text = |failed: Failed| failed.to_string();
    let local = dir.map(packed_files).transpose().map_err(text)?;
    for BadFile { path, why } in local.iter().flat_map(|local| &local.bad) {
        complain(&format!("{}: not used: {why}", path.display()));
    }
    let local = local.map(|local| local.files);
    let check = ArchiveCheck { local: local.as_deref(), proving, from };
    let verified = checked(&archive, check, place).await?;
    let line =
        if place.json { verified_json(&verified).to_string() } else { verified_text(&verified) };
    say(&line).map(|()| verified.findings)
}

/// Reads the archive, and says each finding.
async fn checked(
    archive: &ArchiveStore,
    check: ArchiveCheck<'_>,
    place: &ArchivePlace,
) -> Result<Verified, String> {
    let mut unwritten = Ok(());
    let tell = |event: CheckEvent<'_>| match event {
        CheckEvent::Found(finding) if unwritten.is_ok() => {
            unwritten = say(&finding_line(&finding, place.json));
        }
        CheckEvent::Found(_) => {}
        CheckEvent::Read(done) => complain(&progress_text(done)),
    };
    let verified = verify_from(archive, check, tell).await.map_err(|failed| failed.to_string())?;
    // After the work: a closed pipe must not leave a repair half done.
    unwritten.map(|()| verified)
}

/// Says what was read, and how a check that is cut off goes on.
fn progress_text(done: &Verified) -> String {
    let Verified { segments, spans, bytes, findings, heights, .. } = *done;
    let next = heights.map_or(0, |(_, last)| last + 1);
    format!(
        "{}: {segments} segments and {spans} spans of {bytes} bytes read, {findings} findings; to go on here: \
         --from {next}",
        heights_text(heights)
    )
}

fn finding_line(finding: &ArchiveFinding, as_json: bool) -> String {
    let ArchiveFinding { object, kind, detail, repaired } = finding;
    if as_json {
        json!({ "object": object, "kind": kind, "detail": detail, "repaired": repaired })
            .to_string()
    } else {
        format!("{object}: {kind}: {detail}{}", if *repaired { "; put again" } else { "" })
    }
}

/// Says how far a push is. The last line of the output is the result, so this one is another.
fn added_text(pushed: &Pushed) -> String {
    let Pushed { segments, bytes, heights, sequence, .. } = *pushed;
    let heights = heights_text(heights);
    format!("{heights}: {segments} segments of {bytes} bytes so far, manifest {sequence}")
}

fn pushed_text(pushed: &Pushed) -> String {
    let Pushed { segments, bytes, present, apart, below, evicted, bad, heights, sequence, .. } =
        *pushed;
    let heights = heights_text(heights);
    format!(
        "{heights}: {segments} segments of {bytes} bytes pushed, {present} were there, {apart} left \
         behind a gap, {below} below the retained heights, {evicted} evicted meanwhile, {bad} set aside, \
         manifest {sequence}"
    )
}

fn pushed_json(pushed: &Pushed) -> Value {
    let Pushed { segments, bytes, present, apart, below, evicted, bad, heights, sequence, .. } =
        *pushed;
    json!({
        "summary": true,
        "first": heights.map(|heights| heights.0), "last": heights.map(|heights| heights.1),
        "pushed": segments, "bytes": bytes, "present": present, "apart": apart, "below": below,
        "evicted": evicted, "bad": bad, "sequence": sequence,
    })
}

/// Digest of a manifest as `--archive-trust` and `--sign-existing` take it.
fn named(manifest: Digest) -> String {
    format!("sha256:{manifest}")
}

fn verified_text(verified: &Verified) -> String {
    let Verified { segments, spans, bytes, findings, repaired, dropped, heights, .. } = *verified;
    let (heights, sequence) = (heights_text(heights), verified.sequence);
    let manifest = verified.manifest.map(named).unwrap_or_default();
    let proven = if verified.is_proof {
        format!(", {} proven", heights_text(verified.proven))
    } else {
        String::new()
    };
    format!(
        "{heights}: {segments} segments and {spans} spans of {bytes} bytes{proven}, {repaired} put again, \
         {dropped} dropped meanwhile, {findings} findings, manifest {sequence}, {manifest}"
    )
}

fn verified_json(verified: &Verified) -> Value {
    let Verified { segments, spans, bytes, findings, repaired, dropped, heights, .. } = *verified;
    json!({
        "summary": true, "segments": segments, "spans": spans, "bytes": bytes, "findings": findings,
        "repaired": repaired, "dropped": dropped, "manifest": verified.manifest.map(named),
        "sequence": verified.sequence,
        "proven": verified.proven.map(|(first, last)| json!({ "first": first, "last": last })),
        "first": heights.map(|heights| heights.0), "last": heights.map(|heights| heights.1),
    })
}

fn listed_text(manifest: &Manifest) -> String {
    let line = |(name, bytes): (ObjectName, u64)| format!("{} {bytes} {name}\n", name.first);
    let lines: String = manifest.objects().map(line).collect();
    let heights = heights_text(manifest.heights());
    let Manifest { chain_id, range, sequence, .. } = *manifest;
    format!("{lines}{heights} of chain {chain_id}, ranges of {range}, manifest {sequence}")
}

/// A line for each object, and one for the manifest.
fn listed_json(held: &HeldManifest) -> String {
    let manifest = &held.manifest;
    let line = |(name, bytes): (ObjectName, u64)| {
        json!({ "first": name.first, "bytes": bytes, "object": name.to_string() }).to_string()
            + "\n"
    };
    let heights = manifest.heights();
    let summary = json!({
        "summary": true, "chain_id": manifest.chain_id, "range": manifest.range,
        "sequence": manifest.sequence, "manifest": named(held.digest), "segments": manifest.segments.len(),
        "spans": manifest.spans.len(), "first": heights.map(|heights| heights.0),
        "last": heights.map(|heights| heights.1),
    });
    manifest.objects().map(line).collect::<String>() + &summary.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_says_plainly_if_no_height_is_proven() {
        let checked = Verified { heights: Some((0, 7)), ..Verified::default() };
        assert!(!verified_text(&checked).contains("proven"), "{}", verified_text(&checked));
        let proof = Verified { is_proof: true, ..checked };
        assert!(verified_text(&proof).contains(" bytes, no heights proven, "));
        let proven = Verified { proven: Some((0, 5)), ..proof };
        assert!(verified_text(&proven).contains(" bytes, heights 0 to 5 proven, "));
        assert_eq!(verified_json(&proof)["proven"], Value::Null);
    }
}
