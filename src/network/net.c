#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "algebra/inner.h"
#include "operator/inner.h"
#include "network/inner.h"

#ifndef TN_NO_OPERATOR
#ifndef TN_NO_CONTRACTION
/* ======================================================================
   >>network-impl  multilinear functions as networks of tensors
   Functions that return a net only put nodes and labels together. Those that return numbers make a net for the question,
   whose further nodes refer to the arguments, and contract it in one call of tni_net_run: an inner product is the net of
   both sets of nodes without legs, a function applied to x the one with x as a node at each leg.
   ====================================================================== */

TNI_COLD_FN tni_net_box *tni_net_box_of(const tn_net *net)
{
    return (tni_net_box *)(void *)((char *)(void *)(uintptr_t)net - offsetof(tni_net_box, net));
}

/* The plan belongs to the net alone, so that a context that ends frees it with the net and not before. */
TNI_COLD_FN void tni_net_keep_plan(tni_net_box *box, tn_plan *plan)
{
    if (box->plan) {
        tni_own(box->net.ctx, &box->plan->owned, box->plan->owned.destroy);
        tn_plan_destroy(box->plan);
    }
    if ((box->plan = plan) != NULL) tni_disown(&plan->owned);
}

static void tni_net_leave(tn_ctx *ctx, tni_net_share *s)
{
    if (!s || --s->users > 0) return;
    tn_tensor_destroy(s->tensor);
    tni_free(ctx, s, sizeof *s);
}

static void tni_net_destroy(tni_owned *o)
{
    tni_net_box *box = (tni_net_box *)(void *)o;
    for (int i = 0; i < box->net.nodes; i++) tni_net_leave(o->ctx, box->share[i]);
    tni_net_keep_plan(box, NULL);
    tni_object_free(o, (size_t)box->bytes);
}

void tn_net_destroy(tn_net *net) { if (net) tni_net_destroy(&tni_net_box_of(net)->owned); }

/* A net without tensors and labels, in one block of memory. */
TNI_COLD_FN tn_net *tni_net_make(tn_ctx *ctx, int nodes, int outs, int legs)
{
    const size_t size = sizeof(tni_net_box) + (size_t)nodes * (sizeof(tn_net_node) + sizeof(tni_net_share *))
                        + (size_t)(outs + legs) * sizeof(tn_net_leg);
    tni_net_box *box = (tni_net_box *)tni_object(ctx, size, "net", tni_net_destroy);
    if (!box) return NULL;
    box->bytes = (int64_t)size;
    box->net.ctx = ctx;
    box->net.nodes = nodes;
    box->net.outs = outs;
    box->net.legs = legs;
    box->net.out = (tn_net_leg *)(void *)(box + 1);
    box->net.in = box->net.out + outs;
    box->net.node = (tn_net_node *)(void *)(box->net.in + legs);
    box->share = (tni_net_share **)(void *)(box->net.node + nodes);
    return &box->net;
}

/* ---- nodes and legs --------------------------------------------------------- >>net-nodes */

TNI_COLD_FN void tni_net_label(tn_net *net, tn_net_node *node, int rank, const int *label)
{
    for (int a = 0; a < rank; a++) {
        node->label[a] = label[a];
        if (label[a] >= net->labels) net->labels = label[a] + 1;
    }
}

/* Node i refers to a tensor of the caller. */
TNI_COLD_FN void tni_net_refer(tn_net *net, int i, tn_tensor *t, const int *label)
{
    net->node[i].tensor = t;
    tni_net_label(net, &net->node[i], t->rank, label);
}

/* Node i has an owned tensor, which it takes over; false where that is NULL. */
TNI_COLD_FN bool tni_net_put(tn_net *net, int i, tn_tensor *t, const int *label)
{
    tni_net_share *s = t ? (tni_net_share *)tni_alloc(net->ctx, sizeof *s, "net") : NULL;
    if (!s) return tn_tensor_destroy(t), false;
    s->tensor = t;
    s->users = 1;
    tni_net_box_of(net)->share[i] = s;
    tni_net_refer(net, i, t, label);
    return true;
}

/* An owned copy in the context's dtype, times factor. */
TNI_COLD_FN tn_tensor *tni_net_copy(tn_ctx *ctx, const tn_tensor *t, double factor)
{
    tn_tensor *to = t ? tn_tensor_create(ctx, TN_REAL, t->rank, t->shape) : NULL;
    if (!to) return NULL;
    return tni_tensor_done(to, factor == 1 ? tni_copy(to, t) : tni_put_scaled(ctx, tni_view(to), tni_view(t), factor));
}

