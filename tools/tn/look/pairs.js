/* pairs.js - the strongest pairs, with a search in all three names. A list shows a page of rows at a time, however many there
   are; searching 20,000 rows takes a few milliseconds, because the text of each row is made once. */
const page = 25;

tn.sections.pairs = (section, box) => {
    const labels = { first: "first", second: "second", output: "output", ...section.labels };
    const withOutput = section.rows.some(row => row.output !== undefined);
    const limit = section.rows.reduce((most, row) => Math.max(most, Math.abs(row.value) || 0), 0);
    const texts = section.rows.map(row => [row.first, row.second, row.output].map(name => name === undefined ? ""
        : tn.plain(name).toLowerCase() + "\n" + String(name).toLowerCase()).join("\n"));
    const id = tn.id("search"), input = tn.h("input", { type: "search", id, spellcheck: "false", dir: "auto",
        placeholder: "a part of a name", oninput: () => { most = page; show(); } });
    const count = tn.h("span", { class: "soft", role: "status" }), place = tn.h("div", { class: "scroll" });
    const more = tn.h("button", { type: "button", text: "show more", onclick: () => { most += 4 * page; show(); } });
    let most = page, sign = 0, found = [];
    const signs = tn.picker("sign", ["both", "positive", "negative"], i => { sign = [0, 1, -1][i]; most = page; show(); });
    const compared = section.rows.some(row => row.within);
    const said = tn.h("span", {});
    if (compared) document.addEventListener("tn-anyway", () => { most = page; show(); });
    const show = () => {
        const wanted = input.value.toLowerCase().trim();
        found = section.rows.filter((row, i) => !tn.gone.has(`blocks.${row.block}.mlp`) && texts[i].includes(wanted)
            && (!sign || row.value * sign > 0) && tn.isShown(row));
        said.textContent = "Pairs within the null, no larger than those of shuffled weights, are "
            + (tn.anyway ? "shown as well. " : "left out. ");
        count.textContent = found.length === section.rows.length ? `${found.length} pairs`
            : `${found.length} of ${section.rows.length} pairs`;
        place.replaceChildren(found.length
            ? tn.bars(found.slice(0, most).map(row => ({ value: row.value, label: tn.h("span", { class: "pair" },
            tn.token(row.first), tn.h("i", { text: " × " }), tn.token(row.second),
            withOutput && row.output !== undefined ? [tn.h("i", { text: " → " }), tn.token(row.output)] : null) })),
            { limit, head: [`${labels.first} × ${labels.second}${withOutput ? " → " + labels.output : ""}`, "", section.unit
                || "value"] })
                : tn.h("p", { class: "soft", text: "No pair contains this." }));
        more.hidden = found.length <= most;
    };
    box.append(tn.h("div", { class: "tools" }, tn.h("div", { class: "picker" },
        tn.h("label", { class: "label", for: id, text: "search" }), input), signs.element, count),
        compared ? tn.h("p", { class: "null" }, said, tn.anywayToggle()) : "", place, more,
        tn.saves(() => input.value.trim(), { CSV: () => tn.csv([[labels.first, labels.second, labels.output, section.unit
            || "value"], ...found.map(row => [row.first, row.second, row.output, row.value])]) }));
    tn.drawn(show);
};
