/* learnt.js - what a model has learnt, in one screen and without data: of an image model the eigenvectors that raise and lower
   each class, of a language model its loss, one text that it continues, and words and pairs that it knows, of tensors their
   spectra, of two models what both have. Other sections show all of it. */
const sections = type => tn.page.sections.filter(section => section.type === type);

/* ---- classes: the strongest eigenvectors of both signs */
const most = 10, columns = [5, 4, 6, 3];
/* Cards in rows that are full where that is possible. */
const cards = count => tn.h("div", { class: "classes", style: `--columns: ${columns.reduce((best, n) =>
    (n - count % n) % n < (best - count % best) % best ? n : best)}` });
const does = value => value < 0 ? "lowers" : "raises";
const figure = (one, name) => tn.h("figure", { class: does(one.value) },
    tn.picture(one.vector, tn.page.pixels.width, tn.page.pixels.height, { label: `${does(one.value)} ${tn.plain(name)}` }),
    tn.h("figcaption", { class: "eigenvalue" }, one.value > 0 ? "+" : "", tn.number(one.value, 2, tn.figures(one.value, 2))));
/* The strongest of one sign that are shown, best first. */
const strongest = (all, sign, count) => all.filter(one => one.vector && one.value * sign > 0 && tn.isShown(one)).sort((a, b) =>
    sign * (b.value - a.value)).slice(0, count);
const classCard = (output, rows, pick) => tn.h("button", { type: "button", class: "class", "aria-label":
    `class ${tn.plain(output.name)}`, onclick: pick }, tn.h("b", {}, tn.token(output.name)), rows.flat().length
        ? rows.filter(row => row.length).map(row => tn.h("div", { class: "strip" }, tn.h("span", { class: "caption",
            text: does(row[0].value) }), row.map(one => figure(one, output.name))))
        : tn.h("span", { class: "soft small", text: "no eigenvector beyond chance" }));
const keyOfPixels = () => [tn.h("span", { text: "pixels of an eigenvector:" }), tn.colourKey("negative", "positive"),
    tn.h("span", { class: "no-print", text: "Click on an output to choose it in all sections." })];

/* What the same eigenvector does to several outputs, in sentences: shown [{name, one}...], those of one model. */
const alike = 0.9;
const sharedOf = shown => {
    const groups = [], dot = (a, b) => Math.abs(a.reduce((sum, v, i) => sum + v * b[i], 0));
    for (const each of shown) {
        const group = groups.find(([first]) => dot(first.one.vector, each.one.vector) > alike);
        if (group) group.push(each); else groups.push([each]);
    }
    return groups.filter(group => new Set(group.map(each => each.name)).size > 1);
};
const listed = names => names.map((name, i) => [i === 0 ? "" : i === names.length - 1 ? " and " : ", ", tn.token(name)]);
const shared = (shown, of) => sharedOf(shown).map(group => tn.h("p", { class: "shared small" },
    tn.picture(group[0].one.vector, tn.page.pixels.width, tn.page.pixels.height, { label: "a shared eigenvector" }),
    tn.h("span", {}, "One eigenvector", of ? [" of ", tn.token(of)] : "", " is shared by several outputs: it ", [1, -1].map(
        sign => group.filter(each => each.one.value * sign > 0)).filter(some => some.length).map((some, i) => [i ? " and " : "",
        does(some[0].one.value), " ", listed(some.map(each => each.name))]), ".",
        tn.h("span", { class: "soft", text: " The eigenvector of each has a cosine above "
            + `${alike}, in magnitude, with the one shown.` }))));

/* ---- how well, and how many eigenvectors matter */
const mean = list => list.reduce((sum, x) => sum + x, 0) / list.length;
const squares = values => values.reduce((sum, v) => sum + v * v, 0);
/* Means over outputs [{values, edge}...]: eigenvalues, how many are beyond chance, the share of the squared norm that these
   have, and the largest; null where the null is not known. */
const counted = groups => groups.some(({ edge }) => typeof edge !== "number") ? null : {
    all: mean(groups.map(({ values }) => values.length)),
    beyond: mean(groups.map(({ values, edge }) => values.filter(v => Math.abs(v) > edge).length)),
    share: mean(groups.map(({ values, edge }) => squares(values.filter(v => Math.abs(v) > edge)) / (squares(values) || 1))) };
