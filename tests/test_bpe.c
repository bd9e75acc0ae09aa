/* test_bpe.c: byte-level BPE: Hugging Face's ids, files, words of any length, damaged files. */

#include "kit.h"
#include <time.h>

/* ---- helpers ---------------------------------------------------------------- */

/* All of a file of tests/data, with a zero after it. */
static char *slurp(const char *name, size_t *n)
{
    char path[TEST_PATH];
    *n = 0;
    return CHECK(test_data(name, path)) ? test_read_file(path, n) : NULL;
}

static tn_tokenizer *load(tn_ctx *ctx, const char *kind)
{
    char  name[64];
    size_t n;
    snprintf(name, sizeof name, "bpe/%s.json", kind);
    char *file = slurp(name, &n);
    tn_tokenizer *t = file ? tn_tokenizer_read(ctx, tn_source_memory(file, n)) : NULL;
    CHECK_CTX(ctx);
    free(file);
    return t;
}

static const char *const kinds[] = {"gpt2", "llama3", "qwen2", "digits", "prefix"};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* The string that begins after its quote at s, in place; escapes here are of ASCII only. Returns what follows it. */
static char *unquote(char *s, size_t *bytes)
{
    char *to = s, *from = s;
    for (; *from != '"'; from++) {
        if (*from != '\\') { *to++ = *from; continue; }
        from++;
        if (*from == 'u') { *to++ = (char)hex4(from + 1); from += 4; continue; }
        *to++ = (char)(*from == 'n' ? '\n' : *from == 't' ? '\t' : *from == 'r' ? '\r' : *from);
    }
    *bytes = (size_t)(to - s);
    return from + 1;
}

/* Each text has the ids of the line, and comes back from them to the byte, but for [BOS] and [EOS], which print nothing, and
   the space that a tokenizer puts before a text. */
static void check_line(const tn_tokenizer *t, const char *kind, const char *text, size_t bytes, const int32_t *want,
    int64_t n)
{
    int32_t *id = (int32_t *)malloc((bytes + 2) * sizeof *id);
    tn_span *span = (tn_span *)malloc((bytes + 2) * sizeof *span);
    char    *exact = (char *)malloc(bytes ? bytes : 1), *back = (char *)malloc(bytes + 2);
    bool     ends = false;
    size_t   at = 0;
    if (!CHECK(id && span && exact && back)) return;
    memcpy(exact, text, bytes);
    int64_t got = tn_tokenizer_encode(t, exact, bytes, TN_BOS_NONE, id, (int64_t)bytes + 2, span);
    if (!CHECK_INT(got, n) || !CHECK(memcmp(id, want, (size_t)n * sizeof *id) == 0)) printf("     %s: %.60s\n", kind, text);
    for (int64_t k = 0; k < got; k++) {
        ends = ends || id[k] == tn_tokenizer_bos(t) || id[k] == tn_tokenizer_eos(t);
        CHECK(span[k].begin == at && span[k].end >= at);
        at = span[k].end;
    }
    CHECK(at == bytes);
    int64_t length = tn_tokenizer_decode(t, id, got, back, bytes + 2);
    if (!ends) {
        const int64_t more = length - (int64_t)bytes;
        CHECK(more == 0 || (more == 1 && back[0] == ' ' && strcmp(kind, "prefix") == 0));
        if (more >= 0) CHECK(memcmp(back + more, text, bytes) == 0);
    }
    free(id);
    free(span);
    free(exact);
    free(back);
}

TEST(golden_ids)
{
    tn_ctx *ctx = ctx_of(TN_REAL);
    int     lines = 0;
    for (int k = 0; k < KINDS; k++) {
        tn_tokenizer *t = load(ctx, kinds[k]);
        char          name[64], *file;
        size_t        n;
        snprintf(name, sizeof name, "bpe/%s.jsonl", kinds[k]);
        REQUIRE(t && (file = slurp(name, &n)) != NULL);
        int32_t *id = (int32_t *)malloc(n * sizeof *id);
        REQUIRE(id);
        for (char *s = file; *s; lines++) {
            size_t  bytes;
            int64_t count = 0;
            char   *text = strstr(s, "\"text\":\"") + 8;
            s = strstr(unquote(text, &bytes), "\"ids\":[") + 7;
            while (*s != ']') {
                id[count++] = (int32_t)strtol(s, &s, 10);
                s += *s == ',';
            }
            s += 3;                                       /* ]} and the line's end */
            check_line(t, kinds[k], text, bytes, id, count);
        }
        CHECK_CTX(ctx);
        free(id);
        free(file);
    }
    CHECK_INT(lines, 117 * KINDS);
    tn_ctx_destroy(ctx);
}

