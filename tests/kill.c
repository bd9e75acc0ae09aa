/* kill.c - a run of `tn train` that is killed and resumed ends with the bits of one that was never stopped

       build/gcc/kill TN [TRIALS]      TN: the command, linked with hook.c

   First a run is killed (SIGKILL) once at each of the places in `places`: before a file is made, in the middle of its
   bytes, before it is synced, before and after it gets its name, and so on. What then lies in the folder is looked at, which
   proves that each kill happened where it was planted. Then TRIALS runs (5) are killed at least once, at a random moment of
   the time that the whole run takes, and resumed, each time with another number of threads, until they are done. In the end
   the checkpoint, the weights and the log (but for times) are compared. */
#define _XOPEN_SOURCE 700
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
#error "C only"
#endif

enum { STEPS = 20 };

static const char *tn, *folder;
static uint64_t    state = 88172645463325252u;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void stop(const char *what, const char *which)
{
    printf("FAIL kill: %s %s\n0 passed, 1 failed, 0 skipped\n", what, which);
    exit(1);
}

static char *path(const char *run, const char *file)
{
    static char text[4][1024];
    static int  next;
    next = (next + 1) % 4;
    snprintf(text[next], sizeof text[next], "%s/%s%s%s", folder, run, *file ? "/" : "", file);
    return text[next];
}

/* Its words go into a file of the run's name. */
static pid_t start(const char *run, int threads, int resume, const char *fault)
{
    char count[16];
    snprintf(count, sizeof count, "%d", threads);
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) stop("no process for", run);
    if (child > 0) return child;
    if (fault) setenv("TN_FAULT", fault, 1);
    if (!freopen(path("said", ""), "a", stdout) || dup2(STDOUT_FILENO, STDERR_FILENO) < 0) _exit(99);
    if (resume) execl(tn, "tn", "train", "--resume", path(run, ""), "--threads", count, (char *)NULL);
    else execl(tn, "tn", "train", path("text", ""), "--out", path(run, ""), "--threads", count, "--steps", "20", "--width",
               "24", "--heads", "2", "--context", "16", "--batch", "4", "--accumulate", "2", "--save-every", "1",
               "--val-every", "10", "--val-tokens", "256", "--sample-every", "10", "--sample-length", "12", (char *)NULL);
    _exit(98);
}

/* Waits; 0 if it ended by itself and well, SIGKILL if it was killed in time. */
static int end_of(pid_t child, const char *run)
{
    int status;
    if (waitpid(child, &status, 0) != child) stop("lost the process of", run);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return SIGKILL;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        printf("its status: %d\n", status);
        stop("a process failed that was not killed, see `said`:", run);
    }
    return 0;
}

static char *whole(const char *file, size_t *bytes)
{
    FILE  *f = fopen(file, "rb");
    struct stat s;
    if (!f || stat(file, &s) != 0) stop("cannot read", file);
    char *data = (char *)malloc((size_t)s.st_size + 1);
    if (!data || fread(data, 1, (size_t)s.st_size, f) != (size_t)s.st_size) stop("cannot read", file);
    fclose(f);
    *bytes = (size_t)s.st_size;
    data[*bytes] = 0;
    return data;
}

/* Of each line of a log the part behind "rate" goes: times. */
static size_t without_times(char *text, size_t bytes)
{
    size_t from = 0, to = 0;
    while (from < bytes) {
        char  *line = text + from, *end = (char *)memchr(line, '\n', bytes - from);
        size_t length = end ? (size_t)(end - line) + 1 : bytes - from;
        line[length - 1] = 0;
        char *rate = strstr(line, "\"rate\"");
        from += length;
        length = rate ? (size_t)(rate - line) : length;
        memmove(text + to, line, length);
        to += length;
    }
    return to;
}

static int same(const char *run, const char *file)
{
    size_t a, b;
    char  *x = whole(path("whole", file), &a), *y = whole(path(run, file), &b);
    if (strstr(file, ".jsonl")) {
        a = without_times(x, a);
        b = without_times(y, b);
    }
    int equal = a == b && memcmp(x, y, a) == 0;
    if (!equal) printf("FAIL kill: %s/%s differs from the unkilled run's (%zu bytes, %zu)\n", run, file, a, b);
    free(x);
    free(y);
    return equal;
}

