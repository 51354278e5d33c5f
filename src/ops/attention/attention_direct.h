/* Attention's products for up to DIRECT_ROWS rows, as a decode has. Each key and value is used few
 * times, so K and V are read where they lie, and the work is mostly moving and converting them:
 *
 *   K   for each slab of a vector's bytes of every key: transpose it into kt, s += q kt
 *   V   acc += p v, row by row of V
 *
 * The sums are those of a packed block (attention_kernel.h), in the same order. Three things make
 * it fast (bench/notes/cpu.md has the figures):
 *
 *   - 16-bit elements are transposed as pairs, before they are converted, which halves the
 *     shuffles. The scores of a slab's 64 keys are summed beside each other; those of a single
 *     vector of keys would wait for every addition.
 *   - K asks for the next block's K, a line of each row at a time, and V for the next V. Where K
 *     asks for both, V's lines queue, and V itself computes while nothing is loaded.
 *   - FP8 becomes F16 by a shift and a mask of whole vectors, which leaves the exponent too low.
 *     q and p are multiplied by the missing power of two, which changes no bit of the sums. */
#ifndef VT_OPS_ATTENTION_DIRECT_H
#define VT_OPS_ATTENTION_DIRECT_H

#include "ops/attention/attention_pages.h"

/* The power of two that e4m3 lacks as F16 (attention_halves.h): q and p are multiplied by it, which
 * is exact. */
enum { E4M3_POWER = 256 };

static bool is_direct(const attention_args *a, int32_t n_rows)
{
    return n_rows <= DIRECT_ROWS && v_columns(a) == attention_v_dim(a);
}

/* The power that q and p bring along for these pools. */
static float power_of(const attention_args *a)
{
    return a->k_pool->dtype == VT_FP8_E4M3 ? E4M3_POWER : 1;
}

/* out[j][0..n) = n elements from `i` on of row j as F16 without E4M3_POWER, for j in [j0, j1). In
 * out, zeros follow up to whole vectors. */
static void unpack_e4m3(const uint8_t *data, const int64_t *row, const int64_t *ahead, int j0,
                        int j1, int32_t i, int n, uint16_t out[ATTENTION_BLOCK][UNPACK])
{
    vf most = vf_zero();
    for (int j = j0; j < j1; j++) {
        const uint8_t *from = data + row[j] + i;
        for (int k = 0; k < n; k += HALVES) {
            uint8_t some[HALVES] = {0};
            const uint8_t *at = n - k < HALVES ? memcpy(some, from + k, (size_t)(n - k)) : from + k;
            vf_store((float *)(out[j] + k), vf_halves_e4m3(at, &most));
        }
        if (ahead)
            PREFETCH(data + ahead[j] + i);
    }
    if (!vf_met_nan(most))
        return;
    for (int j = j0; j < j1; j++)
        for (int k = 0; k < n; k++)
            if ((data[row[j] + i + k] & 0x7f) == 0x7f)
                out[j][k] = 0x7fff;
}

/* Loads a vector of which `bytes` may be read; the others are 0. */
static inline __attribute__((always_inline)) vf load_bytes(const char *p, int bytes)
{
    float some[VF] = {0};
    if (bytes >= 4 * VF)
        return vf_load((const float *)p);
    memcpy(some, p, (size_t)bytes);
    return vf_load(some);
}

/* A slab is a vector of each key of a block, which are transposed together:
 *
 *   kt[k][j] = K[j][k], j in [j0, j1)
 *
 * Elements of 16 bits stay what they are: those of two keys are paired in a lane, so that a
 * transposition moves two at once. The tile converts them. ahead: the lines that are loaded
 * meanwhile, one of each row; NULL: none. */
static inline __attribute__((always_inline)) void pack_slab(matrix k, int j0, int j1, int bytes,
                                                            const char *ahead, void *kt)
{
    const char *data = k.data;
    char *to = kt;
    size_t size = k.dtype == VT_F32 ? 4 : 2;
    int keys = k.dtype == VT_F32 ? VF : HALVES;
    vf block[VF];
#define KEY(j) load_bytes(data + (size_t)matrix_row(k, j) * size, bytes)
    for (int j = j0 / keys * keys; j < j1; j += keys)
#pragma GCC unroll 2
        for (int half = 0; half < keys / VF; half++) {
            for (int m = 0; ahead && m < VF; m++)
                PREFETCH(ahead + (size_t)k.ahead[j + half * VF + m] * size);
#pragma GCC unroll 16
            for (int m = 0; m < VF; m++)
                block[m] = keys == VF ? KEY(j + m)
                                      : vf_pair(KEY(j + 2 * m), KEY(j + 2 * m + 1), half);
            vf_transpose(block);
#pragma GCC unroll 16
            for (int m = 0; m < VF; m++)
                vf_store((float *)(to + ((m * (keys / VF) + half) * ATTENTION_BLOCK + j) * size),
                         block[m]);
        }
#undef KEY
}

