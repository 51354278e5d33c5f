// The gated delta rule of gated_delta.cu, 16 tokens at a time on tensor cores: mma.sync m16n8k16, cp.async.
// (Yang, Kautz and Hatamizadeh, 2024, arXiv:2412.06464, section 3.3.)
//
// x [tokens, q | k | v] bf16, a, b [tokens, V heads] bf16, y [tokens, V heads VDIM] bf16
// Within a block of 16 tokens let G_t be the sum of g up to token t, and S the state before the block. With
//   A[t, i] = beta_t e^(G_t - G_i) k_t.k_i for i < t        P[t, i] = e^(G_t - G_i) q_t.k_i for i <= t
// the rule's d of all tokens, its y and the next state are
//   D = (I + A)^-1 diag(beta) (V - diag(e^G) K S)        Y = diag(e^G) Q S + P D
//   S' = e^(G_15) S + (diag(e^(G_15 - G)) K)^T D
// No exponent is above 0. Products with S are as many whatever the size of a block, and those with A and P grow with
// it, so a block has the 16 tokens that one instruction sums.
//
// Grid: (V heads * VDIM / kCols, sequences), WARPS + BLOCKS warps. Each of the first WARPS keeps 16 columns of S in
// registers from a sequence's first token to its last, transposed, as an mma leaves its sums: S^T [16, KDIM]. So the
// sums of one product are operands of the next one, and warps share K, Q, V and the blocks' matrices alone. The other
// warps work on the next tile of BLOCKS * 16 tokens meanwhile, and load the one behind it by cp.async:
//   apply, block after block   X = S^T K^T, O = S^T Q^T; D^T = (V - X)^T T^T; O += D^T P^T; S^T += D^T K
//   prepare, a warp a block    K K^T, Q K^T, lengths and decays; T = (I + A)^-1 by substitution; P
// Operands are bf16. K and Q are exact in it, because lengths and decays are factors of sums or of the other operand;
// numbers in fp32 (S, V - X, D, T, P) are sums of two bf16, and of the four products the smallest is left out.
// FLOPs: 12 KDIM VDIM a token and V head with S in two parts, 64 KDIM + 192 VDIM within a block; the roof is the
// mma.sync rate. 4,096 tokens of 32 heads of 128 x 128 on an H200: 181 us of 8 sequences, 333 us of one.
// Tokens behind a tile's last are zeros with beta 0 and g 0, which change nothing. Padding sequences: gated_delta.cu.
// Template: KDIM, VDIM, WARPS, BLOCKS, LOG_DECAY, TILED.
#include "gated_delta_params.h"

constexpr int kThreads = 32 * (WARPS + BLOCKS), kLoaders = 32 * BLOCKS, kTile = BLOCKS * 16, kStages = 3;
constexpr int kCols = WARPS * 16, kParts = VDIM / kCols;
constexpr int kSteps = KDIM / 16, kStates = KDIM / 8; // 16 or 8 rows of S each
// Bytes of a token in shared memory. An odd number of 16-byte chunks spreads eight tokens over all banks.
constexpr u32 kRow = KDIM * 2 + 16, kVRow = kCols * 2 + 16, kStage = kTile * (2 * kRow + kVRow);
constexpr float kLeast = -60.f; // of g: below it nothing is left
static_assert(VDIM % kCols == 0 && KDIM % 16 == 0, "all warps have as much");

// A 16 x 16 matrix as two operands b of an mma: lane by lane what it loads, and what the part below bf16 is.
struct Matrix {
    uint4 high[32], low[32];
};
struct Block {
    Matrix inverse, scores;         // T diag(beta) and P
    float in[16], out[16], end[16]; // factors of a token's k S, of its q S, and of its d in S'
    float keep;                     // e^(G_15)
    float pad[3];
};
static_assert(sizeof(Block) % 16 == 0, "blocks are aligned");

