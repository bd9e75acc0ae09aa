/* look_tensor.c - tn look: arrays, and files of tensors without a layer that is known: matrices and their singular values */
#include "look.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EXACT_NUMBERS = 1 << 16,         /* tables of more numbers are whole numbers of 8 bits         */
       EXACT_IN_ALL = 1 << 19,          /* and so are the others, when those before have so many      */
       MOST_NUMBERS = 6 << 20,          /* of all tables together: of larger ones the first rows      */
       MOST_SIDE = 1024,                /* no singular values of matrices with two longer sides       */
       MOST_SLICES = 16, MOST_TENSORS = 4096,
       MOST_MEANS = 4096,               /* no means along longer axes                                 */
       LEAST_SIDE = 32 };               /* of fewer rows or columns even random numbers differ by more than the summary allows */
static const double most_work = 3e10;   /* products of all singular values; what follows has none     */

/* A tensor as matrices [slices,rows,columns], and what the page says of it. */
typedef struct table {
    char         *name, *shape;
    const char   *kind;                 /* of its numbers, as the file has them; NULL: unknown        */
    int64_t       slices, rows, columns, bad, zeros;
    double        low, high, norm;      /* of its finite numbers                                      */
    double       *spectra;              /* [spectrum_count,values] singular values of the first slices, or NULL */
    int64_t       spectrum_count, values;
    double        rank, noise_rank;     /* effective ranks: of the first slice, of random numbers     */
    double        outlier;              /* largest singular value of the first slice / the edge of random numbers of its norm */
    stored        noise;                /* [values] singular values of random numbers of norm 1       */
    stored        numbers;              /* [shown[0],shown[1],columns]; rank 0: none                  */
} table;

/* Matrices [side,longer] of random numbers. */
typedef struct noise { int64_t side, longer; double rank; stored values; } noise;

/* What a page may hold: numbers of each table, numbers that are exact, products that remain. */
typedef struct room { int64_t numbers, exact; double work; int64_t without; noise *list; int64_t count; } room;

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
        x->zeros += v[i] == 0;
        if (!(v[i] >= x->low)) x->low = v[i];
        if (!(v[i] <= x->high)) x->high = v[i];
        x->norm = hypot(x->norm, v[i]);
    }
}

/* The singular values of a matrix of random numbers, largest first, for a norm of 1: quantiles (k + 1/2) / side of the law of
   Marchenko and Pastur (docs/math.md, section 19), in the angle t of s^2 = 1 + b + 2 sqrt(b) cos t, where b = side / longer. */
static void noise_values(int64_t side, int64_t longer, double *s)
{
    const double  pi = 3.141592653589793, b = (double)side / (double)longer;
    const int64_t steps = 8 * side + 2048;
    double        share = 0, norm = 0;
    int64_t       k = 0;
    for (int64_t i = 0; k < side; i++) {
        const double t = pi * ((double)i + 0.5) / (double)steps, square = 1 + b + 2 * sqrt(b) * cos(t);
        if (i < steps) share += 2 * sin(t) * sin(t) / square / (double)steps;
        while (k < side && (share * (double)side >= (double)k + 0.5 || i >= steps)) s[k++] = sqrt(fmax(square, 0));
    }
    for (k = 0; k < side; k++) norm = hypot(norm, s[k]);
    for (k = 0; k < side; k++) s[k] /= norm;
}

/* The same in the page, once for each shape. */
static void compare_with_noise(table *x, page *p, room *left)
{
    const int64_t longer = x->rows > x->columns ? x->rows : x->columns;
    int64_t       i = 0;
    while (i < left->count && (left->list[i].side != x->values || left->list[i].longer != longer)) i++;
    if (i == left->count) {
        double *s = (double *)allocate((size_t)x->values, sizeof *s);
        noise_values(x->values, longer, s);
        left->list = (noise *)resize(left->list, (size_t)i + 1, sizeof *left->list);
        left->list[i].side = x->values, left->list[i].longer = longer;
        left->list[i].rank = tn_effective_rank(s, x->values);
        left->list[i].values = page_store(p, ARRAY_F32, 1, &x->values, s);
        left->count++;
        free(s);
    }
    x->noise = left->list[i].values;
    x->noise_rank = left->list[i].rank;
    x->rank = tn_effective_rank(x->spectra, x->values);
    double norm = 0;
    for (i = 0; i < x->values; i++) norm = hypot(norm, x->spectra[i]);
    x->outlier = x->spectra[0] / (norm * (sqrt(1 / (double)x->values) + sqrt(1 / (double)longer)));
}

