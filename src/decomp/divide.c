#include "core/inner.h"
#include "kernels/inner.h"
#include "decomp/inner.h"

#ifndef TN_NO_OPERATOR
/* ---- divide and conquer ------------------------------------------------- >>eigh-divide
   Without its middle off-diagonal element +-rho, T is two blocks, whose diagonals lose rho where they meet:
   T = diag(T1,T2) + rho u u^T      in the bases Z1, Z2:      diag(d) + rho z z^T,   z = diag(Z1,Z2) u
   Cuppen 1981. If rho z_i is negligible, or two d are so close that a rotation makes it so, d_i is already an
   eigenvalue (deflation). The others lie one in each gap of the d, where
       1/rho + sum_i z_i^2/(d_i - l) = 0
   and each is stored as its distance tau from the nearer d, so that all d_i - l are accurate. The vectors
   z_i/(d_i - l) use not z but the z' for which the computed l are exact, and are therefore orthogonal:
       z'_i^2 = prod_j (l_j - d_i) / prod_(j!=i) (d_j - d_i)
   Gu & Eisenstat 1995; the iteration is Gragg's, as in Li 1993. [dlaed1, dlaed2, dlaed3, dlaed4]
   The rows of Z are floats or doubles. All that eigenvalues depend on are their first and last components, which are kept
   as doubles besides: with floats, too, eigenvalues have the accuracy of doubles. */

/* A rank-one problem of k poles, d ascending. `group` orders the poles by where their rows are not zero. */
typedef struct tni_merge {
    const tni_divide *divide;
    int64_t  k, rows;                          /* rows: of the factor, those that are wanted of the k */
    double   rho;
    double  *d, *z, *origin, *tau, *values;    /* [k]; value = origin + tau         */
    double  *pole, *weight;                    /* [k] in the order of groups: d, z' */
    double  *ends[2], *joined[2];              /* the same of the rows to join; [n], [n]: of joined rows */
    int64_t *at;                               /* [k]: place of d_j among the groups */
    int64_t  begin[2], count[2];               /* the rows whose first, and whose last component is not zero */
} tni_merge;

/* The zero x of c + left_slope left^2/(left - x) + right_slope right^2/(right - x), a function with poles at both ends of
   the gap and the given value at x = 0. left < 0 < right. */
static double tni_root_step(double left, double right, double value, double left_slope, double right_slope)
{
    double slope = left_slope + right_slope, a = (left + right) * value - left * right * slope, b = left * right * value;
    double c = value - left * left_slope - right * right_slope, root = sqrt(fmax(a * a - 4 * b * c, 0)), step;
    if (c == 0) step = b / a;
    else if (a <= 0) step = (a - root) / (2 * c);
    else step = 2 * b / (a + root);
    return step * value < 0 ? step : -value / slope;
}

/* Root j, between d_j and d_(j+1), the last one at most rho |z|^2 above its pole. low < tau < high always. The first
   step, from the middle, treats all poles except the nearest two as constant; the next steps use slope and bend
   of all of them. A root that is not found is NaN. */
