//! Filters that upstreams opened for clients: only the issuer of an id knows it. Pure: the time
//! comes from the caller.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::shared::ClientAddress;

/// Ids that are remembered at least, if no more than this are issued within [`AGE`].
const IDS_MAX: usize = 8192;
/// Ids of one address that are remembered, of those that were issued or moved within [`AGE`]: beyond them an
/// address makes neve forget its own, and not those of others.
const ADDRESS_IDS_MAX: usize = 1024;
/// Least time for which an id is remembered: a node removes a filter that no client polls for as long.
const AGE: Duration = Duration::from_mins(5);
/// Characters of the id of a filter or subscription. A node's have at most 34.
pub(super) const ID_LEN_MAX: usize = 66;

/// Issuer of an id, and the client that it was issued to.
#[derive(Debug, Clone, Copy)]
struct Issuer {
    place: usize,
    address: ClientAddress,
}

/// Ids of two generations, each with its issuer.
#[derive(Debug)]
pub(super) struct Issued {
    young: HashMap<Box<str>, Issuer>,
    old: HashMap<Box<str>, Issuer>,
    /// Ids of the young generation by address, oldest first.
    shares: HashMap<ClientAddress, VecDeque<Box<str>>>,
    /// Begin of the young generation.
    since: Instant,
}

impl Issued {
    pub(super) fn new(now: Instant) -> Self {
        let (young, old, shares) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { young, old, shares, since: now }
    }

    /// Notes the ids in the response of the upstream at `place` to a call, or to those of a batch whose
    /// ids are in `calls`, of the client at `address`.
    pub(super) fn note(
        &mut self,
        response: &[u8],
        calls: &[Box<[u8]>],
        (place, address): (usize, ClientAddress),
        now: Instant,
    ) {
        for id in ids_of(response, calls) {
            self.insert(id, Issuer { place, address }, now);
        }
    }

    /// Place of the upstream that issued an id. One that is asked for is remembered longer.
    pub(super) fn place(&mut self, id: &str, now: Instant) -> Option<usize> {
        self.turn(now);
        if let Some(issuer) = self.young.get(id) {
            return Some(issuer.place);
        }
        let issuer = self.old.remove(id)?;
        self.insert(id.into(), issuer, now);
        Some(issuer.place)
    }

    /// Ids of the issuers that `place` finds a new place for.
    pub(super) fn moved(&self, place: impl Fn(usize) -> Option<usize>) -> Self {
        let moved = |ids: &HashMap<Box<str>, Issuer>| {
            let moved = ids.iter().filter_map(|(id, issuer)| {
                let place = place(issuer.place)?;
                Some((id.clone(), Issuer { place, ..*issuer }))
            });
            moved.collect()
        };
        let (young, old) = (moved(&self.young), moved(&self.old));
        // Shares may name ids that found no new place: to remove one later does nothing.
        Self { young, old, shares: self.shares.clone(), since: self.since }
    }

    fn insert(&mut self, id: Box<str>, issuer: Issuer, now: Instant) {
        self.turn(now);
        if self.young.insert(id.clone(), issuer).is_some() {
            return; // its address has it already
        }
        let share = self.shares.entry(issuer.address).or_default();
        share.push_back(id);
        if share.len() > ADDRESS_IDS_MAX
            && let Some(oldest) = share.pop_front()
        {
            self.young.remove(&oldest);
        }
    }

    /// Forgets the old generation when the young one is full or has its age.
    fn turn(&mut self, now: Instant) {
        let age = now.duration_since(self.since);
        if self.young.len() < IDS_MAX && age < AGE {
            return;
        }
        self.old = std::mem::take(&mut self.young);
        self.shares.clear();
        // No filter was asked for since the young generation had its age.
        if age >= 2 * AGE {
            self.old.clear();
        }
        self.since = now;
    }
}

/// Response to one call.
#[derive(Deserialize)]
struct IssuingResponse<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

impl IssuingResponse<'_> {
    /// Result, if it may be the id of a filter.
    fn filter(&self) -> Option<Box<str>> {
        let id: &str = serde_json::from_str(self.result?.get()).ok()?;
        (id.len() <= ID_LEN_MAX).then(|| id.to_ascii_lowercase().into())
    }
}

