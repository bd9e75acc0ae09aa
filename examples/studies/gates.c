/* gates.c - logic gates as bilinear layers: by hand, by training, and where one layer ends

   make && build/examples/studies/gates          or   cc -O2 -I. examples/studies/gates.c -o gates -lm && ./gates
   Pictures are drawn into out/gates or the folder given as an argument. */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "gates"
#include "program.h"

enum { XOR = 6, STEPS = 3000 };

/* An input is a number: a is its bit 0, b its bit 1, c its bit 2. A gate is a number too: bit x is what it says to x. */
static const char *const gate_name[16] = {
    "false", "a nor b", "a > b", "not b", "a < b", "not a", "a xor b", "a nand b",
    "a and b", "a xnor b", "a", "a >= b", "b", "a <= b", "a or b", "true"
};
static double value_of(int gate, int x) { return gate >> x & 1; }
static double parity(int x)             { return (x ^ x >> 1 ^ x >> 2) & 1 ? -1 : 1; }     /* (-1)^(a+b+c) */

/* What the program claims at its end. */
typedef struct claims {
    int    two_exact, three_exact, three_without_abc, three_by_sign, adder_errors;
    double trained_error, matrices_apart, parity_sum;
} claims;

/* ---- a gate is a polynomial ---------------------------------------------------
   On bits a a = a, so no power is needed: n bits have 2^n monomials, as many as they have values, and every function
   of them is one polynomial. f holds a function's values and gets its coefficients, f[m] that of the product of the
   bits in m: for each bit, the value without it is taken from the value with it (Moebius inversion). */
static void to_polynomial(int n, double *f)
{
    for (int i = 0; i < n; i++)
        for (int x = 0; x < 1 << n; x++)
            if (x >> i & 1) f[x] -= f[x ^ 1 << i];
}

/* ---- a bilinear layer holds the polynomials of degree two -----------------------
   y = P ((W x) * (V x)) on x = [a b 1] or [a b c 1]. Hidden unit m-1 is the monomial m: one bit from W, the other from
   V, or the one where there is no other. A row of P holds the coefficients, that of 1 last. f [outputs,2^n] are the
   polynomials; of three bits all but abc is taken. */
static tn_mlp layer_of(tn_params *params, const char *name, int n, int outputs, const double *f)
{
    double w[2][6][4] = {{{0}}}, packed[2 * 6 * 4], p[256 * 7];
    int    hidden = n == 2 ? 3 : 6, at = 0;
    tn_mlp layer;
    for (int m = 1; m <= hidden; m++) {
        int low = m & 1 ? 0 : m & 2 ? 1 : 2, high = m & 4 ? 2 : m & 2 ? 1 : 0;
        w[0][m - 1][low] = 1;
        w[1][m - 1][high > low ? high : n] = 1;
    }
    for (int k = 0; k < 2; k++) for (int m = 0; m < hidden; m++) for (int j = 0; j <= n; j++) packed[at++] = w[k][m][j];
    for (int o = 0; o < outputs; o++) for (int m = 1; m <= hidden + 1; m++)
        p[o * (hidden + 1) + m - 1] = f[(o << n) + (m > hidden ? 0 : m)];
    tn_mlp_init(params, name, &(tn_mlp_desc){ .in = n, .hidden = hidden, .out = outputs, .augmented = true }, &layer);
    tn_write(layer.w, TN_F64, packed, at);
    tn_write(layer.p, TN_F64, p, outputs * (hidden + 1));
    check(tn_params_ctx(params));
    return layer;
}

static tn_tensor *all_inputs(tn_ctx *ctx, int n)                     /* [2^n,n+1]: the bits, then the one */
{
    double     x[8 * 4];
    tn_tensor *t = tn_tensor_2d(ctx, TN_REAL, 1 << n, n + 1);
    for (int i = 0; i < 1 << n; i++)
        for (int j = 0; j <= n; j++) x[i * (n + 1) + j] = j == n ? 1 : i >> j & 1;
    tn_write(t, TN_F64, x, (1 << n) * (n + 1));
    return t;
}

