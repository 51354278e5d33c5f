/* Lanes: each source's part of a step, the calls that all lanes ran, and who waited for whom.
 *
 *   step 41   worker 0 | call 7 ==|.| call 8 ====|      a lane: spans in calls, waits between them
 *             worker 1 | call 7 =|..| call 8 ===|.|
 *
 *   step 42   rank 0   | launch ===========|            a lane: a launch, and if it was timed
 *             rank 1   | launch ==============|         spans, too. Rank 0 waits for rank 1
 *
 * In a call the lane with the shortest wait came last: the others waited for it. No two sources'
 * clocks are compared for that. At the end of a step that several streams ran, the clocks must be,
 * so a difference counts only beyond the error of both. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "story/record/record.h"

static vt_status out_of_memory(vt_err *err)
{
    return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
}

/* ---- lanes ---- */

/* Gives each step room for its lanes: one a base or launch is enough. */
static vt_status make_lanes(const story_input *in, story_record *r, vt_err *err)
{
    int32_t n = 0;
    for (int32_t k = 0; k < in->n_sources; k++) {
        const story_source *from = &in->source[k];
        for (uint64_t i = 0; i < from->n_spans; i++) {
            step_record *s = from->span[i].kind == VT_SPAN_BASE
                                 ? story_find_step(r, from->span[i].base.step)
                                 : NULL;
            if (s)
                s->n_lanes++;
        }
        for (uint64_t i = 0; i < from->n_launches; i++) {
            step_record *s = story_find_step(r, from->launch[i].step);
            if (s)
                s->n_lanes++;
        }
    }
    for (int32_t i = 0; i < r->n_steps; i++)
        n += r->step[i].n_lanes;
    step_lane *lane = vt_arena_alloc(&r->arena, (size_t)n + 1, sizeof *lane);
    for (int32_t i = 0; lane && i < r->n_steps; i++) {
        r->step[i].lane = lane;
        lane += r->step[i].n_lanes;
        r->step[i].n_lanes = 0;
    }
    return lane ? VT_OK : out_of_memory(err);
}

/* The step's lane of a source, which is made when it is first asked for. */
static step_lane *lane_of(step_record *s, int32_t source)
{
    for (int32_t i = s->n_lanes - 1; i >= 0; i--)
        if (s->lane[i].source == source)
            return &s->lane[i];
    s->lane[s->n_lanes] = (step_lane){.source = (int16_t)source};
    return &s->lane[s->n_lanes++];
}

step_lane step_workers(const story_input *in, const step_record *s)
{
    step_lane sum = {.source = -1};
    for (int32_t i = 0; i < s->n_lanes; i++)
        if (in->source[s->lane[i].source].is.kind == VT_SOURCE_WORKER) {
            sum.busy_s += s->lane[i].busy_s;
            sum.wait_s += s->lane[i].wait_s;
        }
    return sum;
}

/* ---- op calls ----
 *
 *   worker 0  | call 7 ====|..wait..|                  descheduled                  | call 8 =|
 *   worker 1  | call 7 ======|.wait.| call 8 ===============|.......... wait ................|
 *   op time   |------- call 7 ------|------------------- call 8 -----------------------------|
 *
 * All workers run the same list of calls and meet at a barrier after each. A call ends when the
 * barrier after it opens. No worker sees that before all have arrived, so it is the earliest end of
 * a wait. By worker 0's own times call 7 would get the time that it slept after the barrier, and
 * call 8 almost none. So a worker waits for the others until the last of them has run the call, and
 * not until it is on a CPU again. A call begins where the one before it ended, so that the ops of a
 * step sum to the step; the first begins with the earliest worker, and the last one ends with the
 * latest.
 *
 *   rank 0    | upload |e| call 1 =|..... waits for rank 1 .....|
 *   rank 1          |.. ranks ..| upload | launch |e| call 1 ===|
 *   op time                                       |e|- call 1 --|
 *
 * Streams have no barriers: there a call ends when the last stream has run it, and it begins no
 * earlier than the last stream began it. What lies before that is no call's time: the uploads, the
 * launch, and how much later than the others the last rank set out. A stream that waits for others
 * within a call writes that as workers do. */

