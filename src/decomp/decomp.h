#pragma once
#include "core/core.h"

#ifndef TN_NO_OPERATOR
/* ======================================================================
   >>decomp   QR, symmetric eigen, SVD, Lanczos
   Computed on the host, in double (but see tn_eigh), from a copy of the matrix of any dtype and strides; the results are
   owned tensors of the context's dtype. On failure all results are NULL and the status says why: TN_ERR_ARG, TN_ERR_SHAPE,
   TN_ERR_NONFINITE (the matrix holds NaN or infinity, or a result is beyond the range of the dtype), TN_ERR_CONVERGENCE,
   TN_ERR_MEMORY. Without a context (ctx or a train is NULL) there is no message. Equal matrices give bit-identical results.
   Nothing here is recorded.

   If desc.measure is set, `error` in each result is |A - product of the results|_F / |A|_F, for the results as stored and
   truncated; else it is NaN.

       tn_eigh_result e;
       if (tn_eigh(ctx, a, NULL, &e) == TN_OK) { ... e.values, e.vectors ... }
       tn_eigh_destroy(&e);

   Eigenvectors or singular vectors of values that lie close together are defined only as a subspace. `cluster`, I32 [k],
   has the index of the first member of the cluster of each value: its own index where the vector is determined. `angle`,
   [k], bounds the sine of the angle between the computed subspace of that cluster and the exact one:
   2 |E|_F / (gap between the cluster and all other values), at most 1 (Davis & Kahan 1970, Wedin 1972), where |E|_F is
   noise |A|_F; in F32 contexts add 1e-6, the error of vectors computed in float. Zero is one of the other singular values
   of a matrix that is not square. The angle is 1 if members of the cluster were not kept. Two neighbours are in one cluster
   if the vector of either would have an angle above 0.01.
   ====================================================================== */

/* Which of the values |x_0| >= |x_1| >= .. of a decomposition to keep. Each rule that is set drops some of the last ones;
   what no rule drops is kept. A zero field sets no rule. */
typedef struct tn_truncation {
    int64_t rank;                /* keep at most this number of values                                            */
    double  absolute;            /* drop |x| <= absolute                                                          */
    double  relative;            /* drop |x| <= relative |x_0|                                                    */
    double  weight;              /* drop as many values as possible, from the last, with a sum of squares of at most
                                    weight times that of all: the squared relative error of the truncated matrix  */
} tn_truncation;

/* The number of values to keep of values [n], which are finite and in descending order of magnitude; a NULL rule keeps all.
   `dropped`, unless NULL, gets the sum of squares of the others, divided by that of all (0 if all are zero). NULL values are
   none. */
TN_API int64_t tn_truncation_count(const tn_truncation *rule, int64_t n, const double *values, double *dropped);

typedef enum tn_eigh_order {
    TN_EIGH_ASCENDING = 0,
    TN_EIGH_MAGNITUDE            /* largest |value| first; +l before -l            */
} tn_eigh_order;

typedef struct tn_eigh_desc {
    tn_eigh_order order;
    int64_t       top;           /* number of pairs to keep, in this order; 0: all */
    bool          no_vectors;    /* values only: faster, by another method, so their last digits may differ */
    bool          measure;
    bool          symmetrise;    /* take the symmetric part (A + A^T)/2 of any matrix */
    tn_truncation truncation;    /* by magnitude, before top; of a batch, the largest number that any matrix keeps */
    double        noise;         /* relative error |E|_F/|A|_F of the elements of a; 0: that of rounding to its dtype */
} tn_eigh_desc;

typedef struct tn_eigh_result {  /* of a [b,n,n] each tensor begins with the axis b */
    tn_tensor *values;           /* [k]                                          */
    tn_tensor *vectors;          /* [k,n]: row i belongs to values[i]; orthonormal */
    tn_tensor *cluster, *angle;  /* [k] I32, [k]; see above. NULL without vectors */
    double     error;            /* of a batch, the largest                      */
} tn_eigh_result;

