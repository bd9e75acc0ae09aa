/* wasm.js - a program of wasm.h in the page. tn.engine(bytes) gives a function: call(name, arguments...) -> { count, numbers,
   words }. Numbers are passed as they are; texts and arrays as their address and length in the program's memory.
   It is compiled at once, which takes some milliseconds; a browser that forbids this for large programs compiles beside. */
const compiled = bytes => {
    try {
        return new WebAssembly.Instance(new WebAssembly.Module(bytes), {});
    } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        return WebAssembly.instantiate(bytes, {}).then(result => result.instance);
    }
};
/* Gives the program a tile of matrix products, 4 rows by 8 columns, in which a product and its sum are one instruction. Not
   every browser has that, and a program with it would not start where it is missing; so this one, of one function, is made
   here: c = from + a b, with arguments as tni_wasm_tile_fn has them. */
const fused = program => {
    const [a, b, from, c, depth, aStep, bStep, fromStep, cStep, left, right, x] = Array(12).keys(), sums = x + 1;
    const get = k => [0x20, k], set = k => [0x21, k], add = (k, step) => [...get(k), ...get(step), 0x6a, ...set(k)];
    const load = (k, at) => [...get(k), 0xfd, 0, 2, at], vector = v => [...get(v), 0xfd, 0xe4, 1];
    const rows = [0, 1, 2, 3], fma = (sum, v) => [...get(x), ...get(v), ...get(sum), 0xfd, 0x85, 2, ...set(sum)];
    const step = i => [...get(a), 0xfd, 9, 2, 4 * i, ...set(x), ...fma(sums + 2 * i, left), ...fma(sums + 2 * i + 1, right)];
    const store = (i, at) => [...get(c), ...load(from, 16 * at), ...vector(sums + 2 * i + at), 0xfd, 0x0b, 2, 16 * at];
    const body = [1, 11, 0x7b, ...get(depth), 0x04, 0x40, 0x03, 0x40,
        ...load(b, 0), ...set(left), ...load(b, 16), ...set(right), ...rows.flatMap(step), ...add(a, aStep), ...add(b, bStep),
        ...get(depth), 0x41, 0x7f, 0x6a, 0x22, depth, 0x0d, 0, 0x0b, 0x0b,
        ...rows.flatMap(i => [...store(i, 0), ...store(i, 1), ...add(from, fromStep), ...add(c, cStep)]), 0x0b];
    const size = n => [n & 127 | 128, n >> 7], section = (id, bytes) => [id, ...size(bytes.length), ...bytes];
    try {
        const { exports } = new WebAssembly.Instance(new WebAssembly.Module(Uint8Array.from([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
            ...section(1, [1, 0x60, 9, ...Array(9).fill(0x7f), 0]), ...section(2, [1, 1, 0x6d, 1, 0x6d, 2, 0, 1]),
            ...section(3, [1, 0]), ...section(7, [1, 1, 0x74, 0, 0]), ...section(10, [1, ...size(body.length), ...body])])),
            { m: { m: program.memory } });
        const place = program.__indirect_function_table.grow(1);
        program.__indirect_function_table.set(place, exports.t);
        program.wasm_tile(place);
    } catch (error) {
        if (!(error instanceof WebAssembly.CompileError)) throw error;
    }
};
tn.engine = async bytes => {
    const { exports: program } = await compiled(bytes);
    fused(program);
    const put = value => {
        const array = typeof value === "string" ? new TextEncoder().encode(value) : value;
        const place = program.wasm_allocate(array.byteLength);
        if (!place) throw new Error("out of memory");
        new Uint8Array(program.memory.buffer).set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength), place);
        return [place, array.length];
    };
    const words = () => {
        const from = program.wasm_words(), bytes = new Uint8Array(program.memory.buffer, from, program.wasm_words_bytes());
        return bytes.length ? new TextDecoder().decode(bytes.slice(0, -1)).split("\0") : [];
    };
    return (name, ...given) => {
        const places = [];
        let count;
        try {
            count = program[name](...given.flatMap(value => {
                if (typeof value === "number") return [value];
                places.push(put(value));
                return places[places.length - 1];
            }));
        } finally {
            for (const [place] of places) program.wasm_release(place);
        }
        if (count < 0) throw new Error(words()[0]);
        const numbers = new Float64Array(program.memory.buffer, program.wasm_numbers(), program.wasm_numbers_count()).slice();
        return { count, numbers, words: words() };
    };
};

/* The same program in a worker, for questions that take longer than a key press may wait. ask(call, call, ...), each
   [name, arguments...], promises what the last of them answers; `setup` is called first, and ask.ready promises that it was.
   Where there can be no worker the program of the page, `call`, answers, and after a worker has ended, too: what was asked of
   it fails with `ended`. */
const within = compiled => {
    let call = null;
    onmessage = async ({ data: [id, calls] }) => {
        try {
            if (!call) { call = await compiled(calls[0]); postMessage([id]); return; }
            let answer;
            for (const one of calls) answer = call(...one);
            postMessage([id, answer]);
        } catch (error) { postMessage([id, null, error.message]); }
    };
};
tn.aside = (bytes, call, setup) => {
    const here = calls => calls.reduce((_, one) => call(...one), null), open = new Map();
    let worker = null, count = 0;
    const leave = () => {
        if (worker) worker.terminate();
        worker = null;
        for (const { bad } of open.values()) bad(Object.assign(new Error("the worker ended"), { ended: true }));
        open.clear();
    };
    const send = calls => new Promise((good, bad) => {
        open.set(++count, { good, bad });
        worker.postMessage([count, calls]);
    });
    const start = async () => {
        const source = `const compiled = ${compiled}, fused = ${fused}, tn = {}; tn.engine = ${tn.engine}; (${within})(tn.engine);`;
        worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
        worker.onerror = leave;
        worker.onmessage = ({ data: [id, answer, why] }) => {
            const { good, bad } = open.get(id);
            open.delete(id);
            if (why === undefined) good(answer); else bad(new Error(why));
        };
        await send([bytes]);
        await send([setup]);
    };
    const ask = async (...calls) => worker ? send(calls) : here(calls);
    ask.ready = start().catch(leave);
    return ask;
};
