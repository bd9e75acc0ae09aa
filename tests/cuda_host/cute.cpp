/* cute.cpp: compares what the engine reads for a descriptor of wgmma with CUTLASS's CuTe, whose layouts are those of the PTX manual
   and whose kernels run. In every swizzle mode and both majors: each number of each product of a tile, by CuTe's descriptor. For
   the tiles of tensornet_cuda.cu also the descriptors themselves. And where a bulk copy puts each number of a box. cute.sh compiles
   and runs it where CUTLASS is installed. */

#include "control.h"
#include <cstdio>
#include <cute/tensor.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>

using namespace cute;
using SM90::GMMA::Major;
typedef cutlass::bfloat16_t bf16;

static int failed;
alignas(1024) static bf16 memory[128 * 128];

static void fail(const char *what, int rows, int depth, int row, int k)
{
    if (failed++ < 10) printf("FAIL %s, %d x %d, at %d %d\n", what, rows, depth, row, k);
}

/* A tile of ROWS rows (or columns of B) and DEPTH numbers along k, in products of 16. ours: the fields that tnc_wgmma_tile writes,
   or 0 */
template <Major major, int ROWS, int DEPTH, class Tile> static void compare(const char *what, Tile layout, uint64_t ours)
{
    Tensor tile = make_tensor(make_smem_ptr(memory), layout);
    for_each(make_seq<DEPTH / 16>{}, [&](auto step) {
        Tensor one = local_tile(tile, Shape<Int<ROWS>, Int<16>>{}, make_coord(Int<0>{}, step));
        const char *first = (const char *)raw_pointer_cast(recast<uint128_t const>(one).data());
        const uint64_t desc = SM90::GMMA::make_gmma_desc<major>(one).desc_ & ~(uint64_t)0x3FFF;
        const uint64_t start = (uint64_t)(first - (const char *)memory) / 16;
        if (ours && desc != ours) fail(what, ROWS, DEPTH, (int)step, -1);
        for (int row = 0; row < ROWS; row++)
            for (int k = 0; k < 16; k++) {
                const size_t here = (size_t)((const char *)&one(row, k) - (const char *)memory);
                if (tnch_wgmma_address(desc | start, major == Major::MN, row, k) != here) fail(what, ROWS, DEPTH, row, k);
            }
    });
}

/* A box of ROWS rows that are as wide as the swizzle: CuTe copies such boxes to tiles of these layouts. */
template <int PIECES, int ROWS, class Atom> static void compare_box(const char *what)
{
    const auto layout = tile_to_shape(Atom{}, Shape<Int<ROWS>, Int<PIECES * 8>>{});
    Tensor tile = make_tensor(make_smem_ptr(memory), layout);
    for (int row = 0; row < ROWS; row++)
        for (int k = 0; k < PIECES * 8; k++) {
            const size_t here = (size_t)((const char *)&tile(row, k) - (const char *)memory);
            if (tnch_bulk_address((size_t)(row * PIECES * 16 + 2 * k), PIECES) != here) fail(what, ROWS, PIECES * 8, row, k);
        }
}

template <class K, class MN> static void compare_mode(const char *what, uint64_t ours_k, uint64_t ours_mn)
{
    compare<Major::K, 64, 64>(what, tile_to_shape(K{}, Shape<_64, _64>{}), ours_k);
    compare<Major::K, 128, 128>(what, tile_to_shape(K{}, Shape<_128, _128>{}), ours_k);
    compare<Major::MN, 64, 64>(what, tile_to_shape(MN{}, Shape<_64, _64>{}, Step<_2, _1>{}), 0);
    compare<Major::MN, 128, 64>(what, tile_to_shape(MN{}, Shape<_128, _64>{}, Step<_2, _1>{}), ours_mn ? ours_mn | (uint64_t)(64 * 8) << 16 : 0);
    compare<Major::MN, 128, 128>(what, tile_to_shape(MN{}, Shape<_128, _128>{}, Step<_2, _1>{}), ours_mn ? ours_mn | (uint64_t)(128 * 8) << 16 : 0);
}

/* With an argument one descriptor is expected to be another, and the status must be 1. */
int main(int argc, char **)
{
    const uint64_t wide = (uint64_t)1 << 62 | (uint64_t)(argc > 1 ? 65 : 64) << 32;   /* 128-byte swizzle, 8 rows are 1,024 bytes */
    compare_mode<SM90::GMMA::Layout_K_INTER_Atom<bf16>, SM90::GMMA::Layout_MN_INTER_Atom<bf16>>("no swizzling", 0, 0);
    compare_mode<SM90::GMMA::Layout_K_SW32_Atom<bf16>, SM90::GMMA::Layout_MN_SW32_Atom<bf16>>("32 bytes", 0, 0);
    compare_mode<SM90::GMMA::Layout_K_SW64_Atom<bf16>, SM90::GMMA::Layout_MN_SW64_Atom<bf16>>("64 bytes", 0, 0);
    compare_mode<SM90::GMMA::Layout_K_SW128_Atom<bf16>, SM90::GMMA::Layout_MN_SW128_Atom<bf16>>("128 bytes", wide | 1 << 16, wide);
    compare_box<1, 64, SM90::GMMA::Layout_K_INTER_Atom<bf16>>("box, no swizzling");
    compare_box<2, 64, SM90::GMMA::Layout_K_SW32_Atom<bf16>>("box, 32 bytes");
    compare_box<4, 64, SM90::GMMA::Layout_K_SW64_Atom<bf16>>("box, 64 bytes");
    compare_box<8, 64, SM90::GMMA::Layout_K_SW128_Atom<bf16>>("box, 128 bytes");
    compare_box<8, 128, SM90::GMMA::Layout_K_SW128_Atom<bf16>>("box, 128 bytes");
    return failed > 0;
}
