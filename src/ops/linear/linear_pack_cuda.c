/* Packing weights for a CUDA device (linear_pack_cuda.h). The threads of an upload call this: each
 * packs some units into pinned memory while earlier units are copied to the device. */
#include "ops/linear/linear_pack_cuda.h"

#include <string.h>

#include "base/quant.h"
#include "ops/linear/linear_impl.h"
#include "ops/linear/quant/linear_quant.h"

static bool in_tiles(const vt_weight *w) { return linear_quant_type(w->dtype, w->cols); }

/* ---- dense ---- */

/* The number of columns that are dequantised at a time. A whole row would need an allocation. The
 * number is a multiple of every type's block and of the blocks of FP8 scales. */
enum { CHUNK = 4096 };

static size_t linear_dense_pack_unit(const vt_weight *w)
{
    return (size_t)w->cols * sizeof(uint16_t);
}

static size_t linear_dense_pack_bytes(const vt_weight *w)
{
    return (size_t)w->rows * linear_dense_pack_unit(w);
}

static vt_dtype linear_dense_pack_type(const vt_weight *w)
{
    (void)w;
    return VT_BF16;
}

/* Multiplies values of columns [at, at + n) by their scales. `at` must begin a block of scales. */
static void apply_scale(const vt_tensor *scale, int64_t row, int64_t at, float *values, int64_t n)
{
    for (int64_t begin = 0; begin < n; begin += LINEAR_SCALE_BLOCK) {
        float s = linear_scale_at(scale, row, at + begin);
        for (int64_t i = begin; i < n && i < begin + LINEAR_SCALE_BLOCK; i++)
            values[i] *= s;
    }
}

static void dense_row(const vt_weight *w, int32_t part, int64_t row, uint16_t *out)
{
    const char *src = linear_part_row(w->part[part], row);
    float values[CHUNK];
    for (int64_t at = 0; at < w->cols; at += CHUNK) {
        int64_t n = w->cols - at < CHUNK ? w->cols - at : CHUNK;
        vt_dequant_row(w->dtype, src + vt_dtype_row_bytes(w->dtype, at), values, n);
        if (w->scale[part])
            apply_scale(w->scale[part], row, at, values, n);
        for (int64_t i = 0; i < n; i++)
            out[at + i] = vt_f32_to_bf16(values[i]);
    }
}

/* Packs rows [row, row + n) of one part. BF16 rows without gaps are copied at once. */
static void dense_rows(const vt_weight *w, int32_t part, int64_t row, int64_t n, uint16_t *out)
{
    const vt_tensor *t = w->part[part];
    bool copy = t->dtype == VT_BF16 && !w->scale[part];
    int64_t run = copy && t->row_stride == w->cols ? n : 1;
    for (int64_t i = 0; i < n; i += run, out += run * w->cols)
        if (copy)
            memcpy(out, linear_part_row(t, row + i), (size_t)run * linear_dense_pack_unit(w));
        else
            dense_row(w, part, row + i, out);
}

static void linear_dense_pack(const vt_weight *w, int64_t first, int64_t n, void *dst)
{
    uint16_t *out = dst;
    while (n > 0) {
        int64_t row = first;
        int32_t part = linear_part_of(w, &row);
        int64_t left = w->part[part]->dim[0] - row, rows = n < left ? n : left;
        dense_rows(w, part, row, rows, out);
        out += rows * w->cols;
        first += rows;
        n -= rows;
    }
}

/* ---- tiles if the type and width have them, else dense ---- */

static size_t linear_table_pack_bytes(const vt_weight *w)
{
    return in_tiles(w) ? linear_quant_matrix_bytes(w->dtype, w->rows, w->cols, w->paired)
                       : linear_dense_pack_bytes(w);
}

size_t linear_cuda_pack_bytes(const vt_weight *w)
{
    return w->cols % 8 == 0 ? linear_table_pack_bytes(w) : 0;
}

size_t linear_cuda_pack_unit(const vt_weight *w)
{
    return in_tiles(w) ? (size_t)linear_quant_tile_bytes(w->dtype, w->cols)
                       : linear_dense_pack_unit(w);
}

vt_dtype linear_cuda_pack_type(const vt_weight *w) { return in_tiles(w) ? w->dtype : VT_BF16; }

void linear_cuda_pack(const vt_weight *w, int64_t first, int64_t n, void *dst)
{
    if (!in_tiles(w)) {
        linear_dense_pack(w, first, n, dst);
        return;
    }
    linear_quant_source s = {.n_parts = w->n_parts, .paired = w->paired};
    for (int32_t i = 0; i < w->n_parts; i++) {
        s.part[i].rows = w->part[i];
        s.part[i].scale = w->scale[i];
    }
    linear_quant_pack(&s, first, n, dst);
}

const vt_packing linear_dense_packing = {.name = "bf16",
                                         .bytes = linear_dense_pack_bytes,
                                         .unit = linear_dense_pack_unit,
                                         .type = linear_dense_pack_type,
                                         .write = linear_dense_pack};
const vt_packing linear_table_packing = {.name = "tiles or bf16, any row",
                                         .bytes = linear_table_pack_bytes,
                                         .unit = linear_cuda_pack_unit,
                                         .type = linear_cuda_pack_type,
                                         .write = linear_cuda_pack};
const vt_packing linear_cuda_packing = {.name = "tiles or bf16",
                                        .bytes = linear_cuda_pack_bytes,
                                        .unit = linear_cuda_pack_unit,
                                        .type = linear_cuda_pack_type,
                                        .write = linear_cuda_pack};
