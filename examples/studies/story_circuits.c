/* story_circuits.c - what a one-layer story model does, read from its weights: its n-grams, its strongest pairs, its heads

   D(B+) is the table of a model's logits after one token alone, with its MLP and without attention; no text is run. Is its
   largest entry among the ten tokens that most often follow in the text, for the commonest tokens? And are its ten largest
   entries, each column's mean subtracted, those of the largest pointwise mutual information? Two controls are asked the
   same: an untrained model of the same shape, and the trained table with its rows shuffled.
       T(.) for a next token: which pairs of the commonest tokens speak for it or against it, with their share.
       Heads: the copying score of each OV circuit; the pairs of query and key, a token apart, with the largest scores; and
       the tokens with the largest mean scores, as queries and as keys.
       The block as tensors (OV++) with the denominators of its norms held at their means: what that does to the loss.

   With --held, a text that the model was not trained on, and any number of blocks: the ten strongest kinds of paths are
   deleted in the network, and the change of the loss is compared with the prediction from the decomposition; the same for
   single paths; an untrained model and shuffled predictions are the controls. Of one block, bounds of the accuracy for all
   texts that end like those of the text, beside the accuracy.

   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/story_circuits.c -o story_circuits -lm
   build/tn train TEXT --attention bilinear --vocab 1024 --out RUN && ./story_circuits --run RUN --text TEXT
   --run FOLDER   --text FILE   --held FILE   --tokens N   --rare N   --show N   --threads N */
#define _POSIX_C_SOURCE 200809L
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "story_circuits"
#include "text.h"

enum { TEN = 10 };

typedef struct options {
    const char *run, *text, *held;
    int64_t     tokens, rare, show, threads;    /* tokens that are asked about; occurrences a pair needs for its PMI */
} options;

/* ---- what the text says ------------------------------------------------------------------------------------- */

typedef struct counts {
    tn_tokenizer *tokenizer;
    int64_t       vocab, total;
    double       *one, *pair;           /* [vocab], [vocab,vocab]: occurrences */
    int32_t      *common;               /* [tokens], the commonest first       */
    const char  **name;                 /* [vocab]                             */
    int32_t      *ids;                  /* [total]: the text                   */
} counts;

static const double *sorted_by;
static int falling(const void *a, const void *b)
{
    const double x = sorted_by[*(const int32_t *)a], y = sorted_by[*(const int32_t *)b];
    return x != y ? (x < y) - (x > y) : *(const int32_t *)a - *(const int32_t *)b;
}

/* Marks between texts end a document: no pair crosses them. */
static counts count_text(tn_ctx *ctx, const options *o, tn_tokenizer *tokenizer)
{
    counts      c = {0};
    int64_t     bytes, next;
    char       *text = read_text(*o->held ? o->held : o->text, &bytes);
    int32_t    *ids = zeros(2 * bytes + 1, sizeof *ids);      /* at most 3 tokens for 2 bytes, or 2 for one */
    c.ids = ids;
    c.tokenizer = tokenizer;
    c.vocab = tn_tokenizer_count(tokenizer);
    c.one = zeros(c.vocab, sizeof *c.one);
    c.pair = zeros(c.vocab * c.vocab, sizeof *c.pair);
    c.name = zeros(c.vocab, sizeof *c.name);
    for (int64_t i = 0; i < c.vocab; i++) c.name[i] = tn_tokenizer_token(tokenizer, i);
    for (int64_t at = 0; at < bytes; at += next) {
        int64_t end = document_end(text + at, bytes - at, &next);
        int64_t n = tn_tokenizer_encode(tokenizer, text + at, (size_t)end, TN_BOS_NONE, ids, 2 * bytes - c.total, NULL);
        if (n < 0) check(ctx);
        for (int64_t i = 0; i < n; i++) c.one[ids[i]]++;
        for (int64_t i = 0; i + 1 < n; i++) c.pair[ids[i] * c.vocab + ids[i + 1]]++;
        c.total += n;
        ids += n;
    }
    int32_t *order = zeros(c.vocab, sizeof *order);
    for (int64_t i = 0; i < c.vocab; i++) order[i] = (int32_t)i;
    sorted_by = c.one;
    qsort(order, (size_t)c.vocab, sizeof *order, falling);
    c.common = order;
    free(text);
    return c;
}

/* ---- tables against the text -------------------------------------------------------------------------------- */

/* The first `count` ids of a row by falling number. */
static void first_of(const double *row, int64_t n, int32_t *order)
{
    for (int64_t i = 0; i < n; i++) order[i] = (int32_t)i;
    sorted_by = row;
    qsort(order, (size_t)n, sizeof *order, falling);
}

typedef struct verdict { double hits, overlap; } verdict;

