"""The Python package: python3 test_tensornet.py PROGRAM (compiled program.c) LAYOUT (what the C compiler says of structs)."""
import ast
import contextlib
import copy
import ctypes
import gc
import glob
import inspect
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings
import weakref
from unittest import mock

import numpy as np
import tensornet as tn
from tensornet import abi, functions

PROGRAM, LAYOUT = sys.argv[1:3]
TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
with mock.patch.dict(os.environ, TN="", PATH="/nowhere"):
    try:
        COMMAND = tn.look.__globals__["command"]()
    except tn.TensornetError:
        COMMAND = None
BITS = np.array([[0, 0], [1, 0], [0, 1], [1, 1]], np.float32)


def resident():
    """Bytes of memory that this process has"""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Declarations(unittest.TestCase):
    def test_layout(self):
        """Sizes and offsets of every struct, and the number of every name, as the C compiler has them"""
        with open(LAYOUT) as file:
            said = dict(line.rsplit(" ", 1) for line in file.read().splitlines())
        checked = 0
        for name, kind in abi.structs.items():
            self.assertEqual(ctypes.sizeof(kind), int(said.pop(name)), name)
            for field, _ in kind._fields_:
                self.assertEqual(getattr(kind, field).offset, int(said.pop(f"{name}.{field}")), f"{name}.{field}")
                checked += 1
        for items in abi.header["enums"].values():
            for name, value in items.items():
                self.assertEqual(value, int(said.pop(name)), name)
        self.assertEqual(said, {})
        self.assertGreater(checked, 500)

    def test_every_function(self):
        """Every public function is bound, and reached by some object or by the module"""
        names = {function.__doc__.split("(")[0] for kind in tn.classes.values() for function in vars(kind).values()
                 if callable(function) and (function.__doc__ or "").startswith("tn_")}
        names |= {function.__doc__.split("(")[0] for function in vars(tn).values()
                  if callable(function) and (getattr(function, "__doc__", "") or "").startswith("tn_")}
        by_hand = functions.BY_HAND | {"tn_tokenizer_encode", "tn_tokenizer_decode",
                                       "tn_transformer_points", "tn_transformer_parts"}
        left = {name for name in abi.header["functions"] if not name.endswith(("_destroy", "_close"))} - names - by_hand
        self.assertEqual(left, set())

    def test_names(self):
        self.assertEqual((tn.F64, tn.MLP_RELU2, tn.Status.OK, tn.MAX_RANK), (2, 2, 0, 8))
        self.assertIn("settings", tn.Params.mlp_init.__doc__.lower())
        self.assertIn("in_", tn.Params.mlp_init.__doc__)


    def test_signatures(self):
        """Types and defaults of every function, and the stub, which has each public name with the same parameters"""
        said = str(inspect.signature(tn.Params.mlp_init))
        self.assertTrue(said.startswith("(self, name: str, desc: MlpDesc | dict | None = None, *, in_: int = 0,"), said)
        self.assertTrue(said.endswith(") -> Mlp"), said)
        self.assertIn("kind: MlpKind | str = 'bilinear'", said)
        self.assertIn("    out: int = 0                                 0: in\n", tn.Params.mlp_init.__doc__)
        self.assertEqual(str(inspect.signature(tn.Tensor.topk)), "(self, axis: int, k: int, order: Order | str = 'largest')"
                         " -> tuple[Tensor, Tensor]")
        self.assertIn("seed: int = 0", str(inspect.signature(tn.Context)))
        stub = ast.parse(subprocess.run([sys.executable, "-m", "tensornet.stubs"], capture_output=True, text=True,
                                        check=True).stdout)
        classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
        names = {*classes, *(node.name for node in stub.body if isinstance(node, ast.FunctionDef)),
                 *(node.target.id for node in stub.body if isinstance(node, ast.AnnAssign))}
        here = {name for name, value in vars(tn).items() if name[0] != "_" and not inspect.ismodule(value)}
        self.assertEqual(here - names, {"class_name", "enums", "header", "classes", "encode", "decode", "png", "points", "svg",
                                        "top_many", "look_at_params", "look_at_transformer"})
        checked = 0
        for kind in tn.classes.values():
            methods = {node.name: node for node in classes[kind.__name__].body if isinstance(node, ast.FunctionDef)}
            for name, method in vars(kind).items():
                if hasattr(method, "c_name") and name[0] != "_" and name not in kind.kinds:
                    listed = methods[name].args
                    self.assertEqual([a.arg for a in listed.args + listed.kwonlyargs], list(inspect.signature(method).parameters))
                    self.assertIsNotNone(methods[name].returns)
                    checked += 1
        self.assertGreater(checked, 400)

    def test_prompt(self):
        """What objects look like: kind, shape and norm"""
        with tn.Context(seed=1) as ctx:
            params = ctx.params_create()
            layer = params.mlp_init("xor", in_=2, hidden=3, out=1)
            layer.w.write(np.ones((2, 3, 2)))
            self.assertEqual(repr(ctx), "<Context: cpu, F32>")
            self.assertEqual(repr(ctx.tensor([3.0, 4])), "<Tensor F32 [2], norm 5>\n[3 4]")
            self.assertEqual(str(ctx.tensor([3.0, 4], keep=True)), "[3 4]")
            self.assertIn("<Tensor F32 [2, 3, 2], parameter, norm 3.464>", repr(layer.w))
            self.assertIn("<Params: 2 parameters, 15 numbers>\n  xor.w  [2, 3, 2], norm 3.464", repr(params))
            self.assertIn("<Mlp: in=2, hidden=3, out=1, order=2, w [2, 3, 2], norm 3.464, p [1, 3]", repr(layer))
            self.assertRegex(repr(ctx.cp_from_mlp(layer)), "<Cp: 1 outputs, inputs 2 x 2, 3 terms, norm [0-9.]+>")
            self.assertRegex(repr(ctx.image_matrix_of(np.eye(3))), "<Image: [0-9]+ x [0-9]+>")
            for make in (ctx.memory, params.optim_create, ctx.tokenizer_create_bytes, lambda: ctx.svd(np.eye(2)),
                         lambda: ctx.tt_svd(np.ones(6), [2, 3]), lambda: params.at(0)):
                self.assertNotRegex(repr(made := make()), "[0-9]{10}|tn_")          # no address
                self.assertIn(f"<{type(made).__name__}", repr(made))
            gone = ctx.tensor([1.0])
            ctx.reset()
            self.assertEqual((repr(gone), str(gone)), ("<Tensor, freed>",) * 2)


class Base(unittest.TestCase):
    desc = {}

    def setUp(self):
        self.ctx = tn.Context(seed=7, threads=1, **self.desc)

    def tearDown(self):
        self.ctx.close()

    @contextlib.contextmanager
    def fails(self, text, status=None, error=tn.TensornetError):
        with self.assertRaisesRegex(error, text) as caught:
            yield
        if status is not None:
            self.assertEqual(caught.exception.status, status)


