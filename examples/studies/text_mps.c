/* text_mps.c - how much the two sides of each cut of a sentence have to do with each other, in a matrix product state

   A Born machine reads texts of 32 letters, a to z and the space between words: p(x) = f(x)^2 / sum of f^2, where f is a
   product of one matrix for each letter, the same 27 matrices at all places. It is trained on windows of a text that begin
   anywhere. Whatever it knows about the letters after a cut from those before it goes through a bond of D numbers. The
   entropy of the cut, at most ln D, is an upper bound of the mutual information of the letters on its two sides.
   1. Nats per letter on the part of the text that is held out, beside tables of the letter after 0, 1, 2 and 3 others, and
      texts that the machine writes.
   2. The entropy of each cut of a sentence, with the letters beneath, where only the letters near the cut are free: one, or
      three, on each side. All others are those of the sentence: of their cores one matrix remains, so that this is a state
      of its own for each cut. The entropy is 0 where, given the rest, the two sides are independent, for example because the
      rest determines one of them. A line shows the entropies of the state in which all letters are free, which are the same
      for every sentence.

   sh examples/get_data.sh kjv                          (or --data FILE: any text in English letters)
   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/text_mps.c -o text_mps -lm && ./text_mps
   --data FILE   --sentence TEXT (drawn too)   --sentences N (of the held-out part)   --length N (of a window)   --bond N
   --steps N   --batch N   --lr X   --noise X (of the first matrices)   --seed N   --threads N   --out FOLDER */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "text_mps"
#include "program.h"
#include "text.h"

enum { LETTERS = 27, LONGEST = 32, ORDERS = 4, MEASURED = 50, TOLD = 1000, WRITTEN = 3, MOST_SENTENCES = 20, WIDER = 3 };

typedef struct options {
    const char *data, *sentence, *out;
    int64_t     sentences, length, bond, steps, batch, seed, threads;
    double      lr, noise;
} options;

/* ---- a text as letters ------------------------------------------------------------------------------------------------ */

typedef struct letters {
    int32_t *id;                    /* [count]: 0 between words, 1 to 26 */
    bool    *begins;                /* [count]: a sentence               */
    int64_t  count, held;           /* held: where the held-out part is  */
} letters;

/* Whatever is no letter becomes one space, and so does the mark between two documents. */
static letters letters_of(const char *text, int64_t bytes)
{
    const int64_t mark = (int64_t)strlen(DOCUMENT_END);
    letters       t = {grown(NULL, bytes, sizeof *t.id), grown(NULL, bytes, sizeof *t.begins), 0, 0};
    bool          ended = true;
    for (int64_t i = 0; i < bytes; i++) {
        const bool marked = bytes - i >= mark && !memcmp(text + i, DOCUMENT_END, (size_t)mark);
        const char c = marked ? '\n' : text[i];
        const int  id = c >= 'a' && c <= 'z' ? c - 'a' + 1 : c >= 'A' && c <= 'Z' ? c - 'A' + 1 : 0;
        if (marked) i += mark - 1;
        ended = ended || c == '.' || c == '!' || c == '?' || c == '\n';
        if (id == 0 && (t.count == 0 || t.id[t.count - 1] == 0)) continue;
        t.begins[t.count] = id > 0 && ended;
        if (id > 0) ended = false;
        t.id[t.count++] = id;
    }
    t.held = t.count - (int64_t)(HELD_OUT * (double)t.count);
    return t;
}

static char letter(int64_t id) { return id == 0 ? ' ' : (char)('a' + id - 1); }

static void print_letters(const int64_t *id, int64_t n)
{
    for (int64_t i = 0; i < n; i++) putchar(letter(id[i]));
}

/* Where the window number i of `count` begins, evenly distributed over the held-out part. */
static int64_t held_window(const letters *t, int64_t length, int64_t i, int64_t count)
{
    return t->held + (t->count - length - t->held) * i / count;
}

/* Nats per letter of TOLD held-out windows, by tables of the letter after up to `order` others. The first letters of a
   window have fewer letters before them, for the tables as for the machine. Counts begin at 1/10. */
