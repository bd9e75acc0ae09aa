/* fixture.c - pages whose values are known: fixture KIND TEMPLATE PAGE EXPECTED, and a network whose values are: fixture network
   MODEL PICTURES EXPECTED, for a page that `tn look` makes of it. fixture zero FILE TENSOR FIRST LAST: these columns become 0.
   fixture tensors FILE: a file of 300 tensors.
   KIND is images, language (with names that try to break out of the page), large (a language model of the size that pages are
   made for) or broken (arrays that are not there, types that do not exist). EXPECTED becomes JSON: what the page has to say,
   computed here from the formulas in double precision, by loops of its own. */
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tensornet.h"

static FILE *page, *expected;
static unsigned char *blob;
static size_t blob_size, blob_room;
static uint64_t state = 20;

static double uniform(void)              /* in [-1,1), the same everywhere */
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 4503599627370496.0 - 1;
}

static void need(int ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "fixture: %s\n", what);
    exit(1);
}

static size_t put(const void *bytes, size_t size)
{
    size_t at = (blob_size + 7) / 8 * 8;
    if (at + size > blob_room) {
        blob = (unsigned char *)realloc(blob, 2 * (at + size));
        need(blob != NULL, "no memory");
        blob_room = 2 * (at + size);
    }
    memset(blob + blob_size, 0, at - blob_size);
    memcpy(blob + at, bytes, size);
    blob_size = at + size;
    return at;
}

static void say(const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    vfprintf(page, format, rest);
    va_end(rest);
}

static void shape(int a, int b, int c)   /* zero: no such axis */
{
    say("\"shape\": [%d", a);
    if (b) say(", %d", b);
    if (c) say(", %d", c);
    say("]");
}

static void f64(const double *values, int a, int b, int c)
{
    size_t count = (size_t)a * (size_t)(b ? b : 1) * (size_t)(c ? c : 1);
    say("{\"at\": %zu, \"type\": \"f64\", ", put(values, count * sizeof *values));
    shape(a, b, c);
    say("}");
}

static void f32(const double *values, int a, int b, int c)
{
    size_t count = (size_t)a * (size_t)(b ? b : 1) * (size_t)(c ? c : 1);
    float *single = (float *)malloc(count * sizeof *single);
    need(single != NULL, "no memory");
    for (size_t i = 0; i < count; i++) single[i] = (float)values[i];
    say("{\"at\": %zu, \"type\": \"f32\", ", put(single, count * sizeof *single));
    shape(a, b, c);
    say("}");
    free(single);
}

/* Quantises rows of values and leaves in them what the page will have. */
static void q8(double *values, int rows, int width)
{
    signed char *codes = (signed char *)malloc((size_t)rows * (size_t)width);
    float       *scales = (float *)malloc((size_t)rows * sizeof *scales);
    double       most = 0, largest = 0;
    need(codes && scales, "no memory");
    for (int i = 0; i < rows; i++) {
        double *row = values + (size_t)i * (size_t)width, size = 0;
        for (int j = 0; j < width; j++) if (fabs(row[j]) > size) size = fabs(row[j]);
        scales[i] = (float)(size / 127);
        if (size > largest) largest = size;
        for (int j = 0; j < width; j++) {
            double code = size > 0 ? floor(row[j] / scales[i] + 0.5) : 0;
            if (code > 127) code = 127;
            codes[(size_t)i * (size_t)width + (size_t)j] = (signed char)code;
            double value = (float)((signed char)code * scales[i]);
            if (fabs(value - row[j]) > most) most = fabs(value - row[j]);
            row[j] = value;
        }
    }
    size_t at = put(codes, (size_t)rows * (size_t)width);
    say("{\"at\": %zu, \"type\": \"q8\", \"scales\": %zu, \"error\": %.17g, ", at, put(scales, (size_t)rows * sizeof *scales),
        largest > 0 ? most / largest : 0);
    shape(rows, width, 0);
    say("}");
    free(codes);
    free(scales);
}

static double *numbers(size_t count)
{
    double *values = (double *)malloc(count * sizeof *values);
    need(values != NULL, "no memory");
    for (size_t i = 0; i < count; i++) values[i] = uniform();
    return values;
}

/* Q[i,j] = sum_h p[h] (w[h,i] v[h,j] + w[h,j] v[h,i]) / 2 */
static double product(const double *p, const double *w, const double *v, int h, int n, int i, int j)
{
    double sum = 0;
    for (int r = 0; r < h; r++) sum += p[r] * (w[r * n + i] * v[r * n + j] + w[r * n + j] * v[r * n + i]) / 2;
    return sum;
}

static void head(const char *kind, const char *title)
{
    say("{\"format\": 1, \"kind\": \"%s\", \"title\": \"%s\", \"made\": \"tensornet.h, a page of the tests\",\n", kind, title);
}

/* ---- images: pictures of SIDE x SIDE, VECTORS eigenvectors for each of OUTPUTS outputs */
enum { SIDE = 14, PIXELS = SIDE * SIDE, VECTORS = 16, OUTPUTS = 4, TERMS = 5, STEPS = 6, EXAMPLES = 5 };

