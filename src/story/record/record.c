/* A recording put in order.
 *
 * The rings overwrite their oldest events, so any event may be missing: a step, a step's calls, a
 * request's arrival. The only assumption is that the events of one request, and the spans of one
 * step, are in the order in which they were written. Steps whose op calls are
 * gone keep n_call 0 and are left out of op tables. */
#include "story/record/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "story/record/machine.h"

static vt_status out_of_memory(vt_err *err)
{
    return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
}

const story_source *story_find_source(const story_input *in, vt_source_kind kind)
{
    for (int32_t i = 0; i < in->n_sources; i++)
        if (in->source[i].is.kind == kind)
            return &in->source[i];
    return NULL;
}

int32_t story_count(const story_input *in, vt_source_kind kind)
{
    int32_t n = 0;
    for (int32_t i = 0; i < in->n_sources; i++)
        n += in->source[i].is.kind == kind;
    return n;
}

/* Ids are nearly always consecutive: the first guess is right then. */
step_record *story_find_step(const story_record *r, uint64_t id)
{
    int32_t low = 0, high = r->n_steps;
    if (r->n_steps > 0 && id >= r->step[0].id && id - r->step[0].id < (uint64_t)r->n_steps &&
        r->step[id - r->step[0].id].id == id)
        return &r->step[id - r->step[0].id];
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (r->step[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < r->n_steps && r->step[low].id == id ? &r->step[low] : NULL;
}

/* The engine's events; an empty source where there are none. */
static const story_source *engine_of(const story_input *in)
{
    static const story_source none;
    const story_source *e = story_find_source(in, VT_SOURCE_ENGINE);
    return e ? e : &none;
}

static int by_step(const void *a, const void *b)
{
    uint64_t x = ((const step_record *)a)->id, y = ((const step_record *)b)->id;
    return (x > y) - (x < y);
}

/* The steps that are known to have run. */
static vt_status make_steps(const story_source *e, story_record *r, vt_err *err)
{
    int32_t n = 0;
    for (uint64_t i = 0; i < e->n_steps; i++)
        n += e->step[i].kind == VT_STEP_RAN;
    r->step = vt_arena_alloc(&r->arena, (size_t)n + 1, sizeof *r->step);
    if (!r->step)
        return out_of_memory(err);
    for (uint64_t i = 0; i < e->n_steps; i++)
        if (e->step[i].kind == VT_STEP_RAN)
            r->step[r->n_steps++].id = e->step[i].step;
    qsort(r->step, (size_t)r->n_steps, sizeof *r->step, by_step);
    n = r->n_steps;
    r->n_steps = 0;
    for (int32_t i = 0; i < n; i++)
        if (i == 0 || r->step[i].id != r->step[i - 1].id)
            r->step[r->n_steps++].id = r->step[i].id;
    return VT_OK;
}

static void read_step_event(story_record *r, const vt_step_event *e)
{
    step_record *s = story_find_step(r, e->step);
    if (!s)
        return;
    switch (e->kind) {
    case VT_STEP_RAN:
        s->device = (span){e->ran.begin_ns, e->ran.end_ns};
        s->n_tokens = e->ran.n_tokens;
        s->n_seqs = e->ran.n_seqs;
        s->n_decode = e->ran.n_decode;
        s->pages_held = e->ran.pages_held;
        s->pages_cached = e->ran.pages_cached;
        s->pages_free = e->ran.pages_free;
        break;
    case VT_STEP_PART:
        if ((unsigned)e->part.part < VT_PARTS)
            s->part[e->part.part] = (span){e->part.begin_ns, e->part.end_ns};
        if (e->part.part == VT_PART_PUBLISH && e->part.text_ns > 0)
            s->text = (span){e->part.begin_ns, e->part.text_ns};
        break;
    case VT_STEP_SEQ:
        s->n_seq++;
        break;
    }
}

/* Puts each step's sequences side by side. read_step_event has counted them. */
static vt_status place_seqs(const story_source *e, story_record *r, vt_err *err)
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
    for (uint64_t i = 0; i < e->n_steps; i++) {
        const vt_step_seq *q = &e->step[i].seq;
        step_record *s = q->kind == VT_STEP_SEQ ? story_find_step(r, q->step) : NULL;
        if (s)
            r->seq[s->first_seq + s->n_seq++] = (step_seq){q->request, q->q_len, q->kv_len,
                                                           q->shared_pages};
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

/* The end of its step: the engine's thread publishes tokens late where it shares a core with a
 * worker, and by another delay each time. */
int64_t story_token_time(const story_record *r, const vt_req_token *e)
{
    const step_record *s = story_find_step(r, e->step);
    return s && s->device.end_ns > 0 ? s->device.end_ns : e->at_ns;
}

static void read_request_event(const story_record *r, request_record *q, const vt_request_event *e)
{
    switch (e->kind) {
    case VT_REQ_ARRIVE:
        q->arrive_ns = e->arrive.at_ns;
        q->n_prompt = e->arrive.n_prompt;
        q->adapter = e->arrive.adapter;
        break;
    case VT_REQ_MATCH:
        if (q->match.end_ns > 0)
            break; /* a look-up after a retraction finds the request's own pages */
        q->match = (span){e->match.begin_ns, e->match.end_ns};
        q->n_cached = e->match.n_cached;
        q->n_copied = e->match.n_copied;
        break;
    case VT_REQ_ADMIT:
        q->n_pages = e->admit.n_pages;
        break;
    case VT_REQ_RETRACT:
        q->n_retracted++;
        break;
    case VT_REQ_TOKEN:
        if (q->token_ns && story_token_time(r, &e->token) > 0)
            q->token_ns[q->n_token_ns++] = story_token_time(r, &e->token);
        break;
    case VT_REQ_FINISH:
        q->finish_ns = e->finish.at_ns;
        q->end = (vt_end_reason)e->finish.end;
        q->n_output = e->finish.n_output;
        break;
    case VT_REQ_TOKENISE:
        q->tokenise = (span){e->tokenise.begin_ns, e->tokenise.end_ns};
        break;
    case VT_REQ_PARSE:
        q->parse = (span){e->part.begin_ns, e->part.end_ns};
        break;
    case VT_REQ_TEMPLATE:
        q->template = (span){e->part.begin_ns, e->part.end_ns};
        break;
    case VT_REQ_WAIT:
        if (e->wait.index == 0) {
            q->wait = (span){e->wait.begin_ns, e->wait.end_ns};
            q->waited_for = e->wait.reason;
            q->first_step = e->wait.step;
        }
        break;
    case VT_REQ_WRITE:
        q->write = (span){e->write.begin_ns, e->write.end_ns};
        q->write_ns = e->write.spent_ns;
        q->write_bytes = e->write.n_bytes;
        break;
    case VT_REQ_MASKS:
        q->n_masks += e->masks.n;
        q->n_new_masks += e->masks.n_new;
        q->mask_ns += e->masks.ns;
        q->slowest_mask_us = e->masks.slowest_us > q->slowest_mask_us ? e->masks.slowest_us
                                                                      : q->slowest_mask_us;
        break;
    case VT_REQ_DRAFTS:
        q->draft_tokens += e->drafts.n;
        q->draft_accepted += e->drafts.n_accepted;
        q->n_forced += e->drafts.n_forced;
        break;
    case VT_REQ_LATE_MASK:
        q->n_late_masks++;
        q->late_mask_ns += e->part.end_ns - e->part.begin_ns;
        break;
    case VT_REQ_CACHE:
        if (e->cache.what == VT_CACHE_LEFT) {
            q->left_page = e->cache.n;
            q->left_step = (uint32_t)e->cache.why;
        }
        break;
    }
}

static vt_status read_requests(const story_source *from, vt_request_id id, story_record *r,
                               vt_err *err)
{
    int32_t n = 0, tokens = 0;
    for (uint64_t i = 0; i < from->n_requests; i++) {
        const vt_request_event *e = &from->request[i];
        n += e->kind == VT_REQ_ARRIVE;
        tokens += e->kind == VT_REQ_TOKEN && e->request == id;
    }
    r->request = vt_arena_alloc(&r->arena, (size_t)n + 1, sizeof *r->request);
    int64_t *token_ns = vt_arena_alloc(&r->arena, (size_t)tokens + 1, sizeof *token_ns);
    if (!r->request || !token_ns)
        return out_of_memory(err);
    for (uint64_t i = 0; i < from->n_requests; i++)
        if (from->request[i].kind == VT_REQ_ARRIVE)
            r->request[r->n_requests++] = (request_record){.id = from->request[i].request,
                                                           .left_page = -1};
    qsort(r->request, (size_t)r->n_requests, sizeof *r->request, by_id);
    r->mine = id ? (request_record *)story_find_request(r, id) : NULL;
    if (id && !r->mine)
        return vt_fail(err, VT_ERR_USAGE, "the recording does not hold the arrival of request %llu",
                       (unsigned long long)id);
    if (r->mine)
        r->mine->token_ns = token_ns;
    for (uint64_t i = 0; i < from->n_requests; i++) {
        request_record *q = (request_record *)story_find_request(r, from->request[i].request);
        if (q)
            read_request_event(r, q, &from->request[i]);
    }
    return VT_OK;
}

/* ---- which steps belong to the story, and which of them are prefill ---- */

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

static vt_status fill(const story_input *in, vt_request_id id, story_record *r, vt_err *err)
{
    const story_source *e = engine_of(in);
    TRY(make_steps(e, r, err));
    for (uint64_t i = 0; i < e->n_steps; i++)
        read_step_event(r, &e->step[i]);
    TRY(place_seqs(e, r, err));
    TRY(read_requests(e, id, r, err));
    r->event = e->request;
    r->n_events = e->n_requests;
    choose_steps(r);
    TRY(story_read_lanes(in, r, err));
    story_read_use(in, r);
    return story_sum_lanes(in, r, err);
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

int64_t story_origin(const story_record *r)
{
    const request_record *q = r->mine;
    for (int32_t i = 0; !q && i < r->n_steps; i++)
        if (r->step[i].chosen)
            return r->step[i].device.begin_ns;
    if (!q)
        return 0;
    const int64_t first[] = {q->parse.begin_ns, q->template.begin_ns, q->tokenise.begin_ns};
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++)
        if (first[i] > 0 && first[i] < q->arrive_ns)
            return first[i];
    return q->arrive_ns;
}

bool step_is_disturbed(const step_record *s) { return s->use.disturbed; }

void story_record_release(story_record *r) { vt_arena_release(&r->arena); }
