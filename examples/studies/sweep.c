/* sweep.c - matrix product states learn parities and a cell of rule 30 by two-site sweeps

   A function of N bits becomes a train of N cores and a label. One sweep fits the tensor of each pair of neighbours to the
   data by least squares, divides it by an SVD, and takes the label on. The parity of 16 bits is shown 2,000 of its 65,536
   strings: no 15 of the bits say anything about it, and every one counts. Its first update, in the middle, has all 256
   functions of the bits on each side at hand, and completes a table of 256 x 256 of which 2,000 elements are known.

   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/sweep.c -o sweep -lm && ./sweep
   --strings N (shown of 16 bits)   --seed N   --threads N */
#define _POSIX_C_SOURCE 200809L
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "sweep"
#include "program.h"

enum { BITS = 8, LONG = 16 };

typedef int (*rule_fn)(int64_t x, int bits);
typedef struct options { int64_t strings, seed, threads; } options;

/* Bit k of a string, from the left */
static int bit_of(int64_t x, int bits, int64_t k) { return (int)(x >> (bits - 1 - k) & 1); }

static int parity(int64_t x, int bits)
{
    int odd = 0;
    for (int i = 0; i < bits; i++) odd ^= bit_of(x, bits, i);
    return odd;
}

/* The next state of the cell in the middle: left xor (itself or right) */
static int rule_30(int64_t x, int bits)
{
    const int i = bits / 2;
    return bit_of(x, bits, i - 1) ^ (bit_of(x, bits, i) | bit_of(x, bits, i + 1));
}

static void *memory(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p) stop("no memory");
    return p;
}

/* `count` different strings of so many bits: all of them, or the first of a shuffled list */
static int64_t *strings_of(int bits, int64_t count, uint64_t seed)
{
    const int64_t all = (int64_t)1 << bits;
    int64_t      *x = memory(sizeof *x * (size_t)all);
    for (int64_t i = 0; i < all; i++) x[i] = i;
    for (int64_t i = 0; i < count && count < all; i++) {
        int64_t swap = x[i];
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        int64_t j = i + (int64_t)((seed >> 33) % (uint64_t)(all - i));
        x[i] = x[j];
        x[j] = swap;
    }
    return x;
}

/* Strings that the train gets wrong, of all; *worst is its largest error. */
static int64_t wrong_of(const tn_tt *tt, int bits, int64_t label, rule_fn rule, double *worst)
{
    const int64_t all = (int64_t)1 << bits, axes = bits + 1;
    int64_t      *index = memory(sizeof *index * (size_t)(all * axes)), i, wrong = 0;
    double       *value = memory(sizeof *value * (size_t)all);
    for (i = 0; i < all; i++)
        for (int64_t k = 0; k < axes; k++) index[i * axes + k] = k == label ? 0 : bit_of(i, bits, k - (k > label));
    tn_tt_elements(tt, all, index, value);
    check(tt->ctx);
    for (*worst = 0, i = 0; i < all; i++) {
        keep_largest(worst, fabs(value[i] - rule(i, bits)));
        wrong += (value[i] > 0.5) != rule(i, bits);
    }
    free(index);
    free(value);
    return wrong;
}

/* Learns a rule from some strings; `sweeps` of bonds up to 2, from a random train of bond `start` */
static int64_t learn(tn_ctx *ctx, const options *o, const char *name, rule_fn rule, int bits, int64_t count, int64_t start,
                     int64_t sweeps)
{
    const int64_t shape[3] = {count, bits, 2}, label = bits / 2;
    int64_t       extents[LONG + 1], *x = strings_of(bits, count, (uint64_t)o->seed);
    float        *phi = memory(sizeof *phi * (size_t)(count * bits * 2)), *y = memory(sizeof *y * (size_t)count);
    double        error, worst, begin = now();
    for (int64_t i = 0; i < count; i++) {
        for (int64_t k = 0; k < bits; k++) {
            phi[(i * bits + k) * 2 + 1] = (float)bit_of(x[i], bits, k);
            phi[(i * bits + k) * 2] = 1 - phi[(i * bits + k) * 2 + 1];
        }
        y[i] = (float)rule(x[i], bits);
    }
    for (int64_t k = 0; k <= bits; k++) extents[k] = k == label ? 1 : 2;
    tn_tt *random = tn_tt_random(ctx, bits + 1, extents, start, (uint64_t)o->seed);
    tn_tt *tt = tn_tt_fit(random, label, tn_tensor_from(ctx, 3, shape, TN_F32, phi),
                          tn_tensor_from(ctx, 2, (int64_t[]){count, 1}, TN_F32, y),
                          &(tn_tt_fit_desc){ .sweeps = sweeps, .max_bond = 2 }, &error);
    check(ctx);
    int64_t wrong = wrong_of(tt, bits, label, rule, &worst);
    printf("%s: %lld strings, %lld sweep%s, %.2f s: error %.1e on them, %lld wrong of all %lld, largest error %.1e\n", name,
           (long long)count, (long long)sweeps, sweeps == 1 ? "" : "s", now() - begin, error, (long long)wrong,
           (long long)1 << bits, worst);
    printf("    bonds:");
    for (int64_t k = 0; k < bits; k++) printf(" %lld", (long long)tt->core[k]->shape[2]);
    printf("\n");
    tn_tt_destroy(random);
    tn_tt_destroy(tt);
    free(phi);
    free(y);
    free(x);
    return wrong;
}

int main(int argc, char **argv)
{
    options    o = {2000, 1, 0};
    const flag flags[] = {
        {"--strings", FLAG_COUNT, &o.strings, 1, 1 << LONG, NULL},
        SEED_FLAG(&o),
        THREADS_FLAG(&o),
        {0}
    };
    double   begin = now();
    tn_ctx  *ctx;
    char     why[TN_WHY];
    int64_t  wrong[3];
    read_flags(argc, argv, flags);
    if (tn_ctx_create(&(tn_desc){ .dtype = TN_F64, .threads = (int)o.threads }, &ctx, why) != TN_OK) stop(why);
    wrong[0] = learn(ctx, &o, "parity of 8", parity, BITS, 1 << BITS, 2, 1);
    wrong[1] = learn(ctx, &o, "rule 30", rule_30, BITS, 1 << BITS, 2, 1);
    wrong[2] = learn(ctx, &o, "parity of 16", parity, LONG, o.strings, 1 << (LONG / 2), 2);
    printf("parity_8_wrong: %lld\n", (long long)wrong[0]);
    printf("rule_30_wrong: %lld\n", (long long)wrong[1]);
    printf("parity_16_wrong: %lld\n", (long long)wrong[2]);
    printf("seconds: %.1f\n", now() - begin);
    tn_ctx_destroy(ctx);
    return wrong[0] + wrong[1] + wrong[2] > 0;
}
