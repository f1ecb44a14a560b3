//! Reading the two streams of a chunk, in the order of [`crate::stream::walk`].

use std::ops::Range;

use crate::container::bytes::Bytes;
use crate::error::PackedError;
use crate::stream::facts::{Chunk, LOGS_MAX, Lg, Rx, Tx, Word, kind};
use crate::stream::tables::{Tables, left, number, right};
use crate::stream::walk::{LogShape, TxShape, slot};
use crate::stream::words::{
    LOG_END, LOG_PARTS, LOG_PREDICTED, LOG_TABLE, NUMBER_TABLE, TX_PARTS, TX_TABLE, WIDE, word,
};

/// Memory of a chunk's fields that a reader accepts. A symbol of one byte may stand for a log of 200 bytes, so
/// the length of the streams bounds nothing.
const CHUNK_BYTES_MAX: usize = 64 << 20;

/// A word and its name: equal names are equal words. 0 is no name, 1 + i word i of the table.
type Named = (Word, u32);
/// A shape of a log, the names of its address and first topic, and its place in the table.
type NamedShape = (LogShape, [u32; 2], Option<usize>);
/// Names of literal words of the chunk begin here.
pub(crate) const RECENT_NAME: u32 = 1 << 20;
/// Names of the address and the first topic of entry i of the table of logs: this plus i.
pub(crate) const SHAPE_NAME: u32 = 1 << 18;

