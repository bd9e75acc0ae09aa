/* tensors.js - the tensors of a file: a table that is searched by name, shape and type as one types and sorted by any column, and
   the chosen one with its singular values and its numbers. An array that is alone in its file has its facts in place of the
   table, the singular values of each of its unfoldings, and its means along each axis. */
const shapeOf = one => one.shape.slice(1, -1).split(",").filter(Boolean).map(Number);
/* Matrix s of a tensor of order above 2, as [0,2,:,:]. */
const sliceName = (shape, s) => {
    const lead = shape.slice(0, -2);
    for (let k = lead.length - 1, rest = s; k >= 0; k--) {
        const at = rest % lead[k];
        rest = Math.floor(rest / lead[k]);
        lead[k] = at;
    }
    return `[${[...lead, ":", ":"].join()}]`;
};
/* Singular values, with those of random numbers of the same shape and norm as a thin line. */
const spark = (values, noise) => {
    const width = 130, height = 34, norm = tn.normOf(values), top = Math.max(values[0], noise[0] * norm) || 1;
    const step = width / Math.max(1, values.length), at = ([x, y]) => x.toFixed(1) + " " + y.toFixed(1);
    const place = (v, i) => [(i + 0.5) * step, height - 2 - (height - 4) * Math.abs(v) / top];
    const places = Array.from(values, place), few = places.length <= 60;
    /* The line of noise is smooth: a few points of it are enough. */
    const some = Math.min(12, noise.length), points = Array.from({ length: some }, (_, k) =>
        Math.round(k * (noise.length - 1) / Math.max(1, some - 1)));
    const line = all => all.map((one, i) => (i ? "L" : "M") + at(one)).join("");
    return tn.s("svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
        "aria-label": `${values.length} values` }, tn.s("path", { "stroke-width": few ? Math.min(6, 0.7 * step).toFixed(1) : 2,
        d: few ? places.map(one => `M${at(one)}V${height - 1}`).join("") : line(places) }),
        tn.s("path", { class: "noise", d: line(points.map(i => place(noise[i] * norm, i))) }));
};
/* How many of the largest values have 90 % of the sum of squares. */
const carrying = values => {
    const all = values.reduce((sum, v) => sum + v * v, 0);
    let sum = 0, needed = 0;
    while (needed < values.length && sum < 0.9 * all) sum += values[needed++] ** 2;
    return needed;
};

const spectrumOf = (one, what = tn.plain(one.name)) => {
    const all = tn.array(one.spectra), slices = all.shape[0], noise = tn.array(one.noise), shape = shapeOf(one);
    let slice = 0, logY = false;
    const names = Array.from({ length: slices }, (_, s) => slices > 1 ? sliceName(shape, s) : "");
    const state = () => {
        const y = tn.row(all, slice), norm = tn.normOf(y);
        return { logY, zero: true, label: `singular values of ${what}${names[slice] && ", " + names[slice]}`,
            series: [{ name: ("singular values " + names[slice]).trim(), y, kind: "stems", signs: true, ink: "var(--above)" },
                { name: "random numbers of the same shape and norm", y: noise.map(v => v * norm), ink: "var(--soft)",
                    class: "marked" }] };
    };
    const plot = tn.plot({ ...state(), xlabel: "index, by size", ylabel: "singular value", height: 220 });
    const picker = tn.picker("slice", names, i => { slice = i; plot.update(state()); });
    return [tn.h("div", { class: "tools" }, tn.toggle("logarithmic", false, on => { logY = on; plot.update(state()); }),
        picker.element), plot.element];
};
/* An array of few rows that may be square pictures: each row as one, on request. */
const rowsAsPictures = one => {
    const values = tn.array(one.values), [, rows, columns] = values.shape, side = Math.sqrt(columns);
    if (values.shape[0] > 1 || rows > 64 || side < 5 || !Number.isInteger(side)) return null;
    const limit = tn.largest(values), place = tn.h("div", { class: "row pictures" });
    return [tn.h("div", { class: "tools" }, tn.toggle(`each row as ${side} × ${side} pixels`, false, on =>
        place.replaceChildren(...(on ? Array.from({ length: rows }, (_, i) => tn.h("figure", { class: "vector" },
            tn.picture(values.subarray(i * columns, (i + 1) * columns), side, side, { limit, label: `row ${i}` }),
            tn.h("figcaption", { class: "caption", text: String(i) }))) : [])))), place];
};
const numbersOf = one => {
    if (!one.values) return [tn.h("p", { class: "soft", text: "It has no numbers that could be shown." })];
    const shape = shapeOf(one), order = shape.length, slices = tn.size(shape.slice(0, -2)), shown = one.values.shape[0];
    const { error } = one.values, largest = Math.max(Math.abs(one.smallest), Math.abs(one.largest));
    const matrix = tn.matrix({ of: "dense", values: one.values, symmetric: false, alone: true, together: true, what: one.name,
        row_label: order > 2 ? `axis ${order - 2}` : "row", column_label: order > 2 ? `axis ${order - 1}` : "column",
        output_label: "slice", outputs: Array.from({ length: shown }, (_, s) => sliceName(shape, s)) }).element;
    const words = [order > 2 ? `${slices} slices: axis ${order - 2} goes down, axis ${order - 1} across. ` : "",
        error === undefined ? "" : ["Rounded to 8 bits in each row: those of the file differ by at most ",
            tn.number(error * largest, 2), ", ", tn.percent(error), " of the largest."]].flat();
    return [tn.h("h3", { text: "The numbers" }), words.some(Boolean) ? tn.h("p", { class: "soft small" }, words) : null, matrix,
        rowsAsPictures(one)];
};

