#pragma once
#include "core/core.h"
#include "ops/ops.h"
#include "decomp/decomp.h"
#include "layers/layers.h"
#include "operator/operator.h"
#include "network/network.h"

#ifndef TN_NO_MPS
/* ======================================================================
   >>mps      matrix product states
   A function of N inputs that is linear in the features phi_j of each of them, with a bond of D numbers between neighbours:

       f(x)[c] = l M_0 .. M_(p-1) B_c M_p .. M_(N-1) r      M_j[a,b] = sum_s A_j[a,s,b] phi_j[s]

   Site j has the core A_j [D,s,D], the label core B [D,out,D] is before site p. The ends l and r are vectors (open) or
   closed by a trace (periodic). Products carry their scale as a logarithm, so that chains of any length neither overflow nor
   vanish. The squares of a function without a label, divided by their sum over all inputs, are probabilities: a Born
   machine.
   Stoudenmire & Schwab 2016, Han et al. 2018
   ====================================================================== */

/* ---- local features: one number becomes a vector of `dim` numbers -------- >>local-features */
typedef enum tn_local_map {
    TN_LOCAL_LINEAR = 0,        /* [1-x, x]                                                           */
    TN_LOCAL_COSINE,            /* [cos(pi x/2), sin(pi x/2)], for -1 <= x <= 2 to rounding errors     */
    TN_LOCAL_POWERS,            /* [1, x, x^2, ..], of `dim` numbers                                  */
    TN_LOCAL_GIVEN,             /* x has features already, on its last axis                           */
    TN_LOCAL_IDS                /* x is I32, an id of 0..dim-1 becomes a unit vector                  */
} tn_local_map;
/* Computes the features of every element.   x [..] -> [..,dim] (TN_LOCAL_GIVEN: x itself, [..,dim])
   dim: 2 for LINEAR and COSINE, up to 64 for POWERS; 0: 2. Differentiable with respect to x. */
TN_API tn_tensor *tn_local_features(tn_ctx *ctx, tn_tensor *x, tn_local_map map, int64_t dim);

/* ---- the layer ----------------------------------------------------------- >>mps-layer
   One parameter holds all cores, with equal bonds: an open chain begins and ends with the first unit vector, so that of the
   first core only row 0 counts, and of the last only column 0. Smaller bonds, as those of a train, are padded by zeros: this
   is exact, and the gradient of the padding is zero. */
enum { TN_MPS_FIRST = -1 };     /* as a label: before all sites */
typedef struct tn_mps_desc {
    int64_t sites;              /* required: N; with `uniform`, 0: any number                                            */
    int64_t bond;               /* required: D                                                                           */
    int64_t out;                /* elements of the label; 0: there is none, and f(x) is one number                       */
    int64_t label;              /* number of sites before the label core; 0: half of them, with `uniform` all of them;
                                   TN_MPS_FIRST: none                                                                    */
    tn_local_map map;           /* how an input becomes features                                                         */
    int64_t dim;                /* features of a site; 0: 2                                                              */
    bool    periodic;           /* a trace instead of l and r                                                            */
    bool    uniform;            /* all sites share one core; l and r are then parameters                                 */
    bool    random;             /* cores start as random numbers; else as the identity for each feature (POWERS: for the
                                   first one alone) plus random numbers, which is right for long chains of mostly equal
                                   inputs and cannot learn a parity                                                      */
    double  std;                /* standard deviation of these numbers; 0: 1/sqrt(D), or 0.01 beside the identity        */
} tn_mps_desc;
typedef struct tn_mps {
    tn_mps_desc desc;
    tn_tensor *cores;           /* [N,D,s,D], uniform: [1,D,s,D]                     */
    tn_tensor *label;           /* [D,out,D], or NULL                                */
    tn_tensor *left, *right;    /* [D] each with `uniform`, unless periodic; or NULL */
} tn_mps;
/* Creates the parameters NAME.cores, NAME.label, NAME.left and NAME.right, as far as the layer has them. They have no weight
   decay by default, and no Muon. TN_ERR_ARG for a label outside the chain. */
