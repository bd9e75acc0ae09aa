#!/bin/sh
# sh tests/tn_look.sh TN: the pages of `tn look`: numbers in them against those that `tn circuits`, `tn draw` and `tn decompose`
# print, and what it refuses. Its last line is `N passed, N failed, N skipped`.
set -u
npy=$PWD/tests/data/npy hf=$PWD/tests/data/hf missing=$PWD/tests/missing.sh
model=${TN_TEST_DATA:-no-such-folder}/bilinear-mnist-model
case $model in /*) ;; *) model=$PWD/$model ;; esac
. "${0%/*}/expect.sh"
is() { if [ "$2" = "$3" ]; then pass; else fail "$1: \"$2\", not \"$3\""; fi; }
holds() { what=$1; shift; if "$@"; then pass; else fail "$what"; fi; }
lacks() { ! grep -qF -- "$1" "$2"; }
near() { awk -v a="$2" -v b="$3" -v c="$4" 'BEGIN { d = a - b; exit !(a != "" && b != "" && a + 0 == a && d <= c && -d <= c) }' &&
         pass || fail "$1: \"$2\", not \"$3\""; }

# The object of a page, one key per line; of a section alone, by its id.
data() { awk '/id="tn-data">/ { on = 1 } on { print } on && /<\/script>/ { exit }' "$1" | sed 's/.*id="tn-data">//; s/<\/script>.*//'; }
section() { data "$1" | awk -v id="\"id\":\"$2\"" '/\{"type":/ { on = 0 } index($0, id) { on = 1 } on { print }'; }
# values KEY: the numbers of this key, in their order, in what is read
values() { sed -n "s/^.*\"$1\":\\(-\\{0,1\\}[0-9][-+.e0-9]*\\).*/\\1/p"; }
texts() { sed -n "s/^.*\"$1\":\"\\(.*\\)\"[]},]*\$/\\1/p"; }
# f64 PAGE AT [COUNT]: the number, or numbers, at a place of the block of bytes, one in a line
f64() {
    awk '/id="tn-blob">/ { sub(/.*id="tn-blob">/, ""); sub(/<\/script>.*/, ""); print; exit }' "$1" | base64 -d 2>/dev/null |
        od -An -v -tf8 -j "$2" -N $((8 * ${3:-1})) | tr -s ' ' '\n' | sed '/^$/d'
}
# beyond PAGE: of each spectrum how many eigenvalues are beyond its null, and the norm
beyond() {
    section "$1" spectra | sed 's/"values":{//; s/[^0-9a-z_.+-]/ /g' | while read -r key value rest; do
        case $key in
        at) at=$value ;;
        shape) count=$value ;;
        null_edge) edge=$value ;;
        norm) f64 "$1" "$at" "$count" | awk -v e="$edge" -v norm="$value" '{ n += $1 > e || -$1 > e } END { printf "%d %.6g\n", n, norm }' ;;
        esac
    done
}
# alike WHAT A B BOUND: two lists of numbers, in files, of equal length and not empty
alike() {
    if paste "$2" "$3" | awk -v bound="$4" '{ d = $1 - $2; if (d < 0) d = -d; n++ } !(d <= bound) || NF != 2 { bad = 1 }
        END { exit !(n > 0 && !bad) }'; then pass; else fail "$1: $(paste "$2" "$3" | head -n 3 | tr '\n\t' ' /')"; fi
}

awk 'BEGIN { srand(3); split("the cat dog saw ran and a big red </script> \"so\" tree", w, " ")
    for (i = 0; i < 400; i++) { printf "%s%s", w[1 + int(12 * rand())], (i % 9 == 8 ? ".\n" : " ") } }' > text
expect 0 "Done" train text --out run --width 16 --heads 2 --layers 2 --context 16 --batch 2 --steps 12 --weights-every 6 --vocab 60 \
    --save-every 6 --val-every 6 --val-tokens 64

# ---- a language model -----------------------------------------------------------------------------

said="the cat saw the"
expect 0 "page: page.html" look run --out page.html --text "$said"
for id in learnt card heads spectra-0 eigen-1 interactions-0 pairs paths time; do
    holds "a page has $id" grep -qF "\"id\":\"$id\"" page.html
done
# A page is sent to others: no message of the library, no function of it, no folder of this machine.
plain() { ! data "$1" | grep -v '"config"' | grep -e 'circuit_' -e 'tn_[a-z]' -e ', expected' -e "$PWD" -e '"/[a-z][a-z]*/' > said; }
holds "a page has no message and no path" plain page.html
is "one script element ends for each that begins" "$(grep -o '<script' page.html | wc -l)" "$(grep -o '</script' page.html | wc -l)"
holds "a token is escaped" grep -qF '"\u003c"' page.html
"$tn" circuits run heads --json > heads.json
for key in copying composition; do
    section page.html heads | values $key > mine
    sed -n "/per_head/,/\]/s/.*\"$key\": \\(-\\{0,1\\}[0-9][-+.e0-9]*\\).*/\\1/p" heads.json > theirs
    alike "$key of heads" mine theirs 1e-12
