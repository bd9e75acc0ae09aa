/* token_spectra.c - which pairs of tokens speak for a next token, and do two seeds agree on them? Read from the weights of
   one-layer models that `tn train --norm none` trained

   Without norms the MLP, between embedding E and unembedding U, is one symmetric matrix on tokens for each next token o,
       Q_o = sum_h (U P)[o,h] (E w_h) (E v_h)^T, symmetrised,
   with eigenvectors that say how strongly each token takes part. How many of them matter is the effective rank; and since
   models of two seeds have the same tokens, their eigenvectors can be compared, by |cosine| with the most similar one.

   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/token_spectra.c -o token_spectra -lm
   ./token_spectra --run RUN --other RUN          (runs of `make tn`'s build/tn train)
   --run FOLDER   --other FOLDER   --outputs N   --top N   --threads N */
#define _POSIX_C_SOURCE 200809L
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "token_spectra"
#include "text.h"

typedef struct options {
    const char *run, *other;
    int64_t     outputs, top, threads;      /* next tokens whose eigenvectors are compared, and how many of each */
} options;

static tn_transformer load(tn_ctx *ctx, const char *run)
{
    const tn_transformer model = model_of_run(ctx, run, true);
    if (model.desc.layers != 1) stop("the model has several layers, expected 1");
    if (!model.desc.no_norm) stop("the model has norms, expected one of tn train --norm none");
    return model;
}

/* From the residual stream to logits; from tokens, too, if `both`. */
static tn_cp *paths(tn_ctx *ctx, const tn_transformer *m, bool both)
{
    tn_cp *mlp = tn_cp_from_mlp(ctx, &m->blocks[0].mlp), *out = tn_cp_fold_out(mlp, m->head.w, NULL), *all = NULL;
    if (both) all = tn_cp_fold_in(out, tn_transpose(m->embed.w, 0, 1), NULL);
    check(ctx);
    tn_cp_destroy(mlp);
    if (both) tn_cp_destroy(out);
    return both ? all : out;
}

/* E^T E: an operator on the residual stream has in this metric the eigenvalues that it has on tokens. */
static tn_tensor *metric_of_tokens(tn_ctx *ctx, const tn_transformer *m)
{
    return tn_matmul(ctx, tn_transpose(m->embed.w, 0, 1), m->embed.w);
}

/* The means over all next tokens: the effective rank, and the share of the sum of squares in the first 2 and 8 values */
static void print_spectrum(tn_ctx *ctx, const tn_cp *cp, const char *space)
{
    static const int64_t first[2] = {2, 8};
    tn_spectrum          s;
    double               rank = 0, share[2] = {0, 0};
    if (tn_cp_spectrum(cp, 0, &s) != TN_OK) check(ctx);
    double *v = zeros(s.outputs * s.count, sizeof *v);
    tn_read(s.values, TN_F64, v, s.outputs * s.count);
    for (int64_t o = 0; o < s.outputs; o++) {
        const double *own = v + o * s.count;
        double        sum = 0, part = 0;
        for (int64_t i = 0; i < s.count; i++) sum += own[i] * own[i];
        if (sum == 0) stop("the MLP is zero: the model was not trained");
        rank += tn_effective_rank(own, s.count) / (double)s.outputs;
        for (int64_t k = 0, i = 0; k < 2; k++) {
            for (; i < first[k] && i < s.count; i++) part += own[i] * own[i];
            share[k] += part / sum / (double)s.outputs;
        }
    }
    printf("effective_rank_%s: %.2f\n", space, rank);
    for (int64_t k = 0; k < 2; k++) printf("share_of_first_%d_%s: %.4f\n", (int)first[k], space, share[k]);
    free(v);
    tn_spectrum_destroy(&s);
}

