/* rooms.h: what tests of operators and networks share: numbers that live until the end of a test, random tensors, and the
   dense tensor of an operator by plain loops.

       world w;
       if (!open_world(&w, TN_F64, 11)) return;
       double *x = noise(&w, 6);         (6 random numbers, which no test has to free)
       tn_cp  *cp = any_cp(&w, 2, 3, 4, 5, false);
       fresh(&w);                        (ends what lasts for one round of a loop: arena tensors, numbers, parameters)
       leave(&w);                        (ends everything, and checks that there is no error and that nothing is left) */

#ifndef TN_ROOMS_H
#define TN_ROOMS_H

#include "world.h"

/* ---- memory ---------------------------------------------------------------- */

enum { ROOMS = 20000 };
static struct { double *at[ROOMS]; int used; } rooms;

static inline double *room(int64_t n)                                 /* n zeros, until tidy */
{
    double *p = (double *)calloc((size_t)n + 1, sizeof *p);
    if (rooms.used == ROOMS || !p) abort();
    return rooms.at[rooms.used++] = p;
}

static inline void tidy(void) { while (rooms.used > 0) free(rooms.at[--rooms.used]); }

static inline bool open_world(world *w, tn_dtype dtype, uint64_t seed) { return open_on(w, dtype, seed, 1, NULL); }

static inline void leave(world *w)
{
    close_world(w);
    tidy();
}

static inline void fresh(world *w)
{
    tn_ctx_reset(w->ctx);
    tn_params_destroy(w->params);
    w->params = tn_params_create(w->ctx);
    tidy();
}

/* A context alone. max_bytes 0: no limit. */
static inline tn_ctx *open_ctx(tn_dtype dtype, size_t max_bytes)
{
    tn_ctx *ctx = NULL;
    tn_desc d;
    memset(&d, 0, sizeof d);
    d.dtype = dtype;
    d.seed = 5;
    d.max_bytes = max_bytes;
    CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK);
    return ctx;
}

static inline void close_ctx(tn_ctx *ctx)
{
    CHECK_CTX(ctx);
    tn_ctx_destroy(ctx);
    tidy();
}

/* A world whose context has at most so many bytes (0: no limit), and no parameters. */
static inline bool open_within(world *w, tn_dtype dtype, uint64_t seed, size_t max_bytes)
{
    tn_desc d;
    memset(w, 0, sizeof *w);
    memset(&d, 0, sizeof d);
    d.dtype = dtype;
    d.seed = w->seed = seed;
    d.max_bytes = max_bytes;
    d.arena_bytes = 1 << 16;
    d.allocator = test_heap_allocator(&w->heap);
    return CHECK_STATUS(tn_ctx_create(&d, &w->ctx, NULL), TN_OK);
}

static const tn_dtype both[] = {TN_F64, TN_F32};

/* "identity F64" with its largest error, and the bound of each precision */
static inline void report_as(const char *what, tn_dtype dtype, double worst, double bound_f64, double bound_f32)
{
    char name[128];
    snprintf(name, sizeof name, "%s %s", what, dtype == TN_F64 ? "F64" : "F32");
    WORST(name, worst, dtype == TN_F64 ? bound_f64 : bound_f32);
}

/* A call that returns NULL, with this error. */
#define REFUSED(ctx, call, status, part) do { CHECK(!(call)); CHECK_ERROR(ctx, status, part); } while (0)

/* ---- tensors --------------------------------------------------------------- */

static inline tn_tensor *tensor(world *w, int rank, int64_t n, int64_t m, const double *values)
{
    tn_tensor *t = rank == 1 ? tn_tensor_1d(w->ctx, TN_REAL, n) : tn_tensor_2d(w->ctx, TN_REAL, n, m);
    CHECK(t && tn_write(t, TN_F64, values, rank == 1 ? n : n * m) == TN_OK);
    return t;
}

static inline tn_tensor *matrix(world *w, int64_t n, int64_t m, const double *values) { return tensor(w, 2, n, m, values); }
static inline tn_tensor *vector(world *w, int64_t n, const double *values)            { return tensor(w, 1, n, 0, values); }

static inline double *noise(world *w, int64_t n)
{
    double *v = room(n);
    for (int64_t i = 0; i < n; i++) v[i] = test_random_real(&w->seed);
    return v;
}

static inline tn_tensor *any_matrix(world *w, int64_t n, int64_t m) { return matrix(w, n, m, noise(w, n * m)); }
static inline tn_tensor *any_vector(world *w, int64_t n)            { return vector(w, n, noise(w, n)); }

static inline double *host(const tn_tensor *t)
{
    const int64_t n = t ? tn_tensor_count(t) : 0;
    double       *v = room(n);
    CHECK(t && tn_read(t, TN_F64, v, n) == TN_OK);
    return v;
}

static inline double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static inline double frobenius(const double *a, int64_t n) { return sqrt(dot(a, a, n)); }

/* |t - v| / |v|; 1 if t is missing or has another number of elements. */
static inline double error_from(const tn_tensor *t, const double *v, int64_t n)
{
    if (!CHECK(t != NULL) || !CHECK_INT(tn_tensor_count(t), n)) return 1;
    return test_frobenius(host(t), v, n);
}

/* ---- operators -------------------------------------------------------------- */

static inline tn_cp *any_cp(world *w, int order, int64_t out, int64_t terms, int64_t n, bool constant)
{
    tn_tensor *p = any_matrix(w, out, terms), *f[TN_CP_MAX_ORDER];
    for (int k = 0; k < order; k++) f[k] = any_matrix(w, terms, n);
    return tn_cp_create(w->ctx, order, p, f, constant ? TN_CP_INPUT_CONSTANT : TN_CP_INPUT_PLAIN);
}

static inline int64_t inputs_of(const tn_cp *cp)
{
    int64_t n = 1;
    for (int k = 0; k < cp->order; k++) n *= cp->in[k];
    return n;
}

/* B[o,i_0,..] = sum_h P[o,h] prod_k F_k[h,i_k] */
static inline double *plain_dense(const tn_cp *cp)
{
    int64_t inputs = inputs_of(cp);
    double *dense = room(cp->out * inputs), *p = host(cp->p), *f[TN_CP_MAX_ORDER];
    for (int k = 0; k < cp->order; k++) f[k] = host(cp->f[k]);
    for (int64_t o = 0; o < cp->out; o++)
        for (int64_t at = 0; at < inputs; at++)
            for (int64_t h = 0; h < cp->terms; h++) {
                double  product = p[o * cp->terms + h];
                int64_t rest = at;
                for (int k = cp->order - 1; k >= 0; rest /= cp->in[k--]) product *= f[k][h * cp->in[k] + rest % cp->in[k]];
                dense[o * inputs + at] += product;
            }
    return dense;
}

#endif