/* [2^n,outputs]. An augmented layer ends with the one, which it carries on; that is left out. */
static tn_tensor *answers(tn_ctx *ctx, const tn_mlp *layer)
{
    return tn_slice(tn_mlp_forward(ctx, layer, all_inputs(ctx, (int)layer->desc.in)), 1, 0, layer->desc.out);
}

/* The interaction matrices of an operator: q [out,3,3] */
static void matrices(tn_ctx *ctx, tn_cp *cp, double *q)
{
    for (int64_t o = 0; cp && o < cp->out; o++) {
        tn_tensor *t = tn_cp_interaction_of(cp, o);
        tn_read(t, TN_F64, q + 9 * o, 9);
        tn_tensor_destroy(t);
    }
    tn_cp_destroy(cp);
    check(ctx);
}

static void print_matrix(tn_ctx *ctx, const char *what, const double *q)       /* to four places */
{
    char       text[512];
    double     rounded[9];
    tn_tensor *t = tn_tensor_2d(ctx, TN_REAL, 3, 3);
    for (int i = 0; i < 9; i++) rounded[i] = floor(q[i] * 1e4 + 0.5) / 1e4;
    tn_write(t, TN_F64, rounded, 9);
    tn_tensor_format(t, text, sizeof text);
    check(ctx);
    printf("%s\n%s\n", what, text);
}

/* ---- 1. sixteen gates by hand ------------------------------------------------------ */

static void gates_by_hand(tn_ctx *ctx, tn_params *params, double *q, claims *c)
{
    double f[16][4], y[4][16];
    for (int o = 0; o < 16; o++) {
        for (int x = 0; x < 4; x++) f[o][x] = value_of(o, x);
        to_polynomial(2, f[o]);
    }
    tn_mlp layer = layer_of(params, "two", 2, 16, f[0]);
    tn_read(answers(ctx, &layer), TN_F64, y, 4 * 16);
    check(ctx);
    printf("1. All sixteen gates of two bits, one layer, no training\n\n"
           "On bits a gate is a polynomial g + A a + B b + C ab. The hidden units of the\n"
           "layer are a*1, b*1 and a*b; a gate is a row A B C g of its projection.\n\n"
           "   a b  0 0  1 0  0 1  1 1       A    B    C    g   the layer says\n");
    for (int o = 0; o < 16; o++) {
        bool exact = true;
        for (int x = 0; x < 4; x++) exact = exact && y[x][o] == value_of(o, x);
        printf("  %-9s", gate_name[o]);
        for (int x = 0; x < 4; x++) printf("%2.0f   ", value_of(o, x));
        printf("  %4.0f %4.0f %4.0f %4.0f   %2.0f %2.0f %2.0f %2.0f  %s\n", f[o][1], f[o][2], f[o][3], f[o][0],
               y[0][o], y[1][o], y[2][o], y[3][o], exact ? "exact" : "WRONG");
        c->two_exact += exact;
    }
    matrices(ctx, tn_cp_from_mlp(ctx, &layer), q);
    print_matrix(ctx, "\na xor b = [a b 1] Q [a b 1]^T with Q =", q + 9 * XOR);
}

/* ---- 2. the same by training --------------------------------------------------------- */

static void train(tn_ctx *ctx, tn_params *params, const tn_mlp *layer)
{
    double    goal[4][16];
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){ .lr = 0.05, .schedule = { .kind = TN_SCHEDULE_COSINE, .total = STEPS } });
    for (int x = 0; x < 4; x++) for (int o = 0; o < 16; o++) goal[x][o] = value_of(o, x);
    for (int step = 0; step < STEPS; step++) {
        tn_ctx_reset(ctx);
        tn_tensor *wanted = tn_tensor_2d(ctx, TN_REAL, 4, 16);
        tn_write(wanted, TN_F64, goal, 4 * 16);
        tn_record(ctx);
        tn_backward(ctx, tn_mse(ctx, answers(ctx, layer), wanted));
        tn_optim_step(optim);
        check(ctx);
    }
    tn_optim_destroy(optim);
}

