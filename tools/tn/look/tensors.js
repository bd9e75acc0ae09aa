/* tensors.js - the tensors of a file: a table that is searched by name, shape and kind as one types and sorted by any column, and
   the chosen one with its singular values and its numbers. */
const spark = values => {
    const width = 150, height = 34, top = values[0] || 1, step = width / Math.max(1, values.length);
    const places = Array.from(values, (v, i) => [(i + 0.5) * step, height - 2 - (height - 4) * Math.abs(v) / top]);
    const few = places.length <= 60, at = ([x, y]) => x.toFixed(1) + " " + y.toFixed(1);
    return tn.s("svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
        "aria-label": `${values.length} values` }, tn.s("path", { "stroke-width": few ? Math.min(6, 0.7 * step).toFixed(1) : 2,
        d: places.map((place, i) => few ? `M${at(place)}V${height - 1}` : (i ? "L" : "M") + at(place)).join("") }));
};
/* How many of the largest values carry 90 % of the sum of squares. */
const carrying = values => {
    const all = values.reduce((sum, v) => sum + v * v, 0);
    let sum = 0, needed = 0;
    while (needed < values.length && sum < 0.9 * all) sum += values[needed++] ** 2;
    return needed;
};

const spectrumOf = one => {
    const all = tn.array(one.spectra), slices = all.shape[0];
    let slice = 0, logY = false;
    const state = () => ({ logY, zero: true, label: `singular values of ${tn.plain(one.name)}${slices > 1 ? `, ${slice}` : ""}`,
        series: [{ name: one.name, y: tn.row(all, slice), kind: "stems", signs: true }] });
    const plot = tn.plot({ ...state(), xlabel: "index, by size", ylabel: "singular value", height: 220 });
    const picker = tn.picker("matrix", Array.from({ length: slices }, (_, i) => String(i)), i => {
        slice = i;
        plot.update(state());
    });
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
const detail = one => [tn.h("h3", {}, tn.token(one.name), tn.h("span", { class: "soft" }, ` ${one.shape} ${one.kind || ""}`)),
    one.spectra ? spectrumOf(one) : null,
    one.values ? [tn.h("p", { class: "soft small", text: one.values.type === "q8" ? "The numbers, rounded to 8 bits in each row."
        : "The numbers, as they are." }), tn.matrix({ of: "dense", values: one.values, symmetric: false, alone: true,
        what: one.name, row_label: "row", column_label: "column", output_label: "matrix" }).element, rowsAsPictures(one)]
        : tn.h("p", { class: "soft", text: "It has no numbers that could be shown." })];

tn.sections.tensors = (section, box) => {
    const { list } = section, place = tn.h("div", { class: "head" }), named = new Map(list.map((one, i) => [one.name, i]));
    const facts = list.map(one => {
        const first = one.spectra && tn.row(tn.array(one.spectra), 0);
        return { name: one.name, count: one.count, kind: one.kind || "", first, needed: first ? carrying(first) : -1,
            rank: first ? one.effective_rank[0] : -1, norm: one.norm, smallest: one.smallest, largest: one.largest };
    });
    const kinds = list.some(one => one.kind), columns = [["name", "tensor"], ["count", "shape"], ...(kinds ? [["kind", "kind"]]
        : []), ["first", "singular values, largest first"], ["needed", "carry 90 %", "how many of the singular values carry 90 % " +
        "of the sum of their squares; of several matrices those of the first"], ["rank", "effective rank",
        "(sum |value|)² / sum value²: how many equal values would be as spread"], ["norm", "norm"], ["smallest", "smallest"],
        ["largest", "largest"]];
    const cells = { count: (one, fact, i) => list[i].shape, kind: (one, fact) => fact.kind, first: (one, { first }) => first
        ? spark(first) : null, needed: (one, { first, needed }) => first ? tn.h("span", {}, tn.number(needed),
        ` of ${first.length}`) : null, rank: (one, { first, rank }) => first ? tn.number(rank, 3) : null };
    const told = tn.keep("tensor", (name = list[0].name) => named.has(name)
        && (table.set(named.get(name)), true));
    const table = tn.chooser("tensors", columns.map(([, label, explanation]) => [label, explanation]), list.map((one, i) =>
        columns.map(([key]) => cells[key] ? cells[key](one, facts[i], i) : facts[i][key])), (i, byReader) => {
        place.replaceChildren(...detail(list[i]).flat(Infinity).filter(Boolean));
        if (byReader) told(list[i].name);
    });
    table.element.firstChild.classList.add("facts");
    /* ---- sorting: names upwards at first, numbers downwards */
    let by = -1, down = true;
    const heads = [...table.element.querySelectorAll("th[scope=col]")];
    const sort = k => {
        const key = columns[k][0] === "first" ? "needed" : columns[k][0], words = key === "name" || key === "kind";
        down = k === by ? !down : !words;
        by = k;
        const order = list.map((_, i) => i).sort((a, b) => (words ? facts[a][key].localeCompare(facts[b][key], "en",
            { numeric: true }) : facts[a][key] - facts[b][key]) * (down ? -1 : 1) || a - b);
        table.body.append(...order.map(i => table.lines[i]));
        heads.forEach((th, i) => th.setAttribute("aria-sort", i !== k ? "none" : down ? "descending" : "ascending"));
    };
    heads.forEach((th, k) => { if (list.length > 1) th.replaceChildren(tn.h("button", { type: "button", class: "sort",
        title: columns[k][2], text: columns[k][1], onclick: () => sort(k) })); });
    /* ---- searching: each word in the name, the shape or the kind; 64x64 is a shape, too */
    const texts = list.map(({ name, shape, kind = "" }) => [name, tn.plain(name), shape, shape.slice(1, -1).replaceAll(",", "x"),
        kind].join("\n").toLowerCase());
    const id = tn.id("search"), count = tn.h("span", { class: "soft", role: "status" });
    const input = tn.h("input", { type: "search", id, spellcheck: "false", dir: "auto", placeholder: "name, shape or kind",
        oninput: () => search() });
    const search = () => {
        const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
        const found = texts.map(text => words.every(word => text.includes(word)));
        table.lines.forEach((line, i) => { line.hidden = !found[i]; });
        const shown = found.filter(Boolean).length;
        count.textContent = shown === list.length ? `${list.length} tensors` : `${shown} of ${list.length} tensors`;
    };
    if (list.length > 1) box.append(tn.h("div", { class: "tools" }, tn.h("div", { class: "picker" },
        tn.h("label", { class: "label", for: id, text: "search" }), input), count));
    box.append(table.element, tn.saves(() => "tensors", { CSV: () => tn.csv([["tensor", "shape", "kind", "values", "carry 90 %",
        "effective rank", "norm", "smallest", "largest"], ...table.lines.map((line, i) => [line, i]).filter(([line]) =>
        !line.hidden).map(([, i]) => [list[i].name, list[i].shape, list[i].kind, ...(facts[i].first ? [facts[i].first.length,
        facts[i].needed, facts[i].rank] : ["", "", ""]), facts[i].norm, facts[i].smallest, facts[i].largest])]) }), place);
    search();
    table.set(0);
};
