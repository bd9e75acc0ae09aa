#pragma once
#include "cuda/inner.h"

/* ---- quadratic attention ------------------------------------------------------------------------------ >>cuda-attention
   The formulas are at >>op-attention of tensornet.h:
       S = scale * Q K^T over the visible pairs       P = exp(S - lse), or S1 * S2 (bilinear), or S * S (squared)
       O = c * (P V)         dP = u V^T + w           dV = P^T u       dQ = scale * (dS K)       dK = scale * (dS^T Q)
   with u = c dO and dS = P * dP (softmax), dS1 = S2 * dP, dS2 = S1 * dP (bilinear), 2 S * dP (squared). `*` is elementwise.

   GLOSSARY. T: Tq queries or Tk keys; d, dv: head dimensions of q and k, of v; D, DV: the same, padded to a size for which a
   kernel exists; `sets`: 2 for bilinear (heads h and h + H are the two sets of queries and keys), else 1. Block sizes are
   those of the tensor-core kernels; the plain kernels have blocks of 64 queries and 64 keys, in F64 32.

     in this file          FlashAttention      shape               where it lives
     q, k, v, o, dout      Q, K, V, O, dO      [B,T,heads,d|dv]    device memory, last axis with stride 1; tiles of them in
                                                                   shared memory, swizzled (>>cuda-swizzle)
     query block           Q tile, BLOCK_M     128 x D             shared memory during the whole forward kernel
     key block, stage      K, V tiles, BLOCK_N 64 or 32 x D, DV    shared memory, two stages: double buffering by cp.async
     ring                  pipeline            up to 4 stages      shared memory, filled by TMA (>>cuda-attention-wgmma)
     s[set]                S                   rows x columns      registers, as C fragments of mma
     s[0], then p_frag     P                   rows x columns      registers: C fragments, rounded to BF16 A fragments
     dp                    u V^T               rows x columns      registers
     row_max, row_sum      m, l                per query           registers: the running maximum and sum of online softmax
     o, dx, dv (sums)      O, dQ or dK, dV     rows x D or DV      registers, until the epilogue stores or adds them
     stat, l               lse                 [B,H,Tq]            device memory: the log-sum-exp, or eps + sum_j P_ij
     row scale c           -                   per query           1, 1/n, sqrt(length/n) or 1/(eps + sum_j P_ij)
     w                     -delta, scaled      per query           -dO.O for softmax, -c dO.O with a row sum, else 0
     row_stats             lse, delta          [B,H,Tq] x float4   device memory: c, w, l, 0 of each query, for backward
     redo                  -                   [B*H,blocks of 64]  device memory: 1 if a result of tensor cores is not finite
     resident, streamed    -                   tiles               backward: the rows that a block owns and whose gradients
                                                                   it sums, and the rows of the other side that it walks over

   Kernels, by fixed rules of dtype and shape (>>cuda-attention-choose):
   tnc_attend_split, _combine      up to 4 queries (decoding), any dtype, forward: split-K, the keys are split between blocks
   tnc_attend_mma, _mma_back       BF16 operands, or F32 ones that TN_GEMM_BF16 allows to be rounded; at least 128 keys, head
                                   dimensions up to 128: tensor cores with F32 sums
   tnc_attend_wgmma, _back_wgmma   the same on request with D = DV = 64 or 128, for capability 9.0
   tnc_attend_tma, _back_tma       those with loads by TMA, where tensor maps can describe the operands
   tnc_attend_plain, _plain_back   everything else, in the precision of the dtype: any head dimension and length; and blocks
                                   with a result of tensor cores that is not finite

   The backward pass is two launches of one template: in one, blocks own key blocks and walk over the queries that see them
   (dk, dv); in the other, blocks own query blocks and walk over their keys (dq). Both recompute the scores from the inputs,
   the log-sum-exp and row_stats. Every sum is computed by one block in one order: there are no atomics, and results are
   bit-identical in every run.

   Flops per pair (query, key): forward 2 sets d + 2 dv; backward, where both launches compute scores and u V^T, 4 sets d +
   4 dv for the keys and 4 sets d + 2 dv for the queries, together 8 sets d + 6 dv. Floor in bytes: each operand once, which
   is negligible beside the flops for more than about 100 keys. */

