/* sharkey.c - a technical note on bilinear layers: its equations 1, 5 to 11, 13, 15 and 16, each beside a check

   L. Sharkey, A technical note on bilinear layers for interpretability, 2023, arXiv:2305.03452. Weights here are random and
   small; each claim is computed twice, by the formula of the note with functions of this library and by loops or by the
   layer itself. `name: error` is the largest difference, relative to the largest number; the program fails above 1e-12.
   Where a formula of the note has to be read in another way than it is printed, the line above says how, and a further
   number shows what the printed one gives.

   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/sharkey.c -o sharkey -lm && ./sharkey
   --seed N */
#define _POSIX_C_SOURCE 200809L
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "sharkey"
#include "program.h"

enum { N = 6, H = 9, OUT = N, T = 5, HEADS = 2, VOCAB = 7, M = 4 };      /* inputs, hidden units, ... , features */

static int failures;

static tn_tensor *number(tn_ctx *ctx, int64_t n, int64_t m)
{
    int64_t shape[2] = {n, m};
    return tn_normal(ctx, 2, shape, 0, 1);
}

static double *read_all(tn_tensor *t)
{
    int64_t n = t ? tn_tensor_count(t) : 0;
    double *v = calloc((size_t)n + 1, sizeof *v);
    if (!v || !t || tn_read(t, TN_F64, v, n) != TN_OK) stop(t ? tn_ctx_error(t->ctx) : "a formula could not be computed");
    return v;
}

/* max |a - b| / max |b| of two tensors with equally many elements */
static double difference(tn_ctx *ctx, tn_tensor *a, tn_tensor *b)
{
    double worst = 0, size = 0;
    check(ctx);
    double *x = read_all(a), *y = read_all(b);
    if (tn_tensor_count(a) != tn_tensor_count(b)) stop("two results have different sizes");
    for (int64_t i = 0; i < tn_tensor_count(a); i++) {
        keep_largest(&worst, fabs(x[i] - y[i]));
        keep_largest(&size, fabs(y[i]));
    }
    free(x);
    free(y);
    return worst / (size > 0 ? size : 1);
}

static void claim(tn_ctx *ctx, const char *name, tn_tensor *a, tn_tensor *b)
{
    double d = difference(ctx, a, b);
    printf("%s: %.1e\n", name, d);
    failures += !(d <= 1e-12);
}

static tn_tensor *sum(tn_ctx *ctx, tn_tensor *a, tn_tensor *b) { return a ? tn_add(ctx, a, b) : b; }

/* ---- section 2: tensors and bilinear layers ------------------------------------------------------------------ */

static void tensors(tn_ctx *ctx)
{
    int64_t    su[3] = {3, 4, 5}, sv[3] = {2, 5, 3}, out[4] = {4, 5, 2, 5}, c;
    tn_tensor *u = tn_normal(ctx, 3, su, 0, 1), *v = tn_normal(ctx, 3, sv, 0, 1);
    double    *x = read_all(u), *y = read_all(v), z[200];
    printf("equation 1, the inner product U .jk V: axis j of U with axis k of V, in the equation counted from 1\n");
    for (int64_t i = 0; i < 4; i++) for (int64_t j = 0; j < 5; j++) for (int64_t k = 0; k < 2; k++)
        for (int64_t l = 0; l < 5; l++)
        for (z[((i * 5 + j) * 2 + k) * 5 + l] = 0, c = 0; c < 3; c++)
            z[((i * 5 + j) * 2 + k) * 5 + l] += x[(c * 4 + i) * 5 + j] * y[(k * 5 + l) * 3 + c];
    tn_tensor *direct = tn_tensor_from(ctx, 4, out, TN_F64, z);
    claim(ctx, "inner_product_13", tn_tensordot(ctx, u, 0, v, 2), direct);
    free(x); free(y);
    tn_tensor *m = number(ctx, 3, 4), *b = number(ctx, 4, 5);
    claim(ctx, "matrix_product_21", tn_tensordot(ctx, m, 1, b, 0), tn_matmul(ctx, m, b));
    claim(ctx, "transposed_product_11", tn_tensordot(ctx, m, 0, tn_transpose(m, 0, 1), 1),
          tn_matmul(ctx, tn_transpose(m, 0, 1), m));

    /* Its text says that the axes of V are a batch; the definition puts the free axes of U first. */
    printf("example 6 of the appendix, T[i,a,b] = sum_c U[i,c] V[a,b,c]\n");
    m = number(ctx, 4, 3);
    x = read_all(m); y = read_all(v);
    for (int64_t i = 0; i < 4; i++) for (int64_t j = 0; j < 10; j++)
        for (z[i * 10 + j] = 0, c = 0; c < 3; c++) z[i * 10 + j] += x[i * 3 + c] * y[j * 3 + c];
    out[1] = 2; out[2] = 5;
    direct = tn_tensor_from(ctx, 3, out, TN_F64, z);
    claim(ctx, "example_6", tn_tensordot(ctx, m, 1, v, 2), direct);
    free(x); free(y);
}

