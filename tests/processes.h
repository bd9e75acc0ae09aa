/* processes.h: processes that train together, for tests of carriers. Each test forks them; what a process finds wrong it prints,
   and says by its exit status. Numbers come back in memory that all share. STEPS is the length of a training. */

#ifndef TN_PROCESSES_H
#define TN_PROCESSES_H

#include "model.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 5, BATCH = 12 };

typedef struct shared {
    double   loss[MOST][STEPS], params[MOST][4096];
    uint64_t sent[MOST];
    char     said[MOST][512];
} shared;

/* One process of a test. */
typedef struct job {
    int         rank, size, kind;
    bool        alone, sealed;          /* without a thread beside; in memory that only kernels can touch  */
    bool        bf16, rounds;           /* activations in BF16; products of F32 that round to it           */
    int64_t     dies_after;             /* ns after the processes have met; 0: does not */
    const char *folder;
    shared     *all;
    tn_comm    *comm;
    tn_ctx     *ctx;
} job;

static shared *share(void)
{
    void *p = mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!CHECK(p != MAP_FAILED)) exit(1);
    return (shared *)p;
}

/* Runs fn in `size` processes and waits for their ends. Bit r of the result: rank r did not return true. */
static unsigned processes(int size, int kind, shared *all, bool (*fn)(job *j))
{
    char     folder[] = "/tmp/tn-test-XXXXXX";
    pid_t    pid[MOST];
    unsigned failed = 0;
    int      status;
    if (!CHECK(mkdtemp(folder) != NULL)) return ~0u;
    fflush(stdout);
    for (int r = 0; r < size; r++)
        if ((pid[r] = fork()) == 0) {
            job j = ZERO;
            j.rank = r, j.size = size, j.kind = kind, j.folder = folder, j.all = all;
            alarm(150);                 /* one that hangs is killed, and fails */
            status = fn(&j) ? 0 : 1;
            fflush(stdout);
            _exit(status);
        }
    for (int r = 0; r < size; r++)
        if (waitpid(pid[r], &status, 0) != pid[r] || !WIFEXITED(status) || WEXITSTATUS(status) != 0) failed |= 1u << r;
    rmdir(folder);
    return failed;
}

/* Of the test: what connects the processes, and their backend; NULL: the default. */
static tn_comm          *open_carrier(job *j, char why[TN_WHY]);
static const tn_backend *backend_of(const job *j);

static bool open_job(job *j, tn_dtype dtype)
{
    char    why[TN_WHY] = "";
    tn_desc d = ZERO;
    d.dtype = dtype;
    d.seed = 7;
    d.threads = 1;
    d.activations = j->bf16 ? TN_BF16 : TN_REAL;
    d.gemm_precision = j->rounds ? TN_GEMM_BF16 : TN_GEMM_F32;
    d.backend = backend_of(j);
    d.backend_required = true;
    d.comm = j->comm = open_carrier(j, why);
    if (j->comm && j->alone) j->comm->any_thread = false;
    if (j->dies_after > 0) {
        const struct timespec pause = {0, (long)j->dies_after};
        const pid_t           self = getpid();
        if (fork() == 0) {
            nanosleep(&pause, NULL);
            kill(self, SIGKILL);
            _exit(0);
        }
    }
    if (j->comm && tn_ctx_create(&d, &j->ctx, why) == TN_OK) return true;
    if (j->all) snprintf(j->all->said[j->rank], sizeof j->all->said[0], "%s", why);
    printf("rank %d: %s\n", j->rank, why);
    return false;
}

/* Ends as a program does that has succeeded. */
static bool close_job(job *j, bool good)
{
    tn_ctx_destroy(j->ctx);
    j->comm->close(j->comm, false);
    return good;
}

/* ---- collectives --------------------------------------------------------------------------- */

/* A number of rank r: large and small ones, so that the order of a sum shows in its bits. Whole where dtype is I32, or where the
   order is the carrier's. */
static bool   whole_numbers;
static double number_of(int r, int64_t i, tn_dtype dtype)
{
    uint64_t seed = (uint64_t)(i * MOST + r) + 1;
    double   v = test_random_real(&seed) * (r % 2 ? 1e6 : 1);
    return dtype == TN_I32 || whole_numbers ? floor(v) : dtype == TN_F32 ? (double)(float)v : v;
}