/* Node i is node j of `from`, its labels moved up by `shift`. */
TNI_COLD_FN void tni_net_take(tn_net *net, int i, const tn_net *from, int j, int shift)
{
    const tn_net_node *node = &from->node[j];
    tni_net_share     *s = tni_net_box_of(from)->share[j];
    int                label[TN_MAX_RANK];
    for (int a = 0; a < node->tensor->rank; a++) label[a] = node->label[a] + shift;
    tni_net_box_of(net)->share[i] = s;
    if (s) s->users++;
    tni_net_refer(net, i, node->tensor, label);
}

TNI_COLD_FN void tni_net_take_all(tn_net *net, int at, const tn_net *from, int shift)
{
    for (int j = 0; j < from->nodes; j++) tni_net_take(net, at + j, from, j, shift);
}

/* All nodes and legs of a net, except for input leg `without`, and place for `more` nodes; without = -1: all legs. */
TNI_COLD_FN tn_net *tni_net_like(const tn_net *from, int more, int without)
{
    tn_net *net = tni_net_make(from->ctx, from->nodes + more, from->outs, from->legs - (without >= 0));
    int     to = 0;
    if (!net) return NULL;
    tni_net_take_all(net, 0, from, 0);
    net->constant = from->constant;
    for (int k = 0; k < from->outs; k++) net->out[k] = from->out[k];
    for (int k = 0; k < from->legs; k++) if (k != without) net->in[to++] = from->in[k];
    return net;
}

/* A label for messages: the letter that tn_net_create reads, or a number. */
typedef struct tni_net_name { char s[24]; } tni_net_name;

static tni_net_name tni_net_name_of(int label)
{
    tni_net_name n;
    if (label >= 52) tni_print(n.s, sizeof n.s, "%d", label);
    else tni_print(n.s, sizeof n.s, "%c", label < 26 ? 'a' + label : 'A' + label - 26);
    return n;
}

/* Fills in the extents of legs and numbers the inputs in the order of their first legs. Returns the net, or destroys it if
   it is not whole or contradicts itself. */
TNI_COLD_FN tn_net *tni_net_done(tn_net *net, bool whole, const char *op)
{
    int j, inputs = 0;
    if (!net) return NULL;
    tni_scratch w = tni_scratch_begin(net->ctx, op);
    int64_t    *extent = whole ? (int64_t *)tni_take(&w, net->labels, sizeof *extent) : NULL;
    whole = extent != NULL;
    for (int i = 0; whole && i < net->labels; i++) extent[i] = -1;
    for (int i = 0; whole && i < net->nodes; i++)
        for (int a = 0; whole && a < net->node[i].tensor->rank; a++) {
            const int l = net->node[i].label[a];
            const int64_t n = net->node[i].tensor->shape[a];
            whole = extent[l] < 0 || extent[l] == n;
            if (whole) extent[l] = n;
            else tni_fail(net->ctx, TN_ERR_SHAPE, "%s: axis %d of node %d, %s, has label %s, whose extent is %lld in an "
                          "earlier node, expected the same", op, a, i, TNI_SHAPE(net->node[i].tensor),
                          tni_net_name_of(l).s, (long long)extent[l]);
        }
    for (int k = 0; whole && k < net->outs + net->legs; k++) {       /* in follows out */
        tn_net_leg *leg = &net->out[k];
        for (j = 0; j < k && net->out[j].label != leg->label; j++) continue;
        if (j < k || extent[leg->label] < 0) {
            tni_fail(net->ctx, TN_ERR_ARG, "%s: label %s of a leg is %s", op, tni_net_name_of(leg->label).s,
                     j < k ? "that of another leg, expected distinct ones" : "not one of a node");
            whole = false;
        } else leg->extent = extent[leg->label];
    }
    for (int k = 0; whole && k < net->legs; k++) {                   /* numbers -1, -2, .. until all are set */
        tn_net_leg *leg = &net->in[k];
        const int   input = leg->input;
        if (input < 0) continue;
        for (inputs++, j = k; whole && j < net->legs; j++) {
            if (net->in[j].input != input) continue;
            net->in[j].input = -inputs;
            if (net->in[j].extent == leg->extent) continue;
            tni_fail(net->ctx, TN_ERR_SHAPE, "%s: leg %d has extent %lld, expected %lld as leg %d of the same input", op, j,
                     (long long)net->in[j].extent, (long long)leg->extent, k);
            whole = false;
        }
        if (whole && net->constant && leg->extent < 1) {
            tni_fail(net->ctx, TN_ERR_SHAPE, "%s: leg %d has extent 0, expected 1 or more for the constant one", op, k);
            whole = false;
        }
    }
    for (int k = 0; whole && k < net->legs; k++) net->in[k].input = -1 - net->in[k].input;
    tni_scratch_release(&w, NULL);
    if (whole) return net;
    return tn_net_destroy(net), (tn_net *)NULL;
}

