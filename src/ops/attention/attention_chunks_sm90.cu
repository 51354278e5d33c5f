// Decode attention in the order of sums of attention_prefill_sm90.cu, for deterministic programs: the rows of one
// decode and one KV head against its KV, bf16, TMA and mma.sync (sm_90a).
//
//   q [tokens, heads * HEAD_DIM], a slice;  pools [pages, kv_heads, PAGE, HEAD_DIM];  o [tokens, heads * HEAD_DIM]
//
// An item (attention_tiles_plan.c) is a KV range of up to 64 rows of a decode, row r = token * GROUP + head. A decode
// has few rows, so its time is that of its KV, and for a short one that of a block from first to last. Two CTAs of 160
// threads share an SM and walk the items.
//
//   warp 4         one thread brings KV by TMA in units of 64 keys, through a ring of UNITS units: K of a block of 128
//                  keys, then its V. Of the last unit it brings the keys that are there, in sixteens. A half of a block
//                  that holds no key is left out. It runs ahead into the next item
//   warps 0 .. 3   share each block:
//
//                    S = Q K^T     a warp has 32 keys
//                    largest S     of its keys to shared memory; a barrier; all warps know the row's
//                    P, its sum    of its keys to shared memory; a barrier
//                    O += P V      a warp has a quarter of the dimensions, and all keys in rising order
//
// Blocks, chunks and arithmetic are those of the prefill kernel (attention_softmax_sm90.cuh, attention_chunk.cuh): sums
// of products run over steps of 16 in rising order, and a row of P is summed in four quarters. A half without keys
// would add zeros.
// Before its turn (pdl_wait) a CTA brings the first units that earlier steps have stored, and lets the next kernel
// start.
//
// Bytes: 4 * kv_len * kv_heads * HEAD_DIM a sequence; the roof is memory bandwidth.
// Template: HEAD_DIM 64 | 128, GROUP, PAGE 16 | 32 | 64, WINDOW 0 | 1, CHUNK, UNITS, TILES (of 16 rows: 1, 2 or 4),
// HALVES (1: only 8 rows of a tile are there), RESIDENT (CTAs of an SM), SINKS 0 | 1, CAP 0 | 1, FP8 (0).
// Tried: wgmma, whose 64 rows a decode does not fill, took as long as the prefill kernel (H200, qwen3-0.6b, 256
// sequences: 37,225 tokens/s, with that kernel 38,673, so 44,133).
#define AFTER 0
#include "ptx_sm90.cuh"
#include "kv.cuh"
#include "attention_cap.cuh"
#include "attention_chunk.cuh"
#include "attention_sm90_params.h"
#include "attention_softmax_sm90.cuh"

#define TILE_ROWS 64         /* of the plan's tiles */
#define ROWS (TILES * 16)    /* of those that this instance computes */
#define DT (HEAD_DIM / 64)   /* tiles of 64 columns */
#define HALF_KEYS 64
#define FEW 16               /* keys of a box of a unit that is not full */
#define UNIT_TILE (HALF_KEYS * 128)
#define UNIT_BYTES (DT * UNIT_TILE)
#define KEYS (BLOCK_N / 4)   /* of a warp */
#define DIMS (HEAD_DIM / 4)  /* of a warp */
#define O_REGS (DIMS / 2)
#define TOTAL (p.n_items * p.kv_heads)
static_assert(KEYS % 16 == 0 && DIMS % 16 == 0, "ldmatrix brings two octets");

typedef struct range { /* what an item covers */
    int seq, head, row0;   /* first of its (token, head) rows */
    int rows, token0;      /* of the sequence: q_len * GROUP, first token in the batch */
    int position0;         /* absolute position of the sequence's first new token */
    int block0, block1;    /* KV blocks [block0, block1) */
    int keys;              /* keys from here on are not brought */
    int index;             /* the item's place in p.items */
} range;

