#!/bin/sh
# sh tools/pages/pages.sh TN EIGENVECTORS FOLDER [STEPS]: pages for a web host, in one folder that can be put anywhere as it is:
# index.html, the lessons of `tn demo`, and the pages of an image model, a language model and a tensor, made of what the repository
# has. EIGENVECTORS is the example 06_eigenvectors, STEPS how long the language model learns. It runs in the repository's folder.
set -eu
root=$PWD
full() { case $1 in /*) echo "$1" ;; *) echo "$root/$1" ;; esac; }
tn=$(full "$1") eigenvectors=$(full "$2") out=$(full "$3") steps=${4:-600}
work=$(mktemp -d "${TMPDIR:-/tmp}/pages.XXXXXX")
trap 'rm -rf "$work"' EXIT
said() { "$@" > "$work/said" 2>&1 || { cat "$work/said" >&2; exit 1; }; }

"$tn" demo --out "$3"
ln -s "$root/examples" "$root/tests" "$work/"
cd "$work"
said "$eigenvectors"
said "$tn" look digits.safetensors --w digits.w --p digits.p --data digits.npy \
    --labels examples/data/digits-labels-idx1-ubyte --title "Handwritten digits" --out "$out/images.html"
cp eigenvectors.svg "$out/digits.svg"
said "$tn" train tests/data/stories/stories.txt --out stories --layers 2 --width 64 --heads 4 --context 64 --vocab 600 \
    --batch 16 --steps "$steps"
said "$tn" look stories --title "A model of 340 stories" --text "once upon a time there was a little" --out "$out/language.html"
said "$tn" draw stories blocks.1.mlp --interaction girl --tokens --top 8 --out "$out/language.svg"
said "$tn" look digits.npy --title "1,797 handwritten digits" --out "$out/tensor.html"
said "$tn" draw digits.npy --spectrum --out "$out/tensor.svg"
cp "$root/tools/pages/index.html" "$out/"
for page in images language tensor; do echo "page: $3/$page.html"; done
echo "Open $3/index.html, or put the folder $3 on a web host."
