/* decompose.c - tn decompose: a matrix or tensor of a file as a product or sum of smaller ones */
#include "tn.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TENSORS = TN_MAX_CYCLE + 1, SHOWN = 10 };
enum { SVD = 1, HOSVD = 2, CP = 4, TT = 8 };                /* methods, as bits */

static struct {
    bool        svd, hosvd, f64;
    int64_t     cp, sweeps, starts, seed;
    double      tt, eps, ridge;
    cycle       rank, shape;
    const char *name, *out;
} settings;

static option options[] = {
    FLAG_ROW("svd", &settings.svd, "singular value decomposition of a matrix", NEVER),
    FLAG_ROW("hosvd", &settings.hosvd, "Tucker form: a core and one orthonormal factor per axis", NEVER),
    COUNT_ROW("cp", &settings.cp, "a sum of N terms, by alternating least squares", 1, 1e6, NEVER),
    NUMBER_ROW("tt", &settings.tt, "tensor train with a relative error of at most X; 0: exact up to rounding", 0, 1, NEVER),
    NUMBER_ROW("eps", &settings.eps, "--svd, --hosvd: relative error of at most X; 0 keeps everything", 0, 1, NEVER),
    COUNT_LIST_ROW("rank", &settings.rank, "--svd, --hosvd, --tt: ranks are at most N; --hosvd also takes one N per axis",
                   1, 1e9, NEVER),
    COUNT_ROW("sweeps", &settings.sweeps, "--hosvd: sweeps of HOOI, 0 for none; --cp: sweeps of each start, 0 for 500",
              0, 1e6, NEVER),
    COUNT_ROW("starts", &settings.starts, "--cp: the best of N starts, 0 for 4", 0, 1e4, NEVER),
    NUMBER_ROW("ridge", &settings.ridge, "--cp: weight of the factors' squares, against terms that cancel each other",
               0, 1e6, NEVER),
    COUNT_ROW("seed", &settings.seed, "--cp: of the random starts", 0, 9e15, NEVER),
    COUNT_LIST_ROW("shape", &settings.shape, "use the numbers of the file as a tensor of this shape", 0, 9e15, NEVER),
    TEXT_ROW("name", &settings.name, "NAME", "which tensor of a safetensors file", NEVER),
    TEXT_ROW("out", &settings.out, "FILE", "write the factors to a safetensors file", NEVER),
    FLAG_ROW("f64", &settings.f64, "write them in F64 instead of F32", NEVER),
};

const usage decompose_usage = {
    "decompose", "RUN|FILE --svd|--hosvd|--cp N|--tt X", "decompose a tensor of a file into factors",
    "Decomposes an array of a .npy file, or a tensor of a safetensors file or of a run, in double precision. Prints ranks, "
    "singular values or weights, the relative error |A - product of the factors| / |A| and the numbers to store; --out "
    "writes the factors.",
    "Names of the factors: u, s, vt (--svd); core, factor.K (--hosvd); weights, factor.K (--cp); core.K (--tt).",
    options, sizeof options / sizeof *options, 1, NULL
};

static const limited_option limited[] = {
    {"eps", SVD | HOSVD}, {"rank", SVD | HOSVD | TT}, {"sweeps", HOSVD | CP}, {"starts", CP}, {"ridge", CP}, {"seed", CP},
    {NULL, 0}
};

static int chosen_method(void)
{
    static const char *const names[] = {"--svd", "--hosvd", "--cp", "--tt"};
    int chosen = 0, count = 0;
    for (int i = 0; i < 4; i++)
        if (find_option(&decompose_usage, names[i] + 2)->given) {
            chosen = i;
            count++;
        }
    if (count != 1)
        usage_error("%s, expected one of --svd, --hosvd, --cp N and --tt X", count ? "several methods are given"
                                                                                   : "no method is given");
    check_limited(&decompose_usage, limited, 1 << chosen, "--svd|--hosvd|--cp|--tt");
    if (settings.f64 && !settings.out) usage_error("--f64 is given, expected --out FILE as well");
    return 1 << chosen;
}

/* ---- reading ---------------------------------------------------------------------------------- */

/* The extents that --shape or the file gives. */
static int64_t extents_of(const tn_tensor *t, int64_t extents[TN_MAX_CYCLE])
{
    int64_t all = 1, count = settings.shape.count;
    for (int64_t k = 0; k < count; k++) {
        extents[k] = settings.shape.value[k];
        if (extents[k] > 0 && all > INT64_MAX / extents[k]) fail("--shape has more elements than memory can hold");
        all *= extents[k];
    }
    if (count && all != tn_tensor_count(t))
        fail("--shape has %lld elements, expected %lld as the file", (long long)all, (long long)tn_tensor_count(t));
    for (int64_t k = 0; !count && k < t->rank; k++) extents[k] = t->shape[k];
    return count ? count : t->rank;
}

