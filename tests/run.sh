#!/bin/sh
# sh tests/run.sh WAY/NAME COMMAND...: runs one test, says how it went, and keeps build/WAY/NAME.log. The last line of a
# log is `N passed, N failed, N skipped`, the line before it says how much processor time the test took. A test program
# counts its own tests; any other command is one test, which exit status 77 reports as skipped. What failed is in the log,
# so this script always succeeds.
#
# A test that hangs fails. The limit is on processor time, TEST_SECONDS for each process, because a busy machine is not a
# fault; a process that waits for something that never comes is stopped by a wide limit on the clock.
set -u
name=$1 log=build/$1.log
shift
mkdir -p "${log%/*}"

# Without a sanitizer malloc(huge) returns NULL, so it should with one. Programs run side by side, so OpenMP's waiting
# threads should sleep. Scratch files lie beside the log, for the same reason.
export ASAN_OPTIONS=allocator_may_return_null=1 TSAN_OPTIONS=allocator_may_return_null=1
export OMP_WAIT_POLICY=passive TN_TEST_TMP="${log%/*}"
seconds=${TEST_SECONDS:-200}
wide=$((seconds * 10))
clock=$(command -v timeout >/dev/null && echo timeout $wide)
(
    ulimit -S -t "$seconds"
    $clock "$@" > "$log.part" 2>&1
    status=$?
    times > "$log.times"
    exit $status
)
status=$?
last=$(tail -n 1 "$log.part") fault=
case $status/$last in
*/"0 passed, 0 failed, 0 skipped") sum="0 passed, 1 failed, 0 skipped" fault="no test ran"; mv "$log.part" "$log.new" ;;
0/*" passed, 0 failed, "*" skipped" | 1/*" passed, "[1-9]*" failed, "*" skipped")
    sum=$last
    sed '$d' "$log.part" > "$log.new" ;;
*)  sum="0 passed, 1 failed, 0 skipped"
    mv "$log.part" "$log.new"
    case $status/$last in
    0/*" passed, "*" failed, "*) fault="exit status 0, but it counted failures" ;;
    0/*)         sum="1 passed, 0 failed, 0 skipped" ;;
    77/*)        sum="0 passed, 0 failed, 1 skipped" ;;
    124/*)       fault="it ran longer than $wide s by the clock" ;;
    137/*|152/*) fault="it was killed, or took more than $seconds s of processor time" ;;
    *)           fault="exit status $status" ;;
    esac ;;
esac
{
    [ -z "$fault" ] || echo "FAIL $fault"
    echo "processor seconds: $(awk -f tests/seconds.awk "$log.times" | sed 's/ .*//')"
    echo "$sum"
} >> "$log.new"
mv "$log.new" "$log"
rm -f "$log.part" "$log.times"

# A good run is one page: the figures of the first way stand for all. A bad one is shown whole.
printf '%-28s %s\n' "$name" "$sum"
case $sum in
*", 0 failed, "*)
    case $name in
    fuzz/*) show='^SKIP |^LEFT OUT |^fuzz_' ;;
    gcc/*)  show='^SKIP |^LESS |^LEFT OUT |^worst |^failed_|_seconds: ' ;;
    cuda-host/*) show='^SKIP |^LESS |^LEFT OUT |beyond the gate' ;;
    *)      show='^SKIP |^LESS ' ;;
    esac
    grep -E "$show" "$log" ;;
*) sed '$d' "$log" ;;
esac | sed 's/^/    /'
