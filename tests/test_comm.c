/* test_comm.c: processes that train together (processes.h), over the carrier for one machine (examples/comm/socket.c) */
#if defined(__unix__) || defined(__APPLE__)
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE
#define _DARWIN_C_SOURCE
#define STEPS 50
#include "sealed.h"
#include "examples/comm/socket.c"
#include "processes.h"
#include "shadow.h"

/* ---- carriers made from that of sockets ---------------------------------------------------- */

static tn_comm *inner_of(void *state) { return (tn_comm *)state; }

static tn_status own_gather_rows(void *state, void *data, size_t bytes, char why[TN_WHY])
{
    const tn_comm *k = inner_of(state);
    char          *row = (char *)data;
    tn_status      s = TN_OK;
    for (int step = 1; step < k->size && s == TN_OK; step++) {
        const int to = (k->rank + step) % k->size, from = (k->rank + k->size - step) % k->size;
        s = k->exchange(k->state, to, row + (size_t)k->rank * bytes, bytes, from, row + (size_t)from * bytes, bytes, why);
    }
    return s;
}

static tn_status own_spread(void *state, void *data, size_t bytes, int root, char why[TN_WHY])
{
    const tn_comm *k = inner_of(state);
    tn_status      s = TN_OK;
    if (k->rank != root) return k->exchange(k->state, -1, NULL, 0, root, data, bytes, why);
    for (int r = 0; r < k->size && s == TN_OK; r++)
        if (r != root) s = k->exchange(k->state, r, data, bytes, -1, NULL, 0, why);
    return s;
}

/* Sums in double, in the order of ranks, as the library makes them. */
static tn_status own_sum(void *state, void *data, int64_t count, tn_dtype dtype, char why[TN_WHY])
{
    const tn_comm *k = inner_of(state);
    const size_t   bytes = (size_t)count * (dtype == TN_F64 ? 8 : 4);
    char          *rows = (char *)malloc(bytes * (size_t)k->size + 1);
    memcpy(rows + (size_t)k->rank * bytes, data, bytes);
    tn_status s = own_gather_rows(state, rows, bytes, why);
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int r = 0; r < k->size; r++) {
            const char *row = rows + (size_t)r * bytes;
            sum += dtype == TN_F64 ? ((const double *)(const void *)row)[i] : dtype == TN_F32
                 ? (double)((const float *)(const void *)row)[i] : (double)((const int32_t *)(const void *)row)[i];
        }
        if (dtype == TN_F64) ((double *)data)[i] = sum;
        else if (dtype == TN_F32) ((float *)data)[i] = (float)sum;
        else ((int32_t *)data)[i] = (int32_t)sum;
    }
    free(rows);
    return s;
}

static tn_status own_sum_rows(void *state, void *data, int64_t count, tn_dtype dtype, char why[TN_WHY])
{
    return own_sum(state, data, count * inner_of(state)->size, dtype, why);
}

static void own_close(tn_comm *comm, bool failed)
{
    tn_comm *inner = inner_of(comm->state);
    inner->close(inner, failed);
    free(comm);
}

/* The other process has what this one has. */
static tn_status echo(void *state, int to, const void *out, size_t out_bytes, int from, void *in, size_t in_bytes, char why[TN_WHY])
{
    (void)state; (void)to; (void)from; (void)why;
    if (out_bytes == in_bytes) memcpy(in, out, in_bytes);
    return TN_OK;
}

/* The first of two processes, whose other one sends back what it gets. */
static tn_ctx *ctx_of_echo(tn_comm *k)
{
    tn_desc d = ZERO;
    tn_ctx *ctx = NULL;
    memset(k, 0, sizeof *k);
    k->abi = TN_COMM_ABI;
    k->name = "echo";
    k->size = 2;
    k->exchange = echo;
    k->any_thread = true;
    d.comm = k;
    CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK);
    return ctx;
}

/* Sums of integers are whole numbers of 32 bits, or an error of all processes that get them. */
TEST(sums_beyond_32_bits)
{
    static const int32_t sums[3] = {1073741823, 1073741824, -1073741824};
    tn_comm k;
    tn_ctx *ctx = ctx_of_echo(&k);
    REQUIRE(ctx);
    tn_tensor *t = tn_tensor_1d(ctx, TN_I32, 4);
    for (int i = 0; i < 6; i++) {
        int32_t v[4] = {sums[i / 2], sums[i / 2], sums[i / 2], sums[i / 2]};
        CHECK_STATUS(tn_write(t, TN_I32, v, 4), TN_OK);
        CHECK_STATUS(i % 2 ? tn_comm_reduce_scatter(t) : tn_comm_all_reduce(t), i < 2 ? TN_OK : TN_ERR_DATA);
        CHECK_STATUS(tn_read(t, TN_I32, v, 4), TN_OK);
        if (i < 2) CHECK(v[0] == 2147483646 && v[1] == 2147483646);
        else CHECK_ERROR(ctx, TN_ERR_DATA, "comm: the sum of element 0 does not fit I32, expected -2147483647 to 2147483647");
    }
    tn_ctx_destroy(ctx);
}

/* Threads of this process, and a constant; 0 where the system does not say. */
static long threads_here(void)
{
    struct stat s;
    return stat("/proc/self/task", &s) == 0 ? (long)s.st_nlink : 0;
}

/* Gradients were to be sent during the backward pass, and their parameters are destroyed before it. The thread that sends ends with
   the context. */
TEST(parameters_destroyed_before_they_are_sent)
{
    const int64_t shape[1] = {4};
    tn_init       init = ZERO;
    const long    threads = threads_here();
    tn_comm       k;
    tn_ctx       *ctx = ctx_of_echo(&k);
    REQUIRE(ctx);
    init.rule = TN_INIT_ONE;
    tn_params *params = tn_params_create(ctx);
    tn_param  *w = tn_params_add(params, "w", 1, shape, init);
    tn_optim  *optim = tn_optim_create(params, NULL);
    REQUIRE(CHECK(w && optim));
    for (int step = 0; step < 2; step++) {                     /* the first one makes the gradient */
        tn_record(ctx);
        tn_tensor *loss = tn_sum(ctx, tn_mul(ctx, w->value, w->value));
        CHECK_STATUS(tn_optim_overlap(optim), TN_OK);
        if (step == 1) tn_params_destroy(params);
        CHECK_STATUS(tn_backward(ctx, loss), step == 0 ? TN_OK : TN_ERR_ARG);
        if (step == 0) CHECK_STATUS(tn_optim_step(optim), TN_OK);
    }
    CHECK_ERROR(ctx, TN_ERR_ARG, "optim: the optimiser's parameters were destroyed");
    CHECK_STATUS(tn_optim_step(optim), TN_ERR_ARG);
    tn_ctx_destroy(ctx);
    for (int i = 0; i < 1000 && threads_here() > threads; i++) usleep(1000);   /* the system forgets a thread after it was joined */
    CHECK_INT(threads_here(), threads);
}

/* The four collectives, without exchange. */
static tn_comm *collectives_alone(tn_comm *inner, bool device)
{
    tn_comm *k = inner ? (tn_comm *)calloc(1, sizeof *k) : NULL;
    if (!k) return NULL;
    k->abi = TN_COMM_ABI;
    k->name = "own";
    k->rank = inner->rank;
    k->size = inner->size;
    k->state = inner;
    k->device = device;
    k->all_reduce = own_sum;
    k->reduce_scatter = own_sum_rows;
    k->all_gather = own_gather_rows;
    k->broadcast = own_spread;
    k->close = own_close;
    return k;
}

/* One that counts exchanges, and kills its process before the number `last`; 0: does not. */
static tn_status (*exchange_inside)(void *, int, const void *, size_t, int, void *, size_t, char *);
static long exchanges, last_exchange;
static tn_status exchange_or_die(void *state, int to, const void *out, size_t n, int from, void *in, size_t m, char why[TN_WHY])
{
    if (++exchanges == last_exchange) kill(getpid(), SIGKILL);
    return exchange_inside(state, to, out, n, from, in, m, why);
}

/* What a process of a test has, if it is another carrier or backend than most. */
static enum { AS_IT_IS, COLLECTIVES, COLLECTIVES_OF_A_DEVICE, MORTAL } carrier_kind;
static const tn_backend *backend_given;

static tn_status move_bytes(void *state, void *dst, const void *src, size_t bytes)
{
    (void)state;
    if (bytes > 0) memcpy(dst, src, bytes);
    return TN_OK;
}

/* The backend cpu, as one of a device: its handles are addresses, which the library may not use and the carrier may. */
static const tn_backend *cpu_as_device(void)
{
    static tn_backend b;
    b = *tn_cpu_backend();
    b.name = "device";
    b.host = false;
    b.upload = b.download = move_bytes;
    return &b;
}

static tn_comm *open_carrier(job *j, char why[TN_WHY])
{
    tn_comm *k = comm_socket(j->folder, j->rank, j->size, why);
    if (k && carrier_kind == MORTAL) exchange_inside = k->exchange, k->exchange = exchange_or_die;
    return carrier_kind == COLLECTIVES || carrier_kind == COLLECTIVES_OF_A_DEVICE
         ? collectives_alone(k, carrier_kind == COLLECTIVES_OF_A_DEVICE) : k;
}

static const tn_backend *backend_of(const job *j)
{
    return backend_given ? backend_given : j->sealed ? sealed_reference() : j->rounds ? shadow_backend(j->kind & 1) : NULL;
}

/* ---- collectives --------------------------------------------------------------------------- */

static bool collectives_sealed(job *j)
{
    j->sealed = true;
    return collectives(j);
}

