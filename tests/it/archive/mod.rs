//! Heights below the served range, read from an archive page by page.

pub(crate) mod bucket;
mod faults;
mod heights;
mod object_server;
mod pages;
mod trust;
