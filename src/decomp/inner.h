#pragma once
#include "core/inner.h"
#include "kernels/inner.h"
#include "decomp/decomp.h"

#ifndef TN_NO_OPERATOR
#define TNI_EPS 2.220446049250313e-16         /* 2^-52 */

static inline double *tni_aligned(double *p) { return (double *)(void *)((char *)p + (0 - (uintptr_t)p) % TNI_ALIGN); }

static inline tni_mat tni_mat_of(double *p, int64_t row, int64_t col) { tni_mat m; m.p = p; m.row = row; m.col = col; return m; }
static inline tni_mat tni_rows(double *p, int64_t row)                { return tni_mat_of(p, row, 1); }     /* row-major      */
static inline tni_mat tni_transposed(tni_mat m)                       { return tni_mat_of(m.p, m.col, m.row); }
static inline tni_mat tni_from(tni_mat m, int64_t i, int64_t j)       { m.p += i * m.row + j * m.col; return m; }

static inline double tni_ldexp(double x, int64_t exponent) { return ldexp(x, (int)tni_max(-9999, tni_min(9999, exponent))); }

static inline double tni_max_f64(double a, double b) { return b > a ? b : a; }

/* Sorts values together with their rows. A selection sort needs few swaps, which are what costs time here. */
static inline bool tni_before_ascending(double a, double b)  { return a < b; }
static inline bool tni_before_descending(double a, double b) { return a > b; }
static inline bool tni_before_magnitude(double a, double b)  { return fabs(a) > fabs(b) || (fabs(a) == fabs(b) && a > b); }

enum { TNI_BLOCK = 32 };                       /* reflections in a block */

enum {
    TNI_TRIDIAGONAL_BANDS = 8, TNI_TRIDIAGONAL_BAND = 96,         /* most bands of a triangle; fewest rows, in the mean */
    TNI_TRIDIAGONAL_ROW = 16                   /* numbers that take as long as what each row costs besides its numbers  */
};

typedef struct tni_rotations {
    const tni_host *host;
    double *list, *z;                          /* z: [n,TNI_STRIP], or NULL: values only */
    int64_t used, max, header;                 /* header: where this sweep began         */
} tni_rotations;

/* d, e: diagonal and off-diagonal of T; d becomes the eigenvalues, in any order. An e up to `nothing`, which is eps
   times the largest element of T, counts as zero. (Compared with its neighbours only, rounding errors of zero
   eigenvalues may never converge.) */
enum { TNI_QL_SWEEPS = 60 };                   /* per eigenvalue; the mean is about 1.7 */

enum {
    TNI_LEAF = 32,                             /* most rows that QL takes        */
    TNI_LEAF_ROTATIONS = 512,                  /* numbers: sweeps of a leaf that are applied together, about ten */
    TNI_ROOT_STEPS = 200,                      /* most need five or six          */
    TNI_MERGE_SHARE = 32,                      /* poles per task                 */
    TNI_MERGE_ARRAYS = 11, TNI_MERGE_LISTS = 5
};

typedef struct tni_divide {
    const tni_host *host;
    const tni_vector_ops *ops;
    int64_t   n, top;                          /* top: rows of Z to compute, if n > TNI_LEAF    */
    char     *z;                               /* [n,n]                                         */
    double   *d, *e;                           /* [n]                                           */
    double   *ends[2];                         /* [n]: of each row of Z its first component, and its last one, in the
                                                  columns of its block                          */
    double    nothing;                         /* an off-diagonal up to this is zero            */
    char     *packed, *turn;                   /* [n,n] each: rows of Z to join, their factor   */
    double   *rows;                            /* [n] for each TNI_MERGE_SHARE poles            */
    double   *arrays;                          /* TNI_MERGE_ARRAYS of [n], of numbers           */
    int64_t  *lists;                           /* TNI_MERGE_LISTS of [n], of indices            */
} tni_divide;

typedef struct tni_complex { double re, im; } tni_complex;

