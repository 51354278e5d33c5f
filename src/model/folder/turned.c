/* Experts that a folder holds transposed (model/folder/turned.h). */
#include "model/folder/turned.h"

#include <stdio.h>

#include "model/family.h"
#include "model/transposed.h"

enum { NAME = 128 };

static const char *const projection[3] = {"gate_proj", "up_proj", "down_proj"};

static vt_status no_memory(const folder_turner *u)
{
    return vt_fail(u->err, VT_ERR_MEMORY, "%s: out of memory", u->m->path);
}

static vt_status add_matrices(const folder_turner *u, int32_t layer, int p, vt_tensor t)
{
    char name[NAME];
    snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%s.weight", layer, projection[p]);
    return u->add(u->of, name, t);
}

/* *out = a tensor of a layer's experts, of this rank, with a matrix or a row for each one. Where
 * the file has none it is an error, or NULL if it may be missing. */
static vt_status take_of_experts(const folder_turner *u, int32_t layer, const char *what,
                                 int32_t rank, bool required, const vt_tensor **out)
{
    char name[NAME];
    snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%s", layer, what);
    const vt_tensor *t = u->take(u->of, name);
    *out = NULL;
    if (!t && required)
        return vt_fail(u->err, VT_ERR_MODEL, "%s: tensor %s is missing", u->m->path, name);
    if (!t)
        return VT_OK;
    if (t->rank != rank || t->dim[0] != u->m->arch.n_experts)
        return vt_fail(u->err, VT_ERR_MODEL,
                       "%s: tensor %s has rank %d and first dimension %lld; rank %d and %d were "
                       "expected",
                       u->m->path, name, t->rank, (long long)t->dim[0], rank, u->m->arch.n_experts);
    *out = t;
    return VT_OK;
}

/* Makes projection p of a layer's experts from blocks of MXFP4 and their scales. */
static vt_status turn_blocks(const folder_turner *u, int32_t layer, int p, const vt_tensor *blocks)
{
    const vt_tensor *scales;
    int64_t parts = p < 2 ? 2 : 1, n = blocks->dim[0], all = blocks->dim[1], rows = all / parts;
    int64_t across = blocks->dim[2];
    TRY(take_of_experts(u, layer, p < 2 ? "gate_up_proj_scales" : "down_proj_scales", 3, true,
                        &scales));
    if (blocks->dtype != VT_U8 || scales->dtype != VT_U8 || blocks->dim[3] != 16 ||
        all % parts != 0 || scales->dim[1] != all || scales->dim[2] != across)
        return vt_fail(u->err, VT_ERR_MODEL,
                       "%s: tensors %s and %s are no blocks of MXFP4 and their scales", u->m->path,
                       blocks->name, scales->name);
    vt_tensor t = {
        .dtype = VT_MXFP4, .rank = 3, .dim = {n, rows, 32 * across}, .row_stride = 32 * across};
    size_t each = (size_t)(rows * vt_dtype_row_bytes(VT_MXFP4, 32 * across));
    t.data = vt_arena_alloc(&u->m->arena, (size_t)n, each);
    if (!t.data)
        return no_memory(u);
    for (int64_t e = 0; e < n; e++)
        model_mxfp4_rows((const uint8_t *)blocks->data + e * all * across * 16,
                         (const uint8_t *)scales->data + e * all * across, across, p < 2 ? p : 0,
                         parts, rows, (uint8_t *)t.data + (size_t)e * each);
    return add_matrices(u, layer, p, t);
}

/* Makes projection p of a layer's experts from matrices [in, out]. */
static vt_status turn_floats(const folder_turner *u, int32_t layer, int p)
{
    const vt_tensor *from;
    bool halves = u->m->family->experts_transposed == VT_TRANSPOSED_HALVES;
    int64_t parts = p < 2 ? 2 : 1;
    TRY(take_of_experts(u, layer, p < 2 ? "gate_up_proj" : "down_proj", 3, true, &from));
    int64_t n = from->dim[0], in = from->dim[1], all = from->dim[2], rows = all / parts;
    int64_t first = p < 2 ? (halves ? p * rows : p) : 0, step = halves ? 1 : parts;
    int64_t bytes = vt_dtype_get(from->dtype)->bytes;
    if ((from->dtype != VT_F32 && from->dtype != VT_F16 && from->dtype != VT_BF16) ||
        all % parts != 0)
        return vt_fail(u->err, VT_ERR_UNSUPPORTED,
                       "%s: tensor %s has type %s; F32, F16 or BF16%s were expected", u->m->path,
                       from->name, vt_dtype_get(from->dtype)->name,
                       halves ? "" : ", or blocks of MXFP4,");
    vt_tensor t = {.dtype = from->dtype, .rank = 3, .dim = {n, rows, in}, .row_stride = in};
    size_t each = (size_t)(rows * in * bytes);
    t.data = vt_arena_alloc(&u->m->arena, (size_t)n, each);
    if (!t.data)
        return no_memory(u);
    for (int64_t e = 0; e < n; e++)
        model_columns_to_rows((const char *)from->data + e * in * all * bytes, in, all, first, step,
                              rows, bytes, (char *)t.data + (size_t)e * each);
    return add_matrices(u, layer, p, t);
}