// A pair of fp32 as bf16, and what is left of it.
INLINE u32 split(float x, float y, u32 &low)
{
    u32 high = pack_bf16(x, y);
    low = pack_bf16(x - bf16_low(high), y - bf16_high(high));
    return high;
}

// c += x m^T for a block's 16 rows and columns of x, whose parts are operands a.
INLINE void multiply(float (&c)[2][4], const u32 (&high)[4], const u32 (&low)[4], const Matrix &m, u32 lane)
{
    uint4 h = m.high[lane], l = m.low[lane];
    mma_bf16(c[0], high[0], high[1], high[2], high[3], h.x, h.y);
    mma_bf16(c[1], high[0], high[1], high[2], high[3], h.z, h.w);
    mma_bf16(c[0], low[0], low[1], low[2], low[3], h.x, h.y);
    mma_bf16(c[1], low[0], low[1], low[2], low[3], h.z, h.w);
    mma_bf16(c[0], high[0], high[1], high[2], high[3], l.x, l.y);
    mma_bf16(c[1], high[0], high[1], high[2], high[3], l.z, l.w);
}

// Sums of an mma as operands a of the next one.
INLINE void operands(const float (&c)[2][4], u32 (&high)[4], u32 (&low)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        high[i] = split(c[i / 2][i % 2 * 2], c[i / 2][i % 2 * 2 + 1], low[i]);
}

// Sums of an mma with rows t and columns i as the operands b that multiply() takes.
INLINE void store_matrix(const float (&c)[2][4], Matrix &m, u32 lane)
{
    uint4 h, l;
    h.x = split(c[0][0], c[0][1], l.x);
    h.y = split(c[1][0], c[1][1], l.y);
    h.z = split(c[0][2], c[0][3], l.z);
    h.w = split(c[1][2], c[1][3], l.w);
    m.high[lane] = h;
    m.low[lane] = l;
}

INLINE float squares(u32 x, float sum)
{
    sum = fmaf(bf16_low(x), bf16_low(x), sum);
    return fmaf(bf16_high(x), bf16_high(x), sum);
}

// 1 / length of a row, of whose squares four neighbouring lanes have parts.
INLINE float inverse_length(float sum)
{
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    return rsqrtf(sum + 1e-6f);
}

// ---- global -> shared ----

// Copies rows of N numbers of a tile's first n tokens, and of a second matrix `apart` elements behind the first; rows
// behind them are zeros. By the warps that prepare; i: the thread's number among them.
template <int N, int kSecond>
INLINE void fetch_rows(u32 to, u32 row, const u16 *from, i64 stride, int apart, int n, int i)
{
    constexpr int kVecs = N / 8, kAll = kTile * kVecs;
#pragma unroll
    for (int e = 0; e < (kAll + kLoaders - 1) / kLoaders; e++, i += kLoaders) {
        int t = i / kVecs, c = i % kVecs;
        if (kAll % kLoaders != 0 && i >= kAll)
            break;
        const u16 *x = t < n ? from + t * stride + c * 8 : from;
        copy_async16(to + t * row + c * 16, x, t < n ? 16 : 0);
        if constexpr (kSecond)
            copy_async16(to + kTile * row + t * row + c * 16, x + apart, t < n ? 16 : 0);
    }
}

// Copies tokens [t0, end), a tile of them at most, to a stage.
INLINE void fetch(const gated_delta_params &p, int t0, int end, int j, u32 stage)
{
    if (t0 < end) {
        int head = TILED ? j % p.k_heads : j / (p.v_heads / p.k_heads), size = p.k_heads * KDIM, n = end - t0;
        int i = threadIdx.x - WARPS * 32;
        const u16 *x = p.x + (i64)t0 * p.x_stride;
        fetch_rows<KDIM, 1>(stage, kRow, x + size + head * KDIM, p.x_stride, -size, n, i);
        fetch_rows<kCols, 0>(stage + 2 * kTile * kRow, kVRow, x + 2 * size + j * VDIM + blockIdx.x % kParts * kCols,
                             p.x_stride, 0, n, i);
    }
    copy_async_commit();
}

