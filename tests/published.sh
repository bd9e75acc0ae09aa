#!/bin/sh
# sh tests/published.sh PROGRAM: build/examples/studies/published, on the model in tests/data, against the float64 reference beside
# it; on Fashion-MNIST as well, where data/fashion is, and on the published MNIST model, where TN_TEST_DATA names a folder
# that has it; a line `LESS data` says where that one is missing. The last line is `N passed, N failed, N skipped`.
set -u
program=$1 passed=0 failed=0 skipped=0
output=$(mktemp) || exit 1
trap 'rm -f "$output"' EXIT

# The reference has one number per line: those of logits_first3_images, and of each class's top8_by_abs, in the order in
# which the program prints them. Where the program was given the test set, the reference has the number of correct answers
# among its 10,000 images too, for the network and for k eigenpairs of each class; rounding may change two answers.
compare() {   # NAME REFERENCE ACCURACIES
    { cat "$output"; echo reference; cat "$2"; } | awk -v name="$1" -v accuracies="$3" '
    $1 == "reference" && NF == 1          { reference = 1; next }
    !reference && $1 ~ /^(eigenvalues|logits)\[/ {
        kind = $1; sub(/\[.*/, "", kind)
        for (i = 2; i <= NF; i++) if ($i ~ /^-?[0-9]/) ours[kind, n[kind]++] = $i
    }
    !reference && /^(test_accuracy|accuracy_k[0-9]+): [0-9]/ { sub(/:/, "", $1); right[$1] = $2 * 10000 }
    !reference { next }
    accuracies && /"(test_correct|[0-9]+)": [0-9]/ {
        key = $1; gsub(/[":]/, "", key)
        key = key == "test_correct" ? "test_accuracy" : "accuracy_k" key
        difference = key in right ? right[key] - $2 : 10000
        if (difference < 0) difference = -difference
        if (!(difference <= 2.5)) { printf "%s: %d correct answers, expected %d\n", key, right[key], $2; bad = 1 }
        compared++
    }
    /"/                      { kind = /"logits_first3_images"/ ? "logits" : /"top8_by_abs"/ ? "eigenvalues" : ""; next }
    kind != "" && /[0-9]/ {
        theirs = $1 + 0; i = m[kind]++
        error = ours[kind, i] - theirs; if (error < 0) error = -error
        if (theirs < 0) theirs = -theirs
        error /= theirs
        if (!(error <= 1e-4)) bad = 1
        if (error > largest[kind]) largest[kind] = error
    }
    END {
        for (kind in m) {
            printf "worst %s %s, relative: %.3g (bound 1e-4) of %d\n", name, kind, largest[kind], m[kind]
            if (n[kind] != m[kind]) bad = 1
        }
        exit bad || m["logits"] != 30 || m["eigenvalues"] != 80 || compared != accuracies
    }'
}

# try NAME REFERENCE ACCURACIES ARGUMENT...: with these arguments the program prints the numbers of the reference.
try() {
    name=$1 reference=$2 accuracies=$3
    shift 3
    if "$program" "$@" > "$output" 2>&1 && compare "$name" "$reference" "$accuracies"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $program $*"
        cat "$output"
    fi
}

model=tests/data/bilinear
try trained $model/reference.json 0 $model/model.safetensors
if [ -f data/fashion/t10k-labels-idx1-ubyte ]; then
    try fashion $model/reference.json 10 $model/model.safetensors data/fashion
else
    sh tests/missing.sh fashion "(Fashion-MNIST in data/fashion: sh examples/get_data.sh fashion)"
    if [ $? = 77 ]; then skipped=$((skipped + 1)); else failed=$((failed + 1)); fi
fi

model=${TN_TEST_DATA:-}/bilinear-mnist-model
if [ -n "${TN_TEST_DATA:-}" ] && [ -f "$model/reference_float64.json" ]; then
    try published "$model/reference_float64.json" 0 "$model"/*.safetensors
else
    case ,${TN_REQUIRE:-}, in
    *,published,*)
        failed=$((failed + 1))
        echo "FAIL published is required: there is no bilinear-mnist-model in TN_TEST_DATA" ;;
    *) echo "LESS data: the published MNIST model, which is optional: see tests/data/README.md" ;;
    esac
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
