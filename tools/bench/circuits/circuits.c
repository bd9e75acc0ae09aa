/* circuits.c - analyses of a transformer, for circuits_peer.py, which compares their numbers and times

   cc -O2 -I. tools/bench/circuits/circuits.c -o build/circuits -lm

   build/circuits FOLDER OUT f32|f64 reads a model that tn export --out wrote, and ids.npy, targets.npy and others.npy of the
   folder OUT, I32 [texts,tokens]. Then it reads lines `ANALYSIS RUNS` and prints the processor seconds of one run, the mean
   of RUNS. With 0 it runs once and writes the result to OUT: ANALYSIS.npy, of `cache` every point as POINT.npy. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { MOST = 512 };

static struct {
    tn_ctx        *ctx;
    tn_params     *params;
    tn_transformer net;
    tn_tensor     *ids, *targets, *others;      /* I32 [B,T]: texts, what follows each token, other texts */
    const char    *out;
} the;

static struct { char name[MOST][56]; tn_tensor *x[MOST]; int count; } points;

static void check(const char *what)
{
    if (tn_ctx_status(the.ctx) == TN_OK) return;
    fprintf(stderr, "circuits: %s: %s\n", what, tn_ctx_error(the.ctx));
    exit(1);
}

static char *path_of(const char *folder, const char *name, const char *end)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s%s", folder, name, end);
    return path;
}

/* A tap that keeps every point. */
static tn_tensor *keep(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    (void)ctx;
    (void)user;
    if (points.count == MOST) return NULL;
    snprintf(points.name[points.count], sizeof *points.name, "%s", name);
    points.x[points.count++] = x;
    return x;
}

static tn_tensor *run(const char *name, tn_tap_fn fn, void *user)
{
    tn_tap tap;
    tap.points = name;
    tap.fn = fn;
    tap.user = user;
    points.count = 0;
    return tn_transformer_run(the.ctx, &the.net, the.ids, &tap, 1);
}

/* ---- analyses: each returns its result, in the arena --------------------------------------- */

static tn_tensor *forward(void) { return tn_transformer_forward(the.ctx, &the.net, the.ids); }
static tn_tensor *cache(void)   { return run("*", keep, NULL); }

/* What each head adds to the residual stream: [L,B,T,H,dim] */
static tn_tensor *heads(void)
{
    const tn_transformer_desc *d = &the.net.desc;
    tn_tensor *list[MOST];
    run("blocks.*.attn.z", keep, NULL);
    for (int64_t l = 0; l < d->layers; l++) {
        int64_t    shape[3] = {d->dim, d->heads, the.net.blocks[l].attn.desc.d_v};
        tn_tensor *of[2] = {points.x[l], tn_reshape(the.net.blocks[l].attn.o, 3, shape)};
        list[l] = tn_einsum(the.ctx, "b t h d, e h d -> b t h e", 2, of);
    }
    return tn_stack(the.ctx, d->layers, list, 0);
}

/* The logit lens of the stream before each block and after the last: [L+1,B,T,vocab] */
static tn_tensor *lens(void)
{
    const int64_t L = the.net.desc.layers;
    tn_tensor    *list[MOST], *streams[MOST];
    static tn_tap taps[MOST];
    char          name[MOST][32];
    for (int64_t l = 0; l <= L; l++) {
        snprintf(name[l], sizeof *name, l ? "blocks.%d" : "embed", (int)l - 1);
        taps[l].points = name[l];
        taps[l].fn = tn_tap_read;
        taps[l].user = &streams[l];
    }
    tn_transformer_run(the.ctx, &the.net, the.ids, taps, L + 1);
    for (int64_t l = 0; l <= L; l++) list[l] = tn_transformer_logit_lens(the.ctx, &the.net, streams[l]);
    return tn_stack(the.ctx, L + 1, list, 0);
}

/* Direct logit attribution of the targets: [B,T,parts] */
static tn_tensor *attribution(void)
{
    return tn_transformer_attribution(the.ctx, &the.net, the.ids, the.targets, NULL);
}

