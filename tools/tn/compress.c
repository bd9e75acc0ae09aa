/* compress.c - tn compress: MLPs with fewer hidden units, with a bound of the change for every text */
#include "circuits.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct {
    double  bound;
    int64_t units;
    bool    prune;
    const char *out;
} asked;

static option options[] = {
    NUMBER_ROW("bound", &asked.bound, "the largest root mean square change, over the numbers of the residual stream, of what an "
               "MLP adds to it, for every text; 0 leaves out only what changes nothing", 0, 1e30, NEVER),
    COUNT_ROW("units", &asked.units, "instead of --bound: keep N hidden units of each MLP, whatever that changes", 1, 1e9,
              NEVER),
    FLAG_ROW("prune", &asked.prune, "for comparison: leave out the units whose weights are smallest, and refit nothing", NEVER),
    TEXT_ROW("out", &asked.out, "RUN2", "the folder to write the model to, which every command accepts", NEVER),
    COUNT_ROW("tokens", &circuit_settings.tokens, "tokens of held-out text to measure on", 1, 1e9, NEVER),
    FLAG_ROW("json", &circuit_settings.json, "print one object of JSON instead of tables", NEVER),
    FLAG_ROW("no-data", &circuit_settings.no_data, "do not read the run's text", NEVER),
    TEXT_ROW("tokenizer", &circuit_settings.tokenizer, "FILE", "a tokenizer.json; the default is the one beside the weights",
             NEVER),
    AUTO_COUNT_ROW("threads", &circuit_settings.threads, "number of threads; auto: one per core", 1, 1024, NEVER),
};

const usage compress_usage = {
    "compress", "RUN|CHECKPOINT [TEXT] --bound X [--out RUN2]", "shorten MLPs, with a bound for every text",
    "Leaves out hidden units of bilinear MLPs and refits the others. What an MLP reads after a norm has at most a known length, "
    "so that the change of what it adds to the residual stream has a bound that holds for every text. Beside it are the changes "
    "on TEXT or the run's held-out text, and the losses. The bound is carried on to the logits, and is called vacuous where it "
    "is not below what holds for any change of the weights before the last norm.",
    "All MLPs are written with as many hidden units as the largest one needs. Rounding of the weights is part of the bounds, "
    "that of a run is not. Models without norms have no such length: only --bound 0, which leaves out units that are zero or "
    "parallel to others, is possible there.",
    options, sizeof options / sizeof *options, 2, NULL
};

/* A block's MLP on the normed stream, without mlp_scale, and what becomes of it; lengths are Euclidean. */
typedef struct shorter {
    tn_compression c;
    tn_ball_bound  size;                /* of the MLP as it was                                */
    double         left;                /* bound of its length as it is now                    */
    double         sum, most;           /* measured: of the lengths of changes; the largest    */
} shorter;

typedef struct shortening {
    const subject *s;
    bool     single;                    /* weights have 32 bits                                */
    double   radius, unit;              /* of what MLPs read; a length in the stream is its root mean square times this */
    shorter *block;                     /* [layers] */
    double   tokens, same, certain, most, sum;  /* measured: predictions that are the same, and certainly; changes of logits */
} shortening;

/* ---- fewer hidden units ---------------------------------------------------------------------------------------------------- */

static void check_model(const subject *s)
{
    const tn_transformer_desc *d = &s->m.desc;
    const tn_mlp_desc         *mlp = &s->m.net.blocks[0].mlp.desc;
    const char *bad = d->mlp_count > 0 ? "MLPs of several kinds" : d->no_projection ? "MLPs without an output projection"
        : d->norm_place != TN_PLACE_PRE ? "norms in other places than before attention and MLP" : NULL;
    if (bad) fail("%s: the model has %s, for which there is no bound", s->path, bad);
    if (mlp->kind != TN_MLP_BILINEAR) fail("%s: the MLPs are %s, expected bilinear", s->path, tn_mlp_kind_name(mlp->kind));
    if (mlp->order != 2) fail("%s: the MLPs have %lld encoders, expected 2", s->path, (long long)mlp->order);
    if (d->no_norm && (asked.units || asked.bound != 0))
        fail("%s: the model has no norms, so that what its MLPs read has no largest length: expected --bound 0", s->path);
}

