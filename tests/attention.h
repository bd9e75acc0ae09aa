/* attention.h: attention and rotary positions as their definitions say, in plain double loops: every pair has its pattern P written
   down. The oracle of test_attention.c and of the cases. */

#ifndef TN_ATTENTION_H
#define TN_ATTENTION_H

#include "test.h"

/* q [B,Tq,s H,d], k [B,Tk,s H,d], v [B,Tk,H,dv], contiguous. The numbers of a tn_attend_desc, none of them left to a default. */
typedef struct plain_attention {
    tn_attend_kind kind;
    bool           causal;
    tn_row_scale   row;
    int64_t        B, Tq, Tk, H, d, dv, window, length;
    double         scale, eps;
} plain_attention;

static inline int64_t plain_sets(const plain_attention *a) { return a->kind == TN_ATTEND_BILINEAR ? 2 : 1; }

static inline bool plain_sees(const plain_attention *a, int64_t i, int64_t j)
{
    int64_t at = a->Tk - a->Tq + i;
    if (a->causal && j > at) return false;
    return a->window == 0 || (j > at - a->window && (a->causal || j < at + a->window));
}

static inline double plain_score(const plain_attention *a, const double *q, const double *k, int64_t b, int64_t head, int64_t i, int64_t j)
{
    int64_t n = plain_sets(a) * a->H;
    double sum = 0;
    for (int64_t e = 0; e < a->d; e++)
        sum += q[((b * a->Tq + i) * n + head) * a->d + e] * k[((b * a->Tk + j) * n + head) * a->d + e];
    return sum * a->scale;
}

/* One row of the pattern, P [Tk], with the row scale in it. */
static inline void plain_pattern(const plain_attention *a, const double *q, const double *k, int64_t b, int64_t h, int64_t i, double *P)
{
    double  sum = 0, most = -HUGE_VAL, factor = 1;
    int64_t n = 0;
    for (int64_t j = 0; j < a->Tk; j++) {
        double s = plain_score(a, q, k, b, h, i, j);
        P[j] = 0;
        if (!plain_sees(a, i, j)) continue;
        n++;
        P[j] = a->kind == TN_ATTEND_SOFTMAX ? s : a->kind == TN_ATTEND_SQUARED ? s * s : s * plain_score(a, q, k, b, a->H + h, i, j);
        if (P[j] > most) most = P[j];
    }
    for (int64_t j = 0; j < a->Tk; j++) {
        if (!plain_sees(a, i, j)) continue;
        if (a->kind == TN_ATTEND_SOFTMAX) P[j] = exp(P[j] - most);
        sum += P[j];
    }
    if (a->row == TN_ROW_SCALE_LENGTH && n > a->length) factor = sqrt((double)a->length / (double)n);
    if (a->row == TN_ROW_SCALE_MEAN && n > 0) factor = 1 / (double)n;
    if (a->row == TN_ROW_SCALE_SUM) factor = 1 / (sum + a->eps);
    if (a->kind == TN_ATTEND_SOFTMAX && n > 0) factor /= sum;
    for (int64_t j = 0; j < a->Tk; j++) P[j] *= factor;
}

static inline void plain_attend(const plain_attention *a, const double *q, const double *k, const double *v, double *o)
{
    double *P = (double *)malloc(sizeof(double) * (size_t)(a->Tk + 1));
    for (int64_t b = 0; b < a->B; b++)
        for (int64_t i = 0; i < a->Tq; i++)
            for (int64_t h = 0; h < a->H; h++) {
                double *to = o + ((b * a->Tq + i) * a->H + h) * a->dv;
                plain_pattern(a, q, k, b, h, i, P);
                for (int64_t e = 0; e < a->dv; e++) {
                    to[e] = 0;
                    for (int64_t j = 0; j < a->Tk; j++) to[e] += P[j] * v[((b * a->Tk + j) * a->H + h) * a->dv + e];
                }
            }
    free(P);
}

/* The same numbers as the library wants them. */
static inline tn_attend_desc plain_attend_desc(const plain_attention *a, tn_attend_form form)
{
    tn_attend_desc d = ZERO;
    d.kind = a->kind;
    d.form = form;
    d.bidirectional = !a->causal;
    d.window = a->window;
    d.scale = a->scale;
    d.row_scale = a->row;
    d.row_length = a->length;
    d.eps = a->eps;
    return d;
}

