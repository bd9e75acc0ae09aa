/* test_lifetimes.c: what is created and destroyed leaks nothing, and memory is aligned as promised.

   A context that is destroyed frees whatever it still owns, so a heap that is empty then does not show that every _destroy
   frees everything. Here a cycle of creating, using and destroying is repeated in one context: from the second cycle on,
   when the arena and the workspaces have grown to what they need, the context holds as many bytes after a cycle as
   before. */

#if defined(__unix__) || defined(__APPLE__)
#if !defined(_DEFAULT_SOURCE) && !defined(_GNU_SOURCE)
#define _DEFAULT_SOURCE                 /* dup */
#endif
#if !defined(_DARWIN_C_SOURCE)
#define _DARWIN_C_SOURCE
#endif
#include <unistd.h>
#define DESCRIPTORS 1
#else
#define DESCRIPTORS 0
#endif
#include "capture.h"
#include "net.h"

enum { BYTES = 1 << 16, CYCLES = 4 };

typedef struct life {
    tn_ctx    *ctx;
    test_heap *heap;
    bool       files, large;
    bool       fails;                   /* failures are injected                           */
    int        halves;                  /* failed calls that left a result                 */
} life;

/* ---- inputs --------------------------------------------------------------------------------------------------- */

/* An arena tensor of random numbers; an extent of -1 ends the shape. */
static tn_tensor *numbers(life *l, int64_t a, int64_t b, int64_t c)
{
    uint64_t seed = 3;
    double   v[512];
    int64_t  n = a * (b < 0 ? 1 : b) * (c < 0 ? 1 : c);
    int64_t  shape[3] = {a, b, c};
    for (int64_t i = 0; i < n && i < 512; i++) v[i] = test_random_real(&seed);
    tn_tensor *t = tn_tensor_nd(l->ctx, TN_REAL, b < 0 ? 1 : c < 0 ? 2 : 3, shape);
    CHECK(n <= 512);
    CHECK_STATUS(tn_write(t, TN_F64, v, n), TN_OK);
    return t;
}

static tn_tensor *ids_of(life *l, int64_t rows, int64_t columns, int32_t below)
{
    int32_t    v[64];
    tn_tensor *t = tn_tensor_2d(l->ctx, TN_I32, rows, columns);
    for (int32_t i = 0; i < 64; i++) v[i] = i % below;
    CHECK_STATUS(tn_write(t, TN_I32, v, rows * columns), TN_OK);
    return t;
}

/* A call that fails leaves no result, one that succeeds leaves all. `halves` counts others also where the checks of a part are
   ignored. */
static bool whole(life *l, tn_status s, const void *a, const void *b, const void *c, const void *d)
{
    if (s == TN_OK ? !(a && b && c && d) : a || b || c || d) l->halves++;
    return CHECK_STATUS(s, TN_OK) && CHECK(a && b && c && d);
}

/* A file that the library has written into memory. */
typedef struct file { unsigned char bytes[BYTES]; size_t used; } file;

static tn_sink   into(file *f) { return tn_sink_memory(f->bytes, BYTES, &f->used); }
static tn_source from(const file *f) { return tn_source_memory(f->bytes, f->used); }

static const char *path_of(const char *name)
{
    static char path[TEST_PATH];
    snprintf(path, sizeof path, "%s/lifetimes.%s", test_folder(), name);
    return path;
}

/* ---- tensors, arenas, decompositions -------------------------------------------------------------------------- */

static void tensors(life *l)
{
    int64_t    shape[2] = {5, 7};
    tn_tensor *owned = tn_tensor_create(l->ctx, TN_REAL, 2, shape), *labels = tn_tensor_create(l->ctx, TN_I32, 1, shape);
    CHECK(owned != NULL && labels != NULL);
    tn_tensor *kept = tn_tensor_keep(tn_transpose(owned, 0, 1));
    CHECK(kept != NULL);
    tn_mark mark = tn_arena_mark(l->ctx);
    CHECK(numbers(l, 9, 9, 5) != NULL);
    CHECK_STATUS(tn_arena_release(l->ctx, mark), TN_OK);
    tn_tensor *x = numbers(l, 5, 7, -1);
    tn_record(l->ctx);
    CHECK_STATUS(tn_watch(x), TN_OK);
    CHECK_STATUS(tn_backward(l->ctx, tn_mse(l->ctx, x, owned)), TN_OK);
    CHECK(x && x->grad);
    CHECK(tn_tensor_format(kept, NULL, 0) > 0);
    tn_tensor_destroy(kept);
    tn_tensor_destroy(owned);
    tn_tensor_destroy(labels);
}

/* Ops of several tensors, and of one. */
static void functions(life *l)
{
    tn_tensor *x = numbers(l, 4, 6, -1), *part[3];
    char       text[64];
    tn_record(l->ctx);
    CHECK_STATUS(tn_watch(x), TN_OK);
    tn_tensor *e = tn_exp(l->ctx, x);
    part[0] = tn_div(l->ctx, x, tn_sqrt(l->ctx, e));
    part[1] = tn_where(l->ctx, ids_of(l, 4, 6, 2), tn_softmax(l->ctx, x), tn_log_softmax(l->ctx, x));
    part[2] = tn_log(l->ctx, e);
    tn_tensor *joined = tn_concat(l->ctx, 3, part, 1);
    tn_tensor *stacked = tn_stack(l->ctx, 3, part, 0);
    joined = tn_gather(l->ctx, joined, 1, ids_of(l, 3, 5, 18));
    CHECK(tn_tensor_table(x, NULL, text, sizeof text) > 0);
    part[0] = tn_topk(l->ctx, part[2], 1, 3, TN_ORDER_MAGNITUDE, &e);
    joined = tn_add(l->ctx, tn_sum(l->ctx, joined), tn_sum(l->ctx, tn_sort(l->ctx, part[0], 0, TN_ORDER_LARGEST, NULL)));
    CHECK_STATUS(tn_backward(l->ctx, tn_add(l->ctx, tn_sum(l->ctx, joined), tn_sum(l->ctx, stacked))), TN_OK);
    CHECK(x && x->grad);
}

static tn_status doubled(void *user, int64_t count, const double *x, double *y)
{
    for (int64_t i = 0; i < count * 12; i++) y[i] = (double)(i % 12 + *(const int *)user) * x[i];
    return TN_OK;
}

static void decompositions(life *l)
{
    int               one = 1;
    tn_eigh_desc      ed = ZERO;
    tn_qr_desc        qd = ZERO;
    tn_svd_desc       sd = ZERO;
    tn_lanczos_desc   ld = ZERO;
    tn_eigh_result    e;
    tn_qr_result      q;
    tn_svd_result     v;
    tn_lanczos_result z;
    tn_eig_desc       gd = ZERO;
    tn_eig_result     g;
    tn_lstsq_result   x;
    gd.left = gd.measure = true;
    ed.measure = ed.symmetrise = qd.measure = qd.pivot = sd.measure = ld.measure = true;
    ld.top = 2;
    tn_status s = tn_eigh(l->ctx, numbers(l, 9, 9, -1), &ed, &e);
    whole(l, s, e.values, e.cluster, e.vectors, e.angle);
    tn_eigh_destroy(&e);
    s = tn_qr(l->ctx, numbers(l, 9, 5, -1), &qd, &q);
    whole(l, s, q.q, q.q, q.r, q.order);
    tn_qr_destroy(&q);
    s = tn_eig(l->ctx, numbers(l, 9, 9, -1), &gd, &g);
    whole(l, s, g.values, g.right, g.left, g.condition);
    tn_eig_destroy(&g);
    s = tn_lstsq(l->ctx, numbers(l, 9, 5, -1), numbers(l, 9, 2, -1), NULL, &x);
    whole(l, s, x.x, x.x, x.residual, x.residual);
    tn_lstsq_destroy(&x);
    s = tn_svd(l->ctx, numbers(l, 9, 5, -1), &sd, &v);
    whole(l, s, v.u, v.s, v.vt, v.angle);
    tn_svd_destroy(&v);
    s = tn_lanczos(l->ctx, 12, doubled, &one, &ld, &z);
    whole(l, s, z.values, z.values, z.vectors, z.vectors);
    tn_lanczos_destroy(&z);
}

/* ---- contractions --------------------------------------------------------------------------------------------- */

static void contractions(life *l)
{
    static const int     ranks[3] = {2, 2, 2}, ab[2] = {0, 1}, bc[2] = {1, 2}, cd[2] = {2, 3}, ad[2] = {0, 3};
    static const int64_t shape[3][2] = {{8, 9}, {9, 7}, {7, 6}};
    const int64_t       *shapes[3];
    tn_tensor           *t[3];
    tn_plan_desc         d = ZERO;
    const int           *labels[3] = {ab, bc, cd};
    d.max_bytes = l->large ? 0 : 128;                   /* with slices and without */
    for (int k = 0; k < 3; k++) {
        shapes[k] = shape[k];
        t[k] = numbers(l, shape[k][0], shape[k][1], -1);
    }
    for (int k = 0; k < 2; k++) {
        tn_plan *plan = k ? tn_plan_create_labels(l->ctx, 3, ranks, shapes, labels, 2, ad, &d)
                          : tn_plan_create(l->ctx, "ab,bc,cd->ad", 3, ranks, shapes, &d);
        char text[256];
        if (!CHECK(plan != NULL)) continue;
        CHECK_INT(tn_plan_cost_of(plan).steps, 2);
        CHECK(tn_plan_format(plan, text, sizeof text) > 0);
        CHECK(tn_plan_run(plan, 3, t) != NULL);
        tn_plan_destroy(plan);
    }
    CHECK(tn_einsum(l->ctx, "ab,bc,cd->ad", 3, t) != NULL);
    CHECK(tn_plan_create(l->ctx, "ab,bc,cd->ae", 3, ranks, shapes, &d) == NULL);
    tn_ctx_clear_error(l->ctx);
}

/* ---- decompositions of tensors -------------------------------------------------------------------------------- */

static void trains(life *l)
{
    static const int64_t extents[5] = {3, 4, 2, 3, 5};
    static const int64_t index[10] = {0, 1, 1, 2, 4, 2, 3, 0, 0, 1};
    tn_tt     *a = tn_tt_svd(l->ctx, numbers(l, 9, 8, 5), 5, extents, NULL);
    tn_tt     *b = a ? tn_tt_create(l->ctx, a->count, a->core) : NULL, *sum = tn_tt_add(a, b), *less = NULL;
    double     inner = 0, norm = 0, values[2];
    if (sum) less = tn_tt_round(sum, NULL);
    tn_tt     *half = tn_tt_scale(less, 0.5);
    tn_tensor *dense = tn_tt_dense(half);
    CHECK(dense != NULL);
    CHECK_STATUS(tn_tt_inner(a, half, &inner), TN_OK);
    CHECK_STATUS(tn_tt_norm(half, &norm), TN_OK);
    CHECK_STATUS(tn_tt_elements(half, 2, index, values), TN_OK);
    if (dense) tn_tensor_destroy(dense);
    tn_tt_destroy(half);
    tn_tt_destroy(less);
    tn_tt_destroy(sum);
    tn_tt_destroy(b);
    tn_tt_destroy(a);
}

