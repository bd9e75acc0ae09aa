/* settings.c - the options of `tn train`, which are also the keys of config files, and the descs that follow from them

   The defaults are the recipe whose results docs/ reports. */
#include "train.h"
#include <limits.h>
#include <unistd.h>
#include "names.h"
#include <string.h>

settings train_settings = {
    .prompt = "", .held_out = 0.05,
    .layers = 1, .width = 128, .context = 256,
    .batch = 8, .accumulate = 1, .tokens = 8000000, .seed = 1,
    .mlp = {1, {0}}, .attention = {1, {0}}, .window = {1, {0}},
    .rope_base = 10000, .norm_eps = 1e-5, .qk_norm_eps = 1e-6, .attn_scale = AUTO_NUMBER, .mlp_scale = AUTO_NUMBER,
    .init_std = AUTO_NUMBER, .embed_std = AUTO_NUMBER, .score_scale = AUTO_NUMBER,
    .lr = AUTO_NUMBER, .embed_lr = AUTO_NUMBER, .weight_decay = AUTO_NUMBER, .embed_decay = AUTO_NUMBER,
    .clip = AUTO_NUMBER, .max_loss = AUTO_NUMBER, .warmup = AUTO_COUNT_FROM_0,
    .teacher_weight = 1, .temperature = 1, .adam_lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .momentum = 0.95, .decay = 0.5,
    .val_every = 500, .val_tokens = 16384, .sample_every = 1000, .sample_length = 60, .save_every = 500, .keep = 2,
};

#define LARGE 1e9
#define WORDS(name, field, words, help, saved)     WORDS_ROW(name, &train_settings.field, words, help, saved)
#define COUNT(name, field, help, low, high, saved) COUNT_ROW(name, &train_settings.field, help, low, high, saved)
#define AUTO_COUNT_OF(name, field, help, low, high, saved) \
    AUTO_COUNT_ROW(name, &train_settings.field, help, low, high, saved)
#define AUTO_NUMBER_OF(name, field, help, low, high, saved) \
    AUTO_NUMBER_ROW(name, &train_settings.field, help, low, high, saved)
#define NUMBER(name, field, help, low, high)       NUMBER_ROW(name, &train_settings.field, help, low, high, ALWAYS)
#define NEW_AUTO_NUMBER(name, field, help, low, high) \
    ROW(name, NUMBER, &train_settings.field, "X", help, low, high, ALWAYS, AUTO_SINCE_2)
#define FLAG(name, field, help, saved)             FLAG_ROW(name, &train_settings.field, help, saved)
#define MODEL(name, field, help, low, high)        NUMBER_ROW(name, &train_settings.field, help, low, high, IF_GIVEN)
#define TEXT(name, field, hint, help, saved)       TEXT_ROW(name, &train_settings.field, hint, help, saved)

