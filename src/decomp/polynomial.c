#include "core/inner.h"
#include "decomp/inner.h"

#ifndef TN_NO_OPERATOR
/* ---- polynomials fitted to samples --------------------------------------- >>polynomial-impl
   The rows sqrt(w) [T_0(z), .., T_d(z), y] of all samples have a QR decomposition whose factor R [d+2,d+2] is all that is kept:
   a new row is rotated into it (Golub & Van Loan 2013, 5.1.8). Its leading columns give the fit of every degree up to d, and
   the rest of the last column its error. Chebyshev polynomials on the range of the samples are far from dependent, where
   powers are nearly so. docs/math.md 21 */

enum { TNI_POLYNOMIAL_ROW = TN_POLYNOMIAL_MAX + 2 };         /* numbers of a row of R */

tn_status tn_polynomial_fit_init(tn_ctx *ctx, int degree, double low, double high, tn_polynomial_fit *fit)
{
    if (!ctx || !fit) return tni_fail(ctx, TN_ERR_ARG, "polynomial_fit: %s is NULL", ctx ? "fit" : "ctx");
    memset(fit, 0, sizeof *fit);
    if (!tni_within(ctx, "polynomial_fit", "degree", degree, 1, TN_POLYNOMIAL_MAX)) return TN_ERR_ARG;
    if (!(low < high) || !(high - low < HUGE_VAL))
        return tni_fail(ctx, TN_ERR_ARG, "polynomial_fit: the range is %g to %g, expected two finite numbers, the first of them "
                        "smaller", low, high);
    fit->ctx = ctx;
    fit->degree = degree;
    fit->low = low;
    fit->high = high;
    return TN_OK;
}

/* Rotates a row [n] into r, which is upper triangular. */
static void tni_polynomial_rotate(int n, double *r, double *row)
{
    for (int k = 0; k < n; k++, r += TNI_POLYNOMIAL_ROW) {
        const double length = row[k] != 0 ? hypot(r[k], row[k]) : 0;
        if (length == 0) continue;
        const double c = r[k] / length, s = row[k] / length;
        for (int j = k; j < n; j++) {
            const double t = r[j];
            r[j] = c * t + s * row[j];
            row[j] = c * row[j] - s * t;
        }
    }
}

tn_status tn_polynomial_fit_add(tn_polynomial_fit *fit, int64_t n, const double *x, const double *y, const double *weights)
{
    if (!fit || !fit->ctx) return TN_ERR_ARG;
    const double centre = fit->low + (fit->high - fit->low) / 2, width = (fit->high - fit->low) / 2;
    double       row[TNI_POLYNOMIAL_ROW];
    if (n > 0 && (!x || !y)) return tni_fail(fit->ctx, TN_ERR_ARG, "polynomial_fit: %s is NULL", x ? "y" : "x");
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]) || !isfinite(y[i]) || (weights && (!isfinite(weights[i]) || weights[i] < 0)))
            return tni_fail(fit->ctx, TN_ERR_NONFINITE, "polynomial_fit: sample %lld has x %g, y %g and weight %g, expected "
                            "finite numbers and a weight of at least 0", (long long)i, x[i], y[i], weights ? weights[i] : 1);
    for (int64_t i = 0; i < n; i++) {
        const double root = weights ? sqrt(weights[i]) : 1, z = (x[i] - centre) / width;
        if (root == 0) continue;
        row[0] = root;
        row[1] = root * z;
        for (int k = 2; k <= fit->degree; k++) row[k] = 2 * z * row[k - 1] - row[k - 2];
        row[fit->degree + 1] = root * y[i];
        tni_polynomial_rotate(fit->degree + 2, fit->r, row);
        fit->samples++;
    }
    return TN_OK;
}

/* The largest degree up to `degree` that the samples determine, -1 for none. Of a dependent column rounding
   is left on the diagonal. */
