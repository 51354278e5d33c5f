// Rotary embedding of q and k, with the per-head RMSNorm before it (NORM 1) or after it (NORM 2), and the KV store at
// the end (STORE). FP8 pools hold k / k_scale and v / v_scale as E4M3; k is rounded from fp32 directly.
//
// q [tokens, HEADS * HEAD_DIM], k and v [tokens, KV_HEADS * HEAD_DIM] bf16 slices, in place; with
// STORE the rotated k and v go to their page slots instead, and no kernel reads k and v of the
// activations again. cos_sin [context, DIMS] fp32: row p = cos(0 .. DIMS/2) | sin(0 .. DIMS/2).
//
// Grid: kLanes lanes work on one head of one token, 128 threads per CTA. In a full rotation that is not
// interleaved, with HEAD_DIM a multiple of 16 (kFast), a lane holds 8 elements of the first half and the
// 8 that pair with them. In all other cases a warp works on a head, pair by pair. Bytes: 4 * (HEADS +
// KV_HEADS) * HEAD_DIM per token; memory-bound for many tokens.
// Template: HEADS, KV_HEADS, HEAD_DIM, DIMS, INTERLEAVED, NORM, PLUS_ONE, STORE, PAGE, FP8.
#include "kv.cuh"
#include "rope_params.h"

constexpr bool kFast = !INTERLEAVED && DIMS == HEAD_DIM && HEAD_DIM % 16 == 0 && HEAD_DIM <= 512 &&
                       (HEAD_DIM & (HEAD_DIM - 1)) == 0;
constexpr int kLanes = kFast ? HEAD_DIM / 16 : 32;
constexpr int kHalf = DIMS / 2;
constexpr int kPer = (HEAD_DIM + 31) / 32; // slow path: elements per lane

// The sum over the lanes of one head. Lanes of the warp's other heads may have returned already.
INLINE float head_sum(float v)
{
    u32 mask = kLanes == 32 ? ~0u
                            : ((1u << (kLanes % 32)) - 1) << (threadIdx.x % 32 / kLanes * kLanes);
#pragma unroll
    for (int d = kLanes / 2; d; d >>= 1)
        v += __shfl_xor_sync(mask, v, d);
    return v;
}

INLINE float over_scale(float v, float inverse, u8) { return v * inverse; }
INLINE float over_scale(float v, float, u16) { return v; }

// A lane needs these beside the head itself. No kernel of a step writes these values, so they are loaded before
// pdl_wait().
struct Fixed {
    float norm_a[8], norm_b[8], cosine[8], sine[8];
};

INLINE void load8(const float *from, float (&to)[8])
{
    float4 a = ((const float4 *)from)[0], b = ((const float4 *)from)[1];
    to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
    to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}

INLINE void load_fixed(Fixed &f, const float *norm, const float *cos_sin, int c)
{
    if constexpr (NORM) {
        load8(norm + c * 8, f.norm_a);
        load8(norm + kHalf + c * 8, f.norm_b);
    }
    load8(cos_sin + c * 8, f.cosine);
    load8(cos_sin + kHalf + c * 8, f.sine);
}

// The norm of a head of which this lane holds a and b.
INLINE void normalise(f32x8 &a, f32x8 &b, const Fixed &f, float eps)
{
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < 8; i++)
        sum += a.v[i] * a.v[i] + b.v[i] * b.v[i];
    float scale = rsqrtf(head_sum(sum) / HEAD_DIM + eps);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        a.v[i] *= scale * (f.norm_a[i] + (float)PLUS_ONE);
        b.v[i] *= scale * (f.norm_b[i] + (float)PLUS_ONE);
    }
}

// Rotates the 8 elements at c * 8 of the first half with the 8 of the second half. T is the type of the result: bf16,
// or E4M3 of the values times `inverse`.
template <class T>
INLINE void rotate_fast(const u16 *from, T *to, const Fixed &f, float eps, float inverse, int c)
{
    f32x8 a = unpack8(load16(from + c * 8)), b = unpack8(load16(from + kHalf + c * 8));
    if constexpr (NORM == 1)
        normalise(a, b, f, eps);
    f32x8 x, y;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float cosine = f.cosine[i], sine = f.sine[i];
        x.v[i] = a.v[i] * cosine - b.v[i] * sine;
        y.v[i] = a.v[i] * sine + b.v[i] * cosine;
    }
    if constexpr (NORM == 2)
        normalise(x, y, f, eps);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x.v[i] = over_scale(x.v[i], inverse, T());
        y.v[i] = over_scale(y.v[i], inverse, T());
    }
    kv_store8(to + c * 8, x);
    kv_store8(to + kHalf + c * 8, y);
}

