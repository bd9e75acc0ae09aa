#include "core/inner.h"
#include "io/inner.h"
#include "text/inner.h"

#ifndef TN_NO_TEXT
/* ---- training ----------------------------------------------------------- >>text-train
   Words are counted, then split into letters; the most frequent pair of neighbours becomes a piece, again and again. Counts
   of pairs are kept up to date: a merge changes only the words that hold its pair. The heap may hold counts that have
   fallen since; a pair that reaches the top with such a count is put back with the present one. A merge raises only counts
   of pairs with the new piece, which enter the heap after it. Schuster & Nakajima 2012; Sennrich, Haddow & Birch 2016. */

enum { TNI_WORD_LETTERS = 100 };

typedef struct tni_counted_word { int64_t count; size_t first; int32_t letters; } tni_counted_word;   /* first: in symbols */
typedef struct tni_alphabet { uint32_t code; bool inner; int64_t count; int32_t id, inner_id; } tni_alphabet;
typedef struct tni_pair { int64_t count; int32_t a, b; uint32_t uses; bool touched; } tni_pair;       /* uses: newest, + 1 */
typedef struct tni_use { uint32_t word, next; } tni_use;
typedef struct tni_ranked { int64_t count; uint32_t pair; } tni_ranked;

typedef struct tni_training {
    tn_ctx       *ctx;
    tn_tokenizer *t;
    int64_t       min_count;
    tni_trie      known;                /* a word's number + 1                             */
    tni_list      words, symbols;       /* symbols, int32: letters at first, then ids      */
    tni_map       letter_of, pair_of;   /* numbers + 1                                     */
    tni_list      alphabet, pairs, uses, heap, touched;
} tni_training;

static void tni_training_end(tni_training *r)
{
    tni_list *list[7] = {&r->words, &r->symbols, &r->alphabet, &r->pairs, &r->uses, &r->heap, &r->touched};
    for (int k = 0; k < 7; k++) tni_list_free(r->ctx, list[k]);
    tni_trie_free(r->ctx, &r->known);
    tni_map_free(r->ctx, &r->letter_of);
    tni_map_free(r->ctx, &r->pair_of);
}

static bool tni_training_begin(tni_training *r, tn_ctx *ctx, tn_tokenizer *t)
{
    memset(r, 0, sizeof *r);
    r->ctx = ctx;
    r->t = t;
    r->words.each = sizeof(tni_counted_word);
    r->symbols.each = sizeof(int32_t);
    r->alphabet.each = sizeof(tni_alphabet);
    r->pairs.each = sizeof(tni_pair);
    r->uses.each = sizeof(tni_use);
    r->heap.each = sizeof(tni_ranked);
    r->touched.each = sizeof(uint32_t);
    return tni_trie_begin(ctx, &r->known);
}

/* A word that was not seen before: n bytes of UTF-8. */
static bool tni_training_learn(tni_training *r, const char *bytes, size_t n)
{
    tni_counted_word *word = (tni_counted_word *)tni_list_add(r->ctx, &r->words, "words");
    size_t            used;
    if (!word) return false;
    word->first = r->symbols.count;
    for (size_t at = 0; at < n; at += used, word->letters++) {
        int32_t *letter = (int32_t *)tni_list_add(r->ctx, &r->symbols, "words");
        if (!letter) return false;
        *letter = (int32_t)tni_utf8_get(bytes + at, n - at, &used);
    }
    return true;
}

/* One occurrence of a word. */
static bool tni_training_see(tni_training *r, const char *text, const tni_word *w)
{
    char      bytes[4 * TNI_WORD_LETTERS + 4];
    uint32_t *number;
    size_t    n = 0;
    tni_place p;
    if (w->letters > TNI_WORD_LETTERS) return true;
    for (p.at = w->begin, p.part = 0; p.at < w->end;) n += tni_letter_take(&r->t->letters, text, w->end, &p, bytes + n);
    if (memchr(bytes, 0, n)) return true;
    if (!(number = tni_trie_add(r->ctx, &r->known, bytes, n))) return false;
    if (*number == 0) {
        if (!tni_training_learn(r, bytes, n)) return false;
        *number = (uint32_t)r->words.count;
    }
    ((tni_counted_word *)tni_list_at(&r->words, *number - 1))->count++;
    return true;
}

/* Where the next separator from `at` on begins; `end`: none. */
static size_t tni_separator_next(const char *text, size_t at, size_t end, const char *separator, size_t n)
{
    while (n > 0 && end - at >= n) {
        const char *s = (const char *)memchr(text + at, separator[0], end - at - n + 1);
        if (!s) break;
        at = (size_t)(s - text);
        if (memcmp(s, separator, n) == 0) return at;
        at++;
    }
    return end;
}