static int exists(const char *file) { return access(file, F_OK) == 0; }

static void remove_run(const char *run)
{
    char command[1200];
    snprintf(command, sizeof command, "rm -rf '%s'", path(run, ""));
    if (system(command) != 0) stop("cannot remove", run);
}

static void write_text(void)
{
    static const char *const words[] = {"one", "day", "the", "cat", "saw", "a", "red", "ball", "and", "ran", "home.", "it",
        "was\n", "happy"};
    FILE *f = fopen(path("text", ""), "wb");
    if (!f) stop("cannot write", "text");
    for (int i = 0; i < 2000; i++) fprintf(f, "%s ", words[draw() % (sizeof words / sizeof *words)]);
    fclose(f);
}

/* Does the run have the same files as the one that was never killed? */
static int all_same(const char *run)
{
    static const char *const files[] = {"step-00000020.safetensors", "model.safetensors", "log.jsonl", "config.txt",
        "config.json"};
    int good = 1;
    for (int i = 0; i < (int)(sizeof files / sizeof *files); i++) good = same(run, files[i]) && good;
    return good;
}

/* ---- planted kills ---- */

enum state { ABSENT, PART, WHOLE };      /* of a file: not there; the beginning of it; all of its bytes, or nearly */
static const char *const state_names[] = {"absent", "in part", "whole"};

/* Of step 7, in the middle of the run, and of the files around the run. */
#define STEP "step-00000007.safetensors"
static const struct { const char *fault, *file; enum state temporary, named; } places[] = {
    {"open:1:kill:config.txt.tn1.tmp", "config.txt", ABSENT, ABSENT},
    {"fwrite:1:half:config.txt.tn1.tmp", "config.txt", PART, ABSENT},
    {"rename:1:after:config.txt.tn1.tmp", "config.txt", ABSENT, WHOLE},
    {"rename:1:kill:config.json.tn1.tmp", "config.json", WHOLE, ABSENT},
    {"open:1:kill:step-00000000", "step-00000000.safetensors", ABSENT, ABSENT},
    {"fwrite:1:half:step-00000000", "step-00000000.safetensors", PART, ABSENT},
    {"open:1:kill:" STEP ".tn1.tmp", STEP, ABSENT, ABSENT},
    {"open:1:after:" STEP ".tn1.tmp", STEP, PART, ABSENT},
    {"fwrite:1:half:" STEP ".tn1.tmp", STEP, PART, ABSENT},
    {"fwrite:2:half:" STEP ".tn1.tmp", STEP, PART, ABSENT},
    {"fsync:1:kill:" STEP ".tn1.tmp", STEP, WHOLE, ABSENT},
    {"rename:1:kill:" STEP ".tn1.tmp", STEP, WHOLE, ABSENT},
    {"rename:1:after:" STEP ".tn1.tmp", STEP, ABSENT, WHOLE},
    {"fsync:7:kill:log.jsonl", "step-00000006.safetensors", ABSENT, ABSENT},
    {"unlink:1:kill:step-00000005", "step-00000005.safetensors", ABSENT, WHOLE},
    {"unlink:1:after:step-00000005", "step-00000005.safetensors", ABSENT, ABSENT},
    {"fwrite:1:half:model.safetensors.tn1.tmp", "model.safetensors", PART, ABSENT},
    {"rename:1:kill:model.safetensors.tn1.tmp", "model.safetensors", WHOLE, ABSENT},
    {"rename:1:after:model.safetensors.tn1.tmp", "model.safetensors", ABSENT, WHOLE}
};

/* Headers of two steps differ by the digits of a number. */
static enum state state_of(const char *file, long whole_bytes)
{
    struct stat s;
    if (stat(file, &s) != 0) return ABSENT;
    return (long)s.st_size >= whole_bytes - 64 ? WHOLE : PART;
}

static int in_state(const char *fault, const char *file, enum state found, enum state expected)
{
    if (found == expected) return 1;
    printf("FAIL kill: %s: %s is %s, not %s\n", fault, file, state_names[found], state_names[expected]);
    return 0;
}

