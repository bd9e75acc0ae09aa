#!/bin/sh
# sh tests/equal.sh HEADER_PROGRAM UNITS_PROGRAM HEADER_OBJECT ARCHIVE: the one header and the units of src/ are the same library.
# Both export the same names, and a training run leaves the same bits (tests/equal.c, linked with either).
set -eu
command -v objcopy >/dev/null || { echo "SKIP equal: needs objcopy"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
names() { nm -g --defined-only "$1" | awk 'NF == 3 { print $3 }' | LC_ALL=C sort; }

ld -r --whole-archive "$4" -o "$work/units.o"
objcopy --localize-hidden "$work/units.o"
names "$3" > "$work/header.names"
names "$work/units.o" > "$work/units.names"
diff "$work/header.names" "$work/units.names" || { echo "FAIL the header (<) and the units (>) export different names"; exit 1; }
"$1" > "$work/header.bits"
"$2" > "$work/units.bits"
diff "$work/header.bits" "$work/units.bits" || { echo "FAIL a training run gives other bits with the header (<) than with the units (>)"; exit 1; }
[ "$(grep -c ' threads: [0-9a-f]\{16\}$' "$work/units.bits")" -ge 20 ] || { echo "FAIL tests/equal.c ran less than it says"; exit 1; }
echo "names: $(wc -l < "$work/units.names")"
cat "$work/units.bits"
