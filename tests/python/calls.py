"""Every function of the Python package with wrong arguments: python3 calls.py [FUNCTION]

The calls are made from the declarations: arrays that are too short, too long, of another kind or byte order, or read-only;
integers that do not fit; texts with NUL; objects that are closed, of another class or of another context; None. What Python can
see must raise, and the message must name the argument; the rest may answer anything. No call may end the process: the calls are
made in a child, and after one that ends it the next child goes on with the next function. A function of the header that is
neither called nor in NOT_IN_PYTHON is a failure.
"""
import collections
import keyword
import os
import re
import sys
import tempfile

import numpy as np
import tensornet as tn
from tensornet import abi, arrays, functions, objects

SHORT, LONG, KIND, ORDER, FIXED, RANGE, NUL, CLOSED, FOREIGN, OTHER = MUST_RAISE = (
    "too short", "too long", "of another kind", "byte order", "read-only", "out of range", "NUL", "closed", "of another context",
    "of another class")
MAY_RAISE = "extreme"
# What only C code can use, or what a Python object does by itself.
NOT_IN_PYTHON = {"tn_ctx_status", "tn_ctx_error", "tn_ctx_clear_error", "tn_params_ctx", "tn_cp_mark", "tn_cp_release",
                 "tn_params_rebind", "tn_tap_read", "tn_printable", "tn_writer_open", "tn_writer_write", "tn_writer_close"}
# What holds no memory, or belongs to no context; and the context, which ends last.
NEVER_END = {"tn_ctx", "tn_memory", "tn_mark", "tn_source", "tn_sink", "tn_backend", "tn_name_map", "tn_polynomial",
             "tn_polynomial_fit"}


def pool_of(ctx):
    """Some objects of each class, most of which are what functions return"""
    pool = collections.defaultdict(list, tn_ctx=[ctx])

    def add(*made):
        for o in made:
            if isinstance(o, tn.Object) and o is not ctx:
                pool[o.c_name].append(o)
        return made[0]
    params = add(ctx.params_create())
    model = add(params.transformer_init("m", vocab=5, layers=1, dim=4, heads=1, context=4, attention="bilinear", no_norm=True))
    for kind, desc in {"mlp": dict(in_=3, hidden=3), "linear": dict(in_=3, out=3), "embedding": dict(count=5, dim=3),
                       "norm": dict(dim=3), "quadratic": dict(in_=3, out=3), "modifier": dict(in_=3, hidden=3),
                       "tn_attention": dict(in_=3, bond=2, out=3, sites=3), "mps": dict(sites=3, bond=2),
                       "tt_linear": dict(in_=[2, 2], out=[2, 2], bond=2), "deep": dict(layers=1, out=3, bond=2)}.items():
        add(getattr(params, kind + "_init")(kind, **desc))
    add(ctx.tensor(np.ones((3, 3)), keep=True), params.optim_create(), params.find("mlp.w"))
    cp = add(ctx.cp_from_tensor(np.ones((3, 3, 3))))
    add(cp.eigen_all(2), cp.spectrum(2), cp.split()[0])
    add(ctx.net_create("oi->o|i", [np.ones((3, 3))]), ctx.tt_random([2, 3, 2], 2, 1))
    add(ctx.plan_create("ij,jk->ik", shapes=[[3, 3], [3, 3]]))
    add(ctx.tokenizer_create_bytes(), ctx.image_create(8, 8), ctx.memory(), ctx.arena_mark())
    ctx.tensor(np.ones((3, 3))).npy_save("a.npy")
    params.save("a.safetensors")
    add(ctx.safetensors_open("a.safetensors"))
    ctx.shard_write("a.bin", [1, 2, 3, 4], 5)
    add(ctx.shard_open("a.bin", 5))
    attn = add(model.blocks[0].attn)
    add(model.cache_create(1, 4), attn.cache_create(1, 4), model.blocks[0], ctx.circuit_block_of(model),
        ctx.cp_als(np.ones((2, 2)), terms=1))
    frozen = add(ctx.circuit_freeze(model, np.zeros((1, 4), int)))
    target = dict(position=3, token=1)
    add(frozen.circuit_parts_of(target), frozen.circuit_paths_find(target), frozen.circuit_attribute(target))
    fit = add(ctx.polynomial_fit_init(2, 0, 1))
    fit.add([0, 0.5, 1], [1, 2, 5])
    ratio = add(frozen.circuit_ratio_of())
    add(fit.read(1), ratio.terms(target, 0), frozen.circuit_degrees_of())
    add(ctx.circuit_qk(model), ctx.circuit_evidence_create(features=3))
    add(tn.cpu_backend(), tn.name_map_gpt2()[0], tn.source_path("a.npy"), tn.sink_path("b.npy"))
    return pool


