# Recipes; CI runs the same commands (.ci/run).

# Everything that CI checks, in its order.
all: fmt clippy doc deny test

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

# All tests, with a real node.
test:
    cargo test --workspace

# The tests that need no Go and no network: all but the real node and the client libraries.
test-fast:
    cargo test --workspace -- --skip real_node --skip node_feed --skip clients

# What is written for 64-bit ARM, in an emulator.
test-arm:
    tests/arm

# The embedded development chain.
dev:
    cargo run --release -- serve --dev

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
