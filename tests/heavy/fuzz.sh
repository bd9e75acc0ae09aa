#!/bin/sh
# sh tests/heavy/fuzz.sh PROGRAM FORMAT SECONDS: fuzzes from the corpus for so long. Says how many files were tried and how much of the
# code was reached; a finding stays as PROGRAM-crash-..., to become tests/corpus/FORMAT/found_WHAT with its repair.
set -u
program=$1 format=$2 seconds=$3
work=$program-corpus
mkdir -p "$work"
set -- "$work" "tests/corpus/$format"
if [ -d "tests/data/$format" ]; then set -- "$@" "tests/data/$format"; fi
"$program" -max_total_time="$seconds" -max_len=4096 -timeout=20 -rss_limit_mb=2048 -dict="tests/heavy/$format.dict" \
    -artifact_prefix="$program-" -print_final_stats=1 "$@" > "$program.out" 2>&1
status=$?
awk -v name="fuzz_$format" '
    /^#[0-9]+.*(INITED|DONE)/          { for (i = 2; i < NF; i++) if ($i == "cov:") blocks = $(i + 1); else if ($i == "ft:") features = $(i + 1) }
    /^stat::number_of_executed_units:/ { print name "_executions: " $2 }
    END                                { print name "_coverage: " blocks " blocks, " features " features" }' "$program.out"
if [ $status -ne 0 ]; then
    grep -v '^#[0-9]' "$program.out" | tail -n 60
    ls "$program"-[clot]*-* 2>/dev/null
fi
exit $status
