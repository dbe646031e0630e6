#!/usr/bin/env bash
# The scenario benches run, and what arrives in them is what was sent; a short soak finds
# nothing; the benches of the parts run once. One short round, and not optimised: it shows that
# they work, not how fast anything is, with what the tests have built already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# The tests of the workspace need the benches as well: they are built with them, once.
cargo test --workspace --no-run
bench() { "${CARGO_TARGET_DIR:-target}/debug/$1" "${@:2}"; }

bench relay --quick --set gateway.splice=false
bench relay --quick --relays bare-looking --sizes 8
# Some kernels and containers forbid it.
if said=$(bench relay --quick --relays uring uring-looking --sizes 8 1048576 2>&1); then
  echo "$said"
else
  echo "$said"
  grep -q "io_uring is not to be had here" <<<"$said"
fi
bench regular --quick
bench hsl --quick
bench hsl --quick --device libfabric --provider "tcp;ofi_rxm"
bench bridges pairs --quick
bench bridges pairs --quick --trips
bench bridges many --quick --flows 1,8 --beside haproxy
bench bridges overlap --quick
bench soak --seconds 20
cargo test --workspace --bench '*'
