/* look_blocks.c - tn look: what the MLP of each block of a language model does: eigenvectors, with the sentences in which they
   are strongest, and what pairs of tokens do to a third

   In what follows x is the embedding of a token, normed alone, as the tables of tn_circuit_pairs have it: an MLP is shown
   between tokens as if nothing else had been added to the stream. */
#include "look.h"
#include "train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MATRIX_NUMBERS = 1 << 20, NEAREST = 8, SENTENCES = 3, SENTENCE_TOKENS = 40, STREAM_TOKENS = 1024, PAIR_TOKENS = 512,
       PAIRS = 6 };

bool note_refusal(const subject *s, const char *what)
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
    const char    *source;              /* whose text it is                                           */
    double       **z;                   /* [layers] of [count,dim]: the normed stream before the gain */
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

/* A part of the run's held-out text, or without one a text of T tokens. */
static streams text_of_streams(const subject *s, const int32_t *ids, int64_t T)
{
    const bool held = s->has_run && s->run.held_count > 1;
    streams    t;
    memset(&t, 0, sizeof t);
    t.ids = held ? s->run.held : ids;
    t.source = held ? "the run's held-out text" : "the text of this page";
    t.length = s->m.desc.context < 128 ? s->m.desc.context : 128;
    if (!held) t.length = T;
    else if (t.length > s->run.held_count) t.length = s->run.held_count;
    t.windows = !t.length ? 0 : held ? s->run.held_count / t.length : 1;
    if (t.windows * t.length > STREAM_TOKENS) t.windows = STREAM_TOKENS / t.length ? STREAM_TOKENS / t.length : 1;
    t.count = t.windows * t.length;
    if (s->m.desc.norm_place == TN_PLACE_POST) t.count = 0;
    return t;
}

/* Reads the streams of such a text; z is NULL if there is none. */
static streams read_streams(const subject *s, const int32_t *ids, int64_t T)
{
    tn_tap  taps[2] = {{"blocks.*.middle", read_stream, NULL}, {"blocks.*.norm2.scale", read_stream, NULL}};
    streams t = text_of_streams(s, ids, T);
    if (!t.count) return t;
    t.layers = s->m.desc.layers;
    t.dim = s->m.desc.dim;
    t.z = (double **)allocate((size_t)t.layers, sizeof *t.z);
    taps[0].user = taps[1].user = &t;
    const int64_t shape[2] = {t.windows, t.length};
    tn_ctx_reset(s->m.ctx);
    tn_transformer_run(s->m.ctx, &s->m.net, tn_tensor_from(s->m.ctx, 2, shape, TN_I32, t.ids), taps, s->m.desc.no_norm ? 1 : 2);
    check_ctx(s->m.ctx, "the text of the sentences");
    return t;
}

