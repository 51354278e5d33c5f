// Decode attention over paged KV, one query token a sequence or a few, split over KV and merged by the
// last CTA.
//
// q [tokens, kv_heads * GROUP * HEAD_DIM] bf16 slice, pools [pages, kv_heads, PAGE, HEAD_DIM] bf16
// (FP8: E4M3 of k / k_scale, which is in scale_log2, and of v / v_scale), o like q.
// Grid: x = kv heads, y = items of the plan, z = tiles of 16 heads of a group. An item is a KV range
// [begin, end), of one of two kinds:
//
//   own      The range of one sequence. The group's query heads are the 16-row side of mma m16n8k16, so K and V
//            are read once for all of them. Warp w takes the blocks of 16 tokens w, w + WARPS, ... of the range
//            through its own ring of STAGES blocks in shared memory (cp.async, no barrier between warps), with
//            its own running maximum and sum. The warps meet once, at the end.
//   shared   A range that several sequences have in the same pages: four warps, 64 rows (sequence, head), 16
//            rows a warp. The four rings together are STAGES blocks of 64 tokens that all warps read.
//
// An item that is not its whole sequence leaves (m, l, O) in fp32 in a slot. The last CTA of a (sequence, kv
// head) merges the sequence's slots, which are in rising order of KV.
// Bytes: 4 * kv_len * kv_heads * HEAD_DIM a sequence (FP8 2), shared ranges once: the roof is memory
// bandwidth.
// FP8: ldmatrix brings words of four bytes, which become two pairs of bf16 in registers (kv.cuh): bytes 0 and 2,
// and bytes 1 and 3. In K, word t of a row is dimensions 4 t .. 4 t + 3 of 16; Q's fragments have the same order.
// In transposed V, a word is dimensions 2 g and 2 g + 1 of two tokens: the even and the odd dimensions of 16 make
// a tile each, and a lane's four sums are neighbours.
// Before its turn (pdl_wait) an own item fetches the first blocks of every warp's ring: earlier steps have stored
// all KV but that of the step's own token, and a copy to the device lies between steps.
// SHARED 0: the plan has no shared items, and the instance no code for them. It is less than half as large; an SM
// fetches the code once a layer, which small batches feel.
// MULTI: a sequence brings several tokens, each of which sees the KV up to itself. A row is a (token, head of the
// group) pair, row r = token * GROUP + head, so that K and V are read once for 16 of them. Grid y counts items times
// tiles of 16 rows; a tile that the sequence does not fill has no work. KV of the sequence's own tokens is fetched
// after pdl_wait, all other KV before it. There are no shared items.
// TURN: q, and k and v of the step's own tokens, are as the projection left them; see attention_turn.cuh. There are no
// shared items, and no MULTI.
// Template: HEAD_DIM (16-multiple up to 256), GROUP, KV_HEADS, PAGE, WARPS, STAGES, WINDOWED, FP8, SHARED, MULTI,
// SINKS, CAP, TURN, PLUS_ONE.
#include "kv.cuh"
#include "attention_params.h"
#include "attention_cap.cuh"
#include "attention_sink.cuh"

constexpr int kWarps = WARPS, kBlock = 16, kDimSteps = HEAD_DIM / 16, kVecs = HEAD_DIM / kKvVec,
              kRowBytes = kVecs * 16;
constexpr bool kOneTile = GROUP <= 16 && !MULTI; // a tile's rows are known when compiling
constexpr int kTileHeads = GROUP < 16 && !MULTI ? GROUP : 16; // rows of a tile
constexpr u32 kBlockBytes = kBlock * kRowBytes; // of K, and again of V
constexpr bool kLow = kTileHeads > 8;           // rows 8 .. 15 of the fragments are used too
constexpr i32 kNoToken = MULTI ? 0x7fffffff : -1;

// 16-byte chunk c of row r; the exclusive or spreads eight rows over all banks (rows of 64 bytes or of
// 128 n).
INLINE u32 at(u32 row, u32 chunk)
{
    constexpr u32 kMask = kVecs % 8 == 0 ? 7 : kVecs == 4 ? 3 : 0, kShift = kVecs == 4;
    return row * kRowBytes + ((chunk ^ (row >> kShift & kMask)) << 4);
}

