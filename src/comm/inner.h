/* Most bytes of numbers of the host that processes exchange at once: enough for what each tells all others. */
static size_t tni_comm_most(const tn_ctx *ctx)
{
    const size_t told = 64 * (size_t)ctx->desc.comm->size;
    return told > 65536 ? told : 65536;
}

typedef enum tni_collective { TNI_ALL_REDUCE, TNI_REDUCE_SCATTER, TNI_ALL_GATHER, TNI_BROADCAST } tni_collective;

/* Elements [begin,begin + count) of n: `most` of rank's part from its element `at`. */
typedef struct tni_span { int64_t begin, count; } tni_span;
