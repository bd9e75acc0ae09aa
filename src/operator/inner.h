#ifndef TN_NO_OPERATOR
/* Operators are made outside of any recording, from arena tensors that are released at the end, and never in BF16. */
typedef struct tni_scope { tn_mark mark; bool recording; tn_dtype made; } tni_scope;

enum { TNI_TERM_ZERO = -(1 << 28) };

typedef struct tni_terms {              /* one operator's scales, some of its terms in double, and a block of these */
    const tn_cp *cp;
    int64_t  room, base, held;          /* terms that fit; those that are held            */
    int64_t  group;                     /* terms of a group, see below                    */
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
    tn_ctx   *ctx;
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
    double   *work;
    int64_t   work_size;
    tni_host  host;
} tni_pairs;
#endif /* TN_NO_OPERATOR */
