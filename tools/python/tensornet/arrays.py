"""What C cannot see of its arguments is checked here, before it is called: the length of an array, the type and the byte order
of its numbers, whether they may be written, whether an integer fits its type, and whether a text ends where Python says."""
import ctypes
import math
import operator
import os

import numpy as np

from . import dlpack
from .abi import NUMBERS, header

KINDS = {**{base: np.dtype(kind) for base, kind in NUMBERS.items() if base != "bool"}, "char": np.dtype(np.uint8),
         "void": np.dtype(np.uint8)}
LIMITS = {base: (int(np.iinfo(kind).min), int(np.iinfo(kind).max)) for base, kind in KINDS.items()
          if kind.kind in "iu" and base not in ("char", "void")}


# ---- lengths

def shape(value):
    """The shape of a tensor or an array, () of None"""
    return () if value is None else tuple(value.shape)


def end(value, at):
    """An extent of an array, at: -1 the last one, -2 the one before; 1 if there are fewer axes"""
    return (1, 1, 1, *shape(value))[at]


def length(value):
    """The number of elements that an array has for C"""
    if value is None:
        return 0
    return value.size if isinstance(value, np.ndarray) else value._count if hasattr(value, "_count") else len(value)


def rows_of(count, rows, columns):
    return rows or max(-(-count // columns_of(count, rows, columns)), 1)


def columns_of(count, rows, columns):
    return columns or max(-(-count // rows) if rows else math.ceil(math.sqrt(count)), 1)


MATRIX = {"desc.x_names": lambda columns: columns, "desc.y_names": lambda rows: rows}
TILES = {"desc.captions": lambda count: count, "desc.row_names": rows_of, "desc.column_names": columns_of,
         "desc.x_names": lambda width: width, "desc.y_names": lambda height: height}

# The number of elements that C reads or writes of an array, where it is not simply the count beside it. The parameters of a
# rule are, by name, other arguments of the function, fields of its desc, or other fields of the struct. An array of arrays has
# a list. A function that has an array with neither a count nor a rule stops the import; such a field can only be None.
SIZES = {
    "tn_comm_sum": {"numbers": lambda count: count},
    "tn_lanczos": {"fn": lambda n: n},                      # of a row of what the function gets
    "tn_tensor_table": {"desc.row_names": lambda t: (*shape(t), 1)[0], "desc.column_names": lambda t: (*shape(t), 1, 1)[1]},
    "tn_einsum_labels": {"operands": lambda n: n, "out": lambda rank: rank,
                         "labels": lambda operands: [len(shape(t)) for t in operands]},
    "tn_plan_create": {"ranks": lambda n: n, "shapes": lambda ranks: ranks},
    "tn_plan_create_labels": {"ranks": lambda n: n, "shapes": lambda ranks: ranks, "labels": lambda ranks: ranks,
                              "out": lambda rank: rank},
    "tn_polynomial_fit_add": {"y": lambda n: n, "weights": lambda n: n},
    "tn_cp_mean": {"weights": lambda count: count},
    "tn_cp_apply_each": {"x": lambda cp: cp.order},
    "tn_cp_stack_inner": {"b": lambda layers: layers},
    "tn_net_apply_each": {"x": lambda net: net.legs},
    "tn_net_from_tt": {"input": lambda tt: tt.count},
    "tn_tt_elements": {"index": lambda tt, count: count * tt.count, "values": lambda count: count},
    "tn_tt_conditional": {"index": lambda known: known,
                          "p": lambda tt, known: tt.core[known].shape[1] if 0 <= known < tt.count else None},
    "tn_tt_log_conditionals": {"index": lambda tt, count: count * tt.count, "log_p": lambda tt, count: count * tt.count},
    "tn_tt_sample": {"index": lambda tt, count: count * tt.count},
    "tn_tt_from_matrix": {"in": lambda count: count},
    "tn_tt_matrix": {"out": lambda tt: tt.count, "in": lambda tt: tt.count},
    "tn_sink_memory": {"data": lambda bytes: bytes, "used": lambda: 1},
    "tn_safetensors_read_bytes": {"dst": lambda bytes: bytes},
    "tn_tokenizer_encode": {"ids": lambda max: max, "spans": lambda max: max},
    "tn_tokenizer_decode": {"dst": lambda bytes: bytes},
    "tn_shard_read": {"ids": lambda n: n},
    "tn_transformer_points": {"points": lambda max: max},
    "tn_transformer_parts": {"parts": lambda max: max},
    "tn_circuit_create": {"right": lambda sets: sets},
    "tn_circuit_path_name": {"names": lambda paths: paths.frozen.model.desc.vocab},
    "tn_image_colour": {"rgb": lambda: 3},
    "tn_image_matrix": {"values": lambda rows, columns: rows * columns, **MATRIX},
    "tn_image_matrix_of": MATRIX,
    "tn_image_tiles": {"values": lambda count, height, width: count * height * width, **TILES},
    "tn_image_tiles_of": TILES,
    "tn_image_series": dict.fromkeys(("x", "y", "low"), lambda count: count),
    "tn_signal_desc": {"nulls": lambda draws: draws or 19},
    "tn_image_plot_desc": {"x_names": lambda x_name_count: x_name_count},
    "tn_source": {"data": lambda bytes: bytes},
    "tn_sink": {"data": lambda bytes: bytes, "used": lambda: 1},
}
# What C gets for an argument or a field that is left out: mostly a count that can be taken from the array.
DEFAULTS = {
    "tn_comm_sum": {"count": lambda numbers: length(numbers)},
    "tn_einsum_labels": {"n": lambda operands: length(operands), "rank": lambda out: length(out)},
    "tn_plan_create": {"n": lambda shapes: length(shapes), "ranks": lambda shapes: [length(one) for one in shapes]},
    "tn_plan_create_labels": {"n": lambda shapes: length(shapes), "ranks": lambda shapes: [length(one) for one in shapes],
                              "rank": lambda out: length(out)},
    "tn_tt_elements": {"count": lambda values: length(values)},
    "tn_tt_conditional": {"known": lambda index: length(index)},
    "tn_tt_log_conditionals": {"count": lambda tt, index: length(index) // tt.count},
    "tn_tt_sample": {"count": lambda tt, index: length(index) // tt.count},
    "tn_sink_memory": {"bytes": lambda data: length(data)},
    "tn_safetensors_read_bytes": {"bytes": lambda dst: length(dst)},
    "tn_tokenizer_encode": {"max": lambda ids: length(ids)},
    "tn_tokenizer_decode": {"bytes": lambda dst: length(dst)},
    "tn_shard_read": {"n": lambda ids: length(ids)},
    "tn_transformer_points": {"max": lambda points: length(points)},
    "tn_transformer_parts": {"max": lambda parts: length(parts)},
    "tn_image_matrix": {"rows": lambda values: end(values, -2), "columns": lambda values: end(values, -1)},
    "tn_image_matrix_of": {"rows": lambda t: end(t, -2), "columns": lambda t: end(t, -1)},
    "tn_image_tiles": {"count": lambda values: end(values, -3), "height": lambda values: end(values, -2),
                       "width": lambda values: end(values, -1)},
    "tn_image_tiles_of": {"count": lambda t: end(t, -3), "height": lambda t: end(t, -2), "width": lambda t: end(t, -1)},
    "tn_image_series": {"count": lambda y: length(y)},
    "tn_image_plot_desc": {"x_name_count": lambda x_names: length(x_names)},
    "tn_signal_desc": {"draws": lambda nulls: length(nulls)},
    "tn_source": {"bytes": lambda data: length(data)},
    "tn_sink": {"bytes": lambda data: length(data)},
    "tn_tt_linear_desc": {"count": lambda out: length(out)},
    "tn_transformer_desc": {"attention_count": lambda attention_cycle: length(attention_cycle),
                            "window_count": lambda window_cycle: length(window_cycle),
                            "mlp_count": lambda mlp_cycle: length(mlp_cycle)},
}
# Arrays that have a rule in SIZES and may be left out.
MAY_BE_NONE = {("tn_net_from_tt", "input"), ("tn_tokenizer_encode", "spans"), ("tn_circuit_path_name", "names"),
               ("tn_sink_memory", "used"), ("tn_sink_memory", "data"), ("tn_polynomial_fit_add", "weights"),
               ("tn_cp_mean", "weights")}


def by_names(rule, value_of):
    """The value of a rule of SIZES or DEFAULTS"""
    return rule(*map(value_of, rule.__code__.co_varnames[:rule.__code__.co_argcount]))


def check_length(name, value, need):
    """need: a number; for an array of arrays a list; None if C sees the length itself"""
    if isinstance(need, (list, np.ndarray)):
        check_length(name, value, len(need))
        for i, one in enumerate(need):
            check_length(f"{name}[{i}]", value[i], one)
    elif need is not None and length(value) != need:
        raise ValueError(f"{name}: it has {length(value)} elements, expected {need}")


# ---- values

def type_of(value):
    return getattr(value, "c_name", type(value).__name__)


def integer(base, value, name):
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an integer, not {type_of(value)}") from None
    low, high = LIMITS[base]
    if not low <= value <= high:
        raise OverflowError(f"{name}: {value} does not fit into {base}, whose numbers are {low} to {high}")
    return value


def scalar(base, value, name):
    """A number of C; enumerations are integers here"""
    if base in LIMITS:
        return integer(base, value, name)
    whole = base == "bool"
    if isinstance(value, (str, bytes)) or whole and not (isinstance(value, (bool, int, np.bool_)) and value in (0, 1)):
        raise TypeError(f"{name}: expected {'True or False' if whole else 'a number'}, not {value!r}")
    try:
        return bool(value) if whole else float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: expected a number, not {type_of(value)}") from None


def text(value, name, counted=False):
    """The bytes of a text or a path. Where no count stands beside it, C would read it to the first NUL."""
    if not isinstance(value, str):
        if not isinstance(value, (bytes, os.PathLike)):
            raise TypeError(f"{name}: expected a text, not {type_of(value)}")
        value = os.fspath(value)
    value = value.encode() if isinstance(value, str) else value
    if not counted and 0 in value:
        raise ValueError(f"{name}: {value!r} contains a NUL, where its end would be for C")
    return value


def listed(value, name):
    try:
        if not isinstance(value, (str, bytes, dict)):
            return list(value)
    except TypeError:
        pass
    raise TypeError(f"{name}: expected a list, not {type_of(value)}")


def array(value, name):
    """Any array; bytes are numbers from 0 to 255"""
    if hasattr(value, "__dlpack__") and not isinstance(value, (np.ndarray, np.generic)) and not hasattr(value, "c_name"):
        return dlpack.from_dlpack(value, name)
    try:
        return np.frombuffer(value, np.uint8) if isinstance(value, (bytes, bytearray)) else np.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name}: expected an array, not {type_of(value)}: {error}") from None


def numbers(base, value, const, name):
    """A contiguous array of the type of C, in this machine's byte order; for `void` the bytes of any numbers"""
    kind, any_kind = KINDS[base], base == "void"
    if isinstance(value, (bool, int, float, complex)):
        raise TypeError(f"{name}: expected an array, not a number")
    given = array(value, name)
    if any_kind and given.dtype.kind in "fiub":
        kind = given.dtype.newbyteorder("=")
    flags, same = given.flags, given.dtype == kind
    if not const:
        if not (same and flags.c_contiguous and flags.writeable and isinstance(value, (np.ndarray, bytearray, memoryview))):
            raise TypeError(f"{name}: it is written: expected a contiguous array of {'numbers' if any_kind else kind} that may "
                            f"be written, not {type_of(value)} of {given.dtype} with strides {given.strides}")
    elif not same or not flags.c_contiguous:
        if given.dtype.kind not in ("iub" if base in LIMITS and given.size else "fiub"):
            raise TypeError(f"{name}: expected numbers of {base}, not of {given.dtype}")
        if base in LIMITS and given.size and not np.can_cast(given.dtype, kind):
            integer(base, given.min(), name)
            integer(base, given.max(), name)
        given = np.asarray(given, kind, order="C")
    return given.reshape(-1).view(np.uint8) if any_kind else given


def is_array(base, stars, const, extents):
    """Whether a pointer leads to numbers, or to pointers: not to one object, one struct or a text"""
    stars += len(extents)
    return stars > 1 or stars == 1 and base in KINDS and not (base == "char" and const)


for _name in [*SIZES, *DEFAULTS]:                           # a rule for what is no longer declared
    if _name not in header["functions"] and _name not in header["structs"]:
        raise ImportError(f"arrays.py: {_name} is neither a function nor a struct of tensornet.h")
