/* runs.h - one text for many transformers: variants x learning rates x seeds, several at once, compared

   Included after text.h. A study trains every variant at each of three learning rates on seed 1, takes the rate that reads
   the held-out part best, and trains that one on the other seeds: one seed, one text in one order, for every variant. Each
   training is a process of its own with one thread and leaves one file when it has ended. A study that was stopped goes on
   with what is missing; one that has everything only prints.

   A training gives three points, not one. On the way, at a quarter and at half of its tokens, a copy of it lets its learning
   rate go down as the whole one does at its end. So "after fewer tokens", "after as many seconds" and "after as many
   operations" always speak of a finished model. */
#ifndef EXAMPLES_RUNS_H
#define EXAMPLES_RUNS_H

#include "text.h"
#ifndef _WIN32
#include <sys/wait.h>
#endif

enum { MAX_VARIANTS = 24, RATES = 3, MAX_SEEDS = 9, POINTS = 3, MAX_CURVE = 64, READINGS = 30, STRIDE = 4, QUARTERS = 4,
       FAR = 4, MAX_JOBS = 64 };

typedef struct variant {
    const char         *name;
    tn_transformer_desc desc;
    bool                far;        /* is read at FAR times the context, too */
    int64_t             params;
    double              flops;      /* of training, a token                  */
} variant;

typedef struct training {           /* of one variant, rate and seed: what its file says */
    const variant *variant;
    double   rate;
    uint64_t seed;
    char     path[600];
    bool     there;
    double   token[POINTS], byte[POINTS];     /* nats, held out, after a quarter, half and all of the tokens          */
    double   seconds;                         /* of one processor, a trained token                                    */
    double   speed;                           /* tokens a second, written one after the other                         */
    double   far[2][QUARTERS];                /* a token, quarters of FAR contexts: as trained, without row scale */
    int      curve;
    double   curve_tokens[MAX_CURVE], curve_loss[MAX_CURVE];
} training;

typedef struct study {
    const char *data, *out;
    int64_t     tokens, batch, context, dim, heads, layers, vocab, seeds, jobs;
    double      rate[RATES];
    bool        quick;
    double      started;
    corpus      text;
    tn_ctx     *ctx;                          /* of the text and the pictures     */
    int64_t     process;                      /* its number; 0: everything in one */
    int         variants, rates;
    variant     variant[MAX_VARIANTS];
    training    tried[MAX_VARIANTS][RATES];   /* seed 1                           */
    training    run[MAX_VARIANTS][MAX_SEEDS]; /* at the best rate                 */
} study;

#define STUDY_FLAGS(s) \
    {"--data", FLAG_TEXT, &(s)->data, 0, 0, "a text file"}, \
    {"--tokens", FLAG_COUNT, &(s)->tokens, 1e4, 1e12, NULL}, \
    {"--batch", FLAG_COUNT, &(s)->batch, 1, 1e5, NULL}, \
    {"--context", FLAG_COUNT, &(s)->context, 2, 4096, NULL}, \
    {"--dim", FLAG_COUNT, &(s)->dim, 4, 4096, NULL}, \
    {"--heads", FLAG_COUNT, &(s)->heads, 1, 256, NULL}, \
    {"--layers", FLAG_COUNT, &(s)->layers, 1, 64, NULL}, \
    {"--vocab", FLAG_COUNT, &(s)->vocab, 300, 32768, NULL}, \
    {"--rate", FLAG_REAL, &(s)->rate[1], 1e-6, 1, NULL}, \
    {"--seeds", FLAG_COUNT, &(s)->seeds, 1, MAX_SEEDS, NULL}, \
    {"--jobs", FLAG_COUNT, &(s)->jobs, 1, MAX_JOBS, NULL}, \
    {"--out", FLAG_TEXT, &(s)->out, 0, 0, "a folder"}, \
    {"--quick", FLAG_SWITCH, &(s)->quick, 0, 0, "a minute: small models, few tokens, one rate, two seeds"}