done
section page.html heads | values ov_norm > mine
sed -n 's/.*"ov": \([-+.e0-9]*\),.*/\1/p' heads.json > theirs
alike "norms of heads" mine theirs 1e-12
"$tn" circuits run paths "$said" --top 40 --json > paths.json
section page.html paths | values value > mine
sed -n '/"per_path"/,/^  \]/s/.*"value": \([-+.e0-9]*\),.*/\1/p' paths.json > theirs
alike "values of paths" mine theirs 1e-12
near "the logit of paths" "$(section page.html paths | values exact)" "$(sed -n 's/.*"logit": \([-+.e0-9]*\).*/\1/p' paths.json)" 1e-12
awk '{ s += $1 } END { printf "%.17g\n", s }' mine > sum
near "paths and remainder are the logit" "$(awk -v r="$(section page.html paths | values remainder)" '{ printf "%.17g", $1 + r }' sum)" \
    "$(section page.html paths | values exact)" 1e-9
# The first output of the first block: its pairs, its spectrum.
out=$(section page.html pairs | texts output | head -n 1)
id=$("$tn" circuits run bigrams "$out" --top 1 --json > one && echo "$out")
"$tn" circuits run pairs "$id" --common 512 --top 6 --within-null --json > pairs.json
section page.html pairs | awk '/"block":1/ { exit } { print }' | values value | head -n 3 > mine
sed -n '/"for"/,/^  \]/s/.*"value": \([-+.e0-9]*\),.*/\1/p' pairs.json | head -n 3 > theirs
alike "values of pairs of $out" mine theirs 1e-9
"$tn" circuits run pairs "$id" --common 512 --top 6 --json > few.json
is "pairs beyond the null" "$(grep -c '"left"' few.json) of $(grep -c '"left"' pairs.json)" \
    "$(section page.html pairs | awk -v out="\"output\":\"$out\"," '/"block":1/ { exit } index($0, "\"output\":") { on = index($0, out) }
        on && /"within":/ { all++; n += /false/ } END { print n + 0, "of", all }')"
expect 0 "norm" circuits run diff run/weights-00000006.safetensors
"$tn" circuits run diff run/weights-00000006.safetensors --no-data --json > diff.json
expect 0 "page: both.html" look run --against run/weights-00000006.safetensors --out both.html
# Each model has one name, and the loss that the log has for its step; the text begins where a sentence does.
held() { sed -n "s/^{\"step\":$1,\"held\":\([-+.e0-9]*\),.*\"all\":$2.*/\1/p" run/log.jsonl | tail -n 1; }
first=$(held 12 true) other=$(held 6 false)
holds "each model has one name" lacks '"name":"weights-00000006.safetensors"' both.html
holds "and says which step it is" grep -qF "weights-00000006 has the weights of step 6 of the run run." both.html
is "both have a card" "$(section both.html card | texts name | head -n 2 | tr '\n' ' ')" "run weights-00000006 "
expect 0 "page: one.html" look run/weights-00000006.safetensors --out one.html
near "the loss of a step is that of the step" "$(section one.html learnt | grep -A 2 '"this model"' | values nats)" "$other" 1e-12
is "the last one is the run's" "$(section page.html learnt | grep -A 2 '"this model"' | values nats)" "$first"
begins=$(data one.html | texts prompt | sed 's/\\u003c/</g; s/\\u003e/>/g; s/\\"/"/g' | tr -d ' \n')
is "a text begins with a sentence" "$(tr -d ' \n' < text | grep -cF ".${begins:-none}")" 1
sed -n '/"per_head"/,/\]/s/.*"ov_tokens": \([-+.e0-9]*\),.*/\1/p' diff.json > theirs
section both.html compare | awk '/"name":"[01].head/ { on = 1 } /"name":"[01].mlp/ { on = 0 } on' | values similarity > mine
alike "cosines of heads" mine theirs 1e-9
# Which of two predicts better is measured on the same held-out tokens, all but those with less than half of them before them: again
# from the logits of both, by a text of one window. Without the text the losses in the logs are said, and no verdict.
compared() { section "$1" learnt | sed -n 's/^"text":"\(.*\)",$/\1/p'; }
echo 'big a saw dog cat and the "so" dog.' > said-after
expect 0 "Done" train text --val said-after --out short --width 16 --heads 2 --layers 2 --context 64 --batch 2 --steps 12 \
    --weights-every 6 --vocab 60
for file in model weights-00000006; do
    "$tn" eval "short/$file.safetensors" said-after --logits logits.npy > evaluated 2>&1
    tail -c +129 logits.npy | od -An -v -tf4 | awk '{ for (i = 1; i <= NF; i++) printf "%s%s", $i, ++n % 60 ? " " : "\n" }'
