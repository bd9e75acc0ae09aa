/* plot.js - curves, stems and bars. A plot is SVG, drawn again whenever its width changes, so that text keeps its size on a
   phone; colours come from the style, so that themes need no drawing. Arrow keys and the pointer read values. */
const margin = { left: 66, right: 14, top: 12, bottom: 42 };

/* Round numbers in [low, high], about `count` of them. */
tn.ticks = (low, high, count) => {
    const rough = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(k => k * power).find(s => s >= rough) || rough;
    const ticks = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step;
        k++) ticks.push(Number((k * step).toPrecision(12)));
    return ticks;
};
const powers = (low, high) => {
    const ticks = [], apart = Math.ceil((Math.log10(high) - Math.log10(low)) / 6) || 1;
    for (let p = Math.ceil(Math.log10(low) - 1e-9); p <= Math.log10(high) + 1e-9; p += apart) ticks.push(10 ** p);
    if (ticks.length > 2) return ticks;
    const finer = [];                                   /* 1, 2 and 5 in each decade */
    for (let p = Math.floor(Math.log10(low)); p <= Math.log10(high); p++)
        for (const k of [1, 2, 5]) if (k * 10 ** p >= low * 0.999
            && k * 10 ** p <= high * 1.001) finer.push(Number((k * 10 ** p).toPrecision(3)));
    return finer.length > 1 ? finer : [low, high];
};

/* A ruler turns a value into a place and knows its ticks. A logarithmic one ends where values are rounding errors, unless the
   plot says otherwise: `least`, as a share of the largest. */
const ruler = (values, log, from, to, count, least = 1e-7) => {
    const usable = values.filter(v => Number.isFinite(v) && (!log || v > 0));
    let low = usable.reduce((a, b) => Math.min(a, b), Infinity), high = usable.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!usable.length) [low, high] = log ? [0.1, 1] : [0, 1];
    if (log) low = Math.max(low, high * least);
    if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) / 2,
        high + (Math.abs(high) || 1) / 2];
    const of = log ? Math.log10 : x => x;
    const place = v => from + (of(v) - of(low)) / (of(high) - of(low)) * (to - from);
    return { place, low, high, ticks: log ? powers(low, high) : tn.ticks(low, high, count), shows: v => Number.isFinite(v)
        && (!log || v >= low) };
};

/* The points of a series, as [x, y, index]; |y| on a logarithmic axis. */
const pointsOf = (series, logY) => Array.from(series.y, (y, i) => [series.x ? series.x[i] : i, logY ? Math.abs(y) : y, i]);

const axes = (plot, x, y, width, height) => {
    const bottom = height - margin.bottom, group = tn.s("g", { class: "axes" });
    const side = v => plot.logY ? tn.format(v, 2) : tn.format(v, 3);
    for (const v of y.ticks) group.append(
        tn.s("line", { x1: margin.left, x2: width - margin.right, y1: y.place(v), y2: y.place(v), class: v === 0 ? "zero"
            : "grid" }),
        tn.s("text", { x: margin.left - 8, y: y.place(v), dy: ".32em", "text-anchor": "end", text: side(v) }));
    for (const v of x.ticks) group.append(
        tn.s("line", { x1: x.place(v), x2: x.place(v), y1: bottom, y2: bottom + 4, class: "tick" }),
        tn.s("text", { x: x.place(v), y: bottom + 17, "text-anchor": "middle", text: plot.xnames ? plot.xnames[v]
            : tn.format(v, 4) }));
    group.append(
        tn.s("text", { class: "title", x: (margin.left + width - margin.right) / 2, y: height - 6, "text-anchor": "middle",
            text: plot.xlabel }),
        tn.s("text", { class: "title", transform: `translate(13 ${(margin.top + bottom) / 2}) rotate(-90)`,
            "text-anchor": "middle", text: plot.ylabel }));
    return group;
};

const drawSeries = (series, i, x, y, plot) => {
    const shown = pointsOf(series, plot.logY).filter(([u, v]) => x.shows(u) && y.shows(v));
    const ink = series.ink || tn.ink(i), places = shown.map(([u, v, k]) => [x.place(u), y.place(v), k]);
    const group = tn.s("g", { class: "series " + (series.class || ""), style: `--ink: ${ink}` });
    const sign = k => series.signs ? (series.y[k] < 0 ? "below" : "above") : "";
    /* Bars begin at 0, which a logarithmic axis has not; and they need room. Dots do not. */
    const apart = x.place(1) - x.place(0), crowded = series.kind === "stems" && (plot.logY || apart < 5);
    if (series.kind === "stems" && !crowded) {
        const floor = y.place(0);
        const stem = Math.max(0.8, Math.min(9, apart * 0.62));
        for (const [u, v, k] of places) group.append(tn.s("line", { class: "stem " + sign(k), x1: u, x2: u, y1: floor, y2: v,
            "stroke-width": stem }));
    } else if (series.kind !== "points" && !crowded) {
        const path = places.map(([u, v], k) => (k ? "L" : "M") + u.toFixed(1) + " " + v.toFixed(1)).join("");
        group.append(tn.s("path", { class: "line", d: path, "stroke-dasharray": series.dash || (series.dashed ? "5 4" : null) }));
    }
    if (series.kind === "points" || crowded || series.kind !== "stems" && places.length <= 40)
        for (const [u, v, k] of places) group.append(tn.s("circle", { class: "dot " + sign(k), cx: u, cy: v,
            r: crowded && apart < 5 ? 1.8 : series.kind === "points" ? 3 : crowded ? 3 : 2.4 }));
    return group;
};

