/* The shape of a model's KV cache, made once from the model. Caches, sizes and the simulator take
 * it whole.
 *
 * A layer that stores keys and values has a K and a V pool; one of latent attention has a K pool
 * alone, whose rows hold V too. Layers whose heads are alike, and that all have a sliding window or
 * all have none, are a group, and the pools of a group have one shape. A page of tokens is a page
 * in every pool, so one list of pages serves all groups. Or two lists do: one for the layers that
 * read all keys, and one for those with a window, which gives back the pages behind it
 * (kv/radix.h).
 *
 * A layer with sequence state has state slots in place of pools: one number of bytes for a
 * sequence, however long it is. A slot is a slot in every such layer. */
#ifndef VT_KV_SHAPE_H
#define VT_KV_SHAPE_H

#include "model/model.h"

typedef struct vt_kv_group {
    int32_t n_layers, kv_heads, head_dim;
    bool v_in_k;   /* K's rows hold V too: there are no V pools */
    bool windowed; /* its layers have a sliding window */
} vt_kv_group;

typedef struct vt_kv_shape {
    vt_kv_group group[VT_KV_GROUPS];
    int32_t n_groups;
    vt_dtype dtype;
    int32_t n_state_layers;
    size_t state_bytes; /* of a sequence in one such layer; the same in all */
} vt_kv_shape;

void vt_kv_shape_of(const vt_model *m, vt_dtype dtype, vt_kv_shape *out);
/* Returns the number of layers that store keys and values. Pools are numbered group by group. */
int32_t vt_kv_layers(const vt_kv_shape *s);
/* Returns the number of the pools that a layer of the model reads. */
int32_t vt_kv_pool_of(const vt_model *m, int32_t layer);
/* Returns the number of a layer's state slots among those of all layers with sequence state. */
int32_t vt_kv_state_of(const vt_model *m, int32_t layer);
/* Returns the bytes of one state slot in all layers; 0: the model has no sequence state. */
size_t vt_kv_slot_bytes(const vt_kv_shape *s);
/* Returns the number of the pools of one of the group's layers: 2, or 1. */
int32_t vt_kv_pools(const vt_kv_group *g);
/* Returns the bytes of one page in one pool of the group. */
size_t vt_kv_pool_page_bytes(const vt_kv_shape *s, int32_t group, int32_t page_size);
/* Returns the bytes of one page's K and V in all layers, and in those with a window. */
size_t vt_kv_page_bytes(const vt_kv_shape *s, int32_t page_size);
size_t vt_kv_window_page_bytes(const vt_kv_shape *s, int32_t page_size);
/* Returns how many tokens the layers of the groups with a window see at most, counting the token
 * itself. 0: no keys can be given back, since no layer has a window, or some layer reads all keys
 * of one that has, or tokens see those behind them. */
int32_t vt_kv_window(const vt_model *m);

#endif