done > logits
"$tn" tokenizer encode said-after --tokenizer short/tokenizer.json > said-ids
# measured LOGITS NAME: of the model and of another one
measured() {
    awk -v name="$2" 'NR == FNR { n = split($0, id, " ") - 1; next }
        { k = FNR > n; i = FNR - k * n; sum = 0; best = 1
          for (j = 1; j <= NF; j++) { sum += exp($j); if ($j > $best) best = j }
          loss[k, i] = log(sum) - $(id[i + 1] + 1); likeliest[k, i] = best }
        END { for (i = int(n / 2) + 1; i <= n; i++) {
                  m++; a += loss[0, i]; b += loss[1, i]; d = loss[0, i] - loss[1, i]; all += d; squares += d * d
                  same += likeliest[0, i] == likeliest[1, i] }
              all /= m; error = 2 * sqrt((squares / m - all * all) / m); size = all < 0 ? -all : all
              for (digits = 2; error > 0 && error < 10 ^ -digits && digits < 6; ) digits++
              number = "%." digits "f"
              printf "On the same %d held-out tokens the loss of short is " number " and that of %s " number " nats per token: ",
                  m, a / m, name, b / m
              if (size > error) printf "%s predicts better, by " number " ± " number " (two standard errors", (all > 0 ? name : "short"),
                  size, error
              else printf "the difference, " number " ± " number ", is within two standard errors", size, error
              printf ", tokens taken as independent%s. They have the same likeliest next token after %.0f %% of these tokens.\n",
                  (size > error ? ")" : ""), 100 * same / m }' said-ids "$1"
}
expect 0 "page: two.html" look short --against short/weights-00000006.safetensors --out two.html
is "what two models are measured to be" "$(compared two.html)" "$(measured logits weights-00000006)"
holds "which is a difference beyond its error" grep -qF "short predicts better, by 0." two.html
expect 0 "page: two.html" look short --against short/weights-00000012.safetensors --out two.html
is "a model beside itself" "$(compared two.html | sed 's/.*: the/the/')" "the difference, 0.00 ± 0.00, is within two standard errors, \
tokens taken as independent. They have the same likeliest next token after 100 % of these tokens."
expect 0 "page: two.html" look run --against run/weights-00000006.safetensors --no-data --out two.html
without="The held-out text is not available here, so the page cannot say which predicts better; tn eval RUN FILE measures it."
is "without the text the losses of the logs, and no verdict" "$(compared two.html | sed 's/ They have .*//')" \
    "$without $(printf 'By the logs the loss of run is %.2f and that of weights-00000006 %.2f nats per token' "$first" "$other"), \
each on the held-out text of its run."
mkdir bare && cp run/config.json run/tokenizer.json run/model.safetensors bare
expect 0 "page: two.html" look bare --against run --text "$said" --out two.html
holds "without a log those on the text below" grep -qF "$without On the text below the loss of bare is " two.html
holds "and on how many tokens they agree" grep -qE "after 100 % of the [0-9]+ tokens of the text below" two.html
cp -r run threes && sed 's/"fivegram":[-+.e0-9]*/"fivegram":null/' run/log.jsonl > threes/log.jsonl
expect 0 "page: threes.html" look threes --out threes.html
holds "trigrams alone" grep -qE "counting sequences of up to three tokens: .*, that of trigram counts" threes.html
expect 0 "page: same.html" look run --against run --out same.html --no-data
is "a model is like itself" "$(section same.html compare | values similarity | awk '$1 < 0.999999' | wc -l)" 0

# ---- parts that are not multilinear, weights that are not numbers, a vocabulary without names ----------

expect 0 "page: gelu.html" look run --title '</script><b>"x' --out gelu.html --no-data
holds "a title is escaped" lacks '</script><b>' gelu.html
holds "a text of the page's own is said" grep -qF "the page begins with a text of its own" gelu.html
expect 0 "Done" train text --out gelu --width 16 --heads 2 --layers 2 --context 16 --batch 2 --steps 2 --mlp gelu,bilinear --vocab 60 \
    --val-tokens 64
expect 0 "page: gelu.html" look gelu --text "the cat" --out gelu.html
holds "an MLP that is no tensor is named" grep -qF "The MLP of block 0 (GELU) is not bilinear" gelu.html
holds "the other one is shown" grep -qF '"id":"spectra-1"' gelu.html
holds "and paths, with constant modifiers" grep -qF '"id":"paths"' gelu.html
holds "a page of two kinds of MLPs has no message and no path" plain gelu.html
cp -r run broken
at=$(($(od -An -tu8 -N 8 run/model.safetensors) + 8))
printf '\377\377\377\177' | dd of=broken/model.safetensors bs=1 seek=$at conv=notrunc 2> /dev/null
if "$tn" look broken --out broken.html > said 2>&1; then
    holds "warns of them" grep -q '^tn look: .* has 1 numbers that are NaN or infinite' said
    holds "names the weights that are NaN" grep -q 'has 1 numbers that are NaN or infinite' broken.html
    holds "what follows from them is left out" lacks '"id":"heads"' broken.html
else holds "names the damaged file" grep -qF "broken/model.safetensors" said; fi
cp -r run ids && rm ids/tokenizer.json
expect 0 "page: ids.html" look ids --out ids.html --no-data --text "1 2 3"
holds "tokens without names are numbers" grep -qF '"#7"' ids.html

# ---- models of others: read from files as Hugging Face writes them ---------------------------------------

