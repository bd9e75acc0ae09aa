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
/* TN_SMALL: layers, training, files, folding, eigenpairs and pictures, in float. */
#ifdef TN_SMALL
#ifndef TN_NO_SEQUENCES
#define TN_NO_SEQUENCES
#endif
#ifndef TN_NO_TEXT
#define TN_NO_TEXT
#endif
#ifndef TN_NO_ANALYSIS
#define TN_NO_ANALYSIS
#endif
#ifndef TN_NO_COMM
#define TN_NO_COMM
#endif
#ifndef TN_NO_F64
#define TN_NO_F64
#endif
#ifndef TN_SIMD_MAX
#define TN_SIMD_MAX 1
#endif
#endif
#ifndef TN_SIMD_MAX
#define TN_SIMD_MAX 2
#endif
/* What needs a part that is left out is left out as well. */
#ifdef TN_NO_SEQUENCES
#ifndef TN_NO_MODELS
#define TN_NO_MODELS
#endif
#ifndef TN_NO_MPS
#define TN_NO_MPS
#endif
#endif
#ifdef TN_NO_ANALYSIS
#ifndef TN_NO_MPS
#define TN_NO_MPS
#endif
#ifndef TN_NO_CONTRACTION
#define TN_NO_CONTRACTION
#endif
#elif defined(TN_NO_OPERATOR)
#define TN_NO_ANALYSIS
#endif
#if !defined(TN_NO_CIRCUITS) && (defined(TN_NO_MODELS) || defined(TN_NO_OPERATOR) || defined(TN_NO_CONTRACTION))
#define TN_NO_CIRCUITS
#endif
/* Marks declarations that may still change; docs/CHANGES.md then says how to adapt a program. */
#define TN_EXPERIMENTAL
