/* compare.js - two models beside each other: a similarity for each output or layer, and their spectra in one plot: of language
   models for each block and any token, where the models run in the page, else for those tokens that it has. */
tn.sections.compare = (section, box) => {
    const columns = section.columns || [["similarity", "cosine similarity"]], [main, ...others] = columns;
    const place = tn.h("div", {}), spectra = section.spectra || [];
    box.append(tn.h("p", { class: "versus" }, tn.h("span", { class: "key", style: `--ink: ${tn.modelInk(0)}` },
        tn.token(section.a)), " and ",
        tn.h("span", { class: "key", style: `--ink: ${tn.modelInk(1)}` }, tn.token(section.b))));
    /* Of a column that has more than whole numbers all have as many digits. */
    const text = key => section.rows.every(row => !(row[key] % 1)) ? tn.format : value => tn.figures(value, 3);
    if (section.rows && section.rows.length) box.append(tn.h("div", { class: "scroll" },
        tn.bars(section.rows.map(row => ({ label: row.name, value: row[main[0]], text: text(main[0])(row[main[0]]),
        notes: others.map(([key]) => typeof row[key] === "number" ? tn.number(row[key], 3, text(key)(row[key])) : "–") })),
        { limit: section.limit || 1, head: ["", "", ...columns.map(column => column[1])] })),
        tn.saves(() => "table", { CSV: () => tn.csv([["", ...columns.map(column => column[1])], ...section.rows.map(row =>
            [row.name, ...columns.map(([key]) => row[key])])]) }));
    if (!spectra.length) return;
    const live = tn.page.live && tn.page.live.kind === "two texts" && typeof WebAssembly === "object"
        && document.getElementById("tn-wasm").textContent.trim();
    const inPage = [...new Set(spectra.map(one => one.name))], names = live ? tn.page.names.tokens : inPage;
    const blocks = [...new Set(spectra.map(one => one.block))];
    let logY = true, chosen = names.indexOf(spectra[0].name), block = blocks[0];
    const sorted = values => Array.from(tn.array(values)).filter(v => !Number.isNaN(v)).sort((a, b) =>
        Math.abs(b) - Math.abs(a));
    /* The values of both models, or null. */
    const found = () => {
        const one = spectra.find(({ name, block: of }) => name === names[chosen] && of === block);
        if (one) return [one.a, one.b].map(sorted);
        return tn.spectraOfTwo ? tn.spectraOfTwo(block, chosen, section.units).map(sorted) : null;
    };
    const missing = tn.h("p", { class: "soft small", role: "status" });
    const state = () => {
        let values = null, why = "it is computed when both models run in this page";
        try { values = found(); } catch (error) { why = error.message; }
        missing.textContent = values ? "" : `The spectra of ${tn.plain(names[chosen])} are not here: ${why}.`;
        const [a, b] = values || [[], []];
        return { logY, label: `spectra of “${tn.plain(names[chosen])}”${block === undefined ? "" : `, block ${block}`}`,
            series: [{ name: section.a, y: a, ink: tn.modelInk(0) }, { name: section.b, y: b, ink: tn.modelInk(1), dashed: true }] };
    };
    const update = () => plot.update(state()), choose = i => { chosen = i; update(); };
    const plot = tn.plot({ ...state(), xlabel: "index, by size", ylabel: "value", zero: true, height: 260 });
    const picker = tn.picker(block === undefined ? "spectrum" : "logit of", names, i => { choose(i); follow(i); }, chosen);
    const follow = tn.follow("output", names, picker, choose);
    const ofBlock = tn.picker("block", blocks.map(String), i => { block = blocks[i]; update(); });
    if (live) document.addEventListener("tn-live", update);
    place.append(tn.h("div", { class: "tools" }, picker.element, ofBlock.element, tn.toggle("logarithmic", true,
        on => { logY = on; update(); })), missing, plot.element);
    box.append(place);
};
