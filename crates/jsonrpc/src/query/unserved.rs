//! Methods that a node has and stored blocks cannot answer: which there are, and what a node says
//! of wrong arguments before it looks at anything else.
//!
//! A name that is in no table here or in [`crate::Method`] is one that no configuration of the
//! node's version has. Sources: coreth, internal/ethapi/backend.go, eth/backend.go, eth/tracers,
//! internal/debug, warp/service.go; avalanchego v1.15.0, vms/saevm/sae/rpc/server.go.

use crate::arguments::{
    Arguments, Checked, address, big, block_reference, bytes, check_string, check_strings,
    overrides, transaction, uint,
};
use crate::error::{NoQuery, RpcError};
use crate::method::{Method, Rules};

use Parameter::{
    Address, Big, BlockOverrides, Bytes, Call, RawTransaction, Reference, StateAt, StateAtOptional,
    StateOverrides, Text, Texts, Uint64,
};

/// Type of a parameter.
#[derive(Debug, Clone, Copy)]
enum Parameter {
    /// Address of an account.
    Address,
    /// A quantity of any size; may be left out.
    Big,
    /// Overrides of a block's fields; may be left out.
    BlockOverrides,
    /// Bytes as hexadecimal text.
    Bytes,
    /// Call to execute.
    Call,
    /// An encoded transaction.
    RawTransaction,
    /// A reference to a block: a number, tag or hash.
    Reference,
    /// A block, and the node minds first of all that it is named.
    StateAt,
    /// Block of the state; may be left out.
    StateAtOptional,
    /// Overrides of the state; may be left out.
    StateOverrides,
    /// A string of any content.
    Text,
    /// A list of strings.
    Texts,
    /// A quantity; may be left out.
    Uint64,
}

/// Methods of both versions, in every usual configuration, with what they take.
const KNOWN: &[(&str, &[Parameter])] = &[
    ("eth_getBalance", &[Address, StateAt]),
    ("eth_getCode", &[Address, StateAt]),
    ("eth_getTransactionCount", &[Address, StateAt]),
    ("eth_getStorageAt", &[Address, Text, StateAt]),
    ("eth_getProof", &[Address, Texts, Reference]),
    ("eth_call", &[Call, StateAtOptional, StateOverrides, BlockOverrides]),
    ("eth_callDetailed", &[Call, StateAt, StateOverrides]),
    ("eth_estimateGas", &[Call, StateAtOptional, StateOverrides]),
    ("eth_createAccessList", &[Call, StateAtOptional]),
    ("eth_sendRawTransaction", &[RawTransaction]),
    ("eth_sendTransaction", &[Call]),
    ("eth_fillTransaction", &[Call]),
    ("eth_signTransaction", &[Call]),
    ("eth_sign", &[Address, Bytes]),
    ("eth_resend", &[Call, Big, Uint64]),
    ("eth_pendingTransactions", &[]),
];

/// Traces that a node of either version has if it is told to.
const TRACES: &[&str] = &[
    "debug_traceTransaction",
    "debug_traceCall",
    "debug_traceBlockByNumber",
    "debug_traceBlockByHash",
    "debug_traceBlock",
];

/// Other methods that a node of either version has if it is told to.
const CONFIGURABLE: &[&str] = &[
    "txpool_content",
    "txpool_contentFrom",
    "txpool_inspect",
    "txpool_status",
    "debug_printBlock",
    "debug_intermediateRoots",
    "debug_standardTraceBadBlockToFile",
    "debug_standardTraceBlockToFile",
    "debug_traceBadBlock",
    "debug_traceBlockFromFile",
    "debug_blockProfile",
    "debug_cpuProfile",
    "debug_freeOSMemory",
    "debug_gcStats",
    "debug_goTrace",
    "debug_memStats",
    "debug_mutexProfile",
    "debug_setBlockProfileRate",
    "debug_setGCPercent",
    "debug_setMutexProfileFraction",
    "debug_stacks",
    "debug_startCPUProfile",
    "debug_startGoTrace",
    "debug_stopCPUProfile",
    "debug_stopGoTrace",
    "debug_verbosity",
    "debug_vmodule",
    "debug_writeBlockProfile",
    "debug_writeMemProfile",
    "debug_writeMutexProfile",
];

