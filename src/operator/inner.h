#pragma once
#include "core/core.h"
#include "tensor/inner.h"
#include "kernels/inner.h"
#include "operator/operator.h"

#ifndef TN_NO_OPERATOR
/* Operators are made outside of any recording, from arena tensors that are released at the end, and never in BF16. */
typedef struct tni_scope { tn_mark mark; bool recording; tn_dtype made; } tni_scope;

enum { TNI_TERM_ZERO = -(1 << 28) };

typedef struct tni_terms {              /* one operator's scales, some of its terms in double, and a block of these */
    const tn_cp *cp;
    int64_t  room, base, held;          /* terms that fit; those that are held            */
    int64_t  group;                     /* terms of a group, see >>cp-terms                */
    int64_t  first, rows;               /* the block                                      */
    bool     scaled;                    /* whether those that are held are                */
    double  *scale;                     /* [order + 2,terms]: of factors; exponents: sums of those of the factors, or
                                           TNI_TERM_ZERO; of columns of P                 */
    int     *row;                       /* [out] shift, or the exponents of rows of P     */
    double  *p, *f[TN_CP_MAX_ORDER];    /* [out,held], [held,in] if all are one group; else of the first group */
    int      shift;
} tni_terms;

typedef struct tni_eigen_product {
    tn_ctx    *ctx;
    int64_t    n, h, chunk;             /* chunk: terms per call, so that their rows stay in the cache */
    bool       formed;
    tn_tensor *m;                       /* Q [n,n], or rows w_0, v_0, w_1, v_1 .. [2h,n]                 */
    tn_tensor *x, *y, *d;               /* [most,n] [most,n] [most,h]: several vectors at once, or one  */
    tn_tensor *z, *swapped;             /* [most,2 chunk]                                               */
} tni_eigen_product;

enum {
    TNI_PAIRS_BLOCK = 128, TNI_PAIRS_LARGE = 1024, TNI_PAIRS_LEAST = 64, TNI_PAIRS_NUMBERS = 1 << 23,
    TNI_PAIRS_SHARE = 1 << 12                  /* pairs of a task */
};

typedef struct tni_pairs {
    int       order;
    bool      same;                     /* both operators are one: only blocks i <= j are visited   */
    int64_t   block, i, j;              /* terms per block; the next block                         */
    int64_t   m, n;                     /* size of this one                                        */
    double    weight;                   /* 1/2 on the diagonal if same: the other half is transposed */
    tni_terms a, b;
    double   *gram;                     /* [order,m,order,n]: A_st, where wanted                   */
    double   *k, *pp;                   /* [m,n] what a caller makes of them; P^T P'                */
    bool      inputs;                   /* see tni_pairs_symmetric */
    double   *sums;                     /* [block] of rows of k * pp, or NULL                      */
    tni_host  host;
} tni_pairs;
#endif /* TN_NO_OPERATOR */

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

#ifndef TN_NO_OPERATOR
/* operator.c */
TNI_FN tn_tensor *tni_owned_2d(tn_ctx *ctx, int64_t n, int64_t m);
TNI_FN tn_cp *tni_cp_make(tn_ctx *ctx, int order, int64_t out, int64_t terms, const int64_t *in, bool constant);
TNI_FN tn_cp *tni_cp_done(tn_cp *cp, tn_status s);
TNI_FN tn_view tni_block_of(const tn_tensor *t, int64_t row, int64_t rows, int64_t column, int64_t columns);
TNI_FN tn_view tni_slice_view(const tn_tensor *t, int64_t i);
TNI_FN tn_view tni_column_view(const tn_tensor *t);
TNI_FN tn_status tni_put_copy(tn_ctx *ctx, tn_view to, tn_view from);
TNI_FN tn_status tni_put_value(tn_ctx *ctx, tn_view to, double value);
TNI_FN tn_status tni_put_scaled(tn_ctx *ctx, tn_view to, tn_view from, double factor);
TNI_FN tn_status tni_put_identity(tn_ctx *ctx, tn_view square);
TNI_FN tn_status tni_put_product(tn_ctx *ctx, tn_view to, tn_view a, tn_view b, bool add);
TNI_FN tn_status tni_put_matmul(tn_ctx *ctx, tn_view to, tn_view a, tn_view b, double alpha, double beta);
TNI_FN tni_scope tni_scope_begin(tn_ctx *ctx);
TNI_FN void tni_scope_end(tn_ctx *ctx, tni_scope s);
TNI_FN bool tni_is_matrix(tn_ctx *ctx, const tn_tensor *t, const char *op, const char *what);
TNI_FN bool tni_is_vector(tn_ctx *ctx, const tn_tensor *t, int64_t n, const char *op, const char *what);
TNI_FN bool tni_cp_is_bilinear(const tn_cp *cp, const char *op);
TNI_FN bool tni_cp_one_input(const tn_cp *cp, const char *op);
TNI_FN bool tni_cp_of_params(const tn_params *ps, const tn_cp *cp, const char *op);
TNI_FN tn_cp *tni_cp_extend(const tn_cp *cp, int64_t more, bool constant);
TNI_FN tn_cp *tni_cp_with_bias(const tn_cp *cp, tn_view b);
TNI_FN tn_cp *tni_cp_next(tn_cp *used, tn_cp *next);

