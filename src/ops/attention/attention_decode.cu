// Decode attention over paged KV, one query token a sequence, split over KV and merged by the last
// CTA.
//
// q [tokens, kv_heads * GROUP * HEAD_DIM] bf16 slice, pools [pages, kv_heads, PAGE, HEAD_DIM] bf16,
// o like q.
// Grid: x = items of the plan (a sequence's KV range [begin, end)), y = kv heads, z = tiles of 16
// heads of a group. The group's query heads are the 16-row side of mma m16n8k16, so K and V are
// read once for all of them. Four warps; warp w takes the blocks of 16 tokens w, w + 4, ... of the
// range through its own ring of STAGES blocks in shared memory (cp.async, no barrier between
// warps), with its own running maximum and sum; they meet once at the end. A range that is not the
// whole sequence leaves (m, l, O) in fp32; the last CTA of a (sequence, kv head) merges the ranges
// in rising order. Bytes: 4 * kv_len * kv_heads * HEAD_DIM a sequence: the roof is memory
// bandwidth.
// Template: HEAD_DIM (16-multiple up to 256), GROUP, KV_HEADS, PAGE, STAGES, WINDOWED.

struct DecodeItem { // ops/attention/attention_cuda.h
    i32 seq, begin, end, first_item, n_items, spare[3];
};
struct DecodeParams {
    const u16 *q, *k_pool, *v_pool;
    u16 *o;
    const DecodeItem *items;
    const i32 *kv_len, *page_start, *page_ids, *q_start;
    float *partial; // [items][kv_heads][GROUP][HEAD_DIM]
    float *state;   // [items][kv_heads][GROUP][2] m, l
    u32 *tickets;   // [seqs * kv_heads * z]
    i32 q_stride, o_stride, window;
    float scale_log2;
};

constexpr int kWarps = 4, kBlock = 16, kDimSteps = HEAD_DIM / 16, kVecs = HEAD_DIM / 8,
              kRowBytes = HEAD_DIM * 2;
constexpr int kTileHeads = GROUP < 16 ? GROUP : 16;
constexpr u32 kBlockBytes = kBlock * kRowBytes; // of K, and again of V
constexpr bool kLow = kTileHeads > 8;           // rows 8 .. 15 of the fragments hold heads too

// 16-byte chunk c of row r; the exclusive or spreads eight rows over all banks (HEAD_DIM >= 64).
INLINE u32 at(u32 row, u32 chunk)
{
    constexpr u32 kMask = kVecs >= 8 ? 7 : kVecs - 1;
    return row * kRowBytes + ((chunk ^ (row & (kVecs % 8 ? 0 : kMask))) << 4);
}

