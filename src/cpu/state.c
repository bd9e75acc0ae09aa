#include "core/inner.h"
#include "cpu/inner.h"

/* ======================================================================
   >>cpu      the fast host backend
   Nearly all time is spent in a few kernels: the matrix product, and passes over memory that are fused so that
   each number is read once. They are written once, in terms of a vector of TNI_W numbers, and read
   several times (>>cpu-pass): for plain C, AVX2, AVX-512 and NEON, in float and in double.
   The context chooses one of these levels by the features of the processor; no -m flag is needed. Unusual
   strides and rare kernels are left to the reference backend.

   Work is divided into tasks by the shape only, and sums have a fixed order, so that results are bit-identical
   for any number of threads.
   ====================================================================== */

/* The best level up to the wanted one that both processor and operating system support. A level of another kind of
   processor counts as plain. */
TNI_FN tn_simd tni_cpu_simd(tn_simd wanted)
{
#if TNI_AVX2
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = TNI_AVX512 && avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
          && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx512 && (wanted == TN_SIMD_AUTO || wanted == TN_SIMD_AVX512)) return TN_SIMD_AVX512;
    if (avx2 && wanted != TN_SIMD_PLAIN && wanted != TN_SIMD_NEON) return TN_SIMD_AVX2;
#elif TNI_NEON
    if (wanted == TN_SIMD_AUTO || wanted == TN_SIMD_NEON) return TN_SIMD_NEON;
#endif
    (void)wanted;
    return TN_SIMD_PLAIN;
}

/* ---- the state ---------------------------------------------------------- >>cpu-state
   The matrix product packs a block of A and one of B, so that its inner loop reads contiguous memory. One large
   product has LARGE bytes for each; in a batch of small ones every worker has its own blocks of SMALL bytes.
   Both kinds share memory, because they are never used at the same time. */

TNI_FN tn_status tni_cpu_move(void *state, void *dst, const void *src, size_t bytes)
{
    (void)state;
    if (bytes > 0) memmove(dst, src, bytes);
    return TN_OK;
}

/* ---- memory in large pages ----------------------------------------------- >>cpu-memory
   A pass over many arrays in pages of 4 KB waits for the translation of addresses: AdamW a tenth of its time on a quiet
   machine, a fifth beside others. Linux gives pages of 2 MB where madvise asks for them and a whole one fits. Most tensors
   are smaller, so those of 16 KB to 8 MB share reserves. A reserve is a row of blocks, each after a header; a tensor gets
   the first free block that is large enough, and the reserve is released with its last tensor. This is done with the
   library's own allocator only: a program's allocator sees each tensor, and so do the address sanitizer and TN_DEBUG.
   What was asked of madvise cannot be taken back: memory that malloc does not return to the system keeps its large pages, and
   smaller blocks that later lie there can make more memory resident. Pages of the library's own, from mmap, would not, but
   would be cleared each time that a large tensor is made. */
#ifdef __linux__
#define TNI_LARGE_PAGES (!TNI_MEMORY_CHECKED)
#else
#define TNI_LARGE_PAGES false
#endif
enum {
    TNI_PAGE          = 2 << 20,
    TNI_SHARE_LEAST   = 16 << 10,       /* bytes of tensors that share a reserve */
    TNI_SHARE_MOST    = 8 << 20,
    TNI_RESERVE_LEAST = (4 << 20) + 2 * TNI_ALIGN,      /* an arena's first block, and the headers */
    TNI_RESERVE_MOST  = 256 << 20
};

/* The headers of a block and of a reserve, TNI_ALIGN bytes each. */
typedef struct tni_mem_block { size_t bytes; bool used; } tni_mem_block;    /* bytes with this header */

/* Aligned to 64 bytes, or to a large page; the allocator's own pointer is stored just before. */
static size_t tni_cpu_align(const tni_cpu *cpu, size_t bytes)
{
    return cpu->large && bytes >= TNI_PAGE ? TNI_PAGE : TNI_ALIGN;
}

