/* test_checkpoint.c: a run that was stopped and one that was not have the same bits; what is no checkpoint changes nothing.

   Two runs are compared by all that a checkpoint of each holds, and by their losses. */

#include "sealed.h"
#include "kit.h"

enum { ROOM = 1 << 16, IDS = 12, VOCAB = 9, DIM = 6 };

typedef struct file { char bytes[ROOM]; size_t used; } file;

static char   warned[8][512];
static int    warnings;

static void listen(void *user, tn_log_level level, const char *message)
{
    (void)user;
    if (level == TN_LOG_WARN && warnings < 8) snprintf(warned[warnings++], sizeof *warned, "%s", message);
}

static bool was_warned(const char *part)
{
    for (int i = 0; i < warnings; i++) if (strstr(warned[i], part)) return true;
    return false;
}

/* ---- a small model with all that could be forgotten: dropout, noise, a tied matrix, a frozen one, one that comes later ----- */

typedef struct model {
    world        w;
    tn_embedding embed;
    tn_norm      norm;
    tn_mlp       mlp;
    tn_linear    head, late, fixed;
    bool         has_late;
    tn_optim    *optim;
} model;

static tn_optim_desc rule(tn_optim_kind kind)
{
    tn_optim_desc d = ZERO;
    d.kind = kind;
    d.lr = kind == TN_OPTIM_SGD ? 0.05 : 0.02;
    d.weight_decay = 0.1;
    d.momentum = kind == TN_OPTIM_SGD ? 0.9 : 0;
    d.nesterov = kind == TN_OPTIM_SGD;
    d.clip_norm = 1;
    d.momentum_warmup = 6;
    d.schedule.kind = TN_SCHEDULE_TRAPEZOID;
    d.schedule.warmup = 3;
    d.schedule.total = 14;
    d.schedule.decay = 6;
    return d;
}

static bool add_linear(model *m, const char *name, tn_linear *l, int64_t in, int64_t out)
{
    tn_linear_desc d = ZERO;
    d.in = in;
    d.out = out;
    return CHECK_STATUS(tn_linear_init(m->w.params, name, &d, l), TN_OK);
}

static bool add_late(model *m) { return m->has_late = add_linear(m, "late", &m->late, DIM, DIM); }

static bool open_model(model *m, tn_dtype dtype, const tn_optim_desc *od, uint64_t seed, int threads, const tn_backend *backend)
{
    tn_embedding_desc ed = ZERO;
    tn_norm_desc      nd = ZERO;
    tn_mlp_desc       md = ZERO;
    tn_desc           desc = ZERO;
    memset(m, 0, sizeof *m);
    ed.count = VOCAB;
    ed.dim = nd.dim = md.in = md.out = DIM;
    md.hidden = 7;
    md.bias = md.out_bias = true;
    desc.dtype = dtype;
    desc.seed = seed;
    desc.threads = threads;
    desc.backend = backend;
    desc.log = listen;
    desc.allocator = test_heap_allocator(&m->w.heap);
    if (!CHECK(tn_ctx_create(&desc, &m->w.ctx, NULL) == TN_OK)) return false;
    m->w.params = tn_params_create(m->w.ctx);
    if (!CHECK_STATUS(tn_embedding_init(m->w.params, "embed", &ed, &m->embed), TN_OK)) return false;
    if (!CHECK_STATUS(tn_params_tie(m->w.params, "head.w", "embed.w"), TN_OK)) return false;
    if (!CHECK_STATUS(tn_norm_init(m->w.params, "norm", &nd, &m->norm), TN_OK)) return false;
    if (!CHECK_STATUS(tn_mlp_init(m->w.params, "mlp", &md, &m->mlp), TN_OK)) return false;
    if (!add_linear(m, "head", &m->head, DIM, VOCAB) || !add_linear(m, "fixed", &m->fixed, DIM, DIM)) return false;
    tn_params_freeze(m->w.params, "fixed");
    m->optim = tn_optim_create(m->w.params, od);
    return CHECK(m->optim != NULL);
}

static tn_status forward_and_back(model *m, int64_t t, double *loss)
{
    tn_ctx *ctx = m->w.ctx;
    int32_t id[IDS], next[IDS];
    for (int i = 0; i < IDS; i++) { id[i] = (int32_t)((5 * t + i * i + 3 * i) % VOCAB); next[i] = (id[i] + 2) % VOCAB; }
    tn_ctx_reset(ctx);
    tn_tensor *ids = tn_tensor_1d(ctx, TN_I32, IDS);
    tn_tensor *labels = tn_tensor_1d(ctx, TN_I32, IDS);
    tn_write(ids, TN_I32, id, IDS);
    tn_write(labels, TN_I32, next, IDS);
    tn_record(ctx);
    tn_tensor *x = tn_dropout(ctx, tn_noise(ctx, tn_embedding_forward(ctx, &m->embed, ids), 0.1), 0.2);
    tn_tensor *y = tn_mlp_forward(ctx, &m->mlp, tn_norm_forward(ctx, &m->norm, x));
    x = tn_add(ctx, x, tn_add(ctx, y, tn_linear_forward(ctx, &m->fixed, x)));
    if (m->has_late) x = tn_add(ctx, x, tn_linear_forward(ctx, &m->late, x));
    tn_tensor *l = tn_cross_entropy(ctx, tn_linear_forward(ctx, &m->head, x), labels);
    tn_status s = tn_backward(ctx, l);
    *loss = tn_item(l);
    return s;
}

