# awk -f tests/sizes.awk tests/sizes.txt src/*/*.h > build/sizes.h: the calls of test_sizes.c, made from the declarations.
#
# Each public function that takes an int64_t, an array of them, or a desc with fields of that type becomes a C function that
# calls it with valid arguments, in which every int64_t passes through number(). The table sizes.txt says what is valid; a
# function that it cannot call, and a line of it that no function uses, is an #error.
function trim(s) { gsub(/[ \t\n]+/, " ", s); sub(/^ /, "", s); sub(/ $/, "", s); return s }
function wrong(what) { print "#error " what }
function code(s) { body = body "    " s "\n" }
# An int64_t: 5l is the length of an array of the test's, of which no larger number can be true, and 5r is a number of rounds,
# which would only take long.
function number(v, name,    most) {
    most = sub(/[lr]$/, "", v) ? v : "INT64_MAX"
    return "number(\"" name "\", " v ", " most ")"
}
# What the table says of a parameter.
function valid(fn, type, name,    n, i, key) {
    n = split(fn "." name "|" type " " name "|" type "|." name, key, "|")
    for (i = 1; i <= n; i++) if (key[i] in table) { used[key[i]] = 1; return table[key[i]] }
    return ""
}
# Declares a zeroed struct, and sets the fields that the table names and all that are int64_t.
function struct(fn, type, name,    set, n, i, field, at, left, right, base) {
    set = valid(fn, type, name)
    name = "a_" name
    code(type " " name ";"); late("memset(&" name ", 0, sizeof " name ");")
    for (n = split(set, field, " "); n > 0; n--) {
        at = index(field[n], "=")
        left = substr(field[n], 1, at - 1); right = substr(field[n], at + 1)
        base = left; gsub(/\[[^]]*\]/, "", base)
        given[name, base] = 1
        late(name "." left " = " (((type, base) in long) ? number(right, left) : right) ";")
    }
    for (i = 1; i <= fields[type]; i++) {
        left = path[type, i]; base = left; gsub(/\[[^]]*\]/, "", base)
        if (!((name, base) in given)) late(name "." left " = " number(0, left) ";")
    }
    for (i in given) delete given[i]
}
# A struct that a program fills in: passed by value, or one of these by its address.
function given_struct(type, base) {
    return base in fields && (type == base || type == "const " base " *" && base ~ /_(desc|target|schedule|truncation|series)$/)
}
function late(s) { statements = statements "    " s "\n" }

