/* mps.c - matrix product states, for mps_peer.py, which compares their numbers and times

   cc -O2 -I. tools/bench/mps/mps.c -o build/mps -lm

   build/mps FOLDER reads one command per line from the standard input and answers each with a line of numbers. A train is
   called by a name; its cores are the files NAME.0.npy, NAME.1.npy, .. of FOLDER, F64 [r,n,s].

   read NAME COUNT           reads a train                             -> COUNT
   write NAME                writes its cores                          -> their count
   norm NAME                 ln of its norm                            -> ln
   canonical NAME SITE TO    the canonical form of a site, of norm 1   -> ln of the norm
   spectra NAME              writes spectra.npy [count-1,r]
   entropies NAME            writes entropies.npy [count-1]
   inner NAME OTHER          the inner product                         -> ln of its magnitude, sign
   round NAME RELATIVE RANK TO     a truncation                        -> the discarded weight
   born NAME EXTENT BOND STEPS     trains a Born machine on ids.npy, I32 [texts,sites]          -> its loss
   trained NAME PLACE OUT STEPS    trains a classifier on x.npy [count,sites] and y.npy, I32    -> its loss
   classify MAP PLACE BATCH STEPS RATE    trains a classifier from cores.npy [sites,D,2,D] and label.npy [D,out,D] on batches
                             of x.npy and y.npy in order, and writes losses.npy   -> processor seconds of a step, the least
   attention OPTIONS BATCH STEPS RATE    trains a layer of TN attention from a.npy, b.npy and, with vectors, left.npy and
                             right.npy on batches of x.npy [count,n,d] and goal.npy [count,n,out] in order, by mean squares,
                             and writes losses.npy; OPTIONS are words of attend() joined by commas     -> the last loss
   time RUNS COMMAND..       runs one of these, without files          -> processor seconds, the mean */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { MOST = 8, WORDS = 8 };

static struct {
    tn_ctx     *ctx;
    const char *folder;
    bool        timed;              /* results are not written */
    double      answer[2];
    int         answers;
} the;

static struct { char name[16]; tn_tt *tt; } trains[MOST];

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "mps: %s: %s\n", what, why);
    exit(1);
}