static void tni_merge_root(const tni_merge *m, int64_t j)
{
    const tni_algebra *by = m->divide->host->by;
    const int64_t next_pole = j + 1, above = m->k - next_pole;
    const double  gap = above > 0 ? m->d[next_pole] - m->d[j] : m->rho * by->dot(m->k, m->z, m->z);
    double low = 0, high = gap, tau = 0.5 * gap, origin = m->d[j], width = gap;
    int    step;
    for (step = 0; step < TNI_ROOT_STEPS; step++) {
        tni_sums sum = by->poles(m->k, m->d, m->z, origin, tau);
        double   value = 1 / m->rho + sum.value, slope = sum.slope, left = (m->d[j] - origin) - tau, next;
        if (fabs(value) <= TNI_EPS * (8 * sum.size + 1 / m->rho + fabs(tau) * slope)) break;
        if (value < 0) low = tau;
        else high = tau;
        if (above == 0) next = tau + value * left / (value - slope * left);
        else {
            double right = (m->d[next_pole] - origin) - tau, ours = m->z[j] / left, theirs = m->z[next_pole] / right;
            double left_slope = (left * right * sum.bend - left * slope) / (right - left);
            next = tau + (step == 0 ? tni_root_step(left, right, value, ours * ours, theirs * theirs)
                                    : tni_root_step(left, right, value, left_slope, slope - left_slope));
        }
        if (step == 0 && value < 0 && above > 0) {           /* d_(j+1) is nearer */
            origin = m->d[next_pole];
            next -= gap;
            tau -= gap;
            low -= gap;
            high -= gap;
        }
        if (step % 8 == 7) {                                 /* too slow: bisect, by magnitude if its sign is known */
            double half = low * high > 0 ? copysign(sqrt(fabs(low)) * sqrt(fabs(high)), low) : 0.5 * (low + high);
            if (high - low > 0.25 * width) next = half;
            width = high - low;
        }
        if (!(next > low && next < high)) next = 0.5 * (low + high);
        if (next <= low || next >= high) break;              /* no float between */
        tau = next;
    }
    m->origin[j] = origin;
    m->tau[j] = tau;
    m->values[j] = step < TNI_ROOT_STEPS ? origin + tau : (double)NAN;
}

static int64_t tni_merge_end(const tni_merge *m, int64_t task) { return tni_min(m->k, (task + 1) * TNI_MERGE_SHARE); }

static void tni_merge_roots(void *arg, int64_t task, int worker)
{
    const tni_merge *m = (const tni_merge *)arg;
    (void)worker;
    for (int64_t j = task * TNI_MERGE_SHARE; j < tni_merge_end(m, task); j++) tni_merge_root(m, j);
}

/* z' of some poles, with the signs of z, which `weight` holds before the call. */
static void tni_merge_weights(void *arg, int64_t task, int worker)
{
    const tni_merge   *m = (const tni_merge *)arg;
    const tni_algebra *by = m->divide->host->by;
    const int64_t      begin = task * TNI_MERGE_SHARE, end = tni_merge_end(m, task);
    double             w[TNI_MERGE_SHARE];
    (void)worker;
    for (int64_t i = begin; i < end; i++) w[i - begin] = 1;
    for (int64_t j = 0; j < m->k; j++) {
        int64_t own = m->at[j], split = tni_max(begin, tni_min(own, end)), after = tni_max(begin, tni_min(own + 1, end));
        by->weights(split - begin, m->pole + begin, m->origin[j], m->tau[j], m->d[j], w);
        if (split < after) w[own - begin] *= (m->pole[own] - m->origin[j]) - m->tau[j];
        by->weights(end - after, m->pole + after, m->origin[j], m->tau[j], m->d[j], w + (after - begin));
    }
    for (int64_t i = begin; i < end; i++) m->weight[i] = copysign(sqrt(fmax(-w[i - begin], 0)), m->weight[i]);
}

static void tni_merge_vectors(void *arg, int64_t task, int worker)
{
    const tni_merge   *m = (const tni_merge *)arg;
    const tni_divide  *v = m->divide;
    const tni_algebra *by = v->host->by;
    double            *row = v->rows + task * v->n;
    (void)worker;
    for (int64_t j = task * TNI_MERGE_SHARE; j < tni_min(m->rows, (task + 1) * TNI_MERGE_SHARE); j++) {
        by->pole_vector(m->k, m->pole, m->weight, m->origin[j], m->tau[j], row);
        for (int end = 0; end < 2; end++)
            m->joined[end][j] = by->dot(m->count[end], row + m->begin[end], m->ends[end] + m->begin[end]);
        v->ops->from(m->k, row, v->turn + j * m->k * v->ops->size);
    }
}

static char *tni_divide_at(const tni_divide *v, int64_t row, int64_t col)
{
    return v->z + (row * v->n + col) * v->ops->size;
}

