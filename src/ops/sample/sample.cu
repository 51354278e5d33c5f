// The next token of every logit row, without sorting (sample.h says in which order what is
// applied).
//
// logits [rows, VOCAB] fp32. Grid: CLUSTER CTAs a row, one cluster; each reads its slice of the row
// once into shared memory and the rest happens there. CLUSTER 1 (GPUs without clusters): the row
// stays in global memory and L2.
//
//   select(weight, rank)  the value at which the weights of all larger values fall short of `rank`
//   and those of all
//                         larger or equal reach it: top-k with weight 1, top-p with weight exp().
//                         One histogram pass over 256 bins of 1/8 below the maximum, then four over
//                         the bits of the values in that bin
//   locate(weight, at)    the first id whose running sum of weights exceeds `at`: the draw, and
//   ties by lowest id
//
// Weights are fixed-point u64 (exp() in units of 2^-40), so sums do not depend on the order of
// atomics: the same seed gives the same token, whatever runs beside it. Bytes: 4 * VOCAB a row,
// once; bound by cluster barriers for few rows (about 15 of them), by memory for hundreds.
// Template: VOCAB, CLUSTER (1 .. 8), THREADS, PENALTIES (room for counts is there).

struct SampleRow { // ops/sample/sample_cuda.h
    u64 seed;
    float temperature, top_p, min_p, repetition, presence, frequency;
    i32 top_k, n_top, position, pool_slot, target, context, n_prompt, n_context, pending_slot, bias,
        n_bias, spare;
};
struct SampleBias {
    i32 id;
    float bias;
};
struct SampleParams {
    float *logits;
    const SampleRow *rows;
    const i32 *contexts;
    const SampleBias *biases;
    i32 *pool;
    i32 *token;
    float *logprob;
    i32 *top_id;
    float *top_logprob;
    u32 *scratch; // CLUSTER 1 with PENALTIES: [rows][kCountWords]
    i32 logits_stride;
};

constexpr int kWarps = THREADS / 32, kMaxTop = 20;
constexpr int kSlice = ((VOCAB + CLUSTER - 1) / CLUSTER + 31) / 32 * 32;
constexpr int kSegment = (kSlice / 32 + kWarps - 1) / kWarps * 32; // contiguous ids of a warp
constexpr int kCountWords = kSlice / 2 + kSlice / 32; // 16-bit counts, then one bit "in the prompt"
constexpr float kUnit = 1099511627776.f;              // 2^40

struct Shared {
    uint4 histogram[2][256]; // weights in pieces of 14 bits: shared memory adds 32 bits natively
    u64 exchange[2][2], sums[256], part[kWarps];
    i32 bin;
    u64 above;
};

INLINE u32 key_of(float f) { // rising with the value
    u32 u = __float_as_uint(f);
    return u ^ (u >> 31 ? 0xffffffffu : 0x80000000u);
}

struct Cta {
    Shared *s;
    float *v;     // this CTA's slice
    i32 first, n; // ids first .. first + n
    u32 rank, turn;
};

INLINE void cluster_sync()
{
    if constexpr (CLUSTER > 1)
        asm volatile(
            "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                : "memory");
    else
        __syncthreads();
}

// A u64 of CTA `rank` of the cluster, at the address that `mine` has here.
INLINE u64 peer(const u64 *mine, u32 rank)
{
    if constexpr (CLUSTER > 1) {
        u32 address = shared_address(mine), there;
        u64 v;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                     : "=r"(there)
                     : "r"(address), "r"(rank));
        asm volatile("ld.shared::cluster.u64 %0, [%1];" : "=l"(v) : "r"(there) : "memory");
        return v;
    } else {
        return *mine;
    }
}