static void *tni_cpu_alone(tni_cpu *cpu, size_t bytes)
{
    const size_t align = tni_cpu_align(cpu, bytes);
    size_t       total;
    char        *raw, *p;
    if (!tni_add_size(bytes, align + sizeof raw, &total)) return NULL;
    raw = (char *)cpu->mem.alloc(total, cpu->mem.user);
    if (!raw) return NULL;
    p = raw + sizeof raw;
    p += (0 - (uintptr_t)p) % align;
    memcpy(p - sizeof raw, &raw, sizeof raw);
#if defined(__linux__) && defined(SYS_madvise)
    if (align == TNI_PAGE) {
        const int before = errno;               /* a system without large pages refuses */
        (void)syscall(SYS_madvise, p, bytes / align * align, 14 /* MADV_HUGEPAGE */);
        errno = before;
    }
#endif
    return p;
}

static void tni_cpu_alone_release(tni_cpu *cpu, void *p, size_t bytes)
{
    char *raw;
    memcpy(&raw, (char *)p - sizeof raw, sizeof raw);
    cpu->mem.release(raw, bytes + tni_cpu_align(cpu, bytes) + sizeof raw, cpu->mem.user);
}

static tni_mem_block *tni_block_at(tni_reserve *r, size_t at) { return (tni_mem_block *)(void *)((char *)r + at); }

/* A block of the reserve, `bytes` with its header, or NULL. Free neighbours are joined on the way. */
static void *tni_reserve_take(tni_reserve *r, size_t bytes)
{
    size_t next, free_at = 0;               /* the first free block */
    if (r->left < bytes) return NULL;
    for (size_t at = r->first; at < r->bytes; at += tni_block_at(r, at)->bytes) {
        tni_mem_block *b = tni_block_at(r, at);
        if (b->used) continue;
        if (free_at == 0) free_at = at;
        while ((next = at + b->bytes) < r->bytes && !tni_block_at(r, next)->used) b->bytes += tni_block_at(r, next)->bytes;
        if (b->bytes < bytes) continue;
        if (b->bytes > bytes) {
            tni_mem_block *rest = tni_block_at(r, at + bytes);
            rest->bytes = b->bytes - bytes;
            rest->used = false;
        }
        b->bytes = bytes;
        b->used = true;
        r->left -= bytes;
        r->first = free_at == at ? at + bytes : free_at;
        return (char *)r + at + TNI_ALIGN;
    }
    r->first = free_at;                         /* there is one, for `left` is not 0 */
    return NULL;
}

/* A new reserve is as large as all others together, so that there are few. */
static tni_reserve *tni_reserve_make(tni_cpu *cpu, size_t least)
{
    tni_reserve *r;
    size_t       bytes = 0;
    for (r = cpu->reserves; r; r = r->next) bytes += r->bytes;
    if (bytes < TNI_RESERVE_LEAST) bytes = TNI_RESERVE_LEAST;
    if (bytes > TNI_RESERVE_MOST) bytes = TNI_RESERVE_MOST;
    while (bytes < least) bytes *= 2;
    r = (tni_reserve *)tni_cpu_alone(cpu, bytes);
    if (!r) return NULL;
    r->next = cpu->reserves;
    r->bytes = bytes;
    r->left = bytes - TNI_ALIGN;
    r->first = TNI_ALIGN;
    tni_block_at(r, TNI_ALIGN)->bytes = r->left;
    tni_block_at(r, TNI_ALIGN)->used = false;
    cpu->reserves = r;
    return r;
}

TNI_FN void *tni_cpu_alloc(void *state, size_t bytes)
{
    tni_cpu     *cpu = (tni_cpu *)state;
    const size_t block = (bytes + 2 * TNI_ALIGN - 1) / TNI_ALIGN * TNI_ALIGN;
    tni_reserve *r;
    void        *p;
    if (!cpu->large || bytes < TNI_SHARE_LEAST || bytes > TNI_SHARE_MOST) return tni_cpu_alone(cpu, bytes);
    for (r = cpu->reserves; r; r = r->next) if ((p = tni_reserve_take(r, block)) != NULL) return p;
    r = tni_reserve_make(cpu, block + TNI_ALIGN);
    return r ? tni_reserve_take(r, block) : tni_cpu_alone(cpu, bytes);
}

