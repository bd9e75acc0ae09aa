#!/bin/sh
# sh tests/heavy/faults.sh TN SAVES: what becomes of `tn train`, and of the library's saves, when a system call fails
#
# TN and SAVES (faults.c) are linked with hook.c. A run of six steps, with a checkpoint after each, is repeated with one call
# failing, and then resumed: for most kinds of faults each call of that kind, for those with many calls one of several (the
# strides at the end). A fault called harmless must leave no trace; any other must be answered by a message, except
# one called either: a run can do without some memory, such as a reserve. No file may be damaged; the resumed run must leave
# no temporary file and end with the bits of a run without faults. A table says how many runs there were and how they ended;
# the last line is `N passed, N failed, N skipped`.
set -u
saves=$2
case $saves in /*) ;; *) saves=$PWD/$saves ;; esac
tests=${0%/*}/..
. "$tests/expect.sh"

# ---- the library's saves ----

TN_TEST_TMP=$dir "$saves" > saves.said 2>&1
sed '$d' saves.said
counts=$(sed -n '$s/^\([0-9]*\) passed, \([0-9]*\) failed, 0 skipped$/\1 \2/p' saves.said)
[ -n "$counts" ] || { echo "FAIL faults: $saves: $(tail -n 1 saves.said)"; counts='0 1'; }
passed=$((passed + ${counts% *})) failed=$((failed + ${counts#* }))

# ---- tn train ----

awk 'BEGIN {
    n = split("one day the little cat saw a red ball in the park . it was happy , and ran home with tom", w, " ")
    for (x = 1; i < 2400; i++) {
        x = (x * 1103 + 12345) % 65536
        printf "%s%s", w[1 + int(x / 64) % n], (i % 10 == 9 ? "\n" : " ")
    }
}' > text
settings="--width 16 --heads 2 --context 16 --batch 2 --steps 6 --save-every 1 --val-every 3 --val-tokens 64 --sample-every 3
    --sample-length 8 --no-baseline"
train() { "$tn" train text --out "$@" $settings --threads 1; }
untimed() { sed 's/,"rate".*//' "$1/log.jsonl"; }

# What a run without faults leaves, and each of its checkpoints: a run that is killed before the next one leaves them.
train whole > said 2>&1 || { cat said; fail "a run without faults"; }
untimed whole > whole.log
mkdir good
for step in 0 1 2 3 4 5; do
    { TN_FAULT=fopen:1:kill:step-0000000$((step + 1)) train part > said 2>&1; } 2> /dev/null
    cp part/step-0000000$step.safetensors good/ || fail "a run that ends after step $step: $(tail -n 1 said)"
    rm -rf part
done
cp whole/step-00000006.safetensors whole/model.safetensors good/
same "two runs without faults" good/step-00000005.safetensors whole/step-00000005.safetensors

# one FAULT [harmless|either]: a run with it, and what comes after. Adds to stopped, warned, unharmed or to `bad`, with a line
# for each.
# 1: the fault did not happen.
bad=0 total=0
wrong() { bad=$((bad + 1)); echo "FAIL faults: $1: $2"; }
one() {
    rm -rf run told
    TN_FAULT=$1 TN_FAULT_TOLD=$dir/told train run > said 2>&1
    status=$?
    [ -f told ] || return 1                 # there are fewer such calls
    runs=$((runs + 1)) total=$((total + 1)) was=$bad
    if [ "$2" = harmless ]; then
        if [ $status = 0 ] && ! grep -q '^tn train: ' said; then unharmed=$((unharmed + 1))
        else wrong "$1" "exit status $status, not harmless: $(grep '^tn train: ' said | tail -n 1)"
        fi
    elif [ $status = 1 ] && grep -q '^tn train: ' said; then stopped=$((stopped + 1))
    elif [ $status = 1 ]; then wrong "$1" "stopped without a message"
    elif [ $status != 0 ]; then wrong "$1" "exit status $status"
    elif grep -q '^tn train: ' said; then warned=$((warned + 1))
    elif [ "$2" = either ]; then unharmed=$((unharmed + 1))
    else wrong "$1" "no message ($(cat told))"
    fi
    case $2,$(cat told) in
    ,'fsync '*' run')
        grep -q '^tn train: .*: the file was saved, but its folder could not be synced to the disk: ' said ||
            wrong "$1" "not what happened: $(grep '^tn train: ' said)" ;;
    esac
    for file in run/*.safetensors; do
        [ ! -f "$file" ] || cmp -s "$file" "good/${file##*/}" || wrong "$1" "$file is damaged"
    done
    if [ -f run/config.txt ]; then "$tn" train --resume run --threads 1 > again 2>&1; else train run > again 2>&1; fi || {
        wrong "$1" "it cannot be resumed: $(tail -n 1 again)"
        return 0
    }
    for file in model.safetensors step-00000006.safetensors; do
        cmp -s run/$file good/$file || wrong "$1" "another $file after it was resumed"
    done
    untimed run | cmp -s - whole.log || wrong "$1" "another log after it was resumed"
    [ -z "$(ls run | grep tmp)" ] || wrong "$1" "$(ls run | grep tmp) is left"
    [ "$(ls run | wc -l)" = "$(ls whole | wc -l)" ] || wrong "$1" "other files than without it: $(ls run | tr '\n' ' ')"
    [ $was != $bad ] || passed=$((passed + 1))
    return 0
}

# every CALL WHAT STRIDE [HARMLESS [PART]]: each STRIDE-th call of this kind, until there are no more
echo "fault                      runs  stopped  warned  unharmed  wrong"
begin() { runs=0 stopped=0 warned=0 unharmed=0 before=$bad; }
end() {
    printf '%-26s %4d %8d %7d %9d %6d\n' "$1" $runs $stopped $warned $unharmed $((bad - before))
    [ $runs -gt 0 ] || wrong "$1" "there is no such call"
}
every() {
    begin
    n=1
    while one "$1:$n:$2${5:+:$5}" "${4:-}"; do n=$((n + $3)); done
    end "$1 $2"
}
# of all calls of one kind every other one
other() { begin; one "$1" harmless; end "$1"; }
every fopen EMFILE 4 either
every fwrite ENOSPC 5 "" .safetensors.tn
every fwrite short 7 "" .safetensors.tn
every fwrite ENOSPC 1 "" run/config
every fwrite ENOSPC 499 "" run/loss
every fflush ENOSPC 1 "" run/
every fsync EIO 1
every fsync EINTR 4 harmless
every dup EMFILE 1
every flock ENOLCK 1 harmless
every fclose EIO 1 either run/
every close EIO 4 harmless
every rename EIO 1
every unlink EIO 1
every ftruncate EIO 1
every malloc NULL 13 either
every calloc NULL 13
every realloc NULL 9
echo "failed_calls_of_tn_train: $total"
failed=$((failed + bad))
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
