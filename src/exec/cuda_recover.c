/* Brings the executor back after the GPU failed it.
 *
 *   a call or a kernel fails     the step's error; the context is still good
 *   the context is lost          a kernel touched memory that is not there, an ECC error, ...:
 *                                every later call fails. The engine asks cuda_lost, and then
 *                                cuda_renew makes everything on the device again:
 *
 *        free what the driver still takes | reset the context | weights, program, memory, kernels
 *        from the JIT's memory, graphs | KV pages, empty and as few as at start-up
 *
 *   a step does not end          after VITRINE_CUDA_STEP_LIMIT seconds the GPU counts as hung. No
 *                                call that waits for it would return, so nothing is freed on the
 *                                device and the process has to be started again
 *
 * The vt_cuda, the executor and the rings of a recording stay where they are, because others point
 * to them. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "exec/cuda_inside.h"

enum { LOOK_NS = 100000000 };

/* The driver's own wait, cuEventSynchronize, has no limit. It spins, and so does this loop. */
vt_status cuda_wait_event(cuda_executor *x, cu_event event, const char *what, vt_err *err)
{
    const cuda_driver *d = &x->cuda->driver;
    if (x->step_limit_ns == 0 && !x->look_at_peers)
        return vt_cuda_check(x->cuda, d->event_sync(event), what, err);
    int64_t end = vt_now_ns() + x->step_limit_ns, look = vt_now_ns() + LOOK_NS;
    cu_result r;
    while ((r = d->event_query(event)) == CU_ERROR_NOT_READY) {
        int64_t now = vt_now_ns();
        if (x->look_at_peers && now >= look) {
            x->look_at_peers(x->look_arg);
            TRY(vt_cuda_enter(x->cuda, err));
            look = now + LOOK_NS;
        }
        if (x->step_limit_ns > 0 && now >= end) {
            vt_cuda_set_hung(x->cuda);
            return vt_fail(err, VT_ERR_DEVICE,
                           "the GPU did not end a step within %lld s (VITRINE_CUDA_STEP_LIMIT); "
                           "nothing more can run on it until the program is started again",
                           (long long)(x->step_limit_ns / 1000000000));
        }
    }
    return vt_cuda_check(x->cuda, r, what, err);
}

/* ---- giving up what is on the device ---- */

/* Destroys what belongs to the context. In a context that was reset all of it is gone already, and
 * the handles must not be used. */
static void destroy_objects(cuda_executor *x)
{
    vt_cuda *c = x->cuda;
    const cuda_driver *d = &c->driver;
    for (int32_t i = 0; i < x->n_graphs; i++)
        cuda_graph_release(c, &x->graph[i].graph);
    for (int i = 0; i < SLOTS; i++) {
        result_slot *s = &x->slot[i];
        void *pinned[] = {s->step_block, s->side[0], s->side[1],     s->token,
                          s->top_id,     s->logprob, s->top_logprob, s->hidden};
        for (size_t k = 0; k < sizeof pinned / sizeof *pinned; k++)
            vt_cuda_pinned_free(c, pinned[k]);
        if (s->begin)
            d->event_destroy(s->begin);
        if (s->end)
            d->event_destroy(s->end);
    }
    void *blocks[] = {x->activations, x->workspace, x->tickets,    x->step_block,
                      x->token_pool,  x->states,    x->comm_flags, x->comm_part};
    for (size_t k = 0; k < sizeof blocks / sizeof *blocks; k++)
        vt_cuda_free(c, blocks[k]);
    vt_cuda_pinned_free(c, x->comm_failed);
}

/* Ranges of device addresses that a lost context did not give back. */
typedef struct leftover {
    cuda_range range[2 + VT_KV_GROUPS];
    int32_t n;
} leftover;

/* True once mapped ranges were seen to outlive a reset of the context: NVIDIA does not document it.
 * If they do not, their addresses may belong to somebody else after the reset. */
static atomic_bool ranges_outlive;

