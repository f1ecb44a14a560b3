//! The packer: from the node's texts of neighboring heights to a file.

pub(crate) mod encode;
pub(crate) mod pack;
