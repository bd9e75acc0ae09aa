/* heads.c - tn circuits heads, history: what the weights say of each head, now and at earlier steps of the training */
#include "circuits.h"
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DISTANCES = 256, MOST_TOKENS = 64 };

/* ---- distances -----------------------------------------------------------------------------------------------------
   How a head of block 0 shares its attention between distances, from its weights. The tokens of queries and keys are drawn
   from the N commonest ones, and the norms of block 0 depend on one token alone, so that its scores are exact: they are read
   from a run over texts that repeat one token, whose query at position d and key at position 0 are d apart. */

typedef struct reading { tn_tensor *q[2], *k[2]; } reading;

static tn_tensor *read_point(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    reading    *r = (reading *)user;
    const char *end = name + strlen(name) - 2;
    (void)ctx;
    if (*end == 'q') r->q[end[1] - '1'] = tn_tensor_keep(x);
    else if (*end == 'k') r->k[end[1] - '1'] = tn_tensor_keep(tn_slice(x, 1, 0, 1));
    else return NULL;                   /* the values: nothing after them is needed */
    return x;
}

/* The weight of a score: of softmax its exponential before the row is divided by its sum, here the score itself; else the
   magnitude of a pattern's entry. */
static double weight_of(tn_attention_kind kind, const double *score)
{
    if (kind == TN_ATTENTION_SQUARED) return score[0] * score[0];
    if (kind == TN_ATTENTION_BILINEAR) return fabs(score[0] * score[1]);
    return score[0];
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* share[d]: the mean over query tokens of the weight at distance d, the mean over key tokens, as a share of all distances.
   q [N,D,H,n], k [N,1,H,n] */
static void share_of_head(const tn_attention_desc *a, double *const *q, double *const *k, int64_t N, int64_t D, int64_t head,
                          double *share)
{
    const int     sets = a->kind == TN_ATTENTION_BILINEAR ? 2 : 1;
    const int64_t n = a->d_qk, H = a->heads;
    const double  scale = a->scale != 0 ? a->scale : a->kind == TN_ATTENTION_SQUARED || sets > 1 ? 1 / (double)n
                                                                                               : 1 / sqrt((double)n);
    const bool    softmax = a->kind != TN_ATTENTION_SQUARED && sets < 2;
    double       *row = (double *)allocate((size_t)D, sizeof *row), *all = (double *)allocate((size_t)(D * N), sizeof *all);
    double        score[2] = {0, 0};
    int64_t       j;
    for (int64_t i = 0; i < N; i++) {
        double most = -INFINITY;
        for (int64_t d = 0; d < D; d++)
            for (j = 0; j < N; j++) {
                for (int s = 0; s < sets; s++)
                    score[s] = scale * dot(q[s] + ((i * D + d) * H + head) * n, k[s] + (j * H + head) * n, n);
                all[d * N + j] = weight_of(a->kind, score);
                if (all[d * N + j] > most) most = all[d * N + j];
            }
        double sum = 0;
        for (int64_t d = 0; d < D; sum += row[d++])
            for (row[d] = 0, j = 0; j < N; j++) row[d] += softmax ? exp(all[d * N + j] - most) : all[d * N + j];
        for (int64_t d = 0; d < D; d++) share[d] += row[d] / sum / (double)N;
    }
    free(row);
    free(all);
}

/* The shares of the heads of block 0; D: how many. */
static void measure_distances(const subject *s, head_numbers *heads, int64_t *D)
{
    const tn_attention_desc *a = &s->m.net.blocks[0].attn.desc;
    const int64_t            T = s->m.desc.context < MOST_DISTANCES ? s->m.desc.context : MOST_DISTANCES;
    int64_t                  N = s->m.desc.vocab < MOST_TOKENS ? s->m.desc.vocab : MOST_TOKENS;
    int32_t                 *ids = (int32_t *)allocate((size_t)(N * T), sizeof *ids);
    const int64_t            shape[2] = {N, T};
    reading                  r = {{NULL, NULL}, {NULL, NULL}};
    tn_tap                   tap = {"blocks.0.attn.*", read_point, NULL};
    double                  *q[2] = {NULL, NULL}, *k[2] = {NULL, NULL};
    int                      sets = a->kind == TN_ATTENTION_BILINEAR ? 2 : 1;
    tap.user = &r;
    *D = a->window > 0 && a->window < T ? a->window : T;
    for (int64_t i = 0; i < N * T; i++) ids[i] = s->common[i / T];
    tn_ctx_reset(s->m.ctx);
    tn_transformer_run(s->m.ctx, &s->m.net, tn_tensor_from(s->m.ctx, 2, shape, TN_I32, ids), &tap, 1);
    if (!r.q[0] || !r.k[0]) check_ctx(s->m.ctx, "distances");
    free(taken_error(s->m.ctx));        /* that the run was stopped */
    for (int set = 0; set < sets; set++) q[set] = numbers_in(r.q[set]), k[set] = numbers_in(r.k[set]);
    for (int64_t h = 0; h < a->heads; h++) {
        double *all = (double *)allocate((size_t)T, sizeof *all);
        share_of_head(a, q, k, N, T, h, all);
        heads[h].share = all;           /* beyond a window nothing is seen */
        if (*D < T) {
            double sum = 0;
            for (int64_t i = 0; i < *D; i++) sum += all[i];
            for (int64_t i = 0; i < T; i++) all[i] = i < *D ? all[i] / sum : 0;
        }
    }
    for (int set = 0; set < 2; set++) {
        free(q[set]);
        free(k[set]);
        tn_tensor_destroy(r.q[set]);
        tn_tensor_destroy(r.k[set]);
    }
    free(ids);
    report_note("Distances: the attention of block 0 from the query's token to the one d before it, for queries "
                "and keys drawn from the %lld commonest tokens, as a share of the distances 0 to %lld; exact with "
                "the norms.%s%s%s",
                (long long)N, (long long)*D - 1, a->kind >= TN_ATTENTION_DIFFERENTIAL ? " Of differential "
                "attention the first pattern alone." : "",
                s->m.desc.positions == TN_POSITIONS_LEARNED ? " Positions are learned: the keys are at position 0." : "",
                s->frequency ? "" : " Without the run's text these are the first tokens.");
}

/* ---- norms, copying, composition -------------------------------------------------------------------------------------- */

/* Returns NULL and adds a note for what is refused. */
static tn_circuit *noted(const subject *s, tn_circuit *circuit, const char *what)
{
    char *why = taken_error(s->m.ctx);
    if (why) report_note("%s refused: %s.", what, why);
    free(why);
    return circuit;
}

static void measure_head(const subject *s, int64_t block, int64_t head, head_numbers *to)
{
    const tn_attention_kind kind = s->m.net.blocks[block].attn.desc.kind;
    tn_circuit_desc         d;
    memset(&d, 0, sizeof d);
    d.block = block;
    d.head = head;
    d.set = kind >= TN_ATTENTION_DIFFERENTIAL ? 1 : 0;
    d.norm_scale = 1;                       /* the copying score does not depend on it */
    to->qk = to->ov = to->copying = to->composition = NAN;
    tn_circuit *c = noted(s, tn_circuit_qk(s->m.ctx, &s->m.net, &d), "QK circuits are");
    if (c) tn_circuit_norm(c, &to->qk);
    tn_circuit_destroy(c);
    d.set = 0;
    c = noted(s, tn_circuit_ov(s->m.ctx, &s->m.net, &d), "OV circuits are");
    if (c) tn_circuit_norm(c, &to->ov);
    tn_circuit_destroy(c);
    if (isnan(to->ov)) return;
    d.tokens = true;
    c = noted(s, tn_circuit_ov(s->m.ctx, &s->m.net, &d), "Copying scores are");
    if (c) tn_circuit_copying(c, NULL, &to->copying);
    tn_circuit_destroy(c);
    check_ctx(s->m.ctx, "a head");
}

static void measure_composition(const subject *s, head_numbers *heads)
{
    static const struct { tn_head_part part; const char *name; } parts[] = {
        {TN_HEAD_Q1, "Q"}, {TN_HEAD_K1, "K"}, {TN_HEAD_Q2, "Q2"}, {TN_HEAD_K2, "K2"}, {TN_HEAD_V, "V"}
    };
    const int64_t H = s->m.desc.heads;
    for (int64_t to = 1; to < s->m.desc.layers; to++) {
        const tn_attention_kind kind = s->m.net.blocks[to].attn.desc.kind;
        const bool              two = kind == TN_ATTENTION_BILINEAR || kind >= TN_ATTENTION_DIFFERENTIAL;
        for (int64_t from = 0; from < to; from++)
            for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
                char *why;
                if (!two && (parts[p].part == TN_HEAD_Q2 || parts[p].part == TN_HEAD_K2)) continue;
                tn_tensor *t = tn_circuit_composition(s->m.ctx, &s->m.net, from, to, parts[p].part);
                if ((why = taken_error(s->m.ctx)) != NULL) {
                    report_note("Composition is refused: %s.", why);
                    free(why);
                    continue;
                }
                double *score = numbers_in(t);
                for (int64_t h = 0; h < H; h++)
                    for (int64_t g = 0; g < H; g++) {
                        head_numbers *n = &heads[to * H + h];
                        if (!(score[h * H + g] > n->composition || isnan(n->composition))) continue;
                        n->composition = score[h * H + g];
                        n->block = from;
                        n->head = g;
                        strcpy(n->part, parts[p].name);
                    }
                free(score);
                tn_tensor_destroy(t);
            }
    }
}