// ---- prepare ----

// Waits for the other warps that prepare.
INLINE void loaders_barrier() { asm volatile("bar.sync 1, %0;" ::"n"(kLoaders) : "memory"); }

struct Gate {
    u16 a, b;
    bool there;
};

// The gates of token t0 + lane % 16.
INLINE Gate load_gate(const gated_delta_params &p, int t0, int end, int j)
{
    int t = t0 + threadIdx.x % 16;
    Gate gate = {0, 0, t < end};
    if (gate.there) {
        gate.a = p.a[(i64)t * p.a_stride + j];
        gate.b = p.b[(i64)t * p.b_stride + j];
    }
    return gate;
}

// A sum in two parts: differences of two of them are exact enough where both are large.
struct Sum {
    float high, low;
};
INLINE Sum operator+(Sum x, Sum y)
{
    float s = x.high + y.high, t = s - x.high;
    return {s, x.low + y.low + ((x.high - (s - t)) + (y.high - t))};
}
INLINE Sum from_lane(Sum x, u32 lane)
{
    return {__shfl_sync(~0u, x.high, lane), __shfl_sync(~0u, x.low, lane)};
}
INLINE float decay_between(Sum now, Sum then) { return expf((now.high - then.high) + (now.low - then.low)); }

// Rows of (I + A)^-1 for A below the diagonal in `a` [16][16], to the same place: lanes have a column each.
INLINE void invert(float *a, u32 lane)
{
    float t[16];
    u32 column = lane % 16;
#pragma unroll
    for (int r = 0; r < 16; r++) {
        float sum[2] = {(u32)r == column ? 1.f : 0.f, 0.f};
#pragma unroll
        for (int i = 0; i < r; i++)
            sum[i % 2] = fmaf(-a[r * 16 + i], t[i], sum[i % 2]);
        t[r] = sum[0] + sum[1];
    }
    __syncwarp();
    if (lane < 16) {
#pragma unroll
        for (int r = 0; r < 16; r++)
            a[r * 16 + column] = t[r];
    }
    __syncwarp();
}

// Sums of g up to each token of a block, and beta, of which a lane has what its part of a 16 x 16 matrix needs: rows g
// and g + 8, columns 2t, 2t + 1, 2t + 8, 2t + 9.
struct Decays {
    Sum row[2], column[4], last;
    float row_beta[2], column_beta[4];
};
INLINE Decays decays_of(const Gate &raw, float dt_bias, float decay, u32 lane)
{
    float z = bf16_f32(raw.a) + dt_bias, step = z > 20.f ? z : log1pf(expf(z));
    Sum sum = {raw.there ? fmaxf(step * decay, kLeast) : 0.f, 0.f};
    float beta = raw.there ? __fdividef(1.f, 1.f + expf(-bf16_f32(raw.b))) : 0.f;
#pragma unroll
    for (int d = 1; d < 16; d *= 2) {
        Sum before = from_lane(sum, lane - d & 31);
        if (lane % 16 >= d)
            sum = sum + before;
    }
    Decays s;
    s.last = from_lane(sum, 15);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        s.row[i] = from_lane(sum, lane / 4 + 8 * i);
        s.row_beta[i] = __shfl_sync(~0u, beta, lane / 4 + 8 * i);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        s.column[i] = from_lane(sum, i / 2 * 8 + lane % 4 * 2 + i % 2);
        s.column_beta[i] = __shfl_sync(~0u, beta, i / 2 * 8 + lane % 4 * 2 + i % 2);
    }
    return s;
}