static void steps(model *m, int64_t from, int64_t to, double *loss)
{
    for (int64_t t = from; t < to; t++) {
        CHECK_STATUS(forward_and_back(m, t, &loss[t]), TN_OK);
        CHECK_STATUS(tn_optim_step(m->optim), TN_OK);
    }
}

static bool save(model *m, file *f, const tn_metadata *notes, int64_t count)
{
    return CHECK_STATUS(tn_checkpoint_write(m->optim, tn_sink_memory(f->bytes, ROOM, &f->used), notes, count), TN_OK);
}

static tn_status load(model *m, const file *f) { return tn_checkpoint_read(m->optim, tn_source_memory(f->bytes, f->used)); }

static bool same(const file *a, const file *b) { return a->used == b->used && memcmp(a->bytes, b->bytes, a->used) == 0; }

/* ---- the same bits ------------------------------------------------------------------------------------------------------ */

enum { TOTAL = 12, LATE = 5 };

/* A run that goes through; beside it one that was stopped after `at` steps and goes on in a new context with another seed. `gap`:
   it is stopped inside a step, after the parameter that comes late was made, before its first update. */
static void stop_and_go_on(tn_dtype dtype, const tn_optim_desc *d, int64_t at, int threads, bool gap, const tn_backend *backend)
{
    static file  saved, whole, parts, again;
    static model a, b;
    double       first[TOTAL], second[TOTAL];
    const int64_t late = LATE;
    if (!open_model(&a, dtype, d, 7, 1, backend) || !open_model(&b, dtype, d, 4711, threads, backend)) return;
    steps(&a, 0, at < late ? at : late, first);
    if (at > LATE || gap) add_late(&a);
    if (at > LATE) steps(&a, LATE, at, first);
    save(&a, &saved, NULL, 0);
    if (at < LATE) steps(&a, at, LATE, first);
    if (!a.has_late) add_late(&a);
    steps(&a, at < late ? late : at, TOTAL, first);
    save(&a, &whole, NULL, 0);

    if (at > LATE || gap) add_late(&b);
    steps(&b, 0, 2, second);                                        /* what it did before is forgotten */
    forward_and_back(&b, 5, &second[0]);                            /* and so is a gradient that waits */
    CHECK_STATUS(load(&b, &saved), TN_OK);
    CHECK_INT(tn_optim_step_count(b.optim), at);
    save(&b, &again, NULL, 0);
    CHECK(same(&saved, &again));
    if (at < LATE) steps(&b, at, LATE, second);
    if (!b.has_late) add_late(&b);
    steps(&b, at < late ? late : at, TOTAL, second);
    save(&b, &parts, NULL, 0);
    CHECK(same(&whole, &parts));
    CHECK(memcmp(first + at, second + at, sizeof *first * (size_t)(TOTAL - at)) == 0);
    CHECK(at == TOTAL || !same(&saved, &whole));
    close_world(&a.w);
    close_world(&b.w);
}

TEST(a_resumed_run_has_the_same_bits)
{
    for (int kind = 0; kind < 3; kind++)
        for (int dtype = 0; dtype < 2; dtype++)
            for (int64_t at = 0; at <= TOTAL; at += at == 0 ? 1 : 3) {
                tn_optim_desc d = rule((tn_optim_kind)kind);
                stop_and_go_on(dtype ? TN_F64 : TN_F32, &d, at, 1 + (int)(at % 3), false, NULL);
            }
    {
        tn_optim_desc d = rule(TN_OPTIM_MUON);
        stop_and_go_on(TN_F32, &d, LATE, 2, true, NULL);
        stop_and_go_on(TN_F32, &d, LATE, 3, false, NULL);
    }
}

TEST(a_resumed_run_on_other_backends)
{
    tn_optim_desc d = rule(TN_OPTIM_MUON);
    stop_and_go_on(TN_F32, &d, 7, 1, false, tn_reference_backend());
    if (test_leave_out(!SEALED, NO_SEALED)) return;
    stop_and_go_on(TN_F32, &d, 7, 1, false, sealed_cpu());
    stop_and_go_on(TN_F64, &d, 4, 1, false, sealed_sparse());
    CHECK_INT(sealed_damaged(), 0);
}

