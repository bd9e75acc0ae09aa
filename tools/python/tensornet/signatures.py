"""Signatures with types and defaults, made from the declarations, for help(), editors and stubs.py."""
import inspect
import keyword

from . import arrays
from .abi import class_name, enums, header, structs
from .objects import classes

POSITIONAL, KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
TEXTS = {"tn_source": "str | PathLike | bytes | Source", "tn_sink": "str | PathLike | Sink"}


class Name(str):
    """A type by its name, as help() shows it"""
    __repr__ = str.__str__


def number(base):
    return "bool" if base == "bool" else "float" if base in ("double", "float") else "int"


def given(base, stars, const, counted=False):
    """The type of what Python may give for an argument or a field of C"""
    if base in header["callbacks"]:
        return "Callable"
    if not stars:
        return (f"{class_name(base)} | str" if base in enums else TEXTS.get(base, f"{class_name(base)} | dict") if base in structs
                else number(base))
    if stars == 1 and base in ("tn_tensor", "void"):
        return "ArrayLike"
    if base == "char" and const:
        return "str" if stars == 1 else "Sequence[str]"
    if base in classes or base in enums:
        one = "ArrayLike" if base == "tn_tensor" else class_name(base) + " | dict" * (base in structs)
        return f"Sequence[{one}]" if stars > 1 or counted else one
    return "Sequence[ArrayLike]" if stars > 1 else "ArrayLike" if const else "np.ndarray"


def got(base, stars):
    """The type of a result or a field"""
    return (class_name(base) if base in classes or base in enums and not stars else "str" if (base, stars) == ("char", 1) else
            "None" if (base, stars) == ("void", 0) else "int" if stars else number(base))


def default(base, stars):
    """What C gets of a field that is left out: zero"""
    if base in enums and not stars:
        return next((name.lstrip("_").lower() for name, value in enums[base].__members__.items() if value == 0), 0)
    if stars or base in structs or base in header["callbacks"]:
        return None
    return {"bool": False, "float": 0.0, "int": 0}[number(base)]


def python(name):
    return name + "_" * keyword.iskeyword(name)


def settings(c_name):
    """The fields of a desc as keywords"""
    for name, (base, stars, const, extents) in header["structs"][c_name]:
        kind = given(base, stars + len(extents), const or bool(extents), bool(extents) or name in arrays.SIZES.get(c_name, ()))
        yield inspect.Parameter(python(name), KEYWORD, annotation=Name(kind), default=None if extents else default(base, stars))


def settings_text(c_name):
    """The same as text, each with what its comment says"""
    notes = header["notes"].get(c_name, {})
    return "\n".join(f"    {p!s:44} {notes.get(p.name.rstrip('_'), '')}".rstrip() for p in settings(c_name))


def result_of(what, declared):
    """The type of what a function returns: its result and its outputs"""
    base, stars = what["result"][:2]
    kinds = [] if base in ("void", "tn_status") and not stars else [got(base, stars)]
    kinds += ["str"] if declared and declared[-1].role == "text" and not kinds.clear() else []
    kinds += [class_name(a.base) if a.role in ("struct", "object") else number(a.base) for a in declared
              if a.role in ("struct", "object", "number")]
    return "None" if not kinds else kinds[0] if len(kinds) == 1 else f"tuple[{', '.join(kinds)}]"


def signature_of(what, declared, taken, bound):
    """The signature of a function of C in Python; taken: what is given, bound: whether it has a self"""
    found = [inspect.Parameter("self", POSITIONAL)] if bound else []
    later = []
    for a in taken:
        if a.role == "desc":
            keywords = {p.name: p for p in settings(a.base)}
            later = [p for name, p in keywords.items() if name not in {python(b.name) for b in taken}]
            kind, missing = f"{class_name(a.base)} | dict | None", None
        else:
            base, stars, const = a.read
            kind, missing = given(base, stars, const, a.is_array), inspect.Parameter.empty
            missing = default(base, stars) if a.optional else missing
            kind += " | None" * (missing is None and a.optional)
        if found and found[-1].default is not found[-1].empty and missing is inspect.Parameter.empty:
            missing = Name("...")                           # Python has no required argument after an optional one
        found.append(inspect.Parameter(python(a.name), POSITIONAL, annotation=Name(kind), default=missing))
    return inspect.Signature(found + later, return_annotation=Name(result_of(what, declared)))


def of_context():
    return inspect.Signature([inspect.Parameter("self", POSITIONAL), *settings("tn_desc")])