/* A source's spans in their order, each with the step that it belongs to. */
typedef struct span_walk {
    const story_source *from;
    int32_t source; /* its index */
    const vt_program *program;
    story_record *record;
    uint64_t at;
    step_record *step;       /* NULL: unknown */
    step_lane *lane;         /* of the step */
    int64_t base_ns, end_ns; /* end_ns: of the lane's call before the current one */
    int32_t n_call;          /* calls of the step so far, the current one among them */
} span_walk;

/* The next span that is no base and belongs to a known step; NULL at the end. */
static const vt_span *next_span(span_walk *w)
{
    while (w->at < w->from->n_spans) {
        const vt_span *e = &w->from->span[w->at++];
        if (e->kind == VT_SPAN_BASE) {
            w->step = story_find_step(w->record, e->base.step);
            w->lane = w->step ? lane_of(w->step, w->source) : NULL;
            w->base_ns = e->base.begin_ns;
            w->end_ns = 0;
            w->n_call = 0;
        } else if (w->step) {
            w->n_call += e->kind == VT_SPAN_CALL || e->kind == VT_SPAN_MET;
            return e;
        }
    }
    return NULL;
}

/* The record of the walk's current call. The first source makes it, the others find it. NULL if
 * this source has spans of other calls than the first one. */
static call_time *call_of(span_walk *w, const vt_span_call *e, bool first)
{
    story_record *r = w->record;
    step_record *s = w->step;
    if (first && e->kind != VT_SPAN_WAIT) {
        if (s->n_call++ == 0)
            s->first_call = r->n_calls;
        r->call[r->n_calls] = (call_time){
            .call = (int32_t)e->call, .begin_ns = INT64_MAX, .late = -1};
        return &r->call[r->n_calls++];
    }
    call_time *c = w->n_call > 0 && w->n_call <= s->n_call ? &r->call[s->first_call + w->n_call - 1]
                                                           : NULL;
    return c && c->call == (int32_t)e->call ? c : NULL;
}

/* Returns how long the source ran the call; wait_of how long it waited in or after it. A span
 * tells one of the two or both. */
static int64_t run_of(const vt_span *e)
{
    return e->kind == VT_SPAN_WAIT  ? 0
           : e->kind == VT_SPAN_MET ? (int64_t)e->met.length_ns
                                    : (int64_t)e->call.length_ns;
}

static int64_t wait_of(const vt_span *e)
{
    return e->kind == VT_SPAN_WAIT  ? (int64_t)e->call.length_ns
           : e->kind == VT_SPAN_MET ? (int64_t)e->met.wait_ns
                                    : 0;
}

/* Returns true if the call is one in which ranks wait for each other. */
static bool joins(const span_walk *w, int32_t call)
{
    const vt_program *p = w->program;
    return call < p->n_calls && p->call[call].op->is & VT_OP_JOINS_RANKS;
}

/* Returns true if lanes of all ranks end the call together. Behind other calls the workers of a
 * CPU's rank meet only each other. */
static bool all_meet(const span_walk *w, int32_t call)
{
    return w->from->is.n_ranks <= 1 || joins(w, call);
}

static void read_kernel(span_walk *w, const vt_span_kernel *e)
{
    story_record *r = w->record;
    if (w->lane->n_kernel++ == 0)
        w->lane->first_kernel = r->n_kernels;
    r->kernel[r->n_kernels++] = (kernel_call){(int32_t)e->call, (int32_t)e->kernel};
}

/* Notes when a stream began a call. Behind an upload there is time before it. */
static void begin_on_stream(span_walk *w, call_time *c, int64_t begin)
{
    c->last_begin_ns = begin > c->last_begin_ns ? begin : c->last_begin_ns;
    if (begin > w->end_ns)
        w->lane->first_ns = begin;
}

