/* main.js - the last script: heading, list of sections, theme, keys, and each section in a task of its own, so that the first is
   on the screen before the last has been drawn. A section that fails says so, and the others go on. */
const page = tn.page, content = document.getElementById("content"), contents = document.getElementById("contents");

/* ---- theme: the system's, light or dark, kept where the browser allows that */
const themes = ["auto", "light", "dark"], signs = { auto: "◐", light: "☀", dark: "☾" };
const remembered = () => { try { return localStorage.getItem("tn-theme"); } catch { return null; } };
const remember = theme => { try { localStorage.setItem("tn-theme", theme); } catch { /* a page that is a file may not */ } };
const themeButton = tn.h("button", { type: "button", class: "theme", id: "theme", onclick: () => {
    const next = themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length];
    setTheme(next);
    remember(next);
} });
const setTheme = theme => {
    document.documentElement.dataset.theme = theme;
    themeButton.replaceChildren(tn.h("span", { "aria-hidden": "true", text: signs[theme] }), " " + theme);
    themeButton.setAttribute("aria-label", `theme: ${theme}`);
    document.dispatchEvent(new Event("tn-theme"));
};
setTheme(themes.includes(remembered()) ? remembered() : "auto");
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("tn-theme")));

/* Paper is light: what is drawn with the colours of the dark theme would be invisible on it. */
let kept = "auto";
addEventListener("beforeprint", () => {
    kept = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    document.dispatchEvent(new Event("tn-theme"));
});
addEventListener("afterprint", () => setTheme(kept));

/* ---- help */
const keys = [["n p", "next and previous section"], ["t", "theme: the system’s, light, dark"], ["Tab", "next control"],
    ["arrows Home End", "within a control: choose, move"],
    ["+ − 0", "in a matrix: nearer, farther, all of it"], ["Shift arrows", "in a matrix: move the view"],
        ["PageUp PageDown", "in a matrix: previous and next output"], ["?", "this list"]];
const help = tn.h("dialog", { class: "help", "aria-label": "keys" }, tn.h("h2", { text: "Keys" }),
    tn.h("dl", {}, keys.map(([key, what]) => tn.h("div", {},
    tn.h("dt", {}, key.split(" ").map(k => tn.h("kbd", { text: k }))), tn.h("dd", { text: what })))),
        tn.h("form", { method: "dialog" }, tn.h("button", { text: "close" })));
const helpButton = tn.h("button", { type: "button", class: "theme", id: "help", "aria-label": "keys", text: "?",
    onclick: () => help.showModal() });

/* ---- heading and sections */
const kinds = { images: "an image model", language: "a language model", tensor: "tensors", comparison: "two models",
    runs: "training runs" };
content.append(tn.h("header", { class: "top" },
    tn.h("div", { class: "switches" }, themeButton, helpButton),
    tn.h("p", { class: "kind", text: kinds[page.kind] || page.kind }),
    tn.h("h1", {}, tn.token(page.title)),
    page.about ? tn.h("p", { class: "about" }, tn.h("bdi", { text: page.about })) : null, tn.addressNote));

const complaint = error => tn.h("p", { class: "alarm", role: "alert" }, "This part cannot be shown: ",
    tn.h("bdi", { text: error.message }));
/* Sections of a page of two language models that are not of the first alone. */
const ofBoth = ["learnt", "live", "card", "compare", "notes"];
const frame = section => {
    const box = tn.h("div", { class: "body" }), heading = tn.id("heading");
    const element = tn.h("section", { id: section.id, class: "section", "data-type": section.type, "aria-labelledby": heading,
        tabindex: -1 },
        tn.h("h2", { id: heading }, tn.h("a", { href: "#" + encodeURIComponent(section.id) }, tn.token(section.title)),
            page.first && !ofBoth.includes(section.type) ? tn.h("span", { class: "soft" }, " of ", tn.token(page.first)) : null),
        typeof section.text === "string" ? tn.h("p", { class: "lead" }, tn.h("bdi", { text: section.text })) : null, box);
    content.append(element);
    contents.append(tn.h("a", { href: "#" + encodeURIComponent(section.id) }, tn.token(section.title)));
    return box;
};
/* Sections of the file, or of what is no longer there, say so while something is ablated. */
const still = ["card", "time", "compare"];
const standing = (section, box) => {
    if (!page.live) return;
    const mlp = `blocks.${section.block}.mlp`, line = tn.ofWhole(), removed = tn.h("p", { class: "soft", hidden: true,
        text: `The MLP of block ${section.block} is ablated, and adds nothing.` });
    /* The sections of two models are computed before; what is ablated of one is seen in the live part. */
    if (page.live.models) {
        if (section.type !== "live" && section.type !== "notes") box.before(line);
        return;
    }
    if (section.block === undefined) {
        if (still.includes(section.type) || section.of_whole) box.before(line);
        return;
    }
    box.before(removed, line);
    tn.drawn(() => {
        const off = tn.gone.has(mlp), part = [...tn.gone.keys()].some(key => key.startsWith(`vector ${section.block} `));
        removed.hidden = !off;
        box.hidden = off;
        line.hidden = off || !part;
    });
};
tn.sections.notes = (section, box) => box.append(tn.h("ul", { class: "notes" },
    section.notes.map(note => tn.h("li", {}, tn.token(note)))));
const fill = (section, box) => {
    try {
        if (!tn.sections[section.type]) throw new Error(`its type is ${section.type}, which this page does not know`);
        tn.sections[section.type](section, box);
        standing(section, box);
    } catch (error) {
        console.error(error);
        box.append(complaint(error));
    }
};

