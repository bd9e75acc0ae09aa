#!/bin/sh
# sh tests/live.sh LIVE LESSON TN EIGENVECTORS: the library in pages. The header compiles for wasm32 without a warning, whole and with what
# pages leave out; what a page carries asks for nothing that a browser lacks; its functions answer in Chromium as LIVE
# (tests/look/live.c), which calls them natively; the pages of `tn demo` show there what LESSON (tests/look/lesson.c)
# prints; the live parts of pages answer keys and clicks (tests/look/press.js); and the folder that `make pages` builds, with the
# example EIGENVECTORS, needs nothing but itself. Its last line is `N passed, N failed, N skipped`.
set -u
passed=0 failed=0 skipped=0
pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "FAIL live: $*"; }
finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
    exit
}
# skip NEED FOR
skip() { if sh tests/missing.sh "$@"; then fail "$1"; elif [ $? = 77 ]; then skipped=$((skipped + 1)); else fail "$1"; fi; }
folder=$(mktemp -d "${TN_TEST_TMP:-/tmp}/live.XXXXXX")
trap 'rm -rf "$folder"' EXIT

if ! sh tools/tn/look/wasm.sh --here > /dev/null; then
    skip wasm "(clang, wasm-ld and wasi-libc; sh tools/setup.sh --look installs them)"
    finish
fi
warnings="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror"
echo '#include "tensornet.h"' > "$folder/header.c"
for left_out in "" -DTN_NO_STDIO "-DTN_NO_STDIO -DTN_NO_TRAINING -DTN_NO_IMAGE -DTN_NO_F64"; do
    if "${CLANG:-clang}" --target=wasm32-wasi -std=c99 $warnings -msimd128 -DTN_NO_THREADS -DTENSORNET_IMPLEMENTATION \
        $left_out -I. -fsyntax-only "$folder/header.c"; then pass; else fail "the header for wasm32: $left_out"; fi
done
if sh tools/tn/look/wasm.sh tools/tn/look/live.c "$folder/wasm" $warnings; then pass; else
    fail "live.c does not compile"
    finish
fi
# A module names those that it imports from, each after its length.
if grep -q -e wasi_ -e "$(printf '\003env')" "$folder/wasm"; then fail "live.wasm imports functions"; else pass; fi
echo "live_wasm_bytes: $(wc -c < "$folder/wasm")"

cp tests/data/stories/tokenizer.json "$folder"
if "$1" models "$folder" && "$1" values "$folder" > "$folder/native"; then pass; else fail "$1"; fi
chromium=$(command -v chromium || command -v chromium-browser) || {
    skip chromium "(sh tools/setup.sh --look installs it), so nothing is compared with a browser"
    finish
}
{
    echo '<!DOCTYPE html><meta charset="utf-8"><link rel="icon" href="data:,"><title>live</title>'
    for file in wasm images.safetensors model.safetensors config.json tokenizer.json; do
        echo "<script type=\"text/plain\" id=\"${file%%.*}\">$(base64 < "$folder/$file")</script>"
    done
    echo '<pre id="values"></pre><script>"use strict"; const tn = {};'
    cat tools/tn/look/wasm.js tests/look/live.js
    echo '</script>'
} > "$folder/page.html"
# dom PAGE: the page as it is when its scripts have run
dom() {
    "$chromium" --headless=new --no-sandbox --disable-gpu --user-data-dir="$folder/profile" --virtual-time-budget=60000 \
        --enable-logging=stderr --dump-dom "file://$(cd "$folder" && pwd)/$1" > "$folder/dom" 2> "$folder/said"
}
# answers PAGE: what it computed, in `values`
answers() {
    dom "$1"
    sed -n 's/.*<pre id="values">//; /^images.count/,/^done/p' "$folder/dom" > "$folder/browser"
    grep -v -e '^refused' -e '^tile' -e '^done' "$folder/browser" > "$folder/values"
    [ "$(tail -n 1 "$folder/browser")" = done ]
}
# Equal to 1e-5, relative to numbers above 1.
agree() {
    awk 'NR == FNR { name[FNR] = $1; value[FNR] = $2; count = FNR; next }
        { x = value[FNR]; d = $2 - x; if (d < 0) d = -d; size = x < 0 ? -x : x; if (size > 1) d /= size
          if ($1 == name[FNR] && $2 ~ /^-?[0-9]/ && d <= 1e-5) next
          print "FAIL " name[FNR] " is " x ", in the browser " $1, $2
          bad = 1 }
        END { print "live_values: " FNR; exit bad || FNR != count || FNR < 100 }' "$folder/native" "$folder/values"
}
if answers page.html; then pass; else
    fail "no answer of $chromium: $(sed -n 's/.*<pre id="values">//p' "$folder/dom"; tail -n 3 "$folder/said")"
    finish
