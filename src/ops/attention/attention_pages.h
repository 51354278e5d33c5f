/* Blocks of K and V out of the pages of a sequence: where their rows lie, and packing a block for
 * many query rows. */
#ifndef VT_OPS_ATTENTION_PAGES_H
#define VT_OPS_ATTENTION_PAGES_H

#include <string.h>

#include "ops/attention/attention_impls.h"
#include "ops/attention/attention_tile.h"

/* The maximum of a row that has seen no key: finite, so that differences are numbers. */
#define EMPTY_MAX (-1e30f)

enum {
    DIRECT_ROWS = 32,   /* most rows of the direct form */
    UNPACK = 2 * HALVES /* most e4m3 of a row that are unpacked at a time */
};

/* Running softmax of n rows: maximum, sum, unnormalised output. */
typedef struct row_states {
    float *m, *l; /* [rows] */
    float *acc;   /* [rows][stride] */
} row_states;

/* Rows of K and V of one block, by their first element in the pools, and the next block's. */
typedef struct block_rows_at {
    int64_t now[ATTENTION_BLOCK], ahead[ATTENTION_BLOCK];
} block_rows_at;

typedef struct scratch {
    float *q;    /* [ATTENTION_ROWS][stride] */
    float *kt;   /* [stride][ATTENTION_BLOCK]; direct: a slab */
    float *v;    /* [ATTENTION_BLOCK][stride]; direct: unpacked e4m3 */
    float *s;    /* [DIRECT_ROWS][ATTENTION_BLOCK] */
    bool direct; /* K and V are read where they lie */
    block_rows_at at;
    row_states chunk, total;
    int32_t *begin, *end; /* [ATTENTION_ROWS] the span of KV positions a row sees */
} scratch;

static int32_t row_stride_of(const attention_args *a)
{
    return (int32_t)vt_round_up((size_t)a->head_dim, 16);
}

/* The length of scratch.v. */
static size_t v_floats(int32_t stride)
{
    return ATTENTION_BLOCK * (size_t)(stride > UNPACK / 2 ? stride : UNPACK / 2);
}

static size_t scratch_floats(int32_t stride)
{
    size_t rows = ATTENTION_ROWS, block = ATTENTION_BLOCK, d = (size_t)stride;
    return vt_round_up(3 * rows * d + block * d + v_floats(stride) + DIRECT_ROWS * block + 6 * rows,
                       16);
}

static scratch scratch_at(float *p, int32_t stride)
{
    size_t rows = ATTENTION_ROWS, block = ATTENTION_BLOCK, d = (size_t)stride;
    scratch s = {.q = p};
    s.kt = s.q + rows * d;
    s.v = s.kt + block * d;
    s.s = s.v + v_floats(stride);
    s.chunk.acc = s.s + DIRECT_ROWS * block;
    s.total.acc = s.chunk.acc + rows * d;
    s.chunk.m = s.total.acc + rows * d;
    s.chunk.l = s.chunk.m + rows;
    s.total.m = s.chunk.l + rows;
    s.total.l = s.total.m + rows;
    s.begin = (int32_t *)(s.total.l + rows);
    s.end = s.begin + rows;
    return s;
}

/* ---- K and V blocks out of the pages ---- */

typedef struct kv_view {
    const attention_args *args;
    const int32_t *pages; /* of the sequence */
    int32_t kv_head, stride;
    int32_t first, last;         /* positions that are wanted, [first, last) */
    const struct kv_view *after; /* the view that is read next, or NULL */
} kv_view;

/* Elements before position `pos` of this head's rows in a pool; *run: how many rows follow on the
 * page. */
static inline int64_t page_offset(const kv_view *kv, int32_t pos, int32_t *run)
{
    int32_t size = kv->args->batch->page_size, in_page = pos % size;
    int64_t page = kv->pages[pos / size];
    *run = size - in_page;
    return ((page * kv->args->kv_heads + kv->kv_head) * size + in_page) * kv->args->head_dim;
}

/* Finds where the K rows [base + j0, base + j1) begin in their pool. */
static void find_rows(const kv_view *kv, int32_t base, int j0, int j1, int64_t *at)
{
    for (int j = j0, run; j < j1; j += run) {
        int64_t first = page_offset(kv, base + j, &run);
        run = run < j1 - j ? run : j1 - j;
        for (int i = 0; i < run; i++)
            at[j + i] = first + (int64_t)i * kv->args->head_dim;
    }
}

/* The rows of the next block are found too, for loading them ahead: a page is too short for the
 * hardware's prefetchers, and the next page may lie anywhere. After the last block comes the first
 * one of the next view. */
