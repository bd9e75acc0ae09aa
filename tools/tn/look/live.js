/* live.js - the model itself in the page: type, see what it predicts and why, ablate and see what changes; live_images.js has
   what draws. Its functions are those of live.c; what they answer is shown as it is, with the time that it took. */

/* ---- numbers */
tn.softmax = logits => {
    const most = logits.reduce((a, b) => Math.max(a, b), -Infinity), powers = Array.from(logits, x => Math.exp(x - most));
    const sum = powers.reduce((a, b) => a + b, 0);
    return powers.map(x => x / sum);
};
/* The index of the largest number. */
tn.best = values => values.reduce((best, x, i) => x > values[best] ? i : best, 0);
/* A term of a sum, and what it adds up to: as many digits as make a column of one width. */
tn.fixed = x => {
    const size = Math.abs(x), text = size.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3);
    return (x < 0 && Number(text) ? "−" : "") + text;
};
tn.term = x => (x > 0 && Number(tn.fixed(x)) ? "+" : "") + tn.fixed(x);
tn.logit = x => tn.number(x, 4, (x < 0 ? "−" : "") + Math.abs(x).toFixed(2));
/* A probability, as people write it. */
tn.chance = x => x < 1e-4 ? "< 0.01 %" : x > 0.9995 ? "> 99.9 %" : (100 * x).toFixed(x < 0.1 ? 2 : 1) + " %";

/* Runs a question, and says how long it took; what goes wrong is said in its place. */
const answering = status => question => {
    const begun = performance.now();
    try {
        question();
        tn.answered = performance.now() - begun;
        status.replaceChildren("answered in ", tn.number(tn.answered, 3), " ms");
    } catch (error) {
        console.error(error);
        status.replaceChildren(tn.h("span", { class: "alarm" }, tn.h("bdi", { text: error.message })));
    }
};
/* What the whole model answers to a question. It is then again without what `calls` take out, also where the question fails. */
const ofWhole = (call, calls, question) => {
    call("live_restore");
    try { return question(call); }
    finally { for (const one of calls) call(...one); }
};
/* A button that takes something out of the model, pressed while it is out. Its name says what, and then what the button shows;
   it stays the same, so that a screen reader does not say both "pressed" and "ablated". */
const ablation = (off, what, onclick, attributes, ...children) =>
    tn.h("button", { type: "button", "aria-pressed": off, title: off ? "restore" : "ablate", ...attributes, onclick },
        tn.h("span", { class: "spoken", text: `ablate ${what}: ` }),
        off ? tn.h("b", { "aria-hidden": true, text: "ablated " }) : "", ...children);
/* While there is something to restore. */
const restoring = () => {
    const tools = tn.h("div", { class: "tools" }, tn.h("button", { type: "button", text: "restore all",
        onclick: () => tn.restore() }));
    tn.drawn(() => { tools.hidden = !tn.gone.size; });
    return tools;
};
const toAblate = () => tn.h("span", { class: "no-print", text: " · click to ablate" });
/* What people call a part of a language model. */
tn.partName = name => {
    const [, block, what, head] = name.match(/^blocks\.(\d+)\.(attn|mlp)\.?(\d+|bias)?$/) || [];
    return what === "mlp" ? `MLP of block ${block}` : what && head !== "bias" ? `head ${head} of block ${block}`
        : what ? `biases of block ${block}` : name === "embed" ? "embedding of the last token"
        : name === "norm.bias" ? "bias of the last norm" : name;
};
/* The terms of a logit: heads and MLPs, which a click takes out, in a row for each block, then the others, and their sum.
   values: of the names of parts, none of them if they are not known; limit: of the colours; of: what begins their keys; total:
   what their sum is; take(block, head, key): the MLP is after the heads. */
