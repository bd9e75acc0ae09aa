/* chain.c - tn train --audit: the chain of hashes in a run's log, which train.h describes */
#include "train.h"
#include <stdlib.h>
#include <string.h>

#define LINK ",\"chain\":\""

void chain_start(chain *c)
{
    memset(c, 0, sizeof *c);
    c->on = true;
    sha256_open(&c->sum);
    sha256_add(&c->sum, "\n", 1);
}

/* The last place of a text in a line, or `bytes`. */
static size_t last_place(const char *line, size_t bytes, const char *text)
{
    const size_t n = strlen(text);
    for (size_t at = bytes < n ? 0 : bytes - n + 1; at-- > 0; ) if (!memcmp(line + at, text, n)) return at;
    return bytes;
}

/* What follows a link begins with its hash. */
static void chain_continue(chain *c, const char *value, size_t bytes, const char *line, const char *end)
{
    const size_t n = bytes < SHA256_TEXT ? bytes : SHA256_TEXT - 1;
    const double step = json_number(line, end, "step");
    memcpy(c->last, value, n);
    c->last[n] = 0;
    c->step = step >= 0 && step < 1e15 ? (int64_t)step : -1;
    if (!c->links++) c->first = c->step;
    c->done = last_place(line, (size_t)(end - line), "\"file\":\"model.safetensors\"") < (size_t)(end - line);
    sha256_open(&c->sum);
    sha256_add(&c->sum, c->last, n);
    sha256_add(&c->sum, "\n", 1);
}

/* What follows a number. */
static const char *after_number(const char *at, const char *end)
{
    while (at < end && *at && strchr("0123456789.+-einfa", *at)) at++;
    return at;
}

/* Only numbers may be where the timings are: of a member that is there twice, readers take the last one. */
size_t untimed(const char *line, size_t bytes)
{
    static const char first[] = ",\"rate\":", second[] = ",\"seconds\":";
    const size_t      time = last_place(line, bytes, first) + strlen(first);
    const char       *end = line + bytes;
    if (time > bytes) return bytes;
    const char *at = after_number(line + time, end);
    if ((size_t)(end - at) <= strlen(second) || memcmp(at, second, strlen(second)) != 0) return bytes;
    at = after_number(at + strlen(second), end);
    return end - at == 1 && *at == '}' ? time : bytes;
}

link_kind chain_add(chain *c, const char *line, size_t bytes)
{
    char text[SHA256_TEXT];
    if (!c->on) return NO_LINK;
    const size_t link = last_place(line, bytes, LINK), end = link + strlen(LINK);
    const size_t time = link < bytes ? link : untimed(line, bytes);
    sha256_add(&c->sum, line, time);
    sha256_add(&c->sum, "\n", 1);
    if (link == bytes) return NO_LINK;
    sha256_text(&c->sum, text);
    const size_t value = bytes < end + 2 ? 0 : bytes - end - 2;                 /* "} is after it */
    const bool   good = value == SHA256_TEXT - 1 && !memcmp(text, line + end, value) && !memcmp(line + end + value, "\"}", 2);
    chain_continue(c, line + end, value, line, line + bytes);
    return good ? GOOD_LINK : BAD_LINK;
}

int64_t hash_file(const char *path, path_kind kind, char text[SHA256_TEXT])
{
    enum { PIECE = 1 << 16 };
    FILE   *f = open_input(path, kind);
    char   *piece = (char *)allocate(PIECE, 1);
    size_t  n;
    int64_t bytes = 0;
    sha256  s;
    sha256_open(&s);
    while ((n = fread(piece, 1, PIECE, f)) > 0) {
        sha256_add(&s, piece, n);
        bytes += (int64_t)n;
    }
    if (ferror(f)) fail("%s cannot be read", path);
    fclose(f);
    free(piece);
    sha256_text(&s, text);
    return bytes;
}

/* ---- what a run begins with ---- */

typedef struct hashing { hashed *list; int64_t count, bytes; } hashing;

static hashed *next_hashed(hashing *h, char *name, const char *path)
{
    h->list = (hashed *)resize(h->list, (size_t)h->count + 1, sizeof *h->list);
    hashed *to = &h->list[h->count++];
    to->name = name;
    to->path = copy_text(path);
    *to->hash = 0;
    return to;
}

static void hash_input(hashing *h, char *name, const char *path, path_kind kind)
{
    hashed *to = next_hashed(h, name, path);
    if (is_file(path)) h->bytes += hash_file(path, kind, to->hash);
}

/* config.txt, but for the lines about the data, whose paths may change. */
static void hash_settings(hashing *h, const char *folder)
{
    char   *path = join_path(folder, "config.txt");
    hashed *to = next_hashed(h, copy_text("settings"), path);
    size_t  bytes;
    sha256  s;
    if (is_file(path)) {
        char       *text = read_file(path, BY_NAME, &bytes);
        const char *at = after_paths(text);
        sha256_open(&s);
        while (*at) {
            const size_t n = strcspn(at, "\n");
            sha256_add(&s, at, n);
            sha256_add(&s, "\n", 1);
            at = after_paths(at + n + (at[n] != 0));
        }
        sha256_text(&s, to->hash);
        free(text);
    }
    free(path);
}

static void hash_list(hashing *h, const char *name, const file_list *files)
{
    for (int64_t i = 0; i < files->count; i++)
        hash_input(h, format_text("%s.%lld", name, (long long)i + 1), files->path[i], BY_USER);
}

int64_t hash_inputs(const settings *s, const char *folder, hashed **list)
{
    hashing h = {0};
    char   *desc = join_path(folder, "config.json"), *tokens = join_path(folder, "tokenizer.json");
    hash_settings(&h, folder);
    hash_input(&h, copy_text("model"), desc, BY_NAME);
    hash_input(&h, copy_text("tokenizer"), tokens, BY_NAME);
    hash_list(&h, "data", &s->data);
    hash_list(&h, "val", &s->val);
    if (s->from) hash_input(&h, copy_text("from"), s->from, BY_USER);
    if (s->teacher) {
        char *file = is_folder(s->teacher) ? find_weights(s->teacher) : copy_text(s->teacher);
        hash_input(&h, copy_text("teacher"), file, BY_USER);
        free(file);
    }
    free(desc);
    free(tokens);
    *list = h.list;
    return h.count;
}
