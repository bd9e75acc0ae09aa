#!/bin/sh
# sh tests/examples.sh COMPILER...: no example has a warning. Without the library in each, which tensornet.o shows to have none.
set -u
status=0
for example in examples/*.c examples/embed/*.c; do
    { echo "#line 1 \"$example\""; sed 's/^#define TENSORNET_IMPLEMENTATION$//' "$example"; } |
        "$@" -I"${example%/*}" -fsyntax-only - || { echo "FAIL $example"; status=1; }
done
exit $status
