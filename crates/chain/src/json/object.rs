//! The kinds of object that answers are made of, and how closely a text must follow them.

use crate::refusal::ProofError;

/// Strictness with which a text must follow avalanchego's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Exactly: no white space, each object's keys once and in the node's order (maps are sorted,
    /// structs have theirs), every member that a C-chain node writes. What neve serves is the
    /// upstream's own bytes, so this is the form for anything that came from an upstream.
    Node,
    /// JSON in any layout and order, perhaps without the members that are not part of the
    /// header. For blocks that other tools wrote down; never for bytes that will be served.
    Any,
}

/// Condition under which an object must have a member.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Always,
    /// Every C-chain node writes it, but other tools and other chains leave it out.
    FromNode,
    /// Depends on the fork, the kind or the method.
    Optional,
}

/// A member that an object may have.
pub(crate) type Key = (&'static str, Presence);

/// Description of a kind of object.
pub(crate) struct Object {
    /// Name in error messages.
    pub(crate) name: &'static str,
    /// True if a Go map wrote it: then keys are in ascending order. A struct's are in the order of
    /// its fields.
    pub(crate) sorted: bool,
    /// Keys in the order in which a node writes them, at most 64.
    pub(crate) keys: &'static [Key],
}

impl Object {
    /// Index of a key. `next` is where it is if the node's order is kept and nothing left out.
    fn find(&self, key: &[u8], next: usize) -> Option<usize> {
        let is = |(name, _): &Key| name.as_bytes() == key;
        let ahead = self.keys.get(next..)?.iter().position(is).map(|steps| next + steps);
        // Before `next` it is out of order or there twice. `take` says which.
        ahead.or_else(|| self.keys.iter().position(is))
    }

    /// The known key that is this one but for case.
    pub(crate) fn find_ignoring_case(&self, key: &[u8]) -> Option<&'static str> {
        let is = |(name, _): &&Key| name.as_bytes().eq_ignore_ascii_case(key);
        self.keys.iter().find(is).map(|(name, _)| *name)
    }

    fn require(&self, seen: u64, form: Form) -> Result<(), ProofError> {
        let wanted = |need: Presence| match form {
            Form::Node => need != Presence::Optional,
            Form::Any => need == Presence::Always,
        };
        let missing = |(index, (_, need)): &(usize, &Key)| seen >> index & 1 == 0 && wanted(*need);
        match self.keys.iter().enumerate().find(missing) {
            Some((_, (key, _))) => Err(ProofError::MissingKey { object: self.name, key }),
            None => Ok(()),
        }
    }
}

/// Unknown keys that an object may have; more are refused, so that looking for one that is given
/// twice stays cheap. Arbitrary: more than releases add, few enough to compare.
const UNKNOWN_KEYS_MAX: usize = 8;