static void bilinear_layers(tn_ctx *ctx, tn_tensor *w1, tn_tensor *w2, tn_tensor *x)
{
    int64_t    cube[3] = {H, H, H}, whole = -1;
    tn_tensor *eye = tn_eye(ctx, H), *y = tn_mul(ctx, tn_affine(ctx, x, w1, NULL), tn_affine(ctx, x, w2, NULL));
    tn_tensor *x1 = tn_reshape(x, 1, &whole), *p = number(ctx, OUT, H);
    printf("the layer (W1 x) * (W2 x) as B = W1 .12 Z .21 W2, with ones on the diagonal of Z; the axes are (in, out, in)\n");
    tn_tensor *z = tn_reshape(tn_khatri_rao(ctx, eye, eye), 3, cube);
    tn_tensor *b = tn_tensordot(ctx, tn_tensordot(ctx, w1, 0, z, 1), 1, w2, 0);
    claim(ctx, "layer_from_tensor", tn_tensordot(ctx, tn_tensordot(ctx, x1, 0, b, 0), 1, x1, 0), y);
    tn_tensor *f[2] = {w1, w2};
    tn_cp     *cp = tn_cp_create(ctx, 2, eye, f, TN_CP_INPUT_PLAIN);
    claim(ctx, "axes_of_this_library", tn_copy(ctx, tn_transpose(b, 0, 1)), tn_cp_dense(cp));
    printf("the order of contractions does not matter: one input held gives a matrix, diag(W1 x) W2\n");
    claim(ctx, "one_input_held", tn_tensordot(ctx, x1, 0, b, 0),
          tn_mul(ctx, w2, tn_transpose(tn_affine(ctx, x, w1, NULL), 0, 1)));
    printf("a bias is one more input; with a projection and the residual the layer is P B + I on [x;1]\n");
    cp = tn_cp_create(ctx, 2, p, f, TN_CP_INPUT_PLAIN);
    tn_cp     *plus = tn_cp_residual(cp);
    tn_tensor *residual = tn_add(ctx, x, tn_affine(ctx, y, p, NULL));
    claim(ctx, "residual", tn_cp_apply(ctx, plus, x), residual);
}

/* ---- section 2.3: transformers with bilinear layers, patterns held -------------------------------------------- */

