#include "cuda/attention_plain.h"

/* ---- the entries ---------------------------------------------------------------------------------- >>cuda-attention-entry
   Each fills a tnc_attend from its call, allocates scratch, and launches the kernels chosen above. */

static tnc_heads tnc_heads_of(const tn_view *v)
{
    tnc_heads h = { v->data, 0, 0, 0 };
    if (!v->data) return h;
    h.b = v->strides[0];
    h.t = v->strides[1];
    h.h = v->strides[2];
    return h;
}

static tnc_attend tnc_attend_of(const tn_call *c)
{
    tnc_attend p;
    memset(&p, 0, sizeof p);
    p.q = tnc_heads_of(&c->in[0]);
    p.k = tnc_heads_of(&c->in[1]);
    p.v = tnc_heads_of(&c->in[2]);
    p.B = c->in[2].shape[0];
    p.H = c->in[2].shape[2];
    p.Tq = c->in[0].shape[1];
    p.Tk = c->in[2].shape[1];
    p.n_qk = c->in[0].shape[3];
    p.n_v = c->in[2].shape[3];
    p.kind = (int)c->i[0];
    p.causal = c->i[1] != 0;
    p.window = c->i[2];
    p.past = c->i[3];
    p.scale = c->f[0];
    p.score = (float)p.scale;
    p.power = (float)(p.scale * TNC_LOG2E);
    p.square = (float)(p.scale * p.scale);
    p.length = c->f[1];
    p.row = (int)c->f[2];
    p.sums = p.row == TN_ROW_SCALE_SUM;
    p.eps = c->f[3];
    return p;
}

/* Whether all operands that are present have one dtype, and the statistic that of its sums. */
static bool tnc_attend_dtypes(const tn_view *const *v, int n, const tn_view *stat)
{
    const tn_dtype t = v[0]->dtype;
    for (int i = 1; i < n; i++)
        if (v[i]->data && v[i]->dtype != t) return false;
    return !stat->data || stat->dtype == (t == TN_F64 ? TN_F64 : TN_F32);
}

/* One block per task; or, to look for tasks to recompute, at most one per multiprocessor, whose registers suffice for one. */
static unsigned tnc_attend_grid(const tnc *s, const tnc_attend &p, int64_t blocks)
{
    return p.redo ? (unsigned)tnc_bound(blocks, 1, s->sms) : tnc_blocks(blocks, 1);
}

template <typename T> static void tnc_attend_run_plain(tnc *s, const tnc_attend &p)
{
    typedef tnc_attend_smem<typename tnc_real<T>::type> smem;
    const int64_t col_tiles = p.n_v > 0 ? tnc_ceil(p.n_v, smem::side) : 1,
        blocks = tnc_ceil(p.Tq, smem::side) * p.B * p.H * col_tiles;
    TNC_LAUNCH((tnc_attend_plain<T>), tnc_attend_grid(s, p, blocks), smem::threads, 0, s->stream, p, col_tiles, blocks);
}

/* Number of splits for the query that sees most keys. */
static int64_t tnc_attend_splits(const tnc_attend &p)
{
    const int64_t keys = tnc_attend_max_visible(p, p.Tk);
    return keys > 0 ? tnc_ceil(keys, TNC_ATTEND_SPLIT) : 1;
}

template <typename T> static void tnc_attend_run_split(tnc *s, const tnc_attend &p)
{
    const int64_t rows = p.B * p.H * p.Tq, splits = tnc_attend_splits(p);
    TNC_LAUNCH((tnc_attend_split<T>), tnc_blocks(rows * splits, 1), 128, 0, s->stream, p, splits, rows * splits);
    TNC_LAUNCH((tnc_attend_combine<T>), tnc_grid(s, rows, 8), 256, 0, s->stream, p, splits);
}

TNC_FN tn_status tnc_attention(tnc *s, const tn_call *c)
{
    const tn_view *all[] = { &c->in[0], &c->in[1], &c->in[2], &c->out[0] };
    const tn_dtype dtype = c->in[0].dtype;
    const tnc_attend_size *size;
    tnc_attend     p = tnc_attend_of(c);
    void          *scratch = NULL;
    p.o = tnc_heads_of(&c->out[0]);
    p.stat = c->out[1].data;
    if (!tnc_attend_dtypes(all, 4, &c->out[1])) return TN_ERR_DTYPE;
    if (p.B * p.H * p.Tq == 0) return TN_OK;
    if (p.Tq <= TNC_ATTEND_DECODE) {
        p.row_stats = tnc_scratch(s, (size_t)(p.B * p.H * p.Tq * tnc_attend_splits(p) * (2 + p.n_v))
                                     * (dtype == TN_F64 ? 8 : 4));
        if (!p.row_stats) return TN_ERR_MEMORY;
        TNC_TYPES(dtype, T, tnc_attend_run_split<T>(s, p))
        return TN_OK;
    }
    if ((size = tnc_attend_size_of(s, p, dtype)) != NULL) {
        tnc_attend m = p;
        m.wide = dtype == TN_F32;
        if (tnc_attend_operands(s, &m, size, dtype, tnc_attend_redo_bytes(p, false), false, &scratch) != TN_OK)
            return TN_ERR_MEMORY;
        p.redo = m.redo = (int *)scratch;
        size->kind[p.kind].run(s, m, false);
    }
    TNC_TYPES(dtype, T, tnc_attend_run_plain<T>(s, p))
    return TN_OK;
}

