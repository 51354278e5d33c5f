// Prefill attention over paged KV, FlashAttention-2 style: mma.sync m16n8k16, cp.async, online
// softmax in fp32. (Dao, 2023, arXiv:2307.08691.)
//
// q [tokens, kv_heads * GROUP * HEAD_DIM] bf16 slice, pools [pages, kv_heads, PAGE, HEAD_DIM] bf16
// (FP8: E4M3, which become bf16 as attention_decode.cu says; Q lies in shared memory with the even
// dimensions of 16 first), o like q.
// Grid: x = items of the plan (a sequence and a tile of its packed rows, longest first), y = kv
// heads. Packed row R of a sequence is token R / GROUP, head R % GROUP: the heads of a group share
// every K and V tile. One CTA: WARPS * 16 rows, KV tiles of BLOCK tokens at multiples of BLOCK from
// 0, double-buffered. Only tiles that a mask cuts are masked.
// FLOPs: 4 * HEAD_DIM * heads * (pairs of q and kv); the roof is the mma.sync rate.
// Template: HEAD_DIM, GROUP, KV_HEADS, PAGE, WARPS, BLOCK, WINDOWED, FP8, CHUNK (0, or
// deterministic: of how many keys, attention_chunk.cuh), DECODE (with CHUNK: items are KV ranges of
// single tokens).
#include "kv.cuh"
#include "attention_chunk.cuh"

constexpr int kThreads = WARPS * 32, kRows = WARPS * 16, kDimSteps = HEAD_DIM / 16,
              kVecs = HEAD_DIM / kKvVec, kQVecs = HEAD_DIM / 8; // of 16 bytes in a row
constexpr int kTiles = BLOCK / 8;
constexpr int kTilesToken = (GROUP + kRows - 1) / kRows, kRegs = kDimSteps * 8;
constexpr u32 kKvBytes = BLOCK * kVecs * 16;

// 16-byte chunk of a row of kRow of them; the exclusive or spreads eight rows over all banks.
template <int kRow> INLINE u32 chunk_at(u32 row, u32 chunk)
{
    constexpr u32 kMask = kRow % 8 == 0 ? 7 : kRow == 4 ? 3 : 0, kShift = kRow == 4;
    return row * (kRow * 16) + ((chunk ^ (row >> kShift & kMask)) << 4);
}
INLINE u32 at(u32 row, u32 chunk) { return chunk_at<kVecs>(row, chunk); }
INLINE u32 q_at(u32 row, u32 chunk) { return chunk_at<kQVecs>(row, chunk); }

KERNEL __launch_bounds__(kThreads, 1) attention_prefill_sm80(const __grid_constant__ attention_prefill_sm80_params p)
{
    extern __shared__ __align__(128) u8 shared[];
    int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, g = lane / 4, q4 = lane % 4,
        kv_head = blockIdx.y;
#if DECODE
    attention_chunk_item item = ((const attention_chunk_item *)p.items)[blockIdx.x];
#else
    attention_prefill_item item = ((const attention_prefill_item *)p.items)[blockIdx.x];
#endif
    pdl_go();
    pdl_wait();
    if (item.seq < 0)
        return;
    i32 token0 = p.q_start[item.seq], q_len = p.q_start[item.seq + 1] - token0,
        kv_len = p.kv_len[item.seq];
    i32 past = kv_len - q_len, rows = q_len * GROUP, row0 = item.tile * kRows;
    const i32 *pages = p.page_ids + p.page_start[item.seq];
    i32 last_token = (min(row0 + kRows, rows) - 1) / GROUP, first_token = row0 / GROUP;
    i32 kv_end = past + last_token + 1;
    i32 block_begin = WINDOWED ? max(0, past + first_token - p.window + 1) / BLOCK : 0;
    i32 block_end = (kv_end + BLOCK - 1) / BLOCK;
#if DECODE
    block_end = min(block_end, (item.end + BLOCK - 1) / BLOCK);
    block_begin = max(block_begin, item.begin / BLOCK); // no block: a chunk before the window
#endif

    u32 qs = shared_address(shared), kvs = qs + kRows * kQVecs * 16;
    auto fetch = [&](i32 block, int stage, bool v) {
        u32 to = kvs + (stage * 2 + v) * kKvBytes;
        const kv_t *pool = v ? p.v_pool : p.k_pool;
#pragma unroll
        for (int i = tid; i < BLOCK * kVecs; i += kThreads) {
            i32 r = i / kVecs, c = i % kVecs, j = block * BLOCK + r;
            bool inside = j < kv_end;
            i32 jj = inside ? j : 0;
            i64 from = (((i64)pages[jj / PAGE] * KV_HEADS + kv_head) * PAGE + jj % PAGE) *
                           HEAD_DIM +
                       c * kKvVec;
            copy_async16(to + at(r, c), pool + from, inside ? 16 : 0);
        }
    };
    constexpr int kStep = FP8 ? 2 : 1; // chunks that go together
#pragma unroll
    for (int i = tid; i < kRows * kQVecs / kStep; i += kThreads) {
        i32 r = i / (kQVecs / kStep), c = i % (kQVecs / kStep) * kStep, row = row0 + r;
        bool inside = row < rows;
        i32 t = inside ? row / GROUP : 0, h = inside ? row % GROUP : 0;
        const u16 *from = p.q + (i64)(token0 + t) * p.q_stride + (kv_head * GROUP + h) * HEAD_DIM +
                          c * 8;
#if FP8
        uint4 a = make_uint4(0, 0, 0, 0), b = a;
        if (inside) {
            a = load16(from);
            b = load16(from + 8);
        }
        store16(shared + q_at(r, c), make_uint4(__byte_perm(a.x, a.y, 0x5410), __byte_perm(a.z, a.w, 0x5410),
                                                __byte_perm(b.x, b.y, 0x5410), __byte_perm(b.z, b.w, 0x5410)));
        store16(shared + q_at(r, c + 1), make_uint4(__byte_perm(a.x, a.y, 0x7632), __byte_perm(a.z, a.w, 0x7632),
                                                    __byte_perm(b.x, b.y, 0x7632), __byte_perm(b.z, b.w, 0x7632)));
#else
        copy_async16(qs + q_at(r, c), from, inside ? 16 : 0);
#endif
    }
    if (block_begin < block_end) {
        fetch(block_begin, 0, false);
        fetch(block_begin, 0, true);
    }
    copy_async_commit();

    i32 r_low = row0 + warp * 16 + g, r_high = r_low + 8; // this lane's packed rows
    i32 pos[2] = {past + min(r_low, rows - 1) / GROUP, past + min(r_high, rows - 1) / GROUP};
    i32 warp_first = past + min(row0 + warp * 16, rows - 1) / GROUP;
    i32 warp_last = past + min(row0 + warp * 16 + 15, rows - 1) / GROUP;
    float o[kDimSteps * 2][4] = {};
    float m[2] = {-kInfinity, -kInfinity}, l[2] = {0.f, 0.f};
    auto sum_rows = [&] {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            l[h] += __shfl_xor_sync(~0u, l[h], 1);
            l[h] += __shfl_xor_sync(~0u, l[h], 2);
        }
    };