/// The keys of one object so far.
pub(crate) struct Keys<'a> {
    object: &'static Object,
    /// Bit per known key.
    seen: u64,
    /// Index of the next known key if none is left out.
    next: usize,
    last: &'a [u8],
    /// An unknown key stood where only the end of the object may follow.
    ended: Option<&'a [u8]>,
    unknown: [&'a [u8]; UNKNOWN_KEYS_MAX],
    unknown_count: usize,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(object: &'static Object) -> Self {
        Self {
            object,
            seen: 0,
            next: 0,
            last: b"",
            ended: None,
            unknown: [b""; UNKNOWN_KEYS_MAX],
            unknown_count: 0,
        }
    }

    pub(crate) fn object(&self) -> &'static Object {
        self.object
    }

    /// Notes a key; the error is what is wrong with it.
    pub(crate) fn take(
        &mut self,
        key: &'a [u8],
        form: Form,
    ) -> Result<Option<&'static str>, &'static str> {
        let Some(index) = self.object.find(key, self.next) else {
            return self.take_unknown(key, form).map(|()| None);
        };
        // JSON readers differ in which of the two they take.
        if self.seen >> index & 1 == 1 {
            return Err("a key that is given twice");
        }
        // Behind `ended` too: then the unknown key was not at the end.
        let misplaced =
            || index < self.next || self.ended.is_some() || (self.object.sorted && key < self.last);
        if form == Form::Node && misplaced() {
            return Err("keys that are not in the node's order");
        }
        self.seen |= 1 << index;
        self.next = index + 1;
        Ok(self.object.keys.get(index).map(|(name, _)| *name))
    }

    /// A later release's key: at the end, or at its place in a sorted object.
    fn take_unknown(&mut self, key: &'a [u8], form: Form) -> Result<(), &'static str> {
        if self.unknown.iter().take(self.unknown_count).any(|other| *other == key) {
            return Err("a key that is given twice");
        }
        let slot = self.unknown.get_mut(self.unknown_count).ok_or("many unknown keys")?;
        *slot = key;
        self.unknown_count += 1;
        if form == Form::Node {
            // Before the first known key the index wraps, and finds none.
            let known = self.object.keys.get(self.next.wrapping_sub(1));
            let is_in_place = self.object.sorted
                && key > self.last
                && known.is_none_or(|(name, _)| key > name.as_bytes());
            if is_in_place {
                self.last = key;
            } else {
                self.ended.get_or_insert(key);
            }
        }
        Ok(())
    }

    /// The unknown key that stood where only the end of the object may follow.
    pub(crate) fn misplaced(&self) -> Option<&'a [u8]> {
        self.ended
    }

    /// Checks, at the end of the object, that it had all that it must have.
    pub(crate) fn finish(&self, form: Form) -> Result<(), ProofError> {
        self.object.require(self.seen, form)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cursor::Cursor;
    use super::*;

    static MAP: Object = Object {
        name: "map",
        sorted: true,
        keys: &[("b", Presence::Always), ("d", Presence::FromNode), ("f", Presence::Optional)],
    };
    static STRUCT: Object = Object {
        name: "struct",
        sorted: false,
        keys: &[("z", Presence::Always), ("a", Presence::Optional)],
    };

    fn keys(
        object: &'static Object,
        text: &str,
        form: Form,
    ) -> Result<Vec<&'static str>, ProofError> {
        let mut found = Vec::new();
        Cursor::read(text.as_bytes(), form, |cursor| {
            cursor.object(object, |cursor, key, start| {
                assert_eq!(text.as_bytes()[start as usize], b'"');
                found.push(key);
                cursor.skip()
            })
        })?;
        Ok(found)
    }

    fn reason(object: &'static Object, text: &str, form: Form) -> &'static str {
        keys(object, text, form).unwrap_err().reason()
    }

    #[test]
    fn a_map_is_sorted() {
        let good = r#"{"a":0,"b":1,"c":2,"d":3,"f":4,"g":5}"#;
        assert_eq!(keys(&MAP, good, Form::Node).unwrap(), ["b", "d", "f"]);
        let at_the_end = r#"{"b":1,"d":3,"f":4,"e":5,"a":6}"#;
        assert_eq!(keys(&MAP, at_the_end, Form::Node).unwrap(), ["b", "d", "f"]);
        let twice = [r#"{"b":1,"b":1,"d":1}"#, r#"{"b":1,"c":1,"c":1,"d":1}"#];
        for wrong in twice.into_iter().chain([r#"{"d":1,"b":1}"#, r#"{"b":1,"e":1,"d":1}"#]) {
            assert_eq!(reason(&MAP, wrong, Form::Node), "shape", "{wrong}");
        }
        assert_eq!(reason(&MAP, r#"{"b":1,"a":1,"d":1}"#, Form::Node), "unknown_key");
        assert_eq!(keys(&MAP, r#"{ "d":1, "b":1 }"#, Form::Any).unwrap(), ["d", "b"]);
        assert_eq!(reason(&MAP, r#"{"b":1,"d":1,"b":1}"#, Form::Any), "shape");
    }

    #[test]
    fn a_struct_has_its_own_order() {
        assert_eq!(keys(&STRUCT, r#"{"z":1,"a":1,"m":1,"b":1}"#, Form::Node).unwrap(), ["z", "a"]);
        for wrong in [r#"{"a":1,"z":1}"#, r#"{"z":1,"z":1}"#] {
            assert_eq!(reason(&STRUCT, wrong, Form::Node), "shape", "{wrong}");
        }
        for unknown in [r#"{"z":1,"m":1,"a":1}"#, r#"{"z":1,"m":1,"m":1}"#] {
            assert_eq!(reason(&STRUCT, unknown, Form::Node), "unknown_key", "{unknown}");
        }
        let many = r#"{"z":1,"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1}"#;
        assert_eq!(reason(&STRUCT, many, Form::Node), "unknown_key");
    }

    #[test]
    fn members_are_required() {
        assert_eq!(reason(&MAP, r#"{"d":1}"#, Form::Node), "missing_key");
        assert_eq!(reason(&MAP, r#"{"b":1}"#, Form::Node), "missing_key");
        assert!(keys(&MAP, r#"{"b":1}"#, Form::Any).is_ok());
        assert_eq!(reason(&MAP, "{}", Form::Any), "missing_key");
    }

    #[test]
    fn keys_cannot_be_spelled_with_escapes() {
        assert_eq!(reason(&MAP, r#"{"\u0062":1}"#, Form::Any), "json");
        assert_eq!(reason(&MAP, "{\"b\u{7f}\":1}", Form::Any), "json");
    }
}
