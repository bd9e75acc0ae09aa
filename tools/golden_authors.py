#!/usr/bin/env python3
"""tests/data/authors/: small models with random weights in the layouts of other programs, and the logits that formulas give, written
here once more with numpy alone, in float64.

    pip install numpy
    python3 tools/golden_authors.py

    stories-*   transformers of github.com/tdooms/bilinear-decomposition; stories-first is of its first version
    image-*     image classifiers of the same repository
    modded-*    github.com/loganriggs/modded-nanogpt
    qwen3       QK-norm with gains that all heads share, grouped queries, head_dim
    gemma       embedding times sqrt(dim), gains 1 + w, a gate by the tanh form of GELU

Each folder has config.json, model.safetensors (F32), and golden.json: ids and logits, or inputs x and outputs y. Of rotations the exact
angles are used: modded-nanogpt rounds their cosines and sines to BF16, and transformers computes them in float.
"""
import json
import math
import os
import struct
import numpy as np

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/data/authors/")
FLOAT_EPS = 2.0 ** -23
erf = np.vectorize(math.erf)


def silu(x): return x / (1 + np.exp(-x))
def relu(x): return np.maximum(x, 0)
def gelu(x): return 0.5 * x * (1 + erf(x / math.sqrt(2)))
def gelu_tanh(x): return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))
def rms(x, eps): return x / np.sqrt((x ** 2).mean(-1, keepdims=True) + eps)


