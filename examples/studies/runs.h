/* runs.h - one text for many transformers: variants x learning rates x seeds, several at once, compared

   Included after text.h. A study trains every variant at each of three learning rates, a quarter of the tokens on seed 0,
   and takes the rate that reads the held-out part best. With that it trains seeds 1, 2, ...: one seed, one text in one
   order, for every variant. So what chose the rate is in no mean. Each training is a process of its own with one thread and
   leaves one file when it has ended. A study that was stopped continues with what is missing; one that has everything only
   prints.

   A training run gives three points, not one. On the way, at a quarter and at half of its tokens, a copy of it lets its learning
   rate go down as the whole one does at its end. So "after fewer tokens", "after as many seconds" and "after as many
   operations" always speak of a finished model. */
#ifndef EXAMPLES_RUNS_H
#define EXAMPLES_RUNS_H

#include "text.h"
#ifndef _WIN32
#include <sys/wait.h>
#endif

enum { MAX_VARIANTS = 48, RATES = 3, MAX_SEEDS = 9, POINTS = 3, MAX_CURVE = 64, READINGS = 20, QUARTERS = 4,
       FAR = 4, MAX_JOBS = 64, TRIAL = 4 /* a trial of a rate has one in so many of the steps */, LEAST_STEPS = 8 * TRIAL };

typedef struct variant {
    const char         *name;
    tn_transformer_desc desc;
    bool                far;        /* is read at FAR times the context, too */
    bool                brief;      /* is in no table: only its end counts   */
    int                 rate_of;    /* the variant whose rate it takes       */
    int64_t             params;
    double              flops;      /* of training, a token                  */
} variant;

