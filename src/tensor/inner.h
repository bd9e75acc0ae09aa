static bool tni_alive(const tn_tensor *t) { return t && t->alive == TNI_ALIVE; }

/* Ops take the context's dtype and that of its activations. */
static bool tni_computes(const tn_ctx *ctx, tn_dtype dtype)
{
    return dtype == ctx->desc.dtype || dtype == ctx->desc.activations;
}

/* A view asks its base, which may have been watched or frozen after the view was made. */
static bool tni_wants_grad(const tn_tensor *t) { return t && (tni_root(t)->flags & TNI_WANTS_GRAD) != 0; }

/* A call without operands */
static void tni_call_begin(tn_call *c, tn_kernel kernel)
{
    tni_clear(c, sizeof *c);
    c->kernel = kernel;
}

/* The compact copy of a matrix, see >>compact: words of 32 bits, `words` per row, and then, for INT8, a scale per row. Or its
   shadow, see >>shadow: the same elements in BF16; kind is then TN_WEIGHTS_F32. */
typedef struct tni_compact {
    tn_weights kind;
    int64_t    rows, words;
    void      *data;
    size_t     bytes;
    bool       shadow, stale;           /* stale: the elements are not those of the matrix */
    bool       was_stale;               /* when the capture began                          */
} tni_compact;

typedef struct tni_found { double value; int64_t at; } tni_found;
typedef struct tni_heap { tn_order order; int64_t held, k, room; tni_found *found; } tni_heap;

static void tni_heap_end(tn_ctx *ctx, tni_heap *h) { tni_free(ctx, h->found, sizeof *h->found * (size_t)h->room); }

static bool tni_same_shape(const tn_tensor *a, const tn_tensor *b)
{
    return a->rank == b->rank && memcmp(a->shape, b->shape, sizeof a->shape[0] * (size_t)a->rank) == 0;
}