static option options[] = {
    FILES_ROW("data", &train_settings.data, "a text (stories may be separated by " STORY_MARK "), or a token shard; "
              "several files are joined", ALWAYS),
    TEXT("out", out, "RUN", "the folder to write to; it must be new or empty", NEVER),
    TEXT("resume", resume, "RUN", "continue a run that was stopped or killed; only --threads, --device, --recompute, "
         "--stop-at and, if the text was moved, --data and --val can be given with it", NEVER),
    TEXT("from", from, "RUN|CHECKPOINT", "start a new run from the newest checkpoint of another one, or from that which is "
         "named, with its settings except those that are given, such as a lower --lr or more --steps", ALWAYS),
    TEXT("config", config, "FILE", "read settings from a file of `key = value` lines; options on the command line override "
         "it. If it notes a hash of its data, as a run's does, other data must be named by --data", NEVER),
    AUTO_COUNT_OF("vocab", vocab, "train a tokenizer of N tokens on the text; auto: that of --tokenizer, or bytes", 1, LARGE,
                  ALWAYS),
    TEXT("tokenizer", tokenizer, "FILE", "a tokenizer.json (WordPiece, or byte-level BPE)", ALWAYS),
    FILES_ROW("val", &train_settings.val, "a text or a token shard that is held out, instead of the end of --data", ALWAYS),
    WORDS("split", split, SPLIT_WORDS, "what separates two stories, which begin with [BOS]: marks (" STORY_MARK "), blank "
          "lines, or each line; auto: marks, if there are any", ALWAYS),
    NUMBER("held-out", held_out, "share of the text, at its end, that is not trained on", 0.0001, 0.9),
    /* the model */
    TEXT("model", model, "NAME", "start from a named model, such as gpt2-bilinear-4l-4h-128embd or TinyStories-1-256; the "
         "options below change it", ALWAYS),
    COUNT("layers", layers, "number of blocks", 1, 10000, IF_GIVEN),
    COUNT("width", width, "width of the residual stream", 1, LARGE, IF_GIVEN),
    AUTO_COUNT_OF("heads", heads, "attention heads per block; auto: width / 64", 1, LARGE, IF_GIVEN),
    COUNT("context", context, "tokens per training text", 1, LARGE, IF_GIVEN),
    WORD_LIST_ROW("mlp", &train_settings.mlp, "bilinear|relu|relu2|gelu|swish|glu|reglu|geglu|swiglu|gelu-tanh",
                  "kind of the MLP; several, separated by commas, are used by the blocks in turn", IF_GIVEN),
    AUTO_COUNT_OF("hidden", hidden, "hidden width of the MLP; auto: as many parameters as an MLP with one encoder of 4 "
                  "times the width", 1, LARGE, IF_GIVEN),
    AUTO_COUNT_OF("order", order, "number of encoders that a bilinear MLP multiplies; auto: 2", 1, 64, IF_GIVEN),
    WORD_LIST_ROW("attention", &train_settings.attention, "softmax|squared|bilinear|differential|differential-plain",
                  "kind of attention; several, separated by commas, are used by the blocks in turn", IF_GIVEN),
    WORDS("row-scale", row_scale, "default|none|length|mean|sum", "how squared and bilinear attention scale a row of "
          "scores; default: length", IF_GIVEN),
    AUTO_COUNT_OF("d-qk", d_qk, "width of a head's queries and keys; auto: width / heads", 1, LARGE, IF_GIVEN),
    AUTO_COUNT_OF("d-v", d_v, "width of a head's values; auto: width / heads", 1, LARGE, IF_GIVEN),
    COUNT_LIST_ROW("window", &train_settings.window, "number of most recent keys that a query sees; 0 (the default): all; "
                   "several, separated by commas, are used by the blocks in turn", 0, LARGE, IF_GIVEN),
    WORDS("positions", positions, "rope|learned|none", "position encoding", IF_GIVEN),
    MODEL("rope-base", rope_base, "base of the wavelengths of rope", 1, 1e12),
    WORDS("norm", norm, "rms|layer|none", "kind of the norms; none: no norm but that of queries and keys", IF_GIVEN),
    MODEL("norm-eps", norm_eps, "what the norms outside attention add to the variance or mean square", 1e-30, 1),
    FLAG("no-embed-norm", no_embed_norm, "do not normalise the embedding", IF_GIVEN),
    WORDS("norm-place", place, "pre|post|sandwich", "norms before attention and MLP, after them, or both", IF_GIVEN),
    FLAG("gain", gain, "give the norms learned gains", IF_GIVEN),
    FLAG("no-qk-norm", no_qk_norm, "do not normalise queries and keys", IF_GIVEN),
    MODEL("qk-norm-eps", qk_norm_eps, "what the norm of queries and keys adds to the mean square", 1e-30, 1),
    FLAG("head-norm", head_norm, "normalise the output of each head", IF_GIVEN),
    FLAG("bias", bias, "add biases to attention and MLP", IF_GIVEN),
    FLAG("tied", tied, "use one table as embedding and unembedding", IF_GIVEN),
    FLAG("x0-residual", x0_residual, "add the embedding to the input of each block, times a learned factor", IF_GIVEN),
    FLAG("value-residual", value_residual, "mix values with those of the first block", IF_GIVEN),
    FLAG("no-zero-init", no_zero_init, "do not initialise output projections and unembedding with zero", IF_GIVEN),
    AUTO_NUMBER_OF("init-std", init_std, "standard deviation of the weights at the start; auto: 1/sqrt(number of inputs)",
                   1e-9, 1e6, IF_GIVEN),
    AUTO_NUMBER_OF("embed-std", embed_std, "standard deviation of the embedding at the start; auto: 1, with --norm none "
                   "0.5, or if --tied ln(vocabulary)/(2 width), with --norm none its root", 1e-9, 1e6, IF_GIVEN),
    AUTO_NUMBER_OF("attn-scale", attn_scale, "factor of attention where it is added to the residual stream; auto: 1, or "
                   "with --norm none 1/layers", 1e-6, 1e6, IF_GIVEN),
    AUTO_NUMBER_OF("mlp-scale", mlp_scale, "factor of the MLP where it is added; auto: as --attn-scale", 1e-6, 1e6,
                   IF_GIVEN),
    AUTO_NUMBER_OF("score-scale", score_scale, "factor of the scores; auto: 1/sqrt(d) for softmax, 1/d for squared and "
                   "bilinear attention", 1e-9, 1e6, IF_GIVEN),
    MODEL("softcap", softcap, "cap the logits z to X tanh(z/X); 0 (the default): no cap", 0, 1e6),
    NUMBER("embed-noise", embed_noise, "standard deviation of normal noise that is added to the embedding in training", 0,
           1e6),
    NUMBER("dropout", dropout, "probability of dropout for the embedding and for what attention and MLP add", 0, 0.99),
    /* training */
    TEXT("teacher", teacher, "RUN|CHECKPOINT", "learn the probabilities of that model, whose tokenizer is used "
         "(distillation); log.jsonl has the loss on the text. Its weights must stay where they are until the end", ALWAYS),
    NUMBER("teacher-weight", teacher_weight, "share of the teacher in the loss; the rest is that of the text", 0, 1),
    NUMBER("temperature", temperature, "X divides the logits of both before the teacher's probabilities are "
           "learnt, and its part of the loss is multiplied by X^2", 1e-3, 1e3),
    COUNT("batch", batch, "texts per forward pass", 1, LARGE, ALWAYS),
    COUNT("accumulate", accumulate, "forward and backward passes per step, whose gradients are added", 1, LARGE, ALWAYS),
    AUTO_COUNT_OF("steps", steps, "number of steps; auto: as many as --tokens needs. Give one of --steps, --tokens and "
                  "--minutes", 1, 1e12, ALWAYS),
    COUNT("tokens", tokens, "number of tokens to train on, over all steps", 1, 1e15, NEVER),
    NUMBER_ROW("minutes", &train_settings.minutes, "train for about X minutes: the number of steps is estimated from the "
               "speed of a few", 1e-6, 1e6, NEVER),
    WORDS("optimizer", optimiser, "muon|adamw", "muon updates matrices by Muon and everything else by AdamW", ALWAYS),
    AUTO_NUMBER_OF("lr", lr, "learning rate of Muon, or of AdamW alone; auto: 0.02, or 0.002", 0, 1e12, ALWAYS),
    NUMBER("adam-lr", adam_lr, "learning rate of what AdamW updates beside Muon", 0, 1e12),
    AUTO_NUMBER_OF("embed-lr", embed_lr, "learning rate of the embedding; auto: 15 times AdamW's, or 4 times if --tied", 0,
                   1e12, ALWAYS),
    NUMBER("beta1", beta1, "decay rate of AdamW's first moment", 1e-6, 0.999999),
    NUMBER("beta2", beta2, "decay rate of AdamW's second moment", 1e-6, 0.999999),
    NUMBER("momentum", momentum, "momentum of Muon", 1e-6, 0.999999),
    NEW_AUTO_NUMBER("weight-decay", weight_decay, "decoupled weight decay; auto: 0, or with --norm none 0.5", 0, 1e3),
    NEW_AUTO_NUMBER("embed-decay", embed_decay, "that of the embedding; auto: the same, or with --norm none 0", 0, 1e3),
    NEW_AUTO_NUMBER("clip", clip, "clip the gradient to this norm; 0: do not; auto: 1, or with --norm none 0.1", 0, 1e12),
    WORDS("schedule", schedule, "trapezoid|cosine|linear|constant", "schedule of the learning rate after the warm-up",
          ALWAYS),
    ROW("warmup", COUNT, &train_settings.warmup, "N", "steps in which the learning rate rises from 0; auto: 20, or with "
        "--norm none 100; never more than half of the steps", 0, 1e12, ALWAYS, AUTO_SINCE_2),
    NUMBER("decay", decay, "last share of the steps, in which the trapezoid falls to 0", 0, 1),
    AUTO_NUMBER_OF("max-loss", max_loss, "stop if the loss exceeds X; auto: 2 ln(vocabulary) + 5", 1e-9, 1e12, ALWAYS),
    COUNT("seed", seed, "seed of the weights and of the order of the data", 0, 9e15, ALWAYS),
    WORDS("dtype", dtype, "f32|f64", "type of weights, activations and sums", ALWAYS),
    WORDS("backend", backend, BACKEND_WORDS, "reference: plain loops, slow; cuda: a GPU", ALWAYS),
    WORDS("comm", comm, COMM_WORDS, "how processes that train this run together are connected: socket (of one machine), mpi "
          "(make tn-mpi) or nccl (make tn-cuda). A launcher such as mpirun or torchrun starts them; each gets its part of "
          "--batch, so that the results do not depend on their number but in the last bits", NEVER),
    FLAG("share-moments", share_moments, "with --comm: each process keeps the moments of a part of the parameters, and updates "
         "that part (ZeRO, stage 1)", NEVER),
    COUNT("device", device, "number of the GPU; 0, the first, is the default", 0, 1024, NEVER),
    WORDS("precision", precision, "f32|tf32|bf16|bf16x3|bf16x6", "factors of matrix products, whose sums stay f32: rounded, "
          "or split into two or three bf16 numbers (3 or 6 products); used where the backend is faster with it, which the log "
          "says", ALWAYS),
    WORDS("activations", activations, "f32|bf16", "type of the activations; bf16 needs half the memory, and is faster on a "
          "processor with --precision bf16 and a unit for it; weights stay f32", ALWAYS),
    FLAG("recompute", recompute, "keep only the input of each block and compute the block again in the backward pass: less "
         "memory, bit-identical results", ALWAYS),
    AUTO_COUNT_OF("threads", threads, "number of threads; auto: one per core. Results do not depend on it", 1, 1024, NEVER),
    /* what is logged and saved */
    COUNT("log-layers", log_layers, "steps between lines of the log about each parameter (its size, gradient, update and "
          "effective rank) and about the entropy of each block's attention; 0 (the default): none", 0, 1e12, ALWAYS),
    COUNT("val-every", val_every, "steps between evaluations on held-out data; 0: only at the end", 0, 1e12, ALWAYS),
    COUNT("val-tokens", val_tokens, "held-out tokens per evaluation, in windows spread over the held-out part; after the "
          "last step all tokens are evaluated as well", 1, 1e12, ALWAYS),
    COUNT("sample-every", sample_every, "steps between samples; 0: no samples", 0, 1e12, ALWAYS),
    COUNT("sample-length", sample_length, "tokens per sample", 1, LARGE, ALWAYS),
    TEXT("prompt", prompt, "TEXT", "how samples begin; without a prompt, and if the text has no " STORY_MARK ", with a "
         "word of the text", ALWAYS),
    COUNT("save-every", save_every, "steps between checkpoints; 0: only at the end", 0, 1e12, ALWAYS),
    COUNT("keep", keep, "number of checkpoints to keep; older ones are removed after the next step succeeds", 1, LARGE,
          ALWAYS),
    COUNT("weights-every", weights_every, "steps between files weights-NNNNNNNN.safetensors, the weights alone, which stay: for "
          "tn circuits RUN history. There is one of step 0 as well; 0 (the default): none", 0, 1e12, IF_GIVEN),
    COUNT("stop-at", stop_at, "stop after step N as if interrupted; 0 (the default): do not", 0, 1e12, NEVER),
    FLAG("audit", audit, "for tn audit: keep all checkpoints of --save-every, and write a chain of hashes (SHA-256) of the "
         "text, the settings, the checkpoints and the log to log.jsonl", IF_GIVEN),
    FLAG("keep-best", keep_best, "also save best.safetensors, the weights with the lowest held-out loss so far", ALWAYS),
    FLAG("no-baseline", no_baseline, "do not compute the n-gram baseline", ALWAYS),
};

