#!/usr/bin/env python3
"""The files in tests/data/bilinear: a small bilinear network for Fashion-MNIST, and what NumPy computes from it in float64.

    python3 tools/golden_bilinear.py            writes reference.json from model.safetensors and data/fashion, which
                                                sh examples/get_data.sh fashion fetches
    python3 tools/golden_bilinear.py --train    trains model.safetensors first, and writes first3_test_images.npy

The network has no bias: x = E v, x += (L x) * (R x), logits = H x; v is an image's bytes / 255. The reference has the
logits of the first three test images; for each class the eight largest eigenvalues, by magnitude, of the symmetric matrix
of its quadratic form in the space of x; and the number of correct answers among the 10,000 test images, for the network and
when each of these matrices is cut to its k largest eigenpairs. NumPy 2.4.6 made them.
"""
import json
import os
import struct
import sys
import numpy as np

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
HERE = os.path.join(ROOT, "tests", "data", "bilinear")
MODEL = os.path.join(HERE, "model.safetensors")
D, CLASSES, PIXELS = 24, 10, 784
NAMES = [("embed.weight", (D, PIXELS)), ("blocks.0.weight", (2 * D, D)), ("head.weight", (CLASSES, D))]


def idx(name, header):
    with open(os.path.join(ROOT, "data", "fashion", name), "rb") as f:
        return np.frombuffer(f.read()[header:], np.uint8)


def images(part):
    return idx(part + "-images-idx3-ubyte", 16).reshape(-1, PIXELS)


def forward(w, v):
    e, (l, r), h = w[0], np.split(w[1], 2), w[2]
    x = v @ e.T
    left, right = x @ l.T, x @ r.T
    y = x + left * right
    return x, left, right, y, y @ h.T


def gradients(w, v, labels):
    (l, r), h = np.split(w[1], 2), w[2]
    x, left, right, y, logits = forward(w, v)
    g = np.exp(logits - logits.max(1, keepdims=True))
    g /= g.sum(1, keepdims=True)
    g[np.arange(len(g)), labels] -= 1
    g /= len(g)
    dy = g @ h
    dl, dr = dy * right, dy * left
    dx = dy + dl @ l + dr @ r
    return [dx.T @ v, np.concatenate([dl.T @ x, dr.T @ x]), g.T @ y]


def train():
    """Adam, batches of 100, noise on the images: 12 epochs, the rate falling linearly to 0."""
    random = np.random.default_rng(1)
    v, labels = images("train") / 255.0, idx("train-labels-idx1-ubyte", 8)
    w = [random.standard_normal(shape) / np.sqrt(shape[1]) for _, shape in NAMES]
    m, s = [0 * p for p in w], [0 * p for p in w]
    steps, t = 12 * len(v) // 100, 0
    while t < steps:
        for some in np.split(random.permutation(len(v)), len(v) // 100):
            t += 1
            noisy = v[some] + 0.3 * random.standard_normal((len(some), PIXELS))
            for k, g in enumerate(gradients(w, noisy, labels[some])):
                m[k] += 0.1 * (g - m[k])
                s[k] += 0.001 * (g * g - s[k])
                rate = 0.002 * (1 - (t - 1) / steps)
                w[k] -= rate * (m[k] / (1 - 0.9**t)) / (np.sqrt(s[k] / (1 - 0.999**t)) + 1e-8)
    header, data = {"__metadata__": {"model": "bilinear Fashion-MNIST, 784-24-10, made by tools/golden_bilinear.py"}}, b""
    for (name, shape), p in zip(NAMES, w):
        first, data = len(data), data + p.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [first, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(MODEL, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    np.save(os.path.join(HERE, "first3_test_images.npy"), images("t10k")[:3].reshape(3, 28, 28))


def load():
    with open(MODEL, "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(n)), f.read()
    return [np.frombuffer(data[slice(*header[name]["data_offsets"])], "<f4").reshape(shape).astype(np.float64)
            for name, shape in NAMES]


if sys.argv[1:] == ["--train"]:
    train()
w = load()
(l, r), h = np.split(w[1], 2), w[2]
v, labels = images("t10k") / 255.0, idx("t10k-labels-idx1-ubyte", 8)
x, _, _, _, logits = forward(w, v)
pairs = []
for c in range(CLASSES):
    q = np.einsum("o,oi,oj->ij", h[c], l, r)
    values, vectors = np.linalg.eigh((q + q.T) / 2)
    order = np.argsort(-abs(values))
    pairs.append((values[order], vectors[:, order]))
reference = {
    "logits_first3_images": logits[:3].tolist(),
    "eigen": {str(c): {"top8_by_abs": values[:8].tolist()} for c, (values, _) in enumerate(pairs)},
    "test_correct": int((logits.argmax(1) == labels).sum()),
    "test_correct_k": {},
}
linear = x @ h.T
for k in (1, 2, 3, 4, 5, 8, 10, 16, 20):
    cut = linear + np.stack([(x @ vectors[:, :k]) ** 2 @ values[:k] for values, vectors in pairs], 1)
    reference["test_correct_k"][str(k)] = int((cut.argmax(1) == labels).sum())
whole = linear + np.stack([(x @ vectors) ** 2 @ values for values, vectors in pairs], 1)
assert abs(whole - logits).max() < 1e-9
with open(os.path.join(HERE, "reference.json"), "w") as f:
    json.dump(reference, f, indent=1)
    f.write("\n")
print(reference["test_correct"], reference["test_correct_k"])
