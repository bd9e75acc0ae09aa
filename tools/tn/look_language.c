/* look_language.c - tn look: the page of a language model: what it is, its heads, the paths of a text, the model itself */
#include "look.h"
#include "names.h"
#include "train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CURVE_POINTS = 600, HEAD_TOKENS = 80, PATHS = 40, TEXT_TOKENS = 16 };
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
    char                      *folder = folder_of(s->file), *in = base_name(folder);
    const double               step = reached_by(s->file).step;
    page_row(p, "file", "%s%s%s", strcmp(folder, "./") ? in : "", strcmp(folder, "./") ? "/" : "", file_name(s->file));
    if (!isnan(step)) page_row(p, "training step", "%.0f", step);
    free(folder);
    free(in);
    page_row(p, "model", "%s", name);
    page_row(p, "parameters", "%lld", (long long)cost.params);
    page_row(p, "parameters in tables", "%lld", (long long)cost.table);
    page_row(p, "blocks, width, heads", "%lld, %lld, %lld", (long long)d->layers, (long long)d->dim, (long long)d->heads);
    page_row(p, "tokens of the vocabulary", "%lld", (long long)d->vocab);
    page_row(p, "tokens of the context", "%lld", (long long)d->context);
    for (int64_t l = 0; l < d->layers; l++) {
        const tn_transformer_block *b = &s->m.net.blocks[l];
        char *one = format_text("%s, %s", tn_attention_kind_name(b->attn.desc.kind), mlp_words(b->mlp.desc.kind));
        if (!l || !find_text(kinds.data, kinds.bytes, one)) buffer_print(&kinds, l ? "; %s" : "%s", one);
        free(one);
    }
    page_row(p, "attention, MLP", "%s", kinds.data);
    page_row(p, "MFLOP per token", "%.4g", cost.forward / 1e6);
    if (s->has_run) {
        page_row(p, "tokens to train on", "%lld", (long long)s->run.train_count);
        page_row(p, "tokens held out", "%lld", (long long)s->run.held_count);
    }
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
        page_text(p, "label", k ? "5-gram counts" : "trigram counts");
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

static char *blocks_of(const subject *s)
{
    const tn_transformer_desc *d = &s->m.desc;
    const tn_transformer_block *b = &s->m.net.blocks[0];
    return format_text("%lld block%s of width %lld: %lld heads (%s) and a %s MLP in each", (long long)d->layers,
                       d->layers == 1 ? "" : "s", (long long)d->dim, (long long)d->heads,
                       tn_attention_kind_name(b->attn.desc.kind), mlp_words(b->mlp.desc.kind));
}

/* Of a file of weights within a run: which step it has, a sentence that begins with a blank; else an empty text. */
static char *origin_of(const subject *s, const char *who)
{
    const double step = reached_by(s->file).step;
    char        *folder = folder_of(s->file), *name = base_name(folder), *text;
    text = isnan(step) || !strcmp(file_name(s->file), "model.safetensors") ? copy_text("")
         : format_text(" %s has the weights of step %.0f of the run %s.", who, step, name);
    free(folder);
    free(name);
    return text;
}

/* What the model is, or both are, in a few sentences. other: NULL: one model. */
static void about_model(page *p, const subject *s, const subject *other)
{
    char *a = blocks_of(s), *b = other ? blocks_of(other) : NULL, *vocab = grouped(s->m.desc.vocab), *text, *names[2] = {0};
    if (other) names_of_two(s->path, other->path, names);
    char *first = origin_of(s, other ? names[0] : "It"), *second = other ? origin_of(other, names[1]) : NULL;
    if (!other) text = format_text("A transformer with %s. Its vocabulary has %s tokens.%s", a, vocab, first);
    else if (!strcmp(a, b))
        text = format_text("Two transformers, each with %s. Their vocabulary has %s tokens.%s%s", a, vocab, first, second);
    else
        text = format_text("Two transformers. %s has %s; %s has %s. Their vocabulary has %s tokens.%s%s", names[0], a, names[1],
                           b, vocab, first, second);
    page_text(p, "about", text);
    char *all[] = {text, first, second, names[0], names[1], vocab, a, b};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) free(all[k]);
}

