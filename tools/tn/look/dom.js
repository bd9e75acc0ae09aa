/* dom.js - elements, text and numbers. Each script is a block of its own: what they share is in `tn`, the one global name.

   Names and tokens come from models of strangers. They become text nodes, never HTML; each is isolated by <bdi>, so that a
   right-to-left token does not turn its neighbours around, and characters that would be invisible are written out. */

/* Makes an element. Of the properties, functions are listeners (onclick: fn), the others attributes; `text` is its text. */
tn.make = (element, properties, children) => {
    for (const [name, value] of Object.entries(properties || {})) {
        if (name.startsWith("aria-") && typeof value === "boolean") { element.setAttribute(name, value); continue; }
        if (value === undefined || value === null || value === false) continue;
        if (typeof value === "function") element.addEventListener(name.slice(2), value);
        else if (name === "text") element.textContent = value;
        else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
    return element;
};
tn.h = (tag, properties, ...children) => tn.make(document.createElement(tag), properties, children);
tn.s = (tag, properties, ...children) =>
    tn.make(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);

/* ---- numbers */
tn.format = (x, digits = 4) => {
    if (x === null || x === undefined || Number.isNaN(x)) return "NaN";
    if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
    const size = Math.abs(x);
    const text = size === 0 ? "0"
        : Number.isInteger(x) && size < 1e15 ? size.toLocaleString("en-US")
        : size >= 1e5 || size < 1e-4 ? size.toExponential(digits - 1)
            .replace(/^1(?:\.0*)?e\+?|e\+?/, found => found[0] === "1" ? "10^" : "·10^")
            .replace(/\^(.*)/, (_, power) =>
            [...power].map(c => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]).join(""))
        : Number(size.toPrecision(digits)).toString();
    return (x < 0 ? "−" : "") + text;
};
/* The element carries the number as it is, so that a test, or another program, can read it without rounding. */
tn.number = (x, digits, text) => tn.h("data", { class: "num" + (x < 0 ? " below" : ""), value: String(x),
    "data-value": String(x), text: text === undefined ? tn.format(x, digits) : text });
/* For columns: this many significant digits, zeros at the end as well. */
tn.figures = (x, digits) => {
    const size = Math.abs(x), round = Number(size.toPrecision(digits));
    if (!(size >= 1e-4 && size < 1e5)) return tn.format(x, digits);
    return (x < 0 ? "−" : "") + (round < 10 ** digits ? size.toPrecision(digits) : tn.format(Math.round(size)));
};
tn.signed = x => (x > 0 ? "+" : "") + tn.format(x);
tn.percent = x => tn.format(100 * x, 3) + " %";

/* ---- names and tokens */
const bidi = /[\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]/;
tn.visible = character => {
    const code = character.codePointAt(0);
    if (character === " ") return "␣";
    if (character === "\n") return "↵";
    if (character === "\t") return "⇥";
    if (code < 32) return String.fromCodePoint(0x2400 + code);
    if (code === 127) return "␡";
    if (code < 160 && code > 127 || character.length === 1 && bidi.test(character))
        return "U+" + code.toString(16).toUpperCase().padStart(4, "0");
    return character;
};
/* Blanks within a name are only blanks; at its ends they are part of a token. */
tn.pieces = text => {
    const characters = [...String(text)];
    const hidden = (c, i) => c === " " ? i === 0 || i === characters.length - 1 : tn.visible(c) !== c;
    return characters.map((c, i) => ({ text: hidden(c, i) ? tn.visible(c) : c, hidden: hidden(c, i) }));
};
/* A path through a model, from a token to a logit. */
tn.path = text => text.replaceAll(" -> ", " → ");
tn.pathOf = text => tn.h("span", { class: "path" }, tn.path(text).split(" → ").map((step, i) => [i ? " → " : null,
    tn.h("span", { class: "step" }, tn.token(step))]));
tn.plain = text => tn.pieces(text).map(piece => piece.text).join("");
tn.token = (text, attributes) => {
    const element = tn.h("bdi", { class: "token", ...attributes });
    let run = "";
    const flush = () => { if (run) element.append(run); run = ""; };
    const long = String(text).length > 16;      /* may be broken after what separates its words */
    for (const piece of tn.pieces(text)) {
        if (!piece.hidden) {
            run += piece.text;
            if (long && /[._/]/.test(piece.text)) { flush(); element.append(tn.h("wbr")); }
            continue;
        }
        flush();
        element.append(tn.h("span", { class: piece.text.length > 1 ? "code long" : "code", text: piece.text }));
    }
    flush();
    if (text === "") element.append(tn.h("span", { class: "code long", text: "empty" }));
    return element;
};

/* ---- keys: the index that an arrow key, Home or End leads to in a row of `count` things, or -1 */
tn.step = (key, at, count) => {
    switch (key) {
    case "ArrowRight": case "ArrowDown": return Math.min(at + 1, count - 1);
    case "ArrowLeft":  case "ArrowUp":   return Math.max(at - 1, 0);
    case "Home": return 0;
    case "End":  return count - 1;
    default: return -1;
    }
};
/* Makes the heads of a table buttons that sort its lines: of[k](i) is what line i has in column k, undefined or NaN if nothing,
   which comes last; a column without it is not sorted. falls(k): whether a first click puts the largest first. */
tn.sortable = (heads, lines, body, of, falls) => {
    let by = -1, down = false;
    const missing = v => v === undefined || v === null || Number.isNaN(v);
    const order = (a, b) => missing(a) || missing(b) ? 0 : a - b || (Number.isNaN(a - b)
        ? String(a).localeCompare(String(b), "en", { numeric: true }) : 0);
    const sort = k => {
        down = k === by ? !down : falls(k);
        by = k;
        const keys = lines.map((_, i) => of[k](i));
        body.append(...lines.map((_, i) => i).sort((a, b) => missing(keys[a]) - missing(keys[b])
            || order(keys[a], keys[b]) * (down ? -1 : 1) || a - b).map(i => lines[i]));
        heads.forEach((th, i) => th.setAttribute("aria-sort", i !== k ? "none" : down ? "descending" : "ascending"));
    };
    heads.forEach((th, k) => { if (of[k]) th.replaceChildren(tn.h("button", { type: "button", class: "sort", title: th.title || null,
        text: th.textContent, onclick: () => sort(k) })); });
};
tn.ids = 0;
tn.id = name => "tn-" + name + "-" + ++tn.ids;

/* Calls `draw` when the element has another size. In a frame of its own, because drawing may change the size again. */
tn.resized = (element, draw) => new ResizeObserver(() => requestAnimationFrame(draw)).observe(element);
