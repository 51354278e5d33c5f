// TURN of attention_decode.cu: what rope_store makes for decodes of one token (ops/rope_store, ops/rope/rope.cu), made
// by the CTAs that read it.
//
// Every warp of an item rotates the rows of q in its fragments of mma. In both layouts of these (bf16, FP8: see
// attention_decode.cu) a lane holds four dimensions of each 16 of a row, and a quad a whole row; so the two dimensions
// that are rotated together, HEAD_DIM / 2 apart, belong to one lane, and a norm needs two shuffles. Row GROUP of the
// tile, which is no query's, is the token's k. The warp that has the token's block in its ring, of the item that has
// its position, stores k and v to the page slot and to the ring.
// Needs kv.cuh, kDimSteps, kBlockBytes, at(). Template: TURN (1: rotation alone, 2: norm, then rotation, 3: rotation,
// then norm), PLUS_ONE; HEAD_DIM a multiple of 32, GROUP < 16.

constexpr int kHalfSteps = kDimSteps / 2;
constexpr bool kNorm = TURN >= 2;

typedef float Dims[4]; // a lane's four dimensions of a step of 16

INLINE int first_dim() { return threadIdx.x % 4 * (FP8 ? 4 : 2); }

INLINE void load_dims(const float *step, Dims &to)
{
    if constexpr (FP8) {
        float4 v = *(const float4 *)step;
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    } else {
        float2 a = *(const float2 *)step, b = *(const float2 *)(step + 8);
        to[0] = a.x, to[1] = a.y, to[2] = b.x, to[3] = b.y;
    }
}

INLINE void load_dims(const u16 *step, Dims &to)
{
    uint2 v;
    if constexpr (FP8)
        v = *(const uint2 *)step;
    else
        v = make_uint2(*(const u32 *)step, *(const u32 *)(step + 8));
    to[0] = bf16_low(v.x), to[1] = bf16_high(v.x), to[2] = bf16_low(v.y), to[3] = bf16_high(v.y);
}

// A row of the tile, and what a lane needs to norm and rotate it. No kernel of a step writes the latter, so it is
// loaded before pdl_wait().
struct TurnedRow {
    const u16 *from; // its q or k; null: no such row
    bool is_k;
    Dims cosine[kHalfSteps], sine[kHalfSteps], norm[kNorm ? kDimSteps : 1];

