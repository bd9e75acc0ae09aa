# awk -v seed=1 -v every=70 -f rules.awk SOURCE...: a list of mutants made by rule, for mutate.awk. Of each function one for
# every so many of its lines of code is chosen; which ones depends on the seed, the file, the function and the number of places
# that the rules find in it, so that another name, or a change elsewhere, chooses no others. format.txt says what the rules are.

BEGIN {
    for (k = 32; k < 127; k++) code[sprintf("%c", k)] = k
    swap["<"] = "<="; swap["<="] = "<"; swap[">"] = ">="; swap[">="] = ">"; swap["=="] = "!="; swap["!="] = "=="
    swap["&&"] = "||"; swap["||"] = "&&"; swap["+"] = "-"; swap["-"] = "+"; swap["*"] = "+"; swap["/"] = "*"; swap["%"] = "/"
    rule["<"] = rule["<="] = rule[">"] = rule[">="] = "bound"; rule["=="] = rule["!="] = "equal"; rule["&&"] = rule["||"] = "logic"
    rule["+"] = rule["-"] = "sign"; rule["*"] = rule["/"] = rule["%"] = "factor"
}

function hash(s,    h, k) {
    for (k = 1; k <= length(s); k++) h = (h * 31 + code[substr(s, k, 1)]) % 2147483647
    for (k = 0; k < 3; k++) h = (h * 16807 + 12345) % 2147483647
    return h
}

# The line with blanks for comments and for what stands between quotes.
function masked(s,    i, c, quote, m) {
    for (i = 1; i <= length(s); i++) {
        c = substr(s, i, 1)
        if (comment) {
            if (substr(s, i, 2) == "*/") { comment = 0; i++; m = m " " }
            m = m " "
        } else if (quote != "") {
            if (c == "\\") { i++; m = m " " } else if (c == quote) { quote = ""; m = m c; continue }
            m = m " "
        } else if (substr(s, i, 2) == "/*") { comment = 1; i++; m = m "  " }
        else if (substr(s, i, 2) == "//") break
        else { if (c == "\"" || c == "'") quote = c; m = m c }
    }
    return m
}

# Where the expression ends whose operator is at `at`, to the left (step -1) or to the right: at a bracket that it is inside of, a
# comma, a semicolon, a ? or :, an assignment, and an operator that binds less than it. 0: not on this line.
function border(m, at, step, op,    depth, c, two, i) {
    for (i = at; i > 0 && i <= length(m); i += step) {
        c = substr(m, i, 1)
        if (index(step < 0 ? ")]}" : "([{", c)) { depth++; continue }
        if (index(step < 0 ? "([{" : ")]}", c)) { if (depth-- == 0) return i; continue }
        if (depth > 0) continue
        if (c ~ /[,;?:]/) return i
        two = step < 0 ? substr(m, i - 1, 2) : substr(m, i, 2)
        if (op !~ /^(&&|\|\|)$/ && (two == "&&" || two == "||")) return i
        if (c == "=" && step < 0 && two !~ /[=<>!]=/ && substr(m, i + 1, 1) != "=") return i
        if (op ~ /^[-+*\/%]$/ && two ~ /^( [<>]|[=!<>]=|[<>] |<<|>>|[&|^] )$/) return i
        if (step < 0 && substr(m, i - 6, 7) ~ /^[ ;{)]?return $/) return i
    }
    return 0
}

function found(what, l, from, size, new) {
    places++
    kind[places] = what; where[places] = l; column[places] = from; long[places] = size; text[places] = new
    if (!((what, ++of[what]) in nth)) nth[what, of[what]] = places
    else nth[what, of[what]] = places
}

