/* Phases of a story (story/phases.h).
 *
 * For each step the plan is bound to the sequences that were in it; every call's exact cost then
 * stands beside the time it took. The plan is built like the engine's program, so a call's index
 * means the same in both. */
#include "story/phases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

story_bound op_bound(const op_sum *o)
{
    int best = 0;
    for (int i = 1; i < STORY_BOUNDS; i++)
        if (o->by_bound[i] > o->by_bound[best])
            best = i;
    return (story_bound)best;
}

double op_of_roof(const op_sum *o) { return o->s > 0 && o->floor_s > 0 ? o->floor_s / o->s : NAN; }

/* The sum that a call belongs to, made at its first call. */
static op_sum *sum_of(phase *p, const vt_call *c)
{
    const char *kind = story_call_kind(c);
    for (int32_t i = 0; i < p->n_ops; i++)
        if (p->op[i].impl == c->impl->name && strcmp(p->op[i].kind, kind) == 0)
            return &p->op[i];
    op_sum *o = &p->op[p->n_ops++];
    *o = (op_sum){.kind = kind,
                  .op = c->op->name,
                  .impl = c->impl->name,
                  .layer_first = c->layer,
                  .layer_last = c->layer};
    return o;
}

static void add_call(const story_input *in, const story_plan *plan, const step_record *s, phase *p,
                     const call_time *t)
{
    const vt_program *program = story_plan_program(plan);
    vt_cost cost, extra;
    story_bound bound;
    if (t->call < 0 || t->call >= program->n_calls ||
        !story_plan_cost(plan, t->call, &cost, &extra))
        return;
    const vt_call *c = &program->call[t->call];
    op_sum *o = sum_of(p, c);
    double floor_s = story_floor_s(&cost, &in->roofs, &bound);
    o->n_calls++;
    o->layer_last = c->layer > o->layer_last ? c->layer : o->layer_last;
    o->s += t->s;
    vt_cost_add(&o->cost, &cost);
    vt_cost_add(&o->extra, &extra);
    o->floor_s += floor_s;
    o->by_bound[bound] += floor_s;
    if (t->s > o->slowest_s) {
        o->slowest_s = t->s;
        o->slowest = c->label;
        o->slowest_step = s->id;
    }
    p->ops_s += t->s;
    p->floor_s += floor_s;
}

/* A row is wanted where the step reached the end of a prompt: there a token is chosen. */
static int32_t rows_of(const story_record *r, const step_seq *q)
{
    const request_record *owner = story_find_request(r, q->request);
    return !owner || q->kv_len >= owner->n_prompt ? 1 : 0;
}

static bool bind_step(const story_record *r, const step_record *s, story_plan *plan, story_seq *seq)
{
    if (s->n_call == 0 || s->n_seq != s->n_seqs)
        return false;
    for (int32_t i = 0; i < s->n_seq; i++) {
        const step_seq *q = &r->seq[s->first_seq + i];
        seq[i] = (story_seq){.q_len = q->q_len, .kv_len = q->kv_len, .n_rows = rows_of(r, q)};
    }
    return story_plan_bind(plan, seq, s->n_seq, NULL) == VT_OK;
}

static void add_step(const story_input *in, const story_record *r, const step_record *s,
                     story_plan *plan, story_seq *seq, phase *p)
{
    if (p->n_steps++ == 0) {
        p->begin_ns = s->device.begin_ns;
        p->kv_first = s->kv_len;
    }
    p->end_ns = s->device.end_ns;
    p->kv_last = s->kv_len;
    p->n_tokens += r->mine ? s->q_len : s->n_tokens;
    p->others += s->n_seqs - (r->mine != NULL);
    p->device_s += span_s(s->device);
    for (int i = 0; i < VT_PARTS; i++)
        p->part_s[i] += span_s(s->part[i]);
    if (!bind_step(r, s, plan, seq))
        return;
    p->n_timed++;
    p->timed_s += span_s(s->device);
    p->busy_s += s->busy_s;
    p->wait_s += s->wait_s;
    for (int32_t i = 0; i < s->n_call; i++)
        add_call(in, plan, s, p, &r->call[s->first_call + i]);
}

static int longest_first(const void *a, const void *b)
{
    double x = ((const op_sum *)a)->s, y = ((const op_sum *)b)->s;
    return (x < y) - (x > y);
}

vt_status story_sum_phases(const story_input *in, story_record *r, story_plan *plan,
                           phase out[STORY_PHASES], vt_err *err)
{
    static const char *const name[STORY_PHASES] = {"prefill", "decode"};
    size_t n_calls = (size_t)story_plan_program(plan)->n_calls;
    int32_t max_seqs = 1;
    for (int32_t i = 0; i < r->n_steps; i++)
        max_seqs = r->step[i].n_seq > max_seqs ? r->step[i].n_seq : max_seqs;
    story_seq *seq = vt_arena_alloc(&r->arena, (size_t)max_seqs, sizeof *seq);
    for (int i = 0; i < STORY_PHASES; i++) {
        out[i] = (phase){.name = name[i],
                         .op = vt_arena_alloc(&r->arena, n_calls, sizeof *out[i].op)};
        if (!seq || !out[i].op)
            return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    }
    for (int32_t i = 0; i < r->n_steps; i++)
        if (r->step[i].chosen)
            add_step(in, r, &r->step[i], plan, seq,
                     &out[r->step[i].prefill ? STORY_PREFILL : STORY_DECODE]);
    for (int i = 0; i < STORY_PHASES; i++) {
        if (out[i].n_steps)
            out[i].others /= out[i].n_steps;
        qsort(out[i].op, (size_t)out[i].n_ops, sizeof *out[i].op, longest_first);
    }
    return VT_OK;
}