def ended(o):
    """Whether an object was closed, or what it belongs to"""
    try:
        o._address
    except tn.TensornetError:
        return True
    return False


class Wrong:
    """No argument of anything"""


def wrong_desc(base):
    """(what is wrong, value) of descs, each a dict with one field"""
    for name, kind in abi.header["structs"][base]:
        yield KIND, {name: Wrong()}
        if arrays.is_array(*kind) and not kind[3]:
            yield KIND, {name: 5}
        elif kind[0] in arrays.LIMITS and not kind[3]:
            yield RANGE, {name: 1 << 70}
            yield MAY_RAISE, {name: -1}
        elif kind[:2] == ["char", 1]:
            yield NUL, {name: "a\0b"}
        elif kind[3]:
            yield LONG, {name: [0] * (kind[3][0] + 1)}


class Calls:
    """All calls of one function: `self.given` are arguments that C gets to see, and one at a time is replaced"""

    def __init__(self, method, pool, closed, foreign):
        self.method, self.pool, self.closed, self.foreign = method, pool, closed, foreign
        self.declared = {a.name: a for a in functions.arguments_of(method.c_name)}
        self.given = {}
        for a in sorted(method.implied + method.taken, key=lambda a: a.is_array):      # lengths depend on what is not an array
            self.given[a.name] = self.plausible(a)

    def need(self, a):
        """The number of elements of an array, None if C takes as many as there are"""
        call = type("Call", (functions.Call,), {"function": self.method.c_name, "name": "", "declared": self.declared})
        return arrays.by_names(a.size, call(self.pool["tn_ctx"][0], self.given, {}).known) if a.size else None

    def plausible(self, a):
        base, stars, const = a.read
        if a.role == "desc":
            return {}
        if base in abi.header["callbacks"]:
            return lambda *args: None
        if a.is_array and not (base == "char" and stars == 1 and const):
            return self.array(a, self.need(a))
        if not stars:
            return (self.one(base) if base in abi.structs else 0.5 if base in ("double", "float") else
                    False if base == "bool" else 0 if base in abi.enums else 2 if a.default else 1)
        if base == "char":
            return "a.npy"
        return self.one(base, {} if base in abi.structs and base not in objects.POINTED | objects.FILLED else None)

    def one(self, base, default=None):
        return next(iter(self.pool[base]), default)

    def array(self, a, count):
        base, stars, const = a.read
        if isinstance(count, (list, np.ndarray)):
            return [np.ones(n, arrays.KINDS[base]) for n in count]
        count = 2 if count is None else count
        if base == "char" and stars == 2:
            return ["a"] * count
        if base in arrays.KINDS:
            return [np.ones(2, arrays.KINDS[base])] * count if stars == 2 else np.ones(count, arrays.KINDS[base])
        if base in objects.POINTED and stars == 1:
            return self.one(base)
        return [self.one(base, {})] * count if const else (abi.structs[base] * count)()

    def wrong(self, a):
        """(what is wrong, value) of all replacements of an argument"""
        base, stars, const = a.read
        if a.role == "desc":
            yield from ((KIND, value) for value in (5, "a", [1], Wrong(), {"no field": 1}))
            yield from wrong_desc(base)
        elif not stars:
            if base in abi.structs or base in abi.header["callbacks"]:
                yield from ((KIND, value) for value in (5, 1.5, Wrong()))
                if base in ("tn_source", "tn_sink"):
                    yield from ((NUL, "a\0b"), (KIND, {"data": 5}), (LONG, {"data": bytearray(4), "bytes": 5}))
            else:
                yield from ((KIND, value) for value in ("no such", Wrong(), [1, 2], np.ones(2)))
                if base not in ("double", "float", "bool"):
                    yield from ((RANGE, 1 << 70), (RANGE, -1 << 70), (KIND, 1.5))
                    yield from ((MAY_RAISE, value) for value in (0, -1, 3, (1 << 31) - 1, -1 << 31))
                    yield from ((MAY_RAISE, value) for value in (arrays.LIMITS.get(base) or ()))
                elif base != "bool":
                    yield from ((MAY_RAISE, value) for value in (0.0, -1.0, 1e300, float("nan"), float("inf")))
        else:
            yield from self.wrong_objects(a)
            yield from self.wrong_arrays(a)

    def wrong_objects(self, a):
        base, stars, const = a.read
        value = self.given[a.name]
        many = (lambda o: [o] * len(value)) if stars == 2 else lambda o: o
        yield MAY_RAISE, None
        if stars != 2 or len(value):
            if stars == 2:
                yield MAY_RAISE, many(None)
            for what, pool in ((CLOSED, self.closed), (FOREIGN, self.foreign)):
                for o in pool[base][:1]:
                    if isinstance(o._ctx, tn.Context) and not (what == FOREIGN and a.any_context):
                        yield what, many(o)
            if base in tn.classes:
                yield OTHER, many(self.one("tn_image" if base != "tn_image" else "tn_cp"))
        if stars == 2 or base not in ("char", "tn_tensor"):
            yield KIND, 5
        yield KIND, Wrong()
        if base == "char" and stars == 1 and const and not a.is_array:
            yield NUL, "a\0b"

    def wrong_arrays(self, a):
        base, stars, const = a.read
        value, need = self.given[a.name], self.need(a)
        if need is not None:
            lists = isinstance(need, (list, np.ndarray))
            need = list(need) if lists else need
            if need and not (lists and not need[0]):
                yield SHORT, self.array(a, need[:-1] if lists else need - 1)
                yield SHORT, self.array(a, [need[0] - 1, *need[1:]] if lists else 0)
            yield LONG, self.array(a, [*need, 1] if lists else need + 1)
            if need:
                yield LONG, self.array(a, [1000] * len(need) if lists else 1000)
        if stars != 1 or base not in arrays.KINDS or not isinstance(value, np.ndarray) or not value.size:
            return
        yield KIND, value.astype(complex)
        if const:
            yield KIND, ["a"] * len(value)
            if base in arrays.LIMITS:
                yield from ((RANGE, [1 << 70] * len(value)), (KIND, [1.5] * len(value)))
                if base != "int64_t":
                    yield RANGE, np.full(len(value), 1 << 40)
        else:
            fixed = value.copy()
            fixed.flags.writeable = False
            yield from ((FIXED, fixed), (FIXED, bytes(value.nbytes)), (KIND, list(value)))
            if value.size > 1:
                yield KIND, np.repeat(value, 2)[::2]
            if base != "void":
                yield KIND, value.astype(np.float16)
            if value.itemsize > 1:
                yield ORDER, value.astype(value.dtype.newbyteorder())

    def all(self):
        """(what, words that must be in the message, call) of each"""
        yield MAY_RAISE, "", lambda: self.call({})
        for a in self.method.implied[-1:]:                  # self: only what has a method can be there
            for o in self.closed[a.base][:1]:
                yield f"{CLOSED}: {a.name}", "freed", lambda a=a, o=o: self.call({a.name: o})
        for a in self.method.taken:
            for what, value in self.wrong(a):
                words = rf"\b{a.name}(\[\d+\])*:"
                if a.role == "desc" and isinstance(value, dict):
                    words = rf"\b{a.base}(\.| has no field ){next(iter(value))}\b"
                elif isinstance(value, dict):
                    words = rf"\b{a.base}\.data:"
                elif what in (CLOSED, FOREIGN):
                    words += "|belongs to another context"
                yield f"{what}: {a.name} = {value!r:.60}", words, lambda a=a, value=value: self.call({a.name: value})

    def call(self, changed):
        given = {**self.given, **changed}
        implied = [a.name for a in self.method.implied]
        arguments = {name + "_" * keyword.iskeyword(name): value for name, value in given.items() if name not in implied}
        return self.method(*[given[name] for name in implied[-1:]], **arguments)


