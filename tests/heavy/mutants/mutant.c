/* mutant.c: linked to every program that meets mutants. TN_MUTANT=17 makes mutant 17 active; TN_MUTANT=-1 none, and the numbers of
   those that the program reached are then appended to the file TN_MUTANT_REACHED, one per line. */
#include "mutant.h"
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 10000 };
int  tn_mutant;
char tn_mutant_reached[MOST];

__attribute__((constructor)) static void choose(void)
{
    const char *number = getenv("TN_MUTANT");
    tn_mutant = number ? atoi(number) : 0;
    if (tn_mutant >= MOST) abort();
}

__attribute__((destructor)) static void tell(void)
{
    const char *path = getenv("TN_MUTANT_REACHED");
    FILE *f = tn_mutant < 0 && path ? fopen(path, "a") : NULL;
    for (int i = 0; f && i < MOST; i++) if (tn_mutant_reached[i]) fprintf(f, "%d\n", i);
    if (f) fclose(f);
}
