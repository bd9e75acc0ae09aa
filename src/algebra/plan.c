#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "algebra/inner.h"

#ifndef TN_NO_CONTRACTION
/* ---- making a plan ------------------------------------------------------ >>plan-create */

static double tni_plan_flops(const tn_plan *p, double *written, double *largest)
{
    double flops = 0, slices = 1;
    *written = *largest = 0;
    for (int i = 0; i < p->labels; i++)
        if (p->part[i] > 0) slices *= (double)tni_ceil_div(p->extent[i], p->part[i]);
    for (int i = 0; i < p->n; i++) {
        const uint64_t *all = p->all + (size_t)i * (size_t)p->words, *legs = tni_legs(p, i);
        if (memcmp(all, legs, (size_t)p->words * sizeof *all) == 0) continue;
        flops += tni_volume(p, all, NULL);
        *written += tni_volume(p, legs, NULL);
        if (p->n > 1 && tni_volume(p, legs, NULL) > *largest) *largest = tni_volume(p, legs, NULL);
    }
    for (int i = 0; i + 1 < p->n; i++) {
        const int    v = p->order[i];
        const double size = tni_volume(p, tni_legs(p, v), NULL);
        flops += tni_couple_flops(p, tni_legs(p, p->child[2 * v]), tni_legs(p, p->child[2 * v + 1]), tni_legs(p, v));
        *written += size;
        if (v != p->root && size > *largest) *largest = size;
    }
    *written *= slices;
    return flops * slices;
}

/* Halves the part of one of these labels: the one that makes the plan cost the least. */
static bool tni_plan_halve(tn_plan *p, const uint64_t *labels)
{
    double best = HUGE_VAL, written, largest;
    int    choice = -1;
    for (int v = 0; labels && v < p->labels; v++) {
        const int64_t part = p->part[v];
        if (part <= 1 || !tni_set_has(labels, v)) continue;
        p->part[v] = tni_ceil_div(part, 2);
        p->width[v] = (double)p->part[v];
        double cost = tni_plan_flops(p, &written, &largest);
        cost += tni_write_cost(p) * written;
        if (cost < best) { best = cost; choice = v; }
        p->part[v] = part;
        p->width[v] = (double)part;
    }
    if (choice < 0) return false;
    p->part[choice] = tni_ceil_div(p->part[choice], 2);
    p->width[choice] = (double)p->part[choice];
    return true;
}

/* The labels of the largest intermediate result; NULL without any. */
static const uint64_t *tni_plan_largest(const tn_plan *p)
{
    double most = -1;
    int    at = -1;
    for (int v = p->n; v < 2 * p->n - 1; v++) {
        const double size = v == p->root ? -1 : tni_volume(p, tni_legs(p, v), NULL);
        if (size > most) { most = size; at = v; }
    }
    return at < 0 ? NULL : tni_legs(p, at);
}

/* Intermediate results that do not fit the address space are sliced if there is a limit, else an error. */
static bool tni_plan_fits(tn_plan *p)
{
    double written, largest;
    for (;;) {
        tni_plan_flops(p, &written, &largest);
        largest *= (double)tni_dtype_size(p->ctx->desc.dtype);
        if (largest < (double)(PTRDIFF_MAX / 16)) return true;
        if (p->desc.max_bytes > 0 && tni_plan_halve(p, tni_plan_largest(p))) continue;
        return tni_fail(p->ctx, TN_ERR_MEMORY, "%s: an intermediate result of %g bytes, which do not fit the address space",
                        p->op, largest), false;
    }
}

/* Parses the expression, orders the products, slices. The operands' ranks and shapes are in p->operand, and so are all
   labels if they are integers; p->expr is then NULL. */
static bool tni_plan_make(tn_plan *p)
{
    size_t bytes;
    if (p->expr && !tni_parse(p)) return false;
    if (!tni_plan_bind(p)) return false;
    if (!tni_shape_bytes(p->ctx, p->op, p->ctx->desc.dtype, p->out.rank, p->out.shape, &bytes)) return false;
    tni_shape_to(p->out.rank, p->out.shape, p->out.shape, p->out.strides);      /* the plan's own program is made for these */
    if (!tni_plan_tree(p) || !tni_plan_fits(p)) return false;
    p->program = tni_plan_program(p, &p->memory, p->part, false);
    if (!p->program) return false;
    while (p->desc.max_bytes > 0 && p->program->bytes > p->desc.max_bytes) {
        if (!tni_plan_halve(p, tni_program_largest(p->program)))
            return tni_plan_too_large(p, p->program) == TN_OK;
        p->program = tni_plan_program(p, &p->memory, p->part, false);
        if (!p->program) return false;
    }
    return true;
}

