// y[t, :] = x[r(t), :] * w / rms(x[r(t), :])                           ADD=0
// s = x + residual; residual <- bf16(s); y = s * w / rms(s)            ADD=1
// The norm uses s before it is rounded.
//
// x, residual, y [tokens, HIDDEN] bf16, w [HIDDEN] fp32. LANES threads share a row: a part of a warp for
// narrow rows (a head), the whole CTA for wide ones. A thread keeps its kPer vectors of VEC elements in
// registers, so that a row is read once. It keeps its weights there too, so that a CTA which walks many
// rows reads them once: at 4096 columns the weights are twice the bytes of a row. The next row is loaded
// while one is summed. Sums are fp32: by shuffles, then one value per warp through shared memory.
// Bytes: 4 * hidden per row (ADD: 8); bound by memory for many rows, by latency below about 2000.
// Template: HIDDEN, VEC (8 or 1), THREADS, LANES (a power of two up to 32, or THREADS), RESIDENT (CTAs
// of an SM), ADD, ROWS (a row index is given), PLUS_ONE, WALK. Grid: CTAs that walk the rows, THREADS / LANES
// rows at a time, and no more than RESIDENT on an SM: registers set this number, not threads. With 4 CTAs
// of 512 threads, where 3 fit, the last quarter starts late: 16,384 rows of 4096 take 78 us in place of 68.
// Without WALK a CTA ends with its rows, so it has no next row to hold and more CTAs fit: 16,384 rows of 4096
// take 134 us with the addition in place of 140. Without it they take 98 in place of 72, since each reads the weights.
#include "rmsnorm_params.h"

constexpr int kVectors = HIDDEN / VEC, kPer = (kVectors + LANES - 1) / LANES;
constexpr int kRows = THREADS / LANES, kWarps = LANES <= 32 ? 1 : LANES / 32;

// VEC elements as they lie in memory (Raw); widen() makes fp32 of them.
template <int N> struct Raw { typedef uint4 type; };
template <> struct Raw<1> { typedef u16 type; };
typedef Raw<VEC>::type raw_t;

INLINE void load(const u16 *p, uint4 &raw) { raw = load16(p); }
INLINE void load(const u16 *p, u16 &raw) { raw = *p; }
INLINE void widen(u16 raw, float *v) { *v = bf16_f32(raw); }
INLINE void widen(const uint4 &raw, float *v)
{
    f32x8 f = unpack8(raw);
#pragma unroll
    for (int k = 0; k < 8; k++)
        v[k] = f.v[k];
}

INLINE void store(u16 *p, const float (&v)[1]) { *p = f32_bf16(v[0]); }
INLINE void store(u16 *p, const float (&v)[8])
{
    f32x8 f;
#pragma unroll
    for (int k = 0; k < 8; k++)
        f.v[k] = v[k];
    store16(p, pack8(f));
}

struct Row {
    raw_t x[kPer], residual[ADD ? kPer : 1];
};

INLINE void load_row(const rmsnorm_params &p, i32 t, u32 lane, Row &row)
{
    const u16 *x = p.x + (i64)(ROWS ? p.row[t] : t) * p.x_stride;
    const u16 *residual = p.residual + (i64)t * p.residual_stride;
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        u32 at = (i * LANES + lane) * VEC;
        if (at >= HIDDEN)
            continue;
        load(x + at, row.x[i]);
        if constexpr (ADD)
            load(residual + at, row.residual[i]);
    }
}

// s = x, or with ADD s = x + residual, which it also writes. Returns the lane's sum of squares.
INLINE float add_row(const rmsnorm_params &p, i32 t, u32 lane, const Row &row, float (&s)[kPer][VEC])
{
    u16 *residual = p.residual + (i64)t * p.residual_stride;
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        u32 at = (i * LANES + lane) * VEC;
#pragma unroll
        for (int k = 0; k < VEC; k++)
            s[i][k] = 0.f;
        if (at < HIDDEN) {
            widen(row.x[i], s[i]);
            if constexpr (ADD) {
                float r[VEC];
                widen(row.residual[i], r);
#pragma unroll
                for (int k = 0; k < VEC; k++)
                    s[i][k] += r[k];
                store(residual + at, s[i]);
            }
        }
#pragma unroll
        for (int k = 0; k < VEC; k++)
            sum = fmaf(s[i][k], s[i][k], sum);
    }
    return sum;
}

// The sum of the row, returned to all of its lanes. `part` are kWarps floats that no thread reads any more.
INLINE float row_sum(float sum, float *part)
{
#pragma unroll
    for (int d = (LANES < 32 ? LANES : 32) / 2; d > 0; d /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if constexpr (kWarps > 1) {
        if (threadIdx.x % 32 == 0)
            part[threadIdx.x / 32] = sum;
        __syncthreads();
        sum = 0.f;
#pragma unroll
        for (int i = 0; i < kWarps; i++)
            sum += part[i];
    }
    return sum;
}

// Weights of a vector, 16 bytes at a time: one by one they keep L1 busy for longer than the row does.
INLINE void load_weights(const float *from, float (&w)[8])
{
    float4 a = __ldg((const float4 *)from), b = __ldg((const float4 *)from + 1);
    w[0] = a.x, w[1] = a.y, w[2] = a.z, w[3] = a.w;
    w[4] = b.x, w[5] = b.y, w[6] = b.z, w[7] = b.w;
}
INLINE void load_weights(const float *from, float (&w)[1]) { w[0] = __ldg(from); }

KERNEL __launch_bounds__(THREADS, RESIDENT) rmsnorm(const __grid_constant__ rmsnorm_params p)
{
    __shared__ float part[2][kWarps]; // for this row and the next, so that one barrier per row is enough
    u32 lane = threadIdx.x % LANES;
    float w[kPer][VEC], s[kPer][VEC];
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        u32 at = (i * LANES + lane) * VEC;
        if (at < HIDDEN)
            load_weights(p.weight + at, w[i]);
    }
    pdl_go();
    pdl_wait();
    Row row, next;
    i32 step = WALK ? gridDim.x * kRows : 1 << 30, mine = threadIdx.x / LANES;
    if ((i32)blockIdx.x * kRows + mine < p.n_rows)
        load_row(p, blockIdx.x * kRows + mine, lane, row);
    // All rows of a warp go through the loop together. A row beyond the last takes part in the shuffles only.
    for (i32 first = blockIdx.x * kRows, odd = 0; first < p.n_rows; first += step, odd ^= 1) {
        i32 t = first + mine;
        bool there = kRows == 1 || t < p.n_rows;
        if (WALK && t + step < p.n_rows)
            load_row(p, t + step, lane, next);
        float sum = row_sum(there ? add_row(p, t, lane, row, s) : 0.f, part[odd]);
        float scale = rsqrtf(sum / HIDDEN + p.eps);
        u16 *y = p.y + (i64)t * p.y_stride;
#pragma unroll
        for (int i = 0; i < kPer; i++) {
            u32 at = (i * LANES + lane) * VEC;
            if (!there || at >= HIDDEN)
                continue;
#pragma unroll
            for (int k = 0; k < VEC; k++)
                s[i][k] = s[i][k] * scale * (w[i][k] + (float)PLUS_ONE);
            store(y + at, s[i]);
        }
        row = next;
    }
}
