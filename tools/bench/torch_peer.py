"""The peer of tools/bench: reads lines `RUNS THREADS WORK ...`, does that work so often, answers `done`. PyTorch's best setup is
the caller's affair (ATEN_CPU_CAPABILITY, which BLAS); here it is foreach AdamW, fused ops where PyTorch has them, no needless copy."""
import importlib.metadata
import sys
import torch
import torch.nn.functional as F

torch.manual_seed(0)


def cross_entropy(rows, columns):
    logits = torch.randn(rows, columns, requires_grad=True)
    labels = torch.zeros(rows, dtype=torch.long)

    def run():
        logits.grad = None
        F.cross_entropy(logits, labels).backward()
    return run


def rmsnorm(rows, columns):
    x = torch.randn(rows, columns, requires_grad=True)
    gain = torch.randn(columns, requires_grad=True)
    dy = torch.randn(rows, columns)

    def run():
        x.grad = gain.grad = None
        (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * gain).backward(dy)
    return run


def adamw():
    shapes = [(2560, 256)] * 2 + [(768, 256), (256, 256), (1024, 256), (256, 1024)] * 4
    params = [torch.randn(s, requires_grad=True) for s in shapes]
    for p in params:
        p.grad = torch.zeros_like(p)
    return torch.optim.AdamW(params, weight_decay=0.1, foreach=True).step


def fashion_step(batch):
    encoders, head = torch.nn.Linear(784, 512), torch.nn.Linear(256, 10)
    optim = torch.optim.AdamW([*encoders.parameters(), *head.parameters()], foreach=True)
    x, y = torch.randn(batch, 784), torch.arange(batch) % 10

    def run():
        optim.zero_grad(set_to_none=True)
        left, right = encoders(x).chunk(2, dim=1)
        F.cross_entropy(head(left * right), y).backward()
        optim.step()
    return run


# ---- tools/bench/lm.c: the same model, 0 with softmax attention, 1 with bilinear, 2 as GPT-2

