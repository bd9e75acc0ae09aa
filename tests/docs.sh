#!/bin/sh
# CC="compiler and flags" sh tests/docs.sh OBJECT TN PAGE...: whether what the pages show works. Their C is compiled and run
# with OBJECT, a compiled tensornet.h; cheap shell lines are run; and what they print is compared with what the page shows.
# TN is the command tn. CXX compiles the blocks of C++; without it they are skipped.
#
# How a page is written (HTML comments are not shown):
#   ```c          The blocks of a section (##) make one program, in order: their # lines come first, the rest is inside of
#                 main. A block with a main of its own is a program by itself. ```cpp is the same in C++.
#   ```text       What the block before it prints. A block without one prints nothing.
#   ```sh         Run in a folder where everything of the repository is; build/tn is there, and nothing else is built.
#   ```make, ```cmake, ```json and blocks without a name are not checked; ```python is run by tests/python.sh. Any other
#                 name is an error.
# A block may be preceded by one or more of these; any other such line is an error, and what follows it is not run:
#   <!-- program: NAME -->    from here on the blocks are of this program, across sections, until the next such line
#   <!-- needs: PATH -->      the program is run only where this file or folder exists
#   <!-- above main -->       the block is placed above main
#   <!-- sketch: DECLARATIONS -->   a fragment, compiled but not run: at this place of its program, after these
#                             declarations; or, if it has # lines, as a file
#   <!-- file: PATH -->       the block is this file, without the file's first comment
#   <!-- not run: REASON -->  a shell block that is only parsed; the files and make targets that it names must exist
#   <!-- numbers: T A -->     each number of the output may differ by this part of it, T = 0.1 for example, or by A, if that
#                             is given
#   <!-- printed by: NAME --> each number of the paragraph or table below it, of two digits or more, is in tests/pages/NAME.txt,
#                             which is what the example NAME prints
#   <!-- only links -->       on the page's first line: its code is not looked at
# An answer (<details><summary>Answer) has an output, of a block in it or by such a mark, and each of its numbers is in there.
# What a program has printed is kept: it is compiled and run again only if it, its compiler or the library is another one.
# Links between pages are followed, too: the file must exist, and the heading. So must every path of the repository that a page
# names in its text, such as src/ops/norm.c; capitals stand for any name (tests/test_NAME.c).
set -u
export LC_ALL=C
object=$1 tn=$2
shift 2
work=${TN_TEST_TMP:-build}/docs
rm -rf "$work"
mkdir -p "$work/here/build" "$work/home" "$work.kept"
root=$(pwd) passed=0 failed=0 skipped=0
for entry in "$root"/*; do case $entry in */build) ;; *) ln -s "$entry" "$work/here/" ;; esac; done
case $tn in /*) ;; *) tn=$root/$tn ;; esac
case $object in /*) ;; *) object=$root/$object ;; esac
ln -s "$tn" "$work/here/build/tn"
PATH=$root/build:$PATH

fail() { failed=$((failed + 1)); echo "FAIL $*"; }
ok()   { passed=$((passed + 1)); }
missing() {   # NEED FOR: one skipped part, or a failed one where TN_REQUIRE lists it
    if sh tests/missing.sh "$@"; then :; elif [ $? = 77 ]; then skipped=$((skipped + 1)); else failed=$((failed + 1)); fi
}

if awk -f tools/api.awk tensornet.h | cmp -s - docs/api.md; then ok
else fail "docs/api.md is not what tensornet.h declares: make docs"; fi

# ---- pages to files: PROGRAM.c or .cpp, PROGRAM.shown (parts that begin with \001LINE TOLERANCE), and one line of the plan
#      for each: KIND PAGE LINE FILE NEEDS

for page; do
    name=$(echo "$page" | tr '/.' '__')
    awk -v page="$page" -v out="$work/$name" '
    function start(n) { prog = n; if (!(n in known)) { known[n] = 1; order[++programs] = n; line_of[n] = NR } }
    function plan(kind, line, file, needs) { print kind, page, line, file, (needs == "" ? "-" : needs) }
    function forget() { sketch = declared = file = notrun = above = ""; }
    function quote(    f, n) {   # the prose that was collected, against what was printed
        if (evidence == "") print "FAIL", page, quoted, "an answer without an output"
        else {
            f = out ".quoted" quoted
            printf "%s", prose > f; close(f); printf "%s", evidence > (f ".said"); close(f ".said")
            plan("quoted", quoted, f)
        }
        quoted = answer = 0; prose = evidence = ""
    }
    function numbered(line) { return "#line " line " \"" page "\"\n" }
    function wrap(p, rest) {
        return head[p] "#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n" \
               "#include \"tensornet.h\"\n" above_main[p] "int main(void)\n{\n" body[p] rest "\nreturn 0;\n}\n"
    }
    BEGIN { prog = ""; forget() }
    NR == 1 && $0 == "<!-- only links -->" { exit }
    /^## / && !held && !inside { start("section" NR) }
    !inside && /^<!-- .* -->$/ {
        text = substr($0, 6, length($0) - 9)
        at = index(text, ": "); key = at ? substr(text, 1, at - 1) : text; value = at ? substr(text, at + 2) : ""
        if (key == "program" && value != "")    { start(value); held = 1 }
        else if (key == "needs" && value != "") needs[prog] = value
        else if (key == "above main")           above = 1
        else if (key == "sketch")               { sketch = 1; declared = value }
        else if (key == "file" && value != "")  file = value
        else if (key == "not run" && value != "")           notrun = value
        else if (key == "numbers" && value ~ /^[0-9]/)      tolerance = value
        else if (key == "printed by" && value != "") {
            if (!quoted) quoted = NR
            said = "tests/pages/" value ".txt"
            for (n = 0; (getline line < said) > 0; n++) evidence = evidence line "\n"
            close(said)
            if (!n) print "FAIL", page, NR, "no output of an example: " said
        }
        else {
            notrun = "unknown mark"
            print "FAIL", page, NR, "is not a mark, or lacks its value: " text
        }
        next
    }
    /^<details><summary>Answer/ { answer = 1; quoted = NR; next }
    answer && /^<\/details>/ || quoted && !answer && !inside && /^$/ && prose != "" { quote(); next }
    quoted && !inside && !/^ *```/ { prose = prose $0 "\n"; next }
    answer && inside && lang == "text" && !/^ *```/ { evidence = evidence $0 "\n" }
    !inside && /^ *```/ {
        lang = $0; sub(/^ *```/, "", lang); sub(/^<!--.*/, "", lang)
        inside = 1; first = NR + 1; block = hash = ""; own_main = 0
        if (lang != "" && lang !~ /^(c|cpp|text|sh|make|cmake|json|python)$/)
            print "FAIL", page, NR, "an unknown kind of block: " lang
        next
    }
    inside && /^ *```$/ {
        inside = 0
        if (lang == "c" || lang == "cpp") {
            if (prog == "") start("top")
            last = ""
            if (sketch) {
                f = out ".sketch" first ".c"
                if (hash != "") print numbered(first) whole > f                     # a file of its own
                else print wrap(prog, declared "\n{\n" numbered(first) block "}\n") > f
                close(f)
                plan("sketch", first, f)
            } else if (own_main) {
                f = out ".main" first "." lang; last = out ".main" first ".shown"
                print numbered(first) whole > f; close(f)
                printf "" > last; close(last)
                plan("whole", first, f)
                if (file != "") plan("same", first, f, file)
            } else if (lang == "cpp") print "FAIL", page, first, "C++ needs a main"
            else if (above) above_main[prog] = above_main[prog] numbered(first) block
            else {
                head[prog] = head[prog] hash
                body[prog] = body[prog] numbered(first) block "printf(\"\\001" first "\\n\"); fflush(stdout);\n"
                shown[prog] = shown[prog] "\001" first "\n"
                lastprog = prog; last = "program"
            }
        } else if (lang == "sh") {
            f = out ".sh" first ".sh"
            printf "%s", block > f; close(f)
            if (notrun != "") plan("parse", first, f)
            else { plan("shell", first, f); last = out ".sh" first ".shown"; printf "" > last; close(last) }
        } else if (lang == "python") last = "python"
        else if (lang == "text") {
            if (last == "program") sub(/\n$/, "", shown[lastprog])
            tol = tolerance == "" ? 0 : tolerance
            if (last == "program") shown[lastprog] = shown[lastprog] " " tol "\n" block
            else if (last != "python" && last != "") { printf "\001%d %s\n%s", first, tol, block > last; close(last) }
            else if (last == "") print "FAIL", page, first, "an output, but nothing that prints it"
            tolerance = last = ""
        }
        forget()
        next
    }
    inside {
        if ($0 ~ /^int main\(/) own_main = 1
        drop = /^#define TENSORNET_IMPLEMENTATION/ || /^#include "stb_/
        whole = (NR == first ? "" : whole) (drop ? "" : $0) "\n"
        if (lang == "c" && /^#/ && !(lang == "sh")) { if (!drop) hash = hash $0 "\n"; block = block "\n" }
        else block = block $0 "\n"
        next
    }
    END {
        if (quoted) quote()
        if (inside) print "FAIL", page, first, "a block without an end"
        for (i = 1; i <= programs; i++) {
            p = order[i]
            if (body[p] == "") continue
            f = out "." p ".c"; s = out "." p ".shown"
            print wrap(p, "") > f; close(f)
            printf "%s", shown[p] > s; close(s)
            plan("program", line_of[p], f, needs[p])
        }
    }' "$page" >> "$work/plan" || fail "$page: awk failed"
    case $page in README.md | docs/guide.md)
        grep -Eq "^(program|whole) $page " "$work/plan" || fail "$page: no program was found in it" ;;
    esac
done

# ---- what was printed against what is shown: same words, and numbers within the tolerance

compare() {   # PAGE SHOWN PRINTED
    awk -v page="$1" -v shown="$2" '
    function read(file, into, at,    line, parts, i, got) {
        at = ""
        while ((got = (getline line < file)) > 0) {
            i = index(line, "\001")
            if (!i) { into[at] = into[at] line "\n"; continue }
            if (file == shown) {                                     # the mark comes before the output
                split(substr(line, i + 1), parts, " ")
                at = parts[1]; tol[at] = parts[2] + 0; off[at] = parts[3] + 0; list[++n] = at
                into[at] = ""
            } else { into[substr(line, i + 1)] = into[""] substr(line, 1, i - 1); into[""] = "" }    # and here after it
        }
        close(file)
    }
    function trim(s) { gsub(/[ \t]+\n/, "\n", s); sub(/^\n+/, "", s); sub(/[\n ]+$/, "", s); return s }
    function words(s, numbers,    k) {
        k = 0; out = ""
        while (match(s, /[-+]?[0-9][0-9,]*(\.[0-9]+)?([eE][-+]?[0-9]+)?/)) {
            out = out substr(s, 1, RSTART - 1) "#"
            numbers[++k] = substr(s, RSTART, RLENGTH)
            s = substr(s, RSTART + RLENGTH)
        }
        out = out s; gsub(/[ \n]+/, " ", out); numbers[0] = k
        return out
    }
    function differs(a, b, t, off,    x, y, i, d, s) {
        a = trim(a); b = trim(b)
        if (a == b) return 0
        if (t == 0) return 1
        if (words(a, x) != words(b, y) || x[0] != y[0]) return 1
        for (i = 1; i <= x[0]; i++) {
            gsub(/,/, "", x[i]); gsub(/,/, "", y[i])
            d = x[i] - y[i]; if (d < 0) d = -d
            s = x[i] < 0 ? -x[i] : +x[i]
            if (!(d <= t * s || d <= off)) return 1
        }
        return 0
    }
    BEGIN {
        read(shown, want); read(ARGV[1], have)
        if (!n) { list[++n] = ""; tol[""] = off[""] = 0 }
        if (n == 1 && !(list[1] in have)) { have[list[1]] = have[""]; have[""] = "" }   # a whole program prints no marks
        for (i = 1; i <= n; i++) {
            at = list[i]
            if (differs(want[at], have[at], tol[at], off[at])) {
                printf "FAIL %s:%s: the page shows\n%s\nbut this was printed\n%s\n", page, at, trim(want[at]), trim(have[at])
                bad = 1
            }
        }
        if (trim(have[""]) != "" && list[1] != "") {
            printf "FAIL %s: printed at the end: %s\n", page, trim(have[""])
            bad = 1
        }
        exit bad
    }' "$3"
}

anchors() {   # PAGE: the anchors of its headings, as GitHub makes them
    awk '/^ *```/ { code = !code } !code && /^#+ / {
             sub(/^#+ /, ""); $0 = tolower($0); gsub(/`/, ""); gsub(/[^a-z0-9 _-]/, ""); gsub(/ /, "-")
             print count[$0]++ ? $0 "-" count[$0] - 1 : $0
         }
         { while (match($0, /<a (id|name)="[^"]*"/)) {
               s = substr($0, RSTART, RLENGTH); sub(/.*="/, "", s); sub(/"$/, "", s); print s
               $0 = substr($0, RSTART + RLENGTH) } }' "$1"
}

