"""tn.load: what a path holds, as one object. What a file is, is decided as `tn look` and `tn import` decide it."""
import json
import math
import operator
import os
import re
from collections import namedtuple
from collections.abc import Mapping
from pathlib import Path

from . import Cp, foreign_format, name_map_bilinear, name_map_gemma, name_map_gpt2, name_map_llama, name_map_modded, transformer_cost_of
from .abi import structs
from .look import Page, look
from .objects import Context, Params, Status, Tensor, TensornetError

Layer = namedtuple("Layer", "name w v p wb vb pb")          # p and the biases may be None
OTHERS = {".pt": "torch", ".pth": "torch", ".bin": "torch", ".ckpt": "torch", ".pkl": "torch", ".gguf": "gguf", ".npz": "npz"}
WRITE = {"torch": "in PyTorch safetensors.torch.save_file(model.state_dict(), path) writes one",
         "gguf": "its quantised weights are not read", "npz": "np.save writes each array as a .npy file"}
BUFFER = re.compile(r".*(\.attn\.(masked_)?bias|\.rotary(_emb)?\.inv_freq)")        # follow from the config; some files hold them


class Tensors(Mapping):
    """The tensors of a file by name, each read when it is first asked for"""

    def __init__(self, file):
        self._file, self._read = file, {}
        self.shapes = {(e := file.at(i)).name: tuple(e.shape[:e.rank]) for i in range(file.count())}

    def __getitem__(self, name):
        if name not in self._read:
            if name not in self.shapes:
                raise KeyError(f"there is no tensor {name}; there are {', '.join(self.shapes)}")
            self._read[name] = self._file.read(name).keep()
        return self._read[name]

    def __iter__(self):
        return iter(self.shapes)

    def __len__(self):
        return len(self.shapes)

    def __repr__(self):
        width = max(map(len, self.shapes), default=0)
        return "\n".join(f"{name:{width}}  {list(shape)}" for name, shape in self.shapes.items())


class Array(dict):
    """The tensor of a .npy file under the file's name"""

    def __init__(self, name, tensor):
        super().__init__({name: tensor})
        self.shapes = {name: tensor.shape}

    __repr__ = Tensors.__repr__


