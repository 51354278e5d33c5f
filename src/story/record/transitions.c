/* Transitions of a story (transitions.h). */
#include "story/record/transitions.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/term/term.h"
#include "story/record/gpu.h"
#include "story/record/numbers.h"

enum { MAX_TRANSITIONS = 32 };

/* ---- from prefill to decode ---- */

static double intensity(const phase *p)
{
    double bytes = 0, flops = 0;
    for (int32_t i = 0; i < p->n_ops; i++) {
        if (p->op[i].link)
            continue;
        bytes += op_bytes(&p->op[i]);
        flops += (double)vt_cost_flops(&p->op[i].cost);
    }
    return bytes > 0 ? flops / bytes : NAN;
}

/* The share of roof `b` that the phase reaches while its device works. */
static double reached(const phase *p, const vt_roofs *roofs, story_bound b)
{
    const double roof[STORY_BOUNDS] = {vt_roofs_bandwidth(roofs), roofs->fp32_per_s,
                                       roofs->bf16_per_s, roofs->int8_per_s, roofs->fp8_per_s};
    double work = 0;
    for (int32_t i = 0; i < p->n_ops; i++) {
        const vt_flops *f = &p->op[i].cost.flops;
        const double did[STORY_BOUNDS] = {p->op[i].link ? 0 : op_bytes(&p->op[i]), (double)f->fp32,
                                          (double)f->bf16, (double)f->int8, (double)f->fp8};
        work += did[b];
    }
    return roof[b] > 0 && p->n_timed ? work / p->n_timed / phase_step_s(p) / roof[b] : NAN;
}

static const op_sum *find_op(const phase *p, const vt_op *op)
{
    for (int32_t i = 0; i < p->n_ops; i++)
        if (strcmp(p->op[i].op, op->name) == 0)
            return &p->op[i];
    return NULL;
}

static void put_side(vt_json *w, const char *key, const story_input *in, const phase *p,
                     const vt_op *attention)
{
    const op_sum *o = find_op(p, attention);
    const kernel_sum *k = o ? op_kernel(o) : NULL;
    char how[96] = "";
    vt_json_open(w, key, '{');
    vt_json_string(w, "attention", attention->name);
    vt_json_string(w, "impl", o ? o->impl : "none");
    vt_json_string(w, "kernel", k ? kernel_facts(k)->name : NULL);
    story_gpu_how(p, phase_stream(p), how, sizeof how);
    vt_json_string(w, "how", *how ? how : NULL);
    vt_json_real(w, "rows", p->n_steps ? (double)p->n_tokens / p->n_steps : 0.0);
    vt_json_tagged(w, "flop_per_byte", intensity(p), 2, derived);
    vt_json_tagged(w, "of_memory", reached(p, &in->roofs, STORY_BOUND_MEMORY), 4, derived);
    vt_json_tagged(w, "of_int8", reached(p, &in->roofs, STORY_BOUND_INT8), 4, derived);
    vt_json_tagged(w, "of_fp32", reached(p, &in->roofs, STORY_BOUND_FP32), 4, derived);
    vt_json_tagged(w, "of_bf16", reached(p, &in->roofs, STORY_BOUND_BF16), 4, derived);
    if (reached(p, &in->roofs, STORY_BOUND_FP8) > 0)
        vt_json_tagged(w, "of_fp8", reached(p, &in->roofs, STORY_BOUND_FP8), 4, derived);
    vt_json_close(w);
}

void story_put_transition(vt_json *w, const story_input *in, const phase phases[STORY_PHASES])
{
    const phase *p = &phases[STORY_PREFILL], *d = &phases[STORY_DECODE];
    if (p->n_timed == 0 || d->n_timed == 0) {
        vt_json_null(w, "transition");
        return;
    }
    vt_json_open(w, "transition", '{');
    vt_json_string(w, "what", "prefill -> decode");
    vt_json_string(w, "reason", "one query row a sequence from here on");
    vt_json_null(w, "at_ms");
    put_side(w, "before", in, p, vt_op_that_is(VT_OP_PREFILLS));
    put_side(w, "after", in, d, vt_op_that_is(VT_OP_DECODES));
    vt_json_close(w);
}

/* ---- all transitions ---- */

/* The bytes and the arithmetic that a step needs, call by call. */
typedef struct step_work {
    double bytes, flops, floor_s;
} step_work;

static step_work work_of(const story_input *in, const story_step *plan)
{
    step_work work = {0};
    for (int32_t i = 0; i < story_step_program(plan)->n_calls; i++) {
        vt_cost cost, extra;
        story_bound bound;
        if (!story_step_cost(plan, i, &cost, &extra))
            continue;
        work.bytes += (double)vt_cost_bytes(&cost);
        work.flops += (double)vt_cost_flops(&cost);
        work.floor_s += story_floor_s(&cost, &in->roofs, &bound);
    }
    return work;
}

/* One line of the list: how the hardware was used before and after. */
typedef struct change {
    const char *kind;
    uint64_t step;
    double at_s;
    char what[96], reason[128];
    step_work before, after;
} change;

static void put_work(vt_json *w, const char *key, const step_work *s)
{
    vt_json_open(w, key, '{');
    vt_json_tagged(w, "bytes", s->bytes > 0 ? s->bytes : NAN, 0, derived);
    vt_json_tagged(w, "flop_per_byte", s->bytes > 0 ? s->flops / s->bytes : NAN, 2, derived);
    put_us(w, "floor_us", s->bytes > 0 ? s->floor_s : NAN, derived);
    vt_json_close(w);
}