static void check(const char *what)
{
    if (tn_ctx_status(the.ctx) != TN_OK) stop(what, tn_ctx_error(the.ctx));
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void answer(double x) { the.answer[the.answers++] = x; }

/* ---- files and names ------------------------------------------------------------------------ */

static const char *path_of(const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s.npy", the.folder, name);
    return path;
}

static tn_tensor *load(const char *name)
{
    tn_tensor *x = tn_npy_load(the.ctx, path_of(name));
    check(name);
    return x;
}

static void save(const char *name, const tn_tensor *x)
{
    tn_npy_save(x, path_of(name));
    check(name);
}

static tn_tt *train(const char *name)
{
    for (int i = 0; i < MOST; i++)
        if (trains[i].tt && strcmp(trains[i].name, name) == 0) return trains[i].tt;
    stop(name, "there is no such train");
    return NULL;
}

/* Gives a train a name, and destroys the one that had it. */
static void keep(const char *name, tn_tt *tt)
{
    int i;
    check(name);
    for (i = 0; i < MOST && trains[i].tt && strcmp(trains[i].name, name) != 0; i++) {}
    if (i == MOST) stop(name, "too many trains");
    tn_tt_destroy(trains[i].tt);
    snprintf(trains[i].name, sizeof trains[i].name, "%s", name);
    trains[i].tt = tt;
}

/* ---- trains ------------------------------------------------------------------------------------ */

static void read_train(char **word)
{
    const int64_t count = atoi(word[2]);
    tn_tensor   **core = (tn_tensor **)malloc((size_t)count * sizeof *core);
    char          name[32];
    if (!core || count < 1) stop(word[1], "out of memory, or no cores");
    for (int64_t k = 0; k < count; k++) {
        snprintf(name, sizeof name, "%s.%d", word[1], (int)k);
        core[k] = load(name);
    }
    keep(word[1], tn_tt_create(the.ctx, count, core));
    for (int64_t k = 0; k < count; k++) tn_tensor_destroy(core[k]);
    free(core);
    answer((double)count);
}

static void write_train(char **word)
{
    const tn_tt *tt = train(word[1]);
    char         name[32];
    for (int64_t k = 0; k < tt->count; k++) {
        snprintf(name, sizeof name, "%s.%d", word[1], (int)k);
        save(name, tt->core[k]);
    }
    answer((double)tt->count);
}

static void norm(char **word)
{
    double log_norm = 0;
    tn_tt_log_norm(train(word[1]), &log_norm);
    answer(log_norm);
}

static void canonical(char **word)
{
    double log_norm = 0;
    keep(word[3], tn_tt_canonical(train(word[1]), atoi(word[2]), &log_norm));
    answer(log_norm);
}

static void of_cuts(const char *name, tn_tensor *x)
{
    check(name);
    if (!the.timed) save(name, x);
    tn_tensor_destroy(x);
}
static void spectra(char **word)   { of_cuts("spectra", tn_tt_singular_values(train(word[1]))); }
static void entropies(char **word) { of_cuts("entropies", tn_tt_entropies(train(word[1]))); }

static void inner(char **word)
{
    double log_inner = 0, sign = 0;
    tn_tt_log_inner(train(word[1]), train(word[2]), &log_inner, &sign);
    answer(log_inner);
    answer(sign);
}

static void truncate_train(char **word)
{
    tn_tt_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.eps = DBL_MIN;                                   /* nothing by the error: 0 would mean 1e-12 */
    desc.relative = atof(word[2]);
    desc.max_bond = atoi(word[3]);
    tn_tt *tt = tn_tt_round(train(word[1]), &desc);
    check("round");
    answer(tt->discarded);
    keep(word[4], tt);
}

/* ---- training ------------------------------------------------------------------------------------ */

typedef struct job { tn_params *params; tn_optim *optim; tn_mps layer; } job;

static job begin(const tn_mps_desc *desc, double rate)
{
    tn_optim_desc o;
    job           j;
    memset(&o, 0, sizeof o);
    o.lr = rate;
    j.params = tn_params_create(the.ctx);
    tn_mps_init(j.params, "mps", desc, &j.layer);
    j.optim = tn_optim_create(j.params, &o);
    check("a layer");
    return j;
}

static double step(const job *j, tn_tensor *loss)
{
    double value = 0;
    tn_backward(the.ctx, loss);
    tn_optim_step(j->optim);
    check("a step");
    tn_read(loss, TN_F64, &value, 1);
    return value;
}

/* Gives the layer's train a name, and answers with the last loss. */
static void end(job *j, const char *name, double loss)
{
    if (name) keep(name, tn_tt_from_mps(the.ctx, &j->layer));
    tn_optim_destroy(j->optim);
    tn_params_destroy(j->params);
    answer(loss);
}

static void born(char **word)
{
    tn_tensor  *ids = load("ids");
    tn_mps_desc d;
    double      loss = 0;
    int         steps = atoi(word[4]);
    memset(&d, 0, sizeof d);
    d.sites = ids->shape[1];
    d.dim = atoi(word[2]);
    d.bond = atoi(word[3]);
    d.map = TN_LOCAL_IDS;
    d.random = true;
    job j = begin(&d, 0.02);
    for (int k = 0; k < steps; k++) {
        tn_ctx_reset(the.ctx);
        tn_record(the.ctx);
        loss = step(&j, tn_scale(the.ctx, tn_mean(the.ctx, tn_mps_log_probability(the.ctx, &j.layer, ids)), -1));
    }
    end(&j, word[1], loss);
    tn_tensor_destroy(ids);
}

static void trained(char **word)
{
    tn_tensor  *x = load("x"), *y = load("y");
    tn_mps_desc d;
    double      loss = 0;
    int         steps = atoi(word[4]);
    memset(&d, 0, sizeof d);
    d.sites = x->shape[1];
    d.label = atoi(word[2]);
    d.out = atoi(word[3]);
    d.bond = 10;
    job j = begin(&d, 0.01);
    for (int k = 0; k < steps; k++) {
        tn_ctx_reset(the.ctx);
        tn_record(the.ctx);
        loss = step(&j, tn_cross_entropy(the.ctx, tn_mps_forward(the.ctx, &j.layer, x, NULL), y));
    }
    end(&j, word[1], loss);
    tn_tensor_destroy(x);
    tn_tensor_destroy(y);
}

/* Writes the numbers of a file into a parameter. */
static void start_from(tn_tensor *parameter, const char *name)
{
    tn_tensor    *x = load(name);
    const int64_t count = tn_tensor_count(x);
    double       *p = (double *)malloc((size_t)count * sizeof *p);
    if (!p) stop(name, "out of memory");
    tn_read(x, TN_F64, p, count);
    tn_write(parameter, TN_F64, p, count);
    check(name);
    free(p);
    tn_tensor_destroy(x);
}

static void classify(char **word)
{
    tn_tensor    *x = load("x"), *y = load("y"), *cores = load("cores"), *label = load("label");
    const int64_t batch = atoi(word[3]), steps = atoi(word[4]);
    double       *loss = (double *)malloc((size_t)steps * sizeof *loss), least = HUGE_VAL;
    tn_mps_desc   d;
    if (!loss) stop("classify", "out of memory");
    memset(&d, 0, sizeof d);
    d.sites = x->shape[1];
    d.label = atoi(word[2]);
    d.bond = cores->shape[1];
    d.out = label->shape[1];
    d.map = strcmp(word[1], "cosine") == 0 ? TN_LOCAL_COSINE : TN_LOCAL_LINEAR;
    job j = begin(&d, atof(word[5]));
    start_from(j.layer.cores, "cores");
    start_from(j.layer.label, "label");
    for (int64_t k = 0; k < steps; k++) {
        const double began = seconds();
        tn_ctx_reset(the.ctx);
        tn_record(the.ctx);
        tn_tensor *logits = tn_mps_forward(the.ctx, &j.layer, tn_slice(x, 0, k * batch, (k + 1) * batch), NULL);
        loss[k] = step(&j, tn_cross_entropy(the.ctx, logits, tn_slice(y, 0, k * batch, (k + 1) * batch)));
        if (seconds() - began < least) least = seconds() - began;
    }
    tn_tensor *losses = tn_tensor_from(the.ctx, 1, &steps, TN_F64, loss);
    check("losses");
    save("losses", losses);
    end(&j, NULL, least);
    tn_tensor_destroy(x);
    tn_tensor_destroy(y);
    tn_tensor_destroy(cores);
    tn_tensor_destroy(label);
    free(loss);
}

/* The layer of these options, between a closed boundary unless they name another one */
static tn_tn_attention_desc attend(const char *options, const tn_tensor *a, const tn_tensor *b)
{
    tn_tn_attention_desc d;
    memset(&d, 0, sizeof d);
    d.bond = b->shape[0];
    d.out = b->shape[2];
    d.in = b->shape[3];
    d.square = a->rank == 4;
    if (strstr(options, "vectors")) d.boundary = TN_BOUNDARY_VECTORS;
    if (strstr(options, "first")) d.boundary = TN_BOUNDARY_FIRST;
    d.causal = strstr(options, "causal") != NULL;
    d.unit_inputs = d.unit_weights = strstr(options, "unit") != NULL;
    if (strstr(options, "sigmoid")) d.act = TN_ACT_SIGMOID;
    if (strstr(options, "leaky")) {
        d.act = TN_ACT_RELU;
        d.leak = 0.1;
    }
    d.bias = strstr(options, "bias") != NULL;
    d.residual = strstr(options, "residual") != NULL;
    if (strstr(options, "norm")) d.norm = TN_ROW_NORM_L2;
    return d;
}

static void attention(char **word)
{
    tn_tensor           *x = load("x"), *goal = load("goal"), *a = load("a"), *b = load("b");
    const int64_t        batch = atoi(word[2]), steps = atoi(word[3]);
    double              *loss = (double *)malloc((size_t)steps * sizeof *loss);
    tn_tn_attention_desc d = attend(word[1], a, b);
    tn_params           *params = tn_params_create(the.ctx);
    tn_tn_attention      layer;
    tn_optim_desc        o;
    if (!loss) stop("attention", "out of memory");
    memset(&o, 0, sizeof o);
    o.lr = atof(word[4]);
    tn_tn_attention_init(params, "attention", &d, &layer);
    tn_optim *optim = tn_optim_create(params, &o);
    check("a layer");
    start_from(layer.a, "a");
    start_from(layer.b, "b");
    if (layer.left) start_from(layer.left, "left");
    if (layer.right) start_from(layer.right, "right");
    for (int64_t k = 0; k < steps; k++) {
        tn_ctx_reset(the.ctx);
        tn_record(the.ctx);
        tn_tensor *y = tn_tn_attention_forward(the.ctx, &layer, tn_slice(x, 0, k * batch, (k + 1) * batch));
        tn_tensor *mean = tn_mse(the.ctx, y, tn_slice(goal, 0, k * batch, (k + 1) * batch));
        tn_backward(the.ctx, mean);
        tn_optim_step(optim);
        check("a step");
        tn_read(mean, TN_F64, loss + k, 1);
    }
    tn_tensor *losses = tn_tensor_from(the.ctx, 1, &steps, TN_F64, loss);
    check("losses");
    save("losses", losses);
    answer(loss[steps - 1]);
    tn_optim_destroy(optim);
    tn_params_destroy(params);
    tn_tensor_destroy(x);
    tn_tensor_destroy(goal);
    tn_tensor_destroy(a);
    tn_tensor_destroy(b);
    free(loss);
}

/* ---- the program ----------------------------------------------------------------------------------- */

static void timed(char **word);

static const struct { const char *name; int words; void (*run)(char **word); } commands[] = {
    {"read", 3, read_train}, {"write", 2, write_train}, {"norm", 2, norm}, {"canonical", 4, canonical},
    {"spectra", 2, spectra}, {"entropies", 2, entropies}, {"inner", 3, inner}, {"round", 5, truncate_train},
    {"born", 5, born}, {"trained", 5, trained}, {"classify", 6, classify},
    {"attention", 5, attention}, {"time", 4, timed}
};

static void run(int words, char **word)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (words >= commands[i].words && strcmp(word[0], commands[i].name) == 0) {
            the.answers = 0;
            commands[i].run(word);
            check(word[0]);
            return;
        }
    stop(words ? word[0] : "an empty line", "expected a command and its words");
}

