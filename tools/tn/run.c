/* run.c - a run's folder, models from it, generating text */
#include "tn.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *join_path(const char *folder, const char *file)
{
    size_t n = strlen(folder);
    return format_text("%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", file);
}

char *checkpoint_path(const char *folder, int64_t step)
{
    char name[64];
    snprintf(name, sizeof name, "step-%08lld.safetensors", (long long)step);
    return join_path(folder, name);
}

static int by_number(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int64_t list_checkpoints(const char *folder, int64_t **steps)
{
    DIR           *d = opendir(folder);
    struct dirent *e;
    int64_t        count = 0;
    *steps = NULL;
    while (d && (e = readdir(d)) != NULL) {
        long long step;
        char      name[64];
        if (sscanf(e->d_name, "step-%lld.safetensors", &step) != 1 || step < 0) continue;
        snprintf(name, sizeof name, "step-%08lld.safetensors", step);
        if (strcmp(name, e->d_name)) continue;
        *steps = (int64_t *)resize(*steps, (size_t)(count + 1), sizeof **steps);
        (*steps)[count++] = step;
    }
    if (d) closedir(d);
    if (count) qsort(*steps, (size_t)count, sizeof **steps, by_number);
    return count;
}

void check_new_folder(const char *name, const char *folder)
{
    DIR           *d = opendir(folder);
    struct dirent *e;
    if (!d && errno != ENOENT) fail("%s: %s: %s", name, folder, strerror(errno));
    while (d && (e = readdir(d)) != NULL)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            fail("%s: %s contains %s, expected a new or empty folder", name, folder, e->d_name);
    if (d) closedir(d);
}

/* Removes the partial checkpoints of a run that was killed. */
void remove_partial_files(const char *folder)
{
    DIR           *d = opendir(folder);
    struct dirent *e;
    while (d && (e = readdir(d)) != NULL) {
        if (!strncmp(e->d_name, "step-", 5) && strstr(e->d_name, ".safetensors.t") && ends_with(e->d_name, ".tmp")) {
            char *path = join_path(folder, e->d_name);
            unlink(path);
            free(path);
        }
    }
    if (d) closedir(d);
}

void check_vocabulary(const tn_tokenizer *t, const char *name, int64_t vocab)
{
    if (tn_tokenizer_count(t) != vocab)
        fail("%s has %lld tokens, expected %lld, the vocabulary of the model: give its --tokenizer", name,
             (long long)tn_tokenizer_count(t), (long long)vocab);
}

char *newest_checkpoint(const char *folder, int64_t *step)
{
    int64_t *steps, count = list_checkpoints(folder, &steps);
    char    *path = NULL, why[256];
    tn_ctx  *ctx;
    if (tn_ctx_create(NULL, &ctx, why) != TN_OK) fail("%s", why);
    for (int64_t i = count - 1; i >= 0; i--) {
        path = checkpoint_path(folder, *step = steps[i]);
        if (tn_checkpoint_check(ctx, tn_source_path(path)) == TN_OK) break;
        if (tn_ctx_status(ctx) != TN_ERR_FORMAT) fail("%s", tn_ctx_error(ctx));
        if (!i) fail("%s; no older checkpoint is left", tn_ctx_error(ctx));
        warn("%s; the checkpoint before it is used", tn_ctx_error(ctx));
        tn_ctx_clear_error(ctx);
        free(path);
    }
    tn_ctx_destroy(ctx);
    free(steps);
    return path;
}

/* Fails if a file is damaged. */
static void check_weights(const char *path)
{
    char    why[256];
    tn_ctx *ctx;
    if (tn_ctx_create(NULL, &ctx, why) != TN_OK) fail("%s", why);
    if (tn_checkpoint_check(ctx, tn_source_path(path)) != TN_OK) fail("%s", tn_ctx_error(ctx));
    tn_ctx_destroy(ctx);
}

char *find_weights(const char *path)
{
    int64_t step;
    if (!is_folder(path)) {
        if (!is_file(path)) fail("%s: no such run or file", path);
        check_weights(path);
        return copy_text(path);
    }
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};      /* one file, or several */
    char *file;
    for (int i = 0; i < 2; i++) {
        file = join_path(path, names[i]);
        if (is_file(file)) return file;
        free(file);
    }
    file = newest_checkpoint(path, &step);
    if (!file) fail("%s holds no model, expected model.safetensors or step-NNNNNNNN.safetensors", path);
    return file;
}