#if CHUNK
    float room[kRegs], *total = room + (item.seq >> 31); // plus a 0 that keeps it out of the registers
    float total_m[2] = {-kInfinity, -kInfinity}, total_l[2] = {0.f, 0.f};
    bool more = false; // total holds the chunks before this one
#endif
    int stage = 0;
    for (i32 block = block_begin; block < block_end; block++, stage ^= 1) {
        if (block + 1 < block_end) {
            fetch(block + 1, stage ^ 1, false);
            fetch(block + 1, stage ^ 1, true);
        }
        copy_async_commit();
        copy_async_wait<1>();
        __syncthreads();
        u32 ks = kvs + stage * 2 * kKvBytes, vs = ks + kKvBytes;
        i32 j0 = block * BLOCK;
#if CHUNK
        if (block > block_begin && j0 % CHUNK == 0) { // a chunk has ended with the block before
            sum_rows();
            add_chunk<kRegs>(total, total_m, total_l, &o[0][0], m, l, !more);
            more = true;
            m[0] = m[1] = -kInfinity;
            l[0] = l[1] = 0.f;
#pragma unroll
            for (int i = 0; i < kRegs; i++)
                o[i / 4][i % 4] = 0.f;
        }
#endif
        bool skip = j0 > warp_last || (WINDOWED && j0 + BLOCK <= warp_first - p.window + 1);
        if (!skip) {
            float s[kTiles][4] = {};
#if FP8
#pragma unroll
            for (int d = 0; d < kDimSteps; d += 2) { // a last odd one is read twice
                frag4 a[2];
#pragma unroll
                for (int i = 0; i < 2 && d + i < kDimSteps; i++)
                    a[i] = load_matrix4(qs + q_at(warp * 16 + lane % 16, (d + i) * 2 + lane / 16));
#pragma unroll
                for (int n = 0; n < kTiles; n += 2) {
                    frag4 k = load_matrix4(
                        ks + at(n * 8 + lane / 16 * 8 + lane % 8, min(d + lane / 8 % 2, kVecs - 1)));
#pragma unroll
                    for (int i = 0; i < 2 && d + i < kDimSteps; i++)
#pragma unroll
                        for (int m = 0; m < 2; m++) {
                            u32 w = k.r[2 * m + i];
                            mma_bf16(s[n + m], a[i].r[0], a[i].r[1], a[i].r[2], a[i].r[3], e4m3_even(w),
                                     e4m3_odd(w));
                        }
                }
            }
#else
#pragma unroll
            for (int d = 0; d < kDimSteps; d++) {
                frag4 a = load_matrix4(qs + q_at(warp * 16 + lane % 16, d * 2 + lane / 16));
#pragma unroll
                for (int n = 0; n < kTiles; n += 2) {
                    frag4 k = load_matrix4(
                        ks + at(n * 8 + lane / 16 * 8 + lane % 8, d * 2 + lane / 8 % 2));
                    mma_bf16(s[n], a.r[0], a.r[1], a.r[2], a.r[3], k.r[0], k.r[1]);
                    mma_bf16(s[n + 1], a.r[0], a.r[1], a.r[2], a.r[3], k.r[2], k.r[3]);
                }
            }
#endif
            bool cut = j0 + BLOCK - 1 > warp_first || (WINDOWED && j0 <= warp_last - p.window);
            float top[2] = {m[0], m[1]};
#pragma unroll
            for (int n = 0; n < kTiles; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    s[n][e] *= p.scale_log2;
                    if (cut) {
                        i32 j = j0 + n * 8 + q4 * 2 + e % 2;
                        if (j > pos[e / 2] || (WINDOWED && j <= pos[e / 2] - p.window))
                            s[n][e] = -kInfinity;
                    }
                    top[e / 2] = fmaxf(top[e / 2], s[n][e]);
                }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 1));
                top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 2));
                float base = top[h] == -kInfinity ? 0.f : top[h];
                float shrink = exp2_fast(m[h] - base), sum = 0.f;
                m[h] = top[h];
