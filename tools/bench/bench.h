/* What the benchmarks share: a clock, turns between us and a peer, ceilings of this machine, one line per row. */
#ifndef BENCH_H
#define BENCH_H

#include "tensornet.h"

/* Does the work `runs` times. name: what distinguishes it from other peers of the same row, or NULL. */
typedef struct bench_side { void (*run)(void *arg, long runs); void *arg; const char *name; } bench_side;
/* Peers of one row, of which the fastest is measured; a compiled and an eager form of the same work, for example. */
enum { BENCH_PEERS = 4 };
typedef struct bench_peers { bench_side side[BENCH_PEERS]; int count; } bench_peers;

typedef struct bench_row {
    char        name[48], shape[48];
    int         threads;
    double      flops, bytes;       /* of one run, at least: the floor is the slower of the two; 0: not known       */
    double      reads, passes;      /* of one run, at least: `passes` times `reads` bytes are read, none written     */
    double      goal;               /* of the ratio, 0: none                                                        */
    const char *peer_name;          /* where the peer has no name of its own                                        */
    double      ours, peer, ratio;  /* seconds of the fastest run; median over the turns of peer / ours, 0: no peer */
    double      middle;             /* seconds of a run, median over the turns                                       */
    char        notes[160];         /* how long the other peers took, and what was wrong with a peer                */
} bench_row;

/* Chooses the fastest peer, lets it and us run in turns until further turns hardly change the medians, and prints the row.
   Does nothing if the environment variable BENCH_ROWS names other rows: ratio is 0 then, and ours, too. */
void bench_turns(bench_row *row, bench_side ours, bench_peers peers);
bench_peers bench_peer(void (*run)(void *arg, long runs), void *arg);        /* the only one; run NULL: none */
void        bench_add(bench_peers *peers, bench_side side);
bool        bench_wanted(const bench_row *row);           /* by BENCH_ROWS */
/* The line `name: value` at the end of everything. */
void bench_value(const char *name, double value);
/* What one run of `row` takes at least on this machine, in seconds. */
double bench_floor(const bench_row *row);
double bench_peak(void);                                  /* multiply-adds of one thread, in flops per second     */
/* Seconds in which so many threads share these bytes: to read half of them and to write the other half, and to read all. */
double bench_update_seconds(double bytes, int threads);
double bench_read_seconds(double bytes, int threads);

/* ---- ours */
tn_ctx *bench_ctx(tn_dtype dtype, int threads);          /* made once, until the end */
/* The same; NULL where the processor gains nothing by this precision. */
tn_ctx *bench_ctx_by(tn_gemm_precision precision, tn_dtype activations, int threads);
void    bench_fresh(tn_params *params);                   /* the gradients count as new, not as used up by a step */
void   *bench_state(tn_ctx *ctx);                         /* what its backend's kernels are handed */
tn_tensor *bench_normal(tn_ctx *ctx, int rank, const int64_t *shape, double std);     /* owned */
void    bench_region(tn_ctx *ctx, int64_t tasks, tn_task_fn fn, void *arg);             /* in parallel */
void    bench_check(tn_ctx *ctx);                        /* an error ends the program, with its message */

/* Works in any context; they live as long as it does. */
bench_side bench_lm_work(tn_ctx *ctx, int kind, int layers);                  /* a step; kinds as in lm.c        */
/* *tokens per run; for each, *weights bytes of weights are read. */
bench_side bench_decode_work(tn_ctx *ctx, int kind, int texts, int *tokens, double *weights);
bench_side bench_fashion_work(tn_ctx *ctx, int batch);                        /* a step of 784-256-10            */

/* ---- peers */
void      *bench_openblas(const char *symbol, int threads);          /* NULL where the library is not there       */
/* A work of torch_peer.py in all its forms: "cross_entropy 4096 2048". Without PyTorch none. */
bench_peers bench_torch(const char *work, int threads);
bool       bench_has(const char *package);               /* which torch_peer.py can use: "tensorkrowch"   */

void bench_gemm(void);
void bench_pieces(void);
void bench_step(void);
void bench_lm(void);
void bench_operator(void);
void bench_scan(void);
void bench_chains(void);
void bench_einsum(void);
void bench_attention(void);
void bench_predict(void);
void bench_decode(void);
void bench_profile(void);
void bench_threads(void);

#endif
