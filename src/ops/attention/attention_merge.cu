// Joins the KV ranges into which attention_prefill_sm90.cu cut prefill tiles (SPLIT), in rising order.
//
//   o[row, :] = sum_k 2^(m_k - m) O_k / sum_k 2^(m_k - m) l_k,   m = max_k m_k
//
// Grid: x = the plan's items, y = KV heads. The n items of a tile join an n-th of its rows each, so that as many SMs
// share this as shared the ranges: 8 to 16 rows of 128 columns a CTA. A thread joins four columns of a row. It waits
// for L2 most of the time, and has up to 16 ranges under way. Bytes: all slots once, from L2.
// Template: HEAD_DIM, GROUP, KV_HEADS, FP8 (0), SINKS.
#include "kv.cuh"
#include "attention_chunk.cuh"

constexpr int kThreads = 512, kDepth = 15, kPieces = HEAD_DIM / 4;

KERNEL __launch_bounds__(kThreads) attention_merge(const __grid_constant__ attention_merge_params p)
{
    attention_range_item of = p.items[blockIdx.x];
    attention_chunk_item it = of.chunk;
    int head = blockIdx.y, n = it.n_items;
    bool idle = it.seq < 0 || n < 2;
    pdl_go();
    if (idle && (blockIdx.x > 0 || head > 0))
        return; /* one CTA waits, so that no later kernel's turn comes before the ranges are stored */
    pdl_wait();
    if (idle)
        return;
    Chunks c = {(float *)p.partial, (float *)p.state, KV_HEADS, p.slot_rows, p.v_scale};
    int part = it.slot - it.first_slot, row0 = it.tile * p.slot_rows;
    int rows = min(p.slot_rows, of.tokens * GROUP - row0), begin = rows * part / n, end = rows * (part + 1) / n;
    i64 step = (i64)KV_HEADS * p.slot_rows;
    for (int i = threadIdx.x; i < (end - begin) * kPieces; i += kThreads) {
        int row = begin + i / kPieces, column = i % kPieces * 4;
        i64 slot = chunk_slot(c, it.first_slot, head, row);
        Piece x = load_piece(c, slot, column);
#pragma unroll 1
        for (int k0 = 1; k0 < n; k0 += kDepth) {
            Piece next[kDepth];
#pragma unroll
            for (int j = 0; j < kDepth; j++)
                if (k0 + j < n)
                    next[j] = load_piece(c, slot + (k0 + j) * step, column);
#pragma unroll
            for (int j = 0; j < kDepth; j++)
                if (k0 + j < n)
                    join_piece(x, next[j]);
        }
        int packed = row0 + row, q_head = head * GROUP + packed % GROUP;
        u16 *to = p.o + (i64)(of.token0 + packed / GROUP) * p.o_stride + q_head * HEAD_DIM;
        store_piece<false>(to, column, x, p.v_scale, sink_of(p.sinks, q_head));
    }
}
