/* replaced.c - tn circuits polynomial: norms as linear maps, and the model that is left when everything is replaced */
#include "circuits.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- norms as linear maps ------------------------------------------------------------------------------------------------ */

enum { KEEP, FACTOR, MAP };                     /* of --norms */

/* A norm, the points that it reads and gives, and what replaces it: y = x g + b. */
typedef struct place {
    char           in[48], out[48];
    const tn_norm *norm;
    bool           last;                        /* before the unembedding, which has no bias: neither has the map */
    tn_tensor     *g, *b, *x;                   /* [dim,dim], [dim], owned, or NULL; x: what the run has shown    */
    double         share;
    double        *rows[2];                     /* where the next rows of x and of y are stored, or NULL          */
} place;

static void store_rows(place *p, int which, const char *name, const tn_tensor *x)
{
    const int64_t n = tn_tensor_count(x);
    double       *v = numbers_in(x);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(v[i])) fail("%s has the number %g in this text, expected finite numbers", name, v[i]);
    memcpy(p->rows[which], v, (size_t)n * sizeof *v);
    p->rows[which] += n;
    free(v);
}

static tn_tensor *see_stream(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    place *p = (place *)user;
    (void)ctx;
    if (p->rows[0]) store_rows(p, 0, name, x);
    p->x = x;
    return x;
}

static tn_tensor *see_normed(tn_ctx *ctx, void *user, const char *name, tn_tensor *y)
{
    place *p = (place *)user;
    if (p->rows[1]) store_rows(p, 1, name, y);
    if (!p->g) return y;
    tn_tensor *x = tn_add(ctx, tn_matmul(ctx, tn_reshape_2d(p->x, -1, y->shape[2]), p->g), p->b);
    return tn_reshape(x, y->rank, y->shape);
}

/* The norms that read the residual stream, in the order of a run: two for each block, and the last one. */
static place *list_places(const subject *s, int64_t *count)
{
    const int64_t L = s->m.desc.layers;
    place        *p = (place *)allocate((size_t)(2 * L + 1), sizeof *p);
    for (int64_t l = 0; l <= L; l++) {
        const tn_transformer_block *b = &s->m.net.blocks[l < L ? l : 0];
        place                      *at = &p[2 * l];
        if (l == 0) snprintf(at->in, sizeof at->in, "embed");
        else snprintf(at->in, sizeof at->in, "blocks.%lld", (long long)l - 1);
        at->last = l == L;
        at->norm = at->last ? &s->m.net.norm : &b->norm1;
        snprintf(at->out, sizeof at->out, at->last ? "norm" : "blocks.%lld.norm1", (long long)l);
        if (at->last) break;
        if (b->lambdas) snprintf(at->in, sizeof at->in, "blocks.%lld.input", (long long)l);
        at[1].norm = &b->norm2;
        snprintf(at[1].in, sizeof at[1].in, "blocks.%lld.middle", (long long)l);
        snprintf(at[1].out, sizeof at[1].out, "blocks.%lld.norm2", (long long)l);
    }
    *count = 2 * L + 1;
    return p;
}

/* The taps of places [0,count): what is shown goes through the map where there is one. */
static tn_tap *taps_of(place *p, int64_t count)
{
    tn_tap *taps = (tn_tap *)allocate((size_t)(2 * count), sizeof *taps);
    for (int64_t i = 0; i < count; i++) {
        taps[2 * i].points = p[i].in;
        taps[2 * i].fn = see_stream;
        taps[2 * i + 1].points = p[i].out;
        taps[2 * i + 1].fn = see_normed;
        taps[2 * i].user = taps[2 * i + 1].user = &p[i];
    }
    return taps;
}

/* The rows of x at a place in a run where the earlier places have their maps, or of y in the model as it is: a new list
   [tokens,dim]. */
static double *rows_at(const subject *s, const samples *x, place *p, int64_t k, int which)
{
    double *rows = (double *)allocate((size_t)(x->count * x->length * s->m.desc.dim), sizeof *rows);
    const int64_t first = which ? k : 0;
    tn_tap *taps = taps_of(p + first, k + 1 - first);
    p[k].rows[which] = rows;
    for (int64_t i = 0; i < x->count; i++) sample_loss(&s->m, x, i, taps, 2 * (k + 1 - first));
    p[k].rows[which] = NULL;
    free(taps);
    return rows;
}

