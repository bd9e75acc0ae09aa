"""The peer of bench_gpu.c: reads lines `RUNS WORK ...`, does that work so often on the GPU, answers `done SECONDS NOTE`; or
`missing WHY`, where this machine lacks what the work needs. Each work is PyTorch at its best: FlashAttention, torch.compile, fused
AdamW, CUDA graphs. Where torch.compile does not work, the work is done without, and NOTE says so."""
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    WHY = '' if torch.cuda.is_available() else 'torch sees no GPU'
except Exception as e:                                     # every later request is answered with the reason
    WHY = f'no torch: {e}'

if not WHY:
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = True


def normal(*shape, dtype=None, grad=False):
    return torch.randn(*shape, device='cuda', dtype=dtype or torch.bfloat16).requires_grad_(grad)


note = ''                                                  # of the work that is being made
uncompiled = None                                          # why torch.compile does not work; '': it does; None: not tried yet


def compiled(f):
    global note, uncompiled
    if uncompiled is None:
        try:                                               # it wants Triton, which wants a C compiler
            x = normal(64, grad=True)
            torch.compile(lambda x: (x.float() * 2).sum())(x).backward()
            uncompiled = ''
        except Exception as e:
            uncompiled = f'eager, for torch.compile fails: {type(e).__name__}'
    note = uncompiled
    return f if uncompiled else torch.compile(f)


# ---- ceilings

def copy(n):
    a, b = normal(n, dtype=torch.float32), normal(n, dtype=torch.float32)
    return lambda: b.copy_(a)


def matmul(n, dtype, tf32):
    a, b, c = (normal(n, n, dtype=dtype) for _ in range(3))

    def run():
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.matmul(a, b, out=c)
        torch.backends.cuda.matmul.allow_tf32 = True
    return run


def matmul_bf16(n):
    return matmul(n, torch.bfloat16, True)


def matmul_tf32(n):
    return matmul(n, torch.float32, True)


def matmul_f32(n):
    return matmul(n, torch.float32, False)


# ---- attention

def flash(batch, heads, T, d, backward):
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        only = (sdpa_kernel, SDPBackend.FLASH_ATTENTION)
    except ImportError:                                    # PyTorch before 2.3
        only = (torch.backends.cuda.sdp_kernel, True, False, False)
    q, k, v = (normal(batch, heads, T, d, grad=bool(backward)) for _ in range(3))
    do = normal(batch, heads, T, d)

    def run():
        with only[0](*only[1:]):
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        if backward:
            q.grad = k.grad = v.grad = None
            o.backward(do)
    return run


# ---- the bilinear transformer of tn_transformer: RMSNorm, RoPE by halves, two sets of queries and keys, bilinear MLP

class Norm(torch.nn.Module if not WHY else object):
    def __init__(self, dim):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(dim))

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5) * self.gain).to(x.dtype)


class Block(torch.nn.Module if not WHY else object):
    def __init__(self, dim, heads, hidden, T):
        super().__init__()
        self.heads, self.d = heads, dim // heads
        self.norm1, self.norm2 = Norm(dim), Norm(dim)
        self.qk = torch.nn.Linear(dim, 4 * dim, bias=False)
        self.v = torch.nn.Linear(dim, dim, bias=False)
        self.o = torch.nn.Linear(dim, dim, bias=False)
        self.w = torch.nn.Linear(dim, 2 * hidden, bias=False)
        self.p = torch.nn.Linear(hidden, dim, bias=False)
        half = self.d // 2
        angle = torch.arange(T)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer('cosine', torch.cat([angle.cos()] * 2, -1)[None, None])
        self.register_buffer('sine', torch.cat([-angle.sin(), angle.sin()], -1)[None, None])
        count = torch.arange(1, T + 1).clamp(min=T)
        self.register_buffer('seen', torch.ones(T, T).tril() * (T / count)[:, None] ** 0.5 / self.d ** 2)

    def forward(self, x):
        B, T, D = x.shape
        h = self.norm1(x)
        v = self.v(h).view(B, T, self.heads, self.d).transpose(1, 2)
        qk = self.qk(h).view(B, T, 4 * self.heads, self.d).transpose(1, 2)
        qk = (qk * self.cosine + qk.roll(self.d // 2, -1) * self.sine).to(v.dtype)
        q, k = qk.chunk(2, 1)
        s = q @ k.transpose(-1, -2)
        first, second = s.chunk(2, 1)
        o = (first * second * self.seen.to(v.dtype)) @ v
        x = x + self.o(o.transpose(1, 2).reshape(B, T, D))
        left, right = self.w(self.norm2(x)).chunk(2, -1)
        return x + self.p(left * right)


class GPT(torch.nn.Module if not WHY else object):
    def __init__(self, layers, dim, heads, vocab, T, hidden):
        super().__init__()
        self.embed = torch.nn.Embedding(vocab, dim)
        self.blocks = torch.nn.ModuleList(Block(dim, heads, hidden, T) for _ in range(layers))
        self.norm = Norm(dim)
        self.head = torch.nn.Linear(dim, vocab, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                torch.nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)).float(), targets.view(-1))


