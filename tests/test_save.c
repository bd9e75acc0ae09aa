/* test_save.c: saves that are killed, that run at the same time, and that find their names taken. What else a save can
   meet is in test_abuse.c; failing system calls are in heavy/faults.c. */

#if !defined(_WIN32) && !defined(_XOPEN_SOURCE)
#define _XOPEN_SOURCE 700               /* kill, which strict C99 hides */
#endif
#include "kit.h"

#if defined(__unix__) || defined(__APPLE__)
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* TN_TEST_TMP/save-PID/name: tests of several builds run side by side */
static const char *place(const char *name)
{
    static char path[4][TEST_PATH];
    static int  turn;
    static long pid;                    /* a child works in its parent's folder */
    char       *p = path[turn = (turn + 1) % 4];
    if (!pid) pid = (long)getpid();
    snprintf(p, TEST_PATH, "%s/save-%ld%s%s", test_folder(), pid, *name ? "/" : "", name);
    return p;
}

/* How many names are in the folder. */
static int files(void)
{
    DIR *d = opendir(place(""));
    int  n = -2;                        /* . and .. */
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

/* A child's save is to stop once its temporary file is there. The library asks for the buffer that numbers go through,
   its only large piece of memory then, when it has made that file and written the header. */
typedef struct moment { bool armed, dies; int ready, go; } moment;

static void *moment_alloc(size_t bytes, void *user)
{
    moment *m = (moment *)user;
    char    byte = 0;
    if (m->armed && bytes > 65536) {
        m->armed = false;
        if (m->dies) raise(SIGKILL);
        if (write(m->ready, &byte, 1) != 1 || read(m->go, &byte, 1) != 1) _exit(3);
    }
    return malloc(bytes);
}

static void moment_release(void *p, size_t bytes, void *user)
{
    (void)bytes;
    (void)user;
    free(p);
}

static tn_status save_in_a_context(moment *m, const char *path, char message[256])
{
    static const int64_t shape[] = {200, 200};
    tn_desc    desc = ZERO;
    tn_ctx    *ctx;
    tn_init    init = ZERO;
    desc.threads = 1;
    if (m) {
        desc.allocator.alloc = moment_alloc;
        desc.allocator.release = moment_release;
        desc.allocator.user = m;
    }
    if (tn_ctx_create(&desc, &ctx, NULL) != TN_OK) return TN_ERR_MEMORY;
    tn_params *params = tn_params_create(ctx);
    tn_params_add(params, "w", 2, shape, init);
    if (m) m->armed = true;
    tn_status status = tn_params_save(params, path);
    if (message) snprintf(message, 256, "%s", tn_ctx_error(ctx));
    tn_ctx_destroy(ctx);
    return status;
}

/* A process of its own that saves. It dies in the middle of the save, or waits there for a byte. */
typedef struct saver { pid_t pid; int ready, go; } saver;

static saver start_saver(const char *name, bool dies)
{
    char   path[TEST_PATH];
    int    ready[2] = {-1, -1}, go[2] = {-1, -1};
    moment m;
    saver  s;
    char   byte;
    snprintf(path, sizeof path, "%s", place(name));
    CHECK(pipe(ready) == 0 && pipe(go) == 0);
    m.armed = false;
    m.ready = ready[1];
    m.go = go[0];
    m.dies = dies;
    fflush(stdout);
    s.pid = fork();
    if (s.pid == 0) {
        close(ready[0]);
        close(go[1]);
        _exit(save_in_a_context(&m, path, NULL) == TN_OK ? 0 : 2);
    }
    close(ready[1]);
    close(go[0]);
    s.ready = ready[0];
    s.go = go[1];
    if (!dies) CHECK(read(s.ready, &byte, 1) == 1);
    return s;
}

/* Its wait status, after a byte that lets it go on. */
static int end_saver(const saver *s, bool goes_on)
{
    int  status = -1;
    char byte = 0;
    signal(SIGPIPE, SIG_IGN);           /* it may have died */
    if (goes_on) CHECK(write(s->go, &byte, 1) == 1);
    CHECK(waitpid(s->pid, &status, 0) == s->pid);
    close(s->ready);
    close(s->go);
    return status;
}

static bool was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

static void check_whole(const char *path)
{
    static const int64_t shape[] = {200, 200};
    tn_ctx    *ctx;
    tn_init    init = ZERO;
    if (!CHECK(tn_ctx_create(NULL, &ctx, NULL) == TN_OK)) return;
    tn_params *params = tn_params_create(ctx);
    tn_params_add(params, "w", 2, shape, init);
    CHECK_STATUS(tn_params_load(params, path), TN_OK);
    CLOSE_CTX(ctx);
}

static void check_saves(const char *name)
{
    char path[TEST_PATH];
    char message[256];
    snprintf(path, sizeof path, "%s", place(name));
    CHECK_STATUS(save_in_a_context(NULL, path, message), TN_OK);
    CHECK_STR(message, "");
    check_whole(path);
}

/* However many saves are killed, one leaves a file behind at most, and a later one succeeds and removes it. */
TEST(killed_saves_leave_one_file)
{
    const int kills = test_small() ? 12 : 105;
    int       most = 0;
    REQUIRE(mkdir(place(""), 0777) == 0);
    for (int i = 0; i < kills; i++) {
        saver s = start_saver("w", true);
        if (!CHECK(was_killed(end_saver(&s, false)))) break;
        if (files() > most) most = files();
    }
    CHECK_INT(most, 1);
    check_saves("w");
    CHECK_INT(files(), 1);
    remove(place("w"));
    CHECK(remove(place("")) == 0);
}

/* Five at a time: those that live keep their file and succeed, and those of the dead go. */
TEST(only_the_dead_are_removed)
{
    saver s[5];
    REQUIRE(mkdir(place(""), 0777) == 0);
    for (int i = 0; i < 5; i++) s[i] = start_saver("w", false);
    CHECK_INT(files(), 5);
    for (int i = 0; i < 5; i += 2) {
        kill(s[i].pid, SIGKILL);
        CHECK(was_killed(end_saver(&s[i], false)));
    }
    CHECK_INT(files(), 5);
    check_saves("w");
    CHECK_INT(files(), 3);
    for (int i = 1; i < 5; i += 2) {
        CHECK_INT(end_saver(&s[i], true), 0);
        check_whole(place("w"));
        CHECK_INT(files(), i == 1 ? 2 : 1);
    }
    for (int i = 0; i < 5; i++) s[i] = start_saver("w", false);
    CHECK_INT(end_saver(&s[0], true), 0);               /* the lower names become free, and then the others die */
    CHECK_INT(end_saver(&s[1], true), 0);
    for (int i = 2; i < 5; i++) {
        kill(s[i].pid, SIGKILL);
        CHECK(was_killed(end_saver(&s[i], false)));
    }
    CHECK_INT(files(), 4);
    check_saves("w");
    CHECK_INT(files(), 1);
    remove(place("w"));
    CHECK(remove(place("")) == 0);
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* Where locks are not shared, as on some network file systems, another save may take the temporary file of a living one
   for a leftover, remove it and begin its own under the same name. The first save must neither rename nor remove that. */
TEST(a_temporary_file_that_is_replaced)
{
    REQUIRE(mkdir(place(""), 0777) == 0);
    for (int replaced = 0; replaced < 2; replaced++)
        for (int old = 0; old < 2; old++) {
            if (old) put(place("w"), "old");
            saver s = start_saver("w", false);
            CHECK(remove(place("w.tn1.tmp")) == 0);
            if (replaced) put(place("w.tn1.tmp"), "half of another");
            CHECK(WEXITSTATUS(end_saver(&s, true)) == 2);
            CHECK(old ? file_is(place("w"), "old") : !test_exists(place("w")));
            CHECK(!replaced || file_is(place("w.tn1.tmp"), "half of another"));
            CHECK_INT(files(), old + replaced);
            remove(place("w.tn1.tmp"));
            remove(place("w"));
        }
    CHECK(remove(place("")) == 0);
}

/* Where no name is free the message says which are taken and what to do. Folders can be neither locked nor removed. */
TEST(all_names_are_taken)
{
    char name[32], message[256] = "";
    REQUIRE(mkdir(place(""), 0777) == 0);
    for (int i = 1; i < 99; i++) {
        snprintf(name, sizeof name, "w.tn%d.tmp", i);
        CHECK(mkdir(place(name), 0777) == 0);
    }
    check_saves("w");
    CHECK(mkdir(place("w.tn99.tmp"), 0777) == 0);
    CHECK_STATUS(save_in_a_context(NULL, place("w"), message), TN_ERR_FILE);
    CHECK(strstr(message, "all 99 names from .tn1.tmp to .tn99.tmp are taken") != NULL);
    CHECK_INT(files(), 100);
    check_whole(place("w"));
    for (int i = 1; i < 100; i++) {
        snprintf(name, sizeof name, "w.tn%d.tmp", i);
        remove(place(name));
    }
    remove(place("w"));
    CHECK(remove(place("")) == 0);
}
/* A file of a program's own: pieces, kept or not; two at the same time; what lies beside it; a pipe. */
TEST(files_of_a_program)
{
    tn_ctx *ctx;
    char    path[TEST_PATH];
    int     pipe = -1;
    const int unused = open("/dev/null", O_RDONLY);
    close(unused);
    REQUIRE(mkdir(place(""), 0777) == 0 && tn_ctx_create(NULL, &ctx, NULL) == TN_OK);
    put(place("w"), "old");
    put(place("w.tmp"), "mine");
    CHECK(symlink("w.tmp", place("w.tn1.tmp")) == 0);
    snprintf(path, sizeof path, "%s", place("w"));
    tn_writer *f = tn_writer_open(ctx, path);
    tn_writer *other = tn_writer_open(ctx, path);
    memset(path, 'x', strlen(path));                    /* the path was copied */
    REQUIRE(f && other);
    CHECK_STATUS(tn_writer_write(f, "one, ", 5), TN_OK);
    CHECK_STATUS(tn_writer_write(other, "of the other, which is longer", 29), TN_OK);
    CHECK_STATUS(tn_writer_write(f, "two", 3), TN_OK);
    CHECK_STATUS(tn_writer_close(other, true), TN_OK);
    CHECK(file_is(place("w"), "of the other, which is longer"));
    CHECK_STATUS(tn_writer_close(f, true), TN_OK);
    CHECK(file_is(place("w"), "one, two") && file_is(place("w.tmp"), "mine"));
    remove(place("w.tn1.tmp"));
    REQUIRE((f = tn_writer_open(ctx, place("w"))) != NULL);
    CHECK_STATUS(tn_writer_write(f, "three", 5), TN_OK);
    CHECK_INT(files(), 3);
    CHECK_STATUS(tn_writer_close(f, false), TN_OK);
    CHECK(file_is(place("w"), "one, two"));
    CHECK_INT(files(), 2);
    CHECK(mkfifo(place("pipe"), 0600) == 0 && (pipe = open(place("pipe"), O_RDWR)) >= 0);
    REQUIRE((f = tn_writer_open(ctx, place("pipe"))) != NULL);
    CHECK_STATUS(tn_writer_write(f, "piped", 5), TN_OK);
    CHECK_STATUS(tn_writer_close(f, true), TN_OK);
    CHECK(read(pipe, path, 5) == 5 && memcmp(path, "piped", 5) == 0);
    close(pipe);
    REQUIRE(tn_writer_open(ctx, place("w")) != NULL);
    CHECK_CTX(ctx);
    CHECK(tn_writer_open(ctx, place("no/such")) == NULL && tn_ctx_status(ctx) == TN_ERR_FILE);
    CHECK_STATUS(tn_writer_write(NULL, "", 0), TN_ERR_ARG);
    CHECK_STATUS(tn_writer_close(NULL, true), TN_ERR_ARG);
    tn_ctx_destroy(ctx);                                /* removes what is left */
    CHECK_INT(files(), 3);
    CHECK_INT(pipe = open("/dev/null", O_RDONLY), unused);      /* all files are closed */
    close(pipe);
    remove(place("pipe")); remove(place("w")); remove(place("w.tmp"));
    CHECK(remove(place("")) == 0);
}
#else
TEST(files_of_a_program)          { SKIP("posix", "links and pipes"); }
TEST(killed_saves_leave_one_file) { SKIP("posix", "fork and kill"); }
TEST(only_the_dead_are_removed)   { SKIP("posix", "fork and kill"); }
TEST(all_names_are_taken)         { SKIP("posix", "folders"); }
TEST(a_temporary_file_that_is_replaced) { SKIP("posix", "fork, and files that can be removed while they are open"); }
#endif

TEST_MAIN(killed_saves_leave_one_file, only_the_dead_are_removed, a_temporary_file_that_is_replaced, all_names_are_taken,
          files_of_a_program)