class Arrays(Base):
    def test_all_dtypes(self):
        for dtype in ("f4", "f8", "f2", "i4", "i8", "i2", "u1", "u8", "?"):
            array = np.arange(6).reshape(2, 3).astype(dtype)
            t = self.ctx.tensor(array)
            self.assertEqual(t.dtype, tn.F32 if dtype[0] == "f" else tn.I32)
            np.testing.assert_array_equal(t.numpy(), array)
            self.assertEqual(t.shape, (2, 3))
        for dtype, kind in (("f32", np.float32), ("f64", np.float64), ("bf16", np.float32), ("i32", np.int32)):
            t = self.ctx.tensor([[1.0, 2], [3, -4]], dtype) if dtype != "i32" else self.ctx.tensor([[1, 2], [3, -4]])
            self.assertEqual(t.numpy().dtype, kind)
            np.testing.assert_array_equal(t.numpy(), [[1, 2], [3, -4]])
        with tn.Context(dtype="f64") as ctx:
            self.assertEqual(ctx.tensor(np.array([0.1], np.float64)).item(), 0.1)
            self.assertEqual(ctx.dtype(), tn.F64)
        self.assertEqual(self.ctx.tensor(np.array([1 + 2**-30])).numpy()[0], 1)
        np.testing.assert_array_equal(self.ctx.tensor([[1, 2]], "real").numpy(), np.array([[1, 2]], np.float32))

    def test_swapped_bytes(self):
        for dtype in (">f8", ">i4", "<f4"):
            np.testing.assert_array_equal(self.ctx.tensor(np.array([1, 256, -3], dtype)).numpy(), [1, 256, -3])

    def test_refused(self):
        for wrong in (np.array([1j]), np.array(["a"]), np.array([None])):
            with self.fails("is no tensor", tn.ERR_DTYPE):
                self.ctx.tensor(wrong)
        with self.fails("does not fit into I32", tn.ERR_DATA):
            self.ctx.tensor([2**31])
        with self.fails("9 axes", tn.ERR_SHAPE):
            self.ctx.tensor(np.zeros((1,) * 9))
        with self.fails("matmul: a is \\[2,3\\] but b is \\[2,3\\]", tn.ERR_SHAPE):
            a = self.ctx.tensor(np.ones((2, 3)))
            a @ a
        with self.fails("dtype|I32|F32", tn.ERR_DTYPE):
            self.ctx.matmul(np.ones((2, 2), int), np.ones((2, 2)))
        t = self.ctx.tensor(np.ones((2, 3)))
        with self.fails("array is \\[3, 2\\] but the tensor is \\[2, 3\\]", tn.ERR_SHAPE):
            t.write(np.ones((3, 2)))
        for array in (np.ones((3, 2)).T, np.ones((2, 3), np.int64)):
            with self.fails("expected a contiguous array", tn.ERR_DTYPE):
                t.write(array)
        fixed = np.ones((2, 3))
        fixed.flags.writeable = False
        t.write(fixed)
        with self.fails("expected a contiguous array", tn.ERR_DTYPE):
            t.read(fixed)

    def test_no_elements(self):
        for shape in ((0,), (0, 3), (3, 0), (2, 0, 4)):
            t = self.ctx.tensor(np.zeros(shape))
            self.assertEqual(t.shape, shape)
            self.assertEqual(t.numpy().shape, shape)
            self.assertEqual(t.numpy(copy=False).shape, shape)
        np.testing.assert_array_equal((self.ctx.tensor(np.zeros((2, 0))) @ np.zeros((0, 3))).numpy(), np.zeros((2, 3)))

    def test_not_contiguous(self):
        array = np.arange(24.0).reshape(2, 3, 4)
        for view in (array.T, array[::-1], array[:, ::2], array[:, :, 1], np.broadcast_to(array[0], (5, 3, 4)),
                     np.asfortranarray(array)):
            t = self.ctx.tensor(view)
            np.testing.assert_array_equal(t.numpy(), view)
        t = self.ctx.tensor(array)
        np.testing.assert_array_equal(t.transpose(0, 2).numpy(), array.T)
        np.testing.assert_array_equal(t.transpose(0, 2).numpy(copy=False), array.T)
        np.testing.assert_array_equal(t[1, :, ::-2].numpy(), array[1, :, ::-2])
        np.testing.assert_array_equal(t[-1].numpy(), array[-1])
        np.testing.assert_array_equal(t[:, 1].numpy(), array[:, 1])
        np.testing.assert_array_equal(t[5:, 1:1].numpy(), array[5:, 1:1])
        with self.assertRaises(IndexError):
            t[2]

    def test_operators(self):
        a, b = np.random.default_rng(1).normal(size=(2, 3, 3)).astype(np.float32)
        t = self.ctx.tensor(a)
        for got, expected in ((t + b, a + b), (t - b, a - b), (b - t, b - a), (t * 2, a * 2), (t / b, a / b), (1 / t, 1 / a),
                              (-t, -a), (t.T, a.T), (t.exp(), np.exp(a)), (t.sum_axis(0), a.sum(0))):
            np.testing.assert_allclose(got.numpy(), expected, rtol=2e-6, atol=1e-6)
        np.testing.assert_allclose((b @ t).numpy(), b @ a, rtol=1e-5, atol=1e-5)
        self.assertEqual(float(self.ctx.tensor(3.5)), 3.5)
        self.assertEqual(len(t), 3)
        np.testing.assert_array_equal(np.asarray(t), a)

    def test_no_copies(self):
        t = self.ctx.tensor(np.zeros((2, 3)), keep=True)
        view = t.numpy(copy=False)
        view[1] = 5                                         # NumPy writes the tensor's own bytes
        np.testing.assert_array_equal(t.numpy(), view)
        self.assertEqual(view.__array_interface__["data"][0], t._fields().data)
        self.assertTrue(view.flags.writeable)
        one = t[1].numpy(copy=False)
        self.assertEqual(one.__array_interface__["data"][0], t._fields().data + 12)
        half = self.ctx.tensor([1.0, -2], "bf16").numpy(copy=False)
        np.testing.assert_array_equal(half, [0x3f80, 0xc000])

    def test_looked_at(self):
        """While NumPy looks at memory, it is not freed"""
        kept, arena = self.ctx.tensor([1.0], keep=True), self.ctx.tensor([2.0])
        view, other = kept.numpy(copy=False), arena.numpy(copy=False)
        part = other[:]
        del other
        for free in (kept.close, self.ctx.reset, self.ctx.close):
            with self.fails("1 arrays? look|2 arrays look", error=BufferError):
                free()
        del arena, kept
        gc.collect()
        self.ctx.memory()
        self.assertEqual((view[0], part[0]), (1, 2))
        del part
        self.ctx.reset()
        self.assertEqual(view[0], 1)
        del view
        self.ctx.close()

    def test_array_outlives_names(self):
        ctx = tn.Context()
        view = ctx.tensor([1.0, 2], keep=True).numpy(copy=False)
        del ctx
        gc.collect()
        np.testing.assert_array_equal(view, [1, 2])


    def test_table_of_the_documents(self):
        """Each row of docs/python.md, beside NumPy"""
        with open(os.path.join(TREE, "docs", "python.md"), encoding="utf-8") as page:
            rows = [line.strip("|\n").split(" | ") for line in page if line.startswith("| `")]
        x = np.random.default_rng(3).normal(size=(3, 4)).round(3).astype(np.float32)
        x[1, 2] = 1.5
        arrays = dict(t=x, v=x[1], s=x[0, 1], i=np.array([3, 1, 2, 2], np.int32))
        mine = {name: self.ctx.tensor(array) for name, array in arrays.items()}
        shared, tried = dict(np=np, x=x, mask=x > 0, pickle=pickle, copy=copy), 0

        def run(text, names):
            if text.startswith("if "):
                return exec(text, {**shared, **names})
            return eval(text, {**shared, **names})
        for expressions, kind, note in rows:
            for text in re.findall("`(.+?)`", expressions):
                with self.subTest(text):
                    tried += 1
                    if kind.strip() == "error":
                        with self.assertRaises((TypeError, IndexError, ValueError, AttributeError, tn.TensornetError)):
                            run(text, mine)
                        continue
                    got, expected = run(text, mine), run(text, arrays)
                    if isinstance(got, (tn.Tensor, np.ndarray)):
                        got, expected = np.asarray(got), np.asarray(expected)
                        self.assertEqual((got.shape, got.dtype.kind), (expected.shape, expected.dtype.kind))
                        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
                    else:
                        self.assertEqual((got, type(got)), (expected, type(expected)))
            if kind.strip() == "error":                         # what to write instead can be written
                for text in re.findall("`(.+?)`", note):
                    run(text, mine)
        self.assertGreater(tried, 100)

    def test_like_numpy_at_the_edges(self):
        x = np.array([[0.1, np.nan, -np.inf], [0.1, 2, -3]], np.float32)
        t = self.ctx.tensor(x)
        for function in (lambda a: a == 0.1, lambda a: a <= np.float64(0.1), lambda a: a.max(axis=1), lambda a: a.min(axis=0),
                         lambda a: a[1:].min(), lambda a: a.max(), lambda a: a[1:] ** 65, lambda a: a[:1, :0].sum(axis=1),
                         lambda a: a[:0].sum(), lambda a: a[1:] ** -2, lambda a: a.transpose((-1, 0)), lambda a: a[:, [-1, 0]],
                         lambda a: a[[[0, 1], [1, 0]]], lambda a: a[None][0, :, [0, 2]], lambda a: a[[0, 1], :, None]):
            got, expected = np.asarray(function(t)), np.asarray(function(x))
            self.assertEqual(got.shape, expected.shape)
            np.testing.assert_allclose(got, expected, rtol=1e-5)
        for wrong in (lambda: t[:0].max(), lambda: t.sum(axis=2), lambda: t.sum(axis=(0, 0)), lambda: t.transpose((0, 0)),
                      lambda: t.sum(axis=1.0), lambda: t @ 2, lambda: t + None, lambda: t + "a", lambda: t == [None]):
            with self.assertRaises((ValueError, TypeError)):
                wrong()

    def test_item_assignment(self):
        x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
        t, v = self.ctx.tensor(x), self.ctx.tensor([1.0, 2, 3])

        def change(of, v):
            of[1] = 0
            of[..., 0] = v
            of[of > 8] = 7
            of[[0, 2]] = np.ones((2, 4)) / 2
            of[:, 1] += 1
            of[None, 0, ::2] = 4
            of[-1, -1] = -5
        change(t, v)
        change(x, v.numpy())
        np.testing.assert_array_equal(t.numpy(), x)
        ids = self.ctx.tensor([1, 2, 3])
        ids[1:] = [5, 6]
        np.testing.assert_array_equal(ids.numpy(), [1, 5, 6])
        for key, value, error in ((3, 0, IndexError), (0, [1, 2], ValueError), (0, "a", TypeError), (0, 1j, TypeError)):
            with self.assertRaises(error):
                t[key] = value
        with self.fails("integer"):
            ids[0] = 1.5
        with self.assertRaises(OverflowError):
            ids[0] = 2**40
        half = self.ctx.tensor([1.0, 2], "bf16")
        half[1] = 3
        np.testing.assert_array_equal(half.numpy(), [1, 3])
        w = self.ctx.params_create().add("w", [2], dict(rule="normal", std=1)).value
        self.ctx.record()
        loss = (w * w).sum()
        with self.fails("needed by the backward pass"):
            w[0] = 1
        self.ctx.backward(loss)

    def test_gradients(self):
        """Through indices, powers and reductions"""
        x = np.random.default_rng(4).normal(size=(3, 4))
        with tn.Context(dtype="f64", threads=1) as ctx:
            w = ctx.params_create().add("w", [3, 4], dict(rule="normal", std=1)).value
            for function in (lambda t: t[1:, ::2].sum(), lambda t: (t[t > 0] ** 2).sum(), lambda t: t[[2, 0, 2]].mean(),
                             lambda t: (t ** 3).sum(axis=0).max(), lambda t: t.var(axis=1).sum(), lambda t: abs(t).min(),
                             lambda t: (t * t).std(), lambda t: (2 ** t).mean(axis=(0, 1)), lambda t: (t[:, 1] @ t[:, 2]),
                             lambda t: ((t * t) ** -1).sum(), lambda t: (t[[0, 1], [2, 3]] / 3).sum(),
                             lambda t: t[None, ..., 1].sum(), lambda t: ((t * t) ** 1.25).sum()):
                w.write(x)
                w.ctx.reset()
                ctx.record()
                loss = function(w)
                ctx.backward(loss)
                expected = np.zeros_like(x)
                for at in np.ndindex(x.shape):
                    for step in (1e-6, -1e-6):
                        moved = x.copy()
                        moved[at] += step
                        expected[at] += float(function(ctx.tensor(moved))) / (2 * step)
                np.testing.assert_allclose(w.grad.numpy(), expected, rtol=1e-5, atol=1e-7)
                w.grad.write(np.zeros_like(x))

    def test_dlpack(self):
        t = self.ctx.tensor(np.arange(6.0).reshape(2, 3), keep=True)
        view = np.from_dlpack(t)                            # the same bytes, which NumPy before 2.1 does not write
        t[1, 2] = 9
        self.assertEqual(view[1, 2], 9)
        np.testing.assert_array_equal(np.from_dlpack(t.T), view.T)
        with self.fails("1 arrays look", error=BufferError):
            t.close()
        del view
        gc.collect()
        half = self.ctx.tensor([[1.0, -2.5]], "bf16")
        self.assertEqual(dlpack_code(half), 4)              # bfloat

        class Other:                                        # what PyTorch has, without NumPy's __array__
            requires_grad = False

            def __init__(self, of, versioned=True, device=1):
                self.of, self.versioned, self.device = of, versioned, device

            def __dlpack_device__(self):
                return self.device, 0

            def __dlpack__(self, **options):
                if not self.versioned and options:
                    raise TypeError("__dlpack__() got an unexpected keyword argument")
                return self.of.__dlpack__(**options)

            def detach(self):
                return Other(self.of)
        for versioned in (True, False):
            for of in (t, half, np.arange(4), self.ctx.tensor([1, 2])):
                np.testing.assert_array_equal(self.ctx.tensor(Other(of, versioned)).numpy(), np.asarray(of))
        asks = Other(t)
        asks.requires_grad = True
        asks.__dict__["__dlpack__"] = None                  # only what detach() returns can be read
        np.testing.assert_array_equal((t + asks).numpy(), 2 * t.numpy())
        self.assertTrue((t == asks).all())
        with self.fails("not on the host .*type 2.*cpu", error=TypeError):
            self.ctx.tensor(Other(t, device=2))


