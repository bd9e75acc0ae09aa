/* analyses.c - five analyses of trained networks from their weights, in few lines

   First it trains two small networks on the bundled digits, from different seeds, and a language model of one bilinear block
   on a text, and saves them. The rest reads the files again and asks five questions:
       1 which pixels does each class look for?          3 do the two networks compute the same, class by class?
       2 how many eigenpairs does each class need?       4 which word follows which, which pairs make a word likely?
                                                         5 what do the attention heads write, and in which directions?
   The lines between the marks [ and ] are all that this takes; `lines:` counts those that are not blank, without the two
   of the marks.

   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/analyses.c -o analyses -lm && ./analyses
   --text FILE   --steps N   --out FOLDER                      (in the folder of tensornet.h) */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "analyses"
#include "program.h"

enum { TRAIN = 1500, ALL = 1797, BATCH = 50, VOCAB = 400, CONTEXT = 32, TEXTS = 16, DIM = 32 };

/* [ */
typedef struct net { tn_params *params; tn_linear embed, unembed; tn_mlp mlp; } net;
static tn_cp *open_net(tn_ctx *ctx, net *n, const char *path)
{
    n->params = tn_params_create(ctx);
    tn_linear_init(n->params, "embed", &(tn_linear_desc){ .in = 64, .out = 32 }, &n->embed);
    tn_mlp_init(n->params, "mlp", &(tn_mlp_desc){ .in = 32, .hidden = 32, .no_projection = true }, &n->mlp);
    tn_linear_init(n->params, "unembed", &(tn_linear_desc){ .in = 32, .out = 10 }, &n->unembed);
    if (path) tn_params_load(n->params, path);
    return path ? tn_cp_from_stack(ctx, &n->embed, &n->mlp, &n->unembed) : NULL;
}
static void show(const tn_tensor *t, const tn_tensor_table_desc *desc)
{
    static char text[1 << 16];
    if (tn_tensor_table(t, desc, text, sizeof text) >= 0) puts(text);
}
static void analyse(tn_ctx *ctx, const char *const *path, const tn_transformer_desc *desc, tn_tensor *x, tn_tensor *y,
                    const char *const *words, tn_tensor *ids, const char *out)
{
    net            n;
    tn_cp         *pixels[2];
    tn_eigenpairs       e;
    tn_transformer lm;
    tn_params     *params = tn_params_create(ctx);
    tn_tensor     *s = tn_scale(ctx, tn_matmul(ctx, tn_transpose(x, 0, 1), x), 1.0 / (double)x->shape[0]);
    for (int i = 0; i < 2; i++) pixels[i] = open_net(ctx, &n, path[i]);
    tn_transformer_init(params, "", desc, &lm);
    if (tn_params_load(params, path[2]) != TN_OK || tn_cp_eigen_all(pixels[0], 1, &e) != TN_OK) check(ctx);
    show(e.values, NULL);                                                                            /* 1 */
    save_image(ctx, tn_image_tiles_of(ctx, tn_reshape(e.vectors, 3, (int64_t[]){10, 8, 8}), &(tn_image_tiles_desc){ .rows = 2,
               .columns = 5, .title = "What each class looks for: 0 to 4, and 5 to 9", .scale = 2 }), out, "eigenvectors");
    for (int64_t k = 1; k <= 16; k *= 2)                                                             /* 2 */
        printf("%2d pairs per class: %.3f right\n", (int)k,
               tn_item(tn_accuracy(ctx, tn_cp_apply(ctx, tn_cp_truncate(pixels[0], k), x), y)));
    show(tn_cp_cosines(pixels[0], pixels[1]), &(tn_tensor_table_desc){ .digits = 2 });                      /* 3 */
    show(tn_cp_cosines(tn_cp_data_metric(pixels[0], s), tn_cp_data_metric(pixels[1], s)), &(tn_tensor_table_desc){ .digits = 2 });
    tn_tensor *t = tn_add(ctx, lm.embed.w, tn_mlp_forward(ctx, &lm.blocks[0].mlp, lm.embed.w));      /* 4 */
    t = tn_gather(ctx, tn_linear_forward(ctx, &lm.head, t), 0, ids);
    show(t, &(tn_tensor_table_desc){ .row_names = words + VOCAB, .column_names = words, .top = 4, .each_row = true });
    tn_cp *tokens = tn_cp_fold_in(tn_cp_fold_out(tn_cp_from_mlp(ctx, &lm.blocks[0].mlp), lm.head.w, NULL),
                                  tn_transpose(lm.embed.w, 0, 1), NULL);
    show(tn_cp_interaction_of(tokens, (int64_t)tn_item(tn_slice(ids, 0, 0, 1))), &(tn_tensor_table_desc){ .row_names = words,
         .column_names = words, .top = 5, .order = TN_ORDER_MAGNITUDE, .symmetric = true });
    for (int64_t h = 0; h < desc->heads; h++) {                                                      /* 5 */
        const tn_attention *a = &lm.blocks[0].attn;
        tn_svd_result       ov;
        t = tn_matmul(ctx, tn_attention_head(a, h, TN_HEAD_O), tn_attention_head(a, h, TN_HEAD_V));
        if (tn_svd(ctx, t, &(tn_svd_desc){ .top = 4 }, &ov) == TN_OK) show(ov.s, NULL);
        show(tn_linear_forward(ctx, &lm.head, tn_transpose(ov.u, 0, 1)), &(tn_tensor_table_desc){ .column_names = words, .top = 4,
             .each_row = true });
    }
    check(ctx);
}
/* ] */

