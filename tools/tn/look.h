/* look.h - what the files of `tn look` share: look_page.c, which `tn demo` uses as well (demo.c), look_operator.c, look_images.c,
   look_tensor.c, look_runs.c, look_learnt.c, look_blocks.c, look_course.c, look_language.c, and look.c, which has the options.
   tn.h says which of them calls which. */
#ifndef TN_LOOK_H
#define TN_LOOK_H

#include "circuits.h"

/* ---- look_page.c: a page is a template with the style, the script, one object of JSON and one block of bytes ---------- */

typedef struct page_part { const unsigned char *data; size_t bytes; } page_part;
typedef struct page {
    buffer    json;                     /* the object so far                                          */
    buffer    blob;                     /* the arrays that it refers to, each at a multiple of 8 bytes */
    char     *title;
    page_part wasm;                     /* the program of the live part; that of `tn look` unless another one is given */
    page_part style, script[2];         /* further ones, as they are within a page                    */
} page;

/* How the numbers of an array are kept. Q8: whole numbers of 8 bits, with one scale for each row of the last axis. */
typedef enum array_type { ARRAY_F32, ARRAY_F64, ARRAY_U8, ARRAY_Q8 } array_type;
/* An array that is in the blob. error: of Q8, largest |difference| / largest |number|. */
typedef struct stored {
    array_type type;
    int        rank;
    int64_t    shape[4];
    size_t     at, scales;
    double     error;
} stored;

/* Begins the object, up to `kind` and `title`, of a page. made_by: the command, such as "look". What follows are keys of
   the object, in any order. */
void page_begin(page *p, const char *made_by, const char *kind, const char *title);
/* Writes the notes, and of report_note those of what is left out, ends the object and writes the page. Fails with the file's
   name, and leaves nothing. */
void page_write(page *p, const char *path, path_kind kind);
/* Opens and closes an object or a list: bracket is one of { } [ ]. key: NULL within a list. */
void page_open(page *p, const char *key, char bracket);
void page_open_live(page *p);       /* what the live part needs; warns if this program has none */
void page_close(page *p, char bracket);
void page_text(page *p, const char *key, const char *text);
void page_number(page *p, const char *key, double v);           /* null if it is not finite */
void page_flag(page *p, const char *key, bool v);
/* Puts numbers into the blob, as F32, F64 or Q8. v [shape[0],..,shape[rank-1]] */
stored page_store(page *p, array_type type, int rank, const int64_t *shape, const double *v);
stored page_store_bytes(page *p, const void *bytes, size_t count);
void page_array(page *p, const char *key, const stored *a);
/* Both at once: of one axis, and of any number of them. */
void page_vector(page *p, const char *key, array_type type, int64_t n, const double *v);
void page_numbers(page *p, const char *key, array_type type, int rank, const int64_t *shape, const double *v);
void page_names(page *p, const char *key, const char *const *names, int64_t count);
/* A sentence that the page has at its end, once: what is exact, and what is left out. Of absolute paths it keeps the last part. */
void page_note(const char *format, ...) PRINTF_LIKE(1, 2);
/* A message of the library as a half-sentence for people who do not program: without the function, and what it expected. */
char *plain_reason(const char *why);
/* The last part of a path. */
const char *file_name(const char *path);
/* The name of a file or folder, without its ending, a new string. */
char *base_name(const char *path);
/* Names for two models, new strings: base_name, or one part of the path more where these are equal. */
void names_of_two(const char *a, const char *b, char *names[2]);
/* The names of the two models of a comparison, and its columns: key, head, what it says. */
void page_two(page *p, const char *a, const char *b, const char *const columns[][3], size_t count);
/* A note that a tensor has `bad` numbers that are not finite, and of the first one a warning. left: what the page lacks. */
void page_nonfinite(const char *name, const tn_tensor *t, int64_t bad, const char *left);
/* Opens a section, an object of the list `sections`. text: NULL, or what it shows. */
void page_section(page *p, const char *type, const char *id, const char *title, const char *text);
/* A whole number that is not negative, with commas, as the script of the page writes it; a new string. */
char *grouped(int64_t n);
/* A row of a card. */
void page_row(page *p, const char *label, const char *format, ...) PRINTF_LIKE(3, 4);