/* Computes eigenvalues and eigenvectors of a symmetric matrix, A = vectors^T diag(values) vectors, or of a batch of them,
   in parallel.   a [n,n] or [b,n,n]
   TN_ERR_ARG if an a_ij differs from a_ji by more than rounding explains, unless desc.symmetrise is set: by more than
   1024 eps (F32, F64; a sum of a million products has errors of about that size) or sqrt(eps) (BF16), times the largest
   element; eps is that of a's dtype. Smaller differences are averaged.
   In an F32 context values are computed in double and rounded once, and vectors are rotated in float: residuals, relative to
   |A|_F, and inner products of two vectors are of the order of 1e-7. Where that is too coarse, use an F64 context.
   The component of largest magnitude of each vector, the first of equals, is positive. A NULL desc means all defaults. */
TN_API tn_status tn_eigh(tn_ctx *ctx, const tn_tensor *a, const tn_eigh_desc *desc, tn_eigh_result *out);
TN_API void      tn_eigh_destroy(tn_eigh_result *r);     /* frees the tensors of the result */

typedef struct tn_qr_desc {
    bool   measure;
    bool   pivot;                /* order the columns so that the diagonal of R descends: it reveals the rank */
    double tol;                  /* rank counts r_ii > tol r_00; 0: max(m,n) times the eps of a's dtype       */
} tn_qr_desc;

typedef struct tn_qr_result {
    tn_tensor *q;                /* [m,k], k = min(m,n): orthonormal columns, whatever the rank */
    tn_tensor *r;                /* [k,n] upper triangular, its diagonal not negative           */
    tn_tensor *order;            /* [n] I32 with pivot: column j of Q R is column order[j] of A; else NULL */
    int64_t    rank;             /* with pivot, else 0                                          */
    double     error;
} tn_qr_result;

/* Computes the QR decomposition A = Q R, or with pivot A[:,order] = Q R.   a [m,n]   Businger & Golub 1965 */
TN_API tn_status tn_qr(tn_ctx *ctx, const tn_tensor *a, const tn_qr_desc *desc, tn_qr_result *out);
TN_API void      tn_qr_destroy(tn_qr_result *r);         /* frees the tensors of the result */

typedef enum tn_svd_method {
    TN_SVD_AUTO = 0,             /* KRYLOV if min(m,n) >= 256, 0 < 16 top <= min(m,n) and no rule of truncation is set but
                                    rank; EXACT if not, and where KRYLOV fails */
    TN_SVD_EXACT,                /* all values are computed */
    TN_SVD_KRYLOV,               /* the top ones by Lanczos on A^T A or A A^T, with a residual of at most 1e-13 s_0 each;
                                    values far below s_0 may not reach it: TN_ERR_CONVERGENCE */
    TN_SVD_RANDOMISED            /* a fixed number of products with a random block: fast, without a promise. Values are
                                    never too large; see `residual` */
} tn_svd_method;

typedef struct tn_svd_desc {
    int64_t       top;           /* number of singular values to keep (largest first); 0: all min(m,n) */
    bool          measure;
    tn_truncation truncation;    /* before top                                                        */
    double        noise;         /* relative error |E|_F/|A|_F of the elements of a; 0: that of rounding to its dtype */
    tn_svd_method method;
    int64_t       oversample;    /* RANDOMISED: vectors of a block beyond top; 0: 10                  */
    int64_t       power;         /* RANDOMISED: further blocks, each multiplied by A A^T once more; 0: 2 */
    uint64_t      seed;          /* of the random vectors; equal seeds give bit-identical results     */
} tn_svd_desc;

typedef struct tn_svd_result {
    tn_tensor *u;                /* [m,k] orthonormal columns */
    tn_tensor *s;                /* [k] descending            */
    tn_tensor *vt;               /* [k,n] orthonormal rows    */
    tn_tensor *cluster, *angle;  /* [k] I32, [k]; see above. RANDOMISED: the noise includes the residual, and the values that
                                    were not computed count as smaller than those that were. That is an estimate: true angles
                                    are usually at most 0.3 of it, but one that the random vectors missed is not noticed */
    double     error;            /* measured with every method */
    double     residual;         /* measured: sqrt(sum_i |A v_i - s_i u_i|^2 + |A^T u_i - s_i v_i|^2) / |A|_F of KRYLOV and
                                    RANDOMISED; NaN of EXACT */
} tn_svd_result;

