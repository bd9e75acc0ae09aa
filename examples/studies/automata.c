/* automata.c - one layer of tensor-network attention is any elementary cellular automaton, learns rule 30 from short
   strings, and says which rule it has learned

   A cell of an elementary automaton is 0 or 1. Its next state depends on itself and its two neighbours, by one of 256 rules.
   1. By construction. With bond dimension 4 the layer is exact for every rule and length, on a ring and between zeros.
   2. By training. A layer of bond dimension 10 sees strings of 3 to 10 cells, and is tested after its last step on strings
      of 1,000 (nothing is chosen by the test). Several lengths are needed: strings of 10 cells alone do not determine the
      sign that the layer has at other lengths.
   3. From few strings. The layer is right on those that it was trained on long before it is on others (grokking: Zunkovic &
      Ilievski 2024). Meanwhile it is compared with the exact layer, as a function (tn_tn_attention_rule): the distance is
      already falling, with small rises in between, and the mean outputs of the eight neighbourhoods tell the rule before
      unseen strings are right.
   4. Two steps of the rule at once, by one layer.
   Two pictures: the automaton that was learned, fed with its own cells, beside the true one; errors and distance by step.

   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/automata.c -o automata -lm && ./automata
   --rule N   --seeds N   --steps N   --bond N   --strings N   --few N   --every N   --length N   --lr X   --weight-decay X
   --seed N   --threads N   --out FOLDER
                                                               (in the folder of tensornet.h) */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "automata"
#include "program.h"

enum { RULES = 256, CELLS = 10, BATCH = 50, READ = 7, MOST_READINGS = 1001, TIME = 100, WIDTH = 2 * TIME + 1 };

typedef struct options {
    const char *out;
    int64_t     rule, seeds, steps, bond, strings, few, every, length, seed, threads;
    double      lr, weight_decay;
} options;

/* ---- automata, and strings of their cells ------------------------------------------------------------------------ */

/* 0 to n-1, by a generator of the program's own, so that strings do not depend on the library's random calls. */
static int64_t rng(uint64_t *state, int64_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((*state >> 33) % (uint64_t)n);
}
static int coin(uint64_t *state) { return rng(state, 1024) >= 512; }

/* One step of a rule; outside of an open boundary cells are 0. */
static void next_cells(int64_t rule, const int *c, int64_t n, bool ring, int *next)
{
    for (int64_t j = 0; j < n; j++) {
        const int l = j > 0 ? c[j - 1] : ring ? c[n - 1] : 0, r = j + 1 < n ? c[j + 1] : ring ? c[0] : 0;
        next[j] = (int)(rule >> (4 * l + 2 * c[j] + r) & 1);
    }
}

typedef struct strings {            /* cells and those some steps later */
    int64_t count, n;
    int    *cell, *next;            /* [count,n] */
} strings;

static strings make_strings(int64_t count, int64_t n)
{
    strings s = {count, n, malloc(sizeof(int) * (size_t)(count * n)), malloc(sizeof(int) * (size_t)(count * n))};
    if (!s.cell || !s.next) stop("no memory for the strings");
    return s;
}

static void free_strings(strings *s)
{
    free(s->cell);
    free(s->next);
}

/* After `times` steps on a ring, for random strings. */
static strings random_strings(int64_t rule, int times, int64_t count, int64_t n, uint64_t *state)
{
    strings s = make_strings(count, n);
    int    *was = malloc(sizeof *was * (size_t)n);
    if (!was) stop("no memory for the strings");
    for (int64_t i = 0; i < count * n; i++) s.cell[i] = coin(state);
    memcpy(s.next, s.cell, sizeof(int) * (size_t)(count * n));
    for (int64_t i = 0; i < count; i++)
        for (int t = 0; t < times; t++) {
            memcpy(was, s.next + i * n, sizeof *was * (size_t)n);
            next_cells(rule, was, n, true, s.next + i * n);
        }
    free(was);
    return s;
}

