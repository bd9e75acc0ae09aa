"""analyses.py - the five analyses of analyses.c from Python, and the same ones in PyTorch beside them

    python3 examples/studies/analyses.py                 needs `pip install tools/python`; in the folder of tensornet.h
    --torch      times both, checks that they agree          --large      wider models, with random weights

It trains two networks on the bundled digits, from different seeds, and a language model of one bilinear block on a text, and
saves them. What reads the files again and answers five questions lies between the marks [ and ]; `lines:` counts what is not
blank there, without the marks. """
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tensornet as tn

LARGE = "--large" in sys.argv
N, H, OUT = (784, 256, 10) if LARGE else (64, 32, 10)
LANGUAGE = dict(layers=1, heads=4 if LARGE else 2, dim=256 if LARGE else 32, context=32, vocab=2048 if LARGE else 400,
                attention="bilinear", no_norm=True)
SIDE = int(N ** 0.5)


# [
def open_models(ctx, paths):
    params = ctx.params_create()
    lm = params.transformer_init("", **LANGUAGE)
    return params.load(paths[2]) or (*(tn.load(path, ctx).operator for path in paths[:2]), lm)
def classes_see(ctx, a, b, lm, x, y, ids):                                  # 1
    e = a.eigen_all(1)
    return e.values, ctx.image_tiles_of(e.vectors.reshape((OUT, SIDE, SIDE)), rows=2, columns=5)
def pairs_needed(ctx, a, b, lm, x, y, ids):                                 # 2
    e = a.eigen_all(16)
    return [ctx.cp_from_eigen(e, k).apply(x).accuracy(y).item() for k in (1, 2, 4, 8, 16)]
def alike(ctx, a, b, lm, x, y, ids):                                        # 3
    s = x.T @ x / len(x)
    return a.cosines(b), a.data_metric(s).cosines(b.data_metric(s))
def words(ctx, a, b, lm, x, y, ids):                                        # 4
    e, mlp = lm.embed.w, lm.blocks[0].mlp
    pairs = ctx.cp_from_mlp(mlp).fold_in(e.T).fold_out(lm.head.w.gather(0, ids[:1])).interaction_of(0)
    return lm.head.forward(e + mlp.forward(e)).gather(0, ids).topk(1, 4), pairs
def heads_write(ctx, a, b, lm, x, y, ids):                                  # 5
    of = [ctx.svd(lm.blocks[0].attn.head(h, "o") @ lm.blocks[0].attn.head(h, "v"), top=4) for h in range(LANGUAGE["heads"])]
    return [(ov.s, lm.head.forward(ov.u.T).topk(1, 4)) for ov in of]
# ]


# ---- the same in PyTorch, for times

def torch_analyses(paths):
    """The five as functions of (x, y, ids), of models read from the same files"""
    import torch
    import torch.nn.functional as F
    with tn.Context() as ctx:
        def tensors(path):
            file = ctx.safetensors_open(path)
            return {(name := file.at(i).name): torch.from_numpy(file.read(name).numpy()) for i in range(file.count())}
        a, b, lm = [tensors(path) for path in paths]

    def factors(net):
        w, v = net["mlp.w"] @ net["embed.w"]
        return net["unembed.w"], w, v

    def interaction(net):
        p, w, v = factors(net)
        q = torch.einsum("oh,hi,hj->oij", p, w, v)
        return (q + q.mT) / 2

    def classes_see(x, y, ids):
        values, vectors = torch.linalg.eigh(interaction(a))
        best = values.abs().argmax(1)
        rows = torch.arange(OUT)
        return values[rows, best], vectors[rows, :, best].reshape(OUT, SIDE, SIDE)

    def pairs_needed(x, y, ids):
        values, vectors = torch.linalg.eigh(interaction(a))
        order = values.abs().argsort(1, descending=True)
        terms = torch.einsum("oij,bi->obj", vectors, x).square().mul(values[:, None])
        terms = terms.gather(2, order[:, None].expand_as(terms))
        return [(terms[:, :, :k].sum(2).argmax(0) == y).float().mean().item() for k in (1, 2, 4, 8, 16)]

    def cosines(p, q):
        return F.normalize(p.flatten(1)) @ F.normalize(q.flatten(1)).mT

    def alike(x, y, ids):
        p, q = interaction(a), interaction(b)
        values, vectors = torch.linalg.eigh(x.mT @ x / len(x))
        root = vectors * values.clamp(min=0).sqrt() @ vectors.mT
        return cosines(p, q), cosines(root @ p @ root, root @ q @ root)

    def words(x, y, ids):
        e, (w, v) = lm["embed.w"], lm["blocks.0.mlp.w"]
        out = e + ((e @ w.mT) * (e @ v.mT)) @ lm["blocks.0.mlp.p"].mT
        row = lm["head.w"][ids[0]] @ lm["blocks.0.mlp.p"]
        q = (w @ e.mT).mT * row @ (v @ e.mT)
        return (out @ lm["head.w"].mT)[ids].topk(4), (q + q.mT) / 2

    def heads_write(x, y, ids):
        o = lm["blocks.0.attn.o"].unflatten(1, (LANGUAGE["heads"], -1)).movedim(1, 0)
        v = lm["blocks.0.attn.v"].unflatten(0, (LANGUAGE["heads"], -1))
        u, s, _ = torch.linalg.svd(o @ v)
        return [(s[h, :4], F.linear(u[h, :, :4].mT, lm["head.w"]).topk(4)) for h in range(len(s))]
    return classes_see, pairs_needed, alike, words, heads_write


# ---- the models