static inline study *study_create(const char *out)
{
    study *s = grown(NULL, 1, sizeof *s);
    memset(s, 0, sizeof *s);
    s->started = now();
    s->data = DEFAULT_TEXT;
    s->out = out;
    s->tokens = 6000000;
    s->batch = 16;
    s->context = 128;
    s->dim = 128;
    s->heads = 2;
    s->layers = 1;
    s->vocab = 1024;
    s->seeds = 3;
    s->jobs = 2;
    s->rates = RATES;
    s->rate[1] = 0.02;
    return s;
}

/* After the flags: the text. */
static inline void study_open(study *s)
{
    char    folder[512], why[256];
    tn_desc desc = { .threads = 1 };
    if (s->quick) {
        s->rates = 1;
        s->tokens = 65536;
        s->dim = 32;
        s->context = 32;
        if (s->seeds > 2) s->seeds = 2;
    }
    s->rate[0] = s->rates == 1 ? s->rate[1] : s->rate[1] / 2;
    s->rate[2] = 2 * s->rate[1];
    make_folder(s->out);
    snprintf(folder, sizeof folder, "%s/runs", s->out);
    make_folder(folder);
    if (tn_ctx_create(&s->ctx, &desc, why) != TN_OK) stop(why);
    s->text = load_corpus(s->ctx, s->data, s->vocab, FAR * s->context);
    printf("%s: %lld bytes, %lld tokens to train with, %lld held out\n", s->data, (long long)s->text.bytes,
           (long long)s->text.train.count, (long long)s->text.held.count);
}

static inline void study_destroy(study *s)
{
    free_corpus(&s->text);
    tn_ctx_destroy(s->ctx);
    free(s);
}

/* ---- variants ------------------------------------------------------------------------- */

/* What every variant changes. */
static inline tn_transformer_desc study_desc(const study *s)
{
    return usual_model(s->vocab, s->context, s->dim, s->heads, s->layers);
}

static inline int64_t params_at(tn_transformer_desc d, int64_t hidden)
{
    d.hidden = hidden;
    return tn_transformer_params(&d);
}

/* The MLP's width for `params` parameters, which are a line in it: a multiple of 8 where that is within 0.4 %. */
static inline int64_t fit_hidden(const tn_transformer_desc *d, int64_t params)
{
    int64_t each = params_at(*d, 2) - params_at(*d, 1), exact = (params - params_at(*d, 1) + each / 2) / each + 1;
    int64_t even = (exact + 4) / 8 * 8;
    if (exact < 1) stop("a variant has more parameters than the first one before it has an MLP");
    return even > 0 && fabs((double)(params_at(*d, even) - params)) < 0.004 * (double)params ? even : exact;
}

/* fit: as many parameters as the first variant has. */
static inline int study_add(study *s, const char *name, tn_transformer_desc desc, bool fit)
{
    variant *v = &s->variant[s->variants];
    if (s->variants == MAX_VARIANTS) stop("too many variants");
    if (fit && s->variants > 0) desc.hidden = fit_hidden(&desc, s->variant[0].params);
    v->name = name;
    if (tn_transformer_check(s->ctx, &desc, &v->desc) != TN_OK) stop(tn_ctx_error(s->ctx));
    v->params = tn_transformer_params(&v->desc);
    v->flops = 3 * tn_transformer_flops(&v->desc, s->context);
    return s->variants++;
}

/* ---- one training ------------------------------------------------------------------- */

static inline double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct pupil {              /* a training under way */
    const study   *study;
    training      *record;
    tn_ctx        *ctx;
    tn_params     *params;
    tn_transformer model;
    lesson         lesson;
    double         seconds;         /* of training alone, and the tokens in them */
    int64_t        tokens;
    bool           diverged;        /* its loss was no number in the end          */
} pupil;

