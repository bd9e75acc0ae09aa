#include "core/inner.h"
#include "ops/inner.h"
#include "ops/pass.h"

#ifndef TN_NO_SEQUENCES
/* ---- attention, quadratic ------------------------------------ >>op-attention
   o_i = c_i sum_j P_ij v_j,  s_ij = f0 q_i.k_j over the keys visible to query i
   softmax: P_ij = exp(s_ij - l_i), l_i = log sum_j exp s_ij;   bilinear: P = s1 s2;   squared: the same with both sets equal
   With u_i = c_i do_i, and w_i = -do_i.o_i (softmax), -c_i do_i.o_i (row sum, c_i = 1/(eps + sum_j P_ij)), else 0:
   dP_ij = u_i.v_j + w_i      dv_j += sum_i P_ij u_i
   softmax: ds_ij = P_ij dP_ij     else: ds1_ij = s2_ij dP_ij, ds2_ij = s1_ij dP_ij
   dq_i += f0 sum_j ds_ij k_j      dk_j += f0 sum_i ds_ij q_i
   saves l_i, or the row's eps + sum, from which P follows without another sum. The reference computes dq query by query,
   then dk and dv key by key. */
#ifdef TNI_FIRST

TNI_FN tni_seen tni_attend_seen(const tn_call *c, int64_t i)
{
    const int64_t Tk = c->in[1].shape[1], own = Tk - c->in[0].shape[1] + i, window = c->i[2];
    tni_seen s;
    s.low = window > 0 ? tni_max(own - window + 1, 0) : 0;
    s.high = c->i[1] ? own + 1 : window > 0 ? tni_min(own + window, Tk) : Tk;
    s.high = tni_max(s.high, s.low);
    s.n = s.high - s.low + c->i[3];
    return s;
}

/* c_i, if it depends on the number of keys only */
TNI_FN double tni_attend_row_scale(const tn_call *c, int64_t n)
{
    switch ((int)c->f[2]) {
    case TN_ROW_SCALE_LENGTH: return (double)n > c->f[1] ? sqrt(c->f[1] / (double)n) : 1;
    case TN_ROW_SCALE_MEAN:   return n > 0 ? 1 / (double)n : 0;
    default:            return 1;
    }
}

#endif

/* Both scores of query i and key j; with one set of q and k they are equal. */
TNI_FN void TNI_T(attend_scores)(const tn_call *c, int64_t b, int64_t h, int64_t i, int64_t j, double s[2])
{
    const int64_t H = c->in[2].shape[2], d = c->in[0].shape[3], sets = c->i[0] == TN_ATTEND_BILINEAR ? 2 : 1;
    for (int64_t set = 0; set < sets; set++) {
        const TNI_REAL *q = TNI_ROW(&c->in[0], b, i, h + set * H), *k = TNI_ROW(&c->in[1], b, j, h + set * H);
        s[set] = 0;
        for (int64_t a = 0; a < d; a++) s[set] += (double)q[a] * (double)k[a];
        s[set] *= c->f[0];
    }
    if (sets == 1) s[1] = s[0];
}

static double TNI_T(attend_largest)(const tn_call *c, int64_t b, int64_t h, int64_t i, tni_seen seen)
{
    double s[2], most = -HUGE_VAL;
    for (int64_t j = seen.low; j < seen.high; j++) {
        TNI_T(attend_scores)(c, b, h, i, j, s);
        if (s[0] > most || s[0] != s[0]) most = s[0];                  /* keeps a NaN */
    }
    return most;
}

