"""Puts the library and what the header declares into the package: `pip install tools/python` in the tree of tensornet.h.

The library is what `make lib` builds, or the file that TENSORNET_LIBRARY names. Nothing is fetched: with setuptools and NumPy
installed, `pip install --no-build-isolation --no-deps tools/python` needs no network.
"""
import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

here = Path(__file__).resolve().parent
tree = here.parent.parent
spec = importlib.util.spec_from_file_location("declarations", here / "tensornet" / "declarations.py")
declarations = importlib.util.module_from_spec(spec)
spec.loader.exec_module(declarations)
header = declarations.read((tree / "tensornet.h").read_text(encoding="utf-8"))
version = ".".join(str(header["constants"]["TN_VERSION_" + part]) for part in ("MAJOR", "MINOR", "PATCH"))


class build(build_py):
    def run(self):
        super().run()
        library = os.environ.get("TENSORNET_LIBRARY")
        if not library:
            subprocess.run(["make", "-s", "-C", tree, "lib"], check=True)
            library = tree / "build" / "lib" / f"libtensornet.so.{version}"
        package = Path(self.build_lib) / "tensornet"
        shutil.copyfile(library, package / "libtensornet.so")
        (package / "declarations.json").write_text(json.dumps(header, separators=(",", ":")))


class Platform(Distribution):
    def has_ext_modules(self):          # the library is for one platform
        return True


setup(name="tensornet", version=version, packages=["tensornet"], python_requires=">=3.9", install_requires=["numpy"],
      description="Tensor-network neural layers: train, fold, and read from the weights what a network computes",
      cmdclass={"build_py": build}, distclass=Platform)
