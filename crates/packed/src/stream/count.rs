//! Counting: which words, numbers and shapes of a range occur often enough for its tables.

use std::hash::Hash;

use crate::stream::facts::Word;
use crate::stream::fold_map::FoldMap;
use crate::stream::tables::{Predictions, Tables};
use crate::stream::walk::{LogShape, Sink, TxShape, slot};
use crate::stream::words::{LOG_TABLE, Literal, NUMBER_TABLE, TX_TABLE, table_max, word};

/// Counted values. A transaction may have a new word in every 32 bytes of calldata, so the rarest
/// are dropped when a kind has too many. Ranges of mainnet have 90,000 words, 64,000 numbers, and
/// 8,000 pairs of neighboring shapes. Each bound fills a hash table: of 2^18, 2^17 and 2^14 places
/// a table fills seven eighths before it grows.
#[derive(Debug, Clone, Copy)]
struct Most {
    words: usize,
    numbers: usize,
    shapes: usize,
}

const MOST: Most = Most { words: 7 << 15, numbers: 7 << 14, shapes: 7 << 11 };
/// Counts of blocks that are told apart when the rarest go: all that a range has.
const RARE_MAX: usize = 1024;

/// Occurrences of a value, and the number of different blocks with it.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    times: u32,
    blocks: u32,
    last_block: u32,
}

impl Seen {
    fn add(&mut self, block: u32) {
        self.times += 1;
        // Blocks come in order, so the last one tells whether this one is new.
        if self.last_block != block {
            self.last_block = block;
            self.blocks += 1;
        }
    }
}

/// Counts the fields of all chunks of a range.
#[derive(Debug)]
pub(crate) struct Counter {
    most: Most,
    block: u32,
    words: FoldMap<Word, Seen>,
    numbers: FoldMap<u128, Seen>,
    tx_shapes: FoldMap<TxShape, Seen>,
    log_shapes: FoldMap<LogShape, Seen>,
    /// Followers of a shape: of a transaction, or of a log.
    after_tx: FoldMap<(TxShape, Option<LogShape>), u32>,
    after_log: FoldMap<(LogShape, Option<LogShape>), u32>,
    last: Option<Result<LogShape, TxShape>>,
    slots: [Word; slot::COUNT],
}

impl Default for Counter {
    fn default() -> Self {
        Self::of_at_most(MOST)
    }
}

impl Counter {
    fn of_at_most(most: Most) -> Self {
        Self {
            most,
            block: 0,
            words: FoldMap::default(),
            numbers: FoldMap::default(),
            tx_shapes: FoldMap::default(),
            log_shapes: FoldMap::default(),
            after_tx: FoldMap::default(),
            after_log: FoldMap::default(),
            last: None,
            slots: [[0; 32]; slot::COUNT],
        }
    }

    /// Begins the next block.
    pub(crate) fn begin_block(&mut self) {
        self.block += 1;
    }

    /// Chooses the entries of the tables, the most frequent first.
    pub(crate) fn tables(self) -> Tables {
        let words = chosen(self.words, table_max(word::TABLE), |value, seen| {
            let bytes = Literal::of(value).bytes();
            seen.blocks > 1 && (bytes > 2 || seen.times > 16) && bytes > 0
        });
        let numbers = chosen(self.numbers, table_max(NUMBER_TABLE), |number, seen| {
            let bytes = (u128::BITS - number.leading_zeros()).div_ceil(8);
            seen.times > 2 && seen.blocks > 1 && bytes > 1
        });
        let often = |seen: &Seen| seen.times > 1 && seen.blocks > 1;
        let tx_shapes = chosen(self.tx_shapes, table_max(TX_TABLE), |_, seen| often(seen));
        let log_shapes = chosen(self.log_shapes, table_max(LOG_TABLE), |_, seen| often(seen));
        let predictions = Predictions {
            after_tx: likeliest(&tx_shapes, &log_shapes, &self.after_tx),
            after_log: likeliest(&log_shapes, &log_shapes, &self.after_log),
        };
        Tables { words, numbers, tx_shapes, log_shapes, predictions }
    }
}

/// Finds or makes the place of a value among at most `most`. The rarest half goes for a new one, or more of them if
/// they are equally rare: which ones, is a function of the values before and of no order in a map.
fn place<K: Hash + Eq, V: Default>(
    all: &mut FoldMap<K, V>,
    key: K,
    most: usize,
    times: impl Fn(&V) -> u32,
) -> &mut V {
    if all.len() >= most && !all.contains_key(&key) {
        forget_rare(all, most / 2, times);
    }
    all.entry(key).or_default()
}

fn place_seen<K: Hash + Eq>(all: &mut FoldMap<K, Seen>, key: K, most: usize) -> &mut Seen {
    place(all, key, most, |seen| seen.blocks)
}

