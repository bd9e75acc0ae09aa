/* fuzz.h: what the fuzz targets share. A target gives

       static void fuzz_read(tn_ctx *ctx, const void *data, size_t n);

   which reads a file from memory, writes what it has read, reads that again and demands it equal. Built with clang's libFuzzer it is
   fed with changed files (make fuzz); built without, it is a program that reads the files it is given (make test, with tests/corpus
   and what fuzzing has found). Whatever is read: an error has a message that begins with the name of the source, and nothing stays. */

#ifndef TN_FUZZ_H
#define TN_FUZZ_H

#include "tensornet.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FUZZ_MEMORY = 16 << 20, FUZZ_FILE = 1 << 20 };

#define DEMAND(cond) do { if (!(cond)) fuzz_stop(__FILE__, __LINE__, #cond); } while (0)

static void fuzz_stop(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
    abort();
}

/* The call failed: for a reason that a file can be, with a message; the context goes on. */
static void fuzz_failed(tn_ctx *ctx)
{
    tn_status s = tn_ctx_status(ctx);
    DEMAND(s == TN_ERR_FORMAT || s == TN_ERR_DTYPE || s == TN_ERR_DATA || s == TN_ERR_MEMORY);
    DEMAND(s == TN_ERR_MEMORY || strncmp(tn_ctx_error(ctx), "fuzz: byte ", 11) == 0);
    tn_ctx_clear_error(ctx);
}

/* From an allocation of just the size, so that a sanitizer sees the first byte too many. */
static tn_source fuzz_source(const void *data, size_t n)
{
    tn_source s = tn_source_memory(data, n);
    s.name = "fuzz";
    return s;
}

/* Same dtype, shape, bits. */
static inline void fuzz_same(const tn_tensor *a, const tn_tensor *b)
{
    int64_t n = tn_tensor_count(a);
    size_t  bytes = (size_t)n * 8;
    void   *x = malloc(bytes + 1), *y = malloc(bytes + 1);
    DEMAND(a && b && x && y && a->dtype == b->dtype && a->rank == b->rank && tn_tensor_count(b) == n);
    for (int i = 0; i < a->rank; i++) DEMAND(a->shape[i] == b->shape[i]);
    memset(x, 0, bytes + 1);
    memset(y, 0, bytes + 1);
    DEMAND(tn_read(a, a->dtype, x, n) == TN_OK && tn_read(b, b->dtype, y, n) == TN_OK);
    DEMAND(memcmp(x, y, bytes) == 0);
    free(x);
    free(y);
}

static void fuzz_read(tn_ctx *ctx, const void *data, size_t n);

static tn_ctx *fuzz_context(tn_dtype dtype)
{
    tn_ctx *ctx;
    tn_desc d;
    memset(&d, 0, sizeof d);
    d.dtype = dtype;
    d.threads = 1;
    d.max_bytes = FUZZ_MEMORY;
    DEMAND(tn_ctx_create(&d, &ctx, NULL) == TN_OK);
    return ctx;
}

/* Bytes of what is owned: an arena keeps its blocks. */
static size_t fuzz_held(tn_ctx *ctx) { return tn_ctx_memory(ctx).live - tn_ctx_memory(ctx).arena; }

#ifdef __cplusplus
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
#endif
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static tn_ctx *ctx[2];
    for (int i = 0; i < 2; i++) {
        if (!ctx[i]) ctx[i] = fuzz_context(i == 0 ? TN_F32 : TN_F64);
        size_t live = fuzz_held(ctx[i]);
        fuzz_read(ctx[i], data, n);
        DEMAND(tn_ctx_status(ctx[i]) == TN_OK && fuzz_held(ctx[i]) == live);
    }
    return 0;
}

#ifndef FUZZ_LIBFUZZER                 /* it brings a main */
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        FILE    *f = fopen(argv[i], "rb");
        uint8_t *room = (uint8_t *)malloc(FUZZ_FILE);
        if (!f || !room) { printf("FAIL %s cannot be opened\n0 passed, 1 failed, 0 skipped\n", argv[i]); return 1; }
        size_t n = fread(room, 1, FUZZ_FILE, f);
        fclose(f);
        uint8_t *exact = (uint8_t *)malloc(n ? n : 1);
        if (!exact) return 1;
        memcpy(exact, room, n);
        printf("%s\n", argv[i]);        /* the last one is the one that was not survived */
        fflush(stdout);
        LLVMFuzzerTestOneInput(exact, n);
        free(exact);
        free(room);
    }
    printf("%d passed, %d failed, 0 skipped\n", argc - 1, argc == 1);
    return argc == 1;
}
#endif
#endif
