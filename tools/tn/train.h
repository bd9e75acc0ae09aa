/* train.h - what the files of `tn train` share: processes.c, settings.c, chain.c, signals.c, speed.c, journal.c, checkpoint.c,
   layers.c, step.c, heldout.c, begin.c and train.c, which has the training loop. tn.h says which of them calls which. */
#ifndef TN_TRAIN_H
#define TN_TRAIN_H

#include "tn.h"
#include "hash.h"

typedef struct settings {
    file_list   data, val;
    const char *tokenizer, *out, *resume, *from, *config, *model, *prompt, *teacher;
    double      held_out;
    int         split;
    int64_t     vocab;
    /* the model */
    int64_t     layers, heads, width, context, hidden, order, d_qk, d_v;
    cycle       mlp, attention, window;
    int         row_scale, norm, place, positions;
    bool        tied, bias, gain, no_embed_norm, no_qk_norm, head_norm, no_zero_init, value_residual, x0_residual;
    double      softcap, score_scale, rope_base, norm_eps, qk_norm_eps, attn_scale, mlp_scale, init_std, embed_std;
    double      embed_noise, dropout;
    /* training */
    double      teacher_weight, temperature;
    int         optimiser, schedule;
    int64_t     batch, accumulate, steps, tokens, warmup, seed, threads;
    double      minutes, lr, adam_lr, embed_lr, beta1, beta2, momentum, weight_decay, embed_decay, clip, decay, max_loss;
    int64_t     device;
    int         dtype, backend, precision, activations, comm;
    bool        recompute, share_moments;
    /* what is logged and saved */
    int64_t     log_layers, val_every, val_tokens, sample_every, sample_length, save_every, keep, weights_every, stop_at;
    bool        no_baseline, keep_best, audit;
    /* no options: what a config file notes about its data */
    char        data_hash[17];          /* of the tokens; "": it notes nothing                     */
    int64_t     data_bytes;             /* of the files; 0: not noted, as in earlier versions */
} settings;

extern settings    train_settings;
extern const usage train_usage;

/* Reads a config file with its note. */
void read_settings(const char *text, size_t bytes, const char *name);
/* What config.txt ends with: the hash and the number of bytes of its data. */
#define DATA_MARK "\n# data "
/* Whether two config.txt are equal, except for the paths of the data. */
bool same_settings(const char *a, const char *b);
/* Skips the lines of a config.txt that are about the data. */
const char *after_paths(const char *text);

/* The model that the settings describe, with that vocabulary. Fails if the settings contradict each other. */
void set_model_desc(tn_ctx *ctx, int64_t vocab, tn_transformer_desc *desc);
void set_optim_desc(const settings *s, bool no_norm, tn_optim_desc *desc);
void set_dtypes(const settings *s, tn_desc *desc);        /* of an empty desc: dtype, activations, precision of products */
void set_ctx_desc(const settings *s, tn_desc *desc);

/* ---- processes: each trains on its part of every batch; the first one writes the run's folder ------------ */

#define COMM_WORDS "none|socket|mpi|nccl"
/* Meets the other processes; kind: a word of --comm; device: the GPU of the first one on each machine. Messages then name the
   rank, and only the first process prints. */
void open_processes(const char *kind, int64_t device);
void close_processes(void);             /* says goodbye; without it the others take the end for a failure */
/* The carrier for desc.comm; NULL: this process is alone. */
const tn_comm *other_processes(void);
int  processes_here(void);              /* their number on this machine, as far as the launcher tells */
int  rank_here(void);                   /* the number of this one among them */
bool is_first(void);
/* That number of the first process; whether one of them says yes. All have to call these together. An error is left in ctx. */
double of_first(tn_ctx *ctx, double number);
bool   any_of_all(tn_ctx *ctx, bool here_too);
/* Fails in all processes if the text of one differs from that of the first. */
void   check_alike(tn_ctx *ctx, const char *text, size_t bytes, const char *what);

/* ---- the chain of a run with --audit: lines of its log that hash it --------------------------------- chain.c

   A link is a line of log.jsonl whose last member is "chain": the SHA-256 of the link before it, in 64 digits (of the first one
   nothing), a newline, the lines since, each with its newline, and the line itself up to that member, with a newline. The line
   of a step is hashed up to "rate": and a newline, as the numbers of its last two members are timings. The first link has the
   hashes of the settings, the model's desc, the tokenizer and the data; the others have those of checkpoints, and the last one
   that of model.safetensors. */

