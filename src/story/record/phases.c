/* Phases of a story (phases.h).
 *
 * For each step the step's cost model (story/step.h) gets the sequences that were in it; every
 * call's exact cost then stands beside the time it took. It reads the engine's own program, so a
 * call's index in an event is its index there.
 *
 * Op tables tell of the typical step, because one step that was interrupted would make the mean of
 * all its own:
 *
 *   1. of the phase's steps with recorded calls, take those that the machine left alone (all, if
 *      there are none)
 *   2. of decode steps take one kind: decodes alone, or decodes with a chunk of a prompt,
 *      whichever there are more of
 *   3. order these by their device time, leave out the shortest and the longest quarter, and take
 *      the mean of the rest
 *
 * The ops' times still sum to the step, as every step brings all of its ops, and the step agrees
 * with the median gap between tokens. Prompts come in chunks of different lengths: there step 1 is
 * all.
 *
 * On a GPU few steps are timed call by call, on a busy server one in hundreds, so a short request
 * may have none. Its decode phase then borrows: step 1 takes the recorded steps of other requests
 * that have the padded shape of its own, so the same kernels with the same grids. */
#include "story/record/phases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "story/cut.h"
#include "story/record/machine.h"
#include "story/record/once.h"
#include "story/predict.h"

story_bound op_bound(const op_sum *o)
{
    int best = 0;
    for (int i = 1; i < STORY_BOUNDS; i++)
        if (o->by_bound[i] > o->by_bound[best])
            best = i;
    return (story_bound)best;
}

double op_of_roof(const op_sum *o) { return o->s > 0 && o->floor_s > 0 ? o->floor_s / o->s : NAN; }

double op_usual_of_roof(const op_sum *o)
{
    return op_usual_s(o) > 0 && o->floor_s > 0 ? o->floor_s / op_usual_s(o) : NAN;
}

bool op_beats_roof(const phase *p, const op_sum *o)
{
    static const double weight = 0.03, beaten = 1.05;
    return o->s > weight * p->ops_s && o->floor_s > beaten * (o->s + o->early_s);
}

double phase_step_s(const phase *p)
{
    const phase_lane *g = phase_stream(p);
    return g && g->n_whole ? g->whole_s / g->n_whole : p->n_timed ? p->timed_s / p->n_timed : NAN;
}

const phase_lane *phase_stream(const phase *p)
{
    const phase_lane *most = p->n_lanes ? &p->lane[0] : NULL;
    for (int32_t i = 1; i < p->n_lanes; i++)
        if (p->lane[i].device_s > most->device_s)
            most = &p->lane[i];
    return most;
}

const kernel_sum *op_kernel(const op_sum *o)
{
    const kernel_sum *most = NULL;
    for (int32_t i = 0; i < o->n_kernels; i++)
        if (!most || o->kernel[i].n > most->n)
            most = &o->kernel[i];
    return most;
}

/* The sum of a kind, made at its first call; NULL: out of memory. */
static op_sum *sum_of(story_record *r, int32_t n_sources, phase *p, const char *kind,
                      const char *op, const char *impl, int32_t layer)
{
    for (int32_t i = 0; i < p->n_ops; i++)
        if (strcmp(p->op[i].impl, impl) == 0 && strcmp(p->op[i].kind, kind) == 0)
            return &p->op[i];
    size_t n = strlen(kind) + 1;
    char *name = vt_arena_alloc(&r->arena, n, 1);
    int32_t *late = vt_arena_alloc(&r->arena, (size_t)n_sources + 1, sizeof *late);
    if (!name || !late)
        return NULL;
    memcpy(name, kind, n);
    op_sum *o = &p->op[p->n_ops++];
    *o = (op_sum){.kind = name,
                  .op = op,
                  .impl = impl,
                  .late = late,
                  .layer_first = layer,
                  .layer_last = layer};
    return o;
}

/* How a call is cut, in the record's arena; NULL: its row does not say. */
static const char *cut_of(story_record *r, const story_step *plan, int32_t call)
{
    vt_buf text = {0};
    story_describe_call(&text, plan, call);
    char *out = text.len ? vt_arena_alloc(&r->arena, text.len + 1, 1) : NULL;
    if (out)
        memcpy(out, text.data, text.len);
    vt_buf_release(&text);
    return out;
}