TN_API tn_status  tn_mps_init(tn_params *params, const char *name, const tn_mps_desc *desc, tn_mps *layer);
/* Computes f(x).   x [b,N], with TN_LOCAL_GIVEN [b,N,dim], with TN_LOCAL_IDS I32 -> [b,out], without a label [b]
   If logs is not NULL, *logs [b] gets the logarithm of a scale: f(x) = exp(logs) y. Else the result is f(x), where a scale
   above e^80 (F64: e^700) counts as that, so that values stay finite. Work per input: open N D^2 (s + 1) multiplications,
   periodic N D^2 (s + D). */
TN_API tn_tensor *tn_mps_forward(tn_ctx *ctx, const tn_mps *layer, tn_tensor *x, tn_tensor **logs);
/* Computes ln of the sum of f^2 over all unit vectors as features of each site, and over the label: -> [], differentiable.
   An open chain needs N D^3 s multiplications, a periodic one N D^5 s. If all f are 0 it is -inf, with the gradient zero. An
   error for `sites` 0. */
TN_API tn_tensor *tn_mps_log_partition(tn_ctx *ctx, const tn_mps *layer);
/* The Born machine: ln p(x) = 2 ln |f(x)| - tn_mps_log_partition, for layers without a label; -inf where f(x) = 0, and NaN if all
   f are 0.   x as above -> [b]. These are probabilities of ids (TN_LOCAL_IDS), and densities for orthonormal features. */
TN_API tn_tensor *tn_mps_log_probability(tn_ctx *ctx, const tn_mps *layer, tn_tensor *x);

#ifndef TN_NO_OPERATOR
/* ---- trains and layers ---------------------------------------------------- >>mps-trains
   A tn_tt (>>tt) is the same chain without features: its elements are f at unit vectors. The label is one more axis of it,
   at the place of its core. */

/* Makes the train of a layer with `sites`: axes of `dim` elements, the label's [out] at its place. A periodic chain becomes
   an open one with bonds of D^2. NULL on error. */
TN_API tn_tt    *tn_tt_from_mps(tn_ctx *ctx, const tn_mps *layer);
/* Writes a train into the cores of a layer, padded by zeros: an open, not uniform layer of the same axes whose bond is at
   least the train's. On failure the layer is unchanged. */
TN_API tn_status tn_mps_assign_tt(const tn_mps *layer, const tn_tt *tt);
/* Makes a train of random numbers of norm 1, in the canonical form of site 0: bonds are max_bond, or the largest that such
   extents [count] can use. Equal seeds give bit-identical trains. */
TN_API tn_tt    *tn_tt_random(tn_ctx *ctx, int64_t count, const int64_t *extents, int64_t max_bond, uint64_t seed);
/* Makes a train from an operator: its input axes in order, and the output as axis number `place`, 0 to order. Bonds are the
   number of terms: all cores but the factors' are diagonal. A bilinear layer is a train of three axes. */
TN_API tn_tt    *tn_tt_from_cp(tn_ctx *ctx, const tn_cp *cp, int64_t place);
/* Multiplies by a matrix product operator: a train whose axis k has m_k n_k elements, (row, column) row-major, times one
   with axes n_k: axes m_k. Exact: bonds are multiplied; tn_tt_round makes them smaller. */
TN_API tn_tt    *tn_tt_apply(const tn_tt *matrix, const tn_tt *x);
/* Exchanges the axes `axis` and `axis` + 1, by an SVD of their two cores together; the desc is for this one bond. A label
   moves by it. */
TN_API tn_tt    *tn_tt_swap(const tn_tt *tt, int64_t axis, const tn_tt_desc *desc);

/* ---- canonical forms, entropies -------------------------------------------- >>tt-canonical
   Of a train of norm 1 in the canonical form of site k the cores before k have orthonormal columns [r_j n_j, r_j+1], those
   after it orthonormal rows [r_j, n_j r_j+1], and core k has norm 1. Schollwoeck 2011 */