/* The matrices of the circuits of all heads: [L H,rows,columns] */
static tn_tensor *matrices(tn_circuit *(*make)(tn_ctx *, const tn_transformer *, const tn_circuit_desc *))
{
    tn_circuit_desc d;
    tn_tensor      *list[MOST];
    int             n = 0;
    memset(&d, 0, sizeof d);
    for (d.block = 0; d.block < the.net.desc.layers; d.block++)
        for (d.head = 0; d.head < the.net.desc.heads; d.head++) {
            tn_circuit *c = make(the.ctx, &the.net, &d);
            check("a circuit");
            list[n++] = tn_circuit_rows(the.ctx, c, 0, c->rows);
            tn_circuit_destroy(c);
        }
    return tn_stack(the.ctx, n, list, 0);
}
static tn_tensor *qk(void) { return matrices(tn_circuit_qk); }
static tn_tensor *ov(void) { return matrices(tn_circuit_ov); }

/* Composition scores of all pairs of blocks: [pairs,H of the later,H of the earlier] */
static tn_tensor *composition(tn_head_part part)
{
    const tn_transformer_desc *d = &the.net.desc;
    tn_tensor *list[MOST];
    int        n = 0;
    for (int64_t from = 0; from < d->layers; from++)
        for (int64_t to = from + 1; to < d->layers; to++)
            list[n++] = tn_circuit_composition(the.ctx, &the.net, from, to, part);
    check("composition");
    tn_tensor *all = tn_stack(the.ctx, n, list, 0);
    for (int i = 0; i < n; i++) tn_tensor_destroy(list[i]);
    return all;
}
static tn_tensor *compose_q(void) { return composition(TN_HEAD_Q1); }
static tn_tensor *compose_k(void) { return composition(TN_HEAD_K1); }
static tn_tensor *compose_v(void) { return composition(TN_HEAD_V); }

/* The loss without each head: [L H] */
static tn_tensor *ablation(void)
{
    const tn_transformer_desc *d = &the.net.desc;
    tn_tensor *list[MOST];
    char       name[32];
    int        n = 0;
    for (int64_t l = 0; l < d->layers; l++)
        for (int64_t h = 0; h < d->heads; h++) {
            tn_edit e;
            memset(&e, 0, sizeof e);
            e.head = h;
            e.heads = 1;
            snprintf(name, sizeof name, "blocks.%d.attn.z", (int)l);
            list[n++] = tn_cross_entropy(the.ctx, run(name, tn_tap_edit, &e), the.targets);
        }
    return tn_stack(the.ctx, n, list, 0);
}

/* The mean logit of the last targets where the stream before block l at token t is that of the other texts: [L,T] */
static tn_tensor *patching(void)
{
    const int64_t L = the.net.desc.layers, B = the.ids->shape[0], T = the.ids->shape[1], V = the.net.desc.vocab;
    const int64_t shape[2] = {L, T};
    tn_tensor *texts = the.ids, *streams[MOST], *to = tn_slice(the.targets, 1, T - 1, T);
    double    *means = (double *)malloc((size_t)(L * T) * sizeof *means);
    int32_t   *ids = (int32_t *)malloc((size_t)B * sizeof *ids);
    int64_t    b;
    char       name[MOST][32];
    double    *logits = (double *)malloc((size_t)(B * V) * sizeof *logits);
    if (!means || !ids || !logits) exit(1);
    tn_read(to, TN_I32, ids, B);
    the.ids = the.others;
    for (int64_t l = 0; l < L; l++) snprintf(name[l], sizeof *name, l ? "blocks.%d" : "embed", (int)l - 1);
    cache();
    for (int64_t l = 0; l < L; l++)
        for (int64_t t = 0; t < points.count; t++) if (!strcmp(points.name[t], name[l])) streams[l] = points.x[t];
    the.ids = texts;
    for (int64_t l = 0; l < L; l++)
        for (int64_t t = 0; t < T; t++) {
            const tn_mark before = tn_arena_mark(the.ctx);
            tn_edit       e;
            memset(&e, 0, sizeof e);
            e.token = t;
            e.tokens = 1;
            e.value = streams[l];
            tn_tensor *x = tn_slice(run(name[l], tn_tap_edit, &e), 1, T - 1, T);
            check("patching");
            tn_read(x, TN_F64, logits, B * V);
            for (means[l * T + t] = 0, b = 0; b < B; b++) means[l * T + t] += logits[b * V + ids[b]] / (double)B;
            tn_arena_release(the.ctx, before);
        }
    tn_tensor *result = tn_tensor_from(the.ctx, 2, shape, TN_F64, means);
    free(means);
    free(ids);
    free(logits);
    return result;
}

