/* text.h - what the examples on language share: a text as tokens, its batches, training, the loss a token and a byte

   Included as program.h is. What is trained here is what `tn train` trains by default: the same tokens, model, optimiser,
   order of the text and reading of what is held out, so that losses can be compared (tests/studies.sh does).

   A text file is cut after 95 % of its bytes, at a mark's beginning where the cut falls into one; a WordPiece vocabulary is
   trained on the first part, the second is held out. "<|endoftext|>", where the text has it, ends a document: no word
   crosses it, the blanks around are dropped, and the next one begins with [BOS]. */
#ifndef EXAMPLES_TEXT_H
#define EXAMPLES_TEXT_H

#include "program.h"
#include "../../tools/tn/order.h"   /* splitmix64, window_start: the order in which `tn train` reads its text */

#define DEFAULT_TEXT "data/kjv/kjv.txt"
#define DOCUMENT_END "<|endoftext|>"
#define HELD_OUT     0.05           /* of the bytes, the last                       */

/* The recipe of tools/tn/settings.c and train.c. RECIPE goes up when a number here, or what it means, changes: what was
   trained by another is then not mixed in. */
enum { RECIPE = 2, WARMUP = 20 };
#define RATE         0.02           /* Muon's, of the matrices                              */
#define ADAM_SHARE   0.5            /* AdamW's of it, for head and vectors                  */
#define EMBED_SHARE  15             /* of AdamW's the embedding's, for a table of size 1    */
#define SETTLE       0.5            /* of a run's steps, the last: the rate decreases       */
#define SMALL_LOOK   16384          /* tokens of the held-out part, on the way              */

/* ---- a text, in tokens --------------------------------------------------------- */

typedef struct tokens {
    int32_t *id;                    /* [count]                                     */
    int64_t  count, max;
    double   bytes;                 /* of the documents                            */
    double   unknown;               /* of them, which an [UNK] replaces            */
} tokens;

typedef struct corpus {
    tn_tokenizer *tokenizer;
    tokens        train, held;
    int64_t       bytes;            /* of the file                        */
    bool          marks;            /* it has some                        */
} corpus;

static inline void *grown(void *p, int64_t count, size_t each)
{
    p = realloc(p, (size_t)(count > 0 ? count : 1) * each);
    if (!p) stop("no memory for the text");
    return p;
}

static inline char *read_text(const char *path, int64_t *bytes)
{
    FILE   *f = fopen(path, "rb");
    char   *text = NULL;
    int64_t max = 0;
    size_t  n;
    if (!f) {
        fprintf(stderr, PROGRAM ": cannot open %s%s\n", path,
                strcmp(path, DEFAULT_TEXT) ? "" : "; this gets it: sh examples/get_data.sh kjv");
        exit(1);
    }
    *bytes = 0;
    do {
        if (*bytes == max) text = grown(text, max = max ? 2 * max : 1 << 20, 1);
        n = fread(text + *bytes, 1, (size_t)(max - *bytes), f);
        *bytes += (int64_t)n;
    } while (n > 0);
    if (ferror(f)) stop("the text cannot be read to its end");
    fclose(f);
    return text;
}

/* Where the first document of text [bytes] ends; *next is where the one after it begins. */
static inline int64_t document_end(const char *text, int64_t bytes, int64_t *next)
{
    const int64_t mark = (int64_t)strlen(DOCUMENT_END);
    const char   *at = text;
    while ((at = memchr(at, '<', (size_t)(text + bytes - at))) != NULL
           && (text + bytes - at < mark || memcmp(at, DOCUMENT_END, (size_t)mark))) at++;
    *next = at ? at - text + mark : bytes;
    return at ? at - text : bytes;
}

