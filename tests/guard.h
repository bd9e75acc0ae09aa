/* guard.h: any backend with sentinels round its memory, promise P1 for devices, and a count of what its rows did.

   guard_of(inner) is inner's own table, but
   - an allocation lies between two strips of GUARD bytes, all of them filled with ones (NaN, or -1, to whoever reads them);
     guard_check() and each release look whether the strips are as they were;
   - with guard.stage set, each call of a row gets its operands in buffers of their own, with strips as well: what is not an element
     of an output must be the same afterwards, inputs too, and everything if the row refuses the dtypes. What overlaps stays so.
     with guard.shift they begin one element beside their alignment;
   - the calls are counted by kernel and dtype: guard.ran, guard.refused.
   The state is inner's own, so that all else of the table works as it is. One inner backend at a time, one thread. */

#ifndef TN_GUARD_H
#define TN_GUARD_H

#include "test.h"

enum { GUARD = 256, GUARD_BYTE = 0xFF, GUARD_SPANS = TN_CALL_IN + TN_CALL_OUT };

typedef struct guard_block {
    struct guard_block *next;
    void               *state;
    char               *bytes;               /* what the library was given */
    size_t              used;
} guard_block;

typedef struct guard_span {                  /* memory that operands of a call share */
    char  *low, *staged;
    size_t size, element;
    bool   written;
} guard_span;

static struct {
    const tn_backend *inner;
    tn_backend        table;
    guard_block      *blocks;
    int               damage;                /* strips that were not as they were, and bytes that no row may touch */
    bool              stage, shift, quiet;
    char             *buffer[GUARD_SPANS];   /* staging memory of the device, of the state that used it last */
    size_t            size[GUARD_SPANS];
    void             *buffer_of;
    uint64_t          ran[TN_KERNEL_COUNT][TN_I32 + 1], refused[TN_KERNEL_COUNT];
} guard;

static inline size_t guard_size(tn_dtype dtype) { return dtype == TN_F64 ? 8 : dtype == TN_BF16 ? 2 : 4; }

static inline void guard_describe(const tn_call *c)
{
    printf("     %s", tn_kernel_name(c->kernel));
    for (int i = 0; i < c->n_in + c->n_out; i++) {
        const tn_view *v = i < c->n_in ? &c->in[i] : &c->out[i - c->n_in];
        printf(i == c->n_in ? " -> " : " ");
        if (!v->data) { printf("absent"); continue; }
        printf("%s[", v->dtype == TN_F32 ? "F32" : v->dtype == TN_F64 ? "F64" : v->dtype == TN_BF16 ? "BF16" : "I32");
        for (int k = 0; k < v->rank; k++) printf(k ? ",%" PRId64 : "%" PRId64, v->shape[k]);
        printf("]");
    }
    printf("%s\n", c->accumulate ? ", adding" : "");
}

/* ---- strips ------------------------------------------------------------------------------------------------------------ */

static inline bool guard_fill(void *state, char *p, size_t bytes)
{
    static unsigned char ones[65536];
    size_t n;
    memset(ones, GUARD_BYTE, sizeof ones);
    for (; bytes > 0; p += n, bytes -= n) {
        n = bytes < sizeof ones ? bytes : sizeof ones;
        if (guard.inner->upload(state, p, ones, n) != TN_OK) return false;
    }
    return true;
}

static inline bool guard_ones(const unsigned char *p, size_t n)
{
    while (n > 0 && p[n - 1] == GUARD_BYTE) n--;
    return n == 0;
}

/* A device that is lost cannot be asked: its strips are not damaged. */
static inline bool guard_intact(const guard_block *b)
{
    unsigned char strip[2][GUARD];
    if (guard.inner->download(b->state, strip[0], b->bytes - GUARD, GUARD) != TN_OK) return true;
    if (guard.inner->download(b->state, strip[1], b->bytes + b->used, GUARD) != TN_OK) return true;
    return guard_ones(strip[0], sizeof strip);
}

static inline void *guard_alloc(void *state, size_t bytes)
{
    if (bytes > SIZE_MAX - 2 * GUARD) return NULL;
    char *p = (char *)guard.inner->alloc(state, bytes + 2 * GUARD);
    if (!p) return NULL;
    guard_block *b = (guard_block *)malloc(sizeof *b);
    if (!b || !guard_fill(state, p, bytes + 2 * GUARD)) {
        free(b);
        guard.inner->release(state, p, bytes + 2 * GUARD);
        return NULL;
    }
    b->next = guard.blocks;
    b->state = state;
    b->bytes = p + GUARD;
    b->used = bytes;
    guard.blocks = b;
    return b->bytes;
}

static inline void guard_hurt(const char *what)
{
    guard.damage++;
    if (!guard.quiet && guard.damage < 10) printf("     guard: %s\n", what);
}

