/* cases.h: the one list of what ops and layers are checked with; test_ops.c drives it.

   A case draws inputs (build), runs the op on tensors (run), and computes the same in plain double loops (want). Everything else comes
   from the list: values, gradients against central differences, reference against cpu, every SIMD level, sealed backends. A new op or
   layer adds one line to `cases`, and what of its three functions there is not already.

   Inputs come as views: input k is a larger tensor of which case_x(s, k) takes slices with any step, transposes or reshapes as a recipe
   says, and plain_x(s, k) does the same to the plain numbers. So each op meets all strides, and each gradient flows through views. */

#ifndef TN_CASES_H
#define TN_CASES_H

#include "kit.h"
#include "attention.h"

/* ---- plain numbers: a strided look at doubles, which shares no code with the library ------------------- */

typedef struct plain {
    const double *v;
    int     rank;
    int64_t shape[TN_MAX_RANK], strides[TN_MAX_RANK];
} plain;

static inline int64_t plain_count(const plain *p) { return shape_count(p->rank, p->shape); }

static inline plain plain_of(const double *v, int rank, const int64_t *shape)
{
    plain p = ZERO;
    int64_t stride = 1;
    p.v = v;
    p.rank = rank;
    for (int i = rank - 1; i >= 0; i--) { p.shape[i] = shape[i]; p.strides[i] = stride; stride *= shape[i]; }
    return p;
}

/* Element i in row-major order. */
static inline double plain_at(const plain *p, int64_t i)
{
    const double *v = p->v;
    for (int k = p->rank - 1; k >= 0; k--) { v += i % p->shape[k] * p->strides[k]; i /= p->shape[k]; }
    return *v;
}

/* Broadcast to a shape, NumPy's rule. */
static inline plain plain_stretch(plain p, int rank, const int64_t *shape)
{
    plain s = plain_of(p.v, rank, shape);
    for (int i = rank - 1, j = p.rank - 1; i >= 0; i--, j--) s.strides[i] = j < 0 || p.shape[j] != shape[i] ? 0 : p.strides[j];
    return s;
}

/* ---- a case, and the setting it runs in -------------------------------------------------------------------- */

enum { CASE_INPUTS = 10, CASE_DRAWS = 12, CASE_ROUNDS = 8, CASE_DEEP = CASE_ROUNDS - 2, CASE_LARGE = CASE_ROUNDS - 1, CASE_SEED = 20240607, CASE_RANDOM = 77 };

/* What numbers an input gets. */
typedef enum case_range {
    CASE_UNIT,                  /* -1 to 1                                       */
    CASE_AWAY,                  /* the same, but not within 0.05 of zero         */
    CASE_FEW,                   /* whole numbers from -2 to 2: full of ties      */
    CASE_WIDE                   /* to +-1000, for saturation and rounding        */
} case_range;

typedef struct case_recipe {    /* flat: a vector, reshaped. Else slices, then two axes change places. */
    bool    flat;
    int     swap_a, swap_b;
    int64_t shape[TN_MAX_RANK], start[TN_MAX_RANK], step[TN_MAX_RANK];   /* shape: before the swap */
} case_recipe;

typedef struct case_input {
    tn_tensor *base;            /* a parameter, or made anew for each run                */
    bool       real, param, views;
    double    *v;               /* its numbers, row-major                                */
    int        rank, base_rank;
    int64_t    shape[TN_MAX_RANK], base_shape[TN_MAX_RANK], count;
    case_recipe recipe;
} case_input;

typedef struct test_case test_case;

typedef struct setting {
    tn_ctx          *ctx;
    const test_case *of;
    uint64_t   rng, seed;       /* now; with which it began                         */
    int        round;
    bool       watch;           /* inputs are watched arena tensors, else parameters */
    tn_dtype   dtype;           /* of watched inputs; TN_REAL unless somebody says so */
    bool       kink;            /* set by want: too near to a kink, draw again       */
    tn_params *params;
    int        inputs;
    case_input in[CASE_INPUTS];
    int64_t    k[CASE_DRAWS];   /* what build drew and run and want need             */
    double    *want;            /* what want found                                   */
    int        want_rank;
    int64_t    want_shape[TN_MAX_RANK], want_count;
    tn_linear       linear;
    tn_embedding    embedding;
    tn_norm         norm;
    tn_mlp          mlp;
    tn_mlp          product;
    tn_quadratic    quadratic;
    tn_modifier     modifier;
    tn_attention    attention;
    tn_tn_attention tna;
} setting;

struct test_case {
    const char *name;
    int64_t     kind;
    double      f32;            /* error allowed in float, relative to max(1, largest)  */
    bool        smooth;         /* has a gradient                                       */
    void       (*build)(setting *s);
    tn_tensor *(*run)(setting *s);
    void       (*want)(setting *s);
};

/* ---- drawing ------------------------------------------------------------------------------------------------ */

static inline int64_t draw(setting *s, int64_t low, int64_t high) { return test_random_int(&s->rng, low, high); }

/* An extent: small and plain in round 0, large in the last, and odd ones, 1 and (where allowed) 0 in between. */
static inline int64_t draw_extent(setting *s, bool zero)
{
    static const int64_t odd[] = {1, 1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17};
    if (s->round == 0) return draw(s, 2, 5);
    if (s->round == CASE_LARGE) return draw(s, 33, 150);
    return zero && draw(s, 0, 11) == 0 ? 0 : odd[draw(s, 0, 11)];
}

/* One round goes as deep as shapes can. */
static inline int draw_rank(setting *s, int low, int high)
{
    return s->round == CASE_DEEP ? TN_MAX_RANK : (int)draw(s, low, s->round == CASE_LARGE && high > 3 ? 3 : high);
}

static inline void draw_shape(setting *s, int rank, int64_t *shape, bool zero)
{
    for (int i = 0; i < rank; i++)
        shape[i] = i + 2 < rank && s->round == CASE_DEEP ? draw(s, 1, 2) : i + 2 < rank && s->round > 0 ? draw(s, 1, 3) : draw_extent(s, zero);
}

static inline double draw_number(setting *s, case_range range)
{
    double v = (double)(float)test_random_real(&s->rng);        /* the same in both precisions */
    if (range == CASE_AWAY && fabs(v) < 0.05) v += v < 0 ? -0.0625 : 0.0625;
    if (range == CASE_AWAY) v = (double)(float)v;
    if (range == CASE_FEW) v = (double)draw(s, -2, 2);
    if (range == CASE_WIDE) v = (double)(float)(v * 1000);
    return v;
}

/* How the input's view is taken out of its base. Round 0 and the large one take all of it. */
static inline void draw_recipe(setting *s, case_input *in)
{
    case_recipe *r = &in->recipe;
    bool whole = s->round == 0 || s->round == CASE_LARGE || !in->views;
    memset(r, 0, sizeof *r);
    memcpy(r->shape, in->shape, sizeof r->shape);
    r->flat = !whole && draw(s, 0, 7) == 0;
    if (!whole && !r->flat && in->rank >= 2 && draw(s, 0, 2) == 0) {
        r->swap_a = (int)draw(s, 0, in->rank - 1);
        r->swap_b = (int)draw(s, 0, in->rank - 1);
        r->shape[r->swap_a] = in->shape[r->swap_b];
        r->shape[r->swap_b] = in->shape[r->swap_a];
    }
    in->base_rank = r->flat ? 1 : in->rank;
    if (r->flat) in->base_shape[0] = shape_count(in->rank, in->shape);
    for (int i = 0; i < in->rank && !r->flat; i++) {
        static const int64_t steps[] = {1, 2, 3, -1, -2};
        bool    sliced = !whole && draw(s, 0, 2) == 0;
        int64_t step = sliced ? steps[draw(s, 0, 4)] : 1, low = sliced ? draw(s, 0, 2) : 0, tail = sliced ? draw(s, 0, 2) : 0;
        int64_t length = r->shape[i] == 0 ? 0 : (r->shape[i] - 1) * (step < 0 ? -step : step) + 1;
        r->step[i] = r->shape[i] == 0 ? 1 : step;
        r->start[i] = step < 0 && length > 0 ? low + length - 1 : low;
        in->base_shape[i] = low + length + tail;
    }
}

static inline case_input *case_slot(setting *s, int rank, const int64_t *shape, bool real, bool views)
{
    case_input *in = &s->in[s->inputs++];
    memset(in, 0, sizeof *in);
    in->real = real;
    in->views = views;
    in->rank = rank;
    if (rank > 0) memcpy(in->shape, shape, sizeof *shape * (size_t)rank);
    draw_recipe(s, in);
    in->count = shape_count(in->base_rank, in->base_shape);
    in->v = (double *)malloc(sizeof(double) * (size_t)(in->count + 1));
    return in;
}

static inline tn_init case_init_zero(void)
{
    tn_init init = ZERO;
    init.rule = TN_INIT_ZERO;
    return init;
}

static inline void case_real(setting *s, int rank, const int64_t *shape, case_range range)
{
    static const char *const name[CASE_INPUTS] = {"in0", "in1", "in2", "in3", "in4", "in5", "in6", "in7", "in8", "in9"};
    const char *called = name[s->inputs];
    case_input *in = case_slot(s, rank, shape, true, true);
    for (int64_t i = 0; i < in->count; i++) in->v[i] = draw_number(s, range);
    if (!s->watch) {
        tn_param *p = tn_params_add(s->params, called, in->base_rank, in->base_shape, case_init_zero());
        if (CHECK(p != NULL)) in->base = p->value;
        in->param = true;
    }
}

static inline void case_ids(setting *s, int rank, const int64_t *shape, int64_t limit)
{
    case_input *in = case_slot(s, rank, shape, false, true);
    for (int64_t i = 0; i < in->count; i++) in->v[i] = (double)draw(s, 0, limit - 1);
}

/* The parameters that a layer's init has made are inputs from here on, with numbers of our own. */
static inline void case_layer(setting *s, int64_t made_before)
{
    for (int64_t i = made_before; i < tn_params_count(s->params); i++) {
        tn_tensor  *t = tn_params_at(s->params, i)->value;
        case_input *in = case_slot(s, t->rank, t->shape, true, false);
        in->base = t;
        in->param = true;
        for (int64_t j = 0; j < in->count; j++) in->v[j] = draw_number(s, CASE_UNIT);
    }
}

/* ---- what run and want see ------------------------------------------------------------------------------------- */

static inline tn_tensor *case_x(setting *s, int k)
{
    const case_input  *in = &s->in[k];
    const case_recipe *r = &in->recipe;
    tn_tensor *t = in->base;
    if (r->flat) return tn_reshape(t, in->rank, in->shape);
    for (int i = 0; t && i < in->rank; i++) {
        int64_t n = r->shape[i], step = r->step[i], start = r->start[i], stop = start;
        if (n > 0) stop = step > 0 ? start + (n - 1) * step + 1 : start + (n - 1) * step - 1;
        if (step != 1 || n != in->base_shape[i]) t = tn_slice_step(t, i - (i % 2 ? in->rank : 0), start, stop, step);
    }
    if (t && r->swap_a != r->swap_b) t = tn_transpose(t, r->swap_a, r->swap_b - in->rank);
    return t;
}

static inline plain plain_x(const setting *s, int k)
{
    const case_input  *in = &s->in[k];
    const case_recipe *r = &in->recipe;
    plain p = plain_of(in->v, in->base_rank, in->base_shape);
    if (r->flat) return plain_of(in->v, in->rank, in->shape);
    for (int i = 0; i < in->rank; i++) {
        if (r->shape[i] > 0) p.v += r->start[i] * p.strides[i];
        p.strides[i] *= r->step[i];
    }
    int64_t stride = p.strides[r->swap_a];
    p.strides[r->swap_a] = p.strides[r->swap_b];
    p.strides[r->swap_b] = stride;
    for (int i = 0; i < in->rank; i++) p.shape[i] = in->shape[i];
    return p;
}

static inline double *case_want(setting *s, int rank, const int64_t *shape)
{
    s->want_rank = rank;
    if (rank > 0) memcpy(s->want_shape, shape, sizeof *shape * (size_t)rank);
    s->want_count = shape_count(rank, shape);
    s->want = (double *)calloc((size_t)s->want_count + 1, sizeof(double));
    return s->want;
}

/* An input as contiguous rows, for wants that are easier so; freed with the result. */
static inline double *plain_flat(const plain *p)
{
    int64_t n = plain_count(p);
    double *v = (double *)malloc(sizeof(double) * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++) v[i] = plain_at(p, i);
    return v;
}

/* ---- a second Philox 4x32-10, from the paper's figure: rounds on a pair of halves -------------------------------- */

static inline void plain_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    static const uint32_t multiplier[2] = {0xD2511F53u, 0xCD9E8D57u}, weyl[2] = {0x9E3779B9u, 0xBB67AE85u};
    uint32_t left[2], right[2], k[2];
    for (int i = 0; i < 2; i++) { right[i] = counter[2 * i]; left[i] = counter[2 * i + 1]; k[i] = key[i]; }
    for (int round = 0; round < 10; round++) {
        uint64_t product[2];
        for (int i = 0; i < 2; i++) product[i] = (uint64_t)multiplier[i] * right[i];
        for (int i = 0; i < 2; i++) right[i] = (uint32_t)(product[1 - i] >> 32) ^ left[i] ^ k[i];
        for (int i = 0; i < 2; i++) { left[i] = (uint32_t)product[1 - i]; k[i] += weyl[i]; }
    }
    for (int i = 0; i < 2; i++) { out[2 * i] = right[i]; out[2 * i + 1] = left[i]; }
}

/* Element e of the call-th random call after tn_ctx_seed(ctx, seed), as DESIGN says it. */
static inline double plain_uniform(uint64_t seed, int64_t call, int64_t e)
{
    uint32_t counter[4] = {0, 0, 0, 0}, out[4];
    counter[0] = (uint32_t)(e / 4);
    counter[1] = (uint32_t)((e / 4) >> 32);
    counter[2] = (uint32_t)call;
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    plain_philox(counter, key, out);
    return (floor((double)out[e % 4] / 512) + 0.5) / 8388608;
}

static inline double plain_normal(uint64_t seed, int64_t call, int64_t e)
{
    double radius = sqrt(-2 * log(plain_uniform(seed, call, e / 2 * 2))), angle = 2 * acos(-1.0) * plain_uniform(seed, call, e / 2 * 2 + 1);
    return radius * (e % 2 == 0 ? cos(angle) : sin(angle));
}

/* ---- copies and casts ------------------------------------------------------------------------------------------------ */

static inline void build_any(setting *s)
{
    int64_t shape[TN_MAX_RANK];
    int rank = draw_rank(s, s->round == 0 ? 1 : 0, 4);
    draw_shape(s, rank, shape, true);
    case_real(s, rank, shape, CASE_UNIT);
}

static inline void build_wide(setting *s)
{
    int64_t shape[2];
    draw_shape(s, 2, shape, true);
    case_real(s, 2, shape, CASE_WIDE);
}

static inline tn_tensor *run_copy(setting *s) { return tn_copy(s->ctx, case_x(s, 0)); }
static inline tn_tensor *run_cast(setting *s) { return tn_cast(s->ctx, case_x(s, 0), (tn_dtype)s->of->kind); }

/* There and back, so that the result is as real as any. */
static inline tn_tensor *run_through(setting *s)
{
    tn_tensor *t = tn_cast(s->ctx, case_x(s, 0), (tn_dtype)s->of->kind);
    return tn_cast(s->ctx, t, TN_REAL);
}

/* bfloat16 has 8 bits: to nearest, ties to even. */
static inline double plain_bf16(double x)
{
    int exponent;
    double m = frexp(x, &exponent) * 256, down = floor(m), part = m - down;
    if (part > 0.5 || (part == 0.5 && fmod(down, 2) != 0)) down += 1;
    return ldexp(down, exponent - 8);
}

static inline void want_cast(setting *s)
{
    plain x = plain_x(s, 0);
    double *y = case_want(s, x.rank, x.shape);
    for (int64_t i = 0; i < s->want_count; i++) {
        y[i] = plain_at(&x, i);
        if (s->of->kind == TN_BF16) y[i] = plain_bf16(y[i]);
        if (s->of->kind == TN_I32) y[i] = trunc(y[i]);
    }
}

static inline tn_tensor *run_full(setting *s) { return tn_full(s->ctx, s->in[0].rank, s->in[0].shape, -2.5); }
static inline void want_full(setting *s)
{
    double *y = case_want(s, s->in[0].rank, s->in[0].shape);
    for (int64_t i = 0; i < s->want_count; i++) y[i] = -2.5;
}

/* ---- random ------------------------------------------------------------------------------------------------------------ */

static inline tn_tensor *run_uniform(setting *s) { return tn_uniform(s->ctx, s->in[0].rank, s->in[0].shape, -1.5, 2); }
static inline tn_tensor *run_normal(setting *s)  { return tn_normal(s->ctx, s->in[0].rank, s->in[0].shape, 0.5, 2); }

