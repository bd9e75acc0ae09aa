#!/usr/bin/env python3
"""golden_same.py - the residues that test_same.c expects of tn_transformer_same, in whole numbers of Python alone.

Two models with RoPE, all weights eighths that a formula gives: bilinear attention and a bilinear MLP without norms; and RMSNorm,
normed queries and keys with gains, softmax, SwiGLU and a soft cap. The logits of one random point as the header defines it,
by plain sums over lists. Prints the prime and the residues."""

import struct
from fractions import Fraction

VOCAB, LAYERS, DIM, HEADS, HIDDEN, TOKENS, SEED = 5, 2, 4, 2, 3, 3, 11
SWISH, TANH, ROOT, SOFTMAX = 4, 9, 101, 103       # the functions' numbers
D = DIM // HEADS
MASK = (1 << 64) - 1


def mixed(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def drawn(seed, i, j):
    return mixed(mixed(mixed(seed) ^ i) ^ j)


def is_prime(n):
    if any(n % q == 0 for q in (2, 3, 5, 7, 11, 13)):
        return False
    for a in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        d, r = n - 1, 0
        while d % 2 == 0:
            d, r = d // 2, r + 1
        y = pow(a, d, n)
        if y not in (1, n - 1) and not any((y := y * y % n) == n - 1 for _ in range(r - 1)):
            return False
    return True


p = next(q for n in range(1, 10**6) if is_prime(q := (1 << 59) + drawn(SEED, 0, n) % (1 << 59)))
key = drawn(SEED, 0, 0)
count = 0


def weights(*shape):
    """The next parameter: number i of all is (37 i mod 19 - 9)/8, as test_same.c fills them in the order of their making."""
    global count
    if len(shape) == 1:
        first, count = count, count + shape[0]
        return [Fraction((37 * (first + i)) % 19 - 9, 8) for i in range(shape[0])]
    return [weights(*shape[1:]) for _ in range(shape[0])]


def mod(x):
    return x.numerator * pow(x.denominator, -1, p) % p


def times(matrix, x):
    return [sum(mod(w) * v for w, v in zip(row, x)) % p for row in matrix]


def turned(x, t):
    """Rotates the pairs (x_k, x_(k + D/2)) of one head t times."""
    x = list(x)
    for k in range(D // 2):
        bits = int.from_bytes(struct.pack("<d", 10000.0 ** (-2.0 * k / D)), "little")
        u = drawn(key, 1 << 32, bits) % p
        below = pow(1 + u * u, -1, p)
        c, s = (1 - u * u) * below % p, 2 * u * below % p
        for _ in range(t):
            x[k], x[k + D // 2] = (c * x[k] - s * x[k + D // 2]) % p, (c * x[k + D // 2] + s * x[k]) % p
    return x


def value(function, argument):
    return drawn(key, (1 << 34) + function, argument) % p


def unit(x, eps, gain):
    """x over its root mean square, times the gain"""
    mean = sum(v * v for v in x) * pow(len(x), -1, p) + mod(Fraction(eps))
    scale = value(ROOT, mean % p)
    return [v * scale * mod(g) % p for v, g in zip(x, gain)]


def softmax(scores):
    d = [(z - scores[0]) % p for z in scores]
    row = drawn(key, (1 << 34) + SOFTMAX, len(d))
    for z in d:
        row = drawn(row, 0, z)
    return [drawn(row, 1, z) % p for z in d]


def attention(b, x):
    """What the heads add, of x before the block's norm."""
    if "norm1" in b:
        x = [unit(row, 1e-5, b["norm1"]) for row in x]
    rows = [[times(part, row) for part in b["qk"]] for row in x]
    sets = [[[part[h * D:h * D + D] for h in range(HEADS)] for part in row] for row in rows]
    if "gain" in b:
        sets = [[[unit(v, 1e-6, b["gain"][i * D:i * D + D]) for v in part] for i, part in enumerate(row)] for row in sets]
    sets = [[[turned(v, t) for v in part] for part in row] for t, row in enumerate(sets)]
    count = len(b["qk"]) // 2
    values = [times(b["v"], row) for row in x]
    added = []
    for t in range(TOKENS):
        z = []
        for h in range(HEADS):
            scores = [[sum(a * c for a, c in zip(sets[t][i][h], sets[s][count + i][h])) for s in range(t + 1)]
                      for i in range(count)]
            if count == 1:
                pattern = softmax([mod(Fraction(1 / D ** 0.5)) * v % p for v in scores[0]])
            else:
                pattern = [one * two * pow(D * D, -1, p) for one, two in zip(*scores)]
            z += [sum(w * values[s][h * D + e] for s, w in enumerate(pattern)) % p for e in range(D)]
        added.append(times(b["o"], z))
    return added


def mlp(b, x):
    if "norm2" in b:
        x = [unit(row, 1e-5, b["norm2"]) for row in x]
    pairs = [(times(b["w"][0], row), times(b["w"][1], row)) for row in x]
    hidden = [[(value(SWISH, a) if "norm2" in b else a) * c % p for a, c in zip(*pair)] for pair in pairs]
    return [times(b["p"], h) for h in hidden]


def residue(normed):
    """Of the logits; normed: of the second model. Weights are drawn in the order in which the parameters are made."""
    global count
    count = 0
    embed = weights(VOCAB, DIM)
    blocks = []
    for _ in range(LAYERS):
        b = {}
        if normed:
            b["norm1"] = weights(DIM)
        b.update(qk=weights(2 if normed else 4, HEADS * D, DIM), v=weights(HEADS * D, DIM), o=weights(DIM, HEADS * D))
        if normed:
            b["gain"], b["norm2"] = weights(2 * D), weights(DIM)
        blocks.append(dict(b, w=weights(2, HIDDEN, DIM), p=weights(DIM, HIDDEN)))
    last = weights(DIM) if normed else None
    head = weights(VOCAB, DIM)
    x = [[sum(drawn(key, 1 + t, v) % p * mod(embed[v][i]) for v in range(VOCAB)) % p for i in range(DIM)]
         for t in range(TOKENS)]
    for b in blocks:
        for part in (attention, mlp):
            x = [[(a + c) % p for a, c in zip(row, more)] for row, more in zip(x, part(b, x))]
    if normed:
        x = [unit(row, 1e-5, last) for row in x]
    logits = [v for row in x for v in times(head, row)]
    if normed:
        logits = [5 * value(TANH, v * pow(5, -1, p) % p) for v in logits]
    return sum((i + 1) * v for i, v in enumerate(logits)) % p


print(f"prime   {p}\npolynomial {residue(False)}\nfunctions  {residue(True)}")
