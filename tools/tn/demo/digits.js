/* digits.js - the 8 x 8 digits: a bilinear layer learns to read them, and the eigenvectors of a digit become pictures. */
const pixels = tn.array(tn.page.images), labels = tn.array(tn.page.labels), seen = 1500, shown = 24, pairs = 6;
const images = Float32Array.from(pixels, v => v / 16), wanted = Float32Array.from(labels);
const image = i => images.subarray(64 * i, 64 * i + 64);

let digit = 3, right = 0;
const vectors = tn.h("div", { class: "row pictures" }), matrix = tn.h("div", {}), drawn = tn.h("div", {});
const weights = tn.h("div", { class: "weights" });
const answers = tn.h("div", { class: "answers" }), digits = Array.from({ length: 10 }, (_, i) => String(i));
const picker = tn.picker("digit", digits, i => { digit = i; if (again) again(); }, digit);
const pad = tn.pad(8, 8, () => { if (again) again(); });
let again;

/* Of all but the largest hundredth, so that a few large entries do not leave the others white. */
const most = values => Float32Array.from(values, Math.abs).sort()[Math.floor(0.99 * values.length)];
pad.set(image(seen + 4));
const held = images.subarray(64 * seen, 64 * (seen + shown));
const tiles = Array.from({ length: shown }, (_, i) => tn.h("figure", { class: "answer" }, tn.picture(image(seen + i), 8, 8,
    { sequential: true, limit: 1, label: `a held-out ${wanted[seen + i]}` }), tn.h("figcaption")));
answers.append(...tiles);

/* The weights of each hidden unit as a picture, 8 in a row with a clear line between them; without the biases. */
const mosaic = ({ rows, columns, values }, label) => {
    const width = 8 * 9 - 1, height = Math.ceil(rows / 8) * 9 - 1, tile = new Float32Array(width * height).fill(-Infinity);
    for (let unit = 0; unit < rows; unit++)
        for (let i = 0; i < 64; i++)
            tile[(9 * Math.floor(unit / 8) + (i >> 3)) * width + 9 * (unit % 8) + i % 8] = values[unit * columns + i];
    return tn.picture(tile, width, height, { label, limit: most(values) });
};
const drawWeights = call => weights.replaceChildren(...["W", "V", "P"].map((name, which) => {
    const of = tn.weights(call, which, 1);
    return tn.h("figure", {}, which < 2 ? mosaic(of, `the weights ${name} as 32 pictures of 8 by 8`)
        : tn.picture(of.values, of.columns, of.rows, { label: "the weights P", limit: most(of.values) }),
        tn.h("figcaption", { class: "small soft" }, name,
            which < 2 ? ": 32 units, each 8 × 8" : ": 10 digits × 32 units and 1"));
}));
const draw = call => {
    const { count, numbers } = call("train_eigenvectors", digit, pairs), n = numbers.length / count - 1;
    const pictureOf = k => tn.picture(numbers.subarray(count + k * n, count + k * n + 64), 8, 8,
        { label: `eigenvector ${k} of the digit ${digit}` });
    vectors.replaceChildren(...Array.from(numbers.slice(0, count), (value, k) =>
        tn.h("figure", { class: "vector " + (value < 0 ? "below" : "above") }, pictureOf(k),
            tn.h("figcaption", { class: "eigenvalue" }, value > 0 ? "+" : "", tn.number(value, 3)))));
    const q = call("train_matrix", digit).numbers;
    const between = Float32Array.from({ length: 64 * 64 }, (_, i) => q[Math.floor(i / 64) * n + i % 64]);
    matrix.replaceChildren(tn.picture(between, 64, 64,
        { label: `the interaction matrix of the digit ${digit}`, limit: most(between) }));
    drawWeights(call);
    const logits = call("train_answers", held).numbers;
    tiles.forEach((tile, i) => {
        const answer = tn.best(logits.subarray(10 * i, 10 * i + 10)), truth = wanted[seen + i];
        tile.className = "answer" + (answer === truth ? "" : " wrong");
        tile.lastChild.textContent = answer === truth ? answer : answer + "?";
    });
    const own = tn.softmax(call("train_answers", pad.values()).numbers), top = tn.best(own);
    drawn.replaceChildren(pad.empty()
        ? tn.h("p", { class: "soft small", text: "Draw a digit here, and the layer says what it sees, as it learns." })
        : tn.bars(own.map((value, i) => ({ label: String(i), value, text: tn.chance(value), class: i === top ? "best" : "" })),
            { limit: 1, head: ["digit", "", "probability"] }));
};