/* The same stream on: two calls of one step differ, and so do two steps. */
static inline tn_tensor *run_normals(setting *s)
{
    tn_tensor *a = tn_normal(s->ctx, s->in[0].rank, s->in[0].shape, 0, 1);
    tn_tensor *b = tn_normal(s->ctx, s->in[0].rank, s->in[0].shape, 0, 1);
    return tn_sub(s->ctx, a, b);
}

static inline void want_random(setting *s)
{
    double *y = case_want(s, s->in[0].rank, s->in[0].shape);
    for (int64_t i = 0; i < s->want_count; i++)
        y[i] = s->of->kind == 0 ? -1.5 + 3.5 * plain_uniform(CASE_RANDOM, 0, i)
             : s->of->kind == 1 ? 0.5 + 2 * plain_normal(CASE_RANDOM, 0, i)
                                : plain_normal(CASE_RANDOM, 0, i) - plain_normal(CASE_RANDOM, 1, i);
}

static inline tn_tensor *run_noise(setting *s)   { return tn_noise(s->ctx, case_x(s, 0), 0.25); }
static inline tn_tensor *run_dropout(setting *s) { return tn_dropout(s->ctx, case_x(s, 0), 0.375); }
static inline void want_noise(setting *s)
{
    plain x = plain_x(s, 0);
    double *y = case_want(s, x.rank, x.shape);
    for (int64_t i = 0; i < s->want_count; i++) y[i] = plain_at(&x, i) + 0.25 * plain_normal(CASE_RANDOM, 0, i);
}

static inline void want_dropout(setting *s)
{
    plain x = plain_x(s, 0);
    double *y = case_want(s, x.rank, x.shape);
    for (int64_t i = 0; i < s->want_count; i++)
        y[i] = plain_uniform(CASE_RANDOM, 0, i) >= 0.375 ? plain_at(&x, i) / (1 - 0.375) : 0;
}

/* ---- elementwise --------------------------------------------------------------------------------------------------------- */

/* Two shapes that broadcast: of one shape axes turn into 1 or are left out, on either side. */
static inline void build_broadcast(setting *s)
{
    int64_t shape[TN_MAX_RANK], part[TN_MAX_RANK];
    int rank = draw_rank(s, 0, 4);
    draw_shape(s, rank, shape, true);
    for (int side = 0; side < 2; side++) {
        int from = s->round > 0 && draw(s, 0, 2) == 0 ? (int)draw(s, 0, rank) : 0;
        for (int i = from; i < rank; i++) part[i] = s->round > 0 && draw(s, 0, 3) == 0 ? 1 : shape[i];
        case_real(s, rank - from, part + from, CASE_UNIT);
    }
}

static inline tn_tensor *run_add(setting *s) { return tn_add(s->ctx, case_x(s, 0), case_x(s, 1)); }
static inline tn_tensor *run_sub(setting *s) { return tn_sub(s->ctx, case_x(s, 0), case_x(s, 1)); }
static inline tn_tensor *run_mul(setting *s) { return tn_mul(s->ctx, case_x(s, 0), case_x(s, 1)); }

static inline void want_binary(setting *s)
{
    plain a = plain_x(s, 0), b = plain_x(s, 1);
    int64_t shape[TN_MAX_RANK];
    int rank = a.rank > b.rank ? a.rank : b.rank;
    for (int k = 1; k <= rank; k++) {
        int64_t na = k <= a.rank ? a.shape[a.rank - k] : 1, nb = k <= b.rank ? b.shape[b.rank - k] : 1;
        shape[rank - k] = na == 1 ? nb : na;
    }
    a = plain_stretch(a, rank, shape);
    b = plain_stretch(b, rank, shape);
    double *y = case_want(s, rank, shape);
    for (int64_t i = 0; i < s->want_count; i++)
        switch (s->of->kind) {
        case '+': y[i] = plain_at(&a, i) + plain_at(&b, i); break;
        case '-': y[i] = plain_at(&a, i) - plain_at(&b, i); break;
        case '*': y[i] = plain_at(&a, i) * plain_at(&b, i); break;
        default:  y[i] = plain_at(&a, i) / (plain_at(&b, i) + 1.5);
        }
}

static inline tn_tensor *run_scale(setting *s) { return tn_scale(s->ctx, case_x(s, 0), -1.75); }
static inline void want_scale(setting *s)
{
    plain x = plain_x(s, 0);
    double *y = case_want(s, x.rank, x.shape);
    for (int64_t i = 0; i < s->want_count; i++) y[i] = -1.75 * plain_at(&x, i);
}

/* To the nearest integer, ties to even. */
static inline double plain_round(double x)
{
    double up = floor(x + 0.5);
    return up - x == 0.5 && fmod(up, 2) != 0 ? up - 1 : up;
}

static inline double plain_act(int64_t kind, double x)
{
    switch (kind) {
    case TN_ACT_RELU:    return x > 0 ? x : 0;
    case TN_ACT_RELU2:   return x > 0 ? x * x : 0;
    case TN_ACT_GELU:    return x * (1 + erf(x / sqrt(2.0))) / 2;
    case TN_ACT_SWISH:   return x / (1 + exp(-x));
    case TN_ACT_SIGMOID: return 1 / (1 + exp(-x));
    case TN_ACT_ABS:     return x < 0 ? -x : x;
    case TN_ACT_ROUND:   return plain_round(x);
    case TN_ACT_EXP:     return exp(x);
    case TN_ACT_TANH:    return 1 - 2 / (1 + exp(2 * x));
    case TN_ACT_SQRT:    return x > 0 ? exp(log(x) / 2) : x;
    case TN_ACT_LOG:     return log(x);
    default:             return x;
    }
}

static inline bool plain_act_kinked(int64_t kind) { return kind == TN_ACT_RELU || kind == TN_ACT_RELU2; }

static inline void build_act(setting *s)
{
    int64_t shape[TN_MAX_RANK];
    int rank = draw_rank(s, s->round == 0 ? 1 : 0, 3);
    draw_shape(s, rank, shape, true);
    case_real(s, rank, shape, CASE_AWAY);
}

static inline tn_tensor *run_act(setting *s) { return tn_activation(s->ctx, tn_scale(s->ctx, case_x(s, 0), 4), (tn_act)s->of->kind); }
static inline void want_act(setting *s)
{
    plain x = plain_x(s, 0);
    double *y = case_want(s, x.rank, x.shape);
    for (int64_t i = 0; i < s->want_count; i++) y[i] = plain_act(s->of->kind, 4 * plain_at(&x, i));
}

static inline void build_glu(setting *s)
{
    int64_t shape[TN_MAX_RANK];
    int rank = draw_rank(s, 1, 3);
    draw_shape(s, rank, shape, true);
    shape[rank - 1] *= 2;
    case_real(s, rank, shape, CASE_AWAY);
}

static inline tn_tensor *run_glu(setting *s) { return tn_glu(s->ctx, case_x(s, 0), (tn_act)s->of->kind); }
static inline void want_glu(setting *s)
{
    plain x = plain_x(s, 0);
    int64_t shape[TN_MAX_RANK], h = x.shape[x.rank - 1] / 2;
    memcpy(shape, x.shape, sizeof shape);
    shape[x.rank - 1] = h;
    double *y = case_want(s, x.rank, shape);
    for (int64_t i = 0; i < s->want_count; i++)
        y[i] = plain_act(s->of->kind, plain_at(&x, i / h * 2 * h + i % h)) * plain_at(&x, i / h * 2 * h + h + i % h);
}

/* kind: how many factors */
static inline void build_prod(setting *s)
{
    int64_t shape[TN_MAX_RANK];
    int rank = draw_rank(s, 1, 3);
    draw_shape(s, rank, shape, true);
    shape[rank - 1] *= s->of->kind;
    case_real(s, rank, shape, CASE_AWAY);
}

static inline tn_tensor *run_prod(setting *s) { return tn_prod_parts(s->ctx, tn_scale(s->ctx, case_x(s, 0), 1.5), s->of->kind); }
static inline void want_prod(setting *s)
{
    plain x = plain_x(s, 0);
    int64_t shape[TN_MAX_RANK], h = x.shape[x.rank - 1] / s->of->kind, e;
    memcpy(shape, x.shape, sizeof shape);
    shape[x.rank - 1] = h;
    double *y = case_want(s, x.rank, shape);
    for (int64_t i = 0; i < s->want_count; i++)
        for (y[i] = 1, e = 0; e < s->of->kind; e++) y[i] *= 1.5 * plain_at(&x, (i / h * s->of->kind + e) * h + i % h);
}

/* ---- sums ------------------------------------------------------------------------------------------------------------------- */

static inline tn_tensor *run_sum(setting *s)  { return tn_sum(s->ctx, case_x(s, 0)); }
static inline tn_tensor *run_mean(setting *s) { return tn_mean(s->ctx, case_x(s, 0)); }
static inline void build_some(setting *s)             /* not empty */
{
    int64_t shape[TN_MAX_RANK];
    int rank = draw_rank(s, 0, 4);
    draw_shape(s, rank, shape, false);
    case_real(s, rank, shape, CASE_UNIT);
}

static inline void want_sum(setting *s)
{
    plain x = plain_x(s, 0);
    double *y = case_want(s, 0, NULL);
    int64_t n = plain_count(&x);
    for (int64_t i = 0; i < n; i++) *y += plain_at(&x, i);
    if (s->of->kind == 1) *y /= (double)n;
}

static inline void build_sum_axis(setting *s)
{
    int64_t shape[TN_MAX_RANK];
    int rank = draw_rank(s, 1, 4);
    draw_shape(s, rank, shape, true);
    case_real(s, rank, shape, CASE_UNIT);
    s->k[0] = draw(s, -rank, rank - 1);
}

static inline tn_tensor *run_sum_axis(setting *s) { return tn_sum_axis(s->ctx, case_x(s, 0), (int)s->k[0]); }
static inline void want_sum_axis(setting *s)
{
    plain x = plain_x(s, 0), rest = x;
    int axis = (int)(s->k[0] < 0 ? s->k[0] + x.rank : s->k[0]);
    rest.rank--;
    for (int k = axis; k < rest.rank; k++) { rest.shape[k] = x.shape[k + 1]; rest.strides[k] = x.strides[k + 1]; }
    double *y = case_want(s, rest.rank, rest.shape);
    for (int64_t j = 0; j < x.shape[axis]; j++, rest.v += x.strides[axis])
        for (int64_t i = 0; i < s->want_count; i++) y[i] += plain_at(&rest, i);
}

static inline void build_pair(setting *s)
{
    int64_t shape[TN_MAX_RANK];
    int rank = draw_rank(s, 0, 3);
    draw_shape(s, rank, shape, false);
    case_real(s, rank, shape, CASE_UNIT);
    case_real(s, rank, shape, CASE_UNIT);
}

static inline tn_tensor *run_mse(setting *s) { return tn_mse(s->ctx, case_x(s, 0), case_x(s, 1)); }
static inline void want_mse(setting *s)
{
    plain a = plain_x(s, 0), b = plain_x(s, 1);
    double *y = case_want(s, 0, NULL);
    int64_t n = plain_count(&a);
    for (int64_t i = 0; i < n; i++) *y += (plain_at(&a, i) - plain_at(&b, i)) * (plain_at(&a, i) - plain_at(&b, i)) / (double)n;
}

/* ---- products ------------------------------------------------------------------------------------------------------------------ */

/* kind: how many batch axes a and b have, 10 a + b */
static inline void build_matmul(setting *s)
{
    int64_t shape[4];
    int a = (int)s->of->kind / 10, b = (int)s->of->kind % 10;
    shape[0] = draw(s, s->round > 0 ? 0 : 2, 3);
    if (s->round == CASE_LARGE) shape[0] = 2;
    shape[1] = draw(s, 1, 3);
    int64_t m = draw_extent(s, true), k = draw_extent(s, true), n = draw_extent(s, true);
    if (s->round == CASE_LARGE && s->of->kind == 0) k += 300;      /* deeper than one packed block */
    else if (s->round == CASE_LARGE) { m = m / 2 + 1; k = k / 3 + 1; n = n / 2 + 1; }
    shape[a] = m;
    shape[a + 1] = k;
    case_real(s, a + 2, shape, CASE_UNIT);
    if (a == 0) { shape[0] = draw(s, 1, 3); shape[1] = draw(s, 1, 3); }
    else if (a == 1) shape[1] = draw(s, 1, 3);
    shape[b] = k;
    shape[b + 1] = n;
    case_real(s, b + 2, shape, CASE_UNIT);
}

static inline tn_tensor *run_matmul(setting *s) { return tn_matmul(s->ctx, case_x(s, 0), case_x(s, 1)); }
static inline void want_matmul(setting *s)
{
    plain a = plain_x(s, 0), b = plain_x(s, 1);
    int64_t shape[TN_MAX_RANK], m = a.shape[a.rank - 2], k = a.shape[a.rank - 1], n = b.shape[b.rank - 1];
    int rank = a.rank > b.rank ? a.rank : b.rank;
    memcpy(shape, a.rank > 2 ? a.shape : b.shape, sizeof shape);
    shape[rank - 2] = m;
    shape[rank - 1] = n;
    double *y = case_want(s, rank, shape);
    double *fa = plain_flat(&a);
    double *fb = plain_flat(&b);
    for (int64_t i = 0; i < s->want_count; i++) {
        int64_t batch = i / (m * n), row = i / n % m, column = i % n;
        const double *x = fa + ((a.rank > 2 ? batch : 0) * m + row) * k, *w = fb + (b.rank > 2 ? batch : 0) * k * n + column;
        for (int64_t j = 0; j < k; j++) y[i] += x[j] * w[j * n];
    }
    free(fa);
    free(fb);
}

/* kind 1: with bias */
static inline void build_affine(setting *s)
{
    int64_t shape[TN_MAX_RANK];
    int rank = draw_rank(s, 1, 3);
    draw_shape(s, rank, shape, true);
    int64_t w[2] = {draw_extent(s, true), shape[rank - 1]};
    case_real(s, rank, shape, CASE_UNIT);
    case_real(s, 2, w, CASE_UNIT);
    if (s->of->kind) case_real(s, 1, w, CASE_UNIT);
}

static inline tn_tensor *run_affine(setting *s)
{
    return tn_affine(s->ctx, case_x(s, 0), case_x(s, 1), s->of->kind ? case_x(s, 2) : NULL);
}

/* y = x w^T + b on rows; b may be NULL */
static inline void plain_affine(double *y, const double *x, const double *w, const double *b, int64_t rows, int64_t n, int64_t m)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < m; i++) {
            double sum = b ? b[i] : 0;
            for (int64_t j = 0; j < n; j++) sum += x[r * n + j] * w[i * n + j];
            y[r * m + i] = sum;
        }
}

static inline void want_affine(setting *s)
{
    plain x = plain_x(s, 0), w = plain_x(s, 1), b;
    int64_t shape[TN_MAX_RANK], n = w.shape[1], m = w.shape[0];
    double *fx = plain_flat(&x), *fw = plain_flat(&w), *fb = NULL;
    memcpy(shape, x.shape, sizeof shape);
    shape[x.rank - 1] = m;
    double *y = case_want(s, x.rank, shape);
    if (s->of->kind) { b = plain_x(s, 2); fb = plain_flat(&b); }
    plain_affine(y, fx, fw, fb, shape_count(x.rank - 1, x.shape), n, m);
    free(fx);
    free(fw);
    free(fb);
}

static inline void build_rows(setting *s)
{
    int64_t shape[TN_MAX_RANK];
    int rank = draw_rank(s, 1, 3);
    draw_shape(s, rank, shape, true);
    case_real(s, rank, shape, CASE_UNIT);
}

static inline tn_tensor *run_append_one(setting *s) { return tn_append_one(s->ctx, case_x(s, 0)); }
static inline void want_append_one(setting *s)
{
    plain x = plain_x(s, 0);
    int64_t shape[TN_MAX_RANK], n = x.shape[x.rank - 1];
    memcpy(shape, x.shape, sizeof shape);
    shape[x.rank - 1] = n + 1;
    double *y = case_want(s, x.rank, shape);
    for (int64_t i = 0; i < s->want_count; i++) y[i] = i % (n + 1) == n ? 1 : plain_at(&x, i / (n + 1) * n + i % (n + 1));
}

/* ---- tables, norms ---------------------------------------------------------------------------------------------------------------- */

static inline void build_embed(setting *s)
{
    int64_t table[2], shape[TN_MAX_RANK];
    int rank = s->round == CASE_DEEP ? TN_MAX_RANK - 1 : (int)draw(s, 0, 2);
    table[0] = draw_extent(s, false);
    table[1] = draw_extent(s, true);
    draw_shape(s, rank, shape, true);
    case_real(s, 2, table, CASE_UNIT);
    case_ids(s, rank, shape, table[0]);
}

static inline tn_tensor *run_embed(setting *s) { return tn_embed(s->ctx, case_x(s, 0), case_x(s, 1)); }
static inline void want_embed(setting *s)
{
    plain table = plain_x(s, 0), ids = plain_x(s, 1);
    int64_t shape[TN_MAX_RANK], d = table.shape[1];
    memcpy(shape, ids.shape, sizeof shape);
    shape[ids.rank] = d;
    double *y = case_want(s, ids.rank + 1, shape);
    for (int64_t i = 0; i < s->want_count; i++) y[i] = plain_at(&table, (int64_t)plain_at(&ids, i / d) * d + i % d);
}

