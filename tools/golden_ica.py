"""Numbers of tests/test_factor.c that scikit-learn's FastICA computes.

    python3 tools/golden_ica.py         prints the tables for the test's ica_golden

Three sources of integers modulo primes, mixed into five features: 200 samples, which the test makes by the same formulas.
Every iteration starts from the same matrix, so that not only the result but also the number of iterations can be compared.
"""
import numpy as np
from sklearn.decomposition import FastICA

N, F = 200, 5
i = np.arange(N)
s = np.stack([(7 * i % 23 - 11) / 8, (i * i % 5 > 2) * 2.0 - 1, ((i * i * 3 + 5 * i) % 101 / 50 - 1) ** 3], 1)
mix = np.array([[(3 * f + 5 * k + f * k) % 7 - 3 for k in range(3)] for f in range(F)]) / 2
x = s @ mix.T + np.arange(F)


def show(name, a):
    a = np.ravel(a)
    print("    static const double %s[] = {" % name)
    for k in range(0, len(a), 4):
        print("        " + ", ".join("%.17g" % v for v in a[k : k + 4]) + ("," if k + 4 < len(a) else "};"))


for k, tol in ((3, 1e-10), (2, 1e-4)):
    start = np.array([[(2 * a + 3 * b) % 5 - 1.5 for b in range(k)] for a in range(k)])
    ica = FastICA(k, whiten="unit-variance", whiten_solver="svd", fun="logcosh", tol=tol, max_iter=1000, w_init=start)
    ica.fit(x)
    print("    /* %d components, tol %g: %d iterations */" % (k, tol, ica.n_iter_))
    show("components_%d" % k, ica.components_)
    show("mixing_%d" % k, ica.mixing_)
    show("whitening_%d" % k, ica.whitening_)
    show("mean_%d" % k, ica.mean_)