static void drop_map(place *p)
{
    tn_tensor_destroy(p->g);
    tn_tensor_destroy(p->b);
    p->g = p->b = NULL;
}

static void set_map(tn_ctx *ctx, place *p, int64_t n, const double *g, const double *b)
{
    const int64_t shape[2] = {n, n};
    drop_map(p);
    p->g = tn_tensor_create(ctx, TN_REAL, 2, shape);
    p->b = tn_tensor_create(ctx, TN_REAL, 1, shape);
    tn_write(p->g, TN_F64, g, n * n);
    tn_write(p->b, TN_F64, b, n);
    check_ctx(ctx, p->out);
}

/* The norm with one number c in the place of 1/denominator: y = c u + bias, u = (x - mean) gain; without the bias if it is the
   last one. */
static void fit_factor(tn_ctx *ctx, place *p, int64_t rows, int64_t n, const double *x, const double *y)
{
    const bool centred = p->norm->desc.kind == TN_NORM_LAYER;
    double *gain = p->norm->gain ? numbers_in(p->norm->gain) : NULL, *g = (double *)allocate((size_t)(n * n), sizeof *g);
    double *bias = p->norm->bias && !p->last ? numbers_in(p->norm->bias) : (double *)allocate((size_t)n, sizeof *bias);
    double  yu = 0, uu = 0;
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0;
        for (int64_t i = 0; centred && i < n; i++) mean += x[r * n + i] / (double)n;
        for (int64_t i = 0; i < n; i++) {
            const double u = (x[r * n + i] - mean) * (gain ? gain[i] : 1);
            yu += (y[r * n + i] - bias[i]) * u;
            uu += u * u;
        }
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            g[i * n + j] = (uu > 0 ? yu / uu : 0) * ((i == j) - (centred ? 1 / (double)n : 0)) * (gain ? gain[j] : 1);
    set_map(ctx, p, n, g, bias);
    free(gain);
    free(g);
    free(bias);
}

/* Any map, and a constant unless it is the last one: least squares. */
static void fit_map(tn_ctx *ctx, place *p, int64_t rows, int64_t n, const double *x, const double *y)
{
    const int64_t   m = n + !p->last, shape[2] = {rows, m}, target[2] = {rows, n};
    tn_lstsq_result r;
    tn_tensor      *a = tn_tensor_create(ctx, TN_REAL, 2, shape), *b = tn_tensor_create(ctx, TN_REAL, 2, target);
    double         *v = (double *)allocate((size_t)(rows * m), sizeof *v), *zero = (double *)allocate((size_t)n, sizeof *zero);
    for (int64_t i = 0; i < rows; i++) {
        memcpy(v + i * m, x + i * n, (size_t)n * sizeof *x);
        if (!p->last) v[i * m + n] = 1;
    }
    tn_write(a, TN_F64, v, rows * m);
    tn_write(b, TN_F64, y, rows * n);
    tn_lstsq(ctx, a, b, NULL, &r);
    check_ctx(ctx, p->out);
    free(v);
    v = numbers_in(r.x);
    set_map(ctx, p, n, v, p->last ? zero : v + n * n);
    tn_lstsq_destroy(&r);
    tn_tensor_destroy(a);
    tn_tensor_destroy(b);
    free(v);
    free(zero);
}

/* Share of the variance of y [rows,n] that x g + b explains. */
static double share_of_map(const place *p, int64_t rows, int64_t n, const double *x, const double *y)
{
    double *g = numbers_in(p->g), *b = numbers_in(p->b), *mean = (double *)allocate((size_t)n, sizeof *mean), rest = 0, all = 0;
    double *z = (double *)allocate((size_t)n, sizeof *z);
    for (int64_t i = 0; i < rows * n; i++) mean[i % n] += y[i] / (double)rows;
    for (int64_t r = 0; r < rows; r++) {
        memcpy(z, b, (size_t)n * sizeof *z);
        for (int64_t i = 0; i < n; i++) for (int64_t j = 0; j < n; j++) z[j] += x[r * n + i] * g[i * n + j];
        for (int64_t j = 0; j < n; j++) {
            rest += (z[j] - y[r * n + j]) * (z[j] - y[r * n + j]);
            all += (y[r * n + j] - mean[j]) * (y[r * n + j] - mean[j]);
        }
    }
    free(g);
    free(b);
    free(mean);
    free(z);
    return 1 - rest / all;
}