static inline tn_optim *pupil_begin(pupil *p, const study *s, training *r)
{
    tn_desc   desc = { .threads = 1, .seed = r->seed };
    tn_optim *optim;
    char      why[256];
    memset(p, 0, sizeof *p);
    p->study = s;
    p->record = r;
    if (tn_ctx_create(&p->ctx, &desc, why) != TN_OK) stop(why);
    p->params = tn_params_create(p->ctx);
    tn_transformer_init(p->params, "", &p->model, &r->variant->desc);
    p->lesson = (lesson){ .params = p->params, .model = &p->model, .text = &s->text,
                          .steps = s->tokens / (s->batch * s->context), .batch = s->batch, .context = s->context,
                          .seed = r->seed, .lr = r->rate };
    optim = lesson_optim(&p->lesson, p->lesson.steps);
    check(p->ctx);
    return optim;
}

/* Trains up to step `to`; a training whose study was killed ends with it. */
static inline void advance(pupil *p, tn_optim *optim, int64_t to, bool draw)
{
    const lesson *l = &p->lesson;
    training     *r = p->record;
    int64_t       every = l->steps / READINGS > 0 ? l->steps / READINGS : 1;
    while (tn_optim_steps(optim) < to && !p->diverged) {
        double start = processor_seconds();
        p->diverged = !is_number(lesson_step(p->ctx, l, optim));
        p->seconds += processor_seconds() - start;
        p->tokens += l->batch * l->context;
        if (draw && tn_optim_steps(optim) % every == 0 && r->curve < MAX_CURVE) {
            r->curve_tokens[r->curve] = (double)(tn_optim_steps(optim) * l->batch * l->context);
            r->curve_loss[r->curve++] = read_held_out(p->ctx, l->model, &l->text->held, l->context, STRIDE, 1).token;
        }
#ifndef _WIN32
        if (p->study->process && getppid() != p->study->process) _exit(1);
#endif
    }
}

/* A copy goes on to step `end` and settles there; the original has then forgotten it. */
static inline void settle_copy(pupil *p, tn_optim *optim, int64_t end, int point)
{
    const lesson *l = &p->lesson;
    bool          last = end == l->steps;
    tn_optim     *copy = last ? optim : lesson_optim(l, end);
    size_t        bytes = 0;
    void         *before = NULL;
    reading       held_out;
    if (!last) {
        tn_checkpoint_write(optim, tn_to_memory(NULL, 0, &bytes), NULL, 0);
        before = grown(NULL, (int64_t)bytes, 1);
        tn_checkpoint_write(optim, tn_to_memory(before, bytes, &bytes), NULL, 0);
        tn_checkpoint_read(copy, tn_from_memory(before, bytes));
        check(p->ctx);
    }
    advance(p, copy, end, last);
    held_out = read_held_out(p->ctx, l->model, &l->text->held, l->context, 1, 1);
    p->record->token[point] = held_out.token;
    p->record->byte[point] = held_out.byte;
    if (!last) {
        tn_checkpoint_read(optim, tn_from_memory(before, bytes));
        tn_optim_destroy(copy);
        free(before);
        check(p->ctx);
    }
}

/* Tokens a second where each is the likeliest after those before it. */
static inline double writing_speed(tn_ctx *ctx, const tn_transformer *model, int32_t first, int64_t count)
{
    tn_transformer_cache *cache = tn_transformer_cache_create(ctx, model, 1, count);
    double  best = HUGE_VAL;
    int64_t i;
    int     trial;
    for (trial = 0; trial < 3; trial++) {
        double  start = processor_seconds();
        int32_t id = first;
        tn_transformer_cache_reset(cache);
        for (i = 0; i < count; i++) {
            tn_tensor *in;
            tn_ctx_reset(ctx);
            in = tn_tensor_2d(ctx, TN_I32, 1, 1);
            tn_write(in, TN_I32, &id, 1);
            tn_read(tn_argmax(ctx, tn_transformer_decode(ctx, model, in, cache)), TN_I32, &id, 1);
        }
        check(ctx);
        best = fmin(best, processor_seconds() - start);
    }
    tn_transformer_cache_destroy(cache);
    return (double)count / best;
}

