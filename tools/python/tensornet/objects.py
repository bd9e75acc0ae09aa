"""The objects of tensornet.h in Python. Nearly all of it is made from the declarations: a function whose first argument is a
tn_cp is a method of Cp, and so on; `wrap` below says how arguments and results become Python's.

Who owns what: a context owns everything, and every object holds its context. What C calls owned is freed when its Python
object goes, or by close() or the end of a `with`. Arena tensors end with ctx.reset(), or with the `with ctx.scratch():` they
were made in. What ends takes its views along: later uses raise TensornetError, and never reach C.
"""
import contextlib
import ctypes
import keyword
import operator
import os
import threading
import weakref

import numpy as np

from .abi import callback, class_name, enums, header, lib, prefix, structs

Status, Dtype = enums["tn_status"], enums["tn_dtype"]
OWNED = 1                                           # of tn_tensor.flags
# Pointers to arrays of structs or objects inside of structs: the field that counts them.
COUNTED = {("tn_transformer", "blocks"): "desc.layers", ("tn_deep", "layer"): "desc.layers", ("tn_tt", "core"): "count",
           ("tn_circuit_frozen", "block"): "layers"}
NUMPY = {Dtype.F32: np.float32, Dtype.F64: np.float64, Dtype.BF16: np.uint16, Dtype.I32: np.int32}
classes = {}


class TensornetError(Exception):
    """What a failed call says: `status` is a Status, the text is the message of the context."""

    def __init__(self, message, status=Status.ERR_ARG):
        super().__init__(message)
        self.status = status


class Object:
    """Something of C: a struct or what a pointer leads to. Fields are attributes (`in_` where Python has a keyword)."""
    c_name = layout = destroy = None

    def __init__(self, ctx, memory, owners=(), keep=(), owned=False):
        """memory: an address, or a ctypes struct, which then belongs to this object; owners: what it ends with"""
        self._ctx, self._owners, self._keep, self._end = ctx, owners, keep, None
        self._memory = None if isinstance(memory, int) else memory
        self._at = memory if isinstance(memory, int) else ctypes.addressof(memory)
        if owned and self.destroy:
            self._end = weakref.finalize(self, ctx._bury, next(ctx._serial), self.destroy, memory)

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

    def close(self):
        """Frees the object now. A second call does nothing."""
        if self._end and self._end.alive and self._at is not None:
            self._ctx._check_views(self)
            self._end()
            self._at = None
            self._ctx._collect()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __getattr__(self, name):
        kind = self.kinds.get(name.rstrip("_")) if not name.startswith("__") and self.kinds else None
        if kind is None:
            raise AttributeError(f"{self.c_name} has no field or function {name}")
        return self._ctx._field(self, name.rstrip("_"), kind)

    def __dir__(self):
        return [*super().__dir__(), *(name + "_" * keyword.iskeyword(name) for name in self.kinds or ())]

    def __repr__(self):
        if not self.layout or self._at is None:
            return f"<{self.c_name}>"
        shown = (f"{name}={value!r}" for name in self.kinds if not isinstance(value := getattr(self, name), (Object, list)))
        return f"<{self.c_name} {' '.join(shown)}>"


for c_name in [*structs, *header["opaque"]]:
    name = class_name(c_name)
    destroy = getattr(lib, c_name + "_destroy", None) or getattr(lib, c_name + "_close", None)
    destroy = destroy or getattr(lib, c_name[:-len("_result")] + "_destroy", None) if c_name.endswith("_result") else destroy
    classes[c_name] = type(name, (Object,), {
        "__module__": "tensornet", "c_name": c_name, "layout": structs.get(c_name),
        "kinds": dict(header["structs"][c_name]) if c_name in structs else {},
        "destroy": staticmethod(destroy) if destroy else None})
# What functions return a pointer to, or what only pointers lead to; all other structs are filled by their caller.
POINTED = {f["result"][0] for f in header["functions"].values() if f["result"][1]} & {*classes} | {*header["opaque"]}
Tensor, Params = classes["tn_tensor"], classes["tn_params"]


