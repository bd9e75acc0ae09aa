"""plans_peer.py BUILD/plans: the planner of tn_plan_create beside opt_einsum and cotengra, with equal planning time.

    cc -O2 -I. tools/bench/plans/plans.c -o build/plans -lm
    python3 -m venv build/venv && build/venv/bin/pip install numpy opt_einsum cotengra
    build/venv/bin/python tools/bench/plans/plans_peer.py build/plans [NETWORKS]

Each network is planned three times: for the least flops + 64 * elements written, the least flops, and the smallest of the
largest intermediate results. The peers minimise the same and get at least the time that the plan took here: opt_einsum's
random-greedy (flops or size), and SEARCHES greedy searches of cotengra with subtree reconfiguration. All trees are counted
by the same rule: a multiplication per element of a step's loop, and an addition if the step sums. cotengra counts
multiplications alone, so that its combo-32 is half of flops + 64 * elements written. Ratios are ours / the best of all peers
in what is minimised."""
import math
import random
import subprocess
import sys
import time

import cotengra
from opt_einsum.path_random import RandomGreedy

SEARCHES = 4
OBJECTIVES = (("cost", "flops", "combo-32"), ("flops", "flops", "flops"), ("size", "size", "size"))


def cost_of(inputs, output, sizes, path):
    """cost, flops, largest intermediate result of a linear path"""
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
    return flops + 64 * written, flops, largest


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


def ours(program, inputs, output, sizes, samples, minimize):
    number = {}
    for term in inputs:
        for i in term:
            number.setdefault(i, len(number))
    words = [minimize, samples, 0, len(inputs)]
    for term in inputs:
        words += [len(term)] + [v for i in term for v in (number[i], sizes[i])]
    words += [len(output)] + [number[i] for i in output]
    program.stdin.write(" ".join(map(str, words)) + "\n")
    program.stdin.flush()
    flops, written, largest, seconds = map(float, program.stdout.readline().split())
    return (flops + 64 * written, flops, largest), seconds


def theirs(inputs, output, sizes, seconds, words):
    """for each peer, seconds and what its path costs"""
    found, sets = [], [frozenset(t) for t in inputs]
    start = time.time()
    path = RandomGreedy(max_repeats=1000000, max_time=max(seconds, 0.1), minimize=words[1])(sets, frozenset(output), sizes)
    found.append((time.time() - start, cost_of(inputs, output, sizes, path)))
    start = time.time()
    search = cotengra.HyperOptimizer(methods=["greedy"], minimize=words[2], max_time=max(seconds, 1), max_repeats=SEARCHES,
                                     parallel=False, progbar=False, reconf_opts={}, optlib="random")
    tree = search.search(inputs, output, sizes)
    found.append((time.time() - start, cost_of(inputs, output, sizes, tree.get_path())))
    return found


def main():
    program = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    samples = int(sys.argv[3]) if len(sys.argv) > 3 else 32
    ratios, spent = [[], [], []], [[0] * 3 for _ in OBJECTIVES]
    for name, inputs, output, sizes in networks(count):
        for k, words in enumerate(OBJECTIVES):
            mine, seconds = ours(program, inputs, output, sizes, samples, k)
            peers = theirs(inputs, output, sizes, seconds, words)
            ratios[k].append(mine[k] / max(min(cost[k] for _, cost in peers), 1))
            for i, s in enumerate([seconds] + [s for s, _ in peers]):
                spent[k][i] += s
        print(f"{name:18}", ", ".join(f"{w[0]} {r[-1]:.3f}" for w, r in zip(OBJECTIVES, ratios)), flush=True)
    program.stdin.close()
    print("| minimised | geometric mean | median | worst | above 1.05 | seconds: ours | opt_einsum | cotengra |")
    for words, found, times in zip(OBJECTIVES, ratios, spent):
        values = sorted(found)
        mean = math.exp(sum(math.log(max(v, 1e-9)) for v in values) / len(values))
        print(f"| {words[0]} | {mean:.3f} | {values[len(values) // 2]:.3f} | {values[-1]:.3f} | "
              f"{sum(v > 1.05 for v in values)} of {len(values)} | " + " | ".join(f"{t:.1f}" for t in times) + " |")


main()
