#!/bin/sh
# sh tests/tn_comm.sh TN [KILLS]: many processes train one run, over --comm socket: the log of any number of them is that of
# one; a resume takes another number; and KILLS times (5) one of four is killed at a random moment: the others end, name it and
# a checkpoint, and the resumed run ends with the same log. MPIRUN="mpirun -n": the same started by MPI, with --comm mpi, where it
# is mpirun that ends the others and names the killed one. CARRIER=nccl: by --comm nccl, on GPUs of the engine.
set -u
if [ "${CARRIER:-}" = nccl ] && ! grep -qs '127\.0\.0\.1' /proc/net/fib_trie; then
    exec sh tests/missing.sh loopback "(an interface with 127.0.0.1), for --comm nccl"
fi
. "${0%/*}/expect.sh"
kills=${2:-5}
port=$((20000 + $$ % 20000))
carrier=${MPIRUN:+mpi}
carrier=${CARRIER:-${carrier:-socket}}
backend= forbids=--comm
if [ "$carrier" = nccl ]; then export LOCAL_RANK=0; backend="--backend cuda" forbids=--backend; fi

# start N ARGUMENTS: N processes of tn. Rank r writes said.r; pid.r has its number. Done when all have ended; false: one failed.
start() {
    size=$1
    shift
    rm -f said.* pid.*
    if [ "$carrier" = mpi ]; then
        timeout -k 5 100 $MPIRUN "$size" sh -c 'echo $$ > pid.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; exec "$0" "$@"' \
            "$tn" "$@" > said.0 2>&1
        return
    fi
    pids=
    r=0
    while [ $r -lt "$size" ]; do
        RANK=$r WORLD_SIZE=$size MASTER_PORT=$port "$tn" "$@" > said.$r 2>&1 &
        pids="$pids $!"
        echo $! > pid.$r
        r=$((r + 1))
    done
    good=0 statuses=
    for p in $pids; do
        wait "$p" 2> /dev/null
        status=$?
        statuses="$statuses $status"
        [ $status = 0 ] || good=1
    done
    return $good
}
finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ]
    exit
}
# near WHAT A B: the losses of two runs, each step's and those of held-out data, are equal in seven digits
losses() { sed -n 's/^{"step":\([0-9]*\),"\(loss\|held\)":\([^,]*\),.*/\1 \2 \3/p' "$1/log.jsonl"; }
near() {
    losses "$2" > x
    losses "$3" > y
    if paste -d ' ' x y | awk '{ d = $3 - $6; if (d < 0) d = -d } !(d <= 1e-7 * $3) || $1 != $4 || $2 != $5 || NF != 6 { bad = 1 }
        END { exit !(NR > 20 && !bad) }'; then pass
    else fail "$1: the losses of $2 and $3"; fi
}

expect 0 "tokens: 4000" synthetic --vocab 50 --tokens 4000 --out s.bin
tiny="--vocab 50 --width 16 --heads 2 --context 16 --batch 12 --no-baseline --steps 24 --dtype f64 --dropout 0.1"
often="--val-every 6 --val-tokens 400 --save-every 4 --sample-every 0 --comm $carrier $backend"
export TN_COMM_SECONDS=60

expect 0 "Done" train s.bin --out one $tiny --val-every 6 --val-tokens 400 --save-every 4 --sample-every 0 $backend
for size in 1 2 3 4; do
    start $size train s.bin --out r$size $tiny $often && pass || fail "$size processes: $(cat said.*)"
    near "$size processes" one r$size
    cmp -s one/config.txt r$size/config.txt && pass || fail "$size processes: config.txt"
    # 8 bytes for each parameter, 2 (N-1)/N times, and a little to agree
    awk -v n=$size '/ parameters, / { sub(/ parameters, .*/, ""); p = $NF } /sent: / { sub(/.*sent: /, ""); mb = $1 }
        END { f = 2 * (n - 1) / n * 8 * p / 1e6; exit !(p > 4000 && mb >= 0.999 * f && mb <= 1.02 * f) }' said.0 && pass ||
        fail "$size processes: bytes sent: $(grep "parameters\|sent" said.0)"
