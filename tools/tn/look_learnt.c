/* look_learnt.c - tn look: which words and blocks of a language model are shown, and what it has learnt, in one section: its
   loss beside that of n-grams, one text that it continues, what it expects after single words, and the pairs of words that
   raise another one most */
#include "look.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 64, SHOWN_WORDS = 5, NEXT = 5, PAIR_WORDS = 192, PAIRS_OF = 2, LEAST_LETTERS = 3, SHOWN_OUTPUTS = 8,
       BOTH_TOKENS = 4096,
       LEAST_HELD = 5 };        /* held-out tokens, so that two are predicted: the loss of one has no error */

/* ---- whole words ------------------------------------------------------------------------------------------------------- */

/* How the tokens of a vocabulary say that a word begins: by a blank before it, or that it does not: by ## before it. */
typedef enum word_marks { MARKS_NONE, MARKS_BLANK, MARKS_PIECE } word_marks;

static word_marks marks_of(const subject *s)
{
    int64_t blanks = 0, pieces = 0;
    for (int64_t i = 0; i < s->m.desc.vocab; i++) {
        const char *name = s->names[i];
        blanks += name[0] == ' ' && isalpha((unsigned char)name[1]);
        pieces += name[0] == '#' && name[1] == '#' && isalpha((unsigned char)name[2]);
    }
    return pieces > blanks ? MARKS_PIECE : blanks ? MARKS_BLANK : MARKS_NONE;
}

static bool is_word(const char *name, word_marks marks)
{
    size_t letters = 0;
    if (marks == MARKS_BLANK && *name++ != ' ') return false;
    /* Letters of any script; U+2000 to U+2FFF, which begin with the byte E2, are signs. */
    for (; isalpha((unsigned char)*name) || ((unsigned char)*name >= 0x80 && (unsigned char)*name != 0xE2); name++)
        letters += ((unsigned char)*name & 0xC0) != 0x80;
    return !*name && letters >= LEAST_LETTERS;
}

/* Whether a token goes on with the word of the token before it. */
static bool goes_on(const char *name, word_marks marks)
{
    return marks == MARKS_PIECE ? !strncmp(name, "##", 2) : marks == MARKS_BLANK && isalpha((unsigned char)name[0]);
}

/* Of each token how often a word ends with it in the run's text, less how often the word goes on: below 0 it is a piece. */
static int64_t *endings(const subject *s, word_marks marks)
{
    int64_t *ends = (int64_t *)allocate((size_t)s->m.desc.vocab, sizeof *ends);
    for (int64_t i = 0; s->has_run && i + 1 < s->run.train_count; i++)
        ends[token_at(&s->run.train, i)] += goes_on(s->names[token_at(&s->run.train, i + 1)], marks) ? -1 : 1;
    return ends;
}

/* How words begin, and where they end, of the subject that was asked for last. */
static word_marks words_of(const subject *s, const int64_t **ends)
{
    static word_marks     marks;
    static int64_t       *found;
    static const subject *of;
    if (of != s) {
        marks = marks_of(s);
        free(found);
        found = endings(s, marks);
    }
    of = s;
    *ends = found;
    return marks;
}

bool is_whole_word(const subject *s, int64_t id)
{
    const int64_t   *ends;
    const word_marks marks = words_of(s, &ends);
    return is_word(s->names[id], marks) && ends[id] >= 0;
}

bool begins_word(const subject *s, int64_t id)
{
    const int64_t   *ends;
    const word_marks marks = words_of(s, &ends);
    const char      *name = s->names[id] + (marks == MARKS_BLANK && s->names[id][0] == ' ');
    return isalpha((unsigned char)name[0]) && !goes_on(s->names[id], marks);
}

/* What the signs in names of tokens mean. */
static void put_signs(page *p, const subject *s)
{
    const int64_t    bos = s->m.tokenizer ? tn_tokenizer_bos(s->m.tokenizer) : -1, *ends;
    const word_marks marks = words_of(s, &ends);
    const char *const signs[][2] = {
        {bos >= 0 ? s->names[bos] : NULL, "is the beginning of a text"},
        {marks == MARKS_PIECE ? "##" : NULL, "continues the word before it"}, {marks == MARKS_BLANK ? " " : NULL, "is a blank"}
    };
    page_open(p, "signs", '[');
    for (size_t k = 0; k < sizeof signs / sizeof *signs; k++) if (signs[k][0]) page_names(p, NULL, signs[k], 2);
    page_close(p, ']');
}

