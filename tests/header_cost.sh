#!/bin/sh
# sh tests/header_cost.sh TIMES COMPILER...: prints what the header costs a compiler, in seconds of its own CPU time. A slow machine is no
# failure. TIMES: what the shell's `times` said when tensornet.o was compiled.
set -eu
implementation=$1
shift

# cpu TIMES COMMAND...: mean user + system time
cpu() { sh -ec 'n=$1; shift; while [ "$n" -gt 0 ]; do "$@"; n=$((n - 1)); done; times' sh "$@" | mean "$1"; }
mean() {
    awk -v n="$1" 'END { split($1, user, /[ms]/); split($2, system_, /[ms]/)
                         if (NR < 2) exit 1; printf "%.3f", (60 * (user[1] + system_[1]) + user[2] + system_[2]) / n }'
}
"$@" -I. -include tensornet.h -c /dev/null -o /dev/null
echo "header_declarations_seconds: $(cpu 20 "$@" -I. -include tensornet.h -c /dev/null -o /dev/null)"
echo "empty_file_seconds: $(cpu 20 "$@" -c /dev/null -o /dev/null)"
seconds=$(mean 1 < "$implementation")
echo "implementation_seconds: $seconds"
