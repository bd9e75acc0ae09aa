/* look_tensor.c - tn look: arrays, and files of tensors without a layer that is known: matrices and their singular values */
#include "look.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EXACT_NUMBERS = 1 << 16,         /* tables of more numbers are whole numbers of 8 bits         */
       EXACT_IN_ALL = 1 << 19,          /* and so are the others, when those before have so many      */
       MOST_NUMBERS = 6 << 20,          /* of all tables together: of larger ones the first rows      */
       MOST_SIDE = 1024,                /* no singular values of matrices with two longer sides       */
       MOST_SLICES = 16, MOST_TENSORS = 4096 };
static const double most_work = 3e10;   /* products of all singular values; what follows has none     */

/* A tensor as matrices [slices,rows,columns], and what the page says of it. */
typedef struct table {
    char         *name, *shape;
    const char   *kind;                 /* of its numbers, as the file has them; NULL: unknown        */
    int64_t       slices, rows, columns, bad;
    double        low, high, norm;      /* of its finite numbers                                      */
    double       *spectra;              /* [spectrum_count,values] singular values of the first slices, or NULL */
    int64_t       spectrum_count, values;
    stored        numbers;              /* [shown[0],shown[1],columns]; rank 0: none                  */
} table;

/* What a page may hold: numbers of each table, numbers that are exact, products that remain. */
typedef struct room { int64_t numbers, exact; double work; int64_t without; } room;

static char *shape_text(const tn_tensor *t)
{
    buffer b = {0};
    buffer_print(&b, "[");
    for (int k = 0; k < t->rank; k++) buffer_print(&b, k ? ",%lld" : "%lld", (long long)t->shape[k]);
    buffer_print(&b, "]");
    return b.data;
}

static void measure_numbers(table *x, const double *v, int64_t count)
{
    x->low = x->high = NAN;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(v[i])) continue;
        if (!(v[i] >= x->low)) x->low = v[i];
        if (!(v[i] <= x->high)) x->high = v[i];
        x->norm = hypot(x->norm, v[i]);
    }
}

static void find_spectra(table *x, tn_ctx *ctx, tn_tensor *t, room *left)
{
    const int64_t side = x->rows < x->columns ? x->rows : x->columns;
    const double  work = (double)side * (double)x->rows * (double)x->columns;
    const int64_t slices = x->slices < MOST_SLICES ? x->slices : MOST_SLICES;
    if (x->bad || side < 2 || side > MOST_SIDE || !x->slices) return;
    if (work * (double)slices > left->work) {
        left->without++;
        return;
    }
    left->work -= work * (double)slices;
    tn_tensor *all = tn_reshape_2d(t, x->slices * x->rows, x->columns);
    x->values = side;
    x->spectra = (double *)allocate((size_t)(slices * side), sizeof *x->spectra);
    for (; x->spectrum_count < slices; x->spectrum_count++) {
        const int64_t first = x->spectrum_count * x->rows;
        tn_svd_result r;
        tn_svd(ctx, tn_slice(all, 0, first, first + x->rows), NULL, &r);
        check_ctx(ctx, "singular values");
        tn_read(r.s, TN_F64, x->spectra + x->spectrum_count * side, side);
        tn_svd_destroy(&r);
    }
}

/* Of a table that is too large the first matrices, or the first rows of the first one. */
static void store_numbers(page *p, table *x, const double *v, room *left)
{
    int64_t shape[3], most = x->columns ? left->numbers / x->columns : 0;
    shape[0] = x->slices, shape[1] = x->rows, shape[2] = x->columns;
    if (most < 1) most = 1;
    if (shape[1] > most) shape[0] = 1, shape[1] = most;
    else if (shape[0] * shape[1] > most) shape[0] = most / shape[1];
    if (shape[2] > MOST_NUMBERS) {
        page_note("%s has a row of more numbers than a page can hold, and is not shown.", x->name);
        return;
    }
    if (shape[0] < x->slices || shape[1] < x->rows)
        page_note("Of %s the first %lld matrices of [%lld,%lld] are shown.", x->name, (long long)shape[0], (long long)shape[1],
                  (long long)shape[2]);
    const int64_t count = shape[0] * shape[1] * shape[2];
    const bool    exact = (count <= EXACT_NUMBERS && count <= left->exact) || x->bad;
    if (exact) left->exact -= count;
    if (count) x->numbers = page_store(p, exact ? ARRAY_F64 : ARRAY_Q8, 3, shape, v);
}

static void look_at_table(table *x, page *p, tn_ctx *ctx, tn_tensor *t, const char *name, const char *kind, room *left)
{
    double *v = numbers_in(t);
    memset(x, 0, sizeof *x);
    x->slices = x->rows = x->columns = 1;
    x->name = copy_text(name);
    x->shape = shape_text(t);
    x->kind = kind;
    if (t->rank > 0) x->columns = t->shape[t->rank - 1];
    if (t->rank > 1) x->rows = t->shape[t->rank - 2];
    for (int k = 0; k + 2 < t->rank; k++) x->slices *= t->shape[k];
    x->bad = count_nonfinite(t);
    if (x->bad) page_nonfinite(name, t, x->bad, "its singular values are left out");
    measure_numbers(x, v, tn_tensor_count(t));
    find_spectra(x, ctx, t, left);
    store_numbers(p, x, v, left);
    free(v);
}

/* ---- the page ---------------------------------------------------------------------------------------------------------- */