/* The same through NFC: what is decoded is the text in NFC, and gives the ids again; spans cover the text as it was. */
TEST(nfc)
{
    tn_ctx       *ctx = ctx_of(TN_REAL);
    tn_tokenizer *t = load(ctx, "nfc");
    size_t        n;
    int           lines = 0, changed = 0;
    char         *file = slurp("bpe/nfc.jsonl", &n);
    REQUIRE(t && file);
    int32_t *want = (int32_t *)malloc(n * sizeof *want), id[4096], again[4096];
    tn_span  span[4096];
    char     back[8192];
    REQUIRE(want);
    for (char *s = file; *s; lines++) {
        size_t  bytes, at = 0;
        int64_t count = 0;
        char   *text = strstr(s, "\"text\":\"") + 8;
        s = strstr(unquote(text, &bytes), "\"ids\":[") + 7;
        while (*s != ']') {
            want[count++] = (int32_t)strtol(s, &s, 10);
            s += *s == ',';
        }
        s += 3;
        int64_t got = tn_tokenizer_encode(t, text, bytes, TN_BOS_NONE, id, 4096, span);
        if (!CHECK_INT(got, count) || !CHECK(memcmp(id, want, (size_t)got * sizeof *id) == 0)) printf("     line %d\n", lines);
        for (int64_t k = 0; k < got; k++) {
            CHECK(span[k].begin >= at && span[k].end >= span[k].begin && span[k].end <= bytes);
            at = span[k].end;
        }
        CHECK(at == bytes);
        int64_t length = tn_tokenizer_decode(t, id, got, back, sizeof back);
        bool quiet = false;                                  /* tokens that print nothing */
        for (size_t i = 0; i + 9 <= bytes; i++) quiet = quiet || !memcmp(text + i, "endoftext", 9) || !memcmp(text + i, "|im_start", 9);
        if (quiet) continue;
        changed += length != (int64_t)bytes || memcmp(back, text, bytes) != 0;
        CHECK_INT(tn_tokenizer_encode(t, back, (size_t)length, TN_BOS_NONE, again, 4096, NULL), got);
        CHECK(memcmp(id, again, (size_t)got * sizeof *id) == 0);
    }
    CHECK_INT(lines, 117 + 191);
    CHECK_INT(changed, 166);                                 /* as Python counts them */
    /* Not valid UTF-8 stays, also beside what changes. */
    CHECK_INT(tn_tokenizer_decode(t, id, tn_tokenizer_encode(t, "\xFF\xC3" "e\xCC\x81\xE0\xA4", 7, TN_BOS_NONE, id, 4096, NULL), back, 64), 6);
    CHECK(memcmp(back, "\xFF\xC3\xC3\xA9\xE0\xA4", 6) == 0);
    /* Spans of what does not change are the same beside what does; parts of a character, too. */
    const char   *apart = "\xE1\xBC\x80z\xF0\x9F\xA6\xA7 \xC3\xA9", *beside = "\xE1\xBC\x80z\xF0\x9F\xA6\xA7 \xC3\xA9 e\xCC\x81";
    tn_span       other[64];
    const int64_t few = tn_tokenizer_encode(t, apart, strlen(apart), TN_BOS_NONE, id, 64, span);
    CHECK(few > 5 && tn_tokenizer_encode(t, beside, strlen(beside), TN_BOS_NONE, again, 64, other) > few);
    for (int64_t k = 0; k < few; k++) CHECK(id[k] == again[k] && span[k].begin == other[k].begin && span[k].end == other[k].end);
    /* The bound of the number of ids: 4 bytes that become 12, and 2 that become 3 characters. */
    char *longest = (char *)malloc(400);
    REQUIRE(longest);
    for (int i = 0; i < 100; i++) memcpy(longest + 4 * i, "\xF0\x9D\x85\xA0", 4);
    const int64_t most = tn_tokenizer_encode(t, longest, 400, TN_BOS_NONE, id, 4096, NULL);
    CHECK(most > 400 + 400 / 2 + 2 && most <= 3 * 400 + 400 / 2 + 2);
    for (int i = 0; i < 200; i++) memcpy(longest + 2 * i, i % 2 ? "\xCE\x90" : "\xCD\x84", 2);
    CHECK(tn_tokenizer_encode(t, longest, 400, TN_BOS_NONE, id, 4096, NULL) > 0);
    free(longest);
    /* Counting alone, without room. */
    CHECK_INT(tn_tokenizer_encode(t, "e\xCC\x81", 3, TN_BOS_NONE, NULL, 0, NULL), tn_tokenizer_encode(t, "\xC3\xA9", 2, TN_BOS_NONE, id, 9, NULL));
    CHECK_CTX(ctx);
    CHECK(tn_tokenizer_encode(t, "a\xEF\xA4\x80", 4, TN_BOS_NONE, id, 9, NULL) < 0);
    CHECK_ERROR(ctx, TN_ERR_DATA, "encode: byte 1: a CJK compatibility ideograph");
    CHECK(tn_tokenizer_encode(t, "\xEF\xA8\x80", 3, TN_BOS_NONE, id, 9, NULL) < 0);
    CHECK_ERROR(ctx, TN_ERR_DATA, "encode: byte 0: a CJK compatibility ideograph");
    CHECK(tn_tokenizer_encode(t, "\xEF\xA8\x8E\xEF\xA8\xA9\xF0\xAF\xA8\x9D", 6, TN_BOS_NONE, id, 9, NULL) > 0);
    CHECK(tn_tokenizer_encode(t, "a\xF0\xAF\xA8\x9D", 5, TN_BOS_NONE, id, 9, NULL) < 0);
    CHECK_ERROR(ctx, TN_ERR_DATA, "encode: byte 1: a CJK compatibility ideograph, which the tokenizer's NFC changes, expected none");
    char *marks = (char *)malloc(2 * 1026);
    REQUIRE(marks);
    for (int i = 0; i < 1026; i++) memcpy(marks + 2 * i, i % 2 ? "\xCC\xA3" : "\xCC\x81", 2);
    CHECK(tn_tokenizer_encode(t, marks, 2 * 1024, TN_BOS_NONE, id, 4096, NULL) > 0);
    CHECK(tn_tokenizer_encode(t, marks, 2 * 1026, TN_BOS_NONE, id, 4096, NULL) < 0);
    CHECK_ERROR(ctx, TN_ERR_DATA, "more than 1024 marks follow each other");
    free(marks);
    free(want);
    free(file);
    tn_ctx_destroy(ctx);
}