static void states(life *l)
{
    static const int64_t extents[4] = {2, 3, 2, 2}, two[2] = {2, 2}, three[2] = {3, 2};
    tn_params        *ps = tn_params_create(l->ctx);
    tn_mps            mps, ring, born;
    tn_mps_desc       md = ZERO;
    tn_tt_linear      linear;
    tn_tt_linear_desc ld = ZERO;
    tn_tt_fit_desc    fd = ZERO;
    tn_tt            *tt[9];
    tn_tensor        *owned[3], *f[2];
    double            number = 0, sign, p[12];
    int64_t           index[12];
    md.sites = 3; md.bond = 4; md.out = 3; md.label = 1;
    ld.count = 2; ld.bond = 2; ld.in[0] = ld.in[1] = ld.out[1] = 2; ld.out[0] = 3;
    fd.max_bond = 2;
    CHECK_STATUS(tn_mps_init(ps, "mps", &md, &mps), TN_OK);
    md.periodic = true;
    CHECK_STATUS(tn_mps_init(ps, "ring", &md, &ring), TN_OK);
    md.periodic = false; md.uniform = true; md.out = 0; md.map = TN_LOCAL_IDS;
    CHECK_STATUS(tn_mps_init(ps, "born", &md, &born), TN_OK);
    CHECK_STATUS(tn_tt_linear_init(ps, "linear", &ld, &linear), TN_OK);
    f[0] = numbers(l, 4, 5, -1);
    f[1] = numbers(l, 4, 3, -1);
    tn_cp *cp = tn_cp_create(l->ctx, 2, numbers(l, 2, 4, -1), f, TN_CP_INPUT_PLAIN);
    tt[0] = tn_tt_from_mps(l->ctx, &mps);
    tt[1] = tn_tt_random(l->ctx, 4, extents, 3, 1);
    tt[2] = tn_tt_from_cp(l->ctx, cp, 1);
    tt[3] = tn_tt_from_tt_linear(l->ctx, &linear);
    tt[4] = tn_tt_from_matrix(l->ctx, numbers(l, 6, 4, -1), 2, three, two, NULL);
    tt[5] = tn_tt_apply(tt[4], tt[4]);                       /* axes of 6 and 4, as a matrix of one row: inner products */
    tt[6] = tn_tt_swap(tt[1], 1, NULL);
    tt[7] = tn_tt_canonical(tt[1], 2, NULL);
    tt[8] = tn_tt_fit(tt[1], 1, numbers(l, 20, 3, 2), numbers(l, 20, 3, -1), &fd, &number);
    for (int k = 0; k < 9; k++) CHECK(tt[k] != NULL);
    owned[0] = tn_tt_singular_values(tt[1]);
    owned[1] = tn_tt_entropies(tt[1]);
    owned[2] = tn_tt_matrix(tt[4], three, two);
    for (int k = 0; k < 3; k++) {
        CHECK(owned[k] != NULL);
        if (owned[k]) tn_tensor_destroy(owned[k]);
    }
    CHECK_STATUS(tn_mps_assign_tt(&mps, tt[1]), TN_OK);
    CHECK_STATUS(tn_tt_linear_assign_tt(&linear, tt[3]), TN_OK);
    CHECK(tn_mps_forward(l->ctx, &mps, numbers(l, 4, 3, -1), NULL) && tn_mps_log_partition(l->ctx, &mps));
    CHECK(tn_mps_forward(l->ctx, &ring, numbers(l, 4, 3, -1), NULL) && tn_mps_log_partition(l->ctx, &ring));
    CHECK(tn_mps_log_probability(l->ctx, &born, ids_of(l, 4, 3, 2)) != NULL);
    CHECK(tn_tt_linear_forward(l->ctx, &linear, numbers(l, 5, 4, -1)) != NULL);
    CHECK_STATUS(tn_tt_log_norm(tt[1], &number), TN_OK);
    CHECK_STATUS(tn_tt_log_inner(tt[1], tt[1], &number, &sign), TN_OK);
    CHECK_STATUS(tn_tt_sample(tt[1], 3, 0, 1, index), TN_OK);
    CHECK_STATUS(tn_tt_log_conditionals(tt[1], 3, index, p), TN_OK);
    CHECK_STATUS(tn_tt_conditional(tt[1], 2, index, p), TN_OK);
    for (int k = 0; k < 9; k++) tn_tt_destroy(tt[k]);
    tn_cp_destroy(cp);
    tn_params_destroy(ps);
}

static void tensor_networks(life *l)
{
    const int            rule = 110;
    tn_params           *ps = tn_params_create(l->ctx);
    tn_tn_attention      layer, exact;
    tn_tn_attention_desc d = ZERO;
    tn_deep              deep;
    tn_deep_desc         dd = ZERO;
    d.in = 2; d.bond = 3; d.causal = true; d.boundary = TN_BOUNDARY_VECTORS;
    dd.vocab = 5; dd.dim = 2; dd.bond = 3; dd.out = 5; dd.causal = true; dd.head = TN_DEEP_SITES;
    CHECK_STATUS(tn_tn_attention_init(ps, "layer", &d, &layer), TN_OK);
    CHECK_STATUS(tn_deep_init(ps, "deep", &dd, &deep), TN_OK);
    CHECK_STATUS(tn_tn_attention_from_rules(ps, "rules", &rule, 1, TN_BOUNDARY_CLOSED, &exact), TN_OK);
    CHECK_STATUS(tn_tn_attention_from_linear_attention(ps, "linear", numbers(l, 2, 3, -1), numbers(l, 2, 3, -1),
                                                       numbers(l, 2, 3, -1), false, &exact), TN_OK);
    CHECK_STATUS(tn_tn_attention_from_permutations(ps, "exchanges", 2, &exact), TN_OK);
    tn_net *network = tn_net_from_tn_attention(l->ctx, &exact, 4, 1);
    CHECK(network != NULL);
    tn_net_destroy(network);
    tn_tensor *state = tn_tn_attention_state(l->ctx, &layer, 3);
    tn_tensor *more = tn_deep_state(l->ctx, &deep, 3);
    CHECK(state && more);
    CHECK(tn_tn_attention_decode(l->ctx, &layer, numbers(l, 3, 4, 2), state) != NULL);
    CHECK(tn_deep_decode(l->ctx, &deep, ids_of(l, 3, 4, 5), more) != NULL);
    if (state) tn_tensor_destroy(state);
    if (more) tn_tensor_destroy(more);
    tn_params_destroy(ps);
}

static void factorisations(life *l)
{
    tn_hosvd_desc    hd = ZERO;
    tn_cp_als_desc   ad = ZERO;
    tn_joint_eigh_desc    jd = ZERO;
    tn_hosvd_result  h;
    tn_cp_als_result a;
    tn_joint_eigh_result  j;
    tn_ica_result    i;
    double           symmetric[48];
    static const int64_t shape[3] = {3, 4, 4};
    jd.compare = true;
    hd.eps = 0.3;
    hd.sweeps = ad.terms = ad.starts = 2;
    ad.sweeps = 5;
    tn_status s = tn_hosvd(l->ctx, numbers(l, 5, 4, 6), &hd, &h);
    whole(l, s, h.core, h.factor[0], h.factor[2], h.values[1]);
    tn_hosvd_destroy(&h);
    s = tn_cp_als(l->ctx, numbers(l, 3, 5, 5), &ad, &a);
    whole(l, s, a.weights, a.factor[0], a.factor[1], a.factor[2]);
    tn_cp *cp = s == TN_OK ? tn_cp_from_als(l->ctx, &a, TN_CP_INPUT_PLAIN) : NULL;
    CHECK(cp != NULL);
    tn_cp_destroy(cp);
    tn_cp_als_destroy(&a);
    for (int k = 0; k < 48; k++) symmetric[k] = (double)(k / 16 + 1) / (1 + k % 4 + k / 4 % 4);
    s = tn_joint_eigh(l->ctx, tn_tensor_from(l->ctx, 3, shape, TN_F64, symmetric), &jd, &j);
    if (whole(l, s, j.vectors, j.values, j.off, j.gap)) CHECK(j.shared && j.separate);
    tn_joint_eigh_destroy(&j);
    s = tn_ica(l->ctx, numbers(l, 30, 4, -1), NULL, &i);
    if (whole(l, s, i.components, i.mixing, i.whitening, i.mean)) CHECK(i.contrast != NULL);
    tn_ica_destroy(&i);
}

/* ---- parameters, layers, models ------------------------------------------------------------------------------- */

static tn_attention_desc attention_of(tn_attention_kind kind, tn_attend_form form)
{
    tn_attention_desc d = ZERO;
    d.dim = 8;
    d.heads = 2;
    d.kind = kind;
    d.form = form;
    d.bias = d.out_bias = true;
    return d;
}

static void layers(life *l)
{
    static const int64_t shape[2] = {3, 4};
    tn_params        *ps = tn_params_create(l->ctx);
    tn_linear_desc    ld = ZERO;
    tn_linear         linear;
    tn_embedding_desc ed = ZERO;
    tn_embedding      embed;
    tn_norm_desc      nd = ZERO;
    tn_norm           norm;
    tn_mlp_desc       md = ZERO;
    tn_mlp            mlp;
    tn_mlp_desc       pd = ZERO;
    tn_mlp            product;
    tn_quadratic_desc qd = ZERO;
    tn_quadratic      quadratic;
    tn_modifier_desc  od = ZERO;
    tn_modifier       modifier;
    tn_attention_desc ad = attention_of(TN_ATTENTION_DIFFERENTIAL, TN_ATTEND_FORM_AUTO);
    tn_attention      attention;
    tn_init           init = ZERO;
    ld.bias = true;
    ld.in = ed.dim = nd.dim = md.in = pd.in = qd.in = od.in = 8;
    ld.out = ed.count = 5;
    qd.out = 3;
    md.hidden = pd.hidden = od.hidden = 6;
    od.rank = 2;
    md.bias = md.out_bias = pd.bias = pd.out_bias = qd.bias = od.bias = od.out_bias = true;
    nd.kind = TN_NORM_LAYER;
    nd.bias = true;
    if (!CHECK(ps != NULL)) return;
    CHECK(tn_params_add(ps, "more", 2, shape, init) != NULL);
    CHECK(tn_params_add(ps, "more", 2, shape, init) == NULL);                   /* the name is taken */
    if (!l->fails) CHECK_ERROR(l->ctx, TN_ERR_ARG, "more");
    CHECK_STATUS(tn_embedding_init(ps, "embed", &ed, &embed), TN_OK);
    CHECK_STATUS(tn_params_tie(ps, "head.w", "embed.w"), TN_OK);
    CHECK_STATUS(tn_linear_init(ps, "head", &ld, &linear), TN_OK);
    CHECK_STATUS(tn_norm_init(ps, "norm", &nd, &norm), TN_OK);
    CHECK_STATUS(tn_mlp_init(ps, "mlp", &md, &mlp), TN_OK);
    CHECK_STATUS(tn_mlp_init(ps, "product", &pd, &product), TN_OK);
    CHECK_STATUS(tn_quadratic_init(ps, "quadratic", &qd, &quadratic), TN_OK);
    CHECK_STATUS(tn_modifier_init(ps, "modifier", &od, &modifier), TN_OK);
    CHECK_STATUS(tn_attention_init(ps, "attention", &ad, &attention), TN_OK);
    tn_cp *cp = tn_cp_from_mlp(l->ctx, &product);
    CHECK_STATUS(tn_mlp_from_cp(ps, "product again", cp, &product), TN_OK);
    CHECK_STATUS(tn_quadratic_from_cp(ps, "tensor", cp, &quadratic), TN_OK);
    tn_cp_destroy(cp);
    CHECK(tn_params_count(ps) > 20);
    tn_params *copy = tn_params_clone(l->ctx, ps);
    CHECK(copy != NULL);
    CHECK(tn_params_rebind(copy, ps, &mlp, sizeof mlp) == 4);
    tn_params_destroy(ps);
    tn_params_destroy(copy);
}

/* Between contexts: numbers are copied from one to the other, whose memory is from the same heap. */
static void clones(life *l)
{
    tn_params *ps = tn_params_create(l->ctx);
    tn_ctx    *other = NULL;
    tn_desc    d = ZERO;
    net        m;
    d.backend = tn_reference_backend();
    d.dtype = TN_F64;
    d.allocator = test_heap_allocator(l->heap);
    CHECK(ps && net_make(ps, &m));
    CHECK_STATUS(tn_ctx_create(&d, &other, NULL), TN_OK);
    CHECK(tn_params_clone(other, ps) != NULL);
    tn_ctx_destroy(other);
    tn_params_destroy(ps);
}

static tn_transformer_desc small_model(void)
{
    tn_transformer_desc d = ZERO;
    d.vocab = 11;
    d.layers = 2;
    d.dim = 8;
    d.heads = 2;
    d.context = 6;
    d.tied = true;
    d.recompute = true;
    return d;
}