static bool tni_net_leg_given(const tn_net *net, int leg, const char *op)
{
    if (leg >= 0 && leg < net->legs) return true;
    return tni_fail(net->ctx, TN_ERR_ARG, "%s: leg is %d, expected one of the net's %d input legs, which count from 0", op, leg,
                    net->legs), false;
}

/* ---- made from arrays ------------------------------------------------------- >>net-expression */

typedef struct tni_net_text { const char *text; int at; } tni_net_text;

static char tni_net_peek(tni_net_text *t)
{
    while (t->text[t->at] == ' ') t->at++;
    return t->text[t->at];
}

static int tni_net_letter_of(char c)
{
    return c >= 'a' && c <= 'z' ? c - 'a' : c >= 'A' && c <= 'Z' ? c - 'A' + 26 : -1;
}

/* Reads letters, at most `max`; returns their number. */
static int tni_net_letters(tni_net_text *t, int max, int *label)
{
    int n = 0;
    while (n < max && tni_net_letter_of(tni_net_peek(t)) >= 0) label[n++] = tni_net_letter_of(t->text[t->at++]);
    return n;
}

TNI_COLD tn_net *tn_net_create(tn_ctx *ctx, const char *expression, int n, tn_tensor *const *tensors, tn_net_nodes nodes)
{
    int          label[52], legs[52], input[52], ins = 0, inputs = 0, i;
    bool         whole = true;
    tni_net_text t;
    if (!tni_within(ctx, "net_create", "n", n, 1, INT64_MAX)) return NULL;
    if (!expression || !tensors)
        return tni_fail(ctx, TN_ERR_ARG, "net_create: %s is NULL", expression ? "tensors" : "the expression"), (tn_net *)NULL;
    if ((unsigned)nodes > TN_NET_REFER)
        return tni_fail(ctx, TN_ERR_ARG, "net_create: nodes is %d, not a valid tn_net_nodes", (int)nodes), (tn_net *)NULL;
    for (i = 0; i < n; i++) if (!tni_is_real(ctx, tensors[i], "net_create", "a tensor")) return NULL;
    t.text = expression;
    t.at = 0;
    for (i = 0; i < n; i++) {                                        /* the nodes, to find the legs after them */
        int k = tni_net_letters(&t, 52, label);
        if (tni_net_peek(&t) != (i < n - 1 ? ',' : '-'))
            return tni_fail(ctx, TN_ERR_ARG, "net_create: \"%s\", character %d: expected %s after the labels of tensor %d of "
                            "%d", expression, t.at + 1, i < n - 1 ? "a comma" : "\"->\"", i, n), (tn_net *)NULL;
        if (k != tensors[i]->rank)
            return tni_fail(ctx, TN_ERR_SHAPE, "net_create: \"%s\", character %d: %d label%s for tensor %d, which is %s",
                            expression, t.at + 1, k, k == 1 ? "" : "s", i, TNI_SHAPE(tensors[i])), (tn_net *)NULL;
        t.at++;
    }
    whole = t.text[t.at] == '>';
    if (whole) t.at++;
    int outs = whole ? tni_net_letters(&t, 52, legs) : 0;
    while (whole && tni_net_peek(&t) == '|') {
        t.at++;
        int k = tni_net_letters(&t, 52 - outs - ins, legs + outs + ins);
        for (i = 0; i < k; i++) input[ins + i] = inputs;
        ins += k;
        inputs++;
    }
    if (!whole || tni_net_peek(&t) != 0)
        return tni_fail(ctx, TN_ERR_ARG, "net_create: \"%s\", character %d: expected %s", expression, t.at + 1,
                        whole ? "letters, '|' or the end" : "\"->\""), (tn_net *)NULL;
    tn_net *net = tni_net_make(ctx, n, outs, ins);
    if (!net) return NULL;
    for (int k = 0; k < outs + ins; k++) {
        net->out[k].label = legs[k];
        if (legs[k] >= net->labels) net->labels = legs[k] + 1;
    }
    for (int k = 0; k < ins; k++) net->in[k].input = input[k];
    for (t.at = 0, i = 0; i < n && whole; i++) {
        tni_net_letters(&t, 52, label);
        if (nodes == TN_NET_REFER) tni_net_refer(net, i, tensors[i], label);
        else whole = tni_net_put(net, i, tni_net_copy(ctx, tensors[i], 1), label);
        tni_net_peek(&t);
        t.at++;
    }
    return tni_net_done(net, whole, "net_create");
}

