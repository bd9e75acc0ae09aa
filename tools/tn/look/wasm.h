/* wasm.h - what the programs for pages share: exported functions, texts and numbers that JavaScript reads, the first error.
   Compiled for wasm32 they import nothing. Compiled natively they are plain functions, so that a test can compare both. */
#ifndef WASM_H
#define WASM_H
#include <stdlib.h>
#include <string.h>

#ifdef __wasm__
#define EXPORT(name) __attribute__((export_name(#name), used)) name
char *getenv(const char *name);
char *getenv(const char *name) { return (void)name, (char *)NULL; }     /* a page has none; libc's would import functions */
#else
#define EXPORT(name) name
#endif

#ifdef __wasm__
/* From here on the function at this place of the table computes tiles of matrix products. */
void EXPORT(wasm_tile)(uintptr_t place) { tni_wasm_tile = (tni_wasm_tile_fn)place; }
#endif

static tn_ctx *ctx;             /* the page's one context                                                  */
static double *numbers;         /* [numbers_used] what the last call computed, for JavaScript to read      */
static size_t  numbers_used, numbers_room;
static char   *words;           /* its texts, one after the other, each with a final zero; or an error     */
static size_t  words_used, words_room;

/* JavaScript puts bytes into memory that it asks for here. */
void *EXPORT(wasm_allocate)(size_t bytes) { return malloc(bytes ? bytes : 1); }
void  EXPORT(wasm_release)(void *p)       { free(p); }
double     *EXPORT(wasm_numbers)(void)       { return numbers; }
size_t      EXPORT(wasm_numbers_count)(void) { return numbers_used; }
const char *EXPORT(wasm_words)(void)         { return words ? words : ""; }
size_t      EXPORT(wasm_words_bytes)(void)   { return words_used; }

/* Adds a text, with the zero that ends it. */
static bool say(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    if (bytes > words_room - words_used) {
        const size_t room = 2 * words_room + bytes;
        char        *more = (char *)realloc(words, room);
        if (!more) return false;
        words = more;
        words_room = room;
    }
    memcpy(words + words_used, text, bytes);
    words_used += bytes;
    return true;
}

/* The error that a call returns; its text is wasm_words. */
static int refuse(const char *why)
{
    words_used = numbers_used = 0;
    say(why);
    if (ctx) {
        tn_ctx_clear_error(ctx);
        tn_ctx_reset(ctx);
    }
    return -1;
}

/* Begins an answer of `count` numbers, and no words. */
static bool begin(int64_t count)
{
    words_used = numbers_used = 0;
    if ((size_t)count > numbers_room) {
        double *more = (double *)realloc(numbers, (size_t)count * sizeof *numbers);
        if (!more) return false;
        numbers = more;
        numbers_room = (size_t)count;
    }
    numbers_used = (size_t)count;
    return true;
}

/* Ends a call: `result`, unless something failed. */
static int end(int64_t result)
{
    if (!ctx || tn_ctx_status(ctx) != TN_OK) return refuse(ctx ? tn_ctx_error(ctx) : "no context");
    if (result < 0) return refuse("out of memory");
    tn_ctx_reset(ctx);
    return (int)result;
}

/* A new context in place of the last one, which frees all that was made in it. */
static bool new_context(uint64_t seed)
{
    tn_desc desc;
    char    why[TN_WHY];
    tn_ctx_destroy(ctx);
    memset(&desc, 0, sizeof desc);
    desc.seed = seed;
    desc.threads = 1;
    ctx = NULL;
    if (tn_ctx_create(&desc, &ctx, why) == TN_OK) return true;
    refuse(why);
    return false;
}
#endif
