/* learnt.js - what a model has learnt, in one screen and without data: of an image model the patterns for and against each class,
   of a language model its loss, one text that it continues, and words and pairs that it knows, of tensors their spectra, of
   two models what both have. Other sections show all of it. */
const sections = type => tn.page.sections.filter(section => section.type === type);

/* ---- classes: the strongest eigenvectors of both signs */
const most = 10;
const strip = (ones, name) => {
    const { width, height } = tn.page.pixels;
    return tn.h("div", { class: "strip" }, ones.map(one => tn.h("figure", { class: one.value < 0 ? "below" : "above" },
        tn.picture(one.vector, width, height, { label: `${one.value < 0 ? "against" : "for"} ${tn.plain(name)}` }),
        tn.h("figcaption", { class: "eigenvalue" }, one.value > 0 ? "+" : "", tn.number(one.value, 2)))));
};
const classCard = (output, o, section, pick) => {
    const all = tn.eigenvectors(output).filter(one => one.vector && !(tn.isMain(section) && tn.isGone(o, one.k)));
    const of = sign => all.filter(one => one.value * sign > 0 && tn.isShown(one)).sort((a, b) => sign * (b.value - a.value))
        .slice(0, 2);
    return tn.h("button", { type: "button", class: "class", "aria-label": `class ${tn.plain(output.name)}`, onclick: pick },
        tn.h("b", {}, tn.token(output.name)), all.some(tn.isShown) ? [strip(of(1), output.name), strip(of(-1), output.name)]
            : tn.h("span", { class: "soft small", text: "no pattern beyond chance" }));
};
/* How many patterns are more than chance. */
const beyondChance = () => {
    const counts = sections("spectra").flatMap(section => section.groups).filter(group => typeof group.null_edge === "number")
        .map(group => { const values = tn.array(group.values); return [values.filter(v => Math.abs(v) > group.null_edge).length,
            values.length]; });
    if (!counts.length) return null;
    const mean = k => counts.reduce((sum, pair) => sum + pair[k], 0) / counts.length;
    return tn.h("p", { class: "finding" }, "On average ", tn.h("b", { text: tn.format(Math.round(mean(0))) }),
        ` of ${tn.format(Math.round(mean(1)))} patterns of an output are stronger than those of shuffled weights; the others `,
        "could be chance, and are not shown. ", tn.anywayToggle());
};
const classes = (section, box) => {
    const eigen = sections("eigen")[0], grid = tn.h("div", { class: "classes" }), names = eigen.outputs.map(one => one.name);
    let shown = Math.min(most, names.length);
    const choose = tn.follow("output", names, { value: -1, show() {} }, () => {});
    const draw = () => grid.replaceChildren(...eigen.outputs.slice(0, shown).map((output, o) =>
        classCard(output, o, eigen, () => choose(o))));
    tn.drawn(draw);
    document.addEventListener("tn-anyway", draw);
    const more = tn.h("button", { type: "button", class: "more", hidden: names.length <= most,
        text: `all ${names.length} outputs`,
        onclick: () => { shown = names.length; more.hidden = true; draw(); } });
    box.append(tn.h("p", { class: "small soft keys" }, tn.h("span", { class: "key", style: "--ink: var(--above)",
        text: "for" }), " ",
        tn.h("span", { class: "key", style: "--ink: var(--below)", text: "against" }), " a click chooses this output below"),
        grid, more, beyondChance() || "");
};

/* ---- language */
/* A table of losses, the best first: a bar each. */
const losses = list => tn.h("div", { class: "losses" },
    tn.h("h4", { text: "Loss on unseen text, nats per token (lower is better)" }),
    tn.bars(list.map(({ name, nats, own }) => ({ label: name, value: nats, text: nats.toFixed(2), class: own ? "best"
        : "other" }))));