/* At FAR times the context it was trained with; and, if its row scale begins to act only there, without it. */
static inline void read_far(pupil *p)
{
    training *r = p->record;
    const tn_attention_desc *d = &p->model.blocks[0].attn.desc;
    const bool scaled = d->kind != TN_ATTENTION_SOFTMAX && d->kind != TN_ATTENTION_DIFFERENTIAL
        && (d->row == TN_ROW_DEFAULT || d->row == TN_ROW_LENGTH);
    int64_t    i;
    int        way;
    for (way = 0; way < 2; way++) {
        reading far;
        for (i = 0; i < QUARTERS; i++) r->far[way][i] = NAN;
        if (!r->variant->far || p->diverged || (way == 1 && !scaled)) continue;
        for (i = 0; way == 1 && i < p->study->layers; i++) p->model.blocks[i].attn.desc.row = TN_ROW_NONE;
        far = read_held_out(p->ctx, &p->model, &p->study->text.held, FAR * p->study->context, 1, QUARTERS);
        memcpy(r->far[way], far.part, sizeof r->far[way]);
    }
}

static inline void train_one(const study *s, training *r)
{
    pupil     p;
    tn_optim *optim = pupil_begin(&p, s, r);
    int       point;
    for (point = 0; point < POINTS; point++) {
        int64_t end = p.lesson.steps >> (POINTS - 1 - point);
        advance(&p, optim, settles_at(end), true);
        if (!p.diverged) settle_copy(&p, optim, end, point);
        if (p.diverged) r->token[point] = r->byte[point] = HUGE_VAL;
    }
    r->seconds = p.seconds / (double)p.tokens;
    if (!p.diverged) r->speed = writing_speed(p.ctx, &p.model, s->text.held.id[0], 2 * s->context);
    read_far(&p);
    r->there = true;
    tn_ctx_destroy(p.ctx);
}

/* ---- its file: lines of a name and numbers; the last is "end" ------------------------------ */

static inline void settings_line(const study *s, const training *r, char *line, size_t bytes)
{
    const tn_transformer_desc *d = &r->variant->desc;
    snprintf(line, bytes, "settings: bytes %lld tokens %lld batch %lld context %lld "
             "dim %lld heads %lld layers %lld vocab %lld hidden %lld\n",
             (long long)s->text.bytes, (long long)s->tokens, (long long)s->batch, (long long)s->context,
             (long long)d->dim, (long long)d->heads, (long long)d->layers, (long long)d->vocab, (long long)d->hidden);
}

static inline void training_write(const study *s, const training *r)
{
    char  part[700], line[512];
    FILE *f;
    int   i;
    settings_line(s, r, line, sizeof line);
    snprintf(part, sizeof part, "%s.part", r->path);
    if (!(f = fopen(part, "w"))) stop("cannot write to the output folder");
    fputs(line, f);
    for (i = 0; i < POINTS; i++) fprintf(f, "point %.9g %.9g\n", r->token[i], r->byte[i]);
    for (i = 0; i < 2 * QUARTERS; i++) fprintf(f, "far %.9g\n", r->far[i / QUARTERS][i % QUARTERS]);
    fprintf(f, "cost %.9g %.9g\n", r->seconds, r->speed);
    for (i = 0; i < r->curve; i++) fprintf(f, "curve %.9g %.9g\n", r->curve_tokens[i], r->curve_loss[i]);
    fputs("end\n", f);
    if (fclose(f) != 0 || rename(part, r->path) != 0) stop("cannot write to the output folder");
}

