# awk -f tests/calls.awk tools/tn/tn.h tools/tn/*.c: the calls between the files of the command go in one direction, that of
# the map in the first comment of tn.h. There a row is a line that begins with the name of a file, and a file may call those
# of the rows above its own. Prints FAIL and the line of each call that goes another way, and of each file that the map lacks.
function wrong(what) { bad = 1; print "FAIL " what }
FNR == 1 { file = FILENAME; sub(/.*\//, "", file); comment = 0 }
file == "tn.h" {
    if (/\*\//) after_map = 1
    if (!after_map && $1 ~ /^[a-z_]+\.c$/)
        for (i = 1; $i ~ /^[a-z_]+\.[ch]$/; i++) row[$i] = FNR
    next
}
# The text without comments and strings.
{
    line = $0
    gsub(/"([^"\\]|\\.)*"/, "0", line)
    if (comment && !sub(/^.*\*\//, "", line)) next
    gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", line)
    comment = sub(/\/\*.*/, "", line)
    text[file, FNR] = line
    last[file] = FNR
}
# A function that other files can call: its first line begins with a type, and is not a declaration.
line ~ /^[a-z].*\(/ && line !~ /^(static|typedef|extern|enum) / && line !~ /;[ \t]*$/ {
    name = line
    sub(/ *\(.*/, "", name)
    sub(/.*[ *]/, "", name)
    defined_in[name] = file
}
END {
    for (file in last) if (!(file in row)) wrong("tools/tn/" file " is not in the map of tn.h")
    for (file in last)
        for (n = 1; n <= last[file]; n++)
            for (line = text[file, n]; match(line, /[A-Za-z_][A-Za-z0-9_]*/); line = substr(line, RSTART + RLENGTH)) {
                name = substr(line, RSTART, RLENGTH)
                if (!(name in defined_in) || defined_in[name] == file) continue
                if (row[defined_in[name]] >= row[file])
                    wrong("tools/tn/" file ":" n ": " name " is in " defined_in[name] ", not above it in the map of tn.h")
                calls++
            }
    if (calls < 100) wrong("calls.awk found " calls + 0 " calls between the files of the command")
    exit bad
}