/* Computes the singular value decomposition A = U diag(s) Vt.   a [m,n]
   Every s has an error of about eps times the largest, except by TN_SVD_RANDOMISED. The component of largest magnitude of
   each column of U, the first of equals, is positive. */
TN_API tn_status tn_svd(tn_ctx *ctx, const tn_tensor *a, const tn_svd_desc *desc, tn_svd_result *out);
TN_API void      tn_svd_destroy(tn_svd_result *r);       /* frees the tensors of the result */

/* ---- least squares ------------------------------------------------------ >>lstsq-desc */
typedef struct tn_lstsq_desc {
    double ridge;                /* minimises |A x - b|^2 + ridge |x|^2                             */
    double tol;                  /* as in tn_qr_desc: columns beyond this rank count as dependent   */
} tn_lstsq_desc;

typedef struct tn_lstsq_result {
    tn_tensor *x;                /* [n] or [n,r] as b                          */
    tn_tensor *residual;         /* [r] (r is 1 for b [m]): |A x - b|          */
    int64_t    rank;             /* of A; with a ridge, of A above sqrt(ridge) I, which is n unless the ridge is so small
                                    that tol drops it: then x is again the shortest one */
} tn_lstsq_result;

/* Computes the x that minimises |A x - b|, for each column of b; of many, the shortest one. By pivoted QR and, where columns
   are dependent, a second QR from the other side.   a [m,n], b [m] or [m,r], any m and n */
TN_API tn_status tn_lstsq(tn_ctx *ctx, const tn_tensor *a, const tn_tensor *b, const tn_lstsq_desc *desc,
                          tn_lstsq_result *out);
TN_API void      tn_lstsq_destroy(tn_lstsq_result *r);   /* frees the tensors of the result */

/* ---- polynomials fitted to samples --------------------------------------- >>polynomial
   Least squares under the distribution of the samples, which may come in any number of parts: what is kept of them does not
   grow. For what is no polynomial in a model, such as the activation of an MLP in the distribution of its inputs; docs/math.md
   21.

       tn_polynomial_fit fit;
       tn_polynomial_fit_init(ctx, 4, -3, 3, &fit);
       tn_polynomial_fit_add(&fit, n, x, y, NULL);
       tn_polynomial_fit_read(&fit, 4, &p);                 ... tn_polynomial_value(&p, 0.5) */
#define TN_POLYNOMIAL_MAX 16     /* highest degree */

typedef struct tn_polynomial {
    int    degree;
    double centre, width;        /* p(x) = sum_k c[k] z^k,  z = (x - centre) / width: numbers of moderate size          */
    double c[17];                /* [TN_POLYNOMIAL_MAX + 1], of which degree + 1 are used                                */
    double rms;                  /* of a fit: the root of the weighted mean of (p(x) - y)^2 over its samples            */
    double share;                /* 1 - rms^2 / weighted variance of y; NaN if y is constant                            */
} tn_polynomial;

typedef struct tn_polynomial_fit {
    tn_ctx *ctx;
    int     degree;              /* the highest that can be read                                                        */
    double  low, high;           /* as given                                                                            */
    int64_t samples;             /* so far, of a weight above 0                                                         */
    double  r[324];              /* [TN_POLYNOMIAL_MAX + 2, the same]: the factor R of their QR decomposition           */
} tn_polynomial_fit;

/* Begins a fit of degrees 1 to `degree`, at most TN_POLYNOMIAL_MAX. low < high: the range of x, about; other x are possible,
   but far outside of it accuracy is lost. */
