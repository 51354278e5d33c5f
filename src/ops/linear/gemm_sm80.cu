// y = epilogue(scale * x W^T + bias) + residual for many tokens: mma.sync m16n8k16, cp.async,
// ldmatrix
//
// x [tokens, K] bf16, W [rows, K] bf16. One CTA: BM tokens x BN weight rows, 8 warps as 2 x 4, each
// (BM / 2) x (BN / 4). Shared memory: STAGES x (BM + BN) rows of 64 elements (128 bytes). 16-byte
// chunk c of row r lies at c ^ (r & 7), so that ldmatrix and cp.async both touch all banks. Paired: the
// tile's rows of W are 8 gate rows, 8 up rows and so on in turn, so that a thread holds both.
// Grid: x = tiles in groups of 8 tiles of tokens (the group's x stays in L2 while W streams by), z
// = SPLIT parts of K. With SPLIT > 1 the parts are written as fp32 fragments, and the last CTA of a
// tile adds them in rising order (linear_order.cuh): K and SPLIT alone fix the order of the sums.
// FLOPs: 2 tokens rows K; the roof is the tensor cores' mma.sync rate.
// SEGMENTS > 1 (with SPLIT 1): one CTA sums that many parts of K separately, and gets the same bits as
// SPLIT = SEGMENTS would.
// Template: K, BM, BN, STAGES, PAIR, OUT_F32, BIAS, RESIDUAL, SPLIT, SEGMENTS.
#include "linear_order.cuh"
#include "linear_params.h"

constexpr int kBk = 64, kThreads = 256, kWm = BM / 2, kWn = BN / 4, kMi = kWm / 16, kNi = kWn / 8;
constexpr int kSteps = (K + kBk - 1) / kBk;
constexpr u32 kStageBytes = (BM + BN) * 128;
constexpr int kOut = PAIR ? BN / 2 : BN; // outputs per tile

INLINE u32 swizzled(u32 row, u32 chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }

// The weight row that is row r of this tile, or -1 beyond the last.
INLINE i32 weight_row(i32 j0, i32 r, i32 rows)
{
    if constexpr (PAIR) {
        i32 j = j0 + r / 16 * 8 + r % 8;
        return j < rows ? (r & 8 ? rows + j : j) : -1;
    } else {
        return j0 + r < rows ? j0 + r : -1;
    }
}

// ---- the tile of a CTA ----

struct GemmTile {
    i32 m0, j0;       // first token, first output
    i32 tiles;        // number of tiles of the whole product
    int step0, step1; // this CTA's steps of K, [step0, step1), of kBk elements each
};

// Tiles run in groups of 8 token tiles, and within a group the token tile changes fastest. For a tile outside of the
// product m0 or j0 is too large.
INLINE GemmTile tile_of(const gemm_sm80_params &p)
{
    GemmTile t;
    i32 tiles_m = (p.n_tokens + BM - 1) / BM, tiles_n = (p.rows + kOut - 1) / kOut;
    i32 group = blockIdx.x / (8 * tiles_n), in_group = blockIdx.x % (8 * tiles_n);
    i32 height = min(8, tiles_m - group * 8);
    t.m0 = (group * 8 + in_group % height) * BM;
    t.j0 = in_group / height * kOut;
    t.tiles = tiles_m * tiles_n;
    t.step0 = segment_begin(blockIdx.z, SPLIT, K) / kBk;
    t.step1 = min(segment_begin(blockIdx.z + 1, SPLIT, K) / kBk, kSteps);
    return t;
}

// ---- global -> shared ----

// Copies step `step` of the tile's weight rows to the stage at `to`, after its tokens.
INLINE void fetch_w(const gemm_sm80_params &p, const GemmTile &t, int step, u32 to)
{
    to += BM * 128;
#pragma unroll
    for (int i = threadIdx.x; i < BN * 8; i += kThreads) {
        int r = i / 8, c = i % 8, k = step * kBk + c * 8;
        i32 j = weight_row(t.j0, r, p.rows);
        copy_async16(to + swizzled(r, c), p.w + (i64)(j < 0 ? 0 : j) * K + (k < K ? k : 0),
                     j >= 0 && k < K ? 16 : 0);
    }
}