/* BPE with marks: the ids and what they print are the engine's, spans cover the text, a text's beginning prints a beginning, and the
   file comes back. llama1 is llama2 with added tokens that are looked for among the marks. */
TEST(marks)
{
    static const char *const marked[] = {"llama2", "llama1", "gemma", "metaspace"};
    static int32_t want[8192], id[8192];
    static tn_span span[8192];
    static char    back[32768], part[32768];
    tn_ctx        *ctx = ctx_of(TN_REAL);
    uint64_t       state = 3;
    int            lines = 0;
    for (int kind = 0; kind < 4; kind++) {
        char   name[64], *file, *out, *at;
        size_t n, m;
        snprintf(name, sizeof name, "bpe/%s.json", marked[kind == 1 ? 0 : kind]);
        REQUIRE((file = slurp(name, &n)) != NULL);
        for (at = file; kind == 1 && (at = strstr(at, "\"normalized\": false")) != NULL;) memcpy(at + 14, "true ", 5);
        tn_tokenizer *t = tn_tokenizer_read(ctx, tn_source_memory(file, n));
        CHECK_CTX(ctx);
        REQUIRE(t && (out = written(t, &m)) != NULL);
        if (kind != 1) CHECK(n == m && memcmp(file, out, n) == 0);
        CHECK_INT(tn_tokenizer_bos(t), 1);
        CHECK_INT(tn_tokenizer_eos(t), 2);
        CHECK_INT(tn_tokenizer_unk(t), kind == 3 ? 0 : -1);
        free(file);
        free(out);
        snprintf(name, sizeof name, "bpe/%s.jsonl", marked[kind]);
        REQUIRE((file = slurp(name, &n)) != NULL);
        for (char *s = file; *s; s++, lines++) {
            size_t  bytes, prints, end = 0, i;
            int64_t count = 0, some;
            char   *text = strstr(s, "\"text\":\"") + 8, *print = text;
            s = strstr(unquote(text, &bytes), "\"ids\":[") + 7;
            while (*s != ']') {
                want[count++] = (int32_t)strtol(s, &s, 10);
                s += *s == ',';
            }
            prints = bytes;
            if (s[1] == ',') s = unquote(print = s + 10, &prints) - 1;
            s += 2;                                          /* ]} or "} */
            int64_t got = tn_tokenizer_encode(t, text, bytes, TN_BOS_NONE, id, 8192, span);
            if (!CHECK_INT(got, count) || !CHECK(memcmp(id, want, (size_t)got * sizeof *id) == 0))
                printf("     %s: %.*s\n", marked[kind], (int)bytes, text);
            CHECK(got <= (int64_t)(bytes + bytes / 2 + 2));
            for (int64_t k = 0; k < got; k++) {
                CHECK(span[k].begin == end && span[k].end >= end);
                end = span[k].end;
            }
            CHECK_INT(end, bytes);
            CHECK_INT(tn_tokenizer_decode(t, id, got, back, sizeof back), prints);
            if (!CHECK(memcmp(back, print, prints) == 0)) printf("     %s: %.*s\n", marked[kind], (int)bytes, text);
            some = test_random_int(&state, 0, (int)got);
            i = (size_t)tn_tokenizer_decode(t, id, some, part, sizeof part);
            CHECK(i <= prints && memcmp(part, back, i) == 0);
        }
        free(file);
    }
    CHECK_INT(lines, 162 + 3 * 219);
    CLOSE_CTX(ctx);
}