def rotated(x, sign, base=10000.0):
    """x [tokens,heads,d]; sign 1: the pair (x1, x2) by +angle, -1: by -angle"""
    T, _, d = x.shape
    angle = np.arange(T)[:, None, None] * base ** (-np.arange(0, d, 2) / d)
    c, s, a, b = np.cos(angle), sign * np.sin(angle), x[..., :d // 2], x[..., d // 2:]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def heads(x, n): return x.reshape(len(x), n, -1)
def scores(q, k): return np.einsum("qhd,khd->hqk", q, k)
def mix(p, v): return np.einsum("hqk,khd->qhd", p, v).reshape(len(v), -1)
def visible(T): return np.tril(np.ones((T, T), bool))


def softmax(s):
    s = np.where(visible(s.shape[-1]), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Weights(dict):
    """Random tensors, rounded to float"""

    def __init__(self, seed):
        super().__init__()
        self.rng = np.random.default_rng(seed)

    def __call__(self, name, *shape, std=None, mean=0.0):
        std = 1 / math.sqrt(shape[-1]) if std is None and len(shape) > 1 else std or 0.4
        self[name] = (mean + std * self.rng.standard_normal(shape)).astype(np.float32)

    def f64(self):
        return {name: w.astype(np.float64) for name, w in self.items()}


def save(name, config, weights, golden):
    folder = os.path.join(OUT, name)
    os.makedirs(folder, exist_ok=True)
    header, at, data = {"__metadata__": {"format": "pt"}}, 0, b""
    for key, w in weights.items():
        header[key] = {"dtype": "F32", "shape": list(w.shape), "data_offsets": [at, at + w.nbytes]}
        at += w.nbytes
        data += w.tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        f.write(json.dumps(config, indent=2) + "\n")
    with open(os.path.join(folder, "golden.json"), "w", encoding="utf-8") as f:
        f.write(json.dumps({key: np.asarray(v).ravel().tolist() for key, v in golden.items()}, separators=(",", ":")) + "\n")
    print(name, sum(w.size for w in weights.values()), "numbers")


def some_ids(w, vocab, tokens=9): return w.rng.integers(0, vocab, tokens)


# ---- github.com/tdooms/bilinear-decomposition: transformers ------------------------------------------------------------------

def stories(name, seed, vocab=13, layers=3, n_head=3, dim=12, hidden=7, bilinear=True, gate=None, bias=False, normed=True, first=False):
    w = Weights(seed)
    w("transformer.wte.weight", vocab, dim, std=1)
    for l in range(layers):
        at = f"transformer.h.{l}."
        w(at + "attn.qkv.weight", 3 * dim, dim)
        w(at + "attn.o.weight", dim, dim)
        w(at + "mlp.w.weight", (1 + bilinear) * hidden, dim)
        w(at + f"mlp.{'o' if first else 'p'}.weight", dim, hidden)
        if bias:
            w(at + "mlp.w.bias", (1 + bilinear) * hidden)
            w(at + "mlp.p.bias", dim)
        w[at + "attn.rotary.inv_freq"] = (10000 ** (-np.arange(0, dim // n_head, 2) / (dim // n_head))).astype(np.float32)
        for n in ("n1", "n2") if first else ():
            w(at + n + ".norm.weight", dim, mean=1)
            w[at + n + ".norm.bias"] = np.zeros(dim, np.float32)
    if first:
        w("transformer.n_f.norm.weight", dim, mean=1)
        w["transformer.n_f.norm.bias"] = np.zeros(dim, np.float32)
    w("lm_head.weight", vocab, dim)
    config = dict(architectures=["Transformer"], bilinear=bilinear, d_hidden=hidden, d_model=dim, gate=gate, n_ctx=16, n_head=n_head,
                  n_layer=layers, normalization=normed, torch_dtype="float32", transformers_version="4.44.2")
    config.update(dict(n_vocab=vocab, modifier=None, noise=0.1) if first else dict(bias=bias, tokenizer="ts-4096", repo=None))
    ids, W = some_ids(w, vocab), w.f64()
    act = {None: lambda y: y, "relu": relu, "silu": silu, "gelu": gelu, False: lambda y: y, True: relu}[gate]
    norm = lambda x, n: (rms(x, 1e-8) * W.get(n + ".norm.weight", 1)) if normed else x
    x = W["transformer.wte.weight"][ids]
    for l in range(layers):
        at = f"transformer.h.{l}."
        q, k, v = (heads(y, n_head) for y in np.split(norm(x, at + "n1") @ W[at + "attn.qkv.weight"].T, 3, -1))
        q, k = rotated(q, 1), rotated(k, 1)
        z = mix(softmax(scores(q, k) / math.sqrt(q.shape[-1])), v) @ W[at + "attn.o.weight"].T
        x = x + z / (1 if first else math.sqrt(2 * layers))
        y = norm(x, at + "n2") @ W[at + "mlp.w.weight"].T + W.get(at + "mlp.w.bias", 0)
        y = act(y[:, :hidden]) * y[:, hidden:] if bilinear else act(y)
        x = x + y @ W[at + f"mlp.{'o' if first else 'p'}.weight"].T + W.get(at + "mlp.p.bias", 0)
    save(name, config, w, dict(ids=ids, logits=norm(x, "transformer.n_f") @ W["lm_head.weight"].T))


# ---- the same repository: images ---------------------------------------------------------------------------------------------

def image(name, seed, layers, bias, residual, inputs=10, hidden=6, outputs=5):
    w = Weights(seed)
    w("embed.weight", hidden, inputs)
    for l in range(layers):
        w(f"blocks.{l}.weight", 2 * hidden, hidden)
        if bias:
            w(f"blocks.{l}.bias", 2 * hidden)
    w("head.weight", outputs, hidden)
    config = dict(architectures=["Model"], batch_size=2048, bias=bias, d_hidden=hidden, d_input=inputs, d_output=outputs, epochs=100,
                  lr=0.001, n_layer=layers, residual=residual, seed=42, wd=0.5)
    inp, W = w.rng.standard_normal((4, inputs)), w.f64()
    x = inp @ W["embed.weight"].T
    for l in range(layers):
        y = x @ W[f"blocks.{l}.weight"].T + W.get(f"blocks.{l}.bias", 0)
        y = y[:, :hidden] * y[:, hidden:]
        x = x + y if residual else y
    save(name, config, w, dict(x=inp, y=x @ W["head.weight"].T))


# ---- github.com/loganriggs/modded-nanogpt ------------------------------------------------------------------------------------

def modded(name, seed, vocab=11, layers=3, n_head=3, dim=6, factor=4, prefix="", **kinds):
    w, on = Weights(seed), lambda key: kinds.get(key, False)
    hidden = (factor if on("bilinear") else 4) * dim
    w("transformer.wte.weight", vocab, dim, std=1)
    for l in range(layers):
        at = f"transformer.h.{l}."
        w(at + "lambdas", 2, mean=0.7)
        w(at + "attn.lamb")
        for one in ("c_q", "c_k", "c_v", "c_proj") + (("c_q2", "c_k2") if on("bilinear_attn") else ()):
            w(at + f"attn.{one}.weight", dim, dim)
        if on("bilinear_attn") and not on("squared_attn"):
            w(at + "attn.bilinear_lamb", mean=0.8)
        names = ("Left", "Right", "Down", "Down_bias") if on("bilinear") else ("c_fc", None, "c_proj", "bias")
        w(at + f"mlp.{names[0]}.weight", hidden, dim)
        if names[1]:
            w(at + f"mlp.{names[1]}.weight", hidden, dim)
        w(at + f"mlp.{names[2]}.weight", dim, hidden)
        w(at + f"mlp.{names[3]}", dim)
    w("lm_head.weight", vocab, dim, std=3)
    config = dict(vocab_size=vocab, n_layer=layers, n_head=n_head, n_embd=dim, squared_mlp=on("squared_mlp"), bilinear=on("bilinear"),
                  expansion_factor=factor, gated=on("gated"), squared_attn=on("squared_attn"), bilinear_attn=on("bilinear_attn"), step=5100)
    ids, W = some_ids(w, vocab), w.f64()
    norm = lambda x: rms(x, FLOAT_EPS)
    x = x0 = norm(W["transformer.wte.weight"][ids])
    v0 = None
    for l in range(layers):
        at = f"transformer.h.{l}."
        x = W[at + "lambdas"][0] * x + W[at + "lambdas"][1] * x0
        y, D, T = norm(x), dim // n_head, len(ids)
        parts = {one: heads(y @ W[at + f"attn.{one}.weight"].T, n_head) for one in ("c_q", "c_k", "c_v", "c_q2", "c_k2")
                 if at + f"attn.{one}.weight" in W}
        v0 = parts["c_v"] if v0 is None else v0
        v = (1 - W[at + "attn.lamb"]) * parts["c_v"] + W[at + "attn.lamb"] * v0
        turned = {one: rotated(norm(part), -1) for one, part in parts.items() if one != "c_v"}
        s = scores(turned["c_q"], turned["c_k"])
        t = scores(turned["c_q2"], turned["c_k2"]) if on("bilinear_attn") else None
        if on("bilinear_attn") and on("squared_attn"):
            p = np.where(visible(T), s / D * t / D, 0)
        elif on("bilinear_attn"):
            p = softmax(s / D) - W[at + "attn.bilinear_lamb"] * softmax(t / D)
        elif on("squared_attn"):
            p = np.where(visible(T), (s / D) ** 2, 0)
        else:
            p = softmax(s / math.sqrt(D))
        x = x + mix(p, v) @ W[at + "attn.c_proj.weight"].T
        y = norm(x)
        if on("bilinear"):
            left = y @ W[at + "mlp.Left.weight"].T
            y = (silu(left) if on("gated") else left) * (y @ W[at + "mlp.Right.weight"].T) @ W[at + "mlp.Down.weight"].T
            y = y + W[at + "mlp.Down_bias"]
        else:
            y = y @ W[at + "mlp.c_fc.weight"].T
            y = (y if on("squared_mlp") else relu(y)) ** 2 @ W[at + "mlp.c_proj.weight"].T + W[at + "mlp.bias"]
        x = x + y
    logits = 30 * np.tanh(norm(x) @ W["lm_head.weight"].T / 30)
    save(name, config, {prefix + key: value for key, value in w.items()}, dict(ids=ids, logits=logits))


# ---- Hugging Face's transformers: Qwen3, Gemma -------------------------------------------------------------------------------

def hugging(name, seed, kind, vocab=13, layers=3, n_head=4, kv=2, dim=10, d=6, hidden=7, tied=True):
    w, gemma = Weights(seed), kind == "gemma"
    mean, before = 0.0 if gemma else 1.0, "post_attention_layernorm"
    w("model.embed_tokens.weight", vocab, dim, std=0.5)
    for l in range(layers):
        at = f"model.layers.{l}."
        w(at + "self_attn.q_proj.weight", n_head * d, dim)
        w(at + "self_attn.k_proj.weight", kv * d, dim)
        w(at + "self_attn.v_proj.weight", kv * d, dim)
        w(at + "self_attn.o_proj.weight", dim, n_head * d)
        for one in ("q_norm", "k_norm") if not gemma else ():
            w(at + f"self_attn.{one}.weight", d, mean=1)
        for one in ("gate_proj", "up_proj"):
            w(at + f"mlp.{one}.weight", hidden, dim)
        w(at + "mlp.down_proj.weight", dim, hidden)
        for one in ("input_layernorm", before):
            w(at + one + ".weight", dim, mean=mean)
    w("model.norm.weight", dim, mean=mean)
    if not tied:
        w("lm_head.weight", vocab, dim)
    config = dict(model_type=kind, vocab_size=vocab, hidden_size=dim, intermediate_size=hidden, num_hidden_layers=layers,
                  num_attention_heads=n_head, num_key_value_heads=kv, head_dim=d, max_position_embeddings=32, rms_norm_eps=1e-6,
                  rope_theta=500.0, attention_bias=False, hidden_act="gelu_pytorch_tanh" if gemma else "silu", tie_word_embeddings=tied)
    if gemma:
        config["hidden_activation"] = "gelu_pytorch_tanh"
    else:
        config.update(use_sliding_window=False, sliding_window=None, max_window_layers=layers)
    ids, W = some_ids(w, vocab), w.f64()
    norm = lambda x, key: rms(x, 1e-6) * (W[key + ".weight"] + (1 if gemma else 0))
    x = W["model.embed_tokens.weight"][ids] * (math.sqrt(dim) if gemma else 1)
    for l in range(layers):
        at = f"model.layers.{l}."
        y = norm(x, at + "input_layernorm")
        q, k, v = (heads(y @ W[at + f"self_attn.{one}_proj.weight"].T, n) for one, n in (("q", n_head), ("k", kv), ("v", kv)))
        if not gemma:
            q, k = norm(q, at + "self_attn.q_norm"), norm(k, at + "self_attn.k_norm")
        q, k = rotated(q, 1, 500.0), rotated(k, 1, 500.0)
        k, v = (np.repeat(one, n_head // kv, 1) for one in (k, v))
        s = scores(q, k) / math.sqrt(d)
        x = x + mix(softmax(s), v) @ W[at + "self_attn.o_proj.weight"].T
        y = norm(x, at + before)
        y = (gelu_tanh if gemma else silu)(y @ W[at + "mlp.gate_proj.weight"].T) * (y @ W[at + "mlp.up_proj.weight"].T)
        x = x + y @ W[at + "mlp.down_proj.weight"].T
    logits = norm(x, "model.norm") @ W["model.embed_tokens.weight" if tied else "lm_head.weight"].T
    save(name, config, w, dict(ids=ids, logits=logits))


stories("stories-bilinear", 1)
stories("stories-gated", 2, gate="silu", bias=True, layers=2, hidden=9)
stories("stories-plain", 3, bilinear=False, gate="gelu", bias=True, normed=False, layers=2)
stories("stories-linear", 4, bilinear=False, layers=1, n_head=1, dim=6)
stories("stories-first", 5, gate=True, first=True, layers=2)
image("image-residual", 6, 3, True, True)
image("image-deep", 7, 2, False, False)
modded("modded-softmax", 8)
modded("modded-squared", 9, squared_attn=True, squared_mlp=True, prefix="_orig_mod.")
modded("modded-bilinear", 10, bilinear=True, squared_attn=True, bilinear_attn=True, factor=3)
modded("modded-differential", 11, bilinear=True, gated=True, bilinear_attn=True, factor=5, layers=2)
hugging("qwen3", 12, "qwen3")
hugging("gemma", 13, "gemma", kv=1)
