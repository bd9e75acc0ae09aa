/* look_tensor.c - tn look: arrays, and files of tensors without a layer that is known: matrices and their singular values */
#include "look.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EXACT_NUMBERS = 1 << 16,         /* tables of more numbers are whole numbers of 8 bits    */
       MOST_NUMBERS = 1 << 22,          /* and of more than these only the first rows            */
       MOST_SIDE = 1024,                /* no singular values of matrices with two longer sides  */
       MOST_SLICES = 16, MOST_TENSORS = 12 };

/* A tensor as matrices [slices,rows,columns]. */
typedef struct table { const char *name; tn_tensor *t; int64_t slices, rows, columns, bad; } table;

static table table_of(tn_tensor *t, const char *name)
{
    table x = {NULL, NULL, 1, 1, 1, 0};
    x.name = name;
    x.t = t;
    if (t->rank > 0) x.columns = t->shape[t->rank - 1];
    if (t->rank > 1) x.rows = t->shape[t->rank - 2];
    for (int k = 0; k + 2 < t->rank; k++) x.slices *= t->shape[k];
    x.bad = count_nonfinite(t);
    if (x.bad) page_nonfinite(name, t, x.bad, "its singular values are left out");
    return x;
}

static char *shape_text(const tn_tensor *t)
{
    buffer b = {0};
    buffer_print(&b, "[");
    for (int k = 0; k < t->rank; k++) buffer_print(&b, k ? ",%lld" : "%lld", (long long)t->shape[k]);
    buffer_print(&b, "]");
    return b.data;
}

/* Of its finite numbers: how many, the smallest, the largest, and the norm. */
static void number_rows(page *p, const table *x)
{
    double *v = numbers_in(x->t), low = NAN, high = NAN, norm = 0;
    char   *shape = shape_text(x->t);
    for (int64_t i = 0; i < tn_tensor_count(x->t); i++) {
        if (!isfinite(v[i])) continue;
        if (!(v[i] >= low)) low = v[i];
        if (!(v[i] <= high)) high = v[i];
        norm = hypot(norm, v[i]);
    }
    page_row(p, x->name, "%s, %.6g to %.6g, norm %.6g", shape, low, high, norm);
    free(shape);
    free(v);
}

static void singular_values(page *p, tn_ctx *ctx, const table *x)
{
    const int64_t slices = x->slices < MOST_SLICES ? x->slices : MOST_SLICES;
    tn_tensor    *all = tn_reshape_2d(x->t, x->slices * x->rows, x->columns);
    for (int64_t s = 0; s < slices; s++) {
        tn_svd_result r;
        double        norm = 0;
        char         *name = x->slices > 1 ? format_text("%s[%lld]", x->name, (long long)s) : copy_text(x->name);
        tn_svd(ctx, tn_slice(all, 0, s * x->rows, (s + 1) * x->rows), NULL, &r);
        check_ctx(ctx, "singular values");
        double *v = numbers_in(r.s);
        int64_t n = tn_tensor_count(r.s);
        for (int64_t i = 0; i < n; i++) norm = hypot(norm, v[i]);
        page_open(p, NULL, '{');
        page_text(p, "name", name);
        page_vector(p, "values", ARRAY_F64, n, v);
        page_number(p, "effective_rank", tn_effective_rank(v, n));
        page_number(p, "norm", norm);
        page_close(p, '}');
        tn_svd_destroy(&r);
        free(v);
        free(name);
    }
}

static bool has_singular_values(const table *x)
{
    const int64_t side = x->rows < x->columns ? x->rows : x->columns;
    return !x->bad && side > 1 && side <= MOST_SIDE && tn_tensor_count(x->t) > 0;
}

static void spectra_of_tables(page *p, tn_ctx *ctx, const table *list, int64_t count)
{
    bool any = false;
    for (int64_t i = 0; i < count; i++) any = any || has_singular_values(&list[i]);
    if (!any) return;
    page_section(p, "spectra", "spectra", "Singular values", "How strongly each matrix stretches its directions, the largest "
                 "first. The effective rank counts those that matter.");
    page_open(p, "groups", '[');
    for (int64_t i = 0; i < count; i++) if (has_singular_values(&list[i])) singular_values(p, ctx, &list[i]);
    page_close(p, ']');
    page_close(p, '}');
}