def functions_of_package():
    """The Python function of each function of C; of two places the one of the object"""
    found = {}
    for kind in [tn, *tn.classes.values()]:
        for f in vars(kind).values():
            if hasattr(f, "taken") and len(f.implied) >= len(found[f.c_name].implied if f.c_name in found else ()):
                found[f.c_name] = f
    return found


def by_hand(pool, closed, foreign):
    """The same of functions that the package does not make from the declarations"""
    ctx, t, tokenizer, model = (pool[base][0] for base in ("tn_ctx", "tn_tensor", "tn_tokenizer", "tn_transformer"))
    gone, other = closed["tn_tensor"][0], foreign["tn_tensor"][0]
    circuit, fixed = ctx.circuit_qk(model), np.ones((3, 3))
    fixed.flags.writeable = False
    for what, desc in wrong_desc("tn_desc"):
        yield "tn_ctx_create", f"{what}: {desc!r:.60}", r"\btn_desc\." + next(iter(desc)), lambda desc=desc: tn.Context(**desc)
    for what, array in ((SHORT, np.ones((2, 3))), (LONG, np.ones((4, 3))), (KIND, np.ones((3, 3), complex)), (KIND, Wrong()),
                        (KIND, [[1.0] * 3] * 3), (KIND, np.ones((3, 6))[:, ::2]), (KIND, np.ones((3, 3), np.float16)),
                        (ORDER, np.ones((3, 3), np.dtype(float).newbyteorder()))):
        for call in (t.read, t.write):
            yield "tn_" + call.__name__, f"{what}: {array!r:.60}", f"{call.__name__}: array:", (
                lambda call=call, array=array: call(array))
    yield "tn_read", FIXED, "read: array:", lambda: t.read(fixed)
    for array in (t.numpy, lambda: t.numpy(copy=False)):
        yield "tn_read", MAY_RAISE, "", array
    for call in (gone.numpy, lambda: gone.numpy(copy=False), lambda: gone.write(np.ones((3, 3))), lambda: gone[0],
                 lambda: len(gone), lambda: gone.__setitem__(0, 1), gone.tolist, gone.__dlpack__, lambda: gone == 1, gone.sum,
                 lambda: gone[fixed > 0], lambda: t.__setitem__(0, gone), lambda: t == gone):
        yield "tn_read", CLOSED, "closed|freed", call
    for what, arguments, word in (
            (SHORT, ([2, 2], "f32", [1.0] * 3), "numbers"), (LONG, ([2, 2], "f32", [1.0] * 5), "numbers"),
            (KIND, ([2, 2], "f32", ["a"] * 4), "numbers"), (KIND, ([2, 2], "bf16", [1.0] * 4), "as"),
            (KIND, (Wrong(), "f32", []), "shape"), (KIND, ([2, 2], "no such", [1.0] * 4), "as"),
            (RANGE, ([1], "i32", [1 << 40]), "numbers"), (RANGE, ([1 << 70], "f32", []), "shape")):
        yield "tn_tensor_from", f"{what}: {arguments}", f"tensor_from: {word}:", (
            lambda arguments=arguments: ctx.tensor_from(*arguments))
    for what, value, words in ((KIND, Wrong(), "loss"), (KIND, 5, "loss"), (CLOSED, gone, "loss"), (FOREIGN, other, "loss"),
                               (OTHER, model, "loss"), (MAY_RAISE, t, "")):
        yield "tn_backward", what, words, lambda value=value: ctx.backward(value)
    for what, value in ((KIND, Wrong()), (KIND, 5), (OTHER, t), (FOREIGN, foreign["tn_mark"][0])):
        yield "tn_arena_release", what, "mark:", lambda value=value: ctx.arena_release(value)
    for what, value, words in ((KIND, 5, "descs:"), (KIND, [5], r"descs\[0\]:"), (KIND, Wrong(), "descs:"),
                               (RANGE, [dict(count=1 << 70)], "count"),
                               (MAY_RAISE, [], ""), (LONG, [{}] * 5, "descs|circuit_top_many"), (MAY_RAISE, [{}], "")):
        yield "tn_circuit_top_many", f"{what}: {value!r:.60}", words, lambda value=value: circuit.top_many(value)
    for what, value in ((KIND, 5), (KIND, Wrong()), (KIND, ["a"])):
        yield "tn_tokenizer_encode", f"{what}: {value!r}", "text:", lambda value=value: tokenizer.encode(value)
    yield "tn_tokenizer_encode", RANGE, "bos:", lambda: tokenizer.encode("a", 1 << 70)
    for what, value in ((KIND, 5), (KIND, Wrong()), (KIND, "a"), (KIND, [1.5]), (RANGE, [1 << 40])):
        yield "tn_tokenizer_decode", f"{what}: {value!r}", "ids:", lambda value=value: tokenizer.decode(value)
    for what, sizes in ((KIND, ("a", 1)), (RANGE, (1 << 70, 1)), (MAY_RAISE, (-1, 1)), (MAY_RAISE, (1 << 40, 1))):
        yield "tn_transformer_points", what, "batch:", lambda sizes=sizes: model.points(*sizes)
    for what, key in ((RANGE, 3), (RANGE, (0, 0, 0)), (KIND, "a"), (KIND, 1.5), (KIND, ["a"]), (RANGE, [0, 3]),
                      (RANGE, np.ones(4, bool))):
        yield "tn_slice", f"{what}: {key!r}", "", lambda key=key: t[key]
    for call in (lambda: t + other, lambda: t @ Wrong(), lambda: t + "a", lambda: gone + 1, lambda: t / gone):
        yield "tn_add", KIND, "", call
    yield "tn_transformer_parts", MAY_RAISE, "", model.parts
    mine = ctx.params_create()                              # one of the taps closes it
    tapped = mine.transformer_init("mine", vocab=5, layers=1, dim=4, heads=1, context=4)

    def run(call):
        tapped.run(np.zeros((1, 2), int), [dict(points="embed", fn=lambda *_: call())])
    for name, call in {"reset": ctx.reset, "close": ctx.close,
                       "arena_release": lambda: ctx.arena_release(pool["tn_mark"][0])}.items():
        yield "tn_transformer_run", f"{KIND}: a tap that calls {name}", f"{name}: this was called by a callback", (
            lambda call=call: run(call))
    for call in (ctx.record, lambda: ctx.backward(t), lambda: 5, lambda: t, lambda: other, lambda: gone, mine.close):
        yield "tn_transformer_run", f"{MAY_RAISE}: a tap that calls {call}", "", lambda call=call: run(call)
    for c_name, call in {"tn_record": ctx.record, "tn_ctx_reset": ctx.reset,
                         "tn_ctx_destroy": lambda: tn.Context(threads=1).close()}.items():
        yield c_name, MAY_RAISE, "", call


