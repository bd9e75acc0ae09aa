#include "core/inner.h"
#include "tensor/inner.h"
#include "tape/inner.h"
#include "ops/inner.h"
#include "ops/pass.h"

/* ---- gemm: matmul and affine ------------------------------ >>op-gemm
   C = alpha A B + beta C + bias       dA += dC B^T      dB += A^T dC      dbias += sum of rows of dC
   Transposed operands differ only in their strides. With beta = 0 C is not read. Views have one batch axis; the reference
   and cpu backends take any number of them (tni_gemm_takes_axes), so that contractions write their results in place. */
TNI_FN void TNI_T(gemm)(const tn_call *c)
{
    const tn_view *A = &c->in[0], *B = &c->in[1], *bias = &c->in[2], *C = &c->out[0];
    const int      row = C->rank - 2, column = C->rank - 1;
    for (int64_t b = 0; b < tni_gemm_batch(C); b++)
        for (int64_t i = 0; i < C->shape[row]; i++)
            for (int64_t j = 0; j < C->shape[column]; j++) {
                const TNI_REAL *x = (const TNI_REAL *)A->data + tni_gemm_offset(C, A, b) + i * A->strides[row];
                const TNI_REAL *y = (const TNI_REAL *)B->data + tni_gemm_offset(C, B, b) + j * B->strides[column];
                TNI_REAL       *z = (TNI_REAL *)C->data + tni_gemm_offset(C, C, b) + i * C->strides[row]
                                  + j * C->strides[column];
                double          sum = 0;
                for (int64_t k = 0; k < A->shape[column]; k++)
                    sum += (double)x[k * A->strides[column]] * (double)y[k * B->strides[row]];
                sum *= c->f[0];
                if (c->f[1] != 0) sum += c->f[1] * (double)*z;
                if (c->n_in > 2 && bias->data) sum += (double)((const TNI_REAL *)bias->data)[j * bias->strides[0]];
                *z = (TNI_REAL)sum;
            }
}

#ifdef TNI_ONCE
TNI_FN tn_view tni_transposed_view(tn_view v)                    /* the last two axes */
{
    int64_t n = v.shape[v.rank - 1], s = v.strides[v.rank - 1];
    v.shape[v.rank - 1] = v.shape[v.rank - 2];
    v.strides[v.rank - 1] = v.strides[v.rank - 2];
    v.shape[v.rank - 2] = n;
    v.strides[v.rank - 2] = s;
    return v;
}

TNI_FN tn_view tni_one_matrix(tn_view v) { return tni_pad_view(v, 3); }       /* [m,n] -> [1,m,n] */

/* C = alpha A B + beta C + bias on views [b,m,k] [b,k,n] [b,m,n]. */
TNI_FN tn_status tni_gemm(tn_ctx *ctx, tn_view a, tn_view b, const tn_tensor *bias, tn_view out, double alpha, double beta)
{
    tn_call c;
    tni_call_begin(&c, TN_KERNEL_GEMM);
    c.in[c.n_in++] = a;
    c.in[c.n_in++] = b;
    if (bias) tni_in(&c, bias);
    c.out[c.n_out++] = out;
    c.f[0] = alpha;
    c.f[1] = beta;
    return tni_run(ctx, &c);
}

/* [.., m, n] as [batch, m, n]; a contiguous tensor, or any matrix */
TNI_FN tn_view tni_batch_view(const tn_tensor *t)
{
    tn_view v = tni_view(t);
    int64_t batch = 1;
    int     r = t->rank;
    if (r == 2) return tni_one_matrix(v);
    for (int i = 0; i < r - 2; i++) batch *= t->shape[i];
    tni_view_shape(&v, 3, TNI_DIMS(batch, t->shape[r - 2], t->shape[r - 1]));
    return v;
}

static tn_view tni_matrix_of(tn_view v, int64_t b)               /* matrix b of a batch, as a batch of one */
{
    v.data = (char *)v.data + b * v.strides[0] * (int64_t)tni_dtype_size(v.dtype);
    v.shape[0] = 1;
    return v;
}

