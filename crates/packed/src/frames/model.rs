//! The parts of a file that all its frames share: directory, template, tables, dictionary.

use std::ops::Range;
use std::sync::OnceLock;

use crate::container::bytes::{Bytes, put_varint};
use crate::container::directory::{self, Entry};
use crate::container::layout::Section;
use crate::error::{PackError, PackedError};
use crate::frames::compress::{Dictionary, compress_text, decompress_text};
use crate::stream::derive::KnownBits;
use crate::stream::header::{FIELDS, Values};
use crate::stream::lanes::Lane;
use crate::stream::tables::{BloomBits, Tables};

/// Longest content of a section before zstd.
const CONTENT_BYTES_MAX: usize = 8 << 20;

/// Template, tables and dictionary, ready to read frames.
#[derive(Debug)]
pub(crate) struct Model {
    /// Section of the directory, checked.
    directory: Vec<u8>,
    /// Section of the hash index, checked, from the first look-up on.
    index: OnceLock<Vec<u8>>,
    pub(crate) chain_id: u64,
    pub(crate) template: Values<'static>,
    pub(crate) tables: Tables,
    pub(crate) dictionary: Dictionary,
    pub(crate) known: KnownBits,
}

impl Model {
    /// Reads the sections of tables and dictionary of a file that begins at height `first`.
    pub(crate) fn read(
        chain_id: u64,
        first: u64,
        tables: &[u8],
        dictionary: &[u8],
    ) -> Result<Self, PackedError> {
        let content = unpack(tables, Section::Tables)?;
        let mut bytes = Bytes::new(&content, Section::Tables.name());
        let template = read_template(&mut bytes, first)?;
        let tables = Tables::read(bytes.rest())?;
        let dictionary = Dictionary::new(&unpack(dictionary, Section::Dictionary)?)?;
        let known = KnownBits {
            words: BloomBits::new(tables.words.len()),
            shapes: BloomBits::new(tables.log_shapes.len()),
        };
        let (directory, index) = (Vec::new(), OnceLock::new());
        Ok(Self { directory, index, chain_id, template, tables, dictionary, known })
    }

    /// Adds the directory, which was checked.
    pub(crate) fn with_directory(self, directory: Vec<u8>) -> Self {
        Self { directory, ..self }
    }

    /// Returns the entry of the height with this index, and the one before it.
    pub(crate) fn entries(&self, index: usize) -> Result<(Option<Entry>, Entry), PackedError> {
        let Range { start, end } = directory::entries_of(index);
        let entries = self.directory.get(start as usize..end as usize);
        directory::read(entries.unwrap_or_default())
    }

    /// Returns the hash index, if a look-up added it.
    pub(crate) fn index(&self) -> Option<&[u8]> {
        self.index.get().map(Vec::as_slice)
    }

    /// Adds the hash index; returns false if another thread did.
    pub(super) fn add_index(&self, index: Vec<u8>) -> bool {
        self.index.set(index).is_ok()
    }

    /// Returns the bytes that it takes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        let bits = self.known.words.bytes() + self.known.shapes.bytes();
        let index = self.index().map_or(0, <[u8]>::len);
        let own = size_of::<Self>() + self.directory.capacity() + index + self.template.memory();
        own + self.tables.bytes() + self.dictionary.bytes() + bits
    }
}

/// Reads the template, with which the content of the section of tables begins.
fn read_template(bytes: &mut Bytes<'_>, first: u64) -> Result<Values<'static>, PackedError> {
    let mut symbols = Bytes::new(bytes.take(FIELDS.len())?, "template");
    let literals = bytes.count(CONTENT_BYTES_MAX)?;
    let mut literals = Bytes::new(bytes.take(literals)?, "template");
    let absent = Values::absent();
    let (template, _) = Values::read(&absent, first, &mut symbols, &mut literals)?;
    literals.end()?;
    Ok(template.into_owned())
}

/// Makes the section of tables.
pub(crate) fn write_tables(
    template: &Values<'_>,
    first: u64,
    tables: &Tables,
) -> Result<Vec<u8>, PackError> {
    let mut lane = Lane::default();
    template.write(&Values::absent(), first, &[], &mut lane);
    let mut content = lane.symbols;
    put_varint(&mut content, lane.literals.len() as u64);
    content.extend_from_slice(&lane.literals);
    content.extend(tables.write());
    pack(&content)
}

/// Makes a section from its content: the length, then a zstd frame.
pub(crate) fn pack(content: &[u8]) -> Result<Vec<u8>, PackError> {
    let mut out = Vec::new();
    put_varint(&mut out, content.len() as u64);
    if !content.is_empty() {
        out.extend(compress_text(content)?);
    }
    Ok(out)
}

fn unpack(section: &[u8], name: Section) -> Result<Vec<u8>, PackedError> {
    let mut bytes = Bytes::new(section, name.name());
    let length = bytes.count(CONTENT_BYTES_MAX)?;
    if length == 0 {
        bytes.end()?;
        return Ok(Vec::new());
    }
    decompress_text(bytes.rest(), length)
}