/* d [tokens,vocab]: row i belongs to the i-th commonest token; `turn` gives it to another one. */
static verdict judge(const options *o, const counts *c, const double *d, int64_t turn)
{
    const int64_t V = c->vocab, n = o->tokens;
    double       *mean = zeros(V, sizeof *mean), *row = zeros(V, sizeof *row);
    int32_t      *ours = zeros(V, sizeof *ours), *theirs = zeros(V, sizeof *theirs);
    verdict       v = {0, 0};
    int64_t       asked = 0;
    for (int64_t i = 0; i < n; i++) for (int64_t u = 0; u < V; u++) mean[u] += d[i * V + u] / (double)n;
    for (int64_t i = 0; i < n; i++) {
        const int32_t token = c->common[(i + turn) % n];
        const double *pair = c->pair + (int64_t)token * V;
        int64_t       possible = 0, both = 0;
        first_of(d + i * V, V, ours);
        first_of(pair, V, theirs);
        for (int64_t k = 0; k < TEN; k++) v.hits += pair[theirs[k]] > 0 && theirs[k] == ours[0] ? 1 / (double)n : 0;
        for (int64_t u = 0; u < V; u++) {                       /* log p(u|token)/p(u), of pairs that are not rare */
            row[u] = pair[u] >= (double)o->rare ? log(pair[u] * (double)c->total / c->one[token] / c->one[u]) : -HUGE_VAL;
            possible += pair[u] >= (double)o->rare;
        }
        first_of(row, V, theirs);
        for (int64_t u = 0; u < V; u++) row[u] = d[i * V + u] - mean[u];
        first_of(row, V, ours);
        if (possible < TEN) continue;
        asked++;
        for (int64_t k = 0; k < TEN; k++) for (int64_t l = 0; l < TEN; l++) both += ours[k] == theirs[l];
        v.overlap += (double)both / TEN;
    }
    v.overlap = asked ? v.overlap / (double)asked : 0;
    free(mean); free(row); free(ours); free(theirs);
    return v;
}

/* The rows of D for the commonest tokens, on the host. */
static double *bigrams(tn_ctx *ctx, const options *o, const counts *c, const tn_transformer *m)
{
    double     *d = zeros(o->tokens * c->vocab, sizeof *d);
    tn_tensor  *ids = tn_tensor_from(ctx, 1, &o->tokens, TN_I32, c->common);
    tn_circuit *all = tn_circuit_bigrams(ctx, m, m->desc.layers, 0), *some = tn_circuit_select(all, ids, NULL);
    check(ctx);
    if (tn_read(tn_circuit_rows(ctx, some, 0, o->tokens), TN_F64, d, o->tokens * c->vocab) != TN_OK) check(ctx);
    tn_circuit_destroy(some);
    tn_circuit_destroy(all);
    return d;
}

static void show_bigrams(const options *o, const counts *c, const double *d)
{
    int32_t *ours = zeros(c->vocab, sizeof *ours), *theirs = zeros(c->vocab, sizeof *theirs);
    int64_t  shown = 0;
    printf("%-12s %-44s %s\n", "after", "D(B+), from the weights", "in the text");
    for (int64_t i = 0; i < o->tokens && shown < o->show; i++) {
        char left[128] = "", right[128] = "";
        if (strlen(c->name[c->common[i]]) < 3 || strncmp(c->name[c->common[i]], "##", 2) == 0) continue;
        first_of(d + i * c->vocab, c->vocab, ours);
        first_of(c->pair + (int64_t)c->common[i] * c->vocab, c->vocab, theirs);
        for (int64_t k = 0; k < 4; k++) {
            snprintf(left + strlen(left), sizeof left - strlen(left), "%.9s ", c->name[ours[k]]);
            snprintf(right + strlen(right), sizeof right - strlen(right), "%.9s ", c->name[theirs[k]]);
        }
        printf("%-12s %-44s %s\n", c->name[c->common[i]], left, right);
        shown++;
    }
    free(ours);
    free(theirs);
}

/* ---- pairs and heads ---------------------------------------------------------------------------------------- */

/* names: of the rows and columns, which are the commonest tokens. */
static void show_entries(tn_ctx *ctx, const char **names, const tn_circuit *all, tn_tensor *ids, bool pairs)
{
    const tn_circuit_top_desc desc = { .top = 5, .order = TN_ORDER_MAGNITUDE, .pairs = pairs };
    tn_circuit               *c = tn_circuit_select(all, ids, ids);
    tn_circuit_entries        e;
    double                    value[5], share[5];
    int32_t                   at[10];
    if (tn_circuit_top(c, &desc, &e) != TN_OK || tn_read(e.values, TN_F64, value, 5) != TN_OK
        || tn_read(e.share, TN_F64, share, 5) != TN_OK || tn_read(e.index, TN_I32, at, 10) != TN_OK) check(ctx);
    for (int k = 0; k < 5; k++)
        printf("  %-12s %-12s %+10.3f  %.2f %%\n", names[at[2 * k]], names[at[2 * k + 1]], value[k], 100 * share[k]);
    tn_circuit_entries_destroy(&e);
    tn_circuit_destroy(c);
}

static void show_pairs(tn_ctx *ctx, const options *o, const counts *c, const tn_transformer *m, const char **names,
                       tn_tensor *ids)
{
    int64_t shown = 0;
    for (int64_t i = 0; i < o->tokens && shown < o->show / 4; i++) {
        tn_circuit *t;
        if (strlen(names[i]) < 4 || strncmp(names[i], "##", 2) == 0) continue;
        if (!(t = tn_circuit_pairs(ctx, m, 0, c->common[i]))) check(ctx);
        printf("pairs that speak for or against \"%s\", and their share of the squared norm:\n", names[i]);
        show_entries(ctx, names, t, ids, true);
        tn_circuit_destroy(t);
        shown++;
    }
}