static const struct { const char *name; tn_tensor *(*fn)(void); } analyses[] = {
    {"forward", forward}, {"cache", cache}, {"heads", heads}, {"lens", lens}, {"attribution", attribution}, {"qk", qk},
    {"ov", ov}, {"compose_q", compose_q}, {"compose_k", compose_k}, {"compose_v", compose_v}, {"ablation", ablation},
    {"patching", patching}
};

/* ---- the program ----------------------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void save(const char *name, const tn_tensor *x)
{
    tn_npy_save(x, path_of(the.out, name, ".npy"));
    check(name);
}

static void answer(const char *name, int runs)
{
    const double began = seconds();
    size_t       i;
    for (i = 0; i < sizeof analyses / sizeof *analyses && strcmp(analyses[i].name, name); i++) {}
    if (i == sizeof analyses / sizeof *analyses) {
        fprintf(stderr, "circuits: %s is no analysis\n", name);
        exit(1);
    }
    for (int k = 0; k < (runs ? runs : 1); k++) {
        tn_ctx_reset(the.ctx);
        tn_tensor *x = analyses[i].fn();
        check(name);
        if (runs) continue;
        save(name, x);
        for (k = 0; strcmp(name, "cache") == 0 && k < points.count; k++) save(points.name[k], points.x[k]);
        break;
    }
    printf("%.9g\n", (seconds() - began) / (runs ? runs : 1));
    fflush(stdout);
}

static void load(const char *folder)
{
    tn_transformer_desc desc;
    int64_t             lines;
    tn_transformer_config_read(the.ctx, tn_source_path(path_of(folder, "config.json", "")), &desc);
    check(folder);
    const tn_name_map *map = desc.norm == TN_NORM_LAYER ? tn_name_map_gpt2(&lines) : tn_name_map_llama(&lines);
    the.params = tn_params_create(the.ctx);
    tn_transformer_init(the.params, "", &desc, &the.net);
    tn_transformer_read_mapped(the.params, &the.net, tn_source_path(path_of(folder, "model.safetensors", "")), map, lines);
    check(folder);
}

int main(int argc, char **argv)
{
    tn_desc desc;
    char    name[32];
    int     runs;
    memset(&desc, 0, sizeof desc);
    if (argc != 4) {
        fprintf(stderr, "usage: circuits FOLDER OUT f32|f64\n");
        return 2;
    }
    desc.threads = 1;
    desc.dtype = strcmp(argv[3], "f64") == 0 ? TN_F64 : TN_F32;
    if (tn_ctx_create(&desc, &the.ctx, NULL) != TN_OK) return 1;
    the.out = argv[2];
    load(argv[1]);
    the.ids = tn_npy_load(the.ctx, path_of(the.out, "ids", ".npy"));
    the.targets = tn_npy_load(the.ctx, path_of(the.out, "targets", ".npy"));
    the.others = tn_npy_load(the.ctx, path_of(the.out, "others", ".npy"));
    check("ids");
    while (scanf("%31s %d", name, &runs) == 2) answer(name, runs);
    tn_ctx_destroy(the.ctx);
    return 0;
}