/* kind 1: with gain */
static inline void build_rmsnorm(setting *s)
{
    int64_t shape[TN_MAX_RANK];
    int rank = draw_rank(s, 1, 3);
    draw_shape(s, rank, shape, true);
    case_real(s, rank, shape, CASE_AWAY);
    if (s->of->kind) case_real(s, 1, shape + rank - 1, CASE_UNIT);
}

static inline tn_tensor *run_rmsnorm(setting *s)
{
    return tn_rmsnorm(s->ctx, case_x(s, 0), s->of->kind ? case_x(s, 1) : NULL, 1e-3);
}

static inline void plain_rmsnorm(double *y, const plain *x, const plain *gain, double eps)
{
    int64_t n = x->shape[x->rank - 1], rows = shape_count(x->rank - 1, x->shape);
    for (int64_t r = 0; r < rows; r++) {
        double squares = 0;
        for (int64_t j = 0; j < n; j++) squares += plain_at(x, r * n + j) * plain_at(x, r * n + j);
        for (int64_t j = 0; j < n; j++)
            y[r * n + j] = plain_at(x, r * n + j) / sqrt(squares / (double)n + eps) * (gain ? plain_at(gain, j) : 1);
    }
}

static inline void want_rmsnorm(setting *s)
{
    plain x = plain_x(s, 0), gain = plain_x(s, s->of->kind ? 1 : 0);
    plain_rmsnorm(case_want(s, x.rank, x.shape), &x, s->of->kind ? &gain : NULL, 1e-3);
}

/* The norm of x + branch, and the sum itself; kind 1: with gain */
static inline void build_residual(setting *s)
{
    int64_t shape[TN_MAX_RANK];
    int rank = draw_rank(s, 1, 3);
    draw_shape(s, rank, shape, true);
    case_real(s, rank, shape, CASE_AWAY);
    case_real(s, rank, shape, CASE_UNIT);
    if (s->of->kind) case_real(s, 1, shape + rank - 1, CASE_UNIT);
}

static inline tn_tensor *run_residual(setting *s)
{
    tn_tensor *both[2];
    both[0] = tn_residual_rmsnorm(s->ctx, case_x(s, 0), case_x(s, 1), s->of->kind ? case_x(s, 2) : NULL, 0.1, &both[1]);
    return both[0] ? tn_concat(s->ctx, 2, both, 0) : NULL;
}

static inline void want_residual(setting *s)
{
    plain   x = plain_x(s, 0), branch = plain_x(s, 1), gain = plain_x(s, s->of->kind ? 2 : 0), sum = x;
    int64_t shape[TN_MAX_RANK] = {0}, n = plain_count(&x);
    double *flat = (double *)malloc(sizeof(double) * (size_t)(n + 1));
    for (int64_t i = 0; i < x.rank; i++) shape[i] = x.shape[i] * (i == 0 ? 2 : 1);
    double *y = case_want(s, x.rank, shape);
    for (int64_t i = 0; i < n; i++) y[n + i] = flat[i] = plain_at(&x, i) + plain_at(&branch, i);
    sum.v = flat;
    for (int64_t i = x.rank - 1; i >= 0; i--) sum.strides[i] = i == x.rank - 1 ? 1 : sum.strides[i + 1] * x.shape[i + 1];
    plain_rmsnorm(y, &sum, s->of->kind ? &gain : NULL, 0.1);
    free(flat);
}

/* kind 0: the normalised product, 1: the logarithm of its norm, 2: their product, whose gradient arrives by both */
static inline void build_chain(setting *s)
{
    int64_t shape[4];
    shape[0] = draw(s, s->round > 0 ? 0 : 1, 3);
    shape[1] = draw(s, 1, 6);
    shape[2] = shape[3] = s->round == CASE_LARGE ? draw(s, 30, 70) : draw_extent(s, false);
    case_real(s, 4, shape, CASE_AWAY);
}

static inline tn_tensor *run_chain(setting *s)
{
    tn_tensor *log_norm, *y = tn_chain(s->ctx, case_x(s, 0), &log_norm);
    int64_t    shape[3] = {-1, 1, 1};
    if (s->of->kind == 1) return log_norm;
    if (s->of->kind == 0) return y;
    shape[0] = log_norm ? log_norm->shape[0] : 0;
    return tn_mul(s->ctx, y, tn_reshape(tn_copy(s->ctx, log_norm), 3, shape));
}

static inline void want_chain(setting *s)
{
    plain   x = plain_x(s, 0);
    int64_t n = x.shape[1], d = x.shape[2], dd = d * d;
    double *y = (double *)calloc((size_t)dd * 2 + 1, sizeof *y), *next = y + dd;
    int64_t shape[3] = {x.shape[0], d, d};
    double *want = case_want(s, s->of->kind == 1 ? 1 : 3, shape);
    for (int64_t b = 0; b < x.shape[0]; b++) {
        double squares = 0;
        for (int64_t i = 0; i < dd; i++) y[i] = i / d == i % d;
        for (int64_t j = 0; j < n; j++) {
            for (int64_t i = 0; i < d; i++)
                for (int64_t k = 0; k < d; k++) {
                    next[i * d + k] = 0;
                    for (int64_t l = 0; l < d; l++) next[i * d + k] += y[i * d + l] * plain_at(&x, ((b * n + j) * d + l) * d + k);
                }
            memcpy(y, next, sizeof *y * (size_t)dd);
        }
        for (int64_t i = 0; i < dd; i++) squares += y[i] * y[i];
        if (s->of->kind == 1) want[b] = log(squares) / 2;
        else for (int64_t i = 0; i < dd; i++) want[b * dd + i] = y[i] / sqrt(squares) * (s->of->kind == 2 ? log(squares) / 2 : 1);
    }
    free(y);
}

/* Scans. kind: what is looked at, whether the chain is read from its end, and how it begins: with its first matrix, with a vector,
   with a vector and matrices from cores, one for each site or one for all. */
enum { SCAN_LOGS = 1, SCAN_BOTH = 2, SCAN_REVERSE = 4, SCAN_VECTOR = 8, SCAN_STATES = 16, SCAN_UNIFORM = 32 };

static inline void build_scan(setting *s)
{
    const int64_t kind = s->of->kind, d = s->round == CASE_LARGE ? draw(s, 30, kind & SCAN_STATES ? 40 : 70) : draw_extent(s, false);
    int64_t       b = draw(s, s->round > 0 ? 0 : 1, 3), n = draw(s, s->round > 0 ? 0 : 1, 6), shape[4];
    int           i = s->inputs;
    if (kind & SCAN_STATES) {
        const int64_t features = draw(s, 1, 3);
        if (s->round == CASE_LARGE) b = draw(s, 8, 20);
        shape[0] = kind & SCAN_UNIFORM ? 1 : n; shape[1] = shape[3] = d; shape[2] = features;
        case_real(s, 4, shape, CASE_AWAY);
        shape[0] = b; shape[1] = n; shape[2] = features;
        case_real(s, 3, shape, CASE_AWAY);
    } else {
        shape[0] = b; shape[1] = n; shape[2] = shape[3] = d;
        case_real(s, 4, shape, CASE_AWAY);
    }
    shape[0] = b; shape[1] = d;
    if (kind & (SCAN_STATES | SCAN_VECTOR)) {
        if (draw(s, 0, 1)) case_real(s, 2, shape, CASE_AWAY);
        else case_real(s, 1, shape + 1, CASE_AWAY);
    }
    for (; i < s->inputs; i++)                                      /* mostly positive, so that no state is nearly zero */
        for (int64_t k = 0; k < s->in[i].count; k++)
            s->in[i].v[k] = s->in[i].rank == 3 ? fabs(s->in[i].v[k]) + 0.125 : s->in[i].v[k] + 0.5;
}

static inline tn_tensor *run_scan(setting *s)
{
    const int64_t kind = s->of->kind;
    const bool    reverse = (kind & SCAN_REVERSE) != 0;
    tn_tensor    *logs = NULL, *y;
    int64_t       shape[4] = {0, 0, 1, 1};
    if (kind & SCAN_STATES)      y = tn_scan_states(s->ctx, case_x(s, 2), case_x(s, 0), case_x(s, 1), reverse, &logs);
    else if (kind & SCAN_VECTOR) y = tn_scan_vector(s->ctx, case_x(s, 1), case_x(s, 0), reverse, &logs);
    else                         y = tn_scan(s->ctx, case_x(s, 0), reverse, &logs);
    if (kind & SCAN_LOGS) return logs;
    if (!(kind & SCAN_BOTH) || !y) return y;
    memcpy(shape, y->shape, 2 * sizeof *shape);
    return tn_mul(s->ctx, y, tn_reshape(logs, y->rank, shape));
}

/* The matrix at site j of chain b. */
static inline void scan_matrix(setting *s, int64_t b, int64_t j, double *to)
{
    plain   m = plain_x(s, 0), phi = plain_x(s, s->of->kind & SCAN_STATES ? 1 : 0);
    int64_t d = m.shape[3], features = m.shape[2], n = phi.shape[1];
    for (int64_t e = 0; e < d; e++)
        for (int64_t f = 0; f < d; f++) {
            double sum = 0;
            if (s->of->kind & SCAN_STATES)
                for (int64_t i = 0; i < features; i++)
                    sum += plain_at(&m, (((s->of->kind & SCAN_UNIFORM ? 0 : j) * d + e) * features + i) * d + f)
                         * plain_at(&phi, (b * n + j) * features + i);
            else sum = plain_at(&m, ((b * n + j) * d + e) * d + f);
            to[e * d + f] = sum;
        }
}

static inline void want_scan(setting *s)
{
    const int64_t kind = s->of->kind, reverse = kind & SCAN_REVERSE, open = kind & (SCAN_VECTOR | SCAN_STATES) ? 1 : 0;
    plain   m = plain_x(s, 0), phi = plain_x(s, kind & SCAN_STATES ? 1 : 0), v = plain_x(s, kind & SCAN_STATES ? 2 : open ? 1 : 0);
    int64_t B = phi.shape[0], n = phi.shape[1], d = m.shape[3], h = open ? 1 : d, states = n + open;
    double *y = (double *)calloc((size_t)(3 * d * d) + 1, sizeof *y), *next = y + d * d, *now = next + d * d;
    int64_t shape[4] = {B, states, d, d};
    double *want = case_want(s, kind & SCAN_LOGS ? 2 : open ? 3 : 4, shape);
    for (int64_t b = 0; b < B; b++) {
        for (int64_t i = 0; i < d * d; i++) y[i] = !open && i / d == i % d;
        for (int64_t i = 0; open && i < d; i++) y[i] = plain_at(&v, v.rank == 1 ? i : b * d + i);
        double last = 0.25;
        for (int64_t k = 0; k < states; k++) {
            const int64_t at = b * states + (reverse ? states - 1 - k : k);
            double        squares = 0;
            if (k >= open) {                                        /* y is [h,d], or [d,h] where the matrix comes first */
                scan_matrix(s, b, reverse ? states - 1 - k : k - open, now);
                for (int64_t e = 0; e < h; e++)
                    for (int64_t f = 0; f < d; f++) {
                        double sum = 0;
                        for (int64_t i = 0; i < d; i++)
                            sum += reverse ? now[f * d + i] * y[i * h + e] : y[e * d + i] * now[i * d + f];
                        next[reverse ? f * h + e : e * d + f] = sum;
                    }
                memcpy(y, next, sizeof *y * (size_t)(h * d));
            }
            for (int64_t i = 0; i < h * d; i++) squares += y[i] * y[i];
            if (squares < last / 6) s->kink = true;                /* a state near zero, where its direction is not smooth */
            last = squares;
            if (kind & SCAN_LOGS) want[at] = log(squares) / 2;
            else for (int64_t i = 0; i < h * d; i++)
                want[at * h * d + i] = y[i] / sqrt(squares) * (kind & SCAN_BOTH ? log(squares) / 2 : 1);
        }
    }
    free(y);
}

/* kind: bit 0 norm, bit 1 no rotation */
enum { ROPE_NORM = 1, ROPE_STILL = 2, ROPE_SCALED = 4 };

static inline tn_rope_scaling rope_scaling_of(const setting *s)
{
    tn_rope_scaling r = {0, 0, 0, 0};
    if (!(s->of->kind & ROPE_SCALED)) return r;
    r.factor = 8;
    if (s->round % 3 == 0) return r;
    r.low = 1;
    r.high = 4;
    r.context = 40;
    return r;
}

static inline void build_rope(setting *s)
{
    int64_t shape[4];
    draw_shape(s, 4, shape, true);
    if (s->round == CASE_LARGE) shape[0] = shape[2] = 2;
    if (s->round == CASE_DEEP) shape[3] = 64;
    if (shape[3] == 0) shape[3] = 1;
    case_real(s, 4, shape, CASE_AWAY);
    s->k[0] = s->round == 0 ? 0 : draw(s, -3, 3000);
}

static inline tn_tensor *run_rope(setting *s)
{
    tn_rope_desc d = ZERO;
    d.base = s->round % 2 ? 500 : 0;
    d.first = s->k[0];
    d.scaling = rope_scaling_of(s);
    d.norm = (s->of->kind & ROPE_NORM) != 0;
    d.no_rotation = (s->of->kind & ROPE_STILL) != 0;
    d.eps = s->round % 3 ? 1e-2 : 0;
    return tn_rope(s->ctx, case_x(s, 0), &d);
}

static inline void want_rope(setting *s)
{
    plain   x = plain_x(s, 0);
    double *flat = plain_flat(&x), *y = case_want(s, 4, x.shape), base = s->round % 2 ? 500 : 10000, eps = s->round % 3 ? 1e-2 : 1e-6;
    int64_t n = x.shape[2], d = x.shape[3];
    const tn_rope_scaling scaling = rope_scaling_of(s);
    for (int64_t r = 0; r < x.shape[0] * x.shape[1] * n; r++)
        plain_rope_scaled(flat + r * d, d, s->k[0] + r / n % x.shape[1], s->of->kind & ROPE_STILL ? 0 : base,
                          scaling.factor > 0 ? &scaling : NULL, s->of->kind & ROPE_NORM ? eps : -1, y + r * d);
    free(flat);
}

/* kind: the tn_attend_kind, the form, the row scale, and what else */
enum { ATTEND_QUADRATIC = 4, ATTEND_LINEAR = 8, ATTEND_ROW = 16 /* times the tn_row_scale */, ATTEND_CAUSAL = 128, ATTEND_WINDOW = 256, ATTEND_SELF = 512,
       ATTEND_JOINT = 1024 };

static inline plain_attention case_attention(const setting *s)
{
    plain_attention a = ZERO;
    const int64_t k = s->of->kind;
    a.kind = (tn_attend_kind)(k % 4);
    a.causal = (k & ATTEND_CAUSAL) != 0;
    a.row = (tn_row_scale)(k / ATTEND_ROW % 8);
    a.B = s->k[0]; a.Tq = s->k[1]; a.Tk = s->k[2]; a.H = s->k[3]; a.d = s->k[4]; a.dv = s->k[5];
    a.window = k & ATTEND_WINDOW ? s->k[6] : 0;
    a.length = s->k[7];
    a.scale = 0.75;
    a.eps = 0.25;
    return a;
}

/* Self: q, k and v are one tensor, and a self-attending one is square, as in x x^T x. Joint: they are neighbouring heads of one. */
static inline void build_attend(setting *s)
{
    const bool joint = (s->of->kind & ATTEND_JOINT) != 0, self = joint || (s->of->kind & ATTEND_SELF) != 0;
    int64_t    sets = s->of->kind % 4 == TN_ATTEND_BILINEAR ? 2 : 1;
    s->k[0] = s->round == CASE_LARGE ? 1 : draw(s, 1, 2);
    s->k[1] = s->round == CASE_LARGE ? draw(s, 50, 90) : s->round == CASE_DEEP ? draw(s, 15, 34) : draw_extent(s, true);
    s->k[2] = s->round == CASE_LARGE ? draw(s, 70, 110) : s->round == CASE_DEEP ? draw(s, 31, 33) : draw(s, 0, 2) ? s->k[1] : draw_extent(s, true);
    s->k[3] = s->round == CASE_LARGE ? 1 : draw(s, 1, 3);
    s->k[4] = s->round == CASE_LARGE ? draw(s, 8, 20) : draw_extent(s, false);
    s->k[5] = s->round == CASE_LARGE ? draw(s, 8, 20) : draw_extent(s, true);
    s->k[6] = draw(s, 1, s->round == CASE_LARGE ? 40 : 6);
    s->k[7] = draw(s, 1, 6);
    if (self) { s->k[2] = s->k[1]; s->k[5] = s->k[4]; }
    int64_t shape[4] = {s->k[0], s->k[1], (joint ? 2 * sets + 1 : sets) * s->k[3], s->k[4]};
    case_real(s, 4, shape, CASE_UNIT);
    if (self) return;
    shape[1] = s->k[2];
    case_real(s, 4, shape, CASE_UNIT);
    shape[2] = s->k[3]; shape[3] = s->k[5];
    case_real(s, 4, shape, CASE_UNIT);
}

