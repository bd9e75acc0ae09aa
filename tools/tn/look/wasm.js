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