/* Releases the range. One that the lost context does not take back goes to the list, to be offered
 * to the new context as its first act. One whose context somebody else has reset may be gone, and
 * its addresses may be in use again: then its memory is given up rather than another's unmapped. */
static void release_range(cuda_executor *x, cuda_range *r, bool live, leftover *left)
{
    if (!r->base || (live && cuda_range_try_release(x->cuda, r)))
        return;
    if (!live && !atomic_load(&ranges_outlive)) {
        cuda_range_forget(r);
        return;
    }
    left->range[left->n++] = *r;
    *r = (cuda_range){0};
}

static void release_left(cuda_executor *x, leftover *left)
{
    for (; left->n > 0; left->n--) {
        cuda_range *r = &left->range[left->n - 1];
        if (!x->cuda->hung && cuda_range_try_release(x->cuda, r))
            atomic_store(&ranges_outlive, true);
        else
            cuda_range_forget(r);
    }
}

/* Makes the executor as it was before anything was on the device. Where the context is not lost,
 * all work on it has ended. */
static void release_device(cuda_executor *x, leftover *left)
{
    vt_cuda *c = x->cuda;
    bool live = c && c->context && !c->hung && !vt_cuda_was_reset(c);
    if (live)
        (void)vt_cuda_enter(c, NULL);
    if (live && x->lane.stream)
        c->driver.stream_sync(x->lane.stream);
    cuda_kv_join(x);
    vt_observers_release(&x->observers, live);
    cuda_stamped_release(x, live);
    if (live) {
        destroy_objects(x);
        if (x->lane.stream)
            c->driver.stream_destroy(x->lane.stream);
    }
    for (int32_t g = 0; g < VT_KV_GROUPS; g++)
        release_range(x, &x->kv_range[g], live, left);
    release_range(x, &x->side, live, left);
    if (x->weights)
        release_range(x, &x->weights->range, live, left);
    memset(x->graph, 0, sizeof x->graph);
    memset(x->slot, 0, sizeof x->slot);
    x->n_graphs = 0;
    x->graph_nodes = 0;
    x->activations = x->workspace = x->tickets = x->step_block = x->token_pool = NULL;
    x->states = x->comm_flags = x->comm_part = x->comm_failed = NULL;
    x->lane = (vt_cuda_lane){0};
    x->bound = NULL;
    x->unsampled.step = NULL;
    vt_program_free(x->prog);
    vt_cuda_weights_free(NULL, x->weights);
    vt_kv_cache_release(&x->kv);
    x->prog = NULL;
    x->weights = NULL;
    x->launched = x->waited = x->capture_from = 0; /* steps are counted anew */
    x->n_missed = 0;
}

void cuda_release(cuda_executor *x)
{
    leftover left = {.n = 0};
    release_device(x, &left);
    while (left.n > 0) /* the context is lost, and stays so */
        cuda_range_forget(&left.range[--left.n]);
}

/* ---- a lost context ---- */

bool cuda_lost(vt_executor *base)
{
    cuda_executor *x = (cuda_executor *)base;
    return x->lost || vt_cuda_is_lost(x->cuda, x->lane.stream);
}

/* Memory that was mapped in the old context belongs to the process: what the lost context did not
 * take back is offered again to the new one. */
vt_status cuda_renew_begin(cuda_executor *x, vt_err *err)
{
    leftover left = {.n = 0};
    if (x->cuda->hung)
        return vt_cuda_enter(x->cuda, err);
    bool lost = cuda_lost(&x->base); /* else the step of a rank failed for another reason */
    x->lost = true;                  /* until all of it is there again */
    release_device(x, &left);
    vt_status status = lost ? vt_cuda_renew(x->cuda, err) : vt_cuda_enter(x->cuda, err);
    release_left(x, &left);
    return status;
}

vt_status cuda_renew(vt_executor *base, vt_err *err)
{
    cuda_executor *x = (cuda_executor *)base;
    TRY(cuda_renew_begin(x, err));
    TRY(cuda_start_build(x, err));
    x->lost = false;
    return VT_OK;
}
