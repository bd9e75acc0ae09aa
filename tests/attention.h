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
    int64_t n = plain_sets(a) * a->H, e;
    double sum = 0;
    for (e = 0; e < a->d; e++) sum += q[((b * a->Tq + i) * n + head) * a->d + e] * k[((b * a->Tk + j) * n + head) * a->d + e];
    return sum * a->scale;
}

/* One row of the pattern, P [Tk], with the row scale in it. */
static inline void plain_pattern(const plain_attention *a, const double *q, const double *k, int64_t b, int64_t h, int64_t i, double *P)
{
    double  sum = 0, most = -HUGE_VAL, factor = 1;
    int64_t n = 0, j;
    for (j = 0; j < a->Tk; j++) {
        double s = plain_score(a, q, k, b, h, i, j);
        P[j] = 0;
        if (!plain_sees(a, i, j)) continue;
        n++;
        P[j] = a->kind == TN_ATTEND_SOFTMAX ? s : a->kind == TN_ATTEND_SQUARED ? s * s : s * plain_score(a, q, k, b, a->H + h, i, j);
        most = fmax(most, P[j]);
    }
    for (j = 0; j < a->Tk; j++) {
        if (!plain_sees(a, i, j)) continue;
        if (a->kind == TN_ATTEND_SOFTMAX) P[j] = exp(P[j] - most);
        sum += P[j];
    }
    if (a->row == TN_ROW_LENGTH && n > a->length) factor = sqrt((double)a->length / (double)n);
    if (a->row == TN_ROW_MEAN && n > 0) factor = 1 / (double)n;
    if (a->row == TN_ROW_SUM) factor = 1 / (sum + a->eps);
    if (a->kind == TN_ATTEND_SOFTMAX && n > 0) factor /= sum;
    for (j = 0; j < a->Tk; j++) P[j] *= factor;
}

static inline void plain_attend(const plain_attention *a, const double *q, const double *k, const double *v, double *o)
{
    double *P = (double *)malloc(sizeof(double) * (size_t)(a->Tk + 1));
    int64_t b, i, h, j, e;
    for (b = 0; b < a->B; b++)
        for (i = 0; i < a->Tq; i++)
            for (h = 0; h < a->H; h++) {
                double *to = o + ((b * a->Tq + i) * a->H + h) * a->dv;
                plain_pattern(a, q, k, b, h, i, P);
                for (e = 0; e < a->dv; e++) {
                    to[e] = 0;
                    for (j = 0; j < a->Tk; j++) to[e] += P[j] * v[((b * a->Tk + j) * a->H + h) * a->dv + e];
                }
            }
    free(P);
}

/* The same numbers as the library wants them. */
static inline tn_attend_desc plain_attend_desc(const plain_attention *a, tn_attend_form form)
{
    tn_attend_desc d;
    memset(&d, 0, sizeof d);
    d.kind = a->kind;
    d.form = form;
    d.causal = a->causal;
    d.window = a->window;
    d.scale = a->scale;
    d.row = a->row;
    d.length = a->length;
    d.eps = a->eps;
    return d;
}

/* One row [d] at a position: divided by its root mean square (eps >= 0), then turned (base > 0). */
static inline void plain_rope(const double *x, int64_t d, int64_t position, double base, double eps, double *y)
{
    double  squares = 0, size = 1;
    int64_t k, h = d / 2;
    for (k = 0; k < d; k++) squares += x[k] * x[k];
    if (eps >= 0) size = sqrt(squares / (double)d + eps);
    for (k = 0; k < d; k++) y[k] = x[k] / size;
    for (k = 0; k < h && base > 0; k++) {
        double angle = (double)position / pow(base, 2 * (double)k / (double)d), a = y[k], b = y[k + h];
        y[k] = cos(angle) * a - sin(angle) * b;
        y[k + h] = sin(angle) * a + cos(angle) * b;
    }
}

#endif