/* Waves under a bell: something to look at, and smooth, so that faults of the order of pixels are seen. */
static void wave(double *picture, double turn, double pitch, double x0, double y0)
{
    double norm = 0;
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            double u = (x - x0) / SIDE, v = (y - y0) / SIDE;
            picture[y * SIDE + x] = exp(-9 * (u * u + v * v)) * cos(pitch * (u * cos(turn) + v * sin(turn)) + turn);
            norm += picture[y * SIDE + x] * picture[y * SIDE + x];
        }
    for (int i = 0; i < PIXELS; i++) picture[i] /= sqrt(norm);
}

/* What the page repeats of the library. */
static void colours(const char *name, tn_image_colours map, int from)
{
    uint8_t rgb[3];
    fprintf(expected, "\"%s\": [", name);
    for (int i = from; i <= 10; i++) {
        tn_image_colour(map, i / 10.0, rgb);
        fprintf(expected, "%s[%.17g, %d, %d, %d]", i > from ? ", " : "", i / 10.0, rgb[0], rgb[1], rgb[2]);
    }
    fprintf(expected, "]");
}

static void write_images(void)
{
    static double values[OUTPUTS][VECTORS], vectors[OUTPUTS][VECTORS][PIXELS], inputs[EXAMPLES][PIXELS],
        logits[EXAMPLES][OUTPUTS];
    static double spectra[STEPS][VECTORS], early[STEPS][4], pictures[STEPS][4][PIXELS], loss[STEPS], held[STEPS], dense[2][5][7];
    double *p = numbers(OUTPUTS * TERMS), *w = numbers(TERMS * PIXELS), *v = numbers(TERMS * PIXELS);

    for (int o = 0; o < OUTPUTS; o++)
        for (int k = 0; k < VECTORS; k++) {
            values[o][k] = (k % 3 == 1 ? -1 : 1) * 4 * exp(-0.28 * k) * (1 + 0.2 * uniform());
            wave(vectors[o][k], 3.1 * uniform(), 6 + 9 * fabs(uniform()), 7 + 3 * uniform(), 7 + 3 * uniform());
        }
    for (int s = 0; s < EXAMPLES; s++) {
        wave(inputs[s], 3 * uniform(), 8, 7, 7);
        for (int i = 0; i < PIXELS; i++) inputs[s][i] = fabs(inputs[s][i]) * 4;
        for (int o = 0; o < OUTPUTS; o++)
            for (int k = 0; k < VECTORS; k++) {
                double activation = 0;
                for (int i = 0; i < PIXELS; i++) activation += vectors[o][k][i] * inputs[s][i];
                logits[s][o] += values[o][k] * activation * activation;
            }
    }
    for (int k = 0; k < TERMS; k++)
        for (int i = 0; i < 2; i++) wave((i ? v : w) + k * PIXELS, uniform() * 3, 7, 7 + 2 * uniform(), 7);
    for (int i = 0; i < 2 * 5 * 7; i++) (&dense[0][0][0])[i] = uniform();
    dense[1][2][3] = NAN;

    head("images", "Waves: \\u003cb>a bilinear network\\u003c/b> & its eigenvectors");
    say("\"names\": {\"outputs\": [\"stripe\", \"ring\", \"\\u003c/script>\\u003cimg src=x onerror=alert(1)>\", "
        "\"\\u202etfel\"]},\n"
        "\"pixels\": {\"width\": %d, \"height\": %d},\n"
        "\"notes\": [\"Biases are folded into a constant input, so everything below is exact.\", \"Layer 2 has a softmax; it is "
            "not shown.\"],\n"
        "\"live\": {\"kind\": \"images\"},\n\"sections\": [\n", SIDE, SIDE);

    for (int s = 0; s < STEPS; s++) {
        loss[s] = 2.3 * exp(-0.5 * s) + 0.02;
        held[s] = 2.3 * exp(-0.42 * s) + 0.06;
        for (int k = 0; k < VECTORS; k++) spectra[s][k] = values[0][k] * (s + 1) / STEPS + 0.1 * uniform();
        for (int k = 0; k < 4; k++) {
            early[s][k] = spectra[s][k];
            for (int i = 0; i < PIXELS; i++)
                pictures[s][k][i] = vectors[0][k][i] * (s + 1) / STEPS + 0.06 * uniform() * (STEPS - 1 - s) / STEPS;
        }
    }
    say("{\"type\": \"card\", \"id\": \"card\", \"title\": \"Card\", \"text\": \"What this model is.\", \"rows\": "
        "[[\"parameters\", 50890], "
        "[\"layers\", \"1 bilinear, 196 to 24\"], [\"test accuracy\", 0.97625, \"of 10,000 pictures\"], [\"products per "
            "picture\", 9600], "
        "[\"trained in\", \"12 s\"], [\"seed\", 7], "
        "[\"digits\", \"12345678901234567891 and 0012345 (1234)\"]],\n\"curve\": {\"x\": ");
    say("[0, 100, 200, 300, 400, 500], \"xlabel\": \"step\", \"ylabel\": \"loss\", \"series\": [{\"name\": \"training\", \"y\": "
        "");
    f64(loss, STEPS, 0, 0);
    say("}, {\"name\": \"held out\", \"y\": ");
    f32(held, STEPS, 0, 0);
    say("}]}},\n{\"type\": \"spectra\", \"id\": \"spectra\", \"title\": \"Spectra\", \"text\": \"Eigenvalues of each output's "
        "matrix. Few large ones mean that "
        "few patterns decide.\", \"groups\": [");
    for (int o = 0; o < OUTPUTS; o++) {
        say("%s{\"name\": \"output %d\", \"effective_rank\": %.17g, \"null_edge\": %s, \"norm\": %.17g, \"values\": ", o ? ", "
            : "", o, 6.125 + o / 3.0,
            o == 3 ? "null" : "0.25", 7.5 + o);
        f64(values[o], VECTORS, 0, 0);
        say("}");
    }
    say("]},\n{\"type\": \"eigen\", \"id\": \"eigen\", \"title\": \"Eigenvectors\", \"text\": \"What an output looks for (red) "
        "and what speaks against it (blue).\", "
        "\"outputs\": [");
    for (int o = 0; o < OUTPUTS; o++) {
        static const char *names[OUTPUTS] = {"stripe", "ring", "</script><img src=x onerror=alert(1)>", "\\u202etfel"};
        say("%s{\"name\": \"%s\", \"values\": ", o ? ", " : "", names[o][0] == '<'
            ? "\\u003c/script>\\u003cimg src=x onerror=alert(1)>" : names[o]);
        f64(values[o], VECTORS, 0, 0);
        say(", \"null_edge\": %s, \"vectors\": ", o == 3 ? "null" : "0.25");
        f64(vectors[o][0], VECTORS, PIXELS, 0);
        say("}");
    }
    say("]},\n{\"type\": \"spoke\", \"id\": \"spoke\", \"title\": \"Which eigenvectors spoke\", \"text\": \"Pick a picture: each "
        "eigenvector adds its value times the "
        "square of its activation.\", \"logits\": ");
    f64(logits[0], EXAMPLES, OUTPUTS, 0);
    say(", \"examples\": [");
    for (int s = 0; s < EXAMPLES; s++) {
        say("%s{\"name\": \"picture %d\", \"label\": \"stripe\", \"input\": ", s ? ", " : "", s);
        f64(inputs[s], PIXELS, 0, 0);
        say("}");
    }
    say("]},\n{\"type\": \"matrix\", \"id\": \"matrix\", \"title\": \"Interactions of pixels\", \"text\": \"Element (i, j) is "
        "what pixels i and j add together.\", "
        "\"of\": \"factors\", \"row_label\": \"pixel\", \"column_label\": \"pixel\", \"p\": ");
    f64(p, OUTPUTS, TERMS, 0);
    say(", \"w\": ");
    f64(w, TERMS, PIXELS, 0);
    say(", \"v\": ");
    f64(v, TERMS, PIXELS, 0);
    say("},\n{\"type\": \"matrix\", \"id\": \"dense\", \"title\": \"A dense matrix\", \"text\": \"Five by seven, twice; one value "
        "is not a number.\", \"of\": \"dense\", "
        "\"outputs\": [\"one\", \"two\"], \"values\": ");
    f64(dense[0][0], 2, 5, 7);
    say("},\n{\"type\": \"matrix\", \"id\": \"linear\", \"title\": \"The linear part\", \"text\": \"A row of weights for each "
        "output.\", \"of\": \"dense\", "
        "\"rownames\": \"outputs\", \"outputs\": [\"all\"], \"values\": ");
    f64(inputs[0], OUTPUTS, PIXELS, 0);
    say("},\n{\"type\": \"compare\", \"id\": \"compare\", \"title\": \"Compared\", \"text\": \"The same outputs of two runs.\", "
        "\"a\": \"seed 7\", \"b\": \"seed 8\", "
        "\"columns\": [[\"similarity\", \"cosine similarity\"], [\"rank\", \"rank\"]], \"rows\": [");
    for (int o = 0; o < OUTPUTS; o++) {
        say("%s{\"name\": \"output %d\", \"similarity\": %.17g", o ? ", " : "", o, 0.91 - o / 7.0);
        say(o % 2 ? "}" : ", \"rank\": 4}");
    }
    say("], \"spectra\": [{\"name\": \"output 0\", \"a\": ");
    f64(values[0], VECTORS, 0, 0);
    say(", \"b\": ");
    f64(values[1], VECTORS, 0, 0);
    say("}, {\"name\": \"output 1\", \"a\": ");
    f64(values[1], VECTORS, 0, 0);
    say(", \"b\": ");
    f64(values[2], VECTORS, 0, 0);
    say("}]},\n{\"type\": \"time\", \"id\": \"time\", \"title\": \"Over time\", \"text\": \"Checkpoints of the run.\", \"steps\": "
        "[0, 100, 200, 300, 400, 500], "
        "\"series\": [{\"name\": \"loss\", \"y\": ");
    f64(loss, STEPS, 0, 0);
    say("}], \"spectra\": [{\"name\": \"stripe\", \"values\": ");
    f64(spectra[0], STEPS, VECTORS, 0);
    say("}], \"vectors\": [{\"name\": \"stripe\", \"values\": ");
    f64(early[0], STEPS, 4, 0);
    say(", \"vectors\": ");
    f64(pictures[0][0], STEPS, 4, PIXELS);
    say("}], \"tables\": [{\"name\": \"effective rank\", \"columns\": [[\"name\", \"output\"], [\"rank\", \"effective rank\"]], "
        "\"rows\": [");
    for (int s = 0; s < STEPS; s++) say("%s[{\"name\": \"stripe\", \"rank\": %.17g}]", s ? ", " : "", 12.5 - s * 1.7);
    say("]}]},\n{\"type\": \"hologram\", \"id\": \"unknown\", \"title\": \"A later version's section\", \"text\": \"This page is "
        "older than it.\"}\n]}");

    fprintf(expected, "{\"values\": [%.17g, %.17g, %.17g], \"effective_rank\": %.17g, \"similarity\": %.17g, \"dense\": %.17g, "
        "\"pixel\": %.17g, \"linear\": %.17g,\n",
            values[0][0], values[1][0], values[0][1], 6.125 + 1 / 3.0, 0.91 - 2 / 7.0, dense[1][4][6],
                vectors[0][0][5 * SIDE + 6], inputs[2][7 * SIDE + 6]);
    fprintf(expected, "\"logit\": %.17g, \"product\": [%.17g, %.17g], \"loss\": [%.17g, %.17g], \"early\": %.17g, \"rank\": "
        "%.17g,\n", logits[2][1],
            product(p, w, v, TERMS, PIXELS, 0, 1), product(p + 2 * TERMS, w, v, TERMS, PIXELS, 100, 87), loss[2],
                (double)(float)held[2], early[1][2], 12.5 - 3 * 1.7);
    colours("colours", TN_IMAGE_COLOURS_DIVERGING, -10);
    fprintf(expected, ",\n");
    colours("sequential", TN_IMAGE_COLOURS_SEQUENTIAL, 0);
    fprintf(expected, "}\n");
    free(p); free(w); free(v);
}