int32_t *whole_words(const subject *s, int64_t most, int64_t *count)
{
    int32_t *ids = (int32_t *)allocate((size_t)most + 1, sizeof *ids);
    *count = 0;
    for (int64_t i = 0; i < s->m.desc.vocab && *count < most; i++)
        if (is_whole_word(s, s->common[i]) && (!s->frequency || s->frequency[s->common[i]] > 0))
            ids[(*count)++] = s->common[i];
    return ids;
}

/* ---- blocks and outputs ------------------------------------------------------------------------------------------------ */

int64_t best_places(const double *v, int64_t n, int sign, int64_t *at, int64_t most)
{
    int64_t k, kept = 0;
    for (int64_t i = 0; i < n; i++) {
        const double size = sign ? sign * v[i] : fabs(v[i]);
        for (k = kept; k > 0 && size > (sign ? sign * v[at[k - 1]] : fabs(v[at[k - 1]])); k--) if (k < most) at[k] = at[k - 1];
        if (k < most) at[k] = i;
        if (k < most && kept < most) kept++;
    }
    return kept;
}

/* Of each block: why it has no matrix, or NULL. */
static char **left_out;

tn_cp *block_operator(const subject *s, int64_t block)
{
    const double   unit = typical_unit(s);
    const uint64_t mark = tn_cp_mark(s->m.ctx);
    if (!left_out) left_out = (char **)allocate((size_t)s->m.desc.layers, sizeof *left_out);
    tn_ctx_reset(s->m.ctx);
    tn_cp *cp = tn_circuit_mlp(s->m.ctx, &s->m.net, block);
    char  *why = cp && cp->order != 2 ? format_text("it multiplies %d encoders", cp->order) : NULL;
    if (cp) cp = tn_cp_fold_out(cp, tn_scale(s->m.ctx, tn_circuit_unembedding(s->m.ctx, &s->m.net), unit), NULL);
    char *error = taken_error(s->m.ctx);
    if (error && !why) why = plain_reason(error);
    if (why && !left_out[block]) left_out[block] = copy_text(why);
    if (why) cp = NULL;
    free(error);
    free(why);
    return tn_cp_release(s->m.ctx, mark, cp);
}

const char *mlp_words(tn_mlp_kind kind)
{
    switch (kind) {
    case TN_MLP_RELU: return "ReLU";
    case TN_MLP_RELU2: return "squared ReLU";
    case TN_MLP_GELU: return "GELU";
    case TN_MLP_GELU_TANH: return "GELU (tanh)";
    case TN_MLP_SWISH: return "Swish";
    case TN_MLP_GLU: return "GLU";
    case TN_MLP_REGLU: return "ReGLU";
    case TN_MLP_GEGLU: return "GEGLU";
    case TN_MLP_GEGLU_TANH: return "GEGLU (tanh)";
    case TN_MLP_SWIGLU: return "SwiGLU";
    default: return tn_mlp_kind_name(kind);
    }
}

void note_left_out(const subject *s)
{
    buffer      blocks = {0}, kinds = {0};
    int64_t     count = 0;
    const char *last = NULL;
    for (int64_t l = 0; left_out && l < s->m.desc.layers; l++) {
        const tn_mlp_kind kind = s->m.net.blocks[l].mlp.desc.kind;
        const char       *name = mlp_words(kind);
        if (!left_out[l]) continue;
        if (kind == TN_MLP_BILINEAR) {
            page_note("The MLP of block %lld is not shown as matrices, because %s.", (long long)l, left_out[l]);
            continue;
        }
        buffer_print(&blocks, count++ ? ", %lld" : "%lld", (long long)l);
        if (!last || strcmp(last, name)) buffer_print(&kinds, last ? ", %s" : "%s", name);
        last = name;
    }
    if (count)
        page_note("The MLP%s of block%s %s (%s) %s not bilinear. Only a bilinear MLP is a product of linear maps, with "
                  "spectra, eigenvectors and pairs of tokens; %s part of the predictions, attributions and paths all the same.",
                  count > 1 ? "s" : "", count > 1 ? "s" : "", blocks.data, kinds.data, count > 1 ? "are" : "is",
                  count > 1 ? "they are" : "it is");
    free(blocks.data);
    free(kinds.data);
}

