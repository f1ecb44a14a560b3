//! Documents under /v1/.

mod document;
mod etag;
mod path;