static bool tni_training_text(tni_training *r, const char *text, size_t bytes, const char *separator)
{
    size_t at = 0, n = separator ? strlen(separator) : 0;
    while (at < bytes) {
        size_t   stop = tni_separator_next(text, at, bytes, separator, n);
        tni_word w;
        for (w.end = at; tni_word_next(&r->t->letters, text, stop, &w);) if (!tni_training_see(r, text, &w)) return false;
        at = bytes - stop > n ? stop + n : bytes;
    }
    return true;
}

static tni_pair *tni_pair_at(const tni_training *r, uint32_t i) { return (tni_pair *)tni_list_at(&r->pairs, i); }

static tni_counted_word *tni_word_at(const tni_training *r, size_t i)
{
    return (tni_counted_word *)tni_list_at(&r->words, i);
}

static int32_t *tni_word_symbols(const tni_training *r, const tni_counted_word *w)
{
    return (int32_t *)r->symbols.items + w->first;
}

/* Counts each letter, and notes whether it occurs inside words. */
static bool tni_training_letters(tni_training *r)
{
    for (size_t i = 0; i < r->words.count; i++) {
        const tni_counted_word *w = tni_word_at(r, i);
        const int32_t *letter = tni_word_symbols(r, w);
        for (int32_t k = 0; k < w->letters; k++) {
            uint32_t      number = tni_map_get(&r->letter_of, (uint32_t)letter[k]);
            tni_alphabet *a = (tni_alphabet *)(number ? tni_list_at(&r->alphabet, number - 1)
                                                      : tni_list_add(r->ctx, &r->alphabet, "letters"));
            if (!a) return false;
            a->code = (uint32_t)letter[k];
            a->count += w->count;
            a->inner = a->inner || k > 0;
            if (!number && !tni_map_put(r->ctx, &r->letter_of, a->code, (uint32_t)r->alphabet.count)) return false;
        }
    }
    return true;
}

static bool tni_by_count(const void *a, const void *b)
{
    const tni_alphabet *x = (const tni_alphabet *)a, *y = (const tni_alphabet *)b;
    return x->count != y->count ? x->count > y->count : x->code < y->code;
}

static bool tni_by_code(const void *a, const void *b)
{
    return ((const tni_alphabet *)a)->code < ((const tni_alphabet *)b)->code;
}

static bool tni_training_token(tni_training *r, const char *s, size_t n, int32_t *id)
{
    *id = (int32_t)r->t->names.count;
    return tni_names_grow(r->t) && tni_token_set(r->t, *id, s, n);
}

/* Ids for the most frequent letters: as words begin with them, then as inner pieces. The others keep id 0, [UNK]. */
static tn_status tni_training_alphabet(tni_training *r, int64_t letters, int64_t vocab)
{
    size_t       n = r->alphabet.count, most = letters > 0 ? (size_t)tni_min(letters, (int64_t)n) : n, inner = 0;
    tni_scratch  w = tni_scratch_begin(r->ctx, "letters");
    const void **order = tni_sorted(&w, r->alphabet.items, n, r->alphabet.each, tni_by_count);
    bool         ok = order != NULL;
    if (!ok) return TN_ERR_MEMORY;
    tni_sort(order, most, tni_by_code);
    for (size_t i = 0; i < most; i++) inner += ((const tni_alphabet *)order[i])->inner;
    if ((int64_t)(most + inner + r->t->names.count) > vocab) {
        tni_fail(r->ctx, TN_ERR_ARG, "tokenizer: vocab is %lld, expected %zu or more for %zu letters, %zu of them inside "
                 "words", (long long)vocab, most + inner + r->t->names.count, most, inner);
        ok = false;
    }
    for (size_t i = 0; i < 2 * most && ok; i++) {
        tni_alphabet *a = (tni_alphabet *)(void *)order[i % most];
        char          name[6] = "##";
        size_t        length = tni_utf8_put(name + 2, a->code);
        if (i < most) ok = tni_training_token(r, name + 2, length, &a->id);
        else if (a->inner) ok = tni_training_token(r, name, length + 2, &a->inner_id);
    }
    return tni_scratch_end(&w, ok ? TN_OK : tn_ctx_status(r->ctx));
}

/* Letters become ids. A word with a letter that has no id is always [UNK], so nothing is learned from it. */
static void tni_training_spell(tni_training *r)
{
    for (size_t i = 0; i < r->words.count; i++) {
        tni_counted_word *w = tni_word_at(r, i);
        int32_t *symbol = tni_word_symbols(r, w);
        for (int32_t k = 0; k < w->letters; k++) {
            uint32_t            number = tni_map_get(&r->letter_of, (uint32_t)symbol[k]);
            const tni_alphabet *a = (const tni_alphabet *)tni_list_at(&r->alphabet, number - 1);
            symbol[k] = k > 0 ? a->inner_id : a->id;
            if (symbol[k] == 0) { w->letters = 0; break; }
        }
    }
}

