/* induction.c - an induction circuit: learned, found by its weights, and checked by ablation

   A transformer of two blocks of attention, without MLPs, learns texts in which a few tokens in random order are repeated:
   g c k a g c k a g .. After "g c" it is known what follows the next g. Two heads together can do it (Olsson et al. 2022,
   arXiv 2209.11895): one of the first block copies the token before each position to that position, and one of the
   second looks for positions whose token before is the present one, and copies what is there.
   The weights say which heads these are, without a text:
       previous token   of each head of block 0: by how much its scores prefer the distance 1, over all pairs of tokens,
                        which are exact with the norms of the first block
       K-composition    of each head of block 1 with each of block 0: is the score of a query a for a key that holds the
                        token before it, b, largest for b = a? The mean of the diagonal of the table [a,b] less that of
                        all others, in their standard deviations
       copying          of each head of block 1: the copying score of its OV circuit, 1 if all tokens raise their own logit
   Then each head is removed from the network in turn, and the accuracy where the next token is known says which ones matter.
   Softmax and squared attention agree with their weights. The two scores of bilinear attention share the work in ways that a
   table of one of them does not show.

   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/induction.c -o induction -lm && ./induction
   --attention softmax|squared|bilinear   --heads N   --steps N   --lr X   --seed N   --threads N   --out FOLDER
                                                               (in the folder of tensornet.h) */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "induction"
#include "program.h"

enum { VOCAB = 24, LENGTH = 40, SHORTEST = 10, LONGEST = 19, BATCH = 32, DIM = 64, MOST_HEADS = 8, DISTANCES = 12,
       TESTED = 128 };

typedef struct options {
    const char *attention, *out;
    int64_t     heads, steps, seed, threads;
    double      lr;
} options;

/* ---- texts ------------------------------------------------------------------------------------------------------- */

typedef struct texts { tn_tensor *x, *y; bool *known; int32_t *next; } texts;      /* [count,LENGTH] */

/* Tokens that are all different, again and again. known: the token has been seen before, and the next with it. */
static texts make_texts(tn_ctx *ctx, uint64_t *state, int64_t count)
{
    static int32_t x[TESTED * LENGTH], y[TESTED * LENGTH];
    static bool    known[TESTED * LENGTH];
    texts          t = {NULL, NULL, known, y};
    for (int64_t b = 0; b < count; b++) {
        int32_t order[VOCAB];
        int     period = SHORTEST + (int)random_below(state, LONGEST - SHORTEST + 1);
        for (int i = 0; i < VOCAB; i++) order[i] = i;
        for (int i = 0; i < period; i++) {
            const int     j = i + (int)random_below(state, VOCAB - i);
            const int32_t swap = order[i];
            order[i] = order[j];
            order[j] = swap;
        }
        for (int i = 0; i < LENGTH; i++) {
            x[b * LENGTH + i] = order[i % period];
            y[b * LENGTH + i] = order[(i + 1) % period];
            known[b * LENGTH + i] = i >= period;
        }
    }
    t.x = tn_tensor_2d(ctx, TN_I32, count, LENGTH);
    t.y = tn_tensor_2d(ctx, TN_I32, count, LENGTH);
    tn_write(t.x, TN_I32, x, count * LENGTH);
    tn_write(t.y, TN_I32, y, count * LENGTH);
    check(ctx);
    return t;
}

/* How often the most likely token is right where it is known, in a run with taps. */
static double accuracy(tn_ctx *ctx, const tn_transformer *model, const tn_tap *taps, int64_t n)
{
    static int32_t said[TESTED * LENGTH];
    uint64_t       state = 12345;                           /* the same texts in each call */
    int64_t        right = 0, all = 0;
    tn_ctx_reset(ctx);
    texts t = make_texts(ctx, &state, TESTED);
    tn_read(tn_argmax(ctx, tn_transformer_run(ctx, model, t.x, taps, n)), TN_I32, said, TESTED * LENGTH);
    check(ctx);
    for (int64_t i = 0; i < TESTED * LENGTH; i++) {
        all += t.known[i];
        right += t.known[i] && said[i] == t.next[i];
    }
    return (double)right / (double)all;
}

/* ---- training ------------------------------------------------------------------------------------------------------ */

static tn_attention_kind kind_of(const char *name)
{
    return !strcmp(name, "softmax") ? TN_ATTENTION_SOFTMAX
         : !strcmp(name, "squared") ? TN_ATTENTION_SQUARED : TN_ATTENTION_BILINEAR;
}

