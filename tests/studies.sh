#!/bin/sh
# sh tests/studies.sh FOLDER TN: the studies, which are programs in FOLDER, on a small text that is made here, in a few
# seconds: that they end, go on and only print, what they refuse; and that a loss is the one of `tn train` with the same
# settings.
set -eu
programs=$1 tn=$2
folder=$(mktemp -d "${TN_TEST_TMP:-/tmp}/studies.XXXXXX")
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAIL $*"; exit 1; }

# Stories of 240 words, of which each is followed by one of four.
awk 'function next_one(n) { x = (x * 1103 + 12345) % 65536; return int(x / 65536 * n) }
BEGIN {
    for (i = 0; i < 240; i++)
        word[i] = substr("bcdfghklmnprstvwz", next_one(17) + 1, 1) substr("aeiou", next_one(5) + 1, 1) \
                  substr("bdgklmnprst", next_one(11) + 1, 1) substr("aeiouy", i % 6 + 1, 1) \
                  substr("lnrst", next_one(5) + 1, 1)
    for (story = 0; story < 400; story++) {
        for (i = 0; i < 30; i++) {
            at = (at * 7 + next_one(4)) % 240
            printf "%s%s", word[at], (i % 10 == 9 ? ".\n" : " ")
        }
        print "<|endoftext|>"
    }
}' > "$folder/text"

small="--data $folder/text --tokens 10240 --batch 10 --context 16 --dim 16 --heads 2 --vocab 320"
study() { "$programs/variants" $small --seeds 2 --out "$folder/out" "$@" 2>&1; }
study --part all > "$folder/first" || { cat "$folder/first"; fail "the study ended with an error"; }
study --part all > "$folder/second" || fail "the finished study ended with an error"
grep -q '^0 training runs to do' "$folder/second" || fail "a finished study is not finished"
grep '^[a-z0-9_]*: ' "$folder/first" | grep -v '^seconds' > "$folder/a"
grep '^[a-z0-9_]*: ' "$folder/second" | grep -v '^seconds' > "$folder/b"
cmp -s "$folder/a" "$folder/b" || fail "a finished study prints other numbers"
[ "$(grep -c '_loss: [0-9.]*$' "$folder/a")" = 12 ] || fail "12 losses are to be there"
[ "$(grep -c '_verdict: ' "$folder/a")" = 10 ] || fail "10 verdicts are to be there"
[ "$(grep -c '^length_.*_quarter: [0-9.]*$' "$folder/a")" = 11 ] || fail "11 readings of long texts are to be there"
# Speeds are left out: such a short run may take no measurable time.
diverged=$(grep -v '_per_second: ' "$folder/a" | grep ': -*inf' || :)
[ -z "$diverged" ] || fail "a training run diverged: $diverged"

# One that was stopped: what is missing is trained again, and gives the same numbers.
rm "$folder"/out/runs/swiglu_*_2.txt "$folder"/out/runs/attention_bilinear_0.01_0.txt
study --part all > "$folder/second" || fail "the study cannot go on"
grep -q '^2 training runs to do' "$folder/second" || fail "2 training runs are missing"
grep '_loss: ' "$folder/first" > "$folder/losses"
grep '_loss: ' "$folder/second" | cmp -s - "$folder/losses" || fail "trained again, it has other losses"

# The loss of tn train: its first seed.
set -- $(awk '/^mlp:/ { table = 1 } table && $1 == "bilinear" { print $2, $4; exit }' "$folder/first")
hidden=$1 rate=$2
study --part mlp --seeds 1 > "$folder/one"
ours=$(sed -n 's/^mlp_bilinear_loss: //p' "$folder/one")
"$tn" train "$folder/text" --out "$folder/run" --vocab 320 --width 16 --heads 2 --hidden "$hidden" --context 16 --batch 10 \
    --tokens 10240 --warmup 8 --lr "$rate" --adam-lr "$(awk "BEGIN { print $rate / 2 }")" --no-baseline \
    > "$folder/tn" 2>&1 ||
    { cat "$folder/tn"; fail "tn train"; }