const largestTerm = values => Math.max(1e-9, ...[...values.values()].map(Math.abs));
const termsTable = ({ layers, heads, values, limit = largestTerm(values), of = "", total, take, named = tn.partName }) => {
    const clickable = new Set();
    const cell = (block, head) => {
        const name = head < heads ? `blocks.${block}.attn.${head}` : `blocks.${block}.mlp`, key = of + name;
        const value = values.get(name), off = tn.gone.has(key);
        clickable.add(name);
        return tn.h("td", {}, ablation(off, tn.partName(name), () => take(block, head, key), {
            class: "part ablate" + (off ? " gone" : ""), "data-part": key,
            "data-value": off ? "0" : value === undefined ? null : String(value),
            style: off ? null : tn.shade((value || 0) / limit) }, off ? "" : value === undefined ? "·" : tn.term(value)));
    };
    const columns = [...Array.from({ length: heads }, (_, h) => "head " + h), "MLP"];
    const rows = Array.from({ length: layers }, (_, block) => tn.h("tr", {},
        tn.h("th", { scope: "row", text: "block " + block }), columns.map((_, head) => cell(block, head))));
    const sum = [...values.values()].reduce((total, value) => total + value, 0);
    const other = (name, value, attributes, text = tn.term(value)) => tn.h("tr", attributes,
        tn.h("th", { scope: "row", colspan: heads + 1 }, name), tn.h("td", {}, tn.number(value, 3, text)));
    const others = [...values].filter(([name]) => !clickable.has(name)).map(([name, value]) => other(named(name), value));
    return tn.h("div", { class: "scroll" }, tn.h("table", { class: "parts" },
        tn.h("thead", {}, tn.h("tr", {}, tn.h("td"), columns.map(text => tn.h("th", { scope: "col", text })))),
        tn.h("tbody", {}, rows), values.size ? tn.h("tfoot", {}, others,
            other(total, sum, { class: "sum" }, tn.fixed(sum))) : null));
};
/* What the terms of a model add up to; while they are outdated it is the logit of nothing that is shown. */
const isCapped = ({ config }) => JSON.parse(config).softcap > 0;
const totalOf = (live, known) => !known ? "sum" : isCapped(live) ? "sum, before the soft cap" : "sum: the logit";

Object.assign(tn, { answering, askWhole: ofWhole, ablation, restoring });

/* ---- language: what its answers look like */
const inseparable = () => tn.h("p", { class: "soft small", text: "The parts cannot be told apart in this model, because the " +
    "norms of later blocks change what earlier ones have written." });
/* The eight tokens with the largest probabilities, of equal ones the first. */
const likeliest = chances => {
    const best = [];
    for (let id = 0; id < chances.length; id++) {
        if (best.length === 8 && !(chances[id] > chances[best[7]])) continue;
        let at = Math.min(best.length, 7);
        for (; at && chances[id] > chances[best[at - 1]]; at--) best[at] = best[at - 1];
        best[at] = id;
    }
    return best;
};
/* Tokens with their probabilities and logits. was: probabilities in the whole model, or nothing; token: that is explained;
   beside(id): what is said of a token. */
const nextTable = (names, ids, { numbers, chances, was }, { token, best, beside, explain, ...options }) => tn.bars(ids.map(id =>
    ({ value: chances[id], text: tn.chance(chances[id]), class: id === best ? "best" : "",
        label: tn.h("span", {}, tn.h("button", { type: "button", class: "plain", "aria-pressed": id === token,
            title: "explain this token", onclick: () => explain(id) }, tn.token(names[id])), beside(id)),
        notes: [tn.logit(numbers[id]), ...(was ? [tn.number(was[id], 3, tn.chance(was[id]))] : [])] })),
    { head: ["next token", "", "probability", "logit", ...(was ? ["was"] : [])], ...options });
const each = 7;                                 /* numbers of an eigenvector, before all of their components */
const figures = x => tn.number(x, 3, tn.figures(x, 3));
/* The eigenvectors of an answer, each named by the tokens on the text's side. away: those that are ablated, which are not among
   those of the present model, unless the answer is older. */
