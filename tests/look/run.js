/* run.js - a page that `tn look` made of a model, `expected` being what `tn circuits heads`, `history` and `paths` printed of it as
   JSON. */
/* All but what knows the title, and that there are right-to-left names. */
const { nothing_broke_out, right_to_left_is_isolated, ...ofThis } = everyPage;
whenFilled({
    ...ofThis,
    title() { equal("run: title", document.title, tn.page.title); },
    heads() {
        const rows = all("#heads .chooser tbody tr");
        equal("run: heads", rows.length, expected.heads.per_head.length);
        const labels = all("#heads thead th").map(heading => heading.textContent);
        for (const [label, key] of [["|QK|", "qk"], ["|OV|", "ov"], ["copying", "copying"]])
            expected.heads.per_head.forEach((head, i) => near(`run: ${label} of head ${head.head}`,
                Number(all("th, td", rows[i])[labels.indexOf(label)].querySelector(".num").dataset.value), head[key], 1e-9));
    },
    paths() {
        const shown = all("#paths .bars tbody tr").map(row => Number(one(".num", row).dataset.value));
        const { logit, per_path } = expected.paths;
        check("run: there are paths", per_path.length >= 10, `${per_path.length} of them`);
        equal("run: paths and a remainder", shown.length, per_path.length + 1);
        per_path.forEach(({ value }, i) => near(`run: path ${i}`, shown[i], value, 1e-9));
        const [sum, exact] = all("#paths .total .num").map(value => Number(value.dataset.value));
        near("run: paths and remainder are the logit", sum, exact, 1e-9);
        near("run: the logit of paths", exact, logit, 1e-9);
    },
    /* The copying score of each head at each step but the first, where it is not a number. */
    time() {
        const { steps, per_head } = expected.history, plot = all("#time .plot")[1];
        for (let step = 0; step < steps; step++) {
            press(plot, step ? "ArrowRight" : "Home");
            const shown = all(".readout .of .num", plot.parentElement).map(value => Number(value.dataset.value));
            const heads = per_head.slice(step * shown.length, (step + 1) * shown.length);
            equal("run: heads over time", shown.length * steps, per_head.length);
            if (step) heads.forEach(({ head, copying }, i) =>
                near(`run: copying of head ${head} at place ${step}`, shown[i], copying, 1e-9));
        }
    },
    live() {
        for (let i = 0; i < 3; i++) all("#live-parts tbody tr:first-child .ablate")[i].click();
        equal("run: parts are ablated", all("#live-parts .gone").length, 3);
        ofThis.no_wider_than_the_window();
        all("#live button").find(button => button.textContent === "restore all").click();
        equal("run: parts are restored", all("#live-parts .gone").length, 0);
    },
    every_section() {
        for (const section of all("section.section"))
            check(`run: ${section.id} is shown`, !section.querySelector(".alarm")
                && section.querySelector(".body").childElementCount > 0, section.textContent.slice(0, 300));
    },
});