/* By path, and as weights. */
TEST(files_notes_and_weights)
{
    static const tn_metadata note[] = {{"config", "{\"layers\": 1}"}, {"position", "4711"}};
    static file    saved;
    static model   a, b;
    tn_optim_desc  d = rule(TN_OPTIM_ADAMW);
    double         loss[4];
    size_t         counted = 0;
    const char    *path = "build/test_checkpoint.safetensors";
    FILE          *probe = fopen(path, "wb");
    if (!probe) path = "test_checkpoint.safetensors";
    else fclose(probe);
    if (!open_model(&a, TN_F32, &d, 7, 1, NULL) || !open_model(&b, TN_F32, &d, 8, 1, NULL)) return;
    steps(&a, 0, 3, loss);
    save(&a, &saved, note, 2);
    CHECK_STATUS(tn_checkpoint_write(a.optim, tn_sink_memory(NULL, 0, &counted), note, 2), TN_OK);
    CHECK_INT(counted, saved.used);
    CHECK_STATUS(tn_checkpoint_write(a.optim, tn_sink_path(path), note, 2), TN_OK);
    tn_safetensors *f = tn_safetensors_open(b.w.ctx, tn_source_path(path));
    CHECK_STR(tn_safetensors_metadata(f, "config"), "{\"layers\": 1}");
    CHECK_STR(tn_safetensors_metadata(f, "position"), "4711");
    CHECK_STR(tn_safetensors_metadata(f, "tensornet.steps"), "3");
    CHECK_STR(tn_safetensors_metadata(f, "tensornet.version"), tn_version());
    CHECK_STR(tn_safetensors_metadata(f, "tensornet.optim"), "adamw");
    CHECK_STR(tn_safetensors_metadata(f, "tensornet.seed"), "7");
    CHECK_STR(tn_safetensors_metadata(f, "tensornet.lr"), "0.02");
    CHECK(tn_safetensors_find(f, "optim.v.embed.w") && !tn_safetensors_find(f, "optim.v.head.w") && !tn_safetensors_find(f, "optim.m.fixed.w"));
    tn_safetensors_close(f);
    CHECK_STATUS(tn_params_read(b.w.params, tn_source_path(path), TN_MATCH_IGNORE_EXTRA), TN_OK);
    {
        double p[VOCAB * DIM], q[VOCAB * DIM];
        tn_read(a.embed.w, TN_F64, p, VOCAB * DIM);
        tn_read(b.embed.w, TN_F64, q, VOCAB * DIM);
        CHECK(memcmp(p, q, sizeof p) == 0);
    }
    CHECK_STATUS(tn_checkpoint_read(b.optim, tn_source_path(path)), TN_OK);
    CHECK_INT(tn_optim_step_count(b.optim), 3);
    remove(path);
    close_world(&a.w);
    close_world(&b.w);
}

/* ---- what is refused ------------------------------------------------------------------------------------------------------ */

/* The checkpoint is refused with this status and message, and the model is as before. */
static void refused(model *m, const file *f, tn_status status, const char *part)
{
    static file before, after;
    save(m, &before, NULL, 0);
    CHECK_STATUS(load(m, f), status);
    CHECK_ERROR(m->w.ctx, status, part);
    save(m, &after, NULL, 0);
    CHECK(same(&before, &after));
}

/* Replaces text in the header by text of the same length. */
static void change(file *f, const char *from, const char *to)
{
    size_t n = strlen(from), i = 8;
    while (i + n < f->used && memcmp(f->bytes + i, from, n) != 0) i++;
    if (CHECK(i + n < f->used)) memcpy(f->bytes + i, to, n);
}

/* The same file as a version wrote it that knew no checksum. */
static void unseal(file *f)
{
    static const char entry[] = ",\"optim.checksum\":{";
    size_t            n = 8;
    while (n + sizeof entry < f->used && memcmp(f->bytes + n, entry, sizeof entry - 1) != 0) n++;
    if (!CHECK(n + sizeof entry < f->used)) return;
    while (f->bytes[n] != '}') f->bytes[n++] = ' ';
    f->bytes[n] = ' ';
    f->used -= 8;
    change(f, "\"tensornet.checkpoint\":\"2\"", "\"tensornet.checkpoint\":\"1\"");
}

/* Sets the checksum of a file that was changed to the one that the message names. */
static void reseal(tn_ctx *ctx, file *f)
{
    static const char before[] = "its checksum is ";
    const size_t      live = tn_ctx_memory(ctx).live;
    CHECK_STATUS(tn_checkpoint_check(ctx, tn_source_memory(f->bytes, f->used)), TN_ERR_FORMAT);
    const char *at = strstr(tn_ctx_error(ctx), before);
    if (!CHECK(at)) return;
    uint64_t sum = (uint64_t)strtoull(at + sizeof before - 1, NULL, 16);
    for (size_t i = 0; i < 8; i++) f->bytes[f->used - 8 + i] = (char)(sum >> 8 * i & 255);
    tn_ctx_clear_error(ctx);
    CHECK_STATUS(tn_checkpoint_check(ctx, tn_source_memory(f->bytes, f->used)), TN_OK);
    CHECK_INT(tn_ctx_memory(ctx).live, live);
}

