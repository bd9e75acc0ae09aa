/* arrays.c - arrays of .npy files, and tensors of safetensors files and of runs */
#include "tn.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

char *array_file(const char *path)
{
    if (is_folder(path)) return find_weights(path);
    if (!is_file(path)) fail("%s: no such run or file", path);
    return copy_text(path);
}

/* Whether a file belongs to the model of its folder, or only describes that of a file beside it. */
static bool is_of_model(const char *name, bool folder)
{
    static const char *const fixed[] = {"config.txt", "config.json", "tokenizer.json", "log.jsonl",
                                        "model.safetensors.index.json"};
    static const char *const begins[] = {"model", "step-", "best.", "weights-"};
    for (size_t k = 0; k < 5; k++) if (!strcmp(name, fixed[k])) return true;
    for (size_t k = 0; k < 4 && folder && ends_with(name, ".safetensors"); k++)
        if (!strncmp(name, begins[k], strlen(begins[k]))) return true;
    return false;
}

void check_not_model(const char *name, const char *out, const char *what, const char *from)
{
    const bool     folder = from && is_folder(from);
    char          *place = folder ? copy_text(from) : from ? folder_of(from) : NULL;
    DIR           *d = out && from ? opendir(place) : NULL;
    struct dirent *e;
    check_not_input(name, out, what, from);
    while (d && (e = readdir(d)) != NULL) {
        char *path = is_of_model(e->d_name, folder) ? join_path(place, e->d_name) : NULL;
        check_not_input(name, out, what, path);
        free(path);
    }
    if (d) closedir(d);
    free(place);
}

bool is_npy(const char *path) { return ends_with(path, ".npy"); }

void no_such_tensor(const tn_safetensors *file, const char *path, const char *name, const char *end, const char *what)
{
    suggestion best = {NULL, 0};
    for (int64_t i = 0; i < tn_safetensors_count(file); i++) {
        const tn_safetensors_entry *e = tn_safetensors_at(file, i);
        if (ends_with(e->name, end) && (!*end || e->rank == 3))
            consider_word(&best, name, format_text("%.*s", (int)(strlen(e->name) - strlen(end)), e->name));
    }
    if (best.word) fail("%s has no %s %s; did you mean %s?", path, what, name, best.word);
    fail("%s has no %s %s (tn info %s lists its tensors)", path, what, name, path);
}

tn_tensor *read_array(tn_ctx *ctx, const char *path, const char *name, const char *how, bool flat, char **found)
{
    tn_tensor *t;
    if (is_npy(path)) {
        const char *slash = strrchr(path, '/');
        t = flat ? tn_npy_read_flat(ctx, tn_source_path(path)) : tn_npy_load(ctx, path);
        check_ctx(ctx, path);
        path = slash ? slash + 1 : path;
        if (found) *found = format_text("%.*s", (int)strlen(path) - 4, path);
        return t;
    }
    tn_safetensors *file = tn_safetensors_open(ctx, tn_source_path(path));
    check_ctx(ctx, path);
    if (!name && tn_safetensors_count(file) == 1) name = tn_safetensors_at(file, 0)->name;
    if (!name)
        usage_error("%s has %lld tensors, expected %s (tn info %s lists them)", path,
                    (long long)tn_safetensors_count(file), how, path);
    if (!tn_safetensors_find(file, name)) no_such_tensor(file, path, name, "", "tensor");
    t = flat ? tn_safetensors_read_flat(file, name) : tn_safetensors_read(file, name);
    check_ctx(ctx, path);
    if (found) *found = copy_text(name);
    tn_safetensors_close(file);
    return t;
}
