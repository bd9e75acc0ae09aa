#include "core/inner.h"
#include "algebra/inner.h"

#ifndef TN_NO_CONTRACTION
/* ---- the order of products ---------------------------------------------- >>plan-order
   A tree of pairs. Its cost is the sum over products of flops + 64 * elements of the result, or of the flops alone, and so
   is the cost of a part of a tree. */

TNI_COLD_FN const uint64_t *tni_legs(const tn_plan *p, int node) { return p->legs + (size_t)node * (size_t)p->words; }

/* The product of the extents of labels that are in one of the sets (b may be NULL). */
TNI_COLD_FN double tni_volume(const tn_plan *p, const uint64_t *a, const uint64_t *b)
{
    double v = 1;
    for (int w = 0; w < p->words; w++) {
        uint64_t bits = b ? a[w] | b[w] : a[w];
        for (; bits; bits &= bits - 1) v *= p->width[64 * w + tni_lowest_bit(bits)];
    }
    return v;
}

/* The flops of a product of a and b with these remaining labels. */
TNI_COLD_FN double tni_couple_flops(const tn_plan *p, const uint64_t *a, const uint64_t *b, const uint64_t *left)
{
    bool sums = false;
    for (int w = 0; w < p->words; w++) sums = sums || ((a[w] | b[w]) & ~left[w]) != 0;
    return (sums ? 2 : 1) * tni_volume(p, a, b);
}

TNI_COLD_FN double tni_write_cost(const tn_plan *p) { return p->desc.minimize == TN_PLAN_FLOPS ? 0 : TNI_WRITE_COST; }

static double tni_couple_cost(const tn_plan *p, const uint64_t *a, const uint64_t *b, const uint64_t *left)
{
    return tni_couple_flops(p, a, b, left) + tni_write_cost(p) * tni_volume(p, left, NULL);
}

static double tni_node_cost(const tn_plan *p, int node)
{
    return tni_couple_cost(p, tni_legs(p, p->child[2 * node]), tni_legs(p, p->child[2 * node + 1]), tni_legs(p, node));
}

/* What is minimised: the elements of the largest result below the root, which is 0 unless TN_PLAN_SIZE asks for it, and then
   the cost. */
typedef struct tni_score { double peak, cost; } tni_score;

static bool tni_better(tni_score a, tni_score b) { return a.peak < b.peak || (a.peak == b.peak && a.cost < b.cost); }

/* Subset dynamic programming. Labels that are in the same leaves are one class; sets of classes have two words. */
typedef struct tni_classes { uint64_t w[2]; } tni_classes;
typedef struct tni_exact {
    int          m;                     /* leaves */
    int16_t     *class_of;              /* [labels] */
    double       width[TNI_CLASSES];
    tni_classes  keep, *all, *legs;     /* of subsets of leaves: all labels, those that are needed outside */
    double      *size, write_cost;
    tni_score   *score;
    bool         by_size;
    uint16_t    *part;                  /* the best division, one of its two parts */
} tni_exact;

static double tni_classes_volume(const tni_exact *x, const tni_classes *a, const tni_classes *without)
{
    double v = 1;
    for (int w = 0; w < 2; w++) {
        uint64_t bits = without ? a->w[w] & ~without->w[w] : a->w[w];
        for (; bits; bits &= bits - 1) v *= x->width[64 * w + tni_lowest_bit(bits)];
    }
    return v;
}

/* Merges labels to classes; false if there are too many. */
static bool tni_exact_classes(tni_exact *x, const tn_plan *p, const int *leaf, const uint64_t *keep, int16_t *seen)
{
    int count = 0;
    memset(seen, 0, ((size_t)2 << x->m) * sizeof *seen);
    for (int w = 0; w < p->words; w++) {
        uint64_t bits = 0;
        for (int i = 0; i < x->m; i++) bits |= tni_legs(p, leaf[i])[w];
        for (; bits; bits &= bits - 1) {
            const int bit = tni_lowest_bit(bits), label = 64 * w + bit;
            size_t    where = (size_t)(keep[w] >> bit & 1) << x->m;
            for (int i = 0; i < x->m; i++) where |= (size_t)(tni_legs(p, leaf[i])[w] >> bit & 1) << i;
            if (seen[where] == 0) {
                if (count == TNI_CLASSES) return false;
                x->width[count] = 1;
                for (int i = 0; i <= x->m; i++) {
                    tni_classes *set = i < x->m ? &x->all[(size_t)1 << i] : &x->keep;
                    if (where >> i & 1) set->w[count / 64] |= (uint64_t)1 << (count % 64);
                }
                seen[where] = (int16_t)++count;
            }
            x->class_of[label] = (int16_t)(seen[where] - 1);
            x->width[seen[where] - 1] *= p->width[label];
        }
    }
    return true;
}

