/* live.js - the calls of tests/look/live.c in a browser; its numbers become the text of the page. Files come as base64. */
const bytesOf = id => Uint8Array.from(atob(document.getElementById(id).textContent.trim()), c => c.charCodeAt(0));
/* How many numbers the tile of fused products gets wrong, or "none" without one: products of models so small are not added to
   others. Whole numbers, so that nothing is rounded. */
const wrongInTile = () => {
    const memory = new WebAssembly.Memory({ initial: 1 }), x = new Float32Array(memory.buffer), a = 100, b = 1000, c = 12000;
    let tile = null, wrong = 0;
    fused({ memory, wasm_tile: () => null, __indirect_function_table: { grow: () => 1, set: (_, made) => { tile = made; } } });
    if (!tile) return "none";
    for (const [depth, aStep, bStep, from, fromStep, cStep] of [
        [0, 4, 8, 3000, 9, 10], [1, 4, 8, 3000, 0, 8], [7, 4, 8, 3000, 11, 13], [50, 9, 21, 3000, 8, 40], [6, 5, 8, c, 12, 12]]) {
        x.forEach((_, i) => { x[i] = (i * i + 3 * i) % 17 - 8; });
        const expected = x.slice();
        for (let row = 0; row < 4; row++) for (let column = 0; column < 8; column++) {
            let sum = x[from + row * fromStep + column];
            for (let k = 0; k < depth; k++) sum += x[a + k * aStep + row] * x[b + k * bStep + column];
            expected[c + row * cStep + column] = sum;
        }
        tile(4 * a, 4 * b, 4 * from, 4 * c, depth, 4 * aStep, 4 * bStep, 4 * fromStep, 4 * cStep);
        wrong += expected.filter((value, i) => x[i] !== value).length;
    }
    return wrong;
};
const run = async () => {
    const lines = [], call = await tn.engine(bytesOf("wasm"));
    const print = (name, answer, most) => {
        lines.push(`${name}.count ${answer.count}`);
        answer.numbers.slice(0, most).forEach((x, i) => lines.push(`${name}.${i} ${x}`));
    };
    const refused = (...given) => {
        try { call(...given); } catch (error) { return lines.push("refused: " + error.message); }
        throw new Error("a wrong argument was accepted: " + given[0]);
    };
    const hide = (block, token, k) => {
        const { count, numbers } = call("live_vectors", block, token), n = (numbers.length - 1) / count - 7;
        return call("live_hide", block, token, k, numbers.subarray(7 * count + 1 + k * n, 7 * count + 1 + (k + 1) * n));
    };
    const none = new Float32Array(0);
    const picture = Float32Array.from({ length: 64 }, (_, i) => i * 37 % 64 / 64);
    print("images", call("live_images", bytesOf("images")), 10);
    print("see", call("live_see", picture), 10);
    print("spoke", call("live_spoke", 3), 25);
    print("picture", call("live_picture", 3, 1), 10);
    print("ablate", call("live_ablate", 3, 1, 1), 0);
    print("see.ablated", call("live_see", none), 10);
    print("spoke.ablated", call("live_spoke", 3), 10);
    print("pairs", call("live_pairs", 1, Float32Array.of(-2), picture), 0);
    print("spoke.given", call("live_spoke", 1), 10);
    refused("live_see", picture.slice(0, 3));
    refused("live_spoke", 5);
    refused("live_pairs", 1, Float32Array.of(-2), picture);
    refused("live_ablate", 0, -1, 1);
    print("language", call("live_language", bytesOf("model"), bytesOf("config"), bytesOf("tokenizer")), 10);
    print("text", call("live_text", "Once upon a time"), 10);
    print("next", call("live_next"), 10);
    print("losses", call("live_losses"), 8);
    print("at", call("live_at", 1), 0);
    print("next.second", call("live_next"), 10);
    print("at", call("live_at", call("live_losses").count), 0);
    print("parts", call("live_parts", 7), 20);
    print("paths", call("live_paths", 7, 200, 10), 13);
    print("ablate", call("live_ablate", 0, 2, 1), 0);
    print("ablate", call("live_ablate", 1, 4, 1), 0);
    print("next.ablated", call("live_next"), 10);
    print("ablate", call("live_ablate", 0, 2, 0), 0);
    print("ablate", call("live_ablate", 1, 4, 0), 0);
    print("next.restored", call("live_next"), 10);
    print("vectors", call("live_vectors", 1, 7), 112);
    print("patterns", call("live_patterns", 1), 64);
    print("hide", hide(1, 7, 2), 0);
    print("hide", hide(0, 9, 0), 0);
    print("next.hidden", call("live_next"), 10);
    print("parts.hidden", call("live_parts", 7), 20);
    print("paths.hidden", call("live_paths", 7, 200, 10), 13);
    print("vectors.hidden", call("live_vectors", 1, 7), 70);
    print("restore", call("live_restore"), 0);
    print("next.shown", call("live_next"), 10);
    const direction = call("live_direction", 9);
    print("direction", direction, 10);
    print("stream", call("live_stream", 1), 5);
    print("steer", call("live_steer", 1, direction.numbers.map(x => 5 * x)), 0);
    print("parts.steered", call("live_parts", 7), 20);
    print("next.steered", call("live_next"), 10);
    print("losses.steered", call("live_losses"), 8);
    print("paths.steered", call("live_paths", 7, 200, 10), 13);
    print("restore", call("live_restore"), 0);
    refused("live_ablate", 2, 0, 1);
    refused("live_see", none);
    refused("live_vectors", 2, 0);
    refused("live_vectors", 0, -1);
    refused("live_patterns", 2);
    refused("live_hide", 0, 0, 0, Float64Array.of(1, 0, 0));
    refused("live_at", 99);
    refused("live_steer", 0, Float64Array.of(1, 0, 0));
    lines.push("tile " + wrongInTile());
    return lines;
};
const show = lines => { document.getElementById("values").textContent = lines.join("\n") + "\ndone\n"; };
run().then(show, error => show(["failed: " + error.message]));
