/* When the kernels and copies of some steps ran, by CUPTI's activity records (device/cupti/
 * activity.h), where options.activity asks for it. An observer of its own, so that these steps, the
 * stamped ones and the others are never the same:
 *
 *   prompt steps   from the second on, as the first is stamped: MOST_PROMPTS
 *   decode steps   the second, and every SPACING-th after it: MOST; they are not stamped
 *
 * So the ranks of an engine record the same steps, in each of which their records are told apart
 * (cuda_ranks.c waits for all of them before).
 *
 * A recorded step runs as it does otherwise, from its graphs. Before it the host waits until the
 * device is idle and has CUPTI record; behind it the host waits for its end and reads. So the
 * records are of this step alone, and no other step is slower for it. How much slower the recorded
 * ones are a story says; it leaves them out of all other times.
 *
 * Graphs must be watched when they are captured, so CUPTI is opened before the first one.
 *
 * If CUPTI fails, the step goes on without it, and the story says why there are no records. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "device/cupti/activity.h"
#include "exec/cuda_inside.h"

enum { MOST = 8, MOST_PROMPTS = 4, SPACING = 4, RING_RECORDS = 1 << 15, NAMES = 256 };

typedef struct cuda_activity {
    vt_observer base;
    cuda_executor *x;
    vt_activity *records; /* NULL: nothing can be recorded */
    vt_trace_ring ring;
    char why_not[320];
    bool recording, failed; /* failed: why_not says how, and records are given up next */
    uint64_t step;          /* that is recorded */
    int32_t n_decodes, n_recorded, n_prompts;
    vt_activity_facts facts;
    const char *name[NAMES];
} cuda_activity;

vt_status cuda_activity_wait(const cuda_executor *x, vt_err *err)
{
    return vt_cuda_check(x->cuda, x->cuda->driver.stream_sync(x->lane.stream),
                         "waiting for a step that is recorded", err);
}

/* Ends recording for good. */
static void give_up(cuda_activity *a, const vt_err *why)
{
    if (why)
        snprintf(a->why_not, sizeof a->why_not, "%.319s", why->message);
    vt_activity_close(a->records);
    a->records = NULL;
    a->recording = false;
}

bool cuda_activity_takes(const cuda_executor *x, const vt_step *step)
{
    const cuda_activity *a = x->activity;
    const vt_batch *b = &step->batch;
    if (!a || !a->records || a->failed || step->held || b->n_tokens == 0)
        return false;
    if (b->n_tokens > b->n_decode)
        return a->n_prompts > 0 && a->n_prompts <= MOST_PROMPTS;
    return a->n_decodes % SPACING == 1 && a->n_recorded < MOST;
}

/* Counts the step, behind the decision. */
static void count(cuda_activity *a, const vt_step *step, bool takes)
{
    const vt_batch *b = &step->batch;
    if (b->n_tokens > b->n_decode)
        a->n_prompts += a->n_prompts <= MOST_PROMPTS;
    else if (b->n_tokens > 0)
        a->n_decodes++;
    a->n_recorded += takes && b->n_tokens == b->n_decode;
}

/* The number of a kernel's name; the last one stands for all that have no room. */
static uint64_t number_of(cuda_activity *a, const char *name)
{
    int32_t i = 0;
    while (i < a->facts.n_names && strcmp(a->name[i], name) != 0)
        i++;
    if (i == a->facts.n_names && i < NAMES)
        a->name[a->facts.n_names++] = name;
    return (uint64_t)(i < NAMES ? i : NAMES - 1);
}

static void note(void *user, const vt_activity_record *r)
{
    cuda_activity *a = user;
    const int64_t most_bytes = ((int64_t)1 << 40) - 1;
    vt_activity_event e = {.step = a->step,
                           .call = r->call >= 0 && r->call < VT_ACTIVITY_NO_CALL
                                       ? (uint64_t)r->call
                                       : VT_ACTIVITY_NO_CALL,
                           .begin_ns = r->begin_ns,
                           .end_ns = r->end_ns,
                           .kind = r->kind,
                           .in_graph = r->in_graph,
                           .bytes = (uint64_t)(r->bytes < most_bytes ? r->bytes : most_bytes)};
    if (r->kind == VT_ACTIVITY_KERNEL)
        e.name = number_of(a, r->name);
    vt_trace_activity(&a->ring, &e);
}

