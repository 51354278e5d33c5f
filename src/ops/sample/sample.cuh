// The data that the kernel of sample.cu keeps about a row of logits, and its passes over the row.
// Needs VOCAB, THREADS, VECTORS, ALIGNED.
//
//   Mass, mass_of       the weight of an id, in fixed point: sums do not depend on their order
//   weigh_row, locate   the weight of the row; the id at which the running sum passes a number
//   gather, compare     copies a few logits ("the few") to shared memory; ranks them
//   select              finds the place in the row's order at which a count or a weight is reached
#include "sample_params.h"

constexpr int kWarps = THREADS / 32;
constexpr int kChunk = THREADS * VECTORS * 4, kChunks = (VOCAB + kChunk - 1) / kChunk, kGroups = kChunks * THREADS;
constexpr int kMost = 1024; // the most candidates that shared memory holds
constexpr int kBins = 1024;
constexpr float kUnits = 549755813888.f; // 2^39
static_assert(kBins % THREADS == 0, "threads share the bins equally");
static_assert(VOCAB <= 400000, "a bin's piece of a weight must not overflow");

struct Row {
    const float *x;
    const sample_chunk_mass *mass;
    float top; // the largest logit
};
struct Few { // a candidate
    u64 ranked, weight;
};

// Offsets of a histogram's parts: the weights in pieces of 13 bits, and the number of ids.
enum Piece { kLowBits = 0, kMiddleBits = kBins, kHighBits = 2 * kBins, kCount = 3 * kBins };
struct Shared {
    union {
        struct {
            __align__(16) Few few[kMost];
            union {
                u32 histogram[4 * kBins]; // shared memory adds 32 bits natively
                struct {
                    u64 above[kMost]; // for each candidate: the weight of the better ones
                    u32 rank[kMost];  // and their number
                    u32 listed[kMost]; // groups to look into
                };
            };
        };
        struct { // used earlier, for one chunk
            u32 count[kChunk]; // how often each id occurs in the output
            u32 seen[kChunk / 32]; // whether it occurs in the prompt, a bit per id
        };
    };
    u64 chunk_mass[kChunks], part[kWarps], sum, found;
    float top[kWarps], log_sum;
    i32 n, n_listed, bin, id;
    u32 uniform;
    Row row;
};

// All functions use this one block. Calls need not pass it, and its addresses are constants.
INLINE Shared &shared()
{
    __shared__ Shared s;
    return s;
}
INLINE float *groups() // [kGroups] the groups' maxima; only the thread of a group uses its entry
{
    extern __shared__ __align__(16) float group[];
    return group;
}

// ---- logits ----

INLINE u32 key_of(float f) // keys rise with the value; 0 and -0 have the same key
{
    u32 u = __float_as_uint(f + 0.f);
    return u ^ (u >> 31 ? 0xffffffffu : 0x80000000u);
}
INLINE u64 ranked(float f, i32 id) { return (u64)key_of(f) << 32 | ~(u32)id; }
INLINE float value_of(u32 key)
{
    return __uint_as_float(key >> 31 ? key ^ 0x80000000u : ~key);
}
INLINE i32 id_of(u64 ranked) { return (i32)~(u32)ranked; }

// NaN if an operand is NaN.
INLINE float max_nan(float a, float b)
{
    float m;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(a), "f"(b));
    return m;
}

// Logits are read once or twice, and this kernel may have changed them, so they are cached in L2 only. The load is
// volatile, so that it is issued before the kernel knows whether it must be repeated (stream).
INLINE float4 load_logits(const float *p)
{
    float4 v;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(p));
    return v;
}

