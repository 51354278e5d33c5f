// y[t, h, :] = w * x[t, h, :] / rms(x[t, h, :]) * silu(z[t, h, :])     DIM bf16 a head, w [DIM] fp32
// SIGMOID: sigmoid(z) in the place of silu(z)
// FIRST: y[t, h, :] = w[h, :] * v / rms(v), v = x[t, h, :] * silu(z[t, h, :])
//
// Grid: WARPS warps for each head of each token, or for several of them where these are many; 8 warps per CTA. A lane
// has every (32 WARPS)th vector of VEC elements of the head in registers. Those of the warp's next head are under way.
// Bytes: 6 DIM per head; between the delta rule and a product, of few tokens bound by launch latency.
// Template: DIM, VEC (4 or 1), WARPS (1 or 8), FIRST, SIGMOID (not with FIRST).
#include "gated_norm_params.h"

constexpr int kVectors = DIM / VEC, kLanes = 32 * WARPS, kPer = (kVectors + kLanes - 1) / kLanes;

INLINE void load(const u16 *p, float (&v)[VEC])
{
    if constexpr (VEC == 4) {
        uint2 raw = *(const uint2 *)p;
        v[0] = bf16_low(raw.x), v[1] = bf16_high(raw.x), v[2] = bf16_low(raw.y), v[3] = bf16_high(raw.y);
    } else {
        v[0] = bf16_f32(*p);
    }
}

INLINE void store(u16 *p, const float (&v)[VEC])
{
    if constexpr (VEC == 4)
        *(uint2 *)p = make_uint2(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]));
    else
        *p = f32_bf16(v[0]);
}

INLINE float gate(float z) { return SIGMOID ? __fdividef(1.f, 1.f + __expf(-z)) : silu(z); }

// The sum over the warps of a head, from the first to the last. odd: of the CTA's heads in turn 0 and 1.
INLINE float sum_of_all(float of_warp, u32 odd)
{
    if constexpr (WARPS == 1)
        return of_warp;
    __shared__ float part[2][8];
    if (threadIdx.x % 32 == 0)
        part[odd][threadIdx.x / 32] = of_warp;
    __syncthreads();
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < 8; i++)
        sum += part[odd][i];
    return sum;
}

// The lane's part of head `at` of all tokens' heads.
INLINE void load_head(const gated_norm_params &p, int at, int lane, float (&x)[kPer][VEC], float (&z)[kPer][VEC])
{
    int t = at / p.heads, head = at % p.heads * DIM;
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        int c = (i * kLanes + lane) * VEC;
        if (c >= DIM || at >= p.n)
            continue;
        load(p.x + (i64)t * p.x_stride + head + c, x[i]);
        load(p.z + (i64)t * p.z_stride + head + c, z[i]);
    }
}

INLINE void load_weight(const gated_norm_params &p, int at, int lane, float (&w)[kPer][VEC])
{
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        int c = (i * kLanes + lane) * VEC;
#pragma unroll
        for (int e = 0; e < VEC; e++)
            w[i][e] = c < DIM && at < p.n ? __ldg(p.weight + (FIRST ? at % p.heads * DIM : 0) + c + e) : 0.f;
    }
}

KERNEL __launch_bounds__(256) gated_norm(const __grid_constant__ gated_norm_params p)
{
    int at = blockIdx.x * (8 / WARPS) + threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
    float x[kPer][VEC], z[kPer][VEC], next_x[kPer][VEC], next_z[kPer][VEC], w[kPer][VEC];
    load_weight(p, at, lane, w);
    pdl_go();
    pdl_wait();
    load_head(p, at, lane, next_x, next_z);
    for (u32 odd = 0; at < p.n; odd ^= 1) {
        int now = at;
        float sum = 0.f;
#pragma unroll
        for (int i = 0; i < kPer; i++) {
#pragma unroll
            for (int e = 0; e < VEC; e++)
                x[i][e] = next_x[i][e], z[i][e] = next_z[i][e];
        }
        at += gridDim.x * (8 / WARPS);
        load_head(p, at, lane, next_x, next_z);
#pragma unroll
        for (int i = 0; i < kPer; i++) {
            if ((i * kLanes + lane) * VEC >= DIM)
                continue;
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                if constexpr (FIRST)
                    x[i][e] *= silu(z[i][e]);
                sum += x[i][e] * x[i][e];
            }
        }
        float inv = rsqrtf(sum_of_all(warp_sum(sum), odd) / DIM + p.eps);
        u16 *y = p.y + (i64)(now / p.heads) * p.y_stride + now % p.heads * DIM;
#pragma unroll
        for (int i = 0; i < kPer; i++) {
            int c = (i * kLanes + lane) * VEC;
            if (c >= DIM)
                continue;
#pragma unroll
            for (int e = 0; e < VEC; e++)
                x[i][e] *= FIRST ? inv * w[i][e] : inv * w[i][e] * gate(z[i][e]);
            store(y + c, x[i]);
        }
        if constexpr (FIRST)
            load_weight(p, at, lane, w);
    }
}