static inline tn_tensor *run_attend(setting *s)
{
    const plain_attention a = case_attention(s);
    const tn_attend_desc  d = plain_attend_desc(&a, s->of->kind & ATTEND_LINEAR ? TN_ATTEND_FORM_LINEAR
                                                  : s->of->kind & ATTEND_QUADRATIC ? TN_ATTEND_FORM_QUADRATIC
                                                      : TN_ATTEND_FORM_AUTO);
    const int64_t n = plain_sets(&a) * a.H;
    if (!(s->of->kind & (ATTEND_SELF | ATTEND_JOINT))) return tn_attend(s->ctx, case_x(s, 0), case_x(s, 1), case_x(s, 2), &d);
    tn_tensor *x = case_x(s, 0);
    if (s->of->kind & ATTEND_JOINT)
        return tn_attend(s->ctx, tn_slice(x, 2, 0, n), tn_slice(x, 2, n, 2 * n), tn_slice(x, 2, 2 * n, 2 * n + a.H), &d);
    return tn_attend(s->ctx, x, x, plain_sets(&a) == 2 ? tn_slice(x, 2, 0, a.H) : x, &d);
}

static inline void want_attend(setting *s)
{
    const plain_attention a = case_attention(s);
    const bool one = (s->of->kind & (ATTEND_SELF | ATTEND_JOINT)) != 0;
    plain   q = plain_x(s, 0), k = plain_x(s, one ? 0 : 1), v = plain_x(s, one ? 0 : 2);
    if (s->of->kind & ATTEND_JOINT) {
        q.shape[2] = k.shape[2] = plain_sets(&a) * a.H;
        k.v += q.shape[2] * q.strides[2];
        v.v += 2 * q.shape[2] * q.strides[2];
    }
    v.shape[2] = a.H;
    double *fq = plain_flat(&q);
    double *fk = plain_flat(&k);
    double *fv = plain_flat(&v);
    int64_t shape[4] = {a.B, a.Tq, a.H, a.dv};
    plain_attend(&a, fq, fk, fv, case_want(s, 4, shape));
    free(fq); free(fk); free(fv);
}

/* kind: LAYERNORM_GAIN, LAYERNORM_BIAS, or both */
enum { LAYERNORM_GAIN = 1, LAYERNORM_BIAS = 2 };

static inline void build_layernorm(setting *s)
{
    int64_t shape[TN_MAX_RANK];
    int rank = draw_rank(s, 1, 3);
    draw_shape(s, rank, shape, true);
    case_real(s, rank, shape, CASE_UNIT);
    if (s->of->kind & LAYERNORM_GAIN) case_real(s, 1, shape + rank - 1, CASE_UNIT);
    if (s->of->kind & LAYERNORM_BIAS) case_real(s, 1, shape + rank - 1, CASE_UNIT);
}

static inline tn_tensor *run_layernorm(setting *s)
{
    bool gain = s->of->kind & LAYERNORM_GAIN, bias = (s->of->kind & LAYERNORM_BIAS) != 0;
    return tn_layernorm(s->ctx, case_x(s, 0), gain ? case_x(s, 1) : NULL, bias ? case_x(s, 1 + gain) : NULL, 2e-2);
}

static inline void plain_layernorm(double *y, const plain *x, const plain *gain, const plain *bias, double eps)
{
    int64_t n = x->shape[x->rank - 1], rows = shape_count(x->rank - 1, x->shape);
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, squares = 0;
        for (int64_t j = 0; j < n; j++) mean += plain_at(x, r * n + j) / (double)n;
        for (int64_t j = 0; j < n; j++) squares += pow(plain_at(x, r * n + j) - mean, 2);
        for (int64_t j = 0; j < n; j++)
            y[r * n + j] = (plain_at(x, r * n + j) - mean) / sqrt(squares / (double)n + eps) * (gain ? plain_at(gain, j) : 1) + (bias ? plain_at(bias, j) : 0);
    }
}

static inline void want_layernorm(setting *s)
{
    bool gain = s->of->kind & LAYERNORM_GAIN, bias = (s->of->kind & LAYERNORM_BIAS) != 0;
    plain x = plain_x(s, 0), w = plain_x(s, gain ? 1 : 0), b = plain_x(s, bias ? 1 + gain : 0);
    plain_layernorm(case_want(s, x.rank, x.shape), &x, gain ? &w : NULL, bias ? &b : NULL, 2e-2);
}

/* ---- logits and labels -------------------------------------------------------------------------------------------------------------- */

static inline void build_logits(setting *s)
{
    int64_t shape[TN_MAX_RANK];
    int rank = draw_rank(s, 1, 3);
    draw_shape(s, rank, shape, false);
    case_real(s, rank, shape, s->of->smooth ? CASE_UNIT : CASE_FEW);
    case_ids(s, rank - 1, shape, shape[rank - 1]);
}

static inline tn_tensor *run_cross_entropy(setting *s)
{
    return tn_cross_entropy(s->ctx, tn_scale(s->ctx, case_x(s, 0), 5), case_x(s, 1));
}

static inline void want_cross_entropy(setting *s)
{
    plain x = plain_x(s, 0), label = plain_x(s, 1);
    int64_t c = x.shape[x.rank - 1], rows = plain_count(&label);
    double *y = case_want(s, 0, NULL);
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t j = 0; j < c; j++) sum += exp(5 * plain_at(&x, r * c + j));
        *y += (log(sum) - 5 * plain_at(&x, r * c + (int64_t)plain_at(&label, r))) / (double)rows;
    }
}

static inline int64_t plain_argmax(const plain *x, int64_t row, int64_t c)
{
    int64_t best = 0;
    for (int64_t j = 1; j < c; j++) if (plain_at(x, row * c + j) > plain_at(x, row * c + best)) best = j;
    return best;
}

static inline tn_tensor *run_argmax(setting *s) { return tn_argmax(s->ctx, case_x(s, 0)); }
static inline void want_argmax(setting *s)
{
    plain x = plain_x(s, 0);
    double *y = case_want(s, x.rank - 1, x.shape);
    for (int64_t r = 0; r < s->want_count; r++) y[r] = (double)plain_argmax(&x, r, x.shape[x.rank - 1]);
}

static inline tn_tensor *run_accuracy(setting *s) { return tn_accuracy(s->ctx, case_x(s, 0), case_x(s, 1)); }
static inline void want_accuracy(setting *s)
{
    plain x = plain_x(s, 0), label = plain_x(s, 1);
    int64_t rows = plain_count(&label);
    double *y = case_want(s, 0, NULL);
    for (int64_t r = 0; r < rows; r++)
        if ((double)plain_argmax(&x, r, x.shape[x.rank - 1]) == plain_at(&label, r)) *y += 1 / (double)rows;
}

/* ---- div, roots and logarithms, where, softmax, concat, stack, gather ------------------------------------------------------------------- */

/* An input moved to 0.5 to 2.5, where quotients, roots and logarithms are smooth. */
static inline tn_tensor *case_positive(setting *s, int k) { return tn_add(s->ctx, case_x(s, k), tn_full(s->ctx, 0, NULL, 1.5)); }

static inline tn_tensor *run_div(setting *s) { return tn_div(s->ctx, case_x(s, 0), case_positive(s, 1)); }
static inline tn_tensor *run_positive_glu(setting *s) { return tn_glu(s->ctx, case_positive(s, 0), (tn_act)s->of->kind); }
static inline tn_tensor *run_positive(setting *s)
{
    tn_tensor *x = case_positive(s, 0);
    return s->of->kind == TN_ACT_SQRT ? tn_sqrt(s->ctx, x) : s->of->kind == TN_ACT_LOG ? tn_log(s->ctx, x) : tn_exp(s->ctx, x);
}

static inline void want_positive(setting *s)
{
    plain x = plain_x(s, 0);
    double *y = case_want(s, x.rank, x.shape);
    for (int64_t i = 0; i < s->want_count; i++) y[i] = plain_act(s->of->kind, 1.5 + plain_at(&x, i));
}

static inline void want_positive_glu(setting *s)
{
    plain x = plain_x(s, 0);
    int64_t shape[TN_MAX_RANK], h = x.shape[x.rank - 1] / 2;
    memcpy(shape, x.shape, sizeof shape);
    shape[x.rank - 1] = h;
    double *y = case_want(s, x.rank, shape);
    for (int64_t i = 0; i < s->want_count; i++)
        y[i] = plain_act(s->of->kind, 1.5 + plain_at(&x, i / h * 2 * h + i % h)) * (1.5 + plain_at(&x, i / h * 2 * h + h + i % h));
}

/* Three shapes that broadcast; input 0 is the condition, half of it zeros. */
static inline void build_where(setting *s)
{
    int64_t shape[TN_MAX_RANK], part[TN_MAX_RANK];
    int rank = draw_rank(s, 0, 4);
    draw_shape(s, rank, shape, true);
    for (int side = 0; side < 3; side++) {
        int from = s->round > 0 && draw(s, 0, 2) == 0 ? (int)draw(s, 0, rank) : 0;
        for (int i = from; i < rank; i++) part[i] = s->round > 0 && draw(s, 0, 3) == 0 ? 1 : shape[i];
        if (side > 0) case_real(s, rank - from, part + from, CASE_UNIT);
        else case_ids(s, rank - from, part + from, 4);
    }
    for (int64_t j = 0; j < s->in[0].count; j++) s->in[0].v[j] = s->in[0].v[j] < 2 ? 0 : s->in[0].v[j] == 2 ? 1 : -7;
}

static inline tn_tensor *run_where(setting *s) { return tn_where(s->ctx, case_x(s, 0), case_x(s, 1), case_x(s, 2)); }
static inline void want_where(setting *s)
{
    plain x[3];
    int64_t shape[TN_MAX_RANK];
    int rank = 0;
    for (int k = 0; k < 3; k++) {
        x[k] = plain_x(s, k);
        while (rank < x[k].rank) rank++;
    }
    for (int64_t i = 1; i <= rank; i++) {
        shape[rank - i] = 1;
        for (int k = 0; k < 3; k++) if (i <= x[k].rank && x[k].shape[x[k].rank - i] != 1)
            shape[rank - i] = x[k].shape[x[k].rank - i];
    }
    for (int j = 0; j < 3; j++) x[j] = plain_stretch(x[j], rank, shape);
    double *y = case_want(s, rank, shape);
    for (int64_t i = 0; i < s->want_count; i++) y[i] = plain_at(&x[0], i) != 0 ? plain_at(&x[1], i) : plain_at(&x[2], i);
}

#ifndef TN_NO_CONTRACTION
/* ---- small products ------------------------------------------------------------------------------------------ */

enum { PRODUCT_CONTRACT, PRODUCT_RAO, PRODUCT_ROWS, PRODUCT_KRONECKER, PRODUCT_MODE, PRODUCT_UNFOLD, PRODUCT_FOLD };

static inline int64_t product_extent(setting *s)
{
    return s->round == CASE_LARGE ? draw(s, 8, 17) : s->round > 0 && draw(s, 0, 15) == 0 ? 0 : draw(s, 1, 4);
}

/* k[0], k[1]: axes; for fold k[1], k[2..]: the rank and the shape of the result */
static inline void build_products(setting *s)
{
    const int64_t kind = s->of->kind;
    int64_t a[TN_MAX_RANK], b[TN_MAX_RANK], others = 1;
    int ra = kind == PRODUCT_RAO || kind == PRODUCT_ROWS ? 2 : (int)draw(s, 1, s->round == CASE_LARGE ? 2 : 3);
    int           rb = kind == PRODUCT_CONTRACT ? (int)draw(s, 1, 3) : kind == PRODUCT_MODE ? 2 : ra;
    for (int i = 0; i < 3; i++) { a[i] = product_extent(s); b[i] = product_extent(s); }
    s->k[0] = draw(s, 0, ra - 1);
    s->k[1] = kind == PRODUCT_CONTRACT ? draw(s, 0, rb - 1) : kind == PRODUCT_FOLD ? ra : 1;
    if (kind == PRODUCT_CONTRACT || kind == PRODUCT_MODE) b[s->k[1]] = a[s->k[0]];
    if (kind == PRODUCT_RAO) b[1] = a[1];
    if (kind == PRODUCT_ROWS) b[0] = a[0];
    for (int i = 0; i < ra; i++) {
        s->k[2 + i] = a[i];
        if (i != s->k[0]) others *= a[i];
    }
    if (kind == PRODUCT_FOLD) { b[0] = a[s->k[0]]; b[1] = others; case_real(s, 2, b, CASE_UNIT); }
    else case_real(s, ra, a, CASE_UNIT);
    if (kind < PRODUCT_UNFOLD) case_real(s, rb, b, CASE_UNIT);
}

static inline tn_tensor *run_products(setting *s)
{
    tn_tensor *a = case_x(s, 0), *b = s->inputs > 1 ? case_x(s, 1) : NULL;
    switch (s->of->kind) {
    case PRODUCT_CONTRACT:  return tn_tensordot(s->ctx, a, (int)s->k[0], b, (int)s->k[1]);
    case PRODUCT_RAO:       return tn_khatri_rao(s->ctx, a, b);
    case PRODUCT_ROWS:      return tn_khatri_rao_rows(s->ctx, a, b);
    case PRODUCT_KRONECKER: return tn_kronecker(s->ctx, a, b);
    case PRODUCT_MODE:      return tn_mode_product(s->ctx, a, (int)s->k[0] - (s->round % 2 ? a->rank : 0), b);
    case PRODUCT_UNFOLD:    return tn_unfold(s->ctx, a, (int)s->k[0]);
    default:                return tn_fold(s->ctx, a, (int)s->k[0], (int)s->k[1], s->k + 2);
    }
}

static inline double plain_index(const plain *p, const int64_t *index)
{
    const double *v = p->v;
    for (int i = 0; i < p->rank; i++) v += index[i] * p->strides[i];
    return *v;
}

/* Every element by its index, straight from the definitions. */
static inline void want_products(setting *s)
{
    const int64_t kind = s->of->kind, axis = s->k[0];
    plain a = plain_x(s, 0), b = s->inputs > 1 ? plain_x(s, 1) : a;
    int64_t shape[TN_MAX_RANK], at[TN_MAX_RANK], ia[TN_MAX_RANK], ib[TN_MAX_RANK], i, depth = 1;
    int rank = 0, k;
    for (k = 0; k < TN_MAX_RANK; k++) shape[k] = 1;
    if (kind == PRODUCT_CONTRACT) {
        for (k = 0; k < a.rank; k++) if (k != axis) shape[rank++] = a.shape[k];
        for (k = 0; k < b.rank; k++) if (k != s->k[1]) shape[rank++] = b.shape[k];
    } else if (kind == PRODUCT_UNFOLD) {
        shape[0] = a.shape[axis];
        for (k = 0; k < a.rank; k++) if (k != axis) shape[1] *= a.shape[k];
        rank = 2;
    } else {
        rank = kind == PRODUCT_FOLD ? (int)s->k[1] : a.rank;
        for (k = 0; k < rank; k++) shape[k] = kind == PRODUCT_FOLD ? s->k[2 + k] : a.shape[k];
        for (k = 0; k < rank && kind < PRODUCT_MODE; k++)
            if (kind == PRODUCT_KRONECKER || k == (kind == PRODUCT_ROWS)) shape[k] *= b.shape[k];
        if (kind == PRODUCT_MODE) shape[axis] = b.shape[0];
    }
    if (kind == PRODUCT_CONTRACT || kind == PRODUCT_MODE) depth = a.shape[axis];
    double *y = case_want(s, rank, shape);
    for (int64_t n = 0; n < s->want_count; n++) {
        for (k = rank, i = n; k-- > 0; i /= shape[k]) at[k] = i % shape[k];
        y[n] = 0;
        for (int64_t c = 0; c < depth; c++) {
            int m = 0;
            for (k = 0; k < a.rank; k++) ia[k] = kind == PRODUCT_CONTRACT ? (k == axis ? c : at[m++]) : at[k];
            for (k = 0; k < b.rank && kind < PRODUCT_UNFOLD; k++) {
                ib[k] = kind == PRODUCT_CONTRACT ? (k == s->k[1] ? c : at[m++]) : at[k] % b.shape[k];
                if (kind != PRODUCT_CONTRACT && kind != PRODUCT_MODE
                    && (kind == PRODUCT_KRONECKER || k == (kind == PRODUCT_ROWS))) ia[k] = at[k] / b.shape[k];
            }
            if (kind == PRODUCT_MODE) { ib[0] = at[axis]; ib[1] = ia[axis] = c; }
            if (kind == PRODUCT_UNFOLD)
                for (k = a.rank, i = at[1]; k-- > 0; ) {
                    ia[k] = k == axis ? at[0] : i % a.shape[k];
                    if (k != axis) i /= a.shape[k];
                }
            if (kind == PRODUCT_FOLD) {
                ia[0] = at[axis];
                for (ia[1] = 0, k = 0; k < rank; k++) if (k != axis) ia[1] = ia[1] * shape[k] + at[k];
            }
            y[n] += plain_index(&a, ia) * (kind < PRODUCT_UNFOLD ? plain_index(&b, ib) : 1);
        }
    }
}
#endif