// Makes a block's matrices and factors; one warp. k: the block's first token in shared memory.
INLINE void prepare(u32 k, const Gate &raw, float dt_bias, float decay, Block &block)
{
    u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float kk[2][4], qk[2][4], length[4] = {0.f, 0.f, 0.f, 0.f}, k_by[2], q_by[2];
#pragma unroll
    for (int i = 0; i < 8; i++)
        kk[i / 4][i % 4] = qk[i / 4][i % 4] = 0.f;
    u32 at = k + (lane / 16 * 8 + lane % 8) * kRow + lane / 8 % 2 * 16;
#pragma unroll
    for (int s = 0; s < kSteps; s++) {
        frag4 kf = load_matrix4(at + s * 32), qf = load_matrix4(at + kTile * kRow + s * 32);
        mma_bf16(kk[0], kf.r[0], kf.r[2], kf.r[1], kf.r[3], kf.r[0], kf.r[1]);
        mma_bf16(kk[1], kf.r[0], kf.r[2], kf.r[1], kf.r[3], kf.r[2], kf.r[3]);
        mma_bf16(qk[0], qf.r[0], qf.r[2], qf.r[1], qf.r[3], kf.r[0], kf.r[1]);
        mma_bf16(qk[1], qf.r[0], qf.r[2], qf.r[1], qf.r[3], kf.r[2], kf.r[3]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            length[i / 2] = squares(kf.r[i], length[i / 2]);
            length[2 + i / 2] = squares(qf.r[i], length[2 + i / 2]);
        }
    }
    Decays s = decays_of(raw, dt_bias, decay, lane);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        k_by[i] = inverse_length(length[i]);
        q_by[i] = inverse_length(length[2 + i]) * (1.f / sqrtf((float)KDIM));
    }
    float *a = (float *)&block.inverse;
#pragma unroll
    for (int i = 0; i < 8; i++) { // row g or g + 8, column 2t, 2t + 1, 2t + 8 or 2t + 9
        u32 h = i % 4 / 2, c = i / 4 * 2 + i % 2, row = g + h * 8, column = i / 4 * 8 + 2 * t + i % 2;
        float by = __shfl_sync(~0u, k_by[i / 4], (2 * t + i % 2) * 4);
        by *= column <= row ? decay_between(s.row[h], s.column[c]) : 0.f;
        qk[i / 4][i % 4] *= by * q_by[h];
        a[row * 16 + column] = column < row ? kk[i / 4][i % 4] * by * k_by[h] * s.row_beta[h] : 0.f;
    }
    store_matrix(qk, block.scores, lane);
#pragma unroll
    for (int i = 0; i < 2 && t == 0; i++) {
        float kept = expf(s.row[i].high + s.row[i].low);
        block.in[g + 8 * i] = kept * k_by[i];
        block.out[g + 8 * i] = kept * q_by[i];
        block.end[g + 8 * i] = decay_between(s.last, s.row[i]) * k_by[i];
    }
    if (lane == 0)
        block.keep = expf(s.last.high + s.last.low);
    __syncwarp();
    invert(a, lane);
#pragma unroll
    for (int i = 0; i < 8; i++)
        kk[i / 4][i % 4] =
            a[(g + i % 4 / 2 * 8) * 16 + i / 4 * 8 + 2 * t + i % 2] * s.column_beta[i / 4 * 2 + i % 2];
    __syncwarp();
    store_matrix(kk, block.inverse, lane);
}

// ---- apply ----

// Writes y of a warp's 16 columns and a block's tokens, n of which are there: neighbouring lanes exchange tokens, so
// that each stores two columns at once.
INLINE void store_y(u16 *to, int stride, int n, const float (&o)[2][4], u32 lane)
{
    u32 g = lane / 4, odd = g % 2;
    int token = lane % 4 * 2 + odd;
    to += (i64)token * stride + g - odd;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        u32 y[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float mine = odd ? o[i][2 * h + 1] : o[i][2 * h], other = odd ? o[i][2 * h] : o[i][2 * h + 1];
            other = __shfl_xor_sync(~0u, other, 4);
            y[h] = odd ? pack_bf16(other, mine) : pack_bf16(mine, other);
        }
        if (i * 8 + token < n) {
            *(u32 *)(to + i * 8 * stride) = y[0];
            *(u32 *)(to + i * 8 * stride + 8) = y[1];
        }
    }
}

