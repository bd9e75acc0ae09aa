#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/ops.h"
#include "algebra/inner.h"
#include "operator/inner.h"
#include "network/inner.h"

#ifndef TN_NO_OPERATOR
#ifndef TN_NO_CONTRACTION
/* ---- inner products ------------------------------------------------------------- >>net-comparing */

enum { TNI_NET_OPEN = -1, TNI_NET_LONE = -2,             /* a leg without a partner yet, and one that is left to the mean */
       TNI_NET_PLANS = 512, TNI_NET_CLASSES = 40320,    /* most plans that are kept, most different contractions         */
       TNI_NET_ORDERS = 1 << 20, TNI_NET_FEW = 24 };    /* most orders that are looked at; so few need no merged nodes   */

/* A plan and the joined network it was made for. */
typedef struct tni_net_known { tn_plan *plan; uint64_t hash; tni_net_joined of; } tni_net_known;

typedef struct tni_net_pairing {
    tn_ctx        *ctx;
    const char    *op;
    tni_scratch   *w;
    const tn_net  *a, *b;
    tni_net_joined now, kept;           /* of the order at hand, and of one that it is compared with           */
    tni_net_mapping    map;
    tni_net_part  *moment;              /* the covariance and the mean; NULL: an inner product                 */
    bool           has_mean;
    int           *order, *to;          /* leg order[k] of a meets leg k of b; labels of b as labels of both   */
    int            wide;                /* of an order: b's legs; with a covariance a's and b's, see tni_net_wick */
    int           *choice;              /* [wide][wide] at each leg the classes of its partners, and their sizes */
    double        *size, all;           /* all: the number of orders                                           */
    int            classes, room, buckets, orders, *list, *table;      /* list [room][wide] an order of each class */
    double        *weight;              /* [room] number of orders                                             */
    uint64_t      *hash;                /* [room]                                                              */
    int            plans, *rank;        /* arguments of a plan, [nodes] each                                   */
    const int    **label;
    const int64_t **shape;
    tn_tensor    **tensor;
    tni_net_known *known;               /* [plans that are kept]                                               */
} tni_net_pairing;

/* Arrays for a joined network, in memory of w. */
static bool tni_net_joined_take(tni_scratch *w, tni_net_joined *g, int nodes, int labels)
{
    g->nodes = nodes;
    g->labels = labels;
    g->part = (tni_net_part *)tni_take(w, nodes, sizeof *g->part);
    g->label = (int (*)[TN_MAX_RANK])tni_take(w, nodes, sizeof *g->label);
    g->color = (uint64_t *)tni_take(w, nodes, sizeof *g->color);
    g->edge = (uint64_t *)tni_take(w, labels, sizeof *g->edge);
    g->next = (uint64_t *)tni_take(w, labels, sizeof *g->next);
    g->seed = (uint64_t *)tni_take(w, labels, sizeof *g->seed);
    return !w->failed;
}

/* Leg k of a, or after these of b, and its label in both. */
static const tn_net_leg *tni_net_leg_of(const tni_net_pairing *p, int k, int *label)
{
    const tn_net_leg *leg = k < p->a->legs ? &p->a->in[k] : &p->b->in[k - p->a->legs];
    *label = k < p->a->legs ? leg->label : p->a->labels + leg->label;
    return leg;
}

/* Adds the covariance between legs that are paired, and the mean at those that are left to it. */
static void tni_net_join_moments(const tni_net_pairing *p, tni_net_joined *g, const int *order, int n)
{
    for (int k = 0, l, m; k < p->wide; k++) {
        const tn_net_leg *leg = tni_net_leg_of(p, k, &l);
        const int         of = order[k];
        if (of == TNI_NET_OPEN) g->seed[l] = 2 + 4 * (uint64_t)leg->input + (k == n ? UINT64_C(1) << 40 : 0);
        if (of < k && of != TNI_NET_LONE) continue;                  /* open, or the second of a pair */
        tni_net_leg_of(p, of < 0 ? k : of, &m);
        g->part[g->nodes] = of == TNI_NET_LONE ? p->moment[1] : p->moment[0];
        g->label[g->nodes][0] = l;
        g->label[g->nodes++][1] = m;
    }
}

