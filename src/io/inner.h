/* A file's name for a message; of a long one the end. */
typedef struct tni_file_name { char s[160]; } tni_file_name;

/* A string from a file or a caller, in quotes for a message: control characters replaced, and a long one shortened. */
typedef struct tni_quoted { char s[72]; } tni_quoted;

typedef struct tni_reader {
    tn_ctx       *ctx;
    tn_fetch_fn   fetch;
    void         *user;
    uint64_t      bytes;                /* of the whole file     */
    void         *stream;               /* of a path: its FILE * */
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

static void *tni_list_at(const tni_list *l, size_t i) { return (char *)l->items + i * l->each; }

typedef bool (*tni_before_fn)(const void *a, const void *b);

#define TNI_SAFETENSORS_HEADER 100000000u

struct tn_safetensors {
    tni_owned    owned;                  /* first: the context destroys it by this */
    tni_reader   file;
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

static tni_value *tni_json_at(const tni_json *j, uint32_t i) { return (tni_value *)tni_list_at(&j->values, i); }
#endif
