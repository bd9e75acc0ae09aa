/* live_vectors.inl - a part of live.c: the eigenvectors of an MLP, what they add after a text, and the directions of tokens */

/* ---- eigenvectors of an MLP ------------------------------------------------------------------------------------------- */

/* The eigenpairs of a token in a block, computed when they are asked for; false: the context has an error, or no memory. */
static bool vectors_of(int64_t block, int64_t token)
{
    const uint64_t mark = tn_cp_mark(ctx);
    vectors       *v = &vector_list[block];
    tn_eigenpairs  e;
    if (v->vector && v->token == token) return true;
    tn_cp     *cp = tn_circuit_mlp(ctx, &net, block);
    tn_tensor *u = cp ? tn_circuit_unembedding(ctx, &net) : NULL;
    u = u ? tn_reshape(tn_slice(u, 0, token, token + 1), 1, &net.desc.dim) : NULL;
    forget_vectors(v);
    if (u && tn_cp_eigen(cp, u, VECTORS, &e) == TN_OK) {
        v->token = token;
        v->count = e.count;
        v->n = e.n;
        v->value = (double *)malloc((size_t)e.count * sizeof *v->value);
        v->vector = (double *)malloc((size_t)(e.count * e.n) * sizeof *v->vector);
        if (v->value && v->vector) {
            tn_read(e.values, TN_F64, v->value, e.count);
            tn_read(e.vectors, TN_F64, v->vector, e.count * e.n);
        }
        tn_eigenpairs_destroy(&e);
    }
    tn_cp_release(ctx, mark, NULL);
    if (v->value && v->vector) return true;
    forget_vectors(v);
    return false;
}

/* What the last position of a run has at some points. */
typedef struct last_position { int64_t block; double *stream, *mlp /* [dim] each */, scale, end; } last_position;

static tn_tensor *read_last(tn_ctx *c, void *user, const char *name, tn_tensor *x)
{
    last_position *l = (last_position *)user;
    (void)c;
    if (!strcmp(name, "norm.scale")) tn_read(tn_slice(x, 1, asked - 1, asked), TN_F64, &l->end, 1);
    else if (block_of(name) == l->block) {
        const bool one = ends(name, ".scale");
        tn_read(tn_slice(x, 1, asked - 1, asked), TN_F64, one ? &l->scale : ends(name, ".mlp") ? l->mlp : l->stream,
                one ? 1 : net.desc.dim);
    }
    return x;
}

static tn_tensor *read_embedding(tn_ctx *c, void *user, const char *name, tn_tensor *x)
{
    (void)c;
    (void)name;
    tn_read(x, TN_F32, (float *)user, tn_tensor_count(x));
    return NULL;                                /* nothing after it is needed */
}

/* The embeddings of all tokens over the denominator of their norm. */
static bool embed_tokens(void)
{
    const int64_t V = net.desc.vocab, dim = net.desc.dim, most = 512;
    tn_tap        tap = {"embed", read_embedding, NULL};
    if (token_list) return true;
    token_list = (float *)calloc((size_t)(V * dim), sizeof *token_list);
    for (int64_t first = 0; token_list && first < V; first += most) {
        const int64_t count = V - first < most ? V - first : most;
        int32_t       ids[512];
        tn_tensor    *t = tn_tensor_2d(ctx, TN_I32, count, 1);
        for (int64_t i = 0; i < count; i++) ids[i] = (int32_t)(first + i);
        tn_write(t, TN_I32, ids, count);
        tap.user = token_list + first * dim;
        tn_transformer_run(ctx, &net, t, &tap, 1);
        tn_ctx_clear_error(ctx);                /* that the run was stopped */
        tn_ctx_reset(ctx);
    }
    for (int64_t i = 0; token_list && i < V && !net.desc.no_norm; i++) {
        float *row = token_list + i * dim;
        double mean = 0, square = 0;
        for (int64_t k = 0; k < dim && net.blocks[0].norm1.desc.kind == TN_NORM_LAYER; k++) mean += (double)row[k] / (double)dim;
        for (int64_t k = 0; k < dim; k++) square += ((double)row[k] - mean) * ((double)row[k] - mean) / (double)dim;
        for (int64_t k = 0; k < dim; k++) row[k] /= (float)sqrt(square + net.blocks[0].norm1.desc.eps);
    }
    return token_list != NULL;
}

/* The tokens that lie most along a vector, or against it: ids [NEAREST]. */
static void nearest_tokens(const double *vector, int sign, double *ids)
{
    double  best[NEAREST];
    int64_t k, kept = 0;
    for (int64_t i = 0; i < net.desc.vocab; i++) {
        const float *row = token_list + i * net.desc.dim;
        double       dot = 0;
        for (k = 0; k < net.desc.dim; k++) dot += (double)row[k] * vector[k];
        dot *= sign;
        if (kept == NEAREST && !(dot > best[NEAREST - 1])) continue;
        if (kept < NEAREST) kept++;
        for (k = kept - 1; k > 0 && dot > best[k - 1]; k--) best[k] = best[k - 1], ids[k] = ids[k - 1];
        best[k] = dot;
        ids[k] = (double)i;
    }
}

