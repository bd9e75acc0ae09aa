/* live_images.js - an image classifier in the page, or two of them: a field to draw in, the scores of its classes, and what the
   eigenvectors of one contribute. The shared parts are in live.js. */

/* ---- a field to draw in, [height, width] numbers from 0 to 1: with a pointer, or with arrow keys and the space bar. */
tn.pad = (width, height, onchange) => {
    const values = new Float32Array(width * height), radius = Math.max(0.55, width / 20);
    const pen = { x: width >> 1, y: height >> 1 };
    const canvas = tn.h("canvas", { class: "picture", width, height }), mark = tn.h("span", { class: "pen" });
    const field = tn.h("div", { class: "pad", tabindex: 0, role: "application", style: `--across: ${width}; --down: ${height}`,
        "aria-label": `a field of ${width} by ${height} pixels: arrow keys move the pen, space draws, backspace rubs out` },
        canvas, mark);
    canvas.paint = () => tn.putPixels(canvas, values, width, height, 1, true);
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
    return { element: tn.h("div", { class: "drawing" }, field, tn.colourKey("0", "1", true), clear,
                 tn.h("span", { class: "hint" }, "Draw with the pointer; the right button erases. With keys: arrows move the pen, " +
                     "Shift and an arrow draws a line, space draws a dot, Backspace erases one.")),
             values: () => values, empty: () => !values.some(v => v > 0), set };
};

/* ---- images: the classes, and for one of them the contributions of its eigenvectors */
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
/* A picture to begin with: of the data; or what the model itself looks for, the pixels of one sign of the eigenvector with the
   largest eigenvalue of the class that is surest of its own. of: the name of one of two models. */
const beginning = (call, known, pixels, of) => {
    const example = (tn.page.sections || []).flatMap(section => section.type === "spoke" ? section.examples : [])[0];
    if (example) return { picture: tn.array(example.input).slice(0, pixels), words: [`This is picture ${example.name} of the data`,
        example.label === undefined ? "" : [", labelled ", tn.token(example.label)], "."] };
    let best = null;
    (known ? known.outputs : []).forEach((output, c) => {
        const one = tn.eigenvectors(output).filter(({ value, vector }) => vector && value > 0).sort((a, b) =>
            b.value - a.value)[0];
        for (const sign of one ? [1, -1] : []) {
            const most = one.vector.reduce((a, v) => Math.max(a, sign * v), 0) || 1;
            const picture = Float32Array.from(one.vector, v => Math.max(0, sign * v / most));
            const chance = tn.softmax(call("live_see", picture).numbers)[c];
            if (!best || chance > best.chance) best = { picture, chance, c,
                words: ["This is an artificial input, not a real picture: the " + (sign > 0 ? "positive" : "negative")
                    + " pixels of the eigenvector with the largest eigenvalue of ", tn.token(output.name), of ? [" in ",
                    tn.token(of)] : "", ". So that eigenvector matches it well."] };
        }
    });
    return best;
};
/* A field to draw in, and below it whose picture it begins with. */
const fieldOf = (width, height, see) => {
    const origin = tn.h("p", { class: "soft small", hidden: true });
    const pad = tn.pad(width, height, values => { origin.hidden = true; see(values); });
    return { element: pad.element, origin, begin({ picture, words }) {
        pad.set(picture);
        origin.replaceChildren(...words.flat(), tn.h("span", { class: "no-print", text: " Draw over it, or clear it." }));
        origin.hidden = false;
    } };
};
const aboutScores = "A score is a logit: e to the power of it, divided by the sum of this over all outputs, is the probability.";
const aboutContributions = () => tn.h("p", { class: "soft small" }, "An eigenvector contributes its eigenvalue times the square of "
    + "its match with the picture; together they are the score.", tn.h("span", { class: "no-print", text: " Click on one to ablate it: to leave it out of the "
        + "model, and to see what changes." }));
/* What the eigenvectors of a class contribute to its score, the largest first, and the sum so far. rows {value, part, label} */
const contributions = (name, rows, rest, about) => {
    const others = (tn.page.sections || []).some(section => section.id === "linear") ? "all the others, and the linear part"
        : "all the others";
    let sum = 0;
    const some = [...rows, { label: others, part: rest, class: "rest" }].map(({ part, ...row }) => ({ ...row, value: part,
        text: tn.fixed(part), notes: [tn.number(sum += part, 4, tn.fixed(sum))] }));
    return [tn.h("h4", {}, "Contributions to the score of ", name), about || "", tn.h("div", { class: "scroll contributions" },
        tn.bars(some, { both: true, head: ["eigenvalue", "", "contribution", "sum"] }))];
};

