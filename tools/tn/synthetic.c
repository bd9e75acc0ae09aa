/* synthetic.c - tn synthetic: token shards for those who have no text at hand: shows how fast a model trains, and that it
   learns */
#include "tn.h"
#include <stdlib.h>
#include <string.h>

/* Every second token, on average, is a function of the one before it. The others are drawn with a probability of about
   1/id, as words are (Zipf's law): each octave of ids is as likely as the next. So the lowest possible loss is half of that
   entropy plus ln 2, and there is something to learn. No logarithm is used, which another libm would round differently: the
   same seed gives the same tokens on every system. */
static int32_t next_token(int32_t before, int64_t vocab, uint64_t *state)
{
    int64_t id;
    int     octaves = 0;
    if (next_uniform(state) < 0.5) return (int32_t)(splitmix64((uint64_t)before) % (uint64_t)vocab);
    while (vocab >> octaves) octaves++;
    do {
        const int64_t first = (int64_t)1 << (int)(next_uniform(state) * octaves);
        id = first + (int64_t)(next_uniform(state) * (double)first) - 1;
    } while (id >= vocab);
    return (int32_t)id;
}

static struct { const char *out; int64_t vocab, tokens, seed; } settings = { NULL, 50304, 10000000, 1 };

static option options[] = {
    TEXT_ROW("out", &settings.out, "FILE", "the shard to write (llm.c's format)", NEVER),
    COUNT_ROW("vocab", &settings.vocab, "size of the vocabulary: ids are below N", 2, 1e9, NEVER),
    COUNT_ROW("tokens", &settings.tokens, "number of tokens", 2, 1e9, NEVER),
    COUNT_ROW("seed", &settings.seed, "the same seed gives the same tokens", 0, 9e15, NEVER),
};

const usage synthetic_usage = {
    "synthetic", "--out FILE", "write a shard of random tokens",
    "Writes a shard of random tokens, in which a model can learn something.",
    "Train on it with --vocab N of the same N: tn train FILE --vocab 50304 --out RUN.",
    options, sizeof options / sizeof *options, 0, NULL
};

int synthetic_main(int argc, char **argv)
{
    tn_ctx *ctx;
    tn_desc desc;
    char    why[256];
    read_options(&synthetic_usage, argc, argv);
    if (!settings.out) usage_error("no --out is given, expected tn synthetic --out FILE");
    memset(&desc, 0, sizeof desc);
    desc.log = show_log;
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) fail("%s", why);
    int32_t *ids = (int32_t *)allocate((size_t)settings.tokens, sizeof *ids);
    uint64_t state = splitmix64((uint64_t)settings.seed);
    for (int64_t i = 0; i < settings.tokens; i++) ids[i] = next_token(i ? ids[i - 1] : 0, settings.vocab, &state);
    write_shard(settings.out, ctx, ids, settings.tokens, settings.vocab);
    print("tokens: %lld\nwritten: %s\n", (long long)settings.tokens, settings.out);
    free(ids);
    tn_ctx_destroy(ctx);
    return 0;
}