/* ---- the heap: the most frequent pair on top, of equals the one with the lower ids ---- >>text-train-heap */

static bool tni_ranks_before(const void *training, const void *a, const void *b)
{
    const tni_training *r = (const tni_training *)training;
    const tni_ranked   *x = (const tni_ranked *)a, *y = (const tni_ranked *)b;
    const tni_pair     *p = tni_pair_at(r, x->pair), *q = tni_pair_at(r, y->pair);
    if (x->count != y->count) return x->count > y->count;
    return p->a != q->a ? p->a < q->a : p->b < q->b;
}

static bool tni_training_push(tni_training *r, uint32_t pair)
{
    tni_ranked *new_one = (tni_ranked *)tni_list_add(r->ctx, &r->heap, "pairs");
    if (!new_one) return false;
    new_one->count = tni_pair_at(r, pair)->count;
    new_one->pair = pair;
    tni_queue_up(&r->heap, tni_ranks_before, r);
    return true;
}

/* ---- pairs -------------------------------------------------------------- >>text-train-pairs */

/* Adds `by` to the count of a pair, for word number `word`. A fresh pair is put into the heap when the merge is done. */
static bool tni_pair_count(tni_training *r, int32_t a, int32_t b, int64_t by, uint32_t word, bool fresh)
{
    uint64_t  key = (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
    uint32_t  number = tni_map_get(&r->pair_of, key);
    tni_pair *p = (tni_pair *)(number ? tni_list_at(&r->pairs, number - 1) : tni_list_add(r->ctx, &r->pairs, "pairs"));
    tni_use  *use;
    if (!p) return false;
    p->a = a;
    p->b = b;
    p->count += by;
    if (!number && !tni_map_put(r->ctx, &r->pair_of, key, number = (uint32_t)r->pairs.count)) return false;
    if (!fresh) return true;
    if (!p->touched) {
        uint32_t *touched = (uint32_t *)tni_list_add(r->ctx, &r->touched, "pairs");
        if (!touched) return false;
        *touched = number - 1;
        p->touched = true;
    }
    if (p->uses != 0 && ((const tni_use *)tni_list_at(&r->uses, p->uses - 1))->word == word) return true;
    if (!(use = (tni_use *)tni_list_add(r->ctx, &r->uses, "pairs"))) return false;
    use->word = word;
    use->next = p->uses;
    p->uses = (uint32_t)r->uses.count;
    return true;
}

/* Counts all pairs of a word, `sign` times. fresh: the piece whose pairs are new, -1: all are. */
static bool tni_word_count(tni_training *r, uint32_t word, int sign, int32_t fresh)
{
    const tni_counted_word *w = tni_word_at(r, word);
    const int32_t *s = tni_word_symbols(r, w);
    for (int32_t k = 1; k < w->letters; k++) {
        bool noted = sign > 0 && (fresh < 0 || s[k - 1] == fresh || s[k] == fresh);
        if (!tni_pair_count(r, s[k - 1], s[k], sign * w->count, word, noted)) return false;
    }
    return true;
}

static bool tni_touched_push(tni_training *r)
{
    for (size_t i = 0; i < r->touched.count; i++) {
        uint32_t pair = *(const uint32_t *)tni_list_at(&r->touched, i);
        tni_pair_at(r, pair)->touched = false;
        if (!tni_training_push(r, pair)) return false;
    }
    r->touched.count = 0;
    return true;
}

/* Replaces a followed by b by id, from the left. */
static void tni_word_merge(const tni_training *r, tni_counted_word *w, int32_t a, int32_t b, int32_t id)
{
    int32_t *s = tni_word_symbols(r, w), to = 0;
    for (int32_t from = 0; from < w->letters; from++, to++) {
        bool here = from + 1 < w->letters && s[from] == a && s[from + 1] == b;
        s[to] = here ? id : s[from];
        from += here;
    }
    w->letters = to;
}

static bool tni_word_holds(const tni_training *r, const tni_counted_word *w, int32_t a, int32_t b)
{
    const int32_t *s = tni_word_symbols(r, w);
    for (int32_t k = 1; k < w->letters; k++) if (s[k - 1] == a && s[k] == b) return true;
    return false;
}

/* The id of two joined pieces, which another pair may have made before. */
static bool tni_training_join(tni_training *r, int32_t a, int32_t b, int32_t *id)
{
    char        name[4 * TNI_WORD_LETTERS + 4];
    const char *first = tn_tokenizer_token(r->t, a), *second = tn_tokenizer_token(r->t, b);
    if (!first || !second) return false;                /* both are tokens, which gcc -O3 does not see */
    second += 2;                                        /* without its ## */
    size_t n = strlen(first), more = strlen(second);
    memcpy(name, first, n);
    memcpy(name + n, second, more + 1);
    *id = (int32_t)tn_tokenizer_id(r->t, name);
    return *id >= 0 || tni_training_token(r, name, n + more, id);
}

static bool tni_training_merge(tni_training *r, uint32_t pair)
{
    int32_t  a = tni_pair_at(r, pair)->a, b = tni_pair_at(r, pair)->b, id;
    uint32_t use = tni_pair_at(r, pair)->uses;
    if (!tni_training_join(r, a, b, &id)) return false;
    while (use != 0) {
        tni_use           u = *(const tni_use *)tni_list_at(&r->uses, use - 1);
        tni_counted_word *w = tni_word_at(r, u.word);
        if (tni_word_holds(r, w, a, b)) {
            if (!tni_word_count(r, u.word, -1, id)) return false;
            tni_word_merge(r, w, a, b, id);
            if (!tni_word_count(r, u.word, 1, id)) return false;
        }
        use = u.next;
    }
    return tni_touched_push(r);
}

static bool tni_training_merges(tni_training *r, int64_t vocab)
{
    for (uint32_t i = 0; i < r->words.count; i++) if (!tni_word_count(r, i, 1, -1)) return false;
    if (!tni_touched_push(r)) return false;
    while (r->heap.count > 0 && tn_tokenizer_count(r->t) < vocab) {
        tni_ranked top;
        tni_queue_pop(&r->heap, &top, tni_ranks_before, r);
        int64_t count = tni_pair_at(r, top.pair)->count;
        if (count < r->min_count) continue;
        if (!(count == top.count ? tni_training_merge(r, top.pair) : tni_training_push(r, top.pair))) return false;
    }
    return true;
}

static tn_status tni_training_run(tni_training *r, const char *text, size_t bytes, int64_t vocab,
                                  const tn_tokenizer_train_desc *d)
{
    static const char *const special[3] = {"[UNK]", "[BOS]", "[EOS]"};
    tn_status s;
    int32_t   id;
    for (int k = 0; k < 3; k++)
        if (!tni_training_token(r, special[k], 5, &id) || !tni_added_set(r->t, special[k], id, true, false))
            return TN_ERR_MEMORY;
    if (!tni_training_text(r, text, bytes, d->separator)) return TN_ERR_MEMORY;
    if (r->words.count == 0)
        return tni_fail(r->ctx, TN_ERR_DATA, "tokenizer: %zu bytes of text have no words, expected some", bytes);
    if (!tni_training_letters(r)) return TN_ERR_MEMORY;
    if ((s = tni_training_alphabet(r, d->letters, vocab)) != TN_OK) return s;
    tni_training_spell(r);
    if (!tni_training_merges(r, vocab)) return TN_ERR_MEMORY;
    r->t->unk = 0;
    r->t->bos = 1;
    r->t->bos_first = true;
    tni_tokenizer_finish(r->t);
    return TN_OK;
}

tn_tokenizer *tn_tokenizer_train(tn_ctx *ctx, const char *text, size_t bytes, int64_t vocab, const tn_tokenizer_train_desc *desc)
{
    tn_tokenizer_train_desc d = {0, 0, NULL};
    tni_training      r;
    tn_tokenizer     *t;
    if (!ctx) return NULL;
    if (desc) d = *desc;
    if (!text && bytes > 0)
        return tni_fail(ctx, TN_ERR_ARG, "tokenizer: text is NULL, expected %zu bytes", bytes), (tn_tokenizer *)NULL;
    if (vocab < 3 || vocab > INT32_MAX)
        return tni_fail(ctx, TN_ERR_ARG, "tokenizer: vocab is %lld, expected 3 to 2^31 - 1", (long long)vocab),
               (tn_tokenizer *)NULL;
    if (!tni_within(ctx, "tokenizer", "min_count", d.min_count, 0, INT64_MAX)
        || !tni_within(ctx, "tokenizer", "letters", d.letters, 0, INT64_MAX)) return NULL;
    if (!(t = tni_tokenizer_new(ctx))) return NULL;
    bool ok = tni_training_begin(&r, ctx, t);
    r.min_count = d.min_count > 0 ? d.min_count : 2;
    ok = ok && tni_training_run(&r, text, bytes, vocab, &d) == TN_OK;
    tni_training_end(&r);
    if (ok) return t;
    return tn_tokenizer_destroy(t), (tn_tokenizer *)NULL;
}

#endif /* TN_NO_TEXT */
