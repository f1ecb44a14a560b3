//! Atomic transactions on their way: what the node must be asked first, issuing, accepting.

use std::time::Duration;

use alloy_primitives::{B256, U256, hex};
use serde_json::{Value, json};

use super::atomic::{self, Network, Utxo};
use super::kinds::{Kind, Made, payment};
use super::{Feed, Miss, quantity, rpc};

/// The X-chain may start to answer after the C-chain; acceptance takes 1 to 3 s.
const LIMIT: Duration = Duration::from_mins(1);
/// The funded key where addresses are written in bech32, on the network `local` (id 12345).
const OWNER_LOCAL: &str = "local18jma8ppw3nhx5r4ap8clazz0dps7rv5u00z96u";
/// Owner on a network with any other id.
const OWNER_CUSTOM: &str = "custom18jma8ppw3nhx5r4ap8clazz0dps7rv5u9xde7p";
/// The id of the network `local`.
const LOCAL: u32 = 12345;
/// Least amount of an import: ten AVAX.
const IMPORTED: u64 = 10_000_000_000;
/// Least amount of an export: a hundredth AVAX.
const EXPORTED: u64 = 10_000_000;
/// Below this (in wei, one AVAX) the exporting account is paid first.
const POOR: u64 = 1_000_000_000_000_000_000;

/// An atomic transaction that the node has taken.
pub(crate) struct Issued {
    kind: Kind,
    cb58: String,
}

