/* live.c - the functions of tools/tn/look/live.c, called natively: `live models FOLDER` makes two small models, and
   `live values FOLDER` prints what they answer, one number in a line. tests/look/live.js makes the same calls in a browser. */
#include "../../tools/tn/look/live.c"
#include <stdio.h>

enum { PIXELS = 64, HIDDEN = 16, CLASSES = 5 };

static void stop(const char *why)
{
    fprintf(stderr, "live: %s\n", why);
    exit(1);
}

static char *read_file(const char *folder, const char *name, size_t *bytes)
{
    char  path[1024], *data = (char *)malloc(1 << 24);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    if (!f || !data) stop(path);
    *bytes = fread(data, 1, 1 << 24, f);
    fclose(f);
    return data;
}

/* ---- models */

static tn_tensor *random_matrix(int64_t rows, int64_t columns)
{
    const int64_t shape[2] = {rows, columns};
    return tn_normal(ctx, 2, shape, 0, 1 / sqrt((double)columns));
}

static void make_classifier(const char *path)
{
    const int64_t  classes = CLASSES;
    const tn_named_tensor list[5] = {
        {"p", random_matrix(CLASSES, HIDDEN)}, {"f0", random_matrix(HIDDEN, PIXELS)}, {"f1", random_matrix(HIDDEN, PIXELS)},
        {"linear", random_matrix(CLASSES, PIXELS)}, {"constant", tn_normal(ctx, 1, &classes, 0, 1)}
    };
    if (tn_safetensors_write(ctx, tn_sink_path(path), list, 5, NULL, 0) != TN_OK) stop(tn_ctx_error(ctx));
}

static void make_models(const char *folder)
{
    char                path[1024];
    size_t              bytes;
    char               *tokens = read_file(folder, "tokenizer.json", &bytes);
    tn_transformer_desc desc;
    tn_transformer      model;
    if (!new_context(5)) stop(wasm_words());
    snprintf(path, sizeof path, "%s/images.safetensors", folder);
    make_classifier(path);
    memset(&desc, 0, sizeof desc);
    desc.vocab = tn_tokenizer_count(tn_tokenizer_read(ctx, tn_source_memory(tokens, bytes)));
    desc.layers = 2;
    desc.heads = 4;
    desc.dim = desc.context = 32;
    desc.init_std = 0.3;
    tn_params *params = tn_params_create(ctx);
    tn_transformer_init(params, "", &desc, &model);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    tn_params_save(params, path);
    snprintf(path, sizeof path, "%s/config.json", folder);
    tn_transformer_config_write(ctx, &desc, tn_sink_path(path));
    if (tn_ctx_status(ctx) != TN_OK) stop(tn_ctx_error(ctx));
    free(tokens);
}

/* ---- values */

/* Text k of an answer. */
static const char *words_at(int k)
{
    const char *word = words;
    while (k-- > 0) word += strlen(word) + 1;
    if (word >= words + words_used) stop("an answer lacks a text");
    return word;
}

/* The first `most` numbers of an answer. */
static void print(const char *name, int count, size_t most)
{
    if (count < 0) stop(wasm_words());
    printf("%s.count %d\n", name, count);
    for (size_t i = 0; i < numbers_used && i < most; i++) printf("%s.%d %.17g\n", name, (int)i, numbers[i]);
}

static void print_images(const char *folder)
{
    float  picture[PIXELS], value = -2;
    size_t bytes;
    char  *file = read_file(folder, "images.safetensors", &bytes);
    for (int i = 0; i < PIXELS; i++) picture[i] = (float)(i * 37 % 64) / 64;
    print("images", live_images(file, bytes), 10);
    print("see", live_see(picture, PIXELS), 10);
    print("spoke", live_spoke(3), 25);
    print("picture", live_picture(3, 1), 10);
    print("ablate", live_ablate(3, 1, 1), 0);
    print("see.ablated", live_see(NULL, 0), 10);
    print("spoke.ablated", live_spoke(3), 10);
    print("pairs", live_pairs(1, &value, 1, picture, PIXELS), 0);
    print("spoke.given", live_spoke(1), 10);
    if (live_see(picture, 3) != -1 || live_spoke(CLASSES) != -1
        || live_pairs(1, &value, 1, picture, PIXELS) != -1 || live_ablate(0, -1, 1) != -1)
        stop("a wrong argument was accepted");
    free(file);
}

