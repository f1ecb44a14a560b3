//! The way of a relayed request, in `Via` (RFC 9110, 7.6.3): two neves that relay to each other
//! would pass a request around for ever.

use std::fmt::Write;

use hyper::header::{HeaderMap, HeaderValue, VIA};

use super::failure::Failure;

/// Neves that a request may have come through.
const HOPS_MAX: usize = 4;
/// Begin of the name of a neve in `Via`; its number in 16 hex digits follows.
const NAME: &str = "1.1 neve-";

/// Neves that a request came through, by their numbers. No other part of `Via` is passed on: it may
/// name a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hops {
    numbers: [u64; HOPS_MAX],
    len: usize,
}

/// The hop that this neve adds to `Via`.
pub(crate) struct OwnHop {
    /// Number that no other neve has.
    pub(super) number: u64,
    /// Value of a request that came through no other neve, as nearly all do.
    value: HeaderValue,
}

impl OwnHop {
    pub(super) fn new(number: u64) -> Self {
        let value = HeaderValue::try_from(format!("{NAME}{number:016x}"));
        Self { number, value: value.expect("a name of letters and digits") }
    }
}

impl Hops {
    /// Reads the way of a request to the neve of number `own`, unless it may not go on.
    pub(crate) fn of(headers: &HeaderMap, own: u64) -> Result<Self, Failure> {
        let mut hops = Self::default();
        let values = headers.get_all(VIA).iter().filter_map(|value| value.to_str().ok());
        for number in values.flat_map(|value| value.split(',')).filter_map(number) {
            // More hops than there are places are taken for a circle, too.
            let place = hops.numbers.get_mut(hops.len).filter(|_| number != own);
            *place.ok_or(Failure::Loop)? = number;
            hops.len += 1;
        }
        Ok(hops)
    }

    /// Value of `Via` of a request that this neve makes.
    pub(super) fn value(&self, own: &OwnHop) -> Option<HeaderValue> {
        if self.len == 0 {
            return Some(own.value.clone());
        }
        let mut text = String::with_capacity((self.len + 1) * (NAME.len() + 18));
        for number in &self.numbers[..self.len] {
            let _ = write!(text, "{NAME}{number:016x}, "); // to a String, which cannot fail
        }
        let _ = write!(text, "{NAME}{:016x}", own.number);
        HeaderValue::try_from(text).ok()
    }
}

fn number(hop: &str) -> Option<u64> {
    let digits = hop.trim().strip_prefix(NAME)?;
    u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (VIA, value.parse().unwrap())).collect()
    }

    #[test]
    fn way_of_a_request_grows_by_this_neve_and_names_nobody_else() {
        let via = headers(&["1.1 client.example, 1.1 neve-000000000000000a", "1.0 fred"]);
        let hops = Hops::of(&via, 0xff).unwrap();
        let value = hops.value(&OwnHop::new(0xff)).unwrap();
        assert_eq!(value, "1.1 neve-000000000000000a, 1.1 neve-00000000000000ff");
        assert_eq!(Hops::default().value(&OwnHop::new(1)).unwrap(), "1.1 neve-0000000000000001");
        let odd = headers(&["1.1 neve-zz, 1.1 neve-1, neve-000000000000000a, \u{e9}"]);
        assert_eq!(Hops::of(&odd, 1), Ok(Hops::default()));
    }

    #[test]
    fn request_that_was_here_or_came_far_does_not_go_on() {
        let mut all = (0..HOPS_MAX).map(|n| format!("1.1 neve-{n:016x}")).collect::<Vec<_>>();
        let value = |all: &[String]| headers(&[&all.join(",")]);
        assert!(Hops::of(&value(&all), 99).is_ok());
        assert_eq!(Hops::of(&value(&all), 2), Err(Failure::Loop));
        all.push(format!("1.1 neve-{:016x}", 50));
        assert_eq!(Hops::of(&value(&all), 99), Err(Failure::Loop));
    }
}
