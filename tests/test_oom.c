/* test_oom.c: memory that ends, at every allocation of everything the library does.

   A script is a piece of work that a program may do. It runs once undisturbed; then with its k-th allocation failing, k = 1, 2, 3 ...
   until it passes, alone and with all after it; then under a max_bytes that falls. Each time: TN_ERR_MEMORY with a message that says
   what for, nothing left behind, what it was given unchanged, and once memory is back the same bits from the same context. */

#include "net.h"

/* ---- backends -------------------------------------------------------------------
   Other tables over the memory and kernels of a usual backend: `device` has all rows of the cpu but is no host, `bare` has none, so
   that every kernel runs on copies that are allocated for it. Usual backends take their memory from desc.allocator: so this is where
   device memory fails, too. */

typedef struct shell { const tn_backend *inner; void *state; tn_allocator mem; } shell;

static tn_status shell_open(const tn_desc *desc, const tn_backend *inner, void **state, char why[256])
{
    shell *s = (shell *)desc->allocator.alloc(sizeof *s, desc->allocator.user);
    if (!s) { snprintf(why, 256, "no memory for a shell"); return TN_ERR_MEMORY; }
    s->inner = inner;
    s->mem = desc->allocator;
    tn_status status = inner->open(desc, &s->state, why);
    if (status == TN_OK) *state = s;
    else s->mem.release(s, sizeof *s, s->mem.user);
    return status;
}

static tn_status shell_open_device(const tn_desc *d, void **state, char why[256])
{
    return shell_open(d, tn_cpu_backend(), state, why);
}

static tn_status shell_open_bare(const tn_desc *d, void **state, char why[256])
{
    return shell_open(d, tn_reference_backend(), state, why);
}

static void shell_close(void *state)
{
    shell *s = (shell *)state;
    s->inner->close(s->state);
    s->mem.release(s, sizeof *s, s->mem.user);
}

static void *shell_alloc(void *state, size_t n)            { shell *s = (shell *)state; return s->inner->alloc(s->state, n); }
static void  shell_release(void *state, void *p, size_t n) { shell *s = (shell *)state; s->inner->release(s->state, p, n); }
static tn_status shell_run(void *state, const tn_call *c)  { shell *s = (shell *)state; return s->inner->fn[c->kernel](s->state, c); }

static tn_status shell_move(void *state, void *to, const void *from, size_t n)
{
    shell *s = (shell *)state;
    return s->inner->upload(s->state, to, from, n);
}

static const tn_backend *shell_make(tn_backend *b, const char *name, tn_status (*open)(const tn_desc *, void **, char *), bool rows)
{
    memset(b, 0, sizeof *b);
    b->abi = TN_BACKEND_ABI;
    b->name = name;
    b->open = open;
    b->close = shell_close;
    b->alloc = shell_alloc;
    b->release = shell_release;
    b->upload = b->download = shell_move;
    for (int k = 0; rows && k < TN_KERNEL_COUNT; k++) b->fn[k] = tn_cpu_backend()->fn[k] ? shell_run : NULL;
    return b;
}

static const tn_backend *device(void) { static tn_backend b; return b.abi ? &b : shell_make(&b, "device", shell_open_device, true); }
static const tn_backend *bare(void)   { static tn_backend b; return b.abi ? &b : shell_make(&b, "bare", shell_open_bare, false); }

/* ---- what a script is given and what it gives ------------------------------------- */

enum { INPUTS = 4, BYTES = 1 << 16 };

typedef struct work {
    tn_ctx    *ctx;
    tn_tensor *in[INPUTS];              /* made before memory fails, owned           */
    tn_params *params;
    net        m;                       /* made of params                            */
    bool       changed;                 /* the script has done what changes params   */
    uint64_t   hash;                    /* of all results, in their order            */
} work;