static double *copy_of_numbers(void)
{
    double *v = (double *)malloc(numbers_used * sizeof *v);
    if (!v) stop("no memory");
    memcpy(v, numbers, numbers_used * sizeof *v);
    return v;
}

static void near(const char *what, double a, double b)
{
    if (fabs(a - b) <= 1e-4 * (1 + fabs(b))) return;
    fprintf(stderr, "live: %s: %.9g, expected %.9g\n", what, a, b);
    exit(1);
}

/* Hides the eigenvectors [first,end) of those that live_vectors has. */
static int hide(int block, int token, int first, int end)
{
    const int     pairs = live_vectors(block, token);
    const int64_t n = pairs > 0 ? ((int64_t)numbers_used - 1) / pairs - 7 : 0;
    double       *all = copy_of_numbers();
    int           result = 0;
    for (int k = first; k < end && !result; k++) result = live_hide(block, token, k, all + 7 * pairs + 1 + k * n, (size_t)n);
    free(all);
    return result;
}

/* All eigenvectors of a token together add what its MLP adds; an MLP that sees none of them, and has no biases, adds nothing.
   A hidden one changes nothing where another block is asked, and is there again afterwards. */
static void check_vectors(void)
{
    const int     pairs = live_vectors(1, 7);
    double        sum = 0, total = numbers[7 * pairs];
    const int64_t V = net.desc.vocab;
    int           k;
    for (k = 0; k < pairs; k++) {
        near("value (vector . z)^2, times the scale of all", numbers[7 * k + 2] * numbers[0] * numbers[1] * numbers[1],
             numbers[7 * k] * numbers[7 * k + 1] * numbers[7 * k + 1] * numbers[2]);
        sum += numbers[7 * k + 2];
    }
    near("the sum over eigenvectors", sum, total);
    live_parts(7);
    for (k = 0; strcmp(words_at(k), "blocks.1.mlp"); k++) continue;
    near("the part of the MLP", numbers[k], total);
    live_next();
    double *whole = copy_of_numbers();
    live_ablate(1, 4, 1);
    live_next();
    double *ablated = copy_of_numbers();
    live_ablate(1, 4, 0);
    hide(1, 7, 0, 1);
    live_next();
    double *one = copy_of_numbers();
    live_hide(1, 7, 0, NULL, 0);
    hide(1, 7, 0, pairs);
    live_next();
    for (k = 0; k < V; k++) near("an MLP that sees nothing", numbers[k], ablated[k]);
    for (k = pairs - 1; k > 0; k--) live_hide(1, 7, k, NULL, 0);
    live_next();
    for (k = 0; k < V; k++) near("one is hidden still", numbers[k], one[k]);
    live_hide(1, 7, 0, NULL, 0);
    live_next();
    for (k = 0; k < V; k++) near("all are there again", numbers[k], whole[k]);
    for (sum = k = 0; k < V; k++) sum += fabs(one[k] - whole[k]);
    if (sum < 1e-3) stop("hiding an eigenvector changes nothing");
    free(whole);
    free(ablated);
    free(one);
}

/* Losses are kept for the tokens before the first that changed. */
static void check_losses(const char *before, const char *after)
{
    if (live_text(before, strlen(before)) < 0 || live_losses() < 0 || live_text(after, strlen(after)) < 0 || live_losses() < 0)
        stop(wasm_words());
    double *kept = copy_of_numbers();
    live_ablate(0, 0, 1);
    live_losses();
    if (numbers[0] == kept[0]) stop("a loss is that of another model");
    live_ablate(0, 0, 0);
    live_losses();
    for (size_t i = 0; i < numbers_used; i++) near("a loss after another text", kept[i], numbers[i]);
    free(kept);
}

