/* When the calls of a step ran on the device.
 *
 * A graph is one launch, and the times of its calls cannot be seen. So the executor runs some steps
 * without their graphs, or, where options.stamps asks for it and the GPU can, with stamped kernels
 * (cuda_stamped.c). It always records, so these must be few:
 *
 *   decode steps   the first; then those for which there is credit, at least SPACING steps apart
 *   prompt steps   the first; then those for which there is credit
 *
 * Credit grows by 0.5 % of the time that passes, idle time included, up to kMostCredit. A timed
 * step uses up what timing it cost: its length beyond that of a decode step in its graph, and the
 * time that the device then waited for the host, which had events to read; of a prompt step, whose
 * length in a graph is not known, half of it, and a tenth where it has no graph; of a stamped step,
 * a twentieth. Credit may become negative, and no step is timed until it has grown again. So all
 * timed steps together cost 0.5 % of the time.
 *
 * On an H200 a timed decode of the 0.6B shape costs about 1 ms, two steps' time. What a run of 60
 * steps (30 ms) loses is decided by the credit at its start: with 3 ms it lost up to a tenth. So
 * credit begins at 0 and comes to one such step at most. Where a story of the first steps was asked
 * for (options.story) it begins at kStoryCredit, which is worth some steps more.
 *
 * The calls of a timed step that is not stamped are launched one by one, with an event after each:
 *
 *   begin | copies, upload | E | call 0 | E | call 1 | E ... call n-1 | E | results | end
 *
 * The work is the same as in the graph: the bucket's padded shape, the same kernel instances. Three
 * things differ, and the times include them: neighbours do not overlap (programmatic dependent
 * launch is off), an event lies between two kernels (event_ns), and the device waits where the host
 * launches more slowly than kernels end. Steps that stay in their graphs are only timed as a whole;
 * a story shows both.
 *
 * What else costs the host time in a step, reading the thread's use of the CPU, is done in every
 * second block of 8 decode steps (vt_spans_on), so that a story can compare neighbouring blocks.
 * Reading two events a step is not switched: the step's begin and end come from them.
 *
 * How device times get onto the host's clock. Events give differences only, so the executor adds up
 * the times between the begins of consecutive steps. `offset` is the host's time minus that sum, at
 * the moment when the host learns that a step has ended. The host can only learn late, so the
 * smallest offset ever seen is the best one. It may grow by kDrift, which is more than two quartz
 * clocks differ by. How late the host learns at best is measured at the start (notice_ns): device
 * times may lie that much late on the host's clock. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/stats.h"
#include "base/use.h"
#include "exec/cuda_inside.h"

enum {
    SPACING = 8, /* decode steps from one that was timed to the next */
    RING_LAUNCHES = 1 << 16,
    RING_USES = 1 << 13,
    SETS = MAX_IN_FLIGHT, /* a step's marks are read before another takes their place */
    ROUNDS = 16,          /* of calibration */
    KERNELS_A_CALL = 4    /* room for their names; further ones are only counted */
};

static const double kDrift = 1e-4;
static const double kCredit = 0.005;                      /* of the time that passes */
static const double kMostCredit = 1e6;                    /* nanoseconds */
static const double kStoryCredit = 3e6;                   /* at the start, and the most */
static const double kCostInGraph = 0.5, kCostAlone = 0.1; /* of a timed prompt step's length */
static const double kLeastCost = 0.05;                    /* of a timed decode step's */

typedef struct mark {
    int32_t call;       /* -1: the uploads */
    int32_t n_launches; /* of the step, up to here */
} mark;

typedef struct span_set {
    bool timed, prompts;
    bool stamped;        /* timed by stamps, not by events */
    bool mapped;         /* stamped, and all its CTAs are told apart (cuda_ctas_want) */
    bool ran;            /* all its calls were launched */
    bool apart;          /* its calls run one by one, for this observer or for another */
    bool recorded_apart; /* another observer has CUPTI record its kernels */
    bool recorded;       /* in a block of steps that are (vt_spans_on), or timed */
    int32_t graph_tokens, n_kernels;
    size_t moved[VT_MOVES];
    cu_event *event; /* [max_marks]; made at first need */
    mark *mark;      /* [max_marks] */
    int32_t *note;   /* [max_notes] */
    int32_t n_marks;
} span_set;

