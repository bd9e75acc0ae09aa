"""The objects of tensornet.h in Python. Nearly all of it is made from the declarations: a function whose first argument is a
tn_cp is a method of Cp, and so on; functions.py says how arguments and results become Python's.

Who owns what: a context owns everything, and every object holds its context. What C calls owned is freed when its Python
object goes, or by close() or the end of a `with`. Arena tensors end with ctx.reset(), or with the `with ctx.scratch():` they
were made in. What ends takes its views along: later uses raise TensornetError, and never reach C.
"""
import contextlib
import ctypes
import keyword
import threading
import weakref

import numpy as np

from . import arrays
from .abi import callback, class_name, enums, header, lib, prefix, structs

KINDS = arrays.KINDS
Status, Dtype = enums["tn_status"], enums["tn_dtype"]
OWNED, PARAM = 1, 8                                 # of tn_tensor.flags
# Pointers to arrays of structs or objects inside of structs: the field that counts them.
COUNTED = {("tn_transformer", "blocks"): "desc.layers", ("tn_deep", "layer"): "desc.layers", ("tn_tt", "core"): "count",
           ("tn_circuit_frozen", "block"): "layers", ("tn_circuit_ratio", "x"): "frozen.tokens"}
# Fields that programs may change; what does it for others.
WRITABLE = {("tn_param", "lr_scale"), ("tn_param", "decay_scale"), ("tn_param", "adamw")}
SET_BY = {("tn_param", "frozen"): "params.freeze(pattern) does that"}
NUMPY = {Dtype.F32: np.float32, Dtype.F64: np.float64, Dtype.BF16: np.uint16, Dtype.I32: np.int32}
# What to write where Python would copy or pickle.
INSTEAD = {"tn_tensor": ": copy() makes a tensor of the same numbers, and t.numpy() can be pickled",
           "tn_params": ": save(path) writes them, and tn.load(path) or load(path) reads them"}
classes = {}


class TensornetError(Exception):
    """What a failed call says: `status` is a Status, the text is the message of the context."""
    status: Status

    def __init__(self, message, status=Status.ERR_ARG):
        super().__init__(message)
        self.status = status


class Object:
    """Something of C: a struct or what a pointer leads to. Fields are attributes (`in_` where Python has a keyword)."""
    c_name = layout = destroy = None
    _count = 1                                      # of the structs that it points to

    def __init__(self, ctx, memory, owners=(), keep=(), owned=False):
        """memory: an address, or a ctypes struct, which then belongs to this object; owners: what it ends with"""
        at, serial = memory if isinstance(memory, int) else ctypes.addressof(memory), next(ctx._serial)
        # A finalizer may run in any thread and inside any call, so it only notes what the next call frees.
        end = weakref.finalize(self, ctx._dead.append, (serial, self.destroy, memory)) if owned and self.destroy else None
        self.__dict__.update(_ctx=ctx, _owners=owners, _keep=keep, _memory=memory, _at=at, _end=end, _serial=serial)
        if end:
            for owner in owners:                            # it is freed before they are
                owner.__dict__.setdefault("_owned", weakref.WeakValueDictionary())[serial] = self

    @property
    def _address(self):
        if self._at is None:
            raise TensornetError(f"{self.c_name}: it was freed, or the arena that it lived in was reset")
        for owner in self._owners:
            owner._address
        self._ctx._handle
        return self._at

    @property
    def ctx(self):
        return self._ctx

    def _fields(self):
        if not self.layout:
            raise AttributeError(f"{self.c_name} has no public fields")
        return self.layout.from_address(self._address)

    def close(self) -> None:
        """Frees the object now, and what ends with it. A second call does nothing."""
        with self._ctx._lock:
            if self._end and self._end.alive and self._at is not None:
                self._ctx._check_views(self)
                self._finish()
                self._at = None
                self._ctx._collect()

    def _finish(self):
        for owned in list(self.__dict__.get("_owned", {}).values()):
            owned._finish()
        self._end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __getattr__(self, name):
        kind = self.kinds.get(name.rstrip("_")) if not name.startswith("__") and self.kinds else None
        if kind is None:
            raise AttributeError(f"{self.c_name} has no field or function {name}" + (
                f": t.numpy().{name} is NumPy's, without gradients"
                if self.c_name == "tn_tensor" and hasattr(np.ndarray, name) else ""))
        return self._ctx._field(self, name.rstrip("_"), kind)

    def __setattr__(self, name, value):
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        elif (self.c_name, name) in WRITABLE:
            setattr(self._fields(), name, arrays.scalar(self.kinds[name][0], value, f"{self.c_name}.{name}"))
        else:
            raise AttributeError(f"{self.c_name}.{name} cannot be set: " + SET_BY.get((self.c_name, name), (
                "settings are given to the function that makes the object, numbers by write() of a tensor")))

    def __reduce_ex__(self, protocol):
        raise TypeError(f"{self.c_name}: it belongs to its context, and cannot be copied or pickled by Python"
                        + INSTEAD.get(self.c_name, ""))

    def __dir__(self):
        return [*super().__dir__(), *(name + "_" * keyword.iskeyword(name) for name in self.kinds or ())]


