#!/bin/sh
# sh tools/tn/look/embed.sh OUT.h [LIVE.wasm]: the page's template and what runs in it, as arrays of C
set -eu
array() { printf 'static const unsigned char %s[] = {\n' "$1"; od -An -v -tu1 "$2" | sed 's/  */,/g; s/^,//; s/$/,/'; printf '0};\n'; }
folder=${0%/*}
{
    echo "/* made by tools/tn/look/embed.sh */"
    array look_template "$folder/page.html"
    array look_wasm "${2:-/dev/null}"
    echo "enum { look_template_size = (int)sizeof look_template - 1, look_wasm_size = (int)sizeof look_wasm - 1 };"
} > "$1.tmp"
mv "$1.tmp" "$1"