TEST(sums_in_the_order_of_ranks)
{
    for (int size = 1; size <= MOST; size++) CHECK_INT(processes(size, 0, NULL, collectives), 0);
}

TEST(memory_of_a_device_goes_through_the_host) { CHECK_INT(processes(3, 1, NULL, collectives_sealed), 0); }

static bool counts_bytes(job *j)
{
    const int64_t n = 60000;
    double        three[3] = {1, 2, 3};
    if (!open_job(j, TN_F32)) return false;
    tn_tensor *t = tn_tensor_create(j->ctx, TN_F32, 1, &n);
    bool good = tn_comm_all_reduce(t) == TN_OK;
    j->all->sent[j->rank] = tn_ctx_traffic(j->ctx).bytes;
    tn_traffic before = tn_ctx_traffic(j->ctx);
    good = good && before.calls == (j->size > 1) && tn_comm_reduce_scatter(t) == TN_OK
        && tn_ctx_traffic(j->ctx).bytes - before.bytes == (uint64_t)(n * 4 * (j->size - 1) / j->size);
    good = good && tn_comm_sum(j->ctx, three, 3) == TN_OK && three[0] == j->size && three[2] == 3 * j->size;
    before = tn_ctx_traffic(j->ctx);                        /* of two, the root sends, and the other one nothing */
    good = good && tn_comm_broadcast(t, j->size - 1) == TN_OK
        && (j->size != 2 || tn_ctx_traffic(j->ctx).bytes - before.bytes == (j->rank == 1 ? (uint64_t)n * 4 : 0));
    return close_job(j, good);
}

TEST(a_process_sends_what_a_ring_would)
{
    shared *all = share();
    for (int size = 1; size <= MOST; size++) {
        CHECK_INT(processes(size, 0, all, counts_bytes), 0);
        for (int r = 0; r < size; r++) CHECK_INT(all->sent[r], 2 * (size - 1) * (60000 * 4 / size));
    }
    munmap(all, sizeof *all);
}

/* ---- training ------------------------------------------------------------------------------ */

