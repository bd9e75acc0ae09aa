/* The state of the cuda backend apart from computing: collected calls, errors and where they are reported, and memory that
   is released while a graph is captured. With calls of the backend itself. */

#if !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE                          /* setenv */
#endif
#include "test.h"
#ifdef TN_CUDA_HOST
#include "control.h"
#endif

/* A state, and the memory of its views: what a test does not free is freed when the state is closed. */
typedef struct world { const tn_backend *table; void *state, *memory[16]; int count; test_heap heap; } world;

/* What the state has logged last, and how many lines that say that cublasLt computes a product, and that it fails */
static char logged[1024];
static int  by_lt, without_lt;
static void keep_log(void *user, tn_log_level level, const char *message)
{
    (void)user;
    by_lt += strstr(message, "the first product by cublasLt") != NULL;
    without_lt += level == TN_LOG_WARN && strstr(message, "cublasLt fails") != NULL;
    snprintf(logged, sizeof logged, "%d %s", (int)level, message);
}

static bool open_world(world *w, char why[256])
{
    tn_desc d = ZERO;
    d.log = keep_log;
    logged[0] = 0;
    by_lt = without_lt = 0;
    memset(w, 0, sizeof *w);
    d.allocator = test_heap_allocator(&w->heap);
    w->table = tn_cuda_backend();
    return w->table->open(&d, &w->state, why) == TN_OK;
}

static void close_state(world *w)
{
    while (w->count > 0) w->table->release(w->state, w->memory[--w->count], 0);
    w->table->close(w->state);
    CHECK_INT(w->heap.live, 0);
}

static void close_world(world *w)
{
    close_state(w);
#ifdef TN_CUDA_HOST
    CHECK(tnch_memory_in_use() == 0);
#endif
}

/* Streams run late, or again as the environment says. */
static void run_late(bool late)
{
#ifdef TN_CUDA_HOST
    const char *always = getenv("TNCH_LAZY");
    tnch_set_lazy(late || (always && atoi(always)));
#else
    (void)late;
#endif
}

#define NEED_WORLD(w) do { char why_[256] = ""; if (!open_world(w, why_)) NO_GPU(why_); } while (0)

/* A list of views: inputs first, then outputs. */
static tn_call call_of(tn_kernel kernel, int n_in, int n_out, const tn_view *v)
{
    tn_call c = ZERO;
    c.kernel = kernel;
    c.n_in = n_in;
    c.n_out = n_out;
    for (int i = 0; i < n_in; i++) c.in[i] = *v++;
    for (int i = 0; i < n_out; i++) c.out[i] = *v++;
    return c;
}

static tn_status run(world *w, const tn_call *c) { return w->table->fn[c->kernel](w->state, c); }
static tn_status sync(world *w, char why[256]) { why[0] = 0; return w->table->sync(w->state, why); }

/* [a], [a,b], ... of n numbers; all of them are `value` if no numbers are given */
static tn_view view_of(world *w, tn_dtype dtype, int rank, const int64_t *shape, double value)
{
    tn_view v = ZERO;
    int64_t n = 1;
    v.dtype = dtype;
    v.rank = rank;
    for (int i = rank - 1; i >= 0; n *= shape[i--]) {
        v.shape[i] = shape[i];
        v.strides[i] = n;
    }
    v.data = w->table->alloc(w->state, (size_t)(n > 0 ? n : 1) * 8);
    if (!CHECK(v.data != NULL) || !CHECK(w->count < (int)(sizeof w->memory / sizeof *w->memory))) return v;
    w->memory[w->count++] = v.data;
    tn_call c = call_of(TN_KERNEL_FILL, 0, 1, &v);
    c.f[0] = value;
    if (n > 0) CHECK_STATUS(run(w, &c), TN_OK);
    return v;
}

static tn_view line_of(world *w, tn_dtype dtype, int64_t n, double value) { return view_of(w, dtype, 1, &n, value); }

static void drop(world *w, tn_view v)
{
    int i = 0;
    while (i < w->count && w->memory[i] != v.data) i++;
    if (!CHECK(i < w->count)) return;
    w->memory[i] = w->memory[--w->count];
    w->table->release(w->state, v.data, 0);
}