/* order: the indices that sort x[n] in ascending order, by merging runs; spare [n]. */
TNI_FN void tni_sort_index(int64_t n, const double *x, int64_t *order, int64_t *spare)
{
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t i = 0; i < n; i += 2 * run) {
            int64_t middle = tni_min(i + run, n), end = tni_min(i + 2 * run, n), l = i, r = middle;
            for (int64_t k = i; k < end; k++)
                spare[k] = l < middle && (r >= end || x[order[l]] <= x[order[r]]) ? order[l++] : order[r++];
        }
        memcpy(order, spare, (size_t)n * sizeof *order);
    }
}

/* The half in which the row of an eigenvector is not zero. */
typedef enum tni_support { TNI_FIRST, TNI_BOTH, TNI_SECOND, TNI_DONE, TNI_SUPPORTS } tni_support;

/* Deflation: finds the finished rows, and writes the others, in ascending order, to `left`. Rows are those after `first`. */
static int64_t tni_merge_deflate(const tni_divide *v, int64_t first, int64_t n, double *d, double *u, double rho,
                                 const int64_t *order, int64_t *support, int64_t *left)
{
    const double nothing = 8 * v->nothing;
    int64_t      k = 0, held = -1;
    for (int64_t i = 0; i < n; i++) {
        int64_t row = order[i];
        if (rho * fabs(u[row]) <= nothing) { support[row] = TNI_DONE; continue; }
        if (held >= 0) {
            double both = hypot(u[row], u[held]), c = u[row] / both, s = u[held] / both, dh = d[held], dr = d[row];
            if (fabs((dr - dh) * c * s) <= nothing) {
                v->ops->rotate(n, c, s, tni_divide_at(v, first + held, first), tni_divide_at(v, first + row, first));
                v->host->by->rotate(1, c, s, v->ends[0] + first + held, v->ends[0] + first + row);
                v->host->by->rotate(1, c, s, v->ends[1] + first + held, v->ends[1] + first + row);
                u[row] = both;
                d[held] = dh * c * c + dr * s * s;
                d[row] = dh * s * s + dr * c * c;
                if (support[row] != support[held]) support[row] = TNI_BOTH;
                support[held] = TNI_DONE;
            } else left[k++] = held;
        }
        held = row;
    }
    if (held >= 0) left[k++] = held;
    return k;
}

/* Copies the rows of Z to `packed`, grouped by their zeros: the first n1 columns of FIRST and BOTH, the other columns of
   BOTH and SECOND, then all columns of DONE. */
static void tni_merge_pack(const tni_divide *v, int64_t first, int64_t n, int64_t n1, const int64_t *member,
                           const int64_t *count)
{
    const int64_t size = v->ops->size, up = count[TNI_FIRST] + count[TNI_BOTH], k = up + count[TNI_SECOND];
    char         *to = v->packed;
    for (int64_t i = 0; i < up; i++, to += n1 * size) memcpy(to, tni_divide_at(v, first + member[i], first), (size_t)(n1 * size));
    for (int64_t i = count[TNI_FIRST]; i < k; i++, to += (n - n1) * size)
        memcpy(to, tni_divide_at(v, first + member[i], first + n1), (size_t)((n - n1) * size));
    for (int64_t i = k; i < n; i++, to += n * size) memcpy(to, tni_divide_at(v, first + member[i], first), (size_t)(n * size));
}

/* Chooses the `top` pairs of largest magnitude, the positive one of two that are equal: d gets their values, first those of the
   m->rows that are not finished, and `chosen` their numbers. */
static void tni_merge_choose(tni_merge *m, int64_t n, int64_t top, int64_t *order, int64_t *spare, int64_t *chosen, double *d)
{
    int64_t low = 0, high = n - 1, done = top;
    tni_sort_index(n, m->values, order, spare);
    for (m->rows = 0; m->rows < done;) {
        const int64_t i = fabs(m->values[order[low]]) > fabs(m->values[order[high]]) ? order[low++] : order[high--];
        chosen[i < m->k ? m->rows++ : --done] = i;
    }
    for (int64_t i = 0; i < top; i++) {
        d[i] = m->values[chosen[i]];
        if (i >= m->rows) continue;
        m->d[i] = m->origin[chosen[i]];
        m->z[i] = m->tau[chosen[i]];
    }
    m->origin = m->d;
    m->tau = m->z;
}

