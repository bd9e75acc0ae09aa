/* faults.c: every save of the library, with each of its own calls of the kinds in the tables below failing once, and
   killed at each of them

   Linked with hook.c, which does not see the calls that the C library makes inside of its own functions. A file with other
   contents is there before each save. Whatever fails, afterwards the path holds the old file or the new one, whole; a save
   that answers TN_OK has left the new one; one that does not says why; nothing else lies beside it, except where the library
   could not tell whose its temporary file was; and the next save succeeds. What a killed save left is gone after the next
   one. A table says how many saves there were. */
#include "hook.h"
#include "test.h"
#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KINDS = 6, FILE_ROOM = 1 << 17 };
static const char *const kind_names[KINDS] = {"params", "checkpoint", "npy", "tokenizer", "shard", "image"};

static tn_ctx       *ctx;
static tn_params    *params;
static tn_optim     *optim;
static tn_tokenizer *tokenizer;
static tn_image     *image;
static char          folder[TEST_PATH], path[TEST_PATH + 8];
static unsigned char old_bytes[] = "the old file", new_bytes[KINDS][FILE_ROOM], got[FILE_ROOM];
static size_t        new_size[KINDS];

static tn_status write_kind(int kind, tn_sink sink)
{
    static const int32_t ids[] = {3, 1, 4, 1, 5, 9, 2, 6};
    static const tn_metadata note = {"who", "faults.c"};
    switch (kind) {
    case 0:  return tn_params_write(params, sink, &note, 1);
    case 1:  return tn_checkpoint_write(optim, sink, &note, 1);
    case 2:  return tn_npy_write(tn_params_at(params, 0)->value, sink);
    case 3:  return tn_tokenizer_write(tokenizer, sink);
    case 4:  return tn_shard_write(ctx, sink, ids, 8, 10);
    default: return tn_image_write_ppm(image, sink);
    }
}

static tn_status save(int kind, bool no_sync)
{
    tn_sink sink = tn_sink_path(path);
    sink.no_sync = no_sync;
    return write_kind(kind, sink);
}

static int files(void)
{
    DIR *d = opendir(folder);
    int  n = -2;
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

static void put_old(void)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(old_bytes, 1, sizeof old_bytes, f) == sizeof old_bytes && fclose(f) == 0);
}

static bool holds(const unsigned char *bytes, size_t size)
{
    FILE  *f = fopen(path, "rb");
    size_t n = f ? fread(got, 1, sizeof got, f) : 0;
    if (f) fclose(f);
    return f && n == size && memcmp(got, bytes, size) == 0;
}

static bool holds_old(void)     { return holds(old_bytes, sizeof old_bytes); }
static bool holds_new(int kind) { return holds(new_bytes[kind], new_size[kind]); }

static bool begin(void)
{
    static const int64_t shape[] = {60, 40};
    static const char    words[] = "one day the cat saw the ball. one day the ball saw the cat. the cat ran home.";
    tn_desc           desc;
    tn_init           init;
    tn_optim_desc     rule;
    tn_tokenizer_train_desc none;
    memset(&desc, 0, sizeof desc);
    memset(&init, 0, sizeof init);
    memset(&rule, 0, sizeof rule);
    memset(&none, 0, sizeof none);
    desc.threads = 1;
    init.rule = TN_INIT_NORMAL;
    rule.lr = 0.1;
    if (!CHECK(tn_ctx_create(&desc, &ctx, NULL) == TN_OK)) return false;
    params = tn_params_create(ctx);
    tn_params_add(params, "w", 2, shape, init);
    tn_params_add(params, "b", 1, shape + 1, init);
    optim = tn_optim_create(params, &rule);
    tokenizer = tn_tokenizer_train(ctx, words, sizeof words - 1, 40, &none);
    image = tn_image_create(ctx, 60, 40);
    for (int kind = 0; kind < KINDS; kind++)
        CHECK_STATUS(write_kind(kind, tn_sink_memory(new_bytes[kind], FILE_ROOM, &new_size[kind])), TN_OK);
    snprintf(folder, sizeof folder, "%s/faults-%ld", test_folder(), (long)getpid());
    snprintf(path, sizeof path, "%s/file", folder);
    return CHECK_CTX(ctx) && CHECK(mkdir(folder, 0777) == 0);
}

