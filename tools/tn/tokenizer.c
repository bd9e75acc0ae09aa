/* tokenizer.c - tn tokenizer train, encode, decode, compare */
#include "tn.h"
#include <stdlib.h>
#include <string.h>

static tn_ctx *new_context(void)
{
    tn_desc desc;
    tn_ctx *ctx;
    char    why[256];
    memset(&desc, 0, sizeof desc);
    desc.log = show_log;
    if (tn_ctx_create(&ctx, &desc, why) != TN_OK) fail("%s", why);
    return ctx;
}

/* ---- tokens a story ----------------------------------------------------------------- */

/* What the document on story models gives for its three vocabularies; 0: it has none of this size. */
static int published_tokens(int64_t vocab) { return vocab == 4096 ? 188 : vocab == 2048 ? 203 : vocab == 1024 ? 229 : 0; }

/* The mean over stories, without [BOS]. */
static double tokens_per_story(const tn_tokenizer *t, const char *text, size_t bytes, split_kind split, int64_t *stories)
{
    size_t  at = 0, start = 0, length = 0;
    int64_t tokens = 0;
    *stories = 0;
    while (next_story(text, bytes, split, &at, &start, &length)) {
        tokens += tn_encode(t, text + start, length, false, NULL, 0, NULL);
        ++*stories;
    }
    return *stories ? (double)tokens / (double)*stories : 0;
}

static void print_tokens_per_story(const tn_tokenizer *t, const char *text, size_t bytes, split_kind split)
{
    const split_kind how = resolve_split(split, text, bytes);
    int64_t vocab = tn_tokenizer_count(t), stories;
    double  mean = tokens_per_story(t, text, bytes, how, &stories);
    int     theirs = how == SPLIT_MARKS ? published_tokens(vocab) : 0;      /* its stories are between marks */
    printf("vocabulary %lld: %.1f tokens a %s (%lld %s)", (long long)vocab, mean, split_name(how, false),
           (long long)stories, split_name(how, true));
    if (theirs) printf(", in the document %d", theirs);
    printf("\n");
    fflush(stdout);
}

/* ---- train, compare ----------------------------------------------------------------------- */

static int train(int argc, char **argv, bool compare)
{
    static file_list   files;
    static const char *out;
    static int64_t     vocab = 1024;
    static int         split;
    static option      options[] = {
        FILES_ROW("data", &files, "text; several are joined", NEVER),
        WORDS_ROW("split", &split, SPLIT_WORDS, "what stands between two stories, for the tokens a story", NEVER),
        TEXT_ROW("out", &out, "FILE", "where tokenizer.json goes", NEVER),
        COUNT_ROW("vocab", &vocab, "so many tokens; 1024", 4, 65536, NEVER),
    };
    static usage u = {"tokenizer train", "TEXT... --vocab N --out FILE",
                      "Trains a WordPiece tokenizer; the same text gives the same one.", NULL,
                      options, sizeof options / sizeof *options};
    static const int64_t sizes[] = {4096, 2048, 1024};
    tn_tokenizer_desc desc;
    tn_ctx *ctx;
    char   *text;
    size_t  bytes, i;
    if (compare) {
        u.command = "tokenizer compare";
        u.arguments = "TEXT...";
        u.about = "Trains tokenizers of 4096, 2048 and 1024 tokens, and prints the tokens a story beside those of the "
                  "document on story models.";
        u.count = 2;
    }
    read_options_and_files(&u, argc, argv, &files);
    memset(&desc, 0, sizeof desc);
    desc.separator = STORY_MARK;
    if (!files.count) usage_error("tn %s wants a text", u.command);
    if (!compare && !out) usage_error("tn tokenizer train wants --out FILE");
    text = read_texts(&files, &bytes);
    ctx = new_context();
    for (i = 0; i < (compare ? sizeof sizes / sizeof *sizes : 1); i++) {
        tn_tokenizer *t = tn_tokenizer_train(ctx, text, bytes, compare ? sizes[i] : vocab, &desc);
        check_ctx(ctx, "training the tokenizer");
        if (!compare) save_tokenizer(out, t, ctx);
        print_tokens_per_story(t, text, bytes, (split_kind)split);
    }
    if (!compare) printf("written: %s\n", out);
    tn_ctx_destroy(ctx);
    free(text);
    return 0;
}

