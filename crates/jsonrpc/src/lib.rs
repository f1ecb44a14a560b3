//! JSON-RPC as avalanchego's C-chain speaks it: requests in, questions and error texts out.
//!
//! avalanchego's server is go-ethereum's (`libevm/rpc`) on Go's `encoding/json`, and clients see
//! its habits: which odd bodies are calls, whose id comes back, what each wrong parameter is
//! called. Those habits are data here. The crate borrows from the request body, allocates only
//! for what is rare, and does no I/O. It knows heights and hashes, not where they are kept.
//!
//! [`parse`] splits a body into messages, [`Message::query`] decodes one into a [`Query`] or an
//! [`RpcError`] with the node's words, and [`envelope`] writes what goes around an answer.

#![forbid(unsafe_code)]

mod arguments;
pub mod envelope;
mod error;
mod log_filter;
mod method;
mod request;
mod scan;
mod text;

pub use arguments::{At, Tag};
pub use error::{NoQuery, RpcError};
pub use log_filter::LogFilter;
pub use method::{Method, Query, Rules, Transactions};
pub use request::{Kind, Message, Messages, Request, parse};
