//! `neve archive`: pushes packed files to an object store, and shows and checks what is there.

mod command;

pub use command::run;
