#include "core/inner.h"
#include "tensor/tensor.h"
#include "layers/inner.h"
#include "io/inner.h"
#include "models/inner.h"

#ifndef TN_NO_MODELS
/* ---- weights of other libraries, by a map of names ---------------------- >>model-weights-impl */

typedef struct tni_mapped_run { int64_t param, first, end; } tni_mapped_run;     /* numbers of a parameter */

/* The state while a file is read: the new value of each parameter, and how many of its numbers have been read. */
typedef struct tni_mapped {
    tn_safetensors       *file;
    tn_params            *params;
    const tn_transformer *model;
    const tn_name_map    *map;
    int64_t               lines;
    char                  prefix[256];  /* of the model's names: "" or "NAME." */
    tn_tensor           **value;
    int64_t              *got;
    tni_list              runs;         /* tni_mapped_run: the numbers that lines have given, none of them twice */
    bool                 *named, *used; /* the file's tensors, in its order: of a line, and of one that took it */
} tni_mapped;

/* The first n bytes of `pattern`, with {l} replaced, into out. false: it is too long. */
static bool tni_pattern_fill(tni_part *out, const char *prefix, const char *pattern, size_t n, int64_t l)
{
    tni_text t = {out->s, sizeof out->s, 0};
    tni_text_string(&t, prefix);
    for (size_t i = 0; i < n; i++) {
        if (n - i >= 3 && memcmp(pattern + i, "{l}", 3) == 0) {
            tni_text_signed(&t, l);
            i += 2;
        } else tni_text_add(&t, pattern + i, 1);
    }
    return t.length < t.bytes;
}

/* The first of the alternatives that the file has; without any, *name is the first alternative's. */
static const tn_safetensors_entry *tni_mapped_entry(const tni_mapped *m, const char *file, int64_t l, tni_part *name)
{
    const char *at = file;
    tni_part    other;
    for (;; at++) {
        const tn_safetensors_entry *e;
        size_t n = strcspn(at, "|");
        if (tni_pattern_fill(&other, "", at, n, l) && (e = tn_safetensors_find(m->file, other.s)) != NULL) {
            *name = other;
            return e;
        }
        if (at == file) *name = other;
        at += n;
        if (!*at) return NULL;
    }
}

/* A run of rows of a matrix, or of a vector as a column. */
typedef struct tni_slab { int64_t first, rows, columns; } tni_slab;

static tn_status tni_mapped_shape_fail(const tni_mapped *m, const tn_name_map *line, const char *name,
                                       const tn_safetensors_entry *e, const tn_param *p)
{
    const tn_safetensors *f = m->file;
    char                  parts[2][40];
    int                   of[2] = {line->file_parts, line->parts};
    int                   which[2] = {line->file_part, line->part};
    for (int k = 0; k < 2; k++) {
        parts[k][0] = 0;
        if (of[k] > 0) tni_print(parts[k], sizeof parts[k], "part %d of %d of ", which[k], of[k]);
    }
    return tni_fail(f->file.ctx, TN_ERR_SHAPE, "%s: %stensor %s is %s%s, expected the shape of %sparameter %s, %s",
                    f->file.name.s, parts[0], tni_quote(name).s, TNI_SHAPE(e), line->transpose ? " transposed" : "",
                    parts[1], p->name, TNI_SHAPE(p->value));
}

/* The rows that a line names in a matrix of `rows` rows. */
static bool tni_mapped_rows(tni_slab *r, int64_t rows, int64_t columns, int part, int parts)
{
    if (part < 0 || part >= (parts == 0 ? 1 : parts) || (parts > 0 && rows % parts != 0)) return false;
    r->rows = parts > 0 ? rows / parts : rows;
    r->first = part * r->rows;
    r->columns = columns;
    return true;
}

/* The row of the file's part that becomes row i of the parameter's part. */
static int64_t tni_mapped_row(const tn_name_map *line, int64_t i, int64_t rows, int64_t file_rows, int64_t heads)
{
    int64_t each = heads > 0 ? rows / heads : rows, half = each / 2, head = i / (each > 0 ? each : 1), k = i - head * each;
    if (line->kv && file_rows < rows) head = head * file_rows / rows;
    if (line->rows == TN_HEAD_ROWS_SWAPPED && k < 2 * half) k = k < half ? k + half : k - half;
    if (line->rows == TN_HEAD_ROWS_PAIRS && k < 2 * half) k = k < half ? 2 * k : 2 * (k - half) + 1;
    return head * each + k;
}

