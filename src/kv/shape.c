/* Making and measuring the shape of a KV cache (kv/shape.h). */
#include "kv/shape.h"

void vt_kv_shape_of(const vt_model *m, vt_dtype dtype, vt_kv_shape *out)
{
    const vt_arch *a = &m->arch;
    *out = (vt_kv_shape){.n_groups = 1, .dtype = dtype};
    out->group[0] = (vt_kv_group){a->n_layers, a->n_kv_heads, a->head_dim};
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
    (void)m;
    return layer;
}

size_t vt_kv_pool_page_bytes(const vt_kv_shape *s, int32_t group, int32_t page_size)
{
    const vt_kv_group *g = &s->group[group];
    return (size_t)g->kv_heads * (size_t)page_size *
           (size_t)vt_dtype_row_bytes(s->dtype, g->head_dim);
}

size_t vt_kv_page_bytes(const vt_kv_shape *s, int32_t page_size)
{
    size_t bytes = 0;
    for (int32_t g = 0; g < s->n_groups; g++)
        bytes += 2 * (size_t)s->group[g].n_layers * vt_kv_pool_page_bytes(s, g, page_size);
    return bytes;
}
