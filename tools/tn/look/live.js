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
    const show = () => {
        canvas.getContext("2d").putImageData(new ImageData(tn.paint(values, 1, true), width, height), 0, 0);
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
tn.chance = x => x < 1e-4 ? "< 0.01 %" : x > 0.9995 ? "> 99.9 %" : (100 * x).toFixed(x < 0.1 ? 2 : 1) + " %";
const change = (now, before) => Math.abs(now - before) < 5e-7 ? "" : tn.h("span", { class: "soft small" }, " was ",
    tn.number(before, 3, tn.chance(before)));

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
/* A button that takes something out of the model, pressed while it is out. Its name says what, and then what the button shows;
   it stays the same, so that a screen reader does not say both "pressed" and "ablated". */
const ablation = (off, what, onclick, attributes, ...children) =>
    tn.h("button", { type: "button", "aria-pressed": off, title: off ? "restore" : "ablate", ...attributes, onclick },
        tn.h("span", { class: "spoken", text: `ablate ${what}: ` }),
        off ? tn.h("b", { "aria-hidden": true, text: "ablated " }) : "", ...children);
/* Takes something out, or puts it back; `gone` has what is out. question(1 or 0) may fail, and then nothing has changed. */
const toggle = (gone, name, question) => {
    const off = !gone.has(name);
    question(off ? 1 : 0);
    if (off) gone.add(name);
    else gone.delete(name);
};

/* ---- images: the classes, and for one of them the eigenvectors that spoke */
const images = (call, live, box) => {
    const [classes, pixels] = call("live_images", tn.array(live.weights)).numbers;
    const { width, height } = tn.page.pixels || { width: Math.sqrt(pixels), height: Math.sqrt(pixels) };
    const names = tn.names("outputs", classes), gone = new Set(), key = k => chosen + " " + k, pictures = new Map();
    let chosen = 0, before = null;
    const scores = tn.h("div", { id: "live-scores" }), spoke = tn.h("div", { id: "live-spoke" });
    const status = tn.h("output", { class: "status" }), answer = answering(status);
    /* The page has eigenvectors already; those of a class that it lacks are computed when they are first shown. */
    const known = (tn.page.sections || []).find(section => section.type === "eigen" && section.outputs.length === classes);
    for (let c = 0; known && c < classes; c++) {
        const all = tn.eigenvectors(known.outputs[c]), pairs = all.filter(one => one.vector && one.vector.length === pixels);
        const some = pairs.slice(0, 64), vectors = Float32Array.from(some.flatMap(one => [...one.vector]));
        if (some.length) call("live_pairs", c, Float32Array.from(some, one => one.value), vectors);
    }
    const pictureOf = k => {
        if (!pictures.has(key(k))) pictures.set(key(k), call("live_picture", chosen, k).numbers);
        return pictures.get(key(k));
    };
    const showScores = logits => {
        const now = tn.softmax(logits), best = tn.best(now);
        const row = (value, c) => ({ value, text: tn.chance(value), class: c === best ? "best" : "",
            label: tn.h("button", { type: "button", class: "plain", "aria-pressed": c === chosen, onclick: () => choose(c) },
                tn.token(names[c])),
            note: [tn.number(logits[c], 4), gone.size ? change(now[c], before[c]) : ""] });
        scores.replaceChildren(tn.h("h4", { text: "Prediction" }),
            tn.bars(now.map(row), { head: ["output", "", "probability", "logit"] }));
    };
    const showSpoke = () => {
        const { count, numbers } = call("live_spoke", chosen);
        const all = Array.from({ length: count }, (_, k) => ({ k, value: numbers[2 * k], part: numbers[2 * k + 1] }));
        const row = ({ k, value, part }) => ({ value: part, class: gone.has(key(k)) ? "gone" : "",
            label: ablation(gone.has(key(k)), `eigenvector ${k}`, () => ablate(k), { class: "plain spoke ablate", "data-k": k },
                tn.picture(pictureOf(k), width, height),
                tn.h("span", {}, tn.number(value, 3))) });
        const rows = all.sort((a, b) => Math.abs(b.part) - Math.abs(a.part)).slice(0, 10).map(row);
        const more = all.slice(10).reduce((sum, one) => sum + (gone.has(key(one.k)) ? 0 : one.part), numbers[2 * count]);
        spoke.replaceChildren(tn.h("h4", {}, "Eigenvectors that spoke for ", tn.token(names[chosen]), " · click to ablate"),
            tn.bars([...rows, { label: "all the others", value: more, class: "rest" }],
                { head: ["eigenvector, eigenvalue", "", "contribution"] }));
    };
    const show = picture => {
        const logits = call("live_see", picture).numbers;
        if (!gone.size) before = tn.softmax(logits);
        if (picture.length && !gone.size) chosen = tn.best(logits);
        showScores(logits);
        showSpoke();
    };
    const see = picture => answer(() => show(picture)), nothingNew = new Float32Array(0), again = () => see(nothingNew);
    const choose = c => { chosen = c; again(); };
    const ablate = k => {
        answer(() => {
            toggle(gone, key(k), off => call("live_ablate", chosen, k, off));
            show(nothingNew);
        });
        const button = spoke.querySelector(`[data-k="${k}"]`);
        if (button) button.focus();
    };
    const pad = tn.pad(width, height, values => see(values));
    const restore = tn.h("button", { type: "button", text: "restore all", onclick: () => {
        call("live_restore");
        gone.clear();
        again();
    } });
    const example = (tn.page.sections || []).flatMap(section => section.type === "spoke" ? section.examples : [])[0];
    box.append(tn.h("div", { class: "two" }, tn.h("div", {}, pad.element, status, scores),
        tn.h("div", {}, spoke, tn.h("div", { class: "tools" }, restore))));
    if (example) pad.set(tn.array(example.input).slice(0, pixels));
    else again();
};

/* ---- language: the next token, the heads and MLPs that wrote it, eigenvectors, paths; a click takes one out. What is typed is
   answered at once; what explains the answer is computed beside the page, when the typing pauses. */
const language = (call, live, box) => {
    const files = [tn.array(live.weights), live.config, live.tokenizer || ""];
    const model = call("live_language", ...files), [, layers, heads] = model.numbers;
    const ask = tn.aside(tn.bytes("tn-wasm"), call, ["live_language", ...files]);
    const names = (tn.page.names || {}).tokens || model.words, gone = new Set();
    const status = tn.h("output", { class: "status" }), answer = answering(status);
    let length = 0, token = -1, before = null, waiting = 0, turn = 0;
    let values = new Map(), why = "", block = 0, picked = false, spoke = null;
    let unfinished = false;                     /* whether all of an explanation is still asked for */
    const tokens = tn.h("p", { class: "words", id: "live-tokens", "aria-label": "the tokens of the text" });
    const scores = tn.h("div", { id: "live-scores" }), parts = tn.h("div", { id: "live-parts" });
    const vectors = tn.h("div", {}), paths = tn.h("div", { id: "live-paths" });
    const text = tn.h("textarea", { id: "live-text", rows: 3, spellcheck: "false", dir: "auto", "aria-label": "text",
        oninput: () => read() });
    text.value = live.prompt || "Once upon a time";

    const showNext = () => {
        const { count, numbers } = call("live_next"), chances = numbers.subarray(count);
        const order = Array.from({ length: count }, (_, i) => i).sort((a, b) => chances[b] - chances[a]).slice(0, 8);
        if (!gone.size) before = numbers.slice();
        if (token < 0) token = order[0];
        const row = id => ({ value: chances[id], text: tn.chance(chances[id]), class: id === token ? "best" : "",
            label: tn.h("button", { type: "button", class: "plain", "aria-pressed": id === token, title: "explain this token",
                onclick: () => { token = id; question(); } }, tn.token(names[id])),
            note: [tn.number(numbers[id], 4), gone.size && before ? change(chances[id], before[count + id]) : ""] });
        scores.replaceChildren(tn.h("h4", { text: "Next token" }),
            tn.bars(order.map(row), { head: ["token", "", "probability", "logit"] }));
    };

    const quoted = id => tn.token(names[id], { class: "token piece" });
    const partOf = (block, head) => head < heads ? `blocks.${block}.attn.${head}` : `blocks.${block}.mlp`;
    const showParts = () => {
        const limit = Math.max(1e-9, ...[...values.values()].map(Math.abs));
        const cell = (block, head) => {
            const name = partOf(block, head), value = values.get(name), off = gone.has(name);
            const attributes = { class: "part ablate" + (off ? " gone" : ""), "data-part": name,
                "data-value": value === undefined ? null : String(value), style: off ? null : tn.shade((value || 0) / limit) };
            return tn.h("td", {}, ablation(off, name, () => ablate(name, block, head), attributes,
                off ? "" : value === undefined ? "·" : tn.signed(Number(value.toPrecision(3)))));
        };
        const columns = [...Array.from({ length: heads }, (_, h) => "head " + h), "MLP"];
        parts.replaceChildren(
            tn.h("h4", {}, "What heads and MLPs add to the logit of ", quoted(token), " · click to ablate"),
            tn.h("div", { class: "scroll" }, tn.h("table", { class: "parts" },
                tn.h("thead", {}, tn.h("tr", {}, tn.h("td"), columns.map(text => tn.h("th", { scope: "col", text })))),
                tn.h("tbody", {}, Array.from({ length: layers }, (_, block) => tn.h("tr", {},
                    tn.h("th", { scope: "row", text: "block " + block }), columns.map((_, head) => cell(block, head))))))),
            why ? tn.h("p", { class: "soft small" }, "These parts cannot be told apart in this model: ",
                tn.h("bdi", { text: why })) : "");
    };

    /* What the eigenvectors of the token's matrix in the chosen block add; each is named by the tokens on the text's side. */
    const blocks = tn.picker("block", Array.from({ length: layers }, (_, i) => String(i)), i => {
        block = i;
        picked = true;
        explain(unfinished);
    });
    const vectorRows = tn.h("div", { id: "live-vectors" });
    const hidden = k => `vector ${spoke.block} ${spoke.token} ${k}`;
    const each = 7;                             /* numbers of an eigenvector, before all of their components */
    const showVectors = () => {
        const { count, numbers } = spoke.answer;
        const all = Array.from({ length: count }, (_, k) => ({ k, numbers: numbers.subarray(each * k, each * k + each) }));
        const some = all.sort((a, b) => Math.abs(b.numbers[2]) - Math.abs(a.numbers[2])).slice(0, 8);
        const row = ({ k, numbers: [value, activation, part, ...ids] }) => {
            const off = gone.has(hidden(k)), near = ids.filter(id => id >= 0).map(id => [tn.token(names[id]), " "]);
            return { value: part, class: off ? "gone" : "", notes: [tn.number(value, 3), tn.number(activation, 3)],
                label: ablation(off, `eigenvector ${k} of block ${spoke.block}`, () => hide(k),
                    { class: "plain ablate", "data-k": k }, near) };
        };
        const rest = some.reduce((sum, one) => sum - one.numbers[2], numbers[each * count]);
        const others = { label: "all the others", value: rest, class: "rest", notes: ["", ""] };
        vectorRows.replaceChildren(tn.h("div", { class: "scroll" }, tn.bars([...some.map(row), others],
            { head: ["nearest tokens", "", "contribution", "eigenvalue", "activation"] })),
            tn.h("p", { class: "total" }, "the MLP of this block adds ", tn.number(numbers[each * count], 5)));
    };

    const showPaths = ({ count, numbers, words }) => {
        const named = word => tn.path(word.replace(/E\[(\d+)\]/g, (_, id) => `E[${tn.plain(names[id])}]`));
        const rest = numbers.slice(3).reduce((sum, value) => sum - value, numbers[0]);
        paths.replaceChildren(tn.h("h4", {}, "Paths that add most to it"),
            tn.bars([...Array.from({ length: count }, (_, i) => ({ label: named(words[i]), value: numbers[3 + i] })),
                { label: "all other paths", value: rest, class: "rest" }]),
            tn.h("p", { class: "total" }, "logit ", tn.number(numbers[0], 5)));
    };

    /* Asks for all that explains `token` after the text. all: otherwise only for the eigenvectors. */
    const explain = async (all = true) => {
        if (!length) return;
        unfinished = all;
        const mine = ++turn, asked = token, once = question => ask(["live_text", text.value], question);
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
        await shown(vectors, () => ["live_vectors", block, asked], answer => {
            spoke = { answer, block, token: asked };
            title.replaceChildren("Eigenvectors that spoke for ", quoted(asked), " · click to ablate");
            showVectors();
        }, message => {
            spoke = null;
            vectorRows.replaceChildren(tn.h("p", { class: "soft small" }, "This block has no eigenvectors here: ",
                tn.h("bdi", { text: message })));
        });
        if (all) await shown(paths, () => ["live_paths", asked, 400, 8], showPaths, message => paths.replaceChildren(
            tn.h("p", { class: "soft small" }, "This model has no paths here: ", tn.h("bdi", { text: message }))));
        if (mine !== turn) return;
        unfinished = false;
        if (all) document.dispatchEvent(new Event("tn-explained"));
    };
    const title = tn.h("h4", { text: "Eigenvectors that spoke" });
    vectors.append(title, tn.h("div", { class: "tools" }, blocks.element), vectorRows);

    /* Marks what explains the answer as outdated, and drops answers that are still to come. */
    const outdate = () => {
        clearTimeout(waiting);
        turn++;
        unfinished = false;
        for (const one of [parts, vectors, paths]) one.classList.add("old");
    };
    const later = () => { outdate(); waiting = setTimeout(explain, 150); };
    const question = () => {
        if (!length) return;
        answer(showNext);
        later();
    };
    const read = () => {
        let ids = null;
        length = 0;
        if (gone.size) before = null;
        answer(() => {
            ids = call("live_text", text.value).numbers;
            tokens.replaceChildren(...Array.from(ids, id => tn.token(names[id], { class: "token piece" })));
            length = ids.length;
            if (!length) return;
            token = -1;
            showNext();
        });
        scores.classList.toggle("old", !length);
        if (length) later();
        else outdate();
        if (ids && !length) status.replaceChildren("type something: the text has no tokens");
    };
    const ablate = (name, block, head) => {
        if (!length) return;
        answer(() => {
            toggle(gone, name, off => call("live_ablate", block, head, off));
            showNext();
        });
        showParts();
        parts.querySelector(`[data-part="${name}"]`).focus();
    };
    const hide = k => {
        if (!length) return;
        const { answer: { count, numbers }, block, token } = spoke, n = (numbers.length - 1) / count - each;
        const from = each * count + 1 + k * n;
        answer(() => {
            toggle(gone, hidden(k), off =>
                call("live_hide", block, token, k, numbers.subarray(from, off ? from + n : from)));
            showNext();
        });
        showVectors();
        vectorRows.querySelector(`[data-k="${k}"]`).focus();
    };
    const restore = tn.h("button", { type: "button", text: "restore all", onclick: () => {
        call("live_restore");
        gone.clear();
        if (length) answer(showNext);
        showParts();
        if (spoke) showVectors();
    } });
    box.append(text, tokens, status,
        tn.h("div", { class: "two" }, scores, tn.h("div", {}, parts, tn.h("div", { class: "tools" }, restore))), vectors, paths);
    read();
    showParts();
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
        waiting.replaceWith(tn.h("p", { class: "alarm", role: "alert" }, "The live part cannot run: ",
            tn.h("bdi", { text: error.message })));
    }).finally(() => document.dispatchEvent(new Event("tn-live")));
};
