/* story_circuits.c - what a one-layer story model does, read from its weights: its n-grams, its strongest pairs, its heads

   D(B+) is the table of a model's logits after one token alone, with its MLP and without attention; no text is run. Is its
   largest entry among the ten tokens that most often follow in the text, for the commonest tokens? And are its ten largest
   entries, each column's mean subtracted, those of the largest pointwise mutual information? Two controls are asked the
   same: an untrained model of the same shape, and the trained table with its rows shuffled.
       T(.) for a next token: which pairs of the commonest tokens speak for it or against it, with their share.
       Heads: the copying score of each OV circuit; the pairs of query and key, a token apart, with the largest scores; and
       the tokens with the largest mean scores, as queries and as keys.
       The block as tensors (OV++) with the denominators of its norms held at their means: what that does to the loss.

   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/story_circuits.c -o story_circuits -lm
   build/tn train TEXT --attention bilinear --vocab 1024 --out RUN && ./story_circuits --run RUN --text TEXT
   --run FOLDER   --text FILE   --tokens N   --rare N   --show N   --threads N */
#define _POSIX_C_SOURCE 200809L
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "story_circuits"
#include "program.h"

enum { TEN = 10 };

typedef struct options {
    const char *run, *text;
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

static void *room(int64_t count, size_t each)
{
    void *p = calloc((size_t)(count > 0 ? count : 1), each);
    if (!p) stop("out of memory");
    return p;
}

static char *read_text(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    char *text;
    long  length = -1;
    if (!f || fseek(f, 0, SEEK_END) != 0 || (length = ftell(f)) < 0) stop("--text cannot be read");
    rewind(f);
    text = room(length + 1, 1);
    *bytes = fread(text, 1, (size_t)length, f);
    fclose(f);
    return text;
}

static const double *sorted_by;
static int falling(const void *a, const void *b)
{
    const double x = sorted_by[*(const int32_t *)a], y = sorted_by[*(const int32_t *)b];
    return x != y ? (x < y) - (x > y) : *(const int32_t *)a - *(const int32_t *)b;
}

/* Marks between texts end a document: no pair crosses them. */
static counts count_text(tn_ctx *ctx, const options *o, tn_tokenizer *tokenizer)
{
    static const char mark[] = "<|endoftext|>";
    counts      c = {0};
    size_t      bytes;
    char       *text = read_text(o->text, &bytes), *at = text;
    int32_t    *ids = room((int64_t)bytes + 1, sizeof *ids), *order;
    int64_t     i, n;
    c.ids = ids;
    c.tokenizer = tokenizer;
    c.vocab = tn_tokenizer_count(tokenizer);
    c.one = room(c.vocab, sizeof *c.one);
    c.pair = room(c.vocab * c.vocab, sizeof *c.pair);
    c.name = room(c.vocab, sizeof *c.name);
    for (i = 0; i < c.vocab; i++) c.name[i] = tn_tokenizer_token(tokenizer, i);
    while (at < text + bytes) {
        char *end = strstr(at, mark);
        if (!end) end = text + bytes;
        n = tn_tokenizer_encode(tokenizer, at, (size_t)(end - at), TN_BOS_NONE, ids, (int64_t)bytes - c.total, NULL);
        if (n < 0) check(ctx);
        for (i = 0; i < n; i++) c.one[ids[i]]++;
        for (i = 0; i + 1 < n; i++) c.pair[ids[i] * c.vocab + ids[i + 1]]++;
        c.total += n;
        ids += n;
        at = end < text + bytes ? end + sizeof mark - 1 : end;
    }
    order = room(c.vocab, sizeof *order);
    for (i = 0; i < c.vocab; i++) order[i] = (int32_t)i;
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
    int64_t i;
    for (i = 0; i < n; i++) order[i] = (int32_t)i;
    sorted_by = row;
    qsort(order, (size_t)n, sizeof *order, falling);
}

typedef struct verdict { double hits, overlap; } verdict;

/* d [tokens,vocab]: row i belongs to the i-th commonest token; `turn` gives it to another one. */
static verdict judge(const options *o, const counts *c, const double *d, int64_t turn)
{
    const int64_t V = c->vocab, n = o->tokens;
    double       *mean = room(V, sizeof *mean), *row = room(V, sizeof *row);
    int32_t      *ours = room(V, sizeof *ours), *theirs = room(V, sizeof *theirs);
    verdict       v = {0, 0};
    int64_t       i, k, l, u, asked = 0;
    for (i = 0; i < n; i++) for (u = 0; u < V; u++) mean[u] += d[i * V + u] / (double)n;
    for (i = 0; i < n; i++) {
        const int32_t token = c->common[(i + turn) % n];
        const double *pair = c->pair + (int64_t)token * V;
        int64_t       possible = 0, both = 0;
        first_of(d + i * V, V, ours);
        first_of(pair, V, theirs);
        for (k = 0; k < TEN; k++) v.hits += pair[theirs[k]] > 0 && theirs[k] == ours[0] ? 1 / (double)n : 0;
        for (u = 0; u < V; u++) {                               /* log p(u|token)/p(u), of pairs that are not rare */
            row[u] = pair[u] >= (double)o->rare ? log(pair[u] * (double)c->total / c->one[token] / c->one[u]) : -HUGE_VAL;
            possible += pair[u] >= (double)o->rare;
        }
        first_of(row, V, theirs);
        for (u = 0; u < V; u++) row[u] = d[i * V + u] - mean[u];
        first_of(row, V, ours);
        if (possible < TEN) continue;
        asked++;
        for (k = 0; k < TEN; k++) for (l = 0; l < TEN; l++) both += ours[k] == theirs[l];
        v.overlap += (double)both / TEN;
    }
    v.overlap = asked ? v.overlap / (double)asked : 0;
    free(mean); free(row); free(ours); free(theirs);
    return v;
}

/* The rows of D for the commonest tokens, on the host. */
static double *bigrams(tn_ctx *ctx, const options *o, const counts *c, const tn_transformer *m)
{
    double     *d = room(o->tokens * c->vocab, sizeof *d);
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
    int32_t *ours = room(c->vocab, sizeof *ours), *theirs = room(c->vocab, sizeof *theirs);
    int64_t  i, k, shown = 0;
    printf("%-12s %-44s %s\n", "after", "D(B+), from the weights", "in the text");
    for (i = 0; i < o->tokens && shown < o->show; i++) {
        char left[128] = "", right[128] = "";
        if (strlen(c->name[c->common[i]]) < 3 || strncmp(c->name[c->common[i]], "##", 2) == 0) continue;
        first_of(d + i * c->vocab, c->vocab, ours);
        first_of(c->pair + (int64_t)c->common[i] * c->vocab, c->vocab, theirs);
        for (k = 0; k < 4; k++) {
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
    int64_t i, shown = 0;
    for (i = 0; i < o->tokens && shown < o->show / 4; i++) {
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

/* The mean over rows of 1/sqrt(mean x^2 + eps): what an RMS norm multiplies by. */
static double mean_factor(tn_ctx *ctx, tn_tensor *x, double eps)
{
    const int64_t n = x->shape[x->rank - 1], rows = tn_tensor_count(x) / n;
    double       *v = room(rows * n, sizeof *v), sum = 0;
    if (tn_read(x, TN_F64, v, rows * n) != TN_OK) check(ctx);
    for (int64_t r = 0; r < rows; r++) {
        double square = 0;
        for (int64_t i = 0; i < n; i++) square += v[r * n + i] * v[r * n + i] / (double)n;
        sum += 1 / sqrt(square + eps) / (double)rows;
    }
    free(v);
    return sum;
}

/* The stream at the beginning of the block, and after its attention: [1,T,dim] */
static tn_tensor *stream(tn_ctx *ctx, const tn_transformer *m, tn_tensor *ids, tn_tensor **after)
{
    tn_tensor *x = tn_embedding_forward(ctx, &m->embed, ids), *y;
    if (m->desc.embed_norm && !m->desc.no_norm) x = tn_norm_forward(ctx, &m->embed_norm, x);
    y = m->desc.no_norm ? x : tn_norm_forward(ctx, &m->blocks[0].norm1, x);
    y = tn_attention_forward(ctx, &m->blocks[0].attn, y, NULL);
    *after = tn_add(ctx, x, tn_scale(ctx, y, m->desc.attn_scale));
    check(ctx);
    return x;
}

/* The loss of the block as OV++: B+ of sum_g A^g M^g x~, with the patterns of the run. */
static double loss_of_tensors(tn_ctx *ctx, const tn_transformer *m, const tn_circuit_ovpp *o, tn_tensor *ids,
                              tn_tensor *next)
{
    const int64_t n = m->desc.dim, T = ids->shape[1], map[2] = {n + 1, n + 1}, square[2] = {T, T};
    tn_tensor    *after, *x = tn_append_one(ctx, tn_reshape_2d(stream(ctx, m, ids, &after), T, n));
    tn_tensor    *pattern = tn_transformer_pattern(ctx, m, ids, 0), *sum = NULL, *both[2], *y;
    for (int64_t g = 0; g <= o->heads; g++) {
        y = tn_matmul(ctx, x, tn_transpose(tn_reshape(tn_slice(o->m, 0, g, g + 1), 2, map), 0, 1));
        if (g > 0) y = tn_matmul(ctx, tn_reshape(tn_slice(pattern, 1, g - 1, g), 2, square), y);
        sum = sum ? tn_add(ctx, sum, y) : y;
    }
    both[0] = both[1] = sum;
    y = tn_reshape(tn_cp_apply_each(ctx, o->b, both), 3, (int64_t[]){1, T, n});
    if (!m->desc.no_norm) y = tn_norm_forward(ctx, &m->norm, y);
    return tn_item(tn_cross_entropy(ctx, tn_transformer_head(ctx, m, y), next));
}

/* What it costs to hold the denominators of the norms at their means, on windows at the end of the text. */
static void show_freezing(tn_ctx *ctx, const counts *c, const tn_transformer *m)
{
    const int64_t        T = m->desc.context;
    tn_circuit_ovpp_desc d = {0};
    tn_circuit_ovpp      o;
    double               loss[2] = {0, 0};
    if (m->desc.norm != TN_NORM_RMS || c->total < WINDOWS * (T + 1)) return;
    for (int pass = 0; pass < 2; pass++) {
        if (pass && tn_circuit_ovpp_of(ctx, m, &d, &o) != TN_OK) check(ctx);
        for (int k = 0; k < WINDOWS; k++) {
            const tn_mark  mark = tn_arena_mark(ctx);
            const int32_t *from = c->ids + c->total - (k + 1) * (T + 1);
            tn_tensor *ids = tn_tensor_from(ctx, 2, (int64_t[]){1, T}, TN_I32, from), *after, *x;
            tn_tensor *next = tn_tensor_from(ctx, 2, (int64_t[]){1, T}, TN_I32, from + 1);
            if (pass == 0) {
                x = stream(ctx, m, ids, &after);
                d.factor1 += mean_factor(ctx, x, m->desc.norm_eps) / WINDOWS;
                d.factor2 += mean_factor(ctx, after, m->desc.norm_eps) / WINDOWS;
                loss[0] += tn_item(tn_transformer_loss(ctx, m, ids, next)) / WINDOWS;
            } else loss[1] += loss_of_tensors(ctx, m, &o, ids, next) / WINDOWS;
            tn_arena_release(ctx, mark);
        }
    }
    check(ctx);
    printf("loss_of_windows: %.6f\nloss_of_tensors_with_mean_norms: %.6f\n", loss[0], loss[1]);
    tn_circuit_ovpp_destroy(&o);
}

/* ---- the program --------------------------------------------------------------------------------------------- */

static tn_transformer load(tn_ctx *ctx, const char *run, bool trained)
{
    char                path[600];
    tn_transformer_desc desc;
    tn_transformer      model;
    tn_params          *params = tn_params_create(ctx);
    snprintf(path, sizeof path, "%s/config.json", run);
    if (tn_transformer_config_read(ctx, tn_source_path(path), &desc) != TN_OK) check(ctx);
    if (!trained) desc.zero_out = desc.zero_head = false;           /* an MLP that adds nothing would be no control */
    if (tn_transformer_init(params, "", &desc, &model) != TN_OK) check(ctx);
    snprintf(path, sizeof path, "%s/model.safetensors", run);
    if (trained && tn_params_load(params, path) != TN_OK) check(ctx);
    return model;
}

int main(int argc, char **argv)
{
    options        o = {"", "", 400, 5, 12, 0};
    const flag     flags[] = {
        {"--run", FLAG_TEXT, &o.run, 0, 0, "the folder of a run of tn train"},
        {"--text", FLAG_TEXT, &o.text, 0, 0, "its text"},
        {"--tokens", FLAG_COUNT, &o.tokens, 10, 1e6, NULL},
        {"--rare", FLAG_COUNT, &o.rare, 1, 1e6, NULL},
        {"--show", FLAG_COUNT, &o.show, 0, 1e4, NULL},
        THREADS_FLAG(&o),
        {0}
    };
    tn_desc        desc = {0};
    tn_ctx        *ctx;
    tn_transformer model, untrained;
    tn_tokenizer  *tokenizer;
    counts         c;
    double        *d, *control;
    const char   **names;
    tn_tensor     *ids;
    verdict        v;
    char           why[TN_WHY], path[600];
    read_flags(argc, argv, flags);
    if (!*o.run || !*o.text) stop("--run or --text is not given, expected the folder of a run of tn train, and its text");
    desc.threads = (int)o.threads;
    desc.seed = 1;
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) stop(why);
    model = load(ctx, o.run, true);
    untrained = load(ctx, o.run, false);
    snprintf(path, sizeof path, "%s/tokenizer.json", o.run);
    if (!(tokenizer = tn_tokenizer_load(ctx, path))) check(ctx);
    if (tn_tokenizer_count(tokenizer) != model.desc.vocab) stop("the tokenizer is not the model's");
    if (o.tokens > model.desc.vocab) o.tokens = model.desc.vocab;
    c = count_text(ctx, &o, tokenizer);
    d = bigrams(ctx, &o, &c, &model);
    control = bigrams(ctx, &o, &c, &untrained);
    show_bigrams(&o, &c, d);
    names = room(o.tokens, sizeof *names);
    for (int64_t i = 0; i < o.tokens; i++) names[i] = c.name[c.common[i]];
    ids = tn_tensor_from(ctx, 1, &o.tokens, TN_I32, c.common);
    show_pairs(ctx, &o, &c, &model, names, ids);
    show_heads(ctx, &model, names, ids);
    show_freezing(ctx, &c, &model);
    check(ctx);
    v = judge(&o, &c, d, 0);
    printf("argmax_among_ten_successors: %.4f\noverlap_with_pmi: %.4f\n", v.hits, v.overlap);
    v = judge(&o, &c, control, 0);
    printf("argmax_untrained: %.4f\noverlap_untrained: %.4f\n", v.hits, v.overlap);
    v = judge(&o, &c, d, o.tokens / 2);
    printf("argmax_shuffled: %.4f\noverlap_shuffled: %.4f\n", v.hits, v.overlap);
    tn_ctx_destroy(ctx);
    return 0;
}
