/* synthetic.c - tn synthetic: token shards where no text is at hand, to see how fast a model trains and that it learns */
#include "tn.h"
#include <stdlib.h>
#include <string.h>

/* Every second token follows from the one before it, the others are drawn with a share of about 1/id, as words are (Zipf):
   each octave of ids as often as the next. So the best a model can do is half of the entropy and ln 2: there is something to
   learn. No logarithm decides, which another libm rounds otherwise: the same seed, the same tokens everywhere. */
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

int synthetic_main(int argc, char **argv)
{
    static const char *out;
    static int64_t     vocab = 50304, count = 10000000, seed = 1;
    static option      options[] = {
        TEXT_ROW("out", &out, "FILE", "the shard (llm.c's format)", NEVER),
        COUNT_ROW("vocab", &vocab, "ids are below N; 50304", 2, 65536, NEVER),
        COUNT_ROW("tokens", &count, "10M", 2, 1e9, NEVER),
        COUNT_ROW("seed", &seed, "the same seed, the same tokens; 1", 0, 9e15, NEVER),
    };
    static const usage u = {"synthetic", "--out FILE", "Writes a shard of made-up tokens.",
                            "Train on it with --vocab N of the same N: tn train FILE --vocab 50304 --out RUN.",
                            options, sizeof options / sizeof *options};
    tn_ctx  *ctx;
    tn_desc  desc;
    int32_t *ids;
    int64_t  i;
    uint64_t state;
    char     why[256];
    read_options(&u, argc, argv, 0);
    if (!out) usage_error("tn synthetic wants --out FILE");
    memset(&desc, 0, sizeof desc);
    desc.log = show_log;
    if (tn_ctx_create(&ctx, &desc, why) != TN_OK) fail("%s", why);
    ids = (int32_t *)allocate((size_t)count, sizeof *ids);
    state = splitmix64((uint64_t)seed);
    for (i = 0; i < count; i++) ids[i] = next_token(i ? ids[i - 1] : 0, vocab, &state);
    write_shard(out, ctx, ids, count, vocab);
    printf("tokens: %lld\nwritten: %s\n", (long long)count, out);
    free(ids);
    tn_ctx_destroy(ctx);
    return 0;
}