// Loads the logits of ids at .. at + 3; -infinity beyond the vocabulary.
INLINE float4 load4(const float *x, i32 at)
{
    float4 v = make_float4(-kInfinity, -kInfinity, -kInfinity, -kInfinity);
    if constexpr (ALIGNED)
        return at < VOCAB ? load_logits(x + at) : v;
    if (at < VOCAB)
        v.x = __ldcg(x + at);
    if (at + 1 < VOCAB)
        v.y = __ldcg(x + at + 1);
    if (at + 2 < VOCAB)
        v.z = __ldcg(x + at + 2);
    if (at + 3 < VOCAB)
        v.w = __ldcg(x + at + 3);
    return v;
}

struct Group {
    float4 v[VECTORS];
};
INLINE i32 group_id(i32 chunk, i32 j) { return chunk * kChunk + (j * THREADS + threadIdx.x) * 4; }
INLINE Group load_group(const float *x, i32 chunk)
{
    Group g;
#pragma unroll
    for (int j = 0; j < VECTORS; j++)
        g.v[j] = load4(x, group_id(chunk, j));
    return g;
}

// Calls f(value, id) for four logits.
template <class F> INLINE void each_of(const float4 &v, i32 id, F f)
{
    f(v.x, id);
    f(v.y, id + 1);
    f(v.z, id + 2);
    f(v.w, id + 3);
}
INLINE float largest(const float4 &v) { return max(max(v.x, v.y), max(v.z, v.w)); }
INLINE float smallest(const float4 &v) { return min(min(v.x, v.y), min(v.z, v.w)); }

// ---- weights ----

// The weight of a logit x is exp2((x - base) scale - exponent) in units of 2^-39, rounded to nearest. It is made of
// two integers: the high part in units of 2^-17, and the rest, which is exact, in units of 2^-39. Adding a float whose
// last bit has the size of the unit rounds to that unit. Sums of up to 500 of each part fit.
// Usually the base is 0, and the exponent is the largest x times scale, rounded up to an integer. In cold rows (see
// mass_of_row) the base is the largest x and the exponent is 0.
struct Mass {
    float scale, base, exponent;
};
constexpr float kHigh = 96.f, kLow = 1.5f / 65536.f;
INLINE void add_mass(const Mass &m, float x, u32 &highs, u32 &lows)
{
    float e = exp2_fast(fmaf(x - m.base, m.scale, -m.exponent)), h = e + kHigh, l = e - (h - kHigh) + kLow;
    highs += __float_as_uint(h) - __float_as_uint(kHigh);
    lows += __float_as_uint(l) - __float_as_uint(kLow);
}
INLINE u64 joined(u32 highs, u32 lows) { return ((u64)highs << 22) + (u64)(i64)(i32)lows; }
INLINE u64 mass_of(const Mass &m, float x)
{
    u32 high = 0, low = 0;
    add_mass(m, x, high, low);
    return joined(high, low);
}
INLINE Mass mass_below(float scale, float top)
{
    return {scale, 0.f, top == -kInfinity ? 0.f : ceilf(top * scale)};
}
// A row is cold if its temperature is so low that x times scale has no fraction left in fp32.
INLINE Mass mass_of_row(float scale, float top)
{
    if (fabsf(top) * scale < 4194304.f)
        return mass_below(scale, top);
    return {scale, top, 0.f};
}
// ---- sums ----

// Sums of a value over the threads of the CTA: over those with a lower index than this one, and over all.
struct Sums {
    u64 below, all;
};
__noinline__ static Sums sum_below(u64 mine)
{
    Shared *s = &shared();
    i32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 running = mine;
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        u64 left = __shfl_up_sync(~0u, running, d);
        running += lane >= d ? left : 0;
    }
    if (lane == 31)
        s->part[warp] = running;
    __syncthreads();
    u64 before = 0, total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; w++) {
        before += w < warp ? s->part[w] : 0;
        total += s->part[w];
    }
    __syncthreads();
    return {before + running - mine, total};
}

// ---- passes over the row ----

