#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "layers/inner.h"

/* ======================================================================
   >>layers-impl  named parameters, and layers that are structs of them
   A layer's init makes its parameters, all or none, and its forward function calls ops: gradients come from
   these. Parameters are found by name. An optimiser keeps pointers to them and is notified when they are destroyed.
   ====================================================================== */

/* ---- named parameters --------------------------------------------------- >>layer-params-impl */

#define TNI_LAYERS_HEAD ((sizeof(tni_layers) + TNI_ALIGN - 1) / TNI_ALIGN * TNI_ALIGN)

static const char *tni_alias_name(const tni_alias *a) { return (const char *)(a + 1); }
static void       *tni_layers_data(tni_layers *l)     { return (char *)l + TNI_LAYERS_HEAD; }

/* Removes the names that were tied since `before`. */
TNI_COLD_FN void tni_aliases_drop(tn_params *ps, const tni_alias *before)
{
    while (ps->aliases != before) {
        tni_alias *a = ps->aliases;
        ps->aliases = a->next;
        tni_free(ps->owned.ctx, a, sizeof *a + strlen(tni_alias_name(a)) + 1);
    }
}

/* Removes the newest array of layers. */
TNI_COLD_FN void tni_layers_drop(tn_params *ps)
{
    tni_layers *l = ps->layers;
    ps->layers = l->next;
    tni_free(ps->owned.ctx, l, TNI_LAYERS_HEAD + l->bytes);
}

static void tni_param_free(tn_ctx *ctx, tn_param *p)
{
    size_t bytes = sizeof *p + strlen(p->name) + 1;
    tn_tensor_destroy(p->value);
    tni_free(ctx, p, bytes);
}

static void tni_params_destroy(tni_owned *o)
{
    tn_params *ps = (tn_params *)(void *)o;
    tn_ctx    *ctx = o->ctx;
    for (; ps->watchers; ps->watchers = ps->watchers->next) ps->watchers->params = NULL;
    for (int64_t i = 0; i < ps->count; i++) tni_param_free(ctx, ps->item[i]);
    tni_aliases_drop(ps, NULL);
    while (ps->layers) tni_layers_drop(ps);
    tni_free(ctx, ps->item, sizeof *ps->item * (size_t)ps->max);
    tni_object_free(o, sizeof *ps);
}

TNI_UNUSED TNI_COLD_FN void tni_params_watch(tn_params *ps, tni_watcher *w)
{
    w->params = ps;
    w->next = ps->watchers;
    ps->watchers = w;
}

TNI_UNUSED TNI_COLD_FN void tni_params_unwatch(tni_watcher *w)
{
    tni_watcher **link;
    if (!w->params) return;
    for (link = &w->params->watchers; *link != w; link = &(*link)->next) {}
    *link = w->next;
}

tn_params *tn_params_create(tn_ctx *ctx)
{
    return ctx ? (tn_params *)tni_object(ctx, sizeof(tn_params), "params", tni_params_destroy) : NULL;
}

void      tn_params_destroy(tn_params *ps)     { if (ps) tni_params_destroy(&ps->owned); }
tn_ctx   *tn_params_ctx(const tn_params *ps)   { return ps ? ps->owned.ctx : NULL; }
int64_t   tn_params_count(const tn_params *ps) { return ps ? ps->count : 0; }
tn_param *tn_params_at(tn_params *ps, int64_t i) { return ps && i >= 0 && i < ps->count ? ps->item[i] : NULL; }

int64_t tn_params_elements(const tn_params *ps)
{
    int64_t n = 0;
    for (int64_t i = 0; ps && i < ps->count; i++) n += tn_tensor_count(ps->item[i]->value);
    return n;
}

static const tni_alias *tni_alias_find(const tn_params *ps, const char *name)
{
    const tni_alias *a = ps ? ps->aliases : NULL;
    while (a && strcmp(tni_alias_name(a), name) != 0) a = a->next;
    return a;
}

