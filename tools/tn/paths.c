/* paths.c - tn circuits paths, attribute: a logit or a loss as a sum over paths, and over the tokens of the text */
#include "circuits.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The logits at the position: their largest magnitude, and the token and its loss. */
static void choose_token(const subject *s, question *q, const char *token, int64_t next)
{
    const int64_t V = s->m.desc.vocab;
    double       *v = numbers_in(tn_slice(q->frozen.logits, 0, q->target.position, q->target.position + 1)), sum = 0;
    int64_t       best = 0;
    for (int64_t i = 0; i < V; i++) {
        if (v[i] > v[best]) best = i;
        if (fabs(v[i]) > q->largest) q->largest = fabs(v[i]);
    }
    q->target.token = token ? token_id(s, token) : next >= 0 ? next : best;
    for (int64_t i = 0; i < V; i++) sum += exp(v[i] - v[best]);
    q->loss = v[best] - v[q->target.token] + log(sum);
    free(v);
}

static void check_questions(void)
{
    const circuit_options *o = &circuit_settings;
    if (o->by && o->remove) usage_error("--delete is given with --by, expected one of them");
    if (o->patterns && !o->by) usage_error("--patterns is given, expected --by as well");
    if (o->loss && o->against) usage_error("--against is given with --loss, expected one of them");
}

void ask_question(const subject *s, const char *text, question *q)
{
    const circuit_options *o = &circuit_settings;
    const bool             next = o->loss && !o->token;     /* the text says of which token */
    memset(q, 0, sizeof *q);
    q->count = text_tokens(s, text, &q->ids);
    if (next && q->count < 2)
        fail("the text has 1 token, expected 2 or more, or --token: a loss needs a token that follows");
    int64_t most = q->count - next;
    if (o->position >= most)
        usage_error("--position is %lld, expected less than %lld, the tokens of the text%s", (long long)o->position,
                    (long long)most, next ? " that another one follows" : "");
    tn_ctx_reset(s->m.ctx);
    tn_circuit_freeze(s->m.ctx, &s->m.net, ids_tensor(s->m.ctx, q->ids, q->count), &q->frozen);
    check_ctx(s->m.ctx, "the frozen network");
    q->target.position = o->position < 0 ? most - 1 : o->position;
    choose_token(s, q, o->token, next ? q->ids[q->target.position + 1] : -1);
    q->target.aim = o->loss ? TN_CIRCUIT_AIM_LOSS : o->against ? TN_CIRCUIT_AIM_DIFFERENCE : TN_CIRCUIT_AIM_LOGIT;
    q->target.other = o->against ? token_id(s, o->against) : 0;
    q->whole = o->loss ? "linear_loss" : "logit";
    if (o->against && q->target.other == q->target.token)
        usage_error("--against is %s, expected another token than %s", o->against,
                    o->token ? "that of --token" : "the most likely one, which --token replaces");
    report_note("Patterns and the denominators of norms are constants, those of this text%s.",
                s->m.desc.mlp_count > 0 || s->m.desc.mlp != TN_MLP_BILINEAR ? "; so are the modifiers of MLPs that "
                "are not bilinear" : "");
    if (o->loss)
        report_note("linear_loss is the mean of all logits under the model's own prediction, minus the token's logit; "
                    "a small change of it is that of the loss.");
}

/* The title of the first table, a new string: what is divided, and how. */
static char *target_title(const subject *s, const question *q, const char *how)
{
    const tn_circuit_target *t = &q->target;
    return format_text("The %s of %s%s%s at position %lld, %s:", t->aim == TN_CIRCUIT_AIM_LOSS ? "linearised loss" : "logit",
                       s->names[t->token], t->aim == TN_CIRCUIT_AIM_DIFFERENCE ? " minus that of " : "",
                       t->aim == TN_CIRCUIT_AIM_DIFFERENCE ? s->names[t->other] : "", (long long)t->position, how);
}

static void report_question(const subject *s, const question *q)
{
    report_text("token", s->names[q->target.token]);
    if (q->target.aim == TN_CIRCUIT_AIM_DIFFERENCE) report_text("against", s->names[q->target.other]);
    report_value("position", "%.0f", (double)q->target.position);
    if (q->target.aim == TN_CIRCUIT_AIM_LOSS) report_value("loss", "%.6f", q->loss);
}