destroys = {f["arguments"][0][1][0]: staticmethod(getattr(lib, c_name)) for c_name, f in header["functions"].items()
            if c_name.endswith(("_destroy", "_close"))}
for c_name in [*structs, *header["opaque"]]:
    classes[c_name] = type(class_name(c_name), (Object,), {
        "__module__": "tensornet", "c_name": c_name, "layout": structs.get(c_name),
        "kinds": dict(header["structs"].get(c_name, ())), "destroy": destroys.get(c_name)})
# What functions return a pointer to, or what only pointers lead to; all other structs are filled by their caller.
POINTED = {f["result"][0] for f in header["functions"].values() if f["result"][1]} & {*classes} | {*header["opaque"]}
# What only functions fill; a struct that is neither this nor POINTED may be given as a dict.
FILLED = {base for f in header["functions"].values() for _, (base, stars, const, _) in f["arguments"]
          if stars == 1 and not const and base in structs and not base.endswith("_desc")} | {"tn_comm"}
Tensor, Params = classes["tn_tensor"], classes["tn_params"]


class _Memory:
    """The bytes of a tensor for NumPy: while an array looks at them, they cannot be freed."""

    def __init__(self, tensor, interface):
        self.tensor, self.__array_interface__ = tensor, interface


class Context(Object):
    """A context: memory, backend, random numbers. Settings are those of tn_desc: Context(seed=7, dtype="f64", threads=2)"""
    c_name, kinds = "tn_ctx", {}
    _stray = []                                     # what functions raised that belong to no context, as of tn.sink_calls

    def __init__(self, **desc):
        self._lock, self._calls, self._dead, self._alive = threading.RLock(), [], [], []
        self._arena, self._views = weakref.WeakValueDictionary(), weakref.WeakValueDictionary()     # by serial number
        self._serial, self._raised, self._recording = iter(range(1 << 62)), [], False
        # Functions that backward may call again; the objects of tensors that are not of the arena, by address.
        self._recorded, self._known, self._gradients = [], weakref.WeakValueDictionary(), weakref.WeakValueDictionary()
        # What functions of Python returned to the call of C that is under way, and when those that have not yet returned began.
        self._returned, self._inside = [], []
        self._owners, self._keep, self._at = (), [], 0
        address, why = ctypes.c_void_p(), ctypes.create_string_buffer(header["constants"]["TN_WHY"])
        filled = self._fill("tn_desc", desc, self._keep, "Context")
        status = lib.tn_ctx_create(ctypes.byref(filled), ctypes.byref(address), why)
        if status:
            raise TensornetError(why.value.decode(), Status(status))
        self._alive.append(address.value)           # until the context ends
        self._end = weakref.finalize(self, lambda alive: lib.tn_ctx_destroy(alive.pop()), self._alive)
        self._host = lib.tn_ctx_backend_name(address.value) in (b"cpu", b"reference")

    def __getattr__(self, name):
        raise AttributeError(f"a context has no function {name}")

    def __dir__(self):
        return object.__dir__(self)

    @property
    def _handle(self):
        if not self._alive:
            raise TensornetError("the context is closed")
        return self._alive[0]

    @property
    def _address(self):
        return self._handle

    @property
    def _ctx(self):                                 # no attribute: a context that is dropped ends at once, without a cycle
        return self

    # ---- what ends

    def close(self) -> None:
        """Frees the context and all that it owns. A second call does nothing."""
        with self._lock:
            if self._alive:
                self._check_views(self)
                self._check_callback("close", -1)
                self._end()

    def reset(self) -> None:
        """Frees all arena tensors and the tape, and keeps their memory for the next step."""
        with self._lock:
            self._check_views()
            self._check_callback("reset", -1)
            lib.tn_ctx_reset(self._handle)
            self._recording = False
            self._recorded.clear()
            self._expire(-1)

    def record(self) -> None:
        """Starts the recording of ops; noise and dropout act. Until the end of backward nothing that is dropped is freed."""
        with self._lock:
            self._collect()
            lib.tn_record(self._handle)
            self._check()
            self._recording = True

    def backward(self, loss: Tensor) -> None:
        """Adds d loss / d t to t.grad of every recorded t that needs it, and ends the recording; loss has one element."""
        if not isinstance(loss, Tensor):
            raise TypeError(f"backward: loss: expected a tensor, not {arrays.type_of(loss)}")
        with self._lock:
            name, keep = "backward: loss", []
            loss = self._pass(self._read(("tn_tensor", 1, False), loss, keep, name), keep, name)
            status = lib.tn_backward(self._handle, loss)
            self._check(status, "backward")
            self._recording = False
            self._recorded.clear()

    @contextlib.contextmanager
    def scratch(self):
        """with ctx.scratch(): frees the arena tensors that are made inside. Not while recording."""
        mark = self.arena_mark()
        try:
            yield
        finally:
            self.arena_release(mark)

    def arena_release(self, mark) -> None:
        """Frees the arena tensors that were made after the mark."""
        if not isinstance(mark, classes["tn_mark"]) or mark._ctx is not self:
            raise TypeError("arena_release: mark: expected what arena_mark() of this context returned")
        serial = mark._serial
        with self._lock:
            self._check_views(since=serial)
            self._check_callback("arena_release", serial)
            status = lib.tn_arena_release(self._handle, mark._fields())
            self._check(status)
            self._expire(serial)

    def _expire(self, serial):
        for later, tensor in list(self._arena.items()):
            if later > serial:
                tensor._at = None
                self._arena.pop(later, None)

    def _check_views(self, ending=None, since=-1):
        """Refuses to free bytes that arrays of NumPy look at; ending: what is freed, None: the arena"""
        def ends(o):
            return o is ending or ending is self or any(map(ends, o._owners)) or (
                ending is None and o._serial in self._arena and o._serial > since)
        seen = sum(ends(view.tensor) for view in list(self._views.values()))
        if seen:
            raise BufferError(f"{seen} arrays look at memory that this frees; take copies: t.numpy()")

    def _check_callback(self, name, since):
        """Refuses to free, in a function that C called or in what reads arguments, what C had made before"""
        if self._inside and since < self._inside[-1]:
            raise TensornetError(f"{name}: this was called by a callback or by an argument, and would free what its caller "
                                 "needs")

    def _collect(self):
        with self._lock:
            if not self._alive:                             # the context has freed all of it
                self._dead.clear()
            while self._dead and not self._calls and not self._recording:       # a recording may need what is dropped
                self._dead.sort(key=lambda dead: dead[0])      # what was made last is freed first
                _, destroy, memory = self._dead.pop()
                destroy(memory if isinstance(memory, int) else ctypes.byref(memory))

    # ---- from C

    def _check(self, status=0, name=""):
        """Raises what a function of Python raised that C called, or the error of the context, which is then forgotten"""
        raised, ctx = self._raised or self._stray, self._handle
        said = lib.tn_ctx_status(ctx)
        message = lib.tn_ctx_error(ctx).decode(errors="replace") if said else ""
        if said:
            lib.tn_ctx_clear_error(ctx)
        if raised:
            error = raised[0]
            raised.clear()
            raise error
        if said or status:
            status = Status(said or status)
            raise TensornetError(message or f"{name}: {lib.tn_status_name(status).decode()}", status)

    def _object(self, c_name, address, owners=(), keep=(), owned=True):
        """The Python object of a pointer; None for NULL"""
        if not address:
            return None
        if c_name == "tn_ctx":
            return self
        if c_name != "tn_tensor":
            return classes[c_name](self, address, owners, keep, owned)
        arena = not structs[c_name].from_address(address).flags & OWNED
        tensor = Tensor(self, address, owners, keep, owned and not arena)
        if arena:
            self._arena[tensor._serial] = tensor
        else:
            self._known[address] = tensor
        return tensor

    def _lent(self, c_name, address, lent):
        """The object that a callback gets: the caller's own if there is one; lent: those that end with the callback"""
        known = self._known.get(address) if c_name == "tn_tensor" and address else None
        try:
            if known is not None and known._address == address:
                return known
        except TensornetError:                              # it ended
            pass
        made = self._object(c_name, address, owned=False)
        if isinstance(made, Object) and made is not self and made._serial not in self._arena:
            lent.append(made)
        return made

    def _field(self, holder, name, kind):
        base, stars, const, extents = kind
        value = getattr(holder._fields(), name)
        place = holder._address + getattr(holder.layout, name).offset
        if extents and base != "char":
            size = ctypes.sizeof(value) // extents[0]
            return [self._value(one, base, stars, holder, place + i * size) for i, one in enumerate(value)]
        counted = COUNTED.get((holder.c_name, name))
        if counted:
            count = holder
            for part in counted.split("."):
                count = getattr(count, part)
            if stars == 2:
                array = (ctypes.c_void_p * count).from_address(value)
                return [self._object(base, address, (holder,), owned=False) for address in array]
            size = ctypes.sizeof(structs[base])
            return [classes[base](self, value + i * size, (holder,)) for i in range(count)]
        value = self._value(value, base, stars, holder, place)
        if name == "grad" and value is not None:
            self._gradients[value._serial] = value
        return value

    def _value(self, value, base, stars, holder, place):
        if stars == 1 and base in classes:
            return self._object(base, value, (holder,), owned=False)
        if not stars and base in structs:
            return classes[base](self, place, (holder,))
        if not stars and base in enums:
            return enums[base](value)
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    # ---- to C

    def tensor(self, numbers, dtype=None, keep: bool = False, _name="tensor") -> Tensor:
        """An arena tensor (keep: an owned one) of an array, a list or a number. Integers become I32, floats the context's."""
        array = numbers.numpy() if isinstance(numbers, Tensor) else arrays.array(numbers, _name)
        if array.dtype.kind not in "fiub":
            raise TensornetError(f"{_name}: an array of {array.dtype} is no tensor: expected floats, integers or bools",
                                 Status.ERR_DTYPE)
        if array.ndim > header["constants"]["TN_MAX_RANK"]:
            raise TensornetError(f"{_name}: an array has {array.ndim} axes, expected at most 8", Status.ERR_SHAPE)
        whole = array.dtype.kind != "f"
        if whole and array.size and not -1 << 31 <= int(array.min()) <= int(array.max()) < 1 << 31:
            raise TensornetError(f"{_name}: an integer does not fit into I32", Status.ERR_DATA)
        dtype = (Dtype.I32 if whole else Dtype.REAL) if dtype is None else enum_of("tn_dtype", dtype, f"{_name}: dtype")
        same = array.dtype == np.float64 or whole and dtype != Dtype.I32
        array = np.asarray(array, np.float64 if same else np.int32 if whole else np.float32, order="C")
        result = (self.tensor_create if keep else self.tensor_nd)(dtype, array.shape)
        result.write(array)
        return result

    def _fill(self, c_name, values, keep, where, sizes=None):
        """A ctypes struct of a dictionary, or of one of our structs; sizes: of arrays, by field, as a call has them"""
        if isinstance(values, Object) and values.c_name == c_name:
            keep.append(values)
            return values._fields()
        if not isinstance(values, dict):
            raise TypeError(f"{where}: expected {c_name}, or a dict of its fields, not {arrays.type_of(values)}")
        result, kinds, read, sizes = structs[c_name](), classes[c_name].kinds, {}, sizes or {}
        rules = arrays.SIZES.get(c_name, {})
        for name, value in values.items():
            name = name.rstrip("_")
            if name not in kinds:
                raise TypeError(f"{c_name} has no field {name}; it has {', '.join(kinds)}")
            if value is not None:
                base, stars, const, extents = kinds[name]
                if not extents and arrays.is_array(*kinds[name]) and name not in rules and name not in sizes:
                    raise TypeError(f"{c_name}.{name} can only be None in Python")
                read[name] = self._read((base, stars + len(extents), const or bool(extents)), value, keep, f"{c_name}.{name}")
        for name, rule in arrays.DEFAULTS.get(c_name, {}).items():
            if name not in read:
                read[name] = arrays.by_names(rule, read.get)
        for name, value in read.items():
            where, extents = f"{c_name}.{name}", kinds[name][3]
            if name in rules:
                arrays.check_length(where, value, arrays.by_names(rules[name], lambda other: read.get(other, 0)))
            elif name in sizes:
                arrays.check_length(where, value, sizes[name])
            if extents:
                if len(value) > extents[0]:
                    raise ValueError(f"{where}: it has {len(value)} elements, expected at most {extents[0]}")
                array = getattr(result, name)
                for i, one in enumerate(value.tolist() if isinstance(value, np.ndarray) else value):
                    array[i] = self._pass(one, keep, where)
            else:
                setattr(result, name, self._pass(value, keep, where))
        return result

    def _read(self, kind, value, keep, name, counted=False):
        """What is given for an argument or a field as what C takes: a number, an array of its type, bytes of a text, an
        object, a struct, or a list of these. keep: what must live as long as C may look at it; name: of the argument, for
        messages; counted: whether C knows where a text ends"""
        base, stars, const = kind
        if not stars:
            return self._one(base, value, keep, name)
        if value is None:
            return None
        if stars > 1:
            kind, inner, value = classes.get(base), (base, stars - 1, True), arrays.listed(value, name)
            value = [one if type(one) is kind and one._ctx is self else self._read(inner, one, keep, f"{name}[{i}]")
                     for i, one in enumerate(value)]
            if base != "char":
                return value
            if None in value and name != "tn_image_plot_desc.x_names":
                raise TypeError(f"{name}: expected texts, not None")
            return (ctypes.c_char_p * len(value))(*value)
        if isinstance(value, Object):
            if value.c_name != base:
                raise TypeError(f"{name}: expected {base}, not {value.c_name}")
            if value._ctx is not self and isinstance(value._ctx, Context):
                raise TensornetError(f"{name}: it belongs to another context")
            return value
        if base == "char" and const:
            return arrays.text(value, name, counted)
        if base in KINDS:
            return arrays.numbers(base, value, const, name)
        if base == "tn_tensor":
            return self.tensor(value, _name=name)
        if base in enums:
            return [enum_of(base, one, name) for one in arrays.listed(value, name)]
        if isinstance(value, ctypes.Array) and value._type_ is structs.get(base):
            return value
        if base not in structs or base in POINTED | FILLED:
            raise TypeError(f"{name}: expected {base}, not {arrays.type_of(value)}")
        value = [value] if isinstance(value, dict) else arrays.listed(value, name)
        return (structs[base] * len(value))(*(self._fill(base, one, keep, f"{name}[{i}]") for i, one in enumerate(value)))

    def _one(self, base, value, keep, name, row=None):
        """A number, a struct or a function, which C takes by value"""
        if base in header["callbacks"]:
            function = self._callback(base, value, name, row) if value is not None else None
            keep.append(function)
            return function and ctypes.cast(function, ctypes.c_void_p).value
        if base in ("tn_source", "tn_sink") and not isinstance(value, (dict, Object)):
            value = ({"data": value} if isinstance(value, (bytes, bytearray, memoryview)) else
                     {"path": arrays.text(value, name)})
        if base in structs:
            return self._fill(base, {} if value is None else value, keep, name)
        return enum_of(base, value, name) if base in enums else arrays.scalar(base, value, name)

    def _pass(self, value, keep, name):
        """What C gets of what _read returned: an address, or what it takes by value"""
        if isinstance(value, Object):
            keep.append(value)
            try:
                return value._address
            except TensornetError as error:                 # it ended
                raise TensornetError(f"{name}: {error}", error.status) from None
        if value is None or isinstance(value, (int, float, ctypes.Structure)):
            return value
        keep.append(value)
        if isinstance(value, np.ndarray):
            return value.ctypes.data
        if isinstance(value, list):
            keep.append(value := (ctypes.c_void_p * len(value))(*[self._pass(one, keep, name) for one in value]))
        return ctypes.addressof(value) if isinstance(value, ctypes.Array) else value

    def _callback(self, c_name, function, where, row=None):
        """C calls `function`; what it raises is raised again where Python called C. Arrays are copies, which may outlive the
        call; what it writes is copied back. row: the length of a row, where C says only how many there are"""
        what = header["callbacks"][c_name]
        base, stars = what["result"][:2]
        arguments = [(name, kind) for name, kind in what["arguments"] if name != "user"]
        if not callable(function):
            raise TypeError(f"{where}: expected a function, not {type(function).__name__}")
        if (base, stars) == ("void", 1) or any(kind[0] in header["callbacks"] for _, kind in arguments):
            raise TypeError(f"{where}: only functions of C can be this")

        def called(*values):
            given, written, lent, values = [], [], [], dict(zip((name for name, _ in what["arguments"]), values))
            serial = next(self._serial)
            self._inside.append(serial)
            try:
                for name, (kind, deep, const, extents) in arguments:
                    value = values[name]
                    if kind in classes and deep == 1 and not extents:
                        value = self._lent(kind, value, lent)
                    elif kind in classes and extents:
                        value = [self._lent(kind, at, lent)
                                 for at in (ctypes.c_void_p * extents[0]).from_address(value)]
                    elif deep and kind in KINDS and kind != "char" and ("count" in values or "bytes" in values):
                        count = values.get("count", values.get("bytes"))
                        value, at = np.zeros(count if row is None else (count, row), KINDS[kind]), value
                        if const:
                            ctypes.memmove(value.ctypes.data, at, value.nbytes if at else 0)
                        else:
                            written.append((at, value))
                    given.append(value.decode(errors="replace") if isinstance(value, bytes) else value)
                result = function(*given)
                for at, array in written:
                    ctypes.memmove(at, array.ctypes.data, array.nbytes)
                if result is None and c_name == "tn_tap_fn":        # it only looked
                    result = given[-1]
                if stars and result is not None:
                    result = self.tensor(result) if not isinstance(result, Object) else result
                    if result.c_name != base:
                        raise TypeError(f"{where}: it returned {result.c_name}, expected {base}")
                    self._returned.append(result)                   # C may return it in turn
                    result = result._address
                elif not stars and base != "void":
                    result = arrays.scalar("int" if base in enums else base, result or 0, where)
                if c_name in ("tn_recompute_fn", "tn_map_fn"):      # what these compute is freed when they return
                    self._expire(serial)
                return result
            except BaseException as error:                          # C knows no exceptions
                self._raised.append(error)
                return None if stars or base == "void" else int(Status.ERR_ARG) if base == "tn_status" else 0
            finally:
                self._inside.pop()
                for one in lent:
                    one._at = None
        made = callback(c_name)(called)
        if self._recording:
            self._recorded.append(made)
        return made


classes["tn_ctx"] = Context


def enum_of(base, value, name):
    """A number of an enumeration: itself, its name in Python or in C: "f64", "F64", "TN_F64" """
    if not isinstance(value, str):
        return arrays.integer("int", value, name)
    items = enums[base].__members__
    item = value.upper()
    start = prefix(header["enums"][base])
    item = item[len(start):] if item.startswith(start) else item
    found = items.get(item, items.get("_" + item))
    if found is None:
        raise ValueError(f"{name}: {base} has no {value!r}; it has {', '.join(n.lower() for n in items)}")
    return int(found)
