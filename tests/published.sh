#!/bin/sh
# sh tests/published.sh PROGRAM: build/examples/published, on the model in the test data, against the float64 reference beside it.
set -eu
model=${TN_TEST_DATA:-../shared/data}/bilinear-mnist-model
[ -f "$model/reference_float64.json" ] || exec sh tests/missing.sh data
output=$("$1" "$model"/*.safetensors)

# The reference has one number a line: those of logits_first3_images, and of each class's top8_by_abs, in the order we print them.
{ echo "$output"; echo reference; cat "$model/reference_float64.json"; } | awk '
    $1 == "reference" && NF == 1          { reference = 1; next }
    !reference && $1 ~ /^(eigenvalues|logits)\[/ {
        kind = $1; sub(/\[.*/, "", kind)
        for (i = 2; i <= NF; i++) if ($i ~ /^-?[0-9]/) ours[kind, n[kind]++] = $i
    }
    reference && /"/                      { kind = /"logits_first3_images"/ ? "logits" : /"top8_by_abs"/ ? "eigenvalues" : ""; next }
    reference && kind != "" && /[0-9]/ {
        theirs = $1 + 0; i = m[kind]++
        error = ours[kind, i] - theirs; if (error < 0) error = -error
        if (theirs < 0) theirs = -theirs
        if (error / theirs > worst[kind]) worst[kind] = error / theirs
    }
    END {
        for (kind in m) {
            printf "worst published %s, relative: %.3g (bound 1e-4) of %d\n", kind, worst[kind], m[kind]
            if (worst[kind] > 1e-4 || n[kind] != m[kind]) bad = 1
        }
        exit bad || m["logits"] != 30 || m["eigenvalues"] != 80
    }'