    // Row r of the tile; `own` says whether the warp stores the token's k.
    __forceinline__ void prepare(const attention_decode_params &p, i32 token, i32 position, i32 r, bool own)
    {
        const attention_turn_params &t = p.turn;
        int d = first_dim();
        is_k = r == GROUP && own;
        from = r < GROUP ? p.q + (i64)token * p.q_stride + (blockIdx.x * GROUP + r) * HEAD_DIM + d
               : is_k    ? t.k + (i64)token * t.k_stride + blockIdx.x * HEAD_DIM + d
                         : nullptr;
        const float *table = (is_k ? t.cos_sin : t.q_cos_sin) + (i64)position * HEAD_DIM + d,
                    *weights = (is_k ? t.k_norm : t.q_norm) + d;
        if (!from)
            return;
#pragma unroll
        for (int s = 0; s < kHalfSteps; s++) {
            load_dims(table + s * 16, cosine[s]);
            load_dims(table + HEAD_DIM / 2 + s * 16, sine[s]);
        }
        if constexpr (kNorm)
#pragma unroll
            for (int s = 0; s < kDimSteps; s++)
                load_dims(weights + s * 16, norm[s]);
    }
    __forceinline__ void normalise(Dims (&x)[kDimSteps], float eps) const
    {
        float sum = 0.f;
#pragma unroll
        for (int s = 0; s < kDimSteps; s++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum += x[s][i] * x[s][i];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        float scale = rsqrtf(sum / HEAD_DIM + eps);
#pragma unroll
        for (int s = 0; s < kDimSteps; s++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[s][i] *= scale * (norm[kNorm ? s : 0][i] + (float)PLUS_ONE);
    }
    // x: the row with its norm and rotation; zeros if there is none. All lanes of the warp call this.
    __forceinline__ void turn(Dims (&x)[kDimSteps], float eps) const
    {
#pragma unroll
        for (int s = 0; s < kDimSteps; s++) {
            if (from)
                load_dims(from + s * 16, x[s]);
            else
                x[s][0] = x[s][1] = x[s][2] = x[s][3] = 0.f;
        }
        if constexpr (TURN == 2)
            normalise(x, eps);
        if (from)
#pragma unroll
            for (int s = 0; s < kHalfSteps; s++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float a = x[s][i], b = x[s + kHalfSteps][i];
                    x[s][i] = a * cosine[s][i] - b * sine[s][i];
                    x[s + kHalfSteps][i] = a * sine[s][i] + b * cosine[s][i];
                }
        if constexpr (TURN == 3)
            normalise(x, eps);
    }
};

// A rotated row of q as fragments of half h of the tile, or zeros.
INLINE void to_fragments(const Dims (&x)[kDimSteps], bool is_q, int h, u32 (&q)[kDimSteps][4])
{
#pragma unroll
    for (int s = 0; s < kDimSteps; s++) { // FP8: dimensions 0 and 2 of the lane's four, then 1 and 3
        q[s][h] = is_q ? pack_bf16(x[s][0], x[s][FP8 ? 2 : 1]) : 0;
        q[s][h + 2] = is_q ? pack_bf16(x[s][FP8 ? 1 : 2], x[s][3]) : 0;
    }
}

// Stores the lane's part of a rotated k to `to` in the pool, and to row `row` of a block in the ring (null: to none).
INLINE void store_k(const Dims (&x)[kDimSteps], float inverse, kv_t *to, u8 *block, u32 row)
{
    to += first_dim();
#pragma unroll
    for (int s = 0; s < kDimSteps; s++) {
        if constexpr (FP8) {
            u32 v = 0;
#pragma unroll
            for (int i = 0; i < 4; i++)
                v |= f32_e4m3(x[s][i] * inverse) << 8 * i;
            *(u32 *)(to + s * 16) = v;
            if (block)
                *(u32 *)(block + at(row, s) + first_dim()) = v;
        } else {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                u32 v = pack_bf16(x[s][2 * i], x[s][2 * i + 1]);
                *(u32 *)(to + s * 16 + i * 8) = v;
                if (block)
                    *(u32 *)(block + at(row, 2 * s + i) + first_dim() * 2) = v;
            }
        }
    }
}

// Stores v likewise, eight dimensions a lane.
INLINE void store_v(const u16 *from, float inverse, kv_t *to, u8 *block, u32 row)
{
    int c = threadIdx.x % 32;
    if (c >= HEAD_DIM / 8)
        return;
    uint4 v = load16(from + c * 8);
    if constexpr (FP8) {
        f32x8 x = unpack8(v);
#pragma unroll
        for (int i = 0; i < 8; i++)
            x.v[i] *= inverse;
        kv_store8(to + c * 8, x);
        if (block)
            kv_store8((kv_t *)(block + at(row, c / 2) + c % 2 * 8), x);
    } else {
        store16(to + c * 8, v);
        if (block)
            *(uint4 *)(block + at(row, c)) = v;
    }
}

// Makes fragments of the rows of q, rotated. If the warp stores the token's k and v (own), it does so; `block` is the
// token's block in its ring, or null if that is not there yet. `row` was prepared for row g of the tile. A second half
// of the tile comes after it, in the same registers; with a group of 8 it has k alone.
INLINE void turn_rows(const attention_decode_params &p, TurnedRow &row, i32 token, i32 slot, i32 newest, bool own,
                      u8 *block, u32 (&q)[kDimSteps][4])
{
    const attention_turn_params &t = p.turn;
    i64 to = (((i64)(slot / PAGE) * KV_HEADS + blockIdx.x) * PAGE + slot % PAGE) * HEAD_DIM;
    STORES_TO_PADDING_PAGE(own && slot < PAGE);
    if (own)
        store_v(t.v + (i64)token * t.v_stride + blockIdx.x * HEAD_DIM, t.v_inverse, t.v_pool + to,
                block ? block + kBlockBytes : nullptr, newest % kBlock);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        Dims x[kDimSteps];
        bool there = h == 0 || GROUP > 8 || (GROUP == 8 && own);
        if (there) {
            if (h == 1)
                row.prepare(p, token, newest, threadIdx.x % 32 / 4 + 8, own);
            row.turn(x, t.eps);
            if (row.is_k)
                store_k(x, t.k_inverse, t.k_pool + to, block, newest % kBlock);
        }
        to_fragments(x, (h == 0 || GROUP > 8) && row.from && !row.is_k, h, q);
    }
    __syncwarp();
}