/* What the signs in the tokens of a text mean. */
const signsIn = (tokens, signs = []) => {
    const used = signs.filter(([sign]) => tokens.some(name => name.startsWith(sign)));
    return used.length ? tn.h("p", { class: "soft small" }, used.map(([sign, what], i) =>
        [i ? ", " : "", tn.token(sign, { class: "token piece" }), ` ${what}`]), ".") : null;
};
const textOf = (tokens, signs, next) => tn.h("div", {},
    tn.h("p", { class: "text" }, tokens.map(name => tn.token(name)), tn.h("span", { class: "next" }, " → ", next)),
    signsIn(tokens, signs));
const nextOf = ({ tokens, next, token }, signs) => [textOf(tokens, signs, tn.token(token)),
    tn.bars(next.map(([name, chance]) => ({ label: name, value: chance, text: tn.chance(chance), class: name === token ? "best"
        : "" })))];
const whyOf = (values, token) => {
    const rows = [...values].sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 4);
    if (!rows.length) return [];
    return [tn.h("h4", {}, "Why ", tn.token(token, { class: "token piece" }), "? The largest terms of its logit"),
        tn.bars(rows.map(([name, value]) => ({ label: tn.partName(name), value, text: tn.term(value) })))];
};
const pairsOf = rows => [tn.h("h4", { text: "Pairs of words that raise a third one in an MLP, in nats" }),
    tn.bars(rows.map(row => ({ value: row.value, text: tn.term(row.value), label: tn.h("span", { class: "pair" },
        tn.token(row.first), tn.h("i", { text: " × " }), tn.token(row.second), tn.h("i", { text: " → " }),
        tn.token(row.output)) }))),
    tn.h("p", { class: "soft small", text: "From the weights alone: if an MLP read the sum of the two words’ embeddings, their " +
        "product would add this much to the logit of the third word (1 nat multiplies its odds by 2.7). The words have no " +
        "order. In a text an MLP reads what attention has mixed from all words, so that a pair adds less there, and other " +
        "parts add to the logit as well: the probabilities above do not follow from these numbers." })];
const language = (section, box) => {
    const example = tn.h("div", {}), left = [], first = section.example;
    const show = () => {
        example.classList.remove("old");
        const live = tn.answer, one = live || (first && { ...first, values: first.parts });
        if (one) example.replaceChildren(tn.h("h4", { text: "One text, and what it expects next" }),
            ...nextOf(one, section.signs), ...whyOf(one.values, one.token));
    };
    document.addEventListener("tn-answer", show);
    document.addEventListener("tn-asked", () => example.classList.add("old"));
    show();
    if (section.losses) left.push(losses(section.losses));
    const words = (section.words || []).length ? tn.h("div", {}, tn.h("h4", { text: "After one word alone it expects" }),
        tn.bars(section.words.map(({ word, next, chance }) => ({ value: chance, text: tn.chance(chance),
            label: tn.h("span", { class: "pair" }, tn.token(word), tn.h("i", { text: " → " }), tn.token(next)) })))) : null;
    const pairs = tn.h("div", {});
    const some = section.pairs || [];
    if (some.length) tn.drawn(() => pairs.replaceChildren(...pairsOf(some.filter(row =>
        !tn.gone.has(`blocks.${row.block}.mlp`)).slice(0, 6))));
    if (words) left.push(words);
    left.push(tn.ofWhole());
    box.append(tn.h("div", { class: "two even" }, tn.h("div", {}, left, some.length ? pairs : null), example));
};

