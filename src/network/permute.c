#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/ops.h"
#include "algebra/inner.h"
#include "network/inner.h"

#ifndef TN_NO_OPERATOR
#ifndef TN_NO_CONTRACTION
/* ---- permutations that give the same contraction --------------------------------- >>net-permutations
   <Sym A, B> is a mean over the orders in which the legs of a meet those of b. Two orders give the same number if the joined
   networks are isomorphic: nodes are mapped to nodes with equal tensors and labels to labels. So orders are counted by class:
   while leg after leg of b meets one of a, legs of a are alternatives only if no automorphism of what is joined so far maps
   one to the other, and of finished networks one of each class is kept. Networks whose nodes only have equal shapes share a
   plan in the same way.
   Colours of nodes and labels are refined by those of their neighbours (Weisfeiler & Leman 1968) and narrow the search for a
   map, which decides. Where this gives up after some steps for each node, two orders count as different, which costs time alone.
   Before that, groups of nodes that carry two or more legs of one input are contracted and symmetrised if they are small:
   permutations of these legs are automorphisms then. */

enum { TNI_NET_ROUNDS = 8, TNI_NET_STEPS = 4, TNI_NET_MATCHED = 512, TNI_NET_DENSE = 1 << 18 };

static uint64_t tni_net_mix(uint64_t x)                              /* the finaliser of splitmix64 */
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* The hash of what makes nodes equal: the shape and classes of axes, and with numbers also these. */
TNI_COLD_FN uint64_t tni_net_hash(const tni_net_part *n, const double *numbers)
{
    uint64_t      h = 0;
    const int64_t count = numbers ? tn_tensor_count(n->tensor) : 0;
    for (int a = 0; a < n->tensor->rank; a++) h = tni_net_mix(h + (uint64_t)n->tensor->shape[a] * 64 + n->axis[a] + 1);
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits;
        memcpy(&bits, numbers + i, sizeof bits);
        h = tni_net_mix(h ^ bits);
    }
    return h;
}

/* Colours by the tensors themselves, or by their shapes; the labels' seeds are in `seed`. Returns the hash of the whole. */
TNI_COLD_FN uint64_t tni_net_refine(tni_net_joined *g, bool shapes)
{
    uint64_t hash = 0;
    for (int i = 0; i < g->nodes; i++) g->color[i] = tni_net_mix(shapes ? g->part[i].form : (uint64_t)g->part[i].same + 1);
    memcpy(g->edge, g->seed, sizeof *g->edge * (size_t)g->labels);
    for (int round = 0; round < TNI_NET_ROUNDS; round++) {
        for (int l = 0; l < g->labels; l++) g->next[l] = tni_net_mix(g->edge[l]);
        for (int i = 0; i < g->nodes; i++)
            for (int a = 0; a < g->part[i].tensor->rank; a++)
                g->next[g->label[i][a]] += tni_net_mix(g->color[i] + g->part[i].axis[a] + 1);
        memcpy(g->edge, g->next, sizeof *g->edge * (size_t)g->labels);
        for (int i = 0; i < g->nodes; i++) {
            uint64_t sum = g->color[i];
            for (int a = 0; a < g->part[i].tensor->rank; a++)
                sum += tni_net_mix(g->edge[g->label[i][a]] ^ (uint64_t)(g->part[i].axis[a] + 1));
            g->color[i] = tni_net_mix(sum);
        }
    }
    for (int i = 0; i < g->nodes; i++) hash += tni_net_mix(g->color[i]);
    return hash;
}

TNI_COLD_FN bool tni_net_alike(const tni_net_part *p, const tni_net_part *q)
{
    const size_t rank = (size_t)p->tensor->rank;
    return p->form == q->form && p->tensor->rank == q->tensor->rank && memcmp(p->axis, q->axis, rank) == 0
           && memcmp(p->tensor->shape, q->tensor->shape, rank * sizeof *p->tensor->shape) == 0;
}

