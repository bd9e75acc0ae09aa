#pragma once
#include "core/inner.h"
#include "tensor/inner.h"
#include "layers/layers.h"
#include "models/models.h"
#include "circuits/circuits.h"

#ifndef TN_NO_CIRCUITS
/* A function of rows [first,first+count) as doubles of the host. */
typedef tn_status (*tni_circuit_fn)(void *user, int64_t first, int64_t count, const double *rows);

struct tn_circuit_evidence {
    tni_owned owned;                    /* first: the context destroys it by this */
    tn_circuit_evidence_desc desc;
    tni_scratch w;                      /* has the arrays      */
    int64_t   rows;
    tni_heap *best;                     /* [features]          */
    double   *origin;                   /* [features]          */
    double   *power;                    /* [features,4]        */
    double   *drawn;                    /* [features,top]      */
    int32_t  *drawn_at;                 /* [top]               */
    double   *bins;                     /* [features,bins]     */
    tni_rng  rng;
};
#endif /* TN_NO_CIRCUITS */

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

#ifndef TN_NO_CIRCUITS
/* objects.c */
TNI_FN bool tni_circuit_given(tn_ctx *ctx, const tn_transformer *m, int64_t block, const char *op);
TNI_FN bool tni_circuit_refused(tn_ctx *ctx, const char *op, bool is, const char *what, const char *why);
TNI_FN bool tni_circuit_normed_after(tn_ctx *ctx, const tn_transformer *m, const char *op);
TNI_FN tn_tensor *tni_circuit_basis(tn_ctx *ctx, const tn_transformer *m, const tn_norm *norm, bool constant, double factor);
TNI_FN tn_tensor *tni_circuit_stream(tn_ctx *ctx, const tn_transformer *m, int64_t position);
TNI_FN tn_circuit *tni_circuit_qk(tn_ctx *ctx, const tn_transformer *m, const tn_circuit_desc *d, bool plain, const char *op);
TNI_FN tn_tensor *tni_circuit_values(tn_ctx *ctx, const tn_transformer *m, int64_t block, int64_t h, tn_tensor *x);
TNI_FN bool tni_circuit_writes(tn_ctx *ctx, const tn_transformer *m, int64_t block, const char *op);
TNI_FN tn_circuit *tni_circuit_ov(tn_ctx *ctx, const tn_transformer *m, const tn_circuit_desc *d, bool plain, const char *op);

/* composition.c */
TNI_FN tn_status tni_circuit_each(const tn_circuit *c, const char *op, tni_circuit_fn fn, void *user);

/* tables.c */
TNI_FN tn_tensor *tni_circuit_tokens(tn_ctx *ctx, const tn_transformer *m, int64_t block);

/* frozen.c */
TNI_FN tn_tensor *tni_frozen_scale(tn_ctx *ctx, const tn_norm *norm, tn_tensor *x);
TNI_FN tn_tensor *tni_frozen_with(tn_ctx *ctx, tn_tensor *x, double c);
TNI_FN tn_tensor *tni_frozen_read(tn_ctx *ctx, tn_tensor *x, tn_tensor *r);
TNI_FN tn_tensor *tni_frozen_factors(tn_ctx *ctx, int64_t n, double factor, double last);
TNI_FN tn_tensor *tni_frozen_added(tn_ctx *ctx, const tn_circuit_frozen_block *b, tn_tensor *h);
TNI_FN bool tni_frozen_set(tn_tensor **slot, tn_tensor *t);

/* parts.c */
TNI_FN bool tni_frozen_whole(const tn_circuit_frozen *f, const char *op);
TNI_FN tn_tensor *tni_target_covector(const tn_circuit_frozen *f, const tn_circuit_target *target, const char *op,
                                      double *whole);
TNI_FN tn_tensor *tni_target_weights(const tn_circuit_frozen *f, const tn_circuit_target *target, const char *op);
TNI_FN double tni_values_sum(const tn_tensor *t);
TNI_PRINTF(2, 3) TNI_FN void tni_text_print(tni_text *t, const char *fmt, ...);
TNI_FN const char *tni_source_name(const tn_circuit_frozen *f, int64_t s);

/* search.c */
TNI_FN double tni_dot_f64(const double *x, const double *y, int64_t n);
TNI_FN double tni_distance_f64(const double *x, const double *y, int64_t n);
TNI_FN int64_t tni_node_stage(const tn_circuit_frozen *f, const tn_circuit_node *node);
TNI_FN double tni_frozen_kept(const tn_circuit_frozen *f, int64_t l, int64_t j);
TNI_FN double tni_frozen_first(const tn_circuit_frozen *f, int64_t j);

/* modular.c */
TNI_FN uint64_t tni_hash_at(uint64_t seed, uint64_t i, uint64_t j);
TNI_FN uint64_t tni_times_mod(uint64_t p, uint64_t a, uint64_t b);
TNI_FN uint64_t tni_dot_mod(uint64_t p, int64_t n, const uint64_t *a, const uint64_t *b);
TNI_FN uint64_t tni_power_mod(uint64_t p, uint64_t a, uint64_t e);
TNI_FN uint64_t tni_inverse_mod(uint64_t p, uint64_t a);
TNI_FN uint64_t tni_prime_of(uint64_t seed, uint64_t point);

/* chance.c */
TNI_FN double tni_same_chance(const tn_transformer *a, const tn_transformer *b, int64_t tokens, double bits, double values,
                              double *degree);
#endif /* TN_NO_CIRCUITS */

#endif
