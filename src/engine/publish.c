/* From the scheduler's outputs to the requests' callbacks.
 *
 *   output of a step:  tokens, scores, an end
 *     1. text is made of all tokens of the step      (engine/stream.h; may find a stop string)
 *     2. each owner is called back with its event
 *
 * The two are apart so that a story can tell them apart with one look at the clock a step. */
#include "engine/engine_inside.h"

static vt_event event_of(const vt_seq *q)
{
    const vt_mask_cost cost = q->constrained ? q->constrained->cost : (vt_mask_cost){0};
    return (vt_event){.request = q->req->id,
                      .sample = q->index,
                      .finish = VT_FINISH_NONE,
                      .stop = -1,
                      .prompt_tokens = q->n_prompt,
                      .completion_tokens = vt_seq_output(q),
                      .cached_tokens = q->cached_tokens,
                      .arrived_ns = q->req->p.arrived_ns ? q->req->p.arrived_ns : q->req->arrive_ns,
                      .admitted_ns = q->admitted_ns,
                      .n_chunks = q->n_chunks,
                      .n_retracted = q->n_retracted,
                      .draft_tokens = q->drafting.tokens,
                      .draft_accepted = q->drafting.accepted,
                      .forced_tokens = q->n_forced,
                      .n_masks = (int32_t)cost.n,
                      .n_new_masks = (int32_t)cost.n_new,
                      .mask_ns = cost.ns,
                      .slowest_mask_ns = cost.worst_ns};
}

static void call_back(const vt_seq *q, const vt_event *event)
{
    if (q->req->p.callback)
        q->req->p.callback(q->req->p.user, event);
}

/* Puts the log-probabilities of ids[0..n), which are rows row .. row + n - 1 of the result, into
 * the event. */
static void add_logprobs(vt_engine *e, vt_event *event, const vt_seq *q,
                         const vt_step_result *result, int32_t row, const int32_t *ids, int32_t n)
{
    int32_t n_top = q->req->p.logprobs > 0 ? q->req->p.logprobs : 0;
    for (int32_t i = 0; i < n; i++) {
        e->logprob[i] = (vt_token_logprob){ids[i], result->logprob[row + i]};
        for (int32_t k = 0; k < n_top; k++) {
            int64_t from = (int64_t)(row + i) * VT_MAX_TOP_LOGPROBS + k;
            e->top[(int64_t)i * n_top + k] = (vt_token_logprob){result->top_id[from],
                                                                result->top_logprob[from]};
        }
    }
    event->logprobs = e->logprob;
    event->top_logprobs = n_top > 0 ? e->top : NULL;
    event->n_top = n_top;
}

static void tell_scores(vt_engine *e, const vt_output *o, const vt_step_result *result)
{
    vt_seq *q = o->seq;
    vt_event event = event_of(q);
    event.completion_tokens = 0;
    event.made_ns = result->end_ns;
    event.tokens = q->token + o->scored_from + 1;
    event.n_tokens = o->n_scored;
    add_logprobs(e, &event, q, result, o->row, event.tokens, o->n_scored);
    call_back(q, &event);
}

/* Adds the sum of its tokens' hidden states to an output's vector. */
static void pool(vt_engine *e, const vt_output *o, const vt_step_result *result)
{
    vt_seq *q = o->seq;
    int64_t n = e->pooler.n_hidden;
    const float *sum = (const float *)result->hidden + o->row * 2 * n;
    if (vt_embedding_add(&e->pooler, q->embedding, sum, sum + n))
        return;
    vt_sched_finish(&e->sched, q, VT_END_MEMORY);
    q->end = VT_END_MEMORY; /* also of one that had ended */
}

/* Makes the vector of a request to embed whose prompt is computed. */
static void tell_vector(vt_engine *e, vt_seq *q, vt_event *event)
{
    if (vt_embedding_finish(&e->pooler, q->embedding)) {
        event->vector = e->pooler.vector;
        event->n_vector = q->embedding->n_vector;
        return;
    }
    q->end = VT_END_NOT_NUMBERS;
    vt_radix_flush(&e->sched.radix); /* what made them may be cached */
}

