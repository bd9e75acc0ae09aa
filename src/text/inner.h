#pragma once
#include "core/inner.h"
#include "io/inner.h"
#include "text/text.h"

#ifndef TN_NO_TEXT
/* Unicode 14.0.0 */
#define TNI_LETTER_RUNS 3491

typedef struct tni_letter_run { uint32_t first; int32_t value; uint8_t rule, kind; } tni_letter_run;
typedef struct tni_letters {
    tni_letter_run run[TNI_LETTER_RUNS];
    uint8_t        ascii[128], ascii_kind[128];              /* a copy for ASCII, the most frequent           */
} tni_letters;

enum { TNI_IS_OTHER = 1, TNI_IS_LETTER = 2, TNI_IS_NUMBER = 4, TNI_IS_SPACE = 8 };

/* Unicode 16.0.0 */
#define TNI_CATEGORY_RUNS 1610

/* Unicode 9.0.0 */
#define TNI_NFC_PARTS 1058

typedef struct tni_categories {
    uint32_t run[TNI_CATEGORY_RUNS];                         /* its first character times 4, plus the category */
    uint8_t  ascii[128];                                     /* the same of ASCII, as bits                     */
} tni_categories;

/* Letters of one class; a single letter of class TNI_LETTER_ALONE. Marks belong to the letter before them. */
typedef struct tni_word { size_t begin, end; int64_t letters; } tni_word;

/* The place of a letter: its character's first byte, and its part of a syllable. */
typedef struct tni_place { size_t at; int part; } tni_place;

typedef struct tni_slot { uint64_t key; uint32_t value; } tni_slot;
typedef struct tni_map { tni_slot *slot; size_t used; unsigned bits; } tni_map;      /* 2^bits slots, at most half in use */

enum { TNI_ROOT = 1 };
typedef struct tni_trie { tni_map edges; tni_list nodes; } tni_trie;                 /* a node is its value, 0: none */

enum { TNI_TOKEN_MOST = 512 };          /* bytes of an added token, and of a piece of WordPiece: more than 100 letters */
typedef struct tni_added { int64_t id; bool special; } tni_added;
#define TNI_ADDED_LATE 0x80000000u      /* bit of an added token's value: looked for in what is between the others */

/* Where a space mark is put before a text; Split: nowhere, and no space becomes one. */
enum { TNI_MARKS_PREPEND = 1, TNI_MARKS_NEVER, TNI_MARKS_ALWAYS, TNI_MARKS_FIRST, TNI_MARKS_SPLIT };

/* What only BPE has, see >>text-bpe and >>text-marks. */
typedef struct tni_bpe {
    bool     is;                        /* the tokenizer is of this kind                                       */
    bool     prefix_space;              /* a text begins with a space, or gets one                             */
    bool     whole_first;               /* a word that is a token is that token, whatever its merges make      */
    bool     merges_as_text;            /* in the file: "a b" and not ["a","b"]                                */
    bool     late;                      /* some added tokens have TNI_ADDED_LATE                               */
    int      digits;                    /* numbers are words: 1 each character, 2 runs of them                 */
    int      rule;                      /* the place of its regular expression in tni_bpe_rules                */
    int32_t  byte[256];                 /* the id of each byte                                                 */
    tni_map  ranks;                     /* two ids, left << 32 | right, to the rank of their merge + 1         */
    tni_list merges;                    /* tni_bpe_merge, by rank                                              */
    tni_list alone;                     /* bool of each id: merging the bytes of its name gives this token     */
    int      marks;                     /* a TNI_MARKS_, of spaces as U+2581; 0: letters are bytes             */
    bool     apart;                     /* no merge has a mark behind a letter: words begin at marks           */
    bool     meta;                      /* the pre-tokenizer makes the marks                                   */
    bool     fuse_unk, strip;           /* unknown letters are one token; the first space is not printed       */
    bool     is_nfc;                    /* text becomes NFC first, see >>text-nfc                              */
    tni_map  nfc;                       /* pairs, parts and classes                                            */
    tni_list layout;                    /* the file as JSON without spaces; for vocab a byte 1, for merges 2   */
} tni_bpe;
typedef struct tni_bpe_merge { int32_t left, right, id; } tni_bpe_merge;

struct tn_tokenizer {
    tni_owned   owned;
    int         bytes;                  /* ids 0 ... bytes - 1 are bytes: 256, 128 of ASCII, or 0. Not 0: of the fields below
                                           only names is used                                                  */
    int64_t     bos, eos, unk;
    bool        bos_first;              /* the file has a template that puts bos first                         */
    int64_t     longest;                /* letters of a word that is not [UNK]                                 */
    int         decoder;                /* in the file: 0 none, 1 WordPiece, 2 with cleanup                    */
    tni_list    names;                  /* size_t: where in strings token id is, + 1                           */
    tni_list    strings;                /* of all names, each with a zero                                      */
    tni_list    added;                  /* tni_added: tokens found in the unchanged text, in the order of the file */
    tni_trie    pieces, specials;       /* values are ids + 1                                                  */
    uint32_t    inner;                  /* the node of "##" in pieces, 0: no inner pieces                      */
    bool        begins_special[256];    /* bytes that an added token begins with                               */
    tni_bpe     bpe;
    tni_letters letters;
    tni_categories categories;
};

/* Text in NFC: byte i comes from byte from[i] of the text; from[bytes] is its end. */
typedef struct tni_nfc { char *text; size_t bytes, *from, size; void *all; } tni_nfc;

typedef struct tni_encoding { int32_t *ids; tn_span *spans; int64_t n, max; } tni_encoding;