typedef struct training {           /* of one variant, rate and seed: what its file says */
    const variant *variant;
    double   rate;
    uint64_t seed;
    int64_t  steps;
    int      first;                 /* point that it makes; those before it are NaN */
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
    const char *data, *out, *backend, *precision;
    int64_t     tokens, batch, context, dim, heads, layers, vocab, seeds, jobs;
    double      rate[RATES], loss;
    bool        quick, report;                /* report: trains nothing, takes what is there */
    double      started;
    corpus      text;
    tn_ctx     *ctx;                          /* of the text and the pictures     */
    int64_t     process;                      /* its number; 0: everything in one */
    int         variants, rates;
    variant     variant[MAX_VARIANTS];
    uint64_t    hash;                         /* of the text, in tokens           */
    training    tried[MAX_VARIANTS][RATES];   /* seed 0, to choose the rate       */
    training    run[MAX_VARIANTS][MAX_SEEDS]; /* seeds 1, 2, ... at that rate     */
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
    {"--loss", FLAG_REAL, &(s)->loss, 0, 100, NULL}, \
    {"--seeds", FLAG_COUNT, &(s)->seeds, 1, MAX_SEEDS, NULL}, \
    {"--jobs", FLAG_COUNT, &(s)->jobs, 1, MAX_JOBS, NULL}, \
    {"--backend", FLAG_CHOICE, &(s)->backend, 0, 0, "cpu|cuda"}, \
    {"--precision", FLAG_CHOICE, &(s)->precision, 0, 0, "f32|tf32|bf16"}, \
    OUT_FLAG(s), \
    {"--quick", FLAG_SWITCH, &(s)->quick, 0, 0, "a minute: small models, one rate, two seeds, a folder of its own"}

static inline study *study_create(const char *out)
{
    study *s = grown(NULL, 1, sizeof *s);
    memset(s, 0, sizeof *s);
    s->started = now();
    s->data = DEFAULT_TEXT;
    s->out = out;
    s->backend = "cpu";
    s->precision = "f32";
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
    s->rate[1] = RATE;
    return s;
}

static inline int64_t study_steps(const study *s) { return (s->tokens - 1) / (s->batch * s->context) + 1; }

/* After the flags: the text. */
static inline void study_open(study *s)
{
    char    folder[512], why[TN_WHY];
    tn_desc desc = { .threads = 1 };
    if (s->quick) {
        static char quick[512];
        s->rates = 1;
        if (snprintf(quick, sizeof quick, "%s_quick", s->out) >= (int)sizeof quick)
            stop("the output folder's name is too long");
        s->out = quick;
        s->tokens = 65536;
        s->dim = 32;
        s->context = 32;
        if (s->seeds > 2) s->seeds = 2;
    }
#ifndef STUDY_CUDA
    if (!strcmp(s->backend, "cuda"))
        stop("--backend is cuda, expected cpu: this program was built without CUDA (make build/examples/studies/" PROGRAM
             "-cuda builds one with it)");
#endif
    if (study_steps(s) < LEAST_STEPS) {
        fprintf(stderr, PROGRAM ": --tokens %lld are fewer than %d steps of %lld x %lld: more of them, or a smaller "
                "--batch\n",
                (long long)s->tokens, LEAST_STEPS, (long long)s->batch, (long long)s->context);
        exit(2);
    }
    s->rate[0] = s->rates == 1 ? s->rate[1] : s->rate[1] / 2;
    s->rate[2] = 2 * s->rate[1];
    make_folder(s->out);
    snprintf(folder, sizeof folder, "%s/runs", s->out);
    make_folder(folder);
    if (tn_ctx_create(&desc, &s->ctx, why) != TN_OK) stop(why);
    s->text = load_corpus(s->ctx, s->data, s->vocab, FAR * s->context);
    s->vocab = tn_tokenizer_count(s->text.tokenizer);     /* a small text has no more */
    s->hash = corpus_hash(&s->text);
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
    return tn_transformer_cost_of(&d, 0).params;
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
    v->rate_of = s->variants;
    if (tn_transformer_check(s->ctx, &desc, &v->desc) != TN_OK) stop(tn_ctx_error(s->ctx));
    tn_transformer_cost cost = tn_transformer_cost_of(&v->desc, s->context);
    v->params = cost.params;
    v->flops = cost.training;
    return s->variants++;
}

/* ---- one training ------------------------------------------------------------------- */

static inline double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Where a model is trained. A GPU is opened only by processes that train, because those that they start could not use it. */
static inline tn_ctx *training_ctx(const study *s, uint64_t seed)
{
    tn_desc desc = { .threads = 1, .seed = seed };
    tn_ctx *ctx;
    char    why[TN_WHY];
    desc.gemm_precision = !strcmp(s->precision, "bf16") ? TN_GEMM_BF16
                        : !strcmp(s->precision, "tf32") ? TN_GEMM_TF32 : TN_GEMM_F32;
#ifdef STUDY_CUDA
    if (!strcmp(s->backend, "cuda")) desc.backend = tn_cuda_backend();
    desc.backend_required = true;
#endif
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) stop(why);
    return ctx;
}

/* Of the processor alone; with a GPU, all that pass. */
static inline double training_clock(const study *s) { return strcmp(s->backend, "cuda") ? processor_seconds() : now(); }

typedef struct pupil {              /* an unfinished training run */
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
    memset(p, 0, sizeof *p);
    p->study = s;
    p->record = r;
    p->ctx = training_ctx(s, r->seed);
    p->params = tn_params_create(p->ctx);
    tn_transformer_init(p->params, "", &r->variant->desc, &p->model);
    p->lesson = (lesson){ .params = p->params, .model = &p->model, .text = &s->text,
                          .steps = r->steps, .batch = s->batch, .context = s->context, .seed = r->seed, .lr = r->rate };
    lesson_begin(&p->lesson);
    tn_optim *optim = lesson_optim(&p->lesson, p->lesson.steps);
    check(p->ctx);
    return optim;
}

/* Trains up to step `to`; ends when its study is killed. */
static inline void advance(pupil *p, tn_optim *optim, int64_t to, bool draw)
{
    const lesson *l = &p->lesson;
    training     *r = p->record;
    int64_t       every = l->steps / READINGS > 0 ? l->steps / READINGS : 1;
    while (tn_optim_step_count(optim) < to && !p->diverged) {
        double start = training_clock(p->study);
        p->diverged = !is_number(lesson_step(p->ctx, l, optim));
        p->seconds += training_clock(p->study) - start;
        p->tokens += l->batch * l->context;
        if (draw && tn_optim_step_count(optim) % every == 0 && r->curve < MAX_CURVE) {
            r->curve_tokens[r->curve] = (double)(tn_optim_step_count(optim) * l->batch * l->context);
            r->curve_loss[r->curve++] = read_held_out(p->ctx, l->model, &l->text->held, l->context, SMALL_LOOK).token;
        }
#ifndef _WIN32
        if (p->study->process && getppid() != p->study->process) _exit(1);
#endif
    }
}