// The running state of rows g and g + 8 of a warp's tile.
struct Rows {
    float o[kDimSteps * 2][4], m[2], l[2];
};

// Adds N blocks of 16 tokens from `first` on; K of block b at ks + b * apart, V behind it. `keep`
// says whether row half h sees token j.
template <int N, int HALVES, typename Keep>
INLINE void add_blocks(Rows &x, const u32 (&q)[kDimSteps][4], u32 ks, u32 apart, i32 first,
                       float scale_log2, float cap_factor, Keep keep)
{
    int lane = threadIdx.x % 32, q4 = lane % 4;
    float s[2 * N][4] = {};
#if FP8
#pragma unroll
    for (int d = 0; d < kDimSteps; d += 2) // a last odd step is read twice
#pragma unroll
        for (int b = 0; b < N; b++) {
            frag4 k = load_matrix4(ks + b * apart + at(lane / 16 * 8 + lane % 8,
                                                       min(d + lane / 8 % 2, kVecs - 1)));
#pragma unroll
            for (int i = 0; i < 2 && d + i < kDimSteps; i++)
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    u32 w = k.r[2 * n + i];
                    mma_bf16(s[2 * b + n], q[d + i][0], q[d + i][1], q[d + i][2], q[d + i][3],
                             e4m3_even(w), e4m3_odd(w));
                }
        }
#else
#pragma unroll
    for (int d = 0; d < kDimSteps; d++)
#pragma unroll
        for (int b = 0; b < N; b++) {
            frag4 k = load_matrix4(ks + b * apart +
                                   at(lane / 16 * 8 + lane % 8, d * 2 + lane / 8 % 2));
            mma_bf16(s[2 * b], q[d][0], q[d][1], q[d][2], q[d][3], k.r[0], k.r[1]);
            mma_bf16(s[2 * b + 1], q[d][0], q[d][1], q[d][2], q[d][3], k.r[2], k.r[3]);
        }
#endif
    float top[2] = {x.m[0], x.m[1]};
#pragma unroll
    for (int n = 0; n < 2 * N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            s[n][e] = keep(e / 2, first + n * 8 + q4 * 2 + e % 2)
                          ? capped(s[n][e], cap_factor) * scale_log2
                          : -kInfinity;
            top[e / 2] = fmaxf(top[e / 2], s[n][e]);
        }
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 1));
        top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 2));
        float base = top[h] == -kInfinity ? 0.f : top[h]; // nothing kept yet: exp2(-inf - 0) = 0
        float shrink = exp2_fast(x.m[h] - base);
        x.m[h] = top[h];
        float sum = 0.f;
#pragma unroll
        for (int n = 0; n < 2 * N; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                s[n][2 * h + e] = exp2_fast(s[n][2 * h + e] - base);
                sum += s[n][2 * h + e];
            }
        x.l[h] = x.l[h] * shrink + sum; // this lane's columns only; the quad is summed at the end
#pragma unroll
        for (int d = 0; d < kDimSteps * 2; d++) {
            x.o[d][2 * h] *= shrink;
            x.o[d][2 * h + 1] *= shrink;
        }
    }
#pragma unroll
    for (int b = 0; b < N; b++) {
        const float *low = s[2 * b], *high = s[2 * b + 1];
        u32 vs = ks + b * apart + kBlockBytes;
        u32 a0 = pack_bf16(low[0], low[1]), a1 = HALVES > 1 ? pack_bf16(low[2], low[3]) : 0;
        u32 a2 = pack_bf16(high[0], high[1]), a3 = HALVES > 1 ? pack_bf16(high[2], high[3]) : 0;
#if FP8
#pragma unroll
        for (int d = 0; d < kDimSteps; d += 2) {
            frag4 v = load_matrix4_transposed(vs + at(lane % 16, min(d + lane / 16, kVecs - 1)));
#pragma unroll
            for (int i = 0; i < 2 && d + i < kDimSteps; i++) {
                u32 w0 = v.r[2 * i], w1 = v.r[2 * i + 1];
                mma_bf16(x.o[2 * (d + i)], a0, a1, a2, a3, e4m3_even(w0), e4m3_even(w1));
                mma_bf16(x.o[2 * (d + i) + 1], a0, a1, a2, a3, e4m3_odd(w0), e4m3_odd(w1));
            }
        }
#else
#pragma unroll
        for (int d = 0; d < kDimSteps; d++) {
            frag4 v = load_matrix4_transposed(vs +
                                              at(lane / 8 % 2 * 8 + lane % 8, d * 2 + lane / 16));
            mma_bf16(x.o[2 * d], a0, a1, a2, a3, v.r[0], v.r[1]);
            mma_bf16(x.o[2 * d + 1], a0, a1, a2, a3, v.r[2], v.r[3]);
        }
#endif
    }
}