/* The labels of both nets where the first n legs of b meet those of a that `order` says, and seeds of the legs that are open,
   of which leg n of b is the next. With moments order[k] is the partner of leg k of both, see tni_net_wick. */
static void tni_net_join(tni_net_pairing *p, tni_net_joined *g, const int *order, int n)
{
    const tn_net *a = p->a, *b = p->b;
    g->nodes = a->nodes + b->nodes;
    g->labels = a->labels + b->labels;
    memset(g->seed, 0, sizeof *g->seed * (size_t)g->labels);
    for (int l = 0; l < b->labels; l++) p->to[l] = a->labels + l;
    for (int k = 0; k < b->outs; k++) p->to[b->out[k].label] = a->out[k].label;
    for (int k = 0; k < a->legs && !p->moment; k++) g->seed[a->in[k].label] = 2 + 4 * (uint64_t)a->in[k].input;
    for (int k = 0; k < b->legs && !p->moment; k++)
        if (k < n) g->seed[p->to[b->in[k].label] = a->in[order[k]].label] = 0;
        else g->seed[p->to[b->in[k].label]] = 3 + 4 * (uint64_t)b->in[k].input + (k == n ? UINT64_C(1) << 40 : 0);
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->part[i].tensor->rank; k++)
            g->label[i][k] = i < a->nodes ? a->node[i].label[k] : p->to[b->node[i - a->nodes].label[k]];
    if (p->moment) tni_net_join_moments(p, g, order, n);
}

/* Counts `weight` orders with this class. */
static tn_status tni_net_count(tni_net_pairing *p, double weight)
{
    const int wide = p->wide;
    int       at, c;
    tni_net_join(p, &p->now, p->order, wide);
    const uint64_t hash = tni_net_refine(&p->now, false);
    p->orders++;
    for (at = (int)(hash % (uint64_t)p->buckets); (c = p->table[at] - 1) >= 0; at = (at + 1) % p->buckets) {
        if (p->hash[c] != hash) continue;
        tni_net_join(p, &p->kept, p->list + (int64_t)c * wide, wide);
        tni_net_refine(&p->kept, false);
        if (p->orders > TNI_NET_ORDERS || !tni_net_maps(&p->map, &p->now, &p->kept, false, -1, -1)) continue;
        p->weight[c] += weight;
        return TN_OK;
    }
    const bool looked = p->orders > TNI_NET_ORDERS;
    if (p->classes == p->room || looked)
        return tni_fail(p->ctx, TN_ERR_ARG, "%s: the %g %s of the %d input legs are more than %d %s: freeze some legs%s", p->op,
                        p->all, p->moment ? "pairings" : "permutations", wide, looked ? TNI_NET_ORDERS : TNI_NET_CLASSES,
                        looked ? "that have to be looked at one by one" : "different contractions",
                        p->moment ? "" : ", or use TN_NET_AS_GIVEN");
    memcpy(p->list + (int64_t)p->classes * wide, p->order, sizeof *p->order * (size_t)wide);
    p->hash[p->classes] = hash;
    p->weight[p->classes] = weight;
    p->table[at] = ++p->classes;
    return TN_OK;
}

/* All orders that give leg k and the legs after it legs of the same input, `weight` times. plain: no two legs are known to
   be alternatives. */
static tn_status tni_net_orders(tni_net_pairing *p, int k, double weight, bool plain)
{
    const tn_net   *a = p->a;
    const uint64_t *edge = p->now.edge;
    int            *choice = p->choice + (int64_t)k * a->legs, n = 0, i, c;
    double         *size = p->size + (int64_t)k * a->legs;
    bool            distinct = true;
    tn_status       s = TN_OK;
    if (k == a->legs) return tni_net_count(p, weight);
    if (!plain) tni_net_join(p, &p->now, p->order, k);
    if (!plain) tni_net_refine(&p->now, false);
    for (int leg = 0; leg < a->legs; leg++) {
        for (i = 0; i < k && p->order[i] != leg; i++) continue;
        if (i < k || a->in[leg].input != p->b->in[k].input) continue;
        for (c = 0; c < n && !plain; c++) {
            const int x = a->in[choice[c]].label, y = a->in[leg].label;
            if (edge[x] == edge[y] && tni_net_maps(&p->map, &p->now, &p->now, false, x, y)) break;
        }
        if (plain || c == n) choice[c = n++] = leg, size[c] = 0;
        size[c]++;
    }
    for (i = 0; i < a->legs && !plain; i++)
        for (c = 0; c < i; c++)
            distinct = distinct && (p->now.seed[a->in[i].label] == 0 || edge[a->in[i].label] != edge[a->in[c].label]);
    for (c = 0; c < n && s == TN_OK; c++) {
        p->order[k] = choice[c];
        s = tni_net_orders(p, k + 1, weight * size[c], plain || distinct);
    }
    return s;
}

