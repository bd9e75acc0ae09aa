"""What others reach on this GPU, at the shapes of bench_gpu.c's rows: one line of JSON for each measurement, added to FILE when
it is there.

    python3 tools/bench/gpu/peers.py FILE SECONDS

FlashAttention-2 and cuDNN, both as PyTorch calls them; bilinear attention by a straightforward Triton kernel, the time to
beat; the products of a 124M training step by cuBLAS; and a GPT-2 with softmax attention, compiled: what a user has today.
What is missing here, fails, or has no time left is a line that says so. Rows of Triton are measured by a process of their
own, since a kernel that faults makes the GPU unusable for its process."""
import json
import subprocess
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    Module, NO_TORCH = torch.nn.Module, '' if torch.cuda.is_available() else 'PyTorch sees no GPU'
except Exception as e:                                     # a library of another driver is an OSError, for example
    torch, Module, NO_TORCH = None, object, f'no PyTorch: {type(e).__name__}: {e}'
try:
    import triton
    import triton.language as tl
    NO_TRITON = ''
except Exception as e:
    triton, NO_TRITON = None, f'no Triton: {type(e).__name__}: {e}'

DEVICE, TYPE = 'cuda', 'bfloat16'
SHAPES = [(1, 16, 4096, 64), (1, 16, 8192, 64), (1, 16, 4096, 128), (1, 16, 8192, 128), (16, 12, 1024, 64)]
LONG = [(1, 8, T, 64) for T in (8192, 12288, 16384, 32768, 65536, 131072)]


def name_of(what, B, H, T, d):
    return f'{what}, B {B} H {H} T {T} d {d}'


def rate(flops, ms):
    return float(f'{flops / ms * 1e-9:.4g}')


