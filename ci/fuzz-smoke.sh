#!/usr/bin/env bash
# Every fuzz target: its corpus, then a few seconds of new inputs (FUZZ_SECONDS, 10 by
# default). What is found lies in fuzz/artifacts/.
#
# libFuzzer only needs its instrumentation, which any toolchain has; address checking would
# need a nightly one and is left out: the memory that targets of remote write share is reached
# through bounds that panic. Without a C++ compiler libFuzzer cannot be built: then the corpora
# are replayed by plain tests alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Of the whole workspace: so what the tests have built serves. A name that matches nothing is no success.
log=$(mktemp)
trap 'rm "$log"' EXIT
cargo test --workspace --lib fuzzing 2>&1 | tee "$log"
replayed=$(grep -c '^test .*corpora_and_what_is_near_them_hold \.\.\. ok$' "$log" || true)
[ "$replayed" -ge 5 ] || {
    echo "$replayed corpora have been replayed, where 5 were to: are their tests still called so?" >&2
    exit 1
}

if ! command -v "${CXX:-c++}" >/dev/null; then
    echo "no C++ compiler: corpora replayed, nothing fuzzed" >&2
    exit 0
fi

export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 \
-Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"
# A target triple keeps the instrumentation out of build scripts.
triple=$(rustc -vV | sed -n 's/^host: //p')
cargo build --release --manifest-path fuzz/Cargo.toml --target "$triple" --target-dir fuzz/target

# Fuzzes the target "$1". New inputs go to the first folder; the corpus in the tree stays as it
# is. What it says is printed when it ends, so that targets can run beside each other.
fuzz() {
    mkdir -p "fuzz/artifacts/$1" "fuzz/target/found/$1"
    local status=0 said
    said=$("fuzz/target/$triple/release/$1" "fuzz/target/found/$1" "fuzz/corpus/$1" \
        -artifact_prefix="fuzz/artifacts/$1/" -max_total_time="${FUZZ_SECONDS:-10}" \
        -timeout=10 -rss_limit_mb=2048 -print_final_stats=0 -verbosity=0 2>&1) || status=$?
    printf '\n==> %s\n%s\n' "$1" "$said"
    return "$status"
}
export triple
export -f fuzz

# A target that finds something does not keep the others from running.
basename --multiple --suffix=.rs fuzz/fuzz_targets/*.rs |
    xargs --max-procs="$(nproc)" --replace=TARGET bash -c 'fuzz TARGET'
echo "nothing found"
