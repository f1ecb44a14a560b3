//! Documents under `/v1/`.

mod changes;
mod documents;
mod tester;
mod varnish;
