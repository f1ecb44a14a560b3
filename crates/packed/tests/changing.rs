//! A file whose bytes change while it is open, as those of a failing disk do: each read is right or refused.

use std::borrow::Cow;
use std::io;
use std::sync::RwLock;

use neve_packed::{
    B256, LogOut, ModelCache, PackedError, PackedFile, Position, Source, TotalDifficulty, term,
};

use crate::support::{packed, recorded};

/// A file that a test changes.
struct Changing(RwLock<Vec<u8>>);

impl Changing {
    fn flip(&self, at: usize) {
        self.0.write().unwrap()[at] ^= 1 << (at % 8);
    }
}

impl Source for Changing {
    fn len(&self) -> u64 {
        self.0.read().unwrap().len() as u64
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Cow<'_, [u8]>> {
        let file = self.0.read().unwrap();
        file.read_at(offset, bytes).map(|found| Cow::Owned(found.into_owned()))
    }
}

/// Right answers about a file.
#[derive(Default)]
struct Answers {
    /// Hash, parent and texts of each height.
    heights: Vec<(B256, B256, Vec<u8>)>,
    hashes: Vec<(B256, Position)>,
    terms: Vec<(u64, Vec<u64>)>,
}

type Texts = (B256, B256, Vec<u8>);

fn texts<S: Source>(file: &PackedFile<S>, height: u64) -> Result<Texts, PackedError> {
    let read = file.height(height)?;
    let mut out = Vec::new();
    read.block(TotalDifficulty::Zero, &mut out)?;
    read.header(TotalDifficulty::Zero, &mut out)?;
    read.receipts(&mut out)?;
    Ok((read.hash(), read.parent(), out))
}

impl Answers {
    fn of(bytes: &[u8]) -> Self {
        let file = PackedFile::open(bytes).unwrap();
        let mut answers = Self::default();
        for height in file.heights() {
            let read = file.height(height).unwrap();
            answers.heights.push(texts(&file, height).unwrap());
            answers.hashes.push((read.hash(), Position { height, transaction: None }));
            for at in 0..read.counts().unwrap().0 {
                let hash = read.transaction_hash(at).unwrap().unwrap();
                let place = Position { height, transaction: Some(at as u32) };
                answers.hashes.push((hash, place));
            }
            let mut terms = Vec::new();
            let take = |address: &[u8; 20], topics: &[[u8; 32]]| {
                terms.push(term(0, address));
                terms.extend((1..).zip(topics).map(|(at, topic)| term(at, topic)));
                false
            };
            read.logs(take, &mut LogOut::default()).unwrap();
            terms.sort_unstable();
            terms.dedup();
            for term in terms {
                answers.terms.push((term, file.heights_of_term(term).unwrap()));
            }
        }
        answers
    }

    /// Compares every answer. Returns how many were refused.
    fn compare(&self, file: &PackedFile<&Changing>, about: &str) -> usize {
        let mut refused = 0;
        let first = *file.heights().start();
        for (height, right) in (first..).zip(&self.heights) {
            let hash = file.hash(height);
            assert!(hash.is_none_or(|hash| hash == right.0), "{about}: another hash");
            match texts(file, height) {
                Ok(found) => assert!(found == *right, "{about}: height {height}"),
                Err(_) => refused += 1,
            }
        }
        for (hash, place) in &self.hashes {
            match file.find(hash) {
                Ok(found) => assert_eq!(found, Some(*place), "{about}: a hash is hidden"),
                Err(_) => refused += 1,
            }
        }
        for (term, heights) in &self.terms {
            match file.heights_of_term(*term) {
                Ok(found) => assert_eq!(found, *heights, "{about}: logs are hidden"),
                Err(_) => refused += 1,
            }
        }
        refused
    }
}

#[test]
fn byte_that_changes_while_a_file_is_open_is_refused_or_not_read() {
    let texts = &recorded("v1.15.0")[202..234];
    let bytes = packed(texts, 32).bytes;
    let right = Answers::of(&bytes);
    let directory = 512..512 + 40 * texts.len();
    let sections: [usize; 3] = [3, 4, 5].map(|section: usize| {
        let at = 112 + 24 * section + 8;
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
    });
    // Tables that stay in memory, and tables that each read of a height reads.
    for tables_bytes in [usize::MAX, 0] {
        let file = Changing(RwLock::new(bytes.clone()));
        let opened = PackedFile::open_in(&file, &ModelCache::new(tables_bytes)).unwrap();
        assert_eq!(right.compare(&opened, "whole"), 0);
        let mut refused = 0;
        let indexes = (sections[0]..sections[2]).step_by(43);
        let rest = (directory.end..bytes.len()).step_by(301);
        for at in directory.clone().step_by(3).chain(indexes).chain(rest) {
            file.flip(at);
            refused += right.compare(&opened, &format!("byte {at}"));
            file.flip(at);
        }
        assert!(refused > 1000, "{refused}");
        assert_eq!(right.compare(&opened, "whole again"), 0);
    }
}
