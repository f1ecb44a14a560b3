//! Rules that are broken today. Lines may only go.

/// Findings that fail no test.
pub(crate) const EXCEPTIONS: &[&str] = &[
    "benches/floor/src/bin/load/report.rs: a line is over 160 columns",
    "crates/devnet/tests/rules.rs: a line is over 160 columns",
    "crates/store/src/loom_tests.rs: unsafe outside its place",
    "src/body/response_body.rs: is_cold outside its place",
    "src/client/rpc.rs: client may not import shared",
    "src/http/mirror/endpoint.rs: spawn_blocking outside its place",
    "src/http/mirror/record_stream.rs: spawn_blocking outside its place",
    "src/http/response/copied_body.rs: spawn_blocking outside its place",
    "src/http/worker.rs: spawn_blocking outside its place",
    "src/http/ws/message_reader.rs: spawn_blocking outside its place",
    "src/observe/health.rs: observe may not import body",
    "src/rpc/methods/execute.rs: DROPPED outside its place",
    "src/rpc/methods/fees.rs: DROPPED outside its place",
    "src/rpc/methods/logs.rs: DROPPED outside its place",
    "src/rpc/methods/miss.rs: DROPPED outside its place",
    "src/rpc/methods/raw.rs: DROPPED outside its place",
    "src/rpc/response.rs: is_cold outside its place",
    "src/shared/serving.rs: shared may not import rpc/cursors",
    "src/shared/serving.rs: shared may not import rpc/methods",
];