/* ---- encode, decode --------------------------------------------------------------------------- */

static int32_t *encode(const tn_tokenizer *t, const char *text, size_t bytes, bool bos, int64_t *count)
{
    int64_t  room_for = (int64_t)bytes + 1;
    int32_t *ids = (int32_t *)allocate((size_t)room_for, sizeof *ids);
    *count = tn_encode(t, text, bytes, bos, ids, room_for, NULL);
    if (*count < 0 || *count > room_for) fail("the tokenizer failed on a text of %zu bytes", bytes);
    return ids;
}

static void encode_lines(const tn_tokenizer *t, const char *name, const char *text, size_t bytes, bool bos)
{
    buffer      string = {0};
    const char *end = text + bytes, *stop;
    int64_t     line = 0, n, i;
    for (; text < end; text = stop + 1) {
        const char *to, *bad, *from;
        int32_t    *ids;
        stop = (const char *)memchr(text, '\n', (size_t)(end - text));
        if (!stop) stop = end;
        line++;
        if (strspn(text, " \t\r") >= (size_t)(stop - text)) continue;
        from = json_find(text, stop, "text", &to, &bad);
        if (bad) fail("%s:%lld: no JSON object: %s", name, (long long)line, bad);
        string.bytes = 0;
        if (!from || !json_unquote(from, to, &string))
            fail("%s:%lld: \"text\" is %s", name, (long long)line, from ? "no string" : "missing");
        ids = encode(t, string.data, string.bytes, bos, &n);
        printf("{\"ids\": [");
        for (i = 0; i < n; i++) printf(i ? ", %d" : "%d", (int)ids[i]);
        printf("]}\n");
        free(ids);
    }
    free(string.data);
}

static int encode_main(int argc, char **argv)
{
    static const char *tokenizer, *shard;
    static bool        lines, no_bos;
    static option      options[] = {
        TEXT_ROW("tokenizer", &tokenizer, "FILE", "tokenizer.json; without it: bytes", NEVER),
        FLAG_ROW("jsonl", &lines, "reads lines {\"text\": ...}, prints lines {\"ids\": [...]}", NEVER),
        TEXT_ROW("shard", &shard, "FILE", "writes a token shard (llm.c's format) instead of printing", NEVER),
        FLAG_ROW("no-bos", &no_bos, "no [BOS] at the beginning", NEVER),
    };
    static const usage u = {"tokenizer encode", "[TEXT] --tokenizer FILE",
                            "Prints the ids of a text (a file, or the standard input).",
                            "A shard has [BOS] before each story of a text with " STORY_MARK ".",
                            options, sizeof options / sizeof *options};
    int           arguments = read_options(&u, argc, argv, 1);
    const char   *path = arguments ? argv[0] : "-";
    tn_ctx       *ctx = new_context();
    tn_tokenizer *t = open_tokenizer(ctx, tokenizer);
    size_t        bytes, first;
    char         *text;
    int64_t       n, i, faults;
    int32_t      *ids;
    if (lines && shard) usage_error("--jsonl and --shard exclude each other");
    text = read_file(path, &bytes);
    if (lines) encode_lines(t, path, text, bytes, !no_bos);
    else {
        faults = utf8_errors(text, bytes, &first);
        if (faults)
            warn("%s: %lld bytes are no UTF-8, the first at byte %zu; each is %s", path, (long long)faults, first,
                 tn_tokenizer_is_bytes(t) ? "kept as it is" : "read as U+FFFD");
        if (shard) {
            double text_bytes, hidden;
            n = encode_text(t, text, bytes, &ids, &text_bytes, &hidden);
            write_shard(shard, ctx, ids, n, tn_tokenizer_count(t));
            printf("tokens: %lld\nwritten: %s\n", (long long)n, shard);
        } else {
            ids = encode(t, text, bytes, !no_bos, &n);
            for (i = 0; i < n; i++) printf(i ? " %d" : "%d", (int)ids[i]);
            printf("\n");
        }
        free(ids);
    }
    free(text);
    tn_ctx_destroy(ctx);
    return 0;
}