head_numbers *measure_heads(const subject *s, int64_t *distances)
{
    const int64_t H = s->m.desc.heads;
    head_numbers *heads = (head_numbers *)allocate((size_t)(s->m.desc.layers * H), sizeof *heads);
    for (int64_t i = 0; i < s->m.desc.layers * H; i++) measure_head(s, i / H, i % H, &heads[i]);
    measure_composition(s, heads);
    measure_distances(s, heads, distances);
    return heads;
}

void free_heads(const subject *s, head_numbers *heads)
{
    for (int64_t h = 0; h < s->m.desc.heads; h++) free(heads[h].share);
    free(heads);
}

/* ---- tn circuits heads ------------------------------------------------------------------------------------------------ */

/* Which heads have the highest scores; -1: none. */
typedef struct strongest { int64_t copying, previous, pair; } strongest;

static strongest strongest_of(const subject *s, const head_numbers *heads, int64_t D)
{
    const int64_t H = s->m.desc.heads;
    strongest     x = {-1, -1, -1};
    for (int64_t i = 0; i < s->m.desc.layers * H; i++) {
        if (!isnan(heads[i].copying) && (x.copying < 0 || heads[i].copying > heads[x.copying].copying)) x.copying = i;
        if (!isnan(heads[i].composition) && (x.pair < 0 || heads[i].composition > heads[x.pair].composition)) x.pair = i;
        if (i >= H || D < 2 || isnan(heads[i].share[1])) continue;
        if (x.previous < 0 || heads[i].share[1] > heads[x.previous].share[1]) x.previous = i;
    }
    return x;
}

