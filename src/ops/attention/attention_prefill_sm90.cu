// Attention of prefill chunks over paged KV: wgmma and TMA (sm_90a), the FlashAttention-3 form (Shah et al.,
// 2024, arXiv:2407.08608), bf16 in and out, fp32 softmax.
//
//   q [tokens, heads * HEAD_DIM], a slice;  pools [pages, kv_heads, PAGE, HEAD_DIM];  o [tokens, heads * HEAD_DIM]
//
// An item is 128 query rows of one sequence and one KV head. Rows are (token, head of the group) pairs, row
// r = token * GROUP + head, so that a K or V tile is read once for the whole group and short sequences fill the
// tile. min(items, SMs) CTAs of 384 threads walk the items. These come longest first (attention_tiles_plan.c), and
// every second round is dealt backwards (attention_dealt), so that all CTAs have about equal work.
//
//   warpgroup 0      one thread brings Q, then K and V blocks of BLOCK_N keys by TMA, a page a box, 2 stages each; it
//                    runs ahead into the next item
//   warpgroups 1, 2  64 rows each. S = Q K^T from shared memory; softmax in registers; P V with P in registers. S of
//                    block j runs on the tensor cores while P V of block j-1 does: softmax hides behind them, and
//                    behind the other warpgroup's
//
// Q_STAGES 2: while the consumers work on an item, the next Q is already in the other Q tile, and the producer goes on
// to that item's K and V. The finished O is staged in the item's own Q tile, from where it leaves in whole rows. Beside
// each Q tile lies a description of its item, so that the consumers need no loads from global memory to begin.
// Q_STAGES 1 (attention_sm90.c says when): Q is free after the last S, and O goes to memory from registers.
//
// Where GROUP does not divide 128 the consumers fetch Q themselves (Q_BY_TMA 0). One CTA for each item, in place of the
// walk, took 369 us for 64 x 256 tokens (32/8 heads), of which ten were the start-up of a tile.
// Blocks lie at absolute multiples of BLOCK_N, in rising order: a row's result does not depend on its chunk.
//
// FP8: the pools hold E4M3 of k / k_scale, which is part of scale_log2, and of v / v_scale. The producer warpgroup
// copies K (its warps 0 and 1) and V (warps 2 and 3) by cp.async, RAW_STAGES blocks ahead. The threads that copied a
// block also read it back, make bf16 of it (kv.cuh) and write the tiles that wgmma reads. Whatever an unwritten slot
// holds, it does not become a NaN that way.
// Keys beyond kv_len are masked, but their V is still multiplied by zero, and the unwritten slots of a BF16 page may
// hold NaN: the consumers wipe those rows of the last V tile.
//
// FLOPs: 4 HEAD_DIM per visible (query, key) pair and head; roof: bf16 tensor cores, the exponentials beside them (a
// quarter of the tensor time at HEAD_DIM 128). Template parameters: HEAD_DIM 64 | 128 | 256, GROUP, PAGE 16 | 32 | 64,
// WINDOW 0 | 1, FP8 0 | 1, CHUNK (0; deterministic: how many keys a chunk has, attention_chunk.cuh), DECODE 0 | 1,
// SPLIT 0 | 1, Q_STAGES 1 | 2, SINKS 0 | 1, CAP 0 | 1, AFTER 0 | 1 (a token sees keys behind its own:
// attention_span.cuh).
//
// DECODE, with CHUNK: the items are KV ranges of a decode's rows (attention_cuda.h), a chunk or a whole sequence each.
// Before its turn a CTA brings the first blocks of KV that earlier steps have stored, and lets the next kernel start.
// SPLIT: the items are KV ranges of prefill tiles (attention_ranges_plan.c), with CHUNK of one chunk each. A range's
// state goes to its slot, and attention_merge.cu joins them: a warpgroup that joined all ranges of its 64 rows alone
// took as long as all of the ranges (16/8 heads, 64 tokens behind 8,192: 20 of 42 us).
// A warpgroup without rows, as in every decode of one token, only releases the tiles: a block costs the tensor cores a
// third of the time that its 64 KB need from memory.
#include "ptx_sm90.cuh"
#include "kv.cuh"
#include "attention_cap.cuh"
#include "attention_chunk.cuh"
#include "attention_span.cuh"
#include "attention_sm90_params.h"
#include "attention_softmax_sm90.cuh"