static const struct { const char *whose, *regex; int digits; } tni_bpe_rules[] = {
    {"none", "", 0},
    {"GPT-2", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", 0},
    {"Llama 3", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
     "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", 3},
    {"Qwen2", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
     "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", 1}
};
enum { TNI_BPE_NONE = 0, TNI_BPE_GPT2, TNI_BPE_RULES = sizeof tni_bpe_rules / sizeof *tni_bpe_rules };

/* A token of the word that is being merged: where it begins, the tokens beside it, the rank of its merge with the next. */
typedef struct tni_bpe_token { int32_t id; uint32_t begin, next, before, rank; } tni_bpe_token;
enum { TNI_BPE_SHORT = 96 };            /* bytes of a word that is merged without memory of the allocator */

struct tn_shard { tni_owned owned; tni_reader file; int64_t count, vocab; unsigned width; };
#endif /* TN_NO_TEXT */

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

#ifndef TN_NO_TEXT
/* tables.c */
TNI_FN const char *const *tni_letter_rows(size_t *count);
TNI_FN const char *const *tni_category_rows(size_t *count);
TNI_FN const char *const *tni_nfc_rows(size_t *count);

/* letters.c */
TNI_FN uint32_t tni_letter_number(const char **at);
TNI_FN int32_t tni_letter_signed(const char **at);
TNI_FN void tni_letters_unpack(tni_letters *l);
TNI_FN uint32_t tni_utf8_get(const char *text, size_t left, size_t *n);
TNI_FN void tni_categories_unpack(tni_categories *l);
TNI_FN int tni_category_at(const tni_categories *l, const char *text, size_t at, size_t end, size_t *n);
TNI_FN bool tni_word_next(const tni_letters *l, const char *text, size_t end, tni_word *w);
TNI_FN size_t tni_letter_take(const tni_letters *l, const char *text, size_t end, tni_place *p, char utf8[4]);
TNI_FN void tni_map_free(tn_ctx *ctx, tni_map *m);
TNI_FN uint32_t tni_map_get(const tni_map *m, uint64_t key);
TNI_FN bool tni_map_put(tn_ctx *ctx, tni_map *m, uint64_t key, uint32_t value);
TNI_FN uint32_t tni_trie_step(const tni_trie *t, uint32_t node, char byte);
TNI_FN uint32_t tni_trie_find(const tni_trie *t, const char *s, size_t n);
TNI_FN uint32_t *tni_trie_value(const tni_trie *t, uint32_t node);
TNI_FN void tni_trie_free(tn_ctx *ctx, tni_trie *t);
TNI_FN bool tni_trie_begin(tn_ctx *ctx, tni_trie *t);
TNI_FN uint32_t *tni_trie_add(tn_ctx *ctx, tni_trie *t, const char *s, size_t n);

/* nfc.c */
TNI_FN bool tni_nfc_unpack(tn_tokenizer *t);
TNI_FN bool tni_nfc_look(const tn_tokenizer *t, const char *text, size_t at, size_t end, bool *needed);
TNI_FN bool tni_nfc_begin(const tn_tokenizer *t, const char *text, size_t at, size_t end, tni_nfc *f);
TNI_FN void tni_nfc_end(const tn_tokenizer *t, tni_nfc *f);

/* tokenizer.c */
TNI_FN tn_tokenizer *tni_tokenizer_new(tn_ctx *ctx);
TNI_FN bool tni_names_grow(tn_tokenizer *t);
TNI_FN bool tni_token_name(tn_tokenizer *t, int64_t id, const char *s, size_t n);
TNI_FN bool tni_token_set(tn_tokenizer *t, int64_t id, const char *s, size_t n);
TNI_FN bool tni_added_set(tn_tokenizer *t, const char *s, int64_t id, bool special, bool late);
TNI_FN void tni_tokenizer_finish(tn_tokenizer *t);
TNI_FN void tni_encode_put(tni_encoding *e, int64_t id, size_t begin, size_t end);
TNI_FN size_t tni_special_next(const tn_tokenizer *t, const char *text, size_t at, size_t end, uint32_t late, int64_t *id,
                               size_t *bytes);
TNI_FN size_t tni_byte_name(int byte, char name[8]);

/* marks.c */
TNI_FN void tni_marks_name(const char *name, bool first, char *to);
TNI_FN bool tni_marks_begin(const tn_tokenizer *t, const char *text, size_t at, size_t end, tni_nfc *f);
TNI_FN size_t tni_marks_word(const char *text, size_t at, size_t end);
TNI_FN size_t tni_marks_letters(const tn_tokenizer *t, const char *text, size_t bytes, tni_bpe_token *w);
TNI_FN void tni_marks_print(tni_text *out, const char *name, bool *strip);
TNI_FN void tni_tokens_layout(const tni_json *j, const tni_value *root, const tni_value *vocab, const tni_value *merges,
                              tni_text *out);
TNI_FN bool tni_marks_read(tni_json *j, const tni_value *root, tn_tokenizer *t);

/* bpe.c */
TNI_FN size_t tni_bpe_letter(unsigned byte, char utf8[4]);
TNI_FN int64_t tni_bpe_find(const tn_tokenizer *t, const char *bytes, size_t n, bool space);
TNI_FN size_t tni_bpe_merge_short(const tn_tokenizer *t, tni_bpe_token *w, size_t n);
TNI_FN size_t tni_bpe_bytes(const tn_tokenizer *t, const char *bytes, size_t n, bool space, tni_bpe_token *w);
TNI_FN bool tni_bpe_encode(const tn_tokenizer *t, const char *text, size_t at, size_t end, uint32_t late, tni_encoding *e);
TNI_FN bool tni_bpe_name_bytes(const char *name, tni_text *out);
TNI_FN void tni_bpe_print(tni_text *out, const char *name);
#endif /* TN_NO_TEXT */

#endif
