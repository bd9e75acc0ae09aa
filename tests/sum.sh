#!/bin/sh
# sh tests/sum.sh BEGUN LOG...: repeats what failed and what was skipped, says where the processor time went, and adds up
# the last lines of all logs into the last line. A log that is not there belongs to a test that did not build. What was
# built counts if it is newer than the file BEGUN, so that what an earlier run left is not counted again.
set -eu
begun=$1
shift
sum=$(mktemp)
trap 'rm -f "$sum"' EXIT
for log; do
    name=${log#build/} name=${name%.log}
    if [ -f "$log" ]; then
        sed -n "s|^FAIL |&$name: |p; s|^SKIP |&$name: |p; s|^processor seconds: \(.*\)|seconds \1 run   $name|p; \$p" "$log"
    else
        printf 'FAIL %s: did not build\n0 passed, 1 failed, 0 skipped\n' "$name"
    fi
done > "$sum"
find build -name '*.seconds' -newer "$begun" -exec awk -f tests/seconds.awk {} + |
    sed 's|^\([^ ]*\) build/\(.*\)\.seconds$|seconds \1 build \2|' >> "$sum"

grep -E '^(FAIL|SKIP) ' "$sum" || :
awk '/^seconds / { of[$3] += $2 }
     END         { printf "\nprocessor seconds: %.0f, of them %.0f to build, %.0f to run; the ten longest:\n",
                       of["build"] + of["run"], of["build"], of["run"] }' "$sum"
sed -n 's/^seconds //p' "$sum" | sort -rn | awk 'NR <= 10 { printf "    %7.1f  %-5s  %s\n", $1, $2, $3 }'
awk '/ passed, .* skipped$/ { passed += $1; failed += $3; skipped += $5 }
     END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped; exit failed > 0 || passed == 0 }' "$sum"