/* Whether all weights are numbers of 32 bits, as which they are then written. */
static bool is_single(const subject *s)
{
    bool single = true;
    for (int64_t i = 0; i < tn_params_count(s->m.params) && single; i++) {
        const tn_tensor *t = tn_params_at(s->m.params, i)->value;
        double          *v = numbers_in(t);
        for (int64_t k = 0; k < tn_tensor_count(t) && single; k++) single = (double)(float)v[k] == v[k];
        free(v);
    }
    return single;
}

/* The operator of an MLP on the normed stream, with gains and biases of the norm, without mlp_scale and its last bias. */
static tn_cp *operator_of(const subject *s, int64_t l)
{
    tn_transformer net = s->m.net;
    tn_tensor    **bias = &net.blocks[l].mlp.pb, *last = *bias;
    net.desc.mlp_scale = 1;
    *bias = NULL;
    tn_cp *cp = tn_circuit_mlp(s->m.ctx, &net, l);
    *bias = last;
    check_ctx(s->m.ctx, "the operator of an MLP");
    return cp;
}

static void shorten_block(shortening *x, int64_t l)
{
    tn_ctx          *ctx = x->s->m.ctx;
    shorter         *to = &x->block[l];
    tn_cp           *cp = operator_of(x->s, l);
    tn_compress_desc d;
    tn_ball_bound    left;
    memset(&d, 0, sizeof d);
    d.radius = x->radius;
    d.bound = asked.units ? 0 : asked.bound * x->unit / x->s->m.desc.mlp_scale;
    d.terms = asked.units;
    d.single = x->single;
    d.plain = asked.prune;
    tn_cp_compress(cp, &d, &to->c);
    check_ctx(ctx, "the compression of an MLP");
    tn_cp_ball_bound(cp, x->radius, &to->size);
    tn_cp_ball_bound(to->c.cp, x->radius, &left);
    check_ctx(ctx, "the bound of an MLP");
    to->left = left.bound;
    tn_ball_bound_destroy(&left);
    tn_cp_destroy(cp);
}

/* The parameter NAME of block l of the subject, a new list. */
static double *weights_of(const subject *s, int64_t l, const char *name)
{
    char *full = format_text("blocks.%lld.mlp.%s", (long long)l, name);
    tn_param *p = tn_params_find(s->m.params, full);
    free(full);
    return p ? numbers_in(p->value) : NULL;
}

static void set_weights(const model *m, int64_t l, const char *name, double *v)
{
    char *full = format_text("blocks.%lld.mlp.%s", (long long)l, name);
    set_param(m, full, v);
    free(full);
    free(v);
}

/* The weights of a shorter MLP: the rows that are kept, the new outputs, and zeros up to the number of units. */
static void put_block(const shortening *x, const model *to, int64_t l)
{
    const subject *s = x->s;
    const int64_t  n = s->m.desc.dim, h = s->m.net.blocks[l].mlp.desc.hidden, few = to->desc.hidden;
    const int64_t  kept = x->block[l].c.cp->terms;
    double *w = weights_of(s, l, "w"), *b = weights_of(s, l, "b"), *p = numbers_in(x->block[l].c.cp->p);
    double *place = numbers_in(x->block[l].c.kept), *tw = (double *)allocate((size_t)(2 * few * n), sizeof *tw);
    double *tb = (double *)allocate((size_t)(2 * few), sizeof *tb), *tp = (double *)allocate((size_t)(n * few), sizeof *tp);
    for (int64_t k = 0; k < kept; k++) {
        const int64_t at = (int64_t)place[k];
        for (int e = 0; e < 2; e++) {
            memcpy(tw + (e * few + k) * n, w + (e * h + at) * n, (size_t)n * sizeof *w);
            if (b) tb[e * few + k] = b[e * h + at];
        }
        for (int64_t o = 0; o < n; o++) tp[o * few + k] = p[o * kept + k];
    }
    set_weights(to, l, "w", tw);
    set_weights(to, l, "p", tp);
    if (b) set_weights(to, l, "b", tb);
    else free(tb);
    free(w);
    free(b);
    free(p);
    free(place);
}