/* Lines across the plot: {y, label} horizontal, {x, label} upright. */
const drawRule = (rule, x, y, width, height, below) => {
    const across = rule.y !== undefined, v = across ? y.place(rule.y) : x.place(rule.x);
    return tn.s("g", { class: "rule" },
        across ? tn.s("line", { x1: margin.left, x2: width - margin.right, y1: v, y2: v })
               : tn.s("line", { x1: v, x2: v, y1: margin.top, y2: height - margin.bottom }),
        tn.s("text", across ? { x: width - margin.right - 4, y: below ? v + 13 : v - 5, "text-anchor": "end", text: rule.label }
                            : { x: v + 5, y: margin.top + 11, text: rule.label }));
};

/* The index of the number of an ascending list that is nearest to x. */
const nearest = (list, x) => {
    let low = 0, high = list.length - 1;
    while (low < high) {
        const middle = (low + high) >> 1;
        if (list[middle] < x) low = middle + 1; else high = middle;
    }
    return low > 0 && x - list[low - 1] <= list[low] - x ? low - 1 : low;
};
/* The numbers of a plot: each x once, and a column for each series. Names of places are written in their place. */
const numbersOf = plot => {
    const shown = plot.series.filter(series => !series.quiet), rows = new Map();
    shown.forEach((series, k) => Array.from(series.y).forEach((y, i) => {
        const u = series.x ? series.x[i] : i;
        if (!rows.has(u)) rows.set(u, []);
        rows.get(u)[k] = y;
    }));
    return tn.csv([[plot.xlabel || "x", ...shown.map(series => series.name || plot.ylabel || "y")],
        ...[...rows].sort((a, b) => a[0] - b[0]).map(([u, row]) => [plot.xnames ? plot.xnames[u] : u,
            ...shown.map((_, k) => row[k])])]);
};

/* {series: [{name, y, x? ascending, kind: line, points or stems, signs?, dashed?, dash?, quiet?}], rules, xlabel, ylabel, logX,
   logY, least, zero, height, label}. A quiet series is neither named nor read. update(changes) draws it again. */
