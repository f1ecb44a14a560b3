//! The packer: from the node's texts of neighboring heights to one packed file.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use neve_chain::{Block, Receipts};

use crate::container::directory::Directory;
use crate::container::hash_index::{self, Locator};
use crate::container::layout::{FileHeader, Identity};
use crate::container::log_index;
use crate::error::{PackError, Part, Reason};
use crate::frames::compress::{Compressor, Samples};
use crate::frames::model::{self, Model};
use crate::read::height::{Form, PackedHeight};
use crate::read::text::{self, TotalDifficulty};
use crate::stream::count::Counter;
use crate::stream::header::Values;
use crate::stream::lanes::Places;
use crate::stream::tables::Tables;
use crate::write::bounds::{self, Bounds, within};
use crate::write::encode::{self, Encoded, Height, HeightTexts};
use crate::write::file_writer::FileWriter;

/// Step between the heights that the dictionary is made from.
const DICTIONARY_STEP: usize = 4;

/// A packed file, and what packing it showed.
#[derive(Debug)]
pub struct Packing {
    /// Bytes of the file: a function of the heights, of the identity and of the range's length.
    pub bytes: Vec<u8>,
    /// Heights that are stored as they came, by reason.
    pub stored_as_came: BTreeMap<Reason, u64>,
    /// Bytes by part of the file.
    pub parts: BTreeMap<&'static str, u64>,
}

