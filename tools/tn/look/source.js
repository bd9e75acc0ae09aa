/* source.js - where the values of a matrix come from: a dense array, or factors that are multiplied here. Both answer the same
   two questions: one element, and a grid of means of blocks, which is what a screen can show of a large matrix.

       dense     Q_o[i,j] = values[o,i,j]
       factors   Q_o[i,j] = sum_h p[o,h] (w[h,i] v[h,j] + w[h,j] v[h,i]) / 2          symmetric (the usual)
                          = sum_h p[o,h] w[h,i] v[h,j]                                not symmetric
       embed     w[h,i] = sum_d w'[h,d] embed[i,d], and v alike: a matrix between tokens

   A mean of products over a block is the product of means, because rows and columns are averaged apart: an overview of a
   matrix between 100,000 tokens costs as little as a small matrix. */

/* A range of `count` blocks of `step` rows from `first` on; the last may be shorter. */
const blockEnd = (range, k, size) => Math.min(range.first + (k + 1) * range.step, size);

const dense = matrix => {
    const values = tn.array(matrix.values), shape = values.shape.slice(-2);
    const [rows, columns] = shape, cells = rows * columns, outputs = values.shape.length === 3 ? values.shape[0] : 1;
    const at = (o, i, j) => values[o * cells + i * columns + j];
    const grid = (o, down, across) => {
        const out = new Float64Array(down.count * across.count);
        for (let a = 0, n = 0; a < down.count; a++) {
            const top = down.first + a * down.step, bottom = blockEnd(down, a, rows);
            for (let b = 0; b < across.count; b++, n++) {
                const left = across.first + b * across.step, right = blockEnd(across, b, columns);
                let sum = 0;
                for (let i = top; i < bottom; i++)
                    for (let j = left, k = o * cells + i * columns + left; j < right; j++, k++) sum += values[k];
                out[n] = sum / ((bottom - top) * (right - left));
            }
        }
        return out;
    };
    const whole = (n, step) => ({ first: 0, step, count: Math.ceil(n / step) });
    const limit = (o, step) => tn.largest(step === 1 ? values.subarray(o * cells, (o + 1) * cells) : grid(o, whole(rows, step),
        whole(columns, step)));
    return { outputs, rows, columns, at, grid, limit, cost: 1, work: (m, n) => m * n, prepare: () => [] };
};

/* Means of blocks of columns of a factor [h,n]: [h, range.count]. */
const columnMeans = (factor, range) => {
    const [h, n] = factor.shape, out = new Float64Array(h * range.count);
    for (let r = 0, k = 0; r < h; r++)
        for (let b = 0; b < range.count; b++, k++) {
            const left = range.first + b * range.step, right = blockEnd(range, b, n);
            let sum = 0;
            for (let j = left; j < right; j++) sum += factor[r * n + j];
            out[k] = sum / (right - left);
        }
    return out;
};
/* The same of factor' embed^T: rows of the embedding are averaged first, [range.count, d], then multiplied. After each row of
   the factor it yields how many products that took, so that it can be done in parts. */
const embeddedMeans = function* (factor, embed, range) {
    const [h, d] = factor.shape, tokens = embed.shape[0], mean = new Float64Array(range.count * d),
        out = new Float64Array(h * range.count);
    for (let b = 0; b < range.count; b++) {
        const top = range.first + b * range.step, bottom = blockEnd(range, b, tokens);
        for (let i = top; i < bottom; i++)
            for (let k = 0; k < d; k++) mean[b * d + k] += embed[i * d + k] / (bottom - top);
    }
    for (let r = 0; r < h; r++) {
        for (let b = 0; b < range.count; b++) {
            let sum = 0;
            for (let k = 0, f = r * d, e = b * d; k < d; k++) sum += factor[f++] * mean[e++];
            out[r * range.count + b] = sum;
        }
        yield range.count * d;
    }
    return out;
};
const atOnce = parts => {
    let part = parts.next();
    while (!part.done) part = parts.next();
    return part.value;
};

