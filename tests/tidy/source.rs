//! Source files as text, and the text without comments, strings and tests.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Files by path below the root of the repository.
#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads all Rust files and docs/ARCHITECTURE.md.
    pub(crate) fn of_repository() -> io::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut tree = Self::default();
        for dir in ["src", "crates", "tests", "benches"] {
            tree.add(root, Path::new(dir))?;
        }
        tree.read(root, Path::new("docs/ARCHITECTURE.md"))?;
        Ok(tree)
    }

    /// A tree in memory, for tests of rules.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        Self { files: files.collect() }
    }

    fn add(&mut self, root: &Path, dir: &Path) -> io::Result<()> {
        for entry in fs::read_dir(root.join(dir))? {
            let path = dir.join(entry?.file_name());
            if root.join(&path).is_dir() {
                if !path.ends_with("target") && !path.ends_with("node_modules") {
                    self.add(root, &path)?;
                }
            } else if path.extension().is_some_and(|end| end == "rs") {
                self.read(root, &path)?;
            }
        }
        Ok(())
    }

    fn read(&mut self, root: &Path, path: &Path) -> io::Result<()> {
        let text = fs::read_to_string(root.join(path))?;
        self.files.insert(path.to_string_lossy().into_owned(), text);
        Ok(())
    }

    /// Rust files, also those of tests.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        let files = self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        files.filter(|(path, _)| !path.starts_with("docs/"))
    }

    /// Rust files below `dir`, without files of tests.
    pub(crate) fn below<'t>(&'t self, dir: &'t str) -> impl Iterator<Item = (&'t str, &'t str)> {
        self.all().filter(move |(path, _)| path.starts_with(dir) && !path.ends_with("tests.rs"))
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }
}

/// Number of the line of the byte at `at`.
pub(crate) fn line(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// `text` up to its module of tests, with spaces for comments, strings and items of tests.
pub(crate) fn code(text: &str) -> String {
    let mut code = without_text(text);
    let mut tests = code.match_indices("#[cfg(test)]\n").map(|(at, head)| (at, at + head.len()));
    let is_module = |(_, end): &(usize, usize)| {
        code[*end..].lines().next().is_some_and(|line| line.ends_with("mod tests {"))
    };
    if let Some((at, _)) = tests.find(is_module) {
        code.truncate(at);
    }
    let mut lines = Vec::new();
    let mut skip = false;
    for line in code.lines() {
        lines.push(if skip { "" } else { line });
        skip = line.trim() == "#[cfg(test)]";
    }
    lines.join("\n")
}

/// Spaces in place of comments and of literals of strings and characters.
pub(crate) fn without_text(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    while at < bytes.len() {
        let end = at + length_of_text(&bytes[at..]);
        if end == at {
            let kept = &text[at..at + width(bytes[at])];
            out.push_str(kept);
            at += kept.len();
        } else {
            out.extend(text[at..end].chars().map(|c| if c == '\n' { c } else { ' ' }));
            at = end;
        }
    }
    out
}

/// Bytes of the character that begins with `first`.
fn width(first: u8) -> usize {
    match first {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    }
}

/// Length of the comment or literal at the start of `bytes`; 0 if there is none.
fn length_of_text(bytes: &[u8]) -> usize {
    let until = |end: &[u8], from: usize| {
        let rest = bytes.get(from..).unwrap_or_default();
        let found = rest.windows(end.len()).position(|window| window == end);
        found.map_or(bytes.len(), |at| from + at + end.len())
    };
    match bytes {
        [b'/', b'/', ..] => until(b"\n", 2) - 1,
        [b'/', b'*', ..] => until(b"*/", 2),
        [b'r', b'"', ..] => until(b"\"", 2),
        [b'r', b'#', b'"', ..] => until(b"\"#", 3),
        [b'\'', b'\\', ..] => until(b"'", 3),
        [b'\'', _, b'\'', ..] => 3,
        [b'"', ..] => {
            let mut at = 1;
            while bytes.get(at).is_some_and(|byte| *byte != b'"') {
                at += if bytes[at] == b'\\' { 2 } else { 1 };
            }
            (at + 1).min(bytes.len())
        }
        _ => 0,
    }
}

#[test]
fn code_has_no_comments_strings_and_tests() {
    let text = "a // b\n\"c\\\"\" d '\"' 'e r\"f\"\n#[cfg(test)]\nuse g;\nh\n#[cfg(test)]\nmod tests {\n i\n}\n";
    let kept: String = code(text).split_whitespace().collect();
    assert_eq!(kept, "ad'e#[cfg(test)]h");
}