/* Maybe on another rank's thread, while this one's waits for it. */
static void ended(void *user, const vt_activity_totals *totals, const vt_err *why)
{
    cuda_activity *a = user;
    a->facts.off_ns += totals->read_ns;
    a->facts.steps++;
    a->facts.lost += totals->lost;
    a->failed = why != NULL;
    if (why)
        snprintf(a->why_not, sizeof a->why_not, "%.319s", why->message);
}

static bool activity_begin(vt_observer *o, const vt_step *step)
{
    cuda_activity *a = (cuda_activity *)o;
    const vt_activity_reader reader = {.seen = note, .ended = ended, .user = a};
    vt_err why = {0};
    bool takes = cuda_activity_takes(a->x, step);
    count(a, step, takes);
    if (a->failed && a->records)
        give_up(a, NULL);
    if (!takes || cuda_activity_wait(a->x, NULL) != VT_OK) /* the launch meets that error again */
        return false;
    int64_t begin = vt_now_ns();
    a->step = step->id;
    if (vt_activity_begin(a->records, &reader, &why) != VT_OK) {
        give_up(a, &why);
        return false;
    }
    a->facts.on_ns += vt_now_ns() - begin;
    a->recording = true;
    return false;
}

static vt_status activity_mark(vt_observer *o, vt_mark_kind kind, int64_t value, vt_err *err)
{
    cuda_activity *a = (cuda_activity *)o;
    (void)value;
    if (!a->recording || kind != VT_MARK_LAUNCHED)
        return VT_OK;
    a->recording = false;
    TRY(cuda_activity_wait(a->x, err));
    vt_activity_end(a->records);
    return VT_OK;
}

static vt_status activity_end(vt_observer *o, vt_step_result *view, vt_err *err)
{
    (void)o, (void)view, (void)err;
    return VT_OK;
}

static void activity_release(vt_observer *o, bool live)
{
    cuda_activity *a = (cuda_activity *)o;
    (void)live;
    vt_activity_close(a->records);
    a->records = NULL;
    a->recording = false;
}

static void activity_free(vt_observer *o)
{
    cuda_activity *a = (cuda_activity *)o;
    a->x->activity = NULL;
    vt_trace_release(&a->ring);
    free(a);
}

/* cuda_activity_open did it, before graphs were captured. */
static vt_status activity_renew(vt_observer *o, vt_err *err)
{
    (void)o, (void)err;
    return VT_OK;
}

bool cuda_activity_records(const cuda_executor *x) { return x->activity && x->activity->recording; }

void cuda_activity_call(const cuda_executor *x, int32_t call)
{
    if (x->activity && x->activity->records)
        vt_activity_call(x->activity->records, call);
}

void cuda_activity_tell(const cuda_executor *x, vt_source *out)
{
    const cuda_activity *a = x->activity;
    out->activity = a ? &a->ring : NULL;
    out->activity_facts = a ? &a->facts : NULL;
    out->no_activity = a && (a->failed || !a->records) ? a->why_not : NULL;
}

static vt_status make(cuda_executor *x, vt_err *err)
{
    cuda_activity *a = vt_calloc(1, sizeof *a);
    if (!a)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for records of kernels");
    a->base = (vt_observer){.begin = activity_begin,
                            .mark = activity_mark,
                            .end = activity_end,
                            .release = activity_release,
                            .renew = activity_renew,
                            .free = activity_free};
    a->x = x;
    a->facts.name = a->name;
    x->activity = a;
    return vt_trace_init(&a->ring, sizeof(vt_activity_event), RING_RECORDS, err);
}

/* A machine without records runs models all the same. */
vt_status cuda_activity_open(cuda_executor *x, vt_err *err)
{
    vt_err why = {0};
    if (!x->options.activity)
        return VT_OK;
    if (!x->activity)
        TRY(make(x, err));
    if (!x->activity->records &&
        vt_activity_open(x->cuda, x->is.index, x->is.n, &x->activity->records, &why) != VT_OK)
        give_up(x->activity, &why);
    else
        x->activity->failed = false;
    return VT_OK;
}

void cuda_activity_observe(cuda_executor *x)
{
    if (x->activity)
        x->observers.one[x->observers.n++] = &x->activity->base;
}

void cuda_activity_drop(cuda_executor *x)
{
    for (int32_t i = 0; x->activity && i < x->observers.n; i++)
        if (x->observers.one[i] == &x->activity->base)
            return; /* it is freed with the others */
    if (x->activity) {
        activity_release(&x->activity->base, true);
        activity_free(&x->activity->base);
    }
}
