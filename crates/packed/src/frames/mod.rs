//! A frame: groups of streams, compressed with the dictionary of the file.

pub(crate) mod compress;
pub(crate) mod frame;
pub(crate) mod model;
pub(crate) mod model_cache;