/* a a = a: the entries of the diagonal may as well be in the last row and column. */
static void without_squares(double *q)
{
    for (int i = 0; i < 2; i++) {
        q[3 * i + 2] += q[4 * i] / 2;
        q[6 + i] += q[4 * i] / 2;
        q[4 * i] = 0;
    }
}

static void gates_by_training(tn_ctx *ctx, const double *by_hand, double *trained, claims *c)
{
    double     y[4][16], q[16 * 9];
    tn_mlp     layer;
    tn_params *params = tn_params_create(ctx);
    tn_mlp_init(params, "trained", &(tn_mlp_desc){ .in = 2, .hidden = 3, .out = 16, .augmented = true }, &layer);
    check(ctx);
    train(ctx, params, &layer);
    tn_read(answers(ctx, &layer), TN_F64, y, 4 * 16);
    for (int o = 0; o < 16; o++) for (int x = 0; x < 4; x++) keep_largest(&c->trained_error, fabs(y[x][o] - value_of(o, x)));
    matrices(ctx, tn_cp_from_mlp(ctx, &layer), trained);
    printf("\n2. The same layer from random weights, %d steps of AdamW\n\n"
           "Its answers are off by %.0e at most, but its matrices look different:\n\n", STEPS, c->trained_error);
    print_matrix(ctx, "a xor b, as trained", trained + 9 * XOR);
    memcpy(q, trained, sizeof q);
    for (int o = 0; o < 16; o++) without_squares(q + 9 * o);
    for (int i = 0; i < 16 * 9; i++) keep_largest(&c->matrices_apart, fabs(q[i] - by_hand[i]));
    print_matrix(ctx, "\nOn bits a a = a. With its diagonal moved to the last row and column it is the\nmatrix made by hand:", q + 9 * XOR);
    tn_params_destroy(params);
}

/* ---- 3. three bits ----------------------------------------------------------------------
   A polynomial of three bits may have a term abc, which no layer holds. Its coefficient is -sum_x parity(x) f(x):
   a layer holds f exactly where that sum is zero.
   For the signs alone the values are ours to choose. At k of the eight inputs the gate has the sign of parity. Give
   these values the size 8-k and the others the size k, and the sum is zero: a layer holds the signs. Only for k = 0 and
   k = 8 that leaves nothing: the gate is parity, or its complement, and whatever the sizes, all terms of the sum have
   one sign. */
static void sizes_for_signs(int gate, double *f)
{
    int k = 0;
    for (int x = 0; x < 8; x++) f[x] = value_of(gate, x) > 0 ? 1 : -1;
    for (int x = 0; x < 8; x++) k += f[x] * parity(x) > 0;
    for (int x = 0; x < 8; x++) f[x] *= f[x] * parity(x) > 0 ? 8 - k : k;
}

static int print_row(const char *what, const int *count)             /* gives the sum of the row */
{
    int sum = 0;
    printf("  %-20s", what);
    for (int i = 0; i < 9; i++) printf("%4d", count[i]);
    for (int i = 0; i < 9; i++) sum += count[i];
    printf("   = %3d\n", sum);
    return sum;
}