small="--width 16 --heads 2 --layers 2 --context 16 --batch 2 --steps 2 --vocab 60 --val-tokens 64 --gain --no-qk-norm --no-embed-norm"
while read -r kind options; do
    # shellcheck disable=SC2086
    expect 0 "Done" train text --out "own-$kind" $small $options
    expect 0 "written" export "own-$kind" --hf "hf-$kind"
    expect 0 "model: $kind" import "hf-$kind" --out "in-$kind"
    expect 0 "page: $kind.html" look "in-$kind" --text "the cat saw" --out "$kind.html"
    # The folder itself has the same page but for its names, and the file in it is one of tensors.
    expect 0 "page: folder.html" look "hf-$kind" --text "the cat saw" --title "in-$kind" --out folder.html
    for page in folder "$kind"; do data $page.html | sed "/read as .tn import. reads it/d; s/^\"notes\":\[//; s/hf-$kind\\//in-$kind\\//" \
        > "$page.data"; done
    is "a page of a folder is that of its import" "$(cksum < folder.data)" "$(cksum < "$kind.data")"
    expect 0 "page: file.html" look "hf-$kind/model.safetensors" --out file.html
    holds "a file of it has its tensors" [ "$(section file.html tensors | grep -c '"shape":')" -gt 10 ]
    holds "and says how to see the model" grep -qF "run tn look on the folder to see the model" file.html
    for id in learnt card heads paths; do holds "a page of $kind has $id" grep -qF "\"id\":\"$id\"" "$kind.html"; done
    holds "a page of $kind has no message and no path" plain "$kind.html"
    case $kind in gpt2) mlp="GELU (tanh)" ;; *) mlp=SwiGLU ;; esac
    holds "the first screen of $kind has its MLP as people write it" grep -qF "(softmax) and a $mlp MLP in each" "$kind.html"
    holds "a page of $kind names its MLPs, once" [ "$(grep -c "The MLPs of blocks 0, 1 (.*) are not bilinear" "$kind.html")" = 1 ]
    "$tn" circuits "in-$kind" heads --no-data --json > heads.json
    section "$kind.html" heads | values copying > mine
    sed -n '/per_head/,/\]/s/.*"copying": \(-\{0,1\}[0-9][-+.e0-9]*\).*/\1/p' heads.json > theirs
    alike "copying scores of $kind" mine theirs 1e-12
    expect 0 "page: two.html" look "hf-$kind" --against "hf-$kind" --out two.html
    is "a folder is like itself, in 4 heads" "$(section two.html compare | values similarity | awk '{ n += $1 > 0.999999 } END { print NR, n }')" "4 4"
done <<'END'
gpt2 --norm layer --positions learned --mlp gelu-tanh --bias
llama --mlp swiglu
END
# A tokenizer that cannot be read leaves numbers, and where the weights cannot be read either, these are the reason.
sed 's/"Whitespace\|"BertPreTokenizer"/"Metaspace"/; s/"WordPiece"/"Unigram"/' hf-gpt2/tokenizer.json > unlike.json
cp -r hf-gpt2 numbers && cp unlike.json numbers/tokenizer.json
expect 0 "page: numbers.html" look numbers --text "1 2 3" --out numbers.html
holds "tokens are numbers" grep -qF '"#7"' numbers.html
holds "and why" grep -q '"The tokenizer of numbers is left out because .*: tokens are shown by their numbers\."' numbers.html
holds "and no option of another command" lacks no-tokenizer numbers.html
sed 's/attn.c_proj.weight/attn.c_prox.weight/' hf-gpt2/model.safetensors > numbers/model.safetensors
expect 0 "page: numbers.html" look numbers --out numbers.html
holds "the weights are the reason" grep -q 'This folder is shown as tensors because .*attn.c_prox.weight' numbers.html
holds "and not the tokenizer" lacks "tokenizer of" numbers.html
expect 1 'attn.c_prox.weight" has no counterpart' look hf-gpt2 --against numbers

# ---- a layer that options name: the same numbers as tn draw's --------------------------------------

weights=run/model.safetensors
expect 0 "page: layer.html" look $weights --w blocks.0.mlp.w --p blocks.0.mlp.p --out layer.html
for k in 0 5; do
    "$tn" draw run blocks.0.mlp --interaction $k --spectrum --out x.svg > drawn
    near "norm of output $k" "$(section layer.html spectra | values norm | sed -n "$((k + 1))p")" "$(sed -n 's/^norm: //p' drawn)" 1e-5
    near "effective rank of output $k" "$(section layer.html spectra | values effective_rank | sed -n "$((k + 1))p")" \
        "$(sed -n 's/^effective_rank: //p' drawn)" 1e-2
done
"$tn" draw run blocks.0.mlp --interaction 0 --spectrum --out x.svg > drawn
at=$(section layer.html eigen | values at | head -n 1)
near "the first eigenvalue" "$(f64 layer.html "$at" | tr -d -)" \
    "$(sed -n 's/^largest: //p; s/^smallest: -*//p' drawn | sort -g | tail -n 1)" 1e-5
expect 2 "--outputs is 0.0005K, expected a whole number from 1 to 1M, or names" look $weights --outputs 0.0005K
expect 0 "page: some.html" look $weights --w blocks.0.mlp.w --p blocks.0.mlp.p --outputs 0.003K --out some.html
holds "says how many outputs there are" grep -qF "Of 16 outputs the 3 with the most eigenvalues beyond chance" some.html
beyond layer.html > all && sort -k 1,1gr -k 2,2gr all | head -n 3 > theirs
beyond some.html > mine
is "the most telling ones are shown, the best first" "$(cat mine)" "$(cat theirs)"