/* The tokens that --outputs names. */
static telling given_outputs(const subject *s)
{
    telling t = {NULL, NULL, 0, 0, 0};
    char   *text = copy_text(look_settings.outputs_given);
    for (char *word = text, *end; word; word = end) {
        if ((end = strchr(word, ',')) != NULL) *end++ = 0;
        t.at = (int64_t *)resize(t.at, (size_t)t.count + 1, sizeof *t.at);
        t.at[t.count++] = token_id(s, word);
    }
    free(text);
    return t;
}

/* The words of a block that have something to show. They are asked for twice, and take a while to find. */
static telling telling_words(const subject *s, const tn_cp *cp)
{
    int64_t       n;
    const int64_t V = s->m.desc.vocab, most = look_settings.outputs == AUTO_COUNT ? SHOWN_OUTPUTS : look_settings.outputs;
    int32_t *words = whole_words(s, most > COMMON_OUTPUTS ? most : COMMON_OUTPUTS, &n);
    if (n < most) {                     /* a vocabulary without words: of all tokens */
        n = V < COMMON_OUTPUTS || !s->frequency ? V : COMMON_OUTPUTS;
        words = (int32_t *)resize(words, (size_t)n + 1, sizeof *words);
        memcpy(words, s->common, (size_t)n * sizeof *words);
    }
    const telling t = telling_outputs(cp, words, n, most);
    free(words);
    return t;
}

const telling *shown_tokens(const subject *s, int64_t block, const tn_cp *cp)
{
    static telling       *chosen;
    static int64_t        blocks;
    static const subject *of;
    if (of != s) {
        for (int64_t l = 0; l < blocks; l++) free(chosen[l].at), free(chosen[l].edge);
        free(chosen);
        chosen = (telling *)allocate((size_t)(blocks = s->m.desc.layers), sizeof *chosen);
    }
    of = s;
    if (!chosen[block].at) chosen[block] = look_settings.outputs_given ? given_outputs(s) : telling_words(s, cp);
    return &chosen[block];
}

/* ---- the loss ---------------------------------------------------------------------------------------------------------- */

typedef struct loss_row { const char *name; double nats; bool own; } loss_row;

static int by_nats(const void *a, const void *b)
{
    const double x = ((const loss_row *)a)->nats, y = ((const loss_row *)b)->nats;
    return (x > y) - (x < y);
}

reached reached_by(const char *file)
{
    char       *folder = folder_of(file), *checkpoint;
    const char *name = file_name(file), *at = strchr(name, '-');
    long long   step = -1;
    char        weights[64];
    if (at && sscanf(at, "-%lld.safetensors", &step) != 1) step = -1;
    snprintf(weights, sizeof weights, WEIGHTS_FILE, step);
    checkpoint = checkpoint_path(folder, step);
    const bool at_step = step >= 0 && (!strcmp(name, weights) || !strcmp(name, file_name(checkpoint)));
    reached    r = read_reached(folder, at_step ? (double)step : NAN);
    if (at_step && !isnan(r.tokens)) r.step = (double)step;
    else if (!strcmp(name, "best.safetensors")) r.held = r.best, r.step = r.best_step;
    else if (strcmp(name, "model.safetensors")) r.held = r.step = NAN;
    free(checkpoint);
    free(folder);
    return r;
}

/* Puts what the model has reached beside counts of n-grams, and says in a sentence which is better, a new string or NULL. */
static char *put_losses(page *p, const subject *s)
{
    const reached r = reached_by(s->file);
    const double  own = r.held, gram = fmin(r.trigram, r.fivegram);
    const bool    five = r.fivegram == gram;
    loss_row      rows[4] = {{"this model", own, true}, {"trigram counts", r.trigram, false},
                             {"5-gram counts", r.fivegram, false}, {"uniform guess", log((double)s->m.desc.vocab), false}};
    if (!isnan(own)) {
        qsort(rows, 4, sizeof *rows, by_nats);
        page_open(p, "losses", '[');
        for (int k = 0; k < 4; k++) {
            if (isnan(rows[k].nats)) continue;
            page_open(p, NULL, '{');
            page_text(p, "name", rows[k].name);
            page_number(p, "nats", rows[k].nats);
            page_flag(p, "own", rows[k].own);
            page_close(p, '}');
        }
        page_close(p, ']');
    }
    return isnan(own) || isnan(gram) ? NULL
        : format_text("On text that it has not seen it predicts %s than counting sequences of up to %s tokens: its loss is %.2f "
                      "nats per token, that of %s counts %.2f.", own < gram ? "better" : "no better", five ? "five" : "three",
                      own, five ? "5-gram" : "trigram", gram);
}