static void train(tn_ctx *ctx, tn_params *params, tn_transformer *model, const options *o)
{
    uint64_t state = (uint64_t)o->seed;
    tn_transformer_init(params, "", &(tn_transformer_desc){ .vocab = VOCAB, .layers = 2, .dim = DIM, .heads = o->heads,
        .context = LENGTH, .hidden = 1, .attention = kind_of(o->attention), .qk_norm = true, .no_norm_gain = true,
        .init = TN_INIT_NORMAL }, model);
    check(ctx);
    for (int l = 0; l < 2; l++) tn_assign(model->blocks[l].mlp.p, tn_scale(ctx, model->blocks[l].mlp.p, 0)); /* no MLPs */
    tn_params_freeze(params, "*.mlp.*");
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){ .lr = o->lr, .clip_norm = 1,
        .schedule = { .kind = TN_SCHEDULE_COSINE, .warmup = o->steps / 20, .total = o->steps, .floor = 0.05 } });
    printf("  step   loss   right where the next token is known\n");
    for (int64_t step = 0; step <= o->steps; step++) {
        tn_ctx_reset(ctx);
        texts t = make_texts(ctx, &state, BATCH);
        tn_record(ctx);
        tn_tensor *loss = tn_transformer_loss(ctx, model, t.x, t.y);
        if (step % 100 == 0 || step == o->steps) printf("%6lld %6.3f", (long long)step, tn_item(loss));
        if (step < o->steps && (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK)) check(ctx);
        if (step % 100 && step < o->steps) continue;
        printf(" %37.4f\n", accuracy(ctx, model, NULL, 0));
        fflush(stdout);
    }
    tn_optim_destroy(optim);
}

/* ---- from the weights ------------------------------------------------------------------------------------------------ */

typedef struct findings {
    double  weight[MOST_HEADS][DISTANCES];                  /* of each head of block 0, by distance; the sum is 1 */
    double  composition[MOST_HEADS][MOST_HEADS];            /* of head h of block 1 with head g of block 0         */
    double  copying[MOST_HEADS];                            /* of each head of block 1                             */
    double  table[MOST_HEADS][MOST_HEADS][VOCAB * VOCAB];   /* [a,b] of the better set of scores                   */
    int     previous, induction;                            /* the pair of heads                                   */
} findings;

/* What a pattern makes of a score: softmax its exponential, the others its size (bilinear ones may be negative). */
static double size_of(const options *o, double score)
{
    return kind_of(o->attention) == TN_ATTENTION_SOFTMAX ? exp(score) : fabs(score);
}

static void read_first_block(tn_ctx *ctx, const tn_transformer *model, const options *o, findings *f)
{
    double s[VOCAB * VOCAB];
    for (int64_t g = 0; g < o->heads; g++) {
        double sum = 0;
        for (int64_t d = 0; d < DISTANCES; d++) {
            tn_circuit *qk = tn_circuit_qk(ctx, model, &(tn_circuit_desc){ .head = g, .tokens = true, .query = d });
            tn_ctx_reset(ctx);
            tn_read(tn_circuit_rows(ctx, qk, 0, VOCAB), TN_F64, s, VOCAB * VOCAB);
            check(ctx);
            f->weight[g][d] = 0;
            for (int i = 0; i < VOCAB * VOCAB; i++) f->weight[g][d] += size_of(o, s[i]) / (VOCAB * VOCAB);
            sum += f->weight[g][d];
            tn_circuit_destroy(qk);
        }
        for (int64_t d = 0; d < DISTANCES; d++) f->weight[g][d] /= sum;
    }
}

/* The mean of the diagonal less that of the rest, in standard deviations of the rest. */
static double diagonal(const double *t)
{
    double on = 0, off = 0, square = 0;
    for (int a = 0; a < VOCAB; a++)
        for (int b = 0; b < VOCAB; b++) {
            const double v = t[a * VOCAB + b];
            if (a == b) on += v / VOCAB;
            else {
                off += v / (VOCAB * (VOCAB - 1));
                square += v * v / (VOCAB * (VOCAB - 1));
            }
        }
    return (on - off) / sqrt(square - off * off);
}

/* The table [a,b] of the scores of a query, token a, for a key at whose position head g has written token b; the mean over
   the distances at which a repetition can be. */
