// Attention over paged KV for heads, groups, pages, windows and latents of any size, for decode and prefill.
//
//   o[t, h, :] = sum_j softmax_j(scale * q[t, h] . k[j, h / GROUP]) v[j, h / GROUP],
//   j <= position[t] (AFTER: attention_span.cuh) and, with a window w > 0, j > position[t] - w
//
// V_DIM < HEAD_DIM: latents. K's rows hold V too, as their last V_DIM values, and v_pool is k_pool.
// q [tokens, heads * HEAD_DIM], o [tokens, heads * V_DIM] bf16, pools [pages, KV_HEADS, PAGE, HEAD_DIM] bf16, or with
// FP8 E4M3 of k / k_scale (in scale_log2) and v / v_scale; all aligned to an element only.
// Grid: one CTA of four warps a row (token, head).
// Decode: x = tokens of the step, y = heads of a group, z = KV heads. Decodes are the first sequences of a step, so a
// CTA leaves where its token belongs to none of n_decode sequences of at most decode_tokens. Prefill: x = the plan's
// items {sequence, tile}, y = packed rows (token, head of the group) of a tile, z = KV heads. Warp w takes every
// fourth block of 32 keys, a lane a key's score and then elements lane, lane + 32 ... of o; warps are merged in rising
// order. The order of sums depends on position and window alone. Bytes: the row's KV, again for every row.
// Template: HEAD_DIM (up to 2048), V_DIM, GROUP, KV_HEADS, PAGE, DECODE, FP8, SINKS, CAP, AFTER.
#include "kv.cuh"
#include "attention_params.h"
#include "attention_cap.cuh"
#include "attention_sink.cuh"
#include "attention_span.cuh"

constexpr int kWarps = 4, kPer = (V_DIM + 31) / 32;

KERNEL __launch_bounds__(kWarps * 32) attention_any(const __grid_constant__ attention_any_params p)
{
    __shared__ float query[HEAD_DIM], part[kWarps][V_DIM], warp_top[kWarps], warp_total[kWarps];
    int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    pdl_go();
    pdl_wait();
    const attention_prefill_item *item = p.items + blockIdx.x;
    i32 seq = DECODE ? p.seq_of[blockIdx.x] : item->seq;
    if (seq < 0) // an item without work
        return;
    i32 row = (DECODE ? 0 : item->tile * (i32)gridDim.y) + (i32)blockIdx.y;
    i32 token = DECODE ? (i32)blockIdx.x : p.q_start[seq] + row / GROUP, end = p.q_start[seq + 1];
    if (token >= end) // DECODE: padding, which has the number of sequence 0
        return;
    if (DECODE && (seq >= p.n_decode || end - p.q_start[seq] > p.decode_tokens))
        return;
    i32 kv_len = p.kv_len[seq], position = kv_len - (end - token), head = blockIdx.z * GROUP + row % GROUP;
    i32 last = last_key(position, p.after, kv_len);
    i32 first = p.window > 0 ? max(0, position - p.window + 1) : 0;
    const i32 *pages = p.page_ids + p.page_start[seq];
    const u16 *q = p.q + (i64)token * p.q_stride + head * HEAD_DIM;
    for (int i = tid; i < HEAD_DIM; i += kWarps * 32)
        query[i] = bf16_f32(q[i]) * (CAP ? 1.f : p.scale_log2);
    __syncthreads();

    float acc[kPer] = {}, top = -kInfinity, total = 0.f;
    for (i32 block = first / 32 + warp; block <= last / 32; block += kWarps) {
        i32 key = block * 32 + lane;
        bool seen = key >= first && key <= last; // other slots may hold anything, even NaNs
        u32 at = 0;                                  // index of the key's row in the pools
        float score = -kInfinity;
        if (seen) {
            at = ((u32)pages[key / PAGE] * KV_HEADS + blockIdx.z) * PAGE + key % PAGE;
            const kv_t *k = p.k_pool + (i64)at * HEAD_DIM;
            score = 0.f;
#pragma unroll 4
            for (int i = 0; i < HEAD_DIM; i++)
                score = fmaf(query[i], kv_f32(k[i]), score);
            if constexpr (CAP)
                score = capped(score, p.cap_factor) * p.scale_log2;
        }
        float best = score;
#pragma unroll
        for (int d = 16; d; d >>= 1)
            best = fmaxf(best, __shfl_xor_sync(~0u, best, d));
        best = fmaxf(best, top);
        float keep = exp2_fast(top - best), weight = seen ? exp2_fast(score - best) : 0.f;
        top = best;
        total = total * keep + warp_sum(weight);
#pragma unroll
        for (int n = 0; n < kPer; n++)
            acc[n] *= keep;
        int from = max(first - block * 32, 0), to = min(last - block * 32, 31);
        for (int j = from; j <= to; j++) {
            float share = __shfl_sync(~0u, weight, j);
            const kv_t *v = p.v_pool + (i64)__shfl_sync(~0u, at, j) * HEAD_DIM + HEAD_DIM - V_DIM;
#pragma unroll
            for (int n = 0; n < kPer; n++) {
                int i = n * 32 + lane;
                if (i < V_DIM)
                    acc[n] = fmaf(share, kv_f32(v[i]), acc[n]);
            }
        }
    }

#pragma unroll
    for (int n = 0; n < kPer; n++)
        if (n * 32 + lane < V_DIM)
            part[warp][n * 32 + lane] = acc[n];
    if (lane == 0) {
        warp_top[warp] = top;
        warp_total[warp] = total;
    }
    __syncthreads();
    float sink = sink_of(p.sinks, head), best = warp_top[0], factor[kWarps], sum = 0.f; // warp 0 always has a key
#pragma unroll
    for (int w = 1; w < kWarps; w++)
        best = fmaxf(best, warp_top[w]);
    if constexpr (SINKS) {
        best = fmaxf(best, sink);
        sum = exp2_fast(sink - best);
    }
#pragma unroll
    for (int w = 0; w < kWarps; w++) {
        factor[w] = exp2_fast(warp_top[w] - best);
        sum += warp_total[w] * factor[w];
    }
    u16 *o = p.o + (i64)token * p.o_stride + head * V_DIM;
    for (int i = tid; i < V_DIM; i += kWarps * 32) {
        float v = 0.f;
#pragma unroll
        for (int w = 0; w < kWarps; w++)
            v += part[w][i] * factor[w];
        o[i] = f32_bf16(v / sum * p.v_scale);
    }
}