/* How many of the places end as they should; *halves: how many were found to have left part of a file. */
static int planted(int *halves)
{
    int  good = 0;
    char temporary[64];
    for (int i = 0; i < (int)(sizeof places / sizeof *places); i++) {
        const char *whole_file = strncmp(places[i].file, "step-", 5) ? places[i].file : "step-00000020.safetensors";
        struct stat s;
        remove_run("planted");
        if (end_of(start("planted", 1 + i % 2, 0, places[i].fault), "planted") != SIGKILL)
            stop("no kill came at", places[i].fault);
        if (stat(path("whole", whole_file), &s) != 0) stop("cannot read", whole_file);
        snprintf(temporary, sizeof temporary, "%s.tn1.tmp", places[i].file);
        enum state left = state_of(path("planted", temporary), (long)s.st_size);
        *halves += left == PART;
        int ok = in_state(places[i].fault, temporary, left, places[i].temporary);
        left = state_of(path("planted", places[i].file), (long)s.st_size);
        ok = in_state(places[i].fault, places[i].file, left, places[i].named) && ok;
        if (end_of(start("planted", 2 - i % 2, exists(path("planted", "config.txt")), NULL), "planted") != 0)
            stop("killed though no kill was planted:", places[i].fault);
        left = state_of(path("planted", temporary), (long)s.st_size);
        ok = in_state(places[i].fault, temporary, left, ABSENT) && ok;
        good += all_same("planted") && ok;
    }
    return good;
}

int main(int argc, char **argv)
{
    const char *tmp = getenv("TN_TEST_TMP");
    char        own[900];
    const int   spots = (int)(sizeof places / sizeof *places);
    int         trials = argc > 2 ? atoi(argv[2]) : 5, kills = 0, halves = 0, planted_halves = 0, before_config = 0;
    int         equal = 0;
    double      begun = now();
    if (argc < 2) stop("usage: kill", "TN");
    tn = argv[1];
    snprintf(own, sizeof own, "%s/kill.%ld", tmp ? tmp : "/tmp", (long)getpid());
    folder = own;
    if (mkdir(folder, 0777) != 0) stop("cannot make", folder);
    write_text();
    if (end_of(start("whole", 1, 0, NULL), "whole") != 0) stop("the first run", "was killed");
    double length = now();
    remove_run("again");
    if (end_of(start("again", 2, 0, NULL), "again") != 0) stop("the second run", "was killed");
    length = now() - length;
    if (!all_same("again")) stop("two runs differ", "without any kill");
    int good = planted(&planted_halves);

    for (int trial = 0; trial < trials; trial++) {
        int  killed = 0, done = 0, i;
        char half[64];
        remove_run("trial");
        while (!done) {
            const int resume = exists(path("trial", "config.txt"));
            pid_t     child = start("trial", 1 + (int)(draw() % 2), resume, NULL);
            if (killed == 0 || draw() % 4 == 0) {     /* at least once; then one time in four */
                double          wait = length * (double)(draw() >> 11) / 9007199254740992.0;
                struct timespec pause;
                pause.tv_sec = (time_t)wait;
                pause.tv_nsec = (long)((wait - (double)pause.tv_sec) * 1e9);
                nanosleep(&pause, NULL);
                kill(child, SIGKILL);
            }
            if (end_of(child, "trial") == SIGKILL) {
                killed++;
                before_config += !exists(path("trial", "config.txt"));
                for (i = 0; i <= STEPS; i++) {
                    snprintf(half, sizeof half, "step-%08d.safetensors.tn1.tmp", i);
                    if (exists(path("trial", half))) break;
                }
                halves += i <= STEPS;
            } else if (killed) done = 1;
            else remove_run("trial");                 /* it was done before the kill came: once more */
        }
        kills += killed;
        equal += all_same("trial");
    }
    printf("planted_kills: %d, of them %d in the middle of a file; resumed with equal bits: %d\n", spots, planted_halves,
           good);
    printf("kills: %d, of them %d while a checkpoint was written, %d before the run had its settings\n"
           "equal_resumes: %d of %d\nkill_seconds: %.1f\n",
           kills, halves, before_config, equal, trials, now() - begun);
    remove_run("");
    printf("%d passed, %d failed, 0 skipped\n", equal + good, trials - equal + spots - good);
    return equal < trials || good < spots;
}