static double nats_of_table(const letters *t, int64_t length, int order)
{
    double *table[ORDERS], nats = 0;
    int64_t size = 1;
    for (int k = 0; k <= order; k++, size *= LETTERS) {
        table[k] = zeros(size * LETTERS, sizeof **table);
        for (int64_t i = k; i < t->held; i++) {
            int64_t at = 0;
            for (int64_t j = i - k; j <= i; j++) at = at * LETTERS + t->id[j];
            table[k][at]++;
        }
    }
    for (int64_t i = 0; i < TOLD * length; i++) {
        const int32_t *at = t->id + held_window(t, length, i / length, TOLD) + i % length;
        const int      before = i % length < order ? (int)(i % length) : order;
        const double  *row = table[before];
        int64_t        context = 0;
        double         sum = 0;
        for (int k = before; k > 0; k--) context = context * LETTERS + at[-k];
        row += context * LETTERS;
        for (int k = 0; k < LETTERS; k++) sum += row[k] + 0.1;
        nats -= log((row[*at] + 0.1) / sum);
    }
    for (int k = 0; k <= order; k++) free(table[k]);
    return nats / (double)(TOLD * length);
}

/* ---- the Born machine ------------------------------------------------------------------------------------------------- */

/* Windows as ids [count,length] */
static tn_tensor *windows_at(tn_ctx *ctx, const letters *t, const int64_t *first, int64_t count, int64_t length)
{
    tn_tensor *x = tn_tensor_2d(ctx, TN_I32, count, length);
    check(ctx);
    for (int64_t i = 0; i < count; i++) tn_write(tn_slice(x, 0, i, i + 1), TN_I32, t->id + first[i], length);
    return x;
}

/* The mean of -ln p per letter, [] */
static tn_tensor *nats_of(tn_ctx *ctx, const tn_mps *mps, tn_tensor *x)
{
    return tn_scale(ctx, tn_mean(ctx, tn_mps_log_probability(ctx, mps, x)), -1 / (double)mps->desc.sites);
}

static void train(tn_ctx *ctx, const options *o, const letters *t, tn_mps *mps)
{
    tn_params *params = tn_params_create(ctx);
    uint64_t   state = (uint64_t)o->seed;
    int64_t   *first = grown(NULL, o->batch, sizeof *first);
    double     sum = 0, begin = now();
    tn_mps_init(params, "mps", &(tn_mps_desc){ .sites = o->length, .bond = o->bond, .map = TN_LOCAL_IDS, .dim = LETTERS,
                                               .uniform = true, .std = o->noise }, mps);
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){ .lr = o->lr, .beta2 = 0.99, .clip_norm = 1,
        .schedule = { .kind = TN_SCHEDULE_COSINE, .warmup = o->steps / 20, .total = o->steps } });
    check(ctx);
    printf("%lld letters, %lld parameters\n", (long long)t->count, (long long)tn_params_elements(params));
    for (int64_t step = 1; step <= o->steps; step++) {
        for (int64_t i = 0; i < o->batch; i++) first[i] = random_below(&state, t->held - o->length);
        tn_ctx_reset(ctx);
        tn_tensor *x = windows_at(ctx, t, first, o->batch, o->length);
        tn_record(ctx);
        tn_tensor *loss = nats_of(ctx, mps, x);
        if (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK) check(ctx);
        sum += tn_item(loss);
        if (step % 200 == 0) {
            printf("step %5lld  %.4f nats per letter  %6.1f s\n", (long long)step, sum / 200, now() - begin);
            fflush(stdout);
            sum = 0;
        }
    }
    tn_optim_destroy(optim);
    free(first);
}

static double nats_held_out(tn_ctx *ctx, const letters *t, const tn_mps *mps)
{
    int64_t first[TOLD];
    for (int64_t i = 0; i < TOLD; i++) first[i] = held_window(t, mps->desc.sites, i, TOLD);
    tn_ctx_reset(ctx);
    double nats = tn_item(nats_of(ctx, mps, windows_at(ctx, t, first, TOLD, mps->desc.sites)));
    check(ctx);
    return nats;
}

/* ---- entropies of cuts ------------------------------------------------------------------------------------------------ */

/* Of the cut after letter `cut` of a sentence, id [count of tt]. Letters more than `reach` away from the cut are fixed: of
   their cores only the matrix of this letter remains. */
