#include "core/inner.h"
#include "decomp/inner.h"
#include "layers/layers.h"
#include "operator/inner.h"
#include "analysis/inner.h"
#include "io/inner.h"
#include "models/models.h"
#include "circuits/inner.h"

#ifndef TN_NO_CIRCUITS
/* ---- paths, best first -------------------------------------------------- >>circuits-search-impl
   A node reads the residual stream x at a position through a covector c, and its value is c . x. Since x is the sum of its
   sources and of what all heads and MLPs before it add, so is the value: a part c . x_source is a path, one c . (what is
   added) is the value of the node that reads what that head or MLP reads, through

       head:  c' = r1 (V^T O^T c) P_ts      MLP:  c' = r2 sum_e F_e^T (gate_e * P^T c)

   All in double on the host. Stage 2l is the input of block l's attention, 2l + 1 that of its MLP, 2 layers the end. */

#define TNI_FLAT(X) X(pattern) X(norm1_scale) X(norm2_scale) X(v) X(o) X(ob) X(w) X(p) X(pb) X(gate) X(values) X(added)
#define TNI_FLAT_MEMBER(name) double *name;
typedef struct tni_flat_block { TNI_FLAT(TNI_FLAT_MEMBER) } tni_flat_block;
#undef TNI_FLAT_MEMBER

typedef struct tni_path_search {
    tn_ctx                  *ctx;
    const tn_circuit_frozen *f;
    tni_scratch w;              /* has all that follows but the lists                           */
    int64_t  T, n, layers, heads, d_v;
    tni_flat_block *block;      /* [layers]                                                     */
    double  *source;            /* [sources,T,n+1]                                              */
    double  *one;               /* [2 layers + 1,T,n] what the constant has added so far        */
    tni_list nodes, heap;       /* tn_circuit_node; int64_t: open nodes, largest |value| first  */
    tni_list slot, covector;    /* int64_t of each node: its covector or -1; double *           */
} tni_path_search;

static int64_t *tni_index_at(const tni_list *l, size_t i) { return (int64_t *)l->items + i; }
static tn_circuit_node *tni_node_at(const tni_path_search *s, int64_t i) { return (tn_circuit_node *)s->nodes.items + i; }

static double tni_urgency(const tni_path_search *s, const void *node)
{
    return fabs(tni_node_at(s, *(const int64_t *)node)->value);
}

static bool tni_more_urgent(const void *s, const void *a, const void *b)
{
    return tni_urgency((const tni_path_search *)s, a) > tni_urgency((const tni_path_search *)s, b);
}

static bool tni_search_add(tni_path_search *s, double value, int64_t next, int64_t position, int64_t block, int head)
{
    const int64_t    i = (int64_t)s->nodes.count;
    tn_circuit_node *node = (tn_circuit_node *)tni_list_add(s->ctx, &s->nodes, "circuit_paths");
    int64_t         *slot = node ? (int64_t *)tni_list_add(s->ctx, &s->slot, "circuit_paths") : NULL;
    if (!slot) return false;
    node->value = value;
    node->next = next;
    node->position = position;
    node->block = (int32_t)block;
    node->head = head;
    *slot = -1;
    if (head == TN_CIRCUIT_SOURCE) return true;
    if (!(slot = (int64_t *)tni_list_add(s->ctx, &s->heap, "circuit_paths"))) return false;
    *slot = i;
    tni_queue_up(&s->heap, tni_more_urgent, s);
    return true;
}

static void tni_axpy(double *y, double a, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] += a * x[i];
}

TNI_FN double tni_dot_f64(const double *x, const double *y, int64_t n)
{
    double  a = 0, b = 0, c = 0, d = 0;
    int64_t i;
    for (i = 0; i + 4 <= n; i += 4) {
        a += x[i] * y[i]; b += x[i + 1] * y[i + 1]; c += x[i + 2] * y[i + 2]; d += x[i + 3] * y[i + 3];
    }
    for (; i < n; i++) a += x[i] * y[i];
    return a + b + (c + d);
}

