"""The functions of tensornet.h in Python. The header's arguments follow rules, and so does this: the object comes first, counts
stand beside their arrays, outputs come last and are not const. What breaks a rule is listed here by name."""
import ctypes
import keyword
import threading

from . import arrays, signatures
from .abi import enums, header, lib, structs
from .objects import PARAM, POINTED, Context, Object, Params, Status, Tensor, TensornetError, classes

# Integers that count the elements of the array beside them, and the arrays that can be counted.
COUNTS = {"n", "count", "rank", "known", "bytes", "note_count", "lines"}
ARRAYS = {"double", "float", "int", "int32_t", "int64_t", "tn_tap", "tn_metadata", "tn_named_tensor", "tn_image_series", "tn_name_map"}
# Counts that stand elsewhere. Lengths that no count says, and counts that Python may give, are in arrays.py.
COUNT_OF = {("tn_cp_create", "order"): "f", ("tn_circuit_create", "sets"): "left", ("tn_cp_stack_inner", "layers"): "a"}
# What goes in and out, and may be NULL.
NOT_GIVEN = {("tn_attention_forward", "values"), ("tn_attention_decode", "values")}
# NULL is an answer of these.
NONE = {"tn_params_find", "tn_safetensors_find", "tn_safetensors_metadata", "tn_foreign_format"}
# Functions of C that take a `void *` and say what is there.
KIND_OF = {("tn_tap_edit", "user"): ["tn_edit", 1, True, []]}
# What may belong to another context than the rest of the call.
OF_ANY_CONTEXT = {("tn_params_clone", "params"), ("tn_cp_mean", "cp")}
# Results that hold copies of all that they are made of.
COMPLETE = {"tn_tensor", "tn_cp", "tn_tt", "tn_image", "tn_circuit", "tn_attention_cache"}
# Context does these; and what frees objects of others, or writes into layouts of the caller, has no place in Python.
BY_HAND = {"tn_ctx_create", "tn_ctx_destroy", "tn_ctx_reset", "tn_ctx_status", "tn_ctx_error", "tn_ctx_clear_error",
           "tn_arena_release", "tn_read", "tn_write", "tn_tensor_from", "tn_circuit_top_many", "tn_record", "tn_backward",
           "tn_params_ctx", "tn_cp_mark", "tn_cp_release", "tn_params_rebind", "tn_tap_read", "tn_printable",
           "tn_writer_open", "tn_writer_write", "tn_writer_close"}


class Argument:
    """An argument of C. role: where its value comes from, as below; count: the argument whose elements it counts"""

    def __init__(self, function, name, kind, index):
        kind = KIND_OF.get((function, name), kind)
        base, stars, const, extents = kind
        self.size = arrays.SIZES.get(function, {}).get(name)
        self.default = arrays.DEFAULTS.get(function, {}).get(name)
        self.may_be_none = (function, name) in arrays.MAY_BE_NONE
        self.any_context = (function, name) in OF_ANY_CONTEXT
        self.sizes_of_fields = [(field[len("desc."):], rule) for field, rule in arrays.SIZES.get(function, {}).items()
                                if name == "desc" and field.startswith("desc.")]
        self.read = base, stars + len(extents), const or bool(extents)
        written = stars and not const and not self.size
        inner = written and index > 0
        self.name, self.kind, self.base, self.stars, self.count = name, kind, base, stars, None
        self.role = (
            "null" if name == "user" and (base, stars) == ("void", 1) or (function, name) in NOT_GIVEN else
            "struct" if inner and stars == 1 and base in structs and base not in POINTED else
            "object" if inner and stars == 2 and base in classes else
            "number" if written and stars == 1 and base in ("double", "int64_t") else
            "desc" if name == "desc" and stars == 1 else "in")
        # What may be left out is zero in C, too.
        self.optional = bool(self.default) or (index > 1 if stars else base in enums or base in structs and base not in (
            "tn_source", "tn_sink", "tn_mark"))

    def can_be_counted(self, by):
        base, stars, const, _ = self.kind
        return self.role == "in" and const and (
            stars == 2 or stars == 1 and (base in ("char", "void") and by == "bytes" or base in ARRAYS))