static inline bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static inline void append_document(tn_ctx *ctx, const tn_tokenizer *t, tokens *to, const char *text, int64_t bytes)
{
    int64_t  n = tn_tokenizer_encode(t, text, (size_t)bytes, TN_BOS_FIRST, NULL, 0, NULL);
    tn_span *span = grown(NULL, n, sizeof *span);
    check(ctx);
    if (to->count + n > to->max) {
        to->max = 2 * (to->count + n);
        to->id = grown(to->id, to->max, sizeof *to->id);
    }
    tn_tokenizer_encode(t, text, (size_t)bytes, TN_BOS_FIRST, to->id + to->count, n, span);
    check(ctx);
    for (int64_t i = 0; i < n; i++)
        if (to->id[to->count + i] == tn_tokenizer_unk(t)) to->unknown += (double)(span[i].end - span[i].begin);
    to->count += n;
    to->bytes += (double)bytes;
    free(span);
}

/* A text without marks is one document, blanks and all. */
static inline tokens encode_documents(tn_ctx *ctx, const corpus *c, const char *text, int64_t bytes)
{
    tokens  to = {0};
    int64_t next;
    for (; bytes > 0; text += next, bytes -= next) {
        int64_t from = 0;
        int64_t end = document_end(text, bytes, &next);
        while (c->marks && from < end && is_blank(text[from])) from++;
        while (c->marks && end > from && is_blank(text[end - 1])) end--;
        if (end > from) append_document(ctx, c->tokenizer, &to, text + from, end - from);
    }
    return to;
}

/* Where the held-out part begins: inside no character and no mark. */
static inline int64_t held_out_at(const char *text, int64_t bytes)
{
    const int64_t mark = (int64_t)strlen(DOCUMENT_END);
    int64_t       cut = bytes - (int64_t)(HELD_OUT * (double)bytes);
    while (cut > 0 && cut < bytes && ((unsigned char)text[cut] & 0xC0) == 0x80) cut--;
    for (int64_t from = cut > mark - 1 ? cut - mark + 1 : 0; from < cut && from + mark <= bytes; from++)
        if (!memcmp(text + from, DOCUMENT_END, (size_t)mark)) return from;
    return cut;
}

static inline corpus load_corpus(tn_ctx *ctx, const char *path, int64_t vocab, int64_t context)
{
    corpus  c = {0};
    char   *text = read_text(path, &c.bytes);
    int64_t cut = held_out_at(text, c.bytes), next;
    c.marks = document_end(text, c.bytes, &next) < c.bytes;
    c.tokenizer = tn_tokenizer_train(ctx, text, (size_t)cut, vocab, &(tn_tokenizer_train_desc){ .separator = DOCUMENT_END });
    check(ctx);
    c.train = encode_documents(ctx, &c, text, cut);
    c.held = encode_documents(ctx, &c, text + cut, c.bytes - cut);
    free(text);
    if (c.train.count <= context || c.held.count <= context) {
        fprintf(stderr, PROGRAM ": %s is too short: %lld tokens to train with and %lld held out, a context is %lld\n", path,
                (long long)c.train.count, (long long)c.held.count, (long long)context);
        exit(1);
    }
    return c;
}

static inline void free_corpus(corpus *c)
{
    free(c->train.id);
    free(c->held.id);
}

/* FNV-1a, by tokens and lengths: which text this is, and how it was cut into tokens. */
static inline uint64_t corpus_hash(const corpus *c)
{
    const tokens *part[2] = {&c->train, &c->held};
    uint64_t      hash = UINT64_C(1469598103934665603);
    for (int p = 0; p < 2; p++)
        for (int64_t i = -1; i < part[p]->count; i++)
            hash = (hash ^ (uint64_t)(i < 0 ? part[p]->count : part[p]->id[i])) * UINT64_C(1099511628211);
    return hash;
}

/* ---- a run of `tn train` ------------------------------------------------------ */

/* The model in a run's folder. Not trained: one of the same shape at its start, a control; its projections do not begin at
   0 then, because what adds nothing would be no control. */
