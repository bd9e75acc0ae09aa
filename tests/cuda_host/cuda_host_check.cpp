/* cuda_host_check.cpp: checks every memory access of a kernel. The .cu is compiled with -fsanitize=thread, so that the compiler calls
   __tsan_read4(p) before each load of four bytes, and so on; this file defines these functions in place of the sanitizer's library.
   It and the engine must be compiled without that option.

   A cell for each byte of device memory records who wrote it last and who has read it since, and when. Time is counted in phases: a
   barrier of the block, a new block and a new launch each begin one. In one phase of a block two threads must not access the same byte
   unless both read it; two blocks of a launch must never. Within a warp, __syncwarp counts steps, which order its lanes only. It finds

       reads and writes outside of every allocation and shared variable      reads of uninitialised memory
       races in a block, and between blocks                                  misaligned accesses
       host memory accessed by a kernel, device memory by the host           shared memory accessed during an asynchronous copy to it
       shared memory that wgmma reads before the writer's fence.proxy.async  shared memory written while wgmma may read it
       tiles that a bulk copy fills before their readers have arrived        mbarriers used before a barrier after their init

   A block that has mbarriers is ordered by them as well. From its first one on, accesses to shared memory are compared by vector
   clocks: what each thread knows of each other thread, of what the wgmma of each warp has read, and of each mbarrier's copies.

   Each of these is reported once per line of code. Only the last writer and a summary of the readers are kept, so that of several
   races in one byte only the first is certain to be found. */

#include "cuda_host.h"
#include <algorithm>
#include <link.h>
#include <set>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

/* ---- cells ------------------------------------------------------------------------------------------------------------ */

enum { UNWRITTEN = 0, BY_HOST = 1, FIRST_PHASE = 2 };
enum { THREAD = 0x3FF, ATOMIC = 0x8000 };                  /* of writer */
enum { WARP = 0x4000, MANY = 0x2000, OTHER_BLOCK = 0x1000 };   /* of reader: one warp; several warps; another block too */

struct cell {
    uint32_t write_phase;                                  /* UNWRITTEN, BY_HOST or a phase */
    uint16_t writer, write_step;
    uint32_t read_phase;                                   /* 0: not read since the write */
    uint16_t reader, read_step;
    bool operator==(const cell &o) const { return memcmp(this, &o, sizeof o) == 0; }
};

static cell *cells;                                        /* one per byte of device memory, allocated on first use */
static uint32_t phase = FIRST_PHASE, launch_phase = FIRST_PHASE, block_phase = FIRST_PHASE;
static uint16_t steps[32];                                 /* of each warp, in this phase */