/* Z = turn packed, and the finished rows, of the `rows` that are wanted. */
static void tni_merge_join(const tni_merge *m, int64_t first, int64_t n, int64_t n1, const int64_t *count, int64_t rows,
                           const int64_t *chosen)
{
    const tni_divide     *v = m->divide;
    const tni_vector_ops *ops = v->ops;
    const int64_t n2 = n - n1, up = count[TNI_FIRST] + count[TNI_BOTH], down = count[TNI_BOTH] + count[TNI_SECOND];
    const int64_t k = up + count[TNI_SECOND];
    char         *lower = v->packed + up * n1 * ops->size, *done = lower + down * n2 * ops->size;
    ops->gemm(v->host, m->rows, n1, up, v->turn, k, v->packed, n1, tni_divide_at(v, first, first), v->n);
    ops->gemm(v->host, m->rows, n2, down, v->turn + count[TNI_FIRST] * ops->size, k, lower, n2,
              tni_divide_at(v, first, first + n1), v->n);
    for (int64_t i = m->rows; i < rows; i++)
        memcpy(tni_divide_at(v, first + i, first), done + (chosen[i] - k) * n * ops->size, (size_t)(n * ops->size));
}

/* Joins the eigenpairs of rows [first,first+n1) and of the rest of the n; e: the off-diagonal element between them. */
static tn_status tni_merge_halves(const tni_divide *v, int64_t first, int64_t n, int64_t n1, double e)
{
    double   *d = v->d + first, *u = v->arrays;
    int64_t  *order = v->lists, *support = order + n, *left = support + n, *member = left + n, *at = member + n;
    int64_t   count[TNI_SUPPORTS] = {0}, place[TNI_SUPPORTS], rows = n == v->n ? v->top : n, i;
    tni_merge m;
    double   *ends[2] = {v->ends[0] + first, v->ends[1] + first};
    for (i = 0; i < n; i++) {
        double *inner = ends[i < n1] + i;                    /* where the halves meet: inside the joined block */
        u[i] = sqrt(0.5) * (i < n1 ? *inner : copysign(1, e) * *inner);
        *inner = 0;
        support[i] = i < n1 ? TNI_FIRST : TNI_SECOND;
    }
    m.divide = v; m.rho = 2 * fabs(e); m.at = at;
    m.d = u + n; m.z = m.d + n; m.origin = m.z + n; m.tau = m.origin + n; m.pole = m.tau + n; m.weight = m.pole + n;
    m.ends[0] = m.weight + n; m.ends[1] = m.ends[0] + n; m.joined[0] = m.ends[1] + n; m.joined[1] = m.joined[0] + n;
    tni_sort_index(n, d, order, member);
    m.k = tni_merge_deflate(v, first, n, d, u, m.rho, order, support, left);
    for (i = 0; i < n; i++) count[support[i]]++;
    for (place[0] = 0, i = 1; i < TNI_SUPPORTS; i++) place[i] = place[i - 1] + count[i - 1];
    for (i = 0; i < m.k; i++) {
        at[i] = place[support[left[i]]]++;
        member[at[i]] = left[i];
        m.d[i] = m.pole[at[i]] = d[left[i]];
        m.z[i] = m.weight[at[i]] = u[left[i]];
    }
    for (i = 0; i < n; i++) if (support[i] == TNI_DONE) member[place[TNI_DONE]++] = i;
    m.values = u;                                            /* u is no longer needed */
    for (i = 0; i < n; i++) {
        if (i >= m.k) m.values[i] = d[member[i]];
        m.ends[0][i] = m.joined[0][i] = ends[0][member[i]];
        m.ends[1][i] = m.joined[1][i] = ends[1][member[i]];
    }
    m.begin[0] = 0;                m.count[0] = count[TNI_FIRST] + count[TNI_BOTH];
    m.begin[1] = count[TNI_FIRST]; m.count[1] = count[TNI_BOTH] + count[TNI_SECOND];
    tni_merge_pack(v, first, n, n1, member, count);
    int64_t         tasks = tni_ceil_div(m.k, TNI_MERGE_SHARE);
    const tni_pool *pool = tasks > 1 ? v->host->pool : &tni_alone;
    tni_parallel_for(pool, tasks, tni_merge_roots, &m);
    for (i = 0; i < m.k; i++) if (!(fabs(m.values[i]) < HUGE_VAL)) return TN_ERR_CONVERGENCE;
    tni_parallel_for(pool, tasks, tni_merge_weights, &m);
    m.rows = m.k;
    if (rows < n) tni_merge_choose(&m, n, rows, order, support, left, d);
    else memcpy(d, m.values, (size_t)n * sizeof *d);
    for (i = m.k; i < n && rows == n; i++) left[i] = i;
    tni_parallel_for(pool, tasks, tni_merge_vectors, &m);
    tni_merge_join(&m, first, n, n1, count, rows, left);
    memcpy(ends[0], m.joined[0], (size_t)n * sizeof *d);
    memcpy(ends[1], m.joined[1], (size_t)n * sizeof *d);
    return TN_OK;
}

