#!/usr/bin/env python3
"""golden_anomaly.py - what test_anomaly.c expects of tn_cp_anomaly and tn_transformer_anomaly, computed by NumPy.

    python3 tools/golden_anomaly.py

Operators: dense tensors, their difference, lengths of rows, eigenvalues. Models: bilinear attention without positions and a
bilinear MLP, run by plain loops on all texts of two tokens. Weights are small integers over a power of two, so that the test
has the same numbers exactly."""
import numpy as np

O, N, H, G = 3, 7, 4, 2                  # outputs, inputs with the one, terms of the suspect and of the reference
VOCAB, DIM, HEADS, HIDDEN = 5, 4, 2, 3


def matrix(rows, columns, a, b, c, m):
    r, k = np.indices((rows, columns))
    return ((a * r + b * k + c) % m - m // 2) / 4.0


def operator(terms, c):
    p, w, v = matrix(O, terms, 3, 5, c, 7), matrix(terms, N, 2, 3, c, 11), matrix(terms, N, 5, 4, c, 9)
    b = np.einsum("oh,hi,hj->oij", p, w, v)
    return (b + b.transpose(0, 2, 1)) / 2


def anomaly(suspect, reference, logits, constant):
    d = suspect - reference
    if logits:
        d = d - d.mean(0)
    rows = np.sqrt((d**2).sum(2))
    rows /= np.median(rows[:, : N - constant], 1, keepdims=True)
    inside = rows[:, : N - constant]
    values = np.linalg.eigvalsh(d)
    share = (values**2).max(1) / (values**2).sum(1)
    output, at = divmod(int(inside.argmax()), N - constant)
    print(f"logits {logits} constant {constant}: score {inside.max():.15g} output {output} input {at} "
          f"concentration {share.max():.15g} raised {values[:, -1].argmax()} values", *(f"{x:.15g}" for x in values[:, -1]))


for logits in (False, True):
    for constant in (0, 1):
        anomaly(operator(H, 1), operator(G, 3), logits, constant)

D = DIM // HEADS


def model(a, m):
    """Parameters in the order of their making; number n of all is (a n mod m - m // 2)/16."""
    count = 0

    def next_one(*shape):
        nonlocal count
        n = int(np.prod(shape))
        values = (a * (count + np.arange(n)) % m - m // 2) / 16.0
        count += n
        return values.reshape(shape)
    return dict(embed=next_one(VOCAB, DIM), qk=next_one(4, HEADS * D, DIM), v=next_one(HEADS * D, DIM),
                o=next_one(DIM, HEADS * D), w=next_one(2, HIDDEN, DIM), p=next_one(DIM, HIDDEN), head=next_one(VOCAB, DIM))


def log_p(m, a, b):
    x = m["embed"][[a, b]]
    z = np.zeros(HEADS * D)
    for s in range(2):
        for h in range(HEADS):
            part = slice(h * D, h * D + D)
            pattern = 1.0
            for i in range(2):
                pattern *= (m["qk"][i][part] @ x[1]) @ (m["qk"][2 + i][part] @ x[s]) / D
            z[part] += pattern * (m["v"][part] @ x[s])
    y = x[1] + m["o"] @ z
    y = y + m["p"] @ ((m["w"][0] @ y) * (m["w"][1] @ y))
    logits = m["head"] @ y
    return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()


suspect, reference = model(37, 19), model(37, 19)
suspect["head"] = model(29, 19)["head"]
terms, mean = [], 0
for a in range(VOCAB):
    for b in range(VOCAB):
        p, q = log_p(suspect, a, b), log_p(reference, a, b)
        term = np.exp(p) * (p - q)
        mean += term.sum() / VOCAB**2
        terms += [(-float(x), a, b, t) for t, x in enumerate(term)]
terms.sort()
print(f"model: score {-terms[0][0] / mean:.15g} mean {mean:.15g}", [(f"{-x:.15g}", a, b, t) for x, a, b, t in terms[:3]])