static void find_spectra(table *x, page *p, tn_ctx *ctx, tn_tensor *t, room *left)
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
    compare_with_noise(x, p, left);
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
    find_spectra(x, p, ctx, t, left);
    store_numbers(p, x, v, left);
    free(v);
}

static void free_tables(table *list, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        free(list[i].name);
        free(list[i].shape);
        free(list[i].spectra);
    }
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
    page_array(p, "noise", &x->noise);
    page_number(p, "noise_rank", x->noise_rank);
}

static void put_table(page *p, const table *x)
{
    page_open(p, NULL, '{');
    page_text(p, "name", x->name);
    page_text(p, "shape", x->shape);
    if (x->kind) page_text(p, "dtype", x->kind);
    page_number(p, "count", (double)(x->slices * x->rows * x->columns));
    page_number(p, "missing", (double)x->bad);
    page_number(p, "zeros", (double)x->zeros);
    page_number(p, "smallest", x->low);
    page_number(p, "largest", x->high);
    page_number(p, "norm", x->norm);
    if (x->spectra) put_spectra(p, x);
    if (x->numbers.rank) page_array(p, "values", &x->numbers);
    page_close(p, '}');
}

static double numbers_of(const table *list, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)(list[i].slices * list[i].rows * list[i].columns);
    return sum;
}

static void put_card(page *p, const char *path, const table *list, int64_t count)
{
    page_section(p, "card", "model", "The file", "What the file holds.");
    page_open(p, "rows", '[');
    page_row(p, "file", "%s", file_name(path));
    page_row(p, "tensors", "%lld", (long long)count);
    page_row(p, "numbers", "%.0f", numbers_of(list, count));
    page_close(p, ']');
    page_close(p, '}');
}

static void add_grouped(buffer *b, double n)
{
    char *text = grouped((int64_t)n);
    buffer_print(b, "%s", text);
    free(text);
}

/* Of one array what it holds, and what its singular values say. */
static void about_array(buffer *b, const table *x, const table *unfolded, int64_t order)
{
    buffer_print(b, "An array %s with ", x->shape);
    add_grouped(b, numbers_of(x, 1));
    buffer_print(b, " numbers");
    if (x->kind) buffer_print(b, " (%s)", x->kind);
    if (x->bad) {
        buffer_print(b, ", of which ");
        add_grouped(b, (double)x->bad);
        buffer_print(b, " %s missing (NaN or infinite)%s", x->bad == 1 ? "is" : "are", x->low <= x->high ? "; the others are" : "");
    }
    if (x->low <= x->high) buffer_print(b, " from %.3g to %.3g", x->low + 0, x->high + 0);
    if (x->bad) {
        if (order > 1) buffer_print(b, ". It has no singular values, which need all numbers");
    } else if (order > 2) {
        const char *before = ". The effective rank of its unfolding along";
        for (int64_t k = 0; k < order; k++) {
            if (!unfolded[k].spectra) continue;
            buffer_print(b, "%s axis %lld is %.3g of %lld", before, (long long)k, unfolded[k].rank,
                         (long long)unfolded[k].values);
            before = ",";
        }
    } else if (x->spectra)
        buffer_print(b, ". Its effective rank is %.3g of %lld, that of noise of this shape %.3g", x->rank, (long long)x->values,
                     x->noise_rank);
    buffer_print(b, ".");
}

/* Of many tensors how many have the spectrum of random numbers, as far as two numbers tell, and in which the effective rank is
   furthest from theirs. */
