"""plans_peer.py BUILD/plans: the planner of tn_plan_create beside opt_einsum and cotengra, with equal planning time.

    cc -O2 -I. tools/bench/plans/plans.c -o build/plans -lm
    python3 -m venv build/venv && build/venv/bin/pip install numpy opt_einsum cotengra
    build/venv/bin/python tools/bench/plans/plans_peer.py build/plans [NETWORKS]

For each network the peers get at least as much time as the plan took here: opt_einsum's random-greedy, which minimises
flops, and SEARCHES greedy searches of cotengra with subtree reconfiguration, which minimise flops + 64 * elements written,
as the library does. All trees are counted by the same rule: a multiplication per element of a step's loop, and an addition
if the step sums. Ratios are ours / that peer's whose objective is less."""
import math
import random
import subprocess
import sys
import time

import cotengra
from opt_einsum.path_random import RandomGreedy

SEARCHES = 4


def cost_of(inputs, output, sizes, path):
    """flops, largest intermediate, flops + 64 * written of a linear path"""
    terms, flops, largest, written = [frozenset(t) for t in inputs], 0, 0, 0
    for at, step in enumerate(path):
        picked = [terms[i] for i in step]
        terms = [t for i, t in enumerate(terms) if i not in step]
        both = frozenset().union(*picked)
        left = both & frozenset(output).union(*terms)
        space = math.prod(sizes[i] for i in both)
        if len(picked) > 1:
            flops += space * (2 if left != both else 1)
        elif left != both:
            flops += space
        written += math.prod(sizes[i] for i in left)
        if terms:
            largest = max(largest, math.prod(sizes[i] for i in left))
        terms.append(left)
    return flops, largest, flops + 64 * written


def networks(count):
    """name, inputs, output, sizes"""
    rng = random.Random(1)
    for k in range(count):
        n = 10 + 50 * k // max(count - 1, 1)
        seed = k
        while True:
            degree, kept, most = rng.choice([2, 3, 4]), rng.choice([0, 1, 2]), rng.choice([3, 6, 10])
            inputs, output, _, sizes = cotengra.utils.rand_equation(n, degree, n_out=kept, d_min=2, d_max=most, seed=seed)
            if max(map(len, inputs)) <= 8:
                break
            seed += 1000
        yield f"random {n}", inputs, output, sizes
    for side in ((4, 4), (6, 6), (8, 8), (5, 10)):
        for d in (2, 3):
            inputs, output, _, sizes = cotengra.utils.lattice_equation(side, d_min=d, d_max=d)
            yield f"grid {side[0]}x{side[1]} of {d}", inputs, output, sizes
    for side in ((4, 4, 3), (3, 3, 3)):
        inputs, output, _, sizes = cotengra.utils.lattice_equation(side, d_min=2, d_max=2)
        yield f"grid {side[0]}x{side[1]}x{side[2]} of 2", inputs, output, sizes


def ours(program, inputs, output, sizes, samples):
    number = {}
    for term in inputs:
        for i in term:
            number.setdefault(i, len(number))
    words = [samples, 0, len(inputs)]
    for term in inputs:
        words += [len(term)] + [v for i in term for v in (number[i], sizes[i])]
    words += [len(output)] + [number[i] for i in output]
    program.stdin.write(" ".join(map(str, words)) + "\n")
    program.stdin.flush()
    flops, written, largest, seconds = map(float, program.stdout.readline().split())
    return flops, largest, flops + 64 * written, seconds


def theirs(inputs, output, sizes, seconds):
    """each peer's name, seconds, flops, largest, objective"""
    found, sets = [], [frozenset(t) for t in inputs]
    start = time.time()
    path = RandomGreedy(max_repeats=1000000, max_time=max(seconds, 0.1), minimize="flops")(sets, frozenset(output), sizes)
    found.append(("opt_einsum", time.time() - start, *cost_of(inputs, output, sizes, path)))
    start = time.time()
    search = cotengra.HyperOptimizer(methods=["greedy"], minimize="combo", max_time=max(seconds, 1), max_repeats=SEARCHES,
                                     parallel=False, progbar=False, reconf_opts={}, optlib="random")
    tree = search.search(inputs, output, sizes)
    found.append(("cotengra", time.time() - start, *cost_of(inputs, output, sizes, tree.get_path())))
    return found


def main():
    program = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    samples = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    ratios, spent = [], [0, 0, 0]
    for name, inputs, output, sizes in networks(count):
        *mine, seconds = ours(program, inputs, output, sizes, samples)
        peers = theirs(inputs, output, sizes, seconds)
        best = min((p[2:] for p in peers), key=lambda c: c[2])
        ratios.append([mine[k] / max(best[k], 1) for k in range(3)] + [mine[0] / min(p[2] for p in peers)])
        for k, s in enumerate([seconds] + [p[1] for p in peers]):
            spent[k] += s
        print(f"{name:18} {mine[0]:11.5g} flops {seconds:7.4f} s; ours/best: flops {ratios[-1][0]:.3f}, "
              f"largest {ratios[-1][1]:.3f}, objective {ratios[-1][2]:.3f}; "
              + ", ".join(f"{p[0]} {p[1]:.2f} s" for p in peers), flush=True)
    program.stdin.close()
    for k, what in enumerate(("flops", "largest", "objective", "flops / least flops of any")):
        values = sorted(r[k] for r in ratios)
        mean = math.exp(sum(math.log(max(v, 1e-9)) for v in values) / len(values))
        print(f"{what}: geometric mean {mean:.3f}, median {values[len(values) // 2]:.3f}, worst {values[-1]:.3f}, "
              f"above 1.05: {sum(v > 1.05 for v in values)} of {len(values)}")
    print("seconds: ours {:.1f}, opt_einsum {:.1f}, cotengra {:.1f}".format(*spent))


main()
