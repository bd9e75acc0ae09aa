"""circuits_peer.py BUILD/circuits FOLDER..: the numbers and times of analyses of a transformer beside TransformerLens 4.

    cc -O2 -I. tools/bench/circuits/circuits.c -o build/circuits -lm
    python3 -m venv build/venv && build/venv/bin/pip install transformer-lens==4.3.0
    common="--vocab 512 --layers 2 --width 64 --heads 4 --context 64 --gain --no-qk-norm --no-embed-norm --steps 150"
    build/tn train TEXT --out gpt2 $common --norm layer --positions learned --mlp gelu-tanh --bias --tied
    build/tn train TEXT --out llama $common --mlp swiglu
    build/tn export gpt2 --out gpt2-hf && build/tn export llama --out llama-hf
    build/venv/bin/python tools/bench/circuits/circuits_peer.py build/circuits gpt2-hf llama-hf

Both read the same folder and get the same four texts of random ids. A difference is the largest |ours - theirs| over the
largest |theirs|, at the worst point of an analysis. A time is the least of ROUNDS means of a few runs in F32,
ours and theirs in turn, processor time, one thread. For attribution, QK, OV, composition and all times the peer folds the
gains of the norms into the weights, and nothing else: by default it would also centre weights and move biases, which changes
head outputs and the parts of a logit by constants. Exits with 1 if a difference is above 1e-5."""
import os
import subprocess
import sys
import tempfile
import time
import warnings

os.environ.update(HF_HUB_OFFLINE="1", TQDM_DISABLE="1")
warnings.filterwarnings("ignore")
import numpy as np
import torch
import torch.nn.functional as F
import transformers
from transformer_lens import patching
from transformer_lens.model_bridge import TransformerBridge

TEXTS, TOKENS, ROUNDS, SECONDS, LIMIT = 4, 64, 5, 0.1, 1e-5
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)
torch.set_grad_enabled(False)