static inline void training_read(const study *s, training *r)
{
    char  line[512], want[512];
    FILE *f = fopen(r->path, "r");
    int   points = 0, far = 0;
    if (!f) return;
    settings_line(s, r, want, sizeof want);
    if (!fgets(line, sizeof line, f) || strcmp(line, want)) {
        fprintf(stderr, PROGRAM ": %s is of other settings: remove it, or take another --out\n", r->path);
        exit(1);
    }
    r->curve = 0;
    while (!r->there && fgets(line, sizeof line, f)) {
        double a = 0, b = 0;
        int    n = sscanf(line, "%*s %lf %lf", &a, &b);
        r->there = !strncmp(line, "end", 3);
        if (n < 1) continue;
        if (!strncmp(line, "point", 5) && points < POINTS) r->token[points] = a, r->byte[points++] = b;
        else if (!strncmp(line, "far", 3) && far < 2 * QUARTERS) r->far[far / QUARTERS][far % QUARTERS] = a, far++;
        else if (!strncmp(line, "cost", 4)) r->seconds = a, r->speed = b;
        else if (!strncmp(line, "curve", 5) && r->curve < MAX_CURVE)
            r->curve_tokens[r->curve] = a, r->curve_loss[r->curve++] = b;
    }
    fclose(f);
}

static inline void training_make(const study *s, training *r, const variant *v, double rate, int seed)
{
    memset(r, 0, sizeof *r);
    r->variant = v;
    r->rate = rate;
    r->seed = (uint64_t)seed;
    snprintf(r->path, sizeof r->path, "%s/runs/%s_%g_%d.txt", s->out, v->name, rate, seed);
    training_read(s, r);
}

/* ---- all of them ---------------------------------------------------------------------------- */

static inline void say(const training *r, int done, int all, double since)
{
    printf("%3d of %d  %-24s rate %-6g seed %llu: %.4f nats a token, %.4f a byte  %6.0f s\n", done, all, r->variant->name,
           r->rate, (unsigned long long)r->seed, r->token[POINTS - 1], r->byte[POINTS - 1], now() - since);
    fflush(stdout);
}

#ifdef _WIN32                       /* one after the other, in this process */
static inline void run_all(study *s, training **todo, int count)
{
    int i;
    for (i = 0; i < count; i++) {
        train_one(s, todo[i]);
        training_write(s, todo[i]);
        say(todo[i], i + 1, count, s->started);
    }
}
#else
static inline void run_all(study *s, training **todo, int count)
{
    pid_t pid[MAX_JOBS] = {0}, ended;
    int   of[MAX_JOBS], next = 0, done = 0, status, slot;
    s->process = getpid();
    while (done < count) {
        for (slot = 0; slot < s->jobs && next < count; slot++) {
            if (pid[slot]) continue;
            fflush(stdout);
            of[slot] = next++;
            if ((pid[slot] = fork()) < 0) stop("cannot start a process");
            if (pid[slot] > 0) continue;
            train_one(s, todo[of[slot]]);
            training_write(s, todo[of[slot]]);
            _exit(0);
        }
        if ((ended = wait(&status)) < 0 || status != 0)
            stop("a training failed; what has ended is kept, and the next start goes on from there");
        for (slot = 0; slot < s->jobs && pid[slot] != ended; slot++) { }
        if (slot == s->jobs) continue;
        pid[slot] = 0;
        training_read(s, todo[of[slot]]);
        say(todo[of[slot]], ++done, count, s->started);
    }
}
#endif

/* Seconds of one training of this variant, by four steps of it. */
static inline double probe(const study *s, const variant *v)
{
    const double besides = 1 + SETTLE * 0.75 + 0.08;      /* the copies that settle early, and the readings */
    pupil    p;
    training r = {0};
    double   seconds;
    tn_optim *optim;
    r.variant = v;
    r.rate = s->rate[0];
    optim = pupil_begin(&p, s, &r);
    advance(&p, optim, 1, false);                         /* memory is asked for */
    p.seconds = 0;
    p.tokens = 0;
    advance(&p, optim, 5, false);
    seconds = p.seconds / (double)p.tokens * (double)s->tokens * besides;
    tn_ctx_destroy(p.ctx);
    return seconds;
}

