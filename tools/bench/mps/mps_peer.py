"""mps_peer.py BUILD/mps [PART]...: matrix product states beside quimb, an MPS classifier beside TensorKrowch, and
tensor-network attention beside the same layer in PyTorch. Parts: quimb, classifier, attention, times; all by default.

    cc -O2 -I. tools/bench/mps/mps.c -o build/mps -lm
    python3 -m venv build/venv && build/venv/bin/pip install quimb==1.15.0 tensorkrowch==1.1.6 torch numpy
    build/venv/bin/python tools/bench/mps/mps_peer.py build/mps

Both sides get the same cores, in F64: random ones with bonds that differ from site to site, and those of a Born machine
and of a classifier that the C program trains. What does not depend on the gauge is compared: singular values and entropies
of each cut, norms and overlaps, the state that a canonical form or a compression holds, and the discarded weight; of a
canonical form also that its cores are orthonormal. States are divided by their norm, so a difference is one of numbers of
magnitude 1. The difference of two states is the norm of a train that holds it, by QR, so that it is known to rounding
errors; quimb computes it.

The classifiers get the same cores, inputs and labels, embed a number x as [1-x, x] or as [cos(pi x/2), sin(pi x/2)], and
take the same steps of Adam; the vectors at the ends of TensorKrowch's chain are held constant. Layers of attention get the
same A, B and ends, inputs and goals; PyTorch's is the formula of tensornet.h, site by site and without scales of its own,
with gradients by autograd. Times are processor time, one thread, ours and theirs in turn, the least of ROUNDS. Exits with 1
if a difference is above its limit."""
import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
import math
import subprocess
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")
import numpy as np
import quimb.tensor as qtn
import tensorkrowch as tk
import torch
import torch.nn.functional as F

LIMIT, LOSS_LIMIT, STEPS, ROUNDS, SECONDS, RATE = 1e-10, 1e-8, 50, 5, 0.1, 3e-3
# relative cutoff of singular values, largest bond; 0: none
COMPRESSIONS = ((1e-12, 0), (1e-2, 0), (0.2, 0), (0, 3), (1e-2, 6))
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


# ---- ours ------------------------------------------------------------------------------------------

class Ours:
    """The C program, which reads and writes cores as NAME.K.npy in the folder `out`."""
    def __init__(self, program, out):
        self.out = out
        self.process = subprocess.Popen([program, out], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        """The numbers of the answer"""
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"mps stopped at {' '.join(map(str, words))}")
        return [float(x) for x in answer.split()]

    def save(self, name, array):
        np.save(f"{self.out}/{name}.npy", np.ascontiguousarray(array))

    def load(self, name):
        return np.load(f"{self.out}/{name}.npy")

    def give(self, name, cores):
        for k, core in enumerate(cores):
            self.save(f"{name}.{k}", core)
        self.ask("read", name, len(cores))

    def take(self, name):
        """The cores [r,n,s] of a train of the program"""
        count = int(self.ask("write", name)[0])
        return [self.load(f"{name}.{k}") for k in range(count)]

    def close(self):
        self.process.kill()               # processes that quimb starts hold the other end of its input
        self.process.wait()


# ---- quimb -----------------------------------------------------------------------------------------

def state_of(cores):
    """The cores [r,n,s] as quimb's state, open, indices left, right, physical"""
    arrays = [c.transpose(0, 2, 1) for c in cores]
    arrays[0], arrays[-1] = arrays[0][0], arrays[-1][:, 0] if len(cores) > 1 else arrays[-1][0]
    return qtn.MatrixProductState(arrays, shape="lrp")


def log_inner(a, b):
    """ln |<a,b>| and its sign"""
    mantissa, exponent = (a.H & b).contract(all, strip_exponent=True, optimize="greedy")
    return math.log(abs(mantissa)) + exponent * math.log(10), math.copysign(1, mantissa)


