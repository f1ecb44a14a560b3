//! Arguments that no recording has. What is expected is what the node's own types said of them
//! (Go 1.26, libevm v1.13.14-0.4.0.rc.2), or what follows from the sources that the code names.

use neve_jsonrpc::{
    BlockId, LogBound, LogFilter, LogRange, Method, NoQuery, Query, Request, RpcError, Rules, Tag,
    parse,
};

const BOTH: [Rules; 2] = [Rules::BeforeHelicon, Rules::Helicon];

fn query(method: &str, params: &str, rules: Rules) -> Result<Query, NoQuery> {
    let call = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let Request::Single(message) = parse(call.as_bytes()) else { panic!("{call}") };
    message.query(rules).map(|(_, query)| query)
}

fn error(method: &str, params: &str, rules: Rules) -> RpcError {
    match query(method, params, rules) {
        Err(NoQuery::Error(error)) => error,
        other => panic!("{method} {params}: {other:?}"),
    }
}

fn wrong(argument: u32, what: &str) -> RpcError {
    RpcError { code: -32602, message: format!("invalid argument {argument}: {what}").into() }
}

fn logs(object: &str) -> (LogRange, LogFilter) {
    match query("eth_getLogs", &format!("[{object}]"), Rules::Helicon) {
        Ok(Query::Logs(query)) => (query.range, query.filter),
        other => panic!("{object}: {other:?}"),
    }
}

const A: &str = "0x1111111111111111111111111111111111111111111111111111111111111111";
const B: &str = "0x2222222222222222222222222222222222222222222222222222222222222222";

#[test]
fn every_served_method_is_decoded() {
    for method in Method::ALL {
        // A wrong number of parameters is an error of a method that is decoded.
        let decoded = query(method.name(), "[]", Rules::Helicon);
        assert_ne!(decoded, Err(NoQuery::NotServed), "{method:?} has no arm in decode.rs");
    }
}

#[test]
fn name_with_an_escape_is_that_of_its_letters() {
    let asked = |name: &str| query(name, "[]", Rules::Helicon);
    assert_eq!(asked(r"\u0065th_chainId"), asked("eth_chainId"));
    assert_ne!(asked("eth_chainId"), Err(NoQuery::NotServed));
    assert_ne!(asked(r"eth_chainId\u0000"), asked("eth_chainId"));
}

