#!/bin/sh
# sh tests/install.sh pkg-config|cmake|files: installs into a new folder, whose name has a blank, and takes the library from there as
# another project would. `files` looks at what an install puts where, and that uninstall takes all of it away.
set -eu
way=$1
[ "$way" = files ] || command -v "$way" >/dev/null || exec sh tests/missing.sh "$way"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
prefix="$folder/a prefix"
version=$(awk '/^#define TN_VERSION_(MAJOR|MINOR|PATCH) / { printf "%s%s", dot, $3; dot = "." }' tensornet.h)
fail() { echo "FAIL $*"; exit 1; }
install_() { make -s --no-print-directory "$@" >"$folder/make.log" 2>&1 || { cat "$folder/make.log"; fail "make $*"; }; }

prints_version() {   # PROGRAM
    said=$("$1") || fail "$1 does not run"
    [ "$said" = "$version" ] || fail "$1 says $said, not $version"
}

case $way in
files)
    expected="include/tensornet.h share/cmake/tensornet/tensornetConfig.cmake share/cmake/tensornet/tensornetConfigVersion.cmake share/pkgconfig/tensornet.pc"
    install_ install DESTDIR="$folder/stage" PREFIX=/opt/tn
    found=$(cd "$folder/stage/opt/tn" && find . -type f | sed 's|^\./||' | sort | tr '\n' ' ')
    [ "$found" = "$expected " ] || fail "installed: $found"
    cmp tensornet.h "$folder/stage/opt/tn/include/tensornet.h" || fail "the header is another one"
    grep -q '^prefix=/opt/tn$' "$folder/stage/opt/tn/share/pkgconfig/tensornet.pc" || fail "DESTDIR is in tensornet.pc, or PREFIX is not"
    if grep -rn '@[A-Z]*@' "$folder/stage/opt/tn/share"; then fail "a blank was not filled in"; fi
    echo other > "$folder/stage/opt/tn/include/other.h"
    install_ uninstall DESTDIR="$folder/stage" PREFIX=/opt/tn
    found=$(cd "$folder/stage" && find . -type f)
    [ "$found" = ./opt/tn/include/other.h ] || fail "uninstall left, or took too much: $found"
    [ ! -d "$folder/stage/opt/tn/share/cmake/tensornet" ] || fail "uninstall left its folder"
    ;;
pkg-config)
    install_ install PREFIX="$prefix"
    export PKG_CONFIG_PATH="$prefix/share/pkgconfig"
    [ "$(pkg-config --modversion tensornet)" = "$version" ] || fail "its version is $(pkg-config --modversion tensornet)"
    # As a Makefile does it: what pkg-config says is read by a shell.
    eval "cc -std=c99 $(pkg-config --cflags tensornet) tests/install/program.c -o \"$folder/c\" $(pkg-config --libs tensornet)"
    eval "c++ -std=c++17 -O1 $(pkg-config --cflags tensornet) tests/install/program.cpp -o \"$folder/cpp\" $(pkg-config --libs tensornet)"
    prints_version "$folder/c"
    prints_version "$folder/cpp"
    ;;
cmake)
    install_ install PREFIX="$prefix"
    CXXFLAGS=-O1 cmake -S tests/install -B "$folder/build" -DCMAKE_PREFIX_PATH="$prefix" -DWANTED="$version" >"$folder/log" 2>&1 \
        && cmake --build "$folder/build" >>"$folder/log" 2>&1 || { cat "$folder/log"; fail "cmake"; }
    prints_version "$folder/build/program_c"
    prints_version "$folder/build/program_cpp"
    # Which versions will do, asked of the version file alone.
    for asked in "$version TRUE" "99.0 FALSE" "${version%.*}.999 FALSE" "${version%.*} TRUE"; do
        printf 'set(PACKAGE_FIND_VERSION %s)\ninclude("%s")\nmessage("${PACKAGE_VERSION_COMPATIBLE}")\n' "${asked% *}" \
            "$prefix/share/cmake/tensornet/tensornetConfigVersion.cmake" > "$folder/ask.cmake"
        said=$(cmake -P "$folder/ask.cmake" 2>&1)
        [ "$said" = "${asked#* }" ] || fail "asked for ${asked% *}, it says $said"
    done
    ;;
esac
