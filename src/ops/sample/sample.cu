// Samples the next token of every row of logits without sorting the row. sample.h says in which order bias, penalties,
// temperature, top-k and the others are applied.
//
// logits [rows, VOCAB] fp32. Grid: p.parts CTAs per row.
//
//   chunk   kChunk logits. A thread takes VECTORS float4 of it, THREADS float4 apart: these are its group
//   stream  every CTA applies mask, bias and penalties to the ids of its chunks, reads the chunks once, and writes the
//           largest logit of each group. If the row needs a sum of exponentials (for log-probabilities, for plain
//           temperature, or as the total of which top-p is a share), it also writes the sum of each chunk; each chunk
//           has an exponent of its own
//   finish  the row's last CTA (found by a ticket) has the maximum and the groups' maxima. The k best logits lie in
//           the k groups with the largest maxima. So the CTA loads these few groups again, from L2, compares
//           each candidate with each other and draws. Greedy sampling needs the group of the maximum only, plain
//           temperature one chunk
//
// A nucleus is first looked for in the kTry best groups. Where the few cannot decide (the nucleus of a flat row, top-k
// beyond kNeed, hundreds of equal logits), the same CTA makes passes over the whole row (sample.cuh).
//
// Weights are in fixed point, so sums do not depend on their order; a chunk's exponent depends on its logits alone. So
// the same seed gives the same token whatever else is in the step and however a row is divided among CTAs. Bytes:
// 4 * VOCAB per row. Bound by memory for many rows, by the latency of the finish for few.
// Template: VOCAB, THREADS, BLOCKS (CTAs per SM), VECTORS, ALIGNED (rows are 16-byte vectors).
//
// Tried, us for 1, 32 and 256 rows (one H200, cold L2, vocabulary 151,936, top-k 50 and top-p 0.9):
//   a row in the shared memory of a cluster of eight, radix select, 14 cluster barriers   147, 431, 2540
//   this kernel                                                                           16.9, 25.3, 66.5
//     with sorting networks in the finish, not comparisons; THREADS x VECTORS, BLOCKS = 256 x 8, 3: 23.4, 34.1, 74.9
//       256 x 8, 4   23.4, 35.7, 78.3      512 x 8, 2   21.9, 34.7, 77.7      1024 x 4, 1   30.2, 39.3, 111
//       256 x 4, 4   23.8, 36.6, 86.0      512 x 4, 2   23.0, 36.6, 85.1
//       where that variant's time went: 5.4, 11.7, 50.0 the stream; 1 to 2 the ticket; 1 the maxima; 2 the histogram
//       of groups; 5.4, 7, 8 loading the few from L2; 3.5 sorting them; 5.5, 7, 7 the draw, which sorted again
//       four, eight or sixteen CTAs per SM, if there are enough rows for them: differences below 1 us
// A flat nucleus (temperature 0.6 on random logits) took 507, 664, 747 before its passes became fewer and cheaper; it
// was not measured since. Plain temperature takes 27, 36, 83; greedy 10.5, 18.3, 56.3; five log-probabilities 16.6,
// 25.8, 70.2.

#include "sample.cuh"

constexpr int kMaxTop = 20;
constexpr int kTry = 96;   // the number of groups in which a nucleus is looked for first
constexpr int kNeed = 512; // the largest top-k that is drawn from the few
constexpr float kLeast = -3.4028234e38f; // the smallest logit that is not masked

INLINE float scale_of(const sample_row &row) { return min(kLog2e / row.temperature, 1e30f); }

// True where a row needs the sum of all its weights: at temperature 1, for log-probabilities (which = 0); at its own
// temperature, for drawing from the whole row and for top-p (which = 1).
INLINE bool wants_mass(const sample_row &row, int which)
{
    bool sampled = row.target < 0 && row.temperature > 0.f;
    bool few = (row.top_k > 0 && row.top_k < VOCAB) || (row.top_p >= 1.f && row.min_p > 0.f);
    return which == 0 ? row.n_top >= 0 || row.target >= 0 : sampled && !few;
}

// ---- the stream ----