static void one_layer_transformer(tn_ctx *ctx, tn_tensor *w1, tn_tensor *w2)
{
    tn_tensor *e = number(ctx, T, N), *p = number(ctx, N, H), *un = number(ctx, VOCAB, N), *a[HEADS], *ov[HEADS];
    tn_tensor *s[HEADS + 1], *x1 = e, *paths = NULL, *wrong = NULL, *other = NULL;
    int64_t    pairs[2] = {T * T, N};
    for (int h = 0; h < HEADS; h++) {
        a[h] = tn_softmax(ctx, number(ctx, T, T));
        ov[h] = number(ctx, N, N);
        s[h] = tn_affine(ctx, e, ov[h], NULL);               /* W_OV^h of every token: rows times the transposed W_OV^h */
        x1 = tn_add(ctx, x1, tn_matmul(ctx, a[h], s[h]));
    }
    s[HEADS] = e;
    tn_tensor *f[2] = {w1, w2};
    tn_cp     *cp = tn_cp_create(ctx, 2, p, f, TN_CP_INPUT_PLAIN);
    tn_tensor *b = tn_cp_dense(cp);                          /* [out,in,in] */
    tn_tensor *logits = tn_affine(ctx, tn_add(ctx, x1, tn_cp_apply(ctx, cp, x1)), un, NULL);

    printf("equations 5 to 11, one layer: the direct path, the heads, and the layer's tensor between all pairs of them.\n"
           "The product of patterns A^h A^h' is the row-wise Khatri-Rao product, sum over s and s' of A^h[t,s] A^h'[t,s'], and\n"
           "in equation 10 tokens are rows, so that W_OV^h has to be transposed\n");
    for (int h = 0; h <= HEADS; h++) {
        tn_tensor *ah = h < HEADS ? a[h] : tn_eye(ctx, T);
        paths = sum(ctx, paths, tn_matmul(ctx, ah, s[h]));
        wrong = sum(ctx, wrong, tn_matmul(ctx, ah, s[h]));
        other = sum(ctx, other, h < HEADS ? tn_matmul(ctx, ah, tn_matmul(ctx, e, ov[h])) : e);
        for (int k = 0; k <= HEADS; k++) {
            tn_tensor *ak = k < HEADS ? a[k] : tn_eye(ctx, T);
            tn_tensor *y = tn_tensordot(ctx, tn_tensordot(ctx, s[h], 1, b, 1), 2, s[k], 1); /* [s,out,s'] */
            y = tn_reshape(tn_copy(ctx, tn_transpose(y, 1, 2)), 2, pairs);                      /* [s s',out] */
            paths = tn_add(ctx, paths, tn_matmul(ctx, tn_khatri_rao_rows(ctx, ah, ak), y));
            tn_tensor *printed = tn_cp_apply_each(ctx, cp, (tn_tensor *[]){s[h], s[k]});        /* the same token twice */
            wrong = tn_add(ctx, wrong, tn_matmul(ctx, tn_matmul(ctx, ah, ak), printed));
            tn_tensor *sh = tn_matmul(ctx, ah, h < HEADS ? tn_matmul(ctx, e, ov[h]) : e);
            tn_tensor *sk = tn_matmul(ctx, ak, k < HEADS ? tn_matmul(ctx, e, ov[k]) : e);
            other = tn_add(ctx, other, tn_cp_apply_each(ctx, cp, (tn_tensor *[]){sh, sk}));
        }
    }
    claim(ctx, "one_layer_paths", tn_affine(ctx, paths, un, NULL), logits);
    printf("  patterns multiplied as matrices would be off by %.0f %%, W_OV^h without its transpose by %.0f %%\n",
           100 * difference(ctx, tn_affine(ctx, wrong, un, NULL), logits),
           100 * difference(ctx, tn_affine(ctx, other, un, NULL), logits));
}

/* ---- section 3: features --------------------------------------------------------------------------------------- */

static tn_tensor *third(tn_ctx *ctx, const void *mlp, tn_tensor *x) { return tn_mlp_forward(ctx, (const tn_mlp *)mlp, x); }

