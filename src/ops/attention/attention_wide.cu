// Attention over paged KV to heads that are too wide for a warp's registers: latents (MLA) and heads of more than 256.
//
//   o[t, h, :] = sum_j softmax_j(scale * q[t, h] . k[j, h / GROUP]) v[j, h / GROUP],   j <= position[t]
//
// q [tokens, KV_HEADS * GROUP * HEAD_DIM] bf16 slice, pools [pages, KV_HEADS, PAGE, HEAD_DIM] bf16, o rows of V_DIM
// a head. LATENT: K's rows hold V too, as their last V_DIM values, and v_pool is k_pool: a key is copied and kept once.
// Grid: x = items of the plan, y = KV heads. An item is a KV range [begin, end) of a tile of 16 * TILES rows (token,
// head of the group) of a sequence, so that keys are read once for all of them. Eight warps share a ring of STAGES
// blocks of KEYS keys in shared memory (cp.async), and Q. A block has three parts, with a barrier before each:
//
//   scores    A warp has 16 rows and KEYS / kKeyWarps keys, and leaves the rows' maxima.
//   weights   It knows the new maxima then, and leaves its weights in bf16 and the factor of the sums so far.
//   values    A warp has V_DIM / 8 columns of all rows: O never leaves its registers.
//
// An item that is not its tile's whole KV leaves (m, l, O) in fp32 in a slot; attention_wide_merge.cu joins them. A
// sequence of 16 heads needs a slot of 32 KB for each range, so many CTAs merge, and not the last one.
// ORDERED (--deterministic): the plan cuts nothing, and no order of sums depends on TILES. So a row has the same bits
// in any tile, of a decode and of a prompt: blocks begin at multiples of KEYS, a row's weights are summed in chains of
// 8 keys of a block, and what a row does not see adds zeros.
// DECODE: before its turn (pdl_wait) a CTA fetches keys that earlier steps have stored.
// Bytes: a sequence's KV once for each tile of its rows.
// Template: HEAD_DIM (multiple of 64), V_DIM (multiple of 128), LATENT, GROUP, KV_HEADS, PAGE, TILES (1, 2, 4), KEYS
// (16, 32, 64), STAGES, DECODE, ORDERED.
#include "kv.cuh"
#include "attention_params.h"

constexpr int kWarps = 8, kRows = 16 * TILES, kVecs = HEAD_DIM / 8, kValueVecs = LATENT ? 0 : V_DIM / 8;
constexpr int kKeyWarps = kWarps / TILES < KEYS / 8 ? kWarps / TILES : KEYS / 8; // that share a tile's scores
constexpr int kWarpKeys = KEYS / kKeyWarps, kKeyTiles = kWarpKeys / 8;
constexpr int kColumnTiles = V_DIM / kWarps / 8;                 // 8 columns each
constexpr int kFirstValue = LATENT ? (HEAD_DIM - V_DIM) / 8 : 0; // 16-byte chunk in a row
constexpr int kSums = ORDERED ? 2 : kKeyTiles >= 4 ? 1 : 4 / kKeyTiles; // chains of products beside each other
constexpr int kChains = ORDERED ? kKeyTiles : 1;                 // of a row's weights in a warp
constexpr u32 kKeyBytes = KEYS * HEAD_DIM * 2, kStageBytes = kKeyBytes + KEYS * kValueVecs * 16;
constexpr u32 kWeightRow = KEYS * 2 + 16; // bytes: eight rows lie in all banks

// 16-byte chunk c of row r among rows of `vecs` chunks. The exclusive or spreads eight rows over all banks.
INLINE u32 at(u32 row, u32 chunk, u32 vecs = kVecs) { return (row * vecs + (chunk ^ (row & 7))) * 16; }

struct Shared { // offsets in shared memory
    static constexpr u32 q = STAGES * kStageBytes, weights = q + kRows * HEAD_DIM * 2,
                         tops = weights + kRows * kWeightRow, factors = tops + kKeyWarps * kChains * kRows * 4;
};