/* The five with the largest means: what a head's queries, or keys, are about. */
static void show_means(tn_ctx *ctx, const char *what, const char **names, const tn_tensor *means, tn_tensor *ids)
{
    int32_t    at[5];
    tn_tensor *of = tn_gather(ctx, (tn_tensor *)means, 0, ids), *first;
    if (!tn_topk(ctx, of, 0, 5, TN_ORDER_MAGNITUDE, &first) || tn_read(first, TN_I32, at, 5) != TN_OK) check(ctx);
    printf("  %s of the largest mean scores:", what);
    for (int k = 0; k < 5; k++) printf(" %s", names[at[k]]);
    printf("\n");
}

static void show_heads(tn_ctx *ctx, const tn_transformer *m, const char **names, tn_tensor *ids)
{
    tn_circuit_desc d = { .tokens = true, .query = 1 };
    for (d.head = 0; d.head < m->desc.heads; d.head++) {
        tn_circuit *ov = tn_circuit_ov(ctx, m, &d), *qk = tn_circuit_qk(ctx, m, &d);
        tn_tensor  *keys = NULL, *queries = NULL;
        double      score = 0;
        if (!ov || !qk || tn_circuit_copying(ov, NULL, &score) != TN_OK
            || tn_circuit_means(qk, &keys, &queries) != TN_OK) check(ctx);
        printf("copying_head_%d: %.3f\n", (int)d.head, score);
        printf("query and key, one token before, of the largest scores, and their share of the squared norm:\n");
        show_entries(ctx, names, qk, ids, false);
        show_means(ctx, "queries", names, queries, ids);
        show_means(ctx, "keys", names, keys, ids);
        tn_tensor_destroy(keys);
        tn_tensor_destroy(queries);
        tn_circuit_destroy(qk);
        tn_circuit_destroy(ov);
    }
}

/* ---- the block as tensors, with the means of its norms ---------------------------------------------------------- */

enum { WINDOWS = 16 };

/* The stream at the beginning of the block: [1,T,dim] */
static tn_tensor *stream(tn_ctx *ctx, const tn_transformer *m, tn_tensor *ids)
{
    tn_tensor *x = tn_embedding_forward(ctx, &m->embed, ids);
    if (m->desc.embed_norm && !m->desc.no_norm) x = tn_norm_forward(ctx, &m->embed_norm, x);
    check(ctx);
    return x;
}

/* The loss of the block as OV++: B+ of sum_g A^g M^g x~, with the patterns of the run. */
static double loss_of_tensors(tn_ctx *ctx, const tn_transformer *m, const tn_circuit_block *o, tn_tensor *ids,
                              tn_tensor *next)
{
    const int64_t n = m->desc.dim, T = ids->shape[1], map[2] = {n + 1, n + 1}, square[2] = {T, T};
    tn_tensor    *x = tn_append_one(ctx, tn_reshape_2d(stream(ctx, m, ids), T, n));
    tn_tensor    *pattern = tn_transformer_pattern(ctx, m, ids, 0), *sum = NULL, *y;
    for (int64_t g = 0; g <= o->heads; g++) {
        y = tn_matmul(ctx, x, tn_transpose(tn_reshape(tn_slice(o->m, 0, g, g + 1), 2, map), 0, 1));
        if (g > 0) y = tn_matmul(ctx, tn_reshape(tn_slice(pattern, 1, g - 1, g), 2, square), y);
        sum = sum ? tn_add(ctx, sum, y) : y;
    }
    tn_tensor *both[2] = {sum, sum};
    y = tn_reshape(tn_cp_apply_each(ctx, o->b, both), 3, (int64_t[]){1, T, n});
    if (!m->desc.no_norm) y = tn_norm_forward(ctx, &m->norm, y);
    return tn_item(tn_cross_entropy(ctx, tn_transformer_unembed(ctx, m, y), next));
}

