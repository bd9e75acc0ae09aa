/* published.c - read a bilinear MNIST model that others trained, from its weights alone

   The file holds  embed.weight E [d,784],  blocks.0.weight [2d,d] = [L; R],  head.weight H [10,d]:
       x = E v,   x + (L x) * (R x),   logits = H x            v: an image's bytes / 255
   build/examples/studies/published MODEL.safetensors [MNIST_DIR]
   The first three test images come from MNIST_DIR, or from first3_test_images.npy beside the model.

   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/published.c -o published -lm */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { CLASSES = 10, PIXELS = 784, SHOWN = 8, BATCH = 1000 };

static void stop(const char *what)
{
    fprintf(stderr, "published: %s\n", what);
    exit(1);
}

static void check(tn_ctx *ctx)
{
    if (tn_ctx_status(ctx) != TN_OK) stop(tn_ctx_error(ctx));
}

static void print_numbers(const char *name, int64_t index, const double *v, int64_t n)
{
    printf("%s[%lld]:", name, (long long)index);
    for (int64_t i = 0; i < n; i++) printf(" %.6f", v[i]);
    printf("\n");
}

/* The eight largest by magnitude of every class's interaction matrix. */
static void print_eigenvalues(tn_ctx *ctx, const char *name, const tn_cp *cp)
{
    tn_eigenpairs e;
    double   v[CLASSES * SHOWN];
    int64_t  most = cp->in[0] < 2 * cp->terms ? cp->in[0] : 2 * cp->terms, shown = most < SHOWN ? most : SHOWN;
    if (tn_cp_eigen_all(cp, shown, &e) != TN_OK) check(ctx);
    tn_read(e.values, TN_F64, v, CLASSES * shown);
    check(ctx);
    for (int64_t c = 0; c < CLASSES; c++) print_numbers(name, c, v + c * shown, shown);
    tn_eigenpairs_destroy(&e);
}

/* Three images in [0,1], wherever they are. */
static tn_tensor *first_images(tn_ctx *ctx, const char *model, tn_tensor *test)
{
    char        path[1024];
    const char *slash = strrchr(model, '/');
    if (test) return tn_slice(test, 0, 0, 3);
    snprintf(path, sizeof path, "%.*sfirst3_test_images.npy", slash ? (int)(slash + 1 - model) : 0, model);
    tn_tensor *bytes = tn_npy_load(ctx, path);
    check(ctx);
    return tn_scale(ctx, tn_cast(ctx, tn_reshape_2d(bytes, 3, PIXELS), TN_REAL), 1 / 255.0);
}

static tn_tensor *mnist(tn_ctx *ctx, const char *folder, const char *file, double scale)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    tn_tensor *t = tn_idx_load(ctx, path, scale);
    if (!t) fprintf(stderr, "published: MNIST_DIR holds MNIST's four files, unpacked: sh examples/get_data.sh mnist makes data/mnist\n");
    check(ctx);
    return t;
}

/* `quadratic` in embedding space, plus the residual's path, both behind the embedding */
static double accuracy(tn_ctx *ctx, const tn_cp *quadratic, tn_tensor *e, tn_tensor *h, tn_tensor *images, tn_tensor *labels)
{
    int64_t count = images->shape[0];
    double  right = 0;
    for (int64_t first = 0; first < count; first += BATCH) {
        int64_t    n = first + BATCH < count ? BATCH : count - first;
        tn_mark    mark = tn_arena_mark(ctx);
        tn_tensor *x = tn_affine(ctx, tn_slice(images, 0, first, first + n), e, NULL);
        tn_tensor *logits = tn_add(ctx, tn_affine(ctx, x, h, NULL), tn_cp_apply(ctx, quadratic, x));
        right += tn_item(tn_accuracy(ctx, logits, tn_slice(labels, 0, first, first + n))) * (double)n;
        check(ctx);
        tn_arena_release(ctx, mark);
    }
    return right / (double)count;
}