TN_API tn_status tn_polynomial_fit_init(tn_ctx *ctx, int degree, double low, double high, tn_polynomial_fit *fit);
/* Adds n samples: x [n], y [n], weights [n] of at least 0, or NULL for ones. TN_ERR_NONFINITE names a sample that is not
   finite, and nothing is added. */
TN_API tn_status tn_polynomial_fit_add(tn_polynomial_fit *fit, int64_t n, const double *x, const double *y,
                                       const double *weights);
/* Computes the polynomial of a degree, 1 to fit->degree, with the least weighted sum of (p(x) - y)^2. Does not change the fit.
   TN_ERR_ARG if fewer than degree + 1 different x have a weight. */
TN_API tn_status tn_polynomial_fit_read(const tn_polynomial_fit *fit, int degree, tn_polynomial *out);
TN_API double    tn_polynomial_value(const tn_polynomial *p, double x);     /* p(x), for any p with width != 0 */

#ifndef TN_NO_ANALYSIS
/* ---- eigenpairs of any square matrix ----------------------------------- >>eig-desc */
typedef struct tn_eig_desc {
    bool no_vectors;             /* values only                               */
    bool left;                   /* left vectors and condition numbers as well */
    bool measure;
} tn_eig_desc;

typedef struct tn_eig_result {
    tn_tensor *values;           /* [n,2]: real and imaginary parts, largest magnitude first; of a conjugate pair the one
                                    with the positive imaginary part first */
    tn_tensor *right;            /* [n,2,n]: A x = l x, real and imaginary parts of unit vectors; the component of largest
                                    magnitude, the first of equals, is real and positive */
    tn_tensor *left;             /* [n,2,n]: y^H A = l y^H, unit vectors, y^H x real and not negative, or NULL */
    tn_tensor *condition;        /* [n]: 1/|y^H x|, at least 1 and possibly infinite: an error E of A changes l by about |E|
                                    times this; with left */
    double     residual;         /* the largest |A x - l x| / |A|_F of the results as stored, with measure, else NaN */
} tn_eig_result;

/* Computes all eigenvalues and eigenvectors of a square matrix, by the QR algorithm: the values are those of a matrix that
   differs from A by a few eps |A|.   a [n,n]   A matrix without n independent eigenvectors gives some of them (nearly)
   twice, with condition numbers of 1/eps and more. */
TN_API tn_status tn_eig(tn_ctx *ctx, const tn_tensor *a, const tn_eig_desc *desc, tn_eig_result *out);
TN_API void      tn_eig_destroy(tn_eig_result *r);       /* frees the tensors of the result */
#endif /* TN_NO_ANALYSIS */

/* ---- Lanczos: some eigenpairs of a symmetric matrix that is given by its products ---- >>lanczos-desc */

/* Computes y = A x for `count` vectors at once: x and y are [count,n], rows of doubles on the host. Any status but TN_OK
   ends the search. */
typedef tn_status (*tn_matvec_fn)(void *user, int64_t count, const double *x, double *y);

typedef enum tn_lanczos_which {
    TN_LANCZOS_MAGNITUDE = 0,    /* largest |value| first    */
    TN_LANCZOS_LARGEST,          /* from the largest down    */
    TN_LANCZOS_SMALLEST          /* from the smallest upward */
} tn_lanczos_which;

typedef struct tn_lanczos_desc {
    tn_lanczos_which which;
    int64_t  top;                /* number of pairs; 0: all n                                                         */
    double   tol;                /* a pair has converged when |A v - l v| <= tol |A|; 0: 1e-12, in F32 contexts 1e-8.
                                    Rounding errors of the product are a lower limit                                  */
    int64_t  block;              /* vectors per product; 0: 1, which needs the fewest. More are faster where a product
                                    of several vectors costs hardly more than one                                     */
    int64_t  basis;              /* vectors stored, of n doubles each: at least top + 2 blocks, or all n; 0: 2 top + 40
                                    blocks, at most n                                                                 */
    int64_t  products;           /* no restart after this number of multiplied vectors; 0: 300 times the basis        */
    uint64_t seed;               /* of the first vectors; equal seeds give bit-identical results                      */
    bool     measure;
} tn_lanczos_desc;