def training(model, loss_of, clip, amp=True, capturable=False):
    optim = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, fused=True, capturable=capturable)

    def run():
        optim.zero_grad(set_to_none=not capturable)
        with torch.autocast('cuda', torch.bfloat16, enabled=amp):
            loss = loss_of()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optim.step()
    return run


def as_graph(run):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def language_model(layers, dim, heads, vocab, T, B, hidden, fused, capturable=False):
    model = GPT(layers, dim, heads, vocab, T, hidden).cuda()
    ids = torch.randint(vocab, (B, T), device='cuda')
    forward = compiled(model) if fused else model
    return training(model, lambda: forward(ids, ids), 1.0, capturable=capturable)


def gpt(*sizes):
    return language_model(*sizes, True)


def story_eager(*sizes):
    return language_model(*sizes, False)


def story_graph(*sizes):
    return as_graph(language_model(*sizes, False, True))


def fashion(batch, capturable=False):
    encoders, head = torch.nn.Linear(784, 512, bias=False), torch.nn.Linear(256, 10, bias=False)
    model = torch.nn.ModuleList([encoders, head]).cuda()
    x, y = normal(batch, 784, dtype=torch.float32), torch.arange(batch, device='cuda') % 10

    def loss():
        left, right = encoders(x).chunk(2, -1)
        return F.cross_entropy(head(left * right), y)
    return training(model, loss, 0, False, capturable)


def fashion_eager(batch):
    return fashion(batch)


def fashion_graph(batch):
    return as_graph(fashion(batch, True))


# ---- rows that memory bounds

def rmsnorm(rows, columns):
    x, dy = normal(rows, columns, grad=True), normal(rows, columns)
    gain = normal(columns, dtype=torch.float32, grad=True)

    def norm(x, gain):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5) * gain).bfloat16()

    norm = compiled(norm)

    def run():
        x.grad = gain.grad = None
        norm(x, gain).backward(dy)
    return run


def cross_entropy(rows, columns):
    logits = normal(rows, columns, grad=True)
    labels = torch.randint(columns, (rows,), device='cuda')

    def loss(x):
        return F.cross_entropy(x.float(), labels)

    loss = compiled(loss)

    def run():
        logits.grad = None
        loss(logits).backward()
    return run


def adamw(n):
    p = normal(n, dtype=torch.float32, grad=True)
    p.grad = torch.zeros_like(p)
    return torch.optim.AdamW([p], weight_decay=0.1, fused=True).step


def embedding(vocab, dim, tokens):
    table = normal(vocab, dim, dtype=torch.float32)
    ids = torch.randint(vocab, (tokens,), device='cuda')
    dy = normal(tokens, dim, dtype=torch.float32)
    return lambda: table.index_add_(0, ids, dy)


made = {}


def answer(runs, name, arguments):
    global note
    key = (name, *arguments)
    if key not in made:
        made.clear()                                       # one work at a time: its memory is the other's
        torch.cuda.empty_cache()
        note = ''
        made[key] = globals()[name](*map(int, arguments))
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(runs):
        made[key]()
    torch.cuda.synchronize()
    return time.perf_counter() - start


for line in sys.stdin:
    count, work, *sizes = line.split()
    if WHY:
        print('missing', WHY, flush=True)
        continue
    try:
        seconds = answer(int(count), work, sizes)
        print('done', seconds, note, flush=True)
    except Exception as e:
        made.clear()
        print('missing', work, type(e).__name__, str(e).replace('\n', ' ')[:120], flush=True)