static int tni_polynomial_determined(const tn_polynomial_fit *fit, int degree)
{
    int k = 0;
    for (; k <= degree; k++) {
        double length = 0;
        for (int i = 0; i <= k; i++) length = hypot(length, fit->r[i * TNI_POLYNOMIAL_ROW + k]);
        if (!(fabs(fit->r[k * TNI_POLYNOMIAL_ROW + k]) > 1e-12 * length)) break;
    }
    return k - 1;
}

/* c[0..d] becomes the sum of c[k] T_k(z) in powers of z. */
static void tni_polynomial_powers(int d, double *c)
{
    double t[3][TN_POLYNOMIAL_MAX + 1] = {{0}}, sum[TN_POLYNOMIAL_MAX + 1] = {0};
    t[0][0] = 1;
    for (int k = 0; k <= d; k++) {
        double *now = t[k % 3], *before = t[(k + 2) % 3], *oldest = t[(k + 1) % 3];
        for (int i = 0; k > 0 && i <= k; i++) now[i] = (i > 0 ? (k > 1 ? 2 : 1) * before[i - 1] : 0) - (k > 1 ? oldest[i] : 0);
        for (int i = 0; i <= k; i++) sum[i] += c[k] * now[i];
    }
    memcpy(c, sum, sizeof sum);
}

tn_status tn_polynomial_fit_read(const tn_polynomial_fit *fit, int degree, tn_polynomial *out)
{
    if (out) memset(out, 0, sizeof *out);
    if (!fit || !fit->ctx) return TN_ERR_ARG;
    if (!out) return tni_fail(fit->ctx, TN_ERR_ARG, "polynomial_fit: out is NULL");
    if (!tni_within(fit->ctx, "polynomial_fit", "degree", degree, 1, fit->degree)) return TN_ERR_ARG;
    const int last = fit->degree + 1, determined = tni_polynomial_determined(fit, degree);
    double    rest = 0, variance;
    if (determined < 0)
        return tni_fail(fit->ctx, TN_ERR_ARG, "polynomial_fit: no sample has a weight, expected at least %d for degree %d",
                        degree + 1, degree);
    if (determined < degree)
        return tni_fail(fit->ctx, TN_ERR_ARG, "polynomial_fit: %lld samples with a weight determine only a polynomial of degree "
                        "%d, expected %d: too few different x, or too close together", (long long)fit->samples, determined,
                        degree);
    out->degree = degree;
    out->centre = fit->low + (fit->high - fit->low) / 2;
    out->width = (fit->high - fit->low) / 2;
    for (int k = degree; k >= 0; k--) {
        double c = fit->r[k * TNI_POLYNOMIAL_ROW + last];
        for (int j = k + 1; j <= degree; j++) c -= fit->r[k * TNI_POLYNOMIAL_ROW + j] * out->c[j];
        out->c[k] = c / fit->r[k * TNI_POLYNOMIAL_ROW + k];
    }
    tni_polynomial_powers(degree, out->c);
    for (int k = degree + 1; k <= last; k++) rest = hypot(rest, fit->r[k * TNI_POLYNOMIAL_ROW + last]);
    variance = rest;
    for (int k = 1; k <= degree; k++) variance = hypot(variance, fit->r[k * TNI_POLYNOMIAL_ROW + last]);
    out->rms = rest / fabs(fit->r[0]);                   /* whose square is the sum of the weights */
    out->share = variance > 0 ? 1 - rest / variance * (rest / variance) : (double)NAN;
    for (int k = 0; k <= degree; k++)
        if (!isfinite(out->c[k]) || !isfinite(out->rms))
            return tni_fail(fit->ctx, TN_ERR_NONFINITE, "polynomial_fit: coefficient %d is %g, with an error of %g, expected "
                            "finite numbers", k, out->c[k], out->rms);
    return TN_OK;
}

double tn_polynomial_value(const tn_polynomial *p, double x)
{
    if (!p) return (double)NAN;
    const double z = (x - p->centre) / p->width;
    double       y = p->c[p->degree];
    for (int k = p->degree; k-- > 0;) y = y * z + p->c[k];
    return y;
}
#endif /* TN_NO_OPERATOR */
