"""Numbers of tests/test_operator.c that NumPy computes from dense tensors, where tensornet.h uses factors.

    python3 tools/golden_operator.py        prints the tables for the test's golden()

W, V and P are small integers over four, so that the test writes down the same matrices exactly.
"""
import numpy as np

H, N, O = 5, 13, 3


def weights(rows, columns, a, b, c, m):
    r, k = np.indices((rows, columns))
    return ((a * r + b * k + c) % m - m // 2) / 4.0


def operator(c):
    return weights(O, H, 3, 5, c, 7), weights(H, N, 2, 3, c, 11), weights(H, N, 5, 4, c, 9)


def interaction(p, w, v):
    b = np.einsum("oh,hi,hj->oij", p, w, v)
    return (b + b.transpose(0, 2, 1)) / 2


def show(name, values):
    print("static const double %s[] = {" % name)
    flat = ["%.17g" % v for v in np.ravel(values)]
    for i in range(0, len(flat), 5):
        print("    " + ", ".join(flat[i : i + 5]) + ("," if i + 5 < len(flat) else ""))
    print("};")


s, t = interaction(*operator(0)), interaction(*operator(1))
values = []
for q in s:
    e = np.linalg.eigvalsh(q)
    e = e[np.argsort(-abs(e))][: 2 * H]
    values.append(np.where(abs(e) < 1e-14, 0, e))
show("golden_values", values)
show("golden_gram", np.einsum("aij,bij->ab", s, t))
show("golden_norms_cosine", [np.linalg.norm(s), np.linalg.norm(t), (s * t).sum() / np.linalg.norm(s) / np.linalg.norm(t)])
show("golden_effective_rank", [abs(np.array(v)).sum() ** 2 / (np.array(v) ** 2).sum() for v in values])
