/* einsum.c - tn einsum: contracts the arrays of .npy files */
#include "tn.h"
#include <stdlib.h>
#include <string.h>

static struct { const char *out; int64_t max_bytes, threads; int minimize; bool plan, broadcast; } einsum;

static option einsum_options[] = {
    FLAG_ROW("plan", &einsum.plan, "print the plan and the time of each step, not the result", NEVER),
    TEXT_ROW("out", &einsum.out, "FILE", "write the result to a .npy file instead of printing it", NEVER),
    WORDS_ROW("minimize", &einsum.minimize, "cost|flops|size", "what the order of products minimises: flops + 64 * elements "
              "written, flops, or the largest intermediate result", NEVER),
    COUNT_ROW("max-bytes", &einsum.max_bytes, "limit for the intermediate results, which are then computed in slices; 0: no "
              "limit", 0, 1e15, NEVER),
    FLAG_ROW("broadcast", &einsum.broadcast, "repeat an axis of extent 1 where its label has another extent", NEVER),
    AUTO_COUNT_ROW("threads", &einsum.threads, "number of threads; auto: one per core", 1, 1024, NEVER),
};

const usage einsum_usage = {
    "einsum", "EXPRESSION FILE... [--plan] [--out FILE]", "contract arrays of .npy files",
    "Computes an expression such as \"ij,jk->ik\": letters name the axes of the files' arrays in turn, and what the result "
    "lacks is summed. It is computed in F32, or in F64 if one of the arrays is F64.",
    "Example: tn einsum \"oh,hi,hj->oij\" P.npy W.npy V.npy --plan --out B.npy",
    einsum_options, sizeof einsum_options / sizeof *einsum_options, 4097, NULL
};

/* Reads the files into a new context of this dtype; NULL if the dtype is TN_F32 and one of the arrays is F64. */
static tn_ctx *read_operands(tn_dtype dtype, int n, char **files, tn_tensor **t)
{
    tn_desc desc = {0};
    tn_ctx *ctx;
    char    why[TN_WHY];
    desc.dtype = dtype;
    desc.threads = (int)einsum.threads;
    desc.log = show_log;
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) fail("%s", why);
    for (int k = 0; k < n; k++) {
        t[k] = tn_npy_load(ctx, files[k]);
        if (!t[k]) fail("%s", tn_ctx_error(ctx));
        if (t[k]->dtype == TN_F64 && dtype == TN_F32) {
            tn_ctx_destroy(ctx);
            return NULL;
        }
        if (t[k]->dtype != dtype) t[k] = tn_cast(ctx, t[k], dtype);
        check_ctx(ctx, files[k]);
    }
    return ctx;
}

/* Prints the text that a function like snprintf writes, and a newline if it does not end with one. */
static void print_formatted(int64_t length, int64_t (*format)(const void *of, char *to, size_t bytes), const void *of)
{
    char *text = (char *)allocate((size_t)length + 1, 1);
    format(of, text, (size_t)length + 1);
    print_text(text, (size_t)length);
    print(length > 0 && text[length - 1] == '\n' ? "" : "\n");
    free(text);
}

static int64_t format_plan(const void *of, char *to, size_t bytes) { return tn_plan_format((const tn_plan *)of, to, bytes); }

static int64_t format_tensor(const void *of, char *to, size_t bytes)
{
    return tn_tensor_format((const tn_tensor *)of, to, bytes);
}

static tn_status put_result(void *y, tn_sink sink) { return tn_npy_write((const tn_tensor *)y, sink); }

int einsum_main(int argc, char **argv)
{
    const int    n = read_options(&einsum_usage, argc, argv) - 1;
    tn_plan_desc desc = {0};
    if (n < 0) usage_error("no expression is given, expected tn einsum EXPRESSION FILE...");
    if (n < 1) usage_error("no file is given, expected tn einsum EXPRESSION FILE...");
    for (int k = 0; k < n; k++) check_not_input("out", einsum.out, "an operand", argv[k + 1]);
    tn_tensor     **t = (tn_tensor **)allocate((size_t)n, sizeof *t);
    int            *ranks = (int *)allocate((size_t)n, sizeof *ranks);
    const int64_t **shapes = (const int64_t **)allocate((size_t)n, sizeof *shapes);
    tn_ctx         *ctx = read_operands(TN_F32, n, argv + 1, t);
    if (!ctx) ctx = read_operands(TN_F64, n, argv + 1, t);
    for (int k = 0; k < n; k++) {
        ranks[k] = t[k]->rank;
        shapes[k] = t[k]->shape;
    }
    desc.minimize = (tn_plan_objective)einsum.minimize;
    desc.max_bytes = (size_t)einsum.max_bytes;
    desc.broadcast = einsum.broadcast;
    if (einsum.plan) desc.clock = now;
    tn_plan *plan = tn_plan_create(ctx, argv[0], n, ranks, shapes, &desc);
    if (!plan) fail("%s", tn_ctx_error(ctx));
    tn_tensor *y = tn_plan_run(plan, n, t);
    if (!y) fail("%s", tn_ctx_error(ctx));
    if (einsum.out) {
        char *failed = write_file_with(einsum.out, BY_USER, put_result, y, ctx);
        if (failed) fail("%s", failed);
    }
    check_ctx(ctx, "the result");
    if (einsum.plan) print_formatted(tn_plan_format(plan, NULL, 0), format_plan, plan);
    else if (!einsum.out) print_formatted(tn_tensor_format(y, NULL, 0), format_tensor, y);
    tn_ctx_destroy(ctx);
    free(t);
    free(ranks);
    free((void *)shapes);
    return 0;
}
