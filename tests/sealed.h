/* sealed.h: backends whose memory nobody can touch, promise P1.

   Every allocation is pages of its own that are PROT_NONE, except while a kernel runs that has them as an operand (inputs
   may then be read, outputs written; open are the pages from its first byte to its last) and while bytes are uploaded or
   downloaded. The kernels are those of another backend. So code that follows tn_tensor.data, or a kernel that reaches
   beside its operands, ends with a fault. An allocation ends where its pages end, up to the 64 bytes of its alignment;
   what is left there and in front of it is filled with a pattern that release checks.

       #include "sealed.h"               (before all others: it asks the system for mmap)

   sealed_cpu(), sealed_reference()      seal that backend
   sealed_sparse()                       seals cpu without the rows of sealed_missing: these are composed, or run on the host
   sealed_damaged()                      how many patterns were not intact so far                                                  */

#ifndef TN_SEALED_H
#define TN_SEALED_H

/* Why a test leaves them out. */
#define NO_SEALED "backends in sealed memory, on a system without mmap"

#if defined(__unix__) || defined(__APPLE__)
#define SEALED 1
#if !defined(_DEFAULT_SOURCE) && !defined(_GNU_SOURCE)
#define _DEFAULT_SOURCE
#endif
#if !defined(_DARWIN_C_SOURCE)
#define _DARWIN_C_SOURCE
#endif
#include "tensornet.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SEALED_ALIGN = 64, SEALED_PATTERN = 0x5C };

typedef struct sealed_block {            /* [guard page][pages: pattern, the bytes, pattern][guard page] */
    struct sealed_block *next;
    unsigned char *pages, *bytes;
    size_t         size, used;           /* of the pages; asked for                                     */
} sealed_block;

typedef struct sealed_state {
    const tn_backend *inner;
    void             *inner_state;
    sealed_block     *blocks;
} sealed_state;

static int sealed_damage;
static inline int sealed_damaged(void) { return sealed_damage; }