// Sums a row's l over the four lanes that hold its columns.
template <int HALVES> INLINE void sum_quads(Rows &x)
{
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        x.l[h] += __shfl_xor_sync(~0u, x.l[h], 1);
        x.l[h] += __shfl_xor_sync(~0u, x.l[h], 2);
    }
}

// Stores this lane's part of row half h to [HEAD_DIM].
INLINE void store_row(float *to, const Rows &x, int h)
{
    int q4 = threadIdx.x % 4;
#if FP8
#pragma unroll
    for (int d = 0; d < kDimSteps; d++) {
        const float *even = x.o[2 * d] + 2 * h, *odd = x.o[2 * d + 1] + 2 * h;
        *(float4 *)(to + d * 16 + q4 * 4) = make_float4(even[0], odd[0], even[1], odd[1]);
    }
#else
#pragma unroll
    for (int d = 0; d < kDimSteps * 2; d++)
        *(float2 *)(to + d * 8 + q4 * 2) = make_float2(x.o[d][2 * h], x.o[d][2 * h + 1]);
#endif
}

// Copies this warp's block of 16 tokens to `to`, except token `but` (MULTI: and those after it); zeros from `end` on.
// A lane's copies lie at fixed distances from its first one, and those that it leaves out cost no branch.
INLINE void fetch_block(const attention_decode_params &p, const i32 *pages, u32 to, i32 block, i32 begin,
                        i32 end, i32 but = kNoToken)
{
    constexpr bool kOnePage = PAGE % kBlock == 0; // a block is in one page
    i32 lane = threadIdx.x % 32, first = block * kBlock, start = first < end ? first : begin;
    i64 row0 = kOnePage ? ((i64)pages[start / PAGE] * KV_HEADS + blockIdx.x) * PAGE + start % PAGE
                        : 0;
    const kv_t *k = p.k_pool + row0 * HEAD_DIM + lane * kKvVec, *v = p.v_pool + row0 * HEAD_DIM + lane * kKvVec;
#pragma unroll
    for (int i = 0; i < kBlock * kVecs; i += 32) {
        i32 r = (i + lane) / kVecs, c = (i + lane) % kVecs, j = first + r;
        bool inside = j < end;
        if (MULTI ? inside && j >= but : j == but)
            continue;
        if (kBlock * kVecs % 32 != 0 && r >= kBlock)
            continue;
        i64 from = i * kKvVec;
        if constexpr (!kOnePage) {
            i32 jj = inside ? j : begin;
            i64 row = ((i64)pages[jj / PAGE] * KV_HEADS + blockIdx.x) * PAGE + jj % PAGE;
            from = row * HEAD_DIM + (c - lane) * kKvVec;
        }
        copy_async16(to + at(r, c), k + from, inside ? 16 : 0);
        copy_async16(to + kBlockBytes + at(r, c), v + from, inside ? 16 : 0);
    }
}

// Copies token j alone, to its place in a block.
INLINE void fetch_token(const attention_decode_params &p, const i32 *pages, u32 to, i32 j)
{
    i64 from = (((i64)pages[j / PAGE] * KV_HEADS + blockIdx.x) * PAGE + j % PAGE) * HEAD_DIM;
#pragma unroll
    for (int i = threadIdx.x % 32; i < 2 * kVecs; i += 32) {
        bool is_v = i >= kVecs;
        i32 c = is_v ? i - kVecs : i;
        copy_async16(to + is_v * kBlockBytes + at(j % kBlock, c),
                     (is_v ? p.v_pool : p.k_pool) + from + c * kKvVec, 16);
    }
}

