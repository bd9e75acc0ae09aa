/* data.js - the page's JSON, and its arrays: {at, shape, type} in one blob of base64, little-endian, each decoded when it is
   first asked for. Type q8 is 8-bit: values [.., n] are int8 times one float32 per row of the last axis. */
tn.page = JSON.parse(document.getElementById("tn-data").textContent);

/* Bytes [first, first + count) of a script that holds base64. Four characters are three bytes. */
const texts = new Map();
tn.bytes = (id, first = 0, count) => {
    const script = document.getElementById(id);
    if (!texts.has(id)) texts.set(id, script ? script.textContent.trim() : "");
    const text = texts.get(id);
    const all = text.length / 4 * 3 - (text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0);
    if (count === undefined) count = all - first;
    if (first + count > all) throw new Error(`the page has ${all} bytes of ${id}, expected ${first + count}`);
    const from = Math.floor(first / 3), to = Math.ceil((first + count) / 3);
    const part = atob(text.slice(4 * from, 4 * to));
    const bytes = new Uint8Array(count);
    for (let i = 0, skip = first - 3 * from; i < count; i++) bytes[i] = part.charCodeAt(i + skip);
    return bytes;
};

const types = { f32: Float32Array, f64: Float64Array, u8: Uint8Array, q8: Int8Array };
tn.size = shape => shape.reduce((product, extent) => product * extent, 1);
const raw = (type, at, count) => {
    const array = types[type];
    return new array(tn.bytes("tn-blob", at, count * array.BYTES_PER_ELEMENT).buffer);
};
const dequantize = description => {
    const count = tn.size(description.shape), width = description.shape[description.shape.length - 1];
    const codes = raw("q8", description.at, count), scales = raw("f32", description.scales, width ? count / width : 0);
    const values = new Float32Array(count);
    for (let row = 0, i = 0; row < scales.length; row++)
        for (let column = 0; column < width; column++, i++) values[i] = codes[i] * scales[row];
    return values;
};
const decoded = new WeakMap();
tn.array = description => {
    if (Array.isArray(description)) return Object.assign(Float64Array.from(description.flat(3)), { shape: [description.length] });
    if (ArrayBuffer.isView(description)) return description;            /* computed here: it has its shape */
    if (!decoded.has(description)) {
        const { type, at, shape } = description;
        if (!types[type]) throw new Error(`an array of type ${type}, expected ${Object.keys(types).join(", ")}`);
        const values = type === "q8" ? dequantize(description) : raw(type, at, tn.size(shape));
        values.shape = shape;
        decoded.set(description, values);
    }
    return decoded.get(description);
};
/* Row i of an array: all that has this first index. */
tn.row = (array, i) => {
    const width = array.shape[0] ? array.length / array.shape[0] : 0;
    return array.subarray(i * width, (i + 1) * width);
};

/* Names: a key into page.names, a list, or none, when numbers take their place. */
tn.names = (names, count) => {
    const list = Array.isArray(names) ? names : (tn.page.names || {})[names];
    if (list && list.length >= count) return list.length > count ? list.slice(0, count) : list;
    return Array.from({ length: count }, (_, i) => list && i < list.length ? list[i] : String(i));
};