/// Methods that went with Helicon.
const BEFORE_HELICON: &[&str] = &[
    "eth_accounts",
    "eth_coinbase",
    "eth_etherbase",
    "eth_getBadBlocks",
    "debug_accountRange",
    "debug_dumpBlock",
    "debug_getAccessibleState",
    "debug_getBadBlocks",
    "debug_getModifiedAccountsByHash",
    "debug_getModifiedAccountsByNumber",
    "debug_preimage",
    "debug_storageRangeAt",
    "admin_exportChain",
    "admin_importChain",
    "personal_deriveAccount",
    "personal_ecRecover",
    "personal_importRawKey",
    "personal_initializeWallet",
    "personal_listAccounts",
    "personal_listWallets",
    "personal_lockAccount",
    "personal_newAccount",
    "personal_openWallet",
    "personal_sendTransaction",
    "personal_sign",
    "personal_signTransaction",
    "personal_unlockAccount",
    "personal_unpair",
    "warp_getBlockAggregateSignature",
    "warp_getBlockSignature",
    "warp_getMessage",
    "warp_getMessageAggregateSignature",
    "warp_getMessageSignature",
];

/// Methods that came with Helicon.
const SINCE_HELICON: &[&str] = &[
    "debug_chaindbCompact",
    "debug_chaindbProperty",
    "debug_dbAncient",
    "debug_dbAncients",
    "debug_dbGet",
    "debug_setHead",
];

/// Methods that only a WebSocket has.
const OVER_WEBSOCKETS: &[&str] = &["eth_subscribe", "eth_unsubscribe"];

/// Number of the [`other_methods`] at the front that clients call most: of state, execution, transactions to send, and
/// traces.
pub const FREQUENT_METHODS: usize = KNOWN.len() + TRACES.len();

/// Number of [`other_methods`].
pub const OTHER_METHODS: usize = KNOWN.len()
    + TRACES.len()
    + CONFIGURABLE.len()
    + BEFORE_HELICON.len()
    + SINCE_HELICON.len()
    + OVER_WEBSOCKETS.len();

/// Names of the methods that some node has and that are no [`Method`], always in the same order: those that are not
/// served, and those of subscriptions. The first [`FREQUENT_METHODS`] are those that clients call most.
pub fn other_methods() -> impl Iterator<Item = &'static str> {
    let known = KNOWN.iter().map(|(name, _)| *name);
    let rest = [TRACES, CONFIGURABLE, BEFORE_HELICON, SINCE_HELICON, OVER_WEBSOCKETS];
    known.chain(rest.into_iter().flatten().copied())
}

/// Methods that a node of some version has by default and that are not served, besides those of
/// [`KNOWN`] that use the keys of the node.
const DEFAULT_UNSERVED: [&str; 11] = [
    "eth_getBalance",
    "eth_getCode",
    "eth_getTransactionCount",
    "eth_getStorageAt",
    "eth_getProof",
    "eth_call",
    "eth_callDetailed",
    "eth_estimateGas",
    "eth_createAccessList",
    "eth_sendRawTransaction",
    "eth_pendingTransactions",
];

/// Methods of [`BEFORE_HELICON`] that a node serves by default.
const DEFAULT_BEFORE_HELICON: [&str; 3] = ["eth_coinbase", "eth_etherbase", "eth_getBadBlocks"];