// Q fragments of rows `low` and `high` of the tile; NULL: zeros.
INLINE void load_queries(u32 (&q)[kDimSteps][4], const u16 *low, const u16 *high)
{
    int q4 = threadIdx.x % 4;
#pragma unroll
    for (int s = 0; s < kDimSteps; s++) {
#if FP8
        uint2 none = make_uint2(0, 0), a = low ? *(const uint2 *)(low + s * 16 + q4 * 4) : none,
              b = high ? *(const uint2 *)(high + s * 16 + q4 * 4) : none;
        q[s][0] = __byte_perm(a.x, a.y, 0x5410); // dimensions 0 and 2 of the lane's four
        q[s][2] = __byte_perm(a.x, a.y, 0x7632); // 1 and 3
        q[s][1] = __byte_perm(b.x, b.y, 0x5410);
        q[s][3] = __byte_perm(b.x, b.y, 0x7632);
#else
        q[s][0] = low ? *(const u32 *)(low + s * 16 + q4 * 2) : 0;
        q[s][2] = low ? *(const u32 *)(low + s * 16 + q4 * 2 + 8) : 0;
        q[s][1] = high ? *(const u32 *)(high + s * 16 + q4 * 2) : 0;
        q[s][3] = high ? *(const u32 *)(high + s * 16 + q4 * 2 + 8) : 0;
#endif
    }
}

#if TURN
#include "attention_turn.cuh"
#endif

// Where row r of a sequence goes, whose first token in the batch is `token`.
INLINE u16 *out_row(const attention_decode_params &p, i32 token, i32 r)
{
    if (MULTI) {
        token += r / GROUP;
        r %= GROUP;
    }
    return p.o + (i64)token * p.o_stride + (blockIdx.x * GROUP + r) * HEAD_DIM;
}

// The sink of row r, of a sequence or of a slot.
INLINE float sink_of_row(const attention_decode_params &p, i32 r)
{
    return sink_of(p.sinks, blockIdx.x * GROUP + r % GROUP);
}

// The place of row r of a slot among all slots' rows.
INLINE i64 slot_row(const attention_decode_params &p, i64 slot, i32 r)
{
    return (slot * KV_HEADS + blockIdx.x) * (MULTI ? p.rows : GROUP) + r;
}

