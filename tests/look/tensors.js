/* tensors.js - a page of a file of 300 tensors, which are known: number i has the name, shape and kind that fixture.c gives it. */
const { nothing_broke_out, right_to_left_is_isolated, ...ofThis } = everyPage;
const [section] = tn.page.sections, rows = () => all("#tensors .chooser tbody tr");
const shown = () => rows().filter(row => row.getClientRects().length > 0);
whenFilled({
    ...ofThis,
    numbers() {
        equal("tensors: all of them", rows().length, 300);
        section.list.forEach((tensor, i) => {
            const values = Array.from(tn.array(tensor.values)), norm = Math.hypot(...values);
            near(`tensors: norm of ${i}`, tensor.norm, norm, 1e-6);
            equal(`tensors: largest of ${i}`, tensor.largest, Math.max(...values));
            if (tensor.spectra) near(`tensors: singular values of ${i}`, Math.hypot(...tn.array(tensor.spectra)), norm, 1e-6);
        });
        equal("tensors: with a spectrum", section.list.filter(tensor => tensor.spectra).length, 200);
    },
    search() {
        const input = one("#tensors input[type=search]"), of = text => { type(input, text); return shown().length; };
        equal("tensors: by name", of("LAYER.7"), 33);
        equal("tensors: by shape", of("4x6"), 100);
        equal("tensors: by kind", of("bf16"), 100);
        equal("tensors: by all", of("[4,6] layer.7"), 11);
        check("tensors: how many", one("#tensors [role=status]").textContent === "11 of 300 tensors",
            one("#tensors [role=status]").textContent);
        equal("tensors: by what is not there", of("4x6 bf16"), 0);
        equal("tensors: all again", of(""), 300);
    },
    sorted() {
        const headings = all("#tensors thead button"), norms = () => shown().map(row => Number(all(".num", row).at(-3)
            .dataset.value)), norm = headings.find(one => one.textContent === "norm");
        norm.click();
        check("tensors: downwards", norms().every((v, i, all) => !i || v <= all[i - 1]), norms().slice(0, 5));
        norm.click();
        check("tensors: upwards", norms().every((v, i, all) => !i || v >= all[i - 1]), norms().slice(0, 5));
        headings[0].click();
        equal("tensors: by name, numbers as numbers", one("th", shown()[30]).textContent, "layer.10.bias");
    },
    async chosen() {
        const i = 31, tensor = section.list[i], stage = () => one("#tensors .stage");
        await follow("#tensors?tensor=" + encodeURIComponent(tensor.name));
        equal("tensors: the address chooses", one("#tensors [aria-selected=true] th").textContent, tensor.name);
        press(stage(), "ArrowRight");
        equal("tensors: its numbers", valueOf("#tensors .readout.cell .num"), tn.array(tensor.values)[1]);
        const csv = rowsOf((await saved(one("#tensors"), "CSV")).text);
        equal("tensors: the table as a file", csv.length, 301);
    },
});
