/* runs.js - a page of several runs; `expected` has the lines of the log of each. */
const { nothing_broke_out, right_to_left_is_isolated, ...ofThis } = everyPage;
const { runs } = tn.page.sections[0], named = name => runs.find(run => run.name === name);
const read = () => new Map(all("#runs .readout .of").map(of => [of.textContent.replace(/[\s\u2212\d.·⁻]+$/, ""),
    Number(one(".num", of).dataset.value)]));
const button = name => all("#runs .run").find(run => run.textContent === name);
whenFilled({
    ...ofThis,
    curves() {
        for (const [name, log] of Object.entries(expected)) {
            const steps = log.filter(line => line.loss !== undefined), held = log.filter(line => line.held !== undefined
                && line.all === false), [curve, other] = [named(name).curve, named(name).held].map(tn.array);
            check(`runs: ${name} has steps`, steps.length > 2 && held.length > 0, `${steps.length}, ${held.length}`);
            equal(`runs: losses of ${name}`, tn.row(curve, 3).join(), steps.map(line => line.loss).join());
            equal(`runs: tokens of ${name}`, tn.row(curve, 1).join(), steps.map(line => line.tokens).join());
            equal(`runs: seconds of ${name}`, tn.row(curve, 2).join(), steps.map(line => line.seconds).join());
            equal(`runs: held-out losses of ${name}`, tn.row(other, 3).join(), held.map(line => line.held).join());
            equal(`runs: the best of ${name}`, named(name).best, Math.min(...held.map(line => line.held)));
            equal(`runs: trigrams of ${name}`, named(name).trigrams, log[0].trigram);
        }
    },
    plot() {
        const plot = one("#runs .plot"), steps = name => expected[name].filter(line => line.loss !== undefined);
        type(one("#runs input[type=range]"), 0);
        press(plot, "Home");
        press(plot, "ArrowRight");
        equal("runs: all are read", [...read().keys()].join(), "deep, training,deep, held out,run, training,run, held out");
        equal("runs: the loss of the second step", read().get("run, training"), steps("run")[1].loss);
        all("#runs .choices button").find(one => one.textContent === "tokens").click();
        press(plot, "End");
        equal("runs: by tokens", valueOf("#runs .readout .where .num"), Math.max(...["run", "deep"].map(name =>
            steps(name).at(-1).tokens)));
        type(one("#runs input[type=range]"), 0.5);
        press(plot, "Home");
        press(plot, "ArrowRight");
        const [a, b] = steps("run").map(line => line.loss);
        near("runs: smoothed", read().get("run, training, smoothed"), (0.25 * a + 0.5 * b) / 0.75);
        equal("runs: lines of n-grams", all("#runs .rule").length >= 2, true);
    },
    async switched() {
        button("deep").click();
        await rest(400);
        check("runs: one is off", ![...read().keys()].some(name => name.startsWith("deep")), [...read().keys()]);
        const csv = rowsOf((await saved(one("#runs .figure"), "CSV")).text);
        equal("runs: it is not in the file", csv[0].join("|"), "tokens|run, training, smoothed|run, held out");
        check("runs: the address has it", decodeURIComponent(location.hash).includes('without=["deep"]'), location.hash);
        button("run").click();
        equal("runs: none is left", all("#runs .series").length, 0);
        await follow('#runs?without=["run"]&by=seconds&smoothing=0.9&held=no&log-loss=yes');
        equal("runs: as the address says", [button("run"), button("deep")].map(one => one.ariaPressed).join(), "false,true");
        equal("runs: by seconds, without held-out losses", all("#runs .series").length, 2);
        await follow("#runs?by=seconds");
        equal("runs: as usual but for what the address names", [button("run"), button("deep")].map(one => one.ariaPressed).join()
            + all("#runs .toggle").map(one => one.ariaPressed) + one("#runs input[type=range]").value, "true,truetrue,true,false,false0.6");
        await follow('#runs?without=["no such run"]&by=lunch&smoothing=2');
        for (const word of ["no such run", "by lunch", "smoothing 2"])
            check(`runs: it says ${word}`, one("#address").textContent.includes(word), one("#address").textContent);
    },
    table() {
        const heads = all("#runs table thead th").map(one => one.textContent), cell = (row, name) => row.cells[heads.indexOf(
            name)].textContent, rows = () => all("#runs table tbody tr");
        equal("runs: settings that differ", heads.includes("--layers") && !heads.includes("--width"), true);
        equal("runs: their values", rows().map(row => cell(row, "--layers")).sort().join(), "2,4");
        const by = name => all("#runs thead button").find(one => one.textContent === name).click();
        by("--layers");
        equal("runs: sorted by a setting", rows().map(row => cell(row, "--layers")).join(), "2,4");
        /* A run may end before the step that --steps says: the column of each is sorted by what is in it. */
        const fewer = rows().map(row => cell(row, "steps"));
        equal("runs: steps and --steps", rows().map(row => cell(row, "--steps")).join(), "12,4");
        by("steps");
        equal("runs: sorted by a number", rows().map(row => cell(row, "steps")).join(), fewer.sort((a, b) => a - b).join());
    },
});
