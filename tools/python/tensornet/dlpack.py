"""Tensors of other libraries, by DLPack: NumPy reads them, except for bfloat16, which it knows only as 16 bits."""
import ctypes

import numpy as np

UNSIGNED, BFLOAT = 1, 4                                     # codes of DLDataType


def recode(capsule, old, new):
    """The capsule, with the code of its dtype replaced: NumPy knows bfloat16 only as bytes"""
    for name, tensor in (b"dltensor", 0), (b"dltensor_versioned", 32):
        if ctypes.pythonapi.PyCapsule_IsValid(ctypes.py_object(capsule), name):
            get = ctypes.pythonapi.PyCapsule_GetPointer
            get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            code = ctypes.c_uint8.from_address(get(capsule, name) + tensor + 20)
            if code.value == old:
                code.value = new
                return True
    return False


class Recoded:
    """What gives its bfloat16 numbers as uint16, since NumPy has no such type"""
    halves = False

    def __init__(self, other):
        self.other = other
        self.__dlpack_device__ = other.__dlpack_device__

    def __dlpack__(self, **options):
        try:
            capsule = self.other.__dlpack__(**options)
        except TypeError:                                   # of an earlier version of the protocol
            capsule = self.other.__dlpack__()
        self.halves = recode(capsule, BFLOAT, UNSIGNED)
        return capsule


def from_dlpack(value, name="x"):
    """An array of NumPy of what has __dlpack__, such as a tensor of PyTorch; bfloat16 becomes float32"""
    value = value.detach() if getattr(value, "requires_grad", False) else value
    kind = value.__dlpack_device__()[0]
    if kind not in (1, 3):                                  # the host, or memory of the host that a GPU can read
        raise TypeError(f"{name}: its numbers are not on the host (DLPack's device type {int(kind)}): "
                        "in PyTorch .cpu() moves them")
    given = Recoded(value)
    array = np.from_dlpack(given)
    return (array.astype(np.uint32) << 16).view(np.float32) if given.halves else array