static void end(void)
{
    remove(path);
    CHECK(remove(folder) == 0);
    tn_ctx_destroy(ctx);
}

/* A save without faults: the new file, and nothing beside it. */
static void check_recovers(int kind)
{
    CHECK_STATUS(save(kind, false), TN_OK);
    CHECK_CTX(ctx);
    CHECK(holds_new(kind));
    CHECK_INT(files(), 1);
}

/* ---- calls that fail ------------------------------------------------------------------------------------ */

typedef struct tally { int saves, failed, unharmed; } tally;

static void describe(const char *fault, int kind, bool no_sync, int before)
{
    if (test_now.failures == before) return;
    printf("     that was %s of %s%s\n", fault, kind_names[kind], no_sync ? ", no_sync" : "");
}

/* harmless: the save succeeds all the same; otherwise it fails */
static bool fails_once(const char *call, const char *what, int n, int kind, bool no_sync, bool harmless, tally *t)
{
    char fault[96];
    int  before = test_now.failures, left = 0;
    put_old();
    snprintf(fault, sizeof fault, "%s:%d:%s", call, n, what);
    hook_plan(fault);
    tn_status s = save(kind, no_sync);
    if (!hook_happened()) {
        hook_plan("");
        CHECK_STATUS(s, TN_OK);
        return false;
    }
    hook_plan("");
    t->saves++;
    CHECK(!no_sync || strcmp(call, "fsync") != 0);
    if (s == TN_OK) {
        t->unharmed++;
        CHECK(harmless);
        CHECK_CTX(ctx);
        CHECK(holds_new(kind));
    } else {
        t->failed++;
        CHECK(!harmless);
        CHECK(s == TN_ERR_FILE || s == TN_ERR_MEMORY);
        CHECK_STATUS(tn_ctx_status(ctx), s);
        CHECK(strlen(tn_ctx_error(ctx)) > 10);
        if (strstr(tn_ctx_error(ctx), "the file was saved, but its folder could not be synced"))
            CHECK(holds_new(kind) && !no_sync);
        else CHECK(holds_old());
        left = strstr(tn_ctx_error(ctx), "its temporary file could not be looked up") != NULL;
        tn_ctx_clear_error(ctx);
    }
    CHECK_INT(files(), 1 + left);
    check_recovers(kind);
    describe(fault, kind, no_sync, before);
    return true;
}

/* fopen: the first eight look for leftovers of killed saves; there are none here. An interrupted sync is repeated. close is
   that of the lock, after the file and its folder are safe; and files are written where there are no locks. The first
   stat asks whether there is an old file, the second and the first fstat belong to the lock, too; the others must succeed. */
TEST(calls_that_fail)
{
    static const struct { const char *call, *what; int harmless_up_to; } faults[] = {
        {"fopen", "EMFILE", 8}, {"open", "EMFILE", 0}, {"open", "EIO", 0},
        {"fopen", "EIO", 8}, {"fwrite", "ENOSPC", 0}, {"fwrite", "short", 0}, {"fwrite", "EIO", 0}, {"fflush", "ENOSPC", 0},
        {"fflush", "EIO", 0}, {"fsync", "EIO", 0}, {"fsync", "EDQUOT", 0}, {"fsync", "EINTR", 99}, {"fclose", "EIO", 0},
        {"fclose", "EDQUOT", 0}, {"close", "EIO", 99}, {"rename", "EIO", 0}, {"flock", "ENOLCK", 99}, {"flock", "EIO", 99},
        {"dup", "EMFILE", 0}, {"stat", "EIO", 3}, {"fstat", "EIO", 1}, {"malloc", "NULL", 0}};
    if (!begin()) return;
    printf("fault of a save            saves  failed  unharmed\n");
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        tally t = {0, 0, 0};
        for (int kind = 0; kind < KINDS; kind++) {
            const int before = t.saves;
            for (int no_sync = 0; no_sync < 2; no_sync++)
                for (int n = 1; fails_once(faults[i].call, faults[i].what, n, kind, no_sync, n <= faults[i].harmless_up_to,
                                           &t); n++) {}
            CHECK(t.saves > before);    /* each fault happened at least once per kind */
        }
        printf("%-10s %-14s %6d %7d %9d\n", faults[i].call, faults[i].what, t.saves, t.failed, t.unharmed);
    }
    end();
}

