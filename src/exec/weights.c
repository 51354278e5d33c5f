/* The place of each entry of a layout in a vt_weights (exec/weights.h). */
#include "exec/weights.h"

#include <stddef.h>

#include "base/err.h"

/* Offsets in vt_layer_weights, or in vt_weights for entries outside the layers. */
#define LAYER(member) offsetof(vt_layer_weights, member)
#define MODEL(member) offsetof(vt_weights, member)
static const size_t place_of[VT_ROLE_COUNT] = {
    [VT_ROLE_EMBED] = MODEL(embed),
    [VT_ROLE_ATTN_NORM] = LAYER(attn_norm),
    [VT_ROLE_QKV] = LAYER(qkv[0]),
    [VT_ROLE_Q] = LAYER(qkv[0]),
    [VT_ROLE_K] = LAYER(qkv[1]),
    [VT_ROLE_V] = LAYER(qkv[2]),
    [VT_ROLE_QKV_BIAS] = LAYER(qkv_bias),
    [VT_ROLE_Q_BIAS] = LAYER(q_bias),
    [VT_ROLE_K_BIAS] = LAYER(k_bias),
    [VT_ROLE_V_BIAS] = LAYER(v_bias),
    [VT_ROLE_Q_NORM] = LAYER(q_norm),
    [VT_ROLE_K_NORM] = LAYER(k_norm),
    [VT_ROLE_O] = LAYER(o),
    [VT_ROLE_O_BIAS] = LAYER(o_bias),
    [VT_ROLE_POST_ATTN_NORM] = LAYER(post_attn_norm),
    [VT_ROLE_FFN_NORM] = LAYER(ffn_norm),
    [VT_ROLE_ROUTER] = LAYER(router),
    [VT_ROLE_EXPERT_GATE_UP] = LAYER(expert_gate_up),
    [VT_ROLE_EXPERT_DOWN] = LAYER(expert_down),
    [VT_ROLE_GATE_UP] = LAYER(gate_up[0]),
    [VT_ROLE_GATE] = LAYER(gate_up[0]),
    [VT_ROLE_UP] = LAYER(gate_up[1]),
    [VT_ROLE_GATE_BIAS] = LAYER(gate_bias),
    [VT_ROLE_UP_BIAS] = LAYER(up_bias),
    [VT_ROLE_DOWN] = LAYER(down),
    [VT_ROLE_DOWN_BIAS] = LAYER(down_bias),
    [VT_ROLE_POST_FFN_NORM] = LAYER(post_ffn_norm),
    [VT_ROLE_FINAL_NORM] = MODEL(final_norm),
    [VT_ROLE_HEAD] = MODEL(head),
    [VT_ROLE_ROPE] = MODEL(rope_table),
    [VT_ROLE_ROPE_LOCAL] = MODEL(rope_local_table),
};

static void *place(vt_weights *w, const vt_layout_entry *e)
{
    char *base = e->layer >= 0 ? (char *)&w->layer[e->layer] : (char *)w;
    return base + place_of[e->role];
}

vt_weight *vt_weights_matrix(vt_weights *w, const vt_layout_entry *e) { return place(w, e); }

vt_weight *vt_weights_experts(vt_weights *w, const vt_layout_entry *e)
{
    vt_weight **at = place(w, e);
    if (!*at)
        *at = vt_arena_alloc(&w->arena, (size_t)vt_layout_matrices(e), sizeof **at);
    return *at;
}

const vt_tensor **vt_weights_tensor(vt_weights *w, const vt_layout_entry *e) { return place(w, e); }

vt_status vt_weights_init(vt_weights *w, const vt_layout *l, vt_err *err)
{
    const vt_model *m = l->model;
    *w = (vt_weights){.model = m};
    vt_arena_init(&w->arena, 0);
    w->layer = vt_arena_alloc(&w->arena, (size_t)m->arch.n_layers, sizeof *w->layer);
    if (!w->layer)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the weights of %s", m->name);
    for (int32_t i = 0; i < m->arch.n_layers; i++) {
        w->layer[i].kv_k_scale = m->layer[i].kv_k_scale;
        w->layer[i].kv_v_scale = m->layer[i].kv_v_scale;
    }
    for (int32_t i = 0; i < l->n; i++) {
        const vt_layout_entry *e = &l->entry[i];
        if (e->role == VT_ROLE_QKV)
            w->layer[e->layer].n_qkv = 1;
        if (e->role == VT_ROLE_Q)
            w->layer[e->layer].n_qkv = 3;
        if (e->role == VT_ROLE_GATE_UP)
            w->layer[e->layer].n_gate_up = 1;
        if (e->role == VT_ROLE_GATE)
            w->layer[e->layer].n_gate_up = 2;
    }
    return VT_OK;
}

void vt_weights_release(vt_weights *w)
{
    vt_pages_free(w->memory, (size_t)w->packed_bytes);
    vt_arena_release(&w->arena);
}
