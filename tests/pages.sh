#!/bin/sh
# sh tests/pages.sh FOLDER NAME...: runs the example programs NAME in FOLDER, each in a folder of its own, and compares what
# they print with tests/pages/NAME.txt. There a number may be written as 0.92~0.02, 0.92 give or take 0.02, for what differs
# between processors and compilers; ~ alone is any number, and a line ... is any number of lines. The last line is
# `N passed, N failed, N skipped`.
set -u
programs=$(cd "$1" && pwd)
root=$PWD passed=0 failed=0 skipped=0
shift
scratch=$(mktemp -d "${TN_TEST_TMP:-/tmp}/pages.XXXXXX") || exit 1
scratch=$(cd "$scratch" && pwd)
trap 'rm -rf "$scratch"' EXIT
for name; do
    if [ ! -x "$programs/$name" ]; then
        # Only the C++ page may be missing, where no C++ compiler is installed.
        if [ "$name" != cpp ]; then echo "FAIL $name: it was not built"; failed=$((failed + 1))
        elif sh tests/missing.sh g++ "for examples/cpp.cpp"; then :
        elif [ $? = 77 ]; then skipped=$((skipped + 1))
        else failed=$((failed + 1)); fi
        continue
    fi
    mkdir "$scratch/$name"
    ln -s "$root/examples" "$scratch/$name/examples"
    if (cd "$scratch/$name" && "$programs/$name") > "$scratch/said" 2> "$scratch/errors" && [ ! -s "$scratch/errors" ] &&
        awk -f tests/pages.awk "tests/pages/$name.txt" "$scratch/said" > "$scratch/why"; then passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $name"
        cat "$scratch/why" "$scratch/errors" "$scratch/said" 2> /dev/null
    fi
    rm -f "$scratch/why"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
