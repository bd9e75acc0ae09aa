/* Tests of examples/studies/text.h, runs.h and law.h: how a text is cut, read and learned from, and what a study makes of its
   numbers. In C only, as the examples are. */
#define _POSIX_C_SOURCE 200809L
#include "test.h"
#define PROGRAM "test_studies"
#include "examples/studies/runs.h"
#include "examples/studies/law.h"
#include <dirent.h>

/* isnan is a macro that some compilers warn of. */
static bool is_nan(double x) { return x != x; }

static uint64_t random_state = 1;

static int64_t below(int64_t n) { return (int64_t)(splitmix64(random_state++) % (uint64_t)n); }

static tn_ctx *context(uint64_t seed, tn_dtype dtype)
{
    tn_ctx *ctx = NULL;
    tn_desc desc = { .threads = 1, .seed = seed, .dtype = dtype };
    CHECK(tn_ctx_create(&desc, &ctx, NULL) == TN_OK);
    return ctx;
}

static const char *in_scratch(char path[600], const char *name)
{
    const char *folder = getenv("TN_TEST_TMP");
    snprintf(path, 600, "%s/%s", folder && *folder ? folder : "/tmp", name);
    return path;
}

/* ---- numbers of a study ---------------------------------------------------------------- */

TEST(estimates)
{
    const double x[] = {1, 2, 4}, same[] = {3, 3}, diverged[] = {1, HUGE_VAL};
    estimate     e = estimate_of(x, 3);
    CHECK_NEAR(e.mean, 7.0 / 3, 1e-15);
    CHECK_NEAR(e.error, sqrt(42.0 / 9 / 6), 1e-15);
    CHECK_STR(verdict(e), "more, by over 2 standard errors");
    e.mean = -e.mean;
    CHECK_STR(verdict(e), "less, by over 2 standard errors");
    e.mean = 2 * e.error;
    CHECK_STR(verdict(e), "within 2 standard errors");
    e.mean = -2.001 * e.error;
    CHECK_STR(verdict(e), "less, by over 2 standard errors");
    e = estimate_of(same, 2);
    CHECK(e.mean == 3 && e.error == 0);
    e = estimate_of(x, 1);
    CHECK(e.mean == 1 && is_nan(e.error));
    CHECK_STR(verdict(e), "one seed: no verdict");
    e = estimate_of(diverged, 2);
    CHECK(!is_number(e.mean));
    CHECK_STR(verdict(e), "one diverged");
}

/* 64 steps of 4 x 8: the points are after 512, 1024 and 2048 tokens */
static study *small_study(int64_t seeds)
{
    static char out[600];
    study *s = study_create(in_scratch(out, "test_studies.d"));
    s->batch = 4;
    s->context = 8;
    s->tokens = 64 * 32;
    s->seeds = seeds;
    s->rate[0] = 0.01;
    s->rate[2] = 0.04;
    return s;
}

/* An empty folder for results: those of an earlier build are of another recipe, which a study refuses. */
static void empty_results(const study *s)
{
    char           folder[600], path[900];
    struct dirent *e;
    snprintf(folder, sizeof folder, "%s/runs", s->out);
    make_folder(s->out);
    make_folder(folder);
    DIR *d = opendir(folder);
    while (d && (e = readdir(d)) != NULL) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (*e->d_name != '.') remove(path);
    }
    if (CHECK(d != NULL)) closedir(d);
}

TEST(steps_round_up)
{
    study *s = small_study(1);
    CHECK_INT(study_steps(s), 64);
    s->tokens++;
    CHECK_INT(study_steps(s), 65);
    s->tokens = 6000000;
    s->batch = 16;
    s->context = 128;
    CHECK(tokens_at(s, POINTS - 1) >= 6e6 && tokens_at(s, POINTS - 1) < 6e6 + 2048);
    free(s);
}

