"""Tensors as NumPy's users expect them: indices, operators, comparisons, reductions, and DLPack in both directions.

What the library has an op for is that op, and has gradients. Comparisons, `any` and `all` give arrays of NumPy. Whatever else an
array of NumPy can do is an AttributeError that says what to write instead; docs/howto.md has the table.
"""
import math
import operator

import numpy as np

from . import arrays, dlpack, objects
from .objects import Dtype, Status, Tensor, TensornetError, header

# What tn_read and tn_write copy, of this machine's byte order.
COPIED = {np.dtype(np.float32): Dtype.F32, np.dtype(np.float64): Dtype.F64, np.dtype(np.int32): Dtype.I32}


I32 = int(Dtype.I32)


def is_whole(t):
    """Whether a tensor has integers, for which there are few ops"""
    return t._fields().dtype == I32


# ---- numbers

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
        self._ctx._views[next(self._ctx._serial)] = view
        return np.asarray(view)
    array = np.empty(self.shape, np.float32 if self.dtype == Dtype.BF16 else objects.NUMPY[self.dtype])
    if array.size:
        self.read(array)
    return array


def item(self):
    """The only number: a float, of integers an int"""
    return int(self._item()) if is_whole(self) else self._item()


def as_array(self, dtype=None, copy=None):
    array = numpy(self, copy is not False)
    return array if dtype is None else array.astype(dtype, copy=False)


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


# ---- indices

def plain(key):
    """A part of an index as NumPy has it"""
    return key.numpy() if isinstance(key, Tensor) and key.rank else key


def is_basic(part):
    """Whether a part of an index gives a view: an integer, a slice, an ellipsis or None"""
    return part is None or part is ... or isinstance(part, slice) or (
        not isinstance(part, (bool, np.bool_, list, tuple, np.ndarray)) and hasattr(part, "__index__"))


def parts_of(self, key):
    """An index as NumPy has it, its parts, one for each axis, and NumPy's view of an array of this shape, which checks them"""
    key = tuple(map(plain, key)) if isinstance(key, tuple) else (plain(key),)
    probe = np.broadcast_to(False, self.shape)
    parts = [part for part in key if part is not None]
    if all(map(is_basic, key)):
        probe = probe[key]
    if not any(part is ... for part in parts):
        parts.append(...)
    at = next(i for i, part in enumerate(parts) if part is ...)
    rest = parts[:at] + [slice(None)] * (self.rank + 1 - len(parts)) + parts[at + 1:]
    return key, rest, probe


def sliced(self, parts):
    """The view of integers and slices, one for each axis; integers leave an axis of one element"""
    view = self
    for axis, part in enumerate(parts):
        if part == slice(None):
            continue
        if isinstance(part, slice):
            start, stop, step = part.indices(view.shape[axis])
            view = view.slice_step(axis, start, stop, step) if step != 1 else view.slice(axis, start, max(start, stop))
        else:
            at = operator.index(part) % view.shape[axis]
            view = view.slice(axis, at, at + 1)
    return view


def index(self, key):
    """t[1], t[2:5], t[..., ::2], t[None]: views, which copies replace where the numbers do not lie in order. t[mask] and
    t[[2, 0]]: copies, with gradients"""
    key, parts, probe = parts_of(self, key)
    if all(map(is_basic, key)):
        return shaped(sliced(self, parts), probe.shape)
    arrayed = [axis for axis, part in enumerate(parts) if not is_basic(part)]
    if is_whole(self):
        return self._ctx.tensor(self.numpy()[key])
    if len(arrayed) == 1 and all(part is ... or isinstance(part, slice) or not is_basic(part) for part in key):
        ids = np.asarray(parts[arrayed[0]])
        if ids.dtype.kind in "iu" or ids.ndim == 1:         # along one axis
            ids = np.arange(self.shape[arrayed[0]])[parts[arrayed[0]]]
            parts[arrayed[0]] = slice(None)
            return sliced(self, parts).gather(arrayed[0], ids)
    return shaped(self, (self.size,)).gather(0, np.arange(self.size).reshape(self.shape)[key])


def assign(self, key, value):
    """t[key] = value: numbers, an array or a tensor, which are broadcast. It is not recorded."""
    key, parts, probe = parts_of(self, key)
    value = value.numpy() if isinstance(value, Tensor) else arrays.array(value, "value")
    if value.dtype.kind not in "fiub":
        raise TypeError(f"value: expected numbers, not {value.dtype}")
    if all(map(is_basic, key)):
        view = sliced(self, parts)
        view.write(written(self, np.broadcast_to(value, probe.shape)).reshape(view.shape))
    else:
        array = self.numpy()
        array[key] = written(self, value)
        self.write(array)


