/* printed.js - a page whose style for paper holds everywhere: each canvas shows something and none lies over another one, which
   would be printed white, no plot is cut, and no table is. */
whenFilled({
    async figures() {
        dispatchEvent(new Event("beforeprint"));
        await rest(300);
        const seen = element => element.getClientRects().length > 0, box = element => element.getBoundingClientRect();
        const canvases = all("canvas").filter(seen), plots = all(".plot svg");
        /* The share of the commonest colour. */
        const sameness = canvas => {
            const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
            const counts = new Map();
            for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) || 0) + 1);
            return Math.max(...counts.values()) / pixels.length;
        };
        check("printed: there are figures", canvases.length > 0 && plots.length > 0,
            `${canvases.length} canvases, ${plots.length} plots`);
        for (const canvas of canvases) {
            const name = `printed: ${canvas.className} of ${canvas.closest("section").id}`, a = box(canvas);
            if (!canvas.closest(".pad")) check(`${name} shows something`, sameness(canvas) < 0.97,
                `${sameness(canvas)} is one colour`);
            /* A value is many pixels, because what shows a printed page smooths pictures. */
            if (canvas.classList.contains("picture")) check(`${name} is not smoothed`, Math.max(canvas.width, canvas.height) >= 112,
                `${canvas.width} pixels`);
            check(`${name} is not covered`, !canvases.some(other => { const b = box(other); return other !== canvas
                && a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1; }), "it is");
        }
        for (const plot of plots) check(`printed: a plot of ${plot.closest("section").id} is whole`,
            box(plot).right <= box(plot.parentElement).right + 1, `${box(plot).right}, of ${box(plot.parentElement).right}`);
        for (const scroll of all(".scroll.tall")) check(`printed: a table of ${scroll.closest("section").id} is whole`,
            scroll.scrollHeight <= scroll.clientHeight + 1, `${scroll.scrollHeight} of ${scroll.clientHeight}`);
        for (const head of all("thead th, thead button")) check("printed: heads are repeated",
            getComputedStyle(head).position === "static" && (head.tagName === "TH" || getComputedStyle(head).display === "contents"),
            head.outerHTML.slice(0, 80));
        document.body.append(tn.h("p", { class: "no-print" }, "a hint"), tn.h("button", { text: "an action" }));
        for (const control of all("#contents, .switches, .tools, .saves, .no-print, .more, input, body > button"))
            check("printed: no controls", !seen(control), control.outerHTML.slice(0, 80));
        for (const pad of all(".pad")) check("printed: the drawing is large", box(pad).width > 200, box(pad).width);
        for (const two of all(".two.even").filter(seen)) check("printed: two models are side by side",
            box(two.children[1]).left > box(two.children[0]).right && box(two.children[1]).top === box(two.children[0]).top,
            `${box(two.children[1]).top}, ${box(two.children[0]).top}`);
    },
});
