#pragma once
#include "core/core.h"
#include "io/io.h"

#ifndef TN_NO_TEXT
/* ======================================================================
   >>text     tokens of text: WordPiece, BPE, bytes, shards
   A tokenizer converts UTF-8 to ids and back. There are four kinds.
   Bytes, and the characters of ASCII, need no vocabulary.
   WordPiece as in Hugging Face's tokenizers for the published TinyStories models: NFD, accents stripped, lower case; each
   punctuation mark and each digit is a word. A word is split into the longest pieces that the vocabulary has, from its
   start; pieces inside a word begin with ##. A word that cannot be split in this way, or of more than 100 letters, is one
   [UNK]. Unicode 14 is used (Hugging Face mixes versions 8 to 15, so it may treat characters newer than Unicode 8
   differently).
   Byte-level BPE as in GPT-2, Llama 3 and Qwen2: the regular expression of one of these divides a text into words, whose
   bytes are then merged by rank. Any bytes come back as they were, or with the normalizer NFC as text in NFC. Unicode 16 is
   used, as in Hugging Face's tokenizers 0.23.
   BPE with space marks as SentencePiece makes it for Llama 2, Mistral and Gemma: each space becomes U+2581, the text is one
   word of characters, and one without a token becomes the tokens of its bytes, <0x00> ... <0xFF>, or the unknown one if there are none.
   A tokenizer is read-only after its creation: several threads may use one, as long as no call fails. For words of more
   than 96 bytes, and with space marks, BPE calls the allocator of the context's desc from these threads (as malloc
   permits), and for text that NFC may change, with 51 bytes for each of its bytes; this memory is not counted in
   tn_ctx_memory, nor against max_bytes.
   ====================================================================== */

typedef struct tn_tokenizer tn_tokenizer;

/* Creates a tokenizer of 258 ids: one per byte, then [BOS] and [EOS]. Tokens are named <0x00> ... <0xFF>. NULL: out of
   memory. */
TN_API tn_tokenizer *tn_tokenizer_create_bytes(tn_ctx *ctx);
/* Creates a tokenizer of 131 ids: the characters of ASCII, then [BOS], [EOS] and [UNK], which each other byte becomes and which
   prints a question mark. Tokens are named a, b, ..., and <0x0A> where a character is not visible. NULL: out of memory. */
TN_API tn_tokenizer *tn_tokenizer_create_ascii(tn_ctx *ctx);
/* Reads a tokenizer.json of one of the kinds above; anything else is an error that names the difference. Ids must be
   0 ... n-1, each once. post_processor: none, or one special token before the text; pairs of texts are not encoded. BPE:
   pre_tokenizer ByteLevel, alone or after Split by the regular expression of GPT-2, Llama 3 or Qwen2, or after Digits;
   normalizer null or NFC; a token for each of the 256 bytes. BPE with byte_fallback: normalizer, pre_tokenizer and decoder of
   Llama 2, Mistral or Gemma; a token for U+2581, and for all bytes or none. An added token, and one of WordPiece, has at most
   512 bytes. The tokenizer is freed by _destroy or with the context. NULL on error. */
TN_API tn_tokenizer *tn_tokenizer_read(tn_ctx *ctx, tn_source source);
/* Writes a tokenizer.json, byte for byte as Hugging Face does (but WordPiece's template for pairs is always the default).
   TN_ERR_ARG for a tokenizer of bytes or of ASCII, which has no file. */
TN_API tn_status     tn_tokenizer_write(const tn_tokenizer *t, tn_sink sink);
#ifndef TN_NO_STDIO
TN_API tn_tokenizer *tn_tokenizer_load(tn_ctx *ctx, const char *path);             /* reads a file            */
TN_API tn_status     tn_tokenizer_save(const tn_tokenizer *t, const char *path);   /* writes a file           */
#endif
TN_API void          tn_tokenizer_destroy(tn_tokenizer *t);                        /* frees the tokenizer     */

typedef struct tn_tokenizer_train_desc {
    int64_t     min_count;              /* of a pair that becomes a piece; 0: 2                                          */
    int64_t     letters;                /* largest number of letters, the most frequent ones; 0: all                     */
    const char *separator;              /* between two texts and part of neither, such as "<|endoftext|>"; or NULL       */
} tn_tokenizer_train_desc;
/* Trains a vocabulary on a text, as Hugging Face's WordPiece trainer does: [UNK] [BOS] [EOS], the letters, the letters
   inside words; then repeatedly the most frequent pair of neighbours becomes a piece. Letters are ordered by code point,
   equally frequent pairs by lower ids: a text has exactly one vocabulary. It is smaller than `vocab` if no pair is left.
   TN_ERR_ARG if the letters alone are more, TN_ERR_DATA for a text without words. Words of more than 100 letters, and
   U+0000, are left out. */
TN_API tn_tokenizer *tn_tokenizer_train(tn_ctx *ctx, const char *text, size_t bytes, int64_t vocab,
                                        const tn_tokenizer_train_desc *desc);