/* A parameter is offset + factor * the file's numbers. */
static double tni_mapped_factor(const tn_name_map *line, int64_t dim)
{
    return (line->scale == 0 ? 1 : line->scale) * (line->root_dim ? sqrt((double)dim) : 1);
}

/* Copies rows of the file's matrix `from`, which has `all` rows, to those of the parameter. */
static tn_status tni_mapped_set(tn_tensor *value, tni_slab to, const double *from, int64_t all, tni_slab rows,
                                const tn_name_map *line, const tn_transformer_desc *desc)
{
    const double  factor = tni_mapped_factor(line, desc->dim);
    const int64_t heads = desc->heads;
    tni_scratch w = tni_scratch_begin(value->ctx, "weights");
    tn_tensor   view = *value;
    double     *host = tni_take_f64(&w, to.rows, to.columns);
    for (int64_t i = 0; host && i < to.rows; i++) {
        int64_t row = rows.first + tni_mapped_row(line, i, to.rows, rows.rows, heads);
        for (int64_t k = 0; k < to.columns; k++) {
            const double v = factor * from[line->transpose ? k * all + row : row * to.columns + k];
            host[i * to.columns + k] = line->offset != 0 ? line->offset + v : v;        /* -0 stays */
        }
    }
    view.rank = 1;
    view.shape[0] = to.rows * to.columns;
    view.strides[0] = 1;
    view.data = (char *)value->data + (size_t)(to.first * to.columns) * tni_dtype_size(value->dtype);
    return tni_scratch_end(&w, host ? tn_write(&view, TN_F64, host, view.shape[0]) : TN_ERR_MEMORY);
}

/* Whether these rows of the file give those of the parameter. Fewer suffice where heads share keys and values. */
static bool tni_mapped_fits(const tn_name_map *line, tni_slab from, tni_slab to, int64_t heads)
{
    int64_t each = to.rows / heads;
    if (from.columns != to.columns || from.rows < 1) return false;
    if (from.rows == to.rows) return (!line->kv && line->rows == TN_HEAD_ROWS_PLAIN) || to.rows % heads == 0;
    return line->kv && to.rows % heads == 0 && each > 0 && from.rows % each == 0 && to.rows % from.rows == 0;
}

/* Marks elements [first,first + count) of parameter i as read; it is an error if one of them was before. */
static tn_status tni_mapped_once(tni_mapped *m, int64_t i, int64_t first, int64_t count)
{
    tn_ctx         *ctx = m->file->file.ctx;
    tni_mapped_run *run;
    for (size_t k = 0; k < m->runs.count; k++) {
        run = (tni_mapped_run *)tni_list_at(&m->runs, k);
        if (run->param == i && run->first < first + count && first < run->end)
            return tni_fail(ctx, TN_ERR_ARG, "name map: its lines give numbers %lld to %lld of parameter %s twice",
                            (long long)tni_max(run->first, first), (long long)tni_min(run->end, first + count) - 1,
                            tn_params_at(m->params, i)->name);
    }
    if (!(run = (tni_mapped_run *)tni_list_add(ctx, &m->runs, "name map"))) return TN_ERR_MEMORY;
    run->param = i;
    run->first = first;
    run->end = first + count;
    m->got[i] += count;
    return TN_OK;
}

