//! The methods that are served: their names, and what each expects of the server.

/// Rules by which a node answers: one set for all its blocks, of before the switch to Helicon too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rules {
    /// Rules of avalanchego v1.14: one accepted head, `totalDifficulty` is the number.
    #[default]
    BeforeHelicon,
    /// Rules of v1.15 since the switch (ACP-194): executed and settled heads, `totalDifficulty` is
    /// 0.
    Helicon,
}

macro_rules! methods {
    ($($variant:ident = $name:literal),+ $(,)?) => {
        /// A method that is served. Also the label under which it is counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Method {
            $(#[doc = concat!("`", $name, "`")] $variant,)+
        }

        impl Method {
            /// All served methods; the place of one is its number.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Name of the method.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The method of this name, exactly.
            pub fn from_name(name: impl AsRef<[u8]>) -> Option<Self> {
                let name = name.as_ref();
                $(if name == $name.as_bytes() { return Some(Self::$variant); })+
                None
            }
        }
    };
}

methods! {
    BlockNumber = "eth_blockNumber",
    ChainId = "eth_chainId",
    NetVersion = "net_version",
    BlockByNumber = "eth_getBlockByNumber",
    BlockByHash = "eth_getBlockByHash",
    HeaderByNumber = "eth_getHeaderByNumber",
    HeaderByHash = "eth_getHeaderByHash",
    TransactionCountByNumber = "eth_getBlockTransactionCountByNumber",
    TransactionCountByHash = "eth_getBlockTransactionCountByHash",
    TransactionByHash = "eth_getTransactionByHash",
    TransactionByNumberAndIndex = "eth_getTransactionByBlockNumberAndIndex",
    TransactionByBlockHashAndIndex = "eth_getTransactionByBlockHashAndIndex",
    TransactionReceipt = "eth_getTransactionReceipt",
    BlockReceipts = "eth_getBlockReceipts",

    RawTransactionByHash = "eth_getRawTransactionByHash",
    RawTransactionByNumberAndIndex = "eth_getRawTransactionByBlockNumberAndIndex",
    RawTransactionByBlockHashAndIndex = "eth_getRawTransactionByBlockHashAndIndex",
    UncleCountByNumber = "eth_getUncleCountByBlockNumber",
    UncleCountByHash = "eth_getUncleCountByBlockHash",
    UncleByNumberAndIndex = "eth_getUncleByBlockNumberAndIndex",
    UncleByBlockHashAndIndex = "eth_getUncleByBlockHashAndIndex",
    DebugRawHeader = "debug_getRawHeader",
    DebugRawBlock = "debug_getRawBlock",
    DebugRawReceipts = "debug_getRawReceipts",
    DebugRawTransaction = "debug_getRawTransaction",

    Sha3 = "web3_sha3",
    ClientVersion = "web3_clientVersion",
    Listening = "net_listening",
    PeerCount = "net_peerCount",
    Syncing = "eth_syncing",
    ChainConfig = "eth_getChainConfig",
    Modules = "rpc_modules",

    GasPrice = "eth_gasPrice",
    BaseFee = "eth_baseFee",
    MaxPriorityFeePerGas = "eth_maxPriorityFeePerGas",
    SuggestPriceOptions = "eth_suggestPriceOptions",
    FeeHistory = "eth_feeHistory",

    Logs = "eth_getLogs",
    NewFilter = "eth_newFilter",
    NewBlockFilter = "eth_newBlockFilter",
    NewPendingTransactionFilter = "eth_newPendingTransactionFilter",
    FilterChanges = "eth_getFilterChanges",
    FilterLogs = "eth_getFilterLogs",
    UninstallFilter = "eth_uninstallFilter",
}

impl Method {
    /// True if a node of some version has it by default. neve relays no other one unless told to.
    pub(crate) fn is_default(self) -> bool {
        !self.is_debug_raw()
    }

    /// True if it is one of the `debug_getRaw*` methods, which a node has only if it is told to
    /// (`eth-apis` with `internal-debug`, since Helicon `apis` with `db`).
    pub fn is_debug_raw(self) -> bool {
        matches!(
            self,
            Self::DebugRawHeader
                | Self::DebugRawBlock
                | Self::DebugRawReceipts
                | Self::DebugRawTransaction
        )
    }
}
