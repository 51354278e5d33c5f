/* The memory of the KV cache: one K and one V pool per layer, in pages.
 *
 *   pool l:  k[l] = [pages, kv_heads, page_size, head_dim]     v[l] likewise
 *
 * Where K's rows hold V too, v[l] is k[l].
 *
 * This is only the memory; kv/pool.h keeps account of which pages are in use. */
#ifndef VT_KV_CACHE_H
#define VT_KV_CACHE_H

#include "kv/shape.h"
#include "ops/op.h"

typedef struct vt_kv_cache {
    vt_kv_shape shape;
    int32_t n_pages, page_size;
    int32_t n_windows;  /* pages of the groups with a window; 0: they have n_pages, as the others */
    int32_t first_page; /* where kv/pool.h's page 0 lies; the pages before it serve padding */
    vt_tensor *k, *v;   /* [vt_kv_layers(shape)], group by group */
    void *base;         /* CPU: the block that holds all pools */
    size_t bytes;
    vt_tensor *state; /* [shape.n_state_layers] each [n_states, state_bytes / 4], fp32 */
    int32_t n_states;
    void *state_base;   /* CPU: the block that holds all of them */
    size_t state_bytes; /* of all slots */
} vt_kv_cache;

/* The element type that option kv-dtype names: "f32", "f16", "bf16", "fp8". "auto" is bf16 on a
 * GPU; on a CPU it is f32 for a model whose matrices (`weights`) are f32, else f16. */
vt_dtype vt_kv_choose_dtype(const char *name, bool on_gpu, vt_dtype weights);
/* Makes a cache whose pools have shapes and no memory. first_page pages come before the n_pages.
 * With n_windows the groups with a window have that many pages, which are numbered apart. */
vt_status vt_kv_cache_init(vt_kv_cache *c, const vt_kv_shape *shape, int32_t n_pages,
                           int32_t n_windows, int32_t page_size, int32_t first_page, vt_err *err);
/* Returns how many pages the pools of a group have, without the first_page before them. */
int32_t vt_kv_cache_pages(const vt_kv_cache *c, int32_t group);
/* Places the pools of a group from `base` on, `stride` bytes apart: K and V of its first layer, of
 * the second ... */
void vt_kv_cache_place(vt_kv_cache *c, int32_t group, void *base, size_t stride);
/* Makes a cache in CPU memory; the system provides each page of it when it is first written. */
vt_status vt_kv_cache_init_cpu(vt_kv_cache *c, const vt_kv_shape *shape, int32_t n_pages,
                               int32_t n_windows, int32_t page_size, vt_err *err);
/* Returns the bytes of a page of tokens in the layers whose pages n_pages counts, and of a window
 * page: 0 where there are none. */
size_t vt_kv_cache_page_bytes(const vt_kv_cache *c);
size_t vt_kv_cache_window_bytes(const vt_kv_cache *c);
/* Gives a cache n_states state slots, vt_kv_slot_bytes each, in memory from `base` on. */
void vt_kv_cache_place_states(vt_kv_cache *c, int32_t n_states, void *base);
/* The same in CPU memory of its own, if its model has sequence state. */
vt_status vt_kv_cache_add_states_cpu(vt_kv_cache *c, int32_t n_states, vt_err *err);
/* Returns the bytes of all pages of both kinds. */
size_t vt_kv_cache_all_bytes(const vt_kv_cache *c);
void vt_kv_cache_release(vt_kv_cache *c);

#endif
