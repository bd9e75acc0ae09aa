#!/bin/sh
# sh tools/tn/look/embed.sh OUT.h NAME=FILE...: what the pages of `tn look` and `tn demo` are made of, as arrays of C: NAME with
# its length NAME_size, which is 0 for a file that is empty. A script becomes a block, and page.html the template: with the
# style and the scripts in their places. There {{title}}, {{data}}, {{blob}}, {{wasm}} and the places of further styles and
# scripts, {{style}} and {{script}}, are left for the program.
#
# sh tools/tn/look/embed.sh OUT.html [SCRIPT.js|STYLE.css...]: the template alone, which the tests fill, with further scripts
# before main.js and further styles.
set -eu
folder=$(dirname "$0") out=$1
shift
# dom.js and data.js first, main.js last; each is a block, so that what a script does not put into `tn` is its own.
scripts="dom data state save colour picker plot source matrix card spectra eigen learnt evidence tensors heads pairs paths spoke
     compare run runs wasm tokens patterns steer live live_images main"
part=$(mktemp)
trap 'rm -f "$part" "$out.part"' EXIT

file() {     # FILE: as it is within a page
    case $1 in
    *.js) printf '{\n'; cat "$1"; printf '}\n' ;;
    *) cat "$1" ;;
    esac
}
more() {     # ENDING FILE...: those of the files that have the ending, or a place for them
    ending=$1
    shift
    for one; do
        case $one in
        *."$ending") file "$one" ;;
        place) if [ "$ending" = css ]; then echo '{{style}}'; else echo '{{script}}'; fi ;;
        esac
    done
}
template() { # FILE...: the lines of page.html, with files in place of the lines that name them
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
bytes() {    # NAME FILE
    printf 'static const unsigned char %s[] = {\n' "$1"
    if [ -s "$2" ]; then od -An -v -tu1 "$2" | sed 's/^ *//; s/  */,/g; s/$/,/'; else echo 0; fi
    printf '};\nenum { %s_size = %d };\n' "$1" "$(wc -c < "$2")"
}
case $out in
*.html)
    template "$@" > "$out.part" && mv "$out.part" "$out"
    exit ;;
esac
echo '/* Made by tools/tn/look/embed.sh. */' > "$out.part"
for array; do
    case $array in *.html) template place ;; *) file "${array#*=}" ;; esac > "$part"
    bytes "${array%%=*}" "$part" >> "$out.part"
done
mv "$out.part" "$out"
