/* runs.js - several runs in one picture: the loss of each, of training and held-out text, by step, tokens or seconds, smoothed if a
   reader wants that, with the n-grams as lines across; and a table of the runs. The legend switches runs off and on. */
const axes = [["step", 0], ["tokens", 1], ["seconds", 2]], dashes = [null, "9 3 2 3", "2 3"];

/* An exponential mean whose weights add up to 1 from the beginning on. */
const smoothed = (values, share) => {
    let mean = 0, weight = 0;
    return Float64Array.from(values, v => {
        if (Number.isNaN(v)) return v;
        mean = share * mean + (1 - share) * v;
        weight = share * weight + 1 - share;
        return mean / weight;
    });
};
/* What grows by these axes is ascending, so that the nearest point is found; a log of others may hold anything. */
const ascending = values => values.every((v, i) => !i || v >= values[i - 1]);

/* Losses of n-grams, each once, with the runs that they are of where these differ. */
const gramsOf = runs => ["trigrams", "fivegrams"].flatMap((key, k) => {
    const values = new Map(), name = k ? "5-grams" : "trigrams";
    for (const run of runs) if (typeof run[key] === "number") values.set(run[key], [...(values.get(run[key]) || []), run.name]);
    return [...values].map(([y, of]) => ({ y, label: values.size > 1 ? `${name}, ${of.map(tn.plain).join(", ")}` : name }));
});

const tableOf = (runs, dot) => {
    const keys = [...new Set(runs.flatMap(run => run.settings.map(([key]) => key)))];
    const some = key => runs.some(run => typeof run[key] === "number");
    const numbers = [["parameters", "parameters"], ["steps", "steps"], ["tokens", "tokens"], ["seconds", "seconds"],
        ["training", "last training loss"], ["best", "best held-out loss"], ["whole", "all held-out text"]].filter(([key]) =>
        some(key));
    const settings = runs.map(run => new Map(run.settings));
    /* What is over a column, and what a run has in it; a setting may be called as a number is. */
    const columns = [["run", i => runs[i].name], ...numbers.map(([key, label]) => [label, i => runs[i][key]]),
        ...keys.map(key => ["--" + key, i => settings[i].get(key)])];
    const best = Math.min(...runs.map(run => run.best).filter(v => typeof v === "number"));
    const lines = runs.map((run, i) => tn.h("tr", {}, tn.h("th", { scope: "row" }, dot(i), tn.token(run.name)),
        numbers.map(([key]) => tn.h("td", { class: "right" + (key === "best" && run.best === best ? " first" : "") },
            typeof run[key] === "number" ? tn.number(run[key]) : "–")),
        keys.map(key => tn.h("td", { class: "right" }, tn.h("bdi", { text: settings[i].get(key) || "–" })))));
    const body = tn.h("tbody", {}, lines), heads = columns.map(([label]) => tn.h("th", { scope: "col", class: "right" }, label));
    heads[0].className = "";
    tn.sortable(heads, lines, body, columns.map(([, of]) => of), () => false);
    const table = tn.h("table", { class: "facts" }, tn.h("thead", {}, tn.h("tr", {}, heads)), body);
    return [tn.h("div", { class: "scroll" }, table), keys.length ? null : tn.h("p", { class: "soft small",
        text: "The runs do not differ in their settings." }), tn.savesTable("table", table)];
};