tn_param *tn_params_find(tn_params *ps, const char *name)
{
    tn_param *p = NULL;
    if (!ps || !name || !TNI_ENTER(ps->owned.ctx, "params_find")) return NULL;
    for (int64_t i = 0; i < ps->count && !p; i++)
        if (strcmp(ps->item[i]->name, name) == 0) p = ps->item[i];
    const tni_alias *a = p ? NULL : tni_alias_find(ps, name);
    TNI_LEAVE(ps->owned.ctx);
    return a ? a->param : p;
}

/* Fills t by its rule. A fan that the layer does not give is one of the last two extents. */
static tn_status tni_init_fill(tn_tensor *t, tn_init init)
{
    double  n = (double)(init.fan_in > 0 ? init.fan_in : t->rank > 0 ? t->shape[t->rank - 1] : 1);
    double  m = (double)(init.fan_out > 0 ? init.fan_out : t->rank > 1 ? t->shape[t->rank - 2] : 1);
    double  scale = 0;
    bool    uniform = init.rule == TN_INIT_UNIFORM || init.rule == TN_INIT_GLOROT;
    tn_call c = tni_call(uniform ? TN_KERNEL_UNIFORM : TN_KERNEL_NORMAL, ":t", t);
    switch (init.rule) {
    case TN_INIT_ZERO:    return tni_fill(t, 0);
    case TN_INIT_ONE:     return tni_fill(t, 1);
    case TN_INIT_NORMAL:
    case TN_INIT_UNIFORM: scale = 1 / sqrt(n); break;
    case TN_INIT_GLOROT:  scale = sqrt(6 / (n + m)); break;
    case TN_INIT_HE:      scale = sqrt(2 / n); break;
    default: return tni_fail(t->ctx, TN_ERR_ARG, "init: rule is %d, not a valid tn_init_rule", (int)init.rule);
    }
    if (init.std > 0) scale = init.std;
    c.out[0] = tni_flat_view(t);
    c.f[0] = uniform ? -scale : 0;
    c.f[1] = scale;
    tni_random_call(t->ctx, &c, 0);
    return tni_run(t->ctx, &c);
}

static bool tni_params_grow(tn_params *ps)
{
    int64_t max = ps->max > 0 ? 2 * ps->max : 16;
    if (ps->count < ps->max) return true;
    tn_param **item = (tn_param **)tni_array(ps->owned.ctx, max, sizeof *item, "params");
    if (!item) return false;
    if (ps->count > 0) memcpy(item, ps->item, sizeof *item * (size_t)ps->count);
    tni_free(ps->owned.ctx, ps->item, sizeof *item * (size_t)ps->max);
    ps->item = item;
    ps->max = max;
    return true;
}

tn_param *tn_params_add(tn_params *ps, const char *name, int rank, const int64_t *shape, tn_init init)
{
    tn_ctx *ctx = tn_params_ctx(ps);
    if (!ctx) return NULL;
    if (!name || !name[0])
        return tni_fail(ctx, TN_ERR_ARG, "params: the name of a parameter is %s, expected a name",
                        name ? "empty" : "NULL"), (tn_param *)NULL;
    if (tn_params_find(ps, name))
        return tni_fail(ctx, TN_ERR_ARG, "params: the parameter %s exists already, expected a new name",
                        name), (tn_param *)NULL;
    if (!tni_params_grow(ps)) return NULL;
    size_t    length = strlen(name) + 1;
    tn_param *p = (tn_param *)tni_alloc(ctx, sizeof *p + length, "parameter");
    if (!p) return NULL;
    memset(p, 0, sizeof *p);
    memcpy(p + 1, name, length);
    p->name = (const char *)(p + 1);
    p->lr_scale = p->decay_scale = 1;
    p->value = tn_tensor_create(ctx, TN_REAL, rank, shape);
    if (init.rule == TN_INIT_DEFAULT) init.rule = TN_INIT_ZERO;
    if (!p->value || tni_init_fill(p->value, init) != TN_OK) return tni_param_free(ctx, p), (tn_param *)NULL;
    p->value->flags |= TNI_PARAM | TNI_WANTS_GRAD;
    ps->item[ps->count++] = p;
    return p;
}

