#!/bin/sh
# sh tests/run.sh WAY/NAME COMMAND...: runs one test, says how it went, and keeps build/WAY/NAME.log, whose last line is
# `N passed, N failed, N skipped`. A test program counts for itself; any other command is one test, which 77 as its exit status
# calls skipped. What failed is in the log, so this itself always succeeds.
set -u
name=$1 log=build/$1.log
shift
mkdir -p "${log%/*}"

# malloc(huge) is to answer NULL, as it does without the sanitizer. Programs run side by side, so an idle OpenMP thread is not to spin.
# Scratch files lie beside the log, for the same reason. A test that hangs has failed.
export ASAN_OPTIONS=allocator_may_return_null=1 TSAN_OPTIONS=allocator_may_return_null=1 OMP_WAIT_POLICY=passive TN_TEST_TMP="${log%/*}"
seconds=${TEST_SECONDS:-200}
limit=$(command -v timeout >/dev/null && echo timeout "$seconds")
$limit "$@" > "$log.part" 2>&1
status=$?
case $status/$(tail -n 1 "$log.part") in
0/*" passed, 0 failed, "*" skipped" | 1/*" passed, "[1-9]*" failed, "*" skipped") ;;
0/*)  echo "1 passed, 0 failed, 0 skipped" ;;
77/*) echo "0 passed, 0 failed, 1 skipped" ;;
124/*) printf 'FAIL ran longer than %s s\n0 passed, 1 failed, 0 skipped\n' "$seconds" ;;
*)    printf 'FAIL exit status %s\n0 passed, 1 failed, 0 skipped\n' "$status" ;;
esac >> "$log.part"
mv "$log.part" "$log"

# One page for a good run: the figures of the first way stand for all. A bad one is shown whole.
printf '%-28s %s\n' "$name" "$(tail -n 1 "$log")"
case $name/$(tail -n 1 "$log") in
*", 0 failed, "*)
    case $name in
    fuzz/*) show='^SKIP |^fuzz_' ;;
    gcc/*) show='^SKIP |^LESS |^worst |^failed_|_seconds: ' ;;
    *) show='^SKIP |^LESS ' ;;
    esac
    grep -E "$show" "$log" ;;
*) sed '$d' "$log" ;;
esac | sed 's/^/    /'
