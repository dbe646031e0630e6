#!/usr/bin/env bash
# Installs the programs that tests and benches use beyond the Rust toolchain: the peers of
# the relay bench, `ip` and `tc` for hosts made of network namespaces, and for the bench of
# remote write `strace`, which counts system calls, and UCX's `ucx_perftest`, its peer; and
# libfabric, whose cards remote write is tested with, and whose headers are what its C interface is
# held against; and `mkfs.ext4` for a disk that is stopped.
set -euo pipefail

declare -A packages=([haproxy]=haproxy [socat]=socat [ip]=iproute2 [tc]=iproute2 [strace]=strace [ucx_perftest]=ucx-utils [mkfs.ext4]=e2fsprogs)
missing=()
for program in "${!packages[@]}"; do
    # Debian keeps `haproxy`, `ip` and `tc` in directories that are not on every PATH.
    PATH="$PATH:/usr/sbin:/sbin" command -v "$program" >/dev/null || missing+=("${packages[$program]}")
done
has_library() { PATH="$PATH:/usr/sbin:/sbin" ldconfig -p | grep "$1" >/dev/null; }
has_library libfabric.so.1 || missing+=(libfabric1)
[ -e /usr/include/rdma/fabric.h ] || missing+=(libfabric-dev)
if [ ${#missing[@]} -eq 0 ]; then
    echo "everything is installed"
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "missing: ${missing[*]}; install them, or run this as root on Debian" >&2
    exit 1
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