tn_status tn_params_zero_grad(tn_params *ps)
{
    tn_status s = ps ? TN_OK : TN_ERR_ARG;
    for (int64_t i = 0; ps && i < ps->count && s == TN_OK; i++)
        if (ps->item[i]->value->grad && (s = tni_fill(ps->item[i]->value->grad, 0)) == TN_OK)
            ps->item[i]->value->grad->flags |= TNI_ZEROED;
    return s;
}

/* Whether the name matches the pattern. At a mismatch the latest star matches one character more. */
static bool tni_name_fits(const char *name, const char *pattern)
{
    const char *star = NULL, *from = name;
    if (!strchr(pattern, '*')) return strncmp(name, pattern, strlen(pattern)) == 0;
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            from = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++from;
        } else return false;
    }
    while (*pattern == '*') pattern++;
    return *pattern == 0;
}

static int64_t tni_params_mark(tn_params *ps, const char *pattern, bool frozen)
{
    int64_t n = 0;
    if (!ps || !pattern || !TNI_ENTER(ps->owned.ctx, frozen ? "params_freeze" : "params_thaw")) return 0;
    for (int64_t i = 0; i < ps->count; i++) {
        tn_param *p = ps->item[i];
        if (!tni_name_fits(p->name, pattern)) continue;
        p->frozen = frozen;
        p->value->flags |= TNI_WANTS_GRAD;
        if (frozen) {
            p->value->flags &= ~(uint32_t)TNI_WANTS_GRAD;
            tn_tensor_destroy(p->value->grad);
            p->value->grad = NULL;
        }
        n++;
    }
    TNI_LEAVE(ps->owned.ctx);
    return n;
}

int64_t tn_params_freeze(tn_params *ps, const char *pattern) { return tni_params_mark(ps, pattern, true); }
int64_t tn_params_thaw(tn_params *ps, const char *pattern)   { return tni_params_mark(ps, pattern, false); }

int64_t tn_params_set_scales(tn_params *ps, const char *pattern, double lr_scale, double decay_scale)
{
    int64_t n = 0;
    for (int64_t i = 0; ps && pattern && i < ps->count; i++) {
        if (!tni_name_fits(ps->item[i]->name, pattern)) continue;
        ps->item[i]->lr_scale = lr_scale;
        ps->item[i]->decay_scale = decay_scale;
        n++;
    }
    return n;
}

int64_t tn_params_use_adamw(tn_params *ps, const char *pattern)
{
    int64_t n = 0;
    for (int64_t i = 0; ps && pattern && i < ps->count; i++) {
        if (!tni_name_fits(ps->item[i]->name, pattern)) continue;
        ps->item[i]->adamw = true;
        n++;
    }
    return n;
}

tn_status tn_params_tie(tn_params *ps, const char *name, const char *of)
{
    tn_ctx   *ctx = tn_params_ctx(ps);
    tn_param *p = tn_params_find(ps, of);
    if (!ctx) return TN_ERR_ARG;
    if (!name || !name[0])
        return tni_fail(ctx, TN_ERR_ARG, "params: the name of a parameter is %s, expected a name", name ? "empty" : "NULL");
    if (!p)
        return tni_fail(ctx, TN_ERR_ARG, "params: %s is tied to %s, which is not a parameter", name, of ? of : "NULL");
    if (tn_params_find(ps, name))
        return tni_fail(ctx, TN_ERR_ARG, "params: the parameter %s exists already, expected a new name", name);
    size_t     length = strlen(name) + 1;
    tni_alias *a = (tni_alias *)tni_alloc(ctx, sizeof *a + length, "parameter");
    if (!a) return TN_ERR_MEMORY;
    memcpy(a + 1, name, length);
    a->param = p;
    a->next = ps->aliases;
    ps->aliases = a;
    return TN_OK;
}

