/* Why tokens were late (slow.h).
 *
 *   token 40          step 57             step 58            token 41
 *   |.. device waits ..|==== of another ===|== ours, 3 x ====|
 *   |<------------------------- gap ------------------------>|     gap - median = excess
 *
 * A gap goes from the end of one step to the end of another. It is cut at the ends of the steps in
 * between, and each piece into the device's wait before the step and the step itself:
 *
 *   1. a wait that is longer than usual is given to what the engine's thread did meanwhile
 *   2. a step without the request is given to what that step did
 *   3. a step with it that is longer than usual is given to what was different about it
 *
 * Each part has evidence in the recording, or stays unknown. The parts of a gap are cut so that
 * they never sum to more than its excess. */
#include "story/findings/slow.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/stats.h"
#include "base/term/term.h"
#include "story/record/numbers.h"

static const double slow_gap = 2.0;      /* times the median */
static const double enough = 0.3;        /* a cause of the gap explains at least this share */
static const double larger_batch = 1.25; /* times the usual number of decodes */
static const double slower_clock = 0.97;
enum { MANY_FAULTS = 64, MAX_TOLD = 64 };

const char *slow_cause_name(slow_cause c)
{
    static const char *const name[SLOW_CAUSES] = {
        "chunk",    "recompute",   "mask",    "eviction", "batch",      "timed",
        "off_cpu",  "page_faults", "clock",   "kv_grown", "first_size", "draft",
        "schedule", "prepare",     "publish", "outside",  "other_step", "unknown"};
    return name[c];
}

/* The usual values in the request's decode steps: medians. */
typedef struct usual {
    double step_s, wait_s, part_s[VT_PARTS];
    double faults, n_decode, mhz;
} usual;

/* The gap that is being explained. */
typedef struct piece {
    const story_record *r;
    const usual *usual;
    slow_token *to;
    double left_s; /* of the excess */
    double most_s; /* the largest part so far, whose evidence `to` has */
    int64_t begin_ns, end_ns;
} piece;