/* Makes the biases of gate and of up from those of both, which stand in turn. */
static vt_status turn_biases(const folder_turner *u, int32_t layer)
{
    const vt_tensor *from;
    char name[NAME];
    TRY(take_of_experts(u, layer, "gate_up_proj_bias", 2, true, &from));
    int64_t n = from->dim[0], rows = from->dim[1] / 2, bytes = vt_dtype_get(from->dtype)->bytes;
    for (int p = 0; p < 2; p++) {
        vt_tensor t = vt_tensor_2d(vt_arena_alloc(&u->m->arena, (size_t)(n * rows), (size_t)bytes),
                                   from->dtype, n, rows);
        if (!t.data)
            return no_memory(u);
        for (int64_t e = 0; e < n; e++)
            model_columns_to_rows((const char *)from->data + e * from->dim[1] * bytes, 1,
                                  from->dim[1], p, 2, rows, bytes,
                                  (char *)t.data + e * rows * bytes);
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%s_bias", layer, projection[p]);
        TRY(u->add(u->of, name, t));
    }
    return VT_OK;
}

static bool is_shaped(const vt_tensor *t, int64_t rows, int64_t columns)
{
    return t->dim[1] == rows && t->dim[2] == columns;
}

/* Refuses experts whose matrices are not [rows, columns], nor the other way around if `either`. */
static vt_status refuse_shape(const folder_turner *u, const vt_tensor *t, int64_t rows,
                              int64_t columns, bool either)
{
    char other[80] = "";
    long long n = t->dim[0], r = rows, c = columns;
    if (either)
        snprintf(other, sizeof other, " or [%lld, %lld, %lld]", n, c, r);
    return vt_fail(u->err, VT_ERR_MODEL,
                   "%s: tensor %s has shape [%lld, %lld, %lld]; [%lld, %lld, %lld]%s was expected",
                   u->m->path, t->name, n, (long long)t->dim[1], (long long)t->dim[2], n, r, c,
                   other);
}

/* Makes a layer's experts from matrices [in, out] in which gate and up are halves. *turned: the
 * files have them. They may have [out, in] instead, which transformers writes, or each expert
 * apart. Gate and up may be square together, or down may be, but not both: so both are asked. */
static vt_status turn_halves(const folder_turner *u, int32_t layer, bool *turned)
{
    const vt_tensor *up, *down;
    int64_t hidden = u->m->arch.hidden, ffn = u->m->arch.expert_ffn;
    *turned = false;
    TRY(take_of_experts(u, layer, "gate_up_proj", 3, false, &up));
    if (!up)
        return VT_OK;
    TRY(take_of_experts(u, layer, "down_proj", 3, true, &down));
    bool columns = is_shaped(up, hidden, 2 * ffn), rows = is_shaped(up, 2 * ffn, hidden);
    if (!columns && !rows)
        return refuse_shape(u, up, hidden, 2 * ffn, true);
    *turned = columns && is_shaped(down, ffn, hidden);
    if (!*turned && !(rows && is_shaped(down, hidden, ffn)))
        return columns ? refuse_shape(u, down, ffn, hidden, rows)
                       : refuse_shape(u, down, hidden, ffn, false);
    for (int p = 0; p < 3 && *turned; p++)
        TRY(turn_floats(u, layer, p));
    return VT_OK;
}

/* Makes a layer's experts from matrices [in, out] in which gate and up stand in turn, or from
 * blocks of MXFP4. */
static vt_status turn_in_turn(const folder_turner *u, int32_t layer)
{
    for (int p = 0; p < 3; p++) {
        const vt_tensor *blocks;
        TRY(take_of_experts(u, layer, p < 2 ? "gate_up_proj_blocks" : "down_proj_blocks", 4, false,
                            &blocks));
        if (blocks)
            TRY(turn_blocks(u, layer, p, blocks));
        else
            TRY(turn_floats(u, layer, p));
    }
    return turn_biases(u, layer);
}

vt_status folder_turn_experts(const folder_turner *u, int32_t layer, bool *turned)
{
    if (u->m->family->experts_transposed == VT_TRANSPOSED_HALVES)
        return turn_halves(u, layer, turned);
    *turned = true;
    return turn_in_turn(u, layer);
}