theirs=$(sed -n 's/.*held out \([0-9.]*\) nats per token.*(all of it).*/\1/p' "$folder/tn")
echo "$ours $theirs" | awk '{
    d = $1 - $2; d = d < 0 ? -d : d; printf "worst study loss against tn train: %.4g (bound 2e-4) of %s\n", d, $1
    exit !(NF == 2 && $1 > 0 && d <= 2e-4) }' || fail "the losses are $ours and $theirs"

"$programs/ablations" $small --seeds 2 --out "$folder/ablations" > "$folder/second" 2>&1 ||
    { cat "$folder/second"; fail ablations; }
[ "$(grep -c '_loss: [0-9.]*$' "$folder/second")" = 9 ] || fail "9 ablations are to be there"
[ "$(grep -c '+-.*standard errors$' "$folder/second")" = 7 ] || fail "7 questions have verdicts"

# With the same settings that tn train had, but for the MLP's width and the rates, and so not with the same loss.
"$programs/tinystories" $small --stories 2 --length 20 --out "$folder/stories" > "$folder/second" 2>&1 ||
    { cat "$folder/second"; fail tinystories; }
sed -n 's/^loss_token: //p' "$folder/second" | awk '{ exit !($1 > 0 && $1 < log(320)) }' || fail "no story is learned"
"$tn" info "$folder/stories/model.safetensors" > "$folder/info" 2>&1 ||
    { cat "$folder/info"; fail "tn info of a saved model"; }

# Planted laws are recovered; six kinds of transformers of three sizes have losses, laws and factors, and go on.
"$programs/scaling" --check > "$folder/second" 2>&1 || { cat "$folder/second"; fail "scaling --check"; }
[ "$(grep -c '^check_[a-z]*: 0\.' "$folder/second")" = 3 ] || fail "scaling: three checks: $(cat "$folder/second")"
scaling() { "$programs/scaling" $small --sizes 8:2:1,12:2:1,16:2:1 --seeds 2 --out "$folder/scaling" "$@" 2>&1; }
scaling > "$folder/first" || { cat "$folder/first"; fail scaling; }
awk '/^[a-z]*: / { table = $1 } /^(softmax|squared|bilinear)_/ { n[table]++; if (table == "law:" && !($(NF-3) > 0 && $(NF-1) > 0)) bad++ }
     table == "loss:" && /^softmax/ { for (i = 2; i <= 6; i += 2) if (!($i > 0 && $i < log(320))) bad++ }
     END { exit !(n["loss:"] == 6 && n["law:"] == 6 && n["time:"] == 6 && n["quarter:"] == 6 && n["half:"] == 6 && !bad) }' \
    "$folder/first" || { cat "$folder/first"; fail "the tables of scaling"; }
rm "$folder"/scaling/runs/squared_swiglu_12_2_1_*_2.txt
scaling --report > "$folder/second" || fail "scaling --report"
grep -q '^1 training runs are missing' "$folder/second" && grep -q '^seeds: 2 1 2$' "$folder/second" ||
    fail "scaling: what is missing: $(cat "$folder/second")"
scaling > "$folder/second" || fail "scaling cannot go on"
grep -q '^1 training runs to do' "$folder/second" || fail "scaling: one training run is missing"
for file in first second; do sed -n '/^loss: /,/^time: /p' "$folder/$file" > "$folder/$file.tables"; done
cmp -s "$folder/first.tables" "$folder/second.tables" || fail "scaling: trained again, it has other losses"
! scaling --sizes 8:2,12:2:1 > "$folder/refused" || fail "a size of two numbers is taken"
grep -q 'expected 1 to 8 times WIDTH:HEADS:BLOCKS' "$folder/refused" || fail "sizes: $(cat "$folder/refused")"
! scaling --backend cuda > "$folder/refused" || fail "a GPU is used without CUDA"
grep -q 'this program was built without CUDA' "$folder/refused" || fail "backend: $(cat "$folder/refused")"

"$programs/attention_scaling" --quick --dim 8 --most 512 --out "$folder/attention" > "$folder/second" 2>&1 ||
    { cat "$folder/second"; fail attention_scaling; }