static void hash_bytes(work *w, const void *p, size_t n)                /* FNV-1a, Fowler, Noll & Vo 1991 */
{
    for (size_t i = 0; i < n; i++) w->hash = (w->hash ^ ((const unsigned char *)p)[i]) * 0x100000001B3u;
}

/* false where t is NULL or cannot be read */
static bool hash_tensor(work *w, const tn_tensor *t)
{
    int64_t n = tn_tensor_count(t);
    double *v = t ? (double *)malloc((size_t)(n + 1) * sizeof *v) : NULL;
    bool    ok = v && tn_read(t, TN_F64, v, n) == TN_OK;
    if (ok) hash_bytes(w, t->shape, sizeof *t->shape * (size_t)t->rank);
    if (ok) hash_bytes(w, v, sizeof *v * (size_t)n);
    free(v);
    return ok;
}

static uint64_t hash_inputs(const work *given)
{
    work w = *given;
    w.hash = 0;
    for (int i = 0; i < INPUTS && w.in[i]; i++) CHECK(hash_tensor(&w, w.in[i]));
    for (int64_t i = 0; i < tn_params_count(w.params); i++) CHECK(hash_tensor(&w, tn_params_at(w.params, i)->value));
    return w.hash;
}

/* What a script has made, to be given back in whatever state it ends. */
typedef struct bag { tn_cp *cp[32]; tn_tensor *t[32]; int cps, ts; } bag;

static bool keep(bag *b, work *w, tn_tensor *t) { return (b->t[b->ts++] = t) != NULL && hash_tensor(w, t); }

static bool keep_cp(bag *b, work *w, tn_cp *cp)
{
    b->cp[b->cps++] = cp;
    if (!cp || !hash_tensor(w, cp->p)) return false;
    for (int k = 0; k < cp->order; k++) if (!hash_tensor(w, cp->f[k])) return false;
    return true;
}

static void empty(bag *b)
{
    while (b->cps > 0) tn_cp_destroy(b->cp[--b->cps]);
    while (b->ts > 0) tn_tensor_destroy(b->t[--b->ts]);
}

static tn_tensor *made(tn_ctx *ctx, uint64_t seed, int rank, int64_t a, int64_t b)
{
    int64_t n = rank == 1 ? a : a * b;
    double  v[128];
    int64_t shape[2] = {a, b};
    for (int64_t i = 0; i < n; i++) v[i] = test_random_real(&seed);
    tn_tensor *t = tn_tensor_create(ctx, TN_REAL, rank, shape);
    CHECK(t && n <= 128 && tn_write(t, TN_F64, v, n) == TN_OK);
    return t;
}

/* ---- the scripts --------------------------------------------------------------------- */

static bool net_step(work *w, net *m, tn_optim *optim)
{
    double value;
    if (!net_train(w->ctx, m, optim, &value)) return false;
    w->changed = true;
    hash_bytes(w, &value, sizeof value);
    return true;
}

static bool write_params(work *w, tn_params *params)
{
    static unsigned char bytes[BYTES];
    static const tn_metadata note[] = {{"made by", "test"}};
    size_t used = 0;
    if (tn_params_write(params, tn_sink_memory(bytes, BYTES, &used), note, 1) != TN_OK) return false;
    hash_bytes(w, bytes, used);
    return used > 0;
}

static bool train(work *w)
{
    tn_params *params = tn_params_create(w->ctx);
    tn_optim  *optim = NULL;
    net        m;
    bool       ok = params && net_make(params, &m) && (optim = net_optim(params)) != NULL;
    for (int step = 0; step < 3 && ok; step++) ok = net_step(w, &m, optim);
    ok = ok && write_params(w, params) && tn_optim_grad_norm(optim) > 0;
    tn_optim_destroy(optim);
    tn_params_destroy(params);
    return ok;
}

static void params_are_given(work *w)
{
    w->params = tn_params_create(w->ctx);
    CHECK(net_make(w->params, &w->m));
}

