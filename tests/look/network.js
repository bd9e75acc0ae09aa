/* network.js - a page of a network like that of `make demo`; `expected` has what the library computes of it, and elements of its
   interaction matrices by the formula: from single precision, which is what the network is stored and computed in. */
const { nothing_broke_out, right_to_left_is_isolated, ...ofThis } = everyPage;
const close = (name, got, wanted) => near(name, got, wanted, 1e-5);
whenFilled({
    ...ofThis,
    eigenvalues() {
        const rows = all("#spectra .chooser tbody tr");
        equal("network: outputs", rows.length, 10);
        expected.eigenvalues.forEach((wanted, output) => {
            rows[output].click();
            const plot = one("#spectra .plot"), shown = () => Number(one("#spectra .readout .of .num").dataset.value);
            press(plot, "Home");
            close(`network: the first eigenvalue of output ${output}`, shown(), wanted[0]);
            press(plot, "ArrowRight");
            close(`network: the second eigenvalue of output ${output}`, shown(), wanted[1]);
        });
    },
    /* How often it is right, of the pictures that have labels, and how much of it is beyond chance. */
    how_well() {
        const right = [0, 1, 2].filter(i => { const of = expected.logits.slice(10 * i, 10 * i + 10);
            return of.indexOf(Math.max(...of)) === i; }).length;
        near("network: share of right answers", valueOf("#learnt .findings b .num"), right / 3);
        const groups = tn.page.sections.find(section => section.id === "spectra").groups.map(({ values, null_edge }) =>
            Array.from(tn.array(values)).reduce(([count, some, all], v) => { const past = Math.abs(v) > null_edge;
                return [count + past, some + past * v * v, all + v * v]; }, [0, 0, 0]));
        const mean = list => list.reduce((sum, x) => sum + x, 0) / list.length;
        equal("network: eigenvalues beyond chance, and their share", all("#learnt .findings li:last-child b").map(b =>
            b.textContent).join(), [mean(groups.map(one => one[0])), 8, tn.percent(mean(groups.map(one => one[1]
            / one[2])))].join());
        const learnt = tn.page.sections.find(section => section.type === "learnt"), box = tn.h("div");
        equal("network: one layer", learnt.layers.join(), "1");
        tn.sections.learnt({ ...learnt, right: [null], layers: [2] }, box);
        equal("network: of several layers it is not known", all(".findings li", box).pop().textContent,
            "It has several layers, so the page does not measure how often it is right.");
        check("network: the picture is one of the data", one("#live").textContent.includes("picture 0 of the data, labelled 0"),
            one("#live").textContent.slice(0, 200));
    },
    /* The nearest input with another answer is as far as the page says. */
    nearest_input() {
        tn.page.sections.find(section => section.id === "spoke").examples.forEach((example, i) => {
            const input = tn.array(example.input), length = Math.hypot(...tn.array(example.nearest).map((v, k) => v - input[k]));
            all("#spoke .example")[i].click();
            close(`network: distance ${i}`, Number(one("#spoke .nearest .num").dataset.value), length);
        });
        all("#spoke .example")[0].click();
    },
    /* What it has learnt has no pattern that chance alone would give, until a reader asks for it. */
    within_the_null() {
        const groups = tn.page.sections.find(section => section.id === "spectra").groups;
        const shown = () => all("#learnt .class").map(card => all(".strip figure", card).length).join();
        const wanted = anyway => groups.map(({ values, null_edge }) => [1, -1].reduce((sum, sign) => sum + Math.min(2,
            [...tn.array(values)].filter(v => v * sign > (anyway ? 0 : null_edge)).length), 0)).join();
        equal("network: patterns beyond the null", shown(), wanted(false));
        one("#learnt .toggle").click();
        equal("network: all patterns", shown(), wanted(true));
        const figures = all("#learnt .strip .eigenvalue .num"), did = figures.map(number =>
            one(".caption", number.closest(".strip")).textContent);
        check("network: there are eigenvalues", figures.length >= 10, figures.length);
        check("network: as many digits in each", figures.every(number => number.textContent.replace(/[−.]/g, "").replace(/^0+/,
            "").length === 2), figures.map(one => one.textContent).join());
        equal("network: rows say what they do", did.join(), figures.map(number => Number(number.dataset.value) < 0 ? "lowers"
            : "raises").join());
        equal("network: and all eigenvectors", one("#eigen .toggle").getAttribute("aria-pressed"), "true");
    },
    interactions() {
        const stage = one("#interactions .stage");
        pressMany(stage, "PageUp", 10);                 /* from the output of the first picture */
        expected.interactions.forEach(([row, column, wanted], output) => {
            press(stage, "Home");
            pressMany(stage, "ArrowUp", 16);
            pressMany(stage, "ArrowDown", row);
            pressMany(stage, "ArrowRight", column);
            close(`network: element ${row},${column} of output ${output}`, valueOf("#interactions .readout.cell .num"), wanted);
            press(stage, "PageDown");
        });
    },
    logits() {
        const examples = all("#spoke .example");
        equal("network: pictures", examples.length, 3);
        examples.forEach((example, i) => {
            example.click();
            all("#spoke .scores .num").forEach((sum, output) =>
                close(`network: output ${output} of picture ${i}`, Number(sum.dataset.value), expected.logits[10 * i + output]));
            all("#spoke .picker button").forEach((button, output) => {
                button.click();
                const [sum, exact] = all("#spoke .total .num").map(number => Number(number.dataset.value));
                close(`network: sum for output ${output} of picture ${i}`, sum, expected.logits[10 * i + output]);
                close(`network: logit ${output} of picture ${i}`, exact, expected.logits[10 * i + output]);
            });
        });
    },
    /* An eigenvector is ablated in the live part, and every number of the page is of the network without it. */
    ablated() {
        const { output, k, rank, norm, element, values, logits } = expected.without;
        const shown = (selector, row) => all(selector)[row];
        const whole = all("#spectra .chooser .num").map(number => number.dataset.value).join();
        const see = () => all("#live-scores tbody tr").map(row => Number(all("data", row)[1].value));
        all("#live-scores tbody tr button")[output].click();
        one(`#live-spoke [data-k="${k}"]`).click();
        equal("ablated: one is said to be", all("#ablated .chip").length, 1);
        check("ablated: what is", one("#ablated").textContent.includes(`eigenvector ${k} for “${output}”`),
            one("#ablated").textContent);
        see().forEach((logit, o) => close(`ablated: live logit ${o}`, logit, logits[o]));
        equal("ablated: its contribution", Number(all("#live-spoke .gone data")[1].dataset.value), 0);
        close("ablated: contributions add up", Number(all("#live-spoke data").pop().dataset.value), logits[output]);
        const table = all("td .num", shown("#spectra .chooser tbody tr", output)).map(number => Number(number.dataset.value));
        equal("ablated: values", table[0], values.filter(v => Math.abs(v) > 1e-6 * Math.abs(values[0])).length);
        close("ablated: effective rank", table[1], rank);
        close("ablated: beyond the null", table[2],
            values.filter(v => Math.abs(v) > tn.page.sections.find(section =>
                section.id === "spectra").groups[output].null_edge).length);
        close("ablated: norm", table[3], norm);
        shown("#spectra .chooser tbody tr", output).click();
        values.slice(0, 4).forEach((value, i) => {
            press(one("#spectra .plot"), i ? "ArrowRight" : "Home");
            close(`ablated: eigenvalue ${i}`, Number(one("#spectra .readout .of .num").dataset.value), value);
        });
        all("#eigen .picker button")[output].click();
        equal("ablated: its card", all("#eigen .vector.gone").length, 1);
        const cards = all("#eigen .vector:not(.gone) .num").map(number => Number(number.dataset.value)).sort((a, b) => a - b);
        const most = all("#eigen .more").length ? null : values.slice(0, cards.length).sort((a, b) => a - b);
        if (most) cards.forEach((value, i) => close(`ablated: card ${i}`, value, most[i]));
        const learnt = all(".num", shown("#learnt .class", output)).map(number => Number(number.dataset.value));
        const up = values.filter(v => v > 0).sort((a, b) => b - a).slice(0, 2), down = values.filter(v => v < 0).sort((a, b) =>
            a - b).slice(0, 2);
        equal("ablated: what it has learnt", learnt.length, up.length + down.length);
        [...up, ...down].forEach((value, i) => close(`ablated: what it has learnt, ${i}`, learnt[i], value));
        const stage = one("#interactions .stage");
        pressMany(stage, "PageUp", 10);
        pressMany(stage, "PageDown", output);
        press(stage, "Home");
        pressMany(stage, "ArrowUp", 16);
        pressMany(stage, "ArrowDown", 2);
        pressMany(stage, "ArrowRight", 5);
        close("ablated: an element", valueOf("#interactions .readout.cell .num"), element);
        const source = tn.without(tn.page.sections.find(section => section.id === "interactions"),
            tn.source(tn.page.sections.find(section => section.id === "interactions")));
        close("ablated: an element that is painted", source.grid(output, { first: 2, step: 1, count: 1 }, { first: 5, step: 1,
            count: 1 })[0], element);
        all("#spoke .example").forEach((example, i) => {
            example.click();
            all("#spoke .scores .num").forEach((sum, o) =>
                close(`ablated: output ${o} of picture ${i}`, Number(sum.dataset.value), logits[10 * i + o]));
            all("#spoke .picker button")[output].click();
            const [sum, exact] = all("#spoke .total .num").map(number => Number(number.dataset.value));
            close(`ablated: sum of picture ${i}`, sum, logits[10 * i + output]);
            close(`ablated: logit of picture ${i}`, exact, logits[10 * i + output]);
        });
        check("ablated: the card is of the whole", getComputedStyle(one("#card .of-whole")).display !== "none",
            "it does not say so");
        all("#ablated button")[0].click();
        check("ablated: restored", one("#ablated").hidden, "the list is there still");
        equal("ablated: the spectra are whole", all("#spectra .chooser .num").map(number => number.dataset.value).join(),
            whole);
        all("#spoke .example")[0].click();
    },
    async address() {
        const { output, k, logits } = expected.without;
        await follow(`#spectra?off=eigenvector ${output} ${k}&output=${output}&eigen=1&interactions=2,5`);
        equal("address: its eigenvector is ablated", [...tn.gone.keys()].join(), `eigenvector ${output} ${k}`);
        all("#live-scores tbody tr").forEach((row, o) => close(`address: live logit ${o}`, Number(all("data", row)[1].value),
            logits[o]));
        equal("address: its spectrum", all("#spectra .chooser tbody tr").findIndex(row => row.ariaSelected === "true"), output);
        check("address: its eigenvector", one("#eigen .detail h3").textContent.startsWith("Eigenvector 1 "),
            one("#eigen .detail h3").textContent);
        close("address: its cell", valueOf("#interactions .readout.cell .num"), expected.without.element);
        tn.restore();
        await rest(400);
        check("address: restored", !location.hash.includes("off="), location.hash);
    },
    live() {
        const scores = () => all("#live-scores tbody tr").map(row => Number(all("data", row)[1].value));
        equal("network: outputs of the live part", scores().length, 10);
        scores().forEach((logit, output) => close(`network: live logit ${output}`, logit, expected.logits[output]));
        one("#live-spoke .ablate").click();
        check("network: an eigenvector is ablated", one("#live-spoke .gone").textContent.includes("ablated"), "it is not");
        ofThis.no_wider_than_the_window();
        const restore = all("#live button").find(button => button.textContent === "restore all");
        restore.click();
        scores().forEach((logit, output) => close(`network: restored logit ${output}`, logit, expected.logits[output]));
    },
});