/* ---- the models ---------------------------------------------------------------------------------------------- */

static void train_net(tn_ctx *ctx, uint64_t seed, int64_t epochs, tn_tensor *images, tn_tensor *labels, const char *path)
{
    net n;
    tn_ctx_seed(ctx, seed);
    open_net(ctx, &n, NULL);
    tn_optim *optim = tn_optim_create(n.params, &(tn_optim_desc){ .lr = 3e-3, .weight_decay = 0.1 });
    for (int64_t step = 0; step < epochs * TRAIN / BATCH; step++) {
        int64_t first = step * BATCH % TRAIN;
        tn_ctx_reset(ctx);
        tn_record(ctx);
        tn_tensor *x = tn_noise(ctx, tn_slice(images, 0, first, first + BATCH), 0.2);
        x = tn_mlp_forward(ctx, &n.mlp, tn_linear_forward(ctx, &n.embed, x));
        tn_tensor *loss = tn_cross_entropy(ctx, tn_linear_forward(ctx, &n.unembed, x), tn_slice(labels, 0, first, first + BATCH));
        if (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK) check(ctx);
    }
    if (tn_params_save(n.params, path) != TN_OK) check(ctx);
    tn_optim_destroy(optim);
    tn_params_destroy(n.params);
}

static void train_lm(tn_ctx *ctx, const tn_transformer_desc *desc, int64_t steps, const int32_t *ids, int64_t count,
                     const char *path)
{
    int32_t        x[TEXTS * CONTEXT], y[TEXTS * CONTEXT];
    uint32_t       random = 1;
    tn_transformer model;
    tn_params     *params = tn_params_create(ctx);
    double         last = 0;
    tn_transformer_init(params, "", desc, &model);
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){ .lr = 1e-2 });
    check(ctx);
    for (int64_t step = 0; step < steps; step++) {
        for (int i = 0; i < TEXTS; i++) {
            random = random * 1664525u + 1013904223u;
            const int32_t *from = ids + (int64_t)(random >> 8) % (count - CONTEXT);
            memcpy(x + i * CONTEXT, from, sizeof *x * CONTEXT);
            memcpy(y + i * CONTEXT, from + 1, sizeof *y * CONTEXT);
        }
        tn_ctx_reset(ctx);
        tn_tensor *in = tn_tensor_2d(ctx, TN_I32, TEXTS, CONTEXT);
        tn_tensor *next = tn_tensor_2d(ctx, TN_I32, TEXTS, CONTEXT);
        tn_write(in, TN_I32, x, TEXTS * CONTEXT);
        tn_write(next, TN_I32, y, TEXTS * CONTEXT);
        tn_record(ctx);
        tn_tensor *loss = tn_transformer_loss(ctx, &model, in, next);
        if (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK) check(ctx);
        last = tn_item(loss);
    }
    printf("loss of the language model: %.3f nats per token\n", last);
    if (tn_params_save(params, path) != TN_OK) check(ctx);
    tn_optim_destroy(optim);
    tn_params_destroy(params);
}

