#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/ops.h"
#include "algebra/algebra.h"
#include "operator/inner.h"
#include "network/inner.h"

#ifndef TN_NO_OPERATOR
#ifndef TN_NO_CONTRACTION
/* ---- inner products ------------------------------------------------------------- >>net-comparing */

enum { TNI_NET_PLANS = 32 };             /* most plans that are kept for one inner product */

typedef struct tni_net_pairing {
    const tn_net *a, *b;
    const char   *op;
    int          *order, *map;          /* leg order[k] of a meets leg k of b; labels of b as labels of the product */
    double        sum;
    int64_t       count;
    int           plans;                /* that were made so far, and the nets for which */
    tn_plan      *plan[TNI_NET_PLANS];
    tn_net       *net[TNI_NET_PLANS];
} tni_net_pairing;

/* A plan for q: an earlier one, if q has a node with the labels and the shape of each of its operands. q's nodes are then in
   the order of these. */
static tn_plan *tni_net_plan_of(const tni_net_pairing *p, tn_net *q)
{
    int i, j;
    for (int k = 0; k < p->plans; k++) {
        const tn_net *known = p->net[k];
        for (i = 0; i < q->nodes && known->nodes == q->nodes; i++) {
            const tn_net_node *to = &known->node[i], was = q->node[i];
            const size_t       rank = (size_t)to->tensor->rank;
            for (j = i; j < q->nodes; j++) {
                const tn_tensor *t = q->node[j].tensor;
                if (t->rank == to->tensor->rank && memcmp(q->node[j].label, to->label, rank * sizeof(int)) == 0
                    && memcmp(t->shape, to->tensor->shape, rank * sizeof *t->shape) == 0) break;
            }
            if (j == q->nodes) break;
            q->node[i] = q->node[j];
            q->node[j] = was;
        }
        if (i == q->nodes && known->nodes == q->nodes) return p->plan[k];
    }
    return NULL;
}

/* The full contraction of a with b in one order of legs. */
static tn_status tni_net_pair(tni_net_pairing *p)
{
    const tn_net *a = p->a, *b = p->b;
    tn_net       *q = tni_net_make(a->ctx, a->nodes + b->nodes, 0, 0);
    tn_plan_desc  d = tni_net_plan_desc(a->ctx);
    double        value = 0;
    tn_mark       mark = tn_arena_mark(a->ctx);
    if (!q) return TN_ERR_MEMORY;
    tni_net_take_all(q, 0, a, 0);
    tni_net_take_all(q, a->nodes, b, 0);
    for (int i = 0; i < b->labels; i++) p->map[i] = a->labels + i;
    for (int k = 0; k < b->outs; k++) p->map[b->out[k].label] = a->out[k].label;
    for (int k = 0; k < b->legs; k++) p->map[b->in[k].label] = a->in[p->order[k]].label;
    for (int i = a->nodes; i < q->nodes; i++)
        for (int k = 0; k < q->node[i].tensor->rank; k++) q->node[i].label[k] = p->map[q->node[i].label[k]];
    q->labels = a->labels + b->labels;
    tn_plan *plan = tni_net_plan_of(p, q);
    if (!plan && p->plans < TNI_NET_PLANS && (plan = tni_net_plan(q, &d, p->op)) != NULL) {
        p->plan[p->plans] = plan;
        p->net[p->plans++] = q;
    }
    tn_tensor *t = plan || p->plans == TNI_NET_PLANS ? tni_net_run(q, plan, p->op) : NULL;
    tn_status  s = t ? tn_read(t, TN_F64, &value, 1) : tn_ctx_status(a->ctx);
    if (p->plans == 0 || p->net[p->plans - 1] != q) tn_net_destroy(q);
    if (!a->ctx->tape) tn_arena_release(a->ctx, mark);
    p->sum += value;
    p->count++;
    return s;
}

/* All orders that give leg k and the legs after it legs of the same input. */
static tn_status tni_net_pairs(tni_net_pairing *p, int k)
{
    tn_status s = TN_OK;
    int       j;
    if (k == p->b->legs) return tni_net_pair(p);
    for (int leg = 0; leg < p->a->legs && s == TN_OK; leg++) {
        for (j = 0; j < k && p->order[j] != leg; j++) continue;
        if (j < k || p->a->in[leg].input != p->b->in[k].input) continue;
        p->order[k] = leg;
        s = tni_net_pairs(p, k + 1);
    }
    return s;
}

