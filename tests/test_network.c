/* test_network.c: tensor networks against the sum over all labels by plain loops, against the operator, the layers and
   chains that they are made from, and against finite differences. Errors are Frobenius-relative. */

#include "kit.h"

static void report(const char *what, tn_dtype dtype, double worst) { report_as(what, dtype, worst, 1e-12, 1e-5); }

/* ---- tensors --------------------------------------------------------------- */

static tn_tensor *any(world *w, int rank, const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= shape[i];
    return tn_tensor_from(w->ctx, rank, shape, TN_F64, noise(w, n));
}

static tn_tensor *as_3d(tn_tensor *t, int64_t a, int64_t b, int64_t c)
{
    int64_t shape[3] = {a, b, c};
    return tn_reshape(t, 3, shape);
}

/* Numbers by plain loops, and for each the sum of the magnitudes that it is the sum of. */
typedef struct plain { double *v, *size; int64_t n; } plain;

static plain plain_of(int64_t n)
{
    plain p;
    p.v = doubles(n);
    p.size = doubles(n);
    p.n = n;
    return p;
}

static double error_of(const tn_tensor *t, plain p)
{
    double difference = 0, size = 0;
    if (!CHECK(t != NULL) || !CHECK_INT(tn_tensor_count(t), p.n)) return 1;
    double *v = host(t);
    for (int64_t i = 0; i < p.n; i++) {
        difference += (v[i] - p.v[i]) * (v[i] - p.v[i]);
        size += p.size[i] * p.size[i];
    }
    return sqrt(size > 0 ? difference / size : difference);
}

/* |a - b|, relative to the size that both could have */
static double apart(double a, double b, double size) { return size > 0 ? fabs(a - b) / size : fabs(a - b); }

/* ---- plain loops ------------------------------------------------------------ */

enum { LABELS = 64, LEGS = 9 };

/* T [outputs..,inputs..]: the sum over all labels at once. */
static plain naive(const tn_net *net)
{
    int64_t extent[LABELS], at[LABELS] = {0}, all = 1, n = 1;
    double *node[LABELS];
    for (int l = 0; l < LABELS; l++) extent[l] = 1;
    for (int i = 0; i < net->nodes; i++) {
        const tn_net_node *x = &net->node[i];
        node[i] = host(x->tensor);
        for (int a = 0; a < x->tensor->rank; a++) extent[x->label[a]] = x->tensor->shape[a];
    }
    for (int l = 0; l < LABELS; l++) all *= extent[l];
    for (int k = 0; k < net->outs + net->legs; k++) n *= (k < net->outs ? net->out[k] : net->in[k - net->outs]).extent;
    plain t = plain_of(n);
    for (int64_t step = 0; step < all; step++) {
        double  product = 1;
        int64_t to = 0;
        for (int i = 0; i < net->nodes; i++) {
            const tn_net_node *x = &net->node[i];
            int64_t from = 0;
            for (int a = 0; a < x->tensor->rank; a++) from = from * x->tensor->shape[a] + at[x->label[a]];
            product *= node[i][from];
        }
        for (int k = 0; k < net->outs + net->legs; k++) {
            const tn_net_leg *leg = k < net->outs ? &net->out[k] : &net->in[k - net->outs];
            to = to * leg->extent + at[leg->label];
        }
        t.v[to] += product;
        t.size[to] += fabs(product);
        for (int l = 0; l < LABELS && ++at[l] == extent[l]; l++) at[l] = 0;
    }
    return t;
}

/* T [rows, in_0, in_1, ..] applied to x[k], one vector for each leg */
static plain times(const tn_net *net, plain t, int64_t rows, double *const *x)
{
    plain   y = plain_of(rows);
    int64_t all = 1, at = 0;
    for (int k = 0; k < net->legs; k++) all *= net->in[k].extent;
    for (int64_t o = 0; o < rows; o++)
        for (int64_t i = 0; i < all; i++, at++) {
            int64_t rest = i;
            double  product = 1;
            for (int k = net->legs - 1; k >= 0; rest /= net->in[k--].extent) product *= x[k][rest % net->in[k].extent];
            y.v[o] += t.v[at] * product;
            y.size[o] += t.size[at] * fabs(product);
        }
    return y;
}

/* The mean of T [rows, in_0, ..] over all orders of legs that keep the input of each. */
static void add_orders(const tn_net *net, int64_t rows, const double *t, double *to, int *order, int k, int64_t *orders)
{
    int64_t all = 1;
    if (k < net->legs) {
        for (int leg = 0; leg < net->legs; leg++) {
            bool used = net->in[leg].input != net->in[k].input;
            for (int j = 0; j < k; j++) used = used || order[j] == leg;
            order[k] = leg;
            if (!used) add_orders(net, rows, t, to, order, k + 1, orders);
        }
        return;
    }
    (*orders)++;
    for (int j = 0; j < net->legs; j++) all *= net->in[j].extent;
    for (int64_t at = 0; at < rows * all; at++) {
        int64_t index[LEGS], rest = at, from = 0;
        for (int j = net->legs - 1; j >= 0; rest /= net->in[j--].extent) index[j] = rest % net->in[j].extent;
        for (int j = 0; j < net->legs; j++) from = from * net->in[j].extent + index[order[j]];
        to[at] += t[rest * all + from];
    }
}

static plain symmetric(const tn_net *net, plain t)
{
    int     order[LEGS];
    int64_t all = 1, orders = 0;
    plain   to = plain_of(t.n);
    for (int k = 0; k < net->legs; k++) all *= net->in[k].extent;
    if (all > 0) add_orders(net, t.n / all, t.v, to.v, order, 0, &orders);
    for (int64_t i = 0; i < t.n; i++) to.v[i] /= (double)orders;
    to.size = t.size;
    return to;
}

/* ---- made from arrays: everything against loops ------------------------------- */

static const char *const expressions[] = {
    "oh,hi,hj->o|ij", "oi->o|i", "ij,jk->k|i", "a,a,a->", "oi,z->o|i", "aib,bjc,cka->|i|j|k", "oo,oi->o|i",
    "ha,hia,hjb,hb->|ij",
    "o,i,j,k->o|ijk", "pq,qi->pq|i", "hai,hak,hbj,hbl,hcm,ohc->o|ij|klm", "i->|i", "aa,ij->|ij",
};

/* A net of an expression: labels i to m have the extent n, others random ones. n of 0 or 1 now and then. */
static tn_net *net_of(world *w, const char *expression, int64_t n, tn_net_nodes nodes)
{
    int64_t    extent[128], shape[TN_MAX_RANK];
    tn_tensor *t[16];
    int        count = 0, rank = 0;
    for (int c = 0; c < 128; c++) extent[c] = c >= 'i' && c <= 'm' ? n : 1 + (int64_t)(test_random(&w->seed) % 3);
    for (const char *p = expression;; p++) {
        if (*p == ',' || *p == '-') {
            t[count++] = any(w, rank, shape);
            rank = 0;
        } else shape[rank++] = extent[(int)*p];
        if (*p == '-') break;
    }
    return tn_net_create(w->ctx, expression, count, t, nodes);
}

/* The errors of one round, by what was computed. */
typedef struct errors { double dense, applied, frozen, folded, inner; } errors;

static void fold_against_loops(world *w, const tn_net *net, plain t, int64_t rows, errors *worst)
{
    tn_tensor *e = any_matrix(w, net->in[0].extent, 2), *z = any_vector(w, 2), *ez = tn_affine(w->ctx, z, e, NULL);
    tn_tensor *xs[LEGS];
    double    *x[LEGS];
    tn_net    *to = tn_net_fold_in(net, 0, e, NULL);
    for (int k = 0; k < net->legs; k++) x[k] = host(xs[k] = k ? any_vector(w, net->in[k].extent) : z);
    x[0] = host(ez);
    if (!CHECK(to != NULL)) return;
    test_raise(&worst->folded, error_of(tn_net_apply_each(w->ctx, to, xs), times(net, t, rows, x)));
    if (net->legs > 1) CHECK(to->in[0].input == 0 && to->in[1].input == 1);
    tn_net_destroy(to);
    to = tn_net_fold_in(net, TN_NET_ALL, e, NULL);
    for (int k = 0; k < net->legs; k++) x[k] = x[0];
    test_raise(&worst->folded, error_of(tn_net_apply(w->ctx, to, z), times(net, t, rows, x)));
    tn_net_destroy(to);
    if (net->outs != 1) return;
    tn_tensor *u = any_matrix(w, 2, net->out[0].extent);
    to = tn_net_fold_out(net, u);
    if (CHECK(to != NULL)) {
        plain y = times(net, t, rows, x), uy = plain_of(2);
        double *m = host(u);
        for (int i = 0; i < 2; i++)
            for (int64_t o = 0; o < rows; o++) {
                uy.v[i] += m[i * rows + o] * y.v[o];
                uy.size[i] += fabs(m[i * rows + o]) * y.size[o];
            }
        test_raise(&worst->folded, error_of(tn_net_apply(w->ctx, to, ez), uy));
    }
    tn_net_destroy(to);
}