static const option_group groups[] = {
    {"data", "Data and runs:"}, {"model", "The model:"}, {"init-std", "How the model starts, and is scaled:"},
    {"embed-noise", "Training:"}, {"dtype", "The machine:"}, {"log-layers", "What is logged and saved:"}, {NULL, NULL}
};

const usage train_usage = {
    "train", "FILE... --out RUN | --config FILE --out RUN | --from RUN|CHECKPOINT --out NEW | --resume RUN",
    "train a language model, or resume a run",
    "Trains a language model. The folder RUN holds all that it writes: config.txt, config.json, tokenizer.json, log.jsonl, "
    PICTURE ", checkpoints, and at the end model.safetensors.",
    "If it is interrupted (SIGINT, SIGTERM, SIGHUP), it saves a checkpoint of the last complete step and ends with exit status "
    "130, 143 or 129, all processes with the same. The step is finished first; one of many parts (--accumulate) is ended between "
    "two of them, unless there is dropout or noise, or one process trains on a device. After SIGUSR1 it saves a checkpoint and goes on. "
    "--resume continues from the last checkpoint, also after a kill; the results are bit-identical to those of a run that "
    "was never stopped.",
    options, sizeof options / sizeof *options, INT_MAX, groups
};

/* The library's default is 0. */
static double number_or_0(double v) { return v == AUTO_NUMBER ? 0 : v; }

