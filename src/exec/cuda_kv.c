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
 *   1. At start-up enough pages get memory for one sequence of max-context tokens, and at least an
 *      eighth of all pages.
 *   2. Whenever fewer unused pages are left than half of an eighth, a thread adds memory for an
 *      eighth more to every pool. Meanwhile the engine continues with the pages that it has.
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

/* Bytes of one page in one pool (K or V of one layer). */
static size_t page_bytes(const cuda_executor *x)
{
    return (size_t)vt_kv_page_bytes(1, x->kv.kv_heads, x->kv.page_size, x->kv.head_dim,
                                    x->kv.dtype) /
           2;
}

/* Pages that one growth adds. */
static int32_t growth_step(const cuda_executor *x)
{
    return (int32_t)vt_ceil_div(x->config.n_pages, GROWTHS);
}

/* Puts memory behind the first n pages of every pool (at most n_pages), and behind the padding page
 * before them. The driver maps memory in large chunks, so more pages than asked may be ready. */
static vt_status back_pages(cuda_executor *x, int64_t n, vt_err *err)
{
    n = n < x->config.n_pages ? n : x->config.n_pages;
    TRY(cuda_range_grow(x->cuda, &x->kv_range, (size_t)(n + 1) * page_bytes(x), err));
    int64_t ready = (int64_t)(x->kv_range.mapped / page_bytes(x)) - 1;
    atomic_store(&x->kv_ready, (int32_t)(ready < x->config.n_pages ? ready : x->config.n_pages));
    return VT_OK;
}

vt_status cuda_kv_make(cuda_executor *x, vt_err *err)
{
    const vt_arch *a = &x->model->arch;
    const vt_limits *lim = &x->config.limits;
    x->kv = (vt_kv_cache){.n_layers = a->n_layers,
                          .n_pages = x->config.n_pages,
                          .page_size = lim->page_size,
                          .kv_heads = a->n_kv_heads,
                          .head_dim = a->head_dim,
                          .dtype = x->config.kv_dtype,
                          .first_page = 1,
                          .device = VT_DEVICE_CUDA};
    x->kv_tensors = vt_calloc((size_t)a->n_layers * 2, sizeof *x->kv_tensors);
    if (!x->kv_tensors)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the KV cache's description");
    x->kv.k = x->kv_tensors;
    x->kv.v = x->kv_tensors + a->n_layers;
    size_t each = ((size_t)x->config.n_pages + 1) * page_bytes(x);
    x->kv.bytes = each * 2 * (size_t)a->n_layers;
    if (x->cuda->context) {
        int64_t sequence = vt_ceil_div(lim->max_context, lim->page_size), step = growth_step(x);
        TRY(cuda_range_init_parts(x->cuda, 2 * a->n_layers, each, &x->kv_range, err));
        TRY(back_pages(x, sequence > step ? sequence : step, err));
        atomic_store(&x->kv_growth, KV_IDLE);
    }
    for (int32_t i = 0; i < 2 * a->n_layers; i++) {
        /* The pools lie in memory as L0 k, L0 v, L1 k, ...; kv_tensors has all k, then all v. */
        size_t at = (size_t)(i < a->n_layers ? 2 * i : 2 * (i - a->n_layers) + 1);
        x->kv_tensors[i] = (vt_tensor){
            .data = x->kv_range.base ? (char *)x->kv_range.base + at * x->kv_range.stride : NULL,
            .dtype = x->kv.dtype,
            .rank = 4,
            .row_stride = a->head_dim,
            .dim = {x->config.n_pages + 1, a->n_kv_heads, x->kv.page_size, a->head_dim}};
    }
    return VT_OK;
}

/* Body of the thread that adds memory. */
static void *grow(void *arg)
{
    cuda_executor *x = arg;
    vt_status status = vt_cuda_enter(x->cuda, NULL);
    if (status == VT_OK)
        status = back_pages(x, (int64_t)atomic_load(&x->kv_ready) + growth_step(x), NULL);
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

/* Whether a growth may be tried now: none is under way, and the last one did not fail of late. */
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

/* Returns how many pages have memory, and starts a growth if `taken` comes too close to that. */
int32_t cuda_kv_pages(vt_executor *base, int32_t taken)
{
    cuda_executor *x = (cuda_executor *)base;
    int32_t ready = atomic_load(&x->kv_ready);
    bool usable = !x->lost && !x->cuda->hung;
    if (usable && ready < x->config.n_pages && taken > ready - growth_step(x) / 2 && may_grow(x))
        start_growth(x);
    return ready;
}