def unit(state):
    """The state divided by its norm, whatever that is: a canonical form whose last core is divided site by site"""
    state = state.copy()
    for i in range(state.L):
        state[i].modify(data=state[i].data / np.abs(state[i].data).max())
        if i + 1 < state.L:
            state.left_canonize_site(i)
    state[-1].modify(data=state[-1].data / np.linalg.norm(state[-1].data))
    return state


def distance(a, b):
    """|a - b|, by QR of the train of both"""
    both = a.add_MPS(b * -1.0)
    both.left_canonicalize_()
    return float(np.linalg.norm(both[-1].data))


def spectra(state, cuts):
    """Singular values of each cut of a state of norm 1, padded by zeros"""
    info, values = {"cur_orthog": None}, []
    state = state.copy()
    for i in range(1, state.L):
        s = np.asarray(state.singular_values(i, info=info))
        values.append(np.pad(s, (0, max(0, cuts - len(s))))[:cuts])
    return np.array(values)


def entropies(state):
    """In nats"""
    info, state = {"cur_orthog": None}, state.copy()
    return np.array([state.entropy(i, info=info) for i in range(1, state.L)]) * math.log(2)


def compressed(state, relative, rank):
    """A state of norm 1 truncated from left to right, and its discarded weight"""
    state, weight = state.copy(), 0.0
    state.right_canonicalize_()
    for i in range(state.L - 1):
        info = {"error": None}
        state.left_compress_site(i, cutoff=relative, cutoff_mode="rel", max_bond=rank or None, renorm=0,
                                 compress_opts={"info": info})
        weight += float(info["error"] or 0.0) ** 2
    return state, weight


# ---- comparisons -------------------------------------------------------------------------------------

found, failed = {}, False


def compare(what, case, difference, limit=LIMIT):
    global failed
    if not difference <= limit:
        failed = True
        print(f"    {case}: {what} differ by {difference:.2e}")
    row = found.setdefault(what, {})
    row[case] = max(row.get(case, 0.0), difference) if difference == difference else math.nan


def orthonormal(cores, site):
    """The largest departure from a canonical form of norm 1"""
    worst = abs(np.linalg.norm(cores[site]) - 1)
    for k, c in enumerate(cores):
        if k == site:
            continue
        m = c.reshape(-1, c.shape[2]) if k < site else c.reshape(c.shape[0], -1).T
        worst = max(worst, np.abs(m.T @ m - np.eye(m.shape[1])).max())
    return worst