static bool tni_net_map_node(tni_net_mapping *m);

/* Maps axis a of node i and what follows, in all ways that the classes of axes allow. `taken` are axes of its image. */
static bool tni_net_map_axis(tni_net_mapping *m, int i, int a, unsigned taken)
{
    const tni_net_joined *f = m->from, *t = m->to;
    const int             j = m->node[i];
    if (a == f->part[i].tensor->rank) return tni_net_map_node(m);
    for (int b = 0; b < t->part[j].tensor->rank; b++) {
        const int  x = f->label[i][a], y = t->label[j][b];
        const bool set = m->label[x] < 0;
        if (taken >> b & 1 || f->part[i].axis[a] != t->part[j].axis[b] || f->edge[x] != t->edge[y]) continue;
        if (set ? m->back[y] >= 0 : m->label[x] != y) continue;
        m->label[x] = y;
        m->back[y] = x;
        if (tni_net_map_axis(m, i, a + 1, taken | 1u << b)) return true;
        if (set) m->label[x] = m->back[y] = -1;
    }
    return false;
}

/* Maps the nodes that are left: next one that shares labels with those that are mapped, so that mistakes show soon. */
static bool tni_net_map_node(tni_net_mapping *m)
{
    const tni_net_joined *f = m->from, *t = m->to;
    int                   i = -1, most = -1;
    for (int k = 0; k < f->nodes; k++) {
        int known = 0;
        if (m->node[k] >= 0) continue;
        for (int a = 0; a < f->part[k].tensor->rank; a++) known += m->label[f->label[k][a]] >= 0;
        if (known > most) most = known, i = k;
    }
    if (i < 0) return true;
    if (++m->steps > TNI_NET_STEPS * f->nodes) return false;
    for (int j = 0; j < t->nodes; j++) {
        const tni_net_part *p = &f->part[i], *q = &t->part[j];
        if (m->used[j] || f->color[i] != t->color[j]) continue;
        if (m->shapes ? !tni_net_alike(p, q) : p->same != q->same) continue;
        m->node[i] = j;
        m->used[j] = true;
        if (tni_net_map_axis(m, i, 0, 0)) return true;
        m->used[j] = false;
    }
    m->node[i] = -1;
    return false;
}

/* Whether a map takes `from` to `to`, and label x to y (-1: any); m->node[i] is then the image of node i. */
TNI_COLD_FN bool tni_net_maps(tni_net_mapping *m, const tni_net_joined *from, const tni_net_joined *to, bool shapes, int x, int y)
{
    if (from->nodes != to->nodes || from->labels != to->labels || from->nodes > TNI_NET_MATCHED) return false;
    m->from = from;
    m->to = to;
    m->shapes = shapes;
    m->steps = 0;
    memset(m->used, 0, sizeof *m->used * (size_t)to->nodes);
    for (int i = 0; i < from->nodes; i++) m->node[i] = -1;
    for (int l = 0; l < from->labels; l++) m->label[l] = m->back[l] = -1;
    if (x >= 0) m->label[x] = y, m->back[y] = x;
    return tni_net_map_node(m);
}

/* ---- small groups of nodes as one ------------------------------------------------ >>net-merging */

/* The axis of T of label l as a leg: its input, or -1 where it is not a leg. */
static int tni_net_input_of(const tn_net *net, int l)
{
    for (int k = 0; k < net->legs; k++) if (net->in[k].label == l) return net->in[k].input;
    return -1;
}

/* Whether label l is one of the result of the nodes in the group: nodes outside or legs have it. */
static bool tni_net_outside(const tn_net *net, const bool *in, int l)
{
    for (int k = 0; k < net->outs + net->legs; k++) if (net->out[k].label == l) return true;       /* in follows out */
    for (int i = 0; i < net->nodes; i++)
        for (int a = 0; a < net->node[i].tensor->rank && !in[i]; a++) if (net->node[i].label[a] == l) return true;
    return false;
}

