"""The peer of tools/bench: reads lines `RUNS THREADS WORK ...`, does that work so often, answers `done`. PyTorch's best setup is
the caller's affair (ATEN_CPU_CAPABILITY, which BLAS); here it is foreach AdamW, fused ops where PyTorch has them, no needless copy."""
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


made = {}
print('ready', torch.__version__, flush=True)
for line in sys.stdin:
    runs, threads, work, *numbers = line.split()
    torch.set_num_threads(int(threads))
    if (work, *numbers) not in made:
        made[(work, *numbers)] = globals()[work](*map(int, numbers))
    run = made[(work, *numbers)]
    for _ in range(int(runs)):
        run()
    print('done', flush=True)