// One block: the warp's part of S, and its sums o. k, v: the block's first token in shared memory, of v the warp's
// columns.
INLINE void apply(u32 k, u32 v, const Block &block, float (&s)[kStates][4], float (&o)[2][4])
{
    u32 lane = threadIdx.x % 32, t = lane % 4;
    float x[2][4], d[2][4];
    u32 high[4], low[4];
#pragma unroll
    for (int i = 0; i < 8; i++)
        x[i / 4][i % 4] = o[i / 4][i % 4] = d[i / 4][i % 4] = 0.f;
    u32 at = k + (lane / 16 * 8 + lane % 8) * kRow + lane / 8 % 2 * 16;
#pragma unroll
    for (int i = 0; i < kSteps; i++) {
        frag4 kf = load_matrix4(at + i * 32), qf = load_matrix4(at + kTile * kRow + i * 32);
        const float(&part)[2][4] = *(const float(*)[2][4]) & s[2 * i];
        operands(part, high, low);
        mma_bf16(x[0], high[0], high[1], high[2], high[3], kf.r[0], kf.r[1]);
        mma_bf16(x[1], high[0], high[1], high[2], high[3], kf.r[2], kf.r[3]);
        mma_bf16(o[0], high[0], high[1], high[2], high[3], qf.r[0], qf.r[1]);
        mma_bf16(o[1], high[0], high[1], high[2], high[3], qf.r[2], qf.r[3]);
        mma_bf16(x[0], low[0], low[1], low[2], low[3], kf.r[0], kf.r[1]);
        mma_bf16(x[1], low[0], low[1], low[2], low[3], kf.r[2], kf.r[3]);
        mma_bf16(o[0], low[0], low[1], low[2], low[3], qf.r[0], qf.r[1]);
        mma_bf16(o[1], low[0], low[1], low[2], low[3], qf.r[2], qf.r[3]);
    }
    frag4 vf = load_matrix4_transposed(v + (lane / 16 * 8 + lane % 8) * kVRow + lane / 8 % 2 * 16);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float2 in = *(const float2 *)(block.in + i * 8 + 2 * t), out = *(const float2 *)(block.out + i * 8 + 2 * t);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            x[i][2 * h] = bf16_low(vf.r[2 * i + h]) - in.x * x[i][2 * h];
            x[i][2 * h + 1] = bf16_high(vf.r[2 * i + h]) - in.y * x[i][2 * h + 1];
            o[i][2 * h] *= out.x;
            o[i][2 * h + 1] *= out.y;
        }
    }
    operands(x, high, low);
    multiply(d, high, low, block.inverse, lane);
    operands(d, high, low);
    multiply(o, high, low, block.scores, lane);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float2 end = *(const float2 *)(block.end + i * 8 + 2 * t);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            d[i][2 * h] *= end.x;
            d[i][2 * h + 1] *= end.y;
        }
    }
    operands(d, high, low);
    float keep = block.keep;
    at = k + lane % 16 * kRow + lane / 16 * 16;
#pragma unroll
    for (int i = 0; i < kSteps; i++) {
        frag4 kf = load_matrix4_transposed(at + i * 32);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float sum[4] = {0.f, 0.f, 0.f, 0.f};
            mma_bf16(sum, high[0], high[1], high[2], high[3], kf.r[2 * h], kf.r[2 * h + 1]);
            mma_bf16(sum, low[0], low[1], low[2], low[3], kf.r[2 * h], kf.r[2 * h + 1]);
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[2 * i + h][e] = fmaf(keep, s[2 * i + h][e], sum[e]);
        }
    }
}

// Where element e of part i of a lane's S lies behind its first one: S has rows 8 i + 2 t + e % 2, columns g and g + 8.
constexpr int state_at(int i, int e) { return (8 * i + e % 2) * VDIM + e / 2 * 8; }