KERNEL __launch_bounds__(kWarps * 32, 1) attention_decode(const __grid_constant__ DecodeParams p)
{
    static_assert(HEAD_DIM % 16 == 0 && HEAD_DIM <= 256, "fragments of 16 dimensions");
    extern __shared__ __align__(128) u8 shared[];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q4 = lane % 4;
    int kv_head = blockIdx.y, head0 = blockIdx.z * 16;
    DecodeItem item = p.items[blockIdx.x];
    pdl_go();
    pdl_wait();
    if (item.seq < 0)
        return;
    i32 kv_len = p.kv_len[item.seq], begin = item.begin, end = min(item.end, kv_len);
    i32 first_kept = WINDOWED ? max(0, kv_len - p.window) : 0;
    const i32 *pages = p.page_ids + p.page_start[item.seq];
    i32 token = p.q_start[item.seq];

    // Q fragments: rows are heads head0 + g and head0 + g + 8 of the group
    u32 q[kDimSteps][4];
    const u16 *q_low = p.q + (i64)token * p.q_stride +
                       (i64)(kv_head * GROUP + head0 + g) * HEAD_DIM + q4 * 2;
    bool has_low = head0 + g < GROUP, has_high = kLow && head0 + g + 8 < GROUP;
#pragma unroll
    for (int s = 0; s < kDimSteps; s++) {
        q[s][0] = has_low ? *(const u32 *)(q_low + s * 16) : 0;
        q[s][2] = has_low ? *(const u32 *)(q_low + s * 16 + 8) : 0;
        q[s][1] = has_high ? *(const u32 *)(q_low + 8 * HEAD_DIM + s * 16) : 0;
        q[s][3] = has_high ? *(const u32 *)(q_low + 8 * HEAD_DIM + s * 16 + 8) : 0;
    }

    u32 ring = shared_address(shared) + warp * STAGES * 2 * kBlockBytes;
    i32 block0 = begin / kBlock + warp, n_blocks = (end + kBlock - 1) / kBlock;
    auto fetch = [&](i32 block, int stage) {
        u32 to = ring + stage * 2 * kBlockBytes;
#pragma unroll
        for (int i = lane; i < kBlock * kVecs; i += 32) {
            i32 r = i / kVecs, c = i % kVecs, j = block * kBlock + r;
            bool inside = j < end;
            i32 jj = inside ? j : begin;
            i64 from = (((i64)pages[jj / PAGE] * KV_HEADS + kv_head) * PAGE + jj % PAGE) *
                           HEAD_DIM +
                       c * 8;
            copy_async16(to + at(r, c), p.k_pool + from, inside ? 16 : 0);
            copy_async16(to + kBlockBytes + at(r, c), p.v_pool + from, inside ? 16 : 0);
        }
    };
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (block0 + s * kWarps < n_blocks)
            fetch(block0 + s * kWarps, s);
        copy_async_commit();
    }

    float o[kDimSteps * 2][4] = {};
    float m[2] = {-kInfinity, -kInfinity}, l[2] = {0.f, 0.f};
    int stage = 0;
    for (i32 block = block0; block < n_blocks; block += kWarps) {
        i32 ahead = block + (STAGES - 1) * kWarps;
        if (ahead < n_blocks)
            fetch(ahead, (stage + STAGES - 1) % STAGES);
        copy_async_commit();
        copy_async_wait<STAGES - 1>();
        __syncwarp();
        u32 ks = ring + stage * 2 * kBlockBytes, vs = ks + kBlockBytes;
        float s[2][4] = {};
#pragma unroll
        for (int d = 0; d < kDimSteps; d++) {
            frag4 k = load_matrix4(ks + at(lane / 16 * 8 + lane % 8, d * 2 + lane / 8 % 2));
            mma_bf16(s[0], q[d][0], q[d][1], q[d][2], q[d][3], k.r[0], k.r[1]);
            mma_bf16(s[1], q[d][0], q[d][1], q[d][2], q[d][3], k.r[2], k.r[3]);
        }
        float top[2] = {m[0], m[1]};
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                i32 j = block * kBlock + n * 8 + q4 * 2 + e % 2;
                bool keep = j < end && j >= begin && (!WINDOWED || j >= first_kept);
                s[n][e] = keep ? s[n][e] * p.scale_log2 : -kInfinity;
                top[e / 2] = fmaxf(top[e / 2], s[n][e]);
            }
#pragma unroll
        for (int h = 0; h < (kLow ? 2 : 1); h++) {
            top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 1));
            top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 2));
            float base = top[h] == -kInfinity ? 0.f
                                              : top[h]; // nothing kept yet: exp2(-inf - 0) = 0
            float shrink = exp2_fast(m[h] - base);
            m[h] = top[h];
            float sum = 0.f;
#pragma unroll
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    s[n][2 * h + e] = exp2_fast(s[n][2 * h + e] - base);
                    sum += s[n][2 * h + e];
                }
            l[h] = l[h] * shrink + sum; // this lane's columns only; the quad is summed at the end