TEST(another_optimiser_or_model)
{
    static file  saved, plain, other;
    static model a, b;
    tn_optim_desc d = rule(TN_OPTIM_MUON), e = rule(TN_OPTIM_ADAMW);
    double       loss[4];
    if (!open_model(&a, TN_F32, &d, 7, 1, NULL)) return;
    steps(&a, 0, 3, loss);
    save(&a, &saved, NULL, 0);
    plain = saved;
    unseal(&plain);

    if (!open_model(&b, TN_F32, &e, 8, 1, NULL)) return;
    steps(&b, 0, 2, loss);
    refused(&b, &saved, TN_ERR_ARG, "memory: the checkpoint's optimiser is \"muon\", expected \"adamw\"");
    other = plain;
    change(&other, "\"tensornet.optim\":\"muon\"", "\"tensornet.opti_\":\"muon\"");
    refused(&a, &other, TN_ERR_FORMAT, "not a checkpoint: no note tensornet.optim");
    other = plain;
    change(&other, "\"tensornet.checkpoint\":\"1\"", "\"tensornet.checkpoint\":\"3\"");
    refused(&a, &other, TN_ERR_FORMAT,
            "the checkpoint is damaged: tensor optim.checksum is missing, expected for format \"3\"");
    other = saved;
    change(&other, "\"tensornet.checkpoint\":\"2\"", "\"tensornet.checkpoint\":\"3\"");
    reseal(a.w.ctx, &other);
    refused(&a, &other, TN_ERR_FORMAT, "the checkpoint's format is \"3\", expected \"1\" or \"2\"");
    other = plain;
    change(&other, "\"tensornet.steps\":\"3\"", "\"tensornet.steps\":\"x\"");
    refused(&a, &other, TN_ERR_FORMAT, "note tensornet.steps is \"x\", expected an integer");
    other = plain;
    change(&other, "optim.v.norm.gain", "optim.v.norm.gaim");
    refused(&a, &other, TN_ERR_ARG, "parameter \"norm.gain\" has 1 moments in the file, expected 2 for its rule here, adamw");
    other = plain;
    change(&other, "optim.clock", "optim.cluck");
    refused(&a, &other, TN_ERR_FORMAT, "tensor optim.clock is missing");
    other = plain;
    change(&other, "\"mlp.w\"", "\"mlp.u\"");
    refused(&a, &other, TN_ERR_ARG, "parameter \"mlp.w\" [2,7,6] is not in the file");
    other = plain;
    change(&other, "\"shape\":[2,7,6]", "\"shape\":[2,6,7]");
    refused(&a, &other, TN_ERR_SHAPE, "[2,6,7]");
    CHECK_STATUS(tn_params_write(a.w.params, tn_sink_memory(other.bytes, ROOM, &other.used), NULL, 0), TN_OK);
    refused(&a, &other, TN_ERR_FORMAT, "not a checkpoint: no note tensornet.checkpoint");
    tn_params_use_adamw(a.w.params, "mlp.w");
    refused(&a, &saved, TN_ERR_ARG, "parameter \"mlp.w\" has 1 moments in the file, expected 2 for its rule here, adamw");
    tn_params_at(a.w.params, 2)->adamw = false;
    add_late(&a);
    refused(&a, &saved, TN_ERR_ARG, "parameter \"late.w\" [6,6] is not in the file");
    steps(&a, 3, 4, loss);
    save(&a, &other, NULL, 0);
    close_world(&a.w);

    if (!open_model(&a, TN_F32, &d, 7, 1, NULL)) return;
    refused(&a, &other, TN_ERR_ARG, "is neither a parameter here nor a moment of one");
    close_world(&a.w);
    if (!open_model(&a, TN_F64, &d, 7, 1, NULL)) return;
    refused(&a, &saved, TN_ERR_DTYPE, "is F32, expected the context's F64");
    close_world(&a.w);
    close_world(&b.w);
}

TEST(numbers_that_differ_are_named)
{
    static file  saved;
    static model a;
    tn_optim_desc d = rule(TN_OPTIM_SGD);
    double       loss[4], nan[1] = {(double)NAN};
    int64_t      one = 1;
    tn_init      init = ZERO;
    if (!open_model(&a, TN_F32, &d, 7, 1, NULL)) return;
    steps(&a, 0, 3, loss);
    tn_param *p = tn_params_add(a.w.params, "extra", 1, &one, init);
    tn_write(p->value, TN_F64, nan, 1);
    save(&a, &saved, NULL, 0);
    warnings = 0;
    CHECK_STATUS(load(&a, &saved), TN_OK);
    CHECK(warnings == 1 && was_warned("tensor \"extra\" holds numbers that are not finite"));
    tn_optim_destroy(a.optim);
    d.lr = 0.25;
    d.schedule.total = 100;
    a.optim = tn_optim_create(a.w.params, &d);
    warnings = 0;
    CHECK_STATUS(load(&a, &saved), TN_OK);
    CHECK(warnings == 3 && was_warned("lr is \"0.05\" in the checkpoint and 0.25 here") && was_warned("schedule.total is \"14\" in the checkpoint and 100 here"));
    CHECK_NEAR(tn_optim_lr(a.optim), 0.25, 0);
    close_world(&a.w);
}

static bool no_store(void *user, const void *src, size_t bytes)
{
    size_t *left = (size_t *)user;
    (void)src;
    if (bytes > *left) return false;
    *left -= bytes;
    return true;
}