/* All ways to pair the legs that are open or to leave them to the mean, `weight` times (Isserlis 1918, Wick 1950). */
static tn_status tni_net_wick(tni_net_pairing *p, double weight)
{
    const uint64_t *edge = p->now.edge;
    int             k = 0, n = 0, c, x, y;
    tn_status       s = TN_OK;
    while (k < p->wide && p->order[k] != TNI_NET_OPEN) k++;
    if (k == p->wide) return tni_net_count(p, weight);
    int    *choice = p->choice + (int64_t)k * p->wide;
    double *size = p->size + (int64_t)k * p->wide;
    const tn_net_leg *leg = tni_net_leg_of(p, k, &x);
    tni_net_join(p, &p->now, p->order, k);
    tni_net_refine(&p->now, false);
    for (int j = k + 1; j < p->wide; j++) {
        if (p->order[j] != TNI_NET_OPEN || tni_net_leg_of(p, j, &y)->input != leg->input) continue;
        for (c = 0; c < n; c++) {
            tni_net_leg_of(p, choice[c], &x);
            if (edge[x] == edge[y] && tni_net_maps(&p->map, &p->now, &p->now, false, x, y)) break;
        }
        if (c == n) choice[n] = j, size[n++] = 0;
        size[c]++;
    }
    for (c = 0; c < n && s == TN_OK; c++) {
        p->order[p->order[k] = choice[c]] = k;
        s = tni_net_wick(p, weight * size[c]);
        p->order[choice[c]] = TNI_NET_OPEN;
    }
    p->order[k] = TNI_NET_LONE;
    if (s == TN_OK && p->has_mean) s = tni_net_wick(p, weight);
    p->order[k] = TNI_NET_OPEN;
    return s;
}

/* The contraction of the joined network by a plan that is kept for all networks of its shapes. */
static tn_tensor *tni_net_joined_run(tni_net_pairing *p)
{
    tni_net_joined *g = &p->now;
    tn_plan_desc    d = tni_net_plan_desc(p->ctx);
    tn_plan        *plan = NULL;
    const uint64_t  hash = tni_net_refine(g, true);
    int             k;
    for (k = 0; k < p->plans && !plan; k++)
        if (p->known[k].hash == hash && tni_net_maps(&p->map, &p->known[k].of, g, true, -1, -1)) plan = p->known[k].plan;
    if (plan) {
        for (int i = 0; i < g->nodes; i++) p->tensor[i] = g->part[p->map.node[i]].tensor;
        return tni_plan_run(plan, g->nodes, p->tensor, p->op);
    }
    for (int i = 0; i < g->nodes; i++) {
        p->tensor[i] = g->part[i].tensor;
        p->shape[i] = g->part[i].tensor->shape;
        p->label[i] = g->label[i];
        p->rank[i] = g->part[i].tensor->rank;
    }
    plan = tni_plan_create(p->ctx, p->op, NULL, g->nodes, p->rank, p->shape, p->label, 0, NULL, &d);
    tn_tensor *t = plan ? tni_plan_run(plan, g->nodes, p->tensor, p->op) : NULL;
    if (!plan || p->plans == tni_min(p->room, TNI_NET_PLANS)) {
        tn_plan_destroy(plan);
        return t;
    }
    tni_net_joined *of = &p->known[p->plans].of;
    if (!tni_net_joined_take(p->w, of, g->nodes, g->labels)) {
        tn_plan_destroy(plan);
        return NULL;
    }
    memcpy(of->part, g->part, sizeof *g->part * (size_t)g->nodes);
    memcpy(of->label, g->label, sizeof *g->label * (size_t)g->nodes);
    memcpy(of->color, g->color, sizeof *g->color * (size_t)g->nodes);
    memcpy(of->edge, g->edge, sizeof *g->edge * (size_t)g->labels);
    p->known[p->plans].hash = hash;
    p->known[p->plans++].plan = plan;
    return t;
}