static void put_change(vt_json *w, const change *c)
{
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "kind", c->kind);
    vt_json_string(w, "what", c->what);
    vt_json_string(w, "reason", c->reason);
    put_ms(w, "at_ms", c->at_s, measured);
    vt_json_int(w, "step", (int64_t)c->step);
    put_work(w, "before", &c->before);
    put_work(w, "after", &c->after);
    vt_json_close(w);
}

/* The rows that run each call; NULL: the step does not run it. */
static void list_rows(const story_step *plan, const vt_impl **row)
{
    for (int32_t i = 0; i < story_step_program(plan)->n_calls; i++)
        row[i] = story_step_impl(plan, i);
}

/* The first call that another row runs than before, and how many there are. Attention does not
 * count: its two kinds are different calls. */
static int32_t find_other_row(const story_step *plan, const vt_impl **before, int32_t *first)
{
    int32_t n = 0;
    for (int32_t i = 0; i < story_step_program(plan)->n_calls; i++) {
        const vt_impl *now = story_step_impl(plan, i);
        if (now && before[i] && now != before[i] && n++ == 0)
            *first = i;
    }
    return n;
}

static void begin_change(change *c, const story_record *r, const step_record *s, const char *kind)
{
    *c = (change){
        .kind = kind, .step = s->id, .at_s = (double)(s->device.begin_ns - story_origin(r)) * 1e-9};
}

/* Between two of the request's steps that follow each other. `row`: of the first; becomes that of
 * the second. */
static int32_t compare(vt_json *w, const story_input *in, const story_record *r,
                       const step_record *a, const step_record *b, story_step *plan,
                       const vt_impl **row, step_work *work)
{
    int32_t n = 0, call = 0;
    change c;
    step_work before = *work;
    if (!story_bind_step(r, b, plan))
        return 0;
    *work = work_of(in, plan);
    if (a->prefill && !b->prefill) {
        begin_change(&c, r, b, "phase");
        snprintf(c.what, sizeof c.what, "prefill -> decode");
        snprintf(c.reason, sizeof c.reason, "one query row a sequence from here on, %d before",
                 a->q_len > 0 ? a->q_len : a->n_tokens);
        c.before = before;
        c.after = *work;
        put_change(w, &c);
        n++;
    }
    int32_t x = step_graph(a), y = step_graph(b);
    if (a->prefill == b->prefill && x > 0 && y > 0 && x != y) {
        begin_change(&c, r, b, "bucket");
        snprintf(c.what, sizeof c.what, "graph for %d -> graph for %d", x, y);
        snprintf(c.reason, sizeof c.reason, "%d tokens a step, %d before; %d rows are padding",
                 b->n_tokens, a->n_tokens, y - b->n_tokens);
        c.before = before;
        c.after = *work;
        put_change(w, &c);
        n++;
    }
    int32_t others = find_other_row(plan, row, &call);
    if (others > 0) {
        begin_change(&c, r, b, "kernel");
        const vt_call *first = &story_step_program(plan)->call[call];
        snprintf(c.what, sizeof c.what, "%s: %s -> %s", story_call_kind(first), row[call]->name,
                 story_step_impl(plan, call)->name);
        snprintf(c.reason, sizeof c.reason, "%d tokens a step, %d before; %d call%s changed",
                 b->n_tokens, a->n_tokens, others, vt_text_s(others));
        c.before = before;
        c.after = *work;
        put_change(w, &c);
        n++;
    }
    list_rows(plan, row);
    return n;
}

/* Where the cached part of the prompt ends. */
static void put_miss(vt_json *w, const story_input *in, const story_record *r,
                     const step_record *first, story_step *plan)
{
    const request_record *q = r->mine;
    change c;
    if (!q || q->n_cached <= 0 || !first || !story_bind_step(r, first, plan))
        return;
    begin_change(&c, r, first, "miss");
    snprintf(c.what, sizeof c.what, "hit -> miss at token %d of %d", q->n_cached, q->n_prompt);
    snprintf(c.reason, sizeof c.reason, "%s",
             q->n_cached == q->n_prompt - 1 ? "the last token is computed for its logits"
                                            : "no cached page begins like this");
    c.after = work_of(in, plan);
    put_change(w, &c);
}

void story_put_transitions(vt_json *w, const story_input *in, const story_record *r,
                           story_step *plan)
{
    const step_record *before = NULL;
    int32_t n = 0;
    const vt_impl **row = calloc((size_t)story_step_program(plan)->n_calls + 1, sizeof *row);
    step_work work = {0};
    vt_json_open(w, "transitions", '[');
    for (int32_t i = 0; row && r->mine && i < r->n_steps && n < MAX_TRANSITIONS; i++) {
        const step_record *s = &r->step[i];
        if (!s->chosen)
            continue;
        if (before) {
            n += compare(w, in, r, before, s, plan, row, &work);
        } else {
            put_miss(w, in, r, s, plan);
            if (story_bind_step(r, s, plan)) {
                list_rows(plan, row);
                work = work_of(in, plan);
            }
        }
        before = s;
    }
    vt_json_close(w);
    free(row);
}