static void tni_exact_search(tni_exact *x)
{
    const size_t full = ((size_t)1 << x->m) - 1;
    for (size_t s = 1; s <= full; s++) {
        const size_t low = s & (~s + 1);
        if (s != low) {
            x->all[s].w[0] = x->all[s ^ low].w[0] | x->all[low].w[0];
            x->all[s].w[1] = x->all[s ^ low].w[1] | x->all[low].w[1];
        }
    }
    for (size_t s = 1; s <= full; s++) {
        const size_t low = s & (~s + 1), rest = s ^ low;
        tni_score    best = {HUGE_VAL, HUGE_VAL};
        x->legs[s].w[0] = x->all[s].w[0] & (x->all[full ^ s].w[0] | x->keep.w[0]);
        x->legs[s].w[1] = x->all[s].w[1] & (x->all[full ^ s].w[1] | x->keep.w[1]);
        x->size[s] = tni_classes_volume(x, &x->legs[s], NULL);
        if (rest == 0) continue;
        for (size_t t = rest; t; t = (t - 1) & rest) {
            const size_t       u = s ^ t;
            const tni_classes *a = &x->legs[u], *b = &x->legs[t];
            tni_score          now = x->score[u];
            if (x->score[t].peak > now.peak) now.peak = x->score[t].peak;
            now.cost += x->score[t].cost;
            if (t != rest && !tni_better(now, best)) continue;
            double flops = x->size[u] * tni_classes_volume(x, b, a);
            if (((a->w[0] | b->w[0]) & ~x->legs[s].w[0]) | ((a->w[1] | b->w[1]) & ~x->legs[s].w[1])) flops *= 2;
            now.cost += flops;
            if (t == rest || tni_better(now, best)) {
                best = now;
                x->part[s] = (uint16_t)t;
            }
        }
        best.cost += x->write_cost * x->size[s];
        if (x->by_size && s != full && x->size[s] > best.peak) best.peak = x->size[s];
        x->score[s] = best;
    }
}

/* Writes the products of subset s into nodes: `node` for its root, spare ones for the others. */
static void tni_exact_write(const tni_exact *x, tn_plan *p, size_t s, int node, const int *leaf, const int **spare)
{
    const size_t part[2] = {s ^ x->part[s], x->part[s]};
    uint64_t    *legs = p->legs + (size_t)node * (size_t)p->words;
    int          i;
    for (int k = 0; k < 2; k++) {
        if ((part[k] & (part[k] - 1)) == 0) {
            for (i = 0; (size_t)1 << i != part[k]; i++) {}
            p->child[2 * node + k] = leaf[i];
        } else {
            p->child[2 * node + k] = *(*spare)++;
            tni_exact_write(x, p, part[k], p->child[2 * node + k], leaf, spare);
        }
    }
    for (int w = 0; w < p->words; w++) {
        uint64_t bits = tni_legs(p, p->child[2 * node])[w] | tni_legs(p, p->child[2 * node + 1])[w];
        for (legs[w] = 0; bits; bits &= bits - 1) {
            const int bit = tni_lowest_bit(bits), c = x->class_of[64 * w + bit];
            legs[w] |= (x->legs[s].w[c / 64] >> (c % 64) & 1) << bit;
        }
    }
}