/* ---- the live part, if there is one. Without it everything else is as it was. */
const wasm = document.getElementById("tn-wasm");
const withoutLive = () => typeof WebAssembly !== "object" ? "this browser has no WebAssembly"
    : !wasm || !wasm.textContent.trim() ? "the program that made this page was built without a compiler for " +
        "WebAssembly (sh tools/setup.sh --look installs one; then build tn and make the page again)"
    : !tn.live ? "the page has no script for it" : "";
tn.sections.live = (section, box) => {
    const why = withoutLive();
    if (why) box.append(tn.h("p", { class: "soft", id: "no-live",
        text: `There is no live part here: ${why}. All that is below was computed before.` }));
    else tn.live(page.live, box);
};
const liveSection = page.live && { type: "live", id: "live", title: "Live", text: withoutLive() ? "" : page.live.text ||
    (page.live.kind === "two images" ? "Both models themselves run in this page, on the same picture. Draw, and see what each "
        + "predicts, and why." : page.live.models ? "Both models run in this page, on the same input."
        : page.kind === "language" ? "The model itself runs in this page. Type a text and see what it predicts, and why."
        : "The model itself runs in this page. Draw, and see what it predicts, and why.") };

/* ---- the place in the list of sections; n and p go through it */
const links = () => [...contents.querySelectorAll("a")], sectionsShown = () => [...content.querySelectorAll("section.section")];
/* A line goes down through the window as the page is scrolled: from its top, where the page begins, to its foot, where the page
   ends, and in between it is at a third. The section at it is the one that is read; of sections that end the page, or are asked
   for by a link or a key, that one, as long as the reader does not scroll. */
let aim = null;
for (const name of ["wheel", "touchmove"]) addEventListener(name, () => { aim = null; }, { passive: true });
const here = () => {
    const all = sectionsShown(), most = document.documentElement.scrollHeight - innerHeight, left = Math.max(0, most - scrollY);
    const top = element => element.getBoundingClientRect().top, rest = Math.min(most, 0.65 * innerHeight);
    if (aim && (Math.abs(top(aim)) < 80 || left < 2 && top(aim) > 0)) return all.indexOf(aim);
    const line = most > 0 ? Math.max(Math.min(0.35 * innerHeight, scrollY), innerHeight * (1 - left / rest)) : 0;
    return all.reduce((at, element, i) => top(element) < line ? i : at, 0);
};
const mark = () => {
    const at = here();
    links().forEach((link, i) => {
        const is = i === at, was = link.hasAttribute("aria-current");
        if (is) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
        /* Where the list is one line, the current section is seen in it. */
        if (is && !was && contents.scrollWidth > contents.clientWidth)
            contents.scrollTo({ left: link.offsetLeft - contents.clientWidth / 2 + link.offsetWidth / 2 });
    });
};
document.addEventListener("tn-live", () => { tn.isLive = true; }, { once: true });
let waiting = false;
addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => {
        waiting = false;
        mark();
        tn.reading(scrollY > 40 ? sectionsShown()[here()].id : "");
    }, 30);
}, { passive: true });
const go = by => {
    const all = sectionsShown(), element = all[Math.max(0, Math.min(all.length - 1, (scrollY < 40 && by > 0 ? -1
        : here()) + by))];
    if (!element) return;
    aim = element;
    element.scrollIntoView({ block: "start" });
    element.focus({ preventScroll: true });
    mark();
};
contents.addEventListener("click", event => {
    const at = links().indexOf(event.target.closest("a"));
    if (at < 0) return;
    aim = sectionsShown()[at];
    setTimeout(mark, 30);
});
document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (/^(input|textarea|select)$/i.test(event.target.tagName) || event.target.isContentEditable || help.open) return;
    const action = { n: () => go(1), p: () => go(-1), t: () => themeButton.click(), "?": () => help.showModal() }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
});

/* ---- what is wider than its place fades where it continues */
const edge = element => element.classList.toggle("continues", element.scrollLeft + element.clientWidth < element.scrollWidth - 2);
const edges = () => { for (const element of document.querySelectorAll("#contents, .scroll")) edge(element); };
document.addEventListener("scroll", event => {
    if (event.target.matches && event.target.matches("#contents, .scroll")) edge(event.target);
}, { capture: true, passive: true });
tn.resized(content, edges);

/* ---- all of it. `tn.opened`, `tn.filled`: milliseconds until the first section, and until all of them. */
const noteSection = (page.notes || []).length && { type: "notes", id: "notes", title: "Notes",
    text: "What is exact here, and what is left out.", notes: page.notes };
const learnt = (page.sections || []).filter(section => section.type === "learnt");
const all = [...learnt, ...(liveSection ? [liveSection] : []), ...(page.sections || []).filter(section =>
    !learnt.includes(section)),
    ...(noteSection ? [noteSection] : [])];
const places = all.map(section => [section, frame(section)]);
document.body.append(help);
content.append(tn.h("footer", { class: "soft small" }, page.made, " · this file needs no network"));
mark();
const next = () => {
    if (!places.length) {
        tn.filled = performance.now();
        if (!liveSection || withoutLive() || tn.isLive) tn.openAddress();
        else document.addEventListener("tn-live", tn.openAddress, { once: true });
        document.dispatchEvent(new Event("tn-filled"));
        return;
    }
    fill(...places.shift());
    tn.opened = tn.opened || performance.now();
    setTimeout(next);
};
next();