int main(int argc, char **argv)
{
    static const int64_t ks[] = {1, 2, 3, 4, 5, 8, 10, 16, 20, 32, 64, 128, 256, 512};
    tn_ctx    *ctx;
    tn_tensor *images = NULL, *labels = NULL, *factor[2];
    double     v[3 * CLASSES];
    char       why[TN_WHY];

    if (argc < 2 || argc > 3) stop("usage: published MODEL.safetensors [MNIST_DIR]");
    if (tn_ctx_create(NULL, &ctx, why) != TN_OK) stop(why);
    tn_safetensors *file = tn_safetensors_open(ctx, tn_source_path(argv[1]));
    check(ctx);
    tn_tensor *e = tn_safetensors_read(file, "embed.weight");
    tn_tensor *lr = tn_safetensors_read(file, "blocks.0.weight");
    tn_tensor *h = tn_safetensors_read(file, "head.weight");
    check(ctx);
    int64_t d = e->rank == 2 ? e->shape[0] : 0;
    if (d < 1 || e->shape[1] != PIXELS || lr->rank != 2 || lr->shape[0] != 2 * d || lr->shape[1] != d || h->rank != 2 || h->shape[0] != CLASSES || h->shape[1] != d)
        stop("the shapes are not those of embed.weight [d,784], blocks.0.weight [2d,d], head.weight [10,d]");

    /* The layer (L x) * (R x) as an operator, then with the head (embedding space) and the embedding (pixel space). */
    double *ones = calloc((size_t)(d * d), sizeof *ones);
    if (!ones) stop("no memory for an identity");
    for (int64_t c = 0; c < d; c++) ones[c * d + c] = 1;
    tn_tensor *identity = tn_tensor_2d(ctx, TN_REAL, d, d);
    tn_write(identity, TN_F64, ones, d * d);
    free(ones);
    factor[0] = tn_slice(lr, 0, 0, d);
    factor[1] = tn_slice(lr, 0, d, 2 * d);
    tn_cp *layer = tn_cp_create(ctx, 2, identity, factor, TN_CP_INPUT_PLAIN);
    tn_cp *hidden = tn_cp_fold_out(layer, h, NULL);
    tn_cp *pixel = tn_cp_fold_in(hidden, e, NULL);
    check(ctx);
    print_eigenvalues(ctx, "eigenvalues", hidden);
    print_eigenvalues(ctx, "pixel_eigenvalues", pixel);

    /* The whole network, residual included, as one operator on [v;1]. */
    tn_cp *residual = tn_cp_residual(layer);
    tn_cp *unembedded = tn_cp_fold_out(residual, h, NULL);
    tn_cp *whole = tn_cp_fold_in(unembedded, e, NULL);
    if (argc == 3) {
        images = mnist(ctx, argv[2], "t10k-images-idx3-ubyte", 1 / 255.0);
        labels = mnist(ctx, argv[2], "t10k-labels-idx1-ubyte", 0);
        images = tn_reshape_2d(images, images->shape[0], PIXELS);
        check(ctx);
    }
    tn_tensor *logits = tn_cp_apply(ctx, whole, first_images(ctx, argv[1], images));
    check(ctx);
    tn_read(logits, TN_F64, v, 3 * CLASSES);
    for (int64_t c = 0; c < 3; c++) print_numbers("logits", c, v + c * CLASSES, CLASSES);

    if (images) {
        tn_eigenpairs pairs;
        printf("test_accuracy: %.4f\n", accuracy(ctx, hidden, e, h, images, labels));
        if (tn_cp_eigen_all(hidden, 0, &pairs) != TN_OK) check(ctx);
        for (size_t i = 0; i < sizeof ks / sizeof *ks && ks[i] <= pairs.count; i++) { /* k pairs a class, in embedding space */
            tn_cp *cut = tn_cp_from_eigen(ctx, &pairs, ks[i]);
            check(ctx);
            printf("accuracy_k%lld: %.4f\n", (long long)ks[i], accuracy(ctx, cut, e, h, images, labels));
            tn_cp_destroy(cut);
        }
    }
    tn_ctx_destroy(ctx);
    return 0;
}
