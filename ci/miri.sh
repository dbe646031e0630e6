#!/usr/bin/env bash
# Runs what is unsafe in madgate-tm under miri, as far as miri can: every other crate of what
# is installed forbids unsafe code, but madgate-crc32c, which reaches memory through slices alone, and has
# nothing unsafe in it but a call of what the processor was asked for, and miri says that it has not.
# It follows accesses to memory, and finds those that are out of
# bounds, that break a reference's promise, or that two threads make without an order between them.
#
# The tests that are named here work on memory that the process has by itself. What is left out
# needs what miri does not know: memory with a descriptor, `epoll`, `userfaultfd`,
# `process_vm_writev`, options of sockets, and libfabric.
#
# Miri comes with nightly toolchains alone, which nothing else here needs. Where there is none, one
# is installed, but not where the variable CI is set: there a line says so and the step is passed, as
# what a server of toolchains does today says nothing about a commit. MADGATE_MIRI=required makes a
# failure of it. MADGATE_NIGHTLY names another toolchain, such as nightly-2026-11-20.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

toolchain="${MADGATE_NIGHTLY:-nightly}"
has_miri() { cargo "+$toolchain" miri --version >/dev/null 2>&1; }
install_miri() {
    rustup toolchain install "$toolchain" --profile minimal -c miri -c rust-src --no-self-update
}
if ! has_miri && ! { [ -z "${CI:-}" ] && install_miri && has_miri; }; then
    echo "no $toolchain toolchain with miri: nothing run under it" >&2
    [ "${MADGATE_MIRI:-}" != required ]
    exit
fi

# One random case of each: to draw them takes longer here than to run them.
export PROPTEST_CASES="${PROPTEST_CASES:-1}" MIRIFLAGS="${MIRIFLAGS:--Zmiri-disable-isolation}"
export CARGO_TARGET_DIR=target/miri
# Runs the tests of these names, "$1" of them at least: a name that matches nothing is no success.
miri() {
    local least=$1 log
    shift
    log=$(mktemp)
    cargo "+$toolchain" miri test --package madgate-tm --lib -- "$@" >"$log" 2>&1 || {
        cat "$log"
        rm "$log"
        return 1
    }
    cat "$log"
    local passed
    passed=$(grep -c '^test .* ok$' "$log")
    rm "$log"
    [ "$passed" -ge "$least" ] || {
        echo "$passed tests have run under miri, where $least were to: are their names still these?"
        return 1
    }
}

# Builds, too, what the others would wait for.
miri 26 piece:: pooled:: room:: slot::tests hsl::lent_out copying:: local::free local::loans local::memory \
    local::tests::model::an_entry local::tests::model::threads
# The others take ten minutes, which a run of everything has not left.
if [ -n "${CI:-}" ] && [ "${MADGATE_MIRI:-}" != required ]; then
    echo "lanes and ports are left to a run of ci/miri.sh alone, or with MADGATE_MIRI=required" >&2
    exit
fi
# Each of these keeps one processor busy.
miri 14 hsl::port::arena hsl::port::tests >target/miri/ports.log 2>&1 &
ports=$!
lanes_failed=0 ports_failed=0
miri 27 hsl::tests::hostile hsl::tests::placed hsl::tests::put hsl::tests::threads shm::tests || lanes_failed=1
wait "$ports" || ports_failed=1
cat target/miri/ports.log
exit $((lanes_failed | ports_failed))