const factors = matrix => {
    const p = tn.array(matrix.p), w = tn.array(matrix.w), v = tn.array(matrix.v);
    const down = matrix.embed_rows || matrix.embed, across = matrix.embed_columns || matrix.embed;
    const symmetric = matrix.symmetric !== false, h = w.shape[0], recent = new Map();
    const left = down === across ? "" : " left";         /* rows and columns share what they can */
    const length = (factor, embed) => embed ? embed.shape[0] : factor.shape[1];
    /* The last few answers are kept: another output, or a finer strip of the same place, needs the same means. */
    const keyOf = (name, range) => [name, range.first, range.step, range.count].join();
    const remember = (key, values) => {
        recent.delete(key);                     /* what is used goes to the end: strips do not evict what they share */
        if (recent.size > 15) recent.delete(recent.keys().next().value);
        recent.set(key, values);
        return values;
    };
    const means = (name, factor, embed, range) => {
        const key = keyOf(name, range);
        if (recent.has(key)) return remember(key, recent.get(key));
        const values = embed ? atOnce(embeddedMeans(factor, tn.array(embed), range)) : columnMeans(factor, range);
        return range.count === 1 ? values : remember(key, values);
    };
    /* What every strip of the same columns needs, in parts. */
    const prepare = function* (range) {
        for (const [name, factor] of symmetric ? [["v", v], ["w", w]] : [["v", v]])
            if (across && !recent.has(keyOf(name, range)))
                remember(keyOf(name, range), yield* embeddedMeans(factor, tn.array(across), range));
    };
    const grid = (o, rows, columns) => {
        const m = rows.count, n = columns.count, out = new Float64Array(m * n);
        const wr = means("w" + left, w, down, rows), vc = means("v", v, across, columns);
        const vr = symmetric && means("v" + left, v, down, rows), wc = symmetric && means("w", w, across, columns);
        for (let r = 0; r < h; r++) {
            const weight = p[o * h + r] / (symmetric ? 2 : 1);
            for (let i = 0; i < m; i++) {
                const x = weight * wr[r * m + i], base = i * n, from = r * n;
                if (symmetric) {
                    const y = weight * vr[r * m + i];
                    for (let j = 0; j < n; j++) out[base + j] += x * vc[from + j] + y * wc[from + j];
                } else for (let j = 0; j < n; j++) out[base + j] += x * vc[from + j];
            }
        }
        return out;
    };
    /* Values of chosen blocks. What does not depend on the output is computed once for all outputs. */
    const chosen = (is, js, step = 1) => {
        const pick = (factor, embed, indices) => indices.map(i => means("", factor, embed, { first: i, step, count: 1 }));
        const same = down === across && is.join() === js.join();
        const wr = pick(w, down, is), vc = pick(v, across, js), vr = symmetric && (same ? vc : pick(v, down, is)), wc = symmetric
            && (same ? wr : pick(w, across, js));
        const element = (o, a, b) => {
            let sum = 0;
            for (let r = 0; r < h; r++)
                sum += p[o * h + r] * (symmetric ? (wr[a][r] * vc[b][r] + vr[a][r] * wc[b][r]) / 2 : wr[a][r] * vc[b][r]);
            return sum;
        };
        return o => Float64Array.from({ length: is.length * js.length }, (_, k) => element(o, Math.floor(k / js.length),
            k % js.length));
    };
    const one = (o, i, j) => chosen([i], [j])(o)[0];
    const rows = length(w, down), columns = length(v, across);
    /* The scale ends where 99.5 % of a sample do; all values would take too long. */
    const spread = (n, step) => {
        const count = Math.min(Math.ceil(n / step), 24);
        return Array.from({ length: count }, (_, k) => Math.floor(k * n / step / count) * step);
    };
    const samples = new Map();
    const limit = (o, step) => {
        if (!samples.has(step)) samples.set(step, chosen(spread(rows, step), spread(columns, step), step));
        const sizes = samples.get(step)(o).map(Math.abs).sort();
        return sizes[Math.floor(0.995 * (sizes.length - 1))] || sizes[sizes.length - 1] || 0;
    };
    const outputs = p.shape.length === 2 ? p.shape[0] : 1;
    const parts = { p: matrix.p, w: matrix.w, v: matrix.v, embed: matrix.embed, rows: matrix.embed_rows,
        columns: matrix.embed_columns };
    const errors = Object.entries(parts).filter(([, part]) => part && part.type === "q8").map(([name, part]) => [name,
        part.error]);
    const cost = (symmetric ? 2 : 1) * h;
    const work = (m, n) => m * n * cost + cost * ((down ? m * w.shape[1] : 0) + (across ? n * v.shape[1] : 0));
    return { outputs, rows, columns, at: one, grid, limit, cost, work, errors, terms: h, prepare };
};

/* unsigned: no value is negative, so that the map needs one direction. empty(i, j): a cell that has no value, because a pattern
   is causal (`matrix.causal`). */
tn.source = matrix => {
    const source = matrix.of === "factors" ? factors(matrix) : dense(matrix);
    const values = matrix.of === "factors" ? null : tn.array(matrix.values);
    const unsigned = !!values && values.every(v => !(v < 0)) && values.some(v => v > 0);
    const empty = (i, j) => !!matrix.causal && j > i;
    if (!matrix.causal) return { ...source, unsigned, empty };
    const grid = (o, down, across) => {
        const out = source.grid(o, down, across);
        for (let a = 0, k = 0; a < down.count; a++)
            for (let b = 0; b < across.count; b++, k++)
                if (empty(down.first + a * down.step, across.first + b * across.step)) out[k] = -Infinity;
        return out;
    };
    return { ...source, unsigned, empty, grid };
};

/* The source of a matrix without the eigenvectors of its output that are ablated: value v v^T less. */
tn.without = (matrix, source) => {
    if (!tn.isMain(matrix) || matrix.symmetric === false || source.rows !== source.columns) return source;
    const gone = o => tn.goneOf(o).filter(one => one.vector && one.vector.length === source.rows);
    const mean = (vector, range, k) => {
        const first = range.first + k * range.step, end = blockEnd(range, k, vector.length);
        let sum = 0;
        for (let i = first; i < end; i++) sum += vector[i];
        return sum / (end - first);
    };
    const at = (o, i, j) => gone(o).reduce((x, { value, vector }) => x - value * vector[i] * vector[j], source.at(o, i, j));
    const grid = (o, down, across) => {
        const out = source.grid(o, down, across);
        for (const { value, vector } of gone(o)) {
            const columns = Array.from({ length: across.count }, (_, b) => value * mean(vector, across, b));
            for (let a = 0, k = 0; a < down.count; a++) {
                const x = mean(vector, down, a);
                for (let b = 0; b < across.count; b++, k++) out[k] -= x * columns[b];
            }
        }
        return out;
    };
    return { ...source, at, grid, changes: true };
};
