/* patterns.js - where the tokens of the text look: a small picture for each head of each block, and the chosen one large. */
/* Whether a pattern [t,t] has nothing after a token's own place, as that of a causal model. */
tn.isCausal = (values, t) => {
    for (let i = 0; i < t; i++) for (let j = i + 1; j < t; j++) if (values[i * t + j] !== 0) return false;
    return true;
};

tn.patterns = (layers, heads) => {
    const smalls = new Map(), large = tn.h("div", { class: "large-pattern" }), title = tn.h("h5", {});
    let names = [], chosen = "0.0", matrix = null;
    const key = (block, head) => `${block}.${head}`, gone = (block, head) => tn.gone.has(`blocks.${block}.attn.${head}`);
    const button = (block, head) => tn.h("button", { type: "button", class: "small-pattern", role: "radio",
        "data-head": key(block, head), onclick: () => choose(block, head) });
    const cells = Array.from({ length: layers * heads }, (_, i) => button(Math.floor(i / heads), i % heads));
    const grid = tn.h("div", { class: "small-patterns", role: "radiogroup",
        "aria-label": "heads, by block", onkeydown: event => {
            const at = cells.indexOf(event.target), by = { ArrowUp: -heads, ArrowDown: heads }[event.key];
            const to = by ? at + by : tn.step(event.key, at, cells.length);
            if (at < 0 || to < 0 || to >= cells.length) return;
            event.preventDefault();
            choose(Math.floor(to / heads), to % heads);
            cells[to].focus();
        } }, tn.h("span"), Array.from({ length: heads }, (_, h) => tn.h("span", { class: "caption", text: `head ${h}` })),
        Array.from({ length: layers }, (_, block) => [tn.h("span", { class: "caption", text: `block ${block}` }),
            cells.slice(block * heads, (block + 1) * heads)]));
    const mark = () => cells.forEach(cell => {
        const [block, head] = cell.dataset.head.split(".").map(Number), on = cell.dataset.head === chosen;
        cell.setAttribute("aria-checked", on);
        cell.setAttribute("aria-label", `head ${head} of block ${block}${gone(block, head) ? ", ablated" : ""}`);
        cell.classList.toggle("gone", gone(block, head));
        cell.tabIndex = on ? 0 : -1;
    });
    const small = values => {
        const t = names.length, causal = tn.isCausal(values, t), shown = Float64Array.from(values, (v, i) =>
            causal && i % t > Math.floor(i / t) ? -Infinity : v);
        return tn.picture(shown, t, t, { limit: tn.largest(values) || 1, sequential: values.every(v => v >= 0) });
    };
    const showLarge = () => {
        const values = smalls.get(chosen), [block, head] = chosen.split("."), t = names.length;
        if (!values) { large.replaceChildren(); return; }
        values.shape = [t, t];
        title.replaceChildren(`Head ${head} of block ${block}`, gone(block, head) ? tn.h("span", { class: "soft",
            text: " (ablated: where it would look)" }) : "");
        if (matrix) matrix.end();
        matrix = tn.matrix({ of: "dense", values, causal: tn.isCausal(values, t), rownames: names, colnames: names,
            row_label: "from", column_label: "to" });
        large.replaceChildren(matrix.element);
        matrix.arrange();
    };
    const choose = (block, head) => { chosen = key(block, head); mark(); showLarge(); };
    document.addEventListener("tn-model", mark);
    mark();
    return { element: tn.h("div", { id: "live-patterns" }, tn.h("h4", { text: "Where each token looks" }),
                 tn.h("div", { class: "patterns", style: `--heads: ${heads}` }, tn.h("div", {},
                     tn.h("div", { class: "scroll" }, grid),
                     tn.h("p", { class: "soft small" }, "Each picture on its own scale: a row is a token, a column one that " +
                         "it looks at. ", tn.h("span", { class: "no-print", text: "A click shows a head large." }))),
                     tn.h("div", { class: "one-pattern" }, title, large))),
        /* Patterns of a block, [heads,t,t]; those of the last block complete the answer. */
        show(block, { numbers }, tokens) {
            const n = numbers.length / heads;
            names = tokens;
            for (let head = 0; head < heads; head++) {
                const values = numbers.slice(head * n, (head + 1) * n);
                smalls.set(key(block, head), values);
                cells[block * heads + head].replaceChildren(small(values));
            }
            if (Number(chosen.split(".")[0]) === block) showLarge();
        } };
};