def dlpack_code(t):
    """The code of the dtype in a capsule of DLPack"""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.c_uint8.from_address(get(t.__dlpack__(), b"dltensor") + 20).value


class Lifetimes(Base):
    def test_after_reset(self):
        t = self.ctx.tensor([1.0, 2])
        view, kept = t[:1], t.keep()
        self.ctx.reset()
        for use in (t.numpy, view.item, lambda: t + t, lambda: t.shape, lambda: self.ctx.sum(t)):
            with self.fails("was freed, or the arena"):
                use()
        self.assertIn("freed", repr(t))
        np.testing.assert_array_equal(kept.numpy(), [1, 2])

    def test_scratch(self):
        before = self.ctx.tensor([1.0])
        live = self.ctx.memory().live
        for _ in range(100):
            with self.ctx.scratch():
                inside = self.ctx.full((100, 100), 1)
        self.assertEqual(self.ctx.memory().live, live)
        self.assertEqual(before.item(), 1)
        with self.fails("was freed"):
            inside.numpy()
        mark = self.ctx.arena_mark()
        later = self.ctx.tensor([2.0])
        self.ctx.arena_release(mark)
        with self.fails("was freed"):
            later.item()

    def test_closed(self):
        params = self.ctx.params_create()
        layer = params.mlp_init("l", in_=2, hidden=2)
        optim = params.optim_create()
        cp = self.ctx.cp_from_mlp(layer)
        e = cp.eigen_all(2)
        values = e.values
        with e:
            pass
        for use in (lambda: e.values, values.numpy):
            with self.fails("was freed"):
                use()
        params.close()
        params.close()
        for use in (lambda: layer.w, optim.step, lambda: layer.forward([[1.0, 2]])):
            with self.fails("tn_params: it was freed"):
                use()
        self.assertEqual(cp.apply(np.ones((1, 2))).shape, (1, 2))   # an operator has copies of its own
        self.ctx.close()
        for use in (lambda: cp.out, lambda: cp.norm(), self.ctx.memory, lambda: self.ctx.tensor([1.0])):
            with self.fails("the context is closed"):
                use()
        self.assertIn("closed", repr(self.ctx))

    def test_views(self):
        """A view of an owned tensor keeps it, and ends with it"""
        row = self.ctx.tensor(np.arange(6.0).reshape(2, 3), keep=True)[1]
        for _ in range(10):
            self.ctx.tensor(np.zeros((2, 3)), keep=True)
        np.testing.assert_array_equal(row.T.numpy() if row.rank == 2 else row.numpy(), [3, 4, 5])
        kept = self.ctx.tensor(np.zeros((2, 3)), keep=True)
        view, again, copy = kept[1], kept.transpose(0, 1).slice(0, 1, 2), kept.copy()
        kept.close()
        for ended in (view, again):
            with self.fails("was freed"):
                ended.numpy()
        self.assertEqual(copy.shape, (2, 3))
        params = self.ctx.params_create()
        encoder = params.mlp_init("l", in_=2, hidden=3).encoder(1)
        params.close()
        with self.fails("was freed"):
            encoder.numpy()

    def test_dropped_while_recording(self):
        """What a recording needs is freed when the recording ends"""
        live = self.ctx.memory().live
        w = self.ctx.params_create().linear_init("l", in_=100, out=100).w
        self.ctx.record()
        loss = (self.ctx.tensor(np.ones((100, 100)), keep=True) @ w).sum()
        del w                                               # and its parameters
        for _ in range(10):
            self.ctx.tensor(np.full((100, 100), 7.0), keep=True)
        self.assertGreater(self.ctx.memory().live, live + 12 * 40000)
        self.ctx.backward(loss)
        self.ctx.reset()
        self.assertLess(self.ctx.memory().live, live + 5 * 2**20)

    def test_owned_once(self):
        """What C returns as it was given, or what belongs to parameters, has one owner; nothing is freed after its context"""
        t = self.ctx.tensor(np.ones((2, 2)), keep=True)
        for same in (t.noise(0.5), t.dropout(0.5), self.ctx.recompute(lambda ctx, with_, given: t, None, [t])):
            self.assertIs(same, t)
        params = self.ctx.params_create()
        model = params.transformer_init("m", vocab=5, layers=1, dim=4, heads=1, context=4, attention="bilinear", no_norm=True)
        before = model.head.w.numpy()
        for w in (model.head.w.noise(0.5), self.ctx.circuit_unembedding(model)):
            np.testing.assert_array_equal(w.numpy(), before)
            w.close()
            del w
        for _ in range(10):
            self.ctx.tensor(np.zeros_like(before), keep=True)
        np.testing.assert_array_equal(model.head.w.numpy(), before)
        frozen = self.ctx.circuit_freeze(model, np.zeros((1, 4), int))
        paths = frozen.circuit_paths_find(dict(position=3, token=1))
        frozen.close()
        paths.close()
        ctx = tn.Context(threads=1)
        owned = [ctx.params_create(), ctx.tensor(np.ones((9, 9)), keep=True), ctx.cp_from_tensor(np.ones((2, 2, 2)))]
        ctx.close()
        owned.pop().close()
        owned.clear()
        with self.fails("the context is closed"):
            ctx.memory()
        self.assertEqual(repr(ctx), "<Context, closed>")

    def test_closed_by_callbacks(self):
        x = self.ctx.tensor([1.0])
        for call in (self.ctx.close, self.ctx.reset, lambda mark=self.ctx.arena_mark(): self.ctx.arena_release(mark)):
            with self.fails("was called by a callback"):
                self.ctx.recompute(lambda ctx, with_, given: call(), None, [x])

    def test_closed_by_arguments(self):
        """What is closed while an argument is read is not freed before the call is over, and a context is not closed"""
        class Closing:
            def __init__(self, close):
                self.close = close

            def __index__(self):
                self.close()
                return 0

            def __float__(self):
                return float(self.__index__())
        params, bytes_, x = self.ctx.params_create(), self.ctx.tokenizer_create_bytes(), self.ctx.tensor([1.0], keep=True)
        params.linear_init("l", in_=2, out=2)
        with self.fails("was freed"):
            params.optim_create(lr=Closing(params.close))
        with self.fails("was freed"):
            bytes_.token(Closing(bytes_.close))
        with self.fails("was freed"):
            x.slice(Closing(x.close), 0, 1)
        mark = self.ctx.arena_mark()
        for close in (self.ctx.close, self.ctx.reset, lambda: self.ctx.arena_release(mark)):
            with self.fails("by an argument"):
                self.ctx.full((3,), Closing(close))
        self.assertEqual(self.ctx.eye(2).numpy()[1, 1], 1)

    def test_callback_of_a_recording(self):
        """backward calls a function of which Python has nothing any more"""
        w = self.ctx.params_create().linear_init("l", in_=2, out=2).w
        for depth in range(1, 20):
            self.ctx.reset()
            self.ctx.record()
            y = self.ctx.tensor(np.ones((1, 2)))
            for _ in range(depth):
                y = self.ctx.recompute(lambda ctx, with_, given: (given[0] @ w.T).scale(1), None, [y])
            gc.collect()
            self.ctx.backward(y.sum())
        self.assertTrue(np.isfinite(w.grad.numpy()).all())

    def test_kept_by_a_callback(self):
        """What a callback gets is the caller's object, so that it ends with it"""
        x, given = self.ctx.tensor(np.ones((1000, 1000)), keep=True), []
        self.ctx.recompute(lambda ctx, with_, inputs: given.append(inputs[0]) or inputs[0].scale(2), None, [x])
        self.assertIs(given[0], x)
        view = given[0].numpy(copy=False)
        with self.fails("1 arrays look", error=BufferError):
            x.close()
        del view
        x.close()
        with self.fails("was freed"):
            given[0].numpy()

    def test_frozen_gradients(self):
        """freeze frees gradients: their objects end, and it is refused while an array looks at one"""
        params = self.ctx.params_create()
        w, other = (params.linear_init(name, in_=300, out=300).w for name in ("l", "m"))
        self.ctx.record()
        self.ctx.backward((w @ other).sum())
        grad, row, rest = w.grad, w.grad[3], other.grad
        view, looked = grad.numpy(copy=False), rest.numpy(copy=False)
        for pattern in ("l", "*.w", ""):
            with self.fails("1 arrays look", error=BufferError):
                params.freeze(pattern)
        self.assertTrue(np.isfinite(view).all())
        del view
        self.assertEqual(params.freeze("l*"), 1)
        self.assertEqual(params.freeze("[lm]?w"), 0)
        for ended in (grad, row):
            with self.fails("was freed"):
                ended.numpy()
        np.testing.assert_array_equal(rest.numpy(), looked)

    def test_refers(self):
        """A net of the caller's tensors, and a frozen run of a model, end with these"""
        params = self.ctx.params_create()
        w = params.linear_init("l", in_=2, out=3).w
        copies, refers = (self.ctx.net_create("oi->o|i", [w], nodes) for nodes in ("copy", "refer"))
        folded = refers.fix(0, np.ones(2))
        model = params.transformer_init("m", vocab=5, layers=1, dim=4, heads=1, context=4, attention="bilinear", no_norm=True)
        frozen = self.ctx.circuit_freeze(model, np.zeros((1, 4), int))
        parts = frozen.circuit_parts_of(dict(position=3, token=1))
        self.assertEqual(refers.apply(np.ones((1, 2))).shape, (1, 3))
        params.close()
        self.assertEqual(copies.apply(np.ones((1, 2))).shape, (1, 3))
        for use in (lambda: refers.apply(np.ones((1, 2))), folded.contract, lambda: frozen.logits,
                    lambda: parts.values):
            with self.fails("tn_params: it was freed"):
                use()

    def test_order_of_destruction(self):
        """In any order, in one cycle of garbage, and at the end of a program"""
        def make():
            ctx = tn.Context(threads=1)
            params = ctx.params_create()
            layer = params.mlp_init("l", in_=2, hidden=2)
            cp = ctx.cp_from_mlp(layer)
            return [ctx, params, layer, params.optim_create(), cp, cp.eigen_all(1), ctx.tensor([1.0], keep=True), ctx.eye(2)]
        for first in range(8):
            objects = make()
            while objects:
                objects.pop(first % len(objects))
        objects = make()
        objects.append(objects)
        del objects
        gc.collect()
        kept = []
        ctx = tn.Context(log=lambda level, message: kept)   # a cycle through a function that C calls
        kept += [ctx, ctx.params_create()]
        gone = weakref.ref(ctx)
        del ctx, kept
        gc.collect()
        self.assertIsNone(gone())
        program = "import tensornet as tn; c = tn.Context(); p = c.params_create(); o = p.optim_create(); x = [c, p, o]; x += [x]"
        self.assertEqual(subprocess.run([sys.executable, "-c", program], capture_output=True).stderr, b"")

    def test_no_leak_in_a_context(self):
        params = self.ctx.params_create()
        layer = params.mlp_init("l", in_=8, hidden=8)

        def step():
            cp = self.ctx.cp_from_mlp(layer)
            cp.eigen_all(3)
            cp.split()
            self.ctx.tensor(np.ones(1000), keep=True)
            self.ctx.svd(np.ones((4, 4)))
            self.ctx.reset()
        step()
        live = self.ctx.memory().live
        for _ in range(50):
            step()
        self.assertEqual(self.ctx.memory().live, live)

    def test_contexts(self):
        def some(count):
            for i in range(count):
                ctx = tn.Context(seed=i, threads=1)
                ctx.cp_from_mlp(ctx.params_create().mlp_init("l", in_=20, hidden=20)).eigen_all(2)
                (ctx.tensor(np.ones((100, 100))) @ np.ones((100, 100))).item if i % 2 else ctx.close()
        gc.disable()                                        # nothing is left to the collector of cycles
        try:
            some(100)
            before = resident()
            some(1000)
            self.assertLess(resident() - before, 20e6)
        finally:
            gc.enable()

    def test_threads(self):
        """Calls of several threads wait for each other, and finalizers of others do not disturb them"""
        errors = []

        def work():
            try:
                for i in range(100):
                    t = self.ctx.tensor(np.full((20, 20), i / 64), keep=True)
                    assert self.ctx.cp_from_tensor(np.ones((2, 3, 3))).out == 2
                    assert t.numpy()[3, 4] == np.float32(i / 64)
            except BaseException as error:
                errors.append(error)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])


