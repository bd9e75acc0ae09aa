/* lesson.js - what both lessons share: the program in WebAssembly, play, pause, step, restart, learning rate and seed, and the
   curve of the loss. A lesson is { begin(call, seed, choice), frame(call, rate) -> losses, draw(call), ... }. */
const words = section => (section.paragraphs || []).map(text => tn.h("p", { class: "prose" }, tn.h("bdi", { text })));
tn.sections.words = (section, box) => box.append(...words(section));
tn.sections.links = (section, box) => box.append(tn.h("div", { class: "lessons" }, section.links.map(link =>
    tn.h("a", { class: "lesson", href: link.href }, tn.h("h3", { text: link.title }), tn.h("p", { text: link.text })))));

/* The sections of a lesson come before those that the page has already: the links. */
tn.teach = (...sections) => tn.page.sections.unshift(...sections);

const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/* The mean loss of a step, thinned so that a long run stays a short curve. */
const history = () => {
    let every = 1;
    const curve = { x: [], y: [], add(step, loss) {
        if (step % every) return;
        curve.x.push(step);
        curve.y.push(loss);
        if (curve.x.length < 600) return;
        every *= 2;
        for (const name of ["x", "y"]) curve[name] = curve[name].filter((_, i) => curve.x.length === 600 || i % 2 === 0);
    } };
    return curve;
};

const controls = (lesson, box, call) => {
    let playing = false, step = 0, seed = 1, rate = lesson.rate, curve = history();
    const status = tn.h("output", { class: "status", id: "status" });
    const plot = tn.plot({ series: [{ name: "loss", x: [0], y: [1] }], xlabel: "step", ylabel: "", logY: true, least: 1e-14,
        height: 210, label: "the loss by step" });
    const show = () => {
        lesson.draw(call);
        plot.update({ series: [{ name: "loss", x: curve.x, y: curve.y }] });
        status.replaceChildren("step ", tn.number(step), " · loss ", tn.number(curve.y[curve.y.length - 1], 3),
            ...(lesson.says ? lesson.says() : []));
    };
    /* Whether the numbers are still finite. */
    const learn = frames => {
        for (let i = 0; i < frames; i++) {
            const loss = lesson.frame(call, rate);
            step += lesson.steps;
            if (!Number.isFinite(loss)) {
                pause();
                status.textContent = `After step ${step} the numbers are no longer finite: the learning rate is too large. ` +
                    "Lower it, and restart.";
                return false;
            }
            curve.add(step, loss);
        }
        show();
        return true;
    };
    const play = tn.h("button", { type: "button", class: "play", id: "play", onclick: () => playing ? pause() : start() });
    const name = () => {
        play.textContent = playing ? "❚❚ pause" : "▶ play";
        status.setAttribute("aria-live", playing ? "off" : "polite");       /* playing, each step would be read out */
    };
    const pause = () => { playing = false; name(); };
    const start = () => {
        playing = true;
        name();
        requestAnimationFrame(turn);
    };
    const turn = () => {
        if (!playing) return;
        if (!learn(1)) return;
        if (step >= lesson.most) pause();
        else requestAnimationFrame(turn);
    };
    const restart = () => {
        step = 0;
        curve = history();
        lesson.begin(call, seed);
        curve.add(0, lesson.loss(call));
        show();
    };
    const power = v => 10 ** v;
    const slider = tn.slider("learning rate", { min: lesson.rates[0], max: lesson.rates[1], step: 0.05, value: Math.log10(rate),
        format: v => tn.format(power(v), 2) }, v => { rate = power(v); });
    slider.input.id = "rate";
    slider.element.querySelector("label").htmlFor = "rate";
    const seeds = tn.h("input", { type: "number", id: "seed", min: 0, max: 9999, value: seed, oninput: event => {
        seed = Math.max(0, Math.min(9999, Math.floor(Number(event.target.value) || 0)));
        restart();
    } });
    name();
    box.append(tn.h("div", { class: "tools" }, play,
        tn.h("button", { type: "button", id: "step", text: "step", onclick: () => { pause(); learn(1); } }),
        tn.h("button", { type: "button", id: "restart", text: "restart", onclick: () => restart() }),
        slider.element, tn.h("div", { class: "group" }, tn.h("label", { for: "seed", class: "small soft", text: "seed" }), seeds),
        lesson.tools ? lesson.tools(restart, show) : null), status, lesson.view, tn.h("h4", { text: "Loss" }), plot.element);
    restart();
    /* ?steps=300 shows the lesson as it is after 300 steps. */
    const wanted = Number(new URLSearchParams(location.search).get("steps"));
    if (wanted > 0) learn(Math.min(5000, wanted) / lesson.steps);
    else if (!calm()) start();
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

/* A small matrix with its numbers. */
tn.numbers = (values, names, label) => {
    const n = names.length, limit = tn.largest(values) || 1;
    const cell = x => tn.h("td", { class: "num", style: tn.shade(x / limit), "data-value": String(x),
        text: (x < 0 ? "−" : "") + Math.abs(x).toFixed(2) });
    return tn.h("table", { class: "numbers", "aria-label": label },
        tn.h("thead", {}, tn.h("tr", {}, tn.h("td"), names.map(name => tn.h("th", { scope: "col", text: name })))),
        tn.h("tbody", {}, names.map((name, i) => tn.h("tr", {}, tn.h("th", { scope: "row", text: name }),
            names.map((_, j) => cell(values[i * n + j]))))));
};