static cell *cell_of(const void *p)
{
    if (!cells) {
        void *m = mmap(NULL, tnch_arena_bytes * sizeof(cell), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (m == MAP_FAILED) { perror("tnch: cells"); _exit(1); }
        cells = (cell *)m;
    }
    return cells + ((const char *)p - tnch_arena);
}

static bool is_shared(const void *p) { return (const char *)p < tnch_arena + TNCH_SHARED_WINDOW; }

/* ---- reports ---------------------------------------------------------------------------------------------------------- */

static void say(const void *site, const char *what, const void *p, size_t bytes, const char *who)
{
    static std::set<std::pair<const void *, const char *>> said;
    if (!said.insert(std::make_pair(site, what)).second) return;
    char line[256], place[128];
    tnch_source_line(site, line, sizeof line);
    tnch_place(p, place, sizeof place);
    tnch_report("%s: %zu bytes at %s%s, in %s", what, bytes, place, who, line);
}

static void say_thread(const void *site, const char *what, const void *p, size_t bytes, int thread)
{
    char who[64];
    snprintf(who, sizeof who, "; the other is thread %d", thread);
    say(site, what, p, bytes, who);
}

/* A constant, or another variable of the program itself */
static bool is_program(const void *p)
{
    static struct { const char *begin, *end; } parts[256];
    static int count;
    if (!count)
        dl_iterate_phdr([](struct dl_phdr_info *image, size_t, void *) {
            for (int i = 0; i < image->dlpi_phnum && count < 256; i++) {
                if (image->dlpi_phdr[i].p_type != PT_LOAD) continue;
                parts[count].begin = (const char *)image->dlpi_addr + image->dlpi_phdr[i].p_vaddr;
                parts[count].end = parts[count].begin + image->dlpi_phdr[i].p_memsz;
                count++;
            }
            return 0;
        }, NULL);
    for (int i = 0; i < count; i++) if ((const char *)p >= parts[i].begin && (const char *)p < parts[i].end) return true;
    return false;
}

/* ---- an access -------------------------------------------------------------------------------------------------------- */

struct touch { const void *p; size_t bytes; bool write, atomic; const void *site; uint16_t thread, warp, step; bool shared; };

/* ---- vector clocks -------------------------------------------------------------------------------------------------------
   Time advances at each release: when a thread arrives at a barrier or an mbarrier. seen[t][c]: up to when thread t knows what c has
   done. An access is stamped with the time of the next release, so that only a release after it makes it known. */

enum { THREADS = 1024, OF_WARP = THREADS, OF_MBARRIER = OF_WARP + 32, CLOCKS = OF_MBARRIER + TNCH_MBARRIERS };
static bool tracked;                                       /* this block has an mbarrier */
static uint32_t now;                                       /* never goes back, so that stamps of earlier blocks are old */
static uint32_t tracked_since;
static uint32_t (*seen)[CLOCKS];
static uint32_t (*read_stamp)[OF_MBARRIER];                /* of each 16 bytes of shared memory, by thread or wgmma of a warp */
static uint32_t write_stamp[TNCH_SHARED_WINDOW];           /* of each byte */
static uint8_t filled_by[TNCH_SHARED_WINDOW];              /* 1 + the mbarrier of the bulk copy that wrote it last; 0: a thread */
static uint32_t arrived[TNCH_MBARRIERS][CLOCKS], complete[TNCH_MBARRIERS][CLOCKS];   /* of the phase that counts, of those before */
static uint16_t maker[TNCH_MBARRIERS];
static uint32_t made_at[TNCH_MBARRIERS];
struct fence { uint32_t time, stamp; };
static std::vector<fence> fences[THREADS];                 /* fence.proxy.async in this block */

static size_t shared_byte(const void *p) { return (size_t)((const char *)p - tnch_arena); }

static void *reserve(size_t bytes)
{
    void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED) { perror("tnch: clocks"); _exit(1); }
    return m;
}

static void join(uint32_t *to, const uint32_t *from) { for (int c = 0; c < CLOCKS; c++) to[c] = std::max(to[c], from[c]); }

static bool knows(int thread, int clock, uint32_t stamp)
{
    return thread == clock || stamp <= tracked_since || seen[thread][clock] >= stamp;
}

/* The threads [first, first + count) have met. */
static void join_threads(int first, int count)
{
    uint32_t all[CLOCKS] = {0};
    if (!tracked) return;
    now++;
    for (int t = first; t < first + count; t++) {
        seen[t][t] = now;
        join(all, seen[t]);
    }
    for (int t = first; t < first + count; t++) memcpy(seen[t], all, sizeof all);
}

static void mbarrier_new(int b)
{
    if (!seen) {
        seen = (uint32_t (*)[CLOCKS])reserve(THREADS * sizeof *seen);
        read_stamp = (uint32_t (*)[OF_MBARRIER])reserve(TNCH_SHARED_WINDOW / 16 * sizeof *read_stamp);
    }
    if (!tracked) {
        tracked = true;
        tracked_since = ++now;
        memset(seen, 0, THREADS * sizeof *seen);
        memset(filled_by, 0, sizeof filled_by);
        for (auto &list : fences) list.clear();
    }
    memset(arrived[b], 0, sizeof arrived[b]);
    memset(complete[b], 0, sizeof complete[b]);
    maker[b] = (uint16_t)tnch_now->linear;
    made_at[b] = now + 1;
}

static void mbarrier_used(int b, const void *p, const void *site)
{
    if (!knows(tnch_now->linear, maker[b], made_at[b]))
        say_thread(site, "race: an mbarrier is used without a barrier after its initialisation", p, 8, maker[b]);
}

static void mbarrier_arrived(int b)
{
    const int t = tnch_now->linear;
    seen[t][t] = ++now;
    join(arrived[b], seen[t]);
}

