#!/usr/bin/env bash
# Explores the interleavings of the shared rings.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# One small program: to optimise it as a whole would take longer than it runs.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p madgate-tm --release --lib loom
