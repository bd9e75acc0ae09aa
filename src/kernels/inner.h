#pragma once
#include "core/inner.h"
#include "cpu/inner.h"

/* ---- what all levels have: masks, and the tables of inner loops ---------- >>cpu-passes */
#if TNI_AVX2
static const int32_t tni_lane_mask[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
#endif
static const uint32_t tni_lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

#if TNI_AVX512 && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define TNI_BF16 1
#include <cpuid.h>
#else
#define TNI_BF16 0
#endif

#ifndef TN_NO_OPERATOR
enum { TNI_STRIP = 32 };                 /* columns that are rotated together */

/* A matrix in place: element (i,j) is p[i row + j col]. */
typedef struct tni_mat { double *p; int64_t row, col; } tni_mat;

/* Sums of z_i^2/pole_i and of its magnitude, of z_i^2/pole_i^2 and z_i^2/pole_i^3. */
typedef struct tni_sums { double value, size, slope, bend; } tni_sums;

typedef struct tni_algebra tni_algebra;
typedef struct tni_host {               /* the inner loops, the threads, and two blocks for gemm */
    const tni_algebra *by;
    const tni_pool    *pool;
    char              *blocks;
    int64_t            bytes;           /* of each */
} tni_host;

struct tni_algebra {
    /* C[m,n] = alpha A[m,k] B[k,n] + beta C. beta == 0 never reads C. */
    void   (*gemm)(const tni_host *h, int64_t m, int64_t n, int64_t k, double alpha, tni_mat a, tni_mat b, double beta,
                   tni_mat c);
    double (*dot)(int64_t n, const double *x, const double *y);
    void   (*axpy)(int64_t n, double alpha, const double *x, double *y);             /* y += alpha x              */
    void   (*scale)(int64_t n, double alpha, double *x);
    void   (*rotate)(int64_t n, double c, double s, double *x, double *y);           /* [x;y] = [c -s; s c] [x;y] */
    /* [x;y;z] -= tau v (v^T [x;y;z]), v = (1,v1,v2) */
    void   (*reflect3)(int64_t n, double tau, double v1, double v2, double *x, double *y, double *z);
    /* A -= v w^T + w v^T, and then y = A x, both without the first `from` rows and columns. Only the upper triangle of A is
       read and written, of its rows those before `end`, n or a multiple of 4, and both triangles of the blocks of 4 x 4 on
       the diagonal; x is zero before `from`, where v and w are finite; none of the three is in A. */
    void   (*upper_times)(int64_t from, int64_t end, int64_t n, double *a, int64_t stride, const double *v, const double *w,
                          const double *x, double *y);
    void   (*rotate_strip)(const double *list, const double *end, double *strip);    /* >>eigh-ql                 */
    /* >>eigh, divide and conquer: pole_i = d_i - origin - tau */
    tni_sums (*poles)(int64_t n, const double *d, const double *z, double origin, double tau);
    /* w_i *= pole_i/(d_i - other) */
    void   (*weights)(int64_t n, const double *d, double origin, double tau, double other, double *w);
    /* row_i = z_i/pole_i, then to unit length */
    void   (*pole_vector)(int64_t n, const double *d, const double *z, double origin, double tau, double *row);
    /* >>cp-pairs, order 2: from a row of [A_00 A_01] and of [A_10 A_11], k = weight/2 (A_00 A_11 + A_01 A_10); then, unless
       pp is NULL, each A_st is replaced by weight pp times the A that has neither its row nor its column */
    void   (*pair_products)(int64_t n, double weight, double *first, double *second, const double *pp, double *k);
    const struct tni_vector_ops *vectors;                                            /* of doubles                */
};

/* What is done with eigenvectors, as floats or as doubles: void * is an array of either. */
typedef struct tni_vector_ops {
    int64_t size;                       /* of a number, in bytes */
    int     lanes, tile_rows;           /* columns of a strip, a multiple of a tile's; rows of a tile */
    void  (*from)(int64_t n, const double *x, void *y);
    void  (*column)(int64_t n, const void *strip, double *y);        /* y_i = strip[i lanes]                   */
    void  (*rotate)(int64_t n, double c, double s, void *x, void *y);
    /* C[m,n] = A[m,k] B[k,n], all by rows */
    void  (*gemm)(const tni_host *h, int64_t m, int64_t n, int64_t k, const void *a, int64_t a_row, const void *b,
                  int64_t b_row, void *c, int64_t c_row);
    /* Packs a[rows,depth] into panels of `width` rows: element (i,d) of a panel is p[d width + i]. The next panel begins
       `next` numbers later; rows that the last one lacks are zeros. */
    void  (*pack)(int width, int64_t rows, int64_t depth, const void *a, int64_t row, int64_t col, void *p, int64_t next);
    /* For each strip: C[rows,lanes] = A[rows,depth] B[depth,lanes], or += if `add`. A is in panels of tile_rows; the B and
       the C of the next strip begin `next` numbers later. */
    void  (*strip_times)(int64_t rows, int64_t depth, const void *panels, int64_t strips, int64_t next, const void *b,
                         bool add, void *c);
} tni_vector_ops;

#endif /* TN_NO_OPERATOR */

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

/* The kernels of a level, and with TNI_BF16 those of products in BF16. */
TNI_FN tn_status tni_f32_run_plain(void *state, const tn_call *c);
TNI_FN tn_status tni_f64_run_plain(void *state, const tn_call *c);
#ifndef TN_NO_OPERATOR
extern TNI_FN const tni_algebra    tni_f64_algebra_plain;
extern TNI_FN const tni_vector_ops tni_f32_vector_ops_plain;
#endif
#if TNI_AVX2
TNI_FN tn_status tni_f32_run_avx2(void *state, const tn_call *c);
TNI_FN tn_status tni_f64_run_avx2(void *state, const tn_call *c);
TNI_FN int64_t   tni_f32_chain_columns_avx2(const float *m, int64_t n, float *p);      /* 8 x 8, for AVX-512 too */
TNI_FN bool      tni_f32_gemm_is_dots_avx2(const tn_call *c);                           /* this and the next, too */
TNI_FN void      tni_f32_gemm_batch_dots_avx2(void *arg, int64_t task, int worker);
TNI_FN bool      tni_f32_gemm_round_avx2(const float *x, int64_t n, int16_t *q, float *unit);
TNI_FN void      tni_f32_gemm_rounded_avx2(const int8_t *w, int64_t next, int64_t n, int64_t depth, const int16_t *q,
                                           const float *unit, float *sums);
#ifndef TN_NO_OPERATOR
extern TNI_FN const tni_algebra    tni_f64_algebra_avx2;
extern TNI_FN const tni_vector_ops tni_f32_vector_ops_avx2;
#endif
#endif
#if TNI_AVX512
TNI_FN tn_status tni_f32_run_avx512(void *state, const tn_call *c);
TNI_FN tn_status tni_f64_run_avx512(void *state, const tn_call *c);
#ifndef TN_NO_OPERATOR
extern TNI_FN const tni_algebra    tni_f64_algebra_avx512;
extern TNI_FN const tni_vector_ops tni_f32_vector_ops_avx512;
#endif
#endif
#if TNI_NEON
TNI_FN tn_status tni_f32_run_neon(void *state, const tn_call *c);
TNI_FN tn_status tni_f64_run_neon(void *state, const tn_call *c);
#ifndef TN_NO_OPERATOR
extern TNI_FN const tni_algebra    tni_f64_algebra_neon;
extern TNI_FN const tni_vector_ops tni_f32_vector_ops_neon;
#endif
#endif

#if TNI_BF16
TNI_FN bool      tni_bf16_has_tiles(void);
TNI_FN bool      tni_bf16_has_dots(void);
TNI_FN void      tni_bf16_tiles(int parts, int64_t blocks, const char *a, int64_t a_next, const char *b, int64_t b_next,
                                float *sums);
TNI_FN void      tni_bf16_dots(int parts, int64_t blocks, const char *a, int64_t a_next, const char *b, int64_t b_next,
                               float *sums);
TNI_FN tn_status tni_bf16_run(tni_cpu *cpu, const tn_call *c);
TNI_FN tn_status tni_bf16_attention_run(tni_cpu *cpu, const tn_call *c);
#endif

#endif
