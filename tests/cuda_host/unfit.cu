/* unfit.cu: every mistake that nvcc.sh forbids. `make test-all` proves with it that they are found; it never runs. */

/* >>cuda-port   */
/* >>cuda-port     */
#define LAUNCH(kernel, ...) kernel<<<1, 32>>>(__VA_ARGS__)
/* >>cuda-state    */

template <class T> static __global__ void no_line(T *y) { y[threadIdx.x] *= 2; }
static __global__ void in_double(float *y) { y[threadIdx.x] = (float)(y[threadIdx.x] * 0.1); }
static __global__ void no_mma(float *y) { y[threadIdx.x] = 1; }
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
    LAUNCH(seen_outside, y);
    LAUNCH(too_much<float>, y, 3);
}
