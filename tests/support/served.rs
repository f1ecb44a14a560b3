//! What is served, beside the development chain itself.

use neve_devnet::{DevnetThread, Part};

use super::neve::Neve;

/// What neve serves of these heights is the chain's.
pub(crate) fn serves(neve: &Neve, devnet: &DevnetThread, heights: impl Iterator<Item = u64>) {
    let mut client = neve.client();
    for height in heights {
        let block = devnet.block(height).expect("the chain has it");
        let result = |body: &[u8]| {
            let body = String::from_utf8_lossy(body);
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{body}}}\n")
        };
        let full = client.call("eth_getBlockByNumber", &format!("[\"{height:#x}\",true]")).text();
        assert_eq!(full, result(&block.answer(Part::Full, devnet.rules())), "{height}");
        let by_hash = format!("[\"{:#x}\"]", block.hash());
        let receipts = client.call("eth_getBlockReceipts", &by_hash).text();
        assert_eq!(receipts, result(block.receipts()), "{height}");
    }
}