struct Place { // a place in the order of the row: larger logits first, then lower ids
    float value;
    i32 id;
};
INLINE bool reaches(float x, i32 id, const Place &p)
{
    return x > p.value || (x == p.value && id <= p.id);
}
INLINE Place place_of(u64 ranked) { return {value_of((u32)(ranked >> 32)), id_of(ranked)}; }
INLINE Place whole_row() { return {-kInfinity, VOCAB - 1}; }

// How ids are weighed in one pass.
struct Weights {
    Mass mass;
    Place from; // ids after this place weigh 0
    u64 least;  // smaller weights count as 0
    bool tie;   // logits equal to that of `from` weigh 1, all others 0
};
INLINE u64 weigh(const Weights &w, float x, i32 id)
{
    if (w.tie)
        return x == w.from.value && id < VOCAB;
    u64 mass = reaches(x, id, w.from) ? mass_of(w.mass, x) : 0;
    return mass >= w.least ? mass : 0;
}

// Returns the sum of the weights that the stream found, in units of 2^(exponent - 39), and sets s->chunk_mass to the
// weight of each chunk.
__noinline__ static u64 weigh_chunks(int which, float exponent)
{
    Shared *s = &shared();
    const Row c = s->row;
#pragma unroll 1
    for (int i = threadIdx.x; i < kChunks; i += THREADS) {
        float by = exponent - __ldcg(&c.mass[i * 2 + which].exponent);
        s->chunk_mass[i] = by < 63.f ? __ldcg(&c.mass[i * 2 + which].sum) >> (i32)by : 0;
    }
    __syncthreads();
    u64 total = 0;
#pragma unroll 4
    for (int i = 0; i < kChunks; i++)
        total += s->chunk_mass[i];
    return total;
}

// The same for any weights, by a pass over the row.
__noinline__ static u64 weigh_row(const Weights &w)
{
    Shared *s = &shared();
    const Row c = s->row;
    u64 total = 0;
#pragma unroll 1
    for (i32 chunk = 0; chunk < kChunks; chunk++) {
        u32 highs = 0, lows = 0;
#pragma unroll 4
        for (int j = 0; j < VECTORS; j++)
            each_of(load4(c.x, group_id(chunk, j)), group_id(chunk, j), [&](float x, i32 id) {
                u32 high = 0, low = w.tie;
                if (!w.tie)
                    add_mass(w.mass, x, high, low);
                bool in = w.tie ? x == w.from.value && id < VOCAB : reaches(x, id, w.from);
                if (w.least > 0)
                    in = in && joined(high, low) >= w.least;
                highs += in ? high : 0;
                lows += in ? low : 0;
            });
        u64 sum = joined(highs, lows);
        u64 all = sum_below(sum).all;
        if (threadIdx.x == 0)
            s->chunk_mass[chunk] = all;
        total += all;
    }
    __syncthreads();
    return total;
}

// The weight of the whole row.
INLINE u64 weigh_all(int which, const Mass &m)
{
    return m.base == 0.f ? weigh_chunks(which, m.exponent)
                         : weigh_row({m, whole_row(), 0, false});
}

// The first id at which the running sum of weights, in rising order of ids, exceeds `at`, which is smaller than the
// total. s->chunk_mass must hold the same weights. `own`: each chunk has an exponent of its own.
__noinline__ static i32 locate(Weights w, u64 at, bool own)
{
    Shared *s = &shared();
    const Row c = s->row;
    i32 chunk = 0;
    while (chunk < kChunks - 1 && at >= s->chunk_mass[chunk])
        at -= s->chunk_mass[chunk++];
    if (own) {
        float exponent = __ldcg(&c.mass[chunk * 2 + 1].exponent);
        at <<= (i32)(w.mass.exponent - exponent);
        w.mass.exponent = exponent;
    }
    if (threadIdx.x == 0)
        s->id = 0;
    i32 first = chunk * kChunk + threadIdx.x * VECTORS * 4;
    u64 mine = 0;
#pragma unroll 2
    for (int j = 0; j < VECTORS; j++)
        each_of(load4(c.x, first + j * 4), first + j * 4,
                [&](float x, i32 id) { mine += weigh(w, x, id); });
    u64 before = sum_below(mine).below;
    if (before <= at && at < before + mine)
#pragma unroll 1
        for (i32 id = first; id < min(first + VECTORS * 4, VOCAB); id++) {
            before += weigh(w, __ldcg(c.x + id), id);
            if (before > at) {
                s->id = id;
                break;
            }
        }
    __syncthreads();
    return s->id;
}