TNI_FN double tni_distance_f64(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (x[i] - y[i]) * (x[i] - y[i]);
    return sqrt(sum);
}

TNI_FN int64_t tni_node_stage(const tn_circuit_frozen *f, const tn_circuit_node *node)
{
    return node->head == TN_CIRCUIT_TARGET ? 2 * f->layers : 2 * (int64_t)node->block + (node->head == TN_CIRCUIT_MLP);
}

/* The product of the blocks' `keep` between what is added in block l and stage j */
TNI_FN double tni_frozen_kept(const tn_circuit_frozen *f, int64_t l, int64_t j)
{
    double k = 1;
    for (l++; l <= tni_min(j / 2, f->layers - 1); l++) k *= f->block[l].keep;
    return k;
}

/* The factor that sources have at stage j */
TNI_FN double tni_frozen_first(const tn_circuit_frozen *f, int64_t j)
{
    double k = 1;
    for (int64_t l = 0; l <= tni_min(j / 2, f->layers - 1); l++) k = k * f->block[l].keep + f->block[l].again;
    return k;
}

/* The covector of a node [n+1], from that of the node after it. */
static bool tni_search_covector(tni_path_search *s, int64_t i, double *work)
{
    const tn_circuit_node *node = tni_node_at(s, i), *next = tni_node_at(s, node->next);
    const tni_flat_block  *b = &s->block[node->block];
    const int64_t n = s->n, T = s->T, h = node->head, width = s->heads * s->d_v;
    const double *c = *((double **)s->covector.items + *tni_index_at(&s->slot, (size_t)node->next));
    const double  kept = tni_frozen_kept(s->f, node->block, tni_node_stage(s->f, next));
    double       *made = tni_take_zeros(&s->w, n + 1, 1), **at, r;
    if (!made) return false;
    if (h >= 0) {
        r = kept * b->pattern[(h * T + next->position) * T + node->position];
        memset(work, 0, (size_t)s->d_v * sizeof *work);
        for (int64_t k = 0; k < n; k++) tni_axpy(work, c[k] * r, b->o + k * width + h * s->d_v, s->d_v);
        for (int64_t k = 0; k < s->d_v; k++) tni_axpy(made, work[k], b->v + (h * s->d_v + k) * (n + 1), n + 1);
        r = b->norm1_scale[node->position];
    } else {
        const tn_circuit_frozen_block *given = &s->f->block[node->block];
        int64_t                        hidden = given->p->shape[1];
        memset(work, 0, (size_t)(hidden + 1) * sizeof *work);
        for (int64_t k = 0; k < n; k++) tni_axpy(work, kept * c[k], b->p + k * hidden, hidden);
        if (b->pb) work[hidden] = kept * tni_dot_f64(c, b->pb + node->position * n, n);
        for (int64_t e = 0; e < given->w->shape[0]; e++)
            for (int64_t k = 0; k <= hidden; k++)
                tni_axpy(made, work[k] * b->gate[(e * T + node->position) * (hidden + 1) + k],
                         b->w + (e * (hidden + 1) + k) * (n + 1), n + 1);
        r = b->norm2_scale[node->position];
    }
    for (int64_t k = 0; k < n; k++) made[k] *= r;
    if (!(at = (double **)tni_list_add(s->ctx, &s->covector, "circuit_paths"))) return false;
    *at = made;
    *tni_index_at(&s->slot, (size_t)i) = (int64_t)s->covector.count - 1;
    return true;
}