static void read_span(span_walk *w, const vt_span *e, bool first)
{
    if (e->kind == VT_SPAN_KERNEL) {
        read_kernel(w, &e->kernel);
        return;
    }
    call_time *c = call_of(w, &e->call, first);
    int64_t begin = w->base_ns + (int64_t)e->call.begin_ns, end = begin + run_of(e);
    if (!c) {
        w->step->n_sources = -1; /* whatever else comes: never complete */
        w->step = NULL;
        return;
    }
    if (e->kind != VT_SPAN_WAIT) {
        w->step->n_sources += w->n_call == 1;
        c->begin_ns = begin < c->begin_ns ? begin : c->begin_ns;
        c->ran_ns = end > c->ran_ns ? end : c->ran_ns;
        if (e->kind == VT_SPAN_CALL && (int64_t)e->call.early_ns > c->early_ns)
            c->early_ns = (int64_t)e->call.early_ns;
        if (w->from->is.kind == VT_SOURCE_STREAM)
            begin_on_stream(w, c, begin);
    }
    if (e->kind != VT_SPAN_CALL) {
        int64_t wait = wait_of(e);
        if (c->n_waits++ == 0)
            c->wait_ns = end;
        c->waits_ns += end - c->wait_ns;
        end += wait;
        if (w->from->is.kind == VT_SOURCE_STREAM) /* no barrier: its clock alone says when */
            c->ran_ns = end > c->ran_ns ? end : c->ran_ns;
        c->met_ns = c->met_ns == 0 || end < c->met_ns ? end : c->met_ns;
        c->left_ns = end > c->left_ns ? end : c->left_ns;
        if (all_meet(w, c->call) && (c->late < 0 || wait < c->least_wait_ns)) {
            c->late = (int16_t)w->source;
            c->least_wait_ns = wait;
        }
    }
    w->end_ns = end;
}

static void time_calls(story_record *r, step_record *s)
{
    call_time *c = &r->call[s->first_call];
    int64_t at = !s->n_call ? 0 : c[0].last_begin_ns ? s->device.begin_ns : c[0].begin_ns;
    for (int32_t i = 0; i < s->n_call; i++) {
        if (c[i].last_begin_ns > at) { /* of streams alone */
            s->outside_s += (double)(c[i].last_begin_ns - at) * 1e-9;
            at = c[i].last_begin_ns;
        }
        c[i].begin_ns = at;
        int64_t end = c[i].ran_ns > c[i].met_ns ? c[i].ran_ns : c[i].met_ns;
        if (i + 1 == s->n_call && c[i].left_ns > end)
            end = c[i].left_ns;
        end = end > at ? end : at;
        c[i].s = (double)(end - at) * 1e-9;
        at = end;
    }
    s->calls_end_ns = at;
}

/* ---- a GPU's launches ---- */

static void read_launches(const story_input *in, int32_t source, story_record *r)
{
    const story_source *from = &in->source[source];
    for (uint64_t i = 0; i < from->n_launches; i++) {
        const vt_launch_event *e = &from->launch[i];
        step_record *s = story_find_step(r, e->step);
        if (!s)
            continue;
        step_lane *lane = lane_of(s, source);
        lane->launched = true;
        lane->timed = e->timed || e->stamped;
        lane->stamped = e->stamped;
        lane->n_kernels = e->n_kernels;
        lane->graph_tokens = e->graph_tokens;
        lane->device = (span){e->begin_ns, e->end_ns};
        lane->idle_s = (double)e->idle_ns * 1e-9;
        for (int m = 0; m < VT_MOVES; m++) {
            lane->move_s[m] = (double)e->move_ns[m] * 1e-9;
            lane->move_bytes[m] = e->move_bytes[m];
        }
        lane->launch_s = (double)e->launch_ns * 1e-9;
        if (!s->stream || lane->device.end_ns > s->stream->device.end_ns)
            s->stream = lane;
    }
}

vt_status story_read_lanes(const story_input *in, story_record *r, vt_err *err)
{
    int32_t n_sources = 0;
    uint64_t n_calls = 0, n_kernels = 0;
    for (int32_t k = in->n_sources - 1; k >= 0; k--)
        if (in->source[k].is.kind != VT_SOURCE_ENGINE) {
            n_calls = in->source[k].n_spans; /* of the first source */
            n_kernels += in->source[k].is.kind == VT_SOURCE_STREAM ? in->source[k].n_spans : 0;
        }
    r->call = vt_arena_alloc(&r->arena, (size_t)n_calls + 1, sizeof *r->call);
    r->kernel = vt_arena_alloc(&r->arena, (size_t)n_kernels + 1, sizeof *r->kernel);
    if (!r->call || !r->kernel)
        return out_of_memory(err);
    TRY(make_lanes(in, r, err));
    for (int32_t k = 0; k < in->n_sources; k++) {
        span_walk w = {.from = &in->source[k], .source = k, .program = in->program, .record = r};
        const vt_span *e;
        if (w.from->is.kind == VT_SOURCE_ENGINE)
            continue;
        bool first = n_sources++ == 0;
        while ((e = next_span(&w)))
            if (e->kind != VT_SPAN_KERNEL || w.from->is.kind == VT_SOURCE_STREAM)
                read_span(&w, e, first);
        read_launches(in, k, r);
    }
    for (int32_t i = 0; i < r->n_steps; i++) {
        if (r->step[i].n_sources != n_sources) /* a source does not have it from its beginning */
            r->step[i].n_call = 0;
        time_calls(r, &r->step[i]);
    }
    return VT_OK;
}

