/* tinystories.c - a one-layer transformer learns to tell stories

   One block, softmax or bilinear attention, a bilinear MLP: what Pearce et al. 2024 read from the weights alone. It trains
   on a text, saves the model, and tells what it has learned. On stories (TinyStories, Eldan & Li 2023, if you have the file)
   the first sentences come out fluent in ten minutes; the King James Bible, the default, is harder.

   sh examples/get_data.sh kjv        (or --data FILE: any text, "<|endoftext|>" between stories)
   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/tinystories.c -o tinystories -lm && ./tinystories
   --data FILE   --attention softmax|bilinear   --tokens N   --batch N   --context N   --dim N   --heads N   --layers N
   --vocab N   --rate X   --seed N   --stories N   --length N (tokens)   --prompt TEXT   --temperature X   --top-k N
   --threads N   --out FOLDER   --quick */
#define _POSIX_C_SOURCE 200809L
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "tinystories"
#include "text.h"

typedef struct options {
    const char *data, *attention, *prompt, *out;
    int64_t     tokens, batch, context, dim, heads, layers, vocab, seed, stories, length, top_k, threads;
    double      rate, temperature;
    bool        quick;
} options;

static options read_options(int argc, char **argv)
{
    options    o = {DEFAULT_TEXT, "softmax", "", "out/tinystories", 8000000, 8, 256, 128, 2, 1, 1024, 1, 3, 100, 40, 0,
                  RATE, 0.7, false};
    const flag flags[] = {
        {"--data", FLAG_TEXT, &o.data, 0, 0, "a text file"},
        {"--attention", FLAG_CHOICE, &o.attention, 0, 0, "softmax|bilinear"},
        {"--tokens", FLAG_COUNT, &o.tokens, 1, 1e12, NULL},
        {"--batch", FLAG_COUNT, &o.batch, 1, 1e5, NULL},
        {"--context", FLAG_COUNT, &o.context, 2, 4096, NULL},
        {"--dim", FLAG_COUNT, &o.dim, 2, 4096, NULL},
        {"--heads", FLAG_COUNT, &o.heads, 1, 256, NULL},
        {"--layers", FLAG_COUNT, &o.layers, 1, 64, NULL},
        {"--vocab", FLAG_COUNT, &o.vocab, 300, 32768, NULL},
        {"--rate", FLAG_REAL, &o.rate, 1e-6, 1, NULL},
        SEED_FLAG(&o),
        {"--stories", FLAG_COUNT, &o.stories, 0, 1000, NULL},
        {"--length", FLAG_COUNT, &o.length, 1, 4096, NULL},
        {"--prompt", FLAG_TEXT, &o.prompt, 0, 0, "how they begin"},
        {"--temperature", FLAG_REAL, &o.temperature, 0, 10, NULL},
        {"--top-k", FLAG_COUNT, &o.top_k, 0, 32768, NULL},
        THREADS_FLAG(&o),
        OUT_FLAG(&o),
        {"--quick", FLAG_SWITCH, &o.quick, 0, 0, "half a minute"},
        {0}
    };
    read_flags(argc, argv, flags);
    if (o.quick) o.tokens = 200000;
    if (!*o.prompt) o.prompt = strcmp(o.data, DEFAULT_TEXT) ? "once upon a time" : "and it came to pass";
    return o;
}

static void show(int64_t step, int64_t steps, double loss, double tokens_per_second, int64_t tokens_left)
{
    int done = (int)(24 * step / steps);
    printf("%s[", isatty(1) ? "\r" : "");
    for (int i = 0; i < 24; i++) putchar(i < done ? '#' : '.');
    printf("] loss %.3f  %5.1fk tokens/s  %4.0f s left%s", loss, tokens_per_second / 1000,
           (double)tokens_left / tokens_per_second, isatty(1) ? "   " : "\n");
    fflush(stdout);
}