/* ---- one text, and words alone ------------------------------------------------------------------------------------------ */

/* Logits become probabilities, in place. */
static void softmax(double *v, int64_t n)
{
    double most = v[0], sum = 0;
    for (int64_t i = 1; i < n; i++) if (v[i] > most) most = v[i];
    for (int64_t i = 0; i < n; i++) sum += v[i] = exp(v[i] - most);
    for (int64_t i = 0; i < n; i++) v[i] /= sum;
}

static int64_t largest(const double *v, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) if (v[i] > v[best]) best = i;
    return best;
}

/* What each part of the model adds to the logit of a token after the text; nothing if the model is refused. */
static void put_parts(page *p, const subject *s, const int32_t *ids, int64_t T, int64_t token)
{
    tn_ctx       *ctx = s->m.ctx;
    const int64_t count = tn_transformer_parts(&s->m.net, NULL, 0);
    tn_point     *list = (tn_point *)allocate((size_t)count + 1, sizeof *list);
    int32_t      *same = (int32_t *)allocate((size_t)T, sizeof *same);
    for (int64_t i = 0; i < T; i++) same[i] = (int32_t)token;
    tn_transformer_parts(&s->m.net, list, count);
    tn_ctx_reset(ctx);
    tn_tensor *y = tn_transformer_attribution(ctx, &s->m.net, ids_tensor(ctx, ids, T), ids_tensor(ctx, same, T), NULL);
    char      *why = taken_error(ctx);
    page_open(p, "parts", '[');
    if (!why) {
        double *v = numbers_in(tn_slice(y, 1, T - 1, T));
        for (int64_t i = 0; i < count; i++) {
            page_open(p, NULL, '[');
            page_text(p, NULL, list[i].name);
            page_number(p, NULL, v[i]);
            page_close(p, ']');
        }
        free(v);
    }
    page_close(p, ']');
    free(why);
    free(same);
    free(list);
}

/* The tokens of a text. */
static void put_tokens(page *p, const subject *s, const int32_t *ids, int64_t T)
{
    page_open(p, "tokens", '[');
    for (int64_t i = 0; i < T; i++) page_text(p, NULL, s->names[ids[i]]);
    page_close(p, ']');
}

/* The likeliest tokens after a text, with their probabilities. Returns the first. */
static int64_t put_next(page *p, const subject *s, const int32_t *ids, int64_t T)
{
    tn_ctx       *ctx = s->m.ctx;
    const int64_t V = s->m.desc.vocab;
    tn_ctx_reset(ctx);
    tn_tensor *y = tn_transformer_forward(ctx, &s->m.net, ids_tensor(ctx, ids, T));
    check_ctx(ctx, "the text");
    double       *v = numbers_in(tn_slice(y, 1, T - 1, T));
    const int64_t token = largest(v, V);
    softmax(v, V);
    page_open(p, "next", '[');
    for (int k = 0; k < NEXT && k < V; k++) {
        const int64_t at = largest(v, V);
        page_open(p, NULL, '[');
        page_text(p, NULL, s->names[at]);
        page_number(p, NULL, v[at]);
        page_close(p, ']');
        v[at] = -1;
    }
    page_close(p, ']');
    free(v);
    return token;
}

static void put_example(page *p, const subject *s, const int32_t *ids, int64_t T)
{
    page_open(p, "example", '{');
    put_tokens(p, s, ids, T);
    const int64_t token = put_next(p, s, ids, T);
    page_text(p, "token", s->names[token]);
    put_parts(p, s, ids, T, token);
    page_close(p, '}');
}