typedef enum link_kind {
    NO_LINK = 0,
    GOOD_LINK,
    BAD_LINK                        /* it does not follow from the lines before it             */
} link_kind;

typedef struct chain {
    bool    on, done;               /* done: it has the link of model.safetensors              */
    sha256  sum;                    /* of what the next link hashes, so far                    */
    char    last[SHA256_TEXT];      /* of the newest link                                      */
    int64_t links, first, step;     /* the number of links; steps of the first and the newest  */
} chain;

void chain_start(chain *c);         /* it is on, and empty */
/* Adds a line of the log, without its newline. Where a link is wrong, the chain goes on from the hash that this link has. */
link_kind chain_add(chain *c, const char *line, size_t bytes);
/* The length of what is hashed of a line that is no link. */
size_t untimed(const char *line, size_t bytes);
/* The SHA-256 of a file, which must be one. Returns its number of bytes. */
int64_t hash_file(const char *path, path_kind kind, char text[SHA256_TEXT]);
/* The members of the first link after its step: files by what they are, such as "data.1", in the order of settings. Of a file
   that is not there the hash is "". */
typedef struct hashed { char *name, *path; char hash[SHA256_TEXT]; } hashed;
int64_t hash_inputs(const settings *s, const char *folder, hashed **list);

/* ---- journal: log.jsonl, the picture, the progress line --------------------------------------------- */

typedef struct curve { double *x, *y; int64_t count, capacity; } curve;

typedef struct journal {
    FILE   *file;
    char   *path, *picture;
    int64_t lines;
    bool    failed;                 /* a line could not be written: a full disk, for example   */
    bool    bar;                    /* the standard output is a terminal                       */
    bool    silent;                 /* of a replay: a temporary file, and nothing is printed   */
    chain   chain;
    bool    shown;                  /* the progress bar is on its last line                    */
    curve   loss, held;             /* by step: nats per token; held: of the same windows each time */
    double  all_step, all;          /* the loss of all of the held-out part, and its step; or NaN */
    double  trigram, fivegram;      /* nats per token, or NaN                                  */
    double  seconds_before;         /* seconds of training before this start                   */
    double  started, last_shown;
    double  last, smooth, norm;     /* of the newest step: loss, mean loss, norm of the gradient */
} journal;

/* Opens and locks the log of a run, or fails: another process trains it. Called before anything of the run is read. */
void journal_lock(journal *j, const char *folder);
void journal_replay(journal *j);                     /* a log of its own, for steps that are trained again */
char *journal_text(journal *j, size_t *bytes);           /* all of it, a new string */
void journal_start(journal *j);                      /* begins the log, which becomes empty */
/* Continues the log: keeps and reads its lines up to that step. Warns if their number is not `lines`. Of the last step there
   may be more, of an evaluation after its checkpoint: they are kept if the run was `finished`, else it is repeated. */
void journal_resume(journal *j, int64_t step, int64_t lines, bool finished);
bool journal_has_steps(journal *j);                  /* whether a step was logged; called before journal_resume */
void journal_sync(journal *j);                       /* writes it to the disk */
/* Adds a line: an object, given without its braces. */
void journal_line(journal *j, const char *format, ...) PRINTF_LIKE(2, 3);
void journal_step(journal *j, int64_t step, double loss, double lr, double norm, int64_t tokens, double rate);
/* all: of all of the held-out part, which is not a point of the curve */
void journal_held(journal *j, int64_t step, double nats, bool all);
void print_held_out_so_far(journal *j);
double journal_seconds(const journal *j);
/* Prints to the standard output, above the progress bar. */
void journal_print(journal *j, const char *format, ...) PRINTF_LIKE(2, 3);
void show_progress(journal *j, int64_t step, int64_t steps, double rate, double share, bool always);
/* Shows on the last line of a terminal how much of something is evaluated. */
void show_part(journal *j, const char *what, int64_t done, int64_t count);
void clear_progress(journal *j);
/* Draws the picture of the loss curve, over the tokens trained on: `tokens` per step. */
void draw_curve(journal *j, tn_ctx *ctx, const char *title, double tokens);
bool journal_close(journal *j);                       /* false: the log is incomplete, which was reported */

