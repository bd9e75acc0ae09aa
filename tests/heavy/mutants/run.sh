#!/bin/sh
# sh tests/heavy/mutants/run.sh header|cuda [NAME... | SECTION... | survived]: compiles the library from a copy of src/, or
# tensornet_cuda.cu on the engine for the processor, with all mutants of header.txt or cuda.txt in it, and those that
# rules.awk makes; runs the tests once without a mutant, when all must pass; then the tests against each mutant, or those
# named, those of a section, or those that survived the last run. format.txt says what a mutant is.
#
# SEED (1) chooses what the rules make, EVERY (70; cuda: 100) says of how many lines of code one is taken; TESTS: these programs
# alone.
#
# The report is build/mutants/WHAT/report.txt and names every survivor; kills.txt beside it says which test killed which
# mutant. The exit status is 0 only if every mutant is found in the source, every survivor is marked as equivalent, and the
# rate of kills is reached. JOBS (2) mutants run at a time; TN_TEST_DATA says, as for all tests, where their data are.
set -u
what=${1:-} here=tests/heavy/mutants dir=build/mutants/${1:-}
CC=${CC:-gcc} CXX=${CXX:-g++} JOBS=${JOBS:-2} STB=${STB:-/usr/include/stb}
# `sizes` are values of TN_TEST_SMALL; all: none. What survives with less data meets more.
case $what in
header) source=src/              sizes='yes all'   least=97 every=70 ;;
cuda)   source=tensornet_cuda.cu sizes='least all' least=95 every=100 ;;
*) sed -n '2,12s/^# //p' "$0"; exit 2 ;;
esac
shift
tab=$(printf '\t')
newer() { target=$1; shift; [ ! -e "$target" ] || [ -n "$(find "$@" -newer "$target")" ]; }

# ---- one test, one mutant: called by xargs, as `run.sh WHAT --base SIZE PROGRAM` and `run.sh WHAT --one SIZE NUMBER`.
#      WHAT/SIZE/PROGRAM.base has the processor seconds without a mutant, PROGRAM.reached the mutants that are reached.

# Runs PROGRAM or PROGRAM:FILTER for at most $1 processor seconds; prints how it went, a tab, and the seconds.
run_test() {
    program=${2%%:*} filter=
    case $2 in *:*) filter=${2#*:} ;; esac
    case $program in
    *.sh) set -- "$1" sh "tests/$program" "$dir/tn" ;;
    *)    set -- "$1" "$dir/$program" $filter ;;
    esac
    TN_TEST_SMALL=${size#all} "$dir/meet" "$@" 2>&1
}

seconds_of() { sed "s/^.*$tab//" "$dir/$size/$1.base"; }

base() {
    p=$1 at=$dir/$size/$1
    case $p in *.sh) set -- "$dir/tn" "tests/$p" ;; *) set -- "$dir/$p" ;; esac
    newer "$at.base" "$@" || return 0
    export TN_MUTANT=-1 TN_MUTANT_REACHED="$at.reached" TN_TEST_TMP="$dir/tmp/$p"
    awk -F'\t' 'END { for (i = 0; i <= $1; i++) printf "."; printf "\n" }' "$dir/list" > "$at.reached"    # $1: the last number
    mkdir -p "$TN_TEST_TMP"
    run_test 900 "$p" > "$at.part"
    rm -rf "$TN_TEST_TMP"
    case $(cat "$at.part") in
    passed*) mv "$at.part" "$at.base" ;;
    *) echo "$p fails without a mutant: $(cat "$at.part")" ;;
    esac
}