/* ---- language */
enum { TOKENS = 40, WIDTH = 6, CLASSES = 3, HEADS = 8, TEXT = 9 };

/* Names as JSON. They close scripts and quotes, turn the direction of text, are blank, empty, or look like another's. */
static const char *const names[TOKENS] = {
    " the", " cat", " dog", " sat", " mat", "\\u003c/script>\\u003cscript>document.title='broken'\\u003c/script>", "\\\"'`",
        "\\u202egnihtyna", "\\u2028", "\\u2029",
    "\\u0000\\u0001\\u001b", "\\n", "\\t", "\\r\\n", " ", "", "\\u05e9\\u05dc\\u05d5\\u05dd",
        "\\u0645\\u0631\\u062d\\u0628\\u0627", "\\ud83d\\ude00", "\\ud800",
    "&lt;b&gt;", "\\u003c!--", "]]>", "{{title}}", "${x}", "\\\\u003c",
        "a very long token that goes on and on and does not end where one would expect it to end",
    "\\u200b", "\\ufeff", "\\u0301", "javascript:alert(1)", " ran", " far", " away", ".", ",", "!", " once", " upon", " time"};

static void name(int i) { say("\"%s\"", names[i]); }

static void write_language(void)
{
    double *p = numbers(CLASSES * TERMS), *w = numbers(TERMS * WIDTH), *v = numbers(TERMS * WIDTH),
        *embed = numbers(TOKENS * WIDTH);
    double *wide = (double *)malloc(2 * TERMS * TOKENS * sizeof *wide), pattern[TEXT][TEXT], sum = 0,
        values[4] = {2.5, -1.75, 0.5, -0.25};
    static const int text[TEXT] = {37, 38, 39, 0, 1, 3, 5, 7, 34};
    static const double sentence[6] = {37, 38, 39, 7, 1, 34};
    int     i, h;
    need(wide != NULL, "no memory");

    head("language", "Stories");
    say("\"names\": {\"tokens\": [");
    for (i = 0; i < TOKENS; i++) { if (i) say(", "); name(i); }
    say("], \"outputs\": [\" the\", \" dog\", \"\\u003c/script>\"]}, \"notes\": [],\n\"evidence\": {\"source\": \"a text\", "
        "\"ids\": ");
    f64(sentence, 6, 0, 0);
    say("},\n\"sections\": [\n");

    say("{\"type\": \"eigen\", \"id\": \"eigen\", \"title\": \"Eigenvectors as tokens\", \"text\": \"The nearest tokens of each "
        "eigenvector.\", \"outputs\": [");
    for (int k = 0; k < 14; k++) {
        say("%s{\"name\": \"layer 1, output %d\", \"values\": ", k ? ", " : "", k);
        f64(values, 4, 0, 0);
        for (h = 0; h < 2; h++) {
            say(h ? ", \"opposite\": [" : ", \"tokens\": [");
            for (i = 0; i < 4; i++) {
                say("%s[", i ? ", " : "");
                for (int j = 0; j < 8; j++) { say("%s{\"token\": ", j ? ", " : ""); name((i * 9 + j * 3 + h * 5 + k) % TOKENS);
                    say(", \"value\": %.17g}", (h ? -1 : 1) / (1.5 + j)); }
                say("]");
            }
            say("]");
        }
        say(", \"sentences\": [[{\"first\": 2, \"values\": ");
        f64(values, 4, 0, 0);
        say("}], [], [], []]}");
    }
    say("]},\n{\"type\": \"matrix\", \"id\": \"matrix\", \"title\": \"Interactions of tokens\", \"text\": \"What two tokens add "
        "together.\", \"of\": \"factors\", "
        "\"rownames\": \"tokens\", \"colnames\": \"tokens\", \"row_label\": \"token\", \"column_label\": \"token\", \"p\": ");
    f64(p, CLASSES, TERMS, 0);
    say(", \"w\": ");
    q8(w, TERMS, WIDTH);
    say(", \"v\": ");
    q8(v, TERMS, WIDTH);
    say(", \"embed\": ");
    q8(embed, TOKENS, WIDTH);
    say("},\n{\"type\": \"heads\", \"id\": \"heads\", \"title\": \"Heads\", \"text\": \"Where heads look.\", \"columns\": "
        "[[\"copying\", \"copying\", "
        "\"how far the head raises the tokens it looks at\"], [\"distance\", \"distance\", \"mean distance of what it looks "
            "at\"], [\"qk_norm\", \"QK norm\"]], \"tokens\": [");
    for (i = 0; i < TEXT; i++) { if (i) say(", "); name(text[i]); }
    say("],\n\"heads\": [");
    for (h = 0; h < HEADS; h++) {
        for (i = 0; i < TEXT; i++) {
            double total = 0;
            for (int j = 0; j <= i; j++) total += pattern[i][j] = exp(-fabs(i - j - h * 0.7) + 0.3 * uniform());
            for (int j = 0; j < TEXT; j++) pattern[i][j] = j <= i ? pattern[i][j] / total : 0;
        }
        say("%s{\"layer\": %d, \"head\": %d, \"copying\": %.17g, \"distance\": %.17g, \"qk_norm\": %.17g, \"pattern\": ", h
            ? ",\n" : "", h / 4, h % 4,
            sin(h * 2.5), h * 0.7, 3 + cos(h));
        f64(pattern[0], TEXT, TEXT, 0);
        say(", \"qk\": {\"of\": \"factors\", \"symmetric\": false, \"rownames\": \"tokens\", \"colnames\": \"tokens\", \"p\": [1, "
            "1, 1, 1, 1], \"w\": ");
        f64(w, TERMS, WIDTH, 0);
        say(", \"v\": ");
        f64(v, TERMS, WIDTH, 0);
        say(", \"embed\": ");
        f32(embed, TOKENS, WIDTH, 0);
        say("}}");
    }
    say("]},\n{\"type\": \"pairs\", \"id\": \"pairs\", \"title\": \"Pairs\", \"text\": \"The strongest pairs of tokens.\", "
        "\"rows\": [");
    for (i = 0; i < 120; i++) {
        say("%s{\"first\": ", i ? ", " : "");
        name(i % TOKENS);
        say(", \"second\": ");
        name(i * 7 % TOKENS);
        say(", \"output\": ");
        name(i * 11 % TOKENS);
        say(", \"value\": %.17g}", (i % 4 == 2 ? -1 : 1) * 9 / (i + 1.5));
    }
    say("]},\n{\"type\": \"paths\", \"id\": \"paths\", \"title\": \"Paths\", \"text\": \"A logit as a sum over paths.\", "
        "\"examples\": [");
    for (int k = 0; k < 2; k++) {
        say("%s{\"tokens\": [\"Once\", \" upon\", \" a\"], \"token\": \" time\", \"rows\": [", k ? ", " : "");
        for (i = 0, sum = 0; i < 6; i++) {
            double value = (i % 3 == 2 ? -1 : 1) * (3.1 + k) / (i + 1);
            sum += value;
            say("%s{\"path\": \"%s\", \"value\": %.17g, \"share\": %.17g}", i ? ", " : "", (const char *[]){"embedding",
                "head 0.1", "head 0.3 → head 1.0", "layer 0",
                "head 0.1 → layer 1", "layer 1"}[i], value, value / 6);
        }
        say("], \"remainder\": 0.0625, \"exact\": %.17g}", sum + 0.0625);
    }
    say("]}]}");

    for (h = 0; h < TERMS; h++)
        for (i = 0; i < TOKENS; i++) {
            wide[h * TOKENS + i] = wide[(TERMS + h) * TOKENS + i] = 0;
            for (int k = 0; k < WIDTH; k++) {
                wide[h * TOKENS + i] += w[h * WIDTH + k] * embed[i * WIDTH + k];
                wide[(TERMS + h) * TOKENS + i] += v[h * WIDTH + k] * embed[i * WIDTH + k];
            }
        }
    fprintf(expected, "{\"product\": [%.17g, %.17g], \"pattern\": %.17g, \"copying\": %.17g, \"pair\": %.17g, \"sum\": %.17g, "
        "\"qk\": ",
            product(p, wide, wide + TERMS * TOKENS, TERMS, TOKENS, 0, 1), product(p + 2 * TERMS, wide, wide + TERMS * TOKENS,
                TERMS, TOKENS, 5, 7),
            pattern[4][3], sin(2.5), 9 / 1.5, sum + 0.0625);
    for (sum = 0, h = 0; h < TERMS; h++) sum += wide[h * TOKENS + 1] * wide[(TERMS + h) * TOKENS + 2];
    fprintf(expected, "%.17g}\n", sum);
    free(p); free(w); free(v); free(embed); free(wide);
}

