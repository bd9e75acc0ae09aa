/* generate.c - tn generate: generates text with a model */
#include "tn.h"
#include <stdlib.h>
#include <string.h>

static void print_text(void *user, const char *text, size_t bytes)
{
    (void)user;
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
}

static struct {
    const char *prompt, *tokenizer;
    int64_t     length, count, seed, top_k, threads, device;
    int         backend;
    double      temperature, top_p;
    bool        no_stop, ids;
} settings = { .prompt = "", .count = 1, .seed = 1, .temperature = 0.8, .top_p = 0.95 };

static option options[] = {
    TEXT_ROW("prompt", &settings.prompt, "TEXT", "how the text begins", NEVER),
    COUNT_ROW("length", &settings.length, "tokens per text, including the prompt's; 0 (the default): the model's context",
              0, 1e9, NEVER),
    COUNT_ROW("count", &settings.count, "number of texts", 1, 1e9, NEVER),
    NUMBER_ROW("temperature", &settings.temperature, "temperature of the sampling; 0: always the most likely token", 0, 1e3,
               NEVER),
    COUNT_ROW("top-k", &settings.top_k, "sample from the N most likely tokens; 0 (the default): from all", 0, 1e9, NEVER),
    NUMBER_ROW("top-p", &settings.top_p, "sample from the most likely tokens that together have this probability; 0 or 1: "
               "from all", 0, 1, NEVER),
    COUNT_ROW("seed", &settings.seed, "the same seed gives the same text", 0, 9e15, NEVER),
    FLAG_ROW("no-stop", &settings.no_stop, "continue after the end of a text", NEVER),
    FLAG_ROW("ids", &settings.ids, "print token ids instead of text", NEVER),
    TEXT_ROW("tokenizer", &settings.tokenizer, "FILE", "a tokenizer.json; the default is the one beside the weights", NEVER),
    WORDS_ROW("backend", &settings.backend, BACKEND_WORDS, "reference: plain loops, slow; cuda: a GPU", NEVER),
    COUNT_ROW("device", &settings.device, "number of the GPU; 0, the first, is the default", 0, 1024, NEVER),
    AUTO_COUNT_ROW("threads", &settings.threads, "number of threads; auto: one per core", 1, 1024, NEVER),
};

const usage generate_usage = {
    "generate", "RUN|CHECKPOINT [--prompt TEXT]", "generate text with a model",
    "Generates text with a model and prints each token as soon as it is generated.", NULL,
    options, sizeof options / sizeof *options, 1
};

int generate_main(int argc, char **argv)
{
    const int arguments = read_options(&generate_usage, argc, argv);
    tn_desc   desc;
    model     m;
    int64_t   k, n, length;
    int32_t  *first, *ids;
    memset(&desc, 0, sizeof desc);
    desc.threads = (int)settings.threads;
    desc.log = show_log;
    use_backend(&desc, settings.backend, settings.device);
    if (!arguments) usage_error("no model is given, expected tn generate RUN, or tn generate CHECKPOINT");
    open_model(&m, argv[0], settings.tokenizer, &desc, NULL);
    length = settings.length ? settings.length : m.desc.context;
    if (length > m.desc.context)
        warn("--length is %lld, more than the model's context of %lld tokens: it was not trained for that",
             (long long)length, (long long)m.desc.context);
    if (m.start_count && !*settings.prompt)
        warn("the training text had no " STORY_MARK ": each text begins with a word of it, drawn by the seed");
    ids = (int32_t *)allocate((size_t)length, sizeof *ids);
    for (k = 0; k < settings.count; k++) {
        sampling s = {settings.temperature, settings.top_p, settings.top_k, length,
                      splitmix64((uint64_t)settings.seed) + (uint64_t)k, settings.no_stop,
                      settings.ids ? NULL : print_text, NULL};
        int64_t  have, i;
        n = prompt_tokens(&m, settings.prompt, s.seed, &first);
        if (n < 1) fail("no prompt is given, and the tokenizer has no [BOS] to begin with, expected --prompt TEXT");
        if (n >= length)
            fail("the prompt has %lld tokens, expected fewer than --length %lld", (long long)n, (long long)length);
        memcpy(ids, first, sizeof *ids * (size_t)n);
        free(first);
        have = generate_tokens(&m, ids, n, &s);
        for (i = 0; settings.ids && i < have; i++) printf(i ? " %d" : "%d", (int)ids[i]);
        printf("\n%s", settings.count > 1 && !settings.ids && k + 1 < settings.count ? "\n" : "");
    }
    free(ids);
    close_model(&m);
    return 0;
}