/* One row [d] at a position: divided by its root mean square (eps >= 0), then turned (base > 0). */
/* scaling: as transformers computes "llama3", or "linear" where context is 0; NULL: none */
static inline void plain_rope_scaled(const double *x, int64_t d, int64_t position, double base, const tn_rope_scaling *scaling,
                                     double eps, double *y)
{
    double  squares = 0, size = 1;
    int64_t h = d / 2;
    for (int64_t k = 0; k < d; k++) squares += x[k] * x[k];
    if (eps >= 0) size = sqrt(squares / (double)d + eps);
    for (int64_t k = 0; k < d; k++) y[k] = x[k] / size;
    for (int64_t k = 0; k < h && base > 0; k++) {
        double rate = 1 / pow(base, 2 * (double)k / (double)d), wave = 6.283185307179586477 / rate, a = y[k], b = y[k + h];
        if (scaling && (scaling->context == 0 || wave > scaling->context / scaling->low)) rate /= scaling->factor;
        else if (scaling && wave >= scaling->context / scaling->high) {
            const double smooth = (scaling->context / wave - scaling->low) / (scaling->high - scaling->low);
            rate = (1 - smooth) * rate / scaling->factor + smooth * rate;
        }
        double angle = (double)position * rate;
        y[k] = cos(angle) * a - sin(angle) * b;
        y[k + h] = sin(angle) * a + cos(angle) * b;
    }
}

static inline void plain_rope(const double *x, int64_t d, int64_t position, double base, double eps, double *y)
{
    plain_rope_scaled(x, d, position, base, NULL, eps, y);
}

/* ---- the layer ------------------------------------------------------------------------------------------------------------- */

/* The weights of a tn_attention, row-major; those that it does not have are NULL. */
typedef struct plain_weights { const double *qk, *v, *o, *qkb, *vb, *ob, *lambda, *mix; } plain_weights;

static inline double *plain_rows_of(const double *x, const double *w, const double *b, int64_t rows, int64_t n, int64_t m)
{
    double *y = (double *)calloc((size_t)(rows * m + 1), sizeof *y);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < m; i++) {
            y[r * m + i] = b ? b[i] : 0;
            for (int64_t j = 0; j < n; j++) y[r * m + i] += w[i * n + j] * x[r * n + j];
        }
    return y;
}

/* Heads [from,from+n) of x [rows,all,d]. */
static inline double *plain_heads(const double *x, int64_t rows, int64_t all, int64_t from, int64_t n, int64_t d)
{
    double *y = (double *)malloc(sizeof *y * (size_t)(rows * n * d + 1));
    for (int64_t r = 0; r < rows && n * d > 0; r++) memcpy(y + r * n * d, x + (r * all + from) * d, sizeof *y * (size_t)(n * d));
    return y;
}

static inline double plain_lambda(const tn_attention_desc *d, const double *lambda)
{
    double  first = 0, second = 0;
    int64_t n = d->d_qk;
    if (d->kind == TN_ATTENTION_DIFFERENTIAL_PLAIN) return lambda[0];
    for (int64_t i = 0; i < n; i++) { first += lambda[i] * lambda[n + i]; second += lambda[2 * n + i] * lambda[3 * n + i]; }
    return exp(first) - exp(second) + 0.8 - 0.6 * exp(-0.3 * (double)d->depth);
}

/* What the heads read before their norm: x [B,T,dim], v [B,T,heads,dv] -> o [B,T,heads,dv]. d: as an init has left it. Returns the least
   root mean square of a row that is divided by it: where that is small there is a kink. */