TEST(losses_between_points)
{
    study   *s = small_study(1);
    training r = { .token = {5, 4, 3.5} };
    for (int i = 0; i < POINTS; i++) CHECK_NEAR(loss_after(s, &r, tokens_at(s, i)), r.token[i], 1e-9);
    CHECK_NEAR(tokens_at(s, 0), 512, 0);
    CHECK_NEAR(tokens_at(s, 2), 2048, 0);
    CHECK_NEAR(loss_after(s, &r, 512 * sqrt(2)), 4.5, 1e-12);
    CHECK_NEAR(loss_after(s, &r, 1024 * pow(2, 0.25)), 3.875, 1e-12);
    CHECK(is_nan(loss_after(s, &r, 500)));
    CHECK(is_nan(loss_after(s, &r, 2100)));
    for (int i = 0; i < 50; i++) {                    /* there and back */
        double loss = 3.5 + 1.499 * (double)i / 50;
        reach  to = tokens_to(s, r.token, loss);
        CHECK(to.sign == '=');
        CHECK_NEAR(loss_after(s, &r, to.tokens), loss, 1e-9);
    }
    free(s);
}

TEST(tokens_to_a_loss)
{
    study       *s = small_study(2);
    const double falls[] = {5, 4, 3.5}, rises[] = {5, 5.5, 4}, never[] = {5, 4, HUGE_VAL}, late[] = {NAN, 4, 3};
    double       error = 0;
    reach        r = tokens_to(s, falls, 5);
    CHECK(r.sign == '<' && r.tokens == 512);
    r = tokens_to(s, falls, 7);
    CHECK(r.sign == '<' && r.tokens == 512);
    r = tokens_to(s, falls, 3.4);
    CHECK(r.sign == '>' && r.tokens == 2048);
    r = tokens_to(s, falls, 3.5);
    CHECK(r.sign == '=' && r.tokens == 2048);
    r = tokens_to(s, rises, 4.75);
    CHECK(r.sign == '=' && fabs(r.tokens - 1024 * sqrt(2)) < 1e-9);
    r = tokens_to(s, never, 3.9);
    CHECK(r.sign == '>' && r.tokens == 2048);
    r = tokens_to(s, late, 3.5);
    CHECK(r.sign == '=' && fabs(r.tokens - 1024 * sqrt(2)) < 1e-9);

    memcpy(s->run[0][0].token, falls, sizeof falls);
    memcpy(s->run[0][1].token, falls, sizeof falls);
    r = mean_reach(s, 0, 4, &error);
    CHECK(r.sign == '=' && r.tokens == 1024 && error == 0);
    s->run[0][1].token[1] = s->run[0][1].token[2] = 4.5;          /* that seed never gets there; the mean is 5, 4.25, 4 */
    r = mean_reach(s, 0, 4, &error);
    CHECK(r.sign == '=' && r.tokens == 2048 && is_nan(error));
    r = mean_reach(s, 0, 3.75, &error);
    CHECK(r.sign == '>' && is_nan(error));
    free(s);
}

TEST(rates_are_chosen)
{
    study *s = small_study(3);
    s->variants = 2;
    s->variant[0].name = "chosen";
    s->variant[1].name = "follows";
    s->variant[1].brief = true;
    s->ctx = context(1, TN_F32);
    for (int i = 0; i < 2; i++) s->variant[i].desc = usual_model(300, 8, 8, 1, 1);
    for (int i = 0; i < RATES; i++) s->tried[0][i].token[POINTS - 1] = i == 1 ? HUGE_VAL : 4;
    CHECK_INT(best_rate(s, 0), 0);                /* the first of the best */
    s->tried[0][2].token[POINTS - 1] = 3;
    CHECK_INT(best_rate(s, 0), 2);
    choose_rate(s, 0);
    choose_rate(s, 1);                            /* of the same rate, without trials of its own */
    for (int i = 0; i < 3; i++) {
        CHECK_NEAR(s->run[0][i].rate, 0.04, 0);
        CHECK_NEAR(s->run[1][i].rate, 0.04, 0);
        CHECK_INT(s->run[0][i].seed, i + 1);      /* seed 0, which chose, is none of them */
        CHECK_INT(s->run[0][i].steps, 64);
        CHECK_INT(s->run[0][i].first, 0);
        CHECK_INT(s->run[1][i].first, POINTS - 1);
        CHECK(!s->run[0][i].there);
    }
    tn_ctx_destroy(s->ctx);
    free(s);
}