/* Reads one tensor of the file, or a part of it, into one parameter. */
static tn_status tni_mapped_take(tni_mapped *m, const tn_name_map *line, const char *name, const tn_safetensors_entry *e,
                                 int64_t i)
{
    const tn_param *p = tn_params_at(m->params, i);
    const tn_tensor *v = p->value;
    const int64_t   heads = m->model->desc.heads;
    tn_ctx         *ctx = m->file->file.ctx;
    tn_tensor      *t = NULL;
    const bool      vector = e->rank < 2;
    const int64_t   columns = vector ? 1 : v->shape[v->rank - 1], count = tn_tensor_count(v);
    tni_slab        from, to;
    tn_status       s;
    if (e->rank > 2 || v->rank < 1 || columns < 1) return tni_mapped_shape_fail(m, line, name, e, p);
    int64_t all = e->rank == 0 ? 1 : e->shape[line->transpose && !vector];
    if (!tni_mapped_rows(&from, all, vector ? 1 : e->shape[!line->transpose], line->file_part, line->file_parts)
        || !tni_mapped_rows(&to, count / columns, columns, line->part, line->parts)
        || !tni_mapped_fits(line, from, to, heads))
        return tni_mapped_shape_fail(m, line, name, e, p);
    if ((s = tni_entry_real(m->file, e)) != TN_OK) return s;
    if ((s = tni_mapped_once(m, i, to.first * columns, to.rows * columns)) != TN_OK) return s;
    if ((s = tni_entry_read(m->file, e, &t)) != TN_OK) return s;
    tni_scratch w = tni_scratch_begin(ctx, "weights");
    double     *host = tni_take_f64(&w, tn_tensor_count(t), 1);
    s = host ? tn_read(t, TN_F64, host, tn_tensor_count(t)) : TN_ERR_MEMORY;
    tn_tensor_destroy(t);
    if (s == TN_OK && !m->value[i] && !(m->value[i] = tn_tensor_create(ctx, TN_REAL, v->rank, v->shape))) s = TN_ERR_MEMORY;
    if (s == TN_OK) s = tni_mapped_set(m->value[i], to, host, all, from, line, &m->model->desc);
    return tni_scratch_end(&w, s);
}

/* The file may have a tied parameter under both names, which must then be equal. A second name is not read. */
static tn_status tni_mapped_tied(const tni_mapped *m, const tn_name_map *line, const tn_safetensors_entry *e, const tn_param *p)
{
    tn_ctx                     *ctx = m->file->file.ctx;
    const size_t                n = strlen(m->prefix);
    const tn_safetensors_entry *first = NULL;
    tni_part                    name;
    for (int64_t k = 0; e && !first && k < m->lines; k++)
        if (strncmp(p->name, m->prefix, n) == 0 && strcmp(p->name + n, m->map[k].param) == 0
            && m->map[k].transpose == line->transpose) first = tni_mapped_entry(m, m->map[k].file, 0, &name);
    if (!first || tn_safetensors_equal(m->file, e->name, first->name)) return TN_OK;
    return tni_fail(ctx, TN_ERR_DATA, "%s: tensor %s differs from %s, expected equal ones, as the model ties them",
                    m->file->file.name.s, tni_quote(e->name).s, tni_quote(first->name).s);
}

/* Whether a line with `spare` is for a parameter of this shape. */
static bool tni_mapped_applies(const tn_name_map *line, const tn_param *p)
{
    return line->parts == 0 || p->value->rank < 1 || p->value->shape[0] == line->parts;
}

static tn_status tni_mapped_lacks(const tni_mapped *m, const char *name, const tn_param *p)
{
    return tni_fail(m->file->file.ctx, TN_ERR_ARG, "%s: there is no tensor %s for parameter %s %s", m->file->file.name.s,
                    tni_quote(name).s, p->name, TNI_SHAPE(p->value));
}

static tn_status tni_mapped_line(tni_mapped *m, const tn_name_map *line, int64_t l)
{
    tn_ctx  *ctx = m->file->file.ctx;
    tni_part param, name;
    int64_t  i, at = 0;
    if (!tni_pattern_fill(&param, m->prefix, line->param, strlen(line->param), l))
        return tni_fail(ctx, TN_ERR_ARG, "name map: the name %s is too long", tni_quote(line->param).s);
    const tn_safetensors_entry *e = tni_mapped_entry(m, line->file, l, &name);
    const tn_param             *p = tn_params_find(m->params, param.s);
    while (e && tn_safetensors_at(m->file, at) != e) at++;
    const bool tied = p && strcmp(p->name, param.s) != 0, apart = line->spare && (!p || !e || !tni_mapped_applies(line, p));
    if (e) m->named[at] = true;
    /* modded-nanoGPT's first block has a value mix, which it does not use. */
    if (e && (tied || !apart || (!p && l == 0 && strcmp(line->param, "blocks.{l}.attn.mix") == 0))) m->used[at] = true;
    if (tied) return tni_mapped_tied(m, line, e, p);
    if ((!p && !e) || apart) return TN_OK;
    if (!p)
        return tni_fail(ctx, TN_ERR_ARG, "%s: tensor %s %s belongs to parameter %s, which the model does not have",
                        m->file->file.name.s, tni_quote(name.s).s, TNI_SHAPE(e), param.s);
    if (!e) return tni_mapped_lacks(m, name.s, p);
    for (i = 0; tn_params_at(m->params, i) != p; i++) {}
    return tni_mapped_take(m, line, name.s, e, i);
}

