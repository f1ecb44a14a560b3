//! The packer: from the node's texts of neighboring heights to a file.

pub(crate) mod bounds;
pub(crate) mod encode;
mod file_writer;
pub(crate) mod pack;
