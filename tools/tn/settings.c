/* settings.c - what can be asked of `tn train`: flags, the keys of config files, and what they make of a model and its
   training

   The defaults are the recipe that docs/guide.md gives figures for. */
#include "train.h"
#include "names.h"
#include <string.h>

settings asked = {
    .prompt = "", .held_out = 0.05,
    .layers = 1, .width = 128, .context = 256,
    .batch = 8, .accumulate = 1, .tokens = 8000000, .warmup = 20, .seed = 1,
    .adam_lr = 0.01, .clip = 1, .decay = 0.5,
    .val_every = 500, .val_tokens = 16384, .sample_every = 1000, .sample_length = 60, .save_every = 500, .keep = 2,
};

#define SMALL 1e9
#define WORDS(name, field, words, help, saved)     WORDS_ROW(name, &asked.field, words, help, saved)
#define COUNT(name, field, help, low, high, saved) COUNT_ROW(name, &asked.field, help, low, high, saved)
#define NUMBER(name, field, help, low, high)       NUMBER_ROW(name, &asked.field, help, low, high, ALWAYS)
#define FLAG(name, field, help, saved)             FLAG_ROW(name, &asked.field, help, saved)
#define TEXT(name, field, hint, help, saved)       TEXT_ROW(name, &asked.field, hint, help, saved)