static void net_against_loops(world *w, const tn_net *net, int64_t n, errors *worst)
{
    const plain t = naive(net), s = symmetric(net, t);
    const double size = dot(t.size, t.size, t.n);
    tn_tensor *xs[LEGS], *full = tn_net_contract(net);
    double    *x[LEGS], value = 0;
    int64_t    rows = 1;
    test_raise(&worst->dense, error_of(full, t));
    tn_tensor_destroy(full);
    for (int k = 0; k < net->outs; k++) rows *= net->out[k].extent;
    for (int k = 0; k < net->legs; k++) x[k] = host(xs[k] = any_vector(w, n));
    test_raise(&worst->applied, error_of(tn_net_apply_each(w->ctx, net, xs), times(net, t, rows, x)));
    if (net->legs > 0) {
        const int last = net->legs - 1;
        tn_net   *to = tn_net_fix(net, last, xs[last]);
        test_raise(&worst->frozen, error_of(to ? tn_net_apply_each(w->ctx, to, xs) : NULL, times(net, t, rows, x)));
        tn_net_destroy(to);
        for (int k = 0; k < net->legs; k++) x[k] = x[0];
        test_raise(&worst->applied, error_of(tn_net_apply(w->ctx, net, xs[0]), times(net, t, rows, x)));
        fold_against_loops(w, net, t, rows, worst);
    }
    CHECK_STATUS(tn_net_inner(net, net, TN_NET_AS_GIVEN, &value), TN_OK);
    test_raise(&worst->inner, apart(value, dot(t.v, t.v, t.n), size));
    CHECK_STATUS(tn_net_inner(net, net, TN_NET_SYMMETRIC, &value), TN_OK);
    test_raise(&worst->inner, apart(value, dot(s.v, s.v, t.n), size));
    CHECK_STATUS(tn_net_norm(net, TN_NET_AS_GIVEN, &value), TN_OK);
    test_raise(&worst->inner, apart(value * value, dot(t.v, t.v, t.n), size));
}

TEST(expressions_equal_loops)
{
    static const int64_t extents[] = {3, 1, 0, 2};
    for (int p = 0; p < 2; p++) {
        world  w;
        errors worst = {0, 0, 0, 0, 0};
        if (!open_world(&w, f64_f32[p], 11)) return;
        for (size_t e = 0; e < sizeof expressions / sizeof *expressions; e++)
            for (int i = 0; i < 4; i++) {
                tn_net *net = net_of(&w, expressions[e], extents[i], i % 2 ? TN_NET_REFER : TN_NET_COPY);
                if (CHECK(net != NULL)) net_against_loops(&w, net, extents[i], &worst);
                tn_net_destroy(net);
                fresh(&w);
            }
        report("contract against loops", f64_f32[p], worst.dense);
        report("apply against loops", f64_f32[p], worst.applied);
        report("freeze against loops", f64_f32[p], worst.frozen);
        report("fold against loops", f64_f32[p], worst.folded);
        report("inner, norm against loops", f64_f32[p], worst.inner);
        close_world(&w);
    }
}

/* ---- the operator's words ------------------------------------------------------ */

static double between(const tn_tensor *a, const tn_tensor *b)
{
    return CHECK(b != NULL) ? error_from(a, host(b), tn_tensor_count(b)) : 1;
}

/* A result of both kinds, compared and freed. */
static double between_owned(tn_tensor *a, tn_tensor *b)
{
    const double e = between(a, b);
    tn_tensor_destroy(a);
    tn_tensor_destroy(b);
    return e;
}

static double between_functions(world *w, tn_net *net, tn_cp *cp)
{
    double e = 1;
    if (CHECK(net && cp)) {
        tn_tensor *x = any_matrix(w, 4, cp->in[0] - cp->constant);
        CHECK(net->constant == cp->constant);
        tn_tensor *y = tn_cp_apply(w->ctx, cp, x);
        const int64_t shape[3] = {2, 2, x->shape[1]};
        tn_tensor *square = tn_net_apply(w->ctx, net, tn_reshape(x, 3, shape));
        e = between(tn_net_apply(w->ctx, net, x), y);
        if (CHECK(square && square->rank == 3 && square->shape[1] == 2 && square->shape[2] == y->shape[1]))
            test_raise(&e, between(tn_reshape_2d(square, 4, -1), y));
    }
    tn_net_destroy(net);
    tn_cp_destroy(cp);
    return e;
}

static void cp_of_order(world *w, int order, bool constant, double *worst)
{
    const int64_t n = 4 + constant;
    tn_cp     *a = any_cp(w, order, 3, 5, n, constant), *b = any_cp(w, order, 3, 2, n, constant);
    tn_net    *A = tn_net_from_cp(w->ctx, a), *B = tn_net_from_cp(w->ctx, b);
    tn_tensor *e = any_matrix(w, 4, 6), *shift = any_vector(w, 4), *u = any_vector(w, 3), *one = any_vector(w, n), *x[3];
    tn_tensor *e2 = any_matrix(w, 2, 3);
    double     v = 0, v2 = 0;
    tn_eigenpairs   pairs, pairs2;
    if (!CHECK(A && B)) return;
    for (int k = 0; k < order; k++) x[k] = any_matrix(w, 3, n);
    test_raise(worst, between_owned(tn_net_contract(A), tn_cp_dense(a)));
    test_raise(worst, between(tn_net_apply_each(w->ctx, A, x), tn_cp_apply_each(w->ctx, a, x)));
    test_raise(worst, between_functions(w, tn_net_fold_out(A, e2), tn_cp_fold_out(a, e2, NULL)));
    test_raise(worst, between_functions(w, tn_net_fold_in(A, TN_NET_ALL, e, NULL), tn_cp_fold_in(a, e, NULL)));
    test_raise(worst, between_functions(w, tn_net_fold_in(A, TN_NET_ALL, e, shift), tn_cp_fold_in(a, e, shift)));
    if (order > 1)
        test_raise(worst, between_functions(w, tn_net_fix(A, 1, one), tn_cp_fix(a, 1, one)));
    if (order <= 2) {
        CHECK_STATUS(tn_net_inner(A, B, TN_NET_SYMMETRIC, &v), TN_OK);
        CHECK_STATUS(tn_cp_inner(a, b, &v2), TN_OK);
        test_raise(worst, apart(v, v2, fabs(v2)));
        CHECK_STATUS(tn_net_norm(A, TN_NET_SYMMETRIC, &v), TN_OK);
        CHECK_STATUS(tn_cp_norm(a, &v2), TN_OK);
        test_raise(worst, apart(v, v2, v2));
        CHECK_STATUS(tn_net_cosine(A, B, TN_NET_SYMMETRIC, &v), TN_OK);
        CHECK_STATUS(tn_cp_cosine(a, b, &v2), TN_OK);
        test_raise(worst, apart(v, v2, 1));
    }
    if (order == 2) {
        test_raise(worst, between_owned(tn_net_interaction(A, u), tn_cp_interaction(a, u)));
        CHECK_STATUS(tn_net_eigen(A, u, 2, &pairs), TN_OK);
        CHECK_STATUS(tn_cp_eigen(a, u, 2, &pairs2), TN_OK);
        CHECK(pairs.outputs == 1 && pairs.count == 2 && pairs.n == n && pairs.constant == constant);
        test_raise(worst, between(pairs.values, pairs2.values));
        test_raise(worst, between(pairs.vectors, pairs2.vectors));
        tn_eigenpairs_destroy(&pairs);
        tn_eigenpairs_destroy(&pairs2);
    }
    tn_net_destroy(A);
    tn_net_destroy(B);
    tn_cp_destroy(a);
    tn_cp_destroy(b);
}

TEST(the_net_of_an_operator_is_the_operator)
{
    for (int p = 0; p < 2; p++) {
        world  w;
        double worst = 0;
        if (!open_world(&w, f64_f32[p], 5)) return;
        for (int order = 1; order <= 3; order++)
            for (int constant = 0; constant < 2; constant++) {
                cp_of_order(&w, order, constant != 0, &worst);
                fresh(&w);
            }
        report("net of an operator", f64_f32[p], worst);
        close_world(&w);
    }
}

/* ---- attention ------------------------------------------------------------------- */

