/* The rings that an engine records into, and all sources of a story. */
#include "engine/recording.h"

#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "engine/engine_inside.h"

/* Events of each ring, 23 MB in all. Memory that no event was written to yet is not resident. With
 * 64 sequences the tokens and steps of 8,192 steps are there, with one sequence those of 13,000. */
enum {
    RING_REQUESTS = 1 << 15,
    RING_TOKENS = 1 << 19,
    RING_STEPS = 1 << 16, /* five events a step */
    RING_PROMPT_STEPS = 1 << 14,
    RING_SEQS = 1 << 19,
    RING_SAMPLES = 1 << 13, /* at 20 a second 6 minutes of work */
    RING_WRITES = 1 << 12
};

/* Copies to ring[] the rings that a source has; returns how many there are. */
static int32_t rings_of(const vt_source *s, const vt_trace_ring *ring[ENGINE_SOURCE_RINGS])
{
    const vt_trace_ring *own[] = {
        s->requests,     s->tokens, s->writes, s->steps,
        s->prompt_steps, s->seqs,   s->uses,   s->samples,
        s->launches,     s->vitals, s->pm,     s->spans ? &s->spans->prompts : NULL};
    int32_t n = 0;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i])
            ring[n++] = own[i];
    for (int i = 0; s->spans && i < VT_SPAN_LEVELS; i++)
        ring[n++] = &s->spans->level[i];
    return n;
}

/* Lists the rings of all sources, the executor's too. A source's rings stay where they are as long
 * as its executor. */
static vt_status list_rings(vt_engine *e, vt_err *err)
{
    int32_t n = vt_engine_sources(e, NULL, 0);
    vt_source *source = vt_calloc((size_t)n, sizeof *source);
    e->ring = vt_calloc((size_t)n * ENGINE_SOURCE_RINGS, sizeof *e->ring);
    if (source && e->ring) {
        n = vt_engine_sources(e, source, n);
        for (int32_t i = 0; i < n; i++)
            e->n_rings += rings_of(&source[i], e->ring + e->n_rings);
    }
    free(source);
    return e->n_rings > 0 ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory for an engine");
}

vt_status engine_recording_init(vt_engine *e, vt_err *err)
{
    TRY(vt_trace_init(&e->requests, sizeof(vt_request_event), RING_REQUESTS, err));
    TRY(vt_trace_init(&e->tokens, sizeof(vt_packed_token), RING_TOKENS, err));
    TRY(vt_trace_init(&e->steps, sizeof(vt_step_event), RING_STEPS, err));
    TRY(vt_trace_init(&e->prompt_steps, sizeof(vt_step_event), RING_PROMPT_STEPS, err));
    TRY(vt_trace_init(&e->seqs, sizeof(vt_packed_seq), RING_SEQS, err));
    TRY(vt_trace_init(&e->writes, sizeof(vt_request_event), RING_WRITES, err));
    TRY(vt_trace_init(&e->samples, sizeof(vt_machine_event), RING_SAMPLES, err));
    return list_rings(e, err);
}

void engine_recording_release(vt_engine *e)
{
    vt_trace_release(&e->requests);
    vt_trace_release(&e->tokens);
    vt_trace_release(&e->steps);
    vt_trace_release(&e->seqs);
    vt_trace_release(&e->prompt_steps);
    vt_trace_release(&e->samples);
    vt_trace_release(&e->writes);
    free(e->ring);
}

/* A page of a ring is touched first when the ring gets there. */
size_t engine_recorder_bytes(const vt_engine *e)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < e->n_rings; i++) {
        const vt_trace_ring *r = e->ring[i];
        uint64_t n = atomic_load_explicit(&r->written, memory_order_relaxed);
        bytes += (n < r->capacity ? n : r->capacity) * r->event_bytes;
    }
    return bytes;
}

int32_t vt_engine_sources(const vt_engine *e, vt_source *out, int32_t max)
{
    if (max > 0)
        out[0] = (vt_source){.name = "engine",
                             .kind = VT_SOURCE_ENGINE,
                             .no_energy = e->energy.n ? NULL : e->energy.why,
                             .requests = &e->requests,
                             .tokens = &e->tokens,
                             .writes = &e->writes,
                             .steps = &e->steps,
                             .seqs = &e->seqs,
                             .prompt_steps = &e->prompt_steps,
                             .samples = &e->samples,
                             .clock_error_ns = NAN,
                             .event_ns = NAN,
                             .read_ns = NAN};
    const vt_executor *x = e->executor;
    return 1 + (x->sources ? x->sources(x, max > 1 ? out + 1 : NULL, max > 1 ? max - 1 : 0) : 0);
}