/* Whether t is a tensor of these layers. Pointers are at multiples of their size, as tn_params_rebind reads them. */
static bool tni_layers_hold(const void *layers, size_t bytes, const tn_tensor *t)
{
    const char *at = (const char *)layers;
    for (; bytes >= sizeof t; at += sizeof t, bytes -= sizeof t) if (memcmp(at, &t, sizeof t) == 0) return true;
    return false;
}

/* Why parameter i is not complete: a tensor that the file lacks, or what the lines leave out. */
static tn_status tni_mapped_partial(const tni_mapped *m, int64_t i)
{
    const tn_param *p = tn_params_at(m->params, i);
    tni_part        param, name;
    for (int64_t k = 0; k < m->lines; k++)
        for (int64_t l = 0; l < m->model->desc.layers; l++)
            if (tni_pattern_fill(&param, m->prefix, m->map[k].param, strlen(m->map[k].param), l)
                && strcmp(param.s, p->name) == 0 && tni_mapped_applies(&m->map[k], p)
                && !tni_mapped_entry(m, m->map[k].file, l, &name)) return tni_mapped_lacks(m, name.s, p);
    return tni_fail(m->file->file.ctx, TN_ERR_ARG, "name map: its lines give %lld numbers of parameter %s, expected all %lld",
                    (long long)m->got[i], p->name, (long long)tn_tensor_count(p->value));
}

/* Checks that all parameters of the model are complete, and that it has all tensors of the file that the map names. Parameters
   of others are unchanged, unless the map names a part. */
static tn_status tni_mapped_whole(const tni_mapped *m)
{
    const tn_transformer *model = m->model;
    const size_t          blocks = (size_t)model->desc.layers * sizeof *model->blocks;
    tn_ctx               *ctx = m->file->file.ctx;
    int64_t               left = 0, first = 0;
    for (int64_t i = 0; i < tn_params_count(m->params); i++) {
        const tn_param *p = tn_params_at(m->params, i);
        if (m->got[i] == tn_tensor_count(p->value)) continue;
        if (m->got[i] == 0 && !tni_layers_hold(model, sizeof *model, p->value)
            && !tni_layers_hold(model->blocks, blocks, p->value)) continue;
        return tni_mapped_partial(m, i);
    }
    for (int64_t i = 0; i < tn_safetensors_count(m->file); i++) {
        const tn_safetensors_entry *e = tn_safetensors_at(m->file, i);
        if (m->used[i] || strstr(e->name, ".inv_freq")) continue;       /* RoPE's, which the config has */
        if (m->named[i])
            return tni_fail(ctx, TN_ERR_ARG, "%s: tensor %s %s belongs to no parameter of the model, but the name map has it",
                            m->file->file.name.s, tni_quote(e->name).s, TNI_SHAPE(e));
        if (left++ == 0) first = i;
    }
    if (left == 0) return TN_OK;
    tni_log(ctx, TN_LOG_WARN, "%s: %lld tensors are in no line of the name map, the first is %s", m->file->file.name.s,
            (long long)left, tni_quote(tn_safetensors_at(m->file, first)->name).s);
    return TN_OK;
}

static tn_status tni_mapped_all(tni_mapped *m)
{
    tn_status s = TN_OK;
    for (int64_t k = 0; k < m->lines && s == TN_OK; k++)
        for (int64_t l = 0; l < (strstr(m->map[k].param, "{l}") ? m->model->desc.layers : 1) && s == TN_OK; l++)
            s = tni_mapped_line(m, &m->map[k], l);
    if (s == TN_OK) s = tni_mapped_whole(m);
    return s == TN_OK ? tni_params_set(m->params, m->value) : s;
}

