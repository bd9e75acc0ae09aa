/* index.js - the list of lessons, which `tn demo` writes, and why one would read them. */
tn.page.sections.push({ type: "words", id: "why", title: "Why bilinear", paragraphs: [
    "Most layers bend their input by a function such as ReLU, and what they compute cannot be written down in one piece. A " +
    "bilinear layer multiplies instead. All that it does is then one tensor, made of an interaction matrix for each output, " +
    "and linear algebra can take it apart: eigenvectors, ranks, norms. These pages show what that looks like while a layer " +
    "learns.",
] });