/* The operands' ranks and shapes; labels may be NULL. */
static bool tni_plan_operands(tn_plan *p, int64_t n, const int *ranks, const int64_t *const *shapes, tn_tensor *const *t,
                              const int *const *labels)
{
    char what[32];
    if (!tni_within(p->ctx, p->op, "the number of operands", n, 1, TNI_OPERANDS)) return false;
    if (t ? false : !ranks || !shapes)
        return tni_fail(p->ctx, TN_ERR_ARG, "%s: the array of %s is NULL", p->op, ranks ? "shapes" : "ranks"), false;
    p->n = (int)n;
    p->operand = (tni_subscript *)tni_take_zeroed(&p->memory, n, sizeof *p->operand);
    if (!p->operand) return false;
    for (int k = 0; k < n; k++) {
        tni_subscript *o = &p->operand[k];
        size_t         bytes;
        tni_print(what, sizeof what, "operand %d", k);
        if (t && !tni_is_real(p->ctx, t[k], p->op, what)) return false;
        o->rank = t ? t[k]->rank : ranks[k];
        if (!tni_rank_fits(p->ctx, p->op, o->rank, t ? t[k]->shape : shapes[k])) return false;
        if (o->rank > 0) memcpy(o->shape, t ? t[k]->shape : shapes[k], (size_t)o->rank * sizeof *o->shape);
        if (!t && !tni_shape_bytes(p->ctx, p->op, p->ctx->desc.dtype, o->rank, o->shape, &bytes)) return false;
        tni_shape_to(o->rank, o->shape, o->shape, o->strides);
        if (t) memcpy(o->strides, t[k]->strides, sizeof o->strides);
        for (int i = 0; labels && i < o->rank; i++) {
            o->at[i] = -1;
            o->label[i] = labels[k] ? labels[k][i] : -1;
            if (o->label[i] >= 0) continue;
            return tni_fail(p->ctx, TN_ERR_ARG, "%s: label %d of operand %d is %d, expected at least 0", p->op, i, k,
                            o->label[i]), false;
        }
    }
    return true;
}

static bool tni_plan_labels(tn_plan *p, int rank, const int *out)
{
    if (!tni_rank_fits(p->ctx, p->op, rank, rank > 0 && !out ? NULL : p->out.shape)) return false;
    p->out.rank = rank;
    for (int i = 0; i < rank; i++) {
        p->out.at[i] = -1;
        p->out.label[i] = out[i];
        if (out[i] >= 0) continue;
        return tni_fail(p->ctx, TN_ERR_ARG, "%s: label %d of the result is %d, expected at least 0", p->op, i, out[i]), false;
    }
    return true;
}

static tn_tensor *tni_einsum(tn_ctx *ctx, const char *op, const char *expr, int64_t n, tn_tensor *const *t,
                             const int *const *labels, int rank, const int *out)
{
    tn_plan p = TNI_ZERO;
    if (!ctx) return NULL;
    p.ctx = ctx;
    p.memory = tni_scratch_begin(ctx, op);
    p.memory.arena = true;
    p.op = op;
    p.expr = expr;
    p.desc.broadcast = true;
    if ((!expr && !labels) || !t)
        return tni_fail(ctx, TN_ERR_ARG, "%s: the %s NULL", op, t ? "expression, or the array of labels, is"
                        : "array of operands is"), (tn_tensor *)NULL;
    if (!tni_plan_operands(&p, n, NULL, NULL, t, labels) || (labels && !tni_plan_labels(&p, rank, out))) return NULL;
    return tni_plan_make(&p) ? tni_plan_result(&p, t, p.program) : NULL;
}

tn_tensor *tn_einsum(tn_ctx *ctx, const char *expr, int64_t n, tn_tensor *const *operands)
{
    return tni_einsum(ctx, "einsum", expr, n, operands, NULL, 0, NULL);
}

tn_tensor *tn_einsum_labels(tn_ctx *ctx, int64_t n, tn_tensor *const *operands, const int *const *labels, int rank,
                            const int *out)
{
    return tni_einsum(ctx, "einsum_labels", NULL, n, operands, labels, rank, out);
}