static void add_call(const story_input *in, story_record *r, const story_step *plan,
                     const step_record *s, phase *p, const call_time *t)
{
    const vt_program *program = story_step_program(plan);
    vt_cost cost = {0}, extra = {0};
    story_bound bound, work_bound;
    if (t->call < 0 || t->call >= program->n_calls)
        return;
    const vt_call *c = &program->call[t->call];
    /* the recording does not say how many pages a step copied: copies have a time and no bytes */
    if (!story_step_cost(plan, t->call, &cost, &extra) && c->when != VT_WHEN_COPIES)
        return;
    const char *impl = c->when == VT_WHEN_COPIES ? c->choice[0].impl->name
                                                 : story_step_impl(plan, t->call)->name;
    op_sum *o = sum_of(r, in->n_sources, p, story_call_kind(c), c->op->name, impl, c->layer);
    if (!o)
        return;
    double floor_s = story_floor_s(&cost, &in->roofs, &bound);
    if (o->n_calls++ == 0) {
        o->cut = cut_of(r, plan, t->call);
        (void)story_cut_of(plan, t->call, &o->first_cut);
    }
    o->layer_last = c->layer > o->layer_last ? c->layer : o->layer_last;
    o->s += t->s;
    o->early_s += (double)t->early_ns * 1e-9;
    if (t->late >= 0 && t->n_waits > 1) {
        int64_t longer_ns = t->n_waits * (t->ran_ns - t->wait_ns) - t->waits_ns;
        o->wait_s += (double)longer_ns * 1e-9 / t->n_waits;
        o->late[t->late] += longer_ns > 0;
        o->n_waits++;
    }
    vt_cost_add(&o->cost, &cost);
    vt_cost_add(&o->extra, &extra);
    o->floor_s += floor_s;
    for (int32_t i = 0; i < p->n_lanes; i++)
        p->lane[i].floor_s += story_floor_s(&cost, story_roofs(in, p->lane[i].source), &work_bound);
    o->expected_s += c->when == VT_WHEN_COPIES
                         ? NAN
                         : story_expected_s(plan, t->call, &in->roofs, in->efficiencies);
    o->work_s += story_work_s(&cost, &in->roofs, &work_bound);
    o->by_bound[bound] += floor_s;
    if (t->s > o->slowest_s || !o->slowest) {
        o->slowest_s = t->s;
        o->slowest = c->label;
        o->slowest_step = s->id;
    }
    p->ops_s += t->s;
    p->floor_s += floor_s;
    if (p->n_mark < program->n_calls)
        p->mark[p->n_mark++] = (call_mark){(int32_t)(o - p->op), t->call, t->s, floor_s};
}

/* A sequence asks for a row of logits once the step has reached the end of its prompt. Behind the
 * prompt a step of few new tokens verifies guesses and asks for a row for each. (The last tokens of
 * a retracted sequence look the same: that is rare, and costs a few rows too many.) */
story_seq story_seq_of(const story_record *r, const step_seq *q)
{
    const request_record *owner = story_find_request(r, q->request);
    bool drafted = owner && q->q_len > 1 && q->q_len <= VT_DECODE_MOST &&
                   q->kv_len - q->q_len >= owner->n_prompt;
    return (story_seq){.q_len = q->q_len,
                       .kv_len = q->kv_len,
                       .n_rows = drafted                                  ? q->q_len
                                 : !owner || q->kv_len >= owner->n_prompt ? 1
                                                                          : 0,
                       .shared_pages = q->shared_pages,
                       .adapter = owner ? owner->adapter : 0,
                       .drafted = drafted};
}

bool story_bind_step(const story_record *r, const step_record *s, story_step *plan)
{
    story_seq *seq = r->bound;
    if (!seq || s->n_seq != s->n_seqs)
        return false;
    for (int32_t i = 0; i < s->n_seq; i++)
        seq[i] = story_seq_of(r, &r->seq[s->first_seq + i]);
    return story_step_set(plan, seq, s->n_seq, NULL) == VT_OK;
}

/* The step's first lane with kernels. Ranks run the same program, so one of them tells. */
static const step_lane *lane_with_kernels(const step_record *s)
{
    for (int32_t i = 0; i < s->n_lanes; i++)
        if (s->lane[i].n_kernel > 0)
            return &s->lane[i];
    return NULL;
}