static tn_status tni_mapped_usable(tn_ctx *ctx, const char *function, const tn_transformer *model, const tn_name_map *map,
                                   int64_t lines)
{
    if (!ctx) return TN_ERR_ARG;
    if (!model || !model->blocks)
        return tni_fail(ctx, TN_ERR_ARG, "%s: the model is %s, expected one of tn_transformer_init", function,
                        model ? "not initialised" : "NULL");
    if (!map || lines < 0)
        return tni_fail(ctx, TN_ERR_ARG, "%s: %lld lines of a map at %s, expected a list of 0 or more", function,
                        (long long)lines, map ? "an address" : "NULL");
    for (int64_t k = 0; k < lines; k++)
        if (!map[k].file || !map[k].param)
            return tni_fail(ctx, TN_ERR_ARG, "name map: %s is NULL in line %lld, expected a name",
                            map[k].file ? "param" : "file", (long long)k);
    return TN_OK;
}

/* Finds the prefix "NAME." in the parameter NAME.embed.w. */
static bool tni_mapped_prefix(tni_mapped *m)
{
    for (int64_t i = 0; i < tn_params_count(m->params); i++) {
        const tn_param *p = tn_params_at(m->params, i);
        size_t          n = strlen(p->name), part = strlen("embed.w");
        if (p->value != m->model->embed.w || n < part || n - part >= sizeof m->prefix) continue;
        memcpy(m->prefix, p->name, n - part);
        return true;
    }
    return tni_fail(tn_params_ctx(m->params), TN_ERR_ARG, "name map: the model's embedding is not one of these "
                    "parameters"), false;
}

tn_status tn_transformer_read_mapped(tn_params *params, const tn_transformer *model, tn_source source,
                                     const tn_name_map *map, int64_t lines)
{
    tn_ctx   *ctx = tn_params_ctx(params);
    tn_status s;
    if ((s = tni_mapped_usable(ctx, "transformer_read_mapped", model, map, lines)) != TN_OK) return s;
    tni_mapped m = TNI_ZERO;
    m.params = params;
    m.model = model;
    m.map = map;
    m.lines = lines;
    if (!tni_mapped_prefix(&m)) return TN_ERR_ARG;
    if ((s = tni_safetensors_open(ctx, &source, &m.file)) != TN_OK) return s;
    const int64_t n = tn_params_count(params);
    tni_scratch   w = tni_scratch_begin(ctx, "name map");
    m.got = (int64_t *)tni_take_zeroed(&w, n, sizeof *m.got);
    m.value = (tn_tensor **)tni_take_zeroed(&w, n, sizeof *m.value);
    m.named = (bool *)tni_take_zeroed(&w, tn_safetensors_count(m.file), sizeof *m.named);
    m.used = (bool *)tni_take_zeroed(&w, tn_safetensors_count(m.file), sizeof *m.used);
    m.runs.each = sizeof(tni_mapped_run);
    s = w.failed ? TN_ERR_MEMORY : tni_mapped_all(&m);
    tni_list_free(ctx, &m.runs);
    for (int64_t i = 0; m.value && i < n; i++) tn_tensor_destroy(m.value[i]);
    tn_safetensors_close(m.file);
    return tni_scratch_end(&w, s);
}

/* ---- the other way ------------------------------------------------------ >>model-weights-write */

/* Marks the heads whose rows of t, or of its second half, differ from those of the head before. */
static tn_status tni_heads_differ(tn_tensor *t, bool second, int64_t heads, bool *differs)
{
    const int64_t n = tn_tensor_count(t) / (second ? 2 : 1), each = n / heads;
    tni_scratch   w = tni_scratch_begin(t->ctx, "weights");
    double       *host = tni_take_f64(&w, tn_tensor_count(t), 1);
    tn_status     s = host ? tn_read(t, TN_F64, host, tn_tensor_count(t)) : TN_ERR_MEMORY;
    for (int64_t h = 1; s == TN_OK && h < heads; h++) {
        const double *row = host + (second ? n : 0) + h * each;
        for (int64_t i = 0; i < each && !differs[h]; i++) differs[h] = !(row[i] == row[i - each]);
    }
    return tni_scratch_end(&w, s);
}