static inline tn_transformer model_of_run(tn_ctx *ctx, const char *run, bool trained)
{
    char                path[600];
    tn_transformer_desc desc;
    tn_transformer      model;
    tn_params          *params = tn_params_create(ctx);
    snprintf(path, sizeof path, "%s/config.json", run);
    if (tn_transformer_config_read(ctx, tn_source_path(path), &desc) != TN_OK) check(ctx);
    if (!trained) desc.zero_out = desc.zero_head = false;
    if (tn_transformer_init(params, "", &desc, &model) != TN_OK) check(ctx);
    snprintf(path, sizeof path, "%s/model.safetensors", run);
    if (trained && tn_params_load(params, path) != TN_OK) check(ctx);
    return model;
}

static inline tn_tokenizer *tokenizer_of_run(tn_ctx *ctx, const char *run, const tn_transformer *model)
{
    char          path[600];
    tn_tokenizer *t;
    snprintf(path, sizeof path, "%s/tokenizer.json", run);
    if (!(t = tn_tokenizer_load(ctx, path))) check(ctx);
    if (tn_tokenizer_count(t) != model->desc.vocab) stop("the tokenizer of --run is not the model's");
    return t;
}

/* ---- batches --------------------------------------------------------------------- */

/* ids and targets, I32 [rows,length]: row r begins at token first[r] */
static inline void windows(tn_ctx *ctx, const tokens *t, const int64_t *first, int64_t rows, int64_t length,
                           tn_tensor *ids_targets[2])
{
    for (int i = 0; i < 2; i++) {
        ids_targets[i] = tn_tensor_2d(ctx, TN_I32, rows, length);
        check(ctx);
        for (int64_t r = 0; r < rows; r++) tn_write(tn_slice(ids_targets[i], 0, r, r + 1), TN_I32, t->id + first[r] + i, length);
    }
}

/* What a step of a seed learns from: nothing else decides it, so runs of one seed see the same text in the same order. */
static inline void training_batch(tn_ctx *ctx, const tokens *t, uint64_t seed, int64_t step, int64_t rows, int64_t length,
                                  tn_tensor *ids_targets[2])
{
    int64_t *first = grown(NULL, rows, sizeof *first);
    for (int64_t r = 0; r < rows; r++) first[r] = window_start(t->count, length, seed, step * rows + r);
    windows(ctx, t, first, rows, length, ids_targets);
    free(first);
}

/* ---- the model and its training -------------------------------------------------------------------- */

/* A bilinear MLP and softmax attention, which the examples vary. Queries and keys are normalised, so that a score is at most
   1 in size; nothing writes to the residual stream at first. */
static inline tn_transformer_desc usual_model(int64_t vocab, int64_t context, int64_t dim, int64_t heads, int64_t layers)
{
    return (tn_transformer_desc){ .vocab = vocab, .context = context, .dim = dim, .heads = heads, .layers = layers,
                                  .qk_norm = true, .no_norm_gain = true, .embed_norm = true, .init = TN_INIT_NORMAL,
                                  .zero_out = true, .zero_head = true };
}

typedef struct lesson {
    tn_params            *params;
    const tn_transformer *model;
    const corpus         *text;
    int64_t               steps, batch, context;
    uint64_t              seed;     /* of the order of the text                                              */
    double                lr;       /* Muon's                                     */
} lesson;

/* The first step at which the learning rate falls in a training run of `steps`. */
static inline int64_t settles_at(int64_t steps) { return steps - (int64_t)(SETTLE * (double)steps); }

/* The embedding's rate over AdamW's: a row has gradients in few steps, so it takes longer ones, by the table's size. */
static inline double embedding_share(const tn_tensor *table)
{
    int64_t n = tn_tensor_count(table);
    double *w = grown(NULL, n, sizeof *w), sum = 0;
    tn_read(table, TN_F64, w, n);
    for (int64_t i = 0; i < n; i++) sum += w[i] * w[i];
    free(w);
    return EMBED_SHARE * sqrt(sum / (double)n);
}