/* Cells as one-hot rows, [rows,n,2]; of strings ids[0..rows), or of all. */
static tn_tensor *one_hot(tn_ctx *ctx, const int *cell, int64_t rows, int64_t n, const int64_t *ids)
{
    const int64_t shape[3] = {rows, n, 2};
    float        *x = malloc(sizeof *x * (size_t)(rows * n * 2));
    if (!x) stop("no memory for the cells");
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) {
            const int c = cell[(ids ? ids[i] : i) * n + j];
            x[2 * (i * n + j)] = (float)(1 - c);
            x[2 * (i * n + j) + 1] = (float)c;
        }
    tn_tensor *t = tn_tensor_from(ctx, 3, shape, TN_F32, x);
    free(x);
    return t;
}

/* ---- 1. by construction -------------------------------------------------------------------------------------------- */

/* How many of the 256 rules are right in every cell of all strings (n < 10) or of 64 random ones. *deviation: the largest
   difference of an output from +1 or -1, which is due to rounding. */
static int exact_rules(tn_ctx *ctx, tn_boundary boundary, const int64_t *lengths, int count, double *deviation)
{
    static int      rules[RULES];
    static bool     wrong[RULES];
    const bool      ring = boundary == TN_BOUNDARY_CLOSED;
    tn_params      *params = tn_params_create(ctx);
    tn_tn_attention layer;
    uint64_t        state = 1;
    int             right = 0;
    for (int o = 0; o < RULES; o++) {
        rules[o] = o;
        wrong[o] = false;
    }
    tn_tn_attention_from_rules(params, "automata", rules, RULES, boundary, &layer);
    for (int k = 0; k < count; k++) {
        const int64_t n = lengths[k], all = n < CELLS ? (int64_t)1 << n : 64;
        strings       s = make_strings(all, n);
        float        *y = malloc(sizeof *y * (size_t)(all * n * RULES));
        if (!y) stop("no memory for the outputs");
        for (int64_t i = 0; i < all * n; i++) s.cell[i] = n < CELLS ? (int)(i / n >> i % n & 1) : coin(&state);
        tn_ctx_reset(ctx);
        tn_read(tn_tn_attention_forward(ctx, &layer, one_hot(ctx, s.cell, all, n, NULL)), TN_F32, y, all * n * RULES);
        check(ctx);
        for (int o = 0; o < RULES; o++)
            for (int64_t i = 0; i < all; i++) {
                next_cells(o, s.cell + i * n, n, ring, s.next);
                for (int64_t j = 0; j < n; j++) {
                    const double value = y[(i * n + j) * RULES + o];
                    wrong[o] = wrong[o] || (value > 0) != s.next[j];
                    keep_largest(deviation, fabs(fabs(value) - 1));
                }
            }
        free(y);
        free_strings(&s);
    }
    for (int o = 0; o < RULES; o++) right += !wrong[o];
    tn_params_destroy(params);
    return right;
}

/* ---- 2. by training ------------------------------------------------------------------------------------------------ */

typedef struct task {               /* strings of `shortest` to CELLS cells, `count` of each length */
    int      times;                 /* steps of the rule at once */
    int64_t  shortest, count, steps;
    strings  of[CELLS + 1];
} task;

static task make_task(const options *o, int times, int64_t shortest, int64_t count, int64_t steps, int64_t seed)
{
    uint64_t state = (uint64_t)seed * 1000003;
    task     t = {0};
    t.times = times;
    t.shortest = shortest;
    t.count = count;
    t.steps = steps;
    for (int64_t n = shortest; n <= CELLS; n++) t.of[n] = random_strings(o->rule, times, count, n, &state);
    return t;
}

static void free_task(task *t)
{
    for (int64_t n = t->shortest; n <= CELLS; n++) free_strings(&t->of[n]);
}

