#pragma once
#include "core/inner.h"
#include "comm/inner.h"
#include "layers/inner.h"
#include "optim/optim.h"

#ifndef TN_NO_TRAINING
/* The moments of a parameter, m and v; the rule that uses them, and the number of updates before they were made. Where
   processes share moments: `at` is the place of its first element in a group of so many elements, or the process that updates a
   matrix of Muon; m are the moments of this process's part, NULL or empty without one. */
typedef struct tni_moments {
    tn_tensor    *m[2];
    tn_optim_kind rule, placed;         /* placed: the rule when `at` was chosen */
    bool          made;                 /* the moments exist, in this process or in others */
    double        born;
    int64_t       at, group;
    bool          leaves;               /* its gradient, or value, is among those that are sent, see >>optim-comm */
} tni_moments;

/* The buckets on their way, see >>optim-comm. */
typedef struct tni_mail {
    int64_t   length, row;              /* elements of the longest vector of a process; of it in a bucket          */
    int64_t   sent, back;               /* how much of the length was sent; has returned                           */
    const struct tni_node *reached;     /* by the backward pass; NULL: its end                                     */
    const struct tni_node *last;        /* the last node that adds to the next bucket, if it is `known`; NULL: none */
    bool      on, known;                /* on: between begin and finish of an announced pass                       */
    bool      announced, refused;       /* processes first tell each other what they send; they differ             */
    struct tni_comm_thread *beside;          /* who sends; NULL: the caller                                             */
    int64_t   first;                    /* the number of beside's first call                                       */
    tn_status status;
} tni_mail;

struct tn_optim {
    tni_owned     owned;
    tni_watcher   of;           /* of.params, or NULL when they were destroyed */
    tn_optim_desc desc;
    tni_moments  *state;        /* one per parameter, filled when its first gradient is there */
    int64_t       states;
    tn_tensor    *scalars;      /* on the device, see >>op-optim */
    tn_tensor    *work[4];      /* for Muon: x and the next x, x x^T and its polynomial, for the largest parameter */
    tn_tensor    *bucket;       /* gradients on their way, see >>optim-comm */
    tni_mail      mail;
    int32_t      *reports;      /* [ranks,TNI_REPORT]: what processes tell each other before a step */
    bool          refused;      /* processes differed before an announced backward pass: their reports say how */
    bool          faulted;      /* in this step all have got the fault of one process, and know which */
    int64_t       placed;       /* parameters that have a place, with shared moments */
    int64_t       steps;
};

/* What a process tells the others before a step: its context's status, the fault word, and a hash of what it steps with. */
enum { TNI_REPORT_STATUS, TNI_REPORT_FAULT, TNI_REPORT_HASH = 5, TNI_REPORT = 7 };
#define TNI_REPORT_BYTES(ctx) (sizeof(int32_t) * TNI_REPORT * (size_t)tn_comm_size(ctx))

/* In which call a process is, when it tells the others of itself. */
typedef enum tni_meeting { TNI_MEET_STEP, TNI_MEET_BACKWARD, TNI_MEET_CHECKPOINT } tni_meeting;
#endif /* TN_NO_TRAINING */

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

#ifndef TN_NO_TRAINING
/* optim.c */
TNI_FN tn_status tni_graph_steps(tn_graph *g, tn_optim *o);
TNI_FN bool tni_optim_describe(tn_ctx *ctx, const int32_t f[4]);
TNI_FN void tni_optim_forget(tni_moments *m);
TNI_FN tn_status tni_optim_grow(tn_optim *o);
TNI_FN tn_optim_kind tni_optim_rule(const tn_optim *o, const tn_param *p);
TNI_FN double tni_optim_rate(const tn_optim *o, const tn_param *p);
TNI_FN double tni_optim_decay(const tn_optim *o, const tn_param *p);
TNI_FN int tni_rule_wants(const tn_optim *o, tn_optim_kind rule);
TNI_FN int tni_optim_wants(const tn_optim *o, const tn_param *p);

/* share.c */
TNI_FN bool tni_optim_shares(const tn_optim *o);
TNI_FN tn_status tni_optim_places(tn_optim *o);
TNI_FN tni_span tni_optim_part(const tn_optim *o, int64_t i, int r);
TNI_FN tni_span tni_optim_own(const tn_optim *o, int64_t i);
TNI_FN tn_view tni_span_view(const tn_tensor *t, int64_t begin, int64_t count);
TNI_FN tn_status tni_optim_moments(tn_optim *o, int64_t i, const tn_tensor *value);
TNI_FN bool tni_optim_updates(const tn_param *p);
TNI_FN tn_status tni_optim_tell(tn_optim *o);
TNI_FN void tni_series_place(const tn_ctx *ctx, tn_call *c, int64_t before, int64_t after);
TNI_FN tn_status tni_optim_begin(tn_optim *o);
TNI_FN tn_status tni_optim_agree(tn_optim *o, tni_meeting in, tn_status s);
TNI_FN tn_status tni_optim_publish(tn_optim *o);
TNI_FN tn_status tni_optim_mean(tn_optim *o);
TNI_FN tn_status tni_optim_ready(tn_optim *o);

/* muon.c */
TNI_FN tn_status tni_muon_alloc(tn_optim *o);
TNI_FN tn_status tni_muon_update(tn_optim *o, int64_t i);
#endif /* TN_NO_TRAINING */

#endif