// Sum (or maximum) of every thread's value over the cluster, known to all. One barrier: the
// exchange slots alternate, and a slot is written again only after the barrier between.
template <bool kMax> INLINE u64 reduce(Cta &c, u64 value, u64 *before = nullptr)
{
    auto join = [](u64 a, u64 b) { return kMax ? (a > b ? a : b) : a + b; };
#pragma unroll
    for (int d = 16; d; d >>= 1)
        value = join(value, __shfl_xor_sync(~0u, value, d));
    if (threadIdx.x % 32 == 0)
        c.s->part[threadIdx.x / 32] = value;
    __syncthreads();
    u64 *slot = &c.s->exchange[c.turn++ & 1][0];
    if (threadIdx.x == 0) {
        u64 all = c.s->part[0];
        for (int i = 1; i < kWarps; i++)
            all = join(all, c.s->part[i]);
        *slot = all;
    }
    cluster_sync();
    u64 all = 0;
#pragma unroll
    for (u32 r = 0; r < CLUSTER; r++) {
        if (before && r == c.rank)
            *before = all; // of the CTAs with lower ids
        all = join(all, peer(slot, r));
    }
    return all;
}

// What an id weighs in the pass at hand. A value, not a lambda, so that select and locate are
// compiled once: five instances of them took six seconds.
enum Kind { kOne, kMass, kTieOne, kTieMass };
struct Weights {
    Kind kind;
    float top, scale;    // mass is exp2((value - top) * scale)
    u32 threshold, last; // kept: a larger key, or this key and an id up to `last`
    u32 tie;             // kTie*: only this key weighs
    u64 least;           // less mass than this is none
};

INLINE u64 weigh(const Cta &c, const Weights &w, int i) {
    u32 key = key_of(c.v[i]);
    if (w.kind == kOne)
        return 1;
    if (w.kind == kTieOne)
        return key == w.tie;
    if (w.kind == kTieMass && key != w.tie)
        return 0;
    if (key < w.threshold || (key == w.threshold && (u32)(c.first + i) > w.last))
        return 0;
    u64 mass = (u64)(exp2_fast((c.v[i] - w.top) * w.scale) * kUnit);
    return mass >= w.least ? mass : 0;
}

struct Selected {
    u32 key;   // the threshold
    u64 above; // weight of everything larger
};

INLINE void add_weight(uint4 *bin, u64 w)
{
    u32 low = (u32)w & 0x3fff, middle = (u32)(w >> 14) & 0x3fff, high = (u32)(w >> 28);
    if (low)
        atomicAdd(&bin->x, low);
    if (middle)
        atomicAdd(&bin->y, middle);
    if (high)
        atomicAdd(&bin->z, high);
}

// A bin's weight over the cluster: up to 36,000 ids a CTA keep each piece below 2^30.
INLINE u64 weight_of(const uint4 *bin)
{
    u64 sum = 0;
#pragma unroll
    for (u32 r = 0; r < CLUSTER; r++) {
        uint4 v = *bin;
        if constexpr (CLUSTER > 1) {
            u32 there;
            asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                         : "=r"(there)
                         : "r"(shared_address(bin)), "r"(r));
            asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                         : "r"(there)
                         : "memory");
        }
        sum += v.x + ((u64)v.y << 14) + ((u64)v.z << 28);
    }
    return sum;
}

// Warp 0: the first bin at which the running sum, begun at `above`, reaches `rank`.
INLINE void find_bin(Cta &c, u64 above, u64 rank)
{
    int lane = threadIdx.x, found = 255;
#pragma unroll 1
    for (int b = 0; b < 256; b += 32) {
        u64 mine = c.s->sums[b + lane], running = mine;
#pragma unroll
        for (int d = 1; d < 32; d <<= 1) {
            u64 left = __shfl_up_sync(~0u, running, d);
            running += lane >= d ? left : 0;
        }
        u32 reached = __ballot_sync(~0u, above + running >= rank);
        if (reached) {
            int first = __ffs(reached) - 1;
            above += __shfl_sync(~0u, running - mine, first);
            found = b + first;
            break;
        }
        above += __shfl_sync(~0u, running, 31);
    }
    if (lane == 0) {
        c.s->bin = found;
        c.s->above = above;
    }
}