/* The kernels of a timed step, each to the kind whose call launched it. */
static void add_kernels(const story_input *in, story_record *r, const story_step *plan,
                        const step_record *s, phase *p)
{
    const vt_program *program = story_step_program(plan);
    const step_lane *lane = lane_with_kernels(s);
    const story_source *from = lane ? &in->source[lane->source] : NULL;
    int32_t at = 0;
    for (int32_t i = 0; lane && i < s->n_call; i++) {
        const call_time *t = &r->call[s->first_call + i];
        if (t->call < 0 || t->call >= program->n_calls)
            continue;
        const vt_call *c = &program->call[t->call];
        const vt_impl *impl = story_step_impl(plan, t->call);
        op_sum *o = impl ? sum_of(r, in->n_sources, p, story_call_kind(c), c->op->name, impl->name,
                                  c->layer)
                         : NULL;
        for (; at < lane->n_kernel && r->kernel[lane->first_kernel + at].call <= t->call; at++) {
            int32_t kernel = r->kernel[lane->first_kernel + at].kernel, k = 0;
            if (!o || kernel < 0 || kernel >= from->is.n_kernels)
                continue;
            while (k < o->n_kernels &&
                   (o->kernel[k].kernel != kernel || o->kernel[k].source != from))
                k++;
            if (k == OP_KERNELS)
                continue;
            o->n_kernels += k == o->n_kernels;
            o->kernel[k].source = from;
            o->kernel[k].kernel = kernel;
            o->kernel[k].n++;
        }
    }
}

enum { OUTSIDE = 4 }; /* kinds of what a GPU's step does outside of its calls */

/* Adds what a GPU's step did outside of its calls. */
static void add_outside(story_record *r, const step_record *s, phase *p, const char *kind,
                        const char *op, double took_s, int64_t bytes)
{
    op_sum *o = sum_of(r, 0, p, kind, op, op, -1);
    if (!o)
        return;
    o->link = true;
    o->n_calls++;
    o->s += took_s;
    o->cost.read.activations += bytes;
    p->ops_s += took_s;
    if (took_s > o->slowest_s || !o->slowest) {
        o->slowest_s = took_s;
        o->slowest = kind;
        o->slowest_step = s->id;
    }
}

/* Adds what it did before and after its calls: the results on the stream that ended last; the
 * upload, and of a stamped step the wait for the launch of its first graph, on the one whose calls
 * began last. Where there are several, the last rank sets out later than the first: what that takes
 * is a kind of its own. */
static void add_moves(story_record *r, const step_record *s, phase *p)
{
    const step_lane *last = s->stream, *begun = s->stream;
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_lanes; i++) {
        n += s->lane[i].launched;
        if (s->lane[i].launched && s->lane[i].first_ns > begun->first_ns)
            begun = &s->lane[i];
    }
    double results_s = n > 1 ? (double)(last->device.end_ns - s->calls_end_ns) * 1e-9
                             : last->move_s[VT_MOVE_TO_HOST],
           launch_s = fmin(begun->launch_s, s->outside_s),
           upload_s = fmin(begun->move_s[VT_MOVE_TO_DEVICE], s->outside_s - launch_s);
    add_outside(r, s, p, "upload", "copy", upload_s, begun->move_bytes[VT_MOVE_TO_DEVICE]);
    add_outside(r, s, p, "results", "copy", fmax(results_s, 0), last->move_bytes[VT_MOVE_TO_HOST]);
    if (begun->stamped)
        add_outside(r, s, p, "launch", "wait", launch_s, 0);
    if (n > 1)
        add_outside(r, s, p, "ranks", "wait", s->outside_s - upload_s - launch_s, 0);
}

bool phase_too_few(const phase *p)
{
    return story_too_few(p->n_steps, p->n_disturbed) || (p->n_disturbed > 0 && !p->only_calm);
}

/* The phase's lane of a source, which is a stream. */
static phase_lane *lane_of(const story_input *in, const step_lane *g, phase *p)
{
    phase_lane *to = p->lane;
    while (to->source != &in->source[g->source])
        to++;
    return to;
}

static void add_lane(const story_input *in, const step_record *s, const step_lane *g, phase *p)
{
    if (!g->launched)
        return;
    phase_lane *to = lane_of(in, g, p);
    to->device_s += span_s(g->device);
    if (to->n_steps++ == 0 || g->graph_tokens < to->graph_least)
        to->graph_least = g->graph_tokens;
    to->graph_most = g->graph_tokens > to->graph_most ? g->graph_tokens : to->graph_most;
    to->n_timed += g->timed;
    to->n_stamped += g->stamped;
    if (!g->timed && !(p->calm_whole && s->use.disturbed)) {
        to->n_whole++;
        to->whole_s += span_s(g->device);
    }
    to->kernels += g->n_kernels;
    to->bytes_in += (double)g->move_bytes[VT_MOVE_TO_DEVICE];
    *(g->timed ? &to->prepare_timed_s : &to->prepare_whole_s) += span_s(s->part[VT_PART_PREPARE]);
    to->tokens += s->n_tokens;
    if (p->n_steps > 1) {
        to->n_idle++;
        to->idle_s += g->idle_s;
    }
}