const vectorTable = (names, { answer, block }, away, { hide, show, along }) => {
    const { count, numbers } = answer, nearest = ids => [...ids].filter(id => id >= 0).map(id => [tn.token(names[id]), " "]);
    const all = Array.from({ length: count }, (_, k) => ({ k, numbers: numbers.subarray(each * k, each * k + each) }))
        .filter(({ k }) => !away.some(one => one.answer === answer && one.k === k));
    const some = all.sort((a, b) => Math.abs(b.numbers[2]) - Math.abs(a.numbers[2])).slice(0, 8);
    const row = ({ k, numbers: [value, activation, part, ...ids] }) => ({ value: part, text: tn.figures(part, 3),
        notes: [figures(value), figures(activation)],
        label: tn.h("span", {}, ablation(false, `eigenvector ${k} of block ${block}`, () => hide(k),
            { class: "plain ablate", "data-k": k }, nearest(ids)), tn.h("button", { type: "button", class: "plain steer",
            title: `steer by eigenvector ${k}`, text: "steer", onclick: () => along(k) })) });
    const gone = one => ({ value: 0, class: "gone", notes: [figures(one.numbers[0]), tn.number(0)],
        label: ablation(true, `eigenvector ${one.k} of block ${block}`, () => show(one),
            { class: "plain ablate" }, nearest(one.numbers.slice(3))) });
    const rest = some.reduce((sum, one) => sum - one.numbers[2], numbers[each * count]);
    const others = { label: "all the others", value: rest, text: tn.figures(rest, 3), class: "rest", notes: ["", ""] };
    return [tn.h("div", { class: "scroll" }, tn.bars([...some.map(row), ...away.map(gone), others],
        { head: ["nearest tokens", "", "contribution", "eigenvalue", "activation"] })),
        tn.h("p", { class: "total" }, "the MLP of this block adds ", figures(numbers[each * count]))];
};
const pathsTable = (names, { count, numbers, words }, capped) => {
    const shown = Math.min(count, 8), rest = numbers.slice(3, 3 + shown).reduce((sum, value) => sum - value, numbers[0]);
    const named = word => tn.path(word.replace(/E\[(\d+)\]/g, (_, id) => `E[${tn.plain(names[id])}]`));
    const row = (label, value, more) => ({ label, value, text: tn.figures(value, 3), ...more });
    return [tn.h("h4", {}, "Paths that add most to it"), tn.h("div", { class: "scroll" }, tn.bars([
        ...Array.from({ length: shown }, (_, i) => row(tn.pathOf(named(words[i])), numbers[3 + i])),
        row("all other paths", rest, { class: "rest" })])), tn.h("p", { class: "total" },
        capped ? "logit, before the soft cap " : "logit ", tn.logit(numbers[0]))];
};

/* What is taken out of a model or added to it: the calls that make the whole model this one. */
const changesOf = (call, marks) => {
    const calls = new Map(), on = (key, one) => { call(...one); calls.set(key, one); };
    const off = (key, one) => { call(...one); calls.delete(key); };
    return { calls, all: () => [marks, ["live_restore"], ...calls.values()],
        take: (key, name, out, back, link) => tn.ablate(key, name, gone => gone ? on(key, out) : off(key, back), link),
        add: (key, name, one, back) => tn.add(key, name, () => on(key, one), () => off(key, back)) };
};

/* What the eigenvectors of a token's matrix in the chosen block add, and which of them are ablated. chosen(): another block is;
   act(change): changes the model; steer(vector, name, block). */
const vectorPanel = (names, layers, changes, { chosen, act, steer }) => {
    const title = tn.h("h4", { text: "Eigenvectors that contribute most" }), rows = tn.h("div", { id: "live-vectors" });
    const hidden = new Map();                   /* key -> the row of an eigenvector that is ablated, and its block and token */
    let block = 0, picked = false, spoke = null, ever = 0;
    const blocks = tn.picker("block", Array.from({ length: layers }, (_, i) => String(i)), i => {
        block = i;
        picked = true;
        chosen();
    });
    const quoted = id => tn.token(names[id], { class: "token piece" }), nothing = new Float64Array(0);
    const vectorOf = ({ count, numbers }, k) => {
        const n = (numbers.length - 1) / count - each, from = each * count + 1 + k * n;
        return numbers.slice(from, from + n);
    };
    const take = (answer, block, token, k) => {
        const id = ever++, key = `vector ${block} ${token} ${id}`, numbers = answer.numbers.slice(each * k, each * k + each);
        hidden.set(key, { key, id, k, block, token, answer, numbers });
        changes.take(key, ["an eigenvector of ", quoted(token), ` in block ${block}`],
            ["live_hide", block, token, id, vectorOf(answer, k)], ["live_hide", block, token, id, nothing],
            `vector ${block} ${token} ${numbers[0]}`);
    };
    const show = () => {
        const { answer, block, token } = spoke;
        const away = [...hidden.values()].filter(one => one.block === block && one.token === token && tn.gone.has(one.key));
        rows.replaceChildren(...vectorTable(names, spoke, away, { hide: k => act(() => take(answer, block, token, k)),
            show: one => act(() => changes.take(one.key, "", [], ["live_hide", block, token, one.id, nothing])),
            along: k => steer(vectorOf(answer, k), () => [`eigenvector ${k} of `, quoted(token)], block) }));
    };
    return { element: tn.h("div", { id: "live-eigen" }, title, tn.h("div", { class: "tools" }, blocks.element), rows), take,
        get block() { return block; },
        /* The block to begin with, as long as none was chosen. */
        begin(at) { if (!picked) { block = at; blocks.show(at); } },
        ask(token) { title.replaceChildren("Eigenvectors that contribute most to ", quoted(token), toAblate()); },
        show(answer, token) { spoke = { answer, block, token }; show(); },
        none(why, message) { spoke = null; rows.replaceChildren(tn.h("p", { class: "soft small", title: message, text: why })); },
        again() { if (spoke) show(); } };
};

