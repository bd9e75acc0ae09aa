#!/bin/sh
# sh tests/pictures.sh PROGRAM: an example that was built without stb_image_write draws its pictures as SVG, into the folder
# that it is given; it names each file that it wrote, and each of them is complete.
set -eu
folder=$(mktemp -d "${TN_TEST_TMP:-/tmp}/pictures.XXXXXX")
trap 'rm -rf "$folder"' EXIT
fail() { cat "$folder/printed"; echo "FAIL $*"; exit 1; }
"$1" "$folder/out" > "$folder/printed" 2>&1 || fail "$1 ended with an error"
sed -n "s|^ *\($folder/out/[^ ]*\)\$|\1|p" "$folder/printed" | sort > "$folder/named"
[ -s "$folder/named" ] || fail "no picture is named"
ls -d "$folder/out"/* | sort | cmp -s - "$folder/named" || fail "the pictures named are not those written"
while read -r picture; do
    case $picture in *.svg) ;; *) fail "$picture is not an SVG" ;; esac
    [ "$(head -c 5 "$picture")" = "<svg " ] || fail "$picture does not begin as an SVG"
    [ "$(tail -n 1 "$picture")" = "</svg>" ] || fail "$picture is not complete"
done < "$folder/named"
cat "$folder/printed"
