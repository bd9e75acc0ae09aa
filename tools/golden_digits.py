#!/usr/bin/env python3
"""examples/data/digits-*: the 8 x 8 digits of scikit-learn as two idx files, the format of MNIST.

    pip download --no-deps scikit-learn==1.9.1
    python3 tools/golden_digits.py scikit_learn-1.9.1-*.whl        needs no NumPy; any version with the same digits will do

The wheel holds sklearn/datasets/data/digits.csv.gz: 1,797 lines of 64 pixels and a label, with "%.18e" for each number.
Here a pixel and a label is one byte. Nothing is scaled, left out or reordered.
"""
import gzip
import os
import struct
import sys
import zipfile

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples", "data")

with zipfile.ZipFile(sys.argv[1]) as wheel:
    text = gzip.decompress(wheel.read("sklearn/datasets/data/digits.csv.gz")).decode()
rows = [[float(field) for field in line.split(",")] for line in text.split()]
assert len(rows) == 1797
for row in rows:
    assert len(row) == 65 and all(x == int(x) for x in row)
    assert all(0 <= x <= 16 for x in row[:64]) and 0 <= row[64] <= 9

# Two zeros, the type (8: unsigned bytes), the number of axes; then each extent, big-endian; then the bytes.
files = {
    "digits-images-idx3-ubyte": (struct.pack(">BBBB3I", 0, 0, 8, 3, len(rows), 8, 8), [x for row in rows for x in row[:64]]),
    "digits-labels-idx1-ubyte": (struct.pack(">BBBBI", 0, 0, 8, 1, len(rows)), [row[64] for row in rows]),
}
for name, (head, numbers) in files.items():
    with open(os.path.join(FOLDER, name), "wb") as file:
        file.write(head + bytes(int(x) for x in numbers))
