/* live.js - the model itself in the page: draw or type, see what it predicts and why, ablate and see what changes. Its
   functions are those of live.c; what they answer is shown as it is, with the time that it took. */

/* ---- a field to draw in, [height, width] numbers from 0 to 1: with a pointer, or with arrow keys and the space bar. */
tn.pad = (width, height, onchange) => {
    const values = new Float32Array(width * height), radius = Math.max(0.55, width / 20);
    const pen = { x: width >> 1, y: height >> 1 };
    const canvas = tn.h("canvas", { class: "picture", width, height }), mark = tn.h("span", { class: "pen" });
    const field = tn.h("div", { class: "pad", tabindex: 0, role: "application", style: `--across: ${width}; --down: ${height}`,
        "aria-label": `a field of ${width} by ${height} pixels: arrow keys move the pen, space draws, backspace rubs out` },
        canvas, mark);
    canvas.paint = () => canvas.getContext("2d").putImageData(new ImageData(tn.paint(values, 1, true), width, height), 0, 0);
    const show = () => {
        canvas.paint();
        mark.style.left = 100 * pen.x / width + "%";
        mark.style.top = 100 * pen.y / height + "%";
    };
    /* A round, soft nib around (x, y), in pixels. */
    const dab = (x, y, ink) => {
        for (let v = 0; v < height; v++) for (let u = 0; u < width; u++) {
            const strength = Math.max(0, Math.min(1, radius + 0.5 - Math.hypot(u + 0.5 - x, v + 0.5 - y)));
            const i = v * width + u;
            values[i] = ink ? Math.max(values[i], strength) : Math.min(values[i], 1 - strength);
        }
    };
    const changed = () => { show(); onchange(values); };
    let last = null;
    const place = event => {
        const box = canvas.getBoundingClientRect();
        return { x: (event.clientX - box.left) / box.width * width, y: (event.clientY - box.top) / box.height * height };
    };
    const draw = event => {
        const to = place(event), from = last || to, parts = Math.ceil(2 * Math.hypot(to.x - from.x, to.y - from.y)) || 1;
        for (let i = 1; i <= parts; i++)
            dab(from.x + (to.x - from.x) * i / parts, from.y + (to.y - from.y) * i / parts, event.buttons !== 2);
        last = to;
        changed();
    };
    canvas.addEventListener("pointerdown", event => {
        canvas.setPointerCapture(event.pointerId);
        last = null;
        draw(event);
    });
    canvas.addEventListener("pointermove", event => { if (event.buttons && last) draw(event); });
    canvas.addEventListener("pointerup", () => { last = null; });
    canvas.addEventListener("contextmenu", event => event.preventDefault());
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    field.addEventListener("keydown", event => {
        const move = moves[event.key], ink = event.key === " " || event.key === "Enter";
        if (!move && !ink && event.key !== "Backspace" && event.key !== "Delete") return;
        event.preventDefault();
        if (move) {
            pen.x = Math.max(0, Math.min(width - 1, pen.x + move[0]));
            pen.y = Math.max(0, Math.min(height - 1, pen.y + move[1]));
            if (!event.shiftKey) { show(); return; }
        }
        dab(pen.x + 0.5, pen.y + 0.5, move || ink);
        changed();
    });
    const set = picture => { values.set(picture); changed(); };
    const clear = tn.h("button", { type: "button", class: "clear", text: "clear", onclick: () => {
        values.fill(0);
        changed();
    } });
    show();
    return { element: tn.h("div", { class: "drawing" }, field, clear,
                 tn.h("span", { class: "hint" }, "draw with the pointer, or with arrows and space (shift draws along)")),
             values: () => values, empty: () => !values.some(v => v > 0), set };
};

/* ---- numbers */
tn.softmax = logits => {
    const most = logits.reduce((a, b) => Math.max(a, b), -Infinity), powers = Array.from(logits, x => Math.exp(x - most));
    const sum = powers.reduce((a, b) => a + b, 0);
    return powers.map(x => x / sum);
};
/* The index of the largest number. */
tn.best = values => values.reduce((best, x, i) => x > values[best] ? i : best, 0);
/* A probability, as people write it. */
/* A term of a sum, and what it adds up to: as many digits as make a column of one width. */
tn.fixed = x => {
    const size = Math.abs(x), text = size.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3);
    return (x < 0 && Number(text) ? "−" : "") + text;
};
tn.term = x => (x > 0 && Number(tn.fixed(x)) ? "+" : "") + tn.fixed(x);
tn.logit = x => tn.number(x, 4, (x < 0 ? "−" : "") + Math.abs(x).toFixed(2));
tn.chance = x => x < 1e-4 ? "< 0.01 %" : x > 0.9995 ? "> 99.9 %" : (100 * x).toFixed(x < 0.1 ? 2 : 1) + " %";

/* Runs a question, and says how long it took; what goes wrong is said in its place. */
const answering = status => question => {
    const begun = performance.now();
    try {
        question();
        tn.answered = performance.now() - begun;
        status.replaceChildren("answered in ", tn.number(tn.answered, 3), " ms");
    } catch (error) {
        console.error(error);
        status.replaceChildren(tn.h("span", { class: "alarm" }, tn.h("bdi", { text: error.message })));
    }
};
/* What the whole model answers to a question. It is then again without what `calls` take out, also where the question fails. */
const ofWhole = (call, calls, question) => {
    call("live_restore");
    try { return question(call); }
    finally { for (const one of calls) call(...one); }
};
/* A button that takes something out of the model, pressed while it is out. Its name says what, and then what the button shows;
   it stays the same, so that a screen reader does not say both "pressed" and "ablated". */