/* Fits a map to the norm's result in the model as it is. */
static void fit_place(const subject *s, const samples *fit, place *p, int64_t k, int kind)
{
    const int64_t rows = fit->count * fit->length, n = s->m.desc.dim;
    double       *x = rows_at(s, fit, p, k, 0), *y = rows_at(s, fit, p, k, 1);
    if (kind == FACTOR) fit_factor(s->m.ctx, &p[k], rows, n, x, y);
    else fit_map(s->m.ctx, &p[k], rows, n, x, y);
    p[k].share = share_of_map(&p[k], rows, n, x, y);
    free(x);
    free(y);
}

/* The loss with the maps that there are. */
static double loss_of_places(fitted *f, const samples *x, place *p, int64_t count)
{
    tn_tap *taps = taps_of(p, count);
    double  loss = loss_with(f, x, 0, false, -1, taps, 2 * count);
    free(taps);
    return loss;
}

/* Each norm alone, then all of them, where each is fitted in the run that the earlier maps leave. The places keep the maps of
   --norms, if any. */
static void report_norms(const subject *s, fitted *f, const samples *x, const samples *fit, place *p, int64_t count, double whole)
{
    static const column columns[] = {
        {"norm", NULL, 16, "%s"}, {"factor_share", "factor: share", 13, "%.4f"}, {"factor_change", "loss", 9, "%+.4f"},
        {"map_share", "map: share", 10, "%.4f"}, {"map_change", "loss", 9, "%+.4f"}, {NULL, NULL, 0, NULL}
    };
    const int order[2] = {circuit_settings.norms == FACTOR ? MAP : FACTOR, circuit_settings.norms == FACTOR ? FACTOR : MAP};
    double    v[2][2] = {{NAN, NAN}, {NAN, NAN}};
    report_table("per_norm", "Norms replaced by a constant factor, or by a linear map: share of the variance, and change of the "
                 "loss:", columns);
    for (int64_t k = 0; k < count; k++) {
        for (int kind = FACTOR; kind <= MAP; kind++) {
            fit_place(s, fit, p, k, kind);
            v[kind - 1][0] = p[k].share;
            v[kind - 1][1] = loss_of_places(f, x, p, count) - whole;
            drop_map(&p[k]);
        }
        report_row(columns, p[k].out, v[0][0], v[0][1], v[1][0], v[1][1]);
    }
    for (int i = 0; i < 2; i++) {
        for (int64_t k = 0; k < count; k++) drop_map(&p[k]);
        for (int64_t k = 0; k < count; k++) fit_place(s, fit, p, k, order[i]);
        v[order[i] - 1][1] = loss_of_places(f, x, p, count) - whole;
    }
    report_row(columns, "all together", NAN, v[0][1], NAN, v[1][1]);
    report_note("Norms of the embedding, of queries and keys and of heads are not among them. All together: each is fitted to "
                "the norm's own result, from the stream that the maps before it leave.");
    for (int64_t k = 0; k < count && circuit_settings.norms == KEEP; k++) drop_map(&p[k]);
}

/* ---- the model that is left ---------------------------------------------------------------------------------------------- */

/* The order of the MLPs of polynomials. */
static int order_of(const subject *s)
{
    return (int)circuit_settings.degree + tn_mlp_encoders(s->m.net.blocks[0].mlp.desc.kind) - 1;
}

