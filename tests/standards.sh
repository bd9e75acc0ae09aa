#!/bin/sh
# sh tests/standards.sh: the header and the tests through the front ends of compilers, which takes a second each. A C
# older than C99 is refused in one clear sentence; later ones, C++ from C++17 on, and the macros that change what is
# compiled give no warning, also after the macros of systems and other libraries (compile/macros.h). A compiler that is not
# here, or does not know a dialect, is one skipped part. With TN_TEST_SMALL only the oldest dialects are tried, and the macros
# that leave out a part only all at once, but for TN_NO_STDIO. With DIALECTS=all those between the oldest and the newest, too.
#
# How the header is indented is checked by clang and by g++. As C, gcc takes five seconds each time: whenever it looks back,
# it reads the file again from near its beginning.
set -u
export LC_ALL=C
: "${FLAGS:=-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -I. -Itests}"
passed=0 failed=0 skipped=0
more() {   # LINE...: parts that TN_TEST_SMALL leaves out
    [ -n "${TN_TEST_SMALL:-}" ] || printf '%s\n' "$@"
}
between() { [ "${DIALECTS:-}" != all ] || more "$@"; }
missing() {   # COMPILER: one skipped part, or a failed one where TN_REQUIRE lists it
    if sh tests/missing.sh "$1"; then :; elif [ $? = 77 ]; then skipped=$((skipped + 1)); else failed=$((failed + 1)); fi
}

for cc in gcc clang; do
    command -v $cc > /dev/null || { missing $cc; continue; }
    said=$($cc -x c -std=c89 -fsyntax-only tensornet.h 2>&1) && said="no error"
    case $(echo "$said" | grep -m 1 'error: ') in
    *'tensornet.h needs C99'*) passed=$((passed + 1)) ;;
    *) failed=$((failed + 1)); echo "FAIL $cc -std=c89: $(echo "$said" | head -n 1)" ;;
    esac
done
# Parts of -ffast-math that change results are refused at once, where the compiler tells of them; others are not.
flags() {   # COMPILER FLAG...: whether the library begins with these flags: 0, or 1 with the message that refuses them
    said=$("$@" -x c -std=c99 -Isrc -E src/core/inner.h 2>&1 > /dev/null) && return 0
    case $said in *'compile without -ffast-math'*) return 1 ;; *) return 2 ;; esac
}
for flag in 1:-ffast-math 1:-Ofast 1:-ffinite-math-only 0:"-fno-math-errno -fno-trapping-math" \
    gcc:-funsafe-math-optimizations gcc:-freciprocal-math gcc:-fno-signed-zeros \
    gcc:"-fassociative-math -fno-signed-zeros -fno-trapping-math" 0:"-ffast-math -DTN_ALLOW_FAST_MATH"; do
    for cc in gcc clang; do
        command -v $cc > /dev/null || continue
        case $flag in $cc:* | 1:*) want=1 ;; 0:*) want=0 ;; *) continue ;; esac
        flags $cc ${flag#*:} && got=0 || got=$?
        [ $got = $want ] && passed=$((passed + 1)) && continue
        failed=$((failed + 1))
        echo "FAIL $cc ${flag#*:}: result $got, expected $want: $(echo "$said" | head -n 1)"
    done
done
# A renamed copy that includes itself finds no tensornet.h.
renamed=$(mktemp -d)
cp tensornet.h "$renamed/other.h"
named="-DTN_HEADER_NAME=\"other.h\" -DTENSORNET_IMPLEMENTATION"
if said=$(cd "$renamed" && gcc -x c -std=c99 $FLAGS -Wno-misleading-indentation $named -fsyntax-only other.h 2>&1)
then passed=$((passed + 1))
else failed=$((failed + 1)); echo "FAIL a renamed copy: $(echo "$said" | head -n 1)"
fi
rm -r "$renamed"
# Tests that look inside the library find it in src/, the others in the one header.
tests=$(ls tests/test_*.c | grep -v '/test_cuda')
while read -r compiler language dialect what; do
    [ -n "$compiler" ] || continue
    command -v $compiler > /dev/null || { missing $compiler; continue; }
    what=${what:--DTENSORNET_IMPLEMENTATION tensornet.h}
    case $compiler-$language in gcc-c) what="-Wno-misleading-indentation $what" ;; esac
    ! echo 'int main(void) { return 0; }' | $compiler -x c -fopenmp -include omp.h - -o /dev/null 2> /dev/null ||
        what="-fopenmp $what"
    if ! echo 'int x;' | $compiler -x $language -std=$dialect -fsyntax-only - 2> /dev/null; then
        skipped=$((skipped + 1))
        echo "SKIP $compiler -std=$dialect: the compiler does not know this dialect"
    elif said=$($compiler -x $language -std=$dialect $FLAGS -fsyntax-only $what 2>&1); then passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $compiler -std=$dialect $what: $(echo "$said" | head -n 4)"
    fi
