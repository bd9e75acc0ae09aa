"""tensornet.h for ctypes: the library, its structs and enumerations, made from declarations.json when this is imported."""
import ctypes
import enum
import json
import os
from pathlib import Path

here = Path(__file__).parent
header = json.loads((here / "declarations.json").read_text())
lib = ctypes.CDLL(os.environ.get("TENSORNET_LIBRARY") or str(here / "libtensornet.so"))

# Before anything else: another version lacks functions, or has them with other arguments.
version = ".".join(str(header["constants"]["TN_VERSION_" + part]) for part in ("MAJOR", "MINOR", "PATCH"))
lib.tn_version.restype = ctypes.c_char_p
if lib.tn_version().decode() != version:
    raise ImportError(f"the library is version {lib.tn_version().decode()}, this package is made for {version}")

NUMBERS = {"bool": ctypes.c_bool, "int": ctypes.c_int, "float": ctypes.c_float, "double": ctypes.c_double,
           "size_t": ctypes.c_size_t, "uint8_t": ctypes.c_uint8, "uint16_t": ctypes.c_uint16, "int32_t": ctypes.c_int32,
           "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64}


def prefix(names):
    """What the names of an enumeration have in common, to the last _: TN_MLP_ of TN_MLP_RELU and TN_MLP_GELU."""
    common = os.path.commonprefix(list(names))
    return common[:common.rfind("_") + 1]


def class_name(c_name):
    return "Context" if c_name == "tn_ctx" else "".join(word.capitalize() for word in c_name[len("tn_"):].split("_"))


def item(name, start):
    name = name[len(start):]
    return "_" + name if name[0].isdigit() else name


enums = {}
for c_name, items in header["enums"].items():
    start = prefix(items)
    enums[c_name] = enum.IntEnum(class_name(c_name), {item(name, start): value for name, value in items.items()})

structs = {c_name: type(c_name, (ctypes.Structure,), {}) for c_name in header["structs"]}


def ctype(base, stars, const, extents):
    """The ctypes type of a C type; a pointer to anything but text is an address."""
    if stars:
        kind = ctypes.c_char_p if (base, stars) == ("char", 1) and const else ctypes.c_void_p
    elif base in header["callbacks"]:
        kind = ctypes.c_void_p
    else:
        kind = structs.get(base) or (ctypes.c_int if base in enums else ctypes.c_char if base == "char" else
                                     NUMBERS[base])
    for extent in reversed(extents):
        kind = kind * extent
    return kind


def complete(c_name):
    """Gives a struct its fields, after the structs that it contains."""
    if "_fields_" in structs[c_name].__dict__:
        return
    for _, (base, stars, _, _) in header["structs"][c_name]:
        if base in structs and not stars:
            complete(base)
    structs[c_name]._fields_ = [(name, ctype(*kind)) for name, kind in header["structs"][c_name]]


for c_name in structs:
    complete(c_name)


def parameter(base, stars, const, extents):
    return ctype(base, stars + len(extents), const, [])


def returned(base, stars, const, extents):
    return None if (base, stars) == ("void", 0) else ctype(base, stars, const, extents)


for c_name, function in header["functions"].items():
    raw = getattr(lib, c_name)
    raw.argtypes = [parameter(*kind) for _, kind in function["arguments"]]
    raw.restype = returned(*function["result"])


def callback(c_name):
    """The ctypes type of a C function that Python is to be."""
    what = header["callbacks"][c_name]
    return ctypes.CFUNCTYPE(returned(*what["result"]), *(parameter(*kind) for _, kind in what["arguments"]))
