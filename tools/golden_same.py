#!/usr/bin/env python3
"""golden_same.py - the residue that test_same.c expects of tn_transformer_same, in whole numbers of Python alone.

A model of bilinear attention with RoPE and a bilinear MLP, all weights eighths that a formula gives; the logits of one random
point as the header defines it, by plain sums over lists. Prints the prime and the residue."""

import struct
from fractions import Fraction

VOCAB, LAYERS, DIM, HEADS, HIDDEN, TOKENS, SEED = 5, 2, 4, 2, 3, 3, 11
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


embed = weights(VOCAB, DIM)
blocks = [dict(qk=weights(4, HEADS * D, DIM), v=weights(HEADS * D, DIM), o=weights(DIM, HEADS * D),
               w=weights(2, HIDDEN, DIM), p=weights(DIM, HIDDEN)) for _ in range(LAYERS)]
head = weights(VOCAB, DIM)

x = [[sum(drawn(key, 1 + t, v) % p * mod(embed[v][i]) for v in range(VOCAB)) % p for i in range(DIM)] for t in range(TOKENS)]
for b in blocks:
    rows = [[times(part, row) for part in b["qk"]] for row in x]
    sets = [[[turned(part[h * D:h * D + D], t) for h in range(HEADS)] for part in rows[t]] for t in range(TOKENS)]
    values = [times(b["v"], row) for row in x]
    added = []
    for t in range(TOKENS):
        z = [0] * (HEADS * D)
        for s in range(t + 1):
            for h in range(HEADS):
                one, two = (sum(a * c for a, c in zip(sets[t][i][h], sets[s][2 + i][h])) for i in (0, 1))
                pattern = one * two * pow(D * D, -1, p)
                for e in range(D):
                    z[h * D + e] = (z[h * D + e] + pattern * values[s][h * D + e]) % p
        added.append(times(b["o"], z))
    x = [[(a + c) % p for a, c in zip(row, more)] for row, more in zip(x, added)]
    hidden = [[a * c % p for a, c in zip(times(b["w"][0], row), times(b["w"][1], row))] for row in x]
    x = [[(a + c) % p for a, c in zip(row, times(b["p"], h))] for row, h in zip(x, hidden)]
logits = [value for row in x for value in times(head, row)]
print(f"prime   {p}\nresidue {sum((i + 1) * v for i, v in enumerate(logits)) % p}")