/* ---- the table. first: of the first matrix. */
const factsOf = one => {
    const first = one.spectra && tn.row(tn.array(one.spectra), 0), rank = first && one.effective_rank[0];
    return { ...one, first, needed: first && carrying(first), rank, share: first && rank / one.noise_rank };
};
const columnsOf = named => [
    { head: named, of: one => one.name, words: true, show: one => one.name },
    { head: "shape", of: one => one.count, show: one => one.shape },
    { head: "singular values, largest first", of: one => one.needed, show: one => one.first ? spark(one.first, tn.array(one.noise))
        : tn.h("span", { class: "soft", text: one.missing ? `${tn.format(one.missing)} missing` : shapeOf(one).length < 2
            ? "a vector" : "not computed" }) },
    { head: "effective rank", why: "(sum |value|)² / sum value²: how many equal values would be as spread; of several slices that " +
        "of the first", of: one => one.rank, show: one => one.first && tn.number(one.rank, 3) },
    { head: "% of noise", why: "the effective rank as a share of that of random numbers of the same shape", of: one => one.share,
        show: one => one.first && tn.number(100 * one.share, 3) },
    { head: "90 % of norm²", why: "how many of the singular values have 90 % of the squared norm", of: one => one.needed,
        show: one => one.first && tn.h("span", {}, tn.number(one.needed), ` of ${one.first.length}`) },
    ...(named === "tensor" ? [{ head: "norm", of: one => one.norm, show: one => one.norm },
        { head: "smallest", of: one => one.smallest, show: one => one.smallest },
        { head: "largest", of: one => one.largest, show: one => one.largest },
        { head: "type", of: one => one.dtype, words: true, show: one => one.dtype }] : [])];
const tableOf = (label, facts, columns, onchange) => {
    const table = tn.chooser(label, columns.map(({ head, why }) => [head, why]), facts.map(one => columns.map(({ show }) =>
        show(one))), onchange);
    table.element.firstChild.classList.add("facts");
    if (facts.length > 1) tn.sortable([...table.element.querySelectorAll("th[scope=col]")], table.lines, table.body,
        columns.map(({ of }) => i => of(facts[i])), k => !columns[k].words);
    return table;
};