/// Methods that a node of some version has by default, without those that use its keys:
/// `eth_sendTransaction`, `eth_sign`, `eth_signTransaction`, `eth_fillTransaction`, `eth_resend`.
pub fn default_methods() -> impl Iterator<Item = &'static str> {
    let served = Method::ALL.iter().filter(|method| method.is_default());
    let unserved = DEFAULT_UNSERVED.into_iter().chain(DEFAULT_BEFORE_HELICON);
    served.map(|method| method.name()).chain(unserved)
}

/// Checks the parameters of a method that is not served.
pub(crate) fn decode(name: &str, params: Option<&[u8]>, rules: Rules) -> NoQuery {
    if let Some((_, parameters)) = KNOWN.iter().find(|(known, _)| *known == name) {
        return complaint(parameters, params, rules).err().unwrap_or(NoQuery::NotServed);
    }
    let other = match rules {
        Rules::BeforeHelicon => BEFORE_HELICON,
        Rules::Helicon => SINCE_HELICON,
    };
    if TRACES.contains(&name) || CONFIGURABLE.contains(&name) || other.contains(&name) {
        return NoQuery::NotServed;
    }
    RpcError::no_method(name).into()
}

fn complaint(parameters: &[Parameter], params: Option<&[u8]>, rules: Rules) -> Result<(), NoQuery> {
    let mut arguments = Arguments::new(params)?;
    let mut refused = None;
    for parameter in parameters {
        match look(*parameter, &mut arguments, rules)? {
            Look::Checked(Checked::Fine) => {}
            // A member that is not known here may be wrong for the node: it has to judge the rest.
            Look::Checked(Checked::Unknown) => return Ok(()),
            // An error of the method: those of later parameters come before it.
            Look::Refused(error) => refused = Some(error),
        }
    }
    arguments.end()?;
    refused.map_or(Ok(()), |error| Err(error.into()))
}

enum Look {
    Checked(Checked),
    /// The method itself refuses it, whatever the node has: after all arguments were read.
    Refused(RpcError),
}

impl Look {
    fn refused(refused: bool, error: RpcError) -> Self {
        if refused { Self::Refused(error) } else { Self::Checked(Checked::Fine) }
    }
}

/// True if these bytes are no transaction of any type, nor will be (libevm,
/// `core/types/transaction.go`, `decodeTyped`). What is longer may be one to a later node.
fn is_too_short(bytes: &[u8]) -> bool {
    matches!(bytes, [] | [..=0x7f])
}

fn look(
    parameter: Parameter,
    arguments: &mut Arguments<'_>,
    rules: Rules,
) -> Result<Look, RpcError> {
    let reference = |value: &[u8]| block_reference(value, rules);
    let checked = match parameter {
        Address => arguments.take(address).map(|_| None),
        Bytes => arguments.take(bytes).map(|_| None),
        Text => arguments.take(|value| check_string(value, "string")).map(|()| None),
        Texts => arguments.take(check_strings).map(|()| None),
        Reference => arguments.take(reference).map(|_| None),
        Big => arguments.optional(big).map(|_| None),
        Uint64 => arguments.optional(|value| uint(value, "hexutil.Uint64")).map(|_| None),
        Call => arguments.take(transaction).map(Some),
        StateOverrides => arguments.optional(|value| overrides(value, "ethapi.StateOverride")),
        BlockOverrides => arguments.optional(|value| overrides(value, "ethapi.BlockOverrides")),
        StateAt => {
            let names_none = arguments.take(reference)?.is_none();
            return Ok(Look::refused(names_none, RpcError::neither(rules)));
        }
        StateAtOptional => {
            let names_none = arguments.optional(reference)?.is_some_and(|at| at.is_none());
            return Ok(Look::refused(names_none, RpcError::neither(rules)));
        }
        RawTransaction => {
            let too_short = is_too_short(&arguments.take(bytes)?);
            return Ok(Look::refused(too_short, RpcError::method("typed transaction too short")));
        }
    };
    checked.map(|checked| Look::Checked(checked.unwrap_or(Checked::Fine)))
}
