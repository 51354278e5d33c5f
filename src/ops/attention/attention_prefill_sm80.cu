// Prefill attention over paged KV, FlashAttention-2 style: mma.sync m16n8k16, cp.async, online
// softmax in fp32. (Dao, 2023, arXiv:2307.08691.)
//
// q [tokens, kv_heads * GROUP * HEAD_DIM] bf16 slice; pools [pages, kv_heads, PAGE, HEAD_DIM] bf16; o like q.
// With FP8 the pools hold E4M3, which is converted to bf16 as attention_decode.cu describes. Q then lies in shared
// memory with the even dimensions of each 16 first.
// Grid: x = items of the plan (a sequence and a tile of its packed rows, longest first), y = kv
// heads. Packed row R of a sequence is token R / GROUP, head R % GROUP: the heads of a group share
// every K and V tile. One CTA works on WARPS * 16 rows. KV tiles have BLOCK tokens, begin at multiples
// of BLOCK and are double-buffered. A tile is masked only if a mask cuts it.
// FLOPs: 4 * HEAD_DIM * heads * (pairs of q and kv); the roof is the mma.sync rate.
// Template: HEAD_DIM, GROUP, KV_HEADS, PAGE, WARPS, BLOCK, WINDOWED, FP8, CHUNK (0; in deterministic
// programs the number of keys in a chunk, attention_chunk.cuh), DECODE (only with CHUNK: items are KV
// ranges of a decode's tokens), SINKS, CAP, AFTER (a token sees keys behind its own: attention_span.cuh).
#include "kv.cuh"
#include "attention_cap.cuh"
#include "attention_chunk.cuh"
#include "attention_span.cuh"

constexpr int kThreads = WARPS * 32, kRows = WARPS * 16, kDimSteps = HEAD_DIM / 16,
              kVecs = HEAD_DIM / kKvVec, kQVecs = HEAD_DIM / 8; // 16-byte vectors in a row
constexpr int kTiles = BLOCK / 8;
constexpr int kRegs = kDimSteps * 8;
constexpr u32 kKvBytes = BLOCK * kVecs * 16;

// The place of a 16-byte chunk where a row has kRow chunks; the exclusive or spreads eight rows over all banks.
template <int kRow> INLINE u32 chunk_at(u32 row, u32 chunk)
{
    constexpr u32 kMask = kRow % 8 == 0 ? 7 : kRow == 4 ? 3 : 0, kShift = kRow == 4;
    return row * (kRow * 16) + ((chunk ^ (row >> kShift & kMask)) << 4);
}
INLINE u32 at(u32 row, u32 chunk) { return chunk_at<kVecs>(row, chunk); }
INLINE u32 q_at(u32 row, u32 chunk) { return chunk_at<kQVecs>(row, chunk); }

#if DECODE
typedef attention_chunk_item Item;
#else
typedef attention_prefill_item Item;
#endif

// ---- what a CTA works on ----

struct Tile {
    i32 token0, rows, row0;     // first token in the batch; the sequence's packed rows; the tile's first row
    i32 past, kv_len;           // KV before the sequence's first new token, and all of it
    i32 kv_end;                 // KV that the tile's last token sees
    i32 block_begin, block_end; // of BLOCK keys each
    const i32 *pages;
};

INLINE Tile tile_of(const attention_prefill_sm80_params &p, const Item &item)
{
    Tile t;
    t.token0 = p.q_start[item.seq];
    i32 q_len = p.q_start[item.seq + 1] - t.token0;
    t.kv_len = p.kv_len[item.seq];
    t.past = t.kv_len - q_len;
    t.rows = q_len * GROUP;
    t.row0 = item.tile * kRows;
    t.pages = p.page_ids + p.page_start[item.seq];
    i32 last_token = (min(t.row0 + kRows, t.rows) - 1) / GROUP, first_token = t.row0 / GROUP;
    t.kv_end = last_key(t.past + last_token, p.after, t.kv_len) + 1;
    t.block_begin = WINDOWED ? max(0, t.past + first_token - p.window + 1) / BLOCK : 0;
    t.block_end = (t.kv_end + BLOCK - 1) / BLOCK;
#if DECODE
    t.block_end = min(t.block_end, (item.end + BLOCK - 1) / BLOCK);
    t.block_begin = max(t.block_begin, item.begin / BLOCK); // no block if the chunk lies before the window
#endif
    return t;
}

// ---- global -> shared ----

