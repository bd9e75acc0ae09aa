/* tokens.js - the tokens of the text that is typed: how much each surprises the model, and after which of them it is asked. */
tn.typed = (names, pick) => {
    const full = Math.log(names.length);        /* the loss of a guess among all tokens: the colour is full */
    const line = tn.h("div", { class: "typed", id: "live-tokens", role: "radiogroup", "aria-label": "tokens of the text",
        onkeydown: event => {
            const at = [...line.children].indexOf(event.target), to = tn.step(event.key, at, line.children.length);
            if (at < 0 || to < 0) return;
            event.preventDefault();
            pick(to);
            line.children[to].focus();
        } });
    const readout = tn.h("p", { class: "readout", id: "live-surprise", "aria-live": "polite" });
    const mean = losses => losses.reduce((sum, loss) => sum + loss, 0) / losses.length;
    const nats = (loss, more) => tn.number(loss, 3, loss.toFixed(2) + (more || ""));
    const about = (id, loss, all) => {
        if (loss === undefined) return ["The first token has no loss: ", tn.token(names[id], { class: "token piece" })];
        const apart = loss - mean(all);
        return [tn.token(names[id], { class: "token piece" }), " had the probability ",
            tn.number(Math.exp(-loss), 3, tn.chance(Math.exp(-loss))),
            ": a loss of ", nats(loss, " nats"), `, ${Math.abs(apart).toFixed(2)} `, apart < 0 ? "below" : "above",
            " the text’s mean"];
    };
    const tell = (id, losses, before, position) => readout.replaceChildren(...(!losses
        ? ["A token of this model sees those after it, so that none has a loss."]
        : [...about(id, position ? losses[position - 1] : undefined, losses), ...(losses.length ? [" · mean loss ",
            tn.h("b", {}, nats(mean(losses))), " nats per token",
            ...(before ? [", in the whole model ", nats(mean(before))] : [])] : [])]));
    /* The buttons in the line, each with what it shows, since one that stays as it is costs nothing. */
    const made = [];
    const button = id => {
        const nats = tn.h("span", { class: "nats" }), element = tn.h("button", { type: "button", class: "said", role: "radio",
            "aria-checked": false, tabindex: -1, onclick: () => {
                const i = [...line.children].indexOf(element);
                pick(i);
                line.children[i].focus();
            } }, tn.token(names[id]), nats);
        return { id, element, nats };
    };
    const setLoss = (one, loss) => {
        if (one.loss === loss && one.nats.firstChild) return;
        one.loss = loss;
        one.nats.replaceChildren(loss === undefined ? "–" : nats(loss));
        if (loss === undefined) one.element.style.removeProperty("--share");
        else one.element.style.setProperty("--share", Math.min(1, loss / full));
    };
    /* The tokens before an edit and after it keep their buttons. */
    const setTokens = ids => {
        const most = Math.min(ids.length, made.length);
        let first = 0, last = 0;
        while (first < most && made[first].id === ids[first]) first++;
        while (last < most - first && made[made.length - 1 - last].id === ids[ids.length - 1 - last]) last++;
        const more = Array.from(ids.slice(first, ids.length - last), button);
        for (const { element } of made.splice(first, made.length - first - last, ...more)) element.remove();
        const at = line.children[first] || null;
        for (const { element } of more) line.insertBefore(element, at);
    };
    /* losses: of all tokens but the first, or null: they have none in this model; before: those of the whole model, or null. */
    return { element: tn.h("div", {}, line, readout, tn.h("p", { class: "small soft" },
                 "Below each token is its loss in nats, and its colour: 0 ", tn.h("span", { class: "surprise" }),
                 ` ${full.toFixed(1)}, the loss of a uniform guess among ${tn.format(names.length)} tokens. `,
                 tn.h("span", { class: "no-print", text: "A click or an arrow key chooses a token; the rest of this section is " +
                     "about the token after it." }))),
        show(ids, losses, before, position) {
            const kept = line.contains(document.activeElement);
            setTokens(ids);
            made.forEach((one, i) => setLoss(one, losses && i ? losses[i - 1] : undefined));
            made.forEach(({ element }, i) => {
                if (element.tabIndex === (i === position ? 0 : -1)) return;
                element.tabIndex = i === position ? 0 : -1;
                element.setAttribute("aria-checked", i === position);
            });
            if (!ids.length) { readout.replaceChildren(); return; }
            if (kept) line.children[position].focus();
            tell(ids[position], losses, before, position);
        } };
};