/* Memory for a search of up to m leaves. */
static bool tni_exact_begin(tni_exact *x, const tn_plan *p, tni_scratch *pile, int m, int16_t **seen)
{
    const int64_t sets = (int64_t)1 << m;
    x->class_of = (int16_t *)tni_take_zeroed(pile, p->labels + 1, sizeof *x->class_of);
    x->all = (tni_classes *)tni_take_zeroed(pile, sets, sizeof *x->all);
    x->legs = (tni_classes *)tni_take_zeroed(pile, sets, sizeof *x->legs);
    x->size = (double *)tni_take_zeroed(pile, sets, sizeof *x->size);
    x->score = (tni_score *)tni_take_zeroed(pile, sets, sizeof *x->score);
    x->part = (uint16_t *)tni_take_zeroed(pile, sets, sizeof *x->part);
    *seen = (int16_t *)tni_take_zeroed(pile, tni_area(2, sets), sizeof **seen);
    x->write_cost = tni_write_cost(p);
    x->by_size = p->desc.minimize == TN_PLAN_SIZE;
    return !pile->failed;
}

/* The best tree of m leaves whose product has the labels `keep`; true if it is better than `most`, and is then written. */
static bool tni_exact_tree(tni_exact *x, tn_plan *p, int m, const int *leaf, const uint64_t *keep, int root,
                           const int *spare, tni_score most, int16_t *seen)
{
    x->m = m;
    x->keep.w[0] = x->keep.w[1] = 0;
    for (int i = 0; i < m; i++) {
        const size_t s = (size_t)1 << i;
        x->all[s].w[0] = x->all[s].w[1] = 0;
        x->score[s].peak = x->score[s].cost = 0;
    }
    if (!tni_exact_classes(x, p, leaf, keep, seen)) return false;
    tni_exact_search(x);
    if (!tni_better(x->score[((size_t)1 << m) - 1], most)) return false;
    tni_exact_write(x, p, ((size_t)1 << m) - 1, root, leaf, &spare);
    return true;
}

TNI_COLD_FN double tni_rng_unit(tni_rng *d) { return (double)tni_unit(tni_rng_word(d)); }

/* A candidate pair of a greedy search. */
typedef struct tni_couple { double score; int a, b; } tni_couple;
typedef struct tni_greedy {
    int      *live, count, *uses, pairs, most; /* nodes not yet multiplied; tensors that have a label; candidates */
    double    alpha, heat;
    tni_couple *pair;
    double   *size;                     /* [2n-1] */
    tni_rng  rng;
} tni_greedy;

/* The labels that remain of a product, by the number of tensors that have each. */
static void tni_couple_legs(const tn_plan *p, const int *uses, int a, int b, uint64_t *legs)
{
    for (int w = 0; w < p->words; w++) {
        const uint64_t x = tni_legs(p, a)[w], y = tni_legs(p, b)[w];
        uint64_t       bits = x & y;
        legs[w] = x | y;
        for (; bits; bits &= bits - 1) {
            const int bit = tni_lowest_bit(bits);
            if (uses[64 * w + bit] == 2) legs[w] &= ~((uint64_t)1 << bit);
        }
    }
}

/* Small products of large factors have a low score; noise of a Gumbel distribution, times heat, makes searches differ. */
static void tni_greedy_add(tni_greedy *g, const tn_plan *p, int a, int b, uint64_t *legs)
{
    tni_couple_legs(p, g->uses, a, b, legs);
    double score = tni_volume(p, legs, NULL) / g->alpha - g->alpha * (g->size[a] + g->size[b]);
    score = score < 0 ? -log(1 - score) : log(1 + score);
    double noise = -log(-log(tni_rng_unit(&g->rng)));
    g->pair[g->pairs].score = score - g->heat * noise;
    g->pair[g->pairs].a = a;
    g->pair[g->pairs++].b = b;
}

static bool tni_share(const tn_plan *p, int a, int b)
{
    for (int w = 0; w < p->words; w++) if (tni_legs(p, a)[w] & tni_legs(p, b)[w]) return true;
    return false;
}