/* ---- large: four layers of width 256 between 2,048 tokens, and a choice between 100,000 outputs */
static void write_large(void)
{
    enum { many = 2048, width = 256, layers = 4, choices = 100000 };
    double *p = numbers(many * width), *w = numbers(width * width), *embed = numbers(many * width), *spectrum = numbers(256);
    head("language", "Four layers, width 256");
    say("\"names\": {\"tokens\": [");
    for (int i = 0; i < many; i++) say("%s\" token %d\"", i ? ", " : "", i);
    say("]}, \"sections\": [\n");
    for (int layer = 0; layer < layers; layer++) {
        say("{\"type\": \"matrix\", \"id\": \"matrix%d\", \"title\": \"Layer %d\", \"of\": \"factors\", \"rownames\": \"tokens\", "
            "\"colnames\": \"tokens\", "
            "\"outputs\": \"tokens\", \"p\": ", layer, layer);
        q8(p, many, width);
        say(", \"w\": ");
        q8(w, width, width);
        say(", \"v\": ");
        q8(w, width, width);
        say(", \"embed\": ");
        q8(embed, many, width);
        say("},\n");
    }
    say("{\"type\": \"eigen\", \"id\": \"eigen\", \"title\": \"Eigenvectors\", \"outputs\": [");
    for (int i = 0; i < choices; i++) say("%s{\"name\": \"output %d\", \"values\": [1, -0.5], \"tokens\": [[{\"token\": \"a\", "
        "\"value\": %d}], []]}", i ? "," : "", i, i);
    say("]},\n{\"type\": \"pairs\", \"id\": \"pairs\", \"title\": \"Pairs\", \"rows\": [");
    for (int i = 0; i < 20000; i++) say("%s{\"first\": \" token %d\", \"second\": \" token %d\", \"value\": %.6g}", i ? "," : "",
        i % many, i * 37 % many, 1e4 / (i + 1.0));
    say("]},\n{\"type\": \"spectra\", \"id\": \"spectra\", \"title\": \"Spectra\", \"groups\": [");
    for (int i = 0; i < 64; i++) {
        say("%s{\"name\": \"group %d\", \"effective_rank\": 7.5, \"values\": ", i ? "," : "", i);
        f64(spectrum, 256, 0, 0);
        say("}");
    }
    say("]}]}");
    fprintf(expected, "{}\n");
    free(p); free(w); free(embed); free(spectrum);
}

