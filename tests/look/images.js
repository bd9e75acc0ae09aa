/* images.js - a page of an image model: what is read and pressed in every section. */
const number = selector => valueOf(selector);
const cellOf = section => valueOf(`#${section} .readout.cell .num`);
const goTo = (stage, row, column, rows) => {     /* from wherever the cell is */
    press(stage, "Home");
    pressMany(stage, "ArrowUp", rows);
    pressMany(stage, "ArrowDown", row);
    pressMany(stage, "ArrowRight", column);
};
/* Cells of a matrix view, as [r, g, b] at places in CSS pixels. */
const colourAt = (canvas, x, y) => {
    const ratio = canvas.width / canvas.clientWidth;
    return [...canvas.getContext("2d").getImageData(Math.round(x * ratio), Math.round(y * ratio), 1, 1).data.slice(0, 3)];
};

whenFilled({
    ...everyPage,
    card() {
        equal("card: a number", number("#card dd .num"), 50890);
        equal("card: an accuracy", Number(all("#card dd .num")[1].dataset.value), 0.97625);
        equal("card: no digit is lost", all("#card dd").pop().textContent, "12,345,678,901,234,567,891 and 0,012,345 (1,234)");
        const plot = one("#card .plot");
        press(plot, "Home");
        pressMany(plot, "ArrowRight", 2);
        equal("card: training loss", Number(all("#card .readout .num")[1].dataset.value), expected.loss[0]);
        equal("card: held-out loss", Number(all("#card .readout .num")[2].dataset.value), expected.loss[1]);
        const before = all("#card .axes text").map(text => text.textContent).join();
        one("#card .toggle").click();
        check("card: logarithmic", all("#card .axes text").map(text => text.textContent).join() !== before, before);
    },
    spectra() {
        const rows = all("#spectra tbody tr");
        equal("spectra: effective rank", Number(all(".num", rows[1])[1].dataset.value), expected.effective_rank);
        equal("spectra: beyond the null", Number(all(".num", rows[0])[2].dataset.value),
            tn.array(tn.page.sections[1].groups[0].values).filter(v => Math.abs(v) > 0.25).length);
        equal("spectra: without an edge", all("td", rows[3])[2].textContent, "–");
        press(rows[0], "ArrowDown");
        equal("spectra: arrow key", document.activeElement, rows[1]);
        equal("spectra: chosen", rows[1].getAttribute("aria-selected"), "true");
        press(one("#spectra .plot"), "Home");
        equal("spectra: largest value", Number(all("#spectra .readout .num")[1].dataset.value), expected.values[1]);
    },
    eigen() {
        const beyond = tn.array(tn.page.sections.find(section => section.type === "eigen").outputs[0].values)
            .filter(v => Math.abs(v) > 0.25).length;
        equal("eigen: only those beyond the null", all("#eigen .vector").length, beyond);
        check("eigen: and how many those are", one("#eigen .null").textContent.startsWith(`${beyond} of the 16 largest`),
            one("#eigen .null").textContent);
        one("#eigen .toggle").click();
        check("eigen: the others on request", all("#eigen .vector.within").length > 0, "none");
        equal("eigen: eigenvalue", number("#eigen .detail .facts .num"), expected.values[0]);
        equal("eigen: negative ones", Number(one("#eigen .vector.below .num").dataset.value), expected.values[2]);
        const picture = one("#eigen .large canvas");
        pressMany(picture, "ArrowUp", 2);
        press(picture, "ArrowLeft");
        equal("eigen: pixel", number("#eigen .large .readout .num"), expected.pixel);
        press(one("#eigen .vector[aria-checked=true]"), "ArrowRight");
        check("eigen: next card", number("#eigen .detail .facts .num") !== expected.values[0], "the same");
        one("#eigen .more").click();
        equal("eigen: all cards", all("#eigen .vector").length, 16);
        equal("eigen: those within the null", all("#eigen .vector.within").length, 16 - beyond);
        all("#eigen .vector.within")[0].click();
        check("eigen: it says so", one("#eigen .detail").textContent.includes("Within the null"), one("#eigen .detail").textContent);
        const outputs = all("#eigen [role=radio]");
        press(outputs[0], "ArrowRight");
        equal("eigen: the other output", number("#eigen .detail .facts .num"), expected.values[1]);
        check("eigen: hostile name", one("#eigen .choices").textContent.includes("<\/script><img src=x onerror=alert(1)>"),
            one("#eigen .choices").textContent);
    },
    spoke() {
        const examples = all("#spoke .example");
        press(examples[0], "ArrowRight");
        press(document.activeElement, "ArrowRight");
        equal("spoke: example", examples[2].getAttribute("aria-checked"), "true");
        all("#spoke .picker button")[1].click();
        const [sum, exact] = all("#spoke .total .num").map(element => Number(element.dataset.value));
        near("spoke: sum of contributions", sum, expected.logit);
        equal("spoke: exact", exact, expected.logit);
        near("spoke: by output", Number(all("#spoke .scores .num")[1].dataset.value), expected.logit);
    },
    async matrix() {
        const stage = one("#matrix .stage"), cells = one("canvas.cells", stage);
        pressMany(stage, "PageUp", 3);                  /* the output that was chosen above is chosen here, too */
        for (let i = 0; i < 8; i++) press(stage, "+");
        goTo(stage, 0, 1, 196);
        near("matrix: value", cellOf("matrix"), expected.product[0]);
        equal("matrix: row", one("#matrix .rowname").textContent, "(0, 0)");
        equal("matrix: column", one("#matrix .columnname").textContent, "(0, 1)");
        goTo(stage, 100, 87, 196);
        pressMany(stage, "PageDown", 2);
        near("matrix: value of another output", cellOf("matrix"), expected.product[1]);
        equal("matrix: picked", all("#matrix .picker [role=radio]")[2].getAttribute("aria-checked"), "true");
        await rest(100);
        const near0 = cells.toDataURL();
        press(stage, "0");
        await rest(100);
        check("matrix: zoom out", cells.toDataURL() !== near0, "the picture is the same");
        check("matrix: wheel without the focus",
            (() => { document.activeElement.blur(); const event = new WheelEvent("wheel", { deltaY: -100, cancelable: true });
            stage.dispatchEvent(event); return !event.defaultPrevented; })(), "it was taken");
        stage.focus();
        const whole = cells.toDataURL(), wheel = new WheelEvent("wheel",
            { deltaY: -900, clientX: stage.getBoundingClientRect().left + 250, clientY: stage.getBoundingClientRect().top + 250,
            cancelable: true });
        stage.dispatchEvent(wheel);
        check("matrix: wheel", wheel.defaultPrevented && cells.toDataURL() !== whole, "the picture is the same");
        const here = cells.toDataURL();
        press(stage, "ArrowRight", { shiftKey: true });
        check("matrix: pan", cells.toDataURL() !== here, "the picture is the same");
        const there = cells.toDataURL(), box = stage.getBoundingClientRect();
        const finger = (name, x, y) => stage.dispatchEvent(new PointerEvent(name, { pointerId: 1, clientX: box.left + x,
            clientY: box.top + y, bubbles: true }));
        finger("pointerdown", 200, 200); finger("pointermove", 150, 170); finger("pointerup", 150, 170);
        check("matrix: drag", cells.toDataURL() !== there, "the picture is the same");
        press(stage, "0");
        finger("pointermove", Number(stage.dataset.left) + 1, Number(stage.dataset.top) + 1);
        equal("matrix: under the pointer", one("#matrix .rowname").textContent + one("#matrix .columnname").textContent,
            "(0, 0)(0, 0)");
        const contrast = one("#matrix input[type=range]"), plain = cells.toDataURL();
        type(contrast, 3);
        check("matrix: contrast", cells.toDataURL() !== plain, "the picture is the same");
        check("matrix: picture of a row", one("#matrix .rowpicture canvas").width === 14, "no picture");
    },
    /* Figures as files: the numbers of the page, unrounded, under names that say what they are. */
    async saves() {
        const values = Array.from(tn.array(tn.page.sections[1].groups[1].values)).sort((a, b) => Math.abs(b) - Math.abs(a));
        const plot = one("#spectra .figure"), csv = await saved(plot, "CSV"), rows = rowsOf(csv.text);
        equal("saves: name", csv.name, "Waves-b-a-bilinear-network-b-its-eigenvectors-Spectra-spectrum-of-output-1.csv");
        equal("saves: head", rows[0].join(), "index, by size,output 1");
        equal("saves: values", rows.slice(1).map(row => row[1]).join(), values.slice(0, rows.length - 1).join());
        check("saves: many values", rows.length > 16, rows.length);
        const svg = new DOMParser().parseFromString((await saved(plot, "SVG")).text, "image/svg+xml");
        check("saves: a picture", !svg.querySelector("parsererror") && svg.querySelectorAll("circle, line").length > 16,
            svg.documentElement.outerHTML.slice(0, 200));
        check("saves: its colours", [...svg.querySelectorAll("circle")].some(dot => /^rgb/.test(dot.getAttribute("fill"))) &&
            !svg.querySelector("[class], [style]"), "they are the page's");
        const stage = one("#dense .stage");
        press(stage, "PageDown");
        const matrix = await saved(one("#dense"), "CSV"), dense = tn.row(tn.array(tn.page.sections.find(section =>
            section.id === "dense").values), 1);
        equal("saves: a matrix", rowsOf(matrix.text).slice(1).map(row => row.slice(1).join()).join(), dense.join());
        check("saves: of this output", matrix.name.endsWith("A-dense-matrix-output-two.csv"), matrix.name);
        const cells = one("#dense canvas.cells"), copy = (await saved(one("#dense"), "PNG")).canvas;
        equal("saves: a picture of it", `${copy.width} ${copy.height}`, `${cells.width} ${cells.height}`);
        const at = canvas => canvas.getContext("2d").getImageData(canvas.width * 0.9, canvas.height * 0.95, 1, 1).data.join();
        equal("saves: its pixels", at(copy), at(cells));
        const hostile = rowsOf(tn.csv([['a "b", c', 0.1 + 0.2, NaN, ""]]));
        equal("saves: quotes", hostile[0].join("|"), 'a "b", c|0.30000000000000004|NaN|');
    },
    /* A click on a pixel shows its row, and one there that of another pixel. */
    rows() {
        const click = (canvas, i) => {
            canvas.scrollIntoView();
            const box = canvas.getBoundingClientRect(), { width, height } = canvas;
            canvas.dispatchEvent(new MouseEvent("click", { bubbles: true, clientX: box.left + (i % width + 0.5) * box.width
                / width, clientY: box.top + (Math.floor(i / width) + 0.5) * box.height / height }));
        };
        const stage = one("#matrix .stage"), middle = 7 * 14 + 7;
        all("#eigen .choices [role=radio]")[0].click();
        for (const pixel of [100, 33]) {
            click(one(pixel === 100 ? "#eigen .detail .large canvas" : "#eigen .rowof canvas"), pixel);
            goTo(stage, pixel, middle, 196);
            near(`rows: pixel ${pixel}`, valueOf("#eigen .rowof .readout .num"), cellOf("matrix"));
        }
        goTo(stage, 100, 87, 196);
        click(one("#matrix .rowpicture canvas"), 33);
        equal("rows: in the matrix", one("#matrix .rowname").textContent, "(2, 5)");
    },
    async dense() {
        const stage = one("#dense .stage"), cells = one("canvas.cells", stage);
        press(stage, "PageDown");
        goTo(stage, 4, 6, 5);
        equal("dense: value", cellOf("dense"), expected.dense);
        goTo(stage, 2, 3, 5);
        check("dense: not a number", Number.isNaN(cellOf("dense")), cellOf("dense"));
        await rest(100);
        const values = tn.row(tn.array(tn.page.sections.find(section => section.id === "dense").values), 1),
            limit = tn.largest(values);
        const left = Number(stage.dataset.left), top = Number(stage.dataset.top), scale = (stage.clientWidth - left) / 7;
        for (const [i, j] of [[0, 0], [1, 4], [2, 3], [4, 6]]) {
            const got = colourAt(cells, left + (j + 0.12) * scale, top + (i + 0.12) * scale),
                wanted = tn.colour(values[i * 7 + j] / limit);
            check(`dense: colour of ${i},${j}`, got.every((v, k) => Math.abs(v - wanted[k]) <= 3), `${got}, expected ${wanted}`);
        }
    },
    colours() {
        for (const [t, ...rgb] of expected.colours) equal(`colour of ${t}`, tn.colour(t, false).join(), rgb.join());
        for (const [t, ...rgb] of expected.sequential) equal(`sequential colour of ${t}`, tn.sequential(t, false).join(),
            rgb.join());
    },
    /* In both themes a small value is as far from zero, in lightness: Ottosson's Oklab, of sRGB. */
    dark_colours() {
        const lightness = rgb => {
            const [r, g, b] = rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2104542553 * Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) + 0.793617785 * Math.cbrt(
                0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) - 0.0040720468 * Math.cbrt(0.0883024619 * r
                + 0.2817188376 * g + 0.6299787005 * b);
        };
        for (const t of [-1, -0.75, -0.5, -0.25, -0.1, 0.1, 0.25, 0.5, 0.75, 1]) {
            const [light, dark] = [false, true].map(theme => Math.abs(lightness(tn.colour(t, theme)) - lightness(tn.colour(0,
                theme))));
            near(`dark colours: step to ${t}`, dark, light, 0.01);
        }
    },
    /* Columns have as many significant digits in each row. */
    figures() {
        for (const [x, wanted] of [[2, "2.00"], [-0.93, "−0.930"], [999.7, "1,000"], [12345.6, "12,346"], [0, "0"],
            [1e-7, "10⁻⁷"], [-1.005, "−1.00"]]) equal(`figures: ${x}`, tn.figures(x, 3), wanted);
        const shown = all("#eigen .vector .num").map(number => number.textContent);
        check("figures: of eigenvectors", shown.length > 0 && shown.every(text => text.replace(/[−.]/g, "").replace(/^0+/, "")
            .length === 3), shown.join());
    },
    linear() {
        const cards = all("#linear .vector");
        equal("linear: a picture for each output", cards.length, 4);
        press(cards[0], "ArrowRight");
        press(document.activeElement, "ArrowRight");
        press(one("#linear .large canvas"), "ArrowLeft");
        equal("linear: value", number("#linear .readout .num"), expected.linear);
    },
    compare() {
        equal("compare: similarity", Number(all("#compare tbody tr")[2].querySelector(".num").dataset.value),
            expected.similarity);
        equal("compare: other columns", all("#compare tbody tr").map(row => row.lastChild.textContent).join(), "4,–,4,–");
        press(one("#compare .picker [role=radio]"), "Home");
        const lines = all("#compare .line").map(line => line.getAttribute("d")).join();
        press(one("#compare .picker [role=radio]"), "End");
        check("compare: another spectrum", all("#compare .line").map(line => line.getAttribute("d")).join() !== lines,
            "the same");
    },
    time() {
        const slider = one("#time input[type=range]");
        equal("time: at the end", one("#time output").textContent, "500");
        type(slider, 1);
        equal("time: step", one("#time output").textContent, "100");
        equal("time: eigenvalue", Number(all("#time .vector .num")[2].dataset.value), expected.early);
        type(slider, 3);
        equal("time: table", number("#time td .num"), expected.rank);
        type(slider, 5);
        const play = one("#time .round");
        play.click();
        equal("time: playing", play.getAttribute("aria-pressed"), "true");
        equal("time: from the beginning", one("#time output").textContent, "0");
        play.click();
        equal("time: stopped", play.getAttribute("aria-pressed"), "false");
    },
    unknown() { check("unknown section", one("#unknown .alarm").textContent.includes("hologram"), one("#unknown").textContent); },
    live() { check("live: why there is none", /built without|no WebAssembly/.test(one("#no-live").textContent),
        one("#no-live").textContent); },
});
