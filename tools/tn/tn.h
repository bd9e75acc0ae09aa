/* tn.h - what the files of the command `tn` share

   A file calls only files of the rows above it. Each function is declared under the name of the file that defines it.

       util.c ngram.c order.h     messages, memory, strings, UTF-8; the n-gram baseline; the order of the data
       names.c mojibake.c hash.c  names of published checkpoints; text that was encoded twice; a hash
       files.c json.c             files that appear whole or not at all; lines of JSON
       options.c text.c           command line, config files and help from one table; stories, texts
       manual.c completions.c     the manual page and the shells' completions, from the same tables
       tokens.c                   tokens in memory and in mapped files
       data.c                     tokens of texts and of shards
       run.c                      a run's folder, models from it, generating text
       foreign.c                  models of Hugging Face's transformers
       arrays.c                   arrays of .npy files, tensors of safetensors files and of runs
       score.c                    the loss of a model on tokens

       processes.c                tn train: the processes that train together
       settings.c                           its options
       chain.c                              hashes of its log and files
       journal.c                            the log, the picture and the progress line
       signals.c speed.c                    SIGINT and SIGTERM; the speed of matrix products
       checkpoint.c                         saving and reading checkpoints
       layers.c                             what a step does to each parameter, entropies, for the log
       step.c                               one training step, and what happens when it fails
       heldout.c                            the loss on held-out data, samples
       begin.c                              a run begins, resumes, or continues from another one
       train.c                              the training loop

       dry.c                      a step that computes nothing, to learn what memory it needs
       plan.c                     what a training costs on a number of GPUs, for tn info
       tokenizer.c clean.c synthetic.c generate.c eval.c info.c cache.c prove.c audit.c   one subcommand each
       exchange.c                 tn import, tn export
       decompose.c                tn decompose
       draw.c                     tn draw
       einsum.c                   tn einsum
       report.c                   tn circuits: tables for a terminal, or as JSON
       subject.c                  the model and its text
       heads.c pairs.c paths.c ablate.c diff.c polynomial.c degrees.c      what it computes
       similar.c                  how alike models and steps are, by their logits
       anomaly.c                  what a training added to a model
       replaced.c                 the model that polynomials leave
       circuits.c                 its options
       merge.c                    tn merge
       compress.c                 tn compress
       look_page.c                tn look and tn demo: the page: JSON, arrays, the template
       look_operator.c            what an operator shows
       look_tensor.c              arrays, and tensors that are no known layer
       look_images.c              networks of bilinear layers
       look_runs.c                several runs: their losses in one picture
       look_learnt.c              words, blocks and outputs of language models; what one has learnt
       look_blocks.c              what the MLPs of language models do
       look_course.c              language models over their training, and two of them
       look_language.c            the page of a language model
       look.c                     its options
       demo.c                     tn demo: pages that teach
       tn.c                       main: finds the subcommand

   What only the files of `tn train` share is in train.h, what those of `tn circuits` share in circuits.h, of `tn look` in
   look.h. Memory that is needed until the end of the program is not freed. */
#ifndef TN_TOOL_H
#define TN_TOOL_H

#include "tensornet.h"
#include "order.h"
#include <stdarg.h>
#include <stdio.h>

#if defined(__GNUC__)
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))
#else
#define PRINTF_LIKE(text, first)
#endif

enum { EXIT_ERROR = 1,              /* a file, memory, the data or the machine failed  */
       EXIT_USAGE = 2,              /* wrong usage: the command line, a config file    */
       PATH_ROOM = 4096 };

/* ---- printing --------------------------------------------------------------------------- util.c

   Nothing else prints. What a terminal could obey becomes a question mark (tn_printable). */

/* As printf and its kin, where each text that is converted is printable: a word without newlines and tabs, which only the
   format has. */
int  print_to(FILE *to, const char *format, ...) PRINTF_LIKE(2, 3);
#define print(...) print_to(stdout, __VA_ARGS__)
int  print_list(FILE *to, const char *format, va_list list);
/* Prints a text that may have lines and tabs. */
void print_text(const char *text, size_t bytes);
/* Prints bytes as they are: where the user has asked for that, or where the result is not for a terminal. */
void print_raw(const char *text, size_t bytes);
/* From a new line on, words that are printed to the standard output stay whole at column 80, if it is a terminal: running text,
   which may come in pieces. */
void fold_output(void);

/* ---- messages, to the standard error: "tn COMMAND: ..." ------------------------------ util.c */

