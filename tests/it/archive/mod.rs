//! Heights below the served range, read from an archive page by page.

mod access;
pub(crate) mod bucket;
mod corpus;
mod faults;
mod heights;
mod logs;
mod object_server;
mod pages;
mod pull;
mod rare_logs;
mod real;
mod scale;
mod slow;
mod tabled;
mod trust;
pub(crate) mod writers;