# All places of one line at which a rule can be applied.
function look(l, before,    m, s, i, op, from, to, old, word) {
    s = source[l]; m = mask[l]
    if (m ~ /^[ \t]*(#|case |default|static |enum |typedef |struct |$)/ || m ~ /\\$/) return
    if (before ~ /([;{}]|else|\))[ \t]*$/ && m ~ /^ +[A-Za-z_*(][^{}?]*;[ \t]*$/ &&
        m !~ /^ +(if|for|while|else|do|switch|return|break|continue|goto)([^A-Za-z0-9_]|$)/ &&
        m !~ /^ +(const |unsigned |struct )*[A-Za-z_][A-Za-z0-9_]* +[*]*(const )?[A-Za-z_][A-Za-z0-9_]*(,|;| =|\[)/ && m !~ /^ +\(void\)/ && balanced(m)) {
        from = match(m, /[^ ]/)
        to = match(m, /;[ \t]*$/)
        found("drop", l, from, to - from + 1, "")
        old = substr(s, from, to - from + 1)
        if ((i = index(m, " += ")) > 0 || (i = index(m, " -= ")) > 0)
            found("update", l, from, to - from + 1, substr(s, from, i - from) (substr(m, i + 1, 1) == "+" ? " -= " : " += ") substr(s, i + 4, to - i - 3))
    }
    if ((i = match(m, /(^| )if \(/)) > 0) {
        from = index(substr(m, i), "(") + i
        if ((to = border(m, from, 1, "||")) && substr(m, to, 1) == ")" && to > from)
            found("condition", l, from, to - from, "!(" substr(s, from, to - from) ")")
    }
    for (i = 2; i < length(m); i++) {
        op = substr(m, i, 4)
        op = op ~ /^ (<=|>=|==|!=|&&|\|\|) $/ ? substr(op, 2, 2) : op ~ /^ [-+*\/%<>] / ? substr(op, 2, 1) : ""
        if (op == "") continue
        from = border(m, i - 1, -1, op)
        to = border(m, i + length(op) + 1, 1, op)
        if (!from || !to) continue
        from++
        while (substr(m, from, 1) == " ") from++
        while (substr(m, to - 1, 1) == " ") to--
        if (from < i && to > i + length(op) + 1)
            found(rule[op], l, from, to - from, substr(s, from, i + 1 - from) swap[op] substr(s, i + 1 + length(op), to - i - 1 - length(op)))
    }
    if (m ~ /^[ \t]*(const |unsigned |struct )*[a-z_][a-z0-9_]* +[*]*[A-Za-z_][^=]*\[/) return        # sizes of arrays
    for (i = 1; (from = match(substr(m, i), /[A-Za-z0-9_.]+/)) > 0; i += from + RLENGTH - 1) {
        word = substr(m, i + from - 1, RLENGTH)
        op = i + from - 1
        to = RLENGTH
        if (word ~ /^(0|[1-9][0-9]*)$/ && length(word) < 8) found("constant", l, op, to, word == 0 ? 1 : word == 1 ? 2 : word - 1)
        if (word == "true" || word == "false") found("constant", l, op, to, word == "true" ? "false" : "true")
        RLENGTH = to; from = op - i + 1
    }
}

function balanced(m,    i, c, depth) {
    for (i = 1; i <= length(m); i++) {
        c = substr(m, i, 1)
        if (index("([{", c)) depth++
        if (index(")]}", c) && --depth < 0) return 0
    }
    return depth == 0
}

# Chooses among the places of the function `name`, whose lines are from..to.
function choose(name, from, to,    l, k, n, kinds, list, what, h, p, tries, short, lines_of) {
    split("", kind); split("", of); split("", nth); split("", taken)
    places = lines_of = 0
    for (l = from + 1; l < to; l++) {
        if (mask[l] !~ /^[ \t{}]*$/) lines_of++
        look(l, mask[l - 1])
    }
    h = FILE ":" name
    n = int(lines_of / every + hash(seed ":" h) / 2147483647)
    for (what in of) kinds++
    if (!places || !n) return
    split("bound equal logic sign factor constant condition drop update", list, " ")
    short = name
    gsub(/^TNI_T\(|\)$/, "", short)
    for (k = tries = 1; k <= n && tries < 20 * n; tries++) {
        what = list[hash(seed ":" h ":" tries) % 9 + 1]
        if (!of[what]) continue
        p = nth[what, hash(seed ":" h ":place " tries) % of[what] + 1]
        if (where[p] in taken) continue
        taken[where[p]] = 1
        printf "%s.%s%s at %s:%d:%d: %s => %s\n", short, what, (short, what) in used ? "." ++used[short, what] : "", \
               FILE, row[where[p]], column[p], substr(source[where[p]], column[p], long[p]), text[p]
        if (!((short, what) in used)) used[short, what] = 1
        k++
    }
}

function functions(    l, name, k) {
    for (l = 1; l <= lines; l++) {
        if (mask[l] !~ /^[A-Za-z_].*\(/ || mask[l] ~ /^(typedef|struct|enum|union|static const)/) continue
        for (k = l; k < lines && mask[k] !~ /[{;]/; k++) ;
        if (mask[k] !~ /^[{]/ && mask[k] !~ /[{][ \t]*$/) continue
        for (name = mask[from = l]; from < k; ) name = name " " mask[++from]
        gsub(/(TNI_PRINTF|__launch_bounds__)\([^)]*\)/, "", name)
        if (match(name, /TNI_T\([a-z0-9_]+\)\(/)) name = substr(name, RSTART, RLENGTH - 1)
        else if (match(name, /[A-Za-z_][A-Za-z0-9_]*\(/)) name = substr(name, RSTART, RLENGTH - 1)
        else continue
        for (from = k; k < lines && mask[k] !~ /^[}]/; k++) ;
        choose(name, from, k)
        l = k
    }
}

FNR == 1 {
    if (lines) functions()
    lines = comment = 0
    FILE = FILENAME
    if (section_of(FILE) != section) printf "section %s\n", section = section_of(FILE)
}
function section_of(f,    part, n) { n = split(f, part, "/"); return n > 2 ? part[n - 1] : "all" }
{
    source[++lines] = $0
    row[lines] = FNR
    mask[lines] = masked($0)
}
END { functions() }