/* What HF's strings cannot have: any bytes come back; and texts of one word of any length take n log n steps. */
TEST(marks_of_any_bytes)
{
    enum { LONG = 1 << 20 };
    tn_ctx       *ctx = ctx_of(TN_REAL);
    tn_tokenizer *t[3] = {load(ctx, "llama2"), load(ctx, "gemma"), load(ctx, "metaspace")};
    char         *text = (char *)malloc(LONG + 1), *back = (char *)malloc(LONG + 1);
    int32_t      *id = (int32_t *)malloc((LONG + 1) * sizeof *id);
    uint64_t      state = 12;
    const clock_t begin = clock();
    REQUIRE(t[0] && t[1] && t[2] && text && back && id);
    for (int round = 0; round < 400; round++) {
        const size_t bytes = (size_t)test_random_int(&state, 0, 300);
        for (size_t i = 0; i < bytes; i++) text[i] = (char)test_random_int(&state, round % 3 ? 128 : 0, round % 3 == 1 ? 255 : 200);
        const int64_t n = tn_tokenizer_encode(t[round % 2], text, bytes, TN_BOS_NONE, id, LONG + 1, NULL);
        CHECK_INT(tn_tokenizer_decode(t[round % 2], id, n, back, LONG + 1), bytes);
        CHECK(memcmp(text, back, bytes) == 0);
    }
    CHECK_INT(tn_tokenizer_encode(t[2], "\xFF\xC3\xE2\x96", 4, TN_BOS_NONE, id, 9, NULL), 2);      /* a mark and one unknown */
    CHECK_INT(id[1], 0);
    for (int kind = 0; kind < 3; kind++) {
        for (size_t i = 0; i < LONG; i++) text[i] = kind == 0 ? 'a' : kind == 1 ? ' ' : (char)('a' + test_random_int(&state, 0, 25));
        const int64_t n = tn_tokenizer_encode(t[0], text, LONG, TN_BOS_NONE, id, LONG + 1, NULL);
        CHECK(n > 0 && n <= LONG);
        CHECK_INT(tn_tokenizer_decode(t[0], id, n, back, LONG + 1), LONG);
        CHECK(memcmp(text, back, LONG) == 0);
    }
    WORST("three texts of 1 MB, processor seconds", (double)(clock() - begin) / CLOCKS_PER_SEC, test_small() ? 120 : 20);
    free(text);
    free(back);
    free(id);
    CLOSE_CTX(ctx);
}

#define SPACES_100 "                                                                                                    "

TEST(marks_that_are_refused)
{
    static const struct { const char *kind, *from, *to, *why; } bad[] = {
        {"llama2", "\"Fuse\"", "\"Fuze\"", "decoder is {\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\""},
        {"llama2", "\"prepend\": \"\xE2\x96\x81\"", "\"prepend\": \"_\"", "normalizer is {\"type\":\"Sequence\""},
        {"llama2", "\"pre_tokenizer\": null", "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\xE2\x96\x81\", "
         "\"prepend_scheme\": \"always\", \"split\": false}", "normalizer and pre_tokenizer replace spaces twice, expected once"},
        {"gemma", "{\n    \"type\": \"Replace\",\n    \"pattern\": {\n      \"String\": \" \"\n    },\n    \"content\": \"\xE2\x96\x81\"\n  },",
         "null,", "normalizer and pre_tokenizer replace spaces nowhere, expected once"},
        {"llama2", "\"<0x41>\"", "\"<0x4x>\"", "vocab has no token for 1 of the 256 bytes, expected all or none"},
        {"llama2", "\"\xE2\x96\x81\": 309", "\"\xE2\x96\x82\": 309", "vocab has no token U+2581, which spaces become"},
        {"metaspace", "\"unk_token\": \"<unk>\"", "\"unk_token\": null", "vocab has no tokens <0x00> ... <0xFF> and no unk_token"},
        {"metaspace", "\"normalized\": false", "\"normalized\": true", "added token \"<unk>\": normalized is true, expected false"},
        {"gemma", "\"<table>\",\n      \"single_word\": false,\n      \"lstrip\": false,\n      \"rstrip\": false,\n      \"normalized\": false",
         "\"<table>\", \"normalized\": true", "added token \"<table>\": normalized is true, expected false or a token of vocab"},
        /* Each of its spaces becomes a mark of three bytes. */
        {"gemma", "\"<table>\",\n      \"single_word\": false,\n      \"lstrip\": false,\n      \"rstrip\": false,\n      \"normalized\": false",
         "\"" SPACES_100 SPACES_100 SPACES_100 SPACES_100 SPACES_100 "\", \"normalized\": true",
         "normalized is true, expected false or a token of vocab"},
    };
    tn_ctx      *ctx = ctx_of(TN_REAL);
    const size_t live = tn_ctx_memory(ctx).live;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        char   name[64], *file, *changed, *at;
        size_t n;
        snprintf(name, sizeof name, "bpe/%s.json", bad[k].kind);
        REQUIRE((file = slurp(name, &n)) != NULL && (changed = (char *)malloc(n + 600)) != NULL);
        REQUIRE((at = strstr(file, bad[k].from)) != NULL);
        snprintf(changed, n + 600, "%.*s%s%s", (int)(at - file), file, bad[k].to, at + strlen(bad[k].from));
        if (!CHECK(!tn_tokenizer_read(ctx, tn_source_memory(changed, strlen(changed))))) printf("     accepted: %s\n", bad[k].why);
        CHECK_ERROR(ctx, TN_ERR_FORMAT, bad[k].why);
        CHECK_INT(tn_ctx_memory(ctx).live, live);
        free(file);
        free(changed);
    }
    CLOSE_CTX(ctx);
}

