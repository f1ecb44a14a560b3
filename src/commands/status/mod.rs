//! `neve status`: the pages of the admin listener in a terminal.

mod admin_pages;
mod command;
mod lines;
mod metric_lines;

pub use command::run;