static option options[] = {
    FILES_ROW("data", &asked.data, "text (stories may end with " STORY_MARK "), or token shards; several are joined",
              ALWAYS),
    TEXT("out", out, "RUN", "a new folder for all that the run writes", NEVER),
    TEXT("resume", resume, "RUN", "goes on with a run that was stopped or killed; alone, or with --threads, --device, "
         "--recompute, --stop-at and, if it was moved, the same --data", NEVER),
    TEXT("from", from, "CHECKPOINT", "a new run that goes on from one of another, with its settings but for those that are "
         "given: a lower --lr, say, or more --steps", ALWAYS),
    TEXT("config", config, "FILE", "settings, `key = value` on each line; flags go before them", NEVER),
    COUNT("vocab", vocab, "trains a tokenizer of so many tokens; 0: bytes, or the --tokenizer's", 0, 65536, ALWAYS),
    TEXT("tokenizer", tokenizer, "FILE", "a tokenizer.json (WordPiece)", ALWAYS),
    NUMBER("held-out", held_out, "the last share of the text, which is not trained on; 0.05", 0.0001, 0.9),
    /* the model */
    TEXT("model", model, "NAME", "gpt2-bilinear-4l-4h-128embd, TinyStories-1-256, ...; the flags below change it", ALWAYS),
    COUNT("layers", layers, "1", 1, 10000, IF_GIVEN),
    COUNT("width", width, "128", 1, SMALL, IF_GIVEN),
    COUNT("heads", heads, "0: width/64", 0, SMALL, IF_GIVEN),
    COUNT("context", context, "tokens of a training text; 256", 1, SMALL, IF_GIVEN),
    WORDS("mlp", mlp, "bilinear|relu|relu2|gelu|swish|glu|reglu|geglu|swiglu|gelu-tanh", "bilinear", IF_GIVEN),
    COUNT("hidden", hidden, "of the MLP; 0: as many parameters as 4 width with one encoder", 0, SMALL, IF_GIVEN),
    COUNT("order", order, "encoders of a bilinear MLP; 0: 2", 0, 64, IF_GIVEN),
    WORDS("attention", attention, "softmax|squared|bilinear|differential|differential-plain", "softmax", IF_GIVEN),
    WORDS("row-scale", row_scale, "default|none|length|mean|sum", "of squared and bilinear attention; default: length",
          IF_GIVEN),
    COUNT("d-qk", d_qk, "of a head's queries and keys; 0: width/heads", 0, SMALL, IF_GIVEN),
    COUNT("window", window, "keys that a query sees; 0: all", 0, SMALL, IF_GIVEN),
    WORDS("positions", positions, "rope|learned|none", "rope", IF_GIVEN),
    WORDS("norm", norm, "rms|layer", "rms", IF_GIVEN),
    WORDS("norm-place", place, "pre|post|sandwich", "pre", IF_GIVEN),
    FLAG("gain", gain, "norms have gains", IF_GIVEN),
    FLAG("no-qk-norm", no_qk_norm, "queries and keys are not normed", IF_GIVEN),
    FLAG("head-norm", head_norm, "each head's output is normed", IF_GIVEN),
    FLAG("bias", bias, "biases in attention and MLP", IF_GIVEN),
    FLAG("tied", tied, "embedding and unembedding are one table", IF_GIVEN),
    FLAG("x0-residual", x0_residual, "each block also reads the embedding, by a learned factor", IF_GIVEN),
    FLAG("value-residual", value_residual, "values are mixed with those of the first block", IF_GIVEN),
    FLAG("no-zero-init", no_zero_init, "projections and unembedding do not start from zero", IF_GIVEN),
    NUMBER_ROW("score-scale", &asked.score_scale, "of queries with keys; 0: softmax 1/sqrt(d), squared and bilinear 1/d", 0,
               1e6, IF_GIVEN),
    NUMBER_ROW("softcap", &asked.softcap, "logits X tanh(z/X); 0: z", 0, 1e6, IF_GIVEN),
    /* training */
    COUNT("batch", batch, "texts in a step's part; 8", 1, SMALL, ALWAYS),
    COUNT("accumulate", accumulate, "parts of a step; 1", 1, SMALL, ALWAYS),
    COUNT("steps", steps, "0: as --tokens says; one of the three counts", 0, 1e12, ALWAYS),
    COUNT("tokens", tokens, "to train on in all; 8M", 1, 1e15, NEVER),
    NUMBER_ROW("minutes", &asked.minutes, "as many steps as fit into X minutes, by a look at the speed", 0, 1e6, NEVER),
    WORDS("optimizer", optimiser, "muon|adamw", "muon: matrices by Muon, all else by AdamW", ALWAYS),
    NUMBER("lr", lr, "learning rate, of Muon or of AdamW alone; 0: 0.02, 0.002", 0, 1e12),
    NUMBER("adam-lr", adam_lr, "of what AdamW updates beside Muon; 0.01", 0, 1e12),
    NUMBER("embed-lr", embed_lr, "of the embedding; 0: 15 times AdamW's, tied: AdamW's", 0, 1e12),
    NUMBER("weight-decay", weight_decay, "decoupled; 0", 0, 1e3),
    NUMBER("clip", clip, "gradients are cut to this norm; 1; 0: never", 0, 1e12),
    WORDS("schedule", schedule, "trapezoid|cosine|linear|constant", "trapezoid", ALWAYS),
    COUNT("warmup", warmup, "steps in which the learning rate rises; 20", 0, 1e12, ALWAYS),
    NUMBER("decay", decay, "of the trapezoid: the last share of the steps, in which it falls; 0.5", 0, 1),
    NUMBER("max-loss", max_loss, "a larger loss ends the run; 0: 2 ln vocabulary + 5", 0, 1e12),
    COUNT("seed", seed, "of the weights and of the order of the data; 1", 0, 9e15, ALWAYS),
    WORDS("dtype", dtype, "f32|f64", "f32", ALWAYS),
    WORDS("backend", backend, BACKEND_WORDS, "cpu; reference: plain loops, slow; cuda: a GPU", ALWAYS),
    COUNT("device", device, "which GPU; 0", 0, 1024, NEVER),
    WORDS("precision", precision, "f32|tf32|bf16", "of matrix products, sums are F32; tf32, bf16: where the backend gains by it",
          ALWAYS),
    WORDS("activations", activations, "f32|bf16", "what a step keeps; with bf16 half the memory, weights stay f32", ALWAYS),
    FLAG("recompute", recompute, "blocks keep their inputs alone and compute twice: less memory, the same bits", ALWAYS),
    COUNT("threads", threads, "0: all; the bits do not depend on them", 0, 1024, NEVER),
    /* what is told and kept */
    COUNT("val-every", val_every, "steps between two looks at the held-out part; 500; 0: only at the end", 0, 1e12, ALWAYS),
    COUNT("val-tokens", val_tokens, "of it at such a look; 16384. At the end it is all of it", 1, 1e12, ALWAYS),
    COUNT("sample-every", sample_every, "steps between two samples; 1000; 0: none", 0, 1e12, ALWAYS),
    COUNT("sample-length", sample_length, "tokens; 60", 1, SMALL, ALWAYS),
    TEXT("prompt", prompt, "TEXT", "how samples begin; without it, where the text has no " STORY_MARK ", "
         "with a word of it", ALWAYS),
    COUNT("save-every", save_every, "steps between two checkpoints; 500; 0: only at the end", 0, 1e12, ALWAYS),
    COUNT("keep", keep, "so many checkpoints, the last whose next step's loss was fine; 2", 1, SMALL, ALWAYS),
    COUNT("stop-at", stop_at, "stops after this step, as if interrupted; 0: does not", 0, 1e12, NEVER),
    FLAG("no-baseline", no_baseline, "no n-grams", ALWAYS),
};

const usage train_usage = {
    "train", "FILE... --out RUN | --config FILE --out RUN | --from CHECKPOINT --out RUN | --resume RUN",
    "Trains a language model. All that it writes is in the folder RUN: config.txt, config.json, tokenizer.json, log.jsonl, "
    PICTURE ", checkpoints, and model.safetensors at the end.",
    "Interrupted (SIGINT, SIGTERM), it finishes the step and saves: exit status 130, 143. Killed, --resume takes the "
    "last checkpoint, and what then comes has the bits of a run that was never stopped.",
    options, sizeof options / sizeof *options
};

/* Of a named model only what was given is changed. */
static bool changes(const char *name) { return !asked.model || find_option(&train_usage, name)->given; }