char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? format_text("%.*s", (int)(slash - path) + 1, path) : copy_text("./");
}

char *size_refusal(const tn_transformer_desc *desc, const tn_safetensors *st, const char *path, int64_t shared)
{
    const double needed = (double)tn_transformer_cost_of(desc, 1).params;
    double       there = 0;
    for (int64_t i = 0; i < tn_safetensors_count(st); i++) {
        const tn_safetensors_entry *e = tn_safetensors_at(st, i);
        double                      numbers = 1;
        for (int64_t k = 0; k < e->rank; k++) numbers *= (double)e->shape[k];
        there += numbers;
    }
    if (needed <= there * (double)shared) return NULL;
    return format_text("%s holds %.4g numbers, expected the %.4g of the model that its config describes", path, there, needed);
}

void check_size(const tn_transformer_desc *desc, const tn_safetensors *st, const char *path)
{
    char *why = size_refusal(desc, st, path, 1);
    if (why) fail("%s", why);
}

/* Ids, separated by spaces; `text` may be NULL. Returns how many are below vocab, at most `max`. */
static int read_note_ids(const char *text, int64_t vocab, int32_t *ids, int max)
{
    char *end;
    int   count = 0;
    while (text && count < max) {
        long id = strtol(text, &end, 10);
        if (end == text) break;
        if (id >= 0 && id < vocab) ids[count++] = (int32_t)id;
        text = end;
    }
    return count;
}

/* Reports tensors that the model has no place for; those of an optimiser are in every checkpoint. A tied table may be in the file
   under both names, if they are equal. */
static void report_unread(tn_safetensors *st, const model *m, const char *path)
{
    const char *first = NULL;
    int64_t     count = 0;
    for (int64_t i = 0; i < tn_safetensors_count(st); i++) {
        const char     *name = tn_safetensors_at(st, i)->name;
        const tn_param *p = tn_params_find(m->params, name);
        if (p && strcmp(p->name, name) && tn_safetensors_find(st, p->name) != tn_safetensors_at(st, i)
            && !tn_safetensors_equal(st, name, p->name))
            fail("%s: tensor %s differs from %s, to which the model's config ties it", path, name, p->name);
        if (p || !strncmp(name, "optim.", 6)) continue;
        if (!count++) first = name;
    }
    if (count) warn("%s: %lld of its tensors are not read, as the model has no place for them, such as %s", path, (long long)count,
                    first);
}

void open_model_in(tn_ctx *ctx, model *m, const char *path, const char *tokenizer, char **weights)
{
    char *file = find_weights(path), *folder = folder_of(file), *beside = join_path(folder, "config.json");
    memset(m, 0, sizeof *m);
    m->ctx = ctx;
    tn_safetensors *st = tn_safetensors_open(m->ctx, tn_source_path(file));
    check_ctx(m->ctx, "weights");
    const char *text = tn_safetensors_metadata(st, "tn.model");
    if (text) tn_transformer_config_read(m->ctx, tn_source_memory(text, strlen(text)), &m->desc);
    else if (is_file(beside)) tn_transformer_config_read(m->ctx, tn_source_path(beside), &m->desc);
    else fail("%s does not describe its model, expected %s beside it", file, beside);
    check_ctx(m->ctx, text ? file : "model");
    check_size(&m->desc, st, file);
    m->start_count = read_note_ids(tn_safetensors_metadata(st, "tn.begin"), m->desc.vocab, m->start, START_TOKENS);
    m->stop_count = read_note_ids(tn_safetensors_metadata(st, "tn.stop"), m->desc.vocab, m->stop, STOP_TOKENS);
    m->imported = tn_safetensors_metadata(st, "tn.import") != NULL;
    text = tn_safetensors_metadata(st, "tn.bos");
    m->plain_prompt = text && !strcmp(text, "none");
    free(beside);
    beside = tokenizer ? copy_text(tokenizer) : join_path(folder, "tokenizer.json");
    m->tokenizer = open_tokenizer(m->ctx, tokenizer || is_file(beside) ? beside : NULL);
    if (tokenizer || is_file(beside)) {
        if (!m->imported || tn_tokenizer_count(m->tokenizer) > m->desc.vocab)
            check_vocabulary(m->tokenizer, beside, m->desc.vocab);
    } else if (tn_tokenizer_count(m->tokenizer) != m->desc.vocab) {     /* trained on a shard: no text, but ids */
        tn_tokenizer_destroy(m->tokenizer);
        m->tokenizer = NULL;
    }
    m->params = tn_params_create(m->ctx);
    tn_transformer_init(m->params, "", &m->desc, &m->net);
    check_ctx(m->ctx, "the model");
    tn_params_freeze(m->params, "");
    tn_params_read(m->params, tn_source_path(file), TN_MATCH_IGNORE_EXTRA);
    check_ctx(m->ctx, "weights");
    report_unread(st, m, file);
    tn_safetensors_close(st);
    free(beside);
    free(folder);
    if (weights) *weights = file;
    else free(file);
}