static void read_pair(tn_ctx *ctx, const tn_transformer *model, int set, int64_t h, int64_t g, double *table)
{
    tn_circuit *ov = tn_circuit_ov(ctx, model, &(tn_circuit_desc){ .head = g });
    tn_tensor  *tokens = model->embed.w, *sum = NULL;
    tn_ctx_reset(ctx);
    for (int64_t d = SHORTEST - 1; d < LONGEST; d++) {
        tn_circuit *qk = tn_circuit_qk(ctx, model, &(tn_circuit_desc){ .block = 1, .head = h, .set = set, .query = d });
        tn_circuit *both = tn_circuit_compose(qk, TN_CIRCUIT_COLUMNS, ov);
        check(ctx);
        tn_tensor *t = tn_einsum(ctx, "ai,ij,bj->ab", 3, (tn_tensor *[]){tokens, tn_circuit_rows(ctx, both, 0, both->rows),
                      tn_norm_forward(ctx, &model->blocks[0].norm1, tokens)});
        sum = sum ? tn_add(ctx, sum, t) : t;
        tn_circuit_destroy(qk);
        tn_circuit_destroy(both);
    }
    tn_read(sum, TN_F64, table, VOCAB * VOCAB);
    check(ctx);
    tn_circuit_destroy(ov);
}

static void read_second_block(tn_ctx *ctx, const tn_transformer *model, const options *o, findings *f)
{
    const int sets = kind_of(o->attention) == TN_ATTENTION_BILINEAR ? 2 : 1;
    double    best = -HUGE_VAL, table[VOCAB * VOCAB];
    for (int64_t h = 0; h < o->heads; h++) {
        tn_circuit *ov = tn_circuit_ov(ctx, model, &(tn_circuit_desc){.block = 1, .head = h, .tokens = true, .norm_scale = 1});
        if (tn_circuit_copying(ov, NULL, &f->copying[h]) != TN_OK) check(ctx);
        tn_circuit_destroy(ov);
        for (int64_t g = 0; g < o->heads; g++) {
            f->composition[h][g] = -HUGE_VAL;
            for (int set = 1; set <= sets; set++) {
                read_pair(ctx, model, set, h, g, table);
                double z = diagonal(table);
                if (kind_of(o->attention) != TN_ATTENTION_SOFTMAX) z = fabs(z);     /* of a product the sign is shared */
                if (!(z > f->composition[h][g])) continue;
                f->composition[h][g] = z;
                memcpy(f->table[h][g], table, sizeof table);
            }
            if (f->composition[h][g] * f->weight[g][1] * f->copying[h] > best) {     /* the circuit needs all three */
                best = f->composition[h][g] * f->weight[g][1] * f->copying[h];
                f->induction = (int)h;
                f->previous = (int)g;
            }
        }
    }
}

static void print_findings(const options *o, const findings *f)
{
    printf("\nFrom the weights\n\nblock 0   share of distance 1   (of distances 0 to %d)\n", DISTANCES - 1);
    for (int64_t g = 0; g < o->heads; g++) printf("  head %lld %20.3f\n", (long long)g, f->weight[g][1]);
    printf("\nblock 1   copying score   K-composition with block 0:");
    for (int64_t g = 0; g < o->heads; g++) printf("  head %lld", (long long)g);
    printf("\n");
    for (int64_t h = 0; h < o->heads; h++) {
        printf("  head %lld %14.3f %29s", (long long)h, f->copying[h], "");
        for (int64_t g = 0; g < o->heads; g++) printf(" %7.2f", f->composition[h][g]);
        printf("\n");
    }
    printf("\nThe previous-token head is head %d of block 0, the induction head is head %d of block 1.\n", f->previous,
           f->induction);
}

/* ---- ablation ------------------------------------------------------------------------------------------------------- */

static double without(tn_ctx *ctx, const tn_transformer *model, int block, int64_t head)
{
    tn_edit edit = { .head = head, .heads = 1 };
    return accuracy(ctx, model, &(tn_tap){block ? "blocks.1.attn.z" : "blocks.0.attn.z", tn_tap_edit, &edit}, 1);
}

/* With the two heads alone. */
static double with_pair(tn_ctx *ctx, const tn_transformer *model, const options *o, const findings *f)
{
    tn_edit edit[2 * MOST_HEADS];
    tn_tap  tap[2 * MOST_HEADS];
    int64_t n = 0;
    for (int l = 0; l < 2; l++)
        for (int64_t h = 0; h < o->heads; h++) {
            if (h == (l ? f->induction : f->previous)) continue;
            edit[n] = (tn_edit){ .head = h, .heads = 1 };
            tap[n] = (tn_tap){l ? "blocks.1.attn.z" : "blocks.0.attn.z", tn_tap_edit, &edit[n]};
            n++;
        }
    return accuracy(ctx, model, tap, n);
}

