#!/bin/sh
# sh examples/pages/make.sh FOLDER: makes the pages that teach, xor.html, digits.html and index.html, each one file that needs
# no network. Needs what tools/tn/look/wasm.sh needs.
set -eu
cd "$(dirname "$0")/../.."
folder=$1 pages=examples/pages
mkdir -p "$folder"
parts=$(mktemp -d "$folder/parts.XXXXXX")
trap 'rm -rf "$parts"' EXIT
sh tools/tn/look/wasm.sh --here || { echo "make pages: sh tools/setup.sh --look installs what is missing" >&2; exit 1; }
sh tools/tn/look/wasm.sh $pages/train.c "$parts/wasm"
version=$(awk '/^.define TN_VERSION_(MAJOR|MINOR|PATCH) / { printf "%s%s", dot, $3; dot = "." }' tensornet.h)

# page NAME TITLE WASM BLOB: $pages/NAME.json and its scripts become FOLDER/NAME.html.
page() {
    scripts=$pages/lesson.js
    [ ! -f "$pages/$1.js" ] || scripts="$scripts $pages/$1.js"
    sh tools/tn/look/embed.sh "$parts/template.html" $scripts $pages/lesson.css
    base64 < "$3" | tr -d "\n" > "$parts/wasm64"
    base64 < "$4" | tr -d "\n" > "$parts/blob64"
    sed "s/{{version}}/$version/; s/</\\\\u003c/g" "$pages/$1.json" > "$parts/json"
    awk -v title="$2" -v parts="$parts" '
        function put(name,  line) { while ((getline line < (parts "/" name)) > 0) print line; close(parts "/" name) }
        /^<script type=.*{{/ {
            match($0, /{{[a-z]*}}/)
            name = substr($0, RSTART + 2, RLENGTH - 4)
            print substr($0, 1, RSTART - 1)
            put(name == "data" ? "json" : name == "blob" ? "blob64" : "wasm64")
            print substr($0, RSTART + RLENGTH)
            next
        }
        /{{title}}/ { sub(/{{title}}/, title) }
        { print }' "$parts/template.html" > "$parts/page"
    mv "$parts/page" "$folder/$1.html"
    echo "$folder/$1.html: $(wc -c < "$folder/$1.html") bytes"
}

# The images begin after 16 bytes, the labels after 8.
{ tail -c +17 examples/data/digits-images-idx3-ubyte; tail -c +9 examples/data/digits-labels-idx1-ubyte; } > "$parts/digits"
page xor "XOR, learned while you watch" "$parts/wasm" /dev/null
page digits "Digits, learned while you watch" "$parts/wasm" "$parts/digits"
page index "Bilinear layers, learned while you watch" /dev/null /dev/null
