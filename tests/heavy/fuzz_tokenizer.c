/* fuzz_tokenizer.c: a tokenizer.json that may be anything, and a text that may be: the file itself. See fuzz.h. */

#include "fuzz.h"
#include "../../tools/tn/mojibake.c"

static char fuzz_file[FUZZ_FILE];

/* Ids in range; spans in order and inside, those that overlap share a character; as many without room; what it decodes to is text. */
static void fuzz_encode(const tn_tokenizer *t, const char *text, size_t bytes)
{
    int64_t  n = tn_tokenizer_encode(t, text, bytes, TN_BOS_NONE, NULL, 0, NULL);
    int32_t *id = (int32_t *)malloc(((size_t)n + 1) * sizeof *id);
    tn_span *span = (tn_span *)malloc(((size_t)n + 1) * sizeof *span);
    DEMAND(n >= 0 && id && span && tn_tokenizer_encode(t, text, bytes, TN_BOS_NONE, id, n, span) == n);
    for (int64_t k = 0; k < n; k++) {
        DEMAND(tn_tokenizer_token(t, id[k]) && span[k].end <= bytes);
        DEMAND(span[k].begin < span[k].end                  /* but BPE's first space or mark */
               || (span[k].begin == span[k].end && (tn_tokenizer_unk(t) < 0 || tn_tokenizer_id(t, "\xE2\x96\x81") >= 0)));
        if (k > 0) DEMAND(span[k].begin >= span[k - 1].begin && span[k].begin + 3 >= span[k - 1].end);
    }
    int64_t length = tn_tokenizer_decode(t, id, n, NULL, 0);
    DEMAND(length >= 0);
    char *out = (char *)malloc((size_t)length + 1);
    DEMAND(out && tn_tokenizer_decode(t, id, n, out, (size_t)length + 1) == length && out[length] == 0);
    free(out);
    free(id);
    free(span);
}

static void fuzz_read(tn_ctx *ctx, const void *data, size_t n)
{
    tn_tokenizer *t = tn_tokenizer_read(ctx, fuzz_source(data, n));
    size_t        used = 0, more = 0;
    find_mojibake((const char *)data, n);
    if (!t) { fuzz_failed(ctx); return; }
    DEMAND(tn_tokenizer_count(t) > 0 && (tn_tokenizer_unk(t) >= 0 || tn_tokenizer_count(t) >= 256));
    for (int64_t i = 0; i < tn_tokenizer_count(t); i++) DEMAND(tn_tokenizer_id(t, tn_tokenizer_token(t, i)) == i);
    fuzz_encode(t, (const char *)data, n);
    DEMAND(tn_tokenizer_write(t, tn_sink_memory(NULL, 0, &used)) == TN_OK);
    if (used <= FUZZ_FILE / 2) {
        DEMAND(tn_tokenizer_write(t, tn_sink_memory(fuzz_file, FUZZ_FILE / 2, &used)) == TN_OK);
        tn_tokenizer *again = tn_tokenizer_read(ctx, fuzz_source(fuzz_file, used));
        DEMAND(again && tn_tokenizer_count(again) == tn_tokenizer_count(t) && tn_tokenizer_bos(again) == tn_tokenizer_bos(t));
        DEMAND(tn_tokenizer_write(again, tn_sink_memory(fuzz_file + FUZZ_FILE / 2, FUZZ_FILE / 2, &more)) == TN_OK);
        DEMAND(more == used && memcmp(fuzz_file, fuzz_file + FUZZ_FILE / 2, used) == 0);
        tn_tokenizer_destroy(again);
    }
    tn_tokenizer_destroy(t);
}