// The warps that prepare: tile after tile, one ahead of the others.
INLINE void prepare_all(const gated_delta_params &p, int begin, int end, int j, u32 stages, Block *blocks)
{
    float dt_bias = __ldg(p.dt_bias + j), decay = LOG_DECAY ? -expf(__ldg(p.decay + j)) : __ldg(p.decay + j);
    int b = threadIdx.x / 32 - WARPS;
    pdl_go();
    pdl_wait();
    fetch(p, begin, end, j, stages);
    fetch(p, begin + kTile, end, j, stages + kStage);
    Gate gate = load_gate(p, begin + b * 16, end, j);
    copy_async_wait<1>();
    loaders_barrier();
    u32 here = 0, to = 0; // the tile's stage and set of blocks
    for (int t0 = begin; t0 < end; t0 += kTile) {
        if (t0 + b * 16 < end)
            prepare(stages + here * kStage + b * 16 * kRow, gate, dt_bias, decay, blocks[to * BLOCKS + b]);
        gate = load_gate(p, t0 + kTile + b * 16, end, j);
        copy_async_wait<0>();
        __syncthreads(); // this tile's blocks and the next tile are there; the others are done with the one before
        here = here == kStages - 1 ? 0 : here + 1;
        to ^= 1;
        fetch(p, t0 + 2 * kTile, end, j, stages + (here == kStages - 1 ? 0 : here + 1) * kStage);
    }
}

// The warps that apply: a part of S from slot `from`, -1: zeros, to the slot of sequence q.
INLINE void apply_all(const gated_delta_params &p, int begin, int end, int from, int to, int j, u32 stages,
                      const Block *blocks)
{
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int first = blockIdx.x % kParts * kCols + warp * 16;
    float *state = p.state + ((i64)j * KDIM + lane % 4 * 2) * VDIM + first + lane / 4;
    float s[kStates][4], o[2][4];
#pragma unroll
    for (int i = 0; i < kStates * 4; i++)
        s[i / 4][i % 4] = 0.f;
    if (from >= 0) { // before the turn: state_columns.cuh
        const float *slot = state + from * p.state_stride;
#pragma unroll
        for (int i = 0; i < kStates * 4; i++)
            s[i / 4][i % 4] = __ldcg(slot + state_at(i / 4, i % 4));
    }
    pdl_go();
    pdl_wait();
    u32 here = 0, set = 0;
    for (int t0 = begin; t0 < end; t0 += kTile) {
        __syncthreads();
        u32 k = stages + here * kStage, v = k + 2 * kTile * kRow + warp * 32;
        u16 *y = p.y + (i64)t0 * p.y_stride + j * VDIM + first;
        for (int b = 0; b < BLOCKS && t0 + b * 16 < end; b++) {
            apply(k + b * 16 * kRow, v + b * 16 * kVRow, blocks[set * BLOCKS + b], s, o);
            store_y(y, p.y_stride, end - t0 - b * 16, o, lane);
            y += 16 * p.y_stride;
        }
        here = here == kStages - 1 ? 0 : here + 1;
        set ^= 1;
    }
    state += to * p.state_stride;
#pragma unroll
    for (int i = 0; i < kStates * 4; i++)
        state[state_at(i / 4, i % 4)] = s[i / 4][i % 4];
}

KERNEL __launch_bounds__(kThreads, 1) gated_delta_chunks(const __grid_constant__ gated_delta_params p)
{
    extern __shared__ __align__(128) u8 shared[]; // stages of K, Q, V; two sets of blocks
    Block *blocks = (Block *)(shared + kStages * kStage);
    int j = blockIdx.x / kParts, q = blockIdx.y;
    int begin = p.q_start[q], end = p.q_start[q + 1], from = p.state_from[q], to = p.state_to[q];
    if (begin >= end || (q > 0 && p.seq_of[begin] != q)) {
        pdl_go();
        pdl_wait();
        return;
    }
    if (threadIdx.x >= WARPS * 32)
        prepare_all(p, begin, end, j, shared_address(shared), blocks);
    else
        apply_all(p, begin, end, from, to, j, shared_address(shared), blocks);
}