const about = x => tn.h("b", { text: x % 1 && x < 9.95 ? x.toFixed(1) : tn.format(Math.round(x)) });
/* right: the share of right answers of each model, null if it is not known, as it never is of one of several layers. */
const howWell = ({ pictures, right, layers }, names) => {
    const whose = keep => right.map((x, i) => i).filter(keep), known = whose(i => right[i] !== null);
    const deep = whose(i => layers[i] > 1), one = deep.length < 2, said = [];
    if (known.length) said.push("Of ", tn.number(pictures), " pictures ", known.map((i, k) => [k ? ", " : "", names
        ? [tn.token(names[i]), " "] : "it names ", tn.h("b", {}, tn.number(right[i], 3, tn.figures(100 * right[i], 3) + " %"))]),
        names ? " are named correctly." : " correctly.");
    else if (deep.length < right.length) said.push(`The weights alone do not say how often ${names ? "a model" : "it"} is `
        + "right. With pictures and their labels the page does: ", ["tn look …", "--data PICTURES", "--labels LABELS"].map(
        (text, i) => [i ? " " : "", tn.h("code", { text })]), ".");
    if (deep.length) said.push(said.length ? " " : "", names ? listed(deep.map(i => names[i])) : "It", one ? " has" : " have",
        ` several layers, so the page does not measure how often ${one ? "it is" : "they are"} right.`);
    return said;
};
/* In a list, what is known first. */
const findings = (section, names, lines) => tn.h("ul", { class: "notes findings" }, (section.right.some(x => x !== null)
    ? [howWell(section, names), ...lines] : [...lines, howWell(section, names)]).map(line => tn.h("li", {}, line)));
const classes = (section, box) => {
    const eigen = sections("eigen")[0], outputs = eigen.outputs, grid = cards(Math.min(most, outputs.length));
    const common = tn.h("div", {}), found = counted(sections("spectra").slice(0, 1).flatMap(one => one.groups).map(group =>
        ({ values: tn.array(group.values), edge: group.null_edge })));
    let count = Math.min(most, outputs.length);
    const choose = tn.follow("output", outputs.map(one => one.name), { value: -1, show() {} }, () => {});
    const draw = () => {
        const rows = outputs.slice(0, count).map((output, o) => {
            const all = tn.eigenvectors(output).filter(one => !(tn.isMain(eigen) && tn.isGone(o, one.k)));
            return [1, -1].map(sign => strongest(all, sign, 2));
        });
        grid.replaceChildren(...rows.map((row, o) => classCard(outputs[o], row, () => choose(o))));
        common.replaceChildren(...shared(rows.flatMap((row, o) => row.flat().map(one => ({ name: outputs[o].name, one })))));
    };
    tn.drawn(draw);
    document.addEventListener("tn-anyway", draw);
    const more = tn.h("button", { type: "button", class: "more", hidden: outputs.length <= most,
        text: `all ${outputs.length} outputs`,
        onclick: () => { count = outputs.length; more.hidden = true; draw(); } });
    box.append(findings(section, null, found ? [["On average ", about(found.beyond), " of ", about(found.all), " eigenvalues of an "
        + "output are beyond chance: larger than shuffled weights have. They carry ", tn.h("b", { text: tn.percent(found.share) }),
        " of the squared norm, the sum of all squared eigenvalues. The others could be chance, and their eigenvectors are not "
        + "shown. ", tn.anywayToggle()]] : []),
        tn.h("p", { class: "small soft keys" }, keyOfPixels()), grid, more, common);
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
        "order. In a text an MLP reads a mixture of all words, and other parts add to the logit, too: the probabilities above " +
        "do not follow from these numbers." })];
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
/* How much two models agree, and what each has of eigenvalues. The part of A that is a multiple of B has the share cosine^2 of
   its squared norm. */
