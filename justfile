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

# Hashing as 64-bit ARM does it, with the instructions for SHA-3 and without, in an emulator
# (qemu-user, gcc-aarch64-linux-gnu, `rustup target add aarch64-unknown-linux-gnu`).
test-arm:
    for cpu in max cortex-a53; do \
        QEMU_CPU=$cpu CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu" \
        cargo test -p neve-keccak --target aarch64-unknown-linux-gnu -- --nocapture || exit 1; \
    done

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
