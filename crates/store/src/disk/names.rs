//! Names of the files in a store's directory.

use std::io;
use std::path::Path;

use crate::error::Error;
use crate::reads;

const SEGMENT_SUFFIX: &str = ".seg";
const PACKED_SUFFIX: &str = ".pack";
/// Ending of files that are renamed when complete; `open` removes leftovers.
pub(crate) const UNFINISHED: &str = ".new";
/// Ending of parts of a segment that is split. A repair of that segment may write an unfinished file meanwhile.
pub(crate) const SPLIT: &str = ".split.new";
/// Ending of a segment that is cut, or written anew because its file is gone. A repair of it may write an unfinished file
/// meanwhile.
pub(crate) const CUT: &str = ".cut.new";
/// Ending of a copy that takes the place of a segment that is set aside. Without that segment it is not removed.
pub(crate) const COPY: &str = ".copy.new";
const TABLE_SUFFIX: &str = ".idx";
const QUARANTINE_MARK: &str = ".quarantined-";
/// The file whose lock the writer holds. It stays empty.
pub(crate) const LOCK_NAME: &str = "lock";
/// The file that names the chain.
pub(crate) const STAMP_NAME: &str = "stamp";

/// The file name of the segment whose first slot is for `base_height`.
pub(crate) fn segment_name(base_height: u64) -> String {
    format!("{base_height:020}{SEGMENT_SUFFIX}")
}

/// The file name of the packed file whose first height is `base_height`.
pub(crate) fn packed_name(base_height: u64) -> String {
    format!("{base_height:020}{PACKED_SUFFIX}")
}

/// The first height in a packed file's name; `None` if it is no such name.
pub(crate) fn parse_packed_name(name: &str) -> Option<u64> {
    parse_base(name.strip_suffix(PACKED_SUFFIX)?)
}

/// The base height in a segment's file name; `None` if it is no such name.
pub(crate) fn parse_segment_name(name: &str) -> Option<u64> {
    parse_base(name.strip_suffix(SEGMENT_SUFFIX)?)
}

fn parse_base(digits: &str) -> Option<u64> {
    // 20 digits can exceed 64 bits: then parsing fails, and the name is none of ours.
    let well_formed = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if well_formed { digits.parse().ok() } else { None }
}

/// The file name of the table for heights `first..=last`.
pub(crate) fn table_name(first: u64, last: u64) -> String {
    format!("{first:020}-{last:020}{TABLE_SUFFIX}")
}

/// The heights in a merged table's file name; `None` if it is no such name.
pub(crate) fn parse_table_name(name: &str) -> Option<(u64, u64)> {
    let (first, last) = name.strip_suffix(TABLE_SUFFIX)?.split_once('-')?;
    let heights = (first.parse().ok()?, last.parse().ok()?);
    // One spelling: numbers parse with fewer digits and with a sign, too.
    (table_name(heights.0, heights.1) == name).then_some(heights)
}

/// The file name under which file `name` is set aside for the `number`th time.
pub(crate) fn quarantined_name(name: &str, number: u32) -> String {
    format!("{name}{QUARANTINE_MARK}{number}")
}

/// Base height and number in such a name; `None` if it is another name.
pub(crate) fn parse_quarantined_name(name: &str) -> Option<(u64, u32)> {
    let (file, number) = name.split_once(QUARANTINE_MARK)?;
    let base = parse_segment_name(file).or_else(|| parse_packed_name(file))?;
    let number = number.parse().ok()?;
    (quarantined_name(file, number) == name).then_some((base, number))
}

/// The name that an unfinished file is to have; `None` if the name is none of such a file.
pub(crate) fn parse_unfinished_name(name: &str) -> Option<&str> {
    let of_segment =
        |ending| name.strip_suffix(ending).filter(|name| parse_segment_name(name).is_some());
    let other = [SPLIT, CUT, COPY].into_iter().find_map(of_segment);
    // Files of other programs may end in `.new`, and must not be removed.
    let whole = || {
        name.strip_suffix(UNFINISHED).filter(|name| {
            parse_segment_name(name).is_some()
                || parse_packed_name(name).is_some()
                || parse_table_name(name).is_some()
                || *name == STAMP_NAME
        })
    };
    other.or_else(whole)
}

/// The name of the segment that a file is a copy of; `None` if the name is none of a copy.
pub(crate) fn parse_copy_name(name: &str) -> Option<&str> {
    name.strip_suffix(COPY).filter(|name| parse_segment_name(name).is_some())
}

/// The file names in `dir`, sorted, so that segments come in height order.
pub(crate) fn list(dir: &Path) -> Result<Vec<String>, Error> {
    let listed = reads::again(reads::is_disk_failure, || {
        let entries = reads::entries(dir)?.map(|entry| Ok(entry?.file_name()));
        entries.collect::<io::Result<Vec<_>>>()
    });
    let listed = listed.map_err(|error| Error::read(dir, error))?;
    // The store makes ASCII names only: what is no UTF-8 is a file of another program.
    let mut names: Vec<_> = listed.into_iter().filter_map(|name| name.into_string().ok()).collect();
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_names_round_trip_and_others_are_refused() {
        assert_eq!(segment_name(7), "00000000000000000007.seg");
        assert_eq!(parse_segment_name(&segment_name(u64::MAX)), Some(u64::MAX));
        for bad in [
            "7.seg",
            "0000000000000000000+.seg",
            "00000000000000000007.idx",
            ".seg",
            "",
            "99999999999999999999.seg",
            "00000000000000000007.seg.new",
        ] {
            assert_eq!(parse_segment_name(bad), None, "{bad}");
        }
    }

    #[test]
    fn table_names_round_trip_and_others_are_refused() {
        assert_eq!(parse_table_name(&table_name(1, 2)), Some((1, 2)));
        for bad in ["1-2.idx", "-.idx", "x.idx", "00000000000000000001-00000000000000000002.seg"] {
            assert_eq!(parse_table_name(bad), None, "{bad}");
        }
    }

    #[test]
    fn unfinished_names_are_those_of_our_files() {
        for name in [&segment_name(7), &packed_name(7), &table_name(1, 2), STAMP_NAME] {
            assert_eq!(parse_unfinished_name(&format!("{name}{UNFINISHED}")), Some(name));
            assert_eq!(parse_unfinished_name(name), None);
        }
        for ending in [SPLIT, CUT, COPY] {
            let name = format!("{}{ending}", segment_name(7));
            assert_eq!(parse_unfinished_name(&name), Some(&*segment_name(7)));
            assert_eq!(parse_copy_name(&name).is_some(), ending == COPY);
        }
        for other in ["7.seg.new", "notes.new", ".new", "stamp.split.new", "7.cut.new"] {
            assert_eq!(parse_unfinished_name(other), None, "{other}");
        }
    }

    #[test]
    fn quarantined_names_round_trip_and_others_are_refused() {
        let name = quarantined_name(&segment_name(64), 3);
        assert_eq!(name, "00000000000000000064.seg.quarantined-3");
        assert_eq!(parse_quarantined_name(&name), Some((64, 3)));
        let packed = quarantined_name(&packed_name(64), 0);
        assert_eq!(packed, "00000000000000000064.pack.quarantined-0");
        assert_eq!(parse_quarantined_name(&packed), Some((64, 0)));
        for bad in [
            "00000000000000000064.seg",
            "00000000000000000064.seg.quarantined-",
            "00000000000000000064.seg.quarantined-03",
            "64.seg.quarantined-3",
            "x.quarantined-3",
        ] {
            assert_eq!(parse_quarantined_name(bad), None, "{bad}");
        }
    }
}
