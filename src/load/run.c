/* The loop of a load generator (load/run.h).
 *
 *   1. sessions that are due begin: their first turn is queued
 *   2. queued turns are sent while connections are free
 *   3. the client waits for answers, at most until the next session is due or a tenth of a second;
 *      an answered turn queues the next turn of its session
 *
 * The queue is a list through the sessions, so nothing is allocated for a turn but its messages. */
#include "load/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/random.h"

enum { TICK_NS = 100000000 };
#define MOST_GAPS ((size_t)1 << 28)

/* A chat that is under way: what was said, as (role, text) in order. */
typedef struct message {
    const char *role;
    vt_buf text;
} message;

typedef struct chat {
    message *said; /* [n] */
    int32_t n;
} chat;

typedef struct running {
    const vt_load_options *o;
    vt_load_outcome *out;
    vt_load_client *client;
    int32_t next;        /* the first session that has not begun */
    int32_t n_open;      /* sessions that have begun and not ended */
    int32_t *turn;       /* [n sessions] the turn that each is at */
    int32_t *behind;     /* [n sessions] the queue: what follows each; -1: nothing */
    int32_t first, last; /* of the queue; -1: empty */
    chat *chat;          /* [n sessions] */
    int64_t *due_ns;     /* [n sessions] of open loops */
    size_t gap_cap;
    vt_load_progress progress;
    vt_buf prefix, text, body;
    bool out_of_memory;
} running;

/* ---- messages ---- */

static void say(running *r, chat *c, const char *role, const char *text, size_t len)
{
    message *more = realloc(c->said, (size_t)(c->n + 1) * sizeof *more);
    if (!more) {
        r->out_of_memory = true;
        return;
    }
    c->said = more;
    c->said[c->n] = (message){.role = role};
    r->out_of_memory |= !vt_buf_add(&c->said[c->n++].text, text, len);
}

static void forget(chat *c)
{
    for (int32_t i = 0; i < c->n; i++)
        vt_buf_release(&c->said[i].text);
    free(c->said);
    *c = (chat){0};
}

static const char *data_of(const vt_buf *b) { return b->data ? b->data : ""; }

/* A chat: the shared prefix is its system message; then what was said; then the new text. */
static void write_chat(running *r, chat *c, vt_openai_call *call, vt_json *w)
{
    vt_openai_turn *turn = vt_calloc((size_t)c->n + 1, sizeof *turn);
    if (!turn) {
        r->out_of_memory = true;
        return;
    }
    int32_t n = 0;
    if (r->prefix.len)
        turn[n++] = (vt_openai_turn){"system", r->prefix.data, r->prefix.len};
    for (int32_t i = 0; i < c->n; i++)
        turn[n++] = (vt_openai_turn){c->said[i].role, data_of(&c->said[i].text),
                                     c->said[i].text.len};
    call->turn = turn;
    call->n_turns = n;
    vt_openai_call_write(call, w);
    free(turn);
}

/* A plain completion: prefix, what was said and the new text, one behind the other. */
static void write_prompt(running *r, const chat *c, vt_openai_call *call, vt_json *w)
{
    vt_buf all = {0};
    const char *between = r->o->plan->ids ? "" : " ";
    vt_buf_add(&all, data_of(&r->prefix), r->prefix.len);
    for (int32_t i = 0; i <= c->n; i++) {
        const vt_buf *part = i < c->n ? &c->said[i].text : &r->text;
        bool answer = i < c->n && strcmp(c->said[i].role, "assistant") == 0;
        if (all.len && part->len && !answer)
            vt_buf_puts(&all, between);
        vt_buf_add(&all, data_of(part), part->len);
    }
    if (r->o->plan->ids) {
        call->ids = (const int32_t *)(const void *)all.data;
        call->n_ids = (int32_t)(all.len / sizeof *call->ids);
    } else {
        call->text = data_of(&all);
        call->text_len = all.len;
    }
    vt_openai_call_write(call, w);
    r->out_of_memory |= all.failed;
    vt_buf_release(&all);
}

