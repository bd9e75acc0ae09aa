# awk -f tools/header.awk src/ORDER > tensornet.h: the one header, from the files of src/ in the order of the map. With
# -v cuda=1 and src/cuda/ORDER the one tensornet_cuda.cu, whose map has files without folders.
#
# Files are copied as they are, without what only separate units need: the includes of files of src/, `#pragma once`, the
# two lines that let a file of ops be read again, and what stands under `#ifndef TENSORNET_IMPLEMENTATION` or, in src/cuda/,
# `#ifndef TNC_ONE_FILE`. Where readings (passes) begin and end, the header closes and opens the part that is read once; the
# unit of a SIMD level becomes the header's inclusion of itself. Where a file begins under the condition under which the one
# before it ends, one `#if` serves both.

function fail(why) { print "header.awk: " why > "/dev/stderr"; bad = 1; exit 1 }

# Prints lines. #endifs wait for the next line that is not blank: where that begins the condition again that the last of them
# ended, both go.
function put(text,    line, n, k) {
    n = split(text, line, "\n")
    for (k = 1; k <= n || k == 1; k++) put_line(line[k])
}

function put_line(s,    condition) {
    condition = s
    sub(/[ \t]*\/\*.*/, "", condition)
    if (s ~ /^#if/) condition_of[++nested] = condition
    if (held && condition == ended[held] && condition ~ /^#if(ndef TN_NO_[A-Z0-9_]+| TNI_[A-Z0-9]+( == [0-9]+)?)$/) {
        if (--held) blanks[held] = 1
        else if (printed_last != "") print_line("")
        return
    }
    if (held && s == "") { blanks[held]++; return }
    if (s ~ /^#el/) condition_of[nested] = ""
    if (s ~ /^#endif/ && nested) {
        end_line[++held] = s
        ended[held] = condition_of[nested--]
        blanks[held] = 0
        return
    }
    put_end()
    print_line(s)
}

function put_end(    k) {
    for (k = 1; k <= held; k++) {
        print_line(end_line[k])
        while (blanks[k]-- > 0) print_line("")
    }
    held = 0
}

function print_line(s) { print s; printed_last = s }

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
        if (blank) put("")
        blank = 0
        started = 1
        put(line)
        n++
    }
    if (status < 0) fail("cannot read " file)
    if (skip) fail(file ": an #ifndef without its #endif")
    close(file)
    return n
}

function part(file) { if (copy(root file) > 0) put("") }

function open_implementation() {
    put("#if defined(TENSORNET_IMPLEMENTATION) && !defined(TNI_IMPLEMENTED) && !defined(TNI_PASS)\n")
}

FNR == 1 { root = FILENAME; sub(/[^\/]*$/, "", root) }
/^#/ || NF == 0 { next }
cuda { files[1] = files[1] " " $1; next }
/^[^ ]/ { folder = $1; if ($1 ~ /\./) next; folders[++folder_count] = folder; next }
{ files[folder_count] = files[folder_count] " " $1 }

END {
    if (bad) exit 1
    if (cuda) {
        put("/* Generated from the files of src/cuda/ by `make header`: make changes there. */\n")
        n = split(files[1], file, " ")
        for (k = 1; k < n; k++) {
            part(file[k])
            if (k == 1) put("/* Functions that several files of src/cuda/ use: here all are in one file. */\n#define TNC_FN static\n")
        }
        copy(root file[n])
        put_end()
        exit
    }
    if (!folder_count) fail("no folders in " FILENAME)
    part("readme.h")
    put("#ifndef TENSORNET_H\n#define TENSORNET_H\n")
    part("config.h")
    put("#ifdef __cplusplus\nextern \"C\" {\n#endif\n")
    for (i = 1; i <= folder_count; i++)
        if (index(files[i] " ", " " folders[i] ".h ")) part(folders[i] "/" folders[i] ".h")
    put("#ifdef __cplusplus\n}\n#endif\n#endif /* TENSORNET_H */")
    put("\n/* ======================================================================")
    put("   IMPLEMENTATION")
    put("   ====================================================================== */")
    open_implementation()
    put("/* Functions that several files of src/ use: here all are in one file. */")
    put("#define TNI_FN TNI_UNUSED static\n")
    for (i = 1; i <= folder_count; i++) {
        n = split(files[i], file, " ")
        for (k = 1; k <= n; k++) {
            if (file[k] == folders[i] ".h") continue
            if (file[k] ~ /^pass\./) {
                put("#endif /* the implementation goes on below */\n")
                put("#if defined(TNI_PASS) && TNI_PASS " (folders[i] == "ops" ? ">= 8" : "< 8"))
            }
            part(folders[i] "/" file[k])
            if (file[k] ~ /^pass_end\./) {
                put("#endif /* a reading of " folders[i] " */\n")
                open_implementation()
            }
        }
    }
    copy(root "end.h")
    put_end()
}
