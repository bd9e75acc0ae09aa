/* test_comm.c: processes that train together, over the carrier for one machine (examples/comm/socket.c). Each test forks
   them; what a process finds wrong it prints, and says by its exit status. Numbers come back in memory that all share. */
#if defined(__unix__) || defined(__APPLE__)
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE
#define _DARWIN_C_SOURCE
#include "sealed.h"
#include "examples/comm/socket.c"
#include "model.h"
#include "shadow.h"
#include <signal.h>
#include <sys/wait.h>

enum { MOST = 5, STEPS = 50, BATCH = 12 };

typedef struct shared {
    double   loss[MOST][STEPS], params[MOST][4096];
    uint64_t sent[MOST];
    char     said[MOST][512];
} shared;

/* One process of a test. */
typedef struct job {
    int         rank, size, kind;
    bool        alone;                  /* without a thread beside */
    int64_t     dies_after;             /* ns after the processes have met; 0: does not */
    const char *folder;
    tn_gemm_precision precision;
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
    int      r, status;
    if (!CHECK(mkdtemp(folder) != NULL)) return ~0u;
    fflush(stdout);
    for (r = 0; r < size; r++)
        if ((pid[r] = fork()) == 0) {
            job j;
            memset(&j, 0, sizeof j);
            j.rank = r, j.size = size, j.kind = kind, j.folder = folder, j.all = all;
            alarm(150);                 /* one that hangs is killed, and fails */
            status = fn(&j) ? 0 : 1;
            fflush(stdout);
            _exit(status);
        }
    for (r = 0; r < size; r++)
        if (waitpid(pid[r], &status, 0) != pid[r] || !WIFEXITED(status) || WEXITSTATUS(status) != 0) failed |= 1u << r;
    rmdir(folder);
    return failed;
}

