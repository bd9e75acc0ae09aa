/* info.c - tn info: shows what a run, a checkpoint, a tokenizer, a shard or a config file holds */
#include "train.h"
#include "names.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool    no_tensors, csv;
static int64_t plan;
static const char *tokenizer_option;

static void print_tokenizer(tn_ctx *ctx, const char *path)
{
    static const char *const names[] = {"unknown", "bos", "eos"};
    tn_tokenizer *t = open_tokenizer(ctx, path);
    int64_t       special[3];
    special[0] = tn_tokenizer_unk(t), special[1] = tn_tokenizer_bos(t), special[2] = tn_tokenizer_eos(t);
    print("tokenizer: %s\ntokens: %lld\n", path, (long long)tn_tokenizer_count(t));
    for (int i = 0; i < 3; i++) if (special[i] >= 0) print("%s: %lld %s\n", names[i], (long long)special[i],
                                                           tn_tokenizer_token(t, special[i]));
}

static void print_model(tn_ctx *ctx, const tn_transformer_desc *d)
{
    tn_transformer_cost cost = tn_transformer_cost_of(d, d->context);
    char                name[128];
    model_name(d, name, sizeof name);
    check_ctx(ctx, "the model");
    print("model: %s\nparameters: %lld\nparameters_in_tables: %lld\n", name, (long long)cost.params, (long long)cost.table);
    print("mflop_per_token: %.4g\nmflop_per_token_training: %.4g\n", cost.forward / 1e6, cost.training / 1e6);
    print("vocabulary: %lld\ncontext: %lld\n", (long long)d->vocab, (long long)d->context);
}

/* A model's config.json has a model_type, a tokenizer.json has none. */
static void print_json(tn_ctx *ctx, const char *path)
{
    tn_transformer_desc desc;
    size_t              bytes;
    char               *text = read_file(path, BY_USER, &bytes);
    const char         *to, *bad;
    if (json_find(text, text + bytes, "model_type", &to, &bad)) {
        tn_transformer_config_read(ctx, tn_source_path(path), &desc);
        check_ctx(ctx, "model");
        print_model(ctx, &desc);
    } else print_tokenizer(ctx, path);
    free(text);
}

static void print_weights(tn_ctx *ctx, const char *path, bool tensors)
{
    static const char *const notes[] = {"tn.step", "tn.machine", "tn.data", "tn.format"};
    tn_safetensors     *st = tn_safetensors_open(ctx, tn_source_path(path));
    const char         *text, *value;
    tn_transformer_desc desc;
    check_ctx(ctx, "weights");
    print("file: %s\n", path);
    for (size_t n = 0; n < sizeof notes / sizeof *notes; n++)
        if ((value = tn_safetensors_metadata(st, notes[n])) != NULL) print("%s: %s\n", notes[n] + 3, value);
    if ((text = tn_safetensors_metadata(st, "tn.model")) != NULL) {
        tn_transformer_config_read(ctx, tn_source_memory(text, strlen(text)), &desc);
        check_ctx(ctx, path);
        print_model(ctx, &desc);
        print_text(text, strlen(text));
        print("\n");
    }
    if ((value = tn_safetensors_metadata(st, "tn.config")) != NULL) print_text(value, strlen(value));
    print("tensors: %lld\n", (long long)tn_safetensors_count(st));
    for (int64_t i = 0; tensors && i < tn_safetensors_count(st); i++) {
        const tn_safetensors_entry *e = tn_safetensors_at(st, i);
        print("  %-40s %-4s [", e->name, e->dtype);
        for (int64_t k = 0; k < e->rank; k++) print(k ? ",%lld" : "%lld", (long long)e->shape[k]);
        print(e->axes > e->rank ? "] numbers of %lld axes\n" : "]\n", (long long)e->axes);
    }
    tn_safetensors_close(st);
}

/* The tokenizer of a config file, which may name any path: the file of that name beside it, the copy of a run, or --tokenizer.
   NULL: none, which means bytes. */
static char *tokenizer_of(const char *config)
{
    const char *named = train_settings.tokenizer, *slash = named ? strrchr(named, '/') : NULL;
    if (tokenizer_option || !named) return tokenizer_option ? copy_text(tokenizer_option) : NULL;
    char *folder = folder_of(config);
    char *own = join_path(folder, slash ? slash + 1 : named);
    if (!is_file(own)) {
        free(own);
        own = join_path(folder, "tokenizer.json");
    }
    if (!is_file(own))
        fail("%s names the tokenizer %s, which is not in its folder; to read it, name it: --tokenizer FILE", config, named);
    free(folder);
    return own;
}

/* The model that `tn train` would make of a config file. */
static void print_config(tn_ctx *ctx, const char *path)
{
    tn_transformer_desc desc;
    size_t              bytes;
    char               *text = read_file(path, BY_USER, &bytes);
    read_config(&train_usage, text, bytes, path);
    char   *tokenizer = train_settings.vocab ? NULL : tokenizer_of(path);
    int64_t vocab = train_settings.vocab ? train_settings.vocab : tn_tokenizer_count(open_tokenizer(ctx, tokenizer));
    set_model_desc(ctx, vocab, &desc);
    print_model(ctx, &desc);
    print("tokens_per_step: %lld\n", (long long)(train_settings.batch * train_settings.accumulate * desc.context));
    if (plan) print_plan(ctx, &desc, &train_settings, plan);
    free(tokenizer);
    free(text);
}