#define BLOCK_M 128
#define STAGES 2
#define DT (HEAD_DIM / 64) /* tiles of 64 columns */
#define Q_TILE (BLOCK_M * 128)
#define Q_BYTES (DT * Q_TILE)
#define KV_TILE (BLOCK_N * 128)
#define KV_BYTES (DT * KV_TILE)
#define Q_BY_TMA (BLOCK_M % GROUP == 0)
#define STAGE_O (Q_STAGES > 1)
#define Q_ARRIVALS (STAGE_O ? 8 : 2) /* a Q tile is empty when each consumer warp, or warpgroup, has said so */
#define TELL_ITEMS (Q_BY_TMA && STAGE_O) /* the producer tells the consumers what the item is, with its Q */
#define O_REGS (HEAD_DIM / 2)
#define FULL_ARRIVALS (FP8 ? 64 : 1)         /* threads that fill a K or V tile */
#define RAW_BYTES (BLOCK_N * HEAD_DIM)       /* an E4M3 tile */
#define RAW_STAGES (HEAD_DIM == 256 ? 1 : 2) /* as many as shared memory has room for */
#define TOTAL (p.n_items * p.kv_heads)       /* items, of all KV heads */
#define RANGES (DECODE || SPLIT)             /* items are KV ranges */

typedef struct tile {      /* what an item covers */
    int seq, head, row0;   /* first of its 128 (token, head) rows */
    int rows, token0;      /* of the sequence: q_len * GROUP, first token in the batch */
    int position0;         /* absolute position of the sequence's first new token */
    int block0, block1;    /* KV blocks [block0, block1) */
    int kv_len;
    int index;             /* the item's place in p.items */
#if SPLIT
    int page0, slot;       /* where its list of pages begins; its slot, -1: the tile is not cut */
#endif
} tile;

#if BLOCK_N == 128
#define QK wgmma_m64n128k16_ss
#else
#define QK wgmma_m64n64k16_ss
#endif
#if HEAD_DIM == 256
#define PV wgmma_m64n256k16_rs_t
#elif HEAD_DIM == 128
#define PV wgmma_m64n128k16_rs_t
#else
#define PV wgmma_m64n64k16_rs_t
#endif

/* Item number `index` of TOTAL: item index / kv_heads of the plan, KV head index % kv_heads. seq -1: unused. */
INLINE tile tile_of(const attention_prefill_sm90_params &p, int index)
{
    tile t;
    t.index = index / p.kv_heads;
#if SPLIT
    attention_range_item of = ((const attention_range_item *)p.items)[t.index];
    attention_chunk_item it = of.chunk;
#elif DECODE
    attention_chunk_item it = ((const attention_chunk_item *)p.items)[t.index];
#endif
#if RANGES
    t.seq = it.seq;
    t.row0 = it.tile * BLOCK_M;
#else
    const attention_prefill_item *it = (const attention_prefill_item *)p.items + t.index;
    t.seq = it->seq;
    t.row0 = it->tile * BLOCK_M;
#endif
    t.head = index % p.kv_heads;
    t.block0 = t.block1 = 0;
    if (t.seq < 0)
        return t;
#if SPLIT
    int q_len = of.tokens;
    t.token0 = of.token0;
    t.kv_len = of.kv_len;
    t.page0 = of.page0;
    t.slot = it.n_items > 1 ? it.slot : -1;
#else
    t.token0 = p.q_start[t.seq];
    int q_len = p.q_start[t.seq + 1] - t.token0;
    t.kv_len = p.kv_len[t.seq];
#endif
    t.rows = q_len * GROUP;
    t.position0 = t.kv_len - q_len;
    int last = min(t.row0 + BLOCK_M, t.rows) - 1;
    t.block1 = last_key(t.position0 + last / GROUP, p.after, t.kv_len) / BLOCK_N + 1;
#if WINDOW
    t.block0 = max(0, t.position0 + t.row0 / GROUP - p.window + 1) / BLOCK_N;
#endif
#if RANGES
    t.block1 = min(t.block1, (it.end + BLOCK_N - 1) / BLOCK_N);
    t.block0 = min(max(t.block0, it.begin / BLOCK_N), t.block1); /* equal: the chunk lies before the window */
#endif
    return t;
}

/* ---- producer ---- */