static void mbarrier_complete(int b)
{
    arrived[b][OF_MBARRIER + b] = ++now;
    join(complete[b], arrived[b]);
    memset(arrived[b], 0, sizeof arrived[b]);
}

static void mbarrier_seen(int b) { join(seen[tnch_now->linear], complete[b]); }

static void async_done(int warp)
{
    if (!tracked) return;
    now++;
    for (int t = warp * 32; t < warp * 32 + 32; t++) seen[t][OF_WARP + warp] = now;
}

static void warpgroup_barrier(int warpgroup) { join_threads(warpgroup * 128, 128); }

/* The clock of the last writer of a byte. A cell holds who it was, unless it was a bulk copy. */
static int writer_of(const cell &c, size_t byte)
{
    const int by = filled_by[byte];
    return by ? OF_MBARRIER + by - 1 : c.writer & THREAD;
}

/* ---- comparing an access with those before it ------------------------------------------------------------------------- */

static void meet_writer_by_clock(const cell &c, const touch &a, size_t byte)
{
    const int other = writer_of(c, byte);
    if (c.write_phase < block_phase || knows(a.thread, other, write_stamp[byte]) || (a.atomic && (c.writer & ATOMIC))) return;
    if (other >= OF_MBARRIER) say(a.site, a.write ? "race: written before the wait for the bulk copy that filled it"
                                                  : "race: read before the wait for the bulk copy that fills it", a.p, a.bytes, "");
    else say_thread(a.site, a.write ? "race: written by two threads without a barrier between"
                                    : "race: written by one thread, read by another without a barrier between", a.p, a.bytes, other);
}

static void meet_readers_by_clock(const touch &a, bool bulk)
{
    const int threads = (int)(tnch_block_dim.x * tnch_block_dim.y * tnch_block_dim.z);
    for (size_t g = shared_byte(a.p) / 16; g <= (shared_byte(a.p) + a.bytes - 1) / 16; g++)
        for (int c = 0; c < OF_WARP + 32; c = c == threads - 1 ? OF_WARP : c + 1) {
            if (read_stamp[g][c] <= tracked_since || knows(a.thread, c, read_stamp[g][c])) continue;
            const char *what = bulk ? "race: a bulk copy may fill it before its readers have arrived at an mbarrier"
                                    : "race: read by one thread, overwritten by another without a barrier between";
            say_thread(a.site, what, a.p, a.bytes, c < OF_WARP ? c : (c - OF_WARP) * 32);
            return;
        }
}

/* Whether another thread has read one of these bytes since the last barrier of the block, or since a bulk copy filled them. The
   clocks of readers belong to 16 bytes. */
static bool read_by_others(const cell *c, const touch &a)
{
    for (size_t i = 0; i < a.bytes; i++)
        if (c[i].read_phase == phase && ((c[i].reader & (WARP | MANY)) || (c[i].reader & THREAD) != a.thread)) return true;
    return false;
}

static void note_read_by_clock(const touch &a, int clock)
{
    for (size_t g = shared_byte(a.p) / 16; g <= (shared_byte(a.p) + a.bytes - 1) / 16; g++) read_stamp[g][clock] = now + 1;
}

/* Compares an access with the last writer */
static void meet_writer(const cell &c, const touch &a)
{
    if (a.shared && tracked) return;                       /* by clock */
    if (c.write_phase < launch_phase || (a.atomic && (c.writer & ATOMIC))) return;
    int other = c.writer & THREAD;
    if (c.write_phase < block_phase) {
        const char *what = a.write ? "race between blocks: written by two" : "race between blocks: written by one, read by another";
        if (!a.shared) say_thread(a.site, what, a.p, a.bytes, other);
    } else if (c.write_phase == phase && other != a.thread && !(other / 32 == a.warp && c.write_step < a.step)) {
        say_thread(a.site, a.write ? "race: written by two threads without a barrier between"
                                   : "race: written by one thread, read by another without a barrier between", a.p, a.bytes, other);
    }
}