/* ---- the model without what is ablated, computed by the library from the whole model ---------------------------------- */

/* What taps take out of a run: head 1 of block 0, the MLP of block 0 if `mlp`, and from what the MLP of block 1 reads the part
   along a vector [dim + 1], whose last number is that of the constant. What they add to the stream of block 0: `added` [dim]. */
typedef struct taken {
    const tn_transformer *model;
    bool                  mlp;
    const double         *vector, *added;
    tn_tensor            *middle, *scale;
} taken;

static tn_tensor *without_vector(tn_ctx *c, const taken *t)
{
    const tn_transformer_block *b = &t->model->blocks[1];
    const int64_t dim = t->model->desc.dim, n = t->middle->shape[1];
    double       *z = (double *)malloc((size_t)(n * dim + n + 2 * dim) * sizeof *z), *scale = z + n * dim, *gain = scale + n,
                 *bias = gain + dim;
    tn_read(t->middle, TN_F64, z, n * dim);
    tn_read(t->scale, TN_F64, scale, n);
    for (int64_t k = 0; k < dim; k++) gain[k] = 1, bias[k] = 0;
    if (b->norm2.gain) tn_read(b->norm2.gain, TN_F64, gain, dim);
    if (b->norm2.bias) tn_read(b->norm2.bias, TN_F64, bias, dim);
    for (int64_t i = 0; i < n; i++) {
        double *row = z + i * dim, mean = 0, dot = t->vector[dim];
        for (int64_t k = 0; k < dim; k++) row[k] *= scale[i], dot += t->vector[k] * row[k];
        for (int64_t k = 0; k < dim; k++) row[k] -= dot * t->vector[k], mean += row[k] / (double)dim;
        for (int64_t k = 0; k < dim; k++) row[k] = (row[k] - (b->norm2.desc.kind == TN_NORM_LAYER ? mean : 0)) * gain[k]
            + bias[k];
    }
    tn_tensor *x = tn_tensor_nd(c, TN_REAL, 3, t->middle->shape);
    tn_write(x, TN_F64, z, n * dim);
    free(z);
    return tn_mlp_forward(c, &b->mlp, x);
}

static tn_tensor *take(tn_ctx *c, void *user, const char *name, tn_tensor *x)
{
    taken  *t = (taken *)user;
    tn_edit edit;
    memset(&edit, 0, sizeof edit);
    edit.head = edit.heads = 1;
    if (!strcmp(name, "blocks.0.attn.z")) return tn_tap_edit(c, &edit, name, x);
    edit.head = edit.heads = 0;
    if (!strcmp(name, "blocks.0.mlp")) return t->mlp ? tn_tap_edit(c, &edit, name, x) : x;
    if (!strcmp(name, "blocks.0.middle") && t->added) {
        edit.keep = 1;
        edit.value = tn_tensor_nd(c, TN_REAL, 1, &t->model->desc.dim);
        tn_write(edit.value, TN_F64, t->added, t->model->desc.dim);
        return tn_tap_edit(c, &edit, name, x);
    }
    if (!strcmp(name, "blocks.1.middle")) t->middle = x;
    if (!strcmp(name, "blocks.1.norm2.scale")) t->scale = x;
    return !strcmp(name, "blocks.1.mlp") && t->vector ? without_vector(c, t) : x;
}

/* Logits at each position of the text of the whole model, with the taps, [length,vocab], a new list; *loss: their mean loss. */
static double *logits_with(taken *t, double *loss)
{
    static const char *const points[] = {"blocks.0.attn.z", "blocks.*.mlp", "blocks.0.middle", "blocks.1.middle",
                                         "blocks.1.norm2.scale"};
    tn_tap  taps[5];
    double *to = (double *)malloc((size_t)(length * net.desc.vocab) * sizeof *to);
    for (int k = 0; k < 5; k++) taps[k].points = points[k], taps[k].fn = take, taps[k].user = t;
    tn_tensor *y = tn_transformer_run(ctx, t->model, ids_tensor(text, length), taps, 5);
    tn_tensor *targets = tn_slice(ids_tensor(text, length), 1, 1, length);
    if (tn_read(y, TN_F64, to, length * net.desc.vocab) != TN_OK) stop(tn_ctx_error(ctx));
    *loss = tn_item(tn_cross_entropy(ctx, tn_copy(ctx, tn_slice(y, 1, 0, length - 1)), tn_copy(ctx, targets)));
    tn_ctx_reset(ctx);
    return to;
}

