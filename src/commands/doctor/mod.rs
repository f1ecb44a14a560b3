//! `neve doctor`: looks at upstreams and machine before neve serves.

#[cfg(feature = "archive")]
mod archive;
mod command;
mod front;
mod machine;
mod node;
mod plan;
mod releases;
mod report;
mod storage;

pub use command::{DoctorArgs, run};