TEST(bad_calls)
{
    static file  saved;
    static model a;
    static const tn_metadata own = {"tensornet.steps", "3"}, twice[2] = {{"a", "1"}, {"a", "2"}}, none = {NULL, NULL};
    tn_optim_desc d = rule(TN_OPTIM_MUON);
    int64_t      one = 1;
    size_t       left = 300;
    tn_init      init = ZERO;
    CHECK_STATUS(tn_checkpoint_write(NULL, tn_sink_memory(NULL, 0, NULL), NULL, 0), TN_ERR_ARG);
    CHECK_STATUS(tn_checkpoint_read(NULL, tn_source_memory(NULL, 0)), TN_ERR_ARG);
    if (!open_model(&a, TN_F32, &d, 7, 1, NULL)) return;
    CHECK_STATUS(tn_checkpoint_write(a.optim, tn_sink_memory(saved.bytes, ROOM, &saved.used), &own, 1), TN_ERR_ARG);
    CHECK_ERROR(a.w.ctx, TN_ERR_ARG, "note \"tensornet.steps\": the prefix tensornet. is reserved");
    CHECK_STATUS(tn_checkpoint_write(a.optim, tn_sink_memory(saved.bytes, ROOM, &saved.used), twice, 2), TN_ERR_ARG);
    CHECK_ERROR(a.w.ctx, TN_ERR_ARG, "the name \"a\" occurs twice");
    FAILS(a.w.ctx, tn_checkpoint_write(a.optim, tn_sink_memory(saved.bytes, ROOM, &saved.used), &none, 1), TN_ERR_ARG, "NULL");
    CHECK_STATUS(tn_checkpoint_write(a.optim, tn_sink_memory(saved.bytes, ROOM, &saved.used), NULL, 1), TN_ERR_ARG);
    CHECK_ERROR(a.w.ctx, TN_ERR_ARG, "checkpoint: 1 notes at NULL, expected a list");
    CHECK_STATUS(tn_checkpoint_write(a.optim, tn_sink_memory(saved.bytes, ROOM, &saved.used), NULL, -1), TN_ERR_ARG);
    CHECK_ERROR(a.w.ctx, TN_ERR_ARG, "checkpoint: -1 notes");
    CHECK_STATUS(tn_checkpoint_write(a.optim, tn_sink_memory(saved.bytes, 100, &saved.used), NULL, 0), TN_ERR_FILE);
    CHECK_ERROR(a.w.ctx, TN_ERR_FILE, "the file is larger than the memory: ");
    CHECK_STATUS(tn_checkpoint_write(a.optim, tn_sink_calls(no_store, &left), NULL, 0), TN_ERR_FILE);
    CHECK_ERROR(a.w.ctx, TN_ERR_FILE, "could not be written");
    CHECK_STATUS(tn_checkpoint_read(a.optim, tn_source_path("no/such/file")), TN_ERR_FILE);
    CHECK_ERROR(a.w.ctx, TN_ERR_FILE, "no/such/file");
    CHECK(tn_params_add(a.w.params, "optim.m.mlp.w", 1, &one, init) != NULL);
    CHECK_STATUS(tn_checkpoint_write(a.optim, tn_sink_memory(saved.bytes, ROOM, &saved.used), NULL, 0), TN_ERR_ARG);
    CHECK_ERROR(a.w.ctx, TN_ERR_ARG, "parameter optim.m.mlp.w: the prefix optim. is reserved");
    tn_tensor *x = tn_tensor_1d(a.w.ctx, TN_REAL, 1);
    CHECK(x != NULL);
    tn_params_destroy(a.w.params);
    CHECK_STATUS(tn_checkpoint_write(a.optim, tn_sink_memory(saved.bytes, ROOM, &saved.used), NULL, 0), TN_ERR_ARG);
    CHECK_ERROR(a.w.ctx, TN_ERR_ARG, "the optimiser's parameters were destroyed");
    CHECK_STATUS(tn_checkpoint_read(a.optim, tn_source_memory(saved.bytes, 10)), TN_ERR_ARG);
    CHECK_ERROR(a.w.ctx, TN_ERR_ARG, "the optimiser's parameters were destroyed");
    close_world(&a.w);
}

/* ---- damaged files ------------------------------------------------------------------------------------------------------------ */

typedef struct tiny { world w; tn_param *p, *q; tn_optim *optim; } tiny;

/* Two parameters, one in double steps behind: little to damage, but of all kinds. */
static bool open_tiny(tiny *t, uint64_t seed, int updates)
{
    static const int64_t shape[2] = {2, 3};
    tn_optim_desc d = ZERO;
    tn_init       init = ZERO;
    d.kind = TN_OPTIM_MUON;
    init.rule = TN_INIT_NORMAL;
    if (!open_on(&t->w, TN_F32, seed, 1, NULL)) return false;
    t->p = tn_params_add(t->w.params, "p", 2, shape, init);
    t->optim = tn_optim_create(t->w.params, &d);
    for (int i = 0; i < updates; i++) {
        if (i == 1) t->q = tn_params_add(t->w.params, "q", 1, shape, init);
        tn_ctx_reset(t->w.ctx);
        tn_record(t->w.ctx);
        CHECK_STATUS(tn_backward(t->w.ctx, tn_sum(t->w.ctx, tn_dropout(t->w.ctx, i > 0 ? tn_mul(t->w.ctx, t->p->value,
            tn_sum(t->w.ctx, t->q->value)) : t->p->value, 0.5))), TN_OK);
        CHECK_STATUS(tn_optim_step(t->optim), TN_OK);
    }
    return CHECK(t->p && t->optim);
}

