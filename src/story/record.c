/* A recording put in order.
 *
 * The rings overwrite their oldest events, so any of what is looked for may be missing: a step
 * without its calls, a request without its arrival. Nothing is assumed but that events of one ring
 * are in the order in which they were written and that step numbers are consecutive. Steps whose op
 * calls are gone keep n_call 0 and are left out of op tables. */
#include "story/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static vt_status out_of_memory(vt_err *err)
{
    return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
}

static step_record *find_step(const story_record *r, uint64_t id)
{
    bool there = r->n_steps > 0 && id >= r->step[0].id && id - r->step[0].id < (uint64_t)r->n_steps;
    return there ? &r->step[id - r->step[0].id] : NULL;
}

/* Step ids run from the smallest to the largest VT_TRACE_STEP seen. */
static vt_status make_steps(const story_input *in, story_record *r, vt_err *err)
{
    uint64_t low = UINT64_MAX, high = 0;
    for (uint64_t i = 0; i < in->n_engine; i++)
        if (in->engine[i].kind == VT_TRACE_STEP) {
            low = in->engine[i].id < low ? in->engine[i].id : low;
            high = in->engine[i].id > high ? in->engine[i].id : high;
        }
    if (low > high)
        return VT_OK;
    if (high - low >= in->n_engine)
        return vt_fail(
            err, VT_ERR_FORMAT, "the recording's steps run from %llu to %llu in %llu events",
            (unsigned long long)low, (unsigned long long)high, (unsigned long long)in->n_engine);
    r->n_steps = (int32_t)(high - low + 1);
    r->step = vt_arena_alloc(&r->arena, (size_t)r->n_steps, sizeof *r->step);
    if (!r->step)
        return out_of_memory(err);
    for (int32_t i = 0; i < r->n_steps; i++)
        r->step[i].id = low + (uint64_t)i;
    return VT_OK;
}

static void read_step_event(story_record *r, const vt_trace_event *e)
{
    span when = {e->begin_ns, e->end_ns};
    step_record *s = find_step(r, e->kind == VT_TRACE_STEP_SEQ ? (uint64_t)(uint32_t)e->a : e->id);
    if (!s)
        return;
    if (e->kind == VT_TRACE_STEP) {
        s->device = when;
        s->n_tokens = e->a;
        s->n_seqs = e->b;
        s->n_decode = e->c;
    } else if (e->kind == VT_TRACE_STEP_PART && e->a >= 0 && e->a < VT_PARTS) {
        s->part[e->a] = when;
    } else if (e->kind == VT_TRACE_MEMORY) {
        s->pages_held = e->a;
        s->pages_cached = e->b;
        s->pages_free = e->c;
    } else if (e->kind == VT_TRACE_STEP_SEQ) {
        s->n_seq++;
    }
}

/* Each step's sequences, side by side: counted by read_step_event, now placed. */
static vt_status place_seqs(const story_input *in, story_record *r, vt_err *err)
{
    int32_t total = 0;
    for (int32_t i = 0; i < r->n_steps; i++) {
        r->step[i].first_seq = total;
        total += r->step[i].n_seq;
        r->step[i].n_seq = 0;
    }
    r->seq = vt_arena_alloc(&r->arena, (size_t)total + 1, sizeof *r->seq);
    if (!r->seq)
        return out_of_memory(err);
    for (uint64_t i = 0; i < in->n_engine; i++) {
        const vt_trace_event *e = &in->engine[i];
        step_record *s = e->kind == VT_TRACE_STEP_SEQ ? find_step(r, (uint64_t)(uint32_t)e->a)
                                                      : NULL;
        if (s)
            r->seq[s->first_seq + s->n_seq++] = (step_seq){e->id, e->b, e->c, e->spare};
    }
    return VT_OK;
}

/* ---- requests ---- */

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const request_record *)a)->id, y = ((const request_record *)b)->id;
    return (x > y) - (x < y);
}

const request_record *story_find_request(const story_record *r, uint64_t id)
{
    request_record key = {.id = id};
    return r->n_requests ? bsearch(&key, r->request, (size_t)r->n_requests, sizeof key, by_id)
                         : NULL;
}

