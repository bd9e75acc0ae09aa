/* heads.js - attention heads: a table that any column sorts, and for the chosen head where each token of a text looks, and its
   QK and OV matrices. */
/* The text of a pattern: where the chosen token looks, as shades behind the tokens. */
const lookingAt = (pattern, text) => {
    const t = text.length;
    const words = text.map((token, i) => tn.h("button", { type: "button", class: "word", role: "radio", onclick: () => pick(i),
        onpointerenter: () => pick(i), onfocus: () => pick(i) }, tn.token(token)));
    const readout = tn.h("p", { class: "readout", "aria-live": "polite" });
    const pick = from => {
        let most = 0;
        words.forEach((word, to) => {
            const share = to <= from || pattern[from * t + to] ? pattern[from * t + to] : 0;
            word.style.setProperty("--share", Math.sqrt(Math.min(1, Math.abs(share))));
            word.setAttribute("aria-checked", to === from);
            word.tabIndex = to === from ? 0 : -1;
            if (Math.abs(share) > Math.abs(pattern[from * t + most])) most = to;
        });
        readout.replaceChildren("from ", tn.token(text[from]), " mostly to ", tn.token(text[most]), `, place ${most}: `,
            tn.number(pattern[from * t + most]));
    };
    const line = tn.h("div", { class: "words", role: "radiogroup", "aria-label": "tokens of the text", onkeydown: event => {
        const to = tn.step(event.key, words.indexOf(event.target), t);
        if (to < 0) return;
        event.preventDefault();
        words[to].focus();
    } }, words);
    pick(t - 1);
    return tn.h("div", {}, line, readout);
};

/* The element of the one matrix that is shown. */
let shown = null;
const alone = matrix => {
    if (shown) shown.end();
    shown = tn.matrix(matrix);
    return shown.element;
};

/* The pattern of a head, on the text that is typed if that or the model is another one than at first. */
const patternOf = (head, text, place) => {
    const show = (values, tokens) => {
        const t = tokens.length;
        if (!t || values.length !== t * t) { place.replaceChildren(); return; }
        const dense = { of: "dense", values, causal: tn.isCausal(values, t), rownames: tokens, colnames: tokens, row_label: "from",
            column_label: "to", what: `pattern of head ${head.layer}.${head.head}` };
        place.classList.remove("old");
        place.replaceChildren(tn.h("p", { class: "soft small" }, "Where the marked token looks. ",
            tn.h("span", { class: "no-print", text: "Point at another one." })),
            lookingAt(values, tokens), alone(dense));
    };
    const live = tn.answer;
    if (!live) { show(tn.array(head.pattern), text); return; }
    place.classList.add("old");
    live.patterns(head.layer).then(({ count, numbers }) => {
        if (live !== tn.answer) return;
        const n = numbers.length / count, values = numbers.slice(head.head * n, (head.head + 1) * n);
        values.shape = [live.all.length, live.all.length];
        show(values, live.all);
    }).catch(error => place.replaceChildren(tn.h("p", { class: "alarm" }, tn.h("bdi", { text: error.message }))));
};

tn.sections.heads = (section, box) => {
    const { heads, columns, tokens: text = [] } = section, place = tn.h("div", { class: "head" });
    const gone = head => tn.gone.has(`blocks.${head.layer}.attn.${head.head}`);
    const nothing = () => [tn.h("p", { class: "soft", text: "This head is ablated, and adds nothing." })];
    const views = head => [
        head.pattern && text.length ? ["pattern", () => {
            const pattern = tn.h("div", {});
            patternOf(head, text, pattern);
            return [pattern];
        }] : null,
        head.qk ? ["QK", () => gone(head) ? nothing() : [tn.h("p",
            { class: "soft small", text: "How strongly a query token (row) asks for a key token (column)" +
                (head.qk.centred ? ", beside the mean of its row, which softmax ignores." : ".") }),
            alone({ ...head.qk, what: `QK of head ${head.layer}.${head.head}` })]] : null,
        head.ov ? ["OV", () => gone(head) ? nothing() : [tn.h("p",
            { class: "soft small", text: "What looking at a token (column) adds to the logit of a token (row)." }),
            alone({ ...head.ov, what: `OV of head ${head.layer}.${head.head}` })]] : null,
    ].filter(Boolean);
    let wanted = 0, chosen = 0;
    const show = i => {
        chosen = i;
        const head = heads[i], all = views(head), body = tn.h("div", {});
        if (!all.length) { place.replaceChildren(); return; }
        const open = k => { wanted = k; toldView(k ? all[k][0] : null); body.replaceChildren(...all[k][1]()); };
        const picker = tn.picker("view", all.map(view => view[0]), open, Math.min(wanted, all.length - 1));
        place.replaceChildren(tn.h("h3", { text: `Block ${head.layer}, head ${head.head}` }), tn.h("div", { class: "tools" },
            picker.element), body);
        open(picker.value);
    };
    const row = head => [`${head.layer}.head${head.head}`, ...columns.map(([key]) => gone(head) ? "ablated"
        : key === "composition" && tn.gone.has(`blocks.${head.reads}`) ? null : head[key])];
    const table = tn.chooser("heads", [["head"], ...columns.map(([, label, explanation]) => [label, explanation])],
        heads.map(row), (i, byReader) => {
            if (byReader) told(`${heads[i].layer}.${heads[i].head}`);
            show(i);
        });
    const told = tn.keep("head", name => {
        const i = name === undefined ? 0 : heads.findIndex(head => `${head.layer}.${head.head}` === name);
        return i >= 0 && (table.set(i), true);
    });
    const toldView = tn.keep("view", name => {
        const k = name === undefined ? 0 : views(heads[chosen]).findIndex(view => view[0] === name);
        if (k < 0) return false;
        wanted = k;
        show(chosen);
        return true;
    });
    /* The numbers of a head are those of its weights, so another one that is ablated leaves them as they are. */
    document.addEventListener("tn-model", () => heads.forEach((head, i) => table.fill(i, row(head))));
    let last = null;                            /* the answer that is shown; null: the page's own text */
    document.addEventListener("tn-answer", () => {
        if (tn.answer !== last) show(chosen);
        last = tn.answer;
    });
    document.addEventListener("tn-asked", () => place.classList.add("old"));
    document.addEventListener("tn-answer", () => place.classList.remove("old"));
    tn.sortable([...table.element.querySelectorAll("th[scope=col]")], table.lines, table.body, [null, ...columns.map(([key]) => i =>
        heads[i][key])], () => true);
    box.append(table.element, tn.savesTable("table", table.element), columns.some(column => column[2]) ? tn.h("details",
        { class: "words-of" },
        tn.h("summary", { text: "What the columns mean" }),
        tn.h("dl", {}, columns.filter(column => column[2]).map(([, label, explanation]) => [tn.h("dt", { text: label }),
            tn.h("dd", { text: explanation })]))) : null, place);
    if (heads.length) table.set(0);
};