/* y_t = c_t sum_s f(x_t, x_t, x_s, x_s, x_s) + o_b over the keys that t sees, by the nets of all distances */
static double attention_off(world *w, tn_attention_desc d, int64_t T)
{
    const int64_t dim = d.dim, length = d.row_length > 0 ? d.row_length : 512, rows = T;
    tn_attention  layer;
    tn_tensor    *sum = NULL;
    CHECK_STATUS(tn_attention_init(w->params, "attention", &d, &layer), TN_OK);
    tn_tensor *x = any_matrix(w, T, dim);
    for (int64_t distance = d.bidirectional ? 1 - T : 0; distance < T; distance++) {
        tn_net *net = tn_net_from_attention(w->ctx, &layer, distance);
        const int64_t first = distance > 0 ? distance : 0, last = distance < 0 ? T + distance : T;     /* the queries */
        tn_tensor *q = tn_slice(x, 0, first, last), *k = tn_slice(x, 0, first - distance, last - distance), *each[5];
        double       *all = doubles(T * layer.desc.out);
        if (!CHECK(net != NULL)) return 1;
        CHECK(net->outs == 1 && net->legs == 5 && net->constant == d.bias);
        for (int i = 0; i < 5; i++) each[i] = i < 2 ? q : k;
        tn_tensor *f = tn_net_apply_each(w->ctx, net, each);
        double    *part = host(f);
        for (int64_t t = first; t < last; t++) {
            const double seen = (double)(d.bidirectional ? T : t + 1);
            const double c = d.row_scale == TN_ROW_SCALE_MEAN ? 1 / seen : d.row_scale == TN_ROW_SCALE_NONE || seen <= (double)length ? 1
                             : sqrt((double)length / seen);
            for (int64_t o = 0; o < layer.desc.out; o++)
                all[t * layer.desc.out + o] = c * part[(t - first) * layer.desc.out + o];
        }
        f = tn_tensor_2d(w->ctx, TN_REAL, rows, layer.desc.out);
        tn_write(f, TN_F64, all, rows * layer.desc.out);
        sum = sum ? tn_add(w->ctx, sum, f) : f;
        tn_net_destroy(net);
    }
    if (layer.ob) sum = tn_add(w->ctx, sum, layer.ob);
    tn_tensor *y = tn_attention_forward(w->ctx, &layer, as_3d(x, 1, T, dim), NULL);
    return between(sum, y);
}

TEST(the_net_of_attention_is_attention)
{
    for (int p = 0; p < 2; p++) {
        world  w;
        double worst = 0;
        if (!open_world(&w, f64_f32[p], 3)) return;
        for (int i = 0; i < 8; i++) {
            tn_attention_desc d = ZERO;
            d.dim = 3;
            d.heads = i == 2 ? 1 : 2;
            d.d_qk = i == 3 ? 1 : 2;
            d.d_v = 3;
            d.out = i == 4 ? 1 : 4;
            d.kind = i % 2 ? TN_ATTENTION_SQUARED : TN_ATTENTION_BILINEAR;
            d.bidirectional = i == 5 || i == 6;
            d.no_rope = i < 2;
            d.bias = i > 2 && i != 5;
            d.out_bias = i == 4;
            d.row_scale = i == 6 ? TN_ROW_SCALE_MEAN : i == 7 ? TN_ROW_SCALE_NONE : TN_ROW_SCALE_DEFAULT;
            d.row_length = 2;
            d.scale = i == 1 ? 0.7 : 0;
            d.init.rule = TN_INIT_NORMAL;
            d.init.std = 1;
            test_raise(&worst, attention_off(&w, d, i == 0 ? 1 : 4));
            fresh(&w);
        }
        report("net of attention", f64_f32[p], worst);
        close_world(&w);
    }
}

/* ---- stacks ------------------------------------------------------------------------ */

/* Bilinear layers with and without biases and residuals, alone or in front of attention. */
TEST(a_stack_is_its_layers_run_one_after_the_other)
{
    for (int p = 0; p < 2; p++) {
        world  w;
        double worst = 0;
        if (!open_world(&w, f64_f32[p], 8)) return;
        for (int i = 0; i < 12; i++) {
            const int   layers = 1 + i % 3;
            tn_mlp      mlp[3];
            tn_cp      *cp[3];
            const tn_cp *list[3];
            tn_tensor  *x = any_matrix(&w, 5, 3), *y = x;
            for (int l = 0; l < layers; l++) {
                char        name[16];
                tn_mlp_desc d = ZERO;
                d.in = 3;
                d.hidden = 2 + l;
                d.bias = i / 3 == 1 || (i / 3 == 2 && l == 1);
                d.out_bias = i / 3 == 1;
                d.residual = i / 3 == 3;
                snprintf(name, sizeof name, "l%d", l);
                CHECK_STATUS(tn_mlp_init(w.params, name, &d, &mlp[l]), TN_OK);
                list[l] = cp[l] = tn_cp_from_mlp(w.ctx, &mlp[l]);
                y = tn_mlp_forward(w.ctx, &mlp[l], y);
            }
            tn_net *net = tn_net_from_stack(w.ctx, layers, list, false);
            if (CHECK(net != NULL)) {
                CHECK_INT(net->legs, 1 << layers);
                for (int k = 0; k < net->legs; k++) CHECK_INT(net->in[k].input, 0);
                test_raise(&worst, between(tn_net_apply(w.ctx, net, x), y));
                tn_net_destroy(net);
            }
            net = tn_net_from_stack(w.ctx, layers, list, true);
            if (CHECK(net != NULL)) test_raise(&worst, between(tn_net_apply(w.ctx, net, x), tn_append_one(w.ctx, y)));
            tn_net_destroy(net);
            for (int l = 0; l < layers; l++) tn_cp_destroy(cp[l]);
            fresh(&w);
        }
        report("stack of layers", f64_f32[p], worst);
        close_world(&w);
    }
}

TEST(a_composition_is_one_function_of_the_other)
{
    world        w;
    tn_attention_desc d = ZERO;
    tn_attention layer;
    tn_cp       *cp;
    const tn_cp *list[1];
    tn_tensor   *x[10], *y[5];
    if (!open_world(&w, TN_F64, 4)) return;
    d.dim = 3;
    d.heads = 1;
    d.kind = TN_ATTENTION_BILINEAR;
    d.bias = true;
    CHECK_STATUS(tn_attention_init(w.params, "attention", &d, &layer), TN_OK);
    list[0] = cp = any_cp(&w, 2, 3, 4, 4, true);
    tn_net *inner = tn_net_from_stack(w.ctx, 1, list, true);
    tn_net *outer = tn_net_from_attention(w.ctx, &layer, 2);
    tn_net *both_nets = tn_net_compose(outer, inner);
    REQUIRE(both_nets != NULL && both_nets->legs == 10);
    for (int k = 0; k < 10; k++) {
        CHECK_INT(both_nets->in[k].input, k >= 4);               /* 2 legs of x_t and 3 of x_s, each with 2 of its own */
        x[k] = k == 0 || k == 4 ? any_matrix(&w, 6, 3) : x[k - 1];
    }
    for (int k = 0; k < 5; k++) y[k] = tn_net_apply(w.ctx, inner, x[k < 2 ? 0 : 9]);
    WORST("attention of a bilinear layer",
          between(tn_net_apply_each(w.ctx, both_nets, x), tn_net_apply_each(w.ctx, outer, y)), 1e-12);
    tn_net_destroy(inner);                                       /* what is made from nets outlives them */
    tn_net_destroy(outer);
    tn_cp_destroy(cp);
    CHECK(tn_net_apply_each(w.ctx, both_nets, x) != NULL);
    tn_net_destroy(both_nets);
    close_world(&w);
}

/* The exact inner product of two stacks of two layers, C_kl = I0/3 + 2/3 tr(M_k N'_l N_k M'_l) for hidden units k, l of the
   second layers (docs/math.md 18). n inputs, m between the layers. */
enum { N = 3, M = 2, H = 3 };
typedef struct stack { tn_cp *cp[2]; double *p[2], *w[2], *v[2]; } stack;

static void matrices_of(const stack *s, const double *weights, int k, double to[N][N])   /* sum_p weights[k,p] S_p */
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            to[i][j] = 0;
            for (int p = 0; p < M; p++)
                for (int h = 0; h < H; h++)
                    to[i][j] += weights[k * M + p] * s->p[0][p * H + h]
                                * (s->w[0][h * N + i] * s->v[0][h * N + j] + s->w[0][h * N + j] * s->v[0][h * N + i]) / 2;
        }
}

static double product_of(double a[N][N], double b[N][N]) { return dot(a[0], b[0], N * N); }

static double exact_inner(const stack *a, const stack *b)
{
    double sum = 0;
    for (int k = 0; k < H; k++)
        for (int l = 0; l < H; l++) {
            double m[N][N], n[N][N], m2[N][N], n2[N][N], trace = 0, pp = 0;
            matrices_of(a, a->w[1], k, m);
            matrices_of(a, a->v[1], k, n);
            matrices_of(b, b->w[1], l, m2);
            matrices_of(b, b->v[1], l, n2);
            double i0 = (product_of(m, m2) * product_of(n, n2) + product_of(m, n2) * product_of(n, m2)) / 2;
            for (int i = 0; i < N; i++)
                for (int j = 0; j < N; j++)
                    for (int q = 0; q < N; q++)
                        for (int r = 0; r < N; r++) trace += m[i][j] * n2[j][q] * n[q][r] * m2[r][i];
            for (int o = 0; o < 2; o++) pp += a->p[1][o * H + k] * b->p[1][o * H + l];
            sum += pp * (i0 / 3 + 2 * trace / 3);
        }
    return sum;
}

