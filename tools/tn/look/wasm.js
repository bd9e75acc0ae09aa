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
tn.engine = async bytes => {
    const { exports: program } = await compiled(bytes);
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
        const source = `const compiled = ${compiled}; const tn = {}; tn.engine = ${tn.engine}; (${within})(tn.engine);`;
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
