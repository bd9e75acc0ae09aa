#!/bin/sh
# sh tests/heavy/mutants/run.sh header|cuda [NAME... | survived]: compiles tensornet.h, or tensornet_cuda.cu on the engine for the
# processor, with all mutants of header.txt or cuda.txt in it; runs the tests once without a mutant, when all must pass; then the
# tests against each mutant, or those named, or those that survived the last run. format.txt says what a mutant is.
#
# The report is build/mutants/WHAT/report.txt, and names every survivor; kills.txt beside it says which test killed which mutant. The
# exit status is 0 only if every mutant is found in the source, every survivor is marked as equivalent, and the rate of kills is
# reached. JOBS=2 mutants at a time; TN_TEST_DATA, as for all tests, says where their data are.
set -u
what=${1:-} here=tests/heavy/mutants dir=build/mutants/${1:-}
CC=${CC:-gcc} CXX=${CXX:-g++} JOBS=${JOBS:-2} STB=${STB:-/usr/include/stb}
case $what in
header) source=tensornet.h       sizes=yes         least=97 ;;
cuda)   source=tensornet_cuda.cu sizes='least all' least=95 ;;
*) sed -n '2,11s/^# //p' "$0"; exit 2 ;;
esac
shift
# A mutant is met in this many processor seconds, or has made the test endless: four times what the test takes without it, and 5.
export OMP_WAIT_POLICY=passive CI="${CI:-}"

newer() { target=$1; shift; [ ! -e "$target" ] || [ -n "$(find "$@" -newer "$target")" ]; }

# ---- one mutant, by xargs from below: `run.sh WHAT --one SIZE NUMBER`

seconds_of() { sed -n 's/^.*\t//p' "$dir/$size/$1.base" 2>/dev/null; }

# Runs PROGRAM, or PROGRAM:FILTER, for at most $1 seconds.
test_run() {
    program=${2%%:*} filter=
    case $2 in *:*) filter=${2#*:} ;; esac
    small=$size
    [ "$size" != all ] || small=
    case $program in
    *.sh) set -- "$1" sh "tests/$program" "$dir/tn" ;;
    *)    set -- "$1" "$dir/$program" $filter ;;
    esac
    TN_TEST_SMALL=$small "$dir/meet" "$@" 2>&1
}