static inline size_t sealed_page(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static inline void *sealed_alloc(void *state, size_t bytes)
{
    sealed_state *s = (sealed_state *)state;
    size_t page = sealed_page();
    if (bytes == 0 || bytes > SIZE_MAX / 2) return NULL;
    size_t        aligned = (bytes + SEALED_ALIGN - 1) / SEALED_ALIGN * SEALED_ALIGN;
    size_t        size = (aligned + page - 1) / page * page;
    sealed_block *b = (sealed_block *)malloc(sizeof *b);
    if (!b) return NULL;
    void *all = mmap(NULL, size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) { free(b); return NULL; }
    b->pages = (unsigned char *)all + page;
    b->size = size;
    b->bytes = b->pages + size - aligned;
    b->used = bytes;
    b->next = s->blocks;
    s->blocks = b;
    mprotect(b->pages, size, PROT_READ | PROT_WRITE);
    memset(b->pages, SEALED_PATTERN, size);
    mprotect(b->pages, size, PROT_NONE);
    return b->bytes;
}

static inline bool sealed_intact(const sealed_block *b)
{
    for (const unsigned char *p = b->pages; p < b->pages + b->size; p++)
        if ((p < b->bytes || p >= b->bytes + b->used) && *p != SEALED_PATTERN) return false;
    return true;
}

static inline void sealed_release(void *state, void *p, size_t bytes)
{
    sealed_block **link = &((sealed_state *)state)->blocks;
    while (*link && (*link)->bytes != p) link = &(*link)->next;
    sealed_block *b = *link;
    if (!b || b->used != bytes) { sealed_damage++; return; }
    mprotect(b->pages, b->size, PROT_READ);
    if (!sealed_intact(b)) sealed_damage++;
    *link = b->next;
    munmap(b->pages - sealed_page(), b->size + 2 * sealed_page());
    free(b);
}

/* Opens or closes the pages of some bytes; a handle of nobody is left to fault. Only these pages, not the block: each costs time. */
static inline void sealed_protect(const sealed_state *s, const void *p, size_t bytes, int how)
{
    const size_t page = sealed_page();
    for (sealed_block *b = s->blocks; b; b = b->next)
        if ((const unsigned char *)p >= b->bytes && (const unsigned char *)p < b->bytes + b->used) {
            const size_t at = (size_t)((const unsigned char *)p - b->pages), first = at / page * page;
            mprotect(b->pages + first, (at + bytes + page - 1) / page * page - first, how);
            return;
        }
}

/* The same for an operand: from its first byte in memory to its last. */
static inline void sealed_operand(const sealed_state *s, const tn_view *v, int how)
{
    const int64_t size = v->dtype == TN_F64 ? 8 : v->dtype == TN_BF16 ? 2 : 4;
    int64_t first = 0, last = 0;
    if (!v->data) return;
    for (int i = 0; i < v->rank; i++) {
        const int64_t span = (v->shape[i] - 1) * v->strides[i];
        if (v->shape[i] == 0) return;
        if (span < 0) first += span;
        else last += span;
    }
    sealed_protect(s, (const char *)v->data + first * size, (size_t)((last - first + 1) * size), how);
}

static inline tn_status sealed_upload(void *state, void *dst, const void *src, size_t bytes)
{
    sealed_state *s = (sealed_state *)state;
    if (bytes == 0) return TN_OK;
    sealed_protect(s, dst, bytes, PROT_READ | PROT_WRITE);
    memcpy(dst, src, bytes);
    sealed_protect(s, dst, bytes, PROT_NONE);
    return TN_OK;
}

static inline tn_status sealed_download(void *state, void *dst, const void *src, size_t bytes)
{
    sealed_state *s = (sealed_state *)state;
    if (bytes == 0) return TN_OK;
    sealed_protect(s, src, bytes, PROT_READ);
    memcpy(dst, src, bytes);
    sealed_protect(s, src, bytes, PROT_NONE);
    return TN_OK;
}

/* Every row of the table. An operand that is input and output at once is opened for writing, so outputs come last. */
static inline tn_status sealed_run(void *state, const tn_call *c)
{
    sealed_state *s = (sealed_state *)state;
    for (int i = 0; i < c->n_in; i++) sealed_operand(s, &c->in[i], PROT_READ);
    for (int i = 0; i < c->n_out; i++) sealed_operand(s, &c->out[i], PROT_READ | PROT_WRITE);
    tn_status status = s->inner->fn[c->kernel](s->inner_state, c);
    for (int i = 0; i < c->n_in; i++) sealed_operand(s, &c->in[i], PROT_NONE);
    for (int i = 0; i < c->n_out; i++) sealed_operand(s, &c->out[i], PROT_NONE);
    return status;
}

static inline tn_status sealed_open(const tn_desc *desc, const tn_backend *inner, void **state, char why[256])
{
    sealed_state *s = (sealed_state *)malloc(sizeof *s);
    if (!s) return TN_ERR_MEMORY;
    s->inner = inner;
    s->blocks = NULL;
    tn_status status = inner->open(desc, &s->inner_state, why);
    if (status != TN_OK) { free(s); return status; }
    *state = s;
    return TN_OK;
}

static inline void sealed_close(void *state)
{
    sealed_state *s = (sealed_state *)state;
    if (s->blocks) sealed_damage++;      /* not everything was given back */
    while (s->blocks) sealed_release(s, s->blocks->bytes, s->blocks->used);
    s->inner->close(s->inner_state);
    free(s);
}

static inline tn_status sealed_open_cpu(const tn_desc *d, void **state, char why[256])
{
    return sealed_open(d, tn_cpu_backend(), state, why);
}

static inline tn_status sealed_open_reference(const tn_desc *d, void **state, char why[256])
{
    return sealed_open(d, tn_reference_backend(), state, why);
}

static inline const tn_backend *sealed_make(tn_backend *b, const char *name, const tn_backend *inner,
                                            tn_status (*open)(const tn_desc *, void **, char *))
{
    memset(b, 0, sizeof *b);
    b->abi = TN_BACKEND_ABI;
    b->name = name;
    b->open = open;
    b->close = sealed_close;
    b->alloc = sealed_alloc;
    b->release = sealed_release;
    b->upload = sealed_upload;
    b->download = sealed_download;
    for (int k = 0; k < TN_KERNEL_COUNT; k++) if (inner->fn[k]) b->fn[k] = sealed_run;
    return b;
}

static inline const tn_backend *sealed_cpu(void)
{
    static tn_backend b;
    return b.abi ? &b : sealed_make(&b, "sealed cpu", tn_cpu_backend(), sealed_open_cpu);
}

static inline const tn_backend *sealed_reference(void)
{
    static tn_backend b;
    return b.abi ? &b : sealed_make(&b, "sealed reference", tn_reference_backend(), sealed_open_reference);
}

/* Some that the library composes, some that go to the host, with one, two and three outputs, strided ones among them. */
static const tn_kernel sealed_missing[] = {
    TN_KERNEL_GLU, TN_KERNEL_GLU_BACKWARD, TN_KERNEL_ADD, TN_KERNEL_SUM, TN_KERNEL_EMBED, TN_KERNEL_EMBED_BACKWARD,
    TN_KERNEL_RMSNORM, TN_KERNEL_RMSNORM_BACKWARD, TN_KERNEL_CROSS_ENTROPY, TN_KERNEL_ARGMAX, TN_KERNEL_DROPOUT, TN_KERNEL_TICK,
    TN_KERNEL_SUMSQ, TN_KERNEL_STEP_BEGIN, TN_KERNEL_ADAMW, TN_KERNEL_SGD, TN_KERNEL_MUON_BEGIN, TN_KERNEL_MUON_END, TN_KERNEL_PROD, TN_KERNEL_PROD_BACKWARD,
    TN_KERNEL_LAYERNORM, TN_KERNEL_LAYERNORM_BACKWARD, TN_KERNEL_ROPE_BACKWARD, TN_KERNEL_ATTENTION_BACKWARD,
    TN_KERNEL_ATTENTION_LINEAR_BACKWARD, TN_KERNEL_DIV, TN_KERNEL_WHERE, TN_KERNEL_SOFTMAX, TN_KERNEL_SOFTMAX_BACKWARD
};

static inline const tn_backend *sealed_sparse(void)
{
    static tn_backend b;
    if (b.abi) return &b;
    sealed_make(&b, "sealed sparse", tn_cpu_backend(), sealed_open_cpu);
    for (size_t k = 0; k < sizeof sealed_missing / sizeof *sealed_missing; k++) b.fn[sealed_missing[k]] = NULL;
    return &b;
}

#else
#define SEALED 0
#include "tensornet.h"
static inline const tn_backend *sealed_cpu(void)       { return NULL; }
static inline const tn_backend *sealed_reference(void) { return NULL; }
static inline const tn_backend *sealed_sparse(void)    { return NULL; }
static inline int               sealed_damaged(void)   { return 0; }
#endif
#endif
