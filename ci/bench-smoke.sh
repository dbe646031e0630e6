#!/usr/bin/env bash
# The scenario benches run, and what arrives in them is what was sent; a short soak finds
# nothing; the benches of the parts run once. One short round: it shows that they work, not
# how fast anything is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo run --release -p madgate-benches --bin relay -- --quick
cargo run --release -p madgate-benches --bin regular -- --quick
cargo run --release -p madgate-benches --bin hsl -- --quick
cargo run --release -p madgate-benches --bin soak -- --seconds 20
cargo bench -p madgate-benches --bench '*' -- --test
