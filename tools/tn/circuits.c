/* circuits.c - tn circuits: what a trained transformer does, read from its weights. The options */
#include "circuits.h"
#include <stdlib.h>
#include <string.h>

#define OURS(field) (&circuit_settings.field)
static option options[] = {
    TEXT_ROW("token", OURS(token), "TOKEN", "paths, attribute: the token whose logit is asked for; the default is "
             "the most likely one", NEVER),
    TEXT_ROW("against", OURS(against), "TOKEN", "paths, attribute: its logit minus that of this token", NEVER),
    FLAG_ROW("loss", OURS(loss), "paths, attribute: instead of its logit the loss of TOKEN, linearised; without --token of "
             "the token that follows in TEXT", NEVER),
    AUTO_COUNT_ROW("position", OURS(position), "paths, attribute: the position that predicts, from 0; auto: the last, with "
                   "--loss and without --token the last but one", 0, 1e9, NEVER),
    COUNT_ROW("budget", OURS(budget), "paths: how many nodes of the search are expanded", 1, 1e9, NEVER),
    WORDS_ROW("by", OURS(by), "search|path|degree|mlps", "paths: search: tokens, heads and MLPs, each MLP linear "
              "in one input, the largest first; path: every path, MLPs with all their inputs; degree: by degree in "
              "the embeddings; mlps: by the set of MLPs that are passed", NEVER),
    FLAG_ROW("patterns", OURS(patterns), "paths --by: expand bilinear and squared patterns as well, instead of "
             "holding them constant", NEVER),
    COUNT_ROW("delete", OURS(remove), "paths: delete the first N paths one by one, and compare the change with what is "
              "predicted", 0, 1e6, NEVER),
    COUNT_ROW("block", OURS(block), "pairs: the block of the MLP", 0, 1e6, NEVER),
    COUNT_ROW("common", OURS(common), "pairs: only of the N commonest tokens (0, the default: of all); bigrams: of "
              "so many tokens (0: 400)", 0, 1e9, NEVER),
    COUNT_ROW("top", OURS(top), "most rows of a table; 0, the default: a number that suits it", 0, 1e9, NEVER),
    FLAG_ROW("within-null", OURS(within_null), "pairs: list pairs that chance alone would give, too", NEVER),
    FLAG_ROW("mean", OURS(mean), "ablate: replace a part by its mean instead of zero", NEVER),
    COUNT_ROW("tokens", OURS(tokens), "ablate, diff, history, similarity, polynomial: tokens of held-out text, for "
              "polynomial also of the text to fit to", 1, 1e9, NEVER),
    TEXT_ROW("text", OURS(text), "TEXT", "diff, similarity: a text to compare the logits on, instead of held-out text", NEVER),
    WORDS_ROW("inputs", OURS(inputs), "text|gaussian", "similarity: text, or Gaussian vectors with the mean and covariance of "
              "the embeddings", NEVER),
    FLAG_ROW("checkpoints", OURS(checkpoints), "similarity: all steps of each run, as without RUN2", NEVER),
    COUNT_ROW("degree", OURS(degree), "polynomial: the degree in the model that is compared, and written by --out", 1,
              POLYNOMIAL_MOST, NEVER),
    FLAG_ROW("shared", OURS(shared), "polynomial: one polynomial for all hidden units of an MLP, instead of one for each",
             NEVER),
    WORDS_ROW("norms", OURS(norms), "keep|factor|map", "polynomial: what becomes of the norms in that model: a constant "
              "factor, or a linear map", NEVER),
    TEXT_ROW("out", OURS(out), "FILE", "similarity: the picture, .png, .svg or .ppm; the default is similarity" PICTURE_ENDING
             ". polynomial: the folder to write that model to, which every command accepts", NEVER),
    AUTO_COUNT_ROW("length", OURS(length), "most tokens of a text; auto: the model's context", 1, 1e9, NEVER),
    FLAG_ROW("json", OURS(json), "print one object of JSON instead of tables", NEVER),
    FLAG_ROW("f32", OURS(f32), "compute in F32 instead of F64: half the memory", NEVER),
    FLAG_ROW("no-data", OURS(no_data), "do not read the run's text", NEVER),
    TEXT_ROW("tokenizer", OURS(tokenizer), "FILE", "a tokenizer.json; the default is the one beside the weights", NEVER),
    AUTO_COUNT_ROW("threads", OURS(threads), "number of threads; auto: one per core", 1, 1024, NEVER),
};
#undef OURS

/* What can be asked, as bits: an option may be of some of them only. */
enum { HEADS = 1, PAIRS = 2, BIGRAMS = 4, PATHS = 8, ATTRIBUTE = 16, ABLATE = 32, DIFF = 64, HISTORY = 128,
       SIMILARITY = 256, POLYNOMIAL = 512, ANOMALY = 1024 };
