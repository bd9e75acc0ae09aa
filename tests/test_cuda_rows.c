/* Single rows of the cuda backend, called as the dispatcher calls them and compared with the cpu backend element by
   element: the optimisers, the norms, cross entropy, random numbers, products, passes, views and attention, at the sizes,
   alignments and magnitudes where a kernel takes another path.

   Tried are sizes that do not fill a pack of 16 bytes, operands that begin up to three elements after a multiple of 16
   bytes, numbers of 1e-20 and 1e20, means of 1e6 and 1e8, skipped steps, and labels and ids that are out of range. On the
   engine every operand ends at the end of a page, and the next page cannot be read, so a kernel that reads past an operand
   faults. Everywhere the bytes around an operand must not change.

   A row takes F32, F64 or BF16. The cpu backend computes BF16 in F32, from the same rounded numbers. LOUD=1 prints each
   comparison; TN_CUDA_LARGE=1 adds what needs a GPU with 64 GiB to spare. */

#define _DEFAULT_SOURCE                          /* setenv */
#include "cases.h"
#include <float.h>
#ifdef TN_CUDA_HOST
#include "cuda_host/control.h"
#include <sys/mman.h>
#include <unistd.h>
#endif

/* ---- operands ------------------------------------------------------------------------------------------------------- */

enum { MARGIN = 64, MOST = 256, SHELF = 48 << 20 };

/* n numbers. x holds them as the device stores them, whatever the type; the cpu backend works on `mine`. The error of an
   element is relative to the largest number of its line of `line` elements (0: of all elements), or to the line's `unit`
   if that is larger. The largest error is at most `bound`; it is at least `least` where results ought to be rounded.
   `host` is a copy of all bytes as they were uploaded, with the margins around the operand. */
typedef struct operand {
    tn_dtype dtype;
    int64_t  n, line;
    int      offset;                     /* elements after a multiple of 16 bytes  */
    double  *x, *unit, bound, least;
    void    *mine;
    char    *at, *host;                  /* at: on the device                      */
    size_t   bytes, before, after;       /* before, after: the margins             */
} operand;

typedef struct place { const tn_backend *gpu, *cpu; void *state, *cpu_state; char *shelf; size_t used, page; } place;

static place   here;
static operand pool[MOST];
static int     pooled;
static double  worst;
static char    now[160];                 /* what is being compared, for messages */

static size_t size_of(tn_dtype t) { return t == TN_F64 ? 8 : t == TN_BF16 ? 2 : 4; }
static tn_dtype wide_of(tn_dtype t) { return t == TN_BF16 ? TN_F32 : t; }