/* ---- language: the tokens and their losses, the next token at any position, the heads and MLPs that wrote it, patterns,
   eigenvectors, paths; a click takes one out, or adds a direction. What is typed is answered at once; what explains the answer is
   computed beside the page, when the typing pauses. Both are told what is ablated and added with every question, so that they
   answer for the same model. */
const language = (call, live, box) => {
    const files = [tn.array(live.weights), live.config, live.tokenizer || ""];
    const model = call("live_language", ...files), [, layers, heads] = model.numbers;
    const marks = ["live_marks", live.marks === false ? 0 : 1];
    call(...marks);
    const ask = tn.aside(tn.bytes("tn-wasm"), call, ["live_language", ...files]);
    const names = (tn.page.names || {}).tokens || model.words;
    const status = tn.h("output", { class: "status" }), answer = answering(status);
    let length = 0, position = 0, token = -1, before = null, waiting = 0, turn = 0;
    let values = new Map(), why = "";
    let unfinished = false;                     /* whether all of an explanation is still asked for */
    const answered = { ids: [], next: [] };     /* the tokens of the text, and what follows: [id, probability]... */
    let patternsOf = "";                        /* the text and the model whose patterns are shown */
    const typed = tn.typed(names, at => goTo(at)), patterns = tn.patterns(layers, heads);
    const scores = tn.h("div", { id: "live-scores" }), parts = tn.h("div", { id: "live-parts" });
    const changes = changesOf(call, marks), { calls } = changes, paths = tn.h("div", { id: "live-paths" });
    const vectors = vectorPanel(names, layers, changes, { chosen: () => explain(unfinished),
        act: change => { if (length) answer(change); },
        steer: (vector, name, block) => steering.along(vector.slice(0, model.numbers[3]), name, block) });
    const text = tn.h("textarea", { id: "live-text", class: "no-print", rows: 2, spellcheck: "false", dir: "auto",
        "aria-label": "text", oninput: () => read() });
    const beginning = text.value = live.prompt || "Once upon a time";

    /* The losses of the tokens; null: tokens of this model see those after them. */
    const lossesOf = () => { try { return call("live_losses").numbers; } catch { return null; } };
    /* What the whole model says of the same text. */
    const whole = () => ofWhole(call, calls.values(), () => ({ next: call("live_next").numbers, losses: lossesOf() }));
    const showNext = () => {
        const { count, numbers } = call("live_next"), chances = numbers.subarray(count);
        const order = likeliest(chances);
        const losses = lossesOf(), follows = position + 1 < length ? answered.ids[position + 1] : -1;
        if (!tn.gone.size) before = null;
        else if (!before) before = whole();
        if (token < 0) token = order[0];
        toldToken(token === order[0] ? null : names[token]);
        answered.next = order.slice(0, 5).map(id => [id, chances[id]]);
        typed.show(answered.ids, losses, before && before.losses, position);
        scores.replaceChildren(tn.h("h4", {}, "Next token after ", quoted(answered.ids[position])),
            nextTable(names, follows < 0 || order.includes(follows) ? order : [...order, follows],
                { numbers, chances, was: before && before.next.subarray(count) }, { token, best: token,
                explain: id => { token = id; question(); }, beside: id => id === follows ? [tn.h("span", { class: "spoken",
                    text: " follows in the text" }), tn.h("span", { "aria-hidden": true, text: " ✓" })] : null }),
            follows < 0 ? "" : tn.h("p", { class: "soft small", text: "✓ follows in the text" }));
    };
    /* Another position of the text: its prediction, and what explains it. */
    const goTo = at => {
        if (!length || at === position) return;
        position = at;
        toldPosition(at === length - 1 ? null : at);
        token = -1;
        before = null;
        call("live_at", position);
        question();
    };

    const quoted = id => tn.token(names[id], { class: "token piece" });
    const partOf = (block, head) => head < heads ? `blocks.${block}.attn.${head}` : `blocks.${block}.mlp`;
    /* Of the constants of the block that is steered. */
    const steeredPart = () => calls.has("steering") ? `blocks.${calls.get("steering")[1]}.attn.bias` : "";
    const inWords = name => name === steeredPart() ? `what is added in block ${name.split(".")[1]}` : tn.partName(name);
    const showParts = known => parts.replaceChildren(
            tn.h("h4", {}, "The logit of ", quoted(token), " as a sum over the parts of the model", toAblate()),
            termsTable({ layers, heads, values, total: totalOf(live, known), named: inWords,
                take: (block, head, key) => ablate(key, block, head) }),
            why ? inseparable() : "");

    /* Whether all that is shown is what the page was made with. */
    const asMade = () => !tn.gone.size && text.value === beginning && position === length - 1;
    /* The rest of the page that is of a text: sections that show the text of the page, until it or the model is another one. */
    const tell = found => {
        const all = Array.from(answered.ids, id => names[id]), told = ([name, value]) => [inWords(name), value];
        tn.answer = asMade() ? null : { all, tokens: all.slice(0, position + 1), token: names[token],
            next: answered.next.map(([id, chance]) => [names[id], chance]), values: new Map([...values].map(told)),
            paths: found && { rows: Array.from({ length: found.count }, (_, i) =>
                ({ path: found.words[i].replace(/E\[(\d+)\]/g, (_, id) => `E[${names[id]}]`), value: found.numbers[3 + i] })),
                exact: found.numbers[0] },
            patterns: block => ask(...changes.all(), ["live_text", text.value], ["live_at", position],
                ["live_patterns", block]) };
        document.dispatchEvent(new Event("tn-answer"));
    };

    /* Those of all blocks, unless they are shown: another position, or token, has the same. */
    const showPatterns = async (mine, current) => {
        const wanted = JSON.stringify([text.value, [...calls].map(([key, [name, ...given]]) => [key, name, String(given)])]);
        if (wanted === patternsOf) { patterns.element.classList.remove("old"); return; }
        const tokens = Array.from(answered.ids, id => names[id]);
        for (let block = 0; block < layers; block++) {
            const answer = await current(["live_patterns", block]);
            if (mine !== turn) return;
            patterns.show(block, answer, tokens);
        }
        patternsOf = wanted;
        patterns.element.classList.remove("old");
    };
    /* Asks for all that explains `token` after the position. all: otherwise only for the eigenvectors. */
    const explain = async (all = true) => {
        if (!length) return;
        unfinished = all;
        let found = null;
        const mine = ++turn, asked = token, now = text.value, at = position;
        const once = question => ask(...changes.all(), ["live_text", now], ["live_at", at], question);
        /* Only about the text that is there: the page's program answers where there is no worker. */
        const current = question => once(question).catch(error => {
            if (mine !== turn || !error.ended) throw error;
            return once(question);
        });
        await ask.ready;
        const shown = async (element, question, show, sorry) => {
            if (mine !== turn) return;
            try {
                const answer = await current(question());
                if (mine !== turn) return;
                show(answer);
            } catch (error) {
                if (mine !== turn) return;
                sorry(error.message);
            }
            element.classList.remove("old");
        };
        if (all) await shown(parts, () => ["live_parts", asked], ({ words, numbers }) => {
            values = new Map(words.map((name, i) => [name, numbers[i]]));
            why = "";
            vectors.begin(tn.best(Array.from({ length: layers }, (_, block) => Math.abs(values.get(partOf(block, heads)) || 0))));
            showParts(true);
        }, message => {
            values = new Map();
            why = message;
            showParts();
        });
        if (all) await showPatterns(mine, current);
        vectors.ask(asked);
        if (tn.gone.has(partOf(vectors.block, heads))) {
            vectors.none("The MLP of this block is ablated, and adds nothing.");
            vectors.element.classList.remove("old");
        } else await shown(vectors.element, () => ["live_vectors", vectors.block, asked], answer => vectors.show(answer, asked),
            message => vectors.none("The MLP of this block is not a product of linear maps, so it has no eigenvectors.", message));
        if (all) await shown(paths, () => ["live_paths", asked, 400, 40], answer => {
            found = answer;
            paths.replaceChildren(...pathsTable(names, answer, isCapped(live)));
        }, message => paths.replaceChildren(tn.h("p", { class: "soft small", title: message,
            text: "This model cannot be written as a sum over paths." })));
        if (mine !== turn) return;
        unfinished = false;
        if (!all) return;
        tell(found);
        document.dispatchEvent(new Event("tn-explained"));
    };

    /* Marks what explains the answer as outdated, and drops answers that are still to come. */
    const outdate = () => {
        clearTimeout(waiting);
        turn++;
        unfinished = false;
        for (const one of [parts, patterns.element, vectors.element, paths]) one.classList.add("old");
        if (tn.answer || !asMade()) document.dispatchEvent(new Event("tn-asked"));
    };
    const later = () => { outdate(); waiting = setTimeout(explain, 150); };
    const question = () => {
        if (!length) return;
        answer(showNext);
        later();
    };
    const told = tn.keep("text", (value = beginning) => { text.value = value; read(); });
    const toldPosition = tn.keep("position", value => {
        if (value !== undefined && (!/^\d{1,6}$/.test(value) || !(value < length))) return false;
        goTo(value === undefined ? length - 1 : Number(value));
        return true;
    });
    const toldToken = tn.keep("token", name => {
        if (!length || (name !== undefined && !names.includes(name))) return false;
        token = names.indexOf(name);
        question();
        return true;
    });
    const read = () => {
        let ids = null;
        length = 0;
        before = null;
        told(text.value === beginning ? null : text.value);
        toldPosition(null);
        toldToken(null);
        answer(() => {
            ids = call("live_text", text.value).numbers;
            length = ids.length;
            position = length - 1;
            answered.ids = ids;
            if (!length) { typed.show(ids); return; }
            token = -1;
            showNext();
        });
        scores.classList.toggle("old", !length);
        if (length) later();
        else outdate();
        if (ids && !length) status.replaceChildren("type something: the text has no tokens");
    };
    const takePart = (name, block, head) => changes.take(name, head < heads ? `head ${head} of block ${block}`
        : `the MLP of block ${block}`, ["live_ablate", block, head, 1], ["live_ablate", block, head, 0]);
    const ablate = (name, block, head) => {
        if (!length) return;
        answer(() => takePart(name, block, head));
        parts.querySelector(`[data-part="${name}"]`).focus();
    };
    /* What an address calls an eigenvector: its block, its token and its eigenvalue. */
    tn.keepAblations(name => {
        const [, block, head] = (name.match(/^blocks\.(\d{1,6})\.(?:attn\.(\d{1,6})|mlp)$/) || []).map(Number);
        const [, of, whose, value] = (name.match(/^vector (\d{1,6}) (\d{1,9}) (-?[\d.e+-]+)$/) || []).map(Number);
        if (!length || tn.gone.has(name)) return length > 0;
        if (block < layers && !(head >= heads)) takePart(name, block, name.endsWith(".mlp") ? heads : head);
        else if (of < layers && whose < names.length) {
            const found = call("live_vectors", of, whose), away = k => Math.abs(found.numbers[each * k] - value);
            const k = tn.best(Array.from({ length: found.count }, (_, i) => -away(i)));
            if (!(away(k) <= 1e-3 * Math.abs(value))) return false;
            vectors.take(found, of, whose, k);
        } else return false;
        return true;
    });
    /* The lengths of the stream of a block, in the whole model and of the first text, so that what a link adds does not depend
       on what was typed before. */
    const stream = block => ofWhole(call, [["live_text", text.value], ...(length ? [["live_at", position]] : []),
        ...calls.values()], () => { call("live_text", beginning); return call("live_stream", block).numbers; });
    const steering = tn.steering({ names, layers, call, stream, change: changes.add });
    /* Another model: the prediction at once, and what explains it when it is computed. */
    document.addEventListener("tn-model", () => {
        if (length) answer(showNext);
        showParts();
        vectors.again();
        if (length) later();
    });
    box.append(text, typed.element, status,
        tn.h("div", { class: "two terms" }, tn.h("div", {}, parts, restoring()), scores), patterns.element,
        vectors.element, steering.element, paths);
    read();
    steering.begin(token);
    showParts();
};