static double sum_of(int size, int64_t i, tn_dtype dtype)
{
    double sum = 0;
    for (int r = 0; r < size; r++) sum += number_of(r, i, dtype);
    return dtype == TN_F32 ? (double)(float)sum : sum;
}

static bool collectives(job *j)
{
    static const int64_t  extents[] = {0, 1, 2, 3, 7, 64, 1000, 200003};
    static const tn_dtype dtypes[] = {TN_F32, TN_F64, TN_I32};
    if (!open_job(j, TN_F64)) return false;
    bool good = tn_comm_rank(j->ctx) == j->rank && tn_comm_size(j->ctx) == j->size;
    for (size_t e = 0; e < sizeof extents / sizeof *extents; e++)
        for (size_t k = 0; k < 3; k++) {
            const int64_t n = extents[e], shape[2] = {j->size, n};
            const tn_dtype dtype = dtypes[k];
            tn_tensor *one = tn_tensor_create(j->ctx, dtype, 1, &n), *rows = tn_tensor_create(j->ctx, dtype, 2, shape);
            double    *v = (double *)malloc(sizeof *v * (size_t)(j->size * n + 1));
            const tn_dtype as = TN_F64;
            const int  root = (int)(e % (size_t)j->size);
            if (n > 1000 && j->sealed) { free(v); continue; }
            for (int64_t i = 0; i < n; i++) v[i] = number_of(j->rank, i, dtype);
            good = good && tn_write(one, as, v, n) == TN_OK && tn_comm_all_reduce(one) == TN_OK
                && tn_read(one, as, v, n) == TN_OK;
            for (int64_t i = 0; i < n && good; i++) good = v[i] == sum_of(j->size, i, dtype);
            for (int64_t i = 0; i < n; i++) v[i] = number_of(j->rank, i, dtype);
            good = good && tn_write(one, as, v, n) == TN_OK && tn_comm_broadcast(one, root) == TN_OK
                && tn_read(one, as, v, n) == TN_OK;
            for (int64_t i = 0; i < n && good; i++) good = v[i] == number_of(root, i, dtype);
            for (int64_t i = 0; i < j->size * n; i++) v[i] = number_of(j->rank, i, dtype);
            good = good && tn_write(rows, as, v, j->size * n) == TN_OK && tn_comm_reduce_scatter(rows) == TN_OK
                && tn_read(rows, as, v, j->size * n) == TN_OK;
            for (int64_t i = j->rank * n; i < (j->rank + 1) * n && good; i++) good = v[i] == sum_of(j->size, i, dtype);
            good = good && tn_comm_all_gather(rows) == TN_OK && tn_read(rows, as, v, j->size * n) == TN_OK;
            for (int64_t i = 0; i < j->size * n && good; i++) good = v[i] == sum_of(j->size, i, dtype);
            if (!good) printf("rank %d of %d: %lld of %s\n", j->rank, j->size, (long long)n, tn_dtype_name(dtype));
            free(v);
            tn_tensor_destroy(one);
            tn_tensor_destroy(rows);
        }
    return close_job(j, good);
}

/* ---- training ------------------------------------------------------------------------------ */

/* Bits of a job's kind. BUCKETS: gradients go in messages of 41 numbers; ALONE: without a thread beside. */
enum { ADAMW, MUON, PARTS, KINDS_OF_TRAINING, SHARED = 8, SAVED = 16, RESUMED = 32, OVERLAP = 64, BUCKETS = 128, ALONE = 256,
       TIED = 512 };

static bool save_params(tn_params *params, double *to)
{
    int64_t at = 0, n;
    for (int64_t i = 0; i < tn_params_count(params); i++, at += n) {
        n = tn_tensor_count(tn_params_at(params, i)->value);
        if (at + n > 4096 || tn_read(tn_params_at(params, i)->value, TN_F64, to + at, n) != TN_OK) return false;
    }
    return true;
}

/* Token t of text b of step s: the same however texts are divided. */
static int32_t token(int step, int b, int t) { return (int32_t)((step * 31 + b * 17 + t * t * 7 + b * t) % 5); }

