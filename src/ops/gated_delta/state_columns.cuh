// A head's matrix of state S [kStateRows, kStateCols] fp32 in the registers of CTAs of 128 threads: what the ops that
// update it token by token share. The text that includes this says kStateRows and kStateCols, and COLS (1 or 2).
//
// A warp has 8 COLS columns: 4 lanes share a column, kRows rows each, and each lane has COLS neighbouring columns. A
// lane sums its rows in four interleaved parts, and two shuffles join the lanes, whatever COLS is.
//
// The state is read before pdl_wait(). A kernel may start before its turn by any number of kernels, for each of them
// may let the next one start before it has waited itself; but all of them belong to the same step, because the copy of
// a step's block to the device lies between two steps and overlaps no kernel. In a step a layer's part of the slots is
// written by this call alone, which comes once, and behind its pdl_wait(). So the slots hold what the steps before left
// there. The loads pass over L1, which may hold what a CTA of an earlier kernel has read.

constexpr int kRows = (kStateRows + 15) / 16 * 4; // of S a lane has; rows behind kStateRows are zeros
constexpr int kStride = kRows + 4;                // floats between the lanes' parts of a vector in shared memory
constexpr int kWarpCols = 8 * COLS, kBlock = 4 * kWarpCols, kBlocks = (kStateCols + kBlock - 1) / kBlock;

// The sums of a column's four lanes.
INLINE float column_sum(const float (&part)[4])
{
    float sum = (part[0] + part[1]) + (part[2] + part[3]);
    sum += __shfl_xor_sync(~0u, sum, 8);
    return sum + __shfl_xor_sync(~0u, sum, 16);
}

// The thread's rows and columns of S, from or to a slot.
INLINE void load_state(const float *from, u32 part, float (&s)[COLS][kRows])
{
#pragma unroll
    for (int i = 0; i < kRows; i++) {
        u32 row = part * kRows + i;
        bool has = from && row < kStateRows;
        if constexpr (COLS == 2) {
            float2 v = has ? __ldcg((const float2 *)(from + (i64)row * kStateCols)) : make_float2(0.f, 0.f);
            s[0][i] = v.x;
            s[1][i] = v.y;
        } else {
            s[0][i] = has ? __ldcg(from + (i64)row * kStateCols) : 0.f;
        }
    }
}

INLINE void store_state(float *to, u32 part, const float (&s)[COLS][kRows])
{
#pragma unroll
    for (int i = 0; i < kRows; i++) {
        u32 row = part * kRows + i;
        if (row >= kStateRows)
            continue;
        if constexpr (COLS == 2)
            *(float2 *)(to + (i64)row * kStateCols) = make_float2(s[0][i], s[1][i]);
        else
            to[(i64)row * kStateCols] = s[0][i];
    }
}