class _Memory:
    """The bytes of a tensor for NumPy: while an array looks at them, they cannot be freed."""

    def __init__(self, tensor, interface):
        self.tensor, self.__array_interface__ = tensor, interface


class Context(Object):
    """A context: memory, backend, random numbers. Settings are those of tn_desc: Context(seed=7, dtype="f64", threads=2)"""
    c_name, kinds = "tn_ctx", {}

    def __init__(self, **desc):
        self._lock, self._depth, self._dead = threading.RLock(), 0, []
        self._arena, self._views = weakref.WeakSet(), weakref.WeakSet()
        self._serial, self._raised = iter(range(1 << 62)), None
        self._owners, self._keep, self._at = (), [], 0
        address, why = ctypes.c_void_p(), ctypes.create_string_buffer(header["constants"]["TN_WHY"])
        filled = self._fill("tn_desc", desc, self._keep)
        status = lib.tn_ctx_create(ctypes.byref(filled), ctypes.byref(address), why)
        if status:
            raise TensornetError(why.value.decode(), Status(status))
        self._open, self._number = True, address.value
        self._end = weakref.finalize(self, lib.tn_ctx_destroy, address.value)
        self._host = lib.tn_ctx_backend_name(address.value) in (b"cpu", b"reference")

    def __getattr__(self, name):
        raise AttributeError(f"a context has no function {name}")

    def __dir__(self):
        return object.__dir__(self)

    def __repr__(self):
        return f"<tn_ctx {self.backend_name()}, {self.dtype().name}>" if self._end.alive else "<tn_ctx, closed>"

    @property
    def _handle(self):
        if not self._end.alive:
            raise TensornetError("the context is closed")
        return self._number

    @property
    def _address(self):
        return self._handle

    @property
    def _ctx(self):                                 # no attribute: a context that is dropped ends at once, without a cycle
        return self

    # ---- what ends

    def close(self):
        """Frees the context and all that it owns. A second call does nothing."""
        if self._end.alive:
            self._check_views(self)
            with self._lock:
                self._end()

    def reset(self):
        """Frees all arena tensors and the tape, and keeps their memory for the next step."""
        self._check_views()
        with self._lock:
            lib.tn_ctx_reset(self._handle)
            self._expire(-1)

    @contextlib.contextmanager
    def scratch(self):
        """with ctx.scratch(): frees the arena tensors that are made inside. Not while recording."""
        serial, mark = next(self._serial), self.arena_mark()
        try:
            yield
        finally:
            self.arena_release(mark, _serial=serial)

    def arena_release(self, mark, _serial=None):
        """Frees the arena tensors that were made after the mark."""
        serial = mark._serial if _serial is None else _serial
        self._check_views(since=serial)
        with self._lock:
            status = lib.tn_arena_release(self._handle, mark._fields())
            self._raise(status)
            self._expire(serial)

    def _expire(self, serial):
        for tensor in [t for t in self._arena if t._serial > serial]:
            tensor._at = None
            self._arena.discard(tensor)

    def _check_views(self, ending=None, since=-1):
        """Refuses to free bytes that arrays of NumPy look at; ending: what is freed, None: the arena"""
        def ends(o):
            return o is ending or ending is self or any(map(ends, o._owners)) or (
                ending is None and getattr(o, "_serial", -1) > since)
        seen = sum(ends(view.tensor) for view in self._views)
        if seen:
            raise BufferError(f"{seen} arrays look at memory that this frees; take copies: t.numpy()")

    def _bury(self, serial, destroy, memory):
        """From a finalizer, which may run in any thread and inside any call: the next call frees it."""
        self._dead.append((serial, destroy, memory))

    def _collect(self):
        with self._lock:
            while self._dead and not self._depth:
                self._dead.sort(key=lambda dead: dead[0])      # what was made last is freed first
                _, destroy, memory = self._dead.pop()
                destroy(memory if isinstance(memory, int) else ctypes.byref(memory))

    # ---- from C

    def _raise(self, status=0, message=""):
        said = lib.tn_ctx_status(self._handle)
        if said:
            message = lib.tn_ctx_error(self._handle).decode(errors="replace")
            lib.tn_ctx_clear_error(self._handle)
        if said or status:
            raise TensornetError(message or lib.tn_status_name(status or said).decode(), Status(said or status))

    def _object(self, c_name, address, owners=(), keep=(), owned=True):
        """The Python object of a pointer; None for NULL"""
        if not address:
            return None
        if c_name == "tn_ctx":
            return self
        if c_name != "tn_tensor":
            return classes[c_name](self, address, owners, keep, owned)
        arena = not owners and not structs[c_name].from_address(address).flags & OWNED
        tensor = Tensor(self, address, owners, keep, owned and not arena and not owners)
        if arena:
            tensor._serial = next(self._serial)
            self._arena.add(tensor)
        return tensor

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
                return [self._object(base, address, (holder,)) for address in (ctypes.c_void_p * count).from_address(value)]
            size = ctypes.sizeof(structs[base])
            return [classes[base](self, value + i * size, (holder,)) for i in range(count)]
        return self._value(value, base, stars, holder, place)

    def _value(self, value, base, stars, holder, place):
        if stars == 1 and base in classes:
            return self._object(base, value, (holder,), owned=False)
        if not stars and base in structs:
            return classes[base](self, place, (holder,))
        if not stars and base in enums:
            return enums[base](value)
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    # ---- to C

    def tensor(self, numbers, dtype=None, keep=False):
        """An arena tensor (keep: an owned one) of an array, a list or a number. Integers become I32, floats the context's."""
        array = numbers.numpy() if isinstance(numbers, Tensor) else np.asarray(numbers)
        if array.dtype.kind not in "fiub":
            raise TensornetError(f"an array of {array.dtype} is no tensor: expected floats, integers or bools",
                                 Status.ERR_DTYPE)
        if array.ndim > header["constants"]["TN_MAX_RANK"]:
            raise TensornetError(f"an array has {array.ndim} axes, expected at most 8", Status.ERR_SHAPE)
        whole = array.dtype.kind != "f"
        if whole and array.size and not -1 << 31 <= int(array.min()) <= int(array.max()) < 1 << 31:
            raise TensornetError("an integer does not fit into I32", Status.ERR_DATA)
        dtype = enum_of("tn_dtype", (Dtype.I32 if whole else Dtype.REAL) if dtype is None else dtype)
        same = array.dtype == np.float64 or whole and dtype != Dtype.I32
        array = np.ascontiguousarray(array, np.float64 if same else np.int32 if whole else np.float32)
        result = (self.tensor_create if keep else self.tensor_nd)(dtype, array.shape)
        result.write(array)
        return result

    def _fill(self, c_name, values, keep):
        """A ctypes struct of a dictionary, or of one of our structs"""
        if isinstance(values, Object) and values.c_name == c_name:
            keep.append(values)
            return values._fields()
        result, kinds = structs[c_name](), dict(header["structs"][c_name])
        for name, value in (values or {}).items():
            kind = kinds.get(name.rstrip("_"))
            if kind is None:
                raise TypeError(f"{c_name} has no field {name}; it has {', '.join(kinds)}")
            if value is None:
                continue
            base, stars, _, extents = kind
            if extents:
                array = getattr(result, name.rstrip("_"))
                for i, v in enumerate(value):
                    array[i] = self._in([base, stars, True, []], v, keep)
            else:
                setattr(result, name.rstrip("_"), self._in(kind, value, keep))
        return result

    def _in(self, kind, value, keep):
        """What C takes for a Python value. keep: what must live as long as C may look at it"""
        base, stars, const, extents = kind
        stars += len(extents)
        if base in header["callbacks"] and not stars:
            function = value and self._callback(base, value)
            keep.append(function)
            return function and ctypes.cast(function, ctypes.c_void_p).value
        if not stars:
            if base in ("tn_source", "tn_sink") and not isinstance(value, (dict, Object)):
                value = {"path": os.fspath(value)} if not isinstance(value, (bytes, bytearray)) else {
                    "data": np.frombuffer(value, np.uint8), "bytes": len(value)}
            if base in structs:
                return self._fill(base, value, keep)
            return (enum_of(base, value) if base in enums else float(value) if base in ("double", "float") else
                    bool(value) if base == "bool" else operator.index(value))
        if value is None:
            return None
        if base == "char" and stars == 1 and isinstance(value, (str, bytes, os.PathLike)):
            value = os.fspath(value)
            keep.append(value := value.encode() if isinstance(value, str) else value)
            return value
        if base == "char" and stars == 2:
            value = (ctypes.c_char_p * len(value))(*(name.encode() for name in value))
        elif stars == 2 and base in classes:
            value = [self._in([base, 1, const, []], one, keep) for one in value]
            value = (ctypes.c_void_p * len(value))(*value)
        elif base == "tn_tensor" and not isinstance(value, Object):
            value = self.tensor(value)
        elif base in structs and base not in POINTED and not isinstance(value, Object):
            value = self._fill(base, value, keep) if isinstance(value, dict) else (structs[base] * len(value))(
                *(self._fill(base, one, keep) for one in value))
        keep.append(value)
        if isinstance(value, Object):
            if value.c_name != base and base != "void":
                raise TypeError(f"expected {base}, not {value.c_name}")
            return value._address
        if isinstance(value, ctypes.Structure) or isinstance(value, ctypes.Array):
            return ctypes.addressof(value)
        if isinstance(value, (int, bytes)):
            return value
        kinds = {"double": np.float64, "float": np.float32, "int": np.intc, "int32_t": np.int32, "int64_t": np.int64}
        array = np.asarray(value) if base == "void" else np.ascontiguousarray(value, kinds.get(base, np.uint8))
        if not const and array is not value:
            raise TypeError(f"expected a contiguous array of {base}, because it is written")
        keep.append(array)
        return array.ctypes.data

    def _callback(self, c_name, function):
        """C calls `function`; what it raises is raised again where Python called C."""
        what = header["callbacks"][c_name]
        base, stars = what["result"][:2]

        def called(*values):
            given = []
            for value, (name, (kind, deep, _, extents)) in zip(values, what["arguments"]):
                if name == "user":
                    continue
                if kind in classes and deep == 1 and not extents:
                    value = self._object(kind, value, owned=False)
                elif kind in classes and extents:
                    value = [self._object(kind, at, owned=False) for at in (ctypes.c_void_p * extents[0]).from_address(value)]
                given.append(value.decode(errors="replace") if isinstance(value, bytes) else value)
            try:
                result = function(*given)
                return result._address if isinstance(result, Object) else result if stars or result is not None else 0
            except BaseException as error:                  # C knows no exceptions
                self._raised = error
                return None if stars or base == "void" else base == "tn_status" and int(Status.ERR_ARG)
        return callback(c_name)(called)


