/* compare.js - a page of two models, `expected` being what `tn circuits diff` printed of them as JSON. */
const { nothing_broke_out, right_to_left_is_isolated, ...ofThis } = everyPage;
whenFilled({
    ...ofThis,
    /* What both models say of a text, computed before and in the page. */
    live() {
        const { models } = tn.page.sections.find(section => section.type === "learnt").example,
            columns = all("#live .answer-of");
        equal("compare: both are live", columns.length, 2);
        columns.forEach((column, i) => models[i].next.slice(0, 3).forEach(([, chance], k) =>
            near(`compare: probability ${k} of model ${i}`, Number(all("tbody tr",
                column)[k].querySelector(".num").dataset.value),
                chance, 1e-5)));
        /* Bars of both on one scale. */
        const bars = all("#live .answer-of tbody tr").map(row => [Number(one(".num", row).dataset.value || 0),
            parseFloat(one(".track i", row).style.width)]), [value, width] = bars.reduce((a, b) => a[0] > b[0] ? a : b);
        near("compare: the longest bar", width, 100, 1e-6);
        for (const [x, share] of bars) near("compare: a bar", share, 100 * x / value, 1e-3);
        const likeliest = columns.map(column => all("tbody tr", column).map(row => one(".token", row).textContent));
        columns.forEach((column, i) => all("tbody tr", column).forEach((row, k) => equal(`compare: only in model ${i}`,
            row.querySelector(".only") !== null, !likeliest[1 - i].includes(likeliest[i][k]))));
        type(one("#live-text"), "the cat");
        check("compare: another text", Math.abs(valueOf("#live .answer-of .num") - models[0].next[0][1]) > 1e-9,
            "the same answer");
    },
    /* What the parts of each add to the logit of the likeliest token of the first. */
    async parts() {
        await rest(700);
        all("#live .of-two").forEach((half, i) => {
            const terms = all(".part, tfoot .num", half).map(term => Number(term.dataset.value)), sum = terms.pop();
            equal(`compare: what the terms of model ${i} are`, one("tr.sum th", half).textContent, "sum: the logit");
            near(`compare: terms of model ${i}`, terms.reduce((total, term) => total + term, 0), sum, 1e-4);
            const name = one("h4 .piece", half).textContent, row = all(".answer-of tbody tr", half).find(line =>
                one(".token", line).textContent === name);
            check("compare: the token of the first is among its likeliest", row || i, name);
            if (row) near(`compare: the logit of model ${i}`, sum, Number(all(".num", row)[1].dataset.value), 1e-4);
        });
    },
    /* The spectra of any token, computed in the page, are those that were computed before; parts of either model are ablated. */
    spectra() {
        const { spectra, units } = tn.page.sections.find(section => section.type === "compare");
        check("compare: several spectra", spectra.length > 4, spectra.length);
        for (const { name, block, a, b } of spectra) {
            const both = tn.spectraOfTwo(block, tn.page.names.tokens.indexOf(name), units);
            [a, b].forEach((before, i) => Array.from(tn.array(before)).slice(0, 4).forEach((value, k) =>
                near(`compare: value ${k} of ${name} in block ${block}, model ${i}`, both[i][k], value, 1e-5)));
        }
    },
    ablated() {
        const first = i => Number(one("tbody .num", all("#live .answer-of")[i]).dataset.value), before = [0, 1].map(first);
        for (const [i, part] of [[0, "first blocks.0.attn.1"], [1, "other blocks.1.mlp"]]) {
            one(`[data-part="${part}"]`).click();
            check(`compare: ${part} is ablated`, first(i) !== before[i], before[i]);
            equal("compare: outdated terms add up to no logit", all("#live .sum th").map(name => name.textContent).join(), "sum,sum");
            equal(`compare: the other model is whole`, first(1 - i), before[1 - i]);
            check("compare: what was computed before is of the whole",
                getComputedStyle(one("#heads .of-whole")).display !== "none", "it does not say so");
            all("#ablated button")[0].click();
            equal(`compare: ${part} is restored`, first(i), before[i]);
        }
    },
    similarities() {
        const columns = all("#compare thead th").slice(2).map(heading => heading.textContent);
        const rows = all("#compare .bars tbody tr").map(row => [one("th", row).textContent,
            all("td.right", row).map(cell => cell.querySelector(".num") ? Number(cell.querySelector(".num").dataset.value) : null)]);
        const value = (begin, column) => rows.find(([name]) => name.startsWith(begin))[1][columns.indexOf(column)];
        equal("compare: rows", rows.length, expected.per_head.length + expected.per_mlp.length);
        for (const { head, other, ov_tokens, qk_tokens } of expected.per_head) {
            near(`compare: OV of ${head}`, value(`${head}, there ${other}`, "between tokens"), ov_tokens, 1e-9);
            if (qk_tokens === null) equal(`compare: QK of ${head}`, value(head, "QK"), null);
            else near(`compare: QK of ${head}`, value(head, "QK"), qk_tokens, 1e-9);
        }
        for (const { mlp, tokens, stream, units } of expected.per_mlp) {
            near(`compare: MLP ${mlp}`, value(`${mlp}.mlp`, "between tokens"), tokens, 1e-9);
            near(`compare: stream of MLP ${mlp}`, value(`${mlp}.mlp`, "in the stream"), stream, 1e-9);
            near(`compare: units of MLP ${mlp}`, value(`${mlp}.mlp`, "hidden units"), units, 1e-9);
        }
    },
});