/* The gradient of t += A B, one product after the other if t is one matrix for a whole batch. */
static void tni_gemm_grad(tn_ctx *ctx, tn_tensor *t, tn_view a, tn_view b)
{
    bool       add;
    tn_tensor *g = tni_grad(t, &add);
    int64_t    batch = tni_max(a.shape[0], b.shape[0]);
    if (!g) return;
    tn_view out = tni_batch_view(g);
    if (out.shape[0] == batch) {
        tni_gemm(ctx, a, b, NULL, out, 1, add ? 1 : 0);
        return;
    }
    if (batch == 0 && !add) tni_fill(g, 0);
    for (int64_t i = 0; i < batch; i++)
        tni_gemm(ctx, tni_matrix_of(a, i), tni_matrix_of(b, i), NULL, out, 1, add || i > 0 ? 1 : 0);
}

static void tni_stretch_batch(tn_view *v, int64_t batch)         /* one matrix for every member of the batch */
{
    if (v->shape[0] == batch) return;
    v->shape[0] = batch;
    v->strides[0] = 0;
}

static void tni_matmul_backward(tn_ctx *ctx, const tni_node *n)
{
    tn_view a = tni_batch_view(n->in[0]), b = tni_batch_view(n->in[1]), dc = tni_batch_view(n->out->grad);
    tni_stretch_batch(&a, dc.shape[0]);
    tni_stretch_batch(&b, dc.shape[0]);
    tni_gemm_grad(ctx, n->in[0], dc, tni_transposed_view(b));
    tni_gemm_grad(ctx, n->in[1], tni_transposed_view(a), dc);
}

tn_tensor *tn_matmul(tn_ctx *ctx, tn_tensor *a, tn_tensor *b)
{
    int64_t shape[TN_MAX_RANK];
    if (!tni_is_real(ctx, a, "matmul", "a") || !tni_is_real(ctx, b, "matmul", "b")) return NULL;
    if (a->rank < 2 || b->rank < 2)
        return tni_fail(ctx, TN_ERR_SHAPE, "matmul: %s is %s, expected rank 2 or more", a->rank < 2 ? "a" : "b",
                        TNI_SHAPE(a->rank < 2 ? a : b)), (tn_tensor *)NULL;
    if (a->shape[a->rank - 1] != b->shape[b->rank - 2])
        return tni_fail(ctx, TN_ERR_SHAPE, "matmul: a is %s but b is %s, expected %lld rows of b", TNI_SHAPE(a), TNI_SHAPE(b),
                        (long long)a->shape[a->rank - 1]), (tn_tensor *)NULL;
    if (a->rank > 2 && b->rank > 2
        && (a->rank != b->rank || memcmp(a->shape, b->shape, sizeof *shape * (size_t)(a->rank - 2)) != 0))
        return tni_fail(ctx, TN_ERR_SHAPE, "matmul: a is %s but b is %s, expected equal batch axes", TNI_SHAPE(a),
                        TNI_SHAPE(b)), (tn_tensor *)NULL;
    if (a->rank > 2 && !(a = tni_contiguous(ctx, a, "matmul", "a"))) return NULL;
    if (b->rank > 2 && !(b = tni_contiguous(ctx, b, "matmul", "b"))) return NULL;
    int rank = (int)tni_max(a->rank, b->rank);
    memcpy(shape, a->rank == rank ? a->shape : b->shape, sizeof shape);
    shape[rank - 2] = a->shape[a->rank - 2];
    shape[rank - 1] = b->shape[b->rank - 1];
    tn_tensor *y = tni_made(ctx, rank, shape);
    if (!y) return NULL;
    tn_view va = tni_batch_view(a), vb = tni_batch_view(b), vc = tni_batch_view(y);
    tni_stretch_batch(&va, vc.shape[0]);
    tni_stretch_batch(&vb, vc.shape[0]);
    if (tni_gemm(ctx, va, vb, NULL, vc, 1, 0) != TN_OK) return NULL;
    tni_note(ctx, tni_matmul_backward, y, a, b, NULL);
    return y;
}

/* ---- shadows ---------------------------------------------------- >>shadow
   Where products round a parameter to BF16, each of them would read 4 bytes per weight and write 2 before it can begin. A
   shadow is the parameter in BF16, which products read instead and which the kernels of updates write: the same bits. The
   first product asks for it (TNI_SHADOW), and the optimiser makes its memory, which counts like all memory. What rewrites
   the parameter otherwise leaves the shadow stale, and the next product, or the replay of a graph, makes it new by COPY. */

/* The shadow of a parameter as one axis. */
TNI_FN tn_view tni_shadow_view(const tn_tensor *t)
{
    tn_view v = tni_flat_view(t);
    v.data = t->compact->data;
    v.dtype = TN_BF16;
    return v;
}