/* All that is asked about the model: its logits are the library's, and what explains one of them adds up to it. */
static void compare_with(taken *t, const char *what)
{
    double        loss, *all = logits_with(t, &loss), *wanted = all + (length - 1) * net.desc.vocab, sum = 0, part = NAN;
    int           count, k;
    const int     token = 9;
    for (int at = (int)length - 1; at >= 0; at -= (int)length - 3) {        /* the last position, and that of token 2 */
        if (live_at(at) != at + 1 || (count = live_next()) != net.desc.vocab) stop(wasm_words());
        for (k = 0; k < count; k++) near(what, numbers[k], all[at * count + k]);
    }
    if ((count = live_losses()) != length - 1) stop(wasm_words());
    for (k = 0; k < count; k++) sum += numbers[k] / count;
    near("the mean loss", sum, loss);
    live_at((int)length - 1);
    sum = 0;
    if ((count = live_parts(token)) < 0) stop(wasm_words());
    for (k = 0; k < count; k++) {
        sum += numbers[k];
        if (!strcmp(words_at(k), "blocks.1.mlp")) part = numbers[k];
        if (!strcmp(words_at(k), "blocks.0.attn.1") || (t->mlp && !strcmp(words_at(k), "blocks.0.mlp"))) 
            near(what, numbers[k], 0);
    }
    near("the sum of the parts", sum, wanted[token]);
    if (t->model->desc.norm_place == TN_PLACE_SANDWICH) {           /* which has neither paths nor eigenvectors */
        free(all);
        return;
    }
    if (live_paths(token, 200, 10) < 0) stop(wasm_words());
    near("the logit of the paths", numbers[0], wanted[token]);
    near("the sum of the paths", numbers[1] + numbers[2], wanted[token]);
    if ((count = live_vectors(1, token)) < 0) stop(wasm_words());
    near("what the MLP adds by its eigenvectors", numbers[7 * count], part);
    free(all);
}

/* Steering: the page's logits are those of a run whose stream is edited, and its change is what tn_circuit_steering_of has. */
static void check_steered(taken *t, const double *vector)
{
    tn_circuit_steering_desc desc;
    tn_circuit_steering      steering_of;
    const int64_t            V = net.desc.vocab;
    double                  *wanted = (double *)malloc((size_t)(2 * V) * sizeof *wanted);
    if (live_stream(0) != length || live_steer(0, vector, (size_t)net.desc.dim) < 0) stop(wasm_words());
    t->added = vector;
    compare_with(t, "steered");
    live_ablate(0, 1, 0);
    live_ablate(0, (int)net.desc.heads, 0);
    memset(&desc, 0, sizeof desc);
    desc.point = "blocks.0.middle";
    desc.edit.keep = 1;
    desc.edit.value = tn_tensor_nd(ctx, TN_REAL, 1, &net.desc.dim);
    tn_write(desc.edit.value, TN_F64, vector, net.desc.dim);
    if (tn_circuit_steering_of(ctx, t->model, ids_tensor(text, length), &desc, &steering_of) != TN_OK) stop(tn_ctx_error(ctx));
    tn_read(tn_slice(steering_of.logits, 1, length - 1, length), TN_F64, wanted, V);
    tn_read(tn_slice(steering_of.measured, 1, length - 1, length), TN_F64, wanted + V, V);
    tn_circuit_steering_destroy(&steering_of);
    if (live_next() != V) stop(wasm_words());
    for (int64_t k = 0; k < V; k++) near("steered alone", numbers[k], wanted[k] + wanted[V + k]);
    live_restore();
    live_next();
    for (int64_t k = 0; k < V; k++) near("not steered any more", numbers[k], wanted[k]);
    t->added = NULL;
    live_ablate(0, 1, 1);
    live_ablate(0, (int)net.desc.heads, 1);
    free(wanted);
}