/* n x n of 1 times n x n of 2, which are rounded in scratch. */
static tn_call product_of(world *w, int64_t n)
{
    const int64_t shape[3] = {1, n, n};
    tn_view       v[3];
    v[0] = view_of(w, TN_BF16, 3, shape, 1);
    v[1] = view_of(w, TN_F32, 3, shape, 2);
    v[2] = view_of(w, TN_F32, 3, shape, 0);
    tn_call c = call_of(TN_KERNEL_GEMM, 2, 1, v);
    c.f[0] = 1;
    return c;
}

/* ---- collected calls -------------------------------------------------------------------------------------------------- */

/* Two steps of one parameter run in order, although calls of one kind run together. */
static void step_twice(void)
{
    enum { N = 20000 };
    static float got[N];
    const float  scalars[8] = {0.5f, 1, 0, 1, 0, 0, 0, 1};
    world        w;
    tn_view      v[4];                                  /* scalars; parameter, gradient, moment */
    int64_t      i;
    NEED_WORLD(&w);
    v[0] = line_of(&w, TN_F32, 8, 0);
    v[1] = line_of(&w, TN_F32, N, 1);
    v[2] = line_of(&w, TN_F32, N, 2);
    v[3] = line_of(&w, TN_F32, N, 0);
    CHECK_STATUS(w.table->upload(w.state, v[0].data, scalars, sizeof scalars), TN_OK);
    tn_call c = call_of(TN_KERNEL_SGD, 1, 3, v);
    c.f[0] = 0.5;
    c.f[4] = 1;
    CHECK_STATUS(run(&w, &c), TN_OK);                   /* m = 2, p = 1 - 0.5 * 2 = 0 */ c.f[4] = 4;
    CHECK_STATUS(run(&w, &c), TN_OK);                   /* m = 3, p = 0 - 2 * 3 = -6; the other way around -4.5 */
    CHECK_STATUS(w.table->download(w.state, got, v[1].data, sizeof got), TN_OK);
    for (i = 0; i < N && got[i] == -6; i++) {}
    CHECK_INT(i, N);
    close_world(&w);
}

TEST(two_steps_of_one_parameter)
{
#ifdef TN_CUDA_HOST
    for (int order = 0; order < 3; order++) {
        tnch_set_order((tnch_order)order, 3);
        step_twice();
    }
    tnch_set_order(TNCH_FORWARD, 0);
#else
    step_twice();
#endif
}

/* Parameters without elements need no scratch, and there is none yet. */
TEST(parameters_of_nothing)
{
    world   w;
    tn_view v[3];                                       /* gradient; scalars, fault word */
    char    why[256];
    NEED_WORLD(&w);
    v[0] = line_of(&w, TN_F32, 0, 0);
    v[1] = line_of(&w, TN_F32, 8, 0);
    v[2] = line_of(&w, TN_I32, 4, 0);
    tn_call c = call_of(TN_KERNEL_SUMSQ, 1, 2, v);
    CHECK_STATUS(run(&w, &c), TN_OK);
    CHECK_STATUS(sync(&w, why), TN_OK);
    close_world(&w);
}

/* ---- numbers at the ends of their range ------------------------------------------------------------------------------- */

/* y = M0 M1 / |M0 M1| with M = 3e-38 I, 64 x 64: |dM| is 1e37, but the square of its factor e^(scale/2) overflows. */
TEST(chain_of_the_smallest)
{
    enum { D = 64, DD = D * D };
    static float m[2 * DD], dy[DD + 1], got[2 * DD];
    const int64_t four[4] = {1, 2, D, D}, two[2] = {1, DD + 1}, each[2] = {1, 2}, room[3] = {1, 4, DD};
    world         w;
    tn_call       c;
    int           i;
    NEED_WORLD(&w);
    for (i = 0; i < 2 * DD; i++) m[i] = i % DD % (D + 1) == 0 ? 3e-38f : 0;
    for (i = 0; i < DD; i++) dy[i] = i == 1 ? 640.0f : 0;          /* one element off the diagonal: the norm does not change */
    dy[DD] = 0;
    tn_view M = view_of(&w, TN_F32, 4, four, 0);
    tn_view p = view_of(&w, TN_F32, 4, four, 0);
    tn_view dm = view_of(&w, TN_F32, 4, four, 0);
    tn_view v = view_of(&w, TN_F32, 2, each, 0);
    tn_view y = view_of(&w, TN_F32, 2, two, 0);
    tn_view work = view_of(&w, TN_F32, 3, room, 0);
    w.table->upload(w.state, M.data, m, sizeof m);
    {
        const tn_view forward[5] = {M, y, p, v, work};
        c = call_of(TN_KERNEL_CHAIN, 1, 4, forward);
        CHECK_STATUS(run(&w, &c), TN_OK);
    }
    w.table->upload(w.state, y.data, dy, sizeof dy);
    {
        const tn_view backward[6] = {M, p, v, y, dm, work};
        c = call_of(TN_KERNEL_CHAIN_BACKWARD, 4, 2, backward);
        CHECK_STATUS(run(&w, &c), TN_OK);
    }
    CHECK_STATUS(w.table->download(w.state, got, dm.data, sizeof got), TN_OK);
    for (i = 0; i < 2 * DD; i++) {                                  /* dM_j = dy / (8 * 3e-38) for both */
        const double want = i % DD == 1 ? 640 / (8 * 3e-38) : 0;
        if (want > 3e38 ? !(got[i] > 3e38f) : !(fabs(got[i] - want) <= 1e-4 * want)) break;
    }
    if (!CHECK_INT(i, 2 * DD)) printf("     dm[%d] is %g\n", i, (double)got[i]);
    close_world(&w);
}