class Arguments(Base):
    """What C cannot see; calls.py does the same for every function"""

    def test_lengths(self):
        ctx, tt, x = self.ctx, self.ctx.tt_random([2, 3, 2], 2, 1), np.eye(3)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.bin")
            ctx.shard_write(path, [1, 2, 3, 4], 5)
            shard = ctx.shard_open(path, 5)
        read = np.zeros(2, np.int32)
        shard.read(1, ids=read)
        np.testing.assert_array_equal(read, [2, 3])
        for call in (lambda: shard.read(0, 200000, np.zeros(4, np.int32)), lambda: tt.sample(200000, 0, 1, np.zeros(3, np.int64)),
                     lambda: tt.conditional(1, [0], np.zeros(2)),
                     lambda: tt.elements(300000, np.zeros((2, 3), int), np.zeros(300000)), lambda: tt.matrix([2], [2]),
                     lambda: ctx.tt_from_matrix(np.eye(4), [2, 2], [2]), lambda: ctx.image_matrix(np.zeros(4), 3000, 3000),
                     lambda: ctx.image_matrix_of(np.zeros((2, 3000)), x_names=["a", "b"]),
                     lambda: ctx.image_tiles_of(np.zeros((4, 2, 2)), captions=["a", "b"]),
                     lambda: ctx.image_plot([dict(y=[1, 2, 3], x=[1, 2])]),
                     lambda: ctx.einsum_labels(1, [x], [[0, 1, 2]], 1, [0]),
                     lambda: ctx.plan_create("ij,jk->ik", shapes=[[2, 3], [3, 4]], ranks=[2, 3]),
                     lambda: ctx.plan_create_labels(shapes=[[2, 3]], labels=[[0]], out=[0]),
                     lambda: ctx.tensor_from([2, 2], "f32", [1, 2, 3])):
            with self.fails("it has [0-9]+ elements, expected [0-9]+", error=ValueError):
                call()

    def test_pointers_to_pointers(self):
        a, b = np.arange(6.0).reshape(2, 3), np.ones((3, 4))
        plans = (self.ctx.plan_create("ij,jk->ik", shapes=[[2, 3], [3, 4]]),
                 self.ctx.plan_create_labels(shapes=[[2, 3], [3, 4]], labels=[[0, 1], [1, 2]], out=[0, 2]))
        for product in (*(plan.run([a, b]) for plan in plans),
                        self.ctx.einsum_labels(operands=[a, b], labels=[[0, 1], [1, 2]], out=[0, 2])):
            np.testing.assert_array_equal(product.numpy(), a @ b)

    def test_kinds(self):
        self.assertEqual(tn.effective_rank(np.array([1, 1, 1], np.dtype(float).newbyteorder())), 3)
        self.assertEqual(tn.effective_rank(memoryview(np.ones(3))), 3)
        tt, index = self.ctx.tt_svd(np.arange(6.0), [2, 3]), np.array([[1, 2]])
        for array in (np.zeros(1, np.dtype(float).newbyteorder()), np.zeros(1, np.float32), bytes(8), [0.0]):
            with self.fails("elements: values: it is written", error=TypeError):
                tt.elements(1, index, array)
        fixed = np.zeros((2, 2))
        fixed.flags.writeable = False
        with self.fails("may be written", tn.ERR_DTYPE):
            self.ctx.eye(2).read(fixed)
        for value, error in ((2**64 + 1, OverflowError), (2**40, OverflowError), (1.5, TypeError), (None, TypeError),
                             ("1", TypeError)):
            with self.fails("slice: axis: ", error=error):
                self.ctx.eye(2).slice(value, 0, 1)
        for desc, error in ((dict(threads=2**40), OverflowError), (dict(max_bytes=-1), OverflowError),
                            (dict(backend=5), TypeError), (dict(log=5), TypeError), (dict(backend_required=2), TypeError),
                            (dict(seed=1.5), TypeError)):
            with self.fails("tn_desc." + next(iter(desc)), error=error):
                tn.Context(**desc)
        with self.fails("NUL", error=ValueError):
            self.ctx.safetensors_open("a\0b")
        with self.fails("NUL", error=ValueError):
            self.ctx.params_create().linear_init("a\0b", in_=2, out=2)

    def test_without_axes(self):
        s = self.ctx.tensor([1.0, 2]).sum()
        self.assertEqual((s.shape, self.ctx.tensor(s.numpy()).shape, self.ctx.tensor(np.float32(3)).shape), ((), (), ()))
        np.testing.assert_array_equal(self.ctx.einsum(",i->i", [np.float32(3), [1.0, 2]]).numpy(), [3, 6])
        with self.fails("neither true nor false", error=TypeError):
            bool(s)
        with self.fails("no length", error=TypeError):
            len(s)

    def test_fields(self):
        layer = self.ctx.params_create().linear_init("l", in_=2, out=2)
        param = layer.w.ctx.params_create().add("w", [2], dict(rule="normal", std=1))
        for o, field in ((layer.desc, "in_"), (layer, "w"), (layer.w, "shape"), (layer, "something"), (self.ctx, "seed"),
                         (self.ctx.params_create(), "frozen")):
            with self.fails("cannot be set", error=AttributeError):
                setattr(o, field, 5)
        with self.fails("freeze", error=AttributeError):
            param.frozen = True
        param.lr_scale = 2
        self.assertEqual(param.lr_scale, 2)

    def test_parameters(self):
        """A mapping of names to tensors; layers are called"""
        params = self.ctx.params_create()
        self.assertTrue(params)
        a, b = params.linear_init("a", in_=2, out=3), params.mlp_init("b", in_=2, hidden=3)
        self.assertEqual((list(params), len(params)), (["a.w", "b.w", "b.p"], 3))
        np.testing.assert_array_equal(params["b.w"].numpy(), b.w.numpy())
        self.assertEqual({name: t.shape for name, t in params.items()}, {"a.w": (3, 2), "b.w": (2, 3, 2), "b.p": (2, 3)})
        self.assertEqual(("a.w" in params, "c" in params, 5 in params), (True, False, False))
        for name in ("c", 5, None):
            with self.fails("there are a.w, b.w", error=KeyError):
                params[name]
        np.testing.assert_array_equal(a(BITS).numpy(), a.forward(BITS).numpy())
        model = params.transformer_init("m", vocab=5, layers=1, dim=4, heads=1, context=4)
        np.testing.assert_array_equal(model([[1, 2]]).numpy(), model.forward([[1, 2]]).numpy())

    def test_copies(self):
        for o in (self.ctx.eye(2), self.ctx, self.ctx.params_create(), self.ctx.cp_from_tensor(np.ones((2, 2, 2)))):
            for call in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.fails("cannot be copied or pickled", error=TypeError):
                    call(o)

    def test_callbacks_get_arrays(self):
        def matvec(count, x, y):
            self.assertEqual((x.shape, y.shape), ((count, 3), (count, 3)))
            y[:] = x * [1, 2, 3]
        np.testing.assert_allclose(self.ctx.lanczos(3, matvec, top=1).values.numpy(), [3], rtol=1e-6)
        raw = []
        self.ctx.eye(2).npy_write(tn.sink_calls(lambda part, count: raw.append(bytes(part)) or True))
        text = b"".join(raw)
        again = self.ctx.npy_read(tn.source_calls(lambda offset, dst, count: dst.__setitem__(
            slice(None), np.frombuffer(text[offset:offset + len(dst)], np.uint8)) or True, len(text)))
        np.testing.assert_array_equal(again.numpy(), np.eye(2))
        for sink in (tn.sink_calls(lambda part, count: 1 / 0), dict(store=lambda part, count: 1 / 0)):
            with self.fails("division by zero", error=ZeroDivisionError):
                self.ctx.eye(2).npy_write(sink)

    def test_version(self):
        """Another library is refused by its version, before names are looked up that it does not have"""
        with tempfile.TemporaryDirectory() as folder:
            library = os.path.join(folder, "lib.so")
            subprocess.run(["cc", "-x", "c", "-", "-shared", "-fPIC", "-o", library], check=True,
                           input=b'const char *tn_version(void) { return "9.8.7"; }')
            said = subprocess.run([sys.executable, "-c", "import tensornet"], capture_output=True, text=True,
                                  env={**os.environ, "TENSORNET_LIBRARY": library}).stderr
        self.assertIn("the library is version 9.8.7", said)