// Applies mask, bias and penalties to the logits of a chunk, in place.
__noinline__ static void adjust(const sample_params &p, const sample_row &row, float *x, i32 chunk)
{
    Shared *s = &shared();
    i32 first = chunk * kChunk, n = min(kChunk, VOCAB - first);
    x += first;
    if (row.mask >= 0) { // the lanes of a warp share one word of the mask
        const u32 *mask = p.masks + row.mask + first / 32;
#pragma unroll 4
        for (int i = threadIdx.x; i < n; i += THREADS)
            if (!(mask[i / 32] >> i % 32 & 1))
                x[i] = -kInfinity;
        __syncthreads();
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < row.n_bias; i += THREADS) {
        sample_bias b = p.biases[row.bias + i];
        if ((u32)(b.id - first) < (u32)n)
            atomicAdd(&x[b.id - first], b.bias);
    }
    __syncthreads();
    bool repetition = row.repetition != 1.f && row.repetition > 0.f;
    i32 pending = row.pending_slot >= 0 ? p.pool[row.pending_slot] : -1;
    i32 n_context = row.n_context + (pending >= 0);
    if ((!repetition && row.presence == 0.f && row.frequency == 0.f) || n_context == 0)
        return;
#pragma unroll 1
    for (int i = threadIdx.x; i < kChunk; i += THREADS)
        s->count[i] = 0;
#pragma unroll 1
    for (int i = threadIdx.x; i < kChunk / 32; i += THREADS)
        s->seen[i] = 0;
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < n_context; i += THREADS) {
        u32 id = (u32)((i < row.n_context ? p.contexts[row.context + i] : pending) - first);
        if (id >= (u32)n)
            continue;
        if (i < row.n_prompt)
            atomicOr(&s->seen[id / 32], 1u << id % 32);
        else
            atomicAdd(&s->count[id], 1u);
    }
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += THREADS) {
        u32 count = s->count[i];
        bool prompt = s->seen[i / 32] >> i % 32 & 1;
        if (!count && !prompt)
            continue;
        float l = __ldcg(&x[i]);
        if (repetition)
            l = l > 0.f ? l / row.repetition : l * row.repetition;
        if (count)
            l -= row.presence + row.frequency * (float)count;
        x[i] = l;
    }
    __syncthreads();
}

INLINE float largest(const Group &g)
{
    float m[4] = {g.v[0].x, g.v[0].y, g.v[0].z, g.v[0].w};
#pragma unroll
    for (int j = 1; j < VECTORS; j++) {
        m[0] = max_nan(m[0], g.v[j].x);
        m[1] = max_nan(m[1], g.v[j].y);
        m[2] = max_nan(m[2], g.v[j].z);
        m[3] = max_nan(m[3], g.v[j].w);
    }
    return max_nan(max_nan(m[0], m[1]), max_nan(m[2], m[3]));
}

// The weight of a chunk, and its exponent, which depends on the chunk's logits alone. `best` is the maximum of this
// thread's group.
INLINE sample_chunk_mass weigh_chunk(float scale, float best, const Group &g)
{
    Shared *s = &shared();
    i32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int d = 16; d; d >>= 1)
        best = max(best, __shfl_xor_sync(~0u, best, d));
    if (lane == 0)
        s->top[warp] = best;
    __syncthreads();
    best = s->top[0];
#pragma unroll
    for (int w = 1; w < kWarps; w++)
        best = max(best, s->top[w]);
    Mass m = mass_below(scale, best);
    u32 highs = 0, lows = 0;
#pragma unroll
    for (int j = 0; j < VECTORS; j++)
        each_of(g.v[j], 0, [&](float x, i32) { add_mass(m, x, highs, lows); });
    u64 sum = joined(highs, lows);
#pragma unroll
    for (int d = 16; d; d >>= 1)
        sum += __shfl_xor_sync(~0u, sum, d);
    if (lane == 0)
        s->part[warp] = sum;
    __syncthreads();
    sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; w++)
        sum += s->part[w];
    return {sum, m.exponent, 0.f};
}

