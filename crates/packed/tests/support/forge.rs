//! Packed files that no packer writes, with right checksums.

use neve_packed::B256;

/// Content of a section of tables without entries: a template without fields.
pub(crate) fn no_tables() -> Vec<u8> {
    [&[1; 30][..], &[0; 5]].concat()
}

/// Content of tables with one shape of a log, which has neither topics nor data, and which itself follows.
pub(crate) fn one_log_shape() -> Vec<u8> {
    let mut tables = [&[1; 30][..], &[0, 0, 0, 0, 1]].concat();
    tables.push(0); // topics
    tables.extend([0; 21]); // the address in full: zero
    tables.extend([0, 1]); // no data; behind it the same shape
    tables
}

/// Sections of a file of one height, 7.
pub(crate) struct Forged {
    pub(crate) tables: Vec<u8>,
    pub(crate) dictionary: Vec<u8>,
    pub(crate) hashes: Vec<u8>,
    pub(crate) terms: Vec<u8>,
    pub(crate) frame: Vec<u8>,
}

impl Forged {
    /// A block without transactions.
    pub(crate) fn empty() -> Self {
        Self {
            tables: section(&no_tables()),
            dictionary: vec![0],
            hashes: vec![0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0],
            terms: vec![0; 5],
            frame: fields(0, &[group(&[])]),
        }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let frame = &self.frame;
        let crc = crc32fast::hash(&[&7_u64.to_le_bytes()[..], frame].concat());
        let mut directory = B256::repeat_byte(1).to_vec();
        directory.extend((frame.len() as u32).to_le_bytes());
        directory.extend(crc.to_le_bytes());
        let sections =
            [&directory, &self.tables, &self.dictionary, &self.hashes, &self.terms, frame];
        put_together(&head(), &sections.map(Vec::as_slice))
    }
}

/// The first 104 bytes of a file of height 7.
fn head() -> Vec<u8> {
    let mut head = b"nevepack".to_vec();
    head.extend([1_u32, 1].iter().flat_map(|word| word.to_le_bytes()));
    head.extend(7_u64.to_le_bytes());
    head.extend([1_u32, 6].iter().flat_map(|word| word.to_le_bytes()));
    head.extend(43112_u64.to_le_bytes());
    head.extend([7; 32]);
    head.extend([9; 32]);
    head
}

/// Makes a file of its first 104 bytes and its sections.
pub(crate) fn put_together(head: &[u8], sections: &[&[u8]; 6]) -> Vec<u8> {
    let total = 512 + sections.iter().map(|section| section.len()).sum::<usize>();
    let mut file = [head, &(total as u64).to_le_bytes()].concat();
    let mut offset = 512;
    for (kind, section) in (1_u32..).zip(sections) {
        let crc = if kind == 6 { 0 } else { crc32fast::hash(section) };
        file.extend([kind, crc].iter().flat_map(|word| word.to_le_bytes()));
        file.extend([offset, section.len() as u64].iter().flat_map(|word| word.to_le_bytes()));
        offset += section.len() as u64;
    }
    file.resize(508, 0);
    file.extend(crc32fast::hash(&file).to_le_bytes());
    sections.iter().for_each(|section| file.extend_from_slice(section));
    file
}

/// Returns the sections of a file.
pub(crate) fn sections(file: &[u8]) -> [&[u8]; 6] {
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    std::array::from_fn(|section| {
        let at = 112 + 24 * section;
        &file[word(at + 8)..word(at + 8) + word(at + 16)]
    })
}

pub(crate) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A zstd frame without its magic number.
fn zstd_frame(content: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(content, 9).unwrap().split_off(4)
}

/// A section with a length and a zstd frame.
pub(crate) fn section(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint(&mut out, content.len() as u64);
    out.extend(zstd_frame(content));
    out
}

/// A chunk: transactions, logs, and its four streams.
pub(crate) struct Chunk {
    pub(crate) txs: usize,
    pub(crate) logs: usize,
    pub(crate) streams: [Vec<u8>; 4],
}

/// Content of the first group, whose header is the template.
pub(crate) fn group(chunks: &[Chunk]) -> Vec<u8> {
    let mut out = [&[31][..], &[0; 31]].concat();
    varint(&mut out, chunks.len() as u64);
    for Chunk { txs, logs, streams } in chunks {
        [*txs, *logs, 0].iter().for_each(|sum| varint(&mut out, *sum as u64));
        streams.iter().for_each(|stream| varint(&mut out, stream.len() as u64));
    }
    chunks.iter().flat_map(|chunk| &chunk.streams).for_each(|stream| out.extend(stream));
    out
}

/// A frame in the form of fields, of groups of which the last has all transactions.
pub(crate) fn fields(txs: usize, groups: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![0];
    [txs, 0, groups.len()].iter().for_each(|count| varint(&mut out, *count as u64));
    let packed: Vec<_> = groups.iter().map(|content| zstd_frame(content)).collect();
    for (at, (group, packed)) in groups.iter().zip(&packed).enumerate() {
        varint(&mut out, packed.len() as u64);
        varint(&mut out, group.len() as u64);
        if at + 1 < groups.len() {
            out.extend([0; 3]);
        }
    }
    out.push(0);
    out.extend(vec![0; 64 * txs]);
    packed.iter().for_each(|packed| out.extend(packed));
    out
}

/// A frame in the form of texts. A read puts a value into the block at `place`, if there is one.
pub(crate) fn texts(place: Option<usize>, texts: [&str; 2]) -> Vec<u8> {
    let mut out = vec![2];
    varint(&mut out, place.map_or(0, |place| place as u64 + 1));
    for text in texts {
        let packed = zstd_frame(text.as_bytes());
        varint(&mut out, text.len() as u64);
        varint(&mut out, packed.len() as u64);
        out.extend(packed);
    }
    out
}
