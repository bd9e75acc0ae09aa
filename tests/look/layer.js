/* layer.js - a page of one layer, whose inputs are a picture of 4 x 4; `expected` has for each output what `tn draw` printed of it,
   with six digits. */
const { nothing_broke_out, right_to_left_is_isolated, ...ofThis } = everyPage;
whenFilled({
    ...ofThis,
    spectra() {
        const rows = all("#spectra .chooser tbody tr"), labels = all("#spectra thead th").map(heading => heading.textContent);
        equal("layer: outputs", rows.length, 16);
        expected.forEach(({ norm, effective_rank, largest, smallest }, output) => {
            const value = label => Number(all("th, td", rows[output])[labels.indexOf(label)].querySelector(".num").dataset.value);
            near(`layer: norm of output ${output}`, value("norm"), norm, 1e-5);
            near(`layer: effective rank of output ${output}`, value("effective rank"), effective_rank, 1e-3);
            rows[output].click();
            const plot = one("#spectra .plot");
            press(plot, "Home");
            const first = Math.abs(Number(one("#spectra .readout .of .num").dataset.value));
            near(`layer: largest eigenvalue of output ${output}`, first, Math.max(largest, -smallest), 1e-5);
        });
    },
    pictures() {
        const { null_edge, values } = tn.page.sections.find(section => section.type === "eigen").outputs[0];
        equal("layer: eigenvectors beyond the null", all("#eigen .vector").length,
            tn.array(values).filter(v => Math.abs(v) > null_edge).length);
        one("#eigen .toggle").click();
        equal("layer: eigenvectors are pictures", all("#eigen .vector canvas")[0].width, 4);
        check("layer: it is live", one("#live-scores").textContent.includes("%"), "there is no prediction");
    },
});
