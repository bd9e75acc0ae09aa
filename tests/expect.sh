# Sourced by tn.sh and tn_device.sh, TN in $1: a folder of their own to work in, counts, and what they expect of the command.
tn=$1
case $tn in /*) ;; *) tn=$PWD/$tn ;; esac
name=${0##*/} name=${name%.sh}
mkdir -p "${TN_TEST_TMP:-/tmp}"
dir=$(mktemp -d "${TN_TEST_TMP:-/tmp}/tn.XXXXXX") || exit 1
dir=$(cd "$dir" && pwd)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
passed=0 failed=0 skipped=0
pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "FAIL $name: $*"; }
same() { if cmp -s "$2" "$3"; then pass; else fail "$1: $2 and $3 differ"; fi; }

# expect STATUS TEXT ARGUMENT...: so it ends, and says that; what it said is in `said`. What fails may leave its memory to
# the system.
expect() {
    status=$1 text=$2
    shift 2
    if [ "$status" = 0 ]; then leaks=1; else leaks=0; fi
    ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=$leaks" "$tn" "$@" > said 2>&1 < /dev/null
    got=$?
    if [ "$got" != "$status" ]; then fail "tn $*: exit status $got, not $status: $(tail -n 2 said)"
    elif ! grep -qF -- "$text" said; then fail "tn $*: does not say \"$text\": $(tail -n 3 said)"
    else pass; fi
}