/* What a page of tn look can be of, as bits. */
enum { LOOK_ARRAY = 1, LOOK_LANGUAGE = 2, LOOK_LAYERS = 4, LOOK_TENSORS = 8, LOOK_RUNS = 16 };
/* Fails if an option is given that pages of this are made without. */
void look_is_of(int what);

/* What ARRAY_Q8 makes of rows [rows,n]. */
void round_to_q8(int64_t rows, int64_t n, double *v);

/* ---- look_operator.c: an operator of order 2 --------------------------------------------------------------------------- */

/* Which outputs are shown, and by which rule. */
typedef struct telling {
    int64_t *at;                        /* [count]                                                                           */
    double  *edge;                      /* [count] of the null, which holds for all that were compared; NULL: not computed   */
    int64_t  count, among, compared;    /* shown; of how many; how many of these were compared with the null, 0: none        */
} telling;
/* The n outputs of `among` (NULL: the first n) that have something to show, at most `most`: all of them as they are, or those
   with the most eigenvalues beyond the null, best first, and of equal ones those with the largest matrix. Where the null of all
   of them would take long, it is that of the ones with the largest matrices; where of these too, they are what is shown. */
telling  telling_outputs(const tn_cp *cp, const int32_t *among, int64_t n, int64_t most);
/* What those that are shown have, "the most eigenvalues beyond chance" for example, a new string. */
char    *telling_rule(const telling *t);
/* The operator of some outputs alone, a new one. */
tn_cp   *some_outputs(const tn_cp *cp, const int64_t *at, int64_t count);
/* The edges of the null, which hold for all outputs together, a new list [cp->out]; NULL: it would take long. */
double  *null_edges(const tn_cp *cp);
/* The largest |cosine| of a with 19 draws of b's null, which is what unrelated operators have; NaN: it would take long. */
double   largest_null_cosine(const tn_cp *a, const tn_cp *b);
/* A section with the eigenvalues of each output; names [cp->out]; edge [cp->out] of the null, or NULL; block: of a language
   model, or -1. */
void     spectra_section(page *p, const char *id, const char *title, const tn_cp *cp, const char *const *names,
                         const double *edge, int64_t block);
/* The keys of a section "matrix" for factors, with what 8 bits cost, |Q - Q8| / |Q|. x [rows,in]: between such rows, or NULL. */
void     put_factors(page *p, const tn_cp *cp, tn_tensor *x);
/* The keys "of" and what follows of a section "matrix". dense: written out if they are few numbers. */
void     put_interactions(page *p, const tn_cp *cp, bool dense);

/* ---- look_images.c, look_tensor.c -------------------------------------------------------------------------------------- */

/* Writes the page of a file of tensors that has a bilinear layer, of images or of anything else. Returns false if there is
   none whose names are known. */
bool look_at_layers(tn_ctx *ctx, const char *path, const char *title, const char *out);
/* The pages of a .npy file, and of a file of tensors whose names say nothing. */
void look_at_array(tn_ctx *ctx, const char *path, const char *title, const char *out);
void look_at_tensors(tn_ctx *ctx, const char *path, const char *title, const char *out);

/* ---- look_runs.c ------------------------------------------------------------------------------------------------------- */

/* The runs in a folder that is not a run, a new list in the order of their names; returns their number. */
int64_t runs_below(const char *folder, char ***list);
/* Writes the page of several runs: their losses in one picture. */
void    look_at_runs(const char *const *paths, int64_t count, const char *title, const char *out);

/* ---- look_learnt.c ----------------------------------------------------------------------------------------------------- */

