#!/usr/bin/env bash
# libfabric's providers that have faults of their own (docs/hsl.md names them), each in a process
# that may hang or end with them: what counts is that the tests pass in one of a few attempts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export MADGATE_ALL_PROVIDERS=1

attempts=3
# Far longer than they take.
limit=180

# What the limit is for are the tests, not their build.
cargo test --workspace --lib --no-run
for provider in shm sockets; do
    for attempt in $(seq "$attempts"); do
        if timeout "$limit" cargo test --workspace --lib "libfabric::$provider"; then
            continue 2
        fi
        printf '%s: attempt %d of %d failed\n' "$provider" "$attempt" "$attempts" >&2
    done
    exit 1
done