classes["tn_ctx"] = Context


def enum_of(base, value):
    """A number of an enumeration: itself, its name in Python or in C: "f64", "F64", "TN_F64" """
    if not isinstance(value, str):
        return int(value)
    items = enums[base].__members__
    name = value.upper()
    start = prefix(header["enums"][base])
    name = name[len(start):] if name.startswith(start) else name
    found = items.get(name, items.get("_" + name))
    if found is None:
        raise ValueError(f"{base} has no {value!r}; it has {', '.join(n.lower() for n in items)}")
    return int(found)


# ---- functions

# The number of elements comes with an array, and Python counts them itself.
COUNTS = {"n", "count", "rank", "known", "bytes", "note_count", "lines"}
UNCOUNTED = {"tn_tt_elements", "tn_tt_log_conditionals", "tn_tt_sample", "tn_plan_create", "tn_plan_create_labels",
             "tn_circuit_tops", "tn_lanczos", "tn_einsum_labels", "tn_params_rebind", "tn_comm_sum", "tn_shard_read"}
ARRAYS = {"double", "float", "int", "int32_t", "int64_t", "tn_tap", "tn_note", "tn_named", "tn_series", "tn_name_map"}
# Outputs that are arrays of the caller, not one number.
BUFFERS = {"tn_tt_elements", "tn_tt_conditional", "tn_tt_log_conditionals", "tn_tt_sample", "tn_shard_read", "tn_comm_sum",
           "tn_tokenizer_encode", "tn_tokenizer_decode", "tn_safetensors_read_bytes", "tn_read", "tn_sink_memory",
           "tn_transformer_points", "tn_transformer_parts", "tn_circuit_tops", "tn_params_rebind", "tn_colour"}
