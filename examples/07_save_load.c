/* 07_save_load.c - save and load: the parameters of a model, named tensors, one array for NumPy; every bit comes back

   cc -O2 -I. examples/07_save_load.c -o 07_save_load -lm && ./07_save_load

   A .safetensors file contains named tensors and short notes; Hugging Face's tools read and write the same format. A .npy
   file contains one array: numpy.load("noise.npy") opens it. A file is written under another name first and then renamed, so
   a program that is killed never leaves half a file. Readers check everything; a damaged file is an error with a reason. */
#include <stdio.h>
#include <string.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

/* A place for bytes that this program fills itself. It could as well be a network, an archive or a cipher. */
typedef struct shelf { unsigned char byte[1024]; size_t used; } shelf;

static bool put(void *user, const void *src, size_t bytes)
{
    shelf *s = (shelf *)user;
    if (bytes > sizeof s->byte - s->used) return false;     /* full: the save fails with a message */
    memcpy(s->byte + s->used, src, bytes);
    s->used += bytes;
    return true;
}

static bool get(void *user, uint64_t offset, void *dst, size_t bytes)
{
    memcpy(dst, ((shelf *)user)->byte + offset, bytes);
    return true;
}

/* Whether two tensors have the same 12 numbers, bit for bit. */
static bool same(const tn_tensor *a, const tn_tensor *b)
{
    float x[12], y[12];
    return tn_read(a, TN_F32, x, 12) == TN_OK && tn_read(b, TN_F32, y, 12) == TN_OK && memcmp(x, y, sizeof x) == 0;
}

int main(void)
{
    const int64_t shape[] = {3, 4};
    char          why[TN_WHY], small[10];
    float         raw[12];
    size_t        bytes = 0;
    tn_ctx       *ctx;
    tn_linear     layer, other;
    if (tn_ctx_create(&(tn_desc){ .seed = 1 }, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    /* The parameters of a model. Loading sets all of them, or none if a name or a shape does not fit. */
    tn_params *params = tn_params_create(ctx), *other_params = tn_params_create(ctx);
    tn_linear_init(params, "head", &(tn_linear_desc){ .in = 4, .out = 3, .bias = true }, &layer);
    /* other random numbers */
    tn_linear_init(other_params, "head", &(tn_linear_desc){ .in = 4, .out = 3, .bias = true }, &other);
    bool before = same(layer.w, other.w);
    tn_params_save(params, "model.safetensors");
    tn_params_load(other_params, "model.safetensors");
    bool params_equal = same(layer.w, tn_params_find(other_params, "head.w")->value);

    /* Any tensors, with notes. They are read one by one: opening the file reads only the list of its tensors. */
    tn_tensor *noise = tn_tensor_keep(tn_normal(ctx, 2, shape, 0, 1));
    tn_safetensors_write(ctx, tn_sink_path("noise.safetensors"), &(tn_named_tensor){ "noise", noise }, 1,
                         &(tn_metadata){ "made_by", "07_save_load" }, 1);
    tn_safetensors             *file = tn_safetensors_open(ctx, tn_source_path("noise.safetensors"));
    const tn_safetensors_entry *entry = file ? tn_safetensors_find(file, "noise") : NULL;
    if (entry) printf("noise.safetensors: %s %s [%d,%d], made by %s\n\n", entry->name, entry->dtype, (int)entry->shape[0],
                      (int)entry->shape[1], tn_safetensors_metadata(file, "made_by"));
    bool tensor_equal = file && same(noise, tn_safetensors_read(file, "noise"));
    bool raw_equal = file && tn_safetensors_read_bytes(file, "noise", raw, sizeof raw) == TN_OK;    /* without a tensor */
    tn_write(tn_slice(noise, 0, 0, 3), TN_F32, raw, raw_equal ? 12 : 0);
    raw_equal = raw_equal && same(noise, tn_safetensors_read(file, "noise"));

    /* One array. Everything that takes a path takes memory as well, and functions of your own. */
    static shelf own;
    tn_npy_save(noise, "noise.npy");
    bool array_equal = same(noise, tn_npy_load(ctx, "noise.npy"));
    tn_npy_write(noise, tn_sink_memory(NULL, 0, &bytes));               /* writes nothing, and counts the bytes */
    tn_npy_write(noise, tn_sink_calls(put, &own));
    bool calls_equal = same(noise, tn_npy_read(ctx, tn_source_calls(get, &own, own.used)));
    if (tn_ctx_status(ctx) != TN_OK) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }

    /* An invalid file is rejected with an error. */
    memset(small, 0, sizeof small);
    tn_tensor *damaged = tn_npy_read(ctx, tn_source_memory(small, sizeof small));
    printf("ten zeros as a .npy file: %s\n%s\n\n", damaged ? "a tensor" : "NULL", tn_ctx_error(ctx));

    printf("equal_before_loading: %s\nparameters_equal: %s\n", before ? "yes" : "no", params_equal ? "yes" : "no");
    printf("safetensors_equal: %s\nnpy_equal: %s\n", tensor_equal && raw_equal ? "yes" : "no", array_equal ? "yes" : "no");
    printf("npy_bytes: %d\nequal_by_calls: %s\n", (int)bytes, calls_equal && own.used == bytes ? "yes" : "no");
    tn_ctx_destroy(ctx);
    return 0;
}
