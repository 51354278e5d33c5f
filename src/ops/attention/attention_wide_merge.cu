// Joins the ranges into which attention_wide.cu cut the KV of a tile of rows.
//
//   o[row, :] = sum_k 2^(m_k - m) O_k / sum_k 2^(m_k - m) l_k,   m = max_k m_k
//
// Grid: x = pieces of columns, y = rows of a tile, z = the plan's merges times KV heads. A lane has four columns.
// SPREAD, for few merges: four warps take every fourth slot of 128 columns each, and their sums are added in rising
// order. Nearly all of the time is spent waiting for L2, so a lane has eight loads under way. Otherwise many CTAs hide
// each other's waiting: a warp has 128 columns of all slots, and a CTA the whole row.
// Bytes: all slots once, from L2.
// Template: V_DIM, GROUP, KV_HEADS, ROWS (of a tile), SPREAD.
#include "kv.cuh"
#include "attention_params.h"

constexpr int kWarps = SPREAD ? 4 : V_DIM / 128, kDepth = SPREAD ? 8 : 4;
constexpr int kEvery = SPREAD ? kWarps : 1; // from one of a warp's slots to its next
constexpr i64 kStep = KV_HEADS * ROWS; // rows from a slot to the next

// Loads slots k0, k0 + kEvery ...; those behind the last one count nothing.
INLINE void load_slots(const float2 *state, const float *o, int k0, int n_slots, float4 (&v)[kDepth],
                       float (&m)[kDepth])
{
#pragma unroll
    for (int j = 0; j < kDepth; j++) {
        i64 k = k0 + j * kEvery;
        bool has = k < n_slots;
        m[j] = has ? __ldcg(&state[k * kStep].x) : -kInfinity;
        v[j] = has ? __ldcg((const float4 *)(o + k * kStep * V_DIM)) : make_float4(0.f, 0.f, 0.f, 0.f);
    }
}

KERNEL __launch_bounds__(kWarps * 32) attention_wide_merge(const __grid_constant__ attention_wide_params p)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    pdl_go();
    attention_wide_merge_item it = p.merges[blockIdx.z / KV_HEADS];
    if (it.seq < 0 && blockIdx.z > 0)
        return;
    i32 seq = max(it.seq, 0), head = blockIdx.z % KV_HEADS, token = p.q_start[seq];
    i32 row = it.tile * ROWS + (i32)blockIdx.y, rows = (p.q_start[seq + 1] - token) * GROUP;
    pdl_wait();
    if (it.seq < 0 || row >= rows)
        return;
    i64 first = ((i64)it.first_slot * KV_HEADS + head) * ROWS + blockIdx.y;
    const float2 *state = (const float2 *)p.state + first;
    int column = (SPREAD ? blockIdx.x : warp) * 128 + lane * 4, from = SPREAD ? warp : 0;
    const float *o = p.partial + first * V_DIM + column;
    // Neither these loads nor the next ones depend on each other, so that L2 is waited for once.
    float4 v[kDepth];
    float m[kDepth];
    load_slots(state, o, from, it.n_slots, v, m);
    float2 first_ml = lane < it.n_slots ? __ldcg(state + lane * kStep) : make_float2(-kInfinity, 0.f);
    float top = first_ml.x, total = 0.f;
    for (int k = lane + 32; k < it.n_slots; k += 32)
        top = fmaxf(top, __ldcg(state + k * kStep).x);
#pragma unroll
    for (int d = 16; d; d >>= 1)
        top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
    float zero = top == -kInfinity ? 0.f : top;
    if (lane < it.n_slots)
        total += exp2_fast(first_ml.x - zero) * first_ml.y;
    for (int k = lane + 32; k < it.n_slots; k += 32) {
        float2 ml = __ldcg(state + k * kStep);
        total += exp2_fast(ml.x - zero) * ml.y;
    }
    total = warp_sum(total);
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 1
    for (int k0 = from; k0 < it.n_slots; k0 += kEvery * kDepth) {
        if (k0 > from)
            load_slots(state, o, k0, it.n_slots, v, m);
#pragma unroll
        for (int j = 0; j < kDepth; j++) {
            float weight = exp2_fast(m[j] - zero);
            sum.x += weight * v[j].x;
            sum.y += weight * v[j].y;
            sum.z += weight * v[j].z;
            sum.w += weight * v[j].w;
        }
    }
    if constexpr (SPREAD) {
        __shared__ float4 part[kWarps][32];
        part[warp][lane] = sum;
        __syncthreads();
        if (warp > 0)
            return;
#pragma unroll
        for (int w = 1; w < kWarps; w++) {
            float4 v = part[w][lane];
            sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
        }
    }
    float by = total == 0.f ? 0.f : p.v_scale / total; // NaN stays NaN
    u16 *to = p.o + (i64)(token + row / GROUP) * p.o_stride + (i64)(head * GROUP + row % GROUP) * V_DIM + column;
    *(uint2 *)to = make_uint2(pack_bf16(sum.x * by, sum.y * by), pack_bf16(sum.z * by, sum.w * by));
}