/* Sets *out to the number of heads of keys and values that differ. */
static tn_status tni_kv_heads(const tn_transformer *model, int64_t *out)
{
    const int64_t heads = model->desc.heads;
    tni_scratch   w = tni_scratch_begin(model->embed.w->ctx, "heads");
    int64_t       h, group;
    *out = heads;
    for (int64_t l = 0; l < model->desc.layers; l++)
        if (tni_attention_kinds[tni_block_desc(&model->desc, l).attention].sets != 1) return TN_OK;
    bool     *differs = (bool *)tni_take_zeroed(&w, heads, sizeof *differs);
    tn_status s = TN_OK;
    if (!differs) return TN_ERR_MEMORY;
    for (int64_t l = 0; l < model->desc.layers && s == TN_OK; l++) {
        const tn_attention *a = &model->blocks[l].attn;
        s = tni_heads_differ(a->qk, true, heads, differs);
        if (s == TN_OK) s = tni_heads_differ(a->v, false, heads, differs);
        if (s == TN_OK && a->qkb) s = tni_heads_differ(a->qkb, true, heads, differs);
        if (s == TN_OK && a->vb) s = tni_heads_differ(a->vb, false, heads, differs);
    }
    for (group = heads; group > 1; group--) {
        for (h = 1; h < heads && (h % group == 0 || !differs[h]); h++) {}
        if (heads % group == 0 && h == heads) break;
    }
    *out = heads / group;
    return tni_scratch_end(&w, s);
}

int64_t tn_transformer_kv_heads(const tn_transformer *model)
{
    int64_t differ;
    if (!model || !model->blocks || model->desc.heads < 1) return -1;
    return tni_kv_heads(model, &differ) == TN_OK ? differ : -1;
}

/* A tensor of the file that is made. */
typedef struct tni_outgoing { tni_part name; tn_tensor *tensor; } tni_outgoing;

typedef struct tni_mapping {
    tn_params            *params;
    const tn_transformer *model;
    const tn_name_map    *map;
    int64_t               lines, kv_heads;
    char                  prefix[256];
    bool                 *used;         /* of each parameter */
    tni_list              out;          /* tni_outgoing      */
} tni_mapping;

/* Whether a parameter is a vector in files: biases of several encoders have two axes here. */
static bool tni_mapping_vector(const tn_transformer *m, const tn_tensor *t)
{
    if (t->rank == 1) return true;
    for (int64_t l = 0; l < m->desc.layers; l++) if (t == m->blocks[l].attn.qkb || t == m->blocks[l].mlp.b) return true;
    return false;
}

/* The parameter of a line; NULL: the model has none, or it is another name of one that is tied. */
static const tn_param *tni_mapping_param(const tni_mapping *w, const tn_name_map *line, int64_t l)
{
    tni_part name;
    if (!tni_pattern_fill(&name, w->prefix, line->param, strlen(line->param), l)) return NULL;
    const tn_param *p = tn_params_find(w->params, name.s);
    return p && strcmp(p->name, name.s) == 0 && (!line->spare || tni_mapped_applies(line, p)) ? p : NULL;
}

/* The rows of the file's tensor that a line gives, in all of its `all` rows. */
static bool tni_mapping_rows(const tni_mapping *w, const tn_name_map *line, const tn_param *p, int64_t columns,
                             tni_slab *from, tni_slab *to)
{
    const int64_t heads = w->model->desc.heads;
    const int     parts = line->file_parts == 0 ? 1 : line->file_parts;
    if (line->file_part < 0 || line->file_part >= parts) return false;
    if (!tni_mapped_rows(from, tn_tensor_count(p->value) / columns, columns, line->part, line->parts)) return false;
    to->rows = line->kv ? from->rows / heads * w->kv_heads : from->rows;
    to->first = line->file_part * to->rows;
    to->columns = columns;
    return (!line->kv && line->rows == TN_HEAD_ROWS_PLAIN) || from->rows % heads == 0;
}

