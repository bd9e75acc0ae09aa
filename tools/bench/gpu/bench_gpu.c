/* make bench-gpu, or build/gpu/bench [ceilings|attention|linear|gpt|small|rows]...
   Each row is the same work done by us and by PyTorch on one GPU, in turns within one run. "floor" is the share of what this GPU could
   do at best: flops over the rate of a large product, bytes over the rate of a large copy, both measured in this run, by us and by
   PyTorch, whichever is faster. Products need cuBLAS: without it the program fails, unless TN_CUBLAS=0 asks for that.
   BENCH_TORCH is the command that starts the peer (torch_peer.py); BENCH_JSON is a file to which each row is added as a line of
   JSON when it is measured; BENCH_TINY=1 shrinks all shapes, to try the program where time does not matter. */
#define _GNU_SOURCE
#include "tensornet.h"
#include "../clock.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TURNS = 9 };
static const double TURN = 0.05;                 /* seconds of a turn, at least one run */

static bool        tiny;
static bool        wgmma, wgmma_launched;        /* TN_WGMMA=1: attention by these kernels; one was launched   */
static const char *suffix = "";                  /* of the names of rows: ", wgmma" where attention uses it */

/* ---- the peer: a process that reads `RUNS WORK ...` and answers `done SECONDS NOTE` or `missing WHY` -------------------------- */

static FILE *to_peer, *from_peer;
static bool  peer_wanted;