static void three_bits(tn_ctx *ctx, tn_params *params, double *abc, claims *c)
{
    static double f[256][8], s[256][8], y[8][256], z[8][256];
    int           all[9] = {0}, exact[9] = {0}, by_sign[9] = {0};       /* gates by their coefficient of abc */
    for (int o = 0; o < 256; o++) {
        for (int x = 0; x < 8; x++) f[o][x] = value_of(o, x);
        sizes_for_signs(o, s[o]);
        to_polynomial(3, f[o]);
        to_polynomial(3, s[o]);
        abc[o] = f[o][7];
    }
    tn_mlp layer = layer_of(params, "three", 3, 256, f[0]);
    tn_mlp sign_layer = layer_of(params, "three_by_sign", 3, 256, s[0]);
    tn_read(answers(ctx, &layer), TN_F64, y, 8 * 256);
    tn_read(answers(ctx, &sign_layer), TN_F64, z, 8 * 256);
    check(ctx);
    for (int o = 0; o < 256; o++) {
        bool   same = true, right = true;
        double sum = 0;
        for (int x = 0; x < 8; x++) {
            same = same && y[x][o] == value_of(o, x);
            right = right && (value_of(o, x) > 0 ? z[x][o] > 0 : z[x][o] < 0);
            sum += parity(x) * y[x][o];                   /* 1, a, b, c, ab, ac and bc are among these y: zero for them, zero for all */
        }
        all[4 + (int)abc[o]]++;
        exact[4 + (int)abc[o]] += same;
        by_sign[4 + (int)abc[o]] += right;
        keep_largest(&c->parity_sum, fabs(sum));
    }
    printf("\n3. The 256 gates of three bits\n\n"
           "One layer holds a gate exactly where its polynomial has no term abc, and by\n"
           "sign where some polynomial without abc has the signs of the gate.\n\n"
           "  coefficient of abc    -4  -3  -2  -1   0   1   2   3   4\n");
    print_row("gates", all);
    c->three_exact = print_row("held exactly", exact);
    c->three_by_sign = print_row("held by sign", by_sign);
    c->three_without_abc = all[4];
    printf("\nThe two that are left are a xor b xor c and its complement. Over the eight\n"
           "inputs the sum of (-1)^(a+b+c) y is %g for every layer y. A layer with the\n"
           "signs of one of these gates would have eight terms of one sign in that sum.\n", c->parity_sum);
}

/* ---- 4. a full adder ----------------------------------------------------------------------
   The sum bit is a xor b xor c, the carry ab + bc + ca - 2abc. Two layers hold both: first h = a xor b = (a-b)(a-b) and
   k = ab, then sum = h xor c = (h-c)(h-c) and carry = k + hc. The one goes along, and multiplies what is only passed on. */
static void full_adder(tn_ctx *ctx, tn_params *params, claims *c)
{
    static const double w1[2][3][4] = {                       /* on [a b c 1] */
        {{1, -1, 0, 0}, {1, 0, 0, 0}, {0, 0, 1, 0}},          /* W: a-b  a  c */
        {{1, -1, 0, 0}, {0, 1, 0, 0}, {0, 0, 0, 1}}};         /* V: a-b  b  1 */
    static const double p1[3][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};         /* h  k  c */
    static const double w2[2][3][4] = {                       /* on [h k c 1] */
        {{1, 0, -1, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}},          /* W: h-c  h  k */
        {{1, 0, -1, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}}};         /* V: h-c  c  1 */
    static const double p2[2][4] = {{1, 0, 0, 0}, {0, 1, 1, 0}};                       /* sum  carry */
    double y[8][3];
    tn_mlp first, second;
    tn_mlp_init(params, "adder.0", &(tn_mlp_desc){ .in = 3, .hidden = 3, .out = 3, .augmented = true }, &first);
    tn_mlp_init(params, "adder.1", &(tn_mlp_desc){ .in = 3, .hidden = 3, .out = 2, .augmented = true }, &second);
    tn_write(first.w, TN_F64, w1, 24);
    tn_write(first.p, TN_F64, p1, 12);
    tn_write(second.w, TN_F64, w2, 24);
    tn_write(second.p, TN_F64, p2, 8);
    tn_read(tn_mlp_forward(ctx, &second, tn_mlp_forward(ctx, &first, all_inputs(ctx, 3))), TN_F64, y, 8 * 3);
    check(ctx);
    printf("\n4. A full adder in two layers\n\n"
           "Its sum bit is the gate that one layer cannot hold.\n\n"
           "  a + b + c     carry  sum\n");
    for (int x = 0; x < 8; x++) {
        int  ones = (x & 1) + (x >> 1 & 1) + (x >> 2);
        bool right = y[x][0] == ones % 2 && y[x][1] == ones / 2;
        printf("  %d + %d + %d  =   %2.0f   %3.0f%s\n", x & 1, x >> 1 & 1, x >> 2, y[x][1], y[x][0], right ? "" : "  WRONG");
        c->adder_errors += !right;
    }
}

/* ---- 5. pictures ---------------------------------------------------------------------------- */

