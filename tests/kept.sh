#!/bin/sh
# sh tests/kept.sh ARCHIVE CC [CXX]: the programs of tests/kept, which were written for the version that names their folder and are
# never edited, still compile with tensornet.h, link with ARCHIVE, run, and find their numbers; `names` as C and as C++, `train`
# with the implementation in it. Warnings do not matter, as later compilers have others. The last line is `N passed, N failed, N
# skipped`. (tests/python.sh runs the programs in Python.)
#
# VERSION/list has the checksum of each program. A new program adds its line: (cd tests/kept/VERSION && cksum NAME.c >> list)
set -u
archive=$1 cc=$2 cxx=${3:-} passed=0 failed=0 skipped=0
errors="-Werror=implicit-function-declaration -Werror=incompatible-pointer-types -Werror=int-conversion"
scratch=$(mktemp -d "${TN_TEST_TMP:-/tmp}/kept.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT

attempt() {   # NAME COMMAND...
    name=$1
    shift
    if "$@" > "$scratch/said" 2>&1; then passed=$((passed + 1)); return 0; fi
    failed=$((failed + 1))
    echo "FAIL $name: $*"
    cat "$scratch/said"
    return 1
}
runs() {      # NAME COMPILER...: what it makes of the last arguments, in a folder of its own
    name=$1
    shift
    mkdir -p "$scratch/$name.run"
    attempt "$name" "$@" -o "$scratch/$name.run/program" -lm -pthread &&
        attempt "$name" sh -c "cd '$scratch/$name.run' && ./program"
}
for folder in tests/kept/*/; do
    folder=${folder%/}
    version=${folder##*/}
    for file in "$folder"/*.*; do
        name=${file##*/}
        if [ "$(cd "$folder" && cksum "$name")" = "$(grep " $name\$" "$folder/list")" ]; then passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "FAIL $file was edited, or is not in $folder/list. It shows that programs written for version $version still work:"
            echo "     undo the edit and change the library, or write a new program and add its line to the list."
        fi
        case $name in
        train.c) runs "$version.train" $cc -std=c99 -O0 $errors -DTN_SIMD_MAX=0 -I. "$file" ;;      # without SIMD: a second less
        *.c)     runs "$version.${name%.c}" $cc -std=c99 -O0 $errors -I. "$file" "$archive" ;;
        *.cpp)   [ -z "$cxx" ] || runs "$version.${name%.cpp}" $cxx -std=c++17 -O0 -I. "$file" "$archive" ;;
        esac
    done
    for name in $(awk '{ print $3 }' "$folder/list"); do
        [ -f "$folder/$name" ] || { failed=$((failed + 1)); echo "FAIL $folder/$name, a program of version $version, was removed"; }
    done
    [ -z "$cxx" ] || attempt "$version.names as C++" $cxx -std=c++17 -fsyntax-only -I. -x c++ "$folder/names.c"
done
[ -n "$cxx" ] || skipped=1
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