/* The mean over all orders, or the order as given; with moments the sum over all pairings. */
static tn_status tni_net_mean(tni_net_pairing *p, bool symmetric, double *mean)
{
    tn_status s = TN_OK;
    p->classes = p->orders = 0;
    memset(p->table, 0, sizeof *p->table * (size_t)p->buckets);
    for (int k = 0; k < p->wide; k++) p->order[k] = p->moment ? TNI_NET_OPEN : k;
    s = p->moment ? tni_net_wick(p, 1) : symmetric ? tni_net_orders(p, 0, 1, false) : tni_net_count(p, 1);
    *mean = 0;
    for (int c = 0; c < p->classes && s == TN_OK; c++) {
        double  value = 0;
        tn_mark mark = tn_arena_mark(p->ctx);
        tni_net_join(p, &p->now, p->list + (int64_t)c * p->wide, p->wide);
        tn_tensor *t = tni_net_joined_run(p);
        s = t ? tn_read(t, TN_F64, &value, 1) : tn_ctx_status(p->ctx);
        if (!p->ctx->tape) tn_arena_release(p->ctx, mark);
        *mean += p->weight[c] * value;
    }
    if (symmetric && !p->moment) *mean /= p->all;
    return s;
}

/* legs: whether the input legs have to be the same, too. */
static bool tni_net_comparable(const tn_net *a, const tn_net *b, bool legs, const char *op)
{
    if (!a) return false;
    if (!b) return tni_fail(a->ctx, TN_ERR_ARG, "%s: the second net is NULL", op), false;
    if (a->ctx != b->ctx) return tni_fail(a->ctx, TN_ERR_ARG, "%s: the nets are of two contexts, expected one", op), false;
    if (a->outs != b->outs || (legs && a->legs != b->legs))
        return tni_fail(a->ctx, TN_ERR_SHAPE, "%s: the nets have %d and %d output legs, %d and %d input legs, expected the same",
                        op, a->outs, b->outs, a->legs, b->legs), false;
    for (int k = 0; k < a->outs + (legs ? a->legs : 0); k++) {                    /* in follows out */
        const bool out = k < a->outs;
        const tn_net_leg *l = out ? &a->out[k] : &a->in[k - a->outs], *m = out ? &b->out[k] : &b->in[k - a->outs];
        if (l->extent != m->extent || (!out && l->input != m->input))
            return tni_fail(a->ctx, TN_ERR_SHAPE, "%s: %s leg %d has %lld and %lld elements and is of input %d and %d, expected "
                            "the same", op, out ? "output" : "input", out ? k : k - a->outs, (long long)l->extent,
                            (long long)m->extent, l->input, m->input), false;
    }
    if (a->constant == b->constant) return true;
    return tni_fail(a->ctx, TN_ERR_SHAPE, "%s: one net has a constant input, the other has none, expected the same", op), false;
}

/* The binary exponent of the largest magnitude of t: 0 for zeros and where that is not finite. */
static tn_status tni_net_exponent(const tn_tensor *t, const char *op, int *exponent)
{
    const int64_t n = tn_tensor_count(t);
    tni_scratch   w = tni_scratch_begin(t->ctx, op);
    double       *v = tni_take_f64(&w, n, 1), most = 0;
    tn_status     s = v ? tn_read(t, TN_F64, v, n) : TN_ERR_MEMORY;
    for (int64_t i = 0; i < n && s == TN_OK; i++) if (!(fabs(v[i]) <= most)) most = fabs(v[i]);
    *exponent = 0;
    if (s == TN_OK && most > 0 && most < HUGE_VAL) frexp(most, exponent);
    return tni_scratch_end(&w, s);
}

