#!/bin/sh
# sh tests/build.sh OUTPUT COMMAND...: makes OUTPUT with COMMAND, and keeps in OUTPUT.seconds how much processor time that
# took.
set -u
output=$1
shift
mkdir -p "${output%/*}"
echo "  $output"
"$@" || { status=$?; rm -f "$output"; exit $status; }
times > "$output.times"
awk -f tests/seconds.awk "$output.times" > "$output.seconds"
rm "$output.times"
# gcc for Windows adds an .exe, which make would not find.
[ ! -f "$output.exe" ] || mv "$output.exe" "$output"