/* kind 1: the logarithm */
static inline void build_softmax(setting *s)
{
    int64_t shape[TN_MAX_RANK];
    int rank = draw_rank(s, 1, 3);
    draw_shape(s, rank, shape, true);
    case_real(s, rank, shape, CASE_UNIT);
}

static inline tn_tensor *run_softmax(setting *s)
{
    tn_tensor *x = tn_scale(s->ctx, case_x(s, 0), 5);
    return s->of->kind ? tn_log_softmax(s->ctx, x) : tn_softmax(s->ctx, x);
}

static inline void want_softmax(setting *s)
{
    plain x = plain_x(s, 0);
    int64_t c = x.shape[x.rank - 1];
    double *y = case_want(s, x.rank, x.shape);
    for (int64_t i = 0; i < s->want_count; i += c) {
        double sum = 0;
        for (int64_t j = 0; j < c; j++) sum += exp(5 * plain_at(&x, i + j));
        for (int64_t j = 0; j < c; j++)
            y[i + j] = s->of->kind ? 5 * plain_at(&x, i + j) - log(sum) : exp(5 * plain_at(&x, i + j)) / sum;
    }
}

/* k[0]: the axis, k[1]: how many inputs. kind: concat, concat with input 0 once more at the end, or stack. */
enum { JOIN_CONCAT, JOIN_TWICE, JOIN_STACK };

static inline void build_join(setting *s)
{
    const bool stack = s->of->kind == JOIN_STACK;
    int64_t shape[TN_MAX_RANK];
    int rank = s->round == CASE_DEEP ? TN_MAX_RANK - stack : (int)draw(s, stack ? 0 : 1, 3);
    draw_shape(s, rank, shape, true);
    int axis = (int)draw(s, 0, rank - 1 + stack);
    s->k[1] = draw(s, 1, 4);
    for (int k = 0; k < s->k[1]; k++) {
        if (!stack) shape[axis] = s->round == CASE_LARGE ? draw(s, 1, 40) : draw(s, 0, 5);
        case_real(s, rank, shape, CASE_UNIT);
    }
    s->k[0] = draw(s, 0, 1) ? axis : axis - rank - stack;
}

static inline tn_tensor *run_join(setting *s)
{
    tn_tensor *part[5];
    int64_t n = 0;
    for (n = 0; n < s->k[1]; n++) part[n] = case_x(s, (int)n);
    if (s->of->kind == JOIN_TWICE) { part[n] = part[0]; n++; }
    tn_tensor *y = s->of->kind == JOIN_STACK ? tn_stack(s->ctx, n, part, (int)s->k[0]) : tn_concat(s->ctx, n, part, (int)s->k[0]);
    for (n = 0; n < 5; n++) part[n] = NULL;                      /* the array is the caller's */
    return y;
}

static inline void want_join(setting *s)
{
    const bool stack = s->of->kind == JOIN_STACK;
    plain x = plain_x(s, 0);
    int64_t shape[TN_MAX_RANK], outer = 1, inner = 1, at = 0, n = s->k[1] + (s->of->kind == JOIN_TWICE);
    int rank = x.rank + stack, axis = (int)(s->k[0] < 0 ? s->k[0] + rank : s->k[0]), k;
    for (k = 0; k < axis; k++) outer *= shape[k] = x.shape[k];
    for (k = axis + 1; k < rank; k++) inner *= shape[k] = x.shape[k - stack];
    for (shape[axis] = 0, k = 0; k < n; k++) shape[axis] += stack ? 1 : s->in[k % s->k[1]].shape[axis];
    double *y = case_want(s, rank, shape);
    for (k = 0; k < n; k++) {
        plain part = plain_x(s, k % (int)s->k[1]);
        int64_t m = stack ? 1 : part.shape[axis];
        for (int64_t i = 0; i < outer; i++)
            for (int64_t j = 0; j < m * inner; j++) y[(i * shape[axis] + at) * inner + j] = plain_at(&part, i * m * inner + j);
        at += m;
    }
}

/* ---- einsum: sums over all labels at once ------------------------------------------------------------------------------- */

/* kind: the expression. The letters a, b, c, d have the extents k[0..4). */
static inline const char *einsum_of(const setting *s)
{
    static const char *const list[] = {
        "ab,cb->ca", "abd,adc->bac", "aab,bc->c", "dc,ca,cb->dab", "abc,abd,ab->dc", "b,,a->ab", "ab,ab->b", "abc->cb",
        "abc,cd,bd,da->", "ca,cb->cab", "ac,bcd,ad->b"
    };
    return list[s->of->kind];
}

static inline void build_einsum(setting *s)
{
    int64_t shape[TN_MAX_RANK];
    int rank = 0;
    draw_shape(s, 4, s->k, true);
    for (const char *e = einsum_of(s); ; e++) {
        if (*e >= 'a') { shape[rank++] = s->k[*e - 'a']; continue; }
        case_real(s, rank, shape, CASE_UNIT);
        rank = 0;
        if (*e == '-') return;
    }
}

static inline tn_tensor *run_einsum(setting *s)
{
    tn_tensor *t[4];
    for (int k = 0; k < s->inputs; k++) t[k] = case_x(s, k);
    return tn_einsum(s->ctx, einsum_of(s), s->inputs, t);
}

static inline void want_einsum(setting *s)
{
    const char *e = einsum_of(s), *out = strchr(e, '>') + 1;
    plain x[4];
    int64_t shape[TN_MAX_RANK], n = 1, at[4];
    int rank = 0;
    for (int l = 0; l < 4; l++) if (strchr(e, 'a' + l)) n *= s->k[l];
    for (int k = 0; k < s->inputs; k++) x[k] = plain_x(s, k);
    for (; out[rank]; rank++) shape[rank] = s->k[out[rank] - 'a'];
    double *y = case_want(s, rank, shape);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, to = 0;
        double  product = 1;
        const char *p = e;
        for (int l = 3; l >= 0; l--) {
            at[l] = 0;
            if (!strchr(e, 'a' + l)) continue;
            at[l] = rest % s->k[l];
            rest /= s->k[l];
        }
        for (int k = 0; k < s->inputs; k++, p++) {
            int64_t from = 0;
            for (int l = 0; *p >= 'a'; p++, l++) from += at[*p - 'a'] * x[k].strides[l];
            product *= x[k].v[from];
        }
        for (int k = 0; k < rank; k++) to = to * shape[k] + at[out[k] - 'a'];
        y[to] += product;
    }
}

/* k[0]: the axis */
static inline void build_gather(setting *s)
{
    int64_t shape[TN_MAX_RANK], ids[TN_MAX_RANK];
    int rank = (int)draw(s, 1, 4), many = (int)draw(s, 0, 2);
    if (s->round == CASE_DEEP) many = TN_MAX_RANK + 1 - (rank = (int)draw(s, 1, TN_MAX_RANK));
    if (s->round == CASE_LARGE) rank = many = 2;
    draw_shape(s, rank, shape, true);
    draw_shape(s, many, ids, true);
    int axis = (int)draw(s, 0, rank - 1);
    shape[axis] = s->round == CASE_LARGE ? 60 : draw(s, 1, 6);
    case_real(s, rank, shape, CASE_UNIT);
    case_ids(s, many, ids, shape[axis]);
    s->k[0] = draw(s, 0, 1) ? axis : axis - rank;
}

static inline tn_tensor *run_gather(setting *s) { return tn_gather(s->ctx, case_x(s, 0), (int)s->k[0], case_x(s, 1)); }
static inline void want_gather(setting *s)
{
    plain x = plain_x(s, 0), ids = plain_x(s, 1);
    int64_t shape[TN_MAX_RANK], n = plain_count(&ids), inner = 1;
    int axis = (int)(s->k[0] < 0 ? s->k[0] + x.rank : s->k[0]);
    for (int k = 0; k < axis; k++) shape[k] = x.shape[k];
    for (int k = 0; k < ids.rank; k++) shape[axis + k] = ids.shape[k];
    for (int k = axis + 1; k < x.rank; k++) inner *= shape[ids.rank + k - 1] = x.shape[k];
    double *y = case_want(s, x.rank - 1 + ids.rank, shape);
    for (int64_t i = 0; i < s->want_count; i++) {
        int64_t id = (int64_t)plain_at(&ids, i / inner % n), outer = i / inner / n;
        y[i] = plain_at(&x, (outer * x.shape[axis] + id) * inner + i % inner);
    }
}

/* ---- one input on several ways: gradients add up --------------------------------------------------------------------------------------- */

enum { TWICE_SQUARE, TWICE_SUM, TWICE_GRAM, TWICE_NEIGHBOURS, TWICE_FAN, TWICE_VIEWS, TWICE_NORM, TWICE_LAYERNORM };

static inline void build_square(setting *s)
{
    int64_t shape[2];
    draw_shape(s, 2, shape, false);
    if (shape[1] < 2) shape[1] = 2;
    case_real(s, 2, shape, CASE_UNIT);
}

static inline tn_tensor *run_twice(setting *s)
{
    tn_ctx *ctx = s->ctx;
    tn_tensor *x = case_x(s, 0), *h;
    int64_t n = x ? x->shape[0] : 0, m = x ? x->shape[1] : 0;
    switch (s->of->kind) {
    case TWICE_SQUARE:     return tn_mul(ctx, x, x);
    case TWICE_SUM:        return tn_add(ctx, x, x);
    case TWICE_GRAM:       return tn_matmul(ctx, x, tn_transpose(x, 0, 1));
    case TWICE_NEIGHBOURS: return tn_mul(ctx, tn_slice(x, 1, 0, m - 1), tn_slice(x, 1, 1, m));
    case TWICE_FAN:        /* h is read three times, one of them as a view, and so is x */
        h = tn_mul(ctx, x, tn_scale(ctx, x, 3));
        return tn_add(ctx, tn_add(ctx, h, tn_mul(ctx, tn_slice_step(h, 1, m - 1, -1, -1), h)), x);
    case TWICE_VIEWS:      /* a view of a view of a view of something computed */
        h = tn_reshape_2d(tn_scale(ctx, x, 2), m, n);
        h = tn_slice_step(tn_transpose(h, 0, 1), 1, 0, m, 2);
        return tn_mul(ctx, h, h);
    case TWICE_LAYERNORM:  /* gain and bias are the input's own first row */
        h = tn_copy(ctx, x);
        x = tn_reshape(tn_slice(h, 0, 0, 1), 1, &m);
        return tn_layernorm(ctx, h, x, x, 1e-1);
    default:               /* the gain is the input's own first row */
        h = tn_copy(ctx, x);
        return tn_rmsnorm(ctx, h, tn_reshape(tn_slice(h, 0, 0, 1), 1, &m), 1e-2);
    }
}

static inline void want_twice(setting *s)
{
    plain x = plain_x(s, 0);
    int64_t n = x.shape[0], m = x.shape[1];
    double *v = plain_flat(&x);
    int64_t shape[2] = {n, m};
    if (s->of->kind == TWICE_GRAM) shape[1] = n;
    if (s->of->kind == TWICE_NEIGHBOURS) shape[1] = m - 1;
    if (s->of->kind == TWICE_VIEWS) shape[1] = (m + 1) / 2;
    double *y = case_want(s, 2, shape);
    for (int64_t i = 0; i < shape[0]; i++)
        for (int64_t j = 0; j < shape[1]; j++) {
            double a = v[i * m + (j < m ? j : 0)], back = v[i * m + m - 1 - (j < m ? j : 0)], *to = &y[i * shape[1] + j], squares = 0, mean = 0;
            switch (s->of->kind) {
            case TWICE_SQUARE:     *to = a * a; break;
            case TWICE_SUM:        *to = a + a; break;
            case TWICE_GRAM:       for (int64_t k = 0; k < m; k++) *to += v[i * m + k] * v[j * m + k]; break;
            case TWICE_NEIGHBOURS: *to = a * v[i * m + j + 1]; break;
            case TWICE_FAN:        *to = 3 * a * a + 3 * back * back * 3 * a * a + a; break;
            case TWICE_VIEWS:      *to = 4 * v[2 * j * n + i] * v[2 * j * n + i]; break;
            case TWICE_LAYERNORM:
                for (int64_t k = 0; k < m; k++) mean += v[i * m + k] / (double)m;
                for (int64_t k = 0; k < m; k++) squares += pow(v[i * m + k] - mean, 2);
                *to = (a - mean) * v[j] / sqrt(squares / (double)m + 1e-1) + v[j];
                break;
            default:
                for (int64_t k = 0; k < m; k++) squares += v[i * m + k] * v[i * m + k];
                *to = a * v[j] / sqrt(squares / (double)m + 1e-2);
            }
        }
    free(v);
}

/* ---- layers --------------------------------------------------------------------------------------------------------------------------------- */

enum { LAYER_PLAIN, LAYER_BIAS, LAYER_AUGMENTED };

static inline void layer_rows(setting *s, int64_t columns, case_range range)
{
    int64_t shape[TN_MAX_RANK];
    int rank = draw_rank(s, 1, 3);
    draw_shape(s, rank, shape, true);
    shape[rank - 1] = columns;
    case_real(s, rank, shape, range);
}

static inline void build_linear(setting *s)
{
    tn_linear_desc d = ZERO;
    d.in = draw_extent(s, false);
    d.out = draw_extent(s, false);
    d.bias = s->of->kind != LAYER_PLAIN && s->of->kind != LAYER_AUGMENTED;
    d.augmented = s->of->kind == LAYER_AUGMENTED;
    layer_rows(s, d.in + d.augmented, CASE_UNIT);
    int64_t before = tn_params_count(s->params);
    CHECK_STATUS(tn_linear_init(s->params, "linear", &d, &s->linear), TN_OK);
    case_layer(s, before);
}

static inline tn_tensor *run_linear(setting *s) { return tn_linear_forward(s->ctx, &s->linear, case_x(s, 0)); }

/* rows of y [rows,m] with a one behind each */
static inline double *plain_with_ones(const double *y, int64_t rows, int64_t m)
{
    double *z = (double *)malloc(sizeof(double) * (size_t)(rows * (m + 1) + 1));
    for (int64_t r = 0; r < rows; r++) {
        memcpy(z + r * (m + 1), y + r * m, sizeof *y * (size_t)m);
        z[r * (m + 1) + m] = 1;
    }
    return z;
}

static inline void want_linear(setting *s)
{
    plain x = plain_x(s, 0);
    int64_t n = x.shape[x.rank - 1], m = s->linear.desc.out, rows = shape_count(x.rank - 1, x.shape), shape[TN_MAX_RANK];
    double *fx = plain_flat(&x);
    memcpy(shape, x.shape, sizeof shape);
    shape[x.rank - 1] = m + s->linear.desc.augmented;
    double *y = case_want(s, x.rank, shape);
    plain_affine(y, fx, s->in[1].v, s->of->kind == LAYER_BIAS ? s->in[2].v : NULL, rows, n, m);
    if (s->of->kind == LAYER_AUGMENTED) {
        double *z = plain_with_ones(y, rows, m);
        memcpy(y, z, sizeof *y * (size_t)(rows * (m + 1)));
        free(z);
    }
    free(fx);
}

static inline void build_embedding(setting *s)
{
    tn_embedding_desc d = ZERO;
    int64_t shape[2];
    int rank = (int)draw(s, 0, 2);
    d.count = draw_extent(s, false);
    d.dim = draw_extent(s, false);
    CHECK_STATUS(tn_embedding_init(s->params, "embedding", &d, &s->embedding), TN_OK);
    case_layer(s, 0);
    draw_shape(s, rank, shape, true);
    case_ids(s, rank, shape, d.count);
}

static inline tn_tensor *run_embedding(setting *s) { return tn_embedding_forward(s->ctx, &s->embedding, case_x(s, 1)); }

enum { NORM_LAYER = 2 };                 /* + 1: with gain, and bias where there is one */

static inline void build_norm(setting *s)
{
    tn_norm_desc d = ZERO;
    d.dim = draw_extent(s, false);
    d.no_gain = s->of->kind % NORM_LAYER == 0;
    d.kind = s->of->kind >= NORM_LAYER ? TN_NORM_LAYER : TN_NORM_RMS;
    d.bias = d.kind == TN_NORM_LAYER && s->of->kind % NORM_LAYER != 0;
    d.eps = s->of->kind >= NORM_LAYER ? 3e-2 : 0;
    layer_rows(s, d.dim, CASE_AWAY);
    int64_t before = tn_params_count(s->params);
    CHECK_STATUS(tn_norm_init(s->params, "norm", &d, &s->norm), TN_OK);
    case_layer(s, before);
}

