/* Calls that took far longer than their sisters (once.h).
 *
 *   1. In each typical step, the time of every call is divided by its floor, because layers may
 *      differ in their work (windows, types of weights). The median of these quotients is what is
 *      usual for the op in this step.
 *   2. A call of more than 5 times the usual is far above its sisters. In steps of an H200 in which
 *      nothing started, the slowest of 28 calls took at most 2.5 times the median, and the first
 *      call of a matrix by cuBLASLt took 10 times the median and more.
 *   3. After the last step, an op keeps these calls if there are at most two in the whole phase.
 *      More of them are how the op runs: layer 0 may be slow in every step. They must also make up
 *      20 % of the op's time: less does not change what the rules say about the op. */
#include "story/record/once.h"

#include <math.h>

#include "base/stats.h"

static const double far_above = 5.0; /* times the median */
static const double of_weight = 0.20;
/* With fewer calls a step, two slow ones would move the median. */
enum { MOST_CALLS = 2, LEAST_CALLS = 6 };

static double work_of(const call_mark *m) { return m->floor_s > 0 ? m->floor_s : 1; }

/* Adds a call to what its op has of such calls. */
static void add_once(op_once *to, const call_mark *m, double usual_s, const char *label,
                     int32_t layer, uint64_t step, bool first)
{
    to->n++;
    to->excess_s += m->s - usual_s;
    if (m->s <= to->s)
        return;
    to->s = m->s;
    to->usual_s = usual_s;
    to->call = label;
    to->layer = layer;
    to->step = step;
    to->first = first;
}

static void look_at_op(phase *p, int32_t op, const step_record *s, const vt_program *program)
{
    double low = INFINITY, high = 0;
    int32_t n = 0, at = 0;
    for (int32_t i = 0; i < p->n_mark; i++) {
        if (p->mark[i].op != op)
            continue;
        double times = p->mark[i].s / work_of(&p->mark[i]);
        p->times[n++] = times;
        low = fmin(low, times);
        high = fmax(high, times);
    }
    if (n < LEAST_CALLS || high <= far_above * low)
        return;
    double usual = vt_median(p->times, (size_t)n);
    op_sum *o = &p->op[op];
    /* a later chunk of a prompt may have another size, for which something starts */
    bool may_start = s->prefill || o->n_calls == n;
    for (int32_t i = 0; i < p->n_mark; i++) {
        const call_mark *m = &p->mark[i];
        if (m->op != op)
            continue;
        const vt_call *c = &program->call[m->call];
        if (m->s > far_above * usual * work_of(m))
            add_once(&o->once, m, usual * work_of(m), c->label, c->layer, s->id,
                     may_start && at == 0);
        at++;
    }
}

void story_once_step(phase *p, const step_record *s, const vt_program *program)
{
    for (int32_t k = 0; k < p->n_ops; k++)
        if (!p->op[k].link)
            look_at_op(p, k, s, program);
    p->n_mark = 0;
}

void story_once_settle(phase *p)
{
    for (int32_t k = 0; k < p->n_ops; k++) {
        op_sum *o = &p->op[k];
        if (o->once.n > MOST_CALLS || o->once.excess_s < of_weight * o->s)
            o->once = (op_once){0};
        p->once_s += o->once.excess_s;
    }
}