/* Item number `index` of TOTAL: item index / kv_heads of the plan, KV head index % kv_heads. seq -1: unused. */
INLINE range range_of(const attention_prefill_sm90_params &p, int index)
{
    range t;
    t.index = index / p.kv_heads;
    t.head = index % p.kv_heads;
    t.seq = -1;
    if (index >= TOTAL)
        return t;
    attention_chunk_item it = ((const attention_chunk_item *)p.items)[t.index];
    t.seq = it.seq;
    if (t.seq < 0)
        return t;
    t.row0 = it.tile * TILE_ROWS;
    t.token0 = p.q_start[t.seq];
    int q_len = p.q_start[t.seq + 1] - t.token0;
    t.rows = q_len * GROUP;
    t.position0 = p.kv_len[t.seq] - q_len;
    int last = min(t.row0 + TILE_ROWS, t.rows) - 1;
    t.keys = min(t.position0 + last / GROUP + 1, it.end);
    t.block1 = (t.keys + BLOCK_N - 1) / BLOCK_N;
    t.block0 = it.begin / BLOCK_N;
#if WINDOW
    t.block0 = max(t.block0, max(0, t.position0 + t.row0 / GROUP - p.window + 1) / BLOCK_N);
#endif
    t.block0 = min(t.block0, t.block1); /* equal: the chunk lies before the window */
    return t;
}

/* The units of K, and of V, of a block. */
INLINE int halves_of(const range &t, int block)
{
    return t.keys - block * BLOCK_N > HALF_KEYS ? 2 : 1;
}

/* The item that this CTA computes in its round number `round`; TOTAL or more: none, nor in later rounds. */
INLINE int item_of(u32 round)
{
    return attention_dealt((int)round, (int)blockIdx.x, (int)gridDim.x);
}

typedef struct shared {
    u32 q, p, units;   /* addresses: rows of Q, rows of P, the ring */
    char *ring;
    u64 *full, *empty; /* [UNITS] */
    float (*top)[ROWS]; /* [4] the largest score of a row in each warp's keys */
    float (*part)[ROWS][4]; /* [4] the sum of P of a row there, as the lanes of a quad have it */
} shared;

/* ---- producer ---- */

/* Loads keys [64 unit, keys) of a unit, in boxes of a page, or where the unit is not full in boxes of 16 keys. */
INLINE void load_unit(const attention_prefill_sm90_params &p, const range &t, bool v, const shared &sh, u32 s, int unit)
{
    int first = p.page_start[t.seq], last = p.page_start[t.seq + 1] - 1, n = min(t.keys - unit * HALF_KEYS, HALF_KEYS);
    char *to = sh.ring + s * UNIT_BYTES;
    if (n > HALF_KEYS - FEW) {
        barrier_expect(&sh.full[s], UNIT_BYTES);
#pragma unroll
        for (int i = 0; i < HALF_KEYS / PAGE; i++) {
            int page = p.page_ids[min(first + unit * (HALF_KEYS / PAGE) + i, last)];
            int row = (page * p.kv_heads + t.head) * PAGE;
#pragma unroll
            for (int d = 0; d < DT; d++)
                tma_load_2d(v ? &p.v : &p.k, &sh.full[s], to + d * UNIT_TILE + i * PAGE * 128, d * 64, row);
        }
        return;
    }
    int boxes = (n + FEW - 1) / FEW;
    barrier_expect(&sh.full[s], boxes * (FEW * HEAD_DIM * 2));
#pragma unroll 1
    for (int i = 0; i < boxes; i++) {
        int key = unit * HALF_KEYS + i * FEW, page = p.page_ids[min(first + key / PAGE, last)];
        int row = (page * p.kv_heads + t.head) * PAGE + key % PAGE;
#pragma unroll
        for (int d = 0; d < DT; d++)
            tma_load_2d(v ? &p.v_few : &p.k_few, &sh.full[s], to + d * UNIT_TILE + i * FEW * 128, d * 64, row);
    }
}