def written(self, array):
    """Numbers as write() takes them; floats for integers are refused there, unless they are whole"""
    if is_whole(self) and array.dtype.kind in "iub":
        return arrays.numbers("int32_t", np.ascontiguousarray(array), True, "value")
    return np.array(array, np.float32 if array.dtype == np.float32 else np.float64, order="C")


# ---- shapes

def shaped(self, shape):
    """The same numbers in another shape: a view, or a copy where they do not lie in order"""
    return self if self.shape == tuple(shape) else (self if self.is_contiguous() else self.copy())._reshape(list(shape))


def reshape(self, *shape):
    """t.reshape(2, 3), t.reshape((2, -1)): the same numbers, row by row; a view, or a copy where they do not lie in order"""
    return shaped(self, shape[0] if len(shape) == 1 and hasattr(shape[0], "__len__") else shape)


def transpose(self, *axes):
    """t.transpose(a, b): these two axes exchanged, as in PyTorch; t.transpose(): in reverse order; t.transpose((2, 0, 1)): in
    this order. Views."""
    if len(axes) == 2:
        return self._transpose(*axes)
    order = axes[0] if len(axes) == 1 and hasattr(axes[0], "__len__") else axes or range(self.rank)[::-1]
    order = np.arange(self.rank)[list(order)].tolist()      # negative ones count from the end
    view, now = self, list(range(self.rank))
    if sorted(order) != now:
        raise ValueError(f"transpose: the axes are {axes}, expected each of {self.rank} once")
    for at, axis in enumerate(order):
        other = now.index(axis)
        if other != at:
            view = view._transpose(at, other)
            now[at], now[other] = now[other], now[at]
    return view


def squeeze(self, axis=None):
    """Without axes of one element: all of them, or these"""
    return shaped(self, np.broadcast_to(False, self.shape).squeeze(axis).shape)


def astype(self, dtype):
    """A copy as F32, F64, BF16 or I32: t.astype("f64"), t.astype(np.int32)"""
    kind = dtype if isinstance(dtype, (str, int)) else COPIED.get(np.dtype(dtype))
    if kind is None:
        raise TypeError(f"astype: dtype: expected float32, float64, int32 or a tn.Dtype, not {dtype}")
    return self.cast(kind)


# ---- operators

def operand(self, value):
    """The other operand as a tensor; None: it is no number and no array"""
    if isinstance(value, Tensor):
        return value
    try:
        array = arrays.array(value, "b")
    except TypeError:
        return None
    if array.dtype.kind not in "fiub":
        return None
    return self._ctx.tensor(array)


def binary(function, of_integers=None, reverse=False):
    def call(self, value):
        other = operand(self, value)
        if other is None:
            return NotImplemented
        a, b = (other, self) if reverse else (self, other)
        whole = is_whole(a), is_whole(b)
        if any(whole):
            if all(whole) and of_integers:
                return self._ctx.tensor(of_integers(a.numpy().astype(np.int64), b.numpy()))
            a, b = (one.cast("real") if is_whole(one) else one for one in (a, b))
        return function(self._ctx, a, b)
    return call


def times(general):
    """The same for a number of Python, which is no tensor"""
    def call(self, value):
        return self.scale(value) if type(value) in (int, float) and not is_whole(self) else general(self, value)
    return call


def product(ctx, a, b):
    """a @ b; a vector is a row on the left and a column on the right, as in NumPy"""
    if not a.rank or not b.rank:
        raise TypeError("matmul: expected axes on both sides; * multiplies by a number")
    left, right = (a if a.rank > 1 else a[None]), (b if b.rank > 1 else b[:, None])
    result = ctx.matmul(left, right)
    shape = list(result.shape)
    if a.rank == 1:
        del shape[-2]
    if b.rank == 1:
        del shape[-1]
    return shaped(result, shape)


def power(self, exponent):
    """t ** 3, t ** -1, t ** 0.5, and of positive numbers t ** 1.7"""
    if is_whole(self):
        return self._ctx.tensor(self.numpy().astype(np.int64) ** exponent)
    exponent = arrays.scalar("double", exponent, "the exponent; of tensors write (t.log() * p).exp(), for positive t")
    if exponent == 0.5:
        return self.sqrt()
    if not exponent.is_integer():
        return (self.log() * exponent).exp()                # NaN below zero, as in NumPy
    result, factor, n = None, self, abs(int(exponent))
    while n:
        result = factor if n & 1 and result is None else result * factor if n & 1 else result
        n >>= 1
        factor = factor * factor if n else factor
    result = self._ctx.full(self.shape, 1) if result is None else result
    return 1 / result if exponent < 0 else result