/// Ids of filters in a response. In that to a batch, they are the results of `calls` alone.
fn ids_of(response: &[u8], calls: &[Box<[u8]>]) -> Vec<Box<str>> {
    if response.trim_ascii_start().first() != Some(&b'[') {
        let one = serde_json::from_slice::<IssuingResponse<'_>>(response).ok();
        return one.and_then(|one| one.filter()).into_iter().collect();
    }
    let all: Vec<IssuingResponse<'_>> = serde_json::from_slice(response).unwrap_or_default();
    let opened = all.iter().filter(|one| calls.iter().any(|id| **id == *one.id.get().as_bytes()));
    opened.filter_map(IssuingResponse::filter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tests::address;

    fn response(id: &str) -> Vec<u8> {
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{id}"}}"#).into_bytes()
    }

    #[test]
    fn issuer_of_an_id_is_remembered_while_it_is_asked_for() {
        let (mut now, minute) = (Instant::now(), Duration::from_mins(1));
        let mut issued = Issued::new(now);
        issued.note(&response("0xAb"), &[], (1, address(1)), now);
        issued.note(&response("0xcd"), &[], (2, address(1)), now);
        for _ in 0..10 {
            now += 4 * minute;
            assert_eq!(issued.place("0xab", now), Some(1));
        }
        assert_eq!(issued.place("0xcd", now), None);
        assert_eq!(issued.place("0xab", now + 10 * minute), None);
    }

    #[test]
    fn ids_move_with_their_issuers_and_leave_with_them() {
        let (now, minute) = (Instant::now(), Duration::from_mins(1));
        let mut issued = Issued::new(now);
        issued.note(&response("0xa0"), &[], (1, address(1)), now);
        let later = now + 5 * minute;
        issued.note(&response("0xb0"), &[], (0, address(1)), later);
        issued.note(&response("0xb1"), &[], (1, address(1)), later);
        let mut moved = issued.moved(|place| (place == 1).then_some(7));
        let places = ["0xa0", "0xb0", "0xb1"].map(|id| moved.place(id, later));
        assert_eq!(places, [Some(7), None, Some(7)]);
    }

    #[test]
    fn ids_in_a_batch_are_those_of_the_calls_that_open_filters() {
        let [one, other] = [r#"{"id":7,"result":"0xA1"}"#, r#"{"id":"x","result":"0xb2"}"#];
        let failed = r#"{"id":8,"error":{"code":1,"message":"x"}}"#;
        let batch = format!("[{one},{failed},{other}]");
        let of = |calls: &[&str]| {
            let calls: Vec<_> = calls.iter().map(|id| id.as_bytes().into()).collect();
            ids_of(batch.as_bytes(), &calls)
        };
        assert_eq!(of(&["7", "8"]), [Box::from("0xa1")]);
        assert_eq!(of(&["\"x\"", "7"]), ["0xa1", "0xb2"].map(Box::from));
        assert!(of(&["9"]).is_empty());
        let pair = format!("[{one},{other}]");
        assert!(ids_of(pair.as_bytes(), &[]).is_empty(), "an array of two is no response");
    }

    #[test]
    fn memory_of_ids_is_bounded() {
        let now = Instant::now();
        let mut issued = Issued::new(now);
        for number in 0..5 * IDS_MAX {
            let client = address((number % 200) as u8);
            issued.note(&response(&format!("0x{number:x}")), &[], (0, client), now);
            assert!(issued.young.len() + issued.old.len() <= 2 * IDS_MAX);
        }
        assert_eq!(issued.place(&format!("0x{:x}", 4 * IDS_MAX), now), Some(0));
        assert_eq!(issued.place("0x0", now), None);
        for other in [response(&"1".repeat(ID_LEN_MAX + 1)), b"{}".to_vec(), b"[1".to_vec()] {
            assert!(ids_of(&other, &[]).is_empty());
        }
    }

    #[test]
    fn address_that_opens_many_filters_forgets_its_own_and_none_of_others() {
        let now = Instant::now();
        let mut issued = Issued::new(now);
        issued.note(&response("0xa0"), &[], (1, address(1)), now);
        for number in 0..4 * IDS_MAX {
            let id = format!("0xf{number:x}");
            issued.note(&response(&id), &[], (2, address(2)), now);
        }
        assert_eq!(issued.place("0xa0", now), Some(1));
        assert_eq!(issued.place("0xf0", now), None);
        assert_eq!(issued.place(&format!("0xf{:x}", 4 * IDS_MAX - 1), now), Some(2));
        assert_eq!(issued.young.len(), ADDRESS_IDS_MAX + 1);
    }
}