/* Why there is no such model, a new string; NULL: there is one. */
static char *obstacle(const subject *s, const fitted *f)
{
    const tn_transformer_desc *d = &s->m.desc;
    if (!fitted_gates(f) && circuit_settings.norms == KEEP) return copy_text("nothing of it is replaced in the weights");
    if (fitted_gates(f) && d->mlp_count > 0) return copy_text("its blocks have MLPs of several kinds, expected one");
    if (fitted_gates(f) && order_of(s) > TN_CP_MAX_ORDER)
        return format_text("degree %lld makes MLPs of order %d, expected at most %d", (long long)circuit_settings.degree,
                           order_of(s), TN_CP_MAX_ORDER);
    if (circuit_settings.norms != KEEP && d->embed_norm && d->positions == TN_POSITIONS_LEARNED)
        return copy_text("the norm of the embedding reads tokens and positions together");
    return NULL;
}

static double *param_numbers(const model *m, const char *name, tn_tensor **t)
{
    tn_param *p = tn_params_find(m->params, name);
    if (!p) fail("the model has no parameter %s", name);
    *t = p->value;
    return numbers_in(*t);
}

void set_param(const model *m, const char *name, const double *v)
{
    tn_tensor *t = tn_params_find(m->params, name)->value;
    tn_write(t, TN_F64, v, tn_tensor_count(t));
    check_ctx(m->ctx, name);
}

/* W (x g + b) of a matrix W [rows,n] and its bias c, or without one (NULL): W becomes W g^T and c becomes c + W b. */
static void fold(const model *m, const place *p, const char *weight, const char *bias)
{
    tn_tensor *t, *of = NULL;
    double    *w = param_numbers(m, weight, &t), *c = bias ? param_numbers(m, bias, &of) : NULL;
    double    *b = numbers_in(p->b);
    const int64_t n = t->shape[t->rank - 1], rows = tn_tensor_count(t) / n;
    for (int64_t r = 0; c && r < rows; r++) for (int64_t i = 0; i < n; i++) c[r] += w[r * n + i] * b[i];
    tn_tensor *folded = tn_matmul(m->ctx, tn_reshape_2d(t, rows, n), tn_transpose(p->g, 0, 1));
    check_ctx(m->ctx, weight);
    free(w);
    w = numbers_in(folded);
    set_param(m, weight, w);
    if (c) set_param(m, bias, c);
    free(w);
    free(c);
    free(b);
}

/* The MLP of a block as factors of an operator. */
static void convert_mlp(const subject *s, const fitted *f, int64_t l, const model *to)
{
    tn_mlp         mlp = s->m.net.blocks[l].mlp;
    int64_t        count;
    tn_polynomial *act = gate_polynomials(f, l, (int)circuit_settings.degree, &count);
    mlp.pb = NULL;                              /* remains a bias */
    tn_cp *cp = tn_cp_from_mlp_polynomial(s->m.ctx, &mlp, act, count);
    check_ctx(s->m.ctx, "the operator of an MLP");
    if (cp->order != order_of(s)) fail("block %lld has no hidden unit whose input varies in this text", (long long)l);
    const int64_t n = s->m.desc.dim, rows = cp->terms;
    double *w = (double *)allocate((size_t)(cp->order * rows * n), sizeof *w);
    double *b = (double *)allocate((size_t)(cp->order * rows), sizeof *b), *p = numbers_in(cp->p);
    char    name[3][48];
    for (int k = 0; k < cp->order; k++) {
        double *v = numbers_in(cp->f[k]);
        for (int64_t r = 0; r < rows; r++) {
            memcpy(w + (k * rows + r) * n, v + r * (n + 1), (size_t)n * sizeof *w);
            b[k * rows + r] = v[r * (n + 1) + n];
        }
        free(v);
    }
    for (int i = 0; i < 3; i++) snprintf(name[i], sizeof name[i], "blocks.%lld.mlp.%c", (long long)l, "wbp"[i]);
    set_param(to, name[0], w);
    set_param(to, name[1], b);
    set_param(to, name[2], p);
    tn_cp_destroy(cp);
    free(act);
    free(w);
    free(b);
    free(p);
}