static void models(life *l)
{
    tn_params          *ps = tn_params_create(l->ctx);
    tn_transformer_desc d = small_model(), read;
    tn_transformer      m;
    tn_edit             edit;
    tn_tap              tap;
    static file         config, weights;
    tn_named_tensor            named[32];
    int64_t             count;
    static const tn_name_map map[] = {
        {"embed.w", "embed.w", false, 0, 0, 0, 0, false, TN_HEAD_ROWS_PLAIN, 0, 0, false, false},
        {"norm.gain", "norm.gain", false, 0, 0, 0, 0, false, TN_HEAD_ROWS_PLAIN, 0, 0, false, false},
        {"blocks.{l}.norm1.gain", "blocks.{l}.norm1.gain", false, 0, 0, 0, 0, false, TN_HEAD_ROWS_PLAIN, 0, 0, false, false},
        {"blocks.{l}.norm2.gain", "blocks.{l}.norm2.gain", false, 0, 0, 0, 0, false, TN_HEAD_ROWS_PLAIN, 0, 0, false, false},
        {"blocks.{l}.attn.qk", "blocks.{l}.attn.qk", false, 0, 0, 0, 0, false, TN_HEAD_ROWS_PLAIN, 0, 0, false, false},
        {"blocks.{l}.attn.v", "blocks.{l}.attn.v", false, 0, 0, 0, 0, false, TN_HEAD_ROWS_PLAIN, 0, 0, false, false},
        {"blocks.{l}.attn.o", "blocks.{l}.attn.o", false, 0, 0, 0, 0, false, TN_HEAD_ROWS_PLAIN, 0, 0, false, false},
        {"blocks.{l}.mlp.w", "blocks.{l}.mlp.w", false, 0, 0, 0, 0, false, TN_HEAD_ROWS_PLAIN, 0, 0, false, false},
        {"blocks.{l}.mlp.p", "blocks.{l}.mlp.p", false, 0, 0, 0, 0, false, TN_HEAD_ROWS_PLAIN, 0, 0, false, false}
    };
    if (!CHECK(ps != NULL)) return;
    CHECK_STATUS(tn_transformer_init(ps, NULL, &d, &m), TN_OK);
    tn_transformer_cache *cache = tn_transformer_cache_create(l->ctx, &m, 2, 6);
    CHECK(tn_transformer_cache_bytes(cache) > 0);
    CHECK(tn_transformer_decode(l->ctx, &m, ids_of(l, 2, 3, 11), cache) != NULL);
    tn_transformer_cache_reset(cache);
    CHECK(tn_transformer_decode(l->ctx, &m, ids_of(l, 2, 6, 11), cache) != NULL);
    CHECK_STATUS(tn_transformer_cache_rewind(cache, 4), TN_OK);
    CHECK(tn_transformer_decode(l->ctx, &m, ids_of(l, 2, 2, 11), cache) != NULL);
    tn_transformer_cache_destroy(cache);
    tap.points = "*.attn.*"; tap.fn = tn_tap_edit; tap.user = &edit;
    memset(&edit, 0, sizeof edit);
    edit.tokens = edit.token = 1;
    CHECK(tn_transformer_run(l->ctx, &m, ids_of(l, 2, 6, 11), &tap, 1) != NULL);
    CHECK(tn_transformer_attribution(l->ctx, &m, ids_of(l, 2, 6, 11), ids_of(l, 2, 6, 7), NULL) != NULL);
    tn_record(l->ctx);
    CHECK_STATUS(tn_backward(l->ctx, tn_transformer_loss(l->ctx, &m, ids_of(l, 2, 6, 11), ids_of(l, 2, 6, 7))), TN_OK);
    CHECK_STATUS(tn_transformer_config_write(l->ctx, &d, into(&config)), TN_OK);
    CHECK_STATUS(tn_transformer_config_read(l->ctx, from(&config), &read), TN_OK);
    CHECK_INT(read.dim, 8);
    for (count = 0; count < tn_params_count(ps) && count < 32; count++) {
        const tn_param *p = tn_params_at(ps, count);
        named[count].name = p->name;
        named[count].tensor = p->value->rank < 3 ? p->value : tn_reshape_2d(p->value, -1, p->value->shape[2]);
    }
    CHECK_STATUS(tn_safetensors_write(l->ctx, into(&weights), named, count, NULL, 0), TN_OK);
    CHECK_STATUS(tn_transformer_read_mapped(ps, &m, from(&weights), map, sizeof map / sizeof *map), TN_OK);
    CHECK_STATUS(tn_transformer_write_mapped(ps, &m, into(&weights), map, sizeof map / sizeof *map, 0, NULL, 0), TN_OK);
    CHECK_STATUS(tn_transformer_read_mapped(ps, &m, from(&weights), map, sizeof map / sizeof *map), TN_OK);
    tn_params     *copy = tn_params_clone(l->ctx, ps);
    tn_transformer other = m;
    CHECK(tn_params_rebind(copy, ps, &other, sizeof other) > 0 && other.blocks != m.blocks);
    tn_params_destroy(ps);
    tn_params_destroy(copy);
}

static void caches(life *l)
{
    static const tn_attention_kind kind[] = {TN_ATTENTION_SOFTMAX, TN_ATTENTION_SQUARED};
    static const tn_attend_form    form[] = {TN_ATTEND_FORM_AUTO, TN_ATTEND_FORM_LINEAR};
    for (int k = 0; k < 2; k++) {                       /* keys and values; a state */
        tn_params        *ps = tn_params_create(l->ctx);
        tn_attention_desc d = attention_of(kind[k], form[k]);
        tn_attention      a;
        if (!CHECK(ps != NULL)) return;
        CHECK_STATUS(tn_attention_init(ps, "a", &d, &a), TN_OK);
        tn_attention_cache *cache = tn_attention_cache_create(l->ctx, &a, 2, 6);
        CHECK(tn_attention_cache_bytes(cache) > 0);
        CHECK(tn_attention_decode(l->ctx, &a, numbers(l, 2, 3, 8), cache, NULL) != NULL);
        tn_attention_cache_reset(cache);
        CHECK(tn_attention_decode(l->ctx, &a, numbers(l, 2, 4, 8), cache, NULL) != NULL);
        CHECK_INT(tn_attention_cache_past(cache), 4);
        tn_attention_cache_destroy(cache);
        tn_params_destroy(ps);
    }
}

/* ---- operators ------------------------------------------------------------------------------------------------ */

typedef struct bag { tn_cp *cp[24]; tn_tensor *t[16]; int cps, ts; } bag;

static tn_cp *hold(bag *b, tn_cp *cp)
{
    CHECK(cp != NULL && b->cps < 24);
    return b->cp[b->cps++] = cp;
}

static void hold_tensor(bag *b, tn_tensor *t)
{
    CHECK(t != NULL && b->ts < 16);
    b->t[b->ts++] = t;
}

/* Compositions, modes, coefficients, moments and stacks of an operator with a constant one; e fits its inputs. */
static void operators_of_scale(life *l, bag *b, tn_cp *cp, tn_tensor *e)
{
    tn_cp             *part = tn_cp_fold_slot(cp, 1, e, NULL);
    tn_tensor         *f = numbers(l, 2, 10, -1), *second = numbers(l, 10, 10, -1);
    double             moments[100] = {0};
    tn_cp_hosvd_desc   d = ZERO;
    tn_cp_hosvd_result modes;
    tn_coefficients    top;
    tn_cp_stack_desc      sd = ZERO;
    tn_cp_stack_result    r;
    uint64_t           mark = tn_cp_mark(l->ctx);
    hold(b, part);
    tn_cp *line = tn_cp_create(l->ctx, 1, numbers(l, 9, 2, -1), &f, TN_CP_INPUT_CONSTANT);
    CHECK(tn_cp_compose(cp, line) != NULL);
    CHECK(tn_cp_release(l->ctx, mark, line) == line);
    hold(b, line);
    d.core = true;
    for (int k = 0; k < 2; k++) {
        d.accurate = k;
        CHECK_STATUS(tn_cp_hosvd(cp, &d, &modes), TN_OK);
        tn_cp_hosvd_destroy(&modes);
    }
    CHECK_STATUS(tn_cp_top(cp, 3, false, &top), TN_OK);
    tn_coefficients_destroy(&top);
    CHECK_STATUS(tn_cp_top_inputs(cp, 3, false, &top), TN_OK);
    tn_coefficients_destroy(&top);
    for (int k = 0; k < 10; k++) moments[k * 11] = 1;
    CHECK_STATUS(tn_write(second, TN_F64, moments, 100), TN_OK);
    hold_tensor(b, tn_cp_gaussian_moment(line, line, second));
    const tn_cp *stack[1] = {cp};
    for (int k = TN_CP_STACK_EXACT; k <= TN_CP_STACK_LAYER_SYMMETRISED; k++) {
        sd.method = (tn_cp_stack_method)k;
        sd.samples = 3;
        CHECK_STATUS(tn_cp_stack_inner(stack, stack, 1, &sd, &r), TN_OK);
    }
}

static void operators(life *l)
{
    tn_ctx           *ctx = l->ctx;
    tn_params        *ps = tn_params_create(ctx);
    tn_linear_desc    ld = ZERO;
    tn_linear         embed, unembed;
    tn_mlp_desc       md = ZERO;
    tn_mlp            mlp;
    tn_modifier_desc  od = ZERO;
    tn_modifier       modifier;
    tn_quadratic_desc qd = ZERO;
    tn_quadratic      quadratic;
    tn_tensor        *f[3], *p = numbers(l, 3, 2, -1), *u = numbers(l, 3, -1, -1), *linear, *constant;
    bag               b = ZERO;
    double            v;
    ld.bias = true;
    if (!CHECK(ps != NULL)) return;
    ld.in = 9; ld.out = 4;
    md.in = md.out = od.in = 4; qd.in = 4; qd.out = 3;
    md.hidden = od.hidden = 3;
    md.bias = md.out_bias = md.residual = od.bias = od.out_bias = qd.bias = true;
    CHECK_STATUS(tn_linear_init(ps, "embed", &ld, &embed), TN_OK);
    ld.in = 4; ld.out = 3;
    CHECK_STATUS(tn_linear_init(ps, "unembed", &ld, &unembed), TN_OK);
    CHECK_STATUS(tn_mlp_init(ps, "mlp", &md, &mlp), TN_OK);
    CHECK_STATUS(tn_modifier_init(ps, "modifier", &od, &modifier), TN_OK);
    CHECK_STATUS(tn_quadratic_init(ps, "quadratic", &qd, &quadratic), TN_OK);
    for (int k = 0; k < 3; k++) f[k] = numbers(l, 2, 10, -1);
    tn_cp *cp = hold(&b, tn_cp_create(ctx, 2, p, f, TN_CP_INPUT_CONSTANT));
    tn_cp *part = hold(&b, tn_cp_create(ctx, 3, p, f, TN_CP_INPUT_PLAIN));
    hold(&b, tn_cp_fix(part, 1, numbers(l, 10, -1, -1)));
    hold(&b, tn_cp_from_mlp(ctx, &mlp));
    hold(&b, tn_cp_fold_in(b.cp[b.cps - 1], embed.w, embed.b));
    hold(&b, tn_cp_residual(b.cp[b.cps - 2]));
    hold(&b, tn_cp_from_modifier(ctx, &modifier));
    hold(&b, tn_cp_from_quadratic(ctx, &quadratic));
    hold(&b, tn_cp_from_tensor(ctx, numbers(l, 3, 5, 5), TN_CP_INPUT_CONSTANT));
    hold(&b, tn_cp_from_stack(ctx, &embed, &mlp, &unembed));
    hold(&b, tn_cp_fold_out(cp, numbers(l, 4, 3, -1), numbers(l, 4, -1, -1)));
    hold(&b, tn_cp_symmetrise(cp));
    hold(&b, tn_cp_truncate(cp, 2));
    hold(&b, tn_cp_data_metric(cp, tn_matmul(ctx, f[0] ? tn_transpose(f[0], 0, 1) : NULL, f[0])));
    tn_status s = tn_cp_split(cp, &part, &linear, &constant);
    if (whole(l, s, part, linear, constant, part)) {
        hold(&b, part);
        hold_tensor(&b, linear);
        hold_tensor(&b, constant);
    }
    hold_tensor(&b, tn_cp_dense_symmetric(cp));
    hold_tensor(&b, tn_cp_interaction(cp, u));
    hold_tensor(&b, tn_cp_interaction_of(cp, 1));
    hold_tensor(&b, tn_cp_gram(cp, cp));
    hold_tensor(&b, tn_cp_cosines(cp, cp));
    CHECK_STATUS(tn_cp_inner(cp, cp, &v), TN_OK);
    CHECK_STATUS(tn_cp_norm(cp, &v), TN_OK);
    CHECK_STATUS(tn_cp_cosine(cp, cp, &v), TN_OK);
    operators_of_scale(l, &b, cp, numbers(l, 9, 2, -1));
    CHECK(tn_cp_apply(ctx, cp, numbers(l, 2, 9, -1)) && tn_cp_apply_each(ctx, cp, f));
    while (b.cps > 0) tn_cp_destroy(b.cp[--b.cps]);
    while (b.ts > 0) tn_tensor_destroy(b.t[--b.ts]);
    tn_params_destroy(ps);
}

