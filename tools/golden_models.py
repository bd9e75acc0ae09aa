"""tests/golden_models.h: two tiny language models of others under the names of their files, and their logits.

    python3 tools/golden_models.py > tests/golden_models.h

Both forward passes are written here in PyTorch, in double, by the published definitions: GPT-2 (Radford et al. 2019; Conv1D
weights are [in,out], GELU by its tanh approximation) and Llama (Touvron et al. 2023; RMSNorm, RoPE by halves, SwiGLU, grouped
queries). All weights are whole numbers over 256, so that a float holds them.
"""
import math
import torch

torch.manual_seed(11)
torch.set_default_dtype(torch.float64)


def draw(*shape, scale=0.4, around=0.0):
    return torch.round((torch.randn(*shape) * scale + around) * 256) / 256


def causal(scores):
    t = scores.shape[-1]
    return scores.masked_fill(torch.ones(t, t).triu(1).bool(), -math.inf).softmax(-1)


def heads(x, n):
    b, t, d = x.shape
    return x.view(b, t, n, d // n).transpose(1, 2)


def joined(x):
    b, n, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, n * d)


# ---- GPT-2

GPT2 = dict(n_layer=2, n_head=2, n_embd=6, n_positions=5, vocab_size=7)


def gpt2_weights(c):
    d, w = c["n_embd"], {}
    w["wte.weight"] = draw(c["vocab_size"], d)
    w["wpe.weight"] = draw(c["n_positions"], d)
    for l in range(c["n_layer"]):
        for name, rows, columns in (("attn.c_attn", d, 3 * d), ("attn.c_proj", d, d), ("mlp.c_fc", d, 4 * d),
                                    ("mlp.c_proj", 4 * d, d)):
            w[f"h.{l}.{name}.weight"] = draw(rows, columns)
            w[f"h.{l}.{name}.bias"] = draw(columns)
        for name in ("ln_1", "ln_2"):
            w[f"h.{l}.{name}.weight"] = draw(d, around=1)
            w[f"h.{l}.{name}.bias"] = draw(d)
    w["ln_f.weight"] = draw(d, around=1)
    w["ln_f.bias"] = draw(d)
    return {"transformer." + k: v for k, v in w.items()}


def gpt2(c, w, ids):
    def get(name):
        return w["transformer." + name]

    def conv(x, name):
        return x @ get(name + ".weight") + get(name + ".bias")

    def norm(x, name):
        m = x.mean(-1, keepdim=True)
        v = ((x - m) ** 2).mean(-1, keepdim=True)
        return (x - m) / torch.sqrt(v + 1e-5) * get(name + ".weight") + get(name + ".bias")

    x = get("wte.weight")[ids] + get("wpe.weight")[: ids.shape[1]]
    for l in range(c["n_layer"]):
        q, k, v = (heads(y, c["n_head"]) for y in conv(norm(x, f"h.{l}.ln_1"), f"h.{l}.attn.c_attn").chunk(3, -1))
        x = x + conv(joined(causal(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])) @ v), f"h.{l}.attn.c_proj")
        y = conv(norm(x, f"h.{l}.ln_2"), f"h.{l}.mlp.c_fc")
        y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
        x = x + conv(y, f"h.{l}.mlp.c_proj")
    return norm(x, "ln_f") @ get("wte.weight").T


# ---- Llama

LLAMA = dict(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=16, intermediate_size=6,
             vocab_size=7)


def llama_weights(c):
    d, h, w = c["hidden_size"], c["intermediate_size"], {}
    kv = d // c["num_attention_heads"] * c["num_key_value_heads"]
    w["model.embed_tokens.weight"] = draw(c["vocab_size"], d)
    for l in range(c["num_hidden_layers"]):
        for name, rows, columns in (("self_attn.q_proj", d, d), ("self_attn.k_proj", kv, d), ("self_attn.v_proj", kv, d),
                                    ("self_attn.o_proj", d, d), ("mlp.gate_proj", h, d), ("mlp.up_proj", h, d),
                                    ("mlp.down_proj", d, h)):
            w[f"model.layers.{l}.{name}.weight"] = draw(rows, columns)
        for name in ("input_layernorm", "post_attention_layernorm"):
            w[f"model.layers.{l}.{name}.weight"] = draw(d, around=1)
    w["model.norm.weight"] = draw(d, around=1)
    w["lm_head.weight"] = draw(c["vocab_size"], d)
    return w


def rope(x):
    t, d = x.shape[-2], x.shape[-1]
    angle = torch.outer(torch.arange(t, dtype=x.dtype), 10000.0 ** (-torch.arange(0, d, 2, dtype=x.dtype) / d))
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


def llama(c, w, ids):
    def norm(x, name):
        return x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-6) * w[name + ".weight"]

    n, shared = c["num_attention_heads"], c["num_attention_heads"] // c["num_key_value_heads"]
    x = w["model.embed_tokens.weight"][ids]
    for l in range(c["num_hidden_layers"]):
        at = f"model.layers.{l}."
        y = norm(x, at + "input_layernorm")
        q, k, v = (y @ w[f"{at}self_attn.{p}_proj.weight"].T for p in "qkv")
        q, k, v = heads(q, n), heads(k, n // shared), heads(v, n // shared)
        k, v = rope(k).repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
        y = joined(causal(rope(q) @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])) @ v)
        x = x + y @ w[at + "self_attn.o_proj.weight"].T
        y = norm(x, at + "post_attention_layernorm")
        gate = y @ w[at + "mlp.gate_proj.weight"].T
        x = x + (gate * torch.sigmoid(gate) * (y @ w[at + "mlp.up_proj.weight"].T)) @ w[at + "mlp.down_proj.weight"].T
    return norm(x, "model.norm") @ w["lm_head.weight"].T


# ---- as C

def lines(words, width=124):
    out = "   "
    for word in words:
        if len(out) + len(word) + 2 > width:
            yield out
            out = "   "
        out += " " + word + ","
    yield out


def print_model(name, weights, ids, logits):
    flat = torch.cat([w.reshape(-1) for w in weights.values()]) * 256
    print(f"static const golden_tensor golden_{name}_tensors[] = {{")
    at = 0
    for key, w in weights.items():
        shape = list(w.shape) + [0] * (2 - w.dim())
        print(f'    {{"{key}", {w.dim()}, {{{shape[0]}, {shape[1]}}}, {at}}},')
        at += w.numel()
    print("};")
    print(f"static const int16_t golden_{name}_weights[] = {{")
    print("\n".join(lines(str(int(v)) for v in flat)))
    print("};")
    print(f"static const int32_t golden_{name}_ids[] = {{{', '.join(str(int(i)) for i in ids.reshape(-1))}}};")
    print(f"static const double golden_{name}_logits[] = {{")
    print("\n".join(lines("%.17g" % float(v) for v in logits.reshape(-1))))
    print("};\n")


print("""/* golden_models.h: made by tools/golden_models.py, which explains it. Weights are these numbers over 256. */

#ifndef TN_GOLDEN_MODELS_H
#define TN_GOLDEN_MODELS_H

#include <stdint.h>

typedef struct golden_tensor { const char *name; int rank; int64_t shape[2], at; } golden_tensor;
enum { GOLDEN_TEXTS = 2, GOLDEN_TOKENS = 5, GOLDEN_VOCAB = 7 };
""")
ids = torch.randint(0, 7, (2, 5))
weights = gpt2_weights(GPT2)
print_model("gpt2", weights, ids, gpt2(GPT2, weights, ids))
weights = llama_weights(LLAMA)
print_model("llama", weights, ids, llama(LLAMA, weights, ids))
print("#endif")