/* Seed 1 at the rate that served it best, and the same rate with the other seeds; how many of them are missing. */
static inline int choose_rate(study *s, int v)
{
    int i, best = 0, missing = 0;
    for (i = 1; i < s->rates; i++) if (s->tried[v][i].token[POINTS - 1] < s->tried[v][best].token[POINTS - 1]) best = i;
    s->run[v][0] = s->tried[v][best];
    for (i = 1; i < s->seeds; i++) {
        training_make(s, &s->run[v][i], &s->variant[v], s->run[v][0].rate, i + 1);
        missing += !s->run[v][i].there;
    }
    return missing;
}

static inline int add_missing(training *r, int64_t n, training **todo, int count)
{
    int64_t i;
    for (i = 0; i < n; i++) if (!r[i].there) todo[count++] = &r[i];
    return count;
}

/* Says how long it will take, then does it. */
static inline void study_run(study *s)
{
    training *todo[MAX_VARIANTS * MAX_SEEDS];
    double    seconds = 0;
    int       v, i, count = 0, all = 0;
    for (v = 0; v < s->variants; v++) {
        int missing;
        for (i = 0; i < s->rates; i++) training_make(s, &s->tried[v][i], &s->variant[v], s->rate[i], 1);
        missing = add_missing(s->tried[v], s->rates, todo, count) - count;
        count += missing;
        missing += missing ? (int)s->seeds - 1 : choose_rate(s, v);
        all += missing;
        if (missing) seconds += missing * probe(s, &s->variant[v]);
    }
    printf("%d trainings of %lld tokens to go, %lld at once: about %.1f minutes if that many processors are free\n", all,
           (long long)s->tokens, (long long)s->jobs, seconds / 60 / (double)s->jobs);
    run_all(s, todo, count);
    for (count = v = 0; v < s->variants; v++) {
        choose_rate(s, v);
        count = add_missing(s->run[v], s->seeds, todo, count);
    }
    run_all(s, todo, count);
}

/* ---- tables -------------------------------------------------------------------------------- */

typedef struct entry { int v; const char *label; } entry;         /* a variant, under the name of what it varies */
typedef struct estimate { double mean, error; } estimate;                 /* standard error, NaN of a single number      */

static inline estimate estimate_of(const double *x, int64_t n)
{
    estimate s = {0, 0};
    int64_t i;
    for (i = 0; i < n; i++) s.mean += x[i] / (double)n;
    for (i = 0; i < n; i++) s.error += (x[i] - s.mean) * (x[i] - s.mean);
    s.error = n > 1 ? sqrt(s.error / (double)(n * (n - 1))) : NAN;
    return s;
}

/* One seed has no error. */
static inline void print_estimate(estimate e)
{
    printf(" %9.4f", e.mean);
    if (is_number(e.error)) printf(" +-%.4f", e.error);
    else printf("%9s", "");
}

static inline double tokens_at(const study *s, int point)
{
    return (double)((s->tokens / (s->batch * s->context)) >> (POINTS - 1 - point)) * (double)(s->batch * s->context);
}

/* The loss after so many tokens, on a line between points over the logarithm of their tokens; NaN before the first. */
static inline double loss_after(const study *s, const training *r, double seen)
{
    int i;
    for (i = 1; i < POINTS; i++) {
        double share = log(seen / tokens_at(s, i - 1)) / log(tokens_at(s, i) / tokens_at(s, i - 1));
        if (share >= -1e-9 && share <= 1 + 1e-9) return r->token[i - 1] + share * (r->token[i] - r->token[i - 1]);
    }
    return NAN;
}