TEST(widths_fit)
{
    int even = 0;
    for (int i = 0; i < 60; i++) {
        tn_transformer_desc d = usual_model(300 + below(800), 16, 8 * (1 + below(16)), 1, 1 + below(3));
        d.mlp = below(2) ? TN_MLP_BILINEAR : TN_MLP_RELU;
        d.mlp_bias = below(2);
        int64_t base = params_at(d, 1);
        int64_t each = params_at(d, 2) - base;
        int64_t params = base + below(400 * each);
        int64_t hidden = fit_hidden(&d, params);
        CHECK(hidden >= 1);
        if (hidden % 8 == 0 && fabs((double)(params_at(d, hidden) - params)) < 0.004 * (double)params) even++;
        else CHECK(2 * llabs(params_at(d, hidden) - params) <= each);         /* as near as a width comes */
    }
    CHECK(even > 10);
}

/* Warm-up and settling fit into the shortest lessons and into their quarters. */
TEST(schedules_fit)
{
    tn_ctx        *ctx = context(1, TN_F32);
    tn_params     *params = tn_params_create(ctx);
    tn_transformer model;
    tn_transformer_desc form = usual_model(16, 4, 4, 1, 1);
    lesson         l = { .params = params, .model = &model, .lr = 0.02 };
    tn_transformer_init(params, "", &form, &model);
    lesson_begin(&l);
    for (l.steps = LEAST_STEPS / TRIAL; l.steps < 400; l.steps++) {
        int64_t end = l.steps < LEAST_STEPS ? l.steps : l.steps >> (POINTS - 1);
        for (; end <= l.steps; end *= 2) tn_optim_destroy(lesson_optim(&l, end));
        REQUIRE(CHECK_CTX(ctx));
    }
    CHECK_NEAR(embedding_share(model.embed.w), 15, 8);            /* of a table of 64 numbers of size 1 */
    tn_ctx_destroy(ctx);
}

/* ---- laws ------------------------------------------------------------------------------------ */

static double unit(void) { return (double)below(1 << 20) / (1 << 20); }

/* Of one term or two, planted at random: their derivatives by differences, and what the fit makes of exact numbers, of those
   with an outlier, and of too few. */
TEST(laws_are_recovered)
{
    enum { GRID = 6 };
    for (int trial = 0; trial < 40; trial++) {
        const int terms = 1 + trial % 2, n = 1 + 2 * terms, count = terms == 1 ? GRID : GRID * GRID;
        double    p[MAX_NUMBERS], x[MAX_TERMS] = {unit(), unit()}, slope[MAX_NUMBERS], unused[MAX_NUMBERS], step = 1e-5;
        sample    s[GRID * GRID], again[GRID * GRID];
        p[0] = unit();                                        /* in the middle each term is about as large as E */
        for (int k = 1; k < n; k++) p[k] = k % 2 ? unit() - 0.5 : 0.2 + 0.6 * unit();
        law_at(terms, p, x, slope);
        for (int k = 0; k < n; k++) {
            double high[MAX_NUMBERS], low[MAX_NUMBERS];
            memcpy(high, p, sizeof p);
            memcpy(low, p, sizeof p);
            high[k] += step;
            low[k] -= step;
            CHECK_NEAR((law_at(terms, high, x, unused) - law_at(terms, low, x, unused)) / (2 * step), slope[k], 1e-8);
        }
        for (int i = 0; i < count; i++) {
            const double at[MAX_TERMS] = {i % GRID - 2.5, i / GRID - 2.5};
            s[i] = (sample){{at[0] + 12, at[1] + 15}, law_at(terms, p, at, unused)};
        }
        memcpy(again, s, sizeof s);
        law l = fit(terms, s, count, NULL);
        for (int k = 0; k < terms; k++) CHECK_NEAR(l.centre[k], k ? 15 : 12, 1e-12);
        for (int k = 0; k < n; k++) CHECK_NEAR(l.p[k], p[k], 1e-5);
        memcpy(s, again, sizeof s);
        s[below(count)].y += 0.5;
        l = fit(terms, s, count, NULL);
        for (int k = 0; k < n && terms == 2; k++) CHECK_NEAR(l.p[k], p[k], 0.05);
        CHECK(is_nan(fit(terms, s, 1 + 2 * terms, NULL).p[0]));
    }
}

/* ---- results in files --------------------------------------------------------------------- */