static void find_block(const kv_view *kv, int32_t base, int j0, int j1, block_rows_at *rows)
{
    const bool ends = base + ATTENTION_BLOCK >= kv->last;
    const kv_view *then = ends && kv->after ? kv->after : kv;
    int32_t next = then == kv ? base + ATTENTION_BLOCK : then->first, left = then->last - next;
    int n = left < ATTENTION_BLOCK ? left > 0 ? (int)left : 0 : ATTENTION_BLOCK;
    find_rows(kv, base, j0, j1, rows->now);
    for (int j = 0; j < j0; j++) /* any row that may be read */
        rows->now[j] = rows->now[j0];
    for (int j = j1; j < ATTENTION_BLOCK; j++)
        rows->now[j] = rows->now[j1 - 1];
    find_rows(then, next, 0, n, rows->ahead);
    for (int j = n; j < ATTENTION_BLOCK; j++)
        rows->ahead[j] = rows->now[j < j0 ? j0 : j < j1 ? j : j1 - 1];
}

/* Starts loading a part of the next block: of VF rows the cache line of K that begins at element i,
 * and that of V that ends with the vector at i. So the loads are spread over the work on this
 * block; all at once they would only queue for the few misses that a core can have open. */
static inline __attribute__((always_inline)) void prefetch_rows(const kv_view *kv, vt_dtype dtype,
                                                                const int64_t *ahead, int32_t i)
{
    int64_t size = vt_dtype_row_bytes(dtype, 1), first = i * size, last = first + VF * size;
    bool begins = first % VT_CACHE_LINE == 0,
         ends = last % VT_CACHE_LINE == 0 || i + VF >= kv->args->head_dim;
    for (int k = 0; begins && k < VF; k++)
        PREFETCH((const char *)kv->args->k_pool->data + ahead[k] * size + first);
    for (int k = 0; ends && k < VF; k++)
        PREFETCH((const char *)kv->args->v_pool->data + ahead[k] * size + first);
}

/* block[k][lane] = K[j + lane][i + k], 0 for positions outside of [j0, j1). */
static inline __attribute__((always_inline)) void load_keys(const kv_view *kv, vt_dtype dtype,
                                                            const block_rows_at *at, int j, int j0,
                                                            int j1, int32_t i, vf block[VF])
{
    int lanes = lanes_left(i, kv->args->head_dim);
    prefetch_rows(kv, dtype, at->ahead + j, i);
    for (int k = 0; k < VF; k++)
        block[k] = j + k >= j0 && j + k < j1
                       ? vf_load_any(kv->args->k_pool->data, dtype, at->now[j + k] + i, lanes)
                       : vf_zero();
    vf_transpose(block);
}

/* kt[d][j] = K[base + j][d] for j in [j0, j1), and 0 up to whole vectors on both sides. */
static inline __attribute__((always_inline)) void
pack_keys(const kv_view *kv, vt_dtype dtype, const block_rows_at *at, int j0, int j1, float *kt)
{
    for (int j = j0 / VF * VF; j < j1; j += VF)
        for (int32_t i = 0; i < kv->args->head_dim; i += VF) {
            vf block[VF];
            load_keys(kv, dtype, at, j, j0, j1, i, block);
            for (int k = 0; k < VF; k++)
                vf_store(kt + (i + k) * ATTENTION_BLOCK + j, block[k]);
        }
}

/* Columns of o in scratch: a row of V in whole vectors, for any vector size. */
static int32_t v_columns(const attention_args *a)
{
    return (int32_t)vt_round_up((size_t)attention_v_dim(a), 16);
}

/* v[j][d] = V[base + j][d] for j in [j0, j1), 0 where d passes the row of V. */
static inline __attribute__((always_inline)) void
pack_values(const kv_view *kv, vt_dtype dtype, const block_rows_at *at, int j0, int j1, float *v)
{
    int32_t d = attention_v_dim(kv->args), first = kv->args->head_dim - d,
            columns = v_columns(kv->args);
    for (int j = j0; j < j1; j++)
        for (int32_t i = 0; i < columns; i += VF)
            vf_store(v + j * kv->stride + i,
                     i < d ? vf_load_any(kv->args->v_pool->data, dtype, at->now[j] + first + i,
                                         lanes_left(i, d))
                           : vf_zero());
}

static void pack_block(const kv_view *kv, int j0, int j1, scratch *s)
{
#define PACK(type)                                   \
    do {                                             \
        pack_values(kv, type, &s->at, j0, j1, s->v); \
        pack_keys(kv, type, &s->at, j0, j1, s->kt);  \
    } while (0)
    FOR_KV_TYPE(kv->args->k_pool->dtype, PACK);
#undef PACK
}

#endif
