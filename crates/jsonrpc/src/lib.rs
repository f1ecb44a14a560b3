//! JSON-RPC as avalanchego's C-chain speaks it: requests in, questions and error texts out.
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
mod call;
pub mod envelope;
mod error;
mod fees;
mod filters;
mod log_filter;
mod log_range;
mod logs;
mod method;
mod nesting;
mod plain;
mod query;
mod reference;
mod request;
mod scan;
mod subscription;
mod syntax;
mod text;
mod unserved;
mod values;
mod walk;

pub use error::{NoQuery, RpcError};
pub use log_filter::LogFilter;
pub use log_range::{LogBound, LogHeads, LogRange, log_heights};
pub use logs::LogQuery;
pub use method::{Method, Rules};
pub use query::{Query, Transactions};
pub use reference::{At, Tag};
pub use request::{Kind, Message, Messages, Request, parse, parse_at_most};
pub use subscription::Subscription;
pub use syntax::syntax_error;