TEST(results_are_of_their_settings)
{
    study   *s = small_study(1);
    variant  v = { .name = "v", .desc = usual_model(300, 8, 8, 1, 1) };
    training r, again;
    char     line[512], other[512];
    int32_t  id[] = {1, 2, 3};
    s->ctx = context(1, TN_F32);
    s->text.train = (tokens){ .id = id, .count = 3 };
    s->hash = corpus_hash(&s->text);
    empty_results(s);
    training_make(s, &r, &v, 0.02, 1, 64, 0);
    CHECK(!r.there);
    settings_line(s, &r, line, sizeof line);
    id[1] = 7;                                    /* as many tokens, of another text */
    s->hash = corpus_hash(&s->text);
    settings_line(s, &r, other, sizeof other);
    CHECK(strcmp(line, other));
    id[1] = 2;
    s->hash = corpus_hash(&s->text);
    settings_line(s, &r, other, sizeof other);
    CHECK_STR(line, other);
    v.desc.attention = TN_ATTENTION_BILINEAR;
    settings_line(s, &r, other, sizeof other);
    CHECK(strcmp(line, other));
    v.desc.attention = TN_ATTENTION_SOFTMAX;
    s->precision = "bf16";
    settings_line(s, &r, other, sizeof other);
    CHECK(strcmp(line, other));
    s->precision = "f32";

    for (int i = 0; i < POINTS; i++) r.token[i] = 3 - i, r.byte[i] = i / 3.0;
    for (int i = 0; i < 2 * QUARTERS; i++) r.far[i / QUARTERS][i % QUARTERS] = i < 3 ? (double)i : (double)NAN;
    r.token[2] = HUGE_VAL;
    r.seconds = 1e-5;
    r.speed = 1234;
    r.curve = 1;
    r.curve_tokens[0] = 32;
    r.curve_loss[0] = 5.5;
    training_write(s, &r);
    training_make(s, &again, &v, 0.02, 1, 64, 0);
    CHECK(again.there && again.curve == 1 && again.curve_tokens[0] == 32 && again.curve_loss[0] == 5.5);
    for (int i = 0; i < POINTS; i++) CHECK_NEAR(again.token[i], r.token[i], 1e-8);
    for (int i = 0; i < POINTS; i++) CHECK_NEAR(again.byte[i], r.byte[i], 1e-8);
    CHECK(again.far[0][2] == 2 && is_nan(again.far[0][3]) && again.seconds == r.seconds && again.speed == r.speed);
    tn_ctx_destroy(s->ctx);
    free(s);
}

/* ---- a text ----------------------------------------------------------------------------------- */

/* Wherever the cut would fall, it splits neither a mark nor a character, and moves by no more than one of them. */
TEST(cuts_between)
{
    const int64_t mark = (int64_t)strlen(DOCUMENT_END);
    char          text[400];
    for (int64_t bytes = 40; bytes < 400; bytes += 13)
        for (int64_t at = 0; at + mark <= bytes; at++) {
            int64_t plain = bytes - (int64_t)(HELD_OUT * (double)bytes);
            memset(text, 'a', sizeof text);
            memcpy(text + at, DOCUMENT_END, (size_t)mark);
            int64_t cut = held_out_at(text, bytes);
            CHECK_INT(cut, plain > at && plain < at + mark ? at : plain);
            for (int64_t i = 0; i + 1 < bytes; i += 2) memcpy(text + i, "\xC3\xA9", 2);       /* e with an accent, two bytes */
            CHECK_INT(held_out_at(text, bytes), plain / 2 * 2);
        }
    CHECK_INT(held_out_at("", 0), 0);
}