/* ---- errors: reported once, with what was done ------------------------------------------------------------------------ */

TEST(an_error_is_told_once)
{
    world w;
    char  why[256];
    float v = 0;
    NEED_WORLD(&w);
    tn_view x = line_of(&w, TN_F32, 1, 3);
    CHECK_STATUS(w.table->replay(w.state, NULL), TN_ERR_BACKEND);           /* no such graph: the device stays usable */
    CHECK_STATUS(sync(&w, why), TN_ERR_BACKEND);
    if (!CHECK(strstr(why, "replay: ") == why)) printf("     %s\n", why);
    CHECK_STATUS(sync(&w, why), TN_OK);
    CHECK_STATUS(w.table->download(w.state, &v, x.data, sizeof v), TN_OK);
    CHECK(v == 3);
    close_world(&w);
}

#ifdef TN_CUDA_HOST
/* A kernel faults; the next call needs scratch, or is refused. The fault is reported, then and in all later calls. */
TEST(a_fault_is_all_that_is_told)
{
    for (int lazy = 0; lazy < 2; lazy++)
        for (int refused = 0; refused < 2; refused++) {
            world w;
            char  why[256], again[256];
            tnch_set_lazy(lazy);
            NEED_WORLD(&w);
            tn_call next = product_of(&w, 64);
            CHECK_STATUS(run(&w, &next), TN_OK);
            next = product_of(&w, 128);
            tn_call fill = call_of(TN_KERNEL_FILL, 0, 1, next.out);
            tn_view b = next.in[1];
            CHECK_STATUS(sync(&w, why), TN_OK);
            if (refused) {
                memset(&next, 0, sizeof next);
                next.kernel = TN_KERNEL_ATTENTION_LINEAR;
                next.n_in = next.n_out = 3;
                next.in[0] = next.in[1] = next.in[2] = next.out[0] = b;
                next.in[0].rank = next.in[1].rank = next.in[2].rank = 4;
                next.in[0].strides[3] = next.in[1].shape[3] = next.in[1].strides[3] = 1;
                next.in[2].shape[3] = next.in[2].strides[3] = 1;
                next.in[0].shape[3] = (int64_t)1 << 31;
            }
            tnch_fail_launch(1);
            CHECK_STATUS(run(&w, &fill), lazy ? TN_OK : TN_ERR_BACKEND);
            CHECK(run(&w, &next) != TN_OK);
            CHECK_STATUS(sync(&w, why), TN_ERR_BACKEND);
            if (!CHECK(strstr(why, "illegal memory access") != NULL)) printf("     %s\n", why);
            CHECK_STATUS(run(&w, &next), TN_ERR_BACKEND);
            CHECK_STATUS(sync(&w, again), TN_ERR_BACKEND);
            CHECK_STR(again, why);
            w.table->close(w.state);
            CHECK_INT(w.heap.live, 0);
            tnch_clear();
        }
    run_late(false);
}
#else
TEST(a_fault_is_all_that_is_told) { SKIP("the engine", "a GPU does not fault when asked to"); }
#endif

/* ---- graphs ----------------------------------------------------------------------------------------------------------- */

static void *capture(world *w, const tn_call *c)
{
    void *graph = NULL;
    char  why[256] = "";
    if (!CHECK_STATUS(w->table->capture_begin(w->state, why), TN_OK)) printf("     %s\n", why);
    CHECK_STATUS(run(w, c), TN_OK);
    if (!CHECK_STATUS(w->table->capture_end(w->state, &graph, why), TN_OK)) printf("     %s\n", why);
    return graph;
}