static char *read_text(const char *path, size_t *bytes)
{
    FILE  *f = fopen(path, "rb");
    char  *text = NULL;
    size_t size = 1 << 16;
    if (!f) stop("the text cannot be read; --text names it");
    for (*bytes = 0; !text || *bytes == size / 2; ) {           /* until a read does not fill the size */
        text = realloc(text, size);
        if (!text) stop("no memory for the text");
        *bytes += fread(text + *bytes, 1, size - *bytes, f);
        size *= 2;
    }
    if (ferror(f)) stop("the text cannot be read; --text names it");
    fclose(f);
    return text;
}

/* The lines of this file between its marks, or 0 where the file is not there. */
static int counted_lines(void)
{
    FILE *f = fopen("examples/studies/analyses.c", "r");
    char  line[512];
    int   lines = 0;
    bool  counts = false;
    while (f && fgets(line, sizeof line, f)) {
        if (strcmp(line, "/* ] */\n") == 0) counts = false;
        lines += counts && line[strspn(line, " \n")] != 0;
        if (strcmp(line, "/* [ */\n") == 0) counts = true;
    }
    if (f) fclose(f);
    return lines;
}

int main(int argc, char **argv)
{
    struct { const char *text, *out; int64_t steps; } o = {"docs/guide.md", "out", 400};
    const flag flags[] = {
        {"--text", FLAG_TEXT, &o.text, 0, 0, "a file"}, {"--steps", FLAG_COUNT, &o.steps, 1, 1e6, NULL}, OUT_FLAG(&o), {0}
    };
    static const char *const shown[] = {"the", "a", "of", "is", "layer"};
    static const char *names[VOCAB + 5];
    char       why[TN_WHY], path[3][600];
    const char *paths[3];
    int32_t    rows[5];
    int64_t    five = 5;
    size_t     bytes;
    tn_ctx    *ctx;
    tn_transformer_desc desc = { .layers = 1, .dim = DIM, .heads = 2, .context = CONTEXT, .attention = TN_ATTENTION_BILINEAR,
                                 .mlp = TN_MLP_BILINEAR, .no_norm = true };
    char      *text;
    read_flags(argc, argv, flags);
    make_folder(o.out);
    if (tn_ctx_create(&(tn_desc){ .seed = 1 }, &ctx, why) != TN_OK) stop(why);
    for (int64_t i = 0; i < 3; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s.safetensors", o.out, i == 0 ? "first" : i == 1 ? "second" : "language");
        paths[i] = path[i];
    }
    tn_tensor *images = tn_idx_load(ctx, "examples/data/digits-images-idx3-ubyte", 1 / 16.0);
    tn_tensor *labels = tn_idx_load(ctx, "examples/data/digits-labels-idx1-ubyte", 0);
    images = images ? tn_tensor_keep(tn_reshape_2d(images, ALL, 64)) : NULL;
    check(ctx);
    train_net(ctx, 1, 30, images, labels, paths[0]);
    train_net(ctx, 2, 30, images, labels, paths[1]);
    text = read_text(o.text, &bytes);
    tn_tokenizer *tokenizer = tn_tokenizer_train(ctx, text, bytes, VOCAB, NULL);
    int32_t      *ids = malloc((bytes + 1) * sizeof *ids);       /* a token has a byte or more */
    if (!ids) stop("no memory for the tokens");
    int64_t count = tn_tokenizer_encode(tokenizer, text, bytes, TN_BOS_NONE, ids, (int64_t)bytes, NULL);
    check(ctx);
    printf("text: %.0f bytes, %.0f tokens\n", (double)bytes, (double)count);
    desc.vocab = tn_tokenizer_count(tokenizer);
    if (count <= CONTEXT || desc.vocab != VOCAB) stop("the text is too short");
    train_lm(ctx, &desc, o.steps, ids, count, paths[2]);
    free(ids);
    for (int64_t i = 0; i < VOCAB; i++) names[i] = tn_tokenizer_token(tokenizer, i);
    for (int64_t i = 0; i < 5; i++) {
        int32_t id = (int32_t)tn_tokenizer_id(tokenizer, shown[i]);
        rows[i] = id < 0 ? (int32_t)(VOCAB - 1 - i) : id;
        names[VOCAB + i] = names[rows[i]];
    }
    tn_ctx_reset(ctx);
    tn_tensor *of = tn_tensor_from(ctx, 1, &five, TN_I32, rows);
    analyse(ctx, paths, &desc, tn_slice(images, 0, TRAIN, ALL), tn_slice(labels, 0, TRAIN, ALL), names, of, o.out);
    printf("lines: %d\n", counted_lines());
    free(text);
    tn_ctx_destroy(ctx);
    return 0;
}
