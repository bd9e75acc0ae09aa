/* matrix.js - a matrix to look at: zoom (wheel, + and -, pinch), pan (drag, Shift and arrows), a cell under the cursor (pointer
   or arrows) with its value and both names. Two canvases: cells and names below, the cursor above, which moves without the
   cells being drawn again.

   A view is the cell at the left, the cell at the top and the pixels per cell. Cells of a matrix with few rows, or few columns,
   are stretched along the shorter side, so that it is not a strip. What is drawn first is coarse enough to be there within the
   time of a key press; strips of the full resolution follow while nobody presses anything. */
const quick = 8e6;                              /* products that a drawing may take at a time: about 10 ms */

const blocks = (first, last, step, size) => {
    const start = Math.max(0, Math.floor(first / step) * step), end = Math.min(size, Math.ceil(last / step) * step);
    return { first: start, step, count: Math.max(0, Math.ceil((end - start) / step)) };
};
const clamp = (x, low, high) => Math.max(low, Math.min(high, x));
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/* A pixel of an image has a place, so that is its name. */
const namesOf = (names, count) => {
    const { width, height, channels = 1 } = tn.page.pixels || {};
    if (!names && width * height * channels === count)
        return Array.from({ length: count }, (_, i) => `(${Math.floor(i / width) % height}, ${i % width})`);
    return tn.names(names, count);
};

/* The text of a name, cut to a width by halving. */
const fitted = (context, text, width) => {
    if (context.measureText(text).width <= width) return text;
    const letters = [...text];
    let low = 0, high = letters.length;
    while (low < high) {
        const middle = Math.ceil((low + high) / 2);
        if (context.measureText(letters.slice(0, middle).join("") + "…").width <= width) low = middle; else high = middle - 1;
    }
    return letters.slice(0, low).join("") + "…";
};

