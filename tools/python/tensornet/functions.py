"""The functions of tensornet.h in Python. The header's arguments follow rules, and so does this: the object comes first, counts
stand beside their arrays, outputs come last and are not const. What breaks a rule is listed here by name."""
import ctypes
import keyword
import threading

from . import arrays
from .abi import enums, header, lib, structs
from .objects import POINTED, Context, Object, Params, Status, Tensor, TensornetError, classes

# Integers that count the elements of the array beside them, and the arrays that can be counted.
COUNTS = {"n", "count", "rank", "known", "bytes", "note_count", "lines"}
ARRAYS = {"double", "float", "int", "int32_t", "int64_t", "tn_tap", "tn_note", "tn_named", "tn_series", "tn_name_map"}
# Counts that stand elsewhere. Lengths that no count says, and counts that Python may give, are in arrays.py.
COUNT_OF = {("tn_cp_create", "order"): "f", ("tn_circuit_create", "sets"): "left", ("tn_cp_stack_inner", "layers"): "a"}
# What goes in and out, and may be NULL.
NOT_GIVEN = {("tn_attention_forward", "values"), ("tn_attention_decode", "values")}
# NULL is an answer of these.
NONE = {"tn_params_find", "tn_safetensors_find", "tn_safetensors_metadata"}
# Results that hold copies of all that they are made of.
COMPLETE = {"tn_tensor", "tn_cp", "tn_tt", "tn_image", "tn_circuit", "tn_attention_cache"}
# Context does these; and what frees objects of others, or writes into layouts of the caller, has no place in Python.
BY_HAND = {"tn_ctx_create", "tn_ctx_destroy", "tn_ctx_reset", "tn_ctx_status", "tn_ctx_error", "tn_ctx_clear_error",
           "tn_arena_release", "tn_read", "tn_write", "tn_tensor_from", "tn_circuit_tops", "tn_record", "tn_backward",
           "tn_cp_mark", "tn_cp_release", "tn_params_rebind", "tn_printable", "tn_file_create", "tn_file_write", "tn_file_close"}


class Argument:
    """An argument of C. role: where its value comes from, as below; count: the argument whose elements it counts"""

    def __init__(self, function, name, kind, index):
        base, stars, const, extents = kind
        self.size = arrays.SIZES.get(function, {}).get(name)
        self.default = arrays.DEFAULTS.get(function, {}).get(name)
        self.may_be_none = (function, name) in arrays.MAY_BE_NONE
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
    if [a.name for a in result[-2:]] == ["dst", "bytes"]:
        result[-2].role = result[-1].role = "text"
    counted = [a.count for a in result]
    for a in result:
        a.is_array = a in counted or bool(a.size)
        if a.role == "in" and arrays.is_array(*a.kind) and not a.is_array and function not in BY_HAND:
            raise ImportError(f"{function}: nothing says how long {a.name} is: arrays.SIZES needs a line")
    return result


