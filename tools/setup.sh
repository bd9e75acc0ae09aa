#!/bin/sh
# sh tools/setup.sh: makes this machine ready for `make demo` and `make test`, and fetches Fashion-MNIST. On Debian and
# Ubuntu it installs what is missing, as root or through sudo, and says what it did. On other systems it installs nothing:
# it names what is missing, and the command that installs it. It asks nothing, and later runs change nothing and need no
# network.
# --check: also what `make check` needs to compile for other machines, and to run what it compiled (about 1.5 GB).
# --mpi: also what `make tn-mpi` needs, training by many processes: Open MPI.
# --look: also what pages need that run the library in the browser, and their tests: clang for WebAssembly, and Chromium.
# --python: also what the tests of tools/python need: in data/python NumPy, setuptools and what runs a notebook without a
#   browser, nbclient and ipykernel (about 210 MB). Without it a Python with NumPy runs all but the notebook.
# --bench: also what `make bench` compares the library with: OpenBLAS, and in data/bench/python the newest PyTorch, NumPy,
#   opt_einsum, TensorKrowch and LiteRT (5.5 GB; 1 GB where pip's index has a PyTorch without CUDA). `make clean` leaves that
#   folder alone; PYTHON is the Python it is made from.
set -eu
check='' bench='' mpi='' live='' python=''
for option; do
    case $option in
    --check) check=yes ;;
    --bench) bench=yes ;;
    --mpi) mpi=yes ;;
    --look) live=yes ;;
    --python) python=yes ;;
    *) echo "setup: $option is unknown; there are --check, --bench, --mpi, --look and --python" >&2; exit 2 ;;
    esac
done
cd "$(dirname "$0")/.."

stb=https://raw.githubusercontent.com/nothings/stb/master