/* Copies the numbers of a tensor to one of the same shape in another context. */
static tn_status tni_copy_across(tn_tensor *to, const tn_tensor *from)
{
    int64_t     n = tn_tensor_count(from);
    tni_scratch w = tni_scratch_begin(to->ctx, "clone");
    if (to->ctx == from->ctx) return tni_copy(to, from);
    double *v = tni_take_f64(&w, n, 1);
    if (!v) return TN_ERR_MEMORY;
    tn_status s = tn_read(from, TN_F64, v, n);
    s = s == TN_OK ? tn_write(to, TN_F64, v, n)
                   : tni_fail(to->ctx, s, "clone: a parameter cannot be read: %s", tn_ctx_error(from->ctx));
    return tni_scratch_end(&w, s);
}

static bool tni_clone_param(tn_params *to, const tn_param *from)
{
    tn_init zero = TNI_ZERO;
    tn_param *p = tn_params_add(to, from->name, from->value->rank, from->value->shape, zero);
    if (!p || tni_copy_across(p->value, from->value) != TN_OK) return false;
    p->lr_scale = from->lr_scale;
    p->decay_scale = from->decay_scale;
    p->adamw = from->adamw;
    p->frozen = from->frozen;
    if (p->frozen) p->value->flags &= ~(uint32_t)TNI_WANTS_GRAD;
    return true;
}

TNI_COLD tn_params *tn_params_clone(tn_ctx *ctx, const tn_params *ps)
{
    if (!ps) tni_fail(ctx, TN_ERR_ARG, "clone: params is NULL");
    tn_params *to = ctx && ps ? tn_params_create(ctx) : NULL;
    if (!to) return NULL;
    bool whole = true;
    for (int64_t i = 0; i < ps->count && whole; i++) whole = tni_clone_param(to, ps->item[i]);
    for (const tni_alias *a = ps->aliases; a && whole; a = a->next)
        whole = tn_params_tie(to, tni_alias_name(a), a->param->name) == TN_OK;
    if (whole) return to;
    return tn_params_destroy(to), (tn_params *)NULL;
}

/* Zeroed memory for a model's array of layers. */
TNI_COLD_FN void *tni_layers_add(tn_params *ps, size_t bytes)
{
    tni_layers *l = (tni_layers *)tni_alloc(ps->owned.ctx, TNI_LAYERS_HEAD + bytes, "layers");
    if (!l) return NULL;
    memset(l, 0, TNI_LAYERS_HEAD + bytes);
    l->bytes = bytes;
    l->next = ps->layers;
    ps->layers = l;
    return tni_layers_data(l);
}

static tni_layers *tni_layers_at(const tn_params *ps, const void *data)
{
    tni_layers *l = ps->layers;
    while (l && tni_layers_data(l) != data) l = l->next;
    return l;
}

static int64_t tni_rebind(tn_params *to, const tn_params *from, char *at, size_t bytes, bool write);

/* For the pointer to an array of layers of `from`. The first call (write is false) makes a complete copy of the array, the
   second one finds it and writes its address. */
static int64_t tni_rebind_layers(tn_params *to, const tn_params *from, tni_layers *of, char *at, bool write)
{
    tni_layers *l = to->layers;
    void       *data;
    if (write) {
        while (l->copy_of != tni_layers_data(of)) l = l->next;
        data = tni_layers_data(l);
        memcpy(at, &data, sizeof data);
        return 0;
    }
    if (!(data = tni_layers_add(to, of->bytes))) return -1;
    memcpy(data, tni_layers_data(of), of->bytes);
    to->layers->copy_of = tni_layers_data(of);
    int64_t n = tni_rebind(to, from, (char *)data, of->bytes, false);
    return n < 0 ? n : tni_rebind(to, from, (char *)data, of->bytes, true);
}

/* In a struct pointers are at multiples of their size, whatever its fields are. The first call (write is false) checks, the
   second one writes. */
