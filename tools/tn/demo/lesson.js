/* lesson.js - what both lessons share: the program in WebAssembly, run and pause, one step, reset, speed, learning rate, seed,
   what to look at in the present stage, and the curves of the loss. A lesson is paused until its reader runs it. It is
       { rate, rates, speed, piece, most,       of learning; steps per second; most steps of a call of train; steps in all
         curves, ylabel, stages, view, tools,   names; stages are { name, reached(state), text() }, the last one reached counts
         begin(call, seed), train(call, rate, steps) -> loss, losses(call, trained) -> a number for each curve,
         draw(call), says(losses) -> parts of the line below the buttons, state() -> what the stages ask for } */
const words = section => (section.paragraphs || []).map(text => tn.h("p", { class: "prose" }, tn.h("bdi", { text })));
tn.sections.words = (section, box) => box.append(...words(section));
tn.sections.links = (section, box) => box.append(tn.h("div", { class: "lessons" }, section.links.map(link =>
    tn.h("a", { class: "lesson", href: link.href }, tn.h("h3", { text: link.title }), tn.h("p", { text: link.text })))));

/* The sections of a lesson come before those that the page has already: the links. */
tn.teach = (...sections) => tn.page.sections.unshift(...sections);

/* Curves over the steps, thinned so that a long run has short ones. */
const history = count => {
    let apart = 1;
    const curve = { x: [], y: Array.from({ length: count }, () => []), add(step, losses) {
        if (step - curve.x[curve.x.length - 1] < apart) return;
        curve.x.push(step);
        losses.forEach((loss, i) => curve.y[i].push(loss));
        if (curve.x.length < 600) return;
        apart *= 2;
        const thin = list => list.filter((_, i) => i % 2 === 0);
        curve.x = thin(curve.x);
        curve.y = curve.y.map(thin);
    } };
    return curve;
};

/* The names of the stages, and what to look at in the present one. */
const guide = stages => {
    const names = stages.map(stage => tn.h("li", { text: stage.name }));
    const text = tn.h("p", { "aria-live": "polite", id: "look-at" });
    const show = state => {
        const at = stages.reduce((last, stage, i) => stage.reached(state) ? i : last, 0), say = stages[at].text();
        names.forEach((name, i) => i === at ? name.setAttribute("aria-current", "step") : name.removeAttribute("aria-current"));
        if (text.textContent !== say) text.textContent = say;
    };
    return { element: tn.h("div", { class: "look-at" }, tn.h("ol", { "aria-label": "stages" }, names), text), show };
};

const controls = (lesson, box, call) => {
    let running = false, step = 0, seed = 1, rate = lesson.rate, speed = lesson.speed, curve, losses, due = 0, before = 0;
    const status = tn.h("output", { class: "status", id: "status" }), look = guide(lesson.stages);
    const plot = tn.plot({ series: [], xlabel: "step", ylabel: lesson.ylabel, logY: true, least: 1e-14, height: 230,
        label: "the loss by step" });
    const show = () => {
        lesson.draw(call);
        plot.update({ series: lesson.curves.map((name, i) => ({ name, x: curve.x, y: curve.y[i] })) });
        status.replaceChildren("step ", tn.number(step), ...lesson.says(losses));
        look.show({ step, losses, ...lesson.state() });
    };
    /* Whether the numbers are still finite. */
    const learn = count => {
        for (let left = count; left > 0;) {
            const some = Math.min(left, lesson.piece);
            losses = lesson.losses(call, lesson.train(call, rate, some));
            left -= some;
            step += some;
            if (!losses.every(Number.isFinite)) {
                pause();
                status.textContent = `After step ${step} the numbers are no longer finite: the learning rate is too large. ` +
                    "Lower it, and reset.";
                return false;
            }
            curve.add(step, losses);
        }
        show();
        return true;
    };
    const play = tn.h("button", { type: "button", class: "play", id: "play", onclick: () => running ? pause() : start() });
    const name = () => {
        play.textContent = running ? "❚❚ pause" : "▶ run";
        status.setAttribute("aria-live", running ? "off" : "polite");       /* running, each step would be read out */
    };
    const pause = () => { running = false; name(); };
    const turn = now => {
        if (!running) return;
        due += Math.min(0.25, Math.max(0, now - before) / 1000) * speed;
        before = now;
        const count = Math.min(Math.floor(due), lesson.most - step);
        due -= Math.floor(due);
        if (count > 0 && !learn(count)) return;
        if (step >= lesson.most) pause();
        else requestAnimationFrame(turn);
    };
    const start = () => {
        running = true;
        due = 1;
        before = performance.now();
        name();
        requestAnimationFrame(turn);
    };
    const reset = () => {
        pause();
        step = 0;
        curve = history(lesson.curves.length);
        lesson.begin(call, seed);
        losses = lesson.losses(call, NaN);
        curve.add(0, losses);
        show();
    };
    const range = (id, label, options, onchange) => {
        const { element, input } = tn.slider(label, options, onchange);
        input.id = id;
        element.querySelector("label").htmlFor = id;
        return element;
    };
    const seeds = tn.h("input", { type: "number", id: "seed", min: 0, max: 9999, value: seed, oninput: event => {
        seed = Math.max(0, Math.min(9999, Math.floor(Number(event.target.value) || 0)));
        reset();
    } });
    name();
    box.append(tn.h("div", { class: "tools" }, play,
        tn.h("button", { type: "button", id: "step", text: "one step", onclick: () => { pause(); learn(1); } }),
        tn.h("button", { type: "button", id: "reset", text: "reset", onclick: reset }),
        range("speed", "speed", { min: 0, max: 8, value: Math.log2(speed), format: v => `${2 ** v} steps/s` },
            v => { speed = 2 ** v; }),
        range("rate", "learning rate", { min: lesson.rates[0], max: lesson.rates[1], step: 0.05, value: Math.log10(rate),
            format: v => tn.format(10 ** v, 2) }, v => { rate = 10 ** v; }),
        tn.h("div", { class: "group" }, tn.h("label", { for: "seed", class: "small soft", text: "seed" }), seeds),
        lesson.tools ? lesson.tools(reset, show) : null),
        status, look.element, lesson.view, tn.h("h4", { text: "Loss" }), plot.element);
    reset();
    /* ?steps=300 shows the lesson as it is after 300 steps. */
    const wanted = Number(new URLSearchParams(location.search).get("steps"));
    if (wanted > 0) learn(Math.min(5000, Math.floor(wanted)));
};