/* The first eigenvectors of one next token's matrix on tokens, [count,vocab] */
static tn_eigenpairs eigenvectors(tn_ctx *ctx, const tn_cp *on_tokens, int64_t output, int64_t count)
{
    tn_eigenpairs   e;
    tn_tensor *u = tn_tensor_1d(ctx, TN_REAL, on_tokens->out);
    double    *one = zeros(on_tokens->out, sizeof *one);
    one[output] = 1;
    tn_write(u, TN_F64, one, on_tokens->out);
    if (tn_cp_eigen(on_tokens, u, count, &e) != TN_OK) check(ctx);
    free(one);
    return e;
}

/* The mean, over the vectors of both, of the largest |cosine| with a vector of the other */
static double likeness(tn_ctx *ctx, const tn_eigenpairs *a, const tn_eigenpairs *b)
{
    const int64_t n = a->count;
    tn_tensor    *cosines = tn_matmul(ctx, a->vectors, tn_transpose(b->vectors, 1, 2));
    double       *c = zeros(n * n, sizeof *c), sum = 0;
    tn_read(cosines, TN_F64, c, n * n);
    check(ctx);
    for (int64_t i = 0; i < n; i++) {
        double row = 0, column = 0;
        for (int64_t j = 0; j < n; j++) {
            if (fabs(c[i * n + j]) > row) row = fabs(c[i * n + j]);
            if (fabs(c[j * n + i]) > column) column = fabs(c[j * n + i]);
        }
        sum += (row + column) / (2 * (double)n);
    }
    free(c);
    return sum;
}

/* same: of one next token in both models. different: of one in the first and another in the second, for comparison */
static void print_likeness(tn_ctx *ctx, const options *o, const tn_cp *first, const tn_cp *second)
{
    const int64_t n = o->outputs < first->out ? o->outputs : first->out, apart = first->out / n;
    double        same = 0, different = 0;
    tn_eigenpairs      before = {0};
    for (int64_t i = 0; i < n; i++) {
        tn_mark  mark = tn_arena_mark(ctx);
        tn_eigenpairs a = eigenvectors(ctx, first, i * apart, o->top), b = eigenvectors(ctx, second, i * apart, o->top);
        same += likeness(ctx, &a, &b) / (double)n;
        if (i) different += likeness(ctx, &a, &before) / (double)(n - 1);
        if (i) tn_eigenpairs_destroy(&before);
        before = b;
        tn_eigenpairs_destroy(&a);
        tn_arena_release(ctx, mark);
    }
    if (n) tn_eigenpairs_destroy(&before);
    printf("likeness_of_seeds: %.4f\n", same);
    printf("likeness_of_different_outputs: %.4f\n", different);
}

int main(int argc, char **argv)
{
    options        o = {"", "", 64, 4, 0};
    const flag     flags[] = {
        {"--run", FLAG_TEXT, &o.run, 0, 0, "the folder of a run of tn train"},
        {"--other", FLAG_TEXT, &o.other, 0, 0, "that of another seed"},
        {"--outputs", FLAG_COUNT, &o.outputs, 2, 1e6, NULL},
        {"--top", FLAG_COUNT, &o.top, 1, 1e4, NULL},
        THREADS_FLAG(&o),
        {0}
    };
    tn_desc        desc = {0};
    tn_ctx        *ctx;
    tn_transformer other;
    tn_cp         *between[2];
    char           why[TN_WHY];
    read_flags(argc, argv, flags);
    if (!*o.run) stop("--run is not given, expected the folder of a run of tn train");
    desc.threads = (int)o.threads;
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) stop(why);
    tn_transformer model = load(ctx, o.run);
    tn_cp         *residual = paths(ctx, &model, false);
    tn_cp         *metric = tn_cp_data_metric(residual, metric_of_tokens(ctx, &model));
    check(ctx);
    print_spectrum(ctx, residual, "residual");
    print_spectrum(ctx, metric, "tokens");
    if (*o.other) {
        other = load(ctx, o.other);
        between[0] = paths(ctx, &model, true);
        between[1] = paths(ctx, &other, true);
        if (between[0]->out != between[1]->out) stop("the two runs have different vocabularies");
        print_likeness(ctx, &o, between[0], between[1]);
    }
    tn_ctx_destroy(ctx);
    return 0;
}
