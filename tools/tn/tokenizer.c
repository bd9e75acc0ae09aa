/* tokenizer.c - tn tokenizer train, encode, decode, compare */
#include "tn.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static tn_tokenizer *train_tokenizer(tn_ctx *ctx, const char *text, size_t bytes, int64_t vocab)
{
    tn_tokenizer_train_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.separator = STORY_MARK;
    tn_tokenizer *t = tn_tokenizer_train(ctx, text, bytes, vocab, &desc);
    check_ctx(ctx, "training the tokenizer");
    return t;
}

/* ---- tokens per story ---------------------------------------------------------------- */

/* The mean over stories, without [BOS]. */
static double tokens_per_story(const tn_tokenizer *t, const char *text, size_t bytes, split_kind split, int64_t *stories)
{
    size_t  at = 0, start = 0, length = 0;
    int64_t tokens = 0;
    *stories = 0;
    while (next_story(text, bytes, split, &at, &start, &length)) {
        tokens += tn_tokenizer_encode(t, text + start, length, TN_BOS_NONE, NULL, 0, NULL);
        ++*stories;
    }
    return *stories ? (double)tokens / (double)*stories : 0;
}

static void print_tokens_per_story(const tn_tokenizer *t, const char *text, size_t bytes, split_kind split)
{
    const split_kind how = resolve_split(split, text, bytes);
    int64_t vocab = tn_tokenizer_count(t), stories;
    double  mean = tokens_per_story(t, text, bytes, how, &stories);
    print("vocabulary %lld: %.1f tokens per %s (%lld %s)\n", (long long)vocab, mean, split_name(how, false),
           (long long)stories, split_name(how, true));
    fflush(stdout);
}

/* ---- train, compare ----------------------------------------------------------------------- */

static struct { file_list files; const char *out; int64_t vocab; int split; } training = { .vocab = 1024 };

static option training_options[] = {
    FILES_ROW("data", &training.files, "a text; several are joined", NEVER),
    WORDS_ROW("split", &training.split, SPLIT_WORDS, "what separates two stories, for the tokens per story", NEVER),
    TEXT_ROW("out", &training.out, "FILE", "the tokenizer.json to write", NEVER),
    COUNT_ROW("vocab", &training.vocab, "number of tokens", 4, 1e9, NEVER),
};

const usage tokenizer_train_usage = {
    "tokenizer train", "TEXT... --vocab N --out FILE", "train a WordPiece tokenizer on text",
    "Trains a WordPiece tokenizer. The same text gives the same tokenizer.", NULL,
    training_options, sizeof training_options / sizeof *training_options, INT_MAX, NULL
};

const usage tokenizer_compare_usage = {
    "tokenizer compare", "TEXT...", "print tokens per story for three sizes of vocabulary",
    "Trains tokenizers of 4096, 2048 and 1024 tokens, and prints how many tokens a story takes with each.", NULL,
    training_options, 2, INT_MAX, NULL
};

int tokenizer_train_main(int argc, char **argv)
{
    size_t bytes;
    read_options_and_files(&tokenizer_train_usage, argc, argv, &training.files);
    if (!training.files.count) usage_error("no text is given, expected tn tokenizer train TEXT --out FILE");
    if (!training.out) usage_error("no --out is given, expected tn tokenizer train TEXT --out FILE");
    check_not_inputs("out", training.out, "the text", &training.files);
    char         *text = read_texts(&training.files, &bytes);
    tn_ctx       *ctx = new_context();
    tn_tokenizer *t = train_tokenizer(ctx, text, bytes, training.vocab);
    if (tn_tokenizer_count(t) < training.vocab)
        warn("--vocab is %lld, but the text gives only %lld tokens", (long long)training.vocab,
             (long long)tn_tokenizer_count(t));
    save_tokenizer(training.out, BY_USER, t, ctx);
    print_tokens_per_story(t, text, bytes, (split_kind)training.split);
    print("written: %s\n", training.out);
    tn_ctx_destroy(ctx);
    free(text);
    return 0;
}

int tokenizer_compare_main(int argc, char **argv)
{
    size_t bytes;
    read_options_and_files(&tokenizer_compare_usage, argc, argv, &training.files);
    if (!training.files.count) usage_error("no text is given, expected tn tokenizer compare TEXT");
    char   *text = read_texts(&training.files, &bytes);
    tn_ctx *ctx = new_context();
    for (int64_t vocab = 4096; vocab >= 1024; vocab /= 2)
        print_tokens_per_story(train_tokenizer(ctx, text, bytes, vocab), text, bytes, (split_kind)training.split);
    tn_ctx_destroy(ctx);
    free(text);
    return 0;
}

