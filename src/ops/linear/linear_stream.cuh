// The weights of a CTA of linear_small.cu and linear_normed.cu: a group of 16 rows (HALF, PAIR:
// 8), of which lane (g, q) reads 16 bytes of rows g and g + 8 a step. Chunk c of 32 columns is read
// by warp c % WARPS. Needs linear_finish.cuh, K, WARPS, HALF, PAIR.

constexpr int kChunks = (K + 31) / 32, kSteps = (kChunks + WARPS - 1) / WARPS;

struct WeightStream {
    const u16 *low, *high;
    int warp, q;

    // Lanes for rows beyond the last read the last row again; their sums are thrown away.
    template <class Params>
    __forceinline__ WeightStream(const Params &p, int j0, int g, int q, int warp) : warp(warp), q(q)
    {
        int row_low = min(j0 + g, p.rows - 1),
            row_high = PAIR ? p.rows + row_low : min(j0 + 8 + g, p.rows - 1);
        low = (const u16 *)p.w + (i64)row_low * K + q * 8,
        high = (const u16 *)p.w + (i64)row_high * K + q * 8;
    }
    // The lane's first column of a step is that of q = 0 plus 8 q.
    __forceinline__ int column(int step) const { return (step * WARPS + warp) * 32; }
    __forceinline__ bool inside(int k) const
    {
        return K % 32 == 0 && kChunks % WARPS == 0 ? true : k + q * 8 < K;
    }
    __forceinline__ void fetch(int step, uint4 &l, uint4 &h) const
    {
        int k = column(step);
        l = inside(k) ? load_weights16(low + k) : make_uint4(0, 0, 0, 0);
        h = inside(k) && !HALF ? load_weights16(high + k) : make_uint4(0, 0, 0, 0);
    }
};