/* Returns the canonical form of a site, by QR decompositions with positive diagonals: site 0 is the right canonical form,
   site d-1 the left one, others are mixed. Bonds may become smaller, exactly. If log_norm is not NULL, *log_norm gets ln |A|
   (-inf: A is zero) and the train has norm 1; else it equals A. */
TN_API tn_tt    *tn_tt_canonical(const tn_tt *tt, int64_t site, double *log_norm);
/* Returns the singular values of all d-1 cuts (Schmidt values) of the train divided by its norm: [d-1,r], owned, descending,
   padded by zeros. Cut k is between axes k and k+1. */
TN_API tn_tensor *tn_tt_singular_values(const tn_tt *tt);
/* Returns the entanglement entropy of each cut, -sum p ln p with p the squares of these values: [d-1], owned. */
TN_API tn_tensor *tn_tt_entropies(const tn_tt *tt);
/* Computes ln |A|_F, -inf for zero, and ln |<a,b>| with the sign of <a,b> (-1, 0 or 1), without overflow or underflow. */
TN_API tn_status tn_tt_log_norm(const tn_tt *tt, double *log_norm);
TN_API tn_status tn_tt_log_inner(const tn_tt *a, const tn_tt *b, double *log_inner, double *sign);

/* ---- Born machines ---------------------------------------------------------- >>tt-born
   p(i_0,..,i_d-1) = A[i_0,..]^2 / |A|^2. Conditionals are exact: in the right canonical form the sum over all later axes is
   1. Han et al. 2018; Ferris & Vidal 2012. TN_ERR_DATA for indices outside their axes or of probability 0 as a condition,
   TN_ERR_NONFINITE for a train of zeros. */

/* Computes p(i_known | i_0,..,i_known-1) for all elements of axis `known`: p [n_known], known < d. */
TN_API tn_status tn_tt_conditional(const tn_tt *tt, int64_t known, const int64_t *index, double *p);
/* Computes ln p(i_k | i_0,..,i_k-1) for each axis k: index and log_p are [count,d]; ln p is the sum of a row. -inf from the
   first impossible element on. */
TN_API tn_status tn_tt_log_conditionals(const tn_tt *tt, int64_t count, const int64_t *index, double *log_p);
/* Draws samples: index [count,d], of which the first `known` of each row are given. Equal seeds give equal samples. */
TN_API tn_status tn_tt_sample(const tn_tt *tt, int64_t count, int64_t known, uint64_t seed, int64_t *index);

/* ---- two-site sweeps ---------------------------------------------------------- >>tt-fit
   The tensor of two neighbouring sites with the label between them is fitted to data while all others are held fixed, then
   divided by an SVD, and the label moves on with the bond: to the right end, to the left end, and back. Bonds grow and shrink
   as the data need. White 1992, Stoudenmire & Schwab 2016 */
typedef struct tn_tt_fit_desc {
    int64_t sweeps;             /* 0: 1                                                                                   */
    int64_t max_bond;           /* no bond above this, except that of a label at an end, which may be `out`; 0: 16        */
    double  relative;           /* drops singular values <= relative times the largest of their bond; 0: 1e-6             */
    double  ridge;              /* minimises squares + ridge |tensor|^2, in units of the mean square of a feature; 0: 1e-9 */
    int64_t steps;              /* conjugate gradient steps for one tensor, at most; 0: as many as least squares need. Few
                                   of them are training by gradient                                                       */
} tn_tt_fit_desc;
/* Fits a train of N >= 2 sites of equal extents and a label as axis `label`, beginning with its present numbers, to targets
   y [b,out] of inputs with features phi [b,N,dim], by least squares. Returns the fitted train, in the canonical form of the
   label; *error, unless NULL, gets the root mean square of its errors. With many data it falls from sweep to sweep, up to
   what truncation to max_bond costs. With few it may also rise: take the train of the smallest error on held-out data.
   Where the tensor of two sites has more numbers than there are data, its two factors are fitted instead, with one more
   singular vector at a time up to max_bond: the first update of a train from tn_tt_random, whose bonds hold all functions of
   the sites on each side (a bond of 2^(N/2) for bits, the label in the middle), finds functions that no part of the inputs
   shows, such as a parity, in a part of all inputs. */