/* Packs the n elements from `i` on of the keys [j0, j1), and returns what kt holds then. */
static matrix pack_part(const kv_view *kv, int j0, int j1, int32_t i, int n, scratch *s)
{
    const vt_tensor *pool = kv->args->k_pool;
    int64_t at = vt_dtype_row_bytes(pool->dtype, i);
    const char *data = (const char *)pool->data + at, *ahead = at % VT_CACHE_LINE ? NULL : data;
    matrix k = {data, pool->dtype, 0, s->at.now, s->at.ahead};
    if (pool->dtype == VT_FP8_E4M3) {
        uint16_t(*halves)[UNPACK] = (void *)s->v;
        unpack_e4m3(pool->data, s->at.now, ahead ? s->at.ahead : NULL, j0 / HALVES * HALVES,
                    (int)vt_round_up((size_t)j1, HALVES), i, n, halves);
        k = (matrix){halves, VT_F16, UNPACK, NULL, NULL};
        pack_slab(k, j0, j1, 4 * VF, NULL, s->kt);
    } else if (pool->dtype != VT_F32) {
        k.dtype = VT_F16; /* for packing, 16 bits are 16 bits */
        if (n == HALVES)
            pack_slab(k, j0, j1, 4 * VF, ahead, s->kt);
        else
            pack_slab(k, j0, j1, n * 2, ahead, s->kt);
    } else if (n == VF) {
        k.dtype = VT_F32;
        pack_slab(k, j0, j1, 4 * VF, ahead, s->kt);
    } else {
        k.dtype = VT_F32;
        pack_slab(k, j0, j1, n * 4, ahead, s->kt);
    }
    return (matrix){s->kt, pool->dtype == VT_FP8_E4M3 ? VT_F16 : pool->dtype, ATTENTION_BLOCK, NULL,
                    NULL};
}

/* Divides rows into tiles of equal size. */
static int rows_of_tile(int rows)
{
    int tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    return (rows + tiles - 1) / tiles;
}

/* s[rows][j0..j1) = q K^T, slab by slab. A sum goes on where the slab before left it. */
static void score_pool(int rows, const kv_view *kv, int j0, int j1, scratch *s)
{
    static const float goes_on[TILE_ROWS] = {1, 1, 1, 1, 1, 1};
    int32_t d = kv->args->head_dim, width = kv->args->k_pool->dtype == VT_F32 ? VF : HALVES;
    int tile = rows_of_tile(rows), v0 = j0 / VF * VF, v1 = (int)vt_round_up((size_t)j1, VF);
    for (int32_t i = 0; i < d; i += width) {
        /* The last slab begins earlier where it would pass the rows. */
        int32_t first = i + width <= d || d < width ? i : d - width;
        int n = d < width ? d : width;
        matrix kt = pack_part(kv, j0, j1, first, n, s);
        for (int r = 0, left; (left = rows - r) > 0; r += tile)
            matmul_packed(left < tile ? left : tile, v1 - v0, s->q + r * kv->stride + first,
                          kv->stride, kt, v0, i - first, n, s->s + r * ATTENTION_BLOCK + v0,
                          ATTENTION_BLOCK, i ? goes_on : NULL);
    }
}

/* acc[rows] = acc * delta[row] + p V */
static void weigh_pool(int rows, const kv_view *kv, int j0, int j1, scratch *s, float *acc,
                       const float *delta)
{
    const vt_tensor *pool = kv->args->v_pool;
    int32_t d = attention_v_dim(kv->args), first = kv->args->head_dim - d;
    int tile = rows_of_tile(rows);
    if (pool->dtype != VT_FP8_E4M3) {
        matrix v = {pool->data, pool->dtype, 0, s->at.now, s->at.ahead};
        for (int r = 0, left; (left = rows - r) > 0; r += tile, v.ahead = NULL)
            matmul_pool(left < tile ? left : tile, d, s->s + r * ATTENTION_BLOCK, ATTENTION_BLOCK,
                        v, first, j0, j1, acc + r * kv->stride, kv->stride, delta + r);
        return;
    }
    for (int j = 0; j < rows * ATTENTION_BLOCK; j += VF)
        vf_store(s->s + j, vf_mul(vf_load(s->s + j), vf_set1(E4M3_POWER)));
    for (int32_t i = 0; i < d; i += UNPACK) {
        int n = d - i < UNPACK ? d - i : UNPACK;
        matrix v = {s->v, VT_F16, UNPACK, NULL, NULL};
        unpack_e4m3(pool->data, s->at.now, (first + i) % VT_CACHE_LINE ? NULL : s->at.ahead, j0, j1,
                    first + i, n, (void *)s->v);
        for (int r = 0, left; (left = rows - r) > 0; r += tile)
            matmul_packed(left < tile ? left : tile, n, s->s + r * ATTENTION_BLOCK, ATTENTION_BLOCK,
                          v, 0, j0, j1, acc + r * kv->stride + i, kv->stride, delta + r);
    }
}

#endif