INLINE void load_block(const attention_prefill_sm90_params &p, const tile &t, const cu_tensor_map *map,
                                                  u64 *full, char *to, int block)
{
#if SPLIT
    int first = t.page0, last = first + (t.kv_len - 1) / PAGE;
#else
    int first = p.page_start[t.seq], last = p.page_start[t.seq + 1] - 1;
#endif
    barrier_expect(full, KV_BYTES);
#pragma unroll
    for (int i = 0; i < BLOCK_N / PAGE; i++) {
        int page = p.page_ids[min(first + block * (BLOCK_N / PAGE) + i, last)];
        int row = (page * p.kv_heads + t.head) * PAGE;
#pragma unroll
        for (int d = 0; d < DT; d++)
            tma_load_2d(map, full, to + d * KV_TILE + i * PAGE * 128, d * 64, row);
    }
}

typedef struct shared {
    char *q, *k, *v;                                   /* tiles */
    u64 *q_full, *q_empty;                             /* [Q_STAGES] */
    u64 *k_full, *k_empty, *v_full, *v_empty;          /* [STAGES] */
    char *raw;                                         /* FP8: RAW_STAGES tiles of K, then of V */
    tile *item;                                        /* [Q_STAGES], TELL_ITEMS: the item of each Q tile */
} shared;

/* The item that this CTA computes in its round number `round`; TOTAL or more: none, nor in later rounds. */
INLINE int item_of(u32 round)
{
    return attention_dealt((int)round, (int)blockIdx.x, (int)gridDim.x);
}

#if Q_BY_TMA
/* Q of an item, and with TELL_ITEMS the item. An unused item has no Q; it ends the consumers' walk. */
INLINE void load_q_tile(const attention_prefill_sm90_params &p, const tile &t, const shared &sh, u32 round)
{
    u32 s = round % Q_STAGES;
    if (!TELL_ITEMS && t.seq < 0)
        return;
    barrier_wait(&sh.q_empty[s], (round / Q_STAGES + 1) & 1); /* passes at once the first time round */
    if (TELL_ITEMS) {
        sh.item[s] = t;
        if (t.seq < 0)
            return barrier_arrive(&sh.q_full[s]);
    }
    barrier_expect(&sh.q_full[s], Q_BYTES);
#pragma unroll
    for (int d = 0; d < DT; d++)
        tma_load_3d(&p.q_map, &sh.q_full[s], sh.q + s * Q_BYTES + d * Q_TILE, d * 64, t.head * GROUP,
                    t.token0 + t.row0 / GROUP);
}
#endif

#if FP8
/* A thread's chunk i of 16 elements is chunk i * 64 + thread of the tile. */
#define RAW_CHUNKS (RAW_BYTES / 16 / 64)

typedef struct stream { /* 64 threads that bring K, or V, of all blocks of all items */
    const u8 *pool;
    char *raw, *tiles;
    u64 *full, *empty;
    int thread;         /* 0 to 63 */
    int index, block;   /* the item, and its block, to be fetched next */
    u32 round;          /* the round behind that item's */
    u32 fetched;        /* how many blocks so far */
    tile t;
} stream;

/* Moves on to the first block of the next item that has blocks. */
INLINE void next_item(const attention_prefill_sm90_params &p, stream &s)
{
    do
        s.index = item_of(s.round++);
    while (s.index < TOTAL && (s.t = tile_of(p, s.index)).seq >= 0 && s.t.block0 == s.t.block1);
    if (s.index < TOTAL && s.t.seq < 0)
        s.index = TOTAL; /* the items behind an unused one are unused too */
    s.block = s.t.block0;
}

/* Begins to copy the next block. A head's rows of a page lie in one piece. */
INLINE void fetch_raw(const attention_prefill_sm90_params &p, stream &s)
{
    const int pages = BLOCK_N / PAGE, page_bytes = PAGE * HEAD_DIM;
    if (s.index < TOTAL) {
        int first = p.page_start[s.t.seq] + s.block * pages, last = p.page_start[s.t.seq + 1] - 1, page[pages];
        u32 to = shared_address(s.raw) + s.fetched % RAW_STAGES * RAW_BYTES + s.thread * 16;
#pragma unroll
        for (int i = 0; i < pages; i++)
            page[i] = p.page_ids[min(first + i, last)];
#pragma unroll
        for (int i = 0; i < pages; i++) {
            const u8 *from = s.pool + ((i64)page[i] * p.kv_heads + s.t.head) * page_bytes + s.thread * 16;
#pragma unroll
            for (int at = 0; at < page_bytes; at += 64 * 16)
                copy_async16(to + i * page_bytes + at, from + at, 16);
        }
        if (++s.block == s.t.block1)
            next_item(p, s);
    }
    s.fetched++;
    copy_async_commit();
}

