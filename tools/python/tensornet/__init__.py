"""tensornet.h from Python.

    import tensornet as tn

    with tn.Context(seed=7) as ctx:
        params = ctx.params_create()
        layer = params.mlp_init("layer", in_=2, hidden=3, out=1, bias=True)     # descs are keywords; in_, as in is Python's
        y = layer.forward(np.ones((4, 2)))                                      # arrays become tensors
        y.numpy()                                                               # and tensors arrays
        e = ctx.cp_from_mlp(layer).eigen_all(3)                                 # outputs are what a function returns

Functions have their names of C without tn_ and the name of the object that they belong to: tn_cp_fold_in(cp, e, b) is
cp.fold_in(e, b). Numbers of elements are not given, nor the context where an object has one. help() of a function shows the
header's comment. A failed call raises TensornetError; enumerations are tn.ATTEND_SQUARED, tn.AttendKind.SQUARED or "squared".
What C cannot see, such as the length of an array, is checked before the call: ValueError, TypeError or OverflowError.

tn.load(path) reads a model; tensors have NumPy's indices, operators and reductions; params["layer.w"] is a parameter's tensor.
"""
import ctypes

import numpy as np

from . import arrays, functions, objects, params, reprs, tensors
from .abi import class_name, enums, header, version as __version__
from .look import Page, look, look_at_params, look_at_transformer, png, svg
from .objects import Context, Object, Params, Status, Tensor, TensornetError, classes

globals().update({class_name(name): kind for name, kind in {**classes, **enums}.items() if name != "tn_ctx"})
globals().update({name[len("TN_"):]: enum(value) for c_name, enum in enums.items()
                  for name, value in header["enums"][c_name].items()})
globals().update({name[len("TN_"):]: value for name, value in header["constants"].items()})


# ---- texts

def encode(self, text: str, bos=0) -> np.ndarray:
    """The ids of a text, int32"""
    text = arrays.text(text, "encode: text", True)
    ids = np.empty(len(text) + len(text) // 2 + 2, np.int32)
    count = self._encode(text, bos, ids)
    if count > len(ids):                                    # a normalizer may make text longer
        ids = np.empty(count, np.int32)
        self._encode(text, bos, ids)
    return ids[:count]


def decode(self, ids) -> str:
    """The text of ids"""
    text = np.empty(self._decode(ids) + 1, np.uint8)
    self._decode(ids, text)
    return text[:-1].tobytes().decode(errors="replace")


globals().update(functions.attach())
Context.tensor_from = tensors.tensor_from
tensors.attach()
reprs.attach()
params.attach()
Tokenizer = classes["tn_tokenizer"]
Tokenizer._encode, Tokenizer.encode = Tokenizer.encode, encode
Tokenizer._decode, Tokenizer.decode = Tokenizer.decode, decode


# ---- circuits

def top_many(self, descs) -> list:
    """The entries of 1 to 4 descs, a list of dicts, while the matrix is computed once"""
    ctx, keep, descs = self._ctx, [], arrays.listed(descs, "top_many: descs")
    with ctx._lock:
        ctx._collect()
        found = (objects.structs["tn_circuit_entries"] * len(descs))()
        filled = (objects.structs["tn_circuit_top_desc"] * len(descs))(
            *(ctx._fill("tn_circuit_top_desc", desc, keep, f"top_many: descs[{i}]") for i, desc in enumerate(descs)))
        ctx._check(objects.lib.tn_circuit_top_many(self._address, len(found), ctypes.addressof(filled),
                                               ctypes.addressof(found)), "top_many")
        return [classes["tn_circuit_entries"](ctx, one, (self,), keep, True) for one in found]


classes["tn_circuit"].top_many = top_many


# ---- transformers

def points(list_points):
    def call(self, *sizes: int) -> list:
        """The points of a forward pass, or the parts of an attribution, as (name, shape)"""
        found = (objects.structs["tn_point"] * list_points(self, *sizes, None))()
        list_points(self, *sizes, found)
        return [(point.name.decode(), tuple(point.shape[:point.rank])) for point in found]
    return call


Transformer = classes["tn_transformer"]
Transformer.points, Transformer.parts = points(Transformer.points), points(Transformer.parts)


# ---- files

from .loading import Model, Network, load                  # needs the functions above  # noqa: E402

# ---- in a notebook

classes["tn_image"]._repr_svg_, classes["tn_image"]._repr_png_ = svg, png
Params.look, Transformer.look = look_at_params, look_at_transformer
