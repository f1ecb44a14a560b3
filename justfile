# Recipes. CI runs .ci/run, which runs ./check.

# Everything that CI checks, with the set-up that it needs.
all:
    ./check

# Formatting.
fmt:
    cargo fmt --all --check

# Lints; a warning fails.
clippy:
    cargo clippy --workspace --all-targets --locked -- -D warnings

# Documentation; a broken link fails.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked

# Licences, bans and sources of dependencies.
deny:
    cargo deny --locked check bans licenses sources

# The tests that need Rust and a C compiler only.
test:
    cargo test --workspace

# The tests that need more: a real node, client libraries, nginx, Varnish, schemathesis.
test-ignored:
    ./check ignored

# What is written for 64-bit ARM, in an emulator.
test-arm:
    tests/arm

# The embedded development chain.
dev:
    cargo run --release -- serve --dev

# The pair that ships: the binary, and its debug information beside it.
package:
    cargo build --release --locked --bin neve
    packaging/strip target/release/neve

# A binary that needs no library of the system (musl), checked.
static:
    packaging/static

# How long proving a block takes.
timing:
    cargo run --release -p neve-chain --example timing

# neve beside its floor, neve 0.2.2 and avalanchego: ratios, bounds. See docs/BENCHMARKING.md.
bench:
    bench-scripts/head-to-head --quick

# Instructions of the hot path against the last release.
instructions:
    bench-scripts/instructions
