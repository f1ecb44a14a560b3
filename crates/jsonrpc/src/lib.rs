//! JSON-RPC as avalanchego's C-chain speaks it: requests in, queries and error texts out.
//!
//! avalanchego's server is go-ethereum's (`libevm/rpc`) on Go's `encoding/json`, and clients see
//! its habits: which odd bodies are calls, whose id comes back, what each wrong parameter is
//! called. Those habits are data here. The crate borrows from the request body, allocates only
//! for what is rare, and does no I/O. It knows heights and hashes, not where they are kept.
//!
//! [`parse`] splits a body into messages, [`Message::query`] decodes one into a [`Query`] or an
//! [`RpcError`] with the node's words, [`Message::subscription`] does so for what only a WebSocket
//! has, and [`envelope`] writes what goes around an answer.

#![forbid(unsafe_code)]

mod arguments;
pub mod envelope;
mod error;
mod json;
mod method;
mod query;
mod request;

pub use arguments::{BlockId, LogBound, LogFilter, LogHeads, LogRange, Tag, log_heights};
pub use error::{NoQuery, RpcError, excerpt};
pub use json::{elements, is_key, members, syntax_error};
pub use method::{Method, Rules};
pub use query::{
    FREQUENT_METHODS, LogQuery, OTHER_METHODS, Query, Subscription, Transactions, default_methods,
    other_methods,
};
pub use request::{Kind, Message, Messages, Request, parse, parse_at_most};
