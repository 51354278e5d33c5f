// Scores with a cap (CAP; Gemma 2): a kernel goes on with tanh(score / cap) and scales it by cap log2(e) where it would
// scale a score. Without CAP nothing is left of it.

// tanh(score / cap), where x is q . k of the pools and factor makes 2 log2(e) score / cap of it: 1 - 2 / (1 + e^2y).
// The rounding is spelled out, so that no two kernels differ.
INLINE float capped(float x, float factor)
{
    if constexpr (CAP)
        return __fmaf_rn(-2.f, __fdividef(1.f, 1.f + exp2_fast(__fmul_rn(x, factor))), 1.f);
    else
        return x;
}
