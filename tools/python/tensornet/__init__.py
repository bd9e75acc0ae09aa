"""tensornet.h from Python.

    import tensornet as tn

    with tn.Context(seed=7) as ctx:
        params = ctx.params_create()
        layer = params.mlp_init("layer", in_=2, hidden=3, out=1, bias=True)     # descs are keywords; in_, as in is Python's
        y = layer.forward(np.ones((4, 2)))                                      # arrays become tensors
        y.numpy()                                                               # and tensors arrays
        e = ctx.cp_from_mlp(layer).eigen_all(3)                                 # outputs are what a function returns

Functions have their names of C without tn_ and the name of the object that they belong to: tn_cp_fold_in(cp, e, b) is
cp.fold_in(e, b). Numbers of elements are not given, nor the context where an object has one. help() of a function shows the
header's comment. A failed call raises TensornetError; enumerations are tn.ATTEND_SQUARED, tn.AttendKind.SQUARED or "squared".
What C cannot see, such as the length of an array, is checked before the call: ValueError, TypeError or OverflowError.
"""
import ctypes
import fnmatch
import math
import operator
import re

import numpy as np

from . import arrays, functions, objects
from .abi import class_name, enums, header, version as __version__
from .look import Page, look, look_at_params, look_at_transformer, svg
from .objects import Context, Dtype, Object, Params, Status, Tensor, TensornetError, classes

globals().update({class_name(name): kind for name, kind in {**classes, **enums}.items() if name != "tn_ctx"})
globals().update({name[len("TN_"):]: enum(value) for c_name, enum in enums.items()
                  for name, value in header["enums"][c_name].items()})
globals().update({name[len("TN_"):]: value for name, value in header["constants"].items()})


# ---- tensors

def numpy(self, copy=True):
    """An array of the tensor's numbers, BF16 as float32. copy=False: its own bytes (BF16 as uint16), which the array can
    write; they are not freed while it exists: what would free them raises BufferError."""
    if not copy:
        if not self._ctx._host:
            raise TensornetError(f"the numbers are on {self._ctx.backend_name()}: only copies of them can be had",
                                 Status.ERR_BACKEND)
        fields, kind = self._fields(), np.dtype(objects.NUMPY[self.dtype])
        view = objects._Memory(self, {
            "version": 3, "typestr": kind.str, "shape": self.shape, "data": (fields.data or 0, False),
            "strides": tuple(kind.itemsize * stride for stride in fields.strides[:fields.rank])})
        self._ctx._views.add(view)
        return np.asarray(view)
    array = np.empty(self.shape, np.float32 if self.dtype == Dtype.BF16 else objects.NUMPY[self.dtype])
    if array.size:
        self.read(array)
    return array


# What tn_read and tn_write copy, of this machine's byte order.
COPIED = {np.dtype(np.float32): Dtype.F32, np.dtype(np.float64): Dtype.F64, np.dtype(np.int32): Dtype.I32}


def copied(name):
    function = getattr(objects.lib, "tn_" + name)

    def call(self, array):
        dtype = COPIED.get(getattr(array, "dtype", None))
        if dtype is None or not array.flags.c_contiguous or name == "read" and not array.flags.writeable:
            raise TensornetError(f"{name}: array: expected a contiguous array of float32, float64 or int32"
                                 f"{' that may be written' * (name == 'read')}, not {arrays.type_of(array)} of "
                                 f"{getattr(array, 'dtype', None)} with strides {getattr(array, 'strides', None)}",
                                 Status.ERR_DTYPE)
        if array.shape != self.shape:
            raise TensornetError(f"{name}: array: the array is {list(array.shape)} but the tensor is {list(self.shape)}",
                                 Status.ERR_SHAPE)
        ctx = self._ctx
        with ctx._lock:
            ctx._collect()
            ctx._check(function(self._address, dtype, array.ctypes.data, array.size))
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"tn_{name}(t, array)\n\n{header['functions']['tn_' + name]['doc']}"
    return call


def tensor_from(self, shape, as_, numbers):
    """An arena tensor of numbers of type as_, one for each element, row-major; tensor() takes any array"""
    dtype = objects.enum_of("tn_dtype", as_, "tensor_from: as")
    if dtype == Dtype.REAL:
        dtype = self.dtype()
    base = {Dtype.F32: "float", Dtype.F64: "double", Dtype.I32: "int32_t"}.get(dtype)
    if not base:
        raise TypeError("tensor_from: as: expected F32, F64, I32 or REAL")
    extents = arrays.numbers("int64_t", shape, True, "tensor_from: shape").tolist()
    array = arrays.numbers(base, numbers, True, "tensor_from: numbers")
    arrays.check_length("tensor_from: numbers", array, math.prod(extents))
    return self.tensor(array.reshape(extents), Dtype.I32 if base == "int32_t" else None)


