"""The peer of tools/bench: PyTorch as its users have it today, one process that waits for its turns. Each line of its input is
an order, answered by one line:

    forms WORK NUMBERS...                       forms NAME...       in which ways it can be done
    run RUNS THREADS FORM WORK NUMBERS...       done SECONDS PROCESSORS GRAPHS, or failed WHY

SECONDS are those of all runs, without what the pipe takes, PROCESSORS is processor time divided by them, GRAPHS the number of
graphs that were compiled meanwhile: in a turn there must be none. A work is a function of its form and its numbers that
returns what one run does. `eager` calls PyTorch's own fused functions, `compiled` is the same by torch.compile; bench.c
measures every form and then takes turns with the fastest."""
import importlib.metadata
import logging
import sys
import time
import warnings
import torch
import torch.nn.functional as F

# A function that was compiled too often would run eagerly from then on, without a word. Each row starts afresh
# (torch.compiler.reset), so nothing comes near this limit; if it did, the row would fail.
torch._dynamo.config.recompile_limit = 64
torch._dynamo.config.fail_on_recompile_limit_hit = True
logging.disable(logging.WARNING)
warnings.simplefilter('ignore')
torch.manual_seed(0)
WORKS = {}


def work(*forms):
    def add(function):
        function.forms = forms
        WORKS[function.__name__] = function
        return function
    return add


def formed(form, function, **options):
    return torch.compile(function, **options) if form == 'compiled' else function


def training_step(weights, loss_of, **settings):
    optim = torch.optim.AdamW(weights, fused=True, **settings)

    def run():
        optim.zero_grad(set_to_none=True)
        loss = loss_of()
        loss.backward()
        optim.step()
        return loss
    return run


# ---- tools/bench/train.c

@work('eager', 'compiled')
def cross_entropy(form, rows, columns):
    logits = torch.randn(rows, columns, requires_grad=True)
    labels = torch.zeros(rows, dtype=torch.long)
    loss = formed(form, F.cross_entropy)

    def run():
        logits.grad = None
        loss(logits, labels).backward()
    return run


@work('eager', 'compiled')
def rmsnorm(form, rows, columns):
    x = torch.randn(rows, columns, requires_grad=True)
    gain = torch.randn(columns, requires_grad=True)
    dy = torch.randn(rows, columns)
    norm = formed(form, lambda x, gain: F.rms_norm(x, (columns,), gain, 1e-5))

    def run():
        x.grad = gain.grad = None
        norm(x, gain).backward(dy)
    return run


@work('foreach', 'fused', 'compiled')
def adamw(form):
    shapes = [(2560, 256)] * 2 + [(768, 256), (256, 256), (1024, 256), (256, 1024)] * 4
    params = [torch.randn(s, requires_grad=True) for s in shapes]
    for p in params:
        p.grad = p.detach().clone()
    optim = torch.optim.AdamW(params, weight_decay=0.1, fused=form == 'fused', foreach=form != 'fused')
    return formed(form, lambda: optim.step())


@work('eager', 'compiled')
def fashion_step(form, batch):
    encoders, head = torch.nn.Linear(784, 512), torch.nn.Linear(256, 10)
    x, y = torch.randn(batch, 784), torch.arange(batch) % 10

    def loss():
        left, right = encoders(x).chunk(2, dim=1)
        return F.cross_entropy(head(left * right), y)
    return training_step([*encoders.parameters(), *head.parameters()], formed(form, loss))


# ---- tools/bench/lm.c: the same model, 0 with softmax attention, 1 with bilinear, 2 as GPT-2

