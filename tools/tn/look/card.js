/* card.js - what the model is: rows of label and value, and the curve of its training. */
/* Numbers within texts get commas; names of files stay as they are. */
const grouped = (label, text) => label === "file" ? text
    : text.replace(/(?<=^|[ (])\d{4,}(?=$|[ ,)])/g, digits => digits.replace(/\B(?=(\d{3})+$)/g, ","));
const value = (label, x) => typeof x === "number" || x === null ? tn.number(x, 6) : tn.token(grouped(label, x));

/* Several models beside each other. */
const besides = models => {
    const labels = [...new Set(models.flatMap(one => one.rows.map(([label]) => label)))];
    const cells = label => models.map(one => (one.rows.find(([name]) => name === label) || [label, "–"])[1]);
    const row = label => tn.h("tr", { class: new Set(cells(label)).size > 1 ? "apart" : "" },
        tn.h("th", { scope: "row", text: label }), cells(label).map(x => tn.h("td", { class: "right" }, value(label, x))));
    return tn.h("div", { class: "scroll" }, tn.h("table", { class: "cards" }, tn.h("thead", {}, tn.h("tr", {}, tn.h("td"),
        models.map(({ name }, i) => tn.h("th", { scope: "col", class: "right" }, tn.h("span", { class: "key",
            style: `--ink: ${tn.modelInk(i)}` }, tn.token(name)))))), tn.h("tbody", {}, labels.map(row))));
};

tn.sections.card = (section, box) => {
    if (section.models) box.append(besides(section.models));
    else box.append(tn.h("dl", { class: "card" }, section.rows.map(([label, x, explanation]) =>
        tn.h("div", { title: explanation }, tn.h("dt", { text: label }), tn.h("dd", {}, value(label, x))))));
    if (!section.curve) return;
    if (section.models) box.append(tn.h("h4", {}, "Training of ", tn.token(section.models[0].name)));
    const { x, series, xlabel, ylabel, rules = [] } = section.curve;
    const lines = series.map(one => ({ name: one.name, x: tn.array(one.x || x), y: tn.array(one.y) }));
    const plot = tn.plot({ series: lines, rules, xlabel, ylabel, height: 240 });
    box.append(tn.h("div", { class: "tools" }, tn.toggle("logarithmic", false, logY => plot.update({ logY }))), plot.element);
};