/* What the first step of a lesson begins with; must be called before its first optimiser is made. */
static inline void lesson_begin(const lesson *l)
{
    tn_params_set_scales(l->params, "embed.w", embedding_share(l->model->embed.w), 1);
}

/* Muon and AdamW for a training run that ends after `steps`, perhaps before the lesson does: until it settles that is no
   difference. A warm-up of an eighth of the lesson at most is over before even a quarter of it settles. */
static inline tn_optim *lesson_optim(const lesson *l, int64_t steps)
{
    return tn_optim_create(l->params, &(tn_optim_desc){
        .kind = TN_OPTIM_MUON, .lr = l->lr, .adam_lr = ADAM_SHARE * l->lr, .beta2 = 0.95, .clip_norm = 1,
        .schedule = { .kind = TN_SCHEDULE_TRAPEZOID, .warmup = l->steps / 8 < WARMUP ? l->steps / 8 : WARMUP, .total = steps,
                      .decay = steps - settles_at(steps) } });
}

/* The next step of this optimiser; its loss, nats a token. NaN where a gradient was no number: nothing was updated. */
static inline double lesson_step(tn_ctx *ctx, const lesson *l, tn_optim *optim)
{
    tn_tensor *batch[2];
    tn_ctx_reset(ctx);
    training_batch(ctx, &l->text->train, l->seed, tn_optim_step_count(optim), l->batch, l->context, batch);
    tn_record(ctx);
    tn_tensor *loss = tn_transformer_loss(ctx, l->model, batch[0], batch[1]);
    if (tn_backward(ctx, loss) == TN_OK && tn_optim_step(optim) == TN_OK) return tn_item(loss);
    if (tn_ctx_status(ctx) != TN_ERR_NONFINITE) stop(tn_ctx_error(ctx));
    tn_ctx_clear_error(ctx);
    return NAN;
}

/* ---- reading the held-out part ------------------------------------------------------ */

typedef struct reading {
    double token;                   /* nats a token                                                      */
    double byte;                    /* nats a byte of the text, ln 256 for every byte that an [UNK] hides */
} reading;

/* How many windows of so many tokens are read at once. */
static inline int64_t at_once(const tn_transformer *model, int64_t length)
{
    int64_t n = ((int64_t)1 << 22) / (length * model->desc.vocab);
    return n > 16 ? 16 : n > 0 ? n : 1;
}

/* The sums of -log p over each of `parts` parts of the last `scored` tokens of windows of `length` tokens, which begin every
   `stride` tokens from `first`. */
static inline void window_nats(tn_ctx *ctx, const tn_transformer *model, const tokens *t, int64_t first, int64_t stride,
                               int64_t count, int64_t length, int64_t scored, int parts, double *nats)
{
    int64_t    begins[16];
    tn_tensor *batch[2];
    for (int64_t i = 0; i < count; i++) begins[i] = first + i * stride;
    tn_ctx_reset(ctx);
    windows(ctx, t, begins, count, length, batch);
    tn_tensor *logits = tn_transformer_forward(ctx, model, batch[0]);
    for (int p = 0; p < parts; p++) {
        int64_t from = length - scored + scored * p / parts, to = length - scored + scored * (p + 1) / parts;
        nats[p] += (double)(count * (to - from))
            * tn_item(tn_cross_entropy(ctx, tn_slice(logits, 1, from, to), tn_slice(batch[1], 1, from, to)));
    }
    check(ctx);
}

/* nats a token to nats a byte */
static inline double per_byte(const tokens *t, double nats)
{
    return (nats * (double)(t->count - 1) + log(256) * t->unknown) / t->bytes;
}

/* The first `most` tokens that can be told, each once. Windows overlap by half, and of each the second half counts, of the
   first one all: so every token has half a context before it, but for the first ones of the text. */
