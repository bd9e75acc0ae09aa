#!/bin/sh
# The first hour on a GPU: three calls of at most nine minutes. Each can be made alone, on a machine of its own.
#
#   sh tools/bench/gpu/first_hour.sh 1 FOLDER      what is there, and is it right? Versions, all tests on the GPU, attention timed
#   sh tools/bench/gpu/first_hour.sh 2 FOLDER      how fast is it, beside PyTorch, FlashAttention, cuDNN and Triton?
#   sh tools/bench/gpu/first_hour.sh 3 FOLDER      compute-sanitizer; the rows that memory bounds, and small steps; ncu and nsys
#   sh tools/bench/gpu/first_hour.sh tables FILE   prints the tables of docs/gpu.md, with their empty cells filled from FILE
#
# A machine needs nvcc, gcc, make and an NVIDIA GPU of compute capability 8.0 or more; the calls compile what they run. What
# else is missing (a python3 with PyTorch and Triton, cuBLAS, compute-sanitizer, ncu, nsys) is named and left out.
#
# FOLDER gets results.jsonl, a line of JSON for each result, written when it is there, so that a call that is cut off keeps
# what it has; later calls add to it. log.txt is what was printed; what each program printed is beside them.
#
#   LIMIT=530         seconds that a call takes at most; its parts shrink with it
#   PYTHON=python3    the one that has PyTorch
#   BUILD=build/gpu   folder of the programs. `make` brings those of build/gpu up to date; another folder is taken as it is.
set -u
export LC_ALL=C
root=$(cd "$(dirname "$0")/../../.." && pwd)
usage() { sed -n 's/^#   \(sh .*\)/\1/p' "$0" >&2; exit 2; }
[ $# -eq 2 ] || usage

# ---- tables FILE: a table of the page whose first column is `row`, `test`, `what`, `kernel` or `missing` is one of results. Its
#      headers are keys of the rows, and the first cell of a line says which row; `*each ...` stands for all. Cells for which FILE
#      has nothing stay as they are.

if [ "$1" = tables ]; then
    [ -r "$2" ] || { echo "first_hour: $2 cannot be read" >&2; exit 2; }
    exec awk '
    function trim(s) { gsub(/^ +| +$/, "", s); return s }
    function filled(name,    text, i) {
        text = "| " name " |"
        for (i = 2; i <= columns; i++)
            text = text " " ((kind, name, head[i]) in value ? value[kind, name, head[i]] : i <= count ? cell[i] : "") " |"
        return text
    }
    FILENAME == ARGV[1] {
        first = name = ""
        while (match($0, /"[^"]*":("[^"]*"|[^,}]*)/)) {
            pair = substr($0, RSTART + 1, RLENGTH - 1)
            $0 = substr($0, RSTART + RLENGTH)
            key = substr(pair, 1, index(pair, "\"") - 1)
            x = substr(pair, index(pair, ":") + 1)
            if (x ~ /^"/) x = substr(x, 2, length(x) - 2)
            gsub(/\|/, "/", x)
            if (first == "") {
                first = key; name = x
                if (!((first, name) in known)) { known[first, name] = 1; names[first, ++many[first]] = name }
            } else value[first, name, key] = x
        }
        next
    }
    /^## / { heading = $0 }
    !/^\|/ { inside = 0; next }
    {
        count = split($0, cell, "|") - 2
        for (i = 1; i <= count; i++) cell[i] = trim(cell[i + 1])
        if (!inside) {
            inside = 1; kind = cell[1]; columns = count
            for (i = 1; i <= count; i++) head[i] = cell[i]
            wanted = kind ~ /^(row|test|what|kernel|missing)$/
            if (wanted && shown++) print ""
            if (wanted && heading != "") { print heading; print ""; heading = "" }
            if (wanted) print
        } else if (!wanted) next
        else if (cell[1] ~ /^-+:?$/) print
        else if (cell[1] ~ /^\*each/) {
            for (i = 2; i <= count; i++) cell[i] = ""
            for (n = 1; n <= many[kind]; n++) print filled(names[kind, n])
        } else print filled(cell[1])
    }' "$2" "$root/docs/gpu.md"
fi
case $1 in 1|2|3) call=$1 ;; *) usage ;; esac

