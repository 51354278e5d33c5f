// A head's sink: a score of the softmax that has no value (SINKS; gpt-oss). It joins a row when all of the row's keys
// are summed, so the loops over keys do not know it, and without SINKS nothing is left of it.

// The sink of a head as kernels have scores, times log2(e).
INLINE float sink_of(const float *sinks, i32 head)
{
    return SINKS ? sinks[head] * 1.44269504f : -kInfinity;
}

// The factor by which a row's sum over V becomes its result. The row's largest score is m (times log2(e)), the sum of
// 2^(score - m) is l. A row without keys has l 0 and a factor of 0. The rounding is spelled out, so that no two
// kernels differ.
INLINE float row_factor(float m, float l, float v_scale, float sink)
{
    if constexpr (SINKS) {
        float top = fmaxf(m, sink), base = top == -kInfinity ? 0.f : top, keep = exp2_fast(m - base);
        float sum = __fmaf_rn(l, keep, exp2_fast(sink - base));
        return sum == 0.f ? 0.f : __fmul_rn(keep, v_scale) / sum; // a NaN stays one
    } else {
        return l > 0.f ? v_scale / l : 0.f; // a NaN in l is in the sum over V too
    }
}
