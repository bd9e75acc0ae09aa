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

/* Hides an eigenvector that live_vectors has. */
static int hide(int block, int token, int k)
{
    const int     pairs = live_vectors(block, token);
    const int64_t n = pairs > 0 ? ((int64_t)numbers_used - 1) / pairs - 7 : 0;
    double       *all = copy_of_numbers();
    const int     result = live_hide(block, token, k, all + 7 * pairs + 1 + k * n, (size_t)n);
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
    hide(1, 7, 0);
    live_next();
    double *one = copy_of_numbers();
    for (k = 1; k < pairs; k++) hide(1, 7, k);
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

static void print_language(const char *folder)
{
    static const char   once[] = "Once upon a time";
    static const double other[32] = {1};
    size_t              bytes[3];
    char               *weights = read_file(folder, "model.safetensors", &bytes[0]);
    char               *config = read_file(folder, "config.json", &bytes[1]);
    char               *tokens = read_file(folder, "tokenizer.json", &bytes[2]);
    print("language", live_language(weights, bytes[0], config, bytes[1], tokens, bytes[2]), 10);
    print("text", live_text(once, strlen(once)), 10);
    print("next", live_next(), 10);
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
    print("hide", hide(1, 7, 2), 0);
    print("hide", hide(0, 9, 0), 0);
    print("next.hidden", live_next(), 10);
    print("restore", live_restore(), 0);
    print("next.shown", live_next(), 10);
    if (live_ablate(2, 0, 1) != -1 || live_see(NULL, 0) != -1 || live_vectors(2, 0) != -1 || live_vectors(0, -1) != -1
        || live_hide(0, 0, 0, other, 3) != -1 || live_hide(0, 0, 64, other, 32) != -1) stop("a wrong argument was accepted");
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
        print_language(argv[2]);
    }
    forget();
    tn_ctx_destroy(ctx);
    free(words);
    free(numbers);
    return 0;
}
