/* train.c - a bilinear layer that learns inside a page, while the page shows its interaction matrix and eigenvectors

   wasm.sh compiles this file with the library to WebAssembly for `tn demo`, and lesson.js calls it. Every call leaves its
   numbers in wasm_numbers, and returns how many there are, or -1 with the reason in wasm_words. */
#ifdef __wasm__
#define TN_NO_TEXT
#define TN_NO_MODELS
#define TN_NO_MPS
#define TN_NO_IMAGE
#define TN_NO_CONTRACTION
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#include "../look/wasm.h"

static tn_params *params;
static tn_optim  *optim;
static tn_mlp     layer;
static tn_tensor *inputs, *targets;     /* [rows,in] and, of classes, [rows] I32, else [rows,out]: owned */
static bool       classes;
static int64_t    train_rows, next_row;
static double     rate;

/* y = P ((W x) * (V x)); `bias` appends a one to x and to what P reads. Begins anew: another seed gives other first weights.
   seen: the first rows, which it learns from; the others are held out. With one output the loss is the squared error, with
   more the cross-entropy of the class in `answers`. Returns the number of parameters. */
int EXPORT(train_begin)(const float *data, size_t data_count, const float *answers, size_t rows, int hidden, int out, int bias,
                        int seen, int seed)
{
    const int64_t in = rows ? (int64_t)(data_count / rows) : 0;
    tn_mlp_desc   desc;
    if (in < 1 || seen < 1 || (size_t)seen > rows) return refuse("there are no inputs to learn from");
    if (!new_context((uint64_t)seed)) return -1;
    classes = out > 1;
    train_rows = seen;
    next_row = 0;
    rate = 0;
    optim = NULL;
    inputs = tn_tensor_2d(ctx, TN_REAL, (int64_t)rows, in);
    tn_write(inputs, TN_F32, data, (int64_t)data_count);
    targets = classes ? tn_tensor_1d(ctx, TN_I32, (int64_t)rows) : tn_tensor_2d(ctx, TN_REAL, (int64_t)rows, 1);
    if (classes) {
        int32_t *ids = (int32_t *)malloc(rows * sizeof *ids);
        if (!ids) return refuse("out of memory");
        for (size_t i = 0; i < rows; i++) ids[i] = (int32_t)answers[i];
        tn_write(targets, TN_I32, ids, (int64_t)rows);
        free(ids);
    } else tn_write(targets, TN_F32, answers, (int64_t)rows);
    inputs = tn_tensor_keep(inputs);
    targets = tn_tensor_keep(targets);
    memset(&desc, 0, sizeof desc);
    desc.in = in;
    desc.hidden = hidden;
    desc.out = out;
    desc.bias = desc.out_bias = bias != 0;
    params = tn_params_create(ctx);
    tn_mlp_init(params, "layer", &desc, &layer);
    if (!begin(0)) return end(-1);
    return end(tn_params_elements(params));
}

/* Plain gradient descent for one output, so that a step is the learning rate times the gradient; AdamW for classes. */
static void set_rate(double lr)
{
    tn_optim_desc desc;
    if (optim && lr == rate) return;
    tn_optim_destroy(optim);
    memset(&desc, 0, sizeof desc);
    desc.kind = classes ? TN_OPTIM_ADAMW : TN_OPTIM_SGD;
    desc.lr = rate = lr;
    desc.weight_decay = classes ? 0.1 : 0;
    optim = tn_optim_create(params, &desc);
}

static tn_tensor *rows_of(tn_tensor *t, int64_t first, int64_t count) { return tn_slice(t, 0, first, first + count); }

/* The rows [first,first+count): their loss, and the share that is right, added to sums[0] and sums[1]. */
static tn_tensor *measure(int64_t first, int64_t count, double noise, double *sums)
{
    tn_tensor *x = rows_of(inputs, first, count), *y = rows_of(targets, first, count);
    tn_tensor *answer = tn_mlp_forward(ctx, &layer, noise > 0 ? tn_noise(ctx, x, noise) : x);
    tn_tensor *loss = classes ? tn_cross_entropy(ctx, answer, y) : tn_mse(ctx, answer, y);
    if (classes) sums[1] += tn_item(tn_accuracy(ctx, answer, y));
    sums[0] += tn_item(loss);
    return loss;
}

