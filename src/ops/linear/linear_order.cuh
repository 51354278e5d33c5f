// The order of sums that every kernel of a deterministic linear keeps (linear_cuda.h): K is cut into S segments
// at multiples of 128 columns, each is summed from zero in rising k by tensor-core steps of 16 neighbouring columns,
// and the segments' sums are added in rising order. Rows and columns of a tile do not know of each other, so tiles
// of any size, mma.sync and wgmma make the same bits. So that they stay the same behind the sums, what a compiler could
// contract in one kernel and not in the other is spelled out: scaled(), plus().

constexpr int kSegmentGrain = 128;

// First column of segment s of S; of segment S: at least K.
INLINE int segment_begin(int s, int segments, int k)
{
    return s * ((k + kSegmentGrain - 1) / kSegmentGrain) / segments * kSegmentGrain;
}

// scale * sum + bias, and a value + residual
INLINE float scaled(float sum, float scale) { return __fmul_rn(sum, scale); }
INLINE float scaled(float sum, float scale, float bias) { return __fmaf_rn(sum, scale, bias); }
INLINE float plus(float v, float residual) { return __fadd_rn(v, residual); }
