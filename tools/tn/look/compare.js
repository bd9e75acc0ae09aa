/* compare.js - two models beside each other: a similarity for each output or layer, and their spectra in one plot. */
tn.sections.compare = (section, box) => {
    const columns = section.columns || [["similarity", "cosine similarity"]], [main, ...others] = columns;
    const place = tn.h("div", {}), spectra = section.spectra || [];
    box.append(tn.h("p", { class: "versus" }, tn.h("span", { class: "key", style: "--ink: var(--series-1)" },
        tn.token(section.a)), " and ",
        tn.h("span", { class: "key", style: "--ink: var(--series-2)" }, tn.token(section.b))));
    if (section.rows && section.rows.length) box.append(tn.h("div", { class: "scroll" },
        tn.bars(section.rows.map(row => ({ label: row.name, value: row[main[0]],
        notes: others.map(([key]) => typeof row[key] === "number" ? tn.number(row[key], 3) : "–") })),
        { limit: section.limit || 1, head: ["", "", ...columns.map(column => column[1])] })));
    if (!spectra.length) return;
    let logY = true, chosen = 0;
    const sorted = values => Array.from(tn.array(values)).sort((a, b) => Math.abs(b) - Math.abs(a));
    const state = () => ({ logY, label: `spectra of “${tn.plain(spectra[chosen].name)}”`,
        series: [{ name: section.a, y: sorted(spectra[chosen].a) }, { name: section.b, y: sorted(spectra[chosen].b),
        dashed: true }] });
    const plot = tn.plot({ ...state(), xlabel: "index, by size", ylabel: "value", zero: true, height: 260 });
    const names = spectra.map(one => one.name), choose = i => { chosen = i; plot.update(state()); };
    const picker = tn.picker("spectrum", names, i => { choose(i); follow(i); });
    const follow = tn.follow("output", names, picker, choose);
    place.append(tn.h("div", { class: "tools" }, picker.element, tn.toggle("logarithmic", true,
        on => { logY = on; plot.update(state()); })), plot.element);
    box.append(place);
};