void open_model(model *m, const char *path, const char *tokenizer, const tn_desc *desc, char **weights)
{
    char    why[256], *file = find_weights(path);
    tn_ctx *ctx;
    if (tn_ctx_create(desc, &ctx, why) != TN_OK) fail("%s", why);
    open_model_in(ctx, m, file, tokenizer, weights);
    free(file);
}

void compact_model(model *m, int weights)
{
    tn_compact_error e;
    if (weights == TN_WEIGHT_F32) return;
    tn_transformer_compact(&m->net, (tn_weight_kind)weights, &e);
    check_ctx(m->ctx, "--weights");
    warn("weights in %s: %.1f MB per token instead of %.1f; relative error %.4f (root mean square; the most in %s), at most "
         "%.4f of the largest weight", tn_weight_kind_name((tn_weight_kind)weights), (double)e.bytes / 1e6, (double)e.count * 4e-6,
         e.rms, e.worst[0] ? e.worst : "none", e.largest);
}

char *config_json(const model *m)
{
    size_t used = 0;
    tn_transformer_config_write(m->ctx, &m->desc, tn_sink_memory(NULL, 0, &used));
    char *text = (char *)allocate(used + 1, 1);
    tn_transformer_config_write(m->ctx, &m->desc, tn_sink_memory(text, used, &used));
    check_ctx(m->ctx, "config.json");
    return text;
}

void close_model(model *m)
{
    tn_ctx_destroy(m->ctx);
    memset(m, 0, sizeof *m);
}

/* ---- backends ---------------------------------------------------------------------------- */

void use_backend(tn_desc *desc, int place, int64_t device)
{
    desc->device = (int)device;
    desc->backend_required = true;
    desc->backend = place == 1 ? tn_reference_backend() : tn_cpu_backend();
    if (place < 2) return;
#ifdef TN_TOOL_CUDA
    desc->backend = tn_cuda_backend();
#else
    usage_error("--backend is cuda, expected cpu or reference: this tn was built without CUDA (make tn-cuda builds one "
                "with it)");
#endif
}

const char *machine_name(const tn_ctx *ctx, char *text, size_t bytes)
{
    const char *device = tn_ctx_device_name(ctx);
    snprintf(text, bytes, "%s %s", tn_ctx_backend_name(ctx), *device ? device : tn_ctx_simd_name(ctx));
    return text;
}

/* ---- text ------------------------------------------------------------------------------ */

char *decode_tokens(const tn_tokenizer *t, const int32_t *ids, int64_t count, size_t *bytes)
{
    int64_t n = tn_tokenizer_decode(t, ids, count, NULL, 0);
    if (n < 0) fail("the tokenizer cannot decode these ids");
    char *text = (char *)allocate((size_t)n + 1, 1);
    tn_tokenizer_decode(t, ids, count, text, (size_t)n + 1);
    *bytes = (size_t)n;
    return text;
}

/* ---- tokens as vectors ------------------------------------------------------------------------------------------------- */

static tn_tensor *keep_point(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    (void)ctx;
    (void)name;
    *(tn_tensor **)user = tn_tensor_keep(x);
    return NULL;                                /* nothing after it is needed */
}

/* Runs single tokens [count] up to a point, whose value is returned, owned. */
static tn_tensor *point_of_tokens(tn_ctx *ctx, const tn_transformer *net, const int32_t *ids, int64_t count, const char *point)
{
    const int64_t shape[2] = {count, 1};
    tn_tensor    *x = NULL;
    tn_tap        tap = {point, keep_point, NULL};
    tap.user = &x;
    tn_ctx_reset(ctx);
    tn_transformer_run(ctx, net, tn_tensor_from(ctx, 2, shape, TN_I32, ids), &tap, 1);
    if (!x) check_ctx(ctx, "single tokens");
    tn_ctx_clear_error(ctx);                    /* that the run was stopped */
    tn_ctx_reset(ctx);
    return x;
}

