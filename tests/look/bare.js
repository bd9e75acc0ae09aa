/* bare.js - a page of a model without its run, so that its sentences are of the page's own text. */
whenFilled({
    /* The last token of the page's own text is as strong along each eigenvector as the page's program has it. */
    async evidence() {
        const { evidence, sections, live, names } = tn.page, section = sections.find(one => one.id === "eigen-0");
        const sentences = section.outputs[0].sentences;
        check("run: each eigenvector has a sentence", sentences.every(list => list.length > 0), JSON.stringify(sentences));
        equal("run: whose they are", evidence.source, "the text of this page");
        const call = await tn.engine(tn.bytes("tn-wasm"));
        call("live_language", tn.array(live.weights), live.config, live.tokenizer);
        call("live_marks", live.marks ? 1 : 0);
        const ids = tn.array(evidence.ids), place = ids.length - 1;
        equal("run: the ids of the text", [...call("live_text", live.prompt).numbers].join(), [...ids].join());
        const { numbers } = call("live_vectors", 0, names.tokens.indexOf(section.outputs[0].name));
        let compared = 0;
        sentences.forEach((list, k) => list.filter(({ first, values }) => first + tn.array(values).length > place).forEach(one => {
            near(`run: strength of eigenvector ${k}`, Math.abs(tn.array(one.values)[place - one.first]),
                Math.abs(numbers[7 * k + 1]), 1e-4);
            compared++;
        }));
        check("run: strengths are compared", compared > 3, compared);
    },
});
