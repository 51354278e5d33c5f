/* "levels" of a story.json (story/levels.h, docs/story-format.md).
 *
 *   levels.phases     one typical step of each phase, call by call: a layer is a range of calls
 *   levels.details    the calls of single steps: the most typical one of a phase, and slow ones
 *   levels.steps      a row a step
 *   levels.chunks     a row for each part of a prompt in a step
 *   levels.requests   a row a request
 *
 * Rows are written by column, one line a column. Columns of calls have a value for each call of
 * the program, in the order of levels.labels, and null where the step does not run the call. */
#include "story/levels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "story/numbers.h"

/* ---- columns ---- */

static void put_number(vt_buf *b, bool first, double v, int digits)
{
    vt_buf_puts(b, first ? "[" : ",");
    if (!isfinite(v))
        vt_buf_puts(b, "null");
    else if (digits == 0 || v == floor(v))
        vt_buf_printf(b, "%.0f", v);
    else
        vt_buf_printf(b, "%.*f", digits, v);
}

static void put_column(vt_json *w, const char *key, const double *v, int32_t n, int digits)
{
    vt_buf b = {0};
    for (int32_t i = 0; i < n; i++)
        put_number(&b, i == 0, v[i], digits);
    vt_buf_puts(&b, n ? "]" : "[]");
    vt_json_raw(w, key, b.data ? b.data : "[]", b.data ? b.len : 2);
    w->out->failed |= b.failed;
    vt_buf_release(&b);
}

static void open_rows(vt_json *w, const char *key, int32_t n, int32_t left_out)
{
    vt_json_open(w, key, '{');
    vt_json_int(w, "count", n);
    vt_json_int(w, "left_out", left_out);
    vt_json_string(w, "tag", n ? measured : "n/a");
    vt_json_open(w, "columns", '{');
}

static void close_rows(vt_json *w)
{
    vt_json_close(w);
    vt_json_close(w);
}

/* A list of strings on one line. */
static void open_line(vt_json *w, const char *key, int *indent)
{
    vt_json_open(w, key, '[');
    *indent = w->indent;
    w->indent = -1;
}

static void close_line(vt_json *w, int indent)
{
    vt_json_close(w);
    w->indent = indent;
}

/* ---- calls ---- */

typedef enum call_column {
    CALL_US,
    CALL_SLOWEST,
    CALL_SLOWEST_STEP,
    CALL_FLOOR,
    CALL_BYTES,
    CALL_FLOPS,
    CALL_IMPL,
    CALL_COLUMNS
} call_column;

/* Sums over the typical steps of a phase, call by call. */
typedef struct call_sums {
    double *of[CALL_COLUMNS]; /* [n_calls] */
    int32_t *n;               /* [n_calls] in how many of the steps */
    const char **impl;        /* [n_impls] */
    int32_t n_impls, max_impls;
} call_sums;

static int32_t impl_of(call_sums *s, const char *name)
{
    for (int32_t i = 0; i < s->n_impls; i++)
        if (strcmp(s->impl[i], name) == 0)
            return i;
    if (s->n_impls == s->max_impls)
        return -1;
    s->impl[s->n_impls] = name;
    return s->n_impls++;
}

static void add_call(const story_input *in, const story_step *plan, const step_record *s,
                     const call_time *t, call_sums *to)
{
    vt_cost cost = {0}, extra;
    story_bound bound;
    int32_t c = t->call;
    bool costed = story_step_cost(plan, c, &cost, &extra);
    const vt_impl *impl = story_step_impl(plan, c);
    to->n[c]++;
    to->of[CALL_US][c] += t->s * 1e6;
    if (t->s * 1e6 > to->of[CALL_SLOWEST][c]) {
        to->of[CALL_SLOWEST][c] = t->s * 1e6;
        to->of[CALL_SLOWEST_STEP][c] = (double)s->id;
    }
    if (impl)
        to->of[CALL_IMPL][c] = impl_of(to, impl->name);
    if (!costed)
        return;
    to->of[CALL_FLOOR][c] += story_floor_s(&cost, &in->roofs, &bound) * 1e6;
    to->of[CALL_BYTES][c] += (double)vt_cost_bytes(&cost);
    to->of[CALL_FLOPS][c] += (double)vt_cost_flops(&cost);
}

