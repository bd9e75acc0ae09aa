# awk -f tools/header.awk src/ORDER > tensornet.h: the one header, from the files of src/ in the order of the map. With
# -v cuda=1 and src/cuda/ORDER the one tensornet_cuda.cu, whose map has files without folders.
#
# Files are copied as they are, without what only separate units need: the includes of files of src/, `#pragma once`, the
# two lines that let a file of ops be read again, and what stands under `#ifndef TENSORNET_IMPLEMENTATION` or, in src/cuda/,
# `#ifndef TNC_ONE_FILE`. Where readings (passes) begin and end, the header closes and opens the part that is read once; the
# unit of a SIMD level becomes the header's inclusion of itself.

function fail(why) { print "header.awk: " why > "/dev/stderr"; bad = 1; exit 1 }

# The lines of a file that the header takes. A blank line at its beginning or end, or after another one, is left out.
function copy(file,    line, n, skip, depth, started, blank, status) {
    while ((status = (getline line < file)) > 0) {
        if (skip) {
            if (line ~ /^#if/) depth++
            else if (line ~ /^#el/ && depth == 1) fail(file ": an #else of what only units need")
            else if (line ~ /^#endif/ && --depth == 0) skip = 0
            continue
        }
        if (line ~ /^#ifndef (TENSORNET_IMPLEMENTATION|TNC_ONE_FILE)/) { skip = depth = 1; continue }
        if (line ~ /^#include "[a-z_0-9]+\/pass\.inl"/) line = "#include TN_HEADER_NAME"
        if (line ~ /^#pragma once|^#define TNI_AGAIN|^#include "([a-z]+\/[a-z_0-9]+\.(h|inl)|config\.h)"/) continue
        if (line ~ /^#include "/ && line !~ /"(tensornet|cuda_host)[a-z_]*\.h"/) fail(file ": " line " is no file of src/")
        if (line ~ /^[ \t]*$/) { blank = started; continue }
        if (blank) print ""
        blank = 0
        started = 1
        print line
        n++
    }
    if (status < 0) fail("cannot read " file)
    if (skip) fail(file ": an #ifndef without its #endif")
    close(file)
    return n
}

function part(file) { if (copy(root file) > 0) print "" }

function open_implementation() {
    print "#if defined(TENSORNET_IMPLEMENTATION) && !defined(TNI_IMPLEMENTED) && !defined(TNI_PASS)\n"
}

FNR == 1 { root = FILENAME; sub(/[^\/]*$/, "", root) }
/^#/ || NF == 0 { next }
cuda { files[1] = files[1] " " $1; next }
/^[^ ]/ { folder = $1; if ($1 ~ /\./) next; folders[++folder_count] = folder; next }
{ files[folder_count] = files[folder_count] " " $1 }

END {
    if (bad) exit 1
    if (cuda) {
        print "/* Generated from the files of src/cuda/ by `make header`: make changes there. */\n"
        n = split(files[1], file, " ")
        for (k = 1; k < n; k++) {
            part(file[k])
            if (k == 1) print "/* Functions that several files of src/cuda/ use: here all are in one file. */\n#define TNC_FN static\n"
        }
        copy(root file[n])
        exit
    }
    if (!folder_count) fail("no folders in " FILENAME)
    part("readme.h")
    print "#ifndef TENSORNET_H\n#define TENSORNET_H\n"
    part("config.h")
    print "#ifdef __cplusplus\nextern \"C\" {\n#endif\n"
    for (i = 1; i <= folder_count; i++)
        if (index(files[i] " ", " " folders[i] ".h ")) part(folders[i] "/" folders[i] ".h")
    print "#ifdef __cplusplus\n}\n#endif\n#endif /* TENSORNET_H */"
    print "\n/* ======================================================================"
    print "   IMPLEMENTATION"
    print "   ====================================================================== */"
    open_implementation()
    print "/* Functions that several files of src/ use: here all are in one file. */"
    print "#define TNI_FN TNI_UNUSED static\n"
    for (i = 1; i <= folder_count; i++) {
        n = split(files[i], file, " ")
        for (k = 1; k <= n; k++) {
            if (file[k] == folders[i] ".h") continue
            if (file[k] ~ /^pass\./) {
                print "#endif /* the implementation goes on below */\n"
                print "#if defined(TNI_PASS) && TNI_PASS " (folders[i] == "ops" ? ">= 8" : "< 8")
            }
            part(folders[i] "/" file[k])
            if (file[k] ~ /^pass_end\./) {
                print "#endif /* a reading of " folders[i] " */\n"
                open_implementation()
            }
        }
    }
    copy(root "end.h")
}
