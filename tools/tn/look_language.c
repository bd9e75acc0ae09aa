/* look_language.c - tn look: language models: heads, each block's MLP, pairs of tokens, paths of a text

   In what follows x is the embedding of a token, normed alone, as the tables of tn_circuit_pairs have it: an MLP is shown
   between tokens as if nothing else had been added to the stream. */
#include "look.h"
#include "names.h"
#include "train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CURVE_POINTS = 600, MATRIX_NUMBERS = 1 << 20, HEAD_TOKENS = 96,
       NEAREST = 8, CONTEXTS = 3, CONTEXT_TOKENS = 8, STREAM_TOKENS = 1024, PAIR_TOKENS = 512, PAIRS = 6, PATHS = 40,
       TEXT_TOKENS = 16, WIDE_NAMES = 120 };
static const size_t live_bytes = 8u << 20,      /* weights of more bytes are written as BF16     */
                    most_live_bytes = 64u << 20;   /* and of more than these they are left out */

/* ---- the model --------------------------------------------------------------------------------------------------------- */

static void model_rows(page *p, const subject *s)
{
    const tn_transformer_desc *d = &s->m.desc;
    const tn_transformer_cost  cost = tn_transformer_cost_of(d, d->context);
    char                       name[128];
    buffer                     kinds = {0};
    model_name(d, name, sizeof name);
    page_row(p, "file", "%s", file_name(s->file));
    page_row(p, "model", "%s", name);
    page_row(p, "parameters", "%lld", (long long)cost.params);
    page_row(p, "parameters in tables", "%lld", (long long)cost.table);
    page_row(p, "blocks, width, heads", "%lld, %lld, %lld", (long long)d->layers, (long long)d->dim, (long long)d->heads);
    page_row(p, "vocabulary, context", "%lld, %lld", (long long)d->vocab, (long long)d->context);
    for (int64_t l = 0; l < d->layers; l++) {
        const tn_transformer_block *b = &s->m.net.blocks[l];
        char *one = format_text("%s, %s", tn_attention_kind_name(b->attn.desc.kind), tn_mlp_kind_name(b->mlp.desc.kind));
        if (!l || !find_text(kinds.data, kinds.bytes, one)) buffer_print(&kinds, l ? "; %s" : "%s", one);
        free(one);
    }
    page_row(p, "attention, MLP", "%s", kinds.data);
    page_row(p, "MFLOP per token", "%.4g", cost.forward / 1e6);
    if (s->has_run)
        page_row(p, "tokens of its text", "%lld to train on, %lld held out", (long long)s->run.train_count,
                 (long long)s->run.held_count);
    free(kinds.data);
}

/* The losses of n-grams as lines across a curve; NAN where there is none. */
static void gram_rules(page *p, const double grams[2])
{
    page_open(p, "rules", '[');
    for (int k = 0; k < 2; k++) {
        if (isnan(grams[k])) continue;
        page_open(p, NULL, '{');
        page_number(p, "y", grams[k]);
        page_text(p, "label", k ? "5-grams" : "trigrams");
        page_close(p, '}');
    }
    page_close(p, ']');
}

/* The loss of each step of log.jsonl, in at most CURVE_POINTS means, and the held-out loss where it was measured. */
static void curve_of_log(page *p, const char *path)
{
    size_t      bytes;
    char       *text = read_file(path, BY_NAME, &bytes);
    const char *at = text, *end = text + bytes;
    double     *x = NULL, *y = NULL, *held = NULL, grams[2] = {NAN, NAN};
    int64_t     n = 0, kept = 0;
    while (at < end) {
        const char  *stop = (const char *)memchr(at, '\n', (size_t)(end - at));
        const double step = json_number(at, stop ? stop : end, "step"), loss = json_number(at, stop ? stop : end, "loss"),
                     other = json_number(at, stop ? stop : end, "held");
        if (!isnan(step) && !isnan(loss)) {
            x = (double *)resize(x, (size_t)n + 1, sizeof *x);
            y = (double *)resize(y, (size_t)n + 1, sizeof *y);
            held = (double *)resize(held, (size_t)n + 1, sizeof *held);
            x[n] = step, y[n] = loss, held[n++] = NAN;
        }
        if (n && !isnan(other)) held[n - 1] = other;
        for (int k = 0; k < 2; k++) {
            const double loss_of_grams = json_number(at, stop ? stop : end, k ? "fivegram" : "trigram");
            if (!isnan(loss_of_grams)) grams[k] = loss_of_grams;
        }
        at = stop ? stop + 1 : end;
    }
    int64_t bin = n ? (n - 1) / CURVE_POINTS + 1 : 1;
    for (int64_t i = 0; i < n; i += bin) {
        const int64_t count = i + bin < n ? bin : n - i;
        double        sum = 0, last = NAN;
        for (int64_t k = 0; k < count; k++) {
            sum += y[i + k];
            if (!isnan(held[i + k])) last = held[i + k];
        }
        x[kept] = x[i + count - 1], y[kept] = sum / (double)count, held[kept++] = last;
    }
    if (kept > 1) {
        page_open(p, "curve", '{');
        page_vector(p, "x", ARRAY_F32, kept, x);
        page_open(p, "series", '[');
        for (int64_t k = 0; k < 2; k++) {
            page_open(p, NULL, '{');
            page_text(p, "name", k ? "held out" : "training");
            page_vector(p, "y", ARRAY_F32, kept, k ? held : y);
            page_close(p, '}');
        }
        page_close(p, ']');
        gram_rules(p, grams);
        page_text(p, "xlabel", "step");
        page_text(p, "ylabel", "loss, nats per token");
        page_close(p, '}');
    }
    free(x);
    free(y);
    free(held);
    free(text);
}

/* What the model is, in a sentence. */
static void about_model(page *p, const subject *s)
{
    const tn_transformer_desc *d = &s->m.desc;
    const tn_transformer_block *b = &s->m.net.blocks[0];
    char *text = format_text("A transformer with %lld block%s of width %lld: %lld heads (%s) and a %s MLP in each. It predicts "
                             "the next of %lld tokens.", (long long)d->layers, d->layers == 1 ? "" : "s", (long long)d->dim,
                             (long long)d->heads, tn_attention_kind_name(b->attn.desc.kind),
                             tn_mlp_kind_name(b->mlp.desc.kind), (long long)d->vocab);
    page_text(p, "about", text);
    free(text);
}