/* Head i of all blocks; "-": none. */
static void name_of(const subject *s, int64_t i, char name[HEAD_NAME])
{
    if (i < 0) strcpy(name, "-");
    else head_name(i / s->m.desc.heads, i % s->m.desc.heads, name);
}

/* The earlier head of its composition: "K of 0.head1", or "K 0.head1". */
static void with_name(const head_numbers *n, const char *of, char name[2 * HEAD_NAME])
{
    char other[HEAD_NAME];
    if (isnan(n->composition)) strcpy(name, "-");
    else snprintf(name, 2 * HEAD_NAME, "%s %s%s", n->part, of, head_name(n->block, n->head, other));
}

static void pair_name(const subject *s, const head_numbers *heads, int64_t i, char name[3 * HEAD_NAME])
{
    char one[HEAD_NAME], with[2 * HEAD_NAME];
    name_of(s, i, one);
    if (i >= 0) with_name(&heads[i], "", with);
    snprintf(name, 3 * HEAD_NAME, i < 0 ? "%s" : "%s %s", one, with);
}

static double share_between(const double *share, int64_t from, int64_t to, int64_t distances)
{
    double sum = 0;
    for (; from <= to && from < distances; from++) sum += share[from];
    return 100 * sum;
}

static void report_distances(const subject *s, const head_numbers *heads, int64_t D)
{
    static const column columns[] = {
        {"head", NULL, 8, "%s"}, {"d0", "0", 6, "%.1f"}, {"d1", "1", 6, "%.1f"}, {"d2", "2", 6, "%.1f"},
        {"d3_4", "3-4", 6, "%.1f"}, {"d5_8", "5-8", 6, "%.1f"}, {"d9_16", "9-16", 6, "%.1f"},
        {"d17_64", "17-64", 6, "%.1f"}, {"d65", "65-", 6, "%.1f"}, {NULL, NULL, 0, NULL}
    };
    report_table("per_distance", "Share of the attention by distance, in %:", columns);
    for (int64_t h = 0; h < s->m.desc.heads; h++) {
        char          name[HEAD_NAME];
        const double *x = heads[h].share;
        report_row(columns, head_name(0, h, name), share_between(x, 0, 0, D), share_between(x, 1, 1, D), share_between(x, 2, 2, D),
                   share_between(x, 3, 4, D), share_between(x, 5, 8, D), share_between(x, 9, 16, D),
                   share_between(x, 17, 64, D), share_between(x, 65, D, D));
    }
}