# The programs of the entry and its section come first, then whatever else reaches the mutant, the shortest first. The limit
# is four times what the test takes without a mutant, and 5 s: more means that the mutant has made it endless.
one() {
    number=$1
    name=$(awk -F'\t' -v n="$number" '$1 == n { print $3 }' "$dir/list")
    first=$(awk -F'\t' -v n="$number" '$1 == n { print $5 }' "$dir/list")
    # Processes that wait for each other use no processor time.
    export TN_MUTANT="$number" TN_TEST_TMP="$dir/tmp/$name" TN_COMM_SECONDS=10
    mkdir -p "$TN_TEST_TMP"
    reach=" $(for p in "$dir/$size"/*.reached; do
                  if [ "$(cut -c $((number + 1)) "$p" | head -n 1)" = x ]; then p=${p##*/}; echo "${p%.reached}"; fi
              done | tr '\n' ' ')"
    rest=$(for p in $reach; do case $p in *.sh) ;; *) echo "$(seconds_of "$p") $p" ;; esac; done | sort -n | sed 's/.* //')
    verdict=unreached by=- why=- total=0 met=' '
    for p in $first $rest; do
        case $met in *" $p "*) continue ;; esac
        case $reach in *" ${p%%:*} "*) ;; *) continue ;; esac
        met="$met$p "
        result=$(run_test "$(seconds_of "${p%%:*}" | awk '{ print 5 + 4 * $1 }')" "$p")
        total=$(echo "$total ${result##*$tab}" | awk '{ print $1 + $2 }')
        verdict=survived
        case $result in passed*) ;; *) verdict=killed by=$p why=${result%"$tab"*}; break ;; esac
    done
    rm -rf "$TN_TEST_TMP"
    printf '%s\t%s\t%s\t%s\t%s\n' "$name" "$verdict" "$by" "$why" "$total" > "$dir/results/$name.$size"
    printf '%-34s %-9s %s %s\n' "$name" "$verdict" "$by" "$why" | cut -c 1-160
}

case ${1:-} in
--one)  size=$2; one "$3"; exit ;;
--base) size=$2; base "$3"; exit ;;
esac

# ---- the build: what has not changed is not compiled again

mkdir -p "$dir/results" "$dir/tmp"
rm -f "$dir/failed" "$dir/list.new"
fail() { echo "mutants: $*" >&2; exit 1; }

png=
[ ! -e "$STB/stb_image_write.h" ] || png="-DHAVE_STB_IMAGE_WRITE -isystem $STB"
[ ! -e "$STB/stb_image.h" ] || png="$png -DHAVE_STB_IMAGE"
c="$CC -x c -std=c99 -O1 -w -DTN_USE_THREADS -pthread -include $here/mutant.h -I. -Itests $png"
engine=tests/cuda_host
cxx="$CXX -std=c++17 -O1 -g1 -w -Wno-psabi -ffp-contract=off -include $here/mutant.h -I$dir -I. -Itests -I$engine -DTN_CUDA_HOST"
! grep -qw fma /proc/cpuinfo 2>/dev/null || cxx="$cxx -mfma"