/* A step that fails before its update leaves the parameters as they were. */
static bool one_step(work *w)
{
    tn_optim *optim = tn_optim_create(w->params, NULL);
    bool      ok = optim && net_step(w, &w->m, optim);
    tn_params_freeze(w->params, "");          /* the gradients go */
    tn_params_thaw(w->params, "");
    tn_optim_destroy(optim);
    return ok && write_params(w, w->params);
}

/* Files that the undisturbed library wrote, once. */
static unsigned char model_file[BYTES], npy_file[BYTES], fortran_file[BYTES];
static size_t        model_bytes, npy_bytes, fortran_bytes;
static const unsigned char idx_file[] = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 250, 251, 255};

static void files_are_given(work *w)
{
    static const char order[] = "'fortran_order': False", other[] = "'fortran_order': True ";
    params_are_given(w);
    w->in[0] = made(w->ctx, 1, 2, 5, 4);
    CHECK_STATUS(tn_params_write(w->params, tn_sink_memory(model_file, BYTES, &model_bytes), NULL, 0), TN_OK);
    CHECK_STATUS(tn_npy_write(w->in[0], tn_sink_memory(npy_file, BYTES, &npy_bytes)), TN_OK);
    memcpy(fortran_file, npy_file, fortran_bytes = npy_bytes);
    for (size_t i = 0; i + sizeof order <= npy_bytes; i++)
        if (memcmp(fortran_file + i, order, sizeof order - 1) == 0) memcpy(fortran_file + i, other, sizeof other - 1);
}

static bool load_safetensors(work *w)
{
    tn_safetensors *file = tn_safetensors_open(w->ctx, tn_source_memory(model_file, model_bytes));
    bag             b = ZERO;
    bool            ok = file != NULL;
    for (int64_t i = 0; i < tn_safetensors_count(file) && ok; i++)
        ok = keep(&b, w, tn_safetensors_read(file, tn_safetensors_at(file, i)->name));
    empty(&b);
    tn_safetensors_close(file);
    return ok;
}

static bool load_params(work *w)
{
    w->changed = tn_params_read(w->params, tn_source_memory(model_file, model_bytes), TN_MATCH_ALL) == TN_OK;
    return w->changed && write_params(w, w->params);
}

/* The parameters are others than the file's: a failed load must not have begun to set them. */
static void load_is_given(work *w)
{
    files_are_given(w);
    for (int64_t i = 0; i < tn_params_count(w->params); i++) {
        tn_tensor *t = tn_params_at(w->params, i)->value;
        double     seven[128];
        for (int k = 0; k < 128; k++) seven[k] = 7;
        CHECK(tn_tensor_count(t) <= 128 && tn_write(t, TN_F64, seven, tn_tensor_count(t)) == TN_OK);
    }
}

static bool load_arrays(work *w)
{
    static unsigned char out[BYTES];
    tn_tensor *turned = tn_transpose(w->in[0], 0, 1);
    size_t     used = 0;
    bag        b = ZERO;
    bool ok = keep(&b, w, tn_npy_read(w->ctx, tn_source_memory(npy_file, npy_bytes)))
        && keep(&b, w, tn_npy_read(w->ctx, tn_source_memory(fortran_file, fortran_bytes)))
        && keep(&b, w, tn_idx_read(w->ctx, tn_source_memory(idx_file, sizeof idx_file), 0))
        && keep(&b, w, tn_idx_read(w->ctx, tn_source_memory(idx_file, sizeof idx_file), 1 / 255.0))
        && turned && tn_npy_write(turned, tn_sink_memory(out, BYTES, &used)) == TN_OK;
    if (ok) hash_bytes(w, out, used);
    empty(&b);
    return ok;
}