fi
if [ "$(grep -c '^refused: .' "$folder/browser")" = 12 ]; then pass; else
    fail "wrong arguments: $(grep refused "$folder/browser")"
fi
if agree; then pass; else fail "values of the browser differ from the native ones"; fi
if grep -qx 'tile 0' "$folder/browser"; then pass; else fail "wrong fused products: $(grep '^tile' "$folder/browser")"; fi
# As in a browser without fused products; then with a fault in the tile that has them, which has to show.
sed 's/0xfd, 0x85, 2/0xfd, 0xaf, 1/' "$folder/page.html" > "$folder/without.html"
if answers without.html && grep -qx 'tile none' "$folder/browser" && agree; then pass; else
    fail "values of a browser without fused products differ from the native ones"
fi
sed 's/fma(sums + 2 \* i + 1, right)/fma(sums + 2 * i + 1, left)/' "$folder/page.html" > "$folder/fault.html"
if answers fault.html && ! grep -qx 'tile 0' "$folder/browser" && ! agree > /dev/null; then pass; else fail "nothing is computed by the tile of fused products"; fi

# live KIND WEIGHTS MORE CHECKS WORKER: the live part of a page, pressed by tests/look/press.js, after the script WORKER. The time
# of this browser runs ahead of workers, so there is none, or one that ends as soon as it is asked for what explains an answer.
none="delete globalThis.Worker"
ending="let told = 0; globalThis.Worker = class {
    postMessage([id]) { setTimeout(() => ++told < 3 ? this.onmessage({ data: [id] }) : this.onerror()); }
    terminate() {} }"
json() { sed 's/\\/\\\\/g; s/"/\\"/g; s/</\\u003c/g' "$1" | tr '\n' ' '; }
live() {
    sh tools/tn/look/embed.sh "$folder/template.html" tests/look/press.js
    printf '{"format": 1, "kind": "%s", "title": "live", "made": "a test", "pixels": {"width": 8, "height": 8}, "sections": [], "live": {
        "kind": "%s", "weights": {"at": 0, "shape": [%d], "type": "u8"}%s}}' "$1" "$1" "$(wc -c < "$folder/$2")" "$3" > "$folder/data"
    base64 < "$folder/$2" | tr -d '\n' > "$folder/blob"
    base64 < "$folder/wasm" | tr -d '\n' > "$folder/wasm64"
    while IFS= read -r line; do
        case $line in
        *'{{data}}'*) echo '<script type="application/json" id="tn-data">'; cat "$folder/data"; echo '</script>' ;;
        *'{{blob}}'*) echo '<script type="text/plain" id="tn-blob">'; cat "$folder/blob"; echo '</script>' ;;
        *'{{wasm}}'*) echo '<script type="text/plain" id="tn-wasm">'; cat "$folder/wasm64"; echo '</script>' ;;
        *) printf '%s\n' "$line" ;;
        esac
    done < "$folder/template.html" > "$folder/live.html"
    echo "<script>$5</script>" > "$folder/head"
    sed "/<head>/r $folder/head" "$folder/live.html" > "$folder/alone.html"
    dom alone.html
    sed -n '/<pre id="pressed">/,/^pressed/p' "$folder/dom" > "$folder/pressed"
    if grep -q "^pressed $4\$" "$folder/pressed" && ! grep '^FAIL' "$folder/pressed"; then pass; else
        fail "the live part of $1: $(grep -e FAIL -e pressed "$folder/pressed"; grep CONSOLE "$folder/said" | head -n 3)"
    fi
}
live images images.safetensors "" 8 "$none"
language() { printf ', "config": "%s", "tokenizer": "%s"' "$(json "$folder/config.json")" "$(json "$folder/$1")"; }
# With a tokenizer that puts no mark before a text, for which a token named [BOS] is enough.
sed -e '/^  "post_processor": {/,/^  }/c\
  "post_processor": null,' -e 's/\[BOS\]/[BAS]/' "$folder/tokenizer.json" > "$folder/bare.json"
# This one has a soft cap as well, which changes its logits little.
capped=$(language bare.json | sed 's/softcap\\": *0/softcap\\": 30/')
case $capped in *'softcap\": 30'*) pass ;; *) fail "the model has no soft cap" ;; esac
live language model.safetensors "$capped" 37 "$ending"
live language model.safetensors "$(language tokenizer.json)" 37 "$none"