/* The model with shorter MLPs, in a context. */
static model shorter_model(const shortening *x, tn_ctx *ctx)
{
    const subject *s = x->s;
    model          m = s->m;
    m.ctx = ctx;
    m.desc.hidden = 1;
    for (int64_t l = 0; l < m.desc.layers; l++)
        if (x->block[l].c.cp->terms > m.desc.hidden) m.desc.hidden = x->block[l].c.cp->terms;
    m.params = tn_params_create(ctx);
    tn_transformer_init(m.params, "", &m.desc, &m.net);
    check_ctx(ctx, "the shorter model");
    m.desc = m.net.desc;
    for (int64_t i = 0; i < tn_params_count(m.params); i++) {
        const tn_param *to = tn_params_at(m.params, i), *from = tn_params_find(s->m.params, to->name);
        if (!from || tn_tensor_count(from->value) != tn_tensor_count(to->value)) continue;
        double *v = numbers_in(from->value);
        set_param(&m, to->name, v);
        free(v);
    }
    for (int64_t l = 0; l < m.desc.layers; l++) put_block(x, &m, l);
    return m;
}

/* ---- from the layers to the logits ---------------------------------------------------------------------------------------- */

static double smaller(double a, double b) { return b < a ? b : a; }

/* The largest singular value of a matrix, with its gains: an upper bound. */
static double stretch(tn_ctx *ctx, const tn_norm *norm, tn_tensor *a)
{
    tn_svd_result r;
    tn_svd_desc   d;
    memset(&d, 0, sizeof d);
    d.method = TN_SVD_EXACT;
    if (norm && norm->gain) a = tn_mul(ctx, a, norm->gain);
    tn_svd(ctx, a, &d, &r);
    check_ctx(ctx, "a singular value");
    double *s = numbers_in(r.s);
    const double most = s[0] * (1 + 1e-9);
    free(s);
    tn_svd_destroy(&r);
    return most;
}

static double length_of(const tn_tensor *t)
{
    if (!t) return 0;
    double *v = numbers_in(t), squares = 0;
    for (int64_t i = 0; i < tn_tensor_count(t); i++) squares += v[i] * v[i];
    free(v);
    return sqrt(squares);
}

/* How far a norm's result, before its gain, can move when what it reads, of a length of at least `least`, moves by `shift`. */
static double normed_shift(const shortening *x, double shift, double least)
{
    const double n = (double)x->s->m.desc.dim, low = least > shift ? least - shift : 0;
    return smaller(2 * x->radius, shift / sqrt(low * low / n + x->s->m.desc.norm_eps));
}

/* Of queries or keys of a head: their largest length, and how far they move when what is read moves by `shift`. */
typedef struct moved { double length, shift; } moved;

static moved moved_part(const shortening *x, int64_t l, int64_t head, tn_head_part part, double shift)
{
    const tn_transformer_block *b = &x->s->m.net.blocks[l];
    const tn_attention_desc    *d = &b->attn.desc;
    const double by = stretch(x->s->m.ctx, &b->norm1, tn_attention_head(&b->attn, head, part));
    moved        to = {by * x->radius, by * shift};
    if (b->norm1.bias)
        to.length += stretch(x->s->m.ctx, NULL, tn_attention_head(&b->attn, head, part)) * length_of(b->norm1.bias);
    to.length += length_of(part == TN_HEAD_V ? b->attn.vb : b->attn.qkb);
    if (part == TN_HEAD_V || !d->qk_norm) return to;
    const double gain = b->attn.qk_gain ? length_of(b->attn.qk_gain) : 1;
    to.length = gain * sqrt((double)d->d_qk);
    to.shift = smaller(2 * to.length, gain * to.shift / sqrt(d->qk_norm_eps));
    return to;
}

/* How far what attention adds can move; NAN: not known. Of softmax the weights move by at most the largest change of a score, in
   the sum of their magnitudes, and by 2. */