/* What messages begin with: "tn NAME: ". NULL: "tn: ". The name is not copied. */
void set_command_name(const char *name);
/* Both end the program: with EXIT_ERROR, with EXIT_USAGE. */
void fail(const char *format, ...) PRINTF_LIKE(1, 2);
void usage_error(const char *format, ...) PRINTF_LIKE(1, 2);
void warn(const char *format, ...) PRINTF_LIKE(1, 2);
/* The signal that asked tn train to stop, or 0. A signal handler may call ask_to_stop. */
int  stop_signal(void);
void ask_to_stop(int signal);
/* Ends the program if a signal asked for it: between the parts of a start and within long ones, as long as there is nothing to
   save. */
void end_if_stopped(void);
/* Says on a terminal what takes a while now, in a line that the next one replaces, as do messages; NULL clears the line. */
void show_stage(const char *format, ...) PRINTF_LIKE(1, 2);
/* Calls fail if the context has an error; `what` names the operation or the file. */
void check_ctx(const tn_ctx *ctx, const char *what);
/* Clears the context's error and returns its message, a new string, or NULL if the context had no error. */
char *taken_error(tn_ctx *ctx);
/* The numbers of a tensor, a new list; fails if they cannot be read. */
double *numbers_in(const tn_tensor *t);
/* For tn_desc.log: prints warnings. */
void show_log(void *user, tn_log_level level, const char *message);

/* Memory, or fail with its size. allocate returns zeroed memory; resize is realloc for count > 0. */
void *allocate(size_t count, size_t bytes);
void *resize(void *p, size_t count, size_t bytes);
char *copy_text(const char *text);
/* A new string, formatted as by printf. */
char *format_text(const char *format, ...) PRINTF_LIKE(1, 2);
bool  ends_with(const char *text, const char *end);
/* Seconds of a monotonic clock. */
double now(void);

/* The nearest of the words that were considered for a word that does not exist; NULL if none is near. */
typedef struct suggestion { const char *word; int distance; } suggestion;
void consider_word(suggestion *best, const char *written, const char *word);

/* A string that grows. */
typedef struct buffer { char *data; size_t bytes, capacity; } buffer;
void buffer_add(buffer *b, const void *src, size_t bytes);
void buffer_print(buffer *b, const char *format, ...) PRINTF_LIKE(2, 3);
void buffer_print_list(buffer *b, const char *format, va_list list);
void buffer_show(buffer *b, const char *format, ...) PRINTF_LIKE(2, 3);        /* where texts become printable, as by print */

/* ---- UTF-8 ---------------------------------------------------------------------------- util.c */

/* The number of bytes of the character at `text`; 0: invalid UTF-8 */
int utf8_length(const char *text, size_t bytes);
/* The number of bytes that are not valid UTF-8, and the position of the first. */
int64_t utf8_errors(const char *text, size_t bytes, size_t *first);

/* ---- files --------------------------------------------------------------------------- files.c */

/* Where a path comes from. BY_NAME: it is a fixed name in a folder, whose files may be anybody's: only a regular file is read,
   and what is written replaces a link. BY_USER: it is on the command line: a link is followed, and a pipe is used. */
typedef enum path_kind { BY_NAME, BY_USER } path_kind;

typedef struct file_list { const char **path; int64_t count; } file_list;

/* Opens a file for reading, or fails: a device must be a terminal or the standard input. */
FILE *open_input(const char *path, path_kind kind);
/* All bytes of a file ("-": the standard input), followed by a zero. */
char *read_file(const char *path, path_kind kind, size_t *bytes);
/* Whether the bytes of a file come from a pipe or a terminal at this moment. A signal handler may call it. */
bool  waits_for_input(void);
/* Opens a run's log to read it and to append to it, or fails: it is never a link, nor a device. */
FILE *open_log(const char *path);
/* Fails if `out`, the value of --NAME, is a file that the command reads; what: what `input` is. Either may be NULL. */
void  check_not_input(const char *name, const char *out, const char *what, const char *input);
void  check_not_inputs(const char *name, const char *out, const char *what, const file_list *inputs);
bool  is_folder(const char *path);
bool  is_file(const char *path);
void  make_folder(const char *path);                  /* or it exists already         */
bool  sync_file(int fd);                              /* false: errno has the reason  */

/* A file that appears whole or not at all, written by the library's tn_writer. */
typedef struct atomic_file {
    tn_writer *file;
    char    *why;                                     /* "cannot write PATH: ...", the first failure, or NULL */
} atomic_file;
bool atomic_open(atomic_file *f, const char *path, path_kind kind);
bool atomic_store(void *file, const void *src, size_t bytes);
/* Returns false on failure, also of an earlier call. Then the new file is removed and the old one remains, unless only syncing
   the folder failed: then the new file is in place. */