static void fold_block(const model *to, const place *p, int64_t l)
{
    static const struct { const char *weight, *bias; int norm; } part[] = {
        {"attn.qk", "attn.qk_b", 0}, {"attn.v", "attn.v_b", 0}, {"mlp.w", "mlp.b", 1}
    };
    char name[2][48];
    for (int i = 0; i < 3; i++) {
        snprintf(name[0], sizeof name[0], "blocks.%lld.%s", (long long)l, part[i].weight);
        snprintf(name[1], sizeof name[1], "blocks.%lld.%s", (long long)l, part[i].bias);
        fold(to, &p[2 * l + part[i].norm], name[0], name[1]);
    }
}

static tn_transformer_desc replaced_desc(const subject *s, const fitted *f)
{
    tn_transformer_desc d = s->m.desc;
    if (fitted_gates(f)) {
        d.hidden = s->m.net.blocks[0].mlp.desc.hidden * (circuit_settings.degree + 1);
        d.mlp = TN_MLP_BILINEAR;
        d.mlp_order = order_of(s);
        d.mlp_bias = true;
        d.no_projection = false;
    }
    if (circuit_settings.norms != KEEP) {
        d.no_norm = d.attn_bias = d.mlp_bias = true;
        d.norm = TN_NORM_RMS;
        d.norm_bias = d.embed_norm = d.tied = false;
    }
    return d;
}

/* The model with the polynomials of --degree and the maps, as one of this library's own kinds, in the subject's context. */
static model replaced_model(const subject *s, const fitted *f, const place *p)
{
    model m = s->m;
    m.desc = replaced_desc(s, f);
    m.params = tn_params_create(m.ctx);
    tn_transformer_init(m.params, "", &m.desc, &m.net);
    check_ctx(m.ctx, "the model of polynomials");
    m.desc = m.net.desc;
    for (int64_t i = 0; i < tn_params_count(m.params); i++) {
        const tn_param *to = tn_params_at(m.params, i), *from = tn_params_find(s->m.params, to->name);
        const int64_t   n = tn_tensor_count(to->value);
        double         *v = (double *)allocate((size_t)n, sizeof *v);      /* biases that the model lacks are 0 */
        if (from && tn_tensor_count(from->value) == n) tn_read(from->value, TN_F64, v, n);
        set_param(&m, to->name, v);
        free(v);
    }
    for (int64_t l = 0; l < m.desc.layers; l++) {
        if (fitted_gates(f)) convert_mlp(s, f, l, &m);
        if (circuit_settings.norms != KEEP) fold_block(&m, p, l);
    }
    if (circuit_settings.norms == KEEP) return m;
    fold(&m, &p[2 * m.desc.layers], "head.w", NULL);
    if (s->m.desc.embed_norm) {
        double *v = numbers_in(tn_norm_forward(m.ctx, &s->m.net.embed_norm, s->m.net.embed.w));
        set_param(&m, "embed.w", v);
        free(v);
    }
    return m;
}

typedef struct written { const model *m; tn_metadata notes[3]; int64_t count; } written;

static tn_status put_weights(void *user, tn_sink sink)
{
    const written *w = (const written *)user;
    return tn_params_write(w->m->params, sink, w->notes, w->count);
}

void write_model(const subject *s, const model *m, const char *folder)
{
    char   *text = config_json(m), *from = folder_of(s->file), *path, *why, hash[32];
    buffer  starts = {0};
    written w;
    w.m = m;
    w.count = 0;
    make_folder(folder);
    buffer_add(&starts, "", 0);
    for (int i = 0; i < m->start_count; i++) buffer_print(&starts, i ? " %d" : "%d", (int)m->start[i]);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)s->run.hash);
    w.notes[w.count].key = "tn.model", w.notes[w.count++].value = text;
    if (s->has_run) w.notes[w.count].key = "tn.data", w.notes[w.count++].value = hash;
    if (m->start_count) w.notes[w.count].key = "tn.begin", w.notes[w.count++].value = starts.data;
    path = join_path(folder, "model.safetensors");
    if ((why = write_file_with(path, BY_NAME, put_weights, &w, m->ctx)) != NULL) fail("%s", why);
    free(path);
    write_file((path = join_path(folder, "config.json")), text, strlen(text));
    free(path);
    if (m->tokenizer) {
        save_tokenizer((path = join_path(folder, "tokenizer.json")), BY_NAME, m->tokenizer, m->ctx);
        free(path);
    }
    path = join_path(from, "config.txt");
    if (s->has_run && is_file(path)) {
        size_t bytes;
        char  *config = read_file(path, BY_NAME, &bytes), *to = join_path(folder, "config.txt");
        write_file(to, config, bytes);
        free(config);
        free(to);
    }
    free(path);
    free(from);
    free(text);
    free(starts.data);
}

