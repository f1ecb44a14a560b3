//! Answers JSON-RPC on both paths: from a body to a response, here or on threads that may wait.

mod lender;
mod responder;
mod responses;
mod written;

pub(crate) use lender::Lender;
pub(crate) use responder::{Responder, wants_of};