class Call:
    """A call of a C function, until C is called: what is given, what is made of it, and what is kept alive"""

    def __init__(self, ctx, function, name, declared, given, fields):
        self.ctx, self.function, self.name, self.declared = ctx, function, name, declared
        self.given, self.fields = given, fields
        self.keep, self.made, self.outputs = [], {}, []

    def known(self, name):
        """An argument, a field of the desc, or what arrays.DEFAULTS says of it, as a number or as it was given"""
        a = self.declared.get(name)
        if a and a.count:
            return arrays.length(a.count.base, a.count.stars, self.given.get(a.count.name))
        value = self.given.get(name)
        desc = self.given.get("desc")
        if value is None and not a:
            value = self.fields.get(name, desc.get(name) if isinstance(desc, dict) else getattr(desc, name, None))
        default = arrays.DEFAULTS.get(self.function, {}).get(name)
        if value is None and default:
            return arrays.by_names(default, self.known)
        if isinstance(value, (list, tuple)) or a and a.stars:
            return value
        return 0 if value is None else arrays.integer("int64_t", value, f"{self.name}: {name}")

    def size(self, a, value):
        """The number of elements that C takes an array for; None for what is no array"""
        if not a.is_array or value is None and a.may_be_none:
            return None
        need = arrays.by_names(a.size, self.known) if a.size else arrays.length(a.base, a.stars, value)
        if value is None:
            arrays.check_length(f"{self.name}: {a.name}", 0, need)
        return need

    def value(self, a):
        """What C gets for an argument"""
        where = f"{self.name}: {a.name}"
        if a.role == "in":
            value = self.given.get(a.name, 0 if not a.stars and a.base in enums else None)
            if value is None and a.default:
                value = self.known(a.name)
            if value is None and not a.stars and a.base not in header["callbacks"] and a.base not in structs:
                raise TypeError(f"{where}: expected {a.base}, not None")
            self.made[a.name] = value = self.ctx._in(a.kind, value, self.keep, where, self.size(a, value))
            return value
        if a.role == "count":
            return self.known(a.name)
        if a.role == "desc":
            value = self.given.get(a.name)
            value = {**(value or {}), **self.fields} if self.fields or value is None else value
            sizes = {name[len("desc."):]: arrays.by_names(rule, self.known)
                     for name, rule in arrays.SIZES.get(self.function, {}).items() if name.startswith("desc.")
                     and isinstance(value, dict) and value.get(name[len("desc."):]) is not None}
            self.keep.append(filled := self.ctx._fill(a.base, value, self.keep, sizes))
            return ctypes.addressof(filled)
        if a.role in ("null", "text"):
            return None if a.stars else 0
        output = structs[a.base]() if a.role == "struct" else {"double": ctypes.c_double, "int64_t": ctypes.c_int64}.get(
            a.base, ctypes.c_void_p)()
        self.outputs.append((a, output))
        return ctypes.addressof(output)

    def owners(self, function, self_):
        """What the results end with: parameters that their tensors belong to, or what C says they refer to"""
        def of(kind):
            return tuple(o for o in (self_, *self.keep) if isinstance(o, classes[kind]))
        if function == "tn_net_create":
            return of("tn_tensor") if self.made["nodes"] else ()
        if header["functions"][function]["result"][0] == "tn_net":
            return tuple(net for net in of("tn_net") if net._owners)
        if function == "tn_circuit_freeze":
            return of("tn_transformer")
        result = self_.destroy and self_.c_name not in POINTED      # a struct that C fills and frees
        return (self_,) if isinstance(self_, Params) or result else ()

    def object(self, base, address, owners, self_, owned=True):
        """The Python object of a pointer that C returns. A view ends with the tensor or the object whose bytes it shares."""
        if base == "tn_tensor" and address and (shared := structs[base].from_address(address).base):
            owners = tuple(o for o in (self_, *self.keep) if isinstance(o, Object) and o is not self.ctx and (
                not isinstance(o, Tensor) or shared in (o._at, o._fields().base)))
        return self.ctx._object(base, address, owners, () if base in COMPLETE else self.keep, owned)

    def answer(self, what, returned, owners, self_):
        """What Python gets: what C returns, and its outputs"""
        base, stars, const, _ = what["result"]
        answer = []
        if stars and base in classes:
            borrowed = const or base in ("tn_param", "tn_name_map")
            tied = borrowed or base in ("tn_optim", "tn_net")
            answer.append(self.object(base, returned, owners if tied else (), self_, not borrowed))
        elif base in structs:                               # a source refers to the bytes that it reads
            answer.append(classes[base](self.ctx, returned, (), self.keep))
        elif base in enums:
            answer += [] if base == "tn_status" else [enums[base](returned)]
        elif base != "void":
            answer.append(returned.decode(errors="replace") if isinstance(returned, bytes) else returned)
        for a, output in self.outputs:
            answer.append(classes[a.base](self.ctx, output, owners, self.keep, True) if a.role == "struct" else
                          self.object(a.base, output.value, (), self_) if a.role == "object" else output.value)
        if base == "tn_name_map":
            answer[0]._count = answer[1]
        return answer[0] if len(answer) == 1 else tuple(answer) or None


