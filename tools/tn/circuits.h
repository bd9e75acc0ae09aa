/* circuits.h - what the files of `tn circuits` share: report.c, subject.c, heads.c, pairs.c, paths.c, ablate.c, diff.c,
   similar.c, polynomial.c, replaced.c, anomaly.c, circuits.c, which has the options, and compress.c. tn.h says which of them
   calls which. */
#ifndef TN_CIRCUITS_H
#define TN_CIRCUITS_H

#include "train.h"

/* ---- report.c: tables in 80 columns of a terminal, or everything as one object of JSON ---------------------------- */

/* format: "%s" for texts, else that of a double. A text that is longer than the width is cut, in the last column folded.
   title: NULL is the key. */
typedef struct column { const char *key, *title; int width; const char *format; } column;

void report_begin(bool json);
/* Begins a table, and ends the one before. title: what is above it, or NULL. A list of columns ends with a key of NULL. */
void report_table(const char *key, const char *title, const column *columns);
/* A row: a const char * for each column of texts, a double for each other one. NaN is unknown: "-", in JSON null. */
void report_row(const column *columns, ...);
/* A sentence that is printed after the tables. Equal ones are printed once. */
void report_note(const char *format, ...) PRINTF_LIKE(1, 2);
/* The notes so far, by number; NULL after the last one. */
const char *report_note_at(int i);
/* One of the lines `name: value` at the end. */
void report_value(const char *name, const char *format, double v);
void report_text(const char *name, const char *text);
void report_end(void);

/* ---- subject.c ------------------------------------------------------------------------------------------------------ */

typedef struct circuit_options {
    const char *token, *against, *text, *tokenizer, *out, **others;     /* others [other_count]: more runs */
    int64_t     other_count;
    int64_t     block, top, position, budget, remove, tokens, common, length, threads, degree;
    int         by, inputs, norms;
    bool        json, f32, mean, no_data, patterns, loss, within_null, checkpoints, shared;
} circuit_options;
extern circuit_options circuit_settings;

typedef struct subject {
    model        m;
    const char  *path;                  /* as it was given                                                        */
    char        *file;                  /* of the weights                                                         */
    corpus       run;                   /* tokens of the run, if has_run                                          */
    bool         has_run;
    const char **names;                 /* [vocab + 1] of tokens; the last is "1", the constant                   */
    double      *frequency;             /* [vocab] of the tokens in the run's training text; NULL without it     */
    int32_t     *common;                /* [vocab] tokens by falling frequency; without a text in their own order */
} subject;

/* data: also the tokens of its run, if they are there. */
void open_subject(subject *s, const char *path, bool data);
/* Of a model that is read already, from `file`; both are the subject's from now on. */
void adopt_subject(subject *s, const char *path, const model *m, char *file);
void close_subject(subject *s);
/* How many numbers of a tensor are NaN or infinite; and fails if a parameter of the model has any. */
int64_t count_nonfinite(const tn_tensor *t);
void    check_finite(const model *m, const char *path);
/* The id of a token that was given: a text, or its number. Fails, and proposes the nearest token. */
int64_t token_id(const subject *s, const char *text);
/* The name of a head wherever one is shown, as in paths: "0.head1", which no one reads as a decimal. */
enum { HEAD_NAME = 48 };
char *head_name(int64_t block, int64_t head, char name[HEAD_NAME]);
/* The tokens of a text, a new list; fails if it has none, or more than the model's context or --length. */
int64_t text_tokens(const subject *s, const char *text, int32_t **ids);
tn_tensor *ids_tensor(tn_ctx *ctx, const int32_t *ids, int64_t count);
/* Windows of text to compute losses on: `count` of length + 1 tokens, the first of which begins at ids[start[0]]. Of a text,
   or without one (NULL) windows of at most `context` that are spread over the held-out part of the run, of so many
   `tokens` together. */
typedef struct samples { const int32_t *ids; int64_t count, length, *start; bool held; } samples;
samples text_samples(const subject *s, const char *text, int64_t context, int64_t tokens);
void    free_samples(samples *x);
/* The loss of a window in nats per token, while the taps see or change the run. */
double  sample_loss(const model *m, const samples *x, int64_t k, const tn_tap *taps, int64_t count);

/* ---- heads.c ---------------------------------------------------------------------------------------------------------- */

typedef struct head_numbers {
    double  qk, ov, copying;            /* norms, score; NaN: refused                                              */
    double *share;                      /* [distances] of block 0, or NULL                                        */
    double  composition;                /* the strongest with a head of an earlier block; NaN in block 0          */
    char    part[3];                    /* of this head that reads it: "Q", "K", "Q2", "K2" or "V"                */
    int64_t block, head;                /* of the earlier one                                                      */
} head_numbers;
/* Measures all heads, [layers heads]. *distances: how many a share has. What is refused is a note. */
head_numbers *measure_heads(const subject *s, int64_t *distances);
void free_heads(const subject *s, head_numbers *heads);

