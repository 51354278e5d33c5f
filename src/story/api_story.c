/* vt_engine_story: copies an engine's rings and has a story made of them. Defined here and not in
 * the engine, because the engine does not know stories. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
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

static vt_status collect(vt_engine *e, story_input *in,
                         vt_trace_event *copies[STORY_MAX_WORKERS + 1], vt_err *err)
{
    vt_recording r;
    TRY(vt_engine_recording(e, &r, err));
    if (!r.program || r.program->config.device != VT_DEVICE_CPU || r.n_workers > STORY_MAX_WORKERS)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "stories are told of CPU engines of at most %d threads, so far",
                       STORY_MAX_WORKERS);
    const vt_limits *limits = &r.program->config.limits;
    in->model = r.model;
    in->plan = (story_plan_config){.level = r.program->config.isa,
                                   .kv_dtype = r.kv_dtype,
                                   .page_size = r.page_size,
                                   .max_tokens = limits->max_tokens,
                                   .max_seqs = limits->max_seqs,
                                   .max_context = limits->max_context};
    in->n_pages = r.n_pages;
    in->kv_bytes = r.kv_bytes;
    in->packed_bytes = r.packed_bytes;
    in->n_workers = r.n_workers;
    in->device = "cpu";
    TRY(copy_ring(r.engine, &copies[0], &in->n_engine, err));
    in->engine = copies[0];
    for (int32_t w = 0; w < r.n_workers; w++) {
        TRY(copy_ring(r.worker[w], &copies[w + 1], &in->n_worker[w], err));
        in->worker[w] = copies[w + 1];
    }
    in->event_cost_ns = event_cost_ns();
    return vt_roofs_get(r.n_workers, r.model->weight_bytes, &in->roofs, err);
}

vt_status vt_engine_story(vt_engine *e, vt_request_id id, char **json, size_t *len, vt_err *err)
{
    vt_trace_event *copies[STORY_MAX_WORKERS + 1] = {NULL};
    story_input *in = vt_calloc(1, sizeof *in);
    if (!in)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    vt_status status = collect(e, in, copies, err);
    if (status == VT_OK)
        status = story_build(in, id, json, len, err);
    for (int32_t i = 0; i <= STORY_MAX_WORKERS; i++)
        free(copies[i]);
    free(in);
    return status;
}
