#!/bin/sh
# sh tests/build.sh OUTPUT COMMAND...: makes OUTPUT with COMMAND, a compiler and its arguments. How much processor time that took
# is kept in OUTPUT.seconds, as `times` prints it, and in OUTPUT.deps, for make, which files the compiler has read.
set -u
output=$1
shift
mkdir -p "${output%/*}"
case $output in */lib/*) ;; *) echo "  $output" ;; esac      # the units of a library are too many
"$@" -MMD -MP -MF "$output.deps" -MT "$output" || { status=$?; rm -f "$output"; exit $status; }
times > "$output.seconds"
# gcc for Windows adds an .exe, which make would not find.
[ ! -f "$output.exe" ] || mv "$output.exe" "$output"