const ablation = (off, what, onclick, attributes, ...children) =>
    tn.h("button", { type: "button", "aria-pressed": off, title: off ? "restore" : "ablate", ...attributes, onclick },
        tn.h("span", { class: "spoken", text: `ablate ${what}: ` }),
        off ? tn.h("b", { "aria-hidden": true, text: "ablated " }) : "", ...children);
/* While there is something to restore. */
const restoring = () => {
    const tools = tn.h("div", { class: "tools" }, tn.h("button", { type: "button", text: "restore all",
        onclick: () => tn.restore() }));
    tn.drawn(() => { tools.hidden = !tn.gone.size; });
    return tools;
};
const toAblate = () => tn.h("span", { class: "no-print", text: " · click to ablate" });
/* What people call a part of a language model. */
tn.partName = name => {
    const [, block, what, head] = name.match(/^blocks\.(\d+)\.(attn|mlp)\.?(\d+|bias)?$/) || [];
    return what === "mlp" ? `MLP of block ${block}` : what && head !== "bias" ? `head ${head} of block ${block}`
        : what ? `biases of block ${block}` : name === "embed" ? "embedding of the last token"
        : name === "norm.bias" ? "bias of the last norm" : name;
};
/* The terms of a logit: heads and MLPs, which a click takes out, in a row for each block, then the others, and their sum.
   values: of the names of parts, none of them if they are not known; limit: of the colours; of: what begins their keys;
   take(block, head, key): the MLP is after the heads. */
const largestTerm = values => Math.max(1e-9, ...[...values.values()].map(Math.abs));
const termsTable = ({ layers, heads, values, limit = largestTerm(values), of = "", logit, take, named = tn.partName }) => {
    const clickable = new Set();
    const cell = (block, head) => {
        const name = head < heads ? `blocks.${block}.attn.${head}` : `blocks.${block}.mlp`, key = of + name;
        const value = values.get(name), off = tn.gone.has(key);
        clickable.add(name);
        return tn.h("td", {}, ablation(off, tn.partName(name), () => take(block, head, key), {
            class: "part ablate" + (off ? " gone" : ""), "data-part": key,
            "data-value": off ? "0" : value === undefined ? null : String(value),
            style: off ? null : tn.shade((value || 0) / limit) }, off ? "" : value === undefined ? "·" : tn.term(value)));
    };
    const columns = [...Array.from({ length: heads }, (_, h) => "head " + h), "MLP"];
    const rows = Array.from({ length: layers }, (_, block) => tn.h("tr", {},
        tn.h("th", { scope: "row", text: "block " + block }), columns.map((_, head) => cell(block, head))));
    const sum = [...values.values()].reduce((total, value) => total + value, 0);
    const other = (name, value, attributes, text = tn.term(value)) => tn.h("tr", attributes,
        tn.h("th", { scope: "row", colspan: heads + 1 }, name), tn.h("td", {}, tn.number(value, 3, text)));
    const others = [...values].filter(([name]) => !clickable.has(name)).map(([name, value]) => other(named(name), value));
    /* A soft cap changes the logit after the sum. */
    const capped = logit !== undefined && Math.abs(sum - logit) > 1e-2 * (1 + Math.abs(logit));
    return tn.h("div", { class: "scroll" }, tn.h("table", { class: "parts" },
        tn.h("thead", {}, tn.h("tr", {}, tn.h("td"), columns.map(text => tn.h("th", { scope: "col", text })))),
        tn.h("tbody", {}, rows), values.size ? tn.h("tfoot", {}, others, other(capped ? "sum, before the soft cap"
            : "sum: the logit", sum, { class: "sum" }, tn.fixed(sum))) : null));
};

/* ---- images: the classes, and for one of them the eigenvectors that contribute most */
/* Opens the model, and gives it the eigenvectors that the page has; those of a class that it lacks are computed when they are
   first shown. */
const opened = (call, live, section) => {
    const [classes, pixels] = call("live_images", tn.array(live.weights)).numbers;
    const known = section && section.outputs.length === classes ? section : null;
    for (let c = 0; known && c < classes; c++) {
        const some = tn.eigenvectors(known.outputs[c]).filter(one => one.vector && one.vector.length === pixels).slice(0, 64);
        const vectors = Float32Array.from(some.flatMap(one => [...one.vector]));
        if (some.length) call("live_pairs", c, Float32Array.from(some, one => one.value), vectors);
    }
    return { classes, pixels, known };
};
/* A picture to begin with: of the data; or what the model itself looks for, the bright part of the eigenvector with the largest
   eigenvalue of the class that is surest of its own. */
const beginning = (call, known, pixels) => {
    const example = (tn.page.sections || []).flatMap(section => section.type === "spoke" ? section.examples : [])[0];
    if (example) return { picture: tn.array(example.input).slice(0, pixels), words: ["This picture is one of the data."] };
    let best = null;
    (known ? known.outputs : []).forEach((output, c) => {
        const one = tn.eigenvectors(output).filter(({ value, vector }) => vector && value > 0).sort((a, b) =>
            b.value - a.value)[0];
        for (const sign of one ? [1, -1] : []) {
            const most = one.vector.reduce((a, v) => Math.max(a, sign * v), 0) || 1;
            const picture = Float32Array.from(one.vector, v => Math.max(0, sign * v / most));
            const chance = tn.softmax(call("live_see", picture).numbers)[c];
            if (!best || chance > best.chance) best = { picture, chance, c,
                words: ["This picture is the model’s own: the bright " +
                "part of the strongest eigenvector for ", tn.token(output.name), "."] };
        }
    });
    return best;
};