TNI_FN void TNI_T(attention)(const tn_call *c)
{
    const tn_view *O = &c->out[0];
    const bool     softmax = c->i[0] == TN_ATTEND_SOFTMAX;
    TNI_REAL      *stat = (TNI_REAL *)c->out[1].data;
    double        *sum = (double *)c->out[2].data;                                                  /* [dv] */
    int64_t        B = O->shape[0], T = O->shape[1], H = O->shape[2], dv = O->shape[3];
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t i = 0; i < T; i++) {
                const tni_seen seen = tni_attend_seen(c, i);
                double    most = softmax ? TNI_T(attend_largest)(c, b, h, i, seen) : 0, total = 0;
                TNI_REAL *o = TNI_ROW(O, b, i, h);
                bool      none = seen.n == 0 || most == -HUGE_VAL;
                for (int64_t e = 0; e < dv; e++) sum[e] = 0;
                for (int64_t j = seen.low; j < seen.high && !none; j++) {
                    const TNI_REAL *v = TNI_ROW(&c->in[2], b, j, h);
                    double s[2];
                    TNI_T(attend_scores)(c, b, h, i, j, s);
                    double p = softmax ? exp(s[0] - most) : s[0] * s[1];
                    total += p;
                    for (int64_t e = 0; e < dv; e++) sum[e] += p * (double)v[e];
                }
                if (tni_attend_sums(c)) total += c->f[3];
                double scale = tni_attend_row_scale(c, seen.n) / (softmax || tni_attend_sums(c) ? total : 1);
                for (int64_t e = 0; e < dv; e++) o[e] = (TNI_REAL)(none ? 0 : scale * sum[e]);
                if (stat) stat[(b * H + h) * T + i] = (TNI_REAL)(softmax ? most + log(total) : total);
            }
}

/* u_i and, after it, w_i. */
TNI_FN void TNI_T(attend_upstream)(const tn_call *c, int64_t b, int64_t h, int64_t i, double *u)
{
    const TNI_REAL *dout = TNI_ROW(&c->in[5], b, i, h);
    const int64_t   T = c->in[0].shape[1], H = c->in[2].shape[2], dv = c->in[2].shape[3];
    const bool      sums = tni_attend_sums(c);
    double  scale = tni_attend_row_scale(c, tni_attend_seen(c, i).n), dot = 0;
    if (sums) scale = 1 / (double)((const TNI_REAL *)c->in[4].data)[(b * H + h) * T + i];
    for (int64_t e = 0; e < dv; e++) u[e] = scale * (double)dout[e];
    if (c->i[0] == TN_ATTEND_SOFTMAX || sums) {
        const TNI_REAL *o = TNI_ROW(&c->in[3], b, i, h);
        for (int64_t e = 0; e < dv; e++) dot += (double)dout[e] * (double)o[e];
    }
    u[dv] = -dot * (sums ? scale : 1);
}

/* P_ij, and the gradients ds of both scores times f0: softmax has one score, squared has two equal ones. */
static double TNI_T(attend_slopes)(const tn_call *c, int64_t b, int64_t h, int64_t i, int64_t j, const double *u,
                                   double ds[2])
{
    const TNI_REAL *v = TNI_ROW(&c->in[2], b, j, h);
    const int64_t   T = c->in[0].shape[1], H = c->in[2].shape[2], dv = c->in[2].shape[3];
    double  s[2], dp = u[dv];
    for (int64_t e = 0; e < dv; e++) dp += u[e] * (double)v[e];
    TNI_T(attend_scores)(c, b, h, i, j, s);
    if (c->i[0] == TN_ATTEND_SOFTMAX) {
        double whole = (double)((const TNI_REAL *)c->in[4].data)[(b * H + h) * T + i];
        double p = whole == -HUGE_VAL ? 0 : exp(s[0] - whole);
        ds[0] = c->f[0] * p * dp;
        ds[1] = 0;
        return p;
    }
    ds[0] = c->f[0] * s[1] * dp;
    ds[1] = c->f[0] * s[0] * dp;
    return s[0] * s[1];
}

/* sum [2,d] += ds times row x, of both sets */
static void TNI_T(attend_add)(const tn_call *c, const tn_view *x, int64_t b, int64_t h, int64_t t, const double ds[2],
                              double *sum)
{
    const int64_t H = c->in[2].shape[2], d = x->shape[3], other = c->i[0] == TN_ATTEND_BILINEAR ? H : 0;
    for (int64_t set = 0; set < 2; set++) {
        const TNI_REAL *from = TNI_ROW(x, b, t, h + set * other);
        for (int64_t a = 0; a < d; a++) sum[set * d + a] += ds[set] * (double)from[a];
    }
}