static void draw(tn_ctx *ctx, const char *folder, const double *by_hand, const double *trained, const double *abc)
{
    static const char *const digits[16] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "A", "B", "C", "D", "E", "F"};
    static const char *const ways[3] = {"by hand", "as trained", "(a \xE2\x88\x92 b)(a \xE2\x88\x92 b)"};
    static const char *const inputs[3] = {"a", "b", "1"};
    static const double a_minus_b[3] = {1, -1, 0};
    double     three[3 * 9];
    tn_tensor *p = tn_tensor_2d(ctx, TN_REAL, 1, 1), *w = tn_tensor_2d(ctx, TN_REAL, 1, 3);
    tn_tensor               *both[2] = {w, w};
    tn_write(p, TN_F64, a_minus_b, 1);
    tn_write(w, TN_F64, a_minus_b, 3);
    memcpy(three, by_hand + 9 * XOR, 9 * sizeof *three);
    memcpy(three + 9, trained + 9 * XOR, 9 * sizeof *three);
    matrices(ctx, tn_cp_create(ctx, 2, p, both, TN_CP_INPUT_CONSTANT), three + 18);
    save_image(ctx, tn_image_tiles(ctx, by_hand, 16, 3, 3, &(tn_image_tiles_desc){ .rows = 4, .columns = 4,
        .captions = gate_name, .cell = 28, .x_names = inputs, .y_names = inputs, .numbers = true,
        .title = "The sixteen gates as interaction matrices on [a b 1]", .scale = 2 }), folder, "gates");
    save_image(ctx, tn_image_tiles(ctx, three, 3, 3, 3, &(tn_image_tiles_desc){ .rows = 1, .columns = 3, .captions = ways,
        .cell = 52, .x_names = inputs, .y_names = inputs, .numbers = true,
        .title = "a xor b: three matrices, one gate, because a\xC2\xB2 = a", .scale = 2 }), folder, "xor");
    save_image(ctx, tn_image_matrix(ctx, abc, 16, 16, &(tn_image_matrix_desc){
        .title = "The coefficient of abc in the 256 gates of three bits",
        .caption = "White fields: one layer represents the gate exactly. Of all others but 4 and \xE2\x88\x92" "4, which\n"
                   "are a xor b xor c and its complement, it gives the right sign.",
        .x_names = digits, .y_names = digits, .x_title = "low digit of the gate's number", .y_title = "high digit", .cell = 26,
        .numbers = true, .scale = 2 }), folder, "three");
}

int main(int argc, char **argv)
{
    double      by_hand[16 * 9], trained[16 * 9], abc[256];
    claims      c = {0};
    const char *folder = argc > 1 ? argv[1] : "out/gates";
    char        why[TN_WHY];
    tn_ctx     *ctx;
    if (tn_ctx_create(&(tn_desc){ .dtype = TN_F64, .threads = 1 }, &ctx, why) != TN_OK) stop(why);
    tn_params *params = tn_params_create(ctx);
    gates_by_hand(ctx, params, by_hand, &c);
    gates_by_training(ctx, by_hand, trained, &c);
    three_bits(ctx, params, abc, &c);
    full_adder(ctx, params, &c);

    printf("\n5. Pictures\n\n");
    make_folder(folder);
    draw(ctx, folder, by_hand, trained, abc);

    printf("\ntwo_input_gates_exact: %d\n", c.two_exact);
    printf("trained_worst_error: %.1e\n", c.trained_error);
    printf("trained_matrices_apart: %.1e\n", c.matrices_apart);
    printf("three_input_exact: %d\n", c.three_exact);
    printf("three_input_without_abc: %d\n", c.three_without_abc);
    printf("three_input_by_sign: %d\n", c.three_by_sign);
    printf("three_input_parity_sum: %g\n", c.parity_sum);
    printf("full_adder_errors: %d\n", c.adder_errors);
    tn_ctx_destroy(ctx);
    if (c.two_exact == 16 && c.trained_error < 1e-6 && c.matrices_apart < 1e-6 && c.three_exact == 70 && c.three_without_abc == 70
        && c.three_by_sign == 254 && c.parity_sum == 0 && c.adder_errors == 0) return 0;
    stop("not as claimed");
    return 1;
}
