//! Disk and file system of the store.

use std::fs::{self, File};
use std::io::{self, IoSliceMut, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use neve_record::packed::Codec;
use neve_store::verify::{Tier, inventory};
use neve_store::{Error, Identity, Stamp};
use rustix::fs::{Access, access};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::plan::{KeptHeights, retained};
use super::report::Finding;
use crate::config::Human;
use crate::config::settings::{Config, UpstreamConfig};

/// Directory of pages of an archive, in that of the store.
const PAGES: &str = "archive";

pub(super) fn check(config: &Config) -> Vec<Finding> {
    let dir = match &config.data_dir {
        Some(dir) => existing(dir),
        // Without a directory neve makes a temporary one there.
        None => std::env::temp_dir(),
    };
    let file = match probe_file(&dir) {
        Ok(file) => file,
        Err(error) => return vec![unwritable(config, &dir, &error)],
    };
    let store = config.data_dir.as_deref().filter(|dir| dir.is_dir());
    let other_chain = store.and_then(|store| other_chain(config, store));
    let usable = match store.and_then(unusable) {
        Some(why) => of_others(config, &why),
        None => space(config, &dir),
    };
    other_chain.into_iter().chain([usable, nowait(&dir, &file)]).collect()
}

/// Finds a store of another chain than --network names, in the words of the error of `neve serve`.
fn other_chain(config: &Config, dir: &Path) -> Option<Finding> {
    let UpstreamConfig::Upstream { network, .. } = &config.source else { return None };
    let (expected, found) = ((*network)?.identity(), identity(dir)?);
    let wrong = Error::WrongChain { path: dir.to_owned(), found, expected }.to_string();
    let (text, advice) = wrong.rsplit_once("; ")?;
    (found != expected).then(|| Finding::problem("data-dir", text, advice))
}

/// Returns the chain of a store that is there.
pub(super) fn identity(dir: &Path) -> Option<Identity> {
    Some(Stamp::parse(&fs::read(dir.join("stamp")).ok()?).ok()?.identity)
}

/// The directory, or the nearest path above it that is there: neve creates what is missing.
fn existing(dir: &Path) -> PathBuf {
    // A file in its place is found, too, and nothing can be written below it.
    let found = dir.ancestors().find(|dir| dir.symlink_metadata().is_ok());
    found.map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Reason why neve cannot use a file of the store: another user may have made it, by `neve import` for example.
fn unusable(dir: &Path) -> Option<String> {
    let files = match inventory(dir, &Codec::default()) {
        Ok(files) => files,
        Err(error) => return Some(error.to_string()),
    };
    let active = files.iter().filter(|file| file.tier == Tier::Active).map(|file| &*file.name);
    let mut written = active.chain(["lock"]).map(|name| dir.join(name));
    written.find_map(|path| match access(&path, Access::WRITE_OK) {
        // neve makes a file that is missing.
        Err(error) if error != Errno::NOENT => Some(format!("{}: {error}", path.display())),
        _ => None,
    })
}

fn of_others(config: &Config, why: &str) -> Finding {
    let text = format!("{}: cannot use {why}", config.values.named("data-dir"));
    Finding::problem("data-dir", text, "let neve's user own all files there: see chown")
}

/// A file without a name, with some bytes.
fn probe_file(dir: &Path) -> io::Result<File> {
    let mut file = tempfile::tempfile_in(dir)?;
    file.write_all(b"neve")?;
    Ok(file)
}

fn unwritable(config: &Config, dir: &Path, error: &io::Error) -> Finding {
    let named = config.values.named("data-dir");
    let text = format!("{named}: cannot write to {}: {error}", dir.display());
    Finding::problem("data-dir", text, "let neve's user write there, or name another directory")
}

/// Compares free and used bytes with the bounds of the disk.
fn space(config: &Config, dir: &Path) -> Finding {
    let free = match neve_store::disk::free_bytes(dir) {
        Ok(free) => free,
        Err(error) => {
            let text = format!("cannot tell the free bytes of {}: {error}", dir.display());
            let advice = format!("compare df with {}", retaining(config));
            return Finding::warning("data-dir", text, advice);
        }
    };
    let used = config.data_dir.as_deref().map_or(0, used);
    let given = config.data_dir.as_deref().filter(|given| !given.exists());
    let shown = match given {
        Some(given) => format!("{} will be made", given.display()),
        None => dir.display().to_string(),
    };
    let text = format!("{shown}: {} used of {}, {} free", Human(used), bound(config), Human(free));
    let pages = config.archive.as_ref().and(config.data_dir.as_deref());
    let pages = pages.map_or(0, |dir| self::used(&dir.join(PAGES)));
    judged(config, text, free, used.saturating_add(pages))
}

/// Bound of the store's bytes, or an estimate of it.
fn bound(config: &Config) -> String {
    match retained(config) {
        Some(KeptHeights { bytes, blocks: None, .. }) => Human(bytes).to_string(),
        Some(KeptHeights { bytes, setting, .. }) => {
            format!("about {} of mainnet by {setting}", Human(bytes))
        }
        None => "no bound in bytes".to_owned(),
    }
}

/// Setting that bounds the store.
fn retaining(config: &Config) -> &'static str {
    retained(config).map_or("--retain-bytes", |kept| kept.setting)
}

fn judged(config: &Config, text: String, free: u64, used: u64) -> Finding {
    let reserve = config.store.disk_reserve_bytes;
    if free < reserve {
        let text = format!("{text}; less than --disk-reserve-bytes, {}", Human(reserve));
        let advice = format!("free some space or lower {}", retaining(config));
        return Finding::problem("data-dir", text, advice);
    }
    let bounds = bounds(config);
    let wanted = bounds.iter().fold(0_u64, |sum, (bytes, _)| sum.saturating_add(*bytes));
    let short = wanted.saturating_sub(used.saturating_add(free - reserve));
    if short > 0 {
        let names: Vec<_> = bounds.iter().map(|(_, name)| *name).collect();
        let text = format!("{text}; {} short of {}", Human(short), names.join(" + "));
        let advice = format!("free some space or lower {}", names.join(" or "));
        return Finding::warning("data-dir", text, advice);
    }
    Finding::ok("data-dir", text)
}

/// Bytes that neve may take on disk, and the setting that bounds them.
fn bounds(config: &Config) -> Vec<(u64, &'static str)> {
    let archive = config.archive.as_ref();
    let push = archive.and_then(|archive| archive.push.as_ref());
    // neve uses at most a segment more than the bound.
    let retained = retained(config).map(|kept| kept.bytes + config.store.segment_bytes);
    let bounds = [
        (retained, retaining(config)),
        (push.map(|push| push.unpushed_bytes_max), "--retain-unpushed-bytes"),
        (archive.map(|archive| archive.cache_bytes), "--archive-cache-bytes"),
    ];
    bounds.into_iter().filter_map(|(bytes, name)| Some((bytes?, name))).collect()
}

/// Bytes that the files of a directory take.
fn used(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| entry.metadata().ok()).filter(fs::Metadata::is_file);
    // stat(2) counts units of 512 bytes on any file system.
    files.map(|file| file.blocks() * 512).sum()
}

