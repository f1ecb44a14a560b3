//! `neve inspect`: the tiers of a store, from the starts of its files. Exit code 0, or 2 if there is no
//! store or it cannot be read.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use neve_record::packed::Codec;
use neve_store::verify::{StoredFile, Tier, inventory, is_store};
use serde_json::{Value, json};

use super::config::written;
use crate::config::InspectArgs;

const COULD_NOT_LOOK: u8 = 2;

/// Shows the tiers.
pub fn run(args: &InspectArgs) -> ExitCode {
    match look(&args.data_dir) {
        Ok(files) if args.json => written(writeln!(io::stdout(), "{}", as_json(&files))),
        Ok(files) => written(io::stdout().write_all(as_text(&files, args.files).as_bytes())),
        Err(why) => {
            // There is nowhere else to say it.
            let _ = writeln!(io::stderr(), "neve: cannot inspect: {why}");
            ExitCode::from(COULD_NOT_LOOK)
        }
    }
}

fn look(dir: &Path) -> Result<Vec<StoredFile>, String> {
    let no_store = |what: &str| {
        format!("--data-dir {}: {what}; name the directory of neve serve", dir.display())
    };
    if !dir.is_dir() {
        return Err(no_store(if dir.exists() { "not a directory" } else { "no such directory" }));
    }
    // An empty list would look like an empty store.
    if !is_store(dir).map_err(|error| error.to_string())? {
        return Err(no_store("no store, it has no segments"));
    }
    inventory(dir, &Codec::default()).map_err(|error| error.to_string())
}

/// Sums over files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Totals {
    files: u64,
    /// Heights in the files. Merged tables and unfinished files have none.
    heights: u64,
    /// Lowest and highest height.
    range: Option<(u64, u64)>,
    bytes: u64,
}

impl Totals {
    fn of<'f>(files: impl Iterator<Item = &'f StoredFile>) -> Self {
        files.fold(Self::default(), Self::with)
    }

    fn with(self, file: &StoredFile) -> Self {
        let heights = file.heights.filter(|_| holds_heights(file.tier));
        let range = match (self.range, heights) {
            (Some(before), Some(new)) => Some((before.0.min(new.0), before.1.max(new.1))),
            (before, new) => before.or(new),
        };
        Self {
            files: self.files + 1,
            heights: self.heights + heights.map_or(0, |(first, last)| last - first + 1),
            range,
            bytes: self.bytes + file.bytes,
        }
    }

    fn bytes_a_height(&self) -> Option<u64> {
        self.bytes.checked_div(self.heights)
    }

    fn json(&self) -> Value {
        json!({
            "files": self.files, "heights": self.heights,
            "first": self.range.map(|range| range.0), "last": self.range.map(|range| range.1),
            "bytes": self.bytes, "bytes_a_height": self.bytes_a_height(),
        })
    }

    fn cells(&self, name: &str) -> [String; 6] {
        let range = self.range.map_or("-".to_owned(), |(first, last)| format!("{first} to {last}"));
        let each = self.bytes_a_height().map_or("-".to_owned(), |bytes| bytes.to_string());
        let [files, heights, bytes] = [self.files, self.heights, self.bytes].map(|n| n.to_string());
        [name.to_owned(), files, heights, range, bytes, each]
    }
}

fn holds_heights(tier: Tier) -> bool {
    matches!(tier, Tier::Active | Tier::Sealed | Tier::Packed | Tier::Quarantined)
}

/// Sums over the files of the heights that clients can get: those without a gap up to the head.
fn served(files: &[StoredFile]) -> Totals {
    let is_served = |tier| matches!(tier, Tier::Active | Tier::Sealed | Tier::Packed);
    let mut run: Vec<_> = files.iter().filter(|file| is_served(file.tier)).collect();
    run.sort_by_key(|file| std::cmp::Reverse(file.heights.map(|(_, last)| last)));
    let mut first = None;
    // A file without heights, such as the next segment, stands at the head.
    run.retain(|file| {
        let Some((from, last)) = file.heights else { return true };
        let joins = first.is_none_or(|first| last + 1 >= first);
        if joins {
            first = Some(first.map_or(from, |first: u64| first.min(from)));
        }
        joins
    });
    let reaches = |file: &&StoredFile| file.heights.is_none_or(|(_, last)| Some(last) >= first);
    let tables = files.iter().filter(|file| file.tier == Tier::Tables).filter(reaches);
    Totals::of(run.into_iter().chain(tables))
}