/* Nets share their tensors, and are destroyed in an order that is not that of their making. */
static void networks(life *l)
{
    tn_ctx           *ctx = l->ctx;
    tn_params        *ps = tn_params_create(ctx);
    tn_attention_desc ad = attention_of(TN_ATTENTION_BILINEAR, TN_ATTEND_FORM_AUTO);
    tn_attention      attention;
    tn_tensor        *t[3], *f[2], *u = numbers(l, 3, -1, -1), *e = numbers(l, 4, 2, -1);
    const tn_cp      *stacked[2];
    tn_cp            *cp[2];
    tn_net           *nets[12];
    tn_eigenpairs          pairs;
    tn_coefficients top;
    double            v;
    if (!CHECK(ps != NULL)) return;
    CHECK_STATUS(tn_attention_init(ps, "attention", &ad, &attention), TN_OK);
    t[0] = numbers(l, 3, 5, -1);
    t[1] = f[0] = numbers(l, 5, 4, -1);
    t[2] = f[1] = numbers(l, 5, 4, -1);
    stacked[0] = cp[0] = tn_cp_create(ctx, 2, t[0], f, TN_CP_INPUT_CONSTANT);
    stacked[1] = cp[1] = tn_cp_create(ctx, 2, t[0], f, TN_CP_INPUT_CONSTANT);
    nets[0] = tn_net_create(ctx, "oh,hi,hj->o|ij", 3, t, TN_NET_COPY);
    nets[1] = tn_net_create(ctx, "oh,hi,hj->o|ij", 3, t, TN_NET_REFER);
    nets[2] = tn_net_from_cp(ctx, cp[0]);
    nets[3] = tn_net_from_stack(ctx, 2, stacked, true);
    nets[4] = tn_net_from_attention(ctx, &attention, 1);
    t[0] = numbers(l, 1, 2, 3);
    t[1] = numbers(l, 3, 2, 1);
    nets[5] = tn_net_from_cores(ctx, 2, t);
    for (int k = 0; k < 2; k++) {
        tn_tt  *tt = k ? tn_tt_from_attention(ctx, &attention, 1) : tn_tt_from_cp(ctx, cp[0], 1);
        tn_net *chain = tn_net_from_tt(ctx, tt, NULL);
        CHECK(tt && chain);
        tn_net_destroy(chain);
        tn_tt_destroy(tt);
    }
    nets[6] = tn_net_compose(nets[2], nets[3]);
    nets[7] = tn_net_fix(nets[1], 1, numbers(l, 4, -1, -1));
    nets[8] = tn_net_fold_in(nets[0], TN_NET_ALL, e, numbers(l, 4, -1, -1));
    nets[9] = tn_net_fold_out(nets[2], numbers(l, 2, 3, -1));
    nets[10] = tn_net_fold_in(nets[6], 0, numbers(l, 3, 3, -1), NULL);
    nets[11] = tn_net_create(ctx, "oh,hi,hj->o|i", 3, t, TN_NET_COPY);
    CHECK(!nets[11]);
    tn_ctx_clear_error(ctx);
    for (int k = 0; k < 11; k++) CHECK(nets[k] != NULL);
    tn_tensor *owned = tn_net_contract(nets[0]);
    CHECK(owned != NULL);
    tn_tensor_destroy(owned);
    owned = tn_net_interaction(nets[0], u);
    CHECK(owned != NULL);
    tn_tensor_destroy(owned);
    tn_plan *plan = tn_net_plan(nets[3], NULL);
    CHECK(plan != NULL);
    tn_plan_destroy(plan);
    CHECK(tn_net_apply(ctx, nets[1], numbers(l, 2, 4, -1)) && tn_net_apply_each(ctx, nets[5], t + 2) == NULL);
    tn_ctx_clear_error(ctx);
    CHECK_STATUS(tn_net_inner(nets[0], nets[1], TN_NET_SYMMETRIC, &v), TN_OK);
    CHECK_STATUS(tn_net_norm(nets[0], TN_NET_AS_GIVEN, &v), TN_OK);
    CHECK_STATUS(tn_net_cosine(nets[0], nets[1], TN_NET_SYMMETRIC, &v), TN_OK);
    tn_status s = tn_net_eigen(nets[0], u, 2, &pairs);
    whole(l, s, pairs.values, pairs.vectors, pairs.values, pairs.vectors);
    tn_eigenpairs_destroy(&pairs);
    s = tn_net_top(nets[0], 5, &top);
    whole(l, s, top.values, top.index, top.values, top.index);
    tn_coefficients_destroy(&top);
    for (int k = 0; k < 11; k++) tn_net_destroy(nets[k]);
    for (int k = 0; k < 2; k++) tn_cp_destroy(cp[k]);
    tn_params_destroy(ps);
}

/* The paths of a frozen transformer. */
static void paths(life *l)
{
    const tn_circuit_target target = {TN_CIRCUIT_AIM_LOSS, 4, 3, 0};
    tn_circuit_paths_desc   few = {10, 0};
    tn_circuit_parts_desc   by = ZERO;
    tn_params              *ps = tn_params_create(l->ctx);
    tn_transformer_desc     d = small_model();
    tn_transformer          m;
    tn_circuit_frozen       f;
    tn_circuit_parts        parts;
    tn_circuit_paths        found;
    tn_circuit_attribution  a;
    tn_circuit_ablation     gone;
    if (!CHECK(ps != NULL)) return;
    d.norm_place = TN_PLACE_PRE;
    d.value_residual = false;
    if (!CHECK_STATUS(tn_transformer_init(ps, NULL, &d, &m), TN_OK)) { tn_params_destroy(ps); return; }
    tn_status s = tn_circuit_freeze(l->ctx, &m, ids_of(l, 1, 5, 7), &f);
    whole(l, s, f.block, f.source, f.logits, f.u);
    if (s == TN_OK) CHECK_STATUS(tn_circuit_frozen_update(&f), TN_OK);
    tn_tensor *means = tn_circuit_norm_scales(l->ctx, &m, ids_of(l, 2, 5, 7));
    CHECK(means != NULL);
    tn_tensor_destroy(means);
    for (int k = 1; k < 3; k++) {
        by.by = (tn_circuit_by)k;
        s = tn_circuit_parts_of(&f, &target, &by, &parts);
        whole(l, s, parts.values, parts.values, parts.values, parts.values);
        tn_circuit_parts_destroy(&parts);
    }
    s = tn_circuit_attribute(&f, &target, &a);
    whole(l, s, a.values, a.values, a.values, a.values);
    tn_circuit_attribution_destroy(&a);
    s = tn_circuit_paths_find(&f, &target, &few, &found);
    whole(l, s, found.node, found.path, found.frontier, found.frozen);
    s = tn_circuit_paths_ablate(&found, 3, &gone);
    whole(l, s, gone.path, gone.predicted, gone.measured, gone.path);
    tn_circuit_ablation_destroy(&gone);
    tn_circuit_paths_destroy(&found);
    tn_circuit_frozen_destroy(&f);
    tn_params_destroy(ps);
}

/* A frozen model without softmax as a ratio, its terms, and the model beside itself. */
static void ratios(life *l)
{
    const tn_circuit_target    target = {TN_CIRCUIT_AIM_LOGIT, 1, 3, 0};
    tn_params                 *ps = tn_params_create(l->ctx);
    tn_transformer_desc        d = small_model();
    tn_transformer             m;
    tn_circuit_frozen          f;
    tn_circuit_ratio           r;
    tn_circuit_terms           terms;
    tn_circuit_degrees         degrees;
    tn_transformer_same_desc   how = ZERO;
    tn_transformer_same_result same;
    tn_transformer_anomaly_result anomaly;
    if (!CHECK(ps != NULL)) return;
    d.layers = 1;
    d.attention = TN_ATTENTION_SQUARED;
    d.no_norm = true;
    if (!CHECK_STATUS(tn_transformer_init(ps, NULL, &d, &m), TN_OK)) { tn_params_destroy(ps); return; }
    tn_status s = tn_circuit_freeze(l->ctx, &m, ids_of(l, 1, 2, 7), &f);
    whole(l, s, f.block, f.source, f.logits, f.u);
    s = tn_circuit_ratio_of(&f, NULL, &r);
    if (whole(l, s, r.count, r.x, r.frozen, r.x)) CHECK(tn_circuit_ratio_logits(&r, NULL, false, NULL) != NULL);
    s = tn_circuit_ratio_terms(&r, &target, 0, NULL, &terms);
    whole(l, s, terms.list.power, terms.list.value, terms.ratio, terms.ratio);
    tn_circuit_terms_destroy(&terms);
    tn_circuit_ratio_destroy(&r);
    s = tn_circuit_degrees_of(&f, NULL, &degrees);
    whole(l, s, degrees.logits, degrees.logits, degrees.logits, degrees.logits);
    tn_circuit_degrees_destroy(&degrees);
    tn_circuit_frozen_destroy(&f);
    how.points = 1;
    CHECK_STATUS(tn_transformer_same(&m, &m, &how, &same), TN_OK);
    tn_transformer_same_destroy(&same);
    s = tn_transformer_anomaly(&m, &m, 2, &anomaly);
    if (whole(l, s, anomaly.terms.values, anomaly.terms.index, anomaly.terms.index, anomaly.terms.index))
        tn_transformer_anomaly_destroy(&anomaly);
    tn_params_destroy(ps);
}

/* Bounds for the texts with a known end. */
static void bounds(life *l)
{
    const int64_t         three = 3;
    tn_circuit_bound_desc more = {2, 1};
    tn_params            *ps = tn_params_create(l->ctx);
    tn_transformer_desc   d = small_model();
    tn_transformer        m;
    tn_circuit_bound      b;
    tn_tensor            *next = ids_of(l, 1, 3, 7);
    if (!CHECK(ps != NULL)) return;
    d.layers = 1;
    next = next ? tn_reshape(next, 1, &three) : NULL;
    if (CHECK_STATUS(tn_transformer_init(ps, NULL, &d, &m), TN_OK))
        for (more.unknown = 1; more.unknown < 3; more.unknown++) {
            tn_status s = tn_circuit_bound_of(l->ctx, &m, ids_of(l, 3, 2, 7), next, NULL, &more, &b);
            whole(l, s, b.best, b.margin, b.change, b.best);
            tn_circuit_bound_destroy(&b);
        }
    tn_params_destroy(ps);
}

/* Terms below and above half the inputs: the small problem and the full one. */
static void eigenpairs(life *l)
{
    for (int64_t terms = 2; terms <= 7; terms += 5) {
        tn_tensor *f[2], *both = numbers(l, 2 * terms, 9, -1);
        tn_eigenpairs   one, all;
        f[0] = tn_slice(both, 0, 0, terms);
        f[1] = tn_slice(both, 0, terms, 2 * terms);
        tn_cp *cp = tn_cp_create(l->ctx, 2, numbers(l, 3, terms, -1), f, TN_CP_INPUT_PLAIN);
        tn_status s = tn_cp_eigen(cp, numbers(l, 3, -1, -1), 2, &one);
        whole(l, s, one.values, one.values, one.vectors, one.vectors);
        s = tn_cp_eigen_all(cp, 2, &all);
        whole(l, s, all.values, all.values, all.vectors, all.vectors);
        tn_cp *again = tn_cp_from_eigen(l->ctx, &all, 2);
        CHECK(again != NULL);
        tn_eigenpairs_destroy(&one);
        tn_eigenpairs_destroy(&all);
        tn_cp_destroy(cp);
        tn_cp_destroy(again);
    }
}

/* Some values, and all. */
static void spectra(life *l)
{
    tn_tensor  *f[2];
    tn_spectrum some, all;
    f[0] = f[1] = numbers(l, 4, 9, -1);
    tn_cp *cp = tn_cp_create(l->ctx, 2, numbers(l, 3, 4, -1), f, TN_CP_INPUT_PLAIN);
    tn_status s = tn_cp_spectrum(cp, 2, &some);
    whole(l, s, some.values, some.norm, some.rank_low, some.rank_high);
    s = tn_cp_spectrum(cp, 0, &all);
    whole(l, s, all.values, all.norm, all.rank_low, all.rank_high);
    tn_spectrum_destroy(&some);
    tn_spectrum_destroy(&all);
    tn_cp_destroy(cp);
}

/* What is asked about weights: against null models, truncated, in features, aligned. */
/* A fit owns nothing; the operator of an MLP with its polynomial does. */
static void polynomial_of_an_mlp(life *l)
{
    static const double x[4] = {-1, 0, 1, 2}, y[4] = {1, 0, 1, 4};
    tn_params          *ps = tn_params_create(l->ctx);
    tn_mlp_desc         d = ZERO;
    tn_mlp              mlp;
    tn_polynomial_fit   fit;
    tn_polynomial       p;
    d.in = d.hidden = 3;
    d.kind = TN_MLP_RELU;
    if (CHECK(ps != NULL) && CHECK_STATUS(tn_mlp_init(ps, NULL, &d, &mlp), TN_OK)
        && CHECK_STATUS(tn_polynomial_fit_init(l->ctx, 2, -1, 2, &fit), TN_OK)
        && CHECK_STATUS(tn_polynomial_fit_add(&fit, 4, x, y, NULL), TN_OK)
        && CHECK_STATUS(tn_polynomial_fit_read(&fit, 2, &p), TN_OK)) {
        tn_cp *cp = tn_cp_from_mlp_polynomial(l->ctx, &mlp, &p, 1);
        CHECK(cp != NULL);
        tn_cp_destroy(cp);
    }
    tn_params_destroy(ps);
}

