#!/bin/sh
# sh tests/tn_device.sh TN: the command on a device: TN is one whose --backend cuda is something that runs here (tests/tn_capture.c, which
# can fail when it is asked to, or tensornet_cuda.cu on tests/cuda_host). Its last line is `N passed, N failed, N skipped`.
set -u
. "${0%/*}/expect.sh"
losses() { sed -n 's/^{"step":[0-9]*,"loss":\([^,]*\),.*/\1/p' "$1/log.jsonl"; }
# near WHAT A B BOUND STEPS: so many losses, all of them numbers, and no further apart
near() {
    losses "$2" > x
    losses "$3" > y
    if paste x y | awk -v bound="$4" -v steps="$5" '
        { d = $1 - $2; if (d < 0) d = -d; if (d > largest) largest = d; n++ }
        !(d <= bound) || NF != 2 || /[^-+.e0-9 \t]/ { bad = 1 }
        END { printf "%s: %d losses, %g apart\n", "'"$1"'", n, largest; exit !(n == steps && !bad) }'; then pass
    else fail "$1: the losses of $2 and $3"; fi
}

expect 0 "tokens: 4000" synthetic --vocab 50 --tokens 4000 --out s.bin
tiny="--vocab 50 --width 16 --heads 2 --context 16 --batch 2 --no-baseline --steps 24"
quiet="--val-every 0 --save-every 0 --sample-every 0"
often="--val-every 7 --val-tokens 64 --save-every 5 --sample-every 0"

expect 0 "Done" train s.bin --out cpu $tiny $quiet
expect 0 "Done" train s.bin --out gpu $tiny $quiet --backend cuda
cp said first
near "the CPU's losses" cpu gpu 1e-5 24
grep -q "cannot be captured as a graph" first && fail "no graph: $(grep "cannot be captured as a graph" first)" || pass
grep -q "GPU 0, [0-9.]* Gflop/s in matrix products" first && pass || fail "the peak is not reported"

# However often it stops to look or save, whatever becomes a graph: the same bits.
expect 0 "Done" train s.bin --out looked $tiny $often --backend cuda
same "with looks in between" gpu/model.safetensors looked/model.safetensors
losses gpu > x; losses looked > y
same "its losses" x y
# Replays of segments, each of which becomes a graph of its own.
expect 0 "Done" train s.bin --out audited $tiny $often --backend cuda --audit
expect 0 "checked: 5 of 5 segments, 24 of 24 steps" audit audited
# Stopped and resumed at places where steps are and are not yet a graph.
expect 0 "Stopped after step 11" train s.bin --out again $tiny $quiet --backend cuda --stop-at 11
expect 0 "Stopped after step 12" train --resume again --stop-at 12
expect 0 "Done" train --resume again
same "resumed" gpu/model.safetensors again/model.safetensors
losses again > y
same "its losses" x y
# Recomputed: the same bits. Resumed with and without it, too.
expect 0 "Done" train s.bin --out less $tiny $quiet --backend cuda --recompute
same "recomputed" gpu/model.safetensors less/model.safetensors
expect 0 "Stopped after step 7" train s.bin --out now $tiny $quiet --backend cuda --stop-at 7
expect 0 "Stopped after step 15" train --resume now --recompute --stop-at 15
expect 0 "Done" train --resume now
same "recomputed now and then" gpu/model.safetensors now/model.safetensors
# Parts of a step, AdamW, a schedule, clipping that bites.
more="--accumulate 3 --optimizer adamw --schedule cosine --clip 0.1 --weight-decay 0.1"
expect 0 "Done" train s.bin --out cpu2 $tiny $quiet $more
expect 0 "Done" train s.bin --out gpu2 $tiny $quiet $more --backend cuda
near "in parts, by AdamW" cpu2 gpu2 1e-5 24
expect 0 "Done" train s.bin --out cpu64 $tiny $quiet --dtype f64 --layers 2 --attention bilinear
expect 0 "Done" train s.bin --out gpu64 $tiny $quiet --dtype f64 --layers 2 --attention bilinear --backend cuda
near "in double" cpu64 gpu64 1e-9 24
expect 0 "Done" train s.bin --out half $tiny $quiet --activations bf16 --precision bf16 --backend cuda
near "in BF16" cpu half 0.05 24
expect 0 "Done" train s.bin --out minutes --vocab 50 --width 16 --context 16 --batch 2 --no-baseline --minutes 0.001 --backend cuda

# A step that diverges is reported with its step, though the host reads it late; the checkpoint named good is older.
explode="--vocab 50 --width 16 --heads 2 --context 16 --batch 2 --no-baseline --sample-every 0 --val-every 0 --steps 60"
expect 1 "the last good checkpoint is boom/step-" train s.bin --out boom $explode --lr 1e12 --adam-lr 1e12 --clip 0 --save-every 1 \
    --keep 2 --backend cuda