tn.plot = options => {
    let plot = { rules: [], height: 280, ...options }, at = -1, width = 0, x, y;
    const frame = tn.h("div", { class: "plot", tabindex: 0, role: "img" });
    const legend = tn.h("div", { class: "legend" }), readout = tn.h("div", { class: "readout", "aria-live": "polite" });
    const what = () => plot.label || [plot.ylabel, plot.xlabel].filter(Boolean).join(" by ");
    const named = () => plot.series.map((series, i) => [series, i]).filter(([series]) => !series.quiet);
    const saves = tn.saves(what, { CSV: () => numbersOf(plot), SVG: () => {
        const groups = frame.querySelectorAll("svg > .series"), some = named();
        return tn.svg(frame.firstChild, some.length < 2 ? [] : some.map(([series, i]) => [series.name, groups[i]]), what());
    } });
    const element = tn.h("figure", { class: "figure" }, frame, tn.h("figcaption", {}, tn.h("div", { class: "ends" },
        tn.h("div", {}, legend, readout), saves)));
    const cursor = tn.s("line", { class: "cursor", "data-cursor": true });

    const draw = () => {
        const height = plot.height, all = plot.series.flatMap(series => pointsOf(series, plot.logY));
        const right = width - margin.right;
        x = ruler(all.map(p => p[0]), plot.logX, margin.left + 6, right - 6, Math.min(9, width / 70));
        if (plot.whole !== false) x.ticks = plot.logX ? x.ticks : x.ticks.filter(Number.isInteger);
        /* Below the lowest line that has a name there is room for it. */
        const high = all.reduce((most, p) => Math.max(most, p[1] || 0), 0);
        const lines = plot.rules.filter(rule => rule.y > 0 && rule.label).map(rule => rule.y);
        y = ruler([...all.map(p => p[1]), ...plot.rules.filter(r => r.y !== undefined).map(r => r.y), ...(plot.zero && !plot.logY
            ? [0] : []), ...lines.map(v => plot.logY ? 0.93 * v : v - 0.06 * Math.max(0, high - v))],
                  plot.logY, height - margin.bottom - 4, margin.top + 4, 5, plot.least);
        frame.replaceChildren(tn.s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
            axes(plot, x, y, width, height), plot.series.map((series, i) => drawSeries(series, i, x, y, plot)),
            plot.rules.map(rule => drawRule(rule, x, y, width, height, plot.rules.some(other => other.y > rule.y
                && y.place(rule.y) - y.place(other.y) < 16))), cursor));
        frame.setAttribute("aria-label", what());
        read(at);
    };
    const read = i => {
        const longest = plot.series.reduce((a, b) => b.y.length > a.y.length ? b : a, plot.series[0] || { y: [] });
        at = Math.min(i, longest.y.length - 1);
        cursor.style.display = at < 0 ? "none" : "";
        if (at < 0) { readout.textContent = ""; return; }
        const u = longest.x ? longest.x[at] : at, place = x.place(u);
        for (const [name, value] of Object.entries({ x1: place, x2: place, y1: margin.top,
            y2: plot.height - margin.bottom })) cursor.setAttribute(name, value);
        readout.replaceChildren(tn.h("span", { class: "where" }, (plot.xlabel || "x") + " ", plot.xnames
            ? tn.token(plot.xnames[u]) : tn.number(u)),
            ...named().map(([series, k]) => [series, k, series.x ? nearest(series.x, u) : at]).filter(([series, , i]) =>
                i < series.y.length).slice(0, 16).map(([series, k, i]) =>
                tn.h("span", { class: "of", style: `--ink: ${series.ink || tn.ink(k)}` }, plot.series.length > 1 && series.name
                    ? [tn.token(series.name), " "] : null, tn.number(series.y[i]))));
        if (plot.onread) plot.onread(at);
    };
    const explain = () => legend.replaceChildren(...(plot.legend === false || named().length < 2 ? [] : named()).map(([series,
        i]) => tn.h("span", { class: "key" + (series.dashed ? " dashed" : series.kind === "points" ? " points" : ""),
            style: `--ink: ${series.ink || tn.ink(i)}` }, tn.token(series.name))));

    frame.addEventListener("keydown", event => {
        const to = tn.step(event.key, at, Math.max(...plot.series.map(series => series.y.length)));
        if (to < 0) return;
        event.preventDefault();
        read(to);
    });
    frame.addEventListener("pointermove", event => {
        const place = event.clientX - frame.getBoundingClientRect().left;
        if (!plot.series.length || !x) return;
        const longest = plot.series.reduce((a, b) => b.y.length > a.y.length ? b : a);
        read(nearest(Array.from(longest.y, (_, i) => x.place(longest.x ? longest.x[i] : i)), place));
    });
    tn.resized(frame, () => {
        const now = Math.floor(frame.clientWidth);
        if (now > 0 && now !== width) { width = now; draw(); }
    });
    width = 640;
    const update = changes => { plot = { ...plot, ...changes }; explain(); draw(); };
    update({});
    return { element, update, read };
};

/* Rows of {label, value, text?, note?, notes?}: bars to both sides of zero, with the number and notes beside them. wide: most
   of the width is for labels; both: there is room for both signs though only one occurs. */
tn.bars = (rows, options = {}) => {
    const limit = options.limit || rows.reduce((most, row) => Math.max(most, Math.abs(row.value) || 0), 0) || 1;
    const bothSides = options.both || rows.some(row => row.value < 0);
    const bar = value => {
        const share = Math.min(1, Math.abs(value) / limit) * (bothSides ? 50 : 100) || 0;
        return tn.h("span", { class: "track" + (bothSides ? " both" : ""), "aria-hidden": "true" },
            tn.h("i", { class: value < 0 ? "below" : "above", style: bothSides
                ? `left: ${value < 0 ? 50 - share : 50}%; width: ${share}%` : `left: 0; width: ${share}%` }));
    };
    const head = options.head && tn.h("thead", {}, tn.h("tr", {}, options.head.map((name, i) =>
        tn.h("th", { scope: "col", class: i > 1 ? "right" : "", text: name }))));
    return tn.h("table", { class: options.wide ? "bars wide" : "bars" }, head, tn.h("tbody", {},
        rows.map(row => tn.h("tr", { class: row.class },
        tn.h("th", { scope: "row" }, row.label instanceof Node ? row.label : tn.token(row.label)),
        tn.h("td", { class: "bar" }, bar(row.value)),
        tn.h("td", { class: "right" }, tn.number(row.value, undefined, row.text)),
        (row.notes || (row.note === undefined ? [] : [row.note])).map(note => tn.h("td", { class: "right soft" }, note))))));
};