/* Compares a write with the readers before it */
static void meet_readers(const cell &c, const touch &a)
{
    if (a.shared && tracked) return;
    if (c.read_phase < launch_phase) return;
    if (!a.shared && (c.read_phase < block_phase || (c.reader & OTHER_BLOCK)))
        say(a.site, "race between blocks: read by one, written by another", a.p, a.bytes, "");
    if (c.read_phase != phase) return;
    int other = c.reader & THREAD;
    bool same_warp = !(c.reader & MANY) && other / 32 == a.warp;
    if ((c.reader & (WARP | MANY)) == 0 && other == a.thread) return;
    if (same_warp && c.read_step < a.step) return;
    say_thread(a.site, "race: read by one thread, overwritten by another without a barrier between", a.p, a.bytes, other);
}

static void note_read(cell *c, const touch &a)
{
    uint16_t elsewhere = c->read_phase >= launch_phase ? (uint16_t)((c->reader & OTHER_BLOCK) | (c->read_phase < block_phase ? OTHER_BLOCK : 0)) : 0;
    if (c->read_phase != phase) {
        c->read_phase = phase;
        c->reader = (uint16_t)(a.thread | elsewhere);
    } else if (!(c->reader & MANY)) {
        int other = c->reader & THREAD;
        if (other / 32 != a.warp) c->reader = (uint16_t)(other | MANY | elsewhere);
        else if (other != a.thread) c->reader = (uint16_t)(a.thread | WARP | elsewhere);
    }
    c->read_step = a.step;
}

/* Pending asynchronous copies, one entry per 16 bytes of shared memory: 1 + the thread that waits for it; 0: none. Their
   bytes may change at any time after the issue, so that the issue counts as one write, and the wait as another. */
static uint16_t copying[TNCH_SHARED_WINDOW / 16];
static int copies;

static uint16_t *copy_to(const void *p) { return &copying[((const char *)p - tnch_arena) / 16]; }

static void meet_copy(const touch &a)
{
    if (!copies) return;
    for (const uint16_t *c = copy_to(a.p); c <= copy_to((const char *)a.p + a.bytes - 1); c++)
        if (*c) say_thread(a.site, a.write ? "race: written while an asynchronous copy to it is under way"
                                           : "race: read while an asynchronous copy to it is under way", a.p, a.bytes, *c - 1);
}

/* Pending reads by wgmma of each 16 bytes of shared memory. */
static uint16_t reading[TNCH_SHARED_WINDOW / 16];
static int readings;

static void meet_async_readers(const touch &a)
{
    if (!readings || !a.write) return;
    const uint16_t *r = &reading[((const char *)a.p - tnch_arena) / 16], *last = &reading[((const char *)a.p - tnch_arena + (ptrdiff_t)a.bytes - 1) / 16];
    for (; r <= last; r++)
        if (*r) say(a.site, "race: written while wgmma may read it", a.p, a.bytes, "");
}

/* What a thread writes to shared memory as usual, by the generic proxy, the asynchronous one sees after a fence.proxy.async of the
   same thread and a barrier. Time advances at each fence. */
static uint32_t fence_time, wrote_at[TNCH_SHARED_WINDOW], fenced_at[THREAD + 1], published[THREAD + 1];

static void async_fence(void)
{
    fenced_at[tnch_now->linear] = ++fence_time;
    if (tracked) fences[tnch_now->linear].push_back(fence{fence_time, now + 1});
}

static bool seen_by_async(const cell &c, const touch &a, size_t byte)
{
    const int writer = c.writer & THREAD;
    const uint32_t when = wrote_at[(const char *)a.p - tnch_arena + (ptrdiff_t)byte];
    if (tracked && filled_by[shared_byte(a.p) + byte]) return true;
    if (tracked)
        for (size_t i = fences[writer].size(); i-- > 0 && fences[writer][i].time > when;)
            if (knows(a.thread, writer, fences[writer][i].stamp)) return true;
    return published[writer] > when || (writer / 32 == a.warp && fenced_at[writer] > when);
}