/* "logit_of_paths", in the words of the target */
static void report_part_of(const question *q, const char *of, double v)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", q->whole, of);
    report_value(name, "%.6f", v);
}

/* error: sum of parts - whole. Beside it the frozen network's own difference from the run; NaN remains. */
static void report_remainder(const question *q, double error)
{
    const double x = q->largest > 0 ? fabs(error) / q->largest : fabs(error), y = q->frozen.error;
    report_value("remainder", "%.3g", x > y || isnan(x) ? x : y);
}

void close_question(question *q)
{
    tn_circuit_frozen_destroy(&q->frozen);
    free(q->ids);
}

/* Values in the order of their magnitude. */
typedef struct share { double value; int64_t source, position; } share;

static int by_size(const void *a, const void *b)
{
    const share *x = (const share *)a, *y = (const share *)b;
    if (fabs(x->value) != fabs(y->value)) return fabs(x->value) < fabs(y->value) ? 1 : -1;
    if (x->position != y->position) return x->position < y->position ? -1 : 1;
    return x->source < y->source ? -1 : x->source > y->source;
}

/* ---- tn circuits paths ------------------------------------------------------------------------------------------------ */

char *path_name(const subject *s, const tn_circuit_paths *p, int64_t node)
{
    const int64_t n = tn_circuit_path_name(p, node, s->names, NULL, 0);
    char         *name = (char *)allocate((size_t)(n > 0 ? n : 0) + 1, 1);
    if (n >= 0) tn_circuit_path_name(p, node, s->names, name, (size_t)n + 1);
    return name;
}

/* The sum of |value| over nodes. */
static double size_of(const tn_circuit_paths *p, const int64_t *nodes, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += fabs(p->node[nodes[i]].value);
    return sum;
}

static void report_deleted(const subject *s, const tn_circuit_paths *p, int64_t count)
{
    static const column columns[] = {
        {"predicted", NULL, 10, "%.5f"}, {"measured", NULL, 10, "%.5f"}, {"path", NULL, 54, "%s"}, {NULL, NULL, 0, NULL}
    };
    tn_circuit_ablation d;
    double             *node, *predicted, *measured;
    tn_circuit_paths_ablate(p, count, &d);
    check_ctx(s->m.ctx, "--delete");
    node = numbers_in(d.path), predicted = numbers_in(d.predicted), measured = numbers_in(d.measured);
    report_table("per_deletion", p->target.aim == TN_CIRCUIT_AIM_LOSS
                 ? "Paths that are deleted, each alone: decrease of the loss as predicted with constant patterns, and as "
                   "measured where patterns follow."
                 : "Paths that are deleted, each alone: decrease of the logit as predicted with constant patterns, and as "
                   "measured where patterns follow.", columns);
    for (int64_t i = 0; i < d.count; i++) {
        char *name = path_name(s, p, (int64_t)node[i]);
        report_row(columns, predicted[i], measured[i], name);
        free(name);
    }
    report_value("r2", "%.4f", d.count > 1 ? d.r2 : NAN);
    report_value("r2_shuffled", "%.4f", d.count > 1 ? d.r2_shuffled : NAN);
    tn_circuit_ablation_destroy(&d);
    free(node);
    free(predicted);
    free(measured);
}

static void report_nodes(const subject *s, const tn_circuit_paths *p, const char *key, const char *title,
                         const int64_t *nodes, int64_t count)
{
    static const column fixed[] = {{"value", NULL, 11, "%+.5f"}, {"path", NULL, 65, "%s"}, {NULL, NULL, 0, NULL}};
    static const column small[] = {{"value", NULL, 11, "%+.2e"}, {"path", NULL, 65, "%s"}, {NULL, NULL, 0, NULL}};
    const column       *columns = count && fabs(p->node[nodes[0]].value) < 1e-3 ? small : fixed;
    report_table(key, title, columns);
    for (int64_t i = 0; i < count; i++) {
        char *name = path_name(s, p, nodes[i]);
        report_row(columns, p->node[nodes[i]].value, name);
        free(name);
    }
}