void heads_report(subject *s)
{
    static const column columns[] = {
        {"head", NULL, 8, "%s"}, {"kind", NULL, 12, "%s"}, {"qk", "|QK|", 8, "%.4g"}, {"ov", "|OV|", 8, "%.4g"},
        {"copying", NULL, 7, "%.3f"}, {"composition", NULL, 11, "%.3f"}, {"with", NULL, 13, "%s"}, {NULL, NULL, 0, NULL}
    };
    const int64_t H = s->m.desc.heads;
    int64_t       D;
    head_numbers *heads = measure_heads(s, &D);
    strongest     t = strongest_of(s, heads, D);
    char          name[3 * HEAD_NAME], with[2 * HEAD_NAME];
    report_table("per_head", NULL, columns);
    for (int64_t i = 0; i < s->m.desc.layers * H; i++) {
        const head_numbers *n = &heads[i];
        name_of(s, i, name);
        with_name(n, "of ", with);
        report_row(columns, name, tn_attention_kind_name(s->m.net.blocks[i / H].attn.desc.kind), n->qk, n->ov, n->copying,
                   n->composition, with);
    }
    report_distances(s, heads, D);
    if (s->m.desc.layers > 1)
        report_note("Composition: |outer inner| / (|outer| |inner|) with the head whose output this one reads "
                    "most, and what reads it: Q, K or V. Random matrices have about 1/sqrt(%lld) = %.3f.",
                    (long long)s->m.desc.dim, 1 / sqrt((double)s->m.desc.dim));
    if (s->m.net.blocks[0].attn.desc.qk_norm)
        report_note("The model has QK-norm: |QK| is that of the scores before it.");
    report_note("Copying: the sum of the eigenvalues of U OV E over that of their magnitudes; 1 for a head that "
                "raises the logits of the tokens that it attends to. The norms of blocks after the first are "
                "constants here.");
    report_value("heads", "%.0f", (double)(s->m.desc.layers * H));
    name_of(s, t.copying, name);
    report_value("copying", "%.4f", t.copying < 0 ? NAN : heads[t.copying].copying);
    report_text("copying_head", name);
    name_of(s, t.previous, name);
    report_value("distance_1", "%.4f", t.previous < 0 ? NAN : heads[t.previous].share[1]);
    report_text("distance_1_head", name);
    pair_name(s, heads, t.pair, name);
    report_value("composition", "%.4f", t.pair < 0 ? NAN : heads[t.pair].composition);
    report_text("composition_heads", name);
    free_heads(s, heads);
}

/* ---- tn circuits history ---------------------------------------------------------------------------------------------- */

static int by_step(const void *a, const void *b)
{
    const moment *x = (const moment *)a, *y = (const moment *)b;
    return (x->step > y->step) - (x->step < y->step);
}

moment *list_moments(const char *folder, int64_t *count)
{
    DIR           *d = opendir(folder);
    struct dirent *e;
    moment        *list = NULL;
    int64_t       *steps, n = list_checkpoints(folder, &steps), k, kept = 0;
    for (int64_t i = 0; i < n; i++) {
        list = (moment *)resize(list, (size_t)(kept + 1), sizeof *list);
        list[kept].step = steps[i];
        list[kept++].path = checkpoint_path(folder, steps[i]);
    }
    while (d && (e = readdir(d)) != NULL) {
        long long step;
        char      name[64];
        if (sscanf(e->d_name, WEIGHTS_FILE, &step) != 1 || step < 0) continue;
        snprintf(name, sizeof name, WEIGHTS_FILE, step);
        for (k = 0; k < kept && list[k].step != step; k++) continue;
        if (strcmp(name, e->d_name) || k < kept) continue;
        list = (moment *)resize(list, (size_t)(kept + 1), sizeof *list);
        list[kept].step = step;
        list[kept++].path = join_path(folder, e->d_name);
    }
    if (d) closedir(d);
    free(steps);
    if (kept) qsort(list, (size_t)kept, sizeof *list, by_step);
    *count = kept;
    return list;
}

/* Reads the weights of a step into the model; fails if they are of another one. */
static void read_moment(const subject *s, const moment *m)
{
    tn_params_read(s->m.params, tn_source_path(m->path), TN_MATCH_IGNORE_EXTRA);
    check_ctx(s->m.ctx, m->path);
    check_finite(&s->m, m->path);
}