/* Row t of the gradient of q or k (+)= sum [2,d]. */
TNI_FN void TNI_T(attend_store)(const tn_call *c, const tn_view *dx, int64_t b, int64_t h, int64_t t, const double *sum)
{
    const int64_t H = c->in[2].shape[2], d = dx->shape[3], two = c->i[0] == TN_ATTEND_BILINEAR;
    if (!dx->data) return;
    for (int64_t set = 0; set <= two; set++) {
        TNI_REAL *to = TNI_ROW(dx, b, t, h + set * H);
        for (int64_t a = 0; a < d; a++) {
            const double v = sum[set * d + a] + (two ? 0 : sum[d + a]);
            to[a] = (TNI_REAL)(c->accumulate ? (double)to[a] + v : v);
        }
    }
}

/* Row j of dv (+)= sum [dv]. */
TNI_FN void TNI_T(attend_store_v)(const tn_call *c, int64_t b, int64_t h, int64_t j, const double *sum)
{
    const tn_view *dv = &c->out[2];
    TNI_REAL      *to = TNI_ROW(dv, b, j, h);
    for (int64_t e = 0; dv->data && e < dv->shape[3]; e++) to[e] = (TNI_REAL)(c->accumulate ? (double)to[e] + sum[e] : sum[e]);
}

/* Adds the pair (i,j) to the sums of query i (dq [2,d]), or of key j (dk [2,d] and, after it, dv); the other is NULL. */
TNI_FN void TNI_T(attend_pair)(const tn_call *c, int64_t b, int64_t h, int64_t i, int64_t j, const double *u, double *dq,
                               double *dk)
{
    const int64_t d = c->in[0].shape[3], dv = c->in[2].shape[3];
    double  ds[2], p = TNI_T(attend_slopes)(c, b, h, i, j, u, ds);
    if (dq) TNI_T(attend_add)(c, &c->in[1], b, h, j, ds, dq);
    if (!dk) return;
    TNI_T(attend_add)(c, &c->in[0], b, h, i, ds, dk);
    for (int64_t e = 0; e < dv; e++) dk[2 * d + e] += p * u[e];
}

TNI_FN void TNI_T(attention_backward)(const tn_call *c)
{
    const tn_view *Q = &c->in[0], *V = &c->in[2];
    int64_t        d = Q->shape[3], dv = V->shape[3];
    double  *u = (double *)c->out[3].data, *sum = u + dv + 1;                           /* [dv+1], [2 d + dv + 1] */
    for (int64_t b = 0; b < V->shape[0]; b++)
        for (int64_t h = 0; h < V->shape[2]; h++) {
            for (int64_t i = 0; i < Q->shape[1]; i++) {
                const tni_seen seen = tni_attend_seen(c, i);
                for (int64_t a = 0; a < 2 * d; a++) sum[a] = 0;
                TNI_T(attend_upstream)(c, b, h, i, u);
                for (int64_t j = seen.low; j < seen.high; j++) TNI_T(attend_pair)(c, b, h, i, j, u, sum, NULL);
                TNI_T(attend_store)(c, &c->out[0], b, h, i, sum);
            }
            for (int64_t j = 0; j < V->shape[1]; j++) {
                for (int64_t a = 0; a < 2 * d + dv; a++) sum[a] = 0;
                for (int64_t i = 0; i < Q->shape[1]; i++) {
                    const tni_seen seen = tni_attend_seen(c, i);
                    if (j < seen.low || j >= seen.high) continue;
                    TNI_T(attend_upstream)(c, b, h, i, u);
                    TNI_T(attend_pair)(c, b, h, i, j, u, NULL, sum);
                }
                TNI_T(attend_store)(c, &c->out[1], b, h, j, sum);
                TNI_T(attend_store_v)(c, b, h, j, sum + 2 * d);
            }
        }
}
#endif /* TN_NO_SEQUENCES */

#define TNI_AGAIN "ops/attention.c"
#include "ops/again.h"
