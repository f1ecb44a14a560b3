//! The P-chain rows of the data: their checks need no code of this crate, only SHA-256 and the
//! linear codec, and keep the rows honest for those who serve them.

#![allow(clippy::big_endian_bytes, reason = "the linear codec is big-endian")]

use alloy_primitives::hex;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::support::text;

fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// CB58: base 58 of the bytes and the last four of their SHA-256.
fn cb58(bytes: &[u8]) -> String {
    let checksum = &sha256(bytes)[28..];
    bs58::encode([bytes, checksum].concat()).into_string()
}

/// The bytes of a CB58 id; checks its sum.
fn id(text: &Value) -> [u8; 32] {
    let bytes = bs58::decode(text.as_str().unwrap()).into_vec().unwrap();
    let id: [u8; 32] = bytes[..32].try_into().unwrap();
    assert_eq!(cb58(&id), text.as_str().unwrap());
    id
}

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().unwrap()).unwrap()
}

/// File `p_chain/blocks`: blockID = cb58(sha256(bytes)), container ids, heights, parents, and the
/// parent links 0-1-2-3 and 1000001-2-3.
#[test]
fn blocks_and_containers() {
    let rows: Vec<Value> = text("p_chain/blocks.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (mut links, mut containers) = (0, 0);
    for row in &rows {
        let block = bytes(&row["blockBytes"]);
        assert_eq!(cb58(&sha256(&block)), row["blockID"]);
        // Version and type, then for all of these types the parent and the height.
        assert_eq!(block[6..38], id(&row["parentID"]));
        let height = row["height"].as_u64().unwrap();
        assert_eq!(block[38..46], height.to_be_bytes());
        let parent = rows.iter().find(|other| {
            other["network"] == row["network"] && other["height"].as_u64() == height.checked_sub(1)
        });
        if let Some(parent) = parent {
            assert_eq!(parent["blockID"], row["parentID"]);
            links += 1;
        }
        if row["containerID"].is_string() {
            container(row, &block);
            containers += 1;
        }
    }
    assert_eq!((rows.len(), links, containers), (15, 5, 13));
}

/// A container holds the block; its id is taken of its bytes without the signature.
fn container(row: &Value, block: &[u8]) {
    let container = bytes(&row["containerBytes"]);
    let signed = match row["containerKind"].as_str().unwrap() {
        "raw" => {
            assert_eq!(container, block);
            &container[..]
        }
        "proposervm-option" => {
            assert!(container.ends_with(block));
            &container[..]
        }
        "proposervm-signed" => {
            let at = container.windows(block.len()).position(|window| window == block).unwrap();
            let end = at + block.len();
            let length = u32::from_be_bytes(container[end..end + 4].try_into().unwrap());
            assert_eq!(container.len(), end + 4 + length as usize);
            &container[..end]
        }
        kind => panic!("{kind}"),
    };
    assert_eq!(cb58(&sha256(signed)), row["containerID"]);
}

/// File `getTx_..`: encoded again with the linear codec (avalanchego, vms/platformvm/txs), the
/// SHA-256 is the id.
#[test]
fn a_transaction_answer() {
    let name = "SUDoK9P89PCcguskyof41fZexw7U3zubDP2DZpGf3HbFWwJ4E";
    let answer: Value = serde_json::from_str(&text(&format!("p_chain/getTx_{name}.json"))).unwrap();
    let tx = &answer["result"]["tx"];
    assert_eq!(tx["id"], name);
    let unsigned = &tx["unsignedTx"];
    let mut out = Encoder(vec![0, 0]);
    out.u32(15); // CreateChainTx
    out.number32(&unsigned["networkID"]);
    out.id(&unsigned["blockchainID"]);
    out.list(&unsigned["outputs"], Encoder::output);
    out.list(&unsigned["inputs"], Encoder::input);
    out.bytes(&bytes(&unsigned["memo"]));
    out.id(&unsigned["subnetID"]);
    let chain_name = unsigned["chainName"].as_str().unwrap();
    out.0.extend(u16::try_from(chain_name.len()).unwrap().to_be_bytes());
    out.0.extend(chain_name.as_bytes());
    out.id(&unsigned["vmID"]);
    out.list(&unsigned["fxIDs"], Encoder::id);
    out.bytes(&base64(unsigned["genesisData"].as_str().unwrap()));
    out.u32(10); // secp256k1fx.Input
    out.list(&unsigned["subnetAuthorization"]["signatureIndices"], Encoder::number32);
    out.list(&tx["credentials"], |out, credential| {
        out.u32(9); // secp256k1fx.Credential
        out.list(&credential["signatures"], |out, signature| out.0.extend(bytes(signature)));
    });
    assert_eq!(cb58(&sha256(&out.0)), name);
}

/// The linear codec.
struct Encoder(Vec<u8>);

impl Encoder {
    fn u32(&mut self, value: u32) {
        self.0.extend(value.to_be_bytes());
    }

    fn number32(&mut self, value: &Value) {
        self.u32(u32::try_from(value.as_u64().unwrap()).unwrap());
    }

    fn number64(&mut self, value: &Value) {
        self.0.extend(value.as_u64().unwrap().to_be_bytes());
    }

    fn id(&mut self, value: &Value) {
        self.0.extend(id(value));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).unwrap());
        self.0.extend(bytes);
    }

    fn list(&mut self, items: &Value, item: impl Fn(&mut Self, &Value)) {
        let items = items.as_array().unwrap();
        self.u32(u32::try_from(items.len()).unwrap());
        items.iter().for_each(|value| item(self, value));
    }

    fn output(&mut self, value: &Value) {
        self.id(&value["assetID"]);
        self.u32(7); // secp256k1fx.TransferOutput
        let output = &value["output"];
        self.number64(&output["amount"]);
        self.number64(&output["locktime"]);
        self.number32(&output["threshold"]);
        self.list(&output["addresses"], |out, address| {
            out.0.extend(bech32(address.as_str().unwrap()));
        });
    }

    fn input(&mut self, value: &Value) {
        self.id(&value["txID"]);
        self.number32(&value["outputIndex"]);
        self.id(&value["assetID"]);
        self.u32(5); // secp256k1fx.TransferInput
        self.number64(&value["input"]["amount"]);
        self.list(&value["input"]["signatureIndices"], Self::number32);
    }
}

/// Digits of `width` bits to bytes; what is left over is padding.
fn pack(digits: impl Iterator<Item = usize>, width: u32) -> Vec<u8> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_usize, 0);
    for digit in digits {
        (bits, count) = (bits << width | digit, count + width);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    bytes
}

/// The address in `P-avax1..`, BIP-173 without looking at the checksum: the id covers it.
fn bech32(address: &str) -> Vec<u8> {
    let digits = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
    let (_, data) = address.rsplit_once('1').unwrap();
    pack(data[..data.len() - 6].chars().map(|c| digits.find(c).unwrap()), 5)
}

fn base64(text: &str) -> Vec<u8> {
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    pack(text.trim_end_matches('=').chars().map(|c| digits.find(c).unwrap()), 6)
}