/* A call that cannot be captured, and a capture inside a capture: reported at once, with its status, and never again. */
TEST(a_capture_tells_at_once)
{
    world w;
    void *graph = NULL;
    char  why[256] = "";
    NEED_WORLD(&w);
    tn_call c = product_of(&w, 64);
    for (int turn = 0; turn < 2; turn++) {
        CHECK_STATUS(w.table->capture_begin(w.state, why), TN_OK);
        if (turn == 0) {
            CHECK_STATUS(run(&w, &c), TN_ERR_MEMORY);
            CHECK_STATUS(sync(&w, why), TN_ERR_MEMORY);
            if (!CHECK(strstr(why, "bytes of scratch are needed: it has 0 and cannot grow") != NULL)) printf("     %s\n", why);
        } else {
            CHECK_STATUS(w.table->capture_begin(w.state, why), TN_ERR_BACKEND);
            if (!CHECK(strstr(why, "capture: the stream: ") == why)) printf("     %s\n", why);
        }
        CHECK_STATUS(sync(&w, why), TN_OK);
        if (w.table->capture_end(w.state, &graph, why) == TN_OK) w.table->graph_release(w.state, graph);
        else CHECK(turn == 1 && strstr(why, "capture: the graph: ") == why);
        CHECK_STATUS(sync(&w, why), TN_OK);
    }
    CHECK_STATUS(run(&w, &c), TN_OK);
    CHECK_STATUS(sync(&w, why), TN_OK);
    close_world(&w);
}

/* A graph is released while its last replay is still running. */
TEST(a_graph_goes_when_it_has_run)
{
    world w;
    float v = 0;
    run_late(true);
    NEED_WORLD(&w);
    tn_call c = product_of(&w, 64);
    CHECK_STATUS(run(&w, &c), TN_OK);
    c.f[1] = 1;
    void *graph = capture(&w, &c);
    CHECK_STATUS(w.table->replay(w.state, graph), TN_OK);
    w.table->graph_release(w.state, graph);
    CHECK_STATUS(w.table->download(w.state, &v, c.out[0].data, sizeof v), TN_OK);
    if (!CHECK(v == 256)) printf("     %g\n", (double)v);
    close_world(&w);
    run_late(false);
}

/* While one graph is captured, memory is released, and so is another graph whose scratch has moved since. */
TEST(memory_during_a_capture)
{
    world w;
    void *second = NULL;
    char  why[256] = "";
    float v[2] = {0, 0};
    NEED_WORLD(&w);
    tn_call small = product_of(&w, 64);
    tn_call large = product_of(&w, 128);
    tn_view spare = line_of(&w, TN_F32, 100, 0);
    CHECK_STATUS(run(&w, &small), TN_OK);
    void *first = capture(&w, &small);
    CHECK_STATUS(run(&w, &large), TN_OK);                            /* more scratch: the old one is kept for the graph */
    CHECK_STATUS(w.table->replay(w.state, first), TN_OK);
    CHECK_STATUS(w.table->capture_begin(w.state, why), TN_OK);
    drop(&w, spare);
    w.table->graph_release(w.state, first);
    CHECK_STATUS(run(&w, &large), TN_OK);
    if (!CHECK_STATUS(w.table->capture_end(w.state, &second, why), TN_OK)) printf("     %s\n", why);
    if (second) {
        CHECK_STATUS(w.table->replay(w.state, second), TN_OK);
        CHECK_STATUS(w.table->download(w.state, &v[0], small.out[0].data, sizeof v[0]), TN_OK);
        CHECK_STATUS(w.table->download(w.state, &v[1], large.out[0].data, sizeof v[1]), TN_OK);
        CHECK(v[0] == 128 && v[1] == 256);
        w.table->graph_release(w.state, second);
    }
    close_world(&w);
}