/* The files of weights in a run's folder, by step, one of each: what --weights-every wrote, and the checkpoints. */
typedef struct moment { int64_t step; char *path; } moment;
moment *list_moments(const char *folder, int64_t *count);

/* ---- pairs.c ---------------------------------------------------------------------------------------------------------- */

/* What chance alone gives for a table of pairs of a block: the largest magnitude in 19 copies of the MLP whose weights are
   shuffled. NAN: not computed, as it would take more than so many operations. */
double      null_of_pairs(const subject *s, const tn_circuit *pairs, int64_t block, int64_t out, double operations);
/* The rows and columns of the table T(.) of a block's MLP for token `out`, of *n tokens: the `common` commonest ones, 0: all.
   Where there are biases the constant one is the last. The context has an error if the table is refused. */
tn_circuit *pairs_among(const subject *s, int64_t block, int64_t common, int64_t out, int64_t *n);

/* typical_unit_of the subject's model. */
double typical_unit(const subject *s);

/* ---- paths.c ---------------------------------------------------------------------------------------------------------- */

/* A text, the frozen network on it, and what is asked for: a logit, a difference of two, or a loss. */
typedef struct question {
    int32_t          *ids;
    int64_t           count;
    tn_circuit_frozen frozen;
    tn_circuit_target target;
    double            largest, loss;    /* |logit| of the run at the position; the loss of the token there */
    const char       *whole;            /* what the value of the target is called                          */
} question;
/* Asks what circuit_settings say. */
void  ask_question(const subject *s, const char *text, question *q);
void  close_question(question *q);
/* The name of a node, a new string. */
char *path_name(const subject *s, const tn_circuit_paths *p, int64_t node);

/* ---- diff.c ----------------------------------------------------------------------------------------------------------- */

/* The cosine of the QK (or OV) circuits of head h and of head g of the other model, between the commonest tokens or between
   directions of the stream. */
double head_cosine(const subject *s, const model *b, bool ov, bool tokens, int64_t block, int64_t h, int64_t g);
/* Cosines of the operators, and the mean cosine of their hidden units after alignment; NaN: shapes differ, or refused. */
typedef struct mlp_numbers { double stream, tokens, units; } mlp_numbers;
mlp_numbers compare_mlps(const subject *s, const model *b, int64_t block);
/* Fails if a token is another one in the other model. */
void check_names(const subject *s, const model *b, const char *other);

/* ---- polynomial.c ----------------------------------------------------------------------------------------------------- */

enum { POLYNOMIAL_MOST = 8 };                   /* degree */
/* The polynomials of the activations of a model's MLPs, and of its softmax. */
typedef struct fitted fitted;
fitted *list_functions(const subject *s);       /* those that there are to fit; free_fitted frees them */
void    free_fitted(fitted *f);
bool    fitted_gates(const fitted *f);          /* whether MLPs have activations to replace; attention a softmax */
bool    fitted_softmax(const fitted *f);
/* Fits all polynomials in the run of a text, with further taps. */
void fit_functions(fitted *f, const samples *x, const tn_tap *more, int64_t count);
/* The polynomials of a block's activation, a new list: one for each hidden unit or, with --shared, one. */
tn_polynomial *gate_polynomials(const fitted *f, int64_t block, int degree, int64_t *count);
/* The loss on a text with polynomials of a degree for the activations, for softmax with its number of a kind of denominator, or
   -1, and with further taps. */
double loss_with(fitted *f, const samples *x, int degree, bool gates, int softmax, const tn_tap *more, int64_t count);
/* The tables of shares and of losses; whole: the loss of the model as it is. */
void report_polynomials(fitted *f, const samples *x, double whole);

/* ---- replaced.c ------------------------------------------------------------------------------------------------------- */

/* Sets a parameter of a model, or fails. */
void set_param(const model *m, const char *name, const double *v);
/* Writes a model that was made of the subject's as a run: weights, config.json, tokenizer.json, and the settings of the
   subject's run, by which its text is found. */
void write_model(const subject *s, const model *m, const char *folder);

/* ---- what is asked ----------------------------------------------------------------------------------------------------- */

void heads_report(subject *s);
void history_report(subject *s);
void pairs_report(subject *s, const char *token);
void bigrams_report(subject *s, const char *token);
void paths_report(subject *s, const char *text);
void attribute_report(subject *s, const char *text);
void ablate_report(subject *s, const char *text);
void diff_report(subject *s, const char *other);
void similarity_report(subject *s, const char *other);
void polynomial_report(subject *s, const char *text);
void anomaly_report(subject *s, const char *other);

#endif