TN_API int64_t       tn_tokenizer_count(const tn_tokenizer *t);              /* number of ids; NULL: 0                */
TN_API const char   *tn_tokenizer_token(const tn_tokenizer *t, int64_t id);  /* the token of an id, or NULL           */
TN_API int64_t       tn_tokenizer_id(const tn_tokenizer *t, const char *token);       /* the id of a token, or -1     */
/* The id before a text: that of the file's template, else of [BOS]; of BPE also <s>, <|begin_of_text|>, <|endoftext|> or
   <bos>; or -1. */
TN_API int64_t       tn_tokenizer_bos(const tn_tokenizer *t);
/* The id of [EOS]; of BPE also </s>, <|end_of_text|>, <|endoftext|> or <eos>; or -1. */
TN_API int64_t       tn_tokenizer_eos(const tn_tokenizer *t);
TN_API int64_t       tn_tokenizer_unk(const tn_tokenizer *t);                /* the id of [UNK] or <unk>; -1: not needed */
TN_API bool          tn_tokenizer_is_bytes(const tn_tokenizer *t);           /* whether it is a tokenizer of bytes    */

/* The bytes [begin,end) of the text that an id represents, stripped marks with the letter before them. This lets a loss per
   byte count the bytes that an [UNK] hides. A [BOS] before the text has [0,0), and a space that BPE puts before a text has
   no bytes. Parts of a Hangul syllable share bytes. With BPE a token may end inside a character. */
typedef struct tn_span { size_t begin, end; } tn_span;

typedef enum tn_bos { TN_BOS_NONE = 0, TN_BOS_FIRST } tn_bos;      /* whether [BOS] is put before the text */

/* Converts a UTF-8 text to ids and returns their number, or -1 on error. Only the first `max` are written, so (NULL, 0)
   counts. There can be more ids than bytes, but never more than bytes + bytes / 2 + 2: one for each byte, [BOS], and with BPE
   a space or a space mark before each part between two added tokens; with NFC, which can make 12 bytes of 4, 3 * bytes +
   bytes / 2 + 2. Names of added tokens in the text ("[EOS]") become their ids. Invalid UTF-8 is read as U+FFFD; BPE keeps
   its bytes. With NFC, CJK compatibility ideographs that it replaces, and more than 1024 marks after each other, are
   TN_ERR_DATA. spans: [max], or NULL. */
TN_API int64_t tn_tokenizer_encode(const tn_tokenizer *t, const char *text, size_t bytes, tn_bos bos, int32_t *ids,
                                   int64_t max, tn_span *spans);
/* Converts n ids to text: dst gets what fits, and a final zero (dst may be NULL if bytes is 0). Returns the text's length
   without the zero; -1 and TN_ERR_DATA for an invalid id. The text of the first ids is a prefix of the text of all. [BOS]
   and [EOS] print nothing. Of bytes and BPE it is the text that was encoded, byte for byte, in NFC if the tokenizer has
   that, but that each U+2581 is printed as a space, also one that was put before a part between added tokens; where the
   file's decoder has Strip, a space that all begins with is left out. Of WordPiece, encoding it gives the ids again if they
   came from tn_tokenizer_encode (except [BOS] and [EOS]; the next token begins a line). There is one space between tokens,
   but none before inner pieces, digits after digits, closing signs and . , ! ? ; : % and none after opening signs; none on
   both sides of - _ / after a word, of . , : in a number, of an apostrophe in don't, she's. Quotation marks open and close
   in turn. */
TN_API int64_t tn_tokenizer_decode(const tn_tokenizer *t, const int32_t *ids, int64_t n, char *dst, size_t bytes);

/* ---- token shards, the format of llm.c ---------------------------------- >>text-shards
   256 words of 32 bits, little-endian: magic 20240520, version 1, count, zeros; then count ids of 16 bits. Or magic
   20240801, version 7, and ids of 32 bits. https://github.com/karpathy/llm.c */
typedef struct tn_shard tn_shard;
/* Opens a shard and checks its header and length. It is closed by _close or with the context; NULL on error. */
TN_API tn_shard *tn_shard_open(tn_ctx *ctx, tn_source source, int64_t vocab);
TN_API void      tn_shard_close(tn_shard *shard);                              /* closes the shard           */
TN_API int64_t   tn_shard_count(const tn_shard *shard);                        /* number of ids              */
/* Reads the ids [first,first+n). An id outside [0,vocab) is an error. */
TN_API tn_status tn_shard_read(const tn_shard *shard, int64_t first, int64_t n, int32_t *ids);
/* Writes n ids, with 16 bits per id if `vocab` permits it, else 32. */
TN_API tn_status tn_shard_write(tn_ctx *ctx, tn_sink sink, const int32_t *ids, int64_t n, int64_t vocab);
#endif /* TN_NO_TEXT */
