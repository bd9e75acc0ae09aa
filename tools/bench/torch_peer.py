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
