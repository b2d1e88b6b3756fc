#!/usr/bin/env bash
# native/header.sh >native/include/fullbore.h: makes the header of the C interface from src/capi.
#
# Needs `cbindgen` of the version below on the PATH (cargo install cbindgen --version ... --locked). `.ci/header`
# compares what it makes with what is committed.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.29.4 # of cbindgen
[ "${1:-}" != --version ] || { echo "$version"; exit 0; }
found=$(cbindgen --version)
[ "$found" = "cbindgen $version" ] || { echo "native/header.sh: $found is not cbindgen $version" >&2; exit 1; }

# One file, in the order of the header. Sections "# Safety" are for Rust's readers: they say that the header says it.
source=$(mktemp --suffix=.rs)
trap 'rm -f "$source"' EXIT
for module in names types version engine target region client marks stats log; do
    perl -0pe 's{^//!.*\n}{}gm; s{( *///\n)? */// # Safety\n */// As the header says\.\n}{}g' src/capi/$module.rs
done >"$source"
cbindgen --quiet --config native/cbindgen.toml "$source"