template <class T>
INLINE void rotate_slow(const u16 *from, T *to, const float *norm, const float *cos_sin, float eps,
                        float inverse, int lane)
{
    float scale = 1.f;
    if constexpr (NORM == 1) {
        float sum = 0.f;
        for (int i = lane; i < HEAD_DIM; i += 32)
            sum += bf16_f32(from[i]) * bf16_f32(from[i]);
        scale = rsqrtf(head_sum(sum) / HEAD_DIM + eps);
    }
    auto element = [&](int i) {
        float v = bf16_f32(from[i]);
        return NORM == 1 ? v * scale * (norm[i] + (float)PLUS_ONE) : v;
    };
    float x[kPer], y[kPer]; // the whole head is read before any of it is written
#pragma unroll
    for (int n = 0; n < kPer; n++) {
        int i = n * 32 + lane; // pair index below kHalf, then single elements beyond DIMS
        x[n] = y[n] = 0.f;
        if (i < kHalf) {
            int ia = INTERLEAVED ? 2 * i : i, ib = INTERLEAVED ? 2 * i + 1 : i + kHalf;
            float a = element(ia), b = element(ib), cosine = cos_sin[i], sine = cos_sin[kHalf + i];
            x[n] = a * cosine - b * sine;
            y[n] = a * sine + b * cosine;
        } else if (i < HEAD_DIM - kHalf) {
            x[n] = element(i + kHalf);
        }
    }
    if constexpr (NORM == 2) { // x and y are zero where there is no element
        float sum = 0.f;
#pragma unroll
        for (int n = 0; n < kPer; n++)
            sum += x[n] * x[n] + y[n] * y[n];
        scale = rsqrtf(head_sum(sum) / HEAD_DIM + eps);
    }
    auto put = [&](int i, float v) {
        if constexpr (NORM == 2)
            v *= scale * (norm[i] + (float)PLUS_ONE);
        to[i] = kv_make(over_scale(v, inverse, T()), T());
    };
    __syncwarp();
#pragma unroll
    for (int n = 0; n < kPer; n++) {
        int i = n * 32 + lane;
        if (i < kHalf) {
            put(INTERLEAVED ? 2 * i : i, x[n]);
            put(INTERLEAVED ? 2 * i + 1 : i + kHalf, y[n]);
        } else if (i < HEAD_DIM - kHalf) {
            put(i + kHalf, x[n]);
        }
    }
}

INLINE void copy_head(const u16 *from, u8 *to, float inverse, int lane)
{
    if constexpr (HEAD_DIM % 8 == 0) {
        for (int c = lane; c < HEAD_DIM / 8; c += kLanes) {
            f32x8 x = unpack8(load16(from + c * 8));
#pragma unroll
            for (int i = 0; i < 8; i++)
                x.v[i] *= inverse;
            kv_store8(to + c * 8, x);
        }
    } else {
        for (int i = lane; i < HEAD_DIM; i += kLanes)
            to[i] = kv_make(bf16_f32(from[i]) * inverse, *to);
    }
}

INLINE void copy_head(const u16 *from, u16 *to, float, int lane)
{
    if constexpr (HEAD_DIM % 8 == 0) {
        for (int c = lane; c < HEAD_DIM / 8; c += kLanes)
            store16(to + c * 8, load16(from + c * 8));
    } else {
        for (int i = lane; i < HEAD_DIM; i += kLanes)
            to[i] = from[i];
    }
}

KERNEL __launch_bounds__(128) rope(const __grid_constant__ rope_params p)
{
    constexpr u32 kItems = HEADS + KV_HEADS + (STORE ? KV_HEADS : 0);
    u32 i = (blockIdx.x * 128 + threadIdx.x) / kLanes, lane = threadIdx.x % kLanes;
    u32 t = i / kItems, h = i % kItems;
    pdl_go();
    bool is_q = h < HEADS, is_v = h >= HEADS + KV_HEADS, there = t < (u32)p.n_tokens;
    i32 slot = STORE && there && !is_q ? p.slot[t] : 0;
    const float *cos_sin = (is_q ? p.q_cos_sin : p.cos_sin) + (i64)(there ? p.position[t] : 0) * DIMS,
                *norm = is_q ? p.q_norm : p.k_norm;
    Fixed fixed;
    if constexpr (kFast) {
        if (there && !(STORE && is_v))
            load_fixed(fixed, norm, cos_sin, lane);
    }
    pdl_wait();
    if (!there)
        return;
    u32 head = is_q ? h : (h - HEADS) % (KV_HEADS ? KV_HEADS : 1);
    const u16 *from = is_q   ? p.q + (i64)t * p.q_stride
                      : is_v ? p.v + (i64)t * p.v_stride
                             : p.k + (i64)t * p.k_stride;
    from += head * HEAD_DIM;
    kv_t *stored = nullptr;
    STORES_TO_PADDING_PAGE(STORE && !is_q && slot < PAGE);
    if (STORE && !is_q)
        stored = (is_v ? p.v_pool : p.k_pool) +
                 (((i64)(slot / PAGE) * KV_HEADS + head) * PAGE + slot % PAGE) * HEAD_DIM;
    if (STORE && is_v) {
        copy_head(from, stored, p.v_inverse, lane);
        return;
    }
    auto rotate = [&](auto *to) {
        if constexpr (kFast)
            rotate_fast(from, to, fixed, p.eps, p.k_inverse, lane);
        else
            rotate_slow(from, to, norm, cos_sin, p.eps, p.k_inverse, lane);
    };
    if constexpr (FP8 && STORE) {
        if (!is_q) {
            rotate(stored);
            return;
        }
    }
    rotate(STORE && !is_q ? (u16 *)stored : (u16 *)from);
}