static void tell_end(vt_engine *e, vt_seq *q, vt_event *event)
{
    if (q->embedding && q->end == VT_END_PROMPT)
        tell_vector(e, q, event);
    event->end_reason = (vt_end_reason)q->end;
    event->finish = vt_end_finish(event->end_reason);
    event->error = q->end == VT_END_DEVICE_LOST ? e->fault.message
                                                : vt_end_sentence(event->end_reason);
    event->stop = q->end == VT_END_STOP_STRING ? q->stream.found : -1;
    e->n_ended[q->end]++;
    if (q->constrained) {
        e->masks.n += q->constrained->cost.n;
        e->masks.n_new += q->constrained->cost.n_new;
        e->masks.ns += q->constrained->cost.ns;
        vt_trace_masks(&e->requests, q->req->id, engine_now(e), event->n_masks, event->n_new_masks,
                       event->mask_ns, event->slowest_mask_ns);
    }
    if (event->draft_tokens > 0 || event->forced_tokens > 0)
        vt_trace_drafts(&e->requests, q->req->id, engine_now(e), event->draft_tokens,
                        event->draft_accepted, event->forced_tokens);
    if (q->left_page >= 0)
        vt_trace_left(&e->requests, q->req->id, engine_now(e), q->left_page, q->left_step);
    vt_trace_finish(&e->requests, q->req->id, engine_now(e), q->end, vt_seq_output(q));
}

/* Makes text of one output of the scheduler. A stop string that is found here ends the sequence,
 * and the output's tokens behind the one that completed it are taken back. */
static void make_text(vt_engine *e, vt_output *o)
{
    vt_seq *q = o->seq;
    bool stopped = false;
    int32_t with_text = o->n - o->silent;
    for (int32_t i = 0; i < with_text && !stopped; i++) {
        stopped = vt_stream_feed(&q->stream, q->token[o->from + i]);
        if (stopped && i + 1 < o->n) {
            o->n = i + 1;
            q->n_tokens = o->from + o->n;
        }
    }
    if (q->state == VT_SEQ_DONE && !stopped)
        stopped = vt_stream_finish(&q->stream);
    if (stopped) {
        vt_finish finish = vt_end_finish((vt_end_reason)q->end);
        vt_sched_finish(&e->sched, q, VT_END_STOP_STRING);
        /* if the same tokens reached the length, the stop string is the better reason */
        if (finish == VT_FINISH_LENGTH || finish == VT_FINISH_STOP)
            q->end = VT_END_STOP_STRING;
    }
    if (q->stream.held.failed)
        vt_sched_finish(&e->sched, q, VT_END_MEMORY);
}

/* Makes events of the output, whose text is made, and calls back. */
static void publish(vt_engine *e, const vt_output *o, const vt_step_result *result)
{
    vt_seq *q = o->seq;
    if (o->n_scored > 0 && q->embedding)
        pool(e, o, result);
    else if (o->n_scored > 0)
        tell_scores(e, o, result);
    vt_event event = event_of(q);
    if (o->n > 0) {
        event.tokens = q->token + o->from;
        event.n_tokens = o->n;
        event.made_ns = result ? result->end_ns : 0;
        if (q->req->p.logprobs >= 0)
            add_logprobs(e, &event, q, result, o->row + o->n_scored, event.tokens, o->n);
        e->n_output_tokens += (uint64_t)o->n;
        for (int32_t i = 0; i < o->n; i++)
            vt_trace_token(&e->tokens, q->req->id, 0, result ? result->id : 0,
                           o->from + i - q->n_prompt, event.tokens[i]);
    }
    if (q->state == VT_SEQ_DONE)
        tell_end(e, q, &event);
    else if (o->n == 0)
        return; /* only scores, published above */
    event.text = q->stream.held.data;
    event.text_len = q->stream.ready;
    call_back(q, &event);
    vt_stream_taken(&q->stream);
}

/* Takes a request out of the list of live ones. Lock held. */
static void forget_live(vt_engine *e, vt_req *r)
{
    vt_req *last = e->live[--e->n_live];
    e->live[r->live_at] = last;
    last->live_at = r->live_at;
}

void engine_publish_all(vt_engine *e, const vt_step_result *result)
{
    for (int32_t i = 0; i < e->sched.n_out; i++)
        make_text(e, &e->sched.out[i]);
    if (result)
        e->text_ns = engine_now(e);
    for (int32_t i = 0; i < e->sched.n_out; i++)
        publish(e, &e->sched.out[i], result);
    e->sched.n_out = 0;
    if (e->sched.n_dead == 0)
        return;
    pthread_mutex_lock(&e->lock);
    for (int32_t i = 0; i < e->sched.n_dead; i++)
        forget_live(e, e->sched.dead[i]);
    pthread_mutex_unlock(&e->lock);
    for (int32_t i = 0; i < e->sched.n_dead; i++)
        vt_req_free(e->sched.dead[i]);
    e->sched.n_dead = 0;
}

void engine_publish(vt_engine *e, vt_output *o)
{
    make_text(e, o);
    publish(e, o, NULL);
}
