// The end of gemm_split_sm90.cu and linear_quant_sm90.cu: adds the sums that the SPLIT CTAs of a cluster have left in
// their shared memory, then applies the epilogue to four neighbouring columns. Needs ptx_sm90.cuh, linear_order.cuh,
// SPLIT, PAIR, OUT_F32, BIAS, RESIDUAL.

// Four neighbouring sums at `mine`, over all CTAs of the cluster in rising rank, and over the PARTS sums of each, which
// lie APART floats from each other.
template <i32 PARTS = 1, i32 APART = 0> INLINE float4 whole_sum(const float *mine)
{
    float4 part[SPLIT * PARTS], sum;
#pragma unroll
    for (i32 i = 0; i < SPLIT * PARTS; i++) {
        const float *from = mine + i % PARTS * APART;
        part[i] = SPLIT > 1 ? load_peer16(from, (u32)(i / PARTS)) : *(const float4 *)from;
    }
    sum = part[0];
#pragma unroll
    for (i32 i = 1; i < SPLIT * PARTS; i++)
        sum = make_float4(sum.x + part[i].x, sum.y + part[i].y, sum.z + part[i].z,
                          sum.w + part[i].w);
    return sum;
}

INLINE float activation(float x) { return PAIR == 1 ? silu(x) : gelu_tanh(x); }

// Columns col .. col + 3 of one row of y.
template <class Params>
INLINE void finish4(const Params &p, float4 a, float4 up, i32 row, i32 col)
{
    float v[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
    for (i32 i = 0; i < 4; i++)
        v[i] = BIAS ? scaled(v[i], p.scale, p.bias[col + i]) : scaled(v[i], p.scale);
    if constexpr (PAIR) {
        v[0] = activation(v[0]) * scaled(up.x, p.scale);
        v[1] = activation(v[1]) * scaled(up.y, p.scale);
        v[2] = activation(v[2]) * scaled(up.z, p.scale);
        v[3] = activation(v[3]) * scaled(up.w, p.scale);
    }
    if constexpr (RESIDUAL) {
        uint2 r = *(const uint2 *)(p.residual + (i64)row * p.residual_stride + col);
        v[0] = plus(v[0], bf16_low(r.x));
        v[1] = plus(v[1], bf16_high(r.x));
        v[2] = plus(v[2], bf16_low(r.y));
        v[3] = plus(v[3], bf16_high(r.y));
    }
    i64 at = (i64)row * p.y_stride + col;
    if constexpr (OUT_F32)
        *(float4 *)((float *)p.y + at) = make_float4(v[0], v[1], v[2], v[3]);
    else
        *(uint2 *)((u16 *)p.y + at) = make_uint2(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]));
}