static void analyses(life *l)
{
    tn_tensor     *f[2], *cosines;
    tn_cp         *aligned;
    tn_cp_refit_desc  two = ZERO;
    tn_signal_desc d = ZERO;
    tn_signal      signal;
    tn_certificate c;
    tn_ball_bound  ball;
    tn_compression few;
    tn_compress_desc fewest = ZERO;
    two.terms = 2;
    fewest.radius = 2;
    fewest.bound = 1;
    d.draws = 2;
    f[0] = numbers(l, 4, 9, -1);
    f[1] = f[0] ? tn_slice_step(f[0], 0, 3, -1, -1) : NULL;
    tn_cp    *cp = tn_cp_create(l->ctx, 2, numbers(l, 3, 4, -1), f, TN_CP_INPUT_PLAIN);
    tn_status s = tn_cp_signal(cp, &d, &signal);
    whole(l, s, signal.values, signal.null_values, signal.edge, signal.signal);
    s = tn_cp_certify(cp, 0.5, 1, NULL, &c);
    if (whole(l, s, c.cp, c.rank, c.error, c.bound)) tn_certificate_destroy(&c);
    s = tn_cp_certify(cp, 0.1, 1, tn_matmul(l->ctx, f[0] ? tn_transpose(f[0], 0, 1) : NULL, f[0]), &c);
    whole(l, s, c.cp, c.rank, c.mean, c.bound);
    tn_tensor *q = tn_cp_feature_interactions(cp, numbers(l, 3, -1, -1), numbers(l, 5, 9, -1), numbers(l, 5, 5, -1));
    tn_cp     *canonical = tn_cp_canonical(cp);
    s = tn_cp_align(cp, canonical, &aligned, &cosines);
    whole(l, s, aligned, cosines, aligned, cosines);
    tn_cp *fewer = tn_cp_refit(cp, &two, NULL);
    CHECK(q && canonical && fewer && tn_feature_modification(l->ctx, f[0], f[1], numbers(l, 4, 2, -1)));
    tn_tensor *x = numbers(l, 20, 9, -1), *u = tn_feature_basis(l->ctx, f[0], x, 2, false);
    tn_tensor *v = tn_feature_basis(l->ctx, f[0], x, 2, true), *with = tn_feature_correlations(l->ctx, x, x);
    tn_radius r;
    s = tn_cp_radius(1, (const tn_cp *const *)&cp, x, &r);
    if (whole(l, s, r.radius, r.answer, r.rival, r.nearest)) tn_radius_destroy(&r);
    tn_anomaly anomaly;
    s = tn_cp_anomaly(cp, fewer, true, &anomaly);
    if (whole(l, s, anomaly.rows, anomaly.share, anomaly.values, anomaly.vectors)) tn_anomaly_destroy(&anomaly);
    s = tn_cp_ball_bound(cp, 2, &ball);
    if (whole(l, s, ball.input, ball.input, ball.input, ball.input)) tn_ball_bound_destroy(&ball);
    s = tn_cp_compress(cp, &fewest, &few);
    if (whole(l, s, few.cp, few.kept, few.change.input, few.kept)) tn_compression_destroy(&few);
    polynomial_of_an_mlp(l);
    tn_cp_destroy(fewer);
    two.sparsity = 0.01;
    two.starts = 2;
    fewer = tn_cp_refit(cp, &two, NULL);
    CHECK(u && v && with && fewer);
    tn_cp_destroy(fewer);
    two.sparsity = 0;
    two.inputs = x;
    tn_cp *mean = tn_cp_mean(1, (const tn_cp *const *)&cp, NULL);
    fewer = tn_cp_refit(mean, &two, NULL);
    CHECK(mean && fewer);
    tn_cp_destroy(mean);
    tn_tensor_destroy(u);
    tn_tensor_destroy(v);
    tn_tensor_destroy(with);
    tn_signal_destroy(&signal);
    tn_certificate_destroy(&c);
    tn_tensor_destroy(q);
    tn_tensor_destroy(cosines);
    tn_cp_destroy(cp);
    tn_cp_destroy(canonical);
    tn_cp_destroy(fewer);
    tn_cp_destroy(aligned);
}

/* A few pairs of a large problem, found by Lanczos in workspaces of its own. Only the first direction weighs much. */
static void few_of_many(life *l)
{
    static double v[512 * 1024];
    uint64_t    seed = 4;
    int64_t     shape[2] = {512, 1024};
    tn_tensor  *f[2], *p = tn_full(l->ctx, 2, shape, 1e-3), *one = tn_full(l->ctx, 1, shape, 1);
    tn_eigenpairs    e;
    tn_spectrum spectrum;
    if (!l->large || test_leave_out(test_small(), "Lanczos on a large problem, in a small run")) return;
    for (int64_t i = 0; i < 512 * 1024; i++) v[i] = (i < 1024 ? 1 : 1e-2) * test_random_real(&seed);
    f[0] = f[1] = tn_tensor_nd(l->ctx, TN_REAL, 2, shape);
    CHECK_STATUS(tn_write(f[0], TN_F64, v, 512 * 1024), TN_OK);
    tn_cp *cp = tn_cp_create(l->ctx, 2, tn_slice(tn_transpose(p, 0, 1), 0, 0, 1), f, TN_CP_INPUT_PLAIN);
    CHECK_STATUS(tn_cp_eigen(cp, tn_slice(one, 0, 0, 1), 1, &e), TN_OK);
    CHECK_STATUS(tn_cp_spectrum(cp, 1, &spectrum), TN_OK);
    tn_eigenpairs_destroy(&e);
    tn_spectrum_destroy(&spectrum);
    tn_cp_destroy(cp);
}

/* ---- optimisers, graphs, checkpoints -------------------------------------------------------------------------- */

/* A vector, a matrix that is wider than high, one that is higher, a batch: all of Muon's workspaces. `rule` from 0: AdamW,
   SGD with and without momentum, Muon. */
static void optimiser(life *l, int rule, bool optim_first)
{
    static const tn_optim_kind kind[] = {TN_OPTIM_ADAMW, TN_OPTIM_SGD, TN_OPTIM_SGD, TN_OPTIM_MUON};
    static const int64_t       shape[4][4] = {{1, 11}, {2, 5, 9}, {2, 9, 5}, {3, 3, 4, 6}};
    tn_params    *ps = tn_params_create(l->ctx);
    tn_optim_desc d = ZERO;
    tn_init       init = ZERO;
    d.kind = kind[rule];
    d.momentum = rule == 1 ? 0.9 : 0;
    d.clip_norm = 1;
    init.rule = TN_INIT_NORMAL;
    CHECK(tn_params_add(ps, "p0", 1, &shape[0][1], init) != NULL);
    tn_optim *optim = tn_optim_create(ps, &d);
    CHECK(optim != NULL);
    for (int step = 0; step < 4; step++) {
        tn_tensor *loss = NULL;
        char       name[16];
        snprintf(name, sizeof name, "p%d", step + 1);               /* added later: more moments are needed */
        if (step < 3) CHECK(tn_params_add(ps, name, (int)shape[step + 1][0], &shape[step + 1][1], init) != NULL);
        if (step == 3) CHECK_INT(tn_params_use_adamw(ps, "p2"), 1); /* under Muon: moments of another kind */
        if (step == 3) CHECK_INT(tn_params_freeze(ps, "p1"), 1);
        tn_ctx_reset(l->ctx);
        tn_record(l->ctx);
        for (int64_t i = 0; i < tn_params_count(ps); i++) {
            tn_tensor *p = tn_params_at(ps, i)->value, *square = tn_sum(l->ctx, tn_mul(l->ctx, p, p));
            loss = loss ? tn_add(l->ctx, loss, square) : square;
        }
        CHECK_STATUS(tn_backward(l->ctx, loss), TN_OK);
        CHECK_STATUS(tn_optim_step(optim), TN_OK);
    }
    CHECK_STATUS(tn_ctx_sync(l->ctx), TN_OK);
    CHECK_INT(tn_optim_step_count(optim), 4);
    if (optim_first) tn_optim_destroy(optim);
    tn_params_destroy(ps);
    if (!optim_first) tn_optim_destroy(optim);
}

static void adamw(life *l)        { optimiser(l, 0, true); }
static void momentum(life *l)     { optimiser(l, 1, true); }
static void plain_sgd(life *l)    { optimiser(l, 2, true); }
static void muon(life *l)         { optimiser(l, 3, true); }
static void muon_outlives(life *l) { optimiser(l, 3, false); }

/* A backend that can capture: three steps, the third of them as a graph, which is replayed. */
static void graphs(life *l)
{
    int64_t    n = 6;
    tn_params *ps = tn_params_create(l->ctx);
    tn_init    init = ZERO;
    tn_graph  *graph = NULL;
    init.rule = TN_INIT_NORMAL;
    tn_param *p = tn_params_add(ps, "p", 1, &n, init);
    tn_optim *optim = tn_optim_create(ps, NULL);
    for (int step = 0; step < 3; step++) {
        if (step == 2) CHECK_STATUS(tn_graph_begin(l->ctx), TN_OK);
        tn_ctx_reset(l->ctx);
        tn_record(l->ctx);
        CHECK_STATUS(tn_backward(l->ctx, tn_sum(l->ctx, tn_mul(l->ctx, p->value, p->value))), TN_OK);
        CHECK_STATUS(tn_optim_step(optim), TN_OK);
    }
    CHECK_STATUS(tn_graph_end(l->ctx, &graph), TN_OK);
    CHECK_STATUS(tn_graph_run(graph), TN_OK);
    CHECK_STATUS(tn_ctx_sync(l->ctx), TN_OK);
    CHECK_INT(tn_optim_step_count(optim), 3);
    CHECK_INT(capture_last->graphs, 1);
    tn_graph_destroy(graph);
    CHECK_INT(capture_last->graphs, 0);                         /* the backend's part has been released */
    CHECK_STATUS(tn_graph_begin(l->ctx), TN_OK);                /* one that fails leaks nothing either */
    CHECK(tn_tensor_create(l->ctx, TN_REAL, 1, &n) == NULL);
    CHECK(tn_graph_end(l->ctx, &graph) != TN_OK && graph == NULL);
    tn_ctx_clear_error(l->ctx);
    tn_optim_destroy(optim);
    tn_params_destroy(ps);
}

static void checkpoints(life *l)
{
    static file   f;
    static const tn_metadata note[] = {{"made by", "a test"}};
    tn_params    *ps = tn_params_create(l->ctx);
    net           m;
    double        loss;
    if (!CHECK(ps && net_make(ps, &m))) { tn_params_destroy(ps); return; }
    tn_optim *optim = net_optim(ps);
    CHECK(net_train(l->ctx, &m, optim, &loss));
    CHECK_STATUS(tn_checkpoint_write(optim, into(&f), note, 1), TN_OK);
    CHECK_STATUS(tn_checkpoint_read(optim, from(&f)), TN_OK);
    tn_optim *other = net_optim(ps);                                      /* one without moments gets them from the file */
    CHECK_STATUS(tn_checkpoint_read(other, from(&f)), TN_OK);
    CHECK_INT(tn_optim_step_count(other), 1);
    tn_optim_destroy(other);
    tn_optim_destroy(optim);
    tn_params_destroy(ps);
}

/* ---- files ---------------------------------------------------------------------------------------------------- */

static void safetensors(life *l)
{
    static file f;
    static const tn_metadata note[] = {{"a key", "a value"}, {"another", "one more"}};
    tn_named_tensor    named[3];
    uint8_t     raw[5 * 4 * 8];
    named[0].name = "wide"; named[1].name = "ids"; named[2].name = "turned";
    named[0].tensor = numbers(l, 5, 4, -1);
    named[1].tensor = ids_of(l, 2, 3, 6);
    named[2].tensor = named[0].tensor ? tn_transpose((tn_tensor *)named[0].tensor, 0, 1) : NULL;
    CHECK_STATUS(tn_safetensors_write(l->ctx, into(&f), named, 3, note, 2), TN_OK);
    for (int by_path = 0; by_path <= (l->files ? 1 : 0); by_path++) {
        const char *path = path_of("safetensors");
        if (by_path) CHECK_STATUS(tn_safetensors_write(l->ctx, tn_sink_path(path), named, 3, note, 2), TN_OK);
        tn_safetensors *opened = tn_safetensors_open(l->ctx, by_path ? tn_source_path(path) : from(&f));
        CHECK_INT(tn_safetensors_count(opened), 3);
        CHECK_STR(tn_safetensors_metadata(opened, "a key"), "a value");
        for (int k = 0; k < 3; k++) {
            tn_tensor *t = tn_safetensors_read(opened, named[k].name), *flat = tn_safetensors_read_flat(opened, named[k].name);
            CHECK(t != NULL && flat != NULL);
            tn_tensor_destroy(flat);
            tn_tensor_destroy(t);
        }
        const tn_safetensors_entry *wide = tn_safetensors_find(opened, "wide");
        CHECK_STATUS(tn_safetensors_read_bytes(opened, "wide", raw, wide ? (size_t)wide->bytes : 0), TN_OK);
        tn_safetensors_close(opened);
        if (by_path) remove(path);
    }
}