static bool select_parts(work *w)
{
    static const int32_t condition[5] = {1, 0, 0, 1, 1}, id[6] = {4, 0, 1, 1, 3, 2};
    const int64_t five = 5, six = 6;
    tn_tensor    *x = w->in[0], *part[2];
    bag           b = ZERO;
    tn_record(w->ctx);
    part[0] = x ? tn_copy(w->ctx, x) : NULL;                 /* [7,5] */
    if (!part[0] || tn_watch(part[0]) != TN_OK) return false;
    part[1] = tn_sqrt(w->ctx, tn_exp(w->ctx, part[0]));
    tn_tensor *y = part[1] ? tn_where(w->ctx, tn_tensor_from(w->ctx, 1, &five, TN_I32, condition), part[0], part[1]) : NULL;
    y = y ? tn_div(w->ctx, tn_softmax(w->ctx, y), part[1]) : NULL;
    tn_tensor *ids = y ? tn_tensor_from(w->ctx, 1, &six, TN_I32, id) : NULL;
    part[1] = y;
    tn_tensor *z = ids ? tn_gather(w->ctx, tn_concat(w->ctx, 2, part, 1), 1, ids) : NULL;
    y = z ? tn_log_softmax(w->ctx, tn_stack(w->ctx, 2, part, 1)) : NULL;
    bool ok = y && tn_backward(w->ctx, tn_add(w->ctx, tn_sum(w->ctx, z), tn_mean(w->ctx, y))) == TN_OK
        && keep(&b, w, tn_tensor_keep(part[0])) && keep(&b, w, tn_tensor_keep(part[1])) && keep(&b, w, tn_tensor_keep(z))
        && keep(&b, w, tn_tensor_keep(y)) && keep(&b, w, tn_tensor_keep(ids)) && keep(&b, w, tn_tensor_keep(part[0]->grad));
    empty(&b);
    return ok;
}

static void matrices_are_given(work *w)
{
    w->in[0] = made(w->ctx, 2, 2, 7, 5);
    w->in[1] = made(w->ctx, 3, 2, 6, 6);
}

static bool decompose(work *w)
{
    tn_qr_desc     qd = ZERO;
    tn_eigh_desc   ed = ZERO;
    tn_svd_desc    sd = ZERO;
    tn_qr_result   q;
    tn_eigh_result e;
    tn_svd_result  s;
    qd.measure = ed.measure = ed.symmetrise = sd.measure = true;
    ed.top = sd.top = 3;
    ed.order = TN_EIGH_MAGNITUDE;
    bool ok = tn_qr(w->ctx, w->in[0], &qd, &q) == TN_OK;
    CHECK(ok ? q.q && q.r : !q.q && !q.r);
    ok = ok && hash_tensor(w, q.q) && hash_tensor(w, q.r);
    tn_qr_destroy(&q);
    ok = ok && tn_eigh(w->ctx, w->in[1], &ed, &e) == TN_OK;
    if (ok) {
        ok = hash_tensor(w, e.values) && hash_tensor(w, e.vectors);
        tn_eigh_destroy(&e);
    }
    ok = ok && tn_svd(w->ctx, w->in[0], &sd, &s) == TN_OK;
    if (!ok) return false;
    ok = hash_tensor(w, s.u) && hash_tensor(w, s.s) && hash_tensor(w, s.vt);
    tn_svd_destroy(&s);
    return ok;
}

static void factors_are_given(work *w)
{
    w->in[0] = made(w->ctx, 4, 2, 3, 4);        /* P of 3 outputs, 4 terms         */
    w->in[1] = made(w->ctx, 5, 2, 4, 10);       /* W: 2 terms < 10, the small problem */
    w->in[2] = made(w->ctx, 6, 2, 4, 10);       /* V                               */
    w->in[3] = made(w->ctx, 7, 1, 3, 0);        /* a direction of output           */
}

static bool compare(work *w, const tn_cp *a, const tn_cp *b)
{
    double v[2];
    if (tn_cp_norm(a, &v[0]) != TN_OK || tn_cp_cosine(a, b, &v[1]) != TN_OK) return false;
    hash_bytes(w, v, sizeof v);
    return true;
}