// Merges the slots of n_done sequences, all of which are written, and stores rows [head0, head0 + heads) of each: a
// row is a head, MULTI a token's head. Each thread takes UNITS pieces of four dimensions at a time through all slots
// in rising order, their maxima and sums beside them.
//
// Nearly all of the time is spent waiting for loads from L2: a thread has UNITS times DEPTH slots in flight, and waits
// once where DEPTH is all of them.
constexpr int kPieces = HEAD_DIM / 4, kMostRows = 64;
template <int UNITS, int DEPTH>
INLINE void merge_slots(const attention_decode_params &p, const attention_decode_member *done, int n_done, int head0,
                        int heads)
{
    int rows = n_done * heads;
#pragma unroll 1
    for (int first = threadIdx.x; first < rows * kPieces; first += kWarps * 32 * UNITS) {
        float4 sum[UNITS] = {};
        const float *partial[UNITS], *state[UNITS];
        float top[UNITS], total[UNITS] = {};
        int n[UNITS], most = 0;
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            int i = first + u * kWarps * 32, row = i / kPieces;
            bool inside = i < rows * kPieces;
            i64 slot = inside ? slot_row(p, done[row / heads].first_slot, head0 + row % heads) : 0;
            n[u] = inside ? done[row / heads].n_slots : 0;
            top[u] = -kInfinity;
            partial[u] = p.partial + slot * HEAD_DIM + i % kPieces * 4;
            state[u] = p.state + slot * 2;
            most = max(most, n[u]);
        }
#pragma unroll 1
        for (int k0 = 0; k0 < most; k0 += DEPTH) { // no branch between the loads
            float4 v[DEPTH][UNITS];
            float2 ml[DEPTH][UNITS];
#pragma unroll
            for (int j = 0; j < DEPTH; j++)
#pragma unroll
                for (int u = 0; u < UNITS; u++) {
                    i64 slot = (i64)max(min(k0 + j, n[u] - 1), 0) * KV_HEADS * (MULTI ? p.rows : GROUP);
                    LOADS_ARE_DISCARDED(n[u] == 0);
                    ml[j][u] = __ldcg((const float2 *)(state[u] + slot * 2));
                    v[j][u] = __ldcg((const float4 *)(partial[u] + slot * HEAD_DIM));
                    LOADS_ARE_DISCARDED(false);
                }
#pragma unroll
            for (int u = 0; u < UNITS; u++) {
                float before = top[u];
#pragma unroll
                for (int j = 0; j < DEPTH; j++)
                    top[u] = fmaxf(top[u], ml[j][u].x);
                float base = top[u] == -kInfinity ? 0.f : top[u], shrink = exp2_fast(before - base);
                total[u] *= shrink;
                sum[u] = make_float4(sum[u].x * shrink, sum[u].y * shrink, sum[u].z * shrink, sum[u].w * shrink);
#pragma unroll
                for (int j = 0; j < DEPTH; j++) {
                    float weight = k0 + j < n[u] ? exp2_fast(ml[j][u].x - base) : 0.f;
                    total[u] += weight * ml[j][u].y;
                    sum[u].x += weight * v[j][u].x;
                    sum[u].y += weight * v[j][u].y;
                    sum[u].z += weight * v[j][u].z;
                    sum[u].w += weight * v[j][u].w;
                }
            }
        }
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            int i = first + u * kWarps * 32, row = i / kPieces;
            if (i >= rows * kPieces)
                continue;
            float by = total[u] == 0.f ? 0.f : p.v_scale / total[u]; // no visible key: 0; NaN stays NaN
            if constexpr (SINKS)
                by = row_factor(top[u], total[u], p.v_scale, sink_of_row(p, head0 + row % heads));
            *(uint2 *)(out_row(p, p.q_start[done[row / heads].seq], head0 + row % heads) + i % kPieces * 4) =
                make_uint2(pack_bf16(sum[u].x * by, sum[u].y * by),
                           pack_bf16(sum[u].z * by, sum[u].w * by));
        }
    }
}

// An own item: a range of one sequence, for the tile of its rows that begins with row head0.
INLINE void attend_own(const attention_decode_params &p, const attention_decode_item &item, int head0, u8 *shared)
{
    constexpr int kHalves = kLow ? 2 : 1;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q4 = lane % 4;
    int kv_head = blockIdx.x;
    i32 kv_len = p.kv_len[item.seq], begin = item.begin, end = min(item.end, kv_len);
    const i32 *pages = p.page_ids + p.page_start[item.seq];
    i32 token = p.q_start[item.seq], tokens = MULTI ? p.q_start[item.seq + 1] - token : 1;
    i32 newest = kv_len - tokens; // the position of the first token that this step stores
    i32 rows = tokens * GROUP, position[2] = {newest, newest};
    if (MULTI)
#pragma unroll
        for (int h = 0; h < 2; h++)
            position[h] += (head0 + g + 8 * h) / GROUP;
    if (WINDOWED) {
        i32 first_kept = max(0, newest + (MULTI ? head0 / GROUP : 0) + 1 - p.window);
        begin = max(begin, min(first_kept, end));
    }

    u32 ring = shared_address(shared) + warp * STAGES * 2 * kBlockBytes;
    i32 block0 = begin / kBlock + warp, n_blocks = (end + kBlock - 1) / kBlock;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++)
        if (block0 + s * kWarps < n_blocks)
            fetch_block(p, pages, ring + s * 2 * kBlockBytes, block0 + s * kWarps, begin, end,
                        newest);
    u32 q[kDimSteps][4]; // rows head0 + g and head0 + g + 8