void put_evidence(page *p, const subject *s, const int32_t *ids, int64_t T)
{
    const streams t = text_of_streams(s, ids, T);
    double       *v = t.count ? (double *)allocate((size_t)t.count, sizeof *v) : NULL;
    if (!v) return;
    for (int64_t i = 0; i < t.count; i++) v[i] = t.ids[i];
    page_open(p, "evidence", '{');
    page_text(p, "source", t.source);
    page_flag(p, "first_only", t.ids != ids && t.count < s->run.held_count);
    page_vector(p, "ids", ARRAY_F32, t.count, v);
    page_close(p, '}');
    free(v);
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

static bool ends_sentence(const char *name)
{
    size_t n = strlen(name);
    while (n && strchr("\"') ", name[n - 1])) n--;
    return strchr(name, '\n') || (n && strchr(".!?", name[n - 1]));
}

/* The sentence of a place of the text, [*first,*end): at most SENTENCE_TOKENS on both sides, and within its window. A stop after
   a stop, as in "...", has the sentence before it. */
static void sentence_of(const subject *s, const streams *t, int64_t at, int64_t *first, int64_t *end)
{
    const int64_t bos = s->m.tokenizer ? tn_tokenizer_bos(s->m.tokenizer) : -1, start = at / t->length * t->length,
                  stop = start + t->length;
    for (*first = at; *first > start && *first > at - SENTENCE_TOKENS && t->ids[*first] != bos; (*first)--)
        if (*first < at - 1 && ends_sentence(s->names[t->ids[*first - 1]])) break;
    for (*end = at + 1; *end < stop && *end < at + SENTENCE_TOKENS && t->ids[*end] != bos; (*end)++)
        if (ends_sentence(s->names[t->ids[*end - 1]])) break;
}

/* The sentences in which a vector is strongest, with vector . [z;1] of each of their tokens. */
static void put_sentences(page *p, const subject *s, const streams *t, int64_t block, const double *v, int64_t length)
{
    enum { PLACES = 64 };
    double *product = products(t->z[block], t->count, t->dim, v, length);
    int64_t at[PLACES], first[SENTENCES], end[SENTENCES], n = best_places(product, t->count, 0, at, PLACES), shown = 0;
    page_open(p, NULL, '[');
    for (int64_t k = 0; k < n && shown < SENTENCES; k++) {
        int64_t i = 0;
        while (i < shown && !(at[k] >= first[i] && at[k] < end[i])) i++;
        if (i < shown) continue;
        sentence_of(s, t, at[k], &first[shown], &end[shown]);
        if (end[shown] - first[shown] < 3) continue;        /* the beginning of a window, of which no sentence is left */
        page_open(p, NULL, '{');
        page_number(p, "first", (double)first[shown]);
        page_vector(p, "values", ARRAY_F32, end[shown] - first[shown], product + first[shown]);
        page_close(p, '}');
        shown++;
    }
    page_close(p, ']');
    free(product);
}

static void eigen_section(page *p, const subject *s, int64_t block, const tn_cp *cp, const char *const *names,
                          const double *edge, const double *x, const int32_t *ids, int64_t count, const streams *t)
{
    static const char *const keys[] = {"tokens", "opposite", "sentences"};
    const int64_t most = look_settings.vectors < 8 ? look_settings.vectors : 8, dim = s->m.desc.dim;
    char         *id = format_text("eigen-%lld", (long long)block);
    char         *title = format_text("Eigenvectors of block %lld", (long long)block);
    tn_eigenpairs      e;
    show_stage("%s", title);
    if (tn_cp_eigen_all(cp, most, &e) != TN_OK) check_ctx(s->m.ctx, "eigenvectors");
    double *values = numbers_in(e.values), *vectors = numbers_in(e.vectors);
    page_section(p, "eigen", id, title, "What the MLP of this block adds to the logit of a token is a sum of value times "
                 "(eigenvector times normed stream) squared. For each eigenvector: the tokens whose embeddings lie most along "
                 "it, those that lie most against it, and the sentences in which it is strongest.");
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
                    put_sentences(p, s, t, block, v, e.n);
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
    if (*count < V) {
        char *shown = grouped(*count), *all = grouped(V);
        page_note("The matrices between tokens have the %s %s of the %s tokens.", shown, s->frequency ? "commonest" : "first",
                  all);
        free(shown);
        free(all);
    }
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
        if (note_refusal(s, "Pairs of tokens are left out")) {
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

/* Which words were chosen, unless all are shown. */
static void note_choice(const subject *s, const telling *shown)
{
    if (shown->count >= shown->among) return;
    char *rule = telling_rule(shown);
    page_note("Spectra and eigenvectors are shown for the words with %s among the %lld %s (--outputs chooses others).", rule,
              (long long)shown->among, s->frequency ? "commonest" : "first");
    free(rule);
}

void block_sections(page *p, const subject *s, const int32_t *text, int64_t T, buffer *pairs)
{
    int64_t   count, shape[2];
    int32_t  *ids = matrix_tokens(s, &count);
    tn_tensor *x = token_vectors(s->m.ctx, &s->m.net, ids, count), *one[2] = {NULL, NULL};
    streams   t = read_streams(s, text, T);
    double   *v = numbers_in(x);
    const telling *shown = NULL;
    stored    embed[2];
    for (int64_t l = 0; l < s->m.desc.layers; l++) {
        uint64_t mark = tn_cp_mark(s->m.ctx);
        tn_cp   *cp = block_operator(s, l);
        if (!cp) continue;
        if (!one[cp->constant]) {                       /* the embeddings are in the page once */
            double *w = with_ones(x, cp->constant, shape);
            embed[cp->constant] = page_store(p, ARRAY_Q8, 2, shape, w);
            one[cp->constant] = tn_tensor_create(s->m.ctx, TN_REAL, 2, shape);
            tn_write(one[cp->constant], TN_F64, w, shape[0] * shape[1]);
            free(w);
        }
        shown = shown_tokens(s, l, cp);
        const int64_t *at = shown->at, outputs = shown->count;
        tn_cp       *some = some_outputs(cp, at, outputs);
        const char **names = (const char **)allocate((size_t)outputs, sizeof *names);
        for (int64_t i = 0; i < outputs; i++) names[i] = s->names[at[i]];
        char *id = format_text("spectra-%lld", (long long)l);
        char *title = format_text("Spectra of block %lld", (long long)l);
        show_stage("%s", title);
        double       *own = shown->edge ? NULL : null_edges(some);
        const double *edge = shown->edge ? shown->edge : own;
        spectra_section(p, id, title, some, names, edge, l);
        eigen_section(p, s, l, some, names, edge, v, ids, count, &t);
        free(own);
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
        free(id);
        free(title);
        tn_cp_release(s->m.ctx, mark, NULL);
    }
    note_left_out(s);
    if (shown) note_choice(s, shown);
    tn_tensor_destroy(x);
    tn_tensor_destroy(one[0]);
    tn_tensor_destroy(one[1]);
    free_streams(&t);
    free(ids);
    free(v);
}

void pairs_section(page *p, const buffer *rows)
{
    if (!rows->bytes) return;
    page_section(p, "pairs", "pairs", "Strongest pairs of tokens", "For each output that is shown: the pairs of tokens that "
                 "raise its logit most, and those that lower it most, if they reach the MLP of the block together: what a pair "
                 "adds in both orders, in nats for a typical size of the last norm.");
    page_text(p, "unit", "nats");
    page_open(p, "rows", '[');
    buffer_add(&p->json, rows->data, rows->bytes);
    page_close(p, ']');
    page_close(p, '}');
}