static int64_t tni_rebind(tn_params *to, const tn_params *from, char *at, size_t bytes, bool write)
{
    int64_t i, n = 0;
    for (; bytes >= sizeof(tn_tensor *); at += sizeof(tn_tensor *), bytes -= sizeof(tn_tensor *)) {
        tn_tensor  *t;
        tni_layers *layers;
        memcpy(&t, at, sizeof t);
        if (t && (layers = tni_layers_at(from, t)) != NULL) {
            int64_t inside = tni_rebind_layers(to, from, layers, at, write);
            if (inside < 0) return -1;
            n += inside;
            continue;
        }
        for (i = 0; t && i < from->count && from->item[i]->value != t; i++) {}
        if (!t || i == from->count) continue;
        n++;
        {
            tn_param *p = tn_params_find(to, from->item[i]->name);
            if (!p || !tni_same_shape(p->value, t))
                return tni_fail(to->owned.ctx, TN_ERR_ARG, "rebind: the target has no parameter %s of shape %s",
                                from->item[i]->name, TNI_SHAPE(t)), -1;
            if (write) memcpy(at, &p->value, sizeof p->value);
        }
    }
    return n;
}

int64_t tn_params_rebind(tn_params *to, const tn_params *from, void *layers, size_t bytes)
{
    const tni_layers *before = to ? to->layers : NULL;
    if (!to || !from || !layers)
        return tni_fail(tn_params_ctx(to), TN_ERR_ARG, "rebind: %s is NULL", !layers ? "layers" : "a set of parameters"), -1;
    int64_t n = tni_rebind(to, from, (char *)layers, bytes, false);
    if (n >= 0) tni_rebind(to, from, (char *)layers, bytes, true);
    else while (to->layers != before) tni_layers_drop(to);
    return n;
}

/* A parameter that tn_params_tie has given this name too. It keeps the rule and scales of its first layer. */
static tn_tensor *tni_layer_tied(tn_params *ps, const char *name, int rank, const int64_t *shape)
{
    const tn_param *p = tni_alias_find(ps, name)->param;
    if (p->value->rank == rank && memcmp(p->value->shape, shape, sizeof *shape * (size_t)rank) == 0) return p->value;
    tn_tensor want = TNI_ZERO;
    want.rank = rank;
    memcpy(want.shape, shape, sizeof *shape * (size_t)rank);
    return tni_fail(ps->owned.ctx, TN_ERR_SHAPE, "params: %s is tied to %s, which is %s, expected %s", name, p->name,
                    TNI_SHAPE(p->value), TNI_SHAPE(&want)), (tn_tensor *)NULL;
}

/* "name.part" as a parameter of a layer; biases and gains have no weight decay. */
TNI_COLD_FN tn_tensor *tni_layer_param(tn_params *ps, const char *name, const char *part, int rank, const int64_t *shape,
                                       tn_init init, bool decays)
{
    char full[256];
    if (tni_print(full, sizeof full, "%s.%s", name ? name : "", part) >= sizeof full)
        return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "params: the name %s... is too long, expected at most %d bytes", full,
                        (int)sizeof full - 1), (tn_tensor *)NULL;
    if (!name || !name[0]) tni_print(full, sizeof full, "%s", part);
    if (tni_alias_find(ps, full)) return tni_layer_tied(ps, full, rank, shape);
    tn_param *p = tn_params_add(ps, full, rank, shape, init);
    if (!p) return NULL;
    p->decay_scale = decays ? 1 : 0;
    p->adamw = !decays;                 /* rows of biases are vectors side by side, not a matrix */
    return p->value;
}

TNI_COLD_FN tn_tensor *tni_layer_matrix(tn_params *ps, const char *name, const char *part, int64_t n, int64_t m, tn_init init)
{
    return tni_layer_param(ps, name, part, 2, TNI_DIMS(n, m), init, true);
}

/* A matrix whose rows belong to ids, one by one, is not a map from one space to another, so Muon does not update it. */
TNI_COLD_FN void tni_layer_adamw(tn_params *ps, const tn_tensor *w)
{
    for (int64_t i = 0; w && i < ps->count; i++) if (ps->item[i]->value == w) ps->item[i]->adamw = true;
}