#if TURN
    i32 turned = (newest / kBlock - begin / kBlock) / kWarps; // the block of its warp that has the newest token
    bool own = newest >= begin && newest < end && newest / kBlock == block0 + turned * kWarps;
    i32 slot = own ? p.turn.slot[token] : 0;
    TurnedRow row;
    row.prepare(p, token, newest, g, own);
    pdl_wait();
    turn_rows(p, row, token, slot, newest, own,
              own && turned < STAGES - 1 ? shared + (warp * STAGES + turned) * 2 * kBlockBytes : nullptr, q);
#else
    pdl_wait();
    auto q_row = [&](i32 r) {
        return p.q + (i64)(token + (MULTI ? r / GROUP : 0)) * p.q_stride +
               (i64)(kv_head * GROUP + (MULTI ? r % GROUP : r)) * HEAD_DIM;
    };
    load_queries(q, head0 + g < rows ? q_row(head0 + g) : nullptr,
                 kLow && head0 + g + 8 < rows ? q_row(head0 + g + 8) : nullptr);
#endif
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (MULTI) {
            i32 first = (block0 + s * kWarps) * kBlock;
#pragma unroll 1
            for (i32 j = max(newest, first); j < min(end, first + kBlock); j++)
                fetch_token(p, pages, ring + s * 2 * kBlockBytes, j);
        } else if (!TURN && newest < end && newest / kBlock == block0 + s * kWarps) {
            fetch_token(p, pages, ring + s * 2 * kBlockBytes, newest);
        }
        copy_async_commit();
    }
    Rows x = {{}, {-kInfinity, -kInfinity}, {0.f, 0.f}};
    int stage = 0;
    for (i32 block = block0; block < n_blocks; block += kWarps) {
        i32 ahead = block + (STAGES - 1) * kWarps;
        if (ahead < n_blocks)
            fetch_block(p, pages, ring + (stage + STAGES - 1) % STAGES * 2 * kBlockBytes, ahead,
                        begin, end);
        copy_async_commit();
        copy_async_wait<STAGES - 1>();
        __syncwarp();
        add_blocks<1, kHalves>(x, q, ring + stage * 2 * kBlockBytes, 0, block * kBlock,
                               p.scale_log2, p.cap_factor, [&](int h, i32 j) {
                                   return j < end && j >= begin &&
                                          (!MULTI || (j <= position[h] &&
                                                      (!WINDOWED || j > position[h] - p.window)));
                               });
        __syncwarp(); // all lanes have read the stage that the next fetch overwrites
        stage = (stage + 1) % STAGES;
    }
    copy_async_wait<0>();
    sum_quads<kHalves>(x);

    // the warps meet: [warp][heads][HEAD_DIM] and (m, l)
    __syncthreads();
    float *sum_o = (float *)shared, *sum_ml = sum_o + kWarps * kTileHeads * HEAD_DIM;
#pragma unroll
    for (int h = 0; h < kHalves; h++) {
        int r = g + 8 * h;
        if (r >= kTileHeads)
            continue;
        store_row(sum_o + (warp * kTileHeads + r) * HEAD_DIM, x, h);
        if (q4 == 0) {
            sum_ml[(warp * kTileHeads + r) * 2] = x.m[h];
            sum_ml[(warp * kTileHeads + r) * 2 + 1] = x.l[h];
        }
    }
    __syncthreads();
    int heads = kOneTile ? GROUP : min(kTileHeads, rows - head0);
    for (int i = threadIdx.x; i < heads * HEAD_DIM; i += kWarps * 32) {
        int r = i / HEAD_DIM, d = i % HEAD_DIM;
        float top = -kInfinity, total = 0.f, value = 0.f;
#pragma unroll
        for (int w = 0; w < kWarps; w++)
            top = fmaxf(top, sum_ml[(w * kTileHeads + r) * 2]);
        float base = top == -kInfinity ? 0.f : top;
#pragma unroll
        for (int w = 0; w < kWarps; w++) {
            float factor = exp2_fast(sum_ml[(w * kTileHeads + r) * 2] - base);
            total += factor * sum_ml[(w * kTileHeads + r) * 2 + 1];
            value += factor * sum_o[(w * kTileHeads + r) * HEAD_DIM + d];
        }
        if (item.n_slots == 1) {
            float result = total == 0.f ? 0.f : value / total * p.v_scale; // no visible key: 0; NaN stays NaN
            if constexpr (SINKS)
                result = value * row_factor(top, total, p.v_scale, sink_of_row(p, head0 + r));
            out_row(p, token, head0 + r)[d] = f32_bf16(result);
        } else {
            i64 slot = slot_row(p, item.slot, head0 + r);
            p.partial[slot * HEAD_DIM + d] = value;
            if (d == 0) {
                p.state[slot * 2] = top;
                p.state[slot * 2 + 1] = total;
            }
        }
    }
    if (item.n_slots == 1)
        return;
    i32 tiles = MULTI ? (p.rows + 15) / 16 : (GROUP + 15) / 16;
    u32 *ticket = p.tickets + (item.seq * KV_HEADS + kv_head) * tiles + head0 / 16;
    if (!last_of_acq_rel(ticket, item.n_slots))
        return;
    constexpr int kUnits = (kTileHeads * kPieces + kWarps * 32 - 1) / (kWarps * 32);
    attention_decode_member whole = {item.seq, item.first_slot, item.n_slots, 0};
    merge_slots<kUnits < 4 ? kUnits : 4, 16 / (kUnits < 4 ? kUnits : 4)>(p, &whole, 1, head0, heads);
}