tn_tensor *token_vectors(tn_ctx *ctx, const tn_transformer *net, const int32_t *ids, int64_t count)
{
    const tn_norm *norm = &net->blocks[0].norm1;
    const int64_t  shape[2] = {count, net->desc.dim}, dim = net->desc.dim;
    tn_tensor     *x = point_of_tokens(ctx, net, ids, count, "embed");
    double        *v = numbers_in(x);
    tn_tensor_destroy(x);
    for (int64_t i = 0; i < count && !net->desc.no_norm; i++) {
        double mean = 0, square = 0, *row = v + i * dim;
        for (int64_t k = 0; k < dim && norm->desc.kind == TN_NORM_LAYER; k++) mean += row[k] / (double)dim;
        for (int64_t k = 0; k < dim; k++) square += (row[k] - mean) * (row[k] - mean) / (double)dim;
        for (int64_t k = 0; k < dim; k++) row[k] /= sqrt(square + norm->desc.eps);
    }
    tn_tensor *to = tn_tensor_create(ctx, TN_REAL, 2, shape);
    tn_write(to, TN_F64, v, count * dim);
    check_ctx(ctx, "embeddings");
    free(v);
    return to;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double typical_unit_of(tn_ctx *ctx, const tn_transformer *net)
{
    enum { MOST = 64 };
    const int64_t V = net->desc.vocab, n = V < MOST ? V : MOST;
    int32_t       ids[MOST];
    if (net->desc.no_norm || net->desc.norm_place == TN_PLACE_POST) return 1;
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)(i * V / n);
    tn_tensor *x = point_of_tokens(ctx, net, ids, n, "norm.scale");
    double    *scale = numbers_in(x);
    tn_tensor_destroy(x);
    qsort(scale, (size_t)n, sizeof *scale, by_size);
    const double unit = scale[n / 2] > 0 ? scale[n / 2] : 1;
    free(scale);
    return unit;
}

char *token_name(const tn_tokenizer *t, int64_t id)
{
    const int32_t twice[2] = {(int32_t)id, (int32_t)id};     /* before the first, a space may be left out */
    const char   *token = tn_tokenizer_token(t, id);
    size_t        bytes, first, n;
    buffer        b = {0};
    if (tn_tokenizer_unk(t) >= 0) return copy_text(token ? token : "");
    free(decode_tokens(t, twice, 1, &first));
    char *text = decode_tokens(t, twice, 2, &bytes);
    for (size_t i = first; i < bytes; i += n ? n : 1) {
        const unsigned char c = (unsigned char)text[i];
        n = (size_t)utf8_length(text + i, bytes - i);
        if (c == ' ') buffer_print(&b, "\xC2\xB7");
        else if (c == '\n') buffer_print(&b, "\\n");
        else if (!n || c < ' ' || c == 0x7F) buffer_print(&b, "<%02X>", c);
        else buffer_add(&b, text + i, n);
    }
    free(text);
    if (!b.data) return copy_text(token ? token : "");
    buffer_add(&b, "", 1);
    return b.data;
}

void check_same_tokens(const tn_tokenizer *t, const char *path, const tn_tokenizer *its, const char *other)
{
    for (int64_t i = 0; i < tn_tokenizer_count(t) && i < tn_tokenizer_count(its); i++) {
        char *name = token_name(t, i), *there = token_name(its, i);
        if (strcmp(name, there))
            fail("token %lld is %s in %s, expected %s, as in %s: the two models need one tokenizer", (long long)i, there, other,
                 name, path);
        free(name);
        free(there);
    }
}

int64_t token_of(const tn_tokenizer *t, const char *text)
{
    const int64_t named = tn_tokenizer_id(t, text);
    int32_t       id[2];
    if (named >= 0) return named;
    if (tn_tokenizer_encode(t, text, strlen(text), TN_BOS_NONE, id, 2, NULL) != 1 || id[0] == tn_tokenizer_unk(t)) return -1;
    return id[0];
}

