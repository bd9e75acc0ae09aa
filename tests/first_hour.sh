#!/bin/sh
# sh tests/first_hour.sh [BENCH]: tools/bench/gpu/first_hour.sh with programs that are made up, in a folder of its own. Results
# are kept when a program fails, hangs or is missing, each of which is named; `tables` fills the tables of docs/gpu.md. BENCH is
# bench_gpu.c on the engine of tests/cuda_host: its rows are lines that `tables` can read, and without cuBLAS it fails.
set -u
export LC_ALL=C
script=tools/bench/gpu/first_hour.sh
work=${TN_TEST_TMP:-build}/first_hour
rm -rf "$work"
mkdir -p "$work/bin" "$work/tools"
work=$(cd "$work" && pwd)
passed=0 failed=0
verdict() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL first_hour: $2"; fi; }
rows=$work/out/results.jsonl
kept()   { grep -qF -- "$1" "$rows"; verdict $? "call $call has no row with $1"; }
absent() { ! grep -qF -- "$1" "$rows"; verdict $? "call $call has a row with $1"; }
# program FOLDER NAME: the rest of the input is its script
program() { rm -f "$work/$1/$2"; { echo "#!/bin/sh"; cat; } > "$work/$1/$2"; chmod +x "$work/$1/$2"; }
# Runs a call with the made-up programs, and tools from a PATH that has only them and what every system has. LIMIT shrinks all
# of its parts.
begin() {
    call=$1 limit=$2
    rm -rf "$work/out"
    said=$(cd / && env -i PATH="$work/tools:/usr/bin:/bin" CUDA_HOME="$work" BUILD="$work/bin" PYTHON="$work/tools/python" \
               LIMIT="$limit" sh "$root/$script" "$call" "$work/out" 2>&1)
    verdict $? "call $call: it failed: $said"
}
root=$(pwd)

for shell in sh dash bash busybox; do
    command -v $shell > /dev/null || continue
    [ $shell != busybox ] || shell="busybox sh"
    $shell -n $script
    verdict $? "$shell does not parse it"
done
sh $script > /dev/null 2>&1; verdict $(( $? != 2 )) "without a call it does not say how it is used"
sh $script 4 "$work/out" > /dev/null 2>&1; verdict $(( $? != 2 )) "there is no call 4"
[ ! -e "$work/out" ]; verdict $? "a call that does not exist makes a folder"
! grep -n "/work\|$(id -un)@" $script tools/bench/gpu/peers.py docs/gpu.md; verdict $? "it names a folder of one machine"

# ---- everything missing

for name in test_cuda test_cuda_attention test_cuda_linear test_cuda_states test_cuda_rows; do
    program bin $name <<'END'
echo "SKIP a part: needs more"
case $0$* in
*/test_cuda_linear*) echo 'FAIL scan: "wrong" \ number'; echo "4 passed, 1 failed, 2 skipped"; exit 1 ;;
*/test_cuda_states*) echo "a crash"; exit 139 ;;
*/test_cuda_rows*)   [ -n "${TN_SYNC:-}" ] || sleep 60 ;;
*/test_cuda_attentionwgmma_launches)
    [ "${TN_REQUIRE:-}" = wgmma ] || { echo "SKIP wgmma_launches"; exit 0; }
    [ ! -e "$(dirname "$0")/no_wgmma" ] || { echo "FAIL TN_REQUIRE:0: wgmma: desc.wgmma: ignored, too old"; exit 1; } ;;
esac
echo "3 passed, 0 failed, 1 skipped"
END
done
program bin bench <<'END'
echo "{\"row\":\"bench $*${TN_WGMMA:+ wgmma $TN_WGMMA}\",\"ms\":1.25,\"% of floor\":50}" >> "$BENCH_JSON"
echo "{\"row\":\"torch\",\"is\":\"$BENCH_TORCH\"}" >> "$BENCH_JSON"
END
begin 1 15
kept '{"test":"test_cuda","passed":3,"failed":0,"skipped":1,"exit":0,'
kept '{"test":"test_cuda_linear","passed":4,"failed":1,"skipped":2,"exit":1,'
kept '{"test":"test_cuda_states","exit":139,'
kept '"note":"no sum: a crash"}'
kept '{"test":"test_cuda_rows","exit":124,'
kept '{"test":"own_products_cases","passed":3,'
kept '{"test":"without_a_gpu","passed":3,'
kept '{"missing":"PyTorch","why":'
kept '{"row":"bench attention linear","ms":1.25'
kept '{"row":"torch","is":""}'
kept '{"row":"bench attention wgmma 1","ms":1.25'
kept '{"test":"wgmma_attention","passed":3,'
kept '{"test":"wgmma_without_tma","passed":3,'
kept '{"test":"wgmma_cases","passed":3,'
absent '"test":"test_cuda_sync"'
verdict $(( $(grep -c '_sync"' "$rows") != 3 )) "not every program that failed was run again"
echo "$said" | grep -q 'FAIL scan'; verdict $? "what a test says when it fails is not shown"
echo "$said" | grep -q 'SKIP a part'; verdict $? "what a test skips is not shown"
: > "$work/bin/no_wgmma"
begin 1 8
absent '"test":"wgmma_attention"'
absent '"test":"wgmma_without_tma"'
absent '"test":"wgmma_cases"'
absent 'wgmma 1'
for what in wgmma_attention "bench attention, wgmma"; do
    kept "{\"missing\":\"$what\",\"why\":\"attention does not use wgmma: FAIL TN_REQUIRE:0: wgmma: desc.wgmma: ignored, too old\"}"