# What the rules make is left out where it does not compile, on the lines in `without`: those of an error, or the last before it
# that a rule has changed. It is left out where this machine compiles none of it, too: then its number is not in `compiled`.
sources=$(sh $here/sources.sh $what)
awk -v seed="${SEED:-1}" -v every="${EVERY:-$every}" -f $here/rules.awk $sources > "$dir/rules.txt"
cat "$here/$what.txt" "$here/mutate.awk" "$dir/rules.txt" $sources | cksum > "$dir/sum.new"
cmp -s "$dir/sum" "$dir/sum.new" || rm -f "$dir/without" "$dir/compiled"
touch "$dir/without"
mutate() {
    rm -rf "$dir/new" "$dir/list.new"
    mkdir "$dir/new" && cp -R src "$dir/new"
    awk -f $here/mutate.awk -v out="$dir/new" -v list="$dir/list.new" -v without="$(tr '\n' ' ' < "$dir/without")" \
        "$here/$what.txt" "$dir/rules.txt" $sources > "$dir/stale"
}
if [ "$what" = header ]; then units=$(echo src/*/*.c) with="$c -iquote $dir/new/src"; else units=$source with="$cxx -x c++"; fi
mutate
failing=$units
while [ ! -e "$dir/compiled" ] && [ -n "$failing" ]; do
    echo "does it compile? $(wc -l < "$dir/without") lines do not so far"
    : > "$dir/errors"
    again=
    for unit in $failing; do
        $with -fsyntax-only "$dir/new/$unit" > "$dir/said" 2>&1 || again="$again $unit"
        sed -n "s|^$dir/new/\([^:]*:[0-9]*\):.* error:.*|\1|p" "$dir/said" >> "$dir/errors"
    done
    failing=$again
    awk '
        FILENAME == ARGV[1] { split($3, p, ":"); if ($2 == "at") at[p[1], ++n[p[1]]] = p[2]; next }
        FILENAME == ARGV[2] { gone[$0] = 1; next }
        { split($0, p, ":"); line = 0 }
        { for (k = 1; k <= n[p[1]]; k++) if (at[p[1], k] <= p[2] + 0 && at[p[1], k] > line && !((p[1] ":" at[p[1], k]) in gone)) line = at[p[1], k] + 0 }
        line { print p[1] ":" line }' "$dir/rules.txt" "$dir/without" "$dir/errors" | sort -u - "$dir/without" > "$dir/without.new"
    cmp -s "$dir/without" "$dir/without.new" && [ -n "$failing" ] && fail "does not compile:$failing"
    mv "$dir/without.new" "$dir/without"
    mutate
done
[ -e "$dir/compiled" ] || for unit in $units; do $with -E "$dir/new/$unit" | grep -o 'tn_mutant == ([0-9]*)'; done |
    tr -dc '0-9\n' | sort -u > "$dir/compiled"
mv "$dir/sum.new" "$dir/sum"
awk -F'\t' -v rules="$dir/rules.txt" -v compiled="$dir/compiled" '
    BEGIN {
        while ((getline l < rules) > 0) { split(l, w, " "); made[w[1]] = 1 }
        while ((getline k < compiled) > 0) here[k] = 1
    }
    !($3 in made) || $1 in here' "$dir/list.new" > "$dir/list.here"
mv "$dir/list.here" "$dir/list.new"
cat "$dir/stale"
[ -s "$dir/list.new" ] || fail "no mutants"
mv "$dir/list.new" "$dir/list"
# The one header is for tests that contain it, and for tensornet_cuda.cu.
awk -f tools/header.awk "$dir/new/src/ORDER" > "$dir/new/tensornet.h" || fail "no header"
if ! diff -r "$dir/new/src" "$dir/src" > /dev/null 2>&1; then rm -rf "$dir/src"; mv "$dir/new/src" "$dir/src"; touch "$dir/src"; fi
for f in tensornet.h tensornet_cuda.cu; do
    [ ! -e "$dir/new/$f" ] || cmp -s "$dir/new/$f" "$dir/$f" || mv "$dir/new/$f" "$dir/$f"
done
rm -rf "$dir/new"

build() { echo "  $1"; shift; "$@" || touch "$dir/failed"; }
busy=0
later() {                               # in the background, JOBS at a time
    [ "$busy" -lt "$JOBS" ] || { wait; busy=0; }
    busy=$((busy + 1))
    build "$@" &
}

! newer "$dir/meet" $here/meet.c || build "$dir/meet" "$CC" -std=c99 -O1 $here/meet.c -o "$dir/meet"
! newer "$dir/mutant.o" $here/mutant.c $here/mutant.h ||
    build "$dir/mutant.o" "$CC" -std=gnu99 -O1 -I$here -c $here/mutant.c -o "$dir/mutant.o"

programs= library=$dir/libtensornet.a
if newer "$library" "$dir/src" $here/mutant.h; then
    rm -rf "$dir/lib" && mkdir "$dir/lib"
    for unit in src/*/*.c; do
        object=$(echo "${unit#src/}" | tr / -)
        later "$unit" $c -iquote "$dir/src" -UHAVE_STB_IMAGE_WRITE -c "$dir/$unit" -o "$dir/lib/${object%.c}.o"
    done
    wait
    rm -f "$library"
    [ -e "$dir/failed" ] || build "$library" ar rcs "$library" "$dir/lib"/*.o
fi

if [ "$what" = header ]; then
    ${MAKE:-make} -s -f tests/Makefile build/sizes.h
    whole=$(grep -l 'define TENSORNET_IMPLEMENTATION' tests/test_*.c)
    for t in tests/test_*.c; do
        p=${t#tests/} p=${p%.c} how="-iquote $dir/src"
        case $p in test_cuda*) continue ;; esac
        case " ${TESTS:-$p} " in *" $p "*) ;; *) continue ;; esac
        programs="$programs $p"
        case $whole in *"$t"*) how="-iquote $dir -O0" ;; esac
        ! newer "$dir/$p" "$t" "$library" tests/*.h tools/tn/ngram.c tools/tn/names.[ch] tools/tn/mojibake.c tools/tn/tn.h \
            tools/tn/dry.[ch] examples/comm/* examples/studies/*.h ||
            later "$dir/$p" $c $how "$t" -o "$dir/$p" -x none "$library" "$dir/mutant.o" -lm
    done
    scripts=
    [ -n "${TESTS:-}" ] || scripts=$(cut -f5 "$dir/list" | tr ' ' '\n' | sed -n 's/:.*//; /\.sh$/p' | sort -u)
    if [ -n "$scripts" ] && newer "$dir/tn" tools/tn/*.[ch] "$library"; then
        sh tools/tn/look/embed.sh build/look_assets.h
        later "$dir/tn" $c -iquote "$dir/src" -D_XOPEN_SOURCE=700 -UHAVE_STB_IMAGE_WRITE tools/tn/*.c \
            -o "$dir/tn" -x none "$library" "$dir/mutant.o" -lm
    fi
    programs="$programs $scripts"
else
    ! newer "$dir/engine.o" $engine/cuda_host.cpp $engine/*.h ||
        later "$dir/engine.o" $cxx -O2 -c $engine/cuda_host.cpp -o "$dir/engine.o"
    ! newer "$dir/tensornet_cuda.o" "$dir/$source" $here/mutant.h "$dir/tensornet.h" $engine/*.h ||
        later "$dir/tensornet_cuda.o" $cxx -x c++ -c "$dir/$source" -o "$dir/tensornet_cuda.o"
    wait
    for t in tests/test_cuda*.c; do
        p=${t#tests/} p=${p%.c}
        [ "$p" != test_cuda_nccl ] || continue          # needs libraries beside it, and is about no kernel
        case " ${TESTS:-$p} " in *" $p "*) ;; *) continue ;; esac
        programs="$programs $p"
        ! newer "$dir/$p" "$t" tests/*.h $engine/control.h "$library" "$dir/tensornet_cuda.o" "$dir/engine.o" ||
            later "$dir/$p" sh -c "$c -iquote $dir/src -I$engine -DTN_CUDA_HOST -c $t -o $dir/$p.o &&
                $CXX -pthread $dir/$p.o $dir/tensornet_cuda.o $dir/engine.o $library $dir/mutant.o -o $dir/$p -ldl -lm"
    done
fi
wait
[ ! -e "$dir/failed" ] || fail "not everything compiles"

# ---- the runs

# The words after `needs` that this processor lacks; the numbers of what is asked for.
for word in $(cut -f6 "$dir/list" | sort -u); do
    [ "$word" = - ] || grep -qw "$word" /proc/cpuinfo 2>/dev/null || echo "$word"
done > "$dir/lacks"
case ${1:-} in
'')       asked=all; rm -rf "$dir/results"; mkdir -p "$dir/results" ;;
survived) asked=$(awk -F'\t' '$2 != "killed" { print $1 }' "$dir/last") ;;
*)        asked=$* ;;
esac
awk -F'\t' -v asked="$(echo $asked)" -v lacks="$dir/lacks" '
    BEGIN {
        while ((getline word < lacks) > 0) lacking[word] = 1
        n = split(asked, a, " ")
        for (i = 1; i <= n; i++) want[a[i]] = 1
    }
    (asked == "all" || $3 in want || $2 in want) && !($6 in lacking) { print $1 }
    { met[$2] = met[$3] = 1 }
    END { for (w in want) if (w != "all" && !(w in met)) print "mutants: there is no mutant or section " w > "/dev/stderr" }
    ' "$dir/list" > "$dir/pending"

begin=$(date +%s)
for size in $sizes; do
    [ -s "$dir/pending" ] || break
    mkdir -p "$dir/$size"
    for p in "$dir/$size"/*.base; do                # of earlier runs with other programs
        p=${p##*/}
        case " $programs " in *" ${p%.base} "*) ;; *) rm -f "$dir/$size/${p%.base}".* ;; esac
    done
    echo "tests without a mutant, TN_TEST_SMALL=${size#all}"
    echo $programs | tr ' ' '\n' | xargs -P "$JOBS" -n 1 sh "$0" "$what" --base "$size" > "$dir/failed"
    [ ! -s "$dir/failed" ] || { cat "$dir/failed"; fail "the tests must pass first"; }
    echo "$(($(wc -l < "$dir/pending"))) mutants"
    xargs -P "$JOBS" -n 1 sh "$0" "$what" --one "$size" < "$dir/pending"
    # More data are for those that ought to have been killed.
    cat "$dir/results"/*."$size" | awk -F'\t' -v list="$dir/list" -v pending="$dir/pending" '
        BEGIN {
            while ((getline n < pending) > 0) now[n] = 1
            while ((getline l < list) > 0) { split(l, f, "\t"); number[f[3]] = f[1]; marked[f[3]] = f[7] != "-" }
        }
        $2 != "killed" && !marked[$1] && number[$1] in now { print number[$1] }' | sort -n > "$dir/pending.new"
    mv "$dir/pending.new" "$dir/pending"
done

# ---- the report: of each mutant the result with the most data

for size in $sizes; do cat "$dir/results"/*."$size" 2>/dev/null; done |
    awk -F'\t' '{ spent[$1] += $5; last[$1] = $0 } END { for (n in last) print last[n] "\t" spent[n] }' | sort > "$dir/last"
awk -F'\t' '$2 == "killed" { printf "%-34s %8.2f s  %s  %s\n", $1, $6, $3, $4 }' "$dir/last" > "$dir/kills.txt"
awk -F'\t' -v last="$dir/last" -v lacks="$dir/lacks" -v source=$source -v least=$least \
    -v stale="$(($(wc -l < "$dir/stale")))" \
    -v wall=$(($(date +%s) - begin)) -v bases="$(cat "$dir"/*/*.base | awk -F'\t' '{ t += $2 } END { print t / 60 }')" '
    function row(name, n, k, s, e) {
        printf "%-16s %8d %8d %9d %11d %8s\n", name, n, k, s, e, k + s ? sprintf("%.1f %%", 100 * k / (k + s)) : "-"
    }
    BEGIN {
        while ((getline word < lacks) > 0) lacking[word] = 1
        while ((getline r < last) > 0) {
            split(r, f, "\t")
            verdict[f[1]] = f[2]
            by[f[1]] = f[3] " " f[4]
            minutes += f[6] / 60
        }
    }
    {
        what = sprintf("%s, %s: %s\n    in: %s\n", $3, $4, $9, $8)
        v = verdict[$3]
        if (!($2 in all)) order[++sections] = $2
        all[$2]++
        if ($6 in lacking) left_out++
        else if (v == "") not_run++
        else if (v == "killed" && $7 != "-") wrong = wrong what "    killed by: " by[$3] "\n    the reason given: " $7 "\n"
        else if (v == "killed") killed[$2]++
        else if ($7 != "-") { equivalent[$2]++; why = why what "    because: " $7 "\n" }
        else { survived[$2]++; who = who what (v == "unreached" ? "    no test reaches it\n" : "") }
    }
    END {
        printf "Mutants of %s\n\n%-16s %8s %8s %9s %11s %8s\n", source, "section", "mutants", "killed", "survived", \
               "equivalent", "rate"
        for (i = 1; i <= sections; i++) {
            s = order[i]
            row(s, all[s], killed[s], survived[s], equivalent[s])
            n += all[s]; k += killed[s]; m += survived[s]; e += equivalent[s]
        }
        row("sum", n, k, m, e)
        if (left_out) printf "%d left out: this processor lacks what they need\n", left_out
        if (not_run) printf "%d not run\n", not_run
        if (stale) printf "%d entries do not fit the source\n", stale
        printf "processor minutes: %.1f for the mutants, %.1f for the tests without one; %.1f minutes by the clock\n", \
               minutes, bases, wall / 60
        if (who) printf "\nSurvived:\n%s", who
        if (wrong) printf "\nMarked as equivalent, but killed:\n%s", wrong
        if (why) printf "\nEquivalent:\n%s", why
        exit stale + m + not_run > 0 || wrong != "" || k < least / 100 * (k + m) || k == 0
    }' "$dir/list" > "$dir/report.txt"
status=$?
cat "$dir/report.txt"
exit $status
