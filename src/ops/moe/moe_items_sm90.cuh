// The grouped GEMMs of experts for many tokens (moe_gemm_sm90.cu, moe_quant_sm90.cu) share this: the items, and the end
// of an item. Needs UP, K, ROWS, K_USED, ACT, WIDTH, BIAS, and of the kernel:
//
//   kBlocks           blocks of 128 weight rows of an item, 64 of each for a warpgroup
//   kOrder            the order of the columns of h that UP stores: moe_order.cuh
//   kRowsEarly        true: a warpgroup loads the rows that it stores to before it multiplies
//   multiply_item()   adds up an item whose tile has up to N slots
#include "ptx_sm90.cuh"
#include "moe_act.cuh"
#include "moe_order.cuh"
#include "moe_params.h"
#include "moe_sm90_params.h"

constexpr int kBlockK = 64, kTileRows = 128 * kBlocks, kSteps = (K + kBlockK - 1) / kBlockK;
constexpr int kBlockOutputs = kGate ? 64 : 128, kOutputs = kBlocks * kBlockOutputs; // of a block and of an item
constexpr int kGroups = (ROWS + kOutputs - 1) / kOutputs;
constexpr int kItems = 4;
constexpr int kPart = 64, kPartBytes = kPart * 128; // slots that a warpgroup stores at once, from one of two buffers
static_assert(K % 8 == 0 && ROWS % 8 == 0, "16-byte vectors");

struct __align__(16) Item {
    i32 expert, begin, count, group; // expert -1: there are no more
};

struct Shared {
    char *stages, *out, *w; // stages: of the slots' rows; w: of weights
    u64 *full, *empty, *w_full, *w_empty, *item_full, *item_empty;
    Item *item;
};

template <int N> INLINE void multiply_item(const Shared &sh, u32 round, float (&acc)[kBlocks * WIDTH / 2]);

/* ---- items ---- */

// The number of the next item. The CTA that draws last leaves the ticket zero.
INLINE i32 draw(const moe_gemm_params &p, i32 n_items)
{
    i32 i = (i32)atomicAdd(p.ticket, 1u);
    if (i == n_items + (i32)gridDim.x - 1)
        atomicExch(p.ticket, 0u);
    return i;
}

INLINE Item item_at(const moe_gemm_params &p, i32 i, i32 n_items)
{
    if (i >= n_items)
        return {-1, 0, 0, 0};
    uint4 tile = load16_from_l2(p.tile + i / kGroups);
    return {(i32)tile.x, (i32)tile.y, (i32)tile.z, i % kGroups};
}

// Waits for the item of a round, and says that this warp has it.
INLINE Item take_item(const Shared &sh, u32 round)
{
    u32 at = round % kItems;
    barrier_wait(&sh.item_full[at], round / kItems & 1);
    Item item = sh.item[at];
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(&sh.item_empty[at]);
    return item;
}

/* ---- warpgroups 1 and 2 ---- */

// Where row `slot` of a buffer has its 16-byte vector `column`: rows of 128 bytes, swizzled.
INLINE u32 out_place(u32 buffer, int slot, int column) { return buffer + slot * 128 + (column ^ slot % 8) * 16; }

// Adds the biases of this thread's two weight rows to its N / 2 sums. kGate: a gate row and its up row.
template <int N> INLINE void add_bias(const moe_gemm_params &p, const Item &item, int block, float *acc)
{
    int group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, row = threadIdx.x % 32 / 4;
    int j = item.group * kOutputs + block * kBlockOutputs + group * (kBlockOutputs / 2) + warp * (kGate ? 8 : 16) + row;
    const float *bias = p.bias + (i64)item.expert * ROWS;
    float low = bias[min(j, ROWS - 1)];
    float high = kGate ? p.up_bias[(i64)item.expert * ROWS + min(j, ROWS - 1)] : bias[min(j + 8, ROWS - 1)];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        acc[i] += i % 4 < 2 ? low : high;
}

// Two sums of a product without pairs. UP: experts without a gate, whose sums pass through the activation.
INLINE u32 pack_outputs(const float *sum, float limit)
{
    if constexpr (UP)
        return pack_bf16(gated(sum[0], 0.f, limit), gated(sum[1], 0.f, limit));
    return pack_bf16(sum[0], sum[1]);
}

// Writes the results of slots first .. first + 31 to a buffer: rows are slots, columns this warpgroup's outputs.
INLINE void turn(const float *acc, int first, u32 buffer, float limit)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, matrix = lane / 8, row = lane % 8;
    acc += first / 2;
    int to = first % kPart;
    if constexpr (kGate) { // a matrix has the warp's 8 outputs of 8 slots
        u32 v[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            v[j] = pack_bf16(gated(acc[4 * j], acc[4 * j + 2], limit), gated(acc[4 * j + 1], acc[4 * j + 3], limit));
        store_matrix4_transposed(out_place(buffer, to + matrix * 8 + row, warp), v[0], v[1], v[2], v[3]);
    } else { // the warp has 16 outputs: two matrices for 8 slots
#pragma unroll
        for (int j = 0; j < 4; j += 2)
            store_matrix4_transposed(out_place(buffer, to + (j + matrix / 2) * 8 + row, warp * 2 + matrix % 2),
                                     pack_outputs(acc + 4 * j, limit), pack_outputs(acc + 4 * j + 2, limit),
                                     pack_outputs(acc + 4 * j + 4, limit), pack_outputs(acc + 4 * j + 6, limit));
    }
}