static void card_section(page *p, const subject *s)
{
    char *folder = folder_of(s->file), *log = join_path(folder, "log.jsonl");
    page_section(p, "card", "card", "The model", "What it is, what it costs, and how it was trained.");
    page_open(p, "rows", '[');
    model_rows(p, s);
    page_close(p, ']');
    if (is_file(log)) curve_of_log(p, log);
    page_close(p, '}');
    free(log);
    free(folder);
}

/* Names every parameter that is not finite. Returns whether there is one. */
static bool note_nonfinite(const model *m)
{
    bool any = false;
    for (int64_t i = 0; i < tn_params_count(m->params); i++) {
        const tn_param *q = tn_params_at(m->params, i);
        int64_t         bad;
        if ((bad = count_nonfinite(q->value)) == 0) continue;
        page_nonfinite(q->name, q->value, bad, "what would follow from it is left out");
        any = true;
    }
    return any;
}

/* Adds a note for an error of the context, which is cleared. Returns whether there was one. */
static bool refused(const subject *s, const char *what)
{
    char *why = taken_error(s->m.ctx);
    bool  any = why != NULL;
    if (any) {
        char *plain = plain_reason(why);
        page_note("%s, because %s.", what, plain);
        free(plain);
    }
    free(why);
    return any;
}

/* ---- tokens as vectors ------------------------------------------------------------------------------------------------- */

/* Rows as numbers, with a last column of ones where the operator has the constant. */
static double *with_ones(const tn_tensor *x, bool constant, int64_t shape[2])
{
    const int64_t n = x->shape[1];
    double       *v = numbers_in(x);
    shape[0] = x->shape[0];
    shape[1] = n + constant;
    double *to = (double *)allocate((size_t)(shape[0] * shape[1]), sizeof *to);
    for (int64_t i = 0; i < shape[0]; i++) {
        memcpy(to + i * shape[1], v + i * n, (size_t)n * sizeof *to);
        if (constant) to[i * shape[1] + n] = 1;
    }
    free(v);
    return to;
}

/* ---- what the MLPs read in a text -------------------------------------------------------------------------------------- */

typedef struct streams {
    const int32_t *ids;                 /* [windows,length]                                           */
    int64_t        windows, length, count, layers, dim;
    double       **z;                   /* [layers] of [count,dim]: the normed stream before the gain */
    bool           scaled;
} streams;

/* The points "blocks.L.middle" and "blocks.L.norm2.scale", in this order. */
static tn_tensor *read_stream(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    streams      *t = (streams *)user;
    const int64_t l = strtoll(name + strlen("blocks."), NULL, 10);
    double       *v = numbers_in(x);
    (void)ctx;
    if (ends_with(name, ".middle")) t->z[l] = v;
    else {
        for (int64_t i = 0; i < t->count; i++) for (int64_t k = 0; k < t->dim; k++) t->z[l][i * t->dim + k] *= v[i];
        free(v);
    }
    return x;
}

/* Reads a part of the run's held-out text; t->z is NULL without one. */
static streams read_streams(const subject *s)
{
    tn_tap  taps[2] = {{"blocks.*.middle", read_stream, NULL}, {"blocks.*.norm2.scale", read_stream, NULL}};
    streams t;
    int64_t shape[2];
    memset(&t, 0, sizeof t);
    if (!s->has_run || s->run.held_count < 2 || s->m.desc.norm_place == TN_PLACE_POST) return t;
    t.length = s->m.desc.context < 128 ? s->m.desc.context : 128;
    if (t.length > s->run.held_count) t.length = s->run.held_count;
    t.windows = s->run.held_count / t.length;
    if (t.windows * t.length > STREAM_TOKENS) t.windows = STREAM_TOKENS / t.length ? STREAM_TOKENS / t.length : 1;
    t.count = t.windows * t.length;
    t.layers = s->m.desc.layers;
    t.dim = s->m.desc.dim;
    t.ids = s->run.held;
    t.z = (double **)allocate((size_t)t.layers, sizeof *t.z);
    taps[0].user = taps[1].user = &t;
    shape[0] = t.windows, shape[1] = t.length;
    tn_ctx_reset(s->m.ctx);
    tn_transformer_run(s->m.ctx, &s->m.net, tn_tensor_from(s->m.ctx, 2, shape, TN_I32, t.ids), taps, s->m.desc.no_norm ? 1 : 2);
    check_ctx(s->m.ctx, "the held-out text");
    return t;
}

static void free_streams(streams *t)
{
    for (int64_t l = 0; t->z && l < t->layers; l++) free(t->z[l]);
    free(t->z);
}

/* Products of rows [count,n] with a vector; of one that is longer by one the last is added. */
static double *products(const double *rows, int64_t count, int64_t n, const double *v, int64_t length)
{
    double *to = (double *)allocate((size_t)count, sizeof *to);
    for (int64_t i = 0; i < count; i++) {
        to[i] = length > n ? v[n] : 0;
        for (int64_t k = 0; k < n; k++) to[i] += rows[i * n + k] * v[k];
    }
    return to;
}

/* ---- eigenvectors of an MLP -------------------------------------------------------------------------------------------- */

/* The tokens at one end of a vector, with their products. */
static void nearest_tokens(page *p, const subject *s, const double *product, const int32_t *ids, int64_t count, int sign)
{
    int64_t at[NEAREST], n = best_places(product, count, sign, at, NEAREST);
    page_open(p, NULL, '[');
    for (int64_t k = 0; k < n; k++) {
        page_open(p, NULL, '{');
        page_text(p, "token", s->names[ids[at[k]]]);
        page_number(p, "value", product[at[k]]);
        page_close(p, '}');
    }
    page_close(p, ']');
}

/* The places of the text where a vector is largest: the tokens before, up to the one that is read. */
static void top_contexts(page *p, const subject *s, const streams *t, int64_t block, const double *v, int64_t length)
{
    double *product = products(t->z[block], t->count, t->dim, v, length);
    int64_t at[CONTEXTS], n = best_places(product, t->count, 0, at, CONTEXTS);
    page_open(p, NULL, '[');
    for (int64_t k = 0; k < n; k++) {
        const int64_t start = at[k] / t->length * t->length;
        const int64_t first = at[k] - CONTEXT_TOKENS > start ? at[k] - CONTEXT_TOKENS : start;
        buffer        b = {0};
        for (int64_t i = first; i <= at[k]; i++) buffer_print(&b, i == at[k] ? "[%s]" : "%s ", s->names[t->ids[i]]);
        page_text(p, NULL, b.data);
        free(b.data);
    }
    page_close(p, ']');
    free(product);
}