typedef struct cuda_spans {
    vt_observer base;
    cuda_executor *x;
    vt_span_rings spans;
    vt_trace_ring launches;
    vt_use use; /* of the thread that launches and waits */
    vt_trace_ring uses;
    vt_nvml_watch *watch; /* clocks and power while steps run; NULL: they cannot be read */
    uint64_t n_timed;     /* decode steps: the number that chooses a timed step's ring */
    span_set set[SETS];
    span_set *launching; /* the step that is being launched; NULL: none */
    int32_t since_timed; /* decode steps since one was timed, that one included; 0: none was */
    double whole_ns;     /* the newest decode step in its graph; 0: none was */
    bool prompt_timed;   /* a prompt step was timed */
    bool behind_watched; /* CUPTI watched the step before, so this one takes longer */
    double timed_ms;     /* length of the step before, if it was timed; else 0 */
    double credit_ns, most_credit_ns;
    int64_t credit_at_ns; /* 0: no step has asked for credit yet */
    int32_t max_marks, max_notes;
    stamped_call *stamped; /* [max_marks] room for a step's calls */
    cu_event origin;       /* device time 0 */
    double device_ms;      /* of the last ended step's begin */
    double last_ms;        /* its length */
    double offset_ns;
    int64_t offset_at_ns; /* host time of its last use */
    double notice_ns, event_ns, read_ns;
    int64_t n_reads;
} cuda_spans;

/* ---- calibration ---- */

static vt_status elapsed(const vt_cuda *c, cu_event from, cu_event to, double *ms, vt_err *err)
{
    float f = 0;
    TRY(vt_cuda_check(c, c->driver.event_elapsed(&f, from, to), "reading an event", err));
    *ms = (double)f;
    return VT_OK;
}

/* An event on an idle stream lies between the host's two readings around it. */
static vt_status measure_notice(cuda_spans *s, cu_event e, vt_err *err)
{
    cuda_executor *x = s->x;
    const cuda_driver *d = &x->cuda->driver;
    double late[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        double ms = 0;
        int64_t before = vt_now_ns();
        TRY(vt_cuda_check(x->cuda, d->event_record(i ? e : s->origin, x->lane.stream),
                          "recording an event", err));
        TRY(vt_cuda_check(x->cuda, d->event_sync(i ? e : s->origin), "waiting for an event", err));
        int64_t after = vt_now_ns();
        if (i)
            TRY(elapsed(x->cuda, s->origin, e, &ms, err));
        late[i] = (double)(after - before);
        s->offset_ns = fmin(i ? s->offset_ns : INFINITY, (double)after - ms * 1e6);
        s->offset_at_ns = after;
    }
    vt_sort_doubles(late, ROUNDS);
    s->notice_ns = late[ROUNDS / 2];
    return VT_OK;
}

/* Events in a row, nothing between them. */
static vt_status measure_event(cuda_spans *s, const cu_event *e, int32_t n, vt_err *err)
{
    cuda_executor *x = s->x;
    const cuda_driver *d = &x->cuda->driver;
    double ms = 0, best = INFINITY;
    for (int round = 0; round < 3 && n > 1; round++) {
        for (int32_t i = 0; i < n; i++)
            TRY(vt_cuda_check(x->cuda, d->event_record(e[i], x->lane.stream), "recording an event",
                              err));
        TRY(vt_cuda_check(x->cuda, d->event_sync(e[n - 1]), "waiting for an event", err));
        TRY(elapsed(x->cuda, e[0], e[n - 1], &ms, err));
        best = fmin(best, ms * 1e6 / (n - 1));
    }
    s->event_ns = best;
    return VT_OK;
}

static vt_status make_set(cuda_spans *s, span_set *set, vt_err *err)
{
    cuda_executor *x = s->x;
    set->event = vt_calloc((size_t)s->max_marks, sizeof(cu_event));
    set->mark = vt_calloc((size_t)s->max_marks, sizeof *set->mark);
    set->note = vt_calloc((size_t)s->max_notes, sizeof *set->note);
    if (!set->event || !set->mark || !set->note)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for recording %d calls", s->max_marks);
    for (int32_t i = 0; i < s->max_marks; i++)
        TRY(vt_cuda_check(x->cuda, x->cuda->driver.event_create(&set->event[i], CU_EVENT_DEFAULT),
                          "making an event", err));
    return VT_OK;
}