# The same page with its worker, in the time of the clock. What it says goes to a file of its own: the first look at it may come
# before the browser has opened it.
"$chromium" --headless=new --no-sandbox --disable-gpu --user-data-dir="$folder/profile" --enable-logging=stderr \
    "file://$(cd "$folder" && pwd)/live.html" > "$folder/dom" 2> "$folder/worked" &
browser=$!
tries=0
until grep -qs 'CONSOLE.*pressed' "$folder/worked" || [ $tries = 600 ]; do sleep 0.1; tries=$((tries + 1)); done
kill $browser
wait $browser 2> /dev/null
if grep -q 'CONSOLE.*"pressed 37"' "$folder/worked"; then pass; else
    fail "the live part with a worker, after $tries tenths of a second: $(grep CONSOLE "$folder/worked" | head -n 3)"
fi

# lesson NAME STEPS COUNT TOLERANCE: the first COUNT numbers that the page shows are those that LESSON prints. Training repeats
# rounding errors, which grow with its steps.
lesson() {
    "$lesson" "$1" "$2" > "$folder/native" || fail "$lesson $1"
    dom "demo/$1.html?steps=$2"
    tr '<' '\n' < "$folder/dom" | sed -n 's/.* data-value="\([^"]*\)".*/\1/p' > "$folder/values"
    if paste "$folder/native" "$folder/values" | head -n "$3" | awk -v tolerance="$4" '
        { d = $1 - $2; if (d < 0) d = -d
          if ($1 ~ /^-?[0-9]/ && $2 ~ /^-?[0-9]/ && d <= tolerance) next
          print "FAIL number " NR " is " $1 ", in the page " $2
          bad = 1 }
        END { exit bad || NR != '"$3"' }'; then pass; else fail "$1.html shows other numbers"; fi
    if grep -q 'CONSOLE' "$folder/said"; then fail "$1.html: $(grep 'CONSOLE' "$folder/said")"; else pass; fi
}
lesson=$2
if "$3" demo --out "$folder/demo" > "$folder/said" 2>&1; then pass; else fail "$(cat "$folder/said")"; finish; fi
lesson xor 40 32 1e-5
lesson digits 30 10 1e-3
dom demo/index.html
if grep -q 'href="digits.html"' "$folder/dom" && ! grep -q 'CONSOLE' "$folder/said"; then pass; else fail "index.html"; fi
# A lesson on a phone: nothing is wider than the window, and what are columns elsewhere is one below the other, each as wide as
# the section. A window is never narrower than 500 pixels, a frame may be. Then its buttons are pressed.
cat > "$folder/narrow" <<'END'
<script>
/* The time of this browser runs ahead of its frames. */
globalThis.requestAnimationFrame = turn => setTimeout(() => turn(performance.now()), 16);
document.addEventListener("tn-lesson", async () => {
    const faults = [], section = document.getElementById("learn"), width = section.clientWidth;
    const check = (what, holds) => { if (!holds) faults.push(what); };
    check("a window of " + innerWidth, innerWidth === 360);
    check("the page is " + document.documentElement.scrollWidth + " wide", document.documentElement.scrollWidth <= innerWidth);
    for (const one of section.querySelectorAll("*"))
        if (!(one instanceof SVGElement) && one.clientWidth && getComputedStyle(one).overflowX === "visible")
            check(`${one.tagName} ${one.className} overflows`, one.scrollWidth <= one.clientWidth + 1);
    const grids = [...section.querySelectorAll(".xor, .pair")];
    check("there are columns", grids.length > 0);
    for (const grid of grids) [...grid.children].forEach((child, i) => {
        const { top, width: own } = child.getBoundingClientRect();
        check(`${grid.className}, child ${i} is beside another`, !i || top >= grid.children[i - 1].getBoundingClientRect().bottom);
        check(`${grid.className}, child ${i} is ${own} wide, of ${width}`, own >= 0.9 * width);
    });
    const one = id => document.getElementById(id), rest = () => new Promise(good => setTimeout(good, 500));
    const step = () => Number(document.querySelector("#status .num").dataset.value), look = () => one("look-at").textContent;
    const numbers = () => [...section.querySelectorAll(".xor .num, .digits .num")].map(number => number.dataset.value).join();
    const runs = () => /pause/.test(one("play").textContent);
    await rest();
    check("it is paused at first", step() === 0 && !runs());
    check("axes are labelled", [...section.querySelectorAll(".plot .title")].every(title => title.textContent));
    const first = numbers(), said = look();
    one("step").click();
    check("a step is one", step() === 1);
    check("a step moves the numbers", numbers() !== first);
    check("there is something else to look at", look() !== said && look().length > 80);
    await rest();
    check("it waits after a step", step() === 1);
    one("play").click();
    await rest();
    check("it runs", runs() && step() > 2);
    one("play").click();
    const at = step();
    await rest();
    check("it pauses", !runs() && step() === at);
    one("speed").value = 0;
    one("speed").dispatchEvent(new Event("input"));
    one("play").click();
    await rest();
    check(`at a step per second it is at ${step()} after ${at}`, step() === at + 1);
    one("reset").click();
    check("it is reset", step() === 0 && !runs() && numbers() === first && look() === said);
    await rest();
    check("it is paused after a reset", step() === 0);
    parent.postMessage(faults.concat("seen").join("; "), "*");
});
</script>
END
for name in xor digits; do
    sed "/<head>/r $folder/narrow" "$folder/demo/$name.html" > "$folder/demo/narrow.html"
    echo '<!DOCTYPE html><iframe src="demo/narrow.html" style="width: 360px; height: 1500px; border: 0"></iframe>
        <script>addEventListener("message", event => document.body.append(Object.assign(document.createElement("pre"), {
            id: "faults", textContent: event.data })));</script>' > "$folder/phone.html"
    dom phone.html
    if grep -q '<pre id="faults">seen</pre>' "$folder/dom"; then pass; else
        fail "$name.html, 360 pixels wide: $(sed -n 's/.*<pre id="faults">//p' "$folder/dom"; grep -m 3 CONSOLE "$folder/said")"
    fi