static void everything(tiny *t, file *f)
{
    CHECK_STATUS(tn_checkpoint_write(t->optim, tn_sink_memory(f->bytes, ROOM, &f->used), NULL, 0), TN_OK);
}

TEST(cut_off_at_every_byte)
{
    static file saved, before, after;
    tiny        t;
    if (!open_tiny(&t, 1, 3)) return;
    everything(&t, &saved);
    close_world(&t.w);
    if (!open_tiny(&t, 2, 2)) return;
    everything(&t, &before);
    CHECK(!same(&saved, &before));
    for (size_t n = 0; n < saved.used; n++) {
        FAILS(t.w.ctx, tn_checkpoint_read(t.optim, tn_source_memory(saved.bytes, n)), TN_ERR_FORMAT, "memory: byte ");
        everything(&t, &after);
        CHECK(same(&before, &after));
    }
    CHECK_STATUS(tn_checkpoint_read(t.optim, tn_source_memory(saved.bytes, saved.used)), TN_OK);
    everything(&t, &after);
    CHECK(same(&saved, &after));
    close_world(&t.w);
}

static size_t header_bytes(const file *f)
{
    return 8 + (size_t)(unsigned char)f->bytes[0] + 256 * (size_t)(unsigned char)f->bytes[1];
}

TEST(a_file_without_checksum)
{
    static file saved, old, after;
    tiny        t;
    if (!open_tiny(&t, 1, 3)) return;
    everything(&t, &saved);
    close_world(&t.w);
    if (!open_tiny(&t, 2, 2)) return;
    old = saved;
    unseal(&old);
    CHECK_STATUS(tn_checkpoint_check(t.w.ctx, tn_source_memory(saved.bytes, saved.used)), TN_OK);
    CHECK_STATUS(tn_checkpoint_check(t.w.ctx, tn_source_memory(old.bytes, old.used)), TN_OK);
    FAILS(t.w.ctx, tn_checkpoint_check(t.w.ctx, tn_source_memory(saved.bytes, saved.used - 1)), TN_ERR_FORMAT, "memory: byte ");
    CHECK_STATUS(tn_checkpoint_check(NULL, tn_source_memory(saved.bytes, saved.used)), TN_ERR_ARG);
    CHECK_STATUS(tn_checkpoint_read(t.optim, tn_source_memory(old.bytes, old.used)), TN_OK);
    everything(&t, &after);
    CHECK(same(&saved, &after));
    close_world(&t.w);
}

/* Each bit of a file: refused by both functions, and nothing has changed. */
TEST(every_bit)
{
    static file saved, bad, before, after;
    tiny        t;
    int64_t     damaged = 0;
    if (!open_tiny(&t, 1, 3)) return;
    everything(&t, &saved);
    close_world(&t.w);
    if (!open_tiny(&t, 2, 2)) return;
    everything(&t, &before);
    CHECK(header_bytes(&saved) + 50 < saved.used);
    for (size_t bit = 0; bit < 8 * saved.used; bit++) {
        const char *message = bit < 8 * header_bytes(&saved) ? "memory: "
                            : "memory: the checkpoint is damaged: its checksum is ";
        bad = saved;
        bad.bytes[bit / 8] = (char)(bad.bytes[bit / 8] ^ 1 << bit % 8);
        FAILS(t.w.ctx, tn_checkpoint_read(t.optim, tn_source_memory(bad.bytes, bad.used)), TN_ERR_FORMAT, message);
        CHECK_STATUS(tn_checkpoint_check(t.w.ctx, tn_source_memory(bad.bytes, bad.used)), TN_ERR_FORMAT);
        damaged += strstr(tn_ctx_error(t.w.ctx), "tensor optim.checksum is missing") != NULL;
        CHECK_ERROR(t.w.ctx, TN_ERR_FORMAT, message);
        everything(&t, &after);
        CHECK(same(&before, &after));
    }
    CHECK(damaged > 8 * 10);                                 /* flips in the name optim.checksum */
    close_world(&t.w);
}

/* The message has the two checksums: that of the data and the one at the end of the file. */
TEST(both_checksums_are_printed)
{
    static file saved;
    tiny        t;
    char        expected[64];
    uint64_t    last = 0;
    if (!open_tiny(&t, 1, 3)) return;
    everything(&t, &saved);
    for (int i = 8; i-- > 0;) last = last << 8 | (unsigned char)saved.bytes[saved.used - 8 + (size_t)i];
    saved.bytes[saved.used - 1] = 0;                         /* the highest digits: zeros are printed, too */
    snprintf(expected, sizeof expected, "its checksum is %016llx, expected %016llx", (unsigned long long)last,
             (unsigned long long)(last & (UINT64_MAX >> 8)));
    FAILS(t.w.ctx, tn_checkpoint_check(t.w.ctx, tn_source_memory(saved.bytes, saved.used)), TN_ERR_FORMAT, expected);
    close_world(&t.w);
}

