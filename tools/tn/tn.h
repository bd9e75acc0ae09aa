/* tn.h - what the files of the command `tn` share

   A file calls only files of the rows above it. Each function is declared under the name of the file that defines it.

       util.c  ngram.c  order.h                     messages, memory, strings, UTF-8; the n-gram baseline; the order of the data
       files.c  json.c  signals.c  speed.c          files that appear whole or not at all; JSON lines; SIGINT; peak speed
       options.c  text.c                            command line, config files and help from one table; stories, texts
       data.c                                       tokens: of texts and of shards
       run.c                                        a run's folder, models from it, generating text
       journal.c  settings.c                        log, picture and progress line; the options of `tn train`
       checkpoint.c                                 saving and reading checkpoints
       step.c                                       one training step; what happens when it fails
       heldout.c                                    the held-out loss, samples
       begin.c                                      a run begins, or resumes
       tokenizer.c synthetic.c clean.c train.c generate.c info.c      one subcommand each
       tn.c                                         main: finds the subcommand
       library.c                                    the implementation of tensornet.h

   What only the files of `tn train` share is in train.h. Memory that is needed until the end of the program is not freed. */
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

enum { EXIT_ERROR = 1,              /* a file, the memory, the data: the world failed */
       EXIT_USAGE = 2,                /* wrong use: the command line                    */
       PATH_ROOM = 4096 };

/* ---- messages, to the standard error: "tn: ..." ------------------------------------- util.c */

/* Both end the program: with EXIT_ERROR, with EXIT_USAGE. */
void fail(const char *format, ...) PRINTF_LIKE(1, 2);
void usage_error(const char *format, ...) PRINTF_LIKE(1, 2);
void warn(const char *format, ...) PRINTF_LIKE(1, 2);
/* fail, if the context holds an error; `what` was being done */
void check_ctx(const tn_ctx *ctx, const char *what);
/* for tn_desc.log: warnings are shown */
void show_log(void *user, tn_log_level level, const char *message);

/* Memory or the end of the program. */
void *need_memory(void *p);
void *allocate(size_t count, size_t bytes);
char *copy_text(const char *text);
/* A new string, as printf has it. */
char *format_text(const char *format, ...) PRINTF_LIKE(1, 2);
/* Seconds of a clock that only goes forward. */
double now(void);

/* A string that grows. */
typedef struct buffer { char *data; size_t bytes, room; } buffer;
void buffer_add(buffer *b, const void *src, size_t bytes);
void buffer_print(buffer *b, const char *format, ...) PRINTF_LIKE(2, 3);

/* ---- UTF-8 ---------------------------------------------------------------------------- util.c */

/* How many bytes the character at text takes; 0: it is no UTF-8 */
int utf8_length(const char *text, size_t bytes);
/* Bytes that are no UTF-8, and where the first is. */
int64_t utf8_errors(const char *text, size_t bytes, size_t *first);

/* ---- files --------------------------------------------------------------------------- files.c */

/* All bytes of a file ("-": the standard input) with a zero after them. */
char *read_file(const char *path, size_t *bytes);
bool  is_folder(const char *path);
bool  is_file(const char *path);
void  make_folder(const char *path);                  /* that it exists already is fine */
bool  sync_file(int fd);                              /* to the disk; false: errno says why */

/* A file that appears whole or not at all: PATH.tmp, fsync, rename, fsync of the folder. Nothing else has PATH.tmp: what a
   killed program left there is overwritten. */
typedef struct atomic_file {
    char   path[PATH_ROOM], tmp[PATH_ROOM + 8];
    int    fd, error;                                 /* errno of the first failure, or 0 */
    bool   in_place;                                  /* the new file has its name        */
    size_t used;
    char   bytes[1 << 16];
} atomic_file;
bool atomic_open(atomic_file *f, const char *path);
bool atomic_store(void *file, const void *src, size_t bytes);    /* a tn_store_fn */
/* Returns false and sets errno on failure. The old file then stays and the new one is removed, unless only syncing the
   folder failed: then the new file is in place. */
bool atomic_commit(atomic_file *f);
/* "cannot write PATH: WHY", or what to say if only syncing the folder failed: a new string. */
char *write_failure(const atomic_file *f, const char *path, const char *why);
void atomic_abandon(atomic_file *f);
/* All at once; fails with a message. */
void write_file(const char *path, const void *src, size_t bytes);
/* What a writer of the library writes. NULL, or a message that says what failed, with the path: a new string. */
typedef tn_status (*writer_fn)(void *user, tn_sink sink);
char *write_file_with(const char *path, writer_fn writer, void *user, const tn_ctx *ctx);

/* ---- JSON -------------------------------------------------------------------------------- json.c */

void json_quote(buffer *b, const char *text, size_t bytes);       /* with its quotes; what is not UTF-8 becomes U+FFFD */
/* The value of `key` in the object that a line holds, raw, as from..to; NULL: there is none. *bad: what is no JSON object.
   */