/* cudaMalloc would spoil the capture: the backend refuses, says so with the number of bytes, and the capture goes on. */
TEST(an_allocation_during_a_capture)
{
    world w;
    void *graph = NULL;
    char  why[256] = "";
    float v = 0;
    NEED_WORLD(&w);
    tn_call c = product_of(&w, 64);
    CHECK_STATUS(run(&w, &c), TN_OK);
    CHECK_STATUS(w.table->capture_begin(w.state, why), TN_OK);
    CHECK(w.table->alloc(w.state, 12345) == NULL);
    CHECK_STATUS(sync(&w, why), TN_ERR_MEMORY);
    if (!CHECK(strstr(why, "a capture cannot allocate: 12345 bytes") != NULL)) printf("     %s\n", why);
    CHECK_STATUS(run(&w, &c), TN_OK);
    if (!CHECK_STATUS(w.table->capture_end(w.state, &graph, why), TN_OK)) printf("     %s\n", why);
    if (graph) {
        CHECK_STATUS(w.table->replay(w.state, graph), TN_OK);
        CHECK_STATUS(w.table->download(w.state, &v, c.out[0].data, sizeof v), TN_OK);
        CHECK(v == 128);
        w.table->graph_release(w.state, graph);
    }
    close_world(&w);
}

/* Released memory is still read by a running kernel: another state, with its own stream, gets that memory and writes to
   it. */
TEST(memory_given_back_is_read_no_more)
{
    enum { N = 1 << 20 };
    world   w, other;
    tn_view xy[2];
    char    why[256];
    float   v = 0;
    run_late(true);
    NEED_WORLD(&w);
    NEED_WORLD(&other);
    xy[0] = line_of(&w, TN_F32, N, 1);
    xy[1] = line_of(&w, TN_F32, N, 2);
    CHECK_STATUS(sync(&w, why), TN_OK);
    tn_call c = call_of(TN_KERNEL_COPY, 1, 1, xy);
    CHECK_STATUS(run(&w, &c), TN_OK);
    drop(&w, xy[0]);
    line_of(&other, TN_F32, N, 3);
    CHECK_STATUS(sync(&other, why), TN_OK);
    CHECK_STATUS(w.table->download(w.state, &v, (float *)xy[1].data + N - 1, sizeof v), TN_OK);
    if (!CHECK(v == 1)) printf("     %g\n", (double)v);
    close_state(&other);
    close_world(&w);
    run_late(false);
}

/* One row of logits 1 with the label 5, and its gradient, which is out[3]. */
static tn_call loss_of(world *w, int64_t classes)
{
    const int64_t shape[2] = {1, classes};
    tn_view       v[6];
    v[0] = view_of(w, TN_F32, 2, shape, 1);
    v[1] = line_of(w, TN_I32, 1, 5);
    v[2] = view_of(w, TN_F32, 0, shape, 0);
    v[3] = line_of(w, TN_F32, 1, 0);
    v[4] = line_of(w, TN_I32, 4, 0);
    v[5] = view_of(w, TN_F32, 2, shape, 7);
    return call_of(TN_KERNEL_CROSS_ENTROPY, 2, 4, v);
}

/* One kernel twice in a graph, first with much shared memory, then with little: the limit of a kernel holds at the capture,
   when the graph is instantiated, and wherever another thread launches it. */
TEST(much_shared_memory_and_little)
{
    world   w;
    tn_call l[2];
    void   *graph = NULL;
    char    why[256] = "";
    NEED_WORLD(&w);
    l[0] = loss_of(&w, 16384);
    l[1] = loss_of(&w, 64);
    for (int i = 0; i < 2; i++) CHECK_STATUS(run(&w, &l[i]), TN_OK);
    CHECK_STATUS(w.table->capture_begin(w.state, why), TN_OK);
    for (int i = 0; i < 2; i++) CHECK_STATUS(run(&w, &l[i]), TN_OK);
    if (!CHECK_STATUS(w.table->capture_end(w.state, &graph, why), TN_OK)) printf("     %s\n", why);
    for (int turn = 0; turn < 2 && graph; turn++) {
        CHECK_STATUS(w.table->replay(w.state, graph), TN_OK);
        for (int i = 0; i < 2; i++) {
            const float each = 1 / (float)l[i].in[0].shape[1];
            float       got[6] = {0};
            CHECK_STATUS(w.table->download(w.state, got, l[i].out[3].data, sizeof got), TN_OK);
            CHECK(fabsf(got[4] - each) <= 1e-5f * each && fabsf(got[5] + 1 - each) <= 1e-5f);
        }
    }
    if (graph) w.table->graph_release(w.state, graph);
    close_world(&w);
}

