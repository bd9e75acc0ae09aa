/* spectra.js - eigenvalues or singular values, sorted by size, one group chosen in a table of all. Red is positive, blue is
   negative; the dashed line is the null's edge: below it random weights of the same size would have values, too. */
const sorted = values => Array.from(values).sort((a, b) => Math.abs(b) - Math.abs(a));
const beyond = (values, edge) => edge === null || edge === undefined ? undefined : values.filter(v => Math.abs(v) > edge).length;

/* A table in which one row is chosen, by pointer or arrow keys: [{cells}], columns [[label, explanation]...]. show(i) is a
   reader's choice, set(i) that of the page, as onchange(i, whether a reader chose) is told; fill(i, cells) replaces a row. */
tn.chooser = (label, columns, rows, onchange) => {
    const mark = i => lines.forEach((line, k) => { line.setAttribute("aria-selected", k === i); line.tabIndex = k === i ? 0
        : -1; });
    const show = i => { mark(i); onchange(i, true); };
    const cellsOf = cells => cells.map((cell, k) => k
        ? tn.h("td", { class: "right" }, typeof cell === "number" ? tn.number(cell, 4, cell % 1
            ? tn.figures(cell, 4) : undefined) : cell === null || cell === undefined ? "–"
            : cell)
        : tn.h("th", { scope: "row" }, cell instanceof Node ? cell : tn.token(cell)));
    const lines = rows.map((cells, i) => tn.h("tr", { onclick: () => show(i) }, cellsOf(cells)));
    const fill = (i, cells) => lines[i].replaceChildren(...cellsOf(cells));
    const body = tn.h("tbody", { onkeydown: event => {
        const here = [...body.children], at = here.indexOf(event.target.closest("tr")), to = tn.step(event.key, at, here.length);
        if (to < 0 || at < 0) return;
        event.preventDefault();
        show(lines.indexOf(here[to]));
        here[to].focus();
        here[to].scrollIntoView({ block: "nearest" });
    } }, lines);
    const table = tn.h("table", { class: "chooser", role: "grid", "aria-label": label },
        tn.h("thead", {}, tn.h("tr", {}, columns.map(([name, explanation], k) => tn.h("th", { scope: "col", class: k ? "right"
            : "", title: explanation }, name)))), body);
    return { element: tn.h("div", { class: "scroll tall" }, table), lines, body, show, fill, set: i => { mark(i);
        onchange(i, false); } };
};

/* What is shown of a spectrum: of three times as many values as random weights have beyond the null, and at least 24; what
   follows says nothing. */
const worth = group => {
    const past = beyond(group.y, group.null_edge);
    return past === undefined ? group.y.length : Math.min(group.y.length, Math.max(24, 3 * past));
};
tn.sections.spectra = (section, box) => {
    const follows = tn.isMain(section);
    /* Without the eigenvectors that are ablated; the numbers of the whole are those of the library. */
    const remaining = (group, o) => {
        const whole = sorted(tn.array(group.values));
        const y = follows && tn.gone.size ? whole.filter((_, k) => !tn.isGone(o, k)) : whole;
        return y.length === whole.length ? { ...group, y }
            : { ...group, y, effective_rank: tn.rankOf(y), norm: tn.normOf(y) };
    };
    let groups = section.groups.map(remaining), chosen = 0, logY = true, whole = false;
    const state = () => {
        const group = groups[chosen], edge = group.null_edge, most = whole ? group.y.length : worth(group);
        const others = groups.filter((_, i) => i !== chosen).slice(0, 40).map(other =>
            ({ name: other.name, y: other.y.slice(0, most).map(Math.abs), class: "faint", ink: "var(--faint)", quiet: true }));
        const shown = group.y.slice(0, most), y = logY ? shown.map(Math.abs) : shown;
        return { series: [{ name: group.name, y: shown, kind: "stems", signs: true }, ...(logY ? others : [])], logY,
            zero: true, label: `spectrum of “${tn.plain(group.name)}”`,
                 rules: edge === null || edge === undefined || (logY && edge <= 0) ? [] : [{ y: edge, label: "null’s edge" },
                     ...(logY || y.every(v => v >= 0) ? [] : [{ y: -edge, label: "" }])] };
    };
    const plot = tn.plot({ ...state(), xlabel: section.xlabel || "index, by size", ylabel: section.ylabel || "value",
        height: 260 });
    const compared = groups.some(group => typeof group.null_edge === "number");
    const row = group => [group.name, group.y.length, group.effective_rank,
        ...(compared ? [beyond(group.y, group.null_edge)] : []), group.norm];
    const table = tn.chooser("spectra", [[section.label || "spectrum"], ["values"],
        ["effective rank", "(sum |value|)² / sum value²: how many equal values would be as spread"],
        ...(compared ? [["beyond the null", "number of values larger than random weights of the same size would have"]] : []),
            ["norm"]],
        groups.map(row), (i, byReader) => { chosen = i; plot.update(state()); if (byReader) follow(i); });
    const names = groups.map(group => group.name);
    const follow = tn.follow("output", names, { get value() { return chosen; }, show() {} }, i => table.set(i));
    if (follows) document.addEventListener("tn-model", () => {
        groups = section.groups.map(remaining);
        groups.forEach((group, i) => table.fill(i, row(group)));
        plot.update(state());
    });
    const rest = groups.some(group => worth(group) < group.y.length)
        ? tn.toggle("all values", false, on => { whole = on; plot.update(state()); }) : null;
    const key = (name, ink) => tn.h("span", { class: "key soft small", style: `--ink: var(--${ink})`, text: name });
    const signs = groups.some(group => group.y.some(v => v < 0));
    box.append(tn.h("div", { class: "tools" }, tn.toggle("logarithmic", true, on => { logY = on; plot.update(state()); }),
        rest, signs ? [key("positive", "above"), key("negative", "below")] : null,
        groups.length > 1 ? key("the others", "faint") : null), plot.element, table.element,
        tn.savesTable("table", table.element));
    table.set(0);
};
