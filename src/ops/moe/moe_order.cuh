// The order in which moe_quant_sm90.cu wants the columns of its slots' rows. A lane of a warp unpacks 8 elements of a
// row's 32 (quant_tile.cuh), and wgmma takes pair p of lane q as columns 8 p + 2 q and 8 p + 2 q + 1. So within each 32
// columns the 16 pairs of x are dealt anew: place 4 p + q gets pair p of lane q.
//
//   0    as they are; the weights are BF16
//   1    lane q has columns 8 q .. 8 q + 7
//   2    lane q has columns 4 q .. 4 q + 3 and 16 + 4 q .. 16 + 4 q + 3: types with a scale for 16 columns

// Which pair of columns comes to place 4 p + q.
template <int N> INLINE int moe_order_pair(int p, int q)
{
    return N == 0 ? 4 * p + q : N == 1 ? 4 * q + p : 2 * q + p % 2 + p / 2 * 8;
}