tn.lesson = lesson => (section, box) => {
    if (typeof WebAssembly !== "object") {
        box.append(tn.h("p", { class: "alarm",
            text: "This lesson computes with WebAssembly, which this browser does not have." }));
        return;
    }
    const waiting = tn.h("p", { class: "soft", text: "Loading the library …" });
    box.append(waiting);
    tn.engine(tn.bytes("tn-wasm")).then(call => {
        waiting.remove();
        controls(lesson, box, call);
        document.dispatchEvent(new Event("tn-lesson"));
    }).catch(error => {
        console.error(error);
        waiting.replaceWith(tn.h("p", { class: "alarm", role: "alert", text: `The lesson cannot run: ${error.message}` }));
    });
};

/* A small matrix [rows,columns] with its numbers; their names, or null for the rows'. */
tn.numbers = (values, rows, columns, label) => {
    const limit = tn.largest(values) || 1, named = rows.some(Boolean);
    const cell = x => tn.h("td", { class: "num", style: tn.shade(x / limit), "data-value": String(x),
        text: (x < 0 ? "−" : "") + Math.abs(x).toFixed(2) });
    return tn.h("table", { class: "numbers", "aria-label": label },
        tn.h("thead", {}, tn.h("tr", {}, named ? tn.h("td") : null,
            columns.map(name => tn.h("th", { scope: "col", text: name })))),
        tn.h("tbody", {}, rows.map((name, i) => tn.h("tr", {}, named ? tn.h("th", { scope: "row", text: name }) : null,
            columns.map((_, j) => cell(values[i * columns.length + j]))))));
};

/* Weights 0 (W), 1 (V) or 2 (P) of the layer, the biases as a last column: { rows, columns, values }. */
tn.weights = (call, which, bias) => {
    const { count: rows, numbers } = call("train_weights", which), columns = numbers.length / rows, n = columns - bias;
    const values = Float32Array.from({ length: numbers.length }, (_, i) => i % columns < n
        ? numbers[Math.floor(i / columns) * n + i % columns] : numbers[rows * n + Math.floor(i / columns)]);
    return { rows, columns, values };
};

/* What the colours of a picture mean: numbers from -limit to limit. */
tn.scale = (limit, text) => tn.h("div", { class: "scale soft" }, tn.h("span", { text: tn.format(-limit) }),
    tn.picture(Float32Array.from({ length: 65 }, (_, i) => i / 32 - 1), 65, 1, { limit: 1, label: "the scale of colours" }),
    tn.h("span", { text: tn.format(limit) }), tn.h("span", { text }));