/* ---- one array */
const alone = (one, section, box) => {
    const fact = factsOf(one), order = shapeOf(one).length, row = (label, ...x) => tn.h("div", {}, tn.h("dt", { text: label }),
        tn.h("dd", {}, x));
    box.append(tn.h("dl", { class: "card" }, row("shape", one.shape), one.dtype ? row("type", one.dtype) : null,
        row("numbers", tn.number(one.count)), one.missing ? row("missing (NaN or infinite)", tn.number(one.missing)) : null,
        row("zeros", tn.number(one.zeros)), row("smallest", tn.number(one.smallest)), row("largest", tn.number(one.largest)),
        row("norm", tn.number(one.norm)), fact.first && order < 3 ? [row("effective rank", tn.number(fact.rank, 3), " of " +
            fact.first.length), row("that of noise", tn.number(one.noise_rank, 3))] : null));
    if ((section.unfoldings || []).length) unfoldings(section.unfoldings, box);
    else if (one.spectra) box.append(tn.h("h3", { text: "Singular values" }), ...spectrumOf(one));
    const profile = (section.profile || []).map((means, k) => [k, means]).filter(([, means]) => means);
    if (profile.length) {
        const state = ([k, means]) => ({ label: `means along axis ${k}`, xlabel: `axis ${k}`, series: [{ name: "mean",
            y: tn.array(means), kind: "stems", signs: true }] });
        const plot = tn.plot({ ...state(profile[0]), zero: true, ylabel: "mean", height: 170 });
        box.append(tn.h("h3", { text: "Means along an axis" }), tn.h("p", { class: "soft small",
            text: "The mean of all numbers that have an index, without those that are missing." }), tn.h("div", { class: "tools" },
            tn.picker("axis", profile.map(([k]) => String(k)), i => plot.update(state(profile[i]))).element), plot.element);
    }
    box.append(...numbersOf(one).flat(Infinity).filter(Boolean));
};
const unfoldings = (list, box) => {
    const place = tn.h("div", {}), facts = list.map(factsOf), table = tableOf("unfoldings", facts, columnsOf("unfolding"), i =>
        place.replaceChildren(...spectrumOf(list[i], `the unfolding ${list[i].name}`).filter(Boolean)));
    box.append(tn.h("h3", { text: "Unfoldings" }), tn.h("p", { class: "soft small", text: "The unfolding along an axis has this axis "
        + "as its rows and all others as its columns; its singular values are those of the HOSVD. The thin line is what random " +
        "numbers of the same shape and norm have." }), table.element, place);
    table.set(0);
};

tn.sections.tensors = (section, box) => {
    const { list } = section;
    if (list.length === 1) { alone(list[0], section, box); return; }
    const place = tn.h("div", { class: "head" }), named = new Map(list.map((one, i) => [one.name, i]));
    const facts = list.map(factsOf), columns = columnsOf("tensor"), first = Math.max(0, facts.findIndex(one => one.first));
    const told = tn.keep("tensor", (name = list[first].name) => named.has(name) && (table.set(named.get(name)), true));
    const table = tableOf("tensors", facts, columns, (i, byReader) => {
        const one = list[i];
        place.replaceChildren(...[tn.h("h3", {}, tn.token(one.name), tn.h("span", { class: "soft" }, ` ${one.shape} ${one.dtype}`)),
            one.spectra ? spectrumOf(one) : null, numbersOf(one)].flat(Infinity).filter(Boolean));
        if (byReader) told(one.name);
    });
    /* Matrices first: most tensors of a model are vectors, which have no singular values. */
    table.body.append(...table.lines.filter((_, i) => facts[i].first), ...table.lines.filter((_, i) => !facts[i].first));
    /* ---- searching: each word in the name, the shape or the type; 64x64 is a shape, too */
    const texts = list.map(({ name, shape, dtype = "" }) => [name, tn.plain(name), shape, shape.slice(1, -1).replaceAll(",", "x"),
        dtype].join("\n").toLowerCase());
    const id = tn.id("search"), count = tn.h("span", { class: "soft", role: "status" });
    const input = tn.h("input", { type: "search", id, spellcheck: "false", dir: "auto", placeholder: "name, shape or type",
        oninput: () => search() });
    const search = () => {
        const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
        const found = texts.map(text => words.every(word => text.includes(word)));
        table.lines.forEach((line, i) => { line.hidden = !found[i]; });
        const shown = found.filter(Boolean).length;
        count.textContent = shown === list.length ? `${list.length} tensors` : `${shown} of ${list.length} tensors`;
    };
    box.append(tn.h("div", { class: "tools" }, tn.h("div", { class: "picker" }, tn.h("label", { class: "label", for: id,
        text: "search" }), input), count), table.element, tn.saves(() => "tensors", { CSV: () => tn.csv([["tensor", "shape", "type",
        "values", "90 % of norm²", "effective rank", "that of noise", "norm", "smallest", "largest"], ...facts.filter((_, i) =>
        !table.lines[i].hidden).map(one => [one.name, one.shape, one.dtype, ...(one.first ? [one.first.length, one.needed,
        one.rank, one.noise_rank] : ["", "", "", ""]), one.norm, one.smallest, one.largest])]) }), place);
    search();
    table.set(first);
};
