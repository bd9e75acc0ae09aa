/* look.c - tn look: one page that shows what a model has. The options */
#include "look.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

look_options look_settings = { .vectors = 16, .examples = 20, .live = 1 };

#define OURS(field) (&look_settings.field)
static option options[] = {
    TEXT_ROW("out", OURS(out), "FILE", "the page; the default is the model's name with .html, of several runs runs.html", NEVER),
    TEXT_ROW("title", OURS(title), "TEXT", "its title; the default is the model's name", NEVER),
    COUNT_ROW("vectors", OURS(vectors), "eigenvectors of each output", 1, 1e5, NEVER),
    FLAG_ROW("within-null", OURS(within_null), "show eigenvectors and pairs that chance alone would give, too", NEVER),
    TEXT_ROW("outputs", OURS(outputs_text), "N|NAME,...", "how many outputs are shown, those with the most eigenvalues beyond "
             "chance, or their names, of a language model tokens; the default is 32, of a language model 8 words in each "
             "block", NEVER),
    TEXT_ROW("against", OURS(against), "RUN|FILE", "a second model to compare with", NEVER),
    TEXT_ROW("data", OURS(data), "FILE", "pictures that the model is for, .npy or IDX: what each eigenvector contributes to "
             "their scores", NEVER),
    TEXT_ROW("labels", OURS(labels), "FILE", "of --data, .npy or IDX: the number of the right output for each picture, so that "
             "the page says how often the model is right", NEVER),
    COUNT_ROW("examples", OURS(examples), "most pictures of --data that the page holds", 1, 1e5, NEVER),
    TEXT_ROW("names", OURS(names), "NAME,...", "of the outputs of a network of layers, such as cat,dog", NEVER),
    TEXT_ROW("text", OURS(text), "TEXT", "of a language model: the text of patterns and paths; the default is the beginning of "
             "the run's held-out text", NEVER),
    TEXT_ROW("token", &circuit_settings.token, "TOKEN", "whose logit the paths are of; the default is the most likely one",
             NEVER),
    TEXT_ROW("tokenizer", &circuit_settings.tokenizer, "FILE", "a tokenizer.json; the default is the one beside the weights",
             NEVER),
    FLAG_ROW("no-data", &circuit_settings.no_data, "do not read the run's text", NEVER),
    TEXT_ROW("pixels", OURS(pixels), "WxH", "how the inputs are a picture; the default is a square, where that is possible",
             NEVER),
    WORDS_ROW("residual", OURS(residual), "auto|yes|no", "whether a layer's input is added to its output, which a file without "
              "a config does not say", NEVER),
    TEXT_ROW("w", OURS(w), "NAME", "the tensor of a bilinear layer's first encoder, [hidden,in], or of both, [2,hidden,in] or "
             "[2 hidden,in]: for a file whose names are not known", NEVER),
    TEXT_ROW("v", OURS(v), "NAME", "of its second encoder, [hidden,in]", NEVER),
    TEXT_ROW("p", OURS(p), "NAME", "of its projection, [out,hidden]", NEVER),
    TEXT_ROW("embed", OURS(embed), "NAME", "of a matrix before it, [in,inputs]", NEVER),
    TEXT_ROW("head", OURS(head), "NAME", "of a matrix after it, [outputs,out]", NEVER),
    WORDS_ROW("live", OURS(live), "no|yes", "whether the page holds the weights, with which it computes", NEVER),
    AUTO_COUNT_ROW("threads", &circuit_settings.threads, "number of threads; auto: one per core", 1, 1024, NEVER),
};
#undef OURS

const usage look_usage = {
    "look", "RUN|FILE [RUN ...]", "make a page of what a model has, or of the losses of runs",
    "Makes one page of a run, a checkpoint, a safetensors file, a folder of such files with their index, a Hugging Face folder "
    "(GPT-2, Llama, Mistral, Qwen2, Qwen3, Gemma), or a .npy file, for any browser, without a network: what it has learnt, the "
    "model itself, spectra, eigenvectors, interaction matrices, heads, pairs of tokens and paths of a text. Of several runs, "
    "or of a folder of runs, the page has the losses in one picture and the settings in which the runs differ; --against "
    "compares what two models have learnt.",
    "Examples: tn look RUN --text \"once upon a time\". tn look RUN1 RUN2 RUN3. tn look RUN1 --against RUN2. tn look "
    "out/model.safetensors --data data/fashion/t10k-images-idx3-ubyte --labels data/fashion/t10k-labels-idx1-ubyte. "
    "tn look x.safetensors --w enc.l --v enc.r --p dec.",
    options, sizeof options / sizeof *options, INT_MAX, NULL
};