# ---- what all calls need

mkdir -p "$2" || exit 2
out=$(cd "$2" && pwd) begin=$(date +%s)
: "${LIMIT:=530}" "${PYTHON:=python3}" "${BUILD:=build/gpu}"
results=$out/results.jsonl log=$out/log.txt
cd "$root" || exit 2
now()  { echo $(( $(date +%s) - begin )); }
part() { echo $(( $1 * LIMIT / 530 )); }              # seconds of a call of 530
left() { echo $(( LIMIT - $(now) - $(part "${1:-0}") )); }     # left [N]: until N seconds before the end
say()  { echo "[$(now) s] $*" | tee -a "$log"; }
have() { command -v "$1" > /dev/null 2>&1; }
late() { [ "$(left "$1")" -le 0 ]; }                  # late N: fewer than N seconds are left

# put KEY VALUE...: a line of results. A value is a number, or text, in which quotes are replaced.
put() {
    line=
    while [ $# -gt 1 ]; do
        case $2 in
        ''|*[!0-9.]*|.*|*.|*.*.*|0[0-9]*) line="$line,\"$1\":\"$(printf %s "$2" | tr '"\\\n\t' "'/  " | cut -c 1-200)\"" ;;
        *) line="$line,\"$1\":$2" ;;
        esac
        shift 2
    done
    echo "{${line#,}}" >> "$results"
}
skip() { say "SKIP $1: $2"; put missing "$1" why "$2"; }

# limited SECONDS COMMAND...: with one second at least. What it starts may live longer, so its output goes to a file and not
# into a pipe, whose reader would wait for all of them.
limited() { most=$1; shift; [ "$most" -ge 1 ] || most=1; timeout -k 5 "$most" "$@"; }
shown() { cat "$1"; cat "$1" >> "$log"; }             # shown FILE
ended() {                                             # ended NAME STATUS SECONDS: names what did not end well
    case $2 in
    0)   ;;
    124|137) skip "$1" "it was cut off after $3 s; the rows so far are kept" ;;
    *)   skip "$1" "it ended with status $2" ;;
    esac
}

# clocks WHEN: how fast the GPU runs now, and what holds it back
clocks() {
    have nvidia-smi || return 0
    is=$(limited 10 nvidia-smi --format=csv,noheader --query-gpu=clocks.sm,clocks_throttle_reasons.active 2> /dev/null |
        head -n 1)
    put what "clock $1" is "${is:-unknown}"
    say "clock $1: ${is:-unknown}"
}

used=
# Does attention use wgmma here? With TN_REQUIRE the test fails where it does not.
hopper() {
    [ -n "$used" ] || {
        used=no
        limited 60 env TN_WGMMA=1 TN_REQUIRE=wgmma "$BUILD/test_cuda_attention" wgmma_launches \
            > "$out/wgmma_launches.txt" 2>&1 && used=yes
    }
    [ $used = yes ]
}
# with_wgmma NAME COMMAND...: or a line that says why not
with_wgmma() {
    what=$1; shift
    if hopper; then "$@"
    else skip "$what" "attention does not use wgmma: $(grep -m 1 'desc.wgmma\|FAIL' "$out/wgmma_launches.txt")"; fi
}

