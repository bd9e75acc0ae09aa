#include "core/inner.h"
#include "algebra/inner.h"

#ifndef TN_NO_CONTRACTION
/* ======================================================================
   >>contraction-impl  from an expression to labels, from labels to a tree of pairs, from the tree to kernel calls
   Labels of extent 1 are left out, so that a repeated axis of extent 1 is an absent one. A set of labels is an array of
   `words` words. Node k < n of the tree is operand k without its private labels, node n and later ones are products.
   ====================================================================== */

/* ---- expressions -------------------------------------------------------- >>einsum-parse */

/* Fails at a character of the expression, of which the message shows the next few. */
TNI_PRINTF(3, 4) static bool tni_subscript_fail(const tn_plan *p, int at, const char *fmt, ...)
{
    char     why[256], shown[16];
    tni_text t = {why, sizeof why, 0};
    va_list  args;
    va_start(args, fmt);
    tni_text_v(&t, fmt, args);
    va_end(args);
    if (at < 0 || !p->expr) return tni_fail(p->ctx, TN_ERR_SHAPE, "%s: %s", p->op, why), false;
    for (t.length = 0; t.length < 12 && p->expr[(size_t)at + t.length]; t.length++)
        shown[t.length] = p->expr[(size_t)at + t.length];
    shown[t.length] = 0;
    return tni_fail(p->ctx, TN_ERR_SHAPE, "%s: character %d, \"%s%s\": %s", p->op, at + 1, shown, t.length == 12 ? ".." : "",
                    why), false;
}

static bool tni_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* Reads the letters of one operand, or of the result, from *at on. *dots: how many letters are before "...", or -1. */
static bool tni_parse_term(const tn_plan *p, int *at, tni_subscript *s, int *dots)
{
    const char *e = p->expr;
    s->rank = 0;
    *dots = -1;
    for (; e[*at] && e[*at] != ',' && !(e[*at] == '-' && e[*at + 1] == '>'); ++*at) {
        if (e[*at] == ' ') continue;
        if (e[*at] == '.') {
            if (e[*at + 1] != '.' || e[*at + 2] != '.') return tni_subscript_fail(p, *at, "expected three dots \"...\"");
            if (*dots >= 0) return tni_subscript_fail(p, *at, "a second \"...\", expected at most one per operand");
            *dots = s->rank;
            *at += 2;
            continue;
        }
        if (!tni_is_letter(e[*at])) return tni_subscript_fail(p, *at, "expected a letter, \",\", \"...\" or \"->\"");
        if (s->rank == TN_MAX_RANK)
            return tni_subscript_fail(p, *at, "more than %d labels, expected at most %d", TN_MAX_RANK, TN_MAX_RANK);
        s->at[s->rank] = *at;
        s->label[s->rank++] = e[*at];
    }
    return true;
}

/* Inserts `more` axes of an ellipsis after the first `dots` labels: -more .. -1. */
static bool tni_parse_dots(const tn_plan *p, int at, tni_subscript *s, int dots, int more)
{
    if (s->rank + more > TN_MAX_RANK)
        return tni_subscript_fail(p, at, "the result has rank %d, expected at most %d", s->rank + more, TN_MAX_RANK);
    for (int i = s->rank - 1; i >= dots; i--) {
        s->label[i + more] = s->label[i];
        s->at[i + more] = s->at[i];
    }
    for (int i = 0; i < more; i++) {
        s->label[dots + i] = i - more;
        s->at[dots + i] = at;
    }
    s->rank += more;
    return true;
}

/* The result without "->": the axes of ellipses, then all letters that occur once, in alphabetical order. */
static bool tni_parse_implicit(tn_plan *p, int at, int most)
{
    int count[128] = {0};
    for (int k = 0; k < p->n; k++)
        for (int i = 0; i < p->operand[k].rank; i++)
            if (p->operand[k].label[i] >= 0) count[p->operand[k].label[i]]++;
    p->out.rank = 0;
    for (int i = 0; i < 128; i++) {
        if (count[i] != 1) continue;
        if (p->out.rank == TN_MAX_RANK)
            return tni_subscript_fail(p, at, "the result has more than %d axes, expected at most %d", TN_MAX_RANK,
                                      TN_MAX_RANK);
        p->out.at[p->out.rank] = at;
        p->out.label[p->out.rank++] = i;
    }
    return tni_parse_dots(p, at, &p->out, 0, most);
}