/* Brings the units of an item that are not there yet, in the order of their use. `at` counts units over all items.
 * EARLY: before this kernel's turn, so only units that earlier steps have stored, and no more than the ring holds. */
template <bool EARLY>
INLINE u32 produce_item(const attention_prefill_sm90_params &p, const range &t, const shared &sh, u32 at, u32 there)
{
    for (int b = t.block0; b < t.block1; b++) {
        int halves = halves_of(t, b);
#pragma unroll 1
        for (int i = 0; i < 2 * halves; i++, at++) {
            int unit = 2 * b + i % halves;
            if (EARLY && (at == UNITS || min((unit + 1) * HALF_KEYS, t.keys) > t.position0))
                return at;
            if (!EARLY && at < there)
                continue;
            u32 s = at % UNITS;
            if (!EARLY)
                barrier_wait(&sh.empty[s], (at / UNITS + 1) & 1); /* passes at once the first time round */
            load_unit(p, t, i >= halves, sh, s, unit);
        }
    }
    return at;
}

INLINE void produce(const attention_prefill_sm90_params &p, const shared &sh)
{
    range t = range_of(p, item_of(0));
    u32 at = 0, there = t.seq < 0 ? 0 : produce_item<true>(p, t, sh, 0, 0);
    pdl_go();
    pdl_wait();
    for (u32 round = 0; t.seq >= 0; t = range_of(p, item_of(++round))) /* those behind an unused one are unused */
        at = produce_item<false>(p, t, sh, at, there);
}

/* ---- consumers ---- */

#define Q_ROW (HEAD_DIM * 2)
#define P_ROW (BLOCK_N * 2)

/* Piece c of 16 bytes in row r of rows of `bytes`: ldmatrix touches all banks. */
INLINE u32 piece(int bytes, int r, int c) { return r * bytes + (c ^ (r & 7)) * 16; }

/* Piece c of key r in a tile of a unit, as TMA has swizzled it. */
INLINE u32 kv_piece(int r, int c) { return r * 128 + (c ^ (r & 7)) * 16; }

INLINE void store_shared4(u32 to, u32 x) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(x) : "memory"); }
INLINE void store_shared16(u32 to, uint4 x)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
}

/* The fragments of Q of the only tile; rows that are not there are zeros. */
INLINE void load_fragments(const attention_prefill_sm90_params &p, const range &t, frag4 (&q)[HEAD_DIM / 16])
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = t.row0 + h * 8 + lane / 4;
        bool there = h < HALVES && row < t.rows;
        row = there ? row : 0;
        const u16 *from = p.q + (i64)(t.token0 + row / GROUP) * p.q_stride + (t.head * GROUP + row % GROUP) * HEAD_DIM +
                          lane % 4 * 2;
#pragma unroll
        for (int d = 0; d < HEAD_DIM / 16; d++) {
            q[d].r[h] = there ? *(const u32 *)(from + d * 16) : 0;
            q[d].r[h + 2] = there ? *(const u32 *)(from + d * 16 + 8) : 0;
        }
    }
}

/* The item's rows of Q; the other rows hold whatever was there. */
INLINE void load_q(const attention_prefill_sm90_params &p, const range &t, const shared &sh)
{
    const int chunks = HEAD_DIM / 8; /* of 16 bytes */
    int rows = min(ROWS, t.rows - t.row0);
    named_barrier(1, 128); /* all warps have read the item before */
    for (int i = threadIdx.x; i < rows * chunks; i += 128) {
        int r = i / chunks, c = i % chunks, row = t.row0 + r;
        store_shared16(sh.q + piece(Q_ROW, r, c), load16(p.q + (i64)(t.token0 + row / GROUP) * p.q_stride +
                                                         (t.head * GROUP + row % GROUP) * HEAD_DIM + c * 8));
    }
    named_barrier(1, 128);
}