/* Contracts the nodes in the group to one that is symmetric in the legs of each input. False if it would be large, or has no
   two legs of an input that are not symmetric yet. */
static bool tni_net_merge(tn_net *net, tni_net_part *part, const bool *in, tn_status *s)
{
    tn_tensor *t, *tensor[TN_MAX_RANK];
    const int *label[TN_MAX_RANK];
    int        out[TN_MAX_RANK], input[TN_MAX_RANK], of[TN_MAX_RANK], rank = 0, n = 0, k, to, first = -1;
    int64_t    count = 1;
    bool       worth = false;
    for (int i = 0; i < net->nodes; i++) {
        if (!in[i]) continue;
        if (n == TN_MAX_RANK) return false;
        if (first < 0) first = i;
        tensor[n] = net->node[i].tensor;
        label[n++] = net->node[i].label;
        for (int a = 0; a < net->node[i].tensor->rank; a++) {
            const int l = net->node[i].label[a];
            for (k = 0; k < rank && out[k] != l; k++) continue;
            if (k < rank || !tni_net_outside(net, in, l)) continue;
            count *= net->node[i].tensor->shape[a];
            if (rank == TN_MAX_RANK || count > TNI_NET_DENSE) return false;
            out[rank] = l;
            of[rank] = i * TN_MAX_RANK + part[i].axis[a];
            input[rank++] = tni_net_input_of(net, l);
            for (k = 0; k < rank - 1; k++)
                worth = worth || (input[k] >= 0 && input[k] == input[rank - 1] && of[k] != of[rank - 1]);
        }
    }
    if (!worth) return false;
    t = tn_einsum_labels(net->ctx, n, tensor, label, rank, out);
    for (k = 0; k < rank && t; k++) {               /* the mean over axis k at its own place and at those of the ones before */
        tn_tensor *sum = t;
        int        places = 1;
        for (int j = 0; j < k && sum; j++)
            if (input[k] >= 0 && input[j] == input[k]) sum = tn_add(net->ctx, sum, tn_transpose(t, j, k)), places++;
        t = places > 1 && sum ? tn_scale(net->ctx, sum, 1.0 / places) : sum;
    }
    if (!t) return *s = tn_ctx_status(net->ctx), false;
    for (to = 0, n = 0; n < net->nodes; n++) {
        if (in[n] && n != first) continue;
        net->node[to] = net->node[n];
        part[to] = part[n];
        if (n == first) {
            net->node[to].tensor = part[to].tensor = t;
            memcpy(net->node[to].label, out, sizeof *out * (size_t)rank);
            for (k = 0; k < rank; k++)
                for (part[to].axis[k] = 0; part[to].axis[k] < k; part[to].axis[k]++)
                    if (input[k] >= 0 && input[part[to].axis[k]] == input[k]) break;
        }
        to++;
    }
    net->nodes = to;
    return true;
}

/* Merges what can be: single nodes, and nodes that share a label. `in` has place for all nodes. */
TNI_COLD_FN tn_status tni_net_merge_all(tn_net *net, tni_net_part *part, bool *in)
{
    tn_status s = TN_OK;
    for (int l = -net->nodes; l < net->labels && s == TN_OK; l++) {
        bool any = false;
        if (net->nodes > TNI_NET_MATCHED) break;
        for (int i = 0; i < net->nodes; i++) {
            in[i] = l == -1 - i;
            for (int a = 0; a < net->node[i].tensor->rank; a++) in[i] = in[i] || net->node[i].label[a] == l;
            any = any || in[i];
        }
        if (any && tni_net_merge(net, part, in, &s)) l = -1 - net->nodes;          /* begins again */
    }
    return s;
}

#endif /* TN_NO_CONTRACTION */
#endif /* TN_NO_OPERATOR */
