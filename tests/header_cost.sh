#!/bin/sh
# sh tests/header_cost.sh SECONDS COMPILER...: prints what the header costs a compiler, in seconds of processor time. A
# slow machine is not a failure. SECONDS is the file in which tests/build.sh noted the time of tensornet.o.
set -eu
implementation=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The mean of twenty runs of a command
mean() {
    sh -ec 'n=20; while [ "$n" -gt 0 ]; do "$@"; n=$((n - 1)); done; times' sh "$@" > "$folder/times"
    awk -f tests/seconds.awk "$folder/times" | awk '{ printf "%.3f", $1 / 20 }'
}
"$@" -I. -include tensornet.h -c /dev/null -o /dev/null
echo "header_declarations_seconds: $(mean "$@" -I. -include tensornet.h -c /dev/null -o /dev/null)"
echo "empty_file_seconds: $(mean "$@" -c /dev/null -o /dev/null)"
echo "implementation_seconds: $(awk -f tests/seconds.awk "$implementation" | sed 's/ .*//')"