def exponential(self, base):
    """2 ** t"""
    base = arrays.scalar("double", base, "the base")
    if base <= 0:
        raise ValueError(f"the base of a power is {base}, expected a positive number")
    return (self * math.log(base)).exp()


def remainder(function):
    def call(self, other):
        if not is_whole(self):
            raise TypeError(f"{function.__name__}: expected I32: write np.{function.__name__}(t.numpy(), ...), which has no "
                            "gradient")
        return self._ctx.tensor(function(self.numpy(), plain(other)))
    return call


def comparison(function):
    def call(self, other):
        if other is None or isinstance(other, (str, bytes, dict, set)):
            raise TypeError(f"a tensor is compared with numbers, arrays or tensors, not with {arrays.type_of(other)}: "
                            "`t is None` says whether there is one")
        if isinstance(other, (int, float)):                 # these do not widen an array of float32
            return function(self.numpy(), other)
        array = other.numpy() if isinstance(other, Tensor) else arrays.array(other, "the other side")
        if array.dtype.kind not in "fiub":
            raise TypeError(f"a tensor is compared with numbers, not with {arrays.type_of(other)}")
        return function(self.numpy(), array)
    call.__doc__ = "Elementwise: an array of True and False"
    return call


def truth(self):
    raise TypeError("a tensor is neither true nor false: t.item() is its number, `t is None` says whether there is one, "
                    "(t == x).all() compares all")


def length(self):
    if not self.rank:
        raise TypeError("a tensor without axes has no length")
    return self.shape[0]


# ---- reductions

def over(self, axis, name):
    """The axes of a reduction, the last one first"""
    if axis is None:
        return range(self.rank)[::-1]
    axes = axis if isinstance(axis, (tuple, list, range)) else (axis,)
    axes = [arrays.integer("int", one, f"{name}: axis") for one in axes]
    if any(not -self.rank <= one < self.rank for one in axes) or len({one % self.rank for one in axes}) < len(axes):
        raise ValueError(f"{name}: axis is {axis}, expected each of the {self.rank} axes at most once")
    return sorted((one % self.rank for one in axes), reverse=True)


def reduction(name, of_integers):
    def decorate(reduce):
        def call(self, axis=None, keepdims=False):
            axes = over(self, axis, name)
            if is_whole(self):
                return self._ctx.tensor(of_integers(self.numpy(), tuple(axes), keepdims=keepdims))
            result = reduce(self, axes)
            if axis is None and not keepdims and not result.rank:
                return result
            shape = [1 if i in axes else n for i, n in enumerate(self.shape)] if keepdims else [
                n for i, n in enumerate(self.shape) if i not in axes]
            return shaped(result, shape)
        call.__name__ = call.__qualname__ = name
        call.__doc__ = reduce.__doc__
        return call
    return decorate


@reduction("sum", np.sum)
def total(self, axes):
    """The sum over all axes, or over one or some of them: t.sum(axis=(0, -1), keepdims=True)"""
    if len(axes) == self.rank:
        return self._ctx.sum(self)
    for axis in axes:
        self = self.sum_axis(axis)
    return self


@reduction("mean", np.mean)
def mean(self, axes):
    """The mean, over axes as in sum()"""
    if len(axes) == self.rank:
        return self._ctx.mean(self)
    return total(self, axis=axes).scale(1 / (math.prod(self.shape[axis] for axis in axes) or math.nan))


@reduction("var", np.var)
def variance(self, axes):
    """The mean square of the distance from the mean, over axes as in sum()"""
    apart = self - mean(self, axis=axes, keepdims=True)
    return mean(apart * apart, axis=axes)


@reduction("std", np.std)
def deviation(self, axes):
    """The square root of var()"""
    return variance(self, axis=axes).sqrt()


@reduction("max", np.max)
def largest(self, axes):
    """The largest number, NaN where there is one, over axes as in sum(); gradients go to the first of equals"""
    for axis in axes:
        if not self.shape[axis]:
            raise ValueError(f"max: axis {axis} has no elements")
        self = self.topk(axis, 1)[0]
    return self