/* The 16 x 16 fragment of a tile's rows at step `d`, of Q or of P. */
INLINE frag4 load_rows(u32 from, int bytes, int tile, int d)
{
    int lane = threadIdx.x % 32;
    frag4 f = load_matrix4(from + piece(bytes, tile * 16 + lane % (8 * HALVES), d * 2 + lane / 16));
    if (HALVES < 2)
        f.r[1] = f.r[3] = 0;
    return f;
}

/* Tells the producer that this warp is done with the unit. */
INLINE void release(const shared &sh, u32 at)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(&sh.empty[at % UNITS]);
}

INLINE u32 wait_unit(const shared &sh, u32 at)
{
    barrier_wait(&sh.full[at % UNITS], at / UNITS & 1);
    return sh.units + at % UNITS * UNIT_BYTES;
}

typedef struct state { /* of a thread's rows g and g + 8 of a tile */
    float o[O_REGS], m[2], l[2];
} state;

/* S of this warp's keys, which begin at `first` of the block. */
INLINE void multiply_k(float (&s)[TILES][KEYS / 8][4], const frag4 (&q)[HEAD_DIM / 16], const shared &sh, u32 unit,
                       int first)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int d = 0; d < HEAD_DIM / 16; d += 2) {
        frag4 k[KEYS / 8];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
            k[n] = load_matrix4(unit + d / 4 * UNIT_TILE +
                                kv_piece(first % HALF_KEYS + n * 8 + lane % 8, d % 4 * 2 + lane / 8));
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                frag4 a = TILES == 1 ? q[d + i] : load_rows(sh.q, Q_ROW, tile, d + i);
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++)
                    mma_bf16(s[tile][n], a.r[0], a.r[1], a.r[2], a.r[3], k[n].r[2 * i], k[n].r[2 * i + 1]);
            }
    }
}

/* O of this warp's dimensions, of all keys of the halves that are there. */
INLINE void multiply_v(state (&x)[TILES], const shared &sh, u32 at, int halves)
{
    int lane = threadIdx.x % 32, column = threadIdx.x / 32 * DIMS;
#pragma unroll
    for (int h = 0; h < BLOCK_N / HALF_KEYS; h++) {
        if (h == halves)
            break;
        u32 v = sh.units + (at + h) % UNITS * UNIT_BYTES + column / 64 * UNIT_TILE;
#pragma unroll
        for (int k = 0; k < HALF_KEYS / 16; k++) {
            frag4 b[DIMS / 16];
#pragma unroll
            for (int n = 0; n < DIMS / 16; n++)
                b[n] = load_matrix4_transposed(v + kv_piece(k * 16 + lane % 16, column % 64 / 8 + n * 2 + lane / 16));
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                frag4 a = load_rows(sh.p, P_ROW, tile, h * (HALF_KEYS / 16) + k);
#pragma unroll
                for (int n = 0; n < DIMS / 8; n++)
                    mma_bf16((float(&)[4])x[tile].o[n * 4], a.r[0], a.r[1], a.r[2], a.r[3], b[n / 2].r[n % 2 * 2],
                             b[n / 2].r[n % 2 * 2 + 1]);
            }
        }
    }
}

/* Writes zeros into the rows of a unit of V that no row sees: what lies there may be NaN. */
INLINE void wipe_v(u32 v, int rows)
{
    for (int i = threadIdx.x; i < rows * 8 * DT; i += 128) {
        int d = i / (rows * 8), in = i % (rows * 8);
        store_shared16(v + d * UNIT_TILE + (HALF_KEYS - rows) * 128 + in * 16, make_uint4(0, 0, 0, 0));
    }
    fence_async_shared(); /* before TMA writes there again */
}

typedef struct place { /* of a thread: its warp, the row of its octet, its lane of a quad */
    int warp, g, q4;
} place;