static bool pairs(work *w, const tn_cp *cp, bool all)
{
    tn_eigenpairs e;
    bool     ok = (all ? tn_cp_eigen_all(cp, 0, &e) : tn_cp_eigen(cp, w->in[3], 2, &e)) == TN_OK;
    if (!ok) CHECK(!e.values && !e.vectors);
    ok = ok && hash_tensor(w, e.values) && hash_tensor(w, e.vectors);
    tn_eigenpairs_destroy(&e);
    return ok;
}

static bool operate(work *w)
{
    tn_ctx    *ctx = w->ctx;
    tn_tensor *u = w->in[3], *e = w->in[1];
    bag        b = ZERO;
    tn_cp     *quadratic = NULL;
    tn_tensor *l = NULL, *c = NULL;
    tn_tensor *f[3] = {w->in[1], w->in[2], w->in[1]};
    bool       ok = keep_cp(&b, w, tn_cp_create(ctx, 2, w->in[0], f, TN_CP_INPUT_CONSTANT))                          /* 0 */
        && keep_cp(&b, w, tn_cp_create(ctx, 3, w->in[0], f, TN_CP_INPUT_PLAIN))                            /* 1: order 3 */
        && pairs(w, b.cp[0], true) && pairs(w, b.cp[0], false)
        && keep_cp(&b, w, tn_cp_truncate(b.cp[0], 2))                                          /* 2 */
        && keep(&b, w, tn_cp_gram(b.cp[0], b.cp[2])) && compare(w, b.cp[0], b.cp[2])
        && keep(&b, w, tn_cp_dense_symmetric(b.cp[0])) && keep(&b, w, tn_cp_dense(b.cp[1]))
        && keep(&b, w, tn_cp_interaction(b.cp[0], u)) && keep(&b, w, tn_cp_interaction_of(b.cp[0], 1))
        && keep_cp(&b, w, tn_cp_symmetrise(b.cp[0])) && keep_cp(&b, w, tn_cp_fold_out(b.cp[0], tn_transpose(w->in[0], 0, 1), NULL))
        && keep_cp(&b, w, tn_cp_fix(b.cp[1], 1, tn_reshape(tn_slice(e, 0, 0, 1), 1, &e->shape[1])))
        && hash_tensor(w, tn_cp_apply(ctx, b.cp[0], e));
    if (ok) {
        ok = tn_cp_split(b.cp[0], &quadratic, &l, &c) == TN_OK;
        if (!ok) CHECK(!quadratic && !l && !c);
        if (ok) {                       /* all three, whatever fails: they are ours */
            ok = keep_cp(&b, w, quadratic);
            ok = keep(&b, w, l) && ok;
            ok = keep(&b, w, c) && ok;
        }
    }
    empty(&b);
    return ok;
}

/* From layers, with their biases and residual. */
static bool fold(work *w)
{
    tn_params     *params = tn_params_create(w->ctx);
    tn_linear_desc ld = ZERO;
    tn_linear      embed, unembed;
    tn_mlp_desc    md = ZERO;
    tn_mlp         mlp;
    bag            b = ZERO;
    ld.bias = true;
    ld.in = 9; ld.out = 4;
    md.in = md.out = 4; md.hidden = 3; md.bias = md.out_bias = md.residual = true;
    bool ok = params && tn_linear_init(params, "embed", &ld, &embed) == TN_OK && tn_mlp_init(params, "mlp", &md, &mlp) == TN_OK;
    ld.in = 4; ld.out = 3;
    ok = ok && tn_linear_init(params, "unembed", &ld, &unembed) == TN_OK
        && keep_cp(&b, w, tn_cp_from_mlp(w->ctx, &mlp)) && keep_cp(&b, w, tn_cp_from_stack(w->ctx, &embed, &mlp, &unembed))
        && keep_cp(&b, w, tn_cp_fold_in(b.cp[0], embed.w, embed.b)) && keep_cp(&b, w, tn_cp_residual(b.cp[0]))
        && compare(w, b.cp[0], b.cp[3]);
    empty(&b);
    tn_params_destroy(params);
    return ok;
}

