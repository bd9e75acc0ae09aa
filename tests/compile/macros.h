/* What the headers of systems and of other libraries define as macros, in lower case or without a prefix. Compiled before the
   library, with a meaning that no name of the library survives: a local variable called near is an error. */
#include <assert.h>
#include <complex.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __unix__
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__SSE2__)
#include <immintrin.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef TN_CUDA_HOST
#include "cuda_host.h"
#endif

/* Windows: windef.h, winbase.h, winuser.h, wingdi.h, rpc.h, rpcndr.h, combaseapi.h, dlgs.h */
#undef far
#undef near
#define far 1.
#define near 1.
#define FAR 1.
#define NEAR 1.
#define small 1.
#define hyper 1.
#define huge 1.
#define interface 1.
#define pascal 1.
#define cdecl 1.
#define stdcall 1.
#define fastcall 1.
#define rad1 1.
#define chx1 1.
#define edt1 1.
#define lst1 1.
#define cmb1 1.
#define grp1 1.
#define psh1 1.
#define stc1 1.
#define scr1 1.
#define ctl1 1.
#define IN 1.
#define OUT 1.
#define OPTIONAL 1.
#define CONST 1.
#define VOID 1.
#define BOOL 1.
#define TRUE 1.
#define FALSE 1.
#define ERROR 1.
#define STRICT 1.
#define DELETE 1.
#define IGNORE 1.
#define INFINITE 1.
#define ABSOLUTE 1.
#define RELATIVE 1.
#define TRANSPARENT 1.
#define OPAQUE 1.
#define CALLBACK 1.
#define WINAPI 1.
#define PURE 1.
#define THIS 1.
#define MAX_PATH 1.
#define NO_ERROR 1.
#define ERROR_SUCCESS 1.
#define CreateWindow 1.
#define GetMessage 1.
#define GetObject 1.
#define LoadImage 1.
#define DrawText 1.
#define SendMessage 1.
#define CopyFile 1.
#define MoveFile 1.
#define DeleteFile 1.
#define Yield() 1.
#ifndef TN_CUDA_HOST                    /* where these are functions of the device */
#undef min
#undef max
#define min(a, b) 1.
#define max(a, b) 1.
#endif

/* Qt: qobjectdefs.h, qglobal.h */
#define signals 1.
#define slots 1.
#define emit 1.
#define foreach 1.
#define forever 1.
#define Q_UNUSED(x) 1.

/* X11: X.h, Xlib.h, Xutil.h, Xos.h */
#define Bool 1.
#define Status 1.
#define None 1.
#define True 1.
#define False 1.
#define Always 1.
#define Success 1.
#define Complex 1.
#define Above 1.
#define Below 1.
#define Unsorted 1.
#define Nonconvex 1.
#define Convex 1.
#define CursorShape 1.
#define KeyPress 1.
#define KeyRelease 1.
#define FocusIn 1.
#define FocusOut 1.
#define FontChange 1.
#define Expose 1.
#define GrayScale 1.
#define Absolute 1.
#define Button1 1.
#define ParentRelative 1.
#define LineSolid 1.
#define index(a, b) 1.
#define rindex(a, b) 1.

/* complex.h, sys/sysmacros.h, sys/param.h, sys/types.h of BSD, and what gcc defines outside the strict dialects */
#undef I
#undef complex
#undef unix
#undef linux
#define I 1.
#define J 1.
#define complex 1.
#define imaginary 1.
#define major(x) 1.
#define minor(x) 1.
#define makedev(x, y) 1.
#define MIN(a, b) 1.
#define MAX(a, b) 1.
#define howmany(x, y) 1.
#define roundup(x, y) 1.
#define powerof2(x) 1.
#define isset(a, i) 1.
#define setbit(a, i) 1.
#define clrbit(a, i) 1.
#define NBBY 1.
#define PAGE_SIZE 1.
#define unix 1.
#define linux 1.
#define i386 1.
#define sun 1.
#define mips 1.
#define vax 1.
#define environ 1.

/* Carbon and Foundation, curses, Arduino, Perl and other headers that take words */
#define nil 1.
#define check(x) 1.
#define verify(x) 1.
#define require(x, y) 1.
#define erase() 1.
#define clear() 1.
#define move(y, x) 1.
#define refresh() 1.
#define echo() 1.
#define box(w, v, h) 1.
#define timeout(x) 1.
#define sq(x) 1.
#define bit(x) 1.
#define constrain(x, a, b) 1.
#define radians(x) 1.
#define degrees(x) 1.
#define F(x) 1.
#define PI 1.
#define EPSILON 1.
#define B0 1.
#define B1 1.
#define SUCCESS 1.
#define FAILURE 1.
#define DEBUG 1.
#define YES 1.
#define NO 1.