const char *json_find(const char *line, const char *end, const char *key, const char **to, const char **bad);
/* The string whose quote `from` points to; false where it is none. */
bool   json_unquote(const char *from, const char *to, buffer *out);
double json_number(const char *line, const char *end, const char *key);     /* NaN: none */

/* ---- options -------------------------------------------------------------------------------- options.c */

typedef enum option_kind {
    OPTION_FLAG,                    /* bool                                  */
    OPTION_COUNT,                   /* int64_t: 12, 4k, 6M, 1e6              */
    OPTION_NUMBER,                  /* double                                */
    OPTION_TEXT,                    /* const char *                          */
    OPTION_FILES,                   /* file_list: may be given several times */
    OPTION_CHOICE                   /* int: the place of the word in `hint`, "softmax|squared|..." */
} option_kind;

typedef struct file_list { const char **path; int64_t count; } file_list;

/* The path is copied. */
void add_file(file_list *files, const char *path);

typedef struct option {
    const char *name;               /* without the dashes; as a key of a config file, too */
    option_kind kind;
    void       *value;
    const char *hint, *help;        /* a hint of a choice lists its words                 */
    double      low, high;          /* of numbers                                         */
    int         saved;              /* in a run's config: one of the three                */
    bool        given;
} option;

enum { NEVER = 0, ALWAYS, IF_GIVEN };

/* Rows of a table of options. */
#define FLAG_ROW(name, value, help, saved)             {name, OPTION_FLAG, value, "", help, 0, 0, saved, false}
#define COUNT_ROW(name, value, help, low, high, saved) {name, OPTION_COUNT, value, "N", help, low, high, saved, false}
#define NUMBER_ROW(name, value, help, low, high, saved) {name, OPTION_NUMBER, value, "X", help, low, high, saved, false}
#define TEXT_ROW(name, value, hint, help, saved)       {name, OPTION_TEXT, value, hint, help, 0, 0, saved, false}
#define FILES_ROW(name, value, help, saved)            {name, OPTION_FILES, value, "FILE", help, 0, 0, saved, false}
#define WORDS_ROW(name, value, words, help, saved)     {name, OPTION_CHOICE, value, words, help, 0, 0, saved, false}

typedef struct usage {
    const char *command, *arguments, *about, *more;
    option     *options;
    int         count;
} usage;

/* Reads the command line; of an option that is given twice the last counts. What is no option is an argument: those are
   moved to the front of argv, and counted. --help prints and ends. */
int  read_options(const usage *u, int argc, char **argv, int most_arguments);
/* Every argument is one more file of --data. */
void read_options_and_files(const usage *u, int argc, char **argv, file_list *data);
/* `key = value` lines, '#' comments; a text may stand in quotes, with JSON's escapes. Options that are given already
   stay. */
void read_config(const usage *u, const char *text, size_t bytes, const char *name);
/* The saved options in the same form. */
void write_config(const usage *u, buffer *out);
option *find_option(const usage *u, const char *name);
const char *choice_word(const char *hint, int place, char *word, size_t bytes);

/* ---- text ----------------------------------------------------------------------------------- text.c */

#define STORY_MARK "<|endoftext|>"

typedef enum split_kind { SPLIT_AUTO = 0, SPLIT_MARKS, SPLIT_BLANK, SPLIT_LINES } split_kind;
#define SPLIT_WORDS "auto|marks|blank|lines"

/* The next story of text[*at, bytes): its place and length; false at the end. Empty ones are passed over. */
bool next_story(const char *text, size_t bytes, split_kind split, size_t *at, size_t *start, size_t *length);
/* SPLIT_AUTO becomes marks where there are any, else blank lines. */
split_kind resolve_split(split_kind split, const char *text, size_t bytes);
/* Several files as one text; empty ones and ones with bad bytes are spoken of. */
char *read_texts(const file_list *files, size_t *bytes);
/* The word for what was split, and for several of it: "story", "stories". */
const char *split_name(split_kind split, bool several);
/* Where the last `share` of a text begins: at a character, and not inside of a mark. */
size_t held_out_start(const char *text, size_t bytes, double share);

/* ---- tokens --------------------------------------------------------------------------------- data.c */

/* And what part of them is never trained on. */
typedef struct corpus {
    int32_t *train, *held;
    int64_t  train_count, held_count;
    double   train_bytes, held_bytes;   /* of text; 0: not known (a shard does not tell)        */
    double   held_unknown;              /* bytes that the [UNK] of the held-out part hide        */
    uint64_t hash;                      /* of all tokens                                         */
} corpus;

/* The tokenizer that a file holds; NULL: bytes. */
tn_tokenizer *open_tokenizer(tn_ctx *ctx, const char *path);
void save_tokenizer(const char *path, tn_tokenizer *t, tn_ctx *ctx);
/* Tokens of one text, story by story with [BOS] before each; returns the count. *unknown_bytes grows by what [UNK] hides. */
int64_t encode_text(const tn_tokenizer *t, const char *text, size_t bytes, int32_t **ids, double *text_bytes,
                    double *unknown_bytes);