/* ---- a step ----------------------------------------------------------------------------------------- */

enum { MAX_PENDING = 16 };          /* steps that a device may be ahead of the log */

/* The inputs and results of a step. They are owned tensors, at the same addresses in each step, so that one can be
   captured. */
typedef struct feed {
    model       *m;
    tn_optim    *optim;
    tn_tensor  **x, **y;            /* [parts] of ids and targets [texts,context]                     */
    model       *teacher;           /* in the context of m; NULL: none                                */
    double       weight, temperature;         /* of what it says                                      */
    tn_tensor   *said;              /* [texts,context,vocab] its probabilities, of one part           */
    tn_tensor   *current;           /* [1,parts+2]: losses of the parts, norm of the gradient, 1 if skipped */
    tn_tensor   *pending;           /* [MAX_PENDING,parts+2]: the same of steps that were not read yet */
    tn_graph    *graph;
    int64_t      parts, steps_run;  /* steps since the context was created: the first are not captured */
    int64_t      waiting;           /* number of steps in pending                                      */
    double       lr[MAX_PENDING], since;      /* their learning rates; when the first of them began  */
    double      *numbers;           /* [MAX_PENDING,parts+2] on the host                               */
} feed;

/* ---- a run ------------------------------------------------------------------------------------------ */

typedef struct run {
    const settings *s;
    const char *folder;
    model       m;
    tn_optim   *optim;
    corpus      data;
    journal     journal;
    buffer      config;             /* the text of config.txt                     */
    char       *config_json;
    char       *saved;              /* the newest checkpoint                      */
    int64_t     saved_step;
    int64_t     step, steps;
    double      flops;              /* of training, per token                     */
    double      peak;               /* floating-point operations per second: the most that was measured */
    double      rate;               /* tokens per second, a running average       */
    double      sent;               /* bytes, by this process in its last step    */
    bool        device;             /* not the host: reading results waits        */
    bool        data_named, val_named;  /* on the command line, not by other settings */
    int         stops;              /* the signal by which a process was asked to stop, or 0 */
    bool        saves;              /* one of them was asked to save              */
    bool        broken_off;         /* the step was, since it need not be finished: nothing of it counts */
    int64_t     texts;              /* of this process in a forward pass          */
    bool        diverged;           /* where a replay would have stopped          */
    bool        planned;            /* nothing is computed, see planned_bucket    */
    feed        feed;
    int32_t    *ids, *targets;      /* [texts,context]                            */
} run;

/* signals.c */
/* folder: of the run, or NULL; a message names it. */
void catch_signals(const char *folder);
enum { STOP_SIGNALS = 3 };
extern const int stop_signals[STOP_SIGNALS];
/* Whether a signal asked for a checkpoint. taken: the next call says no. */
bool save_signal(bool taken);

/* speed.c: floating-point operations per second of a large matrix product with these settings; NaN if it fails */
double measure_peak(const tn_desc *desc);
/* The speed of the training as a share of the highest seen so far: that of the product, or its own. */
double share_of_peak(run *r);

/* layers.c */
typedef struct snapshot { double **before, *gradient; int64_t count; } snapshot;
/* Between the gradients of a step and its update. */
snapshot open_snapshot(run *r);
/* After the update: writes a line of the log with the size, gradient, update and effective rank of each parameter, and the
   entropy of each block's attention on texts of the held-out part. */
void   close_snapshot(run *r, snapshot *s);

/* step.c */
void   open_feed(run *r, model *m, tn_optim *optim, feed *f);
void   close_feed(feed *f);        /* its lists; the context owns the tensors */
/* One step: gradients, update, and its numbers to f->current. */
void   compute_step(feed *f);
/* The loss of the next batch, of all processes. learn: also computes the gradients, for the optimiser. Sets r->stops and
   r->saves, and with `learn` r->broken_off. */
