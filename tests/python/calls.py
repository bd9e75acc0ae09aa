"""Every function of the Python package with wrong arguments: python3 calls.py [FUNCTION]

The calls are made from the declarations: arrays that are too short, too long, of another kind or byte order, or read-only;
integers that do not fit; texts with NUL; objects that are closed, of another class or of another context; None. What Python can
see must raise and name the argument; the rest may answer anything, but never with a signal, so each function has a process.
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

INTEGERS = {base for base, kind in arrays.KINDS.items() if kind.kind in "iu" and base not in ("char", "void")}


def pool_of(ctx):
    """Some objects of each class, most of which are what functions return"""
    pool = collections.defaultdict(list)

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
                       "tt_linear": dict(in_=[2, 2], out=[2, 2], rank=2), "deep": dict(layers=1, out=3, bond=2)}.items():
        add(getattr(params, kind + "_init")(kind, **desc))
    add(ctx.tensor(np.ones((3, 3)), keep=True), params.optim_create(), params.find("mlp.w"))
    cp = add(ctx.cp_from_tensor(np.ones((3, 3, 3))))
    add(cp.eigen_all(2), cp.spectrum(2), cp.split()[0])
    net = add(ctx.net_create("oi->o|i", [np.ones((3, 3))]))
    tt = add(ctx.tt_random([2, 3, 2], 2, 1))
    add(ctx.plan_create("ij,jk->ik", shapes=[[3, 3], [3, 3]]))
    add(ctx.tokenizer_create_bytes(), ctx.image_create(8, 8), ctx.memory(), ctx.arena_mark())
    ctx.tensor(np.ones((3, 3))).npy_save("a.npy")
    params.save("a.safetensors")
    add(ctx.safetensors_open("a.safetensors"))
    ctx.shard_write("a.bin", [1, 2, 3, 4], 5)
    add(ctx.shard_open("a.bin", 5))
    attn = add(model.blocks[0].attn)
    add(model.cache_create(1, 4), attn.cache_create(1, 4), model.blocks[0], ctx.circuit_ovpp_of(model), ctx.cp_als(np.ones((2, 2)), terms=1))
    frozen = add(ctx.circuit_freeze(model, np.zeros((1, 4), int)))
    target = dict(position=3, token=1)
    add(frozen.circuit_parts_of(target), frozen.circuit_paths_find(target), frozen.circuit_attribute(target))
    add(ctx.circuit_qk(model), ctx.circuit_evidence_create(features=3))
    add(tn.cpu_backend(), tn.name_map_gpt2()[0], tn.source_path("a.npy"), tn.sink_path("b.npy"))
    return pool


class Wrong:
    """No argument of anything"""


SHORT, LONG, KIND, ORDER, FIXED, RANGE, NUL, CLOSED, OTHER = (
    "too short", "too long", "of another kind", "byte order", "not to be written", "out of range", "NUL", "closed", "other class")
MUST_RAISE = {SHORT, LONG, KIND, ORDER, FIXED, RANGE, NUL, CLOSED, OTHER}
SAYS = {CLOSED: "closed", OTHER: "expected", KIND: "expected|tensor"}      # where it is not the argument's name


class Calls:
    """All calls of one function: `self.given` are arguments that C gets to see, and one at a time is replaced"""

    def __init__(self, method, pools):
        self.method, (self.pool, self.closed, self.foreign) = method, pools
        self.declared = {a.name: a for a in functions.arguments_of(method.c_name)}
        self.given = {}
        for a in method.implied + method.taken:
            self.given[a.name] = self.plausible(a)

    def need(self, a):
        """The number of elements of an array, None if C takes as many as there are"""
        call = functions.Call(self.pool["tn_ctx"][0], self.method.c_name, self.method.__name__, self.declared, self.given, {})
        return arrays.by_names(a.size, call.known) if a.size else None

    def plausible(self, a):
        base, stars = a.base, a.stars + len(a.kind[3])
        if a.role == "desc":
            return {}
        if a.is_array and (a.size or stars > 1 or base in arrays.KINDS and base != "char" or base not in objects.POINTED):
            try:
                return self.array(a, self.need(a))
            except Exception:                               # an object is missing of which the length depends
                return []
        if base in abi.header["callbacks"]:
            return lambda *args: None
        if not stars:
            return (next(iter(self.pool[base]), None) if base in abi.structs else 0.5 if base in ("double", "float") else
                    False if base == "bool" else 0 if base in abi.enums else 2 if a.default else 1)
        if base == "char":
            return "a.npy"
        made = next(iter(self.pool[base]), None)
        return made if made is not None or base in objects.POINTED | objects.FILLED or base in abi.header["opaque"] else {}

    def array(self, a, count):
        base, stars = a.base, a.stars + len(a.kind[3])
        if isinstance(count, list):
            return [[1] * n for n in count]
        count = 2 if count is None else count
        if base == "char" and stars == 2:
            return ["a"] * count
        if base in arrays.KINDS:
            return [[1]] * count if stars == 2 else np.ones(count, arrays.KINDS[base])
        if a.kind[2]:
            return [next(iter(self.pool[base]), {})] * count
        return (abi.structs[base] * count)()

    def wrong(self, a):
        """(what is wrong, value) of all replacements of an argument"""
        base, stars, const, extents = a.kind
        stars += len(extents)
        if a.role == "desc":
            yield from ((KIND, value) for value in (5, "a", [1], Wrong(), {"no field": 1}))
            for name, kind in abi.header["structs"][base]:
                yield KIND, {name: Wrong()}
                if arrays.is_array(*kind) and not kind[3]:
                    yield KIND, {name: 5}
                elif kind[0] in INTEGERS and not kind[3]:
                    yield RANGE, {name: 1 << 70}
                    yield "extreme", {name: -1}
                elif kind[:2] == ["char", 1]:
                    yield NUL, {name: "a\0b"}
                elif kind[3]:
                    yield LONG, {name: [0] * (kind[3][0] + 1)}
        elif not stars:
            if base in abi.structs or base in abi.header["callbacks"]:
                yield from ((KIND, value) for value in (5, 1.5, Wrong()))
                if base in ("tn_source", "tn_sink"):
                    yield from ((NUL, "a\0b"), (KIND, {"data": 5}), (LONG, {"data": bytearray(4), "bytes": 5, "room": 5}),
                                (LONG, {"data": bytearray(4), "bytes" if base == "tn_source" else "room": 5}))
            else:
                yield from ((KIND, value) for value in ("no such", Wrong(), [1, 2], np.ones(2)))
                if base not in ("double", "float", "bool"):
                    yield from ((RANGE, 1 << 70), (RANGE, -1 << 70), (KIND, 1.5))
                    yield from (("extreme", value) for value in (0, -1, 3, (1 << 31) - 1))
                elif base != "bool":
                    yield from (("extreme", value) for value in (0.0, -1.0, 1e300, float("nan")))
        else:
            value = self.given[a.name]
            yield "none", None
            if base in tn.classes:
                for pool in (self.closed, self.foreign):
                    for o in pool[base][:1]:
                        yield CLOSED if pool is self.closed else "foreign", [o] * len(value) if stars == 2 else o
                other = self.pool["tn_image" if base != "tn_image" else "tn_cp"][0]
                yield OTHER, [other] * len(value) if stars == 2 and value else other
            if stars == 2 or base not in ("char", "tn_tensor"):
                yield KIND, 5
            yield KIND, Wrong()
            if base == "char" and stars == 1 and const and not a.is_array:
                yield NUL, "a\0b"
            if a.is_array:
                need = self.need(a)
                if need is not None:
                    if need and not (isinstance(need, list) and not need[0]):
                        yield SHORT, self.array(a, need[:-1] if isinstance(need, list) else need - 1)
                        yield SHORT, self.array(a, [need[0] - 1, *need[1:]]) if isinstance(need, list) else self.array(a, 0)
                    yield LONG, self.array(a, [*need, 1] if isinstance(need, list) else need + 1)
                    yield LONG, self.array(a, [1000] * len(need)) if need and isinstance(need, list) else self.array(a, 1000)
                if stars == 1 and base in arrays.KINDS and base != "char" and (const or len(value)):
                    yield from ((KIND, np.ones(len(value), complex)), (KIND, ["a"] * max(len(value), 1)))
                    if base in INTEGERS:
                        yield from ((RANGE, [1 << 70] * len(value)), (KIND, [1.5] * len(value)))
                if stars == 1 and not const and base in arrays.KINDS and len(value):
                    fixed = value.copy()
                    fixed.flags.writeable = False
                    yield from ((FIXED, fixed), (FIXED, bytes(value.nbytes)), (KIND, list(value)),
                                (KIND, np.ones(2 * len(value), value.dtype)[::2]))
                    if base != "void":
                        yield KIND, value.astype(np.float16)
                    if value.itemsize > 1:
                        yield ORDER, value.astype(value.dtype.newbyteorder())

    def run(self, report):
        """Calls report(what) before each call and report(None, outcome) after it"""
        first = self.method.implied[-1:]
        report("plausible")
        report(None, self.outcome({}))
        for a in first + self.method.taken:
            if a in first:                                  # self: only what has a method can be there
                values = [(CLOSED if pool is self.closed else "foreign", o)
                          for pool in (self.closed, self.foreign) for o in pool[a.base][:1]]
            else:
                values = self.wrong(a)
            for what, value in values:
                report(f"{what}: {a.name}")
                error = self.outcome({a.name: value})
                word = next(iter(value)) if isinstance(value, dict) and len(value) == 1 and a.role == "desc" else a.name
                if what in MUST_RAISE and not (error and (word in error or what in SAYS and re.search(SAYS[what], error))):
                    report(None, None, f"{self.method.c_name}: {a.name} {what}: {value!r:.60}: {error or 'it was taken'}")
                else:
                    report(None, error)

    def outcome(self, changed):
        given = {**self.given, **changed}
        implied = [a.name for a in self.method.implied]
        arguments = {name + "_" * keyword.iskeyword(name): value for name, value in given.items() if name not in implied}
        try:
            self.method(*[given[name] for name in implied[-1:]], **arguments)
        except Exception as error:
            return f"{type(error).__name__} {error}"
        return None


def functions_of_package():
    """Each function once; of two places the one of the object"""
    found = {}
    for kind in [tn, *tn.classes.values()]:
        for f in vars(kind).values():
            if hasattr(f, "taken") and len(f.implied) >= len(found[f.c_name].implied if f.c_name in found else ()):
                found[f.c_name] = f
    return found


def main():
    os.chdir(tempfile.mkdtemp())
    contexts = [tn.Context(threads=1, seed=1) for _ in range(3)]
    pools = [pool_of(ctx) for ctx in contexts]
    for pool, ctx in zip(pools, contexts):
        pool["tn_ctx"] = [ctx]
    contexts[1].close()
    total, faults = collections.Counter(), []
    methods = {name: f for name, f in functions_of_package().items() if name in sys.argv[1:] or not sys.argv[1:]}
    for name, method in methods.items():
        come, go = os.pipe()
        child = os.fork()
        if not child:
            os.close(come)
            with os.fdopen(go, "w", buffering=1) as out, open(os.devnull, "w") as null:
                os.dup2(null.fileno(), 1)
                if "-v" not in sys.argv:
                    os.dup2(null.fileno(), 2)
                def report(what, error=None, fault=None):
                    print(f"call {what}" if what else f"fault {fault}" if fault else f"raised {error}" if error else "answered",
                          file=out)
                Calls(method, pools).run(report)
                print("end", file=out)
            os._exit(0)
        os.close(go)
        with os.fdopen(come) as lines:
            said = lines.read().splitlines()
        status = os.waitpid(child, 0)[1]
        last = next((line for line in reversed(said) if line.startswith("call ")), "call nothing")
        for line in said:
            word, _, rest = line.partition(" ")
            total[word] += 1
            total[line] += word == "raised"
            if word == "fault":
                faults.append(rest)
        if status or not said or said[-1] != "end":
            faults.append(f"{name}: status {status} at {last[5:]}")
    print("\n".join(faults))
    print(f"{len(methods)} functions, {total['call']} calls, {total['raised']} exceptions, {len(faults)} faults")
    sys.exit(bool(faults) or not total["raised"])


if __name__ == "__main__":
    main()