const images = (call, live, box) => {
    const section = (tn.page.sections || []).find(one => one.type === "eigen");
    const { classes, pixels, known } = opened(call, live, section);
    const { width, height } = tn.page.pixels || { width: Math.sqrt(pixels), height: Math.sqrt(pixels) };
    const names = tn.names("outputs", classes), key = k => tn.partKey(chosen, k), pictures = new Map();
    let chosen = 0, before = null;
    const scores = tn.h("div", { id: "live-scores" }), spoke = tn.h("div", { id: "live-spoke" });
    const status = tn.h("output", { class: "status" }), answer = answering(status);
    const pictureOf = k => {
        if (!pictures.has(key(k))) pictures.set(key(k), call("live_picture", chosen, k).numbers);
        return pictures.get(key(k));
    };
    const showScores = logits => {
        const now = tn.softmax(logits), best = tn.best(now), was = tn.gone.size > 0 && before;
        const row = (value, c) => ({ value, text: tn.chance(value), class: c === best ? "best" : "",
            label: tn.h("button", { type: "button", class: "plain", "aria-pressed": c === chosen, onclick: () => choose(c) },
                tn.token(names[c])),
            notes: [tn.logit(logits[c]), ...(was ? [tn.number(before[c], 3, tn.chance(before[c]))] : [])] });
        scores.replaceChildren(tn.h("h4", { text: "Prediction" }),
            tn.bars(now.map(row), { head: ["output", "", "probability", "logit", ...(was ? ["was"] : [])] }));
    };
    const showSpoke = () => {
        const { count, numbers } = call("live_spoke", chosen), gone = k => tn.gone.has(key(k));
        const all = Array.from({ length: count }, (_, k) => ({ k, value: numbers[2 * k], part: gone(k) ? 0 : numbers[2 * k + 1],
            size: Math.abs(numbers[2 * k + 1]) }));
        const row = ({ k, value, part }) => ({ value: part, class: gone(k) ? "gone" : "",
            label: ablation(gone(k), `eigenvector ${k}`, () => ablate(k), { class: "plain spoke ablate", "data-k": k },
                tn.picture(pictureOf(k), width, height),
                tn.h("span", {}, tn.number(value, 3), known && tn.isWithin(known.outputs[chosen], value)
                    ? tn.h("i", { class: "soft", text: " within the null" }) : null)) });
        const rows = all.sort((a, b) => b.size - a.size).slice(0, 10).map(row);
        const more = all.slice(10).reduce((sum, one) => sum + one.part, numbers[2 * count]);
        spoke.replaceChildren(tn.h("h4", {}, "Eigenvectors that contribute most to ", tn.token(names[chosen]), toAblate()),
            tn.bars([...rows, { label: "all the others", value: more, class: "rest" }],
                { head: ["eigenvector, eigenvalue", "", "contribution"] }));
    };
    const logitsOf = picture => call("live_see", picture).numbers, nothingNew = new Float32Array(0);
    /* What the whole model says of the same picture. */
    const whole = () => {
        const gone = [...tn.gone.keys()].map(name => ["live_ablate", ...name.split(" ").slice(1).map(Number), 1]);
        return ofWhole(call, gone, () => tn.softmax(logitsOf(nothingNew)));
    };
    const show = picture => {
        const logits = logitsOf(picture);
        before = tn.gone.size ? whole() : null;
        if (picture.length && !tn.gone.size) { chosen = tn.best(logits); follow(chosen); }
        showScores(logits);
        showSpoke();
    };
    const see = picture => answer(() => show(picture)), again = () => see(nothingNew);
    const choose = c => { chosen = c; again(); follow(c); };
    const follow = tn.follow("output", names, { get value() { return chosen; }, show(c) { chosen = c; } }, again);
    const ablate = k => {
        const c = chosen;
        answer(() => tn.ablate(key(k), ["eigenvector ", String(k), " for “", tn.token(names[c]), "”"],
            off => call("live_ablate", c, k, off ? 1 : 0)));
        const button = spoke.querySelector(`[data-k="${k}"]`);
        if (button) button.focus();
    };
    tn.keepAblations(name => {
        const [, c, k] = (name.match(/^eigenvector (\d{1,6}) (\d{1,6})$/) || []).map(Number);
        if (!(c < classes) || k >= call("live_spoke", c).count) return false;
        if (!tn.gone.has(name)) tn.ablate(name, ["eigenvector ", String(k), " of ", tn.token(names[c])],
            off => call("live_ablate", c, k, off ? 1 : 0));
        return true;
    });
    const origin = tn.h("p", { class: "soft small", hidden: true });
    const pad = tn.pad(width, height, values => { origin.hidden = true; see(values); });
    document.addEventListener("tn-model", again);
    box.append(tn.h("div", { class: "two" }, tn.h("div", {}, pad.element, origin, status, scores),
        tn.h("div", {}, spoke, restoring())));
    const first = beginning(call, known, pixels);
    if (!first) { again(); return; }
    pad.set(first.picture);
    origin.replaceChildren(...first.words, " Draw over it, or clear it.");
    origin.hidden = false;
};

/* ---- language: the tokens and their losses, the next token at any position, the heads and MLPs that wrote it, patterns,
   eigenvectors, paths; a click takes one out, or adds a direction. What is typed is answered at once; what explains the answer is
   computed beside the page, when the typing pauses. Both are told what is ablated and added with every question, so that they
   answer for the same model. */
