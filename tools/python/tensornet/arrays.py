"""What C cannot see of its arguments is checked here, before it is called: the length of an array, the type and the byte order
of its numbers, whether they may be written, whether an integer fits its type, and whether a text ends where Python says."""
import ctypes
import math
import operator
import os

import numpy as np

from .abi import NUMBERS, header

KINDS = {**{base: np.dtype(kind) for base, kind in NUMBERS.items() if base != "bool"}, "char": np.dtype(np.uint8),
         "void": np.dtype(np.uint8)}


# ---- lengths

def shape(value):
    """The shape of a tensor, an array or a list"""
    return tuple(value.shape) if hasattr(value, "shape") else np.shape(value)


def end(value, at):
    """An extent of an array, at: -1 the last one, -2 the one before; 1 if there are fewer axes"""
    return (1, 1, *shape(value))[at]


def length(base, stars, value):
    """The number of elements that an array has for C"""
    if value is None:
        return 0
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, (bytes, bytearray, memoryview)):
        return memoryview(value).nbytes
    if hasattr(value, "_count"):                            # a map of names, as a function returns it
        return value._count
    if stars > 1 or isinstance(value, (list, tuple, ctypes.Array)) and base not in KINDS:
        return len(value)
    if base == "void":
        return np.asarray(value).nbytes
    return math.prod(shape(value)) if base in KINDS else 1