static void rows_of(page *p, const subject *s)
{
    page_open(p, "rows", '[');
    model_rows(p, s);
    page_close(p, ']');
}

/* other: NULL: one model. */
static void card_section(page *p, const subject *s, const subject *other)
{
    char *folder = folder_of(s->file), *log = join_path(folder, "log.jsonl"), *names[2];
    if (!other) {
        page_section(p, "card", "card", "The model", "What it is, what it costs, and how it was trained.");
        rows_of(p, s);
    } else {
        names_of_two(s->path, other->path, names);
        char *text = format_text("What they are, and what they cost%s%s.", is_file(log) ? "; below, the training of " : "",
                                 is_file(log) ? names[0] : "");
        page_section(p, "card", "card", "The models", text);
        free(text);
        page_open(p, "models", '[');
        for (int k = 0; k < 2; k++) {
            page_open(p, NULL, '{');
            page_text(p, "name", names[k]);
            rows_of(p, k ? other : s);
            page_close(p, '}');
            free(names[k]);
        }
        page_close(p, ']');
    }
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
    if (note_refusal(s, ov ? "The tables OV of heads are left out" : "The tables QK of some heads are left out")) return;
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

/* How well a text begins with token k of the held-out part: after the mark of an end or a beginning 3, after the end of a
   sentence 2, with a word 1, else 0. The mark before the whole part says nothing: it may be cut within a word. */
static int quality_of_beginning(const subject *s, int64_t k)
{
    const tn_tokenizer *t = s->m.tokenizer;
    const int32_t      *ids = s->run.held, last = k ? ids[k - 1] : -1;
    if (k > 1 && t && (last == tn_tokenizer_bos(t) || last == tn_tokenizer_eos(t))) return 3;
    if (!begins_word(s, ids[k])) return 0;
    const size_t n = k ? strlen(s->names[last]) : 0;
    return n && strchr(".!?\n", s->names[last][n - 1]) ? 2 : k ? 1 : 0;
}

/* The first of the best places where a text of n tokens can begin, with one after it. */
static int64_t place_of_beginning(const subject *s, int64_t n)
{
    int64_t best = 0;
    int     most = 0;
    for (int64_t k = 0; k + n < s->run.held_count && most < 3; k++) {
        const int quality = quality_of_beginning(s, k);
        if (quality > most) most = quality, best = k;
    }
    return best;
}

/* The text that patterns and paths are of: given, or the beginning of a text or sentence of the held-out part, up to a place
   where a word follows; a text of the program's own without it. NULL: none. */
static char *text_to_read(const subject *s)
{
    size_t         bytes;
    buffer         b = {0};
    const int64_t  all = s->has_run ? s->run.held_count : 0;
    const int32_t *ids = s->run.held;
    int64_t        n = TEXT_TOKENS - 1 < s->m.desc.context - 1 ? TEXT_TOKENS - 1 : s->m.desc.context - 1;
    if (look_settings.text) return copy_text(look_settings.text);
    if (all < 2 || n < 1) {
        if (!s->m.tokenizer || s->m.desc.context < TEXT_TOKENS) return NULL;
        page_note("The run's text is not here, so the page begins with a text of its own (--text TEXT chooses another one).");
        return copy_text("Once upon a time");
    }
    const int64_t first = place_of_beginning(s, n);
    if (n > all - first) n = all - first;
    for (int64_t k = n; k > n / 2; k--) if (first + k < all && is_whole_word(s, ids[first + k])) { n = k; break; }
    if (s->m.tokenizer) return decode_tokens(s->m.tokenizer, ids + first, n, &bytes);
    for (int64_t k = 0; k < n; k++) buffer_print(&b, k ? " %d" : "%d", (int)ids[first + k]);
    return b.data;
}

char *read_for_page(tn_ctx *ctx, model *m, const char *folder, char **file)
{
    const char *given = circuit_settings.tokenizer;
    char       *bad = NULL, *why = read_foreign(ctx, m, folder, NULL, file, given ? NULL : &bad);
    if (bad) {
        char *plain = plain_reason(bad);
        page_note("The tokenizer of %s is left out because %s%s.", file_name(folder), plain,
                  folder == look_settings.against ? "" : ": tokens are shown by their numbers");
        free(plain);
    }
    if (!why && given) {
        m->tokenizer = open_tokenizer(ctx, given);
        if (tn_tokenizer_count(m->tokenizer) > m->desc.vocab) check_vocabulary(m->tokenizer, given, m->desc.vocab);
    }
    free(bad);
    return why;
}

/* Opens the model of --against in the context of the first one, whose names and text it shares. Returns false if --against is
   not given. */
static bool open_other(const subject *s, subject *other)
{
    const char *path = look_settings.against;
    model       b;
    *other = *s;
    if (!path) return false;
    char *type = is_folder(path) ? foreign_type(path) : NULL, *why = NULL;
    if (type) why = read_for_page(s->m.ctx, &b, path, &other->file);
    else open_model_in(s->m.ctx, &b, path, circuit_settings.tokenizer, &other->file);
    if (why) fail("%s", why);
    free(type);
    check_finite(&b, path);
    if (b.desc.vocab != s->m.desc.vocab)
        fail("%s has a vocabulary of %lld tokens, expected %lld, that of %s", path, (long long)b.desc.vocab,
             (long long)s->m.desc.vocab, s->path);
    check_names(s, &b, path);
    other->m = b;
    other->path = path;
    return true;
}

/* What the page says before its sections. second: NULL: one model. */
static void put_names(page *p, const subject *s, const subject *second)
{
    const int64_t V = s->m.desc.vocab;
    about_model(p, s, second);
    if (second) {
        char *names[2];
        names_of_two(s->path, second->path, names);
        page_text(p, "first", names[0]);            /* of which the sections are that are of one model */
        free(names[0]);
        free(names[1]);
    }
    page_open(p, "names", '{');
    page_names(p, "tokens", s->names, V);
    page_names(p, "outputs", s->names, 0);
    page_open(p, "common", '[');
    for (int64_t i = 0; i < V && i < HEAD_TOKENS; i++) page_text(p, NULL, s->names[s->common[i]]);
    page_close(p, ']');
    page_close(p, '}');
}

void look_at_model(const char *path, const model *read, char *file, const char *title, const char *out)
{
    subject  s, other;
    page     p;
    buffer   pairs = {0};
    int32_t *ids = NULL;
    int64_t  T = 0;
    look_is_of(LOOK_LANGUAGE);
    if (read) adopt_subject(&s, path, read, file);
    else open_subject(&s, path, true);
    check_not_inputs("out", look_settings.out, "the text of the run", &train_settings.data);
    check_not_inputs("out", look_settings.out, "the text of the run", &train_settings.val);
    const subject *second = open_other(&s, &other) ? &other : NULL;
    page_begin(&p, "look", second ? "comparison" : "language", title);
    put_names(&p, &s, second);
    page_open(&p, "sections", '[');
    card_section(&p, &s, second);
    if (!note_nonfinite(&s.m)) {
        if (second) compare_models(&p, &s, &other.m, other.path);
        char *text = text_to_read(&s);
        if (text) T = text_tokens(&s, text, &ids);
        else page_note("The page has no text that it could begin with: --text TEXT gives it one.");
        if (!second) learnt_section(&p, &s, ids, T);
        else if (T) learnt_of_two(&p, &s, second, ids, T);
        heads_section(&p, &s, ids, T);
        block_sections(&p, &s, ids, T, &pairs);
        pairs_section(&p, &pairs);
        if (text) paths_section(&p, &s, text);
        if (is_folder(path)) time_section(&p, &s);
        page_close(&p, ']');
        put_evidence(&p, &s, ids, T);
        if (look_settings.live) live_part(&p, &s, second, text);
        free(text);
    } else page_close(&p, ']');
    page_write(&p, out, look_settings.out ? BY_USER : BY_NAME);
    free(ids);
    free(pairs.data);
    if (second) free(other.file);
    close_subject(&s);
}
