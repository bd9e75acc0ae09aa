#!/bin/sh
# sh tests/look.sh FIXTURE TN [planted [only]]: the page of `tn look` in a browser without a screen. FIXTURE makes pages whose
# values are known, TN one of a model whose numbers `tn circuits` prints; the scripts of tests/look run in them, read what a reader reads and
# press what a reader presses. Each page is seen in both themes and 360 pixels wide; then without WebAssembly, and on paper. With
# `planted`, faults are planted in the page first, which these checks have to find; with `only`, nothing else is done. The
# last line is `N passed, N failed, N skipped`.
set -u
export LC_ALL=C
fixture=$1 tn=$2 faults=${3:-} only=${4:-} passed=0 failed=0
for browser in chromium chromium-browser google-chrome chrome none; do
    if command -v $browser > /dev/null; then break; fi
done
folder=$(mktemp -d "${TN_TEST_TMP:-/tmp}/look.XXXXXX") || exit 1
folder=$(cd "$folder" && pwd)
trap 'rm -rf "$folder"' EXIT
headless() {   # ARGUMENT...: what the browser prints; what it logs is in `log`
    timeout 60 "$browser" --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$folder/profile" \
        --enable-logging=stderr --virtual-time-budget=20000 "$@" 2> "$folder/log"
}
echo '<p id="here"></p><script>document.getElementById("here").textContent = 6 * 7</script>' > "$folder/probe.html"
headless --dump-dom "file://$folder/probe.html" | grep -q '>42<' || exec sh tests/missing.sh chromium "for the page of tn look"

pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "FAIL $*"; }
sh tools/tn/look/embed.sh "$folder/template.html"

page() {   # KIND: the page, and the page with its checks
    "$fixture" "$1" "$folder/template.html" "$folder/$1.html" "$folder/$1.json" || exit 1
    with_checks "$1" "$folder/$1.html" > "$folder/$1-checked.html"
}
with_checks() {   # KIND PAGE
    cat "$2"
    echo '<script>'
    printf 'const expected = '; cat "$folder/$1.json"
    case $1 in deep) kind_of=run ;; *) kind_of=$1 ;; esac
    cat tests/look/check.js "tests/look/$kind_of.js"
    echo '</script>'
}
# A window is never narrower than 500 pixels, a frame may be. It tells the page around it what its checks said.
framed() {   # PAGE WIDTH
    cat <<END
<!DOCTYPE html><iframe src="file://$1" style="width: $2px; height: 1500px; border: 0"></iframe>
<script>addEventListener("message", event => document.body.append(Object.assign(document.createElement("pre"), {
    id: "tn-checks", textContent: event.data })));</script>
END
}
checks_of() {   # what a dump says, a line for each check
    sed -n '/<pre id="tn-checks">/,/end of the checks/p' | sed 's/.*<pre id="tn-checks">//'
}
finish() {
    echo "$passed passed, $failed failed, 0 skipped"
    [ "$failed" = 0 ]
    exit
}
check() {   # NAME PAGE ARGUMENT...: all checks of a page pass, and its console has no error
    name=$1 path=$2
    shift 2
    headless "$@" --dump-dom "file://$path" | checks_of > "$folder/said"
    if ! grep -q '^end of the checks' "$folder/said"; then
        fail "$name: the checks did not end: $(grep -m 3 CONSOLE "$folder/log")"
        return
    fi
    passed=$((passed + $(grep -c '^ok ' "$folder/said")))
    grep '^FAIL ' "$folder/said" > "$folder/why" && while read -r line; do fail "$name: ${line#FAIL }"; done < "$folder/why"
    errors=$(grep -E 'CONSOLE.*(rror|Uncaught|Refused|Failed)' "$folder/log" | grep -v 'Error: its type is hologram')
    case $name/$errors in
    broken/* | */) pass ;;
    *) fail "$name: the console says $errors" ;;
    esac
}

for kind in images language broken; do page $kind; done