void model_of(tn_ctx *ctx, int64_t vocab, tn_transformer_desc *desc)
{
    int i;
    memset(desc, 0, sizeof *desc);
    if (asked.model) {
        char why[256];
        if (!model_from_name(ctx, asked.model, desc, why)) misuse("--model: %s", why);
    } else {                                          /* QK-norm and zero projections: as modded-nanoGPT has them */
        desc->no_gain = desc->embed_norm = true;
        desc->init = TN_INIT_NORMAL;
        for (i = 0; i < train_usage.count; i++) if (options[i].saved == IF_GIVEN) options[i].given = true;
    }
    desc->vocab = vocab;
    if (changes("layers")) desc->layers = asked.layers;
    if (changes("width")) desc->dim = asked.width;
    if (changes("heads")) desc->heads = asked.heads ? asked.heads : desc->dim >= 64 ? desc->dim / 64 : 1;
    if (changes("context")) desc->context = asked.context;
    if (changes("mlp")) desc->mlp = (tn_mlp_kind)asked.mlp;
    if (changes("hidden")) desc->hidden = asked.hidden;
    if (changes("order")) desc->order = asked.order;
    if (changes("attention")) desc->attention = (tn_attention_kind)asked.attention;
    if (changes("row-scale")) desc->row = (tn_row_scale)asked.row_scale;
    if (changes("d-qk")) desc->d_qk = asked.d_qk;
    if (changes("window")) desc->window = asked.window;
    if (changes("positions")) desc->positions = (tn_positions)asked.positions;
    if (changes("norm")) desc->norm = (tn_norm_kind)asked.norm;
    if (changes("norm-place")) desc->place = (tn_norm_place)asked.place;
    if (changes("gain")) desc->no_gain = !asked.gain;
    if (changes("no-qk-norm")) desc->qk_norm = !asked.no_qk_norm;
    if (changes("head-norm")) desc->head_norm = asked.head_norm;
    if (changes("bias")) desc->attn_bias = desc->attn_out_bias = desc->mlp_bias = desc->mlp_out_bias = asked.bias;
    if (changes("tied")) desc->tied = asked.tied;
    if (changes("x0-residual")) desc->x0_residual = asked.x0_residual;
    if (changes("value-residual")) desc->value_residual = asked.value_residual;
    if (changes("no-zero-init")) desc->zero_out = desc->zero_head = !asked.no_zero_init;
    if (changes("score-scale")) desc->score_scale = asked.score_scale;
    if (changes("softcap")) desc->softcap = asked.softcap;
    if (desc->tied) desc->zero_head = false;
    desc->recompute = asked.recompute;
    if (asked.row_scale && desc->attention != TN_ATTENTION_SQUARED && desc->attention != TN_ATTENTION_BILINEAR)
        misuse("--row-scale is of --attention squared and bilinear; a softmax has none");
    if (tn_transformer_check(ctx, desc, desc) != TN_OK) misuse("the model: %s", tn_ctx_error(ctx));
}

void optimiser_of(const settings *s, tn_optim_desc *desc)
{
    static const tn_schedule_kind kinds[] = {TN_SCHEDULE_TRAPEZOID, TN_SCHEDULE_COSINE, TN_SCHEDULE_LINEAR,
        TN_SCHEDULE_CONSTANT};
    const int64_t steps = s->steps ? s->steps : 1000;         /* not known yet where the speed is looked at */
    memset(desc, 0, sizeof *desc);
    desc->kind = s->optimiser ? TN_ADAMW : TN_MUON;
    desc->lr = s->lr > 0 ? s->lr : s->optimiser ? 0.002 : 0.02;
    desc->adam_lr = s->adam_lr;
    desc->beta2 = 0.95;
    desc->weight_decay = s->weight_decay;
    desc->clip_norm = s->clip;
    desc->schedule.kind = kinds[s->schedule];
    desc->schedule.total = steps;
    desc->schedule.warmup = s->warmup < steps / 2 ? s->warmup : steps / 2;
    desc->schedule.decay = (int64_t)(s->decay * (double)steps);
    if (desc->schedule.decay > steps - desc->schedule.warmup) desc->schedule.decay = steps - desc->schedule.warmup;
}

void context_of(const settings *s, tn_desc *desc)
{
    static const tn_gemm_precision precision[] = {TN_GEMM_F32, TN_GEMM_TF32, TN_GEMM_BF16};
    memset(desc, 0, sizeof *desc);
    if (s->dtype && (s->precision || s->activations)) misuse("--dtype f64 has no --precision or --activations beside it");
    desc->dtype = s->dtype ? TN_F64 : TN_F32;
    desc->gemm_precision = precision[s->precision];
    desc->activations = s->activations ? TN_BF16 : TN_REAL;
    use_backend(desc, s->backend, s->device);
    desc->seed = (uint64_t)s->seed;
    desc->threads = (int)s->threads;
    desc->log = show_log;
}