def outcome(what, words, call):
    """What a call raised, and whether that is a failure"""
    try:
        call()
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        return said, what.startswith(MUST_RAISE) and not re.search(words, said)
    return None, what.startswith(MUST_RAISE)


def child(names, methods, out):
    """Makes the calls of the functions `names`, and says each of them before it is made"""
    contexts = [tn.Context(threads=1, seed=1, max_bytes=1 << 28) for _ in range(2)]
    pools = [pool_of(ctx) for ctx in (contexts[0], contexts[0], contexts[1])]
    for o in (o for base in pools[1] if base != "tn_ctx" for o in pools[1][base]):
        o.close()
    closed = collections.defaultdict(list, {base: [o for o in pools[1][base] if ended(o)] for base in tn.classes})
    usable = {base for base in pools[1] if pools[1][base] and not closed[base]} - NEVER_END
    if usable:
        print(f"fault close: after it these can still be used: {', '.join(sorted(usable))}", file=out)
    hand = collections.defaultdict(list)
    for c_name, *call in by_hand(pools[0], closed, pools[2]):
        hand[c_name].append(call)
    for name in names:
        calls = [*(Calls(methods[name], pools[0], closed, pools[2]).all() if name in methods else ())]
        for what, words, call in calls + hand[name]:
            print(f"call {name}: {what}", file=out)
            said, failed = outcome(what, words, call)
            print(f"fault {name}: {what}: {said or 'it was taken'}" if failed else "raised" if said else "answered", file=out)
        pools[0]["tn_ctx"][0].reset()
    print("end", file=out)