/* ---- nets from nets --------------------------------------------------------- >>net-changing-impl */

TNI_COLD_FN tn_net *tni_net_compose(const tn_net *outer, const tn_net *inner, const char *op)
{
    const int64_t nodes = outer->nodes + (int64_t)outer->legs * inner->nodes;
    const int64_t labels = outer->labels + (int64_t)outer->legs * inner->labels;
    int           at, inputs = 0;
    if (outer->ctx != inner->ctx)
        return tni_fail(outer->ctx, TN_ERR_ARG, "%s: the nets are of two contexts, expected one", op), (tn_net *)NULL;
    if (inner->outs != 1)
        return tni_fail(outer->ctx, TN_ERR_SHAPE, "%s: inner has %d output legs, expected 1", op, inner->outs), (tn_net *)NULL;
    if (nodes > 1 << 20 || labels > 1 << 20)
        return tni_fail(outer->ctx, TN_ERR_ARG, "%s: %lld nodes and %lld labels, expected at most 2^20 of each", op,
                        (long long)nodes, (long long)labels), (tn_net *)NULL;
    for (int k = 0; k < outer->legs; k++)
        if (outer->in[k].extent != inner->out[0].extent)
            return tni_fail(outer->ctx, TN_ERR_SHAPE, "%s: inner has %lld outputs, expected %lld as leg %d of outer has "
                            "elements%s", op, (long long)inner->out[0].extent, (long long)outer->in[k].extent, k,
                            outer->constant ? ", the constant one included (tn_net_from_stack passes it on)" : ""),
                   (tn_net *)NULL;
    tn_net *net = tni_net_make(outer->ctx, (int)nodes, outer->outs, outer->legs * inner->legs);
    if (!net) return NULL;
    net->constant = inner->constant;
    net->labels = (int)labels;
    tni_net_take_all(net, 0, outer, 0);
    for (int k = 0; k < outer->outs; k++) net->out[k] = outer->out[k];
    for (int j = 0; j < inner->legs; j++) if (inner->in[j].input >= inputs) inputs = inner->in[j].input + 1;
    for (int k = 0; k < outer->legs; k++) {
        const int shift = outer->labels + k * inner->labels, joined = inner->out[0].label + shift;
        tni_net_take_all(net, at = outer->nodes + k * inner->nodes, inner, shift);
        for (; at < outer->nodes + (k + 1) * inner->nodes; at++)
            for (int a = 0; a < net->node[at].tensor->rank; a++)
                if (net->node[at].label[a] == joined) net->node[at].label[a] = outer->in[k].label;
        for (int j = 0; j < inner->legs; j++) {
            tn_net_leg *leg = &net->in[k * inner->legs + j];
            leg->label = inner->in[j].label + shift;
            leg->input = outer->in[k].input * inputs + inner->in[j].input;
        }
    }
    return tni_net_done(net, true, op);
}

tn_net *tn_net_compose(const tn_net *outer, const tn_net *inner)
{
    if (outer && inner) return tni_net_compose(outer, inner, "net_compose");
    if (outer || inner)
        tni_fail(outer ? outer->ctx : inner->ctx, TN_ERR_ARG, "net_compose: %s is NULL", outer ? "inner" : "outer");
    return NULL;
}

