//! Requests as an operator follows them: the access log, ids of requests, and their traces.

mod log;
mod request_ids;
mod rotation;
