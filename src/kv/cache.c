/* The bytes of the KV cache in CPU memory (kv/cache.h): one block, cut into a K and a V pool per
 * layer.
 *
 *   base: | k[0] | v[0] | k[1] | v[1] | ...      each [pages, kv_heads, page_size, head_dim]
 *
 * The pools of a group lie together. It is one block rather than 2 * n_layers of them, because huge
 * pages are handed out in whole blocks. A cache that is reserved generously costs nothing until its
 * pages are first written. */
#include "kv/cache.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "base/mem.h"

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

/* Returns how many pages the pools of a group have. */
static int32_t pages_of(const vt_kv_shape *s, int32_t group, int32_t n_pages, int32_t n_windows)
{
    return s->group[group].windowed && n_windows > 0 ? n_windows : n_pages;
}

int32_t vt_kv_cache_pages(const vt_kv_cache *c, int32_t group)
{
    return pages_of(&c->shape, group, c->n_pages, c->n_windows);
}

vt_status vt_kv_cache_init(vt_kv_cache *c, const vt_kv_shape *shape, int32_t n_pages,
                           int32_t n_windows, int32_t page_size, int32_t first_page, vt_err *err)
{
    int32_t n = vt_kv_layers(shape), at = 0;
    *c = (vt_kv_cache){.shape = *shape,
                       .n_pages = n_pages,
                       .n_windows = n_windows,
                       .page_size = page_size,
                       .first_page = first_page};
    c->k = vt_calloc((size_t)n, sizeof *c->k);
    c->v = vt_calloc((size_t)n, sizeof *c->v);
    size_t states = (size_t)shape->n_state_layers;
    c->state = states > 0 ? vt_calloc(states, sizeof *c->state) : NULL;
    if (!c->k || !c->v || (states > 0 && !c->state)) {
        vt_kv_cache_release(c);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the KV cache's description");
    }
    for (size_t i = 0; i < states; i++) {
        c->state[i] = vt_tensor_2d(NULL, VT_F32, 0, (int64_t)(shape->state_bytes / sizeof(float)));
        c->state[i].name = "state";
    }
    for (int32_t g = 0; g < shape->n_groups; g++)
        for (int32_t i = 0; i < shape->group[g].n_layers; i++, at++) {
            const vt_kv_group *group = &shape->group[g];
            c->k[at] = (vt_tensor){.dtype = shape->dtype,
                                   .rank = 4,
                                   .dim = {first_page + vt_kv_cache_pages(c, g), group->kv_heads,
                                           page_size, group->head_dim},
                                   .row_stride = group->head_dim,
                                   .name = "k_pool"};
            c->v[at] = c->k[at];
            c->v[at].name = "v_pool";
        }
    return VT_OK;
}

void vt_kv_cache_place(vt_kv_cache *c, int32_t group, void *base, size_t stride)
{
    int32_t first = 0;
    for (int32_t g = 0; g < group; g++)
        first += c->shape.group[g].n_layers;
    int32_t pools = vt_kv_pools(&c->shape.group[group]);
    for (int32_t i = 0; i < c->shape.group[group].n_layers; i++) {
        c->k[first + i].data = (char *)base + (size_t)(pools * i) * stride;
        c->v[first + i].data = (char *)base + (size_t)(pools * (i + 1) - 1) * stride;
    }
}

/* Sets bytes[g] to the distance of two pools of group g, and *sum to the bytes of all pools. */
static bool pool_bytes(const vt_kv_shape *s, int32_t n_pages, int32_t n_windows, int32_t page_size,
                       size_t bytes[VT_KV_GROUPS], size_t *sum)
{
    *sum = 0;
    for (int32_t g = 0; g < s->n_groups; g++) {
        size_t all, pages = (size_t)pages_of(s, g, n_pages, n_windows);
        if (!vt_mul_size(vt_kv_pool_page_bytes(s, g, page_size), pages, &bytes[g]))
            return false;
        bytes[g] = vt_round_up(bytes[g], VT_CACHE_LINE);
        size_t pools = (size_t)(vt_kv_pools(&s->group[g]) * s->group[g].n_layers);
        if (!vt_mul_size(bytes[g], pools, &all) || all > SIZE_MAX - *sum)
            return false;
        *sum += all;
    }
    return true;
}