static void add_step(const story_input *in, const step_record *s, bool one_request, phase *p)
{
    if (p->n_steps++ == 0) {
        p->begin_ns = s->device.begin_ns;
        p->kv_first = s->kv_len;
    }
    p->end_ns = s->device.end_ns;
    p->kv_last = s->kv_len;
    p->n_tokens += one_request ? s->q_len : s->n_tokens;
    p->others += s->n_seqs - one_request;
    p->device_s += span_s(s->device);
    for (int i = 0; i < VT_PARTS; i++)
        p->part_s[i] += span_s(s->part[i]);
    p->text_s += span_s(s->text);
    for (int32_t i = 0; i < s->n_lanes; i++)
        add_lane(in, s, &s->lane[i], p);
}

static void add_typical(const story_input *in, story_record *r, const step_record *s,
                        story_step *plan, phase *p)
{
    if (!story_bind_step(r, s, plan))
        return;
    p->n_borrowed += !s->chosen;
    if (p->n_timed++ == 0)
        p->timed_kv_first = s->kv_len;
    p->timed_kv_last = s->kv_len;
    p->timed_s += span_s(s->device);
    for (int32_t i = 0; i < s->n_lanes; i++)
        if (s->lane[i].launched)
            lane_of(in, &s->lane[i], p)->typical_s += span_s(s->lane[i].device);
    step_lane workers = step_workers(in, s);
    p->busy_s += workers.busy_s;
    p->wait_s += workers.wait_s;
    if (in->learn && in->efficiencies)
        in->learn(in, plan);
    for (int32_t i = 0; i < s->n_call; i++)
        add_call(in, r, plan, s, p, &r->call[s->first_call + i]);
    story_once_step(p, s, story_step_program(plan));
    if (s->stream) {
        add_kernels(in, r, plan, s, p);
        add_moves(r, s, p);
    }
}

/* Finds out whether the phases have undisturbed steps to be summed up, so that disturbed ones can
 * be left out. */
static void look_for_calm(const story_record *r, phase out[STORY_PHASES])
{
    for (int32_t i = 0; i < r->n_steps; i++) {
        const step_record *s = &r->step[i];
        phase *p = &out[s->prefill ? STORY_PREFILL : STORY_DECODE];
        if (!s->chosen)
            continue;
        p->n_disturbed += s->use.disturbed;
        p->only_calm = p->only_calm || (!s->use.disturbed && s->n_call > 0);
        p->calm_whole = p->calm_whole || (!s->use.disturbed && s->stream && !s->stream->timed);
    }
}

static int shortest_step_first(const void *a, const void *b)
{
    double x = span_s((*(step_record *const *)a)->device),
           y = span_s((*(step_record *const *)b)->device);
    return (x > y) - (x < y);
}

/* Keeps those of list[0..n) that `keep` says yes to; returns how many. */
static int32_t sift(step_record **list, int32_t n, bool (*keep)(const step_record *))
{
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++)
        if (keep(list[i]))
            list[kept++] = list[i];
    return kept;
}

static bool is_left_alone(const step_record *s) { return !step_is_disturbed(s); }
static bool is_alone(const step_record *s) { return !step_has_chunk(s); }

/* Marks the typical steps of a phase: list[0..n) are its steps with recorded calls. */
static void choose_typical(phase *p, bool decode, step_record **list, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        p->n_undisturbed += is_left_alone(list[i]);
    if (p->n_undisturbed > 0)
        n = sift(list, n, is_left_alone);
    p->only_calm = p->only_calm || p->n_undisturbed > 0;
    for (int32_t i = 0; i < n; i++)
        p->n_alone += is_alone(list[i]);
    int32_t quarter = 0;
    if (decode) {
        p->with_chunk = p->n_alone < n - p->n_alone;
        n = sift(list, n, p->with_chunk ? step_has_chunk : is_alone);
        qsort(list, (size_t)n, sizeof *list, shortest_step_first);
        quarter = n / 4;
    }
    for (int32_t i = quarter; i < n - quarter; i++)
        list[i]->typical = true;
}

/* The tokens of the graph that the middle one of the request's steps of decodes alone ran in; 0:
 * it ran in none. */
static int32_t middle_graph(const story_record *r)
{
    int32_t n = 0, at = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < r->n_steps; i++) {
            const step_record *s = &r->step[i];
            if (!s->chosen || s->prefill || !is_alone(s))
                continue;
            if (pass == 0)
                n++;
            else if (at++ == n / 2)
                return step_graph(s);
        }
    return 0;
}

