/* language.js - a page of a language model, whose tokens try to break out. */
const cell = section => valueOf(`#${section} .readout.cell .num`);
whenFilled({
    ...everyPage,
    eigen() {
        const input = one("#eigen [role=combobox]"), options = () => all("#eigen [role=option]");
        type(input, "output 13");
        equal("eigen: found", options().length, 1);
        press(input, "Enter");
        equal("eigen: picked", input.value, "layer 1, output 13");
        equal("eigen: heading", one("#eigen .detail h3").textContent, "Eigenvector 0 for “layer 1, output 13”");
        press(input, "ArrowDown");
        press(input, "ArrowDown");
        equal("eigen: by arrow keys", options().findIndex(option => option.getAttribute("aria-selected") === "true"), 1);
        press(input, "Escape");
        check("eigen: closed", one("#eigen [role=listbox]").hidden, "it is open");
        equal("eigen: as before", input.value, "layer 1, output 13");
        type(input, "no such name");
        equal("eigen: none", options().length, 0);
        press(input, "Escape");
        all("#eigen .combo > button")[0].click();
        equal("eigen: the one before", input.value, "layer 1, output 12");
        type(input, "output 0");
        press(input, "Enter");
        equal("eigen: a token", one("#eigen .tokens .token").textContent, "␣the");
        near("eigen: its value", valueOf("#eigen .tokens .num"), 1 / 1.5, 0);
        const sentence = all("#eigen .sentence .token"), strengths = [2.5, -1.75, 0.5, -0.25];
        equal("eigen: a sentence", one("#eigen .sentence").textContent, "␣timeU+202Egnihtyna␣cat.");
        sentence.forEach((token, i) => near(`eigen: strength ${i}`, Number(token.dataset.value), strengths[i], 0));
        equal("eigen: its strongest token", sentence[0].style.background, tn.css(tn.colour(1)).replaceAll(/(\d) /g, "$1, "));
    },
    matrix() {
        const stage = one("#matrix .stage");
        for (let i = 0; i < 4; i++) press(stage, "+");
        press(stage, "ArrowRight");
        near("matrix: value", cell("matrix"), expected.product[0]);
        equal("matrix: column", one("#matrix .columnname").textContent, "␣cat");
        pressMany(stage, "ArrowRight", 6);
        pressMany(stage, "ArrowDown", 5);
        pressMany(stage, "PageDown", 2);
        near("matrix: value of 8-bit factors", cell("matrix"), expected.product[1]);
        equal("matrix: hostile row", one("#matrix .rowname").textContent, "<\/script><script>document.title='broken'<\/script>");
        equal("matrix: hidden column", one("#matrix .columnname").textContent, "U+202Egnihtyna");
        check("matrix: error of 8 bits", all("#matrix .small .num").some(error => Number(error.dataset.value) > 1e-4),
            one("#matrix").textContent);
        /* What is painted is multiplied by other loops than what is read. */
        const source = tn.source(tn.page.sections.find(section => section.id === "matrix"));
        const block = (first, step, count) => ({ first, step, count });
        near("matrix: painted", source.grid(2, block(4, 1, 3), block(6, 1, 2))[3], expected.product[1]);
        const four = [[4, 6], [4, 7], [5, 6], [5, 7]].map(([i, j]) => source.at(2, i, j));
        near("matrix: mean of a block", source.grid(2, block(4, 2, 1), block(6, 2, 1))[0], four.reduce((sum, v) => sum + v) / 4);
        const names = ["␣the", "\"'`", "U+2028", "␀␁␛", "↵", "⇥", "U+D800", "empty", "a very long token"];
        for (const name of names) {
            let found = false;
            press(stage, "Home");
            for (let i = 0; i < 40 && !found; i++,
                press(stage, "ArrowRight")) found = one("#matrix .columnname").textContent.startsWith(name);
            check(`matrix: the name ${name}`, found, "no column has it");
        }
    },
    heads() {
        const rows = () => all("#heads .chooser tbody tr"), first = () => one("th", rows()[0]).textContent;
        equal("heads: copying", Number(one(".num", rows()[1]).dataset.value), expected.copying);
        all("#heads .sort")[0].click();
        const values = rows().map(row => Number(one(".num", row).dataset.value));
        check("heads: sorted", values.every((v, i) => !i || v <= values[i - 1]), values.join());
        all("#heads .sort")[0].click();
        check("heads: the other way", Number(one(".num", rows()[0]).dataset.value) === Math.min(...values), first());
        all("#heads .sort")[1].click();
        all("#heads .sort")[1].click();
        press(rows()[0], "End");
        equal("heads: chosen", one("#heads h3").textContent, "Block 1, head 3");
        press(one("#heads .words [role=radio][tabindex='0']"), "Home");
        pressMany(one("#heads .words [role=radio][tabindex='0']"), "ArrowRight", 4);
        const stage = one("#heads .stage");
        pressMany(stage, "ArrowDown", 4);
        pressMany(stage, "ArrowRight", 3);
        equal("heads: pattern", cell("heads"), expected.pattern);
        one("#heads .head .picker [role=radio]:nth-child(2)").click();
        const qk = one("#heads .stage");
        press(qk, "+");
        press(qk, "ArrowDown");
        pressMany(qk, "ArrowRight", 2);
        near("heads: QK", cell("heads"), expected.qk, 1e-6);
        check("heads: explanations", one("#heads details").textContent.includes("mean distance"),
            one("#heads details").textContent);
    },
    pairs() {
        const rows = () => all("#pairs tbody tr");
        equal("pairs: the first", valueOf("#pairs .num"), expected.pair);
        equal("pairs: a page", rows().length, 25);
        all("#pairs button").find(button => button.textContent === "show more").click();
        equal("pairs: all", rows().length, 120);
        const search = one("#pairs input[type=search]");
        type(search, "<\/SCRIPT>");
        check("pairs: found", rows().length > 0 && rows().every(row => row.textContent.includes("<\/script>")), rows().length);
        check("pairs: count", /^\d+ of 120 pairs$/.test(one("#pairs [role=status]").textContent),
            one("#pairs [role=status]").textContent);
        type(search, "\u05e9\u05dc\u05d5");
        check("pairs: right to left", rows().length > 0, "none");
        type(search, "nothing has this name");
        equal("pairs: none", rows().length, 0);
        type(search, "");
        all("#pairs .picker [role=radio]")[2].click();
        check("pairs: negative", rows().length > 0 && all("#pairs tbody .num").every(value => Number(value.dataset.value) < 0),
            rows().length);
    },
    paths() {
        all("#paths .picker [role=radio]").at(0).click();
        near("paths: the first", valueOf("#paths tbody .num"), 3.1, 0);
        const picked = () => all("#paths .total .num").map(value => Number(value.dataset.value));
        all("#paths .picker [role=radio]").at(-1).click();
        near("paths: sum", picked()[0], expected.sum);
        equal("paths: exact", picked()[1], expected.sum);
        check("paths: remainder", Number(one("#paths .rest .num").dataset.value) === 0.0625, one("#paths .rest").textContent);
    },
});
