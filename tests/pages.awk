# awk -f tests/pages.awk EXPECTED OUTPUT: does OUTPUT say what EXPECTED asks for? tests/pages.sh describes its form. Blanks
# between words and at the ends of lines do not count. Says where the first difference is, and exits with 1.

NR == FNR { expected[++wanted] = $0; next }
{ said[++lines] = $0 }

function is_number(word) { return word ~ /^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$/ }

function same_word(want, word,    part, off) {
    if (want !~ /~/) return want == word
    if (!is_number(word)) return 0
    if (want == "~") return 1
    split(want, part, "~")
    off = word - part[1]
    return (off < 0 ? -off : off) <= part[2] + 0
}

function same_line(want, line,    i, n, m, a, b) {
    if (want ~ /~/) {                   # brackets and commas are not part of the numbers
        gsub(/[][(),]/, " ", want)
        gsub(/[][(),]/, " ", line)
    }
    n = split(want, a)
    m = split(line, b)
    if (n != m) return 0
    for (i = 1; i <= n; i++) if (!same_word(a[i], b[i])) return 0
    return 1
}

END {
    at = 1
    for (i = 1; i <= wanted; i++) {
        if (expected[i] == "...") {
            any = 1
            continue
        }
        while (any && at <= lines && !same_line(expected[i], said[at])) at++
        any = 0
        if (at > lines || !same_line(expected[i], said[at])) {
            printf("line %d is \"%s\", expected \"%s\"\n", at, (at > lines ? "missing" : said[at]), expected[i])
            exit 1
        }
        at++
    }
    if (at <= lines && !any) {
        printf "line %d, \"%s\", is more than was expected\n", at, said[at]
        exit 1
    }
}
