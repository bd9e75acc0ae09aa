#!/bin/sh
# sh tests/examples.sh COMPILER...: no example has a warning, and each is a whole program. Looked at without the library in each, which
# tensornet.o shows to have no warning.
set -u
status=0
for example in examples/*.c examples/embed/*.c; do
    { echo "#line 1 \"$example\""; sed 's/^#define TENSORNET_IMPLEMENTATION$//' "$example"; } |
        "$@" -I"${example%/*}" -fsyntax-only - || { echo "FAIL $example"; status=1; }
done
for example in $(grep -l '"tensornet.h"' examples/*.c examples/embed/*.c examples/embed/*.cpp); do
    grep -q '^#define TENSORNET_IMPLEMENTATION$' "$example" || { echo "FAIL $example: it lacks the implementation"; status=1; }
done
exit $status
