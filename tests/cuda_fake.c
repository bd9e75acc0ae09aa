/* cuda_fake.c: a tn_cuda_backend() that is the cpu in disguise, with the fault that TN_FAULT names. tests/cuda_fake.sh shows that
   test_cuda.c catches each of them, and nothing where there is none. */

#include "tensornet.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool faulty(const char *name)
{
    const char *wanted = getenv("TN_FAULT");
    return wanted && strcmp(wanted, name) == 0;
}

static double get(const tn_view *v, int64_t at)
{
    float f;
    if (v->dtype == TN_F64) return ((const double *)v->data)[at];
    if (v->dtype == TN_F32) return (double)((const float *)v->data)[at];
    uint16_t half = ((const uint16_t *)v->data)[at];
    uint32_t word = (uint32_t)half << 16;
    memcpy(&f, &word, sizeof f);
    return (double)f;
}

static void set(const tn_view *v, int64_t at, double x)
{
    float    f = (float)x;
    uint32_t word;
    if (v->dtype == TN_F64) { ((double *)v->data)[at] = x; return; }
    if (v->dtype == TN_F32) { ((float *)v->data)[at] = f; return; }
    memcpy(&word, &f, sizeof word);
    ((uint16_t *)v->data)[at] = (uint16_t)(x != x ? 0x7FC0 : (word + 0x7FFF + (word >> 16 & 1)) >> 16);
}

static int64_t count(const tn_view *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->rank; i++) n *= v->shape[i];
    return n;
}

/* Any mix of real types, in double. */
static tn_status gemm(const tn_call *c)
{
    const tn_view *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    for (int64_t z = 0; z < y->shape[0]; z++)
        for (int64_t i = 0; i < y->shape[1]; i++)
            for (int64_t j = 0; j < y->shape[2]; j++) {
                int64_t at = z * y->strides[0] + i * y->strides[1] + j * y->strides[2];
                double  sum = 0;
                for (int64_t k = 0; k < a->shape[2]; k++)
                    sum += get(a, z * a->strides[0] + i * a->strides[1] + k * a->strides[2]) * get(b, z * b->strides[0] + k * b->strides[1] + j * b->strides[2]);
                sum *= c->f[0];
                if (c->f[1] != 0 || faulty("gemm reads C")) sum += c->f[1] * get(y, at);
                if (c->n_in > 2 && c->in[2].data) sum += get(&c->in[2], j * c->in[2].strides[0]);
                set(y, at, sum);
            }
    return TN_OK;
}

static bool mixed(const tn_call *c)
{
    for (int i = 0; i < c->n_in + c->n_out; i++) {
        const tn_view *v = i < c->n_in ? &c->in[i] : &c->out[i - c->n_in];
        if (v->data && v->dtype == TN_BF16) return true;
    }
    return false;
}

static tn_status run(void *state, const tn_call *c)
{
    static unsigned calls;
    const tn_view *y = &c->out[0];
    if (c->kernel == TN_KERNEL_GEMM && (mixed(c) || faulty("gemm reads C"))) return gemm(c);
    if (c->kernel != TN_KERNEL_COPY && c->kernel != TN_KERNEL_FILL && mixed(c)) {
        if (faulty("refuses too late") && y->data && y->dtype != TN_I32 && count(y) > 0) set(y, 0, 7);
        return TN_ERR_DTYPE;
    }
    tn_status s = tn_cpu_backend()->fn[c->kernel](state, c);
    calls++;
    if (s != TN_OK || !y->data || y->dtype > TN_F64 || count(y) == 0) return s;
    if (c->kernel == TN_KERNEL_ACT && faulty("writes behind") && c->in[0].dtype == TN_F32) set(y, count(y), 1);
    if (c->kernel == TN_KERNEL_RMSNORM && faulty("writes before")) set(y, -1, 1);
    if (c->kernel == TN_KERNEL_GLU && faulty("writes an input")) set(&c->in[0], 0, 1);
    if (c->kernel == TN_KERNEL_ADD && faulty("a wrong number") && count(y) > 40) set(y, 17, get(y, 17) + 1e-3);
    if (c->kernel == TN_KERNEL_ATTENTION_BACKWARD && faulty("a wrong gradient")) set(&c->out[0], 0, get(&c->out[0], 0) * 1.001 + 1e-4);
    if (c->kernel == TN_KERNEL_SUM && faulty("differs from run to run") && y->dtype == TN_F32) set(y, 0, get(y, 0) * (1 + 1e-7 * (calls % 5)));
    if (c->kernel == TN_KERNEL_MUL && faulty("swallows NaN")) { for (int64_t i = 0; i < count(y) && y->rank < 2; i++)
        if (isnan(get(y, i))) set(y, i, 0); }
    if (c->kernel == TN_KERNEL_UNIFORM && faulty("another stream")) set(y, count(y) - 1, get(y, 0));
    if (c->kernel == TN_KERNEL_CROSS_ENTROPY && faulty("a label too many") && c->n_out > 2) ((int32_t *)c->out[2].data)[0] = 0;
    if (c->kernel == TN_KERNEL_ADAMW && faulty("a wrong update")) set(y, 0, get(y, 0) + 1e-6);
    return s;
}

static tn_status open_one(const tn_desc *desc, void **state, char why[256])
{
    if (desc->device == 0) {
        if (desc->log) desc->log(desc->log_user, TN_LOG_INFO, "cuBLAS: none, the cpu computes products");
        return tn_cpu_backend()->open(desc, state, why);
    }
    snprintf(why, 256, "desc.device is %d, but there is one", desc->device);
    return TN_ERR_BACKEND;
}

const tn_backend *tn_cuda_backend(void)
{
    static tn_backend fake;
    if (fake.abi) return &fake;
    fake = *tn_cpu_backend();
    fake.name = "fake";
    fake.host = false;
    fake.bf16 = true;
    fake.open = open_one;
    for (int k = 0; k < TN_KERNEL_COUNT; k++) fake.fn[k] = run;
    return &fake;
}