// Copies rows [from, to) of a block that begins with key `first` to `stage`; ZEROS: and zeros from `end` on.
template <bool kZeros>
INLINE void fetch(const attention_wide_params &p, const i32 *pages, u32 stage, i32 first, i32 from, i32 to, i32 end)
{
    constexpr int kPer = KEYS / kWarps, kAll = kVecs + kValueVecs;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    i32 mine = first + warp * kPer + lane % kPer;
    u32 row_of = mine < end ? ((u32)pages[mine / PAGE] * KV_HEADS + blockIdx.y) * PAGE + mine % PAGE : 0;
#pragma unroll(TILES < 4 ? KEYS : 6)
    for (int k = 0; k < (kPer * kAll + 31) / 32; k++) {
        int i = k * 32 + lane, r = min(i / kAll, kPer - 1), c = i % kAll, local = warp * kPer + r;
        i64 row = __shfl_sync(~0u, row_of, r);
        i32 j = first + local;
        bool inside = j < end;
        if (i >= kPer * kAll || (inside ? j < from || j >= to : !kZeros))
            continue;
        if (c < kVecs)
            copy_async16(stage + at(local, c), p.k_pool + row * HEAD_DIM + c * 8, inside ? 16 : 0);
        else
            copy_async16(stage + kKeyBytes + at(local, c - kVecs, V_DIM / 8), p.v_pool + row * V_DIM + (c - kVecs) * 8,
                         inside ? 16 : 0);
    }
}

// Copies the tile's rows of Q; zeros for those that the sequence does not have.
INLINE void fetch_queries(const attention_wide_params &p, u32 to, i32 token, i32 row0, i32 n_rows)
{
    for (int i = threadIdx.x; i < kRows * kVecs; i += kWarps * 32) {
        int r = i / kVecs, c = i % kVecs;
        bool inside = r < n_rows;
        i32 row = row0 + (inside ? r : 0);
        const u16 *from = p.q + (i64)(token + row / GROUP) * p.q_stride +
                          (i64)(blockIdx.y * GROUP + row % GROUP) * HEAD_DIM + c * 8;
        copy_async16(to + at(r, c), from, inside ? 16 : 0);
    }
}

// The scores of a warp's 16 rows and kWarpKeys keys. Four steps of 16 dimensions are 128 bytes of a row, over which the
// swizzle repeats.
INLINE void make_scores(float (&s)[kKeyTiles][4], u32 q, u32 k)
{
    int lane = threadIdx.x % 32;
    float sum[kSums][kKeyTiles][4] = {};
    u32 q_at[4], k_at[2];
#pragma unroll
    for (int i = 0; i < 4; i++)
        q_at[i] = q + at(lane % 16, i * 2 + lane / 16);
#pragma unroll
    for (int i = 0; i < 2; i++)
        k_at[i] = k + at(lane % 8, i * 4 + lane / 8);
#pragma unroll(TILES < 4 ? HEAD_DIM / 64 : 3)
    for (int d = 0; d < HEAD_DIM / 64; d++)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            frag4 a[2] = {load_matrix4(q_at[i] + d * 128), load_matrix4(q_at[i + 1] + d * 128)};
#pragma unroll
            for (int n = 0; n < kKeyTiles; n++) {
                frag4 b = load_matrix4(k_at[i / 2] + n * 8 * HEAD_DIM * 2 + d * 128);
#pragma unroll
                for (int j = 0; j < 2; j++)
                    mma_bf16(sum[(i + j) % kSums][n], a[j].r[0], a[j].r[1], a[j].r[2], a[j].r[3], b.r[2 * j],
                             b.r[2 * j + 1]);
            }
        }
#pragma unroll
    for (int n = 0; n < kKeyTiles; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            s[n][e] = sum[0][n][e];
#pragma unroll
            for (int i = 1; i < kSums; i++)
                s[n][e] += sum[i][n][e];
        }
}