/* Logits at each position of the text in the model as it is now, [length,vocab], a new list. */
static double *run_of_text(void)
{
    const int64_t n = length * net.desc.vocab;
    double       *all = (double *)malloc((size_t)n * sizeof *all);
    if (!all || tn_read(tn_transformer_forward(ctx, &net, ids_tensor(text, length)), TN_F64, all, n) != TN_OK)
        stop(tn_ctx_error(ctx));
    tn_ctx_reset(ctx);
    return all;
}

/* The logits and losses of the text in the present model, as a run of the whole text has them. */
static void compare_with_run(const char *what)
{
    const int64_t V = net.desc.vocab;
    if (live_next() != V) stop(wasm_words());
    double *next = copy_of_numbers();
    if (live_losses() != length - 1) stop(wasm_words());
    double *losses = copy_of_numbers(), *all = run_of_text();
    for (int64_t k = 0; k < V; k++) near(what, next[k], all[(asked - 1) * V + k]);
    for (int64_t i = 1; i < length; i++) {
        double sum = 0;
        for (int64_t k = 0; k < V; k++) sum += exp(all[(i - 1) * V + k] - all[(i - 1) * V + text[i]]);
        near(what, losses[i - 1], log(sum));
    }
    free(losses);
    free(next);
    free(all);
}

/* A run that fails leaves nothing behind that would be shown later: of a token that does not exist, at each place of the text,
   in the whole model and in an ablated one. */
static void check_failures(void)
{
    for (int round = 0; round < 2 * 9; round++) {
        const int at = round % 9;
        live_ablate(1, 0, round / 9);
        if (live_text("and so on", 9) < 9) stop(wasm_words());
        compare_with_run("before an error");
        text[at] = (int32_t)net.desc.vocab;
        if (live_next() != -1 || live_losses() != -1) stop("a token that does not exist was accepted");
        if (live_text("and so an", 9) < 9) stop(wasm_words());
        compare_with_run("after an error");
    }
    live_restore();
}

/* Text is typed and deleted at random places, and the model is changed at random, there and back; what is known of the tokens
   before a change is used again, and what it would not be true of is not. */
static void check_edits(void)
{
    static char     typed[400];
    static double   along[256];
    static unsigned random = 1;
    size_t          n = 0;
    for (int64_t k = 0; k < net.desc.dim; k++) along[k] = (double)(k * 5 % 7 - 3) / 4;
    for (int round = 0; round < 240; round++) {
        unsigned r[6];
        for (int k = 0; k < 6; k++) r[k] = (random = random * 1664525u + 1013904223u) >> 16;
        const size_t at = r[0] % 2 ? n : r[1] % (n + 1), cut = at < n ? r[2] % (n - at < 4 ? n - at + 1 : 4) : 0;
        const size_t more = round == 60 ? 300 : r[3] % 5;
        memmove(typed + at, typed + at + cut, n - at - cut);
        n -= cut;
        if (n + more > sizeof typed) n = 5;
        const size_t to = at < n ? at : n;
        memmove(typed + to + more, typed + to, n - to);
        for (size_t k = 0; k < more; k++) typed[to + k] = (char)('a' + (r[4] + k * r[5]) % 26);
        n += more;
        if (live_text(typed, n) != length) stop(wasm_words());
        if (round % 8 == 3) live_ablate((int)(r[0] % 2), (int)(r[1] % 2), (int)(r[2] % 2));
        if (round % 16 == 4) live_steer((int)(r[0] % 2), along + r[3] % 3, r[2] % 3 ? (size_t)net.desc.dim : 0);
        if (round % 16 == 9) live_hide(1, 9, (int)(r[3] % 3), along + r[3] % 3, r[2] % 3 ? (size_t)net.desc.dim : 0);
        if (round % 32 == 30) live_restore();
        if (length && r[5] % 3 == 0 && live_at((int)(r[4] % (unsigned)length)) < 1) stop(wasm_words());
        if (length) compare_with_run("after an edit");
    }
    live_restore();
    check_failures();
    for (int k = 0; k < 4; k++) {               /* the same vector in another block makes another model */
        if (k < 2) live_steer(k % 2, along, (size_t)net.desc.dim);
        else live_hide(k % 2, 9, 0, along, (size_t)net.desc.dim);
        compare_with_run("in another block");
        live_restore();
    }
}

