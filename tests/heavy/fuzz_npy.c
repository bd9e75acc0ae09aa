/* fuzz_npy.c: one array from a file that may be anything. See fuzz.h. */

#include "fuzz.h"

static char fuzz_file[FUZZ_FILE];

static void fuzz_read(tn_ctx *ctx, const void *data, size_t n)
{
    tn_tensor *t = tn_npy_read(ctx, fuzz_source(data, n));
    size_t     used = 0;
    if (!t) { fuzz_failed(ctx); return; }
    tn_status s = tn_npy_write(t, tn_sink_memory(fuzz_file, FUZZ_FILE, &used));
    DEMAND(s == TN_OK || used > FUZZ_FILE);
    tn_ctx_clear_error(ctx);
    tn_tensor *again = s == TN_OK ? tn_npy_read(ctx, fuzz_source(fuzz_file, used)) : NULL;
    DEMAND(again || used > FUZZ_FILE);
    if (again) fuzz_same(t, again);
    tn_tensor_destroy(again);
    tn_tensor_destroy(t);
}
