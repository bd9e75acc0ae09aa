#ifndef TN_NO_OPERATOR
#define TNI_EPS 2.220446049250313e-16         /* 2^-52 */

static double *tni_aligned(double *p) { return (double *)(void *)((char *)p + (0 - (uintptr_t)p) % TNI_ALIGN); }

static tni_mat tni_mat_of(double *p, int64_t row, int64_t col) { tni_mat m; m.p = p; m.row = row; m.col = col; return m; }
static tni_mat tni_rows(double *p, int64_t row)                { return tni_mat_of(p, row, 1); }     /* row-major      */
static tni_mat tni_turned(tni_mat m)                           { return tni_mat_of(m.p, m.col, m.row); } /* transposed */
static tni_mat tni_from(tni_mat m, int64_t i, int64_t j)       { m.p += i * m.row + j * m.col; return m; }

static double tni_ldexp(double x, int64_t exponent) { return ldexp(x, (int)tni_max(-9999, tni_min(9999, exponent))); }

static double tni_max_f64(double a, double b) { return b > a ? b : a; }

/* Sorts values together with their rows. A selection sort needs few swaps, which are what costs time here. */
static bool tni_before_ascending(double a, double b)  { return a < b; }
static bool tni_before_descending(double a, double b) { return a > b; }
static bool tni_before_magnitude(double a, double b)  { return fabs(a) > fabs(b) || (fabs(a) == fabs(b) && a > b); }

enum { TNI_BLOCK = 32 };                       /* reflections in a block */

enum { TNI_TRIDIAGONAL_SMALL = 512, TNI_TRIDIAGONAL_BANDS = 4 };

typedef struct tni_rotations {
    const tni_host *host;
    double *list, *strip;                      /* strip: [n,TNI_STRIP]           */
    int64_t used, room, header;                /* header: where this sweep began */
    double *z;                                 /* [n,n], or NULL: values only    */
    int64_t n, stride;                         /* of z                           */
} tni_rotations;

/* d, e: diagonal and off-diagonal of T; d becomes the eigenvalues, in any order. An e up to `nothing`, which is eps
   times the largest element of T, counts as zero. (Compared with its neighbours only, rounding errors of zero
   eigenvalues may never converge.) */
enum { TNI_QL_SWEEPS = 60 };                   /* per eigenvalue; the mean is about 1.7 */

enum {
    TNI_LEAF = 32,                             /* most rows that QL takes        */
    TNI_LEAF_ROTATIONS = 4096,
    TNI_ROOT_STEPS = 200,                      /* most need five or six          */
    TNI_MERGE_SHARE = 64,                      /* poles per task                 */
    TNI_MERGE_ARRAYS = 11, TNI_MERGE_LISTS = 5
};

typedef struct tni_divide {
    const tni_host *host;
    const tni_vector_ops *ops;
    int64_t   n;
    char     *z;                               /* [n,n]                                         */
    double   *d, *e;                           /* [n]                                           */
    double   *ends[2];                         /* [n]: of each row of Z its first component, and its last one, in the
                                                  columns of its block                          */
    double    nothing;                         /* an off-diagonal up to this is zero            */
    char     *packed, *turn;                   /* [n,n] each: rows of Z to join, their factor   */
    double   *rows;                            /* [n] for each TNI_MERGE_SHARE poles            */
    double   *arrays;                          /* TNI_MERGE_ARRAYS of [n], of numbers           */
    int64_t  *lists;                           /* TNI_MERGE_LISTS of [n], of indices            */
    double   *leaf, *strip, *rotations;        /* for QL, TNI_LEAF_ROTATIONS of them            */
} tni_divide;

typedef struct tni_complex { double re, im; } tni_complex;

static tni_complex tni_complex_of(double re, double im) { tni_complex c; c.re = re; c.im = im; return c; }
static tni_complex tni_times(tni_complex a, tni_complex b)
{
    return tni_complex_of(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
}

typedef struct tni_lanczos_job {
    const tni_pool *pool;
    tn_simd         simd;
    tni_host        host;
    int64_t        n, top, block, room, limit;           /* room: rows of V */
    tn_lanczos_end end;
    double         tol;
    uint64_t       seed;
    tn_matvec_fn  fn;
    void          *user;
    int64_t        used, last, next;                     /* rows of V; of its last block; of Q, which is below V */
    int64_t        products, draws;
    bool           anew, done;                           /* the last block was random; the pairs are found           */
    double         before;                               /* key of the last wanted pair when that block was drawn    */
    double         scale, norm, skew, residual;          /* y times scale is about one; |A|; |H - H^T|               */
    double        *v, *y;                                /* [room + block,n]  [block,n]                              */
    double        *h, *copy, *s, *theta;                 /* [room + block,room]  [room,room] twice  [room]           */
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

typedef struct tni_lay { double *base; int64_t used; } tni_lay;

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

static void tni_swap_pointers(double **a, double **b) { double *t = *a; *a = *b; *b = t; }
#endif /* TN_NO_OPERATOR */
