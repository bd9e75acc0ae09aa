#!/bin/sh
# sh tests/idioms.sh FOLDER...: no test keeps its worst error in a way that loses a NaN. Each of these loses it:
#     worst = fmax(worst, e);                             fmax ignores a NaN
#     if (e > worst) worst = e;                           a comparison with a NaN is false
#     if (!(e <= worst)) worst = e;                       this keeps a NaN, but only until the next number
# Use test_raise of test.h instead. An awk program should check each error by itself, and that it is a number: some awks take
# a NaN for equal to anything. Two things are allowed: a positive constant as the first argument of fmax, as in
# a / fmax(1, size), and a maximum of numbers that are not errors, in a variable whose name is in `sizes`.
#
# And no awk program prints the result of a comparison without parentheses around it: print a == b ? "x" : "y" is an error in
# BWK awk, which is the awk of macOS and of the BSDs.
#
# And no allocation in tensornet.h multiplies in the arguments of its call, where a product could wrap: the functions take a
# number of elements and their size, tni_area multiplies extents and tni_plus adds them.
#
# And no format in tensornet.h has a conversion that its own printing, tni_text_v, does not know.
# The command prints by the functions of tools/tn/util.c alone, which make texts printable, and the only file that it writes
# itself is log.jsonl. In src/ only io/writer.c opens a file to write.
# Prints FAIL FILE:LINE for each line that is not allowed.
set -eu
sizes='size|largest|most|high|best|moved|end|element|unit'