one() {
    number=$1
    line=$(awk -F'\t' -v n="$number" '$1 == n' "$dir/list")
    name=$(printf '%s\n' "$line" | cut -f3)
    first=$(printf '%s\n' "$line" | cut -f5)
    export TN_MUTANT="$number" TN_TEST_TMP="$dir/tmp/$name"
    mkdir -p "$TN_TEST_TMP"
    # What the entry names, then whatever else reaches it, the shortest first. The shell tests run only where they are named.
    reach=$(awk -v at="$((number + 1))" 'substr($0, at, 1) == "x" { sub(/.*\//, "", FILENAME); sub(/\.reached$/, "", FILENAME); print FILENAME }' \
                "$dir/$size"/*.reached)
    rest=$(for p in $reach; do case $p in *.sh) ;; *) echo "$(seconds_of "$p") $p" ;; esac; done | sort -n | awk '{ print $2 }')
    verdict=unreached by=- why=- total=0 met=' '
    for p in $first $rest; do
        case $met in *" $p "*) continue ;; esac
        case " $(echo $reach) " in *" ${p%%:*} "*) ;; *) continue ;; esac
        met="$met$p "
        result=$(test_run "$(seconds_of "${p%%:*}" | awk '{ print 5 + 4 * $1 }')" "$p")
        total=$(printf '%s\n' "$result" | awk -F'\t' -v t="$total" '{ t += $NF } END { print t }')
        verdict=survived
        case $result in passed*) ;; *) verdict=killed by=$p why=${result%	*}; break ;; esac
    done
    rm -rf "$TN_TEST_TMP"
    printf '%s\t%s\t%s\t%s\t%s\n' "$name" "$verdict" "$by" "$why" "$total" > "$dir/results/$name.$size"
    printf '%-34s %-9s %s %s\n' "$name" "$verdict" "$by" "$why" | cut -c 1-160
}

base() {
    p=$1
    case $p in *.sh) set -- "$dir/tn" "tests/$p" ;; *) set -- "$dir/$p" ;; esac
    newer "$dir/$size/$p.base" "$@" || return 0
    awk -v n="$(wc -l < "$dir/list")" 'BEGIN { for (i = 0; i <= n; i++) printf "."; printf "\n" }' > "$dir/$size/$p.reached"
    mkdir -p "$dir/tmp/$p"
    TN_MUTANT=-1 TN_MUTANT_REACHED="$dir/$size/$p.reached" TN_TEST_TMP="$dir/tmp/$p" test_run 900 "$p" > "$dir/$size/$p.base.part"
    rm -rf "$dir/tmp/$p"
    case $(cat "$dir/$size/$p.base.part") in
    passed*) mv "$dir/$size/$p.base.part" "$dir/$size/$p.base" ;;
    *) echo "$p fails without a mutant: $(cat "$dir/$size/$p.base.part")" ;;
    esac
}

case ${1:-} in
--one)  size=$2; one "$3"; exit ;;
--base) size=$2; base "$3"; exit ;;
esac

# ---- the build

mkdir -p "$dir/results" "$dir/tmp"
fail() { echo "mutants: $*" >&2; exit 1; }
keep() { if cmp -s "$1.new" "$1"; then rm "$1.new"; else mv "$1.new" "$1"; fi; }   # what has not changed is not compiled again

rm -f "$dir/list.new"
awk -f $here/mutate.awk -v out="$dir/$source.new" -v list="$dir/list.new" "$here/$what.txt" $source > "$dir/stale"
cat "$dir/stale"
[ -s "$dir/list.new" ] || fail "no mutants"
keep "$dir/$source"
mv "$dir/list.new" "$dir/list"

png=$([ ! -e "$STB/stb_image_write.h" ] || echo "-DHAVE_STB_IMAGE_WRITE -isystem $STB"; [ ! -e "$STB/stb_image.h" ] || echo -DHAVE_STB_IMAGE)
flags="-w -fopenmp -I$dir -I. -Itests -I$here $(echo $png)"
c="$CC -x c -std=c99 -O1 $flags"
rm -f "$dir/failed"
build() { echo "  $1"; shift; "$@" || touch "$dir/failed"; }
# Compiles in the background, JOBS at a time.
jobs_now=0
later() { if [ "$jobs_now" -ge "$JOBS" ]; then wait; jobs_now=0; fi; jobs_now=$((jobs_now + 1)); build "$@" & }

! newer "$dir/meet" $here/meet.c || build "$dir/meet" "$CC" -std=c99 -O1 $here/meet.c -o "$dir/meet"
! newer "$dir/mutant.o" $here/mutant.c $here/mutant.h || build "$dir/mutant.o" "$CC" -std=gnu99 -O1 -I$here -c $here/mutant.c -o "$dir/mutant.o"

header="$dir/tensornet.h"
[ "$what" = header ] || header=tensornet.h
! newer "$dir/tensornet.o" "$header" $here/mutant.h || later "$dir/tensornet.o" $c -DTENSORNET_IMPLEMENTATION -c "$header" -o "$dir/tensornet.o"

if [ "$what" = header ]; then
    together=$(sed -n 's/^#include "\(test_.*\)\.c"$/\1/p' tests/inside.c)
    alone=$(grep -l 'define TENSORNET_IMPLEMENTATION' tests/test_*.c)
    ! newer "$dir/inside" "$header" $here/mutant.h tests/inside.c $(for t in $together; do echo "tests/$t.c"; done) tests/*.h ||
        later "$dir/inside" $c tests/inside.c -o "$dir/inside" -x none "$dir/mutant.o" -lm
    wait
    programs=
    for t in tests/test_*.c; do
        p=${t#tests/} p=${p%.c}
        case $p in test_cuda*) continue ;; esac
        programs="$programs $p"
        case " $(echo $together) " in *" $p "*) ln -f "$dir/inside" "$dir/$p"; continue ;; esac
        level=
        case " $(echo $alone) " in *" $t "*) level=-O0 ;; esac
        ! newer "$dir/$p" "$t" "$dir/tensornet.o" tests/*.h tools/tn/ngram.c tools/tn/tn.h examples/*.h ||
            later "$dir/$p" $c $level "$t" -o "$dir/$p" -x none "$dir/tensornet.o" "$dir/mutant.o" -lm
    done
    wait
    scripts=$(awk -F'\t' '{ k = split($5, p, " "); for (i = 1; i <= k; i++) { sub(/:.*/, "", p[i]); if (p[i] ~ /\.sh$/) print p[i] } }' "$dir/list" | sort -u)
    if [ -n "$scripts" ]; then
        ! newer "$dir/tn" tools/tn/*.[ch] "$dir/tensornet.o" || build "$dir/tn" $c -D_XOPEN_SOURCE=700 -UHAVE_STB_IMAGE_WRITE \
            $(ls tools/tn/*.c | grep -v /library.c) -o "$dir/tn" -x none "$dir/tensornet.o" "$dir/mutant.o" -lm
    fi
    programs="$programs $scripts"
else
    engine=tests/cuda_host
    cxx="$CXX -std=c++17 -g1 -ffp-contract=off $(! grep -qw fma /proc/cpuinfo 2>/dev/null || echo -mfma) -O1 -w -I$dir -I. -Itests -I$engine -I$here -DTN_CUDA_HOST"
    ! newer "$dir/engine.o" $engine/cuda_host.cpp $engine/*.h || later "$dir/engine.o" $cxx -O2 -c $engine/cuda_host.cpp -o "$dir/engine.o"
    ! newer "$dir/tensornet_cuda.o" "$dir/$source" $here/mutant.h tensornet.h $engine/*.h ||
        later "$dir/tensornet_cuda.o" $cxx -x c++ -c "$dir/$source" -o "$dir/tensornet_cuda.o"
    wait
    programs=
    for t in tests/test_cuda*.c; do
        p=${t#tests/} p=${p%.c}
        programs="$programs $p"
        ! newer "$dir/$p" "$t" tests/*.h $engine/control.h "$dir/tensornet.o" "$dir/tensornet_cuda.o" "$dir/engine.o" ||
            later "$dir/$p" sh -c "$c -I$engine -DTN_CUDA_HOST -c $t -o $dir/$p.o && $CXX -fopenmp $dir/$p.o $dir/tensornet_cuda.o \
                $dir/engine.o $dir/tensornet.o $dir/mutant.o -o $dir/$p -ldl -lm"
    done
    wait
fi
[ ! -e "$dir/failed" ] || fail "not everything compiles"

# ---- the runs

count_of() { awk 'END { print NR }' "$1"; }
flag_missing() { [ "$1" != - ] && ! grep -qw "$1" /proc/cpuinfo 2>/dev/null; }

# What is asked for, by numbers, without what this processor lacks.
rm -f "$dir/pending" "$dir/left_out"
for word in $(cut -f6 "$dir/list" | sort -u); do ! flag_missing "$word" || echo "$word" >> "$dir/left_out"; done
touch "$dir/left_out"
case ${1:-} in
'')       asked=all; rm -rf "$dir/results"; mkdir -p "$dir/results" ;;
survived) asked=$(awk -F'\t' '$2 == "survived" || $2 == "unreached" { print $1 }' "$dir/last" 2>/dev/null) ;;
*)        asked=$* ;;
esac
awk -F'\t' -v asked="$(echo $asked)" -v missing="$dir/left_out" '
    BEGIN { while ((getline word < missing) > 0) lacks[word] = 1; n = split(asked, a, " "); for (i = 1; i <= n; i++) want[a[i]] = 1 }
    (asked == "all" || $3 in want) && !($6 in lacks) { print $1; delete want[$3] }
    END { for (w in want) if (w != "all") print "mutants: no mutant " w > "/dev/stderr" }' "$dir/list" > "$dir/pending"

begin=$(date +%s)
for size in $sizes; do
    [ -s "$dir/pending" ] || break
    mkdir -p "$dir/$size"
    echo "tests without a mutant (data: $size)"
    printf '%s\n' $programs | xargs -P "$JOBS" -n 1 sh "$0" "$what" --base "$size" > "$dir/failed"
    [ ! -s "$dir/failed" ] || { cat "$dir/failed"; fail "the tests must pass first"; }
    rm -f "$dir/failed"
    echo "$(count_of "$dir/pending") mutants"
    xargs -P "$JOBS" -n 1 sh "$0" "$what" --one "$size" < "$dir/pending"
    # More data are for those that ought to be killed and have not been.
    cat "$dir/results"/*."$size" | awk -F'\t' -v list="$dir/list" -v pending="$dir/pending" '
        BEGIN { while ((getline n < pending) > 0) now[n] = 1
                while ((getline l < list) > 0) { split(l, f, "\t"); number[f[3]] = f[1]; marked[f[3]] = f[7] != "-" } }
        $2 != "killed" && !marked[$1] && number[$1] in now { print number[$1] }' | sort -n > "$dir/pending.new"
    mv "$dir/pending.new" "$dir/pending"
done

# ---- the report: of the results with the most data

for size in $sizes; do cat "$dir/results"/*."$size" 2>/dev/null; done |
    awk -F'\t' '{ spent[$1] += $5; last[$1] = $0 } END { for (n in last) print last[n] "\t" spent[n] }' | sort > "$dir/last"
awk -F'\t' '$2 == "killed" { printf "%-34s %8.2f s  %s  %s\n", $1, $6, $3, $4 }' "$dir/last" > "$dir/kills.txt"
awk -F'\t' -v results="$dir/last" -v source=$source -v least=$least -v stale="$(count_of "$dir/stale")" -v missing="$dir/left_out" \
    -v wall=$(($(date +%s) - begin)) -v bases="$(cat "$dir"/*/*.base | awk -F'\t' '{ t += $2 } END { print t / 60 }')" '
    BEGIN {
        while ((getline word < missing) > 0) lacks[word] = 1
        while ((getline r < results) > 0) { split(r, f, "\t"); verdict[f[1]] = f[2]; by[f[1]] = f[3] " " f[4]; minutes += f[6] / 60 }
    }
    {
        if (!($2 in all)) order[++sections] = $2
        all[$2]++
        v = verdict[$3]
        if (v == "") { if ($6 in lacks) left_out[$2]++; else not_run[$2]++; next }
        if ($7 != "-") {
            if (v == "killed") wrong = wrong sprintf("%s (line %d): %s\n    marked as equivalent: %s\n    but killed by %s\n", $3, $4, $9, $7, by[$3])
            else { equivalent[$2]++; why = why sprintf("%s (line %d): %s\n    %s\n    %s\n", $3, $4, $9, $8, $7) }
        }
        if (v == "killed") killed[$2]++
        else if ($7 == "-") { survived[$2]++; who = who sprintf("%s (line %d, %s): %s\n    %s\n", $3, $4, v, $9, $8) }
    }
    function row(name, n, k, s, e) { printf "%-16s %8d %8d %9d %11d %8s\n", name, n, k, s, e, k + s ? sprintf("%.1f %%", 100 * k / (k + s)) : "-" }
    END {
        printf "Mutants of %s\n\n%-16s %8s %8s %9s %11s %8s\n", source, "section", "mutants", "killed", "survived", "equivalent", "rate"
        for (i = 1; i <= sections; i++) {
            s = order[i]
            row(s, all[s], killed[s], survived[s], equivalent[s])
            n += all[s]; k += killed[s]; m += survived[s]; e += equivalent[s]; l += left_out[s]; o += not_run[s]
        }
        row("sum", n, k, m, e)
        if (l) printf "%d left out: this processor lacks what they need\n", l
        if (o) printf "%d not run\n", o
        if (stale) printf "%d entries do not fit the source\n", stale
        printf "processor minutes: %.1f for the mutants, %.1f for the tests without one; %.1f minutes by the clock\n", minutes, bases, wall / 60
        if (who) printf "\nSurvived:\n%s", who
        if (wrong) printf "\nMarked as equivalent, but killed:\n%s", wrong
        if (why) printf "\nEquivalent:\n%s", why
        exit stale + m > 0 || wrong != "" || k < least / 100 * (k + m) || k == 0
    }' "$dir/list" > "$dir/report.txt"
status=$?
cat "$dir/report.txt"
exit $status
