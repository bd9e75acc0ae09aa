#!/bin/sh
# sh tests/wine.sh PROGRAM ARGUMENTS...: runs a Windows program under wine, with a registry of its own in build/wine, and gives its lines
# the ends that our scripts know. 77 where there is no wine.
set -u
wine=$(command -v wine64 || command -v wine || ls /usr/lib/wine/wine64 2>/dev/null) || exit 77
export WINEPREFIX="$PWD/build/wine" WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml="
mkdir -p build
output=$(mktemp)
trap 'rm -f "$output"' EXIT
"$wine" "$@" > "$output" 2>&1
status=$?
tr -d '\r' < "$output"
exit $status
