#!/bin/sh
# Makes copy_pieces.ptx from copy_pieces.cu with clang; no CUDA toolkit is needed. The PTX is committed: a driver compiles it
# for the GPU at hand when it is loaded.
#
#   native/ptx.sh            writes it
#   native/ptx.sh --check    exits 1 when what is committed is not what clang makes
#
# CLANG names the compiler (clang-16 here: another version makes other text of the same meaning). With ptxas on the PATH, or
# named by PTXAS, the result is assembled for the architectures that it knows as well.
set -eu
cd "$(dirname "$0")"
clang=${CLANG:-clang-16}
made=$(mktemp)
trap 'rm -f "$made"' EXIT

# sm_70 in PTX ISA 6.0: every driver since CUDA 9 takes it, for Volta and everything later.
{
    echo '// Made from copy_pieces.cu by ptx.sh; do not edit.'
    "$clang" -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-gpu-arch=sm_70 -O3 -Wall -Wextra -Werror -S -o - \
        copy_pieces.cu
} >"$made"

ptxas=${PTXAS:-$(command -v ptxas || true)}
if [ -n "$ptxas" ]; then
    for arch in sm_70 sm_80 sm_90 sm_100; do
        "$ptxas" --help | grep "'$arch'" >/dev/null || { echo "ptx.sh: this ptxas has no $arch" >&2; continue; }
        "$ptxas" -arch="$arch" "$made" -o /dev/null
        echo "ptx.sh: assembles for $arch" >&2
    done
fi

if [ "${1:-}" = --check ]; then
    diff -u copy_pieces.ptx "$made" || { echo "ptx.sh: copy_pieces.ptx is stale: run native/ptx.sh" >&2; exit 1; }
else
    cat "$made" >copy_pieces.ptx
fi