static void parameter_files(life *l)
{
    static file f;
    tn_params  *ps = tn_params_create(l->ctx);
    net         m;
    if (!CHECK(ps && net_make(ps, &m))) { tn_params_destroy(ps); return; }
    CHECK_STATUS(tn_params_write(ps, into(&f), NULL, 0), TN_OK);
    CHECK_STATUS(tn_params_read(ps, from(&f), TN_MATCH_ALL), TN_OK);
    if (l->files) {
        const char *path = path_of("params");
        CHECK_STATUS(tn_params_save(ps, path), TN_OK);
        CHECK_STATUS(tn_params_load(ps, path), TN_OK);
        remove(path);
    }
    tn_params_destroy(ps);
}

static void arrays(life *l)
{
    static const unsigned char idx[] = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 250, 251, 255};
    static const char order[] = "'fortran_order': False", other[] = "'fortran_order': True ";
    static file f;
    tn_tensor  *made[7] = {NULL, NULL, NULL, NULL, NULL, NULL, NULL}, *matrix = numbers(l, 5, 4, -1);
    int         n = 5;
    CHECK_STATUS(tn_npy_write(tn_transpose(matrix, 0, 1), into(&f)), TN_OK);
    made[4] = tn_npy_read_flat(l->ctx, from(&f));
    made[0] = tn_npy_read(l->ctx, from(&f));
    for (size_t i = 0; i + sizeof order <= f.used; i++)
        if (memcmp(f.bytes + i, order, sizeof order - 1) == 0) memcpy(f.bytes + i, other, sizeof other - 1);
    made[1] = tn_npy_read(l->ctx, from(&f));
    made[2] = tn_idx_read(l->ctx, tn_source_memory(idx, sizeof idx), 0);
    made[3] = tn_idx_read(l->ctx, tn_source_memory(idx, sizeof idx), 1 / 255.0);
    if (l->files) {
        const char *path = path_of("npy");
        tn_writer  *file_of_a_program = tn_writer_open(l->ctx, path);
        CHECK_STATUS(tn_writer_write(file_of_a_program, idx, sizeof idx), TN_OK);
        CHECK_STATUS(tn_writer_close(file_of_a_program, true), TN_OK);
        CHECK_STATUS(tn_npy_save(matrix, path), TN_OK);
        made[n++] = tn_npy_load(l->ctx, path);
        FILE *out = fopen(path, "wb");
        CHECK(out && fwrite(idx, 1, sizeof idx, out) == sizeof idx && fclose(out) == 0);
        made[n++] = tn_idx_load(l->ctx, path, 0);
        remove(path);
    }
    while (n > 0) {
        CHECK(made[--n] != NULL);
        tn_tensor_destroy(made[n]);
    }
}

static void tokenizers(life *l)
{
    static const char text[] = "the cat sat on the mat and the other cat sat on the hat that was on the mat";
    static file   f;
    tn_tokenizer *made[4] = {NULL, NULL, NULL, NULL};
    int           n = 3;
    made[0] = tn_tokenizer_create_bytes(l->ctx);
    made[1] = tn_tokenizer_train(l->ctx, text, sizeof text - 1, 40, NULL);
    CHECK_STATUS(tn_tokenizer_write(made[1], into(&f)), TN_OK);
    made[2] = tn_tokenizer_read(l->ctx, from(&f));
    if (l->files) {
        const char *path = path_of("tokenizer.json");
        CHECK_STATUS(tn_tokenizer_save(made[1], path), TN_OK);
        made[n++] = tn_tokenizer_load(l->ctx, path);
        remove(path);
    }
    while (n > 0) {
        int32_t ids[128];
        char    back[256];
        int64_t count = tn_tokenizer_encode(made[--n], text, sizeof text - 1, TN_BOS_FIRST, ids, 128, NULL);
        CHECK(count > 0 && count <= 128 && tn_tokenizer_decode(made[n], ids, count, back, sizeof back) > 0);
        tn_tokenizer_destroy(made[n]);
    }
}

static void shards(life *l)
{
    static const int32_t ids[5] = {1, 2, 3, 4, 5};
    static file f;
    int32_t     back[5];
    CHECK_STATUS(tn_shard_write(l->ctx, into(&f), ids, 5, 70000), TN_OK);
    tn_shard *shard = tn_shard_open(l->ctx, from(&f), 70000);
    CHECK_STATUS(tn_shard_read(shard, 0, 5, back), TN_OK);
    CHECK(memcmp(ids, back, sizeof ids) == 0);
    tn_shard_close(shard);
    if (l->files) {
        const char *path = path_of("shard");
        CHECK_STATUS(tn_shard_write(l->ctx, tn_sink_path(path), ids, 5, 100), TN_OK);
        shard = tn_shard_open(l->ctx, tn_source_path(path), 100);
        CHECK_INT(tn_shard_count(shard), 5);
        tn_shard_close(shard);
        remove(path);
    }
}

/* ---- pictures ------------------------------------------------------------------------------------------------- */

static void pictures(life *l)
{
    static const double y[6] = {1e-3, 0.5, 20, 3, 7, -1};
    static unsigned char bytes[1 << 20];
    tn_image      *image[6];
    tn_image_matrix_desc md = ZERO;
    tn_image_tiles_desc  td = ZERO;
    tn_image_plot_desc   pd = ZERO;
    tn_image_series      line = ZERO;
    md.title = "a title"; md.size = 60; md.numbers = true;
    td.size = 24;
    pd.width = 120; pd.height = 90;
    line.name = "a line"; line.y = y; line.count = 6;
    image[0] = tn_image_create(l->ctx, 9, 7);
    image[1] = tn_image_matrix(l->ctx, y, 2, 3, &md);
    image[2] = tn_image_matrix_of(l->ctx, numbers(l, 4, 6, -1), &md);
    image[3] = tn_image_tiles(l->ctx, y, 2, 1, 3, &td);
    image[4] = tn_image_tiles_of(l->ctx, numbers(l, 3, 4, 5), &td);
    image[5] = tn_image_plot(l->ctx, &line, 1, &pd);
    for (int k = 0; k < 6; k++) {
        size_t used = 0;
        CHECK_STATUS(tn_image_write_ppm(image[k], tn_sink_memory(bytes, sizeof bytes, &used)), TN_OK);
        CHECK(used > 0);
    }
    if (l->files) {
        const char *path = path_of("ppm");
        CHECK_STATUS(tn_image_save_ppm(image[5], path), TN_OK);
        remove(path);
    }
    if (tn_image_write_png(image[5], tn_sink_memory(bytes, sizeof bytes, NULL)) != TN_OK) tn_ctx_clear_error(l->ctx);
    if (l->files) {
        const char *path = path_of("png");                      /* an error where there is no writer */
        if (tn_image_save_png(image[5], path) != TN_OK) tn_ctx_clear_error(l->ctx);
        remove(path);
    }
    for (int k = 0; k < 6; k++) tn_image_destroy(image[k]);
}

/* Heads, blocks and tables of a transformer. The results of a model that was not made are errors. */
static void circuits(life *l)
{
    tn_params          *ps = tn_params_create(l->ctx);
    tn_transformer_desc d = small_model();
    tn_transformer      m;
    tn_circuit_desc     at = ZERO;
    tn_circuit         *c[6];
    tn_circuit_block_desc od = ZERO;
    tn_circuit_block     o;
    tn_circuit_top_desc td = ZERO;
    tn_circuit_entries  e;
    tn_circuit_maximum  best;
    tn_circuit_maximum_desc md = ZERO;
    tn_circuit_evidence_desc ed = ZERO;
    tn_circuit_evidence_result r;
    tn_circuit_sparsity sparsity;
    tn_tensor          *a, *b;
    double              score;
    d.attention = TN_ATTENTION_BILINEAR;
    d.attn_bias = d.attn_out_bias = true;
    tn_status s = tn_transformer_init(ps, NULL, &d, &m);
    CHECK_STATUS(s, TN_OK);
    at.tokens = true;
    c[0] = tn_circuit_qk(l->ctx, &m, &at);
    c[1] = tn_circuit_ov(l->ctx, &m, &at);
    at.tokens = false;
    c[2] = tn_circuit_ov(l->ctx, &m, &at);
    at.block = 1;
    c[3] = tn_circuit_qk(l->ctx, &m, &at);
    c[4] = tn_circuit_compose(c[3], TN_CIRCUIT_ROWS, c[2]);
    c[5] = tn_circuit_pairs(l->ctx, &m, 0, 3);
    tn_tensor *scores = tn_circuit_composition(l->ctx, &m, 0, 1, TN_HEAD_K2);
    CHECK(c[0] && c[1] && c[4] && c[5] && scores);
    CHECK_STATUS(tn_circuit_norm(c[0], &score), TN_OK);
    s = tn_circuit_copying(c[1], &a, &score);
    whole(l, s, a, a, a, a);
    tn_tensor_destroy(a);
    s = tn_circuit_means(c[0], &a, &b);
    whole(l, s, a, b, a, b);
    tn_tensor_destroy(a);
    tn_tensor_destroy(b);
    s = tn_circuit_top_rows(c[5], 2, TN_ORDER_LARGEST, &a, &b);
    whole(l, s, a, b, a, b);
    tn_tensor_destroy(a);
    tn_tensor_destroy(b);
    td.top = 3;
    s = tn_circuit_top(c[5], &td, &e);
    whole(l, s, e.values, e.index, e.share, e.share);
    tn_circuit_entries_destroy(&e);
    tn_tensor_destroy(scores);
    for (int i = 0; i < 6; i++) tn_circuit_destroy(c[i]);
    c[0] = tn_circuit_bigrams(l->ctx, &m, 2, 0);
    a = ids_of(l, 1, 4, 11);
    a = a ? tn_reshape(a, 1, &a->shape[1]) : NULL;
    c[1] = tn_circuit_select(c[0], a, a);
    b = numbers(l, 5, 3, -1);
    c[2] = tn_circuit_create(l->ctx, 1, &b, &b);
    CHECK(c[0] && c[1] && c[2]);
    tn_circuit_destroy(c[2]);
    tn_circuit_destroy(c[0]);
    tn_circuit_destroy(c[1]);
    od.norm1_scale = od.norm2_scale = 1;
    od.compact = true;
    s = tn_circuit_block_of(l->ctx, &m, &od, &o);
    whole(l, s, o.b, o.doubled, o.m, o.compact);
    tn_cp *term = tn_circuit_block_term(&o, 0, 1);
    tn_net *layer = term ? tn_net_from_cp(l->ctx, term) : NULL;
    md.starts = 1;
    md.steps = 2;
    s = tn_circuit_maximise(layer, numbers(l, 8, -1, -1), &md, &best);
    whole(l, s, best.x, best.x, best.x, best.x);
    tn_circuit_maximum_destroy(&best);
    tn_net_destroy(layer);
    tn_cp_destroy(term);
    tn_circuit_block_destroy(&o);
    layer = tn_circuit_attention(l->ctx, &m, 1, 2);
    CHECK(layer != NULL);
    tn_net_destroy(layer);
    ed.features = 3;
    ed.bins = 2;
    ed.high = 1;
    tn_circuit_evidence *evidence = tn_circuit_evidence_create(l->ctx, &ed);
    CHECK_STATUS(tn_circuit_evidence_add(evidence, numbers(l, 12, 3, -1)), TN_OK);
    s = tn_circuit_evidence_read(evidence, &r);
    whole(l, s, r.values, r.random_values, r.histogram, r.kurtosis);
    tn_circuit_evidence_result_destroy(&r);
    tn_circuit_evidence_destroy(evidence);
    s = tn_circuit_sparsity_of(l->ctx, numbers(l, 2, 5, -1), &sparsity);
    whole(l, s, sparsity.kurtosis, sparsity.participation, sparsity.deviations, sparsity.deviations);
    tn_circuit_sparsity_destroy(&sparsity);
    tn_params_destroy(ps);
}

static void steering(life *l)
{
    tn_params               *ps = tn_params_create(l->ctx);
    tn_transformer_desc      d = small_model();
    tn_transformer           m;
    tn_circuit_steering_desc sd = ZERO;
    tn_circuit_steering      o;
    tn_circuit_alignment     r;
    tn_tensor               *square;
    CHECK_STATUS(tn_transformer_init(ps, NULL, &d, &m), TN_OK);
    sd.point = "blocks.0.middle";
    sd.edit.keep = 0.5;
    tn_status s = tn_circuit_steering_of(l->ctx, &m, ids_of(l, 1, 4, 11), &sd, &o);
    whole(l, s, o.logits, o.measured, o.frozen, o.parts);
    tn_circuit_steering_destroy(&o);
    tn_cp *cp = tn_circuit_mlp(l->ctx, &m, 0);
    tn_circuit *c = tn_circuit_steer(l->ctx, cp, tn_reshape(numbers(l, d.dim, 1, -1), 1, &d.dim), &square);
    CHECK(c && square);
    tn_tensor_destroy(square);
    tn_circuit_destroy(c);
    tn_cp_destroy(cp);
    s = tn_circuit_align(l->ctx, &m, &m, 1, true, &r);
    whole(l, s, r.a, r.b, r.cosines, r.heads);
    tn_circuit_alignment_destroy(&r);
    tn_params_destroy(ps);
}

