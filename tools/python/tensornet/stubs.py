"""python3 -m tensornet.stubs: the package as a stub for editors and type checkers, which setup.py stores as __init__.pyi."""
import enum
import inspect
import re
import sys

import tensornet

from .abi import header
from .objects import COUNTED, Object
from .signatures import Name, got, python

HEAD = '''"""Made by tensornet/stubs.py from tensornet.h."""
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
'''
# Functions of the module that became methods, or serve it.
INTERNAL = "class_name look_at_params look_at_transformer png svg encode decode top_many points".split()
# Results of methods of tensors that have no annotation.
TENSORS = {"Tensor": "reshape transpose squeeze astype sum mean var std max min argmax argmin round flatten ravel swapaxes "
                     "__getitem__ __neg__ __pos__ __abs__ __pow__ __rpow__ __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ "
                     "__truediv__ __rtruediv__ __matmul__ __rmatmul__ __floordiv__ __mod__",
           "np.ndarray": "__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __array__ numpy", "int": "__len__ __index__ __int__", "float": "__float__",
           "Any": "tolist any all item __dlpack__ __dlpack_device__", "None": "__setitem__", "Iterator[Tensor]": "__iter__", "bool": "__contains__", "Iterator[str]": "keys", "Iterator[tuple[str, Tensor]]": "items"}
RESULTS = {name: kind for kind, names in TENSORS.items() for name in names.split()}
ATTRIBUTES = {"shape": "tuple[int, ...]", "ndim": "int", "size": "int", "T": "Tensor", "mT": "Tensor", "ctx": "Context"}


def stub_of(name, function, indent=""):
    """A function as a line of the stub"""
    signature = inspect.signature(function)
    if signature.return_annotation is signature.empty and name in RESULTS:
        signature = signature.replace(return_annotation=Name(RESULTS[name]))
    shown = []
    for p in signature.parameters.values():
        kind = p.annotation if p.default is not None or p.annotation is p.empty or "None" in str(p.annotation) else Name(
            f"{getattr(p.annotation, '__name__', p.annotation)} | None")
        value = p.default if p.default is p.empty or type(p.default) in (bool, int, float, str, type(None)) else Name("...")
        if not p.name.startswith("_") or p.kind is p.VAR_POSITIONAL:
            shown.append(p.replace(annotation=kind, default=value))
    text = re.sub(r"\btensornet(\.\w+)*\.(?=\w)", "", str(signature.replace(parameters=shown))).replace("numpy.", "np.").replace("collections.abc.", "")
    return f"{indent}def {name}{text}: ..." + "  # type: ignore[override]" * (name in ("__eq__", "__ne__"))


def class_stub(kind):
    name, lines = kind.__name__, []
    for field, (base, stars, const, extents) in (getattr(kind, "kinds", None) or {}).items():
        if base in header["callbacks"] or field in ATTRIBUTES and kind.c_name == "tn_tensor":
            continue
        one = got(base, stars)
        many = extents and base != "char" or (kind.c_name, field) in COUNTED
        lines.append(f"    {python(field)}: {f'list[{one}]' if many else one}")
    lines += [f"    {field}: {annotation.__name__}" for field, annotation in getattr(kind, "__annotations__", {}).items()]
    for member, value in sorted(vars(kind).items()):
        shown = not member.startswith("_") or member in RESULTS or member in ("__init__", "__call__", "__enter__", "__exit__")
        if isinstance(value, property) and shown:
            kind_of = inspect.signature(value.fget).return_annotation
            kind_of = ATTRIBUTES.get(member, "Any" if kind_of is inspect.Signature.empty else kind_of.__name__)
            lines.append(f"    @property\n    def {member}(self) -> {kind_of}: ...")
        elif inspect.isfunction(value) and shown and python(member) not in (getattr(kind, "kinds", None) or {}):
            lines.append(stub_of(member, value, "    "))
    parent = "" if kind.__base__ is object else f"({kind.__base__.__name__})"
    return "\n".join([f"class {name}{parent}:", *(lines or ["    ..."])]) + "\n"


def stub(package):
    """The text of __init__.pyi"""
    parts, public = [HEAD], {name: value for name, value in vars(package).items() if not name.startswith("_")}
    for name, value in public.items():
        if isinstance(value, type) and issubclass(value, enum.Enum):
            parts.append("\n".join([f"class {name}(IntEnum):", *(f"    {item.name} = {int(item)}" for item in value)]) + "\n")
    parts.append(class_stub(Object))
    for name, value in public.items():
        if isinstance(value, type) and not issubclass(value, enum.Enum) and value is not Object and value.__name__ == name:
            parts.append(class_stub(value))
    functions = [stub_of(name, value) for name, value in public.items() if inspect.isfunction(value) and name not in INTERNAL]
    constants = [f"{name}: {type(value).__name__}" for name, value in public.items() if isinstance(value, (int, float))]
    return "\n\n".join(parts) + "\n\n" + "\n".join(functions + constants + ["__version__: str"]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(stub(tensornet))
