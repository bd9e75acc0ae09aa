#ifndef TN_NO_OPERATOR
#ifndef TN_NO_CONTRACTION
/* An owned tensor and the number of nodes, of one net or several, that use it. */
typedef struct tni_net_share { tn_tensor *tensor; int64_t users; } tni_net_share;

typedef struct tni_net_box {
    tni_owned       owned;
    int64_t         bytes;
    tni_net_share **share;              /* [nodes], NULL for a node that refers to a tensor of the caller */
    tn_plan        *plan;               /* of the last tn_net_apply, or NULL; not in the context's list   */
    int64_t         rows;               /* for which it was made, and whether leg k had rows: bit k       */
    uint64_t        with_rows;
    tn_net          net;
} tni_net_box;
#endif /* TN_NO_CONTRACTION */
#endif /* TN_NO_OPERATOR */