/* ---- launching ---- */

static bool has_credit(cuda_spans *s)
{
    int64_t now = vt_now_ns();
    double passed = s->credit_at_ns > 0 ? (double)(now - s->credit_at_ns) : 0;
    s->credit_ns = fmin(s->credit_ns + kCredit * passed, s->most_credit_ns);
    s->credit_at_ns = now;
    return s->credit_ns > 0;
}

/* There are many decode steps and they are alike: timing a sample of them is enough. */
static bool shall_time(cuda_spans *s, const vt_step *step)
{
    const vt_batch *b = &step->batch;
    bool apart = cuda_activity_takes(s->x, step) || cuda_vitals_takes(s->x, step);
    if (b->n_tokens == 0 || s->x->options.untimed)
        return false;
    if (b->n_tokens > b->n_decode) {
        if (s->prompt_timed && apart)
            return false;
        bool prompt = !s->prompt_timed || has_credit(s);
        s->prompt_timed = s->prompt_timed || prompt;
        return prompt;
    }
    if (cuda_lines_sampling(s->x))
        return false;
    bool timed = !apart && (s->since_timed == 0 || (s->since_timed >= SPACING && has_credit(s)));
    s->since_timed = timed ? 1 : s->since_timed + 1;
    return timed;
}

/* Returns what timing a step cost, from its length. */
static double cost_of(const cuda_spans *s, const span_set *set, double ns)
{
    if (set->stamped)
        return kLeastCost * ns + (double)s->x->stamped.prepare_ns;
    if (set->graph_tokens == 0)
        return kCostAlone * ns;
    if (set->prompts || s->whole_ns == 0)
        return kCostInGraph * ns;
    return fmax(ns - s->whole_ns, kLeastCost * ns);
}

static bool spans_begin(vt_observer *o, const vt_step *step)
{
    cuda_spans *s = (cuda_spans *)o;
    span_set *set = &s->set[s->x->launched % SETS];
    vt_nvml_watch_step(s->watch);
    vt_use_begin(&s->use, step->id);
    set->timed = shall_time(s, step);
    set->prompts = step->batch.n_tokens > step->batch.n_decode;
    set->recorded = set->timed || set->prompts || vt_spans_on(step->id);
    set->apart = set->ran = set->recorded_apart = false;
    cuda_stamped_end(s->x); /* of a step before that was not launched as a whole */
    set->mapped = cuda_ctas_want(s->x, step, set->timed);
    set->stamped = (set->timed || set->mapped) && cuda_stamped_begin(s->x);
    set->mapped = set->mapped && set->stamped;
    set->timed = set->timed || set->mapped;
    if (set->mapped)
        cuda_ctas_begin(s->x, set->prompts);
    set->graph_tokens = 0;
    memset(set->moved, 0, sizeof set->moved);
    set->n_marks = 0;
    s->launching = set;
    s->x->lane.note = set->timed && !set->stamped ? set->note : NULL;
    s->x->lane.max_note = s->max_notes;
    s->x->lane.n_launches = 0;
    return set->timed && !set->stamped;
}

/* An event after everything that is launched so far, in a step that has one behind each call. */
static vt_status add_mark(cuda_spans *s, int32_t call, vt_err *err)
{
    span_set *set = s->launching;
    cuda_executor *x = s->x;
    if (!set->timed || (set->stamped && call >= 0))
        return VT_OK;
    assert(set->n_marks < s->max_marks);
    set->mark[set->n_marks] = (mark){call, x->lane.n_launches};
    return vt_cuda_check(x->cuda,
                         x->cuda->driver.event_record(set->event[set->n_marks++], x->lane.stream),
                         "recording an event", err);
}

/* An event behind the last call of a stamped step. */
static vt_status mark_end(cuda_spans *s, vt_err *err)
{
    cuda_executor *x = s->x;
    return vt_cuda_check(x->cuda,
                         x->cuda->driver.event_record(s->launching->event[1], x->lane.stream),
                         "recording an event", err);
}