static inline tni_complex tni_complex_of(double re, double im) { tni_complex c; c.re = re; c.im = im; return c; }
TNI_UNUSED static inline tni_complex tni_times(tni_complex a, tni_complex b)
{
    return tni_complex_of(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
}

typedef struct tni_lanczos_job {
    const tni_pool *pool;
    tn_simd         simd;
    tni_host        host;
    int64_t        n, top, block, basis, limit;          /* basis: rows of V */
    tn_lanczos_which end;
    double         tol;
    uint64_t       seed;
    tn_matvec_fn  fn;
    void          *user;
    int64_t        used, last, next;                     /* rows of V; of its last block; of Q, which is below V */
    int64_t        products, draws;
    bool           anew, done;                           /* the last block was random; the pairs are found           */
    double         before;                               /* key of the last wanted pair when that block was drawn    */
    double         scale, norm, skew, residual;          /* y times scale is about one; |A|; |H - H^T|               */
    double        *v, *y;                                /* [basis + block,n]  [block,n]                             */
    double        *h, *copy, *s, *theta;                 /* [basis + block,basis]  [basis,basis] twice  [basis]      */
    double        *c, *sum, *r, *length, *strip, *rest;
} tni_lanczos_job;

typedef struct tni_few {
    const tni_host *host;
    int64_t  m, n, k;                            /* k: vectors to compute       */
    tni_mat  a;                                  /* [m,n], m >= n               */
    int64_t  width, power;                       /* of a block; blocks after the first */
    uint64_t seed;
    double  *product;                            /* [width,m]                   */
    tni_lanczos_job lanczos;
} tni_few;

/* What the truncation of bonds shares: C [m,n] becomes U [m,r] and the rest of the tensor, diag(s) Vt [r,n], in c. */
typedef struct tni_tt_job {
    tni_host host;
    double   delta, dropped, gap;        /* the norm that a bond may drop; the squares that all have dropped */
    int64_t  limit;
    double   relative;
    double  *c, *u, *s, *vt, *work;
} tni_tt_job;

/* The whole train as doubles: core k at at[k], with its ranks as they are now, r[k] and r[k + 1]. */
typedef struct tni_tt_round_job {
    tni_tt_job cut;
    double    *cores, *left;             /* all cores; L, the factor that moves on */
    int64_t   *at, *r;
    int64_t    exponent;                 /* the tensor is 2^exponent times the cores */
} tni_tt_round_job;

TNI_UNUSED static inline void tni_swap_pointers(double **a, double **b) { double *t = *a; *a = *b; *b = t; }
#endif /* TN_NO_OPERATOR */

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

#ifndef TN_NO_OPERATOR
/* host.c */
TNI_FN int64_t tni_host_work(int64_t extent);
TNI_FN tni_host tni_host_of(tn_simd level, const tni_pool *pool, int64_t extent, double *work);
TNI_FN void tni_swap(int64_t n, double *x, double *y);
TNI_FN void tni_unit_matrix(int64_t n, double *x);
TNI_FN void tni_keep_columns(int64_t m, int64_t k, int64_t r, const double *x, double *y);
TNI_FN double tni_largest(int64_t m, int64_t n, tni_mat a);
TNI_FN double tni_largest_of(int64_t n, const double *x);
TNI_FN double tni_unit_scale(double largest);
TNI_FN int tni_exponent(double power);
TNI_FN double tni_frobenius(int64_t n, const double *x);
TNI_FN void tni_random_signed(uint64_t seed, int64_t call, uint32_t clock, int64_t n, double *x);
TNI_FN void tni_sort_rows(int64_t n, double *values, bool (*before)(double, double), int64_t cols, double *rows,
                          double *more_rows);
TNI_FN bool tni_points_down(int64_t n, const double *x, int64_t stride);
TNI_FN void tni_up(const tni_host *h, int64_t n, double *x);
TNI_FN double tni_reflector(const tni_host *h, int64_t n, double *x, double *tau);
TNI_FN void tni_block_factor(const tni_host *h, int64_t m, int64_t w, tni_mat v, const double *tau, double *gram, double *t);
TNI_FN int64_t tni_reflect_work(int64_t m, int64_t n, int64_t most);
TNI_FN void tni_reflect(const tni_host *h, int64_t m, int64_t n, int64_t w, tni_mat v, const double *tau, bool transposed,
                        tni_mat c, double *work);

/* qr.c */
TNI_FN int64_t tni_qr_work(int64_t m, int64_t n);
TNI_FN void tni_qr_panel(const tni_host *h, int64_t m, int64_t first, int64_t w, double *at, double *tau, tni_mat r);
TNI_FN tn_status tni_qr(const tni_host *h, int64_t m, int64_t n, tni_mat a, tni_mat q, tni_mat r, double *work);
TNI_FN int64_t tni_pivoted_work(int64_t m, int64_t n);
TNI_FN tn_status tni_pivoted_qr(const tni_host *h, int64_t m, int64_t n, tni_mat a, tni_mat q, double *r, int64_t *order,
                                double *work);
TNI_FN int64_t tni_pivoted_rank(int64_t k, int64_t n, const double *r, double tol);
TNI_FN int64_t tni_lstsq_work(int64_t m, int64_t n);
TNI_FN tn_status tni_lstsq(const tni_host *h, int64_t m, int64_t n, int64_t count, tni_mat a, double *b, double *x,
                           double tol, int64_t *rank, double *work);

/* tridiagonal.c */
TNI_FN int64_t tni_tridiagonal_work(int64_t n);
TNI_FN void tni_tridiagonal(const tni_host *h, int64_t n, double *a, int64_t ld, double *d, double *e, double *tau, double *ws);
TNI_FN tn_status tni_ql(int64_t n, double *d, double *e, double nothing, int sweeps, tni_rotations *rotations);

/* divide.c */
TNI_FN void tni_sort_index(int64_t n, const double *x, int64_t *order, int64_t *spare);
TNI_FN tn_status tni_divide_run(const tni_divide *v);

/* eigh.c */
TNI_FN int64_t tni_eigh_work_of(int64_t n, int64_t size);
TNI_FN int64_t tni_eigh_work(int64_t n);
TNI_FN tn_status tni_eigh_in(const tni_host *h, const tni_vector_ops *ops, int64_t n, int64_t top, double *a, int64_t ld,
                             double *values, double *vectors, double *work);
TNI_FN tn_status tni_eigh(const tni_host *h, int64_t n, double *a, double *values, double *vectors, double *work);

/* eig.c */
TNI_FN int64_t tni_eig_work(int64_t n);
TNI_FN tn_status tni_eig(const tni_host *h, int64_t n, double *a, double *re, double *im, double *right, double *left,
                         double *work);

/* lanczos.c */
TNI_FN int64_t tni_lanczos_work(const tni_lanczos_job *l);
TNI_FN void tni_lanczos_lay(tni_lanczos_job *l, double *work);
TNI_FN tn_status tni_lanczos_begin(tni_lanczos_job *l);
TNI_FN tn_status tni_lanczos_take(tni_lanczos_job *l);
TNI_FN void tni_lanczos_end(tni_lanczos_job *l);
TNI_FN tn_status tni_lanczos(tni_lanczos_job *l);

/* svd.c */
TNI_FN int64_t tni_svd_work(int64_t m, int64_t n);
TNI_FN void tni_svd_signs(int64_t m, int64_t n, int64_t k, tni_mat u, tni_mat vt);
TNI_FN tn_status tni_svd(const tni_host *h, int64_t m, int64_t n, tni_mat a, tni_mat u, double *s, tni_mat vt, double *work);
TNI_FN tn_status tni_few_times(void *user, int64_t count, const double *x, double *y);
TNI_FN tn_status tni_few_krylov(tni_scratch *w, tni_few *f, tni_mat u, double *s, tni_mat vt);
TNI_FN tn_status tni_few_random(tni_scratch *scratch, tni_few *f, tni_mat u, double *s, tni_mat vt);
TNI_FN double tni_few_residual(const tni_host *h, int64_t m, int64_t n, int64_t top, tni_mat a, tni_mat u, const double *s,
                               tni_mat vt, double *rest, double *largest);

/* tensors.c */
TNI_FN bool tni_decomp_fits(tn_ctx *ctx, const char *op, int64_t m, int64_t n);
TNI_FN tn_status tni_decomp_takes(tn_ctx *ctx, const char *op, const tn_tensor *a);
TNI_FN int64_t tni_decomp_top(tn_ctx *ctx, const char *op, int64_t top, int64_t all);
TNI_FN bool tni_decomp_out(tn_ctx *ctx, const char *op, void *out, size_t bytes);
TNI_FN tn_status tni_read_scaled(tn_ctx *ctx, const char *op, const char *what, const tn_tensor *a, double *p, double *scale);
TNI_FN tni_host tni_decomp_host(tn_ctx *ctx, int64_t extent, double *work);
TNI_FN tni_host tni_take_host(tni_scratch *w, int64_t extent);
TNI_FN tn_status tni_write_new(tn_ctx *ctx, const char *op, tn_tensor **out, int rank, const int64_t *shape, const double *p);
TNI_FN tn_status tni_decomp_put(tn_ctx *ctx, const char *op, tn_tensor **out, tn_dtype dtype, int64_t batch, int rank,
                                int64_t n, int64_t m, const double *p);
TNI_FN tn_status tni_decomp_write(tn_ctx *ctx, const char *op, tn_tensor **out, int rank, int64_t n, int64_t m,
                                  const double *p);
TNI_FN tn_status tni_count_check(tn_ctx *ctx, const char *op, const char *what, int64_t count);
TNI_FN tn_status tni_truncation_check(tn_ctx *ctx, const char *op, const tn_truncation *t);
TNI_FN double tni_dtype_eps(tn_dtype d);
TNI_FN void tni_decomp_round(tn_ctx *ctx, int64_t n, double *p);
TNI_FN tn_status tni_decomp_unscaled(tn_ctx *ctx, const char *op, tn_tensor **out, int rank, int64_t n, int64_t m, double *p,
                                     double scale);
TNI_FN void tni_symmetrise(int64_t n, double *a);
TNI_FN tn_status tni_symmetric_parts(tn_ctx *ctx, const char *op, const char *what, const char *advice, const tn_tensor *a,
                                     double *p);
TNI_FN tn_status tni_qr_tensor(tni_scratch *w, tn_qr_result *out, const tn_tensor *a, const tn_qr_desc *desc);
TNI_FN tn_status tni_lstsq_tensor(tni_scratch *w, tn_lstsq_result *out, const tn_tensor *a, const tn_tensor *b,
                                  const tn_lstsq_desc *desc);
TNI_FN bool tni_few_plan(tn_ctx *ctx, tni_few *f, const tn_tensor *a, const tn_svd_desc *desc);
TNI_FN tn_status tni_few_tensor(tni_scratch *w, tn_svd_result *out, const tn_tensor *a, const tn_svd_desc *desc, tni_few *f);
TNI_FN tn_status tni_svd_tensor(tni_scratch *w, tn_svd_result *out, const tn_tensor *a, const tn_svd_desc *desc);
TNI_FN void tni_drop(tn_tensor **t);
TNI_FN void tni_drop_clusters(tn_tensor **cluster, tn_tensor **angle);

/* eig_tensors.c */
TNI_FN tn_status tni_lanczos_plan(tn_ctx *ctx, tni_lanczos_job *l, int64_t n, const tn_lanczos_desc *d);
TNI_FN tn_status tni_eps_check(tn_ctx *ctx, const char *op, const char *what, double eps);
TNI_FN int64_t tni_tail_rank(int64_t n, const double *s, double delta);
TNI_FN double tni_tail_squares(int64_t n, const double *s, int64_t rank);
TNI_FN double tni_gap(int64_t n, const double *s, int64_t rank);

#ifndef TN_NO_ANALYSIS
/* trains.c */
TNI_FN tn_tt *tni_tt_make(tn_ctx *ctx, const char *op, int64_t count);
TNI_FN tn_tt *tni_tt_done(tn_tt *tt, tn_status s);
TNI_FN tn_status tni_tt_put(tn_tt *tt, const char *op, int64_t k, int64_t r, int64_t n, int64_t s, const double *p);
TNI_FN tn_status tni_tt_options(tn_ctx *ctx, const char *op, const tn_tt_desc *desc, double *eps, tni_tt_job *j);
TNI_FN tn_status tni_tt_cut(tni_tt_job *j, int64_t m, int64_t n, int64_t *rank);
TNI_FN void tni_tt_take(tni_scratch *w, tni_tt_job *j, int64_t c, int64_t u, int64_t s, int64_t vt, int64_t work,
                        int64_t extent);
TNI_FN void tni_tt_rescale(const tni_host *h, int64_t n, double *x, int64_t *exponent);
TNI_FN tn_status tni_tt_orthonormal(const tn_tt *from, const char *op, tni_tt_round_job *j, double *norm);
TNI_FN void tni_tt_round_take(tni_scratch *w, const tn_tt *from, tni_tt_round_job *j);
TNI_FN bool tni_tt_given(const tn_tt *tt, const char *op, const char *what, const void *p);
TNI_FN int64_t tni_tt_largest_core(const tn_tt *tt);
TNI_FN tn_status tni_tt_inner(const tn_tt *a, const tn_tt *b, const char *op, double *inner, int64_t *exponent);
TNI_FN tn_status tni_tt_norm(const tn_tt *tt, const char *op, double *norm, int64_t *exponent);

/* hosvd.c */
TNI_FN int64_t tni_axis_chunk(int64_t n);
TNI_FN int64_t tni_axis_work(int64_t n, int64_t others);
TNI_FN tn_status tni_axis_svd(const tni_host *h, int64_t l, int64_t n, int64_t q, const double *x, double *u, double *s,
                              double *work);
TNI_FN int64_t tni_product_of(int count, const int64_t *n, int skip);
#endif /* TN_NO_ANALYSIS */
#endif /* TN_NO_OPERATOR */

#endif