tn.matrix = matrix => {
    const source = tn.without(matrix, tn.source(matrix)), rows = source.rows, columns = source.columns;
    const rowNames = namesOf(matrix.rownames, rows), columnNames = namesOf(matrix.colnames, columns);
    const outputNames = tn.names(matrix.outputs || (source.outputs > 1 ? "outputs" : []), source.outputs);
    const cells = tn.h("canvas", { class: "cells" }), above = tn.h("canvas", { class: "above" });
    const words = { row: matrix.row_label || "row", column: matrix.column_label || "column" };
    const stage = tn.h("div", { class: "stage", tabindex: 0, role: "application", "aria-roledescription": "matrix",
        "aria-label": `Matrix of ${rows} by ${columns} values. Arrow keys move the cell, plus and minus zoom, ` +
            "Shift and arrows move the view, 0 shows all." }, cells, above);
    /* On paper there is no picker that shows which one this is. */
    const ofOutput = tn.h("p", { class: "print-only", hidden: source.outputs < 2 });
    const readout = tn.h("p", { class: "readout cell", "aria-live": "polite" }), status = tn.h("span", { class: "soft status" });
    let output = matrix.start || 0, view = { x: 0, y: 0, scale: 1 }, cursor = { i: 0, j: 0 }, width = 0, height = 0, limit = 1;
    let limitOf = "", contrast = 1, drawing = 0, together = !!matrix.together;
    let inView = false, stale = false;

    /* ---- geometry. Room for names, which lie down over their columns where these are wide enough. */
    const side = { left: 96, top: 84 };
    let widest = 0;
    const measure = () => {
        const context = cells.getContext("2d"), wide = text => context.measureText(text).width;
        const most = names => names.slice(0, 400).reduce((so, name) => Math.max(so, wide(tn.plain(name))), 0);
        context.font = style("--canvas-font");
        widest = most(columnNames) + 8;
        side.left = clamp(Math.ceil(Math.max(most(rowNames) + 16, wide(words.column + " →") + 8)), 40, 96);
        side.top = 84;
    };
    const lying = () => !matrix.colnames && !pixels || columns <= 400 && widest <= wideOf();
    const tallest = () => Math.max(260, Math.min(660, window.innerHeight * 0.8));
    const stretchOf = (short, long, room, least) => clamp(Math.min(least, room) / Math.max(1, short * room / long), 1, 40);
    const stretchColumns = () => stretchOf(columns, rows, tallest() - side.top, 360);
    let sx = 1, sy = 1;                         /* how cells are stretched */
    const fit = () => Math.min((width - side.left) / columns / sx, (height - side.top) / rows / sy);
    const largest = () => Math.max(fit(), 44);
    const wideOf = () => view.scale * sx, highOf = () => view.scale * sy;
    const settle = next => {
        const scale = clamp(next.scale, fit(), largest());
        const wide = (width - side.left) / scale / sx, tall = (height - side.top) / scale / sy;
        view = { scale, x: clamp(next.x, 0, Math.max(0, columns - wide)), y: clamp(next.y, 0, Math.max(0, rows - tall)) };
        stage.classList.toggle("near", scale > fit() * 1.001);
    };
    const cellAt = (px, py) => ({ i: Math.floor((py - side.top) / highOf() + view.y),
        j: Math.floor((px - side.left) / wideOf() + view.x) });
    const zoom = (factor, px, py) => {
        const x = view.x + (px - side.left) / wideOf(), y = view.y + (py - side.top) / highOf();
        const scale = clamp(view.scale * factor, fit(), largest());
        settle({ scale, x: x - (px - side.left) / scale / sx, y: y - (py - side.top) / scale / sy });
        draw();
    };
    const placeOf = ({ i, j }) => [side.left + (j + 0.5 - view.x) * wideOf(), side.top + (i + 0.5 - view.y) * highOf()];
    const zoomKey = factor => {
        const [px, py] = placeOf(cursor), inside = px >= side.left && px < width && py >= side.top && py < height;
        zoom(factor, inside ? px : (side.left + width) / 2, inside ? py : (side.top + height) / 2);
    };

    /* ---- drawing */
    const paper = (canvas, context) => {
        const ratio = Math.min(3, window.devicePixelRatio || 1);
        canvas.width = width * ratio;
        canvas.height = height * ratio;
        canvas.style.height = height + "px";
        context.setTransform(ratio, 0, 0, ratio, 0, 0);
    };
    const put = (context, values, down, across) => {
        if (!down.count || !across.count) return;
        const small = document.createElement("canvas");
        small.width = across.count;
        small.height = down.count;
        small.getContext("2d").putImageData(new ImageData(tn.paint(values, limit / contrast, source.unsigned), across.count,
            down.count), 0, 0);
        context.save();
        context.beginPath();
        context.rect(side.left, side.top, Math.min(width - side.left, (columns - view.x) * wideOf()),
            Math.min(height - side.top, (rows - view.y) * highOf()));
        context.clip();
        context.imageSmoothingEnabled = false;
        context.drawImage(small, side.left + (across.first - view.x) * wideOf(), side.top + (down.first - view.y) * highOf(),
                          across.count * across.step * wideOf(), down.count * down.step * highOf());
        context.restore();
    };
    /* What is seen, in blocks that are `coarse` times those of a pixel. */
    const stepOf = size => Math.max(1, Math.ceil(0.999 / size));
    const visible = coarse => ({
        down: blocks(view.y, view.y + (height - side.top) / highOf(), coarse * stepOf(highOf()), rows),
        across: blocks(view.x, view.x + (width - side.left) / wideOf(), coarse * stepOf(wideOf()), columns) });
    const finest = () => Math.min(stepOf(wideOf()), stepOf(highOf()));
    const drawCells = whole => {
        const context = cells.getContext("2d"), mine = ++drawing;
        paper(cells, context);
        let coarse = 1, { down, across } = visible(coarse);
        while (!whole && source.work(down.count, across.count) > quick && coarse < Math.max(rows, columns))
            ({ down, across } = visible(coarse *= 2));
        put(context, source.grid(output, down, across), down, across);
        const [m, n] = [stepOf(highOf()), stepOf(wideOf())];
        status.textContent = m * n > 1 ? `A cell of the picture is the mean of ${m} × ${n} values; the number above is one value.`
            : "";
        if (coarse === 1) return;
        const view = visible(1);
        prepare(context, view, mine, source.prepare(view.across)[Symbol.iterator]());
    };
    /* What follows takes no longer at a time than the first drawing, so that a key finds the page free. */
    const prepare = (context, view, mine, parts) => setTimeout(() => {
        let part = { done: false };
        for (let work = 0; mine === drawing && work < quick && !part.done; work += part.value || 0) part = parts.next();
        if (part.done) refine(context, view, mine, 0); else if (mine === drawing) prepare(context, view, mine, parts);
    });
    /* Strip by strip, and not at all once something else is to be drawn. */
    const refine = (context, { down, across }, mine, done) => {
        if (mine !== drawing || done >= down.count) return;
        const count = Math.min(down.count - done, Math.max(1, Math.floor(quick / (across.count * source.cost))));
        const strip = { first: down.first + done * down.step, step: down.step, count };
        setTimeout(() => {
            if (mine !== drawing) return;
            put(context, source.grid(output, strip, across), strip, across);
            refine(context, { down, across }, mine, done + count);
        });
    };
    /* Values in cells, with as many digits as there is room for. */
    const drawNumbers = () => {
        if (wideOf() < 42 || highOf() < 16) return;
        const context = cells.getContext("2d"), { down, across } = visible(1);
        const values = source.grid(output, down, across), room = wideOf() - 6, map = source.unsigned ? tn.sequential : tn.colour;
        context.font = style("--canvas-font");
        const wide = (v, digits) => context.measureText(tn.format(v, digits)).width > room;
        const most = [3, 2].find(digits => values.filter(v => wide(v, digits)).length < values.length / 4) || 1;
        context.textAlign = "center";
        context.textBaseline = "middle";
        for (let a = 0, k = 0; a < down.count; a++)
            for (let b = 0; b < across.count; b++, k++) {
                const [x, y] = placeOf({ i: down.first + a, j: across.first + b });
                if (x < side.left || y < side.top || source.empty(down.first + a, across.first + b)) continue;
                let digits = most;
                while (digits && wide(values[k], digits)) digits--;
                context.fillStyle = tn.inkOn(map(values[k] * contrast / limit));
                if (digits) context.fillText(tn.format(values[k], digits), x, y);
            }
    };
    const drawNames = () => {
        const context = cells.getContext("2d"), room = 14;
        const flat = lying(), round = n => [1, 2, 5].map(k => k * 10 ** Math.floor(Math.log10(n))).find(k => k >= n)
            || 10 ** Math.ceil(Math.log10(n));
        const apart = (size, room, numbers) => {
            const fits = Math.ceil(room / size);
            return numbers ? round(fits) : pixels && 2 * fits > pixels.width ? Math.ceil(fits / pixels.width) * pixels.width : fits;
        };
        const everyRow = apart(highOf(), room, !matrix.rownames && !pixels);
        const everyColumn = flat ? apart(wideOf(), widest, !matrix.colnames && !pixels) : apart(wideOf(), room);
        context.font = style("--canvas-font");
        context.textBaseline = "middle";
        context.textAlign = "right";
        context.fillStyle = style("--soft");
        for (let i = Math.ceil(view.y / everyRow) * everyRow; i < rows; i += everyRow) {
            const y = side.top + (i + 0.5 - view.y) * highOf();
            if (y > height - 4) break;
            if (y > side.top + 4) context.fillText(fitted(context, tn.plain(rowNames[i]), side.left - 14), side.left - 8, y);
        }
        context.textAlign = flat ? "center" : "left";
        for (let j = Math.ceil(view.x / everyColumn) * everyColumn; j < columns; j += everyColumn) {
            const x = side.left + (j + 0.5 - view.x) * wideOf();
            if (x > width - 4) break;
            if (x < side.left + 4) continue;
            context.save();
            context.translate(x, side.top - (flat ? 10 : 8));
            if (!flat) context.rotate(-Math.PI / 2);
            if (flat) context.fillText(tn.plain(columnNames[j]), 0, 0);
            else context.fillText(fitted(context, tn.plain(columnNames[j]), side.top - 14), 0, 0);
            context.restore();
        }
        context.textAlign = "left";
        context.fillText(words.column + " →", 4, 12);
        context.fillText(words.row + " ↓", 4, side.top - 10);
    };
    const drawCursor = () => {
        const context = above.getContext("2d"), w = Math.max(wideOf(), 3), h = Math.max(highOf(), 3);
        paper(above, context);
        const [px, py] = placeOf(cursor);
        if (px < side.left || py < side.top || px > width || py > height) return;
        context.strokeStyle = style("--ink");
        context.globalAlpha = 0.35;
        context.lineWidth = 1;
        context.beginPath();
        context.moveTo(side.left, py); context.lineTo(px - w / 2, py);
        context.moveTo(px, side.top); context.lineTo(px, py - h / 2);
        context.stroke();
        context.globalAlpha = 1;
        for (const [colour, grow] of [["#fff", 1.5], ["#000", 0.5]]) {
            context.strokeStyle = colour;
            context.strokeRect(px - w / 2 - grow, py - h / 2 - grow, w + 2 * grow, h + 2 * grow);
        }
    };
    /* whole: in full resolution at once, however long that takes. */
    const draw = whole => {
        if (!width) return;
        const scale = [together ? "all" : output, finest()].join();
        if (limitOf !== scale) {
            limit = (together ? Array.from({ length: source.outputs }, (_, o) => source.limit(o, finest()))
                .reduce((most, one) => Math.max(most, one), 0) : source.limit(output, finest())) || 1;
            limitOf = scale;
        }
        drawCells(whole === true);
        drawNumbers();
        drawNames();
        drawCursor();
        scaleText.textContent = (source.unsigned ? "0 to " : "±") + tn.format(limit / contrast, 3);
        bar.getContext("2d").putImageData(new ImageData(tn.paint(ramp, 1, source.unsigned), 64, 1), 0, 0);
    };

    /* ---- the cell under the cursor, and for pictures all values of its row */
    const rowPicture = tn.h("span", { class: "rowpicture" });
    const isPicture = tn.page.pixels && tn.page.pixels.width * tn.page.pixels.height === columns && columns > 1;
    const pixels = isPicture ? tn.page.pixels : null;
    const middle = pixels ? (pixels.height >> 1) * pixels.width + (pixels.width >> 1) : 0;
    const first = middle < rows ? { i: middle, j: middle } : cursor;
    cursor = first;
    const tell = () => {
        const value = source.at(output, cursor.i, cursor.j), empty = source.empty(cursor.i, cursor.j);
        ofOutput.replaceChildren((matrix.output_label || "output") + " ", tn.token(outputNames[output] || ""));
        readout.replaceChildren(tn.h("span", {}, words.row + " ", tn.h("b", { class: "rowname" }, tn.token(rowNames[cursor.i]))),
            ", ",
            tn.h("span", {}, words.column + " ", tn.h("b", { class: "columnname" }, tn.token(columnNames[cursor.j]))), ": ",
                empty ? tn.h("span", { class: "soft", text: "masked" }) : tn.number(value));
        if (!pixels) return;
        const row = source.grid(output, { first: cursor.i, step: 1, count: 1 }, { first: 0, step: 1, count: columns });
        const picture = tn.picture(row, pixels.width, pixels.height, { label: `row ${cursor.i} as a picture` });
        if (rows === columns) picture.addEventListener("click", event => {
            move(tn.pixelAt(picture, event), cursor.j, true);
            told(`${cursor.i},${cursor.j}`);
        });
        rowPicture.replaceChildren(picture, tn.h("span", { class: "soft", text: "this row, as a picture"
            + (rows === columns ? "; a click on a pixel shows that pixel’s row" : "") }));
    };
    const move = (i, j, follow) => {
        cursor = { i: clamp(i, 0, rows - 1), j: clamp(j, 0, columns - 1) };
        if (follow) {
            const wide = (width - side.left) / wideOf(), tall = (height - side.top) / highOf();
            const x = clamp(view.x, cursor.j + 1 - wide, cursor.j), y = clamp(view.y, cursor.i + 1 - tall, cursor.i);
            if (x !== view.x || y !== view.y) { settle({ ...view, x, y }); draw(); }
        }
        drawCursor();
        tell();
    };

    /* ---- hands: keys, wheel, one finger or two */
    const told = matrix.id ? tn.keep(matrix.id, (cell = `${first.i},${first.j}`) => {
        const [, i, j] = cell.match(/^(\d{1,9}),(\d{1,9})$/).map(Number);
        if (i >= rows || j >= columns) return false;
        move(i, j, true);
        return true;
    }) : () => {};
    const keys = {
        "+": () => zoomKey(1.5), "=": () => zoomKey(1.5), "-": () => zoomKey(1 / 1.5),
            "0": () => { settle({ x: 0, y: 0, scale: 0 }); draw(); },
        ArrowLeft: by => move(cursor.i, cursor.j - by, true), ArrowRight: by => move(cursor.i, cursor.j + by, true),
        ArrowUp: by => move(cursor.i - by, cursor.j, true), ArrowDown: by => move(cursor.i + by, cursor.j, true),
        Home: () => move(cursor.i, 0, true), End: () => move(cursor.i, columns - 1, true),
        PageUp: () => picker.set(Math.max(0, output - 1)), PageDown: () => picker.set(Math.min(source.outputs - 1, output + 1)),
    };
    const pans = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const pan = (dx, dy) => { settle({ ...view, x: view.x + dx, y: view.y + dy }); draw(); };
    stage.addEventListener("keydown", event => {
        if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
        event.preventDefault();
        if (event.shiftKey && pans[event.key]) pan(pans[event.key][0] * 60 / wideOf(), pans[event.key][1] * 60 / highOf());
        else keys[event.key](finest());
        told(`${cursor.i},${cursor.j}`);
    });
    /* The wheel scrolls the page until the matrix has the focus, so that nobody is caught in it. */
    stage.addEventListener("wheel", event => {
        if (document.activeElement !== stage && !event.ctrlKey) return;
        event.preventDefault();
        const box = stage.getBoundingClientRect();
        zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
    const fingers = new Map();
    const local = event => {
        const box = stage.getBoundingClientRect();
        return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    const spread = () => {
        const [a, b] = [...fingers.values()];
        return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, apart: Math.hypot(a.x - b.x, a.y - b.y) };
    };
    const point = ({ x, y }) => {
        const cell = cellAt(x, y);
        if (cell.i >= 0 && cell.j >= 0 && cell.i < rows && cell.j < columns && x >= side.left && y >= side.top)
            move(cell.i, cell.j);
    };
    stage.addEventListener("pointerdown", event => {
        fingers.set(event.pointerId, local(event));
        if (event.isTrusted) stage.setPointerCapture(event.pointerId);
        stage.focus({ preventScroll: true });
        point(local(event));
        told(`${cursor.i},${cursor.j}`);
    });
    stage.addEventListener("pointermove", event => {
        const now = local(event), before = fingers.get(event.pointerId);
        if (!before) { point(now); return; }
        const wide = fingers.size === 2 && spread();
        fingers.set(event.pointerId, now);
        if (wide) { const next = spread(); zoom(next.apart / wide.apart, next.x, next.y); }
        else pan((before.x - now.x) / wideOf(), (before.y - now.y) / highOf());
    });
    for (const name of ["pointerup", "pointercancel"]) stage.addEventListener(name, event => fingers.delete(event.pointerId));
    stage.addEventListener("dblclick", event => { const { x, y } = local(event); zoom(2, x, y); });

    /* ---- as a file: what is seen as PNG; all numbers of the output as CSV, or those that are seen where all are too many */
    const what = () => [matrix.what, source.outputs > 1 && `${matrix.output_label || "output"} ${outputNames[output]}`].filter(
        Boolean).join(" ");
    const csv = () => {
        const few = (m, n) => m * n <= 2e6 && m * n * source.cost <= 4e9, part = (first, end) => ({ first, step: 1,
            count: end - first });
        let down = part(0, rows), across = part(0, columns);
        if (!few(rows, columns)) {
            const top = Math.floor(view.y), left = Math.floor(view.x);
            down = part(top, Math.min(rows, Math.ceil(view.y + (height - side.top) / highOf())));
            across = part(left, Math.min(columns, Math.ceil(view.x + (width - side.left) / wideOf())));
        }
        if (!few(down.count, across.count)) throw new Error("these are too many numbers for one file: zoom in, and what is " +
            "seen is saved");
        const values = source.grid(output, down, across), names = (all, range) => Array.from({ length: range.count }, (_, k) =>
            all[range.first + k]);
        return tn.csv([[`${words.row} \\ ${words.column}`, ...names(columnNames, across)], ...names(rowNames, down).map((name, k) =>
            [name, ...Array.from(values.subarray(k * across.count, (k + 1) * across.count), v => v === -Infinity ? "" : v)])]);
    };
    const saves = tn.saves(what, { CSV: csv, PNG: () => { arrange(); draw(true); return tn.png(cells); } });

    /* ---- around it */
    const show = o => {
        output = o;
        draw();
        tell();
    };
    const picker = tn.picker(matrix.output_label || "output", outputNames, i => { show(i); follow(i); }, output);
    const later = o => { output = o; if (inView) draw(); else stale = true; tell(); };
    const follow = source.outputs > 1 && !matrix.alone ? tn.follow("output", outputNames, picker, later) : () => {};
    const contrasts = tn.slider("contrast", { min: 0, max: 6, step: 0.25, value: 0, format: v => "×" + tn.format(2 ** v, 3) },
                                v => { contrast = 2 ** v; draw(); });
    const button = (text, label, onclick) => tn.h("button", { type: "button", class: "round", "aria-label": label, title: label,
        text, onclick });
    const scaleText = tn.h("span", { class: "soft" });
    const ramp = Float64Array.from({ length: 64 }, (_, i) => source.unsigned ? i / 63 : i / 31.5 - 1);
    const bar = tn.picture(ramp, 64, 1, { sequential: source.unsigned,
        label: source.unsigned ? "colours from 0 to the largest value" : "colours from negative, blue, to positive, red" });
    const errors = (source.errors || []).filter(([, error]) => error !== undefined);
    const notes = matrix.of === "factors" ? tn.h("p", { class: "soft small" },
        `Multiplied in this page from factors with ${source.terms} terms`,
        errors.length ? [", kept in 8 bits; largest error, as a share of the largest value: ",
            errors.map(([name, error], k) => [k ? ", " : "", tn.h("i", { text: name }), " ", tn.number(error, 2)])] : null, ".")
                : null;
    const arrange = () => {
        const now = Math.floor(stage.clientWidth);
        if (!now || now === width) return;
        const whole = !width || view.scale <= fit() * 1.001;
        width = now;
        measure();
        const size = () => {
            [sx, sy] = [stretchColumns(), stretchOf(rows, columns, width - side.left, 150)];
            height = Math.round(clamp(side.top + (width - side.left) * rows * sy / columns / sx, 120, tallest()));
            settle(whole ? { x: 0, y: 0, scale: 0 } : view);
        };
        size();
        if (whole && lying()) { side.top = 40; size(); }
        Object.assign(stage.dataset, side);
        draw();
    };
    /* What nobody sees is drawn when it comes near, or is printed. end(): it is not in the page any more, and forgotten. */
    const ended = new AbortController(), there = { signal: ended.signal };
    new IntersectionObserver(entries => {
        inView = entries[entries.length - 1].isIntersecting;
        if (inView) arrange();
        if (inView && stale) draw();
        stale = false;
    }, { rootMargin: "600px" }).observe(stage);
    tn.resized(stage, () => { if (inView) arrange(); });
    addEventListener("beforeprint", () => {
        if (!stage.isConnected) return;
        arrange();
        draw();
    }, there);
    stage.addEventListener("focus", arrange);
    /* Another model: what is drawn, the scale and the cell are computed again. */
    document.addEventListener("tn-model", () => {
        if (!stage.isConnected || !source.changes) return;
        limitOf = "";
        if (inView) draw(); else stale = true;
        tell();
    }, there);
    document.addEventListener("tn-theme", () => { if (inView) draw(); else stale = true; }, there);
    stage.style.maxWidth = Math.max(240, side.left + (tallest() - side.top) * columns / rows * stretchColumns()) + "px";
    tell();
    return { set: picker.set, output: () => output, source, arrange, end: () => ended.abort(),
        element: tn.h("div", { class: "matrix" },
        tn.h("div", { class: "tools" }, picker.element, tn.h("div", { class: "group" },
            button("−", "zoom out", () => zoomKey(1 / 1.5)),
            button("+", "zoom in", () => zoomKey(1.5)), button("⤢", "show all", keys["0"])), contrasts.element, matrix.together && source.outputs > 1
                ? tn.toggle(`one scale for all ${matrix.output_label}s`, true, on => { together = on; draw(); }) : null),
        tn.h("div", { class: "area" }, stage,
            tn.h("div", { class: "beside" }, ofOutput, readout, rowPicture, tn.h("span", { class: "scale" }, scaleText, bar), status,
                notes, saves))) };
};

/* The section with the interaction matrix between pixels of an output, by its name, and the number of the output there. */
const between = name => {
    const { width, height } = tn.page.pixels || {}, is = n => n === width * height;
    for (const section of tn.page.sections.filter(one => one.type === "matrix" && !one.embed)) {
        const outputs = ((section.p || section.values).shape || []).at(section.p ? -2 : -3) || 1;
        const sides = section.of === "factors" ? [section.w.shape[1], section.v.shape[1]] : (section.values.shape || []).slice(-2);
        const output = tn.names(section.outputs || "outputs", outputs).indexOf(name);
        if (output >= 0 && sides.length === 2 && sides.every(is)) return { section, output };
    }
    return null;
};
tn.hasRows = name => between(name) !== null;
/* A row of that matrix as a large picture. A click goes on to the row of another pixel. */
tn.rowOf = (name, pixel) => {
    const { section, output } = between(name), { width } = tn.page.pixels;
    const source = tn.without(section, tn.source(section)), place = tn.h("div", { class: "rowof" });
    const show = i => {
        const row = source.grid(output, { first: i, step: 1, count: 1 }, { first: 0, step: 1, count: source.columns });
        const at = `pixel (${Math.floor(i / width)}, ${i % width})`;
        place.replaceChildren(tn.h("h4", {}, `What ${at} does with each other pixel for “`, tn.token(name), "”"),
            tn.large(row, `row of ${at} for ${tn.plain(name)}`, show));
    };
    show(pixel);
    return place;
};

/* Few rows that are pictures are shown as pictures. */
const pictures = source => {
    const { width, height } = tn.page.pixels || {};
    return width * height === source.columns && source.rows * source.outputs <= 64 && source.columns > 1;
};
const asPictures = (section, source) => {
    const { width, height } = tn.page.pixels, place = tn.h("div", { class: "detail" });
    const names = [...tn.names(source.outputs > 1 ? section.outputs || "outputs" : section.rownames,
        source.rows * source.outputs)];
    const all = names.map((_, k) => source.grid(Math.floor(k / source.rows), { first: k % source.rows, step: 1, count: 1 },
        { first: 0, step: 1, count: source.columns }));
    const limit = all.reduce((most, values) => Math.max(most, tn.largest(values)), 0);
    const show = k => {
        cards.forEach((card, i) => { card.setAttribute("aria-checked", i === k); card.tabIndex = i === k ? 0 : -1; });
        place.replaceChildren(tn.large(all[k], tn.plain(names[k])), tn.h("div", { class: "facts" },
            tn.h("h3", {}, tn.token(names[k]))));
    };
    const cards = all.map((values, k) => tn.h("button", { type: "button", role: "radio", class: "vector",
        onclick: () => show(k) },
        tn.picture(values, width, height, { limit, label: tn.plain(names[k]) }), tn.h("span", { class: "caption" },
            tn.token(names[k]))));
    const row = tn.h("div", { class: "row", role: "radiogroup", "aria-label": section.title, onkeydown: event => {
        const to = tn.step(event.key, cards.indexOf(event.target), cards.length);
        if (to < 0) return;
        event.preventDefault();
        show(to);
        cards[to].focus();
    } }, cards);
    show(0);
    return tn.h("div", { class: "gallery pictures" }, tn.h("div", { class: "vectors" }, row), tn.h("div", { class: "chosen" },
        place));
};

/* A matrix with a focus shows its rows and columns first, and all on request. */
const focused = section => {
    const { focus } = section, place = tn.h("div", {});
    let shown = null;
    const show = all => {
        const start = shown ? shown.output() : section.start;
        shown = tn.matrix({ ...(all ? section : { ...section, embed: focus.embed, rownames: focus.names,
            colnames: focus.names }),
            start });
        place.replaceChildren(shown.element);
    };
    show(false);
    return [tn.h("div", { class: "tools" }, tn.toggle("all tokens", false, show)), place];
};
tn.sections.matrix = (section, box) => {
    const source = tn.source(section);
    if (pictures(source)) { box.append(asPictures(section, source)); return; }
    box.append(...(section.focus ? focused(section) : [tn.matrix(section).element]),
        tn.h("p", { class: "hint" }, "Click or tab into the matrix: ", tn.h("kbd", { text: "+" }), " ",
            tn.h("kbd", { text: "−" }), " or the wheel zoom, ",
            tn.h("kbd", { text: "arrows" }), " move the cell, ", tn.h("kbd", { text: "Shift" }),
                " with arrows or a drag moves the view, ", tn.h("kbd", { text: "0" }), " shows all."));
};