/* What it costs to hold the denominators of the norms at their means, on windows at the end of the text. */
static void show_freezing(tn_ctx *ctx, const counts *c, const tn_transformer *m)
{
    const int64_t        T = m->desc.context, shape[2] = {WINDOWS, T};
    int32_t             *at = zeros(2 * WINDOWS * T, sizeof *at);
    tn_circuit_block_desc d = {0};
    tn_circuit_block      o;
    double               loss = 0;
    if (m->desc.norm != TN_NORM_RMS || c->total < WINDOWS * (T + 1)) return;
    for (int64_t i = 0; i < 2 * WINDOWS * T; i++)               /* the windows, then the same a token later */
        at[i] = c->ids[c->total - (i / T % WINDOWS + 1) * (T + 1) + i % T + i / (WINDOWS * T)];
    tn_tensor *ids = tn_tensor_from(ctx, 2, shape, TN_I32, at), *next = tn_tensor_from(ctx, 2, shape, TN_I32, at + WINDOWS * T);
    tn_tensor *scales = tn_circuit_norm_scales(ctx, m, ids);
    check(ctx);
    d.norm1_scale = tn_item(tn_mean(ctx, tn_slice(scales, 0, 0, 1)));
    d.norm2_scale = tn_item(tn_mean(ctx, tn_slice(scales, 0, 1, 2)));
    if (tn_circuit_block_of(ctx, m, &d, &o) != TN_OK) check(ctx);
    for (int k = 0; k < WINDOWS; k++) {
        const tn_mark mark = tn_arena_mark(ctx);
        loss += loss_of_tensors(ctx, m, &o, tn_slice(ids, 0, k, k + 1), tn_slice(next, 0, k, k + 1)) / WINDOWS;
        tn_arena_release(ctx, mark);
    }
    printf("loss_of_windows: %.6f\n", tn_item(tn_transformer_loss(ctx, m, ids, next)));
    printf("loss_of_tensors_with_mean_norms: %.6f\n", loss);
    check(ctx);
    tn_tensor_destroy(scales);
    tn_circuit_block_destroy(&o);
    free(at);
}

/* ---- kinds of paths: predicted and measured ---------------------------------------------------------------------

   A kind is a path without its positions, E -> 0.head1 -> 0.mlp -> U: it is deleted for all tokens of the texts at once.
   Taken from the input of its first part is the embedding, from that of the next one what the first then adds less, and so
   on. Predicted: patterns are those of the run; norms and products follow. Measured: by runs whose points are replaced. */

enum { TEXTS = 8, MOST_PARTS = 16, VALUE = 0, CONSTANT_NORMS, NORMS_FOLLOW };

typedef struct points { tn_tensor *input[2], *scale[2], *added[2], *pattern; } points;     /* of attention and MLP */
typedef struct kind { int parts, part[MOST_PARTS]; double predicted[3], measured; } kind;

typedef struct texts {
    tn_ctx               *ctx;
    const tn_transformer *m;
    tn_tensor            *ids, *next, *last, *scale, *slope;        /* slope: of the loss, by what the unembedding reads */
    points               *block;
    double                loss;
    kind                 *kinds;
    int64_t               count, max;
} texts;

/* Part 0 .. heads - 1 of a block is a head, part heads its MLP. */
static int64_t block_of(const texts *t, int part) { return part / (t->m->desc.heads + 1); }
static int64_t head_of(const texts *t, int part) { return part % (t->m->desc.heads + 1); }
static bool is_mlp(const texts *t, int part) { return head_of(t, part) == t->m->desc.heads; }

static const char *point(char name[64], int64_t block, const char *which)
{
    if (block < 0) return "embed";
    snprintf(name, 64, "blocks.%d%s", (int)block, which);
    return name;
}

static tn_tensor *run_with(const texts *t, const char *edited, tn_edit edit, const char *read, tn_tensor **to)
{
    tn_tap     tap[2] = {{edited, tn_tap_edit, &edit}, {read, tn_tap_read, to}};
    tn_tensor *logits = tn_transformer_run(t->ctx, t->m, t->ids, tap, read ? 2 : 1);
    if (!logits) check(t->ctx);
    return logits;
}

/* What a part adds less when d is taken from its input: in the network itself. */
static tn_tensor *measured_step(const texts *t, int part, tn_tensor *d)
{
    const int64_t l = block_of(t, part);
    const tn_edit edit = { .keep = 1, .value = tn_scale(t->ctx, d, -1) };
    tn_tensor    *y = NULL, *z = NULL;
    char          in[64], out[64];
    if (is_mlp(t, part)) run_with(t, point(in, l, ".middle"), edit, point(out, l, ".mlp"), &y);
    else {
        run_with(t, point(in, l - 1, ""), edit, point(out, l, ".attn.z"), &z);
        run_with(t, point(in, l, ".attn.z"), (tn_edit){ .head = head_of(t, part), .heads = 1, .value = z },
                 point(out, l, ".attn"), &y);
    }
    return tn_sub(t->ctx, t->block[l].added[is_mlp(t, part)], y);
}

static double measured_end(const texts *t, tn_tensor *d)
{
    const tn_edit edit = { .keep = 1, .value = tn_scale(t->ctx, d, -1) };
    char          name[64];
    tn_tensor    *logits = run_with(t, point(name, t->m->desc.layers - 1, ""), edit, NULL, NULL);
    return tn_item(tn_cross_entropy(t->ctx, logits, t->next)) - t->loss;
}

static tn_tensor *normed(const texts *t, const tn_norm *norm, tn_tensor *x)
{
    return t->m->desc.no_norm ? x : tn_norm_forward(t->ctx, norm, x);
}

/* How the normed x changes when d is taken from it; *y becomes the normed x. */
static tn_tensor *normed_less(const texts *t, const tn_norm *norm, tn_tensor *x, tn_tensor *scale, tn_tensor *d, int how,
                              tn_tensor **y)
{
    *y = normed(t, norm, x);
    if (how == NORMS_FOLLOW) return tn_sub(t->ctx, *y, normed(t, norm, tn_sub(t->ctx, x, d)));
    if (scale) d = tn_mul(t->ctx, d, scale);
    return scale && norm->gain ? tn_mul(t->ctx, d, norm->gain) : d;
}

