/* The KV cache's device memory: addresses are reserved for all pages, but only as many pages have
 * memory behind them as are used.
 *
 *   layer 0 K  [padding page | page 0 | page 1 | ...        |  reserved        ]
 *   layer 0 V  [padding page | page 0 | page 1 | ...        |  reserved        ]
 *   ...                                           kv_ready ->|
 *
 * The engine's page p is the device's page p + 1. The device's page 0 is the padding page: padding
 * tokens store their K and V there and nothing reads it.
 *
 * Where layers with a window have pages of their own (kv/radix.h), the pools of these hold window
 * pages, whose number is another, and the same holds for them.
 *
 *   1. At start-up enough pages get memory for one sequence of max-context tokens, and at least an
 *      eighth of all pages.
 *   2. Whenever fewer unused pages of a kind are left than half of an eighth, a thread adds memory
 *      for an eighth more to every pool. Meanwhile the engine continues with the pages that it has.
 *   3. If the device has no more memory, the cache keeps its size. The engine then works with fewer
 *      pages, evicting and retracting sooner, as if kv-memory were smaller. A minute later it is
 *      tried again: the memory may have been another process's, which has ended.
 *
 * The cache grows by a whole eighth at a time because every growth of a pool needs a memory handle
 * of its own, so growths should be few. */
#include <pthread.h>

#include "base/clock.h"
#include "base/err.h"
#include "exec/cuda_inside.h"

enum { GROWTHS = 8 };

/* Pages that one growth adds. */
static vt_kv_count growth_step(const cuda_executor *x)
{
    return (vt_kv_count){(int32_t)vt_ceil_div(x->config.n_pages, GROWTHS),
                         (int32_t)vt_ceil_div(x->config.n_windows, GROWTHS)};
}

/* Pages and window pages for one sequence of max-context tokens and the chunk of its prompt. */
static vt_kv_count sequence_needs(const cuda_executor *x)
{
    const vt_limits *lim = &x->config.limits;
    int64_t seen = (int64_t)x->window + lim->max_tokens + 2 * VT_DECODE_MOST;
    return (vt_kv_count){(int32_t)vt_ceil_div(lim->max_context, lim->page_size),
                         (int32_t)vt_ceil_div(seen, lim->page_size) + 2};
}

static vt_kv_count larger(vt_kv_count a, vt_kv_count b)
{
    return (vt_kv_count){a.pages > b.pages ? a.pages : b.pages,
                         a.windows > b.windows ? a.windows : b.windows};
}

static vt_kv_count ready_now(cuda_executor *x)
{
    return (vt_kv_count){atomic_load(&x->kv_ready), atomic_load(&x->kv_windows_ready)};
}

/* Puts memory behind the first `wanted` pages of every pool (at most as many as it has), and behind
 * the padding page before them. The driver maps memory in large chunks, so more pages than asked
 * may be ready. */
static vt_status back_pages(cuda_executor *x, vt_kv_count wanted, vt_err *err)
{
    int64_t ready[2] = {x->config.n_pages, x->config.n_windows};
    for (int32_t g = 0; g < x->kv.shape.n_groups; g++) {
        bool windows = x->config.n_windows > 0 && x->kv.shape.group[g].windowed;
        int64_t all = vt_kv_cache_pages(&x->kv, g), n = windows ? wanted.windows : wanted.pages;
        size_t page = vt_kv_pool_page_bytes(&x->kv.shape, g, x->kv.page_size);
        TRY(cuda_range_grow(x->cuda, &x->kv_range[g], (size_t)((n < all ? n : all) + 1) * page,
                            err));
        int64_t backed = (int64_t)(x->kv_range[g].mapped / page) - 1;
        ready[windows] = backed < ready[windows] ? backed : ready[windows];
    }
    atomic_store(&x->kv_ready, (int32_t)ready[0]);
    atomic_store(&x->kv_windows_ready, (int32_t)ready[1]);
    return VT_OK;
}

/* Reserves addresses for the pools of each group. */
static vt_status reserve_pools(cuda_executor *x, vt_err *err)
{
    const vt_kv_shape *s = &x->kv.shape;
    for (int32_t g = 0; g < s->n_groups; g++) {
        size_t each = ((size_t)vt_kv_cache_pages(&x->kv, g) + 1) *
                      vt_kv_pool_page_bytes(s, g, x->kv.page_size);
        TRY(cuda_range_init_parts(x->cuda, vt_kv_pools(&s->group[g]) * s->group[g].n_layers, each,
                                  &x->kv_range[g], err));
        vt_kv_cache_place(&x->kv, g, x->kv_range[g].base, x->kv_range[g].stride);
    }
    return VT_OK;
}

