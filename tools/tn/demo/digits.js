/* digits.js - the 8 x 8 digits: a bilinear layer learns to read them, and the eigenvectors of a digit become pictures. */
const pixels = tn.array(tn.page.images), labels = tn.array(tn.page.labels), seen = 1500, shown = 24, pairs = 8;
const images = Float32Array.from(pixels, v => v / 16), wanted = Float32Array.from(labels);
const image = i => images.subarray(64 * i, 64 * i + 64);

let digit = 3, right = 0;
const vectors = tn.h("div", { class: "row pictures" }), matrix = tn.h("div", {}), drawn = tn.h("div", {});
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
            { limit: 1 }));
    right = call("train_held_out").numbers[1];
};

tn.sections.digits = tn.lesson({
    rate: 3e-3, rates: [-4, -1], steps: 6, most: 2400,
    view: tn.h("div", { class: "digits" }, picker.element,
        tn.h("div", { class: "pair" }, tn.h("div", {}, tn.h("h4", { text: "Eigenvectors, largest eigenvalues first" }), vectors),
            tn.h("div", { class: "of-matrix" }, tn.h("h4", { text: "Q, pixel by pixel" }), matrix)),
        tn.h("h4", { text: "Images that it does not learn from, and what it takes them for" }), answers,
        tn.h("h4", { text: "Draw one" }), tn.h("div", { class: "pair draw" }, pad.element, drawn)),
    tools: (restart, show) => { again = show; return null; },
    says: () => [" · of the images held out ", tn.number(100 * right, 3), " % are read right"],
    begin: (call, seed) => call("train_begin", images, wanted, 32, 10, 1, seen, seed),
    frame: (call, rate) => call("train_steps", 6, 50, rate, 0.2).numbers[0],
    loss: call => call("train_held_out").numbers[0],
    draw,
});

tn.teach({ type: "digits", id: "learn", title: "Ten matrices", text:
    "A bilinear layer reads 8 by 8 pixels and gives ten numbers, one for each digit; the largest is its answer. Each of the " +
    "ten is xᵀ Q x with a matrix Q of its own, which says how much each pair of pixels counts. The page trains it on 1,500 " +
    "images with AdamW, 50 at a time, with a little noise on them." },
{ type: "words", id: "see", title: "What to see", paragraphs: [
    "Q has 65 × 65 entries: 64 pixels and the constant one, which makes room for biases. Its eigenvectors sort this out. " +
    "Each is a picture v, and adds its eigenvalue times (v · x)² to the number of the digit: with a positive eigenvalue it " +
    "speaks for the digit if the image looks like the picture or like its negative, with a negative one against it.",
    "At first all pictures are noise. After some hundred steps the largest ones show strokes: for 3 the open left side, for " +
    "0 the hole in the middle. These few pictures do most of the work; a long tail of small eigenvalues stays noise.",
    "Press pause, choose another digit, and draw. What you draw is an input as any other, though most images of the set fill " +
    "the field from top to bottom.",
] });