static void timed(char **word)
{
    const int runs = atoi(word[1]);
    int       words = 0;
    while (words < WORDS && word[2 + words]) words++;
    the.timed = true;
    run(words, word + 2);
    double began = seconds();
    for (int k = 0; k < runs; k++) run(words, word + 2);
    the.answers = 0;
    answer((seconds() - began) / runs);
    the.timed = false;
}

int main(int argc, char **argv)
{
    char    line[256], *word[WORDS + 3];
    tn_desc desc;
    memset(&desc, 0, sizeof desc);
    if (argc != 2) {
        fprintf(stderr, "usage: mps FOLDER\n");
        return 2;
    }
    desc.threads = 1;
    desc.dtype = TN_F64;
    desc.seed = 1;
    if (tn_ctx_create(&desc, &the.ctx, NULL) != TN_OK) return 1;
    the.folder = argv[1];
    while (fgets(line, sizeof line, stdin)) {
        int words = 0;
        memset(word, 0, sizeof word);
        for (char *at = strtok(line, " \n"); at && words < WORDS + 2; at = strtok(NULL, " \n")) word[words++] = at;
        run(words, word);
        for (int i = 0; i < the.answers; i++) printf("%s%.17g", i ? " " : "", the.answer[i]);
        printf("\n");
        fflush(stdout);
    }
    tn_ctx_destroy(the.ctx);
    return 0;
}
