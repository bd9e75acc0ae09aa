/* network.js - a page of a network like that of `make demo`; `expected` has what the library computes of it, and elements of its
   interaction matrices by the formula: from single precision, which is what the network is stored and computed in. */
const { nothing_broke_out, right_to_left_is_isolated, ...ofThis } = everyPage;
const close = (name, got, wanted) => near(name, got, wanted, 1e-5);
whenFilled({
    ...ofThis,
    eigenvalues() {
        const rows = all("#spectra .chooser tbody tr");
        equal("network: outputs", rows.length, 10);
        expected.eigenvalues.forEach((wanted, output) => {
            rows[output].click();
            const plot = one("#spectra .plot"), shown = () => Number(one("#spectra .readout .of .num").dataset.value);
            press(plot, "Home");
            close(`network: the first eigenvalue of output ${output}`, shown(), wanted[0]);
            press(plot, "ArrowRight");
            close(`network: the second eigenvalue of output ${output}`, shown(), wanted[1]);
        });
    },
    interactions() {
        const stage = one("#interactions .stage");
        pressMany(stage, "PageUp", 10);                 /* from the output of the first picture */
        expected.interactions.forEach(([row, column, wanted], output) => {
            press(stage, "Home");
            pressMany(stage, "ArrowUp", 16);
            pressMany(stage, "ArrowDown", row);
            pressMany(stage, "ArrowRight", column);
            close(`network: element ${row},${column} of output ${output}`, valueOf("#interactions .readout.cell .num"), wanted);
            press(stage, "PageDown");
        });
    },
    logits() {
        const examples = all("#spoke .example");
        equal("network: pictures", examples.length, 3);
        examples.forEach((example, i) => {
            example.click();
            all("#spoke .scores .num").forEach((sum, output) =>
                close(`network: output ${output} of picture ${i}`, Number(sum.dataset.value), expected.logits[10 * i + output]));
            all("#spoke .picker button").forEach((button, output) => {
                button.click();
                const [sum, exact] = all("#spoke .total .num").map(number => Number(number.dataset.value));
                close(`network: sum for output ${output} of picture ${i}`, sum, expected.logits[10 * i + output]);
                close(`network: logit ${output} of picture ${i}`, exact, expected.logits[10 * i + output]);
            });
        });
    },
    live() {
        const scores = () => all("#live-scores tbody tr").map(row => Number(all("data", row)[1].value));
        equal("network: outputs of the live part", scores().length, 10);
        scores().forEach((logit, output) => close(`network: live logit ${output}`, logit, expected.logits[output]));
        one("#live-spoke .ablate").click();
        check("network: an eigenvector is ablated", one("#live-spoke .gone").textContent.includes("ablated"), "it is not");
        ofThis.no_wider_than_the_window();
        const restore = all("#live button").find(button => button.textContent === "restore all");
        restore.click();
        scores().forEach((logit, output) => close(`network: restored logit ${output}`, logit, expected.logits[output]));
    },
});
