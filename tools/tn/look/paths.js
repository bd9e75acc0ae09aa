/* paths.js - the logit of a token as a sum over paths through the model: each path's part, its share, what no path explains, and
   the exact value, which the sum has to be. */
const sum = rows => rows.reduce((total, row) => total + row.value, 0);

const one = example => tn.h("div", {},
    tn.h("p", { class: "text" }, example.tokens.map(token => tn.token(token)), tn.h("span", { class: "next" }, " → ",
        tn.token(example.token))),
    tn.h("div", { class: "scroll" }, tn.bars([
        ...example.rows.map(row => ({ label: tn.path(row.path), value: row.value, note: row.share === undefined ? undefined
            : tn.percent(row.share) })),
        ...(example.remainder === undefined ? [] : [{ label: "remainder: what no path above explains", value: example.remainder,
            class: "rest", note: "" }]),
    ], { head: ["path", "", "value", "share"] })),
    tn.h("p", { class: "total" }, "paths and remainder: ", tn.number(sum(example.rows) + (example.remainder || 0), 6),
        example.exact === undefined ? null : [tn.h("span", { class: "soft", text: " · the model itself: " }),
            tn.number(example.exact, 6)]));

tn.sections.paths = (section, box) => {
    const examples = section.examples || [section], place = tn.h("div", {});
    const show = i => place.replaceChildren(one(examples[i]));
    const picker = tn.picker("text", examples.map(example => example.tokens.join("") + " → " + example.token), show);
    box.append(tn.h("div", { class: "tools" }, picker.element), place);
    show(0);
};