/* ---- what both models attribute a logit to ------------------------------------------------------------------------------- */

enum { COMPARED_TEXTS = 32, COMPARED_TOKENS = 24, COMPARED_TOP = 5 };

/* What the two models say of a difference of logits: of each token, and of each head and MLP. */
typedef struct readings { double *token, *part, whole; } readings;

static readings read_model(const model *m, const tn_circuit_target *target, const int32_t *ids, int64_t T)
{
    const int64_t          H = m->desc.heads, L = m->desc.layers;
    readings               r = {NULL, (double *)allocate((size_t)(L * (H + 1)), sizeof(double)), 0};
    tn_circuit_frozen      frozen;
    tn_circuit_attribution a;
    tn_circuit_paths_desc  d;
    tn_circuit_paths       p;
    memset(&d, 0, sizeof d);
    d.budget = 1;
    tn_ctx_reset(m->ctx);
    tn_circuit_freeze(m->ctx, &m->net, ids_tensor(m->ctx, ids, T), &frozen);
    check_ctx(m->ctx, "the frozen network");
    tn_circuit_attribute(&frozen, target, &a);
    tn_circuit_paths_find(&frozen, target, &d, &p);
    check_ctx(m->ctx, "the attribution");
    r.token = numbers_in(a.values);             /* [sources,T], tokens first */
    r.whole = a.whole;
    for (int64_t i = 1; i < p.nodes; i++) {
        const tn_circuit_node *node = &p.node[i];
        if (node->head != TN_CIRCUIT_SOURCE) r.part[node->block * (H + 1) + (node->head >= 0 ? node->head : H)] += node->value;
    }
    tn_circuit_paths_destroy(&p);
    tn_circuit_attribution_destroy(&a);
    tn_circuit_frozen_destroy(&frozen);
    return r;
}

/* The number of values that are smaller, and half of the equal ones. */
static double rank_of(const double *v, int64_t n, double x)
{
    double rank = 0;
    for (int64_t i = 0; i < n; i++) rank += v[i] < x ? 1 : v[i] == x ? 0.5 : 0;
    return rank;
}

/* Spearman's correlation of ranks; NaN: one has no order. */
static double rank_correlation(const double *a, const double *b, int64_t n)
{
    const double mean = (double)n / 2;
    double       ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = rank_of(a, n, a[i]) - mean, y = rank_of(b, n, b[i]) - mean;
        ab += x * y;
        aa += x * x;
        bb += y * y;
    }
    return ab / sqrt(aa * bb);
}

/* Share of the `top` largest magnitudes of a that are among those of b. */
static double overlap_of_top(const double *a, const double *b, int64_t n, int64_t top)
{
    int64_t both = 0;
    if (top > n) top = n;
    for (int64_t i = 0; i < n; i++) {
        int64_t before[2] = {0, 0};
        for (int64_t k = 0; k < n; k++) before[0] += fabs(a[k]) > fabs(a[i]), before[1] += fabs(b[k]) > fabs(b[i]);
        both += before[0] < top && before[1] < top;
    }
    return (double)both / (double)top;
}

/* The token that the model expects most at the last position, other than `token`. */
static int64_t expected_other(const model *m, const int32_t *ids, int64_t T, int64_t token)
{
    tn_ctx_reset(m->ctx);
    tn_tensor *logits = tn_transformer_forward(m->ctx, &m->net, ids_tensor(m->ctx, ids, T));
    check_ctx(m->ctx, "the logits");
    double    *v = numbers_in(logits), *last = v + (T - 1) * m->desc.vocab;
    int64_t    best = token ? 0 : 1;
    for (int64_t i = 0; i < m->desc.vocab; i++) if (i != token && last[i] > last[best]) best = i;
    free(v);
    return best;
}