static const limited_option limited[] = {
    {"token", PATHS | ATTRIBUTE}, {"against", PATHS | ATTRIBUTE}, {"loss", PATHS | ATTRIBUTE},
    {"position", PATHS | ATTRIBUTE}, {"budget", PATHS}, {"by", PATHS}, {"patterns", PATHS}, {"delete", PATHS},
    {"block", PAIRS}, {"within-null", PAIRS}, {"common", PAIRS | BIGRAMS}, {"top", PAIRS | BIGRAMS | PATHS | ATTRIBUTE | ABLATE | ANOMALY}, {"mean", ABLATE},
    {"tokens", ABLATE | DIFF | HISTORY | SIMILARITY | POLYNOMIAL}, {"text", DIFF | SIMILARITY},
    {"length", PATHS | ATTRIBUTE | ABLATE | DIFF | SIMILARITY | POLYNOMIAL}, {"inputs", SIMILARITY}, {"checkpoints", SIMILARITY},
    {"degree", POLYNOMIAL}, {"shared", POLYNOMIAL}, {"norms", POLYNOMIAL}, {"out", SIMILARITY | POLYNOMIAL}, {NULL, 0}
};

#define WHAT_WORDS "heads|pairs|bigrams|paths|attribute|ablate|diff|history|similarity|polynomial|anomaly"

const usage circuits_usage = {
    "circuits", "RUN|CHECKPOINT " WHAT_WORDS " [TOKEN|TEXT|RUN2 ...]", "what a trained model does, read from its weights",
    "heads: norms, copying, distances and composition of each head. pairs TOKEN: the pairs of tokens that an MLP "
    "turns into the logit of TOKEN. bigrams [TOKEN]: what follows a token by the weights, and in the text. paths "
    "TEXT: the logit of the next token as a sum over paths. attribute TEXT: the same as a sum over the tokens of "
    "TEXT, and over heads and MLPs. ablate [TEXT]: the loss without each head and MLP. diff RUN2: how similar two "
    "models are. history: the heads at earlier steps of the training (tn train --weights-every N). similarity [RUN2 ...]: how "
    "alike the logits of these models are, of every pair, as a table and a picture; without RUN2 of the steps of RUN. polynomial "
    "[TEXT]: the loss with polynomials for softmax and activations and linear maps for norms; --out writes such a model, whose "
    "paths have no modifiers to hold constant. anomaly RUN2: the texts of two tokens whose continuation a training changed most, "
    "RUN2 being the model that RUN was trained from.",
    "A token is given as its text or its number, which is #7 where 7 is a token, too. Numbers are computed in F64. "
    "Examples: tn circuits RUN heads. tn circuits RUN pairs dog --common 1000. tn circuits RUN paths \"once upon a\" "
    "--token time --delete 20. tn circuits RUN attribute \"once upon a time\" --loss.",
    options, sizeof options / sizeof *options, 66, NULL
};

typedef struct task {
    int         bit;
    const char *name, *argument;        /* what is missing without it; NULL: none is possible */
    bool        needed, data;           /* whether it is needed; whether the run's text is    */
    void      (*run)(subject *s, const char *argument);
} task;

static void run_heads(subject *s, const char *argument) { (void)argument; heads_report(s); }
static void run_history(subject *s, const char *argument) { (void)argument; history_report(s); }

static const task tasks[] = {
    {HEADS, "heads", NULL, false, true, run_heads},
    {PAIRS, "pairs", "TOKEN", true, true, pairs_report},
    {BIGRAMS, "bigrams", "TOKEN", false, true, bigrams_report},
    {PATHS, "paths", "TEXT", true, false, paths_report},
    {ATTRIBUTE, "attribute", "TEXT", true, false, attribute_report},
    {ABLATE, "ablate", "TEXT", false, true, ablate_report},
    {DIFF, "diff", "RUN2", true, true, diff_report},
    {HISTORY, "history", NULL, false, true, run_history},
    {SIMILARITY, "similarity", "RUN2", false, true, similarity_report},
    {POLYNOMIAL, "polynomial", "TEXT", false, true, polynomial_report},
    {ANOMALY, "anomaly", "RUN2", true, false, anomaly_report},
};

static const task *find_task(const char *name)
{
    suggestion best = {NULL, 0};
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        if (!strcmp(tasks[i].name, name)) return &tasks[i];
        consider_word(&best, name, tasks[i].name);
    }
    if (best.word) usage_error("\"%s\" is not known; did you mean %s?", name, best.word);
    usage_error("\"%s\" is not known, expected one of " WHAT_WORDS, name);
    return NULL;
}

/* ---- the command ------------------------------------------------------------------------------------------------------ */

int circuits_main(int argc, char **argv)
{
    const int   arguments = read_options(&circuits_usage, argc, argv);
    const char *argument = arguments > 2 ? argv[2] : NULL;
    subject     s;
    if (!arguments) usage_error("no model is given, expected tn circuits RUN %s", WHAT_WORDS);
    if (arguments < 2) usage_error("no table is asked for, expected one of " WHAT_WORDS);
    const task *t = find_task(argv[1]);
    if (t->needed && !argument)
        usage_error("no %s is given, expected tn circuits RUN %s %s", t->argument, t->name, t->argument);
    if (argument && !t->argument) usage_error("\"%s\" is given, expected tn circuits RUN %s", argument, t->name);
    if (arguments > 3 && t->bit != SIMILARITY)
        usage_error("unexpected argument \"%s\", expected tn circuits RUN %s %s", argv[3], t->name,
                    t->argument ? t->argument : "");
    circuit_settings.others = (const char **)argv + 2;
    circuit_settings.other_count = arguments - 2;
    check_limited(&circuits_usage, limited, t->bit, WHAT_WORDS);
    report_begin(circuit_settings.json);
    open_subject(&s, argv[0], t->data);
    check_finite(&s.m, argv[0]);
    t->run(&s, argument);
    report_end();
    close_subject(&s);
    return 0;
}
