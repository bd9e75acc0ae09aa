/* run.js - a run over time: one slider for its checkpoints, which moves the line in the curves, the spectra, the eigenvectors
   and the tables together. */
const spectrumAt = (one, i) => Array.from(tn.row(tn.array(one.values), i)).sort((a, b) => Math.abs(b) - Math.abs(a));

/* A plot for all series that name it; colours repeat after seven lines, which are dashed then. */
const curves = section => {
    const groups = new Map();
    for (const one of section.series) groups.set(one.plot, [...(groups.get(one.plot) || []), one]);
    const plots = [...groups].map(([name, list]) => tn.plot({ xlabel: section.xlabel || "step", rules: [], height: 220,
        ylabel: name || section.ylabel || "",
        series: list.map((one, i) => ({ name: one.name, x: section.steps, y: tn.array(one.y), dashed: i >= 7 })) }));
    return { element: tn.h("div", {}, plots.map(plot => plot.element)),
             show: i => plots.forEach(plot => plot.update({ rules: [{ x: section.steps[i], label: "" }] })) };
};
const spectraOf = section => {
    let chosen = 0, at = 0;
    const state = () => ({ series: [{ name: section.spectra[chosen].name, y: spectrumAt(section.spectra[chosen], at),
        kind: "stems", signs: true },
        { name: "at the end", y: spectrumAt(section.spectra[chosen], section.steps.length - 1), kind: "points", class: "ring",
            ink: "var(--soft)" }] });
    const plot = tn.plot({ ...state(), xlabel: "index, by size", ylabel: "value", zero: true, height: 230 });
    const picker = tn.picker("spectrum", section.spectra.map(one => one.name), i => { chosen = i; plot.update(state()); });
    return { element: tn.h("div", {}, picker.element, plot.element), show: i => { at = i; plot.update(state()); } };
};
const vectorsOf = section => {
    let chosen = 0, at = 0;
    const { width, height } = tn.page.pixels, row = tn.h("div", { class: "row pictures" });
    const draw = () => {
        const one = section.vectors[chosen], values = tn.row(tn.array(one.values), at), vectors = tn.row(tn.array(one.vectors),
            at), n = width * height;
        row.replaceChildren(...Array.from(values, (value, k) => tn.h("figure",
            { class: "vector " + (value < 0 ? "below" : "above") },
            tn.picture(vectors.subarray(k * n, (k + 1) * n), width, height, { label: `eigenvector ${k}` }),
                tn.h("figcaption", { class: "eigenvalue" }, value > 0 ? "+" : "", tn.number(value, 3)))));
    };
    const picker = tn.picker("output", section.vectors.map(one => one.name), i => { chosen = i; draw(); });
    return { element: tn.h("div", {}, picker.element, row), show: i => { at = i; draw(); } };
};
const tablesOf = section => {
    const place = tn.h("div", {});
    const show = i => place.replaceChildren(...section.tables.map(table => tn.h("div", { class: "scroll" },
        tn.h("table", {}, tn.h("caption", {}, table.name, tn.saves(() => `${table.name} ${section.steps[i]}`, { CSV: () => tn.csv([
            table.columns.map(([, label]) => label), ...table.rows[i].map(row => table.columns.map(([key]) => row[key]))]) })),
        tn.h("thead", {}, tn.h("tr", {}, table.columns.map(([, label], k) => tn.h("th", { scope: "col", class: k ? "right" : "",
            text: label })))),
        tn.h("tbody", {}, table.rows[i].map(row => tn.h("tr", {}, table.columns.map(([key], k) =>
            k ? tn.h("td", { class: "right" }, typeof row[key] === "number" ? tn.number(row[key]) : tn.token(row[key] ?? "–"))
                : tn.h("th", { scope: "row" }, tn.token(row[key]))))))))));
    return { element: place, show };
};

/* The play button moves on by itself; for those who asked their system for less motion it moves one step at a time. */
const player = (slider, count) => {
    let timer = 0;
    const button = tn.h("button", { type: "button", class: "round", "aria-label": "play", "aria-pressed": false, text: "▶",
        onclick: () => timer ? stop() : start() });
    const next = () => { const at = Number(slider.input.value); if (at + 1 < count) slider.set(at + 1); else stop(); };
    const stop = () => {
        clearInterval(timer);
        timer = 0;
        button.textContent = "▶";
        button.setAttribute("aria-pressed", false);
    };
    const start = () => {
        if (Number(slider.input.value) === count - 1) slider.set(0);
        if (matchMedia("(prefers-reduced-motion: reduce)").matches) { next(); return; }
        timer = setInterval(next, Math.max(120, 4000 / count));
        button.textContent = "❚❚";
        button.setAttribute("aria-pressed", true);
    };
    return button;
};

tn.sections.time = (section, box) => {
    const { steps } = section, parts = [];
    if (!steps.length) return;
    if ((section.series || []).length) parts.push(curves(section));
    if ((section.spectra || []).length) parts.push(spectraOf(section));
    if ((section.vectors || []).length && tn.page.pixels) parts.push(vectorsOf(section));
    if ((section.tables || []).length) parts.push(tablesOf(section));
    const slider = tn.slider(section.xlabel || "step", { min: 0, max: steps.length - 1, value: steps.length - 1,
        format: i => tn.format(steps[i]) }, i => parts.forEach(part => part.show(i)));
    box.append(tn.h("div", { class: "tools timeline" }, player(slider, steps.length), slider.element),
        parts.map(part => part.element).reduce((all, part) => { all.append(part); return all; }, tn.h("div", {})));
    slider.set(steps.length - 1);
};
