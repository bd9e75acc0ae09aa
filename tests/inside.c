/* inside.c: the tests that look inside the library, in one program, because the implementation is what takes a compiler
   long. Each of them is a program still: build/WAY/test_core is this one under another name, and runs test_core.c's tests.

   What comes before the implementation in one of them does so for all: what the system's headers are asked for, an fclose
   that can fail, threads that are refused, tiles in C, and the reader and writer of PNG. */

#include "comma.h"
#include "closing.h"
#include "starting.h"
#include "sealed.h"
#include "tiles.h"

#define TEST_PROGRAM test_image
#include "test_image.c"
#undef TEST_PROGRAM

#define TEST_PROGRAM test_core
#include "test_core.c"
#undef TEST_PROGRAM

#define TEST_PROGRAM test_cpu
#include "test_cpu.c"
#undef TEST_PROGRAM

#define TEST_PROGRAM test_decomp
#include "test_decomp.c"
#undef TEST_PROGRAM

#define TEST_PROGRAM test_simd
#include "test_simd.c"
#undef TEST_PROGRAM

#define TEST_PROGRAM test_threads
#include "test_threads.c"
#undef TEST_PROGRAM

#define PROGRAM(name) if (strstr(called, #name)) return name(argc, argv)
int main(int argc, char **argv)
{
    const char *called = argv[0];
    for (const char *p = called; *p; p++) if (*p == '/' || *p == '\\') called = p + 1;
    PROGRAM(test_image);
    PROGRAM(test_core);
    PROGRAM(test_cpu);
    PROGRAM(test_decomp);
    PROGRAM(test_simd);
    PROGRAM(test_threads);
    printf("%s: no test has this name\n", called);
    return 1;
}
