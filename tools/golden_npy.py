#!/usr/bin/env python3
"""The files in tests/data/npy that NumPy writes, and those that are damaged from them.

    python3 tools/golden_npy.py        needs NumPy; 2.4.6 writes the same bytes as are there

Not made here: bad_object_pickle.npy, which NumPy 1 wrote (NumPy 2 pickles other names), and TensorLy's
IL2_Response_Tensor.npy.
"""
import io
import os
import numpy as np

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "data", "npy")


def npy(a, version=None):
    f = io.BytesIO()
    np.lib.format.write_array(f, a, version)
    return f.getvalue()


def written(header, data):
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


normal = np.random.default_rng(1).standard_normal((3, 4))
counted = np.arange(6).reshape(2, 3)
f4 = npy(normal.astype("<f4"))
files = {
    "ok_f4_v1": f4, "ok_f4_fortran": npy(np.asfortranarray(normal.astype("<f4"))), "ok_f8_v2": npy(normal, (2, 0)),
    "ok_f2": npy(counted.astype("<f2")), "ok_u1": npy(counted.astype("u1")), "ok_u2": npy(counted.astype("<u2")),
    "ok_i8": npy(counted.astype("<i8")), "ok_bool": npy(counted.astype(bool)), "ok_empty_0x3": npy(np.zeros((0, 3), "<f4")),
    "ok_nan_inf": npy(np.array([np.nan, np.inf, -np.inf, -0.0], "<f4")), "unsupported_unicode": npy(np.array(["ab", "c"])),
    "bad_version_9": f4[:6] + b"\x09" + f4[7:], "bad_truncated_header": f4[:30],
    "bad_header_len_ffff": f4[:8] + b"\xff\xff" + f4[10:],
    "bad_missing_shape": written(b"{'descr': '<f4', 'fortran_order': False, }\n", bytes(16)),
    "bad_overflow_shape": written(b"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }\n",
                                  bytes(16)),
}
for name, data in files.items():
    with open(os.path.join(HERE, name + ".npy"), "wb") as f:
        f.write(data)