tn.sections.runs = (section, box) => {
    const { runs } = section, off = new Set(), curves = runs.map(run => [tn.array(run.curve), tn.array(run.held)]);
    let x = 0, smooth = 0.6, logX = false, logY = false, training = true, held = curves.some(([, one]) => one.shape[1] > 0);
    const ink = i => tn.ink(i), cycle = i => Math.floor(i / 7) % dashes.length, dash = i => dashes[cycle(i)];
    const keyClass = i => ["key", "key dashed", "key dotted"][cycle(i)];
    const state = () => {
        const faint = [], series = [], label = `losses by ${axes[x][0]}`;
        for (const i of runs.keys()) {
            if (off.has(i)) continue;
            const [curve, other] = curves[i], at = c => tn.row(c, axes[x][1]), loss = c => tn.row(c, 3);
            const name = (what, both) => runs[i].name + (both ? `, ${what}` : "");
            if (training && curve.shape[1]) {
                const raw = { name: name("training", true), x: at(curve), y: loss(curve), ink: ink(i), class: "raw", quiet: true };
                if (smooth) faint.push(raw);
                series.push({ name: name(smooth ? "training, smoothed" : "training", held), x: at(curve), ink: ink(i),
                    y: smooth ? smoothed(loss(curve), smooth) : loss(curve), dash: dash(i) });
            }
            if (held && other.shape[1]) series.push({ name: name("held out", training), x: at(other), y: loss(other), ink: ink(i),
                class: "ring marked", dash: "4 4" });
        }
        return { series: [...faint, ...series], logX, logY, label, legend: false, xlabel: axes[x][0], whole: x !== 2,
            rules: gramsOf(runs.filter((_, i) => !off.has(i))) };
    };
    const plot = tn.plot({ ...state(), ylabel: "loss, nats per token", height: 380 });
    const update = () => plot.update(state());
    /* ---- the legend */
    const key = i => tn.h("span", { class: keyClass(i), style: `--ink: ${ink(i)}` });
    const buttons = runs.map((run, i) => tn.h("button", { type: "button", class: "run " + keyClass(i), style: `--ink: ${ink(i)}`,
        "aria-pressed": true, title: "switch this run off and on; Shift: this one alone", onclick: event => {
            if (event.shiftKey) runs.forEach((_, k) => { if (k === i) off.delete(k); else off.add(k); });
            else if (!off.delete(i)) off.add(i);
            switched();
        } }, tn.token(run.name)));
    const mark = () => {
        buttons.forEach((button, i) => button.setAttribute("aria-pressed", !off.has(i)));
        update();
    };
    const switched = () => {
        mark();
        toldOff(off.size ? JSON.stringify([...off].map(i => runs[i].name)) : null);
    };
    const everything = tn.h("button", { type: "button", class: "plain", text: "all", onclick: () => { off.clear(); switched(); } });
    const none = tn.h("button", { type: "button", class: "plain", text: "none", onclick: () => {
        runs.forEach((_, i) => off.add(i));
        switched();
    } });
    /* ---- the controls, each of which the address keeps */
    const flag = (name, key, get, set) => {
        const button = tn.toggle(name, get(), on => { set(on); update(); told(on === usual ? null : on ? "yes" : "no"); });
        const usual = get(), told = tn.keep(key, (value = usual ? "yes" : "no") => {
            if (value !== "yes" && value !== "no") return false;
            set(value === "yes");
            button.setAttribute("aria-pressed", get());
            update();
            return true;
        });
        return button;
    };
    const usable = axes.filter(([, row]) => curves.every(pair => pair.every(one => ascending(tn.row(one, row)))));
    const picker = tn.picker("by", usable.map(([name]) => name), i => {
        x = axes.indexOf(usable[i]);
        update();
        toldX(i ? usable[i][0] : null);
    });
    const slider = tn.slider("smoothing", { min: 0, max: 0.99, step: 0.01, value: smooth, format: v => v.toFixed(2) }, v => {
        smooth = v;
        update();
        toldSmooth(v === 0.6 ? null : v);
    });
    const toldX = tn.keep("by", name => {
        const i = name === undefined ? 0 : usable.findIndex(one => one[0] === name);
        if (i < 0) return false;
        picker.set(i);
        return true;
    });
    const toldSmooth = tn.keep("smoothing", (value = "0.6") => {
        if (!/^0(\.\d+)?$/.test(value)) return false;
        slider.set(Math.min(0.99, Number(value)));
        return true;
    });
    const toldOff = tn.keep("without", (value = "[]") => {
        const names = JSON.parse(value), places = names.map(name => runs.findIndex(run => run.name === name));
        off.clear();
        places.filter(i => i >= 0).forEach(i => off.add(i));
        mark();
        return places.every(i => i >= 0);
    });
    if (usable.length) x = axes.indexOf(usable[0]);
    box.append(tn.h("div", { class: "tools" }, picker.element, slider.element, flag("training", "training", () => training, on => {
        training = on; }), held ? flag("held out", "held", () => held, on => { held = on; }) : null,
        flag("logarithmic loss", "log-loss", () => logY, on => { logY = on; }), flag("logarithmic axis below", "log-below",
            () => logX, on => { logX = on; })),
        tn.h("div", { class: "runs", role: "group", "aria-label": "runs" }, buttons, runs.length > 3 ? [everything, none] : null),
        plot.element, held ? tn.h("p", { class: "soft small", text: "Lines: training. Rings: held-out text." }) : "",
        ...tableOf(runs, key).filter(Boolean));
};