bool atomic_commit(atomic_file *f);
/* Writes a whole file of a folder (BY_NAME), or fails. */
void write_file(const char *path, const void *src, size_t bytes);
/* Writes a file by a function of the library. Returns NULL, or a message with the path, a new string. */
typedef tn_status (*writer_fn)(void *user, tn_sink sink);
char *write_file_with(const char *path, path_kind kind, writer_fn writer, void *user, tn_ctx *ctx);
/* draw.c: what writes a tn_image to a picture of this name, the value of --out; fails if the name does not end as one. */
writer_fn picture_writer(const char *path);
/* Fails if the disk of a folder has fewer bytes free than `name` needs. */
void check_space(const char *name, const char *folder, double bytes);
/* Begins a .npy file of at most 4 axes; type: "f4", "f8", "i4" or "i8". The numbers follow in this machine's order of bytes. */
bool store_npy_header(atomic_file *f, const char *type, int rank, const int64_t *shape);

/* ---- JSON -------------------------------------------------------------------------------- json.c */

void json_quote(buffer *b, const char *text, size_t bytes);       /* with quotes; invalid UTF-8 becomes U+FFFD */
/* The raw value of `key` in a line that is a JSON object, up to *to; NULL if there is none. *bad: why the line is not an
   object, which it is up to *to, or NULL. */
const char *json_find(const char *line, const char *end, const char *key, const char **to, const char **bad);
/* Decodes the string in from..to, quotes included; false if it is not one. */
bool   json_unquote(const char *from, const char *to, buffer *out);
double json_number(const char *line, const char *end, const char *key);     /* NaN: there is none */
bool   json_true(const char *line, const char *end, const char *key);       /* whether it is there, and true */

/* ---- a run's log ------------------------------------------------------------------------- journal.c */

/* What a run has reached, from its log; NaN: unknown. Losses are nats per token of held-out text: the last one, at the end that
   of all of it; the lowest one on the way, of windows; and those of n-grams. */
typedef struct reached { double held, step, best, best_step, trigram, fivegram, tokens, seconds; } reached;
/* at: the step whose held-out loss is meant; NaN: the last one. */
reached read_reached(const char *folder, double at);

/* ---- options -------------------------------------------------------------------------------- options.c */

typedef enum option_kind {
    OPTION_FLAG,                    /* bool                                  */
    OPTION_COUNT,                   /* int64_t: 12, 4k, 500K, 6M, 1e6        */
    OPTION_NUMBER,                  /* double                                */
    OPTION_TEXT,                    /* const char *                          */
    OPTION_FILES,                   /* file_list: may be given several times */
    OPTION_CHOICE,                  /* int: index of the word in `hint`, "softmax|squared|..."    */
    OPTION_CHOICES,                 /* cycle: such indices, separated by commas                   */
    OPTION_COUNTS                   /* cycle: such counts                                         */
} option_kind;

/* What blocks use in turn. */
typedef struct cycle { int64_t count, value[TN_MAX_CYCLE]; } cycle;

/* The path is copied. */
void add_file(file_list *files, const char *path);

typedef struct option {
    const char *name;               /* without dashes; also the key in config files          */
    option_kind kind;
    void       *value;
    const char *hint, *help;        /* the hint of a choice lists its words                  */
    double      low, high;          /* bounds of a number                                    */
    int         saved;              /* in a run's config.txt: NEVER, ALWAYS or IF_GIVEN      */
    bool        given;
    int         automatic;          /* a number that may be `auto`: 0, AUTO or AUTO_SINCE_2  */
} option;

enum { NEVER = 0, ALWAYS, IF_GIVEN };
enum { AUTO = 1, AUTO_SINCE_2 };    /* AUTO: config files before CONFIG_MARK wrote 0 for `auto`; later ones: 0 was 0 there */

/* The value of a number that is `auto`, outside the bounds of those that can be given. */
#define AUTO_COUNT  0
#define AUTO_COUNT_FROM_0 (-1)          /* of one that can be 0 */
#define AUTO_NUMBER (-1.0)