done
start 3 train s.bin --out parts $tiny $often --share-moments && pass || fail "shared moments: $(cat said.*)"
near "shared moments" one parts
# One process trains a segment of two again: its bits may differ, and that proves nothing.
start 2 train s.bin --out audited $tiny $often --audit && pass || fail "with a chain: $(cat said.*)"
expect 1 "which proves nothing: it was made by 2 processes together" audit audited --segments 2 --seed 1
grep -q "^chain: holds, 9 links" said && pass || fail "the chain of two processes: $(cat said)"
# One that goes on has the links of those that trained before.
start 2 train s.bin --out moved $tiny $often --audit --stop-at 8 && pass || fail "with a chain, stopped: $(cat said.*)"
expect 0 "Done" train --resume moved
made=$(sed -n 's/.*"step":\([0-9]*\),"file":"step.*"processes":\([0-9]*\),.*/\1 \2/p' moved/log.jsonl | tr '\n' ';')
[ "$made" = "0 2;4 2;8 2;12 1;16 1;20 1;24 1;" ] && pass || fail "the processes of links: $made"
expect 1 "which proves nothing: it was made by 2 processes together" audit moved --segments 6
# What was stopped by two goes on with three, and with one.
start 2 train s.bin --out again $tiny $often --stop-at 7 && pass || fail "stopped: $(cat said.*)"
start 3 train --resume again --comm $carrier --stop-at 13 --share-moments && pass || fail "resumed by three: $(cat said.*)"
expect 0 "Done" train --resume again
near "resumed by other numbers" one again
# A signal to one of them ends all, with its status.
if [ "$carrier" != mpi ]; then
    rm -rf stopped
    (
        tries=0
        until grep -qs '"step":3,' stopped/log.jsonl || [ $tries = 3000 ]; do sleep 0.1; tries=$((tries + 1)); done
        kill -TERM "$(cat pid.1)"
    ) &
    start 2 train s.bin --out stopped $tiny $often --steps 1000000 && fail "stopped by a signal: a process says 0"
    [ "$statuses" = " 143 143" ] && pass || fail "exit statuses after SIGTERM to rank 1:$statuses: $(cat said.*)"
    grep -q "Stopped after step" said.0 && grep -q "another one has received signal 15" said.0 && pass ||
        fail "stopped by a signal: $(cat said.0)"
fi
# What cannot be.
start 5 train s.bin --out no $tiny $often && fail "12 texts for 5 processes"
grep -q -e "--batch is 12, expected a multiple of 5" said.0 && pass || fail "12 texts for 5 processes: $(cat said.0)"
start 2 train s.bin --out no $tiny $often --log-layers 2 && fail "--log-layers"
grep -q -e "--log-layers is given with $forbids" said.0 && pass || fail "--log-layers: $(cat said.0)"
expect 2 "neither RANK and WORLD_SIZE" train s.bin --out no $tiny --comm socket
if [ "$carrier" = socket ]; then
    RANK=abc WORLD_SIZE=1 expect 2 'RANK is "abc", expected a whole number from 0' train s.bin --out no $tiny --comm socket
    RANK=0 WORLD_SIZE=1 LOCAL_WORLD_SIZE=x expect 2 'LOCAL_WORLD_SIZE is "x"' train s.bin --out no $tiny --comm socket
    expect 2 "built without MPI" train s.bin --out no $tiny --comm mpi
    for other in "--lr 0.5" "--seed 2" "--batch 24" "--stop-at 5" "--share-moments"; do      # of rank 1 alone
        RANK=0 WORLD_SIZE=2 MASTER_PORT=$port "$tn" train s.bin --out no $tiny $often > said.0 2>&1 &
        RANK=1 WORLD_SIZE=2 MASTER_PORT=$port "$tn" train s.bin --out no $tiny $often $other > said.1 2>&1
        wait $!
        cat said.0 said.1 | grep -q "rank 1 has other " && pass || fail "$other of rank 1: $(cat said.0 said.1)"
        [ ! -f no/config.txt ] && pass || fail "$other of rank 1: a run began"
    done
fi

i=0
midway=0
while [ $i -lt "$kills" ]; do
    victim=$(awk -v s="$$$i" 'BEGIN { srand(s); print int(4 * rand()) }')
    lines=$(awk -v s="9$$$i" 'BEGIN { srand(s); print int(24 * rand()) }')
    # mpirun of Open MPI 4 hangs if a process is killed in MPI_Init; over NCCL the others wait for one that has not come yet
    [ "$carrier" = socket ] || lines=$((lines + 1))
    rm -rf k pid.*
    (                                   # when the log has so many lines, or the run ends before
        while [ ! -f pid.3 ] || { kill -0 "$(cat pid.3)" 2> /dev/null &&
            [ "$(cat k/log.jsonl 2> /dev/null | wc -l)" -lt "$lines" ]; }; do sleep 0.01; done
        kill -9 "$(cat pid.$victim)" 2> /dev/null
    ) &
    killer=$!
    before=$(date +%s)
    start 4 train s.bin --out k $tiny $often
    wait $killer
    [ $(($(date +%s) - before)) -lt 50 ] && pass || fail "kill $i: rank $victim at line $lines: the others waited"
    if ! grep -q Done said.0; then
        for r in 0 1 2 3; do
            [ $r = "$victim" ] && continue
            if [ "$carrier" = mpi ]; then
                midway=$((midway + 1))
                grep -q "process rank $victim " said.0 && pass || fail "kill $i: mpirun does not name $victim: $(cat said.0)"
                break
            fi
            if grep -q "rank $victim has ended" said.$r; then midway=$((midway + 1)); fi
            grep -q "rank $victim has\|rank $victim of 4 did not connect" said.$r && pass ||
                fail "kill $i: rank $r does not name rank $victim: $(cat said.$r)"
        done
    fi
    # The run goes on from its newest checkpoint; one that was killed before it had settings begins.
    if [ -f k/config.txt ]; then start 2 train --resume k --comm $carrier || fail "kill $i: $(cat said.*)"
    else rm -rf k; start 2 train s.bin --out k $tiny $often || fail "kill $i: $(cat said.*)"; fi
    near "kill $i" one k
    i=$((i + 1))
done
[ "$kills" -lt 5 ] || [ $midway -gt 0 ] && pass || fail "nobody was killed while training"
finish