static stack any_stack(world *w)
{
    stack s;
    s.cp[0] = any_cp(w, 2, M, H, N, false);
    s.cp[1] = any_cp(w, 2, 2, H, M, false);
    for (int l = 0; l < 2; l++) {
        s.p[l] = host(s.cp[l]->p);
        s.w[l] = host(s.cp[l]->f[0]);
        s.v[l] = host(s.cp[l]->f[1]);
    }
    return s;
}

static tn_net *net_of_stack(world *w, const stack *s)
{
    return tn_net_from_stack(w->ctx, 2, (const tn_cp *const *)s->cp, false);
}

static tn_cp *product_pair(world *w, int i, int j, int k, int l)                  /* x -> (x_i x_j, x_k x_l) */
{
    const double p[4] = {1, 0, 0, 1};
    double       f[2][8] = {{0}};
    tn_tensor   *t[2], *identity = tn_tensor_2d(w->ctx, TN_REAL, 2, 2);
    f[0][i] = f[1][j] = f[0][4 + k] = f[1][4 + l] = 1;
    for (int e = 0; e < 2; e++) {
        t[e] = tn_tensor_2d(w->ctx, TN_REAL, 2, 4);
        tn_write(t[e], TN_F64, f[e], 8);
    }
    tn_write(identity, TN_F64, p, 4);
    return tn_cp_create(w->ctx, 2, identity, t, TN_CP_INPUT_PLAIN);
}

TEST(inner_products_of_two_layers_are_exact)
{
    double worst = 0;
    for (int p = 0; p < 2; p++) {
        world w;
        worst = 0;
        if (!open_world(&w, f64_f32[p], 21)) return;
        for (int i = 0; i < 3; i++) {
            stack   a = any_stack(&w), b = any_stack(&w);
            tn_net *A = net_of_stack(&w, &a), *B = net_of_stack(&w, &b);
            double  ab = 0, aa = exact_inner(&a, &a), bb = exact_inner(&b, &b), cosine = 0;
            CHECK_STATUS(tn_net_inner(A, B, TN_NET_SYMMETRIC, &ab), TN_OK);
            test_raise(&worst, apart(ab, exact_inner(&a, &b), sqrt(aa * bb)));
            CHECK_STATUS(tn_net_cosine(A, B, TN_NET_SYMMETRIC, &cosine), TN_OK);
            test_raise(&worst, apart(cosine, exact_inner(&a, &b) / sqrt(aa * bb), 1));
            tn_net_destroy(A);
            tn_net_destroy(B);
            for (int l = 0; l < 2; l++) { tn_cp_destroy(a.cp[l]); tn_cp_destroy(b.cp[l]); }
            fresh(&w);
        }
        report("inner product of stacks of two", f64_f32[p], worst);
        close_world(&w);
    }
}

/* (x_0 x_1)(x_2 x_3) and (x_0 x_2)(x_1 x_3): one function, two tensors. */
TEST(equal_functions_have_the_cosine_one)
{
    world        w;
    tn_cp       *first[2];
    tn_tensor   *f[2];
    tn_net      *net[2];
    double       cosine = 0;
    const double one = 1, left[2] = {1, 0}, right[2] = {0, 1};
    if (!open_world(&w, TN_F64, 2)) return;
    tn_tensor *p = tn_tensor_2d(w.ctx, TN_REAL, 1, 1);
    tn_write(p, TN_F64, &one, 1);
    for (int e = 0; e < 2; e++) {
        f[e] = tn_tensor_2d(w.ctx, TN_REAL, 1, 2);
        tn_write(f[e], TN_F64, e ? right : left, 2);
    }
    tn_cp *top = tn_cp_create(w.ctx, 2, p, f, TN_CP_INPUT_PLAIN);
    first[0] = product_pair(&w, 0, 1, 2, 3);
    first[1] = product_pair(&w, 0, 2, 1, 3);
    for (int i = 0; i < 2; i++) {
        const tn_cp *list[2] = {first[i], top};
        net[i] = tn_net_from_stack(w.ctx, 2, list, false);
    }
    CHECK_STATUS(tn_net_cosine(net[0], net[1], TN_NET_SYMMETRIC, &cosine), TN_OK);
    CHECK_NEAR(cosine, 1, 1e-12);
    CHECK_STATUS(tn_net_cosine(net[0], net[1], TN_NET_AS_GIVEN, &cosine), TN_OK);
    CHECK_NEAR(cosine, 0, 1e-12);
    for (int i = 0; i < 2; i++) {
        tn_net_destroy(net[i]);
        tn_cp_destroy(first[i]);
    }
    tn_cp_destroy(top);
    close_world(&w);
}

/* The 120 permutations of five legs of a CP form are one plan with its operands in other places, so that each takes fewer
   allocations than planning does. */
TEST(equal_networks_share_a_plan)
{
    world      w;
    tn_tensor *t[6];
    double     given = 0, symmetric = 0;
    if (!open_world(&w, TN_F64, 12)) return;
    t[0] = any_matrix(&w, 2, 3);
    for (int i = 1; i < 6; i++) t[i] = i == 1 ? any_matrix(&w, 3, 2) : t[1];
    tn_net *net = tn_net_create(w.ctx, "oh,hi,hj,hk,hl,hm->o|ijklm", 6, t, TN_NET_COPY);
    REQUIRE(net != NULL);
    CHECK_STATUS(tn_net_norm(net, TN_NET_AS_GIVEN, &given), TN_OK);
    uint64_t before = tn_ctx_memory(w.ctx).allocations;
    CHECK_STATUS(tn_net_norm(net, TN_NET_SYMMETRIC, &symmetric), TN_OK);
    CHECK(tn_ctx_memory(w.ctx).allocations - before < 4 * 120);
    CHECK_NEAR(symmetric / given, 1, 1e-13);                          /* of equal factors, which are symmetric as given */
    tn_net_destroy(net);
    close_world(&w);
}

/* The sum of <a,b> as given over all orders of b's legs from leg k on, and how many these are. */
static void sum_of_orders(const tn_net *a, tn_net *b, int k, double *sum, int *count)
{
    double v = 0;
    if (k == b->legs) {
        CHECK_STATUS(tn_net_inner(a, b, TN_NET_AS_GIVEN, &v), TN_OK);
        *sum += v;
        ++*count;
    }
    for (int j = k; j < b->legs; j++) {
        const tn_net_leg x = b->in[k], y = b->in[j];
        if (x.input != y.input) continue;
        b->in[k] = y;
        b->in[j] = x;
        sum_of_orders(a, b, k + 1, sum, count);
        b->in[k] = x;
        b->in[j] = y;
    }
}

/* Nets whose nodes are equal in many ways, so that orders fall into few classes or into as many as there are, with legs that
   are short enough for groups of nodes to be merged and with legs that are not. */
TEST(classes_of_orders_give_their_mean)
{
    static const char *const form[] = {
        "aib,bjc,ckd,dle,ema->|ijklm", "ohi,hj,hk,hl,hm->o|ijklm", "aib,bjc,ckd,dle,ema->|ijk|lm", "iab,jab,kcd,lcd,mac->|ijklm",
        "aij,bkl,abm->|ijklm", "aij,akl,obm,oab->o|ijklm"
    };
    static const int equal[][5] = { {0, 0, 0, 0, 0}, {0, 1, 2, 3, 4}, {0, 1, 0, 1, 0}, {0, 0, 1, 1, 1}, {2, 1, 1, 2, 3} };
    for (int n = 3; n <= 83; n += 80)
        for (int e = 0; e < 6; e++) {
            world  w;
            double worst = 0;
            if (!open_world(&w, TN_F64, 77)) return;
            for (int q = n > 3 ? 3 : 0; q < 5; q++) {
                tn_net *net[2], *again = NULL;
                double  aa = 0, bb = 0;
                for (int side = 1; side >= 0; side--) {
                    tn_tensor *t[8];
                    int        nodes = 0, at = 0;
                    for (const char *c = form[e]; at == 0; nodes++) {     /* the shapes by the letters of each node */
                        int64_t shape[4];
                        int     rank = 0, same = -1;
                        for (; *c >= 'a' && *c <= 'z'; c++) shape[rank++] = *c < 'i' ? 2 + 6 * (n > 3) : *c == 'o' ? 2 : n;
                        for (int i = 0; i < nodes && same < 0; i++)
                            if (equal[q][i] == equal[q][nodes] && t[i]->rank == rank
                                && memcmp(t[i]->shape, shape, (size_t)rank * sizeof *shape) == 0) same = i;
                        t[nodes] = same >= 0 ? (nodes % 2 ? tn_copy(w.ctx, t[same]) : t[same]) : any(&w, rank, shape);
                        at = *c++ != ',';
                    }
                    net[side] = tn_net_create(w.ctx, form[e], nodes, t, TN_NET_COPY);
                    if (side == 0) again = tn_net_create(w.ctx, form[e], nodes, t, TN_NET_COPY);
                    REQUIRE(net[side] != NULL);
                }
                REQUIRE(again != NULL);
                CHECK_STATUS(tn_net_norm(net[0], TN_NET_SYMMETRIC, &aa), TN_OK);
                CHECK_STATUS(tn_net_norm(net[1], TN_NET_SYMMETRIC, &bb), TN_OK);
                for (int k = 0; k < 2; k++) {
                    double sum = 0, v = 0;
                    int    count = 0;
                    sum_of_orders(net[0], k ? net[1] : again, 0, &sum, &count);
                    CHECK_STATUS(tn_net_inner(net[0], k ? net[1] : again, TN_NET_SYMMETRIC, &v), TN_OK);
                    test_raise(&worst, apart(v, sum / count, k ? aa * bb : aa * aa));
                }
                tn_net_destroy(net[0]);
                tn_net_destroy(net[1]);
                tn_net_destroy(again);
                fresh(&w);
            }
            report(form[e], TN_F64, worst);
            close_world(&w);
        }
}

