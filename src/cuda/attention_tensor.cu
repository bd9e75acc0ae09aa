#include "cuda/attention_mma.h"

/* ---- which kernels a call takes ------------------------------------------------------------------ >>cuda-attention-choose
   Dtype, head dimensions, lengths and the shared memory of the device decide; values and timing do not. Operands that the
   tensor-core kernels cannot read in place are copied to scratch first. */

/* The longest sum that is computed on tensor cores */
static const int64_t TNC_ATTEND_TERMS = (int64_t)1 << 20;

/* The most keys that are visible to a query, which also bounds the number of queries to which a key is visible. */
TNC_FN int64_t tnc_attend_max_visible(const tnc_attend &p, int64_t T)
{
    const int64_t most = p.window > 0 ? (p.causal ? p.window : 2 * p.window - 1) : T;
    return most < T ? most : T;
}

/* Launches the forward kernel of a kind and a pair of head dimensions, or the two backward kernels. */
template <int KIND, int D, int DV> static void tnc_attend_run_mma(tnc *s, const tnc_attend &p, bool back)
{
    typedef tnc_attend_plan<KIND, D, DV> plan;
    typedef tnc_attend_back_plan<KIND, D, DV, false> by_query;
    typedef tnc_attend_back_plan<KIND, D, DV, true> by_key;
    const int64_t heads = p.B * p.H, tiles = tnc_ceil(p.Tq, plan::queries), row = 2 * by_key::row;
    const int64_t queries = tnc_ceil(p.Tq, by_query::resident), keys = tnc_ceil(p.Tk, by_key::resident);
    if (!back) {
        if (D == DV && tnc_attend_run_wgmma(s, p, D, false, false)) return;
        tnc_shared_for(s, tnc_attend_mma<KIND, D, DV>, plan::bytes);
        TNC_LAUNCH((tnc_attend_mma<KIND, D, DV>), (unsigned)(tiles * heads), plan::threads, plan::bytes, s->stream,
                   tnc_attend_in_groups(s, p, tiles, p.Tk, row));
        return;
    }
    if (p.dq.data && !(D == DV && tnc_attend_run_wgmma(s, p, D, true, false))) {
        tnc_shared_for(s, tnc_attend_mma_back<KIND, D, DV, false>, by_query::bytes);
        TNC_LAUNCH((tnc_attend_mma_back<KIND, D, DV, false>), (unsigned)(queries * heads), by_query::threads,
                   by_query::bytes, s->stream, tnc_attend_in_groups(s, p, queries, p.Tk, row));
    }
    if (p.dk.data || p.dv.data) {
        if (D == DV && tnc_attend_run_wgmma(s, p, D, true, true)) return;
        tnc_shared_for(s, tnc_attend_mma_back<KIND, D, DV, true>, by_key::bytes);
        tnc_attend at_keys = tnc_attend_in_groups(s, p, keys, p.Tq, row + 16);
        at_keys.redo += tnc_attend_tiles(p, p.Tq);
        TNC_LAUNCH((tnc_attend_mma_back<KIND, D, DV, true>), (unsigned)(keys * heads), by_key::threads, by_key::bytes,
                   s->stream, at_keys);
    }
}

/* The most shared memory that one of these kernels needs. */
template <int KIND, int D, int DV> static constexpr int tnc_attend_shared(void)
{
    constexpr int a = tnc_attend_plan<KIND, D, DV>::bytes, b = tnc_attend_back_plan<KIND, D, DV, false>::bytes;
    constexpr int c = tnc_attend_back_plan<KIND, D, DV, true>::bytes, d = a > b ? a : b;
    return c > d ? c : d;
}