awk '/^rank_.*: / { rank[$1] = $2 }
     END { exit !(rank["rank_squared:"] == rank["rank_squared_at_most:"] &&
                  rank["rank_bilinear:"] == rank["rank_bilinear_at_most:"] &&
                  rank["rank_softmax:"] > 200 && rank["rank_differential:"] > 200) }' "$folder/second" || fail "ranks"
grep -q '^ *512 *[0-9.]* *[0-9.]* *[0-9.]* *[0-9.]* *[0-9.]* *[0-9.]*$' "$folder/second" || fail "six times at 512 tokens"

# Two seeds without norms. A model and itself are alike.
for seed in 1 2; do
    "$tn" train "$folder/text" --out "$folder/free$seed" --norm none --no-qk-norm --attention bilinear --vocab 320 \
        --width 16 --heads 2 --context 16 --batch 10 --tokens 10240 --seed $seed --no-baseline > "$folder/tn" 2>&1 ||
        { cat "$folder/tn"; fail "tn train --norm none"; }
    "$programs/token_spectra" --run "$folder/free1" --other "$folder/free$seed" --outputs 9 > "$folder/spectra$seed" 2>&1 ||
        { cat "$folder/spectra$seed"; fail token_spectra; }
done
cat "$folder/spectra1" "$folder/spectra2" | awk '{ v[$1] = $2; if ($1 == "likeness_of_seeds:") like[++n] = $2 }
    END { for (s = 1; s <= 2; s++) {
              space = s == 1 ? "residual:" : "tokens:"; rank = v["effective_rank_" space]
              if (!(rank > 1 && rank <= 16 && v["share_of_first_2_" space] > 0 && v["share_of_first_8_" space] < 1 &&
                    v["share_of_first_2_" space] < v["share_of_first_8_" space])) exit 1
          }
          exit !(n == 2 && like[1] == 1 && like[2] > 0 && like[2] < 1) }' ||
    { cat "$folder"/spectra?; fail "spectra of tokens"; }
# The words that follow a word are in the weights, and not in those of another seed or of another word.
"$programs/story_circuits" --run "$folder/free1" --text "$folder/text" --tokens 100 --rare 1 > "$folder/circuits" 2>&1 ||
    { cat "$folder/circuits"; fail story_circuits; }
awk '/^(argmax|overlap)_/ { v[$1] = $2; n++ }
     END { exit !(n == 6 && v["argmax_among_ten_successors:"] > v["argmax_untrained:"] + 0.1 &&
                  v["overlap_with_pmi:"] > v["overlap_untrained:"] + 0.1 &&
                  v["overlap_with_pmi:"] > v["overlap_shuffled:"] + 0.1) }' "$folder/circuits" ||
    { cat "$folder/circuits"; fail "the circuits of a story model"; }
# In one block without norms deleted kinds of paths change the loss as predicted; the bounds contain the accuracy.
"$programs/story_circuits" --run "$folder/free1" --held "$folder/text" > "$folder/circuits" 2>&1 ||
    { cat "$folder/circuits"; fail "story_circuits --held"; }
awk '/^(r2|mean)_/ { v[$1] = $2; n++ } NF == 7 && $1 ~ /^[0-9]+$/ { bounds++ }
     END { exit !(n == 14 && bounds == 4 && v["r2_trained:"] > 0.999 && v["r2_shuffled_trained:"] < 0.5 &&
                  v["r2_single_paths_trained:"] > v["r2_single_paths_shuffled_trained:"] + 0.2) }' "$folder/circuits" ||
    { cat "$folder/circuits"; fail "the paths of a story model"; }
"$tn" train "$folder/text" --out "$folder/two" --layers 2 --vocab 320 --width 16 --heads 2 --context 16 --batch 10 --steps 1 \
    --no-baseline > "$folder/tn" 2>&1 || { cat "$folder/tn"; fail "tn train --layers 2"; }