typedef struct tn_lanczos_result {
    tn_tensor *values;           /* [top]                                                              */
    tn_tensor *vectors;          /* [top,n] orthonormal rows, the largest component of each positive   */
    double     residual;         /* the largest |A v - l v| / |A|: by the recurrence or, if desc.measure is
                                    set, by products with the stored vectors. It is also set when
                                    TN_ERR_CONVERGENCE says that `products` were not enough            */
    int64_t    products;         /* number of multiplied vectors                                       */
} tn_lanczos_result;

/* Computes some eigenpairs by block Lanczos with full orthogonalisation and thick restarts. A is n x n and must be
   symmetric: TN_ERR_ARG if the products show that it is not. Multiple eigenvalues are found with all their vectors: after
   convergence a block of new random vectors looks for missing ones. Values that are crowded relative to |A|, as the
   smallest of a positive matrix often are, converge slowly: use a larger basis, or products with the inverse.
   Golub & Underwood 1977, Wu & Simon 2000, Zhou & Saad 2008 */
TN_API tn_status tn_lanczos(tn_ctx *ctx, int64_t n, tn_matvec_fn fn, void *user, const tn_lanczos_desc *desc,
                            tn_lanczos_result *out);
TN_API void      tn_lanczos_destroy(tn_lanczos_result *r);     /* frees the tensors of the result */

#ifndef TN_NO_ANALYSIS
/* ---- decompositions of tensors ------------------------------------------ >>decomp-tensor
   From copies on the host, in double, as above. A tensor [n_0,..,n_d-1] is unfolded along axis k into the matrix
   [n_k, product of the other extents]. docs/math.md, Decompositions of tensors, has the formulas.
   `gap` says how well a truncation is determined: (last kept - first dropped singular value)/last kept, and 1 where nothing
   was dropped. Near 0 it divides a cluster of equal values, and which vectors are kept is then a matter of rounding
   errors. */

/* ---- tensor trains ------------------------------------------------------ >>tt
   A[i_0,..,i_d-1] = G_0[i_0] G_1[i_1] .. G_d-1[i_d-1], a product of matrices G_k[i] [r_k,r_k+1]: any number of axes, also
   more than TN_MAX_RANK. Functions that return a tn_tt return a new, owned one (NULL on error, and the context says why),
   and do not change their arguments. Oseledets 2011 */

typedef struct tn_tt {
    tn_ctx     *ctx;
    int64_t     count;           /* d >= 1, number of axes                                                        */
    tn_tensor **core;            /* [d] core[k] is [r_k,n_k,r_k+1], r_0 = r_d = 1                                 */
    double      error;           /* of the truncation that made it: |A - this|_F / |A|_F, in double. Storing the cores in
                                    F32 adds about 6e-8 sqrt(d)                                                   */
    double      discarded;       /* its discarded weight: the sum of the squares of the dropped singular values of all
                                    bonds, divided by |A|^2, which is error^2                                     */
    double      gap;             /* the smallest of its bonds, see >>decomp-tensor                                   */
} tn_tt;

typedef struct tn_tt_desc {
    double  eps;                 /* error <= eps; 0: 1e-12, in F32 contexts 1e-6, so that rounding errors get no bond  */
    int64_t max_bond;            /* no bond above this, whatever the error; 0: no limit                                */
    double  relative;            /* also drop singular values <= relative times the largest of their bond, whatever the
                                    error; 0 <= relative < 1                                                           */
} tn_tt_desc;

/* Decomposes a dense tensor by one SVD per bond, from left to right. extents [count] are those of the axes, whose product is
   the number of elements of a; NULL: a's own shape. All cores but the last have orthonormal columns [r_k n_k, r_k+1], the
   component of largest magnitude of each, the first of equals, positive. Ranks are at least 1. */