/* Adds the sources and all that is added to the stream before what node i reads. work [heads d_v] */
static bool tni_search_expand(tni_path_search *s, int64_t i, double *work)
{
    const tn_circuit_node node = *tni_node_at(s, i);
    const int64_t n = s->n, T = s->T, t = node.position, j = tni_node_stage(s->f, &node), width = s->heads * s->d_v;
    const double *c = *((double **)s->covector.items + *tni_index_at(&s->slot, (size_t)i));
    for (int64_t k = 0; k < s->f->sources; k++) {
        const bool one = s->f->constant && k == s->f->sources - 1;
        double     value = one ? c[n] + tni_dot_f64(c, s->one + (j * T + t) * n, n)
                    : tni_frozen_first(s->f, j) * tni_dot_f64(c, s->source + (k * T + t) * (n + 1), n);
        if (!tni_search_add(s, value, i, t, k, TN_CIRCUIT_SOURCE)) return false;
    }
    for (int64_t l = 0; 2 * l < j; l++) {
        const tni_flat_block *b = &s->block[l];
        const double          kept = tni_frozen_kept(s->f, l, j);
        memset(work, 0, (size_t)width * sizeof *work);
        for (int64_t k = 0; k < n; k++) tni_axpy(work, kept * c[k], b->o + k * width, width);
        for (int64_t h = 0; h < s->heads; h++) for (int64_t at = 0; at < T; at++) {
            double p;
            if ((p = b->pattern[(h * T + t) * T + at]) == 0) continue;
            double value = p * tni_dot_f64(work + h * s->d_v, b->values + (at * s->heads + h) * s->d_v, s->d_v);
            if (!tni_search_add(s, value, i, at, l, (int)h)) return false;
        }
        if (2 * l + 1 < j
            && !tni_search_add(s, kept * tni_dot_f64(c, b->added + t * n, n), i, t, l, TN_CIRCUIT_MLP)) return false;
    }
    return true;
}

/* What the constant has added to the stream at each stage. */
static void tni_search_streams(tni_path_search *s)
{
    const int64_t each = s->T * s->n, n = s->n;
    const double *start = s->source + (s->f->sources - 1) * s->T * (n + 1);
    for (int64_t l = 0; l <= s->layers && s->f->constant; l++) {
        double *now = s->one + 2 * l * each, *middle = now + each;
        const double again = l < s->layers ? s->f->block[l].again : 0, kept = l < s->layers ? s->f->block[l].keep : 1;
        for (int64_t t = 0; t < s->T; t++) for (int64_t k = 0; k < n; k++)
            now[t * n + k] = kept * (l > 0 ? now[t * n + k - each] : start[t * (n + 1) + k])
                           + again * start[t * (n + 1) + k];
        if (l == s->layers) break;
        memcpy(middle, now, (size_t)each * sizeof *now);
        if (s->block[l].ob) tni_axpy(middle, 1, s->block[l].ob, each);
    }
}

/* The number of paths: of those that read each position, from the first block on. */
static double tni_search_count(tni_path_search *s, int64_t position)
{
    double *sum = tni_take_f64(&s->w, s->T, 1), *before = tni_take_f64(&s->w, s->T, 1);
    if (!before) return (double)NAN;
    for (int64_t t = 0; t < s->T; t++) sum[t] = s->f->sources;
    for (int64_t l = 0; l < s->layers; l++) {
        memcpy(before, sum, (size_t)s->T * sizeof *sum);
        for (int64_t h = 0; h < s->heads; h++) for (int64_t t = 0; t < s->T; t++) for (int64_t at = 0; at < s->T; at++)
            if (s->block[l].pattern[(h * s->T + t) * s->T + at] != 0) sum[t] += before[at];
        for (int64_t t = 0; t < s->T; t++) sum[t] *= 2;         /* each passes the MLP by, or through it */
    }
    return sum[position];
}