__noinline__ static Selected select(Cta &c, u64 rank, const Weights &weights)
{
    auto bin_of = [&](float f) { // falling values, rising bins
        float d = (weights.top - f) * 8.f;
        return d < 255.f ? (int)d : 255;
    };
    u64 above = 0;
    int chosen = -1; // the first pass's bin
    u32 prefix = 0, mask = 0;
#pragma unroll 1
    for (int pass = 0; pass < 5; pass++) {
        uint4 *histogram = c.s->histogram[pass & 1];
        for (int i = threadIdx.x; i < 256; i += THREADS)
            histogram[i] = make_uint4(0, 0, 0, 0);
        __syncthreads();
        int shift = 32 - 8 * pass;
#pragma unroll 2
        for (int i = threadIdx.x; i < c.n; i += THREADS) {
            u32 key = key_of(c.v[i]);
            int bin = bin_of(c.v[i]);
            if (pass > 0) {
                if (bin != chosen || (key & mask) != prefix)
                    continue;
                bin = 255 - (key >> shift & 255);
            }
            add_weight(&histogram[bin], weigh(c, weights, i));
        }
        cluster_sync();
        for (int i = threadIdx.x; i < 256; i += THREADS)
            c.s->sums[i] = weight_of(&histogram[i]);
        __syncthreads();
        if (threadIdx.x < 32)
            find_bin(c, above, rank);
        __syncthreads();
        above = c.s->above;
        if (pass == 0) {
            chosen = c.s->bin;
        } else {
            prefix |= (u32)(255 - c.s->bin) << shift;
            mask |= 255u << shift;
        }
    }
    cluster_sync(); // nobody zeroes a histogram that a peer still reads
    return {prefix, above};
}

// First id of the row whose running sum, in rising order of ids, exceeds `at`; ~0 if none does.
__noinline__ static u32 locate(Cta &c, u64 at, const Weights &weights) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, from = warp * kSegment,
        to = min(from + kSegment, c.n);
    u64 mine = 0;
#pragma unroll 2
    for (int i = from + lane; i < to; i += 32)
        mine += weigh(c, weights, i);
#pragma unroll
    for (int d = 16; d; d >>= 1)
        mine += __shfl_xor_sync(~0u, mine, d);
    u64 before = 0;
    reduce<false>(c, lane == 0 ? mine : 0, &before); // leaves the warps' sums in part[]
    for (int w = 0; w < warp; w++)
        before += c.s->part[w];
    __syncthreads(); // part[] is read; the next reduction may write it
    u64 answer = 0;
    if (before <= at && at < before + mine)
#pragma unroll 1
        for (int b = from; b < to; b += 32) {
            u64 w = b + lane < to ? weigh(c, weights, b + lane) : 0, running = w;
#pragma unroll
            for (int d = 1; d < 32; d <<= 1) {
                u64 left = __shfl_up_sync(~0u, running, d);
                running += lane >= d ? left : 0;
            }
            u32 reached = __ballot_sync(~0u, before + running > at);
            if (reached) {
                answer = (u64)(c.first + b + __ffs(reached) - 1) + 1;
                break;
            }
            before += __shfl_sync(~0u, running, 31);
        }
    return (u32)(reduce<true>(c, answer) - 1);
}

