/* card.js - what the model is: rows of label and value, and the curve of its training. */
const value = x => typeof x === "number" ? tn.number(x, 6) : tn.token(x);

tn.sections.card = (section, box) => {
    box.append(tn.h("dl", { class: "card" }, section.rows.map(([label, x, explanation]) => tn.h("div", { title: explanation },
        tn.h("dt", { text: label }), tn.h("dd", {}, value(x))))));
    if (!section.curve) return;
    const { x, series, xlabel, ylabel } = section.curve;
    const lines = series.map(one => ({ name: one.name, x: tn.array(one.x || x), y: tn.array(one.y) }));
    const plot = tn.plot({ series: lines, xlabel, ylabel, height: 240 });
    box.append(tn.h("div", { class: "tools" }, tn.toggle("logarithmic", false, logY => plot.update({ logY }))), plot.element);
};
