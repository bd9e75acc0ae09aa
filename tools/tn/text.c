/* text.c - stories, texts of several files */
#include "tn.h"
#include <stdlib.h>
#include <string.h>

/* ---- stories ---------------------------------------------------------------------- */

const char *find_text(const char *text, size_t bytes, const char *what)
{
    size_t      n = strlen(what);
    const char *end = text + bytes, *p = text;
    while ((size_t)(end - p) >= n && (p = (const char *)memchr(p, what[0], (size_t)(end - p) - n + 1)) != NULL) {
        if (!memcmp(p, what, n)) return p;
        p++;
    }
    return NULL;
}

split_kind resolve_split(split_kind split, const char *text, size_t bytes)
{
    if (split != SPLIT_AUTO) return split;
    return find_text(text, bytes, STORY_MARK) ? SPLIT_MARKS : SPLIT_BLANK;
}

const char *split_name(split_kind split, bool several)
{
    if (split == SPLIT_MARKS) return several ? "stories" : "story";
    if (split == SPLIT_LINES) return several ? "lines" : "line";
    return several ? "paragraphs" : "paragraph";
}

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* The end of the story that begins at `at`, and where the next one begins. */
static size_t story_end(const char *text, size_t bytes, split_kind split, size_t at, size_t *next)
{
    if (split == SPLIT_MARKS) {
        const char *p = find_text(text + at, bytes - at, STORY_MARK);
        *next = p ? (size_t)(p - text) + strlen(STORY_MARK) : bytes;
        return p ? (size_t)(p - text) : bytes;
    }
    for (size_t i = at; i < bytes; i++) {
        size_t k = i + 1;
        if (text[i] != '\n') continue;
        *next = k;
        if (split == SPLIT_LINES) return i;
        while (k < bytes && (text[k] == ' ' || text[k] == '\t' || text[k] == '\r')) k++;
        if (k < bytes && text[k] == '\n') return i;
    }
    return *next = bytes;
}

bool next_story(const char *text, size_t bytes, split_kind split, size_t *at, size_t *start, size_t *length)
{
    while (*at < bytes) {
        size_t next, from = *at, to = story_end(text, bytes, split, from, &next);
        while (from < to && is_space(text[from])) from++;
        while (to > from && is_space(text[to - 1])) to--;
        *at = next;
        *start = from;
        *length = to - from;
        if (to > from) return true;
    }
    return false;
}

/* ---- texts ------------------------------------------------------------------------------ */

char *read_texts(const file_list *files, size_t *bytes)
{
    buffer all = {0};
    buffer_add(&all, "", 0);
    for (int64_t i = 0; i < files->count; i++) {
        size_t  n, first;
        char   *text = read_file(files->path[i], BY_USER, &n);
        int64_t faults = utf8_errors(text, n, &first);
        if (n == 0) fail("%s is empty, expected text", files->path[i]);
        if (faults)
            warn("%s: %lld bytes are not valid UTF-8, the first is byte %zu; a tokenizer of words reads each as U+FFFD, one "
                 "of bytes keeps it (tn clean removes such stories)", files->path[i], (long long)faults, first);
        if (all.bytes && all.data[all.bytes - 1] != '\n') buffer_add(&all, "\n", 1);
        buffer_add(&all, text, n);
        free(text);
    }
    *bytes = all.bytes;
    return all.data;
}

size_t held_out_start(const char *text, size_t bytes, double share)
{
    const size_t mark = strlen(STORY_MARK);
    size_t       at = bytes - (size_t)((double)bytes * share);
    while (at > 0 && at < bytes && ((unsigned char)text[at] & 0xC0) == 0x80) at--;
    for (size_t k = 1; k < mark && k <= at; k++)
        if (bytes - (at - k) >= mark && !memcmp(text + at - k, STORY_MARK, mark)) return at - k;
    return at;
}
