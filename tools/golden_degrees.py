#!/usr/bin/env python3
"""golden_degrees.py - the parts of logits by degree in the embeddings, by another method than tn_circuit_degrees_of.

A model of bilinear attention with RoPE and bilinear MLPs, without norms and biases, runs in complex numbers with its embeddings
times each of N roots of unity, N above its degree; a discrete Fourier transform of the logits gives the part of each degree.

    python3 tools/golden_degrees.py                 the numbers that tests/test_degrees.c expects
    python3 tools/golden_degrees.py RUN ID ID ...   the loss of a trained run on these tokens, to each degree and without it,
                                                    as `tn circuits RUN degrees TEXT` prints it

Plain Python, no package: some seconds for one block of width 64 and ten tokens, minutes for two."""

import cmath
import json
import math
import os
import struct
import sys

TINY = dict(vocab=5, layers=2, dim=4, heads=2, hidden=3, attn=1, mlp=1)
count = 0


def formula(*shape):
    """The next parameter: number i of all is (37 i mod 19 - 9)/16, as test_degrees.c fills them in the order of their making."""
    global count
    if len(shape) == 1:
        first, count = count, count + shape[0]
        return [((37 * (first + i)) % 19 - 9) / 16 for i in range(shape[0])]
    return [formula(*shape[1:]) for _ in range(shape[0])]


def tiny():
    d, n = TINY, TINY["dim"]
    return d, dict(embed=formula(d["vocab"], n), blocks=[
        dict(qk=formula(4, n, n), v=formula(n, n), o=formula(n, n), w=formula(2, d["hidden"], n), p=formula(n, d["hidden"]))
        for _ in range(d["layers"])], head=formula(d["vocab"], n))


def trained(run):
    c = json.load(open(os.path.join(run, "config.json")))
    data = open(os.path.join(run, "model.safetensors"), "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])

    def read(name):
        shape, (first, last) = header[name]["shape"], header[name]["data_offsets"]
        flat = list(struct.unpack(f"<{(last - first) // 4}f", data[8 + size + first:8 + size + last]))
        for n in reversed(shape[1:]):
            flat = [flat[i:i + n] for i in range(0, len(flat), n)]
        return flat
    d = dict(vocab=c["n_vocab"], layers=c["n_layer"], dim=c["d_model"], heads=c["n_head"], attn=c["attn_scale"], mlp=c["mlp_scale"])
    return d, dict(embed=read("embed.w"), head=read("head.w"), blocks=[
        dict(qk=read(f"blocks.{k}.attn.qk"), v=read(f"blocks.{k}.attn.v"), o=read(f"blocks.{k}.attn.o"),
             w=read(f"blocks.{k}.mlp.w"), p=read(f"blocks.{k}.mlp.p")) for k in range(d["layers"])])


def times(matrix, x):
    return [sum(map(lambda w, v: w * v, row, x)) for row in matrix]


def rotated(x, t):
    x, half = list(x), len(x) // 2
    for k in range(half):
        angle = t * 10000.0 ** (-k / half)
        c, s = math.cos(angle), math.sin(angle)
        x[k], x[k + half] = c * x[k] - s * x[k + half], c * x[k + half] + s * x[k]
    return x


def stream(d, model, ids, scale):
    """What the head reads, [tokens][dim]"""
    H, D, T = d["heads"], d["dim"] // d["heads"], len(ids)
    x = [[scale * v for v in model["embed"][i]] for i in ids]
    for b in model["blocks"]:
        sets = [[[rotated(whole[h * D:h * D + D], t) for h in range(H)] for whole in (times(part, row) for part in b["qk"])]
                for t, row in enumerate(x)]
        values = [times(b["v"], row) for row in x]
        for t in range(T):
            z = [0] * (H * D)
            for s in range(t + 1):
                for h in range(H):
                    one, two = (sum(a * c for a, c in zip(sets[t][i][h], sets[s][2 + i][h])) / D for i in (0, 1))
                    for e in range(h * D, h * D + D):
                        z[e] += one * two * values[s][e]
            x[t] = [a + d["attn"] * c for a, c in zip(x[t], times(b["o"], z))]
        hidden = [[a * c for a, c in zip(times(b["w"][0], row), times(b["w"][1], row))] for row in x]
        x = [[a + d["mlp"] * c for a, c in zip(row, times(b["p"], h))] for row, h in zip(x, hidden)]
    return x


def parts(d, model, ids):
    """Logits by degree: {degree: [tokens][vocab]}"""
    N = 10 ** d["layers"] + 1
    roots = [cmath.exp(2j * math.pi * k / N) for k in range(N)]
    half = [stream(d, model, ids, r) for r in roots[:N // 2 + 1]]           # the others are their complex conjugates
    all_ = half + [[[v.conjugate() for v in row] for row in half[N - k]] for k in range(N // 2 + 1, N)]
    out = {}
    for degree in range(N):
        x = [[sum(all_[k][t][i] * roots[-degree * k % N] for k in range(N)).real / N for i in range(d["dim"])]
             for t in range(len(ids))]
        if max(abs(v) for row in x for v in row) > 1e-13:
            out[degree] = [times(model["head"], row) for row in x]
    return out


def loss(logits, ids):
    nats = 0
    for row, following in zip(logits, ids[1:]):
        most = max(row)
        nats += math.log(sum(math.exp(v - most) for v in row)) + most - row[following]
    return nats / (len(ids) - 1)


def plus(a, b, by):
    return [[x + by * y for x, y in zip(row, other)] for row, other in zip(a, b)]


if len(sys.argv) > 1:
    shape, weights = trained(sys.argv[1])
    text = [int(a) for a in sys.argv[2:]]
    by_degree = parts(shape, weights, text[:-1])
    zero = [[0.0] * shape["vocab"] for _ in text[:-1]]
    whole, some = zero, zero
    for part in by_degree.values():
        whole = plus(whole, part, 1)
    for degree, part in by_degree.items():
        some = plus(some, part, 1)
        print(f"{degree:6d} {loss(some, text):10.4f} {loss(plus(whole, part, -1), text):10.4f}")
else:
    shape, weights = tiny()
    by_degree = parts(shape, weights, [1, 4, 2])
    for degree in range(21):
        flat = [v for row in by_degree.get(degree, []) for v in row]
        print(f"{sum((i + 1) * v for i, v in enumerate(flat)):.15e},")