tn_net *tn_net_fix(const tn_net *net, int leg, const tn_tensor *u)
{
    if (!net || !tni_net_leg_given(net, leg, "net_fix")
        || !tni_is_vector(net->ctx, u, net->in[leg].extent, "net_fix", "u")) return NULL;
    tn_net *to = tni_net_like(net, 1, leg);
    return tni_net_done(to, to && tni_net_put(to, net->nodes, tni_net_copy(net->ctx, u, 1), &net->in[leg].label),
                        "net_fix");
}

/* [e b; 0 1], without b and without the last row or column where they are not needed */
static tn_tensor *tni_net_map(tn_ctx *ctx, const tn_tensor *e, const tn_tensor *b, bool row, bool column)
{
    const int64_t m = e->shape[0], n = e->shape[1];
    tn_tensor    *to = tni_owned_2d(ctx, m + row, n + column);
    tn_status     s = to ? tni_put_copy(ctx, tni_block_of(to, 0, m, 0, n), tni_view(e)) : TN_ERR_MEMORY;
    if (s == TN_OK && b) s = tni_put_copy(ctx, tni_block_of(to, 0, m, n, 1), tni_column_view(b));
    if (s == TN_OK && row) s = tni_put_value(ctx, tni_block_of(to, m, 1, n, 1), 1);
    return tni_tensor_done(to, s);
}

tn_net *tn_net_fold_in(const tn_net *net, int leg, const tn_tensor *e, const tn_tensor *b)
{
    const int first = leg == TN_NET_ALL ? 0 : leg, count = leg == TN_NET_ALL && net ? net->legs : 1;
    int       label[2];
    if (!net || !tni_net_leg_given(net, first, "net_fold_in")
        || !tni_is_matrix(net->ctx, e, "net_fold_in", "e")) return NULL;
    int64_t m = net->in[first].extent - net->constant;
    for (int k = 0; k < count; k++)
        if (e->shape[0] != net->in[first + k].extent - net->constant)
            return tni_fail(net->ctx, TN_ERR_SHAPE, "net_fold_in: e is %s, expected %lld rows as leg %d has elements%s",
                            TNI_SHAPE(e), (long long)net->in[first + k].extent - net->constant, first + k,
                            net->constant ? " without the one" : ""), (tn_net *)NULL;
    if (b && !tni_is_vector(net->ctx, b, m, "net_fold_in", "b")) return NULL;
    if (b && !net->constant && leg != TN_NET_ALL)
        return tni_fail(net->ctx, TN_ERR_ARG, "net_fold_in: b is given for leg %d alone, but the net has no constant input",
                        leg), (tn_net *)NULL;
    tn_net *to = tni_net_like(net, count, -1);
    bool    whole = to != NULL;
    for (int k = 0; k < count && whole; k++) {
        label[0] = to->in[first + k].label;
        label[1] = to->in[first + k].label = to->labels;
        if (k == 0) {
            tn_tensor *map = tni_net_map(net->ctx, e, b, net->constant, net->constant || b);
            whole = tni_net_put(to, net->nodes, map, label);
        } else {
            tni_net_take(to, net->nodes + k, to, net->nodes, 0);
            tni_net_label(to, &to->node[net->nodes + k], 2, label);
        }
    }
    if (to && b) to->constant = true;
    if (to && leg != TN_NET_ALL) to->in[leg].input = net->legs;      /* an input of its own */
    return tni_net_done(to, whole, "net_fold_in");
}

tn_net *tn_net_fold_out(const tn_net *net, const tn_tensor *u)
{
    if (!net || !tni_is_matrix(net->ctx, u, "net_fold_out", "u")) return NULL;
    if (net->outs != 1)
        return tni_fail(net->ctx, TN_ERR_SHAPE, "net_fold_out: the net has %d output legs, expected 1", net->outs),
                   (tn_net *)NULL;
    if (u->shape[1] != net->out[0].extent)
        return tni_fail(net->ctx, TN_ERR_SHAPE, "net_fold_out: u is %s, expected %lld columns, the net's outputs", TNI_SHAPE(u),
                        (long long)net->out[0].extent), (tn_net *)NULL;
    tn_net *to = tni_net_like(net, 1, -1);
    int     label[2] = {net->labels, net->out[0].label};
    if (to) to->out[0].label = label[0];
    return tni_net_done(to, to && tni_net_put(to, net->nodes, tni_net_copy(net->ctx, u, 1), label), "net_fold_out");
}

#endif /* TN_NO_CONTRACTION */
#endif /* TN_NO_OPERATOR */