static double attention_shift(const shortening *x, int64_t l, double shift)
{
    const subject           *s = x->s;
    const tn_attention      *a = &s->m.net.blocks[l].attn;
    const tn_attention_desc *d = &a->desc;
    const bool   softmax = d->kind == TN_ATTENTION_SOFTMAX, pair = d->kind == TN_ATTENTION_BILINEAR;
    const double scale = d->scale > 0 ? d->scale : softmax ? 1 / sqrt((double)d->d_qk) : 1 / (double)d->d_qk;
    const double keys = d->row_scale == TN_ROW_SCALE_MEAN ? 1 : (double)s->m.desc.context;
    double       sum = 0;
    if ((!softmax && !pair && d->kind != TN_ATTENTION_SQUARED) || d->row_scale == TN_ROW_SCALE_SUM || d->head_norm
        || d->mix_values || s->m.desc.x0_residual) return NAN;
    for (int64_t h = 0; h < d->heads; h++) {
        double most[2], move[2];
        for (int set = 0; set < 2; set++) {
            const moved q = moved_part(x, l, h, set && pair ? TN_HEAD_Q2 : TN_HEAD_Q1, shift);
            const moved k = moved_part(x, l, h, set && pair ? TN_HEAD_K2 : TN_HEAD_K1, shift);
            most[set] = scale * q.length * k.length;
            move[set] = scale * (q.shift * k.length + q.length * k.shift);
        }
        const moved  v = moved_part(x, l, h, TN_HEAD_V, shift);
        const double out = stretch(s->m.ctx, NULL, tn_attention_head(a, h, TN_HEAD_O));
        const double weights = softmax ? 1 : keys * most[0] * most[1];
        const double change = softmax ? smaller(2, move[0]) : keys * (move[0] * most[1] + most[0] * move[1]);
        sum += out * (weights * v.shift + change * v.length);
    }
    return s->m.desc.attn_scale * sum;
}

/* How far the stream after the last block can move. */
static double stream_shift(const shortening *x)
{
    const tn_transformer_desc *d = &x->s->m.desc;
    double                     shift = 0;
    for (int64_t l = 0; l < d->layers; l++) {
        const shorter *b = &x->block[l];
        if (d->x0_residual && shift > 0) return NAN;
        if (shift > 0) shift += attention_shift(x, l, normed_shift(x, shift, 0));
        const double moves = b->c.change.bound + 2 * b->left / x->radius * normed_shift(x, shift, 0);
        shift += d->mlp_scale * smaller(moves, b->size.bound + b->left);
    }
    return shift;
}

/* ---- measured ------------------------------------------------------------------------------------------------------------- */

/* The lengths of the rows of a tensor, a new list. */
static double *row_lengths(const tn_tensor *t, int64_t rows)
{
    const int64_t n = tn_tensor_count(t) / rows;
    double       *v = numbers_in(t), *to = (double *)allocate((size_t)rows, sizeof *to);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < n; i++) to[r] += v[r * n + i] * v[r * n + i];
        to[r] = sqrt(to[r]);
    }
    free(v);
    return to;
}

/* Predictions of T positions: in both models, and whether a shift of the normed stream could change that of the shorter one.
   u [vocab,n] with gains, reach [T] */
static void compare_logits(shortening *x, int64_t T, const double *a, const double *b, const double *u, const double *length,
                           const double *reach)
{
    const int64_t V = x->s->m.desc.vocab, n = x->s->m.desc.dim;
    for (int64_t t = 0; t < T; t++, a += V, b += V) {
        int64_t best = 0, was = 0;
        double  most = 0;
        bool    certain = true;
        for (int64_t v = 0; v < V; v++) {
            if (a[v] > a[was]) was = v;
            if (b[v] > b[best]) best = v;
            most = fabs(a[v] - b[v]) > most ? fabs(a[v] - b[v]) : most;
        }
        for (int64_t v = 0; v < V && certain && reach[t] > 0; v++) {
            double apart = 0;
            if (v == best || b[best] - b[v] > (length[best] + length[v]) * reach[t]) continue;
            for (int64_t i = 0; i < n; i++) apart += (u[best * n + i] - u[v * n + i]) * (u[best * n + i] - u[v * n + i]);
            certain = b[best] - b[v] > sqrt(apart) * reach[t] * (1 + 1e-9);
        }
        x->tokens++;
        x->same += best == was;
        x->certain += certain;
        x->sum += most;
        if (most > x->most) x->most = most;
    }
}

