#!/bin/sh
# sh tools/tn/look/wasm.sh SOURCE.c OUT.wasm [FLAG...]: compiles a program for pages, with the library, to WebAssembly that
# imports nothing. Needs clang, wasm-ld and wasi-libc (sh tools/setup.sh --look installs them); CLANG is another clang.
# With --optional before SOURCE.c, OUT.wasm is empty where they are missing. sh tools/tn/look/wasm.sh --here: whether they are
# here, and what is missing.
set -eu
clang=${CLANG:-clang}
cd "$(dirname "$0")/../../.."

# -Oz is the size that a page carries; with -msimd128, which every current browser runs, plain C has vectors. Without the pass
# that -disable-lsr leaves out, constant offsets stay within loads, where browsers compute them for nothing. Functions that the
# exported ones do not call are left out by the linker.
build() {
    "$clang" --target=wasm32-wasi -std=c99 -Oz -msimd128 -mbulk-memory -mllvm -disable-lsr -ffunction-sections -fdata-sections \
        -fvisibility=hidden -I. -DTN_NO_STDIO -DTN_NO_THREADS -DTN_NO_F64 -DTN_SIMD_MAX=0 "$@" -nostartfiles -Wl,--no-entry \
        -Wl,--gc-sections -Wl,--export-table -Wl,--growable-table -Wl,--strip-all -Wl,-z,stack-size=1048576
}

here() {
    program=$(mktemp)
    echo '#include <math.h>' | build -Wl,--export=__heap_base -x c - -o "$program" 2>&1 && status=0 || status=1
    rm -f "$program"
    return $status
}
case ${1-} in
--here) here; exit ;;
--optional)
    shift
    if ! here > /dev/null; then
        echo "pages get no live part: sh tools/setup.sh --look installs what that needs"
        : > "$2"
        exit
    fi ;;
esac
source=$1 out=$2
shift 2
# Compiled beside its place, so that what is there is whole.
build -Wall -Wextra "$@" "$source" -o "$out.part" -lm
mv "$out.part" "$out"