static void check_ablated(const tn_transformer_desc *desc)
{
    static char     weights[1 << 22], config[1 << 16];
    static double   vector[256];
    size_t          bytes[2];
    tn_transformer  model;
    taken           t;
    forget();                                   /* what is of the context before */
    if (!new_context(3)) stop(wasm_words());
    tn_params *params = tn_params_create(ctx);
    tn_transformer_init(params, "", desc, &model);
    for (int64_t i = 0; i < tn_params_count(params); i++) {         /* gains and biases as well */
        tn_tensor *w = tn_params_at(params, i)->value;
        tn_assign(w, tn_add(ctx, w, tn_normal(ctx, w->rank, w->shape, 0, 0.2)));
    }
    tn_params_write(params, tn_sink_memory(weights, sizeof weights, &bytes[0]), NULL, 0);
    tn_transformer_config_write(ctx, desc, tn_sink_memory(config, sizeof config, &bytes[1]));
    if (tn_ctx_status(ctx) != TN_OK) stop(tn_ctx_error(ctx));
    if (live_language(weights, bytes[0], config, bytes[1], NULL, 0) < 0 || live_text("and so on", 9) < 0) stop(wasm_words());
    tn_params *again = tn_params_create(ctx);                       /* whole, in the context of the page's program */
    tn_transformer_init(again, "", desc, &model);
    tn_params_read(again, tn_source_memory(weights, bytes[0]), TN_MATCH_ALL);
    check_edits();
    live_text("and so on", 9);
    memset(&t, 0, sizeof t);
    t.model = &model;
    live_ablate(0, 1, 1);
    compare_with(&t, "without a head");
    live_ablate(0, (int)desc->heads, 1);
    t.mlp = true;
    compare_with(&t, "without a head and an MLP");
    for (int64_t k = 0; k < desc->dim; k++) vector[k] = (double)(k * 7 % 5 - 2) / 2;
    check_steered(&t, vector);
    if (desc->norm_place == TN_PLACE_SANDWICH) return;
    if (live_vectors(1, 9) < 0) stop(wasm_words());
    const int64_t count = vector_list[1].count, n = vector_list[1].n;
    memcpy(vector, numbers + 7 * count + 1, (size_t)n * sizeof *vector);
    double size = 0;
    for (int64_t k = 0; k < desc->dim; k++) size += vector[k] * vector[k];
    live_hide(1, 9, 5, vector, (size_t)n);
    for (int64_t k = 0; k < n; k++) vector[k] /= sqrt(size);
    t.vector = vector;
    compare_with(&t, "without a head, an MLP and an eigenvector");
    live_ablate(0, (int)desc->heads, 0);
    t.mlp = false;
    compare_with(&t, "with the MLP again");
    live_restore();
    live_next();
    double *now = run_of_text();
    if (live_language(weights, bytes[0], config, bytes[1], NULL, 0) < 0 || live_text("and so on", 9) < 0) stop(wasm_words());
    double *again_whole = run_of_text();
    if (memcmp(now, again_whole, (size_t)(length * net.desc.vocab) * sizeof *now)) stop("a restored model is not the same");
    free(again_whole);
    free(now);
}