/* Multiplies nodes a and b to `node`. */
static void tni_greedy_join(tni_greedy *g, tn_plan *p, int a, int b, int node, uint64_t *legs)
{
    uint64_t *to = p->legs + (size_t)node * (size_t)p->words;
    int       i, n = 0;
    tni_couple_legs(p, g->uses, a, b, to);
    for (int w = 0; w < p->words; w++) {
        uint64_t bits = tni_legs(p, a)[w] & tni_legs(p, b)[w];
        for (; bits; bits &= bits - 1) g->uses[64 * w + tni_lowest_bit(bits)]--;
    }
    p->child[2 * node] = a;
    p->child[2 * node + 1] = b;
    g->size[node] = tni_volume(p, to, NULL);
    for (i = 0; i < g->count; i++) if (g->live[i] != a && g->live[i] != b) g->live[n++] = g->live[i];
    g->count = n;
    for (i = n = 0; i < g->pairs; i++) {
        const tni_couple q = g->pair[i];
        if (q.a != a && q.a != b && q.b != a && q.b != b) g->pair[n++] = q;
    }
    g->pairs = n;
    for (i = 0; i < g->count; i++)
        if (g->pairs < g->most && tni_share(p, g->live[i], node)) tni_greedy_add(g, p, g->live[i], node, legs);
    g->live[g->count++] = node;
}

/* One search. Where no two tensors share a label the two smallest are multiplied. */
static void tni_greedy_tree(tni_greedy *g, tn_plan *p, uint64_t *legs)
{
    memset(g->uses, 0, (size_t)p->labels * sizeof *g->uses);
    g->count = g->pairs = 0;
    for (int k = 0; k <= p->n; k++)
        for (int w = 0; w < p->words; w++) {
            uint64_t bits = k < p->n ? tni_legs(p, k)[w] : p->keep[w];
            for (; bits; bits &= bits - 1) g->uses[64 * w + tni_lowest_bit(bits)]++;
        }
    for (int k = 0; k < p->n; k++) {
        g->size[k] = tni_volume(p, tni_legs(p, k), NULL);
        for (int i = 0; i < k; i++) if (g->pairs < g->most && tni_share(p, i, k)) tni_greedy_add(g, p, i, k, legs);
        g->live[g->count++] = k;
    }
    for (int node = p->n; g->count > 1; node++) {
        int a = -1, b = -1, best = 0;
        for (int i = 1; i < g->pairs; i++) if (g->pair[i].score < g->pair[best].score) best = i;
        if (g->pairs > 0) { a = g->pair[best].a; b = g->pair[best].b; }
        for (int i = 0; g->pairs == 0 && i < g->count; i++) {
            const int t = g->live[i];
            if (a < 0 || g->size[t] < g->size[a]) { b = a; a = t; }
            else if (b < 0 || g->size[t] < g->size[b]) b = t;
        }
        tni_greedy_join(g, p, a, b, node, legs);
    }
}

static tni_score tni_tree_score(const tn_plan *p, double *cost)
{
    tni_score total = {0, 0};
    for (int v = p->n; v < 2 * p->n - 1; v++) {
        const double size = p->desc.minimize == TN_PLAN_SIZE && v != p->root ? tni_volume(p, tni_legs(p, v), NULL) : 0;
        if (size > total.peak) total.peak = size;
        total.cost += cost[v] = tni_node_cost(p, v);
    }
    return total;
}

/* Annealing: at a product v = (a b) c, multiplies a or b with c first if that costs less or, with a probability that falls
   with the ratio of costs and with time, if it costs more. */
