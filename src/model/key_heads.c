/* Weights from matrices whose rows the file has by key heads (model/key_heads.h). */
#include "model/key_heads.h"

#include <string.h>

#include "base/quant.h"

enum { KINDS = 4, SCALE_BLOCK = 128 };

/* Rows of each kind that a key head has, in the file's order; the first of these kinds are one
 * weight, the rest another. */
typedef struct pieces {
    int64_t rows[KINDS];
    int first;
} pieces;

static pieces pieces_of(const vt_delta *d, vt_role first)
{
    int64_t values = d->v_heads / d->k_heads, v = values * d->v_dim;
    return first == VT_ROLE_DELTA_QKV ? (pieces){{d->k_dim, d->k_dim, v, v}, 3}
                                      : (pieces){{values, values}, 1};
}

/* Makes out[0] and out[1] from the rows of t. */
static vt_status split(vt_model *m, const pieces *p, const vt_tensor *t, vt_tensor out[2],
                       vt_err *err)
{
    int64_t row = vt_dtype_row_bytes(t->dtype, t->dim[1]), heads = m->arch.delta.k_heads;
    int64_t head = 0, before = 0, rows[2] = {0};
    for (int k = 0; k < KINDS; k++) {
        head += p->rows[k];
        rows[k >= p->first] += heads * p->rows[k];
    }
    char *to = vt_arena_alloc(&m->arena, (size_t)(heads * head), (size_t)row);
    if (!to)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", m->path);
    for (int k = 0; k < 2; k++) {
        out[k] = vt_tensor_2d(to + k * rows[0] * row, t->dtype, rows[k], t->dim[1]);
        out[k].name = t->name;
    }
    for (int k = 0; k < KINDS; before += p->rows[k++])
        for (int64_t h = 0; h < heads; h++, to += p->rows[k] * row)
            memcpy(to, (const char *)t->data + (h * head + before) * row,
                   (size_t)(p->rows[k] * row));
    return VT_OK;
}

static vt_status split_scales(vt_model *m, pieces p, const vt_tensor *t, const vt_tensor *scale,
                              vt_tensor out[2], vt_err *err)
{
    if (vt_tensor_elems(scale) == 1) {
        out[0] = out[1] = *scale;
        return VT_OK;
    }
    for (int k = 0; k < KINDS; k++) {
        if (p.rows[k] % SCALE_BLOCK != 0)
            return vt_fail(err, VT_ERR_UNSUPPORTED,
                           "%s: tensor %s has for each key head %lld rows of one kind, and FP8 "
                           "scales for %d rows at a time; multiples of %d are supported",
                           m->path, t->name, (long long)p.rows[k], SCALE_BLOCK, SCALE_BLOCK);
        p.rows[k] /= SCALE_BLOCK;
    }
    return split(m, &p, scale, out, err);
}

vt_status model_take_key_heads(vt_model *m, int32_t layer, vt_role first, const vt_tensor *t,
                               const vt_tensor *scale, vt_err *err)
{
    pieces p = pieces_of(&m->arch.delta, first);
    bool is_float = t->dtype == VT_F32 || t->dtype == VT_F16 || t->dtype == VT_BF16;
    vt_tensor *view = vt_arena_alloc(&m->arena, 4, sizeof *view);
    if (!view)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", m->path);
    if (!is_float && !vt_dtype_quantised(t->dtype) && !scale)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: tensor %s, whose rows stand key head by key head, has type %s; a float "
                       "type, FP8 with a scale or a quantised type was expected",
                       m->path, t->name, vt_dtype_get(t->dtype)->name);
    TRY(split(m, &p, t, view, err));
    if (scale)
        TRY(split_scales(m, p, t, scale, view + 2, err));
    for (int32_t k = 0; k < 2; k++) {
        m->layer[layer].weight[(int32_t)first + k] = &view[k];
        m->layer[layer].scale[(int32_t)first + k] = scale ? &view[2 + k] : NULL;
    }
    return VT_OK;
}
