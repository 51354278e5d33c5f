// The order of sums that every kernel of a deterministic linear keeps (linear_cuda.h): K is cut into S segments
// at multiples of 128 columns. Each segment is summed from zero in rising k by tensor-core steps of 16 neighbouring
// columns, and the segments' sums are added in rising order. The rows and columns of a tile do not affect each other,
// so tiles of any size, with mma.sync or with wgmma, give the same bits. The arithmetic after the sums is written with
// explicit roundings, scaled() and plus(), because a compiler could contract it in one kernel and not in another.

constexpr int kSegmentGrain = 128;

// First column of segment s of `segments`. For s = segments it returns K or more.
INLINE int segment_begin(int s, int segments, int k)
{
    return s * ((k + kSegmentGrain - 1) / kSegmentGrain) / segments * kSegmentGrain;
}

// scale * sum + bias, and a value + residual
INLINE float scaled(float sum, float scale) { return __fmul_rn(sum, scale); }
INLINE float scaled(float sum, float scale, float bias) { return __fmaf_rn(sum, scale, bias); }
INLINE float plus(float v, float residual) { return __fadd_rn(v, residual); }