/* false: not memory; nothing more to check */
static bool check_cell(cell *c, const touch &a)
{
    if (c->write_phase == UNWRITTEN) {
        if (!tnch_is_memory(a.p, a.bytes)) {
            say(a.site, a.write ? "write out of bounds" : "read out of bounds", a.p, a.bytes, "");
            return false;
        }
        if (!a.write) say(a.site, "read of uninitialised memory", a.p, a.bytes, "");
    }
    meet_writer(*c, a);
    if (!a.write) { note_read(c, a); return true; }
    meet_readers(*c, a);
    c->write_phase = phase;
    c->writer = (uint16_t)(a.thread | (a.atomic ? ATOMIC : 0));
    c->write_step = a.step;
    return true;
}

static void check_kernel(const void *p, size_t bytes, bool write, bool atomic, const void *site)
{
    touch a = {p, bytes, write, atomic, site, (uint16_t)tnch_now->linear, (uint16_t)tnch_now->warp, steps[tnch_now->warp],
               is_shared(p)};
    cell *c = cell_of(p), before = *c;
    if (bytes > 1 && (uintptr_t)p % bytes) say(site, "misaligned access", p, bytes, "");
    if (a.shared) { meet_copy(a); meet_async_readers(a); }
    if (a.shared && write)
        for (size_t i = 0; i < bytes; i++) wrote_at[(const char *)p - tnch_arena + (ptrdiff_t)i] = fence_time;
    if (a.shared && tracked) {
        for (size_t i = 0; i < bytes; i++) meet_writer_by_clock(c[i], a, shared_byte(p) + i);
        if (write && read_by_others(c, a)) meet_readers_by_clock(a, false);
        else if (!write) note_read_by_clock(a, a.thread);
        if (write)
            for (size_t i = 0; i < bytes; i++) {
                write_stamp[shared_byte(p) + i] = now + 1;
                filled_by[shared_byte(p) + i] = 0;
            }
    }
    if (!check_cell(c, a)) return;
    for (size_t i = 1; i < bytes; i++)                        /* usually all bytes of a number have the same state */
        if (c[i] == before) c[i] = c[0];
        else if (!check_cell(&c[i], a)) return;
}

/* Reads of what will be overwritten must have happened before: the issue is checked as a write, but recorded in `copying`
   only. */
static void copy_begins(const void *p, size_t bytes, const void *site)
{
    touch a = {p, bytes, true, false, site, (uint16_t)tnch_now->linear, (uint16_t)tnch_now->warp, steps[tnch_now->warp], true};
    if (!tnch_is_memory(p, bytes)) return;                              /* the wait says so */
    meet_copy(a);
    meet_async_readers(a);
    for (size_t i = 0; i < bytes; i++) {
        const cell *c = cell_of((const char *)p + i);
        if (c->write_phase != UNWRITTEN) meet_writer(*c, a);
        meet_readers(*c, a);
    }
    if (!*copy_to(p)) copies++;
    *copy_to(p) = (uint16_t)(a.thread + 1);
}

static void copy_ends(const void *p, size_t bytes, const void *site)
{
    if (is_shared(p) && *copy_to(p)) {
        *copy_to(p) = 0;
        copies--;
    }
    check_kernel(p, bytes, true, false, site);
}

/* A bulk copy. Where threads wrote last, it needs their fence.proxy.async, as wgmma does. */
static void bulk_begins(const void *p, size_t bytes, const void *site)
{
    touch a = {p, bytes, true, false, site, (uint16_t)tnch_now->linear, (uint16_t)tnch_now->warp, steps[tnch_now->warp], true};
    meet_copy(a);
    meet_async_readers(a);
    meet_readers_by_clock(a, true);
    for (size_t i = 0; i < bytes; i++) {
        const cell *c = cell_of((const char *)p + i);
        if (c->write_phase < block_phase) continue;
        meet_writer_by_clock(*c, a, shared_byte(p) + i);
        if (!seen_by_async(*c, a, i)) say(site, "race: a bulk copy overwrites what was written without a fence.proxy.async and a barrier", p, bytes, "");
    }
    if (!*copy_to(p)) copies++;
    *copy_to(p) = (uint16_t)(a.thread + 1);
}

static void bulk_ends(const void *p, size_t bytes, int b)
{
    if (*copy_to(p)) {
        *copy_to(p) = 0;
        copies--;
    }
    for (size_t i = 0; i < bytes; i++) {
        cell *c = cell_of((const char *)p + i);
        c->write_phase = phase;
        c->read_phase = 0;
        write_stamp[shared_byte(p) + i] = now + 1;
        filled_by[shared_byte(p) + i] = (uint8_t)(b + 1);
    }
}