/* The share of cells for which the layer says the wrong state. */
static double error_on(tn_ctx *ctx, const tn_tn_attention *layer, const strings *s)
{
    const int64_t cells = s->count * s->n;
    float        *y = malloc(sizeof *y * (size_t)cells);
    int64_t       wrong = 0;
    if (!y) stop("no memory for the outputs");
    tn_ctx_reset(ctx);
    tn_read(tn_tn_attention_forward(ctx, layer, one_hot(ctx, s->cell, s->count, s->n, NULL)), TN_F32, y, cells);
    check(ctx);
    for (int64_t i = 0; i < cells; i++) wrong += !((y[i] > 0) == (s->next[i] == 1) && is_number(y[i]));
    free(y);
    return (double)wrong / (double)cells;
}

static double error_of_task(tn_ctx *ctx, const tn_tn_attention *layer, const task *t)
{
    double wrong = 0, cells = 0;
    for (int64_t n = t->shortest; n <= CELLS; n++) {
        wrong += error_on(ctx, layer, &t->of[n]) * (double)(t->count * n);
        cells += (double)(t->count * n);
    }
    return wrong / cells;
}

typedef struct curve {              /* what the layer is, every few steps */
    int64_t count;
    double  step[MOST_READINGS], trained[MOST_READINGS], unseen[MOST_READINGS], distance[MOST_READINGS];
    int     rule[MOST_READINGS];
} curve;

static void read_into(tn_ctx *ctx, const tn_tn_attention *layer, const task *t, const strings *unseen, int64_t step,
                      curve *c)
{
    tn_rule_reading r;
    if (c->count == MOST_READINGS) return;
    if (tn_tn_attention_rule(ctx, layer, READ, &r) != TN_OK) check(ctx);
    c->step[c->count] = (double)step;
    c->trained[c->count] = error_of_task(ctx, layer, t);
    c->unseen[c->count] = error_on(ctx, layer, unseen);
    c->distance[c->count] = r.distance;
    c->rule[c->count++] = r.rule;
}

/* Mean squares against +-1. Each step has BATCH strings of one length; W(j) has norm sqrt(2), so that +-1 can be reached. */
static void train(tn_ctx *ctx, const options *o, const task *t, int64_t seed, tn_tn_attention *layer, const strings *unseen,
                  curve *c)
{
    tn_params *params = tn_params_create(ctx);
    uint64_t   state = (uint64_t)seed;
    int64_t    step, ids[BATCH];
    tn_tn_attention_init(params, "automata", &(tn_tn_attention_desc){ .in = 2, .bond = o->bond, .out = 1,
        .unit_inputs = true, .unit_weights = true }, layer);
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){ .lr = o->lr, .weight_decay = o->weight_decay,
        .schedule = { .kind = TN_SCHEDULE_COSINE, .total = t->steps } });
    check(ctx);
    for (step = 0; step < t->steps; step++) {
        float goal[BATCH * CELLS];
        if (c && step % o->every == 0) read_into(ctx, layer, t, unseen, step, c);
        int64_t        n = t->shortest + rng(&state, CELLS + 1 - t->shortest);
        const strings *s = &t->of[n];
        for (int64_t i = 0; i < BATCH; i++) {
            ids[i] = rng(&state, s->count);
            for (int64_t j = 0; j < n; j++) goal[i * n + j] = s->next[ids[i] * n + j] ? 1 : -1;
        }
        int64_t shape[3] = {BATCH, n, 1};
        tn_ctx_reset(ctx);
        tn_record(ctx);
        tn_tensor *y = tn_tn_attention_forward(ctx, layer, one_hot(ctx, s->cell, BATCH, n, ids));
        tn_backward(ctx, tn_mse(ctx, y, tn_tensor_from(ctx, 3, shape, TN_F32, goal)));
        tn_optim_step(optim);
        check(ctx);
    }
    if (c) read_into(ctx, layer, t, unseen, step, c);
    tn_optim_destroy(optim);
}

static tn_ctx *context_of(const options *o, int64_t seed)
{
    char    why[TN_WHY];
    tn_ctx *ctx;
    if (tn_ctx_create(&(tn_desc){ .seed = (uint64_t)seed, .threads = (int)o->threads }, &ctx, why) != TN_OK) stop(why);
    return ctx;
}