static void matrix_of_table(page *p, const table *x, int64_t number)
{
    char   *id = format_text("matrix-%lld", (long long)number);
    int64_t shape[3], most = x->columns ? MOST_NUMBERS / x->columns : 0;
    double *v = numbers_in(x->t);
    shape[0] = x->slices, shape[1] = x->rows, shape[2] = x->columns;
    if (most < 1) most = 1;
    if (shape[1] > most) shape[0] = 1, shape[1] = most;
    else if (shape[0] * shape[1] > most) shape[0] = most / shape[1];
    if (shape[0] < x->slices || shape[1] < x->rows)
        page_note("%s is shown in part: the first %lld matrices of [%lld,%lld].", x->name, (long long)shape[0],
                  (long long)shape[1], (long long)shape[2]);
    if (shape[2] > MOST_NUMBERS) page_note("%s has a row of more numbers than a page can hold, and is not shown.", x->name);
    else {
        const bool exact = shape[0] * shape[1] * shape[2] <= EXACT_NUMBERS || x->bad;
        page_section(p, "matrix", id, x->name,
                     exact ? "The numbers, as they are." : "The numbers, rounded to 8 bits in each row.");
        page_text(p, "of", "dense");
        page_numbers(p, "values", exact ? ARRAY_F64 : ARRAY_Q8, 3, shape, v);
        page_flag(p, "symmetric", false);
        if (shape[0] > 1) {
            page_open(p, "outputs", '[');
            for (number = 0; number < shape[0]; number++) {
                char *name = format_text("%lld", (long long)number);
                page_text(p, NULL, name);
                free(name);
            }
            page_close(p, ']');
        }
        page_text(p, "row_label", "row");
        page_text(p, "column_label", "column");
        page_close(p, '}');
    }
    free(v);
    free(id);
}

static int64_t numbers_of(const table *list, int64_t count)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < count; i++) sum += tn_tensor_count(list[i].t);
    return sum;
}

static void write_tables(tn_ctx *ctx, const char *path, const char *title, const char *out, const table *list, int64_t count)
{
    page p;
    page_begin(&p, "look", "tensor", title);
    char *shape = shape_text(list[0].t);
    char *about = count == 1 ? format_text("One array of %s.", shape)
        : format_text("%lld tensors, with %lld numbers.", (long long)count, (long long)numbers_of(list, count));
    page_text(&p, "about", about);
    free(about);
    free(shape);
    page_open(&p, "sections", '[');
    page_section(&p, "learnt", "learnt", "What is in it", "Each tensor by its singular values: few large ones mean that it "
                 "looks for few patterns, a long flat row that it is like noise.");
    page_text(&p, "of", "tensors");
    page_close(&p, '}');
    page_section(&p, "card", "model", "The file", "What the file holds.");
    page_open(&p, "rows", '[');
    page_row(&p, "file", "%s", file_name(path));
    for (int64_t i = 0; i < count; i++) number_rows(&p, &list[i]);
    page_close(&p, ']');
    page_close(&p, '}');
    spectra_of_tables(&p, ctx, list, count);
    for (int64_t i = 0; i < count; i++) if (tn_tensor_count(list[i].t)) matrix_of_table(&p, &list[i], i);
    page_close(&p, ']');
    page_write(&p, out, look_settings.out ? BY_USER : BY_NAME);
}

void look_at_array(tn_ctx *ctx, const char *path, const char *title, const char *out)
{
    char      *name;
    tn_tensor *t = read_array(ctx, path, NULL, "", false, &name);
    table      x = table_of(t, name);
    look_is_of(LOOK_ARRAY);
    write_tables(ctx, path, title, out, &x, 1);
    free(name);
}

void look_at_tensors(tn_ctx *ctx, const char *path, const char *title, const char *out)
{
    tn_safetensors *file = tn_safetensors_open(ctx, tn_source_path(path));
    int64_t         i, count = 0;
    check_ctx(ctx, path);
    look_is_of(LOOK_TENSORS);
    table *list = (table *)allocate(MOST_TENSORS, sizeof *list);
    for (i = 0; i < tn_safetensors_count(file) && count < MOST_TENSORS; i++) {
        const tn_safetensors_entry *e = tn_safetensors_at(file, i);
        tn_tensor                  *t = tn_safetensors_read(file, e->name);
        char                       *why = taken_error(ctx);
        char *plain = why ? plain_reason(why) : NULL;
        if (why) page_note("%s is left out, because %s.", e->name, plain);
        else list[count++] = table_of(t, e->name);
        free(why);
        free(plain);
    }
    if (!count) fail("%s has no tensor that could be shown", path);
    page_note("The names in this file are not those of a layer that this program knows, so its tensors are shown as they are. "
              "--w NAME, --v NAME and --p NAME say which of them make a bilinear layer.");
    char *folder = folder_of(path), *config = join_path(folder, "config.json");
    if (is_file(config))
        page_note("If this is a model of Hugging Face's transformers, tn import makes a run of it, whose page shows the model: "
                  "its heads, paths and predictions.");
    free(config);
    free(folder);
    if (i < tn_safetensors_count(file))
        page_note("Of %lld tensors the first %lld are shown.", (long long)tn_safetensors_count(file), (long long)i);
    write_tables(ctx, path, title, out, list, count);
    tn_safetensors_close(file);
    free(list);
}