/* A leaf, whose first row and number of rows `lists` holds; they become its first row and a status. It takes 13 KB of stack. */
static void tni_divide_leaf(void *arg, int64_t task, int worker)
{
    const tni_divide *v = (const tni_divide *)arg;
    const int64_t     first = v->lists[2 * task], n = v->lists[2 * task + 1];
    double            e[TNI_LEAF], list[TNI_LEAF_ROTATIONS], z[(int)TNI_LEAF * TNI_STRIP];
    tni_rotations     r;
    (void)worker;
    r.host = v->host; r.list = list; r.max = TNI_LEAF_ROTATIONS; r.used = r.header = 0; r.z = z;
    memset(z, 0, sizeof z);
    for (int64_t i = 0; i < n; i++) z[i * (TNI_STRIP + 1)] = 1;
    memcpy(e, v->e + first, (size_t)n * sizeof *e);          /* the last one couples it to the next leaf */
    v->lists[2 * task + 1] = tni_ql(n, v->d + first, e, v->nothing, TNI_QL_SWEEPS, &r);
    for (int64_t i = 0; i < n; i++) {
        v->ops->from(n, z + i * TNI_STRIP, tni_divide_at(v, first + i, first));
        v->ends[0][first + i] = z[i * TNI_STRIP];
        v->ends[1][first + i] = z[i * TNI_STRIP + n - 1];
    }
}

/* Divides rows [first,first+n) into leaves, which are appended to `lists`. Returns the number of leaves. */
static int64_t tni_divide_split(const tni_divide *v, int64_t first, int64_t n, int64_t leaves)
{
    const int64_t n1 = n / 2, inner = first + n1;
    if (n <= TNI_LEAF) {
        v->lists[2 * leaves] = first;
        v->lists[2 * leaves + 1] = n;
        return leaves + 1;
    }
    v->d[inner - 1] -= fabs(v->e[inner - 1]);
    v->d[inner] -= fabs(v->e[inner - 1]);
    return tni_divide_split(v, inner, n - n1, tni_divide_split(v, first, n1, leaves));
}

/* Rows and columns [first,first+n) of Z, from those of its leaves; all else in these rows and columns is zero. */
static tn_status tni_divide_join(const tni_divide *v, int64_t first, int64_t n)
{
    const int64_t n1 = n / 2;
    tn_status     s;
    if (n <= TNI_LEAF) return TN_OK;
    if ((s = tni_divide_join(v, first, n1)) != TN_OK) return s;
    if ((s = tni_divide_join(v, first + n1, n - n1)) != TN_OK) return s;
    return tni_merge_halves(v, first, n, n1, v->e[first + n1 - 1]);
}

TNI_FN tn_status tni_divide_run(const tni_divide *v)
{
    const int64_t leaves = tni_divide_split(v, 0, v->n, 0);
    tni_parallel_for(v->host->pool, leaves, tni_divide_leaf, (void *)v);
    for (int64_t i = 0; i < leaves; i++) if (v->lists[2 * i + 1] != TN_OK) return TN_ERR_CONVERGENCE;
    return tni_divide_join(v, 0, v->n);
}

#endif /* TN_NO_OPERATOR */