static vt_status spans_mark(vt_observer *o, vt_mark_kind kind, int64_t value, vt_err *err)
{
    cuda_spans *s = (cuda_spans *)o;
    span_set *set = s->launching;
    if (!set) /* a dry run or a capture launches its calls, and is no step */
        return VT_OK;
    switch (kind) {
    case VT_MARK_BEGIN:
        break;
    case VT_MARK_APART:
        set->apart = true;
        break;
    case VT_MARK_UPLOADED:
        return add_mark(s, -1, err);
    case VT_MARK_CALL:
        return add_mark(s, (int32_t)value, err);
    case VT_MARK_RAN:
        set->ran = true;
        return set->stamped ? mark_end(s, err) : VT_OK;
    case VT_MARK_GRAPH:
        set->graph_tokens = (int32_t)value;
        break;
    case VT_MARK_IN:
        set->moved[VT_MOVE_TO_DEVICE] += (size_t)value;
        break;
    case VT_MARK_OUT:
        set->moved[VT_MOVE_TO_HOST] += (size_t)value;
        break;
    case VT_MARK_LAUNCHED:
        set->n_kernels = s->x->lane.n_launches;
        set->recorded_apart = cuda_activity_records(s->x) || cuda_lines_sampling(s->x);
        s->launching = NULL;
        s->x->lane.note = NULL;
        cuda_stamped_end(s->x);
        break;
    }
    return VT_OK;
}

/* ---- reading ---- */

/* Where the step's begin lies on the host's clock, and how long the device had been idle before
 * it. The step ended `ms` after its begin; now the host knows. */
static vt_status place_step(cuda_spans *s, const result_slot *slot, double ms, int64_t now,
                            double *begin_ns, double *idle_ns, vt_err *err)
{
    cuda_executor *x = s->x;
    double since = 0;
    const result_slot *before = x->waited ? &x->slot[(x->waited - 1) % SLOTS] : NULL;
    TRY(elapsed(x->cuda, before ? before->begin : s->origin, slot->begin, &since, err));
    s->device_ms += since;
    double seen = (double)now - (s->device_ms + ms) * 1e6;
    s->offset_ns = fmin(seen, s->offset_ns + kDrift * (double)(now - s->offset_at_ns));
    s->offset_at_ns = now;
    *begin_ns = s->offset_ns + s->device_ms * 1e6;
    *idle_ns = before ? fmax(0, since - s->last_ms) * 1e6 : 0;
    s->last_ms = ms;
    return VT_OK;
}

/* The spans of a timed step. Each begins where the one before it ended, so that with the moves
 * before and after them they sum to the step. */
static vt_status write_marks(cuda_spans *s, const span_set *set, const result_slot *slot,
                             vt_launch_event *step, vt_err *err)
{
    cuda_executor *x = s->x;
    int64_t base = step->begin_ns, at = base;
    int32_t n = 0;
    vt_trace_ring *ring = vt_spans_of(&s->spans, set->prompts ? 0 : s->n_timed++, set->prompts);
    vt_trace_base(ring, step->step, base);
    for (int32_t i = 0; i < set->n_marks; i++) {
        const mark *m = &set->mark[i];
        double ms = 0;
        TRY(elapsed(x->cuda, slot->begin, set->event[i], &ms, err));
        int64_t to = base + (int64_t)(ms * 1e6);
        to = to > at ? to : at;
        if (m->call < 0)
            step->move_ns[VT_MOVE_TO_DEVICE] = to - at;
        else
            vt_trace_call(ring, base, m->call, at, to);
        for (; n < m->n_launches && n < s->max_notes; n++)
            if (m->call >= 0)
                vt_trace_kernel(ring, m->call, set->note[n]);
        at = to;
    }
    step->move_ns[VT_MOVE_TO_HOST] = step->end_ns > at ? step->end_ns - at : 0;
    return VT_OK;
}

/* Appends the kernels that call `call` launched, which are noted in the order of launches from *at
 * on. */
static void write_kernels(const cuda_stamps *notes, vt_trace_ring *ring, int32_t call, int32_t *at)
{
    for (; *at < notes->n_notes && notes->note[*at].call == call; ++*at)
        vt_trace_kernel(ring, call, notes->note[*at].kernel);
}