static void check(const void *p, size_t bytes, bool write, const void *site);

static void bulk_reads(const void *p, size_t bytes, const void *site)
{
    for (size_t i = 0; i < bytes; i++)
        if (cell_of((const char *)p + i)->write_phase >= launch_phase) {
            say(site, "race: a bulk copy reads what this kernel has written", p, bytes, "");
            return;
        }
    check(p, bytes, false, site);
}

/* Memory may be read at any time from the issue of a product to the wait for it. */
static void async_read(const void *p, size_t bytes, int warp, bool ends, const void *site)
{
    touch a = {p, bytes, false, false, site, (uint16_t)(warp * 32), (uint16_t)warp, steps[warp], true}, all = a;
    all.thread++;                                                       /* two lanes of a warp count as all of it */
    if (tracked && ends) note_read_by_clock(a, OF_WARP + warp);
    uint16_t *r = &reading[((const char *)p - tnch_arena) / 16];
    *r = (uint16_t)(*r + (ends ? -1 : 1));
    readings += ends ? -1 : 1;
    if (!ends) meet_copy(a);
    for (size_t i = 0; i < bytes; i++) {
        cell *c = cell_of((const char *)p + i);
        if (!ends) {
            if (c->write_phase == UNWRITTEN) { say(site, "read of uninitialised memory", p, bytes, " by wgmma"); return; }
            meet_writer(*c, a);
            if (tracked) meet_writer_by_clock(*c, a, shared_byte(p) + i);
            if (!seen_by_async(*c, a, i)) say(site, "race: wgmma reads what was written without a fence.proxy.async and a barrier", p, bytes, "");
        }
        note_read(c, a);
        note_read(c, all);
    }
}

static void check(const void *p, size_t bytes, bool write, const void *site)
{
    bool device = tnch_arena && (size_t)((const char *)p - tnch_arena) < tnch_arena_bytes;
    if (device && tnch_now) check_kernel(p, bytes, write, false, site);
    else if (device) say(site, "the host touches device memory", p, bytes, "");
    else if (tnch_now && !tnch_is_local(p) && !is_program(p))
        say(site, write ? "a kernel writes host memory, or another thread's" : "a kernel reads host memory, or another thread's", p,
            bytes, "");
}

/* ---- what the engine reports to the checker --------------------------------------------------------------------------- */

/* Cells of large ranges are given back to the system, which makes them zero again. */
static void forget(void *p, size_t bytes)
{
    char *begin = (char *)cell_of(p), *end = begin + bytes * sizeof(cell);
    char *first = (char *)(((uintptr_t)begin + 4095) / 4096 * 4096), *last = (char *)((uintptr_t)end / 4096 * 4096);
    if (last < first + (1 << 20) || madvise(first, (size_t)(last - first), MADV_DONTNEED)) {
        memset((void *)begin, 0, (size_t)(end - begin));
        return;
    }
    memset((void *)begin, 0, (size_t)(first - begin));
    memset((void *)last, 0, (size_t)(end - last));
}

static void written(void *p, size_t bytes)
{
    cell *c = cell_of(p);
    cell fresh = {BY_HOST, 0, 0, 0, 0, 0};
    for (size_t i = 0; i < bytes; i++) c[i] = fresh;
}

static void copied(void *to, const void *from, size_t bytes)
{
    cell *c = cell_of(to);
    const cell *source = cell_of(from);
    cell fresh = {BY_HOST, 0, 0, 0, 0, 0}, unwritten = {UNWRITTEN, 0, 0, 0, 0, 0};
    for (size_t i = 0; i < bytes; i++) c[i] = source[i].write_phase == UNWRITTEN ? unwritten : fresh;
}

static void reads(const void *p, size_t bytes, const char *who)
{
    const cell *c = cell_of(p);
    for (size_t i = 0; i < bytes; i++)
        if (c[i].write_phase == UNWRITTEN) { tnch_report("%s reads uninitialised memory: byte %zu of %zu", who, i, bytes); return; }
}