/* Adds what one window shows to the measured numbers; the losses of both models are added to loss. */
static void measure_window(shortening *x, const model *m, const samples *text, int64_t k, const double *u, const double *length,
                           double shift, double loss[2])
{
    const subject *s = x->s;
    tn_ctx        *ctx = s->m.ctx;
    const int64_t  L = s->m.desc.layers, T = text->length, taps = s->m.desc.no_norm ? 0 : L;
    const int32_t *ids = text->ids + text->start[k];
    tn_tensor    **read = (tn_tensor **)allocate((size_t)L, sizeof *read), *stream = NULL;
    tn_tap        *tap = (tn_tap *)allocate((size_t)L, sizeof *tap), last;
    char         (*name)[48] = (char (*)[48])allocate((size_t)L + 1, sizeof *name);
    tn_ctx_reset(ctx);
    for (int64_t l = 0; l < L; l++) {
        snprintf(name[l], sizeof name[l], "blocks.%lld.norm2", (long long)l);
        tap[l].points = name[l], tap[l].fn = tn_tap_read, tap[l].user = &read[l];
    }
    snprintf(name[L], sizeof name[L], "blocks.%lld", (long long)L - 1);
    last.points = name[L], last.fn = tn_tap_read, last.user = &stream;
    tn_tensor *before = tn_transformer_run(ctx, &s->m.net, ids_tensor(ctx, ids, T), tap, taps);
    tn_tensor *after = tn_transformer_run(ctx, &m->net, ids_tensor(ctx, ids, T), &last, 1);
    tn_tensor *next = ids_tensor(ctx, ids + 1, T);
    loss[0] += tn_item(tn_cross_entropy(ctx, before, next));
    loss[1] += tn_item(tn_cross_entropy(ctx, after, next));
    check_ctx(ctx, "the loss of a text");
    for (int64_t l = 0; l < taps; l++) {
        tn_tensor *was = tn_mlp_forward(ctx, &s->m.net.blocks[l].mlp, read[l]);
        tn_tensor *change = tn_sub(ctx, tn_mlp_forward(ctx, &m->net.blocks[l].mlp, read[l]), was);
        check_ctx(ctx, "the change of an MLP");
        double *size = row_lengths(change, T);
        for (int64_t t = 0; t < T; t++) {
            x->block[l].sum += size[t];
            if (size[t] > x->block[l].most) x->block[l].most = size[t];
        }
        free(size);
    }
    double *reach = row_lengths(stream, T), *a = numbers_in(before), *b = numbers_in(after);
    for (int64_t t = 0; t < T; t++)             /* a layer norm reads x - mean x, whose length is not known here */
        reach[t] = s->m.desc.no_norm ? shift : normed_shift(x, shift, s->m.desc.norm == TN_NORM_RMS ? reach[t] : 0);
    compare_logits(x, T, a, b, u, length, reach);
    free(reach);
    free(a);
    free(b);
    free(read);
    free(tap);
    free(name);
}

/* ---- the report ----------------------------------------------------------------------------------------------------------- */

static void report_blocks(const shortening *x, bool measured)
{
    static const column columns[] = {
        {"block", NULL, 5, "%s"}, {"units", NULL, 5, "%.0f"}, {"left", NULL, 5, "%.0f"}, {"bound", NULL, 10, "%.4g"},
        {"worst_found", "worst found", 11, "%.4g"}, {"measured_largest", "in text", 8, "%.4g"},
        {"measured_mean", "mean", 8, "%.4g"}, {"mlp_worst", "of the MLP", 10, "%.4g"}, {NULL, NULL, 0, NULL}
    };
    const bool   norms = !x->s->m.desc.no_norm;
    const double unit = x->s->m.desc.mlp_scale / x->unit;
    report_table("per_block", "Change of what an MLP adds to the residual stream (root mean square over its numbers):", columns);
    for (int64_t l = 0; l < x->s->m.desc.layers; l++) {
        const shorter *b = &x->block[l];
        char           name[32];
        const bool     seen = norms && measured;
        snprintf(name, sizeof name, "%lld", (long long)l);
        report_row(columns, name, (double)x->s->m.net.blocks[l].mlp.desc.hidden, (double)b->c.cp->terms, b->c.change.bound * unit,
                   b->c.change.reached * unit, seen ? b->most * unit : NAN, seen ? b->sum / x->tokens * unit : NAN,
                   norms ? b->size.reached * unit : NAN);
    }
    report_note("bound: for every text. worst found: by an ascent over all inputs of the largest length that a norm gives. "
                "in text, mean: the largest and the mean on the text below. of the MLP: the largest that an ascent finds of what "
                "it adds.");
}