/* The same with the patterns of the run. A path's value counts half of a product's derivative: (MLP(y+d) - MLP(y-d))/4 */
static tn_tensor *predicted_step(const texts *t, int part, tn_tensor *d, int how)
{
    const tn_transformer_block *block = &t->m->blocks[block_of(t, part)];
    const points               *p = &t->block[block_of(t, part)];
    tn_ctx                     *ctx = t->ctx;
    const int64_t               h = head_of(t, part), T = t->ids->shape[1], shape[3] = {TEXTS, T, T};
    tn_tensor                  *y, *in[4];
    if (!is_mlp(t, part)) {
        in[0] = tn_reshape(tn_copy(ctx, tn_slice(p->pattern, 1, h, h + 1)), 3, shape);
        in[1] = normed_less(t, &block->norm1, p->input[0], p->scale[0], d, how, &y);
        in[2] = tn_attention_head(&block->attn, h, TN_HEAD_V);
        in[3] = tn_attention_head(&block->attn, h, TN_HEAD_O);
        return tn_scale(ctx, tn_einsum(ctx, "bts,bsn,vn,ov->bto", 4, in), t->m->desc.attn_scale);
    }
    d = normed_less(t, &block->norm2, p->input[1], p->scale[1], d, how, &y);
    in[0] = tn_mlp_forward(ctx, &block->mlp, how == VALUE ? tn_add(ctx, y, d) : y);
    in[1] = tn_mlp_forward(ctx, &block->mlp, tn_sub(ctx, y, d));
    return tn_scale(ctx, tn_sub(ctx, in[0], in[1]), t->m->desc.mlp_scale * (how == VALUE ? 0.25 : 1));
}

static double predicted_end(const texts *t, tn_tensor *d, int how)
{
    tn_tensor *y, *less = normed_less(t, &t->m->norm, t->last, t->scale, d, how, &y);
    if (how == VALUE) return -tn_item(tn_sum(t->ctx, tn_mul(t->ctx, t->slope, less)));
    y = tn_transformer_unembed(t->ctx, t->m, tn_sub(t->ctx, y, less));
    return tn_item(tn_cross_entropy(t->ctx, y, t->next)) - t->loss;
}

/* Finds all kinds that begin like k, whose last part adds d less. */
static void find_kinds(texts *t, kind k, tn_tensor *d)
{
    const int all = (int)(t->m->desc.layers * (t->m->desc.heads + 1));
    const int last = k.parts ? k.part[k.parts - 1] : -1;
    int       next = last < 0 || is_mlp(t, last) ? last + 1 : last - (int)head_of(t, last) + (int)t->m->desc.heads;
    k.predicted[NORMS_FOLLOW] = predicted_end(t, d, NORMS_FOLLOW);
    if (t->count == t->max) {
        t->max = 2 * t->max + 64;
        t->kinds = grown(t->kinds, t->max, sizeof *t->kinds);
    }
    t->kinds[t->count++] = k;
    for (k.parts++; next < all; next++) {
        const tn_mark mark = tn_arena_mark(t->ctx);
        k.part[k.parts - 1] = next;
        find_kinds(t, k, predicted_step(t, next, d, NORMS_FOLLOW));
        tn_arena_release(t->ctx, mark);
    }
}

static void complete(const texts *t, kind *k)
{
    const tn_mark mark = tn_arena_mark(t->ctx);
    for (int how = VALUE; how <= NORMS_FOLLOW + 1; how++) {
        tn_tensor *d = t->block[0].input[0];
        for (int i = 0; i < k->parts; i++)
            d = how > NORMS_FOLLOW ? measured_step(t, k->part[i], d) : predicted_step(t, k->part[i], d, how);
        if (how > NORMS_FOLLOW) k->measured = measured_end(t, d);
        else k->predicted[how] = predicted_end(t, d, how);
    }
    check(t->ctx);
    tn_arena_release(t->ctx, mark);
}

static int stronger(const void *a, const void *b)
{
    const double x = fabs(((const kind *)a)->predicted[NORMS_FOLLOW]), y = fabs(((const kind *)b)->predicted[NORMS_FOLLOW]);
    return (x < y) - (x > y);
}

/* 1 - sum (measured - predicted)^2 / sum (measured - mean)^2, each with the prediction of the one `turn` places on */
static double fit(const double *predicted, const double *measured, int64_t n, int64_t turn)
{
    double mean = 0, rest = 0, all = 0;
    for (int64_t i = 0; i < n; i++) mean += measured[i] / (double)n;
    for (int64_t i = 0; i < n; i++) {
        rest += pow(measured[i] - predicted[(i + turn) % n], 2);
        all += pow(measured[i] - mean, 2);
    }
    return 1 - rest / all;
}

static double shuffled(const double *predicted, const double *measured, int64_t n)
{
    double sum = 0;
    for (int64_t i = 1; i < n; i++) sum += fit(predicted, measured, n, i) / (double)(n - 1);
    return sum;
}