static void sum_calls(const story_input *in, const story_record *r, story_step *plan, bool prefill,
                      call_sums *to)
{
    int32_t n_calls = story_step_program(plan)->n_calls;
    for (int k = 0; k < CALL_COLUMNS; k++)
        memset(to->of[k], 0, (size_t)n_calls * sizeof *to->of[k]);
    memset(to->n, 0, (size_t)n_calls * sizeof *to->n);
    for (int32_t i = 0; i < n_calls; i++)
        to->of[CALL_IMPL][i] = NAN;
    for (int32_t i = 0; i < r->n_steps; i++) {
        const step_record *s = &r->step[i];
        if (!s->chosen || !s->typical || s->prefill != prefill || !story_bind_step(r, s, plan))
            continue;
        for (int32_t k = 0; k < s->n_call; k++) {
            const call_time *t = &r->call[s->first_call + k];
            if (t->call >= 0 && t->call < n_calls)
                add_call(in, plan, s, t, to);
        }
    }
}

static void put_phase_calls(vt_json *w, const phase *p, call_sums *s, int32_t n_calls)
{
    static const struct {
        const char *key;
        int digits;
        bool mean;
    } column[CALL_COLUMNS] = {[CALL_US] = {"us", 2, true},
                              [CALL_SLOWEST] = {"slowest_us", 2, false},
                              [CALL_SLOWEST_STEP] = {"slowest_step", 0, false},
                              [CALL_FLOOR] = {"floor_us", 3, true},
                              [CALL_BYTES] = {"bytes", 0, true},
                              [CALL_FLOPS] = {"flops", 0, true},
                              [CALL_IMPL] = {"impl", 0, false}};
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "name", p->name);
    vt_json_int(w, "steps", p->n_timed);
    vt_json_open(w, "columns", '{');
    for (int k = 0; k < CALL_COLUMNS; k++) {
        for (int32_t i = 0; i < n_calls; i++)
            s->of[k][i] = s->n[i] == 0 ? NAN : column[k].mean ? s->of[k][i] / s->n[i] : s->of[k][i];
        put_column(w, column[k].key, s->of[k], n_calls, column[k].digits);
    }
    vt_json_close(w);
    vt_json_close(w);
}

static void put_labels(vt_json *w, const vt_program *p, double *v)
{
    int indent;
    open_line(w, "labels", &indent);
    for (int32_t i = 0; i < p->n_calls; i++) {
        vt_json_string(w, NULL, p->call[i].label);
        v[i] = p->call[i].layer;
    }
    close_line(w, indent);
    put_column(w, "layers", v, p->n_calls, 0);
}

/* ---- single steps ---- */

typedef struct detail {
    const step_record *step;
    const char *why;
} detail;

static void add_detail(detail *list, int32_t *n, const step_record *s, const char *why)
{
    for (int32_t i = 0; i < *n; i++)
        if (list[i].step == s)
            return;
    if (s && s->n_call > 0 && *n < LEVELS_MAX_DETAILS)
        list[(*n)++] = (detail){s, why};
}

/* The typical step of a phase whose time is nearest to their mean. */
static const step_record *most_typical(const story_record *r, const phase *p, bool prefill)
{
    const step_record *best = NULL;
    double mean = p->n_timed ? p->timed_s / p->n_timed : NAN, nearest = INFINITY;
    for (int32_t i = 0; i < r->n_steps; i++) {
        const step_record *s = &r->step[i];
        double off = fabs(span_s(s->device) - mean);
        if (s->chosen && s->typical && s->prefill == prefill && off < nearest) {
            nearest = off;
            best = s;
        }
    }
    return best;
}

static const step_record *step_of(const story_record *r, uint64_t id)
{
    for (int32_t i = 0; i < r->n_steps; i++)
        if (r->step[i].id == id)
            return &r->step[i];
    return NULL;
}