TEST(names_and_kinds)
{
    tn_ctx       *ctx = ctx_of(TN_REAL);
    tn_tokenizer *gpt2 = load(ctx, "gpt2"), *llama = load(ctx, "llama3"), *prefix = load(ctx, "prefix");
    int32_t       id[8];
    REQUIRE(gpt2 && llama && prefix);
    CHECK_INT(tn_tokenizer_count(gpt2), 480);
    CHECK_INT(tn_tokenizer_bos(gpt2), 0);                 /* <|endoftext|>, for both */
    CHECK_INT(tn_tokenizer_eos(gpt2), 0);
    CHECK_INT(tn_tokenizer_unk(gpt2), -1);
    CHECK(!tn_tokenizer_is_bytes(gpt2));
    CHECK_INT(tn_tokenizer_bos(llama), tn_tokenizer_id(llama, "<|begin_of_text|>"));
    CHECK_INT(tn_tokenizer_eos(llama), tn_tokenizer_id(llama, "<|end_of_text|>"));
    CHECK_INT(tn_tokenizer_eos(prefix), 1);
    CHECK_STR(tn_tokenizer_token(gpt2, tn_tokenizer_id(gpt2, "\xC4\xA0the")), "\xC4\xA0the");
    CHECK_INT(tn_tokenizer_encode(llama, "a", 1, TN_BOS_FIRST, id, 8, NULL), 2);
    CHECK_INT(id[0], tn_tokenizer_bos(llama));
    CHECK_INT(tn_tokenizer_encode(llama, NULL, 0, TN_BOS_NONE, id, 8, NULL), 0);
    for (int64_t i = 0; i < tn_tokenizer_count(llama); i++)
        CHECK_INT(tn_tokenizer_id(llama, tn_tokenizer_token(llama, i)), i);
    CLOSE_CTX(ctx);
}

/* ---- files -------------------------------------------------------------------- */

TEST(files_come_back)
{
    tn_ctx *ctx = ctx_of(TN_REAL);
    for (int k = 0; k < KINDS; k++) {
        char          name[64], *file, *out;
        size_t        n, m;
        tn_tokenizer *t = load(ctx, kinds[k]);
        snprintf(name, sizeof name, "bpe/%s.json", kinds[k]);
        REQUIRE(t && (file = slurp(name, &n)) != NULL && (out = written(t, &m)) != NULL);
        CHECK_INT(m, n);
        CHECK(memcmp(file, out, n < m ? n : m) == 0);
        free(file);
        free(out);
    }
    CLOSE_CTX(ctx);
}

/* A small file: all bytes as tokens 0 to 255, then `more` tokens; words and merges as given. ` becomes ". */
static char *small_file(const char *words, const char *model, const char *more, const char *merges)
{
    char *p = (char *)malloc(20000), *at = p;
    if (!CHECK(p)) return NULL;
    at += snprintf(at, 2000, "{`added_tokens`:[],`normalizer`:null,`pre_tokenizer`:%s,`post_processor`:null,"
                   "`decoder`:{`type`:`ByteLevel`},`model`:{`type`:`BPE`,%s`vocab`:{", words, model);
    for (unsigned b = 0; b < 256; b++) {
        unsigned c = b < 33 ? 256 + b : b >= 127 && b <= 160 ? 289 + b - 127 : b == 173 ? 323 : b;
        at += snprintf(at, 20, "`\\u%04x`:%u,", c, b);
    }
    snprintf(at, 4000, "%s},`merges`:%s}}", more, merges);
    for (at = p; *at; at++) if (*at == '`') *at = '"';
    return p;
}

static tn_tokenizer *read_small(tn_ctx *ctx, const char *file)
{
    size_t n = strlen(file);
    char  *p = (char *)malloc(n);
    if (!CHECK(p)) return NULL;
    memcpy(p, file, n);
    tn_tokenizer *t = tn_tokenizer_read(ctx, tn_source_memory(p, n));
    free(p);
    return t;
}

#define BYTE_LEVEL "{`type`:`ByteLevel`,`add_prefix_space`:false}"
#define SPLIT(pattern, more) "{`type`:`Sequence`,`pretokenizers`:[{`type`:`Split`,`pattern`:" pattern more "}," \
                             "{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:false}]}"

/* Digits keeps each digit alone, or only numbers apart from what is between them: then they can be merged. */
TEST(digits_alone_or_together)
{
    tn_ctx *ctx = ctx_of(TN_REAL);
    for (int alone = 0; alone < 2; alone++) {
        char *file = small_file(alone ? "{`type`:`Sequence`,`pretokenizers`:[{`type`:`Digits`,`individual_digits`:true}," BYTE_LEVEL "]}"
                                      : "{`type`:`Sequence`,`pretokenizers`:[{`type`:`Digits`}," BYTE_LEVEL "]}",
                                "", "`12`:256", "[`1 2`]");
        tn_tokenizer *t = file ? read_small(ctx, file) : NULL;
        REQUIRE(t != NULL);
        CHECK_INT(tn_tokenizer_encode(t, "a12", 3, TN_BOS_NONE, NULL, 0, NULL), alone ? 3 : 2);
        tn_tokenizer_destroy(t);
        free(file);
    }
    CLOSE_CTX(ctx);
}