/* Caps and hides the scores of this warp's keys of a block, and tells each row's largest one. */
INLINE void tell_top(const attention_prefill_sm90_params &p, const range &t, const shared &sh,
                     float (&s)[TILES][KEYS / 8][4], int b, const place &in)
{
    /* Blocks before this one are visible to every row of the tile (no window). */
    int clear = (t.position0 + t.row0 / GROUP + 1) / BLOCK_N;
    bool hides = WINDOW || b >= clear;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            int position = t.position0 + (t.row0 + tile * 16 + h * 8 + in.g) / GROUP;
            float top = -kInfinity;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float &v = s[tile][n][2 * h + e];
#if CAP
                    v = capped(v, p.cap_factor);
#endif
                    int key = b * BLOCK_N + in.warp * KEYS + n * 8 + in.q4 * 2 + e;
                    if (hides && (key > position || (WINDOW && key <= position - p.window)))
                        v = -kInfinity;
                    top = fmaxf(top, v);
                }
            top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 2));
            if (in.q4 == 0)
                sh.top[in.warp][tile * 16 + h * 8 + in.g] = top;
        }
}

/* Writes P of this warp's keys and the sums of its rows; `rescale` becomes the factor for the old sums and O. */
INLINE void store_p(const attention_prefill_sm90_params &p, const shared &sh, state (&x)[TILES],
                    const float (&s)[TILES][KEYS / 8][4], float (&rescale)[TILES][2], const place &in)
{
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            int row = tile * 16 + h * 8 + in.g;
            float top = fmaxf(x[tile].m[h], fmaxf(fmaxf(sh.top[0][row], sh.top[1][row]),
                                                  fmaxf(sh.top[2][row], sh.top[3][row])));
            float base = top == -kInfinity ? 0.0f : SCALED(top, p.scale_log2), sum = 0.f;
            rescale[tile][h] = exp2_fast(SCALED(x[tile].m[h], p.scale_log2) - base);
            x[tile].m[h] = top;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
                float y[2];
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    y[e] = exp2_fast(s[tile][n][2 * h + e] * p.scale_log2 - base);
                    sum += y[e];
                }
                store_shared4(sh.p + piece(P_ROW, row, (in.warp * KEYS + n * 8) / 8) + in.q4 * 4,
                              pack_bf16(y[0], y[1]));
            }
            sh.part[in.warp][row][in.q4] = sum;
        }
}

/* Rescales the sums and O, and adds the block's sums. `first`: O begins at 0. */
INLINE void rescale_rows(const shared &sh, state (&x)[TILES], const float (&rescale)[TILES][2], bool first,
                         const place &in)
{
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            int row = tile * 16 + h * 8 + in.g;
            float sum = sh.part[0][row][in.q4];
#pragma unroll
            for (int i = 1; i < 4; i++)
                sum += sh.part[i][row][in.q4];
            x[tile].l[h] = x[tile].l[h] * rescale[tile][h] + sum;
#pragma unroll
            for (int n = 0; n < DIMS / 8; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float &o = x[tile].o[4 * n + 2 * h + e];
                    o = first ? 0.f : o * rescale[tile][h];
                }
        }
}

/* Adds a block; its units are `at` and those behind it. `first`: of a chunk or of the item. */
INLINE void add_block(const attention_prefill_sm90_params &p, const range &t, const shared &sh, state (&x)[TILES],
                      const frag4 (&q)[HEAD_DIM / 16], u32 at, int b, bool first)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    place in = {warp, lane / 4, lane % 4};
    int halves = halves_of(t, b), mine = warp * KEYS / HALF_KEYS;
    float s[TILES][KEYS / 8][4] = {}, rescale[TILES][2];
    if (mine < halves)
        multiply_k(s, q, sh, wait_unit(sh, at + mine), warp * KEYS);
    for (int h = 0; h < halves; h++)
        release(sh, at + h);
    tell_top(p, t, sh, s, b, in);
    named_barrier(1, 128);
    store_p(p, sh, x, s, rescale, in);
    int rows = (2 * b + halves) * HALF_KEYS - t.keys; /* of the last unit of V that no row sees */
    for (int h = 0; h < halves; h++)
        wait_unit(sh, at + halves + h);
    if (rows > 0)
        wipe_v(sh.units + (at + 2 * halves - 1) % UNITS * UNIT_BYTES, rows);
    named_barrier(1, 128);
    rescale_rows(sh, x, rescale, first, in);
    multiply_v(x, sh, at + halves, halves);
    for (int h = 0; h < halves; h++)
        release(sh, at + halves + h);
}