V, D, H, T, B = 2048, 256, 4, 256, 16
angle = torch.arange(T)[:, None] * 10000.0 ** (-torch.arange(D // H // 2) / (D // H // 2))
cosine, sine = (torch.cat([a, a], -1)[:, None] for a in (angle.cos(), angle.sin()))      # [T,1,d]
sine[..., :D // H // 2] *= -1
seen = torch.ones(T, T).tril()


def rotated(x, at=slice(None)):
    """RoPE of [B,T,n,d], halves against halves."""
    c, s = cosine[at].to(x.dtype), sine[at].to(x.dtype)
    return torch.addcmul(x * c, x.roll(D // H // 2, -1), s)


class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(D))

    def forward(self, x):
        return F.rms_norm(x, (D,), self.gain, 1e-5)


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
        q, k = (qk if self.kind == 2 else rotated(qk, at)).transpose(1, 2).split(n, 1)
        return q, k, v.unflatten(-1, (H, D // H)).transpose(1, 2)

    def attend(self, q, k, v, mask=None, **how):
        """mask: of bilinear scores a factor, of softmax true where a key is visible"""
        if self.kind != 1:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **how)
        k = (k * (D / H) ** -1).transpose(-1, -2)
        s = (q[:, :H] @ k[:, :H]) * (q[:, H:] @ k[:, H:])
        return (s if mask is None else s * mask) @ v

    def forward(self, x):
        q, k, v = self.queries_and_keys(self.norm1(x))
        y = self.attend(q, k, v, seen) if self.kind == 1 else self.attend(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))

    def decode(self, x, at, cache):
        """at: how many tokens are in the cache. A number: attends to as many keys as there are. A tensor [1]: to the whole
        cache, masked, so that every token has the same shapes and a compiled function serves all"""
        static = isinstance(at, torch.Tensor)
        q, k, v = self.queries_and_keys(self.norm1(x), at if static else slice(at, at + 1))
        if static:
            cache[0].index_copy_(2, at, k)
            cache[1].index_copy_(2, at, v)
            y = self.attend(q, *cache, seen[at].to(x.dtype) if self.kind == 1 else seen[at] > 0)
        else:
            cache[0][:, :, at:at + 1], cache[1][:, :, at:at + 1] = k, v
            y = self.attend(q, cache[0][:, :, :at + 1], cache[1][:, :, :at + 1])
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


@work('eager', 'compiled')
def lm_step(form, kind, layers, half=0):
    """half: by autocast, whose products and attention are in bfloat16"""
    model, ids = Model(kind, layers), torch.randint(V, (B, T))

    def loss():
        with torch.autocast('cpu', torch.bfloat16, enabled=bool(half)):
            return F.cross_entropy(model(ids).flatten(0, 1).float(), ids.flatten())
    return training_step(list(model.parameters()), formed(form, loss), weight_decay=0.1)


@work('eager', 'compiled', 'frozen')
def lm_generate(form, kind, layers, batch):
    """compiled: with a wrapper in C++, because Python calls many short kernels slowly. frozen: also with the weights as
    constants, which it then stores as its products read them"""
    return generation(form, Model(kind, layers), batch)


@work('eager', 'compiled', 'frozen')
def lm_generate_bf16(form, kind, layers, batch):
    """all in bfloat16: weights, activations and caches"""
    return generation(form, Model(kind, layers).to(torch.bfloat16), batch)


@work('dynamic')
def lm_generate_int8(form, kind, layers, batch):
    """dynamic quantisation: int8 weights, a scale per matrix, and activations that are rounded at each product"""
    from torch.ao.quantization import quantize_dynamic
    return generation('eager', quantize_dynamic(Model(kind, layers), {torch.nn.Linear}, torch.qint8), batch)


def generation(form, model, batch):
    dtype = model.embed.weight.dtype
    layers = len(model.blocks)
    caches = [(torch.zeros(batch, model.blocks[0].sets * H, T, D // H, dtype=dtype),
               torch.zeros(batch, H, T, D // H, dtype=dtype)) for _ in range(layers)]
    start = torch.ones(batch, 1, dtype=torch.long)
    places = list(range(T)) if form == 'eager' else list(torch.arange(T).split(1))

    def token_after(token, at):
        x = model.embed(token)
        for block, cache in zip(model.blocks, caches):
            x = block.decode(x, at, cache)
        return model.head(model.norm(x)).argmax(-1)
    if form != 'eager':
        token_after = torch.compile(token_after, options={'cpp_wrapper': True, 'freezing': form == 'frozen'})

    def run():
        with torch.no_grad():
            token = start
            for at in places:
                token = token_after(token, at)
    return run


@work('eager')
def eigen_top(form, n, terms, count):
    """One interaction matrix in dense form and its top pairs, as one would without factors."""
    w, v, d = torch.randn(terms, n), torch.randn(terms, n), torch.randn(terms)

    def run():
        q = w.T @ (d[:, None] * v)
        values, vectors = torch.linalg.eigh((q + q.T) / 2)
        top = values.abs().topk(count).indices
        return values[top], vectors[:, top]
    return run


@work('eager')
def hosvd_out(form, n, terms, out):
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


@work('eager', 'compiled')
def einsum(form, case):
    """opt_einsum's optimal path, found once; compiled: torch.einsum, which asks opt_einsum for it. Where that is not installed
    torch.einsum by itself."""
    expression, extents = EINSUMS[case]
    extent = {e[0]: int(e[1:]) for e in extents.split()}
    shapes = [[extent[i] for i in term] for term in expression.split("->")[0].split(",")]
    tensors = [torch.randn(*shape) for shape in shapes]
    if torch.backends.opt_einsum.is_available():
        torch.backends.opt_einsum.strategy = 'optimal'
    try:
        import opt_einsum
        contract = opt_einsum.contract_expression(expression, *shapes, optimize='optimal')
    except ImportError:
        contract = None
    if form == 'compiled' or not contract:
        contract = formed(form, lambda *operands: torch.einsum(expression, *operands))
    return lambda: contract(*tensors)


@work('eager')
def svd(form, batch, n):
    a = torch.randn(n, n, dtype=torch.float64)
    return lambda: torch.linalg.svd(a, full_matrices=False)


@work('eager')
def svd_top(form, batch, n):
    """All singular values, as LAPACK has no others."""
    return svd(form, batch, n)


@work('eager')
def svd_lowrank(form, batch, n):
    a = torch.randn(n, n, dtype=torch.float64)
    return lambda: torch.svd_lowrank(a, q=10)


@work('eager')
def eig(form, batch, n):
    a = torch.randn(n, n, dtype=torch.float64)
    return lambda: torch.linalg.eig(a)


@work('eager')
def eigh(form, n):
    """In float, of one matrix: LAPACK's divide and conquer"""
    a = torch.randn(n, n)
    a = (a + a.mT) / 2
    return lambda: torch.linalg.eigh(a)


@work('eager')
def eigh_batch(form, batch, n):
    a = torch.randn(batch, n, n, dtype=torch.float64)
    return lambda: torch.linalg.eigh((a + a.mT) / 2)


@work('eager')
def hosvd_all(form, n, terms, out):
    """Singular vectors of both modes of the dense, symmetrised tensor."""
    p, w, v = torch.randn(out, terms), torch.randn(terms, n), torch.randn(terms, n)

    def run():
        b = torch.einsum('oh,hi,hj->oij', p, w, v)
        b = (b + b.transpose(1, 2)) / 2
        rows, columns = b.reshape(out, -1), b.reshape(-1, n)
        return torch.linalg.eigh(rows @ rows.T), torch.linalg.eigh(columns.T @ columns)
    return run


@work('bmm')
def scan(form, batch, sites, d):
    """All prefixes, site by site, without scales"""
    m = torch.randn(batch, sites, d, d) / d ** 0.5

    def run():
        y = [m[:, 0]]
        for i in range(1, sites):
            y.append(torch.bmm(y[-1], m[:, i]))
        return y
    return run


@work('bmm', 'tree', 'compiled')
def chain(form, batch, sites, d):
    """bmm: site by site. tree: pairs of neighbours, then pairs of these. compiled: site by site, the batch as the last axis and
    products as sums, some sites per compiled function"""
    m = torch.randn(batch, sites, d, d) / d ** 0.5

    def by_bmm():
        y = m[:, 0]
        for i in range(1, sites):
            y = torch.bmm(y, m[:, i])
        return y

    def by_tree():
        y, n = m, sites
        while n > 1:
            if n % 2:
                pair = torch.bmm(y[:, -2], y[:, -1])[:, None]
                y = torch.cat([y[:, :-2], pair], 1)
                n -= 1
            pairs = y.view(batch * n // 2, 2, d, d)
            y, n = torch.bmm(pairs[:, 0], pairs[:, 1]).view(batch, n // 2, d, d), n // 2
        return y
    if form != 'compiled':
        return by_bmm if form == 'bmm' else by_tree
    last = m.permute(1, 2, 3, 0).contiguous()

    @torch.compile
    def through(y, part):
        for x in part.unbind(0):
            y = (y[:, :, None] * x[None]).sum(1)
        return y

    def by_parts():
        y = torch.eye(d)[:, :, None].expand(d, d, batch)
        for part in last.split(16):
            y = through(y, part)
        return y
    return by_parts


def with_backward(form, forward, inputs, backward):
    """Runs forward(*inputs), and, where wanted, its backward pass."""
    inputs = [x.requires_grad_(bool(backward)) for x in inputs]
    forward = formed(form, forward)
    w = torch.randn(inputs[-1].shape)

    def run():
        if not backward:
            with torch.no_grad():
                return forward(*inputs)
        for x in inputs:
            x.grad = None
        forward(*inputs).backward(w)
    return run


@work('bmm', 'eager', 'compiled')
def softmax_heads(form, heads, length, d, backward):
    """bmm: masked by addition while the scores are multiplied; otherwise PyTorch's own function"""
    mask = torch.full((length, length), float('-inf')).triu(1).expand(heads, -1, -1)

    def forward(q, k, v):
        if form != 'bmm':
            return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
        return torch.bmm(torch.baddbmm(mask, q, k.transpose(1, 2), alpha=d ** -0.5).softmax(-1), v)
    return with_backward(form, forward, [torch.randn(heads, length, d) for _ in range(3)], backward)


@work('eager', 'compiled')
def bilinear_heads(form, heads, length, d, backward):
    mask = torch.ones(length, length).tril() / d ** 2

    def forward(q, k, q2, k2, v):
        p = torch.bmm(q, k.transpose(1, 2)) * mask
        other = torch.bmm(q2, k2.transpose(1, 2))
        return torch.bmm(p * other if backward else p.mul_(other), v)
    return with_backward(form, forward, [torch.randn(heads, length, d) for _ in range(5)], backward)


@work('eager', 'compiled')
def bilinear_blocks(form, heads, length, d, backward, block=512):
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
    return with_backward(form, forward, [torch.randn(length, d) for _ in range(5)], backward)


@work('eager', 'compiled')
def bilinear_state(form, heads, length, d, backward, chunk=128):
    """Chunks: the pairs inside, and for earlier keys the row-wise Khatri-Rao product with a state. A chunk is one compiled
    function: all of them in one take minutes to compile."""
    mask = torch.ones(chunk, chunk).tril()

    def through(state, a, b, e, f, x):
        o = ((a @ b.T) * (e @ f.T) * mask) @ x
        o = torch.addmm(o, (a[:, :, None] * e[:, None, :]).reshape(chunk, d * d), state)
        features = (b[:, :, None] * f[:, None, :]).reshape(chunk, d * d)
        return torch.addmm(state, features.T, x) if backward else state.addmm_(features.T, x), o / d ** 2
    through = formed(form, through)

    def forward(*inputs):
        out, state = [], torch.zeros(d * d, d)
        for part in zip(*(x.split(chunk) for x in inputs)):
            state, o = through(state, *part)
            out.append(o)
        return torch.cat(out)
    return with_backward('eager', forward, [torch.randn(length, d) for _ in range(5)], backward)


# ---- tools/bench/chains.c. Of several ways those that were the fastest (docs/measurements.md has them all): the batch as the
#      last axis, products written as sums, which the compiler joins with what is before and after them.

def mps_data(sites, batch):
    x = torch.rand(batch, sites)
    return torch.stack([1 - x, x], -1), torch.arange(batch) % 10


@work('eager', 'compiled')
def mps_step(form, sites, bond, batch, chunk=28):
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

    def through(v, cores, phi):
        for core, features in zip(cores.unbind(1), phi.unbind(1)):
            v = ((v[:, :, None] * features[:, None]).view(2, 2 * bond, 1, batch) * core[..., None]).sum(1)
        return v
    through = formed(form, through)

    def loss():
        v = ends
        for part in zip(cores.split(chunk, 1), phi.split(chunk, 1)):
            v = through(v, *part)
        left = (v[0].T @ label.reshape(bond, -1)).view(batch, 10, bond)
        return F.cross_entropy(torch.bmm(left, v[1].T[:, :, None])[..., 0], labels)
    return training_step([cores, label], loss)


@work('eager')
def mps_step_krowch(form, sites, bond, batch):
    import tensorkrowch
    phi, labels = mps_data(sites, batch)
    mps = tensorkrowch.models.MPSLayer(n_features=sites + 1, in_dim=2, out_dim=10, bond_dim=bond, init_method='randn_eye',
                                       std=0.01)
    mps.trace(phi, inline_mats=True)
    return training_step(list(mps.parameters()), lambda: F.cross_entropy(mps(phi, inline_mats=True), labels))


@work('eager', 'compiled')
def tna_step(form, length, bond, batch):
    """Closed boundary, W(j) of norm sqrt(2): of 32 sites the contexts need no scales of their own."""
    a = (torch.randn(bond, bond, 2) / bond ** 0.5).requires_grad_()
    b = (torch.randn(bond, bond, 1, 2) / bond ** 0.5).requires_grad_()
    x = F.one_hot(torch.randint(2, (batch, length)), 2).float()
    goal = torch.randn(batch, length, 1).sign()
    one = torch.eye(bond)[:, :, None].expand(bond, bond, 2 * batch)

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
    forward = formed(form, forward)
    return training_step([a, b], lambda: F.mse_loss(forward(a, b), goal))


# ---- tools/bench/predict.c

def lite_model(inputs, hidden, outputs):
    """The flatbuffer of p ((w x + b) * (v x + c)) + q: three fully connected layers and a product"""
    import flatbuffers
    import ai_edge_litert.schema_py_generated as lite
    buffers, tensors, operators = [lite.BufferT()], [], []

    def tensor(shape, data=None):
        t = lite.TensorT()
        t.shape, t.type, t.name, t.buffer = shape, lite.TensorType.FLOAT32, f't{len(tensors)}', 0
        if data is not None:
            t.buffer = len(buffers)
            buffers.append(lite.BufferT())
            buffers[-1].data = data.numpy().tobytes()
        tensors.append(t)
        return len(tensors) - 1

    def operator(code, kind, options, inputs, shape):
        o = lite.OperatorT()
        o.opcodeIndex, o.builtinOptionsType, o.builtinOptions = code, kind, options
        o.inputs, o.outputs = inputs, [tensor(shape)]
        operators.append(o)
        return o.outputs[0]

    def layer(x, n, m):
        w, b = tensor([m, n], torch.randn(m, n) / n ** 0.5), tensor([m], torch.randn(m))
        return operator(0, lite.BuiltinOptions.FullyConnectedOptions, lite.FullyConnectedOptionsT(), [x, w, b], [1, m])
    x = tensor([1, inputs])
    parts = [layer(x, inputs, hidden), layer(x, inputs, hidden)]
    y = layer(operator(1, lite.BuiltinOptions.MulOptions, lite.MulOptionsT(), parts, [1, hidden]), hidden, outputs)
    graph, model = lite.SubGraphT(), lite.ModelT()
    graph.tensors, graph.operators, graph.inputs, graph.outputs = tensors, operators, [x], [y]
    model.version, model.subgraphs, model.buffers, model.operatorCodes = 3, [graph], buffers, []
    for code in (lite.BuiltinOperator.FULLY_CONNECTED, lite.BuiltinOperator.MUL):
        c = lite.OperatorCodeT()
        c.builtinCode = c.deprecatedBuiltinCode = code
        c.version = 1
        model.operatorCodes.append(c)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b'TFL3')
    return bytes(builder.Output())


def lite_works():
    try:
        import ai_edge_litert, flatbuffers                                      # noqa: F401
        return ('LiteRT', 'builtin')
    except ImportError:
        return ()


@work(*lite_works(), 'eager', 'compiled')
def prediction(form, inputs, hidden, outputs):
    """A number written, one prediction, a number read. LiteRT: by its default kernels, XNNPACK's. builtin: by its own. Python
    calls it: its loop, write and read are the work `prediction_calls`."""
    if form in ('LiteRT', 'builtin'):
        from ai_edge_litert.interpreter import Interpreter, OpResolverType
        kernels = OpResolverType.AUTO if form == 'LiteRT' else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        lite = Interpreter(model_content=lite_model(inputs, hidden, outputs), num_threads=1,
                           experimental_op_resolver_type=kernels)
        lite.allocate_tensors()
        x, y = lite.tensor(lite.get_input_details()[0]['index'])(), lite.tensor(lite.get_output_details()[0]['index'])()
        invoke = lite._interpreter.Invoke                                       # without a check that nobody holds x and y

        def run():
            x[0, 0] = 1.5
            invoke(0)
            return y[0, 0], lite
        return run
    encoders, head = torch.nn.Linear(inputs, 2 * hidden), torch.nn.Linear(hidden, outputs)
    x = torch.randn(1, inputs)
    numbers = x.numpy()

    def forward(x):
        left, right = encoders(x).chunk(2, dim=1)
        return head(left * right)
    if form == 'compiled':
        forward = torch.compile(forward, options={'cpp_wrapper': True, 'freezing': True})

    def run():
        numbers[0, 0] = 1.5
        with torch.inference_mode():
            return forward(x).numpy()[0, 0]
    return run


@work('eager')
def prediction_calls(form, inputs, hidden, outputs):
    """What Python takes for a loop with a write, a call and a read, without a prediction"""
    x, y = torch.randn(1, inputs).numpy(), torch.randn(1, outputs).numpy()

    def run():
        x[0, 0] = 1.5
        abs(0)
        return y[0, 0]
    return run


# ---- orders

def installed(*names):
    """Those of these packages that there are, with versions"""
    for name in names:
        try:
            yield f'{name} {importlib.metadata.version(name)}'
        except importlib.metadata.PackageNotFoundError:
            pass


def blas():
    """As `MKL 2024.2, oneDNN 3.13.3`, or the name of another library"""
    lines = torch.__config__.show()
    names = [(label, lines.split(title)[1].split()[0].removeprefix('v').split('-')[0]) for label, title in
             (('MKL', 'Math Kernel Library Version '), ('oneDNN', 'MKL-DNN ')) if title in lines]
    if not any(name == 'MKL' for name, _ in names):
        names.insert(0, (lines.split('BLAS_INFO=')[1].split(',')[0], '') if 'BLAS_INFO=' in lines else ('BLAS', 'unknown'))
    return ', '.join(' '.join(name).strip() for name in names) + f", {torch.backends.cpu.get_cpu_capability()} kernels"


def graphs():
    return torch._dynamo.utils.counters['stats']['unique_graphs']


class Row:
    """The forms of the present row that were asked for; those of the last one are dropped with all that was compiled."""
    def __init__(self):
        self.key, self.made = None, {}

    def run(self, runs, threads, form, name, *numbers):
        torch.set_num_threads(int(threads))
        if self.key != (threads, name, numbers):
            self.key, self.made = (threads, name, numbers), {}
            torch.compiler.reset()
        if form not in self.made:
            self.made[form] = WORKS[name](form, *map(int, numbers))
        compiled, start, used = graphs(), time.perf_counter(), time.process_time()
        for _ in range(int(runs)):
            self.made[form]()
        start, used = time.perf_counter() - start, time.process_time() - used
        return f'done {start:.9f} {used / start:.2f} {graphs() - compiled}'


def main():
    row = Row()
    print('ready', torch.__version__, f'({blas()})', *installed('numpy', 'opt_einsum', 'tensorkrowch', 'ai-edge-litert'),
          flush=True)
    for line in sys.stdin:
        order, *words = line.split()
        try:
            answer = ' '.join(['forms', *WORKS[words[0]].forms]) if order == 'forms' else row.run(*words)
        except Exception as error:
            row.made.pop(words[2] if len(words) > 2 else None, None)
            answer = f'failed {type(error).__name__}: {" ".join(str(error).split())[:200]}'
        print(answer, flush=True)


main()
