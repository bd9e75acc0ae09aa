/* engine.cu: tests that the engine does what CUDA documents. planted.cu shows that it finds bugs. */

#include "cuda_host.h"
#define TEST_PROGRAM engine_tests
#include "test.h"
#include <vector>

#define WORKS(call)      CHECK_INT(call, cudaSuccess)
#define REPORTS(call, e)   do { CHECK_INT(call, e); (void)cudaGetLastError(); } while (0)

template <class T> struct device {
    T *p;
    size_t n;
    device(size_t count) : p(NULL), n(count) { cudaMalloc(&p, n * sizeof(T)); }
    device(const std::vector<T> &v) : device(v.size()) { cudaMemcpy(p, v.data(), n * sizeof(T), cudaMemcpyHostToDevice); }
    ~device() { cudaFree(p); }
    std::vector<T> get() const
    {
        std::vector<T> v(n);
        cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost);
        return v;
    }
};

/* After a test that broke the device: everything is as before. */
static void mend(void)
{
    tnch_clear();
    tnch_set_device(90);
    tnch_set_lazy(0);
    tnch_set_order(TNCH_FORWARD, 0);
    tnch_set_memory((size_t)1 << 30);
    tnch_fail_malloc(0);
    tnch_fail_launch(0);
}

/* ---- collectives ------------------------------------------------------------------------------------------------------ */

__global__ void shuffles(int kind, int argument, int width, int *y)
{
    int v = 100 + (int)threadIdx.x, r = 0;
    if (kind == 0) r = __shfl_sync(0xFFFFFFFFu, v, argument, width);
    if (kind == 1) r = __shfl_up_sync(0xFFFFFFFFu, v, (unsigned)argument, width);
    if (kind == 2) r = __shfl_down_sync(0xFFFFFFFFu, v, (unsigned)argument, width);
    if (kind == 3) r = __shfl_xor_sync(0xFFFFFFFFu, v, argument, width);
    y[threadIdx.x] = r;
}

/* The rules in the words of the programming guide */
static int shuffled(int kind, int argument, int width, int lane)
{
    int segment = lane / width * width, within = lane % width;
    if (kind == 0) return segment + argument % width;
    if (kind == 1) return within - argument < 0 ? lane : lane - argument;
    if (kind == 2) return within + argument >= width ? lane : lane + argument;
    return (lane ^ argument) >= segment + width ? lane : lane ^ argument;
}

TEST(shuffles_of_all_kinds)
{
    device<int> y(64);
    for (int kind = 0; kind < 4; kind++)
        for (int width = 1; width <= 32; width *= 2)
            for (int argument = 0; argument < 32; argument += 1 + argument / 4) {
                TNC_LAUNCH(shuffles, 1, 64, 0, 0, kind, argument, width, y.p);
                std::vector<int> v = y.get();
                for (int t = 0; t < 64; t++) {
                    int source = t / 32 * 32 + shuffled(kind, argument, width, t % 32);
                    if (!CHECK_INT(v[(size_t)t], 100 + source)) return;
                }
            }
}

__global__ void votes(int *y)
{
    int t = (int)threadIdx.x, third = t % 3 == 0;
    y[t] = __syncthreads_count(third) + 1000 * __syncthreads_and(t < 96) + 2000 * __syncthreads_or(t == 5) + 4000 * __syncthreads_or(0);
    unsigned mask = t % 32 < 8 ? 0x000000FFu : 0xFFFFFF00u;
    unsigned any = (unsigned)__any_sync(mask, t % 32 == 9), all = (unsigned)__all_sync(mask, t % 32 >= 8);
    y[t + 96] = (int)(__ballot_sync(mask, third) ^ any ^ all << 1);
    unsigned least = __reduce_min_sync(mask, (unsigned)t % 32), most = __reduce_max_sync(mask, (unsigned)t % 32);
    y[t + 192] = (int)(__reduce_add_sync(mask, (unsigned)t) + 10000 * most + 1000000 * least);
}

TEST(votes_and_reductions)
{
    device<int> y(288);
    TNC_LAUNCH(votes, 1, 96, 0, 0, y.p);
    std::vector<int> v = y.get();
    for (int t = 0; t < 96; t++) {
        unsigned third = 0, sum = 0;
        bool low = t % 32 < 8;
        for (int l = low ? 0 : 8; l < (low ? 8 : 32); l++) {
            int other = t / 32 * 32 + l;
            third |= (unsigned)(other % 3 == 0) << l;
            sum += (unsigned)other;
        }
        CHECK_INT(v[(size_t)t], 32 + 1000 + 2000);
        CHECK_INT(v[(size_t)t + 96], (int)(third ^ (low ? 0u : 3u)));
        CHECK_INT(v[(size_t)t + 192], (int)(sum + (low ? 70000u : 8310000u)));
    }
}

__global__ void transpose(const float *x, float *y)
{
    TNC_SHARED(float, s, [16][17]);
    int r = (int)threadIdx.y, c = (int)threadIdx.x;
    for (int b = 0; b < 3; b++) {
        s[r][c] = x[256 * b + 16 * r + c];
        __syncthreads();
        y[256 * (b + 3 * (int)blockIdx.z) + 16 * r + c] = s[c][r];
        __syncthreads();
    }
}

TEST(every_order_gives_the_same)
{
    std::vector<float> x(768);
    for (size_t i = 0; i < x.size(); i++) x[i] = (float)i;
    device<float> a(x), y(768 * 2);
    for (unsigned k = 0; k < 8; k++) {
        tnch_set_order(k == 0 ? TNCH_FORWARD : k == 1 ? TNCH_REVERSED : TNCH_RANDOM, k);
        TNC_LAUNCH(transpose, dim3(1, 1, 2), dim3(16, 16), 0, 0, a.p, y.p);
        std::vector<float> v = y.get();
        for (int i = 0; i < 1536; i++) if (!CHECK(v[(size_t)i] == (float)(i % 768 / 256 * 256 + i % 16 * 16 + i % 256 / 16))) return;
    }
    mend();
}

__global__ void atomics(int *y, unsigned long long *z)
{
    int t = (int)(threadIdx.x + blockIdx.x * blockDim.x);
    atomicAdd(&y[0], t);
    atomicMax(&y[1], t * 7 % 64);
    atomicMin(&y[2], t * 7 % 64);
    atomicAdd(z, 1ull << 40);
    for (int old = y[3]; ; ) {
        int seen = atomicCAS(&y[3], old, old + 2);
        if (seen == old) break;
        old = seen;
    }
}

TEST(atomics_of_integers)
{
    for (unsigned k = 0; k < 4; k++) {
        device<int> y(std::vector<int>{0, -1, 1000, 0});
        device<unsigned long long> z(std::vector<unsigned long long>(1, 5));
        tnch_set_order(TNCH_RANDOM, k);
        TNC_LAUNCH(atomics, 2, 32, 0, 0, y.p, z.p);
        std::vector<int> v = y.get();
        CHECK_INT(v[0], 63 * 32);
        CHECK_INT(v[1], 63);
        CHECK_INT(v[2], 0);
        CHECK_INT(v[3], 128);
        CHECK(z.get()[0] == (64ull << 40) + 5);
    }
    mend();
}

/* ---- numbers and tensor cores ----------------------------------------------------------------------------------------- */