# Each need is tried, not looked up in a list of packages: a compiler from elsewhere is as good.
has() { command -v "$1" >/dev/null 2>&1; }
builds() { runs true "$@"; }
# RUNNER COMPILER...: what the compiler makes can be run
runs() {
    runner=$1
    shift
    program=$(mktemp) && echo 'int main(void) { return 0; }' | "$@" - -o "$program.exe" && $runner "$program.exe"
    status=$?
    rm -f "$program" "$program.exe"
    return $status
}
look() {
    names='' packages=''
    need "make"                make              make --version
    need "gcc"                 "gcc libc6-dev"   builds gcc -x c -include math.h
    need "g++"                 g++               builds g++ -x c++ -include vector
    need "clang"               clang             builds clang -x c -include math.h
    need "clang++"             "$(clang_stdcxx)" builds clang++ -x c++ -include vector
    need "OpenMP of clang"     libomp-dev        builds clang -fopenmp -x c -include omp.h
    need "sanitizers of gcc"   gcc               builds gcc -fsanitize=address,undefined -x c
    need "sanitizers of clang" libclang-rt-dev   builds clang -fsanitize=address,undefined -x c
    need "stb_image_write.h"   libstb-dev        test -f "${STB:-/usr/include/stb}/stb_image_write.h"
    need "gunzip"              gzip              has gunzip
    need "pkg-config"          pkg-config        pkg-config --version
    need "cmake"               cmake             cmake --version
    if [ "$check" ]; then look_for_check; fi
    if [ "$bench" ]; then look_for_bench; fi
    if [ "$python" ]; then
        need "venv of Python"  python3-venv      "${PYTHON:-python3}" -c 'import ensurepip, venv'
    fi
    if [ "$mpi" ]; then
        need "MPI"             libopenmpi-dev    builds mpicc -x c -include mpi.h
        need "mpirun"          openmpi-bin       has mpirun
    fi
    if [ "$live" ]; then
        need "clang for wasm32" "lld wasi-libc libclang-rt-dev-wasm32" sh tools/tn/look/wasm.sh --here
        need "Chromium"        chromium          chromium --version
    fi
}
look_for_check() {
    need "32 bits"             "gcc-i686-linux-gnu libc6-dev-i386-cross"    m32
    need "gcc for s390x"       "gcc-s390x-linux-gnu libc6-dev-s390x-cross" \
        builds s390x-linux-gnu-gcc -x c -include math.h -static
    need "gcc for aarch64"     "gcc-aarch64-linux-gnu libc6-dev-arm64-cross" \
        builds aarch64-linux-gnu-gcc -x c -include math.h -static
    need "qemu for s390x"      qemu-user         runs qemu-s390x s390x-linux-gnu-gcc -x c -static
    need "qemu for aarch64"    qemu-user         runs qemu-aarch64 aarch64-linux-gnu-gcc -x c -static
    need "gcc for Windows"     gcc-mingw-w64-x86-64 runs "test -s" x86_64-w64-mingw32-gcc -x c -include math.h
    need "wine"                wine64            runs "sh tests/wine.sh" x86_64-w64-mingw32-gcc -x c -static
    need "thread sanitizer"    gcc               runs "sh tests/fixed.sh" gcc -fsanitize=thread -x c
    need "BLAS and LAPACK"     libopenblas-dev   builds gcc -x c -Wl,--no-as-needed -lopenblas
}
look_for_bench() {
    need "OpenBLAS on OpenMP"  libopenblas0-openmp sh -c 'ls /usr/lib/*/openblas-openmp/libopenblas.so.0'
    need "venv of Python"      python3-venv      "${PYTHON:-python3}" -c 'import ensurepip, venv'
    # torch.compile includes Python.h
    need "headers of Python"   python3-dev       "${PYTHON:-python3}" -c \
        'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")'
}
# A folder of Python packages of its own. What is not complete is made again.
bench_python() {
    peers=data/bench/python
    if "$peers/bin/python" -c 'import torch, numpy' >/dev/null 2>&1; then
        echo "setup: $peers has the peers of make bench"
        return
    fi
    echo "setup: installing PyTorch, NumPy, opt_einsum, TensorKrowch and LiteRT in $peers: about 5.5 GB with the CUDA"
    echo "setup: libraries that PyTorch needs on Linux, 1 GB where pip's index has a PyTorch without them"
    rm -rf "$peers"
    mkdir -p data/bench
    "${PYTHON:-python3}" -m venv "$peers"
    pip="$peers/bin/python -m pip --disable-pip-version-check -q"
    newest=$($pip index versions torch 2>/dev/null | sed -n 's/^torch (\([^)+]*\).*/\1/p' || :)
    if [ "$newest" ] && $pip install "torch==$newest+cpu" 2>/dev/null; then :
    elif $pip install torch; then :
    else
        rm -rf "$peers"
        echo "setup: pip could not install PyTorch; make bench skips its rows" >&2
        return
    fi
    $pip install numpy
    $pip install opt_einsum tensorkrowch \
        || echo "setup: there is no opt_einsum or TensorKrowch for this Python; make bench skips them"
    $pip install ai-edge-litert flatbuffers || echo "setup: there is no LiteRT for this Python; make bench skips it"
    "$peers/bin/python" -c 'import torch; print("setup: PyTorch", torch.__version__)'
}
# The same for the tests of tools/python.
notebook_python() {
    folder=data/python
    if "$folder/bin/python" -c 'import numpy, nbclient, ipykernel, setuptools, wheel' >/dev/null 2>&1; then
        echo "setup: $folder has what the tests of tools/python need"
        return
    fi
    echo "setup: installing NumPy, setuptools, nbclient and ipykernel in $folder: about 210 MB"
    rm -rf "$folder"
    mkdir -p data
    "${PYTHON:-python3}" -m venv "$folder"
    "$folder/bin/python" -m pip --disable-pip-version-check -q install numpy setuptools wheel nbclient ipykernel || {
        rm -rf "$folder"
        echo "setup: pip could not install them; the notebook is skipped" >&2
    }
}
m32() { builds i686-linux-gnu-gcc -x c -include math.h -static || builds gcc -m32 -x c -include math.h -static; }
# clang++ uses the newest gcc folder it finds, whether that has C++ headers or not.
clang_stdcxx() {
    version=$(clang -v 2>&1 | sed -n 's/^Selected GCC.*\/\([0-9]*\).*/\1/p' || :)
    echo "clang${version:+ libstdc++-$version-dev}"
}
need() {   # NAME PACKAGES COMMAND...
    name=$1 package=$2
    shift 2
    "$@" >/dev/null 2>&1 || { names="$names${names:+, }$name"; packages="$packages $package"; }
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then sudo "$@"
    else
        echo "setup: not root, and no sudo without a password. As root:" >&2
        echo "    apt-get update && apt-get install$packages dataset-fashion-mnist" >&2
        exit 1
    fi
}
apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@"; }
update_lists() { echo "setup: apt-get update"; apt update; updated=yes; }