/* Every part of a kind: paths, degrees in the embeddings, or sets of MLPs; by falling magnitude. */
static void report_whole(const subject *s, const question *q)
{
    static const column   columns[] = {{"value", NULL, 12, "%+.5f"}, {"part", NULL, 64, "%s"}, {NULL, NULL, 0, NULL}};
    const int64_t         top = circuit_settings.top ? circuit_settings.top : 20;
    tn_circuit_parts_desc d;
    tn_circuit_parts      parts;
    double                first = 0, all = 0;
    char                 *title = target_title(s, q, "by part");
    memset(&d, 0, sizeof d);
    d.by = (tn_circuit_by)(circuit_settings.by - 1);
    d.patterns = circuit_settings.patterns;
    tn_circuit_parts_of(&q->frozen, &q->target, &d, &parts);
    check_ctx(s->m.ctx, "paths");
    share  *list = (share *)allocate((size_t)parts.count, sizeof *list);
    double *v = numbers_in(parts.values);
    for (int64_t i = 0; i < parts.count; i++) list[i].value = v[i], list[i].position = i;
    qsort(list, (size_t)parts.count, sizeof *list, by_size);
    report_table("per_part", title, columns);
    free(title);
    for (int64_t i = 0; i < parts.count; i++) {
        const int64_t n = tn_circuit_part_name(&parts, list[i].position, NULL, 0);
        char         *name = (char *)allocate((size_t)n + 1, 1);
        tn_circuit_part_name(&parts, list[i].position, name, (size_t)n + 1);
        if (i < top && list[i].value != 0) report_row(columns, list[i].value, name);
        if (i < 100) first += fabs(list[i].value);
        all += fabs(list[i].value);
        free(name);
    }
    report_question(s, q);
    report_part_of(q, "", parts.whole);
    report_value("paths", "%.0f", (double)parts.count);
    report_value("share_of_top_100", "%.4f", all > 0 ? first / all : NAN);
    report_remainder(q, parts.error);
    tn_circuit_parts_destroy(&parts);
    free(list);
    free(v);
}

/* The paths of the linear form, best first. */
static void report_search(const subject *s, const question *q)
{
    const int64_t         top = circuit_settings.top ? circuit_settings.top : 20;
    tn_circuit_paths_desc d;
    tn_circuit_paths      p;
    char                 *title = target_title(s, q, "by path");
    memset(&d, 0, sizeof d);
    d.budget = circuit_settings.budget;
    tn_circuit_paths_find(&q->frozen, &q->target, &d, &p);
    check_ctx(s->m.ctx, "paths");
    report_nodes(s, &p, "per_path", title, p.path, p.count < top ? p.count : top);
    free(title);
    if (p.open) report_nodes(s, &p, "frontier", "Ends of paths that the budget did not reach, the largest:", p.frontier,
                 p.open < 5 ? p.open : 5);
    if (circuit_settings.remove)
        report_deleted(s, &p, circuit_settings.remove < p.count ? circuit_settings.remove : p.count);
    double first = size_of(&p, p.path, p.count < 100 ? p.count : 100);
    double all = size_of(&p, p.path, p.count) + size_of(&p, p.frontier, p.open);
    report_note("E[token]@position is a source%s%s, 0.head1@3 the head 1 of block 0 for position 3, * all sources "
                "together. The value of a path is what it adds to the %s; each MLP is linear in one of its "
                "inputs, with the others at their values.",
                q->frozen.positions ? ", P@3 the learned position 3" : "", q->frozen.constant ? ", 1@3 the constant one "
                "of biases" : "", q->target.aim == TN_CIRCUIT_AIM_LOSS ? "linearised loss" : "logit");
    report_question(s, q);
    report_part_of(q, "", p.whole);
    report_part_of(q, "_of_paths", p.found);
    report_part_of(q, "_of_frontier", p.rest);
    report_value("paths_there_are", "%.6g", p.all);
    report_value("paths", "%.0f", (double)p.count);
    report_value("share_of_top_100", "%.4f", all > 0 ? first / all : NAN);
    report_remainder(q, p.error);
    tn_circuit_paths_destroy(&p);
}

void paths_report(subject *s, const char *text)
{
    question q;
    check_questions();
    ask_question(s, text, &q);
    if (circuit_settings.by) report_whole(s, &q);
    else report_search(s, &q);
    close_question(&q);
}