static bool tni_net_comparable(const tn_net *a, const tn_net *b, const char *op)
{
    if (!a) return false;
    if (!b) return tni_fail(a->ctx, TN_ERR_ARG, "%s: the second net is NULL", op), false;
    if (a->ctx != b->ctx) return tni_fail(a->ctx, TN_ERR_ARG, "%s: the nets are of two contexts, expected one", op), false;
    if (a->outs != b->outs || a->legs != b->legs)
        return tni_fail(a->ctx, TN_ERR_SHAPE, "%s: the nets have %d and %d output legs, %d and %d input legs, expected the same",
                        op, a->outs, b->outs, a->legs, b->legs), false;
    for (int k = 0; k < a->outs + a->legs; k++) {                    /* in follows out */
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
    tn_net *to = tni_net_like(net, 0, -1);
    int     j, e;
    for (int i = 0; to && i < net->nodes; i++) {
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
        if (t) continue;
        tn_net_destroy(to);
        to = NULL;
    }
    return to;
}

/* Multiplies *x, which is named `what`, by 2^exponent. */
static tn_status tni_net_scaled(tn_ctx *ctx, double *x, int64_t exponent, const char *what, const char *op)
{
    *x = ldexp(*x, (int)tni_max(-100000, tni_min(exponent, 100000)));
    if (fabs(*x) < HUGE_VAL) return TN_OK;
    return tni_fail(ctx, TN_ERR_NONFINITE, "%s: the %s is %g, expected a finite number", op, what, *x);
}

/* v[0] = <a,b>, v[1] = <a,a> and v[2] = <b,b>, those that bits of `which` ask for, of a / 2^exponent[0] and
   b / 2^exponent[1]. */
static tn_status tni_net_products(const tn_net *a, const tn_net *b, tn_net_form form, unsigned which, double v[3],
                                  int64_t exponent[2], const char *op)
{
    tn_status s = TN_OK;
    tn_net   *to[2];
    int64_t   orders = 1;
    exponent[0] = exponent[1] = 0;
    if (!tni_net_comparable(a, b, op)) return a ? tn_ctx_status(a->ctx) : TN_ERR_ARG;
    if ((unsigned)form > TN_NET_AS_GIVEN)
        return tni_fail(a->ctx, TN_ERR_ARG, "%s: form is %d, not a valid tn_net_form", op, (int)form);
    for (int k = 0; k < a->legs && form == TN_NET_SYMMETRIC; k++) {
        int64_t of_input = 1;
        for (int j = 0; j < k; j++) of_input += a->in[j].input == a->in[k].input;
        if ((orders *= of_input) > 40320)
            return tni_fail(a->ctx, TN_ERR_ARG, "%s: the %d input legs have more than 40320 permutations: freeze some, or "
                            "use TN_NET_AS_GIVEN", op, a->legs);
    }
    tni_net_pairing p = TNI_ZERO;
    p.op = op;
    tni_scratch w = tni_scratch_begin(a->ctx, op);
    p.order = (int *)tni_take(&w, a->legs, sizeof *p.order);
    p.map = (int *)tni_take(&w, tni_plus(a->labels, b->labels), sizeof *p.map);
    if (w.failed) return tni_scratch_end(&w, TN_ERR_MEMORY);
    tni_scope scope = tni_scope_begin(a->ctx);
    to[0] = tni_net_moderate(a, op, &exponent[0]);
    to[1] = to[0] && a != b ? tni_net_moderate(b, op, &exponent[1]) : to[0];
    if (a == b) exponent[1] = exponent[0];
    if (!to[1]) s = tn_ctx_status(a->ctx);
    for (int j = 0; j < 3 && s == TN_OK; j++) {
        if (!(which >> j & 1)) continue;
        p.a = to[j == 2];
        p.b = to[j != 1];
        p.sum = 0;
        p.count = 0;
        for (int k = 0; k < a->legs; k++) p.order[k] = k;
        s = form == TN_NET_SYMMETRIC ? tni_net_pairs(&p, 0) : tni_net_pair(&p);
        v[j] = p.sum / (double)p.count;
        if (s == TN_OK) s = tni_net_scaled(a->ctx, &v[j], 0, "inner product", op);
    }
    for (int k = 0; k < p.plans; k++) {
        tn_plan_destroy(p.plan[k]);
        tn_net_destroy(p.net[k]);
    }
    if (a != b) tn_net_destroy(to[1]);
    tn_net_destroy(to[0]);
    tni_scope_end(a->ctx, scope);
    return tni_scratch_end(&w, s);
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
