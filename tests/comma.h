/* comma.h: a locale whose numbers have a decimal comma, on machines that have one and on those that have none.

       #include "comma.h"                (before all others: it asks the system for setenv)

       if (!comma_locale()) SKIP("locale", "one with a decimal comma");   ...   setlocale(LC_NUMERIC, "C"); */

#ifndef TN_COMMA_H
#define TN_COMMA_H

#if defined(__unix__) && !defined(_DEFAULT_SOURCE) && !defined(_GNU_SOURCE)
#define _DEFAULT_SOURCE
#endif
#include <locale.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline bool comma_works(void)
{
    char text[16];
    snprintf(text, sizeof text, "%.1f", 1.5);
    return strcmp(text, "1,5") == 0;
}

#if defined(__linux__) && defined(__GLIBC__)
#include <sys/stat.h>
#include <unistd.h>

/* What localedef would make of LC_NUMERIC: a magic number, the count of fields, where each begins, the fields. Native words. glibc's
   locale/loadlocale.c and locale/categories.def: decimal point, thousands, grouping, both points as wide characters, the code set. */
static inline bool comma_make(void)
{
    static const char fields[] = ",\0\0\177\0\0\0\0" ",\0\0\0" "\0\0\0\0" "UTF-8";       /* 32, 34, 35, 40, 44, 48 */
    uint32_t word[8] = {0x20031115u ^ 1, 6, 32, 34, 35, 40, 44, 48}, wide = ',';
    char     file[32 + sizeof fields], folder[64], locale[80], path[96];
    memcpy(file, word, sizeof word);
    memcpy(file + 32, fields, sizeof fields);
    memcpy(file + 40, &wide, sizeof wide);
    snprintf(folder, sizeof folder, "build/comma-%ld", (long)getpid());     /* test programs run side by side */
    snprintf(locale, sizeof locale, "%s/xx_XX", folder);
    snprintf(path, sizeof path, "%s/LC_NUMERIC", locale);
    mkdir("build", 0777);
    mkdir(folder, 0777);
    mkdir(locale, 0777);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(file, 1, sizeof file, f) == sizeof file;
    ok = f && fclose(f) == 0 && ok && setenv("LOCPATH", folder, 1) == 0 && setlocale(LC_NUMERIC, "xx_XX");
    unsetenv("LOCPATH");
    remove(path);                       /* it is loaded */
    remove(locale);
    remove(folder);
    return ok;
}
#else
static inline bool comma_make(void) { return false; }
#endif

static inline bool comma_locale(void)
{
    static const char *const name[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8", "fr_FR", "es_ES.UTF-8", "pt_BR.UTF-8",
                                       "German"};
    for (size_t k = 0; k < sizeof name / sizeof *name; k++)
        if (setlocale(LC_NUMERIC, name[k]) && comma_works()) return true;
    if (comma_make() && comma_works()) return true;
    setlocale(LC_NUMERIC, "C");
    return false;
}

#endif