TEST(files_that_are_refused)
{
    static const struct { const char *words, *model, *more, *merges, *why; } bad[] = {
        {"null", "", "`ab`:256", "[`a b`]", "pre_tokenizer: type is missing, expected ByteLevel"},
        {"{`type`:`Metaspace`}", "", "`ab`:256", "[]", "pre_tokenizer: type is \"Metaspace\", expected ByteLevel"},
        {SPLIT("{`Regex`:`\\\\w+`}", ",`behavior`:`Isolated`"), "", "`ab`:256", "[]",
         "the pattern of Split is \"\\w+\", expected the Regex of GPT-2, Llama 3 or Qwen2"},
        {SPLIT("{`String`:` `}", ",`behavior`:`Isolated`"), "", "`ab`:256", "[]", "the pattern of Split is not a Regex"},
        {"{`type`:`Sequence`,`pretokenizers`:[{`type`:`Whitespace`}," BYTE_LEVEL "]}", "", "`ab`:256", "[]",
         "pre_tokenizer: type is \"Whitespace\", expected Split or Digits before ByteLevel"},
        {"{`type`:`Sequence`,`pretokenizers`:[{`type`:`Digits`},{`type`:`Digits`}," BYTE_LEVEL "]}", "", "`ab`:256", "[]",
         "pre_tokenizer has more than two steps"},
        {"{`type`:`Sequence`,`pretokenizers`:[{`type`:`Digits`},{`type`:`ByteLevel`}]}", "", "`ab`:256", "[]",
         "ByteLevel: add_prefix_space is true, expected false after another step"},
        {"{`type`:`Sequence`,`pretokenizers`:[]}", "", "`ab`:256", "[]",
         "pre_tokenizer: type is missing, expected ByteLevel"},
        {BYTE_LEVEL, "`byte_fallback`:true,", "`ab`:256", "[]",
         "pre_tokenizer is {\"type\":\"ByteLevel\",\"add_prefix_space\":false}, expected that of Llama 2, Mistral or Gemma"},
        {BYTE_LEVEL, "`dropout`:true,", "`ab`:256", "[]", "dropout is true, expected null or 0"},
        {BYTE_LEVEL, "", "`ab`:256", "[[`a`,``]]", "merge 0 is a list with an empty name, expected two names"},
        {BYTE_LEVEL, "`dropout`:0.1,", "`ab`:256", "[]", "dropout is 0.1, expected null or 0"},
        {BYTE_LEVEL, "`end_of_word_suffix`:`</w>`,", "`ab`:256", "[]", "end_of_word_suffix is \"</w>\", expected null"},
        {BYTE_LEVEL, "`continuing_subword_prefix`:`##`,", "`ab`:256", "[]",
         "continuing_subword_prefix is \"##\", expected null"},
        {BYTE_LEVEL, "", "`ab`:256", "[`a c`]", "merge 0: there is no token for \"a\" and \"c\" together"},
        {BYTE_LEVEL, "", "`ab`:256", "[`ab zz`]", "merge 0: there is no token \"zz\""},
        {BYTE_LEVEL, "", "`ab`:256", "[[`zz`,`a`]]", "merge 0: there is no token \"zz\""},
        {BYTE_LEVEL, "", "`ab`:256", "[`a b`,[`a`,`b`]]", "merges 0 and 1 are the same"},
        {BYTE_LEVEL, "", "`ab`:256", "[`ab`]", "merge 0 is \"ab\", expected two names, as in \"A B\""},
        {BYTE_LEVEL, "", "`ab`:256", "[`a b c`]", "merge 0 is \"a b c\", expected two names"},
        {BYTE_LEVEL, "", "`ab`:256", "[` ab`]", "merge 0 is \" ab\", expected two names"},
        {BYTE_LEVEL, "", "`ab`:256", "[[`a`]]", "merge 0 is another array, expected \"A B\" or [\"A\",\"B\"]"},
        {BYTE_LEVEL, "", "`ab`:256", "[[`a`,`b`,`c`]]", "merge 0 is another array, expected "},
        {BYTE_LEVEL, "", "`ab`:256", "[7]", "merge 0 is a number, expected "},
        {BYTE_LEVEL, "", "`ab`:256", "{}", "merges is an object, expected an array"},
        {BYTE_LEVEL, "", "`\\u0100\\u0100`:0", "[]", "tokens \"\xC4\x80\" and \"\xC4\x80\xC4\x80\" have the same id, 0"},
    };
    tn_ctx *ctx = ctx_of(TN_REAL);
    size_t  live = tn_ctx_memory(ctx).live;
    char   *at;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        char *file = small_file(bad[k].words, bad[k].model, bad[k].more, bad[k].merges);
        REQUIRE(file);
        if (!CHECK(!read_small(ctx, file))) printf("     accepted, expected: %s\n", bad[k].why);
        CHECK_ERROR(ctx, TN_ERR_FORMAT, bad[k].why);
        CHECK_INT(tn_ctx_memory(ctx).live, live);
        free(file);
    }
    static const struct { const char *from, *to, *why; } change[] = {
        {"\"normalizer\":null", "\"normalizer\":{\"type\":\"NFKC\"}", "normalizer: type is \"NFKC\""},
        {"\"decoder\":{\"type\":\"ByteLevel\"}", "\"decoder\":{\"type\":\"WordPiece\"}",
         "decoder: type is \"WordPiece\", expected ByteLevel"},
        {"\"post_processor\":null", "\"post_processor\":{\"type\":\"RobertaProcessing\"}",
         "post_processor: type is \"RobertaProcessing\""},
        {"\"added_tokens\":[]", "\"added_tokens\":[{\"id\":257,\"content\":\"<m>\",\"lstrip\":true}]",
         "added token \"<m>\": lstrip is true"},
        {"\"\\u0100\":0,", "", "vocab has no token for the byte 0, expected all 256"},
    };
    for (size_t k = 0; k < sizeof change / sizeof *change; k++) {
        char  changed[20000];
        char *file = small_file(BYTE_LEVEL, "", k == 4 ? "`x\\u0100`:0,`ab`:256" : "`ab`:256", "[]");
        REQUIRE(file && (at = strstr(file, change[k].from)) != NULL);
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - file), file, change[k].to, at + strlen(change[k].from));
        REFUSED(ctx, read_small(ctx, changed), TN_ERR_FORMAT, change[k].why);
        free(file);
    }
    for (int n = 512; n < 514; n++) {
        char changed[20000], name[514];
        memset(name, 'a', sizeof name);
        name[n] = 0;
        char *file = small_file(BYTE_LEVEL, "", "`ab`:256", "[]");
        REQUIRE(file && (at = strstr(file, "[]")) != NULL);
        snprintf(changed, sizeof changed, "%.*s[{\"id\":257,\"content\":\"%s\"}]%s", (int)(at - file), file, name, at + 2);
        CHECK_INT(read_small(ctx, changed) != NULL, n == 512);
        if (n == 512) CHECK_CTX(ctx);
        else CHECK_ERROR(ctx, TN_ERR_FORMAT, " has 513 bytes, expected at most 512");
        free(file);
    }
    tn_ctx_destroy(ctx);
}