/* A copy is trained up to step `end` and settles there; the original has then forgotten it. */
static inline void settle_copy(pupil *p, tn_optim *optim, int64_t end, int point)
{
    const lesson *l = &p->lesson;
    bool          last = end == l->steps;
    tn_optim     *copy = last ? optim : lesson_optim(l, end);
    size_t        bytes = 0;
    void         *before = NULL;
    if (!last) {
        tn_checkpoint_write(optim, tn_sink_memory(NULL, 0, &bytes), NULL, 0);
        before = grown(NULL, (int64_t)bytes, 1);
        tn_checkpoint_write(optim, tn_sink_memory(before, bytes, &bytes), NULL, 0);
        tn_checkpoint_read(copy, tn_source_memory(before, bytes));
        check(p->ctx);
    }
    advance(p, copy, end, last);
    if (!p->diverged) {
        reading held_out = read_held_out(p->ctx, l->model, &l->text->held, l->context, INT64_MAX);
        p->record->token[point] = held_out.token;
        p->record->byte[point] = held_out.byte;
        p->diverged = !is_number(held_out.token);
    }
    if (!last) {
        tn_checkpoint_read(optim, tn_source_memory(before, bytes));
        tn_optim_destroy(copy);
        free(before);
        check(p->ctx);
    }
}

