/* xor.js - XOR: a bilinear layer of two bits, its 2 x 2 interaction matrix, and the plane that it colours. */
const bits = Float32Array.from([0, 0, 0, 1, 1, 0, 1, 1]), wanted = Float32Array.from([0, 1, 1, 0]);
const side = 61, low = -0.3, high = 1.3;
const plane = Float32Array.from({ length: 2 * side * side }, (_, i) => {
    const cell = i >> 1, place = i & 1 ? 1 - Math.floor(cell / side) / (side - 1) : cell % side / (side - 1);
    return low + place * (high - low);
});
const at = v => 100 * (v - low) / (high - low);             /* a coordinate as a percentage of the picture */

let bias = false;
const matrix = tn.h("div", { class: "of-matrix" }), pairs = tn.h("div", {}), table = tn.h("div", {});
const picture = tn.h("div", { class: "plane" });
const canvas = tn.h("canvas", { class: "picture", width: side, height: side, role: "img",
    "aria-label": "the output of the layer at each point of the plane" });
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
        return tn.s("g", { class: value < 0 ? "below" : "above" }, [1, -1].map(sign => tn.s("line", { x1: at(0), y1: 100 - at(0),
            x2: at(sign * reach * a), y2: 100 - at(sign * reach * b), "stroke-width": 1.4, "stroke-linecap": "round" })));
    }),
    ...[0, 1, 2, 3].map(i => {
        const x = at(bits[2 * i]), y = 100 - at(bits[2 * i + 1]), kind = wanted[i] ? "one" : "";
        return tn.s("g", {}, tn.s("circle", { cx: x, cy: y, r: 4.6, class: kind }),
            tn.s("text", { x, y, dy: ".35em", "text-anchor": "middle", class: kind, text: wanted[i] }));
    }));

const names = () => bias ? ["a", "b", "1"] : ["a", "b"];
const draw = call => {
    const q = call("train_matrix", 0).numbers, { count, numbers } = call("train_eigenvectors", 0, 3), n = names().length;
    const written = v => (v < 0 ? "−" : "") + Math.abs(v).toFixed(2);
    const values = numbers.slice(0, count), vectors = numbers.slice(count);
    drawPlane(call);
    drawArrows(bias ? [] : values, vectors, n);
    matrix.replaceChildren(tn.numbers(q, names(), "the interaction matrix Q"));
    pairs.replaceChildren(tn.bars(Array.from(values, (value, k) => ({ value,
        label: "(" + Array.from(vectors.slice(k * n, (k + 1) * n), written).join(", ") + ")" })),
        { head: ["eigenvector", "", "eigenvalue"] }));
    const answers = call("train_answers", bits).numbers, columns = ["a", "b", "a xor b", "the layer says"];
    table.replaceChildren(tn.h("table", { class: "truth" },
        tn.h("thead", {}, tn.h("tr", {}, columns.map((name, i) => tn.h("th", { scope: "col", class: i > 2 ? "right" : "",
            text: name })))),
        tn.h("tbody", {}, [0, 1, 2, 3].map(i => tn.h("tr", {}, tn.h("td", { text: bits[2 * i] }),
            tn.h("td", { text: bits[2 * i + 1] }), tn.h("td", { text: wanted[i] }),
            tn.h("td", { class: "right" }, tn.number(answers[i], 3)))))));
};

tn.sections.xor = tn.lesson({
    rate: 0.1, rates: [-3, 0.5], steps: 1, most: 600,
    view: tn.h("div", { class: "xor" },
        tn.h("figure", {}, picture, tn.h("figcaption", { class: "small soft" }, "The output at each (a, b): blue below 0, red " +
            "above. Lines: the eigenvectors of Q, as long as their eigenvalues.")),
        tn.h("div", {}, tn.h("h4", { text: "The interaction matrix Q" }), matrix, tn.h("h4", { text: "Its eigenvectors" }), pairs,
            tn.h("h4", { text: "The gate" }), table)),
    tools: restart => tn.toggle("with biases", bias, on => { bias = on; restart(); }),
    begin: (call, seed) => call("train_begin", bits, wanted, 4, 1, bias ? 1 : 0, 4, seed),
    frame: (call, rate) => call("train_steps", 1, 4, rate, 0).numbers[0],
    loss: call => call("train_answers", bits).numbers.reduce((sum, v, i) => sum + (v - wanted[i]) ** 2, 0) / 4,
    draw,
});

tn.teach({ type: "xor", id: "learn", title: "A layer that multiplies", text:
    "A bilinear layer multiplies two linear maps of its input: y = P((W x) * (V x)). Whatever it learns is one symmetric " +
    "matrix Q for its output, y = xᵀ Q x. Here x is the two bits a and b, and y should be 1 where exactly one of them is 1. " +
    "Gradient descent begins with random weights; watch which matrix it finds." },
{ type: "words", id: "see", title: "What to see", paragraphs: [
    "Of the products that x has, a a and b b are 1 where a bit is on, and a b is 1 only where both are. So a a + b b − 2 a b " +
    "is XOR, and the matrix of that is Q = (1 −1; −1 1): the entry beside the diagonal counts twice. Every seed finds this " +
    "one matrix, though the weights W, V and P behind it differ each time. That is why one looks at Q, and not at the " +
    "weights.",
    "Q has one eigenvector with an eigenvalue other than 0: (0.71, −0.71) with the value 2. In its direction the bits " +
    "differ, so the layer says y = 2 (0.71 a − 0.71 b)² = (a − b)². At first there are two; the second one fades as the " +
    "layer learns.",
    "Let the learning rate grow, and the loss begins to swing, then leaves for infinity: a step is the learning rate times " +
    "the gradient, and if that leads across the valley to a higher place, so does the next one.",
] },
{ type: "words", id: "biases", title: "With biases", paragraphs: [
    "With biases the input is (a, b, 1), and there is more than one matrix for the same gate, because a a = a for bits: a + " +
    "b − 2 a b is XOR, too. Switch the biases on, and restart with other seeds: the four answers are the same, the plane " +
    "between them is not. Four points do not say what a function of the plane should be elsewhere.",
] });
