# awk -f tests/map.awk tensornet.h: the blocks of the header in order, each with its tag, its first line and its length. A
# block begins with a banner: of a section, a tag first on the line below a line of =; or inside a section,
# /* ---- title ---- >>tag.
#
# With -v check=1 it prints only what is wrong: a tag of two blocks; a reference to a tag that no block has; a section that
# is not in the contents exactly once; a banner without a tag; a section of more than 300 lines before its first block.
# tensornet_cuda.cu has no contents, and its own tags begin with >>cuda-: for it -v cuda=1.
function wrong(what, where) { bad = 1; print "FAIL " what ": " where }
function close_block(end) {
    if (name == "") return
    if (!check) printf "%-28s %6d %6d\n", name, first, end - first + 1
    else if (name in section && end - first >= 300)
        wrong(end - first + 1 " lines before the first block of a section", name)
}
function open_block(tag, line) {
    close_block(line - 1)
    if (tag in begins) wrong("the tag of two blocks", tag)
    begins[tag] = line
    name = tag
    first = line
}
function references(line) {
    for (; match(line, />>[a-z][a-z0-9_-]*[a-z0-9]/); line = substr(line, RSTART + RLENGTH)) {
        word = substr(line, RSTART, RLENGTH)
        if (cuda && word !~ /^>>cuda-/) continue
        if (!(word in used)) used[word] = NR
        if (contents) listed[word]++
    }
}
NR == 3 && !cuda || (under && match($0, />>[a-z0-9_-]+/) && $1 == substr($0, RSTART, RLENGTH)) {
    section[$1] = 1
    open_block($1, NR == 3 ? 1 : NR - 1)
}
/^\/\* ---- / {
    if (match($0, /-- >>[a-z0-9_-]+( \*\/)?$/)) {
        word = substr($0, RSTART + 3, RLENGTH - 3)
        sub(/ \*\/$/, "", word)
        open_block(word, NR)
    } else if (check) wrong("a banner without a tag", "line " NR)
}
/CONTENTS/ && NR < 100 && !cuda { contents = 1 }
/FAMILIES|MACROS/ && NR < 100 { contents = 0 }
{ references($0) }
{ under = /====================/ }
/^#endif \/\* TENSORNET_IMPLEMENTATION \*\// { close_block(NR); name = "" }
END {
    close_block(NR)
    if (!check) exit
    if (!((cuda ? ">>cuda-port" : ">>readme") in begins)) wrong("no blocks", FILENAME == "" ? "no file" : FILENAME)
    for (t in section) if (!cuda && listed[t] != 1) wrong("a section is " listed[t] + 0 " times in the contents", t)
    for (t in listed) if (!(t in section)) wrong("in the contents, but not a section", t)
    for (t in used) if (!(t in begins) && t != ">>op") wrong("line " used[t] " names a tag that no block has", t)
    exit bad
}