/* ---- broken: every section has a fault of its own, between two that are whole */
static void write_broken(void)
{
    head("tensor", "Broken");
    say("\"sections\": [{\"type\": \"card\", \"id\": \"before\", \"title\": \"Before\", \"rows\": [[\"whole\", 1]]},\n"
        "{\"type\": \"matrix\", \"id\": \"beyond\", \"title\": \"Beyond the blob\", \"of\": \"dense\", \"values\": {\"at\": "
            "800000, \"shape\": [3, 3], \"type\": \"f64\"}},\n"
        "{\"type\": \"matrix\", \"id\": \"type\", \"title\": \"No such type\", \"of\": \"dense\", \"values\": {\"at\": 0, "
            "\"shape\": [3, 3], \"type\": \"f16\"}},\n"
        "{\"type\": \"eigen\", \"id\": \"none\", \"title\": \"No outputs\"},\n"
        "{\"type\": \"spoke\", \"id\": \"spoke\", \"title\": \"No pictures\", \"examples\": []},\n"
        "{\"type\": \"card\", \"id\": \"after\", \"title\": \"After\", \"rows\": [[\"nan\", null], [\"whole\", 2]]}]}");
    fprintf(expected, "{}\n");
}

/* ---- the page: the template with the title, the JSON and the blob in their places */
static char *whole(const char *path)
{
    FILE *file = fopen(path, "rb");
    long  size = 0;
    need(file && fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0, path);
    rewind(file);
    char *text = (char *)malloc((size_t)size + 1);
    need(text && fread(text, 1, (size_t)size, file) == (size_t)size, path);
    text[size] = 0;
    fclose(file);
    return text;
}