TN_API tn_tt    *tn_tt_fit(const tn_tt *tt, int64_t label, const tn_tensor *phi, const tn_tensor *y, const tn_tt_fit_desc *desc,
                           double *error);
#endif /* TN_NO_OPERATOR */

/* ---- a linear layer as a train ------------------------------------------------ >>tt-linear
   y = W x + b, W[(o_0,..,o_d-1),(i_0,..,i_d-1)] = G_0[o_0,i_0] .. G_d-1[o_d-1,i_d-1]: the indices of rows and columns are
   written in d digits, row-major. Novikov et al. 2015 */
typedef struct tn_tt_linear_desc {
    int64_t count;              /* required: d, 1 to TN_MAX_RANK                                                       */
    int64_t in[TN_MAX_RANK];    /* required: extents, whose product is the number of inputs                            */
    int64_t out[TN_MAX_RANK];   /* required: extents, whose product is the number of outputs                           */
    int64_t bond;               /* required: extent of each bond                                                       */
    bool    bias;
    double  std;                /* of the elements of W; 0: 1/sqrt(inputs)                                             */
} tn_tt_linear_desc;
typedef struct tn_tt_linear {
    tn_tt_linear_desc desc;
    tn_tensor *core[TN_MAX_RANK];   /* [out_k,r_k+1,r_k,in_k]: all r are desc.bond, but r_0 = r_d = 1 */
    tn_tensor *b;                   /* [outputs] or NULL                                              */
} tn_tt_linear;
/* Creates the parameters NAME.core0, NAME.core1, .. and NAME.b. */
TN_API tn_status  tn_tt_linear_init(tn_params *params, const char *name, const tn_tt_linear_desc *desc, tn_tt_linear *layer);
TN_API tn_tensor *tn_tt_linear_forward(tn_ctx *ctx, const tn_tt_linear *layer, tn_tensor *x);   /* [..,in] -> [..,out] */
#ifndef TN_NO_OPERATOR
/* Decomposes a matrix w [outputs,inputs] with these extents [count] into a train whose axis k is (o_k,i_k), as tn_tt_apply
   takes them; eps and max_bond of the desc as in tn_tt_svd. */
TN_API tn_tt    *tn_tt_from_matrix(tn_ctx *ctx, const tn_tensor *w, int64_t count, const int64_t *out, const int64_t *in,
                                   const tn_tt_desc *desc);
/* Returns the matrix of such a train [outputs,inputs], owned. */
TN_API tn_tensor *tn_tt_matrix(const tn_tt *tt, const int64_t *out, const int64_t *in);
/* Writes such a train into the cores of a layer of the same extents, padded by zeros: bonds up to the layer's. The bias
   stays. */
TN_API tn_status tn_tt_linear_assign_tt(const tn_tt_linear *layer, const tn_tt *tt);
TN_API tn_tt    *tn_tt_from_tt_linear(tn_ctx *ctx, const tn_tt_linear *layer);   /* the layer without its bias as a train */
#endif

#if !defined(TN_NO_OPERATOR) && !defined(TN_NO_CONTRACTION)
/* ---- trains and networks ------------------------------------------------------- >>mps-networks */

/* Makes a net from a train: input[k] is the number of the input that axis k takes, or -1 for an output leg. NULL: all axes
   are inputs of their own. Legs are sorted by their inputs; equal inputs have equal extents. So an MPS whose sites all take the
   same vector is compared with a bilinear net as a function (TN_NET_SYMMETRIC). */
TN_API tn_net *tn_net_from_tt(tn_ctx *ctx, const tn_tt *tt, const int *input);
/* Makes a net from a layer of TN attention: y_site of sequences of n sites, at most 4096, as a function of their vectors.
   Input i is the vector of site i, with two legs where the layer has `square`, but one for the site itself; a causal layer
   has the sites up to `site` alone. With unit_inputs it is the function of unit vectors. TN_ERR_ARG for what makes y no
   tensor of its inputs: unit_weights, an activation, a bias, a residual, a norm. */
