#!/usr/bin/env bash
# No lint speaks, in any target, with all features and with the command left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo clippy --workspace --all-targets --all-features -- -D warnings
cargo clippy -p madgate-gateway --lib --no-default-features -- -D warnings