// Copies the tile's Q rows to the begin of shared memory; rows beyond the last are zeros.
INLINE void fetch_q(const attention_prefill_sm80_params &p, const Tile &t, u8 *shared)
{
    constexpr int kStep = FP8 ? 2 : 1; // chunks that are copied together
#pragma unroll
    for (int i = threadIdx.x; i < kRows * kQVecs / kStep; i += kThreads) {
        i32 r = i / (kQVecs / kStep), c = i % (kQVecs / kStep) * kStep, row = t.row0 + r;
        bool inside = row < t.rows;
        i32 token = inside ? row / GROUP : 0, h = inside ? row % GROUP : 0;
        const u16 *from = p.q + (i64)(t.token0 + token) * p.q_stride +
                          ((i32)blockIdx.y * GROUP + h) * HEAD_DIM + c * 8;
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
        copy_async16(shared_address(shared) + q_at(r, c), from, inside ? 16 : 0);
#endif
    }
}

// Copies a block of K (or V) to `to`; keys beyond kv_end are zeros.
INLINE void fetch_block(const Tile &t, const kv_t *pool, i32 block, u32 to)
{
#pragma unroll
    for (int i = threadIdx.x; i < BLOCK * kVecs; i += kThreads) {
        i32 r = i / kVecs, c = i % kVecs, j = block * BLOCK + r;
        bool inside = j < t.kv_end;
        i32 jj = inside ? j : 0;
        i64 from = (((i64)t.pages[jj / PAGE] * KV_HEADS + (i32)blockIdx.y) * PAGE + jj % PAGE) * HEAD_DIM +
                   c * kKvVec;
        copy_async16(to + at(r, c), pool + from, inside ? 16 : 0);
    }
}

// Copies K and V of a block to a stage.
INLINE void fetch_kv(const attention_prefill_sm80_params &p, const Tile &t, i32 block, u32 stage)
{
    fetch_block(t, p.k_pool, block, stage);
    fetch_block(t, p.v_pool, block, stage + kKvBytes);
}

// ---- a block of keys, by a warp of 16 rows ----

// A lane's part of rows g and g + 8 of its warp, and the rows' positions.
struct Rows {
    float o[kDimSteps * 2][4], m[2], l[2];
    i32 row[2], pos[2], seen[2]; // packed row, position of its token, last key that it sees
    i32 first, last;             // positions of the warp's first and last row
    i32 first_seen, last_seen;   // the last keys that these see
};

INLINE Rows rows_of(const Tile &t, i32 after)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Rows x = {{}, {-kInfinity, -kInfinity}, {0.f, 0.f}};
    x.row[0] = t.row0 + warp * 16 + lane / 4;
    x.row[1] = x.row[0] + 8;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        x.pos[h] = t.past + min(x.row[h], t.rows - 1) / GROUP;
        x.seen[h] = last_key(x.pos[h], after, t.kv_len);
    }
    x.first = t.past + min(t.row0 + warp * 16, t.rows - 1) / GROUP;
    x.last = t.past + min(t.row0 + warp * 16 + 15, t.rows - 1) / GROUP;
    x.first_seen = last_key(x.first, after, t.kv_len);
    x.last_seen = last_key(x.last, after, t.kv_len);
    return x;
}

// s = Q K^T. Steps of 16 FP8 dimensions are read in pairs; if their number is odd, the last one is read twice.
INLINE void score(float (&s)[kTiles][4], u32 qs, u32 ks)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#if FP8
#pragma unroll
    for (int d = 0; d < kDimSteps; d += 2) {
        frag4 a[2];
#pragma unroll
        for (int i = 0; i < 2 && d + i < kDimSteps; i++)
            a[i] = load_matrix4(qs + q_at(warp * 16 + lane % 16, (d + i) * 2 + lane / 16));
#pragma unroll
        for (int n = 0; n < kTiles; n += 2) {
            frag4 k = load_matrix4(ks + at(n * 8 + lane / 16 * 8 + lane % 8, min(d + lane / 8 % 2, kVecs - 1)));
#pragma unroll
            for (int i = 0; i < 2 && d + i < kDimSteps; i++)
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    u32 w = k.r[2 * m + i];
                    mma_bf16(s[n + m], a[i].r[0], a[i].r[1], a[i].r[2], a[i].r[3], e4m3_even(w), e4m3_odd(w));
                }
        }
    }
