/* The shape of a model's KV cache, made once from the model. Caches, sizes and the simulator take
 * it whole.
 *
 * A layer that stores keys and values has a K and a V pool. Layers whose heads are alike are a
 * group, and the pools of a group have one shape. A page of tokens is a page in every pool, so one
 * list of pages serves all groups. */
#ifndef VT_KV_SHAPE_H
#define VT_KV_SHAPE_H

#include "model/model.h"

typedef struct vt_kv_group {
    int32_t n_layers, kv_heads, head_dim;
} vt_kv_group;

typedef struct vt_kv_shape {
    vt_kv_group group[VT_KV_GROUPS];
    int32_t n_groups;
    vt_dtype dtype;
} vt_kv_shape;

void vt_kv_shape_of(const vt_model *m, vt_dtype dtype, vt_kv_shape *out);
/* Returns the number of layers that store keys and values. Pools are numbered group by group. */
int32_t vt_kv_layers(const vt_kv_shape *s);
/* Returns the number of the pools that a layer of the model reads. */
int32_t vt_kv_pool_of(const vt_model *m, int32_t layer);
/* Returns the bytes of one page of K, or of V, in a layer of the group. */
size_t vt_kv_pool_page_bytes(const vt_kv_shape *s, int32_t group, int32_t page_size);
/* Returns the bytes of one page's K and V in all layers. */
size_t vt_kv_page_bytes(const vt_kv_shape *s, int32_t page_size);

#endif