# planted KIND WIDTH NAME FROM TO: with a fault in the page its checks fail. FROM is in the page.
planted() {
    sed "s/$4/$5/" "$folder/$1.html" > "$folder/fault.html"
    if cmp -s "$folder/$1.html" "$folder/fault.html"; then fail "planted $3: nothing in the page is $4"; return; fi
    with_checks "$1" "$folder/fault.html" > "$folder/fault-checked.html"
    framed "$folder/fault-checked.html" "$2" > "$folder/phone.html"
    headless --window-size=1280,1600 --dump-dom "file://$folder/phone.html" | checks_of > "$folder/said"
    if grep -q '^FAIL ' "$folder/said" || ! [ -s "$folder/said" ]; then pass; else fail "planted $3: no check failed"; fi
}
if [ "$faults" = planted ]; then
    planted language 1200 "names as HTML" 'element.append(run)' 'element.innerHTML += run'
    planted language 1200 "a sign in the product" '+ y \* wc\[from + j\]' '- y * wc[from + j]'
    planted language 1200 "the symmetric half of one element" '(wr\[a\]\[r\] \* vc\[b\]\[r\] +' '(wr[a][r] * vc[b][r] -'
    planted language 1200 "hidden characters" 'if (code < 32)' 'if (code < 0)'
    planted images 1200 "a colour of the map" '\.188, 29' '.188, 39'
    planted images 1200 "an eigenvalue that is not squared" 'one.value \* activation \* activation' 'one.value * activation'
    planted images 1200 "a theme that changes nothing" 'root.data-theme="dark".' 'root[data-theme="none"]'
    planted images 360 "a paragraph wider than a phone" "max-width: 44rem" "min-width: 44rem"
    planted images 1200 "rounded numbers in a file" ': String(x)))' ': tn.format(x)))'
    planted images 1200 "the row of another pixel" '{ first: i, step: 1, count: 1 }' '{ first: 0, step: 1, count: 1 }'
    planted images 1200 "a key without an effect" '"+": () => zoomKey(1.5)' '"+": () => 0'
fi
[ -z "$only" ] || finish

for kind in images language; do
    check $kind "$folder/$kind-checked.html" --window-size=1280,900
    check "$kind, dark" "$folder/$kind-checked.html" --window-size=1280,900 --blink-settings=preferredColorScheme=0
    framed "$folder/$kind-checked.html" 360 > "$folder/phone.html"
    check "$kind, 360 pixels" "$folder/phone.html" --window-size=1280,1600
done
check broken "$folder/broken-checked.html"