double batch_loss(run *r, feed *f, bool learn);
/* The learning rate of the next step. */
double current_rate(const run *r);
/* Launches one step without waiting for its loss, which finish_steps reads. */
void   launch_step(run *r, feed *f);
/* Discards the results of steps that were launched. */
void   forget_steps(feed *f);
/* Waits for the steps that were launched; checks and logs each. */
void   finish_steps(run *r);
void   log_step(run *r, double loss, double lr, double norm, double seconds, int64_t steps);
/* Ends the program, but of a replay it only sets r->diverged, and so does stop_diverged. */
void stop_and_advise(run *r);
typedef struct fault { tn_status status; char text[512]; } fault;
/* Returns the context's error and clears it. */
fault take_error(tn_ctx *ctx);
/* found: the context's error, or TN_OK */
void stop_diverged(run *r, double loss, const fault *found);
double loss_limit(const run *r);

/* heldout.c */
/* Evaluates and reports the loss of windows that are spread over the held-out part, the same ones at each step, and after
   the last step that of all of it as well. */
void evaluate_held_out(run *r, bool last);
void write_sample(run *r);

/* checkpoint.c */
/* Writes the weights alone to a file of the run's folder. Returns NULL, or a message, a new string. */
char *save_weights(run *r, const char *name);
/* Saves the weights of this step to a file that stays, if --weights-every asks for it, or fails. */
void save_history(run *r);
void remove_old_checkpoints(const run *r);
/* Adds the links that a run with --audit has after a step: of its checkpoint, once. begin: of what it starts from, before. */
void link_start(run *r);
void link_checkpoint(run *r);
void link_model(run *r);
/* The bytes of the checkpoint that a run would write now, a new list. config: the note of its settings; NULL: the bytes of
   model.safetensors */
char *file_bytes(run *r, const char *config, size_t *bytes);
void save_or_stop(run *r);
const char *checkpoint_note(const tn_safetensors *st, const char *path, const char *key);
/* A note that counts something: from 0 to what a double holds exactly. */
int64_t checkpoint_count(const tn_safetensors *st, const char *path, const char *key);
/* Opens a checkpoint of this format. *look: a context for it alone; destroying it closes the file. */
tn_safetensors *open_checkpoint(const char *path, tn_ctx **look);

/* Why data that other settings than the command line name are not read, a new string; NULL: they may be. They are files of a
   disk, as large as noted, and without a note at most 256 MB if they are of a run. from: what names them. */
char *unfit_data(const settings *s, const char *from, bool of_run);
/* data of a run: its training and held-out part, with a tokenizer that is known */
void load_corpus(corpus *c, tn_ctx *ctx, const tn_tokenizer *t, int64_t vocab, const settings *s);
/* nats per token of n-grams of c's training part on other tokens, as ngram_losses has them; false: out of memory, which is said */
bool baseline_losses(const corpus *c, const int32_t *held, int64_t held_count, int64_t window, int64_t vocab,
                     double nats[NGRAM_MAX + 1]);

/* eval.c, for tn circuits as well */
/* Reads the settings of the run that weights belong to; false if there is no config.txt beside them. */
bool  read_run_settings(const char *file);
/* Reads the tokens of the run: its training part for n-grams and frequencies, and its held-out part. Returns NULL, or what
   is wrong, a new string: a file of the run is not where it was, or has other tokens. */
char *read_run_data(const model *m, const char *file, corpus *c);

/* begin.c: a model and its optimiser by the settings of a run */
void make_model(run *r, tn_ctx *ctx, model *m, tn_optim **optim);
/* The size of a bucket of gradients of which a model has few: each takes time, although nothing is sent. */
int64_t planned_bucket(const settings *s, tn_params *params);

/* plan.c, for tn info: prints what a step costs on so many GPUs */
void print_plan(tn_ctx *ctx, const tn_transformer_desc *desc, const settings *s, int64_t gpus);

/* begin.c */
void start_run(run *r, bool again);
/* Reads the settings of a run, and keeps their text. */
void read_run_config(run *r, const char *config);
/* A run with these settings as it is before its first step; nothing is written. like: one of its checkpoints, whose SIMD level is
   used if this processor has it and TN_SIMD is not set. */
void open_untrained(run *r, const char *like);
void close_run(run *r);

/* train.c: trains up to a step, or until a signal. title: of the curve; NULL: a replay, which saves and shows nothing */
void train_until(run *r, int64_t until, const char *title);
void resume_run(run *r);

#endif