const language = (call, live, box) => {
    const files = [tn.array(live.weights), live.config, live.tokenizer || ""];
    const model = call("live_language", ...files), [, layers, heads] = model.numbers;
    const marks = ["live_marks", live.marks === false ? 0 : 1];
    call(...marks);
    const ask = tn.aside(tn.bytes("tn-wasm"), call, ["live_language", ...files]);
    const names = (tn.page.names || {}).tokens || model.words;
    const status = tn.h("output", { class: "status" }), answer = answering(status);
    let length = 0, position = 0, token = -1, logit, before = null, waiting = 0, turn = 0;
    let values = new Map(), why = "", block = 0, picked = false, spoke = null;
    let unfinished = false;                     /* whether all of an explanation is still asked for */
    const answered = { ids: [], next: [] };     /* the tokens of the text, and what follows: [id, probability]... */
    let patternsOf = "";                        /* the text and the model whose patterns are shown */
    const typed = tn.typed(names, at => goTo(at)), patterns = tn.patterns(layers, heads);
    const scores = tn.h("div", { id: "live-scores" }), parts = tn.h("div", { id: "live-parts" });
    const vectors = tn.h("div", { id: "live-eigen" }), paths = tn.h("div", { id: "live-paths" });
    const text = tn.h("textarea", { id: "live-text", class: "no-print", rows: 2, spellcheck: "false", dir: "auto",
        "aria-label": "text", oninput: () => read() });
    const beginning = text.value = live.prompt || "Once upon a time";

    /* The calls that make a whole model the present one. */
    const calls = new Map();
    const state = () => [marks, ["live_restore"], ...calls.values()];
    const taken = (key, name, on, off, link) => tn.ablate(key, name, out => {
        call(...(out ? on : off));
        if (out) calls.set(key, on); else calls.delete(key);
    }, link);
    /* The losses of the tokens; null: tokens of this model see those after them. */
    const lossesOf = () => { try { return call("live_losses").numbers; } catch { return null; } };
    /* What the whole model says of the same text. */
    const whole = () => ofWhole(call, calls.values(), () => ({ next: call("live_next").numbers, losses: lossesOf() }));
    const showNext = () => {
        const { count, numbers } = call("live_next"), chances = numbers.subarray(count);
        const order = Array.from({ length: count }, (_, i) => i).sort((a, b) => chances[b] - chances[a]).slice(0, 8);
        const losses = lossesOf(), follows = position + 1 < length ? answered.ids[position + 1] : -1;
        if (!tn.gone.size) before = null;
        else if (!before) before = whole();
        if (token < 0) token = order[0];
        logit = numbers[token];
        toldToken(token === order[0] ? null : names[token]);
        answered.next = order.slice(0, 5).map(id => [id, chances[id]]);
        const row = id => ({ value: chances[id], text: tn.chance(chances[id]), class: id === token ? "best" : "",
            label: tn.h("button", { type: "button", class: "plain", "aria-pressed": id === token, title: "explain this token",
                onclick: () => { token = id; question(); } }, tn.token(names[id]),
                id === follows ? [tn.h("span", { class: "spoken", text: " follows in the text" }), tn.h("span",
                    { "aria-hidden": true, text: " ✓" })] : null),
            notes: [tn.logit(numbers[id]), ...(before
                ? [tn.number(before.next[count + id], 3, tn.chance(before.next[count + id]))] : [])] });
        typed.show(answered.ids, losses, before && before.losses, position);
        scores.replaceChildren(tn.h("h4", {}, "Next token after ", quoted(answered.ids[position])),
            tn.bars((follows < 0 || order.includes(follows) ? order : [...order, follows]).map(row),
                { head: ["token", "", "probability", "logit", ...(before ? ["was"] : [])] }),
            follows < 0 ? "" : tn.h("p", { class: "soft small", text: "✓ follows in the text" }));
    };
    /* Another position of the text: its prediction, and what explains it. */
    const goTo = at => {
        if (!length || at === position) return;
        position = at;
        toldPosition(at === length - 1 ? null : at);
        token = -1;
        before = null;
        call("live_at", position);
        question();
    };

    const quoted = id => tn.token(names[id], { class: "token piece" });
    const partOf = (block, head) => head < heads ? `blocks.${block}.attn.${head}` : `blocks.${block}.mlp`;
    /* Of the constants of the block that is steered. */
    const steeredPart = () => calls.has("steering") ? `blocks.${calls.get("steering")[1]}.attn.bias` : "";
    const inWords = name => name === steeredPart() ? `what is added in block ${name.split(".")[1]}` : tn.partName(name);
    const showParts = () => parts.replaceChildren(
            tn.h("h4", {}, "The logit of ", quoted(token), " as a sum over the parts of the model", toAblate()),
            termsTable({ layers, heads, values, logit, named: inWords, take: (block, head, key) => ablate(key, block, head) }),
            why ? tn.h("p", { class: "soft small", text: "The parts cannot be told apart in this model, because the norms of " +
                "later blocks change what earlier ones have written." }) : "");

    /* What the eigenvectors of the token's matrix in the chosen block add; each is named by the tokens on the text's side. */
    const blocks = tn.picker("block", Array.from({ length: layers }, (_, i) => String(i)), i => {
        block = i;
        picked = true;
        explain(unfinished);
    });
    const vectorRows = tn.h("div", { id: "live-vectors" });
    const each = 7;                             /* numbers of an eigenvector, before all of their components */
    let hiddenEver = 0;
    const hidden = new Map();                   /* key -> the row of an eigenvector that is ablated, and its block and token */
    const showVectors = () => {
        const { count, numbers } = spoke.answer;
        /* An ablated one is not among those of the present model, unless the answer is older. */
        const before = [...hidden.values()].filter(one => one.block === spoke.block && one.token === spoke.token
            && tn.gone.has(one.key));
        const all = Array.from({ length: count }, (_, k) => ({ k, numbers: numbers.subarray(each * k, each * k + each) }))
            .filter(({ k }) => !before.some(one => one.answer === spoke.answer && one.k === k));
        const some = all.sort((a, b) => Math.abs(b.numbers[2]) - Math.abs(a.numbers[2])).slice(0, 8);
        const nearest = ids => [...ids].filter(id => id >= 0).map(id => [tn.token(names[id]), " "]);
        const row = ({ k, numbers: [value, activation, part, ...ids] }) => ({ value: part,
            notes: [tn.number(value, 3), tn.number(activation, 3)],
            label: tn.h("span", {}, ablation(false, `eigenvector ${k} of block ${spoke.block}`, () => hide(k),
                { class: "plain ablate", "data-k": k }, nearest(ids)), tn.h("button", { type: "button", class: "plain steer",
                title: `steer by eigenvector ${k}`, text: "steer", onclick: () => along(k) })) });
        const gone = one => ({ value: 0, class: "gone", notes: [tn.number(one.numbers[0], 3), tn.number(0)],
            label: ablation(true, `eigenvector ${one.k} of block ${spoke.block}`, () => show(one),
                { class: "plain ablate" }, nearest(one.numbers.slice(3))) });
        const rest = some.reduce((sum, one) => sum - one.numbers[2], numbers[each * count]);
        const others = { label: "all the others", value: rest, class: "rest", notes: ["", ""] };
        vectorRows.replaceChildren(tn.h("div", { class: "scroll" }, tn.bars([...some.map(row), ...before.map(gone), others],
            { head: ["nearest tokens", "", "contribution", "eigenvalue", "activation"] })),
            tn.h("p", { class: "total" }, "the MLP of this block adds ", tn.number(numbers[each * count], 5)));
    };

    const named = word => tn.path(word.replace(/E\[(\d+)\]/g, (_, id) => `E[${tn.plain(names[id])}]`));
    const showPaths = ({ count, numbers, words }) => {
        const shown = Math.min(count, 8), rest = numbers.slice(3, 3 + shown).reduce((sum, value) => sum - value, numbers[0]);
        paths.replaceChildren(tn.h("h4", {}, "Paths that add most to it"),
            tn.h("div", { class: "scroll" }, tn.bars([...Array.from({ length: shown }, (_, i) =>
                ({ label: tn.pathOf(named(words[i])), value: numbers[3 + i] })),
                { label: "all other paths", value: rest, class: "rest" }])),
            tn.h("p", { class: "total" }, "logit ", tn.number(numbers[0], 5)));
    };
    const along = k => {
        const { answer: { count, numbers }, block, token } = spoke, n = (numbers.length - 1) / count - each;
        const from = each * count + 1 + k * n;
        steering.along(numbers.slice(from, from + model.numbers[3]), () => [`eigenvector ${k} of `, quoted(token)], block);
    };
    /* Whether all that is shown is what the page was made with. */
    const asMade = () => !tn.gone.size && text.value === beginning && position === length - 1;
    /* The rest of the page that is of a text: sections that show the text of the page, until it or the model is another one. */
    const tell = found => {
        const all = Array.from(answered.ids, id => names[id]), told = ([name, value]) => [inWords(name), value];
        tn.answer = asMade() ? null : { all, tokens: all.slice(0, position + 1), token: names[token],
            next: answered.next.map(([id, chance]) => [names[id], chance]), values: new Map([...values].map(told)),
            paths: found && { rows: Array.from({ length: found.count }, (_, i) =>
                ({ path: found.words[i].replace(/E\[(\d+)\]/g, (_, id) => `E[${names[id]}]`), value: found.numbers[3 + i] })),
                exact: found.numbers[0] },
            patterns: block => ask(...state(), ["live_text", text.value], ["live_at", position],
                ["live_patterns", block]) };
        document.dispatchEvent(new Event("tn-answer"));
    };

    /* Those of all blocks, unless they are shown: another position, or token, has the same. */
    const showPatterns = async (mine, current) => {
        const wanted = JSON.stringify([text.value, [...calls].map(([key, [name, ...given]]) => [key, name, String(given)])]);
        if (wanted === patternsOf) { patterns.element.classList.remove("old"); return; }
        const tokens = Array.from(answered.ids, id => names[id]);
        for (let block = 0; block < layers; block++) {
            const answer = await current(["live_patterns", block]);
            if (mine !== turn) return;
            patterns.show(block, answer, tokens);
        }
        patternsOf = wanted;
        patterns.element.classList.remove("old");
    };
    /* Asks for all that explains `token` after the position. all: otherwise only for the eigenvectors. */
    const explain = async (all = true) => {
        if (!length) return;
        unfinished = all;
        let found = null;
        const mine = ++turn, asked = token, now = text.value, at = position;
        const once = question => ask(...state(), ["live_text", now], ["live_at", at], question);
        /* Only about the text that is there: the page's program answers where there is no worker. */
        const current = question => once(question).catch(error => {
            if (mine !== turn || !error.ended) throw error;
            return once(question);
        });
        await ask.ready;
        const shown = async (element, question, show, sorry) => {
            if (mine !== turn) return;
            try {
                const answer = await current(question());
                if (mine !== turn) return;
                show(answer);
            } catch (error) {
                if (mine !== turn) return;
                sorry(error.message);
            }
            element.classList.remove("old");
        };
        if (all) await shown(parts, () => ["live_parts", asked], ({ words, numbers }) => {
            values = new Map(words.map((name, i) => [name, numbers[i]]));
            why = "";
            const sizes = Array.from({ length: layers }, (_, block) => Math.abs(values.get(partOf(block, heads)) || 0));
            if (!picked) { block = tn.best(sizes); blocks.show(block); }
            showParts();
        }, message => {
            values = new Map();
            why = message;
            showParts();
        });
        if (all) await showPatterns(mine, current);
        const none = message => {
            spoke = null;
            vectorRows.replaceChildren(tn.h("p", { class: "soft small", title: message, text: tn.gone.has(partOf(block, heads))
                ? "The MLP of this block is ablated, and adds nothing." : "The MLP of this block is not a product of " +
                "linear maps, so it has no eigenvectors." }));
        };
        const heading = () => title.replaceChildren("Eigenvectors that contribute most to ", quoted(asked), toAblate());
        heading();
        if (tn.gone.has(partOf(block, heads))) { none(""); vectors.classList.remove("old"); }
        else await shown(vectors, () => ["live_vectors", block, asked], answer => {
            spoke = { answer, block, token: asked };
            showVectors();
        }, none);
        if (all) await shown(paths, () => ["live_paths", asked, 400, 40], answer => { found = answer; showPaths(answer); },
            message => paths.replaceChildren(tn.h("p", { class: "soft small", title: message,
                text: "This model cannot be written as a sum over paths." })));
        if (mine !== turn) return;
        unfinished = false;
        if (!all) return;
        tell(found);
        document.dispatchEvent(new Event("tn-explained"));
    };
    const title = tn.h("h4", { text: "Eigenvectors that spoke" });
    vectors.append(title, tn.h("div", { class: "tools" }, blocks.element), vectorRows);

    /* Marks what explains the answer as outdated, and drops answers that are still to come. */
    const outdate = () => {
        clearTimeout(waiting);
        turn++;
        unfinished = false;
        for (const one of [parts, patterns.element, vectors, paths]) one.classList.add("old");
        if (tn.answer || !asMade()) document.dispatchEvent(new Event("tn-asked"));
    };
    const later = () => { outdate(); waiting = setTimeout(explain, 150); };
    const question = () => {
        if (!length) return;
        answer(showNext);
        later();
    };
    const told = tn.keep("text", (value = beginning) => { text.value = value; read(); });
    const toldPosition = tn.keep("position", value => {
        if (value !== undefined && (!/^\d{1,6}$/.test(value) || !(value < length))) return false;
        goTo(value === undefined ? length - 1 : Number(value));
        return true;
    });
    const toldToken = tn.keep("token", name => {
        if (!length || (name !== undefined && !names.includes(name))) return false;
        token = names.indexOf(name);
        question();
        return true;
    });
    const read = () => {
        let ids = null;
        length = 0;
        before = null;
        told(text.value === beginning ? null : text.value);
        toldPosition(null);
        toldToken(null);
        answer(() => {
            ids = call("live_text", text.value).numbers;
            length = ids.length;
            position = length - 1;
            answered.ids = ids;
            if (!length) { typed.show(ids); return; }
            token = -1;
            showNext();
        });
        scores.classList.toggle("old", !length);
        if (length) later();
        else outdate();
        if (ids && !length) status.replaceChildren("type something: the text has no tokens");
    };
    const takePart = (name, block, head) => taken(name, head < heads ? `head ${head} of block ${block}`
        : `the MLP of block ${block}`, ["live_ablate", block, head, 1], ["live_ablate", block, head, 0]);
    const ablate = (name, block, head) => {
        if (!length) return;
        answer(() => takePart(name, block, head));
        parts.querySelector(`[data-part="${name}"]`).focus();
    };
    const takeVector = (found, block, token, k) => {
        const { count, numbers } = found, n = (numbers.length - 1) / count - each;
        const from = each * count + 1 + k * n, id = hiddenEver++, key = `vector ${block} ${token} ${id}`;
        hidden.set(key, { key, id, k, block, token, answer: found, numbers: numbers.slice(each * k, each * k + each) });
        taken(key, ["an eigenvector of ", quoted(token), ` in block ${block}`],
            ["live_hide", block, token, id, numbers.slice(from, from + n)], ["live_hide", block, token, id, new Float64Array(0)],
            `vector ${block} ${token} ${numbers[each * k]}`);
    };
    const hide = k => { if (length) answer(() => takeVector(spoke.answer, spoke.block, spoke.token, k)); };
    /* What an address calls an eigenvector: its block, its token and its eigenvalue. */
    tn.keepAblations(name => {
        const [, block, head] = (name.match(/^blocks\.(\d{1,6})\.(?:attn\.(\d{1,6})|mlp)$/) || []).map(Number);
        const [, of, whose, value] = (name.match(/^vector (\d{1,6}) (\d{1,9}) (-?[\d.e+-]+)$/) || []).map(Number);
        if (!length || tn.gone.has(name)) return length > 0;
        if (block < layers && !(head >= heads)) takePart(name, block, name.endsWith(".mlp") ? heads : head);
        else if (of < layers && whose < names.length) {
            const found = call("live_vectors", of, whose), away = k => Math.abs(found.numbers[each * k] - value);
            const k = tn.best(Array.from({ length: found.count }, (_, i) => -away(i)));
            if (!(away(k) <= 1e-3 * Math.abs(value))) return false;
            takeVector(found, of, whose, k);
        } else return false;
        return true;
    });
    const show = one => {
        if (!length) return;
        answer(() => tn.ablate(one.key, "", () => {
            call("live_hide", one.block, one.token, one.id, new Float64Array(0));
            calls.delete(one.key);
        }));
    };
    /* The lengths of the stream of a block, in the whole model and of the first text, so that what a link adds does not depend
       on what was typed before. */
    const stream = block => ofWhole(call, [["live_text", text.value], ...(length ? [["live_at", position]] : []),
        ...calls.values()], () => { call("live_text", beginning); return call("live_stream", block).numbers; });
    const steering = tn.steering({ names, layers, call, stream, change: (key, name, on, off) => tn.add(key, name,
        () => { call(...on); calls.set(key, on); }, () => { call(...off); calls.delete(key); }) });
    /* Another model: the prediction at once, and what explains it when it is computed. */
    document.addEventListener("tn-model", () => {
        if (length) answer(showNext);
        showParts();
        if (spoke) showVectors();
        if (length) later();
    });
    box.append(text, typed.element, status,
        tn.h("div", { class: "two terms" }, tn.h("div", {}, parts, restoring()), scores), patterns.element, vectors,
        steering.element, paths);
    read();
    steering.begin(token);
    showParts();
};