/* ---- 3. grokking ---------------------------------------------------------------------------------------------------- */

/* The first reading from which the error is zero to the end; -1 if it is not. */
static int64_t zero_from(const double *error, int64_t count)
{
    int64_t i = count;
    while (i > 0 && error[i - 1] == 0) i--;
    return i < count ? i : -1;
}

/* Of error = a (t_c - t)^nu, where t_c is the step from which unseen strings are right: nu by least squares of logarithms,
   over the readings at which the trained strings are right and unseen ones are not. NaN if there are fewer than five. */
static double exponent_of(const curve *c, int64_t first, int64_t last)
{
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (int64_t i = first; i < last; i++)
        if (c->unseen[i] > 0) {
            const double a = log(c->step[last] - c->step[i]), b = log(c->unseen[i]);
            n++; x += a; y += b; xx += a * a; xy += a * b;
        }
    return n < 5 ? (double)NAN : (n * xy - x * y) / (n * xx - x * x);
}

static void draw_curve(tn_ctx *ctx, const curve *c, const char *folder)
{
    static double trained[MOST_READINGS], unseen[MOST_READINGS];
    for (int64_t i = 0; i < c->count; i++) {                /* a logarithmic axis has no zero: lines end there */
        trained[i] = c->trained[i] > 0 ? c->trained[i] : (double)NAN;
        unseen[i] = c->unseen[i] > 0 ? c->unseen[i] : (double)NAN;
    }
    save_image(ctx, tn_image_plot(ctx, (tn_image_series[]){
        { .name = "wrong cells, trained strings", .x = c->step, .y = trained, .count = c->count },
        { .name = "wrong cells, unseen strings", .x = c->step, .y = unseen, .count = c->count },
        { .name = "distance to the exact layer", .x = c->step, .y = c->distance, .count = c->count } }, 3,
        &(tn_image_plot_desc){ .title = "From memorised strings to the rule", .x_title = "training step", .log_y = true,
        .caption = "The seed with the longest delay. Where no cell is wrong, a line has a gap.",
        .y_title = "share of cells; distance", .scale = 2 }), folder, "grokking");
}

/* ---- 5. pictures ------------------------------------------------------------------------------------------------------ */

/* The automaton that was learned, from one cell, on its own cells: returns how many of them differ from the true ones. */
static int64_t draw_space_time(tn_ctx *ctx, const tn_tn_attention *layer, const options *o)
{
    static double tile[2][TIME * WIDTH];
    static float  y[WIDTH];
    char          name[32], title[64];
    const char   *captions[2] = {"learned from strings of at most 10 cells, fed with its own cells", name};
    int           cell[2][WIDTH] = {{0}}, next[WIDTH];
    int64_t       different = 0;
    snprintf(name, sizeof name, "rule %lld", (long long)o->rule);
    snprintf(title, sizeof title, "Rule %lld from a single cell: each row is one step", (long long)o->rule);
    cell[0][TIME] = cell[1][TIME] = 1;
    for (int t = 0; t < TIME; t++) {
        for (int j = 0; j < WIDTH; j++) {
            tile[0][t * WIDTH + j] = cell[0][j];
            tile[1][t * WIDTH + j] = cell[1][j];
            different += cell[0][j] != cell[1][j];
        }
        tn_ctx_reset(ctx);
        tn_read(tn_tn_attention_forward(ctx, layer, one_hot(ctx, cell[0], 1, WIDTH, NULL)), TN_F32, y, WIDTH);
        check(ctx);
        for (int j = 0; j < WIDTH; j++) cell[0][j] = y[j] > 0;
        next_cells(o->rule, cell[1], WIDTH, true, next);
        memcpy(cell[1], next, sizeof next);
    }
    save_image(ctx, tn_image_tiles(ctx, tile[0], 2, TIME, WIDTH, &(tn_image_tiles_desc){ .rows = 1, .columns = 2,
        .captions = captions, .colours = TN_IMAGE_COLOURS_SEQUENTIAL, .cell = 2, .no_bar = true,
        .title = title }), o->out, "space_time");
    return different;
}