/* What a kernel may use is asked for once, and not before each launch. */
TEST(shared_memory_is_asked_for_once)
{
#ifdef TN_CUDA_HOST
    world w;
    NEED_WORLD(&w);
    tn_call large = loss_of(&w, 16384);
    tn_call little = loss_of(&w, 64);
    uint64_t before = tnch_questions();
    CHECK_STATUS(run(&w, &little), TN_OK);
    CHECK_INT(tnch_questions() - before, 0);
    for (int i = 0; i < 3; i++) CHECK_STATUS(run(&w, &large), TN_OK);
    CHECK_INT(tnch_questions() - before, 1);
    close_world(&w);
#else
    SKIP("the engine", "a GPU does not count questions");
#endif
}

/* ---- where cuBLAS is found ------------------------------------------------------------------------------------------- */

#ifdef TN_CUDA_HOST
/* On the engine the name is libtnch_cublas.so. Some library that can be opened stands for it: the C library's own mathematics,
   copied to ROOT/WITHIN, which begins to exist. */
static bool put_library(const char *root, const char *within)
{
    char   line[1024], from[1024] = "", path[2 * TEST_PATH], *at;
    char   bytes[4096];
    size_t n;
    FILE  *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if ((at = strchr(line, '/')) != NULL && strstr(at, "/libm.") && sscanf(at, "%1000s", from) == 1) break;
    if (maps) fclose(maps);
    snprintf(path, sizeof path, "mkdir -p '%s/%s'", root, within);
    if (!from[0] || !CHECK(system(path) == 0)) return false;
    snprintf(path, sizeof path, "%s/%s/libtnch_cublas.so", root, within);
    FILE *in = fopen(from, "rb"), *out = fopen(path, "wb");
    if (!CHECK(in && out)) return false;
    while ((n = fread(bytes, 1, sizeof bytes, in)) > 0) CHECK(fwrite(bytes, 1, n, out) == n);
    fclose(in);
    fclose(out);
    return true;
}

/* With the variable NAME set to ROOT, the log names ROOT/WITHIN. */
static void finds_cublas(const char *name, const char *within)
{
    const char *was = getenv(name);
    char        root[TEST_PATH], kept[1024] = "", expected[2 * TEST_PATH];
    world       w;
    if (was) snprintf(kept, sizeof kept, "%s", was);
    snprintf(root, sizeof root, "%s/cublas", test_folder());
    snprintf(expected, sizeof expected, "/%s/libtnch_cublas.so", within);
    setenv(name, root, 1);
    if (put_library(root, within) && CHECK(open_world(&w, (char[256]){0}))) {
        if (!CHECK(strncmp(logged, "0 cuBLAS: 13.", 13) == 0 && strstr(logged, expected))) printf("     %s, not %s\n", logged, expected);
        close_world(&w);
    }
    if (was) setenv(name, kept, 1); else unsetenv(name);
    snprintf(expected, sizeof expected, "rm -r '%s'", root);
    CHECK(system(expected) == 0);
}
#endif

TEST(where_cublas_is_found)
{
#ifdef TN_CUDA_HOST
    world w;
    NEED_WORLD(&w);
    close_world(&w);
    if (!CHECK(strncmp(logged, "0 cuBLAS: 13.2.3 from ", 22) == 0)) printf("     %s\n", logged);
    finds_cublas("CUDA_HOME", "lib64");
    finds_cublas("CUDA_HOME", "lib");
#ifdef __x86_64__
    finds_cublas("CUDA_HOME", "targets/x86_64-linux/lib");
#endif
    finds_cublas("VIRTUAL_ENV", "lib/python3.12/site-packages/nvidia/cu13/lib");
    finds_cublas("CONDA_PREFIX", "lib/python3.9/site-packages/nvidia/cublas/lib");
    finds_cublas("HOME", ".local/lib/python3.12/site-packages/nvidia/cu13/lib");
    tnch_set_cublas(0);
    CHECK(open_world(&w, (char[256]){0}));
    if (!CHECK(strncmp(logged, "1 cuBLAS: ", 10) == 0 && strstr(logged, "without tensor cores"))) printf("     %s\n", logged);
    close_world(&w);
    tnch_set_cublas(1);
#else
    SKIP("the engine", "it stands in for cuBLAS");
#endif
}

/* ---- plans of cublasLt ------------------------------------------------------------------------------------------------ */

/* C [rows,columns] = A B + C + bias: A is 1, B 2, C 3, bias 4. */
static tn_call biased(world *w, tn_dtype dtype, int64_t rows, int64_t columns)
{
    const int64_t a[3] = {1, rows, 8}, b[3] = {1, 8, columns}, c[3] = {1, rows, columns};
    tn_view       v[4];
    v[0] = view_of(w, dtype, 3, a, 1);
    v[1] = view_of(w, dtype, 3, b, 2);
    v[2] = line_of(w, TN_F32, columns, 4);
    v[3] = view_of(w, dtype, 3, c, 3);
    tn_call call = call_of(TN_KERNEL_GEMM, 3, 1, v);
    call.f[0] = call.f[1] = 1;
    return call;
}

