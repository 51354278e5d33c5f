/* Making the list of a model's weights, and views of the ranges in it (exec/layout.h). */
#include "exec/layout.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/quant.h"
#include "exec/blocks/block.h"
#include "model/lora/lora.h"

enum { SCALE_BLOCK = 128 }; /* rows and columns that one FP8 scale covers */

/* ---- the walk ---- */

vt_layout_entry *vt_layout_add(vt_layout *l, vt_role role, int32_t layer)
{
    vt_layout_entry *e = &l->entry[l->n++];
    *e = (vt_layout_entry){.kind = vt_roles[role].kind, .role = role, .layer = layer};
    if (layer >= 0)
        snprintf(e->label, sizeof e->label, "L%02d.%s", layer, vt_roles[role].name);
    else
        snprintf(e->label, sizeof e->label, "%s", vt_roles[role].name);
    return e;
}

void vt_layout_stack(vt_layout_entry *e, const vt_tensor *t, const vt_tensor *scale)
{
    vt_layout_part p = {.tensor = t, .scale = scale, .cols = 1};
    if (e->kind == VT_KIND_VECTOR) {
        p.rows = t->dim[0];
    } else {
        p.rows = t->dim[t->rank - 2];
        p.cols = t->dim[t->rank - 1];
    }
    if (e->kind == VT_KIND_EXPERTS)
        e->matrices = t->dim[0];
    e->part[e->n_parts++] = p;
}

/* Adds an entry of one tensor. Adds nothing for NULL. */
static void add_one(vt_layout *l, vt_role role, int32_t layer, const vt_tensor *t,
                    const vt_tensor *scale)
{
    if (t)
        vt_layout_stack(vt_layout_add(l, role, layer), t, scale);
}

void vt_layout_add_role(vt_layout *l, vt_role role, int32_t layer)
{
    const vt_layer *src = &l->model->layer[layer];
    add_one(l, role, layer, src->weight[role], src->scale[role]);
}

void vt_layout_add_pair(vt_layout *l, vt_role pair, vt_role gate, vt_role up, int32_t layer)
{
    const vt_layer *src = &l->model->layer[layer];
    vt_layout_entry *e = vt_layout_add(l, pair, layer);
    vt_layout_stack(e, src->weight[gate], src->scale[gate]);
    vt_layout_stack(e, src->weight[up], src->scale[up]);
    e->paired = true;
}

void vt_layout_add_adapters(vt_layout *l, vt_role role, int32_t layer)
{
    const vt_lora_matrix *m = vt_lora_of(l->model, layer, role);
    for (int32_t i = 0; i < 2 && m; i++) {
        vt_layout_entry *e = vt_layout_add(l, role, layer);
        e->kind = i == 0 ? VT_KIND_LORA_A : VT_KIND_LORA_B;
        snprintf(e->label, sizeof e->label, "L%02d.%s.lora_%c", layer, vt_roles[role].name,
                 "ab"[i]);
        vt_layout_stack(e, i == 0 ? &m->a : &m->b, NULL);
    }
}

/* Adds a block's weights between its norms. NULL: the layer has no such block. */
static vt_status add_block(vt_layout *l, const vt_block *block, int32_t layer, vt_err *err)
{
    if (!block)
        return VT_OK;
    vt_layout_add_role(l, block->norm_role, layer);
    TRY(block->weights(l, layer, err));
    vt_layout_add_role(l, block->post_norm_role, layer);
    vt_layout_add_role(l, block->post_norm_bias_role, layer);
    return VT_OK;
}

static vt_status add_layer(vt_layout *l, int32_t i, vt_err *err)
{
    const vt_layer *src = &l->model->layer[i];
    TRY(add_block(l, vt_blocks[src->mixer], i, err));
    TRY(add_block(l, vt_blocks[src->ffn], i, err));
    vt_layout_add_role(l, VT_ROLE_PER_LAYER_GATE, i);
    vt_layout_add_role(l, VT_ROLE_PER_LAYER_OUT, i);
    vt_layout_add_role(l, VT_ROLE_PER_LAYER_POST_NORM, i);
    vt_layout_add_role(l, VT_ROLE_LAYER_SCALE, i);
    return VT_OK;
}

/* Adds the matrix of an EAGLE-3 head that its model runs, in parts: one for each layer that it
 * reads. */
static void add_aux(vt_layout *l)
{
    const vt_tensor *in = l->model->aux.in;
    for (int32_t k = 0; k < VT_AUX_LAYERS && in && !l->model->eagle.is; k++) {
        add_one(l, (vt_role)(VT_ROLE_AUX + k), -1, in, NULL);
        vt_layout_part *p = &l->entry[l->n - 1].part[0];
        p->cols = in->dim[1] / VT_AUX_LAYERS;
        p->col = k * p->cols;
    }
}