/* ---- merging ------------------------------------------------------------------ */

/* The same by definition: the lowest rank, then the first place, looked up in the list of merges each time. Words of letters. */
enum { RULES = 12 };
typedef struct rules { const char *left[RULES], *right[RULES]; } rules;
static const rules merges = {{"a", "b", "aa", "a", "ab", "c", "aa", "abc", "b", "c", "aaaa", "ca"},
                             {"a", "c", "aa", "b", "c",  "a", "b",  "a",   "b", "c", "aaaa", "b"}};

static void naive_merge(const char *word, size_t n, char out[][40], size_t *count)
{
    for (*count = 0; *count < n; ++*count) { out[*count][0] = word[*count]; out[*count][1] = 0; }
    for (int k = 0; k < RULES;) {
        size_t i;
        for (i = 0; i + 1 < *count; i++)
            if (strcmp(out[i], merges.left[k]) == 0 && strcmp(out[i + 1], merges.right[k]) == 0) break;
        if (i + 1 >= *count) { k++; continue; }
        snprintf(out[i], sizeof out[i], "%s%s", merges.left[k], merges.right[k]);
        memmove(out[i + 1], out[i + 2], (--*count - i - 1) * sizeof out[i]);
        k = 0;
    }
}

TEST(merging_by_definition)
{
    enum { LONGEST = 400 };
    static char   naive[LONGEST][40];
    tn_ctx       *ctx = ctx_of(TN_REAL);
    char          more[400] = "", list[400] = "[", word[LONGEST + 1];
    int32_t       id[LONGEST];
    uint64_t      state = 7;
    tn_tokenizer *t;
    for (int k = 0; k < RULES; k++) {
        snprintf(more + strlen(more), 60, "%s`%s%s`:%d", k ? "," : "", merges.left[k], merges.right[k], 256 + k);
        snprintf(list + strlen(list), 60, "%s`%s %s`", k ? "," : "", merges.left[k], merges.right[k]);
    }
    strcat(list, "]");
    char *file = small_file(BYTE_LEVEL, "`dropout`:0.0,", more, list);
    REQUIRE(file && (t = read_small(ctx, file)) != NULL);
    for (int round = 0; round < 400; round++) {
        const size_t n = (size_t)test_random_int(&state, 1, round % 4 ? 60 : LONGEST - 1);
        size_t       count;
        for (size_t i = 0; i < n; i++) word[i] = "aaabc"[test_random_int(&state, 0, 4)];
        naive_merge(word, n, naive, &count);
        int64_t got = tn_tokenizer_encode(t, word, n, TN_BOS_NONE, id, LONGEST, NULL);
        if (!CHECK_INT(got, (int64_t)count)) break;
        for (size_t i = 0; i < count; i++) CHECK_STR(tn_tokenizer_token(t, id[i]), naive[i]);
    }
    CHECK_CTX(ctx);
    free(file);
    tn_ctx_destroy(ctx);
}