/// Packs neighboring heights, at most `range_length` of them.
///
/// Reads every text back from the packed bytes and compares it with the node's. A height that
/// differs is stored as it came. `proceed` is called before each height of each pass; packing ends
/// with [`PackError::Stopped`] when it breaks.
pub fn pack(
    identity: Identity,
    range_length: u32,
    heights: &[HeightTexts<'_>],
    proceed: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Packing, PackError> {
    pack_within(identity, range_length, heights, &Bounds::default(), proceed)
}

/// Packs as [`pack()`] does, within other bounds.
pub fn pack_within(
    identity: Identity,
    range_length: u32,
    heights: &[HeightTexts<'_>],
    bounds: &Bounds,
    proceed: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Packing, PackError> {
    let mut packer = Packer::begin(identity, range_length, heights, *bounds)?;
    for (index, texts) in heights.iter().enumerate() {
        go_on(proceed)?;
        packer.take(index, texts)?;
    }
    packer.finish(heights, proceed)
}

fn go_on(proceed: &mut dyn FnMut() -> ControlFlow<()>) -> Result<(), PackError> {
    if proceed().is_break() { Err(PackError::Stopped) } else { Ok(()) }
}

/// Heights as a pass leaves them: `None` for one that found no space, a reason for one that is stored as it came.
type Passed<T> = Vec<Result<Option<T>, Reason>>;

/// Space for heights that wait.
struct Room(usize);

impl Room {
    /// Keeps a value if there is space for its bytes.
    fn keep<T>(&mut self, value: T, bytes: impl Fn(&T) -> usize) -> Option<T> {
        self.0 = self.0.checked_sub(bytes(&value))?;
        Some(value)
    }

    /// Gives the bytes of a value back.
    fn give_back(&mut self, bytes: usize) {
        self.0 += bytes;
    }
}

struct Packer {
    header: FileHeader,
    bounds: Bounds,
    /// Facts of each height; `None` if they are to be taken from the texts again.
    heights: Passed<Height>,
    template: Option<Values<'static>>,
    room: Room,
    counter: Counter,
    hashes: Vec<(u64, Locator)>,
    terms: Vec<(u64, u32)>,
}

impl Packer {
    fn begin(
        identity: Identity,
        range_length: u32,
        heights: &[HeightTexts<'_>],
        bounds: Bounds,
    ) -> Result<Self, PackError> {
        bounds.check_texts(heights)?;
        Ok(Self {
            header: header_of(identity, range_length, heights)?,
            heights: Vec::with_capacity(heights.len()),
            template: None,
            room: Room(bounds.kept_bytes),
            bounds,
            counter: Counter::default(),
            // From a power of two the doubles of the lists reach their bounds and do not exceed them.
            hashes: Vec::with_capacity(1 << 10),
            terms: Vec::with_capacity(1 << 10),
        })
    }

    /// Takes the facts of a height, counts them, and notes its hashes and terms.
    fn take(&mut self, index: usize, texts: &HeightTexts<'_>) -> Result<(), PackError> {
        let input = |what| PackError::Input { index, what };
        let block = Block::parse(texts.block).map_err(|_| input("no block of a node"))?;
        let receipts =
            Receipts::parse(texts.receipts).map_err(|_| input("no receipts of a node"))?;
        let header = self.header;
        if block.header.number != header.first + index as u64 {
            return Err(input("a height that does not follow the one before"));
        }
        self.take_keys(index, &block, &receipts)?;
        let height = if self.bounds.is_text(texts) {
            Err(Reason::TooLarge)
        } else {
            Height::of(&block, &receipts)
        };
        if let Ok(height) = &height {
            height.count(header.identity.chain_id, &mut self.counter);
            // The first height in the form of fields: all packers choose the same.
            self.template.get_or_insert_with(|| height.values.clone());
        }
        self.heights.push(height.map(|height| self.room.keep(height, Height::bytes)));
        Ok(())
    }

    /// Notes the hashes and terms of a height, if they are not too many.
    fn take_keys(
        &mut self,
        index: usize,
        block: &Block<'_>,
        receipts: &Receipts<'_>,
    ) -> Result<(), PackError> {
        let hashes = self.hashes.len() + 1 + block.transactions.len();
        within(Part::HashIndex, hashes, self.bounds.hashes)?;
        let locator = |ordinal: usize| Locator { height: index as u32, ordinal: ordinal as u32 };
        self.hashes.push((hash_index::prefix(&block.hash.0), locator(0)));
        let transactions = (1..).zip(&block.transactions);
        self.hashes
            .extend(transactions.map(|(at, tx)| (hash_index::prefix(&tx.hash.0), locator(at))));
        let logs = receipts.logs.iter();
        let mut terms: Vec<u64> =
            logs.flat_map(|log| log_index::terms(&log.address[..], &log.topics)).collect();
        // At once for each height: with the doubles of a whole range the list would be several times as long.
        terms.sort_unstable();
        terms.dedup();
        within(Part::LogIndex, self.terms.len() + terms.len(), self.bounds.terms)?;
        self.terms.extend(terms.into_iter().map(|term| (term, index as u32)));
        Ok(())
    }

    fn finish(
        self,
        texts: &[HeightTexts<'_>],
        proceed: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Packing, PackError> {
        let FileHeader { identity: Identity { chain_id, .. }, first, .. } = self.header;
        let template = self.template.unwrap_or_else(Values::absent);
        let tables: Tables = self.counter.tables();
        let places = Places::of(&tables);
        let encoder = Encoder { chain_id, first, template: &template, places: &places };
        let (encoded, samples) = encoder.encode_all(self.heights, texts, self.room, proceed)?;
        let dictionary = samples.train();
        let sections = [model::write_tables(&template, first, &tables)?, model::pack(&dictionary)?];
        let model = read_back(&self.header, &sections)?;
        let mut file =
            FileWriter::new(self.header, bounds::text_bytes(texts), self.bounds.file_bytes)?;
        sections.iter().try_for_each(|section| file.section(section))?;
        write_indexes(&mut file, self.hashes, self.terms, texts.len())?;
        let mut frames = Frames::new(&self.header, model, &dictionary, file)?;
        frames.add_all(&encoder, encoded, texts, proceed)?;
        Ok(frames.finish())
    }
}

/// Makes the header of a file of these heights.
fn header_of(
    identity: Identity,
    range_length: u32,
    heights: &[HeightTexts<'_>],
) -> Result<FileHeader, PackError> {
    let count = PackError::Heights { heights: heights.len(), max: range_length };
    let Some(first) = heights.first() else { return Err(count) };
    let block = Block::parse(first.block)
        .map_err(|_| PackError::Input { index: 0, what: "no block of a node" })?;
    let header = FileHeader {
        identity,
        range_length,
        first: block.header.number,
        heights: u32::try_from(heights.len()).map_err(|_| count)?,
        parent: block.header.parent_hash,
    };
    header.check()?;
    Ok(header)
}

/// Reads the sections of tables and dictionary back.
fn read_back(header: &FileHeader, sections: &[Vec<u8>; 2]) -> Result<Model, PackError> {
    let [tables, dictionary] = sections;
    Model::read(header.identity.chain_id, header.first, tables, dictionary)
        .map_err(|error| PackError::ReadBack { height: header.first, error })
}

/// Writes both indexes, and gives back the memory of what they are made of.
fn write_indexes(
    file: &mut FileWriter,
    hashes: Vec<(u64, Locator)>,
    terms: Vec<(u64, u32)>,
    heights: usize,
) -> Result<(), PackError> {
    file.section(&hash_index::write(&hashes)?)?;
    drop(hashes);
    file.section(&log_index::write(terms, heights)?)
}

/// Writes the streams of heights.
struct Encoder<'t> {
    chain_id: u64,
    /// First height of the file.
    first: u64,
    template: &'t Values<'static>,
    places: &'t Places<'t>,
}

impl Encoder<'_> {
    /// Encodes all heights, and takes the samples for the dictionary. Heights that find no space are encoded again.
    fn encode_all(
        &self,
        heights: Passed<Height>,
        texts: &[HeightTexts<'_>],
        mut room: Room,
        proceed: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(Passed<Encoded>, Samples), PackError> {
        let (mut encoded, mut samples) = (Vec::with_capacity(heights.len()), Samples::default());
        let mut packed = 0;
        for (number, (height, texts)) in (self.first..).zip(heights.into_iter().zip(texts)) {
            go_on(proceed)?;
            let is_sample = height.is_ok() && packed % DICTIONARY_STEP == 0;
            packed += usize::from(height.is_ok());
            // A sample without space is encoded too: the dictionary must not depend on the memory.
            encoded.push(match height {
                Err(reason) => Err(reason),
                Ok(None) if !is_sample => Ok(None),
                Ok(height) => {
                    room.give_back(height.as_ref().map_or(0, Height::bytes));
                    self.encode(number, height, texts).map(|made| {
                        let groups = made.groups.iter().filter(|_| is_sample);
                        groups.for_each(|group| samples.add(&group.content));
                        room.keep(made, Encoded::bytes)
                    })
                }
            });
        }
        Ok((encoded, samples))
    }

    /// Encodes a height by its facts, or by those of its texts.
    fn encode(
        &self,
        number: u64,
        height: Option<Height>,
        texts: &HeightTexts<'_>,
    ) -> Result<Encoded, Reason> {
        let height = if let Some(height) = height {
            height
        } else {
            let block = Block::parse(texts.block).map_err(|_| Reason::BlockForm)?;
            let receipts = Receipts::parse(texts.receipts).map_err(|_| Reason::ReceiptsText)?;
            Height::of(&block, &receipts)?
        };
        Ok(encode::groups(height, self.template, number, self.chain_id, self.places))
    }
}

/// The frames, made one after the other and read back.
struct Frames {
    model: Arc<Model>,
    compressor: Compressor,
    directory: Directory,
    file: FileWriter,
    stored_as_came: BTreeMap<Reason, u64>,
    /// Hash of the block before.
    parent: crate::B256,
}

impl Frames {
    fn new(
        header: &FileHeader,
        model: Model,
        dictionary: &[u8],
        file: FileWriter,
    ) -> Result<Self, PackError> {
        Ok(Self {
            model: Arc::new(model),
            compressor: Compressor::new(dictionary)?,
            directory: Directory::with_capacity(header.heights as usize),
            file,
            stored_as_came: BTreeMap::new(),
            parent: header.parent,
        })
    }

    /// Adds all frames. Streams that found no space are made again.
    fn add_all(
        &mut self,
        encoder: &Encoder<'_>,
        encoded: Passed<Encoded>,
        texts: &[HeightTexts<'_>],
        proceed: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(), PackError> {
        for (number, (encoded, texts)) in (encoder.first..).zip(encoded.into_iter().zip(texts)) {
            go_on(proceed)?;
            let encoded = match encoded {
                Ok(Some(encoded)) => Ok(encoded),
                Ok(None) => encoder.encode(number, None, texts),
                Err(reason) => Err(reason),
            };
            self.add(encoded, texts)?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        encoded: Result<Encoded, Reason>,
        texts: &HeightTexts<'_>,
    ) -> Result<(), PackError> {
        let input = |_| PackError::Input { index: 0, what: "no block of a node" };
        let block = Block::parse(texts.block).map_err(input)?;
        let frame = match encoded.map(|encoded| encoded.frame(&mut self.compressor)) {
            Ok(frame) => Ok(frame?),
            Err(reason) => Err(reason),
        };
        let frame = frame.and_then(|frame| self.compare(&block, texts, frame));
        let frame = match frame {
            Ok(frame) => frame,
            Err(reason) => self.store_as_came(reason, &block, texts)?,
        };
        self.directory.push(block.header.number, block.hash, &frame)?;
        self.file.append(&frame)?;
        self.parent = block.hash;
        Ok(())
    }

    /// Makes the frame of a height that is stored as it came, and counts the reason.
    fn store_as_came(
        &mut self,
        reason: Reason,
        block: &Block<'_>,
        texts: &HeightTexts<'_>,
    ) -> Result<Vec<u8>, PackError> {
        *self.stored_as_came.entry(reason).or_default() += 1;
        let frame = as_came(block, texts)?;
        encode::compare_texts(&frame, block, texts)
            .map_err(|error| PackError::ReadBack { height: block.header.number, error })?;
        Ok(frame)
    }

    fn finish(self) -> Packing {
        let (bytes, parts) = self.file.finish(&self.directory);
        Packing { bytes, parts, stored_as_came: self.stored_as_came }
    }

    /// Reads all texts back from a frame.
    fn compare(
        &self,
        block: &Block<'_>,
        texts: &HeightTexts<'_>,
        frame: Vec<u8>,
    ) -> Result<Vec<u8>, Reason> {
        let height = PackedHeight {
            height: block.header.number,
            hash: block.hash,
            parent: self.parent,
            frame: frame[..].into(),
            model: Arc::clone(&self.model),
        };
        encode::compare(&height, block, texts)?;
        // It borrows the frame.
        drop(height);
        Ok(frame)
    }
}

fn as_came(block: &Block<'_>, texts: &HeightTexts<'_>) -> Result<Vec<u8>, PackError> {
    let span = &block.layout.total_difficulty;
    let span = TotalDifficulty::of(block).map(|_| span.start as usize..span.end as usize);
    let mut frame = vec![Form::Texts as u8];
    frame.extend(text::write(texts.block, span, texts.receipts)?);
    Ok(frame)
}
