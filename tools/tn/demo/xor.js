/* xor.js - XOR: a bilinear layer of two bits, its weights, its 2 x 2 interaction matrix, and the plane that it colours. */
const bits = Float32Array.from([0, 0, 0, 1, 1, 0, 1, 1]), wanted = Float32Array.from([0, 1, 1, 0]);
const side = 61, low = -0.3, high = 1.3, most = 1.5;        /* of the plane; its colours end at an output of `most` */
const plane = Float32Array.from({ length: 2 * side * side }, (_, i) => {
    const cell = i >> 1, place = i & 1 ? 1 - Math.floor(cell / side) / (side - 1) : cell % side / (side - 1);
    return low + place * (high - low);
});
const at = v => 100 * (v - low) / (high - low);             /* a coordinate as a percentage of the plane */

let bias = false, shown = [];
const matrix = tn.h("div", {}), pairs = tn.h("div", {}), table = tn.h("div", {}), weights = tn.h("div", { class: "weights" });
const canvas = tn.h("canvas", { class: "picture", width: side, height: side, role: "img",
    "aria-label": "the output of the layer at each point of the plane" });
canvas.paint = () => canvas.getContext("2d").putImageData(new ImageData(tn.paint(shown, most), side, side), 0, 0);

/* The plane is 100 wide and high, with room for the axes at its left and below. */
const left = 20, top = 4, overlay = tn.s("svg", { x: left, y: top, width: 100, height: 100, viewBox: "0 0 100 100" });
const axes = [0, 1].flatMap(v => [
    tn.s("line", { class: "tick", x1: left - 2, x2: left, y1: top + 100 - at(v), y2: top + 100 - at(v) }),
    tn.s("text", { x: left - 4, y: top + 100 - at(v), dy: ".33em", "text-anchor": "end", text: v }),
    tn.s("line", { class: "tick", x1: left + at(v), x2: left + at(v), y1: top + 100, y2: top + 102 }),
    tn.s("text", { x: left + at(v), y: top + 108, "text-anchor": "middle", text: v })]);
const picture = tn.h("div", { class: "plane" }, canvas,
    tn.s("svg", { class: "axes", viewBox: "0 0 124 120", "aria-hidden": "true" }, axes, overlay,
    tn.s("text", { x: left + 50, y: top + 114, "text-anchor": "middle", text: "first bit, a" }),
    tn.s("text", { transform: `translate(6 ${top + 50}) rotate(-90)`, "text-anchor": "middle", text: "second bit, b" })));
const key = (kind, text) => tn.h("span", { class: "sign " + kind, text });
const legend = tn.h("figcaption", { class: "small soft" }, tn.scale(most, "output y"),
    tn.h("p", {}, key("dot one", "should be 1"), key("dot", "should be 0"), key("above", "eigenvector, eigenvalue above 0"),
        key("below", "below 0")), tn.h("p", { text: "A line is as long as its eigenvalue." }));

/* Eigenvectors are lines through the origin: along one of them the output grows as value times distance squared. */
const drawOver = (values, vectors, n) => overlay.replaceChildren(
    ...Array.from(values, (value, k) => {
        const [a, b] = [vectors[k * n], vectors[k * n + 1]], reach = 0.75 * Math.min(1, Math.abs(value));
        return tn.s("g", { class: value < 0 ? "below" : "above" }, tn.s("line", { x1: at(-reach * a), y1: 100 - at(-reach * b),
            x2: at(reach * a), y2: 100 - at(reach * b), "stroke-width": 1.4, "stroke-linecap": "round" }));
    }),
    ...[0, 1, 2, 3].map(i => {
        const x = at(bits[2 * i]), y = 100 - at(bits[2 * i + 1]), kind = wanted[i] ? "one" : "";
        return tn.s("g", {}, tn.s("circle", { cx: x, cy: y, r: 4.6, class: kind }),
            tn.s("text", { x, y, dy: ".35em", "text-anchor": "middle", class: kind, text: wanted[i] }));
    }));

const names = () => bias ? ["a", "b", "1"] : ["a", "b"];
/* A row for each of the four hidden units: P has one row, which is written as a column. Biases are the last of them. */
const drawWeights = call => weights.replaceChildren(...["W", "V", "P"].map((name, which) => {
    const { rows, columns, values } = tn.weights(call, which, bias ? 1 : 0);
    return tn.h("div", {}, tn.h("h5", { text: name }), tn.numbers(values, Array(which < 2 ? rows : columns).fill(null),
        which < 2 ? names() : ["y"], `the weights ${name}, a row for each hidden unit`));
}));
const draw = call => {
    const q = call("train_matrix", 0).numbers, { count, numbers } = call("train_eigenvectors", 0, 3), n = names().length;
    const written = v => (v < 0 ? "−" : "") + Math.abs(v).toFixed(2);
    const values = numbers.slice(0, count), vectors = numbers.slice(count);
    shown = call("train_answers", plane).numbers;
    canvas.paint();
    drawOver(bias ? [] : values, vectors, n);
    drawWeights(call);
    matrix.replaceChildren(tn.numbers(q, names(), names(), "the interaction matrix Q"));
    pairs.replaceChildren(tn.bars(Array.from(values, (value, k) => ({ value,
        label: "(" + Array.from(vectors.slice(k * n, (k + 1) * n), written).join(", ") + ")" })),
        { head: ["eigenvector", "", "eigenvalue"] }));
    const answers = call("train_answers", bits).numbers, columns = ["a", "b", "a xor b", "output y"];
    table.replaceChildren(tn.h("table", { class: "truth" },
        tn.h("thead", {}, tn.h("tr", {}, columns.map((name, i) => tn.h("th", { scope: "col", class: i > 2 ? "right" : "",
            text: name })))),
        tn.h("tbody", {}, [0, 1, 2, 3].map(i => tn.h("tr", {}, tn.h("td", { text: bits[2 * i] }),
            tn.h("td", { text: bits[2 * i + 1] }), tn.h("td", { text: wanted[i] }),
            tn.h("td", { class: "right" }, tn.number(answers[i], 3)))))));
};

