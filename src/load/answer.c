/* From bytes to a result (load/answer.h). */
#include "load/answer.h"

#include <stdio.h>
#include <string.h>

static const char *const names[VT_LOAD_N_ENDS] = {"unfinished", "ok",       "connect", "cut",
                                                  "http",       "reported", "format",  "timeout"};

const char *vt_load_end_name(vt_load_end end) { return names[end]; }

void vt_load_answer_fail(vt_load_answer *a, vt_load_end end, int64_t now_ns, const char *why)
{
    vt_load_result *r = a->result;
    if (r->end != VT_LOAD_OPEN)
        return;
    r->end = end;
    r->end_ns = now_ns;
    snprintf(r->why, sizeof r->why, "%.95s", why);
}

/* ---- pieces ---- */

static void count_text(vt_load_answer *a)
{
    vt_load_result *r = a->result;
    if (r->n_pieces++ == 0) {
        r->first_ns = a->now_ns;
    } else {
        float gap = (float)((double)(a->now_ns - r->last_ns) * 1e-9);
        r->longest_gap_s = gap > r->longest_gap_s ? gap : r->longest_gap_s;
        if (a->on_gap)
            a->on_gap(a->user, gap);
    }
    r->last_ns = a->now_ns;
    if (a->keep_text)
        vt_buf_add(&a->text, a->piece.text.data, a->piece.text.len);
}

/* One JSON object: a whole reply or one event of a stream. */
static void take_piece(vt_load_answer *a, const char *json, size_t len)
{
    vt_load_result *r = a->result;
    vt_openai_piece *p = &a->piece;
    vt_err err = {0};
    if (vt_openai_piece_read(json, len, p, &err) != VT_OK) {
        vt_load_answer_fail(a, VT_LOAD_FORMAT, a->now_ns, err.message);
        return;
    }
    if (p->error.http) {
        vt_load_answer_fail(a, VT_LOAD_REPORTED, a->now_ns, p->error.message);
        return;
    }
    if (p->text.len > 0)
        count_text(a);
    a->finished |= p->n_finished > 0;
    r->prompt = p->prompt_tokens >= 0 ? p->prompt_tokens : r->prompt;
    r->completion = p->completion_tokens >= 0 ? p->completion_tokens : r->completion;
    r->cached = p->cached_tokens >= 0 ? p->cached_tokens : r->cached;
}

/* ---- event streams ---- */

static void on_event(void *user, const char *data, size_t len)
{
    vt_load_answer *a = user;
    if (a->result->end != VT_LOAD_OPEN)
        return;
    if (a->done)
        vt_load_answer_fail(a, VT_LOAD_FORMAT, a->now_ns, "an event after [DONE]");
    else if (len == 6 && memcmp(data, "[DONE]", 6) == 0)
        a->done = true;
    else
        take_piece(a, data, len);
}

static void take_stream(vt_load_answer *a, const char *data, size_t len)
{
    if (!vt_event_stream_feed(&a->events, data, len))
        vt_load_answer_fail(a, VT_LOAD_FORMAT, a->now_ns,
                            a->events.line.failed ? "a line of the stream is too long"
                                                  : "an event of the stream is too long");
}

/* ---- HTTP ---- */

static void on_body(void *user, const char *data, size_t len)
{
    vt_load_answer *a = user;
    a->result->status = a->http.status;
    if (a->result->end != VT_LOAD_OPEN)
        return;
    if (a->stream && a->http.status == 200) {
        if (strcmp(a->http.content_type, "text/event-stream") != 0)
            vt_load_answer_fail(a, VT_LOAD_FORMAT, a->now_ns,
                                "the answer is no text/event-stream, which was asked for");
        else
            take_stream(a, data, len);
    } else if (!vt_buf_add(&a->body, data, len)) {
        vt_load_answer_fail(a, VT_LOAD_FORMAT, a->now_ns, "the answer is too long");
    }
}

/* The HTTP response is whole. */
static void end_of_reply(vt_load_answer *a)
{
    vt_load_result *r = a->result;
    r->status = a->http.status;
    if (r->end != VT_LOAD_OPEN)
        return;
    if (r->status != 200) {
        char why[96];
        vt_err err = {0};
        const char *told = "no reason given";
        if (vt_openai_piece_read(a->body.data ? a->body.data : "", a->body.len, &a->piece, &err) ==
                VT_OK &&
            a->piece.error.http)
            told = a->piece.error.message;
        snprintf(why, sizeof why, "status %d: %.70s", r->status, told);
        vt_load_answer_fail(a, VT_LOAD_HTTP, a->now_ns, why);
        return;
    }
    if (!a->stream)
        take_piece(a, a->body.data ? a->body.data : "", a->body.len);
    if (r->end != VT_LOAD_OPEN)
        return;
    if (!a->finished && !a->done) {
        vt_load_answer_fail(a, VT_LOAD_CUT, a->now_ns,
                            "the answer ended without a finish_reason or [DONE]");
        return;
    }
    r->end = VT_LOAD_OK;
    r->end_ns = a->now_ns;
}

bool vt_load_answer_feed(vt_load_answer *a, const char *data, size_t len, int64_t now_ns)
{
    vt_http_reply *h = &a->http;
    a->now_ns = now_ns;
    size_t used = vt_http_reply_feed(h, data, len);
    if (h->state == VT_REPLY_BROKEN)
        vt_load_answer_fail(a, VT_LOAD_FORMAT, now_ns, h->why);
    if (h->state == VT_REPLY_DONE) {
        end_of_reply(a);
        h->keep_alive &= used == len; /* more bytes than the response has */
    }
    return a->result->end != VT_LOAD_OPEN;
}

void vt_load_answer_closed(vt_load_answer *a, int64_t now_ns)
{
    a->now_ns = now_ns;
    vt_http_reply_end(&a->http);
    a->http.keep_alive = false;
    if (a->http.state == VT_REPLY_DONE)
        end_of_reply(a);
    else
        vt_load_answer_fail(a, VT_LOAD_CUT, now_ns, a->http.why);
}

/* ---- life ---- */

void vt_load_answer_init(vt_load_answer *a)
{
    *a = (vt_load_answer){.http = {.on_body = on_body, .user = a}};
    vt_event_stream_init(&a->events, VT_LOAD_MAX_EVENT, on_event, a);
    vt_buf_init(&a->body, VT_LOAD_MAX_REPLY);
    vt_http_reply_reset(&a->http);
}

void vt_load_answer_release(vt_load_answer *a)
{
    vt_event_stream_release(&a->events);
    vt_buf_release(&a->body);
    vt_buf_release(&a->text);
    vt_openai_piece_release(&a->piece);
}

void vt_load_answer_begin(vt_load_answer *a, vt_load_result *result, bool stream)
{
    vt_http_reply_reset(&a->http);
    vt_event_stream_clear(&a->events);
    vt_buf_clear(&a->body);
    vt_buf_clear(&a->text);
    a->result = result;
    a->stream = stream;
    a->done = a->finished = false;
    result->end = VT_LOAD_OPEN;
    result->status = 0;
    result->prompt = result->completion = result->cached = -1;
}