/* What the ids of text[0..bytes) stand for. There is a zero after them. */
static char *decode(const tn_tokenizer *t, const char *name, const char *text, size_t bytes, size_t *length)
{
    const char *at = text;
    int32_t    *ids = (int32_t *)allocate(bytes / 2 + 1, sizeof *ids);
    int64_t     count = 0;
    char       *words;
    while (*(at += strspn(at, " \t\r\n,[]"))) {
        char *end;
        long  id = strtol(at, &end, 10);
        if (end == at) fail("%s: \"%.20s\" is no id", name, at);
        if (id < 0 || id >= tn_tokenizer_count(t)) fail("%s: id %ld is outside the vocabulary of %lld", name, id,
                                                        (long long)tn_tokenizer_count(t));
        ids[count++] = (int32_t)id;
        at = end;
    }
    if (at != text + bytes) fail("%s: byte %zu is zero, and no id", name, (size_t)(at - text));
    words = decode_tokens(t, ids, count, length);
    free(ids);
    return words;
}

static void decode_lines(const tn_tokenizer *t, const char *name, const char *text, size_t bytes)
{
    const char *end = text + bytes, *stop;
    int64_t     line = 0;
    for (; text < end; text = stop + 1) {
        const char *to, *bad, *from;
        char       *ids, *words, *where;
        buffer      quoted = {0};
        size_t      length;
        stop = (const char *)memchr(text, '\n', (size_t)(end - text));
        if (!stop) stop = end;
        line++;
        if (strspn(text, " \t\r") >= (size_t)(stop - text)) continue;
        where = format_text("%s:%lld", name, (long long)line);
        from = json_find(text, stop, "ids", &to, &bad);
        if (bad) fail("%s: no JSON object: %s", where, bad);
        if (!from) fail("%s: \"ids\" is missing", where);
        ids = format_text("%.*s", (int)(to - from), from);
        words = decode(t, where, ids, strlen(ids), &length);
        json_quote(&quoted, words, length);
        printf("{\"text\": %s}\n", quoted.data);
        free(quoted.data);
        free(words);
        free(ids);
        free(where);
    }
}

static int decode_main(int argc, char **argv)
{
    static const char *tokenizer;
    static option      options[] = {
        TEXT_ROW("tokenizer", &tokenizer, "FILE", "tokenizer.json; without it: bytes", NEVER),
    };
    static const usage u = {"tokenizer decode", "[FILE] --tokenizer FILE",
                            "Prints the text of ids, which blanks, commas, brackets or line ends keep apart (a file, or the "
                            "standard input).",
                            "Of lines {\"ids\": [...]}, as encode --jsonl prints them, it makes lines {\"text\": ...}.",
                            options, sizeof options / sizeof *options};
    int           arguments = read_options(&u, argc, argv, 1);
    const char   *path = arguments ? argv[0] : "-";
    tn_ctx       *ctx = new_context();
    tn_tokenizer *t = open_tokenizer(ctx, tokenizer);
    size_t        bytes, n;
    char         *text = read_file(path, &bytes), *words;
    if (text[strspn(text, " \t\r\n")] == '{') decode_lines(t, path, text, bytes);
    else {
        words = decode(t, path, text, bytes, &n);
        fwrite(words, 1, n, stdout);
        printf("\n");
        free(words);
    }
    free(text);
    tn_ctx_destroy(ctx);
    return 0;
}

int tokenizer_main(int argc, char **argv)
{
    const char *what = argc > 0 ? argv[0] : "";
    if (!strcmp(what, "train")) return train(argc - 1, argv + 1, false);
    if (!strcmp(what, "compare")) return train(argc - 1, argv + 1, true);
    if (!strcmp(what, "encode")) return encode_main(argc - 1, argv + 1);
    if (!strcmp(what, "decode")) return decode_main(argc - 1, argv + 1);
    if (!strcmp(what, "--help") || !strcmp(what, "-h")) {
        printf("usage: tn tokenizer train|encode|decode|compare ...\n(each tells more with --help)\n\n"
               "  train    a WordPiece tokenizer from text\n  encode   text to ids, or to a token shard\n"
               "  decode   ids to text\n"
               "  compare  tokens a story at three vocabularies\n");
        return 0;
    }
    usage_error("tn tokenizer is followed by train, encode, decode or compare, not \"%s\"", what);
    return EXIT_USAGE;
}
