#!/bin/sh
# sh tests/cuda_host/sass.sh OBJECT [PATTERN] [ARCH]: what nvcc made of the kernels of an object such as build/cuda/tensornet_cuda.o
# (`make cuda`), counted in its machine code for ARCH, default sm_90a, as a table in Markdown. PATTERN: a regular expression for the
# names of kernels, default attention, linear attention and what works on rows. It is a tool, not a test: CUOBJDUMP names the program,
# else it is looked for in PATH, beside nvcc and in Python's package nvidia-cuda-cuobjdump.
#
#   registers, shared (static), spills    of a thread; bytes of a block, without the 1 KiB of the system; instructions that move them
#   loop      instructions of the loop that does most of the kernel's work: with most instructions for tensor cores, else with most
#             accesses to global memory; in brackets those on its usual way, if some are for masks, ends and infinities only
#   HMMA, HGMMA, LDSM    of these, instructions for tensor cores (mma.sync, wgmma) and ldmatrix
#   clocks    of a multiprocessor, per turn of the loop and warp, or four warps with HGMMA. With tensor cores: reads of shared memory, 128
#             bytes per clock : tensor cores, 4096 flops by wgmma and 62 % of them by mma.sync : issue, four instructions. Without:
#             accesses to device memory, 18 bytes per clock (4.3 TB/s by 132 multiprocessors of 1.8 GHz) : issue
#   bound     a forecast that knows nothing of latencies: the share of 4096 flops per clock, or of device memory, that the largest allows
set -u
object=${1:?an object} pattern=${2:-'attend_(mma|wgmma|tma|plain|back|delta|combine|split|pack)|attend_mma_back|linear_|norm_|softmax_|entropy_|rope_|prod_|update_'}
arch=${3:-sm_90a} here=$(dirname "$0")
tool=${CUOBJDUMP:-$(command -v cuobjdump || ls "${CUDA_HOME:-/usr/local/cuda}/bin/cuobjdump" 2>/dev/null ||
    python3 -c 'import glob, sys; print(next(f for p in sys.path for f in glob.glob(p + "/nvidia/*/bin/cuobjdump")))' 2>/dev/null)}
[ -n "$tool" ] || { echo "sass.sh: cuobjdump is not installed; it comes with CUDA, or by pip install nvidia-cuda-cuobjdump" >&2; exit 1; }
{ "$tool" -arch "$arch" -res-usage "$object" && "$tool" -arch "$arch" -sass "$object"; } | awk -f "$here/sass.awk" | c++filt |
    awk -F '\t' -v OFS=' | ' -v pattern="$pattern" '
    $1 ~ pattern {
        sub(/^void /, "", $1); sub(/\(.*/, "", $1); sub(/^tnc_/, "", $1); gsub(/__nv_bfloat16/, "bf16", $1)
        gsub(/\(bool\)1/, "true", $1); gsub(/\(bool\)0/, "false", $1)
        warps = $8 > 0 ? 4 : 1
        memory = $10 * warps
        issue = $6 * warps / 4
        tensor = $11 * warps / ($7 > 0 ? 0.62 : 1)
        clocks = share = ""
        if ($11 > 0) {
            most = tensor > issue ? tensor : issue
            if (memory > most) most = memory
            clocks = sprintf("%d : %d : %d", memory, tensor, issue)
            share = sprintf("%.0f %%", 100 * $11 * warps / most)
        } else if ($12 > 0) {
            memory = 32 * $12 / 18
            clocks = sprintf("%d : %d", memory, issue)
            share = sprintf("%.0f %%", 100 * (memory < issue ? memory / issue : 1))
        }
        shared = $3 >= 1024 ? $3 - 1024 : $3
        print "| `" $1 "`", $2, shared, $4, $6 < $5 ? $5 " (" $6 ")" : $5, $7, $8, $9, clocks, share " |"
    }' | sort | awk '
    BEGIN {
        print "| kernel | registers | shared | spills | loop | HMMA | HGMMA | LDSM | clocks | bound |"
        print "|---|---|---|---|---|---|---|---|---|---|"
    }
    { print }'