static double fit_kinds(const texts *t, int64_t n, int how)
{
    double predicted[TEN], measured[TEN];
    for (int64_t i = 0; i < n; i++) {
        predicted[i] = t->kinds[i].predicted[how < 0 ? NORMS_FOLLOW : how];
        measured[i] = t->kinds[i].measured;
    }
    return how < 0 ? shuffled(predicted, measured, n) : fit(predicted, measured, n, 0);
}

/* Of the ten strongest through heads after the first block, whose patterns the deletion changes. In the first block it
   leaves a head no input: what is added is then 0, whatever the pattern. */
static double fit_later(texts *t)
{
    double  predicted[TEN], measured[TEN];
    int64_t n = 0;
    for (int64_t i = 0; i < t->count && n < TEN; i++) {
        kind *k = &t->kinds[i];
        bool  later = false;
        for (int j = 0; j < k->parts; j++) later = later || (!is_mlp(t, k->part[j]) && block_of(t, k->part[j]) > 0);
        if (!later) continue;
        complete(t, k);
        predicted[n] = k->predicted[NORMS_FOLLOW];
        measured[n++] = k->measured;
    }
    return n ? fit(predicted, measured, n, 0) : 1;
}

static void print_kind(const texts *t, const kind *k)
{
    char name[200] = "E";
    for (int i = 0; i < k->parts; i++) {
        char part[32];
        if (is_mlp(t, k->part[i])) snprintf(part, sizeof part, " -> %d.mlp", (int)block_of(t, k->part[i]));
        else snprintf(part, sizeof part, " -> %d.head%d", (int)block_of(t, k->part[i]), (int)head_of(t, k->part[i]));
        strncat(name, part, sizeof name - strlen(name) - 1);
    }
    printf("%-46s %+10.4f %+10.4f %+10.4f %+10.4f\n", strcat(name, " -> U"), k->predicted[VALUE],
           k->predicted[CONSTANT_NORMS], k->predicted[NORMS_FOLLOW], k->measured);
}

static void read_points(texts *t)
{
    const tn_transformer *m = t->m;
    tn_tap                tap[MOST_PARTS * 8 + 2];
    char                (*name)[64] = zeros(MOST_PARTS * 8 + 2, sizeof *name);
    tn_tensor            *logits;
    int64_t               n = 0;
    t->block = zeros(m->desc.layers, sizeof *t->block);
    for (int64_t l = 0; l < m->desc.layers; l++) {
        points     *p = &t->block[l];
        tn_tensor **to[] = {&p->input[0], &p->input[1], &p->added[0], &p->added[1], &p->pattern, &p->scale[0], &p->scale[1]};
        const char *of[] = {"", ".middle", ".attn", ".mlp", ".attn.pattern", ".norm1.scale", ".norm2.scale"};
        for (int i = 0; i < (m->desc.no_norm ? 5 : 7); i++, n++)
            tap[n] = (tn_tap){point(name[n], i ? l : l - 1, of[i]), tn_tap_read, to[i]};
    }
    tap[n] = (tn_tap){point(name[n], m->desc.layers - 1, ""), tn_tap_read, &t->last};
    n++;
    if (!m->desc.no_norm) tap[n++] = (tn_tap){"norm.scale", tn_tap_read, &t->scale};
    if (!(logits = tn_transformer_run(t->ctx, m, t->ids, tap, n))) check(t->ctx);
    t->loss = tn_item(tn_cross_entropy(t->ctx, logits, t->next));
    tn_tensor *back = tn_softmax(t->ctx, logits);                        /* (softmax - one-hot) U / number of tokens */
    back = tn_matmul(t->ctx, back, m->head.w);
    back = tn_sub(t->ctx, back, tn_gather(t->ctx, m->head.w, 0, t->next));
    t->slope = tn_scale(t->ctx, back, 1 / (double)tn_tensor_count(t->ids));
    free(name);
    check(t->ctx);
}

