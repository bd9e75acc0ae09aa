/* plans.c - the planner of contractions by itself, for plans_peer.py, which describes networks and compares the costs

   cc -O2 -I. tools/bench/plans/plans.c -o build/plans -lm

   It reads networks from the standard input, as integers: what to minimise (0: flops + 64 writes, 1: flops, 2: size),
   samples, seed, number of operands; for each operand its rank,
   then a label and an extent for each axis; the rank of the result and its labels. For each network it prints a line:
   flops, elements written, elements of the largest intermediate result, seconds of planning. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#include "../clock.h"

enum { MOST = 1024 };

static long long number(void)
{
    long long v;
    if (scanf("%lld", &v) == 1) return v;
    fprintf(stderr, "plans: a number is missing\n");
    exit(1);
}

int main(void)
{
    static int            label[MOST][TN_MAX_RANK], rank[MOST];
    static const int     *labels[MOST];
    static int64_t        shape[MOST][TN_MAX_RANK];
    static const int64_t *shapes[MOST];
    int                   out[TN_MAX_RANK], minimize;
    tn_ctx               *ctx;
    if (tn_ctx_create(NULL, &ctx, NULL) != TN_OK) return 1;
    while (scanf("%d", &minimize) == 1) {
        tn_plan_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.minimize = (tn_plan_objective)minimize;
        desc.samples = (int)number();
        desc.seed = (uint64_t)number();
        int n = (int)number();
        if (n < 1 || n > MOST) return 1;
        for (int k = 0; k < n; k++) {
            rank[k] = (int)number();
            if (rank[k] < 0 || rank[k] > TN_MAX_RANK) return 1;
            for (int i = 0; i < rank[k]; i++) {
                label[k][i] = (int)number();
                shape[k][i] = number();
            }
            labels[k] = label[k];
            shapes[k] = shape[k];
        }
        int out_rank = (int)number();
        if (out_rank < 0 || out_rank > TN_MAX_RANK) return 1;
        for (int i = 0; i < out_rank; i++) out[i] = (int)number();
        double   began = now();
        tn_plan *plan = tn_plan_create_labels(ctx, n, rank, shapes, labels, out_rank, out, &desc);
        double   took = now() - began;
        if (!plan) {
            fprintf(stderr, "plans: %s\n", tn_ctx_error(ctx));
            return 1;
        }
        tn_plan_cost cost = tn_plan_cost_of(plan);
        printf("%.17g %.17g %.17g %.6f\n", cost.flops, cost.written, cost.largest, took);
        fflush(stdout);
        tn_plan_destroy(plan);
    }
    tn_ctx_destroy(ctx);
    return 0;
}