INLINE void stream(const sample_params &p, const sample_row &row, float *x,
                   float *group_max, sample_chunk_mass *mass, i32 part)
{
#pragma unroll 1
    for (i32 chunk = part; chunk < kChunks; chunk += p.parts) {
        LOADS_ARE_DISCARDED(row.n_bias > 0 || row.n_context > 0 || row.pending_slot >= 0 || row.mask >= 0);
        Group g = load_group(x, chunk);
        LOADS_ARE_DISCARDED(false);
        if (row.n_bias > 0 || row.n_context > 0 || row.pending_slot >= 0 || row.mask >= 0) {
            adjust(p, row, x, chunk);
            g = load_group(x, chunk);
        }
        float best = largest(g);
        group_max[chunk * THREADS + threadIdx.x] = best;
#pragma unroll 1
        for (int which = 0; which < 2; which++)
            if (wants_mass(row, which)) {
                sample_chunk_mass m = weigh_chunk(which ? scale_of(row) : kLog2e, best, g);
                if (threadIdx.x == 0)
                    mass[chunk * 2 + which] = m;
            }
    }
}

// ---- the few ----

// The bin of a distance from the maximum: 64 bins per octave from 2^-8 to 2^8.
INLINE i32 bin_of(float distance)
{
    i32 b = (i32)(__float_as_uint(distance) >> 17) - ((127 - 8) << 6);
    return min(max(b, 0), kBins - 1);
}

// Gathers at least the `need` best logits and all logits from `low` on, and returns their number. *whole says whether
// all of these found room. Logits below `least` may be left out even if they are among the best.
__noinline__ static i32 best_logits(i32 need, float low, float least, bool *whole)
{
    Shared *s = &shared();
    float top = s->row.top;
    if (need > 0) {
#pragma unroll
        for (int i = threadIdx.x; i < kBins; i += THREADS)
            s->histogram[kCount + i] = 0;
        __syncthreads();
#pragma unroll 4
        for (i32 chunk = 0; chunk < kChunks; chunk++)
            atomicAdd(&s->histogram[kCount + bin_of(top - groups()[chunk * THREADS + threadIdx.x])], 1u);
        __syncthreads();
        find_bin(0, need, true);
        // the end of the bin, less two roundings
        float edge = __uint_as_float((u32)(s->bin + 1 + ((127 - 8) << 6)) << 17);
        float from = s->bin == kBins - 1 ? -kInfinity : top - edge - (fabsf(top) + edge) * 2.4e-7f;
        low = min(low, max(from, least));
        __syncthreads();
    }
    Code none = {};
    i32 n = gather({{low, VOCAB - 1}, 0, 0, 0, 0}, none);
    *whole = n <= kMost;
    if (n > kMost && need > 0)
        n = gather({select({{0.f, 0.f, 0.f}, whole_row(), 0, false}, need, true), 0, 0, 0, 0}, none);
    return n;
}

// ---- the draw ----

// The top 24 bits of the first word of Philox 4x32-10 (Salmon et al., 2011), like sample_uniform() on the CPU.
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
INLINE u64 draw_at(u64 total)
{
    u64 u = shared().uniform;
    return (total >> 24) * u + ((total & 0xffffff) * u >> 24);
}
INLINE u64 share_of(u64 total, float p)
{
    u64 want = (u64)((double)total * (double)p);
    return want > 0 ? want : 1;
}
INLINE u64 least_of(const sample_row &row, const Mass &m, float top) // p_i >= min_p * p_max
{
    return row.min_p > 0.f ? (u64)((double)mass_of(m, top) * (double)min(row.min_p, 1.f)) : 0;
}

// Draws from the n candidates. top-p is a share of `total`, or of the candidates' weight if `total` is 0. Returns -1
// if the candidates do not reach that share.
__noinline__ static i32 draw_few(const sample_row &row, const Mass &m, i32 n, i32 top_k, u64 total)
{
    Shared *s = &shared();
    i32 kept = top_k > 0 ? min(top_k, n) : n;
    u64 least = least_of(row, m, s->row.top), want = ~0ull;
#pragma unroll 1
    for (i32 i = threadIdx.x; i < n; i += THREADS)
        if (s->rank[i] == kept - 1)
            s->sum = s->above[i] + s->few[i].weight;
    __syncthreads();
    if (row.top_p < 1.f) {
        want = share_of(total ? total : s->sum, row.top_p);
        if (want > s->sum)
            return -1;
    }
#pragma unroll 1
    for (i32 i = threadIdx.x; i < n; i += THREADS)
        if (s->rank[i] >= kept || s->above[i] >= want || s->few[i].weight < least)
            s->few[i].weight = 0;
    __syncthreads();
#pragma unroll 1
    for (i32 i = threadIdx.x; i < n; i += THREADS) { // running sums in rising order of ids
        Few mine = s->few[i];
        if (mine.weight == 0)
            continue;
        u64 before = 0, all = 0;
#pragma unroll 4
        for (i32 j = 0; j < n; j++) {
            Few other = s->few[j];
            all += other.weight;
            before += (u32)other.ranked > (u32)mine.ranked ? other.weight : 0;
        }
        u64 at = draw_at(all);
        if (before <= at && at < before + mine.weight)
            s->id = id_of(mine.ranked);
    }
    __syncthreads();
    return s->id;
}