class Loading(Base):
    data = os.path.join(TREE, "tests", "data")

    def fails_with(self, text, path, **options):
        with self.fails(text):
            tn.load(path, **options)

    def test_network(self):
        """The layout of the authors of bilinear layers, against the reference beside the file"""
        folder = os.path.join(self.data, "bilinear")
        with open(os.path.join(folder, "reference.json")) as file:
            logits = json.load(file)["logits_first3_images"]
        x = np.load(os.path.join(folder, "first3_test_images.npy")).reshape(3, -1) / 255
        with tn.load(os.path.join(folder, "model.safetensors"), dtype="f64", residual=True) as m:
            np.testing.assert_allclose(m(x).numpy(), logits, atol=1e-9)
            np.testing.assert_allclose(m.operator.apply(x).numpy(), logits, atol=1e-9)
            self.assertEqual((m.kind, m.tokenizer), ("network of bilinear layers", None))
            self.assertEqual(m.tensors["embed.weight"].shape, (24, 784))
            m.ctx.reset()
            np.testing.assert_allclose(m(x).numpy(), logits, atol=1e-9)
            self.assertIn("embed > blocks.0 > head, residual", repr(m))
            with self.fails("there is no tensor head; there are embed.weight", error=KeyError):
                m.tensors["head"]

    def test_residual(self):
        """Nothing in a file says it but a note, so that a network without one says that it does not know"""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.safetensors")
            for words, given, residual, asks in (("", None, False, True), ("", True, True, False), ("", False, False, False),
                                                 ("one layer, residual", None, True, False),
                                                 ("no residual", None, False, False), ("residual", False, False, False)):
                self.ctx.safetensors_write(path, [dict(name="blocks.0.weight", tensor=np.ones((4, 2)))],
                                           [dict(key="model", value=words)])
                m = tn.load(path, ctx=self.ctx, residual=given)
                self.assertEqual((m.model.residual, "residual=True" in repr(m)), (residual, asks), words)
                self.assertEqual(m([[1.0, 2]]).numpy().tolist(), [[10.0, 11.0] if residual else [9.0, 9.0]])

    def test_network_of_this_library(self):
        """Two layers with biases, as the layers themselves compute them"""
        params, x = self.ctx.params_create(), np.random.default_rng(1).normal(size=(5, 3))
        embed, head = params.linear_init("embed", in_=3, out=4, bias=True), params.linear_init("head", in_=4, out=2, bias=True)
        layers = [params.mlp_init(f"blocks.{i}", in_=4, hidden=6, out=4, bias=True, out_bias=True) for i in range(2)]
        for i in range(params.count()):
            value = params.at(i).value
            value.write(np.random.default_rng(i).normal(size=value.shape))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            params.save(path)
            m = tn.load(path, ctx=self.ctx)
            for residual in (False, True):
                m.model.residual, y = residual, embed.forward(x)
                for layer in layers:
                    y = layer.forward(y) + (y if residual else 0)
                np.testing.assert_allclose(m(x).numpy(), head.forward(y).numpy(), rtol=1e-4, atol=1e-4)
            self.assertEqual((len(m.operators), m.operator), (2, None))

    def test_nothing_is_left_out(self):
        """Biases that are not understood, settings beside a context and a tokenizer that is not there are errors"""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.safetensors")
            for text, sizes in (("x.b beside x.w, expected no biases", {"x.w": (3, 2), "x.v": (3, 2), "x.b": (2, 3)}),
                                ("the bias of blocks.0 has 3 numbers, expected 4", {"blocks.0.weight": (4, 2), "blocks.0.bias": (3,)})):
                self.ctx.safetensors_write(path, [dict(name=name, tensor=np.ones(size)) for name, size in sizes.items()], [])
                self.fails_with(text, path, ctx=self.ctx)
        with self.fails("dtype beside ctx", error=TypeError):
            tn.load(folder, ctx=self.ctx, dtype="f64")
        self.fails_with("no.json", os.path.join(self.data, "hf", "gpt2"), tokenizer="no.json")

    def test_hugging_face(self):
        for name in ("gpt2", "llama", "mistral", "qwen2"):
            folder = os.path.join(self.data, "hf", name)
            with open(os.path.join(folder, "golden.json")) as file:
                golden = json.load(file)
            with tn.load(folder, dtype="f64") as m:
                logits = m([golden["prompt"]]).numpy()[0, -1, :len(golden["logits"])]
                np.testing.assert_allclose(logits, golden["logits"], atol=1e-5, err_msg=name)
                self.assertEqual((m.kind, m.tokenizer, m.operators), ("language model", None, [None] * m.model.desc.layers))
                with self.fails("has no tokenizer", error=TypeError):
                    m("a text")

    def test_authors(self):
        """The layouts of other programs, against tools/golden_authors.py"""
        root, seen = os.path.join(self.data, "authors"), 0
        for name in sorted(os.listdir(root)):
            with open(os.path.join(root, name, "golden.json")) as file:
                golden = {key: np.array(value) for key, value in json.load(file).items()}
            with tn.load(os.path.join(root, name), dtype="f64") as m:
                if "x" in golden:
                    self.assertEqual((m.kind, m.model.residual), ("network of bilinear layers", name == "image-residual"))
                    y, want = m(golden["x"].reshape(4, -1)).numpy(), golden["y"]
                else:
                    self.assertEqual(m.kind, "language model")
                    y, want = m(golden["ids"].astype(int)[None]).numpy(), golden["logits"]
                self.assertGreater(np.abs(want).max(), 0.1)
                np.testing.assert_allclose(y.ravel(), want, rtol=0, atol=1e-12, err_msg=name)
                seen += 1
        self.assertEqual(seen, 13)

    def test_other_formats(self):
        """What is something else is named: by its first bytes, also in the place of a config.json"""
        self.assertIsNone(tn.foreign_format(b"{}"))
        self.assertIn("GGUF", tn.foreign_format(b"GGUF\3\0\0\0"))
        with tempfile.TemporaryDirectory() as folder:
            np.savez(os.path.join(folder, "x.npz"), a=np.ones(3))
            self.fails_with("a zip archive of numpy.savez: in Python, numpy.save", os.path.join(folder, "x.npz"))
            shutil.copytree(os.path.join(self.data, "authors", "stories-first"), os.path.join(folder, "model"))
            with open(os.path.join(folder, "model", "config.json"), "w") as file:
                file.write("version https://git-lfs.github.com/spec/v1\n")
            self.fails_with("config.json: the file is a Git LFS pointer", os.path.join(folder, "model"))

    def test_hugging_face_refused(self):
        """Tables that differ are not tied; a tensor without a counterpart, and a model larger than its file, are errors"""
        source = os.path.join(self.data, "hf", "mistral")
        with open(os.path.join(source, "config.json")) as file:
            config = json.load(file)
        with tempfile.TemporaryDirectory() as folder:
            def write(config, **tensors):
                with open(os.path.join(folder, "config.json"), "w") as file:
                    json.dump(config, file)
                self.ctx.safetensors_write(os.path.join(folder, "model.safetensors"), [
                    dict(name=name, tensor=value) for name, value in {**given, **tensors}.items()])
            given = {**tn.load(source, ctx=self.ctx).tensors}
            ids, head = [[1, 2, 3]], given["lm_head.weight"]
            write(config)
            apart = tn.load(folder)(ids).numpy()
            write({**config, "tie_word_embeddings": True})
            np.testing.assert_array_equal(tn.load(folder)(ids).numpy(), apart)
            write({**config, "tie_word_embeddings": True}, **{"lm_head.weight": given["model.embed_tokens.weight"]})
            m = tn.load(folder)
            self.assertTrue(m.model.desc.tied)
            self.assertGreater(np.abs(m(ids).numpy() - apart).max(), 0.1)
            write(config, **{"model.layers.0.extra.weight": head})
            self.fails_with('"model.layers.0.extra.weight" has no counterpart', folder)
            write({**config, "num_hidden_layers": config["num_hidden_layers"] - 1})
            self.fails_with("belongs to a block beyond", folder)
            write({**config, "vocab_size": 1 << 30})
            self.fails_with("expected the .* of the model that its config describes", folder)
            write({**config, "model_type": "bert"})
            self.fails_with("bert", folder)
            with open(os.path.join(folder, "config.json"), "w") as file:
                file.write('{"model_type": "llama",}')
            self.fails_with("config.json: .*line 1", folder)

    def test_run(self):
        """A run of `tn train`: the model, or the newest checkpoint that is whole, with its tokenizer"""
        ctx, text = self.ctx, "the cat and the dog and the bird. " * 20
        tokenizer, params = ctx.tokenizer_train(text, 40), ctx.params_create()
        vocab = tokenizer.count()
        model = params.transformer_init("", vocab=vocab, layers=1, dim=8, heads=2, context=16, mlp="bilinear")
        ids = tokenizer.encode("the dog")[None]
        logits = model.forward(ids).numpy()
        with tempfile.TemporaryDirectory() as folder:
            ctx.transformer_config_write(model.desc, os.path.join(folder, "config.json"))
            tokenizer.save(os.path.join(folder, "tokenizer.json"))
            params.save(os.path.join(folder, "model.safetensors"))
            for path in (folder, os.path.join(folder, "model.safetensors")):
                with tn.load(path) as m:
                    np.testing.assert_array_equal(m("the dog").numpy(), logits)
                    self.assertEqual((m.tokenizer.count(), len(m.operators), m.operator), (vocab, 1, None))
                    self.assertEqual(m.operators[0].out, vocab)
            with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
                notes = [dict(key="tn.model", value=file.read())]
            os.remove(os.path.join(folder, "model.safetensors"))
            optim = params.optim_create()
            for step in (1, 2):
                optim.checkpoint_write(os.path.join(folder, f"step-{step:08}.safetensors"), notes)
            with open(os.path.join(folder, "step-00000002.safetensors"), "r+b") as file:
                file.seek(-4, 2)
                file.write(b"dust")
            with tn.load(folder) as m:
                np.testing.assert_array_equal(m("the dog").numpy(), logits)
            self.fails_with("step-00000002|checksum", os.path.join(folder, "step-00000002.safetensors"))
            ctx.tokenizer_train(text, 30).save(os.path.join(folder, "tokenizer.json"))
            self.fails_with(f"has [0-9]+ tokens, expected {vocab}", folder)

    def test_damaged_files(self):
        tried = 0
        for path in sorted(glob.glob(os.path.join(self.data, "safetensors", "*.safetensors"))
                           + glob.glob(os.path.join(self.data, "npy", "*.npy"))):
            name = os.path.basename(path)
            if name.startswith(("bad_", "unsupported_")):
                with self.assertRaises(tn.TensornetError, msg=name):
                    tn.load(path)
                tried += 1
            else:
                self.assertIn(tn.load(path).kind, ("array", "tensors"), name)
        self.assertGreater(tried, 15)
        with tempfile.TemporaryDirectory() as folder:       # layers that do not fit
            path = os.path.join(folder, "x.safetensors")
            self.ctx.safetensors_write(path, [dict(name="blocks.0.weight", tensor=np.ones((4, 3))),
                                              dict(name="head", tensor=np.ones((2, 5)))])
            m = tn.load(path)
            for use in (lambda: m.operator, lambda: m([[1.0, 2, 3]])):
                with self.fails("2|5", tn.ERR_SHAPE):
                    use()

    def test_other_files(self):
        with tempfile.TemporaryDirectory() as folder:
            def at(name):
                return os.path.join(folder, name)
            self.fails_with("expected model.safetensors", folder)
            self.fails_with("no such file or folder", at("nothing"))
            for name, words in (("m.pt", "save_file"), ("m.gguf", "quantised"), ("m.npz", "np.save"),
                                ("m.txt", "expected a folder, a .safetensors file or a .npy file"),
                                ("tokenizer.json", "the model's file or folder")):
                open(at(name), "w").close()
                self.fails_with(words, at(name))
            self.fails_with("m.pt is of PyTorch: .*save_file", folder)
            np.save(at("x.npy"), np.ones((2, 3, 3)))
            m = tn.load(at("x.npy"))
            self.assertEqual((m.kind, m.tensors["x"].shape, m.operator.out, m.model), ("array", (2, 3, 3), 2, None))
            self.ctx.safetensors_write(at("x.safetensors"), [dict(name="a", tensor=np.ones((2, 3)))])
            m = tn.load(at("x.safetensors"), ctx=self.ctx)
            self.assertEqual((m.kind, list(m.tensors), m.operator), ("tensors", ["a"], None))
            self.assertIn("a  [2, 3]", repr(m))
            with self.fails("no model that is known", error=TypeError):
                m([1.0])