/* Rows of a table of options. */
#define ROW(name, kind, value, hint, help, low, high, saved, automatic) \
    {name, OPTION_##kind, value, hint, help, low, high, saved, false, automatic}
#define FLAG_ROW(name, value, help, saved)                   ROW(name, FLAG, value, "", help, 0, 0, saved, 0)
#define COUNT_ROW(name, value, help, low, high, saved)       ROW(name, COUNT, value, "N", help, low, high, saved, 0)
#define NUMBER_ROW(name, value, help, low, high, saved)      ROW(name, NUMBER, value, "X", help, low, high, saved, 0)
#define AUTO_COUNT_ROW(name, value, help, low, high, saved)  ROW(name, COUNT, value, "N", help, low, high, saved, AUTO)
#define AUTO_NUMBER_ROW(name, value, help, low, high, saved) ROW(name, NUMBER, value, "X", help, low, high, saved, AUTO)
#define TEXT_ROW(name, value, hint, help, saved)             ROW(name, TEXT, value, hint, help, 0, 0, saved, 0)
#define FILES_ROW(name, value, help, saved)                  ROW(name, FILES, value, "FILE", help, 0, 0, saved, 0)
#define WORDS_ROW(name, value, words, help, saved)           ROW(name, CHOICE, value, words, help, 0, 0, saved, 0)
#define WORD_LIST_ROW(name, value, words, help, saved)       ROW(name, CHOICES, value, words, help, 0, 0, saved, 0)
#define COUNT_LIST_ROW(name, value, help, low, high, saved) \
    ROW(name, COUNTS, value, "N[,N...]", help, low, high, saved, 0)

/* A heading, before the option `first`. The list ends with {NULL, NULL}. */
typedef struct option_group { const char *first, *title; } option_group;

/* A subcommand as its help, its manual page and its completions show it. */
typedef struct usage {
    const char *command;            /* "train", "tokenizer train"                               */
    const char *arguments;          /* the usage line after the command's name                  */
    const char *summary;            /* half a line, for the list of commands                    */
    const char *about, *more;       /* the first paragraph of the help; the last one, or NULL   */
    option     *options;
    int         count;
    int         most_arguments;     /* that are not options: files, all of them                 */
    const option_group *groups;     /* headings of the help, in the order of the options; or NULL */
} usage;

extern const usage tokenizer_train_usage, tokenizer_encode_usage, tokenizer_decode_usage, tokenizer_compare_usage,
                   import_usage, export_usage, synthetic_usage, clean_usage, train_usage, generate_usage, eval_usage, info_usage,
                   decompose_usage, draw_usage, einsum_usage, cache_usage, circuits_usage, look_usage, demo_usage, prove_usage,
                   merge_usage, audit_usage, compress_usage;

/* Reads the command line. If an option is given twice, the last one counts. Arguments that are not options are moved to the
   front of argv, and counted. --help prints the help and ends the program. */
int  read_options(const usage *u, int argc, char **argv);
/* The same, where every argument is one more file of --data. */
void read_options_and_files(const usage *u, int argc, char **argv, file_list *data);
void print_help(const usage *u);
/* Prints words from column `at` on, folded at column 80; the next lines begin at column `indent`. */
void print_folded(const char *words, int at, int indent);
/* Reads a number as options have it: k, M or G may follow, small or capital. Returns false if a text is not one. */
bool number_from_text(const char *text, double *v);
/* The help of an option with its default, a new string. */
char *option_help(const option *o);
/* The shortest decimal that reads back as v. */
const char *decimal_text(double v, char *text, size_t bytes);
/* Reads `key = value` lines and # comments; a value may be in quotes, with JSON's escapes. Options that were given on the
   command line keep their values. Without CONFIG_MARK as its first line the file may be of an earlier version, which wrote 0
   for `auto`, and a 0 is read as that. */
void read_config(const usage *u, const char *text, size_t bytes, const char *name);
#define CONFIG_MARK "# tn config 2"
/* Writes the saved options in the same form, after CONFIG_MARK. */
void write_config(const usage *u, buffer *out);
option *find_option(const usage *u, const char *name);
/* Fails if an option is given that is of other tasks than `task`, a bit. The list ends with {NULL, 0}. words: the tasks'
   names, those of the lowest bit first, such as "heads|pairs". */
typedef struct limited_option { const char *name; int tasks; } limited_option;
void check_limited(const usage *u, const limited_option *list, int task, const char *words);
/* The heading above an option, or NULL. */
const char *group_title(const usage *u, const option *o);
/* The letter of an option's short form, or 0. It is the same in each subcommand that has the option. */
char    short_name(const char *name);
const char *choice_word(const char *hint, int place, char *word, size_t bytes);

/* ---- text ----------------------------------------------------------------------------------- text.c */

#define STORY_MARK "<|endoftext|>"

typedef enum split_kind { SPLIT_AUTO = 0, SPLIT_MARKS, SPLIT_BLANK, SPLIT_LINES } split_kind;
#define SPLIT_WORDS "auto|marks|blank|lines"

/* The next story of text[*at, bytes): its start and length; false at the end. Empty stories are skipped. */
bool next_story(const char *text, size_t bytes, split_kind split, size_t *at, size_t *start, size_t *length);
/* SPLIT_AUTO becomes marks if the text has any, otherwise blank lines. */
split_kind resolve_split(split_kind split, const char *text, size_t bytes);
/* The first place of `what` in a text, or NULL. */
const char *find_text(const char *text, size_t bytes, const char *what);
/* Joins files to one text. Fails if one is empty, warns of invalid UTF-8. */
char *read_texts(const file_list *files, size_t *bytes);
/* What a part of the text is called, one or several: "story", "stories". */
const char *split_name(split_kind split, bool several);
/* Where the last `share` of a text begins: not inside a character or a mark. */
size_t held_out_start(const char *text, size_t bytes, double share);

/* ---- tokens in memory ----------------------------------------------------------------------- tokens.c */

/* Tokens of 32 bits, or the parts of token shards, as their files have them: a file is mapped, so that the system reads what
   is used and forgets it when memory is short. */
typedef struct token_part { void *memory; size_t bytes; int64_t first; int width; bool mapped; } token_part;
typedef struct token_store { int32_t *ids; token_part *parts; int64_t part_count, count; } token_store;
/* Appends the `count` tokens of a shard, whose header was checked. */
void    add_shard(token_store *t, const char *path, int64_t count);
void    copy_tokens(const token_store *t, int64_t first, int64_t n, int32_t *out);
int32_t token_at(const token_store *t, int64_t i);
void    free_tokens(token_store *t);

/* ---- tokens --------------------------------------------------------------------------------- data.c */

/* Tokens to train on, and held-out tokens. */
typedef struct corpus {
    token_store train;                  /* the first train_count of them                         */
    int32_t *held;
    int64_t  train_count, held_count;
    double   train_bytes, held_bytes;   /* of text; 0: unknown, as for a shard                  */
    double   held_unknown;              /* bytes that the [UNK] of the held-out part replace     */
    uint64_t hash;                      /* of all tokens                                         */
} corpus;

/* A context with all defaults, which prints warnings. */
tn_ctx *new_context(void);
/* The tokenizer in a file; path NULL: the tokenizer of bytes. */
tn_tokenizer *open_tokenizer(tn_ctx *ctx, const char *path);
void save_tokenizer(const char *path, path_kind kind, tn_tokenizer *t, tn_ctx *ctx);
/* A list of tokens, and the spans of those that were added to it last. */
typedef struct token_list { int32_t *ids; tn_span *spans; int64_t count, capacity, span_capacity; } token_list;
/* Appends the tokens of a text, with their spans if these are wanted; returns their number. Fails with the library's message. */
int64_t add_tokens(token_list *l, tn_ctx *ctx, const tn_tokenizer *t, const char *text, size_t bytes, tn_bos bos, bool spans);
/* The tokens of a text, with [BOS] before each story (SPLIT_AUTO: only marks separate stories); returns their number.
   *unknown_bytes: bytes that [UNK] replaces. */
int64_t encode_text(tn_ctx *ctx, const tn_tokenizer *t, const char *text, size_t bytes, split_kind split, int32_t **ids,
                    double *text_bytes, double *unknown_bytes);
/* Writes token ids in llm.c's format, or fails. */
void    write_shard(const char *path, tn_ctx *ctx, const int32_t *ids, int64_t count, int64_t vocab);
/* Fails if the file does not exist, or cannot be read twice. */
bool    is_shard(const char *path);
void    load_shards(corpus *c, tn_ctx *ctx, int64_t vocab, const file_list *files, double share);
/* One or the other: all files must be of one kind. `name` is the option's. */
void    load_files(corpus *c, tn_ctx *ctx, const tn_tokenizer *t, int64_t vocab, const file_list *files, const char *name,
                   split_kind split, double share);
/* Whether the files are token shards; fails if some are and some are not. `name` is the option's. */
bool    are_shards(const file_list *files, const char *name);
/* Replaces the held-out part of c by all of `held`, which is emptied. */
void    replace_held_out(corpus *c, corpus *held);
void    free_corpus(corpus *c);

/* ---- n-grams ---------------------------------------------------------------------------------- ngram.c */

enum { NGRAM_MAX = 5 };
/* nats per predicted token of held[1..], by interpolated modified Kneser-Ney models of order 1..NGRAM_MAX of `train`;
   false: out of memory. window: held is texts of so many tokens, and the first of each is not predicted; 0: one text. stopped: NULL, or says whether to end early, and then nats is not complete */
bool ngram_losses(const int32_t *train, int64_t train_count, const int32_t *held, int64_t held_count, int64_t window,
                  int64_t vocab, double nats[NGRAM_MAX + 1], int (*stopped)(void));

/* ---- runs and models ---------------------------------------------------------------------------- run.c

   A run's folder: config.txt (all settings, `key = value`), config.json (the model), tokenizer.json (absent: bytes),
   log.jsonl, loss.png (loss.svg without stb_image_write), step-NNNNNNNN.safetensors (the last checkpoints), with --keep-best
   best.safetensors (the weights with the lowest held-out loss), with --weights-every weights-NNNNNNNN.safetensors (the
   weights of some steps), and when the run is done model.safetensors. */

#define RUN_FORMAT "1"
#ifdef HAVE_STB_IMAGE_WRITE
#define PICTURE_ENDING ".png"
#else
#define PICTURE_ENDING ".svg"
#endif
#define PICTURE "loss" PICTURE_ENDING
#define WEIGHTS_FILE "weights-%08lld.safetensors"

enum { START_TOKENS = 64, STOP_TOKENS = 32 };

typedef struct model {
    tn_ctx             *ctx;
    tn_params          *params;
    tn_transformer_desc desc;
    tn_transformer      net;
    tn_tokenizer       *tokenizer;
    int32_t             start[START_TOKENS];  /* tokens to begin with, if the text had no marks: then there was one [BOS], at
                                                 its start, and the model did not learn what follows it            */
    int                 start_count;
    bool                imported;             /* from Hugging Face: the model may have more ids than the tokenizer */
    bool                plain_prompt;         /* nothing is put before a prompt                                    */
    int32_t             stop[STOP_TOKENS];    /* further tokens that end a text                                    */
    int                 stop_count;
} model;

char *join_path(const char *folder, const char *file);
char *folder_of(const char *path);                    /* "./" if the path has no slash */
/* The steps of the checkpoints in a folder, ascending; returns their number. */
int64_t list_checkpoints(const char *folder, int64_t **steps);
/* Fails if a folder that shall be written has anything in it. name: the option */
void    check_new_folder(const char *name, const char *folder);
void    remove_partial_files(const char *folder);
char   *checkpoint_path(const char *folder, int64_t step);
/* The newest checkpoint of a run that is not damaged, a new string, and its step. NULL if there are none; fails if all are
   damaged. */
char   *newest_checkpoint(const char *folder, int64_t *step);
/* The weights that a path means: the file itself, which must not be damaged; of a folder the finished model, otherwise the
   newest checkpoint that is not damaged. */
char   *find_weights(const char *path);
/* That a file has fewer numbers than a model that it shall fill, a new string, or NULL: a config can ask for more memory than
   there is. shared: how many parts of a parameter a number of the file may become. */
char   *size_refusal(const tn_transformer_desc *desc, const tn_safetensors *st, const char *path, int64_t shared);
void    check_size(const tn_transformer_desc *desc, const tn_safetensors *st, const char *path);    /* fails if there is one */
/* Opens a model for use, not for training. path: a run's folder, a checkpoint, or weights with a config.json beside them.
   tokenizer: NULL for the one beside the weights; m->tokenizer is NULL if there is none that fits. *weights: the file that
   was read; NULL is allowed. */
void open_model(model *m, const char *path, const char *tokenizer, const tn_desc *desc, char **weights);
/* The same in a context that exists, for several models in one. */
void open_model_in(tn_ctx *ctx, model *m, const char *path, const char *tokenizer, char **weights);
/* The embeddings of tokens at position 0 over the denominator of the first norm: [count,dim], owned. */
tn_tensor *token_vectors(tn_ctx *ctx, const tn_transformer *net, const int32_t *ids, int64_t count);
/* 1 over a typical denominator of the last norm, by which what comes before it becomes nats: the median over 64 tokens from all
   of the vocabulary, each alone; 1 without such a norm. */
double typical_unit_of(tn_ctx *ctx, const tn_transformer *net);
/* Rounds the matrices of a model and reports the error; a word of WEIGHTS_WORDS, by its number. */
#define WEIGHTS_WORDS "f32|bf16|int8"
void compact_model(model *m, int weights);
void close_model(model *m);
/* The text of config.json, which is also a note of each checkpoint; a new string. */
char *config_json(const model *m);
/* Fails if the sizes of the tokenizer and of the model differ. */
void check_vocabulary(const tn_tokenizer *t, const char *name, int64_t vocab);

/* ---- models of Hugging Face's transformers ---------------------------------------------------------- foreign.c */

/* The model_type of a folder's config.json, or bilinear-decomposition or modded-nanogpt, which have none, a new string; NULL: it
   is missing, or one of this library's own. */
char *foreign_type(const char *folder);
/* Reads the model of a folder: weights, tokens that end a text, and its tokenizer. *file: that of the weights, a new string.
   Returns NULL, or why it has no counterpart here, a new string; then *file is NULL. m->ctx is `ctx` in either case.
   bad_tokenizer: NULL: its tokenizer is not read; else *bad_tokenizer is why it cannot be used, a new string, or NULL.
   tokenizer: a file; NULL: the one of the folder. */
char *read_foreign(tn_ctx *ctx, model *m, const char *folder, const char *tokenizer, char **file, char **bad_tokenizer);
/* What a file is, if it is of another format than those that are read (tn_foreign_format); else NULL. */
const char *file_format(const char *path);
/* Names of such a type, and their number. */
const tn_name_map *foreign_names(const char *type, int64_t *lines);
/* Whether a tokenizer.json puts a token before a text. */
bool  puts_token(const char *path);

/* ---- arrays and tensors of files ------------------------------------------------------------------- arrays.c */

/* The file that a path means, a new string: itself, or the weights of a run. Fails if there is neither. */
char *array_file(const char *path);
/* check_not_input for a model: a run, or a file and what beside it describes it. */
void  check_not_model(const char *name, const char *out, const char *what, const char *from);
bool  is_npy(const char *path);
/* Reads the array of a .npy file or a tensor of a safetensors file. name: the tensor's, or NULL for the only one. how: "--name
   NAME", how a name is given. *found: what it is called, a new string, of a .npy file the file without folders and ending;
   NULL is allowed. flat: as [elements], which has any number of axes in the file. */
tn_tensor *read_array(tn_ctx *ctx, const char *path, const char *name, const char *how, bool flat, char **found);
/* Fails: there is no tensor `name` + `end` (of rank 3, unless end is ""), and proposes the nearest. what: what it would be. */
void no_such_tensor(const tn_safetensors *file, const char *path, const char *name, const char *end, const char *what);

/* ---- the loss of a model on tokens ------------------------------------------------------------------ score.c */

typedef struct scoring {
    const model   *m;
    const char    *name;                /* what the tokens are, for messages                         */
    const int32_t *ids;                 /* [count], count >= 2: all but the first are predicted      */
    int64_t        count, batch;        /* batch: at most so many windows per forward pass           */
    int64_t        context;             /* length of a window; 0: the model's context                */
    double        *nats;                /* NULL, or [count-1]: gets -log p of each predicted token   */
    void (*logits)(void *user, const float *rows, int64_t first, int64_t count);    /* NULL, or gets the logits [count,vocab]
                                           of the predicted tokens first, first + 1, ...             */
    bool (*proceed)(void *user, int64_t done, int64_t count);   /* NULL, or called by whole_loss when `done` of `count`
                                           windows are evaluated; false ends it                   */
    void          *user;
} scoring;
/* nats per token over all predicted tokens; NaN if `proceed` ended it */
double  whole_loss(const scoring *s);
/* nats per token over about `tokens` tokens. They are those of m windows that are spread evenly: number i is window
   floor((2i + 1) count / (2m)) of the `count` windows of whole_loss, the same ones in each call. nats gets those alone. */
double  sampled_loss(const scoring *s, int64_t tokens);
/* Whether those windows are all that there are, so that sampled_loss is whole_loss. */
bool    samples_all(const scoring *s, int64_t tokens);
/* The loss by the length of the context, in windows that do not overlap: sum[i] and tokens[i] are of the tokens that follow
   i + 1 others in their window. Both have space for the model's context; returns the length of a window. */
int64_t loss_by_position(const scoring *s, double *sum, int64_t *tokens);
/* nats per token of the held-out part to nats per byte, or NaN if the bytes are unknown. Every byte that an [UNK] replaces
   costs ln 256. */
double  nats_per_byte(const corpus *c, double nats);
/* The same as ", N nats per byte", or "". */
const char *per_byte_text(const corpus *c, double nats, char *text, size_t bytes);

/* ---- backends ------------------------------------------------------------------------------------ run.c */

#define BACKEND_WORDS "cpu|reference|cuda"
/* Sets backend and device. A missing GPU is an error, the processor is not used instead. `place`: index in BACKEND_WORDS. */
void use_backend(tn_desc *desc, int place, int64_t device);
/* What the last bits of results depend on: the backend, and its device or SIMD level. */
const char *machine_name(const tn_ctx *ctx, char *text, size_t bytes);

/* ---- generating text ------------------------------------------------------------------------------- run.c */

typedef struct sampling {
    double   temperature, top_p;
    int64_t  top_k, length;             /* of all tokens, including the prompt's              */
    uint64_t seed;                      /* the same seed gives the same text                  */
    bool     no_stop;                   /* continue after [EOS] and [BOS]                     */
    const char *stop;                   /* end where the new text contains this; or NULL      */
    void   (*show)(void *user, const char *text, size_t bytes);    /* gets new text; or NULL  */
    void   (*chosen)(void *user, int32_t id, double logprob);      /* gets new tokens, with log p of the model; or NULL */
    void    *user;
} sampling;
/* The tokens that a text begins with, a new list: [BOS] and the prompt. If m->start_count > 0: the prompt alone, or one of
   m->start by the seed. Returns their number, 0 if there is neither a prompt nor a [BOS]. */
int64_t prompt_tokens(const model *m, const char *prompt, uint64_t seed, int32_t **ids);
/* Warns of the words of a prompt that become [UNK], which the model does not see. There must be a tokenizer. */
void    report_unknown(const model *m, const char *prompt);
/* The ids in a text, separated by spaces or commas, a new list; returns their number. -1: *why says what is wrong, a new
   string, and *status is EXIT_USAGE for what is no number, EXIT_ERROR for one that is not in the vocabulary. */
int64_t listed_ids(const model *m, const char *text, int32_t **ids, char **why, int *status);
/* The tokens of a text that is analysed, a new list: those of a prompt; without a tokenizer the ids that it lists. Fails if
   there are none, or more than `length` (AUTO_COUNT: the model's context). name: "the text", for messages */
int64_t text_ids(const model *m, const char *text, int64_t length, const char *name, int32_t **ids);
/* Continues ids[0..count), which has space for s->length ids; returns the new number. Text up to s->stop is shown, and no
   more; without a tokenizer there is no text. */
int64_t generate_tokens(const model *m, int32_t *ids, int64_t count, const sampling *s);
/* The text of tokens, a new string. */
char   *decode_tokens(const tn_tokenizer *t, const int32_t *ids, int64_t count, size_t *bytes);

/* A token as a table or a picture can show it, a new string: of byte-level BPE, which needs no [UNK], its bytes, where a
   space is a dot. */
char   *token_name(const tn_tokenizer *t, int64_t id);
/* Fails if a token that both tokenizers have differs. path, other: what the message calls the two. */
void    check_same_tokens(const tn_tokenizer *t, const char *path, const tn_tokenizer *its, const char *other);
/* The token of a text: its name in the tokenizer, or what it is encoded as, " the" for example; -1: not one token. */
int64_t token_of(const tn_tokenizer *t, const char *text);
/* The token that a user gives: its text, else its number, also as #7, which is never the text "7". t may be NULL. Fails,
   and proposes the nearest token. */
int64_t find_token(const tn_tokenizer *t, int64_t vocab, const char *text);

/* ---- subcommands ------------------------------------------------------------------------------- */

int tokenizer_train_main(int argc, char **argv);
int tokenizer_encode_main(int argc, char **argv);
int tokenizer_decode_main(int argc, char **argv);
int tokenizer_compare_main(int argc, char **argv);
int synthetic_main(int argc, char **argv);
int clean_main(int argc, char **argv);
int train_main(int argc, char **argv);
int generate_main(int argc, char **argv);
int eval_main(int argc, char **argv);
int info_main(int argc, char **argv);
int cache_main(int argc, char **argv);
int circuits_main(int argc, char **argv);
int decompose_main(int argc, char **argv);
int draw_main(int argc, char **argv);
int look_main(int argc, char **argv);
int demo_main(int argc, char **argv);
int prove_main(int argc, char **argv);
int merge_main(int argc, char **argv);
int audit_main(int argc, char **argv);
int compress_main(int argc, char **argv);
int einsum_main(int argc, char **argv);
int import_main(int argc, char **argv);
int export_main(int argc, char **argv);

/* ---- the manual page and completions ---------------------------------------------- manual.c, completions.c */

typedef struct command { const struct usage *usage; int (*run)(int argc, char **argv); } command;

void print_manual(const command *commands, int count);
/* shell: "bash", "zsh" or "fish"; false if it is another one */
bool print_completions(const char *shell, const command *commands, int count);

#endif