vt_status vt_kv_cache_init_cpu(vt_kv_cache *c, const vt_kv_shape *shape, int32_t n_pages,
                               int32_t n_windows, int32_t page_size, vt_err *err)
{
    vt_kv_cache kv;
    size_t pool[VT_KV_GROUPS], bytes;
    if (!pool_bytes(shape, n_pages, n_windows, page_size, pool, &bytes))
        return vt_fail(err, VT_ERR_MEMORY,
                       "a KV cache of %d pages of %zu bytes is beyond the address space", n_pages,
                       vt_kv_page_bytes(shape, page_size));
    TRY(vt_kv_cache_init(&kv, shape, n_pages, n_windows, page_size, 0, err));
    kv.bytes = bytes;
    kv.base = vt_pages_alloc(bytes);
    if (!kv.base) {
        vt_kv_cache_release(&kv);
        return vt_fail(err, VT_ERR_MEMORY,
                       "out of memory for a KV cache of %zu MiB (option kv-memory sets it)",
                       bytes >> 20);
    }
    /* No huge pages: a request touches a little of every layer's pool. With huge pages the first
     * request made the system zero 2 MiB of each: 120 MB and 250 ms for SmolLM2's first token. */
    madvise(kv.base, kv.bytes, MADV_NOHUGEPAGE);
    char *at = kv.base;
    for (int32_t g = 0; g < shape->n_groups; g++) {
        vt_kv_cache_place(&kv, g, at, pool[g]);
        at += (size_t)(vt_kv_pools(&shape->group[g]) * shape->group[g].n_layers) * pool[g];
    }
    *c = kv;
    return VT_OK;
}

size_t vt_kv_cache_window_bytes(const vt_kv_cache *c)
{
    return c->n_windows > 0 ? vt_kv_window_page_bytes(&c->shape, c->page_size) : 0;
}

size_t vt_kv_cache_page_bytes(const vt_kv_cache *c)
{
    return vt_kv_page_bytes(&c->shape, c->page_size) - vt_kv_cache_window_bytes(c);
}

size_t vt_kv_cache_all_bytes(const vt_kv_cache *c)
{
    return vt_kv_cache_page_bytes(c) * (size_t)c->n_pages +
           vt_kv_cache_window_bytes(c) * (size_t)c->n_windows;
}

void vt_kv_cache_place_states(vt_kv_cache *c, int32_t n_states, void *base)
{
    size_t layer = (size_t)n_states * c->shape.state_bytes;
    c->state_bytes = (size_t)c->shape.n_state_layers * layer;
    c->n_states = n_states;
    for (int32_t i = 0; i < c->shape.n_state_layers; i++) {
        c->state[i].dim[0] = n_states;
        c->state[i].data = (char *)base + (size_t)i * layer;
    }
}

vt_status vt_kv_cache_add_states_cpu(vt_kv_cache *c, int32_t n_states, vt_err *err)
{
    size_t slot = vt_kv_slot_bytes(&c->shape), bytes;
    if (slot == 0 || n_states == 0)
        return VT_OK;
    if (vt_mul_size(slot, (size_t)n_states, &bytes))
        c->state_base = vt_pages_alloc(bytes);
    if (!c->state_base)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d state slots of %zu bytes",
                       n_states, slot);
    vt_kv_cache_place_states(c, n_states, c->state_base);
    return VT_OK;
}

void vt_kv_cache_release(vt_kv_cache *c)
{
    if (c->state_base)
        vt_pages_free(c->state_base, c->state_bytes);
    free(c->state);
    if (c->base)
        vt_pages_free(c->base, c->bytes);
    free(c->k);
    free(c->v);
    *c = (vt_kv_cache){0};
}
