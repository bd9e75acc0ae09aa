/* checkpoint.c - tn train: everything that a later step depends on, in one file that appears whole or not at all */
#include "train.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct weights { run *r; const tn_metadata *notes; int64_t count; } weights;

/* The notes of a file of weights: its model, and the tokens that its texts begin with. */
static int64_t model_notes(const run *r, tn_metadata *notes, buffer *starts)
{
    buffer_add(starts, "", 0);
    for (int i = 0; i < r->m.start_count; i++) buffer_print(starts, i ? " %d" : "%d", (int)r->m.start[i]);
    notes[0].key = "tn.model", notes[0].value = r->config_json;
    notes[1].key = "tn.begin", notes[1].value = starts->data;
    return r->m.start_count ? 2 : 1;
}

static tn_status put_checkpoint(void *user, tn_sink sink)
{
    const weights *w = (const weights *)user;
    return tn_checkpoint_write(w->r->optim, sink, w->notes, w->count);
}

static tn_status put_weights(void *user, tn_sink sink)
{
    const weights *w = (const weights *)user;
    return tn_params_write(w->r->m.params, sink, w->notes, w->count);
}

enum { RUN_NOTES = 6 };

/* What a file says of its run: a checkpoint all of it, weights only the hash of the tokens and the model. */
typedef struct run_notes {
    char        step[32], lines[32], hash[32], machine[128];
    tn_metadata note[RUN_NOTES + 2];
    buffer      starts;
} run_notes;

static weights notes_of_weights(run *r, run_notes *n)
{
    weights w;
    memset(n, 0, sizeof *n);
    snprintf(n->hash, sizeof n->hash, "%016llx", (unsigned long long)r->data.hash);
    n->note[0].key = "tn.data", n->note[0].value = n->hash;
    w.r = r;
    w.notes = n->note;
    w.count = 1 + model_notes(r, n->note + 1, &n->starts);
    return w;
}

static weights notes_of_run(run *r, const char *config, run_notes *n)
{
    weights w;
    memset(n, 0, sizeof *n);
    snprintf(n->step, sizeof n->step, "%lld", (long long)r->step);
    snprintf(n->lines, sizeof n->lines, "%lld", (long long)r->journal.lines);
    snprintf(n->hash, sizeof n->hash, "%016llx", (unsigned long long)r->data.hash);
    machine_name(r->m.ctx, n->machine, sizeof n->machine);
    n->note[0].key = "tn.format", n->note[0].value = RUN_FORMAT;
    n->note[1].key = "tn.step", n->note[1].value = n->step;
    n->note[2].key = "tn.log_lines", n->note[2].value = n->lines;
    n->note[3].key = "tn.data", n->note[3].value = n->hash;
    n->note[4].key = "tn.machine", n->note[4].value = n->machine;
    n->note[5].key = "tn.config", n->note[5].value = config;
    w.r = r;
    w.notes = n->note;
    w.count = RUN_NOTES + model_notes(r, n->note + RUN_NOTES, &n->starts);
    return w;
}

char *file_bytes(run *r, const char *config, size_t *bytes)
{
    run_notes n;
    weights   w = config ? notes_of_run(r, config, &n) : notes_of_weights(r, &n);
    tn_status (*put)(void *user, tn_sink sink) = config ? put_checkpoint : put_weights;
    put(&w, tn_sink_memory(NULL, 0, bytes));
    char *to = (char *)allocate(*bytes, 1);
    put(&w, tn_sink_memory(to, *bytes, bytes));
    free(n.starts.data);
    check_ctx(r->m.ctx, "the checkpoint of a replay");
    return to;
}

static bool save(run *r)
{
    run_notes n;
    weights   w = notes_of_run(r, r->config.data, &n);
    char     *path = checkpoint_path(r->folder, r->step);
    journal_sync(&r->journal);
    char *why = is_first() ? write_file_with(path, BY_NAME, put_checkpoint, &w, r->m.ctx) : NULL;
    if (r->s->share_moments && !is_first()) put_checkpoint(&w, tn_sink_memory(NULL, 0, NULL));     /* the others send moments */
    free(n.starts.data);
    if (!why && any_of_all(r->m.ctx, false) && !is_first()) why = copy_text("the first process could not save");
    else if (why) any_of_all(r->m.ctx, true);
    if (!why && tn_ctx_status(r->m.ctx) != TN_OK) why = copy_text(tn_ctx_error(r->m.ctx));
    if (why) {
        clear_progress(&r->journal);
        warn("step %lld: %s", (long long)r->step, why);
        free(why);
        free(path);
        return false;
    }
    free(r->saved);
    r->saved = path;
    r->saved_step = r->step;
    return true;
}

char *save_weights(run *r, const char *name)
{
    run_notes n;
    if (!is_first()) return NULL;
    weights w = notes_of_weights(r, &n);
    char   *path = join_path(r->folder, name), *why = write_file_with(path, BY_NAME, put_weights, &w, r->m.ctx);
    free(n.starts.data);
    free(path);
    return why;
}

void save_history(run *r)
{
    const int64_t every = r->s->weights_every;
    char          name[64];
    if (!every || r->step % every) return;
    snprintf(name, sizeof name, WEIGHTS_FILE, (long long)r->step);
    char *why = save_weights(r, name);
    if (why) fail("%s; the last checkpoint is %s", why, r->saved ? r->saved : "not yet written");
}

