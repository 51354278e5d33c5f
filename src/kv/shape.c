/* Making and measuring the shape of a KV cache (kv/shape.h). */
#include "kv/shape.h"

void vt_kv_shape_of(const vt_model *m, vt_dtype dtype, vt_kv_shape *out)
{
    *out = (vt_kv_shape){.dtype = dtype};
    for (int32_t i = 0; i < m->arch.n_layers; i++) {
        const vt_layer *l = &m->layer[i];
        vt_kv_group *g = &out->group[l->kv_group];
        if (l->state_bytes > 0) {
            out->n_state_layers++;
            out->state_bytes = (size_t)l->state_bytes;
        }
        if (!vt_layer_attends(l) || l->kv_of != i)
            continue;
        *g = (vt_kv_group){g->n_layers + 1, l->head.kv_heads, l->head.dim, l->head.v_dim > 0,
                           l->head.window > 0};
        if (out->n_groups <= l->kv_group)
            out->n_groups = l->kv_group + 1;
    }
}

int32_t vt_kv_layers(const vt_kv_shape *s)
{
    int32_t n = 0;
    for (int32_t g = 0; g < s->n_groups; g++)
        n += s->group[g].n_layers;
    return n;
}

int32_t vt_kv_pool_of(const vt_model *m, int32_t layer)
{
    int32_t of = m->layer[layer].kv_of, group = m->layer[of].kv_group, n = 0;
    for (int32_t i = 0; i < m->arch.n_layers; i++) {
        int32_t g = m->layer[i].kv_group;
        n += vt_layer_attends(&m->layer[i]) && m->layer[i].kv_of == i &&
             (g < group || (g == group && i < of));
    }
    return n;
}

int32_t vt_kv_state_of(const vt_model *m, int32_t layer)
{
    int32_t n = 0;
    for (int32_t i = 0; i < layer; i++)
        n += m->layer[i].state_bytes > 0;
    return n;
}

size_t vt_kv_slot_bytes(const vt_kv_shape *s) { return (size_t)s->n_state_layers * s->state_bytes; }

int32_t vt_kv_pools(const vt_kv_group *g) { return g->v_in_k ? 1 : 2; }

size_t vt_kv_pool_page_bytes(const vt_kv_shape *s, int32_t group, int32_t page_size)
{
    const vt_kv_group *g = &s->group[group];
    return (size_t)g->kv_heads * (size_t)page_size *
           (size_t)vt_dtype_row_bytes(s->dtype, g->head_dim);
}

static size_t group_page_bytes(const vt_kv_shape *s, int32_t group, int32_t page_size)
{
    const vt_kv_group *g = &s->group[group];
    return (size_t)(vt_kv_pools(g) * g->n_layers) * vt_kv_pool_page_bytes(s, group, page_size);
}

size_t vt_kv_page_bytes(const vt_kv_shape *s, int32_t page_size)
{
    size_t bytes = 0;
    for (int32_t g = 0; g < s->n_groups; g++)
        bytes += group_page_bytes(s, g, page_size);
    return bytes;
}

size_t vt_kv_window_page_bytes(const vt_kv_shape *s, int32_t page_size)
{
    size_t bytes = 0;
    for (int32_t g = 0; g < s->n_groups; g++)
        bytes += s->group[g].windowed ? group_page_bytes(s, g, page_size) : 0;
    return bytes;
}

int32_t vt_kv_window(const vt_model *m)
{
    int32_t most = 0;
    for (int32_t i = 0; i < m->arch.n_layers; i++) {
        const vt_layer *l = &m->layer[i];
        if (!vt_layer_attends(l) || m->layer[l->kv_of].head.window == 0)
            continue;
        if (l->head.window == 0 || l->head.after > 0)
            return 0;
        most = l->head.window > most ? l->head.window : most;
    }
    return most;
}