#define TNC_LOG2E 1.4426950408889634

/* An operand [B,T,heads,d] whose last axis has stride 1: its first element and the strides of the other axes. */
typedef struct tnc_heads { void *data; int64_t b, t, h; } tnc_heads;

typedef struct tnc_attend {
    tnc_heads q, k, v, o, dout, dq, dk, dv;
    void     *stat;                      /* [B,H,Tq]: l_i, or eps + the sum of the row; NULL if it is not needed */
    void     *row_stats;                 /* backward [B,H,Tq,4]: c_i, w_i, l_i, 0; split-K: partial results      */
    int      *redo;                      /* [heads,blocks of 64 rows]: 1 where the plain kernels must recompute  */
    int64_t   B, H, Tq, Tk, n_qk, n_v;   /* head dimensions of q and k, of v                                     */
    int64_t   window, past;
    int       kind, row;
    bool      causal, sums;
    bool      wide;                      /* tensor cores: outputs are F32, not BF16                              */
    bool      add;                       /* backward: the gradients are added to, not overwritten                */
    int       group, group_blocks;       /* tensor cores: heads of a group, and their blocks                     */
    double    scale, length, eps, unit;  /* unit: factor of l_i in row_stats                                     */
    float     score, power, square;      /* scale; scale / ln 2; scale squared                                   */
} tnc_attend;

/* Kernels with tensor cores for head dimensions up to d and dv, and the shared memory that they need. */
typedef struct tnc_attend_size {
    int  d, dv;
    struct { int shared; void (*run)(tnc *, const tnc_attend &, bool); } kind[3];           /* indexed by tn_attend_kind */
} tnc_attend_size;

template <typename T> static __device__ __forceinline__ T *tnc_head(const tnc_heads &x, int64_t b, int64_t t, int64_t h)
{
    return (T *)x.data + b * x.b + t * x.t + h * x.h;
}

/* Number of 64-row blocks of all heads */
static inline int64_t tnc_attend_tiles(const tnc_attend &p, int64_t T) { return tnc_ceil(T, 64) * p.B * p.H; }

/* A range of keys or queries; tnc_attend_keys_of: the keys that are visible to query i. Neither bound decreases as i grows.
   Int: int in kernels that are short of registers. */
template <typename Int> struct tnc_span { Int low, high; };

template <typename Int> static __device__ __forceinline__ tnc_span<Int> tnc_attend_keys_of(const tnc_attend &p, Int i)
{
    const Int     Tk = (Int)p.Tk, diagonal = Tk - (Int)p.Tq + i, window = (Int)p.window;
    tnc_span<Int> s = { 0, Tk };
    if (window > 0 && diagonal - window + 1 > 0) s.low = diagonal - window + 1;
    if (p.causal) s.high = diagonal + 1;
    else if (window > 0 && diagonal + window < Tk) s.high = diagonal + window;
    if (s.high < s.low) s.high = s.low;
    return s;
}

/* The queries [low,high) to which some key of [first,last] may be visible: the function above, solved for i. */
template <typename Int>
static __device__ __forceinline__ tnc_span<Int> tnc_attend_queries_of(const tnc_attend &p, Int first, Int last)
{
    const Int     Tq = (Int)p.Tq, ahead = (Int)p.Tk - Tq, window = (Int)p.window;
    tnc_span<Int> s = { 0, Tq };
    if (p.causal) s.low = first - ahead;
    else if (window > 0) s.low = first - ahead - window + 1;
    if (window > 0 && last - ahead + window < Tq) s.high = last - ahead + window;
    if (s.low < 0) s.low = 0;
    return s;
}

/* The row scale c_i, if it depends on the number of visible keys alone */
template <typename R, typename Int> static __device__ R tnc_attend_row_scale(const tnc_attend &p, tnc_span<Int> s)
{
    const R n = R((int64_t)(s.high - s.low) + p.past);
    if (p.row == TN_ROW_SCALE_LENGTH) return n > R(p.length) ? sqrt(R(p.length) / n) : R(1);
    if (p.row == TN_ROW_SCALE_MEAN) return n > R(0) ? R(1) / n : R(0);
    return R(1);
}