# ---- the null: 21 outputs of 40 units and 32 inputs, all numbers 1, -1 or 0. Units 0 to 7 look for one pattern, for output 0 alone;
# everything else is random, and with a probability of one in twenty at most something of it is beyond the null.
header='{"w":{"dtype":"F32","shape":[2,40,32],"data_offsets":[0,10240]},"p":{"dtype":"F32","shape":[21,40],"data_offsets":[10240,13600]}}'
numbers=$(awk 'function coin() { s = (s * 16807) % 2147483647; return s % 256 < 128 ? 1 : -1 }
    function put(v) { printf "%s", (!v ? "\\000\\000\\000\\000" : v > 0 ? "\\000\\000\\200\\077" : "\\000\\000\\200\\277") }
    BEGIN {
        s = 4711
        for (k = 0; k < 2; k++) for (h = 0; h < 40; h++) for (j = 0; j < 32; j++) put(h < 8 ? (j * 7 % 5 < 2 ? 1 : -1) : coin())
        for (o = 0; o < 21; o++) for (h = 0; h < 40; h++) put(h < 8 ? !o : coin())
    }')
{ printf '\310\0\0\0\0\0\0\0%-200s' "$header"; printf "$numbers"; } > planted.safetensors
expect 0 "page: planted.html" look planted.safetensors --w w --p p --out planted.html
beyond planted.html > all
is "what is planted is beyond the null, and nothing else of this output" "$(sed -n '1s/ .*//p' all)" 1
holds "of 20 random outputs at most 3 have a value beyond the null" awk 'NR > 1 { n += $1 > 0 } END { exit !(NR == 21 && n <= 3) }' all
holds "eigenvectors are compared" [ "$(section planted.html eigen | values null_edge | wc -l)" = 21 ]
expect 0 "page: itself.html" look planted.safetensors --w w --p p --against planted.safetensors --out itself.html
near "a network has the cosine 1 with itself" "$(section itself.html compare | values cosine)" 1 1e-12
holds "and less with shuffled weights" awk -v c="$(section itself.html compare | values unrelated)" 'BEGIN { exit !(c > 0 && c < 0.5) }'
is "both are in the card" "$(section itself.html card | texts name | wc -l)" 2
expect 0 "page: planted.html" look planted.safetensors --w w --p p --outputs 1 --within-null --out planted.html
is "the output with something to show is chosen, by its name" "$(section planted.html spectra | texts name)" 0
holds "within the null on request" grep -qF '"within_null":true' planted.html
# Of 300 outputs that are all random those are chosen that look most like something, and still none has anything to show.
header='{"w":{"dtype":"F32","shape":[2,48,36],"data_offsets":[0,13824]},"p":{"dtype":"F32","shape":[300,48],"data_offsets":[13824,71424]}}'
{ printf '\310\0\0\0\0\0\0\0%-200s' "$header"
  LC_ALL=C awk 'BEGIN { s = 4711; for (i = 0; i < 17856; i++) { s = s * 16807 % 2147483647; printf "%s", (s % 256 < 128 ? "AA\200?" : "AA\200\277") } }'; } > noise.safetensors
expect 0 "page: noise.html" look noise.safetensors --w w --p p --out noise.html
is "of random outputs none has a value beyond the null" "$(beyond noise.html | awk '{ n += $1 } END { print NR, n + 0 }')" "32 0"
expect 2 "--v is given, expected --w NAME as well" look $weights --v blocks.0.mlp.w
expect 1 "has no tensor blocks.0.mlp.x; did you mean blocks.0.mlp." look $weights --w blocks.0.mlp.x
expect 1 "which does not fit" look $weights --w blocks.0.mlp.w --p blocks.0.attn.o
# Pictures and labels that no share of right answers can be of. array FILE TYPE SHAPE: a .npy file; its numbers are read.
array() {
    { printf '\223NUMPY\001\000\166\000' && printf "%-117s\n" "{'descr': '$2', 'fortran_order': False, 'shape': ($3), }" &&
      cat; } > "$1"
}
four() { for i in 1 2 3 4; do printf "$1"; done; }
sixteen() { four "$1"; four "$1"; four "$1"; four "$1"; }
{ sixteen '\000\000\000\077'; sixteen '\000\000\000\100'; } | array two.npy '<f4' 2,16           # 0.5, 2
{ sixteen '\000\000\000\077'; sixteen '\000\000\300\177'; } | array nan.npy '<f4' 2,16
printf '\003\017' | array right.npy '|u1' 2,
printf '\003\021' | array beyond.npy '|u1' 2,
printf '\003\377' | array below.npy '|i1' 2,
layer="$weights --w blocks.0.mlp.w --p blocks.0.mlp.p --out spoke.html"
expect 1 "nan.npy has nan in picture 1, expected finite numbers" look $layer --data nan.npy
expect 1 "beyond.npy has 17 for picture 1, expected 0 to 15, the number of an output" \
    look $layer --data two.npy --labels beyond.npy
expect 1 "below.npy has -1 for picture 1, expected 0 to 15, the number of an output" \
    look $layer --data two.npy --labels below.npy
expect 0 "page: spoke.html" look $layer --data two.npy --labels right.npy
# Numbers that are no bytes stay as they are: the first picture has the output that it has beside a smaller one.
at=$(section spoke.html spoke | sed -n 's/.*"logits":{"at":\([0-9]*\),*$/\1/p')
two=$(f64 spoke.html "$at")
{ sixteen '\000\000\000\077'; sixteen '\000\000\000\077'; } | array half.npy '<f4' 2,16
expect 0 "page: spoke.html" look $layer --data half.npy
near "an output of numbers that are no bytes" "$(f64 spoke.html "$at")" "$two" 1e-12

# Of two layers, one after the other, the page cannot say how often they are right, and tells so with or without labels.
{ printf '\240\0\0\0\0\0\0\0%-160s' '{"a.w":{"dtype":"F32","shape":[2,4,16],"data_offsets":[0,512]},"b.w":{"dtype":"F32","shape":[2,4,4],"data_offsets":[512,640]}}'
  head -c 640 /dev/zero | tr '\0' 'A'; } > deep.safetensors
expect 0 "page: deep.html" look deep.safetensors --data two.npy --labels right.npy --out deep.html
right() { section "$1" learnt | tr -d '\n' | grep -o '"right":\[[^]]*\],"layers":\[[^]]*\]'; }
is "two layers, and no share of right answers" "$(right deep.html)" '"right":[null],"layers":[2]'
expect 0 "page: deep.html" look deep.safetensors --against deep.safetensors --data two.npy --labels right.npy --out deep.html
is "of both" "$(right deep.html)" '"right":[null,null],"layers":[2,2]'

# 100,000 outputs, all alike: a header of 160 bytes, then numbers of four letters A, which is about 12.
big='{"w":{"dtype":"F32","shape":[2,3,4],"data_offsets":[0,96]},"p":{"dtype":"F32","shape":[100000,3],"data_offsets":[96,1200096]}}'
{ printf '\240\0\0\0\0\0\0\0%-160s' "$big"; head -c 1200096 /dev/zero | tr '\0' 'A'; } > big.safetensors
expect 0 "page: big.html" look big.safetensors --w w --p p --out big.html
holds "chooses outputs and says so" grep -qF "Of 100,000 outputs the 32 with the most eigenvalues beyond chance" big.html
holds "the page stays small" [ "$(wc -c < big.html)" -lt 1100000 ]

# ---- arrays, and tensors that are no layer ----------------------------------------------------------

expect 0 "page: ok_f8_v2.html" look "$npy/ok_f8_v2.npy"
"$tn" decompose run --name blocks.0.mlp.p --svd --out svd.safetensors > svd
expect 0 "page: svd.html" look svd.safetensors
holds "is shown as it is" grep -qF "names in this file are not those of a layer" svd.html
expect 0 "page: nan.html" look "$npy/ok_nan_inf.npy" --out nan.html
holds "names what is not finite" grep -qF "numbers that are NaN or infinite" nan.html
holds "JSON has no NaN" lacks ":nan" nan.html
holds "and warns of it" grep -q "^tn look: ok_nan_inf has .* its singular values are left out$" said
holds "and says so on its first screen" grep -qF 'of which 3 are missing (NaN or infinite); the others are from ' nan.html
# 40 x 60 random signs: the effective rank is that of noise; four copies of a row have one of 1. An array of order 3 has unfoldings.
LC_ALL=C awk 'BEGIN { s = 4711; for (i = 0; i < 2400; i++) { s = s * 16807 % 2147483647; printf "%s", (s % 256 < 128 ? "\001" : "\377") } }' > signs
array signs.npy '|i1' 40,60 < signs
expect 0 "page: signs.html" look signs.npy
ranks() { section "$1" tensors | sed -n 's/^"effective_rank":\[\([-+.e0-9]*\).*/\1/p'; }
near "random signs are like noise" "$(awk -v a="$(ranks signs.html)" -v b="$(section signs.html tensors | values noise_rank)" 'BEGIN { print a / b }')" 1 0.02
near "noise of 40 x 60" "$(section signs.html tensors | values noise_rank)" 32.96 0.05
holds "which the first screen says" grep -q '"about":"An array \[40,60\] with 2,400 numbers from -1 to 1. Its effective rank is 3[0-9.]* of 40, that of noise' signs.html
array order.npy '|i1' 4,10,60 < signs
expect 0 "page: order.html" look order.npy
is "each unfolding" "$(section order.html tensors | texts shape | tr '\n' ' ')" "[4,10,60] [4,600] [10,240] [60,40] "
near "the last unfolding is the same matrix" "$(ranks order.html | tail -n 1)" "$(ranks signs.html)" 1e-9
is "means along each axis" "$(section order.html tensors | sed -n '/"profile"/,$p' | grep -c '"type":"f32"')" 3
# A file of one tensor has the page of the array. Of an axis of extent 1 nothing is said, and of two no sentence is left.
floats() { LC_ALL=C awk -v plus="$1" -v seed="$2" 'BEGIN { s = seed; for (i = 0; i < 2400; i++) { s = s * 16807 % 2147483647
    printf "%s", (s % 256 < plus ? "AA\200?" : "AA\200\277") } }'; }