// Draws from the whole row. This works for every row, but needs passes over it.
__noinline__ static i32 draw_many(const sample_row &row, const Mass &m, i32 top_k)
{
    Weights w = {m, whole_row(), 0, false};
    if (top_k > 0)
        w.from = select(w, top_k, true);
    if (row.top_p < 1.f) {
        u64 total = top_k > 0 ? weigh_row(w) : weigh_all(1, m);
        w.from = select(w, share_of(total, row.top_p), false);
    }
    w.least = least_of(row, m, shared().row.top);
    bool all = wants_mass(row, 1) && row.top_p >= 1.f && m.base == 0.f;
    u64 total = all ? weigh_chunks(1, m.exponent) : weigh_row(w);
    return locate(w, draw_at(total), all);
}

INLINE i32 first_of_top()
{
    Shared *s = &shared();
    const Row c = s->row;
    if (threadIdx.x == 0)
        s->id = VOCAB;
    __syncthreads();
#pragma unroll 1
    for (i32 chunk = 0; chunk < kChunks; chunk++)
        if (groups()[chunk * THREADS + threadIdx.x] == c.top) {
            Group g = load_group(c.x, chunk);
            i32 first = VOCAB;
#pragma unroll
            for (int j = VECTORS - 1; j >= 0; j--) {
                i32 id = group_id(chunk, j);
                const float4 &v = g.v[j];
                first = v.x == c.top   ? id
                        : v.y == c.top ? id + 1
                        : v.z == c.top ? id + 2
                        : v.w == c.top ? id + 3
                                       : first;
            }
            atomicMin(&s->id, first);
        }
    __syncthreads();
    return s->id;
}

// Copies the groups' maxima to shared memory and returns the largest, or NaN if any of them is NaN.
INLINE float row_max(const float *group_max)
{
    Shared *s = &shared();
    float m = -kInfinity;
#pragma unroll 10
    for (i32 chunk = 0; chunk < kChunks; chunk++) {
        i32 i = chunk * THREADS + threadIdx.x;
        float v = __ldcg(group_max + i);
        groups()[i] = v;
        m = max_nan(m, v);
    }
#pragma unroll
    for (int d = 16; d; d >>= 1)
        m = max_nan(m, __shfl_xor_sync(~0u, m, d));
    if (threadIdx.x % 32 == 0)
        s->top[threadIdx.x / 32] = m;
    __syncthreads();
    m = s->top[0];
#pragma unroll
    for (int w = 1; w < kWarps; w++)
        m = max_nan(m, s->top[w]);
    return m;
}

// log(sum of exp(x - top))
INLINE float log_sum_of(float top)
{
    Mass m = mass_of_row(kLog2e, top);
    return (__log2f((float)weigh_all(0, m) / kUnits) +
            fmaf(m.base - top, kLog2e, m.exponent)) /
           kLog2e;
}

