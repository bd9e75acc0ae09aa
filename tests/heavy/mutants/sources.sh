#!/bin/sh
# sh tests/heavy/mutants/sources.sh header|cuda: the files into which mutants are put, those of src/ in the order of the header
case ${1:-} in
header) awk '/^#/ || NF == 0 { next } /^[^ ]/ { folder = $1; next } { print "src/" folder "/" $1 }' src/ORDER ;;
cuda)   echo tensornet_cuda.cu ;;
esac