# Counts that do not stand beside their array.
COUNT_OF = {("tn_cp_create", "order"): "f", ("tn_circuit_create", "sets"): "left", ("tn_cp_stack_inner", "layers"): "a"}
NO_OUTPUT = {"values": ("tn_attention_forward", "tn_attention_decode")}     # goes in and out: not given
# NULL is an answer of these.
NONE = {"tn_params_find", "tn_safetensors_find", "tn_safetensors_metadata"}
# Results that hold copies of all that they are made of.
COMPLETE = {"tn_tensor", "tn_cp", "tn_tt", "tn_image", "tn_circuit", "tn_attention_cache"}


class Argument:
    """A parameter of C: where its value comes from."""

    def __init__(self, function, name, kind, index):
        base, stars, const, extents = kind
        self.name, self.kind, self.role, self.count = name, kind, "in", None
        written = not const and index > 0 and function not in BUFFERS
        if name == "user" and (base, stars) == ("void", 1):
            self.role = "null"
        elif name in NO_OUTPUT and function in NO_OUTPUT[name]:
            self.role = "null"
        elif stars == 1 and written and base in structs and base not in POINTED:
            self.role = "struct"
        elif stars == 2 and written and base in classes:
            self.role = "object"
        elif stars == 1 and not const and function not in BUFFERS and base in ("double", "int64_t"):
            self.role = "number"
        elif name == "desc" and stars == 1:
            self.role = "desc"
        # What may be left out is zero in C, too.
        self.optional = index > 1 if stars else base in enums or base in structs and base not in (
            "tn_source", "tn_sink", "tn_mark")

    def counted(self, name):
        """Whether it is an array that an argument of this name counts"""
        base, stars, const, extents = self.kind
        return self.role == "in" and const and (
            stars == 2 or stars == 1 and (base in ("char", "void") and name == "bytes" or base in ARRAYS))


