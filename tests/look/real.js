/* real.js - a page that `tn look` made of a model, `expected` being what `tn circuits heads --json` printed of it. */
/* All but what knows the title, and that there are right-to-left names. */
const { nothing_broke_out, right_to_left_is_isolated, ...ofThis } = everyPage;
whenFilled({
    ...ofThis,
    title() { equal("real: title", document.title, tn.page.title); },
    heads() {
        const rows = all("#heads .chooser tbody tr");
        equal("real: heads", rows.length, expected.per_head.length);
        const labels = all("#heads thead th").map(heading => heading.textContent);
        for (const [label, key] of [["|QK|", "qk"], ["|OV|", "ov"], ["copying", "copying"]])
            expected.per_head.forEach((head, i) => near(`real: ${label} of head ${head.head}`,
                Number(all("th, td", rows[i])[labels.indexOf(label)].querySelector(".num").dataset.value), head[key], 1e-9));
    },
    paths() {
        const [sum, exact] = all("#paths .total .num").map(value => Number(value.dataset.value));
        near("real: paths and remainder are the logit", sum, exact, 1e-9);
    },
    every_section() {
        for (const section of all("section.section"))
            check(`real: ${section.id} is shown`, !section.querySelector(".alarm")
                && section.querySelector(".body").childElementCount > 0, section.textContent.slice(0, 300));
    },
});