static void features(tn_ctx *ctx, tn_tensor *w1, tn_tensor *w2, tn_tensor *x)
{
    static const tn_mlp_kind kinds[] = {TN_MLP_BILINEAR, TN_MLP_RELU, TN_MLP_GELU, TN_MLP_SWIGLU};
    tn_tensor *d = number(ctx, M, N), *a = number(ctx, 50, M), *p = number(ctx, OUT, H), *step[3], *y, *z;
    tn_params *params = tn_params_create(ctx);
    double     size = 0;
    int64_t    whole = -1;
    tn_mlp     mlp[4];
    tn_modifier modifier;
    char       name[64];
    printf("equation 13, the modifier view: m(x) times features, m = act(z)/z for any MLP\n");
    for (int64_t i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "mlp%d", (int)i);
        tn_mlp_init(params, name, &(tn_mlp_desc){ .in = N, .hidden = H, .kind = kinds[i], .bias = true }, &mlp[i]);
        y = tn_mlp_modifier(ctx, &mlp[i], x, &z);
        snprintf(name, sizeof name, "modifier_%s", tn_mlp_kind_name(kinds[i]));
        claim(ctx, name, tn_affine(ctx, tn_mul(ctx, y, z), mlp[i].p, NULL), tn_mlp_forward(ctx, &mlp[i], x));
    }
    tn_modifier_init(params, "modifier", &(tn_modifier_desc){ .in = N, .hidden = H, .init_w = { .rule = TN_INIT_NORMAL } },
                     &modifier);
    printf("footnote 5, modifications of one: (1 + W x) * (V x) is bilinear with a bias\n");
    claim(ctx, "modifier_of_one", tn_cp_apply(ctx, tn_cp_from_modifier(ctx, &modifier), x),
          tn_modifier_forward(ctx, &modifier, x, NULL));

    printf("equation 15, interactions of dictionary features: their sum, weighted by E[a_i a_j], is the mean output\n");
    tn_tensor *f[2] = {w1, w2};
    tn_cp     *cp = tn_cp_create(ctx, 2, p, f, TN_CP_INPUT_PLAIN);
    tn_tensor *u = tn_reshape(number(ctx, 1, OUT), 1, &whole);
    y = tn_scale(ctx, tn_matmul(ctx, tn_transpose(a, 0, 1), a), 1 / 50.0);
    z = tn_cp_apply(ctx, cp, tn_matmul(ctx, a, d));
    claim(ctx, "dictionary", tn_sum(ctx, tn_cp_feature_interactions(cp, u, d, y)),
          tn_scale(ctx, tn_sum(ctx, tn_mul(ctx, z, u)), 1 / 50.0));

    printf("equation 16, the default output features that an input feature modifies most, and the reverse\n");
    tn_tensor *data = tn_matmul(ctx, a, d);
    u = tn_feature_basis(ctx, w2, data, 0, false);
    y = tn_feature_modification(ctx, w1, d, u);
    z = tn_mul(ctx, tn_transpose(tn_affine(ctx, tn_slice(d, 0, 0, 1), w1, NULL), 0, 1), u);
    z = tn_sub(ctx, u, z);
    claim(ctx, "feature_modification", tn_slice(y, 0, 0, 1), tn_sqrt(ctx, tn_sum_axis(ctx, tn_mul(ctx, z, z), 0)));
    double *q = read_all(tn_topk(ctx, y, 1, 1, TN_ORDER_LARGEST, &z));
    free(q);
    q = read_all(z);
    printf("  most modified by features 0 to 3: %d %d %d %d\n", (int)q[0], (int)q[1], (int)q[2], (int)q[3]);
    free(q);
    z = tn_feature_correlations(ctx, a, tn_matmul(ctx, tn_affine(ctx, data, w2, NULL), u));
    free(read_all(tn_topk(ctx, tn_mul(ctx, y, z), 1, 1, TN_ORDER_MAGNITUDE, &z)));
    q = read_all(z);
    printf("  of those that occur with them: %d %d %d %d\n", (int)q[0], (int)q[1], (int)q[2], (int)q[3]);
    free(q);
    tn_tensor_destroy(u);

    printf("degree of nonlinearity: third mixed differences, which vanish for bilinear layers and no others\n");
    for (int64_t i = 0; i < 3; i++) step[i] = number(ctx, 1, N);
    for (int64_t i = 0; i < 4; i++) {
        q = read_all(tn_mixed_difference(ctx, third, &mlp[i], x, 3, step));
        size = 0;
        for (int k = 0; k < N; k++) keep_largest(&size, fabs(q[k]));
        printf("  third_difference_%s: %.1e\n", tn_mlp_kind_name(kinds[i]), size);
        failures += (i == 0) != (size < 1e-12);
        free(q);
    }
    check(ctx);
    tn_params_destroy(params);
}

int main(int argc, char **argv)
{
    int64_t    seed = 1;
    const flag flags[] = { {"--seed", FLAG_COUNT, &seed, 0, 1e15, NULL}, {0} };
    char       why[TN_WHY];
    tn_ctx    *ctx;
    read_flags(argc, argv, flags);
    if (tn_ctx_create(&(tn_desc){ .dtype = TN_F64, .seed = (uint64_t)seed }, &ctx, why) != TN_OK) stop(why);
    tn_tensor *w1 = number(ctx, H, N);
    tn_tensor *w2 = number(ctx, H, N);
    tn_tensor *x = number(ctx, 1, N);
    tensors(ctx);
    bilinear_layers(ctx, w1, w2, x);
    one_layer_transformer(ctx, w1, w2);
    features(ctx, w1, w2, x);
    printf("claims_that_fail: %d\n", failures);
    tn_ctx_destroy(ctx);
    return failures != 0;
}