enum { NORM_NONE = 2 };             /* the word of --norm after those of tn_norm_kind */

/* Whether the option decides: always, but of a named model only the options that were given change anything. */
static bool is_set(const char *name) { return !train_settings.model || find_option(&train_usage, name)->given; }

static bool is_polynomial(tn_attention_kind k) { return k == TN_ATTENTION_SQUARED || k == TN_ATTENTION_BILINEAR; }

/* Whether a block has attention whose rows are scaled. */
static bool has_row_scale(const tn_transformer_desc *desc)
{
    for (int64_t i = 0; i < desc->attention_count; i++) if (is_polynomial(desc->attention_cycle[i])) return true;
    return !desc->attention_count && is_polynomial(desc->attention);
}

/* Without norms nothing bounds the residual stream but the weights. docs/results.md has what was measured. */
static double start_of_embedding(const tn_transformer_desc *desc)
{
    if (train_settings.embed_std == AUTO_NUMBER && desc->no_norm && !desc->tied) return 0.5;
    return number_or_0(train_settings.embed_std);
}

static double branch_scale(const tn_transformer_desc *desc, double given)
{
    return given != AUTO_NUMBER ? given : desc->no_norm ? 1 / (double)desc->layers : 1;
}

/* What the blocks use in turn; a cycle of one is what all of them use. */
#define SET_CYCLE(field, type) { \
    for (int i = 0; i < train_settings.field.count; i++) desc->field##_cycle[i] = (type)train_settings.field.value[i]; \
    desc->field##_count = train_settings.field.count; \
}