/// Reads the streams of one chunk.
pub(crate) struct Reader<'a> {
    tables: &'a Tables,
    chain_id: u64,
    symbols: Bytes<'a>,
    literals: Bytes<'a>,
    slots: [Named; slot::COUNT],
    recent: Vec<Word>,
    /// Names of `from`, `to` and `value`, and the shape, of each transaction.
    known: Vec<([u32; 3], Option<usize>)>,
    pub(crate) chunk: Chunk,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(
        tables: &'a Tables,
        chain_id: u64,
        symbols: &'a [u8],
        literals: &'a [u8],
    ) -> Self {
        Self {
            tables,
            chain_id,
            symbols: Bytes::new(symbols, "symbols"),
            literals: Bytes::new(literals, "literals"),
            slots: [([0; 32], 0); slot::COUNT],
            recent: Vec::with_capacity(64),
            known: Vec::with_capacity(16),
            chunk: Chunk::default(),
        }
    }

    /// Goes on with other streams of the same chunk.
    pub(crate) fn switch(
        &mut self,
        symbols: &'a [u8],
        literals: &'a [u8],
    ) -> Result<(), PackedError> {
        self.end()?;
        self.symbols = Bytes::new(symbols, "symbols");
        self.literals = Bytes::new(literals, "literals");
        Ok(())
    }

    pub(crate) fn end(&self) -> Result<(), PackedError> {
        self.symbols.end()?;
        self.literals.end()
    }

    #[inline]
    fn wide(&mut self, first: u8, symbol: u8) -> Result<usize, PackedError> {
        if symbol < WIDE {
            return Ok(usize::from(symbol - first));
        }
        // Two bytes for a rare entry, so that a frequent one takes one.
        let low = usize::from(self.symbols.byte()?);
        Ok(usize::from(WIDE - first) + (usize::from(symbol - WIDE) << 8 | low))
    }

    fn word(&mut self) -> Result<Named, PackedError> {
        let symbol = self.symbols.byte()?;
        match symbol {
            word::ZERO => Ok(([0; 32], 0)),
            word::SLOT..word::RECENT => Ok(self.slots[usize::from(symbol - word::SLOT)]),
            // `LEFT` is the last recent word: a literal of no bytes would be `ZERO`.
            word::RECENT..=word::LEFT => self.near(usize::from(symbol - word::RECENT)),
            word::FAR => {
                let far = usize::from(self.literals.byte()?);
                self.near(far + word::RECENT_COUNT)
            }
            word::TABLE.. => {
                let id = self.wide(word::TABLE, symbol)?;
                let found = self.tables.words.get(id).copied();
                let found = found.ok_or_else(|| self.symbols.error("no such word"))?;
                Ok((found, id as u32 + 1))
            }
            _ => self.literal(symbol),
        }
    }

    /// Reads a word that is an address. Cut to twenty bytes, a longer one would be another word under the same name, and
    /// names tell the bits of later blooms.
    fn address(&mut self) -> Result<Named, PackedError> {
        let found = self.word()?;
        if found.0.starts_with(&[0; 12]) {
            Ok(found)
        } else {
            Err(self.symbols.error("an address of more than 20 bytes"))
        }
    }

    fn near(&mut self, distance: usize) -> Result<Named, PackedError> {
        let at = (self.recent.len()).checked_sub(distance + 1);
        let found = at.and_then(|at| Some((*self.recent.get(at)?, RECENT_NAME + at as u32)));
        found.ok_or_else(|| self.symbols.error("no such recent word"))
    }

    fn literal(&mut self, symbol: u8) -> Result<Named, PackedError> {
        let length = match symbol {
            word::RIGHT | word::NEGATIVE => usize::from(self.literals.byte()?),
            _ => usize::from(symbol - word::LEFT),
        };
        if length > 32 {
            return Err(self.literals.error("a word of more than 32 bytes"));
        }
        let part = self.literals.take(length)?;
        let found = match symbol {
            word::RIGHT => right(part),
            word::NEGATIVE => left(part, 0xff),
            _ => left(part, 0),
        };
        if length < word::RECENT_BYTES_MIN {
            return Ok((found, 0));
        }
        self.recent.push(found);
        Ok((found, RECENT_NAME + self.recent.len() as u32 - 1))
    }

    fn number(&mut self) -> Result<u128, PackedError> {
        let symbol = self.symbols.byte()?;
        if symbol < NUMBER_TABLE {
            return Ok(number(self.literals.take(usize::from(symbol))?));
        }
        let id = self.wide(NUMBER_TABLE, symbol)?;
        let found = self.tables.numbers.get(id).copied();
        found.ok_or_else(|| self.symbols.error("no such number"))
    }

    fn number_64(&mut self) -> Result<u64, PackedError> {
        let found = self.number()?;
        u64::try_from(found).map_err(|_| self.symbols.error("a number over 64 bits"))
    }

    fn tx_shape(&mut self) -> Result<(TxShape, Option<usize>), PackedError> {
        let symbol = self.symbols.byte()?;
        if symbol != TX_PARTS {
            let id = self.wide(TX_TABLE, symbol)?;
            let found = self.tables.tx_shapes.get(id).copied();
            return Ok((found.ok_or_else(|| self.symbols.error("no such shape"))?, Some(id)));
        }
        let flags = self.symbols.byte()?;
        if flags > 15 {
            return Err(self.symbols.error("unknown flags of a shape"));
        }
        let to = if flags & TxShape::HAS_TO != 0 { self.address()?.0 } else { [0; 32] };
        let input_bytes = self.number_64()?;
        let selector = if input_bytes >= 4 { self.literals.array()? } else { [0; 4] };
        Ok((TxShape { flags, to, selector, input_bytes }, None))
    }

    pub(crate) fn transaction(&mut self) -> Result<(), PackedError> {
        let (shape, id) = self.tx_shape()?;
        let other = shape.flags & TxShape::OTHER_CHAIN != 0;
        let chain_id = if other { self.number_64()? } else { self.chain_id };
        // In the order of the writer: the words behind may refer to a slot.
        self.slots[slot::TO] = (shape.to, 0);
        let from = self.address()?;
        self.slots[slot::FROM] = from;
        let (nonce, gas, price) = (self.number_64()?, self.number_64()?, self.number()?);
        let priority = if shape.kind() == kind::DYNAMIC_FEE { self.number()? } else { 0 };
        let value = self.word()?;
        self.slots[slot::VALUE] = value;
        let start = self.chunk.data.len();
        let mut rest = shape.input_bytes;
        if rest >= 4 {
            self.chunk.data.extend_from_slice(&shape.selector);
            rest -= 4;
        }
        self.body(rest)?;
        let input = start..self.chunk.data.len();
        let access =
            if shape.kind() >= kind::ACCESS_LIST { self.access_list()? } else { Vec::new() };
        let to = (shape.flags & TxShape::HAS_TO != 0).then_some(shape.to);
        self.known.push(([from.1, 0, value.1], id));
        let kind = shape.kind();
        // The signature of such a transaction names no chain (before EIP-155).
        let chain_id = if kind == kind::UNPROTECTED { 0 } else { chain_id };
        let (from, value) = (from.0, value.0);
        self.chunk.txs.push(Tx {
            kind,
            chain_id,
            from,
            to,
            nonce,
            gas,
            price,
            priority,
            value,
            input,
            access,
        });
        Ok(())
    }

    fn access_list(&mut self) -> Result<Vec<(Word, Vec<Word>)>, PackedError> {
        let mut list = Vec::new();
        for _ in 0..self.number_64()? {
            // Before each entry: the count is the file's, and must not decide how much memory is taken.
            self.take_room(size_of::<(Word, Vec<Word>)>())?;
            let address = self.address()?.0;
            let mut keys = Vec::new();
            for _ in 0..self.number_64()? {
                self.take_room(size_of::<Word>())?;
                keys.push(self.word()?.0);
            }
            list.push((address, keys));
        }
        Ok(list)
    }

    /// Takes space for an entry of an access list.
    fn take_room(&mut self, bytes: usize) -> Result<(), PackedError> {
        self.chunk.access_bytes += bytes;
        self.room().map(drop)
    }

    /// Returns the bytes that the fields of the chunk may still take.
    fn room(&self) -> Result<usize, PackedError> {
        let taken = self.chunk.bytes() + size_of_val(&self.recent[..]);
        let room = CHUNK_BYTES_MAX.checked_sub(taken);
        room.ok_or_else(|| self.symbols.error("a chunk over 64 MiB"))
    }

    /// Reads words and a tail of `length` bytes in all into the chunk's data.
    fn body(&mut self, length: u64) -> Result<Range<usize>, PackedError> {
        let start = self.chunk.data.len();
        // Each transaction and each log comes here, so all that a chunk has is bounded.
        if length > self.room()? as u64 {
            return Err(self.symbols.error("a chunk over 64 MiB"));
        }
        for _ in 0..length / 32 {
            let (word, _) = self.word()?;
            self.chunk.data.extend_from_slice(&word);
        }
        let tail = self.literals.take((length % 32) as usize)?;
        self.chunk.data.extend_from_slice(tail);
        Ok(start..self.chunk.data.len())
    }

    /// Reads the receipt of transaction `at` of the chunk.
    pub(crate) fn receipt(&mut self, at: usize) -> Result<(), PackedError> {
        let tx = self.chunk.txs.get(at).zip(self.known.get(at));
        let Some((tx, (names, shape))) = tx else {
            return Err(self.symbols.error("a receipt without a transaction"));
        };
        // The slots are those of the chunk's last transaction: receipts come behind all of them.
        self.slots[slot::FROM] = (tx.from, names[0]);
        self.slots[slot::TO] = (tx.to.unwrap_or_default(), names[1]);
        self.slots[slot::VALUE] = (tx.value, names[2]);
        let shape = *shape;
        let flags = self.symbols.byte()?;
        if flags > 3 {
            return Err(self.symbols.error("unknown flags of a receipt"));
        }
        let price = if flags & 2 != 0 { Some(self.number()?) } else { None };
        let gas_used = self.number_64()?;
        let start = self.chunk.logs.len();
        self.logs(shape)?;
        let logs = start..self.chunk.logs.len();
        self.chunk.receipts.push(Rx { succeeded: flags & 1 == 1, gas_used, price, logs });
        Ok(())
    }

    fn logs(&mut self, shape: Option<usize>) -> Result<(), PackedError> {
        let predictions = &self.tables.predictions;
        let mut next = shape.and_then(|shape| predictions.after_tx.get(shape).copied());
        let mut last = ([0; 32], 0);
        self.slots[slot::ADDRESS] = ([0; 32], 0);
        self.slots[slot::LAST_ADDRESS] = ([0; 32], 0);
        while let Some((shape, names, id)) = self.log_shape(next)? {
            if self.chunk.logs.len() == LOGS_MAX {
                return Err(self.symbols.error("too many logs"));
            }
            self.slots[slot::LAST_ADDRESS] = last;
            // A shape's name is that of its first topic too: the address as a topic has none.
            let name = if id.is_some() { 0 } else { names[0] };
            self.slots[slot::ADDRESS] = (shape.address, name);
            last = self.slots[slot::ADDRESS];
            self.log(&shape, names)?;
            next = id.and_then(|id| predictions.after_log.get(id).copied());
        }
        Ok(())
    }

    /// Reads the shape of the next log, the names of address and first topic, and its place in
    /// the table; `None` behind the last log.
    fn log_shape(&mut self, next: Option<u32>) -> Result<Option<NamedShape>, PackedError> {
        let symbol = self.symbols.byte()?;
        let id = match symbol {
            LOG_END => return Ok(None),
            LOG_PARTS => return self.log_parts().map(Some),
            LOG_PREDICTED => match next {
                // 0 stands for the end, any other number for the place before it.
                Some(0) => return Ok(None),
                Some(next) => next as usize - 1,
                None => return Err(self.symbols.error("a prediction without a shape")),
            },
            symbol => self.wide(LOG_TABLE, symbol)?,
        };
        let shape = self.tables.log_shapes.get(id).copied();
        let shape = shape.ok_or_else(|| self.symbols.error("no such shape"))?;
        Ok(Some((shape, [SHAPE_NAME + id as u32; 2], Some(id))))
    }

    fn log_parts(&mut self) -> Result<NamedShape, PackedError> {
        let topic_count = self.symbols.byte()?;
        if topic_count > 4 {
            return Err(self.symbols.error("a log with more than four topics"));
        }
        let (address, name) = self.address()?;
        let (topic, topic_name) = if topic_count > 0 { self.word()? } else { ([0; 32], 0) };
        let data_bytes = self.number_64()?;
        Ok((LogShape { address, topic_count, topic, data_bytes }, [name, topic_name], None))
    }

    fn log(&mut self, shape: &LogShape, first: [u32; 2]) -> Result<(), PackedError> {
        let topic_count = usize::from(shape.topic_count);
        let (mut topics, mut names) = ([[0; 32]; 4], [0; 5]);
        topics[0] = shape.topic;
        [names[0], names[1]] = first;
        for at in 1..topic_count {
            (topics[at], names[at + 1]) = self.word()?;
        }
        let data = self.body(shape.data_bytes)?;
        self.chunk.logs.push(Lg { address: shape.address, topics, topic_count, data, names });
        Ok(())
    }
}