done
rm "$work/bin/no_wgmma"

# ---- a bench that hangs, and peers; then one that fails, and peers that do; then what keeps their output open

program bin bench <<'END'
echo '{"row":"the first","ms":2}' >> "$BENCH_JSON"
case $BENCH_TORCH in *"torch_peer.py") echo '{"row":"with a peer","ms":2}' >> "$BENCH_JSON" ;; esac
sleep 60
END
program tools python <<'END'
case $1 in
-) printf 'Python\t3.12.1\nPyTorch\t2.9\n' ;;
*peers.py) echo '{"row":"of a peer","ms":3}' >> "$2"; [ ! -e "$(dirname "$0")/broken" ] || exit 7 ;;
esac
END
program tools nvidia-smi <<'END'
case $* in *clocks_throttle_reasons*) echo "1755 MHz, 0x4" ;; esac
END
begin 2 5
kept '{"row":"the first","ms":2}'
kept '{"row":"with a peer","ms":2}'
kept '{"missing":"bench attention linear gpt","why":"it was cut off after '
kept '{"row":"of a peer","ms":3}'
kept '{"what":"clock before bench attention linear gpt","is":"1755 MHz, 0x4"}'
kept '{"what":"clock after peers","is":"1755 MHz, 0x4"}'
absent '"missing":"peers"'
kept '{"what":"PyTorch","is":2.9}'
kept '{"what":"Python","is":"3.12.1"}'
kept '{"missing":"Triton"'
program bin bench <<'END'
echo "FAIL cuBLAS: not found"
exit 1
END
: > "$work/tools/broken"
begin 2 5
kept '{"missing":"peers","why":"it ended with status 7"}'
rm "$work/tools/broken"
kept '{"missing":"bench attention linear gpt","why":"it ended with status 1"}'
echo "$said" | grep -q 'FAIL cuBLAS: not found'; verdict $? "why the bench failed is not shown"

# A program that has ended, while one that it started lives on: the call does not wait for that one.
program bin bench <<'END'
echo "{\"row\":\"bench $*${TN_WGMMA:+ wgmma}\",\"is\":\"$BENCH_TORCH\"}" >> "$BENCH_JSON"
setsid sleep 60 &
echo $! >> "$(dirname "$0")/left"
END
program tools python <<'END'
case $1 in
-) printf 'Python\t3.12.1\n'; sleep 300 ;;
*peers.py) setsid sleep 60 & echo $! >> "$(dirname "$0")/../bin/left" ;;
esac
END
begin 2 15
kept '{"what":"Python","is":"3.12.1"}'
grep -q '^{"row":"bench attention wgmma","is":"exec .*torch_peer.py"}$' "$rows"; verdict $? "wgmma is not timed beside PyTorch"
absent '"missing":"bench'
while read -r one; do kill "$one" 2> /dev/null; verdict $? "the call waited for what a program had left"; done < "$work/bin/left"

# ---- tools of CUDA: none; then a sanitizer that finds something, and an ncu that may not count

