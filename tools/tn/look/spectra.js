/* spectra.js - eigenvalues or singular values, sorted by size, one group chosen in a table of all. Red is positive, blue is
   negative; the dashed line is the null's edge: below it random weights of the same size would have values, too. */
const sorted = values => Array.from(values).sort((a, b) => Math.abs(b) - Math.abs(a));
const beyond = (values, edge) => edge === null || edge === undefined ? undefined : values.filter(v => Math.abs(v) > edge).length;

/* A table in which one row is chosen, by pointer or arrow keys: [{cells}], columns [[label, explanation]...]. */
tn.chooser = (label, columns, rows, onchange) => {
    const show = i => {
        lines.forEach((line, k) => { line.setAttribute("aria-selected", k === i); line.tabIndex = k === i ? 0 : -1; });
        onchange(i);
    };
    const lines = rows.map((cells, i) => tn.h("tr", { onclick: () => show(i) }, cells.map((cell, k) => k
        ? tn.h("td", { class: "right" }, typeof cell === "number" ? tn.number(cell) : cell === null || cell === undefined ? "–"
            : cell)
        : tn.h("th", { scope: "row" }, cell instanceof Node ? cell : tn.token(cell)))));
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
    return { element: tn.h("div", { class: "scroll tall" }, table), lines, body, show };
};

tn.sections.spectra = (section, box) => {
    const groups = section.groups.map(group => ({ ...group, y: sorted(tn.array(group.values)) }));
    let chosen = 0, logY = true;
    const state = () => {
        const group = groups[chosen], edge = group.null_edge;
        const others = groups.filter((_, i) => i !== chosen).slice(0, 40).map(other =>
            ({ name: other.name, y: other.y.map(Math.abs), class: "faint", ink: "var(--faint)", quiet: true }));
        const y = logY ? group.y.map(Math.abs) : group.y;
        return { series: [{ name: group.name, y: group.y, kind: "stems", signs: true }, ...(logY ? others : [])], logY,
            zero: true, label: `spectrum of ${tn.plain(group.name)}`,
                 rules: edge === null || edge === undefined || (logY && edge <= 0) ? [] : [{ y: edge, label: "null’s edge" },
                     ...(logY || y.every(v => v >= 0) ? [] : [{ y: -edge, label: "" }])] };
    };
    const plot = tn.plot({ ...state(), xlabel: section.xlabel || "index, by size", ylabel: section.ylabel || "value",
        height: 260 });
    const table = tn.chooser("spectra", [[section.label || "spectrum"], ["values"],
        ["effective rank", "exp of the entropy of the shares: how many values carry the whole"],
        ["beyond the null", "number of values larger than random weights of the same size would have"], ["norm"]],
        groups.map(group => [group.name, group.y.length, group.effective_rank, beyond(group.y, group.null_edge), group.norm]),
        i => { chosen = i; plot.update(state()); });
    const key = (name, ink) => tn.h("span", { class: "key soft small", style: `--ink: var(--${ink})`, text: name });
    const signs = groups.some(group => group.y.some(v => v < 0));
    box.append(tn.h("div", { class: "tools" }, tn.toggle("logarithmic", true, on => { logY = on; plot.update(state()); }),
        signs ? [key("positive", "above"), key("negative", "below")] : null,
        groups.length > 1 ? key("the others", "faint") : null), plot.element, table.element);
    table.show(0);
};