// The largest of the lane's scores of rows g and g + 8, over the four lanes of a row.
INLINE float row_top(const float (&s)[kKeyTiles][4], int h)
{
    float top = -kInfinity;
#pragma unroll
    for (int n = 0; n < kKeyTiles; n++)
        top = fmaxf(top, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    return fmaxf(top, __shfl_xor_sync(~0u, top, 2));
}

// Adds the block's values, weighted, to a warp's columns of all rows.
INLINE void add_values(float (&o)[TILES][kColumnTiles][4], u32 weights, const float *factors, u32 v)
{
    int lane = threadIdx.x % 32, g = lane / 4, column = threadIdx.x / 32 * kColumnTiles;
#pragma unroll
    for (int m = 0; m < TILES; m++) {
        float low = factors[m * 16 + g], high = factors[m * 16 + g + 8];
#pragma unroll
        for (int n = 0; n < kColumnTiles; n++) {
            o[m][n][0] *= low;
            o[m][n][1] *= low;
            o[m][n][2] *= high;
            o[m][n][3] *= high;
        }
    }
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) {
        frag4 a[TILES];
#pragma unroll
        for (int m = 0; m < TILES; m++)
            a[m] = load_matrix4(weights + (m * 16 + lane % 16) * kWeightRow + (k * 2 + lane / 16) * 16);
#pragma unroll
        for (int n = 0; n < kColumnTiles; n += 2) {
            frag4 b = load_matrix4_transposed(v + at(k * 16 + lane % 16, kFirstValue + column + n + lane / 16,
                                                     LATENT ? kVecs : V_DIM / 8));
#pragma unroll
            for (int m = 0; m < TILES; m++) {
                mma_bf16(o[m][n], a[m].r[0], a[m].r[1], a[m].r[2], a[m].r[3], b.r[0], b.r[1]);
                mma_bf16(o[m][n + 1], a[m].r[0], a[m].r[1], a[m].r[2], a[m].r[3], b.r[2], b.r[3]);
            }
        }
    }
}

// Stores a warp's columns: a whole row to o, a part of one to its slot. sums: [kKeyWarps * kChains][kRows].
INLINE void store_rows(const attention_wide_params &p, const attention_chunk_item &item,
                       const float (&o)[TILES][kColumnTiles][4], const float *sums, i32 token, i32 n_rows)
{
    int lane = threadIdx.x % 32, g = lane / 4, column = threadIdx.x / 32 * kColumnTiles * 8 + lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < TILES; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            i32 r = m * 16 + h * 8 + g, row = item.tile * kRows + r;
            if (r >= n_rows)
                continue;
            float total = 0.f;
#pragma unroll
            for (int w = 0; w < kKeyWarps * kChains; w++)
                total += sums[w * kRows + r];
            if (item.n_items == 1) {
                float by = total == 0.f ? 0.f : p.v_scale / total; // no visible key: 0; NaN stays NaN
                u16 *to = p.o + (i64)(token + row / GROUP) * p.o_stride +
                          (i64)(blockIdx.y * GROUP + row % GROUP) * V_DIM + column;
#pragma unroll
                for (int n = 0; n < kColumnTiles; n++)
                    *(u32 *)(to + n * 8) = pack_bf16(o[m][n][2 * h] * by, o[m][n][2 * h + 1] * by);
            } else {
                i64 slot = ((i64)item.slot * KV_HEADS + blockIdx.y) * kRows + r;
#pragma unroll
                for (int n = 0; n < kColumnTiles; n++)
                    *(float2 *)(p.partial + slot * V_DIM + column + n * 8) =
                        make_float2(o[m][n][2 * h], o[m][n][2 * h + 1]);
                if (column == 0)
                    p.state[slot * 2 + 1] = total;
            }
        }
}

KERNEL __launch_bounds__(kWarps * 32, 1) attention_wide(const __grid_constant__ attention_wide_params p)
{
    static_assert(HEAD_DIM % 64 == 0 && V_DIM % (16 * kWarps) == 0 && KEYS % 16 == 0, "whole fragments");
    extern __shared__ __align__(128) u8 shared[];
    pdl_go();
    attention_chunk_item item = p.items[blockIdx.x];
    if (item.seq < 0) { // those of the first item stay, so that this kernel does not end before the one in front of it
        if (blockIdx.x == 0)
            pdl_wait();
        return;
    }
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q4 = lane % 4;
    i32 token = p.q_start[item.seq], tokens = p.q_start[item.seq + 1] - token, kv_len = p.kv_len[item.seq];
    i32 row0 = item.tile * kRows, n_rows = tokens * GROUP - row0, end = min(item.end, kv_len);
    i32 newest = kv_len - tokens, stored = DECODE ? newest : 0; // earlier steps have stored keys before `stored`
    const i32 *pages = p.page_ids + p.page_start[item.seq];
    u32 base = shared_address(shared);
    float *tops = (float *)(shared + Shared::tops), *factors = (float *)(shared + Shared::factors);

#pragma unroll
    for (int s = 0; s < STAGES - 1; s++)
        if (DECODE && item.begin + s * KEYS < end)
            fetch<true>(p, pages, base + s * kStageBytes, item.begin + s * KEYS, item.begin, stored, end);
    pdl_wait();
    fetch_queries(p, base + Shared::q, token, row0, n_rows);
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (item.begin + s * KEYS < end)
            fetch<!DECODE>(p, pages, base + s * kStageBytes, item.begin + s * KEYS, max(stored, item.begin), end, end);
        copy_async_commit();
    }

    int m_tile = warp / kKeyWarps, key_warp = warp % kKeyWarps; // warps from TILES * kKeyWarps on have no scores
    i32 last[2]; // the last key that a row sees