def rows_of(count, rows, columns):
    return rows or max(-(-count // columns_of(count, rows, columns)), 1)


def columns_of(count, rows, columns):
    return columns or max(-(-count // rows) if rows else math.ceil(math.sqrt(count)), 1)


MATRIX = {"desc.x_names": lambda columns: columns, "desc.y_names": lambda rows: rows}
TILES = {"desc.captions": lambda count: count, "desc.row_names": rows_of, "desc.column_names": columns_of,
         "desc.x_names": lambda width: width, "desc.y_names": lambda height: height}

# How many elements C reads or writes of an array that no count stands beside, or not only; what the names of the parameters
# mean are other arguments of C, fields of the desc, or what DEFAULTS says. For an array of arrays it is a list.
# A function with an array that has neither a count nor a line here stops the import; a field of a struct without a line can
# only be None.
SIZES = {
    "tn_comm_sum": {"numbers": lambda count: count},
    "tn_lanczos": {"fn": lambda n: n},                      # of a row of what the function gets
    "tn_tensor_table": {"desc.row_names": lambda t: (*shape(t), 1)[0], "desc.column_names": lambda t: (*shape(t), 1, 1)[1]},
    "tn_einsum_labels": {"operands": lambda n: n, "out": lambda rank: rank,
                         "labels": lambda operands: [len(shape(t)) for t in operands]},
    "tn_plan_create": {"ranks": lambda n: n, "shapes": lambda ranks: ranks},
    "tn_plan_create_labels": {"ranks": lambda n: n, "shapes": lambda ranks: ranks, "labels": lambda ranks: ranks,
                              "out": lambda rank: rank},
    "tn_cp_apply_each": {"x": lambda cp: cp.order},
    "tn_cp_stack_inner": {"b": lambda layers: layers},
    "tn_net_apply_each": {"x": lambda net: net.legs},
    "tn_net_from_tt": {"input": lambda tt: tt.count},
    "tn_tt_elements": {"index": lambda tt, count: count * tt.count, "values": lambda count: count},
    "tn_tt_conditional": {"index": lambda known: known, "p": lambda tt, known: tt.core[known].shape[1]},
    "tn_tt_log_conditionals": {"index": lambda tt, count: count * tt.count, "log_p": lambda tt, count: count * tt.count},
    "tn_tt_sample": {"index": lambda tt, count: count * tt.count},
    "tn_tt_from_matrix": {"in": lambda count: count},
    "tn_tt_to_matrix": {"out": lambda tt: tt.count, "in": lambda tt: tt.count},
    "tn_sink_memory": {"data": lambda room: room, "used": lambda: 1},
    "tn_safetensors_read_bytes": {"dst": lambda bytes: bytes},
    "tn_tokenizer_encode": {"ids": lambda room: room, "spans": lambda room: room},
    "tn_tokenizer_decode": {"dst": lambda room: room},
    "tn_shard_read": {"ids": lambda n: n},
    "tn_transformer_points": {"points": lambda max: max},
    "tn_transformer_parts": {"parts": lambda max: max},
    "tn_circuit_create": {"right": lambda sets: sets},
    "tn_circuit_path_name": {"names": lambda paths: paths.frozen.model.desc.vocab},
    "tn_colour": {"rgb": lambda: 3},
    "tn_image_matrix": {"values": lambda rows, columns: rows * columns, **MATRIX},
    "tn_image_matrix_of": MATRIX,
    "tn_image_tiles": {"values": lambda count, height, width: count * height * width, **TILES},
    "tn_image_tiles_of": TILES,
    "tn_series": dict.fromkeys(("x", "y", "low"), lambda count: count),
    "tn_signal_desc": {"nulls": lambda draws: draws or 19},
    "tn_plot_desc": {"x_names": lambda x_name_count: x_name_count},
    "tn_source": {"data": lambda bytes: bytes},
    "tn_sink": {"data": lambda room: room, "used": lambda: 1},
}
# What an argument or a field is that is left out. In Python the first is the place of counts that C has in front of arrays.
DEFAULTS = {
    "tn_comm_sum": {"count": lambda numbers: length("double", 1, numbers)},
    "tn_einsum_labels": {"n": lambda operands: len(operands), "rank": lambda out: len(out)},
    "tn_plan_create": {"n": lambda shapes: len(shapes), "ranks": lambda shapes: [len(s) for s in shapes]},
    "tn_plan_create_labels": {"n": lambda shapes: len(shapes), "ranks": lambda shapes: [len(s) for s in shapes],
                              "rank": lambda out: len(out)},
    "tn_tt_elements": {"count": lambda values: length("double", 1, values)},
    "tn_tt_conditional": {"known": lambda index: length("int64_t", 1, index)},
    "tn_tt_log_conditionals": {"count": lambda tt, index: length("int64_t", 1, index) // tt.count},
    "tn_tt_sample": {"count": lambda tt, index: length("int64_t", 1, index) // tt.count},
    "tn_sink_memory": {"room": lambda data: length("void", 1, data)},
    "tn_safetensors_read_bytes": {"bytes": lambda dst: length("void", 1, dst)},
    "tn_tokenizer_encode": {"room": lambda ids: length("int32_t", 1, ids)},
    "tn_tokenizer_decode": {"room": lambda dst: length("char", 1, dst)},
    "tn_shard_read": {"n": lambda ids: length("int32_t", 1, ids)},
    "tn_transformer_points": {"max": lambda points: length("tn_point", 1, points)},
    "tn_transformer_parts": {"max": lambda parts: length("tn_point", 1, parts)},
    "tn_image_matrix": {"rows": lambda values: end(values, -2), "columns": lambda values: end(values, -1)},
    "tn_image_matrix_of": {"rows": lambda t: end(t, -2), "columns": lambda t: end(t, -1)},
    "tn_image_tiles": {"count": lambda values: (1, *shape(values))[-3], "height": lambda values: end(values, -2),
                       "width": lambda values: end(values, -1)},
    "tn_image_tiles_of": {"count": lambda t: (1, 1, 1, *shape(t))[-3], "height": lambda t: end(t, -2),
                          "width": lambda t: end(t, -1)},
    "tn_series": {"count": lambda y: length("double", 1, y)},
    "tn_plot_desc": {"x_name_count": lambda x_names: length("char", 2, x_names)},
    "tn_signal_desc": {"draws": lambda nulls: length("tn_cp", 2, nulls)},
    "tn_source": {"bytes": lambda data: length("void", 1, data)},
    "tn_sink": {"room": lambda data: length("void", 1, data)},
    "tn_tt_linear_desc": {"count": lambda out: length("int64_t", 2, out)},
    "tn_transformer_desc": {"attention_count": lambda attention_cycle: length("int", 2, attention_cycle),
                            "window_count": lambda window_cycle: length("int64_t", 2, window_cycle),
                            "mlp_count": lambda mlp_cycle: length("int", 2, mlp_cycle)},
}
# What may be NULL although C would read so many elements of it.
MAY_BE_NONE = {("tn_net_from_tt", "input"), ("tn_tokenizer_encode", "spans"), ("tn_circuit_path_name", "names"),
               ("tn_sink_memory", "used"), ("tn_sink_memory", "data")}


def by_names(rule, value_of):
    """What a line of SIZES or DEFAULTS says, for the values of its parameters"""
    return rule(*map(value_of, rule.__code__.co_varnames[:rule.__code__.co_argcount]))


def check_length(name, have, need):
    if need is not None and have != need:
        raise ValueError(f"{name}: it has {have} elements, expected {need}")


# ---- values

def integer(base, value, name):
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an integer, not {type(value).__name__}") from None
    low, high = np.iinfo(KINDS[base]).min, np.iinfo(KINDS[base]).max
    if not low <= value <= high:
        raise OverflowError(f"{name}: {value} does not fit into {base}, whose numbers are {low} to {high}")
    return value


def scalar(base, value, name):
    """A number of C; enumerations are integers here"""
    if base in KINDS and KINDS[base].kind in "iu":
        return integer(base, value, name)
    whole = base == "bool"
    if isinstance(value, (str, bytes)) or whole and not (isinstance(value, (bool, int, np.bool_)) and value in (0, 1)):
        raise TypeError(f"{name}: expected {'True or False' if whole else 'a number'}, not {value!r}")
    try:
        return bool(value) if whole else float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: expected a number, not {type(value).__name__}") from None


def text(value, name, counted=False):
    """The bytes of a text or a path. Where no count stands beside it, C would read it to the first NUL."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise TypeError(f"{name}: expected a text, not {type(value).__name__}")
    value = os.fspath(value)
    value = value.encode() if isinstance(value, str) else value
    if not counted and 0 in value:
        raise ValueError(f"{name}: {value!r} contains a NUL, where its end would be for C")
    return value


def numbers(base, value, const, name, size=None):
    """The array whose address C gets: of its type and byte order, contiguous, of `size` elements (void: bytes)"""
    kind = KINDS[base]
    array = np.frombuffer(value, np.uint8) if isinstance(value, (bytes, bytearray, memoryview)) else value
    if not const:
        fits = isinstance(array, np.ndarray) and (array.dtype == kind or base == "void" and array.dtype.isnative
                                                  and array.dtype.kind in "fiub")
        if not fits or not array.flags.c_contiguous or not array.flags.writeable:
            what = f"{array.dtype}, strides {array.strides}" if isinstance(array, np.ndarray) else type(value).__name__
            raise TypeError(f"{name}: it is written: expected a contiguous array of {'numbers' if base == 'void' else kind} "
                            f"that may be written, not {what}")
    else:
        if isinstance(value, (bool, int, float, complex)):
            raise TypeError(f"{name}: expected an array, not a number")
        try:
            array = np.asarray(array)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        if array.dtype.kind not in ("iub" if kind.kind in "iu" and base != "void" and array.size else "fiub"):
            raise TypeError(f"{name}: expected numbers of {base}, not of {array.dtype}")
        if base != "void" and kind.kind in "iu" and array.size:
            integer(base, array.min().item(), name)
            integer(base, array.max().item(), name)
        array = np.asarray(array, array.dtype.newbyteorder("=") if base == "void" else kind, order="C")
    check_length(name, array.nbytes if base == "void" else array.size, size)
    return array


def is_array(base, stars, const, extents):
    """Whether a pointer leads to numbers, or to pointers: not to one object, one struct or a text"""
    stars += len(extents)
    return stars > 1 or stars == 1 and base in KINDS and not (base == "char" and const)


for _name in [*SIZES, *DEFAULTS]:                           # a line of what is no longer declared
    if _name not in header["functions"] and _name not in header["structs"]:
        raise ImportError(f"arrays.py: {_name} is neither a function nor a struct of tensornet.h")