const stages = [
    { name: "noise", reached: () => true, text: () =>
        "All weights are random, and so are the eigenvectors and Q. Of the images below, which the layer never learns " +
        "from, about one in ten is read right, by chance. Press “one step” a few times, and watch what changes; then “run”." },
    { name: "first strokes", reached: ({ step }) => step > 0, text: () =>
        "Look at the first eigenvectors, those with the largest eigenvalues: colour gathers in the middle, where digits " +
        "have ink, and the noise at the border pales. The images in red frames, which it reads wrongly, become fewer." },
    { name: "shapes", reached: ({ right }) => right > 0.7, text: () =>
        "The first eigenvectors are shapes now. Within one picture red and blue count against each other: an image like " +
        "its red part alone, or like its blue part alone, moves the digit's number, up if the eigenvalue is positive. " +
        "Choose other digits, and compare." },
    { name: "by heart", reached: ({ step }) => step >= 600, text: () =>
        "Now look at the two curves of the loss at the end: that of the images it learns from goes on falling, that of the " +
        "others hardly does. The layer learns its own images by heart. Draw a digit below, and see what it says." },
];
tn.sections.digits = tn.lesson({
    rate: 3e-3, rates: [-4, -1], speed: 32, piece: 6, most: 2400, ylabel: "cross-entropy, nats", stages,
    curves: ["images it learns from, with noise", "held-out images"],
    view: tn.h("div", { class: "digits" }, picker.element,
        tn.h("div", { class: "pair" },
            tn.h("div", {}, tn.h("h4", { text: "Eigenvectors of Q, with their eigenvalues" }), vectors,
                tn.scale(1, "of each picture's largest value")),
            tn.h("div", { class: "of-matrix" }, tn.h("h4", { text: "Q: row and column are pixels" }), matrix)),
        tn.h("h4", { text: "The weights" }), weights,
        tn.h("h4", { text: "Held-out images, and what the layer takes them for" }), answers,
        tn.h("h4", { text: "Draw one" }), tn.h("div", { class: "pair draw" }, pad.element, drawn)),
    tools: (reset, show) => { again = show; return null; },
    begin: (call, seed) => call("train_begin", images, wanted, 32, 10, 1, seen, seed),
    train: (call, rate, steps) => call("train_steps", steps, 50, rate, 0.2).numbers[0],
    losses: (call, trained) => {
        const [loss, share] = call("train_held_out").numbers;
        right = share;
        return [Number.isNaN(trained) ? loss : trained, loss];
    },
    says: ([trained, loss]) => [" · loss ", tn.number(trained, 3), ", of held-out images ", tn.number(loss, 3), " · of these ",
        tn.number(100 * right, 3), " % are read right"],
    state: () => ({ right }),
    draw,
});

tn.teach({ type: "digits", id: "learn", title: "Ten matrices", text:
    "A bilinear layer reads 8 by 8 pixels and gives ten numbers, one for each digit; the largest is its answer. Each of " +
    "the ten is xᵀ Q x with a matrix Q of its own, which says how much each pair of pixels counts. The page trains it on " +
    "1,500 images with AdamW, 50 at a time, with a little noise on them." },
{ type: "words", id: "see", title: "What to see", paragraphs: [
    "Q has 65 × 65 entries: 64 pixels and the constant one, which makes room for biases. Its eigenvectors sort this out. " +
    "Each is a picture v, and adds its eigenvalue times (v · x)² to the number of the digit: with a positive eigenvalue it " +
    "speaks for the digit if the image looks like the picture or like its negative, with a negative one against it.",
    "At first all pictures are noise. After some hundred steps the largest ones show strokes: for 3 the open left side, " +
    "for 0 the hole in the middle. These few pictures do most of the work; a long tail of small eigenvalues stays noise.",
    "Press pause, choose another digit, and draw. What you draw is an input as any other, though most images of the set " +
    "fill the field from top to bottom.",
] });
