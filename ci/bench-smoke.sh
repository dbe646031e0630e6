#!/usr/bin/env bash
# The scenario benches run, and what arrives in them is what was sent; a short soak finds
# nothing; the benches of the parts run once. One short round, and not optimised: it shows that
# they work, not how fast anything is, with what the tests have built already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo run -p madgate-benches --bin relay -- --quick --set gateway.splice=false
cargo run -p madgate-benches --bin relay -- --quick --relays bare-looking --sizes 8
cargo run -p madgate-benches --bin regular -- --quick
cargo run -p madgate-benches --bin hsl -- --quick
cargo run -p madgate-benches --bin hsl -- --quick --device libfabric --provider "tcp;ofi_rxm"
cargo run -p madgate-benches --bin bridges -- pairs --quick
cargo run -p madgate-benches --bin bridges -- many --quick --flows 1,8 --beside haproxy
cargo run -p madgate-benches --bin bridges -- overlap --quick
cargo run -p madgate-benches --bin soak -- --seconds 20
cargo test -p madgate-benches --benches