static bool tni_search_begin(tni_path_search *s, const tn_circuit_frozen *f)
{
    const tn_attention_desc *d = &f->model->blocks[0].attn.desc;
    memset(s, 0, sizeof *s);
    s->ctx = f->ctx;
    s->f = f;
    s->w = tni_scratch_begin(f->ctx, "circuit_paths");
    s->T = f->tokens; s->n = f->model->desc.dim; s->layers = f->layers; s->heads = d->heads; s->d_v = d->d_v;
    s->nodes.each = sizeof(tn_circuit_node);
    s->heap.each = s->slot.each = sizeof(int64_t);
    s->covector.each = sizeof(double *);
    s->block = (tni_flat_block *)tni_take_zeroed(&s->w, f->layers, sizeof *s->block);
    s->one = tni_take_zeros(&s->w, tni_plus(tni_area(2, f->layers), 1), tni_area(s->T, s->n));
    s->source = tni_take_numbers(&s->w, f->source);
    for (int64_t l = 0; l < f->layers && !s->w.failed; l++) {
        const tn_circuit_frozen_block *from = &f->block[l];
        tni_flat_block                *to = &s->block[l];
#define TNI_FLAT_READ(name) if (from->name) to->name = tni_take_numbers(&s->w, from->name);
        TNI_FLAT(TNI_FLAT_READ)
#undef TNI_FLAT_READ
    }
    if (!s->w.failed) tni_search_streams(s);
    return !s->w.failed;
}

static void tni_search_end(tni_path_search *s)
{
    tni_scratch_release(&s->w, NULL);
    tni_list_free(s->ctx, &s->heap);
    tni_list_free(s->ctx, &s->slot);
    tni_list_free(s->ctx, &s->covector);
    tni_list_free(s->ctx, &s->nodes);
}

/* Whether node i is a source or, on the other hand, open. */
static bool tni_search_lists(const tni_path_search *s, int64_t i, bool sources)
{
    const bool source = tni_node_at(s, i)->head == TN_CIRCUIT_SOURCE;
    return sources ? source : !source && *tni_index_at(&s->slot, (size_t)i) < 0;
}

/* The nodes of sources, or the open ones, by decreasing |value|; *sum: of their values. An array of at least one. */
static int64_t *tni_search_list(tni_path_search *s, bool sources, int64_t *count, double *sum)
{
    const int64_t nodes = (int64_t)s->nodes.count;
    int64_t       k = 0, i;
    for (i = 0; i < nodes; i++) k += tni_search_lists(s, i, sources);
    *count = k;
    int64_t *order = (int64_t *)tni_take(&s->w, k, sizeof *order), *more = (int64_t *)tni_take(&s->w, k, sizeof *more);
    int64_t *at = (int64_t *)tni_take(&s->w, k, sizeof *at);
    double  *key = tni_take_f64(&s->w, k, 1);
    int64_t *list = key ? (int64_t *)tni_array(s->ctx, k, sizeof *list, "circuit_paths") : NULL;
    if (!list) return NULL;
    for (*sum = 0, i = k = 0; i < nodes; i++) {
        if (!tni_search_lists(s, i, sources)) continue;
        key[k] = -fabs(tni_node_at(s, i)->value);
        at[k++] = i;
        *sum += tni_node_at(s, i)->value;
    }
    tni_sort_index(k, key, order, more);
    for (i = 0; i < k; i++) list[i] = at[order[i]];
    return list;
}

/* Expands nodes while the budget lasts. */
static bool tni_search_run(tni_path_search *s, double *target, const tn_circuit_target *aim, double whole,
                           int64_t budget, double least, int64_t *expanded)
{
    int64_t hidden = 1;
    for (int64_t l = 0; l < s->layers; l++) hidden = tni_max(hidden, s->f->block[l].p->shape[1]);
    double  *work = tni_take_f64(&s->w, tni_max(hidden + 1, tni_area(s->heads, s->d_v)), 1);
    double **at = work ? (double **)tni_list_add(s->ctx, &s->covector, "circuit_paths") : NULL;
    if (at) *at = target;
    bool done = at && tni_search_add(s, whole, -1, aim->position, s->layers, TN_CIRCUIT_TARGET);
    for (*expanded = 0; done && *expanded < budget && s->heap.count > 0 && tni_urgency(s, s->heap.items) >= least; ++*expanded) {
        int64_t i;
        tni_queue_pop(&s->heap, &i, tni_more_urgent, s);
        if (i == 0) *tni_index_at(&s->slot, 0) = 0;
        done = (i == 0 || tni_search_covector(s, i, work)) && tni_search_expand(s, i, work);
    }
    return done;
}

