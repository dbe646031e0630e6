#!/usr/bin/env bash
# The main job on embedded defaults: three processes, real files through the gateway.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo run --release -- demo