def main():
    os.chdir(tempfile.mkdtemp())
    methods = functions_of_package()
    left = [name for name in sys.argv[1:] or abi.header["functions"] if not name.endswith("_close") or name in methods]
    total, faults, covered = collections.Counter(), [], set()
    while left:
        come, go = os.pipe()
        process = os.fork()
        if not process:
            os.close(come)
            with os.fdopen(go, "w", buffering=1) as out:
                child(left, methods, out)
            os._exit(0)
        os.close(go)
        with os.fdopen(come) as lines:
            said = lines.read().splitlines()
        status, last = os.waitpid(process, 0)[1], "call nothing"
        for line in said:
            word, _, rest = line.partition(" ")
            total[word] += 1
            last = line if word == "call" else last
            faults += [rest] if word == "fault" else []
            covered |= {rest.partition(":")[0]} if word == "call" else set()
        at = last[len("call "):].partition(":")[0]
        if status or not said or said[-1] != "end":
            faults.append(f"{last[len('call '):]}: the process ended with status {status}")
        left = left[left.index(at) + 1:] if said and said[-1] != "end" and at in left else []
    missing = {name for name in abi.header["functions"] if not name.endswith(("_destroy", "_close"))} - NOT_IN_PYTHON - covered
    if not sys.argv[1:] and missing | (covered & NOT_IN_PYTHON):
        faults.append(f"not called: {', '.join(sorted(missing))}; called: {', '.join(sorted(covered & NOT_IN_PYTHON))}")
    print("\n".join(faults), end="\n" * bool(faults))
    print(f"{len(covered)} functions, {total['call']} calls, {total['raised']} exceptions, {len(faults)} faults")
    sys.exit(bool(faults) or not total["raised"])


if __name__ == "__main__":
    main()
