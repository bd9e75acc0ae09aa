#!/bin/sh
# sh tests/header_cost.sh COMPILER...: prints what the header costs a compiler, in seconds of its own CPU time. Never a failure: a slow
# machine is no bug.
set -eu

# cpu TIMES COMMAND...: mean user + system time
cpu() {
    sh -c 'n=$1; shift; while [ "$n" -gt 0 ]; do "$@"; n=$((n - 1)); done; times' sh "$@" |
        awk -v n="$1" 'END { split($1, user, /[ms]/); split($2, system_, /[ms]/)
                             printf "%.3f", (60 * (user[1] + system_[1]) + user[2] + system_[2]) / n }'
}
echo "header_declarations_seconds: $(cpu 20 "$@" -I. -include tensornet.h -c /dev/null -o /dev/null)"
echo "empty_file_seconds: $(cpu 20 "$@" -c /dev/null -o /dev/null)"
echo "implementation_seconds: $(cpu 1 "$@" -I. -DTENSORNET_IMPLEMENTATION -c tensornet.h -o /dev/null)"