/* Returns when the step's first call behind the uploads began. Until then the device waits for the
 * host to launch the graph, which takes long where CUPTI watches it: on an H200 57 us, which were
 * told as time of `embed`, whose kernel takes 1.5 us. */
static int64_t first_begin(const stamped_call *c, int64_t uploaded_ns)
{
    return c->begin_ns > uploaded_ns && c->begin_ns < c->end_ns ? c->begin_ns : uploaded_ns;
}

/* Reads the calls of a stamped step into s->stamped. *uploaded_ns: when its uploads had ended. */
static vt_status read_stamps(cuda_spans *s, const span_set *set, const result_slot *slot,
                             const vt_launch_event *step, int64_t *uploaded_ns, int32_t *n,
                             vt_err *err)
{
    cuda_executor *x = s->x;
    double up = 0, ran = 0;
    TRY(elapsed(x->cuda, slot->begin, set->event[0], &up, err));
    TRY(elapsed(x->cuda, slot->begin, set->event[1], &ran, err));
    *uploaded_ns = step->begin_ns + (int64_t)(up * 1e6);
    TRY(cuda_stamped_read(x, *uploaded_ns, step->begin_ns + (int64_t)(ran * 1e6), s->stamped,
                          s->max_marks, n, err));
    return set->mapped ? cuda_ctas_read(x, step->step, set->prompts, err) : VT_OK;
}

/* The spans of a stamped step, which sum to the step too. Page copies ran before the upload. */
static vt_status write_stamps(cuda_spans *s, const span_set *set, const result_slot *slot,
                              vt_launch_event *step, vt_err *err)
{
    cuda_executor *x = s->x;
    int32_t n = 0, kernel = 0;
    int64_t base = step->begin_ns, at = base, waited = 0, uploaded = 0;
    TRY(read_stamps(s, set, slot, step, &uploaded, &n, err));
    if (set->mapped && !set->prompts) /* it is left out of all times */
        return VT_OK;
    vt_trace_ring *ring = vt_spans_of(&s->spans, set->prompts ? 0 : s->n_timed++, set->prompts);
    vt_trace_base(ring, step->step, base);
    for (int32_t i = 0; i < n; i++) {
        const stamped_call *c = &s->stamped[i];
        if (c->call >= x->prog->n_before && at < uploaded) {
            step->move_ns[VT_MOVE_TO_DEVICE] = uploaded - at;
            at = first_begin(c, uploaded);
            step->launch_ns = at - uploaded;
        }
        int64_t to = c->end_ns > at ? c->end_ns : at,
                early = c->begin_ns < at ? at - c->begin_ns : 0;
        int64_t wait = c->wait_ns < to - at ? c->wait_ns : to - at;
        vt_trace_stamped(ring, base, c->call, at, wait > 0 ? to - wait : to, early);
        if (wait >= 0) /* of a call that joins ranks: told behind it, as a CPU's worker does */
            vt_trace_wait(ring, base, c->call, to - wait, to);
        waited += wait > 0 ? wait : 0;
        write_kernels(cuda_stamped_oldest(x), ring, c->call, &kernel);
        at = to;
    }
    atomic_fetch_add(&x->waited_ns, waited);
    atomic_fetch_add(&x->waited_steps, 1);
    step->move_ns[VT_MOVE_TO_HOST] = step->end_ns > at ? step->end_ns - at : 0;
    return VT_OK;
}

