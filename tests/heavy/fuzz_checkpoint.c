/* fuzz_checkpoint.c: a checkpoint that may be anything, for one small optimiser. What is refused has changed nothing; what is taken is
   written again, read again and steps on. See fuzz.h. */

#include "fuzz.h"

static char fuzz_before[FUZZ_FILE], fuzz_after[FUZZ_FILE];

static size_t fuzz_write(tn_optim *o, char *to)
{
    size_t used = 0;
    DEMAND(tn_checkpoint_write(o, tn_sink_memory(to, FUZZ_FILE, &used), NULL, 0) == TN_OK);
    return used;
}

/* Of another model or optimiser: no fault of the file, so that these say no byte. */
static bool fuzz_of_another(tn_ctx *ctx)
{
    tn_status s = tn_ctx_status(ctx);
    if (strncmp(tn_ctx_error(ctx), "fuzz: ", 6) != 0 || strncmp(tn_ctx_error(ctx), "fuzz: byte ", 11) == 0) return false;
    return s == TN_ERR_ARG || s == TN_ERR_SHAPE || s == TN_ERR_DTYPE || s == TN_ERR_FORMAT;
}

static void fuzz_step(tn_ctx *ctx, tn_params *ps, tn_optim *o)
{
    tn_tensor *sum = NULL;
    tn_record(ctx);
    for (int64_t i = 0; i < tn_params_count(ps); i++) {
        tn_tensor *x = tn_dropout(ctx, tn_params_at(ps, i)->value, 0.5);
        sum = sum ? tn_add(ctx, sum, tn_sum(ctx, x)) : tn_sum(ctx, x);
    }
    DEMAND(tn_backward(ctx, sum) == TN_OK && tn_optim_step(o) == TN_OK);
}

/* The parameters are the file's tensors. */
static void fuzz_values(tn_ctx *ctx, tn_params *ps, const void *data, size_t n)
{
    tn_safetensors *f = tn_safetensors_open(ctx, fuzz_source(data, n));
    for (int64_t i = 0; i < tn_params_count(ps); i++) {
        tn_tensor *t = tn_safetensors_read(f, tn_params_at(ps, i)->name);
        DEMAND(t);
        fuzz_same(tn_params_at(ps, i)->value, t);
        tn_tensor_destroy(t);
    }
    tn_safetensors_close(f);
}

static void fuzz_read(tn_ctx *ctx, const void *data, size_t n)
{
    static const int64_t shape[2] = {2, 3};
    tn_params    *ps = tn_params_create(ctx);
    tn_optim_desc d;
    tn_init       zero;
    memset(&d, 0, sizeof d);
    memset(&zero, 0, sizeof zero);
    d.kind = TN_OPTIM_MUON;
    tn_ctx_seed(ctx, 1);
    tn_params_add(ps, "p", 2, shape, zero);
    tn_params_add(ps, "q", 1, shape, zero);
    tn_optim *o = tn_optim_create(ps, &d);
    DEMAND(o);
    size_t before = fuzz_write(o, fuzz_before);
    if (tn_checkpoint_read(o, fuzz_source(data, n)) == TN_OK) {
        fuzz_values(ctx, ps, data, n);
        before = fuzz_write(o, fuzz_before);
        DEMAND(tn_checkpoint_read(o, tn_source_memory(fuzz_before, before)) == TN_OK);
        size_t after = fuzz_write(o, fuzz_after);
        DEMAND(before == after && memcmp(fuzz_before, fuzz_after, after) == 0);
        fuzz_step(ctx, ps, o);
    } else {
        if (fuzz_of_another(ctx)) tn_ctx_clear_error(ctx);
        else fuzz_failed(ctx);
        size_t after = fuzz_write(o, fuzz_after);
        DEMAND(before == after && memcmp(fuzz_before, fuzz_after, after) == 0);
    }
    tn_optim_destroy(o);
    tn_params_destroy(ps);
    tn_ctx_reset(ctx);
}