/* Each bit of a header without a checksum: refused, and nothing has changed; or it was a note's value, which another one
   replaces. */
TEST(every_bit_of_a_header_without_checksum)
{
    static file saved, bad, before, after;
    tiny        t;
    int64_t     refusals = 0, taken = 0;
    if (!open_tiny(&t, 1, 3)) return;
    everything(&t, &saved);
    unseal(&saved);
    close_world(&t.w);
    if (!open_tiny(&t, 2, 2)) return;
    everything(&t, &before);
    size_t header = header_bytes(&saved);
    CHECK(header < saved.used);
    for (size_t bit = 0; bit < 8 * header; bit++) {
        bad = saved;
        bad.bytes[bit / 8] = (char)(bad.bytes[bit / 8] ^ 1 << bit % 8);
        tn_status s = tn_checkpoint_read(t.optim, tn_source_memory(bad.bytes, bad.used));
        if (s == TN_OK) {
            taken++;
            CHECK_CTX(t.w.ctx);
            everything(&t, &before);
            continue;
        }
        refusals++;
        CHECK(tn_ctx_error(t.w.ctx)[0] != 0);
        tn_ctx_clear_error(t.w.ctx);
        everything(&t, &after);
        CHECK(same(&before, &after));
    }
    CHECK(refusals > taken && taken > 0);
    close_world(&t.w);
}

/* Counts that cannot be: they would divide by zero. */
TEST(counts_that_contradict)
{
    static file saved, bad, before, after;
    tiny        t;
    float       scalars[8];
    size_t      at = 0;
    if (!open_tiny(&t, 1, 3)) return;
    everything(&t, &saved);
    unseal(&saved);
    close_world(&t.w);
    if (!open_tiny(&t, 2, 2)) return;
    everything(&t, &before);
    {
        tn_safetensors *f = tn_safetensors_open(t.w.ctx, tn_source_memory(saved.bytes, saved.used));
        const tn_safetensors_entry *e = tn_safetensors_find(f, "optim.scalars");
        if (CHECK(e && e->bytes == sizeof scalars)) at = (size_t)e->offset;
        tn_safetensors_close(f);
    }
    for (int k = 0; k < 6; k++) {
        bad = saved;
        memcpy(scalars, bad.bytes + at, sizeof scalars);
        if (k == 0) scalars[1] = 0;                             /* q came after one update */
        if (k == 1) scalars[1] = 4;                             /* in three steps */
        if (k == 2) scalars[1] = (float)NAN;
        if (k == 3) scalars[2] = 1;
        if (k == 4) scalars[2] = (float)NAN;
        if (k == 5) scalars[1] = -1;
        memcpy(bad.bytes + at, scalars, sizeof scalars);
        CHECK_STATUS(tn_checkpoint_read(t.optim, tn_source_memory(bad.bytes, bad.used)), TN_ERR_FORMAT);
        CHECK_ERROR(t.w.ctx, TN_ERR_FORMAT, "memory: tensor optim.scalars has ");
        everything(&t, &after);
        CHECK(same(&before, &after));
    }
    close_world(&t.w);
}

/* The same file with another value of one note, of any length. */
static bool with_note(file *out, const file *in, const char *key, const char *value)
{
    char   quoted[64];
    size_t n = 8, header = 0, from, to, m = strlen(value);
    for (int i = 7; i >= 0; i--) header = header * 256 + (unsigned char)in->bytes[i];
    snprintf(quoted, sizeof quoted, "\"%s\":\"", key);
    while (n + strlen(quoted) < 8 + header && memcmp(in->bytes + n, quoted, strlen(quoted)) != 0) n++;
    from = to = n + strlen(quoted);
    while (to < 8 + header && in->bytes[to] != '"') to++;
    if (!CHECK(to < 8 + header && in->used + m <= ROOM)) return false;
    memcpy(out->bytes, in->bytes, from);
    memcpy(out->bytes + from, value, m);
    memcpy(out->bytes + from + m, in->bytes + to, in->used - to);
    out->used = in->used - (to - from) + m;
    header = header - (to - from) + m;
    for (int i = 0; i < 8; i++) out->bytes[i] = (char)((uint64_t)header >> 8 * i & 255);
    return true;
}