/* The body of the turn that session `i` is at, into r->body. */
static void write_body(running *r, int32_t i)
{
    const vt_load_options *o = r->o;
    const vt_load_plan *p = o->plan;
    const vt_load_turn *t = &p->turn[p->session[i].first_turn + r->turn[i]];
    vt_json w;
    vt_buf_clear(&r->prefix);
    vt_buf_clear(&r->text);
    vt_buf_clear(&r->body);
    vt_load_plan_prefix(p, i, &r->prefix);
    vt_load_plan_text(p, i, r->turn[i], &r->text);
    vt_openai_call call = {.chat = o->chat,
                           .model = o->model,
                           .text = data_of(&r->text),
                           .text_len = r->text.len,
                           .max_tokens = t->output,
                           .temperature = o->temperature,
                           .ignore_eos = o->ignore_eos,
                           .stream = o->stream};
    vt_json_begin(&w, &r->body, -1);
    if (o->chat)
        write_chat(r, &r->chat[i], &call, &w);
    else
        write_prompt(r, &r->chat[i], &call, &w);
    r->out_of_memory |= !vt_json_end(&w) || r->prefix.failed || r->text.failed;
    if (r->turn[i] + 1 < p->session[i].n_turns)
        say(r, &r->chat[i], "user", data_of(&r->text), r->text.len);
}

/* ---- the queue ---- */

static void queue(running *r, int32_t i)
{
    r->behind[i] = -1;
    if (r->last >= 0)
        r->behind[r->last] = i;
    else
        r->first = i;
    r->last = i;
}

static void begin_sessions(running *r, int64_t now)
{
    const vt_load_options *o = r->o;
    const vt_load_plan *p = o->plan;
    bool closed = o->arrivals == VT_LOAD_CLOSED;
    while (r->next < p->n && (closed ? r->n_open < o->concurrency : r->due_ns[r->next] <= now)) {
        int32_t i = r->next++;
        r->out->result[p->session[i].first_turn].due_ns = closed ? 0 : r->due_ns[i];
        r->n_open++;
        queue(r, i);
    }
}

static void send_queued(running *r)
{
    const vt_load_options *o = r->o;
    const vt_load_plan *p = o->plan;
    while (r->first >= 0 && !r->out_of_memory) {
        vt_load_client_stats stats;
        int32_t i = r->first;
        vt_load_result *result = &r->out->result[p->session[i].first_turn + r->turn[i]];
        vt_load_client_copy_stats(r->client, &stats);
        if (stats.busy == o->concurrency)
            return;
        r->first = r->behind[i];
        r->last = r->first < 0 ? -1 : r->last;
        write_body(r, i);
        result->session = i;
        result->turn = r->turn[i];
        result->max_tokens = p->turn[p->session[i].first_turn + r->turn[i]].output;
        result->due_ns = result->due_ns ? result->due_ns : vt_now_ns();
        r->progress.sent++;
        (void)vt_load_client_send(r->client, o->chat ? "/v1/chat/completions" : "/v1/completions",
                                  r->body.data, r->body.len, o->stream, result);
    }
}

/* ---- answers ---- */

static void on_gap(void *user, float seconds)
{
    running *r = user;
    vt_load_outcome *out = r->out;
    r->progress.pieces++;
    if (out->n_gaps == r->gap_cap) {
        size_t cap = r->gap_cap ? 2 * r->gap_cap : 65536;
        float *more = cap <= MOST_GAPS ? realloc(out->gap, cap * sizeof *more) : NULL;
        if (!more) {
            out->n_gaps_lost++;
            return;
        }
        out->gap = more;
        r->gap_cap = cap;
    }
    out->gap[out->n_gaps++] = seconds;
}

static void on_end(void *user, vt_load_result *result, const vt_buf *text)
{
    running *r = user;
    int32_t i = result->session;
    r->progress.ended++;
    r->progress.pieces += result->n_pieces > 0;
    r->progress.failed += result->end != VT_LOAD_OK;
    r->turn[i]++;
    if (result->end == VT_LOAD_OK && r->turn[i] < r->o->plan->session[i].n_turns) {
        say(r, &r->chat[i], "assistant", data_of(text), text->len);
        queue(r, i);
    } else {
        forget(&r->chat[i]);
        r->n_open--;
    }
}