/* f(x,y) for x = (1,s), y = (1,r) is sum_ij c[i][j] s^i r^j; c from its values at the points of a grid. */
static void polynomial_of(world *w, const tn_net *net, int o, double c[5][7])
{
    double s[7], value[5][7];
    for (int i = 0; i < 7; i++) s[i] = cos(acos(-1.0) * (2 * i + 1) / 14);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 7; j++) {
            const double x[2] = {1, s[i + 1]}, y[2] = {1, s[j]};
            tn_tensor   *input[2], *leg[10];
            input[0] = vector(w, 2, x);
            input[1] = vector(w, 2, y);
            for (int k = 0; k < 10; k++) leg[k] = input[net->in[k].input];
            tn_tensor *at = tn_net_apply_each(w->ctx, net, leg);
            double    *v = at ? host(at) : NULL;
            value[i][j] = v ? v[o] : (double)NAN;
        }
    for (int side = 0; side < 2; side++)                 /* Newton's differences, then powers, in j and in i */
        for (int line = 0; line < (side ? 7 : 5); line++) {
            const int     n = side ? 5 : 7;
            const double *t = side ? s + 1 : s;
            double        d[7], p[7] = {0};
            for (int i = 0; i < n; i++) d[i] = side ? c[i][line] : value[line][i];
            for (int k = 1; k < n; k++) for (int i = n - 1; i >= k; i--) d[i] = (d[i] - d[i - 1]) / (t[i] - t[i - k]);
            for (int k = n - 1; k >= 0; k--) {
                for (int i = n - 1; i > 0; i--) p[i] = p[i - 1] - t[k] * p[i];
                p[0] = d[k] - t[k] * p[0];
            }
            for (int i = 0; i < n; i++) *(side ? &c[i][line] : &c[line][i]) = p[i];
        }
}

/* An MLP after attention and attention after an MLP, of 4 and 6 legs: 17,280 orders, against the coefficients of the
   polynomials in two and two variables, <f,g> = sum c c' / (binom(4,i) binom(6,j)). */
TEST(ten_legs_of_attention_and_an_mlp)
{
    static const double four[5] = {1, 4, 6, 4, 1}, six[7] = {1, 6, 15, 20, 15, 6, 1};
    for (int kind = 0; kind < 4; kind++) {
        world   w;
        tn_net *net[2];
        double  c[2][5][7], v[3] = {0}, expected[3] = {0}, worst = 0;
        if (!open_world(&w, TN_F64, 5)) return;
        for (int side = 0; side < 2; side++) {
            tn_attention_desc d;
            tn_attention      attention;
            memset(&d, 0, sizeof d);
            d.dim = 2;
            d.heads = 2;
            d.kind = kind % 2 ? TN_ATTENTION_BILINEAR : TN_ATTENTION_SQUARED;
            tn_params *params = tn_params_create(w.ctx);
            CHECK_STATUS(tn_attention_init(params, "a", &d, &attention), TN_OK);
            tn_write(attention.o, TN_F64, noise(&w, 4), 4);
            tn_cp  *cp = any_cp(&w, 2, 2, 3, 2, false);
            tn_net *a = tn_net_from_attention(w.ctx, &attention, 0), *m = tn_net_from_cp(w.ctx, cp);
            net[side] = kind < 2 ? tn_net_compose(m, a) : tn_net_compose(a, m);
            REQUIRE(net[side] != NULL);
            tn_net_destroy(a);
            tn_net_destroy(m);
            tn_cp_destroy(cp);
            tn_params_destroy(params);
        }
        for (int o = 0; o < 2; o++) {
            for (int side = 0; side < 2; side++) polynomial_of(&w, net[side], o, c[side]);
            for (int i = 0; i < 5; i++)
                for (int j = 0; j < 7; j++)
                    for (int k = 0; k < 3; k++)
                        expected[k] += c[k == 2][i][j] * c[k != 1][i][j] / four[i] / six[j];
        }
        CHECK_STATUS(tn_net_inner(net[0], net[1], TN_NET_SYMMETRIC, &v[0]), TN_OK);
        for (int k = 0; k < 2; k++) CHECK_STATUS(tn_net_norm(net[k], TN_NET_SYMMETRIC, &v[1 + k]), TN_OK);
        test_raise(&worst, apart(v[0], expected[0], v[1] * v[2]));
        for (int k = 1; k < 3; k++) test_raise(&worst, apart(v[k] * v[k], expected[k], expected[k]));
        report("ten legs", TN_F64, worst);
        tn_net_destroy(net[0]);
        tn_net_destroy(net[1]);
        close_world(&w);
    }
}

/* E<f,g> for vectors x of two elements with the covariance L L^T, L = [l0 0; l1 l2], and a mean, by Gauss-Hermite quadrature
   with 8 points for each element, which is exact up to degree 15. */
static double quadrature(world *w, const tn_net *a, const tn_net *b, const double *l, const double *m, int inputs)
{
    static const double point[4] = {0.5390798113513751, 1.6365190424351080, 2.8024858612875416, 4.1445471861258946};
    static const double weight[4] = {0.3730122576790775, 0.1172399076617590, 0.009635220120788268, 0.0001126145383753677};
    double sum = 0;
    int    all = 1;
    for (int k = 0; k < 2 * inputs; k++) all *= 8;
    for (int i = 0; i < all; i++) {
        double     z[4], mass = 1;
        tn_tensor *x[2], *leg[2][8], *y[2];
        for (int k = 0, at = i; k < 2 * inputs; k++, at /= 8) {
            z[k] = point[at % 4] * (at % 8 < 4 ? 1 : -1);
            mass *= weight[at % 4];
        }
        for (int k = 0; k < inputs; k++) {
            const double v[2] = {m[0] + l[0] * z[2 * k], m[1] + l[1] * z[2 * k] + l[2] * z[2 * k + 1]};
            x[k] = vector(w, 2, v);
        }
        for (int side = 0; side < 2; side++) {
            const tn_net *net = side ? b : a;
            for (int k = 0; k < net->legs; k++) leg[side][k] = x[net->in[k].input];
            y[side] = tn_net_apply_each(w->ctx, net, leg[side]);
        }
        if (!CHECK(y[0] && y[1])) return 0;
        double *u = host(y[0]), *v = host(y[1]);
        for (int64_t o = 0; o < tn_tensor_count(y[0]); o++) sum += mass * u[o] * v[o];
        if (i % 256 == 255) fresh(w);
    }
    return sum;
}

TEST(gaussian_moments_equal_quadrature)
{
    static const char *const form[] = {"oi->o|i", "oa,ai,aj->o|ij", "oa,abi,bj,ak->o|ij|k", "oh,hi,hj,hk,hl,hm->o|ij|klm"};
    const double l[3] = {1.2, 0.4, 0.7}, mean[2] = {0.3, -0.5}, none[2] = {0, 0};
    const double covariance[4] = {l[0] * l[0], l[0] * l[1], l[0] * l[1], l[1] * l[1] + l[2] * l[2]};
    for (int constant = 0; constant < 2; constant++) {
        world   w;
        tn_net *net[4];
        double  worst = 0;
        if (!open_world(&w, TN_F64, 31)) return;
        tn_tensor *s = tn_tensor_keep(matrix(&w, 2, 2, covariance)), *m = tn_tensor_keep(vector(&w, 2, mean));
        for (int e = 0; e < 4; e++) {
            tn_tensor *t[6];
            int        nodes = 0;
            for (const char *c = form[e]; nodes == 0 || c[-1] == ','; nodes++, c++) {
                int64_t shape[3];
                int     rank = 0;
                for (; *c >= 'a' && *c <= 'z'; c++) shape[rank++] = *c == 'o' ? 2 : *c < 'i' ? 3 : 2 + constant;
                t[nodes] = any(&w, rank, shape);
            }
            net[e] = tn_net_create(w.ctx, form[e], nodes, t, TN_NET_COPY);
            REQUIRE(net[e] != NULL);
            net[e]->constant = constant;
        }
        for (int a = 0; a < 4; a++)
            for (int b = 0; b <= a; b++)
                for (int centred = 0; centred < 2; centred++) {
                    double       v = 0, aa = 0, bb = 0;
                    const double expected = quadrature(&w, net[a], net[b], l, centred ? none : mean, 1 + (a > 1));
                    CHECK_STATUS(tn_net_gaussian(net[a], net[b], s, centred ? NULL : m, &v), TN_OK);
                    CHECK_STATUS(tn_net_gaussian(net[a], net[a], s, centred ? NULL : m, &aa), TN_OK);
                    CHECK_STATUS(tn_net_gaussian(net[b], net[b], s, centred ? NULL : m, &bb), TN_OK);
                    test_raise(&worst, apart(v, expected, sqrt(aa * bb)));
                    fresh(&w);
                }
        report("Gaussian moments", TN_F64, worst);
        FAILS(w.ctx, tn_net_gaussian(net[0], NULL, s, NULL, &worst), TN_ERR_ARG, "net_gaussian: the second net is NULL");
        FAILS(w.ctx, tn_net_gaussian(net[0], net[1], m, NULL, &worst), TN_ERR_SHAPE, "net_gaussian: covariance is [2], expected");
        FAILS(w.ctx, tn_net_gaussian(net[0], net[1], s, s, &worst), TN_ERR_SHAPE, "net_gaussian: mean is [2,2], expected");
        CHECK(worst != worst);
        FAILS(w.ctx, tn_net_gaussian(net[0], net[1], any_matrix(&w, 5, 5), NULL, &worst), TN_ERR_SHAPE,
              constant ? "net_gaussian: input leg 0 of the first net has 3 elements, covariance is [5,5], expected 2, without the"
              : "net_gaussian: input leg 0 of the first net has 2 elements, covariance is [5,5], expected 2");
        for (int e = 0; e < 4; e++) tn_net_destroy(net[e]);
        close_world(&w);
    }
}

