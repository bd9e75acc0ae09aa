/* lesson.c - what the pages that teach show, computed natively: `lesson xor STEPS` and `lesson digits STEPS` print the numbers of
   a page after these steps, in its order, one in a line. */
#include "../../tools/tn/demo/train.c"
#include <stdio.h>

enum { IMAGES = 1797, SEEN = 1500, PIXELS = 64 };

static void stop(const char *why)
{
    fprintf(stderr, "lesson: %s\n", why);
    exit(1);
}

/* The first `count` numbers of an answer, times `factor`, after the first `skip`. */
static void print(int result, size_t skip, size_t count, double factor)
{
    if (result < 0) stop(wasm_words());
    for (size_t i = skip; i < skip + count && i < numbers_used; i++) printf("%.17g\n", factor * numbers[i]);
}

static void xor_lesson(int steps)
{
    static const float bits[8] = {0, 0, 0, 1, 1, 0, 1, 1}, wanted[4] = {0, 1, 1, 0};
    double             loss = 0;
    if (train_begin(bits, 8, wanted, 4, 4, 1, 0, 4, 1) < 0) stop(wasm_words());
    for (int i = 0; i < steps; i++) if (train_steps(1, 4, 0.1, 0) < 0) stop(wasm_words());
    if (train_answers(bits, 8) < 0) stop(wasm_words());
    for (int i = 0; i < 4; i++) loss += (numbers[i] - (double)wanted[i]) * (numbers[i] - (double)wanted[i]) / 4;
    printf("%d\n%.17g\n", steps, loss);
    print(train_answers(bits, 8), 0, 4, 1);
    for (int which = 0; which < 3; which++) print(train_weights(which), 0, which < 2 ? 8 : 4, 1);
    print(train_matrix(0), 0, 4, 1);
    print(train_eigenvectors(0, 3), 0, 2, 1);
}

static void digits_lesson(int steps)
{
    static float          images[IMAGES * PIXELS], labels[IMAGES];
    static unsigned char  bytes[IMAGES * PIXELS + 16];
    static const char    *const files[2] = {"examples/data/digits-images-idx3-ubyte", "examples/data/digits-labels-idx1-ubyte"};
    double                loss = 0;
    for (int k = 0; k < 2; k++) {
        FILE *f = fopen(files[k], "rb");
        if (!f || fread(bytes, 1, sizeof bytes, f) < IMAGES) stop(files[k]);
        fclose(f);
        for (int i = 0; i < IMAGES * (k ? 1 : PIXELS); i++)
            if (k) labels[i] = bytes[8 + i];
            else images[i] = (float)bytes[16 + i] / 16;
    }
    if (train_begin(images, IMAGES * PIXELS, labels, IMAGES, 32, 10, 1, SEEN, 1) < 0) stop(wasm_words());
    for (int i = 0; i < steps; i += 6) {
        if (train_steps(6, 50, 3e-3, 0.2) < 0) stop(wasm_words());
        loss = numbers[0];
    }
    printf("%d\n%.17g\n", steps, loss);
    print(train_held_out(), 0, 1, 1);
    print(train_held_out(), 1, 1, 100);
    print(train_eigenvectors(3, 6), 0, 6, 1);
}

int main(int argc, char **argv)
{
    if (argc != 3) stop("expected xor or digits, and a number of steps");
    if (!strcmp(argv[1], "xor")) xor_lesson(atoi(argv[2]));
    else digits_lesson(atoi(argv[2]));
    if (train_begin(NULL, 0, NULL, 0, 1, 1, 0, 1, 1) != -1) stop("no inputs were accepted");
    tn_ctx_destroy(ctx);
    free(words);
    free(numbers);
    return 0;
}
