#!/bin/sh
# sh tests/equal.sh HEADER_PROGRAM UNITS_PROGRAM HEADER_OBJECT ARCHIVE [CUDA_FILE CUDA_UNITS]: the one header and the units of
# src/ are the same library. Both export the same names, and a training run leaves the same bits (tests/equal.c, linked with
# either). Objects of the one CUDA file and of its units export one function.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ld -r --whole-archive "$4" -o "$work/units.o" && command -v objcopy >/dev/null ||
    { echo "SKIP equal: needs GNU ld and objcopy"; exit 77; }
names() { nm -g --defined-only "$1" | awk 'NF == 3 { print $3 }' | LC_ALL=C sort; }

objcopy --localize-hidden "$work/units.o"
names "$3" > "$work/header.names"
names "$work/units.o" > "$work/units.names"
diff "$work/header.names" "$work/units.names" || { echo "FAIL the header (<) and the units (>) export different names"; exit 1; }
"$1" > "$work/header.bits"
"$2" > "$work/units.bits"
diff "$work/header.bits" "$work/units.bits" || { echo "FAIL a training run gives other bits with the header (<) than with the units (>)"; exit 1; }
runs=$(grep -c ' threads: [0-9a-f]\{16\}$' "$work/units.bits") || :
[ "$runs" -ge 20 ] || { echo "FAIL tests/equal.c printed $runs lines, expected at least 20"; exit 1; }
if [ $# = 6 ]; then
    cp "$6" "$work/cuda.o"
    objcopy --localize-hidden "$work/cuda.o"
    for object in "$5" "$work/cuda.o"; do
        [ "$(nm -g --defined-only "$object" | awk '$2 == "T" { print $3 }')" = tn_cuda_backend ] ||
            { echo "FAIL $object exports more than tn_cuda_backend"; exit 1; }
    done
fi
echo "names: $(wc -l < "$work/units.names")"
cat "$work/units.bits"
