/* vt_engine_story: copies an engine's rings and has a story made of them. Defined here and not in
 * the engine, because the engine does not know stories. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "engine/engine.h"
#include "engine/recording.h"
#include "model/model.h"
#include "story/story.h"

/* The newest events of a ring, malloc'ed. */
static vt_status copy_ring(const vt_trace_ring *ring, vt_trace_event **out, uint64_t *n,
                           vt_err *err)
{
    uint64_t written = atomic_load_explicit(&ring->written, memory_order_acquire);
    uint64_t max = written < ring->capacity ? written : ring->capacity;
    *out = vt_calloc(max + 1, sizeof **out);
    if (!*out)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory copying %llu events",
                       (unsigned long long)max);
    *n = vt_trace_copy(ring, *out, max);
    return VT_OK;
}

/* What a story_input borrows. */
typedef struct copies {
    vt_trace_event
        *events[STORY_MAX_WORKERS + 1]; /* the engine's, then the workers' or the GPU's */
    story_gpu gpu;
    story_kernel *kernel;
} copies;

/* What reading the clock and writing an event costs here and now. */
static double event_cost_ns(void)
{
    enum { EVENTS = 4096 };
    vt_trace_ring ring;
    if (vt_trace_init(&ring, EVENTS, NULL) != VT_OK)
        return NAN;
    double best = INFINITY;
    for (int run = 0; run < 5; run++) {
        int64_t begin = vt_now_ns();
        for (int i = 0; i < EVENTS; i++) {
            int64_t now = vt_now_ns();
            vt_trace_add(
                &ring,
                &(vt_trace_event){.begin_ns = begin, .end_ns = now, .kind = VT_TRACE_CALL, .a = i});
        }
        best = fmin(best, (double)(vt_now_ns() - begin) / EVENTS);
    }
    vt_trace_release(&ring);
    return best;
}

static vt_status collect_workers(const vt_recording *r, story_input *in, copies *c, vt_err *err)
{
    if (r->n_workers > STORY_MAX_WORKERS)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "stories are told of at most %d threads, not of %d",
                       STORY_MAX_WORKERS, r->n_workers);
    in->device = "cpu";
    in->n_workers = r->n_workers;
    for (int32_t w = 0; w < r->n_workers; w++) {
        TRY(copy_ring(r->worker[w], &c->events[w + 1], &in->n_worker[w], err));
        in->worker[w] = c->events[w + 1];
    }
    return vt_roofs_get(r->n_workers, r->model->weight_bytes, &in->roofs, err);
}

/* Names of kernels stay the JIT's. */
static vt_status collect_gpu(const vt_recording *r, story_input *in, copies *c, vt_err *err)
{
    vt_cuda *cuda = r->gpu.cuda;
    size_t free_bytes = 0, total = 0;
    bool known = vt_cuda_enter(cuda, NULL) == VT_OK &&
                 cuda->driver.mem_info(&free_bytes, &total) == 0;
    c->gpu = (story_gpu){.ordinal = cuda->ordinal,
                         .level = cuda->level,
                         .sm_count = cuda->sm_count,
                         .driver_version = cuda->driver_version,
                         .memory_bytes = (int64_t)cuda->total_bytes,
                         .free_bytes = known ? (int64_t)free_bytes : -1,
                         .l2_bytes = cuda->l2_bytes,
                         .n_kernels = vt_jit_count(cuda->jit),
                         .period = r->gpu.period,
                         .notice_ns = r->gpu.notice_ns,
                         .event_ns = r->gpu.event_ns,
                         .read_ns = r->gpu.read_ns};
    vt_err why = {0};
    c->gpu.has_state = vt_nvml_read(cuda->ordinal, &c->gpu.state, &why) == VT_OK;
    snprintf(c->gpu.state_missing, sizeof c->gpu.state_missing, "%s", why.message);
    c->kernel = vt_calloc((size_t)c->gpu.n_kernels + 1, sizeof *c->kernel);
    if (!c->kernel)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    for (int32_t i = 0; i < c->gpu.n_kernels; i++) {
        const jit_cubin *cubin = vt_jit_get(cuda->jit, i);
        c->kernel[i].name = vt_jit_name(cuda->jit, i);
        if (cubin) {
            c->kernel[i].registers = cubin->registers;
            c->kernel[i].spill_bytes = cubin->spill_bytes;
            c->kernel[i].shared_bytes = cubin->shared_bytes;
        }
    }
    TRY(copy_ring(r->gpu.ring, &c->events[1], &c->gpu.n_events, err));
    c->gpu.event = c->events[1];
    c->gpu.kernel = c->kernel;
    in->gpu = &c->gpu;
    in->device = "cuda";
    in->packed_bytes = (int64_t)r->gpu.weight_bytes;
    return vt_roofs_cuda(cuda->ordinal, (int64_t)r->gpu.weight_bytes, false, &in->roofs, err);
}

static vt_status collect(vt_engine *e, story_input *in, copies *c, vt_err *err)
{
    vt_recording r;
    TRY(vt_engine_recording(e, &r, err));
    in->model = r.model;
    in->program = r.program;
    in->n_pages = r.n_pages;
    in->kv_bytes = r.kv_bytes;
    in->packed_bytes = r.packed_bytes;
    TRY(copy_ring(r.engine, &c->events[0], &in->n_engine, err));
    in->engine = c->events[0];
    in->event_cost_ns = event_cost_ns();
    return r.on_gpu ? collect_gpu(&r, in, c, err) : collect_workers(&r, in, c, err);
}

static vt_status build(vt_engine *e, vt_request_id id, char **json, size_t *len, vt_err *err)
{
    story_input *in = vt_calloc(1, sizeof *in);
    copies *c = vt_calloc(1, sizeof *c);
    vt_status status = in && c ? collect(e, in, c, err)
                               : vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    if (status == VT_OK)
        status = story_build(in, id, json, len, err);
    for (int32_t i = 0; c && i <= STORY_MAX_WORKERS; i++)
        free(c->events[i]);
    if (c)
        free(c->kernel);
    free(c);
    free(in);
    return status;
}

vt_status vt_engine_story(vt_engine *e, vt_request_id id, char **json, size_t *len, vt_err *err)
{
    TRY(vt_check_pointer(e, "vt_engine_story: the engine", err));
    TRY(vt_check_pointer(json, "vt_engine_story: json", err));
    TRY(vt_check_pointer(len, "vt_engine_story: len", err));
    TRY(vt_engine_hold(e, err));
    vt_status status = build(e, id, json, len, err);
    vt_engine_release(e);
    return status;
}
