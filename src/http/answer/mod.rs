//! Answers JSON-RPC on both paths: from a body to a response, here or on threads that may wait.

mod responder;
mod responses;
mod written;

pub(crate) use responder::Responder;