impl Feed<'_> {
    /// Brings AVAX from the X-chain: an export there, which makes no C-chain block, and an import
    /// here, which makes one without any ordinary transaction.
    pub(crate) fn import(&mut self) -> Made {
        let net = self.network();
        let utxo = self.send_from_x_chain(&net);
        let to = self.exporter.address();
        let fee = atomic::fee(&atomic::import(&net, &utxo, to, 0), self.base_fee());
        let tx = atomic::signed(atomic::import(&net, &utxo, to, fee), &self.funded);
        let issued = self.issue(Kind::Import, &tx);
        self.accepted(&issued)
    }

    /// Sends AVAX to the X-chain. The list ends with the export; before it may stand the payment
    /// that gave the exporting account something to send.
    pub(crate) fn export(&mut self) -> Vec<Made> {
        let mut made = self.fund_exporter();
        let issued = self.issue_export();
        made.push(self.accepted(&issued));
        made
    }

    /// Issues an export without waiting for its block.
    ///
    /// It spends from an account of its own, so that its nonce does not stand in the way of the
    /// transactions around it.
    pub(super) fn issue_export(&mut self) -> Issued {
        let (net, from) = (self.network(), self.exporter.address());
        let nonce = self.node_call("eth_getTransactionCount", &json!([from, "latest"]));
        let nonce = quantity(&nonce);
        let amount = EXPORTED + self.seed.next() % 1000;
        let fee = atomic::fee(&atomic::export(&net, from, nonce, amount, 0), self.base_fee());
        let tx = atomic::export(&net, from, nonce, amount, fee);
        self.issue(Kind::Export, &atomic::signed(tx, &self.exporter))
    }

    /// Waits for the block of an issued transaction.
    pub(super) fn accepted(&self, issued: &Issued) -> Made {
        let what = format!("acceptance of the {:?} {}", issued.kind, issued.cb58);
        let url = self.url("/ext/bc/C/avax");
        let params = json!({"txID": issued.cb58});
        let block = self.node.wait_for(&what, LIMIT, || {
            let status = rpc::try_call(&url, "avax.getAtomicTxStatus", &params);
            block_of(&status.map_err(Miss::NotYet)?)
        });
        let hash = atomic::cb58(&issued.cb58).expect("the node's own id is valid CB58");
        Made { kind: issued.kind, block, hash, cb58: Some(issued.cb58.clone()) }
    }

    /// Pays the exporting account if it has next to nothing.
    pub(super) fn fund_exporter(&mut self) -> Vec<Made> {
        let to = self.exporter.address();
        let balance = self.node_call("eth_getBalance", &json!([to, "latest"]));
        let balance: U256 = serde_json::from_value(balance).expect("a balance is a quantity");
        if balance >= U256::from(POOR) {
            return Vec::new();
        }
        let payment = payment(&mut self.seed, to, U256::from(POOR) * U256::from(5));
        self.send(vec![payment])
    }

    /// Exports from the X-chain and waits until the C-chain can take it.
    fn send_from_x_chain(&mut self, net: &Network) -> Utxo {
        let url = self.url("/ext/bc/X");
        let own = self.utxos("/ext/bc/X", "avm.getUTXOs", &json!({}), net);
        let own = own.expect("the X-chain lists outputs");
        let from = own.iter().max_by_key(|utxo| utxo.amount).expect("genesis funds the X-chain");
        let fee = rpc::call(&url, "avm.getTxFee", &json!({}));
        let fee: u64 = text(&fee, "txFee").parse().expect("a fee is a decimal");
        let amount = IMPORTED + self.seed.next() % 1000;
        let tx = atomic::signed(atomic::x_export(net, from, amount, fee), &self.funded);
        let tx = rpc::call(&url, "avm.issueTx", &issue_params(&tx));
        let tx = atomic::cb58(text(&tx, "txID")).expect("the node's own id is valid CB58");
        self.arrival(net, tx)
    }

    /// Waits for what transaction `tx` of the X-chain sends to the C-chain.
    fn arrival(&self, net: &Network, tx: B256) -> Utxo {
        let source = json!({"sourceChain": "X"});
        self.node.wait_for("the output exported by the X-chain", LIMIT, || {
            let list = self.utxos("/ext/bc/C/avax", "avax.getUTXOs", &source, net);
            let list = list.map_err(Miss::NotYet)?;
            let found = list.into_iter().find(|utxo| utxo.tx == tx);
            found.ok_or_else(|| Miss::NotYet("not in the list".to_owned()))
        })
    }

    /// The unlocked AVAX outputs of the funded key that an API lists.
    fn utxos(&self, path: &str, method: &str, more: &Value, net: &Network) -> Listed {
        let owner = if net.id == LOCAL { OWNER_LOCAL } else { OWNER_CUSTOM };
        let chain = if path.contains("/X") { 'X' } else { 'C' };
        let mut params = more.clone();
        params["addresses"] = json!([format!("{chain}-{owner}")]);
        let answer = rpc::try_call(&self.url(path), method, &params)?;
        let listed = answer["utxos"].as_array().ok_or_else(|| format!("no list: {answer}"))?;
        let parsed =
            listed.iter().filter_map(|one| atomic::utxo(&hex::decode(one.as_str()?).ok()?));
        Ok(parsed.filter(|utxo| utxo.asset == net.avax && utxo.locktime == 0).collect())
    }

    /// Hands an atomic transaction to the node.
    fn issue(&self, kind: Kind, tx: &[u8]) -> Issued {
        let url = self.url("/ext/bc/C/avax");
        let answer = rpc::try_call(&url, "avax.issueTx", &issue_params(tx));
        let answer = answer.unwrap_or_else(|why| panic!("{kind:?}: {}", self.node.with_log(&why)));
        Issued { kind, cb58: text(&answer, "txID").to_owned() }
    }

    /// The network's ids, asked once.
    fn network(&self) -> Network {
        *self.network.get_or_init(|| {
            self.node.wait_for("the network's ids", LIMIT, || self.ask_ids().map_err(Miss::NotYet))
        })
    }

    /// Asks for the network's ids.
    fn ask_ids(&self) -> Result<Network, String> {
        let id = |path: &str, method: &str, params: Value, field: &str| {
            let answer = rpc::try_call(&self.url(path), method, &params)?;
            atomic::cb58(text(&answer, field)).ok_or_else(|| format!("no id in {answer}"))
        };
        let network = rpc::try_call(&self.url("/ext/info"), "info.getNetworkID", &json!({}))?;
        let number = text(&network, "networkID").parse().map_err(|why| format!("{why}"))?;
        let chain = |alias: &str| {
            id("/ext/info", "info.getBlockchainID", json!({"alias": alias}), "blockchainID")
        };
        Ok(Network {
            id: number,
            c_chain: chain("C")?,
            x_chain: chain("X")?,
            avax: id(
                "/ext/bc/X",
                "avm.getAssetDescription",
                json!({"assetID": "AVAX"}),
                "assetID",
            )?,
        })
    }

    /// Returns the price of a unit of gas in the next block.
    fn base_fee(&self) -> u64 {
        quantity(&self.node_call("eth_baseFee", &json!([])))
    }
}

/// Outputs, or why there is no list.
type Listed = Result<Vec<Utxo>, String>;

/// The parameters of either chain's issueTx; `hexnc` is hex without a checksum.
fn issue_params(tx: &[u8]) -> Value {
    json!({"tx": hex::encode_prefixed(tx), "encoding": "hexnc"})
}

/// The height in an answer of getAtomicTxStatus.
fn block_of(status: &Value) -> Result<u64, Miss> {
    match text(status, "status") {
        "Accepted" => {
            text(status, "blockHeight").parse().map_err(|_| Miss::NotYet(status.to_string()))
        }
        "Dropped" => Err(Miss::Never(format!("the node dropped it: {status}"))),
        _ => Err(Miss::NotYet(status.to_string())),
    }
}

/// A text field, or the empty text.
fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}