/* The same net with each node divided by a power of two, so that products of many neither overflow nor vanish; the exponents
   are added to *exponent. The tensors are in the arena. Nodes that share a tensor still do. NULL on error. */
static tn_net *tni_net_moderate(const tn_net *net, const char *op, int64_t *exponent)
{
    tn_net *to = tni_net_make(net->ctx, net->nodes, net->outs, net->legs);
    int     j, e;
    if (!to) return NULL;
    memcpy(to->node, net->node, sizeof *net->node * (size_t)net->nodes);
    memcpy(to->out, net->out, sizeof *net->out * (size_t)(net->outs + net->legs));      /* in follows out */
    to->labels = net->labels;
    for (int i = 0; i < net->nodes; i++) {
        tn_tensor *const from = net->node[i].tensor;
        tn_tensor       *t = from;
        for (j = 0; net->node[j].tensor != from; j++) continue;
        if (j < i) continue;
        if (!tni_usable(net->ctx, t, op, "a node") || tni_net_exponent(t, op, &e) != TN_OK) t = NULL;
        if (t && e != 0) {
            int half = e / 2;                                         /* 2^e itself may be out of the range of F32 */
            t = tn_scale(net->ctx, tn_scale(net->ctx, t, ldexp(1, -half)), ldexp(1, half - e));
        }
        for (; t && j < net->nodes; j++)
            if (net->node[j].tensor == from) {
                to->node[j].tensor = t;
                *exponent += e;
            }
        if (!t) return tn_net_destroy(to), (tn_net *)NULL;
    }
    return to;
}

/* The parts of a net, which is changed where groups of nodes can be merged. */
static tn_status tni_net_parts(tni_scratch *w, tn_net *net, bool merge, tni_net_part *part)
{
    bool     *in = (bool *)tni_take(w, net->nodes, sizeof *in);
    tn_status s = in ? TN_OK : TN_ERR_MEMORY;
    for (int i = 0; i < net->nodes; i++) {
        part[i].tensor = net->node[i].tensor;
        for (int k = 0; k < TN_MAX_RANK; k++) part[i].axis[k] = (uint8_t)k;
    }
    if (s == TN_OK && merge) s = tni_net_merge_all(net, part, in);
    for (int i = 0; i < net->nodes; i++) part[i].form = tni_net_hash(&part[i], NULL);
    return s;
}

/* Numbers the parts: equal ones, bit by bit, have one number. */
static tn_status tni_net_number(tn_ctx *ctx, const char *op, tni_net_part *part, int n)
{
    tni_scratch w = tni_scratch_begin(ctx, op);
    uint64_t   *hash = (uint64_t *)tni_take(&w, n, sizeof *hash);
    for (int i = 0; i < n && !w.failed; i++) {
        const tni_taken *mark = w.newest;
        const size_t     count = (size_t)tn_tensor_count(part[i].tensor);
        const double    *numbers = tni_take_numbers(&w, part[i].tensor), *others;
        hash[i] = numbers ? tni_net_hash(&part[i], numbers) : 0;
        part[i].same = i;
        for (int j = 0; j < i && numbers && part[i].same == i; j++) {
            if (part[j].tensor == part[i].tensor) part[i].same = part[j].same;
            if (part[j].same != j || hash[j] != hash[i] || !tni_net_alike(&part[i], &part[j])) continue;
            others = tni_take_numbers(&w, part[j].tensor);
            if (others && memcmp(others, numbers, count * sizeof *numbers) == 0) part[i].same = j;
        }
        tni_scratch_release(&w, mark);
    }
    return tni_scratch_end(&w, w.failed ? TN_ERR_MEMORY : TN_OK);
}

/* Multiplies *x, which is named `what`, by 2^exponent. */
static tn_status tni_net_scaled(tn_ctx *ctx, double *x, int64_t exponent, const char *what, const char *op)
{
    *x = ldexp(*x, (int)tni_max(-100000, tni_min(exponent, 100000)));
    if (fabs(*x) < HUGE_VAL) return TN_OK;
    return tni_fail(ctx, TN_ERR_NONFINITE, "%s: the %s is %g, expected a finite number", op, what, *x);
}

