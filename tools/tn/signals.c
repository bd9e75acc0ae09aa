/* signals.c - tn train: SIGINT, SIGTERM and SIGHUP end it after everything is saved; the same one again
   ends the program at once.
   SIGUSR1: everything is saved after this step, and training goes on. SIGBUS: a token shard, whose file is mapped, became
   shorter or cannot be read. */
#include "train.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const int stop_signals[STOP_SIGNALS] = {SIGINT, SIGTERM, SIGHUP};

static volatile sig_atomic_t save_wanted;

static void on_save_signal(int number)
{
    (void)number;
    save_wanted = 1;
}

static void on_signal(int number)
{
    static const char words[] = "\ntn train: stopping once everything is saved; the same signal again stops it at once\n";
    static const char nothing[] = "tn train: stopped before the first step, nothing was written\n";
    int before = errno;
    if (write(STDERR_FILENO, words, sizeof words - 1) < 0) errno = 0;      /* stops even if nobody can read it */
    if (waits_for_input()) {                          /* which may never come, and nothing is written before it has */
        if (write(STDERR_FILENO, nothing, sizeof nothing - 1) < 0) errno = 0;
        _exit(128 + number);
    }
    errno = before;
    ask_to_stop(number);
}

static char lost_data[PATH_ROOM + 200];

/* Calls only what a signal handler may call. */
static void on_lost_data(int number)
{
    (void)number;
    if (write(STDERR_FILENO, lost_data, strlen(lost_data)) < 0) _exit(EXIT_ERROR);
    _exit(EXIT_ERROR);
}

void catch_signals(const char *folder)
{
    struct sigaction a, before;
    snprintf(lost_data, sizeof lost_data, "\ntn train: a token shard was truncated while it was in use, or cannot be read "
             "from the disk. When it is whole again: tn train --resume %s\n", folder ? folder : "RUN");
    memset(&a, 0, sizeof a);
    a.sa_handler = on_signal;
    a.sa_flags = (int)(SA_RESETHAND | SA_RESTART);    /* a read or write in progress continues */
    for (int i = 0; i < STOP_SIGNALS; i++)
        if (stop_signals[i] != SIGHUP || sigaction(SIGHUP, NULL, &before) != 0 || before.sa_handler != SIG_IGN)     /* nohup */
            sigaction(stop_signals[i], &a, NULL);
    a.sa_handler = on_save_signal;
    a.sa_flags = (int)SA_RESTART;
    sigaction(SIGUSR1, &a, NULL);
    a.sa_flags = (int)(SA_RESETHAND | SA_RESTART);
    a.sa_handler = on_lost_data;
    sigaction(SIGBUS, &a, NULL);
    a.sa_handler = SIG_IGN;                           /* write reports it instead */
    a.sa_flags = 0;
    sigaction(SIGPIPE, &a, NULL);
}

bool save_signal(bool taken)
{
    const bool wanted = save_wanted != 0;
    if (taken) save_wanted = 0;
    return wanted;
}
