/* colour.js - the maps of tensornet.h, block >>image-colour, repeated: smooth curves through a few points in Oklab (Ottosson
   2020), equally dark on both sides of white, and readable with any colour vision. A test compares them with tn_image_colour.
   In the dark theme the middle is as dark as the page, both ends are bright, and signed values are as many steps of lightness
   from the middle as in the light theme. */
const knots = {
    red:  [[1, 0, 0], [.88, .072, 47], [.72, .158, 38], [.55, .188, 29], [.38, .140, 22]],
    blue: [[1, 0, 0], [.88, .058, 242], [.72, .115, 248], [.55, .142, 256], [.38, .125, 264]],
    sea:  [[1, 0, 0], [.86, .100, 135], [.68, .105, 180], [.48, .105, 240], [.27, .095, 275]],
    "dark red":  [[.25, .008, 260], [.37, .072, 28], [.53, .158, 32], [.70, .165, 46], [.87, .090, 68]],
    "dark blue": [[.25, .008, 260], [.37, .062, 262], [.53, .120, 254], [.70, .118, 246], [.87, .062, 232]],
    "dark sea":  [[.25, .008, 260], [.38, .090, 275], [.54, .110, 240], [.72, .110, 180], [.93, .095, 125]],
};
const darkly = matchMedia("(prefers-color-scheme: dark)");
const look = () => {
    const theme = document.documentElement.dataset.theme;
    tn.dark = theme === "dark" || theme !== "light" && darkly.matches;
};
look();
const point = ([lightness, chroma, hue]) => {
    const turn = hue * 0.017453292519943295;
    return [lightness, chroma * Math.cos(turn), chroma * Math.sin(turn)];
};
const srgb = linear => {
    const v = linear <= 0.0031308 ? 12.92 * linear : 1.055 * Math.pow(linear, 1 / 2.4) - 0.055;
    return v <= 0 ? 0 : v >= 1 ? 255 : Math.floor(v * 255 + 0.5);
};
const oklab = ([lightness, a, b]) => {
    const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
    const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
    const s = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3;
    return [srgb(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
            srgb(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
            srgb(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s)];
};
/* Catmull and Rom's curve (1974), straight on at the ends; 0 <= t <= 1. */
const curve = (name, t) => {
    const map = knots[name], last = map.length - 1;
    const knot = Math.min(Math.floor(t * last), last - 1), x = t * last - knot;
    const p = [-1, 0, 1, 2].map(k => point(map[Math.max(0, Math.min(knot + k, last))]));
    if (knot === 0) p[0] = p[0].map((_, i) => 2 * p[1][i] - p[2][i]);
    if (knot === last - 1) p[3] = p[3].map((_, i) => 2 * p[2][i] - p[1][i]);
    return oklab([0, 1, 2].map(i => p[1][i] + x / 2 * (p[2][i] - p[0][i] + x * (2 * p[0][i] - 5 * p[1][i] + 4 * p[2][i] - p[3][i]
        + x * (3 * (p[1][i] - p[2][i]) + p[3][i] - p[0][i])))));
};
const themed = (name, dark) => (dark ? "dark " : "") + name;
tn.colour = (t, dark = tn.dark) => Number.isNaN(t) ? [0xA8, 0xA8, 0xA8]
    : curve(themed(t < 0 ? "blue" : "red", dark), Math.min(1, Math.abs(t)));
tn.sequential = (t, dark = tn.dark) => Number.isNaN(t) ? [0xA8, 0xA8, 0xA8]
    : curve(themed("sea", dark), Math.max(0, Math.min(1, t)));
tn.css = rgb => `rgb(${rgb.join(" ")})`;
/* Ink on a colour: black or white, whichever has the larger contrast, which is at least 4.58 : 1 (WCAG 2.2: relative luminance). */
tn.luminance = rgb => rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
tn.inkOn = rgb => tn.luminance(rgb) > 0.1791 ? "#000" : "#fff";
tn.shade = t => `background: ${tn.css(tn.colour(t))}; color: ${tn.inkOn(tn.colour(t))}`;

/* A table of 2 x 1024 + 1 colours, as 32-bit pixels of a canvas: a matrix of a million cells takes milliseconds. */
const steps = 1024;
const table = map => {
    const bytes = new Uint8ClampedArray(4 * (2 * steps + 1));
    for (let i = 0; i <= 2 * steps; i++) bytes.set([...map(i / steps - 1, tn.dark), 255], 4 * i);
    return new Uint32Array(bytes.buffer);
};
const tables = {};
const grey = new Uint32Array(new Uint8Array([0xA8, 0xA8, 0xA8, 255]).buffer)[0];
tn.paint = (values, limit, sequential = false) => {
    const name = (sequential ? "sequential" : "diverging") + tn.dark;
    const colours = tables[name] || (tables[name] = table(sequential ? tn.sequential : tn.colour));
    const pixels = new Uint32Array(values.length), scale = limit > 0 ? steps / limit : 0;
    for (let i = 0; i < values.length; i++) {
        const t = values[i] * scale;
        pixels[i] = t !== t ? grey : t === -Infinity ? 0 : colours[t >= steps ? 2 * steps : t <= -steps ? 0 : Math.round(t
            + steps)];
    }
    return new Uint8ClampedArray(pixels.buffer);
};
tn.largest = values => {
    let largest = 0;
    for (let i = 0; i < values.length; i++) if (Math.abs(values[i]) > largest) largest = Math.abs(values[i]);
    return largest;
};

/* A small matrix as a picture, one pixel per value; CSS makes it larger, without smoothing. What shows a printed page does smooth
   pictures, so that each value is printed as many pixels. */
const printed = 224;
let printing = false;
tn.putPixels = (canvas, values, width, height, limit, sequential) => {
    const pixels = new ImageData(tn.paint(values, limit, sequential), width, height);
    const scale = printing ? Math.max(1, Math.floor(printed / Math.max(width, height))) : 1;
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.getContext("2d").putImageData(pixels, 0, 0);
    if (scale === 1) return;
    const small = tn.h("canvas", { width, height }), context = canvas.getContext("2d");
    small.getContext("2d").putImageData(pixels, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, canvas.width, canvas.height);
};
tn.picture = (values, width, height, options = {}) => {
    const canvas = tn.h("canvas", { class: "picture", width, height, role: "img", "aria-label": options.label });
    const limit = options.limit || tn.largest(values) || 1;
    canvas.paint = () => {
        if (width * height > 0) tn.putPixels(canvas, values.subarray(0, width * height), width, height, limit,
            options.sequential);
    };
    canvas.paint();
    if (options.scale) canvas.style.width = width * options.scale + "px";
    return canvas;
};

/* What the colours of signed pixels say; sequential: of those that have no sign. */
tn.colourKey = (low, high, sequential = false) => tn.h("span", { class: "scale" }, low, tn.picture(Float64Array.from(
    { length: 64 }, (_, i) => sequential ? i / 63 : i / 31.5 - 1), 64, 1, { limit: 1, sequential,
    label: sequential ? "colours from 0 to 1" : "colours from negative, blue, to positive, red" }), high);

/* Another theme has other maps, and paper more pixels. */
const paintAll = () => { for (const canvas of document.querySelectorAll("canvas.picture")) if (canvas.paint) canvas.paint(); };
document.addEventListener("tn-theme", () => {
    const before = tn.dark;
    look();
    if (tn.dark !== before) paintAll();
});
for (const [name, on] of [["beforeprint", true], ["afterprint", false]]) addEventListener(name, () => {
    printing = on;
    paintAll();
});

/* Colours of series, each with its own lightness; the page's style holds them for both themes. */
tn.ink = i => `var(--series-${i % 7 + 1})`;
/* Those of two models, which are neither red nor blue. */
tn.modelInk = i => `var(--model-${i + 1})`;