static void picture_data_are_given(work *w)
{
    w->in[0] = made(w->ctx, 8, 2, 6, 9);
    w->in[1] = made(w->ctx, 9, 2, 4, 25);
}

static bool picture(work *w, tn_image *image)
{
    static unsigned char bytes[1 << 20];
    size_t used = 0;
    bool   ok = image && tn_image_write_ppm(image, tn_sink_memory(bytes, sizeof bytes, &used)) == TN_OK && used > 0;
    if (ok) hash_bytes(w, bytes, used);
    tn_image_destroy(image);
    return ok;
}

static bool draw(work *w)
{
    static const double x[4] = {1, 10, 100, 1000}, y[4] = {1e-3, 0.5, 20, 3};
    static const char *const captions[4] = {"+1", "-2", "3", "4"};
    tn_image_matrix_desc md = ZERO;
    tn_image_tiles_desc  td = ZERO;
    tn_image_plot_desc   pd = ZERO;
    tn_image_series      line[2];
    int64_t        tiles[3] = {4, 5, 5};
    memset(line, 0, sizeof line);
    md.title = "a title"; md.caption = "below"; md.x_title = "columns"; md.y_title = "rows";
    md.size = 60; md.numbers = true;
    td.captions = captions; td.size = 24;
    pd.title = "curves"; pd.log_x = pd.log_y = true; pd.width = 120; pd.height = 90;
    line[0].name = "a"; line[0].x = x; line[0].y = y; line[0].count = 4;
    line[1] = line[0]; line[1].name = "b"; line[1].kind = TN_IMAGE_SERIES_STEMS; line[1].dashed = true;
    if (!picture(w, tn_image_matrix_of(w->ctx, w->in[0], &md))) return false;
    tn_tensor *t = tn_reshape(w->in[1], 3, tiles);
    return t && picture(w, tn_image_tiles_of(w->ctx, t, &td)) && picture(w, tn_image_plot(w->ctx, line, 2, &pd))
        && picture(w, tn_image_create(w->ctx, 9, 7));
}

/* ---- how a script is run ----------------------------------------------------------------- */

typedef struct script {
    const char *name;
    void      (*given)(work *w);        /* or NULL */
    bool      (*run)(work *w);
} script;

static const script scripts[] = {
    {"training", NULL, train},                      {"one step", params_are_given, one_step},
    {"safetensors", files_are_given, load_safetensors}, {"parameters", load_is_given, load_params},
    {"npy and idx", files_are_given, load_arrays},  {"QR, eigh, SVD", matrices_are_given, decompose},
    {"operators", factors_are_given, operate},      {"folding", NULL, fold},
    {"pictures", picture_data_are_given, draw},     {"selection", matrices_are_given, select_parts}
};

static tn_desc desc_of(test_heap *heap, const tn_backend *backend, tn_dtype dtype)
{
    tn_desc d = ZERO;
    memset(heap, 0, sizeof *heap);
    d.allocator = test_heap_allocator(heap);
    d.backend = backend;
    d.backend_required = true;
    d.dtype = dtype;
    d.seed = 11;
    d.threads = 1;
    d.arena_bytes = 512;                /* grows often */
    return d;
}

static bool start(work *w, const script *s, const tn_desc *d)
{
    memset(w, 0, sizeof *w);
    if (!CHECK_STATUS(tn_ctx_create(d, &w->ctx, NULL), TN_OK)) return false;
    if (s->given) s->given(w);
    return CHECK_CTX(w->ctx);
}