INLINE u16 *o_row(const attention_prefill_sm90_params &p, const range &t, int row)
{
    return p.o + (i64)(t.token0 + row / GROUP) * p.o_stride + (t.head * GROUP + row % GROUP) * HEAD_DIM;
}

INLINE float sink_of_row(const attention_prefill_sm90_params &p, const range &t, int row)
{
    return sink_of(p.sinks, t.head * GROUP + row % GROUP);
}

/* Stores this warp's columns of a tile's rows: the result, or in a slot the state of a chunk. */
INLINE void store_rows(const attention_prefill_sm90_params &p, const range &t, const state &x, int tile)
{
    int lane = threadIdx.x % 32, column = threadIdx.x / 32 * DIMS + lane % 4 * 2;
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        int row = t.row0 + tile * 16 + h * 8 + lane / 4;
        if (row >= t.rows)
            continue;
        float inverse = row_factor(x.m[h], x.l[h], p.v_scale, sink_of_row(p, t, row));
        u16 *to = o_row(p, t, row) + column;
#pragma unroll
        for (int n = 0; n < DIMS / 8; n++)
            *(u32 *)(to + n * 8) = pack_bf16(x.o[4 * n + 2 * h] * inverse, x.o[4 * n + 2 * h + 1] * inverse);
    }
}

INLINE void store_state(const Chunks &c, const range &t, const attention_chunk_item &it, const state &x, int tile)
{
    int lane = threadIdx.x % 32, column = threadIdx.x / 32 * DIMS + lane % 4 * 2;
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        int row = tile * 16 + h * 8 + lane / 4;
        if (t.row0 + row >= t.rows)
            continue;
        i64 slot = chunk_slot(c, it.slot, t.head, row);
#pragma unroll
        for (int n = 0; n < DIMS / 8; n++)
            *(float2 *)(c.o + slot * HEAD_DIM + column + n * 8) =
                make_float2(x.o[4 * n + 2 * h], x.o[4 * n + 2 * h + 1]);
        if (threadIdx.x % 4 == 0 && threadIdx.x < 32)
            *(float2 *)(c.state + slot * 2) = make_float2(x.m[h], x.l[h]);
    }
}

/* The CTA that stores a tile's last chunk joins them all into the result. */
INLINE void join_all(const attention_prefill_sm90_params &p, const range &t, const attention_chunk_item &it,
                     const Chunks &c)
{
    __shared__ u32 drawn;
    __threadfence();
    named_barrier(1, 128);
    if (threadIdx.x == 0) {
        u32 *ticket = p.tickets + (t.seq * p.tiles + it.tile) * p.kv_heads + t.head;
        drawn = atomicAdd(ticket, 1u);
        if (drawn + 1 == it.n_items)
            *ticket = 0;
    }
    named_barrier(1, 128);
    if (drawn + 1 != it.n_items)
        return;
    __threadfence();
    join_chunks<false>(c, it, t.head, 0, min(ROWS, t.rows - t.row0), threadIdx.x, 128,
                       [&](int r) { return o_row(p, t, t.row0 + r); },
                       [&](int r) { return sink_of_row(p, t, t.row0 + r); });
}