def arguments_of(function):
    result = [Argument(function, name, kind, i) for i, (name, kind) in enumerate(header["functions"][function]["arguments"])]
    for before, argument, after in zip([None, *result], result, [*result[1:], None]):
        name = argument.name
        if (function, name) in COUNT_OF:
            argument.count = next(a for a in result if a.name == COUNT_OF[function, name])
        elif name in COUNTS and not argument.default and not argument.stars:
            if before and before.can_be_counted(name) and name not in ("rank", "known"):
                argument.count = before
            elif after and after.can_be_counted(name):
                argument.count = after
        argument.role = "count" if argument.count else argument.role
    if [a.name for a in result[-2:]] == ["dst", "bytes"] and not result[-1].default:
        result[-2].role = result[-1].role = "text"
    counted = [a.count for a in result]
    for a in result:
        a.is_array = a in counted or bool(a.size)
        if a.role == "in" and arrays.is_array(*a.kind) and not a.is_array and function not in BY_HAND:
            raise ImportError(f"{function}: nothing says how long {a.name} is: arrays.SIZES needs a rule")
    return result


class Call:
    """A call of a C function: what is given, what is made of it, and what is kept alive. Each function has a subclass."""
    function = name = declared = None                       # the names in C and in Python, and the arguments of C by name

    def __init__(self, ctx, given, fields):
        self.ctx, self.given, self.fields, self.keep, self.outputs = ctx, given, fields, [], []

    def read(self, a, value):
        """Replaces what is given for an argument by what C can take, before anything else looks at it"""
        if a.base == "tn_name_map" and isinstance(value, tuple):
            value = value[0]                                # (map, lines), as tn_name_map_gpt2 returns it
        ctx = value._ctx if a.any_context and isinstance(value, Object) else self.ctx
        self.given[a.name] = value = ctx._read(a.read, value, self.keep, a.where, a.is_array)
        return value

    def known(self, name):
        """An argument, a field of the desc, or what arrays.DEFAULTS says of it"""
        a = self.declared.get(name)
        if a and a.count:
            return self.counted(a)
        value = self.given.get(name) if a else self.field(name)
        default = arrays.DEFAULTS.get(self.function, {}).get(name)
        if value is None and default:
            return arrays.by_names(default, self.known)
        return value if value is not None else () if a and a.stars > 1 else None if a and a.stars else 0

    def field(self, name):
        desc = self.given.get("desc")
        value = self.fields.get(name, desc.get(name) if isinstance(desc, dict) else getattr(desc, name, None))
        return None if value is None else arrays.integer("int64_t", value, f"{self.name}: {name}")

    # What C gets for an argument, by where that comes from

    def counted(self, a):
        return arrays.length(self.given.get(a.count.name))

    def taken(self, a):
        return self.ctx._pass(self.given.get(a.name), self.keep, a.where)

    def checked(self, a):
        """An argument that arrays.py has a rule for, or a function of Python"""
        value = self.given.get(a.name)
        if value is None and a.default:
            value = self.read(a, self.known(a.name))
        need = arrays.by_names(a.size, self.known) if a.size else None
        if a.base in header["callbacks"]:
            return self.ctx._one(a.base, value, self.keep, a.where, need)
        if not (value is None and a.may_be_none):
            arrays.check_length(a.where, value, need)
        return self.ctx._pass(value, self.keep, a.where)

    def desc(self, a):
        value = self.given.get(a.name)
        if value is None:
            value = self.fields
        elif self.fields:
            if not isinstance(value, dict):
                raise TypeError(f"{a.where}: expected a dict beside keywords, not {arrays.type_of(value)}")
            value = {**value, **self.fields}
        sizes = {name: arrays.by_names(rule, self.known) for name, rule in a.sizes_of_fields
                 if isinstance(value, dict) and value.get(name) is not None}
        self.keep.append(filled := self.ctx._fill(a.base, value, self.keep, a.where, sizes))
        return ctypes.addressof(filled)

    def nothing(self, a):
        return None if a.stars else 0

    def output(self, a):
        output = structs[a.base]() if a.role == "struct" else {"double": ctypes.c_double, "int64_t": ctypes.c_int64}.get(
            a.base, ctypes.c_void_p)()
        self.outputs.append((a, output))
        return ctypes.addressof(output)

    # What C returns

    def owners(self, self_):
        """What the results end with: parameters that their tensors belong to, or what C says they refer to"""
        def of(kind):
            return tuple(o for o in (self_, *self.keep) if isinstance(o, classes[kind]))
        if self.function == "tn_net_create":
            return of("tn_tensor") if self.given.get("nodes") else ()
        if header["functions"][self.function]["result"][0] == "tn_net":
            return tuple(net for net in of("tn_net") if net._owners)
        if self.function == "tn_circuit_freeze":
            return of("tn_transformer")
        result = self_.destroy and self_.c_name not in POINTED      # a struct that C fills and frees
        return (self_,) if isinstance(self_, Params) or result else ()

    def object(self, base, address, owners, self_, owned=True):
        """The Python object of a pointer that C returns. Nothing has two owners: an argument that it returns is the same object,
        and a parameter belongs to its parameters. A view ends with the tensor or the object whose bytes it shares."""
        kind = classes[base]
        for o in (self_, *self.keep, *self.ctx._returned):
            if type(o) is kind and o._at == address:
                return o
        if base == "tn_tensor" and address:
            t = structs[base].from_address(address)
            if t.base or t.flags & PARAM:
                owners = tuple(o for o in (self_, *self.keep) if isinstance(o, Object) and o is not self.ctx and (
                    not isinstance(o, Tensor) or t.base and t.base in (o._at, o._fields().base)))
                owned = not t.flags & PARAM
        return self.ctx._object(base, address, owners, () if base in COMPLETE else self.keep, owned)

    def answer(self, what, returned, self_):
        """What Python gets: what C returns, and its outputs"""
        base, stars, const, _ = what["result"]
        answer = []
        if stars and base in classes:
            borrowed = const or base in ("tn_param", "tn_name_map")
            tied = borrowed or base in ("tn_optim", "tn_net")
            answer.append(self.object(base, returned, self.owners(self_) if tied else (), self_, not borrowed))
        elif base in structs:                               # a source refers to the bytes that it reads
            answer.append(classes[base](self.ctx, returned, (), self.keep))
        elif base in enums:
            answer += [] if base == "tn_status" else [enums[base](returned)]
        elif base != "void":
            answer.append(returned.decode(errors="replace") if isinstance(returned, bytes) else returned)
        for a, output in self.outputs:
            answer.append(classes[a.base](self.ctx, output, self.owners(self_), self.keep, True) if a.role == "struct" else
                          self.object(a.base, output.value, (), self_) if a.role == "object" else output.value)
        if base == "tn_name_map":
            answer[0]._count = answer[1]
        return answer[0] if len(answer) == 1 else tuple(answer) or None