const stages = [
    { name: "at random", reached: () => true, text: () =>
        "The weights W, V and P are random, and so are Q and the plane. The four dots are the inputs: a filled one should " +
        "get 1, a hollow one 0. Press “one step”: every weight moves a little, and the loss below falls. Then press “run”." },
    { name: "the sign of a b", reached: ({ step }) => step > 0, text: () =>
        "Look at the two equal entries of Q, between a and b. They are what both bits add together, and become negative, " +
        "because (1, 1) is the only input with both bits, and should get 0. In the plane the two filled dots turn red." },
    { name: "one direction", reached: ({ losses }) => losses[0] < 0.25, text: () => bias
        ? "With biases there are three inputs: a, b and 1. Look at the table of the gate: its outputs come near to 0 and " +
            "1, while the last row and column of Q share the work with its diagonal."
        : "Look at the eigenvalues: one grows towards 2, the other fades. The eigenvector of the first one turns to (0.71, " +
            "−0.71) or its negative, in which the two bits differ, and the white valley of the plane to the diagonal a = b." },
    { name: "learnt", reached: ({ losses }) => losses[0] < 1e-3, text: () => bias
        ? "The four outputs are right. Reset with another seed, and run again: the outputs are the same, but Q and the " +
            "plane between the dots are not, because for bits a a = a."
        : "Q is (1 −1; −1 1). So y = a a + b b − 2 a b, which is XOR. Choose another seed, and run again: W, V and P end " +
            "elsewhere, Q ends here." },
];
tn.sections.xor = tn.lesson({
    rate: 0.1, rates: [-3, 0.5], speed: 8, piece: 1, most: 600, curves: ["loss"], ylabel: "squared error, mean of 4", stages,
    view: tn.h("div", { class: "xor" },
        tn.h("div", {}, tn.h("h4", { text: "The output y at each point (a, b)" }), tn.h("figure", {}, picture, legend),
            tn.h("h4", { text: "The gate" }), table),
        tn.h("div", {}, tn.h("h4", { text: "The weights: y = P ((W x) * (V x))" }), weights,
            tn.h("h4", { text: "The interaction matrix: y = xᵀ Q x" }), matrix,
            tn.h("h4", { text: "Eigenvectors of Q" }), pairs)),
    tools: reset => tn.toggle("with biases", bias, on => { bias = on; reset(); }),
    begin: (call, seed) => call("train_begin", bits, wanted, 4, 1, bias ? 1 : 0, 4, seed),
    train: (call, rate, steps) => call("train_steps", steps, 4, rate, 0).numbers[0],
    losses: call => [call("train_answers", bits).numbers.reduce((sum, v, i) => sum + (v - wanted[i]) ** 2, 0) / 4],
    says: ([loss]) => [" · loss ", tn.number(loss, 3)],
    state: () => ({}),
    draw,
});

tn.teach({ type: "xor", id: "learn", title: "A layer that multiplies", text:
    "A bilinear layer multiplies two linear maps of its input: y = P ((W x) * (V x)). Whatever it learns is one symmetric " +
    "matrix Q for its output, y = xᵀ Q x. Here x is the two bits a and b, and y should be 1 where exactly one of them is " +
    "1. Gradient descent begins with random weights; watch which matrix it finds." },
{ type: "words", id: "see", title: "What to see", paragraphs: [
    "Of the products that x has, a a and b b are 1 where a bit is on, and a b is 1 only where both are. So a a + b b − 2 a " +
    "b is XOR, and the matrix of that is Q = (1 −1; −1 1): the entry beside the diagonal counts twice. Every seed finds " +
    "this one matrix, though the weights W, V and P that it is made of differ each time. That is why one looks at Q, and " +
    "not at the weights.",
    "Q has one eigenvector with an eigenvalue other than 0: (0.71, −0.71) with the value 2. In its direction the bits " +
    "differ, so the layer says y = 2 (0.71 a − 0.71 b)² = (a − b)². At first there are two; the second one fades as the " +
    "layer learns.",
    "Let the learning rate grow, and the loss begins to swing, then leaves for infinity: a step is the learning rate times " +
    "the gradient, and if that leads across the valley to a higher place, so does the next one.",
] },
{ type: "words", id: "biases", title: "With biases", paragraphs: [
    "With biases the input is (a, b, 1), and there is more than one matrix for the same gate, because a a = a for bits: a " +
    "+ b − 2 a b is XOR, too. Switch the biases on, and run with other seeds: the four outputs are the same, the plane " +
    "between them is not. Four points do not say what a function of the plane should be elsewhere.",
] });