INLINE void raw_to_tile(const stream &s, const char *from, char *to)
{
#pragma unroll 4
    for (int i = 0; i < RAW_CHUNKS; i++) {
        int c = i * 64 + s.thread, row = c / (HEAD_DIM / 16), col = c % (HEAD_DIM / 16);
        uint4 raw = load16(from + c * 16);
        u32 word[4] = {raw.x, raw.y, raw.z, raw.w}, pair[8];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            u32 even = e4m3_even(word[k]), odd = e4m3_odd(word[k]);
            pair[2 * k] = __byte_perm(even, odd, 0x5410);
            pair[2 * k + 1] = __byte_perm(even, odd, 0x7632);
        }
        char *at = to + col / 4 * KV_TILE + row * 128;
        store16(at + ((col % 4 * 2) ^ (row % 8)) * 16, make_uint4(pair[0], pair[1], pair[2], pair[3]));
        store16(at + ((col % 4 * 2 + 1) ^ (row % 8)) * 16, make_uint4(pair[4], pair[5], pair[6], pair[7]));
    }
}

INLINE void produce_fp8(const attention_prefill_sm90_params &p, const shared &sh)
{
    bool v = threadIdx.x >= 64;
    stream s;
    s.pool = v ? p.v_pool : p.k_pool;
    s.raw = sh.raw + v * RAW_STAGES * RAW_BYTES;
    s.tiles = v ? sh.v : sh.k;
    s.full = v ? sh.v_full : sh.k_full;
    s.empty = v ? sh.v_empty : sh.k_empty;
    s.thread = threadIdx.x % 64;
    s.round = s.fetched = 0;
    next_item(p, s);
    for (int i = 0; i < RAW_STAGES; i++)
        fetch_raw(p, s);
    u32 at = 0;
    int i;
    for (u32 round = 0; (i = item_of(round)) < TOTAL; round++) {
        tile t = tile_of(p, i);
#if Q_BY_TMA
        if (threadIdx.x == 0)
            load_q_tile(p, t, sh, round);
        __syncwarp();
#endif
        if (t.seq < 0)
            break;
        for (int b = t.block0; b < t.block1; b++, at++) {
            u32 stage = at % STAGES;
            copy_async_wait<RAW_STAGES - 1>();
            barrier_wait(&s.empty[stage], (at / STAGES + 1) & 1);
            raw_to_tile(s, s.raw + at % RAW_STAGES * RAW_BYTES, s.tiles + stage * KV_BYTES);
            fence_async_shared();
            barrier_arrive(&s.full[stage]);
            fetch_raw(p, s);
        }
    }
}
#endif

#if DECODE
/* Before this kernel's turn: the first item's first blocks of KV that earlier steps have stored. Returns how many. */
INLINE u32 load_early(const attention_prefill_sm90_params &p, const shared &sh)
{
    int i = item_of(0);
    u32 n = 0;
    if (i >= TOTAL)
        return 0;
    tile t = tile_of(p, i);
    for (int b = t.block0; n < STAGES && b < t.block1 && (b + 1) * BLOCK_N <= t.position0; b++, n++) {
        load_block(p, t, &p.k, &sh.k_full[n], sh.k + n * KV_BYTES, b);
        load_block(p, t, &p.v, &sh.v_full[n], sh.v + n * KV_BYTES, b);
    }
    return n;
}
#endif

INLINE void produce(const attention_prefill_sm90_params &p, const shared &sh)
{
    u32 at = 0, early = 0;
    int i;
#if DECODE
    early = load_early(p, sh);
    pdl_go();
    pdl_wait();
#endif
    for (u32 round = 0; (i = item_of(round)) < TOTAL; round++) {
        tile t = tile_of(p, i);
#if Q_BY_TMA
        load_q_tile(p, t, sh, round);
#endif
        if (t.seq < 0)
            break; /* the items behind an unused one are unused too */
        for (int b = t.block0; b < t.block1; b++, at++) {
            if (DECODE && at < early)
                continue;
            u32 s = at % STAGES, parity = (at / STAGES + 1) & 1; /* passes at once the first time round */
            barrier_wait(&sh.k_empty[s], parity);
            load_block(p, t, &p.k, &sh.k_full[s], sh.k + s * KV_BYTES, b);
            barrier_wait(&sh.v_empty[s], parity);
            load_block(p, t, &p.v, &sh.v_full[s], sh.v + s * KV_BYTES, b);
        }
    }
}

/* ---- consumers ---- */

