/* live_steer.inl - a part of live.c: a vector that is added to the residual stream, and what directions there are */

/* ---- steering --------------------------------------------------------------------------------------------------------- */

/* Adds a vector [dim] to the residual stream between attention and MLP of a block, the point blocks.B.middle, at each position,
   in place of one that was added before. Without numbers (n is 0) nothing is added. */
int EXPORT(live_steer)(int block, const double *vector, size_t n)
{
    if (!block_is(block) || (n && (int64_t)n != net.desc.dim)) return refuse("this is not a vector of a block's stream");
    if (n && !bias_before_middle(&net.blocks[block]))
        return refuse("the norms of this model leave no place at which a vector could be added");
    if (steering) whole_list[steered].changed = true;
    free(steering);
    steering = n ? (double *)malloc(n * sizeof *steering) : NULL;
    net.desc.attn_out_bias = own_bias || steering;          /* paths have a source for constants then */
    if (!n) return 0;
    if (!steering) return refuse("out of memory");
    memcpy(steering, vector, n * sizeof *steering);
    steered = block;
    whole_list[block].changed = true;
    return begin(0) ? end(0) : end(-1);
}

static tn_tensor *read_lengths(tn_ctx *c, void *user, const char *name, tn_tensor *x)
{
    if (block_of(name) != *(const int *)user) return x;
    tn_read(tn_sum_axis(c, tn_mul(c, x, x), -1), TN_F64, numbers, length);
    return x;
}

/* The length of the residual stream at that point of a block, for each token of the text: numbers [tokens]. Returns their
   number. */
int EXPORT(live_stream)(int block)
{
    const tn_tap tap = {"blocks.*.middle", read_lengths, &block};
    if (!block_is(block)) return refuse("there is no such block");
    if (!length) return refuse("the text has no tokens");
    if (!as_ablated() || !begin(length)) return end(-1);
    tn_transformer_run(ctx, &net, ids_tensor(text, length), &tap, 1);
    for (int64_t i = 0; i < length; i++) numbers[i] = sqrt(numbers[i]);
    return end(length);
}

/* The direction of a token in the stream, its embedding, of length 1: numbers [dim]. Returns their number. */
int EXPORT(live_direction)(int token)
{
    const int64_t dim = net.desc.dim;
    double        size = 0;
    if (!off || token < 0 || token >= net.desc.vocab) return refuse("there is no such token");
    if (!embed_tokens() || !begin(dim)) return refuse("out of memory");
    const float *row = token_list + token * dim;
    for (int64_t k = 0; k < dim; k++) size += (double)row[k] * (double)row[k];
    for (int64_t k = 0; k < dim; k++) numbers[k] = size > 0 ? (double)row[k] / sqrt(size) : 0;
    return end(dim);
}