/* Whether the checkpoint of a step is one of those that stay with --audit: others are made when a signal stops the run. */
static bool is_linked(const run *r, int64_t step)
{
    const chain *c = &r->journal.chain;
    return c->on && (step == r->steps || step == c->first || (r->s->save_every && step % r->s->save_every == 0));
}

/* Removes old checkpoints. Called once a step after the newest one has succeeded, which shows that the newest is good. */
void remove_old_checkpoints(const run *r)
{
    int64_t *steps, count = list_checkpoints(r->folder, &steps);
    for (int64_t i = 0; i < count - r->s->keep && is_first(); i++) {
        char *old = checkpoint_path(r->folder, steps[i]);
        if (steps[i] < r->saved_step && !is_linked(r, steps[i]) && unlink(old) != 0 && errno != ENOENT)
            warn("cannot remove %s: %s", old, strerror(errno));
        free(old);
    }
    free(steps);
}

void save_or_stop(run *r)
{
    char *before = r->saved ? copy_text(r->saved) : NULL;
    if (!save(r)) {
        if (!before) fail("stopped; there is no older checkpoint");
        fail("stopped; the last checkpoint is %s. When there is space on the disk: tn train --resume %s", before, r->folder);
    }
    free(before);
}

/* ---- links, see chain.c ---- */

/* Adds a line that ends with the hash of all before it. */
static void add_link(run *r, const buffer *members)
{
    chain c = r->journal.chain;
    char  text[SHA256_TEXT];
    sha256_add(&c.sum, "{", 1);
    sha256_add(&c.sum, members->data, members->bytes);
    sha256_add(&c.sum, "\n", 1);
    sha256_text(&c.sum, text);
    journal_line(&r->journal, "%s,\"chain\":\"%s\"", members->data, text);
}

void link_start(run *r)
{
    hashed       *list;
    buffer        line = {0};
    if (!r->s->audit || !is_first()) return;
    const int64_t count = hash_inputs(r->s, r->folder, &list);
    buffer_print(&line, "\"step\":%lld", (long long)r->step);
    for (int64_t i = 0; i < count; i++) {
        if (!*list[i].hash && strcmp(list[i].name, "tokenizer"))
            fail("--audit: %s is not a file, expected one, of which the log has a hash", list[i].path);
        buffer_print(&line, ",\"%s\":\"%s\"", list[i].name, list[i].hash);
        free(list[i].name);
        free(list[i].path);
    }
    free(list);
    add_link(r, &line);
    free(line.data);
}

static void link_file(run *r, const char *path, const char *name)
{
    char   hash[SHA256_TEXT], machine[128];
    buffer line = {0};
    hash_file(path, BY_NAME, hash);
    machine_name(r->m.ctx, machine, sizeof machine);
    buffer_print(&line, "\"step\":%lld,\"file\":\"%s\",\"sha256\":\"%s\",\"processes\":%d,\"machine\":", (long long)r->step, name,
                 hash, tn_comm_size(r->m.ctx));
    json_quote(&line, machine, strlen(machine));
    add_link(r, &line);
    free(line.data);
}

void link_checkpoint(run *r)
{
    const chain *c = &r->journal.chain;
    if (!c->on || !is_first() || !is_linked(r, r->step) || (c->links > 1 && c->step == r->step)) return;
    const char *slash = strrchr(r->saved, '/');
    link_file(r, r->saved, slash ? slash + 1 : r->saved);
}

void link_model(run *r)
{
    char *path = join_path(r->folder, "model.safetensors");
    if (r->journal.chain.on && is_first()) {
        if (!r->journal.chain.done) link_file(r, path, "model.safetensors");
        journal_print(&r->journal, "chain: %s. To check that the run still has this hash: tn audit %s --published HASH\n",
                      r->journal.chain.last, r->folder);
    }
    free(path);
}

/* A note of a checkpoint; fails if it has none under that key. */
const char *checkpoint_note(const tn_safetensors *st, const char *path, const char *key)
{
    const char *value = tn_safetensors_metadata(st, key);
    if (!value) fail("%s is not a checkpoint of tn train: it has no \"%s\"", path, key);
    return value;
}

int64_t checkpoint_count(const tn_safetensors *st, const char *path, const char *key)
{
    const char   *text = checkpoint_note(st, path, key);
    const size_t  digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 15 || text[digits])
        fail("%s has %s \"%s\", expected a whole number of at most 15 digits", path, key, text);
    return strtoll(text, NULL, 10);
}

tn_safetensors *open_checkpoint(const char *path, tn_ctx **look)
{
    char why[256];
    if (tn_ctx_create(NULL, look, why) != TN_OK) fail("%s", why);
    tn_safetensors *st = tn_safetensors_open(*look, tn_source_path(path));
    if (!st) fail("%s", tn_ctx_error(*look));
    if (strcmp(checkpoint_note(st, path, "tn.format"), RUN_FORMAT))
        fail("%s has format %s, expected format %s (this is tn %s)", path, checkpoint_note(st, path, "tn.format"),
             RUN_FORMAT, tn_version());
    return st;
}
