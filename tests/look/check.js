/* check.js - what the tests of every page share. They run in the page, after all sections are filled, see what a reader sees,
   press what a reader presses, and leave a line for each check: `ok NAME` or `FAIL NAME: WHY`. */
"use strict";
const lines = [];
const check = (name, ok, why) => lines.push(ok ? `ok ${name}` : `FAIL ${name}: ${why}`);
const equal = (name, got, wanted) => check(name, Object.is(got, wanted), `${got}, expected ${wanted}`);
/* Products are summed in another order here and in the fixture. */
const near = (name, got, wanted, within = 1e-12) =>
    check(name, Math.abs(got - wanted) <= within * Math.max(1, Math.abs(wanted)), `${got}, expected ${wanted}`);
const one = (selector, inside = document) => {
    const element = inside.querySelector(selector);
    if (!element) throw new Error(`the page has no ${selector}`);
    return element;
};
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const valueOf = (selector, inside) => Number(one(selector, inside).dataset.value);
const press = (element, key, more = {}) => {
    element.focus();
    (element === document.body ? document : document.activeElement).dispatchEvent(new KeyboardEvent("keydown",
        { key, bubbles: true, cancelable: true, ...more }));
};
const pressMany = (element, key, times) => { for (let i = 0; i < times; i++) press(element, key); };
const rest = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));
const type = (input, text) => { input.focus(); input.value = text; input.dispatchEvent(new Event("input", { bubbles: true })); };
/* What a button of the page saves: the name of the file, and its text, or the canvas that becomes a picture. What the browser would
   do beside the page is done at once here, because the time of a test runs ahead of it. */