TNI_COLD_FN bool tni_parse(tn_plan *p)
{
    const char *e = p->expr;
    int         at = 0, dots, most = -1;
    for (int k = 0; k < p->n; k++) {
        tni_subscript *s = &p->operand[k];
        const int      rank = s->rank, begin = at;
        if (!tni_parse_term(p, &at, s, &dots)) return false;
        if (dots >= 0 ? s->rank > rank : s->rank != rank)
            return tni_subscript_fail(p, begin, "%d label%s for operand %d of rank %d", s->rank, s->rank == 1 ? "" : "s", k,
                                      rank);
        if (dots >= 0) {
            if (rank - s->rank > most) most = rank - s->rank;
            if (!tni_parse_dots(p, begin, s, dots, rank - s->rank)) return false;
        }
        if (e[at] == ',') {
            if (k + 1 == p->n) return tni_subscript_fail(p, at, "a term for operand %d, expected %d operand%s", k + 1, p->n,
                                                       p->n == 1 ? "" : "s");
            at++;
        } else if (k + 1 < p->n)
            return tni_subscript_fail(p, at, "the expression has %d operand%s, expected %d", k + 1, k > 0 ? "s" : "", p->n);
    }
    if (!e[at]) return tni_parse_implicit(p, at, most > 0 ? most : 0);
    at += 2;
    if (!tni_parse_term(p, &at, &p->out, &dots)) return false;
    if (e[at]) return tni_subscript_fail(p, at, "expected the end of the expression after its result");
    if (dots >= 0 && most < 0) return tni_subscript_fail(p, at, "\"...\" in the result, expected one in an operand as well");
    if (dots < 0 && most > 0) return tni_subscript_fail(p, at, "the axes of \"...\" are missing in the result");
    return dots < 0 || tni_parse_dots(p, at, &p->out, dots, most);
}

/* ---- labels: numbers, extents, sets ------------------------------------- >>einsum-labels */

TNI_COLD_FN bool tni_set_has(const uint64_t *set, int label) { return (set[label / 64] >> (label % 64) & 1) != 0; }
TNI_COLD_FN void tni_set_add(uint64_t *set, int label) { set[label / 64] |= (uint64_t)1 << (label % 64); }

TNI_COLD_FN int tni_lowest_bit(uint64_t bits)
{
#if defined(__GNUC__)
    return __builtin_ctzll(bits);
#else
    int i = 0;
    while ((bits >> i & 1) == 0) i++;
    return i;
#endif
}

/* The number of a label, new ones in order; the table is open hashing of number + 1. */
static int tni_label_number(tn_plan *p, int *table, int64_t size, int name)
{
    int64_t i = ((uint32_t)name * 2654435761u) % size;
    for (; table[i] != 0; i = (i + 1) % size)
        if (p->name[table[i] - 1] == name) return table[i] - 1;
    p->name[p->labels] = name;
    table[i] = ++p->labels;
    return p->labels - 1;
}

/* "j", "label 7" or "..." */
static const char *tni_label_text(const tn_plan *p, int label, char text[32])
{
    if (p->name[label] < 0) return "...";
    if (p->expr) tni_print(text, 32, "%c", (char)p->name[label]);
    else tni_print(text, 32, "label %d", p->name[label]);
    return text;
}

/* Sets the extent of a label from axis i of operand k, or compares it. from[label] - 1 is the operand that set it. */
static bool tni_bind_extent(tn_plan *p, int k, int i, int label, int *from)
{
    char          text[32];
    const int64_t now = p->operand[k].shape[i], was = p->extent[label];
    if (from[label] == 0 || (p->desc.broadcast && was == 1)) {
        from[label] = k + 1;
        p->extent[label] = now;
        return true;
    }
    if (was == now || (p->desc.broadcast && now == 1)) return true;
    return tni_subscript_fail(p, p->operand[k].at[i], "%s has extent %lld in operand %d but %lld in operand %d, expected "
                              "equal extents%s", tni_label_text(p, label, text), (long long)was, from[label] - 1,
                              (long long)now, k, p->desc.broadcast ? ", or 1" : "");
}