#pragma unroll
                for (int n = 0; n < kTiles; n++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        s[n][2 * h + e] = exp2_fast(s[n][2 * h + e] - base);
                        sum += s[n][2 * h + e];
                    }
                l[h] = l[h] * shrink + sum;
#pragma unroll
                for (int d = 0; d < kDimSteps * 2; d++) {
                    o[d][2 * h] *= shrink;
                    o[d][2 * h + 1] *= shrink;
                }
            }
#pragma unroll
            for (int n = 0; n < kTiles; n += 2) {
                u32 a0 = pack_bf16(s[n][0], s[n][1]), a1 = pack_bf16(s[n][2], s[n][3]);
                u32 a2 = pack_bf16(s[n + 1][0], s[n + 1][1]),
                    a3 = pack_bf16(s[n + 1][2], s[n + 1][3]);
#if FP8
#pragma unroll
                for (int d = 0; d < kDimSteps; d += 2) {
                    frag4 v = load_matrix4_transposed(
                        vs + at(n * 8 + lane % 16, min(d + lane / 16, kVecs - 1)));
#pragma unroll
                    for (int i = 0; i < 2 && d + i < kDimSteps; i++) {
                        u32 w0 = v.r[2 * i], w1 = v.r[2 * i + 1];
                        mma_bf16(o[2 * (d + i)], a0, a1, a2, a3, e4m3_even(w0), e4m3_even(w1));
                        mma_bf16(o[2 * (d + i) + 1], a0, a1, a2, a3, e4m3_odd(w0), e4m3_odd(w1));
                    }
                }
#else
#pragma unroll
                for (int d = 0; d < kDimSteps; d++) {
                    frag4 v = load_matrix4_transposed(
                        vs + at(n * 8 + lane / 8 % 2 * 8 + lane % 8, d * 2 + lane / 16));
                    mma_bf16(o[2 * d], a0, a1, a2, a3, v.r[0], v.r[1]);
                    mma_bf16(o[2 * d + 1], a0, a1, a2, a3, v.r[2], v.r[3]);
                }
#endif
            }
        }
        __syncthreads(); // everybody is done with this stage before the next fetch overwrites it
    }
    sum_rows();
#if CHUNK
    if (more)
        end_chunks<kRegs>(total, total_m, total_l, &o[0][0], m, l);
#endif
#if DECODE
    if (item.n_items > 1) {
        Chunks c = {p.partial, p.state, KV_HEADS, p.v_scale};
        store_chunk(c, blockIdx.x, kv_head, {r_low, r_high}, &o[0][0], m, l);
        if (last_of(p.tickets + (item.seq * kTilesToken + item.tile) * KV_HEADS + kv_head, item.n_items))
            join_chunks<FP8>(c, item, kv_head, row0, min(row0 + kRows, rows), tid, kThreads,
                        p.o + (i64)token0 * p.o_stride + kv_head * GROUP * HEAD_DIM);
        return;
    }
#endif
#pragma unroll
    for (int h = 0; h < 2; h++) {
        i32 row = h ? r_high : r_low;
        if (row >= rows)
            continue;
        float inverse = l[h] > 0.f ? p.v_scale / l[h] : 0.f;
        u16 *out = p.o + (i64)(token0 + row / GROUP) * p.o_stride +
                   (kv_head * GROUP + row % GROUP) * HEAD_DIM + q4 * (FP8 ? 4 : 2);
#if FP8
#pragma unroll
        for (int d = 0; d < kDimSteps; d++)
            *(uint2 *)(out + d * 16) = make_uint2(
                pack_bf16(o[2 * d][2 * h] * inverse, o[2 * d + 1][2 * h] * inverse),
                pack_bf16(o[2 * d][2 * h + 1] * inverse, o[2 * d + 1][2 * h + 1] * inverse));
#else
#pragma unroll
        for (int d = 0; d < kDimSteps * 2; d++)
            *(u32 *)(out + d * 8) = pack_bf16(o[d][2 * h] * inverse, o[d][2 * h + 1] * inverse);
#endif
    }
}