static inline double tokens_to(const study *s, const training *r, double loss)
{
    int i;
    for (i = 1; i < POINTS; i++)
        if (loss <= r->token[i - 1] && loss >= r->token[i])
            return tokens_at(s, i - 1) * pow(tokens_at(s, i) / tokens_at(s, i - 1),
                                             (r->token[i - 1] - loss) / (r->token[i - 1] - r->token[i] + 1e-300));
    return NAN;
}

/* What other work on the machine adds to a time differs from run to run, so the least stands for all. */
static inline double seconds_a_token(const study *s, int v)
{
    double  least = HUGE_VAL;
    int64_t i;
    for (i = 0; i < s->seeds; i++) least = fmin(least, s->run[v][i].seconds);
    for (i = 0; i < s->rates; i++) least = fmin(least, s->tried[v][i].seconds);
    return least;
}

static inline double speed_of(const study *s, int v)
{
    double  most = 0;
    int64_t i;
    for (i = 0; i < s->seeds; i++) most = fmax(most, s->run[v][i].speed);
    return most;
}

enum { LOSS, DIFFERENCE, BYTE, AT_SECONDS, AT_FLOPS, TOKENS_TO, COLUMNS };
static const char *const column_name[COLUMNS] = {"loss", "difference", "byte", "loss_equal_seconds", "loss_equal_flops",
    "tokens_to_loss"};

/* One axis: its first entry is what the others are compared with. Everything is a mean over seeds. */
static inline void study_table(const study *s, const char *axis, const entry *e, int entries)
{
    double  budget[COLUMNS] = {0}, value[MAX_SEEDS];
    estimate cell[MAX_VARIANTS][COLUMNS];
    int64_t k;
    int     i, c;
    budget[AT_SECONDS] = budget[AT_FLOPS] = HUGE_VAL;
    for (i = 0; i < entries; i++) {
        budget[AT_SECONDS] = fmin(budget[AT_SECONDS], seconds_a_token(s, e[i].v) * tokens_at(s, POINTS - 1));
        budget[AT_FLOPS] = fmin(budget[AT_FLOPS], s->variant[e[i].v].flops * tokens_at(s, POINTS - 1));
        for (k = 0; k < s->seeds; k++) {
            double loss = s->run[e[i].v][k].token[POINTS - 1];
            if (is_number(loss)) budget[TOKENS_TO] = fmax(budget[TOKENS_TO], loss);
        }
    }
    for (i = 0; i < entries; i++)
        for (c = 0; c < COLUMNS; c++) {
            for (k = 0; k < s->seeds; k++) {
                const training *r = &s->run[e[i].v][k];
                value[k] = c == LOSS ? r->token[POINTS - 1] : c == BYTE ? r->byte[POINTS - 1]
                         : c == DIFFERENCE ? r->token[POINTS - 1] - s->run[e[0].v][k].token[POINTS - 1]
                         : c == AT_SECONDS ? loss_after(s, r, budget[c] / seconds_a_token(s, e[i].v))
                         : c == AT_FLOPS ? loss_after(s, r, budget[c] / s->variant[e[i].v].flops)
                             : tokens_to(s, r, budget[c]);
            }
            cell[i][c] = estimate_of(value, s->seeds);
        }
    printf("\n%s: means and standard errors of %lld seed%s. Nats a token, held out, after %.0f tokens; minus that of %s,\n"
           "seed by seed; nats a byte; the loss when the quickest is done, after %.0f s, and after %.3g operations;\n"
           "tokens to a loss of %.4f; tokens written in a second\n"
           "%-24s %6s %8s %6s %18s %18s %18s %18s %18s %10s %8s\n", axis, (long long)s->seeds, s->seeds > 1 ? "s" : "",
               tokens_at(s, POINTS - 1),
           e[0].label, budget[AT_SECONDS], budget[AT_FLOPS], budget[TOKENS_TO], "", "hidden", "params", "rate", "loss",
               "difference", "a byte",
           "equal seconds", "equal operations", "tokens", "written");
    for (i = 0; i < entries; i++) {
        const variant *v = &s->variant[e[i].v];
        const estimate *l = cell[i];
        printf("%-24s %6lld %8lld %6g", e[i].label, (long long)v->desc.hidden, (long long)v->params, s->run[e[i].v][0].rate);
        for (c = 0; c < TOKENS_TO; c++) print_estimate(l[c]);
        printf(" %10.3g %8.0f\n", l[TOKENS_TO].mean, speed_of(s, e[i].v));
    }
    printf("\n");
    for (i = 0; i < entries; i++) {
        for (c = 0; c < COLUMNS; c++) {
            printf(c == TOKENS_TO ? "%s_%s_%s: %.0f\n" : "%s_%s_%s: %.4f\n", axis, e[i].label, column_name[c],
                   cell[i][c].mean);
            if (c == LOSS || c == DIFFERENCE)
                printf("%s_%s_%s_error: %.4f\n", axis, e[i].label, column_name[c], cell[i][c].error);
        }
        printf("%s_%s_training_tokens_per_second: %.0f\n", axis, e[i].label, 1 / seconds_a_token(s, e[i].v));
        printf("%s_%s_written_tokens_per_second: %.0f\n", axis, e[i].label, speed_of(s, e[i].v));
    }
}