static void eigen_section(page *p, const subject *s, int64_t block, const tn_cp *cp, const char *const *names,
                          const double *edge, const double *x, const int32_t *ids, int64_t count, const streams *t)
{
    static const char *const keys[] = {"tokens", "opposite", "contexts"};
    const int64_t most = look_settings.vectors < 8 ? look_settings.vectors : 8, dim = s->m.desc.dim;
    char         *id = format_text("eigen-%lld", (long long)block);
    char         *title = format_text("Eigenvectors of block %lld", (long long)block);
    tn_eigenpairs      e;
    show_stage("%s", title);
    if (tn_cp_eigen_all(cp, most, &e) != TN_OK) check_ctx(s->m.ctx, "eigenvectors");
    double *values = numbers_in(e.values), *vectors = numbers_in(e.vectors);
    page_section(p, "eigen", id, title, "What the MLP of this block adds to the logit of a token is a sum of value times "
                 "(eigenvector times normed stream) squared. For each eigenvector: the tokens whose embeddings lie most along "
                 "it, those that lie most against it, and the places of the held-out text where it is largest.");
    page_flag(p, "within_null", look_settings.within_null);
    page_number(p, "block", (double)block);
    page_open(p, "outputs", '[');
    for (int64_t o = 0; o < cp->out; o++) {
        page_open(p, NULL, '{');
        page_text(p, "name", names[o]);
        page_vector(p, "values", ARRAY_F64, e.count, values + o * e.count);
        page_number(p, "null_edge", edge ? edge[o] : NAN);
        for (int part = 0; part < (t->z ? 3 : 2); part++) {
            page_open(p, keys[part], '[');
            for (int64_t k = 0; k < e.count; k++) {
                const double *v = vectors + (o * e.count + k) * e.n;
                if (part == 2) {
                    top_contexts(p, s, t, block, v, e.n);
                    continue;
                }
                double *product = products(x, count, dim, v, dim);
                nearest_tokens(p, s, product, ids, count, part ? -1 : 1);
                free(product);
            }
            page_close(p, ']');
        }
        page_close(p, '}');
    }
    page_close(p, ']');
    page_close(p, '}');
    tn_eigenpairs_destroy(&e);
    free(values);
    free(vectors);
    free(id);
    free(title);
}

/* ---- interaction matrices between tokens ------------------------------------------------------------------------------- */

typedef struct focused { double norm, place; int32_t id; const double *row; } focused;

static int by_focus(const void *a, const void *b)
{
    const double x = ((const focused *)a)->norm, y = ((const focused *)b)->norm;
    return (x < y) - (x > y);
}

static int by_eigenvector(const void *a, const void *b)
{
    const double x = ((const focused *)a)->place, y = ((const focused *)b)->place;
    return (x < y) - (x > y);
}

/* What a matrix between tokens shows at first: the words with the largest rows for an output, in the order of their place along
   its first eigenvector, so that words that do the same stand together. */
static void put_focus(page *p, const subject *s, const tn_cp *cp, int64_t output)
{
    enum { AMONG = 256, MOST = 40 };
    int64_t       count, shape[2];
    const int64_t n = cp->in[0];
    int32_t      *words = whole_words(s, AMONG, &count);
    tn_cp        *one = some_outputs(cp, &output, 1);
    tn_eigenpairs e;
    if (count < 8 || tn_cp_eigen_all(one, 1, &e) != TN_OK) {
        free(taken_error(s->m.ctx));
        tn_cp_destroy(one);
        free(words);
        return;
    }
    tn_tensor *x = token_vectors(s->m.ctx, &s->m.net, words, count), *q = tn_cp_interaction_of(one, 0);
    check_ctx(s->m.ctx, "pairs of tokens");
    double  *rows = with_ones(x, cp->constant, shape), *m = numbers_in(q), *v = numbers_in(e.vectors);
    focused *list = (focused *)allocate((size_t)count, sizeof *list);
    for (int64_t i = 0; i < count; i++) {
        list[i].id = words[i];
        list[i].row = rows + i * n;
        for (int64_t k = 0; k < n; k++) {
            double sum = 0;
            for (int64_t j = 0; j < n; j++) sum += m[k * n + j] * list[i].row[j];
            list[i].norm += sum * sum;
            list[i].place += v[k] * list[i].row[k];
        }
    }
    qsort(list, (size_t)count, sizeof *list, by_focus);
    shape[0] = count < MOST ? count : MOST;
    qsort(list, (size_t)shape[0], sizeof *list, by_eigenvector);
    double *kept = (double *)allocate((size_t)(shape[0] * n), sizeof *kept);
    for (int64_t i = 0; i < shape[0]; i++) memcpy(kept + i * n, list[i].row, (size_t)n * sizeof *kept);
    page_open(p, "focus", '{');
    page_numbers(p, "embed", ARRAY_Q8, 2, shape, kept);
    page_open(p, "names", '[');
    for (int64_t i = 0; i < shape[0]; i++) page_text(p, NULL, s->names[list[i].id]);
    page_close(p, ']');
    page_close(p, '}');
    tn_eigenpairs_destroy(&e);
    tn_tensor_destroy(x);
    tn_cp_destroy(one);
    free(kept);
    free(list);
    free(rows);
    free(m);
    free(v);
    free(words);
}

