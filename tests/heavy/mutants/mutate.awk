# awk -f mutate.awk -v out=FOLDER -v list=TABLE LIST... SOURCE...: writes into a folder, in which the folders of the sources are
# already, a copy of each source with all mutants of the lists in it, and a table with one line per mutant: number, section, name,
# file and line, tests, needs, reason why equivalent, line of the source, change. The fields are separated by tabs, and -
# stands for nothing. Several sources count as one, in their order. format.txt describes lists. An entry that is wrong or that
# does not fit is reported, and the exit status is then 1. Without `out` and `list` this is all that is done. Entries made by
# rule (`at`) that do not fit, or that are on a line in `without` (FILE:LINE FILE:LINE ...), are left out without a word.

function bad(i, what) { if (i in at_of) line[i] = 0; else { printf "%s: %s\n", name[i], what; failed = 1 } }

# The position of WORD followed by "(", not as the end of a longer name; 0: none.
function called(line, word,    at, from) {
    for (from = 1; (at = index(substr(line, from), word "(")) > 0; from = at + 1) {
        at += from - 1
        if (at == 1 || substr(line, at - 1, 1) !~ /[A-Za-z0-9_]/) return at
    }
    return 0
}

# Puts the lines of all definitions of a function into `inside`, in the order of the file, and returns how many there are.
function scope(word,    h, l, k, open, n, last) {
    for (h = 1; h <= heads; h++) {
        l = head[h]
        if (l <= last || !called(source[l], word)) continue
        for (k = l; k <= lines && source[k] !~ /[{]/ && source[k] !~ /;[ \t]*(\/\*.*)?$/; k++) ;
        if (source[k] !~ /[{]/) continue                            # a declaration
        open = k
        if (source[open] !~ /[}][ \t]*(\/[\/*].*)?$/ || source[open] ~ /^[{]/) while (k < lines && source[k] !~ /^[}]/) k++
        for (; l <= k; l++) inside[++n] = l
        last = k
    }
    return n
}

# What keeps TEXT from being an expression, or some statements: a bracket without its partner, a comma or a colon outside of
# all brackets, an operator that has lost one of its operands. `before` is the code to the left, whose last character
# says whether a sign or a star in front of TEXT has two operands.
function broken(s, statement, before,    i, c, depth, asks, quote) {
    for (i = 1; i <= length(s); i++) {
        c = substr(s, i, 1)
        if (quote != "") { if (c == "\\") i++; else if (c == quote) quote = ""; continue }
        if (c == "\"" || c == "'") quote = c
        else if (index("([{", c)) depth++
        else if (index(")]}", c) && --depth < 0) return "a bracket that it does not open"
        if (depth > 0 || statement) continue
        if (c == "," || c == ";") return "a " (c == "," ? "comma" : "semicolon") " outside of brackets"
        if (c == "?") asks++
        if (c == ":" && asks-- < 1) return "a colon without its question mark"
    }
    if (depth > 0) return "a bracket that it does not close"
    sub(/[ \t]+$/, "", before)
    if (statement && s ~ /^[ \t]*else[^A-Za-z0-9_]/) return "an else without its if"
    if (statement) return before ~ /(^|[;{})\\:]|else|do)$/ ? "" : "code to its left that belongs to it"
    if (s ~ /^[ \t]*([|\/%^<>=,?:.]|&&|->|!=)/ || s ~ /^[ \t]*[-+*&]/ && before ~ /[])A-Za-z0-9_]$/ && before !~ /return$/)
        return "an operator without its left side"
    if (s ~ /[-+*\/%&|^<>=!~?:,.][ \t]*$/ && s !~ /([+][+]|--)[ \t]*$/) return "an operator without its right side"
    return ""
}

# The words, numbers, texts and signs of s, in `word`, with their columns in `col`; how many.
function words(s, word, col,    i, k, rest) {
    split("", word)
    for (i = 1; i <= length(s); i += RLENGTH) {
        rest = substr(s, i)
        if (match(rest, /^[ \t]+/)) continue
        if (!match(rest, /^([A-Za-z_][A-Za-z0-9_]*|[0-9][A-Za-z0-9_.]*|"([^"\\]|\\.)*")/)) { RSTART = 1; RLENGTH = 1 }
        word[++k] = substr(rest, 1, RLENGTH)
        col[k] = i
    }
    return k
}

# Looks for the text of mutant i on the line l word by word, where any name may stand for another one, but the same for the same:
# so a renamed variable is found. The place where the most names are as they were is the one; `seen` counts those that have as
# many, and the names there are in `named`.
function alike(i, l, first, whole,    p, q, pc, qc, n, m, at, k, t, old) {
    n = words(whole, p, pc)
    m = words(source[l], q, qc)
    for (at = 1; at + n - 1 <= m; at++) {
        split("", t)
        old = 0
        for (k = 1; k <= n; k++) {
            old += p[k] == q[at + k - 1]
            if (p[k] ~ /^[A-Za-z_]/ && q[at + k - 1] ~ /^[A-Za-z_]/) {
                if (!(p[k] in t)) t[p[k]] = q[at + k - 1]
                if (t[p[k]] != q[at + k - 1]) break
            } else if (p[k] != q[at + k - 1]) break
        }
        if (k <= n || old < most) continue
        if (old == most && seen++) continue
        seen = 1
        most = old
        line[i] = l
        split("", named)
        for (k in t) named[k] = t[k]
        qc[m + 1] = length(source[l]) + 1
        for (k = 1; k <= n && pc[k] < first; k++) ;
        column[i] = qc[at + k - 1]
        for (; k <= n && pc[k] < first + size[i]; k++) ;
        size_there = qc[at + k - 2] + length(q[at + k - 2]) - column[i]
    }
}

function renamed(s,    w, c, n, k, out) {
    n = words(s, w, c)
    c[n + 1] = length(s) + 1
    for (k = 1; k <= n; k++)
        out = out (w[k] in named ? named[w[k]] : w[k]) substr(s, c[k] + length(w[k]), c[k + 1] - c[k] - length(w[k]))
    return out
}

function place(i,    k, l, count, from, at, first, mark, whole, part) {
    if (i in at_of) {
        split(at_of[i], part, ":")
        line[i] = first_line[part[1]] + part[2] - 1
        column[i] = part[3]
        size[i] = length(text[i])
        if (index(" " without " ", " " part[1] ":" part[2] " ") || substr(source[line[i]], column[i], size[i]) != text[i]) line[i] = 0
        return
    }
    whole = text[i]
    first = 1
    size[i] = length(whole)
    if ((mark = index(whole, "@")) > 0) {
        first = mark
        whole = substr(whole, 1, mark - 1) substr(whole, mark + 1)
        if (!(mark = index(whole, "@"))) { bad(i, "one @ alone: " text[i]); return }
        size[i] = mark - first
        whole = substr(whole, 1, mark - 1) substr(whole, mark + 1)
    }
    count = scope(func_of[i])
    for (k = 1; !count && k <= lines; k++) inside[k] = k          # of a function that has another name now
    if (!count) count = lines
    seen = 0
    for (k = 1; k <= count; k++) {
        l = inside[k]
        for (from = 1; (at = index(substr(source[l], from), whole)) > 0; from = at + 1) {
            at += from - 1
            if (++seen == (nth[i] ? nth[i] : 1)) { line[i] = l; column[i] = at + first - 1 }
        }
    }
    if (!seen && !nth[i]) {
        most = 0
        for (k = 1; k <= count; k++) alike(i, inside[k], first, whole)
        if (seen == 1) { size[i] = size_there; new[i] = renamed(new[i]) }
    }
    if (!line[i]) bad(i, "no longer found: " text[i])
    else if (!nth[i] && seen > 1) { bad(i, "found " seen " times: " text[i]); line[i] = 0 }
}

FILENAME ~ /\.(c|h|inl|cu)$/ {
    source[++lines] = $0
    if (FNR == 1) first_line[FILENAME] = lines
    file[lines] = FILENAME
    row[lines] = FNR
    if ($0 ~ /^[A-Za-z_]/ && index($0, "(")) head[++heads] = lines
    next
}
/^[ \t]*(#|$)/ { next }
$1 == "section" {
    section = $2
    sub(/:$/, "", section)
    if (index($0, ":")) { programs[section] = $0; sub(/^[^:]*:[ \t]*/, "", programs[section]) }
    next
}
# A mutant made by rule that is equivalent: NAME is TEXT, and on indented lines why.
$2 == "is" { name[now = --marks] = $1; text[now] = substr($0, length($1) + 5); next }
$1 == "tests" { $1 = ""; first_of[now] = substr($0, 2) " " first_of[now]; next }
$1 == "needs" { needs[now] = $2; next }
$1 == "equivalent" { $1 = ""; reason[now] = reason[now] (reason[now] == "" ? substr($0, 2) : $0); next }
$1 == "=>" || /^[^ \t]/ && ($2 == "in" || $2 == "at") && index($0, ": ") {
    change = $0
    if ($1 != "=>") {
        name[now = ++n] = $1
        if ($1 in known) bad(n, "a second mutant of this name")
        known[$1] = 1
        section_of[n] = section
        first_of[n] = programs[section]
        place_of = substr($0, length($1 $2) + 3)
        where = substr(place_of, 1, index(place_of, ": ") - 1)
        change = substr(place_of, length(where) + 3)
        if ($2 == "at") at_of[n] = where
        else {
            func_of[n] = where
            if (match(where, /#[0-9]+$/)) { nth[n] = substr(where, RSTART + 1); func_of[n] = substr(where, 1, RSTART - 1) }
        }
    } else change = text[n] " " substr(change, index(change, "=>"))
    if (match(change, /(^| )=>( |$)/)) {
        text[n] = substr(change, 1, RSTART - 1)
        new[n] = substr(change, RSTART + RLENGTH)
    } else text[n] = change
    next
}
{ printf "%s:%d: not understood: %s\n", FILENAME, FNR, $0; failed = 1 }

function or_nothing(s) { return s == "" ? "-" : s }

# The mutant before i whose text overlaps with that of i; 0: none.
function overlapped(i,    k) {
    for (k = i - 1; k > 0; k--)
        if (line[k] == line[i] && column[k] < column[i] + size[i] && column[i] < column[k] + size[k]) return k
    return 0
}

# Puts the list of the mutants of one line into `on`, the last one first, so that the columns of the others hold.
function from_the_right(here, on,    count, a, b, t) {
    count = split(here, on, " ")
    for (a = 1; a <= count; a++)
        for (b = a + 1; b <= count; b++)
            if (column[on[b]] > column[on[a]]) { t = on[a]; on[a] = on[b]; on[b] = t }
    return count
}

function shape(s,    w, c, n, k, out) {
    n = words(s, w, c)
    for (k = 1; k <= n; k++) out = out " " (w[k] ~ /^[A-Za-z_]/ ? "x" : w[k])
    return out
}

END {
    for (i = marks; i < 0; i++) settled[name[i] shape(text[i])] = reason[i]
    for (i = 1; i <= n; i++) if (i in at_of && (name[i] shape(text[i])) in settled) reason[i] = settled[name[i] shape(text[i])]
    for (i = 1; i <= n; i++) if (text[i] == "") bad(i, "no text"); else place(i)
    for (i = 1; i <= n; i++) {
        if (!line[i]) continue
        old = substr(source[line[i]], column[i], size[i])
        statement = old ~ /[;}][ \t]*$/
        if (!statement && new[i] == "") { bad(i, "an expression needs another: " text[i]); continue }
        if ((why = broken(old, statement, substr(source[line[i]], 1, column[i] - 1))) != "") {
            bad(i, "not " (statement ? "a statement" : "an expression") ", for it has " why ": " old)
            continue
        }
        if ((why = broken(new[i], statement, "")) != "") { bad(i, "the new text has " why ": " new[i]); continue }
        if (k = overlapped(i)) {
            bad(i, "overlaps with " name[k])
            continue
        }
        here[line[i]] = here[line[i]] " " i
        with[i] = statement ? "{ if (TN_MUTANT(" i ")) { " new[i] " } else { " old " } }" : \
                              "(TN_MUTANT(" i ") ? (" new[i] ") : (" old "))"
        shown = source[line[i]]
        sub(/^[ \t]*/, "", shown)
        if (list == "") continue
        printf "%d\t%s\t%s\t%s:%d\t%s\t%s\t%s\t%s\t%s\n", i, section_of[i], name[i], file[line[i]], row[line[i]], \
               or_nothing(first_of[i]), or_nothing(needs[i]), or_nothing(reason[i]), shown, \
               old " -> " (new[i] == "" ? "dropped" : new[i]) > list
    }
    for (l = 1; out != "" && l <= lines; l++) {
        s = source[l]
        count = from_the_right(here[l], on)
        for (a = 1; a <= count; a++) {
            i = on[a]
            s = substr(s, 1, column[i] - 1) with[i] substr(s, column[i] + size[i])
        }
        if (row[l] == 1) close(out "/" file[l - 1])
        print s > (out "/" file[l])
    }
    exit failed
}
