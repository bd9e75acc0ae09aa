#pragma once
#include "core/inner.h"
#include "layers/layers.h"
#include "io/io.h"

/* A file's name for a message; of a long one the end. */
typedef struct tni_file_name { char s[160]; } tni_file_name;

/* A string from a file or a caller, in quotes for a message: made printable, and a long one shortened. */
typedef struct tni_quoted { char s[72]; } tni_quoted;

typedef struct tni_reader {
    tn_ctx       *ctx;
    tn_fetch_fn   fetch;
    void         *user;
    uint64_t      bytes;                /* of the whole file     */
    void         *stream;               /* of a path: its FILE * */
    bool          is_text;              /* its errors say the line and the column */
    tni_file_name name;
} tni_reader;

#ifndef TN_NO_TRAINING
typedef struct tni_checksum {
    uint64_t lane[4], bytes;
    uint8_t  rest[32];                  /* the first bytes % 32 are not in the lanes yet */
} tni_checksum;
#endif /* TN_NO_TRAINING */

typedef struct tni_writer {
    tn_ctx       *ctx;
    tn_sink       sink;
    tn_status     status;
    uint64_t      at;
    struct tni_checksum *sum;           /* of all bytes so far, or NULL                 */
    void         *stream;               /* of a path: its FILE *                        */
    char         *temporary;            /* and its name until it is complete            */
    tni_file_name name;
} tni_writer;

typedef enum tni_number_kind { TNI_OTHER = 0, TNI_FLOAT, TNI_BFLOAT, TNI_SIGNED, TNI_UNSIGNED, TNI_BOOL } tni_number_kind;
typedef struct tni_number { tni_number_kind kind; unsigned bits; bool big_endian; } tni_number;

#define TNI_CHUNK 65536                  /* elements per copy between a file and the device */

typedef struct tni_scan {
    const tni_reader *file;
    uint64_t          start;            /* the text's first byte in the file */
    char             *text;
    size_t            at, bytes;
    tn_status         status;
} tni_scan;

typedef struct tni_list { void *items; size_t count, room, each; } tni_list;

static inline void *tni_list_at(const tni_list *l, size_t i) { return (char *)l->items + i * l->each; }

typedef bool (*tni_before_fn)(const void *a, const void *b);
typedef bool (*tni_queue_fn)(const void *user, const void *a, const void *b);

#define TNI_SAFETENSORS_HEADER 100000000u

struct tn_safetensors {
    tni_owned    owned;                  /* first: the context destroys it by this */
    tni_reader   file;
    tni_scratch  w;                      /* has the header and the sorted lists    */
    char        *header;                 /* its strings are the names              */
    size_t       header_bytes;
    tni_list     entries, notes;
    const void **by_offset, **by_name, **notes_by_name;
    tni_list     parts;                  /* tni_part_file, of an index, which owns them */
};

#define TNI_CHECKSUM_NAME "optim.checksum"

/* What a checkpoint has besides: the checksum of all bytes, and elements that are in the memory of other processes. */
typedef struct tni_seal {
    struct tni_checksum *sum;
    tn_status (*begin)(void *user, tn_status s);                    /* before the first byte: it returns whether to write  */
    bool      (*put)(void *user, tni_writer *w, int64_t number);    /* false: tensor `number` of the list is in memory here */
    tn_status (*end)(void *user, tn_status s);                      /* after the last byte: whether the file gets its name  */
    void       *user;
} tni_seal;

#if !defined(TN_NO_TEXT) || !defined(TN_NO_MODELS)
typedef enum tni_json_kind {
    TNI_JSON_NULL = 0, TNI_JSON_FALSE, TNI_JSON_TRUE, TNI_JSON_NUMBER, TNI_JSON_STRING, TNI_JSON_ARRAY, TNI_JSON_OBJECT
} tni_json_kind;

typedef struct tni_value {
    tni_json_kind kind;
    uint32_t      at, key, string;      /* its first byte, key and string: places in the text                     */
    uint32_t      up, child, last, next;
    uint64_t      number;               /* UINT64_MAX: not a non-negative integer                                 */
} tni_value;

typedef struct tni_json { tni_reader file; tni_scan scan; tni_list values; bool twice; } tni_json;

static inline tni_value *tni_json_at(const tni_json *j, uint32_t i) { return (tni_value *)tni_list_at(&j->values, i); }
#endif

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

/* reader.c */
TNI_FN tni_file_name tni_file_name_of(const char *name, const char *path, bool calls);
TNI_FN tni_quoted tni_quote(const char *s);
TNI_FN const char *tni_reason(const char *otherwise);
TNI_PRINTF(4, 5) TNI_FN tn_status tni_reader_fail(const tni_reader *r, tn_status status, uint64_t at, const char *fmt, ...);
#ifndef TN_NO_STDIO
TNI_FN bool tni_is_device(const char *path);
TNI_FN tn_status tni_path_empty(tn_ctx *ctx, const char *op);
#endif
TNI_FN tn_status tni_reader_open(tni_reader *r, tn_ctx *ctx, const tn_source *source);
TNI_FN void tni_reader_close(tni_reader *r);
TNI_FN tn_status tni_reader_get(const tni_reader *r, uint64_t offset, void *dst, size_t bytes);
#ifndef TN_NO_TRAINING
TNI_FN void tni_checksum_open(tni_checksum *s);
TNI_FN void tni_checksum_add(tni_checksum *s, const void *src, size_t bytes);
TNI_FN uint64_t tni_checksum_value(const tni_checksum *s);
#endif /* TN_NO_TRAINING */
TNI_FN tn_status tni_check_header(const tni_reader *r, uint64_t at, uint64_t n, uint64_t most);

