#!/usr/bin/env python3
"""golden_compress.py - the bounds that test_compress.c expects of tn_cp_compress and tn_cp_ball_bound, by dense tensors in NumPy.

A bilinear layer whose weights a formula gives, and inputs of length at most sqrt(n). Terms are left out one by one, each time that
of which least squares over the others restores most, and the bound is that of the header.

    python3 tools/golden_compress.py > tests/golden_compress.h"""

import numpy as np

OUT, TERMS, IN = 4, 11, 5

number = iter(((37 * i + i * i // 5) % 23 - 11) / 8 for i in range(10**6))
p, w, v = (np.array([next(number) for _ in range(a * b)]).reshape(a, b) for a, b in ((OUT, TERMS), (TERMS, IN), (TERMS, IN)))
units = np.array([(np.outer(a, b) + np.outer(b, a)) / 2 for a, b in zip(w, v)]).reshape(TERMS, IN * IN)
whole = p @ units                                                       # [out,in in]


def bound(d):
    """of |D(x,x)| for |x|^2 <= in"""
    d = d.reshape(OUT, IN, IN)
    return IN * min(np.linalg.norm(d.reshape(OUT, -1), 2), np.linalg.norm(d.transpose(1, 0, 2).reshape(IN, -1), 2))


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
