/* generate.c - tn generate: generates text with a model */
#include "tn.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    const char *prompt, *prompt_file, *prompt_ids, *tokenizer, *stop;
    int64_t     length, more, count, seed, top_k, threads, device;
    int         backend, weights;
    double      temperature, top_p;
    bool        no_stop, ids, logprobs, raw, interactive;
} settings = { .count = 1, .seed = 1, .temperature = 0.8, .top_p = 0.95 };

static option options[] = {
    TEXT_ROW("prompt", &settings.prompt, "TEXT", "how the text begins", NEVER),
    TEXT_ROW("prompt-file", &settings.prompt_file, "FILE", "the same from a file, or with - from the standard input, "
             "without the newline at its end", NEVER),
    TEXT_ROW("prompt-ids", &settings.prompt_ids, "IDS", "the same as token ids, such as \"1 2 3\"; no [BOS] is put before "
             "them", NEVER),
    FLAG_ROW("interactive", &settings.interactive, "continue each line of the standard input", NEVER),
    AUTO_COUNT_ROW("new", &settings.more, "number of new tokens per text; auto: until --length is reached", 1, 1e9, NEVER),
    AUTO_COUNT_ROW("length", &settings.length, "number of tokens per text, including the prompt's; auto: the model's "
                   "context", 1, 1e9, NEVER),
    COUNT_ROW("count", &settings.count, "number of texts", 1, 1e9, NEVER),
    NUMBER_ROW("temperature", &settings.temperature, "temperature of the sampling; 0: always the most likely token", 0, 1e3,
               NEVER),
    COUNT_ROW("top-k", &settings.top_k, "sample from the N most likely tokens; 0 (the default): from all", 0, 1e9, NEVER),
    NUMBER_ROW("top-p", &settings.top_p, "sample from the most likely tokens that together have this probability; 0 or 1: "
               "from all", 0, 1, NEVER),
    COUNT_ROW("seed", &settings.seed, "the same seed gives the same text", 0, 9e15, NEVER),
    TEXT_ROW("stop", &settings.stop, "TEXT", "end before the first TEXT that is generated", NEVER),
    FLAG_ROW("no-stop", &settings.no_stop, "continue after the end of a text", NEVER),
    FLAG_ROW("ids", &settings.ids, "print token ids instead of text", NEVER),
    FLAG_ROW("logprobs", &settings.logprobs, "print a line for each new token: its id, the natural logarithm of the "
             "probability that the model gives it (at temperature 1, among all tokens), and the token", NEVER),
    FLAG_ROW("raw", &settings.raw, "print control characters as they are; without it all but tab and newline become ?",
             NEVER),
    TEXT_ROW("tokenizer", &settings.tokenizer, "FILE", "a tokenizer.json; the default is the one beside the weights", NEVER),
    WORDS_ROW("weights", &settings.weights, WEIGHTS_WORDS, "round the weights: bf16 and int8 take a half and a quarter of the "
              "bytes to read per token; the error is printed", NEVER),
    WORDS_ROW("backend", &settings.backend, BACKEND_WORDS, "reference: plain loops, slow; cuda: a GPU", NEVER),
    COUNT_ROW("device", &settings.device, "number of the GPU; 0, the first, is the default", 0, 1024, NEVER),
    AUTO_COUNT_ROW("threads", &settings.threads, "number of threads; auto: one per core", 1, 1024, NEVER),
};

const usage generate_usage = {
    "generate", "RUN|CHECKPOINT [--prompt TEXT]", "generate text with a model",
    "Generates text with a model and prints each token as soon as it is generated.", NULL,
    options, sizeof options / sizeof *options, 1, NULL
};

/* ---- printing ------------------------------------------------------------------------------- */

static void show_text(void *user, const char *text, size_t bytes)
{
    (void)user;
    if (settings.raw) print_raw(text, bytes);
    else print_text(text, bytes);
    fflush(stdout);
}

static void print_logprob(void *m, int32_t id, double logprob)
{
    const tn_tokenizer *t = ((const model *)m)->tokenizer;
    buffer              token = {0};
    if (t) json_quote(&token, tn_tokenizer_token(t, id), strlen(tn_tokenizer_token(t, id)));
    print(t ? "%d\t%.6f\t%s\n" : "%d\t%.6f\n", (int)id, logprob, token.data);
    fflush(stdout);
    free(token.data);
}

/* ---- prompts ---------------------------------------------------------------------------------- */

/* Ends the program with that status and message; but with --interactive only a line is wrong, and -1 is returned. */
static int64_t refuse(int status, char *why)
{
    if (!settings.interactive && status == EXIT_USAGE) usage_error("%s", why);
    if (!settings.interactive) fail("%s", why);
    warn("%s", why);
    free(why);
    return -1;
}

/* The ids in a text, a new list. name: of the option, for messages. -1: see refuse. */
static int64_t read_ids(const model *m, const char *text, const char *name, int32_t **ids)
{
    char         *why;
    int           status;
    const int64_t count = listed_ids(m, text, ids, &why, &status);
    if (!why) return count;
    char *message = format_text("%s: %s", name, why);
    free(why);
    return refuse(status, message);
}

/* The prompt of the options, a new string; "" if there is none. */
static char *given_prompt(void)
{
    const int given = (settings.prompt != NULL) + (settings.prompt_file != NULL) + (settings.prompt_ids != NULL) +
                      settings.interactive;
    size_t    bytes;
    if (given > 1)
        usage_error("%d of --prompt, --prompt-file, --prompt-ids and --interactive are given, expected one", given);
    if (!settings.prompt_file) return copy_text(settings.prompt ? settings.prompt : "");
    char *text = read_file(settings.prompt_file, BY_USER, &bytes);
    if (strlen(text) != bytes) fail("%s: byte %zu is zero, expected text", settings.prompt_file, strlen(text));
    if (bytes && text[bytes - 1] == '\n') text[bytes - 1] = 0;
    return text;
}