TN_API tn_net *tn_net_from_tn_attention(tn_ctx *ctx, const tn_tn_attention *layer, int64_t n, int64_t site);
/* Makes a train of six axes from squared or bilinear attention, exactly: the tensor of tn_net_from_attention with the axes
   (x_t, x_s, x_t, x_s, x_s, y), for which input is {0,1,0,1,1,-1}. Bonds are heads d_qk, heads, heads d_qk, heads and
   heads d_v. */
TN_API tn_tt  *tn_tt_from_attention(tn_ctx *ctx, const tn_attention *layer, int64_t distance);
#endif

/* ---- deep tensor network: a local map, layers of TN attention, a head --- >>mps-deep
   phi_j = map(x_j); each layer computes phi_j <- TN attention(phi)_j with residual and norm, by default (W(j) phi_j +
   r phi_j)/2, then divided by its length. The head is a matrix product state, which classifies the whole sequence, or a
   linear map of each site. A causal network is a decoder: it continues sequences by states of constant size.
   Zunkovic 2022 */
typedef enum tn_deep_head {
    TN_DEEP_MPS = 0,            /* [B,out] from all sites, by a tn_mps                                     */
    TN_DEEP_SITES               /* [B,n,out] from each site, by a tn_linear: for a decoder next-token logits */
} tn_deep_head;
typedef struct tn_deep_desc {
    int64_t      out;           /* required                                                                */
    int64_t      layers, bond;  /* of TN attention; 0: 2 and 8                                             */
    int64_t      dim;           /* d; 0: 2                                                                 */
    tn_local_map map;           /* from inputs to features                                                 */
    int64_t      vocab;         /* inputs are ids, embedded by a learned table [vocab,dim], without a map; 0: none */
    tn_boundary  boundary;      /* of the layers; causal: TN_BOUNDARY_VECTORS unless another one is given  */
    bool         causal;        /* with TN_DEEP_SITES                                                      */
    bool         square;        /* contexts quadratic in phi                                               */
    bool         no_residual, no_norm;
    tn_act       act;           /* of W                                                                    */
    tn_deep_head head;
    int64_t      sites;         /* 0: everything is uniform; n: sequences of n sites, whose cores differ   */
    int64_t      head_bond;     /* of TN_DEEP_MPS; 0: bond                                                 */
} tn_deep_desc;
typedef struct tn_deep {
    tn_deep_desc     desc;      /* with defaults filled in                                                 */
    tn_embedding     embed;     /* NAME.embed                                                              */
    tn_tn_attention *layer;     /* [layers] NAME.0, NAME.1, ...; owned by the tn_params                    */
    tn_mps           mps;       /* NAME.head                                                               */
    tn_linear        linear;    /* NAME.head                                                               */
} tn_deep;
/* Creates the parameters of NAME.embed, NAME.0, NAME.1, ... and NAME.head. */
TN_API tn_status  tn_deep_init(tn_params *params, const char *name, const tn_deep_desc *desc, tn_deep *model);
/* x [B,n] numbers or, with vocab or TN_LOCAL_IDS, ids; with TN_LOCAL_GIVEN [B,n,dim] -> [B,out] or [B,n,out] */
TN_API tn_tensor *tn_deep_forward(tn_ctx *ctx, const tn_deep *model, tn_tensor *x);
/* Creates the state of a causal network before the first site, an owned tensor [batch,layers (bond+1)]. */
TN_API tn_tensor *tn_deep_state(tn_ctx *ctx, const tn_deep *model, int64_t batch);
/* Continues sequences by the next sites x [batch,n] (or [batch,n,dim]) -> [batch,n,out], as _forward over all sites so far
   would give for them, and brings the state up to date. Not while recording. After an error make a new state. */
TN_API tn_tensor *tn_deep_decode(tn_ctx *ctx, const tn_deep *model, tn_tensor *x, tn_tensor *state);
#endif /* TN_NO_MPS */
