//! Containers that are open around a place in a text.

/// Containers inside each other that Go still reads (`maxNestingDepth` in its scanner).
pub(crate) const DEPTH_MAX: usize = 10_000;

/// The bytes are not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The open containers, a bit each: whether it is an object. The newest are in one word, which is
/// all that most requests need.
#[derive(Default)]
pub(crate) struct Nesting {
    newest: u64,
    older: Vec<u64>,
    depth: usize,
}

impl Nesting {
    const WORD: usize = u64::BITS as usize;

    pub(crate) fn is_empty(&self) -> bool {
        self.depth == 0
    }

    /// Opens one. `outside` more are open around all of these.
    pub(crate) fn push(&mut self, is_object: bool, outside: usize) -> Result<(), Malformed> {
        // `encoding/json` refuses deeper texts, and a node with it.
        if outside + self.depth >= DEPTH_MAX {
            return Err(Malformed);
        }
        // A bit for each level: the newest word is full, so it goes to the older ones.
        if self.depth > 0 && self.depth.is_multiple_of(Self::WORD) {
            self.older.push(self.newest);
        }
        self.newest = self.newest << 1 | u64::from(is_object);
        self.depth += 1;
        Ok(())
    }

    /// Closes the innermost, which must be there.
    pub(crate) fn pop(&mut self) {
        self.depth -= 1;
        self.newest >>= 1;
        // The word has no level left: the one before it is the newest again.
        if self.depth.is_multiple_of(Self::WORD) {
            self.newest = self.older.pop().unwrap_or_default();
        }
    }

    /// True if the innermost is an object.
    pub(crate) fn is_object(&self) -> bool {
        self.newest & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_close_in_the_opposite_order() {
        let kinds: Vec<bool> = (0..DEPTH_MAX).map(|at| at * at % 7 < 3).collect();
        let mut open = Nesting::default();
        for is_object in &kinds {
            open.push(*is_object, 0).unwrap();
            assert_eq!(open.is_object(), *is_object);
        }
        assert_eq!(open.push(true, 0), Err(Malformed));
        for is_object in kinds.iter().rev() {
            assert_eq!(open.is_object(), *is_object);
            open.pop();
        }
        assert!(open.is_empty());
    }
}