// How a warpgroup stores: vectors of a slot, each by a thread, and slots at once.
constexpr int kColumns = kGate ? 4 : 8, kRows = 128 / kColumns;

// The rows of y that this thread stores to, kRows apart; the loads are issued before the results are there.
template <int N> INLINE void rows_out(const moe_gemm_params &p, const Item &item, i32 (&to)[N / kRows])
{
#pragma unroll
    for (int i = 0; i < N / kRows; i++) {
        i32 slot = i * kRows + threadIdx.x % 128 / kColumns;
        to[i] = UP || slot >= item.count ? item.begin + slot : load_from_l2(p.order + item.begin + slot);
    }
}

// Vector `column` of row r of a buffer, in the order that h's reader wants.
INLINE uint4 vector_out(const char *buffer, int r, int column)
{
    if constexpr (UP && kOrder != 0) {
        u32 v[4];
#pragma unroll
        for (int q = 0; q < 4; q++) {
            int pair = column / 4 * 16 + moe_order_pair<kOrder>(column % 4, q);
            v[q] = *(const u32 *)(buffer + r * 128 + (pair / 4 ^ r % 8) * 16 + pair % 4 * 4);
        }
        return make_uint4(v[0], v[1], v[2], v[3]);
    } else {
        return load16(buffer + r * 128 + (column ^ r % 8) * 16);
    }
}

// Stores slots first .. of the tile, up to kPart of them, from a buffer.
template <int N>
INLINE void send(const moe_gemm_params &p, const Item &item, int block, const i32 (&to)[N / kRows], int first,
                 const char *buffer)
{
    int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, column = thread % kColumns;
    int j = item.group * kOutputs + block * kBlockOutputs + group * (kBlockOutputs / 2) + column * 8;
#pragma unroll
    for (int i = 0; i < kPart / kRows; i++) {
        int r = i * kRows + thread / kColumns;
        if (first + r < min(N, item.count) && j < ROWS)
            store16(p.y + (i64)to[min(first / kRows + i, N / kRows - 1)] * ROWS + j,
                    vector_out(buffer, r, column));
    }
}

// Stores the results of one block of weight rows.
template <int N>
INLINE void finish(const moe_gemm_params &p, const Shared &sh, const Item &item, int block,
                   const i32 (&to)[N / kRows], float *acc)
{
    int group = threadIdx.x / 128 - 1;
    if constexpr (BIAS)
        add_bias<N>(p, item, block, acc);
#pragma unroll
    for (int first = 0; first < N; first += kPart) { // the two buffers take turns: one barrier a part
        char *buffer = sh.out + (group * 2 + first / kPart % 2) * kPartBytes;
        turn(acc, first, shared_address(buffer), p.limit);
        if constexpr (N % kPart == 0)
            turn(acc, first + 32, shared_address(buffer), p.limit);
        else if (first + 32 < N)
            turn(acc, first + 32, shared_address(buffer), p.limit);
        named_barrier(1 + group, 128);
        send<N>(p, item, block, to, first, buffer);
    }
    named_barrier(1 + group, 128); // the next block or item writes the first buffer
}

// Computes an item whose tile has up to N slots. All widths share their accumulators: the first wgmma names them as its
// input, which it ignores, so arrays of their own would all stay in registers from item to item.
template <int N>
INLINE void consume(const moe_gemm_params &p, const Shared &sh, const Item &item, u32 round,
                    float (&acc)[kBlocks * WIDTH / 2])
{
    i32 to[N / kRows];
    if constexpr (kRowsEarly)
        rows_out<N>(p, item, to);
    multiply_item<N>(sh, round, acc);
    if constexpr (!kRowsEarly)
        rows_out<N>(p, item, to);
#pragma unroll
    for (int block = 0; block < kBlocks; block++)
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            wgmma_touch(acc[block * WIDTH / 2 + i]);
#pragma unroll
    for (int block = 0; block < kBlocks; block++)
        finish<N>(p, sh, item, block, to, acc + block * WIDTH / 2);
}

template <int N>
INLINE void consume_width(const moe_gemm_params &p, const Shared &sh, const Item &item, u32 round,
                          float (&acc)[kBlocks * WIDTH / 2])
{
    if constexpr (N < WIDTH)
        if (item.count > N)
            return consume_width<N + 32>(p, sh, item, round, acc);
    consume<N>(p, sh, item, round, acc);
}

// Warpgroups 1 and 2 run this.
INLINE void consume_items(const moe_gemm_params &p, const Shared &sh)
{
    float acc[kBlocks * WIDTH / 2];
    for (u32 round = 0;; round++) {
        Item item = take_item(sh, round);
        if (item.expert < 0)
            break;
        consume_width<32>(p, sh, item, round, acc);
    }
}
