/* meet.c: meet SECONDS COMMAND...: runs a test until its first line that begins with "FAIL ", for at most SECONDS of
   processor time, and prints one line: how it went, a tab, and the processor seconds that it took. "passed" is said only of
   exit status 0. The limit on the clock is wide; it is for a mutant that waits for ever. */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 240 };

/* Reads lines until one says FAIL, the output ends, or the clock does. */
static const char *watch(int output, double limit, char failed[LINE + 1])
{
    static char buffer[65536];
    struct timespec begin, now;
    size_t used = 0;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (;;) {
        struct pollfd p = { output, POLLIN, 0 };
        char   *end;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((double)(now.tv_sec - begin.tv_sec) > limit) return "waited too long";
        if (poll(&p, 1, 1000) <= 0) continue;
        ssize_t n = read(output, buffer + used, sizeof buffer - used);
        if (n <= 0) return NULL;
        used += (size_t)n;
        while ((end = (char *)memchr(buffer, '\n', used)) != NULL || used == sizeof buffer) {
            size_t length = end ? (size_t)(end - buffer) : used;
            if (length > 5 && memcmp(buffer, "FAIL ", 5) == 0) {
                size_t k = length < LINE ? length : LINE;
                memcpy(failed, buffer, k);
                failed[k] = 0;
                for (; k > 0; k--) if (failed[k - 1] == '\t') failed[k - 1] = ' ';
                return failed;
            }
            used -= length + (end != NULL);
            memmove(buffer, buffer + length + (end != NULL), used);
        }
    }
}

int main(int argc, char **argv)
{
    char          failed[LINE + 1], word[64];
    double        seconds = argc > 2 ? atof(argv[1]) : 0;
    struct rusage used;
    int           output[2], status;
    pid_t         child;
    if (!(seconds > 0)) { fprintf(stderr, "meet SECONDS COMMAND...\n"); return 2; }
    if (pipe(output) != 0 || (child = fork()) < 0) { perror("meet"); return 2; }
    if (child == 0) {
        struct rlimit cpu = { (rlim_t)seconds + 1, (rlim_t)seconds + 3 }, none = { 0, 0 };
        struct rlimit memory = { (rlim_t)16 << 30, (rlim_t)16 << 30 };
        setpgid(0, 0);
        setrlimit(RLIMIT_CPU, &cpu);
        setrlimit(RLIMIT_CORE, &none);
        setrlimit(RLIMIT_AS, &memory);
        dup2(output[1], 1);
        dup2(output[1], 2);
        close(output[0]);
        close(output[1]);
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    setpgid(child, child);
    close(output[1]);
    const char *why = watch(output[0], 60 + 6 * seconds, failed);
    if (why) kill(-child, SIGKILL);
    if (wait4(child, &status, 0, &used) < 0) { perror("meet"); return 2; }
    kill(-child, SIGKILL);
    if (!why && WIFSIGNALED(status)) {
        if (WTERMSIG(status) == SIGXCPU) snprintf(word, sizeof word, "ran longer than %.0f s", seconds);
        else snprintf(word, sizeof word, "signal %d", WTERMSIG(status));
        why = word;
    } else if (!why && WEXITSTATUS(status) != 0) {
        snprintf(word, sizeof word, "exit status %d", WEXITSTATUS(status));
        why = word;
    }
    printf("%s\t%.2f\n", why ? why : "passed", (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
    return 0;
}