static void put_details(vt_json *w, const story_record *r, const phase phases[STORY_PHASES],
                        const story_facts *f, int32_t n_calls, double *v)
{
    detail list[LEVELS_MAX_DETAILS];
    int32_t n = 0;
    add_detail(list, &n, most_typical(r, &phases[STORY_PREFILL], true), "typical prefill");
    add_detail(list, &n, most_typical(r, &phases[STORY_DECODE], false), "typical decode");
    for (int32_t i = 0; i < f->slow.n; i++)
        if (f->slow.token[i].step)
            add_detail(list, &n, step_of(r, f->slow.token[i].step), "slow token");
    vt_json_open(w, "details", '[');
    for (int32_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < n_calls; k++)
            v[k] = NAN;
        for (int32_t k = 0; k < list[i].step->n_call; k++) {
            const call_time *t = &r->call[list[i].step->first_call + k];
            if (t->call >= 0 && t->call < n_calls)
                v[t->call] = t->s * 1e6;
        }
        vt_json_open(w, NULL, '{');
        vt_json_int(w, "step", (int64_t)list[i].step->id);
        vt_json_string(w, "why", list[i].why);
        put_column(w, "us", v, n_calls, 2);
        vt_json_close(w);
    }
    vt_json_close(w);
}

/* ---- steps ---- */

static double part_us(const step_record *s, vt_trace_part part)
{
    return s->part[part].end_ns ? span_s(s->part[part]) * 1e6 : NAN;
}

enum { STEP_COLUMNS = 19 };

static const struct {
    const char *key;
    int digits;
} step_column[STEP_COLUMNS] = {
    {"id", 0},     {"begin_ms", 4},    {"ms", 4},         {"wait_us", 2},    {"prefill", 0},
    {"tokens", 0}, {"seqs", 0},        {"decodes", 0},    {"new", 0},        {"kv", 0},
    {"token", 0},  {"schedule_us", 2}, {"prepare_us", 2}, {"publish_us", 2}, {"graph", 0},
    {"held", 0},   {"cached", 0},      {"free", 0},       {"typical", 0}};

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
                                    s->gpu.known ? s->gpu.graph_tokens : NAN,
                                    s->pages_held,
                                    s->pages_cached,
                                    s->pages_free,
                                    s->typical};
    return v[column];
}

/* The chosen steps; of more than there is room for, the first quarter of the room holds the oldest
 * and the rest the newest. Returns how many. */
static int32_t pick_steps(const story_record *r, int32_t *out, int32_t *left_out)
{
    enum { OLDEST = LEVELS_MAX_STEPS / 4 };
    int32_t all = 0, n = 0, at = 0;
    for (int32_t i = 0; i < r->n_steps; i++)
        all += r->step[i].chosen;
    *left_out = all > LEVELS_MAX_STEPS ? all - LEVELS_MAX_STEPS : 0;
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
    int32_t left_out, n = pick_steps(r, list, &left_out);
    find_tokens(r, token);
    open_rows(w, "steps", n, left_out);
    for (int c = 0; c < STEP_COLUMNS; c++) {
        for (int32_t i = 0; i < n; i++)
            v[i] = step_value(&r->step[list[i]], list[i] > 0 ? &r->step[list[i] - 1] : NULL,
                              token[list[i]], story_origin(r), c);
        put_column(w, step_column[c].key, v, n, step_column[c].digits);
    }
    close_rows(w);
}

/* ---- the sequences of a batch ---- */

static void put_chunks(vt_json *w, const story_record *r, double *v)
{
    static const char *const key[] = {"step", "request", "tokens", "kv"};
    int32_t all = 0, n;
    for (int32_t i = 0; i < r->n_steps; i++)
        for (int32_t k = 0; r->step[i].chosen && k < r->step[i].n_seq; k++)
            all += r->seq[r->step[i].first_seq + k].q_len > 1;
    n = all < LEVELS_MAX_CHUNKS ? all : LEVELS_MAX_CHUNKS;
    open_rows(w, "chunks", n, all - n);
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
        put_column(w, key[c], v, n, 0);
    }
    close_rows(w);
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
        g->first_ns = g->n++ ? g->first_ns : e->at_ns;
        g->last_ns = e->at_ns;
    }
}