static void tni_anneal(tn_plan *p, tni_rng *d, int sweeps, double *cost, uint64_t *legs)
{
    const int n = p->n;
    for (int sweep = 0; sweep < sweeps; sweep++) {
        const double beta = 0.3 + 14.7 * sweep / sweeps;
        for (int i = 0; i < n; i++) {
            const int v = n + (int)tni_rng_below(d, n - 1);
            int      *cv = p->child + 2 * v;
            int       side = (int)tni_rng_below(d, 2);
            if (cv[side] < n) side ^= 1;
            int u = cv[side];
            if (u < n) continue;
            int c = cv[side ^ 1], other = (int)tni_rng_below(d, 2), a = p->child[2 * u + other];
            int b = p->child[2 * u + (other ^ 1)];
            for (int w = 0; w < p->words; w++)
                legs[w] = (tni_legs(p, a)[w] | tni_legs(p, c)[w]) & (tni_legs(p, b)[w] | tni_legs(p, v)[w]);
            double now = cost[u] + cost[v];
            double transposed_u = tni_couple_cost(p, tni_legs(p, a), tni_legs(p, c), legs);
            if (transposed_u > 1e3 * now) continue;
            double transposed_v = tni_couple_cost(p, legs, tni_legs(p, b), tni_legs(p, v));
            if (transposed_u + transposed_v > now && tni_rng_unit(d) >= pow(now / (transposed_u + transposed_v), beta)) continue;
            p->child[2 * u + other] = a;
            p->child[2 * u + (other ^ 1)] = c;
            cv[side ^ 1] = b;
            memcpy(p->legs + (size_t)u * (size_t)p->words, legs, (size_t)p->words * sizeof *legs);
            cost[u] = transposed_u;
            cost[v] = transposed_v;
        }
    }
}

/* Replaces the part of the tree below v, down to m leaves (the largest are opened first), by the best one. */
static bool tni_improve_below(tn_plan *p, tni_exact *x, int v, int most, const double *cost, int16_t *seen)
{
    int       leaf[TNI_EXACT], spare[TNI_EXACT], m = 1, free = 0, i;
    tni_score now = {0, 0};
    leaf[0] = v;
    while (m < most) {
        int    open = -1;
        double largest = -1;
        for (i = 0; i < m; i++) {
            const double size = leaf[i] < p->n ? -1 : leaf[i] == v ? HUGE_VAL : cost[leaf[i]];
            if (size > largest) { largest = size; open = i; }
        }
        if (open < 0) break;
        i = leaf[open];
        if (i != v) {
            const double size = x->by_size ? tni_volume(p, tni_legs(p, i), NULL) : 0;
            if (size > now.peak) now.peak = size;
            spare[free++] = i;
        }
        now.cost += cost[i];
        leaf[open] = p->child[2 * i];
        leaf[m++] = p->child[2 * i + 1];
    }
    now.cost *= 1 - 1e-12;
    return m > 2 && tni_exact_tree(x, p, m, leaf, tni_legs(p, v), v, spare, now, seen);
}

static tni_score tni_improve(tn_plan *p, tni_exact *x, int most, double *cost, int16_t *seen)
{
    tni_score total = tni_tree_score(p, cost);
    bool      better = true;
    for (int pass = 0; better && pass < 20; pass++) {
        better = false;
        for (int v = p->n; v < 2 * p->n - 1; v++)
            if (tni_improve_below(p, x, v, most, cost, seen)) {
                better = true;
                total = tni_tree_score(p, cost);
            }
    }
    return total;
}

/* More than 14 operands: random-greedy trees, annealed and improved; the best is kept. */
static bool tni_search(tn_plan *p, tni_scratch *pile)
{
    const int    n = p->n, samples = p->desc.samples > 0 ? p->desc.samples : 8;
    const int    sweeps = (int)tni_max(200, tni_min(1000, 200000 / n));
    const int64_t nodes = 2 * n, words = p->words;
    tni_score    best = {HUGE_VAL, HUGE_VAL};
    double      *cost = (double *)tni_take_zeroed(pile, nodes, sizeof *cost);
    uint64_t    *legs = (uint64_t *)tni_take_zeroed(pile, words, sizeof *legs);
    uint64_t    *best_legs = (uint64_t *)tni_take_zeroed(pile, tni_area(nodes, words), sizeof *best_legs);
    int         *best_child = (int *)tni_take_zeroed(pile, tni_area(2, nodes), sizeof *best_child);
    int16_t     *seen;
    tni_exact    x;
    tni_greedy   g = TNI_ZERO;
    g.most = 16 * n + 1024;
    g.live = (int *)tni_take_zeroed(pile, nodes, sizeof *g.live);
    g.uses = (int *)tni_take_zeroed(pile, p->labels + 1, sizeof *g.uses);
    g.pair = (tni_couple *)tni_take_zeroed(pile, g.most, sizeof *g.pair);
    g.size = (double *)tni_take_zeroed(pile, nodes, sizeof *g.size);
    if (!tni_exact_begin(&x, p, pile, 10, &seen)) return false;
    for (int sample = 0; sample < samples; sample++) {
        g.rng.key = p->desc.seed;
        g.rng.call = sample;
        g.rng.at = 0;
        g.alpha = sample == 0 ? 1 : 0.25 * pow(16, tni_rng_unit(&g.rng));
        g.heat = sample == 0 ? 0 : 0.003 * pow(300, tni_rng_unit(&g.rng));
        tni_greedy_tree(&g, p, legs);
        tni_tree_score(p, cost);
        tni_anneal(p, &g.rng, sweeps, cost, legs);
        tni_score total = tni_improve(p, &x, 8, cost, seen);
        if (sample > 0 && !tni_better(total, best)) continue;
        best = total;
        memcpy(best_legs, p->legs, (size_t)(nodes * words) * sizeof *legs);
        memcpy(best_child, p->child, (size_t)(2 * nodes) * sizeof *best_child);
    }
    memcpy(p->legs, best_legs, (size_t)(nodes * words) * sizeof *legs);
    memcpy(p->child, best_child, (size_t)(2 * nodes) * sizeof *best_child);
    tni_improve(p, &x, 10, cost, seen);
    return true;
}