def arguments_of(function):
    declared = header["functions"][function]["arguments"]
    result = [Argument(function, name, kind, i) for i, (name, kind) in enumerate(declared)]
    for i, argument in enumerate(result):
        of = COUNT_OF.get((function, argument.name))
        before, after = i and result[i - 1], i + 1 < len(result) and result[i + 1]
        if of:
            argument.count = next(a for a in result if a.name == of)
        elif argument.name in COUNTS and function not in UNCOUNTED and not argument.kind[1]:
            if before and before.counted(argument.name) and argument.name not in ("rank", "known"):
                argument.count = before
            elif after and after.counted(argument.name):
                argument.count = after
        argument.role = "count" if argument.count else argument.role
    return result


def wrap(function, implied):
    """The Python function of a C function; implied: how many of the first arguments are self (ctx, and perhaps the object)"""
    raw, what, declared = getattr(lib, function), header["functions"][function], arguments_of(function)
    text_out = [a.name for a in declared[-2:]] == ["dst", "bytes"]
    if text_out:
        for a in declared[-2:]:
            a.role = "text"
    taken = [a for a in declared[implied:] if a.role in ("in", "desc")]
    outputs = [a for a in declared if a.role in ("struct", "object", "number")]
    desc = next((a for a in taken if a.role == "desc"), None)
    result_base, result_stars = what["result"][:2]
    self_at = implied - 1

    def call(self, *args, **kw):
        ctx = self._ctx if self is not None else _free
        if len(args) > len(taken):
            raise TypeError(f"{call.__name__} takes {len(taken)} arguments: {', '.join(a.name for a in taken)}")
        given = dict(zip((a.name for a in taken), args))
        fields = {}
        for name, value in kw.items():
            plain = name.rstrip("_")
            target = given if any(a.name == plain for a in taken) else fields
            if target is fields and not desc:
                raise TypeError(f"{call.__name__} has no argument {name}")
            target[plain] = value
        keep, made, values, results = [], {}, [], []
        with ctx._lock:
            ctx._collect()
            for i, a in enumerate(declared):
                base, stars = a.kind[:2]
                if i < implied:
                    values.append(self._address if i == self_at else ctx._address)
                elif a.role == "desc":
                    value = given.get(a.name)
                    value = value if value is not None and not fields else {**(value or {}), **fields}
                    values.append(ctypes.addressof(filled := ctx._fill(base, value, keep)))
                    keep.append(filled)
                elif a.role == "in":
                    if a.name not in given and not a.optional:
                        raise TypeError(f"{call.__name__} needs {a.name}")
                    value = given.get(a.name, 0 if not stars and base in enums else None)
                    value = {"tn_name_map": lambda v: v[0]}.get(base, lambda v: v)(value) if stars else value
                    made[a.name] = ctx._in(a.kind, value, keep)
                    values.append(made[a.name])
                elif a.role == "null" or a.role == "text":
                    values.append(0 if a.name == "bytes" else None)
                elif a.role == "count":
                    values.append(counted(given.get(a.count.name), a.count.kind))
                else:
                    output = structs[base]() if a.role == "struct" else ctypes.c_void_p() if a.role == "object" else (
                        ctypes.c_double() if base == "double" else ctypes.c_int64())
                    values.append(ctypes.addressof(output))
                    results.append((a, output))
            ctx._depth += 1
            try:
                returned = raw(*values)
                if text_out and returned >= 0:
                    room = ctypes.create_string_buffer(returned + 1)
                    raw(*values[:-2], room, returned + 1)
                    returned = room.value.decode(errors="replace")
            finally:
                ctx._depth -= 1
            raised, ctx._raised = ctx._raised, None
            if raised:
                lib.tn_ctx_clear_error(ctx._handle)
                raise raised
            failed = result_base == "tn_status" and not result_stars and function != "tn_ctx_status"
            if self is not None:
                ctx._raise(returned if failed else 0, call.__name__ + " failed, and has no message")
            elif failed and returned:
                raise TensornetError(f"{call.__name__}: {lib.tn_status_name(returned).decode()}", Status(returned))
            if returned is None and result_stars and function not in NONE:
                raise TensornetError(f"{call.__name__} returned NULL: is an argument None, or a number out of range?")
            owners = owners_of(function, self, keep, made)
            answer = []
            if not failed and result_base != "void":
                if result_stars and result_base in classes:
                    borrowed = what["result"][2] or result_base in ("tn_param", "tn_name_map")
                    held = () if result_base in COMPLETE else keep
                    tied = borrowed or result_base in ("tn_optim", "tn_net")
                    returned = ctx._object(result_base, returned, owners if tied else (), held, not borrowed)
                elif result_base in structs and not result_stars:
                    returned = classes[result_base](ctx, returned)
                elif result_base in enums and not result_stars:
                    returned = enums[result_base](returned)
                elif isinstance(returned, bytes):
                    returned = returned.decode(errors="replace")
                answer.append(returned)
            for a, output in results:
                if a.role == "struct":
                    answer.append(classes[a.kind[0]](ctx, output, owners, keep, True))
                elif a.role == "object":
                    answer.append(ctx._object(a.kind[0], output.value))
                else:
                    answer.append(output.value)
            if function == "tn_arena_mark":
                answer[0]._serial = next(ctx._serial)
        return answer[0] if len(answer) == 1 else tuple(answer) or None

    call.__doc__ = f"{function}({', '.join(a.name for a in declared)})\n\n{what['doc']}" + (
        f"\n\nSettings, as keywords: {', '.join(structs_fields(desc.kind[0]))}" if desc else "")
    return call