static double entropy_of_cut(const tn_tt *tt, const int32_t *id, int64_t cut, int64_t reach)
{
    tn_tensor *core[LONGEST];
    double     entropy[LONGEST];
    tn_ctx_reset(tt->ctx);
    for (int64_t k = 0; k < tt->count; k++)
        core[k] = k > cut - reach && k <= cut + reach ? tt->core[k] : tn_slice(tt->core[k], 1, id[k], id[k] + 1);
    tn_tt     *fixed = tn_tt_create(tt->ctx, tt->count, core);
    tn_tensor *e = tn_tt_entropies(fixed);
    check(tt->ctx);
    tn_read(e, TN_F64, entropy, tt->count - 1);
    tn_tensor_destroy(e);
    tn_tt_destroy(fixed);
    return entropy[cut];
}

/* Entropies of all cuts of a sentence, letters beneath. all: those of the state in which every letter is free. */
static void draw_sentence(const tn_tt *tt, const options *o, const double *all, const int32_t *id, int number)
{
    const int64_t n = tt->count;
    char          name[LONGEST][2], file[32];
    const char   *names[LONGEST];
    double        place[LONGEST], one[LONGEST], wider[LONGEST];
    for (int64_t k = 0; k < n; k++) {
        name[k][0] = letter(id[k]);
        name[k][1] = 0;
        names[k] = name[k];
    }
    for (int64_t k = 0; k + 1 < n; k++) {
        place[k] = (double)k + 0.5;
        one[k] = entropy_of_cut(tt, id, k, 1);
        wider[k] = entropy_of_cut(tt, id, k, WIDER);
    }
    snprintf(file, sizeof file, "sentence%d", number);
    save_image(tt->ctx, tn_image_plot(tt->ctx, (tn_image_series[]){
        {.name = "1 letter on each side", .x = place, .y = one, .count = n - 1, .kind = TN_IMAGE_SERIES_BARS, .colour = 1},
        {.name = "3 letters", .x = place, .y = wider, .count = n - 1, .kind = TN_IMAGE_SERIES_POINTS, .colour = 2},
        {.name = "all letters", .x = place, .y = all, .count = n - 1, .dashed = true, .colour = 3}}, 3,
        &(tn_image_plot_desc){ .title = "Entropy of each cut of a sentence, by the letters that are free",
                         .caption = "Letters that are not free are those of the sentence.",
                         .y_title = "nats", .x_names = names, .x_name_count = n, .x_low = -0.5, .x_high = (double)n - 0.5,
                         .width = 680, .scale = 2 }), o->out, file);
}

/* Cuts within words, and those beside a space: mean entropies over MEASURED held-out windows, one letter free
   on each side. */
static void measure_cuts(const tn_tt *tt, const letters *t, double mean[2])
{
    double sum[2] = {0, 0}, count[2] = {0, 0};
    for (int64_t i = 0; i < MEASURED; i++) {
        const int32_t *id = t->id + held_window(t, tt->count, i, MEASURED);
        for (int64_t k = 0; k + 1 < tt->count; k++) {
            const int space = id[k] == 0 || id[k + 1] == 0;
            sum[space] += entropy_of_cut(tt, id, k, 1);
            count[space]++;
        }
    }
    for (int64_t k = 0; k < 2; k++) mean[k] = sum[k] / count[k];
}

/* Held-out sentences from here on: those that begin one, and have a word's end at the end of a window. -1: there is none. */
static int64_t next_sentence(const letters *t, int64_t from, int64_t length)
{
    for (; from + length < t->count; from++) if (t->begins[from] && t->id[from + length] == 0) return from;
    return -1;
}