tensors() { printf '\310\0\0\0\0\0\0\0%-200s' "$1"; cat; }
floats 128 4711 | tensors '{"w":{"dtype":"F32","shape":[1,40,60],"data_offsets":[0,9600]}}' > single.safetensors
expect 0 "page: single.html" look single.safetensors
holds "one tensor is an array" grep -qE '"about":"An array \[1,40,60\] with 2,400 numbers \(F32\) from -1 to 1\. The effective rank of its unfolding along axis 1 is 3[0-9.]+ of 40, axis 2 is 3[0-9.]+ of 40\."' single.html
is "with unfoldings and means" "$(section single.html tensors | grep -cF '"name":"along axis') $(section single.html tensors | sed -n '/"profile"/,$p' | grep -c '"type":"f32"')" "2 3"
array flat.npy '|i1' 1,1,2400 < signs
expect 0 "page: flat.html" look flat.npy
holds "no sentence without an end" grep -qF '"about":"An array [1,1,2400] with 2,400 numbers from -1 to 1."' flat.html
head -c 10000 /dev/zero | array long.npy '|i1' 5000,2
expect 0 "page: long.html" look long.npy
holds "a long axis has a note" grep -qF 'The means along axis 0 are left out, because it has more than 4096 places.' long.html
is "and no means" "$(section long.html tensors | sed -n '/"profile"/,$p' | grep -c '"type":"f32"')" 1
# Random signs twice, the first slice of an array; and 65 % of them positive, an outlier that the effective rank hardly shows.
{ floats 128 4711; floats 128 33; floats 166 4711; floats 128 7 | head -c 256; } | tensors '{"a":{"dtype":"F32","shape":[2,40,60],"data_offsets":[0,19200]},"b":{"dtype":"F32","shape":[40,60],"data_offsets":[19200,28800]},"c":{"dtype":"F32","shape":[8,8],"data_offsets":[28800,29056]}}' > outlier.safetensors
expect 0 "page: outlier.html" look outlier.safetensors
holds "an outlier is not random, and a small matrix is not judged" grep -q '(F32). 1 of 2 matrices and first slices with 32 or more rows and columns has the effective rank of random numbers (within' outlier.html
section outlier.html tensors | sed -n 's/^"effective_rank":\[\([-+.e0-9]*\).*/\1/p' > mine
near "although its effective rank is" "$(sed -n 2p mine)" 32.96 1.6
expect 1 "no such run or file" look missing
echo text > plain
expect 1 "plain" look plain
expect 1 "bad_truncated_header.npy" look "$npy/bad_truncated_header.npy"
expect 2 "no model is given, expected tn look RUN|FILE" look
expect 2 "--vectors is 0, expected" look run --vectors 0
# Options of other pages
for option in "--data x" "--names a,b" "--pixels 3x3" "--residual yes" "--data x --labels x" "--data x --examples 3"; do
    expect 2 " is given, expected none with a language model: it is for a network of bilinear layers" look run $option