class Calls(Base):
    def test_descs(self):
        params = self.ctx.params_create()
        layer = params.mlp_init("l", in_=3, hidden=4, kind="relu2", bias=True, init=dict(rule="normal", std=0.5))
        self.assertEqual((layer.desc.in_, layer.desc.hidden, layer.desc.out, layer.desc.kind), (3, 4, 3, tn.MLP_RELU2))
        self.assertEqual((layer.desc.init.rule, layer.desc.init.std, layer.w.shape), (tn.INIT_NORMAL, 0.5, (1, 4, 3)))
        for i, kind in enumerate((tn.MLP_RELU, 1, "relu", "RELU", "TN_MLP_RELU")):
            self.assertEqual(params.mlp_init(f"l{i}", in_=2, hidden=2, kind=kind).desc.kind, tn.MLP_RELU)
        self.assertEqual(params.mlp_init("copy", layer.desc).desc.kind, tn.MLP_RELU2)
        with self.fails("tn_mlp_desc has no field hiden; it has in, hidden", error=TypeError):
            params.mlp_init("m", in_=3, hiden=4)
        with self.fails("no 'rellu'; it has bilinear, relu", error=ValueError):
            params.mlp_init("m", in_=3, hidden=4, kind="rellu")
        with self.fails("mlp m: hidden is 0", tn.ERR_SHAPE):
            params.mlp_init("m", in_=3)
        with self.fails("the name|exists|already|l.w", tn.ERR_ARG):
            params.mlp_init("l", in_=3, hidden=4)
        with self.fails("takes 2 arguments: a, b", error=TypeError):
            self.ctx.add(1.0, 2.0, 3.0)
        with self.fails("needs factor", error=TypeError):
            self.ctx.scale([1.0])
        with self.fails("scale has factor twice", error=TypeError):
            self.ctx.scale([1.0], 2, factor=3)
        with self.fails("no argument size", error=TypeError):
            self.ctx.eye(2, size=3)
        with self.fails("expected tn_params, not tn_cp|has no field or function", error=(TypeError, AttributeError)):
            self.ctx.params_clone(self.ctx.cp_from_tensor(np.ones((1, 2, 2))))
        with self.fails("returned NULL|NULL"):
            self.ctx.add(None, [1.0])
        with self.fails("Context|F16|no 'f16'", error=ValueError):
            tn.Context(dtype="f16")
        with self.fails("dtype"):
            tn.Context(dtype="i32")

    def test_outputs(self):
        x, ids = self.ctx.topk([[3.0, 1, 2]], 1, 2)
        np.testing.assert_array_equal(ids.numpy(), [[0, 2]])
        product, log = self.ctx.chain(np.ones((1, 3, 2, 2)))
        np.testing.assert_allclose(product.numpy() * np.exp(log.numpy()), np.full((1, 2, 2), 4), rtol=1e-6)
        self.assertEqual(tn.effective_rank([1, 1, 1]), 3)
        a, b = self.ctx.cp_from_tensor(np.ones((2, 3, 3))), self.ctx.cp_from_tensor(np.ones((2, 4, 4)))
        self.assertAlmostEqual(tn.cp_stack_inner([a], [a]).inner, a.norm() ** 2, 3)
        with self.fails("stack_inner: a takes 3 inputs"):
            tn.cp_stack_inner([a], [b])
        table, count = tn.name_map_gpt2()
        self.assertGreater(count, 5)
        self.assertEqual(self.ctx.tensor([[1.0, 2]]).table(row_names=["a"], column_names=["x", "y"]).split(),
                         ["x", "y", "a", "1", "2"])
        tt = self.ctx.tt_svd(np.ones((6,)), [2, 3])
        self.assertEqual((tt.count, len(tt.core), tt.core[1].shape), (2, 2, (1, 3, 1)))
        out = np.zeros(2)
        tt.elements(2, np.array([[0, 0], [1, 2]]), out)
        np.testing.assert_allclose(out, 1, rtol=1e-6)

    def test_callbacks(self):
        said = []
        with tn.Context(backend=tn.reference_backend(), log=lambda level, message: said.append(message)) as ctx:
            self.assertEqual(ctx.backend_name(), "reference")
            self.assertEqual((ctx.tensor(np.ones((2, 3))) @ np.ones((3, 1))).numpy(copy=False)[1, 0], 3)
        with self.fails("seventeen", error=TypeError):
            tn.Context(seventeen=17)
        params = self.ctx.params_create()
        w = params.linear_init("l", in_=2, out=2).w
        x = self.ctx.tensor([[1.0, 2]])
        self.ctx.record()
        inside = []

        def layer(ctx, with_, given):
            inside.append(given[0] @ w.T)
            return inside[-1].exp()
        y = self.ctx.recompute(layer, None, [x])
        with self.fails("was freed"):                       # what it computes is freed when it returns
            inside[0].numpy()
        self.ctx.backward(y.sum())
        again = np.exp(np.array([[1, 2]], np.float32) @ w.numpy().T)
        np.testing.assert_allclose(w.grad.numpy(), again.T @ [[1, 2]], rtol=1e-5)

        def bad(ctx, with_, given):
            raise KeyError("mine")
        self.ctx.reset()
        with self.fails("mine", error=KeyError):
            self.ctx.recompute(bad, None, [self.ctx.tensor([1.0])])
        self.assertEqual(self.ctx.eye(2).numpy()[1, 1], 1)      # the error is not left behind

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model é.safetensors")
            params = self.ctx.params_create()
            layer = params.linear_init("l", in_=2, out=2)
            params.save(path)
            before = layer.w.numpy()
            layer.w.write(np.zeros((2, 2)))
            params.load(path)
            np.testing.assert_array_equal(layer.w.numpy(), before)
            file = self.ctx.safetensors_open(path)
            self.assertEqual((file.count(), file.at(0).name, file.read("l.w").shape), (1, "l.w", (2, 2)))
            self.assertEqual((file.find("l.w").bytes, file.find("l.b"), file.metadata("none")), (16, None, None))
            with self.fails("returned NULL"):
                file.at(1)
            file.close()
            self.ctx.safetensors_write(path, [dict(name="x", tensor=before)], [dict(key="a", value="b")])
            with open(path, "rb") as stream:
                raw = stream.read()
            file = self.ctx.safetensors_open(raw)
            self.assertEqual(file.metadata("a"), "b")
            np.testing.assert_array_equal(file.read("x").numpy(), before)
            self.ctx.tensor(before).npy_save(os.path.join(folder, "a.npy"))
            np.testing.assert_array_equal(np.load(os.path.join(folder, "a.npy")), before)
            with self.fails("nothing here|No such file|could not", tn.ERR_FILE):
                params.load(os.path.join(folder, "nothing here"))

    def test_texts(self):
        letters = self.ctx.tokenizer_create_bytes()
        for text in ("", "héllo 🙂", "a\0b"):
            ids = letters.encode(text)
            np.testing.assert_array_equal(ids, np.frombuffer(text.encode(), np.uint8))
            self.assertEqual(letters.decode(ids), text)
        trained = self.ctx.tokenizer_train("the cat and the dog and the bird. " * 20, 40)
        self.assertEqual(trained.decode(trained.encode("the dog")), "the dog")
        with open(os.path.join(os.path.dirname(__file__), "..", "data", "bpe", "prefix.json")) as file:
            spaced = json.load(file)
        spaced["added_tokens"][1].update(content="A", id=spaced["model"]["vocab"]["A"])
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "t.json"), "w") as file:
                json.dump(spaced, file)
            self.assertEqual(len(self.ctx.tokenizer_load(file.name).encode("1A2A" * 9)), 54)    # more than there are bytes

    def test_transformer(self):
        params = self.ctx.params_create()
        model = params.transformer_init("m", vocab=11, layers=2, dim=8, heads=2, context=16, attention="bilinear")
        ids = np.arange(6).reshape(1, 6)
        logits = model.forward(ids).numpy()
        self.assertEqual((logits.shape, len(model.blocks)), ((1, 6, 11), 2))
        self.assertEqual(model.blocks[1].attn.o.shape, (8, 8))
        cache = model.cache_create(1, 8)
        np.testing.assert_allclose(np.concatenate([model.decode(ids[:, i:i + 1], cache).numpy() for i in range(6)], 1), logits,
                                   atol=1e-5)
        shapes, seen = dict(model.points(1, 6)), {}

        def tap(ctx, name, x):
            seen[name] = x
        again = model.run(ids, [dict(points="blocks.1.*", fn=tap)])
        np.testing.assert_array_equal(again.numpy(), logits)
        self.assertEqual({name: x.shape for name, x in seen.items()},
                         {name: shape for name, shape in shapes.items() if name.startswith("blocks.1.")})
        without = model.run(ids, [dict(points="blocks.0", fn=lambda ctx, name, x: x * 0)])
        self.assertGreater(np.abs(without.numpy() - logits).max(), 0.01)
        parts = model.parts()
        self.assertEqual(len(parts), model.attribution(ids, ids).shape[-1])
        params.close()
        with self.fails("tn_params: it was freed"):
            model.blocks[1].attn.o

    def test_pictures(self):
        image = self.ctx.image_matrix_of(np.eye(3), title="a <b>")
        self.assertIn("a &lt;b&gt;", image._repr_svg_())
        self.assertIsNone(image._repr_png_())
        large = self.ctx.image_matrix_of(np.random.default_rng(1).normal(size=(50, 50)))
        self.assertEqual((large._repr_svg_() or "")[:4], "" if large._repr_png_() else "<svg")
        with mock.patch.dict(tn.look.__globals__, LARGE=1 << 30):
            self.assertEqual((large._repr_svg_()[:4], large._repr_png_()), ("<svg", None))
        with tempfile.TemporaryDirectory() as folder:
            command = os.path.join(folder, "tn")
            with open(command, "w") as file:
                file.write('#!/bin/sh\n[ "$1" = look ] && [ -f "$2" ] || { echo "look: $2 is no model" >&2; exit 1; }\n'
                           'echo "<p title=\\"x\\">$5 $6" $(cd "${2%/*}" && ls) > "$4"\n')
            os.chmod(command, 0o755)
            params = self.ctx.params_create()
            params.linear_init("l", in_=2, out=2)
            with environment(TN=command):
                page = params.look(no_data="a b")
                self.assertEqual(page.text, '<p title="x">--no-data a b model.safetensors\n')
                self.assertIn('srcdoc="&lt;p title=&quot;x&quot;&gt;--no-data', page._repr_html_())
                tokenizer = self.ctx.tokenizer_train("the cat and the dog and the bird. " * 20, 40)
                model = self.ctx.params_create().transformer_init("", vocab=40, layers=1, dim=4, heads=1, context=4)
                self.assertIn("config.json model.safetensors tokenizer.json", model.look(tokenizer).text)
                self.assertIn("config.json model.safetensors\n", model.look(self.ctx.tokenizer_create_bytes()).text)
                with self.fails("nothing is no model"):
                    tn.look("nothing")
            with environment(TN="", PATH=folder), mock.patch.dict(tn.look.__globals__, folders=list):
                self.assertIn("--no-data", params.look(no_data="a").text)                   # the one in the PATH
                os.environ["PATH"] += "/none"
                with self.fails("make tn` builds it"):
                    tn.look("nothing")

    @unittest.skipUnless(COMMAND, "the package was installed without the command tn")
    def test_look(self):
        """The page of the command that the wheel holds, of what was loaded"""
        with environment(TN="", PATH="/nowhere"), tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "page.html")
            page = tn.load(os.path.join(TREE, "tests", "data", "bilinear", "model.safetensors")).look(out, vectors=2)
            with open(out, encoding="utf-8") as file:
                self.assertEqual(file.read(), page.text)
            self.assertTrue(page.text.startswith("<!DOCTYPE html>") and page.text.endswith("</html>\n"))
            self.assertRegex(repr(page), "<Page: [0-9.]+ MB; ")
            page = tn.load(os.path.join(TREE, "tests", "data", "hf", "llama")).look(live="no", text="1 2 3")
            self.assertTrue(page.text.endswith("</html>\n"))
            with mock.patch("webbrowser.open") as opened:
                page.open()
                page.open(out)
            self.assertEqual([call.args[0][:8] for call in opened.mock_calls], ["file:///"] * 2)
            with self.fails("look: .*--vectors"):
                tn.look(os.path.join(TREE, "tests", "data", "bilinear", "model.safetensors"), vectors=-1)

    def test_same_as_c(self):
        expected = {}
        for line in subprocess.run([PROGRAM], capture_output=True, text=True, check=True).stdout.splitlines():
            name, *numbers = line.split()
            expected.setdefault(name, []).append([float.fromhex(number) for number in numbers])
        got = {}

        def show(name, t):
            got.setdefault(name, []).append([float(x) for x in np.ravel(t.numpy() if isinstance(t, tn.Tensor) else t)])
        ctx = self.ctx
        params = ctx.params_create()
        layer = params.mlp_init("xor", in_=2, hidden=3, out=1, bias=True, out_bias=True)
        optim = params.optim_create(lr=0.05, schedule=dict(kind="cosine", warmup=10, total=100))
        for step in range(100):
            ctx.reset()
            x, y = ctx.tensor(BITS), ctx.tensor([[0.0], [1], [1], [0]])
            ctx.record()
            loss = layer.forward(x).mse(y)
            ctx.backward(loss)
            optim.step()
            if step % 25 == 0:
                show("loss", loss)
        show("w", layer.w)
        cp = ctx.cp_from_mlp(layer)
        eigen, spectrum = cp.eigen_all(3), cp.spectrum(3)
        quadratic, linear, constant = cp.split()
        show("values", eigen.values)
        show("vectors", eigen.vectors)
        show("linear", linear)
        show("dense", quadratic.dense_symmetric())
        show("norm", cp.norm())
        show("rank", spectrum.rank_low)
        a = ctx.normal((7, 5), 0, 1)
        show("einsum", ctx.einsum("ij,ik->jk", [a, a]))
        show("s", ctx.svd(a).s)
        top, ids = a.topk(1, 2, "magnitude")
        show("top", top)
        show("ids", ids)
        self.assertEqual(got, expected)


@contextlib.contextmanager
def environment(**variables):
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


if __name__ == "__main__":
    warnings.simplefilter("error")
    result = unittest.main(argv=sys.argv[:1] + sys.argv[3:], exit=False).result
    bad = len(result.failures) + len(result.errors)
    sys.stdout.flush()
    print(f"{result.testsRun - bad - len(result.skipped)} passed, {bad} failed, {len(result.skipped)} skipped")
    sys.exit(bad > 0)