template <typename T> static void tnc_attend_run_plain_back(tnc *s, const tnc_attend &p)
{
    typedef tnc_attend_smem<typename tnc_real<T>::type> smem;
    const int64_t heads = p.B * p.H, col_tiles = tnc_ceil(p.n_qk, smem::side), both = tnc_ceil(p.n_v, smem::side);
    const int64_t wide = col_tiles > both ? col_tiles : both;
    const int64_t queries = tnc_ceil(p.Tq, smem::side) * heads * col_tiles, keys = tnc_ceil(p.Tk, smem::side) * heads * wide;
    if (p.dq.data)
        TNC_LAUNCH((tnc_attend_plain_back<T, false>), tnc_attend_grid(s, p, queries), smem::threads, 0, s->stream, p,
                   col_tiles, queries);
    if (p.dk.data || p.dv.data) {
        tnc_attend at_keys = p;
        if (p.redo) at_keys.redo += tnc_attend_tiles(p, p.Tq);
        TNC_LAUNCH((tnc_attend_plain_back<T, true>), tnc_attend_grid(s, p, keys), smem::threads, 0, s->stream, at_keys, wide,
                   keys);
    }
}

/* The gradients of a call without pairs of queries and keys, or without values: zeros, if they are overwritten. */
TNC_FN tn_status tnc_attend_no_pairs(tnc *s, const tn_call *c)
{
    tn_status status = TN_OK;
    for (int i = 0; i < 3 && !c->accumulate && status == TN_OK; i++) {
        tn_call fill;
        memset(&fill, 0, sizeof fill);
        fill.kernel = TN_KERNEL_FILL;
        fill.out[fill.n_out++] = c->out[i];
        if (c->out[i].data) status = tnc_fill(s, &fill);
    }
    return status;
}

TNC_FN tn_status tnc_attention_backward(tnc *s, const tn_call *c)
{
    const tn_view *all[] = { &c->in[0], &c->in[1], &c->in[2], &c->in[3], &c->in[5], &c->out[0], &c->out[1], &c->out[2] };
    tnc_attend     p = tnc_attend_of(c);
    const tn_dtype dtype = c->in[0].dtype;
    const int64_t  rows = p.B * p.H * p.Tq;
    const size_t   bytes = 4 * (size_t)rows * (dtype == TN_F64 ? 8 : 4);
    /* With few F32 queries the forward pass did not round its operands, and l belongs to these: nor may the
       backward pass. */
    const tnc_attend_size *size = p.Tq <= TNC_ATTEND_DECODE && dtype == TN_F32 ? NULL : tnc_attend_size_of(s, p, dtype);
    p.o = tnc_heads_of(&c->in[3]);
    p.stat = c->in[4].data;
    p.dout = tnc_heads_of(&c->in[5]);
    p.dq = tnc_heads_of(&c->out[0]);
    p.dk = tnc_heads_of(&c->out[1]);
    p.dv = tnc_heads_of(&c->out[2]);
    p.add = c->accumulate;
    p.unit = size ? TNC_LOG2E : 1;                     /* the tensor-core kernels use powers of 2 */
    p.wide = dtype == TN_F32;
    if (!tnc_attend_dtypes(all, 8, &c->in[4])) return TN_ERR_DTYPE;
    if (rows == 0 || p.Tk == 0) return tnc_attend_no_pairs(s, c);
    tnc_attend m = p;
    if (size && tnc_attend_operands(s, &m, size, dtype, bytes + tnc_attend_redo_bytes(p, true), true, &m.row_stats) != TN_OK)
        return TN_ERR_MEMORY;
    p.row_stats = m.row_stats = size ? m.row_stats : tnc_scratch(s, bytes);
    if (!p.row_stats) return TN_ERR_MEMORY;
    if (size) p.redo = m.redo = (int *)((char *)p.row_stats + bytes);
    TNC_TYPES(dtype, T,
              if (p.kind == TN_ATTEND_SOFTMAX || p.sums)
                  TNC_LAUNCH((tnc_attend_delta<T, true>), tnc_grid(s, rows, 8), 256, 0, s->stream, p);
              else TNC_LAUNCH((tnc_attend_delta<T, false>), tnc_grid(s, rows, 256), 256, 0, s->stream, p);
              if (size) size->kind[p.kind].run(s, m, true);
              tnc_attend_run_plain_back<T>(s, p))
    return TN_OK;
}
