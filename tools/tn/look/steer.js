/* steer.js - steering: a direction, that of a token or of an eigenvector, is added to the residual stream of a block at every
   position. What a slider says is in units of the stream's length there, the median over the page's first text in the whole
   model.

   The address has the direction of a token; that of an eigenvector is of a text and a model, and is not kept.

   call: the page's program; stream(block): the lengths of its stream; change(key, name, on, off): the calls that add it and
   take it away again become part of the state. */
tn.steering = ({ names, layers, call, stream, change }) => {
    const none = ["live_steer", 0, new Float64Array(0)], lengths = new Map(), said = tn.h("span", {});
    let block = Math.min(1, layers - 1), amount = 0, direction = null;
    const lengthOf = () => {
        if (!lengths.has(block)) {
            const all = [...stream(block)].sort((a, b) => a - b);
            lengths.set(block, all[all.length >> 1]);
        }
        return lengths.get(block);
    };
    const status = tn.h("div", {});
    const told = tn.keep("steer", value => {
        if (value === undefined) { slider.set(0); return true; }
        const [, size, of, token] = value.match(/^(-?\d(?:\.\d)?) (\d{1,6}) ([^]+)$/) || [], id = names.indexOf(token);
        if (id < 0 || !(of < layers) || !(Math.abs(size) <= 2)) return false;
        block = Number(of);
        blocks.show(block);
        tokens.show(id);
        ofToken(id);
        slider.set(Number(size));
        return true;
    });
    const apply = () => {
        status.replaceChildren();
        told(amount && direction && direction.token ? `${amount} ${block} ${direction.token}` : null);
        if (!amount || !direction) { tn.takeBack("steering"); return; }
        try {
            const vector = direction.vector(), size = amount * lengthOf() / (tn.normOf(vector) || 1);
            change("steering", [tn.signed(amount), " × ", ...direction.name(), ` in block ${block}`],
                ["live_steer", block, vector.map(v => v * size)], none);
        } catch (error) {
            tn.takeBack("steering");
            status.replaceChildren(tn.h("p", { class: "alarm" }, tn.h("bdi", { text: error.message })));
        }
    };
    /* vector(): of any length; name(): new texts and elements */
    const take = (vector, name, token) => {
        direction = { name, vector, token };
        said.replaceChildren(tn.h("span", { class: "label", text: "direction" }), " ", ...name());
        apply();
    };
    const ofToken = id => take(() => call("live_direction", id).numbers,
        () => [tn.token(names[id], { class: "token piece" })], names[id]);
    const tokens = tn.picker("token", names, ofToken);
    const blocks = tn.picker("in block", Array.from({ length: layers }, (_, i) => String(i)), i => { block = i; apply(); }, block);
    const slider = tn.slider("times the stream’s length", { min: -2, max: 2, step: 0.1, value: 0, format: v =>
        tn.signed(Number(v.toFixed(1))) }, v => { amount = v; apply(); });
    document.addEventListener("tn-model", () => { if (amount && !tn.gone.has("steering")) slider.set(0); });
    const element = tn.h("div", { id: "live-steer" }, tn.h("h4", { text: "Steer: add a direction to the residual stream" }),
        tn.h("p", { class: "soft small", text: "The direction of a token is its embedding; that of an eigenvector is chosen in " +
            "its row above. It is added before the MLP of the block, at every position, and the page is of the steered model." }),
        tn.h("div", { class: "tools" }, tokens.element, blocks.element), tn.h("div", { class: "tools" }, said, slider.element,
            tn.h("button", { type: "button", class: "reset", text: "reset", onclick: () => slider.set(0) })), status);
    return { element, begin(token) { tokens.show(Math.max(0, token)); ofToken(Math.max(0, token)); },
        /* An eigenvector of a block, whose direction is that of its MLP's input. */
        along(vector, name, of) { block = of; blocks.show(of); take(() => vector, name); } };
};