TNI_COLD_FN tn_tensor *tni_layer_vector(tn_params *ps, const char *name, const char *part, int64_t n, tn_init init)
{
    return tni_layer_param(ps, name, part, 1, &n, init, false);
}

/* The rule that the desc gives, or the layer's default, with the layer's fan-in. */
TNI_COLD_FN tn_init tni_init_or(tn_init init, tn_init_rule usual, int64_t fan_in)
{
    if (init.rule == TN_INIT_DEFAULT) init.rule = usual;
    if (init.fan_in == 0) init.fan_in = fan_in;
    return init;
}

/* A bias starts as its layer's weights do, or at zero where they are not random. */
TNI_COLD_FN tn_init tni_init_bias(tn_init of_weights)
{
    if (of_weights.rule != TN_INIT_UNIFORM) of_weights.rule = TN_INIT_ZERO;
    return of_weights;
}

/* Products of two such extents plus one fit 64 bits. */
TNI_COLD_FN bool tni_is_extent(int64_t n) { return n >= 1 && n < INT32_MAX; }

TNI_COLD_FN tn_status tni_layer_extents(tn_params *ps, const char *layer, const char *name, const char *what_a, int64_t a,
                                        const char *what_b, int64_t b)
{
    if (!ps) return TN_ERR_ARG;
    if (tni_is_extent(a) && tni_is_extent(b)) return TN_OK;
    return tni_fail(ps->owned.ctx, TN_ERR_SHAPE, "%s%s%s: %s is %lld, expected 1 to 2^31 - 2", layer,
                    TNI_NAMED(name), tni_is_extent(a) ? what_b : what_a, (long long)(tni_is_extent(a) ? b : a));
}

/* Checks the output side of mlp and modifier layers; `out` gets its default. */
TNI_COLD_FN tn_status tni_layer_projection(tn_ctx *ctx, const char *layer, const char *name, int64_t in, int64_t hidden,
                                           int64_t *out, bool none, bool bias)
{
    if (*out == 0) *out = none ? hidden : in;
    if (*out < 0 || *out >= INT32_MAX)
        return tni_fail(ctx, TN_ERR_SHAPE, "%s%s%s: out is %lld, expected 1 to 2^31 - 2, or 0 for the default", layer,
                        TNI_NAMED(name),
                        (long long)*out);
    if (none && *out != hidden)
        return tni_fail(ctx, TN_ERR_SHAPE, "%s%s%s: out is %lld, expected hidden = %lld, as there is no projection", layer,
                        TNI_NAMED(name), (long long)*out, (long long)hidden);
    if (!none || !bias) return TN_OK;
    return tni_fail(ctx, TN_ERR_ARG, "%s%s%s: out_bias is true, expected false with no_projection: it is the projection's",
                    layer, TNI_NAMED(name));
}

/* In an augmented layer the last columns of the matrices are its biases. */
TNI_COLD_FN tn_status tni_layer_augmented(tn_ctx *ctx, const char *layer, const char *name, bool augmented, bool biased)
{
    if (!augmented || !biased) return TN_OK;
    return tni_fail(ctx, TN_ERR_ARG, "%s%s%s: a bias is true, expected false with augmented: the matrices hold the biases",
                    layer, TNI_NAMED(name));
}

/* A layer is made whole or not at all: what a failed init has added since `before` is removed. */
TNI_COLD_FN tn_status tni_layer_done(tn_params *ps, int64_t before, bool whole, void *layer, size_t bytes)
{
    if (whole) return TN_OK;
    while (ps->count > before) tni_param_free(ps->owned.ctx, ps->item[--ps->count]);
    memset(layer, 0, bytes);
    return tn_ctx_status(ps->owned.ctx);
}

TNI_COLD_FN bool tni_layer_given(tn_ctx *ctx, const void *layer, const char *what)
{
    if (!layer) tni_fail(ctx, TN_ERR_ARG, "%s: the layer is NULL", what);
    return ctx && layer;
}