/* ---- tensors: the spectrum of each, small */
const spark = values => {
    const width = 150, height = 34, top = values[0] || 1, step = width / Math.max(1, values.length);
    const places = values.map((v, i) => [(i + 0.5) * step, height - 2 - (height - 4) * Math.abs(v) / top]);
    return tn.s("svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
        "aria-label": `${values.length} values` },
        places.length > 60 ? tn.s("path", { d: places.map(([x, y], i) => (i ? "L" : "M") + x.toFixed(1) + " "
            + y.toFixed(1)).join("") })
            : places.map(([x, y]) => tn.s("line", { x1: x, x2: x, y1: height - 1, y2: y, "stroke-width": Math.min(6,
                0.7 * step) })));
};
const tensors = (section, box) => {
    const groups = sections("spectra").flatMap(one => one.groups.map(group => ({ ...group, section: one.id })));
    const rows = groups.map(group => {
        const values = Array.from(tn.array(group.values)).sort((a, b) => Math.abs(b) - Math.abs(a));
        const all = values.reduce((sum, v) => sum + v * v, 0);
        let sum = 0, needed = 0;
        while (needed < values.length && sum < 0.9 * all) sum += values[needed++] ** 2;
        return tn.h("tr", {}, tn.h("th", { scope: "row" }, tn.h("a", { href: "#" + group.section }, tn.token(group.name))),
            tn.h("td", {}, spark(values)), tn.h("td", { class: "right" }, tn.number(needed), ` of ${values.length}`),
            tn.h("td", { class: "right" }, tn.number(group.effective_rank, 3)), tn.h("td", { class: "right" },
                tn.number(group.norm, 4)));
    });
    if (rows.length) box.append(tn.h("div", { class: "scroll" }, tn.h("table", {}, tn.h("thead", {}, tn.h("tr", {},
        ["tensor", "its values, largest first", "carry 90 % of it", "effective rank", "norm"].map((name, i) =>
            tn.h("th", { scope: "col", class: i > 1 ? "right" : "", text: name })))), tn.h("tbody", {}, rows))));
    else box.append(tn.h("p", { class: "soft", text: "No tensor here has a spectrum; the numbers are below." }));
};

/* ---- two models: class by class, or what both say of one text */
const twoClasses = (section, box) => {
    const [a, b] = sections("eigen"), compare = sections("compare")[0], names = a.outputs.map(one => one.name);
    const grid = tn.h("div", { class: "classes" }), choose = tn.follow("output", names, { value: -1, show() {} }, () => {});
    const strongest = output => {
        const all = tn.eigenvectors(output).filter(one => one.vector && tn.isShown(one));
        return [1, -1].map(sign => all.filter(one => one.value * sign > 0).sort((x, y) =>
            sign * (y.value - x.value))[0]).filter(Boolean);
    };
    const draw = () => grid.replaceChildren(...a.outputs.slice(0, most).map((output, o) => tn.h("button", { type: "button",
        class: "class", "aria-label": `class ${tn.plain(output.name)}`, onclick: () => choose(o) },
        tn.h("b", {}, tn.token(output.name)), tn.h("span", { class: "caption" }, "cosine ",
            tn.number(compare.rows[o].similarity, 2)),
        [output, b.outputs[o]].map((one, i) => tn.h("div", { class: "of-model", style: `--ink: var(--series-${i + 1})` },
            strip(strongest(one), one.name))))));
    document.addEventListener("tn-anyway", draw);
    draw();
    box.append(tn.h("p", { class: "small soft keys" }, [compare.a, compare.b].map((name, i) =>
        tn.h("span", { class: "key", style: `--ink: var(--series-${i + 1})` }, tn.token(name))),
        tn.h("span", { text: "for (left) and against (right); a click chooses this output below" })), grid);
};
const twoModels = (section, box) => {
    const { tokens, models } = section.example, limit = Math.max(...models.map(one => one.next[0][1]));
    const others = i => models[1 - i].next.map(([name]) => name);
    box.append(textOf(tokens, section.signs, "?"), tn.besides(models, models.map((one, i) =>
        tn.bars(one.next.map(([name, chance], k) => ({ value: chance, text: tn.chance(chance), class: k ? "" : "best",
            label: tn.h("span", {}, tn.token(name), tn.onlyHere(!others(i).includes(name))) })), { limit }))));
};

tn.sections.learnt = (section, box) => ({ classes, language, tensors, two: twoClasses, texts: twoModels })[section.of](section,
    box);
