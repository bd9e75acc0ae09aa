#!/usr/bin/env python3
"""golden_compress.py - the bounds that test_compress.c expects of tn_cp_compress and tn_cp_ball_bound, by dense tensors in NumPy.

A bilinear layer whose weights a formula gives, and inputs of length at most sqrt(n). Terms are left out one by one, each time that
of which least squares over the others restores most, and the bound is that of the header.

    python3 tools/golden_compress.py > tests/golden_compress.h

With two runs of `tn`, of which the second one is the first compressed, and whose norms have no gains, it prints the bound of each block
from their weights alone: the root mean square of what an MLP may change for any text.

    python3 tools/golden_compress.py RUN RUN2"""

import json
import struct
import sys

import numpy as np

OUT, TERMS, IN = 4, 11, 5

number = iter(((37 * i + i * i // 5) % 23 - 11) / 8 for i in range(10**6))
p, w, v = (np.array([next(number) for _ in range(a * b)]).reshape(a, b) for a, b in ((OUT, TERMS), (TERMS, IN), (TERMS, IN)))
units = np.array([(np.outer(a, b) + np.outer(b, a)) / 2 for a, b in zip(w, v)]).reshape(TERMS, IN * IN)
whole = p @ units                                                       # [out,in in]


def bound(d, out=OUT, n=IN):
    """of |D(x,x)| for |x|^2 <= n"""
    d = d.reshape(out, n, n)
    return n * min(np.linalg.norm(d.reshape(out, -1), 2), np.linalg.norm(d.transpose(1, 0, 2).reshape(n, -1), 2))


def tensors(run):
    """of a file of safetensors, in double"""
    data = open(run + "/model.safetensors", "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    dtype = {"F32": np.float32, "F64": np.float64}
    return {name: np.frombuffer(data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]], dtype[t["dtype"]])
            .reshape(t["shape"]).astype(float) for name, t in json.loads(data[8:8 + size]).items() if name != "__metadata__"}


def form(weights, block):
    p, (w, v) = (weights[f"blocks.{block}.mlp.{name}"] for name in "pw")
    return np.einsum("oh,hi,hj->oij", p, w, v) / 2 + np.einsum("oh,hi,hj->oij", p, v, w) / 2


if len(sys.argv) == 3:
    a, b = map(tensors, sys.argv[1:])
    for block in range(sum(name.endswith("mlp.p") for name in a)):
        n = a[f"blocks.{block}.mlp.p"].shape[0]
        print(block, bound(form(b, block) - form(a, block), n, n) / n**0.5)
    sys.exit()


def refit(kept):
    return np.linalg.lstsq(units[kept].T, whole.T, rcond=1e-9)[0].T @ units[kept] - whole


kept, bounds = list(range(TERMS)), {0: bound(whole)}
while len(kept) > 1:
    kept = min(([t for t in kept if t != out] for out in kept), key=lambda rest: np.linalg.norm(refit(rest)))
    bounds[len(kept)] = bound(refit(kept))

print("/* golden_compress.h: made by tools/golden_compress.py, which explains it. */\n")
print(f"enum {{ GOLDEN_COMPRESS_OUT = {OUT}, GOLDEN_COMPRESS_TERMS = {TERMS}, GOLDEN_COMPRESS_IN = {IN} }};\n")
print("/* Of the layer, and of what changes with 1, 2, .. terms. */\nstatic const double golden_compress[GOLDEN_COMPRESS_TERMS] = {")
print("".join(f"    {bounds[t]!r},\n" for t in range(TERMS)).replace("np.float64(", "").replace(")", "") + "};")