static tn_tensor *shaped(tn_ctx *ctx, tn_tensor *t, int64_t count, const int64_t *extents)
{
    if (count > TN_MAX_RANK)
        usage_error("--shape has %lld axes, expected at most %d except with --tt", (long long)count, TN_MAX_RANK);
    t = tn_reshape(t, (int)count, extents);
    check_ctx(ctx, "--shape");
    return t;
}

/* ---- printing and writing ----------------------------------------------------------------------- */

static char *shape_text(int64_t count, const int64_t *extents)
{
    buffer b = {0};
    buffer_print(&b, "[");
    for (int64_t k = 0; k < count; k++) buffer_print(&b, k ? ",%lld" : "%lld", (long long)extents[k]);
    buffer_print(&b, "]");
    return b.data;
}

/* The factors, as they are written. */
static struct { tn_named_tensor list[MOST_TENSORS]; int64_t count, numbers; } results;

static void add_result(tn_ctx *ctx, char *name, const tn_tensor *t)
{
    tn_tensor *to = settings.f64 ? NULL : tn_tensor_create(ctx, TN_F32, t->rank, t->shape);
    if (to) tn_assign(to, t);
    check_ctx(ctx, "a result");
    results.list[results.count].name = name;
    results.list[results.count++].tensor = to ? to : t;
    results.numbers += tn_tensor_count(t);
}

static tn_status store(void *user, tn_sink sink)
{
    return tn_safetensors_write((tn_ctx *)user, sink, results.list, results.count, NULL, 0);
}

static void print_svd(const tn_svd_result *r, double size)
{
    int64_t n = tn_tensor_count(r->s);
    double *s = numbers_in(r->s), *rest = (double *)allocate((size_t)n + 1, sizeof *rest);
    rest[n] = r->error;                                     /* from the smallest value on, so that no digits cancel */
    for (int64_t k = n; k > 0; k--) rest[k - 1] = hypot(rest[k], size > 0 ? s[k - 1] / size : 0);
    print("\n  value          singular value   relative error with the values so far\n");
    for (int64_t k = 0; k < n; k++) {
        if (k < SHOWN || k == n - 1) print("  %-8lld %20.9g   %.6g\n", (long long)k + 1, s[k], rest[k + 1]);
        else if (k == SHOWN) print("  ...\n");
    }
    free(s);
    free(rest);
}

static void print_hosvd(const tn_hosvd_result *r)
{
    int64_t i;
    print("\n  axis   extent     rank        gap   singular values\n");
    for (int k = 0; k < r->rank; k++) {
        double *s = numbers_in(r->values[k]);
        int64_t n = tn_tensor_count(r->values[k]);
        int     at = print("  %-4d %8lld %8lld   %8.3g  ", k, (long long)r->factor[k]->shape[0],
                           (long long)r->factor[k]->shape[1], r->gap[k]);
        for (i = 0; i < n && i < 5 && at <= 64; i++) at += print(" %.5g", s[i]);          /* " -1.2345e-05 ..." */
        print(i < n ? " ...\n" : "\n");
        free(s);
    }
}

static void print_terms(const tn_cp_als_result *r)
{
    double *w = numbers_in(r->weights);
    int64_t n = tn_tensor_count(r->weights);
    print("\n  term                   weight\n");
    for (int64_t k = 0; k < n && k < SHOWN; k++) print("  %-8lld %20.9g\n", (long long)k + 1, w[k]);
    if (n > SHOWN) print("  ...\n");
    free(w);
}

static void print_train(const tn_tt *tt)
{
    print("\n  core      numbers   shape\n");
    for (int64_t k = 0; k < tt->count; k++) {
        char *text = shape_text(3, tt->core[k]->shape);
        print("  %-4lld %12lld   %s\n", (long long)k, (long long)tn_tensor_count(tt->core[k]), text);
        free(text);
    }
}

/* ---- the methods: each prints its table, and returns the error ------------------------------------ */

static double run_svd(tn_ctx *ctx, tn_tensor *t)
{
    tn_svd_desc   d;
    tn_svd_result r;
    double       *p = numbers_in(t), size = 0;
    memset(&d, 0, sizeof d);
    d.measure = true;
    d.truncation.weight = settings.eps * settings.eps;
    d.truncation.rank = settings.rank.count ? settings.rank.value[0] : 0;
    for (int64_t i = 0; i < tn_tensor_count(t); i++) size = hypot(size, p[i]);
    free(p);
    if (t->rank != 2) usage_error("the tensor has %d axes, expected a matrix with --svd (see --shape)", t->rank);
    if (tn_svd(ctx, t, &d, &r) != TN_OK) check_ctx(ctx, "the decomposition");
    print_svd(&r, size);
    add_result(ctx, copy_text("u"), r.u);
    add_result(ctx, copy_text("s"), r.s);
    add_result(ctx, copy_text("vt"), r.vt);
    return r.error;
}