/* Whether the options fit together, and what they say is a model. */
static void check_model_desc(tn_ctx *ctx, tn_transformer_desc *desc)
{
    if (desc->no_norm && desc->norm_place != TN_PLACE_PRE)
        usage_error("--norm-place is given with --norm none, expected pre");
    if (desc->no_norm && (train_settings.gain || train_settings.head_norm))
        usage_error("--%s is given with --norm none, which has no norms", train_settings.gain ? "gain" : "head-norm");
    if (train_settings.row_scale && !has_row_scale(desc))
        usage_error("--row-scale is given with --attention softmax or differential, expected squared or bilinear");
    if (tn_transformer_check(ctx, desc, desc) != TN_OK) usage_error("the model: %s", tn_ctx_error(ctx));
    double tokens = (double)train_settings.batch * (double)train_settings.accumulate * (double)desc->context;
    if (tokens > 1e15)
        usage_error("--batch is %lld, --accumulate %lld and --context %lld, which is %.3g tokens per step, expected at most 1e15",
                    (long long)train_settings.batch, (long long)train_settings.accumulate, (long long)desc->context, tokens);
}

void set_model_desc(tn_ctx *ctx, int64_t vocab, tn_transformer_desc *desc)
{
    memset(desc, 0, sizeof *desc);
    if (train_settings.model) {
        char why[256];
        if (!model_from_name(ctx, train_settings.model, desc, why)) usage_error("--model: %s", why);
    } else {                                          /* QK-norm and zero projections, as in modded-nanoGPT */
        desc->no_norm_gain = desc->embed_norm = true;
        desc->init = TN_INIT_NORMAL;
        for (int i = 0; i < train_usage.count; i++) if (options[i].saved == IF_GIVEN) options[i].given = true;
    }
    desc->vocab = vocab;
    if (is_set("layers")) desc->layers = train_settings.layers;
    if (is_set("width")) desc->dim = train_settings.width;
    if (is_set("heads")) desc->heads = train_settings.heads ? train_settings.heads : desc->dim >= 64 ? desc->dim / 64 : 1;
    if (is_set("context")) desc->context = train_settings.context;
    if (is_set("mlp")) SET_CYCLE(mlp, tn_mlp_kind)
    if (is_set("hidden")) desc->hidden = train_settings.hidden;
    if (is_set("order")) desc->mlp_order = train_settings.order;
    if (is_set("attention")) SET_CYCLE(attention, tn_attention_kind)
    if (is_set("row-scale")) desc->row_scale = (tn_row_scale)train_settings.row_scale;
    if (is_set("d-qk")) desc->d_qk = train_settings.d_qk;
    if (is_set("d-v")) desc->d_v = train_settings.d_v;
    if (is_set("window")) SET_CYCLE(window, int64_t)
    if (is_set("positions")) desc->positions = (tn_positions)train_settings.positions;
    if (is_set("rope-base")) desc->rope_base = train_settings.rope_base;
    if (is_set("norm")) desc->no_norm = train_settings.norm == NORM_NONE;
    if (is_set("norm")) desc->norm = desc->no_norm ? TN_NORM_RMS : (tn_norm_kind)train_settings.norm;
    if (is_set("norm")) desc->norm_bias = desc->norm == TN_NORM_LAYER;
    if (is_set("norm-eps")) desc->norm_eps = train_settings.norm_eps;
    if (is_set("no-embed-norm")) desc->embed_norm = !train_settings.no_embed_norm;
    if (desc->no_norm) desc->embed_norm = false;
    if (is_set("norm-place")) desc->norm_place = (tn_place)train_settings.place;
    if (is_set("gain")) desc->no_norm_gain = !train_settings.gain;
    if (is_set("no-qk-norm")) desc->qk_norm = !train_settings.no_qk_norm;
    if (is_set("qk-norm-eps")) desc->qk_norm_eps = train_settings.qk_norm_eps;
    if (is_set("head-norm")) desc->head_norm = train_settings.head_norm;
    if (is_set("bias")) desc->attn_bias = desc->attn_out_bias = desc->mlp_bias = desc->mlp_out_bias = train_settings.bias;
    if (is_set("tied")) desc->tied = train_settings.tied;
    if (is_set("x0-residual")) desc->x0_residual = train_settings.x0_residual;
    if (is_set("value-residual")) desc->value_residual = train_settings.value_residual;
    if (is_set("no-zero-init")) desc->zero_out = desc->zero_head = !train_settings.no_zero_init;
    if (is_set("init-std")) desc->init_std = number_or_0(train_settings.init_std);
    if (is_set("embed-std")) desc->embed_std = start_of_embedding(desc);
    if (is_set("attn-scale")) desc->attn_scale = branch_scale(desc, train_settings.attn_scale);
    if (is_set("mlp-scale")) desc->mlp_scale = branch_scale(desc, train_settings.mlp_scale);
    if (is_set("score-scale")) desc->score_scale = number_or_0(train_settings.score_scale);
    if (is_set("softcap")) desc->softcap = train_settings.softcap;
    if (desc->tied) desc->zero_head = false;
    desc->recompute = train_settings.recompute;
    desc->embed_noise = train_settings.embed_noise;
    desc->dropout = train_settings.dropout;
    check_model_desc(ctx, desc);
}