static void put_spectra(page *p, const table *x)
{
    const int64_t shape[2] = {x->spectrum_count, x->values};
    page_numbers(p, "spectra", ARRAY_F64, 2, shape, x->spectra);
    page_open(p, "effective_rank", '[');
    for (int64_t s = 0; s < x->spectrum_count; s++)
        page_number(p, NULL, tn_effective_rank(x->spectra + s * x->values, x->values));
    page_close(p, ']');
}

static void put_table(page *p, const table *x)
{
    page_open(p, NULL, '{');
    page_text(p, "name", x->name);
    page_text(p, "shape", x->shape);
    if (x->kind) page_text(p, "kind", x->kind);
    page_number(p, "count", (double)(x->slices * x->rows * x->columns));
    page_number(p, "smallest", x->low);
    page_number(p, "largest", x->high);
    page_number(p, "norm", x->norm);
    if (x->spectra) put_spectra(p, x);
    if (x->numbers.rank) page_array(p, "values", &x->numbers);
    page_close(p, '}');
}

static void put_card(page *p, const char *path, const table *list, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)(list[i].slices * list[i].rows * list[i].columns);
    page_section(p, "card", "model", "The file", "What the file holds.");
    page_open(p, "rows", '[');
    page_row(p, "file", "%s", file_name(path));
    page_row(p, "tensors", "%lld", (long long)count);
    page_row(p, "numbers", "%.0f", sum);
    page_close(p, ']');
    page_close(p, '}');
}

static void write_tables(page *p, const char *path, const char *out, table *list, int64_t count, const room *left)
{
    char *about = count == 1 ? format_text("One array of %s.", list[0].shape)
                             : format_text("%lld tensors.", (long long)count);
    if (left->without)
        page_note("The singular values of %lld tensors are left out, because those before them took as long as a page may take.",
                  (long long)left->without);
    page_text(p, "about", about);
    page_open(p, "sections", '[');
    page_section(p, "tensors", "tensors", "What is in it", "Each tensor by its singular values: few large ones mean that it "
                 "looks for few patterns, a long flat row that it is like noise. A click on a row shows its numbers.");
    page_open(p, "list", '[');
    for (int64_t i = 0; i < count; i++) put_table(p, &list[i]);
    page_close(p, ']');
    page_close(p, '}');
    put_card(p, path, list, count);
    page_close(p, ']');
    page_write(p, out, look_settings.out ? BY_USER : BY_NAME);
    free(about);
}

void look_at_array(tn_ctx *ctx, const char *path, const char *title, const char *out)
{
    char      *name;
    page       p;
    table      x;
    room       left = {MOST_NUMBERS, EXACT_IN_ALL, 0, 0};
    tn_tensor *t = read_array(ctx, path, NULL, "", false, &name);
    look_is_of(LOOK_ARRAY);
    left.work = most_work;
    page_begin(&p, "look", "tensor", title);
    look_at_table(&x, &p, ctx, t, name, NULL, &left);
    write_tables(&p, path, out, &x, 1, &left);
    free(name);
}

/* How many numbers each tensor may have in the page, so that all together have MOST_NUMBERS. */
static int64_t numbers_of_each(const tn_safetensors *file, int64_t count)
{
    int64_t low = 1, high = MOST_NUMBERS;
    while (low < high) {
        const int64_t each = low + (high - low + 1) / 2;
        double        sum = 0;
        for (int64_t i = 0; i < count; i++) {
            const tn_safetensors_entry *e = tn_safetensors_at(file, i);
            double                      n = 1;
            for (int k = 0; k < e->rank; k++) n *= (double)e->shape[k];
            sum += n < (double)each ? n : (double)each;
        }
        if (sum <= MOST_NUMBERS) low = each; else high = each - 1;
    }
    return low;
}

void look_at_tensors(tn_ctx *ctx, const char *path, const char *title, const char *out)
{
    page            p;
    room            left = {0, EXACT_IN_ALL, 0, 0};
    tn_safetensors *file = tn_safetensors_open(ctx, tn_source_path(path));
    check_ctx(ctx, path);
    const int64_t   all = tn_safetensors_count(file), most = all < MOST_TENSORS ? all : MOST_TENSORS;
    table          *list = (table *)allocate((size_t)most + 1, sizeof *list);
    int64_t         count = 0;
    look_is_of(LOOK_TENSORS);
    left.numbers = numbers_of_each(file, most);
    left.work = most_work;
    page_begin(&p, "look", "tensor", title);
    for (int64_t i = 0; i < most; i++) {
        const tn_safetensors_entry *e = tn_safetensors_at(file, i);
        tn_tensor                  *t = tn_safetensors_read(file, e->name);
        char                       *why = taken_error(ctx), *plain = why ? plain_reason(why) : NULL;
        if (why) page_note("%s is left out, because %s.", e->name, plain);
        else look_at_table(&list[count++], &p, ctx, t, e->name, e->dtype, &left);
        tn_tensor_destroy(t);
        free(why);
        free(plain);
    }
    if (!count) fail("%s has no tensor that could be shown", path);
    page_note("The names in this file are not those of a layer that this program knows, so its tensors are shown as they are. "
              "--w NAME, --v NAME and --p NAME say which of them make a bilinear layer.");
    if (most < all) page_note("Of %lld tensors the first %lld are shown.", (long long)all, (long long)most);
    write_tables(&p, path, out, list, count, &left);
    tn_safetensors_close(file);
    free(list);
}
