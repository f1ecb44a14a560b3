//! Writing the two streams of a chunk: symbols and literal bytes.

use crate::stream::facts::Word;
use crate::stream::fold_map::FoldMap;
use crate::stream::tables::{Predictions, Tables, put_number};
use crate::stream::walk::{LogShape, Sink, TxShape, slot};
use crate::stream::words::{
    LOG_END, LOG_PARTS, LOG_PREDICTED, LOG_TABLE, Literal, NUMBER_TABLE, TX_PARTS, TX_TABLE,
    put_entry, word,
};

/// Places of the entries of a file's tables.
#[derive(Debug)]
pub(crate) struct Places<'t> {
    words: FoldMap<Word, usize>,
    numbers: FoldMap<u128, usize>,
    tx_shapes: FoldMap<TxShape, usize>,
    log_shapes: FoldMap<LogShape, usize>,
    predictions: &'t Predictions,
}

impl<'t> Places<'t> {
    pub(crate) fn of(tables: &'t Tables) -> Self {
        Self {
            words: tables.words.iter().copied().zip(0..).collect(),
            numbers: tables.numbers.iter().copied().zip(0..).collect(),
            tx_shapes: tables.tx_shapes.iter().copied().zip(0..).collect(),
            log_shapes: tables.log_shapes.iter().copied().zip(0..).collect(),
            predictions: &tables.predictions,
        }
    }
}

/// Symbols and literal bytes.
#[derive(Debug, Default, Clone)]
pub(crate) struct Lane {
    pub(crate) symbols: Vec<u8>,
    pub(crate) literals: Vec<u8>,
}

/// Writes the fields of a chunk.
#[derive(Debug)]
pub(crate) struct Writer<'t> {
    places: &'t Places<'t>,
    pub(crate) lane: Lane,
    slots: [Word; slot::COUNT],
    recent: FoldMap<Word, usize>,
    recent_count: usize,
    /// Predicted symbol: see [`Predictions`].
    next: Option<u32>,
}

impl<'t> Writer<'t> {
    pub(crate) fn new(places: &'t Places<'t>) -> Self {
        Self {
            places,
            lane: Lane::default(),
            slots: [[0; 32]; slot::COUNT],
            recent: FoldMap::default(),
            recent_count: 0,
            next: None,
        }
    }

    fn distance(&self, word: &Word) -> Option<usize> {
        self.recent.get(word).map(|at| self.recent_count - 1 - at)
    }

    fn literal(&mut self, word: &Word) {
        let literal = Literal::of(word);
        match literal {
            Literal::Left(bytes) => self.lane.symbols.push(word::LEFT + bytes as u8),
            Literal::Right(bytes) => {
                self.lane.symbols.push(word::RIGHT);
                self.lane.literals.push(bytes as u8);
            }
            Literal::Negative(bytes) => {
                self.lane.symbols.push(word::NEGATIVE);
                self.lane.literals.push(bytes as u8);
            }
        }
        self.lane.literals.extend_from_slice(literal.part(word));
        // A short word costs no more than a reference to it.
        if literal.bytes() >= word::RECENT_BYTES_MIN {
            self.recent.insert(*word, self.recent_count);
            self.recent_count += 1;
        }
    }

    fn entry(&mut self, first: u8, id: usize) {
        put_entry(&mut self.lane.symbols, first, id);
    }
}

impl Sink for Writer<'_> {
    fn word(&mut self, value: &Word) {
        let symbols = &mut self.lane.symbols;
        if *value == [0; 32] {
            return symbols.push(word::ZERO);
        }
        if let Some(slot) = self.slots.iter().position(|slot| slot == value) {
            return symbols.push(word::SLOT + slot as u8);
        }
        if let Some(id) = self.places.words.get(value) {
            return put_entry(symbols, word::TABLE, *id);
        }
        match self.distance(value) {
            Some(near) if near < word::RECENT_COUNT => {
                self.lane.symbols.push(word::RECENT + near as u8);
            }
            Some(far) if far < word::RECENT_COUNT + word::FAR_COUNT => {
                self.lane.symbols.push(word::FAR);
                self.lane.literals.push((far - word::RECENT_COUNT) as u8);
            }
            _ => self.literal(value),
        }
    }

    fn number(&mut self, number: u128) {
        if let Some(id) = self.places.numbers.get(&number) {
            return self.entry(NUMBER_TABLE, *id);
        }
        let bytes = put_number(&mut self.lane.literals, number);
        self.lane.symbols.push(bytes);
    }

    fn flag(&mut self, flag: u8) {
        self.lane.symbols.push(flag);
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.lane.literals.extend_from_slice(bytes);
    }

    fn tx_shape(&mut self, shape: &TxShape) {
        if let Some(id) = self.places.tx_shapes.get(shape) {
            return self.entry(TX_TABLE, *id);
        }
        self.lane.symbols.extend([TX_PARTS, shape.flags]);
        if shape.flags & TxShape::HAS_TO != 0 {
            self.word(&shape.to);
        }
        self.number(u128::from(shape.input_bytes));
        if shape.input_bytes >= 4 {
            self.raw(&shape.selector);
        }
    }

    fn log_shape(&mut self, shape: Option<&LogShape>) {
        let id = shape.map(|shape| self.places.log_shapes.get(shape).copied());
        // Numbers of `Predictions`: 0 is the end, and a shape outside the table has none.
        let symbol = id.map_or(Some(0), |id| id.map(|id| id as u32 + 1));
        let predicted = symbol.is_some() && symbol == self.next;
        self.next = id.flatten().and_then(|id| self.places.predictions.after_log.get(id).copied());
        match (shape, id.flatten()) {
            _ if predicted => self.lane.symbols.push(LOG_PREDICTED),
            (None, _) => self.lane.symbols.push(LOG_END),
            (_, Some(id)) => self.entry(LOG_TABLE, id),
            (Some(shape), None) => {
                self.lane.symbols.extend([LOG_PARTS, shape.topic_count]);
                self.word(&shape.address);
                if shape.topic_count > 0 {
                    self.word(&shape.topic);
                }
                self.number(u128::from(shape.data_bytes));
            }
        }
    }

    fn begin_receipt(&mut self, shape: &TxShape) {
        self.slots[slot::ADDRESS] = [0; 32];
        self.slots[slot::LAST_ADDRESS] = [0; 32];
        let id = self.places.tx_shapes.get(shape);
        self.next = id.and_then(|id| self.places.predictions.after_tx.get(*id).copied());
    }

    fn set(&mut self, slot: usize, word: Word) {
        self.slots[slot] = word;
    }
}