/* terms.c */
TNI_FN int64_t tni_terms_width(const tn_cp *cp);
TNI_FN tni_mat tni_terms_p(const tni_terms *t);
TNI_FN tni_mat tni_terms_f(const tni_terms *t, int k);
TNI_FN double tni_times_power(double x, int exponent);
TNI_FN tn_status tni_terms_load(tni_terms *t, int64_t first, int64_t rows);
TNI_FN tn_status tni_terms_begin_groups(tni_terms *t, tni_scratch *w, const tn_cp *cp, int64_t room, int64_t group, bool by_row,
                                        const tni_terms *like);
TNI_FN tn_status tni_terms_begin(tni_terms *t, tni_scratch *w, const tn_cp *cp, int64_t room);
TNI_FN tn_status tni_cp_shift(tn_cp *cp, int k, const int *by);
TNI_FN tn_status tni_cp_exponents(const tn_cp *cp, int *e, const char *op);
TNI_FN tn_cp *tni_cp_near_one(const tn_cp *cp, int *e, int *by);
TNI_FN tn_cp *tni_cp_spread(tn_cp *cp, const int *by, const char *op);
TNI_FN int tni_range_limit(const tn_ctx *ctx);
TNI_FN void tni_exponent_range(int64_t n, const int *e, int *least, int *most);

/* fold.c */
TNI_FN tn_cp *tni_cp_fold(const tn_cp *cp, int first, int last, const tn_tensor *e, const tn_tensor *b, const tn_tensor *u,
                          const char *op);
TNI_FN bool tni_next_permutation(int n, int *p);

/* forms.c */
TNI_FN tn_status tni_put_symmetric(tn_ctx *ctx, tn_tensor *to, tn_tensor *t);

/* eigen.c */
TNI_FN tn_tensor *tni_owned_from(tn_ctx *ctx, int rank, const int64_t *shape, const double *values);
TNI_FN tn_status tni_eigen_form(tni_eigen_product *p, const tn_cp *cp);
TNI_FN void tni_eigen_product_end(tni_eigen_product *p);
TNI_FN tn_status tni_eigen_product_begin(tni_eigen_product *p, const tn_cp *cp, bool formed, int64_t most);
TNI_FN tn_status tni_eigen_all(const tn_cp *cp, int64_t count, bool vectors, tn_eigenpairs *e, const char *op);

/* pairs.c */
TNI_FN tni_mat tni_pairs_gram(const tni_pairs *g, int s, int t);
TNI_FN tn_status tni_pairs_begin(tni_pairs *g, tni_scratch *w, const tn_cp *a, const tn_cp *b, bool by_row);
TNI_FN bool tni_pairs_next(tni_pairs *g, tn_status *s);
TNI_FN bool tni_pairs_column_done(const tni_pairs *g);
TNI_FN tni_mat tni_pairs_factors(const tni_terms *t);
TNI_FN void tni_pairs_grams(tni_pairs *g, bool all);
TNI_FN void tni_pairs_outputs(tni_pairs *g);
TNI_FN void tni_pairs_symmetric(tni_pairs *g);
TNI_FN tn_status tni_cp_gram_host(const tn_cp *a, const tn_cp *b, bool diagonal, double *sum, int *row, int *column,
                                  const char *op);
TNI_FN tn_status tni_cp_inner_host(const tn_cp *a, const tn_cp *b, double *sum, int *shift, const char *op);
TNI_FN tn_status tni_scale_result(tn_ctx *ctx, double *number, int shift, const char *op);
TNI_FN tn_tensor *tni_owned_by_rows(tn_ctx *ctx, int rank, const int64_t *shape, double *numbers, int shift, const int *row,
                                    const int *column, const char *op);
TNI_FN tn_tensor *tni_owned_scaled(tn_ctx *ctx, int rank, const int64_t *shape, double *numbers, int shift, const char *op);

/* spectra.c */
TNI_FN tn_status tni_cp_spectrum(const tn_cp *cp, int64_t count, tn_spectrum *out, const char *op);
TNI_FN tn_status tni_reads_symmetric(const tn_tensor *s, double *a, const char *op);
TNI_FN bool tni_cp_comparable(const tn_cp *a, const tn_cp *b, const char *op);

/* top.c */
TNI_FN tn_status tni_coefficients_store(tn_ctx *ctx, tni_heap *heap, int axes, const int64_t *extents, int shift,
                                        tn_coefficients *out, const char *op);
#endif /* TN_NO_OPERATOR */

#endif
