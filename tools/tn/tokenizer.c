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
static int document_tokens(int64_t vocab) { return vocab == 4096 ? 188 : vocab == 2048 ? 203 : vocab == 1024 ? 229 : 0; }

/* The mean over stories, without [BOS]. */
static double tokens_per_story(const tn_tokenizer *t, const char *text, size_t bytes, split_kind split, int64_t *stories)
{
    size_t  at = 0, start = 0, length = 0;
    int64_t tokens = 0;
    *stories = 0;
    split = how_to_split(split, text, bytes);
    while (next_story(text, bytes, split, &at, &start, &length)) {
        tokens += tn_encode(t, text + start, length, false, NULL, 0, NULL);
        ++*stories;
    }
    return *stories ? (double)tokens / (double)*stories : 0;
}

static void print_tokens_per_story(const tn_tokenizer *t, const char *text, size_t bytes, split_kind split)
{
    int64_t vocab = tn_tokenizer_count(t), stories;
    double  mean = tokens_per_story(t, text, bytes, split, &stories);
    int     theirs = document_tokens(vocab);
    printf("vocabulary %lld: %.1f tokens a story (%lld stories)", (long long)vocab, mean, (long long)stories);
    if (theirs) printf(", in the document %d", theirs);
    printf("\n");
    fflush(stdout);
}

/* ---- train, compare ----------------------------------------------------------------------- */

static void write_tokenizer(tn_ctx *ctx, const tn_tokenizer *t, const char *path)
{
    atomic_file *f = (atomic_file *)room(1, sizeof *f);
    bool         good = atomic_open(f, path) && tn_tokenizer_write(t, tn_to_calls(atomic_store, f)) == TN_OK;
    if (good) good = atomic_commit(f);
    else atomic_abandon(f);
    if (!good) fail("cannot write %s: %s", path, f->error ? strerror(f->error) : tn_ctx_error(ctx));
    free(f);
}