/* Mean curves of an axis, and the points of its finished models. */
static inline void study_plot(const study *s, const char *axis, const char *title, const entry *e, int entries)
{
    tn_series series[2 * MAX_VARIANTS];
    double    mean[MAX_VARIANTS][MAX_CURVE], done[MAX_VARIANTS][POINTS], x[POINTS], low = HUGE_VAL, high = 0;
    char      path[600];
    tn_image *image;
    int       i, j;
    int64_t   k;
    memset(series, 0, sizeof series);
    for (j = 0; j < POINTS; j++) x[j] = tokens_at(s, j);
    for (i = 0; i < entries; i++) {
        const training *r = s->run[e[i].v];
        tn_series       line = { .name = e[i].label, .x = r[0].curve_tokens, .y = mean[i], .count = r[0].curve,
            .colour = i % 7 + 1, .dashed = i >= 7 };
        tn_series       points = { .x = x, .y = done[i], .count = POINTS, .kind = TN_SERIES_POINTS, .colour = i % 7 + 1 };
        memset(mean[i], 0, sizeof mean[i]);
        memset(done[i], 0, sizeof done[i]);
        for (k = 0; k < s->seeds; k++) {
            for (j = 0; j < r[0].curve; j++) mean[i][j] += r[k].curve_loss[j] / (double)s->seeds;
            for (j = 0; j < POINTS; j++) done[i][j] += r[k].token[j] / (double)s->seeds;
        }
        low = fmin(low, done[i][POINTS - 1]);
        high = fmax(high, mean[i][r[0].curve / 6]);
        series[2 * i] = line;
        series[2 * i + 1] = points;
    }
    image = tn_image_plot(s->ctx, series, 2 * entries, &(tn_plot_desc){ .title = title, .x_title = "tokens",
        .y_title = "held-out loss, nats a token",
        .caption = "points: models whose learning rate has gone down by then", .y_low = low - 0.05 * (high - low),
            .y_high = high,
        .width = 720, .height = 480, .scale = 2 });
    check(s->ctx);
    snprintf(path, sizeof path, "%s/%s.png", s->out, axis);
    if (tn_image_save_png(image, path) == TN_OK) printf("  %s\n", path);
    else {                          /* built without stb_image_write, or the disk is full */
        fprintf(stderr, PROGRAM ": %s\n", tn_ctx_error(s->ctx));
        tn_ctx_clear_error(s->ctx);
    }
    tn_image_destroy(image);
}

#endif