/* From a context at rest to one at rest. */
static bool perform(work *w, const script *s)
{
    w->hash = 0;
    tn_ctx_seed(w->ctx, 11);
    bool ok = s->run(w);
    tn_ctx_reset(w->ctx);
    return ok && tn_ctx_status(w->ctx) == TN_OK;
}

/* "mlp: no memory for 96 bytes": what for, and how much. */
static bool names_what(const char *message)
{
    const char *reason = strstr(message, ": no memory for ");
    return reason && reason > message && strstr(reason, " bytes");
}

static size_t held(const work *w) { return tn_ctx_memory(w->ctx).live - tn_ctx_memory(w->ctx).arena; }

typedef struct outcome { uint64_t hash, inputs; size_t given, peak; } outcome;       /* given, peak: bytes held */

static outcome undisturbed(const script *s, const tn_backend *backend, tn_dtype dtype)
{
    test_heap heap;
    tn_desc   d = desc_of(&heap, backend, dtype);
    work      w;
    outcome   o = ZERO;
    if (start(&w, s, &d)) {
        o.inputs = hash_inputs(&w);
        o.given = tn_ctx_memory(w.ctx).peak;
        CHECK(perform(&w, s));
        CHECK_CTX(w.ctx);
        o.hash = w.hash;
        o.peak = tn_ctx_memory(w.ctx).peak;
    }
    tn_ctx_destroy(w.ctx);
    CHECK_INT(heap.blocks, 0);
    return o;
}

/* A device without rows allocates in the middle of an update: there the first parameters may have been updated. */
static bool may_be_half_done(const script *s, const tn_backend *backend) { return s->run == one_step && backend == bare(); }

/* After a failure: what is held, what was given, and whether the context does the work after all. */
static void check_after_failure(work *w, const script *s, const tn_backend *backend, const outcome *o, size_t live)
{
    CHECK_STATUS(tn_ctx_status(w->ctx), TN_ERR_MEMORY);
    if (!names_what(tn_ctx_error(w->ctx)))
        test_fail(__FILE__, __LINE__, "the message", tn_ctx_error(w->ctx), "what: no memory for n bytes");
    tn_ctx_clear_error(w->ctx);
    CHECK_INT(held(w), live);
    if (test_leave_out(w->changed || may_be_half_done(s, backend),
                       "work that is not repeated after a failure: its inputs may have changed")) return;
    CHECK(hash_inputs(w) == o->inputs);
    CHECK(perform(w, s));
    CHECK(w->hash == o->hash);
    CHECK_CTX(w->ctx);
}

/* true: allocation k was there to fail, and that went well */
static bool with_failure(const script *s, const tn_backend *backend, tn_dtype dtype, uint64_t k, bool on, const outcome *o,
                         uint64_t *failed)
{
    test_heap heap;
    tn_desc   d = desc_of(&heap, backend, dtype);
    work      w;
    if (!start(&w, s, &d)) return false;
    size_t live = held(&w);
    heap.fail_at = heap.count + k;
    heap.fail_on = on;
    bool ok = perform(&w, s);
    bool reached = heap.count >= heap.fail_at;
    if (reached) *failed += on ? heap.count - heap.fail_at + 1 : 1;
    heap.fail_at = 0;
    CHECK(ok == !reached);
    if (!ok) check_after_failure(&w, s, backend, o, live);
    else CHECK(w.hash == o->hash);
    tn_ctx_destroy(w.ctx);
    CHECK_INT(heap.live, 0);
    CHECK_INT(heap.blocks, 0);
    if (test_now.failures)
        printf("     %s on %s, allocation %" PRIu64 "%s\n", s->name, backend->name, k, on ? " and all after" : "");
    return reached && !test_now.failures;
}

