//! Rules that are broken today. Lines may only go.

/// Findings that fail no test.
pub(crate) const EXCEPTIONS: &[&str] = &[
    "src/body/response_body.rs: is_cold outside its place",
    "src/rpc/methods/execute.rs: DROPPED outside its place",
    "src/rpc/methods/fees.rs: DROPPED outside its place",
    "src/rpc/methods/logs.rs: DROPPED outside its place",
    "src/rpc/methods/miss.rs: DROPPED outside its place",
    "src/rpc/methods/raw.rs: DROPPED outside its place",
    "src/rpc/response.rs: is_cold outside its place",
];