static void show_kinds(tn_ctx *ctx, const counts *c, const tn_transformer *m, const char *which)
{
    const int64_t T = m->desc.context - 1, shape[2] = {TEXTS, T}, apart = c->total / TEXTS;
    int32_t      *ids = zeros(TEXTS * T, sizeof *ids), *next = zeros(TEXTS * T, sizeof *next);
    texts         t = { .ctx = ctx, .m = m };
    uint32_t      seed = 1;
    double        size[2] = {0, 0};
    if (2 * m->desc.layers > MOST_PARTS || m->desc.norm_place == TN_PLACE_SANDWICH || m->desc.norm_place == TN_PLACE_POST
        || m->desc.norm != TN_NORM_RMS || m->desc.head_norm || m->desc.x0_residual || m->desc.value_residual
        || m->desc.softcap > 0 || m->desc.attention == TN_ATTENTION_DIFFERENTIAL_PLAIN
        || m->desc.attention == TN_ATTENTION_DIFFERENTIAL || m->desc.mlp != TN_MLP_BILINEAR || m->desc.mlp_order > 2)
        stop("the model has other norms, residuals, patterns or MLPs, expected bilinear MLPs, RMS norms first or none");
    if (apart < T + 1) stop("--held is too short, expected eight texts");
    for (int64_t i = 0; i < TEXTS; i++) {
        memcpy(ids + i * T, c->ids + i * apart, (size_t)T * sizeof *ids);
        memcpy(next + i * T, c->ids + i * apart + 1, (size_t)T * sizeof *ids);
    }
    t.ids = tn_tensor_from(ctx, 2, shape, TN_I32, ids);
    t.next = tn_tensor_from(ctx, 2, shape, TN_I32, next);
    read_points(&t);
    find_kinds(&t, (kind){0}, t.block[0].input[0]);
    qsort(t.kinds, (size_t)t.count, sizeof *t.kinds, stronger);
    double  later = fit_later(&t);
    int64_t first = t.count < TEN ? t.count : TEN;
    int64_t others = t.count - first < TEN ? t.count - first : TEN;
    for (int64_t i = first; i < first + others; i++) {                   /* drawn from those that are not among the ten */
        const int64_t j = i + (int64_t)((seed = seed * 1664525u + 1013904223u) >> 8) % (t.count - i);
        const kind    k = t.kinds[i];
        t.kinds[i] = t.kinds[j];
        t.kinds[j] = k;
    }
    printf("%s: %d kinds of paths, loss %.4f on %d tokens; deleted, the loss changes by\n%-46s %10s %10s %10s %10s\n", which,
           (int)t.count, t.loss, (int)(TEXTS * T), "", "value", "constant", "predicted", "measured");
    for (int64_t i = 0; i < first + others; i++) {
        complete(&t, &t.kinds[i]);
        if (i < first) print_kind(&t, &t.kinds[i]);
        size[i >= first] += fabs(t.kinds[i].measured) / (double)(i < first ? first : others);
    }
    printf("r2_%s: %.4f\n", which, fit_kinds(&t, first, NORMS_FOLLOW));
    if (m->desc.layers > 1) printf("r2_later_heads_%s: %.4f\n", which, later);
    printf("r2_constant_norms_%s: %.4f\nr2_values_%s: %.4f\n", which, fit_kinds(&t, first, CONSTANT_NORMS), which,
           fit_kinds(&t, first, VALUE));
    printf("r2_shuffled_%s: %.4f\nmean_change_%s: %.4f\n", which, fit_kinds(&t, first, -1), which, size[0]);
    if (others > 0) printf("mean_change_others_%s: %.4f\n", which, size[1]);
    free(ids); free(next); free(t.kinds); free(t.block);
}

/* The ten strongest single paths to the loss of the last token of each text. */
static void show_paths(tn_ctx *ctx, const counts *c, const tn_transformer *m, const char *which)
{
    const int64_t T = m->desc.context < 64 ? m->desc.context - 1 : 64, shape[2] = {1, T}, apart = c->total / (2 * TEXTS);
    double        predicted[2 * TEXTS * TEN], measured[2 * TEXTS * TEN];
    int64_t       n = 0;
    for (int64_t i = 0; i < 2 * TEXTS; i++) {
        const tn_mark           mark = tn_arena_mark(ctx);
        const tn_circuit_target target = {TN_CIRCUIT_AIM_LOSS, T - 1, c->ids[i * apart + T], 0};
        tn_circuit_frozen       f;
        tn_circuit_paths        q;
        tn_circuit_ablation     gone;
        if (tn_circuit_freeze(ctx, m, tn_tensor_from(ctx, 2, shape, TN_I32, c->ids + i * apart), &f) != TN_OK
            || tn_circuit_paths_find(&f, &target, NULL, &q) != TN_OK || tn_circuit_paths_ablate(&q, TEN, &gone) != TN_OK
            || tn_read(gone.predicted, TN_F64, predicted + n, gone.count) != TN_OK
            || tn_read(gone.measured, TN_F64, measured + n, gone.count) != TN_OK) check(ctx);
        n += gone.count;
        tn_circuit_ablation_destroy(&gone);
        tn_circuit_paths_destroy(&q);
        tn_circuit_frozen_destroy(&f);
        tn_arena_release(ctx, mark);
    }
    printf("r2_single_paths_%s: %.4f\nr2_single_paths_shuffled_%s: %.4f\n", which, fit(predicted, measured, n, 0), which,
           shuffled(predicted, measured, n));
}

/* ---- bounds for all texts with an end, beside the truth ---------------------------------------------------------- */

enum { ENDS = 50 };