static void blame(piece *p, slow_cause cause, double s, uint64_t step, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

static void blame(piece *p, slow_cause cause, double s, uint64_t step, const char *fmt, ...)
{
    s = s < p->left_s ? s : p->left_s;
    if (!(s > 0))
        return;
    p->left_s -= s;
    p->to->by_cause_s[cause] += s;
    if (s <= p->most_s)
        return;
    p->most_s = s;
    p->to->step = step;
    va_list args;
    va_start(args, fmt);
    vsnprintf(p->to->text, sizeof p->to->text, fmt, args);
    va_end(args);
}

/* ---- what is usual ---- */

static double wait_before(const story_record *r, int32_t i)
{
    if (i == 0 || r->step[i - 1].device.end_ns == 0)
        return 0;
    int64_t wait = r->step[i].device.begin_ns - r->step[i - 1].device.end_ns;
    return wait > 0 ? (double)wait * 1e-9 : 0;
}

/* The median of a value of the request's decode steps; timed steps of a GPU do not count where
 * there are others. */
static double usual_of(const story_record *r, double *room,
                       double (*value)(const story_record *, int32_t, int), int which)
{
    for (int pass = 0; pass < 2; pass++) {
        size_t n = 0;
        for (int32_t i = 0; i < r->n_steps; i++)
            if (r->step[i].chosen && !r->step[i].prefill && (pass || !step_is_timed(&r->step[i])))
                room[n++] = value(r, i, which);
        if (n > 0)
            return vt_median(room, n);
    }
    return 0;
}

static double step_of(const story_record *r, int32_t i, int unused)
{
    (void)unused;
    return span_s(r->step[i].device);
}

static double wait_of(const story_record *r, int32_t i, int unused)
{
    (void)unused;
    return wait_before(r, i);
}

static double part_of(const story_record *r, int32_t i, int which)
{
    return span_s(r->step[i].part[which]);
}

static double decodes_of(const story_record *r, int32_t i, int unused)
{
    (void)unused;
    return r->step[i].n_decode;
}

static double faults_of(const story_record *r, int32_t i, int unused)
{
    (void)unused;
    return r->step[i].use.minor_faults;
}

static double clock_of(const story_record *r, int32_t i, int unused)
{
    (void)unused;
    return r->step[i].use.sm_mhz;
}

static usual find_usual(const story_record *r, double *room)
{
    usual u = {.step_s = usual_of(r, room, step_of, 0),
               .wait_s = usual_of(r, room, wait_of, 0),
               .n_decode = usual_of(r, room, decodes_of, 0),
               .faults = usual_of(r, room, faults_of, 0),
               .mhz = usual_of(r, room, clock_of, 0)};
    for (int k = 0; k < VT_PARTS; k++)
        u.part_s[k] = usual_of(r, room, part_of, k);
    return u;
}

/* ---- 1. the device waited for the host ---- */

static double overlap_s(span a, int64_t begin, int64_t end)
{
    int64_t from = a.begin_ns > begin ? a.begin_ns : begin, to = a.end_ns < end ? a.end_ns : end;
    return to > from ? (double)(to - from) * 1e-9 : 0;
}

/* Pages that were evicted in [begin, end). */
static int32_t evicted(const story_record *r, int64_t begin, int64_t end)
{
    int32_t n = 0;
    for (uint64_t i = 0; i < r->n_events; i++) {
        const vt_req_cache *e = &r->event[i].cache;
        if (e->kind == VT_REQ_CACHE && e->what == VT_CACHE_EVICT && e->at_ns >= begin &&
            e->at_ns < end)
            n += e->n;
    }
    return n;
}

static bool graph_seen_before(const story_record *r, int32_t i)
{
    for (int32_t k = 0; k < i; k++)
        if (r->step[k].stream && step_graph(&r->step[k]) == step_graph(&r->step[i]))
            return true;
    return false;
}

static int32_t pages_of(const step_record *s)
{
    return s->pages_held + s->pages_cached + s->pages_free;
}

/* Why the engine's thread needed longer than usual for a part of step k that kept the device
 * waiting from `begin` to `end`. */
static void blame_part(piece *p, int32_t k, int part, int64_t begin, int64_t end)
{
    const step_record *s = &p->r->step[k];
    double unusual = span_s(s->part[part]) - p->usual->part_s[part],
           s_in = overlap_s(s->part[part], begin, end);
    unusual = unusual < s_in ? unusual : s_in;
    if (!(unusual > 0))
        return;
    unsigned long long id = (unsigned long long)s->id;
    double ms = span_s(s->part[part]) * 1e3;
    int32_t pages = part == VT_PART_SCHEDULE
                        ? evicted(p->r, s->part[part].begin_ns, s->part[part].end_ns + 1)
                        : 0;
    if (pages > 0)
        blame(p, SLOW_EVICTION, unusual, s->id,
              "%d cached page%s evicted while step %llu was planned", pages, vt_text_s(pages), id);
    else if (part == VT_PART_DRAFT)
        blame(p, SLOW_DRAFT, unusual, s->id, "the draft model worked %.2f ms before step %llu", ms,
              id);
    else if (part == VT_PART_SCHEDULE)
        blame(p, SLOW_SCHEDULE, unusual, s->id, "step %llu was planned for %.2f ms", id, ms);
    else if (part == VT_PART_PREPARE && s->stream && !graph_seen_before(p->r, k))
        blame(p, SLOW_FIRST_SIZE, unusual, s->id,
              "step %llu was the first of its size (%d tokens): made ready in %.2f ms", id,
              step_graph(s) ? step_graph(s) : s->n_tokens, ms);
    else if (part == VT_PART_PREPARE)
        blame(p, SLOW_PREPARE, unusual, s->id, "step %llu was prepared for %.2f ms", id, ms);
    else
        blame(p, SLOW_PUBLISH, unusual, s->id, "text and callbacks of step %llu took %.2f ms", id,
              ms);
}

/* The wait before step i. */
static void blame_wait(piece *p, int32_t i)
{
    const story_record *r = p->r;
    const step_record *s = &r->step[i], *before = i > 0 ? &r->step[i - 1] : NULL;
    double wait = wait_before(r, i), covered = 0;
    if (!before || wait <= p->usual->wait_s)
        return;
    int64_t begin = before->device.end_ns, end = s->device.begin_ns;
    if (pages_of(s) > pages_of(before) && pages_of(before) > 0)
        blame(p, SLOW_KV_GROWN, wait - p->usual->wait_s, s->id,
              "memory for %d more KV pages before step %llu", pages_of(s) - pages_of(before),
              (unsigned long long)s->id);
    for (int32_t k = i > 1 ? i - 2 : 0; k <= i + 1 && k < r->n_steps; k++)
        for (int part = 0; part < VT_PARTS; part++) {
            covered += overlap_s(r->step[k].part[part], begin, end);
            blame_part(p, k, part, begin, end);
        }
    double off = s->use.delay_s;
    if (off > 0)
        blame(p, SLOW_OFF_CPU, off < wait ? off : wait, s->id, "off the CPU for %.2f ms",
              off * 1e3);
    if (wait - covered > p->usual->wait_s)
        blame(p, SLOW_OUTSIDE, wait - covered - p->usual->wait_s, s->id,
              "the engine's thread was elsewhere for %.2f ms before step %llu",
              (wait - covered) * 1e3, (unsigned long long)s->id);
}

/* ---- 2. and 3. steps ---- */

/* The longest chunk of another request in the step; NULL: there is none. */
static const step_seq *find_chunk(const story_record *r, const step_record *s)
{
    const step_seq *longest = NULL;
    for (int32_t k = s->first_seq; k < s->first_seq + s->n_seq; k++) {
        const step_seq *q = &r->seq[k];
        bool chunk = q->q_len > 1 || q->kv_len == 1;
        if (chunk && q->request != r->mine->id && (!longest || q->q_len > longest->q_len))
            longest = q;
    }
    return longest;
}

static bool retracted_in(const story_record *r, int64_t begin, int64_t end)
{
    for (uint64_t i = 0; i < r->n_events; i++) {
        const vt_req_retract *e = &r->event[i].retract;
        if (e->kind == VT_REQ_RETRACT && e->request == r->mine->id && e->at_ns >= begin &&
            e->at_ns <= end)
            return true;
    }
    return false;
}

/* The mask of the request that took long in the gap, or before its first step there; NULL: none. */
static const vt_req_part *late_mask_in(const story_record *r, int64_t begin, int64_t end)
{
    for (uint64_t i = 0; i < r->n_events; i++) {
        const vt_req_part *e = &r->event[i].part;
        if (e->kind == VT_REQ_LATE_MASK && e->request == r->mine->id && e->end_ns >= begin &&
            e->begin_ns <= end)
            return e;
    }
    return NULL;
}

/* Blames the machine for what it kept from a step. */
static void blame_machine(piece *p, const step_record *s, double unusual)
{
    const step_use *u = &s->use;
    double clock = u->sm_mhz > 0 && p->usual->mhz > 0 ? u->sm_mhz / p->usual->mhz : 1;
    unsigned long long id = (unsigned long long)s->id;
    if (u->delay_s > 0)
        blame(p, SLOW_OFF_CPU, u->delay_s < unusual ? u->delay_s : unusual, s->id,
              "off the CPU for %.2f ms in step %llu", u->delay_s * 1e3, id);
    if (clock < slower_clock) {
        double slower = span_s(s->device) * (1 - clock);
        blame(p, SLOW_CLOCK, slower < unusual ? slower : unusual, s->id,
              "%d MHz in step %llu, usually %.0f", u->sm_mhz, id, p->usual->mhz);
    }
    if (u->major_faults > 0 ||
        (u->minor_faults >= MANY_FAULTS && u->minor_faults > 4 * p->usual->faults))
        blame(p, SLOW_FAULTS, unusual, s->id, "%d page faults in step %llu, %d of them from a disk",
              u->minor_faults + u->major_faults, id, u->major_faults);
}

/* Step i, which took `unusual` seconds more than it should have. */
static void blame_step(piece *p, int32_t i, double unusual)
{
    const story_record *r = p->r;
    const step_record *s = &r->step[i];
    unsigned long long id = (unsigned long long)s->id;
    const step_seq *chunk = find_chunk(r, s);
    double left = p->left_s;
    if (chunk) {
        bool most = unusual > p->most_s;
        blame(p, SLOW_CHUNK, unusual, s->id, "a chunk of request %llu (%d token%s) in step %llu",
              (unsigned long long)chunk->request, chunk->q_len, vt_text_s(chunk->q_len), id);
        if (most)
            p->to->request = chunk->request;
        return;
    }
    if (step_is_timed(s)) {
        blame(p, SLOW_TIMED, unusual, s->id, "step %llu %s, for this story", id,
              s->stream->stamped ? "was stamped" : "ran call by call");
        return;
    }
    blame_machine(p, s, unusual);
    unusual -= left - p->left_s;
    if (i > 0 && step_graph(s) > step_graph(s - 1) && step_graph(s - 1) > 0)
        blame(p, SLOW_BATCH, unusual, s->id,
              "the graph for %d sequences took the place of that for %d", step_graph(s),
              step_graph(s - 1));
    else if (s->n_decode > larger_batch * p->usual->n_decode)
        blame(p, SLOW_BATCH, unusual, s->id, "step %llu computed %d sequences, usually %.0f", id,
              s->n_decode, p->usual->n_decode);
    else if (!s->chosen)
        blame(p, SLOW_OTHER_STEP, unusual, s->id, "the request was not in step %llu", id);
}

/* ---- a gap ---- */

/* Steps [first, last] end in the gap, the last one with the token. */
static void explain(piece *p, int32_t first, int32_t last)
{
    const story_record *r = p->r;
    if (retracted_in(r, p->begin_ns, p->end_ns)) {
        blame(p, SLOW_RECOMPUTE, p->left_s, r->step[last].id,
              "retracted, and computed again up to step %llu",
              (unsigned long long)r->step[last].id);
        return;
    }
    const vt_req_part *mask = late_mask_in(r, p->begin_ns, p->end_ns);
    if (mask) {
        blame(p, SLOW_MASK, p->left_s, r->step[last].id,
              "its mask took %.2f ms, on a thread of its own; step %llu was the next one with it",
              (double)(mask->end_ns - mask->begin_ns) * 1e-6, (unsigned long long)r->step[last].id);
        return;
    }
    for (int32_t i = first; i <= last; i++) {
        const step_record *s = &r->step[i];
        blame_wait(p, i);
        double unusual = span_s(s->device) - (s->chosen ? p->usual->step_s : 0);
        if (unusual > 0)
            blame_step(p, i, unusual);
    }
}

static void conclude(piece *p)
{
    slow_token *t = p->to;
    int most = 0;
    for (int c = 0; c < SLOW_UNKNOWN; c++)
        if (t->by_cause_s[c] > t->by_cause_s[most])
            most = c;
    t->by_cause_s[SLOW_UNKNOWN] = p->left_s > 0 ? p->left_s : 0;
    t->cause = t->by_cause_s[most] >= enough * t->excess_s ? (slow_cause)most : SLOW_UNKNOWN;
    if (t->cause != SLOW_CHUNK)
        t->request = 0;
    if (t->cause == SLOW_UNKNOWN)
        snprintf(t->text, sizeof t->text, "not known");
}

vt_status story_find_slow(story_record *r, const double *gap_s, int32_t n_gaps, double p50_s,
                          slow_tokens *out, vt_err *err)
{
    *out = (slow_tokens){.limit_s = slow_gap * p50_s};
    double *room = vt_arena_alloc(&r->arena, (size_t)r->n_steps + 1, sizeof *room);
    out->token = vt_arena_alloc(&r->arena, (size_t)n_gaps + 1, sizeof *out->token);
    if (!room || !out->token)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    if (!r->mine || !(p50_s > 0))
        return VT_OK;
    usual u = find_usual(r, room);
    int32_t at = 0;
    for (int32_t k = 0; k < n_gaps; k++) {
        int64_t begin = r->mine->token_ns[k], end = r->mine->token_ns[k + 1];
        while (at < r->n_steps && r->step[at].device.end_ns <= begin)
            at++;
        if (!(gap_s[k] > out->limit_s))
            continue;
        slow_token *t = &out->token[out->n++];
        *t = (slow_token){.token = k + 1, .s = gap_s[k], .excess_s = gap_s[k] - p50_s};
        piece p = {
            .r = r, .usual = &u, .to = t, .left_s = t->excess_s, .begin_ns = begin, .end_ns = end};
        int32_t last = at;
        while (last + 1 < r->n_steps && r->step[last + 1].device.end_ns <= end)
            last++;
        if (at < r->n_steps)
            explain(&p, at, last);
        conclude(&p);
        out->n_unknown += t->cause == SLOW_UNKNOWN;
        out->excess_s += t->excess_s;
        out->named_s += t->excess_s - t->by_cause_s[SLOW_UNKNOWN];
    }
    return VT_OK;
}

/* ---- JSON ---- */

static void put_token(vt_json *w, const slow_token *t)
{
    vt_json_open(w, NULL, '{');
    vt_json_int(w, "token", t->token);
    put_ms(w, "ms", t->s, measured);
    put_ms(w, "excess_ms", t->excess_s, derived);
    vt_json_string(w, "cause", slow_cause_name(t->cause));
    vt_json_string(w, "text", t->text);
    vt_json_open(w, "evidence", '{');
    if (t->cause != SLOW_UNKNOWN)
        vt_json_int(w, "step", (int64_t)t->step);
    if (t->request)
        vt_json_int(w, "request", (int64_t)t->request);
    vt_json_open(w, "by_cause_ms", '{');
    for (int c = 0; c < SLOW_CAUSES; c++)
        if (t->by_cause_s[c] > 0)
            vt_json_fixed(w, slow_cause_name((slow_cause)c), t->by_cause_s[c] * 1e3, 4);
    vt_json_close(w);
    vt_json_close(w);
    vt_json_close(w);
}

static int longest_first(const void *a, const void *b)
{
    double x = ((const slow_token *)a)->s, y = ((const slow_token *)b)->s;
    return (x < y) - (x > y);
}

void story_put_slow(vt_json *w, const slow_tokens *s)
{
    vt_json_open(w, "slow_tokens", '{');
    put_ms(w, "limit_ms", s->limit_s, derived);
    vt_json_int(w, "count", s->n);
    vt_json_int(w, "not_known", s->n_unknown);
    put_ms(w, "excess_ms", s->excess_s, derived);
    vt_json_tagged(w, "named", s->excess_s > 0 ? s->named_s / s->excess_s : NAN, 4, derived);
    vt_json_open(w, "tokens", '[');
    qsort(s->token, (size_t)s->n, sizeof *s->token, longest_first);
    for (int32_t i = 0; i < s->n && i < MAX_TOLD; i++)
        put_token(w, &s->token[i]);
    vt_json_close(w);
    vt_json_close(w);
}