static void check_models(void)
{
    tn_transformer_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.vocab = 257;
    desc.layers = 2;
    desc.heads = 2;
    desc.dim = desc.context = 32;
    check_ablated(&desc);
    desc.attention = TN_ATTENTION_BILINEAR;
    desc.x0_residual = true;
    check_ablated(&desc);
    desc.attention = TN_ATTENTION_SOFTMAX;
    desc.x0_residual = false;
    desc.norm = TN_NORM_LAYER;
    desc.norm_bias = desc.mlp_out_bias = true;
    check_ablated(&desc);
    desc.mlp_bias = true;
    check_ablated(&desc);
    desc.norm_place = TN_PLACE_SANDWICH;
    desc.positions = TN_POSITIONS_LEARNED;
    check_ablated(&desc);
}

static void print_language(const char *folder)
{
    static const char   once[] = "Once upon a time";
    static const double other[32] = {1};
    double              along[32];
    size_t              bytes[3];
    char               *weights = read_file(folder, "model.safetensors", &bytes[0]);
    char               *config = read_file(folder, "config.json", &bytes[1]);
    char               *tokens = read_file(folder, "tokenizer.json", &bytes[2]);
    if (live_language(weights, bytes[0], config, bytes[1], tokens, bytes[2]) < 0) stop(wasm_words());
    check_losses(once, "Once upon a dog there");
    check_losses("Once upon a dog there", "Once there");
    print("language", live_language(weights, bytes[0], config, bytes[1], tokens, bytes[2]), 10);
    print("text", live_text(once, strlen(once)), 10);
    print("next", live_next(), 10);
    print("losses", live_losses(), 8);
    print("at", live_at(1), 0);
    print("next.second", live_next(), 10);
    print("at", live_at((int)length - 1), 0);
    print("parts", live_parts(7), 20);
    print("paths", live_paths(7, 200, 10), 13);
    print("ablate", live_ablate(0, 2, 1), 0);
    print("ablate", live_ablate(1, 4, 1), 0);
    print("next.ablated", live_next(), 10);
    print("ablate", live_ablate(0, 2, 0), 0);
    print("ablate", live_ablate(1, 4, 0), 0);
    print("next.restored", live_next(), 10);
    print("vectors", live_vectors(1, 7), 112);
    check_vectors();
    print("patterns", live_patterns(1), 64);
    print("hide", hide(1, 7, 2, 3), 0);
    print("hide", hide(0, 9, 0, 1), 0);
    print("next.hidden", live_next(), 10);
    print("parts.hidden", live_parts(7), 20);
    print("paths.hidden", live_paths(7, 200, 10), 13);
    print("vectors.hidden", live_vectors(1, 7), 70);
    print("restore", live_restore(), 0);
    print("next.shown", live_next(), 10);
    print("direction", live_direction(9), 10);
    memcpy(along, numbers, sizeof along);
    for (int k = 0; k < 32; k++) along[k] *= 5;
    print("stream", live_stream(1), 5);
    print("steer", live_steer(1, along, 32), 0);
    print("parts.steered", live_parts(7), 20);      /* the first question of another model, as of a worker */
    print("next.steered", live_next(), 10);
    print("losses.steered", live_losses(), 8);
    print("paths.steered", live_paths(7, 200, 10), 13);
    print("restore", live_restore(), 0);
    if (live_ablate(2, 0, 1) != -1 || live_see(NULL, 0) != -1 || live_vectors(2, 0) != -1 || live_patterns(2) != -1
        || live_vectors(0, -1) != -1 || live_at((int)length) != -1 || live_steer(2, other, 32) != -1
        || live_steer(0, other, 3) != -1
        || live_hide(0, 0, 0, other, 3) != -1 || live_hide(0, 0, -1, other, 32) != -1) stop("a wrong argument was accepted");
    free(weights);
    free(config);
    free(tokens);
}

int main(int argc, char **argv)
{
    if (argc != 3) stop("expected models or values, and a folder");
    if (!strcmp(argv[1], "models")) make_models(argv[2]);
    else {
        print_images(argv[2]);
        check_models();
        print_language(argv[2]);
    }
    forget();
    tn_ctx_destroy(ctx);
    free(words);
    free(numbers);
    return 0;
}