step=$(sed -n 's/^tn train: step \([0-9]*\): .*/\1/p' said)
good=$(sed -n 's/.*good checkpoint is boom\/step-0*\([0-9][0-9]*\)\.safe.*/\1/p' said)
[ -n "$step" ] && [ "$good" -lt "$step" ] && pass || fail "the good checkpoint $good of an explosion at $step"
expect 1 "tn train: step " train s.bin --out boom2 $explode --lr 1e12 --adam-lr 1e12 --clip 0 --save-every 0 --backend cuda
[ "$(sed -n 's/^tn train: step \([0-9]*\): .*/\1/p' said)" = "$step" ] && pass || fail "read late, another step: $(cat said)"
[ "$(losses boom2 | wc -l)" = "$((step - 1))" ] && pass || fail "the log of what exploded"

# Text: the likeliest tokens are the same on both.
awk 'BEGIN { for (i = 0; i < 300; i++) print (i % 3 ? "the cat saw a ball" : "one day it ran home") }' > text
expect 0 "Done" train text --out words --width 16 --context 16 --batch 2 --vocab 40 --steps 8 --no-baseline --sample-length 10 \
    --sample-every 3 --backend cuda
expect 0 "" generate words --temperature 0 --length 12 --prompt "the cat"
expect 0 "" generate words --temperature 0 --length 12 --prompt "the cat" --backend cuda
"$tn" generate words --temperature 0 --length 12 --prompt "the cat" > here 2> said
"$tn" generate words --temperature 0 --length 12 --prompt "the cat" --backend cuda > there 2> said
same "generated" here there

# What a device may do wrong, where it is one that can be asked to.
ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" TN_CAPTURE=says "$tn" train s.bin --out counted $tiny $quiet --backend cuda > said 2>&1
if ! grep -q "^replays: " said; then
    echo "$passed passed, $failed failed, 0 skipped"
    [ "$failed" = 0 ]
    exit
fi
grep -qx "replays: 22" said && pass || fail "24 steps are 2 and 22 replays: $(grep replays said)"
after=$(sed -n 's/^kernels after the last: //p' said)
TN_CAPTURE=says; export TN_CAPTURE
expect 0 "products of BF16: no" train s.bin --out f32 $tiny $quiet --backend cuda
expect 0 "products of BF16: yes" train s.bin --out bf16 $tiny $quiet --backend cuda --activations bf16
unset TN_CAPTURE
# with NAME=VALUE STATUS TEXT ...: expect in this environment
with() {
    setting=$1
    shift
    export "$setting"
    expect "$@"
    unset "${setting%%=*}"
}
with TN_CAPTURE_BEGIN=no 0 "a step cannot be captured as a graph: graph: backend cuda: no capture today" train s.bin --out one $tiny $quiet --backend cuda
same "without a graph" gpu/model.safetensors one/model.safetensors
with TN_CAPTURE_PRODUCT=1 0 "nan Gflop/s" train s.bin --out peak $tiny $quiet --backend cuda
same "without a peak" gpu/model.safetensors peak/model.safetensors
# The run ends, at once and with the reason; no step is logged that did not happen, no good checkpoint is removed.
refused() {
    steps=$1 run=$2
    grep -q "lower --lr" said && fail "$run: advice that does not help: $(cat said)" || pass
    [ "$(losses $run | wc -l)" = "$steps" ] && pass || fail "$run: $(losses $run | wc -l) steps in the log, not $steps"
    losses $run > x
    losses gpu | head -n "$steps" > y
    same "$run: losses" x y
}
each="--save-every 1 --keep 2 --sample-every 0 --val-every 0 --backend cuda"
with TN_CAPTURE_MEMORY=24000000 1 "step 1: arena: no memory" train s.bin --out full $quiet --vocab 50 --width 64 --heads 2 --context 64 \
    --batch 64 --no-baseline --steps 24 --backend cuda
refused 0 full
with TN_CAPTURE_FAIL=10,1 1 "step 12: copy: backend cuda" train s.bin --out fails $tiny $each
refused 11 fails
grep -q "the last checkpoint is fails/step-00000011" said && [ -f fails/step-00000011.safetensors ] && pass || fail "fails: $(cat said)"
with TN_CAPTURE_REPLAYS=9 1 "step 12: graph: backend cuda" train s.bin --out replay $tiny $each
refused 11 replay
with TN_CAPTURE_FAIL=10,1 1 "12: copy: backend cuda" train s.bin --out late $tiny $quiet --backend cuda
refused "$(losses late | wc -l)" late                 # those that were read before, on a slow machine
# The run continues from where it stopped.
expect 0 "Done" train --resume fails
same "resumed after a failure" gpu/model.safetensors fails/model.safetensors
# The step with a bad id is reported, though the host reads it later; its loss may well be finite.
with TN_CAPTURE_ID=5 1 "step 7: embed: element 0 of the ids is 1048576" \
     train s.bin --out id $tiny $quiet --backend cuda
[ "$(losses id | wc -l)" = 6 ] && pass || fail "id: $(losses id | wc -l) steps in the log"
# After the last step its result is checked.
with "TN_CAPTURE_FAIL=22,$after" 1 "step 25: copy: backend cuda" train s.bin --out last $tiny $quiet --backend cuda
refused 24 last
# Another device is another machine.
expect 0 "Stopped after step 5" train s.bin --out moved $tiny $quiet --backend cuda --stop-at 5
with "TN_CAPTURE_DEVICE=tape" 0 "was made with cuda lists of calls, and this is cuda tape" train --resume moved

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
