#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets, tests/corpus/FORMAT/NAME: small files, good and bad, one for each thing a reader looks at.
What fuzzing has found lies beside them as found_*; this script does not touch it."""
import json
import os
import struct

root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "corpus")


def put(path, data):
    path = os.path.join(root, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


def safetensors(name, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    put("safetensors/" + name, struct.pack("<Q", len(text)) + text + data)


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


safetensors("empty", {})
safetensors("f32", {"w": entry("F32", [2, 3], 0, 24)}, struct.pack("<6f", 0, 1, -2.5, 3e38, float("inf"), 1e-45))
safetensors("f64", {"w": entry("F64", [2], 0, 16)}, struct.pack("<2d", 0.1, -1e300))
safetensors("halves", {"a": entry("F16", [2], 0, 4), "b": entry("BF16", [1, 2], 4, 8)}, struct.pack("<4H", 0x3C01, 0x0001, 0x3F80, 0x7FC1))
safetensors("integers", {k: entry(k, [1], at, at + n) for k, at, n in
                         [("I64", 0, 8), ("U64", 8, 8), ("I32", 16, 4), ("U32", 20, 4), ("I16", 24, 2), ("U16", 26, 2), ("I8", 28, 1),
                          ("U8", 29, 1), ("BOOL", 30, 1)]}, struct.pack("<qQiIhHbBB", -7, 9, -2**31, 5, -3, 65535, -128, 255, 1))
safetensors("other_dtypes", {"a": entry("F8_E4M3", [3], 0, 3), "b": entry("C64", [1], 3, 11)}, bytes(range(11)))
safetensors("scalar_and_empty", {"s": entry("F32", [], 0, 4), "e": entry("F32", [0, 7], 4, 4)}, struct.pack("<f", 7))
safetensors("metadata", b'{"__metadata__":{"format":"pt","a\\u00e4\\n\\ud83d\\ude00":"\\"x\\\\"},"w":{"shape":[1],"dtype":"I32","data_offsets":[0,4]}}  ',
            struct.pack("<i", 1))
safetensors("eight_axes", {"w": entry("U8", [1, 1, 1, 1, 1, 1, 1, 2], 0, 2)}, b"\1\2")
safetensors("bad_overlap", {"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 2, 6)}, bytes(6))
safetensors("bad_extent", b'{"a":{"dtype":"U8","shape":[18446744073709551615,2],"data_offsets":[0,0]}}')
safetensors("bad_twice", b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}')
put("safetensors/bad_length", struct.pack("<Q", 2**63) + b"{}")


def checkpoint(name, notes, moments, dtype="F32", scalars=(0.02, 2, 0, 1, 0, 1, 0, 0), values=(1, 2, 3, 4, 5, 6)):
    code = {"F32": "f", "F64": "d"}[dtype]
    tensors = [("p", [2, 3], values), ("q", [2], (0.5, -0.5))] + moments + [("optim.scalars", [8], scalars)]
    header, data = {"__metadata__": notes}, b""
    for key, shape, numbers in tensors:
        piece = struct.pack("<%d%s" % (len(numbers), code), *numbers)
        header[key] = entry(dtype, shape, len(data), len(data) + len(piece))
        data += piece
    header["optim.clock"] = entry("I32", [1], len(data), len(data) + 4)
    text = json.dumps(header, separators=(",", ":")).encode()
    put("checkpoint/" + name, struct.pack("<Q", len(text)) + text + data + struct.pack("<i", 2))


notes = {"tensornet.checkpoint": "1", "tensornet.version": "0.1.0", "tensornet.optim": "muon", "tensornet.steps": "3",
         "tensornet.seed": "18446744073709551615", "tensornet.calls": "1", "tensornet.lr": "0.02", "config": "{}"}
moments = [("optim.m.p", [2, 3], (0, 1, 2, 3, 4, 5)), ("optim.m.q", [2], (1, 1)), ("optim.v.q", [2], (1, 1))]
checkpoint("muon", notes, moments)
checkpoint("muon_f64", notes, moments, "F64")
checkpoint("late", dict(notes, **{"tensornet.born.q": "1"}), moments)
checkpoint("never_updated", dict(notes, **{"tensornet.steps": "9007199254740992"}), [])
checkpoint("not_finite", notes, moments, values=(float("nan"), float("inf"), 0, 0, 0, 0))
checkpoint("bad_kind", dict(notes, **{"tensornet.optim": "sgd"}), moments[:2])
checkpoint("bad_late", dict(notes, **{"tensornet.born.q": "3"}), moments)
checkpoint("bad_moments", notes, moments[:2])
checkpoint("bad_scalars", notes, moments, scalars=(0.02, float("nan"), 0, 1, 0, 1, 0, 0))
checkpoint("bad_steps", dict(notes, **{"tensornet.steps": "9007199254740993"}), moments)
checkpoint("bad_shape", notes, [("optim.m.p", [3, 2], (0, 1, 2, 3, 4, 5))])


def npy(name, descr, order, shape, data=b"", version=1, tail=b""):
    text = ("{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, order, shape)).encode() + tail + b"\n"
    put("npy/" + name, b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + data)


npy("f4", "<f4", False, "(2, 3)", struct.pack("<6f", 0, 1, 2, 3, 4, float("nan")))
npy("f8_big_endian", ">f8", False, "(2,)", struct.pack(">2d", 1.5, 1e300))
npy("f2_fortran", "<f2", True, "(2, 2)", struct.pack("<4H", 0x3C00, 0x4000, 0x4200, 0x4400))
npy("i8", "<i8", False, "(2,)", struct.pack("<2q", -1, 2**31 - 1))
npy("i8_too_large", "<i8", False, "(1,)", struct.pack("<q", 2**31))
npy("u1_version_2", "|u1", False, "(3,)", b"\0\1\xff", version=2)
npy("u2_version_3", ">u2", False, "(1, 2)", b"\1\2\3\4", version=3)
npy("b1", "|b1", False, "(2,)", b"\0\1")
npy("scalar", "<f4", False, "()", struct.pack("<f", 3))
npy("empty", "<i4", True, "(0, 3)")
npy("python_2", "<i2", False, "(2L,)", b"\1\0\2\0", tail=b"   ")
npy("bad_object", "|O", False, "(1,)", bytes(8))
npy("bad_shape", "<f4", False, "(4294967296, 4294967296)")
npy("bad_tuple", "<f4", False, "(1)", bytes(4))


def idx(name, kind, shape, data):
    put("idx/" + name, bytes([0, 0, kind, len(shape)]) + b"".join(struct.pack(">I", n) for n in shape) + data)


idx("u8", 0x08, [2, 2], b"\0\1\xfe\xff")
idx("i8", 0x09, [3], b"\x80\0\x7f")
idx("i16", 0x0B, [2], struct.pack(">2h", -32768, 5))
idx("i32", 0x0C, [1, 2], struct.pack(">2i", -2**31, 2**31 - 1))
idx("f32", 0x0D, [2], struct.pack(">2f", 1.5, float("inf")))
idx("f64", 0x0E, [2], struct.pack(">2d", 0.1, 1e300))
idx("empty", 0x08, [0, 28, 28], b"")
idx("scalar", 0x08, [], b"\7")
idx("eight_axes", 0x08, [1] * 7 + [2], b"\1\2")
idx("bad_axes", 0x08, [1] * 9, b"\1")
idx("bad_type", 0x0A, [1], b"\1")
idx("bad_shape", 0x08, [2**32 - 1, 2**32 - 1, 2**32 - 1], b"")
put("idx/bad_gzip", b"\x1f\x8b\x08\0")
