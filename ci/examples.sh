#!/usr/bin/env bash
# Each example runs to its end and finds what it looks for, with what the tests have built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for example in ping_pong express_header threads embedded_gateway port; do
    cargo run -p madgate-gateway --example "$example"
done
for place in "--protocol hsl" "--protocol hsl --mode interrupt" "--protocol shm" "--gateway"; do
    # shellcheck disable=SC2086 # several arguments
    cargo run -p madgate-gateway --example cestac -- --size 40 $place
done