static vt_status spans_end(vt_observer *o, vt_step_result *view, vt_err *err)
{
    cuda_spans *s = (cuda_spans *)o;
    cuda_executor *x = s->x;
    const result_slot *slot = &x->slot[x->waited % SLOTS];
    const span_set *set = &s->set[x->waited % SETS];
    int64_t now = view->end_ns;
    double ms = 0, begin_ns = 0, idle_ns = 0;
    TRY(elapsed(x->cuda, slot->begin, slot->end, &ms, err));
    TRY(place_step(s, slot, ms, now, &begin_ns, &idle_ns, err));
    view->begin_ns = (int64_t)begin_ns;
    view->end_ns = (int64_t)(begin_ns + ms * 1e6);
    bool behind = s->behind_watched && !set->timed, own_map = set->mapped && !set->prompts;
    s->behind_watched = set->recorded_apart || (set->apart && !set->timed);
    vt_launch_event step = {.step = slot->view.id,
                            .begin_ns = view->begin_ns,
                            .end_ns = view->end_ns,
                            .idle_ns = (int64_t)idle_ns,
                            .move_bytes = {(int64_t)set->moved[VT_MOVE_TO_DEVICE],
                                           (int64_t)set->moved[VT_MOVE_TO_HOST]},
                            .n_kernels = set->n_kernels,
                            .graph_tokens = set->graph_tokens,
                            .timed = set->apart || set->recorded_apart || behind || own_map,
                            .stamped = set->stamped && set->ran && !own_map};
    s->credit_ns -= fmin(idle_ns, s->timed_ms * 1e6);
    s->timed_ms = set->timed ? ms : 0;
    if (set->timed) {
        if (!set->stamped)
            TRY(write_marks(s, set, slot, &step, err));
        else if (set->ran)
            TRY(write_stamps(s, set, slot, &step, err));
        s->read_ns += (double)(vt_now_ns() - now);
        s->n_reads += set->stamped ? 1 : set->n_marks; /* one copy has all stamps */
        s->credit_ns -= cost_of(s, set, ms * 1e6);
    } else if (!set->prompts && !step.timed) {
        s->whole_ns = ms * 1e6;
    }
    if (set->recorded) /* the next reading speaks of the other steps too */
        vt_use_end(&s->use, step.step, &s->uses);
    vt_trace_launch(&s->launches, &step); /* last: a reader that finds it finds the spans too */
    return VT_OK;
}

/* ---- its part of the device ---- */

static void release_set(cuda_spans *s, span_set *set, bool live)
{
    for (int32_t k = 0; live && set->event && k < s->max_marks; k++)
        if (set->event[k])
            s->x->cuda->driver.event_destroy(set->event[k]);
    free(set->event);
    free(set->mark);
    free(set->note);
    *set = (span_set){0};
}

static void spans_release(vt_observer *o, bool live)
{
    cuda_spans *s = (cuda_spans *)o;
    for (int i = 0; i < SETS; i++)
        release_set(s, &s->set[i], live);
    if (s->origin && live)
        s->x->cuda->driver.event_destroy(s->origin);
    s->origin = NULL;
    s->launching = NULL;
}

static void spans_free(vt_observer *o)
{
    cuda_spans *s = (cuda_spans *)o;
    vt_nvml_watch_free(s->watch);
    vt_use_release(&s->use);
    vt_trace_release(&s->uses);
    vt_spans_release(&s->spans);
    vt_trace_release(&s->launches);
    free(s->stamped);
    free(s);
}

/* Makes the events, and measures how the device's clock relates to the host's. */
static vt_status spans_renew(vt_observer *o, vt_err *err)
{
    cuda_spans *s = (cuda_spans *)o;
    cuda_executor *x = s->x;
    s->device_ms = s->last_ms = 0;
    TRY(vt_cuda_check(x->cuda, x->cuda->driver.event_create(&s->origin, CU_EVENT_DEFAULT),
                      "making an event", err));
    for (int i = 0; i < SETS; i++)
        TRY(make_set(s, &s->set[i], err));
    TRY(measure_notice(s, s->set[0].event[0], err));
    return measure_event(s, s->set[0].event, s->max_marks < 64 ? s->max_marks : 64, err);
}

/* ---- the source ---- */

static void kernel_facts(const void *owner, int32_t k, vt_kernel_facts *out)
{
    const cuda_spans *s = owner;
    const jit_cubin *cubin = vt_jit_get(s->x->cuda->jit, k);
    *out = (vt_kernel_facts){.name = vt_jit_name(s->x->cuda->jit, k)};
    if (cubin) {
        out->registers = cubin->registers;
        out->spill_bytes = cubin->spill_bytes;
        out->shared_bytes = cubin->shared_bytes;
    }
    if (k < s->x->cuda->n_kernels) {
        const cuda_kernel *loaded = &s->x->cuda->kernel[k];
        memcpy(out->grid, loaded->grid, sizeof out->grid);
        out->threads = loaded->threads;
        out->dynamic_shared = loaded->dynamic_shared;
        out->cluster = loaded->cluster;
    }
}

