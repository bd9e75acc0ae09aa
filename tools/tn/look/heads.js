/* heads.js - attention heads: a table that any column sorts, and for the chosen head where each token of a text looks, and its
   QK and OV matrices. */
const sortable = (table, columns, heads) => {
    let by = -1, down = true;
    const heading = [...table.element.querySelectorAll("th[scope=col]")];
    const sort = k => {
        down = k === by ? !down : true;
        by = k;
        const key = columns[k][0], order = heads.map((_, i) => i).sort((a, b) => (heads[b][key] - heads[a][key]) * (down ? 1
            : -1) || a - b);
        table.body.append(...order.map(i => table.lines[i]));
        heading.forEach((th, i) => th.setAttribute("aria-sort", i - 1 !== k ? "none" : down ? "descending" : "ascending"));
    };
    heading.slice(1).forEach((th, k) => th.replaceChildren(tn.h("button", { type: "button", class: "sort", title: columns[k][2],
        text: columns[k][1], onclick: () => sort(k) })));
    return sort;
};

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
            word.style.setProperty("--share", Math.min(1, Math.abs(share)));
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

tn.sections.heads = (section, box) => {
    const { heads, columns, tokens: text = [] } = section, place = tn.h("div", { class: "head" });
    const views = head => [
        head.pattern && text.length ? ["pattern",
            () => [tn.h("p", { class: "soft small", text: "Where the chosen token looks; point at another one." }),
            lookingAt(tn.array(head.pattern), text),
            tn.matrix({ of: "dense", values: head.pattern, rownames: text, colnames: text, row_label: "from",
                column_label: "to" }).element]] : null,
        head.qk ? ["QK", () => [tn.h("p",
            { class: "soft small", text: "How strongly a query token (row) asks for a key token (column)." }),
            tn.matrix(head.qk).element]] : null,
        head.ov ? ["OV", () => [tn.h("p",
            { class: "soft small", text: "What looking at a token (row) adds to the logit of an output (column)." }),
            tn.matrix(head.ov).element]] : null,
    ].filter(Boolean);
    let wanted = 0;
    const show = i => {
        const head = heads[i], all = views(head), body = tn.h("div", {});
        if (!all.length) { place.replaceChildren(); return; }
        const open = k => { wanted = k; body.replaceChildren(...all[k][1]()); };
        const picker = tn.picker("view", all.map(view => view[0]), open, Math.min(wanted, all.length - 1));
        place.replaceChildren(tn.h("h3", { text: `Layer ${head.layer}, head ${head.head}` }), tn.h("div", { class: "tools" },
            picker.element), body);
        open(picker.value);
    };
    const table = tn.chooser("heads", [["head"], ...columns.map(([, label, explanation]) => [label, explanation])],
        heads.map(head => [`${head.layer}.${head.head}`, ...columns.map(([key]) => head[key])]), show);
    sortable(table, columns, heads);
    box.append(table.element, columns.some(column => column[2]) ? tn.h("details", { class: "words-of" },
        tn.h("summary", { text: "What the columns mean" }),
        tn.h("dl", {}, columns.filter(column => column[2]).map(([, label, explanation]) => [tn.h("dt", { text: label }),
            tn.h("dd", { text: explanation })]))) : null, place);
    if (heads.length) table.show(0);
};
