/* kit.h: what tests share beside the harness: contexts, a world (a context, its parameters and the heap they live on, which must be
   empty in the end), random numbers and tensors, and the dense tensor of an operator by plain loops.

       world w;
       if (!open_world(&w, TN_F64, 11)) return;
       double *x = noise(&w, 6);         (6 random numbers, which no test has to free)
       tn_cp  *cp = any_cp(&w, 2, 3, 4, 5, false);
       fresh(&w);                        (ends what lasts for one round of a loop: arena tensors, numbers, parameters)
       close_world(&w);                  (ends it, and checks that there is no error and that nothing is left) */

#ifndef TN_KIT_H
#define TN_KIT_H

#include "test.h"

static const tn_dtype f64_f32[] = {TN_F64, TN_F32};

/* ---- numbers ---------------------------------------------------------------- */

static inline int64_t shape_count(int rank, const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= shape[i];
    return n;
}

static inline double noise_at(int64_t i, int64_t j)
{
    uint64_t state = (uint64_t)(i * 100003 + j);
    return test_random_real(&state);
}

static inline double *random_doubles(int64_t n, uint64_t seed)
{
    double *v = doubles(n);
    for (int64_t i = 0; i < n; i++) v[i] = test_random_real(&seed);
    return v;
}

static inline double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static inline double frobenius(const double *a, int64_t n) { return sqrt(dot(a, a, n)); }

/* ---- contexts --------------------------------------------------------------- */

static inline tn_ctx *ctx_new(const tn_desc *desc)                     /* NULL, and a failed check, if it is refused */
{
    tn_ctx *ctx;
    char    why[TN_WHY];
    if (!CHECK_STATUS(tn_ctx_create(desc, &ctx, why), TN_OK)) printf("     %s\n", why);
    return ctx;
}

static inline tn_ctx *ctx_on(const tn_backend *backend, tn_dtype dtype, tn_simd simd, int threads)
{
    tn_desc d = ZERO;
    d.backend = backend;
    d.dtype = dtype;
    d.simd = simd;
    d.threads = threads;
    d.seed = 5;
    return ctx_new(&d);
}

static inline tn_ctx *ctx_of(tn_dtype dtype) { return ctx_on(NULL, dtype, TN_SIMD_AUTO, 0); }

static inline tn_ctx *ctx_threads(tn_dtype dtype, int threads, tn_parallel_for_fn pool)         /* pool NULL: the library's */
{
    tn_desc d = ZERO;
    d.dtype = dtype;
    d.threads = threads;
    d.parallel_for = pool;
    return ctx_new(&d);
}

/* On a heap (NULL: malloc's), with at most so many bytes (0: no limit). */
static inline tn_ctx *ctx_in(test_heap *heap, tn_dtype dtype, size_t max_bytes)
{
    tn_desc d = ZERO;
    d.dtype = dtype;
    d.seed = 5;
    d.threads = 1;
    d.max_bytes = max_bytes;
    if (heap) d.allocator = test_heap_allocator(heap);
    return ctx_new(&d);
}

/* ---- worlds ------------------------------------------------------------------ */

typedef struct world {
    tn_ctx    *ctx;
    tn_params *params;
    uint64_t   seed;
    test_heap  heap;
} world;

static inline bool open_as(world *w, tn_dtype dtype, tn_dtype activations, uint64_t seed, int threads,
                           const tn_backend *backend)
{
    tn_desc desc = ZERO;
    memset(w, 0, sizeof *w);
    desc.dtype = dtype;
    desc.activations = activations;
    desc.seed = w->seed = seed;
    desc.threads = threads;
    desc.backend = backend;
    desc.backend_required = true;
    desc.allocator = test_heap_allocator(&w->heap);
    if (!CHECK(tn_ctx_create(&desc, &w->ctx, NULL) == TN_OK)) return false;
    w->params = tn_params_create(w->ctx);
    return CHECK(w->params != NULL);
}

static inline bool open_on(world *w, tn_dtype dtype, uint64_t seed, int threads, const tn_backend *backend)
{
    return open_as(w, dtype, TN_REAL, seed, threads, backend);
}

static inline void close_world(world *w)
{
    CHECK_CTX(w->ctx);
    tn_ctx_destroy(w->ctx);
    CHECK_INT(w->heap.live, 0);
    CHECK_INT(w->heap.blocks, 0);
}

static inline bool open_world(world *w, tn_dtype dtype, uint64_t seed) { return open_on(w, dtype, seed, 1, NULL); }

static inline void fresh(world *w)
{
    tn_ctx_reset(w->ctx);
    tn_params_destroy(w->params);
    w->params = tn_params_create(w->ctx);
    tidy();
}