static inline void guard_release(void *state, void *p, size_t bytes)
{
    guard_block **link = &guard.blocks;
    while (*link && (*link)->bytes != p) link = &(*link)->next;
    guard_block *b = *link;
    if (!b || b->used != bytes || b->state != state) { guard_hurt("something was released that was never given, or with another size"); return; }
    if (!guard_intact(b)) guard_hurt("a strip round an allocation was written to");
    *link = b->next;
    guard.inner->release(state, b->bytes - GUARD, bytes + 2 * GUARD);
    free(b);
}

/* All that is allocated now. false: something was hurt since the last check. */
static inline bool guard_check(void)
{
    const int before = guard.damage;
    static int told;
    for (const guard_block *b = guard.blocks; b; b = b->next)
        if (!guard_intact(b)) {
            guard_hurt("a strip round an allocation was written to");
            guard_fill(b->state, b->bytes - GUARD, GUARD);
            guard_fill(b->state, b->bytes + b->used, GUARD);
        }
    bool well = guard.damage == before && guard.damage == told;
    told = guard.damage;
    return well;
}

/* ---- operands in buffers of their own --------------------------------------------------------------------------------------- */

/* The bytes between a view's lowest element and its highest one. */
static inline guard_span guard_span_of(const tn_view *v)
{
    guard_span s = ZERO;
    int64_t first = 0, last = 0;
    if (!v->data) return s;
    for (int i = 0; i < v->rank; i++) {
        if (v->shape[i] == 0) return s;
        if (v->strides[i] < 0) first += (v->shape[i] - 1) * v->strides[i];
        else last += (v->shape[i] - 1) * v->strides[i];
    }
    s.low = (char *)v->data + first * (int64_t)guard_size(v->dtype);
    s.element = guard_size(v->dtype);
    s.size = (size_t)(last - first + 1) * s.element;
    return s;
}

/* Whatever touches becomes one. Returns how many there are. */
static inline int guard_spans(const tn_call *c, guard_span *spans)
{
    int n = 0;
    for (int i = 0; i < c->n_in + c->n_out; i++) {
        guard_span s = guard_span_of(i < c->n_in ? &c->in[i] : &c->out[i - c->n_in]);
        if (s.size == 0) continue;
        s.written = i >= c->n_in;
        for (int k = 0; k < n; k++)
            if (spans[k].low < s.low + s.size && s.low < spans[k].low + spans[k].size) {      /* takes that in, and looks again */
                char *low = spans[k].low < s.low ? spans[k].low : s.low, *end = s.low + s.size;
                if (spans[k].low + spans[k].size > end) end = spans[k].low + spans[k].size;
                s.low = low;
                s.size = (size_t)(end - low);
                s.written = s.written || spans[k].written;
                if (spans[k].element > s.element) s.element = spans[k].element;
                spans[k] = spans[--n];
                k = -1;
            }
        spans[n++] = s;
    }
    return n;
}

static inline guard_span *guard_home(guard_span *spans, int n, const char *p)
{
    for (int k = 0; k < n; k++) if (p >= spans[k].low && p < spans[k].low + spans[k].size) return &spans[k];
    return NULL;
}

/* Marks the bytes of a view's elements in the map of its span. */
static inline void guard_mark(const tn_view *v, unsigned char *map_at_element_0)
{
    int64_t at[TN_MAX_RANK] = {0}, e = 0;
    const size_t size = guard_size(v->dtype);
    int k;
    for (k = 0; k < v->rank; k++) if (v->shape[k] == 0) return;
    for (;;) {
        memset(map_at_element_0 + e * (int64_t)size, 1, size);
        for (k = v->rank - 1; k >= 0; k--) {
            e += v->strides[k];
            if (++at[k] < v->shape[k]) break;
            e -= v->strides[k] * v->shape[k];
            at[k] = 0;
        }
        if (k < 0) return;
    }
}

static inline char *guard_buffer(void *state, int k, size_t bytes)
{
    if (guard.buffer_of != state)
        for (int i = 0; i < GUARD_SPANS; i++) { guard.buffer[i] = NULL; guard.size[i] = 0; }
    guard.buffer_of = state;
    if (guard.size[k] >= bytes) return guard.buffer[k];
    if (guard.buffer[k]) guard.inner->release(state, guard.buffer[k], guard.size[k]);
    guard.size[k] = bytes + bytes / 2;
    guard.buffer[k] = (char *)guard.inner->alloc(state, guard.size[k]);
    if (!guard.buffer[k]) guard.size[k] = 0;
    return guard.buffer[k];
}

static inline void guard_buffers_drop(void *state)
{
    if (guard.buffer_of != state) return;
    for (int i = 0; i < GUARD_SPANS; i++) {
        if (guard.buffer[i]) guard.inner->release(state, guard.buffer[i], guard.size[i]);
        guard.buffer[i] = NULL;
        guard.size[i] = 0;
    }
    guard.buffer_of = NULL;
}

