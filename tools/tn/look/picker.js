/* picker.js - one of many: buttons in a row where the names are few, else a text field that searches them. Both are worked
   with arrow keys, Home and End. `set(i)` picks from outside; onchange(i) is called in both cases. */
const few = 12;

const buttons = (label, names, pick) => {
    const row = tn.h("div", { class: "choices", role: "radiogroup", "aria-label": label });
    const all = names.map((name, i) => tn.h("button", { type: "button", role: "radio", onclick: () => pick(i) }, tn.token(name)));
    row.append(...all);
    row.addEventListener("keydown", event => {
        const to = tn.step(event.key, all.findIndex(button => button.tabIndex === 0), all.length);
        if (to < 0) return;
        event.preventDefault();
        pick(to);
        all[to].focus();
    });
    const show = i => all.forEach((button, k) => {
        button.setAttribute("aria-checked", k === i);
        button.tabIndex = k === i ? 0 : -1;
    });
    return { row, show };
};

/* What contains the text, names that begin with it first; at most 50 of them, because a list may have 100,000. */
tn.search = (names, text, most = 50) => {
    const wanted = text.trim().toLowerCase(), first = [], later = [];
    for (let i = 0; i < names.length && first.length < most; i++) {
        const at = tn.plain(names[i]).toLowerCase().indexOf(wanted);
        const near = names[i].trim().toLowerCase().startsWith(wanted);
        if (near) first.push(i);
        else if (at >= 0 && later.length < most) later.push(i);
    }
    return [...first, ...later].slice(0, most);
};

const field = (label, names, pick) => {
    const id = tn.id("list"), list = tn.h("ul", { class: "options", role: "listbox", id, hidden: true, "aria-label": label });
    const input = tn.h("input", { type: "text", role: "combobox", autocomplete: "off", spellcheck: "false", "aria-label": label,
                                  "aria-expanded": "false", "aria-controls": id, "aria-autocomplete": "list", dir: "auto" });
    let found = [], at = -1, shown = 0;
    const close = () => { list.hidden = true; input.setAttribute("aria-expanded", "false"); input.value = tn.plain(names[shown]);
        };
    const choose = i => { pick(i); close(); };
    const mark = to => {
        at = to;
        [...list.children].forEach((item, k) => item.setAttribute("aria-selected", k === at));
        const item = list.children[at];
        if (!item) return;
        input.setAttribute("aria-activedescendant", item.id);
        item.scrollIntoView({ block: "nearest" });
    };
    const open = text => {
        found = tn.search(names, text);
        list.replaceChildren(...found.map(i => tn.h("li", { role: "option", id: tn.id("option"), onmousedown: event => {
            event.preventDefault();
            choose(i);
        } }, tn.token(names[i]))));
        if (!found.length) list.append(tn.h("li", { class: "none", text: "no name contains this" }));
        list.hidden = false;
        input.setAttribute("aria-expanded", "true");
        mark(found.length ? 0 : -1);
    };
    const keys = {
        ArrowDown: () => list.hidden ? open("") : mark(Math.min(at + 1, found.length - 1)),
        ArrowUp:   () => list.hidden ? open("") : mark(Math.max(at - 1, 0)),
        Enter:     () => { if (!list.hidden && found[at] !== undefined) choose(found[at]); },
        Escape:    () => close(),
    };
    input.addEventListener("input", () => open(input.value));
    input.addEventListener("focus", () => input.select());
    input.addEventListener("blur", close);
    input.addEventListener("keydown", event => {
        if (!keys[event.key]) return;
        event.preventDefault();
        keys[event.key]();
    });
    const turn = by => pick(Math.max(0, Math.min(names.length - 1, shown + by)));
    const row = tn.h("div", { class: "combo" },
        tn.h("button", { type: "button", "aria-label": `previous ${label}`, onclick: () => turn(-1), text: "‹" }),
        tn.h("div", { class: "field" }, input, list),
        tn.h("button", { type: "button", "aria-label": `next ${label}`, onclick: () => turn(1), text: "›" }));
    return { row, show: i => { shown = i; close(); } };
};

tn.picker = (label, names, onchange, start = 0) => {
    const letters = names.length > few ? Infinity : names.reduce((sum, name) => sum + String(name).length + 3, 0);
    const picker = { value: start };
    const pick = i => {
        picker.value = i;
        show(i);
        onchange(i);
    };
    const { row, show } = (letters < 110 ? buttons : field)(label, names, pick);
    show(start);
    picker.set = pick;
    picker.show = i => { picker.value = i; show(i); };
    picker.element = tn.h("div", { class: "picker", hidden: names.length < 2 }, tn.h("span", { class: "label", text: label }),
        row);
    return picker;
};

/* A range with its name and value. */
tn.slider = (label, { min, max, step = 1, value, format = tn.format }, onchange) => {
    const id = tn.id("slider"), output = tn.h("output", { for: id, text: format(value) });
    const input = tn.h("input", { type: "range", id, min, max, step, value });
    const set = v => {
        output.textContent = format(v);
        input.setAttribute("aria-valuetext", format(v));
        onchange(v);
    };
    input.addEventListener("input", () => set(Number(input.value)));
    return { element: tn.h("div", { class: "slider" }, tn.h("label", { for: id, text: label }), input, output), input,
             set: v => { input.value = v; set(Number(input.value)); } };
};
tn.toggle = (label, pressed, onchange) => {
    const button = tn.h("button", { type: "button", class: "toggle", "aria-pressed": pressed, text: label, onclick: () => {
        const now = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", now);
        onchange(now);
    } });
    return button;
};
