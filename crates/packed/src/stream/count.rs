//! Counting: which words, numbers and shapes of a range occur often enough for its tables.

use std::hash::Hash;

use crate::stream::facts::Word;
use crate::stream::fold_map::FoldMap;
use crate::stream::tables::{Predictions, Tables};
use crate::stream::walk::{LogShape, Sink, TxShape, slot};
use crate::stream::words::{LOG_TABLE, Literal, NUMBER_TABLE, TX_TABLE, table_max, word};

/// Values that wait for a second block, of each kind, and pairs of neighboring shapes. Anybody may put a new word into
/// every 32 bytes of calldata. Those of a range of mainnet are fewer.
const COUNTED_MAX: usize = 1 << 20;

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
#[derive(Debug, Default)]
pub(crate) struct Counter {
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

impl Counter {
    /// Begins the next block. The rarest of too many values are forgotten: which ones, is a function of the blocks
    /// before and of no order in a map.
    pub(crate) fn begin_block(&mut self) {
        self.forget(COUNTED_MAX);
        self.block += 1;
    }

    fn forget(&mut self, most: usize) {
        let blocks = |seen: &Seen| seen.blocks;
        forget_rare(&mut self.words, most, blocks);
        forget_rare(&mut self.numbers, most, blocks);
        forget_rare(&mut self.tx_shapes, most, blocks);
        forget_rare(&mut self.log_shapes, most, blocks);
        forget_rare(&mut self.after_tx, most, |times| *times);
        forget_rare(&mut self.after_log, most, |times| *times);
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

/// Removes the values that were seen once; if more than `most` are left, those that were seen twice, and so on.
fn forget_rare<K: Hash + Eq, V>(all: &mut FoldMap<K, V>, most: usize, times: impl Fn(&V) -> u32) {
    let mut rare = 0;
    while all.len() > most {
        rare += 1;
        all.retain(|_, value| times(value) > rare);
    }
}

fn chosen<T: Ord + Hash>(
    all: FoldMap<T, Seen>,
    max: usize,
    wanted: impl Fn(&T, &Seen) -> bool,
) -> Vec<T> {
    let all = all.into_iter().filter(|(value, seen)| wanted(value, seen));
    let mut all: Vec<(T, u32)> = all.map(|(value, seen)| (value, seen.times)).collect();
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
        self.words.entry(*word).or_default().add(self.block);
    }

    fn number(&mut self, number: u128) {
        self.numbers.entry(number).or_default().add(self.block);
    }

    fn flag(&mut self, _: u8) {}

    fn raw(&mut self, _: &[u8]) {}

    fn tx_shape(&mut self, shape: &TxShape) {
        self.tx_shapes.entry(*shape).or_default().add(self.block);
    }

    fn log_shape(&mut self, shape: Option<&LogShape>) {
        let next = shape.copied();
        match self.last.take() {
            Some(Ok(log)) => *self.after_log.entry((log, next)).or_default() += 1,
            Some(Err(tx)) => *self.after_tx.entry((tx, next)).or_default() += 1,
            None => {}
        }
        if let Some(shape) = next {
            self.log_shapes.entry(shape).or_default().add(self.block);
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
        let mut counter = Counter::default();
        let word = |number: u32| {
            let mut word = [7; 32];
            word[..4].copy_from_slice(&number.to_le_bytes());
            word
        };
        for block in 0..50 {
            counter.forget(1000);
            assert!(counter.words.len() <= 1000, "{} words", counter.words.len());
            counter.begin_block();
            (0..10).for_each(|frequent| counter.word(&word(frequent)));
            // New ones, and some that two blocks have.
            (0..300).for_each(|rare| counter.word(&word(1000 + block * 200 + rare)));
        }
        let tables = counter.tables();
        (0..10).for_each(|frequent| assert!(tables.words[..10].contains(&word(frequent))));
    }
}