#pragma unroll
    for (int h = 0; h < 2; h++)
        last[h] = min(newest + (row0 + m_tile * 16 + g + 8 * h) / GROUP, end - 1);
    float o[TILES][kColumnTiles][4] = {}, m[2] = {-kInfinity, -kInfinity}, l[kChains][2] = {};
    int stage = 0;
    for (i32 first = item.begin; first < end; first += KEYS) {
        copy_async_wait<STAGES - 2>();
        __syncthreads(); // the block is there, and nobody reads the one before it any more
        i32 ahead = first + (STAGES - 1) * KEYS;
        if (ahead < end)
            fetch<true>(p, pages, base + (stage + STAGES - 1) % STAGES * kStageBytes, ahead, 0, end, end);
        copy_async_commit();
        u32 block = base + stage * kStageBytes;
        float s[kKeyTiles][4];
        bool scores = m_tile < TILES;
        if (scores) {
            make_scores(s, base + Shared::q + at(m_tile * 16, 0), block + at(key_warp * kWarpKeys, 0));
#pragma unroll
            for (int n = 0; n < kKeyTiles; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    i32 j = first + key_warp * kWarpKeys + n * 8 + q4 * 2 + e % 2;
                    s[n][e] = j <= last[e / 2] ? s[n][e] * p.scale_log2 : -kInfinity;
                }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float top = row_top(s, h);
                if (q4 == 0)
                    tops[key_warp * kRows + m_tile * 16 + g + 8 * h] = top;
            }
        }
        __syncthreads(); // all maxima
        if (scores) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int r = m_tile * 16 + g + 8 * h;
                float top = m[h];
#pragma unroll
                for (int w = 0; w < kKeyWarps; w++)
                    top = fmaxf(top, tops[w * kRows + r]);
                float zero = top == -kInfinity ? 0.f : top, keep = exp2_fast(m[h] - zero), sum[kChains] = {};
                m[h] = top;
#pragma unroll
                for (int n = 0; n < kKeyTiles; n++) {
                    float a = exp2_fast(s[n][2 * h] - zero), b = exp2_fast(s[n][2 * h + 1] - zero);
                    sum[n % kChains] += a + b;
                    *(u32 *)(shared + Shared::weights + r * kWeightRow + (key_warp * kWarpKeys + n * 8 + q4 * 2) * 2) =
                        pack_bf16(a, b);
                }
#pragma unroll
                for (int n = 0; n < kChains; n++)
                    l[n][h] = __fmaf_rn(l[n][h], keep, sum[n]); // this lane's keys only
                if (key_warp == 0 && q4 == 0)
                    factors[r] = keep;
            }
        }
        __syncthreads(); // all weights
        add_values(o, base + Shared::weights, factors, block + (LATENT ? 0 : kKeyBytes));
        stage = (stage + 1) % STAGES;
    }
    copy_async_wait<0>();
    __syncthreads();
    if (m_tile < TILES)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int r = m_tile * 16 + g + 8 * h;
#pragma unroll
            for (int n = 0; n < kChains; n++) {
                l[n][h] += __shfl_xor_sync(~0u, l[n][h], 1);
                l[n][h] += __shfl_xor_sync(~0u, l[n][h], 2);
                if (q4 == 0)
                    tops[(key_warp * kChains + n) * kRows + r] = l[n][h];
            }
            if (q4 == 0 && key_warp == 0 && item.n_items > 1 && r < n_rows)
                p.state[(((i64)item.slot * KV_HEADS + blockIdx.y) * kRows + r) * 2] = m[h];
        }
    __syncthreads();
    store_rows(p, item, o, tops, token, n_rows);
}