/* What the run reached: nats per token of held-out text, after which step, and beside n-grams. */
static void print_reached(const char *folder)
{
    const reached r = read_reached(folder, NAN);
    const struct { const char *name; const char *format; double v; } rows[] = {
        {"held_out", "%.4f", r.held}, {"held_out_step", "%.0f", r.step}, {"best_held_out", "%.4f", r.best},
        {"best_held_out_step", "%.0f", r.best_step}, {"trigram", "%.4f", r.trigram}, {"fivegram", "%.4f", r.fivegram},
        {"tokens_trained", "%.0f", r.tokens}, {"seconds", "%.1f", r.seconds}
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        char text[64];
        snprintf(text, sizeof text, rows[k].format, rows[k].v);
        if (!isnan(rows[k].v)) print("%s: %s\n", rows[k].name, text);
    }
}

static void print_run(tn_ctx *ctx, const char *folder, bool tensors)
{
    int64_t *steps, count = list_checkpoints(folder, &steps);
    char    *model_file = join_path(folder, "model.safetensors"), *tokenizer = join_path(folder, "tokenizer.json");
    char    *config = join_path(folder, "config.txt");
    if (!count && !is_file(model_file))
        fail("%s holds %s", folder, is_file(config) ? "a run that was stopped before its first checkpoint" : "no run");
    print_reached(folder);
    for (int64_t i = 0; i < count; i++) print("checkpoint: step %lld\n", (long long)steps[i]);
    print("done: %s\n", is_file(model_file) ? "yes" : "no");
    if (is_file(tokenizer)) print_tokenizer(ctx, tokenizer);
    if (count) {
        int64_t step;
        char   *newest = newest_checkpoint(folder, &step);
        print_weights(ctx, newest, tensors);
        free(newest);
    } else print_weights(ctx, model_file, tensors);
    free(model_file);
    free(tokenizer);
    free(config);
    free(steps);
}

/* Eight bytes, and then a JSON object: the beginning of every safetensors file. */
static bool is_weights(const char *path)
{
    unsigned char head[9] = {0};
    FILE         *file = open_input(path, BY_NAME);
    const bool    weights = fread(head, 1, sizeof head, file) == sizeof head && head[8] == '{';
    fclose(file);
    return weights;
}

static option options[] = {
    COUNT_ROW("plan", &plan, "of a config file: also what a step costs on N GPUs: flops, bytes sent, memory, time, and the "
              "assumptions behind them; 0 (the default): not", 0, 65536, NEVER),
    TEXT_ROW("tokenizer", &tokenizer_option, "FILE", "of a config file: a tokenizer.json; the default is the one that it "
             "names, if that is in its folder", NEVER),
    FLAG_ROW("no-tensors", &no_tensors, "do not list the tensors", NEVER),
    FLAG_ROW("csv", &csv, "print the log of a run as CSV instead: a line per step and evaluation", NEVER),
};

/* The lines of log.jsonl that have numbers for each step; a number that a line lacks is an empty field. */
static void print_csv(const char *folder)
{
    static const char *const keys[] = {"step", "tokens", "loss", "lr", "norm", "rate", "seconds", "held", "held_byte"};
    char       *path = join_path(folder, "log.jsonl");
    size_t      bytes;
    const char *stop;
    if (!is_file(path)) fail("%s holds no run, expected %s", folder, path);
    char *text = read_file(path, BY_NAME, &bytes);
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) print("%s,", keys[k]);
    print("held_all\n");
    for (char *line = text; (stop = strchr(line, '\n')) != NULL; line = text + (stop - text) + 1) {
        const char  *to, *bad, *all = json_find(line, stop, "all", &to, &bad);
        if (isnan(json_number(line, stop, "loss")) && isnan(json_number(line, stop, "held"))) continue;
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            const double v = json_number(line, stop, keys[k]);
            if (isnan(v)) print(",");
            else print("%.9g,", v);
        }
        print("%s\n", !all ? "" : *all == 't' ? "true" : "false");
    }
    free(text);
    free(path);
}

const usage info_usage = {
    "info", "RUN|FILE", "show what a run or a file holds",
    "Shows what a run, a checkpoint, a tokenizer.json, a config.json, a token shard or a config file (.txt) holds. Of a run "
    "first what it reached: the last and the best held-out loss in nats per token, with their steps, and those of n-grams.",
    NULL, options, sizeof options / sizeof *options, 1, NULL
};

int info_main(int argc, char **argv)
{
    const int   arguments = read_options(&info_usage, argc, argv);
    const char *path = arguments ? argv[0] : NULL;
    tn_ctx     *ctx;
    char        why[256];
    if (!path) usage_error("no run or file is given, expected tn info RUN, or tn info FILE");
    if (tn_ctx_create(NULL, &ctx, why) != TN_OK) fail("%s", why);
    if (plan && !ends_with(path, ".txt"))
        usage_error("--plan is given with %s, expected a config file (.txt), which has the texts per step", path);
    if (tokenizer_option && !ends_with(path, ".txt"))
        usage_error("--tokenizer is given with %s, expected a config file (.txt)", path);
    if (csv) print_csv(path);
    else if (is_folder(path)) print_run(ctx, path, !no_tensors);
    else if (!is_file(path)) fail("%s: no such run or file", path);
    else if (is_shard(path)) {
        tn_shard *shard = tn_shard_open(ctx, tn_source_path(path), INT32_MAX);
        check_ctx(ctx, "token shard");
        print("token shard: %s\ntokens: %lld\n", path, (long long)tn_shard_count(shard));
    } else if (ends_with(path, ".json")) print_json(ctx, path);
    else if (ends_with(path, ".txt")) print_config(ctx, path);
    else if (!is_weights(path) && !ends_with(path, ".safetensors"))
        fail("%s is not a file that tn knows, expected safetensors, a token shard, a tokenizer.json, a config.json or a "
             "config file (.txt)", path);
    else print_weights(ctx, path, !no_tensors);
    tn_ctx_destroy(ctx);
    return 0;
}