static int train(int argc, char **argv, bool compare)
{
    static file_list   files;
    static const char *out;
    static int64_t     vocab = 1024;
    static int         split;
    static option      options[] = {
        {"data", OPTION_FILES, &files, "FILE", "text; several are joined", 0, 0, 0, false},
        {"split", OPTION_CHOICE, &split, SPLIT_WORDS, "what stands between two stories, for the tokens a story", 0, 0, 0,
            false},
        {"out", OPTION_TEXT, &out, "FILE", "where tokenizer.json goes", 0, 0, 0, false},
        {"vocab", OPTION_COUNT, &vocab, "N", "so many tokens; 1024", 4, 65536, 0, false},
    };
    static usage u = {"tokenizer train", " TEXT --vocab N --out FILE",
        "Trains a WordPiece tokenizer; the same text gives the same one.", NULL,
                      options, sizeof options / sizeof *options};
    static const int64_t sizes[] = {4096, 2048, 1024};
    tn_tokenizer_desc desc;
    tn_ctx *ctx;
    char   *text;
    size_t  bytes, i;
    if (compare) {
        u.command = "tokenizer compare";
        u.arguments = " TEXT";
        u.about = "Trains tokenizers of 4096, 2048 and 1024 tokens, and prints the tokens a story beside those of the\n"
                  "document on story models.";
        u.count = 2;
    }
    if (read_options(&u, argc, argv, 1)) add_file(&files, argv[0]);
    memset(&desc, 0, sizeof desc);
    desc.separator = STORY_MARK;
    if (!files.count) misuse("tn %s wants a text", u.command);
    if (!compare && !out) misuse("tn tokenizer train wants --out FILE");
    text = read_texts(&files, &bytes);
    ctx = new_context();
    for (i = 0; i < (compare ? sizeof sizes / sizeof *sizes : 1); i++) {
        tn_tokenizer *t = tn_tokenizer_train(ctx, text, bytes, compare ? sizes[i] : vocab, &desc);
        check(ctx, "training the tokenizer");
        if (!compare) write_tokenizer(ctx, t, out);
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
    int32_t *ids = (int32_t *)room((size_t)room_for, sizeof *ids);
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
        if (!from || !json_string(from, to, &string))
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
        {"tokenizer", OPTION_TEXT, &tokenizer, "FILE", "tokenizer.json; without it: bytes", 0, 0, 0, false},
        {"jsonl", OPTION_FLAG, &lines, "", "reads lines {\"text\": ...}, prints lines {\"ids\": [...]}", 0, 0, 0, false},
        {"shard", OPTION_TEXT, &shard, "FILE", "writes a token shard (llm.c's format) instead of printing", 0, 0, 0, false},
        {"no-bos", OPTION_FLAG, &no_bos, "", "no [BOS] at the beginning", 0, 0, 0, false},
    };
    static const usage u = {"tokenizer encode", " [TEXT] --tokenizer FILE",
        "Prints the ids of a text (a file, or the standard input).",
                            "A shard has [BOS] before each story of a text with " STORY_MARK ".", options,
                                sizeof options / sizeof *options};
    int           arguments = read_options(&u, argc, argv, 1);
    const char   *path = arguments ? argv[0] : "-";
    tn_ctx       *ctx = new_context();
    tn_tokenizer *t = open_tokenizer(ctx, tokenizer);
    size_t        bytes, first;
    char         *text;
    int64_t       n, i, faults;
    int32_t      *ids;
    if (lines && shard) misuse("--jsonl and --shard exclude each other");
    text = read_file(path, &bytes);
    if (lines) encode_lines(t, path, text, bytes, !no_bos);
    else {
        faults = utf8_faults(text, bytes, &first);
        if (faults) warn("%s: %lld bytes are no UTF-8, the first at byte %zu; each is read as U+FFFD", path,
                         (long long)faults, first);
        if (shard) {
            double       text_bytes, hidden;
            atomic_file *f = (atomic_file *)room(1, sizeof *f);
            bool         good;
            n = encode_text(t, text, bytes, &ids, &text_bytes, &hidden);
            good = atomic_open(f, shard) && tn_shard_write(ctx, tn_to_calls(atomic_store, f), ids, n,
                                                           tn_tokenizer_count(t)) == TN_OK;
            if (good) good = atomic_commit(f);
            else atomic_abandon(f);
            if (!good) fail("cannot write %s: %s", shard, f->error ? strerror(f->error) : tn_ctx_error(ctx));
            printf("tokens: %lld\nwritten: %s\n", (long long)n, shard);
            free(f);
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

static int decode_main(int argc, char **argv)
{
    static const char *tokenizer;
    static option      options[] = {
        {"tokenizer", OPTION_TEXT, &tokenizer, "FILE", "tokenizer.json; without it: bytes", 0, 0, 0, false},
    };
    static const usage u = {"tokenizer decode", " [FILE] --tokenizer FILE",
        "Prints the text of ids, which blanks, commas, brackets or line ends keep apart (a file, or the standard input).",
                            NULL, options, sizeof options / sizeof *options};
    int           arguments = read_options(&u, argc, argv, 1);
    const char   *path = arguments ? argv[0] : "-";
    tn_ctx       *ctx = new_context();
    tn_tokenizer *t = open_tokenizer(ctx, tokenizer);
    size_t        bytes, n;
    char         *text = read_file(path, &bytes), *at = text, *words;
    int32_t      *ids = (int32_t *)room(bytes / 2 + 1, sizeof *ids);
    int64_t       count = 0;
    while (*(at += strspn(at, " \t\r\n,[]"))) {
        char *end;
        long  id = strtol(at, &end, 10);
        if (end == at) fail("%s: \"%.20s\" is no id", path, at);
        if (id < 0 || id >= tn_tokenizer_count(t)) fail("%s: id %ld is outside the vocabulary of %lld", path, id,
                                                        (long long)tn_tokenizer_count(t));
        ids[count++] = (int32_t)id;
        at = end;
    }
    if (at != text + bytes) fail("%s: byte %zu is zero, and no id", path, (size_t)(at - text));
    words = decode_tokens(t, ids, count, &n);
    fwrite(words, 1, n, stdout);
    printf("\n");
    free(words);
    free(ids);
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
        printf("usage: tn tokenizer train|encode|decode|compare ... (each tells more with --help)\n\n"
               "  train    a WordPiece tokenizer from text\n  encode   text to ids, or to a token shard\n"
               "  decode   ids to text\n"
               "  compare  tokens a story at three vocabularies\n");
        return 0;
    }
    misuse("tn tokenizer is followed by train, encode, decode or compare, not \"%s\"", what);
    return EXIT_USE;
}