void read_settings(const char *text, size_t bytes, const char *name)
{
    const char *mark = strstr(text, DATA_MARK);
    long long   size = 0;
    read_config(&train_usage, text, bytes, name);
    *train_settings.data_hash = 0;
    if (mark) sscanf(mark + strlen(DATA_MARK), "%16[0-9a-f] %lld", train_settings.data_hash, &size);
    train_settings.data_bytes = size > 0 ? size : 0;
}

const char *after_paths(const char *text)
{
    while (!strncmp(text, "data = ", 7) || !strncmp(text, "val = ", 6) ||
           !strncmp(text, &DATA_MARK[1], strlen(DATA_MARK) - 1)) {
        text += strcspn(text, "\n");
        text += *text != 0;
    }
    return text;
}

bool same_settings(const char *a, const char *b)
{
    for (;;) {
        size_t n, m;
        a = after_paths(a);
        b = after_paths(b);
        n = strcspn(a, "\n"), m = strcspn(b, "\n");
        if (n != m || memcmp(a, b, n)) return false;
        if (!a[n] || !b[n]) return a[n] == b[n];
        a += n + 1, b += n + 1;
    }
}

void set_optim_desc(const settings *s, bool no_norm, tn_optim_desc *desc)
{
    static const tn_schedule_kind kinds[] = {TN_SCHEDULE_TRAPEZOID, TN_SCHEDULE_COSINE, TN_SCHEDULE_LINEAR,
        TN_SCHEDULE_CONSTANT};
    const int64_t steps = s->steps ? s->steps : 1000;         /* not known yet while the speed is measured */
    const int64_t warmup = s->warmup != AUTO_COUNT_FROM_0 ? s->warmup : no_norm ? 100 : 20;
    memset(desc, 0, sizeof *desc);
    desc->kind = s->optimiser ? TN_OPTIM_ADAMW : TN_OPTIM_MUON;
    desc->lr = s->lr > 0 ? s->lr : s->optimiser ? 0.002 : 0.02;       /* a rate of 0 is a factor of the parameters' */
    desc->adam_lr = s->adam_lr > 0 ? s->adam_lr : 0.01;
    desc->beta1 = s->beta1;
    desc->beta2 = s->beta2;
    desc->momentum = s->momentum;
    desc->weight_decay = s->weight_decay >= 0 ? s->weight_decay : no_norm ? 0.5 : 0;
    desc->share_moments = s->share_moments;
    desc->clip_norm = s->clip >= 0 ? s->clip : no_norm ? 0.1 : 1;
    desc->schedule.kind = kinds[s->schedule];
    desc->schedule.total = steps;
    desc->schedule.warmup = warmup < steps / 2 ? warmup : steps / 2;
    desc->schedule.decay = (int64_t)(s->decay * (double)steps);
    if (desc->schedule.decay > steps - desc->schedule.warmup) desc->schedule.decay = steps - desc->schedule.warmup;
}