/* Arrays for nets with these numbers of nodes and labels in both. */
static tn_status tni_net_pairing_take(tni_net_pairing *p, int nodes, int labels, bool symmetric)
{
    tni_scratch *w = p->w;
    const int    legs = p->wide;
    p->room = !symmetric ? 1 : p->moment || p->all > (double)TNI_NET_CLASSES ? TNI_NET_CLASSES : (int)p->all;
    p->buckets = 2 * p->room + 1;
    tni_net_joined_take(w, &p->now, nodes, labels);
    tni_net_joined_take(w, &p->kept, nodes, labels);
    p->map.node = (int *)tni_take(w, nodes, sizeof *p->map.node);
    p->map.used = (bool *)tni_take(w, nodes, sizeof *p->map.used);
    p->map.label = (int *)tni_take(w, labels, sizeof *p->map.label);
    p->map.back = (int *)tni_take(w, labels, sizeof *p->map.back);
    p->order = (int *)tni_take(w, legs, sizeof *p->order);
    p->to = (int *)tni_take(w, labels, sizeof *p->to);
    p->choice = (int *)tni_take(w, tni_area(legs, legs), sizeof *p->choice);
    p->size = tni_take_f64(w, legs, legs);
    p->list = (int *)tni_take(w, tni_area(p->room, legs), sizeof *p->list);
    p->table = (int *)tni_take(w, p->buckets, sizeof *p->table);
    p->weight = tni_take_f64(w, p->room, 1);
    p->known = (tni_net_known *)tni_take(w, tni_min(p->room, TNI_NET_PLANS), sizeof *p->known);
    p->hash = (uint64_t *)tni_take(w, p->room, sizeof *p->hash);
    p->rank = (int *)tni_take(w, nodes, sizeof *p->rank);
    p->label = (const int **)tni_take(w, nodes, sizeof *p->label);
    p->shape = (const int64_t **)tni_take(w, nodes, sizeof *p->shape);
    p->tensor = (tn_tensor **)tni_take(w, nodes, sizeof *p->tensor);
    return w->failed ? TN_ERR_MEMORY : TN_OK;
}

/* v[0] = <a,b>, v[1] = <a,a> and v[2] = <b,b>, those that bits of `which` ask for, of the nets to[0] and to[1]. */
static tn_status tni_net_products_of(tni_net_pairing *p, tn_net *const *to, bool symmetric, unsigned which, double v[3])
{
    const int      most = to[0]->nodes > to[1]->nodes ? to[0]->nodes : to[1]->nodes;
    const int      labels = to[0]->labels > to[1]->labels ? to[0]->labels : to[1]->labels;
    tni_net_part  *part = (tni_net_part *)tni_take_zeroed(p->w, tni_plus(most, most), sizeof *part), *of_b;
    tn_status      s = TN_ERR_MEMORY;
    const bool     merge = symmetric && p->all > (double)TNI_NET_FEW;
    if (part && tni_plus(labels, labels) < INT_MAX) s = tni_net_pairing_take(p, 2 * most + p->wide, 2 * labels, symmetric);
    if (s == TN_OK) s = tni_net_parts(p->w, to[0], merge, part);
    of_b = part + to[0]->nodes;                                       /* a's may have become fewer */
    if (s == TN_OK && to[1] != to[0]) s = tni_net_parts(p->w, to[1], merge, of_b);
    if (s == TN_OK && (p->all > 1 || p->moment))
        s = tni_net_number(p->ctx, p->op, part, to[0]->nodes + (to[1] != to[0] ? to[1]->nodes : 0));
    for (int j = 0; j < 3 && s == TN_OK; j++) {
        if (!(which >> j & 1)) continue;
        p->a = to[j == 2];
        p->b = to[j != 1];
        memcpy(p->now.part, p->a == to[0] ? part : of_b, sizeof *part * (size_t)p->a->nodes);
        memcpy(p->now.part + p->a->nodes, p->b == to[0] ? part : of_b, sizeof *part * (size_t)p->b->nodes);
        memcpy(p->kept.part, p->now.part, sizeof *part * (size_t)(p->a->nodes + p->b->nodes));
        s = tni_net_mean(p, symmetric, &v[j]);
        if (s == TN_OK) s = tni_net_scaled(p->ctx, &v[j], 0, "inner product", p->op);
    }
    return s;
}