V, D, H, T, B = 2048, 256, 4, 256, 16
angle = torch.arange(T)[:, None] * 10000.0 ** (-torch.arange(D // H // 2) / (D // H // 2))
cosine, sine = (torch.cat([a, a], -1)[:, None] for a in (angle.cos(), angle.sin()))      # [T,1,d]
sine[..., :D // H // 2] *= -1
hidden_scores = torch.full((T, T), float('-inf')).triu(1)
seen = torch.ones(T, T).tril()


def turned(x, at=slice(None)):
    """RoPE of [B,T,n,d], halves against halves."""
    return torch.addcmul(x * cosine[at], x.roll(D // H // 2, -1), sine[at])


class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(D))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.gain


class Block(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.sets = kind, 2 if kind == 1 else 1
        gpt2 = kind == 2
        self.norm1, self.norm2 = (torch.nn.LayerNorm(D), torch.nn.LayerNorm(D)) if gpt2 else (Norm(), Norm())
        self.qkv = torch.nn.Linear(D, (2 * self.sets + 1) * D, bias=gpt2)
        self.o = torch.nn.Linear(D, D, bias=gpt2)
        self.up = torch.nn.Linear(D, 4 * D if gpt2 else 2 * 768, bias=gpt2)
        self.down = torch.nn.Linear(4 * D if gpt2 else 768, D, bias=gpt2)

    def mlp(self, x):
        x = self.up(x)
        if self.kind == 2:
            return self.down(F.gelu(x))
        left, right = x.chunk(2, dim=-1)
        return self.down(left * right)

    def queries_and_keys(self, x, at=slice(None)):
        """[b,heads,t,d] of each set, and the values."""
        n = self.sets * H
        qk, v = self.qkv(x).split([2 * n * D // H, D], -1)
        qk = qk.unflatten(-1, (2 * n, D // H))
        q, k = (qk if self.kind == 2 else turned(qk, at)).transpose(1, 2).split(n, 1)
        return q, k, v.unflatten(-1, (H, D // H)).transpose(1, 2)

    def pattern(self, q, k, causal):
        if self.kind != 1:
            s = q @ (k * (D // H) ** -0.5).transpose(-1, -2)
            return torch.softmax(s + hidden_scores if causal else s, -1)
        k = (k * (D / H) ** -1).transpose(-1, -2)
        s = (q[:, :H] @ k[:, :H]) * (q[:, H:] @ k[:, H:])
        return s * seen if causal else s

    def forward(self, x):
        q, k, v = self.queries_and_keys(self.norm1(x))
        x = x + self.o((self.pattern(q, k, True) @ v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))

    def decode(self, x, at, cache):
        q, k, v = self.queries_and_keys(self.norm1(x), slice(at, at + 1))
        cache[0][:, :, at:at + 1], cache[1][:, :, at:at + 1] = k, v
        y = self.pattern(q, cache[0][:, :, :at + 1], False) @ cache[1][:, :, :at + 1]
        x = x + self.o(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class Model(torch.nn.Module):
    def __init__(self, kind, layers):
        super().__init__()
        self.kind = kind
        self.embed = torch.nn.Embedding(V, D)
        torch.nn.init.normal_(self.embed.weight, std=0.02)
        self.position = torch.nn.Parameter(torch.randn(T, D) * 0.02) if kind == 2 else None
        self.blocks = torch.nn.ModuleList(Block(kind) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(D) if kind == 2 else Norm()
        self.head = torch.nn.Linear(D, V, bias=False)
        if kind == 2:
            self.head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids)
        if self.kind == 2:
            x = x + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def lm_step(kind, layers):
    model, ids = Model(kind, layers), torch.randint(V, (B, T))
    optim = torch.optim.AdamW(model.parameters(), weight_decay=0.1, foreach=True)

    def run():
        optim.zero_grad(set_to_none=True)
        F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
        optim.step()
    return run


def lm_generate(kind, layers):
    model = Model(kind, layers)
    caches = [(torch.zeros(1, model.blocks[0].sets * H, T, D // H), torch.zeros(1, H, T, D // H)) for _ in range(layers)]

    def run():
        with torch.inference_mode():
            token = torch.ones(1, 1, dtype=torch.long)
            for at in range(T):
                x = model.embed(token)
                for block, cache in zip(model.blocks, caches):
                    x = block.decode(x, at, cache)
                token = model.head(model.norm(x)).argmax(-1)
    return run


def eigen_top(n, terms, count):
    """One interaction matrix in dense form and its top pairs, as one would without factors."""
    w, v, d = torch.randn(terms, n), torch.randn(terms, n), torch.randn(terms)

    def run():
        q = w.T @ (d[:, None] * v)
        values, vectors = torch.linalg.eigh((q + q.T) / 2)
        top = values.abs().topk(count).indices
        return values[top], vectors[:, top]
    return run


def hosvd_out(n, terms, out):
    """Singular vectors of the output mode of the dense, symmetrised tensor."""
    p, w, v = torch.randn(out, terms), torch.randn(terms, n), torch.randn(terms, n)

    def run():
        b = torch.einsum('oh,hi,hj->oij', p, w, v)
        b = ((b + b.transpose(1, 2)) / 2).reshape(out, -1)
        return torch.linalg.eigh(b @ b.T)
    return run


EINSUMS = [("ij,jk->ik", "i256 j256 k256"), ("bij,bjk->bik", "b64 i64 j64 k64"),
           ("bqhd,bkhd->bhqk", "b4 q128 k128 h8 d64"), ("bhqk,bkhd->bqhd", "b4 q128 k128 h8 d64"),
           ("oh,hi,hj->oij", "o32 h256 i64 j64"), ("oh,hi,hj,ok,ki,kj->", "o64 h128 i64 j64 k128"),
           ("ab,bc,cd,de,ef->af", "a200 b300 c50 d400 e100 f250"), ("xyf,xtf,ytpf,fr->tpr", "x35 y37 f59 t51 p51 r27"),
           ("ij,ij->i", "i1000 j500"), ("abcd,cdef,efab->", "a12 b10 c11 d9 e12 f10")]


def einsum(case):
    """opt_einsum's optimal path, found once; torch.einsum by itself where opt_einsum is not installed."""
    expression, extents = EINSUMS[case]
    extent = {e[0]: int(e[1:]) for e in extents.split()}
    shapes = [[extent[i] for i in term] for term in expression.split("->")[0].split(",")]
    tensors = [torch.randn(*shape) for shape in shapes]
    try:
        import opt_einsum
        contract = opt_einsum.contract_expression(expression, *shapes, optimize="optimal")
    except ImportError:
        def contract(*operands):
            return torch.einsum(expression, *operands)

    def run():
        contract(*tensors)
    return run


def svd(batch, n):
    a = torch.randn(n, n, dtype=torch.float64)
    return lambda: torch.linalg.svd(a, full_matrices=False)


def svd_top(batch, n):
    """All singular values, as LAPACK has no others."""
    return svd(batch, n)


def svd_lowrank(batch, n):
    a = torch.randn(n, n, dtype=torch.float64)
    return lambda: torch.svd_lowrank(a, q=10)


def eig(batch, n):
    a = torch.randn(n, n, dtype=torch.float64)
    return lambda: torch.linalg.eig(a)


def eigh_batch(batch, n):
    a = torch.randn(batch, n, n, dtype=torch.float64)
    return lambda: torch.linalg.eigh((a + a.mT) / 2)


def hosvd_all(n, terms, out):
    """Singular vectors of both modes of the dense, symmetrised tensor."""
    p, w, v = torch.randn(out, terms), torch.randn(terms, n), torch.randn(terms, n)

    def run():
        b = torch.einsum('oh,hi,hj->oij', p, w, v)
        b = (b + b.transpose(1, 2)) / 2
        rows, columns = b.reshape(out, -1), b.reshape(-1, n)
        return torch.linalg.eigh(rows @ rows.T), torch.linalg.eigh(columns.T @ columns)
    return run


def chain(batch, sites, d):
    m = torch.randn(batch, sites, d, d) / d ** 0.5

    def run():
        y = m[:, 0]
        for i in range(1, sites):
            y = torch.bmm(y, m[:, i])
        return y
    return run


def with_backward(forward, inputs, backward):
    """Runs forward(*inputs), and, where wanted, its backward pass."""
    inputs = [x.requires_grad_(bool(backward)) for x in inputs]
    w = torch.randn(inputs[-1].shape)

    def run():
        if not backward:
            with torch.no_grad():
                return forward(*inputs)
        for x in inputs:
            x.grad = None
        forward(*inputs).backward(w)
    return run


def softmax_heads(heads, length, d, backward):
    """Masked by addition while the scores are multiplied."""
    mask = torch.full((length, length), float('-inf')).triu(1).expand(heads, -1, -1)

    def forward(q, k, v):
        return torch.bmm(torch.baddbmm(mask, q, k.transpose(1, 2), alpha=d ** -0.5).softmax(-1), v)
    return with_backward(forward, [torch.randn(heads, length, d) for _ in range(3)], backward)


def bilinear_heads(heads, length, d, backward):
    mask = torch.ones(length, length).tril() / d ** 2

    def forward(q, k, q2, k2, v):
        p = torch.bmm(q, k.transpose(1, 2)) * mask
        other = torch.bmm(q2, k2.transpose(1, 2))
        return torch.bmm(p * other if backward else p.mul_(other), v)
    return with_backward(forward, [torch.randn(heads, length, d) for _ in range(5)], backward)


def bilinear_blocks(heads, length, d, backward, block=512):
    """Rows in blocks, each with the keys up to its end."""
    mask = torch.ones(block, block).tril()

    def forward(q, k, q2, k2, v):
        out = []
        for i in range(0, length, block):
            end = i + block
            p = (q[i:end] @ k[:end].T) * (q2[i:end] @ k2[:end].T)
            if backward:
                p = torch.cat([p[:, :i], p[:, i:] * mask], 1)
            else:
                p[:, i:] *= mask
            out.append(p @ v[:end] / d ** 2)
        return torch.cat(out)
    return with_backward(forward, [torch.randn(length, d) for _ in range(5)], backward)


def bilinear_state(heads, length, d, backward, chunk=128):
    """Chunks: the pairs inside, and for what is before the row-wise Khatri-Rao product with a state."""
    mask = torch.ones(chunk, chunk).tril()

    def forward(q, k, q2, k2, v):
        out, state = [], torch.zeros(d * d, d)
        for i in range(0, length, chunk):
            a, b, e, f, x = (t[i:i + chunk] for t in (q, k, q2, k2, v))
            o = ((a @ b.T) * (e @ f.T) * mask) @ x
            o = torch.addmm(o, (a[:, :, None] * e[:, None, :]).reshape(chunk, d * d), state)
            out.append(o / d ** 2)
            features = (b[:, :, None] * f[:, None, :]).reshape(chunk, d * d)
            state = torch.addmm(state, features.T, x) if backward else state.addmm_(features.T, x)
        return torch.cat(out)
    return with_backward(forward, [torch.randn(length, d) for _ in range(5)], backward)


# ---- tools/bench/chains.c. Of several forms those that were the fastest (docs/measurements.md has them all): the batch as the
#      last axis, products written as sums, which the compiler joins with what is before and after them.

def compiled(function):
    return torch.compile(function) if hasattr(torch, 'compile') else function


def fused_adamw(weights):
    try:
        return torch.optim.AdamW(weights, fused=True)
    except (RuntimeError, TypeError):           # older ones have it for GPUs only
        return torch.optim.AdamW(weights, foreach=True)


def training_step(weights, loss_of):
    optim = fused_adamw(weights)

    def run():
        optim.zero_grad(set_to_none=True)
        loss = loss_of()
        loss.backward()
        optim.step()
        return loss
    return run


def mps_data(sites, batch):
    x = torch.rand(batch, sites)
    return torch.stack([1 - x, x], -1), torch.arange(batch) % 10


def mps_step(sites, bond, batch, threads, chunk=28):
    """Both halves of the chain at once, from their ends to the label, which is in the middle: `chunk` sites are one compiled
    function. cores [2,sites/2,2 bond,bond]: of the right half reversed and transposed"""
    half = sites // 2
    phi, labels = mps_data(sites, batch)
    phi = torch.stack([phi[:, :half], phi[:, half:].flip(1)]).permute(0, 2, 3, 1).contiguous()
    cores = torch.eye(bond).repeat_interleave(2, 0) + 0.01 * torch.randn(2, half, 2 * bond, bond)
    cores = cores.requires_grad_()
    label = (0.3 * torch.randn(bond, 10, bond)).requires_grad_()
    ends = torch.zeros(2, bond, batch)
    ends[:, 0] = 1

    @compiled
    def through(v, cores, phi):
        for core, features in zip(cores.unbind(1), phi.unbind(1)):
            v = ((v[:, :, None] * features[:, None]).view(2, 2 * bond, 1, batch) * core[..., None]).sum(1)
        return v

    def loss():
        v = ends
        for part in zip(cores.split(chunk, 1), phi.split(chunk, 1)):
            v = through(v, *part)
        left = (v[0].T @ label.reshape(bond, -1)).view(batch, 10, bond)
        return F.cross_entropy(torch.bmm(left, v[1].T[:, :, None])[..., 0], labels)
    return training_step([cores, label], loss)


def mps_step_krowch(sites, bond, batch, threads):
    import tensorkrowch
    phi, labels = mps_data(sites, batch)
    mps = tensorkrowch.models.MPSLayer(n_features=sites + 1, in_dim=2, out_dim=10, bond_dim=bond, init_method='randn_eye',
                                       std=0.01)
    mps.trace(phi, inline_mats=True)
    return training_step(list(mps.parameters()), lambda: F.cross_entropy(mps(phi, inline_mats=True), labels))


def tna_step(length, bond, batch, threads):
    """Closed boundary, W(j) of norm sqrt(2): of 32 sites the contexts need no scales of their own."""
    a = (torch.randn(bond, bond, 2) / bond ** 0.5).requires_grad_()
    b = (torch.randn(bond, bond, 1, 2) / bond ** 0.5).requires_grad_()
    x = F.one_hot(torch.randint(2, (batch, length)), 2).float()
    goal = torch.randn(batch, length, 1).sign()
    one = torch.eye(bond)[:, :, None].expand(bond, bond, 2 * batch)

    @compiled
    def forward(a, b):
        unit = x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-20)
        m = torch.einsum('bns,acs->nacb', unit, a)
        contexts = [one]
        for step in torch.cat([m[:-1], m[1:].flip(0).transpose(1, 2)], -1).unbind(0):      # from both ends
            contexts.append((contexts[-1][:, :, None] * step[None]).sum(1))
        contexts = torch.stack(contexts)
        left, right = contexts[..., :batch], contexts[..., batch:].flip(0)                 # right: transposed
        others = (right[:, :, :, None] * left[:, :, None]).sum(1)
        w = torch.einsum('nyxb,xytk->bntk', others, b)
        w = w * 2 ** 0.5 * torch.rsqrt(w.pow(2).sum((-1, -2), keepdim=True) + 1e-20)
        return (w @ x[..., None])[..., 0]
    return training_step([a, b], lambda: F.mse_loss(forward(a, b), goal))


def installed(*names):
    """Those of these packages that there are, with versions"""
    for name in names:
        try:
            yield f'{name} {importlib.metadata.version(name)}'
        except importlib.metadata.PackageNotFoundError:
            pass


made = {}
print('ready', torch.__version__, *installed('tensorkrowch'), flush=True)
for line in sys.stdin:
    runs, threads, work, *numbers = line.split()
    torch.set_num_threads(int(threads))
    if (work, *numbers) not in made:
        made[(work, *numbers)] = globals()[work](*map(int, numbers))
    run = made[(work, *numbers)]
    for _ in range(int(runs)):
        run()
    print('done', flush=True)
