"""Numbers of tests/test_lanczos.c that SciPy computes by ARPACK.

    python3 tools/golden_lanczos.py         prints the tables for the test's golden()

The matrix is banded, its entries are small integers over eight, so that the test multiplies by the same one exactly.
"""
import numpy as np
from scipy.sparse import diags
from scipy.sparse.linalg import eigsh

N, K = 2000, 8
i = np.arange(N)
a = diags([(7 * i % 23 - 11) / 4, (3 * i[:-1] % 5 - 2) / 2, (i[:-31] % 7 - 3) / 8], [0, 1, 31])
a = a + diags([(3 * i[:-1] % 5 - 2) / 2, (i[:-31] % 7 - 3) / 8], [-1, -31])
for name, which in (("magnitude", "LM"), ("largest", "LA"), ("smallest", "SA")):
    values = eigsh(a, K, which=which, tol=1e-14, ncv=120, return_eigenvectors=False)
    values = sorted(values, key={"LM": lambda v: -abs(v), "LA": lambda v: -v, "SA": lambda v: v}[which])
    print("static const double golden_%s[] = {" % name)
    for k in range(0, K, 4):
        print("    " + ", ".join("%.17g" % v for v in values[k : k + 4]) + ("," if k + 4 < K else ""))
    print("};")