# Runs of 2 and of 4 layers on a text whose tokens close scripts, and a network. TN is found from the folder in which it works.
case $tn in /*) ;; *) tn=$PWD/$tn ;; esac
case $fixture in /*) ;; *) fixture=$PWD/$fixture ;; esac
trained() {   # NAME ARGUMENT...: a run, its page, and what `tn circuits` prints of it
    name=$1
    shift
    "$tn" train text --out "$name" --width 16 --heads 2 --context 16 --batch 2 --vocab 60 --val-tokens 64 --val-every 2 "$@" &&
        "$tn" look "$name" --text "$said" --out "$name.html" && "$tn" circuits "$name" heads --json > heads.json &&
        "$tn" circuits "$name" history --json > history.json &&
        "$tn" circuits "$name" paths "$said" --top 40 --json > paths.json &&
        token=$(sed -n 's/^  "token": "\(.*\)",$/\1/p' paths.json | sed 's/\\"/"/g') && rm -rf "$name-without" &&
        cp -r "$name" "$name-without" && without="$name-without/model.safetensors" &&
        "$fixture" zero "$without" blocks.0.attn.o 8 16 && "$fixture" zero "$without" blocks.1.mlp.p 0 0 &&
        "$tn" circuits "$name-without" paths "$said" --top 40 --token "$token" --json > without.json &&
        "$tn" circuits "$name-without" attribute "$said" --token "$token" --json > parts.json &&
        { printf '{"heads":'; cat heads.json; printf ', "history":'; cat history.json; printf ', "paths":'; cat paths.json
          printf ', "without":'; cat without.json; printf ', "parts":'; cat parts.json; echo '}'; } > "$name.json"
}
said='the </script> cat saw "so" the'
(
    cd "$folder" || exit 1
    awk 'BEGIN { split("the cat dog saw ran and a big red </script> \"so\" tree", w, " ")
        for (s = i = 0; i < 400; i++) {
            s = (s * 1103 + 12345) % 65536
            printf "%s%s", w[1 + int(s / 65536 * 12)], (i % 9 == 8 ? ".\n" : " ")
        } }' > text
    trained run --layers 2 --steps 12 --weights-every 6 && trained deep --layers 4 --steps 4 --weights-every 2 &&
        "$tn" look run --no-data --text "$said" --out bare.html && echo 0 > bare.json &&
        "$fixture" network network.safetensors pictures.npy network.json &&
        { printf '\223NUMPY\001\000\166\000%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }" &&
            printf '\000\001\002'; } > labels.npy &&
        "$tn" look network.safetensors --data pictures.npy --labels labels.npy --out network.html &&
        cp network.safetensors other.safetensors && "$fixture" zero other.safetensors unembed.w 1 0 && echo 0 > two.json &&
        "$tn" look network.safetensors --against other.safetensors --out two.html &&
        "$tn" look run --against run/weights-00000006.safetensors --no-data --out compare.html &&
        "$tn" circuits run diff run/weights-00000006.safetensors --no-data --json > compare.json &&
        "$fixture" tensors tensors.safetensors && echo '[]' > tensors.json && "$tn" look tensors.safetensors &&
        "$tn" look deep run/ --out runs.html && { printf '{"deep":['; sed '$!s/$/,/' deep/log.jsonl
            printf '], "run":['; sed '$!s/$/,/' run/log.jsonl; echo ']}'; } > runs.json &&
        "$tn" look run/model.safetensors --w blocks.0.mlp.w --p blocks.0.mlp.p --out layer.html &&
        for output in 0 1 2 3 4; do
            "$tn" draw run blocks.0.mlp --interaction $output --spectrum --out x.svg > drawn || exit 1
            awk -F ': ' -v output="$output" 'BEGIN { printf "%s{", (output == 0 ? "[" : ", ") }
                /^(norm|effective_rank|largest|smallest): / { printf "%s\"%s\": %s", (n++ ? ", " : ""), $1, $2 }
                END { printf "}" }' drawn
        done > layer.json && echo ']' >> layer.json
) > "$folder/said" 2>&1 || fail "tn look: $(tail -n 2 "$folder/said")"
for kind in run deep compare layer network two tensors runs; do
    # The time of this browser runs ahead of workers, so that the page's own program answers.
    with_checks $kind "$folder/$kind.html" | sed "s/<head>/<head><script>delete globalThis.Worker<\/script>/" > "$folder/$kind-checked.html"
    check $kind "$folder/$kind-checked.html" --window-size=1280,900
    framed "$folder/$kind-checked.html" 360 > "$folder/phone.html"
    check "$kind, 360 pixels" "$folder/phone.html" --window-size=1280,1600
done
with_checks bare "$folder/bare.html" > "$folder/bare-checked.html"
check "without its run" "$folder/bare-checked.html" --window-size=1280,900
sed "s/<head>/<head><script>delete globalThis.WebAssembly<\/script>/" "$folder/images.html" > "$folder/old.html"
if headless --dump-dom "file://$folder/old.html" | grep -q 'There is no live part here: this browser has no WebAssembly'
then pass; else fail "without WebAssembly the page does not say why it has no live part"; fi

# The page needs nothing but itself: the one address in it is a name, that of SVG.
if grep -o '[a-z]*://[^"]*' "$folder/template.html" | grep -v '^http://www.w3.org/2000/svg$' > "$folder/why"
then fail "the page names $(cat "$folder/why")"; else pass; fi
# On paper: the style for it holds everywhere, in a window as wide as a page. Then a page is really printed.
for kind in images run tensors two; do
    { sed 's/@media print {/@media all {/' "$folder/$kind.html"
      echo '<script>'
      cat tests/look/check.js tests/look/printed.js
      echo '</script>'; } > "$folder/printed.html"
    framed "$folder/printed.html" 720 > "$folder/phone.html"
    check "$kind, printed" "$folder/phone.html" --window-size=1280,1600
done
headless --no-pdf-header-footer --print-to-pdf="$folder/page.pdf" "file://$folder/images.html" > /dev/null
if [ "$(head -c 4 "$folder/page.pdf" 2> /dev/null)" = %PDF ]; then pass; else fail "the page is not printed"; fi

finish