static inline tn_tensor *run_norm(setting *s) { return tn_norm_forward(s->ctx, &s->norm, case_x(s, 0)); }
static inline void want_norm(setting *s)
{
    bool all = s->of->kind % NORM_LAYER != 0;
    plain x = plain_x(s, 0), gain = plain_x(s, all ? 1 : 0), bias = plain_x(s, all && s->of->kind > NORM_LAYER ? 2 : 0);
    if (s->of->kind >= NORM_LAYER) plain_layernorm(case_want(s, x.rank, x.shape), &x, all ? &gain : NULL, all ? &bias : NULL, 3e-2);
    else plain_rmsnorm(case_want(s, x.rank, x.shape), &x, all ? &gain : NULL, 1e-5);
}

/* kind: tn_mlp_kind + what else */
enum { MLP_BIAS = 16, MLP_OUT_BIAS = 32, MLP_NO_P = 64, MLP_RESIDUAL = 128, MLP_AUGMENTED = 256 };

static inline void build_mlp(setting *s)
{
    tn_mlp_desc d = ZERO;
    int64_t     most = s->round == CASE_LARGE ? 40 : 9;  /* small: every hidden unit is to be away from its kink */
    d.kind = (tn_mlp_kind)(s->of->kind % 16);
    d.in = draw(s, 1, most);
    d.hidden = draw(s, 1, most);
    d.out = s->of->kind & MLP_NO_P ? 0 : s->of->kind & MLP_RESIDUAL ? d.in : draw(s, 1, most);
    if ((s->of->kind & MLP_NO_P) && (s->of->kind & MLP_RESIDUAL)) d.hidden = d.in;
    d.bias = (s->of->kind & MLP_BIAS) != 0;
    d.out_bias = (s->of->kind & MLP_OUT_BIAS) != 0;
    d.no_projection = (s->of->kind & MLP_NO_P) != 0;
    d.residual = (s->of->kind & MLP_RESIDUAL) != 0;
    d.augmented = (s->of->kind & MLP_AUGMENTED) != 0;
    if (s->round == CASE_LARGE) {
        int64_t shape[2] = {7, d.in + d.augmented};
        case_real(s, 2, shape, CASE_UNIT);
    } else layer_rows(s, d.in + d.augmented, CASE_UNIT);
    int64_t before = tn_params_count(s->params);
    CHECK_STATUS(tn_mlp_init(s->params, "mlp", &d, &s->mlp), TN_OK);
    case_layer(s, before);
}

static inline tn_tensor *run_mlp(setting *s) { return tn_mlp_forward(s->ctx, &s->mlp, case_x(s, 0)); }

/* The bilinear layer by its third-order tensor T[o,i,j] = sum_h P[o,h] W[h,i] V[h,j], the others as their papers write them. */
static inline void want_mlp(setting *s)
{
    static const int64_t act[] = {TN_ACT_NONE, TN_ACT_RELU, TN_ACT_RELU2, TN_ACT_GELU, TN_ACT_SWISH,
                                  TN_ACT_SIGMOID, TN_ACT_RELU, TN_ACT_GELU, TN_ACT_SWISH};
    const tn_mlp_desc *d = &s->mlp.desc;
    plain x = plain_x(s, 0);
    int64_t rows = shape_count(x.rank - 1, x.shape), n = x.shape[x.rank - 1], h = d->hidden, o = d->out, next = 2;
    int64_t shape[TN_MAX_RANK], inner = h + d->augmented;
    bool two = d->kind == TN_MLP_BILINEAR || d->kind >= TN_MLP_GLU;
    const double *w = s->in[1].v, *b = d->bias ? s->in[next++].v : NULL, *p = d->no_projection ? NULL : s->in[next++].v;
    const double *pb = d->out_bias ? s->in[next++].v : NULL;
    double *fx = plain_flat(&x), *left = (double *)malloc(sizeof(double) * (size_t)(rows * h + 1));
    double *right = (double *)malloc(sizeof(double) * (size_t)(rows * h + 1));
    memcpy(shape, x.shape, sizeof shape);
    shape[x.rank - 1] = o + d->augmented;
    double *y = case_want(s, x.rank, shape);
    plain_affine(left, fx, w, b, rows, n, h);
    if (two) plain_affine(right, fx, w + h * n, b ? b + h : NULL, rows, n, h);
    for (int64_t i = 0; i < rows * h; i++) {
        if (plain_act_kinked(act[d->kind]) && fabs(left[i]) < 4e-3) s->kink = true;
        left[i] = plain_act(act[d->kind], left[i]) * (two ? right[i] : 1);
    }
    if (d->augmented && p) {
        double *z = plain_with_ones(left, rows, h);
        free(left);
        left = z;
    } else inner = h;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < o + d->augmented; i++) {
            double *to = &y[r * (o + d->augmented) + i];
            if (i == o) *to = 1;
            else if (!p) *to = left[r * h + i];
            else plain_affine(to, left + r * inner, p + i * inner, pb ? pb + i : NULL, 1, inner, 1);
            if (d->residual && i < o) *to += fx[r * n + i];
        }
    if (d->kind == TN_MLP_BILINEAR && !b && p && !pb && !d->residual && !d->augmented) {
        double *t = (double *)calloc((size_t)(n * n), sizeof(double));
        int64_t k;
        memset(y, 0, sizeof *y * (size_t)s->want_count);
        for (int64_t c = 0; c < o; c++) {
            for (int64_t i = 0; i < n * n; i++) for (t[i] = 0, k = 0; k < h; k++)
                t[i] += p[c * h + k] * w[k * n + i / n] * w[(h + k) * n + i % n];
            for (int64_t r = 0; r < rows; r++)
                for (int64_t i = 0; i < n; i++) for (int64_t j = 0; j < n; j++)
                    y[r * o + c] += t[i * n + j] * fx[r * n + i] * fx[r * n + j];
        }
        free(t);
    }
    free(fx);
    free(left);
    free(right);
}

/* kind: order + what else, as for mlp */
static inline void build_product(setting *s)
{
    tn_mlp_desc d = ZERO;
    int64_t     most = s->round == CASE_LARGE ? 40 : 9;
    d.order = s->of->kind % 16;
    d.in = draw(s, 1, most);
    d.hidden = draw(s, 1, most);
    d.out = s->of->kind & MLP_NO_P ? 0 : draw(s, 1, most);
    d.bias = (s->of->kind & MLP_BIAS) != 0;
    d.out_bias = (s->of->kind & MLP_OUT_BIAS) != 0;
    d.no_projection = (s->of->kind & MLP_NO_P) != 0;
    d.augmented = (s->of->kind & MLP_AUGMENTED) != 0;
    if (s->round == CASE_LARGE) {
        int64_t shape[2] = {7, d.in + d.augmented};
        case_real(s, 2, shape, CASE_UNIT);
    } else layer_rows(s, d.in + d.augmented, CASE_UNIT);
    int64_t before = tn_params_count(s->params);
    CHECK_STATUS(tn_mlp_init(s->params, "product", &d, &s->product), TN_OK);
    case_layer(s, before);
}

static inline tn_tensor *run_product(setting *s) { return tn_mlp_forward(s->ctx, &s->product, case_x(s, 0)); }
static inline void want_product(setting *s)
{
    const tn_mlp_desc *d = &s->product.desc;
    plain x = plain_x(s, 0);
    int64_t rows = shape_count(x.rank - 1, x.shape), n = x.shape[x.rank - 1], h = d->hidden, o = d->out + d->augmented, r, i, j, e, next = 2;
    int64_t shape[TN_MAX_RANK];
    const double *w = s->in[1].v, *b = d->bias ? s->in[next++].v : NULL, *p = d->no_projection ? NULL : s->in[next++].v;
    const double *pb = d->out_bias ? s->in[next++].v : NULL;
    double *fx = plain_flat(&x), *mid = (double *)malloc(sizeof(double) * (size_t)(h + 1));
    memcpy(shape, x.shape, sizeof shape);
    shape[x.rank - 1] = o;
    double *y = case_want(s, x.rank, shape);
    mid[h] = 1;                                      /* the one that goes on */
    for (r = 0; r < rows; r++) {
        for (i = 0; i < h; i++)
            for (mid[i] = 1, e = 0; e < d->order; e++) {
                double sum = b ? b[e * h + i] : 0;
                for (j = 0; j < n; j++) sum += w[(e * h + i) * n + j] * fx[r * n + j];
                mid[i] *= sum;
            }
        for (i = 0; i < o; i++) {
            double *to = &y[r * o + i];
            if (i == d->out) *to = 1;
            else if (!p) *to = mid[i];
            else plain_affine(to, mid, p + i * (h + d->augmented), pb ? pb + i : NULL, 1, h + d->augmented, 1);
        }
    }
    free(fx);
    free(mid);
}

static inline void build_quadratic(setting *s)
{
    tn_quadratic_desc d = ZERO;
    int64_t           most = s->round == CASE_LARGE ? 20 : 7;
    d.in = draw(s, 1, most);
    d.out = draw(s, 1, most);
    d.bias = s->of->kind == LAYER_BIAS;
    d.augmented = s->of->kind == LAYER_AUGMENTED;
    layer_rows(s, d.in + d.augmented, CASE_UNIT);
    int64_t before = tn_params_count(s->params);
    CHECK_STATUS(tn_quadratic_init(s->params, "quadratic", &d, &s->quadratic), TN_OK);
    case_layer(s, before);
}

static inline tn_tensor *run_quadratic(setting *s) { return tn_quadratic_forward(s->ctx, &s->quadratic, case_x(s, 0)); }
static inline void want_quadratic(setting *s)
{
    const tn_quadratic_desc *d = &s->quadratic.desc;
    plain x = plain_x(s, 0);
    int64_t rows = shape_count(x.rank - 1, x.shape), n = x.shape[x.rank - 1], m = n + d->bias, o = d->out + d->augmented;
    int64_t shape[TN_MAX_RANK];
    double *fx = plain_flat(&x);
    memcpy(shape, x.shape, sizeof shape);
    shape[x.rank - 1] = o;
    double *y = case_want(s, x.rank, shape);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < o; c++) {
            if (c == d->out) y[r * o + c] = 1;
            else for (int64_t i = 0; i < m; i++)
                for (int64_t j = 0; j < m; j++)
                    y[r * o + c] += s->in[1].v[(c * m + i) * m + j] * (i < n ? fx[r * n + i] : 1) * (j < n ? fx[r * n + j] : 1);
        }
    free(fx);
}

/* kind: what there is. The penalty is added to each output. */
enum { MODIFIER_RANK = 1, MODIFIER_L2 = 2, MODIFIER_BIAS = 4, MODIFIER_NO_P = 8, MODIFIER_STEP = 16 };

static inline void build_modifier(setting *s)
{
    tn_modifier_desc d = ZERO;
    int64_t          most = s->round == CASE_LARGE && !(s->of->kind & MODIFIER_STEP) ? 40 : 5, shape[TN_MAX_RANK];
    int rank = draw_rank(s, 1, 3);
    d.in = draw(s, 1, most);
    d.hidden = draw(s, 1, most);
    d.rank = s->of->kind & MODIFIER_RANK ? draw(s, 1, 3) : 0;
    d.out = s->of->kind & MODIFIER_NO_P ? 0 : draw(s, 1, most);
    d.step = s->of->kind & MODIFIER_STEP ? 0.25 : 0;
    d.penalty = s->of->kind & MODIFIER_L2 ? TN_PENALTY_L2 : TN_PENALTY_L1;
    d.bias = (s->of->kind & MODIFIER_BIAS) != 0;
    d.no_projection = (s->of->kind & MODIFIER_NO_P) != 0;
    d.out_bias = d.bias && !d.no_projection;
    draw_shape(s, rank, shape, false);                /* nothing has no mean */
    if (s->round == CASE_LARGE) {
        rank = 2;
        shape[0] = 7;
    }
    shape[rank - 1] = d.in;
    case_real(s, rank, shape, CASE_UNIT);
    int64_t before = tn_params_count(s->params);
    CHECK_STATUS(tn_modifier_init(s->params, "modifier", &d, &s->modifier), TN_OK);
    case_layer(s, before);
}

static inline tn_tensor *run_modifier(setting *s)
{
    tn_tensor *penalty, *y = tn_modifier_forward(s->ctx, &s->modifier, case_x(s, 0), &penalty);
    return tn_add(s->ctx, y, penalty);
}

static inline void want_modifier(setting *s)
{
    const tn_modifier_desc *d = &s->modifier.desc;
    plain x = plain_x(s, 0);
    int64_t rows = shape_count(x.rank - 1, x.shape), n = d->in, h = d->hidden, next = 2;
    int64_t shape[TN_MAX_RANK];
    const double *v = s->in[1].v, *c = d->bias ? s->in[next++].v : NULL, *p = d->no_projection ? NULL : s->in[next++].v;
    const double *pb = d->out_bias ? s->in[next++].v : NULL, *a = s->in[next++].v, *b = d->rank ? s->in[next++].v : NULL;
    double *fx = plain_flat(&x), *mid = (double *)malloc(sizeof(double) * (size_t)h), penalty = 0;
    memcpy(shape, x.shape, sizeof shape);
    shape[x.rank - 1] = d->out;
    double *y = case_want(s, x.rank, shape);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < h; i++) {
            double z = 0, default_feature = c ? c[i] : 0;
            for (int64_t j = 0; j < n; j++) {
                double w = d->rank ? 0 : a[i * n + j];
                for (int64_t k = 0; k < d->rank; k++) w += a[i * d->rank + k] * b[k * n + j];
                z += w * fx[r * n + j];
                default_feature += v[i * n + j] * fx[r * n + j];
            }
            penalty += (d->penalty == TN_PENALTY_L2 ? z * z : fabs(z)) / (double)(rows * h);
            if (d->penalty == TN_PENALTY_L1 && fabs(z) < 4e-3) s->kink = true;
            if (d->step > 0) {
                double q = z / d->step, part = q - floor(q);
                if (fabs(part - 0.5) < 1e-4) s->kink = true;
                z = plain_round(q) * d->step;
            }
            mid[i] = (1 + z) * default_feature;
        }
        for (int64_t i = 0; i < d->out; i++) {
            if (p) plain_affine(&y[r * d->out + i], mid, p + i * h, pb ? pb + i : NULL, 1, h, 1);
            else y[r * d->out + i] = mid[i];
        }
    }
    for (int64_t i = 0; i < s->want_count; i++) y[i] += penalty;
    free(fx);
    free(mid);
}

/* kind: the tn_attention_kind, the row scale, and what else. Input 1 may be the values of an earlier layer; the weights come last. */
enum { ATTENTION_ROW = 8 /* times the tn_row_scale */, ATTENTION_BIAS = 64, ATTENTION_NORM = 128, ATTENTION_MIX = 256, ATTENTION_LINEAR = 512,
       ATTENTION_WINDOW = 1024, ATTENTION_BOTH_WAYS = 2048, ATTENTION_STILL = 4096 };

static inline void build_attention(setting *s)
{
    const int64_t kind = s->of->kind;
    const bool    large = s->round == CASE_LARGE;
    tn_attention_desc d = ZERO;
    int64_t       shape[4];
    d.kind = (tn_attention_kind)(kind % 8);
    d.row_scale = (tn_row_scale)(kind / ATTENTION_ROW % 8);
    d.heads = draw(s, 1, 3);
    d.dim = s->round % 2 ? 2 * d.heads * draw(s, 1, 2) : draw(s, 1, large ? 20 : 5);
    d.out = draw(s, 0, 4);
    d.d_qk = s->round % 2 ? 0 : draw(s, kind & ATTENTION_NORM ? 2 : 1, large ? 7 : 4);
    d.d_v = s->round % 2 ? 0 : draw(s, kind & ATTENTION_NORM ? 2 : 1, large ? 7 : 4);
    d.row_length = draw(s, 0, 3);
    d.scale = s->round % 2 ? 0 : 0.5;
    d.rope_base = s->round % 2 ? 0 : 100;
    d.qk_norm_eps = s->round % 2 ? 0 : 1e-3;
    d.depth = draw(s, 0, 3);
    d.bias = d.out_bias = (kind & ATTENTION_BIAS) != 0;
    d.qk_norm = d.head_norm = (kind & ATTENTION_NORM) != 0;
    d.mix_values = (kind & ATTENTION_MIX) != 0;
    d.form = kind & ATTENTION_LINEAR ? TN_ATTEND_FORM_LINEAR : TN_ATTEND_FORM_AUTO;
    d.window = kind & ATTENTION_WINDOW ? draw(s, 1, 4) : 0;
    d.bidirectional = (kind & ATTENTION_BOTH_WAYS) != 0;
    d.no_rope = (kind & ATTENTION_STILL) != 0;
    shape[0] = large ? 1 : draw(s, 1, 2);
    shape[1] = large ? draw(s, 30, 50) : draw(s, 1, 4);
    shape[2] = d.dim;
    case_real(s, 3, shape, CASE_UNIT);
    if (d.mix_values) {
        shape[2] = d.heads;
        shape[3] = d.d_v ? d.d_v : d.dim / d.heads;
        case_real(s, 4, shape, CASE_UNIT);
    }
    int64_t before = tn_params_count(s->params);
    CHECK_STATUS(tn_attention_init(s->params, "attention", &d, &s->attention), TN_OK);
    case_layer(s, before);
}