! "$programs/story_circuits" --run "$folder/two" --text "$folder/text" > "$folder/refused" 2>&1 || fail "two blocks are taken"
grep -q 'has several blocks, expected 1, or --held' "$folder/refused" || fail "blocks: $(cat "$folder/refused")"
! "$programs/token_spectra" --run "$folder/run" > "$folder/refused" 2>&1 || fail "a model with norms is taken"
grep -q 'has norms, expected one of tn train --norm none' "$folder/refused" || fail "norms: $(cat "$folder/refused")"

# What is refused
! study --tokens 10000 --batch 100 > "$folder/few" || fail "7 steps are a study"
grep -q 'fewer than 32 steps of 100 x 16' "$folder/few" || fail "too few steps: $(cat "$folder/few")"
sed 's/a/o/' "$folder/text" > "$folder/other" && ! cmp -s "$folder/text" "$folder/other" && mv "$folder/other" "$folder/text"
! study --part mlp > "$folder/refused" || fail "another text of the same length is taken for this one"
grep -q 'is of another text, model, recipe or setting' "$folder/refused" || fail "another text: $(tail -1 "$folder/refused")"

# A note's equations, models that are the same function, and the analyses that count their lines.
"$programs/sharkey" > "$folder/second" 2>&1 || { cat "$folder/second"; fail sharkey; }
grep -q '^claims_that_fail: 0$' "$folder/second" || fail "a claim fails: $(cat "$folder/second")"
"$programs/similarity" --epochs 8 --out "$folder/similarity" > "$folder/second" 2>&1 ||
    { cat "$folder/second"; fail similarity; }
grep -q '^pairs_of_the_same_function: 1 in pixel space, 1 in the data metric$' "$folder/second" &&
    grep -q '^units_alike_disguised: 1.000$' "$folder/second" || fail "similarity: $(cat "$folder/second")"