/* The same of a / 2^exponent[0] and b / 2^exponent[1], by a pairing that has the number of orders, and moments. */
static tn_status tni_net_products_by(tni_net_pairing *p, const tn_net *a, const tn_net *b, bool symmetric, unsigned which,
                                     double v[3], int64_t exponent[2], const char *op)
{
    tni_scratch w = tni_scratch_begin(a->ctx, op);
    tn_net     *to[2];
    p->ctx = a->ctx;
    p->op = op;
    p->w = &w;
    exponent[0] = exponent[1] = 0;
    to[0] = tni_net_moderate(a, op, &exponent[0]);
    to[1] = to[0] && a != b ? tni_net_moderate(b, op, &exponent[1]) : to[0];
    if (a == b) exponent[1] = exponent[0];
    tn_status s = to[1] ? tni_net_products_of(p, to, symmetric, which, v) : tn_ctx_status(a->ctx);
    for (int k = 0; k < p->plans; k++) tn_plan_destroy(p->known[k].plan);
    if (a != b) tn_net_destroy(to[1]);
    tn_net_destroy(to[0]);
    return tni_scratch_end(&w, s);
}

static tn_status tni_net_products(const tn_net *a, const tn_net *b, tn_net_form form, unsigned which, double v[3],
                                  int64_t exponent[2], const char *op)
{
    tni_net_pairing p = TNI_ZERO;
    if (!tni_net_comparable(a, b, true, op)) return a ? tn_ctx_status(a->ctx) : TN_ERR_ARG;
    if ((unsigned)form > TN_NET_AS_GIVEN)
        return tni_fail(a->ctx, TN_ERR_ARG, "%s: form is %d, not a valid tn_net_form", op, (int)form);
    p.all = 1;
    p.wide = a->legs;
    for (int k = 0; k < a->legs && form == TN_NET_SYMMETRIC; k++) {
        int of_input = 1;
        for (int j = 0; j < k; j++) of_input += a->in[j].input == a->in[k].input;
        p.all *= of_input;
    }
    tni_scope scope = tni_scope_begin(a->ctx);
    tn_status s = tni_net_products_by(&p, a, b, form == TN_NET_SYMMETRIC, which, v, exponent, op);
    tni_scope_end(a->ctx, scope);
    return s;
}

/* The covariance and the mean as parts, with a zero row and column and with a one where the nets have a constant input. */
static bool tni_net_moments(const tn_net *a, const tn_tensor *covariance, const tn_tensor *mean, tni_net_part moment[2])
{
    const int64_t n = covariance->shape[0], wide = n + a->constant;
    tni_scratch   w = tni_scratch_begin(a->ctx, "net_gaussian");
    double       *c = tni_take_numbers(&w, covariance), *m = mean ? tni_take_numbers(&w, mean) : NULL;
    double       *all = tni_take_zeros(&w, wide, wide), *one = tni_take_zeros(&w, wide, 1);
    for (int64_t i = 0; i < n && !w.failed; i++) {
        for (int64_t j = 0; j < n; j++) all[i * wide + j] = (c[i * n + j] + c[j * n + i]) / 2;
        if (m) one[i] = m[i];
    }
    if (a->constant && !w.failed) one[n] = 1;
    memset(moment, 0, 2 * sizeof *moment);
    for (int k = 0; k < 2 && !w.failed; k++) {
        moment[k].tensor = tn_tensor_from(a->ctx, k ? 1 : 2, TNI_DIMS(wide, wide), TN_F64, k ? one : all);
        moment[k].same = -2 - k;                                      /* unlike those of nodes; the axes are one class */
        if (moment[k].tensor) moment[k].form = tni_net_hash(&moment[k], NULL);
    }
    return tni_scratch_end(&w, moment[0].tensor && moment[1].tensor ? TN_OK : TN_ERR_MEMORY) == TN_OK;
}

