#!/bin/sh
# sh tests/sum.sh LOG...: names again what failed and what was skipped, and adds up the last lines of all logs into the last line.
# A log that is not there is a test that did not build.
set -eu
for log; do
    name=${log#build/} name=${name%.log}
    if [ -f "$log" ]; then sed -n "s|^FAIL |&$name: |p; s|^SKIP |&$name: |p; \$p" "$log"
    else printf 'FAIL %s: did not build\n0 passed, 1 failed, 0 skipped\n' "$name"; fi
done | awk '
    /^(FAIL|SKIP) / { print; next }
    / passed, /     { passed += $1; failed += $3; skipped += $5 }
    END             { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped; exit failed > 0 || passed == 0 }'