int main(int argc, char **argv)
{
    static const int64_t lengths[4] = {3, 4, 9, 33};
    static curve         curves, longest_delay;
    options    o = {"out/automata", 30, 10, 800, 10, 20, 4, 4, 1000, 1, 1, 0.01, 0.5};
    const flag flags[] = {
        {"--rule", FLAG_COUNT, &o.rule, 0, RULES - 1, NULL},
        {"--seeds", FLAG_COUNT, &o.seeds, 1, 1000, NULL},
        {"--steps", FLAG_COUNT, &o.steps, 1, 1e5, NULL},
        {"--bond", FLAG_COUNT, &o.bond, 1, 256, NULL},
        {"--strings", FLAG_COUNT, &o.strings, 1, 1e4, NULL},
        {"--few", FLAG_COUNT, &o.few, 1, 1e4, NULL},
        {"--every", FLAG_COUNT, &o.every, 1, 1e4, NULL},
        {"--length", FLAG_COUNT, &o.length, 3, 1e5, NULL},
        {"--lr", FLAG_REAL, &o.lr, 0, 10, NULL},
        {"--weight-decay", FLAG_REAL, &o.weight_decay, 0, 10, NULL},
        SEED_FLAG(&o), THREADS_FLAG(&o), OUT_FLAG(&o), {0}
    };
    const double    start = now();
    tn_tn_attention layer;
    int64_t         solved = 0, read = 0, solved_twice = 0, grokked = 0, best = -1;
    double          delay = 0, exponents = 0, sum = 0, longest = 0, read_before = 0, deviation = 0;
    read_flags(argc, argv, flags);
    make_folder(o.out);

    printf("1. By construction, bond dimension 4\n\n");
    tn_ctx *ctx = context_of(&o, o.seed);
    int     closed = exact_rules(ctx, TN_BOUNDARY_CLOSED, lengths, 4, &deviation);
    int     exact = exact_rules(ctx, TN_BOUNDARY_VECTORS, lengths, 4, &deviation);
    tn_ctx_destroy(ctx);
    printf("   right for all strings of 3, 4 and 9 cells and 64 of 33: %d of 256 rules on a ring, %d between zeros;\n"
           "   outputs are +1 and -1 up to %.1g\n", closed, exact, deviation);
    if (closed < exact) exact = closed;
    if (!(deviation < 1e-5)) exact = 0;

    printf("\n2. Rule %lld by training: %lld strings of each length from 3 to 10, bond dimension %lld, tested at length"
           " %lld\n\n"
           "   seed   wrong cells    rule read   margin   distance   seconds\n", (long long)o.rule, (long long)o.strings,
           (long long)o.bond, (long long)o.length);
    for (int64_t k = 0; k < o.seeds; k++) {
        const double    begin = now();
        task            t = make_task(&o, 1, 3, o.strings, o.steps, o.seed + k);
        tn_rule_reading r;
        ctx = context_of(&o, o.seed + k);
        train(ctx, &o, &t, o.seed + k, &layer, NULL, NULL);
        double seconds = now() - begin;
        keep_largest(&longest, seconds);
        uint64_t state = 99 + (uint64_t)k;
        strings  test = random_strings(o.rule, 1, 20, o.length, &state);
        double   error = error_on(ctx, &layer, &test);
        if (tn_tn_attention_rule(ctx, &layer, READ, &r) != TN_OK) check(ctx);
        printf("   %4lld %13.0f %12d %8.3f %10.4f %9.2f\n", (long long)(o.seed + k), error * 20 * (double)o.length, r.rule,
               r.margin, r.distance, seconds);
        fflush(stdout);
        solved += error == 0;
        read += r.rule == o.rule && r.agree == 1;
        free_strings(&test);
        free_task(&t);
        if (k + 1 < o.seeds) tn_ctx_destroy(ctx);
    }
    int64_t different = draw_space_time(ctx, &layer, &o);
    tn_ctx_destroy(ctx);

    printf("\n3. From %lld strings of each length, read every %lld steps\n\n"
           "   seed   trained strings right from   rule read from   unseen strings right from   exponent\n",
           (long long)o.few, (long long)o.every);
    for (int64_t k = 0; k < o.seeds; k++) {
        task    t = make_task(&o, 1, 3, o.few, 3 * o.steps / 2, o.seed + k);
        int64_t rule;
        ctx = context_of(&o, o.seed + k);
        uint64_t state = 7;
        strings  unseen = random_strings(o.rule, 1, 25, 40, &state);
        curves.count = 0;
        train(ctx, &o, &t, o.seed + k, &layer, &unseen, &curves);
        int64_t first = zero_from(curves.trained, curves.count);
        int64_t last = zero_from(curves.unseen, curves.count);
        for (rule = curves.count; rule > 0 && curves.rule[rule - 1] == o.rule; rule--) {}
        double nu = first >= 0 && last >= 0 ? exponent_of(&curves, first, last) : (double)NAN;
        printf("   %4lld", (long long)(o.seed + k));
        if (first >= 0) printf(" %28.0f", curves.step[first]); else printf(" %28s", "never");
        if (rule < curves.count) printf(" %16.0f", curves.step[rule]); else printf(" %16s", "never");
        if (last >= 0) printf(" %27.0f", curves.step[last]); else printf(" %27s", "never");
        if (is_number(nu)) printf(" %10.2f\n", nu); else printf(" %10s\n", "-");
        fflush(stdout);
        if (first >= 0 && last >= 0) {
            grokked++;
            delay += curves.step[last] - curves.step[first];
            read_before += rule < last;
            if (is_number(nu)) {
                exponents++;
                sum += nu;
            }
            if (last - first > best) {
                best = last - first;
                longest_delay = curves;
            }
        }
        free_strings(&unseen);
        free_task(&t);
        if (k + 1 < o.seeds) tn_ctx_destroy(ctx);
    }
    if (best >= 0) draw_curve(ctx, &longest_delay, o.out);
    tn_ctx_destroy(ctx);

    printf("\n4. Two steps of the rule at once, one layer of bond dimension %lld\n\n   seed   wrong cells of %lld\n",
           (long long)o.bond, (long long)(20 * o.length));
    for (int64_t k = 0; k < o.seeds; k++) {
        task t = make_task(&o, 2, 5, 2 * o.strings, 5 * o.steps / 2, o.seed + k);
        ctx = context_of(&o, o.seed + k);
        train(ctx, &o, &t, o.seed + k, &layer, NULL, NULL);
        uint64_t state = 99 + (uint64_t)k;
        strings  test = random_strings(o.rule, 2, 20, o.length, &state);
        double error = error_on(ctx, &layer, &test);
        printf("   %4lld %13.0f\n", (long long)(o.seed + k), error * 20 * (double)o.length);
        fflush(stdout);
        solved_twice += error == 0;
        free_strings(&test);
        free_task(&t);
        tn_ctx_destroy(ctx);
    }

    printf("\nrules_exact: %d\n", exact);
    printf("seeds_solved: %lld\n", (long long)solved);
    printf("rules_read: %lld\n", (long long)read);
    printf("space_time_wrong_cells: %lld\n", (long long)different);
    printf("grokked: %lld, %.0f of them with the rule read before\n", (long long)grokked, read_before);
    printf("grokking_delay: %.1f\n", grokked ? delay / (double)grokked : (double)NAN);
    printf("grokking_exponent: %.2f\n", exponents > 0 ? sum / exponents : (double)NAN);
    printf("two_steps_solved: %lld\n", (long long)solved_twice);
    printf("seconds_of_one_training: %.2f\n", longest);
    printf("seconds: %.1f\n", now() - start);
    return 0;
}
