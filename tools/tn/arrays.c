/* arrays.c - arrays of .npy files, and tensors of safetensors files and of runs */
#include "tn.h"
#include <string.h>

char *array_file(const char *path)
{
    if (is_folder(path)) return find_weights(path);
    if (!is_file(path)) fail("%s: no such run or file", path);
    return copy_text(path);
}

bool is_npy(const char *path) { return ends_with(path, ".npy"); }

void no_such_tensor(const tn_safetensors *file, const char *path, const char *name, const char *end, const char *what)
{
    suggestion best = {NULL, 0};
    int64_t    i;
    for (i = 0; i < tn_safetensors_count(file); i++) {
        const tn_safetensors_entry *e = tn_safetensors_at(file, i);
        if (ends_with(e->name, end) && (!*end || e->rank == 3))
            consider_word(&best, name, format_text("%.*s", (int)(strlen(e->name) - strlen(end)), e->name));
    }
    if (best.word) fail("%s has no %s %s; did you mean %s?", path, what, name, best.word);
    fail("%s has no %s %s (tn info %s lists its tensors)", path, what, name, path);
}

tn_tensor *read_array(tn_ctx *ctx, const char *path, const char *name, const char *how, bool flat, char **found)
{
    tn_safetensors *file;
    tn_tensor      *t;
    if (is_npy(path)) {
        const char *slash = strrchr(path, '/');
        t = flat ? tn_npy_read_flat(ctx, tn_source_path(path)) : tn_npy_load(ctx, path);
        check_ctx(ctx, path);
        path = slash ? slash + 1 : path;
        if (found) *found = format_text("%.*s", (int)strlen(path) - 4, path);
        return t;
    }
    file = tn_safetensors_open(ctx, tn_source_path(path));
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
