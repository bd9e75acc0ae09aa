/* broken.js - a page with faults: each is named where it is, and the sections around it are whole. */
const { nothing_broke_out, controls_have_names, filled, theme } = everyPage;
whenFilled({
    filled, nothing_broke_out, theme,
    faults() {
        for (const [id, words] of [["beyond", "bytes of tn-blob, expected 800072"], ["type", "f16, expected f32"],
            ["none", "cannot be shown"]])
            check(`broken: ${id}`, one(`#${id} .alarm`).textContent.includes(words), one(`#${id}`).textContent);
        check("broken: no pictures", one("#spoke").textContent.includes("does not have"), one("#spoke").textContent);
    },
    around() {
        equal("broken: before", valueOf("#before .num"), 1);
        equal("broken: after", Number(all("#after .num").at(-1).dataset.value), 2);
        equal("broken: null", one("#after dd").textContent, "NaN");
    },
});