vt_status vt_layout_make(const vt_model *m, vt_layout **out, vt_err *err)
{
    const vt_arch *a = &m->arch;
    size_t most = ((size_t)a->n_layers + 1) * VT_ROLES * (m->lora ? 3 : 1);
    vt_layout *l = vt_calloc(1, sizeof *l);
    if (l)
        l->entry = vt_calloc(most, sizeof *l->entry);
    if (!l || !l->entry) {
        vt_layout_free(l);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a list of the weights of %s",
                       m->name);
    }
    l->model = m;
    add_one(l, VT_ROLE_EMBED, -1, m->embed, NULL);
    add_one(l, VT_ROLE_POSITIONS, -1, m->positions, NULL);
    add_one(l, VT_ROLE_TYPES, -1, m->types, NULL);
    add_one(l, VT_ROLE_EMBED_NORM, -1, m->embed_norm, NULL);
    add_one(l, VT_ROLE_EMBED_NORM_BIAS, -1, m->embed_norm_bias, NULL);
    add_one(l, VT_ROLE_PER_LAYER, -1, m->per_layer, NULL);
    add_one(l, VT_ROLE_PER_LAYER_IN, -1, m->per_layer_in, NULL);
    add_one(l, VT_ROLE_PER_LAYER_NORM, -1, m->per_layer_norm, NULL);
    add_one(l, VT_ROLE_MTP_EMBED_NORM, -1, m->mtp.embed_norm, NULL);
    add_one(l, VT_ROLE_MTP_HIDDEN_NORM, -1, m->mtp.hidden_norm, NULL);
    add_one(l, VT_ROLE_MTP_IN, -1, m->mtp.in, NULL);
    add_aux(l);
    for (int32_t i = 0; i < a->n_layers; i++) {
        vt_status status = add_layer(l, i, err);
        if (status != VT_OK) {
            vt_layout_free(l);
            return status;
        }
    }
    add_one(l, VT_ROLE_FINAL_NORM, -1, m->final_norm, NULL);
    add_one(l, VT_ROLE_HEAD, -1, m->head, NULL);
    for (int32_t i = 0; i < a->n_ropes; i++)
        vt_layout_add(l, (vt_role)(VT_ROLE_ROPE + i), -1)->rope = &a->rope[i];
    *out = l;
    return VT_OK;
}

void vt_layout_free(vt_layout *l)
{
    if (!l)
        return;
    free(l->entry);
    free(l);
}

/* ---- views ---- */

int64_t vt_layout_rows(const vt_layout_entry *e)
{
    int64_t rows = 0;
    for (int32_t i = 0; i < e->n_parts; i++)
        rows += e->part[i].rows;
    return rows;
}

int64_t vt_layout_matrices(const vt_layout_entry *e)
{
    return e->kind == VT_KIND_EXPERTS ? e->matrices : 1;
}

/* Returns true if [begin, begin + n) lies inside [0, whole), begins at a multiple of `block`, and
 * ends at one or at the end of the tensor. */
static bool on_borders(int64_t begin, int64_t n, int64_t whole, int64_t block)
{
    bool inside = begin >= 0 && n >= 0 && begin <= whole && n <= whole - begin;
    return inside && begin % block == 0 && ((begin + n) % block == 0 || begin + n == whole);
}

/* A view of rows [row, row + rows) and columns [col, col + cols) of a tensor. */
static vt_status range_view(const vt_layout_entry *e, const vt_tensor *whole, int64_t row,
                            int64_t rows, int64_t col, int64_t cols, vt_tensor *out, vt_err *err)
{
    int64_t block = vt_dtype_get(whole->dtype)->block;
    if (!on_borders(row, rows, whole->dim[0], 1) || !on_borders(col, cols, whole->dim[1], block))
        return vt_fail(err, VT_ERR_USAGE,
                       "%s: rows %lld to %lld and columns %lld to %lld are no range of a tensor of "
                       "[%lld, %lld] in blocks of %lld columns",
                       e->label, (long long)row, (long long)(row + rows), (long long)col,
                       (long long)(col + cols), (long long)whole->dim[0], (long long)whole->dim[1],
                       (long long)block);
    *out = *whole;
    out->dim[0] = rows;
    out->dim[1] = cols;
    if (whole->data)
        out->data = (char *)whole->data +
                    row * vt_dtype_row_bytes(whole->dtype, whole->row_stride) +
                    vt_dtype_row_bytes(whole->dtype, col);
    return VT_OK;
}

/* Returns true if [begin, begin + n) lies on borders of scales, or inside of one block. */
static bool on_scales(int64_t begin, int64_t n, int64_t whole)
{
    bool inside = n > 0 && begin / SCALE_BLOCK == (begin + n - 1) / SCALE_BLOCK;
    return on_borders(begin, n, whole, SCALE_BLOCK) || (inside && on_borders(begin, n, whole, 1));
}