/* A world whose context has at most so many bytes (0: no limit), and no parameters. */
static inline bool open_within(world *w, tn_dtype dtype, uint64_t seed, size_t max_bytes)
{
    tn_desc d = ZERO;
    memset(w, 0, sizeof *w);
    d.dtype = dtype;
    d.seed = w->seed = seed;
    d.max_bytes = max_bytes;
    d.arena_bytes = 1 << 16;
    d.allocator = test_heap_allocator(&w->heap);
    return CHECK_STATUS(tn_ctx_create(&d, &w->ctx, NULL), TN_OK);
}

/* "identity F64" with its largest error, and the bound of each precision */
static inline void report_as(const char *what, tn_dtype dtype, double worst, double bound_f64, double bound_f32)
{
    char name[128];
    snprintf(name, sizeof name, "%s %s", what, dtype == TN_F64 ? "F64" : "F32");
    WORST(name, worst, dtype == TN_F64 ? bound_f64 : bound_f32);
}

/* ---- tensors --------------------------------------------------------------- */

static inline tn_tensor *tensor_from(tn_ctx *ctx, int rank, const int64_t *shape, const double *values)
{
    tn_tensor *t = tn_tensor_from(ctx, rank, shape, TN_F64, values);
    CHECK(t != NULL);
    return t;
}

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
    double *v = doubles(n);
    for (int64_t i = 0; i < n; i++) v[i] = test_random_real(&w->seed);
    return v;
}

static inline tn_tensor *any_matrix(world *w, int64_t n, int64_t m) { return matrix(w, n, m, noise(w, n * m)); }
static inline tn_tensor *any_vector(world *w, int64_t n)            { return vector(w, n, noise(w, n)); }

static inline double *host(const tn_tensor *t)
{
    const int64_t n = t ? tn_tensor_count(t) : 0;
    double       *v = doubles(n);
    if (CHECK(t != NULL)) CHECK_STATUS(tn_read(t, TN_F64, v, n), TN_OK);
    return v;
}

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
    double *dense = doubles(cp->out * inputs), *p = host(cp->p), *f[TN_CP_MAX_ORDER];
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

/* ---- files and texts --------------------------------------------------------- */

static inline bool write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    bool  ok = f && fwrite(text, 1, strlen(text), f) == strlen(text);
    return CHECK(f && fclose(f) == 0 && ok);
}

static inline bool file_is(const char *path, const char *text)          /* of at most 63 bytes */
{
    char   got[64] = "";
    FILE  *f = fopen(path, "rb");
    size_t n = f ? fread(got, 1, sizeof got, f) : 0;
    if (f) fclose(f);
    return f && n == strlen(text) && memcmp(got, text, n) == 0;
}

/* The numbers of a list in golden.json; returns how many. */
static inline int golden_numbers(const char *json, const char *key, double *out, int room)
{
    char  quoted[32];
    char *end;
    int   n = 0;
    snprintf(quoted, sizeof quoted, "\"%s\":[", key);
    const char *at = strstr(json, quoted);
    if (!CHECK(at)) return 0;
    for (at += strlen(quoted); *at != ']' && n < room; at = *end == ',' ? end + 1 : end) out[n++] = strtod(at, &end);
    return n;
}

/* A copy of its exact size, so that a sanitizer sees the first byte too many; ` becomes ". */
static inline char *exact_copy(const char *text, size_t n)
{
    char *p = (char *)malloc(n ? n : 1);
    for (size_t i = 0; p && i < n; i++) p[i] = (char)(text[i] == '`' ? '"' : text[i]);
    return p;
}

/* What tn_tokenizer_write gives, with a zero. */
static inline char *written(const tn_tokenizer *t, size_t *n)
{
    CHECK_STATUS(tn_tokenizer_write(t, tn_sink_memory(NULL, 0, n)), TN_OK);
    char *p = (char *)malloc(*n + 1);
    if (!CHECK(p)) return NULL;
    CHECK_STATUS(tn_tokenizer_write(t, tn_sink_memory(p, *n, n)), TN_OK);
    p[*n] = 0;
    return p;
}

static inline unsigned hex4(const char *s)
{
    char digits[5] = {0};
    memcpy(digits, s, 4);
    return (unsigned)strtoul(digits, NULL, 16);
}

static inline size_t put_utf8(char *dst, unsigned c)
{
    if (c < 0x80) { dst[0] = (char)c; return 1; }
    if (c < 0x800) { dst[0] = (char)(0xC0 | c >> 6); dst[1] = (char)(0x80 | (c & 63)); return 2; }
    if (c < 0x10000) { dst[0] = (char)(0xE0 | c >> 12); dst[1] = (char)(0x80 | (c >> 6 & 63)); dst[2] = (char)(0x80 | (c & 63)); return 3; }
    dst[0] = (char)(0xF0 | c >> 18); dst[1] = (char)(0x80 | (c >> 12 & 63)); dst[2] = (char)(0x80 | (c >> 6 & 63));
    dst[3] = (char)(0x80 | (c & 63));
    return 4;
}

#endif
