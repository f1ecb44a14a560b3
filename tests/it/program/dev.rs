//! `serve --dev`: the main job where no node is at hand.

use std::process::Command;

use serde_json::Value;

use crate::support::neve::{Neve, fresh_dir, run};

const DEV: [&str; 5] = ["serve", "--dev", "--listen", "127.0.0.1:0", "--dev-rate"];

/// The last line of the greeting: a command for a shell.
fn curl_line(greeting: &str) -> &str {
    let line = greeting.lines().last().expect("a greeting has lines").trim();
    assert!(line.starts_with("curl "), "{greeting}");
    line
}

#[test]
fn dev_serves_at_once_and_prints_what_to_try() {
    let dir = fresh_dir();
    let neve = Neve::spawn(dir.path(), &[&DEV[..], &["20"]].concat());
    neve.wait_for_head(110);
    // All of it is there, proven from its first block on.
    neve.wait("a proof", |health| (health["blocks"]["settled_height"].as_u64()? > 0).then_some(()));
    assert!(neve.greeting.contains("\nupstream http://127.0.0.1:"), "{}", neve.greeting);
    // On a busy machine neve lags at this rate: until it was near the upstream once, `latest` is a miss.
    neve.wait_until_ready();
    // The body that curl would post.
    let body = curl_line(&neve.greeting).split('\'').find(|text| text.starts_with('{'));
    let block = neve.client().post(body.expect("it has a body")).json();
    assert!(block["result"]["number"].as_str().is_some_and(|number| number.starts_with("0x")));
    let health = neve.health();
    assert_eq!(health["blocks"]["min_height"], 0);
    // Polls bring heads too, so blocks say nothing of the WebSocket.
    neve.wait("the WebSocket", |health| health["upstream"]["websocket"].as_bool()?.then_some(()));
    let store = health["storage"]["data_dir"].as_str().unwrap().to_owned();
    assert!(std::fs::exists(&store).unwrap());
    neve.stop_in_time();
    assert!(!std::fs::exists(&store).unwrap(), "the temporary {store} stays behind");
}

#[test]
#[ignore = "needs curl: ./check"]
fn printed_command_runs_in_a_shell() {
    let dir = fresh_dir();
    let neve = Neve::spawn(dir.path(), &[&DEV[..], &["20"]].concat());
    neve.wait_for_head(100);
    neve.wait_until_ready();
    let output = Command::new("sh").args(["-c", curl_line(&neve.greeting)]).output();
    let output = output.expect("there is a shell").stdout;
    let block: Value = serde_json::from_slice(&output).expect("curl prints JSON");
    assert!(block["result"]["number"].as_str().is_some_and(|number| number.starts_with("0x")));
}

#[test]
fn dev_writes_a_store_like_any_other() {
    let dir = fresh_dir();
    let store = dir.path().join("store").display().to_string();
    let arguments = [&DEV[..], &["0", "--data-dir", &store, "--disk-reserve-bytes", "1MiB"]];
    let neve = Neve::spawn(dir.path(), &arguments.concat());
    neve.wait_for_head(100);
    neve.stop();
    let verified = run(&["verify", "--data-dir", &store, "--recover-senders"]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    // Another start is another chain, which is said, and nothing is given up for it.
    let neve = Neve::spawn(dir.path(), &arguments.concat());
    neve.wait("the refusal", |health| (health["upstream"]["state"] == "disagrees").then_some(()));
    assert_eq!(neve.health()["blocks"]["head"], 100);
}

/// Values that wallets request before they sign, at one head: block, history, and the prices.
#[derive(Debug)]
struct Prices {
    block: Value,
    history: Value,
    base_fee: u64,
    tip: u64,
    gas_price: u64,
    options: Value,
}

impl Prices {
    /// `None` while something is not known yet, or if the head moved meanwhile: prices are asked of
    /// the upstream one after the other, so some may be of the head before.
    fn ask(neve: &Neve) -> Option<Self> {
        let mut client = neve.client();
        let mut ask = |method, params: &str| {
            let answer = client.call(method, params);
            (answer.status == 200).then(|| answer.json()["result"].clone())
        };
        let block = ask("eth_getBlockByNumber", r#"["latest",false]"#)?;
        let prices = Self {
            history: ask("eth_feeHistory", r#"["0x5","latest",[10,50,90]]"#)?,
            base_fee: quantity(&ask("eth_baseFee", "[]")?),
            tip: quantity(&ask("eth_maxPriorityFeePerGas", "[]")?),
            gas_price: quantity(&ask("eth_gasPrice", "[]")?),
            options: ask("eth_suggestPriceOptions", "[]")?,
            block,
        };
        let same = ask("eth_getBlockByNumber", r#"["latest",false]"#)? == prices.block;
        (same && prices.are_of_one_head()).then_some(prices)
    }

    /// True if the fees that ethers and viem make of them exceed those of the next block.
    fn are_of_one_head(&self) -> bool {
        let normal = |key: &str| quantity(&self.options["normal"][key]);
        quantity(&self.history["baseFeePerGas"][5]) == self.base_fee
            && self.gas_price == self.base_fee + self.tip
            && normal("maxPriorityFeePerGas") == self.tip
            && normal("maxFeePerGas") == 2 * self.base_fee + self.tip
    }
}

fn quantity(value: &Value) -> u64 {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
    digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).expect("a quantity")
}

/// A wallet that estimates fees finds everything that it asks for, and all of it fits.
#[test]
fn a_wallet_can_estimate_fees() {
    let dir = fresh_dir();
    let store = dir.path().join("store").display().to_string();
    let arguments = [&DEV[..], &["0.5", "--data-dir", &store, "--disk-reserve-bytes", "1MiB"]];
    let neve = Neve::spawn(dir.path(), &arguments.concat());
    neve.wait_for_head(101);
    let prices = neve.wait("prices of one head, which fit", |_| Prices::ask(&neve));
    let (block, history) = (&prices.block, &prices.history);
    let number = quantity(&block["number"]);
    assert_eq!(quantity(&history["oldestBlock"]), number - 4);
    let base_fees = history["baseFeePerGas"].as_array().unwrap();
    assert_eq!(base_fees.len(), 6, "the last one is the next block's");
    assert_eq!(base_fees[4], block["baseFeePerGas"]);
    for (at, base_fee) in base_fees[..5].iter().enumerate() {
        let params = format!("[\"{:#x}\"]", number - 4 + at as u64);
        let header = neve.client().call("eth_getHeaderByNumber", &params).json();
        assert_eq!(base_fee, &header["result"]["baseFeePerGas"]);
    }
    let rewards = history["reward"].as_array().unwrap();
    assert!(rewards.iter().all(|reward| reward.as_array().unwrap().len() == 3), "{history}");
    let ratios = history["gasUsedRatio"].as_array().unwrap();
    let whole = |key: &str| f64::from(u32::try_from(quantity(&block[key])).unwrap());
    assert_eq!(ratios[4].as_f64(), Some(whole("gasUsed") / whole("gasLimit")));
    // What ethers offers, twice the base fee of the head, is enough for the next block.
    let twice = 2 * quantity(&block["baseFeePerGas"]);
    assert!((1..=twice).contains(&prices.base_fee), "{prices:?}");
}