// Philox 4x32-10 (Salmon et al., 2011), the first word's top 24 bits: sample_uniform() of the CPU.
INLINE u32 philox24(u64 seed, u64 counter)
{
    u32 x0 = (u32)counter, x1 = (u32)(counter >> 32), x2 = 0, x3 = 0, k0 = (u32)seed,
        k1 = (u32)(seed >> 32);
#pragma unroll
    for (int i = 0; i < 10; i++) {
        u64 a = (u64)0xD2511F53u * x0, b = (u64)0xCD9E8D57u * x2;
        u32 y0 = (u32)(b >> 32) ^ x1 ^ k0, y2 = (u32)(a >> 32) ^ x3 ^ k1;
        x1 = (u32)b;
        x3 = (u32)a;
        x0 = y0;
        x2 = y2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return x0 >> 8;
}

// Counts of what is in prompt and output, for this slice, and the penalties.
INLINE void penalise(Cta &c, const SampleParams &p, const SampleRow &row, u32 *counts)
{
    u32 *seen = counts + kSlice / 2;
#pragma unroll 2
    for (int i = threadIdx.x; i < kCountWords; i += THREADS)
        counts[i] = 0;
    __syncthreads();
    i32 pending = row.pending_slot >= 0 ? p.pool[row.pending_slot] : -1;
    i32 n = row.n_context + (pending >= 0);
#pragma unroll 2
    for (int i = threadIdx.x; i < n; i += THREADS) {
        i32 id = (i < row.n_context ? p.contexts[row.context + i] : pending) - c.first;
        if (id < 0 || id >= c.n)
            continue;
        if (i < row.n_prompt)
            atomicOr(&seen[id / 32], 1u << id % 32);
        else
            atomicAdd(&counts[id / 2], id % 2 ? 0x10000u : 1u);
    }
    __syncthreads();
#pragma unroll 2
    for (int i = threadIdx.x; i < c.n; i += THREADS) {
        u32 count = counts[i / 2] >> 16 * (i % 2) & 0xffffu;
        bool prompt = seen[i / 32] >> i % 32 & 1;
        float l = c.v[i];
        if ((count || prompt) && row.repetition > 0.f)
            l = l > 0.f ? l / row.repetition : l * row.repetition;
        if (count)
            l -= row.presence + row.frequency * (float)count;
        c.v[i] = l;
    }
    __syncthreads();
}

// Largest (value, lowest id) that is smaller than `below`.
INLINE u64 best_below(Cta &c, u64 below)
{
    u64 best = 0;
#pragma unroll 2
    for (int i = threadIdx.x; i < c.n; i += THREADS) {
        u64 both = (u64)key_of(c.v[i]) << 32 | (0xffffffffu - (u32)(c.first + i));
        if (both < below && both > best)
            best = both;
    }
    return reduce<true>(c, best);
}
INLINE float value_of(u64 both)
{
    u32 key = (u32)(both >> 32);
    return __uint_as_float(key >> 31 ? key ^ 0x80000000u : ~key);
}
INLINE i32 id_of(u64 both) { return (i32)(0xffffffffu - (u32)both); }

INLINE u64 total_of(Cta &c, const Weights &w) {
    u64 sum = 0;
#pragma unroll 2
    for (int i = threadIdx.x; i < c.n; i += THREADS)
        sum += weigh(c, w, i);
    return reduce<false>(c, sum);
}

// One draw from the row at its temperature, after top-k, top-p and min-p.
INLINE i32 draw(Cta &c, const SampleRow &row, float top) {
    Weights w = {kOne, top, kLog2e / row.temperature, 0, ~0u, 0, 0};
    if (row.top_k > 0 && row.top_k < VOCAB) {
        Selected s = select(c, row.top_k, w);
        w.kind = kTieOne;
        w.tie = s.key;
        w.last = locate(c, row.top_k - s.above - 1, w);
        w.threshold = s.key;
    }
    w.kind = kMass;
    u64 total = total_of(c, w);
    if (row.top_p < 1.f) {
        u64 want = (u64)((double)total * (double)row.top_p);
        want = want > 0 ? want : 1;
        Selected s = select(c, want, w);
        w.kind = kTieMass;
        w.tie = s.key;
        u32 last = locate(c, want - s.above - 1, w);
        w.kind = kMass;
        w.threshold = s.key;
        w.last = last;
        total = total_of(c, w);
    }
    if (row.min_p > 0.f) { // p_i >= min_p * p_max, in the weights' own units
        w.least = (u64)(row.min_p * kUnit);
        total = total_of(c, w);
    }
    u64 u = philox24(row.seed, row.position);
    return (i32)locate(c, (total >> 24) * u + ((total & 0xffffff) * u >> 24), w);
}

KERNEL __launch_bounds__(THREADS, 1) sample(const __grid_constant__ SampleParams p)
{
    extern __shared__ __align__(16) u8 dynamic[];
    __shared__ Shared s;
    pdl_go();
    pdl_wait();
    u32 row_index = blockIdx.x / CLUSTER;
    SampleRow row = p.rows[row_index];
    float *logits = p.logits + (i64)row_index * p.logits_stride;
    Cta c;
    c.s = &s;
    c.rank = blockIdx.x % CLUSTER;
    c.turn = 0;
    c.first = c.rank * kSlice;
    c.n = max(0, min(kSlice, VOCAB - c.first));
    u32 *counts;
    if constexpr (CLUSTER > 1) {
        c.v = (float *)dynamic;
        counts = (u32 *)dynamic + kSlice;
#pragma unroll 2
        for (int i = threadIdx.x; i < c.n; i += THREADS)
            c.v[i] = logits[c.first + i];
    } else {
        c.v = logits;
        counts = p.scratch + (i64)row_index * kCountWords;
    }
    __syncthreads();
#pragma unroll 2
    for (int i = threadIdx.x; i < row.n_bias; i += THREADS) {
        SampleBias b = p.biases[row.bias + i];
        if (b.id >= c.first && b.id < c.first + c.n)
            atomicAdd(&c.v[b.id - c.first], b.bias);
    }
    __syncthreads();
    if constexpr (PENALTIES) {
        bool any = (row.repetition != 1.f && row.repetition > 0.f) || row.presence != 0.f ||
                   row.frequency != 0.f;
        if (any && (row.n_context > 0 || row.pending_slot >= 0))
            penalise(c, p, row, counts);
    }

    u64 bad = 0;
#pragma unroll 2
    for (int i = threadIdx.x; i < c.n; i += THREADS)
        bad |= c.v[i] != c.v[i];
    bad = reduce<true>(c, bad);
    u64 best = best_below(c, ~0ull);
    float top = value_of(best);
    i32 token;
    float log_sum = 0.f;
    bool wants_logprob = (row.n_top >= 0 || row.target >= 0) && !bad;
    if (c.rank == 0 && threadIdx.x < kMaxTop) {
        p.top_id[row_index * kMaxTop + threadIdx.x] = -1;
        p.top_logprob[row_index * kMaxTop + threadIdx.x] = 0.f;
    }
    __syncthreads();
    if (wants_logprob) {
        u64 sum = 0;
#pragma unroll 2
        for (int i = threadIdx.x; i < c.n; i += THREADS)
            sum += (u64)(exp2_fast((c.v[i] - top) * kLog2e) * kUnit);
        log_sum = __logf((float)reduce<false>(c, sum) / kUnit);
        u64 next = best;
#pragma unroll 1
        for (int k = 0; k < row.n_top && k < kMaxTop && next; k++) {
            if (c.rank == 0 && threadIdx.x == 0) {
                p.top_id[row_index * kMaxTop + k] = id_of(next);
                p.top_logprob[row_index * kMaxTop + k] = value_of(next) - top - log_sum;
            }
            if (k + 1 < row.n_top)
                next = best_below(c, next);
        }
    }
    if (bad)
        token = -1;
    else if (row.target >= 0)
        token = row.target;
    else if (row.temperature <= 0.f)
        token = id_of(best);
    else
        token = draw(c, row, top);
    bool owner = token >= c.first && token < c.first + c.n;
    if (threadIdx.x == 0) {
        if (owner || (bad && c.rank == 0))
            p.logprob[row_index] = wants_logprob ? c.v[token - c.first] - top - log_sum : 0.f;
        if (c.rank == 0) {
            p.token[row_index] = token;
            if (row.pool_slot >= 0)
                p.pool[row.pool_slot] = token;
        }
    }
    cluster_sync(); // a CTA's shared memory outlives its peers' reads
}