int64_t find_token(const tn_tokenizer *t, int64_t vocab, const char *text)
{
    const int64_t known = t ? tn_tokenizer_count(t) : 0;
    const char   *digits = text + (*text == '#');
    suggestion    best = {NULL, 0};
    int64_t       id = t ? token_of(t, text) : -1;
    if (id >= 0) return id;
    char **names = (char **)allocate((size_t)known, sizeof *names); /* as tables show them, with dots and escapes */
    for (int64_t i = 0; i < known; i++) {
        names[i] = token_name(t, i);
        if (!strcmp(names[i], text)) id = i;
        if (*text) consider_word(&best, text, names[i]);
    }
    if (id < 0 && *digits >= '0' && *digits <= '9') {
        char *end;
        id = strtoll(digits, &end, 10);
        if (*end) id = -1;
    }
    if (id >= 0 && id < vocab) {
        for (int64_t i = 0; i < known; i++) free(names[i]);
        free(names);
        return id;
    }
    if (!known)
        fail("\"%s\" is not a token's number, expected 0 to %lld: the model has no tokenizer (--tokenizer FILE)", text,
             (long long)vocab - 1);
    if (best.word) fail("\"%s\" is not a token of the vocabulary; did you mean %s?", text, best.word);
    fail("\"%s\" is not a token of the vocabulary, expected one, or a number from 0 to %lld", text, (long long)vocab - 1);
    return -1;
}

int64_t listed_ids(const model *m, const char *text, int32_t **ids, char **why, int *status)
{
    int64_t count = 0;
    *ids = (int32_t *)allocate(strlen(text) + 1, sizeof **ids);
    *why = NULL;
    for (;;) {
        char *end;
        text += strspn(text, " ,\t\n");
        if (!*text) return count;
        long long id = strtoll(text, &end, 10);
        *status = end == text || !strchr(" ,\t\n", *end) ? EXIT_USAGE : EXIT_ERROR;
        if (*status == EXIT_USAGE) *why = format_text("\"%s\" is not an id, expected ids such as \"1 2 3\"", text);
        else if (id < 0 || id >= m->desc.vocab)
            *why = format_text("id %lld is outside the vocabulary, expected 0 <= id < %lld", id, (long long)m->desc.vocab);
        if (*why) {
            free(*ids);
            *ids = NULL;
            return -1;
        }
        (*ids)[count++] = (int32_t)id;
        text = end;
    }
}

int64_t text_ids(const model *m, const char *text, int64_t length, const char *name, int32_t **ids)
{
    const int64_t most = length ? length : m->desc.context;
    char         *why = NULL;
    int           status;
    int64_t n = m->tokenizer ? prompt_tokens(m, text, 1, ids) : listed_ids(m, text, ids, &why, &status);
    if (why) fail("%s is of ids, as the model has no tokenizer (--tokenizer FILE): %s", name, why);
    if (n < 1) fail("%s has no tokens, expected 1 or more", name);
    if (n > most)
        fail("%s has %lld tokens, expected at most %lld, %s", name, (long long)n, (long long)most,
             length ? "--length" : "the model's context: --length N allows more");
    return n;
}

/* The bytes of a text without an incomplete character at its end; the first `shown` are not looked at. */
static size_t whole_characters(const char *text, size_t bytes, size_t shown)
{
    size_t last = bytes;
    while (last > shown && bytes - last < 3 && ((unsigned char)text[last - 1] & 0xC0) == 0x80) last--;
    if (last > shown && (unsigned char)text[last - 1] >= 0xC0 && utf8_length(text + last - 1, bytes - last + 1) == 0)
        return last - 1;
    return bytes;
}

/* The bytes at the end of a text that `stop` may begin with. */
static size_t possible_stop(const char *text, size_t bytes, const char *stop)
{
    size_t k = strlen(stop) - 1;
    if (k > bytes) k = bytes;
    while (memcmp(text + bytes - k, stop, k)) k--;
    return k;
}

/* Passes on the text after the first `shown` bytes, but not what more tokens may turn into a character or, after the
   prompt's bytes, into s->stop. Returns whether that was found. last: no more tokens follow. */
static bool show_new(const model *m, const int32_t *ids, int64_t count, const sampling *s, size_t prompt, size_t *shown,
                     bool last)
{
    size_t n;
    if (!m->tokenizer || (!s->show && !s->stop)) return false;
    char       *text = decode_tokens(m->tokenizer, ids, count, &n);
    const char *found = s->stop && n > prompt ? find_text(text + prompt, n - prompt, s->stop) : NULL;
    if (found) n = (size_t)(found - text);
    else if (!last) {
        n = whole_characters(text, n, *shown);
        if (s->stop && n > prompt) n -= possible_stop(text + prompt, n - prompt, s->stop);
    }
    if (n > *shown && s->show) s->show(s->user, text + *shown, n - *shown);
    if (n > *shown) *shown = n;
    free(text);
    return found != NULL;
}