/* Counts up to 2^53, a seed of up to 64 bits; what is beyond would not come back as it was written, or wrap around. */
TEST(counts_that_are_too_large)
{
    static const struct { const char *key, *value; bool good; } tried[] = {
        {"tensornet.steps", "9007199254740992", true},      {"tensornet.steps", "9007199254740993", false},
        {"tensornet.steps", "18446744073709551615", false}, {"tensornet.steps", "18446744073709551616", false},
        {"tensornet.steps", "18446744073709551617", false}, {"tensornet.steps", "18446744073709551619", false},
        {"tensornet.steps", "99999999999999999999", false}, {"tensornet.steps", "184467440737095516170", false},
        {"tensornet.steps", "340282366920938463463374607431768211459", false},
        {"tensornet.steps", "-3", false},                   {"tensornet.steps", "3 ", false},
        {"tensornet.steps", "0x3", false},                  {"tensornet.steps", "", false},
        {"tensornet.steps", "3", true},                     {"tensornet.calls", "9007199254740992", true},
        {"tensornet.calls", "9007199254740993", false},     {"tensornet.calls", "18446744073709551617", false},
        {"tensornet.seed", "18446744073709551615", true},   {"tensornet.seed", "18446744073709551616", false},
        {"tensornet.seed", "18446744073709551617", false},  {"tensornet.seed", "99999999999999999999", false}
    };
    static file saved, bad, before, after;
    tiny        t;
    if (!open_tiny(&t, 1, 3)) return;
    everything(&t, &saved);
    unseal(&saved);
    close_world(&t.w);
    for (size_t k = 0; k < sizeof tried / sizeof *tried; k++) {
        char part[128];
        if (!open_tiny(&t, 2, 2)) return;
        everything(&t, &before);
        if (with_note(&bad, &saved, tried[k].key, tried[k].value)) {
            const tn_status s = tn_checkpoint_read(t.optim, tn_source_memory(bad.bytes, bad.used));
            const int       failures = test_now.failures;
            CHECK_STATUS(s, tried[k].good ? TN_OK : TN_ERR_FORMAT);
            snprintf(part, sizeof part, "memory: note %s is \"%s\"", tried[k].key, tried[k].value);
            if (tried[k].good) CHECK_CTX(t.w.ctx);
            else CHECK_ERROR(t.w.ctx, TN_ERR_FORMAT, part);
            everything(&t, &after);
            if (tried[k].good) {
                tn_safetensors *f = tn_safetensors_open(t.w.ctx, tn_source_memory(after.bytes, after.used));
                CHECK_STR(tn_safetensors_metadata(f, tried[k].key), tried[k].value);
                tn_safetensors_close(f);
            } else CHECK(same(&after, &before));
            if (test_now.failures > failures) printf("     %s = %s\n", tried[k].key, tried[k].value);
        }
        close_world(&t.w);
    }
}

/* Each allocation fails once, in writing and in reading: all or nothing, no leak. */
TEST(no_memory)
{
    static file saved, before, after;
    tiny        t;
    int         failed[2] = {0, 0};
    if (!open_tiny(&t, 1, 3)) return;
    everything(&t, &saved);
    close_world(&t.w);
    for (uint64_t k = 1; k < 60; k++) {
        if (!open_tiny(&t, 2, 2)) return;
        everything(&t, &before);
        size_t live = t.w.heap.live;
        t.w.heap.count = 0;
        t.w.heap.fail_at = k;
        tn_status s = tn_checkpoint_write(t.optim, tn_sink_memory(after.bytes, ROOM, &after.used), NULL, 0);
        t.w.heap.fail_at = 0;
        if (s != TN_OK) { failed[0]++; CHECK_ERROR(t.w.ctx, TN_ERR_MEMORY, ""); }
        CHECK_INT(t.w.heap.live, live);
        t.w.heap.count = 0;
        t.w.heap.fail_at = k;
        s = tn_checkpoint_read(t.optim, tn_source_memory(saved.bytes, saved.used));
        t.w.heap.fail_at = 0;
        if (s != TN_OK) { failed[1]++; CHECK_ERROR(t.w.ctx, TN_ERR_MEMORY, ""); }
        everything(&t, &after);
        CHECK(same(&after, s == TN_OK ? &saved : &before));
        close_world(&t.w);
    }
    CHECK(failed[0] > 5 && failed[1] > 10);
}

/* Every kind of number that is not finite is reported. */
TEST(infinities_of_both_signs_are_named)
{
    static const double odd[3] = {HUGE_VAL, -HUGE_VAL, (double)NAN};
    static file   saved;
    static model  a;
    tn_optim_desc d = rule(TN_OPTIM_SGD);
    int64_t       one = 1;
    tn_init       init = ZERO;
    if (!open_model(&a, TN_F32, &d, 7, 1, NULL)) return;
    tn_param *p = tn_params_add(a.w.params, "extra", 1, &one, init);
    for (int i = 0; i < 4; i++) {
        double v = i < 3 ? odd[i] : 1e30;
        tn_write(p->value, TN_F64, &v, 1);
        save(&a, &saved, NULL, 0);
        warnings = 0;
        CHECK_STATUS(load(&a, &saved), TN_OK);
        CHECK(i < 3 ? warnings == 1 && was_warned("tensor \"extra\" holds numbers that are not finite") : warnings == 0);
    }
    close_world(&a.w);
}

TEST_MAIN(a_resumed_run_has_the_same_bits, a_resumed_run_on_other_backends, files_notes_and_weights, another_optimiser_or_model,
          numbers_that_differ_are_named, bad_calls, cut_off_at_every_byte, a_file_without_checksum, every_bit,
          both_checksums_are_printed, every_bit_of_a_header_without_checksum, counts_that_contradict, counts_that_are_too_large,
          no_memory, infinities_of_both_signs_are_named)
