//! A packed file in the making, in one buffer: sections and frames come once, and are not copied again.

use std::collections::BTreeMap;

use crate::container::directory::{self, Directory};
use crate::container::layout::{FileHeader, HEADER_BYTES, Section};
use crate::error::{PackError, Part};
use crate::write::bounds::within;

/// Puts a file together in the order of its bytes. The first page and the directory are filled in at the end.
pub(super) struct FileWriter {
    header: FileHeader,
    bytes: Vec<u8>,
    /// Length and checksum of each section so far.
    sections: Vec<(usize, u32)>,
    frames_start: usize,
    bytes_max: usize,
}

impl FileWriter {
    /// Begins a file for texts of so many bytes.
    pub(super) fn new(
        header: FileHeader,
        text_bytes: usize,
        bytes_max: usize,
    ) -> Result<Self, PackError> {
        let start = HEADER_BYTES + directory::section_bytes(header.heights as usize);
        within(Part::File, start, bytes_max)?;
        // At once: a list that grows is there twice. Pages that nothing is written to take no memory.
        let mut bytes = Vec::with_capacity(text_bytes.clamp(start, bytes_max));
        bytes.resize(start, 0);
        let sections = vec![(start - HEADER_BYTES, 0)];
        Ok(Self { header, bytes, sections, frames_start: start, bytes_max })
    }

    /// Appends the section behind the last one.
    pub(super) fn section(&mut self, section: &[u8]) -> Result<(), PackError> {
        self.append(section)?;
        self.sections.push((section.len(), crc32fast::hash(section)));
        self.frames_start = self.bytes.len();
        Ok(())
    }

    /// Appends a frame to the last section.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), PackError> {
        within(Part::File, self.bytes.len() + bytes.len(), self.bytes_max)?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the file, and the bytes of its parts.
    pub(super) fn finish(
        mut self,
        directory: &Directory,
    ) -> (Vec<u8>, BTreeMap<&'static str, u64>) {
        let directory = directory.write();
        self.bytes[HEADER_BYTES..HEADER_BYTES + directory.len()].copy_from_slice(&directory);
        self.sections[0].1 = crc32fast::hash(&directory);
        // Frames have checksums of their own, in the directory.
        self.sections.push((self.bytes.len() - self.frames_start, 0));
        let page = self.header.page(&self.sections);
        self.bytes[..HEADER_BYTES].copy_from_slice(&page);
        let names = Section::ALL.map(Section::part);
        let parts = names.into_iter().zip(self.sections.iter().map(|(bytes, _)| *bytes as u64));
        (self.bytes, parts.collect())
    }
}
