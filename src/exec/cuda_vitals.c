/* Which hardware counters a step's calls moved (device/cupti/ranges.h), where options.counters asks
 * for it. An observer of its own, so that these steps and the timed ones are never the same.
 *
 * Counters come in sets of which a step counts one (device/cupti/vitals.h), so sets take turns:
 *
 *   prompt steps   from the second on, as the first is timed: set 0, 1, 2 ..., each once; then they
 *                  are timed again
 *   decode steps   the second, and every SPACING-th after it: set 0, MOST times in all; of the
 *                  steps between these every second: another set, once; they are not timed
 *
 * So the ranks of an engine count the same set in the same steps. A rank whose GPU waits in a
 * communication call for one that is counted counts too, and its calls have that wait in them. If
 * one rank cannot count, none does (cuda_vitals_agree): its steps would have the others' waits.
 *
 * The calls of a counted step run one by one, as in a step timed by events (cuda_spans.c), and the
 * host waits for the device before and behind each: CUPTI counts what runs between two of its
 * calls. Preparing that takes about 0.2 s each time. So the step's length says nothing, and a story
 * leaves it out of every time: it is recorded as a step that ran call by call and has no spans.
 *
 * If CUPTI fails, the step goes on without it, and the story says why there are no counters. */
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "device/cupti/ranges.h"
#include "exec/cuda_inside.h"

enum { MOST = 7, SPACING = 16, RING_CALLS = 1 << 14 };

typedef struct cuda_vitals {
    vt_observer base;
    cuda_executor *x;
    vt_ranges *ranges; /* NULL: nothing can be counted */
    vt_trace_ring ring;
    char why_not[320];
    bool counting;
    uint64_t step;                         /* that is counted */
    int32_t n_decodes, n_leading, n_other; /* decode steps met; counted with set 0; with others */
    int32_t n_prompts;                     /* prompt steps met */
} cuda_vitals;

static vt_status wait(const cuda_vitals *v, vt_err *err)
{
    return vt_cuda_check(v->x->cuda, v->x->cuda->driver.stream_sync(v->x->lane.stream),
                         "waiting for a call that is counted", err);
}

/* Ends counting for good. */
static void give_up(cuda_vitals *v, const vt_err *why)
{
    snprintf(v->why_not, sizeof v->why_not, "%.319s", why->message);
    vt_ranges_close(v->ranges);
    v->ranges = NULL;
    v->counting = false;
}

/* The set with which the step is counted; -1: it is not. */
static int32_t set_of(const cuda_vitals *v, const vt_step *step)
{
    const vt_batch *b = &step->batch;
    if (!v->ranges || step->held || b->n_tokens == 0)
        return -1;
    int32_t n = vt_ranges_sets(v->ranges)->n;
    if (b->n_tokens > b->n_decode)
        return v->n_prompts > 0 && v->n_prompts <= n ? v->n_prompts - 1 : -1;
    if (v->n_decodes % SPACING == 1 && v->n_leading < MOST)
        return 0;
    return v->n_decodes % 2 == 1 && v->n_other + 1 < n ? v->n_other + 1 : -1;
}

bool cuda_vitals_takes(const cuda_executor *x, const vt_step *step)
{
    return x->vitals && set_of(x->vitals, step) >= 0;
}

/* Counts the step, behind the decision. */
static void count(cuda_vitals *v, const vt_step *step, int32_t set)
{
    const vt_batch *b = &step->batch;
    if (step->held || b->n_tokens == 0)
        return;
    if (b->n_tokens > b->n_decode) {
        v->n_prompts += v->n_prompts < INT32_MAX;
        return;
    }
    v->n_decodes++;
    v->n_leading += set == 0;
    v->n_other += set > 0;
}

static bool vitals_begin(vt_observer *o, const vt_step *step)
{
    cuda_vitals *v = (cuda_vitals *)o;
    vt_err why = {0};
    int32_t set = set_of(v, step);
    count(v, step, set);
    if (set < 0 || wait(v, NULL) != VT_OK) /* the launch meets that error again */
        return false;
    if (vt_ranges_begin(v->ranges, set, &why) != VT_OK) {
        give_up(v, &why);
        return false;
    }
    v->counting = true;
    v->step = step->id;
    return true;
}

