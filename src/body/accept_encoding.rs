//! Content codings that a client accepts.

use hyper::header::{ACCEPT_ENCODING, HeaderMap};
use neve_record::coding::Coding;

/// Codings that a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AcceptEncoding {
    gzip: bool,
    zstd: bool,
}

impl AcceptEncoding {
    /// Reads Accept-Encoding (RFC 9110, 12.5.3): codings that are named, and not with a weight of
    /// zero. `*` names none: a client that sends nothing else gets uncompressed bytes.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut accepts = Self::default();
        headers.get_all(ACCEPT_ENCODING).iter().for_each(|list| accepts.add(list.as_bytes()));
        accepts
    }

    /// Takes another of these headers in too.
    pub(crate) fn add(&mut self, list: &[u8]) {
        for entry in list.split(|byte| *byte == b',').filter_map(|entry| str::from_utf8(entry).ok())
        {
            let mut words = entry.split(';').map(str::trim);
            let name = words.next().unwrap_or_default();
            let wanted = words.all(|word| !is_zero_weight(word));
            if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
                self.gzip = wanted;
            } else if name.eq_ignore_ascii_case("zstd") {
                self.zstd = wanted;
            }
        }
    }

    /// True if it takes anything but plain bytes.
    pub(crate) fn any(self) -> bool {
        self.gzip || self.zstd
    }

    pub(crate) fn takes(self, coding: Coding) -> bool {
        match coding {
            Coding::Gzip => self.gzip,
            Coding::Zstd => self.zstd,
        }
    }
}

fn is_zero_weight(word: &str) -> bool {
    let weight = word.strip_prefix("q=").or_else(|| word.strip_prefix("Q="));
    weight.and_then(|weight| weight.trim().parse::<f32>().ok()).is_some_and(|weight| weight <= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_say_what_they_take() {
        let of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, text.parse().unwrap());
            let accepts = AcceptEncoding::of(&headers);
            (accepts.gzip, accepts.zstd)
        };
        assert_eq!(of("gzip, deflate, br, zstd"), (true, true));
        assert_eq!(of("GZIP;q=0.5"), (true, false));
        assert_eq!(of("gzip;q=0, zstd; q=0.001"), (false, true));
        assert_eq!(of("gzip; q=0.000"), (false, false));
        assert_eq!(of("identity"), (false, false));
        assert_eq!(AcceptEncoding::of(&HeaderMap::new()), AcceptEncoding::default());
    }
}