// ---- the few ----

// Selects the logits that reach a place and whose code (below) and key begin with these bits.
struct Range {
    Place from;
    u32 code_mask, code, key_mask, key;
};

// A logit's code has 20 bits and rises with its distance from the largest logit. It is made of the logarithm of the
// weight, or, if all ids count the same (`ones`), of the upper bits of the distance itself, as a float from 2^-8 to
// 2^8: 4 bits of exponent, 16 of mantissa. Its upper 10 bits then are bins, 64 per octave.
struct Code {
    Mass mass;
    float top;
    bool ones;
};
INLINE u32 code_of(const Code &c, float x)
{
    if (c.ones) {
        i32 d = (i32)__float_as_uint(c.top - x) - ((127 - 8) << 23);
        return min(max(d, 0) >> 7, (1 << 20) - 1);
    }
    float y = fmaf(x - c.mass.base, c.mass.scale, -c.mass.exponent) * -26214.4f; // 2^20 / 40
    return y < 1048575.f ? __float2uint_rz(y) : 1048575u;
}
INLINE bool within(const Code &c, const Range &r, float x, i32 id)
{
    return reaches(x, id, r.from) && (!r.code_mask || (code_of(c, x) & r.code_mask) == r.code) &&
           (key_of(x) & r.key_mask) == r.key;
}

// Returns true if any of the four may be within the range. Codes rise as logits fall.
INLINE bool may_be_within(const Code &c, const Range &r, const float4 &v)
{
    float best = largest(v);
    if (!r.code_mask)
        return best >= r.from.value;
    return best >= r.from.value && (code_of(c, best) & r.code_mask) <= r.code &&
           (code_of(c, smallest(v)) & r.code_mask) >= r.code;
}

// Copies the range's logits to s->few, in no order, and returns how many there are. If that is more than kMost, some
// are missing in s->few. The groups that may hold some are listed first, so that the loads from L2 are issued together.
__noinline__ static i32 gather(const Range &r, const Code &c)
{
    Shared *s = &shared();
    const float *x = s->row.x;
    if (threadIdx.x == 0)
        s->n = s->n_listed = 0;
    __syncthreads();
#pragma unroll 1
    for (i32 base = 0; base < kChunks; base += 32) {
        u32 hits = 0;
#pragma unroll 8
        for (i32 k = 0; k < 32 && base + k < kChunks; k++)
            hits |= (u32)(groups()[(base + k) * THREADS + threadIdx.x] >= r.from.value) << k;
        for (; hits; hits &= hits - 1) {
            i32 group = (base + __ffs(hits) - 1) * THREADS + threadIdx.x;
            if (r.code_mask && (code_of(c, groups()[group]) & r.code_mask) > r.code)
                continue;
            i32 at = atomicAdd(&s->n_listed, 1);
            if (at < kMost)
                s->listed[at] = group;
        }
    }
    __syncthreads();
    bool listed = s->n_listed <= kMost; // if not, the whole row is searched
    i32 loads = listed ? s->n_listed * VECTORS : (VOCAB + 3) / 4;
    auto id_at = [&](i32 i) {
        u32 group = listed ? s->listed[i / VECTORS] : 0;
        return listed ? (i32)(group / THREADS * kChunk + (i % VECTORS * THREADS + group % THREADS) * 4) : i * 4;
    };
    float4 ahead = make_float4(0.f, 0.f, 0.f, 0.f);
    if (threadIdx.x < loads)
        ahead = load4(x, id_at(threadIdx.x));
#pragma unroll 1
    for (i32 i = threadIdx.x; i < loads; i += THREADS) {
        i32 id = id_at(i);
        float4 v = ahead;
        if (i + THREADS < loads)
            ahead = load4(x, id_at(i + THREADS));
        if (!may_be_within(c, r, v))
            continue;
#pragma unroll 1
        for (int k = 0; k < 4; k++) {
            float l = k < 2 ? k ? v.y : v.x : k == 2 ? v.z : v.w;
            if (!within(c, r, l, id + k))
                continue;
            i32 at = atomicAdd(&s->n, 1);
            if (at < kMost)
                s->few[at].ranked = ranked(l, id + k);
        }
    }
    __syncthreads();
    return s->n;
}