/* Token ids as a file of llm.c's format: whole, or with a message not at all. */
void    write_shard(const char *path, tn_ctx *ctx, const int32_t *ids, int64_t count, int64_t vocab);
/* Fails where the file is not there, or none that can be read twice. */
bool    is_shard(const char *path);
void    load_text(corpus *c, const tn_tokenizer *t, const char *text, size_t bytes, double share);
void    load_shards(corpus *c, tn_ctx *ctx, int64_t vocab, const file_list *files, double share);
void    free_corpus(corpus *c);

/* ---- n-grams ---------------------------------------------------------------------------------- ngram.c */

enum { NGRAM_MAX = 5 };
/* nats per predicted token of held[1..] by interpolated modified Kneser-Ney models of order 1..NGRAM_MAX over train */
bool ngram_losses(const int32_t *train, int64_t train_count, const int32_t *held, int64_t held_count, int64_t vocab,
                  double nats[NGRAM_MAX + 1]);

/* ---- runs and models ---------------------------------------------------------------------------- run.c

   A run's folder: config.txt (all settings, `key = value`), config.json (the model), tokenizer.json (none: bytes),
   log.jsonl, loss.png (loss.ppm without stb_image_write), step-NNNNNNNN.safetensors (the last checkpoints), and when it is
   done model.safetensors. */

#define RUN_FORMAT "1"
#ifdef HAVE_STB_IMAGE_WRITE
#define PICTURE "loss.png"
#else
#define PICTURE "loss.ppm"
#endif

enum { START_TOKENS = 64 };

typedef struct model {
    tn_ctx             *ctx;
    tn_params          *params;
    tn_transformer_desc desc;
    tn_transformer      net;
    tn_tokenizer       *tokenizer;
    int32_t             start[START_TOKENS];  /* tokens to begin with, where the text had no marks: [BOS] stood in front of
                                               it once, and what follows it was not learnt                            */
    int                 start_count;
} model;

char *join_path(const char *folder, const char *file);
char *folder_of(const char *path);                    /* "./" where the path names none */
/* The steps of the checkpoints in a folder, ascending; returns how many. */
int64_t list_checkpoints(const char *folder, int64_t **steps);
void    remove_partial_files(const char *folder);
char   *checkpoint_path(const char *folder, int64_t step);
/* A model to use, not to train: `path` is a run's folder, a checkpoint, or weights with config.json beside them. tokenizer:
   NULL takes the one beside it. *weights is set to the file that was read. */
void open_model(model *m, const char *path, const char *tokenizer, const tn_desc *desc, char **weights);
void close_model(model *m);
/* A message if the tokenizer has another vocabulary than the model. */
void check_vocabulary(const tn_tokenizer *t, const char *name, int64_t vocab);

/* ---- where it computes --------------------------------------------------------------------------- run.c */

#define BACKEND_WORDS "cpu|reference|cuda"
/* Sets backend and device; a GPU that is not there is an error then, no reason for the cpu. `place` in BACKEND_WORDS. */
void use_backend(tn_desc *desc, int place, int64_t device);
/* What decides about the bits: backend, and where it computes on the host the SIMD level. */
const char *machine_name(const tn_ctx *ctx, char *text, size_t bytes);

/* ---- writing text with a model --------------------------------------------------------------------- run.c */

typedef struct sampling {
    double   temperature, top_p;
    int64_t  top_k, length;             /* of all tokens, the prompt's too                    */
    uint64_t seed;                      /* the same seed, the same text                       */
    bool     no_stop;                   /* goes on after [EOS] and [BOS]                      */
    void   (*show)(void *user, const char *text, size_t bytes);    /* new text, as it comes; or NULL */
    void    *user;
} sampling;
/* How a text begins: [BOS] and the prompt; with m->start_count the prompt alone, or one of m->begin by the seed. A new list;
   none where there is neither a prompt nor a [BOS]. */
int64_t prompt_tokens(const model *m, const char *prompt, uint64_t seed, int32_t **ids);
/* Continues ids[0..count), which has room for s->length; returns how many there are then. */
int64_t generate_tokens(const model *m, int32_t *ids, int64_t count, const sampling *s);
/* What tokens stand for, a new string. */
char   *decode_tokens(const tn_tokenizer *t, const int32_t *ids, int64_t count, size_t *bytes);

/* ---- subcommands ------------------------------------------------------------------------------- */

int tokenizer_main(int argc, char **argv);
int synthetic_main(int argc, char **argv);
int clean_main(int argc, char **argv);
int train_main(int argc, char **argv);
int generate_main(int argc, char **argv);
int info_main(int argc, char **argv);

#endif
