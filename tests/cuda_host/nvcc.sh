#!/bin/sh
# sh tests/cuda_host/nvcc.sh SOURCE.cu FOLDER [--budget]: nvcc compiles the file for sm_80 and sm_90 into FOLDER/SOURCE.o, what a user
# links; and then
#     no warning of nvcc or of the host compiler            registers, stack, spills, shared memory within budget.txt
#     tn_cuda_backend is all that the object exports        tensor cores where budget.txt wants them, and no double in kernels of floats
#     launches, shared memory and assembly are spelled in the section >>port alone
# --budget prints the lines that budget.txt would need instead. NVCC: the compiler. The last line is `N passed, N failed, N skipped`.
set -u
here=$(dirname "$0") source=$1 folder=$2 mode=${3:-}
name=$(basename "$source" .cu)
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
command -v "$nvcc" >/dev/null || exec sh "$here/../missing.sh" cuda "(nvcc), so tensornet_cuda.cu runs on the host engine, but is not compiled for GPUs"

keep=$folder/$name.d
rm -rf "$keep" "$folder/$name.o"
mkdir -p "$keep"
passed=0 failed=0
pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); sed 's/^/FAIL /'; }
# What a check prints are the lines that are wrong.
verdict() { if [ -s "$1" ]; then fail < "$1"; else pass; fi; }

"$nvcc" -std=c++17 -O3 -lineinfo -Werror all-warnings -Xcompiler -Wall,-Wextra -Xptxas -v --threads 2 --keep --keep-dir "$keep" \
    -gencode arch=compute_80,code=sm_80 -gencode 'arch=compute_90,code=[sm_90,compute_90]' -I. -c "$source" -o "$folder/$name.o" \
    > "$keep/log" 2>&1
if [ $? -ne 0 ]; then
    grep -v '^ptxas info\|bytes stack frame' "$keep/log"
    echo "FAIL nvcc does not compile $source"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
pass

cat "$keep"/*.ptx > "$keep/all.ptx"
resources() { awk -v mode="$mode" -f "$here/resources.awk" "$here/budget.txt" "$keep/log" "$keep/all.ptx"; }
[ -z "$mode" ] || { resources; exit; }
resources > "$keep/over"
verdict "$keep/over"

nm -g --defined-only "$folder/$name.o" | awk '$NF != "tn_cuda_backend" && $NF !~ /^DW\.ref\.__/ { print "exported: " $NF ": is its kernel static?" }' > "$keep/names"
nm -g --defined-only "$folder/$name.o" | grep -q ' T tn_cuda_backend$' || echo "tn_cuda_backend is not exported" >> "$keep/names"
verdict "$keep/names"

awk '/>>port /  { seen++ }
     />>state / { if (seen > 1) seen = -9 }                  # the first of each is in the table of contents
     seen < 2 && !/^ *\/?\*/ && /<<<|__shared__|(^|[^a-zA-Z_])asm[^a-zA-Z_]/ { print FILENAME ":" FNR ": outside of the section >>port: " $0 }' "$source" > "$keep/spelled"
verdict "$keep/spelled"

kernels=$(grep -c "Compiling entry function.*'sm_90'" "$keep/log")
echo "$kernels kernels for sm_80 and sm_90, $(wc -c < "$folder/$name.o") bytes"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