/* Makes the elements of a stale shadow new. */
TNI_FN tn_status tni_shadow_renew(tn_tensor *t)
{
    tn_call   c = tni_call(TN_KERNEL_COPY, "");
    tn_status s = TN_OK;
    if (!t->compact || !t->compact->shadow || tni_shadow_holds(t)) return s;
    tni_in_flat(&c, t);
    c.out[c.n_out++] = tni_shadow_view(t);
    s = tni_run(t->ctx, &c);
    t->compact->stale = s != TN_OK;
    return s;
}

/* Adds the shadow of w to a product with in[1], which is w or its transpose, as operand 3; in[2] may then be absent. */
static void tni_shadow_operand(tn_call *c, tn_tensor *w)
{
    tn_tensor    *root = w->base ? w->base : w;
    tn_ctx       *ctx = root->ctx;
    const int64_t least = ctx->backend->shadow;
    if (!tni_shadows(ctx) || root->dtype != TN_F32 || w->shape[0] < least || w->shape[1] < least) return;
    if (ctx->recording) root->flags |= TNI_SHADOW;
    if (!root->compact || !root->compact->shadow || tni_shadow_renew(root) != TN_OK) return;
    c->n_in = 4;
    c->in[3] = c->in[1];
    c->in[3].dtype = TN_BF16;
    c->in[3].data = (uint16_t *)root->compact->data + ((const float *)w->data - (const float *)root->data);
}

static void tni_affine_backward(tn_ctx *ctx, const tni_node *n)
{
    tn_tensor *x = n->in[0], *w = n->in[1], *bias = n->in[2];
    tn_view    dy = tni_one_matrix(tni_rows_view(n->out->grad));
    bool       add;
    tn_tensor *g = tni_grad(x, &add);
    if (g) {
        tn_call c = tni_call(TN_KERNEL_GEMM, "");
        c.in[c.n_in++] = dy;
        c.in[c.n_in++] = tni_one_matrix(tni_view(w));
        c.out[c.n_out++] = tni_one_matrix(tni_rows_view(g));
        c.f[0] = 1;
        c.f[1] = add ? 1 : 0;
        tni_shadow_operand(&c, w);
        tni_run(ctx, &c);
    }
    g = tni_grad(w, &add);
    if (g)
        tni_gemm(ctx, tni_transposed_view(dy), tni_one_matrix(tni_rows_view(x)), NULL, tni_one_matrix(tni_view(g)), 1,
                 add ? 1 : 0);
    g = bias ? tni_grad(bias, &add) : NULL;
    if (g) {
        tn_call c = tni_call(TN_KERNEL_SUM, "r", n->out->grad);
        c.out[c.n_out++] = tni_pad_view(tni_view(g), 2);
        c.f[0] = 1;
        c.accumulate = add;
        tni_run(ctx, &c);
    }
}

/* Adds the compact copy of w to a product x w^T, which need not use it, if the rows of w are whole rows of the matrix. in[2] may
   then be absent. */
static void tni_compact_operands(tn_call *c, const tn_tensor *w)
{
    const tn_tensor   *root = tni_root(w);
    const tni_compact *copy = root->compact;
    if (!copy || copy->shadow || root->ctx->recording || w->shape[0] == 0 || w->strides[1] != 1) return;
    int64_t columns = root->shape[root->rank - 1];
    int64_t row = (const float *)w->data - (const float *)root->data;
    if (w->shape[1] != columns || row % columns != 0 || (w->shape[0] > 1 && w->strides[0] != columns)) return;
    row /= columns;
    c->n_in = 5;
    c->in[3].data = (uint32_t *)copy->data + row * copy->words;
    c->in[3].dtype = TN_I32;
    tni_view_shape(&c->in[3], 2, TNI_DIMS(w->shape[0], copy->words));
    if (copy->kind != TN_WEIGHT_INT8) return;
    c->in[4].data = (float *)copy->data + copy->rows * copy->words + row;
    c->in[4].dtype = TN_F32;
    tni_view_shape(&c->in[4], 1, w->shape);
}

/* A tensor as one matrix [1,m,n] with these strides; v is cleared. */
static void tni_matrix_to(tn_view *v, const tn_tensor *t, int64_t m, int64_t n, int64_t row, int64_t column)
{
    v->data = t->data;
    v->dtype = t->dtype;
    v->rank = 3;
    v->shape[0] = 1;
    v->shape[1] = m;
    v->shape[2] = n;
    v->strides[1] = row;
    v->strides[2] = column;
}

