/* "steps", "chunks" and "requests" of a story.json (steps.h, docs/story-format.md). */
#include "story/record/steps.h"

#include <math.h>

#include "base/err.h"
#include "story/record/columns.h"
#include "story/record/workers.h"

/* ---- steps ---- */

static double part_us(const step_record *s, vt_trace_part part)
{
    return s->part[part].end_ns ? span_s(s->part[part]) * 1e6 : NAN;
}

/* The last VT_COUNTERS_OF_STEPS are there where those hardware events were counted. */
enum { STEP_COLUMNS = 20 + VT_COUNTERS_OF_STEPS };

static const story_column step_column[STEP_COLUMNS] = {
    {"id", 0},     {"begin_ms", 4},     {"ms", 4},          {"wait_us", 2},    {"prefill", 0},
    {"tokens", 0}, {"seqs", 0},         {"decodes", 0},     {"new", 0},        {"kv", 0},
    {"token", 0},  {"schedule_us", 2},  {"prepare_us", 2},  {"publish_us", 2}, {"graph", 0},
    {"held", 0},   {"cached", 0},       {"free", 0},        {"typical", 0},    {"calls", 0},
    {"cycles", 0}, {"instructions", 0}, {"cache_misses", 0}};

/* before: the step before it in the recording; token: the index of the token that it made. */
static double step_value(const step_record *s, const step_record *before, int32_t token,
                         int64_t origin, int column)
{
    double wait = before ? (double)(s->device.begin_ns - before->device.end_ns) * 1e-3 : NAN;
    const double v[STEP_COLUMNS] = {(double)s->id,
                                    (double)(s->device.begin_ns - origin) * 1e-6,
                                    span_s(s->device) * 1e3,
                                    wait > 0 || isnan(wait) ? wait : 0,
                                    s->prefill,
                                    s->n_tokens,
                                    s->n_seqs,
                                    s->n_decode,
                                    s->q_len,
                                    s->kv_len,
                                    token >= 0 ? token : NAN,
                                    part_us(s, VT_PART_SCHEDULE),
                                    part_us(s, VT_PART_PREPARE),
                                    part_us(s, VT_PART_PUBLISH),
                                    s->stream ? step_graph(s) : NAN,
                                    s->pages_held,
                                    s->pages_cached,
                                    s->pages_free,
                                    s->typical,
                                    s->n_call,
                                    step_count(s, VT_COUNT_CYCLES),
                                    step_count(s, VT_COUNT_INSTRUCTIONS),
                                    step_count(s, VT_COUNT_MISSES)};
    return v[column];
}

int32_t story_pick_steps(const story_record *r, int32_t *out, int32_t *left_out)
{
    enum { OLDEST = STORY_MAX_STEPS / 4 };
    int32_t all = 0, n = 0, at = 0;
    for (int32_t i = 0; i < r->n_steps; i++)
        all += r->step[i].chosen;
    *left_out = all > STORY_MAX_STEPS ? all - STORY_MAX_STEPS : 0;
    for (int32_t i = 0; i < r->n_steps; i++) {
        if (!r->step[i].chosen)
            continue;
        if (at < OLDEST || at >= OLDEST + *left_out)
            out[n++] = i;
        at++;
    }
    return n;
}

/* The index of the request's token that each step made; -1: none. */
static void find_tokens(const story_record *r, int32_t *token)
{
    int32_t at = 0;
    for (int32_t i = 0; i < r->n_steps; i++)
        token[i] = -1;
    for (int32_t k = 0; r->mine && k < r->mine->n_token_ns; k++) {
        while (at < r->n_steps && r->step[at].device.end_ns < r->mine->token_ns[k])
            at++;
        if (at < r->n_steps && r->step[at].device.end_ns == r->mine->token_ns[k])
            token[at] = k;
    }
}

static void put_steps(vt_json *w, const story_record *r, int32_t *list, int32_t *token, double *v)
{
    int32_t left_out, n = story_pick_steps(r, list, &left_out);
    find_tokens(r, token);
    story_open_list(w, "steps", n, left_out, "no step of it is in the recorder's rings");
    vt_json_open(w, "columns", '{');
    unsigned counted = story_counted(r);
    for (int c = 0; c < STEP_COLUMNS; c++) {
        int counter = c - (STEP_COLUMNS - VT_COUNTERS_OF_STEPS);
        if (counter >= 0 && !(counted >> counter & 1))
            continue;
        for (int32_t i = 0; i < n; i++)
            v[i] = step_value(&r->step[list[i]], list[i] > 0 ? &r->step[list[i] - 1] : NULL,
                              token[list[i]], story_origin(r), c);
        story_put_column(w, step_column[c].key, v, n, step_column[c].digits);
    }
    vt_json_close(w);
    vt_json_close(w);
}

