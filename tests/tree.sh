#!/bin/sh
# sh tests/tree.sh: the source tree is what src/README.md says it is. tensornet.h and tensornet_cuda.cu are what is made from it;
# src/ORDER lists every file; calls and includes between folders go one way (floors.awk); src/tensornet.h has all public
# declarations; no file is longer than 700 lines. Prints only what is wrong, and the figures of floors.awk.
set -u
status=0
fail() { echo "FAIL $*"; status=1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

awk -f tools/header.awk src/ORDER > "$work/tensornet.h" && cmp "$work/tensornet.h" tensornet.h ||
    fail "tensornet.h is not what src/ makes: make header"
awk -v cuda=1 -f tools/header.awk src/cuda/ORDER > "$work/tensornet_cuda.cu" && cmp "$work/tensornet_cuda.cu" tensornet_cuda.cu ||
    fail "tensornet_cuda.cu is not what src/cuda/ makes: make header"

{
    awk '/^[a-z]/ { folder = $1 ~ /\./ ? "" : $1 "/"; if (folder == "") print $1 } /^    / { print folder $1 }' src/ORDER
    awk '/^[a-z]/ { print "cuda/" $1 }' src/cuda/ORDER
} | LC_ALL=C sort > "$work/listed"
[ -z "$(uniq -d "$work/listed")" ] || fail "twice in an ORDER: $(uniq -d "$work/listed")"
# Only units need these two.
(cd src && find . -type f | sed 's|^\./||' | grep -Ev '^tensornet\.h$|^ops/again\.h$|^README\.md$|ORDER$' | LC_ALL=C sort) > "$work/there"
difference=$(diff "$work/listed" "$work/there") || fail "src/ORDER with src/cuda/ORDER (<) and the files of src/ (>) differ: $difference"

awk -f tests/floors.awk src/ORDER src/*/*.c src/*/*.h src/*/*.inl || status=1

for header in src/*/*.h; do
    folder=${header%/*} name=${header##*/}
    [ "${folder##*/}.h" = "$name" ] || continue
    grep -q "^#include \"${folder##*/}/$name\"" src/tensornet.h || fail "src/tensornet.h lacks ${folder##*/}/$name"
done
grep -o '"[a-z]*/[a-z]*\.h"' src/tensornet.h | sed 's|"\(.*\)/.*|\1|' > "$work/included"
awk '/^[a-z]/ && $1 !~ /\./ { print $1 }' src/ORDER | grep -xF -f "$work/included" | cmp -s - "$work/included" ||
    fail "src/tensornet.h has the folders in another order than src/ORDER"
for file in src/*/*; do
    lines=$(wc -l < "$file")
    [ "$lines" -le 700 ] || fail "$file has $lines lines, expected 700 at most: is it about more than one thing?"
done
exit $status
