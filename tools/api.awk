# awk -f tools/api.awk tensornet.h > docs/api.md: one page of all that the header declares. `make docs` does it.
#
# The declarations end where the implementation begins. A section is a banner `>>tag  title` between lines of =; inside of a
# section, `/* ---- title ---- */` begins a part. A comment belongs to the declaration that follows it without an empty line
# between them; a comment on the line of a declaration, after it, belongs to that one. Structs, enums and #defines are
# entries, too, as they are written.

function trim(s) { sub(/^[ \t]+/, "", s); sub(/[ \t]+$/, "", s); return s }
function anchor(s) { s = tolower(s); gsub(/[^a-z0-9 _-]/, "", s); gsub(/ /, "-", s); return s }
function html(s) { gsub(/&/, "\\&amp;", s); gsub(/</, "\\&lt;", s); gsub(/>/, "\\&gt;", s); return s }
# The text of a comment without its signs; lines that are indented further stay as they are.
function plain(s,    lines, n, i, line, result, first) {
    n = split(s, lines, "\n")
    for (i = 1; i <= n; i++) {
        line = lines[i]
        sub(/[ \t]*\*\/[ \t]*$/, "", line)
        if (!sub(/^[ \t]*\/\*[ \t]?/, "", line)) sub(/^   /, "", line)
        result = result (i > 1 ? "\n" : "") line
    }
    sub(/\n+$/, "", result); sub(/^\n+/, "", result)
    return result
}
# The first sentence, for the cheatsheet.
function brief(s) {
    s = plain(s); gsub(/\n */, " ", s); gsub(/  +/, "  ", s)
    if (match(s, /[]a-z0-9)"'] ?[.:;]( [A-Z[]|$)/)) s = substr(s, 1, RSTART)
    if (length(s) > 110) { s = substr(s, 1, 107); sub(/ [^ ]*$/, "", s); s = s " ..." }
    return s
}
function name_of(decl,    s) {
    s = decl
    if (s ~ /^#define/) { match(s, /TN_[A-Z0-9_]+/); return substr(s, RSTART, RLENGTH) }
    if (s ~ /^typedef (struct|enum)/ && match(s, /} *tn_[a-z0-9_]+/)) {
        s = substr(s, RSTART, RLENGTH); sub(/} */, "", s); return s
    }
    if (s ~ /^(struct|enum) tn_/) { match(s, /tn_[a-z0-9_]+/); return substr(s, RSTART, RLENGTH) }
    if (s ~ /^typedef .*\(\*tn_/) { match(s, /\(\*tn_[a-z0-9_]+/); return substr(s, RSTART + 2, RLENGTH - 2) }
    if (s ~ /^typedef/) { match(s, /tn_[a-z0-9_]+ *;/); s = substr(s, RSTART, RLENGTH); sub(/ *;/, "", s); return s }
    if (match(s, /tn_[a-z0-9_]+ *\(/)) { s = substr(s, RSTART, RLENGTH); sub(/ *\(/, "", s); return s }
    return ""
}
function tidy(decl) { gsub(/TN_API +/, "", decl); gsub(/TN_EXPERIMENTAL +/, "", decl); return decl }

function finish(    name, one) {                # a declaration is complete
    name = name_of(decl)
    if (name == "" || decl ~ /^typedef struct tn_[a-z_]+ +tn_[a-z_]+;/ && comment == "") {
        decl = comment = after = ""; return
    }
    entries++
    entry_name[entries] = name
    entry_decl[entries] = tidy(decl)
    entry_comment[entries] = comment
    entry_after[entries] = after
    entry_young[entries] = decl ~ /TN_EXPERIMENTAL/
    entry_function[entries] = decl !~ /^(typedef|struct|enum|#define)/
    entry_section[entries] = sections
    entry_part[entries] = part
    # Several functions in a row share the comment above the first one.
    entry_first[entries] = (comment == "" && last_line == NR_start - 1) ? entry_first[entries - 1] : entries
    last_line = NR
    decl = comment = after = ""
}
function structure(s) { return s ~ /^(typedef )?(struct|enum)( tn_[a-z_]+)? \{/ }

/^#ifdef TENSORNET_IMPLEMENTATION|^#if defined\(TENSORNET_IMPLEMENTATION\)/ { exit }
/^#endif \/\* TENSORNET_H/ { exit }
/^#ifndef TENSORNET_H/ { begun = 1; next }
!begun { next }

# A banner: its title, and the text below it.
/^\/\* =====/ { banner = 1; text = ""; comment = ""; part = ""; next }
banner && /===== *\*\/$/ {
    banner = 0
    sections++
    match(text, /^[ ]*>>[a-z0-9-]+/)
    section_tag[sections] = trim(substr(text, RSTART, RLENGTH))
    sub(/^[ ]*>>[a-z0-9-]+[ ]*/, "", text)
    at = index(text, "\n")
    section_title[sections] = trim(at ? substr(text, 1, at - 1) : text)
    section_text[sections] = at ? substr(text, at + 1) : ""
    next
}
banner { text = text (text == "" ? "" : "\n") $0; next }

# Comments on lines of their own.
in_comment {
    comment = comment "\n" $0
    if (/\*\//) { in_comment = 0; end_comment() }
    next
}
function end_comment(    s, at) {
    if (comment ~ /^\/\* -----* /) {            # a part: its title, and what it says
        s = comment; sub(/^\/\* -----* */, "", s)
        at = index(s, "\n")
        part = at ? substr(s, 1, at - 1) : s
        sub(/ *-*( *\*\/)? *$/, "", part); sub(/ -+$/, "", part)
        sub(/ *-* *>>[a-z0-9-]+/, "", part)
        parts++
        part_title[parts] = trim(part); part = parts
        part_text[parts] = at ? plain("/* " substr(s, at + 1)) : ""
        comment = ""
    }
}
decl == "" && /^\/\*/ {
    comment = $0
    if (/\*\//) end_comment(); else in_comment = 1
    next
}
decl == "" && /^[ \t]*$/ { comment = ""; next }
decl == "" && (/^#define TN_/ && !/^#define TN_API/ && !/^#define TN_EXPERIMENTAL/ && !/^#define TN_CALL_/) {
    NR_start = NR; decl = $0
    if (/\\$/) { macro = 1; next }
    sub(/[ \t]*$/, "", decl); finish(); next
}
macro { decl = decl "\n" $0; if (!/\\$/) { macro = 0; finish() } next }
decl == "" && (/^TN_API/ && !/^TN_API$/ || /^typedef/ || /^struct tn_/ || /^extern const tn_/) {
    NR_start = NR; decl = $0; body = structure($0)
}
decl != "" {
    if (NR != NR_start) decl = decl "\n" $0
    if (open_after) { if (/\*\//) open_after = 0; if (!body) { if (!open_after) finish(); } next }
    if (body ? /^\}|\} *tn_[a-z0-9_]+;/ : /;/) {
        if (!body && match($0, /;[ \t]*\/\*.*/) && $0 !~ /\*\//) { open_after = 1; next }
        finish()
    }
    next
}

END {
    print "<!-- only links -->"
    print "# API"
    print ""
    print "All declarations of tensornet.h, in its order. `make docs` makes this page from the header; do not edit it."
    print "Functions marked † are young and may still change. These rules hold for all functions: a failed call returns NULL"
    print "or a status, and the context keeps the first message; a NULL operand gives NULL; and a desc of zeros means all"
    print "defaults ([guide](guide.md#1-first-steps))."
    print ""
    print "## Cheatsheet"
    print ""
    for (s = 1; s <= sections; s++) {
        tag = substr(section_tag[s], 3)
        printf "%s[%s](#cheat-%s)", (s > 1 ? " · " : ""), tag, tag
    }
    print ""
    for (s = 1; s <= sections; s++) {
        wide = 0
        for (i = 1; i <= entries; i++) if (entry_section[i] == s && entry_function[i]) {
            one = entry_decl[i]
            own = match(one, /;[ \t]*\/\*/) ? substr(one, RSTART + 1) : ""
            gsub(/\n */, " ", one); gsub(/  +/, " ", one); sub(/;.*/, "", one); sub(/^extern /, "", one)
            head = one; sub(/ *\(.*/, "", head)
            rest[i] = substr(one, index(one, "("))
            result[i] = substr(head, 1, length(head) - length(entry_name[i])); sub(/ +$/, "", result[i])
            why[i] = own != "" ? brief(trim(own)) : entry_first[i] != said ? brief(entry_comment[entry_first[i]]) : ""
            said = entry_first[i]
            if (length(result[i]) > wide) wide = length(result[i])
        }
        if (!wide) continue
        tag = substr(section_tag[s], 3)
        title = section_title[s]
        print "\n<a name=\"cheat-" tag "\"></a>**[" tag "](#" anchor(tag ": " title) ")** " title "\n"
        print "<pre>"
        for (i = 1; i <= entries; i++) if (entry_section[i] == s && entry_function[i]) {
            printf "%s <a href=\"#%s\">%s</a>", html(sprintf("%-" wide "s", result[i])), entry_name[i], entry_name[i]
            printf "%s%s%s\n", html(rest[i]), (entry_young[i] ? " †" : ""), (why[i] != "" ? "   <i>" html(why[i]) "</i>" : "")
        }
        print "</pre>"
    }
    part_now = 0
    for (i = 1; i <= entries; i++) {
        s = entry_section[i]
        if (s != section_now) {
            section_now = s
            print "\n## " substr(section_tag[s], 3) ": " section_title[s]
            if (section_text[s] != "") print "\n```text\n" section_text[s] "\n```"
        }
        if (entry_part[i] && entry_part[i] != part_now) {
            part_now = entry_part[i]
            print "\n### " part_title[part_now]
            if (part_text[part_now] != "") print "\n```text\n" part_text[part_now] "\n```"
        }
        # Declarations that share a comment are one block.
        if (entry_first[i] == i) {
            print ""
            for (j = i; j <= entries && entry_first[j] == i; j++) printf "<a name=\"%s\"></a>", entry_name[j]
            for (j = i; j <= entries && entry_first[j] == i; j++)
                printf "%s**`%s`**%s", (j > i ? " · " : ""), entry_name[j], (entry_young[j] ? "†" : "")
            print "\n"
            print "```c"
            if (entry_comment[i] != "") print entry_comment[i]
            for (j = i; j <= entries && entry_first[j] == i; j++) print entry_decl[j]
            print "```"
        }
    }
}
