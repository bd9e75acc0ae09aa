#!/bin/sh
# sh tests/hostile.sh TN: whatever is in a file, the command prints nothing that a terminal obeys, and nothing that shows other
# text than what is there. Every subcommand of `tn help` gets every hostile file, so that a new one is tested by itself; some
# get more. What is in files says hOsT, what is in their names and in arguments aRgV. A subcommand has to have printed what is in
# files, or its output would show nothing; seven print none of that, and have to have printed an argument. The last line is
# `N passed, N failed, N skipped`.
set -u
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
tests=$PWD/tests
. "${0%/*}/expect.sh"

# ---- hostile files, in a folder with a hostile name: ESC, BEL, C1 as UTF-8 and alone, CR, newline, bidi, DEL ------------------

folder=$(printf 'aRgV\033[31m\007\302\233\233\r\nq\342\200\256\177')
text=$(printf 'hOsT\033[31m\007\302\2331m\233\rq\342\200\256\342\201\246\330\234\342\200\250\177')
argument=aRgV${text#hOsT}
json='hOsT\u001b[31m\u0007\u009b\r\n\t\u202e\u2066\u061c\u200f\u2028\u007fq'
mkdir "$folder" "$folder/run" "$folder/hf"
put() { cat > "$folder/$1"; }
# little COUNT VALUE: a number of so many bytes, the lowest first
little() {
    i=0 v=$2
    while [ $i -lt "$1" ]; do printf "\\$(printf %03o $((v % 256)))"; v=$((v / 256)) i=$((i + 1)); done
}
# tensors HEADER BYTES: a safetensors file
tensors() { little 8 ${#1}; printf '%s' "$1"; head -c "$2" /dev/zero; }
matrix='"dtype":"F32","shape":[2,2],"data_offsets"'
notes="\"tn.step\":\"$json\",\"tn.machine\":\"$json\",\"tn.config\":\"$json\",\"tn.data\":\"$json\",\"tn.format\":\"$json\""
tensors "{\"__metadata__\":{$notes},\"$json\":{$matrix:[0,16]}}" 16 | put one.safetensors
tensors "{\"__metadata__\":{\"$json\":\"$json\"},\"$json.w\":{$matrix:[0,16]},\"b$json\":{$matrix:[16,32]}}" 32 | put two.safetensors
tensors "{\"$json\":{\"dtype\":\"$json\",\"shape\":[2],\"data_offsets\":[0,8]}}" 8 | put dtype.safetensors
tensors "{\"$text\":{$matrix:[0,16]}}" 16 | put raw.safetensors
printf '{"weight_map":{"%s":"%s","a":"../%s"}}' "$json" "$json.safetensors" "$json" | put model.safetensors.index.json
printf '{"model_type":"%s","%s":"%s"}' "$json" "$json" "$json" | put config.json
printf '{"model_type":"gpt2","%s":"%s","activation_function":"%s"}' "$json" "$json" "$json" | put hf/config.json
cp "$folder/one.safetensors" "$folder/hf/model.safetensors"
printf '{"model":{"type":"%s","vocab":{"%s":0}}}' "$json" "$json" | put tokenizer.json
printf '{"model_type":"%s' "$text" | put broken.json
printf '# tn config 2\nlayers = %s\n' "$text" | put value.txt
printf '# tn config 2\n%s = 1\n' "$text" | put config.txt
printf '%s, it said.\n\nThe %s again and again, ten times.\n' "$text" "$text" | put story
# array DICT: the head of a .npy file
array() { printf '\223NUMPY\001\000'; little 2 "$(printf '%s' "$1" | wc -c)"; printf '%s' "$1"; }
array "{'descr': '$(printf 'hOsT\342\200\256\302\2331m\177')', 'fortran_order': False, 'shape': (2,), }" | put descr.npy
array "$text" | put dict.npy
printf '\000\000\010\001\000\000\000\011%s' "$text" | put images-idx1-ubyte
printf '{"step":1,"loss":2,"%s":"%s","all":"%s"}\n%s\n' "$json" "$json" "$json" "$text" | put run/log.jsonl
cp "$folder/config.txt" "$folder/config.json" "$folder/tokenizer.json" "$folder/run/"
cp "$folder/one.safetensors" "$folder/run/step-00000001.safetensors"

# ---- a model whose tokens are hostile, trained on a hostile text -----------------------------------------------------------

awk -v t="$text" 'BEGIN { for (i = 0; i < 60; i++) print "a hOsT of " t " and b" i % 7 " the\033[0m\r end of it \302\205 c" i % 5 }' > words
small="--width 16 --heads 2 --context 16 --batch 2 --steps 2 --sample-every 1 --sample-length 12 --val-tokens 64"
"$tn" train words --out model $small --vocab 50 --weights-every 1 > train.first 2>&1 || fail "no model: $(tail -n 1 train.first)"
"$tn" train words --out bytes $small --attention squared --mlp bilinear > train.second 2>&1 || fail "no model of bytes"

# ---- everything gets everything ---------------------------------------------------------------------------------------------

# say COMMAND ARGUMENT...: what it prints goes to `said.COMMAND`
say() {
    to=said.$(echo "$1" | tr ' ' .)
    shift
    ( ulimit -t 20; "$tn" "$@" ) >> "$to" 2>&1 < /dev/null
    runs=$((runs + 1))
}
runs=0
"$tn" help | sed -n 's/^  \([a-z][a-z ]*[a-z]\)  .*/\1/p' | grep -v '^help' > commands
[ "$(wc -l < commands)" -gt 15 ] || fail "the list of the subcommands: $(tr '\n' ' ' < commands)"
cat train.first train.second > said.train
while read -r command; do
    for file in "$folder"/*; do say "$command" $command "$file"; done
    say "$command" $command "--$argument"
done < commands

# ---- what the subcommands read besides --------------------------------------------------------------------------------------

for file in config.txt value.txt; do say train train words --config "$folder/$file" --out x; done
say train train "$folder/story" --out "$folder/new" $small --steps 1 --vocab auto
say train train words --out y $small --tokenizer "$folder/tokenizer.json"
say train train --resume "$folder/run"
say train train --from "$folder/run" --out z
ln -s "$folder/hf" hf
for run in model bytes; do
    say generate generate $run --prompt "$argument" --new 20 --temperature 3
    say generate generate $run --prompt "$argument" --new 4 --logprobs --temperature 3 --no-stop
    say eval eval $run "$folder/story"
    for what in heads "pairs $argument" "bigrams the" "bigrams c1" "paths words" "attribute words" ablate "diff hf" \
        "diff bytes" history polynomial "degrees --hold" "anomaly model" "anomaly bytes"; do
        say circuits circuits $run $what --tokens 40
        say circuits circuits $run $what --json
    done
    say circuits circuits $run attribute "$argument"
    say circuits circuits $run paths "$argument"
    say look look $run --out page.html
    say export export $run --hf "exported-$run"
    say info info $run
done
say generate generate model --prompt-ids "$argument"
say generate generate model --tokenizer "$folder/tokenizer.json"
say info info "$folder/run" --csv
say cache cache model "$argument" --points "$argument" --out points
say cache cache model "$argument" --points embed --out "$folder/points"
for file in one two dtype raw; do
    say decompose decompose "$folder/$file.safetensors" --svd
    say draw draw "$folder/$file.safetensors"
    say draw draw "$folder/$file.safetensors" "$argument"
    say look look "$folder/$file.safetensors" --out page.html
    say einsum einsum "ij->ji" "$folder/$file.safetensors"
done
for file in descr dict; do say einsum einsum "ij->ji" "$folder/$file.npy"; done
say draw draw model embed.w --tokenizer "$folder/tokenizer.json"
say draw draw model --interaction the --tokens blocks.0.mlp
say look look model/model.safetensors --w blocks.0.mlp.w --p blocks.0.mlp.p --data "$folder/images-idx1-ubyte" --out page.html
"$tn" look model --title "$text<" --out page.html > said 2>&1 && sed -n 's/.*<title>/hOsT /p' page.html > said.title
for from in "$folder/hf" "$folder"; do say import import "$from" --out imported; done
say "tokenizer train" tokenizer train "$folder/story" --vocab 30 --out "$folder/t.json"
say "tokenizer encode" tokenizer encode "$folder/story" --tokenizer "$folder/tokenizer.json"
say "tokenizer encode" tokenizer encode "$folder/story" --tokenizer model/tokenizer.json
say "tokenizer decode" tokenizer decode "$folder/story" --tokenizer model/tokenizer.json
say "tokenizer compare" tokenizer compare "$folder/story"
say clean clean "$folder/story" --out "$folder/clean"
say cache cache "$folder/run" a --points embed --out points
say export export "$folder/run" --hf exported
for from in "$folder/hf" "$folder/run"; do say prove prove same "$from" "$folder/none"; done
say merge merge "$folder/run" "$folder/run" --out merged
say audit audit "$folder/run"
say audit audit run
say compress compress "$folder/run" --bound 0 --no-data
say synthetic synthetic --out "$folder/shard" --tokens 100

# ---- what was printed -------------------------------------------------------------------------------------------------------

# Lines with a control character (but not newline and tab), a direction, a width of zero, or what is not UTF-8.
bad() {
    LC_ALL=C sed -e "s/$(printf '\342\200[\250-\256\213-\217]\|\342\201[\240-\257]\|\330\234\|\357\273\277\|\302[\200-\237]')/$(printf '\033')/g" \
        -e "s/$(printf '[\302-\337][\200-\277]\|[\340-\357][\200-\277][\200-\277]\|[\360-\364][\200-\277][\200-\277][\200-\277]')//g" "$1" |
        LC_ALL=C grep -c "$(printf '[\001-\010\013-\037\177-\377]')"
}
for planted in '\033' '\007' '\302\233' '\233' '\r' '\342\200\256' '\342\201\246' '\330\234' '\342\200\250' '\177'; do
    printf "a ${planted}b \303\266 \360\237\231\202\n" > planted
    is=$(bad planted)
    if [ "$is" = 1 ]; then pass; else fail "this test does not see $planted"; fi
done
printf 'a\tb \303\266 \342\200\246 \360\237\231\202\n' > planted
if [ "$(bad planted)" = 0 ]; then pass; else fail "this test sees what is not there"; fi
while read -r command; do
    to=said.$(echo "$command" | tr ' ' .)
    if [ "$(bad "$to")" = 0 ]; then pass; else fail "tn $command prints $(bad "$to") lines that a terminal obeys"; fi
    case $command in
    clean | completions | demo | man | synthetic | "tokenizer train" | "tokenizer compare") mark=aRgV ;;
    *) mark=hOsT ;;
    esac
    if grep -aq "$mark" "$to"; then pass; else fail "tn $command printed nothing of the hostile files, so nothing was tested"; fi
    grep -aq 'Sanitizer\|Segmentation' "$to" && fail "tn $command: $(grep -a -m 1 'Sanitizer\|Segmentation' "$to")"
done < commands
# A text that is decoded is bytes for another program, and printable on a terminal.
ids=" 104 27 91 109 155 226 128 174 13 10 9 111"
echo "$ids" > ids
"$tn" tokenizer decode ids > said
is=$(od -An -tu1 said | tr -s ' \n' ' ')
if [ "$is" = "$ids 10 " ]; then pass; else fail "decoded bytes:$is"; fi
if script --version 2> /dev/null | grep -q util-linux; then
    script -qec "'$tn' tokenizer decode ids" /dev/null < /dev/null | tr -d '\r' > said
    if [ "$(cat said)" = "$(printf 'h?[m???\n\to')" ]; then pass; else fail "decoded on a terminal: $(cat -v said)"; fi
else
    sh "$tests/missing.sh" script "for a terminal"
    if [ $? = 77 ]; then skipped=$((skipped + 1)); else failed=$((failed + 1)); fi
fi
if [ -s said.title ] && [ "$(bad said.title)" = 0 ]; then pass; else fail "the title of a page: $(cat -v said.title)"; fi
# The names of files that were made from names in files
if ls | grep -v "^aRgV\|^q" | LC_ALL=C grep -q "$(printf '[\001-\037\177-\377]')"; then fail "a file whose name is hostile: $(ls | cat -v | tr '\n' ' ')"; else pass; fi
echo "runs: $runs"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