TN_API tn_tt *tn_tt_svd(tn_ctx *ctx, const tn_tensor *a, int64_t count, const int64_t *extents, const tn_tt_desc *desc);
TN_API tn_tt *tn_tt_create(tn_ctx *ctx, int64_t count, tn_tensor *const *cores);      /* from cores, which are copied */
TN_API void   tn_tt_destroy(tn_tt *tt);                                               /* frees the train              */
/* Truncates the bonds: QR from right to left, then a truncated SVD per bond from left to right; |A - result| <= eps |A|. The
   cores are orthonormal as those of tn_tt_svd. */
TN_API tn_tt *tn_tt_round(const tn_tt *tt, const tn_tt_desc *desc);
TN_API tn_tt *tn_tt_add(const tn_tt *a, const tn_tt *b);                              /* exact: the bonds are summed  */
TN_API tn_tt *tn_tt_scale(const tn_tt *tt, double factor);                            /* exact: the last core is scaled */
/* Computes the inner product of two trains of equal extents, and the Frobenius norm. Intermediate numbers are scaled and do
   not overflow; TN_ERR_NONFINITE if the result would. For d axes of n elements and bonds r both take some d n r^3
   multiplications, the norm about twice as long. Of a difference x = y - z of nearly equal trains, <x,x> has an error of
   about eps |y|^2, so that its root is known to sqrt(eps) |y| only; the norm, by QR decompositions, to about eps |y|. */
TN_API tn_status tn_tt_inner(const tn_tt *a, const tn_tt *b, double *inner);
TN_API tn_status tn_tt_norm(const tn_tt *tt, double *norm);
/* Evaluates single elements: index [count,d], row-major, values [count]. */
TN_API tn_status tn_tt_elements(const tn_tt *tt, int64_t count, const int64_t *index, double *values);
/* Returns the dense tensor, owned: [n_0,..,n_d-1], or flat if d > TN_MAX_RANK. TN_ERR_MEMORY, with the size, if it exceeds
   desc.max_bytes. */
TN_API tn_tensor *tn_tt_dense(const tn_tt *tt);

/* ---- HOSVD and HOOI: a core and one orthonormal factor per axis --------- >>hosvd
   A[i_0,..] = sum_j core[j_0,..] U_0[i_0,j_0] U_1[i_1,j_1] ..  with the left singular vectors of each unfolding.
   De Lathauwer, De Moor & Vandewalle 2000a, 2000b */

typedef struct tn_hosvd_desc {
    double        eps;                   /* error <= eps, by dropping at most eps |A|/sqrt(d) per axis; 0: no rule         */
    tn_truncation axis[TN_MAX_RANK];     /* further rules of single axes, for the singular values of their unfoldings      */
    int64_t       sweeps;                /* HOOI: sweeps at most, which improve the factors at these ranks; 0: HOSVD alone */
    double        tol;                   /* HOOI ends when a sweep lowers the squared relative error by less; 0: 1e-12     */
} tn_hosvd_desc;

typedef struct tn_hosvd_result {
    int        rank;                     /* number of axes                                                                */
    tn_tensor *core;                     /* [r_0,..,r_d-1], r_k >= 1 unless n_k = 0                                       */
    tn_tensor *factor[TN_MAX_RANK];      /* [n_k,r_k] orthonormal columns, the largest component of each positive         */
    tn_tensor *values[TN_MAX_RANK];      /* all min(n_k, product of the others) singular values of A's unfoldings         */
    double     gap[TN_MAX_RANK];         /* of the HOSVD's truncation, see >>decomp-tensor                                */
    double     error;                    /* |A - core and factors|_F / |A|_F as stored, measured                          */
    double     bound;                    /* of the HOSVD: sqrt(sum of the squares dropped on all axes)/|A|, which is at most
                                            sqrt(d) times the least error that these ranks can have                       */
    int64_t    sweeps;                   /* of HOOI, as done                                                              */
    bool       converged;                /* HOOI ended by tol                                                             */
} tn_hosvd_result;

