/* The memory of the KV cache: one K and one V pool per layer, in pages.
 *
 *   layer l:  k[l] = [pages, kv_heads, page_size, head_dim]     v[l] likewise
 *
 * This is only the memory; kv/pool.h keeps account of which pages are in use. */
#ifndef VT_KV_CACHE_H
#define VT_KV_CACHE_H

#include "base/tensor.h"
#include "ops/op.h"

typedef struct vt_kv_cache {
    int32_t n_layers, n_pages, page_size, kv_heads, head_dim;
    vt_dtype dtype;
    int32_t first_page; /* where kv/pool.h's page 0 lies; the pages before it serve padding */
    vt_tensor *k, *v;   /* [n_layers] */
    vt_device_kind device;
    void *base; /* CPU: the block that holds all pools */
    size_t bytes;
} vt_kv_cache;

/* Bytes of one page's K and V in all layers. */
size_t vt_kv_page_bytes(int32_t n_layers, int32_t kv_heads, int32_t page_size, int32_t head_dim,
                        vt_dtype dtype);
/* The element type that option kv-dtype names: "f32", "f16", "bf16", "fp8". "auto" is bf16 on a
 * GPU; on a CPU it is f32 for a model whose matrices (`weights`) are f32, else f16. */
vt_dtype vt_kv_choose_dtype(const char *name, bool on_gpu, vt_dtype weights);
/* Reserves CPU memory for all pools; the system provides each page of it when it is first written.
 */
vt_status vt_kv_cache_init_cpu(vt_kv_cache *c, int32_t n_layers, int32_t n_pages, int32_t page_size,
                               int32_t kv_heads, int32_t head_dim, vt_dtype dtype, vt_err *err);
void vt_kv_cache_release(vt_kv_cache *c);

#endif