FILENAME ~ /\.txt$/ {
    if (/^#/ || !NF) next
    if ($1 == "?") { silent[$2] = 1; next }
    at = index($0, " = ")
    table[trim(substr($0, 1, at - 1))] = trim(substr($0, at + 3))
    next
}
# The fields of public structs that are int64_t, also those of structs in them; of an array the first.
/^typedef struct tn_[a-z0-9_]+ \{/ { inside = $3; text = ""; comment = 0 }
inside != "" {
    line = $0
    gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", line)
    if (comment && !sub(/^.*\*\//, "", line)) next
    comment = sub(/\/\*.*/, "", line)
    sub(/^typedef struct [a-z0-9_]+ \{/, "", line)
    text = text line
    if (line !~ /\}/) next
    for (n = split(text, field, ";"); n > 0; n--) list[n] = trim(field[n])
    n = split(text, field, ";")
    for (i = 1; i <= n; i++) {
        type = list[i]; sub(/ .*/, "", type)
        names = list[i]; sub(/^[a-z0-9_]+ /, "", names)
        if (names ~ /[*(]/ || type !~ /^(int64_t|tn_[a-z0-9_]+)$/) continue
        m = split(names, one, ",")
        for (k = 1; k <= m; k++) {
            name = trim(one[k]); sub(/\[[^]]*\]/, "[0]", name)
            if (type == "int64_t") add(inside, name)
            else if (type in fields) for (j = 1; j <= fields[type]; j++) add(inside, name "." path[type, j])
        }
    }
    inside = ""
}
function add(type, name,    base) {
    path[type, ++fields[type]] = name
    base = name; gsub(/\[[^]]*\]/, "", base)
    long[type, base] = 1
}
/^TN_API/ { declaration = ""; open = 1 }
open {
    line = $0; sub(/\/\*.*/, "", line)
    declaration = declaration " " line
    if (line ~ /;/) { open = 0; if (declaration ~ /\(/) declared(trim(declaration)) }
}
function declared(d,    head, n, p, i, type, name, takes) {
    gsub(/TN_API|TN_EXPERIMENTAL|TN_PRINTF\([0-9, ]*\)/, "", d)
    sub(/;.*/, "", d)
    head = substr(d, 1, index(d, "(") - 1)
    match(head, /tn_[a-z0-9_]+ *$/)
    fn = trim(substr(head, RSTART)); result = trim(substr(head, 1, RSTART - 1))
    d = substr(d, index(d, "(") + 1); sub(/\) *$/, "", d)
    n = split(d, p, ",")
    takes = 0
    for (i = 1; i <= n; i++) {
        p[i] = trim(p[i])
        name = p[i]; sub(/^.*[ *]/, "", name)
        type = trim(substr(p[i], 1, length(p[i]) - length(name)))
        sub(/\[.*/, "", name)
        base = type; sub(/^const /, "", base); sub(/ \*$/, "", base)
        types[i] = type; params[i] = name
        if (type == "int64_t" || type == "const int64_t *") takes = 1
        if (given_struct(type, base)) takes = 1
    }
    if (n == 1 && fn ~ /_destroy$/) destroy[types[1]] = fn
    if (!takes) return
    body = statements = args = ""
    for (i = 1; i <= n; i++) {
        type = types[i]; name = params[i]; base = type; sub(/^const /, "", base); sub(/ \*$/, "", base)
        is_desc = given_struct(type, base)
        v = is_desc ? "" : valid(fn, type, name)
        if (is_desc) {
            struct(fn, base, name)
            v = (type == base ? "" : "&") "a_" name
        } else if (v == "new" && type != "int64_t") {
            sub(/ ?\*$/, "", type)
            name = "a_" name
            code(type " " name ";"); late("memset(&" name ", 0, sizeof " name ");")
            v = "&" name
            made[calls + 1] = made[calls + 1] "|" type " *|" name
        } else if (type == "int64_t") {
            if (v == "" || v == "new") v = 2
            code("int64_t a_" name ";"); late("a_" name " = " number(v, name) ";")
            v = "a_" name
        } else if (type == "const int64_t *" && v ~ /^[0-9]/) {
            m = split(v, one, " ")
            code("int64_t a_" name "[" m "];")
            for (k = 1; k <= m; k++) late("a_" name "[" k - 1 "] = " number(one[k], name "[" k - 1 "]") ";")
            v = "a_" name
        } else if (v == "") {
            wrong(fn ": sizes.txt has no value for `" type " " name "`: give one, or list the function with a reason")
            v = "0"
        }
        args = args (i > 1 ? ", " : "") v
    }
    kind = result == "tn_status" ? "status" : result ~ /\*$/ ? "pointer" : result == "int64_t" ? "count" : "nothing"
    call = fn "(" args ")"
    if (kind == "nothing") call = "ended((" call ", true), true)"
    else if (kind == "status") call = "ended_status(" call ")"
    else call = "ended(" call (kind == "pointer" ? " != NULL, " : " >= 0, ") (fn in silent ? "true)" : "false)")
    if (fn in silent) used["?" fn] = 1
    called[++calls] = fn
    code_of[calls] = body statements "    " call ";\n"
}
END {
    for (i in table) if (!(i in used)) wrong("sizes.txt: nothing uses `" i "`")
    for (i in silent) if (!(("?" i) in used)) wrong("sizes.txt: no function " i " takes an int64_t")
    if (calls < 100) wrong("sizes.awk found " calls + 0 " functions")
    for (i = 1; i <= calls; i++) {
        printf "static void call_%s(void)\n{\n%s", called[i], code_of[i]
        for (n = split(made[i], one, "|"); n > 1; n -= 2)
            if (one[n - 1] in destroy) print "    " destroy[one[n - 1]] "(&" one[n] ");"
        print "}\n"
    }
    print "static const struct listed { const char *name; void (*run)(void); } calls[] = {"
    for (i = 1; i <= calls; i++) print "    {\"" called[i] "\", call_" called[i] "},"
    print "};"
}