const agree = (cosine, unrelated) => Math.abs(cosine) <= unrelated ? "The two have nothing in common beyond chance."
    : cosine > 0.9 ? "The two have learnt nearly the same." : cosine > 0.1 ? "The two have learnt the same in part."
    : cosine < -0.9 ? "The two have learnt opposite things." : cosine < -0.1 ? "The two have in part learnt opposite things."
    : "The two have little in common.";
const agreement = (compare, a, b) => {
    const names = [compare.a, compare.b].map(name => tn.token(name)), name = i => names[i].cloneNode(true);
    const values = ["a", "b"].map(key => compare.spectra.map(one => tn.array(one[key])));
    const largest = values.map(of => mean(of.map(tn.largest))), more = largest[0] >= largest[1] ? 0 : 1;
    const found = [a, b].map((eigen, i) => counted(values[i].map((of, o) => ({ values: of,
        edge: eigen.outputs[o].null_edge }))));
    const lines = [];
    const figure = x => tn.number(x, 2, tn.figures(x, 2));
    if (typeof compare.cosine === "number") lines.push([tn.h("b", { text: agree(compare.cosine, compare.unrelated || 0) }),
        " The matrices of all outputs together have a cosine of ", figure(compare.cosine), ", where 1 means equal up to a "
        + "factor: one, scaled to fit, explains ", tn.percent(compare.cosine ** 2), " of the squared norm of the other.",
        typeof compare.unrelated === "number" ? [" Of 19 copies of ", name(1), " with shuffled weights none has a cosine above ",
            figure(compare.unrelated), " in magnitude."] : ""]);
    lines.push([name(more), " has the larger eigenvalues: the largest of an output is on average ", figure(largest[more]),
        ", that of ", name(1 - more), " ", figure(largest[1 - more]), "."]);
    if (found.every(Boolean)) lines.push(["Beyond chance are on average ", about(found[0].beyond), " of ", about(found[0].all),
        " eigenvalues of an output in ", name(0), ", and ", about(found[1].beyond), " of ", about(found[1].all), " in ", name(1),
        ": larger than shuffled weights have. They carry ", tn.percent(found[0].share), " and ", tn.percent(found[1].share),
        " of the squared norm, the sum of all squared eigenvalues."]);
    return lines;
};
const twoClasses = (section, box) => {
    const [a, b] = sections("eigen"), compare = sections("compare")[0], names = a.outputs.map(one => one.name);
    const count = Math.min(most, names.length), grid = cards(count), common = tn.h("div", {});
    const choose = tn.follow("output", names, { value: -1, show() {} }, () => {});
    const draw = () => {
        const shown = [a, b].map(({ outputs }) => outputs.slice(0, count).map(output => {
            const all = tn.eigenvectors(output);
            return [1, -1].flatMap(sign => strongest(all, sign, 1));
        }));
        grid.replaceChildren(...names.slice(0, count).map((name, o) => tn.h("button", { type: "button", class: "class",
            "aria-label": `class ${tn.plain(name)}`, onclick: () => choose(o) }, tn.h("b", {}, tn.token(name)),
            tn.h("span", { class: "caption" }, "cosine ", tn.number(compare.rows[o].similarity, 2,
                tn.figures(compare.rows[o].similarity, 2))),
            tn.h("div", { class: "of-model none" }, tn.h("div", { class: "strip" }, [1, -1].map(sign => tn.h("span",
                { class: "caption one", text: does(sign) })))),
            shown.map((of, i) => tn.h("div", { class: "of-model", style: `--ink: ${tn.modelInk(i)}` }, tn.h("div",
                { class: "strip" }, of[o].map(one => figure(one, name))))))));
        common.replaceChildren(...shown.flatMap((of, i) => shared(of.flatMap((ones, o) => ones.map(one => ({ name: names[o],
            one }))), [compare.a, compare.b][i])));
    };
    document.addEventListener("tn-anyway", draw);
    draw();
    box.append(findings(section, [compare.a, compare.b], agreement(compare, a, b)),
        tn.h("p", { class: "small soft keys" }, [compare.a, compare.b].map((name, i) =>
        tn.h("span", { class: "key", style: `--ink: ${tn.modelInk(i)}` }, tn.token(name))), keyOfPixels()), grid, common);
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