/// Tells whether the file system has reads that do not wait for the disk: decision 0021.
fn nowait(dir: &Path, file: &File) -> Finding {
    let mut bytes = [0; 4];
    match preadv2(file, &mut [IoSliceMut::new(&mut bytes)], 0, ReadWriteFlags::NOWAIT) {
        // The kernel took the flag: that no byte was at hand is another matter.
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {
            Finding::ok("file-system", "has reads without waiting (RWF_NOWAIT)")
        }
        Err(error) => {
            let text = format!("{}: no reads without waiting: {error}", dir.display());
            let advice = "while memory is short, requests may wait for the disk; use ext4, XFS or \
                          btrfs";
            Finding::warning("file-system", text, advice)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Level;
    use super::*;

    fn config(dir: &Path, flags: &[&str]) -> Config {
        let dir = dir.display().to_string();
        let fixed = ["--config", "none", "--upstream", "http://127.0.0.1:1", "--data-dir", &dir];
        Config::from_flags(&[&fixed, flags].concat()).unwrap().0
    }

    #[test]
    fn bound_that_the_disk_cannot_hold_is_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let config =
            config(dir.path(), &["--retain-bytes", "10GiB", "--disk-reserve-bytes", "1GiB"]);
        let level = |free, used| judged(&config, String::new(), free, used).level;
        let segment = config.store.segment_bytes;
        assert_eq!(level((11 << 30) + segment, 0), Level::Ok);
        assert_eq!(level((11 << 30) + segment - 1, 0), Level::Warning);
        assert_eq!(level((1 << 30) + segment, 10 << 30), Level::Ok);
        assert_eq!(level((1 << 30) - 1, 10 << 30), Level::Problem);
    }

    /// `neve doctor --plan` says 4.23 GiB for seven days, 128 MiB for a segment, and 1 GiB reserved.
    #[test]
    fn age_or_number_of_blocks_alone_wants_the_disk_of_the_plan() {
        let dir = tempfile::tempdir().unwrap();
        for (setting, value) in [("--retain-age", "7d"), ("--retain-blocks", "525000")] {
            let config = config(dir.path(), &[setting, value]);
            let found = |free| judged(&config, bound(&config), free, 0);
            assert_eq!(found(6 << 30).level, Level::Ok, "{}", found(6 << 30));
            let short = found(5 << 30).to_string();
            let advice = format!(" short of {setting}; free some space or lower {setting}");
            assert!(short.contains(&advice), "{short}");
            assert!(
                short.contains(&format!("about 4.23 GiB of mainnet by {setting}; ")),
                "{short}"
            );
            assert_eq!(found(1).level, Level::Problem);
            assert!(!found(1).to_string().contains("--retain-bytes"), "{}", found(1));
        }
        let both = config(dir.path(), &["--retain-age", "7d", "--retain-blocks", "75000"]);
        assert_eq!(retaining(&both), "--retain-blocks");
        let stricter = config(dir.path(), &["--retain-age", "1d", "--retain-blocks", "525000"]);
        assert_eq!(retaining(&stricter), "--retain-age");
        let free = config(dir.path(), &["--retain-bytes", "none"]);
        assert_eq!(judged(&free, String::new(), 2 << 30, 0).level, Level::Ok);
    }

    #[test]
    fn bounds_of_the_archive_are_wanted_on_the_disk_too() {
        let dir = tempfile::tempdir().unwrap();
        let flags = ["--retain-bytes", "10GiB", "--disk-reserve-bytes", "1GiB"];
        let pages = ["--archive", "file:///archive", "--archive-cache-bytes", "500GiB"];
        let config_of = |more: &[&str]| config(dir.path(), &[&flags[..], &pages, more].concat());
        let with_pages = config_of(&[]);
        let segment = with_pages.store.segment_bytes;
        let found = judged(&with_pages, String::new(), (511 << 30) + segment, 0);
        assert_eq!(found.level, Level::Ok, "{found}");
        let found = judged(&with_pages, String::new(), 54 << 30, 0);
        let names = " short of --retain-bytes + --archive-cache-bytes; free some space or lower";
        assert!(found.level == Level::Warning && found.to_string().contains(names), "{found}");
        let pushing = config_of(&["--archive-push", "--retain-unpushed-bytes", "2GiB"]);
        let found = judged(&pushing, String::new(), (513 << 30) + segment - 1, 0);
        assert!(
            found.text.ends_with(
                "1 B short of --retain-bytes + --retain-unpushed-bytes + --archive-cache-bytes"
            ),
            "{found}"
        );
        fs::create_dir(dir.path().join(PAGES)).unwrap();
        fs::write(dir.path().join(PAGES).join("page"), vec![1; 100_000]).unwrap();
        assert!(used(&dir.path().join(PAGES)) >= 100_000);
    }

    #[test]
    fn missing_directory_is_looked_for_above() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        assert_eq!(existing(&inner), dir.path());
        let findings =
            check(&config(&inner, &["--retain-bytes", "10MiB", "--disk-reserve-bytes", "1MiB"]));
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(!inner.exists());
        let nowhere = check(&config(Path::new("/proc/neve"), &[]));
        assert!(nowhere[0].text.contains("cannot write to /proc"), "{nowhere:?}");
        assert_eq!(nowhere[0].level, Level::Problem);
    }

    #[test]
    fn file_in_the_place_of_the_directory_is_a_problem() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "no directory").unwrap();
        for path in [file.clone(), file.join("store")] {
            let findings = check(&config(&path, &[]));
            assert_eq!(findings[0].level, Level::Problem, "{findings:?}");
            assert!(findings[0].text.contains("Not a directory"), "{findings:?}");
        }
    }

    /// Permissions do not hold for root, who may run the tests: even root cannot use a loop of links.
    #[test]
    fn file_of_the_store_that_cannot_be_used_is_a_problem() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("lock", dir.path().join("lock")).unwrap();
        let findings = check(&config(dir.path(), &[]));
        assert_eq!(findings[0].level, Level::Problem, "{findings:?}");
        assert!(findings[0].text.contains("cannot use ") && findings[0].text.contains("/lock: "));
    }
}