static uint16_t bf16_of(float f)
{
    uint32_t u;
    if (f != f) return 0x7fc0;
    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static double number_at(const void *p, tn_dtype t, int64_t i)
{
    float f;
    if (t == TN_F64) return ((const double *)p)[i];
    if (t == TN_F32) return (double)((const float *)p)[i];
    if (t == TN_I32) return ((const int32_t *)p)[i];
    uint32_t u = (uint32_t)((const uint16_t *)p)[i] << 16;
    memcpy(&f, &u, 4);
    return (double)f;
}

static void number_put(void *p, tn_dtype t, int64_t i, double x)
{
    if (t == TN_F64) ((double *)p)[i] = x;
    else if (t == TN_F32) ((float *)p)[i] = (float)x;
    else if (t == TN_I32) ((int32_t *)p)[i] = (int32_t)x;
    else ((uint16_t *)p)[i] = bf16_of((float)x);
}

static void *take(size_t bytes, void *user) { (void)user; return malloc(bytes ? bytes : 1); }
static void  give(void *p, size_t bytes, void *user) { (void)bytes; (void)user; free(p); }

static bool open_place_of(tn_gemm_precision precision)
{
    tn_desc d = ZERO;
    char    why[256] = "";
    memset(&here, 0, sizeof here);
    d.allocator.alloc = take;
    d.allocator.release = give;
    d.threads = 1;
    d.gemm_precision = precision;
    here.gpu = tn_cuda_backend();
    here.cpu = precision == TN_GEMM_F32 ? tn_cpu_backend() : tn_reference_backend();
    if (!CHECK_STATUS(here.gpu->open(&d, &here.state, why), TN_OK)) { printf("     %s\n", why); return false; }
    CHECK_STATUS(here.cpu->open(&d, &here.cpu_state, why), TN_OK);
    here.shelf = (char *)here.gpu->alloc(here.state, SHELF);
    here.page = 256;
#ifdef TN_CUDA_HOST
    here.page = (size_t)sysconf(_SC_PAGESIZE);
#endif
    worst = 0;
    return CHECK(here.shelf != NULL);
}

static bool open_place(void) { return open_place_of(TN_GEMM_F32); }

/* On the engine device memory is ordinary memory of this process, so one of its pages can be made unreadable. */
static void protect_page(char *page, bool readable)
{
#ifdef TN_CUDA_HOST
    CHECK(mprotect(page, here.page, readable ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
#else
    (void)page;
    (void)readable;
#endif
}

static void clear_shelf(void)
{
#ifdef TN_CUDA_HOST
    char *first = here.shelf + (here.page - (uintptr_t)here.shelf % here.page) % here.page;
    if (here.used > 0) CHECK(mprotect(first, here.used, PROT_READ | PROT_WRITE) == 0);
#endif
    here.used = 0;
}

static void close_place(void)
{
    char why[256] = "";
    CHECK_STATUS(here.gpu->sync(here.state, why), TN_OK);
    clear_shelf();
    here.gpu->release(here.state, here.shelf, SHELF);
    here.gpu->close(here.state);
    here.cpu->close(here.cpu_state);
}

/* x as this type stores it */
static double rounded(tn_dtype t, double x)
{
    const uint16_t half = t == TN_BF16 ? bf16_of((float)x) : 0;
    if (t == TN_BF16) return number_at(&half, t, 0);
    return t == TN_F64 ? x : t == TN_F32 ? (double)(float)x : (double)(int32_t)x;
}

/* Begins with zeros. A bound of 0 asks for exactly the same numbers on both backends. */
static operand *make(tn_dtype dtype, int64_t n, int offset, double bound)
{
    operand *o = &pool[pooled];
    if (!CHECK(pooled < MOST)) exit(1);
    pooled++;
    memset(o, 0, sizeof *o);
    o->dtype = dtype;
    o->n = n;
    o->offset = offset;
    o->bound = bound;
    o->x = (double *)calloc((size_t)n + 1, sizeof *o->x);
    return o;
}

static operand *fill(operand *o, uint64_t *seed, double mean, double size)
{
    for (int64_t i = 0; i < o->n; i++) o->x[i] = rounded(o->dtype, mean + size * test_random_real(seed));
    return o;
}

/* Places an operand on the device: on the engine at the end of a page, or less than 16 bytes before it if the alignment
   asks for that, followed by a page that cannot be read; on a GPU between margins. */
static void set_down(operand *o)
{
    const size_t size = size_of(o->dtype), skew = (size_t)o->offset * size % 16;
    const size_t rest = (16 - (skew + (size_t)o->n * size) % 16) % 16;
    const size_t first = (here.page - (uintptr_t)here.shelf % here.page) % here.page;
    const bool   pages = here.page > 256;
    o->bytes = (size_t)o->n * size;
    o->before = MARGIN + skew;
    o->after = pages ? rest : (size_t)MARGIN;
    size_t room = (o->before + 16 + o->bytes + o->after + here.page - 1) / here.page * here.page;
    if (!CHECK(first + here.used + room + here.page <= SHELF)) exit(1);
    o->at = here.shelf + first + here.used + (pages ? room - o->bytes - o->after : o->before);
    here.used += room + (pages ? here.page : 0);
    o->host = (char *)malloc(o->before + o->bytes + o->after);
    memset(o->host, 0x5C, o->before + o->bytes + o->after);
    o->mine = calloc((size_t)o->n + 1, 8);
    for (int64_t i = 0; i < o->n; i++) {
        number_put(o->host + o->before, o->dtype, i, o->x[i]);
        o->x[i] = number_at(o->host + o->before, o->dtype, i);
        number_put(o->mine, wide_of(o->dtype), i, o->x[i]);
    }
    CHECK_STATUS(here.gpu->upload(here.state, o->at - o->before, o->host, o->before + o->bytes + o->after), TN_OK);
    if (pages) protect_page(o->at + o->bytes + o->after, false);
}

/* ---- calls ---------------------------------------------------------------------------------------------------------- */

/* work: the reference's workspace, its last output; other backends have their own. */
typedef struct row { tn_call c; operand *in[TN_CALL_IN], *out[TN_CALL_OUT]; double *work; } row;

static row row_of(tn_kernel kernel)
{
    row r = ZERO;
    r.c.kernel = kernel;
    return r;
}

/* A contiguous view [n0], [n0,n1] or [n0,n1,n2]; an extent of -1 ends it. Without an operand it is absent. */
static tn_view view_of(const operand *o, int64_t n0, int64_t n1, int64_t n2)
{
    tn_view v = ZERO;
    v.dtype = o ? o->dtype : TN_F32;
    v.shape[0] = n0;
    v.shape[1] = n1;
    v.shape[2] = n2;
    v.rank = n0 < 0 ? 0 : n1 < 0 ? 1 : n2 < 0 ? 2 : 3;
    for (int i = v.rank - 1; i >= 0; i--) v.strides[i] = i == v.rank - 1 ? 1 : v.strides[i + 1] * v.shape[i + 1];
    return v;
}

static void add_in(row *r, operand *o, int64_t n0, int64_t n1)
{
    r->in[r->c.n_in] = o;
    r->c.in[r->c.n_in++] = view_of(o, n0, n1, -1);
}

static void add_out(row *r, operand *o, int64_t n0, int64_t n1)
{
    r->out[r->c.n_out] = o;
    r->c.out[r->c.n_out++] = view_of(o, n0, n1, -1);
}

/* Makes the call on both backends. Operands are compared by finish(), so several calls may follow each other before. */
static void both(const row *r)
{
    tn_call mine = r->c, theirs = r->c;
    for (int k = 0; k < r->c.n_in + r->c.n_out; k++) {
        operand *o = k < r->c.n_in ? r->in[k] : r->out[k - r->c.n_in];
        tn_view *a = k < r->c.n_in ? &mine.in[k] : &mine.out[k - r->c.n_in];
        tn_view *b = k < r->c.n_in ? &theirs.in[k] : &theirs.out[k - r->c.n_in];
        if (!o) continue;
        if (!o->at) set_down(o);
        a->dtype = wide_of(o->dtype);
        a->data = o->mine;
        b->data = o->at;
    }
    if (r->work) mine.out[mine.n_out - 1].data = r->work;
    CHECK_STATUS(here.cpu->fn[r->c.kernel](here.cpu_state, &mine), TN_OK);
    CHECK_STATUS(here.gpu->fn[r->c.kernel](here.state, &theirs), TN_OK);
}

/* Collected calls: the operands of all of them are placed first, since an upload runs what was collected. */
static void all_of(const row *r, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < r[i].c.n_in + r[i].c.n_out; k++) {
            operand *o = k < r[i].c.n_in ? r[i].in[k] : r[i].out[k - r[i].c.n_in];
            if (o && !o->at) set_down(o);
        }
    for (int i = 0; i < n; i++) both(&r[i]);
}

/* The largest finite number of a line */
static double unit_of(const double *x, int64_t n)
{
    double unit = 0;
    for (int64_t i = 0; i < n; i++)
        if (fabs(x[i]) <= DBL_MAX && fabs(x[i]) > unit) unit = fabs(x[i]);
    return unit;
}

static void compare(operand *o, int number)
{
    char         *raw = (char *)malloc(o->before + o->bytes + o->after);
    double       *want = (double *)malloc(sizeof(double) * ((size_t)o->n + 1));
    const int64_t line = o->line ? o->line : o->n ? o->n : 1;
    double        most = 0, unit = 0;
    int64_t       first = 0;
    CHECK_STATUS(here.gpu->download(here.state, raw, o->at - o->before, o->before + o->bytes + o->after), TN_OK);
    for (int64_t i = 0; i < o->n; i++) want[i] = number_at(o->mine, wide_of(o->dtype), i);
    for (int64_t i = 0; i < o->n; i++) {
        const int64_t from = i / line * line;
        const double  got = number_at(raw + o->before, o->dtype, i);
        const double  e = fabs(got - want[i]);
        if (i == from) unit = unit_of(want + i, i + line < o->n ? line : o->n - i);
        if (i == from && o->unit && o->unit[i / line] > unit) unit = o->unit[i / line];
        if (got == want[i] || (got != got && want[i] != want[i])) continue;
        if (test_raise(&most, e / (unit + DBL_MIN))) first = i;
    }
    if (!CHECK(most >= o->least)) printf("     %s, operand %d: the error is only %.2g\n", now, number, most);
    bool same = memcmp(raw, o->host, o->before) == 0
        && memcmp(raw + o->before + o->bytes, o->host + o->before + o->bytes, o->after) == 0;
    if (!CHECK(most <= o->bound) || !CHECK(same)) {
        printf("     %s, operand %d of dtype %d, %d elements, offset %d: ", now, number, (int)o->dtype, (int)o->n,
               o->offset);
        if (!same) printf("something was written beside it\n");
        else printf("element %d is %.9g, not %.9g (error %.2g)\n", (int)first, number_at(raw + o->before, o->dtype, first),
                    want[first], most);
    }
    if (o->bound > 0) test_raise(&worst, most / o->bound);
    free(raw);
    free(want);
}

/* Compares all operands of the calls since the last time, and frees them. */
static void finish(void)
{
    if (getenv("LOUD")) printf("%s\n", now);
    for (int k = 0; k < pooled; k++)
        if (pool[k].at) compare(&pool[k], k);
    for (int k = 0; k < pooled; k++) {
        free(pool[k].x);
        free(pool[k].unit);
        free(pool[k].mine);
        free(pool[k].host);
    }
    pooled = 0;
    clear_shelf();
}

#define NAME(...) snprintf(now, sizeof now, __VA_ARGS__)

/* ---- what is tried -------------------------------------------------------------------------------------------------- */

static const int64_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 32, 33, 1021, 1022, 1023, 1024, 1025, 1026, 1027};
enum { SIZES = sizeof sizes / sizeof *sizes };
static const double magnitude[] = {1, 1e-20, 1e20};

/* Small runs take a fifth of the combinations: at random, so that all values of what is combined occur. */
static bool left_out(int k)
{
    uint64_t seed = (uint64_t)k;
    return test_small() && test_random(&seed) % 5 != 0;
}

/* How far a result of this type may be from the other backend's */
static double close_to(tn_dtype t) { return t == TN_F64 ? 1e-13 : t == TN_BF16 ? 4.5e-3 : 2e-6; }

/* The order of tensornet.h's TNI_LR and following */
enum { LR, STEP, SIZE, FACTOR, SKIP_IT, NORM, MOMENTUM, TAKEN, SCALARS };

static operand *scalars_of(tn_dtype dtype, bool skip, double factor)
{
    operand *s = make(dtype, SCALARS, 0, close_to(dtype));
    s->line = 1;
    s->x[LR] = 0.01;
    s->x[STEP] = 7;
    s->x[FACTOR] = factor;
    s->x[SKIP_IT] = skip;
    s->x[MOMENTUM] = 0.85;
    s->x[TAKEN] = 12;
    return s;
}

/* ---- the optimisers ------------------------------------------------------------------------------------------------- */

/* One parameter. odd: the operand, if any, whose alignment differs from that of the others. */
static row update(tn_kernel kernel, tn_dtype dtype, operand *s, int64_t n, double size, int offset, int odd, int k)
{
    uint64_t     seed = (uint64_t)(n * 31 + k);
    row          r = row_of(kernel);
    const double bound = close_to(dtype);
    const double square = dtype == TN_F32 && size > 1e10 ? 1e37 : size * size;
    operand     *p = fill(make(dtype, n, offset ^ (odd == 1), bound), &seed, 0, 1);
    operand     *g = fill(make(dtype, n, offset ^ (odd == 2), bound), &seed, 0, size), *m = NULL, *v = NULL;
    add_in(&r, s, SCALARS, -1);
    if (kernel == TN_KERNEL_MUON_END) {
        add_in(&r, g, n, -1);
        add_out(&r, p, n, -1);
        r.c.f[0] = 1.5;
    } else {
        add_out(&r, p, n, -1);
        add_out(&r, g, n, -1);
        if (kernel == TN_KERNEL_ADAMW || k % 3 > 0) m = fill(make(dtype, n, offset ^ (odd == 3), bound), &seed, 0, size);
        if (kernel == TN_KERNEL_ADAMW) v = fill(make(dtype, n, offset ^ (odd == 4), bound), &seed, square, square / 2);
        if (m) add_out(&r, m, n, -1);
        if (v) add_out(&r, v, n, -1);
        r.c.f[0] = m ? 0.9 : 0;
        r.c.f[1] = kernel == TN_KERNEL_ADAMW ? 0.99 : m && k % 2 ? 1 : 0;
        r.c.f[2] = 1e-8;
    }
    r.c.f[3] = k % 4 ? 0.1 : 0;
    r.c.f[4] = n % 2 ? 0.5 : 1.25;
    r.c.f[5] = kernel == TN_KERNEL_ADAMW ? k % 3 : 0;
    return r;
}

/* Number of kernels run so far, where the engine counts them */
static int64_t launches(void)
{
#ifdef TN_CUDA_HOST
    return (int64_t)tnch_launches();
#else
    return -1;
#endif
}

/* All sizes run in one launch, since calls of one kind are collected; the largest takes three of its blocks. */
static void updates(tn_kernel kernel, const char *name)
{
    row list[SIZES + 1];
    int j, count = 0;
    if (!open_place()) return;
    for (int k = 0; k < 2 * 3 * 4 * 2 * 5; k++) {
        const tn_dtype dtype = k % 2 ? TN_F64 : TN_F32;
        const double   size = magnitude[k / 2 % 3];
        const int      offset = k / 6 % 4, odd = k / 48 % 5;
        const bool     skip = k / 24 % 2 == 1;
        char           why[256] = "";
        operand       *s = scalars_of(dtype, skip, k % 3 ? 0.3 : 1);
        if (left_out(k)) { free(s->x); pooled = 0; continue; }
        NAME("%s, magnitude %g, %s, operand %d aligned otherwise", name, size, skip ? "skipped" : "taken", odd);
        for (j = 0; j < SIZES; j++) list[j] = update(kernel, dtype, s, sizes[j], size, offset, odd, k);
        if (offset == 1 || k < 6) list[j++] = update(kernel, dtype, s, 2 * 8192 + 5, size, offset, odd, k);
        int64_t before = launches();
        all_of(list, j);
        CHECK_STATUS(here.gpu->sync(here.state, why), TN_OK);
        CHECK(before < 0 || launches() == before + 1);
        finish();
        count++;
    }
    printf("%d calls of %s in %d launches\n", count * SIZES, name, count);
    close_place();
    WORST(name, worst, 1);
}

TEST(adamw)    { NEED_GPU(); updates(TN_KERNEL_ADAMW, "adamw"); }
TEST(sgd)      { NEED_GPU(); updates(TN_KERNEL_SGD, "sgd"); }
TEST(muon_end) { NEED_GPU(); updates(TN_KERNEL_MUON_END, "muon_end"); }

/* More parameters than one launch takes, and some that come twice: the second step of one follows its first. */
TEST(many_parameters)
{
    uint64_t seed = 3;
    operand *p[2];
    row      list[110];
    int      n = 0;
    NEED_GPU();
    if (!open_place()) return;
    NAME("sgd of many parameters");
    operand *s = scalars_of(TN_F32, false, 0.5);
    for (int k = 0; k < 100; k++) {
        row r = row_of(TN_KERNEL_SGD);
        p[0] = fill(make(TN_F32, 5 + k, k % 4, 2e-6), &seed, 0, 1);
        p[1] = fill(make(TN_F32, 5 + k, 0, 2e-6), &seed, 0, 1);
        add_in(&r, s, SCALARS, -1);
        add_out(&r, p[0], 5 + k, -1);
        add_out(&r, p[1], 5 + k, -1);
        r.c.f[3] = 0.1;
        r.c.f[4] = 1 + k % 3;
        list[n++] = r;
        if (k % 10 == 3) list[n++] = r;
    }
    all_of(list, n);
    finish();
    close_place();
    WORST("sgd of many parameters", worst, 1);
}

static row sumsq_of(operand *s, operand *fault, operand *g, int index)
{
    row r = row_of(TN_KERNEL_SUMSQ);
    add_in(&r, g, g->n, -1);
    add_out(&r, s, SCALARS, -1);
    add_out(&r, fault, 4, -1);
    r.c.i[0] = index;
    return r;
}

/* Each size alone, then all of them into one norm; with and without a number that is not finite. */
TEST(sumsq)
{
    uint64_t seed = 5;
    row      list[SIZES];
    NEED_GPU();
    if (!open_place()) return;
    for (int k = 0; k < 2 * 3 * 4; k++) {
        const tn_dtype dtype = k % 2 ? TN_F64 : TN_F32;
        const double   size = magnitude[k / 2 % 3];
        const int      offset = k / 6;
        operand       *s, *fault;
        if (left_out(k)) continue;
        for (int j = 0; j <= SIZES; j++) {
            const int64_t n = j < SIZES ? sizes[j] : 3 * 8192 - 2;
            NAME("sumsq of %d, magnitude %g", (int)n, size);
            if (j == SIZES && k > 1) continue;
            s = scalars_of(dtype, false, 1);
            fault = make(TN_I32, 4, 0, 0);
            if (j % 3 == 1) s->x[SIZE] = 3 * size;
            list[0] = sumsq_of(s, fault, fill(make(dtype, n, offset, 0), &seed, 0, size), j);
            both(list);
            finish();
        }
        NAME("sumsq of all sizes, magnitude %g", size);
        s = scalars_of(dtype, false, 1);
        fault = make(TN_I32, 4, 0, 0);
        for (int j = 0; j < SIZES; j++) {
            operand *g = fill(make(dtype, sizes[j], offset, 0), &seed, 0, size);
            if (k % 3 == 2 && (j == 8 || j == 13)) g->x[sizes[j] - 1] = k % 2 ? (double)NAN : HUGE_VAL;
            list[j] = sumsq_of(s, fault, g, 100 + j);
        }
        all_of(list, SIZES);
        finish();
    }
    close_place();
    WORST("sumsq", worst, 1);
}

/* Norms on both sides of the limit, norms that are not finite, and steps with a fault from before. */
TEST(step_begin)
{
    static const double norm[] = {0, 1e-30, 1e-20, 0.25, 0.5, 0.75, 1, 1e20, 3e38, HUGE_VAL, (double)NAN};
    static const double clip[] = {0, 0.5, 1, 1e-25, 1e25};
    NEED_GPU();
    if (!open_place()) return;
    for (int k = 0; k < 11 * 5 * 2 * 2; k++) {
        const tn_dtype dtype = k % 2 ? TN_F64 : TN_F32;
        row            r = row_of(TN_KERNEL_STEP_BEGIN);
        operand       *s = scalars_of(dtype, k % 5 == 0, 9), *fault = make(TN_I32, 4, 0, 0);
        NAME("step_begin of norm %g, clipped at %g", norm[k / 2 % 11], clip[k / 22 % 5]);
        s->bound = 0;
        s->x[SIZE] = norm[k / 2 % 11];
        if (k / 110) { fault->x[0] = 1; fault->x[1] = 3; fault->x[2] = -4; }
        add_out(&r, s, SCALARS, -1);
        add_out(&r, fault, 4, -1);
        r.c.f[0] = clip[k / 22 % 5];
        both(&r);
        finish();
    }
    close_place();
}

TEST(muon_begin)
{
    uint64_t seed = 6;
    NEED_GPU();
    if (!open_place()) return;
    for (int k = 0; k < 2 * 3 * 4 * 2 * 2; k++) {
        const tn_dtype dtype = k % 2 ? TN_F64 : TN_F32;
        const double   size = magnitude[k / 2 % 3], bound = close_to(dtype);
        const int      offset = k / 6 % 4, odd = (k * 7 + k / 4) % 4;
        const bool     skip = k / 24 % 2 == 1;
        if (left_out(k)) continue;
        for (int j = 0; j <= SIZES; j++) {
            const int64_t n = j < SIZES ? sizes[j] : 2 * 8192 + 4, batch = j < SIZES ? 1 + j % 3 : 2;
            row           r = row_of(TN_KERNEL_MUON_BEGIN);
            if (j == SIZES && k > 3) continue;
            NAME("muon_begin of %d of %d, magnitude %g, %s, operand %d aligned otherwise", (int)batch, (int)n, size,
                 skip ? "skipped" : "taken", odd);
            operand *s = scalars_of(dtype, skip, k % 5 ? 0.3 : 1);
            operand *x = fill(make(dtype, batch * n, offset ^ (odd == 1), bound), &seed, 0, 1);
            operand *g = fill(make(dtype, batch * n, offset ^ (odd == 2), bound), &seed, 0, size);
            operand *m = fill(make(dtype, batch * n, offset ^ (odd == 3), bound), &seed, 0, size);
            x->line = g->line = m->line = n;
            if (batch == 3) for (int64_t i = 0; i < n; i++) g->x[n + i] = m->x[n + i] = 0;       /* a matrix of zeros */
            add_in(&r, s, SCALARS, -1);
            add_out(&r, x, batch, n);
            add_out(&r, g, batch, n);
            add_out(&r, m, batch, n);
            r.c.f[0] = k % 7 == 3 ? -1 : 0.95;
            r.c.f[1] = j % 2;
            both(&r);
            finish();
        }
    }
    close_place();
    WORST("muon_begin", worst, 1);
}

/* ---- cross entropy -------------------------------------------------------------------------------------------------- */

/* Good labels, labels out of range on either side, rows that are not finite; with a gradient that is aligned as the logits
   are, with one that is not, and without one. */
static void entropy(tn_dtype dtype, int64_t R, int64_t C, int kind, int k)
{
    static const double size[] = {3, 1e-20, 40, 1e20};
    const double bound = dtype == TN_F64 ? 1e-13 : 1e-5;
    uint64_t     seed = (uint64_t)(1000 * C + k);
    row          r = row_of(TN_KERNEL_CROSS_ENTROPY);
    operand     *z = fill(make(dtype, R * C, k % 4, 0), &seed, k % 5 == 4 ? 50 : 0, size[k / 3 % 4]);
    operand     *label = make(TN_I32, R, k % 3, 0), *fault = make(TN_I32, 4, 0, 0), *dz = NULL;
    operand     *loss = make(wide_of(dtype), 1, 0, bound), *lse = make(wide_of(dtype), R, k % 2, bound);
    NAME("cross_entropy of [%d,%d], kind %d, %d", (int)R, (int)C, kind, k);
    for (int64_t i = 0; i < R; i++) label->x[i] = (double)test_random_int(&seed, 0, C - 1);
    label->x[R - 1] = (double)(C - 1);
    if (kind == 1) label->x[R / 2] = (double)C;
    if (kind == 2) { label->x[R - 1] = -1; label->x[R / 3] = INT32_MAX; }
    if (kind == 3) for (int64_t i = 0; i < R; i++) label->x[i] = i % 2 ? INT32_MIN : (double)C;
    if (kind == 4) { fault->x[0] = 1; fault->x[1] = 9; label->x[0] = -5; }
    if (kind == 8) {                                           /* an ignored label beside one out of range, or all ignored */
        r.c.i[0] = 1;
        r.c.i[1] = k % 2 ? -100 : 0;
        for (int64_t i = 0; i < R; i++) if (i % 2 || k % 7 == 0) label->x[i] = (double)r.c.i[1];
        if (R > 2 && k % 7) label->x[2] = (double)C;
    }
    if (kind >= 5 && kind < 8) {
        const double bad = kind == 5 ? (double)NAN : kind == 6 ? HUGE_VAL : -HUGE_VAL;
        z->x[R / 2 * C + C / 2] = bad;
        for (int64_t i = 0; i < C && kind == 7; i++) z->x[(R - 1) * C + i] = bad;             /* a whole row             */
        if (R > 2) { label->x[0] = -1; z->x[C - 1] = bad; }                           /* where the label is bad  */
    }
    if (k % 3 < 2) dz = fill(make(dtype, R * C, k % 3 ? k % 4 : k / 3 % 4, dtype == TN_BF16 ? 4.5e-3 : bound), &seed, 0, 1);
    loss->unit = (double *)calloc(1, sizeof(double));           /* a small loss is a difference of larger numbers */
    for (int64_t i = 0; i < R * C; i++) if (fabs(z->x[i]) < HUGE_VAL) test_raise(loss->unit, fabs(z->x[i]));
    add_in(&r, z, R, C);
    add_in(&r, label, R, -1);
    add_out(&r, loss, -1, -1);
    add_out(&r, lse, R, -1);
    add_out(&r, fault, 4, -1);
    if (dz) {
        dz->line = C;
        dz->unit = (double *)malloc(sizeof(double) * (size_t)R);
        for (int64_t i = 0; i < R; i++) dz->unit[i] = 1 / (double)R;
        add_out(&r, dz, R, C);
    }
    both(&r);
    finish();
}

TEST(cross_entropy)
{
    static const tn_dtype type[] = {TN_F32, TN_F64, TN_BF16};
    int k = 0;
    NEED_GPU();
    if (!open_place()) return;
    for (int t = 0; t < 3; t++)
        for (int j = 0; j < SIZES; j++)
            for (int kind = 0; kind < 9; kind++) {
                if (left_out(k++)) continue;
                entropy(type[t], 1 + (k + j) % 5, sizes[j], kind, k);
            }
    for (int t = 0; t < 3; t++) {
        entropy(type[t], 1500, 3, 2, 6);                         /* several blocks, a few threads for a row    */
        entropy(type[t], 300, 33, 1, 7);
        if (!test_small()) entropy(type[t], 3, 60001, 2, 4 + t); /* shared memory keeps only a part of a row   */
    }
    close_place();
    WORST("cross entropy", worst, 1);
}

/* ---- softmax -------------------------------------------------------------------------------------------------------- */

/* Rows with numbers that are not finite as well; aligned operands and others; the gradient added or not. */
static void softmaxes(tn_dtype dtype, int64_t R, int64_t C, int kind, int k)
{
    const double bound = dtype == TN_F64 ? 1e-12 : dtype == TN_BF16 ? 9e-3 : 5e-6;
    uint64_t     seed = (uint64_t)(1000 * C + k);
    row          f = row_of(TN_KERNEL_SOFTMAX), b = row_of(TN_KERNEL_SOFTMAX_BACKWARD);
    operand     *x = fill(make(dtype, R * C, k % 4, 0), &seed, k % 5 == 4 ? 50 : 0, k % 3 ? 3 : 60), *y = make(dtype, R * C, k / 2 % 4, bound);
    operand     *p = make(dtype, R * C, k % 4, 0), *dy = fill(make(dtype, R * C, k / 3 % 4, 0), &seed, 0, 1);
    NAME("softmax of [%d,%d], kind %d, %d", (int)R, (int)C, kind, k);
    if (kind > 0) x->x[R / 2 * C + C / 2] = kind == 1 ? (double)NAN : kind == 2 ? HUGE_VAL : -HUGE_VAL;
    for (int64_t i = 0; i < C && kind == 4; i++) x->x[(R - 1) * C + i] = -HUGE_VAL;              /* a whole row */
    f.c.i[0] = b.c.i[0] = k % 2;
    b.c.accumulate = k / 2 % 2 == 1;
    add_in(&f, x, R, C);
    add_out(&f, y, R, C);
    both(&f);
    for (int64_t i = 0; i < R * C; i++) {                                                        /* as y may be */
        const double u = fabs(test_random_real(&seed));
        p->x[i] = rounded(dtype, k % 2 ? -4 * u : u / (double)C);
    }
    if (kind == 3) p->x[0] = k % 2 ? -HUGE_VAL : 0;
    operand *dx = fill(make(dtype, R * C, k % 3, bound), &seed, 0, 1);
    dx->line = C;
    dx->unit = (double *)malloc(sizeof(double) * (size_t)R);
    for (int64_t i = 0; i < R; i++) dx->unit[i] = k % 2 ? sqrt((double)C) + 2 : 2;
    add_in(&b, p, R, C);
    add_in(&b, dy, R, C);
    add_out(&b, dx, R, C);
    both(&b);
    finish();
}

TEST(softmax)
{
    static const tn_dtype type[] = {TN_F32, TN_F64, TN_BF16};
    int k = 0;
    NEED_GPU();
    if (!open_place()) return;
    for (int t = 0; t < 3; t++)
        for (int j = 0; j < SIZES; j++)
            for (int kind = 0; kind < 5; kind++) {
                if (left_out(k++)) continue;
                softmaxes(type[t], 1 + (k + j) % 5, sizes[j], kind, k);
            }
    for (int t = 0; t < 3; t++) {
        softmaxes(type[t], 1500, 3, 3, 6);                       /* several blocks, a few threads for a row */
        softmaxes(type[t], 300, 32, 4, 8);
        if (!test_small()) softmaxes(type[t], 3, 60000, 0, 4 + t);
    }
    close_place();
    WORST("softmax", worst, 1);
}

/* ---- norms ---------------------------------------------------------------------------------------------------------- */

/* The rows' numbers: their size, their mean, and the size of dy. In the last two x * dy is out of the range of float. */
static const struct { double size, mean, dy; } kinds_of_rows[] = {
    {1, 0, 1}, {1e-20, 0, 1}, {1e20, 0, 1}, {1, 1e6, 1}, {3e3, 1e8, 1}, {1e-20, 1e-14, 1}, {1e5, 0, 1e34}, {1e-5, 0, 1e-37}
};
enum { KINDS_OF_ROWS = sizeof kinds_of_rows / sizeof *kinds_of_rows, KINDS_FORWARD = KINDS_OF_ROWS - 2 };

/* The offset of an operand: where packs fit, of at most one operand at a time, else of each in turn. */
static int offset_of(int64_t C, int k, int which) { return C % 8 == 0 ? k % 6 == which : (k + which) % 4; }

/* A call of a norm, or of its gradients. eps is small beside the rows' squares, or zero where rows allow it. */
typedef struct norm_call { bool centred; tn_dtype dtype; int64_t R, C; int kind, k; double eps; operand *x, *w; } norm_call;

static norm_call norm_of(bool centred, tn_dtype dtype, int64_t R, int64_t C, int kind, int k, const char *what)
{
    const double size = kinds_of_rows[kind].size, mean = kinds_of_rows[kind].mean;
    uint64_t     seed = (uint64_t)(C * 77 + k);
    norm_call    n = ZERO;
    n.centred = centred;
    n.dtype = dtype;
    n.R = R;
    n.C = C;
    n.kind = kind;
    n.k = k;
    n.eps = k % 4 == 3 ? 1e-5 : mean == 0 && !centred ? 0 : 1e-4 * size * size;
    n.x = fill(make(dtype, R * C, offset_of(C, k, 0), 0), &seed, mean, size);
    n.w = k % 5 ? fill(make(wide_of(dtype), C, offset_of(C, k, 1), 0), &seed, 1, 0.5) : NULL;
    NAME("%s%s of [%d,%d], mean %g, size %g, eps %g, %d", centred ? "layernorm" : "rmsnorm", what, (int)R, (int)C, mean,
         size, n.eps, k);
    return n;
}

static void norm_forward(bool centred, tn_dtype dtype, int64_t R, int64_t C, int kind, int k)
{
    norm_call      n = norm_of(centred, dtype, R, C, kind, k, "");
    const tn_dtype real = wide_of(dtype);
    const double   bound = dtype == TN_F64 ? 1e-12 : 4e-6;
    uint64_t       seed = 9;
    row            f = row_of(centred ? TN_KERNEL_LAYERNORM : TN_KERNEL_RMSNORM);
    operand       *y = make(dtype, R * C, offset_of(C, k, 2), dtype == TN_BF16 ? 4.5e-3 : bound);
    operand       *r = make(real, R, k % 3, bound);
    y->line = C;
    r->line = 1;
    add_in(&f, n.x, R, C);
    add_in(&f, n.w, C, -1);
    if (centred) add_in(&f, k % 4 ? fill(make(real, C, offset_of(C, k, 3), 0), &seed, 0, 0.1) : NULL, C, -1);
    add_out(&f, y, R, C);
    add_out(&f, r, R, -1);
    f.c.f[0] = n.eps;
    both(&f);
    finish();
}

/* r of these rows, as an operand */
static operand *statistic_of(const norm_call *n)
{
    operand *r = make(wide_of(n->dtype), n->R, n->k % 3, 0);
    for (int64_t i = 0; i < n->R; i++) {
        const double *x = n->x->x + i * n->C;
        double        mean = 0, rest = 0, squares = 0;
        for (int64_t j = 0; n->centred && j < n->C; j++) mean += x[j] / (double)n->C;
        for (int64_t j = 0; n->centred && j < n->C; j++) rest += (x[j] - mean) / (double)n->C;
        for (int64_t j = 0; j < n->C; j++) squares += (x[j] - mean - rest) * (x[j] - mean - rest) / (double)n->C;
        r->x[i] = 1 / sqrt(squares + n->eps);
    }
    return r;
}

static void norm_backward(bool centred, tn_dtype dtype, int64_t R, int64_t C, int kind, int k)
{
    norm_call      n = norm_of(centred, dtype, R, C, kind, k, " backwards");
    const tn_dtype real = wide_of(dtype);
    const double   bound = dtype == TN_F64 ? 1e-11 : 4e-6, size = kinds_of_rows[kind].size;
    const double   dy_size = kinds_of_rows[kind].dy;
    uint64_t       seed = (uint64_t)(C + k);
    row            b = row_of(centred ? TN_KERNEL_LAYERNORM_BACKWARD : TN_KERNEL_RMSNORM_BACKWARD);
    operand       *dy = fill(make(dtype, R * C, offset_of(C, k, 2), 0), &seed, 0, dy_size), *dx = NULL, *dw = NULL, *db = NULL;
    if (k % 7 != 6) dx = make(dtype, R * C, offset_of(C, k, 3), dtype == TN_BF16 ? 6e-3 : bound);
    if (dx) fill(dx, &seed, 0, dy_size / size);
    if (k % 6 != 5) dw = fill(make(real, C, k % 4, bound), &seed, 0, dy_size);
    if (centred && k % 5 != 4) db = fill(make(real, C, k % 3, bound), &seed, 0, dy_size);
    add_in(&b, n.x, R, C);
    add_in(&b, n.w, C, -1);
    add_in(&b, statistic_of(&n), R, -1);
    add_in(&b, dy, R, C);
    b.c.accumulate = k % 2 == 0;
    if (dx) {                                         /* a difference that may be far smaller than what it is made of */
        dx->line = C;
        dx->unit = (double *)calloc((size_t)R, sizeof(double));
        for (int64_t i = 0; i < R * C; i++) {
            const double g = fabs(dy->x[i]) * (n.w ? fabs(n.w->x[i % C]) : 1) * b.in[2]->x[i / C];
            if (g > dx->unit[i / C]) dx->unit[i / C] = g;
            if (b.c.accumulate && fabs(dx->x[i]) > dx->unit[i / C]) dx->unit[i / C] = fabs(dx->x[i]);
        }
    }
    add_out(&b, dx, R, C);
    add_out(&b, dw, C, -1);
    if (centred) add_out(&b, db, C, -1);
    both(&b);
    finish();
}

static void norms(bool centred, bool backward, const char *name)
{
    static const tn_dtype type[] = {TN_F32, TN_F64, TN_BF16};
    int k = 0;
    if (!open_place()) return;
    for (int t = 0; t < 3; t++)
        for (int kind = 0; kind < (backward ? KINDS_OF_ROWS : KINDS_FORWARD); kind++)
            for (int j = 0; j < SIZES; j++)
                for (int more = 0; more < (j < 12 ? 3 : 1); more++) {
                    k++;
                    if (left_out(k) || (type[t] == TN_BF16 && kinds_of_rows[kind].mean != 0)) continue;
                    if (backward && sizes[j] > 1000 && (j + t) % KINDS_OF_ROWS != kind) continue;
                    if (backward) norm_backward(centred, type[t], 1 + k % 4, sizes[j], kind, k);
                    else norm_forward(centred, type[t], 1 + k % 4, sizes[j], kind, k);
                }
    for (int t = 0; t < 3; t++) {
        const int64_t shape[][2] = {{300, 32}, {70, 1032}, {40, 8}, {2, 5000}, {18000, 1}};
        for (int j = 0; j < (test_small() ? 1 : 5); j++) {           /* several rows for a block; more than registers hold */
            if (backward) norm_backward(centred, type[t], shape[j][0], shape[j][1], 0, 4 * j);
            else norm_forward(centred, type[t], shape[j][0], shape[j][1], 0, 4 * j);
        }
        for (k = 0; k < 6; k++) {
            if (backward) norm_backward(centred, type[t], 3, 64, 0, k);
            else norm_forward(centred, type[t], 3, 64, 0, k);
        }
    }
    close_place();
    WORST(name, worst, 1);
}

/* The bytes of an operand on the device are those of another. */
static bool same_bytes(const operand *a, const operand *b)
{
    char *x = (char *)malloc(a->bytes + 1), *y = (char *)malloc(a->bytes + 1);
    CHECK_STATUS(here.gpu->download(here.state, x, a->at, a->bytes), TN_OK);
    CHECK_STATUS(here.gpu->download(here.state, y, b->at, a->bytes), TN_OK);
    bool same = memcmp(x, y, a->bytes) == 0;
    free(x);
    free(y);
    return same;
}

/* The sum, its norm and r: bit-identical to an addition and a norm on the device; and those of the cpu backend, which does not
   round a BF16 sum here, because it computes with F32 copies. */
static void residual(tn_dtype dtype, int64_t R, int64_t C, double size, int k)
{
    const tn_dtype real = wide_of(dtype);
    const double   bound = dtype == TN_F64 ? 1e-12 : dtype == TN_F32 ? 4e-6 : 1e-2;
    uint64_t       seed = (uint64_t)(C * 31 + k);
    row            f = row_of(TN_KERNEL_RESIDUAL_RMSNORM), add = row_of(TN_KERNEL_ADD), norm = row_of(TN_KERNEL_RMSNORM);
    operand       *x = fill(make(dtype, R * C, offset_of(C, k, 0), 0), &seed, 0, size);
    operand       *branch = fill(make(dtype, R * C, offset_of(C, k, 1), 0), &seed, 0, size);
    operand       *w = k % 3 ? fill(make(real, C, offset_of(C, k, 2), 0), &seed, 1, 0.5) : NULL, *out[2][3];
    NAME("residual_rmsnorm of [%d,%d], size %g, dtype %d, %d", (int)R, (int)C, size, (int)dtype, k);
    for (int i = 0; i < 2; i++) {
        out[i][0] = make(dtype, R * C, offset_of(C, k, 3), bound);
        out[i][1] = make(dtype, R * C, offset_of(C, k, 4), bound);
        out[i][2] = make(real, R, k % 3, bound);
        out[i][1]->line = C;
        out[i][2]->line = 1;
    }
    add_in(&f, x, R, C);
    add_in(&f, branch, R, C);
    add_in(&f, w, C, -1);
    add_out(&f, out[0][0], R, C);
    add_out(&f, out[0][1], R, C);
    add_out(&f, out[0][2], R, -1);
    add_in(&add, x, R, C);
    add_in(&add, branch, R, C);
    add_out(&add, out[1][0], R, C);
    add_in(&norm, out[1][0], R, C);
    add_in(&norm, w, C, -1);
    add_out(&norm, out[1][1], R, C);
    add_out(&norm, out[1][2], R, -1);
    f.c.f[0] = norm.c.f[0] = k % 4 == 3 ? 1e-5 : 1e-4 * size * size;
    add.c.f[0] = add.c.f[1] = 1;
    both(&f);
    both(&add);
    both(&norm);
    /* if an operand of the sum alone is not aligned, the norm uses packs, and adds the squares in another order */
    if ((size_t)C * size_of(dtype) % 16 != 0 || (offset_of(C, k, 0) == 0 && offset_of(C, k, 1) == 0))
        for (int i = 0; i < 3; i++) CHECK(same_bytes(out[0][i], out[1][i]));
    finish();
}

TEST(residual_rmsnorm)
{
    static const tn_dtype type[] = {TN_F32, TN_F64, TN_BF16};
    static const double   size[] = {1, 1e-20, 1e20};
    static const int64_t  shape[][2] = {{300, 32}, {70, 1032}, {40, 8}, {2, 5000}, {3, 40000}, {18000, 1}};
    int k = 0;
    NEED_GPU();
    if (!open_place()) return;
    for (int t = 0; t < 3; t++) {
        for (int j = 0; j < SIZES; j++)
            for (int more = 0; more < 9; more++) {
                if (left_out(++k)) continue;
                residual(type[t], 1 + k % 4, sizes[j], size[more % 3], k);
            }
        for (int j = 0; j < (test_small() ? 2 : 6); j++) residual(type[t], shape[j][0], shape[j][1], 1, 6 * j + 5);
    }
    close_place();
    WORST("residual_rmsnorm", worst, 1);
}

TEST(rmsnorm)            { NEED_GPU(); norms(false, false, "rmsnorm"); }
TEST(layernorm)          { NEED_GPU(); norms(true, false, "layernorm"); }
TEST(rmsnorm_backward)   { NEED_GPU(); norms(false, true, "rmsnorm backwards"); }
TEST(layernorm_backward) { NEED_GPU(); norms(true, true, "layernorm backwards"); }

/* ---- the clock and the random numbers ------------------------------------------------------------------------------- */

TEST(tick)
{
    static const int32_t at[] = {0, 1, -1, 2147483646, -2147483647 - 1, 12345};
    NEED_GPU();
    if (!open_place()) return;
    for (int k = 0; k < 6 * 3; k++) {
        row r = row_of(TN_KERNEL_TICK);
        operand *clock = make(TN_I32, 1, 0, 0);
        NAME("tick of %d", (int)at[k % 6]);
        clock->x[0] = at[k % 6];
        r.c.i[0] = k / 6 == 0 ? 1 : k / 6 == 1 ? 0 : 7;
        add_out(&r, clock, 1, -1);
        both(&r);
        finish();
    }
    close_place();
}

/* Element e of uniform numbers in (0, 1), by the Philox of cases.h. The number of its block, e / 4, has 64 bits. */
static double uniform_at(uint64_t seed, uint32_t call, uint32_t clock, uint64_t e)
{
    uint32_t out[4];
    uint32_t counter[4] = {(uint32_t)(e / 4), (uint32_t)(e / 4 >> 32), call, clock};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    plain_philox(counter, key, out);
    return ((double)(out[e % 4] >> 9) + 0.5) / 8388608;
}

/* Elements whose index takes more than 34 bits, and the number of their Philox block more than 32. On the engine the
   thread blocks before them do not run, so that no memory is needed for what they would write; a GPU writes all of it. */
TEST(random_numbers_beyond_2_34)
{
    enum { MORE = 1003 };
    const uint64_t first = (uint64_t)1 << 34;
    float          got[MORE];
    int32_t        clock = -7;
    size_t         bytes = sizeof got;
    tn_call        c;
    char          *room, why[256] = "";
    NEED_GPU();
#ifndef TN_CUDA_HOST
    if (!getenv("TN_CUDA_LARGE")) SKIP("TN_CUDA_LARGE=1", "this takes 64 GiB of a GPU");
    bytes += (size_t)first * sizeof *got;
#endif
    if (!open_place()) return;
    room = (char *)here.gpu->alloc(here.state, bytes);
    if (!room) {
        close_place();
        SKIP("gpu memory", "the device has no 64 GiB left");
    }
    memset(&c, 0, sizeof c);
    c.kernel = TN_KERNEL_UNIFORM;
    c.n_in = c.n_out = 1;
    c.in[0] = view_of(NULL, 1, -1, -1);
    c.in[0].dtype = TN_I32;
    c.in[0].data = here.shelf;
    c.out[0] = view_of(NULL, (int64_t)first + MORE, -1, -1);
    c.i[0] = 0x123456789ABCDEF;
    c.i[1] = 3;
    c.f[1] = 1;
    CHECK_STATUS(here.gpu->upload(here.state, here.shelf, &clock, sizeof clock), TN_OK);
#ifdef TN_CUDA_HOST
    c.out[0].data = (char *)((uintptr_t)room - (uintptr_t)first * sizeof *got);
    tnch_set_first_block(first / 4 / 256);
#else
    c.out[0].data = room;
    room += first * sizeof *got;
#endif
    CHECK_STATUS(here.gpu->fn[c.kernel](here.state, &c), TN_OK);
    CHECK_STATUS(here.gpu->sync(here.state, why), TN_OK);
#ifdef TN_CUDA_HOST
    tnch_set_first_block(0);
#endif
    CHECK_STATUS(here.gpu->download(here.state, got, room, sizeof got), TN_OK);
    for (int k = 0; k < MORE; k++)
        if (!CHECK((double)got[k] == uniform_at((uint64_t)c.i[0], 3, (uint32_t)clock, first + (uint64_t)k)))
            printf("     element 2^34 + %d is %.9g\n", k, (double)got[k]);
    here.gpu->release(here.state, bytes > sizeof got ? room - first * sizeof *got : room, bytes);
    close_place();
}

/* ---- products ------------------------------------------------------------------------------------------------------- */

/* The backend's own kernel for products, with matrices in either order of their axes. */
static void product(tn_dtype a, tn_dtype b, tn_dtype y, int64_t batch, int64_t m, int64_t n, int64_t k, int how)
{
    uint64_t      seed = (uint64_t)(m * 100 + n * 10 + k + how);
    row           r = row_of(TN_KERNEL_GEMM);
    const double  bound = y == TN_F64 ? 1e-13 : y == TN_BF16 ? 5e-3 : 3e-6;
    const int64_t extent[3][2] = {{m, k}, {k, n}, {m, n}};
    operand      *o[3], *bias = how % 3 ? fill(make(wide_of(y), n, how % 4, 0), &seed, 0, 1) : NULL;
    NAME("gemm of [%d,%d,%d] by %d, dtypes %d %d %d, %d", (int)batch, (int)m, (int)k, (int)n, (int)a, (int)b, (int)y, how);
    o[0] = fill(make(a, batch * m * k, how % 4, 0), &seed, 0, 1);
    o[1] = fill(make(b, batch * k * n, how / 2 % 4, 0), &seed, 0, 1);
    o[2] = fill(make(y, batch * m * n, how / 3 % 4, bound), &seed, 0, 1);
    r.in[0] = o[0];
    r.in[1] = o[1];
    r.in[2] = bias;
    r.out[0] = o[2];
    for (int i = 0; i < 3; i++) {
        tn_view *v = i < 2 ? &r.c.in[i] : &r.c.out[0];
        *v = view_of(o[i], batch, extent[i][0], extent[i][1]);
        if (how >> i & 1) {
            v->strides[1] = 1;
            v->strides[2] = extent[i][0];
        }
    }
    r.c.in[2] = view_of(bias, n, -1, -1);
    r.c.n_in = 3;
    r.c.n_out = 1;
    r.c.f[0] = how % 5 ? 1 : 0.5;
    r.c.f[1] = how % 4 == 1 ? -0.75 : 0;
    both(&r);
    finish();
}

TEST(products_at_the_end_of_memory)
{
    static const int64_t shape[][4] = {
        {1, 1, 1, 1}, {1, 3, 5, 7}, {2, 65, 3, 17}, {1, 64, 64, 16}, {1, 63, 66, 33}, {1, 2, 130, 9}, {1, 130, 2, 1},
        {3, 5, 5, 0}, {2, 129, 130, 10}, {1, 300, 290, 5},
    };
    static const tn_dtype type[][3] = {
        {TN_F32, TN_F32, TN_F32}, {TN_F64, TN_F64, TN_F64}, {TN_BF16, TN_F32, TN_BF16}, {TN_BF16, TN_BF16, TN_F32}
    };
    const char *before = getenv("TN_CUBLAS");
    char        kept[32] = "";
    NEED_GPU();
    if (before) snprintf(kept, sizeof kept, "%s", before);
    setenv("TN_CUBLAS", "0", 1);
    if (!open_place()) return;
    for (int i = 0; i < (int)(sizeof shape / sizeof *shape); i++)
        for (int t = 0; t < 4; t++)
            for (int how = 0; how < 8; how++) {
                if (left_out(i + t + how) || (i > 7 && (how + t) % 4)) continue;
                product(type[t][0], type[t][1], type[t][2], shape[i][0], shape[i][1], shape[i][2], shape[i][3], how);
            }
    close_place();
    if (before) setenv("TN_CUBLAS", kept, 1);
    else unsetenv("TN_CUBLAS");
    WORST("products", worst, 1);
}

/* ---- views ---------------------------------------------------------------------------------------------------------- */

/* A view of [n0,n1,n2] whose axes lie in memory in another order, in steps of `step` elements. */
static operand *permuted(row *r, bool is_out, tn_dtype dtype, const int64_t *shape, int order, int64_t step, double bound,
                         uint64_t *seed)
{
    static const int axes[6][3] = {{2, 1, 0}, {1, 2, 0}, {2, 0, 1}, {0, 1, 2}, {0, 2, 1}, {1, 0, 2}};
    operand *o = fill(make(dtype, (shape[0] * shape[1] * shape[2] - 1) * step + 1, order % 4, bound), seed, 0, 1);
    tn_view  v = view_of(o, shape[0], shape[1], shape[2]);
    for (int k = 0; k < 3; k++) {
        v.strides[axes[order][k]] = step;
        step *= shape[axes[order][k]];
    }
    if (is_out) { r->out[r->c.n_out] = o; r->c.out[r->c.n_out++] = v; }
    else { r->in[r->c.n_in] = o; r->c.in[r->c.n_in++] = v; }
    return o;
}

/* copy, add, mul and sum of views in every order of their axes; copies also between types. */
TEST(views_at_the_end_of_memory)
{
    static const int64_t shape[][3] = {
        {1, 33, 31}, {2, 64, 65}, {3, 32, 32}, {1, 1, 1}, {5, 7, 3}, {2, 5, 130}, {40, 33, 2}
    };
    static const tn_dtype type[] = {TN_F32, TN_F64, TN_BF16};
    uint64_t seed = 21;
    int      k = 0;
    NEED_GPU();
    if (!open_place()) return;
    for (int i = 0; i < (int)(sizeof shape / sizeof *shape); i++)
        for (int order = 0; order < 6; order++)
            for (int t = 0; t < 3; t++, k++) {
                static const tn_kernel kernel[] = {TN_KERNEL_COPY, TN_KERNEL_ADD, TN_KERNEL_MUL, TN_KERNEL_SUM};
                for (int which = 0; which < 4; which++) {
                    const tn_dtype other = which == 0 && k % 5 == 4 ? type[(t + 1) % 3] : type[t];
                    const double   bound = type[t] == TN_BF16 ? 4.5e-3 : which == 0 && other == type[t] ? 0 : 2e-6;
                    int64_t        to[3];
                    row            r = row_of(kernel[which]);
                    if (left_out(k + which)) continue;
                    memcpy(to, shape[i], sizeof to);
                    NAME("%s of [%d,%d,%d] in order %d, dtypes %d %d", tn_kernel_name(kernel[which]), (int)to[0], (int)to[1],
                         (int)to[2], order, (int)other, (int)type[t]);
                    if (which == 3) to[k % 3] = 1;
                    permuted(&r, false, other, shape[i], order, k % 7 == 5 ? 2 : 1, 0, &seed);
                    if (which == 1 || which == 2) permuted(&r, false, type[t], shape[i], (order + k) % 6, 1, 0, &seed);
                    permuted(&r, true, type[t], to, which == 0 ? (order + k / 6) % 6 : 0, 1, bound, &seed);
                    r.c.f[0] = 0.75;
                    r.c.f[1] = -1.5;
                    r.c.accumulate = which > 0 && k % 2 == 1;
                    both(&r);
                    finish();
                }
            }
    close_place();
    WORST("views", worst, 1);
}

/* ---- the other rows ------------------------------------------------------------------------------------------------- */

/* Passes over elements: activations, products of parts, dropout and random numbers, of all sizes. */
TEST(passes)
{
    static const tn_kernel kernel[] = {
        TN_KERNEL_ACT, TN_KERNEL_ACT_BACKWARD, TN_KERNEL_GLU, TN_KERNEL_GLU_BACKWARD, TN_KERNEL_PROD,
        TN_KERNEL_PROD_BACKWARD, TN_KERNEL_DROPOUT, TN_KERNEL_UNIFORM, TN_KERNEL_NORMAL
    };
    uint64_t seed = 22;
    int      k = 0;
    NEED_GPU();
    if (!open_place()) return;
    for (int which = 0; which < 9; which++)
        for (int t = 0; t < 3; t++)
            for (int j = 0; j < SIZES; j++) {
                const tn_dtype dtype = t == 0 ? TN_F32 : t == 1 ? TN_F64 : TN_BF16;
                const double   bound = t == 1 ? 1e-12 : t == 2 ? 9e-3 : 5e-6;
                const bool     rows = which >= 2 && which < 6, back = which < 6 && which % 2 == 1, random = which >= 7;
                const int64_t  n = sizes[j], R = rows ? 1 + j % 3 : n, parts = rows ? which < 4 ? 2 : 2 + k % 3 : 1;
                const int64_t  wide = rows ? parts * n : 1, thin = rows ? n : 1;
                row            r = row_of(kernel[which]);
                operand       *clock = NULL;
                if (left_out(k++) || (random && t == 2)) continue;
                NAME("%s of %d, dtype %d, %d", tn_kernel_name(kernel[which]), (int)n, (int)dtype, k);
                if (!random) add_in(&r, fill(make(dtype, R * wide, k % 4, 0), &seed, 0, 3), R, rows ? wide : -1);
                if (back) add_in(&r, fill(make(dtype, R * thin, k / 3 % 4, 0), &seed, 0, 1), R, rows ? thin : -1);
                if (which >= 6) {
                    clock = make(TN_I32, 1, 0, 0);
                    clock->x[0] = 5;
                    add_in(&r, clock, 1, -1);
                }
                operand *y = fill(make(dtype, R * (back ? wide : thin), k / 5 % 4, bound), &seed, 0, 1);
                add_out(&r, y, R, !rows ? -1 : back ? wide : thin);
                r.c.accumulate = (back || which == 6) && k % 2 == 1;
                r.c.i[0] = which < 4 ? k % 5 : which < 6 ? parts : 77;
                r.c.i[1] = which >= 6 ? 3 : 0;
                r.c.f[0] = which == 6 ? 0.25 : -0.5;
                r.c.f[1] = 1.5;
                both(&r);
                finish();
            }
    close_place();
    WORST("passes", worst, 1);
}

/* Rows of a table and the sums of their gradients, with ids that repeat and ids that are out of range; then the largest
   number of each row. */
TEST(tables_and_largest)
{
    uint64_t seed = 23;
    int      k = 0;
    NEED_GPU();
    if (!open_place()) return;
    for (int t = 0; t < 3; t++)
        for (int j = 0; j < SIZES; j++) {
            const tn_dtype dtype = t == 0 ? TN_F32 : t == 1 ? TN_F64 : TN_BF16, real = wide_of(dtype);
            const int64_t  n = sizes[j], d = 1 + k * 5 % 37, words = 1 + k % 3 * 150;
            row            r = row_of(TN_KERNEL_EMBED);
            if (left_out(k++)) continue;
            NAME("embed of %d ids, %d words of %d, dtype %d", (int)n, (int)words, (int)d, (int)dtype);
            operand *ids = make(TN_I32, n, k % 4, 0);
            for (int64_t i = 0; i < n; i++) ids->x[i] = (double)(i % 9 < 3 ? 0 : test_random_int(&seed, 0, words - 1));
            if (k % 3 == 1) ids->x[n / 2] = (double)words;
            if (k % 3 == 2) ids->x[n - 1] = -1;
            operand *fault = make(TN_I32, 4, 0, 0);
            add_in(&r, fill(make(real, words * d, k % 4, 0), &seed, 0, 1), words, d);
            add_in(&r, ids, n, -1);
            add_out(&r, fill(make(dtype, n * d, k / 4 % 4, dtype == TN_BF16 ? 4.5e-3 : 0), &seed, 0, 1), n, d);
            add_out(&r, fault, 4, -1);
            both(&r);
            r = row_of(TN_KERNEL_EMBED_BACKWARD);
            add_in(&r, ids, n, -1);
            add_in(&r, fill(make(dtype, n * d, k / 3 % 4, 0), &seed, 0, 1), n, d);
            add_out(&r, fill(make(real, words * d, k % 4, t == 1 ? 1e-13 : 5e-6), &seed, 0, 1), words, d);
            both(&r);
            finish();
            NAME("argmax and accuracy of [%d,%d], dtype %d", (int)d, (int)n, (int)dtype);
            r = row_of(TN_KERNEL_ARGMAX);
            add_in(&r, fill(make(dtype, d * n, k % 4, 0), &seed, 0, 1), d, n);
            if (k % 2) r.in[0]->x[d * n - 1] = k % 4 == 1 ? (double)NAN : 2;
            ids = make(TN_I32, d, k % 3, 0);
            add_out(&r, ids, d, -1);
            both(&r);
            r.c.kernel = TN_KERNEL_ACCURACY;
            r.c.n_out = 0;
            add_in(&r, ids, d, -1);
            add_out(&r, make(real, 1, 0, 1e-6), -1, -1);
            both(&r);
            finish();
        }
    close_place();
    WORST("tables", worst, 1);
}

/* ---- what entries refuse -------------------------------------------------------------------------------------------- */

/* A call with operands of zeros, all of one type and shape; only its status is of interest. Each has 256 KiB, which suffices
   if the entry runs. */
static tn_call call_of(tn_kernel kernel, int ins, int outs, tn_dtype dtype, int64_t n0, int64_t n1)
{
    enum { EACH = 1 << 18 };
    tn_call c = ZERO;
    char   *zeros = (char *)calloc((size_t)(ins + outs), EACH);
    CHECK_STATUS(here.gpu->upload(here.state, here.shelf, zeros, (size_t)(ins + outs) * EACH), TN_OK);
    free(zeros);
    c.kernel = kernel;
    c.n_in = ins;
    c.n_out = outs;
    for (int k = 0; k < ins + outs; k++) {
        tn_view *v = k < ins ? &c.in[k] : &c.out[k - ins];
        *v = view_of(NULL, n0, n1, -1);
        v->dtype = dtype;
        v->data = here.shelf + k * EACH;
    }
    return c;
}

static void answers(const tn_call *c, tn_status status)
{
    char why[256] = "";
    if (!CHECK_STATUS(here.gpu->fn[c->kernel](here.state, c), status))
        printf("     %s of dtype %d\n", tn_kernel_name(c->kernel), (int)c->in[0].dtype);
    (void)here.gpu->sync(here.state, why);
}

TEST(refusals)
{
    static const struct { tn_kernel kernel; int ins, outs; } only_real[] = {
        {TN_KERNEL_ADAMW, 1, 4}, {TN_KERNEL_SGD, 1, 2}, {TN_KERNEL_MUON_BEGIN, 1, 3}, {TN_KERNEL_MUON_END, 2, 1},
        {TN_KERNEL_SUMSQ, 1, 2}, {TN_KERNEL_STEP_BEGIN, 0, 2}, {TN_KERNEL_CHAIN, 1, 4},
        {TN_KERNEL_SCAN, 2, 3}, {TN_KERNEL_SCAN_STATES, 3, 3},
    };
    static const tn_kernel of_rows[] = {TN_KERNEL_RMSNORM, TN_KERNEL_LAYERNORM, TN_KERNEL_CROSS_ENTROPY};
    const int64_t huge = (int64_t)INT32_MAX + 1;
    tn_call       c;
    NEED_GPU();
    if (!open_place()) return;
    for (int k = 0; k < (int)(sizeof only_real / sizeof *only_real); k++) {
        c = call_of(only_real[k].kernel, only_real[k].ins, only_real[k].outs, TN_BF16, 8, k == 2 ? 8 : -1);
        answers(&c, TN_ERR_DTYPE);
    }
    c = call_of(TN_KERNEL_ADAMW, 1, 4, TN_F32, 8, -1);          /* one moment of another type */
    c.out[3].dtype = TN_F64;
    answers(&c, TN_ERR_DTYPE);
    c = call_of(TN_KERNEL_MUON_BEGIN, 1, 3, TN_F32, 2, 8);
    c.out[2].dtype = TN_F64;
    answers(&c, TN_ERR_DTYPE);
    c = call_of(TN_KERNEL_GEMM, 3, 1, TN_F32, 8, 8);
    c.in[1].dtype = TN_F64;
    answers(&c, TN_ERR_DTYPE);
    for (int k = 0; k < 3; k++) {
        c = call_of(of_rows[k], k == 1 ? 3 : 2, k == 2 ? 3 : 2, TN_F32, 1, huge);
        answers(&c, TN_ERR_SHAPE);
        c = call_of(of_rows[k], k == 1 ? 3 : 2, k == 2 ? 3 : 2, TN_F32, 4, 8);
        c.out[1].dtype = TN_BF16;
        answers(&c, TN_ERR_DTYPE);
    }
    for (int k = 0; k < 2; k++) {
        c = call_of(k ? TN_KERNEL_LAYERNORM_BACKWARD : TN_KERNEL_RMSNORM_BACKWARD, 4, 2 + k, TN_F32, 1, huge);
        answers(&c, TN_ERR_SHAPE);
        c = call_of(k ? TN_KERNEL_LAYERNORM_BACKWARD : TN_KERNEL_RMSNORM_BACKWARD, 4, 2 + k, TN_BF16, 4, 8);
        answers(&c, TN_ERR_DTYPE);
    }
    c = call_of(TN_KERNEL_EMBED_BACKWARD, 2, 1, TN_F32, 2 * huge, 8);           /* more ids than 32 bits can count */
    c.out[0].shape[0] = 8;
    answers(&c, TN_ERR_SHAPE);
    c = call_of(TN_KERNEL_EMBED_BACKWARD, 2, 1, TN_F32, 8, 8);
    c.out[0].shape[0] = huge;
    answers(&c, TN_ERR_SHAPE);
    close_place();
}

#ifdef TN_CUDA_HOST
/* Entries whose scratch does not fit the device report it, and run when it does. */
TEST(no_room_for_scratch)
{
    static const struct { tn_kernel kernel; int ins, outs; } list[] = {
        {TN_KERNEL_CROSS_ENTROPY, 2, 4}, {TN_KERNEL_RMSNORM_BACKWARD, 4, 2}, {TN_KERNEL_LAYERNORM_BACKWARD, 4, 3},
        {TN_KERNEL_SUMSQ, 1, 2}, {TN_KERNEL_MUON_BEGIN, 1, 3}, {TN_KERNEL_EMBED_BACKWARD, 2, 1},
    };
    NEED_GPU();
    for (int k = 0; k < 6; k++) {
        if (!open_place()) return;
        tn_call c = call_of(list[k].kernel, list[k].ins, list[k].outs, TN_F32, 8, k == 3 ? -1 : 16);
        tnch_set_memory(tnch_memory_in_use());
        answers(&c, TN_ERR_MEMORY);
        tnch_set_memory((size_t)1 << 30);
        answers(&c, TN_OK);
        close_place();
    }
}

/* Scratch that a graph may use stays as long as the graph: once it is released, larger scratch replaces the old one. */
TEST(scratch_after_a_graph)
{
    size_t used[2];
    NEED_GPU();
    for (int with = 0; with < 2; with++) {
        char  why[256] = "";
        void *graph = NULL;
        if (!open_place()) return;
        tn_call c = call_of(TN_KERNEL_MUON_BEGIN, 1, 3, TN_F32, 40, 8);
        answers(&c, TN_OK);
        if (with) {
            CHECK_STATUS(here.gpu->capture_begin(here.state, why), TN_OK);
            CHECK_STATUS(here.gpu->fn[c.kernel](here.state, &c), TN_OK);
            CHECK_STATUS(here.gpu->capture_end(here.state, &graph, why), TN_OK);
            CHECK_STATUS(here.gpu->replay(here.state, graph), TN_OK);
            here.gpu->graph_release(here.state, graph);
        }
        c = call_of(TN_KERNEL_MUON_BEGIN, 1, 3, TN_F32, 4000, 8);
        answers(&c, TN_OK);
        used[with] = tnch_memory_in_use();
        close_place();
    }
    CHECK_INT(used[1], used[0]);
}

/* With TN_SYNC=1 a call has finished when it returns, even if streams run only when their results are needed. */
TEST(calls_that_wait)
{
    NEED_GPU();
    for (int waits = 0; waits < 2; waits++) {
        char why[256] = "";
        if (waits) setenv("TN_SYNC", "1", 1);
        if (!open_place()) return;
        tnch_set_lazy(1);
        tn_call c = call_of(TN_KERNEL_TICK, 0, 1, TN_I32, 1, -1);
        uint64_t before = tnch_launches();
        CHECK_STATUS(here.gpu->fn[c.kernel](here.state, &c), TN_OK);
        CHECK_INT(tnch_launches() - before, waits);
        CHECK_STATUS(here.gpu->sync(here.state, why), TN_OK);
        CHECK_INT(tnch_launches() - before, 1);
        tnch_set_lazy(getenv("TNCH_LAZY") != NULL);
        close_place();
        unsetenv("TN_SYNC");
    }
}
#else
TEST(no_room_for_scratch)   { SKIP("the engine", "a GPU's memory does not shrink when asked to"); }
TEST(scratch_after_a_graph) { SKIP("the engine", "a GPU's memory is not counted"); }
TEST(calls_that_wait)       { SKIP("the engine", "a GPU does not count its launches"); }
#endif

/* ---- attention ------------------------------------------------------------------------------------------------------ */

static tn_view heads_of(const operand *o, int64_t B, int64_t T, int64_t n, int64_t d)
{
    tn_view v = view_of(o, B, T, n);
    v.rank = 4;
    v.shape[3] = d;
    v.strides[3] = 1;
    v.strides[2] = d;
    v.strides[1] = n * d;
    v.strides[0] = T * n * d;
    return v;
}

/* Rotations of heads of even and odd sizes, and chains of matrices. */
TEST(rotations_and_chains)
{
    uint64_t seed = 24;
    NEED_GPU();
    if (!open_place()) return;
    for (int k = 0; k < 20; k++)
        for (int t = 0; t < 3; t++) {
            const tn_dtype dtype = t == 0 ? TN_F32 : t == 1 ? TN_F64 : TN_BF16;
            const int64_t  d = 1 + k % 5 * (k % 7), B = 1 + k % 2, T = 1 + k % 4, n = 1 + k % 3, count = B * T * n * d;
            const double   bound = t == 1 ? 1e-12 : t == 2 ? 9e-3 : 1e-5;
            if (left_out(k + t)) continue;
            NAME("rope of [%d,%d,%d,%d], dtype %d, %d", (int)B, (int)T, (int)n, (int)d, (int)dtype, k);
            operand *x = fill(make(dtype, count, k % 4, 0), &seed, 0, 1);
            for (int back = 0; back < 2; back++) {
                row r = row_of(back ? TN_KERNEL_ROPE_BACKWARD : TN_KERNEL_ROPE);
                r.c.n_in = 1 + back;
                r.c.n_out = 1;
                r.in[0] = x;
                r.in[1] = back ? fill(make(dtype, count, k / 4 % 4, 0), &seed, 0, 1) : NULL;
                r.out[0] = fill(make(dtype, count, k / 2 % 4, bound), &seed, 0, 1);
                r.c.in[0] = r.c.in[1] = r.c.out[0] = heads_of(x, B, T, n, d);
                r.c.f[0] = 10000;
                r.c.f[1] = k % 3 ? 1e-6 : -1;
                r.c.i[0] = k;
                r.c.i[1] = k % 6 == 4;
                r.c.accumulate = back && k % 2;
                if (back && r.c.f[1] >= 0) {             /* the norm takes off nearly all of dy where d is small */
                    operand *dx = r.out[0];
                    dx->line = count;
                    dx->unit = (double *)calloc(1, sizeof(double));
                    for (int64_t i = 0; i < count; i++) dx->unit[0] += fabs(r.in[1]->x[i]) / (fabs(x->x[i / d * d]) + 1e-3);
                }
                both(&r);
            }
            finish();
        }
    for (int k = 0; k < 24; k++) {
        const tn_dtype dtype = k % 2 ? TN_F64 : TN_F32;
        const int64_t  d = 1 + k * 7 % 20, b = 1 + k % 3, n = 1 + k % 5, all = b * n * d * d;
        const double   bound = k % 2 ? 1e-11 : 2e-5;
        row            f = row_of(TN_KERNEL_CHAIN), r = row_of(TN_KERNEL_CHAIN_BACKWARD);
        operand       *m = fill(make(dtype, all, k % 4, 0), &seed, 0, 1), *y = make(dtype, b * (d * d + 1), 0, bound);
        operand       *p = make(dtype, all, 0, HUGE_VAL), *v = make(dtype, b * n, 0, HUGE_VAL);
        if (left_out(k)) { free(m->x); free(y->x); free(p->x); free(v->x); pooled = 0; continue; }
        NAME("chain of [%d,%d,%d,%d], dtype %d", (int)b, (int)n, (int)d, (int)d, (int)dtype);
        if (k % 8 == 5) for (int64_t i = 0; i < d * d; i++) m->x[(n - 1) * d * d + i] = 0;       /* a product of zero */
        y->line = d * d + 1;
        f.in[0] = r.in[0] = m;
        f.c.in[0] = r.c.in[0] = heads_of(m, b, n, d, d);
        f.c.n_in = 1;
        add_out(&f, y, b, d * d + 1);
        f.out[1] = r.in[1] = p;
        f.c.out[1] = r.c.in[1] = heads_of(m, b, n, d, d);
        f.c.n_out = 2;
        add_out(&f, v, b, n);
        f.out[3] = make(dtype, b * 2 * d * d, 0, HUGE_VAL);
        f.c.out[3] = view_of(f.out[3], b, 2, d * d);
        f.c.n_out = 4;
        both(&f);
        r.c.n_in = 2;
        add_in(&r, v, b, n);
        add_in(&r, fill(make(dtype, b * (d * d + 1), k / 2 % 4, 0), &seed, 0, 1), b, d * d + 1);
        r.out[0] = fill(make(dtype, all, k / 3 % 4, bound * 10), &seed, 0, 1);
        r.c.out[0] = f.c.in[0];
        r.out[1] = make(dtype, b * 4 * d * d, 0, HUGE_VAL);
        r.c.out[1] = view_of(r.out[1], b, 4, d * d);
        r.c.n_out = 2;
        r.c.accumulate = k % 3 == 1;
        both(&r);
        finish();
    }
    close_place();
    WORST("rotations and chains", worst, 1);
}

/* Scans of matrices, of a vector and of states; cores and matrices that shared memory holds and that it does not; one row of lanes and
   whole blocks per chain; zeros on the way. */
TEST(scans)
{
    static const struct { int64_t b, n, d, s; int uniform; } list[] = {     /* s 0: matrices, -1: a vector and matrices */
        {2, 3, 1, 0, 0}, {3, 5, 7, 0, 0}, {1, 4, 17, 0, 0}, {1, 2, 40, 0, 0}, {1, 2, 100, 0, 0},
        {3, 4, 1, -1, 0}, {2, 3, 5, -1, 0}, {5, 2, 33, -1, 0},
        {3, 4, 1, 1, 0}, {40, 3, 4, 2, 0}, {9, 4, 10, 2, 1}, {3, 2, 33, 3, 0}, {5, 3, 70, 1, 1}, {1, 2, 120, 5, 0}, {2, 0, 3, 2, 0}, {2, 3, 4, 0, 1}, {2, 3, 0, 0, 0}, {2, 3, 0, 2, 0},
    };
    uint64_t seed = 25;
    NEED_GPU();
    if (!open_place()) return;
    for (int k = 0; k < (int)(sizeof list / sizeof *list); k++)
        for (int t = 0; t < 4; t++) {
            const tn_dtype dtype = t / 2 ? TN_F64 : TN_F32;
            const bool     states = list[k].s > 0, open = list[k].s != 0, stop = list[k].s == 0 && list[k].uniform;
            const int64_t  b = list[k].b, n = list[k].n, d = list[k].d, S = states ? list[k].s : 1, N = n + open, size = open ? d : d * d;
            const int64_t  sites = states ? list[k].uniform ? 1 : n : b * n, width = S * d;
            const double   bound = t / 2 ? 2e-13 : 4e-6;
            row            f = row_of(states ? TN_KERNEL_SCAN_STATES : TN_KERNEL_SCAN), g = row_of(states ? TN_KERNEL_SCAN_STATES_BACKWARD : TN_KERNEL_SCAN_BACKWARD);
            operand       *phi = NULL, *v = NULL;
            int            at = 0;
            int reverse = t % 2;
            if (left_out(k + t)) continue;
            NAME("scan of [%d,%d,%d], s %d, dtype %d, reverse %d", (int)b, (int)n, (int)d, (int)list[k].s, (int)dtype, reverse);
            operand *m = fill(make(dtype, sites * width * d, k % 4, 0), &seed, 0, 1);
            if (stop) for (int64_t i = 0; i < d * d; i++) m->x[d * d + i] = 0;                   /* M_1 is zero */
            if (states) phi = fill(make(dtype, b * n * S, k / 2 % 4, 0), &seed, 0, 1);
            if (open) v = fill(make(dtype, k % 2 ? d : b * d, k / 3 % 4, 0), &seed, 0, 1);
            operand *y = make(dtype, b * N * size, 0, bound);
            operand *logs = make(dtype, b * N, 0, bound);
            operand *r = make(dtype, b * N, 0, bound);
            tn_view  core = states ? heads_of(m, sites, d, S, d) : heads_of(m, b, n, d, d);
            if (states) add_in(&f, v, k % 2 ? 1 : b, d);
            f.in[f.c.n_in] = m;
            f.c.in[f.c.n_in++] = core;
            if (states) {
                f.in[2] = phi;
                f.c.in[2] = view_of(phi, b, n, S);
                f.c.n_in = 3;
            } else add_in(&f, v, k % 2 ? 1 : b, d);
            f.out[0] = y;
            f.c.out[0] = view_of(y, b, N, size);
            f.c.n_out = 1;
            add_out(&f, logs, b, N);
            add_out(&f, k % 3 == 1 ? NULL : r, b, N);
            f.c.i[0] = g.c.i[0] = reverse;
            both(&f);
            finish();
            if (k % 3 == 1) continue;
            NAME("scan backward of [%d,%d,%d], s %d, dtype %d, reverse %d", (int)b, (int)n, (int)d, (int)list[k].s, (int)dtype, reverse);
            m = fill(make(dtype, sites * width * d, k % 4, 0), &seed, 0, 1);
            if (states) phi = fill(make(dtype, b * n * S, k / 2 % 4, 0), &seed, 0, 1);
            y = fill(make(dtype, b * N * size, k / 2 % 4, 0), &seed, 0, 1);
            r = fill(make(dtype, b * N, 0, 0), &seed, 3, 1);
            if (stop) r->x[1] = 0;
            g.in[at] = m;
            g.c.in[at++] = core;
            if (states) { g.in[at] = phi; g.c.in[at++] = view_of(phi, b, n, S); }
            g.in[at] = y;
            g.c.in[at++] = view_of(y, b, N, size);
            g.c.n_in = at;
            add_in(&g, r, b, N);
            g.in[g.c.n_in] = fill(make(dtype, b * N * size, k / 3 % 4, 0), &seed, 0, 1);
            g.c.in[g.c.n_in++] = view_of(y, b, N, size);
            add_in(&g, fill(make(dtype, b * N, 1, 0), &seed, 0, 1), b, N);
            g.out[0] = k % 5 == 4 && open ? NULL : fill(make(dtype, states ? b * n * S : b * n * d * d, k / 2 % 4, bound), &seed, 0, 1);
            g.c.out[0] = states ? view_of(phi, b, n, S) : core;
            g.c.n_out = 1;
            if (states) {
                g.out[1] = make(dtype, b * N * d, 0, bound);
                g.c.out[1] = view_of(y, b, N, d);
                g.c.n_out = 2;
            } else {
                add_out(&g, open ? make(dtype, b * d, 0, bound) : NULL, b, d);
                g.out[2] = make(dtype, b * 2 * size, 0, HUGE_VAL);
                g.c.out[2] = view_of(y, b, 2, size);
                g.c.n_out = 3;
            }
            g.c.accumulate = k % 2;
            both(&g);
            finish();
        }
    close_place();
    WORST("scans", worst, 1);
}

/* A call forwards, with a statistic where the kind has one. */
static row attention(tn_dtype dtype, int kind, int row_scale, int64_t B, int64_t H, int64_t Tq, int64_t Tk, int64_t d,
                     int64_t dv, double bound, uint64_t seed)
{
    const int64_t sets = kind == TN_ATTEND_BILINEAR ? 2 : 1;
    const tn_dtype real = wide_of(dtype);
    const bool    has_stat = kind == TN_ATTEND_SOFTMAX || row_scale == TN_ROW_SCALE_SUM;
    static double work[1 << 14];
    row           r = row_of(TN_KERNEL_ATTENTION);
    r.work = work;
    r.in[0] = fill(make(dtype, B * Tq * sets * H * d, 0, 0), &seed, 0, 1);
    r.in[1] = fill(make(dtype, B * Tk * sets * H * d, 0, 0), &seed, 0, 1);
    r.in[2] = fill(make(dtype, B * Tk * H * dv, 0, 0), &seed, 0, 1);
    r.out[0] = fill(make(dtype, B * Tq * H * dv, 0, bound), &seed, 0, 1);
    r.out[1] = has_stat ? fill(make(real, B * H * Tq, 0, bound), &seed, 0, 1) : NULL;
    r.c.in[0] = heads_of(r.in[0], B, Tq, sets * H, d);
    r.c.in[1] = heads_of(r.in[1], B, Tk, sets * H, d);
    r.c.in[2] = heads_of(r.in[2], B, Tk, H, dv);
    r.c.out[0] = heads_of(r.out[0], B, Tq, H, dv);
    r.c.out[1] = view_of(r.out[1], B, H, Tq);
    r.c.n_in = 3;
    r.c.n_out = 3;
    r.c.i[0] = kind;
    r.c.i[1] = 1;
    r.c.f[0] = 0.5;
    r.c.f[1] = 16;
    r.c.f[2] = row_scale;
    return r;
}

/* The result of a query that sees no key is 0, even if the sum it would be divided by is an eps of 0. */
TEST(attention_to_nothing)
{
    static const struct { int kind, row; } what[] = {
        {TN_ATTEND_SOFTMAX, TN_ROW_SCALE_NONE}, {TN_ATTEND_SQUARED, TN_ROW_SCALE_SUM},
            {TN_ATTEND_SQUARED, TN_ROW_SCALE_MEAN},
        {TN_ATTEND_BILINEAR, TN_ROW_SCALE_LENGTH},
    };
    static const int64_t shape[][2] = {{4, 1}, {3, 0}, {20, 7}, {200, 140}};
    NEED_GPU();
    if (!open_place()) return;
    for (int k = 0; k < 4 * 4 * 3; k++) {
        const tn_dtype dtype = k / 16 == 0 ? TN_F32 : k / 16 == 1 ? TN_F64 : TN_BF16;
        const int64_t *T = shape[k / 4 % 4];
        const double   bound = dtype == TN_BF16 ? 2e-2 : 1e-5;
        row            r = attention(dtype, what[k % 4].kind, what[k % 4].row, 1, 2, T[0], T[1], 16, 16, bound, 4);
        NAME("attention of kind %d, row %d, %d queries of %d keys, dtype %d", what[k % 4].kind, what[k % 4].row, (int)T[0],
             (int)T[1], (int)dtype);
        both(&r);
        finish();
    }
    close_place();
    WORST("attention to nothing", worst, 1);
}

/* A few queries of many heads: more of them than warps in the grid that combines the splits. */
TEST(few_queries_of_many_heads)
{
    const char   *wanted = getenv("TN_CUDA_LARGE");
    const int64_t H = wanted && *wanted && strcmp(wanted, "0") != 0 ? 6000 : 150;
    NEED_GPU();
    if (!open_place()) return;
    for (int kind = 0; kind < 3; kind++) {
        row r = attention(TN_F32, kind, kind == TN_ATTEND_SQUARED ? TN_ROW_SCALE_MEAN : TN_ROW_SCALE_NONE, 1, H, 4, 9, 5, 3,
                          1e-5, 6);
        NAME("attention of kind %d, four queries in %d heads", kind, (int)H);
        both(&r);
        finish();
    }
    close_place();
    WORST("a few queries of many heads", worst, 1);
}

/* The gradients of the call `f`, which overwrite the numbers that are there, or are added to them. */
static row attention_backward(const row *f, uint64_t seed, bool add)
{
    row r = *f;
    r.c.accumulate = add;
    r.c.kernel = (tn_kernel)(f->c.kernel + 1);
    r.c.n_in = 6;
    r.in[3] = f->out[0];
    r.c.in[3] = f->c.out[0];
    r.in[4] = f->out[1];
    r.c.in[4] = f->c.out[1];
    r.in[5] = fill(make(f->out[0]->dtype, f->out[0]->n, 0, 0), &seed, 0, 1);
    r.c.in[5] = f->c.out[0];
    r.c.n_out = 4;
    for (int i = 0; i < 3; i++) {
        r.out[i] = fill(make(f->in[i]->dtype, f->in[i]->n, 0, f->out[0]->bound), &seed, 0, 0.5);
        r.c.out[i] = f->c.in[i];
    }
    r.out[3] = NULL;
    r.c.out[3] = view_of(NULL, -1, -1, -1);
    return r;
}

/* Linear attention, forward and backward, with few and with many keys. */
TEST(linear_attention_at_the_end_of_memory)
{
    static const int64_t shape[][4] = {{1, 1, 3, 2}, {9, 9, 5, 7}, {70, 70, 16, 16}, {5, 40, 1, 1}, {33, 130, 8, 3}};
    static const tn_dtype type[] = {TN_F32, TN_F64, TN_BF16};
    NEED_GPU();
    if (!open_place_of(TN_GEMM_TF32)) return;                    /* with the reference, which takes BF16 as F32 */
    for (int k = 0; k < 5 * 3 * 4; k++) {
        const int64_t *at = shape[k / 12];
        const tn_dtype dtype = type[k % 3];
        const double   bound = dtype == TN_F64 ? 1e-11 : dtype == TN_F32 ? 2e-5 : 8e-2;
        const int      kind = k / 3 % 2 ? TN_ATTEND_SQUARED : TN_ATTEND_BILINEAR;
        if (left_out(k)) continue;
        row f = attention(dtype, kind, TN_ROW_SCALE_MEAN, 1, 2, at[0], at[1], at[2], at[3], bound, 7);
        NAME("linear attention of kind %d, %d queries of %d keys, d %d, dtype %d", kind, (int)at[0], (int)at[1], (int)at[2],
             (int)dtype);
        f.c.kernel = TN_KERNEL_ATTENTION_LINEAR;
        f.c.i[1] = k / 6 % 2;
        f.c.n_out = 4;
        f.c.out[2] = f.c.out[3] = view_of(NULL, -1, -1, -1);
        both(&f);
        for (int add = 0; add < 2; add++) {
            row b = attention_backward(&f, 9, add == 1);
            both(&b);
        }
        finish();
    }
    close_place();
    WORST("linear attention", worst, 1);
}

static void to_bf16(operand *o) { for (int64_t i = 0; i < o->n; i++) o->x[i] = rounded(TN_BF16, o->x[i]); }

/* Attention on tensor cores with more blocks than a device runs at once: one for each head. Two heads have results that are
   not finite, which the plain kernels compute again: one head in the first turn of their blocks, of which there is one for
   each multiprocessor, the other in a later turn. The operands are F32, with numbers that BF16 can represent. The cpu
   backend is not a fair comparison, since it multiplies masked values by 0, which makes a NaN of an infinity: the reference
   is used. */
TEST(tensor_cores_in_many_blocks)
{
    static const int row_scale[] = {TN_ROW_SCALE_NONE, TN_ROW_SCALE_SUM, TN_ROW_SCALE_LENGTH};
    const char    *wanted = getenv("TN_CUDA_LARGE");
    const int64_t  H = wanted && *wanted && strcmp(wanted, "0") != 0 ? 6000 : test_small() ? 70 : 150;
    const int64_t  Tq = 5, Tk = 128, d = 16;
    NEED_GPU();
    if (!open_place_of(TN_GEMM_BF16)) return;
    for (int kind = 0; kind < 3; kind++) {
        row f = attention(TN_F32, kind, row_scale[kind], 1, H, Tq, Tk, d, d, 1.5e-2, 5 + (uint64_t)kind), b;
        NAME("attention of kind %d in %d heads", kind, (int)H);
        f.c.f[3] = 0.25;
        for (int i = 0; i < 3; i++) to_bf16(f.in[i]);
        f.in[2]->x[((Tk - 1) * H + 7) * d + 3] = (double)NAN;                  /* only the last query of one head sees it */
        f.in[2]->x[((Tk - 2) * H + H - 4) * d + 3] = HUGE_VAL;
        f.out[0]->least = 1e-5;                                  /* the plain kernels would be more exact */
        both(&f);
        for (int add = 0; add < 2; add++) {
            b = attention_backward(&f, 8, add == 1);
            to_bf16(b.in[5]);
            for (int i = 0; i < 3; i++) b.out[i]->least = 1e-5;
            both(&b);
        }
        finish();
    }
    close_place();
    WORST("tensor cores in many blocks", worst, 1);
}

TEST_MAIN(adamw, sgd, muon_end, many_parameters, sumsq, step_begin, muon_begin, cross_entropy, softmax, rmsnorm, layernorm,
          rmsnorm_backward, layernorm_backward, residual_rmsnorm, tick, random_numbers_beyond_2_34, products_at_the_end_of_memory,
          views_at_the_end_of_memory, passes, tables_and_largest, rotations_and_chains, scans, refusals, no_room_for_scratch,
          scratch_after_a_graph, calls_that_wait, attention_to_nothing, few_queries_of_many_heads,
          linear_attention_at_the_end_of_memory, tensor_cores_in_many_blocks)
