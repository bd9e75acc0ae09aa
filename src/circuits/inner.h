#ifndef TN_NO_CIRCUITS
/* A function of rows [first,first+count) as doubles of the host. */
typedef tn_status (*tni_circuit_fn)(void *user, int64_t first, int64_t count, const double *rows);

struct tn_circuit_evidence {
    tni_owned owned;                    /* first: the context destroys it by this */
    tn_circuit_evidence_desc desc;
    int64_t   rows;
    tni_heap *best;                     /* [features]          */
    double   *origin;                   /* [features]          */
    double   *power;                    /* [features,4]        */
    double   *drawn;                    /* [features,top]      */
    int32_t  *drawn_at;                 /* [top]               */
    double   *bins;                     /* [features,bins]     */
    tni_dice  dice;
};
#endif /* TN_NO_CIRCUITS */