// Gathers the candidates that the row's settings need, and compares them by the row's weights. `n` is their number,
// `draws` says whether the token can be drawn from them.
struct Chosen {
    i32 n;
    bool draws;
};
INLINE Chosen choose_few(const sample_row &row, const Mass &m, bool sampled, i32 top_k, i32 n_top)
{
    float top = shared().row.top, low = kInfinity, least = kLeast;
    bool nucleus = row.top_p < 1.f, cold = m.base != 0.f, whole = true;
    i32 need = n_top;
    bool draws = false;
    if (sampled && top_k > 0 ? top_k <= kNeed : sampled && nucleus && !cold) {
        need = max(n_top, top_k > 0 ? top_k : min(kTry, VOCAB));
        draws = true;
        if (n_top == 0) // logits farther from the maximum have weight 0
            least = max(least, top - 28.f * row.temperature);
    } else if (sampled && top_k == 0 && !nucleus && !cold) {
        u64 weight = least_of(row, m, top);
        draws = weight > 0;
        if (draws) // every logit that min-p may keep
            low = top - __log2f((float)mass_of(m, top) / ((float)weight - 0.5f)) / m.scale * 1.001f -
                  fabsf(top) * 2.4e-7f - 1e-6f / m.scale;
    }
    if (need == 0 && !draws)
        return {0, false};
    i32 n = best_logits(need, low, least, &whole);
    if (n > kMost)
        return {0, false};
    compare(n, m, !sampled);
    return {n, draws && (need > n_top || top_k > 0 || whole)};
}

__noinline__ static void finish(const sample_params &p, const sample_row &row, i32 row_index)
{
    Shared *s = &shared();
    float top = s->row.top;
    bool good = __float_as_uint(top) << 1 < 0xff000000u; // neither NaN nor infinite
    bool sampled = good && row.target < 0 && row.temperature > 0.f;
    i32 n_top = good ? min(max(row.n_top, 0), min(kMaxTop, VOCAB)) : 0, token = -1;
    if (good && wants_mass(row, 0)) {
        float log_sum = log_sum_of(top);
        if (threadIdx.x == 0)
            s->log_sum = log_sum;
    }
    if (sampled && threadIdx.x == THREADS - 1)
        s->uniform = philox24(row.seed, row.position);
    __syncthreads();
    i32 top_k = sampled && row.top_k > 0 && row.top_k < VOCAB ? row.top_k : 0;
    Mass m = {0.f, 0.f, 0.f};
    if (sampled)
        m = mass_of_row(scale_of(row), top);
    Chosen few = choose_few(row, m, sampled, top_k, n_top);
    n_top = min(n_top, few.n);
    i32 *top_id = p.top_id + row_index * kMaxTop;
    float *top_logprob = p.top_logprob + row_index * kMaxTop;
    if (threadIdx.x >= n_top && threadIdx.x < kMaxTop) {
        top_id[threadIdx.x] = -1;
        top_logprob[threadIdx.x] = 0.f;
    }
#pragma unroll 1
    for (i32 i = threadIdx.x; n_top > 0 && i < few.n; i += THREADS)
        if (s->rank[i] < n_top) {
            u64 r = s->few[i].ranked;
            top_id[s->rank[i]] = id_of(r);
            top_logprob[s->rank[i]] = value_of((u32)(r >> 32)) - top - s->log_sum;
        }
    if (few.draws)
        token = draw_few(row, m, few.n, top_k, top_k > 0 || row.top_p >= 1.f ? 0 : weigh_chunks(1, m.exponent));
    if (sampled && token < 0) {
        __syncthreads(); // all threads have read the candidates, which are no longer needed
        token = draw_many(row, m, top_k);
    } else if (good && !sampled)
        token = row.target < 0 ? first_of_top() : row.target < VOCAB ? row.target : -1;
    if (threadIdx.x > 0)
        return;
    p.token[row_index] = token;
    p.logprob[row_index] =
        token >= 0 && wants_mass(row, 0) ? __ldcg(s->row.x + token) - top - s->log_sum : 0.f;
    if (row.pool_slot >= 0)
        p.pool[row.pool_slot] = max(token, 0); // a step already in flight may embed this token
}

KERNEL __launch_bounds__(THREADS, BLOCKS) sample(const __grid_constant__ sample_params p)
{
    pdl_go();
    pdl_wait();
    i32 row_index = blockIdx.x / p.parts, part = blockIdx.x % p.parts;
    const sample_row &row = p.rows[row_index];
    float *x = p.logits + (i64)row_index * p.logits_stride,
          *group_max = p.group_max + (i64)row_index * kGroups;
    sample_chunk_mass *mass = p.mass + (i64)row_index * kChunks * 2;
    stream(p, row, x, group_max, mass, part);
    if (!last_of(&p.tickets[row_index], p.parts))
        return;
    float top = row_max(group_max);
    if (threadIdx.x == 0)
        shared().row = {x, mass, top};
    __syncthreads();
    finish(p, row, row_index);
}
