//! A file system that can lose power: what was synced is there, of the rest anything.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{Done, without_end, write_sparse};

const PAGE: u64 = 4096;

#[derive(Clone, Default)]
struct Inode {
    /// Bytes that survive a crash.
    durable: Vec<u8>,
    /// Written since the last sync, in pages, each of which may or may not have reached the disk.
    pending: Vec<(u64, Vec<u8>)>,
}

/// The directory as the disk has it.
#[derive(Clone, Default)]
pub struct Image {
    inodes: Vec<Inode>,
    live: BTreeMap<String, usize>,
    /// The names at the last sync of the directory, and after each change since: a journal loses
    /// a tail of them, never one in the middle.
    names: Vec<BTreeMap<String, usize>>,
}

impl Image {
    pub fn new() -> Self {
        Self { names: vec![BTreeMap::new()], ..Self::default() }
    }

    pub fn apply(&mut self, done: &Done) {
        match done {
            Done::Allocate(name, len) => {
                self.inodes.push(Inode { durable: vec![0; *len as usize], pending: Vec::new() });
                self.live.insert(name.clone(), self.inodes.len() - 1);
            }
            Done::Write(name, offset, bytes) => self.write(name, *offset, bytes),
            Done::Punch(name, offset) => {
                let len = self.inode(name).durable.len() as u64;
                self.write(name, *offset, &vec![0; (len - offset) as usize]);
            }
            Done::Sync(name) => self.inode(name).flush(),
            Done::Rename(from, to) => {
                let inode = self.live.remove(from).unwrap();
                self.live.insert(to.clone(), inode);
            }
            Done::Remove(name) => drop(self.live.remove(name).unwrap()),
            Done::SyncDir => self.names = vec![self.live.clone()],
        }
        if matches!(done, Done::Allocate(..) | Done::Rename(..) | Done::Remove(_)) {
            self.names.push(self.live.clone());
        }
    }

    fn inode(&mut self, name: &str) -> &mut Inode {
        &mut self.inodes[self.live[name]]
    }

    fn write(&mut self, name: &str, offset: u64, bytes: &[u8]) {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let room = (PAGE - at % PAGE).min(rest.len() as u64) as usize;
            let (page, after) = rest.split_at(room);
            self.inode(name).pending.push((at, page.to_vec()));
            (at, rest) = (at + room as u64, after);
        }
    }

    /// Writes into `dir` what is there after the process was killed: everything.
    pub fn killed(&self, dir: &Path) {
        self.materialise(dir, &self.live, |_| true);
    }

    /// Writes into `dir` what is there after power was lost; `coin` decides what got through.
    pub fn powerless(&self, dir: &Path, mut coin: impl FnMut(u64) -> u64) {
        let names = &self.names[coin(self.names.len() as u64) as usize];
        let chance = coin(4); // from losing nearly everything to losing nearly nothing
        self.materialise(dir, names, |_| coin(4) <= chance);
    }

    fn materialise(
        &self,
        dir: &Path,
        names: &BTreeMap<String, usize>,
        mut through: impl FnMut(u64) -> bool,
    ) {
        fs::create_dir_all(dir).unwrap();
        for (name, inode) in names {
            let bytes = self.inodes[*inode].after(&mut through);
            write_sparse(&dir.join(name), without_end(&bytes), bytes.len() as u64);
        }
    }
}

impl Inode {
    fn flush(&mut self) {
        self.durable = self.after(|_| true);
        self.pending.clear();
    }

    /// The bytes, with those pending ones that got through.
    fn after(&self, mut through: impl FnMut(u64) -> bool) -> Vec<u8> {
        let mut after = self.durable.clone();
        for (offset, bytes) in self.pending.iter().filter(|(offset, _)| through(*offset)) {
            after[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        after
    }
}