/* ---- network: one of the kind that `make demo` trains, with pictures, and what the library and the formulas say of it */
enum { EDGE = 4, DOTS = EDGE * EDGE, WIDE = 8, ANSWERS = 10, SHOTS = 3 };

static double *read_numbers(const tn_tensor *t)
{
    double *v = numbers((size_t)tn_tensor_count(t));
    need(tn_read(t, TN_F64, v, tn_tensor_count(t)) == TN_OK, "cannot read");
    return v;
}

/* An encoder of the layer times the embedding, [WIDE,DOTS]. */
static double *after_embedding(const double *w, const double *embed)
{
    double *to = numbers(WIDE * DOTS);
    for (int h = 0; h < WIDE; h++)
        for (int i = 0; i < DOTS; i++) {
            to[h * DOTS + i] = 0;
            for (int k = 0; k < WIDE; k++) to[h * DOTS + i] += w[h * WIDE + k] * embed[k * DOTS + i];
        }
    return to;
}

/* What the library says of the network without eigenvector GONE of output GONE_OF: its values, their effective rank and norm,
   the outputs, and element 2,5 of its matrix, which is `element` of the whole. */
enum { GONE_OF = 3, GONE = 1 };
static void write_without(const tn_eigenpairs *eigen, const double *values, const double *logits, const tn_tensor *inputs,
                          double element)
{
    const int64_t n = eigen->count;
    double *vectors = read_numbers(eigen->vectors), *x = read_numbers(inputs), *rest = numbers((size_t)n), norm = 0;
    const double  value = values[GONE_OF * n + GONE], *v = vectors + (GONE_OF * n + GONE) * eigen->n;
    for (int64_t k = 0, kept = 0; k < n; k++) if (k != GONE) rest[kept++] = values[GONE_OF * n + k];
    for (int64_t k = 0; k < n - 1; k++) norm = hypot(norm, rest[k]);
    fprintf(expected, "\"without\": {\"output\": %d, \"k\": %d, \"rank\": %.17g, \"norm\": %.17g, \"element\": "
        "%.17g,\n\"values\": [",
            GONE_OF, GONE, tn_effective_rank(rest, n - 1), norm, element - value * v[2] * v[5]);
    for (int64_t k = 0; k < n - 1; k++) fprintf(expected, "%s%.17g", k ? ", " : "", rest[k]);
    fprintf(expected, "],\n\"logits\": [");
    for (int s = 0; s < SHOTS; s++) {
        double dot = 0;
        for (int i = 0; i < DOTS; i++) dot += v[i] * x[s * DOTS + i];
        for (int o = 0; o < ANSWERS; o++)
            fprintf(expected, "%s%.17g", s + o ? ", " : "", logits[s * ANSWERS + o] - (o == GONE_OF ? value * dot * dot : 0));
    }
    fprintf(expected, "]}");
    free(vectors);
    free(x);
    free(rest);
}