/* ---- the cycles ----------------------------------------------------------------------------------------------- */

typedef struct part { const char *name; void (*run)(life *); bool captures; } part;

static const part parts[] = {
    {"tensors", tensors, false}, {"functions", functions, false}, {"decompositions", decompositions, false},
    {"tensor trains", trains, false}, {"states", states, false}, {"tensor networks", tensor_networks, false},
    {"factorisations", factorisations, false},
    {"contractions", contractions, false}, {"layers", layers, false}, {"clones", clones, false},
    {"models", models, false}, {"caches", caches, false},
    {"operators", operators, false}, {"networks", networks, false}, {"paths", paths, false},
    {"bounds", bounds, false}, {"eigenpairs", eigenpairs, false},
    {"spectra", spectra, false}, {"analyses", analyses, false}, {"circuits", circuits, false}, {"ratios", ratios, false}, {"steering", steering, false},
    {"few of many", few_of_many, false}, {"AdamW", adamw, false},
    {"SGD with momentum", momentum, false}, {"SGD", plain_sgd, false}, {"Muon", muon, false},
    {"Muon after its parameters", muon_outlives, false},
    {"graphs", graphs, true}, {"checkpoints", checkpoints, false}, {"safetensors", safetensors, false},
    {"parameter files", parameter_files, false}, {"npy and idx", arrays, false}, {"tokenizers", tokenizers, false},
    {"token shards", shards, false}, {"pictures", pictures, false}
};

/* The descriptor that the next opened file gets: it is higher if a file was not closed. */
static int next_descriptor(void)
{
#if DESCRIPTORS
    int fd = dup(0);
    if (fd >= 0) close(fd);
    return fd;
#else
    return 0;
#endif
}

static void cycles(const tn_backend *backend, tn_dtype dtype, bool usual)
{
    test_heap heap = {0, 0, 0, 0, false};
    tn_desc   d = ZERO;
    life      l = ZERO;
    d.backend = backend;
    d.backend_required = true;
    d.dtype = dtype;
    d.threads = 1;
    d.arena_bytes = 1 << 16;
    d.allocator = test_heap_allocator(&heap);
    l.heap = &heap;
    l.files = l.large = usual;
    REQUIRE(tn_ctx_create(&d, &l.ctx, NULL) == TN_OK);
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        size_t   live = 0, held = 0;
        uint64_t blocks = 0;
        int      before = test_now.failures, descriptor = next_descriptor();
        if (parts[k].captures && test_leave_out(!tn_graph_supported(l.ctx), "graphs, on backends that cannot capture"))
            continue;
        for (int cycle = 0; cycle < CYCLES; cycle++) {
            tn_ctx_seed(l.ctx, 5);
            parts[k].run(&l);
            CHECK_CTX(l.ctx);
            tn_ctx_clear_error(l.ctx);
            tn_ctx_reset(l.ctx);
            if (cycle > 0) {
                CHECK_INT(tn_ctx_memory(l.ctx).live, live);
                CHECK_INT(heap.live, held);
                CHECK_INT(heap.blocks, blocks);
            }
            live = tn_ctx_memory(l.ctx).live;
            held = heap.live;
            blocks = heap.blocks;
        }
        CHECK_INT(next_descriptor(), descriptor);
        if (test_now.failures > before) printf("     %s on %s\n", parts[k].name, backend->name);
    }
    tn_ctx_destroy(l.ctx);
    CHECK_INT(heap.live, 0);
    CHECK_INT(heap.blocks, 0);
}

TEST(nothing_is_left_behind)              { cycles(tn_cpu_backend(), TN_F32, true); }
TEST(nothing_is_left_behind_on_reference) { cycles(tn_reference_backend(), TN_F64, false); }
TEST(nothing_is_left_behind_on_a_device)  { cycles(capture_backend(), TN_F32, false); }

/* Each of these is composed of other rows, or runs on copies of its operands on the host. */
TEST(nothing_is_left_behind_without_kernels)
{
    static const tn_kernel missing[] = {
        TN_KERNEL_GLU, TN_KERNEL_GLU_BACKWARD, TN_KERNEL_ADD, TN_KERNEL_SUM, TN_KERNEL_EMBED, TN_KERNEL_EMBED_BACKWARD,
        TN_KERNEL_RMSNORM, TN_KERNEL_RMSNORM_BACKWARD, TN_KERNEL_CROSS_ENTROPY, TN_KERNEL_ADAMW, TN_KERNEL_SGD,
        TN_KERNEL_MUON_BEGIN, TN_KERNEL_MUON_END, TN_KERNEL_ATTENTION, TN_KERNEL_ATTENTION_BACKWARD, TN_KERNEL_TICK
    };
    tn_backend b = *capture_backend();
    b.name = "capture with rows missing";
    b.capture_begin = NULL;
    b.capture_end = NULL;
    b.replay = NULL;
    b.graph_release = NULL;
    for (size_t k = 0; k < sizeof missing / sizeof *missing; k++) b.fn[missing[k]] = NULL;
    cycles(&b, TN_F32, false);
}

/* ---- injected failures --------------------------------------------------------------------------------- */

static int64_t works, works_until_failure;      /* rows and copies so far; the one that fails, or 0 */

static bool fails_now(void) { return ++works == works_until_failure; }

static tn_status flaky_row(void *state, const tn_call *c) { return fails_now() ? TN_ERR_BACKEND : capture_run(state, c); }

static tn_status flaky_copy(void *state, void *dst, const void *src, size_t bytes)
{
    return fails_now() ? TN_ERR_BACKEND : capture_copy(state, dst, src, bytes);
}

static size_t held(const life *l) { return tn_ctx_memory(l->ctx).live - tn_ctx_memory(l->ctx).arena; }

/* Runs the part once. Its checks do not count, since a failure is injected. */
static void run_quietly(life *l, const part *p)
{
    const int failures = test_now.failures;
    tn_ctx_seed(l->ctx, 5);
    test_now.failures = 1 << 20;                /* from the eleventh on they are not printed */
    p->run(l);
    test_now.failures = failures;
}

/* Each part with its k-th allocation failing, or its k-th row or copy: each of the first k, then more and more apart. */
static void failures_in(const tn_backend *backend, bool memory)
{
    test_heap heap = {0, 0, 0, 0, false};
    tn_desc   d = ZERO;
    life      l = ZERO;
    int64_t   failed = 0;
    d.backend = backend;
    d.backend_required = true;
    d.threads = 1;
    d.allocator = test_heap_allocator(&heap);
    works_until_failure = 0;
    REQUIRE(tn_ctx_create(&d, &l.ctx, NULL) == TN_OK);
    l.heap = &heap;
    l.fails = true;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        bool reached = true;
        if (parts[i].captures) continue;
        for (int warm = 0; warm < 2; warm++) { run_quietly(&l, &parts[i]); tn_ctx_clear_error(l.ctx); tn_ctx_reset(l.ctx); }
        size_t before = held(&l);
        int descriptor = next_descriptor();
        for (int64_t k = 1; reached; k += 1 + k / (test_small() ? 8 : 128)) {
            const uint64_t calls = heap.count;
            works = 0;
            if (memory) heap.fail_at = calls + (uint64_t)k;
            else works_until_failure = k;
            run_quietly(&l, &parts[i]);
            reached = memory ? heap.count >= heap.fail_at : works >= k;
            heap.fail_at = 0;
            works_until_failure = 0;
            if (reached) failed++;
            tn_ctx_clear_error(l.ctx);
            tn_ctx_reset(l.ctx);
            if (CHECK_INT(held(&l), before) && CHECK_INT(next_descriptor(), descriptor) && CHECK_INT(l.halves, 0)) continue;
            printf("     %s, %s %" PRId64 " fails\n", parts[i].name, memory ? "allocation" : "row or copy", k);
            before = held(&l);
            l.halves = 0;
        }
    }
    tn_ctx_destroy(l.ctx);
    CHECK_INT(heap.live, 0);
    printf("%" PRId64 " failures of %s leave nothing behind\n", failed, memory ? "memory" : "rows and copies");
    CHECK(failed > (test_small() ? 300 : 1000));
}

TEST(nothing_is_left_behind_without_memory) { failures_in(tn_cpu_backend(), true); }

TEST(nothing_is_left_behind_by_a_device_that_fails)
{
    tn_backend b = *capture_backend();
    b.name = "flaky";
    b.capture_begin = NULL;
    b.capture_end = NULL;
    b.replay = NULL;
    b.graph_release = NULL;
    b.upload = b.download = flaky_copy;
    for (int k = 0; k < TN_KERNEL_COUNT; k++) b.fn[k] = flaky_row;
    failures_in(&b, false);
}

/* ---- layers that cannot be made ------------------------------------------------------------------------------- */

enum { LAYERS = 12 };

typedef union any_layer {
    tn_linear linear; tn_embedding embedding; tn_norm norm; tn_mlp mlp; tn_mlp product; tn_quadratic quadratic;
    tn_modifier modifier; tn_attention attention; tn_transformer transformer;
} any_layer;

static tn_status init_layer(tn_params *ps, int which, any_layer *y, size_t *bytes, const tn_cp *cp)
{
    tn_linear_desc    ld = ZERO;
    tn_embedding_desc ed = ZERO;
    tn_norm_desc      nd = ZERO;
    tn_mlp_desc       md = ZERO;
    tn_mlp_desc       pd = ZERO;
    tn_quadratic_desc qd = ZERO;
    tn_modifier_desc  od = ZERO;
    tn_attention_desc ad = attention_of(TN_ATTENTION_DIFFERENTIAL, TN_ATTEND_FORM_AUTO);
    tn_transformer_desc td = small_model();
    ld.bias = true;
    ld.in = ld.out = ed.dim = ed.count = nd.dim = md.in = md.hidden = 4;
    pd.in = pd.hidden = qd.in = qd.out = od.in = od.hidden = 4;
    pd.order = 3;
    od.rank = 2;
    nd.kind = TN_NORM_LAYER;
    nd.bias = true;
    md.bias = md.out_bias = pd.bias = pd.out_bias = qd.bias = od.bias = od.out_bias = true;
    switch (which) {
    case 0:  *bytes = sizeof y->linear;      return tn_linear_init(ps, "x", &ld, &y->linear);
    case 1:  *bytes = sizeof y->embedding;   return tn_embedding_init(ps, "x", &ed, &y->embedding);
    case 2:  *bytes = sizeof y->norm;        return tn_norm_init(ps, "x", &nd, &y->norm);
    case 3:  *bytes = sizeof y->mlp;         return tn_mlp_init(ps, "x", &md, &y->mlp);
    case 4:  *bytes = sizeof y->product;     return tn_mlp_init(ps, "x", &pd, &y->product);
    case 5:  *bytes = sizeof y->quadratic;   return tn_quadratic_init(ps, "x", &qd, &y->quadratic);
    case 6:  *bytes = sizeof y->modifier;    return tn_modifier_init(ps, "x", &od, &y->modifier);
    case 7:  *bytes = sizeof y->attention;   return tn_attention_init(ps, "x", &ad, &y->attention);
    case 8:  *bytes = sizeof y->transformer; return tn_transformer_init(ps, "x", &td, &y->transformer);
    case 9:  td.tied = false;
             *bytes = sizeof y->transformer; return tn_transformer_init(ps, "x", &td, &y->transformer);
    case 10: *bytes = sizeof y->product;     return tn_mlp_from_cp(ps, "x", cp, &y->product);
    default: *bytes = sizeof y->quadratic;   return tn_quadratic_from_cp(ps, "x", cp, &y->quadratic);
    }
}

static bool all_zero(const void *p, size_t n)
{
    while (n > 0 && ((const unsigned char *)p)[n - 1] == 0) n--;
    return n == 0;
}

