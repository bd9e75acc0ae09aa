"""Parameters as a mapping of their names to tensors, and what freezing does to the objects of gradients"""
import fnmatch
import re
from collections.abc import Iterator, Mapping

from . import arrays
from .objects import Params, Tensor, classes


def freeze(self, pattern: str) -> int:
    ctx, text = self._ctx, arrays.text(pattern, "freeze: pattern").decode(errors="replace")
    with ctx._lock:
        params = [self.at(i) for i in range(self.count())]
        fits = [fnmatch.fnmatchcase(p.name, re.sub(r"([?[])", r"[\1]", text + "*" * ("*" not in text))) for p in params]
        freed = {p.value._fields().grad for p, one in zip(params, fits) if one} - {None}
        ending = [grad for grad in list(ctx._gradients.values()) if grad._at in freed]
        for grad in ending:
            ctx._check_views(grad)
        count = self._freeze(pattern)
        for grad in ending:
            grad._at = None
    return count


def value_of(self, name: str) -> Tensor:
    """params["name"]: the tensor of a parameter"""
    found = self.find(name) if isinstance(name, str) else None
    if found is None:
        raise KeyError(f"there is no parameter {name!r}; there are {', '.join(self)}")
    return found.value


def names(self) -> Iterator[str]:
    return (self.at(i).name for i in range(self.count()))


def attach():
    freeze.__doc__ = Params.freeze.__doc__ + (
        "\n\nIt ends the objects of these gradients; BufferError while an array looks at one.")
    Params._freeze, Params.freeze = Params.freeze, freeze
    Params.__getitem__, Params.__iter__, Params.__len__ = value_of, names, lambda self: self.count()
    Params.__bool__ = lambda self: True
    Params.__contains__ = lambda self, name: isinstance(name, str) and self.find(name) is not None
    Params.keys, Params.values, Params.items = Mapping.keys, Mapping.values, Mapping.items
    for kind in classes.values():
        if hasattr(kind, "forward"):                        # a layer or a model is called like a function
            kind.__call__ = kind.forward