static inline tn_status guard_run_staged(void *state, const tn_call *c)
{
    const tn_backend *in = guard.inner;
    guard_span     spans[GUARD_SPANS];
    unsigned char *image[GUARD_SPANS] = {NULL}, *map = NULL;
    size_t         lead[GUARD_SPANS], total[GUARD_SPANS];
    tn_call        moved = *c;
    tn_status      status = TN_OK, result = TN_OK;
    int            n = guard_spans(c, spans);
    for (int k = 0; k < n && status == TN_OK; k++) {
        lead[k] = GUARD + (size_t)((uintptr_t)spans[k].low % GUARD) + (guard.shift ? spans[k].element : 0);
        total[k] = lead[k] + spans[k].size + GUARD;
        char *buffer = guard_buffer(state, k, total[k]);
        image[k] = (unsigned char *)malloc(total[k]);
        if (!buffer || !image[k]) { status = TN_ERR_MEMORY; break; }
        memset(image[k], GUARD_BYTE, total[k]);
        status = in->download(state, image[k] + lead[k], spans[k].low, spans[k].size);
        if (status == TN_OK) status = in->upload(state, buffer, image[k], total[k]);
        spans[k].staged = buffer + lead[k];
    }
    for (int i = 0; i < c->n_in + c->n_out; i++) {
        tn_view         *v = i < c->n_in ? &moved.in[i] : &moved.out[i - c->n_in];
        const guard_span own = guard_span_of(v), *s = own.size ? guard_home(spans, n, own.low) : NULL;
        if (s) v->data = s->staged + ((char *)v->data - s->low);
    }
    if (status == TN_OK) result = in->fn[c->kernel](state, &moved);
    for (int k = 0; k < n && status == TN_OK; k++) {
        unsigned char *after = (unsigned char *)malloc(total[k]);
        size_t         bad = 0;
        map = (unsigned char *)calloc(total[k], 1);
        if (!map || !after) status = TN_ERR_MEMORY;
        else status = in->download(state, after, spans[k].staged - lead[k], total[k]);
        for (int i = 0; i < c->n_out && status == TN_OK && result == TN_OK; i++) {
            const guard_span own = guard_span_of(&c->out[i]);
            if (own.size && guard_home(spans, n, own.low) == &spans[k]) guard_mark(&c->out[i], map + lead[k] + ((char *)c->out[i].data - spans[k].low));
        }
        for (size_t b = 0; b < total[k] && status == TN_OK; b++) if (!map[b] && after[b] != image[k][b]) bad++;
        if (bad) {
            printf("     guard: %zu bytes that are no element of an output were written to%s\n", bad, result == TN_OK ? "" : ", in a call that was refused");
            guard_describe(c);
            guard.damage++;
        }
        if (status == TN_OK && result == TN_OK && spans[k].written) status = in->upload(state, spans[k].low, after + lead[k], spans[k].size);
        free(after);
        free(map);
    }
    for (int k = 0; k < n; k++) free(image[k]);
    return status != TN_OK ? status : result;
}

/* What a call computes in: the shortest real type among its operands. */
static inline tn_dtype guard_dtype(const tn_call *c)
{
    bool seen[TN_I32 + 1] = {false};
    for (int i = 0; i < c->n_in; i++) if (c->in[i].data) seen[c->in[i].dtype] = true;
    for (int i = 0; i < c->n_out; i++) if (c->out[i].data) seen[c->out[i].dtype] = true;
    return seen[TN_BF16] ? TN_BF16 : seen[TN_F32] ? TN_F32 : seen[TN_F64] ? TN_F64 : TN_I32;
}

static inline tn_status guard_run(void *state, const tn_call *c)
{
    tn_status s = guard.stage ? guard_run_staged(state, c) : guard.inner->fn[c->kernel](state, c);
    if (s == TN_OK) guard.ran[c->kernel][guard_dtype(c)]++;
    if (s == TN_ERR_DTYPE) guard.refused[c->kernel]++;
    return s;
}

static inline void guard_close(void *state)
{
    for (guard_block *b = guard.blocks; b; b = b->next) if (b->state == state) guard_hurt("not everything was given back");
    guard_buffers_drop(state);
    guard.inner->close(state);
}

static inline const tn_backend *guard_of(const tn_backend *inner)
{
    if (guard.inner == inner) return &guard.table;
    guard.inner = inner;
    guard.table = *inner;
    guard.table.close = guard_close;
    guard.table.alloc = guard_alloc;
    guard.table.release = guard_release;
    for (int k = 0; k < TN_KERNEL_COUNT; k++) if (inner->fn[k]) guard.table.fn[k] = guard_run;
    return &guard.table;
}

#endif