static void report_logits(const shortening *x, double shift, double longest)
{
    const tn_transformer_desc *d = &x->s->m.desc;
    const double               moves = d->no_norm ? shift : normed_shift(x, shift, 0);
    if (d->no_norm && shift > 0) return;
    if (isnan(shift)) report_text("logits_bound", "not known: of this kind of attention, or of residuals, it is not computed");
    else if (moves < 2 * x->radius || d->no_norm) report_value("logits_bound", "%.4g", longest * moves);
    else report_text("logits_bound", "vacuous");
    if (!d->no_norm) report_value("logits_trivial", "%.4g", 2 * x->radius * longest);
}

static void report_measured(const shortening *x, const samples *text, const double loss[2], double shift)
{
    report_value("loss", "%.6f", loss[0] / (double)text->count);
    report_value("loss_of_shorter", "%.6f", loss[1] / (double)text->count);
    report_value("logits_largest_change", "%.4g", x->most);
    report_value("logits_mean_largest_change", "%.4g", x->sum / x->tokens);
    report_value("same_prediction", "%.4f", x->same / x->tokens);
    if (!isnan(shift)) report_value("certainly_same_prediction", "%.4f", x->certain / x->tokens);
    report_value("tokens", "%.0f", x->tokens);
    report_text("text", text->held ? "the end of the run's text, which was held out" : "as given");
}

static void write_shorter(const shortening *x)
{
    tn_desc desc;
    tn_ctx *ctx;
    char    why[TN_WHY];
    memset(&desc, 0, sizeof desc);
    desc.dtype = x->single ? TN_F32 : TN_F64;
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) fail("%s", why);
    model m = shorter_model(x, ctx);
    write_model(x->s, &m, asked.out);
    report_text("written", asked.out);
    tn_params_destroy(m.params);
    tn_ctx_destroy(ctx);
}

static void compress(subject *s, const char *text)
{
    const int64_t V = s->m.desc.vocab;
    const bool    measured = text || s->has_run;
    shortening    x;
    double        loss[2] = {0, 0}, longest = 0;
    memset(&x, 0, sizeof x);
    x.s = s;
    x.single = is_single(s);
    x.unit = sqrt((double)s->m.desc.dim);
    x.radius = x.unit;
    x.block = (shorter *)allocate((size_t)s->m.desc.layers, sizeof *x.block);
    for (int64_t l = 0; l < s->m.desc.layers; l++) {
        show_stage("block %lld", (long long)l);
        shorten_block(&x, l);
    }
    show_stage(NULL);
    tn_tensor *unembedding = tn_circuit_unembedding(s->m.ctx, &s->m.net);
    check_ctx(s->m.ctx, "the unembedding");
    double *u = numbers_in(unembedding), *length = row_lengths(unembedding, V);
    for (int64_t v = 0; v < V; v++) longest = length[v] > longest ? length[v] : longest;
    const double shift = stream_shift(&x);
    samples samples_of_text;
    if (measured) {
        samples_of_text = text_samples(s, text, s->m.desc.context, circuit_settings.tokens);
        model m = shorter_model(&x, s->m.ctx);
        for (int64_t k = 0; k < samples_of_text.count; k++) measure_window(&x, &m, &samples_of_text, k, u, length, shift, loss);
        tn_params_destroy(m.params);
    }
    report_blocks(&x, measured);
    report_logits(&x, shift, longest);
    if (measured) report_measured(&x, &samples_of_text, loss, shift);
    if (asked.out) write_shorter(&x);
    if (measured) free_samples(&samples_of_text);
    for (int64_t l = 0; l < s->m.desc.layers; l++) {
        tn_compression_destroy(&x.block[l].c);
        tn_ball_bound_destroy(&x.block[l].size);
    }
    free(x.block);
    free(u);
    free(length);
}

int compress_main(int argc, char **argv)
{
    const int arguments = read_options(&compress_usage, argc, argv);
    subject   s;
    if (!arguments) usage_error("no model is given, expected tn compress RUN --bound X");
    if (find_option(&compress_usage, "bound")->given == (asked.units > 0))
        usage_error("%s given, expected one of --bound and --units", asked.units > 0 ? "both are" : "none is");
    if (asked.prune && !asked.units) usage_error("--prune is given, expected --units with it");
    if (asked.out) check_new_folder("--out", asked.out);
    report_begin(circuit_settings.json);
    open_subject(&s, argv[0], true);
    check_finite(&s.m, argv[0]);
    check_model(&s);
    compress(&s, arguments > 1 ? argv[1] : NULL);
    report_end();
    close_subject(&s);
    return 0;
}