run() {   # NEEDS PAGE LINE SHOWN COMMAND...: runs and compares
    needs=$1 page=$2 line=$3 shown=$4
    shift 4
    if [ "$needs" != - ] && [ ! -e "$work/here/$needs" ]; then
        missing "${needs##*/}" "($needs) for $page:$line"; return 1
    fi
    if ! (cd "$work/here" && HOME=$root/$work/home OMP_NUM_THREADS=1 "$@") \
        > "$work/printed" 2> "$work/errors" < /dev/null; then
        fail "$page:$line: it failed"; cat "$work/errors" "$work/printed"
    elif compare "$page" "$shown" "$work/printed"; then ok; return 0
    else failed=$((failed + 1)); fi
    return 1
}

while read -r kind page line file needs; do
    case $kind in
    FAIL) fail "$page:$line: $file $needs" ;;
    sketch)
        if $CC -Wno-unused-variable -Wno-unused-but-set-variable -Wno-unused-function -fsyntax-only "$file" 2> "$work/errors"
        then ok; else fail "$page:$line"; cat "$work/errors"; fi ;;
    program | whole)
        compiler=$CC lib=
        case $file in *.cpp) compiler=${CXX:-} lib=-lm ;; esac
        if [ -z "$compiler" ]; then missing g++ "for $page:$line"; continue; fi
        kept=$work.kept/${file##*/}
        { echo "$compiler"; cat "$file"; } > "$work/program"
        if cmp -s "$work/program" "$kept" && [ "$(find "$kept" -newer "$object" -newer tensornet.h)" ]
        then run "$needs" "$page" "$line" "$root/${file%.c*}.shown" cat "$root/$kept.printed"
        elif $compiler "$file" -o "${file%.c*}" -x none "$object" -lm $lib 2> "$work/errors"
        then
            rm -f "$kept"
            if run "$needs" "$page" "$line" "$root/${file%.c*}.shown" "$root/${file%.c*}"
            then mv "$work/printed" "$kept.printed"; mv "$work/program" "$kept"; fi
        else fail "$page:$line: it does not compile"; cat "$work/errors"; fi ;;
    quoted)
        if ! awk -v lines="$page:$line" '
            { gsub(/−/, "-"); gsub(/\[[^]]*\]\([^)]*\)|`[^`]*`/, "") }
            FILENAME ~ /\.said$/ {
                gsub(/~[0-9.]*|[^-+0-9.eE~]/, " ")
                for (i = 1; i <= NF; i++) if ($i ~ /^[-+]?[0-9.]*[0-9]/) value[++n] = $i + 0
                next
            }
            {   while (match($0, /[0-9],[0-9][0-9][0-9]/)) $0 = substr($0, 1, RSTART) substr($0, RSTART + 2)
                while (match($0, /[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)? ?%?/)) {
                    word = substr($0, RSTART, RLENGTH); $0 = substr($0, RSTART + RLENGTH)
                    if (word !~ /[0-9].*[0-9]/) continue
                    number = word + 0; places = word; sub(/^[^.]*\.?/, "", places); sub(/[^0-9].*/, "", places)
                    for (i = 1; i <= n; i++) {                       # as it is printed, or rounded; or as a percentage
                        d = value[i] - number; share = 100 * value[i] - number
                        if (d < 0) d = -d; if (share < 0) share = -share
                        if ((word ~ /%/ && share < d ? share : d) <= 0.500001 * 10 ^ -length(places)) break
                    }
                    if (i > n) { printf "FAIL %s: %s is in no output\n", lines, word; bad = 1 }
                }
            }
            END { exit bad }' "$file.said" "$file"
        then failed=$((failed + 1)); else ok; fi ;;
    same)
        awk 'NR == 1 && /^\/\*/ { first = 1 }
             !first && NF && !/^#define TENSORNET_IMPLEMENTATION/
             /\*\/$/ { first = 0 }' "$needs" > "$work/file"
        if sed -n '2,$p' "$file" | awk NF | cmp -s - "$work/file"; then ok; else fail "$page:$line is not $needs"; fi ;;
    shell)
        cp "$file" "$work/here/commands.sh"
        run - "$page" "$line" "$root/${file%.sh}.shown" sh -eu commands.sh ;;
    parse)
        if ! sh -n "$file" 2> "$work/errors"; then fail "$page:$line: $(cat "$work/errors")"; continue; fi
        bad=
        words=$(sed 's/#.*//' "$file" | tr '\\&;|' ' \n\n\n' | awk '{
            for (i = 1; i < NF; i++)
                if ($i == "make")
                    for (j = i + 1; j <= NF && $j !~ /^-/; j++)
                        if ($j ~ /=/) continue; else if ($j ~ /^[a-z-]+$/) print "make:" $j; else break
            for (i = 1; i <= NF; i++) if ($i ~ /^(examples|tools|tests|docs)\/[A-Za-z0-9_.\/-]*$/) print "file:" $i }') ||
            fail "$page:$line: awk failed"
        for word in $words; do
            case $word in
            make:*) grep -Eq "^([a-z -]* )?${word#make:}( [a-z -]*)?:" Makefile || bad="$bad no target ${word#make:};" ;;
            file:*) [ -e "${word#file:}" ] || bad="$bad no file ${word#file:};" ;;
            esac
        done
        if [ -z "$bad" ]; then ok; else fail "$page:$line:$bad"; fi ;;
    esac
done < "$work/plan"

# ---- pictures: each PNG is made by tools/pictures.py, each SVG by an example or by hand, and each is shown. At scale 2 and 1,660
#      pixels wide the labels of a PNG are 12 pixels high in a text 830 pixels wide.

for picture in docs/images/*; do
    name=${picture##*/} width=0
    case $name in *.png)
        width=$(od -An -tu1 -j 16 -N 4 "$picture" | awk '{ print (($1 * 256 + $2) * 256 + $3) * 256 + $4 }')
        grep -q "\"${name%.png}\"" tools/pictures.py || { fail "$picture: tools/pictures.py does not make it"; continue; } ;;
    esac
    if [ "$width" -gt 1660 ]; then fail "$picture: $width pixels wide, so its labels are too small"
    elif ! grep -q "images/$name" README.md docs/*.md; then fail "$picture: no page shows it"
    else ok; fi
done

# ---- links

for page; do
    folder=$(dirname "$page")
    links=$(awk '/^ *```/ { code = !code } !code { while (match($0, /\]\([^)]*\)|(src|href)="[^"]*"/)) {
                           s = substr($0, RSTART, RLENGTH); sub(/^\]\(|^[a-z]*="/, "", s); sub(/[)"]$/, "", s)
                           print NR ":" s
                           $0 = substr($0, RSTART + RLENGTH) } }' "$page") || fail "$page: awk failed"
    for link in $links; do
        line=${link%%:*} link=${link#*:}
        case $link in http*) continue ;; esac
        target=${link%%#*} anchor=
        case $link in *'#'*) anchor=${link#*#} ;; esac
        if [ -z "$target" ]; then target=$page; else target=$folder/$target; fi
        if [ ! -e "$target" ]; then fail "$page:$line links to $target, which does not exist"
        elif [ -n "$anchor" ] && ! anchors "$target" | grep -qx -- "$anchor"; then
            fail "$page:$line links to $link: no such heading"
        else ok; fi
    done
    for path in $(grep -oE '(^|[^A-Za-z0-9_./-])(src|tests|tools|examples|docs)/[A-Za-z0-9_./*-]*[A-Za-z0-9_*/]' "$page" |
                  sed 's/^[^a-z]*//' | grep -v '[A-Z][A-Z]' | LC_ALL=C sort -u); do
        if ls -d $path > /dev/null 2>&1 || [ -e "$path.c" ]; then ok; else fail "$page names $path, which does not exist"; fi
    done
done

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