/* Adds a number to a mean, unless it is NaN. */
typedef struct average { double sum, count; } average;
static void add_to(average *a, double v) { if (!isnan(v)) a->sum += v, a->count++; }

/* The logit of the token that follows minus that of the likeliest other one, read in both models. */
static void report_readings(const subject *s, const model *m, const samples *x)
{
    static const column columns[] = {
        {"attributed_to", "attributed to", 16, "%s"}, {"rank_correlation", "rank correlation", 16, "%.4f"},
        {"top", "largest in common", 17, "%.4f"}, {NULL, NULL, 0, NULL}
    };
    const int64_t T = x->length < COMPARED_TOKENS ? x->length : COMPARED_TOKENS, parts = s->m.desc.layers * (s->m.desc.heads + 1);
    const int64_t step = x->count > COMPARED_TEXTS ? x->count / COMPARED_TEXTS : 1;
    average       rank[2] = {{0, 0}, {0, 0}}, top[2] = {{0, 0}, {0, 0}}, texts = {0, 0};
    if (s->m.desc.norm_place == TN_PLACE_POST || s->m.desc.value_residual) return;
    for (int64_t k = 0; k < x->count && texts.count < COMPARED_TEXTS; k += step) {
        const int32_t    *ids = x->ids + x->start[k];
        tn_circuit_target target = {TN_CIRCUIT_AIM_DIFFERENCE, T - 1, ids[T], 0};
        target.other = expected_other(&s->m, ids, T, ids[T]);
        readings a = read_model(&s->m, &target, ids, T), b = read_model(m, &target, ids, T);
        add_to(&rank[0], rank_correlation(a.token, b.token, T));
        add_to(&top[0], overlap_of_top(a.token, b.token, T, COMPARED_TOP));
        add_to(&rank[1], rank_correlation(a.part, b.part, parts));
        add_to(&top[1], overlap_of_top(a.part, b.part, parts, COMPARED_TOP));
        add_to(&texts, (a.whole > 0) == (b.whole > 0));
        free(a.token);
        free(a.part);
        free(b.token);
        free(b.part);
    }
    report_table("per_reading", "A difference of two logits, read in the model and in that of polynomials:", columns);
    for (int i = 0; i < 2; i++)
        report_row(columns, i ? "heads and MLPs" : "tokens", rank[i].sum / rank[i].count, top[i].sum / top[i].count);
    report_note("Of the token that follows the first %lld tokens of %.0f windows and the likeliest other one: Spearman's rank "
                "correlation of what they are attributed to, and the share of the %d largest that both have.", (long long)T,
                texts.count, COMPARED_TOP);
    report_value("same_sign", "%.4f", texts.sum / texts.count);
}

/* Norms as linear maps, and the model of polynomials; whole: the loss of the model as it is. */
static void report_replaced(const subject *s, fitted *f, const samples *x, const samples *fit, double whole)
{
    const bool places = !s->m.desc.no_norm && s->m.desc.norm_place == TN_PLACE_PRE;
    const int64_t tokens = fit->count * fit->length;
    int64_t    count = 0;
    place     *p = places ? list_places(s, &count) : NULL;
    if (!s->m.desc.no_norm && !places) {
        if (circuit_settings.norms) fail("--norms: the model has norms in other places than before attention and MLP");
        report_note("Its norms are not replaced: they have other places than before attention and MLP.");
    }
    if (places && tokens <= s->m.desc.dim + 1) {
        if (circuit_settings.norms)
            fail("the text to fit to has %lld tokens, expected more than %lld for maps of norms: the width, and a constant",
                 (long long)tokens, (long long)s->m.desc.dim + 1);
        report_note("Its norms are not replaced: a map needs more than %lld tokens.", (long long)s->m.desc.dim + 1);
    } else if (places) report_norms(s, f, x, fit, p, count, whole);
    char *why = obstacle(s, f);
    if (!why && circuit_settings.norms != KEEP) {       /* activations in the run that the maps leave */
        tn_tap *taps = taps_of(p, count);
        fit_functions(f, fit, taps, 2 * count);
        free(taps);
    }
    if (why) report_note("There is no model to compare with: %s.", why);
    else {
        model  m = replaced_model(s, f, p);
        double loss = 0;
        for (int64_t k = 0; k < x->count; k++) loss += sample_loss(&m, x, k, NULL, 0) / (double)x->count;
        if (circuit_settings.out) write_model(s, &m, circuit_settings.out);
        report_readings(s, &m, x);
        report_value("loss_of_polynomials", "%.6f", loss);
        if (circuit_settings.out) report_text("written", circuit_settings.out);
        tn_params_destroy(m.params);
    }
    free(why);
    for (int64_t k = 0; k < count; k++) drop_map(&p[k]);
    free(p);
}