// The same for the tile's tokens.
INLINE void fetch_x(const gemm_sm80_params &p, const GemmTile &t, int step, u32 to)
{
#pragma unroll
    for (int i = threadIdx.x; i < BM * 8; i += kThreads) {
        int r = i / 8, c = i % 8, k = step * kBk + c * 8, token = t.m0 + r;
        bool inside = token < p.n_tokens && k < K;
        copy_async16(to + swizzled(r, c),
                     p.x + (i64)(inside ? token : 0) * p.x_stride + (inside ? k : 0),
                     inside ? 16 : 0);
    }
}

// ---- products ----

typedef float Accumulators[kMi][kNi][4]; // this warp's kWm tokens x kWn weight rows

// Adds the products of the stage at `xs`, kBk elements of K, to acc.
INLINE void multiply_stage(u32 xs, Accumulators &acc)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, wm = warp / 4, wn = warp % 4;
    u32 ws = xs + BM * 128;
#pragma unroll
    for (int kk = 0; kk < 4; kk++) {
        frag4 a[kMi], b[kNi / 2];
#pragma unroll
        for (int i = 0; i < kMi; i++)
            a[i] = load_matrix4(xs + swizzled(wm * kWm + i * 16 + lane % 16, kk * 2 + lane / 16));
#pragma unroll
        for (int i = 0; i < kNi / 2; i++)
            b[i] = load_matrix4(ws + swizzled(wn * kWn + i * 16 + lane / 16 * 8 + lane % 8,
                                              kk * 2 + lane / 8 % 2));
#pragma unroll
        for (int i = 0; i < kMi; i++)
#pragma unroll
            for (int j = 0; j < kNi; j++)
                mma_bf16(acc[i][j], a[i].r[0], a[i].r[1], a[i].r[2], a[i].r[3],
                         b[j / 2].r[j % 2 * 2], b[j / 2].r[j % 2 * 2 + 1]);
    }
}

// At the end of a segment of K: adds its sums to `total` and sets acc to zero.
constexpr bool kApart = SEGMENTS > 1;
typedef float Totals[kApart ? kMi : 1][kApart ? kNi : 1][4];
INLINE void add_segment(Totals &total, Accumulators &acc, bool first)
{
#pragma unroll
    for (int i = 0; i < kMi * kNi * 4; i++) {
        float &sum = total[kApart ? i / 4 / kNi : 0][kApart ? i / 4 % kNi : 0][i % 4];
        float &part = acc[i / 4 / kNi][i / 4 % kNi][i % 4];
        sum = first ? part : sum + part;
        part = 0.f;
    }
}

// acc = x W^T over this CTA's steps of K, with STAGES - 1 steps in flight.
INLINE void multiply(const gemm_sm80_params &p, const GemmTile &t, u32 base, Accumulators &acc)
{
    // the weights of the first stages may be loaded before the inputs exist
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++)
        if (t.step0 + s < t.step1)
            fetch_w(p, t, t.step0 + s, base + s * kStageBytes);
    pdl_go();
    pdl_wait();
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (t.step0 + s < t.step1)
            fetch_x(p, t, t.step0 + s, base + s * kStageBytes);
        copy_async_commit();
    }
    Totals total;
    int stage = 0, segment = 1;
    for (int step = t.step0; step < t.step1; step++) {
        if (kApart && step == segment_begin(segment, SEGMENTS, K) / kBk)
            add_segment(total, acc, segment++ == 1);
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        int ahead = step + STAGES - 1, into = (stage + STAGES - 1) % STAGES;
        if (ahead < t.step1) {
            fetch_w(p, t, ahead, base + into * kStageBytes);
            fetch_x(p, t, ahead, base + into * kStageBytes);
        }
        copy_async_commit();
        multiply_stage(base + stage * kStageBytes, acc);
        stage = (stage + 1) % STAGES;
    }
    copy_async_wait<0>();
    if constexpr (kApart) {
        add_segment(total, acc, false);
#pragma unroll
        for (int i = 0; i < kMi * kNi; i++)
            *(float4 *)acc[i / kNi][i % kNi] = *(float4 *)total[i / kNi][i % kNi];
    }
}