/* Clears the padding pages of the groups with a window. The page lists of these name the padding
 * page wherever a window has passed a page, and a kernel reads a whole block of keys of which its
 * window hides some: what it reads there has to be numbers. */
static vt_status clear_padding(cuda_executor *x, vt_err *err)
{
    for (int32_t g = 0; x->config.n_windows > 0 && g < x->kv.shape.n_groups; g++) {
        const vt_kv_group *group = &x->kv.shape.group[g];
        size_t page = vt_kv_pool_page_bytes(&x->kv.shape, g, x->kv.page_size);
        for (int32_t i = 0; group->windowed && i < vt_kv_pools(group) * group->n_layers; i++) {
            char *pool = (char *)x->kv_range[g].base + (size_t)i * x->kv_range[g].stride;
            TRY(vt_cuda_check(x->cuda,
                              x->cuda->driver.fill8(cuda_address(pool), 0, page, x->lane.stream),
                              "clearing", err));
        }
    }
    return VT_OK;
}

/* Gives state slots memory: all of it now, for slots are few and each may be used at once. */
static vt_status make_states(cuda_executor *x, vt_err *err)
{
    size_t slot = vt_kv_slot_bytes(&x->kv.shape);
    if (slot == 0)
        return VT_OK;
    if (x->cuda->context)
        TRY(vt_cuda_alloc(x->cuda, (size_t)x->config.n_states * slot, &x->states, err));
    vt_kv_cache_place_states(&x->kv, x->config.n_states, x->states);
    return VT_OK;
}

vt_status cuda_kv_make(cuda_executor *x, vt_err *err)
{
    const vt_limits *lim = &x->config.limits;
    vt_kv_shape shape;
    vt_ranks_kv_shape(x->model, x->config.kv_dtype, &x->is, &shape);
    TRY(vt_kv_cache_init(&x->kv, &shape, x->config.n_pages, x->config.n_windows, lim->page_size, 1,
                         err));
    TRY(make_states(x, err));
    if (!x->cuda->context)
        return VT_OK;
    TRY(reserve_pools(x, err));
    TRY(back_pages(x, larger(sequence_needs(x), growth_step(x)), err));
    TRY(clear_padding(x, err));
    atomic_store(&x->kv_growth, KV_IDLE);
    return VT_OK;
}

/* Body of the thread that adds memory. */
static void *grow(void *arg)
{
    cuda_executor *x = arg;
    vt_status status = vt_cuda_enter(x->cuda, NULL);
    vt_kv_count ready = ready_now(x), step = growth_step(x),
                wanted = {ready.pages + step.pages, ready.windows + step.windows};
    if (status == VT_OK)
        status = back_pages(x, wanted, NULL);
    atomic_store(&x->kv_growth, status == VT_OK ? KV_IDLE : KV_FULL);
    return NULL;
}

/* Waits for the thread that adds memory, if there is one. */
void cuda_kv_join(cuda_executor *x)
{
    if (x->kv_thread_started)
        pthread_join(x->kv_thread, NULL);
    x->kv_thread_started = false;
}

static void start_growth(cuda_executor *x)
{
    cuda_kv_join(x);
    x->kv_failed_ns = 0;
    atomic_store(&x->kv_growth, KV_GROWING);
    x->kv_thread_started = pthread_create(&x->kv_thread, NULL, grow, x) == 0;
    if (!x->kv_thread_started)
        atomic_store(&x->kv_growth, KV_FULL);
}

/* Returns true if a growth may be tried now: none is under way, and the last one did not fail of
 * late. */
static bool may_grow(cuda_executor *x)
{
    int state = atomic_load(&x->kv_growth);
    if (state != KV_FULL)
        return state == KV_IDLE;
    int64_t now = vt_now_ns();
    if (x->kv_failed_ns == 0)
        x->kv_failed_ns = now;
    return now - x->kv_failed_ns >= x->retry_ns;
}

/* Returns true if so many taken pages come too close to those that are ready. */
static bool near_end(int32_t taken, int32_t ready, int32_t all, int32_t step)
{
    return ready < all && taken > ready - step / 2;
}

/* Returns how many pages have memory, and starts a growth if `taken` comes too close to that. */
vt_kv_count cuda_kv_pages(vt_executor *base, vt_kv_count taken)
{
    cuda_executor *x = (cuda_executor *)base;
    vt_kv_count ready = ready_now(x), step = growth_step(x);
    bool usable = !x->lost && !x->cuda->hung,
         near = near_end(taken.pages, ready.pages, x->config.n_pages, step.pages) ||
                near_end(taken.windows, ready.windows, x->config.n_windows, step.windows);
    if (usable && near && may_grow(x))
        start_growth(x);
    return ready;
}
