//! Manifests before this one: the next one gets a link to this, and older links go to objects.

use super::{Manifest, WHAT};
use crate::digest::{Digest, object_digest};
use crate::error::ArchiveError;
use crate::links::{Descent, LINK_OBJECTS_MAX, LINKS_MAX, Links, chained};
use crate::name::{Kind, ObjectName};

impl Manifest {
    /// Returns a copy that follows this manifest, whose SHA-256 is given: its sequence is the next one. If this one
    /// has [`LINKS_MAX`] links, the object of [`Self::full_links`] must be put first.
    #[must_use]
    pub fn following(&self, link: Digest) -> Self {
        let Self { before, sequence, .. } = *self;
        let mut descent = self.descent.clone();
        if let Some((name, _)) = self.full_links() {
            descent.objects.push(name.digest);
            let beyond = descent.objects.len().saturating_sub(LINK_OBJECTS_MAX);
            descent.objects.drain(..beyond); // a manifest is bounded, however often it changes
            (descent.after, descent.links) = (before, Vec::new());
        }
        descent.links.push(link);
        let sequence = sequence.saturating_add(1);
        Self { sequence, before: Some(chained(before, link)), descent, ..self.clone() }
    }

    /// Returns the links that this manifest itself has. They must lead to its `before`.
    pub fn newest_links(&self) -> Links {
        let Descent { after, ref links, .. } = self.descent;
        let first = self.sequence.saturating_sub(links.len() as u64);
        Links { first, after, links: links.clone() }
    }

    /// Returns the object that the manifest behind this one names, with all links of this one; `None` if there is space
    /// for another link.
    pub fn full_links(&self) -> Option<(ObjectName, Vec<u8>)> {
        if self.descent.links.len() < LINKS_MAX {
            return None;
        }
        let links = self.newest_links();
        let bytes = links.to_bytes();
        Some((self.links_name(links.first, object_digest(&bytes)), bytes))
    }

    /// Returns the names of the objects with links, the newest first.
    pub fn link_objects(&self) -> impl Iterator<Item = ObjectName> + '_ {
        let newest = self.newest_links().first;
        let objects = (1..).zip(self.descent.objects.iter().rev());
        objects.map(move |(below, digest)| {
            self.links_name(newest.saturating_sub(below * LINKS_MAX as u64), *digest)
        })
    }

    fn links_name(&self, first: u64, digest: Digest) -> ObjectName {
        ObjectName { chain_id: self.chain_id, kind: Kind::Links, first, digest }
    }

    pub(super) fn check_descent(&self) -> Result<(), ArchiveError> {
        let Descent { objects, links, .. } = &self.descent;
        let before = (objects.len() * LINKS_MAX + links.len()) as u64;
        if objects.len() > LINK_OBJECTS_MAX || links.len() > LINKS_MAX || before >= self.sequence {
            return Err(ArchiveError::malformed(WHAT, "more links than manifests before"));
        }
        let first = self.sequence.saturating_sub(links.len() as u64);
        if !links.is_empty() && (first == 1) != self.descent.after.is_none() {
            return Err(ArchiveError::malformed(WHAT, "a first link that follows no chain"));
        }
        Ok(())
    }
}