# One statement per line, as FILE:LINE STATEMENT without blanks, comments and strings. A condition and the statement that
# depends on it are one. In a shell script, which may contain awk, a line ends a statement unless it ends with a
# parenthesis.
statements() {
    awk '
    FNR == 1 { text = ""; comment = 0; shell = FILENAME ~ /\.(sh|awk)$/ }
    {
        line = $0
        gsub(/"([^"\\]|\\.)*"/, "0", line)
        gsub(/\047([^\047\\]|\\.)\047/, "0", line)
        if (shell) {
            sub(/(^|[ \t])#.*/, "", line)
            if (line !~ /\)[ \t]*$/) line = line ";"
        } else {
            if (comment && !sub(/^.*\*\//, "", line)) next
            gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", line)
            comment = sub(/\/\*.*/, "", line)
            sub(/\/\/.*/, "", line)
        }
        gsub(/else|return/, "&;", line)
        gsub(/->/, ".", line)
        gsub(/[ \t\r]+/, "", line)
        text = text line
        while ((at = index(text, ";")) > 0) {
            print FILENAME ":" FNR " ;" substr(text, 1, at)
            text = substr(text, at + 1)
        }
    }' "$@"
}

# FILE:LINE of what loses a NaN. `to` is what is assigned to; where it is on the left of <, the line may well set a lower
# limit, so there only names of errors count.
losing() {
    to='\(\*\{0,1\}[A-Za-z_][][A-Za-z0-9_.+*/%-]*\)'
    statements "$@" | sed -n \
        -e 's/if(\([A-Za-z_.]*\)<0)\1=-\1;//g' \
        -e 's/fmax[fl]\{0,1\}([1-9][0-9.]*,//g' -e 's/fmax[fl]\{0,1\}([0-9.]*e-[0-9]*,//g' \
        -e 's/ .*[^A-Za-z0-9_]fm[axin]\{2\}[fl]\{0,1\}(.*/ fmax/p' -e t \
        -e "s/ .*if(.*>=\{0,1\}$to)*{\{0,1\}\1=[^=].*/ \1/p" -e t \
        -e "s/ .*if(.*!(.*<=\{0,1\}$to)*{\{0,1\}\1=[^=].*/ \1/p" -e t \
        -e "s/ .*[^-]>=\{0,1\}$to{\1=[^=].*/ \1/p" -e t \
        -e "s/ .*!(.*<=\{0,1\}$to){\1=[^=].*/ \1/p" -e t \
        -e "s/ .*!($to>=\{0,1\}.*){\{0,1\}\1=[^=].*/ \1/p" -e t \
        -e "s/ .*[(!&|]$to<=\{0,1\}.*){\{0,1\}\1=[^=].*/ \1 limit/p" -e t \
        -e "s/ .*[;{})(,]$to=.*>=\{0,1\}\1)*[|?].*/ \1/p" -e t \
        -e "s/ .*[;{})(,]$to=(*\1<.*?.*/ \1 limit/p" |
        awk -v sizes="^($sizes)\$" '
            { name = $2; gsub(/^\*|\[.*\]/, "", name); sub(/.*\./, "", name) }
            name ~ sizes || ($3 == "limit" && name !~ /worst|error|difference|here/) { next }
            { print $1 }'
}

# The search itself is tried first, on lines that lose a NaN and on lines that do not.
probe=$(mktemp)
script=$probe.sh
trap 'rm -f "$probe" "$script"' EXIT
cat > "$probe" <<'END'
    worst = fmax(worst, e);
    *worst = fmax(*worst, fmax(a, b));
    return fmaxf(e, f(x));
    CHECK_NEAR(sqrt(fmax(0, x)), y, 1e-9);
    least = fmin(least, e);
    if (e > worst) worst = e;
    if (ok && fabs(a[i] - b[i]) >= *worst) *worst = fabs(a[i] - b[i]);
    else if (e > t->worst[k / 3]) { t->worst[k / 3] = e; worst_in = name; }
    if (e > largest_error)
        largest_error = e;
    if (!(e <= worst)) worst = e;
    for (i = 0; i < n; i++) if (!(d[i] < worst[unit][parts])) { worst[unit][parts] = d[i]; }
    if (worst < e) worst = e;
    if (!(worst >= f(e))) worst = f(e);
    worst = e > worst ? e : worst;
    for (i = 0; i < n; i++) here = e > here || a[i] != a[i] ? e : here;
    worst = worst < e ? e : worst; /* and the ones that are allowed */
    test_raise(&worst, e); if (e <= worst) return;
    if (fabs(x) > largest) largest = fabs(x);  if (x[i] > m.high) { m.high = x[i]; }
    /* worst = fmax(worst, e); */ printf("if (e > worst) worst = e; \" fmax(a, b)"); // worst = fmax(worst, e);
    /* two lines:
       if (e > worst) worst = e; */
    e /= fmax(1, size) + fmax(1e-12, size); if (n > most) n = most; if (e == worst) worst = 1;
    t = n > 0 ? n : 1; if (shape[1] < 2) shape[1] = 2; p->v = a > b ? a : b; m = e > e_worst ? e : 1;
END
found=$(losing "$probe" | sed 's/.*://' | tr '\n' ' ')
if [ "$found" != "1 2 3 4 5 6 7 8 10 11 12 13 14 15 16 17 " ]; then
    echo "FAIL idioms: of the lines 1 to 17, but not 9, of what was planted, these were found: $found"
    exit 1
fi

cat > "$script" <<'END'
awk '{ if (e > worst) worst = e }'
    if (!(e <= worst[kind])) worst[kind] = e
    if (e > worst)
        worst = e
    e > worst { worst = e }
    !(e <= worst) { worst = e }       # and lines that are allowed
    if (!(e <= 1e-4)) bad = 1
    if (e > largest[kind]) largest[kind] = e
    for (i in a) if (i > 1) b = 1
    # if (e > worst) worst = e
    if (e < 0) e = -e; rm build/*/*.log; if (e == worst) bad = 1
END
found=$(losing "$script" | sed 's/.*://' | tr '\n' ' ')
if [ "$found" != "1 2 4 5 6 " ]; then
    echo "FAIL idioms: of the lines 1 to 6, but not 3, of a shell script, these were found: $found"
    exit 1
fi

# FILE:LINE of a comparison in print or printf that is in no parentheses. Shell scripts print no comparisons.
unparenthesised() {
    awk '{
        line = $0
        gsub(/"([^"\\]|\\.)*"/, "0", line)
        sub(/^[ \t]*#.*/, "", line)
        while (gsub(/\([^()]*\)/, "0", line)) { }
        while (match(line, /(^|[^a-z_])printf?[ \t][^;{}]*/)) {
            if (substr(line, RSTART, RLENGTH) ~ /[=!]=|[<>]=/) { print FILENAME ":" FNR; break }
            line = substr(line, RSTART + RLENGTH)
        }
    }' "$@"
}
cat > "$script" <<'END'
    END { print line == "" ? "none" : line }
    { x = y; printf "%s%s", word[i], i % 10 == 9 ? "\n" : " " }
    if (a == b) print "==", (c == d ? e : f), g(h == i); if (a != b) { print c }
    printf '%s' "$a"; [ "$a" != "$b" ]
