#!/bin/sh
# sh tests/symbols.sh LIBRARY: an object, or an archive, exports names in tn_ only, and holds no variable that can be written. Names
# that units share are hidden: of an archive what counts is what a shared library of it would export. Tables of constants are
# fine wherever they lie: with addresses in them that is .data.rel.ro, which the loader makes read-only. Names that are reserved to the
# compiler are its own: C++ exceptions bring some.
set -eu
command -v nm >/dev/null || { echo "SKIP symbols: needs nm"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $1 in *.a)
    ld -r --whole-archive "$1" -o "$work/library.o" && command -v objcopy >/dev/null ||
        { echo "SKIP symbols: needs GNU ld and objcopy"; exit 77; }
    objcopy --localize-hidden "$work/library.o"
    set -- "$work/library.o" ;;
esac
[ "$(nm -g --defined-only "$1" | grep -c ' tn_')" -gt 0 ] || { echo "FAIL $1: exports no tn_ at all"; exit 1; }

# NAME of each variable of an object that can be written
writable() {
    nm -f sysv --defined-only "$1" | awk -F '[| ]+' '$1 !~ /^(__|DW\.ref\.__)/ && $NF ~ /^(\.t?data|\.t?bss|\*COM\*)/ && $NF !~ /^\.data\.rel\.ro/ { print $1 " in " $NF }'
}
# The search itself is tried first: where nm prints otherwise it would find nothing, ever.
probe=$work/probe.o
echo 'int probe_a = 1; static int probe_b; int *probe_c(void) { return &probe_b; }' | cc -x c -c - -o "$probe"
[ "$(writable "$probe" | grep -c probe_)" -eq 2 ] || { echo "FAIL symbols: nm does not show what can be written"; exit 1; }

bad=$(nm -g --defined-only "$1" | awk '$NF !~ /^(tn_|__|DW\.ref\.__)/ { print "FAIL exported: " $NF }'
      writable "$1" | sed 's/^/FAIL can be written: /')
[ -z "$bad" ] || { echo "$bad"; exit 1; }