/* Whether o_i is 0 for any values: no key is visible, or (softmax) every score is -inf. `most`: the largest score. */
template <typename R>
static __device__ __forceinline__ bool tnc_attend_is_zero(const tnc_attend &p, tnc_span<int64_t> visible, R most)
{
    return visible.high == visible.low || (p.kind == TN_ATTEND_SOFTMAX && most == -R(INFINITY));
}

/* The epilogue of a query: o_i = factor * sum_j P_ij v_j. Returns the factor, and adds eps to the row sum, which
   is saved. */
template <typename R> static __device__ R tnc_attend_epilogue(const tnc_attend &p, tnc_span<int64_t> visible, R *sum)
{
    R factor = tnc_attend_row_scale<R>(p, visible);
    if (p.sums) *sum += R(p.eps);
    return p.kind == TN_ATTEND_SOFTMAX || p.sums ? factor / *sum : factor;
}

/* The factor e^(from - to) that rescales sums when the running maximum changes. */
template <typename R> static __device__ __forceinline__ R tnc_attend_rescale(R from, R to)
{
    return from == -R(INFINITY) ? R(0) : exp(from - to);
}

/* The larger of two numbers, or NaN if one of them is NaN. */
template <typename R> static __device__ __forceinline__ R tnc_attend_max(R a, R b) { return b > a || b != b ? b : a; }

/* ---- what the backward pass needs of each query --------------------------------------------------- >>cuda-attention-delta
   row_stats = c_i, w_i, l_i, 0. Where w needs the dot product of dO_i and o_i (DOTS) a warp computes a query, else a thread.
   In FlashAttention this is the preprocessing kernel that computes delta. */

template <typename R> struct alignas(16) tnc_attend_stats { R c, w, l, none; };

template <typename T, bool DOTS> static __global__ void tnc_attend_delta(tnc_attend p)
{
    typedef typename tnc_real<T>::type R;
    enum { team = DOTS ? 32 : 1 };
    const int     lane = (int)threadIdx.x % team;
    const int64_t teams = (int64_t)gridDim.x * blockDim.x / team;
    for (int64_t n = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / team; n < p.B * p.H * p.Tq; n += teams) {
        const int64_t i = n % p.Tq;
        const bool    softmax = p.kind == TN_ATTEND_SOFTMAX;
        const R       stat = p.stat ? ((const R *)p.stat)[n] : R(0);
        R             c = p.sums ? R(1) / stat : tnc_attend_row_scale<R>(p, tnc_attend_keys_of(p, i)), dot = R(0);
        if (DOTS) {
            const int64_t h = n / p.Tq % p.H, b = n / p.Tq / p.H;
            const T      *o = tnc_head<T>(p.o, b, i, h), *dout = tnc_head<T>(p.dout, b, i, h);
            for (int64_t e = lane; e < p.n_v; e += 32) dot = fma(R(tnc_to(dout[e])), R(tnc_to(o[e])), dot);
            dot = tnc_warp_sum(dot);
        }
        if (lane > 0) continue;
        /* without a visible key e^(s - l) must be 0 */
        TNC_VECTOR(tnc_attend_stats<R>, (R *)p.row_stats + 4 * n) = tnc_attend_stats<R>{
            c, p.sums ? -dot * c : -dot, softmax && stat == -R(INFINITY) ? R(INFINITY) : stat * R(p.unit), R(0) };
    }
}

#ifndef TNC_ONE_FILE
/* attention_tensor.cu */
TNC_FN int64_t tnc_attend_max_visible(const tnc_attend &p, int64_t T);
TNC_FN const tnc_attend_size *tnc_attend_size_of(const tnc *s, const tnc_attend &p, tn_dtype dtype);
TNC_FN size_t tnc_attend_redo_bytes(const tnc_attend &p, bool back);
TNC_FN tn_status tnc_attend_operands(tnc *s, tnc_attend *p, const tnc_attend_size *size, tn_dtype dtype,
                                     size_t taken, bool back, void **scratch);
#endif
