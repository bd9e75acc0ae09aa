/* unfit.cu: every mistake that nvcc.sh forbids. `make test-all` proves with it that they are found; it never runs. */

/* >>cuda-port   */
/* >>cuda-port     */
#define LAUNCH(kernel, ...) kernel<<<1, 32>>>(__VA_ARGS__)
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WGMMA(d) asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %4, 1, 1, 1, 0, 0;" \
                              : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(0ull))
#define BULK(y) asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%0}], [%0];" \
                             : : "r"(0), "l"(y) : "memory")
#define REGISTERS() asm volatile("setmaxnreg.inc.sync.aligned.u32 240;")
#else
#define WGMMA(d) (void)d
#define BULK(y) (void)y
#define REGISTERS() (void)0
#endif
/* >>cuda-state    */

template <class T> static __global__ void no_line(T *y) { y[threadIdx.x] *= 2; }
static __global__ void in_double(float *y) { y[threadIdx.x] = (float)(y[threadIdx.x] * 0.1); }
static __global__ void no_mma(float *y) { y[threadIdx.x] = 1; }
template <bool SOME> static __global__ void no_wgmma(float *y)
{
    float d[4] = {0, 0, 0, 0};
    if (SOME) WGMMA(d);
    y[threadIdx.x] = d[0];
}
template <bool SOME> static __global__ void no_tma(float *y) { if (SOME) BULK(y); y[threadIdx.x] = 1; }
static __global__ void keeps_its_registers(float *y) { REGISTERS(); y[threadIdx.x] = 1; }
static __global__ void __launch_bounds__(384, 2) too_few_registers(float *y) { REGISTERS(); y[threadIdx.x] = 1; }
static __global__ void serialised(float *y)
{
    float d[4] = {0, 0, 0, 0};
    WGMMA(d);
    d[0] *= 3;
    WGMMA(d);
    y[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
__global__ void seen_outside(float *y) { y[threadIdx.x] = 1; }

template <class T> static __global__ void too_much(T *y, int at)
{
    __shared__ T s[64];
    T local[64];
    for (int i = 0; i < 64; i++) local[i] = s[i] = y[i];
    y[at] = local[at] + s[at];
}

extern "C" void tn_cuda_backend(float *y)
{
    LAUNCH(no_line<float>, y);
    LAUNCH(no_line<double>, (double *)y);
    LAUNCH(in_double, y);
    LAUNCH(no_mma, y);
    LAUNCH(no_wgmma<true>, y);
    LAUNCH(no_wgmma<false>, y);
    LAUNCH(no_tma<true>, y);
    LAUNCH(no_tma<false>, y);
    LAUNCH(keeps_its_registers, y);
    LAUNCH(too_few_registers, y);
    LAUNCH(serialised, y);
    LAUNCH(seen_outside, y);
    LAUNCH(too_much<float>, y, 3);
}