def index(self, key):
    """t[1], t[2:5], t[:, ::2]: views along the axes, as in NumPy, without new axes and lists."""
    at, view = 0, self
    for part in key if isinstance(key, tuple) else (key,):
        extent = view.shape[at] if at < view.rank else 0
        if isinstance(part, slice):
            start, stop, step = part.indices(extent)
            view = view.slice_step(at, start, stop, step) if step != 1 else view.slice(at, start, max(start, stop))
            at += 1
        else:
            one = np.arange(extent)[part]                       # the range check and negative indices of NumPy
            shape = view.shape
            view = view.slice(at, int(one), int(one) + 1)
            view = (view if view.is_contiguous() else view.copy()).reshape(shape[:at] + shape[at + 1:])
    return view


def length(self):
    if not self.rank:
        raise TypeError("a tensor without axes has no length")
    return self.shape[0]


def truth(self):
    raise TypeError("a tensor is neither true nor false: t.item() is its number, `t is None` says whether there is one")


def binary(function, reverse=False):
    def call(self, other):
        ctx = self._ctx
        if not isinstance(other, Tensor):
            other = ctx.tensor(np.asarray(other, float))
        return getattr(ctx, function)(*((other, self) if reverse else (self, other)))
    return call


Tensor.numpy, Tensor.__getitem__, Tensor.__array_priority__ = numpy, index, 100
Tensor.__array__ = lambda self, dtype=None, copy=None: numpy(self, copy is not False).astype(dtype or None, copy=False)
Tensor.shape = property(lambda self: tuple((f := self._fields()).shape[:f.rank]))
Tensor.T = property(lambda self: self.transpose(0, 1))
Tensor.__len__ = length
Tensor.__bool__ = truth
Tensor.__index__ = lambda self: operator.index(self.numpy().item())
Tensor.__float__ = lambda self: self.item()
Tensor.__neg__ = lambda self: self.scale(-1)
for sign, function in {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "matmul": "matmul"}.items():
    setattr(Tensor, f"__{sign}__", binary(function))
    setattr(Tensor, f"__r{sign}__", binary(function, True))


def freeze(self, pattern):
    ctx, text = self._ctx, arrays.text(pattern, "freeze: pattern").decode(errors="replace")
    with ctx._lock:
        params = [self.at(i) for i in range(self.count())]
        fits = [fnmatch.fnmatchcase(p.name, re.sub(r"([?[])", r"[\1]", text + "*" * ("*" not in text))) for p in params]
        freed = {p.value._fields().grad for p, one in zip(params, fits) if one} - {None}
        ending = [grad for grad in ctx._gradients if grad._at in freed]
        for grad in ending:
            ctx._check_views(grad)
        count = self._freeze(pattern)
        for grad in ending:
            grad._at = None
    return count


# ---- texts

def encode(self, text, bos=0):
    """The ids of a text, int32"""
    text = arrays.text(text, "encode: text", True)
    ids = np.empty(len(text) + len(text) // 2 + 2, np.int32)
    count = self._encode(text, bos, ids)
    return ids[:count]


def decode(self, ids):
    """The text of ids"""
    text = np.empty(self._decode(ids) + 1, np.uint8)
    self._decode(ids, text)
    return text[:-1].tobytes().decode(errors="replace")


globals().update(functions.attach())
Context.tensor_from = tensor_from
Tensor.read, Tensor.write = copied("read"), copied("write")
freeze.__doc__ = Params.freeze.__doc__ + "\n\nIt ends the objects of these gradients; BufferError while an array looks at one."
Params._freeze, Params.freeze = Params.freeze, freeze
Tokenizer = classes["tn_tokenizer"]
Tokenizer._encode, Tokenizer.encode = Tokenizer.encode, encode
Tokenizer._decode, Tokenizer.decode = Tokenizer.decode, decode


# ---- circuits

def top_many(self, descs):
    """The entries of 1 to 4 descs, a list of dicts, while the matrix is computed once"""
    ctx, keep, descs = self._ctx, [], arrays.listed(descs, "top_many: descs")
    with ctx._lock:
        ctx._collect()
        found = (objects.structs["tn_circuit_entries"] * len(descs))()
        filled = (objects.structs["tn_circuit_top_desc"] * len(descs))(
            *(ctx._fill("tn_circuit_top_desc", desc, keep, f"top_many: descs[{i}]") for i, desc in enumerate(descs)))
        ctx._check(objects.lib.tn_circuit_top_many(self._address, len(found), ctypes.addressof(filled),
                                               ctypes.addressof(found)), "top_many")
        return [classes["tn_circuit_entries"](ctx, one, (self,), keep, True) for one in found]


classes["tn_circuit"].top_many = top_many


# ---- transformers

def points(list_points):
    def call(self, *sizes):
        """The points of a forward pass, or the parts of an attribution, as (name, shape)"""
        found = (objects.structs["tn_point"] * list_points(self, *sizes, None))()
        list_points(self, *sizes, found)
        return [(point.name.decode(), tuple(point.shape[:point.rank])) for point in found]
    return call


Transformer = classes["tn_transformer"]
Transformer.points, Transformer.parts = points(Transformer.points), points(Transformer.parts)


# ---- in a notebook

classes["tn_image"]._repr_svg_ = svg
Params.look, Transformer.look = look_at_params, look_at_transformer