static double since(int64_t at_ns, int64_t origin)
{
    return at_ns > 0 ? (double)(at_ns - origin) * 1e-6 : NAN;
}

static void put_requests(vt_json *w, const story_record *r, const got *g, double *v)
{
    static const struct {
        const char *key;
        int digits;
    } column[] = {{"id", 0},      {"arrive_ms", 4}, {"admit_ms", 4}, {"first_ms", 4},
                  {"last_ms", 4}, {"done_ms", 4},   {"prompt", 0},   {"cached", 0},
                  {"tokens", 0},  {"pages", 0},     {"retracted", 0}};
    int64_t origin = story_origin(r);
    int32_t n = r->n_requests < LEVELS_MAX_REQUESTS ? r->n_requests : LEVELS_MAX_REQUESTS;
    n = r->mine ? 0 : n; /* a request's story is about one */
    open_rows(w, "requests", n, r->mine ? 0 : r->n_requests - n);
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
        put_column(w, column[c].key, v, n, column[c].digits);
    }
    close_rows(w);
}

/* ---- all of it ---- */

static bool make_sums(story_record *r, int32_t n_calls, call_sums *s)
{
    size_t n = (size_t)n_calls + 1;
    *s = (call_sums){.max_impls = n_calls};
    bool ok = true;
    for (int k = 0; k < CALL_COLUMNS; k++)
        ok = (s->of[k] = vt_arena_alloc(&r->arena, n, sizeof *s->of[k])) && ok;
    s->n = vt_arena_alloc(&r->arena, n, sizeof *s->n);
    s->impl = vt_arena_alloc(&r->arena, n, sizeof *s->impl);
    return ok && s->n && s->impl;
}

static void put_calls(vt_json *w, const story_input *in, const story_record *r, story_step *plan,
                      const phase phases[STORY_PHASES], call_sums *s)
{
    const vt_program *p = story_step_program(plan);
    int indent;
    put_labels(w, p, s->of[CALL_US]);
    vt_json_open(w, "phases", '[');
    for (int k = 0; k < STORY_PHASES; k++)
        if (phases[k].n_timed > 0) {
            sum_calls(in, r, plan, k == STORY_PREFILL, s);
            put_phase_calls(w, &phases[k], s, p->n_calls);
        }
    vt_json_close(w);
    open_line(w, "impls", &indent);
    for (int32_t i = 0; i < s->n_impls; i++)
        vt_json_string(w, NULL, s->impl[i]);
    close_line(w, indent);
}

vt_status story_put_levels(vt_json *w, const story_input *in, story_record *r, story_step *plan,
                           const phase phases[STORY_PHASES], const story_facts *f, vt_err *err)
{
    int32_t n_calls = story_step_program(plan)->n_calls;
    size_t most = (size_t)n_calls + LEVELS_MAX_STEPS + (size_t)r->n_requests + 1;
    call_sums s;
    double *v = vt_arena_alloc(&r->arena, most, sizeof *v);
    int32_t *list = vt_arena_alloc(&r->arena, (size_t)r->n_steps + 1, sizeof *list);
    int32_t *token = vt_arena_alloc(&r->arena, (size_t)r->n_steps + 1, sizeof *token);
    got *g = vt_arena_alloc(&r->arena, (size_t)r->n_requests + 1, sizeof *g);
    if (!v || !list || !token || !g || !make_sums(r, n_calls, &s))
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    find_got(r, g);
    vt_json_open(w, "levels", '{');
    put_calls(w, in, r, plan, phases, &s);
    put_details(w, r, phases, f, n_calls, v);
    put_steps(w, r, list, token, v);
    put_chunks(w, r, v);
    put_requests(w, r, g, v);
    vt_json_close(w);
    return VT_OK;
}