tn_status tn_net_gaussian(const tn_net *a, const tn_net *b, const tn_tensor *covariance, const tn_tensor *mean, double *moment)
{
    static const char op[] = "net_gaussian";
    tni_net_pairing   p = TNI_ZERO;
    tni_net_part      moments[2];
    int64_t           e[2];
    double            v[3] = {0, 0, 0};
    tn_status         s;
    int               label;
    if (!moment) return TN_ERR_ARG;
    *moment = (double)NAN;
    if (!tni_net_comparable(a, b, false, op)) return a ? tn_ctx_status(a->ctx) : TN_ERR_ARG;
    const int64_t n = covariance ? covariance->shape[0] : 0;
    if (!tni_is_matrix(a->ctx, covariance, op, "covariance")) return tn_ctx_status(a->ctx);
    if (covariance->shape[1] != n)
        return tni_fail(a->ctx, TN_ERR_SHAPE, "%s: covariance is %s, expected a square matrix", op, TNI_SHAPE(covariance));
    if (mean && !tni_is_vector(a->ctx, mean, n, op, "mean")) return tn_ctx_status(a->ctx);
    p.a = a;
    p.b = b;
    p.wide = a->legs + b->legs;
    p.has_mean = mean || a->constant;
    p.all = 1;
    for (int k = 0; k < p.wide; k++) {                                /* of all legs, as if they were of one input */
        const tn_net_leg *leg = tni_net_leg_of(&p, k, &label);
        if (leg->extent != n + a->constant)
            return tni_fail(a->ctx, TN_ERR_SHAPE, "%s: input leg %d of the %s net has %lld elements, covariance is %s, expected "
                            "%lld%s", op, k < a->legs ? k : k - a->legs, k < a->legs ? "first" : "second",
                            (long long)leg->extent, TNI_SHAPE(covariance), (long long)leg->extent - a->constant,
                            a->constant ? ", without the one" : "");
        if (k % 2) p.all *= k;
    }
    tni_scope scope = tni_scope_begin(a->ctx);
    p.moment = moments;
    s = tni_net_moments(a, covariance, mean, moments) ? TN_OK : tn_ctx_status(a->ctx);
    if (s == TN_OK) s = tni_net_products_by(&p, a, b, true, 1, v, e, op);
    tni_scope_end(a->ctx, scope);
    if (s == TN_OK) s = tni_net_scaled(a->ctx, v, e[0] + e[1], "moment", op);
    if (s == TN_OK) *moment = v[0];
    return s;
}

tn_status tn_net_inner(const tn_net *a, const tn_net *b, tn_net_form form, double *inner)
{
    double  v[3] = {0, 0, 0};
    int64_t e[2];
    if (!inner) return TN_ERR_ARG;
    tn_status s = tni_net_products(a, b, form, 1, v, e, "net_inner");
    if (s == TN_OK) s = tni_net_scaled(a->ctx, v, e[0] + e[1], "inner product", "net_inner");
    *inner = s == TN_OK ? v[0] : (double)NAN;
    return s;
}

/* The root of <a,a>, which rounding may make negative where it is nearly zero. */
static double tni_net_root(double v) { return v < 0 ? 0 : sqrt(v); }

tn_status tn_net_norm(const tn_net *a, tn_net_form form, double *norm)
{
    double  v[3] = {0, 0, 0};
    int64_t e[2];
    if (!norm) return TN_ERR_ARG;
    tn_status s = tni_net_products(a, a, form, 2, v, e, "net_norm");
    *norm = tni_net_root(v[1]);
    if (s == TN_OK) s = tni_net_scaled(a->ctx, norm, e[0], "norm", "net_norm");
    if (s != TN_OK) *norm = (double)NAN;
    return s;
}

tn_status tn_net_cosine(const tn_net *a, const tn_net *b, tn_net_form form, double *cosine)
{
    double  v[3] = {0, 0, 0};
    int64_t e[2];
    if (!cosine) return TN_ERR_ARG;
    tn_status s = tni_net_products(a, b, form, 7, v, e, "net_cosine");
    *cosine = s == TN_OK ? v[0] / tni_net_root(v[1]) / tni_net_root(v[2]) : (double)NAN;
    return s;
}

#endif /* TN_NO_CONTRACTION */
#endif /* TN_NO_OPERATOR */