static void note(void *user, const char *name, const double value[VT_VITALS])
{
    cuda_vitals *v = user;
    vt_vital_event e = {.step = v->step, .call = (uint64_t)strtoul(name, NULL, 10) & 0xffffff};
    for (int i = 0; i < VT_VITALS; i++)
        e.value[i] = value[i];
    vt_trace_vitals(&v->ring, &e);
}

static vt_status vitals_mark(vt_observer *o, vt_mark_kind kind, int64_t value, vt_err *err)
{
    cuda_vitals *v = (cuda_vitals *)o;
    vt_status status = VT_OK;
    vt_err why = {0};
    char name[16];
    if (!v->counting || (kind != VT_MARK_BEGIN && kind != VT_MARK_CALL && kind != VT_MARK_RAN))
        return VT_OK;
    TRY(wait(v, err));
    if (kind == VT_MARK_BEGIN) {
        snprintf(name, sizeof name, "%d", (int)value);
        status = vt_ranges_push(v->ranges, name, &why);
    } else if (kind == VT_MARK_CALL) {
        status = vt_ranges_pop(v->ranges, &why);
    } else {
        status = vt_ranges_end(v->ranges, note, v, &why);
        v->counting = false;
    }
    if (status != VT_OK)
        give_up(v, &why);
    return VT_OK;
}

static vt_status vitals_end(vt_observer *o, vt_step_result *view, vt_err *err)
{
    (void)o, (void)view, (void)err;
    return VT_OK;
}

static void vitals_release(vt_observer *o, bool live)
{
    cuda_vitals *v = (cuda_vitals *)o;
    (void)live;
    vt_ranges_close(v->ranges);
    v->ranges = NULL;
    v->counting = false;
}

static void vitals_free(vt_observer *o)
{
    cuda_vitals *v = (cuda_vitals *)o;
    v->x->vitals = NULL;
    vt_trace_release(&v->ring);
    free(v);
}

/* A machine without counters runs models all the same. */
static vt_status vitals_renew(vt_observer *o, vt_err *err)
{
    cuda_vitals *v = (cuda_vitals *)o;
    vt_err why = {0};
    (void)err;
    if (vt_ranges_open(v->x->cuda, v->x->prog->n_calls, &v->ranges, &why) != VT_OK)
        give_up(v, &why);
    return VT_OK;
}

void cuda_vitals_agree(cuda_executor *const *rank, int32_t n)
{
    vt_err why = {0};
    const cuda_vitals *none = NULL;
    for (int32_t r = 0; r < n && !none; r++)
        if (rank[r]->vitals && !rank[r]->vitals->ranges) {
            none = rank[r]->vitals;
            vt_fail(&why, VT_ERR_UNSUPPORTED, "rank %d cannot count: %.280s", r, none->why_not);
        }
    for (int32_t r = 0; none && r < n; r++)
        if (rank[r]->vitals && rank[r]->vitals->ranges)
            give_up(rank[r]->vitals, &why);
}

void cuda_vitals_tell(const cuda_executor *x, vt_source *out)
{
    const cuda_vitals *v = x->vitals;
    out->vitals = v ? &v->ring : NULL;
    out->vital_sets = v && v->ranges ? vt_ranges_sets(v->ranges) : NULL;
    out->no_vitals = v && !v->ranges ? v->why_not : NULL;
}

vt_status cuda_vitals_new(cuda_executor *x, vt_err *err)
{
    if (!x->options.counters)
        return VT_OK;
    cuda_vitals *v = vt_calloc(1, sizeof *v);
    if (!v)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for counters");
    v->base = (vt_observer){.begin = vitals_begin,
                            .mark = vitals_mark,
                            .end = vitals_end,
                            .release = vitals_release,
                            .renew = vitals_renew,
                            .free = vitals_free};
    v->x = x;
    x->vitals = v;
    x->observers.one[x->observers.n++] = &v->base;
    TRY(vt_trace_init(&v->ring, sizeof(vt_vital_event), RING_CALLS, err));
    return vitals_renew(&v->base, err);
}
