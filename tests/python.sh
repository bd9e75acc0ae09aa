#!/bin/sh
# sh tests/python.sh package|asan|notebook|analyses: tools/python, installed by pip without a network from a copy of the tree.
# `package`: its tests, with a C program that computes the same, every function with wrong arguments, programs of earlier
# versions, and the documents; `asan`: these tests and calls with build/asan/libtensornet.so; `notebook`: those of examples;
# `analyses`: examples/studies/analyses.py. PYTHON is a Python with NumPy (data/python after `sh tools/setup.sh --python`).
set -eu
step=$1
for python in "${PYTHON:-}" data/python/bin/python /usr/bin/python3 python3; do
    if [ "$python" ] && "$python" -c 'import setuptools, wheel, numpy, pip' 2>/dev/null; then break; fi
    python=
done
[ "$python" ] || exec sh tests/missing.sh numpy "(sh tools/setup.sh --python), so that the Python package is not tried"
case $step in
notebook) "$python" -c 'import nbclient, ipykernel' 2>/dev/null ||
    exec sh tests/missing.sh nbclient "(sh tools/setup.sh --python), so that the notebook is not run" ;;
esac
case $python in */*) python=$(cd "${python%/*}" && pwd)/${python##*/} ;; esac
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAIL $*"; exit 1; }
version=$(awk '/^#define TN_VERSION_(MAJOR|MINOR|PATCH) / { printf "%s%s", dot, $3; dot = "." }' tensornet.h)
library=build/lib/libtensornet.so.$version
sanitizer=
if [ "$step" = asan ]; then
    # Python itself frees little of its own memory at its end; its allocator would hide what is read beyond an array.
    sanitizer="env LD_PRELOAD=$(gcc -print-file-name=libasan.so) PYTHONMALLOC=malloc
               ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1"
fi

# A copy, because a build leaves files behind; the network is out of order. The stub is made without sanitizers.
mkdir -p "$folder/tree/tools/python"
cp tensornet.h "$folder/tree"
cp -r tools/python/*.* tools/python/tensornet "$folder/tree/tools/python"
rm -rf "$folder/tree/tools/python"/*.egg-info
command=$(command -v "$PWD/build/gcc/tn" || command -v "$PWD/build/clang/tn" || :)
TENSORNET_LIBRARY=$PWD/$library TENSORNET_COMMAND=$command PIP_INDEX_URL=http://127.0.0.1:9 "$python" -m pip install --disable-pip-version-check -q \
    --no-build-isolation --no-deps --root-user-action=ignore --target "$folder/site" "$folder/tree/tools/python" \
    > "$folder/log" 2>&1 || { cat "$folder/log"; fail "pip install"; }
[ "$step" != asan ] || cp build/asan/libtensornet.so "$folder/site/tensornet"
export PYTHONPATH="$folder/site" PYTHONDONTWRITEBYTECODE=1

case $step in
package | asan)
    for name in "libtensornet.so libtensornet.so.${version%.*}" "libtensornet.so.${version%.*} libtensornet.so.$version"; do
        [ "$(readlink "build/lib/${name% *}")" = "${name#* }" ] || fail "${name% *} does not lead to ${name#* }"
    done
    grep -q '^Tag: py3-none-' "$folder/site/tensornet-$version.dist-info/WHEEL" || fail "the wheel is not for every Python 3"
    [ -s "$folder/site/tensornet/__init__.pyi" ] || fail "the wheel has no stub"
    [ -z "$command" ] || [ "$("$folder/site/bin/tn" --version)" = "tn $version" ] || fail "the wheel has no command of its version"
    cc -std=c99 -I. tests/python/program.c -o "$folder/program" -Lbuild/lib -ltensornet
    export LD_LIBRARY_PATH="$PWD/build/lib"
    "$folder/program" > "$folder/said"
    if command -v readelf >/dev/null; then
        readelf -d "$folder/program" | grep -q "\[libtensornet.so.${version%.*}\]" || fail "the soname: $(readelf -d "$library")"
    fi
    "$python" tests/python/layout.py "$folder/site/tensornet/declarations.json" > "$folder/layout.c"
    cc -std=c99 -I. "$folder/layout.c" -o "$folder/layout"
    "$folder/layout" > "$folder/layout.txt"
    $sanitizer "$python" tests/python/calls.py || fail "tests/python/calls.py"
    $sanitizer "$python" tests/python/test_tensornet.py "$folder/program" "$folder/layout.txt"
    [ "$step" = package ] || exit 0
    for program in tests/kept/*/*.py; do "$python" "$program" || fail "$program, written for an earlier version"; done
    # Documents: their blocks are one program, and the text below each is what it prints.
    mkdir "$folder/run"
    ln -s "$PWD"/* "$folder/run"                            # where pages may write files
    for page in README.md docs/howto.md docs/python.md; do
        rm -f "$folder/page".*
        awk -v out="$folder/page" '/^```$/ { inside = "" }
            inside { print > (out inside) }
            /^```python$/ { inside = ".py" } /^```text$/ && last ~ /py$/ { inside = ".txt" }
            /^```(python|c|sh|cpp)$/ { last = $0; sub(/thon/, "", last) }' "$page"
        (cd "$folder/run" && "$python" "$folder/page.py") > "$folder/page.out" || fail "$page: the blocks of Python"
        diff "$folder/page.txt" "$folder/page.out" || fail "$page: what the blocks of Python print"
    done ;;
notebook)
    # Each notebook, and lines that it prints.
    while IFS='|' read -r name lines; do
        "$python" tests/python/notebook.py "examples/$name" > "$folder/said" 2> "$folder/errors" ||
            { cat "$folder/said" "$folder/errors"; fail "examples/$name"; }
        for line in $lines; do
            grep -q "^ *$(echo "$line" | tr _ ' ')" "$folder/said" ||
                { cat "$folder/said"; fail "examples/$name does not print: $line"; }
        done
    done <<END
guide.ipynb|step_300__loss 10_outputs,_64_inputs,_32_terms effective_rank_of_zero with_noise: a_picture_.*svg <Network_embed_>_bilinear_>_head>
language.ipynb|step_600: the_model___[23][.] happy:_chance_alone once_->_upon without_the_MLP a_picture together <Tokenizer:_700_tokens>
END
    ;;
analyses)
    "$python" examples/studies/analyses.py > "$folder/said" || { cat "$folder/said"; fail "examples/studies/analyses.py"; }
    awk '/^2 right with k pairs/ { right = $NF } /^5 head/ { heads++ } /^lines:/ { lines = $2 }
         END { exit !(right > 0.8 && heads == 2 && lines > 10 && lines <= 20) }' "$folder/said" ||
        { cat "$folder/said"; fail "five analyses in at most 20 lines"; } ;;
esac
