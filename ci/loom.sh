#!/usr/bin/env bash
# Explores the interleavings of the shared rings.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p madgate-tm --release --lib loom