static inline reading read_held_out(tn_ctx *ctx, const tn_transformer *model, const tokens *t, int64_t length, int64_t most)
{
    const int64_t n = t->count - 1 < most ? t->count - 1 : most, T = length < n ? length : n, half = T > 1 ? T / 2 : 1;
    const int64_t group = at_once(model, T);
    int64_t       at, count;
    double        nats = 0;
    reading       r;
    window_nats(ctx, model, t, 0, 1, 1, T, T, 1, &nats);
    for (at = T; n - at >= half; at += count * half) {
        count = (n - at) / half < group ? (n - at) / half : group;
        window_nats(ctx, model, t, at + half - T, half, count, T, half, 1, &nats);
    }
    if (at < n) window_nats(ctx, model, t, n - T, 1, 1, T, n - at, 1, &nats);
    r.token = nats / (double)n;
    r.byte = per_byte(t, r.token);
    return r;
}

/* nats a token of each part, first to last, of windows of `length` tokens one after the other */
static inline void read_parts(tn_ctx *ctx, const tn_transformer *model, const tokens *t, int64_t length, int parts,
                              double *nats)
{
    const int64_t all = (t->count - 1) / length, group = at_once(model, length);
    int64_t       count;
    for (int p = 0; p < parts; p++) nats[p] = 0;
    for (int64_t w = 0; w < all; w += count) {
        count = all - w < group ? all - w : group;
        window_nats(ctx, model, t, w * length, length, count, length, length, parts, nats);
    }
    for (int p = 0; p < parts; p++) nats[p] /= (double)(all * (length * (p + 1) / parts - length * p / parts));
}

/* ---- writing --------------------------------------------------------------------- */

/* Goes on after a prompt, up to `most` tokens or the end of the document. */
static inline char *write_on(tn_ctx *ctx, const tn_transformer *model, const corpus *c, const char *prompt, int64_t most,
                             double temperature, int64_t top_k, uint64_t seed)
{
    const tn_tokenizer *t = c->tokenizer;
    int64_t  vocab = tn_tokenizer_count(t), past = tn_tokenizer_encode(t, prompt, strlen(prompt), c->marks ? TN_BOS_FIRST
                                                                       : TN_BOS_NONE, NULL, 0, NULL);
    int32_t *ids = grown(NULL, past + most, sizeof *ids);
    float   *logits = grown(NULL, vocab, sizeof *logits);
    tn_transformer_cache *cache = tn_transformer_cache_create(ctx, model, 1, past + most);
    check(ctx);
    tn_tokenizer_encode(t, prompt, strlen(prompt), c->marks ? TN_BOS_FIRST : TN_BOS_NONE, ids, past, NULL);
    int64_t n = past;
    for (int64_t given = 0; n < past + most; n++) {
        tn_ctx_reset(ctx);
        tn_tensor *in = tn_tensor_2d(ctx, TN_I32, 1, n - given);
        tn_write(in, TN_I32, ids + given, n - given);
        tn_tensor *out = tn_transformer_decode(ctx, model, in, cache);
        check(ctx);
        tn_read(tn_slice(out, 1, n - given - 1, n - given), TN_F32, logits, vocab);
        given = n;
        double u = ldexp((double)(splitmix64(splitmix64(seed) + (uint64_t)n) >> 11), -53);
        ids[n] = (int32_t)tn_sample(logits, vocab, temperature, top_k, 0, u);
        if (ids[n] == tn_tokenizer_bos(t) || ids[n] == tn_tokenizer_eos(t)) break;
    }
    tn_transformer_cache_destroy(cache);
    int64_t bytes = tn_tokenizer_decode(t, ids, n, NULL, 0);
    char   *text = grown(NULL, bytes + 1, 1);
    tn_tokenizer_decode(t, ids, n, text, (size_t)bytes + 1);
    check(ctx);
    free(ids);
    free(logits);
    return text;
}

#endif