/* ---- kills ------------------------------------------------------------------------------------------------- */

/* A child that saves with this fault; true if it was killed. */
static bool killed(const char *fault, int kind, bool no_sync)
{
    int status = -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        hook_plan(fault);
        _exit(save(kind, no_sync) == TN_OK ? 0 : 2);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return true;
    CHECK_INT(status, 0);
    return false;
}

TEST(kills_in_each_call)
{
    static const struct { const char *call, *what; } faults[] = {
        {"fopen", "kill"}, {"fopen", "after"}, {"open", "kill"}, {"open", "after"}, {"flock", "kill"},
        {"fwrite", "kill"}, {"fwrite", "half"}, {"fwrite", "after"}, {"fflush", "kill"}, {"fflush", "after"},
        {"fsync", "kill"}, {"fsync", "after"}, {"dup", "kill"}, {"fclose", "kill"}, {"fclose", "after"}, {"rename", "kill"},
        {"rename", "after"}, {"close", "kill"}, {"close", "after"}};
    char fault[96];
    if (!begin()) return;
    printf("kill in a save             kills    old     new  leftovers\n");
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        int kills = 0, old = 0, left = 0;
        for (int kind = 0; kind < KINDS; kind++)
            for (int n = 1; n < 100; n++) {
                int before = test_now.failures;
                put_old();
                snprintf(fault, sizeof fault, "%s:%d:%s", faults[i].call, n, faults[i].what);
                if (!killed(fault, kind, false)) break;
                kills++;
                old += holds_old();
                CHECK(holds_old() || holds_new(kind));
                left += files() - 1;
                CHECK(files() <= 2);
                check_recovers(kind);
                describe(fault, kind, false, before);
            }
        CHECK(kills >= KINDS);
        printf("%-10s %-14s %6d %6d %7d %10d\n", faults[i].call, faults[i].what, kills, old, kills - old, left);
    }
    end();
}

/* A leftover that cannot be removed does no harm, and is removed once that is possible. */
TEST(leftovers_that_stay)
{
    if (!begin()) return;
    put_old();
    CHECK(killed("rename:1:kill", 0, false));
    CHECK_INT(files(), 2);
    hook_plan("remove:1:EIO");
    CHECK_STATUS(save(0, false), TN_OK);
    CHECK_INT(hook_happened(), 1);
    hook_plan("");
    CHECK(holds_new(0));
    CHECK_INT(files(), 2);
    for (int i = 0; i < 3; i++) {       /* without locks it is unknown whether their writers live */
        hook_plan("flock:/1:ENOLCK");
        CHECK_STATUS(save(0, false), TN_OK);
        CHECK(hook_happened() > 0);
        hook_plan("");
        CHECK_INT(files(), 2);
    }
    check_recovers(0);
    remove(path);                       /* a failed save that cannot remove its own: a folder cannot be replaced */
    CHECK(mkdir(path, 0777) == 0);
    hook_plan("remove:1:EIO");
    FAILS(ctx, save(0, false), TN_ERR_FILE, "could not be replaced");
    CHECK_INT(hook_happened(), 1);
    hook_plan("");
    CHECK_INT(files(), 2);
    CHECK(remove(path) == 0);
    check_recovers(0);
    end();
}

TEST_MAIN(calls_that_fail, kills_in_each_call, leftovers_that_stay)