TEST(bf16_rounds_to_nearest_even)
{
    for (unsigned b = 0; b < 0x8000u; b++) {
        float low = __uint_as_float(b << 16), half = __uint_as_float(b << 16 | 0x8000u), above = __uint_as_float(b << 16 | 0x8001u);
        if (b > 0x7F80u) { CHECK_INT(__float2bfloat16(low).bits, 0x7FFF); continue; }
        CHECK_INT(__float2bfloat16(low).bits, b);
        if (b == 0x7F80u) continue;
        CHECK_INT(__float2bfloat16(half).bits, b + b % 2);
        CHECK_INT(__float2bfloat16(-above).bits, (b + 1) | 0x8000u);
    }
}

/* d[16,8] = a[16,16] b[16,8], row by row; b is loaded by .trans or, as bt[8,16], without */
__global__ void product(const tnc_bf16 *a, const tnc_bf16 *b, const tnc_bf16 *bt, float *d, float *dt)
{
    TNC_SHARED_ALIGN(16, tnc_bf16, sa, [16][24]);
    TNC_SHARED_ALIGN(16, tnc_bf16, sb, [16][8]);
    TNC_SHARED_ALIGN(16, tnc_bf16, st, [8][24]);
    int l = (int)threadIdx.x;
    unsigned ra[4], rb[4], rt[4];
    float p[4] = {0, 0, 0, 0}, q[4] = {1, 1, 1, 1};
    tnc_cp_async16(&sa[l / 2][l % 2 * 8], a + 8 * l);
    if (l < 16) tnc_cp_async16(sb[l], b + 8 * l);
    if (l < 16) tnc_cp_async16(&st[l / 2][l % 2 * 8], bt + 8 * l);
    tnc_cp_async_commit();
    tnc_cp_async_wait<0>();
    __syncwarp();
    tnc_ldmatrix_x4(ra, &sa[l % 16][l / 16 * 8]);
    tnc_ldmatrix_x4_trans(rb, sb[l % 16]);
    tnc_ldmatrix_x4(rt, &st[l % 8][l / 8 % 2 * 8]);
    tnc_mma_bf16(p, ra, rb);
    tnc_mma_bf16(q, ra, rt);
    for (int e = 0; e < 4; e++) {
        int at = (l / 4 + e / 2 * 8) * 8 + l % 4 * 2 + e % 2;
        d[at] = p[e];
        dt[at] = q[e];
    }
}

TEST(tensor_cores)
{
    std::vector<tnc_bf16> a(256), b(128), bt(128);
    uint64_t rng = 5;
    for (size_t i = 0; i < 256; i++) a[i] = __float2bfloat16((float)test_random_int(&rng, -60, 60));
    for (size_t i = 0; i < 128; i++) bt[i % 8 * 16 + i / 8] = b[i] = __float2bfloat16((float)test_random_int(&rng, -60, 60));
    device<tnc_bf16> da(a), db(b), dbt(bt);
    device<float> d(128), dt(128);
    TNC_LAUNCH(product, 1, 32, 0, 0, da.p, db.p, dbt.p, d.p, dt.p);
    std::vector<float> v = d.get(), w = dt.get();
    for (size_t i = 0; i < 128; i++) {
        float sum = 0;
        for (size_t k = 0; k < 16; k++) sum += (float)a[i / 8 * 16 + k] * (float)b[k * 8 + i % 8];
        CHECK(v[i] == sum);
        CHECK(w[i] == sum + 1);
    }
}

/* One product of a warpgroup. image: what shared memory holds, from an address that is a multiple of 1,024; the descriptors
   count from there. B: 64 or 128 columns. */
struct wgmma_setting { uint64_t desc_a, desc_b; int in_registers, add, scale_a, scale_b, trans_a, trans_b; };
enum { WGMMA_IMAGE = 40 << 10, WGMMA_B = 8 << 10 };

template <int N> static __global__ void wgmma_one(wgmma_setting s, const uint4 *image, const unsigned *a, float *d)
{
    TNC_DYN_SHARED(unsigned char, shared);
    unsigned char *tile = shared + (1024 - tnc_shared_address(shared) % 1024) % 1024;
    const int t = (int)threadIdx.x;
    const uint64_t first = tnc_shared_address(tile) >> 4;
    float sum[N / 8][4];
    unsigned left[4];
    for (int i = t; i < WGMMA_IMAGE / 16; i += 128) ((uint4 *)tile)[i] = image[i];
    for (int i = 0; i < 4; i++) left[i] = a[4 * t + i];
    for (int n = 0; n < N / 8; n++) for (int e = 0; e < 4; e++) sum[n][e] = (float)(n - e);
    tnc_fence_async();
    __syncthreads();
    tnc_wgmma_operand(sum);
    tnc_wgmma_operand(left);
    tnc_wgmma_fence();
    tnch_wgmma_product(tnch_wgmma{sum, s.in_registers ? left : NULL, s.desc_a + first, s.desc_b + first, N, s.add, s.scale_a,
                                  s.scale_b, s.trans_a, s.trans_b, NULL}, 1);
    tnc_wgmma_commit();
    tnc_wgmma_wait<0>();
    for (int n = 0; n < N / 8; n++)
        for (int e = 0; e < 4; e++) d[(t / 32 * 16 + t % 32 / 4 + e / 2 * 8) * N + 8 * n + t % 4 * 2 + e % 2] = sum[n][e];
}

/* Where CuTe's canonical layouts (make_gmma_desc, mma_traits_sm90_gmma.hpp) have element (row, k), in bytes: in its words
     K     no swizzling: ((8,m),(T,2)):((1T,SBO),(1,LBO))     swizzled: ((8,m),(T,2)):((W T,SBO),(1,T))
     MN    no swizzling: ((T,1,m),(8,k)):((1,T,SBO),(1T,LBO)) swizzled: ((T,W,m),(8,k)):((1,T,LBO),(W T,SBO))
   with T = 8 numbers in 16 bytes, and W pieces of 16 bytes; piece p of the 128-byte line l then lies at p xor l % W. */
static size_t canonical(int W, bool mn_major, size_t leading, size_t stride, int row, int k)
{
    size_t at;
    if (!mn_major) at = (size_t)(row % 8 * W * 16) + (size_t)(row / 8) * stride + (W > 1 ? (size_t)(k * 2) : (size_t)(k % 8 * 2) + (size_t)(k / 8) * leading);
    else if (W == 1) at = (size_t)(row % 8 * 2) + (size_t)(row / 8) * stride + (size_t)(k % 8 * 16) + (size_t)(k / 8) * leading;
    else at = (size_t)(row % (8 * W) * 2) + (size_t)(row / (8 * W)) * leading + (size_t)(k % 8 * W * 16) + (size_t)(k / 8) * stride;
    return at / 128 * 128 + ((at / 16 % 8) ^ (at / 128 % (size_t)W)) * 16 + at % 16;
}

static uint64_t descriptor_of(size_t first, int W, size_t leading, size_t stride)
{
    const uint64_t mode = W == 8 ? 1 : W == 4 ? 2 : W == 2 ? 3 : 0;
    return first / 16 | (uint64_t)(leading / 16) << 16 | (uint64_t)(stride / 16) << 32 | mode << 62;
}