/* Learns for some steps, each from the next `batch` rows. numbers: the mean loss of these steps, and the share of right
   answers. */
int EXPORT(train_steps)(int steps, int batch, double lr, double noise)
{
    double sums[2] = {0, 0};
    if (!params || batch < 1 || batch > train_rows || steps < 1) return refuse("nothing to learn from");
    set_rate(lr);
    for (int i = 0; i < steps && tn_ctx_status(ctx) == TN_OK; i++) {
        if (next_row + batch > train_rows) next_row = 0;
        tn_ctx_reset(ctx);
        tn_record(ctx);
        tn_tensor *loss = measure(next_row, batch, noise, sums);
        if (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK) break;
        next_row += batch;
    }
    if (!begin(2)) return end(-1);
    numbers[0] = sums[0] / steps;
    numbers[1] = sums[1] / steps;
    return end(2);
}

/* Loss and share of right answers for the rows that are held out. */
int EXPORT(train_held_out)(void)
{
    double sums[2] = {0, 0};
    if (!params || inputs->shape[0] == train_rows) return refuse("no rows are held out");
    measure(train_rows, inputs->shape[0] - train_rows, 0, sums);
    if (!begin(2)) return end(-1);
    memcpy(numbers, sums, sizeof sums);
    return end(2);
}

/* The outputs for some inputs [rows,in]: numbers [rows,out]. */
int EXPORT(train_answers)(const float *x, size_t count)
{
    const int64_t rows = params ? (int64_t)count / layer.desc.in : 0;
    tn_tensor    *t = params ? tn_tensor_2d(ctx, TN_REAL, rows, layer.desc.in) : NULL;
    tn_write(t, TN_F32, x, rows * layer.desc.in);
    if (!params || !begin(rows * layer.desc.out)) return refuse("nothing has begun");
    tn_read(tn_mlp_forward(ctx, &layer, t), TN_F64, numbers, rows * layer.desc.out);
    return end(rows);
}

/* The interaction matrix of an output: numbers [n,n], n one more than the inputs if there are biases. */
int EXPORT(train_matrix)(int output)
{
    tn_cp     *cp = params ? tn_cp_from_mlp(ctx, &layer) : NULL;
    tn_tensor *q = cp ? tn_cp_interaction_of(cp, output) : NULL;
    const int64_t n = q ? q->shape[0] : 0;
    const bool    made = q && begin(n * n);
    if (made) tn_read(q, TN_F64, numbers, n * n);
    tn_tensor_destroy(q);
    tn_cp_destroy(cp);
    return end(made ? n : -1);
}

/* The `most` eigenpairs of largest magnitude of that matrix. Returns their number; numbers: the values, then the vectors. */
int EXPORT(train_eigenvectors)(int output, int most)
{
    tn_cp     *cp = params ? tn_cp_from_mlp(ctx, &layer) : NULL;
    tn_tensor *u = cp ? tn_full(ctx, 1, &cp->out, 0) : NULL;
    double     unit = 1;
    tn_eigenpairs   e;
    int64_t    count = -1;
    if (u) tn_write(tn_slice(u, 0, output, output + 1), TN_F64, &unit, 1);
    if (u && tn_cp_eigen(cp, u, most, &e) == TN_OK) {
        if (begin(e.count * (1 + e.n))) {
            count = e.count;
            tn_read(e.values, TN_F64, numbers, count);
            tn_read(e.vectors, TN_F64, numbers + count, count * e.n);
        }
        tn_eigenpairs_destroy(&e);
    }
    tn_cp_destroy(cp);
    return end(count);
}

/* The weights of an encoder, 0 for W and 1 for V, or 2 for P, [rows,columns]; where there are biases, [rows] of them follow.
   Returns the rows. */
int EXPORT(train_weights)(int which)
{
    tn_tensor *w = !params ? NULL : which < 2 ? tn_mlp_encoder(&layer, which) : layer.p;
    tn_tensor *b = !w ? NULL : which == 2 ? layer.pb : layer.b ? tn_slice(layer.b, 0, which, which + 1) : NULL;
    if (!w) return refuse("nothing has begun");
    const int64_t rows = w->shape[0], count = rows * w->shape[1];
    if (!begin(count + (b ? rows : 0))) return end(-1);
    tn_read(w, TN_F64, numbers, count);
    if (b) tn_read(b, TN_F64, numbers + count, rows);
    return end(rows);
}