/* What the eigenvectors of `token` in the MLP of a block add to its logit after the position that is asked for, in the order of
   |value|, at most VECTORS, in the model without what is ablated. Returns their number; numbers: of each its value,
   vector . [z;1], what it adds, and, of the NAMED that add most, the ids of NEAREST tokens that lie on this side of it (-1:
   none); then what the MLP adds; then the vectors, each of width numbers, or one more with a constant. */
int EXPORT(live_vectors)(int block, int token)
{
    enum { EACH = 3 + NEAREST };
    static const char *const points[4] = {"blocks.*.middle", "blocks.*.mlp", "blocks.*.norm2.scale", "norm.scale"};
    const int64_t dim = net.desc.dim;
    last_position last;
    tn_tap        taps[4];
    double        total = 0;
    int64_t       k;
    if (!block_is(block) || token < 0 || token >= net.desc.vocab) return refuse("there is no such block or token");
    if (!length) return refuse("the text has no tokens");
    if (!as_ablated() || !vectors_of(block, token)) return end(-1);
    vectors *v = &vector_list[block];
    double  *u = (double *)malloc((size_t)(3 * dim) * sizeof *u);
    if (!u || !embed_tokens() || !begin((EACH + v->n) * v->count + 1)) {
        free(u);
        return refuse("out of memory");
    }
    memset(&last, 0, sizeof last);
    last.block = block;
    last.stream = u + dim;
    last.mlp = u + 2 * dim;
    last.scale = last.end = 1;
    for (k = 0; k < 4; k++) {
        taps[k].points = points[k];
        taps[k].fn = read_last;
        taps[k].user = &last;
    }
    tn_transformer_run(ctx, &net, ids_tensor(text, asked), taps, net.desc.no_norm ? 2 : 4);
    tn_read(tn_slice(tn_circuit_unembedding(ctx, &net), 0, token, token + 1), TN_F64, u, dim);
    for (int64_t i = 0; i < dim; i++) total += u[i] * last.mlp[i] * last.end;
    for (k = 0; k < v->count; k++) {
        const double *vector = v->vector + k * v->n;
        double       *to = numbers + EACH * k, dot = v->n > dim ? vector[dim] : 0;
        for (int64_t i = 0; i < dim; i++) dot += vector[i] * last.stream[i] * last.scale;
        to[0] = v->value[k];
        to[1] = dot;
        to[2] = v->value[k] * dot * dot * last.end;
    }
    for (k = 0; k < v->count; k++) {
        double *to = numbers + EACH * k;
        int64_t more = 0;
        for (int64_t i = 0; i < v->count; i++) {
            const double size = fabs(numbers[EACH * i + 2]);
            more += size > fabs(to[2]) || (i < k && size == fabs(to[2]));
        }
        for (int64_t i = 0; i < NEAREST; i++) to[3 + i] = -1;
        if (more < NAMED) nearest_tokens(v->vector + k * v->n, to[1] < 0 ? -1 : 1, to + 3);
    }
    numbers[EACH * k] = total;
    memcpy(numbers + EACH * k + 1, v->vector, (size_t)(v->count * v->n) * sizeof *numbers);
    free(u);
    return end(v->count);
}

/* Hides an eigenvector of a token, `vector` as live_vectors has it, from the MLP of its block: the part of the normed stream
   along it is removed, so that vector . [z;1] is 0. k: a number by which the page knows it, since live_vectors does not count
   it any more. Without numbers (n is 0) it is shown again. */
int EXPORT(live_hide)(int block, int token, int k, const double *vector, size_t n)
{
    unseen **at = &unseen_list, *one;
    if (!block_is(block) || token < 0 || token >= net.desc.vocab) return refuse("there is no such block or token");
    if (n && (k < 0 || ((int64_t)n != net.desc.dim && (int64_t)n != net.desc.dim + 1)))
        return refuse("this is not an eigenvector of the block");
    while (*at && !((*at)->block == block && (*at)->token == token && (*at)->pair == k)) at = &(*at)->next;
    if (*at && !n) {
        one = *at;
        *at = one->next;
        free(one->vector);
        free(one);
    }
    whole_list[block].changed = true;
    if (*at || !n) return 0;
    one = (unseen *)calloc(1, sizeof *one);
    if (one) one->vector = (double *)malloc(n * sizeof *one->vector);
    if (!one || !one->vector) {
        free(one);
        return refuse("out of memory");
    }
    one->block = block;
    one->token = token;
    one->pair = k;
    one->n = (int64_t)n;
    memcpy(one->vector, vector, n * sizeof *one->vector);
    *at = one;
    return end(0);
}
