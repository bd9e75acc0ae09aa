#!/bin/sh
# sh tests/standards.sh: the header and the tests through the front ends of compilers, which takes a second each. A C older than C99
# is refused in one clear sentence; later ones, C++ from C++17 on, and the macros that change what is compiled give no warning. A
# compiler that is not here, or does not know a dialect, is one skipped part.
set -u
passed=0 failed=0 skipped=0
flags="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -I. -Itests -fsyntax-only"

for cc in gcc clang; do
    command -v $cc > /dev/null || { skipped=$((skipped + 1)); echo "SKIP $cc: it is not here"; continue; }
    said=$($cc -x c -std=c89 -fsyntax-only tensornet.h 2>&1) && said="no error"
    case $said in
    *'error: '*'tensornet.h needs C99'*) passed=$((passed + 1)) ;;
    *) failed=$((failed + 1)); echo "FAIL $cc -std=c89: $(echo "$said" | head -n 1)" ;;
    esac
done
while read -r compiler language dialect what; do
    if ! echo 'int x;' | $compiler -x $language -std=$dialect -fsyntax-only - 2> /dev/null; then
        skipped=$((skipped + 1))
        echo "SKIP $compiler -std=$dialect: the compiler does not know it, or is not here"
    elif said=$($compiler -x $language -std=$dialect $flags ${what:--DTENSORNET_IMPLEMENTATION tensornet.h} 2>&1); then passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $compiler -std=$dialect $what: $(echo "$said" | head -n 4)"
    fi
done <<END
gcc c c11
gcc c gnu17
gcc c c99 -DTENSORNET_IMPLEMENTATION -DTN_STATIC tensornet.h
gcc c c99 -DTENSORNET_IMPLEMENTATION -DTN_NO_STDIO tensornet.h
gcc c c99 -DTENSORNET_IMPLEMENTATION -DTN_DEBUG tensornet.h
clang c c99
clang c c17
clang c c99 $(ls tests/test_*.c | grep -v '/test_cuda' | tr '\n' ' ')
g++ c++ c++17
g++ c++ c++20
g++ c++ c++23
clang++ c++ c++17
clang++ c++ c++20
clang++ c++ c++2b
END
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