class Network:
    """Bilinear layers of a file, `layers`, with `embed` before and `head` after them; these and the biases may be None.
    `residual`: whether a layer's input is added to its output; `said`: whether the file or the caller says that. Known names
    are those of this library, X.w [2,h,d] or [h,d] beside X.v, and of github.com/tdooms/bilinear-decomposition,
    blocks.K.weight [2h,d]. A bias of a layer that is not understood is an error."""

    def __init__(self, tensors, residual, words):
        def any_of(name, *ends):
            return next((tensors[name + end] for end in ends if name + end in tensors), None)

        def layer(name, w, v, bias=None):
            h = w.shape[0]
            if bias is not None and bias.count() != 2 * h:
                raise TensornetError(f"load: the bias of {name} has {bias.count()} numbers, expected {2 * h}", Status.ERR_SHAPE)
            wb, vb = (bias.reshape(2, h)[i] for i in (0, 1)) if bias is not None else (None, None)
            w, v, wb, vb = (t if t is None else t.keep() for t in (w, v, wb, vb))       # no views, which reset() would end
            return Layer(name, w, v, any_of(name, ".p", ".p.weight"), wb, vb, any_of(name, ".pb", ".p.bias"))
        self.layers, self.said = [], residual is not None or "residual" in words
        self.residual = "residual" in words and "no residual" not in words if residual is None else residual
        for name, shape in tensors.shapes.items():
            stacked, own = re.fullmatch(r"(blocks\.\d+)\.weight", name), re.fullmatch(r"(.+)(\.w(\.weight)?)", name)
            if own and len(shape) == 3 and shape[0] == 2:
                self.layers.append(layer(own[1], tensors[name][0], tensors[name][1], any_of(own[1], ".b")))
            elif own and len(shape) == 2 and tensors.shapes.get(own[1] + own[2].replace("w", "v", 1)) == shape:
                for bias in (own[1] + end for end in (".w.bias", ".v.bias", ".b", ".bias")):
                    if bias in tensors:
                        raise TensornetError(f"load: {bias} beside {name}, expected no biases where w and v are apart: give both "
                                             "as one w [2,h,d] with b [2,h]", Status.ERR_FORMAT)
                self.layers.append(layer(own[1], tensors[name], tensors[own[1] + own[2].replace("w", "v", 1)]))
            elif stacked and len(shape) == 2 and shape[0] % 2 == 0:
                w = tensors[name].reshape(2, shape[0] // 2, shape[1])
                self.layers.append(layer(stacked[1], w[0], w[1], any_of(stacked[1], ".bias")))
        self.layers.sort(key=lambda one: (len(one.name), one.name))             # blocks.2 before blocks.10
        weight, bias = (".w", ".weight", ".w.weight", ""), (".b", ".bias")
        self.embed, self.embed_bias = any_of("embed", *weight), any_of("embed", *bias)
        self.head = next((t for name in ("head", "unembed") if (t := any_of(name, *weight)) is not None), None)
        self.head_bias = next((t for name in ("head", "unembed") if (t := any_of(name, *bias)) is not None), None)

    def operator_of(self, k: int) -> Cp:
        """The operator of layer k from the inputs to the outputs: all of the network if it is its only layer."""
        one, only = self.layers[k], len(self.layers) == 1
        ctx, biased = one.w.ctx, one.wb is not None
        f = [one.w, one.v]
        if biased:
            f = [ctx.concat([w, b.reshape(-1, 1)], 1) for w, b in zip(f, (one.wb, one.vb))]
        cp = ctx.cp_create(ctx.eye(one.w.shape[0]), f, "constant" if biased else "plain")
        if one.p is not None:
            cp = cp.fold_out(one.p, one.pb)
        if self.residual and only:
            cp = cp.residual()
        if self.embed is not None and (k == 0 or self.residual):
            cp = cp.fold_in(self.embed, self.embed_bias)
        if self.head is not None and (k + 1 == len(self.layers) or self.residual):
            cp = cp.fold_out(self.head, self.head_bias if only else None)
        return cp

    def forward(self, x) -> Tensor:
        """The outputs [..,outputs] of inputs x [..,inputs]"""
        ctx = self.layers[0].w.ctx
        x = x if isinstance(x, Tensor) else ctx.tensor(x)
        if self.embed is not None:
            x = ctx.affine(x, self.embed, self.embed_bias)
        for one in self.layers:
            y = ctx.affine(x, one.w, one.wb) * ctx.affine(x, one.v, one.vb)
            y = y if one.p is None else ctx.affine(y, one.p, one.pb)
            x = x + y if self.residual else y
        return x if self.head is None else ctx.affine(x, self.head, self.head_bias)

    def __repr__(self):
        names = [*(["embed"] if self.embed is not None else []), *(one.name for one in self.layers),
                 *(["head"] if self.head is not None else [])]
        square = all((one.w if one.p is None else one.p).shape[0] == one.w.shape[1] for one in self.layers)
        unsaid = "; nothing says whether layers are added to their inputs: residual=True does" * (square and not self.said)
        return f"<Network {' > '.join(names)}{', residual' * self.residual}{unsaid}>"


class Model:
    """What tn.load found at `path`. `kind`: "language model", "network of bilinear layers", "tensors" or "array".

    model       a Transformer or a Network, or None; model.forward(x), or simply this object called with x
    tokenizer   or None: then texts are ids
    operator    of the whole, where there is one: of a network with one layer, or of a tensor [out,in,in]
    operators   of each layer; of a language model those of the MLPs to the logits, None where an MLP is not bilinear
    tensors     by name; params are the parameters of a language model; ctx is the context
    """

    path: Path
    kind: str
    ctx: Context
    tensors: Mapping
    model: object
    params: Params
    tokenizer: object

    def __init__(self, path, kind, ctx, tensors, model=None, params=None, tokenizer=None, foreign=False):
        self.path, self.kind, self.ctx, self.tensors, self.model = path, kind, ctx, tensors, model
        self.params, self.tokenizer, self._foreign, self._operators = params, tokenizer, foreign, None

    @property
    def operators(self) -> list:
        if self._operators is None:
            count = (len(self.model.layers) if isinstance(self.model, Network) else self.model.desc.layers if self.model
                     else len(self.tensors) == 1)
            self._operators = [self._operator_of(k) for k in range(count)]
        return self._operators

    def _operator_of(self, k):
        ctx = self.ctx
        if isinstance(self.model, Network):
            return self.model.operator_of(k)
        try:
            if self.model:
                return ctx.circuit_mlp(self.model, k).fold_out(ctx.circuit_unembedding(self.model))
            return ctx.cp_from_tensor(next(iter(self.tensors.values())))
        except TensornetError as error:
            if error.status not in (Status.ERR_ARG, Status.ERR_SHAPE, Status.ERR_DTYPE):
                raise
            return None                                     # not of this kind

    @property
    def operator(self) -> Cp:
        return self.operators[0] if not self.params and len(self.operators) == 1 else None

    def __call__(self, x) -> Tensor:
        """The outputs of x: numbers; of a language model the logits [texts,tokens,vocab] of a text or of ids [texts,tokens]"""
        if not self.model:
            raise TypeError(f"{self.path} has no model that is known: `tensors` has what it holds")
        if isinstance(x, str):
            if not self.tokenizer:
                raise TypeError(f"{self.path} has no tokenizer: expected ids [texts,tokens], not a text")
            x = self.tokenizer.encode(x)[None]
        return self.model.forward(x)

    def look(self, out: str = None, show: bool = False, **options) -> Page:
        """The page of `tn look`, which a notebook shows; out: a file to write; show: open it in a browser. Options are those
        of the command, as keywords: text="once upon a time", data="images.npy" """
        if isinstance(self.model, Network) and self.model.said:
            options.setdefault("residual", "yes" if self.model.residual else "no")
        page = self.model.look(self.tokenizer, **options) if self._foreign else look(self.path, **options)
        if out:
            page.save(out)
        if show:
            page.open(out)
        return page

    def close(self) -> None:
        """Frees the context, and with it all that was loaded"""
        self.ctx.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        parts = [self.model, self.tokenizer, self.operator] if self.model else [self.operator]
        said = "".join(f"\n  {part!r}" for part in parts if part is not None)
        return f"<Model {self.path}: {self.kind}, {len(self.tensors)} tensors>" + (
            said or "".join("\n  " + line for line in repr(self.tensors).splitlines()[:20]))


def fail(path, what):
    raise TensornetError(f"load: {path}: {what}", Status.ERR_FILE if not path.exists() else Status.ERR_FORMAT)


def format_of(path):
    """What a file is instead of one that is read here, or None"""
    with open(path, "rb") as file:
        return foreign_format(file.read(128))


def weights_of(ctx, folder):
    """The file of a folder that `tn` reads: the model, or else the newest checkpoint that is whole"""
    for name in "model.safetensors.index.json", "model.safetensors":
        if (folder / name).exists():
            return folder / name
    errors = []
    for file in sorted(folder.glob("step-*.safetensors"), reverse=True):
        try:
            ctx.checkpoint_check(file)
            return file
        except TensornetError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    torch = next((file for file in sorted(folder.iterdir()) if OTHERS.get(file.suffix) == "torch"), None)
    fail(folder, "expected model.safetensors, model.safetensors.index.json or step-NNNNNNNN.safetensors in it"
         + (f"; {torch.name} is of PyTorch: {WRITE['torch']}" if torch else ""))


def config_beside(folder):
    path = folder / "config.json"
    if not path.exists():
        return path, {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        other = format_of(path)
        raise TensornetError(f"load: {path}: {f'the file is {other}' if other else error}", Status.ERR_FORMAT) from None
    return path, config if isinstance(config, dict) else {}


def check_size(path, desc, tensors, shared=1):
    """A config may ask for any amount of memory: the file must hold the numbers. shared: heads that may have one key."""
    there, needed = sum(math.prod(shape) for shape in tensors.shapes.values()), transformer_cost_of(desc, 1).params
    if needed > there * shared:
        fail(path, f"it has {there} numbers, expected the {needed:.0f} of the model that its config describes")


def tokenizer_of(ctx, file, given, vocab, fits):
    """The tokenizer of the file `given`, or of the one beside the model; where there is none, of single bytes if the vocabulary
    is theirs"""
    path = Path(given or file.parent / "tokenizer.json")
    if not given and not path.exists():
        letters = ctx.tokenizer_create_bytes()
        return letters if letters.count() == vocab else None
    tokenizer = ctx.tokenizer_load(path)
    if not fits(tokenizer.count(), vocab):
        fail(path, f"it has {tokenizer.count()} tokens, expected {vocab}, the vocabulary of the model")
    return tokenizer


def own_model(ctx, file, tensors, tokenizer):
    """A run or a checkpoint of `tn train`, `tn import` or Params.save beside a config.json"""
    note, beside = tensors._file.metadata("tn.model"), file.parent / "config.json"
    desc = ctx.transformer_config_read(note.encode() if note else beside)
    check_size(file, desc, tensors)
    fits = operator.le if tensors._file.metadata("tn.import") else operator.eq
    tokenizer = tokenizer_of(ctx, file, tokenizer, desc.vocab, fits)
    params = ctx.params_create()
    model = params.transformer_init("", desc)
    params.freeze("")
    params.read(file, "ignore_extra")
    return dict(model=model, params=params, tokenizer=tokenizer)


MAPS = {"gpt2": name_map_gpt2, "bilinear-decomposition": name_map_bilinear, "modded-nanogpt": name_map_modded,
        "gemma": name_map_gemma}
ZERO = re.compile(r"transformer\.(h\.\d+\.n[12]|n_f)\.norm\.bias")              # is not trained


def kind_of(said):
    """The kind of model of a config.json, by the rules of `tn import`"""
    kind = said.get("model_type")
    if not (kind and isinstance(kind, str)) and "bilinear" in said:
        return "modded-nanogpt" if "n_embd" in said else "bilinear-decomposition" if "d_model" in said else None
    return kind if kind is None or isinstance(kind, str) else str(kind)     # what is no name is of no model


def foreign_config(ctx, config, kind, said, tensors):
    """The desc of a config.json. One of bilinear-decomposition may leave the vocabulary to the tokenizer: it is that of the table"""
    table = tensors.shapes.get("transformer.wte.weight")
    if kind != "bilinear-decomposition" or not table or said.keys() & {"n_vocab", "vocab_size"}:
        return ctx.transformer_config_read(config)
    return ctx.transformer_config_read(json.dumps({**said, "vocab_size": table[0]}).encode())


def foreign_model(ctx, file, config, kind, said, tensors, tokenizer):
    """A model of another program, read as `tn import` reads it: whatever has no counterpart is an error"""
    names, count = MAPS.get(kind, name_map_llama)()
    lines = [(re.compile("|".join(re.escape(name).replace(r"\{l\}", r"(\d+)") for name in line.file.decode().split("|"))),
              line.param.decode()) for line in (structs["tn_name_map"] * count).from_address(names._address)]
    desc = foreign_config(ctx, config, kind, said, tensors)
    check_size(file, desc, tensors, 2 * desc.heads)         # heads may share keys and values, encoders a matrix
    found = {}
    for name in tensors:
        match, param = next(((m, param) for pattern, param in lines if (m := pattern.fullmatch(name))), (None, None))
        if not match and not BUFFER.fullmatch(name) and not (ZERO.fullmatch(name) and not tensors[name].numpy().any()):
            fail(file, f'tensor "{name}" has no counterpart in a tn_transformer')
        if match and any(block and int(block) >= desc.layers for block in match.groups()):
            fail(file, f'tensor "{name}" belongs to a block beyond the {desc.layers} of config.json')
        found.setdefault(param, name)
    table, head = found.get("embed.w"), found.get("head.w")
    if desc.tied and table and head and not tensors._file.equal(table, head):
        desc._fields().tied = False                         # transformers ties two tables only if they are equal
    tokenizer = tokenizer_of(ctx, file, tokenizer, desc.vocab, operator.le)
    params = ctx.params_create()
    model = params.transformer_init("", desc)
    params.freeze("")
    params.transformer_read_mapped(model, file, (names, count))
    return dict(model=model, params=params, tokenizer=tokenizer, foreign=True)


def file_of(ctx, path):
    """The file that holds the tensors of a path; what cannot be one is refused by its name"""
    if path.is_dir():
        return weights_of(ctx, path)
    if path.suffix in OTHERS:
        if is_ := format_of(path):
            fail(path, f"the file is {is_}")
        fail(path, f"expected .safetensors or .npy: {WRITE[OTHERS[path.suffix]]}")
    if path.name in ("config.json", "tokenizer.json"):
        fail(path, "it belongs to a model: expected the model's file or folder")
    if path.suffix == ".safetensors":
        ctx.checkpoint_check(path)
    return path


def tensors_of(ctx, file):
    try:
        return Tensors(ctx.safetensors_open(file))
    except TensornetError as error:
        if file.suffix in (".safetensors", ".json") or error.status != Status.ERR_FORMAT:
            raise
        fail(file, f"expected a folder, a .safetensors file or a .npy file ({error})")


def load(path, ctx: Context = None, tokenizer: str = None, residual: bool = None, **desc) -> Model:
    """What `path` holds, as a Model: the folder of a run, or its newest checkpoint; a checkpoint or any .safetensors file;
    a folder of Hugging Face's transformers (GPT-2, Llama, Mistral, Qwen2, Qwen3, Gemma); a network of bilinear layers in the
    layout of this library or of github.com/tdooms/bilinear-decomposition; a .npy file.

    tokenizer: a tokenizer.json, if it is not beside the model. residual: whether the layers of a network are added to their
    inputs, which its file may not say. The numbers go to a context of their own, or to `ctx`; keywords are those of Context:
    tn.load(path, dtype="f64"). Parameters are frozen: params.thaw("") makes them trainable."""
    if ctx is not None and desc:
        raise TypeError(f"load: {', '.join(sorted(desc))} beside ctx, whose settings are given already")
    path = Path(os.fspath(path))
    if not path.exists():
        fail(path, "there is no such file or folder")
    ctx = Context(**desc) if ctx is None else ctx
    file = file_of(ctx, path)
    if file.suffix == ".npy":
        return Model(path, "array", ctx, Array(file.stem, ctx.npy_load(file).keep()))
    tensors, (config, said) = tensors_of(ctx, file), config_beside(file.parent)
    kind, words = kind_of(said), tensors._file.metadata("model") or ""
    if tensors._file.metadata("tn.model") or "embed.w" in tensors and config.exists():
        return Model(path, "language model", ctx, tensors, **own_model(ctx, file, tensors, tokenizer))
    if kind and kind != "tensornet":
        return Model(path, "language model", ctx, tensors, **foreign_model(ctx, file, config, kind, said, tensors, tokenizer))
    says = said.get("residual") if isinstance(said.get("residual"), bool) else None
    network = Network(tensors, says if residual is None else residual, words)
    if network.layers:
        return Model(path, "network of bilinear layers", ctx, tensors, network)
    return Model(path, "tensors", ctx, tensors)