/* N processes with the N-th part of each batch have the curve of one with all of it, with noise, dropout and clipping. */
TEST(curves_do_not_depend_on_the_number_of_processes)
{
    shared *one = share(), *all = share();
    double  worst = 0, apart = 0;
    for (int kind = 0; kind < KINDS_OF_TRAINING; kind++) {
        CHECK_INT(processes(1, kind, one, trains), 0);
        CHECK(one->loss[0][STEPS - 1] < one->loss[0][0]);
        for (int size = 2; size <= 4; size++) {
            memset(all, 0, sizeof *all);
            if (kind == PARTS && size == 4) continue;       /* six texts */
            CHECK_INT(processes(size, kind, all, trains), 0);
            for (int r = 0; r < size; r++)
                for (int i = 0; i < STEPS; i++) test_raise(&worst, fabs(all->loss[r][i] / one->loss[0][i] - 1));
            for (int i = 0; i < 4096; i++) test_raise(&apart, fabs(all->params[0][i] - one->params[0][i]));
            for (int r = 1; r < size; r++) CHECK(memcmp(all->params[r], all->params[0], sizeof *all->params) == 0);
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
    snprintf(file, sizeof file, "/tmp/tn-test-%d.safetensors", (int)getpid());
    for (int kind = 0; kind < KINDS_OF_TRAINING; kind++) {
        CHECK_INT(processes(1, kind, one, trains), 0);
        for (int size = 1; size <= 3; size++) {
            memset(all, 0, sizeof *all);
            CHECK_INT(processes(size, kind | SHARED | SAVED, all, trains), 0);
            for (int r = 0; r < size; r++)
                for (int i = 0; i < STEPS; i++) test_raise(&worst, fabs(all->loss[r][i] / one->loss[0][i] - 1));
            for (int r = 1; r < size; r++) CHECK(memcmp(all->params[r], all->params[0], sizeof *all->params) == 0);
            memset(all, 0, sizeof *all);
            CHECK_INT(processes(4 - size, kind | RESUMED | (size == 2 ? 0 : SHARED), all, trains), 0);
            for (int i = STEPS / 2; i < STEPS; i++) test_raise(&worst, fabs(all->loss[0][i] / one->loss[0][i] - 1));
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
    tn_optim_desc       od = ZERO;
    tn_transformer      m;
    tn_optim           *optim;
    od.kind = j->kind & 4 ? TN_OPTIM_MUON : TN_OPTIM_ADAMW;
    od.share_moments = (j->kind & 2) != 0;
    od.bucket = 7;
    j->rounds = true;
    if (!open_job(j, TN_F32)) return false;
    tn_params *params = tn_params_create(j->ctx);
    bool good = tn_transformer_init(params, "", &d, &m) == TN_OK && (optim = tn_optim_create(params, &od)) != NULL;
    for (int step = 0; step < 6 && good; step++) {
        tn_ctx_reset(j->ctx);
        tn_tensor *loss = part_loss(j, &m, step, 0, 1);
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
    for (int kind = 0; kind < 8; kind += 2) {
        CHECK_INT(processes(3, kind | 1, with, trains_in_bf16), 0);
        CHECK_INT(processes(3, kind, without, trains_in_bf16), 0);
        CHECK(memcmp(with, without, sizeof *with) == 0);
        CHECK(memcmp(with->params[0], with->params[2], sizeof with->params[0]) == 0);
    }
    munmap(with, sizeof *with);
    munmap(without, sizeof *without);
}

/* ---- checkpoints of shared moments --------------------------------------------------------- */

enum { SOME = 1003000, FILE_ROOM = 16 << 20 };

/* A million parameters of every kind: one that is most of them, one that has no gradient, and one after which a group begins. */
static tn_optim *million(tn_ctx *ctx, tn_params **params, int kind)
{
    const int64_t wide[2] = {700, 1000}, flat = 300000, small[2] = {1000, 3};
    tn_optim_desc d = ZERO;
    tn_init       init = ZERO;
    init.rule = TN_INIT_NORMAL;
    init.std = 0.3;
    d.kind = kind & MUON ? TN_OPTIM_MUON : TN_OPTIM_ADAMW;
    d.newton_schulz = 1;
    d.share_moments = (kind & SHARED) != 0;
    d.bucket = kind & BUCKETS ? 1 << 14 : 0;
    *params = tn_params_create(ctx);
    tn_params_add(*params, "wide", 2, wide, init);
    tn_params_add(*params, "unused", 1, &flat, init);
    tn_params_add(*params, "flat", 1, &flat, init);
    tn_params_add(*params, "small", 2, small, init);
    return tn_optim_create(*params, &d);
}

/* The loss has another gradient for each element, and none for `unused`. */
static tn_status million_backward(tn_ctx *ctx, tn_params *params)
{
    static const char *const name[] = {"wide", "flat", "small"};
    tn_tensor *loss = NULL;
    tn_ctx_reset(ctx);
    tn_record(ctx);
    for (int i = 0; i < 3; i++) {
        tn_tensor *w = tn_params_find(params, name[i])->value, *part = tn_sum(ctx, tn_mul(ctx, w, w));
        loss = loss ? tn_add(ctx, loss, part) : part;
    }
    return tn_backward(ctx, loss);
}

static tn_status million_step(tn_ctx *ctx, tn_optim *optim, tn_params *params)
{
    return million_backward(ctx, params) == TN_OK ? tn_optim_step(optim) : tn_ctx_status(ctx);
}

/* File number k of a test, in memory that all share. */
typedef struct image { size_t used; unsigned char bytes[FILE_ROOM]; } image;
static image *image_of;                 /* [2] */

/* Other bits of a kind: the carrier has collectives alone, and takes memory of devices; a backend that is not of the host. */
enum { NO_EXCHANGE = 1024, OF_A_DEVICE = 2048, NOT_HOST = 4096 };

/* With RESUMED: reads file 0, and writes it again, as 1; else takes two steps and writes file 0. */
static bool saves(job *j)
{
    const bool resumed = (j->kind & RESUMED) != 0;
    image     *to = &image_of[resumed];
    tn_params *params;
    size_t     nothing;
    if (j->kind & NO_EXCHANGE) carrier_kind = j->kind & OF_A_DEVICE ? COLLECTIVES_OF_A_DEVICE : COLLECTIVES;
    if (j->kind & OF_A_DEVICE) backend_given = cpu_as_device();
    j->sealed = (j->kind & NOT_HOST) != 0;
    if (!open_job(j, TN_F32)) return false;
    tn_optim *optim = million(j->ctx, &params, j->kind);
    bool good = optim != NULL;
    for (int step = 0; step < 2 && !resumed && good; step++) good = million_step(j->ctx, optim, params) == TN_OK;
    if (resumed) good = tn_checkpoint_read(optim, tn_source_memory(image_of[0].bytes, image_of[0].used)) == TN_OK;
    size_t read_peak = tn_ctx_memory(j->ctx).peak;
    good = good && tn_checkpoint_write(optim, j->rank == 0 ? tn_sink_memory(to->bytes, FILE_ROOM, &to->used)
                                                           : tn_sink_memory(NULL, 0, &nothing), NULL, 0) == TN_OK;
    if (resumed && !(j->kind & MUON)) {         /* values, the same as they are read, a part of the moments, the largest tensor */
        const size_t all = SOME + 300000, most = all * 4 * 2 + all * 8 / (size_t)j->size + 700000 * 4 + (1 << 18);
        if (read_peak > most || tn_ctx_memory(j->ctx).peak > read_peak) {
            printf("rank %d of %d: %zu bytes to read, %zu to write, expected %zu\n", j->rank, j->size, read_peak,
                   tn_ctx_memory(j->ctx).peak, most);
            good = false;
        }
    }
    if (!good) printf("rank %d of %d: %s\n", j->rank, j->size, tn_ctx_error(j->ctx));
    return close_job(j, good);
}

/* Whatever number of processes reads a checkpoint and writes it again, sharing or not: every byte is the same. None of them ever
   has more than its own part of the moments. */
TEST(a_checkpoint_of_parts_is_that_of_the_whole)
{
    image_of = (image *)mmap(NULL, 2 * sizeof *image_of, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(CHECK(image_of != MAP_FAILED));
    for (int kind = 0; kind < (test_small() ? 2 : 4); kind++) {
        const int as = (kind & 1 ? MUON : ADAMW) | (kind & 2 ? BUCKETS : 0);
        memset(image_of, 0, 2 * sizeof *image_of);
        CHECK_INT(processes(kind & 2 ? 2 : 1, as | SHARED, NULL, saves), 0);
        CHECK(image_of[0].used > SOME * (kind & 1 ? 8 : 12));
        for (int size = 1; size <= 4; size++) {
            memset(&image_of[1], 0, sizeof *image_of);
            CHECK_INT(processes(size, as | SHARED | RESUMED, NULL, saves), 0);
            CHECK_INT((long long)image_of[1].used, (long long)image_of[0].used);
            CHECK(memcmp(&image_of[1], &image_of[0], sizeof *image_of) == 0);
        }
    }
    munmap(image_of, 2 * sizeof *image_of);
}

/* Two processes that share the moments have taken the steps of one. So it is with each carrier and backend: with collectives
   alone, of the host and of devices; and with exchanges on the host for a backend whose memory is elsewhere. */
TEST(a_checkpoint_of_parts_over_every_carrier)
{
    static const int with[] = {NO_EXCHANGE, NO_EXCHANGE | OF_A_DEVICE, NOT_HOST, NO_EXCHANGE | NOT_HOST};
    image_of = (image *)mmap(NULL, 2 * sizeof *image_of, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(CHECK(image_of != MAP_FAILED));
    CHECK_INT(processes(1, ADAMW, NULL, saves), 0);
    memcpy(&image_of[1], &image_of[0], sizeof *image_of);
    CHECK_INT(processes(2, ADAMW | SHARED, NULL, saves), 0);
    CHECK(memcmp(&image_of[1], &image_of[0], sizeof *image_of) == 0);
    for (size_t k = 0; k < sizeof with / sizeof *with; k++) {
        memset(&image_of[1], 0, sizeof *image_of);
        CHECK_INT(processes(3, ADAMW | SHARED | RESUMED | with[k], NULL, saves), 0);
        CHECK(image_of[0].used > SOME * 12 && memcmp(&image_of[1], &image_of[0], sizeof *image_of) == 0);
    }
    munmap(image_of, 2 * sizeof *image_of);
}

/* A file that can be read once: when its checksum has been found right, the tensors cannot be read any more. */
typedef struct worn { const image *file; size_t left; } worn;
static bool fetch_once(void *user, uint64_t offset, void *dst, size_t bytes)
{
    worn *w = (worn *)user;
    if (bytes > w->left) return false;
    w->left -= bytes;
    memcpy(dst, w->file->bytes + offset, bytes);
    return true;
}

/* After a checkpoint that cannot be read an optimiser is as it was: parameters can still be added. */
static bool reads_in_vain(job *j)
{
    const int64_t five = 5;
    tn_params    *params;
    tn_optim_desc d = ZERO;
    tn_init       init = ZERO;
    size_t        nothing;
    worn          file;
    double        one = 1;
    d.share_moments = true;
    if (!open_job(j, TN_F32)) return false;
    tn_optim *optim = million(j->ctx, &params, SHARED);
    tn_optim *other = tn_optim_create(params, &d);
    bool      good = optim && other && million_step(j->ctx, optim, params) == TN_OK
        && tn_checkpoint_write(optim, j->rank == 0 ? tn_sink_memory(image_of->bytes, FILE_ROOM, &image_of->used)
                                                   : tn_sink_memory(NULL, 0, &nothing), NULL, 0) == TN_OK
        && tn_comm_sum(j->ctx, &one, 1) == TN_OK;                               /* the file is there */
    file.file = image_of;
    file.left = image_of->used + image_of->used / 2;
    good = good && tn_checkpoint_read(other, tn_source_calls(fetch_once, &file, image_of->used)) == TN_ERR_FILE;
    tn_ctx_clear_error(j->ctx);
    tn_params_add(params, "late", 1, &five, init);
    good = good && million_step(j->ctx, other, params) == TN_OK;
    if (!good) printf("rank %d: %s\n", j->rank, tn_ctx_error(j->ctx));
    return close_job(j, good);
}

TEST(a_checkpoint_that_cannot_be_read_changes_nothing)
{
    image_of = (image *)mmap(NULL, sizeof *image_of, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(CHECK(image_of != MAP_FAILED));
    CHECK_INT(processes(2, 0, NULL, reads_in_vain), 0);
    munmap(image_of, sizeof *image_of);
}

/* The rule of a matrix is changed between two checkpoints: both have the moments of the old one; the next step refuses it. */
static bool changes_a_rule(job *j)
{
    tn_params *params;
    size_t     nothing;
    if (!open_job(j, TN_F32)) return false;
    tn_optim *optim = million(j->ctx, &params, MUON | SHARED);
    bool good = optim && million_step(j->ctx, optim, params) == TN_OK;
    for (int k = 0; k < 2 && good; k++) {
        tn_params_find(params, "wide")->adamw = k == 1;
        good = tn_checkpoint_write(optim, j->rank == 0 ? tn_sink_memory(image_of[k].bytes, FILE_ROOM, &image_of[k].used)
                                                       : tn_sink_memory(NULL, 0, &nothing), NULL, 0) == TN_OK;
    }
    good = good && million_step(j->ctx, optim, params) == TN_ERR_ARG
        && strstr(tn_ctx_error(j->ctx), "the rule of wide was changed") != NULL;
    if (!good) printf("rank %d: %s\n", j->rank, tn_ctx_error(j->ctx));
    return close_job(j, good);
}

TEST(a_checkpoint_has_the_moments_of_the_rule_that_made_them)
{
    image_of = (image *)mmap(NULL, 2 * sizeof *image_of, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(CHECK(image_of != MAP_FAILED));
    CHECK_INT(processes(2, 0, NULL, changes_a_rule), 0);
    CHECK(image_of[0].used > SOME * 8 && memcmp(&image_of[0], &image_of[1], sizeof *image_of) == 0);
    munmap(image_of, 2 * sizeof *image_of);
}

typedef struct leaky { size_t left; } leaky;
static bool store_some(void *user, const void *src, size_t bytes)
{
    leaky *l = (leaky *)user;
    (void)src;
    if (bytes > l->left) return false;
    l->left -= bytes;
    return true;
}

/* The first process cannot write: at once, in the middle, because of its notes, or all of it; or another one has an error. Then
   all know, and go on together. */
static bool fails_to_save(job *j)
{
    static const size_t room[] = {0, 6000000};
    static char small[1000];
    const tn_metadata note = {"tensornet.steps", "3"};
    tn_params *params;
    size_t     nothing;
    leaky      disk;
    if (!open_job(j, TN_F32)) return false;
    tn_optim *optim = million(j->ctx, &params, SHARED);
    bool good = optim != NULL && million_step(j->ctx, optim, params) == TN_OK;
    if (j->kind == 3 && j->rank == 1) tn_tensor_1d(j->ctx, TN_F64, (int64_t)1 << 44);
    disk.left = j->kind < 2 ? room[j->kind] : SIZE_MAX;
    tn_status s = tn_checkpoint_write(optim, j->rank > 0 ? tn_sink_memory(NULL, 0, &nothing) : j->kind == 4
                                      ? tn_sink_memory(small, sizeof small, &nothing) : tn_sink_calls(store_some, &disk), &note,
                                      j->kind == 2 && j->rank == 0);
    snprintf(j->all->said[j->rank], sizeof j->all->said[0], "%s: %s", tn_status_name(s), tn_ctx_error(j->ctx));
    tn_ctx_clear_error(j->ctx);
    good = good && s != TN_OK && million_step(j->ctx, optim, params) == TN_OK
        && tn_checkpoint_write(optim, tn_sink_memory(NULL, 0, &nothing), NULL, 0) == TN_OK
        && (j->rank > 0 || nothing > SOME * 12);
    return close_job(j, good);
}

TEST(a_checkpoint_that_fails_fails_for_all)
{
    static const char *const say[5][2] = {
        {"file: callback: byte 0: could not be written", "file: checkpoint: rank 0 has an error: file"},
        {"file: callback: byte ", "file: checkpoint: rank 0 has an error: file"},
        {"bad argument: checkpoint: note \"tensornet.steps\"", "bad argument: checkpoint: rank 0 has an error: bad argument"},
        {"out of memory: checkpoint: rank 1 has an error: out of memory", "out of memory: "},
        {"file: memory: byte ", "file: checkpoint: rank 0 has an error: file"}};
    shared *all = share();
    for (int kind = 0; kind < 5; kind++) {
        memset(all, 0, sizeof *all);
        CHECK_INT(processes(3, kind, all, fails_to_save), 0);
        for (int r = 0; r < 3; r++) {
            const char *expected = say[kind][kind == 3 ? r == 1 : r > 0];
            if (!CHECK(strncmp(all->said[r], expected, strlen(expected)) == 0)) printf("%s\n", all->said[r]);
        }
    }
    munmap(all, sizeof *all);
}

/* A hash of a file's bytes; 0: there is none. */
static uint64_t file_hash(const char *path)
{
    FILE    *f = fopen(path, "rb");
    uint64_t h = 1;
    int      c;
    if (!f) return 0;
    while ((c = getc(f)) != EOF) h = (h ^ (uint64_t)c) * UINT64_C(0x100000001b3);
    fclose(f);
    return h;
}

/* A device whose memory cannot be read any more, except a few numbers. */
static bool unreadable;
static tn_status download_some(void *state, void *dst, const void *src, size_t bytes)
{
    return unreadable && bytes > 1000 ? TN_ERR_BACKEND : sealed_download(state, dst, src, bytes);
}

/* A process cannot read the moments that it has to send: the older file keeps its name, and all know. */
static bool cannot_send(job *j)
{
    static tn_backend b;
    char       path[64];
    tn_params *params;
    uint64_t   before = 0;
    b = *sealed_reference();
    b.download = download_some;
    backend_given = &b;
    snprintf(path, sizeof path, "/tmp/tn-test-%d.safetensors", (int)getppid());
    tn_sink sink = j->rank == 0 ? tn_sink_path(path) : tn_sink_memory(NULL, 0, NULL);
    if (!open_job(j, TN_F32)) return false;
    tn_optim *optim = million(j->ctx, &params, SHARED);
    bool      good = optim && million_step(j->ctx, optim, params) == TN_OK && tn_checkpoint_write(optim, sink, NULL, 0) == TN_OK
        && million_step(j->ctx, optim, params) == TN_OK;
    if (j->rank == 0) before = file_hash(path);
    unreadable = j->rank == 1;
    tn_status s = tn_checkpoint_write(optim, sink, NULL, 0);
    unreadable = false;
    snprintf(j->all->said[j->rank], sizeof j->all->said[0], "%s: %s", tn_status_name(s), tn_ctx_error(j->ctx));
    tn_ctx_clear_error(j->ctx);
    if (j->rank == 0) good = good && before != 0 && file_hash(path) == before;
    good = good && tn_checkpoint_write(optim, sink, NULL, 0) == TN_OK;
    if (j->rank == 0) good = good && file_hash(path) != 0 && file_hash(path) != before;
    if (j->rank == 0) remove(path);
    if (!good) printf("rank %d: %s\n", j->rank, j->all->said[j->rank]);
    return close_job(j, good && s == TN_ERR_BACKEND);
}

TEST(a_file_is_replaced_when_all_have_sent)
{
    static const char expected[] = "backend: checkpoint: rank 1 has an error: backend";
    shared *all = share();
    CHECK_INT(processes(3, 0, all, cannot_send), 0);
    for (int r = 0; r < 3; r += 2)
        if (!CHECK(strncmp(all->said[r], expected, strlen(expected)) == 0)) printf("%s\n", all->said[r]);
    munmap(all, sizeof *all);
}

/* A step that one process could not take has made moments in the others: nobody waits for those that it does not have. */
static bool saves_too_soon(job *j)
{
    tn_params *params;
    size_t     used = 0;
    tn_sink    sink = tn_sink_memory(NULL, 0, &used);
    if (!open_job(j, TN_F32)) return false;
    tn_optim *optim = million(j->ctx, &params, SHARED);
    bool good = optim && million_backward(j->ctx, params) == TN_OK;
    if (j->rank == 1) tn_tensor_1d(j->ctx, TN_F64, (int64_t)1 << 44);
    good = good && tn_optim_step(optim) == TN_ERR_MEMORY;
    tn_ctx_clear_error(j->ctx);
    good = good && tn_checkpoint_write(optim, sink, NULL, 0) == TN_ERR_ARG
        && strncmp(tn_ctx_error(j->ctx), "checkpoint: rank 1 has another number of steps", 46) == 0;
    if (!good) printf("rank %d: %s\n", j->rank, tn_ctx_error(j->ctx));
    tn_ctx_clear_error(j->ctx);
    good = good && million_step(j->ctx, optim, params) == TN_OK && tn_checkpoint_write(optim, sink, NULL, 0) == TN_OK
        && (j->rank > 0 || used > SOME * 12);
    return close_job(j, good);
}

TEST(moments_that_a_process_lacks_are_not_waited_for) { CHECK_INT(processes(3, 0, NULL, saves_too_soon), 0); }

/* One of three is killed in its second checkpoint, before an exchange of it: kind has its rank, and which of a few. The others
   may still be at the end of the step before. */
enum { MOMENTS_OF_DEATH = 5 };
static bool dies_saving(job *j)
{
    const int  victim = j->kind % 3, moment = j->kind / 3;
    char       path[64], name[32];
    tn_params *params;
    carrier_kind = MORTAL;
    snprintf(path, sizeof path, "/tmp/tn-test-%d.safetensors", (int)getppid());
    tn_sink sink = j->rank == 0 ? tn_sink_path(path) : tn_sink_memory(NULL, 0, NULL);
    if (!open_job(j, TN_F32)) return false;
    tn_optim *optim = million(j->ctx, &params, SHARED);
    bool good = optim && million_step(j->ctx, optim, params) == TN_OK;
    long before = exchanges;
    good = good && tn_checkpoint_write(optim, sink, NULL, 0) == TN_OK;
    before = exchanges - before;                            /* in a checkpoint */
    tn_status s = million_step(j->ctx, optim, params);
    if (j->rank == victim) last_exchange = exchanges + 1 + (before - 1) * moment / (MOMENTS_OF_DEATH - 1);
    if (s == TN_OK) s = tn_checkpoint_write(optim, sink, NULL, 0);
    snprintf(name, sizeof name, "rank %d has ended", victim);
    good = good && (s == TN_OK ? moment == MOMENTS_OF_DEATH - 1 : s == TN_ERR_COMM && strstr(tn_ctx_error(j->ctx), name));
    if (!good) printf("rank %d: %s: %s\n", j->rank, tn_status_name(s), tn_ctx_error(j->ctx));
    return close_job(j, good);
}

/* The file is the old one, or the new one, and whole, whoever ends and when. */
TEST(a_process_is_killed_in_a_checkpoint)
{
    char    path[64];
    tn_desc d = ZERO;
    d.seed = 7;
    d.threads = 1;
    snprintf(path, sizeof path, "/tmp/tn-test-%d.safetensors", (int)getpid());
    for (int kind = 0; kind < 3 * MOMENTS_OF_DEATH; kind++) {
        tn_ctx    *ctx;
        tn_params *params;
        if (test_small() && kind % 2) continue;
        CHECK_INT(processes(3, kind, NULL, dies_saving), 1u << kind % 3);
        REQUIRE(CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK));
        tn_optim *optim = million(ctx, &params, ADAMW);
        CHECK_STATUS(tn_checkpoint_read(optim, tn_source_path(path)), TN_OK);
        int64_t steps = tn_optim_step_count(optim);
        CHECK(steps == 1 || (steps == 2 && kind / 3 == MOMENTS_OF_DEATH - 1));
        if (kind == 3 * MOMENTS_OF_DEATH - 1) CHECK_STATUS(tn_checkpoint_write(optim, tn_sink_path(path), NULL, 0), TN_OK);
        tn_ctx_destroy(ctx);
    }
    remove(path);
}

/* ---- gradients that are sent early --------------------------------------------------------- */

/* Gradients that are averaged while the backward pass goes on give the same bits, however they are grouped: with accumulated
   parts, recomputed blocks, shared moments, tied embeddings, and without a thread. */
TEST(overlap_does_not_change_a_bit)
{
    static const int kinds[] = {ADAMW, PARTS, MUON, ADAMW | TIED, MUON | SHARED, ADAMW | SHARED, PARTS | SHARED | TIED};
    static const int ways[] = {OVERLAP, OVERLAP | BUCKETS, OVERLAP | BUCKETS | ALONE, BUCKETS};
    shared *plain = share(), *all = share();
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k += test_small() ? 2 : 1)
        for (int size = test_small() ? 3 : 2; size <= 3; size++) {
            memset(plain, 0, sizeof *plain);
            CHECK_INT(processes(size, kinds[k], plain, trains), 0);
            for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
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
    for (int kind = 0; kind < KINDS_OF_TRAINING; kind++) {
        CHECK_INT(processes(1, kind | OVERLAP, one, trains), 0);
        for (int size = 2; size <= 3; size++) {
            memset(all, 0, sizeof *all);
            CHECK_INT(processes(size, kind | OVERLAP | BUCKETS | SHARED, all, trains), 0);
            for (int i = 0; i < STEPS; i++) test_raise(&worst, fabs(all->loss[size - 1][i] / one->loss[0][i] - 1));
        }
    }
    WORST("losses with buckets of 41 numbers, overlapped and shared, against one process", worst, 1e-12);
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
    tn_optim_desc od = ZERO;
    tn_traffic    at;
    tn_init       init = ZERO;
    int           runs = 0;
    bool          good = true;
    tn_status     s = TN_OK;
    inner         with;
    init.rule = TN_INIT_NORMAL;
    init.std = 0.3;
    od.bucket = 9;
    j->alone = true;                    /* what is sent is sent at once */
    if (!open_job(j, TN_F64)) return false;
    tn_params *params = tn_params_create(j->ctx);
    tn_param *w1 = tn_params_add(params, "w1", 2, shape, init);
    tn_param *w2 = tn_params_add(params, "w2", 2, shape, init);
    tn_optim *optim = tn_optim_create(params, &od);
    with.j = j, with.w = w1->value, with.at = &at, with.runs = &runs;
    for (int step = 0; step < 2 && good; step++) {
        tn_ctx_reset(j->ctx);
        tn_tensor *x = tn_full(j->ctx, 2, shape, 1 + j->rank);
        runs = step == 0 ? 2 : 0;                           /* the first step has no gradients yet, and no error */
        tn_record(j->ctx);
        tn_tensor *y = tn_affine(j->ctx, tn_recompute(j->ctx, run_inner, &with, sizeof with, 1, &x), w2->value, NULL);
        if (step == 1) good = tn_optim_overlap(optim) == TN_OK;
        tn_traffic before = tn_ctx_traffic(j->ctx);
        s = tn_backward(j->ctx, tn_sum(j->ctx, tn_mul(j->ctx, y, y)));
        tn_traffic after = tn_ctx_traffic(j->ctx);
        if (step == 1 && s == TN_OK) good = good && at.calls == before.calls + 2 && after.calls == before.calls + 3;
        if (step == 1 && j->kind == 2) {
            tn_record(j->ctx);
            s = tn_backward(j->ctx, tn_sum(j->ctx, tn_affine(j->ctx, x, w1->value, NULL)));
            break;
        }
        if (step == 0 || j->kind == 1) s = tn_optim_step(optim);
        if (step == 1 && j->kind == 0) {                    /* gradients are not sent again: processes agree, and that is all */
            s = tn_optim_step(optim);
            good = good && tn_ctx_traffic(j->ctx).calls == after.calls + 1;
        }
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
    for (int kind = 0; kind < 3; kind++) {
        CHECK_INT(processes(2, kind, all, overlaps), 0);
        for (int r = 0; r < 2; r++)
            if (!CHECK(strncmp(all->said[r], say[kind][r], strlen(say[kind][r])) == 0)) printf("%s\n", all->said[r]);
    }
    munmap(all, sizeof *all);
}

/* ---- dropout and noise --------------------------------------------------------------------- */

/* Rows of `width` elements, which are no multiple of the 64 with which kernels begin. */
static bool draws(job *j)
{
    const int64_t rows = 12 / j->size, width = j->kind, shape[2] = {rows, width};
    if (!open_job(j, TN_F32)) return false;
    tn_tensor *x = tn_full(j->ctx, 2, shape, 1);
    tn_watch(x);
    tn_record(j->ctx);
    tn_tensor *y = tn_dropout(j->ctx, x, 0.5);
    tn_tensor *z = tn_noise(j->ctx, x, 0.1);
    bool       good = tn_read(y, TN_F64, j->all->params[0] + j->rank * rows * width, rows * width) == TN_OK
        && tn_read(z, TN_F64, j->all->params[1] + j->rank * rows * width, rows * width) == TN_OK
        && tn_backward(j->ctx, tn_sum(j->ctx, tn_add(j->ctx, y, x))) == TN_OK          /* dropout adds to a gradient of ones */
        && tn_read(x->grad, TN_F64, j->all->params[2] + j->rank * rows * width, rows * width) == TN_OK;
    return close_job(j, good);
}

TEST(random_numbers_by_position_in_the_batch)
{
    shared *one = share(), *all = share();
    int     widths[] = {1, 5, 64, 67};
    for (int i = 0; i < 4; i++) {
        CHECK_INT(processes(1, widths[i], one, draws), 0);
        for (int k = 0; k < 12 * widths[i]; k++) CHECK(one->params[2][k] == 1 + one->params[0][k]);    /* the same mask */
        for (int size = 2; size <= 4; size++) {
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

enum { BAD_ID, NOT_FINITE, NO_MEMORY, OTHER_PARAMETERS, KILLED, GONE, ANNOUNCED = 8, DIVIDED = 16 };

static bool errs(job *j)
{
    const int     culprit = 1;
    const bool    guilty = j->rank == culprit, announced = (j->kind & ANNOUNCED) != 0;
    const int64_t five = 5, huge = (int64_t)1 << 44;
    tn_transformer_desc d = tiny();
    tn_transformer      m;
    tn_optim_desc       od = ZERO;
    double              before[4096] = {0}, after[4096] = {0};
    tn_init             init = ZERO;
    od.share_moments = (j->kind & DIVIDED) != 0;
    j->kind &= ANNOUNCED - 1;
    if (!open_job(j, TN_F64)) return false;
    tn_params *params = tn_params_create(j->ctx);
    if (tn_transformer_init(params, "", &d, &m) != TN_OK) return false;
    if (j->kind == OTHER_PARAMETERS && guilty) tn_params_add(params, "more", 1, &five, init);
    tn_optim *optim = tn_optim_create(params, &od);
    if (j->kind < OTHER_PARAMETERS &&
        (tn_backward(j->ctx, part_loss(j, &m, 0, 0, 1)) != TN_OK || tn_optim_step(optim) != TN_OK)) return false;
    save_params(params, before);
    tn_ctx_reset(j->ctx);
    tn_tensor *loss = part_loss(j, &m, 1, 0, 1);
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
    tn_status s = tn_optim_step(optim);
    snprintf(j->all->said[j->rank], sizeof j->all->said[0], "%s: %s", tn_status_name(s), tn_ctx_error(j->ctx));
    tn_ctx_clear_error(j->ctx);
    save_params(params, after);
    bool same = memcmp(before, after, sizeof before) == 0;
    tn_params_zero_grad(params);
    tn_ctx_reset(j->ctx);
    loss = part_loss(j, &m, 2, 0, 1);
    if (announced) tn_optim_overlap(optim);
    bool again = tn_backward(j->ctx, loss) == TN_OK && tn_optim_step(optim) == TN_OK;
    if (j->kind >= OTHER_PARAMETERS) return same && !again;
    return close_job(j, same && again);
}

/* All skip the step, say the same, and go on together; or, when one is gone, all say which. */
TEST(an_error_of_one_process_is_everybodys)
{
    static const char *const say[] = {"data: embed: element 0 of the ids of rank 1 is 77",
        "not finite: step 2: the gradient of", "out of memory: optim: rank 1 has an error: out of memory",
        "bad argument: optim: rank 1 has another number of steps, other settings", "communication: comm socket, rank ",
        "communication: comm socket, rank "};
    shared *all = share();
    for (int k = 0; k < 4 * (GONE + 1); k++) {
        const int      kind = k / 4;
        const unsigned failed = processes(3, kind | (k % 2 ? ANNOUNCED : 0) | (k % 4 > 1 ? DIVIDED : 0), all, errs);
        CHECK_INT(failed, kind == KILLED ? 2 : 0);
        for (int r = 0; r < 3; r++) {
            if (r == 1 && kind != NOT_FINITE) continue;
            if (!CHECK(strncmp(all->said[r], say[kind], strlen(say[kind])) == 0)) printf("%s\n", all->said[r]);
            if (kind >= KILLED && !CHECK(strstr(all->said[r], "rank 1 has ended") != NULL)) printf("%s\n", all->said[r]);
        }
    }
    munmap(all, sizeof *all);
}

/* Shared moments: twice a single element of the gradient is not finite, in the part of one process. All skip the step, and name
   the parameter. */
static bool overflows_once(job *j)
{
    const int64_t n = 64;
    tn_optim_desc d = ZERO;
    tn_init       init = ZERO;
    double        c[64], got[64] = {0};
    int           step;
    bool          good = true;
    d.kind = TN_OPTIM_SGD;
    d.lr = 1;
    d.share_moments = true;
    init.rule = TN_INIT_ZERO;
    if (!open_job(j, TN_F64)) return false;
    tn_params *params = tn_params_create(j->ctx);
    tn_params_add(params, "u", 1, &n, init);
    tn_tensor *v = tn_params_add(params, "v", 1, &n, init)->value;
    tn_optim *optim = tn_optim_create(params, &d);
    for (step = 0; step < 3 && good; step++) {
        tn_ctx_reset(j->ctx);
        tn_tensor *by = tn_tensor_1d(j->ctx, TN_F64, n);
        for (int i = 0; i < n; i++) c[i] = step < 2 && i == j->kind && j->rank == 1 ? HUGE_VAL : 1;
        tn_write(by, TN_F64, c, n);
        tn_record(j->ctx);
        good = tn_backward(j->ctx, tn_sum(j->ctx, tn_mul(j->ctx, v, by))) == TN_OK;
        tn_status s = tn_optim_step(optim);
        good = good && s == (step < 2 ? TN_ERR_NONFINITE : TN_OK)
            && (step == 2 || strstr(tn_ctx_error(j->ctx), "the gradient of v is not finite") != NULL);
        tn_ctx_clear_error(j->ctx);
        good = good && tn_read(v, TN_F64, got, n) == TN_OK;
        for (int i = 0; i < n; i++) good = good && got[i] == (step < 2 ? 0 : -1);
    }
    if (!good) printf("rank %d, element %d: step %d, %g %g\n", j->rank, j->kind, step, got[0], got[63]);
    return close_job(j, good);
}

TEST(a_fault_in_one_part_stops_all)
{
    CHECK_INT(processes(2, 0, NULL, overflows_once), 0);
    CHECK_INT(processes(3, 63, NULL, overflows_once), 0);
}

/* One of four is killed at a random moment of its training: kind has its rank and the moment. The others say so, unless all
   have ended before. */
static bool dies(job *j)
{
    const int victim = j->kind % 4;
    char      name[32];
    if (j->rank == victim) j->dies_after = j->kind / 4 * 1000;
    j->kind = ADAMW | (j->kind / 4 % 2 ? OVERLAP : 0);
    bool good = trains(j);
    if (j->rank == victim) for (;;) sleep(1);
    snprintf(name, sizeof name, "rank %d has ended", victim);
    if (!good && !strstr(j->all->said[j->rank], name)) printf("rank %d: %s\n", j->rank, j->all->said[j->rank]);
    return good || strstr(j->all->said[j->rank], name) != NULL;
}

TEST(nobody_waits_for_a_process_that_was_killed)
{
    shared  *all = share();
    uint64_t seed = 11;
    int      r, midway = 0;
    for (int i = 0; i < 20; i++) {
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
enum { CALL, COUNT, ROOT, RATE, SEED, RANDOM, FROZEN, RATE_SCALE, DECAY_SCALE, BUCKET, SHARES, NOT_ANNOUNCED, SAVES,
       SAVES_MEANWHILE, DIFFERENCES };

static bool differs(job *j)
{
    const bool    other = j->rank == 1;
    const int64_t n = 6 + (j->kind == COUNT && other);
    tn_optim_desc d = ZERO;
    tn_init       init = ZERO;
    tn_status     s = TN_OK;
    double        one = 1;
    if (!open_job(j, TN_F32)) return false;
    tn_tensor *t = tn_tensor_create(j->ctx, TN_F32, 1, &n);
    if (j->kind == ROOT || (j->kind == CALL && other)) s = tn_comm_broadcast(t, j->kind == ROOT && other);
    else if (j->kind < RATE) s = tn_comm_all_reduce(t);
    if (j->kind < RATE) {
        snprintf(j->all->said[j->rank], sizeof j->all->said[0], "%s: %s", tn_status_name(s), tn_ctx_error(j->ctx));
        return close_job(j, s != TN_OK && tn_comm_sum(j->ctx, &one, 1) == TN_ERR_COMM);     /* nothing works any more */
    }
    tn_params *params = tn_params_create(j->ctx);
    t = tn_params_add(params, "w", 1, &n, init)->value;
    tn_params_add(params, "v", 1, &n, init);
    if (other && j->kind == RATE) d.lr = 0.5;
    if (other && j->kind == SEED) tn_ctx_seed(j->ctx, 8);
    if (other && j->kind == FROZEN) tn_params_find(params, "v")->frozen = true;
    if (other && (j->kind == RATE_SCALE || j->kind == DECAY_SCALE))
        tn_params_set_scales(params, "v", j->kind == RATE_SCALE ? 2 : 1, j->kind == DECAY_SCALE ? 2 : 1);
    if (other && j->kind == BUCKET) d.bucket = 3;
    d.share_moments = j->kind >= SAVES || (other && j->kind == SHARES);
    tn_optim *optim = tn_optim_create(params, &d);
    for (int step = 0; step < 2 && s == TN_OK; step++) {
        const bool last = step == 1 || j->kind < NOT_ANNOUNCED;
        tn_ctx_reset(j->ctx);
        if (step == 1 && other && j->kind >= SAVES) {
            s = tn_checkpoint_write(optim, tn_sink_memory(NULL, 0, NULL), NULL, 0);
            break;
        }
        tn_record(j->ctx);
        if (step == 1 && !other && j->kind != SAVES) tn_optim_overlap(optim);
        s = tn_backward(j->ctx, tn_sum(j->ctx, tn_add(j->ctx, tn_params_find(params, "v")->value,
                                                      other && j->kind == RANDOM ? tn_dropout(j->ctx, t, 0.5) : t)));
        if (s == TN_OK) s = tn_optim_step(optim);
        if (last) break;
    }
    snprintf(j->all->said[j->rank], sizeof j->all->said[0], "%s: %s", tn_status_name(s), tn_ctx_error(j->ctx));
    return close_job(j, s != TN_OK);
}

TEST(processes_have_to_make_the_same_calls)
{
    static const char *const say[3][2] = {
        {"communication: comm socket, rank 0: rank 1 calls broadcast of 6 F32 from rank 0, and rank 0 all_reduce of 6 F32",
         "communication: comm socket, rank 1: rank 0 calls all_reduce of 6 F32 from rank 0, and rank 1 broadcast of 6 F32"},
        {"communication: comm socket, rank 0: rank 1 calls all_reduce of 7 F32",
         "communication: comm socket, rank 1: rank 0 calls all_reduce of 6 F32"},
        {"communication: comm socket, rank 0: rank 1 calls broadcast of 6 F32 from rank 1, and rank 0",
         "communication: comm socket, rank 1: rank 0 calls broadcast of 6 F32 from rank 0, and rank 1"}};
    static const char settings[] = "bad argument: optim: rank 1 has another number of steps, other settings";
    static const char saving[] = "bad argument: checkpoint: rank 1 has another number of steps, other settings";
    shared *all = share();
    for (int kind = 0; kind < DIFFERENCES; kind++) {
        memset(all, 0, sizeof *all);
        CHECK_INT(processes(2, kind, all, differs), 0);
        for (int r = 0; r < 2; r++) {
            const char *expected = kind < RATE ? say[kind][r] : kind >= SAVES && r == 1 ? saving : settings;
            if (!CHECK(strncmp(all->said[r], expected, strlen(expected)) == 0)) printf("%d: %s\n", kind, all->said[r]);
        }
    }
    munmap(all, sizeof *all);
}

/* A step of one process has no gradient for a parameter that another one uses: the mean counts it as zeros. */
static bool uses_less(job *j)
{
    const int64_t n = 5;
    tn_optim_desc d = ZERO;
    tn_init       init = ZERO;
    double        got[5] = {0};
    bool          good = true;
    d.kind = TN_OPTIM_SGD;
    d.lr = 1;
    d.share_moments = (j->kind & SHARED) != 0;
    init.rule = TN_INIT_ZERO;
    if (!open_job(j, TN_F64)) return false;
    tn_params *params = tn_params_create(j->ctx);
    tn_tensor *v = tn_params_add(params, "v", 1, &n, init)->value;
    tn_tensor *w = tn_params_add(params, "w", 1, &n, init)->value;
    tn_optim *optim = tn_optim_create(params, &d);
    for (int step = 0; step < 2 && good; step++) {          /* d loss / d v is rank + 1, and in the second step 1 and nothing */
        tn_ctx_reset(j->ctx);
        tn_record(j->ctx);
        tn_tensor *loss = step == 1 && j->rank == 1 ? w : tn_add(j->ctx, tn_scale(j->ctx, v, j->rank + 1), w);
        loss = tn_sum(j->ctx, loss);
        if (j->kind & OVERLAP) tn_optim_overlap(optim);
        good = tn_backward(j->ctx, loss) == TN_OK && tn_optim_step(optim) == TN_OK;
    }
    good = good && tn_read(v, TN_F64, got, n) == TN_OK;
    for (int i = 0; i < n; i++) good = good && got[i] == -2;
    good = good && tn_read(w, TN_F64, got, n) == TN_OK;
    for (int i = 0; i < n; i++) good = good && got[i] == -2;
    good = good && tn_comm_all_reduce(v->grad) == TN_OK && tn_read(v->grad, TN_F64, got, n) == TN_OK;   /* after a step: zeros */
    for (int i = 0; i < n; i++) good = good && got[i] == 0;
    tn_ctx_reset(j->ctx);
    tn_record(j->ctx);
    good = good && (j->rank == 0 || tn_backward(j->ctx, tn_sum(j->ctx, v)) == TN_OK);       /* still zeros here, and ones there */
    good = good && tn_comm_all_reduce(v->grad) == TN_OK && tn_read(v->grad, TN_F64, got, n) == TN_OK;
    for (int i = 0; i < n; i++) good = good && got[i] == 1;
    if (!good) printf("rank %d: %g %s\n", j->rank, got[0], tn_ctx_error(j->ctx));
    return close_job(j, good);
}

TEST(a_gradient_that_one_process_lacks_counts_as_zeros)
{
    static const int kinds[] = {0, OVERLAP, SHARED, SHARED | OVERLAP};
    for (int k = 0; k < 4; k++) CHECK_INT(processes(2, kinds[k], NULL, uses_less), 0);
}

/* What a step sends, by the formula of docs/internals.md: of P numbers 2 (N-1)/N P, shared or not, and a few more with which
   processes agree. Buckets are of P numbers, or of a twelfth. */
static bool counts_a_step(job *j)
{
    const uint64_t n = (uint64_t)j->size, told = (n - 1) * 28;
    tn_params     *params;
    uint64_t       expected = 2 * (n - 1) * (1003000 / n * 4) + told;
    if (!open_job(j, TN_F32)) return false;
    tn_optim *optim = million(j->ctx, &params, j->kind);
    bool good = optim && million_step(j->ctx, optim, params) == TN_OK;
    tn_traffic before = tn_ctx_traffic(j->ctx);
    good = good && million_step(j->ctx, optim, params) == TN_OK;
    tn_traffic after = tn_ctx_traffic(j->ctx);
    uint64_t   bytes = after.bytes - before.bytes;
    if (!(j->kind & SHARED)) {
        good = good && bytes >= expected && bytes < expected + 64 * 16 * n
            && after.calls - before.calls == 1 + (j->kind & BUCKETS ? (1003000 + 16383) / 16384 : 1);
        if (!(j->kind & BUCKETS)) good = good && bytes == expected;
    } else good = good && bytes >= expected - 64 && bytes < expected + expected / 3;       /* rows are as long as the longest */
    if (!good) printf("rank %d of %d, kind %d: %llu bytes in %llu calls, expected %llu\n", j->rank, j->size, j->kind,
                      (unsigned long long)bytes, (unsigned long long)(after.calls - before.calls), (unsigned long long)expected);
    return close_job(j, good);
}

TEST(a_step_sends_what_the_formula_says)
{
    for (int size = 2; size <= 4; size += 2) {
        CHECK_INT(processes(size, ADAMW, NULL, counts_a_step), 0);
        CHECK_INT(processes(size, ADAMW | BUCKETS, NULL, counts_a_step), 0);
        CHECK_INT(processes(size, ADAMW | SHARED | BUCKETS, NULL, counts_a_step), 0);
    }
}

/* Matrices of Muon go to the process that has the least of them so far. */
static bool has_two(job *j)
{
    const int64_t shape[2] = {100, 100};
    tn_optim_desc d = ZERO;
    tn_init       init = ZERO;
    tn_tensor    *loss = NULL;
    char          name[2] = "a";
    d.kind = TN_OPTIM_MUON;
    d.share_moments = true;
    d.bucket = 1000;
    init.rule = TN_INIT_NORMAL;
    init.std = 1;
    if (!open_job(j, TN_F64)) return false;
    tn_params *params = tn_params_create(j->ctx);
    for (; name[0] < 'e'; name[0]++) tn_params_add(params, name, 2, shape, init);
    tn_optim *optim = tn_optim_create(params, &d);
    tn_record(j->ctx);
    for (name[0] = 'a'; name[0] < 'e'; name[0]++) {
        tn_tensor *w = tn_params_find(params, name)->value, *part = tn_sum(j->ctx, tn_mul(j->ctx, w, w));
        loss = loss ? tn_add(j->ctx, loss, part) : part;
    }
    bool good = tn_backward(j->ctx, loss) == TN_OK;
    size_t before = tn_ctx_memory(j->ctx).live;
    good = good && tn_optim_step(optim) == TN_OK;
    size_t most = tn_ctx_memory(j->ctx).live - before;             /* two momenta, and four matrices for the iteration */
    if (!good || most < 6 * 80000 || most > 7 * 80000) printf("rank %d: %zu bytes, %s\n", j->rank, most, tn_ctx_error(j->ctx));
    return close_job(j, good && most >= 6 * 80000 && most <= 7 * 80000);
}

TEST(matrices_are_divided_evenly) { CHECK_INT(processes(2, 0, NULL, has_two), 0); }

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
    tn_comm       k = ZERO;
    tn_desc       d = ZERO;
    tn_ctx       *ctx;
    k.abi = TN_COMM_ABI;
    k.name = "mirror";
    k.size = 2;
    k.exchange = agree_with;
    d.comm = &k;
    REQUIRE(CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK));
    tn_tensor *w = tn_tensor_create(ctx, TN_REAL, 2, shape);
    tn_tensor *x = tn_full(ctx, 2, shape, 1);
    tn_assign(w, x);
    CHECK_STATUS(tn_compact(w, TN_WEIGHT_BF16, NULL), TN_OK);
    tn_tensor *before = tn_affine(ctx, x, w, NULL);
    double a = tn_item(tn_mean(ctx, before));
    CHECK_STATUS(tn_comm_all_reduce(w), TN_OK);             /* 1 + 1 */ tn_tensor *after = tn_affine(ctx, x, w, NULL);
    double b = tn_item(tn_mean(ctx, after));
    CHECK_NEAR(a, 32, 1e-6);
    CHECK_NEAR(b, 64, 1e-6);
    tn_watch(x);
    tn_record(ctx);
    tn_affine(ctx, x, w, NULL);
    FAILS(ctx, tn_comm_all_reduce(w), TN_ERR_ARG, "comm_all_reduce: [4,32] is needed by the backward pass");
    tn_ctx_destroy(ctx);
}

/* Rank 1 of three ends when it has met rank 0; rank 2 never comes. */
static bool leaves_early(job *j)
{
    char         why[TN_WHY] = "";
    const double since = seconds_now();
    if (j->rank == 1) {
        carrier c = ZERO;
        int     fds[KINDS][3] = {{-1, -1, -1}, {-1, -1, -1}};
        c.comm.rank = 1, c.comm.size = 3, c.job = comm_job();
        for (int kind = 0; kind < KINDS; kind++) c.fd[kind] = fds[kind];
        snprintf(c.folder, sizeof c.folder, "%s", j->folder);
        for (int kind = 0; kind < KINDS; kind++) c.fd[kind][0] = call(&c, 0, kind, since + 30, why);
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

/* ---- who may connect ---- */

static const char *const launcher_names[] = {"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
    "PMI_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_LOCALID", "TN_COMM_SECONDS"};

/* The first text sets variables, as NAME=VALUE of one or two. */
TEST(numbers_of_the_environment_are_whole)
{
    static const char *const cases[][3] = {
        {"RANK=abc", "WORLD_SIZE=2", "RANK is \"abc\", expected a whole number from 0 to 1048575"},
        {"RANK=1x", "WORLD_SIZE=2", "RANK is \"1x\""}, {"RANK=-1", "WORLD_SIZE=2", "RANK is \"-1\""},
        {"RANK= 1", "WORLD_SIZE=2", "RANK is \" 1\""}, {"RANK=0", "WORLD_SIZE=0", "WORLD_SIZE is \"0\""},
        {"RANK=0", "WORLD_SIZE=4294967297", "WORLD_SIZE is \"4294967297\""},
        {"RANK=2", "WORLD_SIZE=2", "RANK is 2, expected less than WORLD_SIZE, which is 2"},
        {"OMPI_COMM_WORLD_RANK=1e0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK is \"1e0\""},
        {"PMI_RANK=0", "PMI_SIZE=two", "PMI_SIZE is \"two\""}, {"SLURM_PROCID=0x1", "SLURM_NTASKS=2", "SLURM_PROCID is \"0x1\""},
        {"RANK=1", "TN_COMM_SECONDS=60", "the environment has neither RANK and WORLD_SIZE"},
        {"LOCAL_RANK=first", "RANK=", "LOCAL_RANK is \"first\""},
        {"LOCAL_WORLD_SIZE=0", "RANK=", "LOCAL_WORLD_SIZE is \"0\", expected a whole number from 1"},
        {"SLURM_LOCALID=2(x3)", "RANK=", "SLURM_LOCALID is \"2(x3)\""},
        {"TN_COMM_SECONDS=soon", "RANK=", "TN_COMM_SECONDS is \"soon\", expected a whole number from 1"}
    };
    int rank, size;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char why[TN_WHY] = "";
        for (size_t k = 0; k < sizeof launcher_names / sizeof *launcher_names; k++) unsetenv(launcher_names[k]);
        for (size_t k = 0; k < 2; k++) {
            const char *value = strchr(cases[i][k], '=');
            char        name[40];
            snprintf(name, sizeof name, "%.*s", (int)(value - cases[i][k]), cases[i][k]);
            setenv(name, value + 1, 1);
        }
        if (!strncmp(cases[i][0], "TN_", 3)) CHECK(!comm_socket(NULL, 0, 1, why));
        else if (*cases[i][0] == 'L' || !strncmp(cases[i][0], "SLURM_L", 7))
            CHECK(!comm_local(!strncmp(cases[i][0], "LOCAL_W", 7), &rank, why));
        else CHECK(!comm_launcher(&rank, &size, why));
        if (!CHECK(!strncmp(why, cases[i][2], strlen(cases[i][2])))) printf("%s: %s\n", cases[i][0], why);
    }
    for (size_t k = 0; k < sizeof launcher_names / sizeof *launcher_names; k++) unsetenv(launcher_names[k]);
}

TEST(a_folder_that_others_may_enter_is_refused)
{
    static const mode_t modes[] = {0777, 0770, 0701};
    char   folder[] = "/tmp/tn-test-XXXXXX", why[TN_WHY], text[200];
    REQUIRE(CHECK(mkdtemp(folder) != NULL));
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        chmod(folder, modes[i]);
        CHECK(!comm_socket(folder, 0, 2, why));
        snprintf(text, sizeof text, "%s: its mode is %04o, expected 0700, a folder that nobody else can enter", folder,
                 (unsigned)modes[i]);
        CHECK_STR(why, text);
    }
    rmdir(folder);
}

/* Only sockets are removed: a file named like a rank is refused, and one of another name keeps the folder. */
TEST(files_in_the_folder_are_kept)
{
    static const char *const names[] = {"0", "notes"};
    char folder[] = "/tmp/tn-test-XXXXXX", file[64], why[TN_WHY] = "", text[200];
    REQUIRE(CHECK(mkdtemp(folder) != NULL));
    for (int i = 0; i < 2; i++) {
        snprintf(file, sizeof file, "%s/%s", folder, names[i]);
        FILE *f = fopen(file, "w");
        REQUIRE(CHECK(f != NULL && fclose(f) == 0));
        tn_comm *comm = comm_socket(folder, 0, 1, why);
        snprintf(text, sizeof text, "%s is not a socket, expected a new or empty folder", file);
        if (i == 0) CHECK_STR(why, text);
        CHECK((comm != NULL) == (i == 1));
        if (comm) comm->close(comm, false);
        CHECK_INT(remove(file), 0);
    }
    rmdir(folder);
}

/* TMPDIR= is no TMPDIR, and not the root folder. */
TEST(an_empty_variable_is_not_set)
{
    const char *tmp = getenv("TMPDIR");
    char        kept[200], why[TN_WHY] = "";
    snprintf(kept, sizeof kept, "%s", tmp ? tmp : "");
    setenv("TMPDIR", "", 1);
    tn_comm *comm = comm_socket(NULL, 0, 1, why);
    if (tmp) setenv("TMPDIR", kept, 1);
    else unsetenv("TMPDIR");
    if (!CHECK(comm != NULL)) printf("%s\n", why);
    else {
        CHECK(!strncmp(((carrier *)comm->state)->folder, "/tmp/tn-", 8));
        comm->close(comm, false);
    }
}

/* Rank 1 has connected to rank 0 several times before, and said less than a hello. */
static bool comes_after_others(job *j)
{
    struct sockaddr_un at;
    carrier            c = ZERO;
    int                fd[3];
    snprintf(c.folder, sizeof c.folder, "%s", j->folder);
    for (int i = 0; i < 3 && j->rank == 1; i++) {
        if (!place_of(&c, 0, &at)) return false;
        while ((fd[i] = connect_to(&at)) < 0) sleep_for(0.01);
        if (!sends(fd[i], "some bytes", (size_t)(5 * i))) return false;
    }
    return open_job(j, TN_F32) && close_job(j, true);       /* with its first connections still open */
}

TEST(a_silent_connection_delays_nobody)
{
    CHECK_INT(processes(3, 0, NULL, comes_after_others), 0);
}

/* Another process of the same rank, and one of another job. */
TEST(jobs_do_not_mix)
{
    char               folder[] = "/tmp/tn-test-XXXXXX", why[TN_WHY] = "", text[TN_WHY];
    int                fds[KINDS][2] = {{-1, -1}, {-1, -1}};
    shared            *all = share();
    const double       until = seconds_now() + 120;
    struct sockaddr_un at;
    pid_t              child;
    carrier            c = ZERO;
    entrance           d;
    REQUIRE(CHECK(mkdtemp(folder) != NULL));
    snprintf(c.folder, sizeof c.folder, "%s", folder);
    c.comm.size = 2;
    c.job = comm_job();
    for (int kind = 0; kind < KINDS; kind++) c.fd[kind] = fds[kind];
    int listener = listen_here(&c, &at, why);
    REQUIRE(CHECK(listener >= 0));
    CHECK(!comm_socket(folder, 0, 2, why));
    snprintf(text, sizeof text, "%s/0: another process of this rank listens there, expected a folder, or MASTER_PORT, of its "
             "own for each job", folder);
    CHECK_STR(why, text);
    CHECK(access(at.sun_path, F_OK) == 0);                  /* it was not removed */
    open_entrance(&d, listener, sizeof(hello), 0);
    if ((child = fork()) == 0) {
        setenv("SLURM_STEP_ID", "7", 1);
        alarm(150);
        _exit(comm_socket(folder, 1, 2, all->said[1]) != NULL);
    }
    int status = -1;
    while (waitpid(child, &status, WNOHANG) == 0 && answer(&c, &d, until, why)) { }
    CHECK_INT(status, 0);
    CHECK_STR(all->said[1], "rank 0 is part of another job, expected a folder, or MASTER_PORT, of its own for each job");
    CHECK_INT(fds[DATA][1], -1);
    fds[DATA][1] = listener;                                /* as if its place were taken */
    if ((child = fork()) == 0) {
        alarm(150);
        _exit(comm_socket(folder, 1, 2, all->said[1]) != NULL);
    }
    status = -1;
    while (waitpid(child, &status, WNOHANG) == 0 && answer(&c, &d, until, why)) { }
    CHECK_INT(status, 0);
    CHECK_STR(all->said[1], "rank 0 is connected to another process of this rank, expected a folder, or MASTER_PORT, of its "
              "own for each job");
    close_entrance(&d);
    unlink(at.sun_path);
    rmdir(folder);
    munmap(all, sizeof *all);
}

/* A carrier with collectives of its own: what it was asked for last. */
static struct asked { int what; int64_t count; tn_dtype dtype; int root; } asked;

static tn_status own_reduce(void *state, void *data, int64_t count, tn_dtype dtype, char why[TN_WHY])
{
    (void)data; (void)why;
    asked.what = state == NULL;
    asked.count = count;
    asked.dtype = dtype;
    return TN_OK;
}

static tn_status own_scatter(void *state, void *data, int64_t count, tn_dtype dtype, char why[TN_WHY])
{
    own_reduce(state, data, count, dtype, why);
    asked.what = 2;
    return TN_OK;
}

static tn_status own_gather(void *state, void *data, size_t bytes, char why[TN_WHY])
{
    own_reduce(state, data, (int64_t)bytes, TN_REAL, why);
    asked.what = 3;
    return TN_OK;
}

static tn_status own_broadcast(void *state, void *data, size_t bytes, int root, char why[TN_WHY])
{
    own_reduce(state, data, (int64_t)bytes, TN_REAL, why);
    asked.what = 4;
    asked.root = root;
    return TN_OK;
}

TEST(a_carrier_with_collectives_of_its_own)
{
    const int64_t n = 12;
    double        some[8193] = {0};
    tn_desc       d = ZERO;
    tn_comm       k = ZERO;
    tn_ctx       *ctx;
    k.abi = TN_COMM_ABI;
    k.name = "own";
    k.rank = 1;
    k.size = 3;
    k.device = true;
    k.all_reduce = own_reduce;
    k.reduce_scatter = own_scatter;
    k.all_gather = own_gather;
    k.broadcast = own_broadcast;
    d.comm = &k;
    d.backend = sealed_reference();
    REQUIRE(CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK));
    tn_tensor *t = tn_tensor_create(ctx, TN_F32, 1, &n);
    CHECK_STATUS(tn_comm_all_reduce(t), TN_OK);
    CHECK(asked.what == 1 && asked.count == 12 && asked.dtype == TN_F32);
    CHECK_INT(tn_ctx_traffic(ctx).bytes, 2 * 32);
    CHECK_STATUS(tn_comm_reduce_scatter(t), TN_OK);
    CHECK(asked.what == 2 && asked.count == 4 && asked.dtype == TN_F32);
    CHECK_INT(tn_ctx_traffic(ctx).bytes, 3 * 32);
    CHECK_STATUS(tn_comm_all_gather(t), TN_OK);
    CHECK(asked.what == 3 && asked.count == 16);
    CHECK_INT(tn_ctx_traffic(ctx).bytes, 4 * 32);
    CHECK_STATUS(tn_comm_broadcast(t, 2), TN_OK);
    CHECK(asked.what == 4 && asked.count == 48 && asked.root == 2);
    CHECK_INT(tn_ctx_traffic(ctx).bytes, 4 * 32 + 48);
    CHECK_INT(tn_ctx_traffic(ctx).calls, 4);
    CHECK_STATUS(tn_comm_sum(ctx, some, 8192), TN_OK);
    CHECK(asked.what == 1 && asked.count == 8192 && asked.dtype == TN_F64);
    FAILS(ctx, tn_comm_sum(ctx, some, 8193), TN_ERR_ARG, "comm: 65544 bytes of numbers, expected at most 65536");
    tn_ctx_destroy(ctx);
    k.size = 4096;                                          /* what each of so many tells all others has room */
    REQUIRE(CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK));
    CHECK_STATUS(tn_comm_sum(ctx, some, 8193), TN_OK);
    tn_ctx_destroy(ctx);
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
    tn_desc       d = ZERO;
    tn_comm       k = ZERO;
    tn_ctx       *ctx;
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
    tn_tensor *t = tn_tensor_create(ctx, TN_REAL, 2, shape);
    FAILS(ctx, tn_comm_all_reduce(t), TN_ERR_COMM, "comm own, rank 0: rank 1 is at lunch");
    CHECK_STATUS(tn_comm_all_gather(t), TN_ERR_SHAPE);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "comm_all_gather: t is [3,4], expected a first axis that 2 processes can divide");
    FAILS(ctx, tn_comm_broadcast(t, 2), TN_ERR_ARG, "comm_broadcast: root is 2, expected 0 <= root < 2");
    CHECK_STATUS(tn_comm_all_reduce(tn_transpose(t, 0, 1)), TN_ERR_DTYPE);
    CHECK_ERROR(ctx, TN_ERR_DTYPE, "comm_all_reduce: t is F32 [4,3], expected a contiguous tensor of F32, F64 or I32");
    CHECK_STATUS(tn_comm_all_reduce(NULL), TN_ERR_ARG);
    FAILS(ctx, tn_comm_sum(ctx, NULL, 1), TN_ERR_ARG, "comm_sum: 1 numbers at NULL, expected 0 or more");
    CHECK(!tn_graph_supported(ctx));
    CHECK_INT(tn_comm_size(NULL), 1);
    tn_ctx_destroy(ctx);
}

/* The quickest first: most of what is wrong they find. */
TEST_MAIN(sums_in_the_order_of_ranks, memory_of_a_device_goes_through_the_host, a_process_sends_what_a_ring_would,
          random_numbers_by_position_in_the_batch, processes_have_to_make_the_same_calls, a_collective_writes_like_any_other,
          a_carrier_with_collectives_of_its_own, a_carrier_is_checked, a_gradient_that_one_process_lacks_counts_as_zeros,
          a_step_sends_what_the_formula_says, matrices_are_divided_evenly, buckets_are_sent_while_the_backward_pass_goes_on,
          a_checkpoint_of_parts_is_that_of_the_whole, a_checkpoint_of_parts_over_every_carrier,
          a_checkpoint_that_fails_fails_for_all, a_file_is_replaced_when_all_have_sent,
          moments_that_a_process_lacks_are_not_waited_for, a_process_is_killed_in_a_checkpoint,
          a_checkpoint_that_cannot_be_read_changes_nothing, a_checkpoint_has_the_moments_of_the_rule_that_made_them,
          an_error_of_one_process_is_everybodys, a_fault_in_one_part_stops_all, moments_can_be_shared, parameters_in_bf16,
          curves_do_not_depend_on_the_number_of_processes, buckets_of_any_size_have_the_same_curve, overlap_does_not_change_a_bit,
          the_end_of_a_process_is_noticed_before_all_have_met, numbers_of_the_environment_are_whole,
          a_folder_that_others_may_enter_is_refused, files_in_the_folder_are_kept, an_empty_variable_is_not_set,
          a_silent_connection_delays_nobody, jobs_do_not_mix, sums_beyond_32_bits,
          parameters_destroyed_before_they_are_sent, nobody_waits_for_a_process_that_was_killed)
#else
#include "test.h"
TEST(processes) { SKIP("fork", "many processes, on a system without fork"); }
TEST_MAIN(processes)
#endif
