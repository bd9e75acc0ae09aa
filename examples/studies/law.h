/* law.h - sums of power laws, fitted: y = E + A x^-a, or E + A x1^-a + B x2^-b, by few and noisy numbers

   The fit minimises the Huber loss (delta 1e-3) of ln y over ln E, ln A, a, ln B and b, as Hoffmann et al. 2022 do
   (arXiv:2203.15556, appendix D.3), by damped Gauss-Newton steps (Levenberg 1944, Marquardt 1963) from several starts: an
   outlier pulls no harder than one of delta does. Included as program.h is. */
#ifndef EXAMPLES_LAW_H
#define EXAMPLES_LAW_H

#include "program.h"

enum { MAX_TERMS = 2, MAX_NUMBERS = 1 + 2 * MAX_TERMS };
#define HUBER 1e-3

/* ln y = ln(e^p0 + sum over k of e^p(2k+1) e^(-p(2k+2) (ln x_k - centre_k))) */
typedef struct law { double p[MAX_NUMBERS], centre[MAX_TERMS]; } law;
typedef struct sample { double x[MAX_TERMS], y; } sample;     /* logarithms */

/* ln y, at logarithms less the centre, and its derivatives by p. */
static inline double law_at(int terms, const double *p, const double *x, double *slope)
{
    double part[1 + MAX_TERMS], sum = part[0] = exp(p[0]);
    for (int k = 0; k < terms; k++) sum += part[1 + k] = exp(p[1 + 2 * k] - p[2 + 2 * k] * x[k]);
    slope[0] = part[0] / sum;
    for (int k = 0; k < terms; k++) {
        slope[1 + 2 * k] = part[1 + k] / sum;
        slope[2 + 2 * k] = -x[k] * part[1 + k] / sum;
    }
    return log(sum);
}

/* The sum of the Huber losses. m: the matrix of the step and, in its last column, the right side. */
static inline double misfit(int terms, const double *p, const sample *s, int count, double m[MAX_NUMBERS][MAX_NUMBERS + 1])
{
    const int n = 1 + 2 * terms;
    double    sum = 0, d[MAX_NUMBERS];
    memset(m, 0, sizeof(double[MAX_NUMBERS][MAX_NUMBERS + 1]));
    for (int i = 0; i < count; i++) {
        const double r = s[i].y - law_at(terms, p, s[i].x, d), size = fabs(r), w = size <= HUBER ? 1 : HUBER / size;
        sum += size <= HUBER ? r * r / 2 : HUBER * (size - HUBER / 2);
        for (int a = 0; a < n; a++) {
            for (int b = 0; b < n; b++) m[a][b] += w * d[a] * d[b];
            m[a][MAX_NUMBERS] += w * d[a] * r;
        }
    }
    return sum;
}

/* Damped: the diagonal, by 1 + damp. By elimination, without pivots, which such a matrix does not need. */
static inline void solve(int n, double m[MAX_NUMBERS][MAX_NUMBERS + 1], double damp, double *x)
{
    double a[MAX_NUMBERS][MAX_NUMBERS + 1];
    memcpy(a, m, sizeof a);
    for (int i = 0; i < n; i++) a[i][i] += damp * a[i][i] + 1e-14;
    for (int i = 0; i < n; i++)
        for (int r = i + 1; r < n; r++) {
            const double f = a[r][i] / a[i][i];
            for (int c = i; c <= MAX_NUMBERS; c++) a[r][c] -= f * a[i][c];
        }
    for (int i = n - 1; i >= 0; i--) {
        x[i] = a[i][MAX_NUMBERS];
        for (int c = i + 1; c < n; c++) x[i] -= a[i][c] * x[c];
        x[i] /= a[i][i];
    }
}

/* Exponents are kept within 0.01 and 3. */
static inline double descend(int terms, double *p, const sample *s, int count)
{
    const int n = 1 + 2 * terms;
    double    m[MAX_NUMBERS][MAX_NUMBERS + 1], other[MAX_NUMBERS][MAX_NUMBERS + 1], step[MAX_NUMBERS], q[MAX_NUMBERS];
    double    damp = 1e-3, cost = misfit(terms, p, s, count, m);
    for (int i = 0; i < 400 && damp < 1e10; i++) {
        solve(n, m, damp, step);
        for (int k = 0; k < n; k++) q[k] = k > 0 && k % 2 == 0 ? fmin(fmax(p[k] + step[k], 0.01), 3) : p[k] + step[k];
        const double next = misfit(terms, q, s, count, other);
        damp = next < cost ? damp / 5 : 4 * damp;
        if (!(next < cost)) continue;
        memcpy(p, q, sizeof q);
        memcpy(m, other, sizeof m);
        cost = next;
    }
    return cost;
}

/* Centres the samples and fits, from the law `near` if it has one. No law of too few samples: its numbers are NaN. */
static inline law fit(int terms, sample *s, int count, const law *near)
{
    static const double shares[] = {0.3, 0.6, 0.9}, exponents[] = {0.1, 0.3, 0.8};
    law    best = {0};
    double least = HUGE_VAL, low = HUGE_VAL, mean = 0, p[MAX_NUMBERS];
    for (int i = 0; i < MAX_NUMBERS; i++) best.p[i] = NAN;
    if (count < 2 + 2 * terms) return best;
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < terms; k++) best.centre[k] += s[i].x[k] / count;
        low = fmin(low, s[i].y);
        mean += s[i].y / count;
    }
    for (int i = 0; i < count; i++) for (int k = 0; k < terms; k++) s[i].x[k] -= best.centre[k];
    for (int start = 0; start < (near ? 1 : terms > 1 ? 27 : 9); start++) {
        const double rest = (exp(mean) - shares[start % 3] * exp(low)) / terms;
        p[0] = log(shares[start % 3]) + low;
        for (int k = 0; k < terms; k++) {
            p[1 + 2 * k] = log(rest);
            p[2 + 2 * k] = exponents[start / (k ? 9 : 3) % 3];
        }
        if (near && is_number(near->p[0])) memcpy(p, near->p, sizeof p);
        const double cost = descend(terms, p, s, count);
        if (cost < least) memcpy(best.p, p, sizeof p), least = cost;
    }
    return best;
}

#endif