/* A line for each head at each of the steps. */
static void heads_over_time(const subject *s, const moment *list, head_numbers *const *heads, int64_t count, int64_t D)
{
    static const column each[] = {
        {"step", NULL, 7, "%.0f"}, {"head", NULL, 8, "%s"}, {"qk", "|QK|", 6, "%.3g"}, {"ov", "|OV|", 6, "%.3g"},
        {"copying", NULL, 7, "%.3f"}, {"distance_1", "distance 1", 10, "%.3f"}, {"composition", NULL, 11, "%.3f"},
        {"with", NULL, 10, "%s"}, {NULL, NULL, 0, NULL}
    };
    report_table("per_head", NULL, each);
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < s->m.desc.layers * s->m.desc.heads; k++) {
            const head_numbers *h = &heads[i][k];
            char                name[HEAD_NAME], with[2 * HEAD_NAME];
            name_of(s, k, name);
            with_name(h, "", with);
            report_row(each, (double)list[i].step, name, h->qk, h->ov, h->copying, h->share && D > 1 ? h->share[1] : NAN,
                       h->composition, with);
        }
}

void history_report(subject *s)
{
    static const column columns[] = {
        {"step", NULL, 5, "%.0f"}, {"loss", NULL, 5, "%.3f"}, {"copying", NULL, 7, "%.3f"},
        {"copying_head", "head", 7, "%s"}, {"distance_1", "previous", 8, "%.3f"}, {"distance_head", "head", 7, "%s"},
        {"composition", "composed", 8, "%.3f"}, {"pair", "heads", 17, "%s"}, {NULL, NULL, 0, NULL}
    };
    char    *folder = folder_of(s->file);
    int64_t  count, D = 0, high = -1, jump = -1;
    moment  *list = list_moments(folder, &count);
    samples  x;
    double   last = NAN, most = 0;
    head_numbers **heads = (head_numbers **)allocate((size_t)count, sizeof *heads);
    memset(&x, 0, sizeof x);
    if (!count)
        fail("%s has no weights of earlier steps, expected weights-NNNNNNNN.safetensors (tn train --weights-every "
             "N)", folder);
    if (s->has_run) x = text_samples(s, NULL, s->m.desc.context, circuit_settings.tokens);
    report_table("per_step", NULL, columns);
    for (int64_t i = 0; i < count; i++) {
        double loss = 0;
        char   copying[HEAD_NAME], previous[HEAD_NAME], pair[3 * HEAD_NAME];
        read_moment(s, &list[i]);
        heads[i] = measure_heads(s, &D);
        for (int64_t k = 0; k < x.count; k++) loss += sample_loss(&s->m, &x, k, NULL, 0) / (double)x.count;
        strongest t = strongest_of(s, heads[i], D);
        name_of(s, t.copying, copying);
        name_of(s, t.previous, previous);
        pair_name(s, heads[i], t.pair, pair);
        report_row(columns, (double)list[i].step, x.count ? loss : NAN, t.copying < 0 ? NAN : heads[i][t.copying].copying,
                   copying, t.previous < 0 ? NAN : heads[i][t.previous].share[1], previous,
                   t.pair < 0 ? NAN : heads[i][t.pair].composition, pair);
        if (t.pair >= 0 && i && heads[i][t.pair].composition - last > most)
            most = heads[i][t.pair].composition - last, jump = list[i].step;
        last = t.pair < 0 ? NAN : heads[i][t.pair].composition;
        if (t.pair >= 0 && high < 0 && last > 2 / sqrt((double)s->m.desc.dim)) high = list[i].step;
    }
    heads_over_time(s, list, heads, count, D);
    for (int64_t i = 0; i < count; i++) {
        free_heads(s, heads[i]);
        free(list[i].path);
    }
    report_note("Each line has the head of the highest copying score, that of block 0 which attends most to the "
                "token before, and the two heads of the strongest composition (tn circuits RUN heads says what "
                "these are).");
    if (s->m.desc.layers > 1)
        report_note("composition_twice_random: the first step with a composition of more than twice that of random "
                    "matrices; composition_rises_most: the step before which the strongest one rose most.");
    report_value("steps", "%.0f", (double)count);
    report_value("composition_twice_random", "%.0f", high < 0 ? NAN : (double)high);
    report_value("composition_rises_most", "%.0f", jump < 0 ? NAN : (double)jump);
    if (s->has_run) free_samples(&x);
    free(heads);
    free(list);
    free(folder);
}
