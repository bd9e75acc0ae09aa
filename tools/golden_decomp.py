#!/usr/bin/env python3
"""Golden values of tests/test_decomp.c and tests/test_eig.c: eigenvalues and singular values by LAPACK (dsyevd, dgesdd,
dgeev).

    python3 tools/golden_decomp.py

prints the tables of the tests. The matrices are given by formulas that are exact in double."""
import numpy as np


def symmetric(n):
    """a[i,j] = ((7 i + 7 j + 3 i j + i^2 j^2) mod 19 - 9) / 8"""
    i, j = np.indices((n, n))
    return ((7 * i + 7 * j + 3 * i * j + i**2 * j**2) % 19 - 9) / 8


def rectangular(m, n):
    """a[i,j] = ((5 i + 11 j + 2 i j) mod 23 - 11) / 16"""
    i, j = np.indices((m, n))
    return ((5 * i + 11 * j + 2 * i * j) % 23 - 11) / 16


def general(n):
    """a[i,j] = ((5 i + 11 j + 2 i j + i^2) mod 23 - 11) / 16"""
    i, j = np.indices((n, n))
    return ((5 * i + 11 * j + 2 * i * j + i**2) % 23 - 11) / 16


def table(name, values):
    rows = [", ".join(f"{v:.17g}" for v in values[k : k + 4]) for k in range(0, len(values), 4)]
    print(f"static const double {name}[] = {{\n    " + ",\n    ".join(rows) + "\n};")


table("golden_eigenvalues", np.linalg.eigvalsh(symmetric(12)))
table("golden_singular_values", np.linalg.svd(rectangular(11, 8), compute_uv=False))

values = np.linalg.eigvals(general(10))
values = values[np.lexsort((-values.imag, -values.real, -np.round(abs(values), 9)))]
table("golden_general", values.view(float))
