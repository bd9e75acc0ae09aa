#!/bin/sh
# sh tools/tn/look/embed.sh OUT.h [LIVE.wasm]: the page of `tn look` as C arrays. look_template is page.html with the style and
# the scripts in their places; {{title}}, {{data}}, {{blob}} and {{wasm}} are left for the program. look_wasm is the library for
# the live part of a page; without LIVE.wasm, or if that is empty, its size is 0.
#
# sh tools/tn/look/embed.sh OUT.html [SCRIPT.js|STYLE.css...]: the template alone, which the tests and the pages that teach
# fill, with further scripts before main.js and further styles.
set -eu
folder=$(dirname "$0") out=$1 wasm=${2:-}
shift
# dom.js and data.js first, main.js last; each is a block, so that what a script does not put into `tn` is its own.
scripts="dom data colour picker plot source matrix card spectra eigen heads pairs paths spoke compare run wasm live main"
template=$(mktemp)
trap 'rm -f "$template" "$out.part"' EXIT

file() {     # FILE.js: a block; FILE.css: as it is
    case $1 in
    *.js) printf '{\n'; cat "$1"; printf '}\n' ;;
    *.css) cat "$1" ;;
    esac
}
more() {     # ENDING FILE...: those of the files that have the ending
    ending=$1
    shift
    for one; do case $one in *."$ending") file "$one" ;; esac; done
}
insert() {   # the lines of page.html, with files in place of the lines that name them
    while IFS= read -r line; do
        case $line in
        *'{{style}}'*)
            printf '<style>\n'
            file "$folder/style.css"
            file "$folder/live.css"
            more css "$@"
            printf '</style>\n' ;;
        '{{script}}')
            for script in $scripts; do
                [ "$script" != main ] || more js "$@"
                file "$folder/$script.js"
            done ;;
        *) printf '%s\n' "$line" ;;
        esac
    done < "$folder/page.html"
}
insert "$@" > "$template"

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
    if [ -s "$wasm" ]; then bytes look_wasm "$wasm"; else printf 'static const unsigned char look_wasm[1] = {0};\n'; fi
    printf 'enum { look_template_size = %d, look_wasm_size = %d };\n' \
        "$(wc -c < "$template")" "$(if [ -s "$wasm" ]; then wc -c < "$wasm"; else echo 0; fi)"
} > "$out.part"
mv "$out.part" "$out"
