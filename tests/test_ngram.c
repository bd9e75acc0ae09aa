/* The n-grams of `tn train` against their definition, counted word by word. */
#include "test.h"
#include "../tools/tn/ngram.c"

enum { MOST = 80 };

static bool at_place(const int32_t *text, const int32_t *gram, int k)
{
    return !memcmp(text, gram, sizeof *gram * (size_t)k);
}

/* How often the k words stand in the text; below the highest order n after how many different words, the text's beginning
   being one. */
static double adjusted(const int32_t *text, int64_t count, int n, int k, const int32_t *gram)
{
    bool   after[16] = {false};
    double all = 0;
    for (int64_t i = 0; i + k <= count; i++) {
        if (!at_place(text + i, gram, k)) continue;
        if (k == n || i == 0 || !after[text[i - 1]]) all++;
        if (i > 0) after[text[i - 1]] = true;
    }
    return all;
}

/* D1, D2, D3+ of order k, over every k words that there can be. */
static void discounts(const int32_t *text, int64_t count, int n, int k, int vocab, double d[4])
{
    int64_t grams = 1;
    double  with[5] = {0};
    for (int j = 0; j < k; j++) grams *= vocab;
    for (int64_t g = 0; g < grams; g++) {
        int32_t gram[NGRAM_MAX];
        int64_t rest = g;
        for (int j = 0; j < k; j++, rest /= vocab) gram[j] = (int32_t)(rest % vocab);
        double a = adjusted(text, count, n, k, gram);
        if (a >= 1 && a <= 4) with[(int)a]++;
    }
    double y = with[1] + with[2] > 0 ? with[1] / (with[1] + 2 * with[2]) : 0.5;
    d[0] = 0;
    for (int j = 1; j <= 3; j++) {
        d[j] = with[j] > 0 ? j - (j + 1) * y * with[j + 1] / with[j] : j / 2.0;
        if (d[j] < 0.1) d[j] = 0.1;
        if (d[j] > j) d[j] = j;
    }
}

/* p of the last of k words, given those before it. d: by order */
static double chance(const int32_t *text, int64_t count, int n, int k, int vocab, const int32_t *gram, double d[][4])
{
    int32_t other[NGRAM_MAX];
    double  total = 0, left = 0, a;
    if (k == 0) return 1.0 / vocab;
    double lower = chance(text, count, n, k - 1, vocab, gram + 1, d);
    memcpy(other, gram, sizeof *gram * (size_t)k);
    for (int32_t w = 0; w < vocab; w++) {
        other[k - 1] = w;
        a = adjusted(text, count, n, k, other);
        total += a;
        left += d[k][a < 3 ? (int)a : 3];
    }
    if (total == 0) return lower;
    a = adjusted(text, count, n, k, gram);
    return (a > 0 ? a - d[k][a < 3 ? (int)a : 3] : 0) / total + left / total * lower;
}

static double counted(const int32_t *text, int64_t count, const int32_t *held, int64_t held_count, int n, int vocab)
{
    double d[NGRAM_MAX + 1][4], nats = 0;
    for (int k = 1; k <= n; k++) discounts(text, count, n, k, vocab, d[k]);
    for (int64_t i = 1; i < held_count; i++) {
        int k = i + 1 < n ? (int)i + 1 : n;
        nats -= log(chance(text, count, n, k, vocab, held + i + 1 - k, d));
    }
    return nats / (double)(held_count - 1);
}

static uint64_t state = 5;

static int32_t word(int vocab)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int32_t)((state >> 40) % (uint64_t)(vocab * vocab)) / (1 + (int32_t)((state >> 33) % 3)) % vocab;
}

/* 0 1 0 1 0: Y = 0, so D2 = 2, D3 = 3 and nothing of the counts 2 and 3 is left: half and half. */
TEST(by_hand)
{
    const int32_t text[] = {0, 1, 0, 1, 0}, held[] = {0, 1};
    double nats[NGRAM_MAX + 1];
    REQUIRE(ngram_losses(text, 5, held, 2, 0, 2, nats, NULL));
    CHECK_NEAR(nats[1], log(2.0), 1e-12);
}

TEST(as_counted)
{
    double worst = 0;
    for (int turn = 0; turn < 12; turn++) {
        const int     vocab = 2 + turn % 3;
        const int64_t count = turn == 0 ? 1 : 3 + turn * 7 % MOST, held_count = 2 + turn * 3;
        int32_t       text[MOST + 3], held[MOST];
        double        nats[NGRAM_MAX + 1];
        for (int64_t i = 0; i < count; i++) text[i] = word(vocab);
        for (int64_t i = 0; i < held_count; i++) held[i] = word(vocab);
        REQUIRE(ngram_losses(text, count, held, held_count, 0, vocab, nats, NULL));
        for (int n = 1; n <= NGRAM_MAX; n++) {
            double error = fabs(nats[n] - counted(text, count, held, held_count, n, vocab));
            test_raise(&worst, error);
        }
    }
    WORST("n-grams as counted", worst, 1e-15);
}

/* Windows are texts of their own: their mean is that of each alone. */
TEST(windows)
{
    enum { COUNT = 300, WINDOWS = 4, LENGTH = 6 };
    int32_t text[COUNT], held[WINDOWS * LENGTH];
    double  nats[NGRAM_MAX + 1], one[NGRAM_MAX + 1], sum[NGRAM_MAX + 1] = {0}, worst = 0;
    for (int i = 0; i < COUNT; i++) text[i] = word(5);
    for (int i = 0; i < WINDOWS * LENGTH; i++) held[i] = word(5);
    REQUIRE(ngram_losses(text, COUNT, held, WINDOWS * LENGTH, LENGTH, 5, nats, NULL));
    for (int k = 0; k < WINDOWS; k++) {
        REQUIRE(ngram_losses(text, COUNT, held + k * LENGTH, LENGTH, 0, 5, one, NULL));
        for (int n = 1; n <= NGRAM_MAX; n++) sum[n] += one[n] / WINDOWS;
    }
    for (int n = 1; n <= NGRAM_MAX; n++) test_raise(&worst, fabs(sum[n] - nats[n]));
    WORST("n-grams of windows, against each alone", worst, 1e-14);
}

/* What may follow a word has chances that add up to one. */
TEST(sums_to_one)
{
    enum { VOCAB = 7, COUNT = 400 };
    int32_t text[COUNT], pair[2];
    double  sum[NGRAM_MAX + 1], nats[NGRAM_MAX + 1], worst = 0;
    for (int i = 0; i < COUNT; i++) text[i] = word(VOCAB - 1);
    for (pair[0] = 0; pair[0] < VOCAB; pair[0]++) {
        memset(sum, 0, sizeof sum);
        for (pair[1] = 0; pair[1] < VOCAB; pair[1]++) {
            REQUIRE(ngram_losses(text, COUNT, pair, 2, 0, VOCAB, nats, NULL));
            for (int n = 1; n <= NGRAM_MAX; n++) sum[n] += exp(-nats[n]);
        }
        for (int n = 1; n <= NGRAM_MAX; n++) test_raise(&worst, fabs(sum[n] - 1));
    }
    WORST("n-grams sum to one", worst, 5e-15);
}

TEST_MAIN(by_hand, as_counted, windows, sums_to_one)