#if !Q_BY_TMA
/* This warpgroup's 64 rows of Q into swizzled tiles; rows beyond the sequence are zeros. */
INLINE void load_q(const attention_prefill_sm90_params &p, const tile &t, char *q_tiles, int group,
                                              int thread)
{
    const int chunks = HEAD_DIM / 8; /* of 16 bytes */
#pragma unroll 4
    for (int i = thread; i < 64 * chunks; i += 128) {
        int r = group * 64 + i / chunks, c = i % chunks, row = t.row0 + r;
        uint4 x = make_uint4(0, 0, 0, 0);
        if (row < t.rows)
            x = *(const uint4 *)(p.q + (size_t)(t.token0 + row / GROUP) * p.q_stride +
                                 (t.head * GROUP + row % GROUP) * HEAD_DIM + c * 8);
        *(uint4 *)(q_tiles + c / 8 * Q_TILE + r * 128 + ((c % 8) ^ (r % 8)) * 16) = x;
    }
    fence_async_shared();
    named_barrier(1 + group, 128);
}
#endif

INLINE void issue_qk(float *s, u32 q, u32 k)
{
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 16; i++)
        QK(s, smem_descriptor(q + i / 4 * Q_TILE + i % 4 * 32, 16, SWIZZLE_ATOM),
           smem_descriptor(k + i / 4 * KV_TILE + i % 4 * 32, 16, SWIZZLE_ATOM), i != 0);
    wgmma_commit();
}

INLINE void issue_pv(float *o, const u32 *pr, u32 v, int accumulate)
{
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < BLOCK_N / 16; i++)
        PV(o, pr + 4 * i, smem_descriptor(v + i * 2 * SWIZZLE_ATOM, KV_TILE, SWIZZLE_ATOM), accumulate || i != 0);
    wgmma_commit();
}

INLINE float sink_of_row(const attention_prefill_sm90_params &p, const tile &t, int row)
{
    return sink_of(p.sinks, t.head * GROUP + row % GROUP);
}

/* Where a row of O goes. */
INLINE u16 *o_row(const attention_prefill_sm90_params &p, const tile &t, int row)
{
    return p.o + (size_t)(t.token0 + row / GROUP) * p.o_stride + (t.head * GROUP + row % GROUP) * HEAD_DIM;
}

#if STAGE_O
/* O by way of this warp's 16 rows of the item's Q tile, which its wgmmas have read:
 *
 *   registers   a lane has 4 bytes of every 16-byte piece of two rows
 *   Q tile      the rows, swizzled as TMA has them: neither direction has bank conflicts
 *   memory      16 bytes a lane, whole rows
 *
 * Rows behind the sequence's last are left out; they may be another sequence's. */
INLINE void store_o(const attention_prefill_sm90_params &p, const tile &t, char *q, const float *o, const float *m,
                    const float *l, int group, int thread)
{
    const int chunks = HEAD_DIM / 8; /* of 16 bytes in a row */
    int lane = thread % 32, first = group * 64 + thread / 32 * 16;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = first + lane / 4 + 8 * half;
        float inverse = row_factor(m[half], l[half], p.v_scale, sink_of_row(p, t, t.row0 + row));
#pragma unroll
        for (int j = 0; j < HEAD_DIM / 8; j++)
            *(u32 *)(q + j / 8 * Q_TILE + row * 128 + ((j ^ row) % 8) * 16 + lane % 4 * 4) =
                pack_bf16(o[4 * j + 2 * half] * inverse, o[4 * j + 2 * half + 1] * inverse);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 16 * chunks; i += 32) {
        int row = first + (i + lane) / chunks, c = (i + lane) % chunks;
        if (t.row0 + row < t.rows)
            store16(o_row(p, t, t.row0 + row) + c * 8, load16(q + c / 8 * Q_TILE + row * 128 + ((c ^ row) % 8) * 16));
    }
    fence_async_shared(); /* before TMA writes the next Q there */
}
#else
INLINE void store_o(const attention_prefill_sm90_params &p, const tile &t, char *, const float *o, const float *m,
                    const float *l, int group, int thread)
{
    int lane = thread % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = t.row0 + group * 64 + thread / 32 * 16 + lane / 4 + 8 * half;
        if (row >= t.rows)
            continue;
        float inverse = row_factor(m[half], l[half], p.v_scale, sink_of_row(p, t, row));
        u16 *to = o_row(p, t, row) + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < HEAD_DIM / 8; j++)
            *(u32 *)(to + j * 8) = pack_bf16(o[4 * j + 2 * half] * inverse, o[4 * j + 2 * half + 1] * inverse);
    }
}
#endif