/* Nodes of 1e-30 and 1e30: what overflows and vanishes on the way does not do so in the result. */
TEST(norms_keep_their_precision_at_any_scale)
{
    for (int p = 0; p < 2; p++) {
        world      w;
        tn_tensor *t[3], *far[3];
        double     x = 0, y = 0, worst = 0;
        if (!open_world(&w, f64_f32[p], 41)) return;
        for (int sign = -1; sign <= 1; sign += 2) {
            for (int i = 0; i < 3; i++) {
                t[i] = any_matrix(&w, 3, 3);
                far[i] = tn_scale(w.ctx, t[i], sign < 0 ? 1e-30 : 1e30);
            }
            tn_net *near = tn_net_create(w.ctx, "oh,hi,hj->o|ij", 3, t, TN_NET_COPY);
            tn_net *big = tn_net_create(w.ctx, "oh,hi,hj->o|ij", 3, far, TN_NET_COPY);
            CHECK_STATUS(tn_net_norm(near, TN_NET_SYMMETRIC, &x), TN_OK);
            CHECK_STATUS(tn_net_norm(big, TN_NET_SYMMETRIC, &y), TN_OK);
            test_raise(&worst, apart(y * (sign < 0 ? 1e90 : 1e-90), x, x));
            CHECK_STATUS(tn_net_cosine(near, big, TN_NET_SYMMETRIC, &y), TN_OK);
            test_raise(&worst, apart(y, 1, 1));
            tn_net_destroy(near);
            tn_net_destroy(big);
        }
        report("norms of far-scaled nets", f64_f32[p], worst);
        close_world(&w);
    }
}

/* The square of the norm of these nets is out of the range of doubles, or the numbers of a long chain, each of usual size,
   have a product that is out of the range of F32. */
TEST(norms_do_not_need_the_square)
{
    const int64_t two = 2, core[3] = {1, 2, 1};
    for (int sign = -1; sign <= 1; sign += 2)
        for (int p = 0; p < 2; p++) {
            const int    n = p ? 30 : 3;
            const double each = p ? (sign < 0 ? 0.003 : 300) : sign < 0 ? 1e-90 : 1e80, v[2] = {3 * each, -4 * each};
            world      w;
            tn_tensor *t[30];
            double     x = 0, worst = 0;
            if (!open_world(&w, p ? TN_F32 : TN_F64, 43)) return;
            for (int i = 0; i < n; i++) t[i] = tn_tensor_from(w.ctx, p ? 3 : 1, p ? core : &two, TN_F64, v);
            tn_net *net = p ? tn_net_from_cores(w.ctx, n, t) : tn_net_create(w.ctx, "a,b,c->|a|b|c", n, t, TN_NET_COPY);
            CHECK_STATUS(tn_net_norm(net, TN_NET_SYMMETRIC, &x), TN_OK);
            for (int i = 0; i < n; i++) x /= 5 * each;
            test_raise(&worst, fabs(x - 1));
            CHECK_STATUS(tn_net_cosine(net, net, TN_NET_SYMMETRIC, &x), TN_OK);
            test_raise(&worst, fabs(x - 1));
            report("norms whose square overflows", p ? TN_F32 : TN_F64, worst);
            tn_net_destroy(net);
            close_world(&w);
        }
}

/* ---- matrix product states ------------------------------------------------------------ */

TEST(the_net_of_a_matrix_product_state_is_the_chain)
{
    for (int p = 0; p < 2; p++) {
        world  w;
        double worst = 0;
        if (!open_world(&w, f64_f32[p], 6)) return;
        for (int i = 0; i < 4; i++) {                            /* bonds of 1 (an open chain), 2, 3; a core of rank 2 */
            const int64_t sites = 2 + i, d = 1 + i % 3;
            tn_tensor *core[6], *m[6], *x[6], *norm;
            int64_t    shape[4];
            double     v = 0;
            for (int64_t j = 0; j < sites; j++) {
                shape[0] = shape[2] = d; shape[1] = 2;
                core[j] = any(&w, 3, shape);
                x[j] = any_vector(&w, 2);
                m[j] = tn_sum_axis(w.ctx, tn_mul(w.ctx, core[j], as_3d(x[j], 1, 2, 1)), 1);
            }
            tn_net *net = tn_net_from_cores(w.ctx, (int)sites, core);
            if (!CHECK(net != NULL)) continue;
            CHECK_INT(net->legs, sites);
            tn_tensor *y = tn_stack(w.ctx, sites, m, 0);
            shape[0] = 1; shape[1] = sites; shape[2] = shape[3] = d;
            y = tn_chain(w.ctx, tn_reshape(y, 4, shape), &norm);
            for (int64_t a = 0; a < d; a++) v += host(y)[a * d + a];
            v *= exp(host(norm)[0]);
            test_raise(&worst, apart(tn_item(tn_net_apply_each(w.ctx, net, x)), v, exp(host(norm)[0])));
            tn_net_destroy(net);
            fresh(&w);
        }
        report("net of a matrix product state", f64_f32[p], worst);
        close_world(&w);
    }
}

/* An open chain with a label core, and one that contracts to a tensor. */
TEST(cores_have_legs_by_their_rank)
{
    static const int64_t shapes[3][4] = {{1, 2, 3, 0}, {3, 2, 4, 2}, {2, 2, 1, 0}};
    world      w;
    tn_tensor *core[3];
    if (!open_world(&w, TN_F64, 6)) return;
    for (int i = 0; i < 3; i++) core[i] = any(&w, i == 1 ? 4 : 3, shapes[i]);
    tn_net *net = tn_net_from_cores(w.ctx, 3, core);
    REQUIRE(net != NULL);
    CHECK(net->outs == 1 && net->out[0].extent == 4 && net->legs == 3 && net->in[2].input == 2);
    plain      t = naive(net);
    tn_tensor *full = tn_net_contract(net);
    WORST("label core", error_of(full, t), 1e-12);
    tn_tensor_destroy(full);
    tn_net_destroy(net);
    core[1] = any_matrix(&w, 3, 2);
    net = tn_net_from_cores(w.ctx, 3, core);
    CHECK(net && net->outs == 0 && net->legs == 2);
    tn_net_destroy(net);
    core[1] = any_matrix(&w, 4, 2);
    CHECK(!tn_net_from_cores(w.ctx, 3, core));
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "net_from_cores: core 0 is [1,2,3] and core 1 begins with 4, expected equal bonds");
    close_world(&w);
}

/* ---- eigenpairs ------------------------------------------------------------------------ */

/* The fourth-order net of two layers with two legs frozen, against its interaction matrix; and a large one, whose pairs come
   from products, against the operator's. */
TEST(eigenpairs_by_products_equal_those_of_the_matrix)
{
    for (int p = 0; p < 2; p++) {
        const int64_t n = 1100;
        world      w;
        tn_eigenpairs   a, b;
        double     worst = 0;
        if (!open_world(&w, f64_f32[p], 31)) return;
        tn_cp *cp = any_cp(&w, 2, 3, 5, n, false);
        tn_net *net = tn_net_from_cp(w.ctx, cp);
        tn_tensor *u = any_vector(&w, 3);
        CHECK_STATUS(tn_net_eigen(net, u, 4, &a), TN_OK);
        CHECK_STATUS(tn_cp_eigen(cp, u, 4, &b), TN_OK);
        test_raise(&worst, between(a.values, b.values));
        test_raise(&worst, between(a.vectors, b.vectors));
        WORST(p == 0 ? "eigenpairs by products F64" : "eigenpairs by products F32", worst, p == 0 ? 1e-11 : 2e-5);
        tn_eigenpairs_destroy(&a);
        tn_eigenpairs_destroy(&b);
        tn_net_destroy(net);
        tn_cp_destroy(cp);
        close_world(&w);
    }
}

