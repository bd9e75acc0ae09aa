#!/bin/sh
# sh tests/examples.sh COMPILER...: no example has a warning, each is a whole program, and `make examples` builds it. Looked at without
# the library in each, which tensornet.o shows to have no warning.
set -u
status=0
fail() { echo "FAIL $*"; status=1; }
for example in examples/*.c examples/embed/*.c; do
    { echo "#line 1 \"$example\""; sed 's/^#define TENSORNET_IMPLEMENTATION$//' "$example"; } |
        "$@" -I"${example%/*}" -fsyntax-only - || fail "$example"
done

for example in $(grep -l '"tensornet.h"' examples/*.c examples/embed/*.c examples/embed/*.cpp); do
    awk '/^#define TENSORNET_IMPLEMENTATION$/ { exit } /^#include "tensornet.h"$/ { exit 1 }' "$example" &&
        grep -q '^#define TENSORNET_IMPLEMENTATION$' "$example" || fail "$example: it lacks the implementation"
done
lines=$(MAKEFLAGS= make -n -B examples) || fail "make examples"
for example in examples/*.c examples/embed/predict.c examples/embed/predict.cpp; do
    echo "$lines" | grep -q " $example .*-o build/examples/" || fail "$example is not built by make examples"
done
exit $status