def digits():
    folder = Path("examples/data")
    with tn.Context() as ctx:
        images = ctx.idx_load(folder / "digits-images-idx3-ubyte", 1 / 16).numpy().reshape(-1, 64)
        return images, ctx.idx_load(folder / "digits-labels-idx1-ubyte", 0).numpy()


def train_net(seed, images, labels, path, epochs=30, batch=50):
    with tn.Context(seed=seed) as ctx:
        params = ctx.params_create()
        embed, mlp = params.linear_init("embed", in_=N, out=H), params.mlp_init("mlp", in_=H, hidden=H, no_projection=True)
        unembed = params.linear_init("unembed", in_=H, out=OUT)
        optim = params.optim_create(lr=3e-3, weight_decay=0.1)
        for _ in range(0 if LARGE else epochs):
            for first in range(0, len(images), batch):
                ctx.reset()
                ctx.record()
                x = ctx.noise(images[first:first + batch], 0.2)
                loss = unembed.forward(mlp.forward(embed.forward(x))).cross_entropy(labels[first:first + batch])
                ctx.backward(loss)
                optim.step()
        params.save(path)


def train_language(path, text, steps=400, texts=16):
    """Returns the names of the tokens, and the ids of five of them"""
    with tn.Context(seed=1) as ctx:
        names, rows = [str(i) for i in range(LANGUAGE["vocab"])], np.arange(5)
        params = ctx.params_create()
        model = params.transformer_init("", **LANGUAGE)
        if not LARGE:
            tokenizer = ctx.tokenizer_train(text, LANGUAGE["vocab"])
            ids, length = tokenizer.encode(text), LANGUAGE["context"]
            names = [tokenizer.token(i) for i in range(tokenizer.count())]
            rows = np.array([names.index(word) for word in ("the", "a", "of", "is", "layer")])
            optim, random = params.optim_create(lr=1e-2), np.random.default_rng(1)
            for _ in range(steps):
                at = random.integers(len(ids) - length, size=texts)[:, None] + np.arange(length)
                ctx.reset()
                ctx.record()
                loss = model.loss(ids[at], ids[at + 1])
                ctx.backward(loss)
                optim.step()
            print(f"loss of the language model: {loss.item():.3f} nats per token")
        params.save(path)
        return names, rows


def numbers(result):
    """All numbers of a result, in order: those of ours and those of PyTorch's"""
    if isinstance(result, (list, tuple)):
        return [number for part in result for number in numbers(part)]
    return [] if isinstance(result, tn.Image) else [*np.ravel(result.numpy() if hasattr(result, "numpy") else result)]


def best(run, times):
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - start)
    return 1e3 * min(seconds), result


def main():
    text = Path("docs/guide.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, tn.Context(seed=1) as ctx:
        paths = [f"{folder}/{name}.safetensors" for name in ("first", "second", "language")]
        if LARGE:
            x, y = np.random.default_rng(1).normal(size=(1000, N)), np.arange(1000) % 10
        else:
            images, labels = digits()
            x, y = images[1500:], labels[1500:]
        for seed in (1, 2):
            train_net(seed, *(x, y) if LARGE else (images[:1500], labels[:1500]), paths[seed - 1])
        names, rows = train_language(paths[2], text)
        models = open_models(ctx, paths)
        given = ctx.tensor(x, keep=True), ctx.tensor(y, keep=True), ctx.tensor(rows, keep=True)
        analyses = classes_see, pairs_needed, alike, words, heads_write
        if "--torch" in sys.argv:
            import torch
            peers, times = torch_analyses(paths), 3 if LARGE else 10
            theirs = torch.from_numpy(np.float32(x)), torch.from_numpy(y).long(), torch.from_numpy(rows).long()
            for i, (analysis, peer) in enumerate(zip(analyses, peers)):
                ours, a = best(lambda: analysis(ctx, *models, *given), times)
                other, b = best(lambda: peer(*theirs), times)
                if analysis is classes_see:                         # ours draws the vectors
                    a, b = a[0], b[0]
                if analysis is heads_write:                         # the signs of singular vectors are anyone's choice
                    a, b = [sizes for sizes, _ in a], [sizes for sizes, _ in b]
                a, b = np.array(numbers(a)), np.array(numbers(b))
                apart = np.abs(a - b).max() / np.abs(b).max()
                print(f"{i + 1} {analysis.__name__:14} ours {ours:8.2f} ms   torch {other:8.2f} ms   apart {apart:.0e}")
        else:
            values, picture = classes_see(ctx, *models, *given)
            print("1 largest eigenvalues", values.T.table())
            picture.save_svg(Path(folder, "eigenvectors.svg"))
            print("2 right with k pairs", *(f"{share:.3f}" for share in pairs_needed(ctx, *models, *given)))
            print("3 cosines of the classes", *(t.table(digits=2) for t in alike(ctx, *models, *given)), sep="\n")
            (_, next_words), pairs = words(ctx, *models, *given)
            for word, following in zip(rows, next_words.numpy()):
                print("4", names[word], "->", *(names[i] for i in following))
            print(pairs.table(row_names=names, column_names=names, top=5, order="magnitude", symmetric=True))
            for h, (sizes, (_, written)) in enumerate(heads_write(ctx, *models, *given)):
                print("5 head", h, sizes, *(" ".join(names[i] for i in row) + ";" for row in written.numpy()))
    marked = Path(__file__).read_text(encoding="utf-8").split("# [\n")[1].split("# ]\n")[0]
    print("lines:", sum(bool(line.strip()) for line in marked.splitlines()))


if __name__ == "__main__":
    main()