# tested NAME SECONDS COMMAND...: one test program. Several run at the same time.
tested() {
    name=$1 seconds=$2 start=$(now); shift 2
    limited "$seconds" "$@" > "$out/$name.txt" 2>&1
    status=$?
    sum=$(grep '^[0-9]* passed, [0-9]* failed, [0-9]* skipped$' "$out/$name.txt" | tail -n 1)
    set -- $(echo "${sum:-}" | tr -dc '0-9 ')
    took=$(( $(now) - start ))
    if [ $# -eq 3 ]; then put test "$name" passed "$1" failed "$2" skipped "$3" exit "$status" seconds "$took"
    else put test "$name" exit "$status" seconds "$took" note "no sum: $(tail -n 1 "$out/$name.txt")"; fi
    say "$name: ${sum:-no sum}, exit $status, $took s"
    grep '^SKIP ' "$out/$name.txt" | sed 's/^/    /' | tee -a "$log"
    [ $status -eq 0 ] || grep -n 'FAIL\|NMSE\|error\|fault' "$out/$name.txt" | head -n 20 | tee -a "$log"
}

# bench SECONDS PEER SECTION...: rows of the benchmark, which adds them to the results. PEER: `with` or `without` PyTorch.
# bench_wgmma: the same with the kernels for Hopper, whose rows have names that end with ", wgmma".
bench() {
    seconds=$1 peer=; shift
    [ "$1" != with ] || peer="exec $PYTHON tools/bench/gpu/torch_peer.py"
    shift
    name="bench $*${TN_WGMMA:+, wgmma}"
    say "$name"
    clocks "before $name"
    BENCH_JSON="$results" BENCH_TORCH="$peer" limited "$seconds" "$BUILD/bench" "$@" > "$out/.now" 2>&1
    status=$?
    shown "$out/.now"
    cat "$out/.now" >> "$out/bench.txt"
    rm -f "$out/.now"
    clocks "after $name"
    ended "$name" $status "$seconds"
}
bench_wgmma() { ( export TN_WGMMA=1; bench "$@" ); }

versions() {
    put what call is "$call, $(date -u +%Y-%m-%d)"
    : > "$out/.versions"
    if have nvidia-smi; then
        limited 20 nvidia-smi > "$out/nvidia-smi.txt" 2>&1
        limited 20 nvidia-smi --format=csv,noheader \
            --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit 2>/dev/null | head -n 1 |
            awk -F ', ' '{ print "GPU\t" $1 "\ndriver\t" $2 "\nmemory\t" $3 "\nclock\t" $4 ", memory " $5 "\npower\t" $6 }' \
            >> "$out/.versions"
    else skip nvidia-smi "it is not installed"; fi
    for tool in "${NVCC:-nvcc}" gcc make ncu nsys; do
        have "$tool" || continue
        printf '%s\t%s\n' "${tool##*/}" "$(limited 20 "$tool" --version 2>/dev/null | grep '[0-9]\.[0-9]' | head -n 1)"
    done >> "$out/.versions"
    printf 'system\t%s, %s processors\n' "$(uname -sr)" "$(getconf _NPROCESSORS_ONLN)" >> "$out/.versions"
    have "$PYTHON" && limited "$(part 60)" "$PYTHON" - >> "$out/.versions" 2>/dev/null <<'END'
import sys
print(f'Python\t{sys.version.split()[0]}', flush=True)
try:
    import torch
    print(f'PyTorch\t{torch.__version__}, CUDA {torch.version.cuda}\ncuDNN\t{torch.backends.cudnn.version()}', flush=True)
    import triton
    print(f'Triton\t{triton.__version__}')
except Exception:
    pass
END
    while IFS="$(printf '\t')" read -r what is; do put what "$what" is "$is"; done < "$out/.versions"
    tee -a "$log" < "$out/.versions"
    for what in Python PyTorch Triton; do
        grep -q "^$what	" "$out/.versions" || skip "$what" "$PYTHON does not have it, or cannot load it"
    done
    rm -f "$out/.versions"
}

tests="test_cuda test_cuda_attention test_cuda_linear test_cuda_states test_cuda_rows"
build() {
    [ "$BUILD" = build/gpu ] || return 0
    start=$(now)
    say "make $BUILD/..."
    set -- $(for p in $tests bench; do echo "$BUILD/$p"; done)
    if limited "$(left 60)" make -j"$(getconf _NPROCESSORS_ONLN)" "$@" > "$out/make.txt" 2>&1; then
        put what "seconds to compile" is $(( $(now) - start ))
        say "compiled in $(( $(now) - start )) s, $(grep -c 'warning:' "$out/make.txt") warnings"
    else
        skip "call $call" "make failed: $(grep -m 1 'rror' "$out/make.txt")"
        tail -n 20 "$out/make.txt" | tee -a "$log"
        exit 1
    fi
}

say "call $call"
versions
build

# ---- 1: is it right? Tests are mostly their references on the processor, so they run at the same time. test_cuda_rows without
#      its largest shape, which needs a GPU of its own.

if [ "$call" = 1 ]; then
    with_wgmma wgmma_attention true
    time=$(left 170) all=
    if hopper; then
        tested wgmma_attention "$time" env TN_WGMMA=1 TN_CUDA_LARGE=1 "$BUILD/test_cuda_attention" & all="$all $!"
        tested wgmma_without_tma "$time" env TN_WGMMA=1 TN_TMA=0 TN_CUDA_LARGE=1 "$BUILD/test_cuda_attention" & all="$all $!"
        tested wgmma_cases     "$time" env TN_WGMMA=1 "$BUILD/test_cuda" cases                     & all="$all $!"
    fi
    tested test_cuda           "$time" env TN_CUDA_LARGE=1 "$BUILD/test_cuda"           & all="$all $!"
    tested test_cuda_attention "$time" env TN_CUDA_LARGE=1 "$BUILD/test_cuda_attention" & all="$all $!"
    tested test_cuda_linear    "$time" env TN_CUDA_LARGE=1 "$BUILD/test_cuda_linear"    & all="$all $!"
    tested test_cuda_states    "$time" "$BUILD/test_cuda_states"                        & all="$all $!"
    tested test_cuda_rows      "$time" "$BUILD/test_cuda_rows"                          & all="$all $!"
    tested own_products        "$time" env TN_CUBLAS=0 "$BUILD/test_cuda" gemm          & all="$all $!"
    tested own_products_cases  "$time" env TN_CUBLAS=0 TN_CUDA_RAW=1 TN_CUDA_ROUND=7 "$BUILD/test_cuda" cases & all="$all $!"
    wait $all
    tested kernel_fault        "$(part 40)" env TN_CUDA_BREAK=1 "$BUILD/test_cuda" kernel_fault
    tested without_a_gpu       "$(part 20)" env CUDA_VISIBLE_DEVICES= "$BUILD/test_cuda" without_a_gpu
    # Which call of a program that failed was it? Each waits for its kernels, so that an error names its op.
    for name in $tests; do
        grep "\"test\":\"$name\"" "$results" | tail -n 1 | grep -q '"exit":0' && continue
        if late 170; then skip "${name}_sync" "no time left"
        else tested "${name}_sync" "$(part 40)" env TN_SYNC=1 TN_TEST_SMALL=least "$BUILD/$name"; fi
    done
    if late 20; then skip "bench attention linear" "no time left"; else bench "$(left 50)" without attention linear; fi
    if late 20; then skip "bench attention, wgmma" "no time left"
    else with_wgmma "bench attention, wgmma" bench_wgmma "$(left 5)" without attention; fi
fi

# ---- 2: how fast is it?

if [ "$call" = 2 ]; then
    bench "$(left 210)" with attention linear gpt
    with_wgmma "bench attention, wgmma" bench_wgmma "$(left 150)" with attention
    if have "$PYTHON"; then
        say "peers"
        clocks "before peers"
        time=$(left 15)
        limited "$time" "$PYTHON" tools/bench/gpu/peers.py "$results" $(( time - $(part 15) )) > "$out/peers.txt" 2>&1
        status=$?
        shown "$out/peers.txt"
        clocks "after peers"
        ended peers $status "$time"
    else skip peers "$PYTHON is not installed"; fi
fi

# ---- 3: under compute-sanitizer, without cuBLAS, so that all kernels are ours; the remaining rows; where a kernel's time goes

# check TOOL NAME VARIABLE PROGRAM [TEST]: VARIABLE says how much of it
check() {
    tool=$1 name=$2 size=$3; shift 3
    leaks=; [ "$tool" = memcheck ] && leaks="--leak-check full"
    set -- "$sanitizer" --tool "$tool" $leaks --error-exitcode 9 "$@"
    tested "$tool-$name" "$(part 190)" env TN_CUBLAS=0 TN_CUDA_RAW=1 "$size" "$@"
}
sanitize() {
    least=TN_TEST_SMALL=least round=TN_CUDA_ROUND=5 all=
    check memcheck  attention $least "$BUILD/test_cuda_attention"       & all="$all $!"
    check memcheck  linear    $least "$BUILD/test_cuda_linear"          & all="$all $!"
    check memcheck  cases     $round "$BUILD/test_cuda" cases_bf16      & all="$all $!"
    check racecheck attention $least "$BUILD/test_cuda_attention" sizes & all="$all $!"
    check racecheck cases     $round "$BUILD/test_cuda" cases_f32       & all="$all $!"
    check synccheck attention $least "$BUILD/test_cuda_attention" sizes & all="$all $!"
    check initcheck states    $least "$BUILD/test_cuda_states"          & all="$all $!"
    check initcheck cases     $round "$BUILD/test_cuda" cases_bf16      & all="$all $!"
    if hopper; then check synccheck wgmma $least "$BUILD/test_cuda_attention" wgmma & all="$all $!"
    else with_wgmma synccheck-wgmma true; fi
    wait $all
}

# profile SECTION [wgmma]: each kernel of attention once for each way to launch it. The file is what ncu counted, the rows its
# outline. Interrupted, ncu writes what it has.
profile() {
    name=$1${2:+_$2}
    env ${2:+TN_WGMMA=1} timeout -s INT -k 20 "$(part 80)" ncu --clock-control none --filter-mode per-launch-config -c 1 \
        -k 'regex:tnc_(attend|linear)' --csv --section SpeedOfLight --section Occupancy --section LaunchStats \
        --log-file "$out/ncu_$name.csv" \
        "$BUILD/bench" "$1" > "$out/ncu_$name.txt" 2>&1
    if grep -q ERR_NVGPUCTRPERM "$out/ncu_$name.csv" "$out/ncu_$name.txt" 2>/dev/null; then
        skip "ncu $name" "this user may not read the GPU's counters (ERR_NVGPUCTRPERM)"
        return
    fi
    have "$PYTHON" && "$PYTHON" - "$out/ncu_$name.csv" <<'END' | tee -a "$log" >> "$results"
import csv, json, sys
keys = {'Duration': 'us', 'Compute (SM) Throughput': 'SM %', 'Memory Throughput': 'memory %', 'Achieved Occupancy': 'warps %',
        'Registers Per Thread': 'registers', 'Grid Size': 'blocks'}
scale = {'nsecond': 1e-3, 'ns': 1e-3, 'msecond': 1e3, 'ms': 1e3}
rows = {}
lines = [x for x in open(sys.argv[1], errors='replace') if x.startswith('"')]
for r in csv.DictReader(lines):
    key, unit = keys.get(r['Metric Name']), r['Metric Unit']
    if key and not (key == 'memory %' and unit != '%'):
        name = r['Kernel Name'].split('(')[0].replace('void ', '')
        x = float(r['Metric Value'].replace(',', '')) * (scale.get(unit, 1) if key == 'us' else 1)
        rows.setdefault((r['ID'], name), {})[key] = float(f'{x:.4g}')
for (_, name), row in rows.items():
    print(json.dumps({'kernel': f"{name}, {row.get('blocks', 0):g} blocks", **row}, separators=(',', ':')))
END
    say "ncu $name: $(grep -c 'Registers Per Thread' "$out/ncu_$name.csv" 2>/dev/null) kernels in $out/ncu_$name.csv"
}

if [ "$call" = 3 ]; then
    sanitizer=$(command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" 2>/dev/null)
    if [ -n "$sanitizer" ]; then sanitize; else skip compute-sanitizer "it is neither in the PATH nor in CUDA_HOME/bin"; fi
    if late 250; then skip "bench rows small" "no time left"; else bench "$(left 240)" with rows small; fi
    for section in attention "attention wgmma" linear; do
        if ! have ncu; then skip "ncu $section" "it is not installed"
        elif late 110; then skip "ncu $section" "no time left"
        else
            case $section in
            *wgmma) with_wgmma "ncu $section" profile attention wgmma ;;
            *)      profile $section ;;
            esac
        fi
    done
    if ! have nsys; then skip nsys "it is not installed"
    elif late 60; then skip nsys "no time left"
    else
        limited "$(left 30)" nsys profile --trace cuda --force-overwrite true -o "$out/nsys" "$BUILD/bench" small \
            > "$out/nsys.log" 2>&1
        limited "$(left 5)" nsys stats --report cuda_gpu_kern_sum "$out/nsys.nsys-rep" > "$out/nsys.txt" 2>&1
        say "nsys: the time of each kernel of a small step is in $out/nsys.txt"
    fi
fi

say "call $call is done: $(wc -l < "$results") lines in $results; sh tools/bench/gpu/first_hour.sh tables $results"
