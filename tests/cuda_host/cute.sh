#!/bin/sh
# sh tests/cuda_host/cute.sh BUILD: compiles cute.cpp with CUTLASS's headers and BUILD/cuda-host/cuda_host.o, and runs it, also with a wrong
# expectation. CUTLASS: the folder with cute/ and cutlass/; default that of Python's package nvidia-cutlass. They need CUDA's headers, too.
# The last line is `N passed, N failed, N skipped`.
set -u
build=$1 here=$(dirname "$0") cuda=${CUDA_HOME:-/usr/local/cuda}/include
cutlass=${CUTLASS:-$(python3 -c 'import cutlass_library, os; print(os.path.dirname(cutlass_library.__file__) + "/source/include")' 2>/dev/null)}
if [ ! -f "$cutlass/cute/tensor.hpp" ] || [ ! -f "$cuda/cuda_runtime.h" ]; then
    exec sh "$here/../missing.sh" cutlass "(CUTLASS and CUDA's headers), so descriptors of wgmma are compared with the PTX manual's layouts only"
fi
program=$build/cuda-host/cute
${CXX:-g++} -std=c++17 -w -I"$cutlass" -I"$cuda/cccl" -I"$cuda" -I"$here" "$here/cute.cpp" "$build/cuda-host/cuda_host.o" -o "$program" -ldl -lpthread ||
    { echo "FAIL cute.cpp does not compile"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }
passed=0
"$program" > "$program.out" && passed=1
"$program" wrong > "$program.wrong" || passed=$((passed + 1))
grep FAIL "$program.out"                       # CuTe itself complains that this is no GPU
echo "$passed passed, $((2 - passed)) failed, 0 skipped"
[ "$passed" -eq 2 ]