/* Computes the truncated HOSVD, and improves it by HOOI, whose fit never decreases.   a of rank 1 to TN_MAX_RANK */
TN_API tn_status tn_hosvd(tn_ctx *ctx, const tn_tensor *a, const tn_hosvd_desc *desc, tn_hosvd_result *out);
TN_API void      tn_hosvd_destroy(tn_hosvd_result *r);   /* frees the tensors of the result */

/* ---- CP: a sum of terms, by alternating least squares ------------------- >>cp-als
   A[i_0,..] = sum_r weights[r] F_0[i_0,r] F_1[i_1,r] ..   For A/|A|_F and terms whose factors have equal lengths, each step
   minimises |A - this|^2 + ridge sum_k |F_k|^2 over one factor. Carroll & Chang 1970, Harshman 1970, Kolda & Bader 2009 */

typedef struct tn_cp_als_desc {
    int64_t  terms;                      /* required: number of terms                                                     */
    double   ridge;                      /* 0: none. It bounds the weights of terms that cancel each other                */
    int64_t  sweeps;                     /* of each start, at most; 0: 500                                                */
    double   tol;                        /* a start ends when a sweep lowers its objective by less than this share; 0:
                                            1e-7                                                                          */
    int64_t  starts;                     /* the best of these is returned; 0: 4. A start whose error is 1e-13 is the last */
    bool     random;                     /* all starts are random numbers; else the first one is the HOSVD's vectors      */
    uint64_t seed;                       /* of the random numbers                                                         */
} tn_cp_als_desc;

typedef struct tn_cp_als_result {
    int        rank;                     /* number of axes                                                                */
    tn_tensor *weights;                  /* [terms] by decreasing magnitude; with signs                                   */
    tn_tensor *factor[TN_MAX_RANK];      /* [n_k,terms] unit columns, the largest component of each positive; zeros in terms
                                            of weight zero                                                                */
    double     error;                    /* |A - this|_F / |A|_F as stored, measured                                      */
    double     objective;                /* see above; it never increases from one sweep to the next                      */
    int64_t    sweeps, start;            /* of the start that is returned, and its index                                  */
    bool       converged;                /* that start ended by tol                                                       */
    double     congruence;               /* the least product of cosines of two terms' factors, with the weights' signs, -1
                                            to 1: terms at -1 cancel each other                                           */
    double     cancellation;             /* sqrt(sum weights^2) / |this|_F: 1 for orthogonal terms                        */
    bool       degenerate;               /* congruence < -0.85: often there is no best approximation with this number of
                                            terms, and the weights would grow forever. Use a ridge, or other terms.
                                            Krijnen, Dijkstra & Stegeman 2008                                             */
} tn_cp_als_result;

/* Decomposes a tensor into terms.   a of rank 2 to TN_MAX_RANK   A tensor of rank 3 [out,n,n] becomes an operator by
   tn_cp_from_als. TN_OK with converged = false means that the sweeps were used up. */
TN_API tn_status tn_cp_als(tn_ctx *ctx, const tn_tensor *a, const tn_cp_als_desc *desc, tn_cp_als_result *out);
TN_API void      tn_cp_als_destroy(tn_cp_als_result *r); /* frees the tensors of the result */

/* ---- joint diagonalisation: one orthonormal basis for several symmetric matrices ---- >>joint
   The basis V for which the matrices V A_b V^T have the smallest off-diagonal part together, by Jacobi rotations: the
   directions that many interaction matrices share. It is exact if and only if the matrices commute; shared directions that
   are not orthogonal are only approximated.
   Cardoso & Souloumiac 1996 */

typedef struct tn_joint_eigh_desc {
    int64_t sweeps;              /* at most; 0: 200                                                                */
    double  tol;                 /* ends when a sweep lowers the off-diagonal squares by less than this share of
                                    themselves, or leaves only rounding errors; 0: 1e-6                            */
    bool    compare;             /* compute `separate`                                                             */
} tn_joint_eigh_desc;