@reduction("min", np.min)
def smallest(self, axes):
    """The smallest number, NaN where there is one, over axes as in sum(); gradients go to the first of equals"""
    return largest(self.scale(-1), axis=axes).scale(-1)


def place(name, function, order):
    def call(self, axis=...):
        if axis is ...:
            if self.rank > 1:
                raise TypeError(f"{name}: expected axis=: -1 is the last one, None all numbers in one row, as in NumPy")
            axis = -1
        return self._ctx.tensor(function(self.numpy(), axis=axis))
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"The place of the {order} number along an axis, I32; of equals the first"
    return call


def exported(self, **options):
    """The tensor's own bytes, for from_dlpack of PyTorch, JAX or NumPy. They are not freed while that looks at them."""
    capsule = numpy(self, copy=False).__dlpack__(**options)
    if self.dtype == Dtype.BF16:
        dlpack.recode(capsule, dlpack.UNSIGNED, dlpack.BFLOAT)
    return capsule


# ---- all of it

def attach():
    """Gives Tensor these methods; those of C that they replace stay as _reshape, _transpose and _item"""
    Tensor._reshape, Tensor._transpose, Tensor._item = Tensor.reshape, Tensor.transpose, Tensor.item
    Tensor.read, Tensor.write = copied("read"), copied("write")
    for method in (numpy, item, reshape, transpose, squeeze, astype):
        setattr(Tensor, method.__name__, method)
    Tensor.sum, Tensor.mean, Tensor.var, Tensor.std = total, mean, variance, deviation
    Tensor.max, Tensor.min = largest, smallest
    Tensor.argmax, Tensor.argmin = place("argmax", np.argmax, "largest"), place("argmin", np.argmin, "smallest")
    Tensor.any = lambda self, axis=None: self.numpy().any(axis)
    Tensor.all = lambda self, axis=None: self.numpy().all(axis)
    Tensor.tolist = lambda self: self.numpy().tolist()
    Tensor.flatten = Tensor.ravel = lambda self: shaped(self, (self.size,))
    Tensor.swapaxes = Tensor._transpose
    Tensor.shape = property(lambda self: tuple((f := self._fields()).shape[:f.rank]))
    Tensor.ndim = property(lambda self: self.rank)
    Tensor.size = property(lambda self: math.prod(self.shape))
    Tensor.T = property(transpose)
    Tensor.mT = property(lambda self: self._transpose(-1, -2))
    Tensor.__array__ = as_array
    Tensor.__array_priority__ = 100
    Tensor.__dlpack__, Tensor.__dlpack_device__ = exported, lambda self: numpy(self, copy=False).__dlpack_device__()
    Tensor.__getitem__, Tensor.__setitem__, Tensor.__len__, Tensor.__bool__ = index, assign, length, truth
    Tensor.__iter__ = lambda self: (self[i] for i in range(length(self)))
    Tensor.__contains__ = lambda self, value: bool((self == value).any())
    Tensor.__index__ = lambda self: operator.index(self.numpy().item())
    Tensor.__int__ = lambda self: int(self.numpy().item())
    Tensor.__float__ = lambda self: float(self.numpy().item())
    Tensor.__format__ = lambda self, form: format(self.item() if form and not self.rank else str(self), form)
    Tensor.__neg__, Tensor.__pos__ = (lambda self: 0 - self if is_whole(self) else self.scale(-1)), lambda self: self
    Tensor.__abs__ = lambda self: (self._ctx.tensor(abs(self.numpy())) if is_whole(self) else self.activation("abs"))
    Tensor.round = lambda self, decimals=0: (self * 10.0 ** decimals).activation("round") / 10.0 ** decimals
    Tensor.__pow__, Tensor.__rpow__ = power, exponential
    for sign, what in {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": None}.items():
        function = getattr(objects.Context, "div" if sign == "truediv" else sign)
        setattr(Tensor, f"__{sign}__", binary(function, what))
        setattr(Tensor, f"__r{sign}__", binary(function, what, True))
    Tensor.__mul__, Tensor.__rmul__ = times(Tensor.__mul__), times(Tensor.__rmul__)
    Tensor.__matmul__, Tensor.__rmatmul__ = binary(product), binary(product, None, True)
    Tensor.__floordiv__, Tensor.__mod__ = remainder(np.floor_divide), remainder(np.remainder)
    for sign in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(Tensor, f"__{sign}__", comparison(getattr(operator, sign)))
    Tensor.__hash__ = object.__hash__