/* ---- two models on one input: a picture, or a text, and what each makes of it */
/* Each in its colour. */
tn.besides = (models, each) => tn.h("div", { class: "two even" }, models.map(({ name }, i) => tn.h("div", { class: "of-two",
    style: `--own: var(--series-${i + 1})` },
    tn.h("h4", {}, tn.h("span", { class: "key", style: `--ink: var(--series-${i + 1})` }, tn.token(name))), each[i])));
/* A mark for what only one of the two has among its likeliest. */
tn.onlyHere = only => only ? tn.h("span", { class: "only", text: "only here" }) : null;
/* What is ablated has the model in its key. */
const whose = ["first", "other"];
const twoImages = (calls, models, box) => {
    const eigen = (tn.page.sections || []).filter(section => section.type === "eigen");
    const { classes, pixels, known } = calls.map((call, i) => opened(call, models[i], eigen[i]))[0];
    const { width, height } = tn.page.pixels, names = tn.names("outputs", classes);
    const places = calls.map(() => tn.h("div", { class: "answer-of" })), status = tn.h("output", { class: "status" });
    const answer = answering(status);
    let chosen = 0;
    const show = picture => {
        const logits = calls.map(call => call("live_see", picture).numbers);
        if (picture.length) { chosen = tn.best(logits[0]); follow(chosen); }
        logits.forEach((of, i) => {
            const chances = tn.softmax(of), { count, numbers } = calls[i]("live_spoke", chosen);
            const gone = k => tn.gone.has(key(i, chosen, k));
            const spoke = Array.from({ length: count }, (_, k) => ({ k, value: numbers[2 * k], part: numbers[2 * k + 1] }))
                .sort((a, b) => Math.abs(b.part) - Math.abs(a.part)).slice(0, 6);
            places[i].replaceChildren(tn.bars(chances.map((value, c) => ({ value, text: tn.chance(value),
                class: c === tn.best(chances) ? "best" : "", note: tn.logit(of[c]),
                label: tn.h("button", { type: "button", class: "plain", "aria-pressed": c === chosen, onclick: () =>
                    choose(c) },
                    tn.token(names[c])) })), { head: ["output", "", "probability", "logit"] }),
                tn.h("h4", {}, "Eigenvectors that contribute most to ", tn.token(names[chosen]), toAblate()),
                tn.bars(spoke.map(({ k, value, part }) => ({ value: gone(k) ? 0 : part, class: gone(k) ? "gone" : "",
                    label: ablation(gone(k), `eigenvector ${k}`, () => answer(() => ablate(i, chosen, k)),
                        { class: "plain spoke ablate" }, tn.picture(calls[i]("live_picture", chosen, k).numbers, width, height),
                        tn.h("span", {}, tn.number(value, 3))) })), { head: ["eigenvalue", "", "contribution"] }));
        });
    };
    const nothingNew = new Float32Array(0), again = () => answer(() => show(nothingNew));
    const choose = c => { chosen = c; again(); follow(c); };
    const follow = tn.follow("output", names, { get value() { return chosen; }, show(c) { chosen = c; } }, again);
    const key = (i, c, k) => `${whose[i]} eigenvector ${c} ${k}`;
    const ablate = (i, c, k) => tn.ablate(key(i, c, k), [`eigenvector ${k} of `, tn.token(names[c]), " in ",
        tn.token(models[i].name)], off => calls[i]("live_ablate", c, k, off ? 1 : 0));
    tn.keepAblations(name => {
        const [, i, c, k] = name.match(/^(first|other) eigenvector (\d{1,6}) (\d{1,6})$/) || [];
        if (!i || !(c < classes) || k >= calls[whose.indexOf(i)]("live_spoke", Number(c)).count) return false;
        if (!tn.gone.has(name)) ablate(whose.indexOf(i), Number(c), Number(k));
        return true;
    });
    document.addEventListener("tn-model", again);
    const pad = tn.pad(width, height, values => answer(() => show(values)));
    box.append(tn.h("div", { class: "beside-pad" }, pad.element, status), tn.besides(models, places));
    const first = beginning(calls[0], known, pixels);
    if (first) pad.set(first.picture); else again();
};
const twoTexts = (calls, models, box) => {
    const files = models.map(one => [tn.array(one.weights), one.config, one.tokenizer || ""]);
    const opened = calls.map((call, i) => call("live_language", ...files[i])), shapes = opened.map(({ numbers: [, layers,
        heads] }) => ({ layers, heads }));
    const marks = models.map(one => ["live_marks", one.marks === false ? 0 : 1]);
    calls.forEach((call, i) => call(...marks[i]));
    const asks = calls.map((call, i) => tn.aside(tn.bytes("tn-wasm"), call, ["live_language", ...files[i]]));
    const names = (tn.page.names || {}).tokens || opened[0].words, places = calls.map(() => tn.h("div", { class: "answer-of" }));
    const parts = calls.map(() => tn.h("div", {})), values = calls.map(() => new Map()), logits = [];
    const status = tn.h("output", { class: "status" }), answer = answering(status), tokens = tn.h("p", { class: "words" });
    let length = 0, token = -1, chosen = false, waiting = 0, turn = 0;
    /* Parts that are ablated: of a model, its block and its head, or after its heads its MLP. */
    const partOf = name => {
        const [, i, block, head] = name.match(/^(first|other) blocks\.(\d{1,6})\.(?:attn\.(\d{1,6})|mlp)$/) || [];
        const at = whose.indexOf(i), { layers, heads } = shapes[at] || {};
        return at >= 0 && block < layers && !(head >= heads) && [at, Number(block), head === undefined ? heads : Number(head)];
    };
    const goneOf = i => [...tn.gone.keys()].filter(name => name.startsWith(whose[i] + " ")).map(partOf)
        .map(([, block, head]) => ["live_ablate", block, head, 1]);
    const wholly = (i, question) => ofWhole(calls[i], goneOf(i), question);
    /* The likeliest tokens of both, on one scale. */
    const showNext = () => {
        const all = calls.map((call, i) => {
            const { count, numbers } = call("live_next"), chances = numbers.subarray(count);
            return { numbers, chances, before: goneOf(i).length && wholly(i, whole => whole("live_next")).numbers.subarray(count),
                order: Array.from({ length: count }, (_, id) => id).sort((a, b) => chances[b] - chances[a]).slice(0, 8) };
        });
        const limit = Math.max(...all.map(({ chances, order }) => chances[order[0]]));
        if (!chosen) token = all[0].order[0];
        all.forEach(({ numbers, chances, before, order }, i) => {
            const row = (id, k) => ({ value: chances[id], text: tn.chance(chances[id]), class: k ? "" : "best",
                label: tn.h("span", {}, tn.h("button", { type: "button", class: "plain", "aria-pressed": id === token,
                    title: "explain this token", onclick: () => explain(id) }, tn.token(names[id])),
                    tn.onlyHere(!all[1 - i].order.includes(id))),
                notes: [tn.logit(numbers[id]), ...(before ? [tn.number(before[id], 3, tn.chance(before[id]))] : [])] });
            logits[i] = numbers[token];
            places[i].replaceChildren(tn.bars(order.map(row), { limit,
                head: ["next token", "", "probability", "logit", ...(before ? ["was"] : [])] }));
        });
    };
    const showParts = () => parts.forEach((place, i) => place.replaceChildren(tn.h("h4", {}, "The logit of ",
        tn.token(names[token], { class: "token piece" }), " as a sum over the parts", toAblate()),
        termsTable({ ...shapes[i], values: values[i], limit: Math.max(...values.map(largestTerm)), of: whose[i] + " ",
            logit: logits[i],
            take: (block, head) => answer(() => ablate(i, block, head)) })));
    /* What explains the token is computed beside the page, when the typing pauses. */
    const later = () => {
        const mine = ++turn, asked = token, now = text.value;
        parts.forEach(place => place.classList.add("old"));
        clearTimeout(waiting);
        waiting = setTimeout(() => asks.forEach(async (ask, i) => {
            await ask.ready;
            const found = mine === turn && await ask(marks[i], ["live_restore"], ...goneOf(i), ["live_text", now],
                ["live_parts", asked]).catch(() => ({ words: [], numbers: [] }));
            if (mine !== turn) return;
            values[i] = new Map(found.words.map((name, k) => [name, found.numbers[k]]));
            showParts();
            parts[i].classList.remove("old");
        }), 150);
    };
    const show = () => { showNext(); showParts(); later(); };
    const explain = id => { chosen = true; token = id; answer(show); };
    const ablate = (i, block, head) => {
        const focus = document.activeElement && document.activeElement.dataset.part, { heads } = shapes[i];
        tn.ablate(`${whose[i]} blocks.${block}.` + (head < heads ? `attn.${head}` : "mlp"), [head < heads
            ? `head ${head} of block ${block} in ` : `the MLP of block ${block} in `, tn.token(models[i].name)],
            off => calls[i]("live_ablate", block, head, off ? 1 : 0));
        if (focus) box.querySelector(`[data-part="${focus}"]`).focus();
    };
    const told = tn.keep("text", (value = beginning) => { text.value = value; read(); });
    tn.keepAblations(name => {
        const part = partOf(name);
        if (part && !tn.gone.has(name)) ablate(...part);
        return part !== false;
    });
    const read = () => answer(() => {
        const ids = calls.map(call => call("live_text", text.value).numbers);
        told(text.value === beginning ? null : text.value);
        tokens.replaceChildren(...Array.from(ids[0], id => tn.token(names[id], { class: "token piece" })));
        length = Math.min(...ids.map(one => one.length));
        chosen = false;
        if (length) show();
        else { turn++; for (const place of [...places, ...parts]) place.replaceChildren(); }
    });
    const text = tn.h("textarea", { id: "live-text", class: "no-print", rows: 2, spellcheck: "false", dir: "auto",
        "aria-label": "text", oninput: read });
    const beginning = text.value = models[0].prompt || "Once upon a time";
    document.addEventListener("tn-model", () => { if (length) answer(show); });
    /* Eigenvalues of both models for the logit of a token, in nats, where both have that block. */
    tn.spectraOfTwo = (block, token, units) => calls.map((_, i) => wholly(i, call => {
        const { count, numbers } = call("live_vectors", block, token), each = 7;
        return Float64Array.from({ length: count }, (_, k) => numbers[each * k] * units[i]);
    }));
    box.append(text, tokens, status, tn.besides(models, places.map((place, i) => tn.h("div", {}, parts[i], place))),
        restoring());
    read();
};

/* The live part of a page: page.live says which kind, and where its files are. */
tn.live = (live, box) => {
    const waiting = tn.h("p", { class: "soft", text: "Loading the library …" }), engine = () => tn.engine(tn.bytes("tn-wasm"));
    box.append(waiting);
    Promise.all(live.models ? live.models.map(engine) : [engine()]).then(calls => {
        waiting.remove();
        if (live.models) (live.kind === "two texts" ? twoTexts : twoImages)(calls, live.models, box);
        else (live.kind === "language" ? language : images)(calls[0], live, box);
    }).catch(error => {
        console.error(error);
        waiting.replaceWith(tn.h("p", { class: "alarm", role: "alert" }, "The live part cannot run: ",
            tn.h("bdi", { text: error.message })));
    }).finally(() => document.dispatchEvent(new Event("tn-live")));
};