static void every_allocation(const tn_backend *backend, tn_dtype dtype)
{
    uint64_t failed = 0;
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        const script *s = &scripts[i];
        outcome       o = undisturbed(s, backend, dtype);
        uint64_t      before = failed;
        for (int on = 0; on < 2; on++)
            for (uint64_t k = 1; with_failure(s, backend, dtype, k, on == 1, &o, &failed); k++) {}
        if (test_now.failures) return;
        CHECK(failed - before > 10);
    }
    printf("failed_allocations_%s_%s: %" PRIu64 "\n", backend->name, dtype == TN_F64 ? "double" : "float", failed);
}

TEST(every_allocation_fails)             { every_allocation(tn_cpu_backend(), TN_F32); }
TEST(every_allocation_fails_in_double)   { every_allocation(tn_cpu_backend(), TN_F64); }
TEST(every_allocation_fails_on_a_device) { every_allocation(device(), TN_F32); }
TEST(every_allocation_fails_without_kernels) { every_allocation(bare(), TN_F32); }

/* A limit that falls from what the work needs to what its inputs need: done with the same bits, or refused, and never more held. */
static void falling_limit(const script *s, const tn_backend *backend, uint64_t *refused)
{
    outcome  o = undisturbed(s, backend, TN_F32);
    uint64_t done = 0;
    for (size_t limit = 2 * o.peak; limit > o.given && !test_now.failures; limit -= (limit - o.given) / 24 + 1) {
        test_heap heap;
        tn_desc   d = desc_of(&heap, backend, TN_F32);
        work      w;
        d.max_bytes = limit;
        if (!start(&w, s, &d)) return;
        if (perform(&w, s)) {
            CHECK(w.hash == o.hash);
            done++;
        } else {
            CHECK_ERROR(w.ctx, TN_ERR_MEMORY, "expected at most max_bytes = ");
            *refused += 1;
        }
        CHECK(tn_ctx_memory(w.ctx).peak <= limit);
        tn_ctx_destroy(w.ctx);
        CHECK_INT(heap.live, 0);
        CHECK_INT(heap.blocks, 0);
        if (test_now.failures) printf("     %s on %s under %zu bytes\n", s->name, backend->name, limit);
    }
    CHECK(done > 0);
}

TEST(the_limit_falls)
{
    uint64_t refused = 0;
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        falling_limit(&scripts[i], tn_cpu_backend(), &refused);
        falling_limit(&scripts[i], device(), &refused);
    }
    CHECK(refused > 100);
    printf("failed_runs_under_max_bytes: %" PRIu64 "\n", refused);
}

/* The context itself: it says why, and *ctx is NULL. */
TEST(no_memory_for_a_context)
{
    const tn_backend *backend[3];
    uint64_t failed = 0;
    backend[0] = tn_cpu_backend(); backend[1] = tn_reference_backend(); backend[2] = device();
    for (int b = 0; b < 3; b++)
        for (int on = 0; on < 2; on++)
            for (uint64_t k = 1; k < 100; k++) {
                test_heap heap;
                tn_desc   d = desc_of(&heap, backend[b], TN_F32);
                char      why[256] = "nothing";
                int       other;
                tn_ctx   *ctx = (tn_ctx *)(void *)&other;
                heap.fail_at = k;
                heap.fail_on = on == 1;
                tn_status s = tn_ctx_create(&d, &ctx, why);
                if (heap.count < k) {
                    CHECK_STATUS(s, TN_OK);
                    CHECK_STR(why, "");
                    CHECK(k > 4);
                    k = 100;
                } else {
                    CHECK_STATUS(s, TN_ERR_MEMORY);
                    CHECK(!ctx && strstr(why, "no memory"));
                    failed++;
                }
                tn_ctx_destroy(ctx);
                CHECK_INT(heap.live, 0);
                CHECK_INT(heap.blocks, 0);
            }
    printf("failed_contexts: %" PRIu64 "\n", failed);
}

TEST_MAIN(every_allocation_fails, every_allocation_fails_in_double, every_allocation_fails_on_a_device,
          every_allocation_fails_without_kernels, the_limit_falls, no_memory_for_a_context)