/* The tensor-core kernels for a call, or NULL if it does not use them. */
TNC_FN const tnc_attend_size *tnc_attend_size_of(const tnc *s, const tnc_attend &p, tn_dtype dtype)
{
#define TNC_Y(KIND, D, DV) { tnc_attend_shared<KIND, D, DV>(), tnc_attend_run_mma<KIND, D, DV> }
#define TNC_ALL(D, DV) \
    { D, DV, { TNC_Y(TN_ATTEND_SOFTMAX, D, DV), TNC_Y(TN_ATTEND_SQUARED, D, DV), TNC_Y(TN_ATTEND_BILINEAR, D, DV) } }
#define TNC_SOFTMAX(D, DV) { D, DV, { TNC_Y(TN_ATTEND_SOFTMAX, D, DV), { 0, NULL }, { 0, NULL } } }
    /* Head dimensions of q and k, and of v. A call uses the first pair that is large enough, padded with zeros. Each pair
       takes about a second to compile, so there are few. The pairs with dv = 2 d are for differential attention, which uses
       softmax only. */
    static const tnc_attend_size sizes[] = {
        TNC_ALL(16, 16), TNC_ALL(32, 32), TNC_SOFTMAX(32, 64), TNC_ALL(64, 64), TNC_SOFTMAX(64, 128), TNC_ALL(128, 128)
    };
#undef TNC_SOFTMAX
#undef TNC_ALL
#undef TNC_Y
    if (dtype == TN_F64 || (dtype == TN_F32 && s->precision != TN_GEMM_BF16) || p.n_v == 0) return NULL;
    if (tnc_attend_max_visible(p, p.Tq > p.Tk ? p.Tq : p.Tk) > TNC_ATTEND_TERMS) return NULL;
    if (p.Tk < 128 || p.Tq + p.Tk > INT32_MAX / 2 || p.B * p.H * ((p.Tq + p.Tk) / 64 + 1) > INT32_MAX) return NULL;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (p.n_qk <= sizes[i].d && p.n_v <= sizes[i].dv && sizes[i].kind[p.kind].run)
            return (size_t)sizes[i].kind[p.kind].shared <= s->shared_max ? &sizes[i] : NULL;
    return NULL;
}

/* An operand [B,time,n,d] of these kernels: in place if it is BF16, unpadded and aligned; else a copy of `bytes` bytes. */
typedef struct tnc_attend_operand { tnc_heads *x; int64_t time, n, d, D; size_t bytes; } tnc_attend_operand;

static tnc_attend_operand tnc_attend_operand_of(const tnc_attend &p, tnc_heads *x, tn_dtype dtype, bool key, bool value,
                                                int D)
{
    tnc_attend_operand o = { x, key ? p.Tk : p.Tq, p.H * (!value && p.kind == TN_ATTEND_BILINEAR ? 2 : 1),
        value ? p.n_v : p.n_qk, D, 0 };
    const bool whole = o.d == D && x->b % 8 == 0 && x->t % 8 == 0 && x->h % 8 == 0 && (size_t)x->data % 16 == 0;
    if (dtype != TN_BF16 || !whole) o.bytes = (size_t)(p.B * o.time * o.n * D) * sizeof(tnc_bf16);
    return o;
}

static char *tnc_attend_copy(tnc *s, tnc_attend_operand o, tn_dtype dtype, char *to)
{
    const int64_t chunks = (int64_t)(o.bytes / 16);
    if (chunks == 0) return to;
    if (dtype == TN_F32)
        TNC_LAUNCH((tnc_attend_pack<float>), tnc_grid(s, chunks, 256), 256, 0, s->stream, *o.x, o.time, o.n, o.d, o.D,
                   chunks, (uint4 *)to);
    else
        TNC_LAUNCH((tnc_attend_pack<tnc_bf16>), tnc_grid(s, chunks, 256), 256, 0, s->stream, *o.x, o.time, o.n, o.d, o.D,
                   chunks, (uint4 *)to);
    *o.x = tnc_heads{ to, o.time * o.n * o.D, o.n * o.D, o.D };
    return to + o.bytes;
}

/* Bytes of `redo`: one int per 64 queries; in the backward pass, those of the keys follow. */
TNC_FN size_t tnc_attend_redo_bytes(const tnc_attend &p, bool back)
{
    return (size_t)tnc_ceil(tnc_attend_tiles(p, p.Tq) + (back ? tnc_attend_tiles(p, p.Tk) : 0), 4) * 16;
}

/* Allocates scratch and copies operands to it as the tensor-core kernels need them. The first `taken` bytes are
   the caller's. */
TNC_FN tn_status tnc_attend_operands(tnc *s, tnc_attend *p, const tnc_attend_size *size, tn_dtype dtype, size_t taken,
                                     bool back, void **scratch)
{
    const tnc_attend_operand all[] = { tnc_attend_operand_of(*p, &p->q, dtype, false, false, size->d),
                                       tnc_attend_operand_of(*p, &p->k, dtype, true, false, size->d),
                                       tnc_attend_operand_of(*p, &p->v, dtype, true, true, size->dv),
                                       tnc_attend_operand_of(*p, &p->dout, dtype, false, true, size->dv) };
    const int n = back ? 4 : 3;
    size_t    bytes = taken;
    char     *to;
    int       i;
    for (i = 0; i < n; i++) bytes += all[i].bytes;
    if (!(*scratch = tnc_scratch(s, bytes))) return TN_ERR_MEMORY;
    for (i = 0, to = (char *)*scratch + taken; i < n; i++) to = tnc_attend_copy(s, all[i], dtype, to);
    return TN_OK;
}
