//! The JSON has the shape of recorded answers: the same keys in the same order, values of the same
//! form.

use std::collections::BTreeSet;

use neve_devnet::{Block, Chain, ChainConfig, Helicon, Part, Version};
use neve_jsonrpc::Rules;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::support::{self, rows};

/// Keys in their order and the forms of values: what is left of a JSON text without the numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shape {
    Null,
    Bool(bool),
    Number,
    /// Data of a fixed length.
    Bytes(usize),
    /// Data or quantity.
    Hex,
    /// The shapes that occur in it.
    List(BTreeSet<Self>),
    Object(Vec<(String, Self)>),
}

impl<'de> serde::Deserialize<'de> for Shape {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Shape, E> {
        Ok(Shape::Bool(value))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Shape, E> {
        Ok(Shape::Number)
    }

    fn visit_str<E>(self, text: &str) -> Result<Shape, E> {
        let digits = text.strip_prefix("0x").unwrap_or_else(|| panic!("no hex: {text}"));
        assert!(digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')), "{text}");
        // Nonces and whatever else may be as long by chance are told apart by their keys.
        Ok(match digits.len() {
            length @ (40 | 64 | 512) => Shape::Bytes(length / 2),
            _ => Shape::Hex,
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Shape, A::Error> {
        let mut shapes = BTreeSet::new();
        while let Some(shape) = items.next_element()? {
            shapes.insert(shape);
        }
        Ok(Shape::List(shapes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Shape, A::Error> {
        let mut shapes = Vec::new();
        while let Some((key, shape)) = members.next_entry::<String, Shape>()? {
            // By chance these are as long as a hash, or shorter.
            let plain = ["data", "input", "extraData", "blockExtraData", "r", "s"];
            let shape = if plain.contains(&key.as_str()) { Shape::Hex } else { shape };
            shapes.push((key, shape));
        }
        Ok(Shape::Object(shapes))
    }
}

fn shape(text: &[u8]) -> Shape {
    serde_json::from_slice(text).unwrap()
}

/// The shapes of objects in lists under a key, and the object without them.
fn split(shape: &Shape, key: &str) -> (BTreeSet<Shape>, Shape) {
    let Shape::Object(members) = shape else { panic!("{shape:?}") };
    let mut rest = members.clone();
    let list = rest.iter_mut().find(|(name, _)| name == key).expect(key);
    let Shape::List(items) = std::mem::replace(&mut list.1, Shape::Null) else { panic!("{key}") };
    (items, Shape::Object(rest))
}

/// All shapes of a chain, of each kind of object.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shapes {
    blocks: BTreeSet<Shape>,
    /// Without their receivers: not all kinds of creation were recorded.
    transactions: BTreeSet<Shape>,
    receivers: BTreeSet<Shape>,
    accesses: BTreeSet<Shape>,
    hashes: BTreeSet<Shape>,
    headers: BTreeSet<Shape>,
    receipts: BTreeSet<Shape>,
    logs: BTreeSet<Shape>,
}

impl Shapes {
    fn full(&mut self, text: &[u8]) {
        let (transactions, block) = split(&shape(text), "transactions");
        self.blocks.insert(block);
        for transaction in transactions {
            self.transaction(transaction);
        }
    }

    fn transaction(&mut self, transaction: Shape) {
        let Shape::Object(mut members) = transaction else { panic!("{transaction:?}") };
        for (key, shape) in &mut members {
            match (key.as_str(), std::mem::replace(shape, Shape::Null)) {
                ("accessList", Shape::List(accesses)) => self.accesses.extend(accesses),
                ("to", receiver) => drop(self.receivers.insert(receiver)),
                (_, other) => *shape = other,
            }
        }
        self.transactions.insert(Shape::Object(members));
    }

    fn hashes(&mut self, text: &[u8]) {
        self.hashes.insert(shape(text));
    }

    fn receipts(&mut self, text: &[u8]) {
        let Shape::List(receipts) = shape(text) else { panic!("a list") };
        for receipt in receipts {
            let (logs, receipt) = split(&receipt, "logs");
            self.receipts.insert(receipt);
            self.logs.extend(logs);
        }
    }

    fn made(blocks: impl Iterator<Item = Block>, rules: Rules) -> Self {
        let mut shapes = Self::default();
        for block in blocks {
            shapes.full(&block.answer(Part::Full, rules));
            shapes.hashes(&block.answer(Part::Hashes, rules));
            shapes.headers.insert(shape(&block.answer(Part::Header, rules)));
            shapes.receipts(block.receipts());
        }
        shapes
    }

    fn recorded(corpus: &str, heights: impl Fn(u64) -> bool) -> Self {
        let mut shapes = Self::default();
        for row in rows(&format!("{corpus}/blocks.jsonl.gz")) {
            let name = row["name"].as_str().unwrap();
            let mut parts = name.split('/').skip(1);
            let height: u64 = parts.next().unwrap().parse().unwrap();
            if !heights(height) {
                continue;
            }
            let text = row["response_body"].as_str().unwrap_or_default();
            let answer: Value = serde_json::from_str(text).unwrap_or_default();
            let result = answer["result"].to_string();
            match parts.next().unwrap() {
                "full" => shapes.full(exact(text)),
                "hashes" => shapes.hashes(exact(text)),
                "receipts" => shapes.receipts(exact(text)),
                _ => drop(result),
            }
        }
        for row in rows(&format!("{corpus}/methods.jsonl.gz")) {
            let text = row["response_body"].as_str().unwrap_or_default();
            let answer: Value = serde_json::from_str(text).unwrap_or_default();
            let number = &answer["result"]["number"];
            let pending = row["request_body"].as_str().is_some_and(|body| body.contains("pending"));
            let wanted = row["rpc"] == "eth_getHeaderByNumber" && number.is_string() && !pending;
            if wanted && heights(support::quantity(number)) {
                shapes.headers.insert(shape(exact(text)));
            }
        }
        shapes
    }
}

/// The text of `result`, as it came.
fn exact(text: &str) -> &[u8] {
    let start = text.find("\"result\":").expect("a result") + "\"result\":".len();
    text[start..].trim_end().strip_suffix('}').expect("an object").as_bytes()
}

fn compare(made: &Shapes, recorded: &Shapes) {
    assert_eq!(made.blocks, recorded.blocks);
    assert_eq!(made.transactions, recorded.transactions);
    assert_eq!(made.receivers, recorded.receivers);
    assert_eq!(made.accesses, recorded.accesses);
    assert_eq!(made.hashes, recorded.hashes);
    assert_eq!(made.headers, recorded.headers);
    assert_eq!(made.receipts, recorded.receipts);
    assert_eq!(made.logs, recorded.logs);
    assert!(made.transactions.len() == 4 && made.logs.len() == 2, "{:?}", made.logs);
}

#[test]
fn granite_blocks_of_v1_14() {
    let recorded = Shapes::recorded("v1.14.2/main", |_| true);
    let made = Shapes::made(Chain::new(ChainConfig::small(1)).take(800), Rules::BeforeHelicon);
    compare(&made, &recorded);
}

#[test]
fn helicon_blocks() {
    let recorded = Shapes::recorded("v1.15.0", |height| height > 201);
    let config = ChainConfig { helicon: Helicon::FromGenesis, ..ChainConfig::small(2) };
    let made = Shapes::made(Chain::new(config).skip(1).take(800), Rules::Helicon);
    compare(&made, &recorded);
}

/// Values that do not depend on the chain are the same, and in the same place.
#[test]
fn constants_are_the_same() {
    let rows = rows("v1.15.0/blocks.jsonl.gz");
    let recorded = |name: &str| {
        let row = rows.iter().find(|row| row["name"] == name).expect(name);
        let answer: Value = serde_json::from_str(row["response_body"].as_str().unwrap()).unwrap();
        answer["result"].clone()
    };
    let config = ChainConfig { helicon: Helicon::At(20), ..ChainConfig::small(3) };
    let blocks: Vec<Block> = Chain::new(config).take(30).collect();
    let pairs = [(0, "block/0/full", 14), (5, "block/5/full", 13), (25, "block/205/full", 14)];
    for (height, name, expected) in pairs {
        let recorded = recorded(name);
        let made: Value =
            serde_json::from_slice(&blocks[height].answer(Part::Full, Rules::Helicon)).unwrap();
        let constants = [
            "blobGasUsed",
            "blockGasCost",
            "difficulty",
            "excessBlobGas",
            "extDataGasUsed",
            "gasLimit",
            "baseFeePerGas",
            "minDelayExcess",
            "minPriceExponent",
            "miner",
            "mixHash",
            "nonce",
            "parentBeaconBlockRoot",
            "sha3Uncles",
            "totalDifficulty",
            "uncles",
            "timestamp",
            "timestampMilliseconds",
        ];
        let same = constants
            .iter()
            .filter(|key| made.get(**key).is_some() && made.get(**key) == recorded.get(**key));
        assert!(same.count() >= expected, "{height}: {made}\n{recorded}");
    }
}

#[test]
fn heads_of_all_three_forms() {
    let text = std::fs::read_to_string(
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/new_heads.jsonl"),
    );
    let config = ChainConfig { helicon: Helicon::At(3), ..ChainConfig::small(4) };
    let blocks: Vec<Block> = Chain::new(config).take(5).collect();
    let mut frames = 0;
    for line in text.unwrap().lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let frame = row["frame"].as_str().unwrap();
        let head = frame.trim_end().strip_suffix('}').expect("an object");
        let made = match row["from"].as_str().unwrap() {
            "v1.14.2" => blocks[1].head(Version::V1_14),
            "v1.15.0 before the switch" => blocks[2].head(Version::V1_15),
            "v1.15.0 after the switch" => blocks[4].head(Version::V1_15),
            other => panic!("{other}"),
        };
        assert_eq!(shape(&made), shape(exact(head)), "{line}");
        frames += 1;
    }
    assert_eq!(frames, 6);
}
