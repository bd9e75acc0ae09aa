#!/bin/sh
# sh tests/examples.sh COMPILER...: no example has a warning, each is a whole program, `make examples` builds it, and the
# pages are short and include nothing but the library. Compiled without the library in each: tests/Makefile compiles that.
set -u
status=0
fail() { echo "FAIL $*"; status=1; }
all="$(ls examples/*.c examples/*.cpp examples/studies/*.c examples/embed/*.c examples/embed/*.cpp)"
for example in $all; do
    case $example in *.cpp) continue ;; esac
    "$@" -DTNI_IMPLEMENTED -fsyntax-only "$example" || fail "$example"
done

# The benchmark looks into contexts, and nothing else compiles it.
for file in tools/bench/*.c; do
    "$1" -std=gnu11 -Isrc -Itools/bench -fopenmp -w -fsyntax-only "$file" || fail "$file"
done

for example in $(grep -l '"tensornet.h"' $all); do
    awk '/^#define TENSORNET_IMPLEMENTATION$/ { exit } /^#include "tensornet.h"$/ { exit 1 }' "$example" &&
        grep -q '^#define TENSORNET_IMPLEMENTATION$' "$example" || fail "$example: it lacks the implementation"
    grep -q " $example -o [a-z0-9_]*" "$example" || fail "$example does not say how it is compiled"
done
lines=$(MAKEFLAGS= make -n -B examples) || fail "make examples"
for example in $(echo "$all" | grep -Ev 'embed/(train|bytes)'); do
    echo "$lines" | grep -q " $example .*-o build/examples/" || fail "$example is not built by make examples"
done
for page in examples/[0-9]*.c examples/game_loop.c examples/cpp.cpp examples/hello.c; do
    name=${page##*/} name=${name%.*}
    [ "$(wc -l < "$page")" -le 110 ] || fail "$page has more than 110 lines"
    [ -f "tests/pages/$name.txt" ] || fail "$page: tests/pages/$name.txt is missing"
    ! grep '^#include "' "$page" | grep -v '"tensornet.h"' || fail "$page includes more than tensornet.h"
done
exit $status