/* Copies the rows of one line into `host`, of `all` rows. */
static tn_status tni_mapping_fill(tni_mapping *w, const tn_name_map *line, const tn_param *p, bool vector, double *host,
                                  int64_t all)
{
    const int64_t count = tn_tensor_count(p->value), columns = vector ? 1 : p->value->shape[p->value->rank - 1];
    const double  factor = tni_mapped_factor(line, w->model->desc.dim);
    tni_scratch   work = tni_scratch_begin(tn_params_ctx(w->params), "weights");
    double       *rows = tni_take_f64(&work, count, 1);
    tni_slab      from, to;
    tn_status     s = rows ? tn_read(p->value, TN_F64, rows, count) : TN_ERR_MEMORY;
    tni_mapping_rows(w, line, p, columns, &from, &to);
    for (int64_t i = 0; s == TN_OK && i < from.rows; i++) {
        const int64_t row = to.first + tni_mapped_row(line, i, from.rows, to.rows, w->model->desc.heads);
        const double *source = rows + (from.first + i) * columns;
        for (int64_t k = 0; k < columns; k++)
            host[line->transpose && !vector ? k * all + row : row * columns + k] = (source[k] - line->offset) / factor;
    }
    return tni_scratch_end(&work, s);
}

/* Makes the tensor of the file that line `first` names, from all lines of the same name. */
static tn_status tni_mapping_tensor(tni_mapping *w, int64_t first, int64_t l)
{
    const tn_name_map *line = &w->map[first];
    const tn_param    *p = tni_mapping_param(w, line, l);
    tn_ctx            *ctx = tn_params_ctx(w->params);
    const bool         vector = p && tni_mapping_vector(w->model, p->value);
    tni_outgoing      *o;
    tni_slab           from, to;
    int64_t            i;
    if (!p) return TN_OK;
    int64_t columns = vector ? 1 : p->value->shape[p->value->rank - 1];
    if (!tni_mapping_rows(w, line, p, columns, &from, &to))
        return tni_fail(ctx, TN_ERR_SHAPE, "name map: parameter %s is %s, which line %lld cannot divide", p->name,
                        TNI_SHAPE(p->value), (long long)first);
    int64_t all = to.rows * (line->file_parts > 0 ? line->file_parts : 1);
    int64_t shape[2] = {line->transpose && !vector ? columns : all, line->transpose ? all : columns};
    if (!(o = (tni_outgoing *)tni_list_add(ctx, &w->out, "weights"))) return TN_ERR_MEMORY;
    if (!tni_pattern_fill(&o->name, "", line->file, strcspn(line->file, "|"), l))
        return tni_fail(ctx, TN_ERR_ARG, "name map: the name %s is too long", tni_quote(line->file).s);
    o->tensor = tn_tensor_create(ctx, TN_REAL, vector ? 1 : 2, shape);
    tni_scratch work = tni_scratch_begin(ctx, "weights");
    double     *host = o->tensor ? tni_take_f64(&work, all, columns) : NULL;
    bool       *given = host ? (bool *)tni_take_zeroed(&work, all, sizeof *given) : NULL;   /* of each row of the file's */
    tn_status   s = given ? TN_OK : TN_ERR_MEMORY;
    for (int64_t k = first; k < w->lines && s == TN_OK; k++) {
        if (strcmp(w->map[k].file, line->file) != 0 || !(p = tni_mapping_param(w, &w->map[k], l))) continue;
        if ((vector ? 1 : p->value->shape[p->value->rank - 1]) != columns
            || !tni_mapping_rows(w, &w->map[k], p, columns, &from, &to) || to.first + to.rows > all)
            s = tni_fail(ctx, TN_ERR_SHAPE, "name map: parameter %s is %s, which does not fit into %s", p->name,
                         TNI_SHAPE(p->value), o->name.s);
        else s = tni_mapping_fill(w, &w->map[k], p, vector, host, all);
        for (i = to.first; s == TN_OK && i < to.first + to.rows; i++) given[i] = true;
        for (i = 0; i < tn_params_count(w->params); i++) if (tn_params_at(w->params, i) == p) w->used[i] = true;
    }
    for (i = 0; s == TN_OK && i < all && given[i]; i++) {}
    if (s == TN_OK && i < all)
        s = tni_fail(ctx, TN_ERR_ARG, "name map: no line gives row %lld of %s, expected lines for all of its %lld rows",
                     (long long)i, o->name.s, (long long)all);
    if (s == TN_OK) s = tn_write(o->tensor, TN_F64, host, all * columns);
    return tni_scratch_end(&work, s);
}

