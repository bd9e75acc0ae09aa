/* prove.c - tn prove: what can be proved of models from their weights alone */
#include "tn.h"
#include <stdlib.h>
#include <string.h>

enum { EXIT_DIFFERENT = 3 };
static const double largest_chance = 1e-6;              /* of an error, for what counts as proved */

static struct {
    int64_t tokens, points, seed;
} settings = { .tokens = 4, .points = 3 };

static option options[] = {
    COUNT_ROW("tokens", &settings.tokens, "length of the texts; what holds for it holds for shorter ones, unless attention is "
              "bidirectional", 1, 1024, NEVER),
    COUNT_ROW("points", &settings.points, "random points, each modulo a prime of its own", 1, 1000, NEVER),
    COUNT_ROW("seed", &settings.seed, "of the primes and points; chosen after the models, it makes the chance a probability", 0,
              1e15, NEVER),
};

const usage prove_usage = {
    "prove", "same RUN|CHECKPOINT|FOLDER RUN|CHECKPOINT|FOLDER", "whether two models are the same function",
    "Decides whether two models give the same logits for every text of so many tokens. They are evaluated in whole numbers, "
    "modulo random primes, at random points. No number is rounded, so that hidden units in another order, or a factor moved "
    "from one matrix to another, change nothing, and one unit in the last place of one weight does. Norms, softmax and "
    "activations are covered: of them it is used only that equal arguments have equal values. FOLDER holds a model of Hugging "
    "Face's transformers, as for tn import.",
    "With rotary positions the models are compared for all angles at once. Where equality is not proved, up to 64 random texts "
    "are tried for one that shows a difference. The exit status is 0 if the models are proved to be the same function, with a "
    "chance of an error of at most one in a million, 3 if not, and 1 if a model cannot be compared.",
    options, sizeof options / sizeof *options, 3, NULL
};

/* What is known of models that are not proved equal. */
static void print_difference(const model *m, const tn_transformer_same_result *r)
{
    int32_t *ids;
    if (r->values > 0) print("largest difference of logits: %.3g\n", r->difference);
    if (!r->text) {
        print("64 random texts show no difference: it %s.\n", r->values > 0
              ? "may be in other texts, or below rounding, or the models are equal although the functions' arguments differ"
              : "is in other texts, in mixtures of tokens, or at other angles of RoPE");
        return;
    }
    ids = (int32_t *)allocate((size_t)tn_tensor_count(r->text), sizeof *ids);
    tn_read(r->text, TN_I32, ids, tn_tensor_count(r->text));
    check_ctx(m->ctx, "the text");
    print("text:");
    for (int64_t t = 0; t < tn_tensor_count(r->text); t++) print(" %d", (int)ids[t]);
    print("\nposition: %lld\ntoken: %lld\n", (long long)r->position, (long long)r->token);
    free(ids);
}

/* yes, no, or why neither is known */
static const char *verdict(const tn_transformer_same_result *r)
{
    if (r->equal && r->chance <= largest_chance) return "yes";
    if (r->equal && r->chance < 1) return "not proved, the chance of an error is above one in a million: more --points help";
    if (r->equal) return "not proved, the chance of an error is not below 1";
    return r->values == 0 || r->text ? "no" : "not proved";
}

/* Opens a model that the command may be given. */
static void open_any(tn_ctx *ctx, model *m, const char *path)
{
    char *type = is_folder(path) ? foreign_type(path) : NULL, *file = NULL, *bad = NULL, *why = NULL;
    if (type) why = read_foreign(ctx, m, path, NULL, &file, &bad);
    else open_model_in(ctx, m, path, NULL, NULL);
    if (why) fail("%s", why);
    free(type);
    free(file);
    free(bad);
}

int prove_main(int argc, char **argv)
{
    model                      a, b;
    tn_desc                    desc;
    tn_transformer_same_desc   how;
    tn_transformer_same_result r;
    tn_ctx                    *ctx;
    char                       why[256];
    const int arguments = read_options(&prove_usage, argc, argv);
    if (arguments < 1 || strcmp(argv[0], "same"))
        usage_error("what is to be proved is \"%s\", expected same", arguments < 1 ? "" : argv[0]);
    if (arguments < 3) usage_error("%s is given, expected two models", arguments == 1 ? "none" : "one");
    memset(&desc, 0, sizeof desc);
    memset(&how, 0, sizeof how);
    desc.dtype = TN_F64;
    how.tokens = settings.tokens;
    how.points = settings.points;
    how.seed = (uint64_t)settings.seed;
    const double start = now();
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) fail("%s", why);
    open_any(ctx, &a, argv[1]);
    open_any(ctx, &b, argv[2]);
    if (a.tokenizer && b.tokenizer) check_same_tokens(a.tokenizer, argv[1], b.tokenizer, argv[2]);
    if (tn_transformer_same(&a.net, &b.net, &how, &r) != TN_OK)
        fail("%s and %s cannot be compared: %s", argv[1], argv[2], taken_error(ctx));
    const bool proved = r.equal && r.chance <= largest_chance;
    print("same: %s\ntokens: %lld\npoints: %lld\n", verdict(&r), (long long)settings.tokens, (long long)r.points);
    if (r.values > 0) print("values of functions: %.0f\n", r.values);
    if (r.equal) print("chance: %.3g\n", r.chance);
    print("degree: %.4g\nprime: %llu\nresidue: %llu\n", r.degree, (unsigned long long)r.prime, (unsigned long long)r.residue);
    if (!r.equal) print_difference(&a, &r);
    print("seconds: %.1f\n", now() - start);
    const int status = proved ? 0 : EXIT_DIFFERENT;
    tn_transformer_same_destroy(&r);
    return status;
}