/* Writes zeros into the rows of the last V tile that hold no key. Both warpgroups do so, each before its own wgmma. */
INLINE void wipe_v(char *v, const tile &t, int group, int thread)
{
    int rows = t.block1 * BLOCK_N - t.kv_len;
    if (rows <= 0)
        return;
    STORES_ARE_EQUAL(true);
    for (int i = thread; i < rows * 8 * DT; i += 128) {
        int d = i / (rows * 8), in = i % (rows * 8);
        *(uint4 *)(v + d * KV_TILE + (BLOCK_N - rows) * 128 + in * 16) = make_uint4(0, 0, 0, 0);
    }
    STORES_ARE_EQUAL(false);
    fence_async_shared();
    named_barrier(1 + group, 128);
}

#if SPLIT
/* Stores the state of a range. */
INLINE void finish_chunk(const attention_prefill_sm90_params &p, const tile &t, const float *o, const float *m,
                         const float *l, int group, int thread)
{
    Chunks c = {p.partial, p.state, p.kv_heads, p.slot_rows, p.v_scale};
    int row = group * 64 + thread / 32 * 16 + thread % 32 / 4;
    store_chunk(c, t.slot, t.head, {row, row + 8}, min(BLOCK_M, t.rows - t.row0), o, m, l);
}
#elif DECODE
/* Stores the state of a range. The warpgroup that stores a tile's last one joins them all into the result. */
INLINE void finish_chunk(const attention_prefill_sm90_params &p, const tile &t, const float *o, const float *m,
                         const float *l, int group, int thread)
{
    __shared__ u32 drawn[2];
    attention_chunk_item it = ((const attention_chunk_item *)p.items)[t.index];
    Chunks c = {p.partial, p.state, p.kv_heads, p.slot_rows, p.v_scale};
    int first = group * 64, row = first + thread / 32 * 16 + thread % 32 / 4, rows = min(BLOCK_M, t.rows - t.row0);
    store_chunk(c, it.slot, t.head, {row, row + 8}, rows, o, m, l);
    __threadfence();
    named_barrier(1 + group, 128);
    if (thread == 0) {
        u32 *ticket = p.tickets + ((t.seq * p.tiles + it.tile) * p.kv_heads + t.head) * 2 + group;
        drawn[group] = atomicAdd(ticket, 1u);
        if (drawn[group] + 1 == it.n_items)
            *ticket = 0;
    }
    named_barrier(1 + group, 128);
    if (drawn[group] + 1 != it.n_items)
        return;
    __threadfence();
    join_chunks<false>(c, it, t.head, first, min(first + 64, rows), thread, 128,
                       [&](int r) { return o_row(p, t, t.row0 + r); },
                       [&](int r) { return sink_of_row(p, t, t.row0 + r); });
}
#endif

INLINE void finish(const attention_prefill_sm90_params &p, const tile &t, char *q, const float *o, const float *m,
                   const float *l, int group, int thread)
{
#if SPLIT
    if (t.slot >= 0)
        return finish_chunk(p, t, o, m, l, group, thread);
#elif DECODE
    if (((const attention_chunk_item *)p.items)[t.index].n_items > 1)
        return finish_chunk(p, t, o, m, l, group, thread);
#endif
    store_o(p, t, q, o, m, l, group, thread);
}

/* Tells the producer that this warp, or its warpgroup, is done with the Q tile of a round, and with its item. The last
 * lane of a warp tells it: racecheck remembers the last lane that read the item, and follows the order from a lane
 * through an mbarrier, but not from another lane through __syncwarp() to it. */
INLINE void release_q(const shared &sh, u32 round, int thread)
{
    if (STAGE_O)
        __syncwarp();
    if (thread % (STAGE_O ? 32 : 128) == (STAGE_O ? 31 : 0))
        barrier_arrive(&sh.q_empty[round % Q_STAGES]);
}

#if RANGES
/* An item in which this warpgroup has no rows: it only tells the producer that it is done with the tiles. One thread
 * does, and the others wait for it: a thread that waited for each tile by itself could miss one, for the producer does
 * not wait for it, and a parity tells neighbouring phases of a barrier apart but not the next but one. */
INLINE void pass(const tile &t, const shared &sh, u32 at, u32 round)
{
    int thread = threadIdx.x % 128;
    release_q(sh, round, thread);
    if (thread == 0)
        for (int b = t.block0; b < t.block1; b++, at++) {
            u32 s = at % STAGES, parity = at / STAGES & 1;
            barrier_wait(&sh.k_full[s], parity);
            barrier_wait(&sh.v_full[s], parity);
            barrier_arrive(&sh.k_empty[s]);
            barrier_arrive(&sh.v_empty[s]);
        }
    named_barrier(threadIdx.x / 128, 128);
}
#endif