/* ---- sums ---- */

/* Adds up what a source did in its calls, step by step. */
static void sum_calls(const story_input *in, int32_t source, story_record *r)
{
    span_walk w = {
        .from = &in->source[source], .source = source, .program = in->program, .record = r};
    const vt_span *e;
    lane_sum *sum = &r->sum[source];
    double ran = 0; /* of a call whose wait follows */
    while ((e = next_span(&w))) {
        const step_record *s = w.step;
        if (e->kind == VT_SPAN_KERNEL || !s->chosen || s->n_call == 0)
            continue;
        int64_t wait_began = w.base_ns + (int64_t)e->call.begin_ns + run_of(e);
        double busy = (double)run_of(e) * 1e-9, wait = (double)wait_of(e) * 1e-9;
        const call_time *c = &r->call[s->first_call + w.n_call - 1];
        w.lane->busy_s += busy;
        w.lane->wait_s += wait;
        if (r->any_calm && s->use.disturbed)
            continue;
        sum->busy_s += busy;
        sum->wait_s += wait;
        ran = e->kind == VT_SPAN_WAIT ? ran : busy;
        if (joins(&w, c->call) && e->kind != VT_SPAN_CALL) { /* else its wait is not known */
            sum->join_s += ran;
            sum->join_wait_s += wait;
            sum->n_joins++;
        }
        if (c->late == source) {
            sum->n_late_calls += e->kind != VT_SPAN_CALL;
        } else if (c->late >= 0 && wait > 0) {
            lane_wait *to = &r->wait[source * in->n_sources + c->late];
            to->call_s += wait;
            to->longer_s += (double)(c->ran_ns - wait_began) * 1e-9;
            to->n_calls++;
        }
    }
}

/* The launches of a step, and which streams ended before the last one. */
static void sum_launches(const story_input *in, story_record *r, const step_record *s)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_lanes; i++) {
        const step_lane *l = &s->lane[i];
        if (!l->launched)
            continue;
        lane_sum *sum = &r->sum[l->source];
        n++;
        sum->n_steps++;
        sum->device_s += span_s(l->device);
        sum->idle_s += l->idle_s;
        if (l == s->stream)
            continue;
        double early = (double)(s->stream->device.end_ns - l->device.end_ns),
               error = in->source[l->source].is.clock_error_ns +
                       in->source[s->stream->source].is.clock_error_ns;
        if (early > error) {
            lane_wait *to = &r->wait[l->source * in->n_sources + s->stream->source];
            to->end_s += early * 1e-9;
            to->n_ends++;
        }
    }
    if (n > 1)
        r->sum[s->stream->source].n_last++;
}

vt_status story_sum_lanes(const story_input *in, story_record *r, vt_err *err)
{
    size_t n = (size_t)in->n_sources;
    r->sum = vt_arena_alloc(&r->arena, n + 1, sizeof *r->sum);
    r->wait = vt_arena_alloc(&r->arena, n * n + 1, sizeof *r->wait);
    if (!r->sum || !r->wait)
        return out_of_memory(err);
    for (int32_t i = 0; i < r->n_steps; i++)
        r->any_calm = r->any_calm ||
                      (r->step[i].chosen && r->step[i].n_call && !r->step[i].use.disturbed);
    for (int32_t k = 0; k < in->n_sources; k++)
        if (in->source[k].is.kind != VT_SOURCE_ENGINE)
            sum_calls(in, k, r);
    for (int32_t i = 0; i < r->n_steps; i++) {
        const step_record *s = &r->step[i];
        if (!s->chosen || (r->any_calm && s->use.disturbed))
            continue;
        r->n_worked += s->n_call > 0;
        sum_launches(in, r, s);
    }
    return VT_OK;
}