/* A word of a megabyte takes n log n steps; invalid UTF-8 and any other bytes come back. */
TEST(long_words_and_any_bytes)
{
    enum { LONG = 1 << 20, ROUNDS = 300 };
    tn_ctx       *ctx = ctx_of(TN_REAL);
    const size_t  live = tn_ctx_memory(ctx).live;
    tn_tokenizer *t = load(ctx, "gpt2");
    char         *text = (char *)malloc(LONG + 1), *back = (char *)malloc(LONG + 1);
    int32_t      *id = (int32_t *)malloc(LONG * sizeof *id);
    uint64_t      state = 11;
    clock_t       begin = clock();
    REQUIRE(t && text && back && id);
    size_t held = tn_ctx_memory(ctx).live;
    uint64_t allocations = tn_ctx_memory(ctx).allocations;
    printf("bytes_of_480_tokens: %zu\n", held - live);
    for (int kind = 0; kind < 3; kind++) {
        for (size_t i = 0; i < LONG; i++)
            text[i] = kind == 0 ? 'a' : kind == 1 ? ' ' : (char)('a' + test_random_int(&state, 0, 25));
        int64_t n = tn_tokenizer_encode(t, text, LONG, TN_BOS_NONE, id, LONG, NULL);
        CHECK(n > 0 && n <= LONG);
        CHECK_INT(tn_ctx_memory(ctx).allocations, allocations);      /* threads that share a context may not count there */
        CHECK_INT(tn_tokenizer_decode(t, id, n, back, LONG + 1), LONG);
        CHECK(memcmp(text, back, LONG) == 0);
        CHECK_INT(tn_ctx_memory(ctx).live, held);
    }
    WORST("three words of 1 MB, processor seconds", (double)(clock() - begin) / CLOCKS_PER_SEC, test_small() ? 120 : 20);
    for (int round = 0; round < ROUNDS; round++) {
        const size_t bytes = (size_t)test_random_int(&state, 0, 300);
        for (size_t i = 0; i < bytes; i++) text[i] = (char)test_random_int(&state, round % 2 ? 128 : 0, 255);
        int64_t n = tn_tokenizer_encode(t, text, bytes, TN_BOS_NONE, id, LONG, NULL);
        CHECK_INT(tn_tokenizer_decode(t, id, n, back, LONG + 1), bytes);
        CHECK(memcmp(text, back, bytes) == 0);
    }
    CHECK_CTX(ctx);
    free(text);
    free(back);
    free(id);
    tn_ctx_destroy(ctx);
}

/* The bound of the declaration is reached where each letter between two added tokens gets a space. */
TEST(more_tokens_than_bytes)
{
    tn_ctx *ctx = ctx_of(TN_REAL);
    const char   *head = "{`added_tokens`:[{`id`:65,`content`:`A`,`single_word`:false,`lstrip`:false,`rstrip`:false,"
                         "`normalized`:false,`special`:false},{`id`:66,`content`:`B`,`single_word`:false,`lstrip`:false,"
                         "`rstrip`:false,`normalized`:true,`special`:false}]";
    char    *small = small_file("{`type`:`ByteLevel`,`add_prefix_space`:true}", "", "`[BOS]`:256", "[]");
    char    *rest = small ? strstr(small, "[]") + 2 : NULL, *file, text[64];
    uint64_t state = 5;
    REQUIRE(rest && (file = (char *)malloc(20000)) != NULL);
    snprintf(file, 20000, "%s%s", head, rest);
    for (char *p = file; *p; p++) if (*p == '`') *p = '"';
    tn_tokenizer *t = read_small(ctx, file);
    CHECK_CTX(ctx);
    for (size_t n = 0; n < sizeof text; n++) {
        memset(text, 0, sizeof text);
        for (size_t i = 0; i < n; i++) text[i] = i % 2 ? i % 4 == 1 ? 'A' : 'B' : 'c';
        CHECK_INT(tn_tokenizer_encode(t, text, n, TN_BOS_FIRST, NULL, 0, NULL), n + (n + 1) / 2 + 1);
        for (size_t i = 0; i < n; i++) text[i] = "AAB cd\xE2"[test_random_int(&state, 0, 6)];
        CHECK(tn_tokenizer_encode(t, text, n, TN_BOS_FIRST, NULL, 0, NULL) <= (int64_t)(n + n / 2 + 2));
    }
    free(small);
    free(file);
    tn_ctx_destroy(ctx);
}

/* Out of memory at each allocation of reading, of a long word, of writing. */
TEST(memory_that_ends)
{
    size_t   n;
    char    *files[2] = {small_file(BYTE_LEVEL, "", "`aa`:256", "[`a a`]"), slurp("bpe/llama2.json", &n)}, text[200];
    REQUIRE(files[0] && files[1]);
    memset(text, 'a', sizeof text);
    for (int kind = 0; kind < 2; kind++) {
        uint64_t failed = 0;
        bool     done = false;
        for (uint64_t k = 1; !done && k < 4000; k++) {
            test_heap heap = {0, 0, 0, 0, false};
            tn_desc   d = ZERO;
            tn_ctx   *ctx;
            size_t    used;
            d.allocator = test_heap_allocator(&heap);
            REQUIRE(tn_ctx_create(&d, &ctx, NULL) == TN_OK);
            heap.fail_at = heap.count + k;
            tn_tokenizer *t = read_small(ctx, files[kind]);
            const int64_t ids = t ? tn_tokenizer_encode(t, text, sizeof text, TN_BOS_NONE, NULL, 0, NULL) : -1;
            done = (kind ? ids > 0 : ids == 100)
                && tn_tokenizer_write(t, tn_sink_memory(NULL, 0, &used)) == TN_OK;
            if (!done) {
                CHECK_ERROR(ctx, TN_ERR_MEMORY, "no memory for");
                failed++;
            }
            tn_ctx_destroy(ctx);
            CHECK_INT(heap.live, 0);
        }
        CHECK(done && failed > 20);
        free(files[kind]);
    }
}

TEST_MAIN(golden_ids, nfc, marks, marks_of_any_bytes, marks_that_are_refused, names_and_kinds, files_come_back,
          digits_alone_or_together, files_that_are_refused, merging_by_definition, long_words_and_any_bytes,
          more_tokens_than_bytes, memory_that_ends)