done
for option in "--data x" "--text x" "--token x" "--tokenizer x" "--vectors 3" "--outputs 3" "--against x" "--w x" "--pixels 3x3"; do
    expect 2 "tn look: ${option% *} is given, expected none with a .npy file: it is for a" look "$npy/ok_f4_v1.npy" $option
done
expect 2 "--text is given, expected none with a network of bilinear layers: it is for a language model" look $weights \
    --w blocks.0.mlp.w --p blocks.0.mlp.p --text x
expect 2 "--vectors is given, expected none with a file of other tensors: it is for a language model, a network of bilinear layers" \
    look big.safetensors --vectors 3
for option in "--p x" "--embed x" "--head x"; do expect 2 "${option% *} is given, expected --w NAME as well" look run $option; done
for option in "--labels x" "--examples 3"; do expect 2 "${option% *} is given, expected --data as well" look run $option; done
expect 2 "--pixels is \"3\", expected WIDTHxHEIGHT" look $weights --w blocks.0.mlp.w --pixels 3
mkdir locked
expect 1 "cannot write nowhere/x.html" look run --out nowhere/x.html
is "nothing is left" "$(ls | grep -c 'tmp$')" 0
if [ "$(id -u)" != 0 ]; then
    chmod a-w locked
    expect 1 "cannot write locked/x.html" look run --out locked/x.html
    is "nothing half-written" "$(ls locked)" ""
    chmod u+w locked
fi

# ---- several runs in one picture --------------------------------------------------------------------------

expect 0 "page: runs.html" look run gelu/
is "runs by their names" "$(section runs.html runs | texts name | tr '\n' ' ')" "run gelu "
holds "a page of runs has no message and no path" plain runs.html
is "what they differ in" "$(section runs.html runs | grep -c -e '"mlp"' -e '"steps",' -e '"width"')" 4
near "the lowest held-out loss" "$(section runs.html runs | values best | head -n 1)" \
    "$(sed -n 's/.*"held":\([-+.e0-9]*\).*"all":false.*/\1/p' run/log.jsonl | sort -g | head -n 1)" 1e-12