def sort_out(name, taken, desc, args, kw):
    """Which value belongs to which argument, and which to fields of the desc"""
    if len(args) > len(taken):
        raise TypeError(f"{name} takes {len(taken)} arguments: {', '.join(a.name for a in taken)}")
    given, fields = dict(zip((a.name for a in taken), args)), {}
    for key, value in kw.items():
        key = key.rstrip("_")
        if key in given:
            raise TypeError(f"{name} has {key} twice")
        if any(a.name == key for a in taken):
            given[key] = value
        elif desc:
            fields[key] = value
        else:
            raise TypeError(f"{name} has no argument {key}")
    for a in taken:
        if a.name not in given and not a.optional and a is not desc:
            raise TypeError(f"{name} needs {a.name}")
    return given, fields


def wrap(function, name, implied):
    """The Python function of a C function; implied: the number of first arguments that are self: the context, or also an object
    of it"""
    raw, what, declared = getattr(lib, function), header["functions"][function], arguments_of(function)
    first, others, by_name = declared[:implied], declared[implied:], {a.name: a for a in declared}
    taken = [a for a in others if a.role in ("in", "desc")]
    desc = next((a for a in taken if a.role == "desc"), None)
    is_text = bool(declared) and declared[-1].role == "text"
    is_status = what["result"][:2] == ["tn_status", 0]

    def method(self, *args, **kw):
        ctx = self._ctx
        with ctx._lock:
            if ctx._dead:
                ctx._collect()
            given, fields = sort_out(name, taken, desc, args, kw)
            if first:
                given[first[-1].name] = self
            for map_ in (a.name for a in taken if a.base == "tn_name_map" and isinstance(given.get(a.name), tuple)):
                given[map_] = given[map_][0]                # (map, lines), as tn_name_map_gpt2 returns it
            call = Call(ctx, function, name, by_name, given, fields)
            values = [*([ctx._address, self._address][-len(first):] if first else ()), *map(call.value, others)]
            ctx._depth += 1
            try:
                returned = raw(*values)
                if is_text and returned >= 0:               # the first call says how long the text is
                    room = ctypes.create_string_buffer(returned + 1)
                    raw(*values[:-2], room, len(room))
                    returned = room.value
            finally:
                ctx._depth -= 1
            ctx._check(returned if is_status else 0, name)
            if returned is None and what["result"][1] and function not in NONE:
                raise TensornetError(f"{name} returned NULL: is an argument None, or a number out of range?")
            answer = call.answer(what, returned, call.owners(function, self), self)
            if function == "tn_arena_mark":
                answer._serial = next(ctx._serial)
            return answer

    method.__name__ = method.__qualname__ = name
    method.c_name, method.taken, method.implied = function, taken, first
    method.__doc__ = f"{function}({', '.join(a.name for a in declared)})\n\n{what['doc']}"
    if desc:
        fields = (field + "_" * keyword.iskeyword(field) for field, _ in header["structs"][desc.base])
        method.__doc__ += f"\n\nSettings, as keywords: {', '.join(fields)}"
    return method


class Nobody:
    """In place of a context, for functions that need none"""
    _lock, _depth, _dead, _handle, destroy = threading.RLock(), 0, (), None, None
    _fill, _in, _one, _callback = Context._fill, Context._in, Context._one, Context._callback
    _object, _field, _value = Context._object, Context._field, Context._value

    def _check(self, status, name):
        if status:
            raise TensornetError(f"{name}: {lib.tn_status_name(status).decode()}", Status(status))


nobody = Nobody()
nobody._ctx = nobody


def attach():
    """Makes each function a method of what its first argument is, and of its second one if the first is only the context.
    Returns those that belong to nobody."""
    free = {}
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
        objects = (o for value in args for o in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(o, Object))
        return method(next((o.ctx for o in objects), nobody), *args, **kw)
    function.__dict__.update(method.__dict__)
    function.__name__, function.__doc__ = method.__name__, method.__doc__
    return function