/* The item of this round; waits for its Q if TMA brings it. With TELL_ITEMS the dependent loads of tile_of() are made
 * by the producer, ahead of time. */
INLINE tile next_tile(const attention_prefill_sm90_params &p, const shared &sh, int item, u32 round)
{
    u64 *full = &sh.q_full[round % Q_STAGES];
    u32 parity = round / Q_STAGES & 1;
#if TELL_ITEMS
    barrier_wait(full, parity);
    return sh.item[round % Q_STAGES];
#else
    tile t = tile_of(p, item);
    if (Q_BY_TMA && t.seq >= 0)
        barrier_wait(full, parity);
    return t;
#endif
}

/* Computes one item; `at` counts KV blocks over all items, as the producer does. */
INLINE void attend(const attention_prefill_sm90_params &p, const tile &t, const shared &sh, u32 at,
                                              u32 round)
{
    int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, lane = thread % 32;
    int row_in_tile = group * 64 + thread / 32 * 16 + lane / 4;
    char *q_tile = sh.q + round % Q_STAGES * Q_BYTES;
#if !Q_BY_TMA
    load_q(p, t, q_tile, group, thread);
#endif
    u32 q = shared_address(q_tile) + group * 64 * 128, k = shared_address(sh.k), v = shared_address(sh.v);
    int position[2], seen[2];
    for (int half = 0; half < 2; half++) {
        position[half] = t.position0 + (t.row0 + row_in_tile + 8 * half) / GROUP;
        seen[half] = last_key(position[half], p.after, t.kv_len);
    }
    /* Blocks before `clear` are visible to every row of the tile (no window). */
    int clear = (last_key(t.position0 + t.row0 / GROUP, p.after, t.kv_len) + 1) / BLOCK_N;

    float s[S_REGS], o[O_REGS], m[2] = {-kInfinity, -kInfinity}, l[2] = {0.0f, 0.0f}, rescale[2];
    u32 pr[S_REGS / 2];
    int n = t.block1 - t.block0;
#if CHUNK
    float room[O_REGS], *total = room + (t.seq >> 31); /* + 0, which keeps the array out of the registers */
    float total_m[2] = {-kInfinity, -kInfinity}, total_l[2] = {0.0f, 0.0f}, chunk_m[2], chunk_l[2];
    bool more = false; /* total holds the chunks before this one */
#endif
#if RANGES && WINDOW
    if (n == 0) {
        for (int i = 0; i < O_REGS; i++)
            o[i] = 0.0f;
        finish(p, t, q_tile, o, m, l, group, thread);
        return release_q(sh, round, thread);
    }
#endif
    for (int j = 0; j < n; j++, at++) {
        bool fresh = j > 0 && FIRST_OF_CHUNK(t.block0 + j); /* a chunk has ended with the block before */
        u32 stage = at % STAGES, before = (at - 1) % STAGES;
        barrier_wait(&sh.k_full[stage], at / STAGES & 1);
        issue_qk(s, q, k + stage * KV_BYTES);
        if (j > 0) {
            barrier_wait(&sh.v_full[before], (at - 1) / STAGES & 1);
            issue_pv(o, pr, v + before * KV_BYTES, j > 1 && !FIRST_OF_CHUNK(t.block0 + j - 1));
            WGMMA_WAIT(1);
        } else {
            WGMMA_WAIT(0);
        }
#pragma unroll
        for (int i = 0; i < S_REGS; i++)
            wgmma_touch(s[i]);
        if (thread == 0)
            barrier_arrive(&sh.k_empty[stage]);
        if (!STAGE_O && j == n - 1)
            release_q(sh, round, thread);
#if CAP
#pragma unroll
        for (int i = 0; i < S_REGS; i++)
            s[i] = capped(s[i], p.cap_factor);
#endif
        if (WINDOW || t.block0 + j >= clear)
            mask(s, t.block0 + j, lane, position, seen, p.window);
#if CHUNK
        if (fresh) {
            sum_rows(l);
            for (int half = 0; half < 2; half++) {
                chunk_m[half] = __fmul_rn(m[half], p.scale_log2);
                chunk_l[half] = l[half];
                m[half] = -kInfinity;
                l[half] = 0.0f;
            }
        }
#endif
        softmax(s, m, l, rescale, p.scale_log2);
        if (j > 0) {
            WGMMA_WAIT(0);
#pragma unroll
            for (int i = 0; i < O_REGS; i++)
                wgmma_touch(o[i]);
            if (thread == 0)
                barrier_arrive(&sh.v_empty[before]);
#if CHUNK
            if (fresh) {
                add_chunk<O_REGS>(total, total_m, total_l, o, chunk_m, chunk_l, !more);
                more = true;
            } else
#endif
#pragma unroll
                for (int i = 0; i < O_REGS; i++)
                    o[i] *= rescale[i / 2 % 2];
        }
        pack_p(pr, s);
    }
    u32 last = (at - 1) % STAGES;
    barrier_wait(&sh.v_full[last], (at - 1) / STAGES & 1);
#if !FP8
    wipe_v(sh.v + last * KV_BYTES, t, group, thread);
#endif
    issue_pv(o, pr, v + last * KV_BYTES, n > 1 && !FIRST_OF_CHUNK(t.block1 - 1));
    WGMMA_WAIT(0);
#pragma unroll
    for (int i = 0; i < O_REGS; i++)
        wgmma_touch(o[i]);
    if (thread == 0)
        barrier_arrive(&sh.v_empty[last]);
    sum_rows(l);
#if CHUNK || SPLIT || SINKS
    for (int half = 0; half < 2; half++)
        m[half] = __fmul_rn(m[half], p.scale_log2);
#endif
#if CHUNK
    if (more)
        end_chunks<O_REGS>(total, total_m, total_l, o, m, l);
#endif
    finish(p, t, q_tile, o, m, l, group, thread);
    if (STAGE_O)
        release_q(sh, round, thread);
}

