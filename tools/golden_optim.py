"""Numbers of tests/test_optim.c that PyTorch's optimisers compute, in double.

    python3 tools/golden_optim.py           prints the table for the test's golden()

Parameters and gradients are small integers over eight, so that the test writes down the same exactly. PyTorch couples
SGD's weight decay to the gradient, which tensornet.h does not: SGD is compared without.
"""
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