def sort_out(name, taken, desc, args, kw):
    """Which value belongs to which argument, and which to fields of the desc; taken: arguments by name"""
    if len(args) > len(taken):
        raise TypeError(f"{name} takes {len(taken)} arguments: {', '.join(taken)}")
    given, fields = dict(zip(taken, args)), {}
    for key, value in kw.items():
        key = key.rstrip("_")
        if key in given:
            raise TypeError(f"{name} has {key} twice")
        if key in taken:
            given[key] = value
        elif desc:
            fields[key] = value
        else:
            raise TypeError(f"{name} has no argument {key}")
    if len(given) < len(taken):
        for key, a in taken.items():
            if key not in given and not a.optional and a is not desc:
                raise TypeError(f"{name} needs {key}")
    return given, fields


def wrap(function, name, implied):
    """The Python function of a C function; implied: the number of first arguments that are self: the context, or also an object
    of it"""
    raw, what, declared = getattr(lib, function), header["functions"][function], arguments_of(function)
    first, others = declared[:implied], declared[implied:]
    for a in declared:
        a.where = f"{name}: {a.name}"                       # for messages
    call_of = type("Call", (Call,), {"function": function, "name": name, "declared": {a.name: a for a in declared}})
    taken = {a.name: a for a in others if a.role in ("in", "desc")}
    desc = next((a for a in taken.values() if a.role == "desc"), None)
    is_text = bool(declared) and declared[-1].role == "text"
    is_status = what["result"][:2] == ["tn_status", 0]
    read = [(a.name, a, classes.get(a.base) if a.read[1] == 1 else None, 0 if a.base in enums and not a.stars else None)
            for a in taken.values() if a.role == "in" and a.base not in header["callbacks"]]
    ways = {"count": Call.counted, "desc": Call.desc, "null": Call.nothing, "text": Call.nothing}
    passed = [(a, ways.get(a.role, Call.output) if a.role != "in" else Call.checked if a.size or a.default or
               a.base in header["callbacks"] else Call.taken) for a in others]
    is_tensor = what["result"][:3] == ["tn_tensor", 1, False] and Call.output not in (way for _, way in passed)

    def method(self, *args, **kw):
        ctx = self._ctx
        with ctx._lock:
            if ctx._dead:
                ctx._collect()
            given, fields = sort_out(name, taken, desc, args, kw)
            call = call_of(ctx, given, fields)
            ctx._calls.append(function)                     # what reads an argument may close objects: they are freed later
            ctx._inside.append(next(ctx._serial))
            try:
                if first:
                    given[first[-1].name] = self
                for key, a, kind, zero in read:
                    value = given.get(key, zero)
                    if value is None and (a.stars or a.default) or type(value) is kind and value._ctx is ctx:
                        continue                            # what is most common needs no more
                    call.read(a, value)
                passed_on = [way(call, a) for a, way in passed]
                values = [*((ctx._handle, self._address)[-implied:] if first else ()), *passed_on]
                returned = raw(*values)
                if is_text and returned >= 0:               # the first call says how long the text is
                    text = ctypes.create_string_buffer(returned + 1)
                    raw(*values[:-2], text, len(text))
                    returned = text.value
            finally:
                ctx._inside.pop()
                ctx._calls.pop()
            ctx._check(returned if is_status else 0, name)
            if returned is None and what["result"][1] and function not in NONE:
                raise TensornetError(f"{name} returned NULL: is an argument None, or a number out of range?")
            answer = call.object("tn_tensor", returned, (), self) if is_tensor else call.answer(what, returned, self)
            if ctx._returned and not ctx._calls:
                ctx._returned.clear()
            return answer

    method.__name__ = method.__qualname__ = name
    method.c_name, method.taken, method.implied = function, [*taken.values()], first
    method.__doc__ = f"{function}({', '.join(a.name for a in declared)})\n\n{what['doc']}"
    method.__signature__ = signatures.signature_of(what, declared, taken.values(), bool(first))
    if desc:
        method.__doc__ += f"\n\nSettings, as keywords:\n{signatures.settings_text(desc.base)}"
    return method