class Ours:
    """The C program."""
    def __init__(self, program, folder, out, dtype):
        self.out = out
        self.process = subprocess.Popen([program, folder, out, dtype], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def ask(self, name, runs):
        self.process.stdin.write(f"{name} {runs}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"circuits stopped at {name}")
        return float(answer)

    def result(self, name):
        self.ask(name, 0)
        return self.load(name)

    def load(self, name):
        return torch.from_numpy(np.load(f"{self.out}/{name}.npy")).double()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Theirs:
    """The same analyses by TransformerLens; each returns a dictionary of what the C program writes, in its layouts."""
    def __init__(self, folder, dtype, ids, targets, others, fold=True):
        self.model = TransformerBridge.boot_transformers(folder, device="cpu", dtype=dtype)
        self.model.enable_compatibility_mode(disable_warnings=True, no_processing=not fold, center_writing_weights=False,
                                             center_unembed=False, fold_value_biases=False)
        self.ids, self.targets, self.others = ids, targets, others
        self.layers, self.heads_ = self.model.cfg.n_layers, self.model.cfg.n_heads

    def cached(self, *names):
        chosen = dict(names_filter=lambda name: name.endswith(names)) if names else {}
        return self.model.run_with_cache(self.ids, **chosen)

    def forward(self):
        return self.model(self.ids)

    def cache(self):
        return self.cached()[1]

    def heads(self):
        _, cache = self.cached("hook_z")
        return cache.stack_head_results()

    def lens(self):
        _, cache = self.cached("hook_resid_pre", "hook_resid_post", "ln_final.hook_scale")
        return self.model.unembed(cache.accumulated_resid(apply_ln=True))

    def attribution(self):
        _, cache = self.cached()
        return cache.logit_attrs(cache.get_full_resid_decomposition(expand_neurons=False), self.targets)

    def qk(self):
        return self.model.QK.AB

    def ov(self):
        return self.model.OV.AB

    def compose_q(self):
        return self.model.all_composition_scores("Q").scores

    def compose_k(self):
        return self.model.all_composition_scores("K").scores

    def compose_v(self):
        return self.model.all_composition_scores("V").scores

    def ablation(self):
        losses = torch.empty(self.layers, self.heads_, dtype=torch.float64)
        for layer in range(self.layers):
            for head in range(self.heads_):
                def without(z, hook):
                    z[:, :, head] = 0
                    return z
                logits = self.model.run_with_hooks(self.ids, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", without)])
                losses[layer, head] = F.cross_entropy(logits.flatten(0, 1), self.targets.flatten())
        return losses

    def patching(self):
        _, clean = self.model.run_with_cache(self.others)
        last = self.targets[:, -1:]
        return patching.get_act_patch_resid_pre(self.model, self.ids, clean, lambda y: y[:, -1].gather(-1, last).mean())


def points(theirs):
    """the C program's name of a point, and what the peer has in its layout"""
    cache, model = theirs.cache(), theirs.model
    yield "embed", cache["resid_pre", 0]
    for block in range(theirs.layers):
        at = f"blocks.{block}"
        rotated = f"{at}.attn.hook_rot_q" in cache
        for name, hook in (("attn.q1", "attn.hook_rot_q" if rotated else "attn.hook_q"), ("attn.v", "attn.hook_v"),
                           ("attn.k1", "attn.hook_rot_k" if rotated else "attn.hook_k"), ("attn.z", "attn.hook_z"),
                           ("attn.pattern", "attn.hook_pattern"), ("attn", "hook_attn_out"), ("middle", "hook_resid_mid"),
                           ("mlp.hidden", "mlp.hook_post"), ("mlp", "hook_mlp_out"), (None, "hook_resid_post")):
            value = cache[f"{at}.{hook}"]
            if name in ("attn.q1", "attn.k1") and rotated and value.shape[1] == theirs.heads_:
                value = value.transpose(1, 2)
            yield f"{at}.{name}" if name else at, value
        for norm, hook in (("norm1", "ln1"), ("norm2", "ln2")):
            yield f"{at}.{norm}.scale", 1 / cache[f"{at}.{hook}.hook_scale"]
    yield "norm.scale", 1 / cache["ln_final.hook_scale"]
    yield "logits", model(theirs.ids)


def with_row(weights, biases):
    """[L,H,dim,d] with the biases [L,H,d] as one more row, if there are any"""
    return torch.cat([weights, biases[:, :, None]], 2) if biases is not None else weights


def differences(ours, theirs, plain):
    """The worst difference of each analysis. `plain` is the peer with weights as they are in the file: what does not need
    folded weights is compared with it, because the peer folds in float."""
    model, found = theirs.model, {}

    def compare(name, got, want, what=None):
        want = want.double().reshape(got.shape)
        worst = float((got - want).abs().max() / want.abs().max())
        if not worst <= LIMIT:
            print(f"    {name} {what or ''}: {worst:.1e}")
        found[name] = max(found.get(name, 0.0), worst) if worst == worst else worst

    compare("forward", ours.result("forward"), plain.forward())
    ours.result("cache")
    for name, want in points(plain):
        compare("patterns" if name.endswith("pattern") else "cache", ours.load(name), want, name)
    heads = plain.heads().unflatten(0, (theirs.layers, theirs.heads_))                 # [L,H,B,T,dim]
    compare("heads", ours.result("heads"), heads.permute(0, 2, 3, 1, 4))
    compare("lens", ours.result("lens"), plain.lens())

    # theirs: heads, MLPs, embedding, positions, biases; ours: embedding, of each block heads, biases, MLP, the last norm's
    parts, H, L = theirs.attribution(), theirs.heads_, theirs.layers
    got, want, at = ours.result("attribution"), [], L * H + L
    biased = model.blocks[0].attn.b_O is not None and got.shape[-1] > 1 + L * (H + 1)
    embed = parts[at:-1].sum(0)
    rest = 0
    mine = got.movedim(-1, 0)
    size = H + 1 + biased
    compare("attribution", mine[0], embed, "embed")
    for block in range(L):
        own = mine[1 + block * size:1 + (block + 1) * size]
        compare("attribution", own[:H], parts[block * H:(block + 1) * H], f"heads of {block}")
        compare("attribution", own[-1], parts[L * H + block], f"mlp {block}")
        rest = rest + own[H] if biased else rest
    if biased:
        compare("attribution", rest, parts[-1], "biases")
        compare("attribution", mine[-1], model.b_U[theirs.targets], "norm.bias")
    logit = theirs.forward().gather(-1, theirs.targets[..., None])[..., 0]
    compare("attribution", mine.sum(0), logit, "the sum")

    scale = model.cfg.d_head ** -0.5
    W_Q, W_K, W_V = model.W_Q, model.W_K, model.W_V
    b_Q, b_K, b_V = (model.b_Q, model.b_K, model.b_V) if biased else (None, None, None)
    own = ours.result("qk").unflatten(0, (L, H))
    compare("qk", own[:, :, :model.cfg.d_model, :model.cfg.d_model], theirs.qk() * scale, "QK")
    compare("qk", own, with_row(W_Q, b_Q) @ with_row(W_K, b_K).transpose(-1, -2) * scale, "with biases")
    own = ours.result("ov").unflatten(0, (L, H))
    compare("ov", own[..., :model.cfg.d_model], theirs.ov().transpose(-1, -2), "OV")
    compare("ov", own, (with_row(W_V, b_V) @ model.W_O).transpose(-1, -2), "with biases")
    pairs = [(a, b) for a in range(L) for b in range(a + 1, L)]
    for kind in "qkv":
        want = getattr(theirs, f"compose_{kind}")()
        compare("composition", ours.result(f"compose_{kind}"), torch.stack([want[a, :, b].T for a, b in pairs]), kind)
    compare("ablation", ours.result("ablation"), plain.ablation())
    compare("patching", ours.result("patching"), plain.patching())
    return found


def least(ours, theirs, name):
    """Seconds of one run, the least of ROUNDS, ours and theirs in turn."""
    work, best = getattr(theirs, name), [9e9, 9e9]
    ours.ask(name, 1)
    began = time.process_time()
    work()
    k1, k2 = (max(1, int(SECONDS / s)) for s in (ours.ask(name, 1), time.process_time() - began))
    for _ in range(ROUNDS):
        best[0] = min(best[0], ours.ask(name, k1))
        began = time.process_time()
        for _ in range(k2):
            work()
        best[1] = min(best[1], (time.process_time() - began) / k2)
    return best


def main(program, folders):
    failed = False
    for folder in folders:
        with tempfile.TemporaryDirectory() as out:
            rng, rows, found = np.random.default_rng(1), [], {}
            vocab = transformers.AutoConfig.from_pretrained(folder).vocab_size
            texts = [rng.integers(0, vocab, (TEXTS, TOKENS), dtype=np.int32) for _ in range(3)]
            for name, ids in zip(("ids", "targets", "others"), texts):
                np.save(f"{out}/{name}.npy", ids)
            ids = [torch.from_numpy(t).long() for t in texts]
            for dtype, real in (("f64", torch.float64), ("f32", torch.float32)):
                ours, theirs = Ours(program, folder, out, dtype), Theirs(folder, real, *ids)
                found[dtype] = differences(ours, theirs, Theirs(folder, real, *ids, fold=False))
                if dtype == "f32":
                    for name in ("forward", "cache", "heads", "lens", "attribution", "qk", "ov", "compose_k", "ablation",
                                 "patching"):
                        rows.append((name, *least(ours, theirs, name)))
                ours.close()
        print(f"\n{folder}\n\n| | difference, F64 | F32 |\n|---|---|---|")
        for name in found["f64"]:
            print(f"| {name} | {found['f64'][name]:.1e} | {found['f32'][name]:.1e} |")
            failed = failed or not max(found["f64"][name], found["f32"][name]) <= LIMIT
        print("\n| | ms here | ms there | ratio |\n|---|---|---|---|")
        for name, here, there in rows:
            print(f"| {name} | {1e3 * here:.3g} | {1e3 * there:.3g} | {there / here:.1f} |")
    sys.exit(failed)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