/* On a terminal a bar, elsewhere a line for each tenth. The loss shown is a mean over the last fifty steps or so. */
static void train(tn_ctx *ctx, const lesson *l)
{
    tn_optim *optim = lesson_optim(l, l->steps);
    double    start = now(), shown = 0, loss = NAN;
    for (int64_t step = 1; step <= l->steps; step++) {
        double one = lesson_step(ctx, l, optim);
        bool   due = isatty(1) ? now() - shown > 0.1 : step % (l->steps / 10 + 1) == 0;
        if (!is_number(one)) stop("the loss is not finite any more; a lower --rate may help");
        loss = step == 1 ? one : loss + 0.02 * (one - loss);
        if (!due && step < l->steps) continue;
        shown = now();
        show(step, l->steps, loss, (double)(step * l->batch * l->context) / (shown - start),
             (l->steps - step) * l->batch * l->context);
    }
    printf("%s", isatty(1) ? "\n" : "");
    tn_optim_destroy(optim);
}

static const char *file_in(const char *folder, const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void save(tn_ctx *ctx, const options *o, tn_params *params, const tn_transformer *model, const tn_tokenizer *t)
{
    tn_params_save(params, file_in(o->out, "model.safetensors"));
    tn_transformer_config_write(ctx, &model->desc, tn_sink_path(file_in(o->out, "config.json")));
    tn_tokenizer_write(t, tn_sink_path(file_in(o->out, "tokenizer.json")));
    check(ctx);
    printf("saved: %s/model.safetensors, config.json, tokenizer.json\n", o->out);
}

int main(int argc, char **argv)
{
    options        o = read_options(argc, argv);
    tn_desc        desc = { .threads = (int)o.threads, .seed = (uint64_t)o.seed };
    bool           bilinear = !strcmp(o.attention, "bilinear");
    double         start = now();
    char           why[TN_WHY];
    tn_ctx        *ctx;
    tn_transformer model;

    make_folder(o.out);
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) stop(why);
    if (!strcmp(o.data, DEFAULT_TEXT))
        printf("without --data FILE this is the King James Bible, which is harder than stories\n");
    corpus              text = load_corpus(ctx, o.data, o.vocab, o.context);
    tn_params          *params = tn_params_create(ctx);
    tn_transformer_desc form = usual_model(tn_tokenizer_count(text.tokenizer), o.context, o.dim, o.heads, o.layers);
    form.attention = bilinear ? TN_ATTENTION_BILINEAR : TN_ATTENTION_SOFTMAX;
    tn_transformer_init(params, "", &form, &model);
    check(ctx);
    lesson l = (lesson){ .params = params, .model = &model, .text = &text, .steps = (o.tokens - 1) / (o.batch * o.context) + 1,
                  .batch = o.batch, .context = o.context, .seed = (uint64_t)o.seed, .lr = o.rate };
    lesson_begin(&l);
    printf("%lld layers, width %lld: %lld parameters, %.2f Mflop a token; %lld tokens to train with, %lld held out\n",
           (long long)model.desc.layers, (long long)model.desc.dim,
           (long long)tn_params_elements(params), 3e-6 * tn_transformer_cost_of(&model.desc, o.context).forward,
           (long long)text.train.count, (long long)text.held.count);

    train(ctx, &l);
    reading held_out = read_held_out(ctx, &model, &text.held, o.context, INT64_MAX);
    save(ctx, &o, params, &model, text.tokenizer);
    for (int64_t i = 0; i < o.stories; i++) {
        char *story = write_on(ctx, &model, &text, o.prompt, o.length, o.temperature, o.top_k, (uint64_t)(o.seed + i));
        printf("\n%s\n", story);
        free(story);
    }
    printf("\nloss_token: %.4f\n", held_out.token);
    printf("loss_byte: %.4f\n", held_out.byte);
    printf("seconds: %.1f\n", now() - start);
    tn_ctx_destroy(ctx);
    free_corpus(&text);
    return 0;
}