class Nobody:
    """In place of a context, for functions that need none"""
    _lock, _calls, _dead, _returned, _inside, _handle, destroy = threading.RLock(), [], (), [], [], None, None
    _recording = False
    _serial, _raised = iter(range(1 << 62)), Context._stray
    _fill, _read, _pass, _one, _callback = Context._fill, Context._read, Context._pass, Context._one, Context._callback
    _object, _lent, _field, _value = Context._object, Context._lent, Context._field, Context._value
    _arena, _known = (), {}

    def _check(self, status, name):
        if status:
            raise TensornetError(f"{name}: {lib.tn_status_name(status).decode()}", Status(status))


nobody = Nobody()
nobody._ctx = nobody


def attach():
    """Makes each function a method of what its first argument is, and of its second one if the first is only the context.
    Returns those that belong to nobody."""
    free = {}
    Context.__init__.__signature__ = signatures.of_context()
    Context.__doc__ += "\n\nSettings, as keywords:\n" + signatures.settings_text("tn_desc")
    for function, what in header["functions"].items():
        bases = [base for name, (base, stars, _, _) in what["arguments"][:2]
                 if stars == 1 and base in classes and name not in ("desc", "rule", "schedule")]
        if function in BY_HAND or function.endswith(("_destroy", "_close")):
            continue
        if not bases or what["arguments"][0][1][0] != bases[0]:
            method = wrap(function, function[len("tn_"):], 0)
            free[method.__name__] = unbound(method)
            continue
        place(function, bases[0], 1)
        if bases[0] == "tn_ctx" and len(bases) > 1 and (bases[1] == "tn_tensor" or function.startswith(bases[1] + "_")):
            place(function, bases[1], 2)
    return free


def place(function, base, implied):
    kind, name = classes[base], function[len(base) + 1:]
    if not function.startswith(base + "_") or name in kind.kinds and base != "tn_tensor":
        name = function[len("tn_"):]                        # a field has the shorter name
    name += "_" * keyword.iskeyword(name)
    if name not in vars(kind):
        setattr(kind, name, wrap(function, name, implied))


def unbound(method):
    """A function without an object of its own: its errors are those of the context that its arguments belong to"""
    def function(*args, **kw):
        objects = (o for value in (*args, *kw.values()) for o in (value if isinstance(value, (list, tuple)) else [value])
                   if isinstance(o, Object))
        return method(next((o.ctx for o in objects), nobody), *args, **kw)
    function.__dict__.update(method.__dict__)
    function.__name__, function.__doc__ = method.__name__, method.__doc__
    return function
