/* state.js - the one state of the page: what of the model is ablated, what is added to it, which output is chosen, and what else
   a reader has chosen. Every panel is drawn from it, so that no panel speaks of another model than the others: it asks `tn.gone`, and draws again at
   "tn-model". What cannot be computed here says that it is of the whole model. What tn.keep is told is in the address of the
   page, so that a link opens it with these choices: text, position, token (if it is not the likeliest), off (what is ablated),
   steer (of the direction of a token), output, head, view, tensor, by, smoothing, without, training, held, log-loss, log-below,
   and the id of a section for its eigenvector or cell. Not kept are a drawing, steering by an eigenvector, the chosen pattern,
   the block whose eigenvectors are shown, "show anyway", and how tables are sorted and figures zoomed. */

/* ---- the address: #SECTION?KEY=VALUE&... tn.keep(key, set) gives a function that a choice of the reader is told to (null: the
   usual one). set(value) makes the choice that an address has; it returns false, or throws, if this page has none of that name.
   set() makes the usual one: what an address with choices does not name becomes what it was at first. All is set in the order of
   `rank`, because the later ones depend on the first; the address is written in it. */
const kept = new Map(), chosen = new Map(), early = ["text", "position", "off", "steer", "token", "output"];
const rank = key => early.includes(key) ? early.indexOf(key) : early.length;
let asked = null, place = "", opened = false, writing = 0;
const write = () => {
    if (!opened) return;
    clearTimeout(writing);
    writing = setTimeout(() => {
        const choices = new URLSearchParams([...chosen].sort(([a], [b]) => rank(a) - rank(b))).toString();
        const hash = place || choices ? "#" + encodeURIComponent(place) + (choices ? "?" + choices : "") : "";
        if (hash === location.hash) return;
        try { history.replaceState(history.state, "", location.pathname + location.search + hash); }
        catch { /* a page within another one may have no address */ }
    }, 200);
};
tn.keep = (key, set) => {
    kept.set(key, set);
    return value => {
        if (!opened) return;
        if (value === null) chosen.delete(key); else chosen.set(key, String(value));
        write();
    };
};
/* The section that is read. */
tn.reading = id => { place = id; write(); };
const note = tn.h("p", { id: "address", class: "small soft", role: "status", hidden: true });
const read = () => {
    const hash = location.hash.slice(1), at = hash.indexOf("?"), name = at < 0 ? hash : hash.slice(0, at);
    try { place = decodeURIComponent(name); } catch { place = name; }
    asked = at < 0 ? null : new Map(new URLSearchParams(hash.slice(at + 1)));
};
/* Opens the page as its address says, and says what of that it does not have. */
tn.openAddress = () => {
    read();
    const missing = [], section = place && document.getElementById(place);
    opened = true;
    if (asked && tn.gone.size) tn.restore();
    for (const key of asked ? [...new Set([...asked.keys(), ...kept.keys()])].sort((a, b) => rank(a) - rank(b)) : []) {
        if (!asked.has(key)) {
            if (chosen.has(key)) kept.get(key)();
            chosen.delete(key);
            continue;
        }
        let good = false;
        try { good = kept.has(key) && kept.get(key)(asked.get(key)) !== false; } catch { /* what it asks for is no name */ }
        if (good) chosen.set(key, asked.get(key));
        else missing.push([key === "off" ? "ablation of" : key, " ", tn.token(asked.get(key).slice(0, 80))]);
    }
    if (place && !section) { missing.push(["section ", tn.token(place.slice(0, 80))]); place = ""; }
    note.hidden = !missing.length;
    note.replaceChildren(...(missing.length ? ["The address asks for what this page does not have, which is ignored: ",
        ...missing.flatMap((one, i) => [i ? ", " : "", ...one]), "."] : []));
    if (section) section.scrollIntoView({ behavior: "instant" });
    write();
};
tn.addressNote = note;
addEventListener("hashchange", () => { if (opened) tn.openAddress(); });

/* ---- what is ablated */
tn.gone = new Map();        /* key -> { name, back, added }: what is ablated, or added, and how the model becomes whole again */
/* again(key) takes out what an address names so; it returns false if the model has no such part. */
let tell = () => {};
tn.keepAblations = again => {
    tell = tn.keep("off", (list = "") => list.split(",").filter(Boolean).map(again).every(good => good !== false));
};
const changed = () => {
    const off = [...tn.gone].filter(([, one]) => !one.added);
    tell(off.length ? off.map(([key, one]) => one.link || key).join() : null);
    document.documentElement.classList.toggle("ablated", tn.gone.size > 0);
    document.dispatchEvent(new Event("tn-model"));
};
/* Takes something out of the model, or puts it back. ask(true or false) tells the model; it may fail, and then nothing has
   changed. link: what the address calls it, if not by its key. */