tn_tensor *tn_affine(tn_ctx *ctx, tn_tensor *x, tn_tensor *w, tn_tensor *b)
{
    int64_t shape[TN_MAX_RANK], rows = 1;
    tn_call c;
    if (!(x = tni_contiguous(ctx, x, "affine", "x")) || !tni_is_real(ctx, w, "affine", "w")) return NULL;
    if (b && !tni_is_real(ctx, b, "affine", "b")) return NULL;
    if (w->rank != 2) return tni_fail(ctx, TN_ERR_SHAPE, "affine: w is %s, expected rank 2", TNI_SHAPE(w)), (tn_tensor *)NULL;
    if (x->rank < 1 || x->shape[x->rank - 1] != w->shape[1])
        return tni_fail(ctx, TN_ERR_SHAPE, "affine: x is %s, expected a last extent of %lld, for w is %s", TNI_SHAPE(x),
                        (long long)w->shape[1], TNI_SHAPE(w)), (tn_tensor *)NULL;
    if (b && (b->rank != 1 || b->shape[0] != w->shape[0]))
        return tni_fail(ctx, TN_ERR_SHAPE, "affine: b is %s, expected [%lld], for w is %s", TNI_SHAPE(b),
                        (long long)w->shape[0], TNI_SHAPE(w)), (tn_tensor *)NULL;
    int64_t m = w->shape[0], n = w->shape[1];
    memcpy(shape, x->shape, sizeof shape);
    shape[x->rank - 1] = m;
    tn_tensor *y = tni_made(ctx, x->rank, shape);
    if (!y) return NULL;
    tni_call_begin(&c, TN_KERNEL_GEMM);
    c.n_in = b ? 3 : 2;
    c.n_out = 1;
    for (int i = 0; i + 1 < x->rank; i++) rows *= shape[i];
    tni_matrix_to(&c.in[0], x, rows, n, n, 1);
    tni_matrix_to(&c.in[1], w, n, m, w->strides[1], w->strides[0]);
    if (b) tni_view_to(&c.in[2], b);
    tni_matrix_to(&c.out[0], y, rows, m, m, 1);
    c.f[0] = 1;
    tni_compact_operands(&c, w);
    tni_shadow_operand(&c, w);
    return tni_recorded(ctx, &c, tni_affine_backward, y, x, w, b, NULL);
}
#endif

/* ---- append_one ------------------------------------------- >>op-append_one
   y = [x;1]: the bias of the next layer becomes a column of its matrix      dx += all but the last column of dy */
#ifdef TNI_ONCE
static tn_view tni_columns_view(const tn_tensor *t, int64_t start, int64_t stop)
{
    tn_view v = tni_rows_view(t);
    v.data = (char *)v.data + start * (int64_t)tni_dtype_size(v.dtype);
    v.shape[1] = stop - start;
    return v;
}

static void tni_append_one_backward(tn_ctx *ctx, const tni_node *n)
{
    tn_call c = tni_call(TN_KERNEL_ADD, "");
    c.in[c.n_in++] = tni_columns_view(n->out->grad, 0, n->out->shape[n->out->rank - 1] - 1);
    c.f[0] = 1;
    tni_run_grad(ctx, &c, n->in[0], 'r');
}

tn_tensor *tn_append_one(tn_ctx *ctx, tn_tensor *x)
{
    int64_t shape[TN_MAX_RANK];
    if (!(x = tni_contiguous(ctx, x, "append_one", "x")) || !tni_has_columns(ctx, x, "append_one")) return NULL;
    memcpy(shape, x->shape, sizeof shape);
    int64_t    columns = shape[x->rank - 1]++;
    tn_tensor *y = tni_made(ctx, x->rank, shape);
    if (!y) return NULL;
    tn_call c = tni_call(TN_KERNEL_COPY, "r", x);
    c.out[c.n_out++] = tni_columns_view(y, 0, columns);
    if (tni_run(ctx, &c) != TN_OK) return NULL;
    c = tni_call(TN_KERNEL_FILL, "");
    c.out[c.n_out++] = tni_columns_view(y, columns, columns + 1);
    c.f[0] = 1;
    return tni_recorded(ctx, &c, tni_append_one_backward, y, x, NULL, NULL, NULL);
}
#endif

#define TNI_AGAIN "ops/gemm.c"
#include "ops/again.h"