/* ----------------------------------------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    options o = {DEFAULT_TEXT, NULL, "out/text_mps", 3, LONGEST, 32, 2000, 64, 1, 0, 0.02, 0.1};
    const flag flags[] = {
        {"--data", FLAG_TEXT, &o.data, 0, 0, "a file"},
        {"--sentence", FLAG_TEXT, &o.sentence, 0, 0, "a text of --length letters at least"},
        {"--sentences", FLAG_COUNT, &o.sentences, 0, MOST_SENTENCES, NULL},
        {"--length", FLAG_COUNT, &o.length, 2, LONGEST, NULL},
        {"--bond", FLAG_COUNT, &o.bond, 1, 500, NULL},
        {"--steps", FLAG_COUNT, &o.steps, 1, 1e9, NULL},
        {"--batch", FLAG_COUNT, &o.batch, 1, 1e5, NULL},
        {"--lr", FLAG_REAL, &o.lr, 0, 10, NULL},
        {"--noise", FLAG_REAL, &o.noise, 0, 1000, NULL},
        SEED_FLAG(&o),
        THREADS_FLAG(&o),
        OUT_FLAG(&o),
        {0}
    };
    double     begin = now(), all[LONGEST], mean[2], table[ORDERS], largest = 0;
    int64_t    bytes, sample[WRITTEN][LONGEST];
    int        drawn = 0;
    char       why[TN_WHY];
    tn_ctx    *ctx;
    tn_mps     mps;
    letters    own = {0};
    read_flags(argc, argv, flags);
    char   *text = read_text(o.data, &bytes);
    letters t = letters_of(text, bytes);
    free(text);
    if (o.sentence) own = letters_of(o.sentence, (int64_t)strlen(o.sentence));
    if (o.sentence && own.count < o.length) {
        snprintf(why, sizeof why, "--sentence has %lld letters and spaces, expected at least %lld (--length)",
                 (long long)own.count, (long long)o.length);
        stop(why);
    }
    if (t.count - t.held <= o.length || t.held <= o.length) {
        snprintf(why, sizeof why, "%s is too short: it has %lld letters, of which the last 5 %% are held out; a window has"
                 " %lld", o.data, (long long)t.count, (long long)o.length);
        stop(why);
    }
    if (tn_ctx_create(&(tn_desc){ .seed = (uint64_t)o.seed, .threads = (int)o.threads }, &ctx, why) != TN_OK) stop(why);
    make_folder(o.out);
    train(ctx, &o, &t, &mps);

    printf("\n1. Nats per letter, held out\n\n");
    for (int order = 0; order < ORDERS; order++) {
        table[order] = nats_of_table(&t, o.length, order);
        printf("   the letter after %d others: %.4f\n", order, table[order]);
    }
    double nats = nats_held_out(ctx, &t, &mps);
    printf("   the machine: %.4f\n\n   It writes:\n", nats);
    tn_ctx_reset(ctx);
    tn_tt *tt = tn_tt_from_mps(ctx, &mps);
    if (tn_tt_sample(tt, WRITTEN, 0, (uint64_t)o.seed, sample[0]) != TN_OK) check(ctx);
    for (int64_t i = 0; i < WRITTEN; i++) {
        printf("   ");
        print_letters(sample[0] + i * o.length, o.length);
        printf("\n");
    }

    tn_tensor *entropies = tn_tt_entropies(tt);
    check(ctx);
    tn_read(entropies, TN_F64, all, o.length - 1);
    tn_tensor_destroy(entropies);
    for (int64_t i = 0; i + 1 < o.length; i++) keep_largest(&largest, all[i]);
    printf("\n2. Sentences\n\n");
    if (o.sentence) draw_sentence(tt, &o, all, own.id, ++drawn);
    for (int64_t i = 0, at = 0; i < o.sentences && at >= 0; i++) {
        at = next_sentence(&t, held_window(&t, o.length, i, o.sentences), o.length);
        if (at >= 0) draw_sentence(tt, &o, all, t.id + at, ++drawn);
    }
    measure_cuts(tt, &t, mean);
    printf("\nnats_per_letter: %.4f\n", nats);
    printf("nats_after_one_letter: %.4f\n", table[1]);
    printf("nats_after_two_letters: %.4f\n", table[2]);
    printf("largest_entropy: %.4f\n", largest);
    printf("largest_possible: %.4f\n", log((double)o.bond));
    printf("entropy_within_words: %.4f\n", mean[0]);
    printf("entropy_beside_spaces: %.4f\n", mean[1]);
    printf("seconds: %.1f\n", now() - begin);
    tn_ctx_destroy(ctx);
    free(t.id); free(t.begins); free(own.id); free(own.begins);
    return 0;
}