/* What C is after so many of these products. */
static void check_biased(world *w, const tn_call *c, int times)
{
    static char    bytes[4 * 4096];
    const tn_view *y = &c->out[0];
    const int64_t  n = y->shape[1] * y->shape[2];
    const bool     bf16 = y->dtype == TN_BF16;
    REQUIRE(n <= 4096);
    CHECK_STATUS(w->table->download(w->state, bytes, y->data, (size_t)(n * (bf16 ? 2 : 4))), TN_OK);
    for (int64_t i = 0; i < n; i++) {
        uint16_t half;
        float    value;
        memcpy(&half, bytes + 2 * i, 2);
        uint32_t word = (uint32_t)half << 16;
        memcpy(&value, bf16 ? (char *)&word : bytes + 4 * i, 4);
        if (!CHECK_NEAR(value, 3 + 20 * times, 0)) return;
    }
}

static void drop_call(world *w, const tn_call *c)
{
    for (int i = 0; i < c->n_in; i++) drop(w, c->in[i]);
    drop(w, c->out[0]);
}

/* A state that has found cublasLt uses it, and says so once, on a GPU too. There its failure, which is not told otherwise, would be
   hidden by cublasGemmEx. */
TEST(the_first_product_by_cublaslt)
{
    static const tn_dtype dtype[] = {TN_F32, TN_BF16};
    world w;
    NEED_WORLD(&w);
    bool found = strstr(logged, "with cublasLt") != NULL;
    for (int i = 0; i < 2; i++) {
        tn_call c = biased(&w, dtype[i], 64, 64);
        for (int n = 0; n < 2; n++) CHECK_STATUS(run(&w, &c), TN_OK);
        check_biased(&w, &c, 2);
        drop_call(&w, &c);
        CHECK_INT(by_lt, found ? 1 : 0);
        CHECK_INT(without_lt, 0);
    }
    close_world(&w);
}

/* A shape is asked for once, and not again by a graph; the bias and the old C need no kernel. What cublasLt lacks, which the
   engine makes up for odd numbers of columns, is computed otherwise, and so is everything without cublasLt. */
