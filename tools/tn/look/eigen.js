/* eigen.js - eigenvectors of an output: pictures where inputs are images, lists of tokens where they are tokens. Cards with
   positive eigenvalues above, negative below, largest first; the chosen card is shown large, with values under the cursor. */
const first = 10;

/* The pixel of a picture that an event is at, or -1. */
tn.pixelAt = (picture, event) => {
    const { width, height } = picture, box = picture.getBoundingClientRect();
    const x = Math.floor((event.clientX - box.left) / box.width * width),
        y = Math.floor((event.clientY - box.top) / box.height * height);
    return x >= 0 && y >= 0 && x < width && y < height ? y * width + x : -1;
};
/* Values of a picture under the pointer, or moved by arrow keys. pick(i): what a click on a pixel, or Enter, does. */
tn.large = (values, label, pick) => {
    const { width, height } = tn.page.pixels, picture = tn.picture(values, width, height, { label });
    const readout = tn.h("p", { class: "readout", "aria-live": "polite" });
    let at = Math.floor(height / 2) * width + Math.floor(width / 2);
    const tell = i => {
        at = i;
        readout.replaceChildren(`pixel (${Math.floor(i / width)}, ${i % width}) `, tn.number(values[i]));
    };
    picture.tabIndex = 0;
    picture.addEventListener("pointermove", event => {
        const i = tn.pixelAt(picture, event);
        if (i >= 0) tell(i);
    });
    if (pick) picture.addEventListener("click", event => { const i = tn.pixelAt(picture, event); if (i >= 0) pick(i); });
    picture.addEventListener("keydown", event => {
        const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -width, ArrowDown: width }[event.key];
        if (pick && event.key === "Enter") pick(at);
        if (!by) return;
        event.preventDefault();
        if (at + by >= 0 && at + by < width * height) tell(at + by);
    });
    tell(at);
    const limit = tn.largest(values), key = tn.colourKey(tn.number(-limit, 3), tn.number(limit, 3));
    return tn.h("div", { class: "large" }, picture, readout, key, tn.saves(() => label, { CSV: () => tn.csv(Array.from({ length: height },
        (_, y) => [...values.subarray(y * width, (y + 1) * width)])), PNG: () => tn.png(picture) }));
};

const tokenList = (tokens, title) => {
    const most = tokens.reduce((a, t) => Math.max(a, Math.abs(t.value)), 0) || 1;
    return tn.h("div", { class: "tokens" }, title && tn.h("h4", { text: title }), tn.h("ol", {}, tokens.map(({ token, value }) =>
        tn.h("li", {}, tn.token(token), tn.h("span", { class: "track", "aria-hidden": "true" },
            tn.h("i", { class: value < 0 ? "below" : "above", style: `left: 0; width: ${100 * Math.abs(value) / most}%` })),
                tn.number(value, 3, tn.figures(value, 3))))));
};

/* Whether eigenvectors within the null are shown, which chance alone would give: one choice for all of the page. */
tn.anyway = (tn.page.sections || []).some(section => section && section.within_null);
tn.isShown = one => !one.within || tn.anyway;
tn.anywayToggle = () => {
    const button = tn.toggle("show anyway", tn.anyway, on => {
        tn.anyway = on;
        document.dispatchEvent(new Event("tn-anyway"));
    });
    document.addEventListener("tn-anyway", () => button.setAttribute("aria-pressed", tn.anyway));
    return button;
};
tn.isWithin = (output, value) => typeof output.null_edge === "number" && Math.abs(value) <= output.null_edge;

/* What is known of eigenvector k of an output: {value, share, within, vector?, tokens?, opposite?, sentences?}; shares are of
   those that are not gone. */
tn.eigenvectors = (output, gone = () => false) => {
    const values = tn.array(output.values), vectors = output.vectors && tn.array(output.vectors);
    const total = values.reduce((sum, value, k) => sum + (gone(k) ? 0 : Math.abs(value)), 0) || 1;
    return Array.from(values, (value, k) => ({ k, value, share: Math.abs(value) / total,
        within: tn.isWithin(output, value), vector: vectors && k < vectors.shape[0]
        ? tn.row(vectors, k) : null,
        tokens: (output.tokens || [])[k], opposite: (output.opposite || [])[k], sentences: (output.sentences || [])[k] }));
};

const card = (one, pick, gone) => tn.h("button", { type: "button", role: "radio", class: "vector " + (one.value < 0 ? "below"
    : "above") + (gone ? " gone" : "") + (one.within ? " within" : ""), onclick: pick },
    one.vector && tn.page.pixels ? tn.picture(one.vector, tn.page.pixels.width, tn.page.pixels.height,
        { label: `eigenvector ${one.k}` }) : null,
    one.tokens ? tn.h("span", { class: "firsts" }, one.tokens.slice(0, 4).map(t => [tn.token(t.token), " "])) : null,
    tn.h("span", { class: "eigenvalue" }, gone ? "ablated" : [one.value > 0 ? "+" : "", tn.number(one.value, 3,
        tn.figures(one.value, 3))]));

