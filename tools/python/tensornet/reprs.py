"""What objects look like at a prompt: their kind, their shapes and their norms"""
import enum

import numpy as np

from .abi import class_name
from .objects import OWNED, PARAM, Object, Params, Tensor, TensornetError, classes

MANY = 1 << 24                                              # numbers; the norm of more would take a while


def norm_of(t):
    return f", norm {np.linalg.norm(t.numpy().astype(float)):.4g}" if 0 < t.size <= MANY else ""


def of_tensor(self):
    flags = self._fields().flags
    kind = ", parameter" if flags & PARAM else ", kept" if flags & OWNED else ""
    return f"<Tensor {self.dtype.name} {list(self.shape)}{kind}{norm_of(self)}>\n{self.format()}"


def of_params(self):
    listed = [self.at(i) for i in range(self.count())]
    width, norms = max((len(p.name) for p in listed), default=0), self.elements() <= MANY
    lines = [f"  {p.name:{width}}  {list(p.value.shape)}{norm_of(p.value) * norms}{', frozen' * p.frozen}" for p in listed[:40]]
    lines += ["  ..."] * (len(listed) > len(lines))
    return "\n".join([f"<Params: {len(listed)} parameters, {self.elements():,} numbers>", *lines])


def of_cp(self):
    norm = f", norm {self.norm():.4g}" if self.terms <= 4096 else ""
    inputs = " x ".join(str(n) for n in self.in_[:self.order])
    return f"<Cp: {self.out} outputs, inputs {inputs}, {self.terms} terms{', constant' * self.constant}{norm}>"


def of_transformer(self):
    d = self.desc
    kinds = f"{d.attention.name.lower()} attention" + ("" if d.mlp_count else f" and {d.mlp.name.lower()} MLP")
    return (f"<Transformer: {d.layers} blocks of {kinds}, width {d.dim}, {d.heads} heads, context {d.context}, "
            f"vocabulary {d.vocab}>")


def values_of(o, zeros):
    """The numbers and texts of a struct, and the shapes and norms of its tensors"""
    for name, (base, stars, _, extents) in o.kinds.items():
        value = getattr(o, name)
        if isinstance(value, Tensor):
            yield f"{name} {list(value.shape)}{norm_of(value)}"
        elif isinstance(value, list) and value and isinstance(value[0], Tensor):
            yield f"{name} " + " ".join(str(list(t.shape)) for t in value if t is not None)
        elif isinstance(value, Object) and name == "desc":
            yield from values_of(value, False)
        elif isinstance(value, enum.IntEnum):
            yield from [f"{name}={value.name.lower()}"] if zeros or value else []
        elif not extents and not (stars and base != "char") and isinstance(value, (int, float, str)) and (zeros or value):
            yield f"{name}={value!r}"


ALL = {"tn_tensor": of_tensor, "tn_params": of_params, "tn_cp": of_cp, "tn_transformer": of_transformer,
       "tn_tokenizer": lambda self: f"<Tokenizer: {self.count()} tokens>",
       "tn_safetensors": lambda self: f"<Safetensors: {self.count()} tensors>",
       "tn_image": lambda self: f"<Image: {self.width} x {self.height}>",
       "tn_ctx": lambda self: f"<Context: {self.backend_name()}, {self.dtype().name}>"}


def of(self):
    name = class_name(self.c_name)
    try:
        self._address
    except TensornetError:
        return f"<{name}, {'closed' if self.c_name == 'tn_ctx' else 'freed'}>"
    made = ALL.get(self.c_name)
    if made:
        return made(self)
    values = ", ".join(values_of(self, not name.endswith("Desc"))) if self.layout else ""
    return f"<{name}: {values}>" if values else f"<{name}>"


def attach():
    Object.__repr__ = of
    Tensor.__str__ = lambda self: self.format() if self._at is not None else of(self)
