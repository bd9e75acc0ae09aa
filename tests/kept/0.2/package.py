"""Trains a layer from Python, saves it, and reads its matrix: with NumPy arrays on both sides."""
import os
import tempfile

import numpy as np

import tensornet as tn

ctx = tn.Context(seed=1, threads=1)
params = ctx.params_create()
layer = params.mlp_init("layer", in_=2, hidden=4, out=1, bias=True, out_bias=True)
optim = params.optim_create(lr=0.05)
x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
y = np.array([[0], [1], [1], [0]], np.float32)
for step in range(400):
    ctx.reset()
    ctx.record()
    loss = layer.forward(x).mse(y)
    ctx.backward(loss)
    optim.step()
assert loss.item() < 1e-6, loss.item()
assert np.allclose(layer.forward(x).numpy(), y, atol=1e-2)

cp = ctx.cp_from_mlp(layer)
assert np.allclose(cp.interaction_of(0).numpy(), cp.interaction([1.0]).numpy())
values = cp.eigen([1.0], 0).values.numpy()
assert values.shape == (1, 3) and np.all(np.diff(np.abs(values[0])) <= 0), values

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "layer.safetensors")
    params.save(path)
    others = ctx.params_create()
    copy = others.mlp_init("layer", in_=2, hidden=4, out=1, bias=True, out_bias=True)
    others.load(path)
    assert np.array_equal(copy.w.numpy(), layer.w.numpy())

e = ctx.eigh(np.diag([3.0, -5.0]), order=tn.EighOrder.MAGNITUDE)
assert np.allclose(e.values.numpy(), [-5, 3])
assert np.allclose(ctx.einsum("ij,jk->ik", [x, x.T]).numpy(), x @ x.T)
try:
    ctx.matmul(np.ones((2, 3), np.float32), np.ones((4, 5), np.float32))
    raise SystemExit("FAIL no error")
except tn.TensornetError as error:
    assert "[2,3]" in str(error) and error.status == tn.Status.ERR_SHAPE, error
print("a layer of %d numbers, loss %.0e" % (params.elements(), loss.item()))