tn.liveImages = (call, live, box) => {
    const section = (tn.page.sections || []).find(one => one.type === "eigen");
    const { classes, pixels, known } = opened(call, live, section);
    const { width, height } = tn.page.pixels || { width: Math.sqrt(pixels), height: Math.sqrt(pixels) };
    const names = tn.names("outputs", classes), key = k => tn.partKey(chosen, k), pictures = new Map();
    let chosen = 0, before = null;
    const scores = tn.h("div", { id: "live-scores" }), spoke = tn.h("div", { id: "live-spoke" });
    const status = tn.h("output", { class: "status" }), answer = tn.answering(status);
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
        scores.replaceChildren(tn.h("h4", { text: "Prediction" }), tn.h("p", { class: "soft small", text: aboutScores }),
            tn.bars(now.map(row), { head: ["output", "", "probability", "score", ...(was ? ["was"] : [])] }));
    };
    const showSpoke = () => {
        const { count, numbers } = call("live_spoke", chosen), gone = k => tn.gone.has(key(k));
        const all = Array.from({ length: count }, (_, k) => ({ k, value: numbers[2 * k], part: gone(k) ? 0 : numbers[2 * k + 1],
            size: Math.abs(numbers[2 * k + 1]) }));
        const row = ({ k, value, part }) => ({ part, class: gone(k) ? "gone" : "",
            label: tn.ablation(gone(k), `eigenvector ${k}`, () => ablate(k), { class: "plain spoke ablate", "data-k": k },
                tn.picture(pictureOf(k), width, height),
                tn.h("span", {}, tn.number(value, 3, tn.figures(value, 3)), known && tn.isWithin(known.outputs[chosen], value)
                    ? tn.h("i", { class: "soft", text: " within the null" }) : null)) });
        const rows = all.sort((a, b) => b.size - a.size).slice(0, 10).map(row);
        const more = all.slice(10).reduce((sum, one) => sum + one.part, numbers[2 * count]);
        spoke.replaceChildren(...contributions(tn.token(names[chosen]), rows, more, aboutContributions()));
    };
    const logitsOf = picture => call("live_see", picture).numbers, nothingNew = new Float32Array(0);
    /* What the whole model says of the same picture. */
    const whole = () => {
        const gone = [...tn.gone.keys()].map(name => ["live_ablate", ...name.split(" ").slice(1).map(Number), 1]);
        return tn.askWhole(call, gone, () => tn.softmax(logitsOf(nothingNew)));
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
    const field = fieldOf(width, height, see), first = beginning(call, known, pixels);
    document.addEventListener("tn-model", again);
    box.append(tn.h("div", { class: "two" }, tn.h("div", {}, field.element, field.origin, scores, status),
        tn.h("div", {}, spoke, tn.restoring())));
    if (first) field.begin(first); else again();
};

/* ---- two models on one picture */
tn.twoImages = (calls, models, box) => {
    const eigen = (tn.page.sections || []).filter(section => section.type === "eigen");
    const { classes, pixels, known } = calls.map((call, i) => opened(call, models[i], eigen[i]))[0];
    const { width, height } = tn.page.pixels, names = tn.names("outputs", classes);
    const places = calls.map(() => tn.h("div", { class: "answer-of" })), status = tn.h("output", { class: "status" });
    const answer = tn.answering(status);
    let chosen = 0;
    const show = picture => {
        const logits = calls.map(call => call("live_see", picture).numbers);
        if (picture.length) { chosen = tn.best(logits[0]); follow(chosen); }
        logits.forEach((of, i) => {
            const chances = tn.softmax(of), { count, numbers } = calls[i]("live_spoke", chosen);
            const gone = k => tn.gone.has(key(i, chosen, k));
            const all = Array.from({ length: count }, (_, k) => ({ k, value: numbers[2 * k], part: numbers[2 * k + 1] }))
                .sort((a, b) => Math.abs(b.part) - Math.abs(a.part));
            const more = all.slice(6).reduce((sum, { k, part }) => sum + (gone(k) ? 0 : part), numbers[2 * count]);
            places[i].replaceChildren(tn.bars(chances.map((value, c) => ({ value, text: tn.chance(value),
                class: c === tn.best(chances) ? "best" : "", note: tn.logit(of[c]),
                label: tn.h("button", { type: "button", class: "plain", "aria-pressed": c === chosen, onclick: () =>
                    choose(c) },
                    tn.token(names[c])) })), { head: ["output", "", "probability", "score"] }),
                ...contributions(tn.token(names[chosen]), all.slice(0, 6).map(({ k, value, part }) => ({ part: gone(k) ? 0 : part,
                    class: gone(k) ? "gone" : "",
                    label: tn.ablation(gone(k), `eigenvector ${k}`, () => answer(() => ablate(i, chosen, k)),
                        { class: "plain spoke ablate" }, tn.picture(calls[i]("live_picture", chosen, k).numbers, width, height),
                        tn.h("span", {}, tn.number(value, 3, tn.figures(value, 3)))) })), more));
        });
    };
    const nothingNew = new Float32Array(0), again = () => answer(() => show(nothingNew));
    const choose = c => { chosen = c; again(); follow(c); };
    const follow = tn.follow("output", names, { get value() { return chosen; }, show(c) { chosen = c; } }, again);
    const key = (i, c, k) => `${tn.whose[i]} eigenvector ${c} ${k}`;
    const ablate = (i, c, k) => tn.ablate(key(i, c, k), [`eigenvector ${k} of `, tn.token(names[c]), " in ",
        tn.token(models[i].name)], off => calls[i]("live_ablate", c, k, off ? 1 : 0));
    tn.keepAblations(name => {
        const [, i, c, k] = name.match(/^(first|other) eigenvector (\d{1,6}) (\d{1,6})$/) || [];
        if (!i || !(c < classes) || k >= calls[tn.whose.indexOf(i)]("live_spoke", Number(c)).count) return false;
        if (!tn.gone.has(name)) ablate(tn.whose.indexOf(i), Number(c), Number(k));
        return true;
    });
    document.addEventListener("tn-model", again);
    const field = fieldOf(width, height, values => answer(() => show(values)));
    const first = beginning(calls[0], known, pixels, models[0].name);
    box.append(tn.h("div", { class: "beside-pad" }, field.element, tn.h("div", {}, field.origin, tn.h("p", { class: "soft small",
        text: aboutScores }), aboutContributions())), tn.besides(models, places), status);
    if (first) field.begin(first); else again();
};