static void tni_plan_free(tni_owned *o)
{
    tn_plan *p = (tn_plan *)(void *)o;
    tn_ctx  *ctx = o->ctx;
    tni_scratch_end(&p->memory, TN_OK);
    tni_disown(o);
    tni_free(ctx, p, sizeof *p);
}

void tn_plan_destroy(tn_plan *p) { if (p) p->owned.destroy(&p->owned); }

TNI_COLD_FN tn_plan *tni_plan_create(tn_ctx *ctx, const char *op, const char *expr, int64_t n, const int *ranks,
                                     const int64_t *const *shapes, const int *const *labels, int rank, const int *out,
                                     const tn_plan_desc *desc)
{
    if (!ctx) return NULL;
    if (!expr && !labels)
        return tni_fail(ctx, TN_ERR_ARG, "%s: the expression, or the array of labels, is NULL", op), (tn_plan *)NULL;
    if (desc && desc->samples < 0)
        return tni_fail(ctx, TN_ERR_ARG, "%s: samples is %d, expected at least 0", op, desc->samples), (tn_plan *)NULL;
    if (desc && (unsigned)desc->minimize > TN_PLAN_SIZE)
        return tni_fail(ctx, TN_ERR_ARG, "%s: minimize is %d, not a valid tn_plan_objective", op, (int)desc->minimize),
               (tn_plan *)NULL;
    tn_plan *p = (tn_plan *)tni_alloc(ctx, sizeof *p, op);
    if (!p) return NULL;
    memset(p, 0, sizeof *p);
    tni_own(ctx, &p->owned, tni_plan_free);
    p->ctx = ctx;
    p->memory = tni_scratch_begin(ctx, op);
    p->op = op;
    if (desc) p->desc = *desc;
    if (expr) {
        const size_t length = strlen(expr);
        char        *copy = (char *)tni_take_zeroed(&p->memory, (int64_t)length + 1, 1);
        if (copy) memcpy(copy, expr, length);
        p->expr = copy;
    }
    if (!p->memory.failed && tni_plan_operands(p, n, ranks, shapes, NULL, labels)
        && (!labels || tni_plan_labels(p, rank, out)) && tni_plan_make(p)) return p;
    tn_plan_destroy(p);
    return NULL;
}

tn_plan *tn_plan_create(tn_ctx *ctx, const char *expr, int64_t n, const int *ranks, const int64_t *const *shapes,
                        const tn_plan_desc *desc)
{
    return tni_plan_create(ctx, "plan_create", expr, n, ranks, shapes, NULL, 0, NULL, desc);
}

tn_plan *tn_plan_create_labels(tn_ctx *ctx, int64_t n, const int *ranks, const int64_t *const *shapes,
                               const int *const *labels, int rank, const int *out, const tn_plan_desc *desc)
{
    return tni_plan_create(ctx, "plan_create_labels", NULL, n, ranks, shapes, labels, rank, out, desc);
}

TNI_COLD_FN tn_tensor *tni_plan_run(tn_plan *p, int64_t n, tn_tensor *const *operands, const char *op)
{
    bool same;
    if (!p) return NULL;
    p->op = op;
    if (!operands) return tni_fail(p->ctx, TN_ERR_ARG, "%s: the array of operands is NULL", op), (tn_tensor *)NULL;
    if (n != p->n)
        return tni_fail(p->ctx, TN_ERR_ARG, "%s: the number of operands is %lld, expected %d", op, (long long)n, p->n),
               (tn_tensor *)NULL;
    if (!tni_plan_takes(p, operands, &same)) return NULL;
    return tni_plan_result(p, operands, same ? p->program : NULL);
}

tn_tensor *tn_plan_run(tn_plan *p, int64_t n, tn_tensor *const *operands)
{
    return tni_plan_run(p, n, operands, "plan_run");
}

/* ---- costs and the table of a plan -------------------------------------- >>plan-format */

