#!/usr/bin/env bash
# The documentation builds without a warning.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