#else
#pragma unroll
    for (int d = 0; d < kDimSteps; d++) {
        frag4 a = load_matrix4(qs + q_at(warp * 16 + lane % 16, d * 2 + lane / 16));
#pragma unroll
        for (int n = 0; n < kTiles; n += 2) {
            frag4 k = load_matrix4(ks + at(n * 8 + lane / 16 * 8 + lane % 8, d * 2 + lane / 8 % 2));
            mma_bf16(s[n], a.r[0], a.r[1], a.r[2], a.r[3], k.r[0], k.r[1]);
            mma_bf16(s[n + 1], a.r[0], a.r[1], a.r[2], a.r[3], k.r[2], k.r[3]);
        }
    }
#endif
}

// Turns the scores of keys from j0 on into weights 2^(score - m), and scales o and l to the new maximum m.
INLINE void softmax(Rows &x, float (&s)[kTiles][4], i32 j0, float scale_log2, float cap_factor, i32 window)
{
    int q4 = threadIdx.x % 4;
    bool cut = j0 + BLOCK - 1 > x.first_seen || (WINDOWED && j0 <= x.last - window);
    float top[2] = {x.m[0], x.m[1]};
#pragma unroll
    for (int n = 0; n < kTiles; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            s[n][e] = capped(s[n][e], cap_factor) * scale_log2;
            if (cut) {
                i32 j = j0 + n * 8 + q4 * 2 + e % 2;
                if (j > x.seen[e / 2] || (WINDOWED && j <= x.pos[e / 2] - window))
                    s[n][e] = -kInfinity;
            }
            top[e / 2] = fmaxf(top[e / 2], s[n][e]);
        }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 1));
        top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 2));
        float base = top[h] == -kInfinity ? 0.f : top[h];
        float shrink = exp2_fast(x.m[h] - base), sum = 0.f;
        x.m[h] = top[h];
#pragma unroll
        for (int n = 0; n < kTiles; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                s[n][2 * h + e] = exp2_fast(s[n][2 * h + e] - base);
                sum += s[n][2 * h + e];
            }
        x.l[h] = x.l[h] * shrink + sum; // this lane's columns; sum_rows() adds the quad's
#pragma unroll
        for (int d = 0; d < kDimSteps * 2; d++) {
            x.o[d][2 * h] *= shrink;
            x.o[d][2 * h + 1] *= shrink;
        }
    }
}

// o += P V, where P are the weights of the block.
INLINE void add_values(Rows &x, const float (&s)[kTiles][4], u32 vs)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
        u32 a0 = pack_bf16(s[n][0], s[n][1]), a1 = pack_bf16(s[n][2], s[n][3]);
        u32 a2 = pack_bf16(s[n + 1][0], s[n + 1][1]), a3 = pack_bf16(s[n + 1][2], s[n + 1][3]);
#if FP8
#pragma unroll
        for (int d = 0; d < kDimSteps; d += 2) {
            frag4 v = load_matrix4_transposed(vs + at(n * 8 + lane % 16, min(d + lane / 16, kVecs - 1)));
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
            frag4 v = load_matrix4_transposed(vs + at(n * 8 + lane / 8 % 2 * 8 + lane % 8, d * 2 + lane / 16));
            mma_bf16(x.o[2 * d], a0, a1, a2, a3, v.r[0], v.r[1]);
            mma_bf16(x.o[2 * d + 1], a0, a1, a2, a3, v.r[2], v.r[3]);
        }
#endif
    }
}

INLINE void sum_rows(Rows &x)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        x.l[h] += __shfl_xor_sync(~0u, x.l[h], 1);
        x.l[h] += __shfl_xor_sync(~0u, x.l[h], 2);
    }
}

// ---- main loop ----

// Goes over all blocks of the tile, fetching each block while the one before it is used. Afterwards x.l holds the
// rows' sums.

