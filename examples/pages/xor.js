/* xor.js - XOR: a bilinear layer of two bits, its 2 x 2 interaction matrix, and the plane that it colours. */
const bits = Float32Array.from([0, 0, 0, 1, 1, 0, 1, 1]), wanted = Float32Array.from([0, 1, 1, 0]);
const side = 61, low = -0.3, high = 1.3;
const plane = Float32Array.from({ length: 2 * side * side }, (_, i) => {
    const cell = i >> 1, place = i & 1 ? 1 - Math.floor(cell / side) / (side - 1) : cell % side / (side - 1);
    return low + place * (high - low);
});
const at = v => 100 * (v - low) / (high - low);             /* a coordinate as a percentage of the picture */

let bias = false;
const matrix = tn.h("div", { class: "of-matrix" }), pairs = tn.h("div", {}), table = tn.h("div", {}), picture = tn.h("div", { class: "plane" });
const canvas = tn.h("canvas", { class: "picture", width: side, height: side, role: "img", "aria-label": "the output of the layer at each point of the plane" });
const overlay = tn.s("svg", { viewBox: "0 0 100 100", "aria-hidden": "true" });
picture.append(canvas, overlay);

const drawPlane = call => {
    const values = call("train_answers", plane).numbers;
    canvas.getContext("2d").putImageData(new ImageData(tn.paint(values, 1.5), side, side), 0, 0);
};
/* Eigenvectors are lines through the origin: along one of them the output grows as value times distance squared. */
const drawArrows = (values, vectors, n) => overlay.replaceChildren(
    ...Array.from(values, (value, k) => {
        const [a, b] = [vectors[k * n], vectors[k * n + 1]], reach = 0.75 * Math.min(1, Math.abs(value));
        return tn.s("g", { class: value < 0 ? "below" : "above" }, [1, -1].map(sign => tn.s("line", {
            x1: at(0), y1: 100 - at(0), x2: at(sign * reach * a), y2: 100 - at(sign * reach * b), "stroke-width": 1.4, "stroke-linecap": "round" })));
    }),
    ...[0, 1, 2, 3].map(i => tn.s("g", {}, tn.s("circle", { cx: at(bits[2 * i]), cy: 100 - at(bits[2 * i + 1]), r: 4.6, class: wanted[i] ? "one" : "zero-bit" }),
        tn.s("text", { x: at(bits[2 * i]), y: 100 - at(bits[2 * i + 1]), dy: ".35em", "text-anchor": "middle", class: wanted[i] ? "one" : "", text: wanted[i] }))));

const names = () => bias ? ["a", "b", "1"] : ["a", "b"];
const draw = call => {
    const q = call("train_matrix", 0).numbers, { count, numbers } = call("train_eigenvectors", 0, 3), n = names().length;
    const values = numbers.slice(0, count), vectors = numbers.slice(count);
    drawPlane(call);
    drawArrows(bias ? [] : values, vectors, n);
    matrix.replaceChildren(tn.numbers(q, names(), "the interaction matrix Q"));
    pairs.replaceChildren(tn.bars(Array.from(values, (value, k) => ({ value,
        label: "(" + Array.from(vectors.slice(k * n, (k + 1) * n), v => (v < 0 ? "−" : "") + Math.abs(v).toFixed(2)).join(", ") + ")" })), { head: ["eigenvector", "", "eigenvalue"] }));
    const answers = call("train_answers", bits).numbers;
    table.replaceChildren(tn.h("table", { class: "truth" }, tn.h("thead", {}, tn.h("tr", {}, ["a", "b", "a xor b", "the layer says"].map((name, i) => tn.h("th", { scope: "col", class: i > 2 ? "right" : "", text: name })))),
        tn.h("tbody", {}, [0, 1, 2, 3].map(i => tn.h("tr", {}, tn.h("td", { text: bits[2 * i] }), tn.h("td", { text: bits[2 * i + 1] }), tn.h("td", { text: wanted[i] }), tn.h("td", { class: "right" }, tn.number(answers[i], 3)))))));
};

tn.sections.xor = tn.lesson({
    rate: 0.1, rates: [-3, 0.5], steps: 1, most: 600,
    view: tn.h("div", { class: "xor" }, tn.h("figure", {}, picture, tn.h("figcaption", { class: "small soft" }, "The output at each (a, b): blue below 0, red above. Lines: the eigenvectors of Q, as long as their eigenvalues.")),
        tn.h("div", {}, tn.h("h4", { text: "The interaction matrix Q" }), matrix, tn.h("h4", { text: "Its eigenvectors" }), pairs, tn.h("h4", { text: "The gate" }), table)),
    tools: restart => tn.toggle("with biases", bias, on => { bias = on; restart(); }),
    begin: (call, seed) => call("train_begin", bits, wanted, 4, 1, bias ? 1 : 0, 4, seed),
    frame: (call, rate) => call("train_steps", 1, 4, rate, 0).numbers[0],
    loss: call => { const y = call("train_answers", bits).numbers; return y.reduce((sum, v, i) => sum + (v - wanted[i]) ** 2, 0) / 4; },
    draw,
});