/* Computes one item; `at` counts units over all items, as the producer does. Returns the count behind the item. */
INLINE u32 attend(const attention_prefill_sm90_params &p, const range &t, const shared &sh, u32 at)
{
    state x[TILES];
    frag4 q[HEAD_DIM / 16];
    float room[TILES][O_REGS], total_m[TILES][2], total_l[TILES][2];
    float(*total)[O_REGS] = room;
    if (TILES > 1)
        total += t.seq >> 31; /* + 0, which keeps the array out of the registers */
    bool more = false; /* total holds the chunks before this one */
    if (TILES == 1)
        load_fragments(p, t, q);
    else
        load_q(p, t, sh);
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
#pragma unroll
        for (int i = 0; i < O_REGS; i++)
            x[tile].o[i] = 0.f;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            x[tile].m[h] = total_m[tile][h] = -kInfinity;
            x[tile].l[h] = total_l[tile][h] = 0.f;
        }
    }
    for (int b = t.block0; b < t.block1; b++) {
        bool fresh = b > t.block0 && FIRST_OF_CHUNK(b);
        if (fresh) {
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                state &s = x[tile];
                float chunk_m[2];
                sum_rows(s.l);
#pragma unroll
                for (int h = 0; h < 2; h++)
                    chunk_m[h] = __fmul_rn(s.m[h], p.scale_log2);
                add_chunk<O_REGS>(total[tile], total_m[tile], total_l[tile], s.o, chunk_m, s.l, !more);
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    s.m[h] = -kInfinity;
                    s.l[h] = 0.f;
                }
            }
            more = true;
        }
        add_block(p, t, sh, x, q, at, b, b == t.block0 || fresh);
        at += 2 * halves_of(t, b);
    }
    attention_chunk_item it = ((const attention_chunk_item *)p.items)[t.index];
    Chunks c = {p.partial, p.state, p.kv_heads, p.slot_rows, p.v_scale};
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        state &s = x[tile];
        sum_rows(s.l);
#pragma unroll
        for (int h = 0; h < 2; h++)
            s.m[h] = __fmul_rn(s.m[h], p.scale_log2);
        if (more)
            end_chunks<O_REGS>(total[tile], total_m[tile], total_l[tile], s.o, s.m, s.l);
        if (it.n_items > 1)
            store_state(c, t, it, s, tile);
        else
            store_rows(p, t, s, tile);
    }
    if (it.n_items > 1)
        join_all(p, t, it, c);
    return at;
}

KERNEL __launch_bounds__(160, RESIDENT) attention_chunks_sm90(const __grid_constant__ attention_prefill_sm90_params p)
{
    extern __shared__ char raw[];
    __shared__ u64 full[UNITS], empty[UNITS];
    __shared__ float top[4][ROWS], part[4][ROWS][4];
    char *ring = (char *)(((size_t)raw + SWIZZLE_ATOM - 1) & ~(size_t)(SWIZZLE_ATOM - 1));
    u32 units = shared_address(ring), q = units + UNITS * UNIT_BYTES;
    shared sh = {q, q + ROWS * Q_ROW, units, ring, full, empty, top, part};
    if (threadIdx.x == 128) {
        tma_prefetch_map(&p.k);
        tma_prefetch_map(&p.v);
        tma_prefetch_map(&p.k_few);
        tma_prefetch_map(&p.v_few);
        for (int s = 0; s < UNITS; s++) {
            barrier_init(&full[s], 1);
            barrier_init(&empty[s], 4); /* an arrival a consumer warp */
        }
        barrier_init_done();
    }
    __syncthreads();
    if (threadIdx.x >= 128) {
        if (threadIdx.x == 128)
            produce(p, sh);
        return;
    }
    range t = range_of(p, item_of(0));
    pdl_wait();
    u32 at = 0;
    for (u32 round = 0; t.seq >= 0; t = range_of(p, item_of(++round)))
        at = attend(p, t, sh, at);
}
