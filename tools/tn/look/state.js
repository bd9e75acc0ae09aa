/* state.js - the one state of the page: what of the model is ablated, what is added to it, and which output is chosen. Every
   panel is drawn from it, so that no panel speaks of another model than the others: it asks `tn.gone`, and draws again at
   "tn-model". What cannot be computed here says that it is of the whole model. */
tn.gone = new Map();        /* key -> { name, back, added }: what is ablated, or added, and how the model becomes whole again */
const changed = () => {
    document.documentElement.classList.toggle("ablated", tn.gone.size > 0);
    document.dispatchEvent(new Event("tn-model"));
};
/* Takes something out of the model, or puts it back. ask(true or false) tells the model; it may fail, and then nothing has
   changed. */
tn.ablate = (key, name, ask) => {
    const off = !tn.gone.has(key);
    ask(off);
    if (off) tn.gone.set(key, { name, back: () => ask(false) });
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
tn.follow = (group, names, picker, set) => {
    if (!followers.has(group)) followers.set(group, []);
    const all = followers.get(group), self = { names, picker, set };
    all.push(self);
    return i => {
        for (const other of all) {
            const at = other === self ? -1 : other.names.indexOf(names[i]);
            if (at >= 0 && other.picker.value !== at) { other.picker.show(at); other.set(at); }
        }
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
