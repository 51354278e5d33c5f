/* The bytes of the KV cache in CPU memory (kv/cache.h): one block, cut into a K and a V pool per
 * layer.
 *
 *   base: | k[0] | v[0] | k[1] | v[1] | ...      each [pages, kv_heads, page_size, head_dim]
 *
 * It is one block rather than 2 * n_layers of them, because huge pages are handed out in whole
 * blocks. A cache that is reserved generously costs nothing until its pages are first written. */
#include "kv/cache.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "base/mem.h"

size_t vt_kv_page_bytes(int32_t n_layers, int32_t kv_heads, int32_t page_size, int32_t head_dim,
                        vt_dtype dtype)
{
    return 2 * (size_t)n_layers * (size_t)kv_heads * (size_t)page_size *
           (size_t)vt_dtype_row_bytes(dtype, head_dim);
}

vt_dtype vt_kv_choose_dtype(const char *name, bool on_gpu, vt_dtype weights)
{
    static const struct {
        const char *name;
        vt_dtype type;
    } named[] = {{"f32", VT_F32}, {"f16", VT_F16}, {"bf16", VT_BF16}, {"fp8", VT_FP8_E4M3}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strcmp(name, named[i].name) == 0)
            return named[i].type;
    if (on_gpu)
        return VT_BF16;
    return weights == VT_F32 ? VT_F32 : VT_F16;
}

static vt_tensor pool_tensor(const vt_kv_cache *c, char *at, const char *name)
{
    return (vt_tensor){.data = at,
                       .dtype = c->dtype,
                       .rank = 4,
                       .dim = {c->n_pages, c->kv_heads, c->page_size, c->head_dim},
                       .row_stride = c->head_dim,
                       .name = name};
}

vt_status vt_kv_cache_init_cpu(vt_kv_cache *c, int32_t n_layers, int32_t n_pages, int32_t page_size,
                               int32_t kv_heads, int32_t head_dim, vt_dtype dtype, vt_err *err)
{
    vt_kv_cache kv = {.n_layers = n_layers,
                      .n_pages = n_pages,
                      .page_size = page_size,
                      .kv_heads = kv_heads,
                      .head_dim = head_dim,
                      .dtype = dtype,
                      .device = VT_DEVICE_CPU};
    size_t page = vt_kv_page_bytes(1, kv_heads, page_size, head_dim, dtype) / 2, pool,
           tensors = (size_t)n_layers;
    if (!vt_mul_size(page, (size_t)n_pages, &pool) ||
        !vt_mul_size(vt_round_up(pool, VT_CACHE_LINE), 2 * tensors, &kv.bytes))
        return vt_fail(err, VT_ERR_MEMORY,
                       "a KV cache of %d pages of %zu bytes a layer is beyond the address space",
                       n_pages, 2 * page);
    pool = vt_round_up(pool, VT_CACHE_LINE);
    kv.k = vt_calloc(tensors, sizeof *kv.k);
    kv.v = vt_calloc(tensors, sizeof *kv.v);
    kv.base = vt_pages_alloc(kv.bytes);
    if (!kv.k || !kv.v || !kv.base) {
        size_t mib = kv.bytes >> 20;
        vt_kv_cache_release(&kv);
        return vt_fail(err, VT_ERR_MEMORY,
                       "out of memory for a KV cache of %zu MiB (option kv-memory sets it)", mib);
    }
    /* No huge pages: a request touches a little of every layer's pool. With huge pages the first
     * request made the system zero 2 MiB of each: 120 MB and 250 ms for SmolLM2's first token. */
    madvise(kv.base, kv.bytes, MADV_NOHUGEPAGE);
    for (int32_t l = 0; l < n_layers; l++) {
        kv.k[l] = pool_tensor(&kv, (char *)kv.base + (2 * (size_t)l) * pool, "k_pool");
        kv.v[l] = pool_tensor(&kv, (char *)kv.base + (2 * (size_t)l + 1) * pool, "v_pool");
    }
    *c = kv;
    return VT_OK;
}

void vt_kv_cache_release(vt_kv_cache *c)
{
    if (c->base)
        vt_pages_free(c->base, c->bytes);
    free(c->k);
    free(c->v);
    *c = (vt_kv_cache){0};
}
