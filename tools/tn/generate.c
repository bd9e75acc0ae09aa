/* generate.c - tn generate: text from a model */
#include "tn.h"
#include <stdlib.h>
#include <string.h>

static void print_now(void *user, const char *text, size_t bytes)
{
    (void)user;
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
}

int generate_main(int argc, char **argv)
{
    static const char *prompt = "", *tokenizer;
    static int64_t     length, count = 1, seed = 1, top_k, threads, device;
    static int         backend;
    static double      temperature = 0.8, top_p = 0.95;
    static bool        no_stop, show_ids;
    static option      options[] = {
        TEXT_ROW("prompt", &prompt, "TEXT", "how it begins", NEVER),
        COUNT_ROW("length", &length, "tokens, with the prompt's; 0: the model's context", 0, 1e9, NEVER),
        COUNT_ROW("count", &count, "so many texts; 1", 1, 1e9, NEVER),
        NUMBER_ROW("temperature", &temperature, "0: always the likeliest; 0.8", 0, 1e3, NEVER),
        COUNT_ROW("top-k", &top_k, "of the likeliest N alone; 0: of all", 0, 1e9, NEVER),
        NUMBER_ROW("top-p", &top_p, "of the likeliest with this share together; 0.95; 0 or 1: of all", 0, 1, NEVER),
        COUNT_ROW("seed", &seed, "the same seed, the same text; 1", 0, 9e15, NEVER),
        FLAG_ROW("no-stop", &no_stop, "goes on after the end of a text", NEVER),
        FLAG_ROW("ids", &show_ids, "prints token ids instead of text", NEVER),
        TEXT_ROW("tokenizer", &tokenizer, "FILE", "another tokenizer.json than the one beside the weights", NEVER),
        WORDS_ROW("backend", &backend, BACKEND_WORDS, "cpu; cuda: a GPU", NEVER),
        COUNT_ROW("device", &device, "which GPU; 0", 0, 1024, NEVER),
        COUNT_ROW("threads", &threads, "0: all", 0, 1024, NEVER),
    };
    static const usage u = {"generate", "RUN|CHECKPOINT [--prompt TEXT]",
                            "Writes text with a model, token by token as it comes.",
                            NULL, options, sizeof options / sizeof *options};
    int       arguments = read_options(&u, argc, argv, 1);
    tn_desc   desc;
    model     m;
    int64_t   k, n;
    int32_t  *first, *ids;
    memset(&desc, 0, sizeof desc);
    desc.threads = (int)threads;
    desc.log = show_log;
    use_backend(&desc, backend, device);
    if (!arguments) usage_error("tn generate wants a run or a checkpoint: tn generate RUN");
    open_model(&m, argv[0], tokenizer, &desc, NULL);
    if (!length) length = m.desc.context;
    if (length > m.desc.context)
        warn("%lld tokens are more than the %lld of the model's context: it was not trained for that",
             (long long)length, (long long)m.desc.context);
    if (m.start_count && !*prompt)
        warn("this model's text had no " STORY_MARK ": each text begins with a word of it, drawn by the seed");
    ids = (int32_t *)allocate((size_t)length, sizeof *ids);
    for (k = 0; k < count; k++) {
        sampling s = {temperature, top_p, top_k, length, splitmix64((uint64_t)seed) + (uint64_t)k, no_stop,
                      show_ids ? NULL : print_now, NULL};
        int64_t  have, i;
        n = prompt_tokens(&m, prompt, s.seed, &first);
        if (n < 1) fail("this tokenizer has no [BOS]: give a --prompt");
        if (n >= length) fail("the prompt has %lld tokens already, of --length %lld", (long long)n, (long long)length);
        memcpy(ids, first, sizeof *ids * (size_t)n);
        free(first);
        have = generate_tokens(&m, ids, n, &s);
        for (i = 0; show_ids && i < have; i++) printf(i ? " %d" : "%d", (int)ids[i]);
        printf("\n%s", count > 1 && !show_ids && k + 1 < count ? "\n" : "");
    }
    free(ids);
    close_model(&m);
    return 0;
}
