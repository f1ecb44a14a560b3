//! Heights below the served range, read from an archive page by page.

mod bucket;
mod faults;
mod heights;
mod object_server;
mod trust;