install_packages() {
    update_lists
    # Some releases have no package for clang's sanitizers: there they come with clang. So only what apt knows is asked for.
    known=$(for p in $packages; do if apt-cache show "$p" >/dev/null 2>&1; then echo "$p"; fi; done)
    echo "setup: apt-get install" $known
    apt install -y --no-install-recommends $known >/dev/null
}

# Where there is no apt: a C compiler, make and gunzip are all that `make demo` needs. Tests skip what the rest is for.
elsewhere() {
    lacks=''
    cc=${CC:-cc}
    builds $cc -x c -include math.h >/dev/null 2>&1 || lacks="$lacks, a C compiler ($cc)"
    "${MAKE:-make}" --version 2>/dev/null | grep -q GNU || lacks="$lacks, GNU make"
    has gunzip || lacks="$lacks, gunzip"
    case $(uname -s) in Darwin) system=macOS ;; MINGW*|MSYS*) system=MSYS2 ;; *) system=other ;; esac
    if   [ $system = macOS ]; then how="xcode-select --install"
    elif [ $system = MSYS2 ]; then how="pacman -S make mingw-w64-ucrt-x86_64-gcc; then CC=gcc sh tools/setup.sh"
    elif has dnf;    then how="dnf install gcc gcc-c++ make gzip curl stb_image_write-devel, as root"
    elif has pacman; then how="pacman -S base-devel curl stb, as root"
    elif has apk;    then how="apk add build-base curl stb, as root"
    elif has zypper; then how="zypper install gcc gcc-c++ make gzip curl, as root"
    elif has pkg;    then how="pkg install gmake curl, as root; then gmake in place of make, or MAKE=gmake sh tools/setup.sh"
    else how="your system's package manager"
    fi
    if [ "$lacks" ]; then
        echo "setup: missing: ${lacks#, }" >&2
        echo "setup: install with: $how" >&2
        exit 1
    fi
    look
    echo "setup: a C compiler, make and gunzip are there: make demo needs no more"
    [ -z "$names" ] || echo "setup: make test skips what needs: $names"
    case $names in *stb_image_write.h*)
        echo "setup: without stb_image_write.h, a single file, the examples draw SVG in place of PNG. With it:"
        echo "    mkdir -p build/stb"
        echo "    curl -fsSL -o build/stb/stb_image_write.h $stb/stb_image_write.h"
        echo "    make STB=build/stb demo" ;;
    esac
    [ -z "$bench" ] || bench_python
    [ -z "$python" ] || notebook_python
    exec sh examples/get_data.sh fashion
}
if [ "$(uname -s)" != Linux ] || ! has apt-get; then elsewhere; fi

updated=''
look
if [ -z "$packages" ]; then
    echo "setup: compilers, make and stb are there"
else
    echo "setup: missing: $names"
    install_packages
    look
fi
if [ -n "$packages" ]; then
    echo "setup: please install: $names" >&2
    echo "setup: (stb_image_write.h is one file: $stb/stb_image_write.h; STB=FOLDER says where it is)" >&2
    exit 1
fi

[ -z "$bench" ] || bench_python
[ -z "$python" ] || notebook_python

# Lists of packages that are missing or out of date are the one failure that an update may cure.
data() { sh examples/get_data.sh fashion; }
data || { [ -z "$updated" ] && update_lists && data; }
