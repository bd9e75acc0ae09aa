/* What the benchmarks share: a clock, turns between us and a peer, ceilings of this machine, one line per row. */
#ifndef BENCH_H
#define BENCH_H

#include "tensornet.h"

/* Does the work `runs` times. run NULL: there is no peer. */
typedef struct bench_side { void (*run)(void *arg, long runs); void *arg; } bench_side;

typedef struct bench_row {
    char        name[48], shape[48];
    int         threads;
    double      flops, bytes;       /* of one run, at least: the floor is the slower of the two; 0: not known       */
    double      goal;               /* of the ratio, 0: none                                                        */
    const char *peer_name;
    double      ours, peer, ratio;  /* seconds of the fastest run; median over the turns of peer / ours, 0: no peer */
    double      middle;             /* seconds of a run, median over the turns                                       */
} bench_row;

/* Lets both sides run in turns until further turns hardly change the medians, and prints the row. */
void bench_turns(bench_row *row, bench_side ours, bench_side peer);
/* The line `name: value` at the end of everything. */
void bench_value(const char *name, double value);
/* What one run of `row` takes at least on this machine, in seconds. */
double bench_floor(const bench_row *row);

/* ---- ours */
tn_ctx *bench_ctx(tn_dtype dtype, int threads);          /* made once, until the end */
void   *bench_state(tn_ctx *ctx);                         /* what its backend's kernels are handed */
tn_tensor *bench_normal(tn_ctx *ctx, int rank, const int64_t *shape, double std);     /* owned */
void    bench_region(tn_ctx *ctx, int64_t tasks, tn_task_fn fn, void *arg);             /* in parallel */
void    bench_check(tn_ctx *ctx);                        /* an error ends the program, with its message */

/* ---- peers */
void      *bench_openblas(const char *symbol, int threads);          /* NULL where the library is not there       */
/* A case of torch_peer.py: "cross_entropy 4096 2048". Without PyTorch its run is NULL. */
bench_side bench_torch(const char *work, int threads);

void bench_gemm(void);
void bench_pieces(void);
void bench_step(void);
void bench_lm(void);
void bench_operator(void);
void bench_scan(void);
void bench_einsum(void);
void bench_attention(void);
void bench_predict(void);
void bench_threads(void);

#endif