done
# One lesson alone leads to no page that is not there.
if "$3" demo xor --out "$folder/alone.html" > "$folder/said" && grep -q 'alone.html' "$folder/said" &&
    ! grep -q 'href":"' "$folder/alone.html"; then pass; else fail "tn demo xor: $(cat "$folder/said")"; fi
dom alone.html
if grep -q 'class="play"' "$folder/dom" && ! grep -q 'class="lesson"\|CONSOLE' "$folder/dom" "$folder/said"; then pass; else
    fail "a lesson alone"
fi

# `make pages`: every link leads to a file of the folder, nothing in it names another host or a folder of this machine, and open in
# a browser no page asks for anything but the pictures beside it.
if sh tools/pages/pages.sh "$3" "$4" "$folder/pages" 2 > "$folder/said" 2>&1; then pass; else fail "$(cat "$folder/said")"; fi
( cd "$folder/pages" && grep -oE '(href|src)"?[=:]"[^"]*"|url\([^)]*\)' ./* | sed 's/[^:]*://; s/^[a-z"]*[=:(]*"*//; s/[")]*$//' |
    grep -v -e '^#' -e '^data:' | sort -u > ../links
  while read -r link; do [ -f "$link" ] || echo "$link"; done < ../links > ../why )
if [ "$(wc -l < "$folder/links")" -ge 8 ] && [ ! -s "$folder/why" ]; then pass; else
    fail "links of pages: $(wc -l < "$folder/links"), which lead to nothing: $(cat "$folder/why")"
fi
if grep -oE "[a-z]+://[^\"<>) ]+|$PWD[^\" ]*|$folder[^\" ]*|\"/[a-z]+/[^\" ]*" "$folder"/pages/* | grep -v '://www\.w3\.org/'
then fail "pages name other hosts or places"; else pass; fi
for path in "$folder"/pages/*.html; do
    { cat "$path"; echo '<script>setTimeout(() => parent.postMessage(JSON.stringify(performance.getEntriesByType("resource").map(
        entry => entry.name).filter(name => !name.startsWith(new URL(".", location)))), "*"), 3000)</script>'; } > "$path.asked"
    mv "$path.asked" "$path"
    echo "<iframe src=\"pages/${path##*/}\"></iframe>"
done > "$folder/all.html"
echo '<pre id="asked"></pre><script>onmessage = event => document.getElementById("asked").append(event.data, " ")</script>' \
    >> "$folder/all.html"
dom all.html
asked=$(sed -n 's/.*<pre id="asked">\(.*\)<\/pre>.*/\1/p' "$folder/dom")
if [ "$asked" = "[] [] [] [] [] [] " ] && ! grep 'CONSOLE' "$folder/said"; then pass; else fail "pages asked for $asked"; fi
finish