static inline double plain_attention_heads(const tn_attention_desc *d, plain_weights w, const double *x, const double *v, int64_t dv, int64_t B,
                                           int64_t T, double *o)
{
    const bool    differential = d->kind >= TN_ATTENTION_DIFFERENTIAL;
    const int64_t s = d->kind >= TN_ATTENTION_BILINEAR ? 2 : 1, H = d->heads, rows = B * T, width = H * dv, all = 2 * s * H;
    double       *qk = plain_rows_of(x, w.qk, w.qkb, rows, d->dim, all * d->d_qk);
    double       *part = (double *)malloc(sizeof *o * (size_t)(rows * width + d->d_qk + 1)), least = HUGE_VAL;
    plain_attention a = ZERO;
    for (int64_t r = 0; r < rows * all; r++) {
        double *row = qk + r * d->d_qk, squares = 0;
        for (int64_t i = 0; i < d->d_qk; i++) squares += row[i] * row[i];
        if (d->qk_norm && sqrt(squares / (double)d->d_qk) < least) least = sqrt(squares / (double)d->d_qk);
        plain_rope(row, d->d_qk, r / all % T, d->no_rope ? 0 : d->rope_base > 0 ? d->rope_base : 10000,
                   !d->qk_norm ? -1 : d->qk_norm_eps > 0 ? d->qk_norm_eps : 1e-6, part);
        memcpy(row, part, sizeof *row * (size_t)d->d_qk);
    }
    a.kind = d->kind == TN_ATTENTION_SQUARED ? TN_ATTEND_SQUARED : d->kind == TN_ATTENTION_BILINEAR ? TN_ATTEND_BILINEAR : TN_ATTEND_SOFTMAX;
    a.causal = !d->bidirectional;
    a.row = d->row_scale ? d->row_scale : a.kind == TN_ATTEND_SOFTMAX ? TN_ROW_SCALE_NONE : TN_ROW_SCALE_LENGTH;
    a.B = B; a.Tq = a.Tk = T; a.H = H; a.d = d->d_qk; a.dv = dv;
    a.window = d->window;
    a.length = d->row_length ? d->row_length : 512;
    a.scale = d->scale != 0 ? d->scale : a.kind == TN_ATTEND_SOFTMAX ? 1 / sqrt((double)d->d_qk) : 1 / (double)d->d_qk;
    a.eps = 1e-6;
    for (int64_t i = 0; i < rows * width; i++) o[i] = 0;
    for (int64_t set = 0; set < (differential ? 2 : 1); set++) {
        const int64_t n = differential ? H : s * H;
        double *q = plain_heads(qk, rows, all, set * H, n, d->d_qk), *k = plain_heads(qk, rows, all, s * H + set * H, n, d->d_qk);
        plain_attend(&a, q, k, v, part);
        for (int64_t i = 0; i < rows * width; i++) o[i] += set ? -plain_lambda(d, w.lambda) * part[i] : part[i];
        free(q);
        free(k);
    }
    free(qk); free(part);
    return least;
}

/* The pattern of each head, p [B,heads,T,T]: what it reads where the values of position j are row j of the identity. */
static inline double plain_attention_pattern(const tn_attention_desc *d, plain_weights w, const double *x, int64_t B, int64_t T, double *p)
{
    const int64_t H = d->heads, size = B * T * H * T + 1;
    double *v = (double *)calloc((size_t)size, sizeof *v), *read = (double *)calloc((size_t)size, sizeof *read);
    for (int64_t r = 0; r < B * T * H; r++) v[r * T + r / H % T] = 1;
    double least = plain_attention_heads(d, w, x, v, T, B, T, read);
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t i = 0; i < T; i++)
                memcpy(p + ((b * H + h) * T + i) * T, read + ((b * T + i) * H + h) * T, sizeof *p * (size_t)T);
    free(v); free(read);
    return least;
}

/* x [B,T,dim], values [B,T,heads,d_v] or NULL -> y [B,T,out]. Returns as plain_attention_heads does. */
static inline double plain_attention_layer(const tn_attention_desc *d, plain_weights w, const double *x, const double *values, int64_t B,
                                           int64_t T, double *y)
{
    const int64_t H = d->heads, rows = B * T, width = H * d->d_v;
    double       *v = plain_rows_of(x, w.v, w.vb, rows, d->dim, width), *o = (double *)calloc((size_t)(rows * width + 1), sizeof *o);
    for (int64_t i = 0; i < rows * width && values && w.mix; i++) v[i] = w.mix[0] * v[i] + w.mix[1] * values[i];
    double least = plain_attention_heads(d, w, x, v, d->d_v, B, T, o);
    for (int64_t r = 0; r < rows * H && (d->head_norm || d->kind == TN_ATTENTION_DIFFERENTIAL); r++) {
        double *row = o + r * d->d_v, squares = 0;
        for (int64_t i = 0; i < d->d_v; i++) squares += row[i] * row[i];
        if (sqrt(squares / (double)d->d_v) < least) least = sqrt(squares / (double)d->d_v);
        for (int64_t i = 0; i < d->d_v; i++) row[i] /= sqrt(squares / (double)d->d_v + 1e-5);
        for (int64_t i = 0; i < d->d_v && d->kind == TN_ATTENTION_DIFFERENTIAL; i++)
            row[i] *= 0.2 + 0.6 * exp(-0.3 * (double)d->depth);
    }
    double *out = plain_rows_of(o, w.o, w.ob, rows, width, d->out);
    memcpy(y, out, sizeof *y * (size_t)(rows * d->out));
    free(v); free(o); free(out);
    return least;
}

#endif