/* log p of a token under softmax(logits) */
static double logprob_of(const float *logits, int64_t vocab, int32_t id)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < vocab; i++) if (logits[i] > most) most = logits[i];
    for (int64_t i = 0; i < vocab; i++) sum += exp(logits[i] - most);
    return logits[id] - most - log(sum);
}

void report_unknown(const model *m, const char *prompt)
{
    const size_t  n = strlen(prompt);
    const int32_t unknown = (int32_t)tn_tokenizer_unk(m->tokenizer);
    token_list    l = {0};
    const int64_t count = add_tokens(&l, m->ctx, m->tokenizer, prompt, n, TN_BOS_NONE, true);
    int64_t       found = 0;
    buffer        words = {0};
    for (int64_t i = 0; i < count && unknown >= 0; i++) {
        if (l.ids[i] != unknown) continue;
        if (found++ >= 5) continue;
        buffer_print(&words, found > 1 ? ", " : "");
        json_quote(&words, prompt + l.spans[i].begin, l.spans[i].end - l.spans[i].begin);
    }
    if (found)
        warn("%lld part%s of the prompt %s not in the vocabulary and become%s [UNK]: %s%s", (long long)found,
             found == 1 ? "" : "s", found == 1 ? "is" : "are", found == 1 ? "s" : "", words.data, found > 5 ? ", ..." : "");
    free(words.data);
    free(l.ids);
    free(l.spans);
}

int64_t prompt_tokens(const model *m, const char *prompt, uint64_t seed, int32_t **ids)
{
    const bool learnt = m->start_count == 0;
    const bool bos = learnt && tn_tokenizer_bos(m->tokenizer) >= 0 && !(m->plain_prompt && *prompt);
    token_list l = {0};
    int64_t    n = add_tokens(&l, m->ctx, m->tokenizer, prompt, strlen(prompt), bos ? TN_BOS_FIRST : TN_BOS_NONE, false);
    *ids = l.ids;
    if (n == 0 && !learnt) (*ids)[n++] = m->start[splitmix64(seed) % (uint64_t)m->start_count];
    return n;
}

static bool ends_text(const model *m, int32_t id)
{
    for (int i = 0; i < m->stop_count; i++) if (m->stop[i] == id) return true;
    return false;
}

int64_t generate_tokens(const model *m, int32_t *ids, int64_t count, const sampling *s)
{
    const int64_t vocab = m->desc.vocab, prompt = count;
    const int64_t known = tn_tokenizer_count(m->tokenizer), drawn = known > 0 && known < vocab ? known : vocab;
    int32_t       bos = (int32_t)tn_tokenizer_bos(m->tokenizer), eos = (int32_t)tn_tokenizer_eos(m->tokenizer);
    float        *logits = (float *)allocate((size_t)vocab, sizeof *logits);
    uint64_t      state = splitmix64(s->seed);
    size_t        shown = 0, prompt_bytes = 0;
    int64_t       fed = 0;
    bool          stopped = false;
    tn_transformer_cache *cache = tn_transformer_cache_create(m->ctx, &m->net, 1, s->length);
    check_ctx(m->ctx, "generating");
    if (m->tokenizer && s->stop) free(decode_tokens(m->tokenizer, ids, count, &prompt_bytes));
    show_new(m, ids, count, s, prompt_bytes, &shown, false);
    while (count < s->length && !stopped) {
        tn_ctx_reset(m->ctx);
        tn_tensor *x = tn_tensor_2d(m->ctx, TN_I32, 1, count - fed);
        tn_write(x, TN_I32, ids + fed, count - fed);
        tn_tensor *y = tn_transformer_decode(m->ctx, &m->net, x, cache);
        if (y) tn_read(tn_slice(y, 1, count - fed - 1, count - fed), TN_F32, logits, vocab);
        check_ctx(m->ctx, "generating");
        fed = count;
        int32_t id = (int32_t)tn_sample(logits, drawn, s->temperature, s->top_k, s->top_p, next_uniform(&state));
        if (id < 0) fail("generating: the logits of the model are not finite");
        if (!s->no_stop && (id == eos || id == bos || ends_text(m, id)) && count > prompt) break;
        if (s->chosen) s->chosen(s->user, id, logprob_of(logits, vocab, id));
        ids[count++] = id;
        stopped = show_new(m, ids, count, s, prompt_bytes, &shown, false);
    }
    if (!stopped) show_new(m, ids, count, s, prompt_bytes, &shown, true);
    tn_transformer_cache_destroy(cache);
    free(logits);
    return count;
}