/* The most elements that are held at once while a node is computed. The child that needs more comes first. */
static double tni_plan_peak(tn_plan *p, int node)
{
    int   *c = p->child + 2 * node, k;
    double peak[2], size[2];
    if (node < p->n) return 0;
    for (k = 0; k < 2; k++) {
        peak[k] = tni_plan_peak(p, c[k]);
        size[k] = c[k] < p->n ? 0 : tni_volume(p, tni_legs(p, c[k]), NULL);
    }
    k = peak[1] - size[1] > peak[0] - size[0];
    if (k) {
        const int first = c[1];
        c[1] = c[0];
        c[0] = first;
    }
    double most = size[0] + size[1] + tni_volume(p, tni_legs(p, node), NULL);
    if (size[k] + peak[k ^ 1] > most) most = size[k] + peak[k ^ 1];
    return peak[k] > most ? peak[k] : most;
}

static void tni_plan_order(tn_plan *p, int node, int *count)
{
    if (node < p->n) return;
    tni_plan_order(p, p->child[2 * node], count);
    tni_plan_order(p, p->child[2 * node + 1], count);
    p->order[(*count)++] = node;
}

/* Finds the tree, and the order in which its products are computed. */
TNI_COLD_FN bool tni_plan_tree(tn_plan *p)
{
    tn_ctx      *ctx = p->ctx;
    tni_arena   *heads = &ctx->heads[ctx->head];
    const size_t at = heads->at, used = heads->used;       /* the search's memory is free again afterwards */
    tni_scratch  pile = tni_scratch_begin(ctx, "plan");
    tni_exact    x;
    int          leaf[TNI_EXACT], spare[TNI_EXACT], count = 0;
    tni_score    none = {HUGE_VAL, HUGE_VAL};
    bool         ok = true;
    pile.arena = true;
    p->root = p->n > 1 ? p->n : 0;
    for (int k = 0; k < TNI_EXACT; k++) {
        leaf[k] = k;
        spare[k] = p->n + 1 + k;
    }
    if (p->n == 2) {
        p->child[2 * p->root + 1] = 1;
        memcpy(p->legs + 2 * (size_t)p->words, p->keep, (size_t)p->words * sizeof *p->legs);
    } else if (p->n > TNI_EXACT) {
        p->root = 2 * p->n - 2;
        ok = tni_search(p, &pile);
    } else if (p->n > 2) {
        int16_t *seen;
        ok = tni_exact_begin(&x, p, &pile, p->n, &seen);
        if (ok) tni_exact_tree(&x, p, p->n, leaf, p->keep, p->root, spare, none, seen);
    }
    heads->at = at;
    heads->used = used;
    if (!ok) return false;
    tni_plan_peak(p, p->root);
    tni_plan_order(p, p->root, &count);
    return true;
}

#endif /* TN_NO_CONTRACTION */