template <int N> static bool wgmma_is_right(int W, int form)
{
    uint64_t rng = 9;
    const bool mn_a = form & 1, mn_b = form & 2, in_registers = form & 4;
    const int add = form & 8 ? 1 : 0, scale_a = form & 16 ? -1 : 1, scale_b = form & 32 ? -1 : 1;
    if (in_registers && mn_a) return true;
    std::vector<unsigned char> image(WGMMA_IMAGE, 0xFF);
    std::vector<unsigned> left(512);
    std::vector<float> a(64 * 16), b((size_t)N * 16);
    wgmma_setting s = {0, 0, in_registers, add, scale_a, scale_b, mn_a, mn_b};
    for (int of = 0; of < 2; of++) {                       /* atoms of 128 W bytes: along k first, or along the rows first */
        const bool mn = of ? mn_b : mn_a;
        const int rows = of ? N : 64;
        const size_t atom = 128 * (size_t)W, across = !mn ? (size_t)rows / 8 : (size_t)rows / (8 * (size_t)W);
        const size_t along_k = of ? atom : atom * across, along_rows = of ? 2 * atom : atom;
        const size_t leading = W > 1 && mn ? along_rows : along_k, stride = W > 1 && mn ? along_k : along_rows;
        (of ? s.desc_b : s.desc_a) = descriptor_of(of ? WGMMA_B : 0, W, leading, stride);
        for (int row = 0; row < rows; row++)
            for (int k = 0; k < 16; k++) {
                const float x = (float)test_random_int(&rng, -20, 20);
                const tnc_bf16 small = __float2bfloat16(x);
                (of ? b : a)[(size_t)(row * 16 + k)] = x;
                memcpy(&image[(of ? WGMMA_B : 0) + canonical(W, mn, leading, stride, row, k)], &small, 2);
            }
    }
    for (size_t t = 0; t < 128; t++)
        for (size_t i = 0; i < 4; i++) {
            const float *from = &a[(t / 32 * 16 + t % 32 / 4 + i % 2 * 8) * 16 + t % 4 * 2 + i / 2 * 8];
            left[4 * t + i] = __float_as_uint(from[1]) | __float_as_uint(from[0]) >> 16;
        }
    device<uint4> di(WGMMA_IMAGE / 16);
    device<unsigned> da(left);
    device<float> d(64 * N);
    cudaMemcpy(di.p, image.data(), WGMMA_IMAGE, cudaMemcpyHostToDevice);
    TNC_LAUNCH(wgmma_one<N>, 1, 128, WGMMA_IMAGE + 1024, 0, s, di.p, da.p, d.p);
    std::vector<float> got = d.get();
    for (int row = 0; row < 64; row++)
        for (int col = 0; col < N; col++) {
            float sum = add ? (float)(col / 8 - (col % 2 + row % 16 / 8 * 2)) : 0;
            for (int k = 0; k < 16; k++) sum += (float)(scale_a * scale_b) * a[(size_t)(row * 16 + k)] * b[(size_t)(col * 16 + k)];
            if (!CHECK(got[(size_t)(row * N + col)] == sum)) { printf("     W %d form %d N %d at %d %d\n", W, form, N, row, col); return false; }
        }
    return true;
}

TEST(wgmma_of_all_layouts)
{
    mend();
    for (int W = 1; W <= 8; W *= 2)
        for (int form = 0; form < 64; form++)
            if (!wgmma_is_right<64>(W, form) || !wgmma_is_right<128>(W, form)) return;
}

__global__ void groups(const float *x, float *y)
{
    TNC_SHARED_ALIGN(16, float, s, [3][4]);
    for (int i = 0; i < 3; i++) { if (threadIdx.x == 0) tnc_cp_async16(s[i], x + 4 * i); tnc_cp_async_commit(); }
    tnc_cp_async_wait<1>();
    if (threadIdx.x == 0) for (int i = 0; i < 12; i++) y[i] = s[i / 4][i % 4];
    tnc_cp_async_wait<0>();
}

TEST(groups_of_copies)
{
    device<float> x(std::vector<float>(12, 3.0f)), y(12);
    TNC_LAUNCH(groups, 1, 32, 0, 0, x.p, y.p);
    std::vector<float> v = y.get();
    for (size_t i = 0; i < 12; i++) CHECK(i < 8 ? v[i] == 3 : v[i] != v[i]);   /* the last group has not arrived: NaN */
}

/* ---- mbarriers and bulk copies ---------------------------------------------------------------------------------------- */

enum { BULK_BYTES = 64 << 10 };
template <int RANK> struct corner { int at[4]; };

/* One box; `late` is whether nothing of it is there before the wait. */
template <int RANK> static __global__ void bulk_one(const CUtensorMap map, corner<RANK> c, int bytes, int phases, unsigned char *y, int *late)
{
    TNC_DYN_SHARED(unsigned char, shared);
    TNC_SHARED(tnc_barrier, full, [1]);
    unsigned char *tile = shared + (1024 - tnc_shared_address(shared) % 1024) % 1024;
    if (threadIdx.x == 0) {
        tnc_barrier_init(full, 33);
        tnc_barrier_fence();
    }
    __syncthreads();
    for (int phase = 0; phase < phases; phase++) {
        if (threadIdx.x == 0) {
            tnc_barrier_expect(full, bytes);
            if constexpr (RANK == 2) tnc_bulk_load(tile, &map, full, c.at[0], c.at[1]);
            if constexpr (RANK == 3) tnc_bulk_load(tile, &map, full, c.at[0], c.at[1], c.at[2]);
            if constexpr (RANK == 4) tnc_bulk_load(tile, &map, full, c.at[0], c.at[1], c.at[2], c.at[3]);
            if (phase == 0) for (int i = 0; i < bytes; i++) *late += tile[i] != 0xFF;
        }
        tnc_barrier_arrive(full);
        tnc_barrier_wait(full, phase & 1);
    }
    for (int i = (int)threadIdx.x; i < bytes; i += 32) y[i] = tile[i];
}

/* Against the definition, number by number: of `element` bytes, in axes of 5, 6 and 7 after the first, boxes of 3, 2 and 2. */
template <int RANK> static bool bulk_is_right(CUtensorMapDataType type, int element, CUtensorMapSwizzle swizzle, int columns, corner<RANK> c)
{
    const int extent[4] = {96 / element + 1, 5, 6, 7}, span = 16 << (int)swizzle;
    const int box[4] = {columns, RANK == 2 ? 11 : 3, 2, 2};
    cuuint64_t extents[4], strides[3];
    cuuint32_t boxes[4], ones[4] = {1, 1, 1, 1};
    int step[4] = {element, 0, 0, 0}, bytes = element, rows = 1;
    CUtensorMap map;
    for (int i = 0; i < RANK; i++) {
        extents[i] = (cuuint64_t)extent[i];
        boxes[i] = (cuuint32_t)box[i];
        if (i) step[i] = i == 1 ? 128 : step[i - 1] * extent[i - 1] + 16;
        if (i) strides[i - 1] = (cuuint64_t)step[i];
        bytes *= box[i];
        if (i) rows *= box[i];
    }
    std::vector<unsigned char> x((size_t)step[RANK - 1] * (size_t)extent[RANK - 1]);
    for (size_t i = 0; i < x.size(); i++) x[i] = (unsigned char)(i * 37 % 251);
    device<unsigned char> dx(x), y((size_t)bytes);
    device<int> late(std::vector<int>(1, 0));
    if (!CHECK_INT(cuTensorMapEncodeTiled(&map, type, RANK, dx.p, extents, strides, boxes, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                          CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE), CUDA_SUCCESS)) return false;
    TNC_LAUNCH(bulk_one<RANK>, 1, 32, 16 << 10, 0, map, c, bytes, 3, y.p, late.p);
    CHECK_INT(late.get()[0], 0);
    const std::vector<unsigned char> got = y.get();
    for (int row = 0; row < rows; row++)
        for (int byte = 0; byte < columns * element; byte++) {
            int at = c.at[0] + byte / element, from = at * element + byte % element, rest = row, to = row * columns * element + byte;
            bool out = at < 0 || at >= extent[0];
            for (int i = 1; i < RANK; i++) {
                at = c.at[i] + rest % box[i];
                rest /= box[i];
                out = out || at < 0 || at >= extent[i];
                from += at * step[i];
            }
            if (span > 16) to = to / 128 * 128 + (to % 128 / span * span) + ((to % span / 16 ^ to / 128 % (span / 16)) * 16) + to % 16;
            if (!CHECK_INT(got[(size_t)to], out ? 0 : x[(size_t)from])) {
                printf("     rank %d, %d bytes, swizzle %d, %d columns, row %d, byte %d\n", RANK, element, (int)swizzle, columns, row, byte);
                return false;
            }
        }
    return true;
}

