/* closing.h: files whose bytes all arrive, but whose closing reports an error, as it may over a network or at a quota.

       #include "closing.h"              (before a file of src/ whose calls of fclose it takes, such as io/writer.c)

       closing.error = EIO;              from here on every fclose closes its file and reports this error
       closing.error = 0;                fclose is fclose again                                                    */

#ifndef TN_CLOSING_H
#define TN_CLOSING_H

#include <errno.h>
#include <stdio.h>

static struct { int error; long calls; } closing;

static inline int closing_fclose(FILE *f)
{
    const int closed = fclose(f);
    closing.calls++;
    if (closing.error == 0) return closed;
    errno = closing.error;
    return EOF;
}

#define fclose(f) closing_fclose(f)

#endif