/// Tiers with at least a file, and their totals.
fn tiers(files: &[StoredFile]) -> Vec<(Tier, Totals)> {
    let of = |tier: Tier| (tier, Totals::of(files.iter().filter(|file| file.tier == tier)));
    let all = Tier::ALL.into_iter().map(of);
    all.filter(|(_, totals)| totals.files > 0).collect()
}

fn as_json(files: &[StoredFile]) -> Value {
    let file = |file: &StoredFile| {
        json!({
            "file": file.name, "tier": file.tier.name(), "bytes": file.bytes,
            "first": file.heights.map(|range| range.0), "last": file.heights.map(|range| range.1),
        })
    };
    let tiers =
        tiers(files).into_iter().map(|(tier, totals)| (tier.name().to_owned(), totals.json()));
    json!({
        "tiers": tiers.collect::<serde_json::Map<_, _>>(),
        "served": served(files).json(),
        "files": files.iter().map(file).collect::<Vec<_>>(),
    })
}

fn as_text(files: &[StoredFile], each: bool) -> String {
    let head = ["tier", "files", "heights", "range", "bytes", "bytes a height"].map(str::to_owned);
    let mut rows = vec![head];
    rows.extend(tiers(files).iter().map(|(tier, totals)| totals.cells(tier.name())));
    rows.push(served(files).cells("served"));
    let mut text = aligned(&rows);
    if each {
        let name = |file: &StoredFile| format!("{} {}", file.tier.name(), file.name);
        let row = |file: &StoredFile| Totals::default().with(file).cells(&name(file));
        text.push('\n');
        text.push_str(&aligned(&files.iter().map(row).collect::<Vec<_>>()));
    }
    text
}

/// Rows in columns: the first to the left, the others to the right.
fn aligned(rows: &[[String; 6]]) -> String {
    let width = |at: usize| rows.iter().map(|row| row[at].len()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(widths).enumerate().map(|(at, (cell, width))| match at {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ") + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(tier: Tier, heights: Option<(u64, u64)>, bytes: u64) -> StoredFile {
        StoredFile { name: format!("{}-{bytes}", tier.name()), tier, heights, bytes }
    }

    fn files() -> Vec<StoredFile> {
        vec![
            file(Tier::Packed, Some((0, 31)), 640),
            file(Tier::Packed, Some((32, 63)), 320),
            file(Tier::Sealed, Some((64, 95)), 3200),
            file(Tier::Active, None, 100),
            file(Tier::Tables, Some((0, 63)), 50),
            file(Tier::Quarantined, Some((0, 9)), 1000),
            file(Tier::Unfinished, None, 7),
        ]
    }

    #[test]
    fn tiers_have_their_sums_and_served_files_theirs() {
        let found = as_json(&files());
        let packed = json!({
            "files": 2, "heights": 64, "first": 0, "last": 63, "bytes": 960, "bytes_a_height": 15,
        });
        assert_eq!(found["tiers"]["packed"], packed);
        assert_eq!(found["tiers"]["active"]["bytes_a_height"], Value::Null);
        assert_eq!(found["tiers"]["tables"]["heights"], 0);
        assert_eq!(found["tiers"]["unreadable"], Value::Null, "there is none");
        assert_eq!(
            (&found["served"]["heights"], &found["served"]["bytes"]),
            (&96.into(), &4310.into())
        );
        assert_eq!(found["files"].as_array().map(Vec::len), Some(7));
    }

    #[test]
    fn heights_below_a_gap_are_not_served() {
        let mut files = files();
        files.remove(1);
        files.push(file(Tier::Tables, Some((64, 95)), 7));
        let served = &as_json(&files)["served"];
        let found = ["heights", "first", "last", "files", "bytes"].map(|name| served[name].clone());
        assert_eq!(found, [32, 64, 95, 3, 3307].map(Value::from));
    }

    #[test]
    fn text_has_a_line_for_each_tier_and_each_file() {
        let text = as_text(&files(), false);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 8, "{text}");
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{text}");
        let words: Vec<_> = lines[3].split_whitespace().collect();
        assert_eq!(words, ["packed", "2", "64", "0", "to", "63", "960", "15"]);
        assert_eq!(as_text(&files(), true).lines().count(), 8 + 1 + 7);
        assert_eq!(as_text(&[], false).lines().count(), 2);
    }
}