def examine(ours, case, name, other):
    """Everything about one train, and its overlap with another one of equal extents"""
    cores = ours.take(name)
    state, count = unit(state_of(cores)), len(cores)
    log_norm = log_inner(state_of(cores), state_of(cores))[0] / 2
    compare("norm (ln)", case, abs(ours.ask("norm", name)[0] - log_norm))

    for site in {0, count // 2, count - 1}:
        norm = ours.ask("canonical", name, site, "form")[0]
        form = ours.take("form")
        compare("norm (ln)", case, abs(norm - log_norm))
        compare("canonical form: orthonormality", case, orthonormal(form, site))
        compare("canonical form: the state", case, distance(state_of(form), state))

    ours.ask("spectra", name)
    got = ours.load("spectra")
    compare("singular values of each cut", case, float(np.abs(got - spectra(state, got.shape[1])).max()))
    ours.ask("entropies", name)
    compare("entropy of each cut", case, float(np.abs(ours.load("entropies") - entropies(state)).max()))

    log, sign = ours.ask("inner", name, other)
    there, side = log_inner(state_of(cores), state_of(ours.take(other)))
    scale = log_norm + ours.ask("norm", other)[0]
    compare("overlap / norms", case, abs(sign * math.exp(log - scale) - side * math.exp(there - scale)))

    for relative, rank in COMPRESSIONS:
        weight = ours.ask("round", name, relative, rank, "less")[0]
        mine = ours.take("less")
        theirs, lost = compressed(state, relative, rank)
        factor = math.exp(-log_norm / count)
        bonds = [c.shape[2] for c in mine[:-1]]
        if bonds != [theirs.bond_size(i, i + 1) for i in range(count - 1)]:
            compare("compression: bonds", case, math.inf)
            continue
        compare("compression: the state", case, distance(state_of([c * factor for c in mine]), theirs))
        compare("compression: discarded weight", case, abs(weight - lost))
        if lost > 1e-20:
            compare("compression: discarded weight, relative", case, abs(weight - lost) / lost)


def random_cores(rng, count, extents, most, scale=1.0):
    """Gaussian cores whose bonds differ from site to site"""
    bonds = [1] + [int(rng.integers(min(2, most), most + 1)) for _ in range(count - 1)] + [1]
    return [scale * rng.standard_normal((bonds[k], extents[k], bonds[k + 1])) / math.sqrt(bonds[k])
            for k in range(count)]


def beside_quimb(ours):
    rng = np.random.default_rng(1)
    for count, extent, most, scale in ((2, 2, 5, 1), (7, 3, 9, 1), (12, 2, 24, 1), (24, 3, 16, 1), (40, 2, 24, 1),
                                       (40, 3, 20, 1e30), (40, 2, 20, 1e-30)):
        case = f"random, {count} sites of {extent}" + (f", times {scale:g} a site" if scale != 1 else "")
        ours.give("a", random_cores(rng, count, [extent] * count, most, scale))
        ours.give("b", random_cores(rng, count, [extent] * count, most))
        examine(ours, case, "a", "b")

    for count, extent, bond, steps in ((16, 2, 8, 60), (40, 3, 12, 40)):
        ours.save("ids", strings(rng, 256, count, extent))
        ours.ask("born", "a", extent, bond, steps)
        ours.give("b", random_cores(rng, count, [extent] * count, 8))
        examine(ours, f"Born machine, {count} sites of {extent}", "a", "b")

    x = rng.random((256, 20))
    ours.save("x", x)
    ours.save("y", (np.floor(x.sum(1)) % 3).astype(np.int32))
    ours.ask("trained", "a", 10, 3, 60)
    ours.give("b", random_cores(rng, 21, [2] * 10 + [3] + [2] * 10, 8))
    examine(ours, "classifier, 20 sites of 2, label of 3", "a", "b")


def strings(rng, count, length, extent):
    """Each digit is the sum of the two before it, but for one in ten, which is random"""
    ids = rng.integers(0, extent, (count, length), dtype=np.int32)
    for k in range(2, length):
        kept = rng.random(count) < 0.1
        ids[:, k] = np.where(kept, ids[:, k], (ids[:, k - 1] + ids[:, k - 2]) % extent)
    return ids


# ---- classifiers ---------------------------------------------------------------------------------------

def embedded(x, map):
    return torch.stack([1 - x, x] if map == "linear" else [torch.cos(math.pi / 2 * x), torch.sin(math.pi / 2 * x)], -1)


class Classifier:
    """TensorKrowch's, from given cores [N,D,s,D] and label core [D,out,D]"""
    def __init__(self, cores, label, place, example, inline):
        tensors = [torch.tensor(c) for c in cores]
        tensors.insert(place, torch.tensor(label))
        tensors[0], tensors[-1] = tensors[0][0], tensors[-1][..., 0]
        self.mps = tk.models.MPSLayer(tensors=tensors, out_position=place)
        self.inline = inline
        self.mps.trace(example, inline_mats=inline)
        constant = {id(self.mps.left_node.tensor), id(self.mps.right_node.tensor)}
        self.weights = [p for p in self.mps.parameters() if id(p) not in constant]

    def optimiser(self, lr):
        self.adam = torch.optim.Adam(self.weights, lr=lr, foreach=True)

    def step(self, phi, y):
        self.adam.zero_grad()
        loss = F.cross_entropy(self.mps(phi, inline_mats=self.inline), y)
        loss.backward()
        self.adam.step()
        return loss.item()


def start(rng, sites, bond, out, map):
    """The identity for each feature, plus random numbers; of the first core only row 0, of the last only column 0. Divided
    by the mean of the sum of a site's features, so that products neither grow nor vanish"""
    cores = np.eye(bond)[None, :, None] + 0.05 * rng.standard_normal((sites, bond, 2, bond))
    cores /= 4 / math.pi if map == "cosine" else 1
    cores[0, 1:], cores[-1, :, :, 1:] = 0, 0
    return cores, 0.3 * rng.standard_normal((bond, out, bond))


def beside_tensorkrowch(ours):
    rows = []
    for sites, bond, out, batch, map, lr in ((30, 6, 4, 64, "linear", 1e-2), (64, 10, 10, 64, "cosine", 3e-3),
                                             (196, 10, 10, 64, "linear", 1e-3)):
        rng = np.random.default_rng(2)
        place = sites // 2
        cores, label = start(rng, sites, bond, out, map)
        x, y = rng.random((STEPS * batch, sites)), rng.integers(0, out, STEPS * batch, dtype=np.int32)
        for name, array in (("cores", cores), ("label", label), ("x", x), ("y", y)):
            ours.save(name, array)
        here = ours.ask("classify", map, place, batch, STEPS, lr)[0]
        losses = ours.load("losses")
        phi, labels = embedded(torch.tensor(x), map).split(batch), torch.tensor(y).long().split(batch)
        case, best = f"{sites} sites, bond {bond}, batch {batch}, {map}", []
        for inline in (True, False):
            peer = Classifier(cores, label, place, phi[0], inline)
            peer.optimiser(lr)
            theirs, times = [], []
            for k in range(STEPS):
                began = time.process_time()
                theirs.append(peer.step(phi[k], labels[k]))
                times.append(time.process_time() - began)
            best.append(min(times))
            compare("losses", case, float(np.abs(losses - theirs).max()), LOSS_LIMIT)
        rows.append((case, losses[0], losses[-1], here, best[0], best[1]))
    return rows


# ---- tensor-network attention ------------------------------------------------------------------------------

class Attention:
    """y_j = W(j) x_j with W(j)[t,k] = sum_ab G[a,b] (L(j) B[:,:,t,k] R(j))[a,b], where L(j) and R(j) are the products of the
    matrices before and after site j; G = 1, or the outer product of two vectors, whose contexts are then vectors too"""
    def __init__(self, options, a, b, left, right, lr):
        self.options = options.split(",")
        self.a, self.b, self.left, self.right = (torch.tensor(t, requires_grad=True) for t in (a, b, left, right))
        self.bias, self.r = torch.zeros(b.shape[2], requires_grad=True), torch.ones(1, requires_grad=True)
        first = torch.eye(b.shape[0])[0]
        if "vectors" not in self.options:
            self.left = self.right = first
        weights = [self.a, self.b] + [self.left, self.right] * ("vectors" in self.options)
        weights += [self.bias] * ("bias" in self.options) + [self.r] * ("residual" in self.options)
        self.adam = torch.optim.Adam(weights, lr=lr)

    def contexts(self, m):
        """L(j) and R(j) of all sites; at open ends the row vL L(j) and the column R(j) vR"""
        bond, n = m.shape[-1], m.shape[1]
        ends = [torch.eye(bond).expand(m.shape[0], bond, bond)] * 2
        if "vectors" in self.options or "first" in self.options:
            ends = [self.left.expand(m.shape[0], 1, bond), self.right[:, None].expand(m.shape[0], bond, 1)]
        left, right = [ends[0]], [ends[1]]
        for j in range(n - 1):
            left.append(left[-1] @ m[:, j])
            right.append(right[-1] if "causal" in self.options else m[:, n - 1 - j] @ right[-1])
        return torch.stack(left, 1), torch.stack(right[::-1], 1)

    def forward(self, x):
        has = self.options.__contains__
        u = x / x.norm(dim=-1, keepdim=True) if has("unit") else x
        m = torch.einsum("bns,acs->bnac", u, self.a) if self.a.dim() == 3 \
            else torch.einsum("bnt,acts,bns->bnac", u, self.a, u)
        left, right = self.contexts(m)
        w = torch.einsum("bnia,actk,bnci->bntk", left, self.b, right)
        if has("unit"):
            w = w * math.sqrt(x.shape[-1]) / w.flatten(2).norm(dim=-1)[..., None, None]
        w = torch.sigmoid(w) if has("sigmoid") else F.leaky_relu(w, 0.1) if has("leaky") else w
        y = (w @ x[..., None])[..., 0] + (self.bias if has("bias") else 0)
        y = (y + self.r * x) / 2 if has("residual") else y
        return y / y.norm(dim=-1, keepdim=True) if has("norm") else y

    def step(self, x, goal):
        self.adam.zero_grad()
        loss = F.mse_loss(self.forward(x), goal)
        loss.backward()
        self.adam.step()
        return loss.item()


def rule_30(rng, count, sites):
    """Cells as one-hot rows, and the next ones on a ring as +1 and -1"""
    cells = rng.integers(0, 2, (count, sites))
    after = np.roll(cells, 1, 1) ^ (cells | np.roll(cells, -1, 1))
    return np.eye(2)[cells], 2.0 * after[:, :, None] - 1


def random_layer(rng, bond, size, out, square):
    """A, B, vL, vR"""
    a = rng.standard_normal((bond, bond) + (size,) * (2 if square else 1)) / math.sqrt(bond)
    b = rng.standard_normal((bond, bond, out, size)) / bond
    return a / (size if square else math.sqrt(size)), b, *(rng.standard_normal((2, bond)) / math.sqrt(bond))


def beside_formula(ours):
    """The first task is rule 30, in the others goals are the outputs of another random layer. Training magnifies rounding
    errors, most of all where the norms of W(j) by which it is divided are small: PyTorch's layer is also compared with
    itself, from an A whose numbers are changed by 1e-15 of them"""
    rows, batch = [], 32
    for sites, bond, size, out, square, options in (
            (10, 10, 2, 1, False, "closed,unit"), (16, 6, 4, 4, False, "vectors,unit,residual,norm"),
            (12, 5, 3, 3, True, "closed,unit,sigmoid,bias"), (12, 8, 4, 3, False, "vectors,plain,leaky,bias"),
            (20, 8, 4, 4, False, "first,causal,unit,residual,norm"), (10, 5, 3, 3, True, "vectors,plain,residual")):
        rng = np.random.default_rng(4)
        start, other = (random_layer(rng, bond, size, out, square) for _ in range(2))
        if options == "closed,unit":
            x, goal = rule_30(rng, STEPS * batch, sites)
        else:
            x = rng.standard_normal((STEPS * batch, sites, size))
            goal = Attention(options, *other, RATE).forward(torch.tensor(x)).detach().numpy()
        for name, array in zip(("a", "b", "left", "right", "x", "goal"), start + (x, goal)):
            ours.save(name, array)
        ours.ask("attention", options, batch, STEPS, RATE)
        losses = ours.load("losses")
        theirs = []
        for change in (0, 1e-15):
            peer = Attention(options, start[0] * (1 + change * rng.standard_normal(start[0].shape)), *start[1:], RATE)
            theirs.append(np.array([peer.step(*pair) for pair in zip(torch.tensor(x).split(batch),
                                                                     torch.tensor(goal).split(batch))]))
        case = f"{sites} sites of {size}, out {out}, bond {bond}, {'square, ' if square else ''}{options.replace(',', ', ')}"
        compare("losses of attention", case, float(np.abs(losses - theirs[0]).max()), LOSS_LIMIT)
        rows.append((case, losses[0], losses[-1], float(np.abs(theirs[1] - theirs[0]).max())))
    return rows


# ---- times ------------------------------------------------------------------------------------------------

def least(ours, words, work):
    """Seconds of one run, the least of ROUNDS, ours and theirs in turn"""
    best = [9e9, 9e9]
    began = time.process_time()
    work()
    runs = max(1, int(SECONDS / (time.process_time() - began)))
    for _ in range(ROUNDS):
        best[0] = min(best[0], ours.ask("time", 20, *words)[0])
        began = time.process_time()
        for _ in range(runs):
            work()
        best[1] = min(best[1], (time.process_time() - began) / runs)
    return best


def times(ours):
    rng = np.random.default_rng(3)
    for count, bond in ((40, 8), (40, 64)):
        for name in "ab":
            bonds = [min(bond, 2 ** k, 2 ** (count - k)) for k in range(count + 1)]
            ours.give(name, [rng.standard_normal((bonds[k], 2, bonds[k + 1])) / math.sqrt(bonds[k]) for k in range(count)])
        a, b = (state_of(ours.take(name)) for name in "ab")
        work = (("canonical form", ("canonical", "a", count - 1, "form"), a.left_canonicalize),
                ("entropies of all cuts", ("entropies", "a"), lambda: entropies(a)),
                ("overlap", ("inner", "a", "b"), lambda: a.H @ b),
                ("compression to half the bond", ("round", "a", 0, bond // 2, "less"),
                 lambda: compressed(a, 0, bond // 2)))
        for name, words, theirs in work:
            yield (f"{name}, {count} sites of 2, bond {bond}", *least(ours, words, theirs))


def main(program, parts):
    rows = attentions = timed = ()
    with tempfile.TemporaryDirectory() as out:
        ours = Ours(program, out)
        if "quimb" in parts:
            beside_quimb(ours)
        if "classifier" in parts:
            rows = beside_tensorkrowch(ours)
        if "attention" in parts:
            attentions = beside_formula(ours)
        if "times" in parts:
            timed = list(times(ours))
        ours.close()
    if "quimb" in parts:
        print("\n| beside quimb | worst difference | of |\n|---|---|---|")
        for what, row in found.items():
            if not what.startswith("losses"):
                worst = max(row, key=row.get)
                print(f"| {what} | {row[worst]:.1e} | {worst} |")
        print("\nStates:", "; ".join(found["norm (ln)"]))
    if rows:
        print("\n| classifier, F64 | loss at first | last | losses differ by | ms here | TensorKrowch, inline | pairwise "
              "| ratio |\n|---|---|---|---|---|---|---|---|")
    for case, first, last, here, inline, pairs in rows:
        print(f"| {case} | {first:.3f} | {last:.3f} | {found['losses'][case]:.1e} | {1e3 * here:.3g} | {1e3 * inline:.3g} | "
              f"{1e3 * pairs:.3g} | {min(inline, pairs) / here:.1f} |")
    if attentions:
        print("\n| TN attention, F64 | loss at first | last | losses differ by | PyTorch's own, A changed by 1e-15 |\n"
              "|---|---|---|---|---|")
    for case, first, last, own in attentions:
        print(f"| {case} | {first:.4f} | {last:.4f} | {found['losses of attention'][case]:.1e} | {own:.1e} |")
    if timed:
        print("\n| F64, one thread | ms here | quimb | ratio |\n|---|---|---|---|")
    for name, here, there in timed:
        print(f"| {name} | {1e3 * here:.3g} | {1e3 * there:.3g} | {there / here:.1f} |")
    sys.exit(failed)


PARTS = ("quimb", "classifier", "attention", "times")
if __name__ == "__main__":
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= set(PARTS):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:] or PARTS)