static vt_status roofs(const void *owner, bool again, vt_roofs *out, vt_err *err)
{
    const cuda_executor *x = ((const cuda_spans *)owner)->x;
    return vt_roofs_cuda(x->cuda->ordinal, (int64_t)x->weights->bytes, again, out, err);
}

static int64_t free_bytes(const void *owner)
{
    vt_cuda *c = ((const cuda_spans *)owner)->x->cuda;
    size_t bytes = 0, total = 0;
    bool known = vt_cuda_enter(c, NULL) == VT_OK && c->driver.mem_info(&bytes, &total) == 0;
    return known ? (int64_t)bytes : -1;
}

static vt_status state(const void *owner, vt_gpu_state *out, vt_err *err)
{
    return vt_nvml_read(((const cuda_spans *)owner)->x->cuda->ordinal, out, err);
}

static int32_t spans_sources(const vt_observer *o, vt_source *out, int32_t max)
{
    const cuda_spans *s = (const cuda_spans *)o;
    const vt_cuda *c = s->x->cuda;
    if (max > 0) {
        *out = (vt_source){.kind = VT_SOURCE_STREAM,
                           .rank = s->x->is.index,
                           .n_ranks = s->x->is.n,
                           .spans = &s->spans,
                           .launches = &s->launches,
                           .uses = &s->uses,
                           .samples = vt_nvml_watch_samples(s->watch),
                           .device = {.level = c->arch,
                                      .ordinal = c->ordinal,
                                      .kernel_level = c->level,
                                      .sm_count = c->sm_count,
                                      .capability = c->cc_major * 10 + c->cc_minor,
                                      .driver_version = c->driver_version,
                                      .memory_bytes = (int64_t)c->total_bytes,
                                      .l2_bytes = c->l2_bytes},
                           .clock_error_ns = s->notice_ns,
                           .event_ns = s->event_ns,
                           .read_ns = s->n_reads ? s->read_ns / (double)s->n_reads : NAN,
                           .no_stamps = s->x->stamped.on ? NULL : s->x->stamped.why_not,
                           .n_kernels = vt_jit_count(c->jit),
                           .owner = s,
                           .kernel = kernel_facts,
                           .roofs = roofs,
                           .free_bytes = free_bytes,
                           .state = state};
        cuda_vitals_tell(s->x, out);
        cuda_pm_tell(s->x, out);
        cuda_activity_tell(s->x, out);
        cuda_lines_tell(s->x, out);
        cuda_ctas_tell(s->x, out);
        snprintf(out->name, sizeof out->name, "rank %d", s->x->is.index);
    }
    return 1;
}

/* ---- making one ---- */

vt_status cuda_spans_new(cuda_executor *x, vt_err *err)
{
    cuda_spans *s = vt_calloc(1, sizeof *s);
    if (!s)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for recording");
    s->base = (vt_observer){.begin = spans_begin,
                            .mark = spans_mark,
                            .end = spans_end,
                            .release = spans_release,
                            .renew = spans_renew,
                            .sources = spans_sources,
                            .free = spans_free};
    s->x = x;
    x->observers.one[x->observers.n++] = &s->base;
    vt_use_init(&s->use, NULL);
    TRY(vt_trace_init(&s->uses, sizeof(vt_use_event), RING_USES, err));
    TRY(vt_nvml_watch_new(x->cuda->ordinal, &s->watch, err));
    s->max_marks = x->prog->n_calls + 1;
    s->max_notes = s->max_marks * KERNELS_A_CALL;
    s->stamped = vt_calloc((size_t)s->max_marks, sizeof *s->stamped);
    if (!s->stamped)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for recording %d calls", s->max_marks);
    /* a base, and for each call a span and its kernels, of which most calls have one, and a wait
     * where ranks meet */
    TRY(vt_spans_init(&s->spans, 1 + 2 * (int64_t)s->max_marks + x->prog->n_comm, err));
    s->most_credit_ns = x->options.story ? kStoryCredit : kMostCredit;
    s->credit_ns = x->options.story ? kStoryCredit : 0;
    TRY(vt_trace_init(&s->launches, sizeof(vt_launch_event), RING_LAUNCHES, err));
    return spans_renew(&s->base, err);
}