/* ---- the sequences of a batch ---- */

static void put_chunks(vt_json *w, const story_record *r, double *v)
{
    static const char *const key[] = {"step", "request", "tokens", "kv"};
    int32_t all = 0, n;
    for (int32_t i = 0; i < r->n_steps; i++)
        for (int32_t k = 0; r->step[i].chosen && k < r->step[i].n_seq; k++)
            all += r->seq[r->step[i].first_seq + k].q_len > 1;
    n = all < STORY_MAX_CHUNKS ? all : STORY_MAX_CHUNKS;
    story_open_list(w, "chunks", n, all - n, "no step computed more than one token of a request");
    vt_json_open(w, "columns", '{');
    for (int c = 0; c < 4; c++) {
        int32_t at = 0;
        for (int32_t i = 0; i < r->n_steps; i++)
            for (int32_t k = 0; r->step[i].chosen && k < r->step[i].n_seq && at < n; k++) {
                const step_seq *q = &r->seq[r->step[i].first_seq + k];
                if (q->q_len > 1)
                    v[at++] = c == 0   ? (double)r->step[i].id
                              : c == 1 ? (double)q->request
                              : c == 2 ? q->q_len
                                       : q->kv_len;
            }
        story_put_column(w, key[c], v, n, 0);
    }
    vt_json_close(w);
    vt_json_close(w);
}

/* When a request got its tokens. */
typedef struct got {
    int64_t first_ns, last_ns;
    int32_t n;
} got;

static void find_got(const story_record *r, got *out)
{
    for (uint64_t i = 0; i < r->n_events; i++) {
        const vt_req_token *e = &r->event[i].token;
        const request_record *q = e->kind == VT_REQ_TOKEN ? story_find_request(r, e->request)
                                                          : NULL;
        if (!q)
            continue;
        got *g = &out[q - r->request];
        g->last_ns = story_token_time(r, e);
        g->first_ns = g->n++ ? g->first_ns : g->last_ns;
    }
}

static double since(int64_t at_ns, int64_t origin)
{
    return at_ns > 0 ? (double)(at_ns - origin) * 1e-6 : NAN;
}

static void put_requests(vt_json *w, const story_record *r, const got *g, double *v)
{
    static const story_column column[] = {{"id", 0},       {"arrive_ms", 4}, {"admit_ms", 4},
                                          {"first_ms", 4}, {"last_ms", 4},   {"done_ms", 4},
                                          {"prompt", 0},   {"cached", 0},    {"tokens", 0},
                                          {"pages", 0},    {"retracted", 0}};
    int64_t origin = story_origin(r);
    int32_t n = r->n_requests < STORY_MAX_REQUESTS ? r->n_requests : STORY_MAX_REQUESTS;
    n = r->mine ? 0 : n; /* a request's story is about one */
    story_open_list(w, "requests", n, r->mine ? 0 : r->n_requests - n,
                    r->mine ? "the story is of one request: see request"
                            : "no request was recorded");
    vt_json_open(w, "columns", '{');
    for (size_t c = 0; c < sizeof column / sizeof column[0]; c++) {
        for (int32_t i = 0; i < n; i++) {
            const request_record *q = &r->request[i];
            const double row[] = {(double)q->id,
                                  since(q->arrive_ns, origin),
                                  since(q->match.begin_ns, origin),
                                  since(g[i].first_ns, origin),
                                  since(g[i].last_ns, origin),
                                  since(q->finish_ns, origin),
                                  q->n_prompt,
                                  q->n_cached,
                                  g[i].n,
                                  q->n_pages,
                                  q->n_retracted};
            v[i] = row[c];
        }
        story_put_column(w, column[c].key, v, n, column[c].digits);
    }
    vt_json_close(w);
    vt_json_close(w);
}

/* ---- all of it ---- */

vt_status story_put_steps(vt_json *w, story_record *r, vt_err *err)
{
    size_t most = (size_t)STORY_MAX_STEPS + STORY_MAX_CHUNKS + STORY_MAX_REQUESTS;
    double *v = vt_arena_alloc(&r->arena, most, sizeof *v);
    int32_t *list = vt_arena_alloc(&r->arena, STORY_MAX_STEPS, sizeof *list);
    int32_t *token = vt_arena_alloc(&r->arena, (size_t)r->n_steps + 1, sizeof *token);
    got *g = vt_arena_alloc(&r->arena, (size_t)r->n_requests + 1, sizeof *g);
    if (!v || !list || !token || !g)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    find_got(r, g);
    put_steps(w, r, list, token, v);
    put_chunks(w, r, v);
    put_requests(w, r, g, v);
    return VT_OK;
}