typedef struct expected { double chance; int32_t word, next; } expected;

static int surest_first(const void *a, const void *b)
{
    const expected *x = (const expected *)a, *y = (const expected *)b;
    if (x->chance != y->chance) return x->chance < y->chance ? 1 : -1;
    return x->word < y->word ? -1 : x->word > y->word;
}

/* What follows single words, after the beginning of a text if the tokens have one: the surest ones, of different followers. */
static void put_words(page *p, const subject *s)
{
    tn_ctx       *ctx = s->m.ctx;
    const int64_t V = s->m.desc.vocab, bos = s->m.tokenizer ? tn_tokenizer_bos(s->m.tokenizer) : -1, T = 1 + (bos >= 0);
    int64_t       count, shown = 0;
    int32_t      *words = whole_words(s, WORDS, &count), *ids = (int32_t *)allocate((size_t)(count * T) + 1, sizeof *ids);
    expected     *list = (expected *)allocate((size_t)count + 1, sizeof *list);
    if (s->m.desc.context < T) count = 0;
    for (int64_t i = 0; i < count; i++) {
        if (bos >= 0) ids[i * T] = (int32_t)bos;
        ids[i * T + T - 1] = words[i];
    }
    for (int64_t first = 0; first < count; first += 32) {
        const int64_t n = count - first < 32 ? count - first : 32, shape[2] = {n, T};
        tn_ctx_reset(ctx);
        tn_tensor *y = tn_transformer_forward(ctx, &s->m.net, tn_tensor_from(ctx, 2, shape, TN_I32, ids + first * T));
        check_ctx(ctx, "single words");
        double *v = numbers_in(tn_slice(y, 1, T - 1, T));
        for (int64_t i = 0; i < n; i++) {
            softmax(v + i * V, V);
            const int64_t next = largest(v + i * V, V);
            list[first + i].word = words[first + i];
            list[first + i].next = (int32_t)next;
            list[first + i].chance = v[i * V + next];
        }
        free(v);
    }
    qsort(list, (size_t)count, sizeof *list, surest_first);
    page_open(p, "words", '[');
    for (int64_t i = 0; i < count && shown < SHOWN_WORDS; i++) {
        int64_t k = 0;
        while (k < i && list[k].next != list[i].next) k++;
        if (k < i || list[i].word == list[i].next || !is_whole_word(s, list[i].next)) continue;
        page_open(p, NULL, '{');
        page_text(p, "word", s->names[list[i].word]);
        page_text(p, "next", s->names[list[i].next]);
        page_number(p, "chance", list[i].chance);
        page_close(p, '}');
        shown++;
    }
    page_close(p, ']');
    free(list);
    free(ids);
    free(words);
}

/* ---- pairs of words ------------------------------------------------------------------------------------------------------ */

typedef struct word_pair { double value; int64_t block; int32_t first, second, output; } word_pair;

static int strongest_first(const void *a, const void *b)
{
    const double x = ((const word_pair *)a)->value, y = ((const word_pair *)b)->value;
    return (x < y) - (x > y);
}

/* The pairs of whole words that raise each output most, in all blocks that have a matrix. */
static word_pair *pairs_of_words(const subject *s, const int32_t *words, int64_t count, const int64_t *outputs, int64_t shown,
                                 word_pair *list, int64_t *n, int64_t block, double unit)
{
    tn_circuit_top_desc d;
    memset(&d, 0, sizeof d);
    d.top = PAIRS_OF;
    d.pairs = true;
    for (int64_t o = 0; o < shown; o++) {
        tn_circuit_entries e;
        memset(&e, 0, sizeof e);
        tn_ctx_reset(s->m.ctx);
        tn_circuit *all = tn_circuit_pairs(s->m.ctx, &s->m.net, block, outputs[o]);
        tn_tensor  *ids = tn_tensor_from(s->m.ctx, 1, &count, TN_I32, words);
        tn_circuit *some = all ? tn_circuit_select(all, ids, ids) : NULL;
        if (some) tn_circuit_top_many(some, 1, &d, &e);
        char        *why = taken_error(s->m.ctx);
        const double edge = why || look_settings.within_null ? 0 : null_of_pairs(s, some, block, outputs[o], NULL_OF_PAIRS);
        if (isnan(edge)) page_note("Pairs of words are not compared with chance, which would take long.");
        for (int64_t k = 0; !why && k < e.count; k++) {
            double value, at[2];
            tn_read(tn_slice(e.values, 0, k, k + 1), TN_F64, &value, 1);
            tn_read(tn_slice(e.index, 0, k, k + 1), TN_F64, at, 2);
            if (value <= (isnan(edge) ? 0 : edge)) break;
            list = (word_pair *)resize(list, (size_t)*n + 1, sizeof *list);
            list[*n].value = value * unit;
            list[*n].block = block;
            list[*n].first = words[(int64_t)at[0]];
            list[*n].second = words[(int64_t)at[1]];
            list[(*n)++].output = (int32_t)outputs[o];
        }
        free(why);
        tn_circuit_entries_destroy(&e);
        tn_circuit_destroy(some);
        tn_circuit_destroy(all);
    }
    return list;
}

