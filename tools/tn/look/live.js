/* live.js - the model itself in the page: draw or type, see what it predicts and why, ablate and see what changes. Its
   functions are those of live.c; what they answer is shown as it is, with the time that it took. */

/* ---- a field to draw in, [height, width] numbers from 0 to 1: with a pointer, or with arrow keys and the space bar. */
tn.pad = (width, height, onchange) => {
    const values = new Float32Array(width * height), radius = Math.max(0.55, width / 20), pen = { x: width >> 1, y: height >> 1 };
    const canvas = tn.h("canvas", { class: "picture", width, height }), mark = tn.h("span", { class: "pen" });
    const field = tn.h("div", { class: "pad", tabindex: 0, role: "application", style: `--across: ${width}; --down: ${height}`,
        "aria-label": `a field of ${width} by ${height} pixels: arrow keys move the pen, space draws, backspace rubs out` }, canvas, mark);
    const show = () => {
        canvas.getContext("2d").putImageData(new ImageData(tn.paint(values, 1, true), width, height), 0, 0);
        mark.style.left = 100 * pen.x / width + "%";
        mark.style.top = 100 * pen.y / height + "%";
    };
    /* A round, soft nib around (x, y), in pixels. */
    const dab = (x, y, ink) => {
        for (let v = 0; v < height; v++) for (let u = 0; u < width; u++) {
            const strength = Math.max(0, Math.min(1, radius + 0.5 - Math.hypot(u + 0.5 - x, v + 0.5 - y))), i = v * width + u;
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
        for (let i = 1; i <= parts; i++) dab(from.x + (to.x - from.x) * i / parts, from.y + (to.y - from.y) * i / parts, event.buttons !== 2);
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
    const clear = tn.h("button", { type: "button", class: "clear", text: "clear", onclick: () => { values.fill(0); changed(); } });
    show();
    return { element: tn.h("div", { class: "drawing" }, field, clear, tn.h("span", { class: "hint" }, "draw with the pointer, or with arrows and space (shift draws along)")),
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
const change = (now, before) => Math.abs(now - before) < 5e-7 ? "" : tn.h("span", { class: "soft small" }, " was ", tn.number(before, 3));

/* ---- images: the classes, and for one of them the eigenvectors that spoke */
const images = (call, live, box) => {
    const [classes, pixels] = call("live_images", tn.array(live.weights)).numbers;
    const { width, height } = tn.page.pixels || { width: Math.sqrt(pixels), height: Math.sqrt(pixels) };
    const names = tn.names("outputs", classes), gone = new Set(), key = k => chosen + " " + k, pictures = new Map();
    let chosen = 0, before = null;
    const scores = tn.h("div", { id: "live-scores" }), spoke = tn.h("div", { id: "live-spoke" }), status = tn.h("output", { class: "status" });
    const answer = answering(status);
    /* The page has eigenvectors already; those of a class that it lacks are computed when they are first shown. */
    const known = (tn.page.sections || []).find(section => section.type === "eigen" && section.outputs.length === classes);
    for (let c = 0; known && c < classes; c++) {
        const pairs = tn.eigenvectors(known.outputs[c]).filter(one => one.vector && one.vector.length === pixels).slice(0, 64);
        if (pairs.length) call("live_pairs", c, Float32Array.from(pairs, one => one.value), Float32Array.from(pairs.flatMap(one => [...one.vector])));
    }
    const pictureOf = k => {
        if (!pictures.has(key(k))) pictures.set(key(k), call("live_picture", chosen, k).numbers);
        return pictures.get(key(k));
    };
    const showScores = logits => {
        const now = tn.softmax(logits), best = tn.best(now);
        scores.replaceChildren(tn.h("h4", { text: "Prediction" }), tn.bars(now.map((value, c) => ({ value, class: c === best ? "best" : "",
            label: tn.h("button", { type: "button", class: "plain", "aria-pressed": c === chosen, onclick: () => choose(c) }, tn.token(names[c])),
            note: [tn.number(logits[c], 4), gone.size ? change(now[c], before[c]) : ""] })), { head: ["output", "", "probability", "logit"] }));
    };
    const showSpoke = () => {
        const { count, numbers } = call("live_spoke", chosen);
        const rows = Array.from({ length: count }, (_, k) => ({ k, value: numbers[2 * k], part: numbers[2 * k + 1] })).sort((a, b) => Math.abs(b.part) - Math.abs(a.part)).slice(0, 10);
        spoke.replaceChildren(tn.h("h4", {}, "Eigenvectors that spoke for ", tn.token(names[chosen])), tn.bars([...rows.map(({ k, value, part }) => ({ value: part, class: gone.has(key(k)) ? "gone" : "",
            label: tn.h("button", { type: "button", class: "plain spoke ablate", "aria-pressed": gone.has(key(k)), "aria-label": `ablate eigenvector ${k}`, title: "ablate, or restore", onclick: () => ablate(k) },
                tn.picture(pictureOf(k), width, height), tn.h("span", {}, gone.has(key(k)) ? "ablated " : "", tn.number(value, 3))) })),
            { label: "all the others", value: numbers[2 * count], class: "rest" }], { head: ["eigenvector, eigenvalue", "", "contribution"] }));
    };
    const see = picture => answer(() => {
        const logits = call("live_see", picture).numbers;
        if (!gone.size) before = tn.softmax(logits);
        if (picture.length && !gone.size) chosen = tn.best(logits);
        showScores(logits);
        showSpoke();
    });
    const again = () => see(new Float32Array(0));
    const choose = c => { chosen = c; again(); };
    const ablate = k => {
        if (!gone.delete(key(k))) gone.add(key(k));
        call("live_ablate", chosen, k, gone.has(key(k)) ? 1 : 0);
        again();
        const button = spoke.querySelector(`[aria-label="ablate eigenvector ${k}"]`);
        if (button) button.focus();
    };
    const pad = tn.pad(width, height, values => see(values));
    const restore = tn.h("button", { type: "button", text: "restore all", onclick: () => {
        for (const one of gone) call("live_ablate", ...one.split(" ").map(Number), 0);
        gone.clear();
        again();
    } });
    const example = (tn.page.sections || []).flatMap(section => section.type === "spoke" ? section.examples : [])[0];
    box.append(tn.h("div", { class: "two" }, tn.h("div", {}, pad.element, scores), tn.h("div", {}, spoke, tn.h("div", { class: "tools" }, restore))), status);
    if (example) pad.set(tn.array(example.input).slice(0, pixels));
    else again();
};

/* ---- language: the next token, the heads that wrote it, paths; a click on a head takes it out */
const language = (call, live, box) => {
    const model = call("live_language", tn.array(live.weights), live.config, live.tokenizer || ""), [, layers, heads] = model.numbers;
    const names = (tn.page.names || {}).tokens || model.words, gone = new Set(), status = tn.h("output", { class: "status" });
    const answer = answering(status);
    let token = -1, best = 0, before = null, waiting = 0;
    const tokens = tn.h("p", { class: "words", id: "live-tokens", "aria-label": "the tokens of the text" }), scores = tn.h("div", { id: "live-scores" });
    const parts = tn.h("div", { id: "live-parts" }), paths = tn.h("div", { id: "live-paths" });
    const text = tn.h("textarea", { id: "live-text", rows: 3, spellcheck: "false", dir: "auto", "aria-label": "text", oninput: () => { token = -1; read(); } });
    text.value = live.prompt || "Once upon a time";

    const showNext = () => {
        const { count, numbers } = call("live_next"), chances = numbers.subarray(count), order = Array.from({ length: count }, (_, i) => i).sort((a, b) => chances[b] - chances[a]).slice(0, 8);
        best = order[0];
        if (!gone.size) before = numbers.slice();
        if (token < 0) token = best;
        scores.replaceChildren(tn.h("h4", { text: "Next token" }), tn.bars(order.map(id => ({ value: chances[id], class: id === token ? "best" : "",
            label: tn.h("button", { type: "button", class: "plain", "aria-pressed": id === token, title: "explain this token", onclick: () => { token = id; ask(); } }, tn.token(names[id])),
            note: [tn.number(numbers[id], 4), gone.size && before ? change(chances[id], before[count + id]) : ""] })), { head: ["token", "", "probability", "logit"] }));
    };
    const partOf = (block, head) => head < heads ? `blocks.${block}.attn.${head}` : `blocks.${block}.mlp`;
    const showParts = () => {
        let values = new Map(), why = "";
        try {
            const { words, numbers } = call("live_parts", token);
            values = new Map(words.map((name, i) => [name, numbers[i]]));
        } catch (error) { why = error.message; }
        const limit = Math.max(1e-9, ...[...values.values()].map(Math.abs));
        const cell = (block, head) => {
            const name = partOf(block, head), value = values.get(name), off = gone.has(name), colour = tn.colour((value || 0) / limit);
            const dark = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] < 140;
            return tn.h("td", {}, tn.h("button", { type: "button", class: "part ablate" + (off ? " gone" : ""), "data-part": name, "aria-pressed": off, title: off ? "restore" : "ablate",
                style: off ? null : `background: ${tn.css(colour)}; color: ${dark ? "#fff" : "#1c1e22"}`, "aria-label": `${off ? "restore" : "ablate"} ${name}`,
                "data-value": value === undefined ? null : String(value), onclick: () => ablate(block, head) }, off ? "ablated" : value === undefined ? "·" : tn.signed(Number(value.toPrecision(3)))));
        };
        parts.replaceChildren(tn.h("h4", {}, "What heads and MLPs add to the logit of ", tn.token(names[token]), " · click to ablate"),
            tn.h("div", { class: "scroll" }, tn.h("table", { class: "parts" }, tn.h("thead", {}, tn.h("tr", {}, tn.h("td"), Array.from({ length: heads }, (_, h) => tn.h("th", { scope: "col", text: "head " + h })), tn.h("th", { scope: "col", text: "MLP" }))),
                tn.h("tbody", {}, Array.from({ length: layers }, (_, block) => tn.h("tr", {}, tn.h("th", { scope: "row", text: "block " + block }), Array.from({ length: heads + 1 }, (_, head) => cell(block, head))))))),
            why ? tn.h("p", { class: "soft small" }, "These parts cannot be told apart in this model: ", tn.h("bdi", { text: why })) : "");
    };
    const showPaths = () => {
        try {
            const { count, numbers, words } = call("live_paths", token, 400, 8);
            paths.replaceChildren(tn.h("h4", {}, "Paths that add most to it"), tn.bars([...Array.from({ length: count }, (_, i) => ({ label: words[i].replace(/E\[(\d+)\]/g, (_, id) => `E[${tn.plain(names[id])}]`), value: numbers[3 + i] })),
                { label: "all other paths", value: numbers[0] - numbers.slice(3).reduce((a, b) => a + b, 0), class: "rest" }]),
                tn.h("p", { class: "total" }, "logit ", tn.number(numbers[0], 5)));
        } catch (error) {
            paths.replaceChildren(tn.h("p", { class: "soft small" }, "This model has no paths here: ", tn.h("bdi", { text: error.message })));
        }
    };
    /* The prediction answers a key press; its parts follow in a task of their own, and paths when the typing pauses. */
    const later = () => {
        clearTimeout(waiting);
        for (const box of [parts, paths]) box.classList.add("old");
        waiting = setTimeout(() => {
            showParts();
            parts.classList.remove("old");
            waiting = setTimeout(() => { showPaths(); paths.classList.remove("old"); }, 200);
        }, 30);
    };
    const ask = () => { answer(showNext); later(); };
    const read = () => {
        answer(() => {
            const ids = call("live_text", text.value).numbers;
            tokens.replaceChildren(...Array.from(ids, id => tn.token(names[id], { class: "token piece" })));
            if (!ids.length) throw new Error("type something: the text has no tokens");
            showNext();
        });
        if (tokens.childElementCount) later();
    };
    const ablate = (block, head) => {
        const name = partOf(block, head);
        if (!gone.delete(name)) gone.add(name);
        call("live_ablate", block, head, gone.has(name) ? 1 : 0);
        answer(showNext);
        showParts();
        parts.querySelector(`[data-part="${name}"]`).focus();
    };
    const restore = tn.h("button", { type: "button", text: "restore all", onclick: () => {
        for (let block = 0; block < layers; block++) for (let head = 0; head <= heads; head++) call("live_ablate", block, head, 0);
        gone.clear();
        ask();
    } });
    box.append(text, tokens, tn.h("div", { class: "two" }, scores, tn.h("div", {}, parts, tn.h("div", { class: "tools" }, restore))), paths, status);
    read();
};

/* The live part of a page: page.live says which kind, and where its files are. */
tn.live = (live, box) => {
    const waiting = tn.h("p", { class: "soft", text: "Loading the library …" });
    box.append(waiting);
    tn.engine(tn.bytes("tn-wasm")).then(call => {
        waiting.remove();
        (live.kind === "language" ? language : images)(call, live, box);
    }).catch(error => {
        console.error(error);
        waiting.replaceWith(tn.h("p", { class: "alarm", role: "alert" }, "The live part cannot run: ", tn.h("bdi", { text: error.message })));
    }).finally(() => document.dispatchEvent(new Event("tn-live")));
};
