"""Numbers of tests/test_optim.c that PyTorch's optimisers compute, in double, and of tests/test_muon.c, by numpy.

    python3 tools/golden_optim.py           prints the tables for the tests' golden()

Parameters and gradients are small integers over eight, so that the test writes down the same exactly. PyTorch couples
SGD's weight decay to the gradient, which tensornet.h does not: SGD is compared without.
"""
import numpy as np
import torch

N, STEPS = 6, 10


def start():
    return torch.tensor([((7 * i + 3) % 11 - 5) / 8 for i in range(N)], dtype=torch.float64)


def gradient(t):
    return torch.tensor([((5 * i + 3 * t + i * t) % 13 - 6) / 8 for i in range(N)], dtype=torch.float64)


def run(make):
    p = torch.nn.Parameter(start())
    optim = make([p])
    for t in range(STEPS):
        p.grad = gradient(t)
        optim.step()
    return p.tolist()


cases = {
    "AdamW as it is": lambda p: torch.optim.AdamW(p, weight_decay=0),
    "AdamW, lr 0.05, betas 0.8 0.95, eps 1e-3, decay 0.1": lambda p: torch.optim.AdamW(p, lr=0.05, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
    "SGD, lr 0.1": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD, lr 0.1, momentum 0.9": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "SGD, lr 0.1, momentum 0.75, Nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.75, nesterov=True),
}

print("static const double golden_after_ten[%d][%d] = {" % (len(cases), N))
for name, make in cases.items():
    v = ["%.17g" % x for x in run(make)]
    print("    /* %s */\n    {%s,\n     %s}," % (name, ", ".join(v[:3]), ", ".join(v[3:])))
print("};")


# Muon of a matrix [4,3] as Jordan et al. 2024 write it; the momentum is an average, which the orthogonalisation does not see.
def orthogonal(x):
    x = x / np.linalg.norm(x)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if tall else x


def muon(scale, decay, warmup):
    rows, columns, lr = 4, 3, 0.05
    p = np.array([((7 * i + 3) % 11 - 5) / 8 for i in range(12)]).reshape(rows, columns)
    m = np.zeros_like(p)
    for t in range(STEPS):
        mu = 0.85 + 0.1 * min(t / warmup, 1) if warmup else 0.95
        g = np.array([((5 * i + 3 * t + i * t) % 13 - 6) / 8 for i in range(12)]).reshape(rows, columns)
        m = mu * m + (1 - mu) * g
        p = p * (1 - lr * decay) - lr * scale * orthogonal(mu * m + (1 - mu) * g)
    return p.ravel()


print("static const double golden_muon[2][12] = {")
for name, v in [("lr 0.05", muon((4 / 3) ** 0.5, 0, 0)),
                ("TN_MUON_SCALE_RMS, lr 0.05, decay 0.1, momentum from 0.85 in 5 steps", muon(0.2 * 4 ** 0.5, 0.1, 5))]:
    v = ["%.17g" % x for x in v]
    print("    /* %s */\n    {%s}," % (name, ",\n     ".join(", ".join(v[i:i + 3]) for i in range(0, 12, 3))))
print("};")