static bool open_job(job *j, tn_dtype dtype, const tn_backend *backend)
{
    char    why[TN_WHY] = "";
    tn_desc d;
    memset(&d, 0, sizeof d);
    d.dtype = dtype;
    d.seed = 7;
    d.threads = 1;
    d.backend = backend;
    d.backend_required = true;
    d.gemm_precision = j->precision;
    d.comm = j->comm = comm_socket(j->folder, j->rank, j->size, why);
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

/* A number of rank r: large and small ones, so that the order of a sum shows in its bits. Whole where dtype is I32. */
static double number_of(int r, int64_t i, tn_dtype dtype)
{
    uint64_t seed = (uint64_t)(i * MOST + r) + 1;
    double   v = test_random_real(&seed) * (r % 2 ? 1e6 : 1);
    return dtype == TN_I32 ? floor(v) : dtype == TN_F32 ? (double)(float)v : v;
}

static double sum_of(int size, int64_t i, tn_dtype dtype)
{
    double sum = 0;
    int    r;
    for (r = 0; r < size; r++) sum += number_of(r, i, dtype);
    return dtype == TN_F32 ? (double)(float)sum : sum;
}

static bool collectives(job *j)
{
    static const int64_t   extents[] = {0, 1, 2, 3, 7, 64, 1000, 200003};
    static const tn_dtype  dtypes[] = {TN_F32, TN_F64, TN_I32};
    const tn_backend *const backends[] = {NULL, sealed_reference()};
    size_t e, k;
    bool   good;
    if (!open_job(j, TN_F64, backends[j->kind])) return false;
    good = tn_ctx_rank(j->ctx) == j->rank && tn_ctx_ranks(j->ctx) == j->size;
    for (e = 0; e < sizeof extents / sizeof *extents; e++)
        for (k = 0; k < 3; k++) {
            const int64_t n = extents[e], shape[2] = {j->size, n};
            const tn_dtype dtype = dtypes[k];
            tn_tensor *one = tn_tensor_create(j->ctx, dtype, 1, &n), *rows = tn_tensor_create(j->ctx, dtype, 2, shape);
            double    *v = (double *)malloc(sizeof *v * (size_t)(j->size * n + 1));
            const tn_dtype as = TN_F64;
            int64_t    i;
            const int  root = (int)(e % (size_t)j->size);
            if (n > 1000 && j->kind == 1) { free(v); continue; }
            for (i = 0; i < n; i++) v[i] = number_of(j->rank, i, dtype);
            good = good && tn_write(one, as, v, n) == TN_OK && tn_comm_all_reduce(one) == TN_OK
                && tn_read(one, as, v, n) == TN_OK;
            for (i = 0; i < n && good; i++) good = v[i] == sum_of(j->size, i, dtype);
            for (i = 0; i < n; i++) v[i] = number_of(j->rank, i, dtype);
            good = good && tn_write(one, as, v, n) == TN_OK && tn_comm_broadcast(one, root) == TN_OK
                && tn_read(one, as, v, n) == TN_OK;
            for (i = 0; i < n && good; i++) good = v[i] == number_of(root, i, dtype);
            for (i = 0; i < j->size * n; i++) v[i] = number_of(j->rank, i, dtype);
            good = good && tn_write(rows, as, v, j->size * n) == TN_OK && tn_comm_reduce_scatter(rows) == TN_OK
                && tn_read(rows, as, v, j->size * n) == TN_OK;
            for (i = j->rank * n; i < (j->rank + 1) * n && good; i++) good = v[i] == sum_of(j->size, i, dtype);
            good = good && tn_comm_all_gather(rows) == TN_OK && tn_read(rows, as, v, j->size * n) == TN_OK;
            for (i = 0; i < j->size * n && good; i++) good = v[i] == sum_of(j->size, i, dtype);
            if (!good) printf("rank %d of %d: %lld of %s\n", j->rank, j->size, (long long)n, tn_dtype_name(dtype));
            free(v);
            tn_tensor_destroy(one);
            tn_tensor_destroy(rows);
        }
    return close_job(j, good);
}

TEST(sums_in_the_order_of_ranks)
{
    int size;
    for (size = 1; size <= MOST; size++) CHECK_INT(processes(size, 0, NULL, collectives), 0);
}

TEST(memory_of_a_device_goes_through_the_host) { CHECK_INT(processes(3, 1, NULL, collectives), 0); }

static bool counts_bytes(job *j)
{
    const int64_t n = 60000;
    double        three[3] = {1, 2, 3};
    tn_traffic    before;
    tn_tensor    *t;
    bool          good;
    if (!open_job(j, TN_F32, NULL)) return false;
    t = tn_tensor_create(j->ctx, TN_F32, 1, &n);
    good = tn_comm_all_reduce(t) == TN_OK;
    j->all->sent[j->rank] = tn_ctx_traffic(j->ctx).bytes;
    before = tn_ctx_traffic(j->ctx);
    good = good && before.calls == (j->size > 1) && tn_comm_reduce_scatter(t) == TN_OK
        && tn_ctx_traffic(j->ctx).bytes - before.bytes == (uint64_t)(n * 4 * (j->size - 1) / j->size);
    good = good && tn_comm_sum(j->ctx, three, 3) == TN_OK && three[0] == j->size && three[2] == 3 * j->size;
    return close_job(j, good);
}

TEST(a_process_sends_what_a_ring_would)
{
    shared *all = share();
    int     size, r;
    for (size = 1; size <= MOST; size++) {
        CHECK_INT(processes(size, 0, all, counts_bytes), 0);
        for (r = 0; r < size; r++) CHECK_INT(all->sent[r], 2 * (size - 1) * (60000 * 4 / size));
    }
    munmap(all, sizeof *all);
}

/* ---- training ------------------------------------------------------------------------------ */

/* Bits of a job's kind. BUCKETS: gradients go in messages of seven numbers; ALONE: without a thread beside. */
enum { ADAMW, MUON, PARTS, KINDS_OF_TRAINING, SHARED = 8, SAVED = 16, RESUMED = 32, OVERLAP = 64, BUCKETS = 128, ALONE = 256,
       TIED = 512 };

static bool save_params(tn_params *params, double *to)
{
    int64_t i, at = 0, n;
    for (i = 0; i < tn_params_count(params); i++, at += n) {
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
    int        b, t;
    for (b = 0; b < texts; b++)
        for (t = 0; t < T; t++) {
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
    tn_optim_desc       od;
    tn_transformer      m;
    tn_params          *params;
    tn_optim           *optim;
    int                 step, half;
    bool                good;
    d.dropout = 0.1;
    d.embed_noise = 0.05;
    d.recompute = kind == PARTS;
    d.tied = (j->kind & TIED) != 0;
    memset(&od, 0, sizeof od);
    od.kind = kind == MUON ? TN_OPTIM_MUON : TN_OPTIM_ADAMW;
    od.share_moments = (j->kind & SHARED) != 0;
    od.bucket = j->kind & BUCKETS ? 7 : 0;
    od.lr = kind == MUON ? 2e-3 : 0;                        /* Muon enlarges what is small in a gradient */
    od.clip_norm = 0.3;
    od.weight_decay = 0.1;
    j->alone = (j->kind & ALONE) != 0;
    if (!open_job(j, TN_F64, NULL)) return false;
    params = tn_params_create(j->ctx);
    good = tn_transformer_init(params, "", &d, &m) == TN_OK && (optim = tn_optim_create(params, &od)) != NULL;
    snprintf(file, sizeof file, "/tmp/tn-test-%d.safetensors", (int)getppid());
    if (good && (j->kind & RESUMED)) good = tn_checkpoint_read(optim, tn_source_path(file)) == TN_OK;
    for (step = begin; step < STEPS && good; step++) {
        double sum = 0;
        if (step == STEPS / 2 && (j->kind & SAVED)) {
            if ((j->kind & SHARED) && j->size > 1) {                   /* not before they are collected */
                good = tn_checkpoint_write(optim, tn_sink_path(file), NULL, 0) == TN_ERR_ARG;
                tn_ctx_clear_error(j->ctx);
            }
            good = good && tn_optim_gather(optim) == TN_OK;
            if (j->rank == 0) good = good && tn_checkpoint_write(optim, tn_sink_path(file), NULL, 0) == TN_OK;
            if (!good) break;
        }
        for (half = 0; half < halves && good; half++) {
            tn_tensor *loss;
            tn_ctx_reset(j->ctx);
            loss = part_loss(j, &m, step, half, halves);
            sum += tn_item(loss) / halves;
            if ((j->kind & OVERLAP) && half + 1 == halves) good = tn_optim_overlap(optim) == TN_OK;
            good = good && tn_backward(j->ctx, halves > 1 ? tn_scale(j->ctx, loss, 0.5) : loss) == TN_OK;
        }
        good = good && tn_optim_step(optim) == TN_OK && tn_comm_sum(j->ctx, &sum, 1) == TN_OK;
        j->all->loss[j->rank][step] = sum / j->size;
    }
    good = good && save_params(params, j->all->params[j->rank]);
    if (!good) snprintf(j->all->said[j->rank], sizeof j->all->said[0], "%s", tn_ctx_error(j->ctx));
    return close_job(j, good);
}

/* N processes with the N-th part of each batch have the curve of one with all of it, with noise, dropout and clipping. */
TEST(curves_do_not_depend_on_the_number_of_processes)
{
    shared *one = share(), *all = share();
    double  worst = 0, apart = 0;
    int     kind, size, r, i;
    for (kind = 0; kind < KINDS_OF_TRAINING; kind++) {
        CHECK_INT(processes(1, kind, one, trains), 0);
        CHECK(one->loss[0][STEPS - 1] < one->loss[0][0]);
        for (size = 2; size <= 4; size++) {
            memset(all, 0, sizeof *all);
            if (kind == PARTS && size == 4) continue;       /* six texts */
            CHECK_INT(processes(size, kind, all, trains), 0);
            for (r = 0; r < size; r++)
                for (i = 0; i < STEPS; i++) test_raise(&worst, fabs(all->loss[r][i] / one->loss[0][i] - 1));
            for (i = 0; i < 4096; i++) test_raise(&apart, fabs(all->params[0][i] - one->params[0][i]));
            for (r = 1; r < size; r++) CHECK(memcmp(all->params[r], all->params[0], sizeof *all->params) == 0);
        }
    }
    WORST("losses of 2, 3 and 4 processes against one", worst, 1e-12);
    WORST("their parameters", apart, 1e-10);
    munmap(one, sizeof *one);
    munmap(all, sizeof *all);
}

/* Shared moments: the same curve, with checkpoints that any number of processes continues, sharing or not. */
TEST(moments_can_be_shared)
{
    shared *one = share(), *all = share();
    double  worst = 0;
    char    file[64];
    int     kind, size, r, i;
    snprintf(file, sizeof file, "/tmp/tn-test-%d.safetensors", (int)getpid());
    for (kind = 0; kind < KINDS_OF_TRAINING; kind++) {
        CHECK_INT(processes(1, kind, one, trains), 0);
        for (size = 1; size <= 3; size++) {
            memset(all, 0, sizeof *all);
            CHECK_INT(processes(size, kind | SHARED | SAVED, all, trains), 0);
            for (r = 0; r < size; r++)
                for (i = 0; i < STEPS; i++) test_raise(&worst, fabs(all->loss[r][i] / one->loss[0][i] - 1));
            for (r = 1; r < size; r++) CHECK(memcmp(all->params[r], all->params[0], sizeof *all->params) == 0);
            memset(all, 0, sizeof *all);
            CHECK_INT(processes(4 - size, kind | RESUMED | (size == 2 ? 0 : SHARED), all, trains), 0);
            for (i = STEPS / 2; i < STEPS; i++) test_raise(&worst, fabs(all->loss[0][i] / one->loss[0][i] - 1));
        }
    }
    remove(file);
    WORST("losses with shared moments against one process", worst, 1e-12);
    munmap(one, sizeof *one);
    munmap(all, sizeof *all);
}

/* A few steps with parameters that products read in BF16 (kind 1), or round themselves; 2: shared moments; 4: Muon. */
static bool trains_in_bf16(job *j)
{
    tn_transformer_desc d = tiny();
    tn_optim_desc       od;
    tn_transformer      m;
    tn_params          *params;
    tn_optim           *optim;
    int                 step;
    bool                good;
    memset(&od, 0, sizeof od);
    od.kind = j->kind & 4 ? TN_OPTIM_MUON : TN_OPTIM_ADAMW;
    od.share_moments = (j->kind & 2) != 0;
    od.bucket = 7;
    j->precision = TN_GEMM_BF16;
    if (!open_job(j, TN_F32, shadow_backend(j->kind & 1))) return false;
    params = tn_params_create(j->ctx);
    good = tn_transformer_init(params, "", &d, &m) == TN_OK && (optim = tn_optim_create(params, &od)) != NULL;
    for (step = 0; step < 6 && good; step++) {
        tn_tensor *loss;
        tn_ctx_reset(j->ctx);
        loss = part_loss(j, &m, step, 0, 1);
        j->all->loss[j->rank][step] = tn_item(loss);
        good = tn_backward(j->ctx, loss) == TN_OK && tn_optim_step(optim) == TN_OK;
    }
    good = good && save_params(params, j->all->params[j->rank]) && shadow_seen.wrong == 0;
    good = good && (shadow_seen.given > 0) == (j->kind & 1);
    return close_job(j, good);
}

/* Each process writes in BF16 what it updates; what others update comes in F32, and is rounded anew. */
TEST(parameters_in_bf16)
{
    shared *with = share(), *without = share();
    int     kind;
    for (kind = 0; kind < 8; kind += 2) {
        CHECK_INT(processes(3, kind | 1, with, trains_in_bf16), 0);
        CHECK_INT(processes(3, kind, without, trains_in_bf16), 0);
        CHECK(memcmp(with, without, sizeof *with) == 0);
        CHECK(memcmp(with->params[0], with->params[2], sizeof with->params[0]) == 0);
    }
    munmap(with, sizeof *with);
    munmap(without, sizeof *without);
}

/* Gradients that are averaged while the backward pass goes on give the same bits, however they are grouped: with accumulated
   parts, recomputed blocks, shared moments, tied embeddings, and without a thread. */
TEST(overlap_does_not_change_a_bit)
{
    static const int kinds[] = {ADAMW, MUON, PARTS, ADAMW | TIED, ADAMW | SHARED, MUON | SHARED, PARTS | SHARED | TIED};
    static const int ways[] = {OVERLAP, OVERLAP | BUCKETS, OVERLAP | BUCKETS | ALONE, BUCKETS};
    shared *plain = share(), *all = share();
    size_t  k, w;
    int     size;
    for (k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size = 2; size <= 3; size++) {
            memset(plain, 0, sizeof *plain);
            CHECK_INT(processes(size, kinds[k], plain, trains), 0);
            for (w = 0; w < sizeof ways / sizeof *ways; w++) {
                if (size == 2 && w > 1) continue;
                memset(all, 0, sizeof *all);
                CHECK_INT(processes(size, kinds[k] | ways[w], all, trains), 0);
                if ((kinds[k] & SHARED) && (ways[w] & BUCKETS)) continue;  /* a norm of other parts: below, in the last bits */
                CHECK(memcmp(all->loss, plain->loss, sizeof plain->loss) == 0);
                CHECK(memcmp(all->params, plain->params, sizeof plain->params) == 0);
            }
        }
    munmap(plain, sizeof *plain);
    munmap(all, sizeof *all);
}

/* Shared moments in other groups: the curve of one process. */
TEST(buckets_of_any_size_have_the_same_curve)
{
    shared *one = share(), *all = share();
    double  worst = 0;
    int     kind, size, i;
    for (kind = 0; kind < KINDS_OF_TRAINING; kind++) {
        CHECK_INT(processes(1, kind | OVERLAP, one, trains), 0);
        for (size = 2; size <= 3; size++) {
            memset(all, 0, sizeof *all);
            CHECK_INT(processes(size, kind | OVERLAP | BUCKETS | SHARED, all, trains), 0);
            for (i = 0; i < STEPS; i++) test_raise(&worst, fabs(all->loss[size - 1][i] / one->loss[0][i] - 1));
        }
    }
    WORST("losses with buckets of seven numbers, overlapped and shared, against one process", worst, 1e-12);
    munmap(one, sizeof *one);
    munmap(all, sizeof *all);
}

/* y = w2 f(w1 x), where f is recomputed: when the backward pass runs it again, the bucket of w2 has been sent, and that of w1 has
   not. kind 1: rank 1 has no memory in there; 2: another backward pass follows. */
typedef struct inner { job *j; tn_tensor *w; tn_traffic *at; int *runs; } inner;

static tn_tensor *run_inner(tn_ctx *ctx, const void *with, tn_tensor *const *in)
{
    const inner *w = (const inner *)with;
    *w->at = tn_ctx_traffic(ctx);
    if (++*w->runs == 2 && w->j->kind == 1 && w->j->rank == 1) tn_tensor_1d(ctx, TN_F64, (int64_t)1 << 44);
    return tn_affine(ctx, in[0], w->w, NULL);
}

static bool overlaps(job *j)
{
    const int64_t shape[2] = {3, 3};
    tn_optim_desc od;
    tn_params    *params;
    tn_optim     *optim;
    tn_param     *w1, *w2;
    tn_traffic    at, before, after;
    tn_init       init;
    int           step, runs = 0;
    bool          good = true;
    tn_status     s = TN_OK;
    inner         with;
    memset(&od, 0, sizeof od);
    memset(&init, 0, sizeof init);
    init.rule = TN_INIT_NORMAL;
    init.std = 0.3;
    od.bucket = 9;
    j->alone = true;                    /* what is sent is sent at once */
    if (!open_job(j, TN_F64, NULL)) return false;
    params = tn_params_create(j->ctx);
    w1 = tn_params_add(params, "w1", 2, shape, init);
    w2 = tn_params_add(params, "w2", 2, shape, init);
    optim = tn_optim_create(params, &od);
    with.j = j, with.w = w1->value, with.at = &at, with.runs = &runs;
    for (step = 0; step < 2 && good; step++) {
        tn_tensor *x, *y;
        tn_ctx_reset(j->ctx);
        x = tn_full(j->ctx, 2, shape, 1 + j->rank);
        runs = step == 0 ? 2 : 0;                           /* the first step has no gradients yet, and no error */
        tn_record(j->ctx);
        y = tn_affine(j->ctx, tn_recompute(j->ctx, run_inner, &with, sizeof with, 1, &x), w2->value, NULL);
        if (step == 1) good = tn_optim_overlap(optim) == TN_OK;
        before = tn_ctx_traffic(j->ctx);
        s = tn_backward(j->ctx, tn_sum(j->ctx, tn_mul(j->ctx, y, y)));
        after = tn_ctx_traffic(j->ctx);
        if (step == 1 && s == TN_OK) good = good && at.calls == before.calls + 2 && after.calls == before.calls + 3;
        if (step == 1 && j->kind == 2) {
            tn_record(j->ctx);
            s = tn_backward(j->ctx, tn_sum(j->ctx, tn_affine(j->ctx, x, w1->value, NULL)));
            break;
        }
        if (step == 0 || j->kind == 1) s = tn_optim_step(optim);
    }
    snprintf(j->all->said[j->rank], sizeof j->all->said[0], "%s: %s", tn_status_name(s), tn_ctx_error(j->ctx));
    return close_job(j, good);
}

TEST(buckets_are_sent_while_the_backward_pass_goes_on)
{
    static const char *const say[3][2] = {{"ok: ", "ok: "},
        {"out of memory: optim: rank 1 has an error: out of memory", "out of memory: "},
        {"bad argument: backward: something is added to the gradient of a parameter [3,3]", "bad argument: backward: something"}};
    shared *all = share();
    int     kind, r;
    for (kind = 0; kind < 3; kind++) {
        CHECK_INT(processes(2, kind, all, overlaps), 0);
        for (r = 0; r < 2; r++)
            if (!CHECK(strncmp(all->said[r], say[kind][r], strlen(say[kind][r])) == 0)) printf("%s\n", all->said[r]);
    }
    munmap(all, sizeof *all);
}

/* ---- dropout and noise --------------------------------------------------------------------- */

/* Rows of `width` elements, which are no multiple of the 64 with which kernels begin. */
static bool draws(job *j)
{
    const int64_t rows = 12 / j->size, width = j->kind, shape[2] = {rows, width};
    tn_tensor    *x, *y, *z;
    bool          good;
    if (!open_job(j, TN_F32, NULL)) return false;
    x = tn_full(j->ctx, 2, shape, 1);
    tn_watch(x);
    tn_record(j->ctx);
    y = tn_dropout(j->ctx, x, 0.4);
    z = tn_noise(j->ctx, x, 0.1);
    good = tn_read(y, TN_F64, j->all->params[0] + j->rank * rows * width, rows * width) == TN_OK
        && tn_read(z, TN_F64, j->all->params[1] + j->rank * rows * width, rows * width) == TN_OK
        && tn_backward(j->ctx, tn_sum(j->ctx, y)) == TN_OK
        && tn_read(x->grad, TN_F64, j->all->params[2] + j->rank * rows * width, rows * width) == TN_OK;
    return close_job(j, good);
}

TEST(random_numbers_by_position_in_the_batch)
{
    shared *one = share(), *all = share();
    int     widths[] = {1, 5, 64, 67}, i, size;
    for (i = 0; i < 4; i++) {
        CHECK_INT(processes(1, widths[i], one, draws), 0);
        CHECK(memcmp(one->params[0], one->params[2], sizeof *one->params) == 0);       /* the gradient has the same mask */
        for (size = 2; size <= 4; size++) {
            memset(all, 0, sizeof *all);
            CHECK_INT(processes(size, widths[i], all, draws), 0);
            CHECK(memcmp(one->params, all->params, 3 * sizeof *all->params) == 0);
        }
        memset(one, 0, sizeof *one);
    }
    munmap(one, sizeof *one);
    munmap(all, sizeof *all);
}

/* ---- errors -------------------------------------------------------------------------------- */

enum { BAD_ID, NOT_FINITE, NO_MEMORY, OTHER_PARAMETERS, KILLED, GONE, ANNOUNCED = 8 };

static bool errs(job *j)
{
    const int     culprit = 1;
    const bool    guilty = j->rank == culprit, announced = (j->kind & ANNOUNCED) != 0;
    const int64_t five = 5, huge = (int64_t)1 << 44;
    tn_transformer_desc d = tiny();
    tn_transformer      m;
    tn_params          *params;
    tn_optim           *optim;
    tn_tensor          *loss;
    tn_status           s;
    double              before[4096] = {0}, after[4096] = {0};
    bool                same, again;
    tn_init             init;
    memset(&init, 0, sizeof init);
    j->kind &= ANNOUNCED - 1;
    if (!open_job(j, TN_F64, NULL)) return false;
    params = tn_params_create(j->ctx);
    if (tn_transformer_init(params, "", &d, &m) != TN_OK) return false;
    if (j->kind == OTHER_PARAMETERS && guilty) tn_params_add(params, "more", 1, &five, init);
    optim = tn_optim_create(params, NULL);
    if (j->kind < OTHER_PARAMETERS &&
        (tn_backward(j->ctx, part_loss(j, &m, 0, 0, 1)) != TN_OK || tn_optim_step(optim) != TN_OK)) return false;
    save_params(params, before);
    tn_ctx_reset(j->ctx);
    loss = part_loss(j, &m, 1, 0, 1);
    if (j->kind == BAD_ID && guilty) {
        const int32_t id = 77;
        tn_tensor    *x = tn_tensor_2d(j->ctx, TN_I32, 1, 1);
        tn_write(x, TN_I32, &id, 1);
        tn_embed(j->ctx, m.embed.w, x);
    }
    if (j->kind == NO_MEMORY && guilty) tn_tensor_1d(j->ctx, TN_F64, huge);
    if (j->kind == KILLED && guilty) raise(SIGKILL);
    if (j->kind == GONE && guilty) _exit(0);                   /* without close */
    if (announced) tn_optim_overlap(optim);
    tn_backward(j->ctx, j->kind == NOT_FINITE && guilty ? tn_scale(j->ctx, loss, HUGE_VAL) : loss);
    s = tn_optim_step(optim);
    snprintf(j->all->said[j->rank], sizeof j->all->said[0], "%s: %s", tn_status_name(s), tn_ctx_error(j->ctx));
    tn_ctx_clear_error(j->ctx);
    save_params(params, after);
    same = memcmp(before, after, sizeof before) == 0;
    tn_params_zero_grad(params);
    tn_ctx_reset(j->ctx);
    loss = part_loss(j, &m, 2, 0, 1);
    if (announced) tn_optim_overlap(optim);
    again = tn_backward(j->ctx, loss) == TN_OK && tn_optim_step(optim) == TN_OK;
    if (j->kind >= OTHER_PARAMETERS) return same && !again;
    return close_job(j, same && again);
}

/* All skip the step, say the same, and go on together; or, when one is gone, all say which. */
TEST(an_error_of_one_process_is_everybodys)
{
    static const char *const say[] = {"data: embed, gather or cross_entropy: element 0 of the ids or labels of rank 1 is 77",
        "not finite: step 2: the gradient of", "out of memory: optim: rank 1 has an error: out of memory",
        "bad argument: optim: rank 1 has another number of steps, other settings", "communication: comm socket, rank ",
        "communication: comm socket, rank "};
    shared *all = share();
    int     k, r;
    for (k = 0; k <= 2 * GONE + 1; k++) {
        const int      kind = k / 2;
        const unsigned failed = processes(3, kind | (k % 2 ? ANNOUNCED : 0), all, errs);
        CHECK_INT(failed, kind == KILLED ? 2 : 0);
        for (r = 0; r < 3; r++) {
            if (r == 1 && kind != NOT_FINITE) continue;
            if (!CHECK(strncmp(all->said[r], say[kind], strlen(say[kind])) == 0)) printf("%s\n", all->said[r]);
            if (kind >= KILLED && !CHECK(strstr(all->said[r], "rank 1 has ended") != NULL)) printf("%s\n", all->said[r]);
        }
    }
    munmap(all, sizeof *all);
}

/* One of four is killed at a random moment of its training: kind has its rank and the moment. The others say so, unless all
   have ended before. */
static bool dies(job *j)
{
    const int victim = j->kind % 4;
    char      name[32];
    bool      good;
    if (j->rank == victim) j->dies_after = j->kind / 4 * 1000;
    j->kind = ADAMW | (j->kind / 4 % 2 ? OVERLAP : 0);
    good = trains(j);
    if (j->rank == victim) for (;;) sleep(1);
    snprintf(name, sizeof name, "rank %d has ended", victim);
    if (!good && !strstr(j->all->said[j->rank], name)) printf("rank %d: %s\n", j->rank, j->all->said[j->rank]);
    return good || strstr(j->all->said[j->rank], name) != NULL;
}

TEST(nobody_waits_for_a_process_that_was_killed)
{
    shared  *all = share();
    uint64_t seed = 11;
    int      i, r, midway = 0;
    for (i = 0; i < 20; i++) {
        const int victim = (int)test_random_int(&seed, 0, 3), moment = (int)test_random_int(&seed, 1, 60000);
        memset(all, 0, sizeof *all);
        CHECK_INT(processes(4, 4 * moment + victim, all, dies), 1u << victim);
        for (r = 0; r < 4 && !all->said[r][0]; r++) { }
        midway += r < 4;
    }
    CHECK(midway > 3);                  /* else it was not tested */
    munmap(all, sizeof *all);
}

/* Calls that differ are an error of all, and so are settings. */
static bool differs(job *j)
{
    const int64_t n = 6 + (j->kind == 1 && j->rank == 1);
    tn_optim_desc d;
    tn_params    *params;
    tn_optim     *optim;
    tn_init       init;
    tn_tensor    *t;
    tn_status     s;
    memset(&d, 0, sizeof d);
    memset(&init, 0, sizeof init);
    if (!open_job(j, TN_F32, NULL)) return false;
    t = tn_tensor_create(j->ctx, TN_F32, 1, &n);
    if (j->kind < 2) s = j->kind == 0 && j->rank == 1 ? tn_comm_broadcast(t, 0) : tn_comm_all_reduce(t);
    else {
        params = tn_params_create(j->ctx);
        t = tn_params_add(params, "w", 1, &n, init)->value;
        if (j->rank == 1 && j->kind == 2) d.lr = 0.5;
        if (j->rank == 1 && j->kind == 3) tn_ctx_seed(j->ctx, 8);
        optim = tn_optim_create(params, &d);
        tn_record(j->ctx);
        s = tn_backward(j->ctx, tn_sum(j->ctx, j->rank == 1 && j->kind == 4 ? tn_dropout(j->ctx, t, 0.5) : t));
        if (s == TN_OK) s = tn_optim_step(optim);
    }
    snprintf(j->all->said[j->rank], sizeof j->all->said[0], "%s: %s", tn_status_name(s), tn_ctx_error(j->ctx));
    return close_job(j, s != TN_OK);
}

TEST(processes_have_to_make_the_same_calls)
{
    static const char *const say[2][2] = {
        {"communication: comm socket, rank 0: rank 1 calls broadcast of 6 F32 from rank 0, and rank 0 all_reduce of 6 F32",
         "communication: comm socket, rank 1: rank 0 calls all_reduce of 6 F32 from rank 0, and rank 1 broadcast of 6 F32"},
        {"communication: comm socket, rank 0: rank 1 calls all_reduce of 7 F32",
         "communication: comm socket, rank 1: rank 0 calls all_reduce of 6 F32"}};
    static const char settings[] = "bad argument: optim: rank 1 has another number of steps, other settings";
    shared *all = share();
    int     kind, r;
    for (kind = 0; kind < 5; kind++) {
        CHECK_INT(processes(2, kind, all, differs), 0);
        for (r = 0; r < 2; r++) {
            const char *expected = kind < 2 ? say[kind][r] : settings;
            if (!CHECK(strncmp(all->said[r], expected, strlen(expected)) == 0)) printf("%s\n", all->said[r]);
        }
    }
    munmap(all, sizeof *all);
}

/* A carrier that says yes. */
static tn_status agree_with(void *state, int to, const void *out, size_t n, int from, void *in, size_t m, char why[TN_WHY])
{
    (void)state; (void)to; (void)from; (void)why;
    memcpy(in, out, n < m ? n : m);
    return TN_OK;
}

/* What a collective writes is rewritten: compact copies and marked gradients are out of date, the tape is respected. */
TEST(a_collective_writes_like_any_other)
{
    const int64_t shape[2] = {4, 32};
    tn_comm       k;
    tn_desc       d;
    tn_ctx       *ctx;
    tn_tensor    *w, *x, *before, *after;
    double        a, b;
    memset(&k, 0, sizeof k);
    memset(&d, 0, sizeof d);
    k.abi = TN_COMM_ABI;
    k.name = "mirror";
    k.size = 2;
    k.exchange = agree_with;
    d.comm = &k;
    REQUIRE(CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK));
    w = tn_tensor_create(ctx, TN_REAL, 2, shape);
    x = tn_full(ctx, 2, shape, 1);
    tn_assign(w, x);
    CHECK_STATUS(tn_compact(w, TN_WEIGHTS_BF16, NULL), TN_OK);
    before = tn_affine(ctx, x, w, NULL);
    a = tn_item(tn_mean(ctx, before));
    CHECK_STATUS(tn_comm_all_reduce(w), TN_OK);             /* 1 + 1 */
    after = tn_affine(ctx, x, w, NULL);
    b = tn_item(tn_mean(ctx, after));
    CHECK_NEAR(a, 32, 1e-6);
    CHECK_NEAR(b, 64, 1e-6);
    tn_watch(x);
    tn_record(ctx);
    tn_affine(ctx, x, w, NULL);
    CHECK_STATUS(tn_comm_all_reduce(w), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "comm_all_reduce: [4,32] is needed by the backward pass");
    tn_ctx_destroy(ctx);
}

/* Rank 1 of three ends when it has met rank 0; rank 2 never comes. */
static bool leaves_early(job *j)
{
    char         why[TN_WHY] = "";
    const double since = seconds_now();
    if (j->rank == 1) {
        carrier c;
        int     fds[KINDS][3] = {{-1, -1, -1}, {-1, -1, -1}}, kind;
        memset(&c, 0, sizeof c);
        c.comm.rank = 1, c.comm.size = 3;
        for (kind = 0; kind < KINDS; kind++) c.fd[kind] = fds[kind];
        snprintf(c.folder, sizeof c.folder, "%s", j->folder);
        for (kind = 0; kind < KINDS; kind++) c.fd[kind][0] = call(&c, 0, kind, since + 30, why);
        return c.fd[DATA][0] >= 0 && c.fd[NEWS][0] >= 0;       /* without close */
    }
    j->comm = comm_socket(j->folder, j->rank, 3, why);
    snprintf(j->all->said[j->rank], sizeof j->all->said[0], "%s", why);
    return !j->comm && seconds_now() - since < 40;
}

TEST(the_end_of_a_process_is_noticed_before_all_have_met)
{
    shared *all = share();
    CHECK_INT(processes(2, 0, all, leaves_early), 0);
    CHECK_STR(all->said[0], "rank 1 has ended");
    munmap(all, sizeof *all);
}

static tn_status refuse(void *state, int to, const void *out, size_t n, int from, void *in, size_t m, char why[TN_WHY])
{
    (void)state; (void)to; (void)out; (void)n; (void)from; (void)in; (void)m;
    snprintf(why, TN_WHY, "rank 1 is at lunch");
    return TN_ERR_COMM;
}

TEST(a_carrier_is_checked)
{
    const int64_t shape[2] = {3, 4};
    char          why[TN_WHY];
    tn_desc       d;
    tn_comm       k;
    tn_ctx       *ctx;
    tn_tensor    *t;
    memset(&d, 0, sizeof d);
    memset(&k, 0, sizeof k);
    d.comm = &k;
    CHECK_STATUS(tn_ctx_create(&d, &ctx, why), TN_ERR_ARG);
    CHECK_STR(why, "ctx_create: desc.comm->abi is 0, expected 1");
    k.abi = TN_COMM_ABI;
    k.name = "own";
    k.rank = 2;
    k.size = 2;
    CHECK_STATUS(tn_ctx_create(&d, &ctx, why), TN_ERR_ARG);
    CHECK_STR(why, "ctx_create: desc.comm is rank 2 of 2, expected 0 <= rank < size");
    k.rank = 0;
    CHECK_STATUS(tn_ctx_create(&d, &ctx, why), TN_ERR_ARG);
    CHECK_STR(why, "ctx_create: desc.comm->exchange is NULL, expected it or all four collectives");
    k.device = true;
    k.exchange = refuse;
    CHECK_STATUS(tn_ctx_create(&d, &ctx, why), TN_ERR_ARG);
    CHECK_STR(why, "ctx_create: desc.comm takes memory of devices, expected all four collectives");
    k.device = false;
    REQUIRE(CHECK_STATUS(tn_ctx_create(&d, &ctx, why), TN_OK));
    t = tn_tensor_create(ctx, TN_REAL, 2, shape);
    CHECK_STATUS(tn_comm_all_reduce(t), TN_ERR_COMM);
    CHECK_ERROR(ctx, TN_ERR_COMM, "comm own, rank 0: rank 1 is at lunch");
    CHECK_STATUS(tn_comm_all_gather(t), TN_ERR_SHAPE);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "comm_all_gather: t is [3,4], expected a first axis that 2 processes can divide");
    CHECK_STATUS(tn_comm_broadcast(t, 2), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "comm_broadcast: root is 2, expected 0 <= root < 2");
    CHECK_STATUS(tn_comm_all_reduce(tn_transpose(t, 0, 1)), TN_ERR_DTYPE);
    CHECK_ERROR(ctx, TN_ERR_DTYPE, "comm_all_reduce: t is F32 [4,3], expected a contiguous tensor of F32, F64 or I32");
    CHECK_STATUS(tn_comm_all_reduce(NULL), TN_ERR_ARG);
    CHECK_STATUS(tn_comm_sum(ctx, NULL, 1), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "comm_sum: 1 numbers at NULL, expected 0 or more");
    CHECK(!tn_graph_supported(ctx));
    CHECK_INT(tn_ctx_ranks(NULL), 1);
    tn_ctx_destroy(ctx);
}

TEST_MAIN(sums_in_the_order_of_ranks, memory_of_a_device_goes_through_the_host, a_process_sends_what_a_ring_would,
          curves_do_not_depend_on_the_number_of_processes, moments_can_be_shared, parameters_in_bf16, overlap_does_not_change_a_bit,
          buckets_of_any_size_have_the_same_curve, buckets_are_sent_while_the_backward_pass_goes_on,
          random_numbers_by_position_in_the_batch,
          an_error_of_one_process_is_everybodys, nobody_waits_for_a_process_that_was_killed,
          the_end_of_a_process_is_noticed_before_all_have_met, processes_have_to_make_the_same_calls,
          a_collective_writes_like_any_other, a_carrier_is_checked)
#else
#include "test.h"
TEST(processes) { SKIP("fork", "many processes, on a system without fork"); }
TEST_MAIN(processes)
#endif
