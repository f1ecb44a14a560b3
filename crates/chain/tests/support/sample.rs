//! Recorded heights to change, and what is said of the changed ones.

use neve_chain::{AdmittedKeys, Block, Checks, ProofError, Receipts};
use serde_json::{Value, json};

use crate::{
    rewrite::{Answers, node_text},
    support::chain,
};

pub(crate) const CHECKS: Checks =
    Checks { chain_id: 43_112, senders: true, admitted: AdmittedKeys::NONE };
/// Report of a change that is not noticed.
pub(crate) const ACCEPTED: &str = "";

/// A recorded height, taken apart.
#[derive(Clone)]
pub(crate) struct Sample {
    pub(crate) block: Value,
    pub(crate) receipts: Value,
}

impl Sample {
    /// Recorded heights: of each chain every `step`-th, and all that have something special.
    pub(crate) fn all() -> Vec<Self> {
        let mut samples = Vec::new();
        for (corpus, step) in
            [("v1.14.2/main", 40), ("v1.14.2/forks", 12), ("v1.14.2/apricot0", 20), ("v1.15.0", 9)]
        {
            let heights = chain(corpus).into_iter().enumerate().skip(2);
            samples.extend(heights.filter(|(number, _)| number % step == 1).map(|(_, height)| {
                let value = |text: &str| serde_json::from_str(text).unwrap();
                Self { block: value(&height.full), receipts: value(&height.receipts) }
            }));
        }
        assert!(samples.len() > 75);
        samples
    }

    pub(crate) fn answers(&self) -> Answers {
        Answers { block: node_text(&self.block), receipts: node_text(&self.receipts) }
    }

    /// Reason why it is refused.
    pub(crate) fn reason(&self) -> &'static str {
        reason(&self.answers())
    }

    pub(crate) fn is_asynchronous(&self) -> bool {
        self.block.get("settledHeight").is_some()
    }

    /// Chooses one of two, by whether the header commits to the block's own receipts.
    pub(crate) fn by_fork(
        &self,
        synchronous: &'static str,
        asynchronous: &'static str,
    ) -> &'static str {
        if self.is_asynchronous() { asynchronous } else { synchronous }
    }

    pub(crate) fn transactions(&mut self) -> &mut Vec<Value> {
        self.block["transactions"].as_array_mut().unwrap()
    }

    pub(crate) fn receipts(&mut self) -> &mut Vec<Value> {
        self.receipts.as_array_mut().unwrap()
    }
}

pub(crate) fn reason(answers: &Answers) -> &'static str {
    reason_by(answers, &CHECKS)
}

pub(crate) fn reason_by(answers: &Answers, checks: &Checks) -> &'static str {
    let proof = || {
        let block = Block::parse(answers.block.as_bytes())?.check(checks)?;
        Receipts::parse(answers.receipts.as_bytes())?.check(&block).map(drop)
    };
    proof().err().as_ref().map_or(ACCEPTED, ProofError::reason)
}

/// The keys of an object.
pub(crate) fn keys(object: &Value) -> Vec<String> {
    object.as_object().unwrap().keys().cloned().collect()
}

/// Another value of the same kind: of hex, the last digit is changed.
pub(crate) fn altered(value: &Value) -> Value {
    match value {
        Value::Null => json!("0x1111111111111111111111111111111111111111"),
        Value::Bool(value) => json!(!value),
        Value::String(text) if text == "0x" => json!("0x00"),
        Value::String(text) => {
            let (head, last) = text.split_at(text.len() - 1);
            json!(format!("{head}{:x}", u8::from_str_radix(last, 16).unwrap() ^ 1))
        }
        Value::Array(items) if items.is_empty() => json!(["0x0"]),
        other => panic!("{other}"),
    }
}

pub(crate) fn zero_hash() -> String {
    alloy_primitives::B256::ZERO.to_string()
}
