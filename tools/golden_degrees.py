#!/usr/bin/env python3
"""golden_degrees.py - the parts by degree that test_degrees.c expects of tn_circuit_degrees_of, by another method.

Two blocks of bilinear attention with RoPE and a bilinear MLP, all weights sixteenths that a formula gives. The model runs in
complex numbers with its embeddings times each of the 101st roots of unity; a discrete Fourier transform of the logits then gives
the coefficient of each degree up to 100. Prints sum_i (i + 1) part[i] over [tokens,vocab] for each degree below 21, and the
largest magnitude of such a sum over all degrees. Plain Python, no package."""

import cmath
import math

VOCAB, LAYERS, DIM, HEADS, HIDDEN, TOKENS, DEGREE = 5, 2, 4, 2, 3, 3, 100
D = DIM // HEADS
IDS = [1, 4, 2]
count = 0


def weights(*shape):
    """The next parameter: number i of all is (37 i mod 19 - 9)/16, as test_degrees.c fills them in the order of their making."""
    global count
    if len(shape) == 1:
        first, count = count, count + shape[0]
        return [((37 * (first + i)) % 19 - 9) / 16 for i in range(shape[0])]
    return [weights(*shape[1:]) for _ in range(shape[0])]


def times(matrix, x):
    return [sum(w * v for w, v in zip(row, x)) for row in matrix]


def rotated(x, t):
    x = list(x)
    for k in range(D // 2):
        angle = t * 10000.0 ** (-2.0 * k / D)
        c, s = math.cos(angle), math.sin(angle)
        x[k], x[k + D // 2] = c * x[k] - s * x[k + D // 2], c * x[k + D // 2] + s * x[k]
    return x


embed = weights(VOCAB, DIM)
blocks = [dict(qk=weights(4, HEADS * D, DIM), v=weights(HEADS * D, DIM), o=weights(DIM, HEADS * D),
               w=weights(2, HIDDEN, DIM), p=weights(DIM, HIDDEN)) for _ in range(LAYERS)]
head = weights(VOCAB, DIM)


def logits(scale):
    x = [[scale * v for v in embed[i]] for i in IDS]
    for b in blocks:
        sets = [[[rotated(times(part, row)[h * D:h * D + D], t) for h in range(HEADS)] for part in b["qk"]]
                for t, row in enumerate(x)]
        values = [times(b["v"], row) for row in x]
        added = []
        for t in range(TOKENS):
            z = [0] * (HEADS * D)
            for s in range(t + 1):
                for h in range(HEADS):
                    one, two = (sum(a * c for a, c in zip(sets[t][i][h], sets[s][2 + i][h])) / D for i in (0, 1))
                    for e in range(D):
                        z[h * D + e] += one * two * values[s][h * D + e]
            added.append(times(b["o"], z))
        x = [[a + c for a, c in zip(row, more)] for row, more in zip(x, added)]
        hidden = [[a * c for a, c in zip(times(b["w"][0], row), times(b["w"][1], row))] for row in x]
        x = [[a + c for a, c in zip(row, times(b["p"], h))] for row, h in zip(x, hidden)]
    return [value for row in x for value in times(head, row)]


N = DEGREE + 1
roots = [cmath.exp(2j * math.pi * k / N) for k in range(N)]
sums = [sum((i + 1) * v for i, v in enumerate(logits(r))) for r in roots]
parts = [(sum(s * roots[-d * k % N] for k, s in enumerate(sums)) / N).real for d in range(N)]
for d in range(21):
    print(f"{parts[d]:.15e},")
print("largest", max(abs(p) for p in parts), "sum", sum(parts), "model", sums[0].real)
