#if !defined(__cplusplus) && !defined(_MSC_VER) && (!defined(__STDC_VERSION__) || __STDC_VERSION__ < 199901L)
#error "tensornet.h needs C99: compile with -std=c99 or later"
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef TN_API
#if defined(TN_STATIC) && defined(__GNUC__)
#define TN_API static __attribute__((unused))
#elif defined(TN_STATIC)
#define TN_API static
#else
#define TN_API extern
#endif
#endif
#ifndef TN_HEADER_NAME
#define TN_HEADER_NAME "tensornet.h"
#endif
#ifndef TN_SIMD_MAX
#define TN_SIMD_MAX 2
#endif
#if !defined(TN_NO_CIRCUITS) && (defined(TN_NO_MODELS) || defined(TN_NO_OPERATOR) || defined(TN_NO_CONTRACTION))
#define TN_NO_CIRCUITS
#endif
/* Marks declarations that may still change; docs/CHANGES.md then says how to adapt a program. */
#define TN_EXPERIMENTAL