def timed(run, seconds=0.2):
    """Milliseconds of one run, the best of five."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    best, count = float('inf'), 1
    for turn in range(6):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(count):
            run()
        end.record()
        torch.cuda.synchronize()
        ms = begin.elapsed_time(end) / count
        if turn == 0:                                      # this one only says how many runs fill a turn
            count = max(1, int(seconds * 200 / max(ms, 1e-3)))
        else:
            best = min(best, ms)
    return float(f'{best:.4g}')


def normal(*shape, grad=False):
    return torch.randn(*shape, device=DEVICE, dtype=getattr(torch, TYPE), requires_grad=grad)


# ---- attention by PyTorch: causal, softmax

def sdpa(backend, B, H, T, d, backward):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    q, k, v = (normal(B, H, T, d, grad=backward) for _ in range(3))
    do = normal(B, H, T, d)

    def run():
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        if backward:
            q.grad = k.grad = v.grad = None
            o.backward(do)
    with sdpa_kernel(getattr(SDPBackend, backend)):
        ms = timed(run)
    return {'ms': ms, 'TF/s': rate(B * H * T * T * 2 * d * (3.5 if backward else 1), ms)}


# ---- bilinear attention in Triton: o[i] = c[i] sum_{j <= i} (q1[i].k1[j]) (q2[i].k2[j]) v[j], where c[i] = scale sqrt(length /
#      max(i + 1, length)). q and k are [B, T, 2 H, D] with the second sets after the first, v and o [B, T, H, D], as ours. T must be
#      a multiple of ROWS and of KEYS.

if triton:
    @triton.jit
    def bilinear(Q, K, V, O, scale, length, H, T, D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr):
        block = tl.num_programs(0) - 1 - tl.program_id(0)          # the longest rows begin first
        item = tl.program_id(1)
        third = (item // H).to(tl.int64) * T * H * D + item % H * D
        first = (item // H).to(tl.int64) * T * 2 * H * D + item % H * D
        second = first + H * D
        i = block * ROWS + tl.arange(0, ROWS)
        e = tl.arange(0, D)
        own = i[:, None] * (2 * H * D) + e[None, :]
        q1 = tl.load(Q + first + own)
        q2 = tl.load(Q + second + own)
        sum = tl.zeros([ROWS, D], tl.float32)
        for begin in range(0, (block + 1) * ROWS, KEYS):
            j = begin + tl.arange(0, KEYS)
            across = j[None, :] * (2 * H * D) + e[:, None]
            s = tl.dot(q1, tl.load(K + first + across)) * tl.dot(q2, tl.load(K + second + across))
            s = tl.where(i[:, None] >= j[None, :], s, 0.0)
            v = tl.load(V + third + j[:, None] * (H * D) + e[None, :])
            sum += tl.dot(s.to(v.dtype), v)
        c = scale * tl.sqrt(length / tl.maximum((i + 1).to(tl.float32), length))
        tl.store(O + third + i[:, None] * (H * D) + e[None, :], (sum * c[:, None]).to(q1.dtype))


LENGTH = 512.0                                             # as in bench_gpu.c


def bilinear_error(B, H, T, d, rows=64, keys=64, length=100.0):
    """Relative error of the Triton kernel against its definition."""
    q, k, v = normal(B, T, 2 * H, d), normal(B, T, 2 * H, d), normal(B, T, H, d)
    o = torch.empty_like(v)
    bilinear[(T // rows, B * H)](q, k, v, o, 1 / d**2, length, H, T, D=d, ROWS=rows, KEYS=keys)
    q, k, v = (x.float().transpose(1, 2) for x in (q, k, v))
    s1, s2 = (q @ k.transpose(-1, -2)).chunk(2, 1)
    c = (length / torch.arange(1, T + 1, device=q.device).clamp(min=length)).sqrt() / d**2
    right = ((s1 * s2).tril() @ v) * c[:, None]
    return ((o.float().transpose(1, 2) - right).norm() / right.norm()).item()


def triton_bilinear(B, H, T, d):
    if bilinear_error(2, 2, 256, d) > 1e-2:
        raise RuntimeError('its results are wrong')
    q, k, v = normal(B, T, 2 * H, d), normal(B, T, 2 * H, d), normal(B, T, H, d)
    o = torch.empty_like(v)
    best, chosen, why = None, None, None
    for rows, keys, warps, stages in [(128, 64, 4, 2), (128, 64, 8, 2), (128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 3)]:
        try:
            ms = timed(lambda: bilinear[(T // rows, B * H)](q, k, v, o, 1 / d**2, LENGTH, H, T, D=d, ROWS=rows, KEYS=keys,
                                                            num_warps=warps, num_stages=stages), 0.1)
            if best is None or ms < best:
                best, chosen = ms, f'{rows} x {keys}, {warps} warps, {stages} stages'
        except Exception as e:                             # too much shared memory, for example
            why = e
    if best is None:
        raise why
    return {'ms': best, 'TF/s': rate(B * H * T * T / 2 * 6 * d, best), 'note': chosen}


# ---- the products of the 124M bilinear step with 16384 tokens: forward, gradient of the inputs, gradient of the weights. Each is
#      run again and again on the same tensors, so that small ones stay in the L2 cache: the least time that a step may need.

PRODUCTS = [(3072, 768, 12), (768, 768, 24), (4096, 768, 12), (768, 2048, 12), (50304, 768, 1)]
TOKENS = 16384


def products():
    total = 0
    for n, k, times in PRODUCTS:
        x, w, dy = normal(TOKENS, k), normal(n, k), normal(TOKENS, n)
        total += times * sum(timed(run) for run in (lambda: x @ w.t(), lambda: dy @ w, lambda: dy.t() @ x))
    flops = sum(times * 6 * TOKENS * n * k for n, k, times in PRODUCTS)
    return {'ms': float(f'{total:.4g}'), 'TF/s': rate(flops, total)}


# ---- GPT-2, 124M: softmax attention, GELU, tied head

class Block(Module):
    def __init__(self, dim, heads):
        super().__init__()
        linear = torch.nn.Linear
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(dim), torch.nn.LayerNorm(dim)
        self.qkv, self.out = linear(dim, 3 * dim, bias=False), linear(dim, dim, bias=False)
        self.up, self.down = linear(dim, 4 * dim, bias=False), linear(4 * dim, dim, bias=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(C, 2))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT2(Module):
    def __init__(self, layers=12, dim=768, heads=12, vocab=50304, T=1024):
        super().__init__()
        self.embed, self.place = torch.nn.Embedding(vocab, dim), torch.nn.Embedding(T, dim)
        self.blocks = torch.nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(dim)

    def forward(self, ids, targets):
        x = self.embed(ids) + self.place.weight
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.embed.weight.t()
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def gpt2(B):
    model = GPT2().to(DEVICE)
    step = torch.compile(model)
    optim = torch.optim.AdamW(model.parameters(), fused=True, weight_decay=0.1)
    ids = torch.randint(50257, (B, 1024), device=DEVICE)

    def run():
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = step(ids, ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        optim.zero_grad(set_to_none=True)
    ms = timed(run)
    return {'ms': ms, 'tokens/s': round(B * 1024 / ms * 1e3)}


def work_of_triton():
    for shape in SHAPES:
        yield name_of('Triton bilinear fwd', *shape), lambda s=shape: triton_bilinear(*s)


def work():
    """(row, function): what decides most comes first."""
    for shape in SHAPES:
        yield name_of('FlashAttention fwd', *shape), lambda s=shape: sdpa('FLASH_ATTENTION', *s, False)
        yield name_of('cuDNN fwd', *shape), lambda s=shape: sdpa('CUDNN_ATTENTION', *s, False)
    for shape in SHAPES:
        yield name_of('FlashAttention fwd+bwd', *shape), lambda s=shape: sdpa('FLASH_ATTENTION', *s, True)
        yield name_of('cuDNN fwd+bwd', *shape), lambda s=shape: sdpa('CUDNN_ATTENTION', *s, True)
    yield 'products of a 124M step, 16384 tokens', products
    for shape in LONG:
        yield name_of('cuDNN fwd+bwd', *shape), lambda s=shape: sdpa('CUDNN_ATTENTION', *s, True)
    yield 'GPT-2 124M, softmax, torch.compile, batch 16', lambda: gpt2(16)


def text_of(e):
    return f'{type(e).__name__}: {e}'


def main(path, seconds, rows=None):
    """rows: None for all of them; or those of work_of_triton, in a process that main starts."""
    end = time.monotonic() + seconds
    with open(path, 'a') as out:
        def put(line):
            if 'why' in line:
                line['why'] = line['why'].replace('"', "'").replace('\n', ' ')[:150]
            text = json.dumps(line, separators=(',', ':')).replace('\\', '/')
            print(text, flush=True)
            out.write(text + '\n')
            out.flush()

        if NO_TORCH:
            put({'missing': 'peers', 'why': NO_TORCH})
            return
        if rows is None and NO_TRITON:
            put({'missing': 'Triton bilinear fwd', 'why': NO_TRITON})
        elif rows is None:
            try:
                subprocess.run([sys.executable, __file__, path, str(seconds / 3), 'triton'], timeout=seconds / 2, check=True)
            except Exception as e:
                put({'missing': 'Triton bilinear fwd', 'why': text_of(e)})
        for row, run in work() if rows is None else rows:
            try:
                torch.cuda.empty_cache()
                put({'missing': row, 'why': 'no time left'} if time.monotonic() > end else {'row': row, **run()})
            except Exception as e:
                put({'missing': row, 'why': text_of(e)})


if __name__ == '__main__':
    main(sys.argv[1], float(sys.argv[2]), work_of_triton() if sys.argv[3:] == ['triton'] else None)
