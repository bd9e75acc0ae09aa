# awk -f tests/floors.awk src/ORDER src/*/*.[chi]*: calls and includes between the folders of src/ go in one direction. A folder
# may use itself and those before it in src/ORDER. Prints FAIL and the line of each call and each include that goes another
# way; with -v table=1 instead how many calls each folder makes of each other, `FROM TO CALLS`.
#
# A function that other files can call begins, in the first column, with TNI_FN or with a type, or in inner.h with static
# inline. One of the reference kernels has the name tni_f32_NAME outside of the files that define it as TNI_T(NAME); those of
# the SIMD kernels that others call are in the prototypes of kernels/inner.h.
function wrong(what) { bad = 1; if (!table) print "FAIL " what }
function folder_of(path) { sub(/\/[^\/]*$/, "", path); sub(/.*\//, "", path); return path }
FILENAME ~ /ORDER$/ {
    if (/^[a-z]/ && $1 !~ /\./) floor[$1] = ++floors
    next
}
FILENAME ~ /\/cuda\// { next }           # another output, from an order of its own
FNR == 1 { file = FILENAME; folder = folder_of(file); comment = 0; if (!(folder in floor)) wrong(file ": its folder is not in src/ORDER") }
/^#include "/ {
    name = $2
    gsub(/"/, "", name)
    if (name == "tensornet.h") wrong(file ":" FNR ": includes all declarations, expected those of a folder")
    if (name ~ /\// && floor[folder_of(name)] > floor[folder]) wrong(file ":" FNR ": includes " name ", which comes later in src/ORDER")
    includes++
    next
}
# The text without comments and strings.
{
    line = $0
    gsub(/'\\?.'/, "0", line)
    gsub(/"([^"\\]|\\.)*"/, "0", line)
    if (comment && !sub(/^.*\*\//, "", line)) next
    gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", line)
    comment = sub(/\/\*.*/, "", line)
    text[file, FNR] = line
    last[file] = FNR
}
line ~ /^[A-Za-z].*\(/ && (line !~ /;[ \t]*$/ || file ~ /kernels\/inner\.h$/) && line !~ /^(typedef|extern|enum) / &&
(line ~ /TNI_FN / || line ~ /^static inline / || line ~ /^(const |struct )*[a-z][a-z0-9_]* +\**tn_[a-z0-9_]*\(/) {
    name = line
    while (sub(/__attribute__ *\(\([^)]*\)[^)]*\)|TNI_PRINTF\([^)]*\)/, "", name)) continue
    if (match(name, /TNI_T\([a-z0-9_]+\) *\(/)) {
        name = substr(name, RSTART + 6, RLENGTH)
        sub(/\).*/, "", name)
        if (folder != "kernels") { defined_in["tni_f32_" name] = folder; defined_in["tni_f64_" name] = folder }
        next
    }
    sub(/ *\(.*/, "", name)
    sub(/.*[ *]/, "", name)
    if (name != "TNI_T" && !(name in defined_in)) defined_in[name] = folder
}
END {
    for (file in last) {
        folder = folder_of(file)
        for (n = 1; n <= last[file]; n++)
            for (line = text[file, n]; match(line, /[A-Za-z_][A-Za-z0-9_]*/); line = substr(line, RSTART + RLENGTH)) {
                name = substr(line, RSTART, RLENGTH)
                if (!(name in defined_in) || defined_in[name] == folder || text[file, n] ~ /^(TN_API|#(include|if|elif))/) continue
                calls++
                count[folder " " defined_in[name]]++
                if (floor[defined_in[name]] > floor[folder])
                    wrong(file ":" n ": " name " is in " defined_in[name] ", which comes later in src/ORDER")
            }
    }
    if (calls < 5000 || includes < 300) wrong("floors.awk found " calls + 0 " calls and " includes + 0 " includes between folders")
    if (table) for (arrow in count) print arrow, count[arrow]
    else if (!bad) print "calls_between_folders: " calls "\nincludes: " includes
    exit bad
}