static void peer_start(void)
{
    const char *command = getenv("BENCH_TORCH");
    int down[2], up[2];
    peer_wanted = command && *command;
    if (!peer_wanted || pipe(down) || pipe(up)) return;
    signal(SIGPIPE, SIG_IGN);                    /* if the peer ends, its rows are missing; continue */
    if (fork() == 0) {
        dup2(down[0], 0);
        dup2(up[1], 1);
        close(down[1]);
        close(up[0]);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(down[0]);
    close(up[1]);
    to_peer = fdopen(down[1], "w");
    from_peer = fdopen(up[0], "r");
}

/* Seconds of `runs` runs, what there is to say of them in why; below zero, with the reason in why: this peer is not there. */
static double peer_run(const char *work, long runs, char why[200])
{
    char line[256] = "";
    double seconds;
    int    end = 0;
    snprintf(why, 200, "the peer did not start");
    if (!to_peer || !work) return -1;
    fprintf(to_peer, "%ld %s\n", runs, work);
    fflush(to_peer);
    snprintf(why, 200, "the peer ended");
    if (!fgets(line, sizeof line, from_peer)) { to_peer = NULL; return -1; }
    line[strcspn(line, "\n")] = 0;
    if (sscanf(line, "done %lf %n", &seconds, &end) != 1) {
        seconds = -1;
        end = strncmp(line, "missing ", 8) == 0 ? 8 : 0;
    }
    snprintf(why, 200, "%.190s", line + end);
    return seconds;
}

/* ---- rows ---------------------------------------------------------------------------------------------------------------------------- */

static FILE *results;                            /* BENCH_JSON */

/* A string of JSON, with quotes and controls replaced, behind { or a comma. */
static void put_text(char before, const char *key, const char *text)
{
    fprintf(results, "%c\"%s\":\"", before, key);
    for (; *text; text++) fputc(*text == '"' || *text == '\\' || (unsigned char)*text < 32 ? '\'' : *text, results);
    fputc('"', results);
}

static void put_number(const char *key, double v) { if (v > 0 && v < HUGE_VAL) fprintf(results, ",\"%s\":%.4g", key, v); }

static void put_end(void)
{
    fprintf(results, "}\n");
    fflush(results);
}

/* What a row could not be compared with, or why it is not there, is a line too. */
static void skip(const char *name, const char *what, const char *why)
{
    printf("SKIP %s%s%s: %s\n", name, what[0] ? " of " : "", what, why);
    fflush(stdout);
    if (!results) return;
    put_text('{', "missing", name);
    put_text(',', "of", what);
    put_text(',', "why", why);
    put_end();
}

static double flops_rate, tf32_rate, f32_rate, copy_rate;     /* measured, per second; 0: not yet */

typedef struct row {
    const char *name, *peer;                     /* peer: the work that torch_peer.py is asked for, or NULL */
    double      flops, bytes, rate, tokens;      /* of one run; rate: of the flops, 0: BF16                 */
    bool      (*run)(void *arg, long runs);      /* with a sync behind it; false: it cannot                 */
    void       *arg;
    double      ours, theirs;                    /* seconds of a run, the fastest                           */
} row;

static void measure(row *r)
{
    double ratio[TURNS], floor = 0;
    char   why[200] = "", name[140];
    long   peer_runs = 0;
    int    n = 0;
    r->ours = r->theirs = HUGE_VAL;
    snprintf(name, sizeof name, "%s%s", r->name, suffix);
    if (!r->run(r->arg, 1) || !r->run(r->arg, 1)) { skip(name, "", "the backend does not take it"); return; }
    double start = now();
    r->run(r->arg, 1);
    double once = now() - start;
    long   runs = once >= TURN ? 1 : (long)(TURN / once) + 1;
    double t = peer_run(r->peer, 2, why);                            /* compiles and warms up */
    if (t >= 0) t = peer_run(r->peer, 2, why) / 2;
    if (t >= 0) peer_runs = t >= TURN ? 1 : (long)(TURN / fmax(t, 1e-7)) + 1;
    else if (r->peer && peer_wanted) skip(name, "PyTorch", why);
    for (int turn = 0; turn < TURNS; turn++) {
        double both[2] = {0, 0};
        for (int k = 0; k < 2; k++) {
            if ((turn + k) % 2) { if (peer_runs > 0) both[1] = peer_run(r->peer, peer_runs, why) / (double)peer_runs; }
            else {
                start = now();
                if (!r->run(r->arg, runs)) { skip(name, "", "it failed"); return; }
                both[0] = (now() - start) / (double)runs;
            }
        }
        r->ours = fmin(r->ours, both[0]);
        if (both[1] > 0) { r->theirs = fmin(r->theirs, both[1]); ratio[n++] = both[1] / both[0]; }
    }
    printf("%-44s %10.4g ms", name, r->ours * 1e3);
    if (n > 0) printf("  PyTorch%s%s%s %10.4g ms  ratio %6.3f", why[0] ? " (" : "", why, why[0] ? ")" : "", r->theirs * 1e3, median(ratio, n));
    if (r->flops > 0) printf("  %7.1f TF/s", r->flops / r->ours * 1e-12);
    if (r->bytes > 0 && r->flops <= 0) printf("  %7.1f GB/s", r->bytes / r->ours * 1e-9);
    if (r->tokens > 0) printf("  %9.0f tokens/s", r->tokens / r->ours);
    if (flops_rate > 0) {
        const double rate = r->rate > 0 ? r->rate : flops_rate;
        floor = 100 * fmax(r->flops / rate, copy_rate > 0 ? r->bytes / copy_rate : 0) / r->ours;
        printf("  floor %5.1f%%", floor);
    }
    printf("\n");
    fflush(stdout);
    if (!results) return;
    put_text('{', "row", name);
    put_number("ms", r->ours * 1e3);
    if (n > 0) {
        put_number("PyTorch ms", r->theirs * 1e3);
        put_number("ratio", median(ratio, n));
        if (why[0]) put_text(',', "note", why);
    }
    put_number("TF/s", r->flops / r->ours * 1e-12);
    if (r->flops <= 0) put_number("GB/s", r->bytes / r->ours * 1e-9);
    put_number("tokens/s", r->tokens / r->ours);
    put_number("% of floor", floor);
    put_end();
}

/* ---- rows of the kernel table, called directly --------------------------------------------------------------------------------------------- */

static const tn_backend *backend;
static void             *state;

static void *take(size_t bytes, void *user)                 { (void)user; return malloc(bytes); }
static void  drop(void *p, size_t bytes, void *user)        { (void)bytes; (void)user; free(p); }

static void fail(const char *what)
{
    printf("FAIL %s\n", what);
    if (results) {
        put_text('{', "missing", "bench");
        put_text(',', "why", what);
        put_end();
    }
    exit(1);
}

/* What the backend says of cuBLAS, once, and of wgmma. Without cuBLAS no product uses tensor cores, so that the ceilings are wrong. */
static void hear(void *user, tn_log_level level, const char *message)
{
    static bool heard;
    (void)user;
    if (strncmp(message, "desc.wgmma: ", 12) == 0) {
        wgmma = true;
        wgmma_launched = wgmma_launched || strstr(message, "first launch");
    } else if (strncmp(message, "cuBLAS: ", 8) != 0) { printf("     %s\n", message); return; }
    if (level >= TN_LOG_WARN) fail(message);                         /* no cuBLAS, or no wgmma where it is wanted */
    if (message[0] == 'd') return;
    if (heard) return;
    heard = true;
    printf("%s\n", message);
    if (!results) return;
    put_text('{', "what", "cuBLAS");
    put_text(',', "is", message + 8);
    put_end();
}

static tn_desc desc_of(tn_gemm_precision precision, tn_dtype activations)
{
    tn_desc d = {0};
    d.log = hear;
    d.backend = backend;
    d.backend_required = true;
    d.dtype = TN_F32;
    d.activations = activations;
    d.gemm_precision = precision;
    d.threads = 1;
    d.allocator = (tn_allocator){ take, drop, NULL };
    d.seed = 1;
    return d;
}

static size_t size_of(tn_dtype t) { return t == TN_F64 ? 8 : t == TN_BF16 ? 2 : 4; }

/* Contiguous, with numbers within 1.73 times `size`, the same 1009 again and again; in I32 whole ones below `size`, a MiB of them,
   so that ids meet all of a table. */
static tn_view make(tn_dtype dtype, int rank, const int64_t *shape, double size)
{
    static unsigned char block[1 << 20];
    tn_view  v = {0};
    int64_t  n = 1, step = 1;
    uint64_t x = 88172645463325252u;
    v.dtype = dtype;
    v.rank = rank;
    for (int k = rank - 1; k >= 0; k--) { v.shape[k] = shape[k]; v.strides[k] = step; step *= shape[k]; n *= shape[k]; }
    v.data = backend->alloc(state, (size_t)(n > 0 ? n : 1) * size_of(dtype));
    if (!v.data) fail("no memory on the device");
    int64_t some = (int64_t)(sizeof block / size_of(dtype)) / 1009 * 1009;
    for (int64_t i = 0; i < some; i++) {
        if (dtype != TN_I32 && i % 1009 == 0) x = 88172645463325252u;
        x ^= x << 13; x ^= x >> 7; x ^= x << 17;
        double u = ((double)(x >> 11) * 0x1p-53 - 0.5) * 3.46 * size;
        if (dtype == TN_I32) ((int32_t *)block)[i] = (int32_t)((double)(x >> 11) * 0x1p-53 * size);
        else if (dtype == TN_F32) ((float *)block)[i] = (float)u;
        else { float f = (float)u; uint32_t w; memcpy(&w, &f, 4); ((uint16_t *)block)[i] = (uint16_t)(w >> 16); }
    }
    for (int64_t at = 0; at < n; at += some)
        if (backend->upload(state, (char *)v.data + (size_t)at * size_of(dtype), block, (size_t)(n - at < some ? n - at : some) * size_of(dtype)) != TN_OK) fail("upload");
    return v;
}

static tn_view make1(tn_dtype t, int64_t a, double size) { return make(t, 1, &a, size); }
static tn_view make2(tn_dtype t, int64_t a, int64_t b, double size) { int64_t s[2] = {a, b}; return make(t, 2, s, size); }
static tn_view make3(tn_dtype t, int64_t a, int64_t b, int64_t c, double size) { int64_t s[3] = {a, b, c}; return make(t, 3, s, size); }
static tn_view make4(tn_dtype t, int64_t a, int64_t b, int64_t c, int64_t d, double size) { int64_t s[4] = {a, b, c, d}; return make(t, 4, s, size); }

static void unmake(tn_view *v, int n)
{
    for (int i = 0; i < n; i++) {
        int64_t count = 1;
        for (int k = 0; k < v[i].rank; k++) count *= v[i].shape[k];
        if (v[i].data) backend->release(state, v[i].data, (size_t)(count > 0 ? count : 1) * size_of(v[i].dtype));
    }
}

typedef struct calls { tn_call call[2]; int count; } calls;

static bool run_calls(void *arg, long runs)
{
    calls *c = arg;
    char   why[256] = "";
    for (long i = 0; i < runs; i++)
        for (int k = 0; k < c->count; k++) {
            tn_kernel_fn fn = backend->fn[c->call[k].kernel];
            if (!fn || fn(state, &c->call[k]) != TN_OK) return false;
        }
    return !backend->sync || backend->sync(state, why) == TN_OK;
}

static void open_state(tn_gemm_precision precision)
{
    tn_desc d = desc_of(precision, TN_REAL);
    char    why[256] = "";
    if (state) backend->close(state);
    state = NULL;
    if (backend->open(&d, &state, why) != TN_OK) { skip("bench", "a GPU", why); exit(0); }
}

/* ---- ceilings -------------------------------------------------------------------------------------------------------------------------------- */

static double ceiling_of_product(const char *name, const char *peer, tn_dtype dtype, tn_gemm_precision precision)
{
    const int64_t n = tiny ? 64 : dtype == TN_F32 && precision == TN_GEMM_F32 ? 4096 : 8192;
    char    work[64];
    calls   c = { .count = 1 };
    row     r = { .name = name, .peer = work, .run = run_calls, .arg = &c, .flops = 2.0 * (double)n * (double)n * (double)n };
    tn_view v[3];
    open_state(precision);
    v[0] = make3(dtype, 1, n, n, 1);
    v[1] = make3(dtype, 1, n, n, 1);
    v[2] = make3(dtype, 1, n, n, 0);
    c.call[0] = (tn_call){ .kernel = TN_KERNEL_GEMM, .n_in = 3, .n_out = 1, .in = { v[0], v[1] }, .out = { v[2] }, .f = { 1, 0 } };
    snprintf(work, sizeof work, "%s %d", peer, (int)n);
    measure(&r);
    unmake(v, 3);
    return r.flops / fmin(r.ours, r.theirs);
}

static void ceilings(void)
{
    const int64_t n = tiny ? 1 << 16 : 1 << 28;
    char    work[64];
    calls   c = { .count = 1 };
    row     r = { .name = "copy", .peer = work, .run = run_calls, .arg = &c, .bytes = 8 * (double)n };
    tn_view v[2];
    if (flops_rate > 0) return;
    open_state(TN_GEMM_F32);
    v[0] = make1(TN_F32, n, 1);
    v[1] = make1(TN_F32, n, 1);
    c.call[0] = (tn_call){ .kernel = TN_KERNEL_COPY, .n_in = 1, .n_out = 1, .in = { v[0] }, .out = { v[1] } };
    snprintf(work, sizeof work, "copy %d", (int)n);
    measure(&r);
    unmake(v, 2);
    copy_rate = r.bytes / fmin(r.ours, r.theirs);
    double bf16 = ceiling_of_product("BF16 product", "matmul_bf16", TN_BF16, TN_GEMM_F32);
    double tf32 = ceiling_of_product("TF32 product", "matmul_tf32", TN_F32, TN_GEMM_TF32);
    double f32 = ceiling_of_product("F32 product", "matmul_f32", TN_F32, TN_GEMM_F32);
    flops_rate = bf16;
    tf32_rate = tf32;
    f32_rate = f32;
    printf("ceilings: %.1f TF/s BF16, %.1f TF/s TF32, %.1f TF/s F32, %.0f GB/s copied\n", bf16 * 1e-12, tf32 * 1e-12, f32 * 1e-12, copy_rate * 1e-9);
    open_state(TN_GEMM_F32);
}

/* ---- attention, causal, BF16: bilinear in both forms, PyTorch's FlashAttention at the same shape ------------------------------------------------ */

static void attend(bool linear, bool backward, int64_t B, int64_t H, int64_t T, int64_t d)
{
    const double pairs = (double)T * (double)T / 2, heads = (double)(B * H), D = (double)d, chunk = D * D;   /* feature count d^2 */
    char    name[96], work[96], texts[32] = "";
    calls   c = { .count = backward ? 2 : 1 };
    row     r = { .name = name, .peer = work, .run = run_calls, .arg = &c };
    tn_view v[8];
    tn_call f = { .n_in = 3, .i = { TN_ATTEND_BILINEAR, 1, 0, 0 }, .f = { 1 / D, 512, TN_ROW_SCALE_LENGTH, 1e-6 } }, b = f;
    /* what is needed: both score products and the output's forwards; backwards dP, dS1, dS2 and five products of gradients, the scores once
       more. Linear: the state is read and added to; backwards three times as much */
    r.flops = linear ? heads * (double)T * 4 * chunk * D * (backward ? 3.5 : 1) : heads * pairs * (backward ? 22 : 6) * D;
    r.bytes = heads * (double)T * D * 2 * (backward ? 20 : 6);
    if (B > 1) snprintf(texts, sizeof texts, " B %d H %d", (int)B, (int)H);
    snprintf(name, sizeof name, "bilinear %s %s%s d %d T %d", linear ? "linear" : "quadratic", backward ? "fwd+bwd" : "fwd", texts, (int)d, (int)T);
    snprintf(work, sizeof work, "flash %d %d %d %d %d", (int)B, (int)H, (int)T, (int)d, backward);
    v[0] = make4(TN_BF16, B, T, 2 * H, d, 1);
    v[1] = make4(TN_BF16, B, T, 2 * H, d, 1);
    v[2] = make4(TN_BF16, B, T, H, d, 1);
    v[3] = make4(TN_BF16, B, T, H, d, 0);
    v[4] = make4(TN_BF16, B, T, 2 * H, d, 0);
    v[5] = make4(TN_BF16, B, T, 2 * H, d, 0);
    v[6] = make4(TN_BF16, B, T, H, d, 0);
    v[7] = make4(TN_BF16, B, T, H, d, 1e-6);            /* small: gradients are added to, run after run */
    f.kernel = linear ? TN_KERNEL_ATTENTION_LINEAR : TN_KERNEL_ATTENTION;
    b.kernel = linear ? TN_KERNEL_ATTENTION_LINEAR_BACKWARD : TN_KERNEL_ATTENTION_BACKWARD;
    for (int k = 0; k < 3; k++) { f.in[k] = b.in[k] = v[k]; b.out[k] = v[4 + k]; }
    b.in[5] = v[7];
    b.n_in = 6;
    b.n_out = 4;                                        /* the last is a workspace: our own rows have theirs */
    f.out[0] = v[3];
    f.n_out = linear ? 4 : 3;
    c.call[0] = f;
    c.call[1] = b;
    measure(&r);
    unmake(v, 8);
}

/* One text of 16 heads, and the texts of a GPT, whose heads are taken in groups. */
static void attention(void)
{
    for (int backward = 0; backward < 2; backward++) {
        for (int64_t d = 64; d <= 128; d *= 2)
            for (int64_t T = 4096; T <= 8192; T *= 2) attend(false, backward, 1, tiny ? 1 : 16, tiny ? T / 32 : T, d);
        attend(false, backward, tiny ? 2 : 16, tiny ? 2 : 12, tiny ? 128 : 1024, 64);
    }
    if (wgmma && !wgmma_launched) fail("desc.wgmma: attention did not launch its kernels with wgmma");
}

static void linear(void)
{
    static const int64_t lengths[] = {8192, 12288, 16384, 32768, 65536, 131072};
    for (size_t k = 0; k < COUNT(lengths); k++) {
        const int64_t T = lengths[k];
        attend(true, true, 1, tiny ? 1 : 8, tiny ? T / 128 : T, tiny ? 16 : 64);
    }
}

/* ---- training steps, by the public functions, as a graph where the backend can -------------------------------------------------------------------- */

typedef struct step { tn_ctx *ctx; tn_params *params; tn_transformer model; tn_mlp mlp; tn_optim *optim; tn_tensor *x, *y; tn_graph *graph; bool mlp_only; } step;

static bool once(step *s)
{
    if (!s->ctx) return false;
    tn_ctx_reset(s->ctx);
    tn_record(s->ctx);
    tn_tensor *loss = s->mlp_only ? tn_cross_entropy(s->ctx, tn_mlp_forward(s->ctx, &s->mlp, s->x), s->y)
                      : tn_transformer_loss(s->ctx, &s->model, s->x, s->y);
    return tn_backward(s->ctx, loss) == TN_OK && tn_optim_step(s->optim) == TN_OK;
}

static bool run_step(void *arg, long runs)
{
    step *s = arg;
    for (long i = 0; i < runs; i++) if (s->graph ? tn_graph_run(s->graph) != TN_OK : !once(s)) { printf("     %s\n", tn_ctx_error(s->ctx)); return false; }
    if (tn_ctx_sync(s->ctx) == TN_OK) return true;
    printf("     %s\n", tn_ctx_error(s->ctx));
    return false;
}

static void step_ready(step *s)
{
    if (!once(s) || !once(s) || !tn_graph_supported(s->ctx)) return;
    tn_ctx_reset(s->ctx);
    if (tn_graph_begin(s->ctx) != TN_OK) { tn_ctx_clear_error(s->ctx); return; }
    if (!once(s) || tn_graph_end(s->ctx, &s->graph) != TN_OK) {
        printf("     no graph: %s\n", tn_ctx_error(s->ctx));
        tn_ctx_clear_error(s->ctx);
        s->graph = NULL;
    }
}

static bool step_open(step *s, tn_gemm_precision precision, tn_dtype activations)
{
    tn_desc d = desc_of(precision, activations);
    char    why[256] = "";
    memset(s, 0, sizeof *s);
    if (state) backend->close(state);
    state = NULL;
    if (tn_ctx_create(&d, &s->ctx, why) != TN_OK) { skip("steps", "", why); return false; }
    s->params = tn_params_create(s->ctx);
    return true;
}

static void write_ids(tn_tensor *t, int64_t n, int64_t limit)
{
    int32_t *v = malloc(sizeof *v * (size_t)n);
    if (!v) fail("no memory");
    for (int64_t i = 0; i < n; i++) v[i] = (int32_t)((uint64_t)i * 2654435761u % (uint64_t)limit);
    tn_write(t, TN_I32, v, n);
    free(v);
}

static void lm(const char *name, const char *peer, int64_t layers, int64_t dim, int64_t heads, int64_t vocab, int64_t T, int64_t B, tn_dtype activations)
{
    tn_transformer_desc d = { .vocab = vocab, .layers = layers, .dim = dim, .heads = heads, .context = T, .attention = TN_ATTENTION_BILINEAR };
    int64_t shape[2] = {B, T};
    char    work[120];
    step    s;
    row     r = { .name = name, .peer = work, .run = run_step, .arg = &s };
    if (!step_open(&s, activations == TN_BF16 ? TN_GEMM_BF16 : TN_GEMM_TF32, activations)) return;
    if (tn_transformer_init(s.params, "", &d, &s.model) != TN_OK) {
        skip(name, "", tn_ctx_error(s.ctx));
        tn_ctx_destroy(s.ctx);
        return;
    }
    s.optim = tn_optim_create(s.params, &(tn_optim_desc){ .weight_decay = 0.1, .clip_norm = 1 });
    s.x = tn_tensor_create(s.ctx, TN_I32, 2, shape);
    s.y = tn_tensor_create(s.ctx, TN_I32, 2, shape);
    write_ids(s.x, B * T, vocab);
    write_ids(s.y, B * T, vocab);
    r.flops = tn_transformer_cost_of(&s.model.desc, T).training * (double)(B * T);
    r.rate = activations == TN_BF16 ? 0 : tf32_rate;
    r.tokens = (double)(B * T);
    snprintf(work, sizeof work, "%s %d %d %d %d %d %d %d", peer, (int)layers, (int)dim, (int)heads, (int)vocab, (int)T, (int)B, (int)s.model.desc.hidden);
    step_ready(&s);
    printf("%s: %.1f M parameters, %s\n", name, (double)tn_params_elements(s.params) * 1e-6, s.graph ? "a graph" : "step by step");
    measure(&r);
    tn_ctx_destroy(s.ctx);
}

static void gpt(void)
{
    if (tiny) { lm("GPT tiny", "gpt", 2, 32, 2, 128, 32, 2, TN_BF16); return; }
    lm("GPT 124M, bilinear, BF16", "gpt", 12, 768, 12, 50304, 1024, 16, TN_BF16);
    lm("GPT 350M, bilinear, BF16", "gpt", 24, 1024, 16, 50304, 1024, 8, TN_BF16);
    lm("GPT 124M, bilinear, BF16, batch 64", "gpt", 12, 768, 12, 50304, 1024, 64, TN_BF16);
}

static void fashion(const char *name, const char *peer, int64_t batch)
{
    tn_mlp_desc d = { .in = 784, .hidden = 256, .out = 10 };
    step   s;
    char   work[64];
    row    r = { .name = name, .peer = work, .run = run_step, .arg = &s, .rate = tf32_rate };
    float *v = calloc((size_t)batch * 784, sizeof *v);
    int64_t shape[2] = {batch, 784};
    if (!v) fail("no memory");
    for (int64_t i = 0; i < batch * 784; i++) v[i] = (float)(i * 37 % 101) / 101;
    if (step_open(&s, TN_GEMM_TF32, TN_REAL) && tn_mlp_init(s.params, "mlp", &d, &s.mlp) == TN_OK) {
        s.mlp_only = true;
        s.optim = tn_optim_create(s.params, NULL);
        s.x = tn_tensor_create(s.ctx, TN_F32, 2, shape);
        s.y = tn_tensor_create(s.ctx, TN_I32, 1, shape);
        tn_write(s.x, TN_F32, v, batch * 784);
        write_ids(s.y, batch, 10);
        r.flops = 6.0 * (double)batch * (784 * 512 + 2560) - 2.0 * (double)batch * 784 * 512;   /* no gradient of x */
        snprintf(work, sizeof work, "%s %d", peer, (int)batch);
        step_ready(&s);
        measure(&r);
    }
    tn_ctx_destroy(s.ctx);
    free(v);
}

static void small(void)
{
    fashion("fashion step, 128, against eager", "fashion_eager", 128);
    fashion("fashion step, 128, against CUDA graph", "fashion_graph", 128);
    if (tiny) return;
    lm("story model step, against eager", "story_eager", 4, 256, 4, 2048, 256, 16, TN_BF16);
    lm("story model step, against CUDA graph", "story_graph", 4, 256, 4, 2048, 256, 16, TN_BF16);
}

/* ---- rows that memory bounds: each number read once and written once ------------------------------------------------------------------------------- */

static void memory_row(const char *name, const char *peer, double bytes, tn_call a, tn_call b, int count)
{
    calls c = { .call = { a, b }, .count = count };
    row   r = { .name = name, .peer = peer, .run = run_calls, .arg = &c, .bytes = bytes };
    measure(&r);
}

static void rows(void)
{
    const int64_t R = tiny ? 64 : 16384, C = tiny ? 32 : 2048, V = tiny ? 100 : 50304, L = tiny ? 16 : 8192, P = tiny ? 1000 : 124000000;
    const double  rc = (double)R * (double)C, lv = (double)L * (double)V, lc = (double)L * (double)C;
    const double  met = (double)V * (1 - pow(1 - 1 / (double)V, (double)L)) * (double)C;      /* numbers of the rows that ids name */
    char    work[4][64];
    tn_view v[12];
    tn_call a, b;
    open_state(TN_GEMM_F32);
    snprintf(work[0], 64, "rmsnorm %d %d", (int)R, (int)C);
    snprintf(work[1], 64, "cross_entropy %d %d", (int)L, (int)V);
    snprintf(work[2], 64, "adamw %d", (int)P);
    snprintf(work[3], 64, "embedding %d %d %d", (int)V, (int)C, (int)L);

    v[0] = make2(TN_BF16, R, C, 1); v[1] = make1(TN_F32, C, 1); v[2] = make2(TN_BF16, R, C, 0); v[3] = make1(TN_F32, R, 1);
    v[4] = make2(TN_BF16, R, C, 1); v[5] = make2(TN_BF16, R, C, 0); v[6] = make1(TN_F32, C, 0);
    a = (tn_call){ .kernel = TN_KERNEL_RMSNORM, .n_in = 2, .n_out = 2, .in = { v[0], v[1] }, .out = { v[2], v[3] }, .f = { 1e-5 } };
    b = (tn_call){ .kernel = TN_KERNEL_RMSNORM_BACKWARD, .n_in = 4, .n_out = 2, .in = { v[0], v[1], v[3], v[4] }, .out = { v[5], v[6] } };
    memory_row("RMSNorm fwd, BF16", NULL, 4 * rc, a, b, 1);
    memory_row("RMSNorm fwd+bwd, BF16", work[0], 10 * rc, a, b, 2);
    unmake(v, 7);

    v[0] = make2(TN_BF16, L, V, 1); v[1] = make1(TN_I32, L, (double)V); v[2] = make(TN_F32, 0, NULL, 0); v[3] = make1(TN_F32, L, 0);
    v[4] = make1(TN_I32, 4, 0); v[5] = make2(TN_BF16, L, V, 0);
    a = (tn_call){ .kernel = TN_KERNEL_CROSS_ENTROPY, .n_in = 2, .n_out = 4, .in = { v[0], v[1] }, .out = { v[2], v[3], v[4], v[5] } };
    memory_row("cross-entropy with gradient, BF16", work[1], 4 * lv, a, a, 1);
    unmake(v, 6);

    {
        static const int64_t scalars = 16;
        static const float   begin[16] = {1e-3f, 1, 0, 1, 0, 1, 0, 1};   /* lr, step, size so far, clip factor, skip, norm, momentum, taken */
        v[0] = make1(TN_F32, scalars, 0); v[1] = make1(TN_F32, P, 1); v[2] = make1(TN_F32, P, 1e-3); v[3] = make1(TN_F32, P, 0); v[4] = make1(TN_F32, P, 0);
        if (backend->upload(state, v[0].data, begin, sizeof begin) != TN_OK) fail("upload");
        a = (tn_call){ .kernel = TN_KERNEL_ADAMW, .n_in = 1, .n_out = 4, .in = { v[0] }, .out = { v[1], v[2], v[3], v[4] },
                       .f = { 0.9, 0.999, 1e-8, 0.1, 1, 0 } };
        memory_row("AdamW, 124M", work[2], 32 * (double)P, a, a, 1);
        unmake(v, 5);
    }

    v[0] = make2(TN_F32, V, C, 1); v[1] = make1(TN_I32, L, (double)V); v[2] = make2(TN_BF16, L, C, 0); v[3] = make1(TN_I32, 4, 0); v[4] = make2(TN_F32, V, C, 0);
    v[5] = make2(TN_F32, L, C, 1);
    a = (tn_call){ .kernel = TN_KERNEL_EMBED, .n_in = 2, .n_out = 2, .in = { v[0], v[1] }, .out = { v[2], v[3] } };
    b = (tn_call){ .kernel = TN_KERNEL_EMBED_BACKWARD, .n_in = 2, .n_out = 1, .in = { v[1], v[5] }, .out = { v[4] }, .accumulate = true };
    memory_row("embedding fwd, F32 to BF16", NULL, 4 * met + 2 * lc, a, a, 1);
    memory_row("embedding bwd, F32, adding", work[3], 8 * met + 4 * lc, b, b, 1);
    unmake(v, 6);
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); bool attends; } section[] = {      /* by kernels that may use wgmma */
        {"ceilings", ceilings, false}, {"attention", attention, true}, {"linear", linear, false}, {"gpt", gpt, true},
        {"small", small, false}, {"rows", rows, false},
    };
    const char *s = getenv("BENCH_TINY"), *to = getenv("BENCH_JSON");
    char        device[128] = "";
    tiny = s && strcmp(s, "1") == 0;
    if (to && *to && !(results = fopen(to, "a"))) fail("BENCH_JSON cannot be written");
    backend = tn_cuda_backend();
    open_state(TN_GEMM_F32);
    if (backend->device) backend->device(state, device);
    printf("%s\n", device);
    if (results) {
        put_text('{', "what", "device");
        put_text(',', "is", device);
        put_end();
    }
    peer_start();
    if (!peer_wanted) skip("PyTorch", "", "BENCH_TORCH is not set");
    ceilings();                                                        /* every floor needs them */
    for (size_t k = 1; k < COUNT(section); k++) {
        bool wanted = argc < 2;
        for (int i = 1; i < argc; i++) wanted = wanted || strcmp(argv[i], section[k].name) == 0;
        if (!wanted) continue;
        printf("---- %s\n", section[k].name);
        if (!state) open_state(TN_GEMM_F32);
        suffix = wgmma && section[k].attends ? ", wgmma" : "";
        section[k].run();
    }
    if (state) backend->close(state);
    return 0;
}
