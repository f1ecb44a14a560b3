//! Drawing the content of a block.

#[allow(clippy::module_inception, reason = "the file of the main type")]
mod draw;
mod draw_logs;
mod gas;
mod outline;
mod scene;

pub(crate) use draw::draw;
