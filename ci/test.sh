#!/usr/bin/env bash
# All tests of the workspace.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo test --workspace