/* Documents with blanks around them, and in the held-out part characters that no token knows. */
TEST(bytes_of_a_text)
{
    char           path[600];
    tn_ctx        *ctx = context(1, TN_F64);
    tn_params     *params = tn_params_create(ctx);
    tn_transformer model;
    FILE          *f = fopen(in_scratch(path, "studies.txt"), "wb");
    double         bytes = 0;
    int64_t        ends = 0;
    REQUIRE(f != NULL);
    for (int64_t i = 0; i < 190; i++) {                   /* 25 and 27 bytes with the mark, of which the document has 11 and 13 */
        fprintf(f, i % 2 ? " ab cd ab cd\n" DOCUMENT_END : "\n\nba dc ab bad" DOCUMENT_END "\n");
    }
    for (int64_t i = 0; i < 6; i++) fprintf(f, "ab \xD0\xB6\xD0\xB6 cd%s\n", DOCUMENT_END);   /* Cyrillic */
    fclose(f);
    corpus c = load_corpus(ctx, path, 300, 8);
    corpus again = load_corpus(ctx, path, 300, 8);
    CHECK(c.marks && corpus_hash(&c) == corpus_hash(&again));
    again.held.id[0]++;
    CHECK(corpus_hash(&c) != corpus_hash(&again));
    CHECK_NEAR(c.held.unknown, 6 * 4, 0);
    for (int64_t i = 0; i < c.train.count + c.held.count; i++)
        ends += (i < c.train.count ? c.train.id[i] : c.held.id[i - c.train.count]) == tn_tokenizer_bos(c.tokenizer);
    CHECK_INT(ends, 196);                         /* a [BOS] each */
    bytes = 95 * 11 + 95 * 12 + 6 * 10;
    CHECK_NEAR(c.train.bytes + c.held.bytes, bytes, 0);
    CHECK_NEAR(per_byte(&c.held, 0), 24 * log(256) / c.held.bytes, 1e-12);

    tn_transformer_desc form = usual_model(300, 8, 8, 1, 1);          /* its head is zero: every token is as likely */
    tn_transformer_init(params, "", &form, &model);
    CHECK_CTX(ctx);
    reading r = read_held_out(ctx, &model, &c.held, 8, INT64_MAX);
    CHECK_NEAR(r.token, log(300), 1e-12);
    CHECK_NEAR(r.byte, ((double)(c.held.count - 1) * log(300) + 24 * log(256)) / c.held.bytes, 1e-12);
    free_corpus(&c);
    free_corpus(&again);
    tn_ctx_destroy(ctx);
    remove(path);
}

/* ---- windows -------------------------------------------------------------------------------------- */

TEST(epochs_take_every_window_once)
{
    for (int trial = 0; trial < 200; trial++) {
        const int64_t length = 1 + below(20), count = length + 1 + below(400);
        const tokens  t = { .count = count };
        const int64_t windows_of = (count - 1) / length > 1 ? (count - 1) / length - 1 : 1, epoch = below(5);
        char          seen[512] = {0};
        for (int64_t i = 0; i < windows_of; i++) {
            int64_t from = window_start(t.count, length, (uint64_t)trial, epoch * windows_of + i);
            REQUIRE(CHECK(from >= 0 && from + length + 1 <= count));          /* and its last target */
            for (int64_t k = 0; k < length; k++) REQUIRE(CHECK(!seen[from + k]++));
        }
    }
}

/* -log p of token i, of a window that begins at `from` */
static double nats_of(tn_ctx *ctx, const tn_transformer *model, const tokens *t, int64_t from, int64_t length, int64_t i)
{
    const int64_t vocab = model->desc.vocab;
    double        z[64], sum = 0;
    tn_ctx_reset(ctx);
    tn_tensor *x = tn_tensor_2d(ctx, TN_I32, 1, length);
    tn_write(x, TN_I32, t->id + from, length);
    tn_read(tn_slice(tn_transformer_forward(ctx, model, x), 1, i - 1 - from, i - from), TN_F64, z, vocab);
    for (int64_t k = 0; k < vocab; k++) sum += exp(z[k]);
    return log(sum) - z[t->id[i]];
}

