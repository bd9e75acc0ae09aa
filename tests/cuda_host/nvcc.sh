#!/bin/sh
# sh tests/cuda_host/nvcc.sh SOURCE.cu BUDGET FOLDER [--budget | --prove]: nvcc compiles the file for CUDA_BOTH into
# FOLDER/SOURCE.o, what a user links; and then
#     no warning of nvcc or of the host compiler            registers, stack, spills, shared memory within BUDGET
#     tn_cuda_backend is all that the object exports        tensor cores and TMA where BUDGET requires them, and no double in kernels of floats
#     no wgmma that ptxas serialises or waits for itself, no setmaxnreg that it ignores, nor in a kernel that begins with fewer registers than fit
#     launches, shared memory and assembly appear only in the section >>cuda-port
# --budget prints the lines that BUDGET would need instead; --prove compiles unfit.cu first, and all of its mistakes must be found.
# NVCC: the compiler. CUDA_FLAGS, CUDA_BOTH (sm_80 and sm_90a, or one of them): the Makefile's, which asks for --budget by `make cuda MODE=--budget`. The last line is `N passed, N failed, N skipped`.
set -u
: "${CUDA_FLAGS:?make cuda says what these are}" "${CUDA_BOTH:?}"
here=$(dirname "$0") source=$1 budget=$2 folder=$3 mode=${4:-}
name=$(basename "$source" .cu)
nvcc=${NVCC:-$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")}
command -v "$nvcc" >/dev/null || exec sh "$here/../missing.sh" cuda "(nvcc), so tensornet_cuda.cu runs on the host engine, but is not compiled for GPUs"

if [ "$mode" = --prove ]; then
    found=$(sh "$0" "$here/unfit.cu" "$here/unfit.txt" "$folder")
    for what in 'no_line (_Z7no_lineIfEvPT_): no line' 'no_line (_Z7no_lineIdEvPT_): no line' 'in_double .*computes in double' 'no_mma .*no mma' \
        'exported: _Z12seen_outsidePf' 'too_much .*stack 256, the budget is 0' 'too_much .*shared 256, the budget is 128' 'gone: there is no such' \
        'no_wgmma .*0 wgmma' 'no_tma .*0 bulk copies' 'ptxas: .*serialised' 'ptxas: .*setmaxnreg. ignored' \
        'too_few_registers .*registers at first, setmaxnreg needs 168' \
        'unfit.cu:43: outside of the section >>cuda-port' '^1 passed, 4 failed'; do
        echo "$found" | grep -q -- "$what" || { echo "$found"; echo "FAIL unfit.cu: not found: $what"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }
    done
    # An instance without any wgmma counts, too, where another has some.
    awk -v mode=--budget -f "$here/resources.awk" "$here/unfit.txt" "$folder/unfit.d/log" "$folder/unfit.d/all.ptx" |
        grep -c '^no_wgmma .* wgmma=0$\|^no_tma .* tma=0$' | grep -q 2 || { echo "FAIL unfit.cu: --budget does not count no_wgmma and no_tma"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }
fi

keep=$folder/$name.d
rm -rf "$keep" "$folder/$name.o"
mkdir -p "$keep"
passed=0 failed=0
pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); sed 's/^/FAIL /'; }
# What a check prints are the lines that are wrong.
verdict() { if [ -s "$1" ]; then fail < "$1"; else pass; fi; }

echo "$CUDA_BOTH" > "$folder/arch"            # before it: the Makefile holds the object to be older than a change of this
"$nvcc" $CUDA_FLAGS -Werror all-warnings -Xcompiler -Wall,-Wextra -Xptxas -v --keep --keep-dir "$keep" $CUDA_BOTH \
    -I. -c "$source" -o "$folder/$name.o" \
    > "$keep/log" 2>&1
if [ $? -ne 0 ]; then
    grep -v '^ptxas info\|bytes stack frame' "$keep/log"
    echo "FAIL nvcc does not compile $source"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
pass

cat "$keep"/*.ptx > "$keep/all.ptx"
resources() { awk -v mode="$mode" -f "$here/resources.awk" "$budget" "$keep/log" "$keep/all.ptx"; }
[ "$mode" != --budget ] || { resources; exit; }
resources > "$keep/over"
verdict "$keep/over"

nm -g --defined-only "$folder/$name.o" | awk '$NF != "tn_cuda_backend" && $NF !~ /^DW\.ref\.__/ { print "exported: " $NF ": is its kernel static?" }' > "$keep/names"
nm -g --defined-only "$folder/$name.o" | grep -q ' T tn_cuda_backend$' || echo "tn_cuda_backend is not exported" >> "$keep/names"
verdict "$keep/names"

awk '/>>cuda-port /  { seen++ }
     />>cuda-state / { if (seen > 1) seen = -9 }                  # the first of each is in the table of contents
     seen < 2 && !/^ *\/?\*/ && /<<<|__shared__|(^|[^a-zA-Z_])asm[^a-zA-Z_]/ { print FILENAME ":" FNR ": outside of the section >>cuda-port: " $0 }' "$source" > "$keep/spelled"
verdict "$keep/spelled"

# ptxas says C7510 and others of that series where registers of a pending wgmma are used too early or do not suffice, and C7508
# where it ignores setmaxnreg.
grep -h '(C75[0-9]*)' "$keep/log" | sed 's/^/ptxas: /' > "$keep/ignored"
verdict "$keep/ignored"

kernels=$(grep -c "Compiling entry function.*'sm_90a'" "$keep/log")
echo "$kernels kernels for $(echo "$CUDA_BOTH" | grep -o 'code=sm_[0-9a]*' | sed 's/code=//' | paste -sd, | sed 's/,/ and /'), $(wc -c < "$folder/$name.o") bytes"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