static void about_tensors(buffer *b, const table *list, int64_t count)
{
    int64_t matrices = 0, alike = 0, bad = 0, least = -1, most = -1;
    bool    slices = false;
    buffer_print(b, "%lld tensors with ", (long long)count);
    add_grouped(b, numbers_of(list, count));
    buffer_print(b, " numbers");
    for (int64_t i = 0; i < count; i++) {
        const char *kind = list[i].kind;
        for (int64_t k = 0; kind && k < i; k++) if (!strcmp(list[k].kind, kind)) kind = NULL;
        if (kind) buffer_print(b, i ? ", %s" : " (%s", kind);
    }
    buffer_print(b, list[0].kind ? ")." : ".");
    for (int64_t i = 0; i < count; i++) {
        const double share = list[i].rank / list[i].noise_rank;
        bad += list[i].bad > 0;
        if (!list[i].spectra || list[i].values < LEAST_SIDE) continue;
        matrices++;
        slices = slices || list[i].slices > 1;
        alike += fabs(share - 1) < 0.05 && list[i].outlier <= 1.1;
        if (least < 0 || share < list[least].rank / list[least].noise_rank) least = i;
        if (most < 0 || share > list[most].rank / list[most].noise_rank) most = i;
    }
    if (matrices)
        buffer_print(b, " %lld of %lld matri%s%s with %d or more rows and columns %s the effective rank of random numbers "
                     "(within 5\xc2\xa0%%) and no larger singular value than they have (within 10\xc2\xa0%%).", (long long)alike,
                     (long long)matrices, matrices == 1 ? "x" : "ces", !slices ? "" : matrices == 1 ? " or first slice" :
                     " and first slices", LEAST_SIDE, alike == 1 ? "has" : "have");
    if (matrices > 1)
        buffer_print(b, " Compared with random numbers, the effective rank is lowest in %s (%.0f\xc2\xa0%%) and highest in %s "
                     "(%.0f\xc2\xa0%%).", list[least].name, 100 * list[least].rank / list[least].noise_rank, list[most].name,
                     100 * list[most].rank / list[most].noise_rank);
    if (bad) buffer_print(b, " %lld of the tensors %s numbers that are missing (NaN or infinite).", (long long)bad,
                          bad == 1 ? "has" : "have");
}

/* The means over all other axes, for each axis, of the numbers that are finite; null for an axis that is too long. */
static void put_profile(page *p, const tn_tensor *t)
{
    double  *v = numbers_in(t), *sum, *count;
    int64_t  below = tn_tensor_count(t);
    page_open(p, "profile", '[');
    for (int k = 0; k < t->rank && tn_tensor_count(t); k++) {
        const int64_t n = t->shape[k];
        below /= n;
        if (n > MOST_MEANS) {
            page_note("The means along axis %d are left out, because it has more than %d places.", k, MOST_MEANS);
            page_number(p, NULL, NAN);
            continue;
        }
        sum = (double *)allocate((size_t)n, sizeof *sum);
        count = (double *)allocate((size_t)n, sizeof *count);
        for (int64_t i = 0; i < n; i++) sum[i] = count[i] = 0;
        for (int64_t i = 0; i < tn_tensor_count(t); i++)
            if (isfinite(v[i])) sum[i / below % n] += v[i], count[i / below % n]++;
        for (int64_t i = 0; i < n; i++) sum[i] /= count[i];
        page_vector(p, NULL, ARRAY_F32, n, sum);
        free(sum);
        free(count);
    }
    page_close(p, ']');
    free(v);
}