done <<END
gcc c c99 -DTENSORNET_IMPLEMENTATION -DTN_NO_STDIO tensornet.h
$(for switch in TEXT CIRCUITS TRAINING OPERATOR ANALYSIS SEQUENCES MODELS IMAGE CONTRACTION MPS COMM F64; do
    more "gcc c c99 -DTENSORNET_IMPLEMENTATION -DTN_NO_$switch tensornet.h"
done
between "gcc c gnu17" "clang c c17" "g++ c++ c++20" "clang++ c++ c++20" \
    "gcc c c99 -DTENSORNET_IMPLEMENTATION -DTN_SIMD_MAX=1 tensornet.h"
more "gcc c c99 -DTENSORNET_IMPLEMENTATION -DTN_STATIC tensornet.h" \
    "gcc c c99 -DTENSORNET_IMPLEMENTATION -DTN_DEBUG tensornet.h" \
    "clang++ c++ c++17 -DTENSORNET_IMPLEMENTATION -DTN_USE_THREADS tensornet.h" \
    "clang c c99 $(grep -L '/inner\.h"' $tests | tr '\n' ' ')" \
    "clang c c99 -iquote src $(grep -l '/inner\.h"' $tests | tr '\n' ' ')" \
    "gcc c c99 -DTENSORNET_IMPLEMENTATION -DTN_USE_THREADS -DTNI_NO_ATOMICS tensornet.h" \
    "gcc c c99 -DTENSORNET_IMPLEMENTATION -DTN_SIMD_MAX=0 tensornet.h" \
    "gcc c c99 -DTENSORNET_IMPLEMENTATION -DTN_SIMD_MAX=-1 tensornet.h" \
    "g++ c++ c++17 -DTENSORNET_IMPLEMENTATION -DTN_SMALL tensornet.h" \
    "clang c c99 -DTENSORNET_IMPLEMENTATION -DTN_SMALL -DTN_SIMD_MAX=-1 tensornet.h" \
    "clang c c99 -DTENSORNET_IMPLEMENTATION -DTN_SMALL -DTN_NO_TRAINING -DTN_NO_OPERATOR -DTN_NO_IMAGE tensornet.h" \
    "clang c c99 -DTENSORNET_IMPLEMENTATION -DTN_NO_TRAINING -DTN_NO_F64 -DTN_SIMD_MAX=0 tensornet.h" \
    "clang c c99 -DTENSORNET_IMPLEMENTATION -DTN_NO_MODELS -DTN_NO_OPERATOR -DTN_NO_TEXT tensornet.h" \
    "clang c c99 -DTENSORNET_IMPLEMENTATION -DTN_NO_SEQUENCES -DTN_NO_TRAINING -DTN_NO_F64 tensornet.h" \
    "clang c c99 -DTENSORNET_IMPLEMENTATION -DTN_NO_IMAGE -DTN_NO_TRAINING -DTN_NO_STDIO tensornet.h" \
    "g++ c++ c++23" "clang++ c++ c++2b" \
    "clang++ c++ c++20 tests/compile/cpp17.cpp" \
    "g++ c++ c++17 -include tests/compile/macros.h -DTN_CUDA_HOST -Itests/cuda_host -Wno-pedantic -Wno-conversion -Wno-shadow \
        -Wno-unknown-pragmas -Wno-psabi tensornet_cuda.cu")
clang c c99 -DTENSORNET_IMPLEMENTATION -DTN_SMALL tensornet.h
clang c c99 tests/compile/smallest.c
g++ c++ c++17 tests/compile/smallest.c
clang c c99 -include tests/compile/macros.h -DTENSORNET_IMPLEMENTATION tensornet.h
g++ c++ c++17 -include tests/compile/macros.h -DTENSORNET_IMPLEMENTATION tensornet.h
g++ c++ c++17 tests/compile/cpp17.cpp
END
[ -z "${TN_TEST_SMALL:-}" ] || echo "LESS standards: later dialects, and each macro that leaves a part out, are in the longer suite"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