/* The next line of the standard input without its newline, a new string; NULL at the end. */
static char *read_line(void)
{
    buffer b = {0};
    int    c;
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
        print("> ");
        fflush(stdout);
    }
    buffer_add(&b, "", 0);
    while ((c = getchar()) != EOF && c != '\n') {
        const char byte = (char)c;
        buffer_add(&b, &byte, 1);
    }
    if (!settings.raw) fold_output();                 /* the terminal is at the beginning of a line */
    if (c != EOF || b.bytes) return b.data;
    free(b.data);
    return NULL;
}

/* ---- texts ------------------------------------------------------------------------------------ */

/* The tokens that a text begins with, a new list. -1: see refuse. */
static int64_t first_tokens(const model *m, const char *prompt, uint64_t seed, int32_t **ids)
{
    int64_t n;
    if (settings.prompt_ids) n = read_ids(m, settings.prompt_ids, "--prompt-ids", ids);
    else if (m->tokenizer) n = prompt_tokens(m, prompt, seed, ids);
    else n = read_ids(m, prompt, "the prompt, which is of ids without a --tokenizer", ids);
    if (n != 0) return n;
    if (settings.prompt_ids) usage_error("--prompt-ids is \"%s\", expected ids such as \"1 2 3\"", settings.prompt_ids);
    return refuse(EXIT_ERROR, copy_text(m->tokenizer ?
        "no prompt is given, and the tokenizer has no [BOS] to begin with, expected --prompt TEXT" :
        "no prompt is given, and there is no tokenizer with a [BOS], expected --prompt-ids \"1 2 3\""));
}

/* --count texts that begin with the prompt; number: of the first of them, which chooses its random numbers. */
static void write_texts(model *m, const char *prompt, uint64_t number)
{
    for (int64_t k = 0; k < settings.count; k++) {
        sampling s = { .temperature = settings.temperature, .top_p = settings.top_p, .top_k = settings.top_k,
                       .seed = splitmix64((uint64_t)settings.seed) + number + (uint64_t)k, .no_stop = settings.no_stop,
                       .stop = settings.stop, .show = settings.ids || settings.logprobs ? NULL : show_text,
                       .chosen = settings.logprobs ? print_logprob : NULL, .user = m };
        int32_t *ids;
        int64_t  n = first_tokens(m, prompt, s.seed, &ids);
        if (n < 0) {
            free(ids);
            return;
        }
        s.length = settings.more ? n + settings.more : settings.length ? settings.length : m->desc.context;
        if (n >= s.length) {
            refuse(EXIT_ERROR, format_text("the prompt has %lld tokens, expected fewer than %s %lld%s", (long long)n,
                                           settings.length ? "--length" : "the model's context,", (long long)s.length,
                                           settings.length ? "" : ": --new N continues it all the same"));
            free(ids);
            return;
        }
        if (s.length > m->desc.context && k == 0 && number == 0)
            warn("texts of %lld tokens are longer than the model's context of %lld tokens: it was not trained for that",
                 (long long)s.length, (long long)m->desc.context);
        ids = (int32_t *)resize(ids, (size_t)s.length, sizeof *ids);
        n = generate_tokens(m, ids, n, &s);
        for (int64_t i = 0; settings.ids && i < n; i++) print(i ? " %d" : "%d", (int)ids[i]);
        if (!settings.logprobs) print("\n");
        if (k + 1 < settings.count && !settings.ids) print("\n");
        fflush(stdout);
        free(ids);
    }
}

/* Each line of the standard input is a prompt. */
static void converse(model *m)
{
    uint64_t number = 0;
    char    *line;
    while ((line = read_line()) != NULL) {
        if (*line) {
            if (m->tokenizer) report_unknown(m, line);
            write_texts(m, line, number);
            number += (uint64_t)settings.count;
        }
        free(line);
    }
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) print("\n");
}

int generate_main(int argc, char **argv)
{
    const int arguments = read_options(&generate_usage, argc, argv);
    tn_desc   desc;
    model     m;
    memset(&desc, 0, sizeof desc);
    desc.threads = (int)settings.threads;
    desc.log = show_log;
    use_backend(&desc, settings.backend, settings.device);
    if (!arguments) usage_error("no model is given, expected tn generate RUN, or tn generate CHECKPOINT");
    if (settings.more && settings.length) usage_error("--new is given with --length, expected one of them");
    if (settings.ids && settings.logprobs) usage_error("--ids is given with --logprobs, expected one of them");
    if (settings.stop && !*settings.stop) usage_error("--stop is empty, expected a text");
    char *prompt = given_prompt();
    if (!settings.raw) fold_output();
    open_model(&m, argv[0], settings.tokenizer, &desc, NULL);
    if (!m.tokenizer && !settings.ids && !settings.logprobs)
        fail("%s has no tokenizer: it was trained on token shards. Give --tokenizer FILE; or --ids, for ids instead of text",
             argv[0]);
    compact_model(&m, settings.weights);
    if (settings.stop && !m.tokenizer) usage_error("--stop is given without a tokenizer, expected --tokenizer FILE");
    if (m.start_count && !*prompt && !settings.prompt_ids && !settings.interactive)
        warn("the training text had no " STORY_MARK ": each text begins with a word of it, drawn by the seed");
    if (m.tokenizer && *prompt) report_unknown(&m, prompt);
    if (settings.interactive) converse(&m);
    else write_texts(&m, prompt, 0);
    free(prompt);
    close_model(&m);
    return 0;
}