/* alone: the one array, which has unfoldings; NULL: there are many. */
static void write_tables(page *p, const char *path, const char *out, table *list, int64_t count, const tn_tensor *alone,
                         const table *unfolded, const room *left)
{
    buffer        about = {0};
    const int64_t order = alone ? alone->rank : 0;
    bool          any = false;
    for (int64_t i = 0; i < count; i++) any = any || list[i].spectra;
    if (alone) about_array(&about, list, unfolded, order);
    else about_tensors(&about, list, count);
    if (left->without)
        page_note("The singular values of %lld tensors are left out, because those before them took as long as a page may take.",
                  (long long)left->without);
    page_text(p, "about", about.data);
    page_open(p, "sections", '[');
    page_section(p, "tensors", "tensors", "What is in it", count == 1 ? NULL : any ? "Each matrix by its singular values: few "
                 "large ones mean that it depends on few directions. The thin line is what random numbers of the same shape and "
                 "norm have. A click on a row shows its numbers." : "A click on a row shows the numbers of a tensor.");
    page_open(p, "list", '[');
    for (int64_t i = 0; i < count; i++) put_table(p, &list[i]);
    page_close(p, ']');
    if (order > 2) {
        page_open(p, "unfoldings", '[');
        for (int64_t k = 0; k < order; k++) if (unfolded[k].spectra) put_table(p, &unfolded[k]);
        page_close(p, ']');
    }
    if (order > 1) put_profile(p, alone);
    page_close(p, '}');
    put_card(p, path, list, count);
    page_close(p, ']');
    page_write(p, out, look_settings.out ? BY_USER : BY_NAME);
    free(about.data);
}

/* The unfolding along an axis, [its extent, all others]: of it the singular values alone. */
static void look_at_unfolding(table *x, page *p, tn_ctx *ctx, tn_tensor *t, int axis, room *left)
{
    const int64_t without = left->without;
    tn_tensor *flat = tn_unfold(ctx, tn_cast(ctx, t, TN_REAL), axis);
    check_ctx(ctx, "an unfolding");
    memset(x, 0, sizeof *x);
    x->name = format_text("along axis %d", axis);
    x->shape = shape_text(flat);
    x->slices = 1, x->rows = flat->shape[0], x->columns = flat->shape[1];
    find_spectra(x, p, ctx, flat, left);
    left->without = without;            /* it is no tensor of the file */
    if (!x->spectra && x->rows > 1 && x->columns > 1)
        page_note("The singular values of the unfolding along axis %d are left out, because they take too long.", axis);
}

/* The page of one array. */
static void write_alone(page *p, const char *path, const char *out, table *x, tn_ctx *ctx, tn_tensor *t, room *left)
{
    table unfolded[TN_MAX_RANK];
    memset(unfolded, 0, sizeof unfolded);
    for (int k = 0; k < t->rank && t->rank > 2 && !x->bad; k++) look_at_unfolding(&unfolded[k], p, ctx, t, k, left);
    write_tables(p, path, out, x, 1, t, unfolded, left);
    free_tables(unfolded, t->rank);
}

void look_at_array(tn_ctx *ctx, const char *path, const char *title, const char *out)
{
    char      *name;
    page       p;
    table      x;
    room       left = {MOST_NUMBERS, EXACT_IN_ALL, most_work, 0, NULL, 0};
    tn_tensor *t = read_array(ctx, path, NULL, "", false, &name);
    look_is_of(LOOK_ARRAY);
    page_begin(&p, "look", "tensor", title);
    look_at_table(&x, &p, ctx, t, name, NULL, &left);
    write_alone(&p, path, out, &x, ctx, t, &left);
    free_tables(&x, 1);
    free(left.list);
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
    room            left = {0, EXACT_IN_ALL, most_work, 0, NULL, 0};
    tn_safetensors *file = tn_safetensors_open(ctx, tn_source_path(path));
    check_ctx(ctx, path);
    const int64_t   all = tn_safetensors_count(file), most = all < MOST_TENSORS ? all : MOST_TENSORS;
    table          *list = (table *)allocate((size_t)most + 1, sizeof *list);
    int64_t         count = 0;
    look_is_of(LOOK_TENSORS);
    left.numbers = numbers_of_each(file, most);
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
    tn_tensor *only = count == 1 ? tn_safetensors_read(file, list[0].name) : NULL;
    check_ctx(ctx, path);
    if (only) write_alone(&p, path, out, list, ctx, only, &left);
    else write_tables(&p, path, out, list, count, NULL, NULL, &left);
    free_tables(list, count);
    free(left.list);
    tn_safetensors_close(file);
    free(list);
}
