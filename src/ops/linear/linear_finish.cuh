// The end of linear_small.cu, linear_ordered.cu and linear_quant.cu: adds the warps' sums of a group of weight rows in
// rising order of warps, then applies the epilogue. Lane (g, q) of a warp holds rows g and g + 8 of tokens 2 q and
// 2 q + 1 of each tile of 8; columns from kColumns on belong to no token. GROUPS times WARPS warps of a CTA work on as
// many groups side by side. Needs linear_order.cuh, kColumns, GROUPS, WARPS, TILES, HALF, PAIR, OUT_F32, BIAS,
// RESIDUAL.

constexpr int kRowsOut = PAIR || HALF ? 8 : 16;

INLINE u32 group_thread() { return GROUPS > 1 ? threadIdx.x % (WARPS * 32) : threadIdx.x; }

struct WarpSums { // of a group, in shared memory
    float part[WARPS][kColumns][(HALF ? 8 : 16) + 1];
};

// A thread's bias and residual, where it makes one output. A kernel loads them in front of its product, so that they
// arrive while that is made: a bias before the turn, the residual after it. The residual stays bf16 until it is added:
// its conversion would wait for it in front of the product.
struct Beside {
    float bias, up_bias;
    u16 residual;
};
template <class Params> INLINE void load_bias(const Params &p, int j0, Beside &b)
{
    int j = min(j0 + (int)(group_thread() % kRowsOut), p.rows - 1);
    b.bias = BIAS ? p.bias[j] : 0.f;
    b.up_bias = BIAS && PAIR ? p.bias[p.rows + j] : 0.f;
}
template <class Params> INLINE void load_residual(const Params &p, int j0, Beside &b)
{
    int t = group_thread() / kRowsOut, j = j0 + group_thread() % kRowsOut;
    bool there = RESIDUAL && t < p.n_tokens && j < p.rows;
    b.residual = there ? p.residual[(i64)t * p.residual_stride + j] : (u16)0;
}

template <bool kBeside = false, class Params>
INLINE void finish(const Params &p, const float (&c)[TILES][4], int j0, WarpSums &sums, const Beside &beside = {})
{
    static_assert(!kBeside || kColumns * kRowsOut <= WARPS * 32, "a thread makes one output");
    auto &part = sums.part;
    u32 thread = group_thread();
    int lane = thread % 32, warp = thread / 32, g = lane / 4, q = lane % 4;
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        if (n * 8 + 2 * q >= kColumns)
            break;
        part[warp][n * 8 + 2 * q][g] = c[n][0];
        part[warp][n * 8 + 2 * q + 1][g] = c[n][1];
        if constexpr (!HALF) {
            part[warp][n * 8 + 2 * q][g + 8] = c[n][2];
            part[warp][n * 8 + 2 * q + 1][g + 8] = c[n][3];
        }
    }
    __syncthreads();
    for (int i = thread; i < kColumns * kRowsOut; i += WARPS * 32) {
        int t = i / kRowsOut, r = i % kRowsOut, j = j0 + r;
        if (t >= p.n_tokens || j >= p.rows)
            continue;
        float sum = part[0][t][r], up = PAIR ? part[0][t][r + 8] : 0.f;
#pragma unroll
        for (int k = 1; k < WARPS; k++) {
            sum += part[k][t][r];
            if constexpr (PAIR)
                up += part[k][t][r + 8];
        }
        sum = BIAS ? scaled(sum, p.scale, kBeside ? beside.bias : p.bias[j]) : scaled(sum, p.scale);
        if constexpr (PAIR) {
            up = BIAS ? scaled(up, p.scale, kBeside ? beside.up_bias : p.bias[p.rows + j]) : scaled(up, p.scale);
            sum = (PAIR == 1 ? silu(sum) : gelu_tanh(sum)) * up;
        }
        if constexpr (RESIDUAL)
            sum = plus(sum, bf16_f32(kBeside ? beside.residual : p.residual[(i64)t * p.residual_stride + j]));
        if constexpr (OUT_F32)
            ((float *)p.y)[(i64)t * p.y_stride + j] = sum;
        else
            ((u16 *)p.y)[(i64)t * p.y_stride + j] = f32_bf16(sum);
    }
}