static void write_network(const char *model, const char *pictures)
{
    const int64_t shape[2] = {SHOTS, DOTS};
    tn_desc        desc;
    tn_linear_desc first, last;
    tn_mlp_desc    middle;
    tn_linear      embed, unembed;
    tn_mlp         layer;
    tn_eigenpairs       eigen;
    tn_ctx        *ctx;
    char           why[TN_WHY];
    memset(&desc, 0, sizeof desc);
    memset(&first, 0, sizeof first);
    memset(&middle, 0, sizeof middle);
    memset(&last, 0, sizeof last);
    desc.seed = 11;
    desc.threads = 1;
    first.in = DOTS;
    first.out = middle.in = middle.hidden = last.in = WIDE;
    last.out = ANSWERS;
    first.init.std = middle.init.std = last.init.std = 1;
    middle.no_projection = true;
    need(tn_ctx_create(&desc, &ctx, why) == TN_OK, why);
    tn_params *params = tn_params_create(ctx);
    tn_linear_init(params, "embed", &first, &embed);
    tn_mlp_init(params, "bilinear", &middle, &layer);
    tn_linear_init(params, "unembed", &last, &unembed);
    tn_tensor *x = tn_uniform(ctx, 2, shape, 0, 1);
    tn_tensor *y = tn_linear_forward(ctx, &unembed, tn_mlp_forward(ctx, &layer, tn_linear_forward(ctx, &embed, x)));
    tn_params_save(params, model);
    tn_npy_save(x, pictures);
    tn_cp_eigen_all(tn_cp_from_stack(ctx, &embed, &layer, &unembed), 0, &eigen);
    need(tn_ctx_status(ctx) == TN_OK, tn_ctx_error(ctx));

    double *values = read_numbers(eigen.values);
    fprintf(expected, "{\"eigenvalues\": [");
    for (int o = 0; o < ANSWERS; o++)
        fprintf(expected, "%s[%.17g, %.17g]", o ? ", " : "", values[o * eigen.count], values[o * eigen.count + 1]);
    double *logits = read_numbers(y);
    fprintf(expected, "],\n\"logits\": [");
    for (int k = 0; k < SHOTS * ANSWERS; k++) fprintf(expected, "%s%.17g", k ? ", " : "", logits[k]);
    double *w = read_numbers(layer.w);
    double *e = read_numbers(embed.w);
    double *u = read_numbers(unembed.w);
    double *left = after_embedding(w, e);
    double *right = after_embedding(w + WIDE * WIDE, e);
    fprintf(expected, "],\n\"interactions\": [");
    for (int o = 0; o < ANSWERS; o++)
        fprintf(expected, "%s[%d, %d, %.17g]", o ? ", " : "", 7 * o % DOTS, (5 * o + 2) % DOTS,
                product(u + o * WIDE, left, right, WIDE, DOTS, 7 * o % DOTS, (5 * o + 2) % DOTS));
    fprintf(expected, "],\n");
    write_without(&eigen, values, logits, x, product(u + GONE_OF * WIDE, left, right, WIDE, DOTS, 2, 5));
    fprintf(expected, "}\n");
    free(values);
    free(logits);
    free(w);
    free(e);
    free(u);
    free(left);
    free(right);
    tn_eigenpairs_destroy(&eigen);
    tn_ctx_destroy(ctx);
}

