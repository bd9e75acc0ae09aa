#!/usr/bin/env python3
"""golden_merge.py - what test_merge.c expects of tn_cp_mean and tn_cp_refit, by NumPy from the dense tensor.

Two bilinear layers, all numbers eighths that a formula gives. Their mean as a dense tensor, and the least relative errors that
an operator of fewer terms can have: of the symmetrised tensor, and of the outputs on some inputs. The minimum is sought by
Levenberg and Marquardt's method from 60 random starts, which shares nothing with alternating least squares.

    python3 tools/golden_merge.py RUN RUN MERGED       the column "of the tensor" of tn merge, from the dense tensors
    python3 tools/golden_merge.py --permute RUN COPY   a copy of the weights with the hidden units in another order
"""

import json
import os
import random
import sys

import numpy as np



def weights_of(run):
    """The bytes of a file of weights, and its float32 arrays by name, which are views of these"""
    data = bytearray(open(os.path.join(run, "model.safetensors"), "rb").read())
    start = 8 + int.from_bytes(data[:8], "little")
    head = json.loads(data[8:start])
    head.pop("__metadata__", None)
    return data, {name: np.frombuffer(data, "<f4", int(np.prod(t["shape"])), start + t["data_offsets"][0]).reshape(t["shape"])
                  for name, t in head.items()}


def tensor_of(arrays, block):
    """The symmetrised tensor of a block's MLP, [dim,dim,dim]"""
    p, (w, v) = (np.float64(arrays[f"blocks.{block}.mlp.{part}"]) for part in "pw")
    t = np.tensordot(p, w[:, :, None] * v[:, None, :], 1)
    return (t + t.transpose(0, 2, 1)) / 2


if len(sys.argv) == 4 and sys.argv[1] == "--permute":
    data, arrays = weights_of(sys.argv[2])
    for name in arrays:
        if name.endswith(".mlp.w"):
            order = list(range(arrays[name].shape[1]))
            random.Random(1).shuffle(order)
            arrays[name][:] = arrays[name][:, order]
            arrays[name[:-1] + "p"][:] = arrays[name[:-1] + "p"][:, order]
    os.makedirs(sys.argv[3])
    for name in ("config.json", "config.txt", "tokenizer.json"):
        if os.path.exists(os.path.join(sys.argv[2], name)):
            open(os.path.join(sys.argv[3], name), "wb").write(open(os.path.join(sys.argv[2], name), "rb").read())
    open(os.path.join(sys.argv[3], "model.safetensors"), "wb").write(data)
    sys.exit()
if len(sys.argv) == 4:
    first, second, merged = (weights_of(run)[1] for run in sys.argv[1:])
    for block in range(sum(name.endswith(".mlp.w") for name in first)):
        mean = (tensor_of(first, block) + tensor_of(second, block)) / 2
        print("block %d: %.6f" % (block, np.linalg.norm(mean - tensor_of(merged, block)) / np.linalg.norm(mean)))
    sys.exit()

OUT, TERMS, N, ROWS, STARTS = 3, 4, 5, 40, 60
count = 0


def numbers(*shape):
    """Number i of all is ((7 i^2 + 5 i) mod 23 - 11)/8, in the order of their making."""
    global count
    i = np.arange(count, count + int(np.prod(shape)))
    count += i.size
    return (((7 * i * i + 5 * i) % 23 - 11) / 8).reshape(shape)


models = [(numbers(OUT, TERMS), numbers(TERMS, N), numbers(TERMS, N)) for _ in range(2)]
k = np.arange(ROWS * N)
x = ((3 * k * k + k) % 29 - 14).reshape(ROWS, N) / 8
mean = sum(np.einsum("oh,hi,hj->oij", *m) for m in models) / 2
symmetric = (mean + mean.transpose(0, 2, 1)) / 2


def residual(v, r, by_rows):
    """The difference of the two, a vector, and its derivative by p, w and v."""
    p, w, u = v[:OUT * r].reshape(OUT, r), v[OUT * r:(OUT + N) * r].reshape(r, N), v[(OUT + N) * r:].reshape(r, N)
    if by_rows:
        a, b = x @ w.T, x @ u.T
        y = np.einsum("oij,si,sj->so", mean, x, x)
        d = (a * b) @ p.T - y
        by_p = np.einsum("sh,oq->soqh", a * b, np.eye(OUT)).reshape(d.size, -1)
        by_w = np.einsum("oh,sh,si->sohi", p, b, x).reshape(d.size, -1)
        by_u = np.einsum("oh,sh,si->sohi", p, a, x).reshape(d.size, -1)
        return d.ravel(), np.hstack([by_p, by_w, by_u]), np.linalg.norm(y)
    pair = np.einsum("hi,hj->hij", w, u)
    pair = (pair + pair.transpose(0, 2, 1)) / 2
    d = np.einsum("oh,hij->oij", p, pair) - symmetric
    one = np.eye(N)
    by_p = np.einsum("hij,oq->oijqh", pair, np.eye(OUT)).reshape(d.size, -1)
    by_w = (np.einsum("oh,hj,ik->oijhk", p, u, one) + np.einsum("oh,hi,jk->oijhk", p, u, one)).reshape(d.size, -1) / 2
    by_u = (np.einsum("oh,hi,jk->oijhk", p, w, one) + np.einsum("oh,hj,ik->oijhk", p, w, one)).reshape(d.size, -1) / 2
    return d.ravel(), np.hstack([by_p, by_w, by_u]), np.linalg.norm(symmetric)


def least_error(r, by_rows):
    best = np.inf
    for start in range(STARTS):
        v, damping = np.random.default_rng(start).normal(size=(OUT + 2 * N) * r), 1.0
        d, slope, size = residual(v, r, by_rows)
        for _ in range(2000):
            step = np.linalg.solve(slope.T @ slope + damping * np.eye(v.size), slope.T @ d)
            next_d, next_slope, _ = residual(v - step, r, by_rows)
            if next_d @ next_d < d @ d:
                gain = d @ d - next_d @ next_d
                v, d, slope, damping = v - step, next_d, next_slope, max(damping / 3, 1e-10)
                if gain < 1e-15 * size * size:
                    break
            else:
                damping *= 4
                if damping > 1e12:
                    break
        best = min(best, np.sqrt(d @ d) / size)
    return best


print("mean, first output:", ", ".join("%.17g" % v for v in mean[0].ravel()))
for terms in (1, 2, 3):
    print("%d terms: error of the tensor %.9f" % (terms, least_error(terms, False)), end=", ")
    print("of the outputs %.9f" % least_error(terms, True))