static bool tni_bind_result(tn_plan *p, int *table, int64_t size)
{
    char text[32];
    int  known = p->labels;
    for (int i = 0; i < p->out.rank; i++) {
        const int name = p->out.label[i], label = tni_label_number(p, table, size, name);
        if (label >= known)
            return tni_subscript_fail(p, p->out.at[i], "%s of the result, expected a label of an operand",
                                      tni_label_text(p, label, text));
        if (tni_set_has(p->keep, label))
            return tni_subscript_fail(p, p->out.at[i], "%s is twice in the result, expected once",
                                      tni_label_text(p, label, text));
        tni_set_add(p->keep, label);
        p->out.label[i] = label;
        p->out.shape[i] = p->extent[label];
    }
    return true;
}

/* Replaces names by numbers, checks extents, and finds the labels of the operands and of the result. */
TNI_COLD_FN bool tni_plan_bind(tn_plan *p)
{
    const int64_t n = p->n;
    int     axes = 1;
    int64_t size;
    for (int k = 0; k < p->n; k++) axes += p->operand[k].rank;
    axes += p->out.rank;
    for (size = 16; size < 2 * axes; size *= 2) {}
    p->name = (int *)tni_take_zeroed(&p->memory, axes, sizeof *p->name);
    p->extent = (int64_t *)tni_take_zeroed(&p->memory, axes, sizeof *p->extent);
    p->part = (int64_t *)tni_take_zeroed(&p->memory, axes, sizeof *p->part);
    p->width = (double *)tni_take_zeroed(&p->memory, axes, sizeof *p->width);
    p->child = (int *)tni_take_zeroed(&p->memory, tni_area(4, n), sizeof *p->child);
    p->order = (int *)tni_take_zeroed(&p->memory, n, sizeof *p->order);
    p->seconds = (double *)tni_take_zeroed(&p->memory, tni_area(2, n), sizeof *p->seconds);
    int *table = (int *)tni_take_zeroed(&p->memory, size, sizeof *table);
    int *from = (int *)tni_take_zeroed(&p->memory, tni_area(2, axes), sizeof *from);
    if (p->memory.failed) return false;
    int *uses = from + axes;
    for (int k = 0; k < p->n; k++)
        for (int i = 0; i < p->operand[k].rank; i++) {
            const int label = tni_label_number(p, table, size, p->operand[k].label[i]);
            if (!tni_bind_extent(p, k, i, label, from)) return false;
            p->operand[k].label[i] = label;
        }
    p->words = p->labels / 64 + 1;
    p->keep = (uint64_t *)tni_take_zeroed(&p->memory, p->words, sizeof *p->keep);
    p->all = (uint64_t *)tni_take_zeroed(&p->memory, tni_area(n, p->words), sizeof *p->all);
    p->legs = (uint64_t *)tni_take_zeroed(&p->memory, tni_area(tni_area(2, n), p->words), sizeof *p->legs);
    if (p->memory.failed || !tni_bind_result(p, table, size)) return false;
    for (int k = 0; k < p->n; k++) {
        uint64_t *all = p->all + (size_t)k * (size_t)p->words;
        for (int i = 0; i < p->operand[k].rank; i++) {
            int *label = &p->operand[k].label[i];
            if (p->extent[*label] != 1 && p->operand[k].shape[i] != 1) {
                if (!tni_set_has(all, *label)) uses[*label]++;
                tni_set_add(all, *label);
            } else *label = -1;
        }
    }
    for (int i = 0; i < p->out.rank; i++) {
        int *label = &p->out.label[i];
        if (p->extent[*label] == 1) {
            p->keep[*label / 64] &= ~((uint64_t)1 << (*label % 64));
            *label = -1;
        } else uses[*label]++;
    }
    for (int k = 0; k < p->n; k++)
        for (int i = 0; i < p->operand[k].rank; i++) {
            const int label = p->operand[k].label[i];
            if (label >= 0 && uses[label] > 1) tni_set_add(p->legs + (size_t)k * (size_t)p->words, label);
        }
    for (int i = 0; i < p->labels; i++) {
        p->part[i] = p->extent[i];
        p->width[i] = (double)p->extent[i];
    }
    return true;
}

#endif /* TN_NO_CONTRACTION */