INLINE void attend(const attention_prefill_sm80_params &p, const Tile &t, const Item &item, u32 qs, Rows &x)
{
    u32 kvs = qs + kRows * kQVecs * 16;
    if (t.block_begin < t.block_end)
        fetch_kv(p, t, t.block_begin, kvs);
    copy_async_commit();
#if CHUNK
    float room[kRegs], *total = room + (item.seq >> 31); // + 0, which keeps it out of registers
    float total_m[2] = {-kInfinity, -kInfinity}, total_l[2] = {0.f, 0.f};
    bool more = false; // whether total holds the chunks before this one
#endif
    int stage = 0;
    for (i32 block = t.block_begin; block < t.block_end; block++, stage ^= 1) {
        if (block + 1 < t.block_end)
            fetch_kv(p, t, block + 1, kvs + (stage ^ 1) * 2 * kKvBytes);
        copy_async_commit();
        copy_async_wait<1>();
        __syncthreads();
        u32 ks = kvs + stage * 2 * kKvBytes, vs = ks + kKvBytes;
        i32 j0 = block * BLOCK;
#if CHUNK
        if (block > t.block_begin && j0 % CHUNK == 0) { // the block before this one ended a chunk
            sum_rows(x);
            add_chunk<kRegs>(total, total_m, total_l, &x.o[0][0], x.m, x.l, !more);
            more = true;
            x.m[0] = x.m[1] = -kInfinity;
            x.l[0] = x.l[1] = 0.f;
#pragma unroll
            for (int i = 0; i < kRegs; i++)
                x.o[i / 4][i % 4] = 0.f;
        }
#endif
        if (!(j0 > x.last_seen || (WINDOWED && j0 + BLOCK <= x.first - p.window + 1))) {
            float s[kTiles][4] = {};
            score(s, qs, ks);
            softmax(x, s, j0, p.scale_log2, p.cap_factor, p.window);
            add_values(x, s, vs);
        }
        __syncthreads(); // all warps are done with this stage before the next fetch overwrites it
    }
    sum_rows(x);
#if CHUNK
    if (more)
        end_chunks<kRegs>(total, total_m, total_l, &x.o[0][0], x.m, x.l);
#endif
}

// ---- epilogue ----

INLINE float sink_of_row(const attention_prefill_sm80_params &p, i32 row)
{
    return sink_of(p.sinks, (i32)blockIdx.y * GROUP + row % GROUP);
}

INLINE void store_rows(const attention_prefill_sm80_params &p, const Tile &t, const Rows &x)
{
    int q4 = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (x.row[h] >= t.rows)
            continue;
        float inverse = row_factor(x.m[h], x.l[h], p.v_scale, sink_of_row(p, x.row[h]));
        u16 *out = p.o + (i64)(t.token0 + x.row[h] / GROUP) * p.o_stride +
                   ((i32)blockIdx.y * GROUP + x.row[h] % GROUP) * HEAD_DIM + q4 * (FP8 ? 4 : 2);
#if FP8
#pragma unroll
        for (int d = 0; d < kDimSteps; d++)
            *(uint2 *)(out + d * 16) =
                make_uint2(pack_bf16(x.o[2 * d][2 * h] * inverse, x.o[2 * d + 1][2 * h] * inverse),
                           pack_bf16(x.o[2 * d][2 * h + 1] * inverse, x.o[2 * d + 1][2 * h + 1] * inverse));
#else
#pragma unroll
        for (int d = 0; d < kDimSteps * 2; d++)
            *(u32 *)(out + d * 8) = pack_bf16(x.o[d][2 * h] * inverse, x.o[d][2 * h + 1] * inverse);
#endif
    }
}

#if DECODE
// Stores the state of one of a tile's chunks in the workspace. The CTA that stores the last one joins all.
INLINE void store_state(const attention_prefill_sm80_params &p, const Tile &t, const Item &item, const Rows &x)
{
    i32 kv_head = blockIdx.y;
    Chunks c = {p.partial, p.state, KV_HEADS, p.slot_rows, p.v_scale};
    i32 rows = min(kRows, t.rows - t.row0);
    store_chunk(c, item.slot, kv_head, {x.row[0] - t.row0, x.row[1] - t.row0}, rows, &x.o[0][0], x.m, x.l);
    if (last_of(p.tickets + (item.seq * p.tiles + item.tile) * KV_HEADS + kv_head, item.n_items))
        join_chunks<FP8>(
            c, item, kv_head, 0, rows, threadIdx.x, kThreads,
            [&](i32 r) {
                i32 row = t.row0 + r;
                return p.o + (i64)(t.token0 + row / GROUP) * p.o_stride + (kv_head * GROUP + row % GROUP) * HEAD_DIM;
            },
            [&](i32 r) { return sink_of_row(p, t.row0 + r); });
}
#endif

KERNEL __launch_bounds__(kThreads, 1) attention_prefill_sm80(const __grid_constant__ attention_prefill_sm80_params p)
{
    extern __shared__ __align__(128) u8 shared[]; // Q, then two stages of a K and a V block
    Item item = ((const Item *)p.items)[blockIdx.x];
    pdl_go();
    pdl_wait();
    if (item.seq < 0)
        return;
    Tile tile = tile_of(p, item);
    fetch_q(p, tile, shared);
    Rows rows = rows_of(tile, p.after);
    attend(p, tile, item, shared_address(shared), rows);
#if DECODE
    if (item.n_items > 1)
        return store_state(p, tile, item, rows);
#endif
    store_rows(p, tile, rows);
}