static void read_request_event(request_record *q, const vt_trace_event *e)
{
    switch ((vt_trace_request)e->a) {
    case VT_REQ_ARRIVE:
        q->arrive_ns = e->begin_ns;
        q->n_prompt = e->b;
        break;
    case VT_REQ_MATCH:
        q->match = (span){e->begin_ns, e->end_ns};
        q->n_cached = e->b;
        q->n_copied = e->c;
        break;
    case VT_REQ_ADMIT:
        q->n_pages = e->b;
        break;
    case VT_REQ_RETRACT:
        q->n_retracted++;
        break;
    case VT_REQ_TOKEN:
        if (q->token_ns)
            q->token_ns[q->n_token_ns++] = e->begin_ns;
        break;
    case VT_REQ_FINISH:
        q->finish_ns = e->end_ns;
        q->finish = e->b;
        q->n_output = e->c;
        break;
    case VT_REQ_TOKENISE:
        break;
    }
}

static vt_status read_requests(const story_input *in, vt_request_id id, story_record *r,
                               vt_err *err)
{
    int32_t n = 0, tokens = 0;
    for (uint64_t i = 0; i < in->n_engine; i++) {
        const vt_trace_event *e = &in->engine[i];
        n += e->kind == VT_TRACE_REQUEST && e->a == VT_REQ_ARRIVE;
        tokens += e->kind == VT_TRACE_REQUEST && e->a == VT_REQ_TOKEN && e->id == id;
    }
    r->request = vt_arena_alloc(&r->arena, (size_t)n + 1, sizeof *r->request);
    int64_t *token_ns = vt_arena_alloc(&r->arena, (size_t)tokens + 1, sizeof *token_ns);
    if (!r->request || !token_ns)
        return out_of_memory(err);
    for (uint64_t i = 0; i < in->n_engine; i++)
        if (in->engine[i].kind == VT_TRACE_REQUEST && in->engine[i].a == VT_REQ_ARRIVE)
            r->request[r->n_requests++].id = in->engine[i].id;
    qsort(r->request, (size_t)r->n_requests, sizeof *r->request, by_id);
    r->mine = id ? (request_record *)story_find_request(r, id) : NULL;
    if (id && !r->mine)
        return vt_fail(err, VT_ERR_USAGE, "the recording does not hold the arrival of request %llu",
                       (unsigned long long)id);
    if (r->mine)
        r->mine->token_ns = token_ns;
    for (uint64_t i = 0; i < in->n_engine; i++) {
        request_record *q = in->engine[i].kind == VT_TRACE_REQUEST
                                ? (request_record *)story_find_request(r, in->engine[i].id)
                                : NULL;
        if (q)
            read_request_event(q, &in->engine[i]);
    }
    return VT_OK;
}

/* ---- which steps, and which of them are prefill ---- */

static void choose_steps(story_record *r)
{
    for (int32_t i = 0; i < r->n_steps; i++) {
        step_record *s = &r->step[i];
        s->chosen = !r->mine && s->device.end_ns > 0;
        s->prefill = !r->mine && s->n_seqs > s->n_decode;
        for (int32_t k = s->first_seq; r->mine && k < s->first_seq + s->n_seq; k++) {
            if (r->seq[k].request != r->mine->id)
                continue;
            s->chosen = s->device.end_ns > 0;
            s->q_len = r->seq[k].q_len;
            s->kv_len = r->seq[k].kv_len;
            s->prefill = s->kv_len <= r->mine->n_prompt;
        }
    }
}

/* ---- op calls ---- */

/* The oldest step's calls may have been overwritten in part. A whole step begins with the first
 * call of the forward pass, or with what stands before it. */
static void drop_partial_steps(const story_input *in, story_record *r)
{
    for (int32_t i = 0; i < r->n_steps; i++)
        if (r->step[i].n_call > 0 && r->call[r->step[i].first_call].call > in->program->n_before)
            r->step[i].n_call = 0;
}

/* A call and the wait behind it make the op's time on worker 0. */
static vt_status read_calls(const story_input *in, story_record *r, vt_err *err)
{
    const vt_trace_event *e = in->worker[0];
    uint64_t n = in->n_workers > 0 ? in->n_worker[0] : 0;
    r->call = vt_arena_alloc(&r->arena, (size_t)n / 2 + 1, sizeof *r->call);
    if (!r->call)
        return out_of_memory(err);
    for (uint64_t i = 0; i + 1 < n; i++) {
        step_record *s = find_step(r, e[i].id);
        if (!s || e[i].kind != VT_TRACE_CALL || e[i + 1].kind != VT_TRACE_WAIT ||
            e[i + 1].a != e[i].a || e[i + 1].id != e[i].id)
            continue;
        if (s->n_call == 0)
            s->first_call = r->n_calls;
        r->call[r->n_calls++] = (call_time){.call = e[i].a,
                                            .s = (double)(e[i + 1].end_ns - e[i].begin_ns) * 1e-9};
        s->n_call++;
    }
    drop_partial_steps(in, r);
    return VT_OK;
}