TEST(bulk_copies)
{
    mend();
    for (int s = 0; s < 4; s++)
        for (int wide = 0; wide < 2; wide++) {
            const CUtensorMapSwizzle swizzle = (CUtensorMapSwizzle)s;
            const int bytes = s == 0 ? 16 + 32 * wide : (16 << s) / (wide ? 1 : 2);
            if (s && bytes != 16 << s) continue;                        /* narrower rows are not padded, and not used here */
            for (int k = 0; k < 3; k++) {
                if (!bulk_is_right<2>(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, swizzle, bytes / 2, corner<2>{{k * 3 - 2, k - 1, 0, 0}})) return;
                if (!bulk_is_right<3>(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, swizzle, bytes / 4, corner<3>{{k * 4, k, 5 - k, 0}})) return;
                if (!bulk_is_right<4>(CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, swizzle, bytes, corner<4>{{16 * k, 3, k * 2, 7 - 2 * k}})) return;
            }
        }
}

TEST(tensor_maps_that_cannot_be)
{
    mend();
    device<float> x(1024);
    CUtensorMap map;
    const cuuint32_t ones[2] = {1, 1}, twos[2] = {2, 1};
    const auto encode = [&](void *at, cuuint64_t n, cuuint64_t stride, cuuint32_t columns, cuuint32_t rows, const cuuint32_t *steps,
                            CUtensorMapSwizzle swizzle) {
        const cuuint64_t extents[2] = {8, n}, strides[1] = {stride};
        const cuuint32_t box[2] = {columns, rows};
        return cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, at, extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    };
#define ENCODE(at, n, stride, columns, rows, steps, swizzle) encode(at, n, stride, columns, rows, steps, CU_TENSOR_MAP_SWIZZLE_##swizzle)
    CHECK_INT(ENCODE(x.p, 8, 32, 8, 8, ones, 32B), CUDA_SUCCESS);
    CHECK_INT(ENCODE(x.p, 8, 32, 32, 256, ones, 128B), CUDA_SUCCESS);
    CHECK_INT(ENCODE(x.p + 1, 8, 32, 8, 8, ones, 32B), CUDA_ERROR_INVALID_VALUE);       /* the address, a multiple of 16 */
    CHECK_INT(ENCODE(x.p, 0, 32, 8, 8, ones, 32B), CUDA_ERROR_INVALID_VALUE);
    CHECK_INT(ENCODE(x.p, 8, 40, 8, 8, ones, 32B), CUDA_ERROR_INVALID_VALUE);           /* strides, multiples of 16 ... */
    CHECK_INT(ENCODE(x.p, 8, (cuuint64_t)1 << 40, 8, 8, ones, 32B), CUDA_ERROR_INVALID_VALUE);   /* ... below 2^40 */
    CHECK_INT(ENCODE(x.p, 8, 32, 8, 257, ones, 32B), CUDA_ERROR_INVALID_VALUE);         /* boxes of 256 in each axis */
    CHECK_INT(ENCODE(x.p, 8, 32, 8, 0, ones, 32B), CUDA_ERROR_INVALID_VALUE);
    CHECK_INT(ENCODE(x.p, 8, 32, 6, 8, ones, NONE), CUDA_ERROR_INVALID_VALUE);          /* rows of 16 bytes, or a multiple ... */
    CHECK_INT(ENCODE(x.p, 8, 32, 16, 8, ones, 32B), CUDA_ERROR_INVALID_VALUE);          /* ... that a swizzle spans */
    CHECK_INT(ENCODE(x.p, 8, 32, 8, 8, twos, 32B), CUDA_ERROR_INVALID_VALUE);           /* the engine copies neighbours only */
}

/* Warps pass a number through two mbarriers, in turn, many times. */
__global__ void ping_pong(int rounds, int *y)
{
    TNC_SHARED(tnc_barrier, turn, [2]);
    TNC_SHARED(int, ball, [1]);
    const int warp = (int)threadIdx.x / 32;
    if (threadIdx.x == 0) {
        tnc_barrier_init(&turn[0], 1);
        tnc_barrier_init(&turn[1], 32);
        ball[0] = 0;
    }
    __syncthreads();
    for (int r = 0; r < rounds; r++)
        if (warp == 0) {
            if (threadIdx.x == 0) { ball[0] += 3; tnc_barrier_arrive(&turn[0]); }
            tnc_barrier_wait(&turn[1], r & 1);
        } else {
            tnc_barrier_wait(&turn[0], r & 1);
            if (threadIdx.x == 32) ball[0] *= 2;
            tnc_barrier_arrive(&turn[1]);
        }
    __syncthreads();
    y[threadIdx.x] = ball[0];
}

__global__ void register_shares(int *y)
{
    const int group = (int)threadIdx.x / 128;
    if (group == 0) tnc_registers_more<240>();
    if (group == 1) tnc_registers_more<240>();
    if (group == 2) tnc_registers_less<24>();
    y[threadIdx.x] = tnc_warpgroup_or(group, threadIdx.x == 130) + 10 * tnc_warpgroup_or(group, group == 2);
}

TEST(mbarriers_and_warpgroups)
{
    for (int k = 0; k < 6; k++) {
        device<int> y(64), z(384);
        mend();
        tnch_set_order(k == 0 ? TNCH_FORWARD : k == 1 ? TNCH_REVERSED : TNCH_RANDOM, (unsigned)k);
        TNC_LAUNCH(ping_pong, 1, 64, 0, 0, 9, y.p);
        CHECK_INT(y.get()[40], 3 * (1024 - 2));
        TNC_LAUNCH(register_shares, 2, 384, 0, 0, z.p);
        const std::vector<int> shares = z.get();
        for (size_t t = 0; t < 384; t++) CHECK_INT(shares[t], t < 128 ? 0 : t < 256 ? 1 : 10);
    }
    mend();
}

TEST(entry_points)
{
    void *f = NULL;
    cudaDriverEntryPointQueryResult found;
    mend();
    WORKS(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &found));
    CHECK(f == (void *)cuTensorMapEncodeTiled && found == cudaDriverEntryPointSuccess);
    WORKS(cudaGetDriverEntryPointByVersion("cuNothing", &f, 12000, cudaEnableDefault, &found));
    CHECK(f == NULL && found == cudaDriverEntryPointSymbolNotFound);
    tnch_set_tma(0);
    WORKS(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &found));
    CHECK(f == NULL && found == cudaDriverEntryPointSymbolNotFound);
    tnch_set_tma(1);
}