def owners_of(function, self, keep, made):
    """What the results of a call end with: parameters that their tensors belong to, or what C says they refer to"""
    if function == "tn_net_create":
        return tuple(o for o in keep if isinstance(o, Tensor)) if made["nodes"] else ()
    if header["functions"][function]["result"][0] == "tn_net":
        return tuple(o for o in (self, *keep) if isinstance(o, classes["tn_net"]) and o._owners)
    if function == "tn_circuit_freeze":
        return tuple(o for o in (self, *keep) if isinstance(o, classes["tn_transformer"]))
    return (self,) if isinstance(self, Params) or self is not None and self.destroy and self.c_name not in POINTED else ()


def structs_fields(c_name):
    return [name + "_" * keyword.iskeyword(name) for name, _ in header["structs"][c_name]]


def counted(value, kind):
    if value is None:
        return 0
    if kind[0] == "tn_name_map":
        return value[1]
    if kind[0] == "char" and isinstance(value, str):
        return len(value.encode())
    return np.size(value) if kind[1] == 1 and kind[0] not in classes else len(value)


class _Free:
    """What stands for the context of a function that needs none."""
    _lock, _depth, _raised, _handle = threading.RLock(), 0, None, None
    _fill, _in, _callback, _object = Context._fill, Context._in, Context._callback, Context._object

    def _collect(self):
        pass


