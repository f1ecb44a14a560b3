//! Bytes of responses over HTTP, and which requests get one.

pub(crate) mod corpus;
mod encoding;
mod fast_path;
mod filters;
mod http2;
mod http2_drain;
mod http2_streams;
mod http_rows;
mod misses;
mod node_heads;
mod relayed_rows;
mod request_heads;
mod router_rules;
mod source_headers;
