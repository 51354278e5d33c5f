/* The place of each entry of a layout in a vt_weights (exec/weights.h). */
#include "exec/weights.h"

#include "base/err.h"

static vt_layer_weights *place(vt_weights *w, const vt_layout_entry *e)
{
    return e->layer >= 0 ? &w->layer[e->layer] : &w->ends;
}

vt_weight *vt_weights_matrix(vt_weights *w, const vt_layout_entry *e)
{
    vt_weight **at = &place(w, e)->weight[e->role];
    if (!*at)
        *at = vt_arena_alloc(&w->arena, (size_t)vt_layout_matrices(e), sizeof **at);
    return *at;
}

const vt_tensor **vt_weights_tensor(vt_weights *w, const vt_layout_entry *e)
{
    vt_layer_weights *at = place(w, e);
    return e->kind == VT_KIND_LORA_A   ? &at->lora_a[e->role]
           : e->kind == VT_KIND_LORA_B ? &at->lora_b[e->role]
                                       : &at->tensor[e->role];
}

vt_status vt_weights_init(vt_weights *w, const vt_layout *l, vt_err *err)
{
    const vt_model *m = l->model;
    *w = (vt_weights){.model = m};
    vt_arena_init(&w->arena, 0);
    w->layer = vt_arena_alloc(&w->arena, (size_t)m->arch.n_layers, sizeof *w->layer);
    if (!w->layer)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the weights of %s", m->name);
    for (int32_t i = 0; i < l->n; i++) {
        const vt_layout_entry *e = &l->entry[i];
        if (e->role == VT_ROLE_EMBED)
            w->first_token = (int32_t)e->part[0].row;
        if (e->role == VT_ROLE_EXPERT_DOWN) {
            w->first_expert = (int32_t)e->matrix;
            w->n_experts = (int32_t)vt_layout_matrices(e);
        }
    }
    for (int32_t i = 0; i < m->arch.n_layers; i++) {
        w->layer[i].kv_k_scale = m->layer[i].kv_k_scale;
        w->layer[i].kv_v_scale = m->layer[i].kv_v_scale;
    }
    return VT_OK;
}

void vt_weights_release(vt_weights *w)
{
    vt_pages_free(w->memory, (size_t)w->packed_bytes);
    vt_arena_release(&w->arena);
}