/* The place of the row that a click on a pixel shows, if the page has the matrix of this output. */
const rowsOf = name => {
    const place = tn.h("div", {}), has = tn.page.pixels && tn.hasRows(name);
    if (has) place.append(tn.h("p", { class: "hint", text: "Click on a pixel to see its row of the interaction matrix." }));
    return { place, pick: has ? i => place.replaceChildren(tn.rowOf(name, i)) : undefined };
};
const detail = (one, name, gone, row = rowsOf(name)) => tn.h("div", { class: "detail" },
    one.vector && tn.page.pixels ? tn.large(one.vector, `eigenvector ${one.k} of ${tn.plain(name)}`, row.pick) : null,
    tn.h("div", { class: "facts" },
        tn.h("h3", {}, `Eigenvector ${one.k} for “`, tn.token(name), "”"),
        gone ? tn.h("p", { text: "It is ablated, and adds nothing." })
            : tn.h("p", {}, "eigenvalue ", tn.number(one.value, 6), tn.h("span", { class: "soft" }, " · ",
                tn.percent(one.share),
                " of the sum of magnitudes shown")),
        one.within ? tn.h("p", { class: "soft",
            text: "Within the null: chance alone gives such a value, so that this eigenvector says nothing." }) : null,
        one.vector && tn.page.pixels ? row.place : null,
        one.tokens ? [tn.h("div", { class: "columns" }, tokenList(one.tokens, one.opposite ? "nearest tokens" : null),
            one.opposite ? tokenList(one.opposite, "at the other end") : null),
            tn.saves(() => `eigenvector ${one.k} of ${tn.plain(name)}`, { CSV: () => tn.csv([["token", "value"],
                ...[...one.tokens, ...one.opposite || []].map(({ token, value }) => [token, value])]) })] : null,
        one.sentences && one.sentences.length ? tn.evidence(one.sentences) : null));

/* Both rows of cards are one group: arrow keys go through all. told(k): a reader has chosen; what is returned last chooses. */
const gallery = (all, name, told, isGone = () => false) => {
    const place = tn.h("div", { class: "chosen", "aria-live": "polite" });
    const shown = { above: first, below: first }, rows = tn.h("div", { role: "radiogroup", "aria-label": "eigenvectors" });
    let cards = [];
    const pick = (k, focus) => {
        cards.forEach(([one, button]) => { button.setAttribute("aria-checked", one.k === k); button.tabIndex = one.k === k ? 0
            : -1; if (focus && one.k === k) button.focus(); });
        place.replaceChildren(detail(all.find(one => one.k === k), name, isGone(k)));
    };
    const draw = () => {
        cards = [];
        rows.replaceChildren(...[["above", "positive: they raise the output", one => one.value >= 0],
            ["below", "negative: they lower the output", one => one.value < 0]].map(([sign, title, has]) => {
            const ones = all.filter(has).sort((a, b) => Math.abs(b.value) - Math.abs(a.value)), some = ones.slice(0, shown[sign]);
            if (!ones.length) return "";
            const buttons = some.map(one => { const button = card(one, () => { pick(one.k); told(one.k); }, isGone(one.k));
                cards.push([one, button]);
                return button; });
            return tn.h("div", { class: "vectors" }, tn.h("span", { class: "label", text: title }),
                tn.h("div", { class: "row" + (some.some(one => one.tokens) ? " words" : "") }, buttons,
                ones.length > some.length ? tn.h("button", { type: "button", class: "more",
                    text: `${ones.length - some.length} more`, onclick: () => { shown[sign] = ones.length; draw();
                    pick(some[0].k); } }) : null));
        }));
    };
    rows.addEventListener("keydown", event => {
        const at = cards.findIndex(([, button]) => button === event.target), to = tn.step(event.key, at, cards.length);
        if (at < 0 || to < 0) return;
        event.preventDefault();
        pick(cards[to][0].k, true);
        told(cards[to][0].k);
    });
    draw();
    if (cards.length) pick(cards[0][0].k);
    return [rows, place, k => {
        if (!all.some(one => one.k === k)) return false;
        if (!cards.some(([one]) => one.k === k)) { shown.above = shown.below = all.length; draw(); }
        pick(k);
        return true;
    }];
};

/* How many of an output's eigenvectors are more than chance, in a sentence. */
const verdict = all => {
    const beyond = all.filter(one => !one.within).length;
    return !beyond ? `None of the ${all.length} largest eigenvalues is beyond the null: chance alone gives such values, and `
            + "their eigenvectors say nothing."
        : beyond === all.length ? `All of the ${all.length} largest eigenvalues are beyond the null, the largest that chance `
            + "alone gives."
        : `${beyond} of the ${all.length} largest eigenvalues ${beyond > 1 ? "are" : "is"} beyond the null, the largest `
            + "that chance alone gives. The eigenvectors of the others say nothing.";
};
tn.sections.eigen = (section, box) => {
    const pictures = tn.page.pixels && section.outputs.some(output => output.vectors);
    const place = tn.h("div", { class: pictures ? "gallery pictures" : "gallery" });
    const names = section.outputs.map(output => output.name);
    const picker = tn.picker(section.output_label || "output", names, i => { show(i); follow(i); });
    let choose = () => false;
    const told = tn.keep(section.id, k => k === undefined ? show(picker.value) : /^\d{1,9}$/.test(k) && choose(Number(k)));
    const compared = section.outputs.some(output => typeof output.null_edge === "number"), said = tn.h("span", {});
    const show = i => {
        const gone = tn.isMain(section) ? k => tn.isGone(i, k) : undefined;
        const all = tn.eigenvectors(section.outputs[i], gone), some = all.filter(tn.isShown);
        said.textContent = all.length && typeof section.outputs[i].null_edge === "number" ? verdict(all) + " " : "";
        const parts = some.length ? gallery(some, names[i], told, gone)
            : all.length ? [] : [tn.h("p", { class: "soft", text: "This output has no eigenvectors." })];
        choose = parts[2] || (() => false);
        told(null);
        place.replaceChildren(...parts.slice(0, 2));
    };
    const follow = tn.follow("output", names, picker, show);
    if (tn.isMain(section)) document.addEventListener("tn-model", () => show(picker.value));
    document.addEventListener("tn-anyway", () => show(picker.value));
    box.append(tn.h("div", { class: "tools" }, picker.element),
        compared ? tn.h("p", { class: "null" }, said, tn.anywayToggle()) : "", place);
    show(0);
};