/* The mean loss of this process's part of a batch, or of a half of it. */
static tn_tensor *part_loss(job *j, const tn_transformer *m, int step, int half, int halves)
{
    enum { T = 7 };
    const int  texts = BATCH / halves / j->size, first = half * (BATCH / halves) + j->rank * texts;
    tn_tensor *x = tn_tensor_2d(j->ctx, TN_I32, texts, T), *y = tn_tensor_2d(j->ctx, TN_I32, texts, T);
    int32_t    ids[BATCH * T], next[BATCH * T];
    for (int b = 0; b < texts; b++)
        for (int t = 0; t < T; t++) {
            ids[b * T + t] = token(step, first + b, t);
            next[b * T + t] = token(step, first + b, t + 1);
        }
    if (tn_write(x, TN_I32, ids, texts * T) != TN_OK || tn_write(y, TN_I32, next, texts * T) != TN_OK) return NULL;
    tn_record(j->ctx);
    return tn_transformer_loss(j->ctx, m, x, y);
}

static bool trains(job *j)
{
    const int kind = j->kind & 7, halves = kind == PARTS ? 2 : 1, begin = j->kind & RESUMED ? STEPS / 2 : 0;
    char      file[64];
    tn_transformer_desc d = tiny();
    tn_optim_desc       od = ZERO;
    tn_transformer      m;
    tn_optim           *optim;
    uint64_t            made = 0;                           /* allocations so far */
    d.dropout = 0.1;
    d.embed_noise = 0.05;
    d.recompute = kind == PARTS;
    d.tied = (j->kind & TIED) != 0;
    od.kind = kind == MUON ? TN_OPTIM_MUON : TN_OPTIM_ADAMW;
    od.share_moments = (j->kind & SHARED) != 0;
    od.bucket = j->kind & BUCKETS ? 41 : 0;
    od.lr = kind == MUON ? 2e-3 : 0;                        /* Muon enlarges what is small in a gradient */
    od.clip_norm = 0.3;
    od.weight_decay = 0.1;
    j->alone = (j->kind & ALONE) != 0;
    if (!open_job(j, TN_F64)) return false;
    tn_params *params = tn_params_create(j->ctx);
    bool good = tn_transformer_init(params, "", &d, &m) == TN_OK && (optim = tn_optim_create(params, &od)) != NULL;
    snprintf(file, sizeof file, "/tmp/tn-test-%d.safetensors", (int)getppid());
    if (good && (j->kind & RESUMED)) good = tn_checkpoint_read(optim, tn_source_path(file)) == TN_OK;
    for (int step = begin; step < STEPS && good; step++) {
        double sum = 0;
        if (step == begin + 2) made = tn_ctx_memory(j->ctx).allocations;
        if (step == STEPS / 2 && (j->kind & SAVED)) {
            good = tn_checkpoint_write(optim, j->rank == 0 ? tn_sink_path(file) : tn_sink_memory(NULL, 0, NULL), NULL, 0)
                == TN_OK;
            if (!good) break;
        }
        for (int half = 0; half < halves && good; half++) {
            tn_ctx_reset(j->ctx);
            tn_tensor *loss = part_loss(j, &m, step, half, halves);
            sum += tn_item(loss) / halves;
            if ((j->kind & OVERLAP) && half + 1 == halves) good = tn_optim_overlap(optim) == TN_OK;
            good = good && tn_backward(j->ctx, halves > 1 ? tn_scale(j->ctx, loss, 0.5) : loss) == TN_OK;
        }
        good = good && tn_optim_step(optim) == TN_OK && tn_comm_sum(j->ctx, &sum, 1) == TN_OK;
        j->all->loss[j->rank][step] = sum / j->size;
    }
    if (good && !(j->kind & SAVED)) good = CHECK_INT(tn_ctx_memory(j->ctx).allocations, made);
    good = good && save_params(params, j->all->params[j->rank]);
    if (!good) snprintf(j->all->said[j->rank], sizeof j->all->said[0], "%s", tn_ctx_error(j->ctx));
    return close_job(j, good);
}

#endif