/* What is given without the option that it belongs to. */
static void check_pairs(void)
{
    static const struct { const char *name, *of, *value; } pairs[] = {
        {"v", "w", " NAME"}, {"p", "w", " NAME"}, {"embed", "w", " NAME"}, {"head", "w", " NAME"}, {"labels", "data", ""},
        {"examples", "data", ""},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (find_option(&look_usage, pairs[i].name)->given && !find_option(&look_usage, pairs[i].of)->given)
            usage_error("--%s is given, expected --%s%s as well", pairs[i].name, pairs[i].of, pairs[i].value);
}

/* Whether a file of tensors is a language model: it says so itself, or a config.json beside it does. */
static bool is_language(tn_ctx *ctx, const char *file)
{
    tn_safetensors *st = tn_safetensors_open(ctx, tn_source_path(file));
    char           *folder = folder_of(file), *beside = join_path(folder, "config.json");
    check_ctx(ctx, file);
    bool language = tn_safetensors_metadata(st, "tn.model") || (is_file(beside) && tn_safetensors_find(st, "embed.w"));
    tn_safetensors_close(st);
    free(beside);
    free(folder);
    return language && !look_settings.w;
}

/* --outputs is a number, or names. */
static void read_outputs(void)
{
    const char *text = look_settings.outputs_text;
    double      n;
    if (text && !number_from_text(text, &n)) look_settings.outputs_given = text;
    if (!text || look_settings.outputs_given) return;
    if (!(n >= 1 && n <= 1e6 && n == floor(n)))
        usage_error("--outputs is %s, expected a whole number from 1 to 1M, or names", text);
    look_settings.outputs = (int64_t)n;
}

/* Shows the model of a Hugging Face folder, whose memory is *ctx. Where that is not possible the page has the reason, and its
   tensors are shown. */
static bool look_at_foreign(tn_ctx **ctx, const char *folder, const char *title, const char *out)
{
    char *file, *type = look_settings.w ? NULL : foreign_type(folder);
    model m;
    if (!type) return false;
    char *why = read_for_page(*ctx, &m, folder, &file);
    if (why) {
        char *plain = plain_reason(why);
        page_note("This folder is shown as tensors because %s.", plain);
        free(plain);
    } else {
        page_note("This folder holds a model of another program (%s), read as `tn import` reads it. `tn look %s` shows its tensors "
                  "instead.", type, file_name(file));
        look_at_model(folder, &m, file, title, out);
        *ctx = NULL;
    }
    free(type);
    free(why);
    return *ctx == NULL;
}

/* A file of weights alone is shown as tensors: the page says how to see the model. */
static void note_foreign(const char *file)
{
    char *folder = folder_of(file), *type = foreign_type(folder);
    if (type)
        page_note("This file is part of a model of another program (%s), as the config.json beside it says: run tn look on the "
                  "folder to see the model.", type);
    free(type);
    free(folder);
}

/* The model of one file or run, by what it holds. */
static void look_at_one(const char *path, const char *title, const char *out)
{
    tn_ctx *ctx;
    tn_desc desc;
    char    why[TN_WHY], *file = array_file(path);
    show_stage("Reading %s", path);
    memset(&desc, 0, sizeof desc);
    desc.dtype = TN_F64;
    desc.threads = (int)circuit_settings.threads;
    desc.log = show_log;
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) fail("%s", why);
    if (is_npy(file)) look_at_array(ctx, file, title, out);
    else if (is_language(ctx, file)) look_at_model(path, NULL, NULL, title, out);
    else if (is_folder(path) && look_at_foreign(&ctx, path, title, out)) {}
    else if (!look_at_layers(ctx, file, title, out)) {
        if (!is_folder(path)) note_foreign(file);
        look_at_tensors(ctx, file, title, out);
    }
    tn_ctx_destroy(ctx);
    free(file);
}

int look_main(int argc, char **argv)
{
    const int arguments = read_options(&look_usage, argc, argv);
    double    began = now();
    char    **below = NULL;
    check_pairs();
    read_outputs();
    if (!arguments) usage_error("no model is given, expected tn look %s", look_usage.arguments);
    const int64_t in_folder = arguments == 1 ? runs_below(argv[0], &below) : 0;
    const bool    several = arguments > 1 || in_folder;
    for (int k = 0; k < arguments; k++) check_not_model("out", look_settings.out, "the model", argv[k]);
    check_not_model("out", look_settings.out, "the model of --against", look_settings.against);
    check_not_input("out", look_settings.out, "the tokenizer", circuit_settings.tokenizer);
    check_not_input("out", look_settings.out, "--data", look_settings.data);
    check_not_input("out", look_settings.out, "--labels", look_settings.labels);
    report_begin(false);
    char       *base = several && !in_folder ? copy_text("runs") : base_name(argv[0]);
    char       *names[2] = {NULL, NULL}, *both = NULL;
    if (look_settings.against) {
        names_of_two(argv[0], look_settings.against, names);
        both = format_text("%s and %s", names[0], names[1]);
    }
    const long long runs = in_folder ? in_folder : arguments;
    char       *many = several ? format_text("%lld run%s", runs, runs == 1 ? "" : "s") : NULL;
    const char *title = look_settings.title ? look_settings.title : many ? many : both ? both : base;
    char       *out = look_settings.out ? copy_text(look_settings.out) : format_text("%s.html", base);
    if (in_folder) look_at_runs((const char *const *)below, in_folder, title, out);
    else if (several) look_at_runs((const char *const *)argv, arguments, title, out);
    else look_at_one(argv[0], title, out);
    show_stage(NULL);
    print("page: %s\nseconds: %.1f\n", out, now() - began);
    free(out);
    free(many);
    free(both);
    free(names[0]);
    free(names[1]);
    free(base);
    return 0;
}