// Computes for each of the n candidates its weight (with `ones`: 1), and the number and the weight of the better ones.
__noinline__ static void compare(i32 n, const Mass &m, bool ones)
{
    Shared *s = &shared();
#pragma unroll 1
    for (i32 i = threadIdx.x; i < n; i += THREADS)
        s->few[i].weight = ones ? 1 : mass_of(m, value_of((u32)(s->few[i].ranked >> 32)));
    __syncthreads();
#pragma unroll 1
    for (i32 i = threadIdx.x; i < n; i += THREADS) {
        u64 mine = s->few[i].ranked, above = 0;
        u32 rank = 0;
#pragma unroll 4
        for (i32 j = 0; j < n; j++) {
            Few other = s->few[j];
            bool better = other.ranked > mine;
            above += better ? other.weight : 0;
            rank += better;
        }
        s->above[i] = above;
        s->rank[i] = rank;
    }
    __syncthreads();
}

// ---- selection ----

// Finds the first bin at which the running sum, which starts at `above`, reaches `rank` (the last bin if none does).
// Sets s->bin to the bin, s->sum to the sum before it, and s->n to the number of logits in it.
__noinline__ static void find_bin(u64 above, u64 rank, bool ones)
{
    constexpr int kEach = kBins / THREADS;
    Shared *s = &shared();
    u64 weight[kEach], mine = 0;
#pragma unroll
    for (int i = 0; i < kEach; i++) {
        i32 bin = threadIdx.x * kEach + i;
        weight[i] = ones ? s->histogram[kCount + bin]
                         : s->histogram[kLowBits + bin] + ((u64)s->histogram[kMiddleBits + bin] << 13) +
                               ((u64)s->histogram[kHighBits + bin] << 26);
        mine += weight[i];
    }
    u64 before = above + sum_below(mine).below;
#pragma unroll
    for (int i = 0; i < kEach; i++) {
        i32 bin = threadIdx.x * kEach + i;
        bool last = bin == kBins - 1 && before + weight[i] < rank;
        if ((before < rank && before + weight[i] >= rank) || last) {
            s->bin = bin;
            s->sum = before;
            s->n = (i32)s->histogram[kCount + bin];
        }
        before += weight[i];
    }
    __syncthreads();
}