/* The places of the largest |v[i]| (sign 0) or of the largest sign v[i], best first. */
int64_t  best_places(const double *v, int64_t n, int sign, int64_t *at, int64_t most);
/* The operator of a block's MLP to the logits in nats, for a typical denominator of the last norm; NULL: it has none, which
   note_left_out says of all such blocks together. */
tn_cp   *block_operator(const subject *s, int64_t block);
void     note_left_out(const subject *s);
/* The kind of an MLP, as people write it. */
const char *mlp_words(tn_mlp_kind kind);
/* The outputs that are shown of a block: those that are given, or of the commonest words those with the most eigenvalues beyond
   the null. They stay until it is asked for another model. */
const telling *shown_tokens(const subject *s, int64_t block, const tn_cp *cp);
enum { COMMON_OUTPUTS = 256 };
/* The null of an output's pairs takes at most so many operations, a second of one core, or is left out. */
#define NULL_OF_PAIRS 1e10
/* Whether a token is a word, and not a sign or a piece of one, as far as its name and the run's text tell. */
bool     is_whole_word(const subject *s, int64_t id);
/* Whether a text may begin with a token: with a letter that does not go on with the word of the token before. */
bool     begins_word(const subject *s, int64_t id);
/* The commonest tokens that are words, at most `most`, a new list. */
int32_t *whole_words(const subject *s, int64_t most, int64_t *count);
/* The section of a language model that comes first. ids: a text of T tokens. */
void     learnt_section(page *p, const subject *s, const int32_t *ids, int64_t T);
void     learnt_of_two(page *p, const subject *s, const subject *other, const int32_t *ids, int64_t T);
/* What the log of its run says of a file of weights: of the step that its name has, or of the last one. NaN: unknown. */
reached  reached_by(const char *file);

/* ---- look_blocks.c ----------------------------------------------------------------------------------------------------- */

/* Adds a note for an error of the context, which is cleared. Returns whether there was one. */
bool     note_refusal(const subject *s, const char *what);
/* All that is shown of the MLPs. ids: a text of T tokens; *pairs: the rows of a section that comes later. */
void     block_sections(page *p, const subject *s, const int32_t *ids, int64_t T, buffer *pairs);
void     pairs_section(page *p, const buffer *rows);
/* The text whose sentences are shown: of the run, or that of T tokens. */
void     put_evidence(page *p, const subject *s, const int32_t *ids, int64_t T);

/* ---- look_course.c ----------------------------------------------------------------------------------------------------- */

/* The model at earlier steps, if the run kept several: the copying scores of heads, their strongest composition, the loss on a
   part of the held-out text, and the spectrum of a token in each block. At the end the model is that of the page again. */
void     time_section(page *p, subject *s);
/* The model beside another one, whose path is given. */
void     compare_models(page *p, const subject *s, const model *b, const char *path);

/* ---- look_language.c --------------------------------------------------------------------------------------------------- */

/* Writes the page of a language model, with --against beside another one. read: NULL, or the model, which was read from `file`
   already; both are freed. */
void look_at_model(const char *path, const model *read, char *file, const char *title, const char *out);
/* Reads the model of a Hugging Face folder, with --tokenizer or its own one. Where that cannot be used, a note says why, and
   tokens have numbers. *file: that of its weights, a new string. Returns NULL, or why the model has no counterpart here, a
   new string. */
char *read_for_page(tn_ctx *ctx, model *m, const char *folder, char **file);

/* ---- the options ------------------------------------------------------------------------------------------------ look.c */

typedef struct look_options {
    const char *out, *title, *against, *data, *labels, *names, *pixels, *w, *v, *p, *embed, *head, *text, *token;
    const char *outputs_text, *outputs_given;   /* --outputs; NULL, or the names if it has names */
    int64_t     outputs, vectors, examples;
    int         residual, live;
    bool        within_null;
} look_options;
extern look_options look_settings;

#endif