/* ---- encode, decode --------------------------------------------------------------------------- */

static void encode_lines(tn_ctx *ctx, const tn_tokenizer *t, const char *name, const char *text, size_t bytes, tn_bos bos)
{
    token_list  l = {0};
    buffer      string = {0};
    const char *end = text + bytes, *stop;
    int64_t     line = 0;
    for (; text < end; text = stop + 1) {
        const char *to, *bad;
        stop = (const char *)memchr(text, '\n', (size_t)(end - text));
        if (!stop) stop = end;
        line++;
        if (strspn(text, " \t\r") >= (size_t)(stop - text)) continue;
        const char *from = json_find(text, stop, "text", &to, &bad);
        if (bad) fail("%s:%lld: invalid JSON object: %s", name, (long long)line, bad);
        string.bytes = 0;
        if (!from || !json_unquote(from, to, &string))
            fail("%s:%lld: \"text\" is %.*s, expected a string", name, (long long)line, from ? (int)(to - from) : 7,
                 from ? from : "missing");
        l.count = 0;
        add_tokens(&l, ctx, t, string.data, string.bytes, bos, false);
        print("{\"ids\": [");
        for (int64_t i = 0; i < l.count; i++) print(i ? ", %d" : "%d", (int)l.ids[i]);
        print("]}\n");
    }
    free(l.ids);
    free(string.data);
}

static struct { const char *tokenizer, *shard; bool jsonl, no_bos; } encoding;

static option encoding_options[] = {
    TEXT_ROW("tokenizer", &encoding.tokenizer, "FILE", "a tokenizer.json; without it, tokens are bytes", NEVER),
    FLAG_ROW("jsonl", &encoding.jsonl, "read lines {\"text\": ...}, print lines {\"ids\": [...]}", NEVER),
    TEXT_ROW("shard", &encoding.shard, "FILE", "write a token shard (llm.c's format) instead of printing", NEVER),
    FLAG_ROW("no-bos", &encoding.no_bos, "no [BOS] at the beginning", NEVER),
};

const usage tokenizer_encode_usage = {
    "tokenizer encode", "[TEXT] --tokenizer FILE", "encode text as token ids, or as a token shard",
    "Prints the token ids of a text: of a file, or of the standard input.",
    "A shard has [BOS] before each story of a text with " STORY_MARK ".",
    encoding_options, sizeof encoding_options / sizeof *encoding_options, 1, NULL
};

int tokenizer_encode_main(int argc, char **argv)
{
    int          arguments = read_options(&tokenizer_encode_usage, argc, argv);
    const char  *path = arguments ? argv[0] : "-";
    size_t       bytes;
    token_list   l = {0};
    const tn_bos bos = encoding.no_bos ? TN_BOS_NONE : TN_BOS_FIRST;
    if (encoding.jsonl && encoding.shard) usage_error("--jsonl and --shard are given, expected one of them");
    if (encoding.no_bos && encoding.shard) usage_error("--no-bos and --shard are given, expected one of them");
    check_not_input("shard", encoding.shard, "the text", arguments ? path : NULL);
    check_not_input("shard", encoding.shard, "the tokenizer", encoding.tokenizer);
    tn_ctx       *ctx = new_context();
    tn_tokenizer *t = open_tokenizer(ctx, encoding.tokenizer);
    if (bos && !encoding.shard && tn_tokenizer_bos(t) < 0)
        fail("%s has no [BOS] to put before the text, expected --no-bos", encoding.tokenizer);
    char *text = read_file(path, BY_USER, &bytes);
    if (encoding.jsonl) encode_lines(ctx, t, path, text, bytes, bos);
    else {
        size_t  first;
        int64_t faults = utf8_errors(text, bytes, &first);
        if (faults)
            warn("%s: %lld bytes are not valid UTF-8, the first is byte %zu; each is %s", path, (long long)faults, first,
                 tn_tokenizer_is_bytes(t) ? "kept" : "read as U+FFFD");
        if (encoding.shard) {
            double text_bytes, hidden;
            l.count = encode_text(ctx, t, text, bytes, SPLIT_AUTO, &l.ids, &text_bytes, &hidden);
            write_shard(encoding.shard, ctx, l.ids, l.count, tn_tokenizer_count(t));
            print("tokens: %lld\nwritten: %s\n", (long long)l.count, encoding.shard);
        } else {
            add_tokens(&l, ctx, t, text, bytes, bos, false);
            for (int64_t i = 0; i < l.count; i++) print(i ? " %d" : "%d", (int)l.ids[i]);
            print("\n");
        }
        free(l.ids);
    }
    free(text);
    tn_ctx_destroy(ctx);
    return 0;
}