/* ---- the command ---------------------------------------------------------------------------------------------------------- */

/* Windows of the run's training text, about as many tokens as held-out ones; of a TEXT the same. */
static samples fitting_samples(const subject *s, const samples *x)
{
    samples fit = *x;
    if (!x->held) return fit;
    const int64_t n = fit.length + 1, all = s->run.train_count / n;
    fit.count = (circuit_settings.tokens + fit.length - 1) / fit.length;
    if (fit.count > all) fit.count = all;
    if (!fit.count)
        fail("the training text has %lld tokens, expected at least %lld", (long long)s->run.train_count, (long long)n);
    int32_t *ids = (int32_t *)allocate((size_t)(fit.count * n), sizeof *ids);
    fit.ids = ids;
    fit.start = (int64_t *)allocate((size_t)fit.count, sizeof *fit.start);
    for (int64_t k = 0; k < fit.count; k++) {
        fit.start[k] = k * n;
        copy_tokens(&s->run.train, k * (s->run.train_count / fit.count), n, ids + k * n);
    }
    fit.held = false;
    return fit;
}

static void check_something(const subject *s, const fitted *f)
{
    if (!fitted_gates(f) && !fitted_softmax(f) && s->m.desc.no_norm)
        fail("%s has nothing to replace: its MLPs are bilinear, its attention is %s, and it has no norms", s->path,
             tn_attention_kind_name(s->m.net.blocks[0].attn.desc.kind));
    if (s->m.desc.no_norm && circuit_settings.norms)
        usage_error("--norms is given, expected none: the model has no norms");
    if (circuit_settings.out && !fitted_gates(f) && !circuit_settings.norms)
        fail("%s has bilinear MLPs, which need no polynomials: expected --norms with --out, or no --out", s->path);
    char *why = circuit_settings.out ? obstacle(s, f) : NULL;
    if (why) fail("the model cannot be written: %s", why);
    if (!fitted_gates(f)) report_note("The MLPs are bilinear: nothing is replaced in them.");
    if (!fitted_softmax(f))
        report_note("Attention is %s: its patterns stay as they are.",
                    tn_attention_kind_name(s->m.net.blocks[0].attn.desc.kind));
}

void polynomial_report(subject *s, const char *text)
{
    if (circuit_settings.out) check_new_folder("--out", circuit_settings.out);
    fitted *f = list_functions(s);
    check_something(s, f);
    samples x = text_samples(s, text, s->m.desc.context, circuit_settings.tokens), fit = fitting_samples(s, &x);
    const int64_t n = fit.count * fit.length;
    if (n <= POLYNOMIAL_MOST)
        fail("the text to fit to has %lld tokens, expected more than %d, the highest degree", (long long)n, POLYNOMIAL_MOST);
    fit_functions(f, &fit, NULL, 0);
    const double whole = loss_with(f, &x, 0, false, -1, NULL, 0);
    if (!isfinite(whole)) fail("the loss of the text is %g, expected a finite number", whole);
    report_polynomials(f, &x, whole);
    report_replaced(s, f, &x, &fit, whole);
    report_value("loss", "%.6f", whole);
    report_value("tokens", "%.0f", (double)(x.count * x.length));
    report_value("fitted_to", "%.0f", (double)n);
    report_text("text", x.held ? "the end of the run's text, which was held out" : "as given, also for the fit");
    if (x.held) free_samples(&fit);
    free_samples(&x);
    free_fitted(f);
}