#pragma unroll
            for (int d = 0; d < kDimSteps * 2; d++) {
                o[d][2 * h] *= shrink;
                o[d][2 * h + 1] *= shrink;
            }
        }
        u32 a0 = pack_bf16(s[0][0], s[0][1]), a1 = kLow ? pack_bf16(s[0][2], s[0][3]) : 0;
        u32 a2 = pack_bf16(s[1][0], s[1][1]), a3 = kLow ? pack_bf16(s[1][2], s[1][3]) : 0;
#pragma unroll
        for (int d = 0; d < kDimSteps; d++) {
            frag4 v = load_matrix4_transposed(vs +
                                              at(lane / 8 % 2 * 8 + lane % 8, d * 2 + lane / 16));
            mma_bf16(o[2 * d], a0, a1, a2, a3, v.r[0], v.r[1]);
            mma_bf16(o[2 * d + 1], a0, a1, a2, a3, v.r[2], v.r[3]);
        }
        __syncwarp(); // all lanes have read the stage that the next fetch overwrites
        stage = (stage + 1) % STAGES;
    }
    copy_async_wait<0>();
#pragma unroll
    for (int h = 0; h < (kLow ? 2 : 1); h++) {
        l[h] += __shfl_xor_sync(~0u, l[h], 1);
        l[h] += __shfl_xor_sync(~0u, l[h], 2);
    }

    // the four warps meet: [warp][heads][HEAD_DIM] and (m, l)
    __syncthreads();
    float *sum_o = (float *)shared, *sum_ml = sum_o + kWarps * kTileHeads * HEAD_DIM;
#pragma unroll
    for (int h = 0; h < (kLow ? 2 : 1); h++) {
        int r = g + 8 * h;
        if (r >= kTileHeads)
            continue;
        float *row = sum_o + (warp * kTileHeads + r) * HEAD_DIM;
#pragma unroll
        for (int d = 0; d < kDimSteps * 2; d++)
            *(float2 *)(row + d * 8 + q4 * 2) = make_float2(o[d][2 * h], o[d][2 * h + 1]);
        if (q4 == 0) {
            sum_ml[(warp * kTileHeads + r) * 2] = m[h];
            sum_ml[(warp * kTileHeads + r) * 2 + 1] = l[h];
        }
    }
    __syncthreads();
    int heads = min(kTileHeads, GROUP - head0);
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
        i64 head = head0 + r;
        if (item.n_items == 1) {
            p.o[(i64)token * p.o_stride + (kv_head * GROUP + head) * HEAD_DIM + d] = f32_bf16(
                total > 0.f ? value / total : 0.f);
        } else {
            i64 slot = ((i64)blockIdx.x * KV_HEADS + kv_head) * GROUP + head;
            p.partial[slot * HEAD_DIM + d] = value;
            if (d == 0) {
                p.state[slot * 2] = top;
                p.state[slot * 2 + 1] = total;
            }
        }
    }
    if (item.n_items == 1)
        return;
    u32 *ticket = p.tickets + (item.seq * KV_HEADS + kv_head) * gridDim.z + blockIdx.z;
    if (!last_of(ticket, item.n_items))
        return;
    for (int i = threadIdx.x; i < heads * HEAD_DIM; i += kWarps * 32) {
        int r = head0 + i / HEAD_DIM, d = i % HEAD_DIM;
        float top = -kInfinity, total = 0.f, value = 0.f;
        for (int k = 0; k < item.n_items; k++) {
            i64 slot = ((i64)(item.first_item + k) * KV_HEADS + kv_head) * GROUP + r;
            float mk = __ldcg(p.state + slot * 2), lk = __ldcg(p.state + slot * 2 + 1);
            float next = fmaxf(top, mk), base = next == -kInfinity ? 0.f : next;
            float keep = exp2_fast(top - base), add = exp2_fast(mk - base);
            total = total * keep + lk * add;
            value = value * keep + __ldcg(p.partial + slot * HEAD_DIM + d) * add;
            top = next;
        }
        p.o[(i64)token * p.o_stride + (kv_head * GROUP + r) * HEAD_DIM + d] = f32_bf16(
            total > 0.f ? value / total : 0.f);
    }
}