static tn_status tni_mapping_all(tni_mapping *w)
{
    const tn_transformer *m = w->model;
    tn_ctx               *ctx = tn_params_ctx(w->params);
    int64_t               i;
    tn_status             s = TN_OK;
    for (int64_t k = 0; k < w->lines; k++) {
        for (i = 0; i < k && strcmp(w->map[i].file, w->map[k].file) != 0; i++) {}
        for (int64_t l = 0; i == k && l < (strstr(w->map[k].param, "{l}") ? m->desc.layers : 1); l++)
            if ((s = tni_mapping_tensor(w, k, l)) != TN_OK) return s;
    }
    for (i = 0; i < tn_params_count(w->params); i++) {
        const tn_param *p = tn_params_at(w->params, i);
        if (!w->used[i] && (tni_layers_hold(m, sizeof *m, p->value)
                            || tni_layers_hold(m->blocks, (size_t)m->desc.layers * sizeof *m->blocks, p->value)))
            return tni_fail(ctx, TN_ERR_ARG, "name map: no line names parameter %s %s", p->name, TNI_SHAPE(p->value));
    }
    return TN_OK;
}

TNI_COLD tn_status tn_transformer_write_mapped(tn_params *params, const tn_transformer *model, tn_sink sink,
                                      const tn_name_map *map, int64_t lines, int64_t kv_heads, const tn_metadata *notes,
                                      int64_t note_count)
{
    tn_ctx   *ctx = tn_params_ctx(params);
    int64_t   differ;
    tn_status s;
    if ((s = tni_mapped_usable(ctx, "transformer_write_mapped", model, map, lines)) != TN_OK) return s;
    if (map == tn_name_map_gemma(NULL) || map == tn_name_map_modded(NULL))
        return tni_fail(ctx, TN_ERR_ARG, "transformer_write_mapped: the map is tn_name_map_%s, expected one that is not for "
                        "reading only", map == tn_name_map_gemma(NULL) ? "gemma" : "modded");
    if (kv_heads == 0) kv_heads = model->desc.heads;
    if (kv_heads < 1 || model->desc.heads % kv_heads != 0)
        return tni_fail(ctx, TN_ERR_ARG, "name map: kv_heads is %lld, expected a divisor of the %lld heads",
                        (long long)kv_heads, (long long)model->desc.heads);
    if (kv_heads < model->desc.heads && (s = tni_kv_heads(model, &differ)) != TN_OK) return s;
    if (kv_heads < model->desc.heads && kv_heads % differ != 0)
        return tni_fail(ctx, TN_ERR_ARG, "name map: kv_heads is %lld, but %lld heads of keys and values differ",
                        (long long)kv_heads, (long long)differ);
    tni_mapped m = TNI_ZERO;
    m.params = params;
    m.model = model;
    if (!tni_mapped_prefix(&m)) return TN_ERR_ARG;
    tni_mapping w = TNI_ZERO;
    w.params = params; w.model = model; w.map = map; w.lines = lines; w.kv_heads = kv_heads;
    memcpy(w.prefix, m.prefix, sizeof w.prefix);
    w.out.each = sizeof(tni_outgoing);
    tni_scratch work = tni_scratch_begin(ctx, "name map");
    w.used = (bool *)tni_take_zeroed(&work, tn_params_count(params), sizeof *w.used);
    s = w.used ? tni_mapping_all(&w) : TN_ERR_MEMORY;
    tn_named_tensor *named = NULL;
    if (s == TN_OK) named = (tn_named_tensor *)tni_take(&work, (int64_t)w.out.count, sizeof *named);
    for (size_t i = 0; named && i < w.out.count; i++) {
        const tni_outgoing *o = (const tni_outgoing *)tni_list_at(&w.out, i);
        named[i].name = o->name.s;
        named[i].tensor = o->tensor;
    }
    if (s == TN_OK)
        s = named ? tn_safetensors_write(ctx, sink, named, (int64_t)w.out.count, notes, note_count) : TN_ERR_MEMORY;
    for (size_t i = 0; i < w.out.count; i++) tn_tensor_destroy(((tni_outgoing *)tni_list_at(&w.out, i))->tensor);
    tni_list_free(ctx, &w.out);
    return tni_scratch_end(&work, s);
}

#undef TNI_FIELD
#undef TNI_INT
#undef TNI_NUMBER
#undef TNI_FLAG
#undef TNI_NOT
#undef TNI_CHOICE
#undef TNI_MUST
#undef TNI_ONE
#undef TNI_SEEN
#undef TNI_KEYS
#endif /* TN_NO_MODELS */