/* first: the output of at[0,outputs) that is seen first. */
static void token_matrix_section(page *p, const subject *s, int64_t block, const tn_cp *cp, const int64_t *at, int64_t outputs,
                                 int64_t first, tn_tensor *x, const stored *embed, const int32_t *ids)
{
    char   *id = format_text("interactions-%lld", (long long)block);
    char   *title = format_text("Pairs of tokens in block %lld", (long long)block);
    tn_cp  *some = some_outputs(cp, at, outputs);
    int64_t V = s->m.desc.vocab;
    page_section(p, "matrix", id, title, "What two tokens that reach the MLP of this block together add to the logit of a third, "
                 "each from its embedding with its own norm, in nats for a typical size of the last norm. A pair of different "
                 "tokens adds twice its element, once in each order. The matrices travel as factors of 8 bits, and are "
                 "multiplied here.");
    page_number(p, "block", (double)block);
    put_factors(p, some, x);
    page_array(p, "embed", embed);
    page_open(p, "outputs", '[');
    for (int64_t i = 0; i < outputs; i++) page_text(p, NULL, s->names[at[i]]);
    page_close(p, ']');
    if (x->shape[0] == V) {
        page_text(p, "rownames", "tokens");
        page_text(p, "colnames", "tokens");
    } else {
        page_open(p, "rownames", '[');
        for (int64_t i = 0; i < x->shape[0]; i++) page_text(p, NULL, s->names[ids[i]]);
        page_close(p, ']');
        page_open(p, "colnames", '[');
        for (int64_t i = 0; i < x->shape[0]; i++) page_text(p, NULL, s->names[ids[i]]);
        page_close(p, ']');
    }
    for (int64_t i = 0; i < outputs; i++) if (at[i] == first) page_number(p, "start", (double)i);
    put_focus(p, s, cp, first);
    page_text(p, "output_label", "token whose logit");
    page_text(p, "row_label", "token");
    page_text(p, "column_label", "token");
    page_close(p, '}');
    tn_cp_destroy(some);
    free(id);
    free(title);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------------ */

/* The tokens that are shown in matrices: all in their own order, or the commonest. */
static int32_t *matrix_tokens(const subject *s, int64_t *count)
{
    const int64_t V = s->m.desc.vocab, most = MATRIX_NUMBERS / (s->m.desc.dim + 1);
    *count = V < most ? V : most;
    int32_t *ids = (int32_t *)allocate((size_t)*count, sizeof *ids);
    for (int64_t i = 0; i < *count; i++) ids[i] = *count == V ? (int32_t)i : s->common[i];
    if (*count < V)
        page_note("The matrices between tokens have the %lld %s of the %lld tokens.", (long long)*count,
                  s->frequency ? "commonest" : "first", (long long)V);
    return ids;
}

static int compare_ids(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The strongest pairs of tokens for each output that is shown. */
static void pair_rows(page *p, const subject *s, int64_t block, const int64_t *at, int64_t count)
{
    const double unit = typical_unit(s);
    int64_t      n;
    for (int64_t o = 0; o < count; o++) {
        tn_circuit_top_desc d[2];
        tn_circuit_entries  e[2];
        tn_circuit         *c = pairs_among(s, block, PAIR_TOKENS, at[o], &n);
        memset(d, 0, sizeof d);
        memset(e, 0, sizeof e);
        d[0].top = d[1].top = PAIRS;
        d[0].pairs = d[1].pairs = true;
        d[1].order = TN_ORDER_SMALLEST;
        if (c) tn_circuit_top_many(c, 2, d, e);
        if (refused(s, "Pairs of tokens are left out")) {
            tn_circuit_destroy(c);
            return;
        }
        const double edge = null_of_pairs(s, c, block, at[o], NULL_OF_PAIRS);
        if (isnan(edge)) page_note("Pairs of tokens are not compared with chance, which would take long.");
        for (int side = 0; side < 2; side++) {
            double *value = numbers_in(e[side].values), *place = numbers_in(e[side].index);
            for (int64_t k = 0; k < e[side].count; k++) {
                const int64_t i = (int64_t)place[2 * k], j = (int64_t)place[2 * k + 1];
                const bool    whole = n == s->m.desc.vocab;
                if (side ? value[k] >= 0 : value[k] <= 0) break;
                page_open(p, NULL, '{');
                page_number(p, "block", (double)block);
                page_text(p, "output", s->names[at[o]]);
                page_text(p, "first", i == n ? "1" : s->names[whole ? i : s->common[i]]);
                page_text(p, "second", j == n ? "1" : s->names[whole ? j : s->common[j]]);
                page_number(p, "value", value[k] * unit);
                if (!isnan(edge)) page_flag(p, "within", fabs(value[k]) <= edge);
                page_close(p, '}');
            }
            free(value);
            free(place);
            tn_circuit_entries_destroy(&e[side]);
        }
        tn_circuit_destroy(c);
    }
}

/* The `wide` outputs of a block's matrices, in order: the commonest tokens, and those at `at`, which are shown elsewhere. */
static int64_t *common_with(const subject *s, const int64_t *at, int64_t outputs, int64_t wide)
{
    int64_t *common = (int64_t *)allocate((size_t)wide, sizeof *common);
    for (int64_t i = 0; i < wide; i++) common[i] = s->common[i];
    for (int64_t o = 0, last = wide; o < outputs; o++) {
        int64_t i = 0;
        while (i < wide && common[i] != at[o]) i++;
        if (i == wide && last > 0) common[--last] = at[o];
    }
    qsort(common, (size_t)wide, sizeof *common, compare_ids);
    return common;
}

/* All that is shown of the MLPs. *pairs: the rows of a section that comes later. */
static void block_sections(page *p, const subject *s, buffer *pairs)
{
    int64_t   count, shape[2];
    int32_t  *ids = matrix_tokens(s, &count);
    tn_tensor *x = token_vectors(s->m.ctx, &s->m.net, ids, count), *one[2] = {NULL, NULL};
    streams   t = read_streams(s);
    double   *v = numbers_in(x);
    bool      shown_any = false;
    stored    embed[2];
    for (int64_t l = 0; l < s->m.desc.layers; l++) {
        uint64_t mark = tn_cp_mark(s->m.ctx);
        tn_cp   *cp = block_operator(s, l);
        int64_t  outputs;
        if (!cp) continue;
        shown_any = true;
        if (!one[cp->constant]) {                       /* the embeddings are in the page once */
            double *w = with_ones(x, cp->constant, shape);
            embed[cp->constant] = page_store(p, ARRAY_Q8, 2, shape, w);
            one[cp->constant] = tn_tensor_create(s->m.ctx, TN_REAL, 2, shape);
            tn_write(one[cp->constant], TN_F64, w, shape[0] * shape[1]);
            free(w);
        }
        int64_t     *at = shown_tokens(s, l, cp, &outputs);
        tn_cp       *some = some_outputs(cp, at, outputs);
        const char **names = (const char **)allocate((size_t)outputs, sizeof *names);
        for (int64_t i = 0; i < outputs; i++) names[i] = s->names[at[i]];
        char *id = format_text("spectra-%lld", (long long)l);
        char *title = format_text("Spectra of block %lld", (long long)l);
        double *edge = spectra_section(p, id, title, some, names, l);
        eigen_section(p, s, l, some, names, edge, v, ids, count, &t);
        free(edge);
        int64_t  wide = s->m.desc.vocab < COMMON_OUTPUTS ? s->m.desc.vocab : COMMON_OUTPUTS;
        int64_t *common = common_with(s, at, outputs, wide);
        token_matrix_section(p, s, l, cp, common, wide, at[0], one[cp->constant], &embed[cp->constant], ids);
        buffer json = p->json;
        p->json = *pairs;
        pair_rows(p, s, l, at, outputs);
        *pairs = p->json;
        p->json = json;
        free(common);
        free(names);
        free(at);
        free(id);
        free(title);
        tn_cp_release(s->m.ctx, mark, NULL);
    }
    note_left_out(s);
    if (shown_any && look_settings.outputs_given == NULL)
        page_note("Spectra and eigenvectors are shown for the words with the most eigenvalues beyond chance, among the %d %s "
                  "words (--outputs chooses others).", COMMON_OUTPUTS, s->frequency ? "commonest" : "first");
    tn_tensor_destroy(x);
    tn_tensor_destroy(one[0]);
    tn_tensor_destroy(one[1]);
    free_streams(&t);
    free(ids);
    free(v);
}

static void pairs_section(page *p, const buffer *rows)
{
    if (!rows->bytes) return;
    page_section(p, "pairs", "pairs", "Strongest pairs of tokens", "For each output that is shown: the pairs of tokens that "
                 "raise its logit most, and those that lower it most, if they reach the MLP of the block together: what a pair "
                 "adds in both orders, in nats for a typical size of the last norm. Pairs within the null, no larger than those of "
                 "shuffled weights, are left out.");
    page_text(p, "unit", "nats");
    page_open(p, "rows", '[');
    buffer_add(&p->json, rows->data, rows->bytes);
    page_close(p, ']');
    page_close(p, '}');
}

/* ---- heads ------------------------------------------------------------------------------------------------------------- */

/* A head's circuit between the commonest tokens, as a matrix of the page; left out with a note if it is refused. */
static void head_matrix(page *p, const subject *s, const char *key, bool ov, int64_t block, int64_t head, int64_t n)
{
    tn_circuit_desc d;
    tn_circuit     *some = NULL;
    double         *v = NULL;
    memset(&d, 0, sizeof d);
    d.block = block;
    d.head = head;
    d.tokens = true;
    d.norm_scale = 1;
    d.query = ov ? 0 : 1;
    d.set = !ov && s->m.net.blocks[block].attn.desc.kind >= TN_ATTENTION_DIFFERENTIAL ? 1 : 0;
    tn_ctx_reset(s->m.ctx);
    tn_circuit *all = ov ? tn_circuit_ov(s->m.ctx, &s->m.net, &d) : tn_circuit_qk(s->m.ctx, &s->m.net, &d);
    if (all) {
        tn_tensor *ids = tn_tensor_from(s->m.ctx, 1, &n, TN_I32, s->common);
        some = tn_circuit_select(all, ids, ids);
        if (some) v = numbers_in(tn_circuit_rows(s->m.ctx, some, 0, n));
    }
    tn_circuit_destroy(some);
    tn_circuit_destroy(all);
    /* Softmax ignores what is added to a whole row, so its mean says nothing. */
    const bool centred = !ov && v && s->m.net.blocks[block].attn.desc.kind == TN_ATTENTION_SOFTMAX;
    for (int64_t i = 0; i < n && centred; i++) {
        double mean = 0;
        for (int64_t k = 0; k < n; k++) mean += v[i * n + k] / (double)n;
        for (int64_t k = 0; k < n; k++) v[i * n + k] -= mean;
    }
    if (refused(s, ov ? "The tables OV of heads are left out" : "The tables QK of some heads are left out")) return;
    int64_t shape[2] = {n, n};
    page_open(p, key, '{');
    page_text(p, "of", "dense");
    page_numbers(p, "values", ARRAY_Q8, 2, shape, v);
    page_flag(p, "symmetric", false);
    page_flag(p, "centred", centred);
    page_text(p, "rownames", "common");
    page_text(p, "colnames", "common");
    page_text(p, "row_label", ov ? "logit of" : "query");
    page_text(p, "column_label", ov ? "attending to" : "key");
    page_close(p, '}');
    free(v);
}

/* The patterns of a block on a text, [heads,T,T]; NULL: no text. */
static double *patterns_of(const subject *s, const int32_t *ids, int64_t T, int64_t block)
{
    if (!T) return NULL;
    tn_ctx_reset(s->m.ctx);
    tn_tensor *t = tn_transformer_pattern(s->m.ctx, &s->m.net, ids_tensor(s->m.ctx, ids, T), block);
    check_ctx(s->m.ctx, "patterns");
    return numbers_in(t);
}

static void heads_section(page *p, const subject *s, const int32_t *ids, int64_t T)
{
    static const char *const columns[][3] = {
        {"qk_norm", "|QK|", "norm of the circuit that decides where the head looks, before a norm of queries and keys"},
        {"ov_norm", "|OV|", "norm of the circuit that decides what it writes"},
        {"copying", "copying", "1 for a head that raises the logits of the tokens that it attends to"},
        {"distance", "previous", "block 0: share of the attention that goes to the token before, between the commonest tokens"},
        {"composition", "composition", "how much it reads of the head of an earlier block that it reads most"}
    };
    const int64_t H = s->m.desc.heads, n = s->m.desc.vocab < HEAD_TOKENS ? s->m.desc.vocab : HEAD_TOKENS;
    int64_t       D;
    show_stage("Heads");
    head_numbers *heads = measure_heads(s, &D);
    page_section(p, "heads", "heads", "Heads", "Each head, read from its weights: the table QK says which tokens look at which, "
                 "OV which logits rise by what it looks at. Below them where it looks in a text.");
    page_open(p, "columns", '[');
    for (size_t k = 0; k < sizeof columns / sizeof *columns; k++) page_names(p, NULL, columns[k], 3);
    page_close(p, ']');
    if (T) {
        page_open(p, "tokens", '[');
        for (int64_t i = 0; i < T; i++) page_text(p, NULL, s->names[ids[i]]);
        page_close(p, ']');
    }
    page_open(p, "heads", '[');
    for (int64_t l = 0; l < s->m.desc.layers; l++) {
        double *pattern = patterns_of(s, ids, T, l);
        for (int64_t h = 0; h < H; h++) {
            const head_numbers *x = &heads[l * H + h];
            page_open(p, NULL, '{');
            page_number(p, "layer", (double)l);
            page_number(p, "head", (double)h);
            page_number(p, "qk_norm", x->qk);
            page_number(p, "ov_norm", x->ov);
            page_number(p, "copying", x->copying);
            page_number(p, "distance", x->share && D > 1 ? x->share[1] : NAN);
            page_number(p, "composition", x->composition);
            if (!isnan(x->composition)) {
                char *reads = format_text("%lld.attn.%lld", (long long)x->block, (long long)x->head);
                page_text(p, "reads", reads);
                free(reads);
            }
            head_matrix(p, s, "qk", false, l, h, n);
            head_matrix(p, s, "ov", true, l, h, n);
            int64_t shape[2] = {T, T};
            if (T) page_numbers(p, "pattern", ARRAY_F32, 2, shape, pattern + h * T * T);
            page_close(p, '}');
        }
        free(pattern);
    }
    page_close(p, ']');
    page_close(p, '}');
    free_heads(s, heads);
}

/* ---- paths of a text --------------------------------------------------------------------------------------------------- */

static void paths_section(page *p, const subject *s, const char *text)
{
    tn_circuit_paths_desc d;
    tn_circuit_paths      f;
    question              q;
    double                all = 0, shown = 0;
    memset(&d, 0, sizeof d);
    show_stage("Paths of a text");
    d.budget = circuit_settings.budget;
    ask_question(s, text, &q);
    tn_circuit_paths_find(&q.frozen, &q.target, &d, &f);
    check_ctx(s->m.ctx, "paths");
    for (int64_t i = 0; i < f.count; i++) all += fabs(f.node[f.path[i]].value);
    for (int64_t i = 0; i < f.open; i++) all += fabs(f.node[f.frontier[i]].value);
    page_section(p, "paths", "paths", "Paths of a text", "The logit of the next token as a sum over paths from tokens through "
                 "heads and MLPs, the largest first. Patterns and denominators of norms are those of this text, and each MLP is "
                 "linear in one of its inputs. E[token]@position is a source, 0.head1@3 the head 1 of block 0 for position 3. "
                 "The share is that of |value| among those of all paths.");
    page_open(p, "tokens", '[');
    for (int64_t i = 0; i < q.count; i++) page_text(p, NULL, s->names[q.ids[i]]);
    page_close(p, ']');
    page_text(p, "token", s->names[q.target.token]);
    page_open(p, "rows", '[');
    for (int64_t i = 0; i < f.count && i < PATHS; i++) {
        char        *name = path_name(s, &f, f.path[i]);
        const double value = f.node[f.path[i]].value;
        page_open(p, NULL, '{');
        page_text(p, "path", name);
        page_number(p, "value", value);
        page_number(p, "share", all > 0 ? fabs(value) / all : 0);
        page_close(p, '}');
        shown += value;
        free(name);
    }
    page_close(p, ']');
    page_number(p, "remainder", f.whole - shown);
    page_number(p, "exact", f.whole);
    page_close(p, '}');
    tn_circuit_paths_destroy(&f);
    close_question(&q);
}

/* ---- the part of the page that computes -------------------------------------------------------------------------------- */

static char *tokenizer_json(const subject *s)
{
    size_t size = 64u << 20, used = 0;
    if (!s->m.tokenizer) return NULL;
    char     *text = (char *)allocate(size, 1);
    tn_status status = tn_tokenizer_write(s->m.tokenizer, tn_sink_memory(text, size - 1, &used));
    if (status != TN_OK) {
        free(taken_error(s->m.ctx));
        free(text);
        return NULL;
    }
    text[used] = 0;
    return (char *)resize(text, used + 1, 1);
}

static bool fits_a_page(const model *m) { return (size_t)tn_params_elements(m->params) * 4 <= most_live_bytes; }

/* What a model that runs in the page needs. name: of one of two models, or NULL; text: what it begins with, or NULL. */
static void put_model(page *p, const subject *s, const char *name, const char *text)
{
    const int64_t  n = tn_params_count(s->m.params);
    const tn_dtype dtype = (size_t)tn_params_elements(s->m.params) * 4 > live_bytes ? TN_BF16 : TN_F32;
    tn_named_tensor *list = (tn_named_tensor *)allocate((size_t)n, sizeof *list);
    size_t         size = 1u << 20, used = 0;
    char          *config = config_json(&s->m), *tokenizer = tokenizer_json(s);
    for (int64_t i = 0; i < n; i++) {
        const tn_param *q = tn_params_at(s->m.params, i);
        tn_tensor      *t = tn_tensor_create(s->m.ctx, dtype, q->value->rank, q->value->shape);
        if (t) tn_assign(t, q->value);
        check_ctx(s->m.ctx, "the part that computes");
        list[i].name = q->name;
        list[i].tensor = t;
        size += (size_t)tn_tensor_count(t) * 4 + 256;
    }
    char *bytes = (char *)allocate(size, 1);
    if (tn_safetensors_write(s->m.ctx, tn_sink_memory(bytes, size, &used), list, n, NULL, 0) != TN_OK)
        check_ctx(s->m.ctx, "the part that computes");
    if (dtype == TN_BF16)
        page_note("The model that runs in this page has its weights rounded to 16 bits (BF16), so that its numbers differ "
                  "from the others in the third digit.");
    stored a = page_store_bytes(p, bytes, used);
    if (name) page_text(p, "name", name);
    page_array(p, "weights", &a);
    page_text(p, "config", config);
    if (tokenizer) page_text(p, "tokenizer", tokenizer);
    if (text) page_text(p, "prompt", text);
    page_flag(p, "marks", s->m.start_count == 0 && !s->m.plain_prompt);     /* as text_ids begins a text */
    for (int64_t i = 0; i < n; i++) tn_tensor_destroy((tn_tensor *)list[i].tensor);
    free(list);
    free(bytes);
    free(config);
    free(tokenizer);
}

/* other: the second model, or NULL. */
static void live_part(page *p, const subject *s, const subject *other, const char *text)
{
    if (!fits_a_page(&s->m) || (other && !fits_a_page(&other->m))) {
        page_note("The model does not run in this page, because it has more weights than a page should hold.");
        return;
    }
    page_open_live(p);
    page_text(p, "kind", other ? "two texts" : "language");
    if (!other) put_model(p, s, NULL, text);
    else {
        char *names[2];
        names_of_two(s->path, look_settings.against, names);
        page_open(p, "models", '[');
        for (int k = 0; k < 2; k++) {
            page_open(p, NULL, '{');
            put_model(p, k ? other : s, names[k], text);
            page_close(p, '}');
            free(names[k]);
        }
        page_close(p, ']');
    }
    page_close(p, '}');
}

/* ---- the page ---------------------------------------------------------------------------------------------------------- */

/* The text that patterns and paths are of: given, or the beginning of a text of the held-out part, up to a place where a word
   follows; a text of the program's own without it. NULL: none. */
static char *text_to_read(const subject *s)
{
    size_t         bytes;
    buffer         b = {0};
    const int64_t  bos = s->m.tokenizer ? tn_tokenizer_bos(s->m.tokenizer) : -1, all = s->has_run ? s->run.held_count : 0;
    const int32_t *ids = s->run.held;
    int64_t        first = 0, n = TEXT_TOKENS - 1 < s->m.desc.context - 1 ? TEXT_TOKENS - 1 : s->m.desc.context - 1;
    if (look_settings.text) return copy_text(look_settings.text);
    if (all < 2 || n < 1) {
        if (!s->m.tokenizer || s->m.desc.context < TEXT_TOKENS) return NULL;
        page_note("The run's text is not here, so the page begins with a text of its own (--text TEXT chooses another one).");
        return copy_text("Once upon a time");
    }
    while (bos >= 0 && first < all && ids[first] != bos) first++;
    first = first + n < all ? first + (bos >= 0) : 0;
    if (n > all - first) n = all - first;
    for (int64_t k = n; k > n / 2; k--) if (first + k < all && is_whole_word(s, ids[first + k])) { n = k; break; }
    if (s->m.tokenizer) return decode_tokens(s->m.tokenizer, ids + first, n, &bytes);
    for (int64_t k = 0; k < n; k++) buffer_print(&b, k ? " %d" : "%d", (int)ids[first + k]);
    return b.data;
}

/* ---- over the training ------------------------------------------------------------------------------------------------ */

/* Numbers of several steps, [count], as one series of a plot. */
static void one_series(page *p, const char *plot, const char *name, const double *v, int64_t count)
{
    page_open(p, NULL, '{');
    page_text(p, "plot", plot);
    page_text(p, "name", name);
    page_vector(p, "y", ARRAY_F64, count, v);
    page_close(p, '}');
}

/* The eigenvalues of one token's matrix in a block, by magnitude, at most n; NaN where there are none. */
static void spectrum_of(const subject *s, int64_t block, int64_t token, double *to, int64_t n)
{
    uint64_t    mark = tn_cp_mark(s->m.ctx);
    tn_cp      *cp = block_operator(s, block);
    tn_spectrum spectrum;
    for (int64_t i = 0; i < n; i++) to[i] = NAN;
    if (cp && tn_cp_spectrum(some_outputs(cp, &token, 1), 0, &spectrum) == TN_OK) {
        double *v = numbers_in(spectrum.values);
        for (int64_t i = 0; i < n && i < spectrum.count; i++) to[i] = v[i];
        free(v);
        tn_spectrum_destroy(&spectrum);
    }
    free(taken_error(s->m.ctx));
    tn_cp_release(s->m.ctx, mark, NULL);
}

enum { MOMENTS = 8, LEVELS = 32 };

/* Numbers at the steps whose weights a run has kept: MOMENTS of them at most, of which `kept` have finite weights. */
typedef struct course {
    int64_t kept;
    double  steps[MOMENTS], loss[MOMENTS];
    double *copying, *spectra;          /* [heads,MOMENTS] and [layers,MOMENTS,LEVELS] */
} course;

static void measure_moment(course *c, subject *s, const moment *m, const samples *x)
{
    const int64_t at = c->kept, L = s->m.desc.layers;
    int64_t       D;
    bool          bad = false;
    show_stage("Over the training: step %lld", (long long)m->step);
    tn_params_read(s->m.params, tn_source_path(m->path), TN_MATCH_IGNORE_EXTRA);
    check_ctx(s->m.ctx, m->path);
    for (int64_t k = 0; k < tn_params_count(s->m.params); k++)
        bad = bad || count_nonfinite(tn_params_at(s->m.params, k)->value) > 0;
    if (bad) {
        report_note("Step %lld is left out: its weights have NaN or infinity.", (long long)m->step);
        return;
    }
    head_numbers *heads = measure_heads(s, &D);
    c->steps[at] = (double)m->step;
    for (int64_t k = 0; k < x->count; k++) c->loss[at] += sample_loss(&s->m, x, k, NULL, 0) / (double)x->count;
    for (int64_t k = 0; k < L * s->m.desc.heads; k++) c->copying[k * MOMENTS + at] = heads[k].copying;
    for (int64_t k = 0; k < L; k++) spectrum_of(s, k, s->common[0], c->spectra + (k * MOMENTS + at) * LEVELS, LEVELS);
    free_heads(s, heads);
    c->kept++;
}

static void course_section(page *p, const subject *s, const course *c, const samples *x)
{
    const int64_t H = s->m.desc.heads, L = s->m.desc.layers, shape[2] = {c->kept, LEVELS};
    char         *name = format_text("%lld held-out tokens", (long long)(x->count * x->length));
    page_section(p, "time", "time", "Over the training", "The same numbers at the steps whose weights the run has kept.");
    page_open(p, "steps", '[');
    for (int64_t i = 0; i < c->kept; i++) page_number(p, NULL, c->steps[i]);
    page_close(p, ']');
    page_open(p, "series", '[');
    if (x->count) one_series(p, "loss, nats per token", name, c->loss, c->kept);
    for (int64_t k = 0; k < L * H && k < 32; k++) {
        char head[HEAD_NAME];
        one_series(p, "copying score", head_name(k / H, k % H, head), c->copying + k * MOMENTS, c->kept);
    }
    page_close(p, ']');
    page_open(p, "spectra", '[');
    for (int64_t k = 0; k < L; k++) {
        char *of = format_text("block %lld, logit of %s", (long long)k, s->names[s->common[0]]);
        if (!isnan(c->spectra[k * MOMENTS * LEVELS])) {
            page_open(p, NULL, '{');
            page_text(p, "name", of);
            page_numbers(p, "values", ARRAY_F64, 2, shape, c->spectra + k * MOMENTS * LEVELS);
            page_close(p, '}');
        }
        free(of);
    }
    page_close(p, ']');
    page_close(p, '}');
    free(name);
}

/* The model at earlier steps, if the run kept several: the copying scores of heads, their strongest composition, the loss on a
   part of the held-out text, and the spectrum of a token in each block. At the end the model is that of the page again. */
static void time_section(page *p, subject *s)
{
    const int64_t L = s->m.desc.layers;
    char         *folder = folder_of(s->file);
    int64_t       all;
    moment       *list = list_moments(folder, &all);
    samples       x;
    course        c;
    memset(&x, 0, sizeof x);
    memset(&c, 0, sizeof c);
    int64_t count = all < MOMENTS ? all : MOMENTS;
    c.copying = (double *)allocate((size_t)(L * s->m.desc.heads * MOMENTS), sizeof *c.copying);
    c.spectra = (double *)allocate((size_t)(L * MOMENTS * LEVELS), sizeof *c.spectra);
    circuit_settings.tokens = STREAM_TOKENS;
    if (count > 1 && s->has_run && s->run.held_count > 1) x = text_samples(s, NULL, s->m.desc.context);
    for (int64_t i = 0; count > 1 && i < count; i++) measure_moment(&c, s, &list[i * (all - 1) / (count - 1)], &x);
    if (count > 1) {
        tn_params_read(s->m.params, tn_source_path(s->file), TN_MATCH_IGNORE_EXTRA);
        check_ctx(s->m.ctx, s->file);
    }
    if (c.kept > 1) course_section(p, s, &c, &x);
    for (int64_t i = 0; i < all; i++) free(list[i].path);
    if (x.start) free_samples(&x);
    free(c.copying);
    free(c.spectra);
    free(list);
    free(folder);
}

/* ---- two models ---------------------------------------------------------------------------------------------------------- */

static void compare_rows(page *p, const subject *s, const model *b, int64_t blocks)
{
    const int64_t H = s->m.desc.heads;
    for (int64_t l = 0; l < blocks; l++) {
        const mlp_numbers x = compare_mlps(s, b, l);
        char             *name = format_text("MLP %lld", (long long)l);
        page_open(p, NULL, '{');
        page_text(p, "name", name);
        page_number(p, "similarity", x.tokens);
        page_number(p, "stream", x.stream);
        page_number(p, "units", x.units);
        page_close(p, '}');
        free(name);
        for (int64_t h = 0; h < H; h++) {
            int64_t best = 0;
            double  most = NAN;
            for (int64_t g = 0; g < b->desc.heads; g++) {
                const double v = head_cosine(s, b, true, true, l, h, g);
                if (v > most || isnan(most)) most = v, best = g;
            }
            char here[HEAD_NAME], there[HEAD_NAME];
            name = format_text("%s, there %s", head_name(l, h, here), head_name(l, best, there));
            page_open(p, NULL, '{');
            page_text(p, "name", name);
            page_number(p, "similarity", most);
            page_number(p, "qk", head_cosine(s, b, false, true, l, h, best));
            page_close(p, '}');
            free(name);
        }
    }
}

static void compare_models(page *p, const subject *s, const model *b, const char *path)
{
    enum { VALUES = 64 };
    static const char *const columns[][3] = {
        {"similarity", "between tokens", "cosine through embedding and unembedding: of an MLP's operator, of a head's OV"},
        {"qk", "QK", "cosine of the scores of heads between tokens"},
        {"stream", "in the stream", "cosine between directions of the residual stream, which models share that have one origin"},
        {"units", "hidden units", "their mean cosine after alignment"}
    };
    const int64_t blocks = b->desc.layers < s->m.desc.layers ? b->desc.layers : s->m.desc.layers, token = s->common[0];
    subject       other = *s;
    other.m = *b;
    page_section(p, "compare", "compare", "Two models", "How similar the parts of the two models are: 1 for equal ones, 0 for "
                 "unrelated ones. A head is beside the one of the other model whose OV circuit is most similar.");
    char *pair[2];
    names_of_two(s->path, path, pair);
    page_text(p, "a", pair[0]);
    page_text(p, "b", pair[1]);
    free(pair[0]);
    free(pair[1]);
    page_open(p, "columns", '[');
    for (size_t k = 0; k < sizeof columns / sizeof *columns; k++) page_names(p, NULL, columns[k], 3);
    page_close(p, ']');
    page_open(p, "rows", '[');
    compare_rows(p, s, b, blocks);
    page_close(p, ']');
    page_open(p, "spectra", '[');
    for (int64_t l = 0; l < blocks; l++) {
        double v[2][VALUES];
        char  *name = format_text("block %lld, logit of %s", (long long)l, s->names[token]);
        spectrum_of(s, l, token, v[0], VALUES);
        spectrum_of(&other, l, token, v[1], VALUES);
        if (!isnan(v[0][0]) && !isnan(v[1][0])) {
            page_open(p, NULL, '{');
            page_text(p, "name", name);
            page_vector(p, "a", ARRAY_F64, VALUES, v[0]);
            page_vector(p, "b", ARRAY_F64, VALUES, v[1]);
            page_close(p, '}');
        }
        free(name);
    }
    page_close(p, ']');
    page_close(p, '}');
}

/* The model of --against, in the context of the first. */
static void open_other(const subject *s, model *b)
{
    const char *path = look_settings.against;
    open_model_in(s->m.ctx, b, path, circuit_settings.tokenizer, NULL);
    check_finite(b, path);
    if (b->desc.vocab != s->m.desc.vocab)
        fail("%s has a vocabulary of %lld tokens, expected %lld, that of %s", path, (long long)b->desc.vocab,
             (long long)s->m.desc.vocab, s->path);
    check_names(s, b, path);
}

void look_at_model(const char *path, const char *title, const char *out)
{
    model    b;
    subject  s, other;
    page     p;
    buffer   pairs = {0};
    int32_t *ids = NULL;
    int64_t  T = 0;
    look_is_of(LOOK_LANGUAGE);
    open_subject(&s, path, true);
    check_not_inputs("out", look_settings.out, "the text of the run", &train_settings.data);
    check_not_inputs("out", look_settings.out, "the text of the run", &train_settings.val);
    int64_t V = s.m.desc.vocab;
    if (look_settings.against) open_other(&s, &b);
    other = s;
    if (look_settings.against) {
        other.m = b;
        page_note("What follows the section that compares both models is of the first one.");
    }
    page_begin(&p, "look", look_settings.against ? "comparison" : "language", title);
    about_model(&p, &s);
    page_open(&p, "names", '{');
    page_names(&p, "tokens", s.names, V);
    page_names(&p, "outputs", s.names, 0);
    page_open(&p, "common", '[');
    for (T = 0; T < V && T < HEAD_TOKENS; T++) page_text(&p, NULL, s.names[s.common[T]]);
    page_close(&p, ']');
    page_close(&p, '}');
    T = 0;
    page_open(&p, "sections", '[');
    card_section(&p, &s);
    if (!note_nonfinite(&s.m)) {
        if (look_settings.against) compare_models(&p, &s, &b, look_settings.against);
        char *text = text_to_read(&s);
        if (text) T = text_tokens(&s, text, &ids);
        else page_note("The page has no text that it could begin with: --text TEXT gives it one.");
        if (!look_settings.against) learnt_section(&p, &s, ids, T);
        else if (T) learnt_of_two(&p, &s, &other, ids, T);
        heads_section(&p, &s, ids, T);
        block_sections(&p, &s, &pairs);
        pairs_section(&p, &pairs);
        if (text) paths_section(&p, &s, text);
        if (is_folder(path)) time_section(&p, &s);
        page_close(&p, ']');
        if (look_settings.live) live_part(&p, &s, look_settings.against ? &other : NULL, text);
        free(text);
    } else page_close(&p, ']');
    page_write(&p, out, look_settings.out ? BY_USER : BY_NAME);
    free(ids);
    free(pairs.data);
    close_subject(&s);
}