tn.ablate = (key, name, ask, link) => {
    const off = !tn.gone.has(key);
    ask(off);
    if (off) tn.gone.set(key, { name, link, back: () => ask(false) });
    else tn.gone.delete(key);
    changed();
};
/* Adds something to the model, in place of what was added under this key: ask() tells the model, back() takes it away. */
tn.add = (key, name, ask, back) => {
    ask();
    tn.gone.set(key, { name, back, added: true });
    changed();
};
tn.takeBack = key => {
    if (!tn.gone.has(key)) return;
    tn.gone.get(key).back();
    tn.gone.delete(key);
    changed();
};
tn.restore = () => {
    for (const one of tn.gone.values()) one.back();
    tn.gone.clear();
    changed();
};
/* Calls draw now, and whenever the model is another one. */
tn.drawn = draw => {
    draw();
    document.addEventListener("tn-model", draw);
};

/* ---- eigenvectors of an image model: eigenvector k of output o adds value (vector . x)^2. The spectra, eigenvectors, matrices
   and sums of the page are those of the first section that has them. */
const part = (o, k) => `eigenvector ${o} ${k}`;
const owner = () => (tn.page.sections || []).find(section => section.type === "eigen" && section.outputs);
tn.partKey = part;
tn.isGone = (o, k) => tn.gone.has(part(o, k));
/* Whether a section is of the model that is ablated; sections of a second model are not. */
tn.isMain = section => tn.page.live && tn.page.live.kind === "images" && !/-b$/.test(section.id || "");
/* The eigenpairs of output o that are ablated. */
tn.goneOf = o => {
    const eigen = owner();
    if (!tn.gone.size || !eigen || !eigen.outputs[o]) return [];
    return tn.eigenvectors(eigen.outputs[o]).filter(one => tn.isGone(o, one.k));
};
/* What the library says of values: how many equal ones would be as spread (tn_effective_rank), and their norm. */
tn.rankOf = values => {
    const size = values.reduce((sum, v) => sum + Math.abs(v), 0), squares = values.reduce((sum, v) => sum + v * v, 0);
    return squares > 0 ? size * size / squares : 0;
};
tn.normOf = values => Math.sqrt(values.reduce((sum, v) => sum + v * v, 0));

/* ---- the choice of an output, by name: pickers of one group follow each other. */
const followers = new Map();
/* Shows an output in all pickers that have it, but for one. Returns whether there are any. */
const showOutput = (all, name, but) => {
    const others = all.filter(other => other !== but && other.names.includes(name));
    for (const other of others) {
        const at = other.names.indexOf(name);
        if (other.picker.value !== at) { other.picker.show(at); other.set(at); }
    }
    return others.length > 0;
};
tn.follow = (group, names, picker, set) => {
    if (!followers.has(group)) {
        const of = { all: [], usual: names[picker.value] };
        of.told = tn.keep(group, (name = of.usual) => showOutput(of.all, name));
        followers.set(group, of);
    }
    const of = followers.get(group), { all, told } = of, self = { names, picker, set };
    all.push(self);
    return i => {
        if (!opened) of.usual = names[i];
        showOutput(all, names[i], self);
        told(names[i]);
    };
};

/* ---- what is ablated and added, at the foot of the window wherever the page is scrolled to */
const bar = tn.h("div", { id: "ablated", role: "status", hidden: true });
document.body.append(bar);
document.addEventListener("tn-model", () => {
    const all = [...tn.gone.values()], chips = (word, ones) => ones.length
        ? [tn.h("span", { text: word }), ...ones.map(({ name }) => tn.h("span", { class: "chip" }, name))] : [];
    bar.hidden = !all.length;
    bar.replaceChildren(...(all.length ? [...chips("Without ", all.filter(one => !one.added)),
        ...chips("With ", all.filter(one => one.added)),
        tn.h("button", { type: "button", text: "restore all", onclick: () => tn.restore() })] : []));
});
/* A line that is there while something is ablated or added, in a section that stays as it was. */
tn.ofWhole = () => tn.h("p", { class: "of-whole",
    text: "Of the whole model: what is ablated or added changes none of these numbers." });