static void begin_phase(void)
{
    phase++;
    if (fence_time) memcpy(published, fenced_at, sizeof published);
    memset(steps, 0, sizeof steps);
}

static void barrier(void)
{
    begin_phase();
    join_threads(0, (int)(tnch_block_dim.x * tnch_block_dim.y * tnch_block_dim.z));
}

static void begin_launch(void) { launch_phase = phase + 1; }
static void begin_block(void)
{
    begin_phase();
    block_phase = phase;
    tracked = false;
    if (copies) memset(copying, 0, sizeof copying);
    if (readings) memset(reading, 0, sizeof reading);
    copies = readings = 0;
    if (fence_time) { memset(fenced_at, 0, sizeof fenced_at); memset(published, 0, sizeof published); }
    fence_time = 0;
}
static void begin_step(int warp)
{
    steps[warp]++;
    join_threads(warp * 32, 32);
}
static void atomic(void *p, size_t bytes, const void *site) { if (tnch_now) check_kernel(p, bytes, true, true, site); }

__attribute__((constructor)) static void install(void)
{
    tnch_hook.memory_new = tnch_hook.memory_gone = forget;
    tnch_hook.written = written;
    tnch_hook.copied = copied;
    tnch_hook.reads = reads;
    tnch_hook.launch = begin_launch;
    tnch_hook.block = begin_block;
    tnch_hook.barrier = barrier;
    tnch_hook.warp_barrier = begin_step;
    tnch_hook.atomic = atomic;
    tnch_hook.access = check;
    tnch_hook.copy_begins = copy_begins;
    tnch_hook.copy_ends = copy_ends;
    tnch_hook.async_read = async_read;
    tnch_hook.async_fence = async_fence;
    tnch_hook.async_done = async_done;
    tnch_hook.mbarrier_new = mbarrier_new;
    tnch_hook.mbarrier_used = mbarrier_used;
    tnch_hook.mbarrier_arrived = mbarrier_arrived;
    tnch_hook.mbarrier_complete = mbarrier_complete;
    tnch_hook.mbarrier_seen = mbarrier_seen;
    tnch_hook.warpgroup_barrier = warpgroup_barrier;
    tnch_hook.bulk_reads = bulk_reads;
    tnch_hook.bulk_begins = bulk_begins;
    tnch_hook.bulk_ends = bulk_ends;
}

/* ---- what the compiler calls ------------------------------------------------------------------------------------------ */

#define SITE __builtin_return_address(0)
#define ACCESSES(n) \
    void __tsan_read##n(void *p) { check(p, n, false, SITE); } \
    void __tsan_write##n(void *p) { check(p, n, true, SITE); } \
    void __tsan_read_write##n(void *p) { check(p, n, false, SITE); check(p, n, true, SITE); } \
    void __tsan_unaligned_read##n(void *p) { check(p, n, false, SITE); } \
    void __tsan_unaligned_write##n(void *p) { check(p, n, true, SITE); } \
    void __tsan_unaligned_read_write##n(void *p) { check(p, n, false, SITE); check(p, n, true, SITE); } \
    void __tsan_volatile_read##n(void *p) { check(p, n, false, SITE); } \
    void __tsan_volatile_write##n(void *p) { check(p, n, true, SITE); }

extern "C" {
void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_read(void **) {}
void __tsan_vptr_update(void **, void *) {}
ACCESSES(1) ACCESSES(2) ACCESSES(4) ACCESSES(8) ACCESSES(16)
void __tsan_read_range(void *p, size_t n) { for (size_t i = 0; i < n; i++) check((char *)p + i, 1, false, SITE); }
void __tsan_write_range(void *p, size_t n) { for (size_t i = 0; i < n; i++) check((char *)p + i, 1, true, SITE); }
void *__tsan_memcpy(void *to, const void *from, size_t n) { return memcpy(to, from, n); }
void *__tsan_memmove(void *to, const void *from, size_t n) { return memmove(to, from, n); }
void *__tsan_memset(void *to, int byte, size_t n) { return memset(to, byte, n); }
char __tsan_atomic8_load(const volatile char *p, int) { return *p; }   /* for the guard of a static variable */
}