/* ---- two models on one input: a picture, or a text, and what each makes of it */
/* Each in its colour. */
tn.besides = (models, each) => tn.h("div", { class: "two even" }, models.map(({ name }, i) => tn.h("div", { class: "of-two",
    style: `--own: ${tn.modelInk(i)}` },
    tn.h("h4", {}, tn.h("span", { class: "key", style: `--ink: ${tn.modelInk(i)}` }, tn.token(name))), each[i])));
/* A mark for what only one of the two has among its likeliest. */
tn.onlyHere = only => only ? tn.h("span", { class: "only", text: "only in this list" }) : null;
/* What is ablated has the model in its key. */
const whose = tn.whose = ["first", "other"];
const twoTexts = (calls, models, box) => {
    const files = models.map(one => [tn.array(one.weights), one.config, one.tokenizer || ""]);
    const opened = calls.map((call, i) => call("live_language", ...files[i])), shapes = opened.map(({ numbers: [, layers,
        heads] }) => ({ layers, heads }));
    const marks = models.map(one => ["live_marks", one.marks === false ? 0 : 1]);
    calls.forEach((call, i) => call(...marks[i]));
    const asks = calls.map((call, i) => tn.aside(tn.bytes("tn-wasm"), call, ["live_language", ...files[i]]));
    const names = (tn.page.names || {}).tokens || opened[0].words, places = calls.map(() => tn.h("div", { class: "answer-of" }));
    const parts = calls.map(() => tn.h("div", {})), values = calls.map(() => new Map()), known = [], refused = [];
    const status = tn.h("output", { class: "status" }), answer = answering(status), tokens = tn.h("p", { class: "words" });
    let length = 0, token = -1, chosen = false, waiting = 0, turn = 0;
    /* Parts that are ablated: of a model, its block and its head, or after its heads its MLP. */
    const partOf = name => {
        const [, i, block, head] = name.match(/^(first|other) blocks\.(\d{1,6})\.(?:attn\.(\d{1,6})|mlp)$/) || [];
        const at = whose.indexOf(i), { layers, heads } = shapes[at] || {};
        return at >= 0 && block < layers && !(head >= heads) && [at, Number(block), head === undefined ? heads : Number(head)];
    };
    const goneOf = i => [...tn.gone.keys()].filter(name => name.startsWith(whose[i] + " ")).map(partOf)
        .map(([, block, head]) => ["live_ablate", block, head, 1]);
    const wholly = (i, question) => ofWhole(calls[i], goneOf(i), question);
    /* The likeliest tokens of both, on one scale. */
    const showNext = () => {
        const all = calls.map((call, i) => {
            const { count, numbers } = call("live_next"), chances = numbers.subarray(count);
            return { numbers, chances, order: likeliest(chances),
                was: goneOf(i).length ? wholly(i, whole => whole("live_next")).numbers.subarray(count) : null };
        });
        const limit = Math.max(...all.map(({ chances, order }) => chances[order[0]]));
        if (!chosen) token = all[0].order[0];
        all.forEach(({ order, ...found }, i) => {
            places[i].replaceChildren(nextTable(names, order, found, { token, best: order[0], limit, explain: id => explain(id),
                beside: id => tn.onlyHere(!all[1 - i].order.includes(id)) }));
        });
    };
    const showParts = () => parts.forEach((place, i) => place.replaceChildren(tn.h("h4", {}, "The logit of ",
        tn.token(names[token], { class: "token piece" }), " as a sum over the parts", toAblate()),
        termsTable({ ...shapes[i], values: values[i], limit: Math.max(...values.map(largestTerm)), of: whose[i] + " ",
            total: totalOf(models[i], known[i]), take: (block, head) => answer(() => ablate(i, block, head)) }),
        refused[i] ? inseparable() : ""));
    /* What explains the token is computed beside the page, when the typing pauses. */
    const later = () => {
        const mine = ++turn, asked = token, now = text.value;
        parts.forEach(place => place.classList.add("old"));
        clearTimeout(waiting);
        waiting = setTimeout(() => asks.forEach(async (ask, i) => {
            await ask.ready;
            const found = mine === turn && await ask(marks[i], ["live_restore"], ...goneOf(i), ["live_text", now],
                ["live_parts", asked]).catch(() => ({ refused: true, words: [], numbers: [] }));
            if (mine !== turn) return;
            refused[i] = found.refused;
            known[i] = true;
            values[i] = new Map(found.words.map((name, k) => [name, found.numbers[k]]));
            showParts();
            parts[i].classList.remove("old");
        }), 150);
    };
    const show = () => { known.length = 0; showNext(); showParts(); later(); };
    const explain = id => { chosen = true; token = id; answer(show); };
    const ablate = (i, block, head) => {
        const focus = document.activeElement && document.activeElement.dataset.part, { heads } = shapes[i];
        tn.ablate(`${whose[i]} blocks.${block}.` + (head < heads ? `attn.${head}` : "mlp"), [head < heads
            ? `head ${head} of block ${block} in ` : `the MLP of block ${block} in `, tn.token(models[i].name)],
            off => calls[i]("live_ablate", block, head, off ? 1 : 0));
        if (focus) box.querySelector(`[data-part="${focus}"]`).focus();
    };
    const told = tn.keep("text", (value = beginning) => { text.value = value; read(); });
    tn.keepAblations(name => {
        const part = partOf(name);
        if (part && !tn.gone.has(name)) ablate(...part);
        return part !== false;
    });
    const read = () => answer(() => {
        const ids = calls.map(call => call("live_text", text.value).numbers);
        told(text.value === beginning ? null : text.value);
        tokens.replaceChildren(...Array.from(ids[0], id => tn.token(names[id], { class: "token piece" })));
        length = Math.min(...ids.map(one => one.length));
        chosen = false;
        if (length) show();
        else { turn++; for (const place of [...places, ...parts]) place.replaceChildren(); }
    });
    const text = tn.h("textarea", { id: "live-text", class: "no-print", rows: 2, spellcheck: "false", dir: "auto",
        "aria-label": "text", oninput: read });
    const beginning = text.value = models[0].prompt || "Once upon a time";
    document.addEventListener("tn-model", () => { if (length) answer(show); });
    /* Eigenvalues of both models for the logit of a token, in nats, where both have that block. */
    tn.spectraOfTwo = (block, token, units) => calls.map((_, i) => wholly(i, call => {
        const { count, numbers } = call("live_vectors", block, token);
        return Float64Array.from({ length: count }, (_, k) => numbers[each * k] * units[i]);
    }));
    box.append(text, tokens, status, tn.besides(models, places.map((place, i) => tn.h("div", {}, parts[i], place))),
        restoring());
    read();
};

/* The live part of a page: page.live says which kind, and where its files are. */
tn.live = (live, box) => {
    const waiting = tn.h("p", { class: "soft", text: "Loading the library …" }), engine = () => tn.engine(tn.bytes("tn-wasm"));
    box.append(waiting);
    Promise.all(live.models ? live.models.map(engine) : [engine()]).then(calls => {
        waiting.remove();
        if (live.models) (live.kind === "two texts" ? twoTexts : tn.twoImages)(calls, live.models, box);
        else (live.kind === "language" ? language : tn.liveImages)(calls[0], live, box);
    }).catch(error => {
        console.error(error);
        waiting.replaceWith(tn.h("p", { class: "alarm", role: "alert" }, "The live part cannot run: ",
            tn.h("bdi", { text: error.message })));
    }).finally(() => document.dispatchEvent(new Event("tn-live")));
};