/* ---- the largest coefficients ------------------------------------------------------------ */

typedef struct coefficient { double v; int64_t at; } coefficient;

static int by_size(const void *a, const void *b)
{
    const coefficient *x = (const coefficient *)a, *y = (const coefficient *)b;
    return fabs(x->v) > fabs(y->v) ? -1 : fabs(x->v) < fabs(y->v) ? 1 : x->at < y->at ? -1 : x->at > y->at;
}

static void top_against_sorting(world *w, const tn_net *net, int64_t k)
{
    tn_tensor  *full = tn_net_contract(net);
    int64_t     count = tn_tensor_count(full), expected = k < count ? k : count;
    double     *t = host(full);
    coefficient *all = (coefficient *)calloc((size_t)count + 1, sizeof *all);
    int32_t     index[64 * LEGS];
    tn_coefficients c;
    for (int64_t i = 0; i < count; i++) { all[i].v = t[i]; all[i].at = i; }
    qsort(all, (size_t)count, sizeof *all, by_size);
    CHECK_STATUS(tn_net_top(net, k, &c), TN_OK);
    if (CHECK_INT(c.count, expected) && CHECK(c.values && c.index && expected <= 64)) {
        double *v = host(c.values);
        CHECK_STATUS(tn_read(c.index, TN_I32, index, tn_tensor_count(c.index)), TN_OK);
        for (int64_t i = 0; i < expected; i++) {
            int64_t at = 0;
            for (int a = 0; a < full->rank; a++) at = at * full->shape[a] + index[i * full->rank + a];
            CHECK_NEAR(v[i], all[i].v, 1e-14 * fabs(all[0].v));
            CHECK_INT(at, all[i].at);
        }
    }
    tn_coefficients_destroy(&c);
    CHECK(!c.values && !c.index);
    tn_tensor_destroy(full);
    free(all);
    (void)w;
}

TEST(the_largest_coefficients_are_those_of_sorting)
{
    static const char *const of[] = {"oh,hi,hj->o|ij", "oi->o|i", "a,a,a->", "aib,bjc,cka->|i|j|k", "o,i,j->o|ij"};
    static const size_t limits[] = {0, 5u << 20};
    world    w;
    for (int l = 0; l < 2; l++) {
        if (!open_within(&w, TN_F64, 17, limits[l])) return;
        for (int i = 0; i < 5; i++) {
            tn_net *net = net_of(&w, of[i], i == 3 ? 5 : 7, TN_NET_COPY);
            top_against_sorting(&w, net, i == 1 ? 1 : 40);
            tn_net_destroy(net);
        }
        close_world(&w);
    }
}

/* Slices: T has 2.1e7 elements, 160 MiB as doubles, and the context 16 MiB. Equal coefficients come by index. */
TEST(the_largest_coefficients_need_no_tensor)
{
    const int64_t n = 52;
    world      w;
    tn_tensor *t[4];
    tn_coefficients c;
    int32_t    at[12];
    double     v[3];
    if (!open_within(&w, TN_F32, 0, (size_t)16 << 20)) return;
    double *one = doubles(n);
    for (int k = 0; k < 4; k++) {
        for (int64_t i = 0; i < n; i++) one[i] = i == 50 - k ? -2 : i == 51 && k == 0 ? -2 : 1.0 / (double)(i + 2);
        t[k] = tn_tensor_from(w.ctx, 1, &n, TN_F64, one);
    }
    tn_net *net = tn_net_create(w.ctx, "a,b,c,d->a|bcd", 4, t, TN_NET_COPY);
    REQUIRE(net != NULL);
    CHECK(!tn_net_contract(net));
    tn_ctx_clear_error(w.ctx);
    CHECK_STATUS(tn_net_top(net, 3, &c), TN_OK);
    if (CHECK(c.values && c.index)) {
        CHECK_STATUS(tn_read(c.values, TN_F64, v, 3), TN_OK);
        CHECK_STATUS(tn_read(c.index, TN_I32, at, 12), TN_OK);
        CHECK(v[0] == 16 && v[1] == 16 && v[2] == -4 && at[0] == 50 && at[4] == 51);
        for (int i = 0; i < 8; i += 4) CHECK(at[i + 1] == 49 && at[i + 2] == 48 && at[i + 3] == 47);
    }
    tn_coefficients_destroy(&c);
    tn_net_destroy(net);
    close_world(&w);
}

/* ---- gradients ------------------------------------------------------------------------------ */

/* The mean square of the function, of x and of nodes that are parameters. */
static tn_tensor *loss_of(world *w, const tn_net *net, tn_tensor *x)
{
    tn_tensor *y = tn_net_apply(w->ctx, net, x);
    return tn_mean(w->ctx, tn_mul(w->ctx, y, y));
}

static void check_gradient(world *w, const tn_net *net, tn_tensor *x, tn_tensor *of, double *worst)
{
    const int64_t n = tn_tensor_count(of);
    double       *v = host(of), *numeric = doubles(n), step = 1e-6;
    tn_record(w->ctx);
    if (of == x) tn_watch(x);
    CHECK_STATUS(tn_backward(w->ctx, loss_of(w, net, x)), TN_OK);
    if (!CHECK(of->grad != NULL)) return;
    double *exact = host(of->grad);
    for (int64_t i = 0; i < n; i++) {
        const double old = v[i];
        double       f[2];
        for (int side = 0; side < 2; side++) {
            v[i] = side ? old - step : old + step;
            CHECK_STATUS(tn_write(of, TN_F64, v, n), TN_OK);
            f[side] = tn_item(loss_of(w, net, x));
        }
        v[i] = old;
        numeric[i] = (f[0] - f[1]) / (2 * step);
    }
    CHECK_STATUS(tn_write(of, TN_F64, v, n), TN_OK);
    test_raise(worst, test_max_error(exact, numeric, n));
}

TEST(gradients_are_those_of_differences)
{
    static const char *const of[] = {"oh,hi,hj->o|ij", "hai,hak,hbj,hbl,hcm,ohc->o|ijklm", "aib,bjc,cka->|ijk"};
    world  w;
    double inputs = 0, weights = 0;
    if (!open_world(&w, TN_F64, 12)) return;
    for (int e = 0; e < 3; e++) {
        tn_net    *plain_net = net_of(&w, of[e], 3, TN_NET_COPY);
        tn_tensor *t[16], *x = any_matrix(&w, 2, 3), *z = any_matrix(&w, 2, 3);
        for (int i = 0; i < plain_net->nodes; i++) {
            char    name[16];
            tn_init init = ZERO;
            init.rule = TN_INIT_NORMAL;
            init.std = 0.5;
            snprintf(name, sizeof name, "p%d", i);
            tn_param *p = tn_params_add(w.params, name, plain_net->node[i].tensor->rank, plain_net->node[i].tensor->shape, init);
            t[i] = p->value;
        }
        tn_net *net = tn_net_create(w.ctx, of[e], plain_net->nodes, t, TN_NET_REFER);
        tn_net *folded = tn_net_fold_in(net, TN_NET_ALL, any_matrix(&w, 3, 3), NULL); /* refers to the same parameters */
        check_gradient(&w, net, x, x, &inputs);
        check_gradient(&w, folded, z, z, &inputs);
        tn_params_zero_grad(w.params);
        check_gradient(&w, net, x, t[1], &weights);
        tn_params_zero_grad(w.params);
        check_gradient(&w, folded, x, t[0], &weights);
        tn_net_destroy(folded);
        tn_net_destroy(net);
        tn_net_destroy(plain_net);
        fresh(&w);
    }
    WORST("gradient of inputs", inputs, 1e-8);
    WORST("gradient of weights", weights, 1e-8);
    close_world(&w);
}

/* ---- errors ------------------------------------------------------------------------------------ */