program tools python <<'END'
exit 0
END
program bin bench <<'END'
echo "{\"row\":\"bench $*\",\"ms\":1}" >> "${BENCH_JSON:-/dev/null}"
END
begin 3 60
for what in compute-sanitizer "ncu attention" "ncu attention wgmma" "ncu linear" nsys; do kept "{\"missing\":\"$what\""; done
kept '{"row":"bench rows small","ms":1}'
program tools compute-sanitizer <<'END'
tool=$2
while [ "${1#*/}" = "$1" ]; do shift; done
echo "$TN_CUBLAS $TN_CUDA_RAW" 
"$@"
[ $tool != racecheck ] || exit 9
END
program tools ncu <<'END'
[ "$1" != --version ] || exit 0
while [ "$1" != --log-file ]; do shift; done
case ${TN_WGMMA:-}$* in
*linear) echo "==ERROR== ERR_NVGPUCTRPERM - no permission" ;;
1*) sed 's/tnc_attend_mma/tnc_attend_wgmma/' "$(dirname "$0")/ncu.csv" > "$2" ;;
*) cp "$(dirname "$0")/ncu.csv" "$2" ;;
esac
END
cat > "$work/tools/ncu.csv" <<'END'
==PROF== Connected to process 7
"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"
"0","7","void tnc_attend_mma<1, 64, 64>(tnc_attend)","GPU Speed Of Light Throughput","Memory Throughput","byte/second","2,000"
"0","7","void tnc_attend_mma<1, 64, 64>(tnc_attend)","GPU Speed Of Light Throughput","Memory Throughput","%","31.5"
"0","7","void tnc_attend_mma<1, 64, 64>(tnc_attend)","GPU Speed Of Light Throughput","Duration","msecond","1.25"
"0","7","void tnc_attend_mma<1, 64, 64>(tnc_attend)","Launch Statistics","Registers Per Thread","register/thread","255"
"0","7","void tnc_attend_mma<1, 64, 64>(tnc_attend)","Launch Statistics","Grid Size","","1,024"
END
rm "$work/tools/python"
if command -v python3 > /dev/null; then echo "exec '$(command -v python3)' \"\$@\"" | program tools python; fi
begin 3 60
kept '{"test":"memcheck-attention","passed":3,"failed":0,"skipped":1,"exit":0,'
kept '{"test":"synccheck-wgmma","passed":3,"failed":0,"skipped":1,"exit":0,'
kept '{"test":"racecheck-cases","passed":3,"failed":0,"skipped":1,"exit":9,'
grep -q '^0 1$' "$work/out/initcheck-states.txt"; verdict $? "sanitizers do not run without cuBLAS and sentinels"
kept '{"missing":"ncu linear","why":"this user may not read'
if command -v python3 > /dev/null; then
    kept '{"kernel":"tnc_attend_wgmma<1, 64, 64>, 1024 blocks","memory %":31.5,"us":1250.0,"registers":255.0,"blocks":1024.0}'
    kept '{"kernel":"tnc_attend_mma<1, 64, 64>, 1024 blocks","memory %":31.5,"us":1250.0,"registers":255.0,"blocks":1024.0}'
fi
whole() {
    awk '!/^\{"[a-z]*":"[^"]*"(,"[^"]*":("[^"]*"|[0-9.e+-]+))*\}$/ { print "FAIL not a row: " $0; bad = 1 }
         END { exit bad }' "$rows"
    verdict $? "results have lines that are no rows"
}
whole

# ---- peers.py with a PyTorch that cannot be loaded, and with one whose GPU is lost: lines, and no exception

if command -v python3 > /dev/null; then
    call=peers rows=$work/peers.jsonl
    mkdir -p "$work/torch/torch/nn"
    : > "$work/torch/torch/nn/functional.py"
    echo 'Module = object' > "$work/torch/torch/nn/__init__.py"
    echo 'raise OSError("libcudart.so: too old")' > "$work/torch/torch/__init__.py"
    peers() {
        PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$work/torch" timeout 60 python3 tools/bench/gpu/peers.py "$rows" 20 > "$work/peers.txt" 2>&1
        verdict $? "peers.py fails: $(cat "$work/peers.txt")"
    }
    peers
    kept '{"missing":"peers","why":"no PyTorch: OSError: libcudart.so: too old"}'
    cat > "$work/torch/torch/__init__.py" <<'END'
class cuda:
    def is_available(): return True
    def empty_cache(): raise RuntimeError('an illegal memory access')
END
    peers
    for row in "Triton bilinear fwd" "cuDNN fwd, B 1 H 16 T 4096 d 64" "GPT-2 124M, softmax, torch.compile, batch 16"; do
        kept "{\"missing\":\"$row"
    done
    kept '"why":"RuntimeError: an illegal memory access"}'
    rows=$work/out/results.jsonl
fi

# ---- tables