static double run_hosvd(tn_ctx *ctx, tn_tensor *t)
{
    const cycle    *rank = &settings.rank;
    tn_hosvd_desc   d;
    tn_hosvd_result r;
    memset(&d, 0, sizeof d);
    if (rank->count > 1 && rank->count != t->rank)
        usage_error("--rank has %lld values, expected 1 or %d, one per axis", (long long)rank->count, t->rank);
    d.eps = settings.eps;
    d.sweeps = settings.sweeps;
    for (int k = 0; k < t->rank; k++) d.axis[k].rank = rank->count ? rank->value[k % rank->count] : 0;
    if (tn_hosvd(ctx, t, &d, &r) != TN_OK) check_ctx(ctx, "the decomposition");
    print_hosvd(&r);
    print("\nbound: %.6g\n", r.bound);
    if (settings.sweeps) print("sweeps: %lld\nconverged: %s\n", (long long)r.sweeps, r.converged ? "yes" : "no");
    add_result(ctx, copy_text("core"), r.core);
    for (int k = 0; k < t->rank; k++) add_result(ctx, format_text("factor.%d", k), r.factor[k]);
    return r.error;
}

static double run_cp(tn_ctx *ctx, tn_tensor *t)
{
    tn_cp_als_desc   d;
    tn_cp_als_result r;
    memset(&d, 0, sizeof d);
    d.terms = settings.cp;
    d.sweeps = settings.sweeps;
    d.starts = settings.starts;
    d.ridge = settings.ridge;
    d.seed = (uint64_t)settings.seed;
    if (tn_cp_als(ctx, t, &d, &r) != TN_OK) check_ctx(ctx, "the decomposition");
    print_terms(&r);
    print("\nsweeps: %lld\nconverged: %s\nstart: %lld\ncongruence: %.4f\ncancellation: %.4g\ndegenerate: %s\n",
          (long long)r.sweeps, r.converged ? "yes" : "no", (long long)r.start, r.congruence, r.cancellation,
          r.degenerate ? "yes" : "no");
    add_result(ctx, copy_text("weights"), r.weights);
    for (int k = 0; k < t->rank; k++) add_result(ctx, format_text("factor.%d", k), r.factor[k]);
    return r.error;
}

static double run_tt(tn_ctx *ctx, const tn_tensor *t, int64_t count, const int64_t *extents)
{
    tn_tt_desc d;
    memset(&d, 0, sizeof d);
    d.eps = settings.tt;
    d.max_bond = settings.rank.count ? settings.rank.value[0] : 0;
    tn_tt *tt = tn_tt_svd(ctx, t, count, count ? extents : NULL, &d);
    check_ctx(ctx, "the decomposition");
    print_train(tt);
    print("\ngap: %.3g\n", tt->gap);
    for (int64_t k = 0; k < tt->count; k++) add_result(ctx, format_text("core.%lld", (long long)k), tt->core[k]);
    return tt->error;
}

int decompose_main(int argc, char **argv)
{
    const int arguments = read_options(&decompose_usage, argc, argv);
    int64_t   extents[TN_MAX_CYCLE];
    tn_ctx   *ctx;
    tn_desc   desc;
    char      why[256];
    if (!arguments) usage_error("no file is given, expected tn decompose %s", decompose_usage.arguments);
    int method = chosen_method();
    memset(&desc, 0, sizeof desc);
    desc.dtype = TN_F64;
    desc.log = show_log;
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) fail("%s", why);
    if (settings.name && is_npy(argv[0]))
        usage_error("--name is given, expected none with a .npy file, which has one array");
    check_not_model("out", settings.out, "the model", argv[0]);
    char      *file = array_file(argv[0]);
    tn_tensor *t = read_array(ctx, file, settings.name, "--name NAME", settings.shape.count > 0, NULL);
    int64_t    count = extents_of(t, extents);
    char      *text = shape_text(count, extents);
    print("tensor: %s\nnumbers: %lld\n", text, (long long)tn_tensor_count(t));
    if (method != TT) t = shaped(ctx, t, count, extents);
    double error = method == SVD ? run_svd(ctx, t) : method == HOSVD ? run_hosvd(ctx, t) : method == CP ? run_cp(ctx, t)
                                                                                  : run_tt(ctx, t, count, extents);
    print(method == SVD ? "\n" : "");
    print("error: %.6g\nnumbers_of_factors: %lld\n", error, (long long)results.numbers);
    if (tn_tensor_count(t) > 0) print("share: %.4g\n", (double)results.numbers / (double)tn_tensor_count(t));
    if (settings.out) {
        char *failed = write_file_with(settings.out, BY_USER, store, ctx, ctx);
        if (failed) fail("%s", failed);
        print("written: %s\n", settings.out);
    }
    free(text);
    free(file);
    tn_ctx_destroy(ctx);
    return 0;
}