TEST(mistakes_are_named)
{
    world      w;
    tn_tensor *t[3];
    tn_eigenpairs   e;
    tn_attention_desc d = ZERO;
    tn_attention layer;
    tn_coefficients c;
    double     x = 0;
    if (!open_world(&w, TN_F64, 1)) return;
    t[0] = any_matrix(&w, 2, 3);
    t[1] = t[2] = any_matrix(&w, 3, 4);
    tn_tensor *v = any_vector(&w, 5);
    REFUSED(w.ctx, tn_net_create(w.ctx, NULL, 3, t, TN_NET_COPY), TN_ERR_ARG, "net_create: the expression is NULL");
    REFUSED(w.ctx, tn_net_create(w.ctx, "->", 0, t, TN_NET_COPY), TN_ERR_ARG, "net_create: n is 0, expected 1 or more");
    REFUSED(w.ctx, tn_net_create(w.ctx, "oh,hi->o|i", 3, t, TN_NET_COPY), TN_ERR_ARG,
            "net_create: \"oh,hi->o|i\", character 6: expected a comma after the labels of tensor 1 of 3");
    REFUSED(w.ctx, tn_net_create(w.ctx, "oh,hi,h->o|i", 3, t, TN_NET_COPY), TN_ERR_SHAPE,
            "net_create: \"oh,hi,h->o|i\", character 8: 1 label for tensor 2, which is [3,4]");
    REFUSED(w.ctx, tn_net_create(w.ctx, "oh,hi,hj->o|i?", 3, t, TN_NET_COPY), TN_ERR_ARG, "character 14: expected letters");
    REFUSED(w.ctx, tn_net_create(w.ctx, "oh,hi,ij->o|j", 3, t, TN_NET_COPY), TN_ERR_SHAPE,
            "net_create: axis 0 of node 2, [3,4], has label i, whose extent is 4 in an earlier node, expected the same");
    REFUSED(w.ctx, tn_net_create(w.ctx, "oh,hi,hj->o|oj", 3, t, TN_NET_COPY), TN_ERR_ARG,
            "net_create: label o of a leg is that of another leg");
    REFUSED(w.ctx, tn_net_create(w.ctx, "oh,hi,hj->o|iz", 3, t, TN_NET_COPY), TN_ERR_ARG, "label z of a leg is not one of a node");
    REFUSED(w.ctx, tn_net_create(w.ctx, "oh,hi,pj->o|hi", 3, t, TN_NET_COPY), TN_ERR_SHAPE,
            "net_create: leg 1 has extent 4, expected 3 as leg 0 of the same input");
    tn_net *net = tn_net_create(w.ctx, "oh,hi,hj->o|ij", 3, t, TN_NET_COPY);
    tn_net *other = tn_net_create(w.ctx, "oh,hi,hj->o|i|j", 3, t, TN_NET_COPY);
    tn_cp *cp = any_cp(&w, 2, 4, 2, 5, true);
    tn_net *big = tn_net_from_cp(w.ctx, cp);
    REQUIRE(net && other && big);
    REFUSED(w.ctx, tn_net_fix(net, 2, v), TN_ERR_ARG, "net_fix: leg is 2, expected one of the net's 2 input legs");
    REFUSED(w.ctx, tn_net_fix(net, 1, v), TN_ERR_SHAPE, "net_fix: u is [5], expected [4]");
    REFUSED(w.ctx, tn_net_fold_in(net, 0, t[1], NULL), TN_ERR_SHAPE, "net_fold_in: e is [3,4], expected 4 rows as leg 0 has");
    REFUSED(w.ctx, tn_net_fold_in(net, 0, any_matrix(&w, 4, 2), any_vector(&w, 4)), TN_ERR_ARG,
            "net_fold_in: b is given for leg 0 alone, but the net has no constant input");
    REFUSED(w.ctx, tn_net_fold_out(net, t[1]), TN_ERR_SHAPE, "net_fold_out: u is [3,4], expected 2 columns, the net's outputs");
    REFUSED(w.ctx, tn_net_compose(net, other), TN_ERR_SHAPE, "net_compose: inner has 2 outputs, expected 4 as leg 0 of outer");
    REFUSED(w.ctx, tn_net_compose(big, big), TN_ERR_SHAPE, "the constant one included (tn_net_from_stack passes it on)");
    REFUSED(w.ctx, tn_net_compose(net, NULL), TN_ERR_ARG, "net_compose: inner is NULL");
    REFUSED(w.ctx, tn_net_apply(w.ctx, net, v), TN_ERR_SHAPE, "net_apply: x is [5], expected 4 elements in its last axis");
    t[0] = any_matrix(&w, 2, 4);
    t[1] = any_matrix(&w, 3, 4);
    REFUSED(w.ctx, tn_net_apply_each(w.ctx, net, t), TN_ERR_SHAPE,
            "net_apply_each: x is [3,4] for leg 1 and [2,4] for an earlier one, expected equal axes but the last");
    REFUSED(w.ctx, tn_net_apply(w.ctx, NULL, v), TN_ERR_ARG, "net_apply: the net is NULL");
    CHECK_STATUS(tn_net_inner(net, other, TN_NET_AS_GIVEN, &x), TN_ERR_SHAPE);
    CHECK(x != x);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "net_inner: input leg 1 has 4 and 4 elements and is of input 0 and 1");
    FAILS(w.ctx, tn_net_cosine(net, big, TN_NET_SYMMETRIC, &x), TN_ERR_SHAPE, "net_cosine: output leg 0 has 2 and 4 elements");
    REFUSED(w.ctx, tn_net_interaction(net, v), TN_ERR_SHAPE, "net_interaction: u is [5], expected [2]");
    CHECK_STATUS(tn_net_eigen(other, v, 0, &e), TN_ERR_SHAPE);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "net_eigen: the net has 2 input legs of two inputs, expected 2 of one input");
    FAILS(w.ctx, tn_net_top(net, 0, &c), TN_ERR_ARG, "net_top: k is 0, expected 1 or more");
    d.dim = 4;
    d.heads = 1;
    CHECK_STATUS(tn_attention_init(w.params, "softmax", &d, &layer), TN_OK);
    REFUSED(w.ctx, tn_net_from_attention(w.ctx, &layer, 0), TN_ERR_ARG, "the layer's kind is softmax, expected squared");
    d.kind = TN_ATTENTION_BILINEAR;
    d.qk_norm = true;
    CHECK_STATUS(tn_attention_init(w.params, "normed", &d, &layer), TN_OK);
    REFUSED(w.ctx, tn_net_from_attention(w.ctx, &layer, 0), TN_ERR_ARG, "the layer has qk_norm, with which it is not a tensor");
    REFUSED(w.ctx, tn_net_from_stack(w.ctx, 0, (const tn_cp *const *)&cp, false), TN_ERR_ARG, "net_from_stack: n is 0");
    tn_net_destroy(big);
    big = net_of(&w, "a,b,c,d,e,f,g,h,i->abcdefghi", 2, TN_NET_COPY);
    REQUIRE(big != NULL);
    REFUSED(w.ctx, tn_net_contract(big), TN_ERR_SHAPE, "net_contract: the result has 9 axes, expected at most 8");
    tn_net_destroy(big);
    tn_net_destroy(net);
    tn_net_destroy(other);
    tn_cp_destroy(cp);
    close_world(&w);
}

/* Not a number is not a norm, and too many permutations and too large tensors are refused beforehand. */
TEST(what_cannot_be_computed_is_an_error)
{
    const int64_t one = 1;
    const double  nan = (double)NAN;
    world      w;
    tn_tensor *t[10];
    double     x = 0;
    tn_coefficients c;
    if (!open_world(&w, TN_F32, 1)) return;
    t[0] = tn_tensor_from(w.ctx, 1, &one, TN_F64, &nan);
    tn_net *net = tn_net_create(w.ctx, "i->|i", 1, t, TN_NET_COPY);
    CHECK_STATUS(tn_net_norm(net, TN_NET_AS_GIVEN, &x), TN_ERR_NONFINITE);
    CHECK(x != x);
    CHECK_ERROR(w.ctx, TN_ERR_NONFINITE, "net_norm: the inner product is nan, expected a finite number");
    FAILS(w.ctx, tn_net_top(net, 1, &c), TN_ERR_NONFINITE, "net_top: a coefficient is nan");
    tn_net_destroy(net);
    for (int i = 0; i < 10; i++) t[i] = any_vector(&w, 2);
    net = tn_net_create(w.ctx, "a,b,c,d,e,f,g,h,i,j->|abcdefghij", 10, t, TN_NET_COPY);
    CHECK_STATUS(tn_net_norm(net, TN_NET_SYMMETRIC, &x), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "net_norm: the 3.6288e+06 permutations of the 10 input legs are more than 40320 different");
    CHECK_STATUS(tn_net_norm(net, TN_NET_AS_GIVEN, &x), TN_OK);
    CHECK(x > 0);
    tn_net_destroy(net);
    close_world(&w);
}
TEST_MAIN(expressions_equal_loops,
          the_net_of_an_operator_is_the_operator,
          the_net_of_attention_is_attention,
          a_stack_is_its_layers_run_one_after_the_other,
          a_composition_is_one_function_of_the_other,
          inner_products_of_two_layers_are_exact,
          equal_functions_have_the_cosine_one,
          equal_networks_share_a_plan,
          classes_of_orders_give_their_mean, ten_legs_of_attention_and_an_mlp, gaussian_moments_equal_quadrature,
          norms_keep_their_precision_at_any_scale, norms_do_not_need_the_square,
          the_net_of_a_matrix_product_state_is_the_chain,
          cores_have_legs_by_their_rank,
          eigenpairs_by_products_equal_those_of_the_matrix,
          the_largest_coefficients_are_those_of_sorting,
          the_largest_coefficients_need_no_tensor,
          gradients_are_those_of_differences,
          mistakes_are_named,
          what_cannot_be_computed_is_an_error)
