/* save.js - a figure as a file, made here: a plot as SVG, a canvas as PNG, the numbers of each as CSV. The name of the file says
   what it holds: the page, the section, the figure. Numbers are written as the page has them, unrounded, and names as they are. */
const types = { CSV: "text/csv", SVG: "image/svg+xml", PNG: "image/png" };
const titleOf = element => {
    const section = element.closest("section.section"), heading = section && section.querySelector("h2");
    return heading ? heading.textContent : "";
};
const slug = text => text.replace(/[^\p{L}\p{N}.+−-]+/gu, "-").replace(/^[-.]+|-+$/g, "").slice(0, 120);
const store = (name, kind, content) => {
    const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type: types[kind] }));
    const link = tn.h("a", { href: url, download: name + "." + kind.toLowerCase(), hidden: true });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
};

/* Buttons that save a figure: kinds { PNG, SVG or CSV: a function that makes it }, what() says what is in it. One that throws
   says why in their place. */
tn.saves = (what, kinds) => {
    const line = tn.h("div", { class: "saves" }, tn.h("span", { text: "save" }), Object.entries(kinds).map(([kind, make]) =>
        tn.h("button", { type: "button", "aria-label": `save as ${kind}`, text: kind, onclick: async () => {
            const sorry = line.querySelector(".sorry");
            try {
                const name = slug([tn.plain(tn.page.title), titleOf(line), what()].filter(Boolean).join(" "));
                store(name, kind, await make());
                sorry.textContent = "";
            } catch (error) { sorry.textContent = error.message; }
        } })), tn.h("span", { class: "sorry", role: "status" }));
    return line;
};

/* ---- the kinds */
const cell = x => /[",\n\r]/.test(x) ? `"${x.replaceAll('"', '""')}"` : x;
tn.csv = rows => rows.map(row => row.map(x => cell(x === null || x === undefined ? "" : String(x))).join(",") + "\n").join("");
/* The button below a table: what it shows, its numbers as they are. */
tn.savesTable = (what, table) => tn.saves(() => what, { CSV: () => tableCsv(table) });
const tableCsv = table => tn.csv([...table.querySelectorAll("tr")].map(row => [...row.cells].filter(one =>
    !one.classList.contains("bar")).map(one => {
    const number = one.querySelector("[data-value]");
    return number && one.children.length === 1 && one.firstChild === number ? number.dataset.value : one.textContent.trim();
})));
/* A picture whose pixels are large enough to be seen, or a canvas as it is, on the page's paper. */
tn.png = canvas => new Promise((good, bad) => {
    const scale = canvas.classList.contains("picture") ? Math.max(1, Math.ceil(512 / canvas.width)) : 1;
    const copy = tn.h("canvas", { width: canvas.width * scale, height: canvas.height * scale });
    const context = copy.getContext("2d");
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--panel").trim();
    context.fillRect(0, 0, copy.width, copy.height);
    context.imageSmoothingEnabled = false;
    context.drawImage(canvas, 0, 0, copy.width, copy.height);
    copy.toBlob(blob => blob ? good(blob) : bad(new Error("the picture is too large to be saved")));
});
/* A plot with its legend below it, [[name, group of the series]...]; styles are written into its elements, because a file has
   no style of the page. */
const kept = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity", "font-family",
    "font-size", "text-anchor", "paint-order"];
tn.svg = (svg, names, title) => {
    const width = Number(svg.getAttribute("width")), height = Number(svg.getAttribute("height"));
    const legend = tn.s("g", {});
    svg.append(legend);
    let x = 16, y = height + 14;
    for (const [name, group] of names) {
        const text = tn.s("text", { x: x + 24, y: y + 4, text: tn.plain(name) });
        const one = tn.s("g", { style: group.getAttribute("style"), class: group.getAttribute("class") },
            group.querySelector(".line") || !group.querySelector(".dot")
                ? tn.s("path", { class: "line", d: `M${x} ${y}h18`, "stroke-dasharray":
                    group.querySelector("path") && group.querySelector("path").getAttribute("stroke-dasharray") })
                : tn.s("circle", { class: "dot", cx: x + 9, cy: y, r: 3 }), text);
        legend.append(one);
        const wide = 24 + text.getComputedTextLength() + 18;
        if (x > 16 && x + wide > width) {
            one.setAttribute("transform", `translate(${16 - x} 20)`);
            [x, y] = [16, y + 20];
        }
        x += wide;
    }
    const below = names.length ? y + 14 : height, copy = svg.cloneNode(true);
    const from = [...svg.querySelectorAll("*")], to = [...copy.querySelectorAll("*")];
    from.forEach((element, i) => {
        const style = getComputedStyle(element);
        for (const name of kept) to[i].setAttribute(name, style.getPropertyValue(name));
        to[i].removeAttribute("class");
        to[i].removeAttribute("style");
    });
    legend.remove();
    copy.querySelectorAll("[data-cursor]").forEach(element => element.remove());
    copy.setAttribute("height", below);
    copy.setAttribute("viewBox", `0 0 ${width} ${below}`);
    copy.removeAttribute("aria-hidden");
    copy.prepend(tn.s("title", { text: title }), tn.s("rect", { width, height: below,
        fill: getComputedStyle(document.documentElement).getPropertyValue("--paper").trim() }));
    return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(copy)}\n`;
};
