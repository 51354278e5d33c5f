/* The layers of a model, all alike, and what makes some of them differ (model/assemble.h). */
#include "model/assemble.h"
#include "model/family.h"

vt_status model_make_layers(vt_model *m, vt_err *err)
{
    const vt_arch *a = &m->arch;
    const vt_family *f = m->family;
    m->layer = vt_arena_alloc(&m->arena, (size_t)a->n_layers, sizeof *m->layer);
    if (!m->layer)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", m->path);
    uint8_t ffn = f && f->experts ? VT_BLOCK_EXPERTS : f && f->mlp ? VT_BLOCK_MLP : VT_BLOCK_FFN;
    for (int32_t i = 0; i < a->n_layers; i++)
        m->layer[i] = (vt_layer){.mixer = VT_BLOCK_ATTENTION,
                                 .ffn = ffn,
                                 .norms = f && f->norms ? f->norms : VT_NORM_BEFORE,
                                 .head = {.heads = a->n_heads,
                                          .kv_heads = a->n_kv_heads,
                                          .dim = a->head_dim,
                                          .window = a->window,
                                          .rope = f && f->no_rope ? -1 : 0,
                                          .after = f && f->encoder ? INT32_MAX : 0,
                                          .norm_rotated = f && f->norm_rotated},
                                 .kv_of = (int16_t)i};
    return VT_OK;
}

void model_temper(vt_model *m, double temper)
{
    vt_arch *a = &m->arch;
    if (temper == 0)
        return;
    a->n_ropes = 2;
    a->rope[1] = a->rope[0];
    a->rope[1].temper = temper;
    for (int32_t i = 0; i < a->n_layers; i++)
        m->layer[i].head.q_rope_next = true;
}

void model_keep_state(vt_model *m, int32_t layer, vt_block_kind mixer)
{
    vt_layer *l = &m->layer[layer];
    int64_t state = model_state_bytes(&m->arch, mixer);
    l->mixer = (uint8_t)mixer;
    l->state_bytes = state > 0 && state < INT32_MAX ? (int32_t)state : 0; /* arch_check compares */
}

void model_see_both_ways(vt_model *m)
{
    for (int32_t i = 0; i < m->arch.n_layers; i++) {
        vt_heads *h = &m->layer[i].head;
        int32_t half = h->window / 2;
        h->after = h->window > 0 ? half : INT32_MAX;
        h->window = h->window > 0 ? half + 1 : 0;
    }
}