/* ---- memory ----------------------------------------------------------------------------------------------------------- */

__global__ void addresses(unsigned long long *y)
{
    TNC_SHARED(float, a, [3]);
    TNC_SHARED(char, b, [3]);
    TNC_SHARED_ALIGN(16, float, c, [3]);
    TNC_DYN_SHARED(float, d);
    y[0] = (unsigned long long)&a[0];
    y[1] = (unsigned long long)&b[0];
    y[2] = (unsigned long long)&c[0];
    y[3] = (unsigned long long)d;
    y[4] = a[1] != a[1] && c[2] != c[2] && d[0] != d[0] && b[0] == -1;
}

TEST(shared_memory)
{
    device<unsigned long long> y(5);
    TNC_LAUNCH(addresses, 1, 32, 100, 0, y.p);
    std::vector<unsigned long long> v = y.get();
    CHECK_INT(v[0] % 8, 4);          /* aligned exactly as declared */
    CHECK_INT(v[1] % 2, 1);
    CHECK_INT(v[2] % 32, 16);
    CHECK_INT(v[3] % 32, 16);
    CHECK_INT(v[4], 1);
    WORKS(cudaGetLastError());
    TNC_LAUNCH(addresses, 1, 32, 49153, 0, y.p);
    REPORTS(cudaPeekAtLastError(), cudaErrorInvalidValue);
    REPORTS(cudaFuncSetAttribute(addresses, cudaFuncAttributeMaxDynamicSharedMemorySize, (227 << 10) + 1), cudaErrorInvalidValue);
    tnch_set_device(80);
    REPORTS(cudaFuncSetAttribute(addresses, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10), cudaErrorInvalidValue);
    tnch_set_device(86);
    REPORTS(cudaFuncSetAttribute(addresses, cudaFuncAttributeMaxDynamicSharedMemorySize, (99 << 10) + 1), cudaErrorInvalidValue);
    mend();
    WORKS(cudaFuncSetAttribute(addresses, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
    TNC_LAUNCH(addresses, 1, 32, 200 << 10, 0, y.p);
    WORKS(cudaDeviceSynchronize());

    /* a lowered limit holds for later launches, and for graphs that are instantiated later */
    cudaStream_t s;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    WORKS(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    WORKS(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    TNC_LAUNCH(addresses, 1, 32, 2000, s, y.p);
    WORKS(cudaStreamEndCapture(s, &graph));
    WORKS(cudaFuncSetAttribute(addresses, cudaFuncAttributeMaxDynamicSharedMemorySize, 1000));
    REPORTS(cudaGraphInstantiate(&exec, graph, 0), cudaErrorInvalidValue);
    TNC_LAUNCH(addresses, 1, 32, 2000, s, y.p);
    REPORTS(cudaGetLastError(), cudaErrorInvalidValue);
    WORKS(cudaFuncSetAttribute(addresses, cudaFuncAttributeMaxDynamicSharedMemorySize, 2000));
    WORKS(cudaGraphInstantiate(&exec, graph, 0));
    WORKS(cudaGraphLaunch(exec, s));
    WORKS(cudaStreamSynchronize(s));
    WORKS(cudaGraphExecDestroy(exec));
    WORKS(cudaGraphDestroy(graph));
    WORKS(cudaStreamDestroy(s));
}

TEST(device_memory)
{
    void *p, *q;
    size_t available, total, before = tnch_memory_in_use();
    WORKS(cudaMalloc(&p, 1000));
    CHECK_INT((uintptr_t)p % 256, 0);
    CHECK_INT(tnch_memory_in_use(), before + 1000);
    float x[250];
    WORKS(cudaMemcpy(x, p, 1000, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 250; i++) CHECK(x[i] != x[i]);
    tnch_set_memory(before + 2000);
    WORKS(cudaMemGetInfo(&available, &total));
    CHECK_INT(available, 1000);
    REPORTS(cudaMalloc(&q, 1001), cudaErrorMemoryAllocation);
    CHECK(q == NULL);
    tnch_fail_malloc(2);
    WORKS(cudaMalloc(&q, 1000));
    WORKS(cudaFree(q));
    REPORTS(cudaMallocHost(&q, 10), cudaErrorMemoryAllocation);
    WORKS(cudaMalloc(&q, 0));
    CHECK(q == NULL);
    WORKS(cudaFree(NULL));
    WORKS(cudaFree(p));
    CHECK_INT(tnch_memory_in_use(), before);
    mend();
}

TEST(copies)
{
    char host[12] = "abcdefghijk", back[12] = {0};
    device<char> d(30);
    WORKS(cudaMemset(d.p, '.', 30));
    WORKS(cudaMemcpy2DAsync(d.p + 1, 10, host, 4, 3, 3, cudaMemcpyHostToDevice, 0));
    std::vector<char> v = d.get();
    CHECK(memcmp(v.data(), ".abc.......efg.......ijk......", 30) == 0);
    WORKS(cudaMemcpy2DAsync(back, 3, d.p + 1, 10, 3, 3, cudaMemcpyDefault, 0));
    CHECK(memcmp(back, "abcefgijk", 9) == 0);
    REPORTS(cudaMemcpy2DAsync(back, 2, d.p + 1, 10, 3, 3, cudaMemcpyDefault, 0), cudaErrorInvalidValue);
    WORKS(cudaMemcpy(d.p, NULL, 0, cudaMemcpyHostToDevice));
}

/* ---- launches, devices, faults ---------------------------------------------------------------------------------------- */

__global__ void set_to(float value, float *y) { y[blockIdx.x * blockDim.x + threadIdx.x] = value; }

TEST(launches_that_cannot_be)
{
    device<float> y(32);
    dim3 bad_grids[] = {dim3(0), dim3(1, 65536), dim3(1, 1, 65536), dim3(0x80000000u)};
    dim3 bad_blocks[] = {dim3(0), dim3(1056), dim3(1, 1, 65), dim3(64, 32)};
    for (dim3 g : bad_grids) { TNC_LAUNCH(set_to, g, 32, 0, 0, 1, y.p); CHECK_INT(cudaGetLastError(), cudaErrorInvalidConfiguration); }
    for (dim3 b : bad_blocks) { TNC_LAUNCH(set_to, 1, b, 0, 0, 1, y.p); CHECK_INT(cudaGetLastError(), cudaErrorInvalidConfiguration); }
    WORKS(cudaGetLastError());
    TNC_LAUNCH(set_to, 1, 32, 0, 0, 1, y.p);
    WORKS(cudaGetLastError());
    CHECK(y.get()[31] == 1);
    tnch_set_device(70);
    TNC_LAUNCH(set_to, 1, 32, 0, 0, 1, y.p);
    CHECK_INT(cudaGetLastError(), cudaErrorNoKernelImageForDevice);
    mend();
}

TEST(no_device_and_no_driver)
{
    int count = 7, value;
    float *p = NULL;
    cudaStream_t stream;
    cublasHandle_t handle;
    const struct { int device; cudaError_t error; } missing[] = {
        {TNCH_NO_DEVICE, cudaErrorNoDevice}, {TNCH_NO_DRIVER, cudaErrorInsufficientDriver}};
    for (auto m : missing) {
        tnch_set_device(m.device);
        REPORTS(cudaGetDeviceCount(&count), m.error);
        CHECK_INT(count, 0);
        REPORTS(cudaSetDevice(0), m.error);
        REPORTS(cudaMalloc(&p, 4), m.error);
        REPORTS(cudaStreamCreate(&stream), m.error);
        CHECK_INT(cublasCreate(&handle), CUBLAS_STATUS_NOT_INITIALIZED);
        (void)cudaGetLastError();
    }
    tnch_set_device(90);
    WORKS(cudaGetDeviceCount(&count));
    CHECK_INT(count, 1);
    WORKS(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
    CHECK_INT(value, 9);
    REPORTS(cudaSetDevice(1), cudaErrorInvalidDevice);
    tnch_set_cublas(0);
    CHECK_INT(cublasCreate(&handle), CUBLAS_STATUS_NOT_INITIALIZED);
    tnch_set_cublas(1);
}

TEST(a_fault_ends_the_device)
{
    float *p, x = 5;
    WORKS(cudaMalloc(&p, 128));
    tnch_fail_launch(2);
    TNC_LAUNCH(set_to, 1, 32, 0, 0, 1, p);
    WORKS(cudaDeviceSynchronize());
    TNC_LAUNCH(set_to, 1, 32, 0, 0, 2, p);
    CHECK_INT(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    CHECK_INT(cudaGetLastError(), cudaErrorIllegalAddress);
    CHECK_INT(cudaGetLastError(), cudaErrorIllegalAddress);
    CHECK_INT(cudaMemcpy(&x, p, 4, cudaMemcpyDeviceToHost), cudaErrorIllegalAddress);
    CHECK(x == 5);
    CHECK_INT(cudaMalloc(&p, 4), cudaErrorIllegalAddress);
    CHECK_INT(tnch_faults(), 0);
    mend();
    CHECK_INT(tnch_memory_in_use(), 0);

    TNC_LAUNCH(set_to, 1, 64, 0, 0, 2, (float *)64);
    CHECK_INT(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    CHECK_INT(tnch_faults(), 1);
    CHECK(strstr(tnch_fault_text(), "kernel set_to, block (0,0,0), thread (0,0,0)") != NULL);
    mend();
    WORKS(cudaDeviceSynchronize());
}

/* ---- streams ---------------------------------------------------------------------------------------------------------- */

TEST(lazy_streams_keep_their_order)
{
    cudaStream_t blocking, other;
    cudaEvent_t event;
    device<float> y(32);
    WORKS(cudaStreamCreate(&blocking));
    WORKS(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    WORKS(cudaEventCreate(&event));
    WORKS(cudaEventSynchronize(event));                        /* never recorded: nothing to wait for */
    tnch_set_lazy(1);

    TNC_LAUNCH(set_to, 1, 32, 0, blocking, 1, y.p);
    TNC_LAUNCH(set_to, 1, 32, 0, 0, 2, y.p);                   /* the legacy stream waits for it, ... */
    TNC_LAUNCH(set_to, 1, 32, 0, blocking, 3, y.p);            /* ... and it for the legacy stream    */
    CHECK_INT(cudaStreamQuery(blocking), cudaErrorNotReady);
    WORKS(cudaStreamSynchronize(blocking));
    WORKS(cudaStreamQuery(0));
    CHECK(y.get()[0] == 3);

    TNC_LAUNCH(set_to, 1, 32, 0, other, 4, y.p);
    WORKS(cudaEventRecord(event, other));
    CHECK_INT(cudaEventQuery(event), cudaErrorNotReady);
    CHECK(y.get()[0] == 3);                                    /* the legacy stream does not wait for that one */
    WORKS(cudaStreamWaitEvent(blocking, event, 0));
    TNC_LAUNCH(set_to, 1, 32, 0, blocking, 5, y.p);
    TNC_LAUNCH(set_to, 1, 32, 0, other, 6, y.p);
    CHECK(y.get()[0] == 5);
    WORKS(cudaEventQuery(event));
    WORKS(cudaDeviceSynchronize());
    CHECK(y.get()[0] == 6);
    WORKS(cudaStreamDestroy(blocking));
    WORKS(cudaStreamDestroy(other));
    WORKS(cudaEventDestroy(event));
    mend();
}

/* ---- graphs ----------------------------------------------------------------------------------------------------------- */

__global__ void add(float value, float *y) { y[threadIdx.x] += value; }

TEST(graphs)
{
    cudaStream_t s, fork;
    cudaEvent_t there, back;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    size_t nodes = 0;
    device<float> y(std::vector<float>(32, 0.0f)), z(std::vector<float>(32, 7.0f));
    WORKS(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    WORKS(cudaStreamCreateWithFlags(&fork, cudaStreamNonBlocking));
    WORKS(cudaEventCreate(&there));
    WORKS(cudaEventCreate(&back));
    for (int lazy = 0; lazy < 2; lazy++) {
        tnch_set_lazy(lazy);
        WORKS(cudaMemset(y.p, 0, 128));
        WORKS(cudaDeviceSynchronize());
        WORKS(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
        float value = 2;
        TNC_LAUNCH(add, 1, 32, 0, s, value, y.p);
        value = 100;                                            /* the graph has its own copy */
        WORKS(cudaEventRecord(there, s));
        WORKS(cudaStreamWaitEvent(fork, there, 0));
        WORKS(cudaMemcpyAsync(z.p, y.p, 64, cudaMemcpyDeviceToDevice, fork));
        WORKS(cudaEventRecord(back, fork));
        WORKS(cudaStreamWaitEvent(s, back, 0));
        WORKS(cudaMemsetAsync(z.p + 16, 0, 64, s));
        WORKS(cudaStreamEndCapture(s, &graph));
        CHECK(y.get()[0] == 0);                                 /* nothing ran yet */
        WORKS(cudaGraphGetNodes(graph, NULL, &nodes));
        CHECK_INT(nodes, 3);
        WORKS(cudaGraphInstantiate(&exec, graph, 0));
        WORKS(cudaGraphDestroy(graph));
        for (int i = 0; i < 3; i++) WORKS(cudaGraphLaunch(exec, s));
        WORKS(cudaStreamSynchronize(s));
        CHECK(y.get()[31] == 6);
        CHECK(z.get()[15] == 6 && z.get()[16] == 0);
        WORKS(cudaGraphExecDestroy(exec));
    }
    WORKS(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    WORKS(cudaEventRecord(there, s));
    WORKS(cudaStreamWaitEvent(fork, there, 0));
    WORKS(cudaMemsetAsync(z.p, 0, 64, fork));
    REPORTS(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureUnjoined);
    CHECK(graph == NULL);
    WORKS(cudaStreamDestroy(s));
    WORKS(cudaStreamDestroy(fork));
    WORKS(cudaEventDestroy(there));
    WORKS(cudaEventDestroy(back));
    mend();
}

TEST(what_no_capture_allows)
{
    cudaStream_t s, blocking;
    cudaGraph_t graph;
    cudaEvent_t event;
    cudaStreamCaptureStatus status;
    float *p = NULL, x[32];
    device<float> y(32);
    WORKS(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    WORKS(cudaStreamCreate(&blocking));
    WORKS(cudaEventCreate(&event));
    for (int k = 0; k < 7; k++) {
        WORKS(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
        WORKS(cudaStreamIsCapturing(s, &status));
        CHECK_INT(status, cudaStreamCaptureStatusActive);
        if (k == 0) REPORTS(cudaMalloc(&p, 4), cudaErrorStreamCaptureUnsupported);
        if (k == 1) REPORTS(cudaFree(y.p), cudaErrorStreamCaptureUnsupported);
        if (k == 2) REPORTS(cudaStreamSynchronize(s), cudaErrorStreamCaptureUnsupported);
        if (k == 3) REPORTS(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
        if (k == 4) REPORTS(cudaMemcpy(x, y.p, 4, cudaMemcpyDeviceToHost), cudaErrorStreamCaptureUnsupported);
        if (k == 5) { WORKS(cudaEventRecord(event, s)); REPORTS(cudaEventSynchronize(event), cudaErrorCapturedEvent); }
        if (k == 6) REPORTS(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnmatched);
        WORKS(cudaStreamIsCapturing(s, &status));
        CHECK_INT(status, cudaStreamCaptureStatusInvalidated);
        TNC_LAUNCH(set_to, 1, 32, 0, s, 1, y.p);
        REPORTS(cudaPeekAtLastError(), cudaErrorStreamCaptureInvalidated);
        REPORTS(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
        CHECK(graph == NULL);
    }
    WORKS(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
    WORKS(cudaMalloc(&p, 4));
    REPORTS(cudaMemcpy(x, y.p, 4, cudaMemcpyDeviceToHost), cudaErrorStreamCaptureImplicit);
    REPORTS(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
    REPORTS(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureUnmatched);
    REPORTS(cudaStreamBeginCapture(0, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
    WORKS(cudaFree(p));
    WORKS(cudaStreamDestroy(s));
    WORKS(cudaStreamDestroy(blocking));
    WORKS(cudaEventDestroy(event));
}

/* ---- cuBLAS ----------------------------------------------------------------------------------------------------------- */

static double get(const std::vector<char> &bytes, cudaDataType type, size_t i)
{
    if (type == CUDA_R_64F) { double v; memcpy(&v, &bytes[8 * i], 8); return v; }
    if (type == CUDA_R_32F) { float v; memcpy(&v, &bytes[4 * i], 4); return (double)v; }
    uint16_t v;
    memcpy(&v, &bytes[2 * i], 2);
    return (double)(float)__ushort_as_bfloat16(v);
}

/* integers that every type represents exactly */
static std::vector<char> integers(cudaDataType type, size_t n, uint64_t *rng)
{
    size_t size = type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
    std::vector<char> bytes(n * size);
    for (size_t i = 0; i < n; i++) {
        double d = (double)test_random_int(rng, -4, 4);
        float f = (float)d;
        uint16_t b = __float2bfloat16(f).bits;
        memcpy(&bytes[i * size], size == 8 ? (void *)&d : size == 4 ? (void *)&f : (void *)&b, size);
    }
    return bytes;
}

TEST(products)
{
    const struct { cudaDataType in, out; cublasComputeType_t compute; } kinds[] = {
        {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F}, {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32},
        {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_16BF}, {CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F},
        {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F}, {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F}};
    uint64_t rng = 3;
    cublasHandle_t handle;
    CHECK_INT(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
    for (auto kind : kinds)
        for (int round = 0; round < 16; round++) {
            int m = (int)test_random_int(&rng, 1, 9), n = (int)test_random_int(&rng, 1, 9), count = 2;
            int k = (int)test_random_int(&rng, 0, 9);
            bool ta = round & 1, tb = round & 2;
            int lda = (ta ? k : m) + round % 3 + !k, ldb = (tb ? n : k) + round % 2 + 1, ldc = m + round % 4;
            long long sa = (long long)lda * 10, sb = (long long)ldb * 10, sc = (long long)ldc * n;
            std::vector<char> a = integers(kind.in, (size_t)sa * 2, &rng), b = integers(kind.in, (size_t)sb * 2, &rng);
            std::vector<char> c = integers(kind.out, (size_t)sc * 2, &rng);
            device<char> da(a), db(b), dc(c);
            double alpha = round & 4 ? 2 : 0.5, beta = round & 8 ? -1 : 0;
            float alpha_f = (float)alpha, beta_f = (float)beta;
            bool f64 = kind.in == CUDA_R_64F;
            CHECK_INT(cublasGemmStridedBatchedEx(handle, ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N, m,
                                                 n, k, f64 ? (void *)&alpha : (void *)&alpha_f,
                      da.p, kind.in, lda, sa, db.p, kind.in, ldb, sb, f64 ? (void *)&beta : (void *)&beta_f, dc.p, kind.out, ldc, sc, count, kind.compute,
                      CUBLAS_GEMM_DEFAULT), CUBLAS_STATUS_SUCCESS);
            std::vector<char> y = dc.get();
            for (int p = 0; p < count; p++)
                for (int j = 0; j < n; j++)
                    for (int i = 0; i < ldc; i++) {
                        size_t at = (size_t)(p * sc + (long long)j * ldc + i);
                        double sum = 0, old = get(c, kind.out, at);
                        for (int q = 0; q < k; q++)
                            sum += get(a, kind.in, (size_t)(p * sa + (ta ? (long long)i * lda + q : (long long)q * lda + i))) *
                                   get(b, kind.in, (size_t)(p * sb + (tb ? (long long)q * ldb + j : (long long)j * ldb + q)));
                        double want = i < m ? alpha * sum + beta * old : old;
                        if (kind.out == CUDA_R_16BF) want = (double)(float)__float2bfloat16((float)want);
                        if (!CHECK_NEAR(get(y, kind.out, at), want, 0)) return;
                    }
        }
    CHECK_INT(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
}

TEST(products_that_cannot_be)
{
    cublasHandle_t h;
    float one = 1, zero = 0;
    device<float> a(std::vector<float>(16, 1.0f + 0x1p-12f)), c(16);
    CHECK_INT(cublasCreate(&h), CUBLAS_STATUS_SUCCESS);
#define PRODUCT(k, a_type, lda, c_type, compute) cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, k, &one, a.p, a_type, lda, a.p, a_type, 4, &zero, c.p, c_type, 4, compute, \
                                                              CUBLAS_GEMM_DEFAULT)
    CHECK_INT(PRODUCT(4, CUDA_R_32F, 3, CUDA_R_32F, CUBLAS_COMPUTE_32F), CUBLAS_STATUS_INVALID_VALUE);
    CHECK_INT(PRODUCT(-1, CUDA_R_32F, 4, CUDA_R_32F, CUBLAS_COMPUTE_32F), CUBLAS_STATUS_INVALID_VALUE);
    CHECK_INT(PRODUCT(4, CUDA_R_32F, 4, CUDA_R_16BF, CUBLAS_COMPUTE_32F), CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK_INT(PRODUCT(4, CUDA_R_64F, 4, CUDA_R_64F, CUBLAS_COMPUTE_32F), CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK_INT(PRODUCT(4, CUDA_R_32F, 4, CUDA_R_32F, CUBLAS_COMPUTE_32F), CUBLAS_STATUS_SUCCESS);
    CHECK_NEAR(c.get()[0], 4 + 0x1p-9, 1e-6);                  /* C was NaN: with beta = 0 it is not read */
    CHECK_INT(PRODUCT(4, CUDA_R_32F, 4, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32), CUBLAS_STATUS_SUCCESS);
    CHECK(c.get()[0] == 4);                                    /* 10 bits of A and B remain */
    CHECK_INT(cublasSetWorkspace(h, (char *)c.p + 4, 8), CUBLAS_STATUS_INVALID_VALUE);
    CHECK_INT(cublasSetWorkspace(h, c.p, 64), CUBLAS_STATUS_SUCCESS);
    CHECK_INT(cublasDestroy(h), CUBLAS_STATUS_SUCCESS);
}

/* D = alpha A B + beta C + bias by descriptors, where C is D; and what is not supported. */
TEST(products_by_descriptors)
{
    uint64_t rng = 5;
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    CHECK_INT(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
    CHECK_INT(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
    for (int round = 0; round < 32; round++) {
        cudaDataType type = round & 1 ? CUDA_R_16BF : CUDA_R_32F;
        int m = 2 * (int)test_random_int(&rng, 1, 5), n = (int)test_random_int(&rng, 1, 9), k = (int)test_random_int(&rng, 1, 9), count = round % 3 + 1;
        int32_t ta = round & 2 ? CUBLAS_OP_T : CUBLAS_OP_N, tb = round & 4 ? CUBLAS_OP_T : CUBLAS_OP_N;
        int lda = (ta ? k : m) + round % 3, ldb = (tb ? n : k) + round % 2, ldc = m + round % 4;
        int64_t sa = (int64_t)lda * 10, sb = (int64_t)ldb * 10, sc = (int64_t)ldc * n;
        std::vector<char> a = integers(type, (size_t)(sa * count), &rng), b = integers(type, (size_t)(sb * count), &rng);
        std::vector<char> c = integers(type, (size_t)(sc * count), &rng), bias = integers(type, (size_t)m, &rng);
        device<char> da(a), db(b), dc(c), dbias(bias);
        float alpha = 2, beta = round & 8 ? -1.0f : 0.0f;
        uint32_t epilogue = round & 16 ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
        cublasLtMatmulDesc_t product;
        cublasLtMatrixLayout_t layout[3];
        cublasLtMatmulHeuristicResult_t found;
        int64_t strides[3] = {sa, sb, sc};
        int32_t batch = count;
        int got = 0;
        CHECK_INT(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
        CHECK_INT(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta), CUBLAS_STATUS_SUCCESS);
        CHECK_INT(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb), CUBLAS_STATUS_SUCCESS);
        CHECK_INT(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue), CUBLAS_STATUS_SUCCESS);
        CHECK_INT(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, 8), CUBLAS_STATUS_INVALID_VALUE);
        CHECK_INT(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &dbias.p, sizeof dbias.p), CUBLAS_STATUS_SUCCESS);
        CHECK_INT(cublasLtMatrixLayoutCreate(&layout[0], type, (uint64_t)(ta ? k : m), (uint64_t)(ta ? m : k), lda), CUBLAS_STATUS_SUCCESS);
        CHECK_INT(cublasLtMatrixLayoutCreate(&layout[1], type, (uint64_t)(tb ? n : k), (uint64_t)(tb ? k : n), ldb), CUBLAS_STATUS_SUCCESS);
        CHECK_INT(cublasLtMatrixLayoutCreate(&layout[2], type, (uint64_t)m, (uint64_t)n, ldc), CUBLAS_STATUS_SUCCESS);
        for (int i = 0; i < 3; i++) {
            CHECK_INT(cublasLtMatrixLayoutSetAttribute(layout[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch), CUBLAS_STATUS_SUCCESS);
            CHECK_INT(cublasLtMatrixLayoutSetAttribute(layout[i], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &strides[i], 8), CUBLAS_STATUS_SUCCESS);
        }
        CHECK_INT(cublasLtMatmulAlgoGetHeuristic(handle, product, layout[0], layout[1], layout[2], layout[2], preference, 1, &found, &got), CUBLAS_STATUS_SUCCESS);
        CHECK_INT(got, 1);
        CHECK_INT(cublasLtMatmul(handle, product, &alpha, da.p, layout[0], db.p, layout[1], &beta, dc.p, layout[2], dc.p, layout[2], &found.algo, NULL, 0, 0),
                  CUBLAS_STATUS_SUCCESS);
        std::vector<char> y = dc.get();
        for (int p = 0; p < count; p++)
            for (int j = 0; j < n; j++)
                for (int i = 0; i < ldc; i++) {
                    size_t at = (size_t)(p * sc + (int64_t)j * ldc + i);
                    double sum = 0, old = get(c, type, at);
                    for (int q = 0; q < k; q++)
                        sum += get(a, type, (size_t)(p * sa + (ta ? (int64_t)i * lda + q : (int64_t)q * lda + i))) *
                               get(b, type, (size_t)(p * sb + (tb ? (int64_t)q * ldb + j : (int64_t)j * ldb + q)));
                    double want = i < m ? alpha * sum + beta * old + (round & 16 ? get(bias, type, (size_t)i) : 0) : old;
                    if (type == CUDA_R_16BF) want = (double)(float)__float2bfloat16((float)want);
                    if (!CHECK_NEAR(get(y, type, at), want, 0)) return;
                }
        /* A second B that does not fit; C of double. */
        cublasLtMatrixLayout_t other;
        CHECK_INT(cublasLtMatrixLayoutCreate(&other, type, 20, 20, 20), CUBLAS_STATUS_SUCCESS);
        CHECK_INT(cublasLtMatmulAlgoGetHeuristic(handle, product, layout[0], other, layout[2], layout[2], preference, 1, &found, &got), CUBLAS_STATUS_INVALID_VALUE);
        CHECK_INT(cublasLtMatrixLayoutDestroy(other), CUBLAS_STATUS_SUCCESS);
        CHECK_INT(cublasLtMatrixLayoutCreate(&other, CUDA_R_64F, (uint64_t)m, (uint64_t)n, ldc), CUBLAS_STATUS_SUCCESS);
        CHECK_INT(cublasLtMatrixLayoutSetAttribute(other, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch), CUBLAS_STATUS_SUCCESS);
        CHECK_INT(cublasLtMatmulAlgoGetHeuristic(handle, product, layout[0], layout[1], other, other, preference, 1, &found, &got), CUBLAS_STATUS_NOT_SUPPORTED);
        CHECK_INT(got, 0);
        CHECK_INT(cublasLtMatrixLayoutDestroy(other), CUBLAS_STATUS_SUCCESS);
        for (int i = 0; i < 3; i++) CHECK_INT(cublasLtMatrixLayoutDestroy(layout[i]), CUBLAS_STATUS_SUCCESS);
        CHECK_INT(cublasLtMatmulDescDestroy(product), CUBLAS_STATUS_SUCCESS);
    }
    CHECK_INT(cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);
    CHECK_INT(cublasLtDestroy(handle), CUBLAS_STATUS_SUCCESS);
}

TEST_MAIN(shuffles_of_all_kinds, votes_and_reductions, every_order_gives_the_same, atomics_of_integers,
          bf16_rounds_to_nearest_even, tensor_cores,
          wgmma_of_all_layouts, groups_of_copies, bulk_copies, tensor_maps_that_cannot_be, mbarriers_and_warpgroups, entry_points,
          shared_memory, device_memory, copies, launches_that_cannot_be, no_device_and_no_driver, a_fault_ends_the_device,
          lazy_streams_keep_their_order, graphs, what_no_capture_allows, products, products_that_cannot_be,
          products_by_descriptors)

/* `engine speed` is a measurement, not a test: about 15 ns on a machine that is not busy. */
int main(int argc, char **argv)
{
    if (argc != 2 || strcmp(argv[1], "speed") != 0) return engine_tests(argc, argv);
    printf("one thread through one __syncwarp: %.1f ns\n", tnch_switch_ns(100000));
    return 0;
}