TEST(plans_of_products)
{
#ifdef TN_CUDA_HOST
    static const struct { tn_dtype dtype; int64_t columns; int launches, questions; } calls[] = {
        {TN_F32, 16, 0, 1}, {TN_F32, 15, 1, 2},             /* 1: the bias is added */
        {TN_BF16, 16, 1, 1}, {TN_BF16, 15, 3, 2} };         /* 1: the bias becomes BF16; 3: so in two parts, and is added */
    const char *was = getenv("TN_CUBLASLT");
    char        kept[64] = "", why[256] = "";
    world       w;
    if (was) snprintf(kept, sizeof kept, "%s", was);
    unsetenv("TN_CUBLASLT");
    NEED_WORLD(&w);
    CHECK(strstr(logged, "with cublasLt 13.") != NULL);
    for (int i = 0; i < (int)(sizeof calls / sizeof *calls); i++) {
        tn_call        c = biased(&w, calls[i].dtype, 24, calls[i].columns);
        const uint64_t questions = tnch_lt_questions(), products = tnch_lt_products();
        CHECK_STATUS(sync(&w, why), TN_OK);                 /* streams may run late */ uint64_t launches = tnch_launches();
        for (int n = 0; n < 3; n++) CHECK_STATUS(run(&w, &c), TN_OK);
        CHECK_STATUS(sync(&w, why), TN_OK);
        CHECK_INT(tnch_lt_questions() - questions, calls[i].questions);
        CHECK_INT(tnch_lt_products() - products, 3);
        CHECK_INT(tnch_launches() - launches, 3 * calls[i].launches);
        check_biased(&w, &c, 3);
        drop_call(&w, &c);
    }
    /* F32, and a result in BF16: its sums are cuBLAS's, too, and rounded afterwards */
    {
        tn_call        c = biased(&w, TN_F32, 24, 16);
        const uint64_t own = tnch_launches_of("tnc_gemm_kernel");
        c.out[0].dtype = TN_BF16;
        c.f[1] = 0;
        CHECK_STATUS(run(&w, &c), TN_OK);
        CHECK_STATUS(sync(&w, why), TN_OK);
        CHECK_INT(tnch_launches_of("tnc_gemm_kernel") - own, 0);
        drop_call(&w, &c);
    }
    /* a product of a vector, for which cublasGemmEx has kernels */
    {
        tn_call        c = biased(&w, TN_F32, 1, 16);
        const uint64_t products = tnch_lt_products();
        CHECK_STATUS(run(&w, &c), TN_OK);
        CHECK_INT(tnch_lt_products() - products, 0);
        check_biased(&w, &c, 1);
        drop_call(&w, &c);
    }
    /* a shape that is met in a capture first */
    {
        tn_call  c = biased(&w, TN_F32, 26, 16);
        void    *graph = NULL;
        uint64_t questions = tnch_lt_questions();
        CHECK_STATUS(w.table->capture_begin(w.state, why), TN_OK);
        CHECK_STATUS(run(&w, &c), TN_OK);
        if (!CHECK_STATUS(w.table->capture_end(w.state, &graph, why), TN_OK)) printf("     %s\n", why);
        CHECK_INT(tnch_lt_questions() - questions, 1);
        for (int n = 0; n < 2 && graph; n++) CHECK_STATUS(w.table->replay(w.state, graph), TN_OK);
        CHECK_INT(tnch_lt_questions() - questions, 1);
        check_biased(&w, &c, 2);
        if (graph) w.table->graph_release(w.state, graph);
        drop_call(&w, &c);
    }
    /* more shapes than are kept: the first is asked for again, the last is not */
    {
        uint64_t questions = tnch_lt_questions();
        for (int n = 0; n < 302; n++) {
            tn_call c = biased(&w, TN_F32, n < 300 ? 30 + n : n == 300 ? 30 + 299 : 30, 8);
            CHECK_STATUS(run(&w, &c), TN_OK);
            check_biased(&w, &c, 1);
            drop_call(&w, &c);
        }
        CHECK_INT(tnch_lt_questions() - questions, 301);
    }
    close_world(&w);

    for (int i = 0; i < 2; i++) {
        if (i == 0) setenv("TN_CUBLASLT", "0", 1);
        else tnch_set_cublas_lt(0);
        NEED_WORLD(&w);
        CHECK(strncmp(logged, "0 cuBLAS: 13.", 13) == 0 && strstr(logged, "without cublasLt"));
        tn_call c = biased(&w, TN_BF16, 24, 16);
        uint64_t products = tnch_lt_products();
        CHECK_STATUS(run(&w, &c), TN_OK);
        CHECK_INT(tnch_lt_products() - products, 0);
        check_biased(&w, &c, 1);
        close_world(&w);
        unsetenv("TN_CUBLASLT");
    }

    /* cublasLt refuses to make layouts, or to multiply: another way computes the products, and the log says so once */
    for (int i = 2; i < 4; i++) {
        const uint64_t products = tnch_lt_products();
        tnch_set_cublas_lt(i);
        NEED_WORLD(&w);
        CHECK(strstr(logged, "with cublasLt 13.") != NULL);
        tn_call c = biased(&w, TN_F32, 24, 16);
        for (int n = 0; n < 2; n++) CHECK_STATUS(run(&w, &c), TN_OK);
        check_biased(&w, &c, 2);
        drop_call(&w, &c);
        c = biased(&w, TN_BF16, 24, 16);
        CHECK_STATUS(run(&w, &c), TN_OK);
        check_biased(&w, &c, 1);
        drop_call(&w, &c);
        CHECK_INT(without_lt, 1);
        CHECK_INT(by_lt, 0);
        CHECK_INT(tnch_lt_products() - products, 0);
        close_world(&w);
    }
    tnch_set_cublas_lt(1);
    if (was) setenv("TN_CUBLASLT", kept, 1);
#else
    SKIP("the engine", "a GPU does not count plans");
#endif
}

TEST_MAIN(two_steps_of_one_parameter, parameters_of_nothing, chain_of_the_smallest, an_error_is_told_once,
          a_fault_is_all_that_is_told, a_capture_tells_at_once, a_graph_goes_when_it_has_run, memory_during_a_capture,
          an_allocation_during_a_capture, memory_given_back_is_read_no_more, much_shared_memory_and_little,
          shared_memory_is_asked_for_once, where_cublas_is_found, the_first_product_by_cublaslt, plans_of_products)
