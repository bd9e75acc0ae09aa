/* live_images.inl - a part of live.c: an image classifier answers for a picture */

/* ---- image classifiers ------------------------------------------------------------------------------------------------ */

static bool read_classifier(const void *bytes, size_t count)
{
    tn_safetensors *file = tn_safetensors_open(ctx, tn_source_memory(bytes, count));
    tn_tensor      *p = tn_safetensors_read(file, "p"), *f[2];
    f[0] = tn_safetensors_read(file, "f0");
    f[1] = tn_safetensors_read(file, "f1");
    quadratic = tn_cp_create(ctx, 2, p, f, TN_CP_INPUT_PLAIN);
    linear = constant = NULL;
    if (quadratic && tn_safetensors_find(file, "linear")) {
        linear = tn_safetensors_read(file, "linear");
        constant = tn_safetensors_read(file, "constant");
    }
    tn_safetensors_close(file);
    if (tn_ctx_status(ctx) != TN_OK) return false;
    pixels = quadratic->in[0];
    if (linear && (linear->rank != 2 || linear->shape[0] != quadratic->out || linear->shape[1] != pixels
                   || tn_tensor_count(constant) != quadratic->out)) return false;
    return quadratic->in[1] == pixels;
}

/* Opens an image classifier. Returns its number of classes; numbers: classes, pixels. */
int EXPORT(live_images)(const void *bytes, size_t count)
{
    forget();
    if (!new_context(0)) return -1;
    if (!read_classifier(bytes, count)) {
        quadratic = NULL;
        return refuse(tn_ctx_status(ctx) == TN_OK ? "the classifier's matrices do not fit together" : tn_ctx_error(ctx));
    }
    input = (double *)calloc((size_t)pixels, sizeof *input);
    class_list = (class_of *)calloc((size_t)quadratic->out, sizeof *class_list);
    if (!input || !class_list || !begin(2)) return refuse("out of memory");
    numbers[0] = (double)quadratic->out;
    numbers[1] = (double)pixels;
    return end(quadratic->out);
}

static bool class_is(int c) { return quadratic && c >= 0 && c < quadratic->out; }

static bool make_room(class_of *one, int64_t count)
{
    one->count = count;
    one->value = (double *)malloc((size_t)count * sizeof *one->value);
    one->off = (bool *)calloc((size_t)count, sizeof *one->off);
    one->vector = (double *)malloc((size_t)(count * pixels) * sizeof *one->vector);
    return one->value && one->off && one->vector;
}

/* Takes eigenpairs of a class that the page has already, value [count] and vector [count,pixels], in the order of |value|.
   Returns their number. */
int EXPORT(live_pairs)(int c, const float *value, size_t count, const float *vector, size_t numbers_of_vectors)
{
    class_of *one = class_is(c) ? &class_list[c] : NULL;
    if (!one || one->vector || !count || numbers_of_vectors != count * (size_t)pixels)
        return refuse("these are not eigenpairs of a class");
    if (!make_room(one, (int64_t)count)) return refuse("out of memory");
    for (size_t i = 0; i < count; i++) one->value[i] = (double)value[i];
    for (size_t i = 0; i < numbers_of_vectors; i++) one->vector[i] = (double)vector[i];
    return begin(0) ? end((int64_t)count) : end(-1);
}

/* The eigenpairs of a class, computed when they are first asked for, unless the page had them. */
static bool pairs_of(int64_t c)
{
    class_of     *one = &class_list[c];
    const int64_t most = pixels < 2 * quadratic->terms ? pixels : 2 * quadratic->terms;
    tn_eigenpairs      e;
    double        unit = 1;
    if (one->vector) return true;
    tn_tensor *u = tn_full(ctx, 1, &quadratic->out, 0);
    tn_write(tn_slice(u, 0, c, c + 1), TN_F64, &unit, 1);
    if (tn_cp_eigen(quadratic, u, most < PAIRS ? most : PAIRS, &e) != TN_OK) return false;
    bool room = make_room(one, e.count);
    if (room) {
        tn_read(e.values, TN_F64, one->value, e.count);
        tn_read(e.vectors, TN_F64, one->vector, e.count * pixels);
    }
    tn_eigenpairs_destroy(&e);
    return room;
}

/* value_k (v_k . x)^2 of the last picture: what eigenvector k adds to the logit of its class. */
static double says(const class_of *one, int64_t k)
{
    double dot = 0;
    for (int64_t i = 0; i < pixels; i++) dot += one->vector[k * pixels + i] * input[i];
    return one->value[k] * dot * dot;
}

static void logits_of_picture(void)
{
    tn_tensor *x = tn_tensor_2d(ctx, TN_REAL, 1, pixels);
    tn_write(x, TN_F64, input, pixels);
    tn_tensor *y = tn_cp_apply(ctx, quadratic, x);
    if (linear) y = tn_add(ctx, y, tn_affine(ctx, x, linear, constant));
    tn_read(y, TN_F64, numbers, quadratic->out);
    for (int64_t c = 0; c < quadratic->out; c++)
        for (int64_t k = 0; k < class_list[c].count; k++) if (class_list[c].off[k]) numbers[c] -= says(&class_list[c], k);
}

/* The logits of a picture [pixels], without the eigenvectors that are ablated. count 0: of the last picture again. */
int EXPORT(live_see)(const float *picture, size_t count)
{
    if (!quadratic || (count && count != (size_t)pixels)) return refuse("the picture is not of the model's size");
    if (!begin(quadratic->out)) return end(-1);
    for (size_t i = 0; i < count; i++) input[i] = (double)picture[i];
    logits_of_picture();
    return end(quadratic->out);
}

/* What the eigenvectors of a class add to its logit for the last picture, in the order of |value|. Returns their number;
   numbers: of each its value and what it adds; then the rest: all other eigenvectors, the linear part and the constant. */
int EXPORT(live_spoke)(int c)
{
    int64_t k;
    if (!class_is(c)) return refuse("there is no such class");
    if (!pairs_of(c) || !begin(quadratic->out)) return end(-1);
    logits_of_picture();
    double rest = numbers[c];
    if (!begin(2 * class_list[c].count + 1)) return end(-1);
    for (k = 0; k < class_list[c].count; k++) {
        numbers[2 * k] = class_list[c].value[k];
        numbers[2 * k + 1] = says(&class_list[c], k);
        if (!class_list[c].off[k]) rest -= numbers[2 * k + 1];
    }
    numbers[2 * k] = rest;
    return end(class_list[c].count);
}

/* The picture of an eigenvector of a class: numbers [pixels]. */
int EXPORT(live_picture)(int c, int k)
{
    if (!class_is(c) || !pairs_of(c) || k < 0 || k >= class_list[c].count) return refuse("there is no such eigenvector");
    if (!begin(pixels)) return end(-1);
    memcpy(numbers, class_list[c].vector + k * pixels, (size_t)pixels * sizeof *numbers);
    return end(pixels);
}
