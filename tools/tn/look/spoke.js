/* spoke.js - what eigenvectors contribute for an input: eigenvector k of an output adds value_k (vector_k . x)^2 to its logit. */
tn.spoke = (output, x, o) => tn.eigenvectors(output).filter(one => one.vector && !tn.isGone(o, one.k)).map(one => {
    const activation = one.vector.reduce((total, v, i) => total + v * x[i], 0);
    return { ...one, activation, part: one.value * activation * activation };
}).sort((a, b) => Math.abs(b.part) - Math.abs(a.part));

const table = (parts, name, rest, exact) => {
    const total = parts.reduce((sum, part) => sum + part.part, 0) + rest, { width, height } = tn.page.pixels;
    return [tn.h("div", { class: "scroll" }, tn.bars(parts.slice(0, 10).map(part => ({ value: part.part, text: tn.fixed(part.part),
            label: tn.h("span", { class: "spoke" }, tn.picture(part.vector, width, height, { label: `eigenvector ${part.k}` }),
                tn.h("span", {}, "eigenvalue ", tn.number(part.value, 3, tn.figures(part.value, 3)), part.within ? tn.h("i", { class: "soft",
                    text: " within the null" }) : null)),
            note: tn.number(part.activation, 3, tn.figures(part.activation, 3)) })), { head: ["eigenvector", "", "contribution", "match"] })),
        tn.h("p", { class: "total" }, `sum of ${parts.length} contributions${rest ? ", and the rest, " : ""}`, rest
            ? tn.number(rest) : null, " to ", tn.token(name), ": ", tn.number(total, 6),
            exact === undefined || Number.isNaN(exact) ? null
                : [tn.h("span", { class: "soft", text: " · the model itself: " }), tn.number(exact, 6)])];
};

/* The nearest input with another answer, and what makes it different from this one. */
const nearest = (one, input, width, height) => {
    const to = tn.array(one.nearest), change = to.map((v, i) => v - input[i]);
    const length = Math.sqrt(input.reduce((sum, v) => sum + v * v, 0));
    const picture = (values, name, sequential) => tn.h("span", { class: "near" },
        tn.picture(values, width, height, { label: name, sequential }), tn.h("span", { text: name }));
    return tn.h("div", { class: "nearest" }, tn.h("h4", { text: "The nearest input with another answer" }),
        tn.h("div", { class: "examples" }, picture(to, "nearest", input.every(v => v >= 0)), picture(change, "change", false)),
        tn.h("p", { class: "soft small" }, "At that input ", tn.token(one.rival), " scores as high as this one's answer. It is ",
            tn.number(one.radius, 3), " away; this input has length ", tn.number(length, 3),
            ". No nearer input has another answer: the distance is exact."));
};

tn.sections.spoke = (section, box) => {
    const eigen = tn.page.sections.find(other => other.type === "eigen" && (!section.eigen || other.id === section.eigen));
    if (!eigen || !tn.page.pixels) { box.append(tn.h("p",
        { class: "soft", text: "This needs the eigenvectors as pictures, which this page does not have." })); return; }
    const { width, height } = tn.page.pixels, logits = section.logits && tn.array(section.logits);
    let example = 0, output = 0;
    const place = tn.h("div", {}), scores = tn.h("div", { class: "scores" }), other = tn.h("div", {});
    const inputs = section.examples.map(one => tn.array(one.input));
    /* What eigenvectors do not say: a linear part and a constant. */
    const restOf = o => { const rest = section.examples[example].rest; return rest ? tn.array(rest)[o] : 0; };
    const sums = () => eigen.outputs.map((one, o) => tn.spoke(one, inputs[example], o).reduce((sum, part) => sum + part.part,
        0) + restOf(o));
    const show = () => {
        const name = eigen.outputs[output].name, whole = logits ? logits[example * eigen.outputs.length + output] : undefined;
        /* The model's own logit, less what the ablated ones said. */
        const exact = tn.goneOf(output).reduce((sum, { value, vector }) =>
            sum - value * vector.reduce((total, v, i) => total + v * inputs[example][i], 0) ** 2, whole);
        place.replaceChildren(...table(tn.spoke(eigen.outputs[output], inputs[example], output), name, restOf(output), exact));
    };
    const names = eigen.outputs.map(one => one.name), choose = i => { output = i; show(); };
    const outputs = tn.picker("output", names, i => { choose(i); follow(i); });
    const follow = tn.follow("output", names, outputs, choose);
    const pictures = section.examples.map((one, i) => tn.h("button", { type: "button", role: "radio", class: "example",
        onclick: () => pick(i) },
        tn.picture(inputs[i], width, height, { label: `example ${i}`, sequential: inputs[i].every(v => v >= 0) }),
            tn.h("span", {}, tn.token(one.name ?? one.label ?? i))));
    const showScores = () => {
        const all = sums(), best = all.indexOf(Math.max(...all)), label = section.examples[example].label;
        scores.replaceChildren(tn.h("h4", { text: "Sum over the eigenvectors, by output" }),
            tn.bars(all.map((value, k) => ({ label: eigen.outputs[k].name, value, text: tn.fixed(value), class: k === best ? "best" : "" }))),
            label === undefined ? "" : tn.h("p", { class: "soft small" }, "the example is a ", tn.token(label),
                "; largest sum: ", tn.token(eigen.outputs[best].name)));
        const one = section.examples[example];
        other.replaceChildren(one.nearest ? nearest(one, inputs[example], width, height) : "");
        return best;
    };
    const pick = (i, first) => {
        example = i;
        pictures.forEach((picture, k) => { picture.setAttribute("aria-checked", k === i); picture.tabIndex = k === i ? 0 : -1;
            });
        const best = showScores();
        if (!first) { outputs.set(best); return; }
        outputs.show(best);
        choose(best);
    };
    document.addEventListener("tn-model", () => { if (inputs.length) { showScores(); show(); } });
    const row = tn.h("div", { class: "examples", role: "radiogroup", "aria-label": "examples", onkeydown: event => {
        const to = tn.step(event.key, pictures.indexOf(event.target), pictures.length);
        if (to < 0) return;
        event.preventDefault();
        pick(to);
        pictures[to].focus();
    } }, pictures);
    box.append(row, tn.h("div", { class: "two" }, tn.h("div", {}, scores, other), tn.h("div", {}, tn.h("div", { class: "tools" }, outputs.element),
        place)));
    if (inputs.length) pick(0, true);
};
