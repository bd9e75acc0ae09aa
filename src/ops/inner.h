static tn_tensor *tni_like(tn_ctx *ctx, const tn_tensor *t) { return tn_tensor_nd(ctx, t->dtype, t->rank, t->shape); }

/* The result of an op, with the dtype of activations. A single number (rank 0: a loss, a mean) has the context's dtype, as
   have tensors made with TN_REAL: norms, log-sum-exps, states, workspaces. */
static tn_tensor *tni_made(tn_ctx *ctx, int rank, const int64_t *shape)
{
    return tn_tensor_nd(ctx, rank == 0 ? ctx->desc.dtype : ctx->made, rank, shape);
}

/* The result of an op that moves numbers of this dtype without rounding: F32 stays F32, and I32 stays I32. */
static tn_tensor *tni_made_of(tn_ctx *ctx, tn_dtype dtype, int rank, const int64_t *shape)
{
    return dtype == TN_BF16 ? tni_made(ctx, rank, shape) : tn_tensor_nd(ctx, dtype, rank, shape);
}

/* Visits views of one shape row by row: the offsets of up to four operands, and their strides along a row. */
typedef struct tni_walk {
    int     rank, views;
    int64_t inner, shape[TN_MAX_RANK], at[TN_MAX_RANK];
    int64_t strides[4][TN_MAX_RANK], offset[4], step[4];
} tni_walk;

static bool tni_shadows(const tn_ctx *ctx)
{
    return ctx->backend->shadow > 0 && ctx->backend->fn[TN_KERNEL_GEMM]
           && (ctx->desc.activations == TN_BF16 || ctx->desc.gemm_precision == TN_GEMM_BF16);
}

/* Whether t has a shadow with the elements of t. */
static bool tni_shadow_holds(const tn_tensor *t) { return t->compact && t->compact->shadow && !t->compact->stale; }

typedef struct tni_prefixes {
    int64_t batch, n, d, states, size;          /* sites, extent of a matrix; states and elements of a state of a chain */
    bool    open, reverse;                      /* open: begins with a vector                                           */
} tni_prefixes;

/* Where state k of chain b is stored, and the matrix that leads to it. */
static int64_t tni_prefix_place(const tni_prefixes *s, int64_t b, int64_t k)
{
    return b * s->states + (s->reverse ? s->states - 1 - k : k);
}

static int64_t tni_prefix_site(const tni_prefixes *s, int64_t b, int64_t k)
{
    return b * s->n + (s->reverse ? s->states - 1 - k : k - s->open);
}

/* The row of head n of x [B,T,n,d]: the last axis has stride 1. */
#define TNI_ROW(x, b, t, n) ((TNI_REAL *)(x)->data + (b) * (x)->strides[0] + (t) * (x)->strides[1] + (n) * (x)->strides[2])

/* Copies the numbers of a call to a node, and back. */
static void tni_node_keep(tni_node *n, const tn_call *c)
{
    memcpy(n->i, c->i, sizeof n->i);
    memcpy(n->f, c->f, sizeof n->f);
}

static void tni_node_give(const tni_node *n, tn_call *c)
{
    memcpy(c->i, n->i, sizeof n->i);
    memcpy(c->f, n->f, sizeof n->f);
}

/* The keys [low,high) of this call that are visible to query i, and their number including the past. */
typedef struct tni_seen { int64_t low, high, n; } tni_seen;

static bool tni_attend_sums(const tn_call *c) { return (int)c->f[2] == TN_ROW_SCALE_SUM; }

static int64_t tni_attend_features(int64_t kind, int64_t d) { return kind == TN_ATTEND_SQUARED ? d * (d + 1) / 2 : d * d; }

/* Keys before this one are in the state when query i's chunk begins with i. */
static int64_t tni_attend_before(const tn_call *c, int64_t i)
{
    const int64_t Tq = c->in[0].shape[1], Tk = c->in[1].shape[1];
    return c->i[1] ? tni_max(Tk - Tq + i, 0) : Tk;
}

/* The factor that scales a matrix to norm 1; 0 for norms below 1e-30, where it would overflow a float. */
static double tni_muon_unit(double squares) { return squares > 1e-60 ? 1 / sqrt(squares) : 0; }
