/* einsum.c: contractions, each planned anew in every call, beside opt_einsum's best path on PyTorch, which is planned once. */
#define _GNU_SOURCE
#include "bench.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 6 };

typedef struct work { tn_ctx *ctx; const char *expr; int n; tn_tensor *t[MOST]; } work;

/* The same list is in torch_peer.py. */
static const struct { const char *expr, *extents, *name; } list[] = {
    {"ij,jk->ik",            "i256 j256 k256",               "matrix product"},
    {"bij,bjk->bik",         "b64 i64 j64 k64",              "batched product"},
    {"bqhd,bkhd->bhqk",      "b4 q128 k128 h8 d64",          "scores of heads"},
    {"bhqk,bkhd->bqhd",      "b4 q128 k128 h8 d64",          "values of heads"},
    {"oh,hi,hj->oij",        "o32 h256 i64 j64",             "CP form to tensor"},
    {"oh,hi,hj,ok,ki,kj->",  "o64 h128 i64 j64 k128",        "norm of a CP form"},
    {"ab,bc,cd,de,ef->af",   "a200 b300 c50 d400 e100 f250", "chain of five"},
    {"xyf,xtf,ytpf,fr->tpr", "x35 y37 f59 t51 p51 r27",      "hyperedge of four"},
    {"ij,ij->i",             "i1000 j500",                   "dot products"},
    {"abcd,cdef,efab->",     "a12 b10 c11 d9 e12 f10",       "ring of three"}
};

static void run_einsum(void *arg, long runs)
{
    work *w = arg;
    for (long i = 0; i < runs; i++) {
        tn_ctx_reset(w->ctx);
        if (!tn_einsum(w->ctx, w->expr, w->n, w->t)) bench_check(w->ctx);
    }
}

static int64_t extent_of(const char *extents, char letter)
{
    int64_t n = 0;
    sscanf(strchr(extents, letter) + 1, "%lld", (long long *)&n);
    return n;
}

static void contraction(int k, int threads)
{
    work      w = { bench_ctx(TN_F32, threads), list[k].expr, 0, {NULL} };
    bench_row row = { "", "", threads, .goal = 1, .peer_name = "opt_einsum" };
    int64_t   shape[TN_MAX_RANK];
    int       rank = 0;
    char      text[64];
    double    elements = 0;
    for (const char *e = list[k].expr; ; e++) {
        if (*e >= 'a') { shape[rank++] = extent_of(list[k].extents, *e); continue; }
        w.t[w.n] = bench_normal(w.ctx, rank, shape, 1);
        elements += (double)tn_tensor_count(w.t[w.n++]);
        rank = 0;
        if (*e == '-') break;
    }
    {
        const int64_t *shapes[MOST];
        int            ranks[MOST];
        for (int i = 0; i < w.n; i++) { shapes[i] = w.t[i]->shape; ranks[i] = w.t[i]->rank; }
        tn_plan *plan = tn_plan_create(w.ctx, w.expr, w.n, ranks, shapes, NULL);
        bench_check(w.ctx);
        row.flops = tn_plan_cost_of(plan).flops;
        row.bytes = 4 * elements;
        tn_plan_destroy(plan);
    }
    snprintf(row.name, sizeof row.name, "%s", list[k].name);
    snprintf(row.shape, sizeof row.shape, "%s", list[k].expr);
    snprintf(text, sizeof text, "einsum %d", k);
    bench_turns(&row, (bench_side){ run_einsum, &w, NULL }, bench_torch(text, threads));
    snprintf(text, sizeof text, "einsum_%d_vs_opt_einsum_%dt", k, threads);
    bench_value(text, row.ratio);
    for (int i = 0; i < w.n; i++) tn_tensor_destroy(w.t[i]);
}

void bench_einsum(void)
{
    for (int threads = 1; threads <= 2; threads++)
        for (int k = 0; k < (int)(sizeof list / sizeof *list); k++) contraction(k, threads);
}
