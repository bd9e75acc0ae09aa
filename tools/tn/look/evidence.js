/* evidence.js - where an eigenvector is strongest in a text: the sentences in which it is strongest, with the strength of each
   token, which is eigenvector times normed stream. The page has the ids of the text (page.evidence), and of a sentence where it
   begins and its strengths. */
tn.evidence = sentences => {
    const { source, ids, first_only } = tn.page.evidence, all = tn.array(ids), names = tn.page.names.tokens;
    const strengths = sentences.map(sentence => tn.array(sentence.values));
    const limit = strengths.reduce((most, values) => Math.max(most, tn.largest(values)), 0) || 1;
    const token = (value, id) => tn.token(names[id], { "data-value": value, title: `strength ${tn.format(value, 3)}`,
        style: tn.shade(value / limit) });
    return tn.h("div", {}, tn.h("h4", { text: "where it is strongest" }), tn.h("ul", { class: "contexts" },
        sentences.map(({ first }, k) => tn.h("li", {}, tn.h("span", { class: "sentence" },
            Array.from(strengths[k], (value, i) => token(value, all[first + i])))))),
        tn.h("p", { class: "soft small" }, `Sentences of ${first_only ? `the first ${tn.format(all.length)} tokens of ` : ""}`
            + `${source}, in the whole model. A token’s colour is its strength, `,
            "eigenvector times normed stream, from ", tn.number(-limit, 3), " (blue) to ", tn.number(limit, 3),
            " (red); what the MLP adds there is the eigenvalue times its square."));
};