/* ---- zero: columns [first,last), to the end if last is 0, of a matrix in a safetensors file of F32 become 0, in place */
static void write_zeros(const char *path, const char *name, int first, int last)
{
    FILE         *file = fopen(path, "r+b");
    unsigned char size[8];
    static char   head[1 << 20], key[256];
    long          rows, columns, from;
    const float   zero = 0;
    need(file && fread(size, 1, 8, file) == 8, path);
    const size_t bytes = size[0] | (size_t)size[1] << 8 | (size_t)size[2] << 16;
    need(bytes < sizeof head && fread(head, 1, bytes, file) == bytes, path);
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(head, key), *shape_of = at ? strstr(at, "\"shape\":[") : NULL, *place = at ? strstr(at,
        "\"data_offsets\":[") : NULL;
    need(shape_of && place && sscanf(shape_of, "\"shape\":[%ld,%ld]", &rows, &columns) == 2, name);
    need(sscanf(place, "\"data_offsets\":[%ld", &from) == 1 && last <= columns, name);
    for (long i = 0; i < rows; i++)
        for (int j = first; j < (last ? last : columns); j++) {
            need(fseek(file, 8 + (long)bytes + from + 4 * (i * columns + j), SEEK_SET) == 0, path);
            need(fwrite(&zero, sizeof zero, 1, file) == 1, path);
        }
    need(fclose(file) == 0, path);
}

/* ---- tensors: 300 of them in a safetensors file: [4,6] in F32, [6,4] in BF16 and [5] in F32 in turn */
static void write_tensors(const char *path)
{
    static const int64_t shapes[3][2] = {{4, 6}, {6, 4}, {5, 0}};
    static const char *const kinds[] = {"layer.%d.w", "layer.%d.v", "layer.%d.bias"};
    static char     name[300][32];
    tn_named_tensor list[300];
    tn_ctx         *ctx;
    char            why[TN_WHY];
    need(tn_ctx_create(NULL, &ctx, why) == TN_OK, why);
    for (int i = 0; i < 300; i++) {
        float      v[24];
        tn_tensor *t = tn_tensor_create(ctx, i % 3 == 1 ? TN_BF16 : TN_F32, i % 3 == 2 ? 1 : 2, shapes[i % 3]);
        for (int k = 0; k < 24; k++) v[k] = (float)uniform();
        need(t && tn_write(t, TN_F32, v, tn_tensor_count(t)) == TN_OK, "tensors");
        snprintf(name[i], sizeof name[i], kinds[i % 3], i / 3);
        list[i].name = name[i];
        list[i].tensor = t;
    }
    need(tn_safetensors_write(ctx, tn_sink_path(path), list, 300, NULL, 0) == TN_OK, path);
    tn_ctx_destroy(ctx);
}

static void base64(void)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < blob_size; i += 3) {
        size_t   left = blob_size - i;
        unsigned three = (unsigned)blob[i] << 16 | (left > 1 ? (unsigned)blob[i + 1] << 8 : 0) | (left > 2 ? blob[i + 2] : 0u);
        char     four[4] = {digits[three >> 18], digits[three >> 12 & 63], left > 1 ? digits[three >> 6 & 63] : '=', left > 2
            ? digits[three & 63] : '='};
        fwrite(four, 1, 4, page);
    }
}

static const char *up_to(const char *text, const char *place)
{
    const char *end = strstr(text, place);
    need(end != NULL, place);
    fwrite(text, 1, (size_t)(end - text), page);
    return end + strlen(place);
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*write)(void); } kinds[] = {
        {"images", write_images}, {"language", write_language}, {"large", write_large}, {"broken", write_broken}};
    char       *template;
    size_t      k = 0;
    if (argc == 6 && !strcmp(argv[1], "zero")) {
        write_zeros(argv[2], argv[3], atoi(argv[4]), atoi(argv[5]));
        return 0;
    }
    if (argc == 3 && !strcmp(argv[1], "tensors")) {
        write_tensors(argv[2]);
        return 0;
    }
    need(argc == 5, "usage: fixture KIND TEMPLATE PAGE EXPECTED");
    if (!strcmp(argv[1], "network")) {
        expected = fopen(argv[4], "wb");
        need(expected != NULL, "cannot write");
        write_network(argv[2], argv[3]);
        need(fclose(expected) == 0, "cannot write");
        return 0;
    }
    while (k < 4 && strcmp(kinds[k].name, argv[1]) != 0) k++;
    need(k < 4, "KIND is images, language, large, broken or network");
    const char *text = template = whole(argv[2]);
    page = fopen(argv[3], "wb");
    expected = fopen(argv[4], "wb");
    need(page && expected, "cannot write");
    text = up_to(text, "{{title}}");
    say("A page of the tests");
    text = up_to(text, "{{data}}");
    kinds[k].write();
    text = up_to(text, "{{blob}}");
    base64();
    text = up_to(text, "{{wasm}}");
    fputs(text, page);
    need(fclose(page) == 0 && fclose(expected) == 0, "cannot write");
    free(template);
    free(blob);
    return 0;
}