/* Against one token at a time, of windows that overlap by half, and of windows one after the other. */
TEST(readings_against_one_token_at_a_time)
{
    tn_ctx        *ctx = context(3, TN_F64);
    tn_params     *params = tn_params_create(ctx);
    tn_transformer model;
    tn_transformer_desc form = usual_model(20, 16, 8, 2, 1);
    double         worst = 0;
    form.zero_out = form.zero_head = false;
    tn_transformer_init(params, "", &form, &model);
    REQUIRE(CHECK_CTX(ctx));
    for (int trial = 0; trial < 40; trial++) {
        const int64_t length = 1 + below(9), count = 2 + below(70), most = below(2) ? INT64_MAX : 1 + below(80);
        const int64_t n = count - 1 < most ? count - 1 : most, T = length < n ? length : n, half = T > 1 ? T / 2 : 1;
        int32_t       id[80];
        tokens        t = { .id = id, .count = count, .bytes = 100 };
        double        nats = 0, part[3];
        for (int64_t i = 0; i < count; i++) id[i] = (int32_t)below(20);
        for (int64_t i = 1; i <= n; i++) {
            int64_t past = i <= T ? 0 : (i - T + half - 1) / half * half;    /* where its window begins */
            if (past > n - T) past = n - T;
            nats += nats_of(ctx, &model, &t, past, T, i);
        }
        test_raise(&worst, fabs(read_held_out(ctx, &model, &t, length, most).token - nats / (double)n));
        if (test_leave_out(length < 3 || count <= length, "texts too short to be read by thirds of a window")) continue;
        read_parts(ctx, &model, &t, length, 3, part);
        for (int64_t p = 0; p < 3; p++) {
            double sum = 0, of = 0;
            for (int64_t w = 0; w + length < count; w += length)
                for (int64_t i = length * p / 3; i < length * (p + 1) / 3; i++, of++)
                    sum += nats_of(ctx, &model, &t, w, length, w + i + 1);
            test_raise(&worst, fabs(part[p] - sum / of));
        }
    }
    CHECK_CTX(ctx);
    WORST("reading against single tokens", worst, 2e-14);
    tn_ctx_destroy(ctx);
}

/* ---- trainings ---------------------------------------------------------------------------------------- */

/* A study of one variant on tokens that count upwards, with leaps */
static study *study_of_numbers(variant *v, int32_t *id, int64_t count)
{
    study *s = small_study(1);
    s->ctx = context(1, TN_F32);
    v->name = "numbers";
    v->desc = usual_model(16, 8, 8, 2, 1);
    for (int64_t i = 0; i < count; i++) id[i] = (int32_t)(below(4) ? i % 16 : below(16));
    s->text.train = (tokens){ .id = id, .count = count - 100, .bytes = (double)(count - 100) };
    s->text.held = (tokens){ .id = id + count - 100, .count = 100, .bytes = 100 };
    return s;
}

/* A training whose copies settled on the way ends as one without them. */
TEST(copies_leave_no_trace)
{
    int32_t  id[1000];
    variant  v = {0};
    study   *s = study_of_numbers(&v, id, 1000);
    training with, without;
    training_make(s, &with, &v, 0.02, 1, 64, 0);
    training_make(s, &without, &v, 0.02, 1, 64, POINTS - 1);
    train_one(s, &with);
    train_one(s, &without);
    CHECK(with.there && with.token[2] == without.token[2] && with.byte[2] == without.byte[2]);
    CHECK(is_nan(without.token[0]) && is_nan(without.token[1]));
    CHECK(with.token[0] > with.token[1] && with.token[1] > with.token[2]);    /* it learns */
    CHECK(with.token[0] < log(16) + 0.1 && with.speed > 0 && is_number(with.seconds));
    CHECK(with.curve > 0 && with.curve == without.curve);
    CHECK(!memcmp(with.curve_loss, without.curve_loss, sizeof with.curve_loss));
    tn_ctx_destroy(s->ctx);
    free(s);
}

/* A rate of which no number is left ends one training, as its result, and not the study. */
TEST(divergence_is_a_result)
{
    int32_t  id[1000];
    variant  v = {0};
    study   *s = study_of_numbers(&v, id, 1000);
    training r, again;
    empty_results(s);
    training_make(s, &r, &v, 1e12, 1, 64, 0);
    train_one(s, &r);
    training_write(s, &r);
    training_make(s, &again, &v, 1e12, 1, 64, 0);
    CHECK(again.there);
    for (int i = 0; i < POINTS; i++) CHECK(again.token[i] == HUGE_VAL && again.byte[i] == HUGE_VAL);
    tn_ctx_destroy(s->ctx);
    free(s);
}

TEST_MAIN(estimates, steps_round_up, losses_between_points, tokens_to_a_loss, rates_are_chosen, widths_fit, schedules_fit,
          laws_are_recovered,
          results_are_of_their_settings, cuts_between, bytes_of_a_text, epochs_take_every_window_once,
          readings_against_one_token_at_a_time, copies_leave_no_trace, divergence_is_a_result)