/// Removes the values that were seen once, then those that were seen twice, and so on, until fewer than `most` are left.
fn forget_rare<K: Hash + Eq, V>(all: &mut FoldMap<K, V>, most: usize, times: impl Fn(&V) -> u32) {
    let times = |value: &V| times(value).min(RARE_MAX as u32) as usize;
    let mut counts = [0; RARE_MAX + 1];
    all.values().for_each(|value| counts[times(value)] += 1);
    let (mut left, mut rare) = (all.len(), 0);
    while left >= most && rare < RARE_MAX {
        rare += 1;
        left -= counts[rare];
    }
    all.retain(|_, value| times(value) > rare);
    // The places of removed values count as full, so without this the table would grow beyond that of `MOST`.
    all.shrink_to_fit();
}

fn chosen<T: Ord + Hash + Eq>(
    mut all: FoldMap<T, Seen>,
    max: usize,
    wanted: impl Fn(&T, &Seen) -> bool,
) -> Vec<T> {
    // First, so that the list has its length at once: with the doubles of its growth it would exceed the map.
    all.retain(|value, seen| wanted(value, seen));
    let mut all: Vec<(T, u32)> = all.into_iter().map(|(value, seen)| (value, seen.times)).collect();
    all.sort_unstable_by(|(a, a_times), (b, b_times)| b_times.cmp(a_times).then(a.cmp(b)));
    all.truncate(max);
    all.into_iter().map(|(value, _)| value).collect()
}

/// Finds the likeliest follower of each shape: 0 is the end, else 1 + the log's shape.
fn likeliest<S: Hash + Eq + Copy>(
    shapes: &[S],
    logs: &[LogShape],
    followers: &FoldMap<(S, Option<LogShape>), u32>,
) -> Vec<u32> {
    let ids: FoldMap<LogShape, u32> = logs.iter().copied().zip(1..).collect();
    let of: FoldMap<S, usize> = shapes.iter().copied().zip(0..).collect();
    let mut best = vec![(0, 0); shapes.len()];
    for ((shape, follower), times) in followers {
        let id = follower.map_or(Some(0), |follower| ids.get(&follower).copied());
        let Some((id, best)) = id.zip(of.get(shape).and_then(|at| best.get_mut(*at))) else {
            continue;
        };
        // Among equals the lowest number: maps have no order, and a file is a function of its
        // heights.
        if *times > best.0 || (*times == best.0 && id < best.1) {
            *best = (*times, id);
        }
    }
    best.into_iter().map(|(_, id)| id).collect()
}

impl Sink for Counter {
    fn word(&mut self, word: &Word) {
        // A slot takes one symbol, as a place in the table would.
        if self.slots.contains(word) {
            return;
        }
        place_seen(&mut self.words, *word, self.most.words).add(self.block);
    }

    fn number(&mut self, number: u128) {
        place_seen(&mut self.numbers, number, self.most.numbers).add(self.block);
    }

    fn flag(&mut self, _: u8) {}

    fn raw(&mut self, _: &[u8]) {}

    fn tx_shape(&mut self, shape: &TxShape) {
        place_seen(&mut self.tx_shapes, *shape, self.most.shapes).add(self.block);
    }

    fn log_shape(&mut self, shape: Option<&LogShape>) {
        let (next, most) = (shape.copied(), self.most.shapes);
        match self.last.take() {
            Some(Ok(log)) => *place(&mut self.after_log, (log, next), most, |times| *times) += 1,
            Some(Err(tx)) => *place(&mut self.after_tx, (tx, next), most, |times| *times) += 1,
            None => {}
        }
        if let Some(shape) = next {
            place_seen(&mut self.log_shapes, shape, self.most.shapes).add(self.block);
            self.last = Some(Ok(shape));
        }
    }

    fn begin_receipt(&mut self, shape: &TxShape) {
        self.last = Some(Err(*shape));
    }

    fn set(&mut self, slot: usize, word: Word) {
        self.slots[slot] = word;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rarest_of_too_many_values_are_forgotten() {
        let mut counter = Counter::of_at_most(Most { words: 1000, numbers: 10, shapes: 10 });
        let word = |number: u32| {
            let mut word = [7; 32];
            word[..4].copy_from_slice(&number.to_le_bytes());
            word
        };
        for block in 0..50 {
            counter.begin_block();
            (0..10).for_each(|frequent| counter.word(&word(frequent)));
            // New ones, and some that two blocks have.
            (0..300).for_each(|rare| counter.word(&word(1000 + block * 200 + rare)));
            assert!(counter.words.len() <= 1000, "{} words", counter.words.len());
        }
        let tables = counter.tables();
        (0..10).for_each(|frequent| assert!(tables.words[..10].contains(&word(frequent))));
    }
}