while [ "$(cat "$folder/long" 2>/dev/null | wc -c)" -le 1048576 ]; do cat docs/*.md >> "$folder/long"; done
"$programs/analyses" --steps 30 --text "$folder/long" --out "$folder/analyses" > "$folder/second" 2>&1 ||
    { cat "$folder/second"; fail analyses; }
grep -q "^text: $(($(wc -c < "$folder/long"))) bytes, [1-9][0-9]* tokens\$" "$folder/second" ||
    fail "analyses: not all of the text is read: $(cat "$folder/second")"
awk '/^lines: / { lines = $2 } / right$/ { right = $(NF - 1); n++ }
     END { exit !(n == 5 && right > 0.8 && lines > 0 && lines <= 52) }' "$folder/second" ||
    fail "analyses: five accuracies, the last above 0.8, in 52 lines: $(cat "$folder/second")"

# Addition modulo 113: learned, and read from the weights.
"$programs/modular" --steps 300 --threads 1 --out "$folder/modular" > "$folder/second" 2>&1 || { cat "$folder/second"; fail modular; }
awk '{ v[$1] = $2 }
     END { exit !(v["held_out_accuracy:"] > 0.999 && v["formula_accuracy:"] == 1 && v["formula_margin:"] > 0.5 &&
                  v["share_of_formula:"] > 0.4 && v["share_of_formula_untrained:"] < 0.001) }' "$folder/second" ||
    fail "modular: $(cat "$folder/second")"

# All elementary automata by construction; rule 30, and two steps of it, learned from strings of at most 10 cells.
"$programs/automata" --seeds 2 --length 300 --every 40 --threads 1 --out "$folder/automata" > "$folder/second" 2>&1 ||
    { cat "$folder/second"; fail automata; }
awk '{ v[$1] = $2 }
     END { exit !(v["rules_exact:"] == 256 && v["seeds_solved:"] >= 1 && v["rules_read:"] == 2 &&
                  v["two_steps_solved:"] >= 1 && v["seconds:"] > 0) }' "$folder/second" ||
    fail "automata: $(cat "$folder/second")"

# Parities and a cell of rule 30, by two-site sweeps.
"$programs/sweep" --threads 1 > "$folder/second" 2>&1 || { cat "$folder/second"; fail sweep; }
grep -q '^parity_16_wrong: 0$' "$folder/second" || fail "sweep: $(cat "$folder/second")"

# A Born machine over letters: what it has learned of a text, and the entropies of its cuts.
"$programs/text_mps" --data "$folder/text" --length 29 --bond 8 --steps 200 --batch 32 --sentences 1 --threads 1 \
    --sentence "as the text is short so is this sentence" --out "$folder/text_mps" > "$folder/second" 2>&1 ||
    { cat "$folder/second"; fail text_mps; }
awk '{ v[$1] = $2 } /the letter after 0 others: / { alone = $NF }
     END { exit !(v["nats_per_letter:"] > 0 && v["nats_per_letter:"] < alone - 0.2 && v["largest_possible:"] == 2.0794 &&
                  v["largest_entropy:"] > 0 && v["largest_entropy:"] <= 2.0794 && v["entropy_within_words:"] > 0 &&
                  v["entropy_beside_spaces:"] > 0) }' "$folder/second" && [ -f "$folder/text_mps/sentence2.svg" ] ||
    fail "text_mps: $(cat "$folder/second")"
! "$programs/text_mps" --data "$folder/text" --sentence short > "$folder/refused" 2>&1 || fail "a short sentence is drawn"
grep -q 'sentence has 5 letters and spaces, expected at least 32' "$folder/refused" || fail "text_mps: $(cat "$folder/refused")"

# Both encoders find a dictionary that is known; bilinear autoencoders have the error that their matrices have.
"$programs/autoencoder" --threads 1 --out "$folder/autoencoder" > "$folder/second" 2>&1 ||
    { cat "$folder/second"; fail autoencoder; }
awk '{ v[$1] = $2 }
     END { exit !(v["found_linear:"] > 0.98 && v["found_bilinear:"] > 0.98 && v["unexplained_linear:"] < 0.1 &&
                  v["unexplained_bilinear:"] < 0.1 && v["unexplained_before:"] > 0.5 && v["pairs_square:"] < 0.6 &&
                  v["pairs_square_topk:"] < 0.66 && v["pairs_square:"] < v["pairs_square_topk:"] && v["pairs_square:"] > 0.4 &&
                  v["unexplained_square:"] < 0.25 && v["remainder_square:"] != "" && v["remainder_square:"] < 1e-5 &&
                  v["remainder_square_topk:"] != "" && v["remainder_square_topk:"] < 1e-5) }' "$folder/second" ||
    fail "autoencoder: $(cat "$folder/second")"
! "$programs/autoencoder" --active 9 --latents 8 > "$folder/refused" 2>&1 || fail "nine of eight latents are active"
grep -q 'active is 9, expected at most --latents, 8' "$folder/refused" || fail "latents: $(cat "$folder/refused")"

# The dictionary of a language model's block: interactions of features add up to what the MLP computes of reconstructions.
"$programs/autoencoder" --threads 1 --run "$folder/free1" --tokens 4000 --latents 24 --active 6 --steps 200 --batch 64 --show 2 \
    --out "$folder/autoencoder" > "$folder/second" 2>&1 || { cat "$folder/second"; fail "autoencoder --run"; }
awk '{ v[$1] = $2 } /interacts, for/ { n++ }
     END { exit !(n == 4 && v["linear_remainder:"] < 1e-4 && v["bilinear_remainder:"] < 1e-4 && v["linear_remainder:"] != "" &&
                  v["unexplained_linear:"] < v["unexplained_before:"] && v["linear_mlp_output_unexplained:"] < 1) }' \
    "$folder/second" || fail "autoencoder --run: $(cat "$folder/second")"

# The heads that the weights name are those whose removal costs most.
"$programs/induction" --steps 300 --threads 1 --out "$folder/induction" > "$folder/second" 2>&1 ||
    { cat "$folder/second"; fail induction; }
awk '{ v[$1] = $2 }
     END { exit !(v["ablation_agrees:"] == "yes" && v["accuracy:"] > 0.95 && v["k_composition:"] > 2 &&
                  v["accuracy_without_induction_head:"] < 0.5) }' "$folder/second" || fail "induction: $(cat "$folder/second")"