void set_dtypes(const settings *s, tn_desc *desc)
{
    static const tn_gemm_precision precision[] = {TN_GEMM_F32, TN_GEMM_TF32, TN_GEMM_BF16, TN_GEMM_BF16X3,
        TN_GEMM_BF16X6};
    memset(desc, 0, sizeof *desc);
    if (s->dtype && (s->precision || s->activations))
        usage_error("--dtype is f64, expected f32 with --precision or --activations");
    desc->dtype = s->dtype ? TN_F64 : TN_F32;
    desc->gemm_precision = precision[s->precision];
    desc->activations = s->activations ? TN_BF16 : TN_REAL;
}

void set_ctx_desc(const settings *s, tn_desc *desc)
{
    char word[16];
    set_dtypes(s, desc);
    if (s->log_layers && !strcmp(choice_word(BACKEND_WORDS, s->backend, word, sizeof word), "cuda"))
        usage_error("--log-layers is given with --backend cuda, expected a backend on the processor");
    if (s->log_layers && other_processes())
        usage_error("--log-layers is given with --comm, expected one process: gradients of parts are not those of the batch");
    use_backend(desc, s->backend, s->device + rank_here());
    desc->seed = (uint64_t)s->seed;
    desc->threads = (int)s->threads;
    if (!s->threads && processes_here() > 1) {
        const long cores = sysconf(_SC_NPROCESSORS_ONLN) / processes_here();
        desc->threads = cores > 1 ? (int)cores : 1;
    }
    desc->log = show_log;
}