static inline tn_tensor *run_attention(setting *s)
{
    tn_tensor *values = s->of->kind & ATTENTION_MIX ? case_x(s, 1) : NULL;
    return tn_attention_forward(s->ctx, &s->attention, case_x(s, 0), &values);
}

/* The pattern has no gradient by v and o. */
static inline void build_pattern(setting *s)
{
    const tn_attention *a = &s->attention;
    build_attention(s);
    for (int k = 1; k < s->inputs; k++) {
        const tn_tensor *t = s->in[k].base;
        if (t == a->v || t == a->o || t == a->vb || t == a->ob) s->in[k].real = false;
    }
}

static inline tn_tensor *run_pattern(setting *s) { return tn_attention_pattern(s->ctx, &s->attention, case_x(s, 0)); }

/* The layer's weights, from input `next` on. */
static inline plain_weights case_attention_weights(const setting *s, int next)
{
    const tn_attention_desc *d = &s->attention.desc;
    plain_weights w = ZERO;
    w.qk = s->in[next++].v;
    w.v = s->in[next++].v;
    w.o = s->in[next++].v;
    if (d->bias) { w.qkb = s->in[next++].v; w.vb = s->in[next++].v; }
    if (d->out_bias) w.ob = s->in[next++].v;
    if (d->kind >= TN_ATTENTION_DIFFERENTIAL) w.lambda = s->in[next++].v;
    if (d->mix_values) w.mix = s->in[next++].v;
    return w;
}

static inline void want_attention(setting *s)
{
    const tn_attention_desc *d = &s->attention.desc;
    plain   x = plain_x(s, 0), values;
    double *fx = plain_flat(&x), *fv = NULL;
    if (d->mix_values) { values = plain_x(s, 1); fv = plain_flat(&values); }
    int64_t shape[3] = {x.shape[0], x.shape[1], d->out};
    double *y = case_want(s, 3, shape);
    if (plain_attention_layer(d, case_attention_weights(s, d->mix_values ? 2 : 1), fx, fv, shape[0], shape[1], y) < 0.15) s->kink = true;
    free(fx);
    free(fv);
}

static inline void want_pattern(setting *s)
{
    const tn_attention_desc *d = &s->attention.desc;
    plain   x = plain_x(s, 0);
    double *fx = plain_flat(&x);
    int64_t shape[4] = {x.shape[0], d->heads, x.shape[1], x.shape[1]};
    double *y = case_want(s, 4, shape);
    if (plain_attention_pattern(d, case_attention_weights(s, 1), fx, shape[0], x.shape[1], y) < 0.15) s->kink = true;
    free(fx);
}

/* ---- the list --------------------------------------------------------------------------------------------------------------------------------- */

#define CASE_ACTS(X) X("none", TN_ACT_NONE) X("relu", TN_ACT_RELU) X("relu2", TN_ACT_RELU2) X("gelu", TN_ACT_GELU) \
                     X("swish", TN_ACT_SWISH) X("sigmoid", TN_ACT_SIGMOID) X("exp", TN_ACT_EXP) X("tanh", TN_ACT_TANH)
#define CASE_ACT(name, kind) {"activation " name, kind, 2e-6, true,  build_act, run_act, want_act},
#define CASE_GLU(name, kind) {"glu " name,        kind, 1e-6, true,  build_glu, run_glu, want_glu},

/* Tensor-network attention, with products of matrices from both ends; tests/test_tn_attention.c has all other options. */
enum { TNA_OPEN = 1, TNA_CAUSAL = 2, TNA_SQUARE = 4, TNA_SITES = 8, TNA_MOST = 8 };

static inline void build_tna(setting *s)
{
    tn_tn_attention_desc d = ZERO;
    int64_t              shape[3];
    shape[0] = draw(s, s->round > 0 ? 0 : 1, 3);
    shape[1] = draw(s, 1, 5);
    shape[2] = d.in = draw(s, 1, 3);
    d.bond = s->round == CASE_LARGE ? (int64_t)TNA_MOST : draw(s, 1, 4);
    d.out = draw(s, 1, 3);
    d.boundary = s->of->kind & TNA_OPEN ? TN_BOUNDARY_VECTORS : TN_BOUNDARY_CLOSED;
    d.causal = (s->of->kind & TNA_CAUSAL) != 0;
    d.square = (s->of->kind & TNA_SQUARE) != 0;
    d.sites = s->of->kind & TNA_SITES ? shape[1] : 0;
    case_real(s, 3, shape, CASE_AWAY);
    int64_t before = tn_params_count(s->params);
    CHECK_STATUS(tn_tn_attention_init(s->params, "tna", &d, &s->tna), TN_OK);
    case_layer(s, before);
}

static inline tn_tensor *run_tna(setting *s) { return tn_tn_attention_forward(s->ctx, &s->tna, case_x(s, 0)); }

/* to = a M_j, or M_j a from the right, of the site with features x; one row or column if the boundary is open */
static inline void plain_tna_step(const setting *s, int64_t site, const double *x, bool right, const double *a, double *to)
{
    const tn_tn_attention_desc *d = &s->tna.desc;
    int64_t D = d->bond, rows = s->of->kind & TNA_OPEN ? 1 : D;
    double  m[TNA_MOST * TNA_MOST];
    for (int64_t k = 0; k < D * D; k++) {
        const int64_t first = ((d->sites > 0 ? site * D * D : 0) + k) * d->in;
        m[k] = 0;
        for (int64_t p = 0; p < d->in; p++)
            for (int64_t q = 0; q < (d->square ? d->in : 1); q++)
                m[k] += d->square ? s->in[1].v[(first + p) * d->in + q] * x[p] * x[q] : s->in[1].v[first + p] * x[p];
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < D; j++) {
            double sum = 0;
            for (int64_t k = 0; k < D; k++)
                sum += !right ? a[i * D + k] * m[k * D + j] : rows == 1 ? m[j * D + k] * a[k] : m[i * D + k] * a[k * D + j];
            to[i * D + j] = sum;
        }
}

static inline void want_tna(setting *s)
{
    const tn_tn_attention_desc *d = &s->tna.desc;
    const bool open = (s->of->kind & TNA_OPEN) != 0;
    plain   x = plain_x(s, 0);
    int64_t D = d->bond, n = x.shape[1];
    double *fx = plain_flat(&x), l[TNA_MOST * TNA_MOST], r[TNA_MOST * TNA_MOST], next[TNA_MOST * TNA_MOST];
    int64_t shape[3] = {x.shape[0], n, d->out};
    double *y = case_want(s, 3, shape);
    for (int64_t b = 0; b < x.shape[0]; b++)
        for (int64_t at = 0; at < n; at++) {
            for (int64_t i = 0; i < (open ? D : D * D); i++) {
                l[i] = open ? s->in[3].v[i] : i / D == i % D;
                r[i] = open ? s->in[4].v[i] : i / D == i % D;
            }
            for (int64_t j = 0; j < at; j++) {
                plain_tna_step(s, j, fx + (b * n + j) * d->in, false, l, next);
                memcpy(l, next, sizeof l);
            }
            for (int64_t j = n - 1; j > at && !d->causal; j--) {
                plain_tna_step(s, j, fx + (b * n + j) * d->in, true, r, next);
                memcpy(r, next, sizeof r);
            }
            for (int64_t p = 0; p < D; p++)
                for (int64_t q = 0; q < D; q++) {
                    double weight = 0;
                    if (open) weight = l[p] * r[q];
                    else for (int64_t i = 0; i < D; i++) weight += l[i * D + p] * r[q * D + i];
                    for (int64_t t = 0; t < d->out; t++)
                        for (int64_t k = 0; k < d->in; k++)
                            y[(b * n + at) * d->out + t] += weight * fx[(b * n + at) * d->in + k]
                                * s->in[2].v[(((d->sites > 0 ? at * D : 0) + p) * D + q) * d->out * d->in + t * d->in + k];
                }
        }
    free(fx);
}

#define CASE_ATTEND_(name, kind) {"attend " name, kind, 4e-6, true, build_attend, run_attend, want_attend},
#define CASE_ATTEND(name, kind) \
    CASE_ATTEND_(name,                  kind + ATTEND_ROW * TN_ROW_SCALE_NONE   + ATTEND_QUADRATIC) \
    CASE_ATTEND_(name " causal",        kind + ATTEND_ROW * TN_ROW_SCALE_LENGTH + ATTEND_QUADRATIC + ATTEND_CAUSAL) \
    CASE_ATTEND_(name " window",        kind + ATTEND_ROW * TN_ROW_SCALE_MEAN   + ATTEND_WINDOW) \
    CASE_ATTEND_(name " causal window", kind + ATTEND_ROW * TN_ROW_SCALE_LENGTH + ATTEND_WINDOW + ATTEND_CAUSAL) \
    CASE_ATTEND_(name " self",          kind + ATTEND_ROW * TN_ROW_SCALE_NONE   + ATTEND_SELF + ATTEND_CAUSAL) \
    CASE_ATTEND_(name " linear",        kind + ATTEND_ROW * TN_ROW_SCALE_MEAN   + ATTEND_LINEAR) \
    CASE_ATTEND_(name " linear causal", kind + ATTEND_ROW * TN_ROW_SCALE_LENGTH + ATTEND_LINEAR + ATTEND_CAUSAL) \
    CASE_ATTEND_(name " linear self",   kind + ATTEND_ROW * TN_ROW_SCALE_NONE   + ATTEND_LINEAR + ATTEND_SELF)

#define CASE_ATTENTION(name, kind) {name, kind, 6e-6, true, build_attention, run_attention, want_attention},
#define CASE_PATTERN(name, kind)   {name, kind, 6e-6, true, build_pattern, run_pattern, want_pattern},

