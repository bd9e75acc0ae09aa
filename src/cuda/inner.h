#pragma once
#include "cuda/elements.h"

#ifndef TNC_ONE_FILE
/* The entries, which table.cu lists */
TNC_FN tnc_entry_fn tnc_copy, tnc_fill, tnc_uniform, tnc_normal;
TNC_FN tnc_entry_fn tnc_add, tnc_mul, tnc_div, tnc_where, tnc_sum;
TNC_FN tnc_entry_fn tnc_act, tnc_act_backward, tnc_glu, tnc_glu_backward, tnc_prod, tnc_prod_backward;
TNC_FN tnc_entry_fn tnc_gemm;
TNC_FN tnc_entry_fn tnc_embed, tnc_embed_backward;
TNC_FN tnc_entry_fn tnc_rmsnorm, tnc_residual_rmsnorm, tnc_layernorm, tnc_rmsnorm_backward, tnc_layernorm_backward;
TNC_FN tnc_entry_fn tnc_dropout, tnc_cross_entropy, tnc_softmax, tnc_softmax_backward;
TNC_FN tnc_entry_fn tnc_chain, tnc_chain_backward;
TNC_FN tnc_entry_fn tnc_scan, tnc_scan_backward, tnc_scan_states, tnc_scan_states_backward;
TNC_FN tnc_entry_fn tnc_rope, tnc_rope_backward;
TNC_FN tnc_entry_fn tnc_attention, tnc_attention_backward;
TNC_FN tnc_entry_fn tnc_attention_linear, tnc_attention_linear_backward;
TNC_FN tnc_entry_fn tnc_argmax, tnc_accuracy;
TNC_FN tnc_entry_fn tnc_sumsq, tnc_step_begin, tnc_adamw, tnc_sgd, tnc_muon_end, tnc_muon_begin;

/* What entries of other files use, too */
TNC_FN void tnc_copy_views(tnc *s, const tn_view *x, const tn_view *y);                                 /* copy.cu */
TNC_FN tn_status tnc_add_one(tnc *s, const tn_view *y, const tn_view *a, double f0, bool add);          /* elementwise.cu */
TNC_FN tn_status tnc_attend_no_pairs(tnc *s, const tn_call *c);                                         /* attention.cu */
#endif
