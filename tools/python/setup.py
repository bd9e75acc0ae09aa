"""Makes the wheel: `pip wheel tools/python`, or `pip install tools/python`, in the tree of tensornet.h.

It holds the library and the command `tn`: what `make lib tn` builds, or the files that TENSORNET_LIBRARY and TENSORNET_COMMAND
name (an empty TENSORNET_COMMAND leaves the command out); what the header declares; and a stub with its types. Nothing is
fetched: with setuptools, wheel and NumPy installed, `pip wheel --no-build-isolation --no-deps tools/python` needs no network.
"""
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from setuptools.command.install_scripts import install_scripts

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:                                         # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel

here = Path(__file__).resolve().parent
tree = here.parent.parent
spec = importlib.util.spec_from_file_location("declarations", here / "tensornet" / "declarations.py")
declarations = importlib.util.module_from_spec(spec)
spec.loader.exec_module(declarations)
header = declarations.read((tree / "tensornet.h").read_text(encoding="utf-8"))
version = ".".join(str(header["constants"]["TN_VERSION_" + part]) for part in ("MAJOR", "MINOR", "PATCH"))
built = {"lib": tree / "build" / "lib" / f"libtensornet.so.{version}", "tn": tree / "build" / "tn"}


def file_of(variable, target):
    """The file that a variable of the environment names, or that `make target` builds; None: the variable is empty"""
    if variable not in os.environ:
        subprocess.run(["make", "-s", "-C", tree, target], check=True)
        return built[target]
    return Path(os.environ[variable]) if os.environ[variable] else None


def put(source, target):
    """Copies a program without the symbols that only debuggers need, where binutils are installed"""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not shutil.which("strip") or subprocess.run(["strip", "-o", target, source]).returncode:
        shutil.copyfile(source, target)
    target.chmod(0o755)


class build(build_py):
    def run(self):
        super().run()
        package = Path(self.build_lib) / "tensornet"
        put(file_of("TENSORNET_LIBRARY", "lib"), package / "libtensornet.so")
        (package / "declarations.json").write_text(json.dumps(header, separators=(",", ":")))
        (package / "py.typed").touch()
        environment = {name: value for name, value in os.environ.items() if name != "TENSORNET_LIBRARY"}
        stub = subprocess.run([sys.executable, "-m", "tensornet.stubs"], cwd=self.build_lib, check=True, capture_output=True,
                              env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)})
        (package / "__init__.pyi").write_bytes(stub.stdout)


class scripts(install_scripts):
    """The command among the scripts, which pip puts into bin/"""

    def run(self):
        command = file_of("TENSORNET_COMMAND", "tn")
        if command:
            put(command, Path(self.install_dir) / "tn")
            self.outfiles = [str(Path(self.install_dir) / "tn")]


class wheel(bdist_wheel):
    """For any Python 3, since ctypes needs no version of its own; on Linux for the oldest C library that has what is used"""

    def get_tag(self):
        platform = super().get_tag()[2]
        programs = (path for path in Path(self.bdist_dir).rglob("*") if path.suffix == ".so" or path.name == "tn")
        used = b"".join(path.read_bytes() for path in programs)
        newest = max((int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)\0", used)), default=None)
        if platform.startswith("linux_") and newest is not None:
            platform = platform.replace("linux_", f"manylinux_2_{max(newest, 5)}_", 1)
        return "py3", "none", platform


class Platform(Distribution):
    def has_ext_modules(self):          # the library is for one platform
        return True


setup(name="tensornet", version=version, packages=["tensornet"], python_requires=">=3.9", install_requires=["numpy>=1.22"],
      description="Tensor-network neural layers: train, fold, and read from the weights what a network computes",
      cmdclass={"build_py": build, "install_scripts": scripts, "bdist_wheel": wheel}, distclass=Platform)