/* Tokens a second where each is the likeliest after those before it. */
static inline double writing_speed(const study *s, tn_ctx *ctx, const tn_transformer *model, int32_t first, int64_t count)
{
    tn_transformer_cache *cache = tn_transformer_cache_create(ctx, model, 1, count);
    double best = HUGE_VAL;
    for (int trial = 0; trial < 3; trial++) {
        double  start = training_clock(s);
        int32_t id = first;
        tn_transformer_cache_reset(cache);
        for (int64_t i = 0; i < count; i++) {
            tn_ctx_reset(ctx);
            tn_tensor *in = tn_tensor_2d(ctx, TN_I32, 1, 1);
            tn_write(in, TN_I32, &id, 1);
            tn_read(tn_argmax(ctx, tn_transformer_decode(ctx, model, in, cache)), TN_I32, &id, 1);
        }
        check(ctx);
        best = fmin(best, training_clock(s) - start);
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
        && (d->row_scale == TN_ROW_SCALE_DEFAULT || d->row_scale == TN_ROW_SCALE_LENGTH);
    for (int way = 0; way < 2; way++) {
        for (int64_t i = 0; i < QUARTERS; i++) r->far[way][i] = NAN;
        if (!r->variant->far || p->diverged || (way == 1 && !scaled)) continue;
        for (int64_t i = 0; way == 1 && i < p->study->layers; i++) p->model.blocks[i].attn.desc.row_scale = TN_ROW_SCALE_NONE;
        read_parts(p->ctx, &p->model, &p->study->text.held, FAR * p->study->context, QUARTERS, r->far[way]);
    }
}

static inline void train_one(const study *s, training *r)
{
    pupil     p;
    tn_optim *optim = pupil_begin(&p, s, r);
    for (int point = 0; point < POINTS; point++) {
        int64_t end = p.lesson.steps >> (POINTS - 1 - point);
        if (point < r->first) {
            r->token[point] = r->byte[point] = NAN;
            continue;
        }
        advance(&p, optim, settles_at(end), true);
        if (!p.diverged) settle_copy(&p, optim, end, point);
        if (p.diverged) r->token[point] = r->byte[point] = HUGE_VAL;
    }
    r->seconds = p.seconds / (double)p.tokens;
    if (!p.diverged) r->speed = writing_speed(s, p.ctx, &p.model, s->text.held.id[0], 2 * s->context);
    read_far(&p);
    r->there = true;
    tn_ctx_destroy(p.ctx);
}

/* ---- its file: lines of a name and numbers; the last is "end" ------------------------------ */

/* All that a result depends on: the recipe, the tokens, the model (by its config.json), how long it was trained, and by what. */
static inline void settings_line(const study *s, const training *r, char *line, size_t bytes)
{
    char     config[8192], by[64] = "";
    size_t   used = 0;
    uint64_t model = UINT64_C(1469598103934665603);           /* FNV-1a */
    tn_transformer_config_write(s->ctx, &r->variant->desc, tn_sink_memory(config, sizeof config, &used));
    check(s->ctx);
    for (size_t i = 0; i < used; i++) model = (model ^ (unsigned char)config[i]) * UINT64_C(1099511628211);
    if (strcmp(s->backend, "cpu") || strcmp(s->precision, "f32")) snprintf(by, sizeof by, " %s %s", s->backend, s->precision);
    snprintf(line, bytes, "settings: recipe %d text %016llx model %016llx steps %lld batch %lld context %lld rate %.9g "
             "seed %llu from %d%s\n", RECIPE, (unsigned long long)s->hash, (unsigned long long)model, (long long)r->steps,
             (long long)s->batch, (long long)s->context, r->rate, (unsigned long long)r->seed, r->first, by);
}

static inline void training_write(const study *s, const training *r)
{
    char  part[700], line[512];
    FILE *f;
    settings_line(s, r, line, sizeof line);
    snprintf(part, sizeof part, "%s.part", r->path);
    if (!(f = fopen(part, "w"))) stop("cannot write to the output folder");
    fputs(line, f);
    for (int i = 0; i < POINTS; i++) fprintf(f, "point %.9g %.9g\n", r->token[i], r->byte[i]);
    for (int i = 0; i < 2 * QUARTERS; i++) fprintf(f, "far %.9g\n", r->far[i / QUARTERS][i % QUARTERS]);
    fprintf(f, "cost %.9g %.9g\n", r->seconds, r->speed);
    for (int i = 0; i < r->curve; i++) fprintf(f, "curve %.9g %.9g\n", r->curve_tokens[i], r->curve_loss[i]);
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
        fprintf(stderr, PROGRAM ": %s is of another text, model, recipe or setting: remove it, or take another --out\n",
                r->path);
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

static inline void training_make(const study *s, training *r, const variant *v, double rate, int seed, int64_t steps,
                                 int first)
{
    memset(r, 0, sizeof *r);
    r->variant = v;
    r->rate = rate;
    r->seed = (uint64_t)seed;
    r->steps = steps;
    r->first = first;
    r->seconds = HUGE_VAL;
    for (int i = 0; i < POINTS; i++) r->token[i] = r->byte[i] = HUGE_VAL;
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
    for (int i = 0; i < count; i++) {
        train_one(s, todo[i]);
        training_write(s, todo[i]);
        say(todo[i], i + 1, count, s->started);
    }
}
#else
static inline void run_all(study *s, training **todo, int count)
{
    pid_t pid[MAX_JOBS] = {0};
    int   of[MAX_JOBS], next = 0, done = 0, status, slot;
    s->process = getpid();
    while (done < count) {
        pid_t ended;
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
            stop("a training run failed; finished runs are kept, and the next start continues from there");
        for (slot = 0; slot < s->jobs && pid[slot] != ended; slot++) { }
        if (slot == s->jobs) continue;
        pid[slot] = 0;
        training_read(s, todo[of[slot]]);
        say(todo[of[slot]], ++done, count, s->started);
    }
}
#endif

/* Seconds of a token's training, by four steps. */
static inline double probe(const study *s, const variant *v)
{
    pupil    p;
    training r;
    memset(&r, 0, sizeof r);
    r.variant = v;
    r.rate = s->rate[0];
    r.steps = study_steps(s);
    tn_optim *optim = pupil_begin(&p, s, &r);
    advance(&p, optim, 1, false);                         /* memory is asked for */
    p.seconds = 0;
    p.tokens = 0;
    advance(&p, optim, 5, false);
    double seconds = p.seconds / (double)p.tokens;
    tn_ctx_destroy(p.ctx);
    return seconds;
}

/* How many tokens' training one of these takes, with the copies that settle early and the readings. Of what is read each
   token is computed twice, and forward is a third of training. */
static inline double effort(const study *s, const training *r)
{
    const double held = (double)s->text.held.count, look = held < SMALL_LOOK ? held : SMALL_LOOK;
    double       early = 0;
    for (int point = r->first; point < POINTS - 1; point++) early += SETTLE / (double)(1 << (POINTS - 1 - point));
    return (double)(r->steps * s->batch * s->context) * (1 + early)
        + (READINGS * look + (POINTS - r->first) * held) * 2 / 3 + (r->variant->far ? held : 0) / 3;
}

/* Which of its rates served seed 0 best: the first of the best. */
static inline int best_rate(const study *s, int v)
{
    int best = 0;
    for (int i = 1; i < s->rates; i++) if (s->tried[v][i].token[POINTS - 1] < s->tried[v][best].token[POINTS - 1]) best = i;
    return best;
}

/* The rate is chosen: the seeds that count. */
static inline void choose_rate(study *s, int v)
{
    const double rate = s->rate[best_rate(s, s->variant[v].rate_of)];
    for (int i = 0; i < s->seeds; i++)
        training_make(s, &s->run[v][i], &s->variant[v], rate, i + 1, study_steps(s), s->variant[v].brief ? POINTS - 1 : 0);
}

static inline void print_rates(const study *s)
{
    if (s->rates == 1) return;
    printf("\nThe rate: held-out nats a token of seed 0 after %lld steps\n%-30s", (long long)(study_steps(s) / TRIAL), "");
    for (int i = 0; i < s->rates; i++) printf(" %9g", s->rate[i]);
    printf("\n");
    for (int v = 0; v < s->variants; v++) {
        int best = best_rate(s, v);
        if (s->variant[v].rate_of != v) continue;
        printf("%-30s", s->variant[v].name);
        for (int i = 0; i < s->rates; i++) printf(" %9.4f", s->tried[v][i].token[POINTS - 1]);
        printf("  %g%s\n", s->rate[best],
               best == 0 || best == s->rates - 1 ? ", the edge of the range: --rate moves it" : "");
    }
}

static inline int add_missing(training *r, int64_t n, training **todo, int count)
{
    for (int64_t i = 0; i < n; i++) if (!r[i].there) todo[count++] = &r[i];
    return count;
}

#ifdef _WIN32
#define probe_apart probe
#else
/* The same in a process of its own, as the training runs are. */
static inline double probe_apart(const study *s, const variant *v)
{
    double seconds = 0;
    int    ends[2], status;
    bool   good;
    pid_t  child = -1;
    fflush(stdout);
    if (pipe(ends) != 0 || (child = fork()) < 0) stop("cannot start a process");
    if (child == 0) {
        seconds = probe(s, v);
        _exit(write(ends[1], &seconds, sizeof seconds) != (ssize_t)sizeof seconds);
    }
    close(ends[1]);
    good = read(ends[0], &seconds, sizeof seconds) == (ssize_t)sizeof seconds;
    close(ends[0]);
    if (waitpid(child, &status, 0) < 0 || status != 0 || !good) stop("the first steps of a training run failed");
    return seconds;
}
#endif

/* Says how long it will take, then does it. */
static inline void study_run(study *s)
{
    training *todo[MAX_VARIANTS * MAX_SEEDS];
    double    seconds = 0;
    int       v, count = 0, all = 0;
    for (v = 0; v < s->variants; v++)
        for (int i = 0; s->rates > 1 && s->variant[v].rate_of == v && i < s->rates; i++)
            training_make(s, &s->tried[v][i], &s->variant[v], s->rate[i], 0, study_steps(s) / TRIAL, POINTS - 1);
    for (v = 0; v < s->variants; v++) {
        const int trials = s->rates > 1 && s->variant[v].rate_of == v ? s->rates : 0;
        double    work = 0;
        count = add_missing(s->tried[v], trials, todo, 0);
        for (int i = 0; i < count; i++) work += effort(s, todo[i]);
        all += count;
        choose_rate(s, v);                                /* perhaps not yet: then none of them is there */
        count = add_missing(s->run[v], s->seeds, todo, 0);
        for (int i = 0; i < count; i++) work += effort(s, todo[i]);
        all += count;
        if (work > 0 && !s->report) seconds += work * probe_apart(s, &s->variant[v]);
    }
    if (s->report) {
        printf("%d training runs are missing\n", all);
        return;
    }
    printf("%d training runs to do, of %lld tokens each, %lld in trials of a learning rate; %lld at a time: about %.2f hours "
           "if that many processors are free\n", all, (long long)(study_steps(s) * s->batch * s->context),
           (long long)(study_steps(s) / TRIAL * s->batch * s->context), (long long)s->jobs, seconds / 3600 / (double)s->jobs);
    fflush(stdout);
    for (count = v = 0; v < s->variants; v++)
        if (s->rates > 1 && s->variant[v].rate_of == v) count = add_missing(s->tried[v], s->rates, todo, count);
    run_all(s, todo, count);
    for (count = v = 0; v < s->variants; v++) {
        choose_rate(s, v);
        count = add_missing(s->run[v], s->seeds, todo, count);
    }
    run_all(s, todo, count);
    print_rates(s);
}

/* ---- tables -------------------------------------------------------------------------------- */

typedef struct entry { int v; const char *label; } entry;         /* a variant, under the name of what it varies */
typedef struct estimate { double mean, error; } estimate;                 /* standard error, NaN of a single number      */

static inline estimate estimate_of(const double *x, int64_t n)
{
    estimate s = {0, 0};
    for (int64_t i = 0; i < n; i++) s.mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++) s.error += (x[i] - s.mean) * (x[i] - s.mean);
    s.error = n > 1 ? sqrt(s.error / (double)(n * (n - 1))) : NAN;
    return s;
}

/* What a difference is worth. Of three seeds two standard errors are a small margin: 0.82, not 0.95. */
static inline const char *verdict(estimate e)
{
    if (!is_number(e.mean)) return "one diverged";
    if (!is_number(e.error)) return "one seed: no verdict";
    return fabs(e.mean) <= 2 * e.error ? "within 2 standard errors" : e.mean > 0 ? "more, by over 2 standard errors"
        : "less, by over 2 standard errors";
}

/* One seed has no error. */
static inline void print_estimate(estimate e)
{
    if (is_number(e.mean)) printf(" %9.4f", e.mean);
    else printf(" %9s", e.mean > 0 ? "diverged" : "-");
    if (is_number(e.error)) printf(" +-%.4f", e.error);
    else printf("%9s", "");
}

static inline double tokens_at(const study *s, int point)
{
    return (double)(study_steps(s) >> (POINTS - 1 - point)) * (double)(s->batch * s->context);
}

/* The loss after so many tokens, on a line between points over the logarithm of their tokens; NaN before the first. */
static inline double loss_after(const study *s, const training *r, double seen)
{
    for (int i = 1; i < POINTS; i++) {
        double share = log(seen / tokens_at(s, i - 1)) / log(tokens_at(s, i) / tokens_at(s, i - 1));
        if (share >= -1e-9 && share <= 1 + 1e-9) return r->token[i - 1] + share * (r->token[i] - r->token[i - 1]);
    }
    return NAN;
}

/* After how many tokens a model reaches a loss, by its loss at the three points: '=', fewer than the first point has '<',
   more than the last has '>'. */
typedef struct reach { double tokens; char sign; } reach;

static inline reach tokens_to(const study *s, const double *at, double loss)
{
    reach r = {tokens_at(s, POINTS - 1), '>'};
    if (at[0] <= loss) return (reach){tokens_at(s, 0), '<'};
    for (int i = 1; i < POINTS && r.sign == '>'; i++)
        if (at[i] <= loss && is_number(at[i - 1])) {
            r.tokens = tokens_at(s, i - 1)
                * pow(tokens_at(s, i) / tokens_at(s, i - 1), (at[i - 1] - loss) / (at[i - 1] - at[i]));
            r.sign = '=';
        }
    return r;
}

/* What other work on the machine adds to a time differs from run to run, so the least is reported. */
static inline double seconds_a_token(const study *s, int v)
{
    double least = HUGE_VAL;
    for (int64_t i = 0; i < s->seeds; i++) least = fmin(least, s->run[v][i].seconds);
    for (int64_t i = 0; i < s->rates; i++) if (s->tried[v][i].there) least = fmin(least, s->tried[v][i].seconds);
    return least;
}

static inline double speed_of(const study *s, int v)
{
    double most = 0;
    for (int64_t i = 0; i < s->seeds; i++) most = fmax(most, s->run[v][i].speed);
    return most;
}

enum { LOSS, DIFFERENCE, BYTE, AT_SECONDS, AT_FLOPS, COLUMNS };
static const char *const column_name[COLUMNS] = {"loss", "difference", "byte", "loss_equal_seconds", "loss_equal_flops"};

/* Of the runs of a variant, the mean at each point. */
static inline void mean_points(const study *s, int v, double mean[POINTS])
{
    int64_t k;
    for (int i = 0; i < POINTS; i++)
        for (mean[i] = 0, k = 0; k < s->seeds; k++) mean[i] += s->run[v][k].token[i] / (double)s->seeds;
}

/* The mean over seeds, if each of them reaches the loss between the points; else what the mean of the losses says. */
static inline reach mean_reach(const study *s, int v, double loss, double *error)
{
    double mean[POINTS], value[MAX_SEEDS];
    reach  all = {0, '='};
    *error = NAN;
    for (int64_t k = 0; k < s->seeds && all.sign == '='; k++) {
        all = tokens_to(s, s->run[v][k].token, loss);
        value[k] = all.tokens;
    }
    if (all.sign == '=') {
        estimate e = estimate_of(value, s->seeds);
        all.tokens = e.mean;
        *error = e.error;
        return all;
    }
    mean_points(s, v, mean);
    return tokens_to(s, mean, loss);
}

/* One axis: its first entry is what the others are compared with. Everything is a mean over seeds. */
static inline void study_table(const study *s, const char *axis, const entry *e, int entries)
{
    double   budget[COLUMNS] = {0}, value[MAX_SEEDS], level[POINTS], error[MAX_VARIANTS];
    estimate cell[MAX_VARIANTS][COLUMNS];
    reach    reached[MAX_VARIANTS];
    mean_points(s, e[0].v, level);
    double loss = s->loss > 0 ? s->loss : level[POINTS - 2];
    budget[AT_SECONDS] = budget[AT_FLOPS] = HUGE_VAL;
    for (int i = 0; i < entries; i++) {
        budget[AT_SECONDS] = fmin(budget[AT_SECONDS], seconds_a_token(s, e[i].v) * tokens_at(s, POINTS - 1));
        budget[AT_FLOPS] = fmin(budget[AT_FLOPS], s->variant[e[i].v].flops * tokens_at(s, POINTS - 1));
    }
    for (int i = 0; i < entries; i++) {
        for (int c = 0; c < COLUMNS; c++) {
            for (int64_t k = 0; k < s->seeds; k++) {
                const training *r = &s->run[e[i].v][k];
                value[k] = c == LOSS ? r->token[POINTS - 1] : c == BYTE ? r->byte[POINTS - 1]
                         : c == DIFFERENCE ? r->token[POINTS - 1] - s->run[e[0].v][k].token[POINTS - 1]
                         : c == AT_SECONDS ? loss_after(s, r, budget[c] / seconds_a_token(s, e[i].v))
                             : loss_after(s, r, budget[c] / s->variant[e[i].v].flops);
            }
            cell[i][c] = estimate_of(value, s->seeds);
        }
        reached[i] = mean_reach(s, e[i].v, loss, &error[i]);
    }
    printf("\n%s: means and standard errors of %lld seed%s. Nats a token, held out, after %.0f tokens; minus that of %s,\n"
           "seed by seed; nats a byte; the loss when the quickest is done, after %.0f s, and after %.3g operations;\n"
           "tokens to a loss of %.4f%s; tokens trained and written in a second\n"
           "%-24s %6s %8s %6s %18s %18s %18s %18s %18s %11s %8s %8s\n", axis, (long long)s->seeds, s->seeds > 1 ? "s" : "",
           tokens_at(s, POINTS - 1), e[0].label, budget[AT_SECONDS], budget[AT_FLOPS], loss,
           s->loss > 0 ? "" : " (the first line's after half of the tokens; --loss takes another)", "", "hidden", "params",
           "rate", "loss", "difference", "a byte", "equal seconds", "equal operations", "tokens", "trained", "written");
    for (int i = 0; i < entries; i++) {
        const variant *v = &s->variant[e[i].v];
        char           reach_text[32];
        snprintf(reach_text, sizeof reach_text, "%s%.3g", reached[i].sign == '<' ? "< " : reached[i].sign == '>' ? "> " : "",
                 reached[i].tokens);
        printf("%-24s %6lld %8lld %6g", e[i].label, (long long)v->desc.hidden, (long long)v->params, s->run[e[i].v][0].rate);
        for (int c = 0; c < COLUMNS; c++) print_estimate(cell[i][c]);
        printf(" %11s %8.0f %8.0f\n", reach_text, 1 / seconds_a_token(s, e[i].v), speed_of(s, e[i].v));
    }
    printf("\n%s_level: %.4f\n", axis, loss);
    for (int i = 0; i < entries; i++) {
        for (int c = 0; c < COLUMNS; c++) {
            printf("%s_%s_%s: %.4f\n", axis, e[i].label, column_name[c], cell[i][c].mean);
            printf("%s_%s_%s_error: %.4f\n", axis, e[i].label, column_name[c], cell[i][c].error);
        }
        if (i > 0) printf("%s_%s_verdict: %s\n", axis, e[i].label, verdict(cell[i][DIFFERENCE]));
        printf("%s_%s_tokens_to_level: %s%.0f\n", axis, e[i].label, reached[i].sign == '<' ? "< "
               : reached[i].sign == '>' ? "> " : "", reached[i].tokens);
        printf("%s_%s_tokens_to_level_error: %.0f\n", axis, e[i].label, error[i]);
        printf("%s_%s_training_tokens_per_second: %.0f\n", axis, e[i].label, 1 / seconds_a_token(s, e[i].v));
        printf("%s_%s_written_tokens_per_second: %.0f\n", axis, e[i].label, speed_of(s, e[i].v));
    }
}

/* Mean curves of an axis, and the points of its finished models. */
static inline void study_plot(const study *s, const char *axis, const char *title, const entry *e, int entries)
{
    tn_image_series series[2 * MAX_VARIANTS];
    double    mean[MAX_VARIANTS][MAX_CURVE], done[MAX_VARIANTS][POINTS], x[POINTS], low = HUGE_VAL, high = 0;
    int       drawn = 0;
    memset(series, 0, sizeof series);
    for (int j = 0; j < POINTS; j++) x[j] = tokens_at(s, j);
    for (int i = 0; i < entries; i++) {
        const training *r = s->run[e[i].v];
        tn_image_series       line = { .name = e[i].label, .x = r[0].curve_tokens, .y = mean[i], .count = r[0].curve,
            .colour = i % 7 + 1, .dashed = i >= 7 };
        tn_image_series       points = { .x = x, .y = done[i], .count = POINTS, .kind = TN_IMAGE_SERIES_POINTS, .colour = i % 7 + 1 };
        for (int64_t k = 1; k < s->seeds; k++) if (r[k].curve < line.count) line.count = r[k].curve;
        mean_points(s, e[i].v, done[i]);
        if (!is_number(done[i][POINTS - 1]) || line.count == 0) continue;         /* a seed diverged */
        memset(mean[i], 0, sizeof mean[i]);
        for (int64_t k = 0; k < s->seeds; k++)
            for (int j = 0; j < line.count; j++) mean[i][j] += r[k].curve_loss[j] / (double)s->seeds;
        low = fmin(low, done[i][POINTS - 1]);
        high = fmax(high, mean[i][line.count / 6]);
        series[drawn++] = line;
        series[drawn++] = points;
    }
    if (!drawn) return;
    save_image(s->ctx, tn_image_plot(s->ctx, series, drawn, &(tn_image_plot_desc){ .title = title, .x_title = "tokens",
        .y_title = "held-out loss, nats per token",
        .caption = "points: models whose learning rate has gone down by then", .y_low = low - 0.05 * (high - low),
        .y_high = high, .width = 720, .height = 480, .scale = 2 }), s->out, axis);
}

#endif
