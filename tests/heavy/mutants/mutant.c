/* mutant.c: linked to every program that meets mutants. TN_MUTANT=17 makes mutant 17 active. TN_MUTANT=-1 makes none
   active, and marks in the file TN_MUTANT_REACHED which ones are reached: its byte n becomes an x for mutant n. The file is
   mapped, so that the marks of a program that crashes, or of several processes, are kept. */
#include "mutant.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int          tn_mutant;
static char *marks;
static long  room;

__attribute__((constructor)) static void choose(void)
{
    const char *number = getenv("TN_MUTANT"), *path = getenv("TN_MUTANT_REACHED");
    struct stat s;
    tn_mutant = number ? atoi(number) : 0;
    if (tn_mutant >= 0) return;
    int file = path ? open(path, O_RDWR) : -1;
    if (file < 0 || fstat(file, &s) != 0) abort();
    room = (long)s.st_size;
    marks = (char *)mmap(NULL, (size_t)room, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (marks == MAP_FAILED) abort();
    close(file);
}

int tn_mutant_reached(int n)
{
    if (n < room) marks[n] = 'x';
    return 0;
}
