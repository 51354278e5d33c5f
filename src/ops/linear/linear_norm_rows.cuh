// The norm in front of a linear of very few tokens (linear_normed.cu, linear_quant.cu). Every CTA makes x * n of all
// tokens in shared memory, as bf16, and their sums of squares on the way; the root divides the products, not x. So x is
// read once, and what was rounded in front of the division is rounded no more than behind it. Needs K, WARPS, TOKENS
// (rows of x in shared memory), PLUS_ONE, and kNormPad, by which rows begin in different banks.

constexpr int kNormThreads = WARPS * 32, kVectors = K / 8, kPer = (kVectors + kNormThreads - 1) / kNormThreads;
constexpr int kNormRow = NORM_ROW(K, kNormPad); // elements

struct NormWeights { // of this thread's columns
    float4 n[kPer][2];
};
struct NormSums { // in shared memory
    float squares[TOKENS][WARPS];
};

INLINE int norm_vector(int i) { return i * kNormThreads + threadIdx.x; } // of 8 columns
INLINE bool norm_inside(int v) { return kVectors % kNormThreads == 0 || v < kVectors; }

// The norm's weights are no kernel's output, so this may come before pdl_wait().
template <class Params> INLINE void load_norm(const Params &p, NormWeights &w)
{
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        int v = norm_vector(i);
#pragma unroll
        for (int k = 0; k < 2; k++)
            w.n[i][k] = norm_inside(v) ? __ldg((const float4 *)p.norm + v * 2 + k) : make_float4(0.f, 0.f, 0.f, 0.f);
    }
}

// Writes rows [TOKENS][kNormRow]; ends with __syncthreads().
template <class Params> INLINE void norm_rows(const Params &p, const NormWeights &w, u16 *rows, NormSums &sums)
{
    uint4 raw[TOKENS][kPer];
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
#pragma unroll
        for (int i = 0; i < kPer; i++) {
            int v = norm_vector(i);
            bool inside = norm_inside(v) && t < p.n_tokens;
            raw[t][i] = inside ? load16(p.x + (i64)t * p.x_stride + v * 8) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        float sum = 0.f;
#pragma unroll
        for (int i = 0; i < kPer; i++) {
            int v = norm_vector(i);
            f32x8 x = unpack8(raw[t][i]);
            float4 a = w.n[i][0], b = w.n[i][1];
            const float by[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
            for (int k = 0; k < 8; k++) {
                sum = fmaf(x.v[k], x.v[k], sum);
                x.v[k] *= by[k] + (float)PLUS_ONE;
            }
            if (norm_inside(v))
                store16(rows + t * kNormRow + v * 8, pack8(x));
        }
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0)
            sums.squares[t][threadIdx.x / 32] = sum;
    }
    __syncthreads();
}

// 1 / the root of token t's mean square.
INLINE float norm_factor(const NormSums &sums, int t, float eps)
{
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < WARPS; i++)
        sum += sums.squares[t][i];
    return rsqrtf(sum / K + eps);
}