typedef struct tn_joint_eigh_result {
    tn_tensor *vectors;          /* [n,n] orthonormal rows v_i, the largest component of each positive; those of the largest
                                    sum of squared values first                                                    */
    tn_tensor *values;           /* [b,n] v_i.A_b v_i                                                              */
    tn_tensor *off;              /* [b] |off-diagonal part of V A_b V^T|_F / |A_b|_F; 0 for a matrix of zeros      */
    tn_tensor *gap;              /* [n] how well v_i is determined: the least |values of v_i - values of v_j|, over all
                                    matrices, relative to |A|_F; near 0 it can be rotated into another vector      */
    tn_tensor *shared;           /* [n+1] relative error over all matrices of their diagonals in the first k vectors  */
    tn_tensor *separate;         /* [n+1] with desc.compare: that of the best k eigenpairs of all matrices instead, each
                                    with a vector of its own; else NULL                                            */
    double     error;            /* shared[n]: |all off-diagonal parts|_F / |A|_F                                  */
    int64_t    sweeps;
    bool       converged;        /* ended by tol */
} tn_joint_eigh_result;

/* Diagonalises matrices jointly.   a [b,n,n]
   TN_ERR_ARG if one is not symmetric, as in tn_eigh. */
TN_API tn_status tn_joint_eigh(tn_ctx *ctx, const tn_tensor *a, const tn_joint_eigh_desc *desc, tn_joint_eigh_result *out);
TN_API void      tn_joint_eigh_destroy(tn_joint_eigh_result *r);   /* frees the tensors of the result */

/* ---- FastICA: independent components of data ---------------------------- >>ica
   x = mixing s + mean with sources s that are as independent as possible: the data are whitened, then an orthogonal W is
   found by the parallel fixed-point iteration with the contrast log cosh. Hyvarinen 1999 */

typedef struct tn_ica_desc {
    int64_t          components; /* 0: the rank of the centred data                                                */
    int64_t          sweeps;     /* iterations at most, each of which updates all rows of W; 0: 200                */
    double           tol;        /* ends when every row of W turns by less: | |w.w'| - 1 | < tol; 0: 1e-4          */
    uint64_t         seed;       /* of the first W                                                                 */
    const tn_tensor *start;      /* [components,components] the first W, of full rank, before it is made orthogonal; NULL:
                                    random */
} tn_ica_desc;

typedef struct tn_ica_result {
    tn_tensor *components;       /* [k,features] s = components (x - mean), of variance 1; the largest number of each row is
                                    positive                                                                       */
    tn_tensor *mixing;           /* [features,k] the pseudo-inverse of components                                  */
    tn_tensor *whitening;        /* [k,features] the k leading principal directions, divided by their singular values;
                                    sqrt(samples) times it whitens                                                 */
    tn_tensor *mean;             /* [features]                                                                     */
    tn_tensor *contrast;         /* [k] mean(1 - tanh^2 s - s tanh s): 0 for a Gaussian source                     */
    int64_t    gaussian;         /* sources whose contrast is within three standard errors of 0: of several such, no
                                    single one is determined                                                       */
    double     change;           /* the last iteration's largest | |w.w'| - 1 |                                    */
    int64_t    sweeps;           /* as done                                                                        */
    bool       converged;        /* ended by tol: if not, the results are those of the last iteration              */
} tn_ica_result;

/* Computes independent components.   x [samples,features]
   TN_ERR_ARG if the centred data have a smaller rank than `components`, or `start` has. */
TN_API tn_status tn_ica(tn_ctx *ctx, const tn_tensor *x, const tn_ica_desc *desc, tn_ica_result *out);
TN_API void      tn_ica_destroy(tn_ica_result *r);       /* frees the tensors of the result */
#endif /* TN_NO_ANALYSIS */

/* The effective rank (sum |l|)^2 / sum l^2: n for n equal values, 1 for a single one, 0 if all are zero, n is 0 or values is
   NULL. */
TN_API double    tn_effective_rank(const double *values, int64_t n);
#endif /* TN_NO_OPERATOR */