/* Puts into the list the timed steps of other requests that have the shape of this request's;
 * returns how many. */
static int32_t borrow(story_record *r, story_step *plan, step_record **list)
{
    int32_t n = 0, tokens = middle_graph(r);
    for (int32_t i = 0; i < r->n_steps && tokens > 0; i++) {
        step_record *s = &r->step[i];
        if (!s->chosen && step_is_timed(s) && s->n_call > 0 && is_alone(s) &&
            step_graph(s) == tokens && story_bind_step(r, s, plan))
            list[n++] = s;
    }
    return n;
}

/* Chooses each phase's typical steps. list: room for all steps. */
static void find_typical(story_record *r, story_step *plan, step_record **list,
                         phase out[STORY_PHASES])
{
    for (int k = 0; k < STORY_PHASES; k++) {
        int32_t n = 0;
        for (int32_t i = 0; i < r->n_steps; i++) {
            step_record *s = &r->step[i];
            if (s->chosen && s->n_call > 0 && s->prefill == (k == STORY_PREFILL) &&
                story_bind_step(r, s, plan))
                list[n++] = s;
        }
        out[k].n_recorded = n;
        if (n == 0 && k == STORY_DECODE)
            n = borrow(r, plan, list);
        choose_typical(&out[k], k == STORY_DECODE, list, n);
    }
}

static int longest_first(const void *a, const void *b)
{
    double x = ((const op_sum *)a)->s, y = ((const op_sum *)b)->s;
    return (x < y) - (x > y);
}

bool op_is_expected(const op_sum *o) { return !o->link && isfinite(o->expected_s); }

/* Returns the expected time of a phase's ops, without those that have none. */
static double sum_expected(const phase *p)
{
    double sum = NAN;
    for (int32_t k = 0; k < p->n_ops; k++)
        if (op_is_expected(&p->op[k]))
            sum = (isnan(sum) ? 0 : sum) + p->op[k].expected_s;
    return sum;
}

/* Makes the phase's lanes: one for each stream. */
static bool make_lanes(const story_input *in, story_record *r, phase *p)
{
    p->lane = vt_arena_alloc(&r->arena, (size_t)in->n_sources + 1, sizeof *p->lane);
    for (int32_t k = 0; p->lane && k < in->n_sources; k++)
        if (in->source[k].is.kind == VT_SOURCE_STREAM)
            p->lane[p->n_lanes++].source = &in->source[k];
    return p->lane;
}

vt_status story_sum_phases(const story_input *in, story_record *r, story_step *plan,
                           phase out[STORY_PHASES], vt_err *err)
{
    static const char *const name[STORY_PHASES] = {"prefill", "decode"};
    size_t n_calls = (size_t)story_step_program(plan)->n_calls;
    int32_t max_seqs = 1;
    for (int32_t i = 0; i < r->n_steps; i++)
        max_seqs = r->step[i].n_seq > max_seqs ? r->step[i].n_seq : max_seqs;
    r->bound = vt_arena_alloc(&r->arena, (size_t)max_seqs, sizeof *r->bound);
    step_record **list = vt_arena_alloc(&r->arena, (size_t)r->n_steps + 1, sizeof *list);
    for (int i = 0; i < STORY_PHASES; i++) {
        out[i] = (phase){.name = name[i],
                         .op = vt_arena_alloc(&r->arena, n_calls + OUTSIDE, sizeof *out[i].op),
                         .mark = vt_arena_alloc(&r->arena, n_calls + 1, sizeof *out[i].mark),
                         .times = vt_arena_alloc(&r->arena, n_calls + 1, sizeof *out[i].times)};
        if (!r->bound || !list || !out[i].op || !out[i].mark || !out[i].times ||
            !make_lanes(in, r, &out[i]))
            return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    }
    look_for_calm(r, out);
    find_typical(r, plan, list, out);
    for (int32_t i = 0; i < r->n_steps; i++) {
        const step_record *s = &r->step[i];
        phase *p = &out[s->prefill ? STORY_PREFILL : STORY_DECODE];
        if (s->chosen)
            add_step(in, s, r->mine != NULL, p);
        if (s->typical)
            add_typical(in, r, s, plan, p);
    }
    for (int i = 0; i < STORY_PHASES; i++) {
        out[i].expected_s = sum_expected(&out[i]);
        story_once_settle(&out[i]);
        if (out[i].n_steps)
            out[i].others /= out[i].n_steps;
        qsort(out[i].op, (size_t)out[i].n_ops, sizeof *out[i].op, longest_first);
    }
    return VT_OK;
}