tn_status tn_circuit_paths_find(const tn_circuit_frozen *f, const tn_circuit_target *target,
                                const tn_circuit_paths_desc *desc, tn_circuit_paths *out)
{
    tni_path_search s;
    if (out) memset(out, 0, sizeof *out);
    if (!f || !f->ctx) return TN_ERR_ARG;
    if (!target || !out) return tni_fail(f->ctx, TN_ERR_ARG, "circuit_paths: %s is NULL", out ? "target" : "out");
    if (desc && (desc->budget < 0 || !(desc->least >= 0)))
        return tni_fail(f->ctx, TN_ERR_ARG, "circuit_paths: budget is %lld and least %g, expected numbers >= 0",
                        (long long)desc->budget, desc->least);
    tni_scope  scope = tni_scope_begin(f->ctx);
    tn_tensor *u = tni_target_covector(f, target, "circuit_paths", &out->whole);
    bool       done = u && tni_search_begin(&s, f);
    double    *c = done ? tni_take_numbers(&s.w, u) : NULL;
    if (c) {
        out->frozen = f;
        out->target = *target;
        done = tni_search_run(&s, c, target, out->whole, desc && desc->budget > 0 ? desc->budget : 1000,
                              desc ? desc->least : 0, &out->expanded);
        out->all = tni_search_count(&s, target->position);
        out->path = done ? tni_search_list(&s, true, &out->count, &out->found) : NULL;
        out->frontier = out->path ? tni_search_list(&s, false, &out->open, &out->rest) : NULL;
        done = out->frontier != NULL;
        out->error = out->found + out->rest - out->whole;
        out->node = (tn_circuit_node *)s.nodes.items;
        out->nodes = (int64_t)s.nodes.count;
        out->max_nodes = (int64_t)s.nodes.max;
        s.nodes.items = NULL;
    }
    if (u) tni_search_end(&s);
    tni_scope_end(f->ctx, scope);
    if (c && done) return TN_OK;
    tn_circuit_paths_destroy(out);
    return tni_analysis_status(f->ctx);
}

void tn_circuit_paths_destroy(tn_circuit_paths *p)
{
    if (!p) return;
    if (p->frozen) {
        tni_free(p->frozen->ctx, p->node, (size_t)p->max_nodes * sizeof *p->node);
        tni_free(p->frozen->ctx, p->path, (size_t)p->count * sizeof *p->path);
        tni_free(p->frozen->ctx, p->frontier, (size_t)p->open * sizeof *p->frontier);
    }
    memset(p, 0, sizeof *p);
}

int64_t tn_circuit_path_name(const tn_circuit_paths *p, int64_t i, const char *const *names, char *dst, size_t bytes)
{
    tni_text t = {dst, bytes, 0};
    if (!p || !p->frozen || i < 0 || i >= p->nodes || (!dst && bytes > 0)) return -1;
    const tn_circuit_node *node = &p->node[i];
    if (node->head == TN_CIRCUIT_SOURCE) {
        const int32_t id = p->frozen->id[node->position];
        if (node->block > 0) tni_text_print(&t, "%s", tni_source_name(p->frozen, node->block));
        else if (names) tni_text_print(&t, "E[%s]", names[id]);
        else tni_text_print(&t, "E[%d]", (int)id);
        tni_text_print(&t, "@%lld", (long long)node->position);
        node = &p->node[node->next];
    } else tni_text_print(&t, "*@%lld", (long long)node->position);
    for (; node->next >= 0; node = &p->node[node->next]) {
        if (node->head == TN_CIRCUIT_MLP) tni_text_print(&t, " -> %d.mlp", (int)node->block);
        else tni_text_print(&t, " -> %d.head%d", (int)node->block, (int)node->head);
        tni_text_print(&t, "@%lld", (long long)p->node[node->next].position);
    }
    tni_text_print(&t, " -> U");
    return (int64_t)t.length;
}

#endif /* TN_NO_CIRCUITS */