#if SHARED
// Draws the ticket of every member. Members whose last slot this CTA wrote go to `done`; returns how many.
INLINE int last_of_members(const attention_decode_params &p, const attention_decode_member *member, int n,
                           attention_decode_member *done)
{
    __shared__ u32 last[2];
    if (threadIdx.x < 2)
        last[threadIdx.x] = 0;
    __threadfence();
    __syncthreads();
    bool mine = false;
    if (threadIdx.x < n) {
        u32 *ticket = p.tickets + member[threadIdx.x].seq * KV_HEADS + blockIdx.x;
        mine = atomicAdd(ticket, 1u) + 1 == member[threadIdx.x].n_slots;
        if (mine) {
            *ticket = 0;
            atomicOr(&last[threadIdx.x / 32], 1u << threadIdx.x % 32);
        }
    }
    __syncthreads();
    u32 low = last[0], high = last[1], below = (1u << threadIdx.x % 32) - 1;
    if (mine)
        done[threadIdx.x < 32 ? __popc(low & below) : __popc(low) + __popc(high & below)] =
            member[threadIdx.x];
    if (low | high)
        __threadfence();
    __syncthreads();
    return __popc(low) + __popc(high);
}

// A shared item: row r of the tile is head r % GROUP of member r / GROUP. The range ends before every member's
// newest token.
INLINE void attend_shared(const attention_decode_params &p, const attention_decode_item &item, u8 *shared)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q4 = lane % 4;
    const attention_decode_member *member = p.members + item.seq;
    const i32 *pages = p.page_ids + p.page_start[member[0].seq];
    i32 begin = item.begin, end = item.end, first_kept[2] = {0, 0};
    const u16 *q_row[2];
    attention_decode_member mine[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int r = warp * 16 + h * 8 + g, i = r / GROUP;
        mine[h] = member[i < item.n_members ? i : 0];
        q_row[h] = i < item.n_members ? p.q + (i64)p.q_start[mine[h].seq] * p.q_stride +
                                            (i64)(blockIdx.x * GROUP + r % GROUP) * HEAD_DIM
                                      : nullptr;
        if (WINDOWED)
            first_kept[h] = max(0, p.kv_len[mine[h].seq] - p.window);
    }
    if (WINDOWED) { // begin where the first of the members' windows does
        i32 least = end;
        for (int i = lane; i < item.n_members; i += 32)
            least = min(least, p.kv_len[member[i].seq] - p.window);
#pragma unroll
        for (int d = 16; d; d >>= 1)
            least = min(least, __shfl_xor_sync(~0u, least, d));
        begin = max(begin, least);
    }
    u32 q[kDimSteps][4];
    load_queries(q, q_row[0], q_row[1]);

    constexpr u32 kApart = STAGES * 2 * kBlockBytes; // from one warp's ring to the next
    constexpr int kTogether = FP8 ? 2 : kWarps;      // blocks at once: as many as registers allow
    u32 rings = shared_address(shared), mine_of = rings + warp * kApart;
    i32 block0 = begin / kBlock, n_blocks = (end + kBlock - 1) / kBlock;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (block0 + s * kWarps < n_blocks)
            fetch_block(p, pages, mine_of + s * 2 * kBlockBytes, block0 + s * kWarps + warp, begin,
                        end);
        copy_async_commit();
    }
    Rows x = {{}, {-kInfinity, -kInfinity}, {0.f, 0.f}};
    int stage = 0;
    for (i32 block = block0; block < n_blocks; block += kWarps) {
        i32 ahead = block + (STAGES - 1) * kWarps;
        if (ahead < n_blocks)
            fetch_block(p, pages, mine_of + (stage + STAGES - 1) % STAGES * 2 * kBlockBytes,
                        ahead + warp, begin, end);
        copy_async_commit();
        copy_async_wait<STAGES - 1>();
        __syncthreads();
        if (warp * 16 < item.n_members * GROUP)
#pragma unroll
            for (int b = 0; b < kWarps; b += kTogether)
                add_blocks<kTogether, 2>(x, q, rings + b * kApart + stage * 2 * kBlockBytes, kApart,
                                         (block + b) * kBlock, p.scale_log2, p.cap_factor, [&](int h, i32 j) {
                                             return j < end && j >= begin &&
                                                    (!WINDOWED || j >= first_kept[h]);
                                         });
        __syncthreads(); // all warps have read the stage that the next fetch overwrites
        stage = (stage + 1) % STAGES;
    }
    copy_async_wait<0>();
    sum_quads<2>(x);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (!q_row[h])
            continue;
        i64 slot = ((i64)(mine[h].first_slot + item.slot) * KV_HEADS + blockIdx.x) * GROUP +
                   (warp * 16 + h * 8 + g) % GROUP;
        store_row(p.partial + slot * HEAD_DIM, x, h);
        if (q4 == 0)
            *(float2 *)(p.state + slot * 2) = make_float2(x.m[h], x.l[h]);
    }
    __shared__ attention_decode_member done[kMostRows];
    int n_done = last_of_members(p, member, item.n_members, done);
    if (n_done > 0)
        merge_slots<4, 4>(p, done, n_done, 0, GROUP);
}
#endif