static void put_pairs(page *p, const subject *s, double unit)
{
    int64_t    count, n = 0;
    int32_t   *words = whole_words(s, PAIR_WORDS, &count);
    word_pair *list = NULL;
    show_stage("Pairs of words");
    for (int64_t l = 0; l < s->m.desc.layers && count; l++) {
        uint64_t mark = tn_cp_mark(s->m.ctx);
        tn_cp   *cp = block_operator(s, l);
        const telling *shown = cp ? shown_tokens(s, l, cp) : NULL;
        tn_cp_release(s->m.ctx, mark, NULL);
        if (shown) list = pairs_of_words(s, words, count, shown->at, shown->count, list, &n, l, unit);
    }
    if (n) qsort(list, (size_t)n, sizeof *list, strongest_first);
    page_open(p, "pairs", '[');
    for (int64_t i = 0; i < n && i < 24; i++) {
        page_open(p, NULL, '{');
        page_number(p, "block", (double)list[i].block);
        page_text(p, "first", s->names[list[i].first]);
        page_text(p, "second", s->names[list[i].second]);
        page_text(p, "output", s->names[list[i].output]);
        page_number(p, "value", list[i].value);
        page_close(p, '}');
    }
    page_close(p, ']');
    free(list);
    free(words);
}

/* ---- the section --------------------------------------------------------------------------------------------------------- */

void learnt_section(page *p, const subject *s, const int32_t *ids, int64_t T)
{
    page_section(p, "learnt", "learnt", "What it has learnt", NULL);
    page_text(p, "of", "language");
    char *text = put_losses(p, s);
    page_text(p, "text", text ? text : "What it expects after single words, and a text that it continues: its own predictions, "
              "from the weights alone.");
    free(text);
    put_signs(p, s);
    if (T) put_example(p, s, ids, T);
    put_words(p, s);
    put_pairs(p, s, typical_unit(s));
    page_close(p, '}');
}

/* Two models after each token of the same text: the sums of their losses, of the difference of these and its square, and how
   often the likeliest token is the same. */
typedef struct both { double loss[2], apart, squares; int64_t same, count; } both;

/* After ids[from] to ids[n-1], each with all tokens before it; ids[n] is known. */
static void add_both(both *x, const subject *s, const subject *other, const int32_t *ids, int64_t from, int64_t n)
{
    const int64_t V = s->m.desc.vocab;
    tn_ctx       *ctx = s->m.ctx;
    double       *v[2];
    for (int k = 0; k < 2; k++) {
        tn_ctx_reset(ctx);
        v[k] = numbers_in(tn_log_softmax(ctx, tn_transformer_forward(ctx, k ? &other->m.net : &s->m.net,
                                                                     ids_tensor(ctx, ids, n))));
    }
    for (int64_t i = from; i < n; i++) {
        const double a = -v[0][i * V + ids[i + 1]], b = -v[1][i * V + ids[i + 1]];
        x->loss[0] += a, x->loss[1] += b, x->apart += a - b, x->squares += (a - b) * (a - b);
        x->same += largest(v[0] + i * V, V) == largest(v[1] + i * V, V);
    }
    x->count += n - from;
    free(v[0]);
    free(v[1]);
}

/* Both on held-out text of the run, or where that is not here on the text of the page. As in the evaluation of a run, a token
   has at least half a window before it. */