tn_plan_cost tn_plan_cost_of(const tn_plan *p)
{
    tn_plan_cost c = TNI_ZERO;
    bool         sums = false;
    if (!p) return c;
    c.naive = 1;
    c.slices = 1;
    for (int i = 0; i < p->labels; i++) {
        c.naive *= (double)p->extent[i];
        if (p->extent[i] != 1 && !tni_set_has(p->keep, i)) sums = true;
        if (p->part[i] > 0) c.slices *= tni_ceil_div(p->extent[i], p->part[i]);
    }
    c.naive *= p->n - 1 + (sums ? 1 : 0);
    c.flops = tni_plan_flops(p, &c.written, &c.largest);
    c.bytes = p->program->bytes;
    for (int i = 0; i < p->n; i++)
        if (memcmp(p->all + (size_t)i * (size_t)p->words, tni_legs(p, i), (size_t)p->words * sizeof *p->all) != 0) c.steps++;
    c.steps += p->n - 1;
    return c;
}

/* Text in a column: to the right, or to the left if the width is negative. */
static void tni_text_cell(tni_text *t, const char *s, int width)
{
    const int n = (int)strlen(s);
    for (int i = n; i < width; i++) tni_text_add(t, " ", 1);
    tni_text_add(t, s, (size_t)n);
    for (int i = n; i < -width; i++) tni_text_add(t, " ", 1);
}

/* A count: all digits up to ten, else six. */
static void tni_text_count(tni_text *t, double v, int width)
{
    char number[40];
    if (v < 1e10) tni_print(number, sizeof number, "%lld", (long long)v);
    else tni_print(number, sizeof number, "%g", v);
    tni_text_cell(t, number, width);
}

static void tni_text_label(tni_text *t, const tn_plan *p, int label, bool first)
{
    char number[24];
    if (p->name[label] < 0) { tni_text_add(t, ".", 1); return; }
    if (p->expr) tni_print(number, sizeof number, "%c", (char)p->name[label]);
    else tni_print(number, sizeof number, first ? "%d" : " %d", p->name[label]);
    tni_text_add(t, number, strlen(number));
}

static void tni_text_labels(tni_text *t, const tn_plan *p, const uint64_t *set)
{
    bool first = true;
    for (int i = 0; i < p->labels; i++)
        if (tni_set_has(set, i)) {
            tni_text_label(t, p, i, first);
            first = false;
        }
}

/* The kernel of a step, and the number of copies before and after it. */
static void tni_step_kernel(const tn_plan *p, int node, char name[40])
{
    const char *main = "copy";
    int         copies = 0;
    for (const tni_move *m = p->program->first; m; m = m->next) {
        if (m->node != node) continue;
        if (m->kernel == TN_KERNEL_GEMM) main = m->out.shape[0] > 1 || m->out.rank > 3 ? "batched gemm" : "gemm";
        else if (m->kernel == TN_KERNEL_MUL) main = "mul";
        else if (m->kernel == TN_KERNEL_SUM) main = strcmp(main, "mul") == 0 ? "mul, sum" : "sum";
        else copies++;
    }
    if (strcmp(main, "copy") == 0 || copies == 0) tni_print(name, 40, "%s", main);
    else tni_print(name, 40, copies > 1 ? "%s, %d copies" : "%s, %d copy", main, copies);
}

/* What step `node` multiplies. */
static void tni_format_product(tni_text *t, const tn_plan *p, int node)
{
    tni_text_labels(t, p, node < p->n ? p->all + (size_t)node * (size_t)p->words : tni_legs(p, p->child[2 * node]));
    if (node >= p->n) {
        tni_text_add(t, ",", 1);
        tni_text_labels(t, p, tni_legs(p, p->child[2 * node + 1]));
    }
    tni_text_add(t, "->", 2);
    tni_text_labels(t, p, tni_legs(p, node));
}

/* One line: what is multiplied, labels that are looped over, flops, bytes, time, kernel. */
static void tni_format_step(tni_text *t, const tn_plan *p, int node, int step, int width)
{
    const uint64_t *a = node < p->n ? p->all + (size_t)node * (size_t)p->words : tni_legs(p, p->child[2 * node]);
    const uint64_t *c = node < p->n ? NULL : tni_legs(p, p->child[2 * node + 1]), *y = tni_legs(p, node);
    size_t          begin = t->length;
    char            text[40];
    int             scaling = 0;
    tni_print(text, sizeof text, "%d", step);
    tni_text_cell(t, text, 4);
    tni_text_add(t, "  ", 2);
    tni_format_product(t, p, node);
    if (t->length - begin > (size_t)width + 6) {           /* too long: the other columns are on the next line */
        tni_text_add(t, "\n", 1);
        begin = t->length;
    }
    for (int i = (int)(t->length - begin); i < width + 6; i++) tni_text_add(t, " ", 1);
    for (int w = 0; w < p->words; w++) {
        uint64_t bits = c ? a[w] | c[w] : a[w];
        for (; bits; bits &= bits - 1) scaling++;
    }
    tni_print(text, sizeof text, "%d", scaling);
    tni_text_cell(t, text, 8);
    tni_text_count(t, c ? tni_couple_flops(p, a, c, y) : tni_volume(p, a, NULL), 12);
    tni_text_count(t, tni_volume(p, y, NULL) * (double)tni_dtype_size(p->ctx->desc.dtype), 12);
    if (p->runs > 0) {
        tni_print(text, sizeof text, "%g", (double)(int64_t)(1e6 * p->seconds[node] / (double)p->runs + 0.5) / 1000);
        tni_text_cell(t, text, 9);
    }
    tni_text_add(t, "  ", 2);
    tni_step_kernel(p, node, text);
    tni_text_add(t, text, strlen(text));
    tni_text_add(t, "\n", 1);
}

