//! Filters that upstreams opened for clients: only the issuer of an id knows it. Pure: the time
//! comes from the caller.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Deserialize;

/// Ids that are remembered at least, if no more than this are issued within [`AGE`].
const IDS_MAX: usize = 8192;
/// Time for which an id is remembered at least: a node forgets a filter that nobody asks for so long.
const AGE: Duration = Duration::from_mins(5);
/// Characters of an id. A node's have 34.
const ID_LEN_MAX: usize = 66;

/// Ids of two generations, each with the place of its issuer.
#[derive(Debug)]
pub(super) struct Issued {
    young: HashMap<Box<str>, usize>,
    old: HashMap<Box<str>, usize>,
    /// Begin of the young generation.
    since: Instant,
}

impl Issued {
    pub(super) fn new(now: Instant) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), since: now }
    }

    /// Notes the id in the response of the upstream at `place`.
    pub(super) fn note(&mut self, response: &[u8], place: usize, now: Instant) {
        if let Some(id) = id_of(response) {
            self.insert(id, place, now);
        }
    }

    /// Place of the upstream that issued an id. One that is asked for is remembered longer.
    pub(super) fn place(&mut self, id: &str, now: Instant) -> Option<usize> {
        self.turn(now);
        if let Some(place) = self.young.get(id) {
            return Some(*place);
        }
        let place = self.old.remove(id)?;
        self.insert(id.into(), place, now);
        Some(place)
    }

    fn insert(&mut self, id: Box<str>, place: usize, now: Instant) {
        self.turn(now);
        self.young.insert(id, place);
    }

    /// Forgets the old generation when the young one is full or has its age.
    fn turn(&mut self, now: Instant) {
        let age = now.duration_since(self.since);
        if self.young.len() < IDS_MAX && age < AGE {
            return;
        }
        self.old = std::mem::take(&mut self.young);
        if age >= 2 * AGE {
            self.old.clear();
        }
        self.since = now;
    }
}

fn id_of(response: &[u8]) -> Option<Box<str>> {
    #[derive(Deserialize)]
    struct Response<'a> {
        result: &'a str,
    }
    let id = serde_json::from_slice::<Response<'_>>(response).ok()?.result;
    (id.len() <= ID_LEN_MAX).then(|| id.to_ascii_lowercase().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(id: &str) -> Vec<u8> {
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{id}"}}"#).into_bytes()
    }

    #[test]
    fn issuer_of_an_id_is_remembered_while_it_is_asked_for() {
        let (mut now, minute) = (Instant::now(), Duration::from_mins(1));
        let mut issued = Issued::new(now);
        issued.note(&response("0xAb"), 1, now);
        issued.note(&response("0xcd"), 2, now);
        for _ in 0..10 {
            now += 4 * minute;
            assert_eq!(issued.place("0xab", now), Some(1));
        }
        assert_eq!(issued.place("0xcd", now), None);
        assert_eq!(issued.place("0xab", now + 10 * minute), None);
    }

    #[test]
    fn memory_of_ids_is_bounded() {
        let now = Instant::now();
        let mut issued = Issued::new(now);
        for number in 0..5 * IDS_MAX {
            issued.note(&response(&format!("0x{number:x}")), 0, now);
            assert!(issued.young.len() + issued.old.len() <= 2 * IDS_MAX);
        }
        assert_eq!(issued.place(&format!("0x{:x}", 4 * IDS_MAX), now), Some(0));
        assert_eq!(issued.place("0x0", now), None);
        for other in [response(&"1".repeat(ID_LEN_MAX + 1)), b"{}".to_vec(), b"[1".to_vec()] {
            assert!(id_of(&other).is_none());
        }
    }
}