static bool tni_reserve_empty(const tni_reserve *r) { return r->left == r->bytes - TNI_ALIGN; }

/* One empty reserve is kept: a tensor that is created and destroyed in turns would need pages to be cleared each time. */
TNI_FN void tni_cpu_release(void *state, void *p, size_t bytes)
{
    tni_cpu      *cpu = (tni_cpu *)state;
    tni_reserve **at = &cpu->reserves, *r, *other;
    if (!p) return;
    while ((r = *at) != NULL && (uintptr_t)p - (uintptr_t)r >= r->bytes) at = &r->next;
    if (!r) {
        tni_cpu_alone_release(cpu, p, bytes);
        return;
    }
    size_t         place = (size_t)((char *)p - (char *)r) - TNI_ALIGN;
    tni_mem_block *b = tni_block_at(r, place);
    b->used = false;
    r->left += b->bytes;
    if (place < r->first) r->first = place;
    if (!tni_reserve_empty(r)) return;
    for (other = cpu->reserves; other && (other == r || !tni_reserve_empty(other)); other = other->next) {}
    if (!other) return;
    *at = r->next;
    tni_cpu_alone_release(cpu, r, r->bytes);
}

static void tni_reserves_release(tni_cpu *cpu)
{
    tni_reserve *r;
    while ((r = cpu->reserves) != NULL) {
        cpu->reserves = r->next;
        tni_cpu_alone_release(cpu, r, r->bytes);
    }
}

TNI_FN void tni_cpu_close(void *state)
{
    tni_cpu *cpu = (tni_cpu *)state;
    if (!cpu) return;
    tn_allocator mem = cpu->mem;
    tni_cpu_release(cpu, cpu->blocks, cpu->block_bytes);
    tni_cpu_release(cpu, cpu->scratch, cpu->scratch_bytes);
    tni_reserves_release(cpu);
    mem.release(cpu, sizeof *cpu, mem.user);
}

TNI_FN tni_cpu *tni_cpu_new(const tn_desc *desc, int threads)
{
    tni_cpu *cpu = (tni_cpu *)desc->allocator.alloc(sizeof *cpu, desc->allocator.user);
    if (!cpu) return NULL;
    memset(cpu, 0, sizeof *cpu);
    cpu->mem = desc->allocator;
    cpu->large = TNI_LARGE_PAGES && desc->allocator.alloc == tni_malloc;
    cpu->pool.threads = threads;
    cpu->pool.fn = desc->parallel_for;
    cpu->pool.user = desc->parallel_user;
    cpu->little = tni_alone;
#if defined(TNI_OWN_THREADS)
    if (desc->parallel_for == tni_threads_for) {
        cpu->little = cpu->pool;
        cpu->little.fn = tni_threads_for_little;
    }
#endif
    return cpu;
}

/* ---- a pass over n elements or rows, divided into tasks ----------------- >>cpu-tasks */

/* Divides items of `width` elements into at most `most` tasks and runs them. Returns the number of tasks. */
TNI_FN int64_t tni_pass_run(tni_pass *p, int64_t n, int64_t width, int64_t most, tn_task_fn fn)
{
    p->n = n;
    p->sums = NULL;
    p->share = tni_max(TNI_CPU_SHARE / tni_max(width, 1), 1);
    p->share = tni_max(p->share, tni_ceil_div(n, most));
    int64_t tasks = tni_ceil_div(n, p->share);
    tni_parallel_for(n <= TNI_CPU_ALONE / tni_max(width, 1) ? &p->cpu->little : &p->cpu->pool, tasks, fn, p);
    return tasks;
}

TNI_FN double tni_parts_sum(const tni_cpu *cpu, int64_t parts)
{
    double sum = 0;
    for (int64_t i = 0; i < parts; i++) sum += cpu->part[i];
    return sum;
}