#[test]
fn topics_are_read_by_position() {
    let (a, b) = ([0x11; 32], [0x22; 32]);
    let cases = [
        ("[]".to_owned(), vec![]),
        ("null".to_owned(), vec![]),
        (format!(r#"["{A}"]"#), vec![vec![a]]),
        (format!(r#"[null,"{B}",null]"#), vec![vec![], vec![b], vec![]]),
        (format!(r#"[["{A}","{B}"],[]]"#), vec![vec![a, b], vec![]]),
        // A null in a list is anything, and what follows it is not looked at.
        (format!(r#"[["{A}",null,"zz",5]]"#), vec![vec![]]),
    ];
    for (topics, expected) in cases {
        let (_, filter) = logs(&format!(r#"{{"topics":{topics}}}"#));
        assert_eq!(filter.topics, expected, "{topics}");
    }
}

#[test]
fn addresses_are_one_or_a_list() {
    let address = |byte: &str| format!("\"0x{}\"", byte.repeat(20));
    let cases = [
        ("null".to_owned(), vec![]),
        ("[]".to_owned(), vec![]),
        (address("ab"), vec![[0xab; 20]]),
        (format!("[{},{}]", address("AB"), address("01")), vec![[0xab; 20], [1; 20]]),
    ];
    for (addresses, expected) in cases {
        assert_eq!(logs(&format!(r#"{{"address":{addresses}}}"#)).1.addresses, expected);
    }
}

#[test]
fn bounds_are_kept_as_they_came() {
    let range = |from, to| LogRange::Range { from, to };
    let (absent, number) = (LogBound::Absent, LogBound::Number);
    let cases = [
        ("{}".to_owned(), range(absent, absent)),
        ("null".to_owned(), range(absent, absent)),
        (
            r#"{"fromBlock":null,"toBlock":"safe"}"#.to_owned(),
            range(absent, LogBound::Tag(Tag::Safe)),
        ),
        (r#"{"fromBlock":"0x1","TOBLOCK":"0x2"}"#.to_owned(), range(number(1), number(2))),
        (r#"{"fromBlock":"0x9","fromBlock":"0x1"}"#.to_owned(), range(number(1), absent)),
        // Numbers of 0 go with anything.
        (r#"{"fromBlock":"0x1","toBlock":"0x0"}"#.to_owned(), range(number(1), number(0))),
        (format!(r#"{{"blockHash":"{A}","fromBlock":null}}"#), LogRange::Block([0x11; 32])),
        (format!(r#"{{"blockHash":"{A}","blockHash":null}}"#), range(absent, absent)),
    ];
    for (object, expected) in cases {
        assert_eq!(logs(&object).0, expected, "{object}");
    }
}

/// Errors that Go meets at once go before those after reading on, and both before those of meaning.
#[test]
fn first_wrong_member_is_the_one_go_names() {
    let of_kind = |what: &str, field: &str, into: &str| {
        format!("json: cannot unmarshal {what} into Go struct field input.{field} of type {into}")
    };
    let cases = [
        (r#"{"blockHash":5}"#, of_kind("non-string", "blockHash", "common.Hash")),
        (r#"{"BLOCKHASH":"0x1"}"#, of_kind("hex string of odd length", "blockHash", "common.Hash")),
        (r#"{"topics":5,"fromBlock":"x"}"#, "hex string without 0x prefix".to_owned()),
        (r#"{"address":"x","topics":true}"#, of_kind("bool", "topics", "[]interface {}")),
        (r#"{"address":[{"a":1e999}]}"#, of_kind("number 1e999", "address", "float64")),
        (r#"{"topics":[1e999,"x"]}"#, of_kind("number 1e999", "topics", "float64")),
        (r#"{"topics":["x"],"address":5}"#, "invalid addresses in query".to_owned()),
    ];
    for (object, what) in cases {
        for (method, rules) in [("eth_getLogs", BOTH[0]), ("eth_newFilter", BOTH[1])] {
            assert_eq!(error(method, &format!("[{object}]"), rules), wrong(0, &what), "{object}");
        }
    }
}

#[test]
fn too_many_addresses_are_refused_before_helicon() {
    let addresses = vec!["5"; 1001].join(",");
    let params = format!(r#"[{{"address":[{addresses}]}}]"#);
    let before = error("eth_getLogs", &params, Rules::BeforeHelicon);
    assert_eq!(before, wrong(0, "exceed max addresses"));
    let since = error("eth_getLogs", &params, Rules::Helicon);
    assert_eq!(since, wrong(0, "non-string address at index 0"));
}

#[test]
fn filters_mind_their_ends() {
    let right = [
        r#"{"fromBlock":"0x5"}"#,
        r#"{"fromBlock":"0x5","toBlock":"0x5"}"#,
        r#"{"fromBlock":"latest","toBlock":"pending"}"#,
        r#"{"fromBlock":"earliest","toBlock":"0x0"}"#,
    ];
    let inverted = [
        r#"{"fromBlock":"0x5","toBlock":"0x4"}"#,
        r#"{"fromBlock":"0x5","toBlock":"safe"}"#,
        r#"{"fromBlock":"pending"}"#,
        r#"{"fromBlock":"finalized","toBlock":"pending"}"#,
        r#"{"toBlock":"earliest"}"#,
    ];
    for rules in BOTH {
        for object in right {
            let decoded = query("eth_newFilter", &format!("[{object}]"), rules);
            assert!(matches!(decoded, Ok(Query::NewFilter(_))), "{object}: {decoded:?}");
        }
        let expected = match rules {
            Rules::BeforeHelicon => RpcError::FROM_ABOVE_TO,
            Rules::Helicon => RpcError::INVALID_RANGE,
        };
        for object in inverted {
            assert_eq!(error("eth_newFilter", &format!("[{object}]"), rules), expected, "{object}");
        }
    }
    let topics = r#"[{"topics":[null,null,null,null,null]}]"#;
    assert!(query("eth_newFilter", topics, Rules::BeforeHelicon).is_ok());
    assert_eq!(error("eth_newFilter", topics, Rules::Helicon), RpcError::TOO_MANY_TOPICS);
}

#[test]
fn arguments_of_eth_call_are_decoded_as_far_as_they_are_plain() {
    let of_kind = |what: &str, field: &str, into: &str| {
        let field = format!("TransactionArgs.{field}");
        format!("json: cannot unmarshal {what} into Go struct field {field} of type {into}")
    };
    let cases = [
        (r#"{"from":5}"#, of_kind("non-string", "from", "common.Address")),
        (r#"{"FROM":"x"}"#, of_kind("hex string without 0x prefix", "from", "common.Address")),
        (r#"{"gas":"0x"}"#, of_kind("hex string \"0x\"", "gas", "hexutil.Uint64")),
        (
            r#"{"nonce":"0x11111111111111111"}"#,
            of_kind("hex number > 64 bits", "nonce", "hexutil.Uint64"),
        ),
        (
            r#"{"value":"0x01"}"#,
            of_kind("hex number with leading zero digits", "value", "*hexutil.Big"),
        ),
        (r#"{"gasPrice":"0xg"}"#, of_kind("invalid hex string", "gasPrice", "*hexutil.Big")),
        (r#"{"input":"zz"}"#, of_kind("hex string without 0x prefix", "input", "hexutil.Bytes")),
        (r#"{"to":"0x12"}"#, "hex string has length 2, want 40 for common.Address".to_owned()),
    ];
    for (object, what) in cases {
        for method in ["eth_call", "eth_estimateGas", "eth_sendTransaction"] {
            assert_eq!(error(method, &format!("[{object}]"), BOTH[0]), wrong(0, &what), "{object}");
        }
    }
    let left_to_a_node = [
        r#"[{"gas":"","data":null}]"#,
        r#"[{"accessList":5},5,5,5,5]"#,
        r#"[{"accessList":[],"to":"x"}]"#,
        r#"[{},"latest",{"0x12":5},5]"#,
        "[{},null,null,null]",
    ];
    for params in left_to_a_node {
        assert_eq!(query("eth_call", params, BOTH[1]), Err(NoQuery::NotServed), "{params}");
    }
    let overrides = "json: cannot unmarshal array into Go value of type ethapi.StateOverride";
    assert_eq!(error("eth_call", r#"[{},"latest",[]]"#, BOTH[0]), wrong(2, overrides));
    let overrides = "json: cannot unmarshal number into Go value of type ethapi.BlockOverrides";
    assert_eq!(error("eth_call", r#"[{},"latest",{},5]"#, BOTH[0]), wrong(3, overrides));
    assert_eq!(error("eth_call", "[{},{}]", Rules::Helicon), RpcError::NEITHER_HELICON);
}

#[test]
fn fees_of_no_block_are_not_looked_into_before_helicon() {
    let params = r#"["","pending",[101,"x"]]"#;
    for rules in BOTH {
        let what = "json: cannot unmarshal string into Go value of type float64";
        assert_eq!(error("eth_feeHistory", params, rules), wrong(2, what));
    }
    let params = "[0,\"pending\",[101]]";
    let expected = Query::FeeHistory {
        count: 0,
        newest: BlockId::Tag(Tag::Pending),
        percentiles: vec![101.0],
    };
    assert_eq!(query("eth_feeHistory", params, Rules::BeforeHelicon), Ok(expected));
    let since = error("eth_feeHistory", params, Rules::Helicon);
    assert_eq!(since.message, "percentile out of range or misordered: value 101.000000 at index 0");
    let null = "[1,\"latest\",null]";
    let expected =
        Query::FeeHistory { count: 1, newest: BlockId::Tag(Tag::Latest), percentiles: vec![] };
    assert_eq!(query("eth_feeHistory", null, Rules::Helicon), Ok(expected));
}

#[test]
fn too_many_percentiles_are_told_first() {
    let percentiles = vec!["-1"; 101].join(",");
    let params = format!("[1,\"latest\",[{percentiles}]]");
    let words = [
        "invalid reward percentile: over the query limit 100",
        "percentile out of range or misordered: requested 101 percentiles, max 100",
    ];
    for (rules, words) in BOTH.into_iter().zip(words) {
        assert_eq!(error("eth_feeHistory", &params, rules).message, words);
    }
}

/// Calls that no node would take are refused without a node; others are not.
#[test]
fn bytes_that_are_no_transaction() {
    for rules in BOTH {
        for params in ["[\"\"]", "[\"0x\"]", "[\"0x00\"]", "[\"0x7f\"]"] {
            let error = error("eth_sendRawTransaction", params, rules);
            assert_eq!((error.code, &*error.message), (-32000, "typed transaction too short"));
        }
        for params in ["[\"0x80\"]", "[\"0x0102\"]", "[\"0xc0\"]", "[\"0x0502\"]"] {
            let query = query("eth_sendRawTransaction", params, rules);
            assert_eq!(query, Err(NoQuery::NotServed), "{params}");
        }
        let two = "too many arguments, want at most 1";
        assert_eq!(error("eth_sendRawTransaction", "[\"\",5]", rules).message, two);
    }
}

#[test]
fn names_belong_to_versions() {
    let is_known = |name, rules| query(name, "[]", rules) == Err(NoQuery::NotServed);
    for (name, before, since) in [
        ("eth_coinbase", true, false),
        ("warp_getMessage", true, false),
        ("debug_setHead", false, true),
        ("debug_traceCall", true, true),
        ("eth_simulateV1", false, false),
        ("eth_pendingTransactions ", false, false),
    ] {
        assert_eq!(is_known(name, Rules::BeforeHelicon), before, "{name}");
        assert_eq!(is_known(name, Rules::Helicon), since, "{name}");
    }
    assert_eq!(error("eth_simulateV1", "5", BOTH[0]), RpcError::no_method("eth_simulateV1"));
}

#[test]
fn unsubscribe_finds_no_subscription_over_http() {
    assert_eq!(error("x_unsubscribe", "[null]", BOTH[1]), RpcError::SUBSCRIPTION_NOT_FOUND);
    let what = "json: cannot unmarshal array into Go value of type rpc.ID";
    assert_eq!(error("eth_unsubscribe", "[[]]", BOTH[1]), wrong(0, what));
}

#[test]
fn raw_methods_are_behind_a_switch() {
    let raw: Vec<_> = Method::ALL.iter().filter(|method| method.is_debug_raw()).collect();
    assert!(raw.iter().all(|method| method.name().starts_with("debug_getRaw")));
    assert_eq!(raw.len(), 4);
}