/* ---- the loop ---- */

static void draw_arrivals(running *r)
{
    const vt_load_options *o = r->o;
    uint64_t rng = vt_mix64(o->plan->seed + 77);
    double at = 0;
    for (int32_t i = 0; i < o->plan->n; i++) {
        if (o->arrivals == VT_LOAD_TRACE) {
            at = (double)o->plan->session[i].due_ns * 1e-9 / o->rate;
        } else if (i > 0) {
            double u = ((double)(vt_random_next(&rng) >> 11) + 0.5) * 0x1p-53; /* in (0, 1) */
            at -= log(u) / o->rate;
        }
        r->due_ns[i] = r->out->begin_ns + (int64_t)(at * 1e9);
    }
}

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static vt_status loop(running *r, vt_err *err)
{
    const vt_load_options *o = r->o;
    int64_t now = r->out->begin_ns, tick = now;
    for (;;) {
        begin_sessions(r, now);
        send_queued(r);
        if (r->out_of_memory)
            return vt_fail(err, VT_ERR_MEMORY, "out of memory for the requests");
        if (r->next == o->plan->n && r->n_open == 0)
            return VT_OK;
        if (now >= tick) {
            tick = now + TICK_NS;
            r->progress.elapsed_s = (double)(now - r->out->begin_ns) * 1e-9;
            vt_load_client_stats stats;
            vt_load_client_copy_stats(r->client, &stats);
            r->progress.busy = stats.busy;
            if (o->on_tick && !o->on_tick(o->user, &r->progress)) {
                r->out->stopped = true;
                return VT_OK;
            }
        }
        int64_t until = tick;
        if (o->arrivals != VT_LOAD_CLOSED && r->next < o->plan->n && r->due_ns[r->next] < until)
            until = r->due_ns[r->next];
        TRY(vt_load_client_poll(r->client, until, err));
        now = vt_now_ns();
    }
}

static vt_status make(running *r, vt_err *err)
{
    const vt_load_options *o = r->o;
    size_t n = (size_t)o->plan->n;
    bool turns = o->plan->n_turns > o->plan->n;
    vt_load_client_options c = {.target = o->target,
                                .key = o->key,
                                .max_connections = o->concurrency,
                                .timeout_s = o->timeout_s,
                                .keep_text = turns,
                                .on_end = on_end,
                                .on_gap = on_gap,
                                .user = r};
    r->out->n = o->plan->n_turns;
    r->out->result = vt_calloc((size_t)o->plan->n_turns, sizeof *r->out->result);
    r->turn = vt_calloc(n, sizeof *r->turn);
    r->behind = vt_calloc(n, sizeof *r->behind);
    r->chat = vt_calloc(n, sizeof *r->chat);
    r->due_ns = vt_calloc(n, sizeof *r->due_ns);
    if (!r->out->result || !r->turn || !r->behind || !r->chat || !r->due_ns)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d requests", o->plan->n_turns);
    return vt_load_client_new(&c, &r->client, err);
}

vt_status vt_load_run(const vt_load_options *o, vt_load_outcome *out, vt_err *err)
{
    *out = (vt_load_outcome){0};
    running r = {.o = o, .out = out, .first = -1, .last = -1};
    r.progress.total = o->plan->n_turns;
    vt_status status = make(&r, err);
    if (status == VT_OK) {
        double cpu = cpu_s();
        out->begin_ns = vt_now_ns();
        draw_arrivals(&r);
        status = loop(&r, err);
        out->end_ns = vt_now_ns();
        out->cpu_s = cpu_s() - cpu;
        vt_load_client_copy_stats(r.client, &out->client);
    }
    vt_load_client_free(r.client);
    for (int32_t i = 0; r.chat && i < o->plan->n; i++)
        forget(&r.chat[i]);
    free(r.turn);
    free(r.behind);
    free(r.chat);
    free(r.due_ns);
    vt_buf_release(&r.prefix);
    vt_buf_release(&r.text);
    vt_buf_release(&r.body);
    return status;
}

void vt_load_outcome_release(vt_load_outcome *out)
{
    free(out->result);
    free(out->gap);
    *out = (vt_load_outcome){0};
}