// SPLIT > 1: returns true in the last CTA of a tile, with the sum of all parts in rising order; false in the others.
INLINE bool join_parts(const gemm_sm80_params &p, i32 tiles, Accumulators &acc)
{
    constexpr int kQuads = kMi * kNi;
    int tid = threadIdx.x;
    i32 tile = blockIdx.x;
    float4 *mine = (float4 *)p.partial + ((i64)blockIdx.z * tiles + tile) * kQuads * kThreads + tid;
#pragma unroll
    for (int i = 0; i < kQuads; i++)
        mine[i * kThreads] = *(float4 *)acc[i / kNi][i % kNi];
    if (!last_of(p.tickets + tile, SPLIT))
        return false;
#pragma unroll
    for (int i = 0; i < kQuads; i++) {
        float4 sum;
#pragma unroll
        for (int z = 0; z < SPLIT; z++) {
            float4 v = __ldcg((const float4 *)p.partial +
                              (((i64)z * tiles + tile) * kQuads + i) * kThreads + tid);
            sum = z == 0 ? v : make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
        }
        *(float4 *)acc[i / kNi][i % kNi] = sum;
    }
    return true;
}

// ---- epilogue: lane (g, q) holds rows g and g + 8, columns 2 q and 2 q + 1 of each 16 x 8 fragment ----

// Stores outputs j and j + 1 of token t.
INLINE void put(const gemm_sm80_params &p, i32 t, i32 j, float a, float b)
{
    if (t >= p.n_tokens)
        return;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        float v = e ? b : a;
        if (j + e >= p.rows)
            return;
        if constexpr (RESIDUAL)
            v = plus(v, bf16_f32(p.residual[(i64)t * p.residual_stride + j + e]));
        if constexpr (OUT_F32)
            ((float *)p.y)[(i64)t * p.y_stride + j + e] = v;
        else
            ((u16 *)p.y)[(i64)t * p.y_stride + j + e] = f32_bf16(v);
    }
}

// Applies scale and bias to a sum of output j, which is row `row` of the weight.
INLINE float biased(const gemm_sm80_params &p, float v, i32 j, i32 row)
{
    return BIAS && j < p.rows ? scaled(v, p.scale, p.bias[row]) : scaled(v, p.scale);
}

INLINE void finish(const gemm_sm80_params &p, const GemmTile &tile, const Accumulators &acc)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, wm = warp / 4, wn = warp % 4;
    int g = lane / 4, q = lane % 4;
#pragma unroll
    for (int i = 0; i < kMi; i++) {
        i32 t = tile.m0 + wm * kWm + i * 16 + g;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if constexpr (PAIR) {
#pragma unroll
                for (int n = 0; n < kNi; n += 2) {
                    i32 j = tile.j0 + (wn * kWn + n * 8) / 2 + 2 * q;
                    float v[2];
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        float gate = biased(p, acc[i][n][2 * h + e], j + e, j + e);
                        float up = biased(p, acc[i][n + 1][2 * h + e], j + e, p.rows + j + e);
                        v[e] = (PAIR == 1 ? silu(gate) : gelu_tanh(gate)) * up;
                    }
                    put(p, t + 8 * h, j, v[0], v[1]);
                }
            } else {
#pragma unroll
                for (int n = 0; n < kNi; n++) {
                    i32 j = tile.j0 + wn * kWn + n * 8 + 2 * q;
                    put(p, t + 8 * h, j, biased(p, acc[i][n][2 * h], j, j),
                        biased(p, acc[i][n][2 * h + 1], j + 1, j + 1));
                }
            }
        }
    }
}

KERNEL __launch_bounds__(kThreads, 1) gemm_sm80(const __grid_constant__ gemm_sm80_params p)
{
    static_assert(K % 8 == 0 && kNi % 2 == 0, "16-byte loads; B fragments come in pairs");
    extern __shared__ __align__(1024) u8 shared[];
    GemmTile tile = tile_of(p);
    if (tile.m0 >= p.n_tokens || tile.j0 >= p.rows)
        return;
    Accumulators acc = {};
    multiply(p, tile, shared_address(shared), acc);
    if constexpr (SPLIT > 1)
        if (!join_parts(p, tile.tiles, acc))
            return;
    finish(p, tile, acc);
}
