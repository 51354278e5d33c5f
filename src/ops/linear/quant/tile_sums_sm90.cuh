// The end of linear_quant_sm90.cu and linear_fp8_sm90.cu: a tile's sums of the CTAs of a cluster, which divide K among
// them, are added up and get the epilogue. Needs ptx_sm90.cuh, TOKENS, SPLIT, PAIR, kConsumers, kThreads, kColumns,
// kSumStride, Part (tile, token, rank), and what linear_split_finish.cuh needs.
#include "linear_split_finish.cuh"

// Leaves the CTA's sums [TOKENS][kSumStride] at `to`, where its stages were; columns are weight rows, with PAIR gate,
// then up. `sum` is laid out as wgmma's accumulators. The warps that multiply call this.
INLINE void leave_sums(float *to, const float (&sum)[TOKENS / 2])
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    named_barrier(1, kConsumers); // all of them have read the stages
    int low = PAIR ? warp * 8 + lane / 4 : warp * 16 + lane / 4, high = low + (PAIR ? kColumns : 8);
    float *sums = to + lane % 4 * 2 * kSumStride;
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++, sums += 8 * kSumStride) {
        sums[low] = sum[4 * j];
        sums[kSumStride + low] = sum[4 * j + 1];
        sums[high] = sum[4 * j + 2];
        sums[kSumStride + high] = sum[4 * j + 3];
    }
}

// Adds up what the CTAs of the cluster have left at `from`; all threads call this. A CTA ends its own rows of the tile.
template <class Params> INLINE void add_sums(const Params &p, const Part &t, const float *from)
{
    constexpr int kQuads = kColumns / 4;
    __syncwarp();
    cluster_sync<SPLIT>();
#pragma unroll 1 // unrolled, it spills
    for (int i = threadIdx.x; i < TOKENS / SPLIT * kQuads; i += kThreads) {
        int row = i / kQuads * SPLIT + t.rank, col = i % kQuads * 4, j = t.tile * 8 + col;
        const float *sums = from + row * kSumStride + col;
        if (t.token + row >= p.n_tokens || j >= p.rows)
            continue;
        float4 sum = whole_sum(sums), up = sum;
        if constexpr (PAIR) {
            // one sum after the other: the registers do not suffice for both
            wgmma_touch(sum.x), wgmma_touch(sum.y), wgmma_touch(sum.z), wgmma_touch(sum.w);
            up = whole_sum(sums + kColumns);
        }
        finish4(p, sum, up, t.token + row, j);
    }
    cluster_sync<SPLIT>(); // a CTA's shared memory outlives its peers' reads
}
