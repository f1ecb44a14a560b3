//! Objects and bytes of an archive by kind, and their cost.

use neve_archive::{Kind, Manifest};

/// Bytes that a read of a height brings at most: two pages.
const HEIGHT_BYTES: u64 = 128 << 10;
/// Bytes that a read of a hash brings at most: two pages of a span, then its height.
const HASH_BYTES: u64 = 2 * HEIGHT_BYTES;

/// Prices in dollars.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prices {
    pub(crate) gb_month: f64,
    pub(crate) million_gets: f64,
    pub(crate) million_puts: f64,
    pub(crate) gb_egress: f64,
}

/// Objects of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Amount {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}

/// A kind of read, with its requests and bytes at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ReadCost {
    pub(crate) name: &'static str,
    pub(crate) gets: u64,
    pub(crate) bytes: u64,
    /// Dollars for a million of such reads, or for one replica.
    pub(crate) dollars: f64,
}

/// Cost of an archive.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cost {
    /// Objects and bytes of each kind.
    pub(crate) kinds: [(&'static str, Amount); 6],
    /// All objects and bytes.
    pub(crate) all: Amount,
    /// Dollars a month.
    pub(crate) month: f64,
    /// Dollars for all PUT requests, once.
    pub(crate) puts: f64,
    /// Reads: a million heights, a million hashes, the fill of a replica.
    pub(crate) reads: [ReadCost; 3],
}

/// Objects and bytes of each kind.
fn kinds(manifest: &Manifest) -> [(&'static str, Amount); 6] {
    let amount = |kind: Kind| {
        let of_kind = manifest.objects().filter(|(name, _)| name.kind == kind);
        of_kind.fold(Amount::default(), |sum, (_, bytes)| sum.with(1, bytes))
    };
    [
        ("segment", amount(Kind::Segment)),
        ("span", amount(Kind::Span)),
        ("pages", amount(Kind::Pages)),
        ("filter", amount(Kind::Filter)),
        ("terms", amount(Kind::Terms)),
        ("links", amount(Kind::Links)),
    ]
}

/// Returns the cost of an archive.
pub(crate) fn cost(manifest: &Manifest, prices: &Prices) -> Cost {
    let kinds = kinds(manifest);
    let all = kinds.iter().fold(Amount::default(), |sum, (_, of)| sum.with(of.objects, of.bytes));
    let [(_, segments), ..] = kinds;
    let million = 1e6;
    let gets = |count: u64| float(count) / million * prices.million_gets;
    let egress = |bytes: u64| gb(bytes) * prices.gb_egress;
    let read = |name, count: u64, bytes: u64| {
        let dollars = million * (gets(count) + egress(bytes));
        ReadCost { name, gets: count, bytes, dollars }
    };
    let dollars = gets(segments.objects) + egress(segments.bytes);
    let Amount { objects, bytes } = segments;
    let replica = ReadCost { name: "replica", gets: objects, bytes, dollars };
    let reads = [read("height", 1, HEIGHT_BYTES), read("hash", 2, HASH_BYTES), replica];
    let month = gb(all.bytes) * prices.gb_month;
    let puts = float(all.objects) / million * prices.million_puts;
    Cost { kinds, all, month, puts, reads }
}

impl Amount {
    fn with(self, objects: u64, bytes: u64) -> Self {
        Self { objects: self.objects + objects, bytes: self.bytes + bytes }
    }
}

fn gb(bytes: u64) -> f64 {
    float(bytes) / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "dollars are rounded anyway")]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use neve_archive::{Chain, Digest, SegmentEntry};

    use super::*;

    #[test]
    fn year_of_segments_costs_what_the_prices_say() {
        let chain = Chain { chain_id: 1, genesis: Digest([0; 32]), range: 1024 };
        let mut manifest = Manifest::empty(chain);
        let (digest, last, parent) = (Digest([1; 32]), Digest([2; 32]), Digest([3; 32]));
        let segment =
            |n: u64| SegmentEntry { first: n * 1024, bytes: 10_000_000, digest, last, parent };
        manifest.segments = (0..100_u64).map(segment).collect();
        let prices =
            Prices { gb_month: 0.02, million_gets: 0.5, million_puts: 5.0, gb_egress: 0.1 };
        let cost = cost(&manifest, &prices);
        assert_eq!(cost.all, Amount { objects: 100, bytes: 1_000_000_000 });
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(cost.month, 0.02);
        near(cost.puts, 0.0005);
        let [height, hash, replica] = cost.reads;
        near(height.dollars, 0.5 + 131_072.0 * 1e-3 * 0.1);
        near(hash.dollars, 2.0 * height.dollars);
        near(replica.dollars, 0.1 + 100.0 / 1e6 * 0.5);
    }
}
