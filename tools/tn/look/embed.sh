#!/bin/sh
# sh tools/tn/look/embed.sh OUT.h [LIVE.wasm]: the page of `tn look` as C arrays. look_template is page.html with the style and
# the scripts in their places; {{title}}, {{data}}, {{blob}} and {{wasm}} are left for the program. look_wasm is the library for
# the live part of a page; without LIVE.wasm its size is 0.
#
# sh tools/tn/look/embed.sh OUT.html: the template alone, which the tests fill.
set -eu
folder=$(dirname "$0") out=$1 wasm=${2:-}
# dom.js and data.js first, main.js last; each is a block, so that what a script does not put into `tn` is its own.
scripts="dom data colour picker plot source matrix card spectra eigen heads pairs paths spoke compare run live main"
template=$(mktemp)
trap 'rm -f "$template" "$out.part"' EXIT

insert() {   # the lines of page.html, with files in place of the lines that name them
    while IFS= read -r line; do
        case $line in
        *'{{style}}'*) printf '<style>\n'; cat "$folder/style.css"; printf '</style>\n' ;;
        '{{script}}')
            for script in $scripts; do
                [ -f "$folder/$script.js" ] || continue
                printf '{\n'; cat "$folder/$script.js"; printf '}\n'
            done ;;
        *) printf '%s\n' "$line" ;;
        esac
    done < "$folder/page.html"
}
insert > "$template"

bytes() {   # NAME FILE: an array; NAME_size is its length
    printf 'static const unsigned char %s[] = {\n' "$1"
    od -An -v -tu1 "$2" | sed 's/^ *//; s/  */,/g; s/$/,/'
    printf '};\n'
}
case $out in
*.html) cp "$template" "$out"; exit ;;
esac
{
    printf '/* Made by tools/tn/look/embed.sh. */\n'
    bytes look_template "$template"
    if [ -n "$wasm" ]; then bytes look_wasm "$wasm"; else printf 'static const unsigned char look_wasm[1] = {0};\n'; fi
    printf 'enum { look_template_size = %d, look_wasm_size = %d };\n' \
        "$(wc -c < "$template")" "$(if [ -n "$wasm" ]; then wc -c < "$wasm"; else echo 0; fi)"
} > "$out.part"
mv "$out.part" "$out"