static both measure_both(const subject *s, const subject *other, bool held, const int32_t *ids, int64_t T)
{
    both          x = {{0, 0}, 0, 0, 0, 0};
    const int64_t context = s->m.desc.context < other->m.desc.context ? s->m.desc.context : other->m.desc.context;
    if (!held) {
        add_both(&x, s, other, ids, 0, T - 1 < context ? T - 1 : context);
        return x;
    }
    samples w = text_samples(s, NULL, context, BOTH_TOKENS);
    for (int64_t k = 0; k < w.count; k++) add_both(&x, s, other, w.ids + w.start[k], w.length / 2, w.length);
    free_samples(&w);
    return x;
}

/* What was measured on the same held-out tokens. The difference has as many digits as its error needs, and the losses as many,
   so that a difference beyond the error is seen in them too. */
static char *measured_loss(const both *x, const char *const names[2])
{
    const double n = (double)x->count, apart = x->apart / n, error = 2 * sqrt(fmax(0, x->squares / n - apart * apart) / n);
    int          digits = 2;
    while (error > 0 && error < pow(10, -digits) && digits < 6) digits++;
    char *count = grouped(x->count), *said = fabs(apart) > error
        ? format_text("%s predicts better, by %.*f \302\261 %.*f (two standard errors, tokens taken as independent)",
                      names[apart > 0], digits, fabs(apart), digits, error)
        : format_text("the difference, %.*f \302\261 %.*f, is within two standard errors, tokens taken as independent",
                      digits, fabs(apart), digits, error);
    char *text = format_text("On the same %s held-out tokens the loss of %s is %.*f and that of %s %.*f nats per token: %s.",
                             count, names[0], digits, x->loss[0] / n, names[1], digits, x->loss[1] / n, said);
    free(count);
    free(said);
    return text;
}

/* Without the held-out text: what the logs of both runs say, each of its own text, or else the losses on the text below. */
static char *unmeasured_loss(const subject *s, const subject *other, const both *x, const char *const names[2])
{
    const double n = (double)x->count, a = reached_by(s->file).held, b = reached_by(other->file).held;
    const bool   logged = !isnan(a) && !isnan(b);
    return format_text("The held-out text is not available here, so the page cannot say which predicts better; tn eval RUN FILE "
                       "measures it. %s of %s is %.2f and that of %s %.2f nats per token%s.",
                       logged ? "By the logs the loss" : "On the text below the loss", names[0], logged ? a : x->loss[0] / n,
                       names[1], logged ? b : x->loss[1] / n, logged ? ", each on the held-out text of its run" : "");
}

/* The losses of two models, which of them predicts better where that can be measured, and how often they agree. */
static char *better_of_two(const subject *s, const subject *other, const char *const names[2], const int32_t *ids, int64_t T)
{
    const bool held = s->has_run && s->run.held_count >= LEAST_HELD;
    const both x = measure_both(s, other, held, ids, T);
    char *first = held ? measured_loss(&x, names) : unmeasured_loss(s, other, &x, names);
    char *those = held ? copy_text("these tokens") : format_text("the %lld tokens of the text below", (long long)x.count);
    char *text = format_text("%s They have the same likeliest next token after %.0f %% of %s.", first,
                             100 * (double)x.same / (double)x.count, those);
    free(first);
    free(those);
    return text;
}

void learnt_of_two(page *p, const subject *s, const subject *other, const int32_t *ids, int64_t T)
{
    char *names[2];
    names_of_two(s->path, look_settings.against, names);
    char *text = T > 1 ? better_of_two(s, other, (const char *const *)names, ids, T)
                       : copy_text("One text, and what each of the two models expects next.");
    page_section(p, "learnt", "learnt", "What each predicts", text);
    free(text);
    page_text(p, "of", "texts");
    put_signs(p, s);
    page_open(p, "example", '{');
    put_tokens(p, s, ids, T);
    page_open(p, "models", '[');
    for (int k = 0; k < 2; k++) {
        page_open(p, NULL, '{');
        page_text(p, "name", names[k]);
        put_next(p, k ? other : s, ids, T);
        page_close(p, '}');
        free(names[k]);
    }
    page_close(p, ']');
    page_close(p, '}');
    page_close(p, '}');
}