static void draw(tn_ctx *ctx, const options *o, const findings *f)
{
    static double tiles[MOST_HEADS * MOST_HEADS * VOCAB * VOCAB];
    static char   name[MOST_HEADS][32], row[MOST_HEADS][32];
    const char   *names[MOST_HEADS], *rows[MOST_HEADS];
    tn_image_series     series[MOST_HEADS] = {{0}};
    for (int64_t g = 0; g < o->heads; g++) {
        snprintf(name[g], sizeof name[g], "block 0, head %lld", (long long)g);
        snprintf(row[g], sizeof row[g], "block 1, head %lld", (long long)g);
        names[g] = name[g];
        rows[g] = row[g];
        series[g] = (tn_image_series){ .name = name[g], .y = f->weight[g], .count = DISTANCES, .kind = TN_IMAGE_SERIES_BARS };
        for (int64_t h = 0; h < o->heads; h++)
            memcpy(tiles + (h * o->heads + g) * VOCAB * VOCAB, f->table[h][g], sizeof f->table[h][g]);
    }
    save_image(ctx, tn_image_plot(ctx, series, o->heads, &(tn_image_plot_desc){ .title = "How far heads of block 0 look back",
        .x_title = "distance of key and query", .y_title = "share of the scores", .scale = 2 }), o->out, "distances");
    save_image(ctx, tn_image_tiles(ctx, tiles, o->heads * o->heads, VOCAB, VOCAB, &(tn_image_tiles_desc){ .rows = o->heads,
        .columns = o->heads, .row_names = rows, .column_names = names, .own_scales = true, .size = 6 * VOCAB,
        .title = "Query (rows), token before the key (columns)", .scale = 2 }), o->out, "composition");
}

int main(int argc, char **argv)
{
    static findings f;
    options         o = {"squared", "out/induction", 2, 600, 1, 0, 1e-2};
    const flag      flags[] = {
        {"--attention", FLAG_CHOICE, &o.attention, 0, 0, "softmax|squared|bilinear"},
        {"--heads", FLAG_COUNT, &o.heads, 1, MOST_HEADS, NULL},
        {"--steps", FLAG_COUNT, &o.steps, 1, 1e6, NULL},
        {"--lr", FLAG_REAL, &o.lr, 0, 10, NULL},
        SEED_FLAG(&o), THREADS_FLAG(&o), OUT_FLAG(&o), {0}
    };
    char            why[TN_WHY];
    tn_ctx         *ctx;
    tn_transformer  model;
    double          start = now(), least[2] = {2, 2};
    int             first[2] = {0, 0};
    read_flags(argc, argv, flags);
    if (DIM % o.heads) {
        fprintf(stderr, PROGRAM ": --heads is %lld, expected a divisor of %d\n", (long long)o.heads, DIM);
        return 2;
    }
    if (tn_ctx_create(&(tn_desc){ .seed = (uint64_t)o.seed, .threads = (int)o.threads }, &ctx, why) != TN_OK) stop(why);
    make_folder(o.out);
    tn_params *params = tn_params_create(ctx);
    train(ctx, params, &model, &o);
    double seconds = now() - start;

    tn_ctx_reset(ctx);
    read_first_block(ctx, &model, &o, &f);
    read_second_block(ctx, &model, &o, &f);
    print_findings(&o, &f);

    double whole = accuracy(ctx, &model, NULL, 0);
    double pair = with_pair(ctx, &model, &o, &f);
    printf("\nAblation: right where the next token is known (%.3f by chance)\n\n  nothing removed   %.4f\n", 1.0 / VOCAB,
           whole);
    for (int block = 0; block < 2; block++)
        for (int64_t h = 0; h < o.heads; h++) {
            const double left = without(ctx, &model, block, h);
            printf("  block %d, head %lld   %.4f%s\n", block, (long long)h, left,
                   h == (block ? f.induction : f.previous) ? "   found by the weights" : "");
            if (!(left < least[block])) continue;
            least[block] = left;
            first[block] = (int)h;
        }
    printf("  all but the two   %.4f\n\npictures:\n", pair);
    draw(ctx, &o, &f);

    printf("\naccuracy: %.4f\n", whole);
    printf("previous_token_head: %d\n", f.previous);
    printf("induction_head: %d\n", f.induction);
    printf("share_of_distance_1: %.3f\n", f.weight[f.previous][1]);
    printf("k_composition: %.2f\n", f.composition[f.induction][f.previous]);
    printf("copying_score: %.3f\n", f.copying[f.induction]);
    printf("accuracy_without_previous_token_head: %.4f\n", without(ctx, &model, 0, f.previous));
    printf("accuracy_without_induction_head: %.4f\n", without(ctx, &model, 1, f.induction));
    printf("accuracy_of_the_two_alone: %.4f\n", pair);
    printf("ablation_agrees: %s\n", first[0] == f.previous && first[1] == f.induction ? "yes" : "no");
    printf("seconds_of_training: %.1f\n", seconds);
    tn_ctx_destroy(ctx);
    return 0;
}