/* The width of the products, so that a line has at most 80 columns. */
static int tni_format_width(const tn_plan *p)
{
    char   kernel[40];
    size_t most = 7, name = 0;
    for (int v = 0; v < 2 * p->n - 1; v++) {
        tni_step_kernel(p, v, kernel);
        if (strlen(kernel) > name) name = strlen(kernel);
    }
    size_t left = (size_t)(80 - 6 - 8 - 12 - 12 - (p->runs > 0 ? 9 : 0) - 2) - name;
    for (int v = 0; v < 2 * p->n - 1; v++) {
        tni_text t = {NULL, 0, 0};
        tni_format_product(&t, p, v);
        if (t.length > most && t.length <= left) most = t.length;
    }
    return (int)most;
}

static void tni_format_line(tni_text *t, const char *name, double count, const char *unit)
{
    tni_text_cell(t, name, -19);
    tni_text_count(t, count, 0);
    tni_text_cell(t, unit, 0);
}

static void tni_format_whole(tni_text *t, const tn_plan *p)
{
    tni_text_cell(t, "expression", -19);
    if (p->expr) tni_text_cell(t, p->expr, 0);
    for (int k = 0; !p->expr && k <= p->n; k++) {
        const tni_subscript *o = k < p->n ? &p->operand[k] : &p->out;
        if (k > 0) tni_text_cell(t, k < p->n ? "," : "->", 0);
        for (int i = 0; i < o->rank; i++) {
            if (o->label[i] >= 0) tni_text_label(t, p, o->label[i], i == 0);
            else tni_text_cell(t, i == 0 ? "1" : " 1", 0);
        }
    }
    tni_text_add(t, "\n", 1);
}

TNI_COLD int64_t tn_plan_format(const tn_plan *p, char *dst, size_t bytes)
{
    tni_text t = {dst, bytes, 0};
    int      step = 0;
    if (!p || (!dst && bytes > 0)) return -1;
    tn_plan_cost c = tn_plan_cost_of(p);
    tni_format_whole(&t, p);
    tni_format_line(&t, "naive cost", c.naive, " flops\n");
    tni_format_line(&t, "planned cost", c.flops, " flops");
    if (c.flops > 0) {
        char text[40];
        tni_print(text, sizeof text, ", a speedup of %g", c.naive / c.flops);
        tni_text_cell(&t, text, 0);
    }
    tni_text_add(&t, "\n", 1);
    tni_format_line(&t, "largest result", c.largest, " elements between the steps\n");
    tni_format_line(&t, "workspace", (double)c.bytes, " bytes\n");
    tni_format_line(&t, "slices", (double)c.slices, "\n");
    int width = tni_format_width(p);
    tni_text_cell(&t, "step  product", -(width + 6));
    tni_text_cell(&t, " scaling       flops       bytes", 0);
    tni_text_cell(&t, p->runs > 0 ? "       ms  kernel\n" : "  kernel\n", 0);
    for (int i = 0; i < p->n; i++)
        if (memcmp(p->all + (size_t)i * (size_t)p->words, tni_legs(p, i), (size_t)p->words * sizeof *p->all) != 0)
            tni_format_step(&t, p, i, ++step, width);
    for (int i = 0; i + 1 < p->n; i++) tni_format_step(&t, p, p->order[i], ++step, width);
    tni_text_add(&t, "", 0);
    return (int64_t)t.length;
}

#endif /* TN_NO_CONTRACTION */