#if FP8 && HEAD_DIM <= 128 && !WINDOWED && WARPS == 4 && __CUDA_ARCH__ >= 900
#define MIN_CTAS 3 /* an SM; the other instances would spill registers */
#else
#define MIN_CTAS 1
#endif

KERNEL __launch_bounds__(kWarps * 32, MIN_CTAS)
    attention_decode(const __grid_constant__ attention_decode_params p)
{
    static_assert(HEAD_DIM % 16 == 0 && HEAD_DIM <= 256, "fragments of 16 dimensions");
    static_assert(!TURN || (HEAD_DIM % 32 == 0 && GROUP < 16 && !SHARED && !MULTI), "see attention_turn.cuh");
    static_assert(!SHARED || (GROUP <= 16 && WARPS == 4 && !MULTI), "a member's heads are in one tile of 64 rows");
    extern __shared__ __align__(128) u8 shared[];
    pdl_go();
    u32 tiles = MULTI ? (p.rows + 15) / 16 : 1;
    attention_decode_item item = p.items[blockIdx.y / tiles];
    int row0 = 16 * (MULTI ? blockIdx.y % tiles : kOneTile ? 0 : blockIdx.z);
    // CTAs without work leave at once, to make room for the next kernel's. Those of the first item stay, so that
    // this kernel does not end before the one in front of it.
    if (item.seq < 0 || (MULTI && row0 >= (p.q_start[item.seq + 1] - p.q_start[item.seq]) * GROUP)) {
        if (blockIdx.y == 0)
            pdl_wait();
        return;
    }
#if SHARED
    if (item.n_members > 0) {
        pdl_wait();
        attend_shared(p, item, shared);
        return;
    }
#endif
    attend_own(p, item, row0, shared);
}
