/* text.h - what the examples on language share: a text as tokens, its batches, training, the loss a token and a byte

   Included as program.h is. A text file is cut after 95 % of its bytes; a WordPiece vocabulary is trained on the first part,
   the second is held out. "<|endoftext|>", where the text has it, ends a document: no word crosses it, and the next one
   begins with [BOS]. */
#ifndef EXAMPLES_TEXT_H
#define EXAMPLES_TEXT_H

#include "program.h"

#define DEFAULT_TEXT "data/kjv/kjv.txt"
#define DOCUMENT_END "<|endoftext|>"
#define HELD_OUT     0.05           /* of the bytes, the last                       */
#define SETTLE       0.5            /* of a run's steps, the last: the rate goes down */
#define WINDOWS      16             /* read at once where nothing is trained, if they are not long */
#define MAX_PARTS    8

/* ---- a text, in tokens --------------------------------------------------------- */

typedef struct tokens {
    int32_t *id;                    /* [count]                                                              */
    int32_t *bytes;                 /* [count] of the text, since the end of the token before               */
    int32_t *hidden;                /* [count] of them, which an [UNK] does not tell; 0 for every other token */
    int64_t  count, room;
} tokens;

typedef struct corpus {
    tn_tokenizer *tokenizer;
    tokens        train, held;
    int64_t       bytes;            /* of the file                        */
    bool          marks;            /* it has some, and so there are [BOS] */
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
    int64_t room = 0;
    size_t  n;
    if (!f) {
        fprintf(stderr, PROGRAM ": cannot open %s%s\n", path,
                strcmp(path, DEFAULT_TEXT) ? "" : "; this gets it: sh examples/get_data.sh kjv");
        exit(1);
    }
    *bytes = 0;
    do {
        if (*bytes == room) text = grown(text, room = room ? 2 * room : 1 << 20, 1);
        n = fread(text + *bytes, 1, (size_t)(room - *bytes), f);
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

static inline void append_document(tn_ctx *ctx, const corpus *c, tokens *to, const char *text, int64_t bytes)
{
    const tn_tokenizer *t = c->tokenizer;
    int64_t  n = tn_encode(t, text, (size_t)bytes, c->marks, NULL, 0, NULL), i, end = 0;
    tn_span *span = grown(NULL, n, sizeof *span);
    check(ctx);
    if (to->count + n > to->room) {
        to->room = 2 * (to->count + n);
        to->id = grown(to->id, to->room, sizeof *to->id);
        to->bytes = grown(to->bytes, to->room, sizeof *to->bytes);
        to->hidden = grown(to->hidden, to->room, sizeof *to->hidden);
    }
    tn_encode(t, text, (size_t)bytes, c->marks, to->id + to->count, n, span);
    check(ctx);
    for (i = 0; i < n; i++, to->count++) {
        int64_t here = (int64_t)span[i].end > end ? (int64_t)span[i].end : end;
        to->bytes[to->count] = (int32_t)(here - end);
        to->hidden[to->count] = to->id[to->count] == tn_tokenizer_unk(t) ? (int32_t)(span[i].end - span[i].begin) : 0;
        end = here;
    }
    free(span);
}

static inline tokens encode_documents(tn_ctx *ctx, const corpus *c, const char *text, int64_t bytes)
{
    tokens  to = {0};
    int64_t end, next;
    for (; bytes > 0; text += next, bytes -= next) {
        end = document_end(text, bytes, &next);
        append_document(ctx, c, &to, text, end);
    }
    return to;
}

static inline corpus load_corpus(tn_ctx *ctx, const char *path, int64_t vocab, int64_t context)
{
    corpus  c = {0};
    char   *text = read_text(path, &c.bytes);
    int64_t cut = c.bytes - (int64_t)floor(HELD_OUT * (double)c.bytes), next;
    c.marks = document_end(text, c.bytes, &next) < c.bytes;
    while (cut > 0 && cut < c.bytes && ((unsigned char)text[cut] & 0xC0) == 0x80) cut--;      /* not inside a character */
    c.tokenizer = tn_tokenizer_train(ctx, text, (size_t)cut, vocab, &(tn_tokenizer_desc){ .separator = DOCUMENT_END });
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
    tokens *t[2] = {&c->train, &c->held};
    int     i;
    for (i = 0; i < 2; i++) {
        free(t[i]->id);
        free(t[i]->bytes);
        free(t[i]->hidden);
    }
}

/* ---- batches --------------------------------------------------------------------- */

/* Steele, Lea & Flood 2014 */
static inline uint64_t splitmix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* ids and targets, I32 [rows,length]: row r begins at token first[r] */
static inline void windows(tn_ctx *ctx, const tokens *t, const int64_t *first, int64_t rows, int64_t length,
                           tn_tensor *ids_targets[2])
{
    int64_t r;
    int     i;
    for (i = 0; i < 2; i++) {
        ids_targets[i] = tn_tensor_2d(ctx, TN_I32, rows, length);
        check(ctx);
        for (r = 0; r < rows; r++) tn_write(tn_slice(ids_targets[i], 0, r, r + 1), TN_I32, t->id + first[r] + i, length);
    }
}

/* What a step of a seed learns from: nothing else decides it, so runs of one seed see the same text in the same order. */
static inline void training_batch(tn_ctx *ctx, const tokens *t, uint64_t seed, int64_t step, int64_t rows, int64_t length,
                                  tn_tensor *ids_targets[2])
{
    const uint64_t at_step = splitmix(splitmix(seed) + (uint64_t)step);
    int64_t *first = grown(NULL, rows, sizeof *first), r;
    for (r = 0; r < rows; r++)
        first[r] = (int64_t)(splitmix(at_step + (uint64_t)r) % (uint64_t)(t->count - length));
    windows(ctx, t, first, rows, length, ids_targets);
    free(first);
}

/* ---- the model and its training -------------------------------------------------------------------- */

/* A bilinear MLP and softmax attention, which the examples vary. Queries and keys are normalised, so that a score is at most
   1 in size; nothing writes to the residual stream at first. */
static inline tn_transformer_desc usual_model(int64_t vocab, int64_t context, int64_t dim, int64_t heads, int64_t layers)
{
    return (tn_transformer_desc){ .vocab = vocab, .context = context, .dim = dim, .heads = heads, .layers = layers,
                                  .qk_norm = true, .no_gain = true, .embed_norm = true,
                                  .zero_out = true, .zero_head = true };
}

typedef struct lesson {
    tn_params            *params;
    const tn_transformer *model;
    const corpus         *text;
    int64_t               steps, batch, context;
    uint64_t              seed;     /* of the order of the text                                              */
    double                lr;       /* Muon's, of the matrices; a fifth of it is AdamW's, of embedding, head and vectors */
} lesson;

/* The step from which on the rate goes down where a training ends after `steps`. */
static inline int64_t settles_at(int64_t steps) { return steps - (int64_t)(SETTLE * (double)steps); }

/* Muon and AdamW for a training that ends after `steps`, perhaps before the lesson does: until it settles that is no
   difference. */
static inline tn_optim *lesson_optim(const lesson *l, int64_t steps)
{
    const int64_t warmup = l->steps < 320 ? l->steps / 16 : 20;
    return tn_optim_create(l->params, &(tn_optim_desc){
        .kind = TN_MUON, .lr = l->lr, .adam_lr = l->lr / 5, .beta2 = 0.95, .clip_norm = 1,
        .schedule = { .kind = TN_SCHEDULE_TRAPEZOID, .warmup = warmup, .total = steps,
                      .decay = steps - settles_at(steps) } });
}

/* The next step of this optimiser; its loss, nats a token. NaN where a gradient was no number: nothing was updated. */
static inline double lesson_step(tn_ctx *ctx, const lesson *l, tn_optim *optim)
{
    tn_tensor *batch[2], *loss;
    tn_ctx_reset(ctx);
    training_batch(ctx, &l->text->train, l->seed, tn_optim_steps(optim), l->batch, l->context, batch);
    tn_record(ctx);
    loss = tn_transformer_loss(ctx, l->model, batch[0], batch[1]);
    if (tn_backward(ctx, loss) == TN_OK && tn_optim_step(optim) == TN_OK) return tn_item(loss);
    if (tn_ctx_status(ctx) != TN_ERR_NONFINITE) stop(tn_ctx_error(ctx));
    tn_ctx_clear_error(ctx);
    return NAN;
}

/* ---- reading the held-out part ------------------------------------------------------ */

typedef struct reading {
    double token;                   /* nats a token                                                              */
    double byte;                    /* nats a byte of the text, ln 256 for every byte that an [UNK] hides         */
    double part[MAX_PARTS];         /* nats a token, of the windows' first tokens, second ... last, parts [parts] */
} reading;

/* Windows of `length` tokens one after the other, every `stride`-th of them: each token after the first is told once, from
   what its window holds before it. */
static inline reading read_held_out(tn_ctx *ctx, const tn_transformer *model, const tokens *t, int64_t length,
                                    int64_t stride, int parts)
{
    reading r = {0};
    double  bytes = 0, hidden = 0, seen = 0;
    int64_t count = ((t->count - 1) / length + stride - 1) / stride, most = WINDOWS * 128 / length + 1, w, i, n;
    int64_t first[WINDOWS * 128 + 1];
    int     p;
    for (w = 0; w < count; w += n) {
        tn_tensor *batch[2], *logits;
        n = count - w < most ? count - w : most;
        for (i = 0; i < n; i++) first[i] = (w + i) * stride * length;
        tn_ctx_reset(ctx);
        windows(ctx, t, first, n, length, batch);
        logits = tn_transformer_forward(ctx, model, batch[0]);
        for (p = 0; p < parts; p++) {
            int64_t from = length * p / parts, to = length * (p + 1) / parts;
            double  loss = tn_item(tn_cross_entropy(ctx, tn_slice(logits, 1, from, to), tn_slice(batch[1], 1, from, to)));
            r.part[p] += loss * (double)n;
            r.token += loss * (double)(n * (to - from));
        }
        check(ctx);
        for (i = 0; i < n * length; i++) {
            bytes += t->bytes[first[i / length] + 1 + i % length];
            hidden += t->hidden[first[i / length] + 1 + i % length];
        }
        seen += (double)(n * length);
    }
    r.byte = (r.token + log(256) * hidden) / bytes;
    r.token /= seen;
    for (p = 0; p < parts; p++) r.part[p] /= (double)count;
    return r;
}

/* ---- writing --------------------------------------------------------------------- */

/* Goes on after a prompt, up to `most` tokens or the end of the document. */
static inline char *write_on(tn_ctx *ctx, const tn_transformer *model, const corpus *c, const char *prompt, int64_t most,
                             double temperature, int64_t top_k, uint64_t seed)
{
    const tn_tokenizer *t = c->tokenizer;
    int64_t  vocab = tn_tokenizer_count(t), past = tn_encode(t, prompt, strlen(prompt), c->marks, NULL, 0, NULL);
    int64_t  n, given, bytes;
    int32_t *ids = grown(NULL, past + most, sizeof *ids);
    float   *logits = grown(NULL, vocab, sizeof *logits);
    char    *text;
    tn_transformer_cache *cache = tn_transformer_cache_create(ctx, model, 1, past + most);
    check(ctx);
    tn_encode(t, prompt, strlen(prompt), c->marks, ids, past, NULL);
    for (n = past, given = 0; n < past + most; n++) {
        tn_tensor *in, *out;
        double     u;
        tn_ctx_reset(ctx);
        in = tn_tensor_2d(ctx, TN_I32, 1, n - given);
        tn_write(in, TN_I32, ids + given, n - given);
        out = tn_transformer_decode(ctx, model, in, cache);
        check(ctx);
        tn_read(tn_slice(out, 1, n - given - 1, n - given), TN_F32, logits, vocab);
        given = n;
        u = ldexp((double)(splitmix(splitmix(seed) + (uint64_t)n) >> 11), -53);
        ids[n] = (int32_t)tn_sample(logits, vocab, temperature, top_k, 0, u);
        if (ids[n] == tn_tokenizer_bos(t) || ids[n] == tn_tokenizer_eos(t)) break;
    }
    tn_transformer_cache_destroy(cache);
    bytes = tn_decode(t, ids, n, NULL, 0);
    text = grown(NULL, bytes + 1, 1);
    tn_decode(t, ids, n, text, (size_t)bytes + 1);
    check(ctx);
    free(ids);
    free(logits);
    return text;
}

#endif