static const test_case cases[] = {
    {"copy",            TN_REAL, 0,     true,  build_any,       run_copy,          want_cast},
    {"cast to itself",  TN_REAL, 0,     true,  build_any,       run_cast,          want_cast},
    {"cast to F32",     TN_F32,  0,     false, build_wide,      run_through,       want_cast},
    {"cast to F64",     TN_F64,  0,     false, build_wide,      run_through,       want_cast},
    {"cast to BF16",    TN_BF16, 0,     false, build_wide,      run_cast,          want_cast},
    {"through BF16",    TN_BF16, 0,     false, build_wide,      run_through,       want_cast},
    {"cast to I32",     TN_I32,  0,     false, build_wide,      run_cast,          want_cast},
    {"full",            0,       0,     false, build_any,       run_full,          want_full},
    {"uniform",         0,       1e-6,  false, build_any,       run_uniform,       want_random},
    {"normal",          1,       3e-6,  false, build_any,       run_normal,        want_random},
    {"normal twice",    2,       3e-6,  false, build_any,       run_normals,       want_random},
    {"noise",           0,       1e-6,  true,  build_any,       run_noise,         want_noise},
    {"dropout",         0,       1e-6,  true,  build_any,       run_dropout,       want_dropout},
    {"add",             '+',     1e-6,  true,  build_broadcast, run_add,           want_binary},
    {"sub",             '-',     1e-6,  true,  build_broadcast, run_sub,           want_binary},
    {"mul",             '*',     1e-6,  true,  build_broadcast, run_mul,           want_binary},
    {"scale",           0,       1e-6,  true,  build_any,       run_scale,         want_scale},
    {"sum",             0,       1e-6,  true,  build_any,       run_sum,           want_sum},
    {"mean",            1,       1e-6,  true,  build_some,      run_mean,          want_sum},
    {"sum_axis",        0,       1e-6,  true,  build_sum_axis,  run_sum_axis,      want_sum_axis},
    {"mse",             0,       1e-6,  true,  build_pair,      run_mse,           want_mse},
    CASE_ACTS(CASE_ACT)
    CASE_ACTS(CASE_GLU)
    {"activation abs",   TN_ACT_ABS,   2e-6, true,  build_act, run_act, want_act},
    {"activation round", TN_ACT_ROUND, 0,    false, build_act, run_act, want_act},
    {"glu abs",          TN_ACT_ABS,   1e-6, true,  build_glu, run_glu, want_glu},
    {"glu round",        TN_ACT_ROUND, 1e-6, false, build_glu, run_glu, want_glu},
    {"prod 1",           1,       1e-6,  true,  build_prod,      run_prod,          want_prod},
    {"prod 2",           2,       1e-6,  true,  build_prod,      run_prod,          want_prod},
    {"prod 3",           3,       1e-6,  true,  build_prod,      run_prod,          want_prod},
    {"prod 5",           5,       2e-6,  true,  build_prod,      run_prod,          want_prod},
    {"prod 8",           8,       3e-6,  true,  build_prod,      run_prod,          want_prod},
    {"prod 17",          17,      4e-6,  true,  build_prod,      run_prod,          want_prod},
    {"matmul",          0,       2e-6,  true,  build_matmul,    run_matmul,        want_matmul},
    {"matmul 1 0",      10,      2e-6,  true,  build_matmul,    run_matmul,        want_matmul},
    {"matmul 0 1",      1,       2e-6,  true,  build_matmul,    run_matmul,        want_matmul},
    {"matmul 1 1",      11,      2e-6,  true,  build_matmul,    run_matmul,        want_matmul},
    {"matmul 2 2",      22,      2e-6,  true,  build_matmul,    run_matmul,        want_matmul},
    {"matmul 2 0",      20,      2e-6,  true,  build_matmul,    run_matmul,        want_matmul},
    {"matmul 0 2",      2,       2e-6,  true,  build_matmul,    run_matmul,        want_matmul},
    {"affine",          0,       2e-6,  true,  build_affine,    run_affine,        want_affine},
    {"affine bias",     1,       2e-6,  true,  build_affine,    run_affine,        want_affine},
    {"append_one",      0,       1e-6,  true,  build_rows,      run_append_one,    want_append_one},
    {"embed",           0,       1e-6,  true,  build_embed,     run_embed,         want_embed},
    {"rmsnorm",         0,       2e-6,  true,  build_rmsnorm,   run_rmsnorm,       want_rmsnorm},
    {"rmsnorm gain",    1,       2e-6,  true,  build_rmsnorm,   run_rmsnorm,       want_rmsnorm},
    {"layernorm",       0,       3e-6,  true,  build_layernorm, run_layernorm,     want_layernorm},
    {"layernorm gain",  LAYERNORM_GAIN, 3e-6, true, build_layernorm, run_layernorm, want_layernorm},
    {"layernorm bias",  LAYERNORM_BIAS, 3e-6, true, build_layernorm, run_layernorm, want_layernorm},
    {"layernorm both",  LAYERNORM_GAIN + LAYERNORM_BIAS, 3e-6, true, build_layernorm, run_layernorm, want_layernorm},
    {"chain",           0,       3e-6,  true,  build_chain,     run_chain,         want_chain},
    {"chain's norm",    1,       3e-6,  true,  build_chain,     run_chain,         want_chain},
    {"chain, both",     2,       1e-5,  true,  build_chain,     run_chain,         want_chain},
    {"rope",               0,                      3e-6, true, build_rope,   run_rope,   want_rope},
    {"rope scaled",        ROPE_SCALED,            3e-6, true, build_rope,   run_rope,   want_rope},
    {"rope norm",          ROPE_NORM,              3e-6, true, build_rope,   run_rope,   want_rope},
    {"rope norm only",     ROPE_NORM + ROPE_STILL, 3e-6, true, build_rope,   run_rope,   want_rope},
    {"attend",                    TN_ATTEND_SOFTMAX + ATTEND_ROW * TN_ROW_SCALE_NONE,
                                           3e-6, true, build_attend, run_attend, want_attend},
    {"attend causal",             TN_ATTEND_SOFTMAX + ATTEND_ROW * TN_ROW_SCALE_NONE + ATTEND_CAUSAL + ATTEND_QUADRATIC,
        3e-6, true, build_attend, run_attend, want_attend},
    {"attend window",             TN_ATTEND_SOFTMAX + ATTEND_ROW * TN_ROW_SCALE_LENGTH + ATTEND_WINDOW,
                         3e-6, true, build_attend, run_attend, want_attend},
    {"attend causal window",      TN_ATTEND_SOFTMAX + ATTEND_ROW * TN_ROW_SCALE_MEAN + ATTEND_WINDOW + ATTEND_CAUSAL,
           3e-6, true, build_attend, run_attend, want_attend},
    {"attend self",               TN_ATTEND_SOFTMAX + ATTEND_ROW * TN_ROW_SCALE_NONE + ATTEND_CAUSAL + ATTEND_SELF,
             3e-6, true, build_attend, run_attend, want_attend},
    CASE_ATTEND("squared",        TN_ATTEND_SQUARED)
    CASE_ATTEND("bilinear",       TN_ATTEND_BILINEAR)
    {"attend squared sum",        TN_ATTEND_SQUARED + ATTEND_ROW * TN_ROW_SCALE_SUM + ATTEND_QUADRATIC,
                         4e-6, true, build_attend, run_attend, want_attend},
    {"attend squared sum causal window", TN_ATTEND_SQUARED + ATTEND_ROW * TN_ROW_SCALE_SUM + ATTEND_CAUSAL + ATTEND_WINDOW,
     4e-6, true, build_attend, run_attend, want_attend},
    {"attend squared sum linear", TN_ATTEND_SQUARED + ATTEND_ROW * TN_ROW_SCALE_SUM + ATTEND_LINEAR,
                            4e-6, true, build_attend, run_attend, want_attend},
    {"attend squared sum linear causal", TN_ATTEND_SQUARED + ATTEND_ROW * TN_ROW_SCALE_SUM + ATTEND_LINEAR + ATTEND_CAUSAL,
     4e-6, true, build_attend, run_attend, want_attend},
    {"cross_entropy",   0,       2e-6,  true,  build_logits,    run_cross_entropy, want_cross_entropy},
    {"argmax",          0,       0,     false, build_logits,    run_argmax,        want_argmax},
    {"accuracy",        0,       1e-6,  false, build_logits,    run_accuracy,      want_accuracy},
    {"x * x",           TWICE_SQUARE,     1e-6, true, build_square, run_twice,     want_twice},
    {"x + x",           TWICE_SUM,        1e-6, true, build_square, run_twice,     want_twice},
    {"x x^T",           TWICE_GRAM,       2e-6, true, build_square, run_twice,     want_twice},
    {"x[:-1] * x[1:]",  TWICE_NEIGHBOURS, 1e-6, true, build_square, run_twice,     want_twice},
    {"fan-out",         TWICE_FAN,        2e-6, true, build_square, run_twice,     want_twice},
    {"views of views",  TWICE_VIEWS,      1e-6, true, build_square, run_twice,     want_twice},
    {"gain from x",     TWICE_NORM,       3e-6, true, build_square, run_twice,     want_twice},
    {"gain, bias from x", TWICE_LAYERNORM, 3e-6, true, build_square, run_twice,    want_twice},

    {"linear",           LAYER_PLAIN,     2e-6, true, build_linear,    run_linear,    want_linear},
    {"linear bias",      LAYER_BIAS,      2e-6, true, build_linear,    run_linear,    want_linear},
    {"linear augmented", LAYER_AUGMENTED, 2e-6, true, build_linear,    run_linear,    want_linear},
    {"embedding",        0,               1e-6, true, build_embedding, run_embedding, want_embed},
    {"norm",             0,               2e-6, true, build_norm,      run_norm,      want_norm},
    {"norm gain",        1,               2e-6, true, build_norm,      run_norm,      want_norm},
    {"norm layer",       NORM_LAYER,      3e-6, true, build_norm,      run_norm,      want_norm},
    {"norm layer gain, bias", NORM_LAYER + 1, 3e-6, true, build_norm,  run_norm,      want_norm},
    {"mlp bilinear",     TN_MLP_BILINEAR, 3e-6, true, build_mlp, run_mlp, want_mlp},
    {"mlp relu",         TN_MLP_RELU,     3e-6, true, build_mlp, run_mlp, want_mlp},
    {"mlp relu2",        TN_MLP_RELU2,    3e-6, true, build_mlp, run_mlp, want_mlp},
    {"mlp gelu",         TN_MLP_GELU,     3e-6, true, build_mlp, run_mlp, want_mlp},
    {"mlp swish",        TN_MLP_SWISH,    3e-6, true, build_mlp, run_mlp, want_mlp},
    {"mlp glu",          TN_MLP_GLU,      3e-6, true, build_mlp, run_mlp, want_mlp},
    {"mlp reglu",        TN_MLP_REGLU,    3e-6, true, build_mlp, run_mlp, want_mlp},
    {"mlp geglu",        TN_MLP_GEGLU,    3e-6, true, build_mlp, run_mlp, want_mlp},
    {"mlp swiglu",       TN_MLP_SWIGLU,   3e-6, true, build_mlp, run_mlp, want_mlp},
    {"mlp biases",       TN_MLP_BILINEAR + MLP_BIAS + MLP_OUT_BIAS,               3e-6, true, build_mlp, run_mlp, want_mlp},
    {"mlp relu biases",  TN_MLP_RELU + MLP_BIAS + MLP_OUT_BIAS,                   3e-6, true, build_mlp, run_mlp, want_mlp},
    {"mlp residual",     TN_MLP_BILINEAR + MLP_RESIDUAL,                          3e-6, true, build_mlp, run_mlp, want_mlp},
    {"mlp no P",         TN_MLP_BILINEAR + MLP_NO_P + MLP_BIAS,                   3e-6, true, build_mlp, run_mlp, want_mlp},
    {"mlp no P, relu",   TN_MLP_RELU + MLP_NO_P,                                  3e-6, true, build_mlp, run_mlp, want_mlp},
    {"mlp no P, residual", TN_MLP_SWIGLU + MLP_NO_P + MLP_RESIDUAL + MLP_BIAS,    3e-6, true, build_mlp, run_mlp, want_mlp},
    {"mlp augmented",    TN_MLP_BILINEAR + MLP_AUGMENTED,                         3e-6, true, build_mlp, run_mlp, want_mlp},
    {"mlp augmented, relu", TN_MLP_RELU + MLP_AUGMENTED,                          3e-6, true, build_mlp, run_mlp, want_mlp},
    {"mlp augmented, residual", TN_MLP_BILINEAR + MLP_AUGMENTED + MLP_RESIDUAL,   3e-6, true, build_mlp, run_mlp, want_mlp},
    {"mlp augmented, no P", TN_MLP_BILINEAR + MLP_AUGMENTED + MLP_NO_P,           3e-6, true, build_mlp, run_mlp, want_mlp},
    {"product 1",        1,               3e-6, true, build_product, run_product, want_product},
    {"product 2",        2,               3e-6, true, build_product, run_product, want_product},
    {"product 3",        3,               3e-6, true, build_product, run_product, want_product},
    {"product 5",        5,               4e-6, true, build_product, run_product, want_product},
    {"product 8",        8,               6e-6, true, build_product, run_product, want_product},
    {"product 1 biases", 1 + MLP_BIAS + MLP_OUT_BIAS, 3e-6, true, build_product, run_product, want_product},
    {"product 3 biases", 3 + MLP_BIAS + MLP_OUT_BIAS, 3e-6, true, build_product, run_product, want_product},
    {"product 3 no P",   3 + MLP_BIAS + MLP_NO_P,     3e-6, true, build_product, run_product, want_product},
    {"product 3 augmented", 3 + MLP_AUGMENTED,        3e-6, true, build_product, run_product, want_product},
    {"product 5 augmented, no P", 5 + MLP_AUGMENTED + MLP_NO_P, 4e-6, true, build_product, run_product, want_product},
    {"quadratic",           LAYER_PLAIN,     3e-6, true, build_quadratic, run_quadratic, want_quadratic},
    {"quadratic bias",      LAYER_BIAS,      3e-6, true, build_quadratic, run_quadratic, want_quadratic},
    {"quadratic augmented", LAYER_AUGMENTED, 3e-6, true, build_quadratic, run_quadratic, want_quadratic},
    {"modifier",            0,                                             3e-6, true,  build_modifier, run_modifier, want_modifier},
    {"modifier L2, biases", MODIFIER_L2 + MODIFIER_BIAS,                   3e-6, true,  build_modifier, run_modifier, want_modifier},
    {"modifier rank",       MODIFIER_RANK + MODIFIER_BIAS,                 3e-6, true,  build_modifier, run_modifier, want_modifier},
    {"modifier rank, no P", MODIFIER_RANK + MODIFIER_L2 + MODIFIER_NO_P,   3e-6, true,  build_modifier, run_modifier, want_modifier},
    {"modifier rounded",    MODIFIER_STEP + MODIFIER_RANK,                 3e-6, false, build_modifier, run_modifier, want_modifier},
    {"modifier rounded, L2", MODIFIER_STEP + MODIFIER_L2,                  3e-6, false, build_modifier, run_modifier, want_modifier},
    CASE_ATTENTION("attention",              TN_ATTENTION_SOFTMAX)
    CASE_ATTENTION("attention biases",       TN_ATTENTION_SOFTMAX + ATTENTION_BIAS + ATTENTION_BOTH_WAYS)
    CASE_ATTENTION("attention norms",        TN_ATTENTION_SOFTMAX + ATTENTION_NORM)
    CASE_ATTENTION("attention window",       TN_ATTENTION_SOFTMAX + ATTENTION_WINDOW + ATTENTION_MIX)
    CASE_ATTENTION("attention squared",      TN_ATTENTION_SQUARED + ATTENTION_BIAS)
    CASE_ATTENTION("attention squared mean",
                   TN_ATTENTION_SQUARED + ATTENTION_LINEAR + ATTENTION_STILL + ATTENTION_ROW * TN_ROW_SCALE_MEAN)
    CASE_ATTENTION("attention squared norms", TN_ATTENTION_SQUARED + ATTENTION_NORM)
    CASE_ATTENTION("attention bilinear",     TN_ATTENTION_BILINEAR + ATTENTION_BIAS + ATTENTION_MIX)
    CASE_ATTENTION("attention bilinear linear",
                   TN_ATTENTION_BILINEAR + ATTENTION_LINEAR + ATTENTION_BIAS + ATTENTION_ROW * TN_ROW_SCALE_NONE)
    CASE_ATTENTION("attention bilinear both ways", TN_ATTENTION_BILINEAR + ATTENTION_BOTH_WAYS + ATTENTION_STILL)
    CASE_ATTENTION("attention bilinear window", TN_ATTENTION_BILINEAR + ATTENTION_WINDOW + ATTENTION_NORM)
    CASE_ATTENTION("attention differential", TN_ATTENTION_DIFFERENTIAL)
    CASE_ATTENTION("attention differential, all", TN_ATTENTION_DIFFERENTIAL + ATTENTION_BIAS + ATTENTION_MIX + ATTENTION_WINDOW)
    CASE_ATTENTION("attention differential, plain", TN_ATTENTION_DIFFERENTIAL_PLAIN + ATTENTION_BIAS)

    {"div",              '/',             1e-6, true, build_broadcast, run_div,       want_binary},
    {"sqrt",             TN_ACT_SQRT,     1e-6, true, build_act,       run_positive,  want_positive},
    {"log",              TN_ACT_LOG,      1e-6, true, build_act,       run_positive,  want_positive},
    {"exp",              TN_ACT_EXP,      2e-6, true, build_act,       run_positive,  want_positive},
    {"glu sqrt",         TN_ACT_SQRT,     1e-6, true, build_glu,       run_positive_glu, want_positive_glu},
    {"glu log",          TN_ACT_LOG,      1e-6, true, build_glu,       run_positive_glu, want_positive_glu},
    {"where",            0,               1e-6, true, build_where,     run_where,     want_where},
    {"softmax",          0,               1e-6, true, build_softmax,   run_softmax,   want_softmax},
    {"log_softmax",      1,               2e-6, true, build_softmax,   run_softmax,   want_softmax},
    {"concat",           JOIN_CONCAT,     0,    true, build_join,      run_join,      want_join},
    {"concat twice",     JOIN_TWICE,      1e-6, true, build_join,      run_join,      want_join},
    {"stack",            JOIN_STACK,      0,    true, build_join,      run_join,      want_join},
    {"gather",           0,               1e-6, true, build_gather,    run_gather,    want_gather},
#ifndef TN_NO_CONTRACTION
    {"tensordot",        PRODUCT_CONTRACT, 1e-6, true, build_products, run_products,  want_products},
    {"khatri_rao",       PRODUCT_RAO,     1e-6, true, build_products,  run_products,  want_products},
    {"khatri_rao_rows",  PRODUCT_ROWS,    1e-6, true, build_products,  run_products,  want_products},
    {"kronecker",        PRODUCT_KRONECKER, 1e-6, true, build_products, run_products, want_products},
    {"mode_product",     PRODUCT_MODE,    1e-6, true, build_products,  run_products,  want_products},
    {"unfold",           PRODUCT_UNFOLD,  0,    true, build_products,  run_products,  want_products},
    {"fold",             PRODUCT_FOLD,    0,    true, build_products,  run_products,  want_products},
#endif
    {"einsum ab,cb->ca",          0, 3e-6, true, build_einsum, run_einsum, want_einsum},
    {"einsum abd,adc->bac",       1, 3e-6, true, build_einsum, run_einsum, want_einsum},
    {"einsum aab,bc->c",          2, 3e-6, true, build_einsum, run_einsum, want_einsum},
    {"einsum dc,ca,cb->dab",      3, 3e-6, true, build_einsum, run_einsum, want_einsum},
    {"einsum abc,abd,ab->dc",     4, 3e-6, true, build_einsum, run_einsum, want_einsum},
    {"einsum b,,a->ab",           5, 3e-6, true, build_einsum, run_einsum, want_einsum},
    {"einsum ab,ab->b",           6, 3e-6, true, build_einsum, run_einsum, want_einsum},
    {"einsum abc->cb",            7, 3e-6, true, build_einsum, run_einsum, want_einsum},
    {"einsum abc,cd,bd,da->",     8, 3e-6, true, build_einsum, run_einsum, want_einsum},
    {"einsum ca,cb->cab",         9, 3e-6, true, build_einsum, run_einsum, want_einsum},
    {"einsum ac,bcd,ad->b",       10, 3e-6, true, build_einsum, run_einsum, want_einsum},

    CASE_PATTERN("attention pattern",              TN_ATTENTION_SOFTMAX + ATTENTION_BIAS)
    CASE_PATTERN("attention pattern squared",      TN_ATTENTION_SQUARED + ATTENTION_WINDOW + ATTENTION_BOTH_WAYS)
    CASE_PATTERN("attention pattern bilinear",     TN_ATTENTION_BILINEAR + ATTENTION_LINEAR)
    CASE_PATTERN("attention pattern differential", TN_ATTENTION_DIFFERENTIAL + ATTENTION_NORM)

    {"scan",            0,       3e-6,  true,  build_scan,      run_scan,          want_scan},
    {"scan's logs",     SCAN_LOGS, 3e-6, true, build_scan,      run_scan,          want_scan},
    {"scan reverse",    SCAN_BOTH + SCAN_REVERSE, 1e-5, true, build_scan, run_scan, want_scan},
    {"scan_vector",     SCAN_VECTOR, 3e-6, true, build_scan,    run_scan,          want_scan},
    {"scan_vector reverse", SCAN_VECTOR + SCAN_BOTH + SCAN_REVERSE, 1e-5, true, build_scan, run_scan, want_scan},
    {"scan_states",     SCAN_STATES + SCAN_BOTH, 1e-5, true, build_scan, run_scan, want_scan},
    {"scan_states' logs", SCAN_STATES + SCAN_LOGS + SCAN_REVERSE, 3e-6, true, build_scan, run_scan, want_scan},
    {"scan_states reverse", SCAN_STATES + SCAN_REVERSE, 3e-6, true, build_scan, run_scan, want_scan},
    {"scan_states uniform", SCAN_STATES + SCAN_UNIFORM, 3e-6, true, build_scan, run_scan, want_scan},
    {"scan_states uniform reverse", SCAN_STATES + SCAN_UNIFORM + SCAN_BOTH + SCAN_REVERSE, 1e-5, true, build_scan, run_scan, want_scan},

    {"tn_attention",         0,                         1e-5, true, build_tna, run_tna, want_tna},
    {"tn_attention open",    TNA_OPEN,                  1e-5, true, build_tna, run_tna, want_tna},
    {"tn_attention causal",  TNA_OPEN + TNA_CAUSAL + TNA_SQUARE, 1e-5, true, build_tna, run_tna, want_tna},
    {"tn_attention sites",   TNA_SITES + TNA_SQUARE,    1e-5, true, build_tna, run_tna, want_tna},
    {"tn_attention open sites", TNA_OPEN + TNA_SITES,   1e-5, true, build_tna, run_tna, want_tna},
    {"residual",        0,       2e-6,  true,  build_residual,  run_residual,      want_residual},
    {"residual gain",   1,       2e-6,  true,  build_residual,  run_residual,      want_residual},
    {"attend joint",              TN_ATTEND_SOFTMAX + ATTEND_ROW * TN_ROW_SCALE_NONE + ATTEND_CAUSAL + ATTEND_JOINT,
             3e-6, true, build_attend, run_attend, want_attend},
    {"attend joint bilinear",     TN_ATTEND_BILINEAR + ATTEND_ROW * TN_ROW_SCALE_LENGTH + ATTEND_QUADRATIC + ATTEND_CAUSAL + ATTEND_JOINT,
             4e-6, true, build_attend, run_attend, want_attend},
    {"attend joint linear",       TN_ATTEND_SQUARED + ATTEND_ROW * TN_ROW_SCALE_LENGTH + ATTEND_LINEAR + ATTEND_CAUSAL + ATTEND_JOINT,
             4e-6, true, build_attend, run_attend, want_attend}
};
enum { CASES = sizeof cases / sizeof *cases };

#endif