// One pass of select: makes the histogram of the range's logits over 10 bits of the code (passes 0 and 1) or over 8
// bits of the key (passes 2 to 5).
INLINE void count_bins(const Weights &w, const Code &c, const Range &r, int pass)
{
    constexpr int kAhead = 4;
    Shared *s = &shared();
    const float *x = s->row.x;
#pragma unroll 4
    for (int i = threadIdx.x; i < 4 * kBins; i += THREADS)
        s->histogram[i] = 0;
    __syncthreads();
    int shift = pass == 0 ? 10 : pass == 1 ? 0 : 24 - 8 * (pass - 2);
    float4 ahead[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; j++)
        ahead[j] = load4(x, (threadIdx.x + j * THREADS) * 4);
#pragma unroll 1
    for (i32 at = threadIdx.x * 4; at < VOCAB; at += THREADS * 4) {
        float4 v = ahead[0];
#pragma unroll
        for (int j = 1; j < kAhead; j++)
            ahead[j - 1] = ahead[j];
        ahead[kAhead - 1] = load4(x, at + kAhead * THREADS * 4);
        if (!may_be_within(c, r, v))
            continue;
        const float l[4] = {v.x, v.y, v.z, v.w};
        u32 bin[4], high[4], low[4];
        bool in[4];
#pragma unroll
        for (int k = 0; k < 4; k++) { // without branches, four at a time
            u32 code = code_of(c, l[k]), key = key_of(l[k]);
            in[k] = reaches(l[k], at + k, w.from) && (code & r.code_mask) == r.code && (key & r.key_mask) == r.key;
            bin[k] = pass > 1 ? 255 - (key >> shift & 255) : code >> shift & 1023;
            high[k] = low[k] = 0;
            add_mass(w.mass, l[k], high[k], low[k]);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (!in[k])
                continue;
            atomicAdd(&s->histogram[kCount + bin[k]], 1u);
            if (c.ones)
                continue;
            u64 mass = joined(high[k], low[k]);
            atomicAdd(&s->histogram[kLowBits + bin[k]], (u32)mass & 0x1fff);
            atomicAdd(&s->histogram[kMiddleBits + bin[k]], (u32)(mass >> 13) & 0x1fff);
            if (mass >> 26)
                atomicAdd(&s->histogram[kHighBits + bin[k]], (u32)(mass >> 26));
        }
    }
    __syncthreads();
}

// Finds the first place in the row's order at which the running sum of weights reaches `rank`. With `ones`, each logit
// that reaches w.from weighs 1. Returns the last place if the sum never reaches `rank`. That can happen because a rank
// is a share of the stream's sums, which are finer than sums of single weights and may be larger.
//
//   1. make a histogram of the range, find the bin in which `rank` is reached, and narrow the range to that bin
//   2. repeat until the bin has at most kMost logits, or all bits are used: then its logits are all equal
//   3. compare the logits of the bin with each other; or count the equal ones by rising ids
__noinline__ static Place select(const Weights &w, u64 rank, bool ones)
{
    Shared *s = &shared();
    Code c = {w.mass, s->row.top, ones};
    Range r = {w.from, 0, 0, 0, 0};
    u64 above = 0;
    if (threadIdx.x == 0)
        s->found = ranked(-kInfinity, VOCAB - 1);
#pragma unroll 1
    for (int pass = 0; pass < 6; pass++) {
        count_bins(w, c, r, pass);
        find_bin(above, rank, ones);
        above = s->sum;
        u32 bin = s->bin;
        i32 n = s->n;
        __syncthreads();
        int shift = pass == 0 ? 10 : pass == 1 ? 0 : 24 - 8 * (pass - 2);
        if (pass < 2) {
            r.code |= bin << shift;
            r.code_mask |= 1023u << shift;
        } else {
            r.key |= (255 - bin) << shift;
            r.key_mask |= 255u << shift;
        }
        if (n <= kMost) // comparing them is faster than another pass
            break;
    }
    i32 n = gather(r, c);
    if (n > kMost) { // all are equal: take the first ones of them
        float value = value_of(r.key);
        u64 each = ones ? 1 : max(mass_of(w.mass, value), 1ull);
        Weights ties = {w.mass, {value, 0}, 0, true};
        u64 wanted = (rank - above + each - 1) / each, there = weigh_row(ties);
        return {value, locate(ties, min(wanted, there) - 1, false)};
    }
    compare(n, w.mass, ones);
#pragma unroll 1
    for (i32 i = threadIdx.x; i < n; i += THREADS) {
        bool last = s->rank[i] == n - 1; // for the case that none reaches `rank`
        u64 before = above + s->above[i], with = before + s->few[i].weight;
        if ((before < rank && with >= rank) || (last && with < rank))
            s->found = s->few[i].ranked;
    }
    __syncthreads();
    return place_of(s->found);
}
