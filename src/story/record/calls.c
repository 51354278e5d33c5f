/* "calls" and "typical" of a story.json (calls.h, docs/story-format.md).
 *
 *   calls     single steps, call by call: the most typical step of each phase, the first one with
 *             prompt tokens, those of slow tokens, and the newest, as long as there is room
 *   typical   the mean of the typical steps of each phase, with a value for each call of the
 *             program (null where the steps do not run it): a layer is a range of calls */
#include "story/record/calls.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "story/record/columns.h"

/* ---- single steps ---- */

/* The typical step of a phase whose time is nearest to their mean. */
static const step_record *most_typical(const story_record *r, const phase *p, bool prefill)
{
    const step_record *best = NULL;
    double mean = p->n_timed ? p->timed_s / p->n_timed : NAN, nearest = INFINITY;
    for (int32_t i = 0; i < r->n_steps; i++) {
        const step_record *s = &r->step[i];
        double off = fabs(span_s(s->device) - mean);
        if (s->typical && s->prefill == prefill && off < nearest) {
            nearest = off;
            best = s;
        }
    }
    return best;
}

/* Which steps are written whole, and how many calls they have. */
typedef struct picked {
    bool *step; /* [n_steps] */
    int32_t n_calls;
    bool full; /* a step did not fit */
} picked;

static void pick(picked *p, const story_record *r, const step_record *s)
{
    if (!s || s->n_call == 0 || p->step[s - r->step])
        return;
    if (p->n_calls + s->n_call > STORY_MAX_CALLS) {
        p->full = true;
        return;
    }
    p->step[s - r->step] = true;
    p->n_calls += s->n_call;
}

/* Returns how many calls of the chosen steps are left out. */
static int32_t pick_calls(const story_record *r, const phase phases[STORY_PHASES],
                          const slow_tokens *slow, picked *p)
{
    int32_t all = 0;
    pick(p, r, most_typical(r, &phases[STORY_PREFILL], true));
    pick(p, r, most_typical(r, &phases[STORY_DECODE], false));
    for (int32_t i = 0; i < r->n_steps; i++)
        if (r->step[i].chosen && r->step[i].prefill) {
            pick(p, r, &r->step[i]);
            break;
        }
    for (int32_t i = 0; i < slow->n; i++)
        for (int32_t k = 0; slow->token[i].step && k < r->n_steps; k++)
            if (r->step[k].chosen && r->step[k].id == slow->token[i].step)
                pick(p, r, &r->step[k]);
    for (int32_t i = r->n_steps - 1; i >= 0; i--) {
        if (!r->step[i].chosen)
            continue;
        all += r->step[i].n_call;
        if (!p->full)
            pick(p, r, &r->step[i]);
    }
    return all - p->n_calls;
}

static void put_labels(vt_json *w, const vt_program *p, double *v)
{
    int indent = story_open_line(w, "labels");
    for (int32_t i = 0; i < p->n_calls; i++) {
        vt_json_string(w, NULL, p->call[i].label);
        v[i] = p->call[i].layer;
    }
    story_close_line(w, indent);
    story_put_column(w, "layers", v, p->n_calls, 0);
}

/* One column of the picked steps' calls. */
static int32_t list_calls(const story_record *r, const picked *p, int column, double *v)
{
    int32_t k = 0;
    for (int32_t i = 0; i < r->n_steps; i++) {
        const step_record *s = &r->step[i];
        const call_time *t = &r->call[s->first_call];
        for (int32_t m = 0; p->step[i] && m < s->n_call; m++) {
            v[k++] = column == 0   ? (double)s->id
                     : column == 1 ? t[m].call
                     : column == 2 ? (double)(t[m].begin_ns - s->device.begin_ns) * 1e-3
                                   : t[m].s * 1e6;
        }
    }
    return k;
}

static void put_calls(vt_json *w, const vt_program *program, const story_record *r,
                      const phase phases[STORY_PHASES], const slow_tokens *slow, picked *p,
                      double *v)
{
    static const story_column column[] = {{"step", 0}, {"label", 0}, {"begin_us", 2}, {"us", 2}};
    int32_t left_out = pick_calls(r, phases, slow, p);
    story_open_list(w, "calls", p->n_calls, left_out, "no step of it was timed call by call");
    put_labels(w, program, v);
    vt_json_open(w, "columns", '{');
    for (int c = 0; c < 4; c++) {
        int32_t n = list_calls(r, p, c, v);
        story_put_column(w, column[c].key, v, n, column[c].digits);
    }
    vt_json_close(w);
    vt_json_close(w);
}

/* ---- the typical step of a phase, call by call ---- */

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
        if (!s->typical || s->prefill != prefill || !story_bind_step(r, s, plan))
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
        story_put_column(w, column[k].key, s->of[k], n_calls, column[k].digits);
    }
    vt_json_close(w);
    vt_json_close(w);
}

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

static void put_typical(vt_json *w, const story_input *in, const story_record *r, story_step *plan,
                        const phase phases[STORY_PHASES], call_sums *s)
{
    vt_json_open(w, "typical", '{');
    vt_json_open(w, "phases", '[');
    for (int k = 0; k < STORY_PHASES; k++)
        if (phases[k].n_timed > 0) {
            sum_calls(in, r, plan, k == STORY_PREFILL, s);
            put_phase_calls(w, &phases[k], s, story_step_program(plan)->n_calls);
        }
    vt_json_close(w);
    int indent = story_open_line(w, "impls");
    for (int32_t i = 0; i < s->n_impls; i++)
        vt_json_string(w, NULL, s->impl[i]);
    story_close_line(w, indent);
    vt_json_close(w);
}

vt_status story_put_calls(vt_json *w, const story_input *in, story_record *r, story_step *plan,
                          const phase phases[STORY_PHASES], const slow_tokens *slow, vt_err *err)
{
    const vt_program *program = story_step_program(plan);
    size_t most = (size_t)program->n_calls + STORY_MAX_CALLS;
    picked p = {.step = vt_arena_alloc(&r->arena, (size_t)r->n_steps + 1, sizeof *p.step)};
    double *v = vt_arena_alloc(&r->arena, most, sizeof *v);
    call_sums s;
    if (!p.step || !v || !make_sums(r, program->n_calls, &s))
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    put_calls(w, program, r, phases, slow, &p, v);
    put_typical(w, in, r, plan, phases, &s);
    return VT_OK;
}
