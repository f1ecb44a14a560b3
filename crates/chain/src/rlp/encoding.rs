//! Recursive Length Prefix encoding (Yellow Paper, appendix B) of whatever alloy has no type for.

use alloy_primitives::{B256, keccak256};
use alloy_rlp::{EMPTY_STRING_CODE, Header, length_of_length};

/// Appends a list whose items `write` appends.
///
/// The items are written first and the header is moved in front of them: the length then needs no
/// second description of the items that could differ from the first.
pub(crate) fn list(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    write(out);
    let payload_length = out.len() - start;
    Header { list: true, payload_length }.encode(out);
    let header_length = out.len() - start - payload_length;
    if let Some(item) = out.get_mut(start..) {
        item.rotate_right(header_length);
    }
}

/// Appends a string.
pub(crate) fn string(bytes: &[u8], out: &mut Vec<u8>) {
    alloy_rlp::Encodable::encode(bytes, out);
}

/// Length of a string of `length` bytes, other than a single byte.
pub(crate) fn string_length(length: usize) -> usize {
    length_of_length(length) + length
}

/// Length of a list whose items take `length` bytes.
pub(crate) fn list_length(length: usize) -> usize {
    length_of_length(length) + length
}

/// Hash that a header holds as `extDataHash` from Apricot Phase 1 on: of the data as a string
/// (coreth, `plugin/evm/customtypes/block_ext.go`, `CalcExtDataHash`).
pub fn ext_data_hash(ext_data: &[u8]) -> B256 {
    let mut encoded = Vec::with_capacity(ext_data.len() + 9);
    string(ext_data, &mut encoded);
    keccak256(encoded)
}

/// The RLP of a C-chain block: header, transactions, uncles, version, extra data.
///
/// `header` is the encoded header, `transactions` are in EIP-2718 form.
pub fn encode_block<T: AsRef<[u8]>>(header: &[u8], transactions: &[T], ext_data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    list(&mut out, |out| {
        out.extend_from_slice(header);
        list(out, |out| transactions.iter().for_each(|tx| body_item(tx.as_ref(), out)));
        list(out, |_| {});
        out.push(EMPTY_STRING_CODE); // version 0
        string(ext_data, out);
    });
    out
}

/// A transaction as it stands in a block's body: legacy ones are lists, others strings.
fn body_item(transaction: &[u8], out: &mut Vec<u8>) {
    if is_legacy(transaction) {
        out.extend_from_slice(transaction);
    } else {
        string(transaction, out);
    }
}

/// True if an EIP-2718 encoding is that of a legacy transaction or receipt: a list.
pub(crate) fn is_legacy(encoding: &[u8]) -> bool {
    encoding.first().is_some_and(|first| *first >= 0xc0)
}

/// Length of what [`encode_block`] would write, which is a block's `size`.
///
/// The blocks of a subnet-evm chain lack the last two items: `ext_data_length` is then `None`.
pub(crate) fn block_size<'t>(
    header_length: usize,
    transactions: impl Iterator<Item = &'t [u8]>,
    ext_data: Option<&[u8]>,
) -> usize {
    let item = |tx: &[u8]| if is_legacy(tx) { tx.len() } else { string_length(tx.len()) };
    let items = transactions.map(item);
    let uncles = list_length(0);
    let extra = ext_data.map_or(0, |data| 1 + alloy_rlp::Encodable::length(data));
    list_length(header_length + list_length(items.sum()) + uncles + extra)
}

#[cfg(test)]
mod tests {
    use alloy_primitives::b256;

    use super::*;

    #[test]
    fn lists_nest() {
        let mut out = vec![9];
        list(&mut out, |out| {
            list(out, |_| {});
            list(out, |out| string(&[1; 60], out));
        });
        let inner = [&[0xf8, 62, 0xb8, 60][..], &[1; 60]].concat();
        assert_eq!(out, [&[9, 0xf8, 65, 0xc0][..], &inner].concat());
    }

    #[test]
    fn hash_of_no_extra_data() {
        let empty = b256!("0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421");
        assert_eq!(ext_data_hash(&[]), empty);
    }

    #[test]
    fn size_is_the_length_of_the_block() {
        let header = [0xf8, 60].into_iter().chain([0; 60]).collect::<Vec<u8>>();
        let transactions = [vec![0xc2, 1, 2], vec![2; 300], vec![1, 2]];
        for ext_data in [&[][..], &[5], &[0x80], &[7; 70]] {
            let size = block_size(62, transactions.iter().map(|tx| &tx[..]), Some(ext_data));
            assert_eq!(encode_block(&header, &transactions, ext_data).len(), size);
        }
    }
}
