#!/bin/sh
# sh tests/alone.sh CC [CXX]: examples as a stranger builds them, with the library inside, by the line at their top, except
# for the compiler and -O0, which is quicker; that of C++ goes only through the front end. The other tests compile the library
# once for all.
set -eu
cc=$1 cxx=${2:-}
folder=$(mktemp -d "${TN_TEST_TMP:-/tmp}/alone.XXXXXX")
folder=$(cd "$folder" && pwd)
trap 'rm -rf "$folder"' EXIT
for example in 01_tensor.c cpp.cpp; do
    name=${example%.*}
    line=$(sed -n "s|.* \(c[c+][c+]*  *.*-O2.* examples/$example -o $name.*\) && ./$name.*|\1|p" "examples/$example")
    [ -n "$line" ] || { echo "FAIL $example says nowhere how it is compiled"; exit 1; }
    set -- $line
    case $1 in
    cc) compiler=$cc instead="-O0" ;;
    *)  compiler=$cxx instead="-fsyntax-only" ;;
    esac
    [ -n "$compiler" ] || continue
    shift
    $compiler $(echo "$*" | sed "s|-O2|$instead|; s|-o $name|-o $folder/$name|")
done
sh tests/pages.sh "$folder" $(cd "$folder" && ls)
