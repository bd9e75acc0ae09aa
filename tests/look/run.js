/* run.js - a page that `tn look` made of a model, `expected` being what `tn circuits heads`, `history` and `paths` printed of it as
   JSON. */
const said = tn.page.live.prompt;
/* All but what knows the title, and that there are right-to-left names. */
const { nothing_broke_out, right_to_left_is_isolated, ...ofThis } = everyPage;
/* What follows, the likeliest first, in a model of its own that is made as the address says. */
const freshly = async choices => {
    const { live, names } = tn.page, call = await tn.engine(tn.bytes("tn-wasm"));
    const { words } = call("live_language", tn.array(live.weights), live.config, live.tokenizer || "");
    const [amount, block, ...name] = choices.get("steer").split(" ");
    call("live_marks", live.marks === false ? 0 : 1);
    call("live_text", said);
    const lengths = [...call("live_stream", Number(block)).numbers].sort((a, b) => a - b), unit = lengths[lengths.length >> 1];
    call("live_text", choices.get("text"));
    call("live_at", Number(choices.get("position")));
    for (const part of choices.get("off").split(",")) {
        const [of, whose, value] = part.split(" ").slice(1).map(Number), [, b, head] = part.split(/\D+/).map(Number);
        if (!part.startsWith("vector")) { call("live_ablate", b, head, 1); continue; }
        const { count, numbers } = call("live_vectors", of, whose), n = (numbers.length - 1) / count - 7;
        const away = k => Math.abs(numbers[7 * k] - value), k = Array.from({ length: count }, (_, i) => i).sort((i, j) =>
            away(i) - away(j))[0], from = 7 * count + 1 + k * n;
        call("live_hide", of, whose, 0, numbers.slice(from, from + n));
    }
    const direction = call("live_direction", ((names || {}).tokens || words).indexOf(name.join(" "))).numbers;
    call("live_steer", Number(block), direction.map(v => v * amount * unit));
    const { count, numbers } = call("live_next");
    return [...numbers.subarray(count)].sort((a, b) => b - a);
};
whenFilled({
    ...ofThis,
    title() { equal("run: title", document.title, tn.page.title); },
    heads() {
        const rows = all("#heads .chooser tbody tr");
        equal("run: heads", rows.length, expected.heads.per_head.length);
        const labels = all("#heads thead th").map(heading => heading.textContent);
        for (const [label, key] of [["|QK|", "qk"], ["|OV|", "ov"], ["copying", "copying"]])
            expected.heads.per_head.forEach((head, i) => near(`run: ${label} of head ${head.head}`,
                Number(all("th, td", rows[i])[labels.indexOf(label)].querySelector(".num").dataset.value), head[key], 1e-9));
    },
    paths() {
        const shown = all("#paths .bars tbody tr").map(row => Number(one(".num", row).dataset.value));
        const { logit, per_path } = expected.paths;
        check("run: there are paths", per_path.length >= 10, `${per_path.length} of them`);
        equal("run: paths and a remainder", shown.length, per_path.length + 1);
        per_path.forEach(({ value }, i) => near(`run: path ${i}`, shown[i], value, 1e-9));
        const [sum, exact] = all("#paths .total .num").map(value => Number(value.dataset.value));
        near("run: paths and remainder are the logit", sum, exact, 1e-9);
        near("run: the logit of paths", exact, logit, 1e-9);
    },
    /* The copying score of each head at each step but the first, where it is not a number. */
    time() {
        const { steps, per_head } = expected.history, plot = all("#time .plot")[1];
        for (let step = 0; step < steps; step++) {
            press(plot, step ? "ArrowRight" : "Home");
            const shown = all(".readout .of .num", plot.parentElement).map(value => Number(value.dataset.value));
            const heads = per_head.slice(step * shown.length, (step + 1) * shown.length);
            equal("run: heads over time", shown.length * steps, per_head.length);
            if (step) heads.forEach(({ head, copying }, i) =>
                near(`run: copying of head ${head} at place ${step}`, shown[i], copying, 1e-9));
        }
    },
    /* The patterns of the text as the page's program has them are those of the command. */
    async patterns() {
        const { heads, tokens } = tn.page.sections.find(section => section.type === "heads");
        while (all("#live-patterns canvas.picture").length < heads.length) await rest(50);
        heads.forEach(({ layer, head, pattern }) => {
            one(`[data-head="${layer}.${head}"]`).click();
            const stage = one("#live-patterns .stage"), last = tokens.length - 1;
            pressMany(stage, "ArrowDown", last);
            for (let k = 0; k < 3; k++, press(stage, "ArrowRight")) near(`run: pattern of head ${layer}.${head}, token ${k}`,
                valueOf("#live-patterns .readout.cell .num"), tn.array(pattern)[last * tokens.length + k], 1e-5);
            pressMany(stage, "ArrowUp", last);
            press(stage, "End");
            equal("run: a masked cell", all("#live-patterns .readout.cell .num").length, 0);
        });
    },
    live() {
        const restore = all("#live button").find(button => button.textContent === "restore all");
        check("run: nothing to restore", restore.parentElement.hidden, "there is a button");
        for (let i = 0; i < 3; i++) all("#live-parts tbody tr:first-child .ablate")[i].click();
        check("run: something to restore", !restore.parentElement.hidden, "there is no button");
        equal("run: parts are ablated", all("#live-parts .gone").length, 3);
        ofThis.no_wider_than_the_window();
        restore.click();
        equal("run: parts are restored", all("#live-parts .gone").length, 0);
    },
    /* A head and an MLP are ablated: what the page says of its text are the numbers of a model whose weights are 0 there. */
    async ablated() {
        const told = () => new Promise(resolve => document.addEventListener("tn-explained", resolve, { once: true }));
        const close = (name, got, wanted) => near(name, got, wanted, 2e-5);
        const { per_path, logit } = expected.without, part = name => expected.parts.per_part.find(one =>
            one.part === name).value;
        one('[data-part="blocks.0.attn.1"]').click();
        one('[data-part="blocks.1.mlp"]').click();
        await told();
        equal("ablated: two are said to be", all("#ablated .chip").length, 2);
        for (const button of all("#live-parts .part")) close(`ablated: ${button.dataset.part}`, Number(button.dataset.value),
            button.classList.contains("gone") ? 0 : part(button.dataset.part));
        const terms = all("#live-parts .part, #live-parts tfoot .num").map(term => Number(term.dataset.value)), sum = terms.pop();
        close("ablated: all terms add up", terms.reduce((total, term) => total + term), sum);
        close("ablated: to the logit", sum, logit);
        const rows = all("#paths .bars tbody tr").map(row => Number(one(".num", row).dataset.value));
        equal("ablated: paths and a remainder", rows.length, per_path.length + 1);
        per_path.forEach(({ value }, i) => close(`ablated: path ${i}`, rows[i], value));
        const totals = all("#paths .total .num").map(value => Number(value.dataset.value));
        totals.forEach(total => close("ablated: the logit of paths", total, logit));
        close("ablated: the live logit of paths", Number(all("#live-paths .total .num").pop().dataset.value), logit);
        const explained = one("#live-scores .best");
        close("ablated: the live logit", Number(all("data", explained)[1].value), logit);
        const chance = valueOf("#live-scores .best .num"), first = all("#learnt .best .num").map(number =>
            Number(number.dataset.value));
        check("ablated: the first screen", first.some(value => Math.abs(value - chance) < 1e-12),
            `${first}, expected ${chance}`);
        const heads = all("#heads .chooser tbody tr").filter(row => row.textContent.includes("ablated"));
        equal("ablated: the row of the head", heads.map(row => one("th", row).textContent).join(), "0.head1");
        check("ablated: no pair of its block", all("#learnt .pair, #pairs .pair").length === 0
            || !tn.page.sections.find(section => section.type === "pairs").rows.some(row => row.block !== 1)
            || tn.gone.has("blocks.1.mlp"), "there are some");
        for (const section of tn.page.sections.filter(section => section.block === 1))
            check(`ablated: ${section.id} shows nothing`, one(`#${section.id} .body`).hidden, "it is there");
        for (const section of tn.page.sections.filter(section => section.block === 0))
            check(`ablated: ${section.id} is there`, !one(`#${section.id} .body`).hidden, "it is hidden");
        one("#heads .chooser tbody tr").click();
        await rest(50);
        const pattern = tn.answer && await tn.answer.patterns(0), stage = one("#heads .stage");
        press(stage, "Home");
        close("ablated: a pattern", valueOf("#heads .readout.cell .num"), pattern.numbers[0]);
        one("#live-vectors .ablate, #live-vectors p");
        all("#ablated button")[0].click();
        await told();
        const again = all("#paths .bars tbody tr").map(row => Number(one(".num", row).dataset.value));
        expected.paths.per_path.forEach(({ value }, i) => near(`ablated: path ${i} again`, again[i], value, 1e-9));
        equal("ablated: nothing", all("#heads .chooser tbody tr").filter(row => row.textContent.includes("ablated")).length, 0);
    },
    /* The address has the state of the page, and another page of the same model is opened in it. */
    async address() {
        const text = 'a #&=%+?\n\u{1f600} "the" cat', part = "blocks.0.attn.1";
        type(one("#live-text"), text);
        all("#live-tokens .said")[1].click();
        const slider = one("#live-steer input[type=range]");
        slider.value = 0.5;
        slider.dispatchEvent(new Event("input", { bubbles: true }));
        one(`[data-part="${part}"]`).click();
        await rest(300);
        const vector = one("#live-vectors .ablate");
        if (vector) vector.click();
        all("#heads .chooser tbody tr")[1].click();
        await rest(700);
        const hash = location.hash, out = () =>
            [...tn.gone.values()].filter(one => !one.added).map(one => one.link).join(), gone = out(), state = () => ({ ...tn.answer,
            patterns: 0 });
        equal("address: text", new URLSearchParams(hash.split("?")[1]).get("text"), text);
        equal("address: two are ablated", gone.split(",").length, 2);
        equal("address: position", new URLSearchParams(hash.split("?")[1]).get("position"), "1");
        check("address: steering", /^0\.5 \d+ ./.test(new URLSearchParams(hash.split("?")[1]).get("steer")), hash);
        const before = JSON.stringify(state());
        tn.restore();
        type(one("#live-text"), "the");
        all("#heads .chooser tbody tr")[0].click();
        await rest(700);
        check("address: another one", location.hash !== hash && tn.gone.size === 0, location.hash);
        await follow(hash);
        equal("address: the same again", location.hash.split("?")[1], hash.split("?")[1]);
        equal("address: the text", one("#live-text").value, text);
        equal("address: what is ablated", out(), gone);
        equal("address: the position", all("#live-tokens .said")[1].getAttribute("aria-checked"), "true");
        check("address: it is steered", tn.gone.has("steering") && slider.value === "0.5", slider.value);
        equal("address: the answer", JSON.stringify(state()), before);
        const fresh = await freshly(new URLSearchParams(hash.split("?")[1])), asFresh = when => {
            const shown = all("#live-scores tbody tr").slice(0, 8).map(row => Number(one(".num", row).dataset.value));
            shown.forEach((chance, i) => near(`address: a fresh model ${when}, token ${i}`, chance, fresh[i], 1e-6));
        };
        asFresh("as opened");
        await tn.answer.patterns(0);
        document.dispatchEvent(new Event("tn-model"));
        asFresh("after its patterns");
        equal("address: the head", all("#heads [aria-selected=true] th")[0].textContent, "0.head1");
        check("address: nothing is missing", one("#address").hidden, one("#address").textContent);
        await follow("#%E0%A4%A?head=9.9&off=blocks.0.attn.1,__proto__&constructor=1&output=\u202e&interactions-0=1");
        for (const word of ["%E0%A4%A", "head 9.9", "__proto__", "constructor", "U+202E", "interactions-0 1"])
            check(`address: it says ${word}`, one("#address").textContent.includes(word), one("#address").textContent);
        equal("address: the usual text", one("#live-text").value, said);
        await follow(hash);
        await follow("#heads?head=0.1");
        equal("address: only what it names", decodeURIComponent(location.hash), "#heads?head=0.1");
        equal("address: nothing is ablated or added", tn.gone.size + slider.value, "00");
        equal("address: the text of the page, and its end", one("#live-text").value + all("#live-tokens .said").at(-1).ariaChecked,
            said + "true");
        /* What is explained stays the same when the model changes, and is in the address when it is no longer the likeliest. */
        const likeliest = () => one("#live-scores tbody tr").classList.contains("best"), parts = all("#live-parts .part").length;
        for (let i = 0; i < parts && likeliest(); i++) all("#live-parts .part")[i].click();
        check("address: another token is the likeliest", !likeliest() || parts > 6, "none is");
        if (likeliest()) all("#live-scores tbody button")[1].click();
        await rest(700);
        const explained = one("#live-scores .best").textContent, last = location.hash;
        check("address: the token that is explained", last.includes("token="), last);
        await follow("#heads?" + new URLSearchParams({ off: new URLSearchParams(last.split("?")[1]).get("off") }));
        check("address: else the likeliest one", likeliest(), one("#live-scores .best").textContent);
        await follow(last);
        equal("address: the same token again", one("#live-scores .best").textContent, explained);
        tn.restore();
        all("#live-scores tbody button")[0].click();
        await rest(700);
    },
    /* Tables as files, as the page has their numbers. */
    async saves() {
        const paths = rowsOf((await saved(one("#paths"), "CSV")).text), { per_path, logit } = expected.paths;
        per_path.forEach(({ value }, i) => near(`run: path ${i} in a file`, Number(paths[i + 1][1]), value, 1e-9));
        near("run: their logit", Number(paths.at(-1)[1]), logit, 1e-9);
        const heads = rowsOf((await saved(one("#heads"), "CSV")).text), copying = heads[0].findIndex(name =>
            name.startsWith("copying"));
        expected.heads.per_head.forEach((head, i) => near(`run: copying of head ${head.head} in a file`,
            Number(heads[i + 1][copying]), head.copying, 1e-9));
        const { rows } = tn.page.sections.find(section => section.type === "pairs") || { rows: [] };
        if (rows.length) equal("run: all pairs", rowsOf((await saved(one("#pairs"), "CSV")).text).length - 1,
            parseInt(one("#pairs [role=status]").textContent, 10));
    },
    every_section() {
        for (const section of all("section.section"))
            check(`run: ${section.id} is shown`, !section.querySelector(".alarm")
                && section.querySelector(".body").childElementCount > 0, section.textContent.slice(0, 300));
    },
});