const saved = async (what, kind) => {
    const link = HTMLAnchorElement.prototype, canvas = HTMLCanvasElement.prototype, blob = Blob;
    const [click, make, encode] = [link.click, URL.createObjectURL, canvas.toBlob], file = { name: "" };
    link.click = function () { file.name = this.download; };
    URL.createObjectURL = () => "#";
    canvas.toBlob = function (done) { file.canvas = this; done(new blob([this.toDataURL()])); };
    Blob = class extends blob { constructor(parts, options) { super(parts, options); file.text = parts.join(""); } };
    one(`[aria-label="save as ${kind}"]`, what).click();
    for (let i = 0; i < 20 && !file.name; i++) await rest(20);
    [link.click, URL.createObjectURL, canvas.toBlob] = [click, make, encode];
    Blob = blob;
    if (!file.name) throw new Error(`no ${kind} is saved: ${one(".sorry", what).textContent}`);
    return file;
};
/* Rows of a CSV file. */
const rowsOf = text => text.trimEnd().split("\n").map(line => [...line.matchAll(/("(?:[^"]|"")*"|[^,]*)(?:,|$)/g)].slice(0, -1)
    .concat(line.endsWith(",") ? [["", ""]] : []).map(([, cell]) => cell.startsWith('"') ? cell.slice(1, -1).replaceAll('""', '"')
    : cell));
/* Goes to an address of the page, and waits until it is written again. */
const follow = async hash => {
    location.hash = hash;
    await rest(700);
    return decodeURIComponent(location.hash);
};

const say = () => {
    const text = [...lines, "end of the checks"].join("\n");
    document.body.append(Object.assign(document.createElement("pre"), { id: "tn-checks", textContent: text }));
    if (parent !== window) parent.postMessage(text, "*");
};
const run = async checks => {
    try {
        await rest(400);
        for (const [name, body] of Object.entries(checks)) {
            try { await body(); } catch (error) { check(name, false, error.stack); }
        }
    } finally { say(); }
};
const whenFilled = checks => tn.filled ? run(checks) : document.addEventListener("tn-filled", () => run(checks));

/* ---- what holds for every page */
const nameOf = element => element.getAttribute("aria-label")
    || (element.labels && [...element.labels].map(label => label.textContent).join(" ")) ||
    element.textContent.trim() || element.title;
const controls = () => all("button, input, a[href], [tabindex]").filter(element => element.offsetParent !== null
    && element.tagName !== "MAIN" && element.tagName !== "SECTION");
const everyPage = {
    filled() {
        equal("filled: sections", all("section.section").length, tn.page.sections.length + (tn.page.live ? 1 : 0) +
            ((tn.page.notes || []).length ? 1 : 0));
        equal("filled: links to them", all("#contents a").length, all("section.section").length);
    },
    controls_have_names() {
        for (const element of controls())
            if (!nameOf(element) && !element.closest("[role=radiogroup], [role=grid]")) check("control without a name", false,
                element.outerHTML.slice(0, 200));
        check("controls", controls().length > 2, `${controls().length} controls`);
    },
    /* Of a group one element takes the focus by Tab; arrow keys reach the others. */
    controls_are_reached() {
        for (const element of controls()) {
            if (element.tabIndex >= 0) continue;
            const group = element.closest("[role=radiogroup], tbody");
            check("reached by Tab", group && all("[tabindex='0']", group).length === 1, element.outerHTML.slice(0, 200));
        }
    },
    no_wider_than_the_window() {
        check("width", document.documentElement.scrollWidth <= innerWidth,
            `${document.documentElement.scrollWidth} in a window of ${innerWidth}`);
    },
    nothing_broke_out() {
        equal("title", document.title, "A page of the tests");
        equal("no element of a name", all("img, iframe, b.evil, main script").length, 0);
        equal("scripts", all("script").length, 5);
    },
    /* What a reader, or an editor into which the page's text is copied, could be misled by. */
    nothing_hidden() {
        const found = document.getElementById("content").textContent.match(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/);
        check("no hidden characters", !found, found && "U+" + found[0].charCodeAt(0).toString(16));
    },
    right_to_left_is_isolated() {
        const walker = document.createTreeWalker(document.getElementById("content"), NodeFilter.SHOW_TEXT);
        let found = 0;
        while (walker.nextNode()) {
            if (!/[\u0590-\u08ff]/.test(walker.currentNode.data)) continue;
            found++;
            if (!walker.currentNode.parentElement.closest("bdi")) check("isolated", false,
                walker.currentNode.parentElement.outerHTML.slice(0, 200));
        }
        if (tn.page.kind === "language") check("right-to-left names are shown", found > 0, "none is");
    },
    theme() {
        const paper = () => getComputedStyle(document.body).backgroundColor, seen = new Set(), names = [];
        const bright = () => paper().match(/\d+/g).slice(0, 3).reduce((sum, v) => sum + Number(v), 0) / 3;
        for (let i = 0; i < 3; i++) {
            press(document.body, "t");
            const theme = document.documentElement.dataset.theme;
            names.push(theme);
            seen.add(paper());
            const dark = theme === "dark" || theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches;
            check(`theme ${theme}`, dark ? bright() < 60 : bright() > 200, paper());
        }
        equal("themes", names.sort().join(), "auto,dark,light");
        equal("papers", seen.size, 2);
        equal("theme of the button", one("#theme").getAttribute("aria-label"),
            "theme: " + document.documentElement.dataset.theme);
    },
    /* All text has a contrast of 4.5 : 1 with the ground of the element that it is in, that of a plot with the page's, but for
       what is inactive or out of date, which is paler. */
    contrast() {
        const parsed = new Map(), context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
        const colour = text => {
            if (parsed.has(text)) return parsed.get(text);
            context.clearRect(0, 0, 1, 1);
            context.fillStyle = text;
            context.fillRect(0, 0, 1, 1);
            const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
            parsed.set(text, [r, g, b, a / 255]);
            return parsed.get(text);
        };
        const over = ([r, g, b, a], under) => [r, g, b].map((v, k) => a * v + (1 - a) * under[k]);
        const behind = new Map(), pale = new Map();
        const background = element => {
            if (!element) return [255, 255, 255];
            if (!behind.has(element)) {
                const style = getComputedStyle(element);
                behind.set(element, over(colour(style.backgroundColor), background(element.parentElement)));
                pale.set(element, Number(style.opacity) < 1 || pale.get(element.parentElement));
            }
            return behind.get(element);
        };
        for (const theme of ["light", "dark"]) {
            document.documentElement.dataset.theme = theme;
            document.dispatchEvent(new Event("tn-theme"));
            behind.clear();
            const found = new Set(), walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            while (walker.nextNode()) {
                const element = walker.currentNode.parentElement;
                if (!walker.currentNode.data.trim() || !element.getClientRects().length) continue;
                const under = background(element), ink = over(colour(getComputedStyle(element)[element.closest("svg") ? "fill"
                    : "color"]), under);
                const [a, b] = [under, ink].map(tn.luminance).sort((x, y) => x - y), ratio = (b + 0.05) / (a + 0.05);
                if (ratio < 4.5 && !pale.get(element) && found.size < 5)
                    found.add(`"${element.textContent.slice(0, 20)}" in ${element.getAttribute("class")} of ${
                        element.closest("section, body").id} has ${ratio.toFixed(2)}`);
            }
            equal(`contrast, ${theme}`, [...found].join("; "), "");
        }
    },
    print() {
        document.documentElement.dataset.theme = "dark";
        dispatchEvent(new Event("beforeprint"));
        equal("printed in the light", document.documentElement.dataset.theme, "light");
        dispatchEvent(new Event("afterprint"));
        equal("as before", document.documentElement.dataset.theme, "dark");
    },
    help() {
        press(document.body, "?");
        check("help opens", one("dialog.help").open, "it is closed");
        one("dialog.help button").click();
        check("help closes", !one("dialog.help").open, "it is open");
    },
    /* At the beginning of the page the first section is current in the list, at its end the last, and the one that is asked for. */
    async place_in_the_list() {
        const links = all("#contents a"), at = () => links.findIndex(link => link.ariaCurrent);
        const scrolled = async top => { scrollTo({ top, behavior: "instant" }); dispatchEvent(new Event("scroll")); await rest(100); };
        await scrolled(document.documentElement.scrollHeight);
        if (document.documentElement.scrollHeight > innerHeight) equal("place: at the end", at(), links.length - 1);
        await scrolled(0);
        equal("place: at the beginning", at(), 0);
        const last = Math.max(0, links.length - 2);
        links[last].click();
        await rest(700);
        equal("place: asked for", at(), last);
        await scrolled(0);
    },
    sections_by_keys() {
        scrollTo({ top: 0, behavior: "instant" });
        press(document.body, "n");
        const first = document.activeElement;
        equal("n: the first section", first.id, one("section.section").id);
    },
};
