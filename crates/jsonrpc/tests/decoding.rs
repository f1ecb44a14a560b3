//! Recorded calls of every method: a wrong one gives the node's error, a right one a query of the
//! right kind.

use std::borrow::Cow;

use neve_jsonrpc::{
    BlockId, Kind, LogHeads, LogRange, Method, NoQuery, Query, Request, RpcError, Rules, envelope,
    log_heights, parse,
};

use crate::recorded::{self, Row};

const BEFORE: Rules = Rules::BeforeHelicon;
const SINCE: Rules = Rules::Helicon;

type Decoded = Result<(Method, Query), NoQuery>;

/// Decodes a row's request; also returns the error that the node answered, as the node spelt it.
fn decode(row: &Row, rules: Rules) -> Option<(Decoded, Option<String>)> {
    let Request::Single(message) = parse(row.request.as_bytes()) else { return None };
    if message.kind() != Kind::Call {
        return None;
    }
    let is_error = row.answer.contains(r#","error":{"code":"#);
    Some((message.query(rules), is_error.then(|| row.answer.trim_end().to_owned())))
}

/// An error as the whole answer to a row's request.
fn spelt(row: &Row, error: &RpcError) -> String {
    let Request::Single(message) = parse(row.request.as_bytes()) else { unreachable!() };
    let mut out = Vec::new();
    envelope::error(&mut out, message.id(), error);
    String::from_utf8(out).unwrap()
}

/// True if it is what the node says of parameters alone, whatever it holds.
fn is_of_parameters(answer: &str) -> bool {
    let words = [
        "neither block nor hash specified",
        "carrying neither number nor hash",
        "invalid reward percentile",
        "percentile out of range",
        "exceed max topics",
        "invalid from and to block combination",
    ];
    answer.contains(r#""code":-32602"#) || words.iter().any(|words| answer.contains(words))
}

/// Checks one row. True if the node said an error and so did we.
fn check(row: &Row, rules: Rules) -> bool {
    let Some((decoded, error)) = decode(row, rules) else { return false };
    let context =
        || format!("{}\n  > {}\n  < {}\n  : {decoded:?}", row.name, row.request, row.answer);
    match (&decoded, &error) {
        (Err(NoQuery::Error(ours)), Some(theirs)) => {
            // Whether a node has these depends on how it was started, and ours does too.
            let switched_off = row.request.contains("debug_getRaw") && theirs.contains("-32601");
            assert!(switched_off || spelt(row, ours) == *theirs, "{}", context());
            return true;
        }
        (Err(NoQuery::Error(_)), None) => panic!("an error where there was none: {}", context()),
        (Err(NoQuery::Null), _) => {
            assert!(row.answer.contains(r#""result":null"#), "{}", context());
        }
        (Err(NoQuery::NotServed), theirs) => {
            let of_parameters = theirs.as_deref().is_some_and(is_of_parameters);
            assert!(!of_parameters || is_configurable(row), "{}", context());
        }
        (Ok((method, query)), theirs) => {
            assert!(is_of_kind(*method, query), "{}", context());
            let of_parameters = theirs.as_deref().is_some_and(is_of_parameters);
            assert!(!of_parameters, "{}", context());
            assert!(!theirs.as_deref().is_some_and(|it| it.contains("-32601")), "{}", context());
        }
    }
    false
}

/// Methods that not every node has, whose parameters are not looked at.
fn is_configurable(row: &Row) -> bool {
    let names = ["debug_", "txpool_", "eth_coinbase", "eth_etherbase", "eth_getBadBlocks"];
    names.iter().any(|name| row.request.contains(name))
}

fn is_of_kind(method: Method, query: &Query) -> bool {
    let hash = |at: &BlockId| matches!(at, BlockId::Hash(_));
    match query {
        Query::Block(at, _) => {
            block_kind(method, hash(at), Method::BlockByHash, Method::BlockByNumber)
        }
        Query::Header(at) => {
            block_kind(method, hash(at), Method::HeaderByHash, Method::HeaderByNumber)
        }
        Query::TransactionCount(at) => {
            let (by_hash, by_number) =
                (Method::TransactionCountByHash, Method::TransactionCountByNumber);
            block_kind(method, hash(at), by_hash, by_number)
        }
        Query::TransactionAt(at, _) => {
            let by_hash = Method::TransactionByBlockHashAndIndex;
            block_kind(method, hash(at), by_hash, Method::TransactionByNumberAndIndex)
        }
        Query::RawTransactionAt(at, _) => {
            let by_hash = Method::RawTransactionByBlockHashAndIndex;
            block_kind(method, hash(at), by_hash, Method::RawTransactionByNumberAndIndex)
        }
        Query::UncleCount(at) => {
            block_kind(method, hash(at), Method::UncleCountByHash, Method::UncleCountByNumber)
        }
        Query::Uncle(at, _) => {
            let by_hash = Method::UncleByBlockHashAndIndex;
            block_kind(method, hash(at), by_hash, Method::UncleByNumberAndIndex)
        }
        Query::RawTransaction(_) => {
            matches!(method, Method::RawTransactionByHash | Method::DebugRawTransaction)
        }
        other => Some(method) == only_method_of(other),
    }
}

fn block_kind(method: Method, is_hash: bool, by_hash: Method, by_number: Method) -> bool {
    method == if is_hash { by_hash } else { by_number }
}

fn only_method_of(query: &Query) -> Option<Method> {
    Some(match query {
        Query::BlockNumber => Method::BlockNumber,
        Query::ChainId => Method::ChainId,
        Query::NetVersion => Method::NetVersion,
        Query::Transaction(_) => Method::TransactionByHash,
        Query::Receipt(_) => Method::TransactionReceipt,
        Query::Receipts(_) => Method::BlockReceipts,
        Query::RawHeader(_) => Method::DebugRawHeader,
        Query::RawBlock(_) => Method::DebugRawBlock,
        Query::RawReceipts(_) => Method::DebugRawReceipts,
        Query::Sha3(_) => Method::Sha3,
        Query::ClientVersion => Method::ClientVersion,
        Query::Listening => Method::Listening,
        Query::PeerCount => Method::PeerCount,
        Query::Syncing => Method::Syncing,
        Query::ChainConfig => Method::ChainConfig,
        Query::Modules => Method::Modules,
        Query::GasPrice => Method::GasPrice,
        Query::BaseFee => Method::BaseFee,
        Query::MaxPriorityFeePerGas => Method::MaxPriorityFeePerGas,
        Query::SuggestPriceOptions => Method::SuggestPriceOptions,
        Query::FeeHistory { .. } => Method::FeeHistory,
        Query::Logs(_) => Method::Logs,
        Query::NewFilter(_) => Method::NewFilter,
        Query::NewBlockFilter => Method::NewBlockFilter,
        Query::NewPendingTransactionFilter => Method::NewPendingTransactionFilter,
        Query::FilterChanges(_) => Method::FilterChanges,
        Query::FilterLogs(_) => Method::FilterLogs,
        Query::UninstallFilter(_) => Method::UninstallFilter,
        _ => return None,
    })
}

fn check_all(rows: &[Row], rules: Rules, errors_at_least: usize) {
    let errors = rows.iter().filter(|row| check(row, rules)).count();
    println!("{} rows, {errors} errors of ours", rows.len());
    assert!(errors >= errors_at_least, "{errors} errors only");
}

#[test]
fn errors() {
    check_all(&recorded::corpus("v1.14.2/main/errors"), BEFORE, 300);
    check_all(&recorded::corpus("v1.15.0/errors"), SINCE, 300);
}

#[test]
fn methods() {
    for set in ["main", "forks", "apricot0"] {
        check_all(&recorded::corpus(&format!("v1.14.2/{set}/methods")), BEFORE, 8);
    }
    check_all(&recorded::corpus("v1.15.0/methods"), SINCE, 40);
}

#[test]
fn methods_that_blocks_cannot_answer() {
    check_all(&recorded::data("v1.14.2/state"), BEFORE, 60);
    check_all(&recorded::data("v1.15.0/state"), SINCE, 100);
    check_all(&recorded::data("v1.14.2/debug"), BEFORE, 11);
    check_all(&recorded::data("v1.15.0/debug"), SINCE, 290);
}

/// A call with wrong parameters of every method of a node, in its default configuration and with
/// more.
#[test]
fn methods_exist_as_in_each_configuration_of_a_node() {
    check_all(&recorded::data("v1.14.2/default"), BEFORE, 60);
    check_all(&recorded::data("v1.14.2/pruned"), BEFORE, 60);
}

#[test]
fn filters() {
    check_all(&recorded::data("v1.14.2/filters"), BEFORE, 20);
}

/// Every refusal of `eth_getLogs`, with the head in view, and no refusal of what was answered.
#[test]
fn ranges_of_logs() {
    let sets = [
        ("v1.14.2/logs", BEFORE, LogHeads { latest: 339, settled: 0 }, 82),
        ("v1.15.0/logs", SINCE, LogHeads { latest: 381, settled: 372 }, 69),
        ("v1.14.2/limits", BEFORE, LogHeads { latest: 339, settled: 0 }, 6),
    ];
    for (file, rules, heads, errors) in sets {
        let rows = recorded::data(file);
        let refused = rows.iter().filter(|row| refuses(row, rules, heads)).count();
        assert_eq!(refused, errors, "{file}");
    }
}

/// Error of the node for a block hash that no block has. neve has a miss there.
const UNKNOWN_BLOCK: RpcError = RpcError { code: -32000, message: Cow::Borrowed("unknown block") };

fn refuses(row: &Row, rules: Rules, heads: LogHeads) -> bool {
    let (decoded, theirs) = decode(row, rules).unwrap();
    let range = match decoded {
        Ok((_, Query::Logs(query))) => query.range,
        Err(NoQuery::Error(error)) => {
            assert_eq!(Some(spelt(row, &error)), theirs, "{}", row.request);
            return true;
        }
        other => panic!("{other:?}"),
    };
    let ours = match range {
        LogRange::Block(hash) => (hash == [0xde; 32]).then_some(UNKNOWN_BLOCK),
        LogRange::Range { from, to } => match log_heights(from, to, rules, heads) {
            Ok(Some(heights)) if row.answer.contains("too many blocks") => {
                Some(RpcError::too_many_blocks(&heights, 50))
            }
            Ok(None) => {
                assert!(row.answer.contains(r#""result":[]"#), "{} {}", row.request, row.answer);
                None
            }
            heights => heights.err(),
        },
    };
    let ours = ours.map(|error| spelt(row, &error));
    assert_eq!(ours, theirs, "{}", row.request);
    theirs.is_some()
}

/// The quick ways of `Message` are for what nearly everybody writes; the same in other writing.
#[test]
fn call_is_the_same_in_each_spelling() {
    let asked = |body: &str| match parse(body.as_bytes()) {
        Request::Single(message) => message.query(Rules::Helicon),
        other => panic!("{other:?}"),
    };
    let number = Ok((Method::BlockNumber, Query::BlockNumber));
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}"#,
        r#" { "params" : [ ] , "method" : "eth_blockNumber" , "id" : 1 , "jsonrpc" : "2.0" } "#,
        r#"{"JSONRPC":"2.0","Id":1,"METHOD":"eth_blockNumber"}"#,
        r#"{"json\u0072pc":"2\u002e0","i\u0064":1,"method":"eth_\u0062lockNumber"}"#,
        r#"{"jsonrpc":"1.0","jsonrpc":"2.0","id":1,"method":"eth_chainId","method":"eth_blockNumber"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[],"params2":{"a":["\\\"]"]}}"#,
    ] {
        assert_eq!(asked(body), number, "{body}");
    }
}