_free = _Free()


def short(c_name):
    return c_name + "_"


# Context does these; and what frees objects of others, or writes into layouts of the caller, has no place in Python.
BY_HAND = {"tn_ctx_create", "tn_ctx_destroy", "tn_ctx_reset", "tn_arena_release", "tn_ctx_error", "tn_cp_mark", "tn_cp_release",
           "tn_params_rebind"}


def attach():
    """Makes each function a method of what its first argument is; and of its second one if the first is only the context."""
    free = {}
    for function, what in header["functions"].items():
        if function in BY_HAND:
            continue
        kinds = [kind for _, kind in what["arguments"][:2]]
        bases = [base if stars == 1 and base in classes and not (name == "desc") else None
                 for name, (base, stars, _, _) in what["arguments"][:2]]
        places = []
        if not bases or not bases[0] or bases[0].endswith("_desc") or bases[0] in ("tn_truncation", "tn_schedule"):
            free[function[len("tn_"):]] = staticmethod_of(function)
            continue
        if function.endswith(("_destroy", "_close")) and len(kinds) == 1:
            continue
        places.append((bases[0], 1))
        if bases[0] == "tn_ctx" and len(bases) > 1 and bases[1] and (
                bases[1] == "tn_tensor" or function.startswith(short(bases[1]))):
            places.append((bases[1], 2))
        for base, implied in places:
            name = function[len(short(base)):]
            if not function.startswith(short(base)) or name in classes[base].kinds and base != "tn_tensor":
                name = function[len("tn_"):]                    # a field has the shorter name
            method = wrap(function, implied)
            method.__name__ = method.__qualname__ = name
            target, name = classes[base], name + "_" * keyword.iskeyword(name)
            if name not in target.__dict__:
                setattr(target, name, method)
    return free


def staticmethod_of(function):
    method = wrap(function, 0)

    def call(*args, **kw):
        return method(None, *args, **kw)
    call.__name__, call.__doc__ = function[len("tn_"):], method.__doc__
    method.__name__ = call.__name__
    return call