mkdir -p several/a alone && cp -r run alone/one && cp run/log.jsonl several/a && cp -r run several/b
grep -v '^window = ' run/config.txt > several/a/config.txt
expect 0 "page: several.html" look several
is "a setting that the first run lacks is compared" "$(section several.html runs | grep -c '"window"')" 2
expect 0 "page: alone.html" look alone
holds "one run is not several" grep -qF '"title":"1 run"' alone.html
rm -r several && mkdir several && cp -r run several/b && cp -r gelu several/a
expect 0 "page: several.html" look several
is "a folder of runs" "$(section several.html runs | texts name | tr '\n' ' ')" "a b "
printf '{"step":1,"loss":nan}\n{"step":1e300,"loss":2}\n{"step":3,"loss":"</script>"}\nno JSON\n{"held":' > several/a/log.jsonl
expect 0 "page: several.html" look several
expect 1 "run/model.safetensors has no log.jsonl, expected a run of tn train" look run run/model.safetensors
expect 1 "missing: no such run or file" look run missing
expect 2 "the run run/ is given twice" look run run/
expect 2 "--text is given, expected none with several runs: it is for a language model" look run gelu --text x
expect 2 "--against is given, expected none with several runs" look run gelu --against run
: > several/a/log.jsonl
expect 1 "several/a has no step in its log.jsonl, expected at least one" look several

# ---- pages that teach: what they compute is in tests/live.sh ---------------------------------------------

expect 2 "the lesson is \"xnor\", expected xor or digits" demo xnor
expect 2 "unexpected argument" demo xor digits
if "$tn" demo > said 2>&1; then
    is "the pages of tn demo" "$(ls demo | tr '\n' ' ')" "digits.html index.html xor.html "
    is "one program ends in each" "$(cat demo/*.html | grep -c 'id="tn-wasm">')" 3
    holds "they lead to each other" grep -qF '"href":"xor.html"' demo/digits.html
    expect 0 "page: one.html" demo digits --out one.html
    holds "one page leads nowhere" lacks '"href"' one.html
    expect 1 "cannot write nowhere/x.html" demo xor --out nowhere/x.html
    expect 1 "cannot create the folder plain" demo --out plain
else holds "it says what is missing" grep -qF "without a compiler for WebAssembly" said; fi

# ---- a folder of several files; what takes a while is said on a terminal alone -----------------------

cp -r "$hf/gpt2" other && sed 's/"gpt2"/"mamba"/' "$hf/gpt2/config.json" > other/config.json
expect 0 "page: sharded.html" look other --out sharded.html
is "tensors of all files" "$(section sharded.html tensors | grep -o '"shape":"' | wc -l)" \
    "$(grep -o '": *"model-0' "$hf/gpt2/model.safetensors.index.json" | wc -l)"
holds "why this is no language model" grep -qF 'This folder is shown as tensors because other/config.json: ' sharded.html
holds "and which type it has" grep -qF 'model_type is \"mamba\"' sharded.html
lacks "$(printf '\033')" said && pass || fail "it moves the cursor of what is no terminal"
if [ "$(script -qec "echo yes" /dev/null < /dev/null 2> /dev/null | tr -d '\r\n')" = yes ]; then
    script -qec "'$tn' look run --no-data --out page.html" /dev/null < /dev/null | tr '\r' '\n' > stages
    holds "what it is doing" [ "$(grep -c '^\(Reading run\|Heads\|Spectra of block 1\|Paths of a text\) \.\.\.' stages)" -ge 4 ]
    holds "which ends" grep -q "^$(printf '\033')\[Kpage: page.html" stages
else
    sh "$missing" script "for a terminal"
    if [ $? = 77 ]; then skipped=$((skipped + 1)); else failed=$((failed + 1)); fi
fi

# ---- a published model -------------------------------------------------------------------------------

if [ -f "$model/bilinear_mnist_noise0.15.safetensors" ]; then
    expect 0 "page: digits.html" look "$model/bilinear_mnist_noise0.15.safetensors" --vectors 4 --out digits.html \
        --data "$model/first3_test_images.npy"
    at=$(section digits.html spoke | sed -n 's/.*"logits":{"at":\([0-9]*\),*$/\1/p')
    near "the first logit" "$(f64 digits.html "$at")" -3.877668 1e-4
    near "the eighth logit" "$(f64 digits.html $((at + 56)))" 18.188983 1e-4
    near "a logit of the third image" "$(f64 digits.html $((at + 168)))" 9.07934 1e-4
    sed -n '/"logits_first3_images"/,/"mean_cross_entropy"/s/^ *\(-\{0,1\}[0-9][-+.e0-9]*\),\{0,1\}$/\1/p' \
        "$model/reference_float64.json" > theirs
    is "numbers of the reference" "$(wc -l < theirs)" 30
    f64 digits.html "$at" 30 > mine
    alike "all logits of the three images" mine theirs 1e-4
else
    sh "$missing" digits "(bilinear-mnist-model in TN_TEST_DATA)"
    if [ $? = 77 ]; then skipped=$((skipped + 1)); else failed=$((failed + 1)); fi
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