/* ---- tn circuits attribute -------------------------------------------------------------------------------------------- */

static void report_sources(const subject *s, const question *q, const tn_circuit_attribution *a)
{
    static const column columns[] = {
        {"position", NULL, 8, "%.0f"}, {"source", NULL, 24, "%s"}, {"value", NULL, 12, "%+.5f"}, {NULL, NULL, 0, NULL}
    };
    const tn_circuit_frozen *f = &q->frozen;
    const int64_t            n = f->sources * f->tokens, top = circuit_settings.top ? circuit_settings.top : 20;
    double                  *v = numbers_in(a->values);
    share                   *list = (share *)allocate((size_t)n, sizeof *list);
    char                    *title = target_title(s, q, "by token and position");
    for (int64_t i = 0; i < n; i++) list[i].value = v[i], list[i].source = i / f->tokens, list[i].position = i % f->tokens;
    qsort(list, (size_t)n, sizeof *list, by_size);
    report_table("per_source", title, columns);
    free(title);
    for (int64_t i = 0; i < n && i < top && list[i].value != 0; i++) {
        const int64_t source = list[i].source;
        report_row(columns, (double)list[i].position, !source ? s->names[q->ids[list[i].position]]
                   : f->positions && source == 1 ? "(its position)" : "(constant: biases)", list[i].value);
    }
    free(list);
    free(v);
}

/* What a node of the first step back from the unembedding belongs to: a head, an MLP, a kind of source. */
static char *part_name(const tn_circuit_frozen *f, const tn_circuit_node *node)
{
    if (node->head >= 0) return format_text("blocks.%d.attn.%d", (int)node->block, (int)node->head);
    if (node->head == TN_CIRCUIT_MLP) return format_text("blocks.%d.mlp", (int)node->block);
    return copy_text(!node->block ? "embed" : f->positions && node->block == 1 ? "positions" : "biases");
}

/* By heads and MLPs: what each writes, whatever it was made of. One step back from the target are the ends of paths that
   each of them writes, from all positions. */
static void report_parts(const subject *s, const question *q)
{
    static const column   columns[] = {{"part", NULL, 24, "%s"}, {"value", NULL, 12, "%+.5f"}, {NULL, NULL, 0, NULL}};
    const int64_t         top = circuit_settings.top ? circuit_settings.top : 20;
    tn_circuit_paths_desc d;
    tn_circuit_paths      p;
    int64_t               n = 0;
    memset(&d, 0, sizeof d);
    d.budget = 1;
    tn_circuit_paths_find(&q->frozen, &q->target, &d, &p);
    check_ctx(s->m.ctx, "the attribution to parts");
    share *list = (share *)allocate((size_t)p.nodes, sizeof *list);
    for (int64_t i = 1; i < p.nodes; i++) {         /* the nodes of a head follow one another, one for each position */
        const tn_circuit_node *node = &p.node[i], *last = n ? &p.node[list[n - 1].source] : NULL;
        if (!last || last->block != node->block || last->head != node->head) list[n++].source = i;
        list[n - 1].value += node->value;
    }
    for (int64_t i = 0; i < n; i++) list[i].position = i;
    qsort(list, (size_t)n, sizeof *list, by_size);
    report_table("per_part", "By the part that writes it:", columns);
    for (int64_t i = 0; i < n && i < top; i++) {
        char *name = part_name(&q->frozen, &p.node[list[i].source]);
        report_row(columns, name, list[i].value);
        free(name);
    }
    tn_circuit_paths_destroy(&p);
    free(list);
}

void attribute_report(subject *s, const char *text)
{
    question               q;
    tn_circuit_attribution a;
    check_questions();
    ask_question(s, text, &q);
    tn_circuit_attribute(&q.frozen, &q.target, &a);
    check_ctx(s->m.ctx, "the attribution");
    report_sources(s, &q, &a);
    report_parts(s, &q);
    report_note("By token: the sum over all paths that begin there, each MLP linear in one of its inputs.");
    report_question(s, &q);
    report_part_of(&q, "", a.whole);
    report_remainder(&q, a.error);
    tn_circuit_attribution_destroy(&a);
    close_question(&q);
}