/* Decodes the ids in text[0..bytes), which a zero follows. */
static char *decode(const tn_tokenizer *t, const char *name, const char *text, size_t bytes, size_t *length)
{
    const char *at = text;
    int32_t    *ids = (int32_t *)allocate(bytes / 2 + 1, sizeof *ids);
    int64_t     count = 0;
    while (*(at += strspn(at, " \t\r\n,[]"))) {
        char *end;
        long  id = strtol(at, &end, 10);
        if (end == at) fail("%s: unexpected \"%.*s\", expected an id", name, (int)strcspn(at, " \t\r\n,[]"), at);
        if (id < 0 || id >= tn_tokenizer_count(t)) 
            fail("%s: id %ld is outside the vocabulary, expected 0 <= id < %lld", name, id,
                 (long long)tn_tokenizer_count(t));
        ids[count++] = (int32_t)id;
        at = end;
    }
    if (at != text + bytes) fail("%s: byte %zu is zero, expected an id", name, (size_t)(at - text));
    char *words = decode_tokens(t, ids, count, length);
    free(ids);
    return words;
}

static void decode_lines(const tn_tokenizer *t, const char *name, const char *text, size_t bytes)
{
    const char *end = text + bytes, *stop;
    int64_t     line = 0;
    for (; text < end; text = stop + 1) {
        const char *to, *bad;
        buffer      quoted = {0};
        size_t      length;
        stop = (const char *)memchr(text, '\n', (size_t)(end - text));
        if (!stop) stop = end;
        line++;
        if (strspn(text, " \t\r") >= (size_t)(stop - text)) continue;
        char       *where = format_text("%s:%lld", name, (long long)line);
        const char *from = json_find(text, stop, "ids", &to, &bad);
        if (bad) fail("%s: invalid JSON object: %s", where, bad);
        if (!from) fail("%s: \"ids\" is missing, expected a list of ids", where);
        char *ids = format_text("%.*s", (int)(to - from), from);
        char *words = decode(t, where, ids, strlen(ids), &length);
        json_quote(&quoted, words, length);
        print("{\"text\": %s}\n", quoted.data);
        free(quoted.data);
        free(words);
        free(ids);
        free(where);
    }
}

static const char *decoding_tokenizer;

static option decoding_options[] = {
    TEXT_ROW("tokenizer", &decoding_tokenizer, "FILE", "a tokenizer.json; without it, tokens are bytes", NEVER),
};

const usage tokenizer_decode_usage = {
    "tokenizer decode", "[FILE] --tokenizer FILE", "decode token ids to text",
    "Prints the text of token ids: of a file, or of the standard input. Spaces, commas, brackets or line ends separate the "
    "ids.",
    "Lines {\"ids\": [...]}, as tn tokenizer encode --jsonl prints them, become lines {\"text\": ...}.",
    decoding_options, sizeof decoding_options / sizeof *decoding_options, 1, NULL
};

int tokenizer_decode_main(int argc, char **argv)
{
    int           arguments = read_options(&tokenizer_decode_usage, argc, argv);
    const char   *path = arguments ? argv[0] : "-";
    tn_ctx       *ctx = new_context();
    tn_tokenizer *t = open_tokenizer(ctx, decoding_tokenizer);
    size_t        bytes;
    char         *text = read_file(path, BY_USER, &bytes);
    if (text[strspn(text, " \t\r\n")] == '{') decode_lines(t, path, text, bytes);
    else {
        size_t n;
        char  *words = decode(t, path, text, bytes, &n);
        if (isatty(STDOUT_FILENO)) print_text(words, n);
        else print_raw(words, n);
        print("\n");
        free(words);
    }
    free(text);
    tn_ctx_destroy(ctx);
    return 0;
}