/* A layer one of whose names is taken, each name in turn: its set of parameters is unchanged, and holds no more memory. */
TEST(half_a_layer_is_none)
{
    life       l = ZERO;
    tn_params *ps, *probe;
    tn_tensor *f[2];
    tn_init    init = ZERO;
    int64_t    one = 1, names = 0;
    REQUIRE(tn_ctx_create(NULL, &l.ctx, NULL) == TN_OK);
    f[0] = f[1] = numbers(&l, 3, 5, -1);
    tn_cp *cp = tn_cp_create(l.ctx, 2, numbers(&l, 4, 3, -1), f, TN_CP_INPUT_CONSTANT);
    for (int which = 0; which < LAYERS; which++) {
        any_layer y;
        size_t    bytes;
        probe = tn_params_create(l.ctx);
        CHECK_STATUS(init_layer(probe, which, &y, &bytes, cp), TN_OK);
        for (int64_t k = 0; k < tn_params_count(probe); k++, names++) {
            size_t live = 0;
            ps = tn_params_create(l.ctx);
            CHECK(tn_params_add(ps, tn_params_at(probe, k)->name, 1, &one, init) != NULL);
            for (int again = 0; again < 3; again++) {                  /* the first time the set may grow */
                memset(&y, 1, sizeof y);
                FAILS(l.ctx, init_layer(ps, which, &y, &bytes, cp), TN_ERR_ARG, tn_params_at(probe, k)->name);
                CHECK_INT(tn_params_count(ps), 1);
                CHECK(all_zero(&y, bytes));
                if (again > 0 && !CHECK_INT(tn_ctx_memory(l.ctx).live - tn_ctx_memory(l.ctx).arena, live))
                    printf("     layer %d, %s\n", which, tn_params_at(probe, k)->name);
                live = tn_ctx_memory(l.ctx).live - tn_ctx_memory(l.ctx).arena;
            }
            tn_params_destroy(ps);
        }
        tn_params_destroy(probe);
    }
    CHECK(names > 50);
    ps = tn_params_create(l.ctx);                                   /* a copy that lacks some of the parameters */
    probe = tn_params_create(l.ctx);
    {
        any_layer y;
        size_t    bytes;
        tn_transformer_desc d = small_model();
        tn_transformer      shorter;
        CHECK_STATUS(init_layer(ps, 8, &y, &bytes, cp), TN_OK);
        d.layers = 1;
        CHECK_STATUS(tn_transformer_init(probe, "x", &d, &shorter), TN_OK);
        any_layer was = y;
        size_t    live = tn_ctx_memory(l.ctx).live;
        CHECK_INT(tn_params_rebind(probe, ps, &y, bytes), -1);
        CHECK_ERROR(l.ctx, TN_ERR_ARG, "rebind");
        CHECK_INT(tn_ctx_memory(l.ctx).live, live);
        CHECK(memcmp(&y, &was, bytes) == 0);
    }
    CLOSE_CTX(l.ctx);
}

/* ---- is every function called? ------------------------------------------------------------------------------- */

static char *text_of(const char *path)
{
    FILE  *f = fopen(path, "rb");
    size_t room = 1 << 21;
    char  *text = (char *)malloc(room + 1);
    if (!f || !text) { if (f) fclose(f); free(text); return NULL; }
    size_t n = fread(text, 1, room, f);
    fclose(f);
    text[n] = 0;
    return text;
}

/* Comments may name functions that are not called. */
static void remove_comments(char *text)
{
    for (char *end; (text = strstr(text, "/*")) != NULL; text = end) {
        end = strstr(text + 2, "*/");
        end = end ? end + 2 : text + strlen(text);
        memset(text, ' ', (size_t)(end - text));
    }
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

/* Does a function of this name create, fill, read, write or destroy something that owns memory? */
static bool owns(const char *name)
{
    static const char *const end[] = {
        "_create", "_destroy", "_open", "_close", "_init", "_load", "_save", "_read",
        "_write", "_keep", "_clone", "_train", "_begin", "_end", "_release", "_reset",
        "_decode", "_mapped", "_matrix", "_tiles", "_plot", "_of"
    };
    if (strstr(name, "_from_") || strstr(name, "_read_")) return true;
    for (size_t k = 0; k < sizeof end / sizeof *end; k++) if (ends_with(name, end[k])) return true;
    return false;
}

/* Every such function that tensornet.h declares is called in this file: one that is added without a cycle fails here. */
TEST(every_owner_is_here)
{
    static const char *const exempt[] = {"tn_read", "tn_tap_read", "tn_source_calls", "tn_transformer_cost_of"};
    char *header = text_of("tensornet.h"), *self = text_of("tests/test_lifetimes.c"), *end;
    int   owners = 0;
    if (!header || !self || !(end = strstr(header, "#endif /* TENSORNET_H */"))) {
        free(header);
        free(self);
        SKIP("source", "tensornet.h and tests/test_lifetimes.c, below the current folder");
    }
    *end = 0;
    remove_comments(self);
    for (char *line = header; (line = strstr(line, "\nTN_API ")) != NULL; line++) {
        char        name[80], call[84], *p = line + 8;
        const char *begin;
        bool        exempted = false;
        size_t n = strcspn(p, "(;");
        if (strncmp(p, "TN_EXPERIMENTAL ", 16) == 0) n = 16 + strcspn(p + 16, "(;");
        for (begin = p + n; begin > p && begin[-1] != ' ' && begin[-1] != '*'; begin--) {}
        snprintf(name, sizeof name, "%.*s", (int)(p + n - begin), begin);
        for (size_t k = 0; k < sizeof exempt / sizeof *exempt; k++) if (strcmp(name, exempt[k]) == 0) exempted = true;
        if (exempted || !owns(name)) continue;
        owners++;
        snprintf(call, sizeof call, "%s(", name);
        if (!strstr(self, call)) test_fail(__FILE__, __LINE__, "no cycle calls this function", name, "in test_lifetimes.c");
    }
    printf("%d functions that make, fill, read or end something are called\n", owners);
    CHECK(owners > 80);
    free(header);
    free(self);
}

/* ---- alignment ------------------------------------------------------------------------------------------------ */

/* An allocator whose memory is aligned for any C type and never to 64 bytes: it begins 16, 32 or 48 bytes after a multiple
   of 64. */
static void *shifted_alloc(size_t bytes, void *user)
{
    int  *turn = (int *)user;
    char *raw = bytes > SIZE_MAX - 256 ? NULL : (char *)malloc(bytes + 256);
    if (!raw) return NULL;
    *turn = *turn % 3 + 1;
    size_t at = 128 - (size_t)((uintptr_t)raw % 64) + 16 * (size_t)*turn;
    memcpy(raw + at - sizeof raw, &raw, sizeof raw);
    return raw + at;
}

static void shifted_release(void *p, size_t bytes, void *user)
{
    char *raw;
    (void)bytes;
    (void)user;
    if (!p) return;
    memcpy(&raw, (char *)p - sizeof raw, sizeof raw);
    free(raw);
}

static int64_t checked;                 /* addresses so far */

static void check_address(const void *p, const char *what)
{
    checked++;
    if (!CHECK(p != NULL) || !CHECK_INT((uintptr_t)p % 64, 0)) printf("     %s\n", what);
}

static void check_tensor(const tn_tensor *t, const char *what)
{
    if (CHECK(t != NULL)) check_address(t->data, what);
}

/* Everything that holds the numbers of a tensor, in odd sizes, so that what follows it is not aligned by chance. */
static void check_tensors(life *l)
{
    tn_params  *ps = tn_params_create(l->ctx);
    net         m;
    double      loss;
    tn_svd_result svd;
    for (int64_t n = 1; n <= 70; n++) {
        const tn_dtype dtype[] = {TN_F32, TN_F64, TN_BF16, TN_I32};
        tn_tensor *t = NULL, *owned;
        for (int k = 0; k < 4; k++) {
            check_tensor(tn_tensor_nd(l->ctx, dtype[k], 1, &n), "a tensor of the arena");
            check_tensor(owned = tn_tensor_create(l->ctx, dtype[k], 1, &n), "an owned tensor");
            tn_tensor_destroy(owned);
        }
        t = numbers(l, n, 3, -1);
        check_tensor(t, "a tensor of the arena");
        check_tensor(tn_scale(l->ctx, t, 0.5), "a result");
        check_tensor(tn_copy(l->ctx, tn_transpose(t, 0, 1)), "a copy");
        check_tensor(owned = tn_tensor_keep(tn_slice(t, 1, 0, 1)), "a kept view");
        tn_tensor_destroy(owned);
        tn_record(l->ctx);
        CHECK_STATUS(tn_watch(t), TN_OK);
        CHECK_STATUS(tn_backward(l->ctx, tn_mean(l->ctx, tn_activation(l->ctx, t, TN_ACT_SWISH))), TN_OK);
        check_tensor(t ? t->grad : NULL, "a gradient");
    }
    CHECK(net_make(ps, &m));
    tn_optim *optim = net_optim(ps);
    CHECK(net_train(l->ctx, &m, optim, &loss));
    for (int64_t i = 0; i < tn_params_count(ps); i++) {
        check_tensor(tn_params_at(ps, i)->value, "a parameter");
        check_tensor(tn_params_at(ps, i)->value->grad, "a parameter's gradient");
    }
    tn_cp *cp = tn_cp_from_mlp(l->ctx, &m.mlp);
    if (CHECK(cp != NULL)) {
        check_tensor(cp->p, "a factor");
        for (int k = 0; k < cp->order; k++) check_tensor(cp->f[k], "a factor");
    }
    CHECK_STATUS(tn_svd(l->ctx, numbers(l, 9, 5, -1), NULL, &svd), TN_OK);
    check_tensor(svd.u, "singular vectors");
    check_tensor(svd.s, "singular values");
    check_tensor(svd.vt, "singular vectors");
    CHECK_CTX(l->ctx);
}

/* The memory of a backend, and so the numbers of every tensor that is not a view, begins at a multiple of 64 bytes. */
TEST(numbers_are_aligned)
{
    const tn_backend *backend[3];
    int     turn = 0;
    tn_desc d;
    life    l;
    backend[0] = tn_cpu_backend();
    backend[1] = tn_reference_backend();
    backend[2] = capture_backend();
    checked = 0;
    for (int k = 0; k < 4; k++) {
        void *state = NULL, *p[70];
        char  why[256] = "";
        memset(&d, 0, sizeof d);
        d.backend = backend[k % 3];
        d.backend_required = true;
        d.threads = 1;
        d.arena_bytes = 1 << 12;                                /* many blocks */
        d.activations = k == 3 ? TN_BF16 : TN_REAL;
        d.allocator.alloc = shifted_alloc;
        d.allocator.release = shifted_release;
        d.allocator.user = &turn;
        if (!CHECK_STATUS(d.backend->open(&d, &state, why), TN_OK)) continue;
        for (size_t n = 0; n < 70; n++) check_address(p[n] = d.backend->alloc(state, n + 1), "a backend's memory");
        for (size_t n = 0; n < 70; n++) d.backend->release(state, p[n], n + 1);
        d.backend->close(state);
        memset(&l, 0, sizeof l);
        if (!CHECK_STATUS(tn_ctx_create(&d, &l.ctx, why), TN_OK)) continue;
        check_tensors(&l);
        tn_ctx_destroy(l.ctx);
    }
    printf("%" PRId64 " addresses are multiples of 64\n", checked);
    CHECK(checked > 4000);
}

/* In a file the numbers of each tensor begin at a multiple of their size, in any order and with any sizes. */
TEST(tensors_in_files_are_aligned)
{
    static const tn_dtype dtype[] = {TN_BF16, TN_I32, TN_F64, TN_F32};
    static const char *const name[] = {"a", "bb", "ccc", "dddd", "e", "ff", "ggg", "hhhh"};
    static file f;
    tn_ctx     *ctx;
    REQUIRE(tn_ctx_create(NULL, &ctx, NULL) == TN_OK);
    for (int64_t count = 1; count <= 8; count++) {
        tn_named_tensor named[8];
        for (int64_t k = 0; k < count; k++) {
            int64_t n = k % 3 * 2 + 1;
            named[k].name = name[k];
            named[k].tensor = tn_cast(ctx, tn_full(ctx, 1, &n, 1), dtype[k % 4]);
        }
        CHECK_STATUS(tn_safetensors_write(ctx, into(&f), named, count, NULL, 0), TN_OK);
        tn_safetensors *opened = tn_safetensors_open(ctx, from(&f));
        for (int64_t k = 0; k < count; k++) {
            const tn_safetensors_entry *e = tn_safetensors_find(opened, name[k]);
            const uint64_t size = dtype[k % 4] == TN_F64 ? 8 : dtype[k % 4] == TN_BF16 ? 2 : 4;
            if (CHECK(e != NULL)) CHECK_INT(e->offset % size, 0);
        }
        tn_safetensors_close(opened);
    }
    CLOSE_CTX(ctx);
}

TEST_MAIN(nothing_is_left_behind, nothing_is_left_behind_on_reference, nothing_is_left_behind_on_a_device,
          nothing_is_left_behind_without_kernels, nothing_is_left_behind_without_memory,
          nothing_is_left_behind_by_a_device_that_fails, half_a_layer_is_none, every_owner_is_here, numbers_are_aligned,
          tensors_in_files_are_aligned)