KERNEL __launch_bounds__(384, 1) attention_prefill_sm90(const __grid_constant__ attention_prefill_sm90_params p)
{
    extern __shared__ char raw[];
    __shared__ u64 q_full[Q_STAGES], q_empty[Q_STAGES], k_full[STAGES], k_empty[STAGES], v_full[STAGES],
        v_empty[STAGES];
    __shared__ tile items[Q_STAGES];
    shared sh = {(char *)(((size_t)raw + SWIZZLE_ATOM - 1) & ~(size_t)(SWIZZLE_ATOM - 1)), 0, 0, q_full, q_empty,
                 k_full, k_empty, v_full, v_empty, 0, items};
    sh.k = sh.q + Q_STAGES * Q_BYTES;
    sh.v = sh.k + STAGES * KV_BYTES;
    sh.raw = sh.v + STAGES * KV_BYTES;
    if (threadIdx.x == 0) {
#if !FP8
        tma_prefetch_map(&p.k);
        tma_prefetch_map(&p.v);
#if SPLIT && Q_BY_TMA
        tma_prefetch_map(&p.q_map);
#endif
#endif
        for (int s = 0; s < Q_STAGES; s++) {
            barrier_init(&q_full[s], 1);
            barrier_init(&q_empty[s], Q_ARRIVALS);
        }
        for (int s = 0; s < STAGES; s++) {
            barrier_init(&k_full[s], FULL_ARRIVALS);
            barrier_init(&v_full[s], FULL_ARRIVALS);
            barrier_init(&k_empty[s], 2); /* one arrival a consumer warpgroup */
            barrier_init(&v_empty[s], 2);
        }
        barrier_init_done();
    }
    __syncthreads();
    if (!DECODE || FP8 || threadIdx.x >= 128)
        pdl_wait(); /* a producer of decodes waits by itself */
    if (threadIdx.x < 128) {
#if FP8
        SETMAXNREG_DEC(56);
        produce_fp8(p, sh);
    } else {
        SETMAXNREG_INC(224);
#elif SPLIT /* the producer holds a range as well */
        SETMAXNREG_DEC(56);
        if (threadIdx.x == 0)
            produce(p, sh);
    } else {
        SETMAXNREG_INC(224);
#else
        SETMAXNREG_DEC(40);
        if (threadIdx.x == 0)
            produce(p, sh);
    } else {
        SETMAXNREG_INC(232);
#endif
        u32 at = 0;
        int i;
        for (u32 round = 0; (i = item_of(round)) < TOTAL; round++) {
            tile t = next_tile(p, sh, i, round);
            if (t.seq < 0)
                break;
#if RANGES
            if (t.row0 + (threadIdx.x / 128 - 1) * 64 >= t.rows)
                pass(t, sh, at, round);
            else
#endif
                attend(p, t, sh, at, round);
            at += t.block1 - t.block0;
        }
    }
    pdl_go();
}