/* writer.c */
TNI_FN void tni_writer_fail(tni_writer *w, tn_status status, const char *what, const char *reason);
TNI_FN void tni_writer_open(tni_writer *w, tn_ctx *ctx, const tn_sink *sink);
TNI_FN void tni_put(tni_writer *w, const void *src, size_t bytes);
TNI_FN tn_status tni_writer_close(tni_writer *w);

/* numbers.c */
TNI_FN uint64_t tni_load_bits(const uint8_t *p, unsigned bytes, bool big_endian);
TNI_FN void tni_store_bits(uint8_t *p, uint64_t v, unsigned bytes);
TNI_FN bool tni_number_is_float(tni_number n);
TNI_FN tn_status tni_read_numbers(const tni_reader *r, uint64_t at, tni_number from, double scale, tn_tensor *to);
TNI_FN tn_status tni_read_tensor(const tni_reader *r, uint64_t at, tni_number from, double scale, int rank,
                                 const int64_t *shape, tn_tensor **out);
TNI_FN bool tni_count_extents(int rank, const int64_t *shape, size_t *count);
TNI_FN tn_status tni_check_rest(const tni_reader *r, uint64_t at, tni_number n, int rank, const int64_t *shape);
TNI_FN void tni_to_file(const uint8_t *host, tn_dtype have, uint8_t *out, tn_dtype as, int64_t n);
TNI_FN void tni_put_numbers(tni_writer *w, const tn_tensor *t, tn_dtype as);

/* scanner.c */
TNI_FN bool tni_scan_fail(tni_scan *s, const char *reason);
TNI_FN void tni_scan_space(tni_scan *s);
TNI_FN bool tni_scan_take(tni_scan *s, char c);
TNI_FN bool tni_scan_unexpected(tni_scan *s, const char *expected);
TNI_FN bool tni_scan_expect(tni_scan *s, char c);
TNI_FN bool tni_scan_natural(tni_scan *s, uint64_t *out);
TNI_FN bool tni_scan_shape(tni_scan *s, bool tuple, int64_t *axes, int *rank, int64_t *shape);
TNI_FN size_t tni_utf8_put(char *dst, uint32_t c);
TNI_FN bool tni_scan_string(tni_scan *s, const char **out);
TNI_FN void *tni_list_add(tn_ctx *ctx, tni_list *l, const char *what);
TNI_FN void tni_sort(const void **p, size_t n, tni_before_fn before);
TNI_FN bool tni_by_name(const void *a, const void *b);
TNI_UNUSED TNI_FN void tni_queue_up(tni_list *l, tni_queue_fn before, const void *user);
TNI_UNUSED TNI_FN void tni_queue_pop(tni_list *l, void *top, tni_queue_fn before, const void *user);
TNI_FN const void **tni_sorted(tni_scratch *w, const void *items, size_t n, size_t each, tni_before_fn before);
TNI_FN const void *tni_find_name(const void *const *p, size_t n, const char *name);
TNI_FN const char *tni_twice(const void *const *p, size_t n);
TNI_UNUSED TNI_FN void tni_list_free(tn_ctx *ctx, tni_list *l);

/* safetensors.c */
TNI_FN bool tni_safetensors_number(const char *dtype, tni_number *out);
TNI_FN const tni_reader *tni_entry_file(const tn_safetensors *f, const tn_safetensors_entry *e);
TNI_FN tn_status tni_safetensors_open(tn_ctx *ctx, const tn_source *source, tn_safetensors **out);
TNI_FN tn_status tni_entry_read(const tn_safetensors *f, const tn_safetensors_entry *e, tn_tensor **out);

/* safetensors_write.c */
TNI_FN void tni_text_escaped(tni_text *t, const char *s);
TNI_FN void tni_text_json(tni_text *t, const char *s);
TNI_FN void tni_text_string(tni_text *t, const char *s);
TNI_FN tn_status tni_safetensors_put(tn_ctx *ctx, tn_sink sink, const tn_named_tensor *tensors, int64_t count,
                                     const tn_metadata *notes, int64_t note_count, const tni_seal *seal);
/* Whether the numbers of an entry may be weights: integers, which are quantised ones without their scales, are an error. */
TNI_FN tn_status tni_entry_real(const tn_safetensors *f, const tn_safetensors_entry *e);
TNI_FN tn_status tni_param_check(const tn_safetensors *f, const tn_param *p);
TNI_FN tn_status tni_params_set(tn_params *params, tn_tensor *const *value);
TNI_UNUSED TNI_FN void tni_exact_text(char number[32], double v);

/* json.c */
#if !defined(TN_NO_TEXT) || !defined(TN_NO_MODELS)
TNI_FN bool tni_json_open(tni_json *j, tn_ctx *ctx, const tn_source *source);
TNI_FN void tni_json_close(tni_json *j);
TNI_FN const tni_value *tni_json_child(const tni_json *j, const tni_value *v);
TNI_FN const tni_value *tni_json_next(const tni_json *j, const tni_value *v);
TNI_FN const char *tni_json_key(const tni_json *j, const tni_value *v);
TNI_FN bool tni_json_is(const tni_value *v, tni_json_kind kind);
TNI_FN const tni_value *tni_json_get(tni_json *j, const tni_value *object, const char *key);
#endif

#endif
