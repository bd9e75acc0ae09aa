/* names.h - models by the names of their checkpoints, and text that was encoded twice

       gpt2-MLP-12l-6h-768embd     MLP: bilinear, relu, relu2, gelu, swish, glu, reglu, geglu, swiglu, gelu_tanh, geglu_tanh
       gpt2-MLP-ATTN-attn-12l-...  ATTN: sqrd, bilinear, diff, plaindiff; without it: softmax
       TinyStories-2-512           2 layers, width 512
   The first are models trained with modded-nanoGPT (github.com/KellerJordan/modded-nanogpt, late 2024): vocabulary 50304,
   context 1024, hidden width 4 dim, a bias on the MLP's output, RMSNorm without gain, also after the embedding and on queries
   and keys, x0 and value residuals, soft-cap 30, output projections from 0, PyTorch's initialisation. The second follow
   github.com/tdooms/bilinear-decomposition: vocabulary 4096, context 256, bilinear MLPs of hidden width 4 dim, heads of 64,
   RMSNorm without gain (eps 1e-8), attention times 1/sqrt(2 layers), PyTorch's initialisation. A model whose blocks differ in
   their kinds has a name that begins with mixed-, which cannot be read back. */
#ifndef TN_TOOL_NAMES_H
#define TN_TOOL_NAMES_H

#include "tensornet.h"

/* The desc that a name says, with its defaults. False: *desc is as it was, and `why` says what is wrong with the name, or the
   context has the error of tn_transformer_check, which `why` repeats. */
bool model_from_name(tn_ctx *ctx, const char *name, tn_transformer_desc *desc, char why[256]);
/* A TinyStories name where the desc is exactly what that says, else the gpt2 name of its shape, which tells no more than what
   is written in it. Returns the length without the final zero, as snprintf does; -1: the desc is not valid. */
int  model_name(const tn_transformer_desc *desc, char *dst, size_t bytes);

/* The place of the first sign of a damaged encoding, a byte's number, or -1: bytes that are not UTF-8, U+FFFD, C1 controls, and
   UTF-8 that was taken for Windows-1252 or Latin-1 and encoded again, also if it was lower-cased after that: an a with a
   circumflex and a euro sign where a quotation mark was, an A with a tilde and a copyright sign for an e with an acute. */
int64_t find_mojibake(const char *text, size_t bytes);

#endif