/* ---- a GPU's ring ---- */

static void read_gpu_event(story_record *r, step_record *s, const vt_trace_event *e)
{
    step_on_gpu *g = &s->gpu;
    double seconds = (double)(e->end_ns - e->begin_ns) * 1e-9;
    if (e->kind == VT_TRACE_LAUNCH) {
        g->known = true;
        g->timed = e->spare != 0;
        g->n_kernels = e->a;
        g->bytes_in = e->b;
        g->graph_tokens = e->c;
    } else if (e->kind == VT_TRACE_WAIT) {
        g->idle_s = seconds;
    } else if (e->kind == VT_TRACE_MOVE && e->a >= 0 && e->a < VT_MOVES) {
        g->n_moves++;
        g->move_s[e->a] = seconds;
        g->move_bytes[e->a] = e->b;
    } else if (e->kind == VT_TRACE_CALL) {
        if (s->n_call++ == 0)
            s->first_call = r->n_calls;
        r->call[r->n_calls++] = (call_time){.call = e->a, .s = seconds};
    } else if (e->kind == VT_TRACE_KERNEL) {
        if (g->n_kernel++ == 0)
            g->first_kernel = r->n_kernels;
        r->kernel[r->n_kernels++] = (kernel_call){e->a, e->b};
    }
}

static vt_status read_gpu(const story_input *in, story_record *r, vt_err *err)
{
    const story_gpu *gpu = in->gpu;
    r->call = vt_arena_alloc(&r->arena, (size_t)gpu->n_events + 1, sizeof *r->call);
    r->kernel = vt_arena_alloc(&r->arena, (size_t)gpu->n_events + 1, sizeof *r->kernel);
    if (!r->call || !r->kernel)
        return out_of_memory(err);
    for (int32_t i = 0; i < r->n_steps; i++)
        r->step[i].gpu.idle_s = NAN;
    for (uint64_t i = 0; i < gpu->n_events; i++) {
        step_record *s = find_step(r, gpu->event[i].id);
        if (s)
            read_gpu_event(r, s, &gpu->event[i]);
    }
    for (int32_t i = 0; i < r->n_steps; i++)
        if (r->step[i].gpu.n_moves < VT_MOVES)
            r->step[i].n_call = 0;
    drop_partial_steps(in, r);
    return VT_OK;
}

static void read_workers(const story_input *in, story_record *r)
{
    for (int32_t w = 0; w < in->n_workers; w++)
        for (uint64_t i = 0; i < in->n_worker[w]; i++) {
            const vt_trace_event *e = &in->worker[w][i];
            step_record *s = find_step(r, e->id);
            double seconds = (double)(e->end_ns - e->begin_ns) * 1e-9;
            if (!s || !s->chosen || s->n_call == 0)
                continue;
            if (e->kind == VT_TRACE_CALL) {
                s->busy_s += seconds;
                r->worker_busy_s[w] += seconds;
            } else if (e->kind == VT_TRACE_WAIT) {
                s->wait_s += seconds;
                r->worker_wait_s[w] += seconds;
            }
        }
}

static vt_status fill(const story_input *in, vt_request_id id, story_record *r, vt_err *err)
{
    TRY(make_steps(in, r, err));
    for (uint64_t i = 0; i < in->n_engine; i++)
        read_step_event(r, &in->engine[i]);
    TRY(place_seqs(in, r, err));
    TRY(read_requests(in, id, r, err));
    choose_steps(r);
    TRY(in->gpu ? read_gpu(in, r, err) : read_calls(in, r, err));
    read_workers(in, r);
    return VT_OK;
}

vt_status story_record_make(const story_input *in, vt_request_id id, story_record *out, vt_err *err)
{
    story_record r = {0};
    vt_arena_init(&r.arena, 0);
    vt_status status = fill(in, id, &r, err);
    if (status != VT_OK) {
        story_record_release(&r);
        return status;
    }
    *out = r;
    return VT_OK;
}

void story_record_release(story_record *r) { vt_arena_release(&r->arena); }
