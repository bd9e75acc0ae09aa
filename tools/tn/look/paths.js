/* paths.js - the logit of a token as a sum over paths through the model: each path's part, its share, what no path explains, and
   the exact value, which the sum has to be. */
const sum = rows => rows.reduce((total, row) => total + row.value, 0);

const one = example => tn.h("div", {},
    tn.h("p", { class: "text" }, example.tokens.map(token => tn.token(token)), tn.h("span", { class: "next" }, " → ",
        tn.token(example.token))),
    tn.h("div", { class: "scroll" }, tn.bars([
        ...example.rows.map(row => ({ label: tn.pathOf(row.path), value: row.value, note: row.share === undefined ? undefined
            : tn.percent(row.share) })),
        ...(example.remainder === undefined ? [] : [{ label: "remainder: what no path above explains", value: example.remainder,
            class: "rest", note: example.rows.some(row => row.share !== undefined) ? "" : undefined }]),
    ], { head: ["path", "", "value", ...(example.rows.some(row => row.share !== undefined) ? ["share"] : [])], wide: true })),
    tn.h("p", { class: "total" }, "paths and remainder: ", tn.number(sum(example.rows) + (example.remainder || 0), 6),
        example.exact === undefined ? null : [tn.h("span", { class: "soft", text: " · the model itself: " }),
            tn.number(example.exact, 6)]));

tn.sections.paths = (section, box) => {
    const examples = section.examples || [section], place = tn.h("div", {});
    let chosen = 0;
    /* The text that is typed, without what is ablated, if that is not the text of the page. */
    const live = () => tn.answer && tn.answer.paths && { tokens: tn.answer.tokens, token: tn.answer.token, ...tn.answer.paths,
        remainder: tn.answer.paths.exact - sum(tn.answer.paths.rows) };
    const show = i => {
        chosen = i;
        place.classList.remove("old");
        place.replaceChildren(one(live() || examples[i]));
    };
    document.addEventListener("tn-answer", () => show(chosen));
    document.addEventListener("tn-asked", () => place.classList.add("old"));
    const picker = tn.picker("text", examples.map(example => example.tokens.join("") + " → " + example.token), show);
    const csv = ({ rows, remainder, exact }) => tn.csv([["path", "value", "share"], ...rows.map(row => [row.path, row.value,
        row.share]), ["remainder", remainder], ["the model itself", exact]].map(row => [...row, "", ""].slice(0, 3)));
    box.append(tn.h("div", { class: "tools" }, picker.element), place, tn.saves(() => (live() || examples[chosen]).tokens.join(""),
        { CSV: () => csv(live() || examples[chosen]) }));
    show(0);
};