static void show_bounds(tn_ctx *ctx, const counts *c, const tn_transformer *m)
{
    const int64_t T = m->desc.context - 1, apart = (c->total - T - 1) / ENDS, all[2] = {ENDS, T}, rows = ENDS;
    int32_t      *ids = zeros(ENDS * T, sizeof *ids), next[ENDS], said[ENDS];
    int           right = 0;
    for (int64_t i = 0; i < ENDS; i++) {
        memcpy(ids + i * T, c->ids + i * apart, (size_t)T * sizeof *ids);
        next[i] = c->ids[i * apart + T];
    }
    tn_tensor *text = tn_tensor_from(ctx, 2, all, TN_I32, ids);
    tn_tensor *follow = tn_tensor_from(ctx, 1, &rows, TN_I32, next);
    tn_tensor *logits = tn_slice(tn_transformer_forward(ctx, m, text), 1, T - 1, T);
    if (tn_read(tn_argmax(ctx, logits), TN_I32, said, ENDS) != TN_OK) check(ctx);
    for (int64_t i = 0; i < ENDS; i++) right += said[i] == next[i];
    printf("%d ends of held-out text; accuracy of the model with all %d tokens: %.2f\n", ENDS, (int)T,
           (double)right / ENDS);
    printf("%6s %8s %8s %10s %10s %8s %8s\n", "known", "unknown", "no head", "certified", "of circuit", "lower", "upper");
    for (int64_t i = 0; i < m->desc.heads + 3; i++) {                    /* a head is missing, or tokens are unknown */
        const int64_t               seen = m->desc.window ? T - m->desc.window : 0;     /* one unknown position is seen */
        const int64_t               unknown = i < m->desc.heads ? 0 : seen + (INT64_C(1) << 2 * (i - m->desc.heads));
        const tn_circuit_bound_desc d = { .unknown = unknown, .dropped = unknown ? 0 : UINT64_C(1) << i };
        tn_circuit_bound            b;
        if (unknown >= T) break;
        text = tn_tensor_from(ctx, 2, all, TN_I32, ids);
        text = tn_copy(ctx, tn_slice(text, 1, unknown, T));
        if (tn_circuit_bound_of(ctx, m, text, follow, NULL, &d, &b) != TN_OK) check(ctx);
        printf("%6d %8d %8d %10.2f %10.2f %8.2f %8.2f\n", (int)(T - unknown), (int)unknown, unknown ? -1 : (int)i,
               b.certified, b.accuracy, b.lower, b.upper);
        if (right < floor(ENDS * b.lower + 0.5) || right > floor(ENDS * b.upper + 0.5)) stop("a bound is crossed");
        tn_circuit_bound_destroy(&b);
    }
    free(ids);
}

/* ---- the program --------------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    options    o = {"", "", "", 400, 5, 12, 0};
    const flag flags[] = {
        {"--run", FLAG_TEXT, &o.run, 0, 0, "the folder of a run of tn train"},
        {"--text", FLAG_TEXT, &o.text, 0, 0, "its text"},
        {"--held", FLAG_TEXT, &o.held, 0, 0, "a text that it was not trained on: paths and bounds"},
        {"--tokens", FLAG_COUNT, &o.tokens, 10, 1e6, NULL},
        {"--rare", FLAG_COUNT, &o.rare, 1, 1e6, NULL},
        {"--show", FLAG_COUNT, &o.show, 0, 1e4, NULL},
        THREADS_FLAG(&o),
        {0}
    };
    tn_desc    desc = {0};
    tn_ctx    *ctx;
    char       why[TN_WHY];
    read_flags(argc, argv, flags);
    if (!*o.run || !*o.text == !*o.held)
        stop("expected --run, the folder of a run of tn train, and one of --text, its text, and --held, one held out");
    desc.threads = (int)o.threads;
    desc.seed = 1;
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) stop(why);
    tn_transformer model = model_of_run(ctx, o.run, true);
    if (!*o.held && model.desc.layers != 1) stop("the model has several blocks, expected 1, or --held");
    tn_transformer untrained = model_of_run(ctx, o.run, false);
    tn_tokenizer  *tokenizer = tokenizer_of_run(ctx, o.run, &model);
    if (o.tokens > model.desc.vocab) o.tokens = model.desc.vocab;
    counts c = count_text(ctx, &o, tokenizer);
    if (*o.held) {
        for (int k = 0; k < 2; k++) {
            show_kinds(ctx, &c, k ? &untrained : &model, k ? "untrained" : "trained");
            show_paths(ctx, &c, k ? &untrained : &model, k ? "untrained" : "trained");
        }
        if (model.desc.layers == 1) show_bounds(ctx, &c, &model);
        check(ctx);
        tn_ctx_destroy(ctx);
        return 0;
    }
    double *d = bigrams(ctx, &o, &c, &model);
    double *control = bigrams(ctx, &o, &c, &untrained);
    show_bigrams(&o, &c, d);
    const char **names = zeros(o.tokens, sizeof *names);
    for (int64_t i = 0; i < o.tokens; i++) names[i] = c.name[c.common[i]];
    tn_tensor *ids = tn_tensor_from(ctx, 1, &o.tokens, TN_I32, c.common);
    show_pairs(ctx, &o, &c, &model, names, ids);
    show_heads(ctx, &model, names, ids);
    show_freezing(ctx, &c, &model);
    check(ctx);
    verdict v = judge(&o, &c, d, 0);
    printf("argmax_among_ten_successors: %.4f\noverlap_with_pmi: %.4f\n", v.hits, v.overlap);
    v = judge(&o, &c, control, 0);
    printf("argmax_untrained: %.4f\noverlap_untrained: %.4f\n", v.hits, v.overlap);
    v = judge(&o, &c, d, o.tokens / 2);
    printf("argmax_shuffled: %.4f\noverlap_shuffled: %.4f\n", v.hits, v.overlap);
    tn_ctx_destroy(ctx);
    return 0;
}