/* The scales of a part of FP8 tensor `of`: all of `scale` if the part is the whole tensor or there
 * is one scale for it, else those of the blocks that the part covers. */
static vt_status scale_view(const vt_layout_entry *e, const vt_layout_part *p, const vt_tensor *of,
                            const vt_tensor *scale, vt_tensor *out, vt_err *err)
{
    *out = *scale;
    bool whole = p->rows == of->dim[0] && p->cols == of->dim[1];
    if (whole || vt_tensor_elems(scale) == 1)
        return VT_OK;
    if (!on_scales(p->row, p->rows, of->dim[0]) ||
        !on_borders(p->col, p->cols, of->dim[1], SCALE_BLOCK))
        return vt_fail(err, VT_ERR_USAGE,
                       "%s: row %lld, column %lld of an FP8 tensor lies inside a block of %d x %d "
                       "weights that share a scale; a range must begin and end between blocks",
                       e->label, (long long)p->row, (long long)p->col, SCALE_BLOCK, SCALE_BLOCK);
    return range_view(e, scale, p->row / SCALE_BLOCK, vt_ceil_div(p->rows, SCALE_BLOCK),
                      p->col / SCALE_BLOCK, vt_ceil_div(p->cols, SCALE_BLOCK), out, err);
}

/* Matrix i of those that the entry has of an experts' tensor; the tensor itself in others. */
static vt_tensor matrix_of(const vt_layout_entry *e, const vt_tensor *t, int64_t i)
{
    return e->kind == VT_KIND_EXPERTS ? vt_tensor_matrix(t, e->matrix + i) : *t;
}

vt_status vt_layout_weight(const vt_layout_entry *e, int64_t i, vt_arena *arena, vt_weight *out,
                           vt_err *err)
{
    vt_weight w = {.n_parts = e->n_parts,
                   .paired = e->paired,
                   .cols = e->part[0].cols,
                   .dtype = e->part[0].tensor->dtype,
                   .rows = vt_layout_rows(e)};
    if (e->kind == VT_KIND_EXPERTS)
        w.n_experts = (int32_t)vt_layout_matrices(e);
    vt_tensor *view = vt_arena_alloc(arena, 2 * (size_t)e->n_parts, sizeof *view);
    if (!view)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory for views of its tensors", e->label);
    for (int32_t k = 0; k < e->n_parts; k++) {
        const vt_layout_part *p = &e->part[k];
        vt_tensor whole = matrix_of(e, p->tensor, i);
        TRY(range_view(e, &whole, p->row, p->rows, p->col, p->cols, &view[2 * k], err));
        w.part[k] = &view[2 * k];
        if (!p->scale)
            continue;
        vt_tensor scale = matrix_of(e, p->scale, i);
        TRY(scale_view(e, p, &whole, &scale, &view[2 * k + 1], err));
        w.scale[k] = &view[2 * k + 1];
    }
    *out = w;
    return VT_OK;
}

vt_status vt_layout_tensor(const vt_layout_entry *e, vt_tensor *out, vt_err *err)
{
    const vt_layout_part *p = &e->part[0];
    const vt_tensor *t = p->tensor;
    if (e->kind != VT_KIND_VECTOR)
        return range_view(e, t, p->row, p->rows, p->col, p->cols, out, err);
    if (!on_borders(p->row, p->rows, t->dim[0], vt_dtype_get(t->dtype)->block))
        return vt_fail(err, VT_ERR_USAGE, "%s: elements %lld to %lld are no range of %lld",
                       e->label, (long long)p->row, (long long)(p->row + p->rows),
                       (long long)t->dim[0]);
    *out = *t;
    out->dim[0] = out->row_stride = p->rows;
    if (t->data)
        out->data = (char *)t->data + vt_dtype_row_bytes(t->dtype, p->row);
    return VT_OK;
}

void vt_layout_floats(const vt_layout_entry *e, float *out)
{
    for (int32_t k = 0; k < e->n_parts; k++) {
        const vt_layout_part *p = &e->part[k];
        bool vector = e->kind == VT_KIND_VECTOR;
        int64_t rows = vector ? 1 : p->rows, cols = vector ? p->rows : p->cols;
        if (!p->tensor)
            for (int64_t i = 0; i < cols; i++)
                out[i] = 0;
        const vt_tensor *t = p->tensor;
        for (int64_t r = 0; t && r < rows; r++) {
            int64_t at = vector ? p->row : (p->row + r) * t->row_stride + p->col;
            vt_dequant_row(t->dtype, (const char *)t->data + vt_dtype_row_bytes(t->dtype, at),
                           out + r * cols, cols);
        }
        out += rows * cols;
    }
}