END
found=$(unparenthesised "$script" | sed 's/.*://' | tr '\n' ' ')
if [ "$found" != "1 2 " ]; then
    echo "FAIL idioms: of the lines 1 and 2 of an awk program, these were found: $found"
    exit 1
fi

# FILE:LINE of a string of the header with a conversion other than those of tni_text_v. Assembly has its own.
unknown() {
    awk '
    /__asm__/ { next }
    {
        line = $0
        gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", line)
        while (match(line, /"([^"\\]|\\.)*"/)) {
            text = substr(line, RSTART, RLENGTH)
            line = substr(line, RSTART + RLENGTH)
            gsub(/%([scdg%]|ll[dux]|zu)/, "", text)
            if (text ~ /%[-+ #0-9.*a-zA-Z]/) { print FILENAME ":" FNR; break }
        }
    }' "$@"
}
cat > "$probe" <<'END'
    tni_print(s, n, "%s of %lld: %llx%%", a, b);
    tni_print(s, n, "%s", "%016llx");
    tni_print(s, n, "%ld");
    tni_print(s, n, "%d" /* "%u" */, "100%\"");   /* the rest is allowed */
    tni_print(s, n, "%.3f");
END
found=$(unknown "$probe" | sed 's/.*://' | tr '\n' ' ')
if [ "$found" != "2 3 5 " ]; then
    echo "FAIL idioms: of the formats in lines 2, 3 and 5, these were found: $found"
    exit 1
fi

# FILE:LINE of a call that prints, or opens a file to write, renames or links one.
printing() {
    awk '{
        line = $0
        gsub(/"([^"\\]|\\.)*"/, "0", line)
        gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", line)
        if (line ~ /(^|[^a-zA-Z0-9_])(v?f?printf|f?puts|f?putc|putchar|fwrite|perror|psignal|write)[ ]*\(/) print FILENAME ":" FNR " " $0
    }' "$@"
}
writing() {
    awk '{
        line = $0
        if (line ~ /(^|[^a-zA-Z0-9_])(creat|mkstemp|mkdtemp|tmpfile|tmpnam|openat|rename|link|symlink)[ ]*\(/ ||
            line ~ /open[ ]*\(.*O_(WRONLY|RDWR|CREAT)/ || line ~ /f(re|d)?open[ ]*\(.*"([wa]|r[b]?\+)/) print FILENAME ":" FNR " " $0
    }' "$@"
}
cat > "$probe" <<'END'
    printf("%s", name); fprintf(stderr, "x");
    else fputs(name, stdout);
    if (write(1, s, n) < 0) return vprintf(f, list);
    print("%s", name); buffer_print(&b, "puts(x)"); snprintf(s, n, "%s", t); tn_image_write(f);
    f = fopen(path, "wb");
    fd = open(path, O_WRONLY | O_TRUNC);
    rename(a, b); f = fopen(path, "rb+"); freopen("/dev/null", "w", stdout);
    f = fopen(path, "rb"); fd = open(path, O_RDONLY);
END
found=$({ printing "$probe"; writing "$probe"; } | sed 's/^[^:]*:\([0-9]*\).*/\1/' | tr '\n' ' ')
if [ "$found" != "1 2 3 5 6 7 " ]; then
    echo "FAIL idioms: of the lines 1, 2, 3, 5, 6 and 7 that print or write, these were found: $found"
    exit 1
fi
root=${0%/*}/..
# A signal handler writes what it says itself, and processes but the first have no standard output.
prints=$(printing "$root"/tools/tn/*.[ch] | grep -v -e '/util\.c:.*fwrite(' -e '/journal\.c:.*j->file' \
             -e '/signals\.c:.* (write(STDERR_FILENO, ' | sed 's/^/FAIL prints around tools\/tn\/util.c: /' || true)
writes=$(writing "$root"/tools/tn/*.[ch] $(find "$root/src" -name '*.[ch]') | grep -v -e '/src/io/writer\.c:' \
             -e '/journal\.c:.*j->file = tmpfile' -e '/files\.c:.*O_APPEND | O_NOFOLLOW' -e '/files\.c:.*fdopen(fd, "a+b")' -e '/processes\.c:.*"/dev/null"' -e '/tn\.c:.*"/dev/null"' | sed 's/^/FAIL writes a file around the library: /' || true)
# FILE:LINE of a call that allocates and has a product, a shift or, of extents, a sum in its arguments. A sum with a constant is
# allowed, and sums of bytes that are there already (tni_alloc).
multiplying() {
    awk '
    {
        line = $0
        gsub(/"([^"\\]|\\.)*"/, "0", line)
        while (match(line, /tni_(alloc|device_alloc|array|arena_take|arena_list|take|take_zeroed|take_f64|take_zeros|take_heap)\(/)) {
            extents = substr(line, RSTART, RLENGTH) !~ /arena_take|alloc\(/
            line = substr(line, RSTART + RLENGTH)
            for (depth = at = 1; depth > 0 && at <= length(line); at++) {
                c = substr(line, at, 1)
                if (c == "(") depth++
                if (c == ")") depth--
            }
            call = substr(line, 1, at - 1)
            gsub(/[a-z0-9_]+ \*+[),]|sizeof \*+/, "", call)
            if (call ~ /[]A-Za-z0-9_)] ?\* ?[A-Za-z0-9_(*]|<</ && call !~ /^[a-z_]+ [*]|1 <<[^,]*, sizeof/) print FILENAME ":" FNR
            else if (extents && call ~ /[])A-Za-z_] \+ [A-Za-z_(]/) print FILENAME ":" FNR
        }
    }' "$@"
}
cat > "$probe" <<'END'
    p = (int *)tni_alloc(ctx, (size_t)n * sizeof *p, "op");
    if (!(p = tni_take_f64(&w, rank * most, rank))) return x * y;
    q = tni_take(&w, a->out + b->out, sizeof *q);
    r = tni_alloc(ctx, sizeof(tni_slot) << bits, "op");
    q = (tni_q **)tni_array(ctx, tni_area(n, m), sizeof *q, "a * b"), x = y * z;      /* the rest is allowed */
    TNI_FN void *tni_alloc(tn_ctx *ctx, size_t bytes, const char *what)
    q = tni_array(ctx, tni_plus(n, 1), sizeof(tn_q *), op); p = tni_alloc(ctx, sizeof *p + length, "op");
    q = tni_array(ctx, (int64_t)1 << bits, sizeof(tni_slot), "map"); r = tni_take_zeros(&w, h, n + 1);
END
found=$(multiplying "$probe" | sed 's/.*://' | tr '\n' ' ')
if [ "$found" != "1 2 3 4 " ]; then
    echo "FAIL idioms: of the allocations in lines 1 to 4, these were found: $found"
    exit 1
fi

# cuda_host.h defines CUDA's own max by fmax; this file plants what it looks for.
bad=$(find "$@" -name '*.[ch]' ! -name cuda_host.h -o -name '*.cu' -o -name '*.cpp' -o -name '*.awk' \
           -o -name '*.sh' ! -name idioms.sh | sort | while read -r file; do losing "$file"; done |
      sed 's/^/FAIL loses a NaN: /')
loose=$(find "$@" tools .ci -name '*.awk' -o -name '*.sh' ! -name idioms.sh -o -path .ci/run | sort |
        while read -r file; do unparenthesised "$file"; done | sed 's/^/FAIL a comparison to print needs parentheses: /')
formats=$(unknown "${0%/*}/../tensornet.h" | sed 's/^/FAIL a conversion that tni_text_v does not know: /')
wraps=$(multiplying "${0%/*}/../tensornet.h" | sed 's/^/FAIL an allocation whose size may wrap: /')
[ -z "$bad$loose$formats$prints$writes$wraps" ] || { printf '%s\n' "$bad" "$loose" "$formats" "$prints" "$writes" "$wraps"; exit 1; }