cat > "$work/sample.jsonl" <<'END'
{"what":"GPU","is":"a | b"}
{"row":"AdamW, 124M","ms":1.5,"PyTorch ms":1.75,"ratio":1.17,"GB/s":2645,"% of floor":88.1,"note":"eager"}
{"row":"AdamW, 124M","ms":1.4}
{"row":"copy","ms":0.5,"GB/s":4300}
{"row":"bilinear linear fwd+bwd d 64 T 12288","ms":3,"ratio":1.01}
{"test":"test_cuda","passed":30,"failed":0,"skipped":2,"exit":0,"seconds":91}
{"test":"racecheck-cases","exit":9,"note":"no sum: x"}
{"row":"cut off in the mid
END
tables=$(sh $script tables "$work/sample.jsonl")
verdict $? "tables fails"
shows() { echo "$tables" | grep -qxF -- "$1"; verdict $? "the tables have no line $1"; }
shows '| GPU | a / b |'
shows '| AdamW, 124M | 1.4 | 1.75 | 1.17 | 2645 | 88.1 | 85 % of floor |'
shows '| copy | 0.5 |  |  | 4300 |'
shows '| bilinear linear fwd+bwd d 64 T 12288 | 3 |  | 1.01 |  |  | ratio 1 |'
shows '| bilinear linear fwd+bwd d 64 T 131072 |  |  |  |  |  | ratio 5 |'
shows '| test_cuda | 30 | 0 | 2 | 0 | 91 |  |'
shows '| racecheck-cases |  |  |  | 9 |  | no sum: x |'
shows '## What was missing?'
: > "$work/none.jsonl"
sh $script tables "$work/none.jsonl" | grep -qxF '| copy |  |  |  |  |'; verdict $? "without results the tables are not there"
sh $script tables "$work/not there" > /dev/null 2>&1; verdict $(( $? != 2 )) "tables of a file that does not exist"

# Every row of the page is one that a program prints: its name, without numbers of the shape, is in bench_gpu.c or in peers.py.
awk -F '|' '/^\|/ {
        name = $2
        gsub(/^ +| +$/, "", name)
        sub(/, wgmma$/, "", name)
        sub(/(( B [0-9]+ H [0-9]+)? d [0-9]+ T [0-9]+|, B [0-9]+ H .*)$/, "", name)
        print name
    }' docs/gpu.md |
    grep -v '^row$\|^what$\|^test$\|^kernel$\|^missing$\|^-\|^\*each' | sort -u |
    while read -r name; do
        grep -qF -- "$name" tools/bench/gpu/bench_gpu.c tools/bench/gpu/peers.py && continue
        case $name in "bilinear quadratic fwd"|"bilinear quadratic fwd+bwd"|"bilinear linear fwd+bwd") continue ;; esac
        echo "FAIL first_hour: no program prints a row \"$name\""
    done > "$work/unknown"
cat "$work/unknown"
[ ! -s "$work/unknown" ]; verdict $? "docs/gpu.md has rows that nothing fills"

# ---- the benchmark itself, with the smallest shapes

if [ $# -gt 0 ]; then
    call=bench rows=$work/bench.jsonl
    BENCH_TINY=1 BENCH_JSON=$rows BENCH_TORCH='read x; echo "missing \"y\""' "$1" attention small rows > "$work/bench.txt"
    verdict $? "the benchmark fails: $(cat "$work/bench.txt")"
    kept '{"what":"device","is":"the host engine'
    kept '{"what":"cuBLAS","is":"13.'
    kept "{\"missing\":\"copy\",\"of\":\"PyTorch\",\"why\":\"'y'\"}"
    kept '{"row":"bilinear quadratic fwd+bwd d 64 T 128","ms":'
    kept '{"row":"bilinear quadratic fwd+bwd B 2 H 2 d 64 T 128","ms":'
    absent wgmma
    TN_WGMMA=1 BENCH_TINY=1 BENCH_JSON=$rows "$1" attention rows > "$work/bench.txt"
    verdict $? "the benchmark fails with TN_WGMMA=1: $(cat "$work/bench.txt")"
    kept '{"row":"bilinear quadratic fwd+bwd B 2 H 2 d 64 T 128, wgmma","ms":'
    absent 'product, wgmma'
    absent 'RMSNorm fwd, BF16, wgmma'
    for row in "fashion step, 128, against eager" "RMSNorm fwd, BF16" "cross-entropy with gradient, BF16" "AdamW, 124M"; do
        grep -qF "| $row |" docs/gpu.md; verdict $? "docs/gpu.md has no row $row"
        kept "{\"row\":\"$row\",\"ms\":"
    done
    whole
    sh $script tables "$rows" | grep -q '^| copy | [0-9.]* |  |  | [0-9.]* |$'
    verdict $? "rows of the benchmark fill no table"
    said=$(TNCH_NO_CUBLAS=1 BENCH_TINY=1 BENCH_JSON=$rows "$1" none 2>&1); verdict $(( $? == 0 )) "it does not fail without cuBLAS"
    echo "$said" | grep -q '^FAIL cuBLAS: .* without tensor cores'; verdict $? "without cuBLAS it says: $said"
    kept '{"missing":"bench","why":"cuBLAS: '
    TN_WGMMA=1 TNCH_DEVICE=80 BENCH_TINY=1 BENCH_JSON=$rows "$1" none > /dev/null 2>&1
    kept '{"missing":"bench","why":"desc.wgmma: ignored'
    said=$(TN_CUBLAS=0 BENCH_TINY=1 "$1" none 2>&1); verdict $? "it fails where it is to use our own products"
    echo "$said" | grep -q '^cuBLAS: not used, because TN_CUBLAS is 0'; verdict $? "with TN_CUBLAS=0 it says: $said"
fi

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
