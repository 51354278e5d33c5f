/* The embedding lookup over the vector type: see simd_portable.h for how this header is compiled.
 * The unit of work is one token. Elements of float types are widened by vectors. Q8_0 has a loop of
 * constant length, which the compiler makes vectors of; other quantised types are left to
 * vt_dequant_row. Every value is the same as that of the portable row, bit for bit. */
#include <string.h>

#include "base/quant.h"
#include "ops/access.h"
#include "ops/cut.h"
#include "ops/embed/embed.h"
#include "ops/embed/embed_impls.h"
#include "ops/simd_any.h"

/* Blocks of 32: d as F16, then 32 signed bytes; x = d q. */
static inline void widen_q8_0(const uint8_t *block, float *y, int64_t n)
{
    enum { Q = 32, BYTES = 2 + Q };
    for (int64_t i = 0; i < n; i += Q, block += BYTES) {
        float d = vt_f16_to_f32((uint16_t)(block[0] | block[1] << 8));
        for (int j = 0; j < Q; j++)
            y[i + j] = d * (float)(int8_t)block[2 + j];
    }
}

/* Whole vectors have a loop of their own, in which the number of lanes is a constant. */
static inline void widen_floats(vt_dtype type, const void *row, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + VF <= n; i += VF)
        vf_store(y + i, vf_load_any(row, type, i, VF));
    if (i < n)
        vf_store_n(y + i, vf_load_any(row, type, i, (int)(n - i)), (int)(n - i));
}

static inline void widen_row(vt_dtype type, const void *row, float *y, int64_t n)
{
    if (type == VT_F32)
        memcpy(y, row, (size_t)n * sizeof *y);
    else if (dtype_is_kv(type))
        widen_floats(type, row, y, n);
    else if (type == VT_Q8_0)
        widen_q8_0(row, y, n);
    else
        vt_dequant_row(type, row, y, n);
}

static inline void scale_row(float *y, int64_t n, float scale)
{
    for (int64_t i = 0; i < n; i++)
        y[i] *= scale;
}

static inline vt_status embed_run(const void *args, const vt_lane *lane)
{
    const embed_args *a = args;
    int64_t n = a->table->dim[1], begin, end;
    int64_t bytes = vt_dtype_row_bytes(a->table->dtype, a->table->row_stride);
    vt_lane_share(lane, a->y->dim[0], 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        float *y = row_f32(a->y, t);
        int32_t id = (*a->tokens)[t];
        id = (id >= 0 ? id : (*a->token_pool)[-1 - id]) - a->first;
        if (a->part && (id < 0 || id >= a->table->dim[0])) {
            memset(y, 0, (size_t)n * sizeof *y);
            continue;
        }
        widen_row(a->table->dtype, (const char *)a->table->data + id * bytes, y, n);
        if (a->scale != 1)
            scale_row(y, n, a->scale);
    }
    return VT_OK;
}

static inline bool embed_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const embed_args *a = args;
    return !a->y || a->y->dtype == VT_F32;
}

static inline void embed_describe(const void *args, const vt_target *t, const vt_size *size,
                                  vt_cut *out)
{
    const embed_args *a = args;
    int64_t tokens = vt_size_rows(a->y, size);
    vt_cut_shape(out, "%lld rows of %lld from %lld", (long long)tokens, (long long)a->table->dim[1],
                 (long long)a->table->dim[0]);
    vt_cut_cpu(out, t, tokens, (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(embed) = {SIMD_IMPL(embed, embed_supports)};
